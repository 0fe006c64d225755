import itertools
import math

import numpy as np
import pytest

from dpsql.errors import ArgumentError
from dpsql.running.progress import Progress
from dpsql.tables import measured
from dpsql.tables.consistency import (
    consistent_tables,
    fit_margins,
    fit_margins_linearly,
    noise_variance,
    shrink_to_independence,
    simplex_projection,
)
from dpsql.tables.flat import FlatScales, FlatTables
from dpsql.tables.statistics import Statistics


def statistics(joint, scale=0.0, *, cliques=None, seed=0, mechanism="gaussian", total=None):
    """Tables of a joint table of counts, with rounded noise."""
    joint, rng = np.asarray(joint), np.random.default_rng(seed)
    m = joint.ndim
    cliques = cliques or [c for k in (1, 2) for c in itertools.combinations(range(m), k)]
    draw = rng.normal if mechanism == "gaussian" else rng.laplace
    tables = {}
    for clique in cliques:
        exact = joint.sum(axis=tuple(i for i in range(m) if i not in clique))
        tables[clique] = (exact + np.round(draw(0, scale, exact.shape) if scale else 0)).astype(np.int64)
    return Statistics(joint.shape, tables, dict.fromkeys(cliques, scale), mechanism, total)


JOINT = np.random.default_rng(3).multinomial(5000, np.random.default_rng(4).dirichlet(np.full(60, 0.3))).reshape(3, 4, 5)


@pytest.mark.parametrize("shrinkage", ["empirical_bayes", "none"])
def test_exact_tables_come_back(shrinkage: str) -> None:
    found = consistent_tables(statistics(JOINT), shrinkage=shrinkage)
    assert found.total == pytest.approx(5000)
    for i in range(3):
        others = tuple(j for j in range(3) if j != i)
        assert np.allclose(found.one_way[i] * 5000, JOINT.sum(axis=others), atol=1e-3)
    for (i, j), table in found.two_way.items():
        assert np.allclose(table * 5000, JOINT.sum(axis=3 - i - j), atol=0.05)


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
@pytest.mark.parametrize("total", [None, 5000])
@pytest.mark.parametrize("scale", [1.0, 40.0, 5000.0])
def test_noisy_tables_end_up_consistent(mechanism: str, total: int | None, scale: float) -> None:
    found = consistent_tables(statistics(JOINT, scale, mechanism=mechanism, total=total))
    if total:
        assert found.total == total
    for shares in found.one_way:
        assert shares.min() >= 0.0
        assert shares.sum() == pytest.approx(1.0, abs=1e-9)
    for pair, table in found.two_way.items():
        assert table.min() >= 0.0
        assert np.allclose(table.sum(1), found.one_way[pair[0]], atol=1e-6)
        assert np.allclose(table.sum(0), found.one_way[pair[1]], atol=1e-6)
        assert np.allclose(found.unbiased[pair].sum(1), found.one_way[pair[0]], atol=1e-9)


def test_error_falls_at_every_stage() -> None:
    # Skewed margins and little dependence, as real tables have: a mixture of two products.
    skewed = [0.7 ** np.arange(8), 0.5 ** np.arange(6), 0.6 ** np.arange(5)]
    products = [np.einsum("i,j,k->ijk", *(s[::d] for s in skewed)) for d in (1, -1)]
    joint = np.round(20_000 * (products[0] / products[0].sum() + 0.02 * products[1] / products[1].sum())).astype(int)
    raw, adjusted, shrunk = [], [], []
    for seed in range(5):
        noisy = statistics(joint, 30.0, seed=seed)
        plain = consistent_tables(noisy, shrinkage="none")
        bayes = consistent_tables(noisy)
        for i, j in ((0, 1), (0, 2), (1, 2)):
            exact = joint.sum(axis=3 - i - j)
            raw.append(np.abs(noisy.tables[(i, j)] - exact).mean())
            adjusted.append(np.abs(plain.two_way[(i, j)] * plain.total - exact).mean())
            shrunk.append(np.abs(bayes.two_way[(i, j)] * bayes.total - exact).mean())
    assert np.mean(adjusted) < 0.9 * np.mean(raw)
    assert np.mean(shrunk) < 0.9 * np.mean(adjusted)


