"""The report's figures and markup: noise accounted for, words true, texts escaped."""

from __future__ import annotations

import itertools
import math
import re

import numpy as np
import pytest
from pairwise import grid
from scipy import stats

from dpsql.domains.attributes import Attribute, Domain
from dpsql.noise import discrete
from dpsql.page import crosstab, dependence, figures, maps, markup, parts, scales, svg, words

UNIFORM = Domain((Attribute("a", "INTEGER", "numeric", edges=tuple(range(201)), nullable=True),))


def test_without_noise_the_strength_is_cramers_v():
    rng = np.random.default_rng(1)
    for shape in ((2, 2), (3, 5), (6, 4)):
        table = rng.integers(1, 60, shape)
        assert dependence.plain_strength(table.astype(float)).value == pytest.approx(stats.contingency.association(table, "cramer"))


@pytest.mark.parametrize("margins_known", [True, False])
def test_noise_is_taken_off_on_average_and_independent_columns_stay_below_the_bound(margins_known):
    rng = np.random.default_rng(2)
    p, q, n, sigma = np.array([0.5, 0.3, 0.15, 0.05]), np.array([0.4, 0.3, 0.2, 0.06, 0.04]), 4000, 35.0
    squares, above = [], 0
    for _ in range(400):
        table = rng.multinomial(n, np.outer(p, q).ravel()).reshape(4, 5) + rng.normal(0, sigma, (4, 5))
        first = p if margins_known else dependence.shares_of(table, 0)
        second = q if margins_known else dependence.shares_of(table, 1)
        found = dependence.strength(table, first, second, sigma)
        above += found.told_apart
        squares.append(found.value**2)
    uncorrected = [dependence.strength(table, p, q, 0.0, like=sigma).value ** 2]
    assert np.mean(squares) < 0.25 * uncorrected[0]  # values below 0 are cut off, so the mean is not 0
    assert above / 400 < 0.10


def test_a_dependence_above_the_noise_is_found_with_its_size():
    rng = np.random.default_rng(3)
    exact = np.array([[1500.0, 300.0], [200.0, 1000.0]])
    wanted = dependence.plain_strength(exact, 20.0).value
    found = [dependence.strength(exact + rng.normal(0, 20, (2, 2)), np.array([0.6, 0.4]), np.array([17 / 30, 13 / 30]), 20.0) for _ in range(200)]
    assert all(f.told_apart for f in found)
    assert np.mean([f.value for f in found]) == pytest.approx(wanted, abs=0.01)


@grid(strong=[0.0, 0.03, 0.3, 0.9], shape=[(2, 2), (2, 8), (5, 4), (6, 30)], own_margins=[True, False])
def test_about_95_percent_of_bands_hold_the_exact_v(shape, strong, own_margins):
    """Fixed seeds: no false alarm. Of 600 bands at 94 % or more, fewer than 540 would hold it with probability 2e-5."""
    rng = np.random.default_rng(list(shape))
    n, sigma = 20_000, 25.0
    p, q = rng.dirichlet(np.full(shape[0], 3.0)), rng.dirichlet(np.full(shape[1], 3.0))
    shares = (1 - strong) * np.outer(p, q)
    for i in range(shape[1]):
        shares[i % shape[0], i] += strong * q[i]
    exact = rng.multinomial(n, shares.ravel()).reshape(shape).astype(float)
    wanted, found = dependence.plain_strength(exact, sigma).value, []
    for _ in range(600):
        table = exact + rng.normal(0, sigma, shape)
        sums = [np.maximum(exact.sum(axis=1 - axis) + rng.normal(0, sigma, shape[axis]), 0.0) for axis in (0, 1)]
        known = [s / s.sum() for s in sums] if own_margins else [dependence.shares_of(table, axis) for axis in (0, 1)]
        found.append(dependence.strength(table, *known, sigma, None, (sigma, sigma) if own_margins else (None, None)))
    low, high = dependence.bands(found)
    assert np.mean((low <= wanted) & (wanted <= high)) >= 0.9
    assert np.median(high - low) < 0.02 + 8 * sigma * math.sqrt(exact.size) / n  # and a band says something


