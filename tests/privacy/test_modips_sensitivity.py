"""What one changed row does to everything `modips` releases, in units of the noise, on all tiny tables and on larger ones by climbing.

The charge of a pair of neighbours is the sum of |difference| / scale over all numbers of one set: the exact privacy loss of
independent Laplace noise. It must not exceed epsilon / sets, each part must not exceed its own share, and where the bound is claimed
to be reached it must be, within 10 %. Broken variants must be caught by the same search.
"""

import itertools
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from dpsql.domains import attributes
from dpsql.domains.attributes import FINE, Attribute, Domain
from dpsql.mechanisms import moments
from dpsql.mechanisms.moments import TOP
from dpsql.methods.base import Contract, Counted
from dpsql.methods.modips.method import Modips
from dpsql.methods.modips.statistics import exact_statistics

PUBLIC = Contract("replace_one", 1, True)
Row = tuple[int, tuple[int, ...]]  # cell, values
Exact = Callable[[list[Row]], list[np.ndarray]]


def domain_of(cells: int, numeric: int) -> Domain:
    """One categorical column (none for one cell) and so many numeric ones."""
    columns = [Attribute("c", "VARCHAR", "categorical", tuple(map(str, range(cells))), nullable=False)] if cells > 1 else []
    columns += [Attribute(f"x{i}", "DOUBLE", "numeric", edges=(0.0, 3.0), nullable=False) for i in range(numeric)]
    return Domain(tuple(columns))


def counted(rows: list[Row], domain: Domain) -> Counted:
    """Count and sum as SQL does, in Python integers."""
    cells, numeric = domain.sizes[0] if domain.attributes[0].kind == "categorical" else 1, len(rows[0][1])
    clique = (0,) if cells > 1 else ()
    table, sums = np.zeros(cells, dtype=np.int64), np.zeros((cells, numeric), dtype=np.int64)
    for cell, values in rows:
        table[cell] += 1
        sums[cell] += np.array(values, dtype=np.int64)
    pairs = [(i, j) for i in range(numeric) for j in range(i, numeric)]
    products = [sum(values[i] * values[j] for _, values in rows) for i, j in pairs]
    return Counted({clique: table.reshape((cells,) if clique else ())}, len(rows), sums if numeric else None, products or None)


def parts_of(domain: Domain) -> Exact:
    return lambda rows: exact_statistics(counted(rows, domain), domain)


def losses(first: list[np.ndarray], second: list[np.ndarray], scales: list[Fraction]) -> list[Fraction]:
    """Return the exact loss of each part."""
    return [
        Fraction(int(np.abs(a - b).sum())) / scale for a, b, scale in zip(first, second, scales, strict=True)
    ]


def neighbours(rows: list[Row], universe: list[Row]) -> list[list[Row]]:
    return [[*rows[:i], other, *rows[i + 1 :]] for i in range(len(rows)) for other in universe if other != rows[i]]


def enumerate_worst(exact: Exact, scales: list[Fraction], universe: list[Row], size: int) -> tuple[list[Fraction], Fraction]:
    """Return the largest loss of each part, and of all together, over every table of this size and every neighbour."""
    worst, together = [Fraction(0)] * len(scales), Fraction(0)
    for rows in itertools.combinations_with_replacement(universe, size):
        here = exact(list(rows))
        for other in neighbours(list(rows), universe):
            found = losses(here, exact(other), scales)
            worst = [max(a, b) for a, b in zip(worst, found, strict=True)]
            together = max(together, sum(found, Fraction(0)))
    return worst, together


