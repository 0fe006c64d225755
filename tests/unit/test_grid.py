"""The public nested grid of a column: nested, covering, round, for every type at every end of its range."""

from __future__ import annotations

import dataclasses
import datetime as dt
import math
from fractions import Fraction

import numpy as np
import pytest
from bounded_attributes import LARGEST, TINY, bounded, named, some
from sqlglot import exp

from dpsql.domains import sqltypes
from dpsql.domains.codes import code_expression, number_expression
from dpsql.domains.grid import DEEPEST, DEPTH, centres, edge_numbers, grid_of
from dpsql.source.rehearsal import values_of


@pytest.mark.parametrize("case", some(1), ids=named)
def test_cells_are_nested_and_cover_the_bounds(case):
    attribute = bounded(*case)
    grid, parsed = grid_of(attribute), sqltypes.parse(attribute.sql_type)
    assert np.isfinite(grid.edges).all()
    assert (np.diff(grid.edges) > 0).all()
    assert 1 <= len(grid.levels) <= (DEEPEST if parsed.family == "temporal" else DEPTH)
    assert grid.levels[-1].tolist() == list(range(grid.edges.size))
    for coarse, fine in zip(grid.levels, grid.levels[1:], strict=False):
        assert set(coarse.tolist()) < set(fine.tolist())  # nested, and no level is paid for twice
    for level in grid.levels:
        assert (level[0], level[-1]) == (0, grid.edges.size - 1)
    ends = edge_numbers(attribute)
    assert grid.edges[0] == ends[0]
    assert grid.edges[-1] >= ends[-1]
    assert grid.edges.size <= 1 << 18 | 1
    # The first and the last value lie in the first and the last cell, and whatever is beyond does too.
    beyond = np.asarray([-math.inf, ends[0], math.inf, math.nan])
    assert grid.place(beyond).tolist() == [0, 0, grid.edges.size - 2, 0]
    assert grid.unit == (0.0 if parsed.family == "float" else 10.0**-parsed.scale)
    # A shallower grid is the first levels of the whole one.
    for depth in (1, 2, DEPTH):  # of dates over millennia, releases of before have no more than DEPTH
        shallow = grid_of(attribute, depth)
        assert len(shallow.levels) == min(depth, len(grid.levels))
        for level, same in zip(shallow.levels, grid.levels, strict=False):
            assert shallow.edges[level].tolist() == grid.edges[same].tolist()


def test_few_values_have_a_cell_each():
    assert grid_of(bounded("INTEGER", 0, 60)).edges.tolist() == list(range(62))
    assert [level.size - 1 for level in grid_of(bounded("INTEGER", 0, 60)).levels] == [61]
    assert [level.size - 1 for level in grid_of(bounded("INTEGER", 0, 120)).levels] == [13, 121]
    assert grid_of(bounded("DECIMAL(4,2)", 0.1, 0.3)).edges.tolist() == [n / 100 for n in range(10, 32)]
    assert grid_of(bounded("DATE", "2020-02-27", "2020-03-02")).edges.size == 6


@pytest.mark.parametrize(("sql_type", "lower", "upper"), [("INTEGER", 0, 100_000), ("BIGINT", -(10**7), 10**7), ("DOUBLE", 0, 1e6), ("DECIMAL(12,2)", 0, 10**7)])
def test_numbers_of_many_magnitudes_are_cut_at_round_ones(sql_type, lower, upper):
    grid = grid_of(bounded(sql_type, lower, upper))
    first = grid.edges[grid.levels[0]]
    inner = first[1:-1]
    # A cell ends behind -m and begins at m: so a negative mark is one unit (or nothing) above a round number.
    shifted = np.where(inner < 0, inner - grid.unit, inner)
    digits = [f"{abs(value):.12e}".split("e")[0].rstrip("0.") for value in shifted if abs(value) > max(grid.unit, 1e-300)]
    assert set(digits) <= {"1", "2", "5"}
    assert {1.0, 10.0, 1000.0, 50_000.0} <= set(first.tolist())
    assert 0.0 in first  # zero begins a cell of its own:
    zero = first.tolist().index(0.0)
    assert first[zero + 1] == (grid.unit or TINY)


