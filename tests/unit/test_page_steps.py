"""Fine histograms of the report: cut where the declared bins are cut, widths to scale, areas are shares."""

from __future__ import annotations

import re

import duckdb
import numpy as np
import pytest

from dpsql.domains.attributes import Attribute, Domain
from dpsql.page import fine, scales, steps
from dpsql.page.figures import OneWay
from dpsql.rows.tallying import Tally

COLUMNS = [
    Attribute("x", "INTEGER", "numeric", edges=tuple(range(0, 101, 5)), nullable=True),
    Attribute("x", "SMALLINT", "numeric", edges=(0, 1, 10, 100, 1000, 30000), nullable=False, outside="other"),
    Attribute("x", "INTEGER", "numeric", edges=tuple(range(0, 401)), nullable=True),
    Attribute("x", "UTINYINT", "numeric", edges=(0, 3, 250), nullable=False, outside="other"),
    Attribute("x", "BIGINT", "numeric", edges=(-1e12, 0.5, 7.5, 1e12), nullable=True),
    Attribute("x", "DOUBLE", "numeric", edges=(-1.0, 0.1, 0.3, 5.0), nullable=True),
    Attribute("x", "DOUBLE", "numeric", edges=(0.0, 1e-3, 1.0, 1e9), nullable=True),
    Attribute("x", "DOUBLE", "numeric", edges=(-1.5e308, 0.0, 1.5e308), nullable=True),
    Attribute("x", "FLOAT", "numeric", edges=(0.0, 0.1, 0.2), nullable=True),
    Attribute("x", "DECIMAL(9,2)", "numeric", edges=(0.0, 0.07, 100.0), nullable=False, outside="other"),
    Attribute("x", "DATE", "temporal", edges=("2020-01-01", "2020-02-01", "2023-01-01"), nullable=True),
    Attribute("x", "DATE", "temporal", edges=("2020-01-01", "2020-01-03"), nullable=True),
    Attribute("x", "TIMESTAMP", "temporal", edges=("2020-01-01 00:00:00", "2021-01-01 00:00:00"), nullable=True),
    Attribute("x", "TIME", "temporal", edges=("00:00:00", "12:00:00", "23:59:59"), nullable=True),
    Attribute("x", "TIMESTAMP_NS", "temporal", edges=("2020-01-01 00:00:00", "2020-01-01 00:00:01"), nullable=True),
]


def name(attribute: Attribute) -> str:
    return f"{attribute.sql_type} {attribute.edges[0]} to {attribute.edges[-1]}"


@pytest.mark.parametrize("attribute", COLUMNS, ids=name)
def test_fine_bins_are_parts_of_the_declared_ones(attribute):
    cut = fine.cuts(attribute)
    values = cut.attribute.values
    assert len(cut.texts) == len(cut.places) == values + 1 and attribute.values <= values <= max(fine.CUTS, attribute.values)
    assert (np.diff(cut.places) > 0).all() and cut.places[[0, -1]] == pytest.approx([0.0, 1.0])
    assert (np.abs(cut.places[:, None] - cut.bins).min(axis=0) < 1e-9).all()  # each declared edge is one of the fine ones


@pytest.mark.parametrize("attribute", COLUMNS, ids=name)
def test_counts_of_fine_bins_add_up_to_those_of_the_declared_ones(attribute):
    """Every value of a table that is made here, edges and what lies outside among them."""
    cut = fine.cuts(attribute)
    con = duckdb.connect()
    edges = [str(edge) for edge in (*attribute.edges, *cut.attribute.edges)]
    if attribute.kind == "temporal":
        more = "SELECT v + INTERVAL (i) MINUTE FROM edges, range(-3, 4) r(i)" if attribute.sql_type != "DATE" else "SELECT v + i::INTEGER FROM edges, range(-3, 4) r(i)"
    else:
        more = "SELECT v::DOUBLE + i / 4 FROM edges, range(-9, 10) r(i)"
    con.execute("CREATE TABLE given AS SELECT unnest(?::VARCHAR[]) AS t", [edges])
    con.execute(f"CREATE TABLE edges AS SELECT TRY_CAST(t AS {attribute.sql_type}) AS v FROM given")
    con.execute(f"CREATE TABLE numbers AS SELECT TRY_CAST(v AS {attribute.sql_type}) AS x FROM (SELECT v FROM edges UNION ALL ({more}))")
    counts = []
    for one in (attribute, cut.attribute):
        with Tally(con, "SELECT * FROM numbers", Domain((one,))) as tally:
            counts.append(tally.counts([(0,)])[(0,)])
    con.close()
    coarse, small = counts
    assert coarse[attribute.values :].tolist() == small[cut.attribute.values :].tolist()  # NULL and what lies outside
    owner = np.searchsorted(cut.bins, (cut.places[:-1] + cut.places[1:]) / 2) - 1
    assert np.bincount(owner, small[: cut.attribute.values], minlength=attribute.values).tolist() == coarse[: attribute.values].tolist()
    assert coarse.sum() > len(edges)


def test_whole_numbers_are_shown_one_by_one():
    cut = fine.cuts(COLUMNS[0])
    assert cut.texts == tuple(map(str, range(102)))  # 100 is a value too, and has a bin as wide as the others
    assert np.diff(cut.places) == pytest.approx(np.full(101, 1 / 101))
    shown = [shown for choice in cut.axis.ticks for _, shown in choice]
    assert "100" in shown and "101" not in shown


