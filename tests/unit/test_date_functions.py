"""Date functions of a source: of every date within 100,000 years they are what DuckDB says, and of none they fail."""

import duckdb
import pytest

from dpsql.algebra import moments as moments_
from dpsql.algebra.functions import FUNCTIONS
from dpsql.algebra.parts import CLOCK, PARTS, UNITS
from dpsql.algebra.ranges import Range
from dpsql.source.functions import guard_temporal
from dpsql.source.kernel import KINDS, TEMPORAL

ENDS = ("100000-01-01 (BC)", "99999-12-31")
COMMON = ("0001-01-01", "9999-12-31", "0001-01-01 (BC)", "0044-03-15 (BC)", "0001-01-02", "10000-01-01", "2024-02-29", "1969-12-31")
BEYOND = {"DATE": ("5877642-06-25 (BC)", "5881580-07-10"), "TIMESTAMP": ("290309-12-22 (BC) 00:00:00", "294247-01-10 04:00:54.775806")}
INFINITE = ("infinity", "-infinity")
ZONES = ("UTC", "Europe/Berlin", "Asia/Manila", "America/Juneau", "Pacific/Apia", "Etc/GMT+12", "Etc/GMT-14")
FORMATS = "aAwudbBmyYGHIpMSfgzZjUVWcxX"


def moments(kind):
    """The texts of moments that are computed with, and of those that are not."""
    zone = "+00" if kind.endswith("ZONE") else ""
    known = [*ENDS, *COMMON] if kind == "DATE" else [f"{day} {time}{zone}" for day in (*ENDS, *COMMON) for time in ("00:00:00", "23:59:59.999999")]
    return known, [f"{text}{zone}" for text in BEYOND.get(kind, BEYOND["TIMESTAMP"])]


def calls(kind):
    """Every call of a function of the kernel over a moment ``{0}``, or over two."""
    for name, spec in FUNCTIONS.items():
        if spec.kinds in ("t", "v"):
            yield f"{name}({{0}})"
        elif spec.kinds in ("sv", "st"):
            yield from (f"{name}('{part}', {{0}})" for part in sorted(PARTS if spec.kinds == "sv" else UNITS))
        elif spec.kinds == "stt":
            yield from (f"{name}('{part}', {{0}}, {{1}})" for part in sorted(UNITS))
        elif spec.kinds == "sz" and kind in KINDS["z"]:
            yield from (f"{name}('{zone}', {{0}})" for zone in ZONES)
        elif spec.kinds == "ts":
            yield from (f"{name}({{0}}, '%{letter}')" for letter in FORMATS)
    steps = ["1 DAY", "10000 YEAR", "3660000 DAY", "30000 QUARTER", "3660000 SECOND", "118000 MONTH"]
    yield from (f"{{0}} {sign} INTERVAL {step}" for sign in "+-" for step in steps)
    yield from (f"TRY_CAST({{0}} AS {to})" for to in (*TEMPORAL, "VARCHAR"))
    if kind == "DATE":
        yield from ("{0} - {1}", "{0} + 3660000", "{0} - 3660000")


def guarded(kind, name, *, finite=False):
    from sqlglot import exp

    return guard_temporal(exp.column(name), kind, finite=finite).sql(dialect="duckdb")


@pytest.mark.parametrize("kind", TEMPORAL)
def test_no_date_makes_a_function_fail_and_those_within_are_what_duckdb_says(kind):
    con = duckdb.connect()
    con.execute("SET TimeZone = 'UTC'")
    known, beyond = moments(kind)
    con.execute(f"CREATE TABLE m AS SELECT unnest(?)::{kind} AS v", [[*known, *INFINITE]])
    con.execute(f"CREATE TABLE o AS SELECT unnest(?)::{kind} AS w", [["2024-02-29", *ENDS, *INFINITE] if kind != "TIMESTAMP WITH TIME ZONE" else
                                                                     ["2024-02-29 00:00:00+00", *(f"{end} 00:00:00+00" for end in ENDS), *INFINITE]])
    con.execute(f"CREATE TABLE far AS SELECT unnest(?)::{kind} AS v", [beyond])
    asked = list(calls(kind))
    assert len(asked) > 150
    for call in asked:
        finite = call == "{0} - {1}"
        plain = call.format("v", "w")
        safe = call.format(*(guarded(kind, name, finite=finite) for name in ("v", "w")))
        where = "WHERE isfinite(v) AND isfinite(w)" if finite else ""
        [(different,)] = con.execute(f"SELECT count(*) FROM (SELECT {plain} AS a, {safe} AS b FROM m, o {where}) WHERE a IS DISTINCT FROM b").fetchall()
        assert different == 0, call
        if "{1}" in call or call.startswith("TRY_CAST"):
            other = call.format(guarded(kind, "w", finite=finite), guarded(kind, "v", finite=finite))
            con.execute(f"SELECT {other}, {safe} FROM far, o").fetchall()
        assert set(con.execute(f"SELECT {safe} FROM far, o").fetchall()) == {(None,)}, call
    con.close()


