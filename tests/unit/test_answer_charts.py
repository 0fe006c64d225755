"""Charts of a query's answer: groups in time are a line, and one wild interval does not hide the others."""

import numpy as np
import pytest

from dpsql.page import answers
from dpsql.page.content import Chart

WEEKS = [f"2024-{month:02}-{day:02}" for month in range(1, 7) for day in (1, 8, 15, 22)]


def chart(labels, values=None, half=5.0, from_zero=True):
    values = np.arange(100.0, 100.0 + len(labels)) if values is None else np.asarray(values, dtype=float)
    return Chart("count(*)", labels, values, values - half, values + half, from_zero)


@pytest.mark.parametrize(
    ("labels", "known"),
    [(WEEKS, range(24)), ([*WEEKS, "NULL"], range(24)), ([f"{week} 12:30:00" for week in WEEKS], range(24)), (WEEKS[::-1], ())]
    + [(WEEKS[:7], ()), ([*WEEKS, "2024-13"], ()), ([f"{week}, a" for week in WEEKS], ()), ([str(i) for i in range(20)], ())],
)
def test_moments_in_their_order_are_in_time(labels, known):
    found = chart(labels)
    assert answers.in_time(found) == list(known)
    drawn = answers.figure(found)
    assert ("<polyline" in drawn) is bool(known) is ("band: 95 %" in drawn)


def test_a_line_ends_where_there_is_no_number():
    values = np.arange(24.0)
    values[[0, 10, 11]] = np.nan
    assert answers.figure(chart(WEEKS, values)).count("<polyline") == 2
    assert answers.figure(chart(WEEKS, np.full(24, np.nan))).count("<polyline") == 0


@pytest.mark.parametrize("labels", [WEEKS, [f"group {i}" for i in range(24)]])
def test_a_wild_interval_is_cut_and_said_to_be(labels):
    usual = chart(labels)
    assert answers.extent(usual, 24) == (0.0, 128.0)
    assert "are cut" not in answers.figure(usual)
    wild = Chart(usual.name, labels, usual.values, usual.low, usual.high.copy(), from_zero=True)
    wild.high[3] = 1e7
    assert answers.extent(wild, 24)[1] < 300
    assert "Intervals that go beyond the chart are cut" in answers.figure(wild)
    wild.high[3] = np.inf
    assert answers.extent(wild, 24)[1] < 300


def test_wide_intervals_of_all_groups_are_shown_whole():
    found = chart(["a", "b", "c"], [10.0, 11.0, 12.0], half=400.0, from_zero=False)
    assert answers.extent(found, 3) == (-390.0, 412.0)
    assert answers.extent(chart(["a"], [np.nan]), 1) == (0.0, 1.0)
    assert answers.extent(chart(["a", "b"], [7.0, 7.0], half=0.0, from_zero=False), 2) == (3.5, 10.5)


def test_charts_of_many_groups_come_first():
    of = answers.Answer("count(*)", "FROM t", answers.Listing("", ["g", "n"], [("a", "1")]), [chart(["a", "b"])], [("rows", "all")], 2)
    many = answers.Answer(of.question, of.rows, of.listing, of.charts, of.explained, 40)
    assert answers.section(of).index("<table") < answers.section(of).index("<svg")
    assert answers.section(many).index("<table") > answers.section(many).index("<svg")