def test_independent_attributes_come_out_nearly_independent() -> None:
    joint = np.outer([6000, 3000, 1000], [0.5, 0.3, 0.2]).astype(int)
    found = consistent_tables(statistics(joint, 50.0, seed=2))
    independent = np.outer(found.one_way[0], found.one_way[1])
    assert np.abs(found.two_way[(0, 1)] - independent).sum() < 0.3 * np.abs(found.unbiased[(0, 1)] - independent).sum()


def test_precise_tables_outweigh_noisy_ones() -> None:
    noisy = statistics(JOINT)
    tables = dict(noisy.tables)
    tables[(0,)] = tables[(0,)] + np.array([900, -900, 0])
    scales = {c: 1000.0 if c == (0,) else 1.0 for c in tables}
    found = consistent_tables(Statistics(noisy.sizes, tables, scales))
    assert np.abs(found.one_way[0] * found.total - JOINT.sum((1, 2))).max() < 1.0


def test_the_weighted_total_is_the_one_of_least_variance() -> None:
    # One table of 4 cells (variance 4) and one of 2 (variance 2): weights 1/3 and 2/3.
    found = consistent_tables(
        Statistics((4, 2), {(0,): np.full(4, 300), (1,): np.full(2, 750)}, {(0,): 1.0, (1,): 1.0})
    )
    assert found.total == pytest.approx((1200 + 2 * 1500) / 3)


def test_wider_cliques_tell_about_their_pairs() -> None:
    found = consistent_tables(statistics(JOINT, cliques=[(0, 1, 2)]))
    assert sorted(found.two_way) == [(0, 1), (0, 2), (1, 2)]
    assert np.allclose(found.unbiased[(0, 2)] * 5000, JOINT.sum(axis=1), atol=1e-3)


def test_published_form_leaves_the_one_way_tables_alone() -> None:
    tables = {(0,): np.array([70, -5, 40]), (1,): np.array([60, 40]), (0, 1): np.array([[50, 30], [-9, 3], [10, 20]])}
    found = consistent_tables(
        Statistics((3, 2), tables, dict.fromkeys(tables, 5.0), "laplace", 100), adjustment="none", shrinkage="none"
    )
    assert found.one_way[0].tolist() == [0.7, 0.0, 0.4]
    assert found.two_way[(0, 1)].tolist() == [[0.5, 0.3], [0.0, 0.03], [0.1, 0.2]]


@pytest.mark.parametrize("value", [0, -700])
def test_nothing_there(value: int) -> None:
    sizes = (3, 1, 2)
    cliques = [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2)]
    tables = {c: np.full([sizes[i] for i in c], value) for c in cliques}
    found = consistent_tables(Statistics(sizes, tables, dict.fromkeys(cliques, 10.0)))
    assert found.total == 0.0
    for shares in (*found.one_way, *(t.ravel() for t in found.two_way.values())):
        assert shares.min() >= 0.0
        assert shares.sum() == pytest.approx(1.0)


def test_an_attribute_that_no_table_covers_is_uniform() -> None:
    found = consistent_tables(Statistics((2, 4), {(0,): np.array([30, 70])}, {(0,): 0.0}))
    assert found.one_way[1].tolist() == [0.25] * 4
    assert not found.two_way


def test_shrinkage_keeps_an_exact_table_and_flattens_noise() -> None:
    rows, columns = np.array([400.0, 600.0]), np.array([500.0, 500.0])
    dependent = np.array([[400.0, 0.0], [100.0, 500.0]])
    assert np.allclose(shrink_to_independence(dependent, rows, columns, 1.0), dependent, atol=0.1)
    independent = np.outer(rows, columns) / 1000
    slightly_off = independent + np.array([[20.0, -20.0], [-20.0, 20.0]])
    moved = shrink_to_independence(slightly_off, rows, columns, 100.0**2)
    assert np.abs(moved - independent).max() < 0.1