@pytest.mark.parametrize(
    "attribute",
    [
        Attribute("x", "VARCHAR", "categorical", ("a", "b")),
        Attribute("x", "INTEGER", "numeric", edges=(0.0, 1.0, 2.0, 2.5), nullable=True),  # each bin is one number
        Attribute("x", "DATE", "temporal", edges=("9999-12-30", "9999-12-31"), nullable=True),  # no day after it can be written
    ],
    ids=["categories", "single numbers", "the last day"],
)
def test_no_chart_where_it_shows_nothing_new(attribute):
    assert fine.cuts(attribute) is None


def drawn(chart: str, kind: str) -> list[tuple[float, float, float]]:
    """Return the steps of a line of a chart, as (from, to, height in pixels)."""
    (found,) = re.findall(rf'<path class="{kind}" d="M([^"Z]*?)(?:V\d+H[\d.]+Z)?"', chart)
    x, y = map(float, re.match(r"([\d.]+) ([\d.]+)", found).groups())
    places = []
    for to, height in re.findall(r"H([\d.]+)(?:V([\d.]+))?", found):
        places.append((x, float(to), y))
        x, y = float(to), float(height) if height else y
    return places


@pytest.mark.parametrize("edges", [(0, 10, 100), (0, 50, 60, 100), (0, 1, 10, 100, 10000)])
def test_areas_of_steps_are_shares_of_rows(edges):
    rng = np.random.default_rng(len(edges))
    attribute = Attribute("x", "DOUBLE", "numeric", edges=tuple(map(float, edges)), nullable=True)
    cut = fine.cuts(attribute)
    count = cut.attribute.values
    # Nearly as many rows for each length of the axis, so that no step towers above the others.
    synthetic, raw = (np.diff(cut.places) * 1e6 * rng.uniform(0.5, 1.0, count) for _ in range(2))
    released = OneWay(np.add.reduceat(raw, np.searchsorted(cut.places, cut.bins[:-1] - 1e-9)), 1.0, 2.0, (0,))
    found = fine.fine("x", cut, np.append(synthetic, 1e9), released, np.append(raw, 5.0))  # the last is NULL, and not drawn
    text = steps.chart(found)
    for kind, counts, places in (("drawn", synthetic, cut.places), ("raw", raw, cut.places), ("bar", released.counts, cut.bins)):
        line = drawn(text, kind)
        left, right = line[0][0], line[-1][1]
        base = steps.TOP + steps.PLOT
        whole = sum((to - start) * (base - y) for start, to, y in line)
        for place in (0.1, 0.5, 0.9):  # the share of rows up to a place is the share of the area up to there
            at = left + place * (right - left)
            area = sum((min(to, at) - start) * (base - y) for start, to, y in line if start < at)
            wanted = np.interp(place, places, np.append(0.0, np.cumsum(counts))) / counts.sum()
            assert area / whole == pytest.approx(wanted, abs=0.01)
    assert steps.note(found) == cut.axis.note


def test_the_two_groups_in_one_bin_are_seen():
    attribute = Attribute("x", "INTEGER", "numeric", edges=(0.0, 1000.0), nullable=False)
    cut = fine.cuts(attribute)
    edges = np.asarray([int(t) for t in cut.texts])
    raw, synthetic = np.zeros(cut.attribute.values), np.diff(edges).astype(float)
    raw[np.searchsorted(edges, [5, 900], "right") - 1] = 500.0
    chart = steps.chart(fine.fine("x", cut, synthetic, OneWay(np.array([1000.0]), 1.0, 2.0, (0,)), raw))
    base = steps.TOP + steps.PLOT
    assert len(drawn(chart, "bar")) == 1  # the one bin says nothing
    heights = {round(base - y) for _, _, y in drawn(chart, "raw")}
    assert heights == {0, steps.PLOT} and min(base - y for _, _, y in drawn(chart, "drawn")) > 0
    marks = [(start, to) for start, to, y in drawn(chart, "raw") if y < base]
    assert len(marks) == 2 and marks[1][0] - marks[0][0] == pytest.approx(0.895 * (drawn(chart, "bar")[0][1] - drawn(chart, "bar")[0][0]), abs=3)


def test_a_step_that_towers_above_the_others_is_cut_and_named():
    cut = fine.cuts(COLUMNS[5])
    counts = np.full(cut.attribute.values, 1.0)
    counts[50] = 1e4
    found = fine.fine("x", cut, counts, None, None)
    share = 100 * 1e4 / counts.sum()
    assert f"one bin holds up to {share:.3g} % of the rows" in steps.note(found)
    assert min(y for _, _, y in drawn(steps.chart(found), "drawn")) == steps.TOP


def test_charts_of_nothing_are_drawn():
    cut = fine.cuts(COLUMNS[0])
    nothing = np.zeros(cut.attribute.values + 1)
    for raw in (None, nothing):
        found = fine.fine("<b>", cut, nothing, OneWay(np.full(21, -3.0), 1.0, 2.0, (0,)), raw)
        text = steps.section([found])
        assert "<path class=\"drawn\"" not in steps.chart(found) and "&lt;b&gt;" in text and "<b>" not in text and "nan" not in text
        assert len(fine.merged(found, 24)) <= 24
    assert steps.section([]) == ""


def test_a_scale_goes_both_ways():
    for edges in ((0.0, 1.0, 10.0, 1e6), (-1e6, -1.0, 1.0, 1e6), (2.0, 3.0, 9.0)):
        scale = scales.axis_of(edges).scale
        numbers = np.linspace(edges[0], edges[-1], 1001)
        places = scale.places(numbers)
        assert (np.diff(places) > 0).all() and places[[0, -1]].tolist() == [0.0, 1.0]
        assert scale.numbers(places) == pytest.approx(numbers, rel=1e-9, abs=1e-9)
