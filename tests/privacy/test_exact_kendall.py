"""What one replaced row does to everything `dpcopula_kendall` releases, in units of the noise, on all small tables.

The noise is independent and discrete Laplace, so the exact privacy loss of a pair of neighbours, over all outputs, is the sum of
|difference| / scale over all released numbers; `test_the_loss_is_that_of_all_outputs` checks that by enumeration. The loss must not exceed
epsilon, must be reached, and wrong sensitivities must be caught by the same search.
"""

import itertools
import math
from collections.abc import Callable, Iterator
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dpsql.domains.attributes import FINE, Attribute, Domain
from dpsql.mechanisms import kendall
from dpsql.mechanisms.kendall import kendall_sensitivity, kendall_steps, kendall_sum
from dpsql.methods.base import Contract, Counted
from dpsql.methods.dpcopula_kendall.method import DpcopulaKendall

PUBLIC = Contract("replace_one", 1, True)
Row = tuple[int, ...]
Table = tuple[Row, ...]


def pairs_of(columns: int) -> list[tuple[int, int]]:
    return list(itertools.combinations(range(columns), 2))


def two_way(rows: Table, codes: int, pair: tuple[int, int]) -> np.ndarray:
    found = np.zeros((codes, codes), dtype=np.int64)
    for row in rows:
        found[row[pair[0]], row[pair[1]]] += 1
    return found


def by_pairs_of_rows(rows: Table, j: int, k: int) -> int:
    """Kendall's sum from its definition."""
    return sum(int(np.sign(x[j] - y[j]) * np.sign(x[k] - y[k])) for x, y in itertools.combinations(rows, 2))


def sums(rows: Table, codes: int) -> np.ndarray:
    return np.array([kendall_sum(two_way(rows, codes, pair)) for pair in pairs_of(len(rows[0]))])


def steps(rows: Table, codes: int) -> np.ndarray:
    return kendall_steps([two_way(rows, codes, pair) for pair in pairs_of(len(rows[0]))], len(rows))


def tables(columns: int, codes: int, rows: int) -> Iterator[Table]:
    return itertools.combinations_with_replacement(itertools.product(range(codes), repeat=columns), rows)


def replaced(rows: Table, codes: int) -> Iterator[Table]:
    for i in range(len(rows)):
        for other in itertools.product(range(codes), repeat=len(rows[0])):
            yield tuple(sorted((*rows[:i], other, *rows[i + 1 :])))


def largest(statistic: Callable[[Table, int], np.ndarray], columns: int, codes: int, rows: int) -> float:
    """Return the largest L1 change over all pairs of neighbours."""
    known = {table: statistic(table, codes) for table in tables(columns, codes, rows)}
    return max(float(np.abs(value - known[other]).sum()) for table, value in known.items() for other in set(replaced(table, codes)))