def test_linear_fit_is_the_least_squares_one() -> None:
    table = np.random.default_rng(0).normal(size=(3, 4))
    rows, columns = np.array([1.0, 2.0, 3.0]), np.array([2.0, 2.0, 1.0, 1.0])
    found = fit_margins_linearly(table, rows, columns)
    constraints = np.concatenate((np.kron(np.eye(3), np.ones(4)), np.kron(np.ones(3), np.eye(4))))
    goal = np.concatenate((rows, columns))
    brute = table.ravel() + np.linalg.pinv(constraints) @ (goal - constraints @ table.ravel())
    assert np.allclose(found.ravel(), brute)


def test_fit_of_a_table_whose_zeros_forbid_the_sums() -> None:
    found = fit_margins(np.diag([1.0, 0.0]), [1.0, 1.0], [1.0, 1.0])
    assert np.isfinite(found).all()
    assert np.allclose(found.sum(0), 1.0)


def test_simplex_projection_by_enumeration() -> None:
    values = np.array([0.9, 0.4, -0.2, 0.35])
    best = min(
        (
            np.where(np.isin(np.arange(4), kept), values - (values[list(kept)].sum() - 1) / len(kept), 0.0)
            for k in range(1, 5)
            for kept in itertools.combinations(range(4), k)
        ),
        key=lambda x: np.inf if x.min() < 0 else np.sum((x - values) ** 2),
    )
    assert np.allclose(simplex_projection(values), best)
    rng = np.random.default_rng(8)
    for _ in range(20):
        values = rng.normal(2, 5, 6)
        found = simplex_projection(values, 10.0)
        assert found.sum() == pytest.approx(10.0)
        assert found.min() >= 0
        others = rng.dirichlet(np.full(6, 0.5), 500) * 10
        assert ((values - found) ** 2).sum() <= ((values - others) ** 2).sum(axis=1).min() + 1e-9


@pytest.mark.parametrize("total", [5e-324, 1e-300, 1e-16, 2.5])
@pytest.mark.parametrize("values", [[15.0, -7.0], [1e15, 1e15, -3.0], [0.0], [-1e300, -1e300], [0.1, 0.1, 0.1]])
def test_simplex_projection_of_a_total_that_rounding_loses(values: list[float], total: float) -> None:
    found = simplex_projection(values, total)
    assert found.sum() == pytest.approx(total, rel=1e-9, abs=1e-323)
    assert found.min() >= 0.0


def test_refusals_name_the_argument() -> None:
    given = statistics(JOINT)
    with pytest.raises(ArgumentError, match="consistency = 'some'"):
        consistent_tables(given, adjustment="some")
    with pytest.raises(ArgumentError, match="shrinkage = 'some'"):
        consistent_tables(given, shrinkage="some")
    with pytest.raises(ArgumentError, match="an array of shape"):
        consistent_tables(Statistics((3,), {(0,): np.zeros(4, int)}, {(0,): 1.0}))
    with pytest.raises(ArgumentError, match="mechanism"):
        noise_variance(1.0, "cauchy")
    with pytest.raises(ArgumentError, match="scale"):
        noise_variance(-1.0, "gaussian")
    with pytest.raises(ArgumentError, match="total"):
        simplex_projection([1.0], 0.0)
    with pytest.raises(ArgumentError, match="values"):
        simplex_projection([])


