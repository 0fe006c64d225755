"""The integers of a row, by DuckDB itself: never outside of the grid, never an error, NULL for NULL, whatever the number."""

from __future__ import annotations

import itertools
import sys

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsql.estimates.measures import Measure, Variable
from dpsql.measure.counters import Counters

LARGEST = sys.float_info.max
NUMBERS = (0.0, -0.0, 1.0, -1.0, 0.1, 5e-324, -5e-324, LARGEST, -LARGEST, 1e300, 1e16, -1e16, 3.0, float("inf"), float("-inf"))
BOUNDS = ((0.0, 1.0), (-1.0, 1.0), (0.0, 5e-324), (-5e-324, 5e-324), (0.0, LARGEST), (0.1, 0.3), (1e16, 1e16 + 2), (-3.0, -1.0), (1.0, 1.0000000000000002))


def counted(con: duckdb.DuckDBPyConnection, measure: Measure, rows: list[tuple[float | None, float | None]]) -> list[tuple[int | None, ...]]:
    """Return the counters of each row, in order."""
    made = Counters([measure])
    numbers = ", ".join(f"({i}, {', '.join('NULL' if x is None else f'{x!r}::DOUBLE' if x == x and abs(x) != float('inf') else repr(str(x)) + '::DOUBLE' for x in row)})" for i, row in enumerate(rows))
    source = f"SELECT * FROM (VALUES {numbers}) t(i, x0, x1)"
    found = con.execute(f"SELECT {', '.join(made.columns)} FROM ({made.over(source, ['i', 'x0', 'x1'], ['i'])}) ORDER BY i ASC").fetchall()
    return [tuple(row) for row in found]


@pytest.fixture(scope="module")
def con() -> duckdb.DuckDBPyConnection:
    return duckdb.connect()


@pytest.mark.parametrize("grid", [1, 7, 32767, 32768, 2**20, 2**30])
@pytest.mark.parametrize("bounds", BOUNDS)
def test_extreme_numbers_are_within_the_grid(con, grid, bounds):
    one = Variable(0, *bounds)
    rows = [(x, None) for x in (*NUMBERS, *bounds, bounds[0] / 2 + bounds[1] / 2)]
    for value in itertools.chain(*counted(con, Measure("moments", (one,), grid=grid), rows)):
        assert 0 <= value <= grid
    for value in itertools.chain(*counted(con, Measure("scaled", (one,), grid=grid), rows)):
        assert -grid <= value <= grid
    for degree, variables in ((2, (one,)), (1, (one, Variable(1, -2.0, 5.0))), (2, (one, Variable(1, -2.0, 5.0)))):
        for row in counted(con, Measure("moments", variables, degree=degree, grid=grid), [(x, 0.3) for x, _ in rows]):
            assert list(row) == sorted(row) and row[0] >= 0 and row[-1] <= grid


@settings(max_examples=100, deadline=None)
@given(
    x=st.floats(allow_nan=False), z=st.floats(allow_nan=False), grid=st.integers(1, 2**30), degree=st.sampled_from([1, 2]),
    bounds=st.tuples(st.floats(-1e300, 1e300), st.floats(-1e300, 1e300)).filter(lambda b: b[0] < b[1]),
)  # fmt: skip
def test_counters_of_a_row_do_not_fall(con, x, z, grid, degree, bounds):
    for variables in ((Variable(0, *bounds),), (Variable(0, *bounds), Variable(1, -1.0, 3.0))):
        [row] = counted(con, Measure("moments", variables, degree=degree, grid=grid), [(x, z)])
        assert list(row) == sorted(row) and row[0] >= 0 and row[-1] <= grid
    [(value,)] = counted(con, Measure("scaled", (Variable(0, *bounds),), grid=grid), [(x, z)])
    assert abs(value) <= grid


def test_a_row_with_null_has_no_vector(con):
    both = (Variable(0, 1.0, 2.0), Variable(1, 1.0, 2.0))
    for measure in (Measure("moments", both), Measure("moments", both, degree=2)):
        for row in counted(con, measure, [(None, 1.5), (1.5, None), (None, None)]):
            assert set(row) == {None}
    assert counted(con, Measure("moments", both[:1]), [(None, 1.5)]) == [(None,)]
    assert counted(con, Measure("scaled", both[:1]), [(None, 1.5)]) == [(None,)]


def test_the_ends_and_the_middle(con):
    one = Variable(0, 10.0, 20.0)
    assert counted(con, Measure("moments", (one,), grid=1000), [(9.0, 0), (10.0, 0), (12.5, 0), (20.0, 0), (99.0, 0)]) == [(1000,), (1000,), (750,), (0,), (0,)]
    assert counted(con, Measure("scaled", (one,), grid=1000), [(-5.0, 0), (12.0, 0), (20.0, 0), (30.0, 0)]) == [(500,), (600,), (1000,), (1000,)]


def test_a_counter_that_several_measures_need_is_one_column():
    one, other = Variable(0, 0.0, 1.0), Variable(1, 0.0, 1.0)
    made = Counters([Measure("moments", (one,)), Measure("count"), Measure("moments", (one,), filter=0, nulls=True), Measure("scaled", (other,))])
    assert made.names == [["c0"], [], ["c0"], ["c1"]] and made.columns == ["c0", "c1"]
