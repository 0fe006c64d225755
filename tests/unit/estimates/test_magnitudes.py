"""Bounds from noisy histograms of magnitudes: cells, what seems to be there, the trade of bias and noise."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from fractions import Fraction

import duckdb
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsql.errors import ArgumentError
from dpsql.estimates.magnitudes import Learning, beyond, chosen, covering, edges_of, likely, sensitivity_of, wide
from dpsql.measure.values import cell, cell_counts

TYPES = ["BIGINT", "UTINYINT", "TINYINT", "HUGEINT", "DOUBLE", "FLOAT", "DECIMAL(10,2)", "DECIMAL(38,0)", "DATE", "TIMESTAMP", "UBIGINT"]
INTEGERS = {"BIGINT", "UTINYINT", "TINYINT", "HUGEINT", "UBIGINT", "DATE", "DECIMAL(38,0)"}


def learning(kind: str = "BIGINT", scale: float = 1.0, mechanism: str = "gaussian", whole: bool | None = None, **known: float) -> Learning:
    held = kind in INTEGERS if whole is None else whole
    return Learning(0, edges_of(kind, **known, whole=held), Fraction(scale), mechanism, whole=held)


def histogram(one: Learning, values: np.ndarray) -> np.ndarray:
    places = np.clip(np.searchsorted(one.edges, values, side="right") - 1, 0, one.cells - 1)
    return np.bincount(places, minlength=one.cells).astype(np.int64)


@pytest.mark.parametrize("kind", TYPES)
def test_cells_ascend_and_hold_zero_apart(kind: str) -> None:
    one = learning(kind)
    assert all(a < b for a, b in itertools.pairwise(one.edges))
    assert 8 < one.cells < 1000
    assert Learning.from_json(one.to_json()) == one
    if one.whole and kind != "DATE":
        zero = one.edges.index(0.0)
        assert one.edges[zero + 1] == 1.0
        assert all(edge == math.floor(edge) for edge in one.edges)


@pytest.mark.parametrize(("known", "wanted"), [((5, 5), 1), ((0, 6), 4), ((-3, 2), 4), ((18, 90), 3)])
def test_cells_stay_inside_of_what_is_known(known: tuple[float, float], wanted: int) -> None:
    one = learning(lower=known[0], upper=known[1])
    assert one.cells == wanted
    assert known == (5, 5) or (one.edges[0], one.edges[-1]) == known


@pytest.mark.parametrize("kind", TYPES)
def test_the_statement_puts_every_number_in_the_cell_that_is_meant(plain: duckdb.DuckDBPyConnection, kind: str) -> None:
    one = learning(kind)
    near = [nearby for edge in one.edges for nearby in (math.nextafter(edge, -math.inf), edge, math.nextafter(edge, math.inf))]
    values = np.array([*near, 0.0, -0.0, 1e300, -1e300, 5e-324, 3.0, -7.5])
    sql = f"SELECT list({cell('x', one.edges, 0, one.cells)} ORDER BY i) FROM (SELECT unnest(?::DOUBLE[]) AS x, generate_subscripts(?::DOUBLE[], 1) AS i)"
    row = plain.execute(sql, [values.tolist(), values.tolist()]).fetchone()
    assert row is not None
    assert row[0] == np.clip(np.searchsorted(one.edges, values, side="right") - 1, 0, one.cells - 1).tolist()
    counted = cell_counts("x", one.edges, "isfinite(x)")
    sql = f"SELECT {counted} FROM (SELECT unnest(?::DOUBLE[]) AS x)"
    for rows in (values.tolist(), [*values.tolist(), None, math.inf, -math.inf, math.nan], [1e300], [-1e300], []):
        [(counts,)] = plain.execute(sql, [rows]).fetchall()
        finite = np.array([x for x in rows if x is not None and math.isfinite(x)])
        assert (counts or [])[::-1] == histogram(one, finite).tolist()[one.cells - len(counts or []) :]
        assert len(counts or []) >= one.cells - 1 or not finite.size


@pytest.mark.parametrize(
    ("item", "value"),
    [("edges", [1.0, 1.0]), ("edges", [0.0]), ("edges", [0.0, math.inf]), ("scale", "0"), ("scale", "x"), ("scale", 1), ("mechanism", "none"),
     ("position", -1), ("position", True), ("filter", -1), ("whole", 1), ("edges", ["0", "1"]), ("more", 1)],
)
def test_edited_ones_are_refused(item: str, value: object) -> None:
    with pytest.raises((ArgumentError, ValueError)):
        Learning.from_json({**learning().to_json(), item: value})


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_nothing_there_gives_fixed_bounds(kind: str, mechanism: str) -> None:
    one = learning(kind, 50.0, mechanism)
    rng = np.random.default_rng(3)
    found = set()
    for _ in range(20):  # a false alarm has probability 2e-4 for each histogram; the seed is fixed
        noisy = np.rint(rng.normal(0, 50.0, one.cells) if mechanism == "gaussian" else rng.laplace(0, 50.0, one.cells)).astype(np.int64)
        found |= {chosen(one, noisy, 3.0), chosen(one, noisy, 3.0, span=False), covering(one, noisy)}
        assert beyond(one, noisy, (0.0, 1.0)) == (0.0, 0.0)
    assert len(found) == 1
    lower, upper = found.pop()
    assert one.edges[0] <= lower < upper <= one.edges[-1]


@given(
    st.sampled_from(TYPES), st.sampled_from(["gaussian", "laplace"]), st.integers(0, 2**32), st.floats(0.01, 1e6), st.floats(1e-6, 1e5),
    st.booleans(), st.sampled_from([1, 2]), st.floats(1, 1e6), st.integers(0, 60),
)
def test_any_counts_give_bounds_inside_of_the_cells(
    kind: str, mechanism: str, seed: int, scale: float, noise: float, span: bool, degree: int, groups: float, power: int
) -> None:
    one = learning(kind, scale, mechanism)
    rng = np.random.default_rng(seed)
    counts = rng.integers(-(2**power), 2**power + 1, one.cells) * rng.integers(0, 2, one.cells)
    for lower, upper in (chosen(one, counts, noise, degree=degree, span=span, groups=groups), covering(one, counts)):
        assert one.edges[0] <= lower < upper <= one.edges[-1]
        assert not one.whole or (lower == math.floor(lower) and upper == math.floor(upper))
        assert math.isfinite(upper - lower)
        rows, cut = beyond(one, counts, (lower, upper))
        assert rows >= 0 and cut >= 0


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_rows_in_one_cell_or_two_give_bounds(kind: str, mechanism: str) -> None:
    one = learning(kind, 5.0, mechanism)
    last = one.cells - 1
    zero = int(np.searchsorted(one.edges, 0.0))
    single = {0, 1, max(zero - 2, 0), max(zero - 1, 0), min(zero, last), min(zero + 1, last), one.cells // 3, last - 1, last}
    for place, other in [*((i, i) for i in single), *((i, min(i + 1, last)) for i in single), (0, last)]:
        counts = np.zeros(one.cells, np.int64)
        counts[[place, other]] = 5_000
        found = [chosen(one, counts, 3.0, degree=degree, span=span) for degree in (1, 2) for span in (True, False)]
        for lower, upper in [*found, covering(one, counts)]:
            assert one.edges[0] <= lower < upper <= one.edges[-1]
            assert not one.whole or (lower == math.floor(lower) and upper == math.floor(upper))


def test_the_bound_is_about_the_best_one() -> None:
    """Against the least error over all bounds, of the values themselves: within half as much again on usual shapes."""
    rng = np.random.default_rng(5)
    for values in (
        rng.poisson(15, 50_000), np.floor(100 * np.exp(rng.standard_normal(50_000))), rng.integers(0, 1000, 50_000),
        np.floor(10 / rng.random(50_000) ** 0.5), np.full(5_000, 40), np.floor(-30 * np.exp(rng.standard_normal(20_000))),
    ):
        one = learning(scale=8.0)
        noisy = histogram(one, values) + np.rint(rng.normal(0, 8.0, one.cells)).astype(np.int64)
        noise = 4.0

        def error(bound: float, values: np.ndarray = values, noise: float = noise) -> float:
            return math.hypot(np.abs(values - np.clip(values, -bound, bound)).sum(), noise * bound)

        least = min(error(bound) for bound in np.geomspace(1, np.abs(values).max() + 1, 400))
        for span in (True, False):
            found = chosen(one, noisy, noise, span=span)
            assert error(max(map(abs, found))) < 1.75 * least


def test_more_groups_and_more_noise_give_narrower_bounds() -> None:
    rng = np.random.default_rng(6)
    one = learning(scale=2.0)
    counts = histogram(one, np.floor(10 / rng.random(100_000) ** 0.6))
    reach = [chosen(one, counts, noise)[1] for noise in (0.1, 1.0, 10.0, 100.0)]
    assert reach == sorted(reach, reverse=True) and reach[0] > 4 * reach[-1]
    by_groups = [chosen(one, counts, 10.0, groups=groups)[1] for groups in (1.0, 10.0, 100.0)]
    assert by_groups == sorted(by_groups, reverse=True) and by_groups[0] > by_groups[-1]
    assert chosen(one, counts, 1.0, degree=2)[1] >= chosen(one, counts, 1.0)[1]


def test_both_signs_and_one_sign() -> None:
    rng = np.random.default_rng(7)
    one = learning("DOUBLE", 3.0)
    lower, upper = chosen(one, histogram(one, rng.normal(0, 100, 20_000)), 2.0)
    assert -800 < lower < -200 and 200 < upper < 800
    ages = learning(scale=3.0, lower=18, upper=2.0**40)
    lower, upper = chosen(ages, histogram(ages, rng.integers(18, 90, 20_000)), 2.0)
    assert lower == 18 and 80 <= upper <= 127
    lower, upper = chosen(one, histogram(one, -rng.random(9_000)), 2.0, span=False)
    assert upper == 0 and -2 <= lower <= -0.9


@pytest.mark.parametrize(
    ("lower", "upper", "wanted"),
    [(0, 255, False), (0, 256, True), (-256, 0, True), (1, 256, True), (2, 256, False), (1e9, 2e9, False), (-1e12, 1e12, True), (0, 1, False),
     (0, math.inf, False), (1e-9, 1, False), (1e-9, 1e5, True)],
)
def test_bounds_are_wide_by_what_is_public(lower: float, upper: float, wanted: bool) -> None:
    assert wide(lower, upper) is wanted


def declared(scale: float, lower: float = 0, upper: float = 10_000_000, kind: str = "DOUBLE") -> Learning:
    return Learning(0, edges_of(kind, lower, upper), Fraction(scale), "gaussian", declared=True)


@pytest.mark.parametrize("degree", [1, 2])
@pytest.mark.parametrize("span", [True, False])
def test_declared_bounds_are_narrowed_so_far_that_hardly_anything_is_cut(span: bool, degree: int) -> None:
    """The bias that the histogram lets one expect is at most a twentieth of the noise on each of eight groups; with what it does not see, a half of the degree."""
    rng = np.random.default_rng(9)
    for sign in (1, -1):
        values = sign * np.exp(6 + rng.standard_normal(200_000))
        one = declared(20.0) if sign > 0 else declared(20.0, -10_000_000, 0)
        counts = histogram(one, values) + np.rint(rng.normal(0, 20, one.cells)).astype(np.int64)
        low, high = chosen(one, counts, 10.0, span=span, degree=degree, groups=8)
        assert one.edges[0] <= low < high <= one.edges[-1] and high - low < 1_000_000
        reach = max(abs(low), abs(high))
        off = np.abs(values) ** degree - np.minimum(np.abs(values), reach) ** degree
        assert off.sum() / 8 < 0.5 * degree * 10 * reach**degree
        assert chosen(replace(one, declared=False), counts, 10.0, span=span, degree=degree, groups=8)[int(sign > 0)] * sign < reach


@pytest.mark.parametrize("span", [True, False])
@pytest.mark.parametrize(("upper", "most"), [(400, None), (5_000, 512), (60_000, 512), (100_000, 65_536)])
def test_bounds_that_nearly_fit_stay(upper: float, most: float | None, span: bool) -> None:
    """Values up to 300, or a half of bounds so wide that whatever is spared is worth it: below that, a quarter of the noise is."""
    rng = np.random.default_rng(12)
    one = declared(5.0, 0, upper)
    values = rng.uniform(0, 50_000 if upper > 65_536 else 300, 50_000)
    low, high = chosen(one, histogram(one, values) + np.rint(rng.normal(0, 5, one.cells)).astype(np.int64), 3.0, span=span)
    assert low == 0 and (high == upper if most is None else high <= most)


def test_declared_bounds_stay_where_nothing_is_seen_or_all_is_full() -> None:
    rng = np.random.default_rng(10)
    for lower, upper in ((0, 10_000_000), (-10_000_000, 10_000_000), (5, 1_000_000)):
        one = declared(50.0, lower, upper)
        nothing = np.rint(rng.normal(0, 50, one.cells)).astype(np.int64)
        assert chosen(one, nothing, 3.0) == chosen(one, nothing, 3.0, span=False) == (lower, upper)
        full = histogram(one, rng.uniform(lower, upper, 100_000))
        low, high = chosen(one, full, 3.0)
        assert high - low > 0.95 * (upper - lower)


@pytest.mark.parametrize(("kind", "whole"), [("DOUBLE", False), ("BIGINT", True), ("DECIMAL(12,2)", False)])
@pytest.mark.parametrize("lower", [0, -10_000_000])
def test_zeros_alone_do_not_narrow_declared_bounds(kind: str, whole: bool, lower: float) -> None:
    """Claims are zero but for a few that do not show: bounds next to zero would answer zero, and be sure of it."""
    one = Learning(0, edges_of(kind, lower, 10_000_000, whole=whole), Fraction(50), "gaussian", whole=whole, declared=True)
    counts = histogram(one, np.append(np.zeros(20_000), np.full(100, 3_000_000.0)))
    for span in (True, False):
        assert chosen(one, counts, 10.0, span=span) == (lower, 10_000_000)
        assert max(map(abs, chosen(replace(one, declared=False), counts, 10.0, span=span))) <= 1
    seen = histogram(one, np.append(np.zeros(20_000), np.full(2_000, 3_000.0)))
    assert 3_000 <= chosen(one, seen, 10.0)[1] < 5_000


def test_a_declared_one_is_read_back_and_older_ones_are() -> None:
    one = declared(2.0)
    assert Learning.from_json(one.to_json()) == one and one.to_json()["declared"] is True
    assert "declared" not in replace(one, declared=False).to_json()
    for wrong in (False, 1, None):
        with pytest.raises((ArgumentError, ValueError)):
            Learning.from_json({**one.to_json(), "declared": wrong})


def test_what_is_cut_is_estimated() -> None:
    rng = np.random.default_rng(8)
    values = np.floor(10 / rng.random(100_000) ** 0.5)
    one = learning(scale=5.0)
    noisy = histogram(one, values) + np.rint(rng.normal(0, 5, one.cells)).astype(np.int64)
    rows, cut = beyond(one, noisy, (0.0, 100.0))
    assert rows == pytest.approx((values > 100).sum(), rel=0.25)
    assert cut == pytest.approx((values - 100)[values > 100].sum(), rel=0.35)


def test_few_rows_far_out_do_not_move_the_bound() -> None:
    """A count that noise alone could have is taken for none, wherever it is."""
    one = learning(scale=20.0)
    counts = histogram(one, np.full(5_000, 40))
    counts[-1] = 60
    assert chosen(one, counts, 3.0)[1] <= 63
    assert likely(one, counts)[-1] == 0


def test_sensitivity_is_that_of_all_kept_rows_in_one_cell() -> None:
    assert sensitivity_of(4, "add_remove") == (4.0, 4.0)
    l1, l2 = sensitivity_of(4, "replace_one")
    assert l1 == 8.0 and l2 >= math.sqrt(32) and l2 == pytest.approx(math.sqrt(32))