def plain(given: Statistics, adjustment: str, shrinkage: str) -> tuple[float, list[np.ndarray], dict, dict, dict]:
    """`consistent_tables`, one table after the other, written from its description."""
    m, variance = len(given.sizes), {c: max(noise_variance(s, given.mechanism), 1e-6) for c, s in given.scales.items()}
    weights = {c: 1.0 / (variance[c] * t.size) for c, t in given.tables.items()}
    total = sum(weights[c] * t.sum() for c, t in given.tables.items()) / sum(weights.values())
    total = max(float(total if given.total is None else given.total), 0.0)
    rows, one_way, ratio = max(total, 1.0), [], np.logspace(-6.0, 6.0, 73)
    for i in range(m):
        if adjustment == "none" and (i,) in given.tables:
            one_way.append(np.clip(given.tables[(i,)], 0.0, rows))
            continue
        known = [(given.sizes[i] * weights[c], t.sum(axis=tuple(a for a, x in enumerate(c) if x != i)))
                 for c, t in given.tables.items() if i in c]  # fmt: skip
        mean = sum(w * t for w, t in known) / sum(w for w, _ in known)
        one_way.append(simplex_projection(mean + (rows - mean.sum()) / mean.size, rows))
    two_way, unbiased, deviation = {}, {}, {}
    for i, j in itertools.combinations(range(m), 2):
        size = given.sizes[i] * given.sizes[j]
        known = [(size * weights[c], t.sum(axis=tuple(a for a, x in enumerate(c) if x not in (i, j))))
                 for c, t in given.tables.items() if i in c and j in c]  # fmt: skip
        if not known:
            continue
        precision = sum(w for w, _ in known)
        table, a, b = sum(w * t for w, t in known) / precision, one_way[i], one_way[j]
        if adjustment == "least_squares":
            constraints = np.concatenate((np.kron(np.eye(a.size), np.ones(b.size)), np.kron(np.ones(a.size), np.eye(b.size))))
            wrong = np.concatenate((a, b)) - constraints @ table.ravel()
            table = table + (np.linalg.pinv(constraints, rcond=1e-10) @ wrong).reshape(table.shape)
        unbiased[i, j], deviation[i, j] = table / rows, precision**-0.5 / rows
        if shrinkage == "empirical_bayes":
            expected = np.outer(a, b) / a.sum()
            noise = np.prod([max(1.0 - 1.0 / side, 0.25) for side in table.shape]) / precision
            spread = ratio[:, None, None] * expected / expected.max() + 1.0
            best = np.argmin((np.log(spread) + (table - expected) ** 2 / noise / spread).sum((1, 2)))
            table = expected + (table - expected) * (1.0 - 1.0 / spread[best])
        two_way[i, j] = (fitted_alone(table, a, b) if adjustment == "least_squares" else np.maximum(table, 0.0)) / rows
    return total, [counts / rows for counts in one_way], two_way, unbiased, deviation


