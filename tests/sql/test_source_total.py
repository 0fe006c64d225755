"""No value of the protected table makes a source fail: extreme values against every function, alone and in company.

What is compared: on ordinary values the rewritten expression equals the written one.
"""

from __future__ import annotations

import itertools
import random
from decimal import Decimal, localcontext

import duckdb
import pytest
from case_counts import cases

from dpsql.algebra.functions import FUNCTIONS
from dpsql.errors import ArgumentError, UnsupportedQuery
from dpsql.source.analysis import analyse

NASTY = """
CREATE TABLE n AS SELECT * FROM (VALUES
 (9223372036854775807, (-9223372036854775808)::BIGINT, 'inf'::DOUBLE, -1e308::DOUBLE, 'infinity'::DATE, '-infinity'::TIMESTAMP,
  9.99::DECIMAL(3, 2), 2147483647, 'aé', '', 127::TINYINT, '23:59:59.999999'::TIME, true, 18446744073709551615::UBIGINT,
  'infinity'::TIMESTAMPTZ, 'a'::ENUM('a', 'b'), {'x': 1, 'y': 'q'}, [1, 2], '290309-12-22 (BC)'::TIMESTAMP_S),
 ((-9223372036854775808)::BIGINT, -1, 'nan', 1e308, '5877642-06-25 (BC)'::DATE, '290309-12-22 (BC) 00:00:00'::TIMESTAMP,
  -9.99, -2147483647 - 1, '', 'x(', -128, '00:00:00', false, 0, '290309-12-22 (BC) 00:00:00+00', 'b', {'x': NULL, 'y': ''}, [], 'infinity'),
 (0, 0, 0, -0.0, '5881580-07-10', '294247-01-10 04:00:54.775806', 0, 0, '1', '%', 0, '12:00:00', NULL, 1,
  '294247-01-10 04:00:54.775806+00', 'a', NULL, [NULL], '2020-01-01'),
 (1, 3, -2.5, '-inf', '2020-02-29', '2020-02-29 13:00:00', 1.5, 5, '2020-01-01', '12', 5, '12:00:00', true, 5,
  '2020-01-01 00:00:00+00', NULL, {'x': 5, 'y': 'é'}, [5], '2020-01-01'),
 (NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)
) AS v(a, b, e, f, d, ts, dc, i, s, u, ti, tm, ok, ub, tz, en, st, l, tss), range(30) AS r(k)
"""
NUMBERS = ("a", "b", "e", "f", "dc", "i", "ti", "ub")
TIMES = ("d", "ts", "tm", "tz", "tss")
COLUMNS = (*NUMBERS, *TIMES, "s", "u", "en", "ok", "st", "l")
PARTS = ("year", "month", "hour", "second", "week", "dow", "isodow", "isoyear", "yearweek", "epoch", "era", "microseconds", "century", "julian")
TYPES = (
    "BOOLEAN", "TINYINT", "INTEGER", "BIGINT", "UBIGINT", "HUGEINT", "FLOAT", "DOUBLE", "DECIMAL(3, 1)", "DECIMAL(38, 10)", "VARCHAR",
    "DATE", "TIME", "TIMESTAMP", "TIMESTAMPTZ", "UUID", "ENUM('a', '1')", "INTERVAL", "BLOB", "JSON", "INTEGER[]",
)


