import itertools

import numpy as np
import pytest
from pairwise import grid, in_turn

from dpsql.domains.attributes import Attribute, Domain
from dpsql.errors import ArgumentError
from dpsql.methods.gaussian_copula.fit import even_normals
from dpsql.methods.gaussian_copula.method import GaussianCopula
from dpsql.methods.gaussian_copula.sampling import block_lengths
from dpsql.tables.statistics import Statistics

COPULA = GaussianCopula()


def domain_of(sizes):
    return Domain(
        tuple(Attribute(f"a{i}", "VARCHAR", "categorical", tuple(map(str, range(n))), nullable=False) for i, n in enumerate(sizes))
    )


def exact_statistics(codes, sizes, scale=0.0, total=None, seed=0):
    rng, tables = np.random.default_rng(seed), {}
    for k in (1, 2):
        for clique in itertools.combinations(range(len(sizes)), k):
            shape = [sizes[i] for i in clique]
            flat = np.ravel_multi_index([codes[:, i] for i in clique], shape)
            counts = np.bincount(flat, minlength=int(np.prod(shape))).reshape(shape)
            tables[clique] = (counts + np.round(rng.normal(0, scale, shape) if scale else 0)).astype(np.int64)
    return Statistics(tuple(sizes), tables, dict.fromkeys(tables, scale), "gaussian", total)


def drawn(model, rows, seed=1):
    blocks = list(COPULA.sample(model, rows, np.random.default_rng(seed)))
    return np.concatenate(blocks) if blocks else np.zeros((0, len(model.sizes)), np.int32)


def pair_table(codes, i, j, sizes):
    return np.bincount(codes[:, i] * sizes[j] + codes[:, j], minlength=sizes[i] * sizes[j]).reshape(sizes[i], sizes[j])


LANGUAGES = np.repeat([[0, 0], [1, 1], [2, 2]], [100, 200, 100], axis=0)


@pytest.mark.parametrize(("first", "second"), in_turn([*itertools.permutations(range(3))], [(0, 1, 2), (1, 2, 0), (2, 1, 0)]))
def test_nominal_pairs_come_out_in_any_order_of_the_values(first, second) -> None:
    # English-Married 100, Chinese-Divorced 200, French-Widowed 100: rank correlation would depend on the ordering.
    codes = np.stack([np.asarray(first)[LANGUAGES[:, 0]], np.asarray(second)[LANGUAGES[:, 1]]], 1)
    model = COPULA.fit(exact_statistics(codes, [3, 3]), {})
    rows = drawn(model, 40_000)
    assert np.abs(pair_table(rows, 0, 1, [3, 3]) / 100 - pair_table(codes, 0, 1, [3, 3])).max() <= 4


@pytest.fixture(scope="module")
def mixed():
    """5,000 rows of 5 attributes: one constant, one copied from another, one binary, one of 12 values."""
    rng = np.random.default_rng(11)
    a = rng.choice(6, 5000, p=[0.4, 0.3, 0.15, 0.1, 0.04, 0.01])
    b = (a + rng.choice(3, 5000, p=[0.8, 0.1, 0.1])) % 6
    codes = np.stack([a, np.zeros_like(a), b, a >= 2, rng.choice(12, 5000)], 1).astype(np.int64)
    return codes, [6, 1, 6, 2, 12]


@pytest.fixture(scope="module")
def mixed_model(mixed):
    return COPULA.fit(exact_statistics(*mixed, scale=10.0), {})


def test_two_way_tables_of_rows_are_those_of_the_original(mixed, mixed_model) -> None:
    codes, sizes = mixed
    rows = drawn(mixed_model, len(codes))
    errors, independent = [], []
    for i, j in itertools.combinations(range(5), 2):
        exact = pair_table(codes, i, j, sizes)
        errors.append(np.abs(pair_table(rows, i, j, sizes) - exact).sum())
        product = np.outer(exact.sum(1), exact.sum(0)) / exact.sum()
        independent.append(np.abs(product - exact).sum())
    assert np.sum(errors) < 0.25 * np.sum(independent)
    assert max(errors) < 0.12 * len(codes)