def climb(
    exact: Exact, scales: list[Fraction], cells: int, numeric: int, size: int, part: int | None, rng: np.random.Generator
) -> Fraction:
    """Return the largest loss (of one part, or of all) that random changes of a pair of neighbours reach."""

    def random_row() -> Row:
        values = rng.choice([0, 1, TOP // 2, TOP // 2 + 1, TOP - 1, TOP, int(rng.integers(FINE))], numeric)
        return int(rng.integers(cells)), tuple(int(v) for v in values)

    def loss(rows: list[Row], other: Row) -> Fraction:
        found = losses(exact(rows), exact([other, *rows[1:]]), scales)
        return sum(found, Fraction(0)) if part is None else found[part]

    best = Fraction(0)
    for _ in range(4):
        rows, other = [random_row() for _ in range(size)], random_row()
        here = loss(rows, other)
        for _ in range(150):
            trial, changed = list(rows), other
            place = int(rng.integers(size + 1))
            if place == size:
                changed = random_row()
            else:
                trial[place] = random_row()
            found = loss(trial, changed)
            if found >= here:
                rows, other, here = trial, changed, found
        best = max(best, here)
    return best


def priced(domain: Domain, epsilon: Fraction = Fraction(1), **options: object) -> tuple[list[Fraction], list[Fraction]]:
    """Return scale and charge of each part, the charge as the accountant sees it, for one set."""
    price = Modips().price(domain, PUBLIC, epsilon, options)
    sets = int(options.get("sets", 1))
    scales = [Fraction(text) for text in price.parameters["scales"]]
    return scales, [event.epsilon * event.count / sets for event in price.events]


def test_fine_is_one_number() -> None:
    assert moments.FINE == attributes.FINE


VALUES = [0, 1, 30_000, TOP - 1, TOP]


@pytest.mark.parametrize("size", [1, 2, 3])
def test_binary(size: int) -> None:
    domain = Domain((Attribute("b", "BOOLEAN", "categorical", ("false", "true"), nullable=False),))
    scales, charges = priced(domain, Fraction(3, 10), sets=3)
    worst, together = enumerate_worst(parts_of(domain), scales, [(0, ()), (1, ())], size)
    assert sum(charges) <= Fraction(1, 10)
    assert together == charges[0]
    assert worst == charges


@pytest.mark.parametrize("budget", ["split", "joint"])
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_normal(size: int, budget: str) -> None:
    domain = domain_of(1, 1)
    scales, charges = priced(domain, Fraction(2), budget=budget, sets=4)
    worst, together = enumerate_worst(parts_of(domain), scales, [(0, (v,)) for v in VALUES], size)
    assert sum(charges) <= Fraction(1, 2)
    assert sum(charges) > Fraction(1, 2) * Fraction(99999, 100000)
    assert worst[0] == charges[0]
    assert worst[1] <= charges[1]
    if size > 1:
        assert worst[1] == charges[1]
        assert together == sum(charges)  # one pair reaches both: nothing could be saved
    else:
        assert worst[1] == 0


def test_joint_is_the_published_vector() -> None:
    """Noise (R + R^2) / (n epsilon) on mean and variance in the column's units, R = 3."""
    scales, _ = priced(domain_of(1, 1), Fraction(1), budget="joint")
    width, n = 3, 50
    on_mean = width * scales[0] / (TOP * n)
    on_variance = width**2 * scales[1] / (FINE * n)
    assert float(on_mean * n) == pytest.approx(12, rel=1e-5)
    assert float(on_variance * n) == pytest.approx(12, rel=1e-5)


@pytest.mark.parametrize(("cells", "numeric"), [(1, 1), (2, 1), (3, 1), (1, 2), (2, 2)])
@pytest.mark.parametrize("size", [1, 2])
def test_mixed_on_all_small_tables(cells: int, numeric: int, size: int) -> None:
    domain = domain_of(cells, numeric)
    if (cells, numeric) == (1, 1):
        domain = Domain((*domain.attributes, Attribute("k", "VARCHAR", "categorical", ("k",), nullable=False)))
        exact: Exact = lambda rows: moments.mixed_statistics(*_raw(rows, 1))  # noqa: E731
    else:
        exact = parts_of(domain)
    scales, charges = priced(domain, Fraction(1), sets=2)
    values = VALUES if numeric == 1 else [0, 30_000, 32_768, TOP]
    universe = [(c, v) for c in range(cells) for v in itertools.product(values, repeat=numeric)]
    worst, together = enumerate_worst(exact, scales, universe, size)
    assert sum(charges) <= Fraction(1, 2)
    assert together <= Fraction(1, 2)
    for found, charge in zip(worst, charges, strict=True):
        assert charge * Fraction(9, 10) < found <= charge


def _raw(rows: list[Row], cells: int) -> tuple[np.ndarray, np.ndarray, list[int]]:
    found = counted(rows, domain_of(cells, len(rows[0][1])))
    assert found.sums is not None
    assert found.products is not None
    return next(iter(found.tables.values())), found.sums, found.products


def test_moved_row_is_as_bad_as_one_that_stays() -> None:
    """Sums: both ways to reach 2 TOP for each column."""
    domain = domain_of(2, 2)
    exact, (scales, charges) = parts_of(domain), priced(domain)
    start = exact([(0, (0, TOP)), (1, (5, 5))])
    stays, moves = exact([(0, (TOP, 0)), (1, (5, 5))]), exact([(1, (TOP, TOP)), (1, (5, 5))])
    assert losses(start, stays, scales)[1] == losses(start, moves, scales)[1] == charges[1]


@pytest.mark.parametrize(("cells", "numeric", "size"), [(1, 3, 4), (4, 3, 5), (2, 4, 3), (3, 5, 3)])
def test_mixed_by_climbing(cells: int, numeric: int, size: int) -> None:
    rng = np.random.default_rng(cells * 100 + numeric)
    domain = domain_of(cells, numeric)
    exact, (scales, charges) = parts_of(domain), priced(domain, Fraction(1, 3))
    for part, charge in enumerate(charges):
        found = climb(exact, scales, cells, numeric, size, part, rng)
        assert charge * Fraction(1, 2) < found <= charge
    assert climb(exact, scales, cells, numeric, size, None, rng) <= Fraction(1, 3)


@pytest.mark.parametrize("numeric", [1, 2, 3, 6, 20])
def test_moments_are_tight(numeric: int) -> None:
    """All columns from the bound to the middle: within 10 % of the charge, for any number of columns."""
    domain = domain_of(2, numeric)
    exact, (scales, charges) = parts_of(domain), priced(domain)
    middle = tuple(TOP // 2 + i % 2 for i in range(numeric))
    found = losses(exact([(0, (TOP,) * numeric), (1, (7,) * numeric)]), exact([(0, middle), (1, (7,) * numeric)]), scales)
    assert charges[2] * Fraction(999, 1000) < found[2] <= charges[2]


def test_moments_bound_on_random_signs() -> None:
    """T TOP bounds the floored change for rows at corners, in the middle and in between: 40,000 pairs for each p."""
    rng = np.random.default_rng(11)
    for p in (2, 3, 4, 7):
        choices = np.array([-TOP, -TOP + 2, -1, 1, 20_001, TOP], dtype=np.int64)
        x, y = rng.choice(choices, (40_000, p)), rng.choice(choices, (40_000, p))
        rest = rng.integers(0, FINE, (40_000, 1))
        upper = np.triu_indices(p)
        before = (x[:, upper[0]] * x[:, upper[1]] + rest) // FINE
        after = (y[:, upper[0]] * y[:, upper[1]] + rest) // FINE
        worst = np.abs(before - after).sum(axis=1).max()
        assert worst <= TOP * p * (p + 1) // 2


def test_halved_sensitivities_are_caught() -> None:
    """Every part in turn with half of its noise."""
    domain = domain_of(2, 1)
    universe = [(c, (v,)) for c in range(2) for v in VALUES]
    scales, charges = priced(domain)
    for part in range(3):
        broken = [scale / 2 if i == part else scale for i, scale in enumerate(scales)]
        worst, _ = enumerate_worst(parts_of(domain), broken, universe, 2)
        assert worst[part] > charges[part]


def test_private_cell_size_is_caught() -> None:
    """Cell means with noise for a range over the cell's own, private number of rows: a cell of one row gives them away."""
    universe = [(c, (v,)) for c in range(2) for v in VALUES]

    def means(rows: list[Row]) -> list[np.ndarray]:
        table, sums, _ = _raw(rows, 2)
        sizes = np.maximum(table, 1)
        return [np.concatenate([sums[:, 0] / sizes, [0.0]])]

    def loss(rows: list[Row], other: list[Row]) -> float:
        size = max(1, sum(cell == rows[0][0] for cell, _ in rows))  # noise TOP / n_k for epsilon = 1
        return float(np.abs(means(rows)[0] - means(other)[0]).sum() / (TOP / size))

    worst = max(loss(list(rows), other) for rows in itertools.combinations_with_replacement(universe, 3) for other in neighbours(list(rows), universe))
    assert worst > 1.5


def test_variance_with_a_rounding_step_too_many_is_caught() -> None:
    """GS / 2, as if the mean were public and central, is not enough for s^2."""
    domain = domain_of(1, 1)
    scales, charges = priced(domain)
    worst, _ = enumerate_worst(parts_of(domain), [scales[0], scales[1] * Fraction(3, 4)], [(0, (v,)) for v in VALUES], 3)
    assert worst[1] > charges[1]


def test_diagonal_bound_alone_is_caught() -> None:
    """p TOP^2, the sensitivity of the diagonal, is too little for the whole triangle."""
    domain = domain_of(2, 2)
    scales, charges = priced(domain)
    broken = [scales[0], scales[1], scales[2] * Fraction(2, 3)]
    universe = [(c, v) for c in range(2) for v in itertools.product([0, 32_768, TOP], repeat=2)]
    worst, _ = enumerate_worst(parts_of(domain), broken, universe, 2)
    assert worst[2] > charges[2]


def test_draw_adds_fresh_noise_to_every_number() -> None:
    """The same exact statistics, other noise in every set and on every number, of the charged scale."""
    domain = domain_of(3, 2)
    options = {"sets": 300}
    method, rows = Modips(), [(0, (5, 9)), (1, (TOP, 0)), (2, (7, 7))]
    price = method.price(domain, PUBLIC, Fraction(100), options)
    blocks = method.draw(counted(rows, domain), domain, price.parameters, options)
    assert tuple(map(len, blocks)) == method.lengths(domain, options)
    exact = parts_of(domain)(rows)
    for part, scale in enumerate(price.parameters["scales"]):
        noise = np.array([blocks[3 * i + part] - exact[part] for i in range(300)], dtype=np.float64)
        assert len(np.unique(noise)) > 5
        b = float(Fraction(scale))
        # |Laplace| is exponential: mean b, standard deviation b; 6 standard errors
        assert abs(np.abs(noise).mean() / b - 1) < 6 / noise.size**0.5
        if noise.shape[1] > 1:
            assert np.abs(np.corrcoef(noise.T) - np.eye(noise.shape[1])).max() < 6 / 300**0.5


def test_noise_drawn_again_until_inside_would_not_be_private() -> None:
    """Why 'truncate' works on the noisy number: with rejection, the chance of staying inside depends on the secret count."""
    epsilon, n = 0.1, 200
    outputs = np.arange(n + 1)

    def rejected(count: int) -> np.ndarray:
        weights = np.exp(-epsilon * np.abs(outputs - count))
        return weights / weights.sum()

    worst = max(np.abs(np.log(rejected(s) / rejected(s + 1))).max() for s in range(n))
    assert 1.8 * epsilon < worst <= 2 * epsilon