def test_a_band_widens_with_the_noise_and_there_is_none_without():
    table, even = np.array([[900.0, 100.0], [200.0, 800.0]]), np.full(2, 0.5)
    found = [dependence.strength(table, even, even, sigma) for sigma in (1.0, 10.0, 30.0)]
    low, high = dependence.bands(found)
    assert (np.diff(high - low) > 0).all() and all(a <= f.value <= b for a, f, b in zip(low, found, high, strict=True))
    assert np.isnan(dependence.bands([dependence.plain_strength(table)])).all()


@pytest.mark.parametrize(("mechanism", "scale"), [("gaussian", 30.0), ("laplace", 12.0)])
@pytest.mark.parametrize("cells", [1, 6])
def test_bands_hold_95_percent_of_the_noise(mechanism, scale, cells):
    drawn = discrete.add_noise(np.zeros((20_000, cells), dtype=np.int64), mechanism, scale).sum(axis=1)
    deviation = figures.deviation_of(mechanism, scale)
    width = figures.half_width(deviation, scale if mechanism == "laplace" else None, cells)
    inside = float(np.mean(np.abs(drawn) <= width))
    assert 0.935 < inside < 0.965  # the standard error is 0.0015


def test_groups_keep_all_counts_and_their_bands_add_up():
    counts = np.arange(201.0)
    known = figures.OneWay(counts, 10.0, 19.6, (0,))
    column = figures.column_of(UNIFORM, 0, known, counts, None)
    assert len(column.labels) <= figures.MAX_BARS + 1
    assert column.released.sum() == counts.sum()
    assert column.labels[0] == "[0, 5)" and column.labels[-1] == "NULL"
    assert column.half_width[0] == pytest.approx(1.96 * 10 * math.sqrt(5), rel=1e-3)
    assert column.half_width[-1] == 19.6


def numbers_of(drawn: str, tag: str, *names: str) -> list[list[float]]:
    """Return the attributes of the elements of a chart, as numbers."""
    found = re.findall(rf"<{tag} [^>]*>", drawn)
    return [[float(re.search(rf' {name}="([-\d.]+)"', element)[1]) for name in names] for element in found if "grid" not in element]


def test_the_largest_values_come_first_and_the_sum_of_the_others_sets_no_scale():
    attribute = Attribute("c", "VARCHAR", "categorical", tuple(f"v{i:03d}" for i in range(300)), nullable=True, outside="other")
    counts = np.append(np.random.default_rng(1).permutation(np.arange(300.0)), [40.0, 700.0])
    column = figures.column_of(Domain((attribute,)), 0, figures.OneWay(counts, 1.0, 1.96, (0,)), None, None)
    assert column.released.sum() == counts.sum()
    assert column.labels[:2] == [f"v{np.argmax(counts[:300]):03d}", f"v{np.argsort(-counts[:300])[1]:03d}"]
    assert column.labels[-2:] == ["(other)", "NULL"] and column.others == 300 - 45
    shown, together = svg.ranked(column)
    assert len(shown) + 1 == svg.MOST_ROWS and [column.labels[i] for i in shown[-2:]] == ["(other)", "NULL"]
    assert column.released[shown[:-2]].tolist() == sorted(counts[:300], reverse=True)[: len(shown) - 2]
    drawn = svg.chart(column)
    widths = [width for (width,) in numbers_of(drawn, "rect", "width")]
    assert len(widths) == len(shown)  # no bar for the sum of the others
    assert widths == pytest.approx([column.released[i] / 700 * max(widths) for i in shown], abs=0.11)
    rest = sum(sorted(counts[:300])[: 300 - len(shown) + 2])
    assert "291 other values, together" in drawn and f"{rest:,.0f}</text>" in drawn
    assert f"{column.labels[0]})" in svg.describe(column) or "NULL" in svg.describe(column)


