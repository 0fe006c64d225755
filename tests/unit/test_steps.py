"""Exact sums in steps: DuckDB's text against fractions, and what one unit's rows change, for every table of others."""

from __future__ import annotations

import itertools
from fractions import Fraction

import duckdb
import numpy as np
import pytest

from dpsql.estimates.measures import Measure, Variable, sensitivity
from dpsql.measure.steps import LARGEST_SUM, Steps, steps_of

CASES = {
    "TINYINT": (-5.0, 1000.0, ["-128", "127", "-5", "-6", "0", "NULL"]),
    "INTEGER": (0.0, 100.0, ["-2147483648", "2147483647", "0", "100", "7", "101"]),
    "UTINYINT": (3.0, 9.0, ["0", "255", "3", "9", "5"]),
    "UBIGINT": (0.0, 2.0**40, ["18446744073709551615", "1", "0"]),
    "HUGEINT": (-(2.0**60), 2.0**60, ["170141183460469231731687303715884105727", "-170141183460469231731687303715884105728", "1", "-3"]),
    "DECIMAL(4,1)": (-3.5, 900.0, ["-999.9", "999.9", "-3.5", "0.1", "899.9"]),
    "DECIMAL(15,2)": (0.0, 0.1, ["0.05", "-0.01", "0.10", "0.11", "9999999999999.99"]),
    "DECIMAL(38,2)": (-1e20, 1e20, ["999999999999999999999999999999999999.99", "-1.01", "0.00"]),
    "DECIMAL(18,18)": (-0.5, 0.25, ["0.999999999999999999", "-0.999999999999999999", "0.000000000000000001"]),
    "DECIMAL(38,38)": (0.0, 1e-15, ["0.00000000000000000000000000000000000001", "0.99999999999999999999999999999999999999", "0.0000000000000005"]),
}


@pytest.fixture(scope="module")
def con():
    with duckdb.connect() as made:
        yield made


def inside(text: str, steps: Steps) -> int:
    exact = int(Fraction(text) * 10**steps.sql_type.scale)
    return min(max(exact, steps.lower), steps.upper)


@pytest.mark.parametrize("kind", CASES)
@pytest.mark.parametrize("measured", ["moments", "scaled"])
def test_it_is_the_sum_of_what_lies_within(con: duckdb.DuckDBPyConnection, kind: str, measured: str) -> None:
    lower, upper, values = CASES[kind]
    measure = Measure(measured, (Variable(0, lower, upper),), grid=1000)
    steps = steps_of(measure, kind)
    assert steps is not None
    assert steps.lower == Fraction(repr(lower)) * 10**steps.sql_type.scale
    rows = [value for value in values if value != "NULL"]
    listed = ", ".join("(NULL)" if value == "NULL" else f"(CAST('{value}' AS {kind}))" for value in values)
    (total,) = con.execute(f"SELECT {steps.total('x', 'x IS NOT NULL')} FROM (VALUES {listed}) AS t(x)").fetchall()[0]
    wanted = sum(inside(value, steps) for value in rows)
    assert steps.read(total) == wanted
    (found,) = steps.cumulated([steps.read(total)], np.array([len(rows)]), measure)
    if measured == "scaled":
        exact = Fraction(wanted * 1000, max(abs(steps.lower), abs(steps.upper)))
    else:
        exact = Fraction((len(rows) * steps.upper - wanted) * 1000, steps.upper - steps.lower)
    assert found == (exact + Fraction(1, 2)).__floor__()
    (none,) = con.execute(f"SELECT {steps.total('x', 'false')} FROM (VALUES {listed}) AS t(x)").fetchall()[0]
    assert steps.cumulated([steps.read(none)], np.array([0]), measure).tolist() == [0]