def test_one_way_tables_of_rows_are_the_fitted_ones(mixed_model) -> None:
    rows = drawn(mixed_model, 20_000)
    got = np.concatenate([np.bincount(rows[:, i], minlength=c) for i, c in enumerate(mixed_model.sizes)])
    miss = np.abs(got - 20_000 * mixed_model.shares)
    assert miss.mean() < 6  # independent rows: about 30
    assert miss.max() < 40


@pytest.mark.parametrize("rows", [0, 1, 7, 4097])
def test_any_number_of_rows_reproducibly(mixed_model, rows: int) -> None:
    first, again, other = (drawn(mixed_model, rows, seed) for seed in (3, 3, 4))
    assert first.shape == (rows, 5)
    assert first.dtype == (np.uint8 if rows else np.int32)
    assert np.array_equal(first, again)
    assert rows < 7 or not np.array_equal(first, other)
    for i, size in enumerate(mixed_model.sizes):
        assert not rows or (first[:, i].min() >= 0 and first[:, i].max() < size)


def test_few_rows_follow_the_model_too(mixed, mixed_model) -> None:
    # 300 samples of 4 rows: over so few rows no table may be forced, or dependence is lost.
    codes, sizes = mixed
    rows = np.concatenate([drawn(mixed_model, 4, seed) for seed in range(300)])
    exact = pair_table(codes, 0, 3, sizes) / len(codes)
    assert np.abs(pair_table(rows, 0, 3, sizes) / len(rows) - exact).sum() < 0.12


def test_fit_is_deterministic(mixed) -> None:
    given = exact_statistics(*mixed, scale=10.0)
    one, two = (COPULA.fit(given, {"calibration_steps": 5}) for _ in range(2))
    assert np.array_equal(one.loadings, two.loadings)
    assert np.array_equal(one.offsets, two.offsets)


def test_calibration_beats_the_plain_copula() -> None:
    # Dependence of middling strength, where the noise of the decoded utilities matters most.
    rng = np.random.default_rng(12)
    a = rng.choice(5, 5000, p=[0.4, 0.3, 0.15, 0.1, 0.05])
    b = np.where(rng.random(5000) < 0.5, a, rng.choice(5, 5000))
    codes, errors = np.stack([a, b, (a + b) % 4], 1), []
    given = exact_statistics(codes, [5, 5, 4])
    for steps in (0, 150):
        rows = drawn(COPULA.fit(given, {"calibration_steps": steps}), 20_000)
        pairs = itertools.combinations(range(3), 2)
        tables = [[pair_table(x, i, j, [5, 5, 4]) for x in (rows, codes)] for i, j in pairs]
        errors.append(sum(np.abs(drawn_table / 4 - exact).sum() for drawn_table, exact in tables))
    assert errors[1] < 0.7 * errors[0]


@grid(output=["decoded", "one_hot"], sizes=[(1,), (5,), (1, 1), (2, 1), (4, 3), (1, 2, 1)], cell=[0, -40, 30])
def test_degenerate_tables(output: str, sizes, cell: int) -> None:
    plan = COPULA.plan(domain_of(sizes), {})
    tables = {c: np.full([sizes[i] for i in c], cell) for c in plan.cliques}
    options = {"output": output, "calibration_steps": 3}
    model = COPULA.fit(Statistics(sizes, tables, dict.fromkeys(tables, 20.0)), options)
    assert model.rows >= 0
    assert cell > 0 or COPULA.total(model) == 0
    draw = COPULA.sample if output == "decoded" else COPULA.sample_one_hot
    block = np.concatenate(list(draw(model, 9, np.random.default_rng(0))))
    assert block.shape == (9, len(sizes) if output == "decoded" else sum(sizes))
    assert list(draw(model, 0, np.random.default_rng(0))) == []