def fitted_alone(table: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """`fit_margins` of one table, cell by cell in loops over rows and columns."""
    total, table = a.sum(), np.maximum(table, 0.0)
    for _ in range(100):
        missing, others = a - table.sum(1), b - table.sum(0)
        table = np.array([[cell + missing[x] / b.size + others[y] / a.size - missing.sum() / table.size
                           for y, cell in enumerate(row)] for x, row in enumerate(table)])  # fmt: skip
        if table.min() >= -1e-7 * total:
            break
        table = np.maximum(table, 0.0)
    table = np.maximum(table, 0.0) + 1e-7 * np.outer(a, b) / total
    for _ in range(100):
        table = np.array([row * a[x] / max(row.sum(), 1e-300) for x, row in enumerate(table)])
        table = np.array([column * b[y] / max(column.sum(), 1e-300) for y, column in enumerate(table.T)]).T
        if np.abs(table.sum(1) - a).max() <= 1e-9 * total:
            break
    return table


SHAPES = {
    "alike": ((2,) * 9, (1, 2)),
    "mixed": ((2, 3, 1, 3, 2, 4, 1, 2), (1, 2)),
    "of three": ((2, 3, 2, 2, 3), (3,)),
    "of all orders": ((2, 3, 2, 2, 3), (1, 2, 3)),
    "pairs alone": ((3, 3, 3, 2), (2,)),
    "large": ((2, 30, 2, 20), (1, 2)),
    "one": ((3,), (1,)),
}


@pytest.mark.parametrize("adjustment", ["least_squares", "none"])
@pytest.mark.parametrize("shrinkage", ["empirical_bayes", "none"])
@pytest.mark.parametrize("flat", [True, False])
@pytest.mark.parametrize("name", SHAPES)
def test_stacks_give_what_one_table_after_the_other_gives(
    name: str, flat: bool, shrinkage: str, adjustment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measured, "_CHUNK", 40)  # several chunks of a shape
    sizes, orders = SHAPES[name]
    rng = np.random.default_rng(5)
    cliques = tuple(c for k in orders for c in itertools.combinations(range(len(sizes)), k) if k < 3 or rng.random() < 0.8)
    codes = (rng.normal(size=(2000, 1)) + rng.normal(size=(2000, len(sizes))) > 0.5) * rng.integers(0, sizes, (2000, len(sizes)))
    tables = {}
    for clique in cliques:
        shape = [sizes[i] for i in clique]
        counts = np.bincount(np.ravel_multi_index(codes[:, clique].T, shape), minlength=math.prod(shape)).reshape(shape)
        tables[clique] = counts + rng.normal(0.0, 30.0, shape).round().astype(np.int64)
    scales = {clique: 20.0 + 10.0 * len(clique) for clique in cliques}
    given = Statistics(sizes, tables, scales)
    total, one_way, two_way, unbiased, deviation = plain(given, adjustment, shrinkage)
    if flat:
        together = FlatTables(sizes, cliques, np.concatenate([tables[c].ravel() for c in cliques]))
        given = Statistics(sizes, together, FlatScales(cliques, np.array([scales[c] for c in cliques])))
    found = consistent_tables(given, adjustment=adjustment, shrinkage=shrinkage)
    assert found.total == pytest.approx(total, rel=1e-12)
    for mine, other in zip(found.one_way, one_way, strict=True):
        assert np.allclose(mine, other, rtol=0, atol=1e-9)
    assert list(found.two_way) == list(two_way)
    for pair in two_way:
        assert np.allclose(found.two_way[pair], two_way[pair], rtol=0, atol=1e-9)
        assert np.allclose(found.unbiased[pair], unbiased[pair], rtol=0, atol=1e-9)
        assert found.deviation[pair] == pytest.approx(deviation[pair], rel=1e-12)
    for pairs, _ in found.two_way.by_shape():
        for (i, j), a, b in zip(pairs.tolist(), *found.margins(pairs), strict=True):
            assert a.tolist() == found.one_way[i].tolist()
            assert b.tolist() == found.one_way[j].tolist()


def test_stacks_in_either_memory_order_are_tables_alone() -> None:
    rng = np.random.default_rng(1)
    for shape in ((2, 2), (3, 5), (9, 20)):
        tables = rng.normal(10.0, 9.0, (12, *shape))
        a, b = (rng.dirichlet(np.ones(side), 12) * 1000.0 for side in shape)
        variances = rng.uniform(1.0, 300.0, 12)
        by_cell = np.moveaxis(np.ascontiguousarray(np.moveaxis(tables, 0, -1)), -1, 0)
        for stack in (tables, by_cell):
            shrunk, fitted = shrink_to_independence(stack, a, b, variances), fit_margins(stack, a, b)
            for i in range(12):
                assert np.allclose(shrunk[i], shrink_to_independence(tables[i], a[i], b[i], float(variances[i])), atol=1e-9)
                assert np.allclose(fitted[i], fit_margins(tables[i], a[i], b[i]), atol=1e-7)
                assert np.allclose(fitted[i], fitted_alone(tables[i], a[i], b[i]), atol=1e-7)
        assert np.array_equal(tables, by_cell)  # nothing was written into what was given


def test_nothing_but_negative_counts_without_adjustment() -> None:
    tables = {(0,): np.array([-3, -1]), (1,): np.array([-2, -2]), (0, 1): np.full((2, 2), -5)}
    found = consistent_tables(Statistics((2, 2), tables, dict.fromkeys(tables, 2.0)), adjustment="none")
    assert found.total == 0.0
    assert np.isfinite(found.two_way[0, 1]).all()


def test_the_stage_is_timed() -> None:
    with Progress("test", show=False) as progress:
        consistent_tables(statistics(JOINT, 5.0))
    assert list(progress.seconds) == ["consistency"]