@pytest.mark.parametrize("value", [0.0, 1.0, 99.0, 100.0, 1000.0, 54_321.0])
def test_relative_precision_is_the_same_everywhere(value):
    grid = grid_of(bounded("BIGINT", 0, 10**7))
    cell = int(grid.place(np.asarray([value]))[0])
    assert grid.edges[cell + 1] - grid.edges[cell] <= max(value / 500, 1)


@pytest.mark.parametrize(
    ("sql_type", "lower", "upper", "level", "unit"),
    [
        ("DATE", "1900-03-05", "2030-01-01", 0, "decade"),
        ("DATE", "1900-03-05", "2030-01-01", 1, "year"),
        ("DATE", "1900-03-05", "2030-01-01", 2, "month"),
        ("TIMESTAMP", "1995-06-01", "2029-06-01", 1, "month"),
        ("TIMESTAMP WITH TIME ZONE", "1995-06-01", "2029-06-01", 2, "day"),
        ("TIMESTAMP_S", "2020-01-05", "2020-02-09", 1, "hour"),
        ("TIMESTAMP_NS", "2020-01-05", "2022-02-09", 0, "month"),
        ("TIME", "08:15:00", "17:45:00", 0, "hour"),
        ("TIME", "08:15:00", "17:45:00", 1, "minute"),
    ],
)
def test_dates_and_times_are_cut_at_the_calendars_marks(sql_type, lower, upper, level, unit):
    attribute = bounded(sql_type, lower, upper)
    parsed, grid = sqltypes.parse(sql_type), grid_of(attribute)
    texts = [sqltypes.step_text(parsed, int(edge)) for edge in grid.edges[grid.levels[level]][1:-1]]
    moments = [dt.datetime.fromisoformat(f"2000-01-01 {text}" if sql_type == "TIME" else text.removesuffix("+00")) for text in texts]
    assert len(moments) > 2
    fields = {"decade": "year month day hour minute second", "month": "day hour minute second", "minute": "second microsecond"}
    fields |= {"year": "month day hour minute second", "day": "hour minute second microsecond", "hour": "minute second microsecond"}
    for moment in moments:
        for field in fields[unit].split():
            found = getattr(moment, field)
            assert found == {"month": 1, "day": 1}.get(field, 0) or (field == "year" and unit == "decade" and found % 10 == 0), moment


def test_a_short_range_of_moments_has_cells_too():
    """A second of microseconds has more values than cells; it was one cell once."""
    assert grid_of(bounded("TIME", "08:00:00", "08:00:01")).edges.size - 1 == 1001
    assert grid_of(bounded("TIMESTAMP", "2020-01-01", "2020-01-01 00:00:00.2")).edges.size - 1 == 200_001


def test_the_ends_of_double_precision():
    for low, high in ((0, LARGEST), (-LARGEST, 0), (1e300, LARGEST), (-LARGEST / 4, LARGEST / 4), (1e-300, 1e300)):
        grid = grid_of(bounded("DOUBLE", low, high))
        assert np.isfinite(grid.edges).all()
        assert grid.edges[-1] >= high
        assert len(grid.levels) == DEPTH
    assert grid_of(bounded("DOUBLE", 0, TINY)).edges.tolist() == [0.0, TINY, 2 * TINY]
    assert len(grid_of(bounded("DOUBLE", 1, math.nextafter(1, 2))).levels) == 1


def test_bounds_too_far_apart_are_told_in_words():
    with pytest.raises(ValueError, match=r"upper = 1\.79.*too far apart"):
        bounded("DOUBLE", -LARGEST, LARGEST)


def test_bins_end_at_values_of_the_type():
    """An edge between two integers belongs to the next value, where the histogram's cells end too."""
    assert edge_numbers(bounded("INTEGER", 0, 10, bins=4)).tolist() == [0.0, 3.0, 5.0, 8.0, 11.0]
    assert edge_numbers(bounded("INTEGER", 0.5, 9.5, bins=1)).tolist() == [1.0, 10.0]
    assert edge_numbers(bounded("DOUBLE", 0, 10, bins=4)).tolist() == [0.0, 2.5, 5.0, 7.5, 10.0]
    assert edge_numbers(bounded("DATE", "1970-01-01", "1970-01-11", bins=2)).tolist() == [0.0, 5.0, 10.0]


def test_centres_neither_overflow_nor_vanish():
    for low, high in (([-LARGEST, 0.0], [0.0, LARGEST]), ([0.0, TINY], [TINY, 2 * TINY])):
        found = centres(np.asarray(low), np.asarray(high))
        assert found.tolist() in ([-0.5, 0.5], [0.25, 0.75])