def expressions() -> dict[str, list[str]]:
    """Expressions by family; many are refused, what is accepted must not raise."""
    pairs = list(itertools.product(COLUMNS, COLUMNS))
    found = {
        "arithmetic": [f"{x} {op} {y}" for x, y in itertools.product(NUMBERS, NUMBERS) for op in ("+", "-", "*", "/", "//", "%")]
        + [t.format(x) for x in NUMBERS for t in ("-{0}", "{0} + 1", "{0} * 1.5", "{0} / 0", "{0} // 0", "-({0} - 1)", "{0} * {0} * {0}")],
        "comparisons": [t.format(x, y) for x, y in pairs for t in ("{0} < {1}", "{0} IS DISTINCT FROM {1}", "coalesce({0}, {1})")]
        + [t.format(x, y) for x, y in pairs[::3] for t in ("greatest({0}, {1})", "{0} IN ({1})", "{0} BETWEEN {1} AND {0}", "nullif({0}, {1})")]
        + [f"concat({x}, {y}, {x})" for x, y in pairs[::7]],
        "casts": [f"CAST({x} AS {t})" for x in COLUMNS for t in TYPES],
        "times": [t.format(x) for x in TIMES for t in ("{0} + 1", "{0} - 3660000", "{0} + INTERVAL 3 MONTH", "{0} - INTERVAL 9999 YEAR")]
        + [f"{f}('{p}', {x})" for x in TIMES for p in PARTS for f in ("date_part", "date_trunc")]
        + [f"{f}('{p}', {x}, {y})" for x, y in itertools.product(TIMES, TIMES) for p in PARTS[:5] for f in ("date_diff", "date_sub")]
        + [f"{x} - {y}" for x, y in itertools.product(TIMES, TIMES)]
        + [f"strftime({x}, '%Y-%m-%d %H %A %j %U %f')" for x in TIMES],
        "syntax": [
            "l[1]", "l[0]", "l[7]", "st.x", "st['y']", "st.x + 1", "upper(st.y)", "CASE i WHEN 1 THEN a ELSE b END", "try(a + b)",
            "CASE WHEN e > f THEN a / b ELSE i // ti END", "CAST(CAST(s AS INTEGER) + 1 AS VARCHAR)", "s::INTEGER + u::INTEGER",
            "year(s::DATE)", "date_diff('day', s::DATE, d)", "sqrt(s::DOUBLE)", "st.x::TINYINT", "s LIKE u", "s NOT ILIKE '%a'", "s LIKE '%\\'",
        ],
    }
    texts = {"s": "'a'", "n": "3", "i": "-3"}
    calls = []
    for name, spec in FUNCTIONS.items():
        for x in COLUMNS:
            kinds = spec.kinds[: max(spec.least, 1)]
            calls.append(f"{name}({', '.join(texts.get(k, x) for k in kinds)})")
            calls.append(f"{name}({', '.join(texts.get(k, x) for k in spec.kinds)})")
    extra = [
        t.format(x)
        for x in ("s", "u", "en")
        for t in (
            "regexp_replace({0}, '(a)', 'b', 'g')", "regexp_extract({0}, '(.)', 7)", "regexp_matches({0}, '(', 'l')", "split_part({0}, '', 0)",
            "strptime({0}, '%Y-%m-%d')", "try_strptime({0}, '%s')", "substring({0}, 0, 1000000)", "left({0}, 1000000)",
            "right({0}, -1000000)", "trim({0}, '')", "replace({0}, '', 'z')", "translate({0}, 'ab', 'c')",
        )
    ]
    found["functions"] = sorted({*calls, *extra})
    found["spans"] = [
        f"{x} - {y} {op} INTERVAL '{size} {unit}'" for x, y in (("d", "ts"), ("ts", "d"), ("ts", "ts"), ("ts", "CAST(s AS TIMESTAMP)"))
        for op in ("<", ">=", "=") for size in (0, -3, 10000) for unit in ("second", "hour", "day", "month", "year")
    ]
    found["elements"] = [
        t.format(v) for v in ("[5]", "[1, 2]", "[7, -1, 5]")
        for t in ("list_has_any(l, {0})", "list_has_all(l, {0})", "l && {0}", "l @> {0}", "NOT array_has_any(l, {0})", "array_has_all(l, {0}) IS NULL")
    ]
    return found


FAMILIES = expressions()