@pytest.mark.parametrize("edges", [(0, 10, 20, 50, 100), (0.0, 50.0, 100.0, 1000.0, 50_000.0), ("2020-01-01", "2020-02-01", "2021-01-01")])
def test_areas_of_uneven_bins_are_their_counts(edges):
    kind = "temporal" if isinstance(edges[0], str) else "numeric"
    attribute = Attribute("c", "DATE" if kind == "temporal" else "DOUBLE", kind, edges=edges, nullable=True)
    counts = np.append(np.arange(len(edges) - 1) * 60.0 + 80, 200.0)
    column = figures.column_of(Domain((attribute,)), 0, figures.OneWay(counts, 1.0, 1.96, (0,)), None, None)
    drawn = svg.chart(column)
    places = scales.axis_of(edges).edges
    bands = numbers_of(drawn, "line", "x1", "x2", "y1", "y2")[: len(counts)]
    middles = [x for x, other, *_ in bands if x == other]
    assert np.diff(middles[:-1]) / np.ptp(middles[:-1]) == pytest.approx(np.diff((places[1:] + places[:-1]) / 2) / np.ptp((places[1:] + places[:-1]) / 2), abs=0.01)
    usual = scales.reference(np.diff(places))
    assert usual is not None and f"as wide as {column.labels[usual]}" in svg.note(column)
    heights = [height for (height,) in numbers_of(drawn, "rect", "height")]
    wanted = [*(counts[:-1] / np.diff(places) * np.diff(places)[usual]), counts[-1]]
    assert heights == pytest.approx(np.asarray(wanted) / max(wanted) * max(heights), abs=0.25)


def test_axes_of_all_kinds_have_texts_that_stay_apart():
    for edges in [
        (0.0, 1e-300), (-1.7e308, 0.0, 1.7e308), (1e6, 1e6 + 1), tuple(range(2000, 2025)), (0, 0.5, 1), (-3, -2.5, 7), (5, 6),
        ("0001-01-01", "9999-12-31"), ("2020-01-01", "2020-01-02"), ("2020-02-28 23:59:59.5", "2020-02-29 00:00:01"),
        ("08:00:00", "12:30:00", "20:00:00"), ("2020-01-01 00:00:00+00", "2020-06-01 00:00:00+00", "2020-12-31 00:00:00+00"),
        ("1999-12-15", "2000-01-15", "2000-02-15"), ("2021-01-01", "2021-01-01 00:00:00.000001"),
    ]:
        axis = scales.axis_of(edges)
        assert axis.edges[0] == 0 and axis.edges[-1] == 1 and (np.diff(axis.edges) > 0).all()
        assert all(-1e-9 <= place <= 1 + 1e-9 for choice in axis.ticks for place, _ in choice), edges
        kind = "temporal" if isinstance(edges[0], str) else "numeric"
        attribute = Attribute("c", "X", kind, edges=edges, nullable=False)
        column = figures.column_of(Domain((attribute,)), 0, None, np.arange(float(len(edges) - 1)) + 1, None)
        texts = [(float(x), t) for x, t in re.findall(r'<text class="tick" x="([\d.]+)" y="172.0" text-anchor="middle">([^<]*)<', svg.chart(column))]
        assert texts and (kind == "temporal" or len({t for _, t in texts}) == len(texts)), edges
        for (x, first), (y, second) in itertools.pairwise(sorted(texts)):
            assert y - x >= (svg.width_of(first) + svg.width_of(second)) / 2, (edges, first, second)


def test_a_cross_table_keeps_all_counts_and_colours_single_cells_only():
    wide = Attribute("code", "VARCHAR", "categorical", tuple(f"c{i}" for i in range(100)), nullable=True)
    across = Attribute("flag", "BOOLEAN", "categorical", ("false", "true"), nullable=False)
    third = Attribute("age", "INTEGER", "numeric", edges=tuple(range(0, 110, 10)), nullable=False)
    domain = Domain((across, wide, third))
    rng = np.random.default_rng(4)
    for clique in ((0, 1), (0, 1, 2), (1, 2)):
        table = rng.integers(0, 50, [domain.sizes[i] for i in clique]).astype(float)
        (found,) = crosstab.cross_tables(figures.Measured({clique: table}, {clique: 10.0}), domain, {})
        assert found.counts.sum() == table.sum() and found.counts.shape == (len(found.labels), len(found.heads))
        assert found.across == domain.names[min(clique, key=lambda i: domain.sizes[i])]
        assert found.counts[~found.single].max() > found.counts[found.single].max()
        assert "19.6 of the exact one; lines" in found.note
        drawn = parts.cross_table(found)
        assert drawn.count("--c:") <= found.single.sum() and "42%" in drawn
    exact = rng.integers(0, 50, (2, 101)).astype(float)
    (found,) = crosstab.cross_tables(figures.Measured({(0, 1): exact}, {(0, 1): 1.0}), domain, {(0, 1): exact})
    assert (found.raw == found.counts).all() and "not private" in parts.cross_table(found)
    first = int(np.argmax(exact.sum(axis=0)[:100]))
    heads = [across.categories.index(head) for head in found.heads]
    assert found.labels[0] == (f"c{first}",) and found.counts[0].tolist() == exact[heads, first].tolist()
    assert np.diff(exact.sum(axis=1)[heads]) <= 0
    many = {(0, 1): exact, (0, 2): np.ones((2, 10)), (1, 2): np.ones((101, 10)), (2, 0): np.ones((10, 2))}
    assert crosstab.cross_tables(figures.Measured(many, dict.fromkeys(many, 1.0)), domain, {}) == []