def inputs(attribute, edges: np.ndarray) -> list[str]:
    """SQL of values at the bounds, at cells' ends, beside them and far away."""
    parsed = sqltypes.parse(attribute.sql_type)
    places = sorted({0, 1, edges.size // 3, edges.size // 2, edges.size - 2, edges.size - 1} & set(range(edges.size)))
    found = values_of(attribute.sql_type)
    for edge in edges[places].tolist():
        if parsed.family == "float":
            texts = [repr(v) for v in (edge, math.nextafter(edge, -math.inf), math.nextafter(edge, math.inf))]
        elif parsed.family == "temporal":
            texts = [sqltypes.step_text(parsed, int(edge) + d) for d in (-1, 0, 1) if edges[0] < edge < edges[-2] or d == 0 and edge < edges[-1]]
        else:
            unit = round(Fraction(edge) * 10**parsed.scale)
            texts = [sqltypes.unit_text(parsed, v) for v in (unit - 1, unit, unit + 1) if parsed.low <= v <= parsed.high]
        found += [f"TRY_CAST('{text}' AS {attribute.sql_type})" for text in texts]
    if parsed.family == "float":
        found += [f"'{text}'::{attribute.sql_type}" for text in ("nan", "inf", "-inf", "-0.0", "0.0", "5e-324")]
    return found


@pytest.mark.parametrize("case", some(0), ids=named)
def test_the_number_of_a_value_lies_in_its_cell(plain, case):
    """In a table, so that no branch is folded away: an infinite date must not be counted in days, nor NaN compared."""
    attribute = bounded(*case)
    parsed, grid = sqltypes.parse(attribute.sql_type), grid_of(attribute)
    column = exp.column("x", quoted=True)
    number = number_expression(attribute, column).sql(dialect="duckdb")
    outside = dataclasses.replace(attribute.bounded, outside="other", nullable=True)
    code = code_expression(outside, column).sql(dialect="duckdb")
    plain.execute("SET TimeZone = 'Asia/Kolkata'")
    plain.execute(f"CREATE TEMP TABLE t AS SELECT unnest([{', '.join(inputs(attribute, grid.edges))}]) AS x")
    rows = plain.execute(f"SELECT x::VARCHAR, typeof({number}), {number}, {code} FROM t").fetchall()
    assert len(rows) > 6
    inside = 0
    for text, kind, found, where in rows:
        assert kind == "DOUBLE"
        if text in (None, "nan"):
            assert math.isnan(found)
            assert where == 2
            continue
        assert math.isinf(found) == (where == 1), text
        if where == 1 or parsed.family == "temporal":
            continue
        exact = float(np.float32(text)) if parsed.text == "FLOAT" else float(Fraction(text))
        inside += 1
        # Casts of numbers of more than 53 bits to DOUBLE may be off by the last bits, on some versions.
        assert grid.place(np.asarray([found])) == grid.place(np.asarray([exact])) or abs(found - exact) <= 4e-16 * abs(exact) > 0, text
        if parsed.high < 2**53 and parsed.family != "float":
            assert found == exact
    assert inside or parsed.family == "temporal"


@pytest.mark.parametrize("sql_type", ["DATE", "TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "TIMESTAMP WITH TIME ZONE", "TIME"])
def test_moments_are_steps_since_1970(plain, sql_type):
    ends = ("00:00:00", "23:59:59") if sql_type == "TIME" else ("1960-01-01", "2030-01-01")
    texts = ["00:00:01", "12:30:00", "23:59:59"] if sql_type == "TIME" else ["1960-01-01", "1969-12-31", "1970-01-01", "1999-05-05", "2030-01-01"]
    attribute, parsed = bounded(sql_type, *ends), sqltypes.parse(sql_type)
    number = number_expression(attribute, exp.column("x", quoted=True)).sql(dialect="duckdb")
    plain.execute("SET TimeZone = 'America/St_Johns'")
    zone = " 00:00:00+00" if "ZONE" in sql_type else ""
    rows = plain.execute(f"SELECT {number} FROM (SELECT unnest($1::VARCHAR[])::{sql_type} AS x)", [[text + zone for text in texts]]).fetchall()
    assert [row[0] for row in rows] == [sqltypes.steps_of(parsed, text) for text in texts]
