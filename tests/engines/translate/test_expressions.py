"""Each function, operator and conversion on the list gives the same value on both engines, for values at the edges of its types."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest
from engine_values import both, make_table, show

from dpsql.source.analysis import analyse

pytestmark = [pytest.mark.any_duckdb]

INTEGERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT")
FLOATS = ("FLOAT", "DOUBLE")
DECIMALS = ("DECIMAL(4,1)", "DECIMAL(12,2)", "DECIMAL(18,6)", "DECIMAL(18,0)", "DECIMAL(19,4)")
TEMPORAL = ("DATE", "TIMESTAMP")
COMPARED = ("x = y", "x <> y", "x < y", "x <= y", "x > y", "x >= y", "x IS NOT DISTINCT FROM y", "x IS DISTINCT FROM y", "x IS NULL", "x IS NOT NULL",
            "x BETWEEN y AND y", "x IN (y, x)", "NOT (x < y)", "greatest(x, y)", "least(x, y)", "coalesce(x, y)", "ifnull(x, y)", "nullif(x, y)",
            "CASE WHEN x < y THEN x ELSE y END", "CASE x WHEN y THEN 1 END", "if(x = y, x, y)", "x < y OR x IS NULL AND y IS NULL")  # fmt: skip
NUMBERS = ("x + y", "x - y", "x * y", "-x", "x > 3", "x <= -1", "sign(x)", "x IN (1, 2, 5)", "CASE WHEN x > 0 THEN x ELSE 0 END", "coalesce(x, 7)")
WHOLE = (*NUMBERS, "x // y", "x % y", "mod(x, y)", "x / y", "x // 5", "x % 7", "x * 1000", "x + 1", "7 - x", "abs(x)", "round(x)", "floor(x)", "ceil(x)", "x / 3", "x * 0.5", "x > 2.5")
OVERFLOWING = (
    "TRY_CAST(x AS TINYINT) > 0", "NOT (TRY_CAST(y AS SMALLINT) <= 5)", "TRY_CAST(x AS TINYINT) IN (5, 127)", "x * y > 0", "NOT (x + y <= 0)", "x - y < 0", "-x > 0", "abs(x) > 0",
    "CASE WHEN x * x > 3 THEN 1 ELSE 0 END", "x * 2 = 4", "x + 1 BETWEEN 0 AND 9", "TRY_CAST(x AS DECIMAL(4,1)) > 1", "x * y IS NOT DISTINCT FROM y",
)  # fmt: skip
"""Conditions over what a type may not hold: they are not true, whatever an engine makes of the cast."""
TO_NUMBERS = tuple(f"TRY_CAST(x AS {kind})" for kind in ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER"))
TEXTS = (
    "lower(x)", "upper(x)", "lcase(x)", "ucase(y)", "length(x)", "len(x)", "strlen(x)", "bit_length(x)", "char_length(x)", "md5(x)", "sha256(x)", "contains(x, y)",
    "starts_with(x, y)", "ends_with(x, y)", "prefix(x, y)", "suffix(x, y)", "strpos(x, y)", "instr(x, y)", "trim(x)", "ltrim(x)", "rtrim(x)", "trim(x, 'aX')",
    "ltrim(x, ' a')", "rtrim(x, 'bé')", "replace(x, 'X', '--')", "replace(x, '', 'q')", "replace(x, 'a', '')", "concat(x, y)", "concat(x, '/', y)",
    "concat_ws('-', x, y)", "x || y", "x || '\\' || y", "substring(x, 1, 2)", "substring(x, 2)", "substring(x, 0, 2)", "substring(x, 0)", "substring(x, 3, 0)", "left(x, 2)", "left(x, 0)",
    "left(x, -1)", "left(x, -9)", "right(x, 2)", "right(x, 0)", "right(x, -1)", "right(x, -9)", "split_part(x, ';', 1)", "split_part(x, ';', 2)", "split_part(x, '\\', 1)",
    "split_part(x, '%', 2)", "x = 'a;b'", "x LIKE 'a%'", "x LIKE '%b'", "x LIKE '%a%'", "x LIKE 'a_b'", "x LIKE '_'", "x LIKE ''", "x NOT LIKE '%;%'",
    "x LIKE '%'", "x LIKE '%''%'", "x LIKE '100!%'", "x < 'b'", "x IN ('a', 'É', '${env:HOME}', '\\n')", "x = '''' || ''", "TRY_CAST(x AS VARCHAR)", "CASE WHEN x = 'a' THEN 'ü' ELSE x END",
)  # fmt: skip
OF_DATES = tuple(f"{name}(x)" for name in (
    "year", "month", "day", "quarter", "week", "weekofyear", "weekday", "dayofweek", "isodow", "dayofmonth", "dayofyear", "isoyear", "yearweek", "decade",
    "century", "millennium", "dayname", "monthname", "last_day", "epoch", "hour", "minute", "second",
)) + tuple(f"date_part('{part}', x)" for part in ("year", "dow", "doy", "epoch", "isodow", "week", "second", "millisecond", "microseconds", "hour")) + tuple(
    f"date_trunc('{part}', x)" for part in ("year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond", "microsecond")
) + tuple(f"date_diff('{part}', x, y)" for part in ("year", "quarter", "month", "day", "hour", "minute", "second", "millisecond", "microsecond")) + (
    "extract(year FROM x)", "x + INTERVAL 1 DAY", "x - INTERVAL 3 MONTH", "x + INTERVAL 1 YEAR", "x + INTERVAL 2 WEEK", "x + INTERVAL 5 HOUR", "x - INTERVAL 90 SECOND",
    "x + INTERVAL 1 QUARTER", "x - INTERVAL 7 MINUTE", "isfinite(x)", "TRY_CAST(x AS VARCHAR)", "TRY_CAST(x AS DATE)", "TRY_CAST(x AS TIMESTAMP)",
)  # fmt: skip

CASES: dict[str, tuple[dict[str, str], tuple[str, ...]]] = {
    **{f"conditions over {kind}": ({"x": kind, "y": kind}, OVERFLOWING) for kind in (*INTEGERS, *DECIMALS[:4])},
    **{kind: ({"x": kind, "y": kind}, (*COMPARED, *WHOLE, *TO_NUMBERS, "TRY_CAST(x AS DOUBLE)", "TRY_CAST(x AS FLOAT)", "TRY_CAST(x AS VARCHAR)", "TRY_CAST(x * y AS DOUBLE)",
                                       "TRY_CAST(x AS BOOLEAN)", "TRY_CAST(x AS DECIMAL(4,1))", "TRY_CAST(x AS DECIMAL(18,3))")) for kind in INTEGERS},
    **{f"{a} {b}": ({"x": a, "y": b}, ("x + y", "x * y", "x - y", "x // y", "x % y", "x / y", "x < y", "greatest(x, y)", "coalesce(x, y)", "x = y")) for a, b in
       (("TINYINT", "BIGINT"), ("INTEGER", "SMALLINT"), ("BIGINT", "INTEGER"))},
    **{kind: ({"x": kind, "y": kind}, (*COMPARED, *NUMBERS, "x / y", "x % y", "x / 3", "abs(x)", "floor(x)", "ceil(x)", "ceiling(x)", "trunc(x)", "round(x)", "isnan(x)", "isinf(x)",
                                       "isfinite(x)", "sqrt(x)", "TRY_CAST(x AS DOUBLE)", "TRY_CAST(x AS FLOAT)", "x + 0.5", "x < 0.1", "x * 3", *TO_NUMBERS)) for kind in FLOATS},
    "FLOAT DOUBLE": ({"x": "FLOAT", "y": "DOUBLE"}, ("x + y", "x < y", "x = y", "x / y", "least(x, y)")),
    "FLOAT INTEGER": ({"x": "FLOAT", "y": "INTEGER"}, ("x + y", "x < y", "x = y", "x / y", "x * y")),
    "DOUBLE BIGINT": ({"x": "DOUBLE", "y": "BIGINT"}, ("x + y", "x < y", "x = y", "x / y", "greatest(x, y)", "coalesce(x, y)")),
    **{kind: ({"x": kind, "y": kind}, (*COMPARED, "-x", "abs(x)", "sign(x)", "floor(x)", "ceil(x)", "round(x)", "round(x, 1)", "trunc(x)", "x > 2.5", "x = 0", "x IN (1, 2.5)",
                                       *TO_NUMBERS, "TRY_CAST(x AS DOUBLE)", "TRY_CAST(x AS VARCHAR)", "TRY_CAST(x AS DECIMAL(6,2))", "TRY_CAST(x AS DECIMAL(18,1))",
                                       "TRY_CAST(x AS BOOLEAN)")) for kind in DECIMALS},
    **{f"arithmetic {kind}": ({"x": kind, "y": kind}, ("x + y", "x - y", "x * y", "x + 1", "x * 2", "x * 1.5", "7 - x", "x / y", "x / 3")) for kind in DECIMALS[:3]},
    "DECIMAL INTEGER": ({"x": "DECIMAL(12,2)", "y": "INTEGER"}, ("x + y", "x * y", "x < y", "x = y", "coalesce(x, y)", "greatest(x, y)", "x / y")),
    "DECIMAL DOUBLE": ({"x": "DECIMAL(12,2)", "y": "DOUBLE"}, ("x + y", "x * y", "x < y", "x = y", "coalesce(x, y)")),
    "VARCHAR": ({"x": "VARCHAR", "y": "VARCHAR"}, (*COMPARED, *TEXTS)),
    "BOOLEAN": ({"x": "BOOLEAN", "y": "BOOLEAN"}, ("x AND y", "x OR y", "NOT x", "x = y", "x IS TRUE", "x IS NOT TRUE", "x IS FALSE", "coalesce(x, y)", "TRY_CAST(x AS INTEGER)",
                                                  "TRY_CAST(x AS VARCHAR)", "TRY_CAST(x AS DOUBLE)", "CASE WHEN x THEN 1 ELSE 2 END", "x < y", "x IN (true)")),
    **{kind: ({"x": kind, "y": kind}, (*COMPARED, *OF_DATES)) for kind in TEMPORAL},
    "DATE only": ({"x": "DATE", "y": "DATE"}, ("x - y", "x + 30", "x - 7", "x < DATE '2000-01-01'", "x IN (DATE '2000-02-29')", "x >= '1970-01-01'")),
    "TIMESTAMP only": ({"x": "TIMESTAMP", "y": "TIMESTAMP"}, ("x < TIMESTAMP '2000-02-29 12:34:56.789'", "x = TIMESTAMP '1969-12-31 23:59:59.999999'")),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_both_engines_give_the_same_value(case: str, spark: Any, tmp_path: Path) -> None:
    columns, expressions = CASES[case]
    con = duckdb.connect()
    make_table(con, "t", columns)
    listed = ", ".join(f"{text} AS r{place}" for place, text in enumerate(expressions))
    source = analyse(con.cursor(), f"SELECT i, {listed} FROM t", database="memory", schema="main", protected=lambda table: True)
    mine, theirs = both(spark, con, source.sql, show(spark, con, tmp_path, "t"))
    rows = {row[0]: row for row in con.execute("SELECT * FROM t").fetchall()}
    ours = {row[0]: row for row in mine}
    assert len(mine) == len(theirs) == len(rows)
    wrong = [
        (expressions[place], rows[row[0]][1:], ours[row[0]][place + 1], value)
        for row in theirs
        for place, value in enumerate(row[1:])
        if not (ours[row[0]][place + 1] == value and type(ours[row[0]][place + 1]) is type(value))
    ]
    shown = "\n".join(f"{text} of {values!r}: DuckDB {one!r}, Spark {other!r}" for text, values, one, other in wrong[:12])
    kinds = {text: sum(w[0] == text for w in wrong) for text, *_ in wrong}
    assert not wrong, f"{kinds}\n{shown}"