def test_one_way_statistics_come_from_the_least_noisy_table():
    tables = {(0, 1): np.ones((2, 50)), (0, 2): np.full((2, 3), 7.0)}
    found = figures.one_way(figures.Measured(tables, {(0, 1): 1.0, (0, 2): 2.0}), 0)
    assert found.clique == (0, 2)
    assert found.counts.tolist() == [21.0, 21.0]
    assert found.deviation == pytest.approx(2 * math.sqrt(3))


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 0.0), (1.0, 0.01), (4.0, 0.2)])
def test_the_best_test_is_never_right_more_often_than_said(epsilon, delta):
    """The two laws that an (epsilon, delta) guarantee allows to be furthest apart: one secret sign, told truly or not."""
    told = math.exp(epsilon) / (1 + math.exp(epsilon))
    absent = {"surely absent": delta, "yes": (1 - delta) * (1 - told), "no": (1 - delta) * told, "surely present": 0.0}
    present = {"surely absent": 0.0, "yes": (1 - delta) * told, "no": (1 - delta) * (1 - told), "surely present": delta}
    allowed, right = 0.05, 0.0
    for event in sorted(absent, key=lambda e: -present[e] / absent[e] if absent[e] else -math.inf):
        share = min(1.0, allowed / absent[event]) if absent[event] else 1.0
        right += share * present[event]
        allowed -= share * absent[event]
    assert right <= words.most_often_right(0.05, epsilon, delta) + 1e-12
    assert right == pytest.approx(words.most_often_right(0.05, epsilon, delta))  # and it is reached


def test_the_words_say_who_is_protected():
    said = " ".join(words.promise(1.0, 1e-9, "replace_one", words.unit_words("patient", 5)))
    assert "column “patient”" in said and "at most 5 of them" in said and "e^1 = 2.7183" in said and "1e-09" in said
    assert "13.6 of 100" in said
    assert "except with probability" not in " ".join(words.promise(1.0, 0.0, "add_remove", words.unit_words(None, 1)))


def test_texts_are_escaped_and_cannot_turn_the_page():
    assert markup.text("<script>\"'&\x00\u202e") == "&lt;script&gt;&quot;&#x27;&amp;\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}"
    evil = '"><script>alert(1)</script>'
    column = figures.Column(evil, evil, [evil, "[<b>, 2)"], np.array([1.0, 2.0]), np.array([1.0, 1.0]), None, None)
    for edges in ((0, 1, 2), ()):
        drawn = svg.chart(figures.Column(**{**column.__dict__, "edges": edges}))
        assert "<script" not in drawn and "<b>" not in drawn
    assert "<script" not in maps.heat_map(np.full((2, 2), 0.5), [evil, evil], evil)


def test_charts_of_nothing_and_of_negative_counts_are_drawn():
    for labels in ([], ["a"], ["a", "b"]):
        values = np.full(len(labels), -3.0)
        for edges in (tuple(range(len(labels) + 1)) if labels else (), ()):
            drawn = svg.chart(figures.Column("c", "", labels, values, np.ones(len(labels)), values * 0, None, edges))
            assert "nan" not in drawn.lower() and drawn.startswith("<svg")
    assert "nan" not in maps.heat_map(np.full((3, 3), np.nan), ["a", "b", "c"], "t")