@pytest.fixture(scope="module")
def con(functions_as_shipped):
    with duckdb.connect(":memory:") as connection:
        connection.execute("SET TimeZone = 'America/New_York'")
        connection.execute(NASTY)
        connection.execute("CREATE TABLE one AS FROM n WHERE i = 5 LIMIT 1")
        yield connection


def rewritten(con: duckdb.DuckDBPyConnection, query: str) -> str | None:
    try:
        return analyse(con.cursor(), query, database="memory", schema="main", protected=lambda t: True).sql
    except (UnsupportedQuery, ArgumentError):
        return None


@pytest.fixture(scope="module")
def accepted(con) -> dict[str, list[str]]:
    rng = random.Random(5)
    out = {}
    for family, texts in FAMILIES.items():
        chosen = rng.sample(texts, min(len(texts), cases(50 if family == "functions" else 35)))  # the kernel's generator tries many more
        out[family] = [t for t in chosen if rewritten(con, f"SELECT {t} AS x FROM n") is not None]
    return out


@pytest.mark.parametrize("family", FAMILIES)
def test_no_value_makes_it_fail(con, accepted, family):
    assert len(accepted[family]) > 5
    for text in accepted[family]:
        sql = rewritten(con, f"SELECT {text} AS x FROM n WHERE ({text}) IS NOT NULL OR a IS NULL")
        # the same expression twice, as a group, a filter and an aggregate: whatever the optimizer shares between them
        groups = f"SELECT x, count(*) AS n FROM ({sql}) AS s GROUP BY x HAVING max(x) IS NOT DISTINCT FROM min(x)"
        con.execute(f"SELECT sum(n) FROM ({groups})").fetchone()


def test_no_value_makes_combinations_fail(con, accepted):
    pool = [t for texts in accepted.values() for t in texts]
    rng = random.Random(8)
    done = 0
    for _ in range(cases(50)):
        p, q, r = rng.sample(pool, 3)
        query = (
            f"SELECT {p} AS x, {q} AS y, ({p}) IS NULL AS z, coalesce(CAST({p} AS VARCHAR), CAST({q} AS VARCHAR), '-') AS w FROM n "
            f"WHERE ({r}) IS NOT NULL OR CAST({p} AS VARCHAR) IN ('1', '2', '3', '4', '5', '6', '7')"
        )
        sql = rewritten(con, query)
        if sql is None:
            continue
        done += 1
        con.execute(f"SELECT count(x), count(y), max(w) FROM ({sql}) AS s WHERE x IS NOT NULL AND y IS NOT DISTINCT FROM y").fetchall()
        con.execute(f"SELECT max(n) FROM (SELECT count(*) AS n FROM ({sql}) AS s GROUP BY GROUPING SETS ((x), (y), (z, w)))").fetchall()
    assert done > 12


@pytest.mark.parametrize("family", FAMILIES)
def test_ordinary_values_mean_what_is_written(con, accepted, family):
    compared = 0
    for text in accepted[family]:
        written = f"SELECT {text} AS x FROM one"
        try:
            want = con.execute(f"SELECT typeof(x), x::VARCHAR FROM ({written})").fetchall()
        except duckdb.Error:
            continue  # raises as written, is NULL as rewritten
        got = con.execute(f"SELECT typeof(x), x::VARCHAR FROM ({rewritten(con, written)})").fetchall()
        # outside of a function's domain DuckDB 2 says NaN or infinity: NULL here, in every version
        assert got == want or (got[0][1] is None and want[0][1] in ("nan", "-nan", "inf", "-inf")), text
        compared += 1
    assert compared > 5


SECRET = "CREATE OR REPLACE TABLE w AS SELECT CASE WHEN i = 7 THEN 'secret' ELSE i::VARCHAR END AS s FROM range(3000) AS r(i)"