def test_one_hot_columns_have_the_published_marginals(mixed) -> None:
    codes, sizes = mixed
    published = {"output": "one_hot", "consistency": "none", "shrinkage": "none"}
    model = COPULA.fit(exact_statistics(codes, sizes, total=5000), published)
    rows = np.concatenate(list(COPULA.sample_one_hot(model, 50_000, np.random.default_rng(2))))
    assert rows.dtype == np.uint8
    assert set(np.unique(rows)) == {0, 1}
    expected = np.concatenate([np.bincount(codes[:, i], minlength=c) for i, c in enumerate(sizes)]) / 5000
    assert np.abs(rows.mean(0) - expected).max() < 0.01
    assert (rows[:, :6].sum(1) != 1).mean() > 0.02  # no decoding: cells with no value or several


def test_a_public_total_is_kept(mixed) -> None:
    model = COPULA.fit(exact_statistics(*mixed, scale=30.0, total=5000), {"calibration_steps": 0})
    assert COPULA.total(model) == 5000


def test_plan_lists_all_tables_once() -> None:
    plan = COPULA.plan(domain_of([3, 4, 5]), {})
    assert plan.cliques == ((0,), (1,), (2,), (0, 1), (0, 2), (1, 2))
    assert plan.weights == (1.0,) * 6
    assert COPULA.plan(domain_of([3, 4]), {"one_way_weight": 0}).cliques == ((0, 1),)
    assert COPULA.plan(domain_of([3]), {"one_way_weight": 0}).cliques == ((0,),)
    assert COPULA.plan(domain_of([3, 4]), {"one_way_weight": 2.5}).weights == (2.5, 2.5, 1.0)
    assert "as published" in COPULA.plan(domain_of([3, 4]), {"output": "one_hot"}).notes[0]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"colour": 1}, "not an option"),
        ({"output": "table"}, "'decoded', 'one_hot'"),
        ({"consistency": "x"}, "'least_squares', 'none'"),
        ({"shrinkage": "x"}, "'empirical_bayes', 'none'"),
        ({"calibration_steps": -1}, "from 0 to 100000"),
        ({"calibration_steps": 1.5}, "from 0 to 100000"),
        ({"calibration_steps": True}, "from 0 to 100000"),
        ({"calibration_steps": "some"}, "'auto' or a whole number"),
        ({"one_way_weight": -1}, "from 0 to 1000"),
        ({"one_way_weight": float("nan")}, "from 0 to 1000"),
        ({"one_way_weight": "much"}, "from 0 to 1000"),
    ],
)
def test_refusals(options, text: str) -> None:
    with pytest.raises(ArgumentError, match=text):
        COPULA.plan(domain_of([2, 2]), options)


def test_requests_that_no_model_can_answer(mixed_model) -> None:
    with pytest.raises(ArgumentError, match="at least one column"):
        COPULA.plan(domain_of([]), {})
    with pytest.raises(ArgumentError, match="rows"):
        COPULA.sample(mixed_model, -1, np.random.default_rng(0))
    with pytest.raises(ArgumentError, match="output := 'one_hot'"):
        COPULA.sample_one_hot(mixed_model, 1, np.random.default_rng(0))


def test_even_normals_are_even() -> None:
    draws = even_normals(8, 4096, np.random.default_rng(0)).astype(float)
    assert np.abs(draws.mean(1)).max() < 1e-6
    assert np.abs(draws @ draws.T / 4096 - np.eye(8)).max() < 1e-5
    assert even_normals(8, 7, np.random.default_rng(0)).shape == (8, 8)
    assert even_normals(0, 4, np.random.default_rng(0)).shape == (0, 4)


@pytest.mark.parametrize(
    ("sizes", "rank", "rows"),
    [([1], 0, 0), ([2] * 97, 64, 1), ([200, 2], 64, 10**7), ([2] * 10**6, 64, 9000), ([3], 5, 130_000), ([5000], 3, 50_000)],
)
def test_blocks_add_up_and_stay_small(sizes, rank, rows) -> None:
    lengths = block_lengths(sizes, rank, rows)
    assert sum(lengths) == rows
    assert all(lengths)
    assert max(lengths, default=1) <= 122_880
    largest = max(lengths, default=1)
    assert largest <= 4096 or largest * max(*sizes, rank, 1) <= 1 << 24
    assert largest <= 4096 or largest * len(sizes) <= 1 << 28