@pytest.mark.parametrize("call", ["last_day('5881580-07-10'::DATE)", "date_trunc('month', '5881580-07-10'::DATE)::TIMESTAMP"])
def test_the_guard_is_needed(call):
    """What it keeps away fails."""
    con = duckdb.connect()
    con.execute("CREATE TABLE t AS SELECT '5881580-07-10'::DATE AS v")
    before, after = call.split("'5881580-07-10'::DATE")
    with pytest.raises(duckdb.Error):
        con.execute(f"SELECT {before}v{after} FROM t").fetchall()
    assert con.execute(f"SELECT {before}{guarded('DATE', 'v')}{after} FROM t").fetchall() == [(None,)]
    con.close()


DAYS = ["99999-01-01 (BC)", "0401-12-31 (BC)", "0101-03-01 (BC)", "0044-03-15 (BC)", "0011-06-30 (BC)", "0001-01-01 (BC)", "0001-12-31 (BC)", "0001-01-01",
        "0004-02-29", "0010-01-01", "0099-12-31", "0100-01-01", "1000-12-31", "1899-12-31", "1969-12-31", "1970-01-01", "2000-02-29", "2024-12-30", "9999-12-31",
        "10000-01-01", "12345-06-07", "99990-12-31"]


def test_what_is_known_of_dates_holds_for_all_between_two_bounds():
    """Fields, truncations, differences and shifts of days between two bounds lie in the range that is made of the bounds."""
    con = duckdb.connect()
    con.execute("CREATE TABLE d AS SELECT unnest(?)::DATE AS v", [DAYS])
    con.execute("CREATE TABLE e AS SELECT v, date_diff('day', DATE '1970-01-01', v) AS n FROM d")
    bounds = [row[0] for row in con.execute("SELECT n FROM e ORDER BY n").fetchall()]
    assert len(bounds) == len(DAYS)
    pairs = [(bounds[i], bounds[j]) for i in range(len(bounds)) for j in range(i, len(bounds), 3)]

    def values(expression):
        rows = con.execute(f"SELECT n, ({expression})::DOUBLE FROM e").fetchall()
        assert all(value is not None for _, value in rows)
        return rows

    def check(expression, known):
        rows = values(expression)
        for low, high in pairs:
            found = known(Range(float(low), float(high), True, "date"))
            assert all(found.lower <= value <= found.upper for n, value in rows if low <= n <= high), (expression, low, high, found)

    for part in sorted(PARTS.keys() - CLOCK):
        check(f"date_part('{part}', v)", lambda value, part=part: moments_.field(part, value))
    for unit in sorted(UNITS - CLOCK):
        check(f"epoch(date_trunc('{unit}', v)::TIMESTAMP)", lambda value, unit=unit: moments_.truncated(unit, value))
        for text in ("2024-02-29", "0044-03-15 (BC)", "9999-12-31"):
            [(n,)] = con.execute(f"SELECT date_diff('day', DATE '1970-01-01', '{text}'::DATE)").fetchall()
            other = Range(float(n), float(n), True, "date")
            check(f"date_diff('{unit}', v, '{text}'::DATE)", lambda value, unit=unit, other=other: moments_.difference(unit, value, other))
            check(f"date_sub('{unit}', '{text}'::DATE, v)", lambda value, unit=unit, other=other: moments_.difference(unit, other, value, complete=True))
    for amount, unit in ((1, "day"), (-1, "month"), (13, "month"), (-9_000, "year"), (9_000, "year"), (5, "quarter"), (-3, "week"), (7, "hour")):
        check(f"epoch(v + INTERVAL '{amount} {unit}')", lambda value, amount=amount, unit=unit: moments_.shifted(value, amount, unit))
    check("date_diff('day', DATE '1970-01-01', last_day(v))", moments_.last_day)
    con.close()