@pytest.mark.fact("1.4.5", "1.5.6", "2.0.0")
def test_why_try_is_not_used(con):
    """The fact behind the design: TRY lets the error of a shared subexpression through, with the value in its text."""
    con.execute(SECRET)
    with pytest.raises(duckdb.ConversionException, match="secret"):
        con.execute("SELECT sum(a), sum(b) FROM (SELECT TRY(s::INTEGER + 1) AS a, TRY(s::INTEGER + 2) AS b FROM w)").fetchall()


def test_what_is_used_instead_of_try(con):
    con.execute(SECRET)
    sql = rewritten(con, "SELECT s::INTEGER + 1 AS a, s::INTEGER + 2 AS b FROM w WHERE s::INTEGER * 2 IN (0, 14, 16)")
    assert con.execute(f"SELECT sum(a), sum(b) FROM ({sql})").fetchall() == [(10, 12)]
    sql = rewritten(con, "SELECT TRY(s::INTEGER + 1) AS a, TRY(s::INTEGER + 2) AS b FROM w")
    assert con.execute(f"SELECT count(a), count(b), count(*) FROM ({sql})").fetchall() == [(2999, 2999, 3000)]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("i // 0", [None]),
        ("i / 0", [None]),
        ("i % 0", [None]),
        ("CAST('12' AS INTEGER) + i", [17]),
        ("a + b * 2", [7]),
        ("sqrt(e)", [None]),
        ("s::DATE + INTERVAL 1 DAY", ["2020-01-02 00:00:00"]),
        ("u::INTEGER // 5", [2]),
        ("strptime(u, '%Y')", [None]),
    ],
)
def test_what_would_raise_is_null(con, text, values):
    sql = rewritten(con, f"SELECT {text} AS x FROM one")
    got = [r[0] if r[0] is None or isinstance(values[0], int) else str(r[0]) for r in con.execute(sql).fetchall()]
    assert got == values or (text.startswith("strptime") and got == ["0012-01-01 00:00:00"])


@pytest.mark.parametrize("left", ["DECIMAL(15, 2)", "DECIMAL(12, 0)", "DECIMAL(18, 6)", "DECIMAL(9, 9)"])
@pytest.mark.parametrize("right", ["DECIMAL(15, 2)", "DECIMAL(18, 3)", "DECIMAL(4, 1)"])
def test_products_of_few_and_of_many_digits(con, left, right):
    """A product is made in 64 bits where the factors allow it, and in 128 where they do not: the same number, on either side of the edge."""
    def values(kind: str) -> list[Decimal]:
        width, scale = map(int, kind.removeprefix("DECIMAL(").rstrip(")").split(","))
        step = Decimal(1).scaleb(-scale)
        whole = [Decimal(10) ** digits for digits in range(width - scale + 1)]
        edges = [sign * (edge + by * step) for edge in [Decimal(0), *whole] for by in (-1, 0, 1) for sign in (-1, 1)]
        return sorted({value for value in edges if abs(value) < Decimal(10) ** (width - scale)})

    con.execute(f"CREATE OR REPLACE TABLE factors (a {left}, b {right})")
    pairs = [*itertools.product([*values(left), None], [*values(right), None])]
    con.execute(f"INSERT INTO factors SELECT unnest(?::{left}[]), unnest(?::{right}[])", [[a for a, _ in pairs], [b for _, b in pairs]])
    text = "SELECT a, b, a * b AS ab, a * (1 - b) AS other, a * b * (1 + b) AS three FROM factors"
    with localcontext() as exactly:
        exactly.prec = 100
        for a, b, *found in con.execute(f"SELECT a, b, ab, other, three FROM ({rewritten(con, text)})").fetchall():
            if a is None or b is None:
                assert found == [None, None, None]
                continue
            for value, wanted in zip(found, (a * b, a * (1 - b), a * b * (1 + b)), strict=True):  # a number of 53 bits where 38 digits are too few
                assert value == (pytest.approx(float(wanted), rel=1e-14) if isinstance(value, float) else wanted)