@pytest.mark.parametrize(("lower", "upper"), [(0, 3), (-2, 5), (-7, -1), (0, 7)])
@pytest.mark.parametrize("measured", ["moments", "scaled"])
@pytest.mark.parametrize("grid", [1, 2, 5])
def test_a_unit_changes_the_counters_by_what_is_charged(measured: str, lower: int, upper: int, grid: int) -> None:
    """All values of two rows of a unit, beside all sums of others: rounded once a group, the norms are those of two rows."""
    measure = Measure(measured, (Variable(0, lower, upper),), grid=grid)
    steps = steps_of(measure, "INTEGER")
    assert steps is not None
    l1, l2 = sensitivity(measure, 2, grouped=True)

    def counters(values: tuple[int, ...]) -> np.ndarray:
        rows = np.array([len(values)])
        first = steps.cumulated([sum(values)], rows, measure)
        return first if measured == "scaled" else np.concatenate([first, rows * grid - first])

    values = range(lower, upper + 1)
    changes = []
    for others in itertools.chain.from_iterable(itertools.combinations_with_replacement(values, n) for n in range(4)):
        for unit in itertools.product(values, repeat=2):
            changes.append(counters((*others, *unit)) - counters(others))
    for change in changes:
        assert abs(change).sum() <= l1 and (change**2).sum() <= l2**2 + 1e-9
        assert measure.signed or (change >= 0).all() or (change <= 0).all()
    assert max(abs(change).sum() for change in changes) == l1


def test_replaced_units_lie_within_what_is_charged() -> None:
    measure = Measure("moments", (Variable(0, 0, 3),), grid=5)
    steps = steps_of(measure, "INTEGER")
    assert steps is not None
    l1, l2 = sensitivity(measure, 1, neighbors="replace_one", grouped=True)
    for others in itertools.chain.from_iterable(itertools.combinations_with_replacement(range(4), n) for n in range(4)):
        found = [steps.cumulated([sum(others) + x], np.array([len(others) + 1]), measure)[0] for x in range(4)]
        for a, b in itertools.product(found, repeat=2):
            assert 2 * abs(a - b) <= l1 and 2 * (a - b) ** 2 <= l2**2


def test_the_mean_of_decimals_is_not_off_on_average(con: duckdb.DuckDBPyConnection) -> None:
    """0, .01, ..., .1 on a grid of 905 points lie above or below the nearest one; each row rounded, the sum was 1.5e-5 too low."""
    measure = Measure("moments", (Variable(0, 0, 0.1),), grid=905)
    steps = steps_of(measure, "DECIMAL(15,2)")
    assert steps is not None
    query = f"SELECT {steps.total('x', 'true')}, sum(x) FROM (SELECT (i % 11 / 100)::DECIMAL(15, 2) AS x FROM range(110000) t(i))"
    total, exact = con.execute(query).fetchall()[0]
    (first,) = steps.cumulated([steps.read(total)], np.array([110000]), measure)
    assert (110000 * 905 - first) / 905 * 0.1 == pytest.approx(float(exact), abs=0.5 / 905 * 0.1)


def test_huge_sums_are_cut() -> None:
    measure = Measure("moments", (Variable(0, 0, 2.0**50),), grid=2**30)
    steps = steps_of(measure, "BIGINT")
    assert steps is not None
    assert steps.cumulated([0], np.array([2**40]), measure).tolist() == [LARGEST_SUM]


@pytest.mark.parametrize(
    ("measure", "kind"),
    [
        (Measure("moments", (Variable(0, 0, 3),)), "DOUBLE"),
        (Measure("moments", (Variable(0, 0, 3),)), "DATE"),
        (Measure("moments", (Variable(0, 0, 3),)), "UHUGEINT"),
        (Measure("moments", (Variable(0, 0, 3),), degree=2), "INTEGER"),
        (Measure("moments", (Variable(0, 0, 3), Variable(1, 0, 3))), "INTEGER"),
        (Measure("moments", (Variable(0, 0.5, 3),)), "INTEGER"),
        (Measure("moments", (Variable(0, 0, 1e30),)), "HUGEINT"),
        (Measure("count"), "INTEGER"),
    ],
)
def test_others_are_added_up_row_by_row(measure: Measure, kind: str) -> None:
    assert steps_of(measure, kind) is None