@pytest.mark.parametrize(("columns", "codes", "rows"), [(2, 3, 2), (2, 3, 3), (2, 3, 4), (3, 3, 2), (3, 2, 3), (4, 2, 2)])
def test_sensitivity_on_all_small_tables(columns: int, codes: int, rows: int) -> None:
    reached = 2 * (rows - 1) * (columns**2 // 4)
    exact, released = largest(sums, columns, codes, rows), largest(steps, columns, codes, rows)
    # with two codes a row cannot have others on both sides of it
    assert exact == reached if codes == 3 else exact <= reached
    assert released <= kendall_sensitivity(columns)
    if codes == 3:
        assert released >= 2 * FINE * (columns**2 // 4)
        assert released > kendall_sensitivity(columns) / 2 * 1.99  # half of it is caught
        # the published constant is for an added row: 4 / (n + 1) of tau, where a replaced one takes 4 / n
        tau = 4 / (rows + 1) * math.comb(rows, 2)
        assert columns > 2 or exact > tau


@pytest.mark.parametrize("columns", [2, 3, 4, 5, 7, 15])
@pytest.mark.parametrize("rows", [2, 3, 10, 1000])
def test_sensitivity_is_reached_by_many_columns(columns: int, rows: int) -> None:
    """All others alike, one row above them in all columns, or above in half of them and below in the rest."""
    others = [np.full(columns, 1)] * (rows - 1)
    above, half = np.full(columns, 2), np.where(np.arange(columns) < columns // 2, 2, 0)
    first, second = (kendall_steps(_tables([*others, row]), rows) for row in (above, half))
    change = int(np.abs(first - second).sum())
    assert kendall_sensitivity(columns) * (1 - 1e-4) <= change <= kendall_sensitivity(columns)
    # composing pair by pair would charge this
    assert change < math.comb(columns, 2) * 2 * FINE or columns == 2


def _tables(rows: list[np.ndarray]) -> list[np.ndarray]:
    found = []
    for j, k in pairs_of(len(rows[0])):
        table = np.zeros((3, 3), dtype=np.int64)
        for row in rows:
            table[row[j], row[k]] += 1
        found.append(table)
    return found


@pytest.mark.parametrize("columns", [3, 5, 8])
def test_no_row_changes_more(columns: int) -> None:
    """Vectors of signs: the inequality of the proof, on all of them or on many."""
    every = list(itertools.product((-1, 0, 1), repeat=columns))
    rng = np.random.default_rng(columns)
    signs = np.array(every if columns < 6 else [every[i] for i in rng.choice(len(every), 700, replace=False)])
    products = np.stack([signs[:, j] * signs[:, k] for j, k in pairs_of(columns)], axis=1)
    change = np.abs(products[:, None] - products[None]).sum(axis=2)
    assert change.max() <= 2 * (columns**2 // 4)
    assert change.max() == 2 * (columns**2 // 4) or columns > 5


def domain_of(columns: int, codes: int) -> Domain:
    edges = tuple(float(i) for i in range(codes + 1))
    return Domain(tuple(Attribute(f"x{i}", "INTEGER", "numeric", edges=edges, nullable=False) for i in range(columns)))


def exact_blocks(rows: Table, codes: int, monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """What `draw` releases, without its noise."""
    monkeypatch.setattr("dpsql.noise.discrete.discrete_laplace", lambda scale, size: np.zeros(size, np.int64))
    monkeypatch.setattr(kendall, "discrete_laplace", lambda scale, size: np.zeros(size, np.int64))
    columns = len(rows[0])
    counted = {pair: two_way(rows, codes, pair) for pair in pairs_of(columns)}
    counted |= {(i,): np.bincount([row[i] for row in rows], minlength=codes).astype(np.int64) for i in range(columns)}
    return DpcopulaKendall().draw(Counted(counted, len(rows)), domain_of(columns, codes), {"scales": ["1", "1"]}, {})


@pytest.mark.parametrize("epsilon", [Fraction(1, 10), Fraction(1), Fraction(4)])
@pytest.mark.parametrize("ratio", [1, 8, 0.5])
def test_the_whole_release_holds_epsilon_and_reaches_it(epsilon: Fraction, ratio: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two columns of five codes: the replaced row changes cells in both and goes from agreement to disagreement."""
    codes, rows = 5, 3
    price = DpcopulaKendall().price(domain_of(2, codes), PUBLIC, epsilon, {"ratio": ratio})
    first, second = (Fraction(text) for text in price.parameters["scales"])
    assert sum(event.epsilon * event.count for event in price.events) <= epsilon
    others = ((2, 2),) * (rows - 1)
    worst, shares = Fraction(0), [Fraction(0)] * 2
    known = {row: exact_blocks((*others, row), codes, monkeypatch) for row in itertools.product(range(codes), repeat=2)}
    for one, other in itertools.permutations(known.values(), 2):
        margins = sum(int(np.abs(a - b).sum()) for a, b in zip(one[:2], other[:2], strict=True)) / first
        dependence = int(np.abs(one[2] - other[2]).sum()) / second
        worst, shares = max(worst, margins + dependence), [max(shares[0], margins), max(shares[1], dependence)]
    assert epsilon * (1 - Fraction(1, 10**4)) <= worst <= epsilon
    share = epsilon * Fraction(repr(ratio)) / (1 + Fraction(repr(ratio)))
    assert shares[0] <= share and shares[1] <= epsilon - share
    # half the noise on either part is caught
    assert worst + min(shares) > epsilon


def pmf(x: np.ndarray, scale: float) -> np.ndarray:
    r = math.exp(-1 / scale)
    return (1 - r) / (1 + r) * r ** np.abs(x)


def test_the_loss_is_that_of_all_outputs() -> None:
    """Every output of one noisy sum, on the neighbours that are furthest apart: the largest log-ratio is their distance over the scale."""
    steps_of = [kendall_steps([two_way(rows, 3, (0, 1))], 3)[0] for rows in (((1, 1), (1, 1), (2, 2)), ((1, 1), (1, 1), (2, 0)))]
    price = DpcopulaKendall().price(domain_of(2, 3), PUBLIC, Fraction(9, 2), {"ratio": 8})
    scale = float(Fraction(price.parameters["scales"][1]))
    outputs = np.arange(-8 * FINE, 8 * FINE + 1)
    ratios = np.abs(np.log(pmf(outputs - steps_of[0], scale) / pmf(outputs - steps_of[1], scale)))
    assert 0.4999 < ratios.max() <= 0.5 + 1e-9


def test_published_noise_is_not_private_where_rows_are_added() -> None:
    """Scale 4 / ((n + 1) epsilon) on tau: at n = 20 and 21 rows without ties the densities differ by any factor."""
    epsilon, n = 1.0, 20
    taus = [1.0, (math.comb(n, 2) - n) / math.comb(n + 1, 2)]  # all concordant, then a row discordant with all
    assert taus[0] - taus[1] == pytest.approx(4 / (n + 1))
    scales = [4 / ((rows + 1) * epsilon) for rows in (n, n + 1)]

    def loss(x: float) -> float:
        densities = [math.log(1 / (2 * scale)) - abs(x - tau) / scale for tau, scale in zip(taus, scales, strict=True)]
        return abs(densities[0] - densities[1])

    assert loss(-100.0) > 20 * epsilon and loss(-10_000.0) > 2000 * epsilon


@pytest.mark.parametrize("rows", [5, 50, 500])
def test_taub_changes_from_one_to_minus_one(rows: int) -> None:
    """What `scipy.stats.kendalltau` computes, and public code adds noise of 4 / (n + 1) to."""
    others = [(1, 1)] * (rows - 2)
    first, second = (stats.kendalltau(*zip(*others, (1, 1), *extra, strict=True)).statistic for extra in ([(2, 2)], [(0, 2)]))
    assert first - second == pytest.approx(2)
    assert 4 / (rows + 1) < 2


@pytest.mark.parametrize("seed", range(20))
def test_sums_from_tables_are_those_of_pairs_of_rows(seed: int) -> None:
    rng = np.random.default_rng(seed)
    codes, rows = int(rng.integers(1, 6)), tuple(map(tuple, rng.integers(0, 5, (int(rng.integers(1, 30)), 2)).tolist()))
    rows = tuple((x % codes, y % codes) for x, y in rows)
    table = two_way(rows, codes, (0, 1))
    assert kendall_sum(table) == by_pairs_of_rows(rows, 0, 1)
    # counts beyond 64-bit products: every row 2^33 times; rows alike are tied
    assert kendall_sum(table << 33) == by_pairs_of_rows(rows, 0, 1) << 66
