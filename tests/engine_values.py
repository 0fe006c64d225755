"""Values at the edges of types, for tests that two engines give the same: made as tables in DuckDB, read by Spark from Parquet.

Privacy status: test data alone.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb

from dpsql.engines.spark.translate import translated

BITS = {"TINYINT": 8, "SMALLINT": 16, "INTEGER": 32, "BIGINT": 64}
DOUBLES = (
    "nan", "inf", "-inf", "0.0", "-0.0", "5e-324", "-5e-324", "2.2250738585072014e-308", "1.7976931348623157e308", "-1.7976931348623157e308", "0.5",
    "1.5", "2.5", "-0.5", "-1.5", "-2.5", "0.49999999999999994", "-0.49999999999999994", "4503599627370495.5", "-4503599627370495.5",
    "4503599627370497.5", "9007199254740993", "9223372036854775808", "-9223372036854775808", "9223372036854774784", "2147483647", "2147483647.5",
    "2147483648", "-2147483648.5", "-2147483649", "127.5", "-128.5", "128", "255.5", "32767.5", "0.1", "3.3", "1", "-1", "2", "100", "1e-7", "1e22", "3.4e38",
    "3.5e38", "1e-46", "16777217",
)  # fmt: skip
FLOATS = (
    "nan", "inf", "-inf", "0.0", "-0.0", "1e-45", "-1e-45", "1.1754944e-38", "3.4028235e38", "-3.4028235e38", "0.5", "1.5", "2.5", "-0.5", "0.1", "3.3",
    "16777216", "2147483648", "2147483520", "-2147483648", "9223372036854775808", "1", "-1", "127.5", "65504",
)  # fmt: skip
TEXTS = (
    "", " ", "  a  ", "a", "A", "b", "ab", "abc", "ABC", "aXbXc", "a;b", ";", ";;", "a;;b;", ";a", "é", "É", "ß", "ẞ", "İ", "ı", "ſ", "ς", "Σ", "ǅ", "ŉ", "ﬁ", "ÿ", "Ω",
    "e\u0301", "\u00a0a\u2003", "\u3000x\u3000", "\ta\n", "a\nb", "a\0b", "\0", "😀", "a😀b", "👩‍👩‍👧", "\U00010400", "\U00010428", "'", "''", '"', "\\", "\\n", "a\\b", "%", "_", "a%b", "a_b", "100%",
    "${env:HOME}", "`", "--", "/*", "null", "NaN", "1", "-1", "1.5", "true", "2020-01-01", "日本語", "\ufeffx", "\u2028", "a" * 300, "\uffff", "\U0010ffff",
)  # fmt: skip
DATES = (
    "0001-01-01", "0001-01-02", "0004-02-29", "0099-12-31", "0100-01-01", "1000-12-31", "1500-03-01", "1582-10-04", "1582-10-15", "1600-02-29", "1700-02-28",
    "1899-12-31", "1900-01-01", "1969-12-28", "1969-12-31", "1970-01-01", "1970-01-04", "1999-12-31", "2000-01-01", "2000-02-29", "2001-01-01", "2004-12-27",
    "2005-01-01", "2005-01-02", "2009-12-31", "2010-01-03", "2020-02-29", "2021-01-31", "2024-12-30", "2024-12-31", "2100-02-28", "9999-12-30", "9999-12-31",
)  # fmt: skip
TIMES = ("00:00:00", "00:00:00.000001", "12:34:56.789", "23:59:59.999999", "01:00:00.5", "11:59:59.1")


def values(sql_type: str, seed: int = 1) -> list[str]:
    """Return SQL constants of a type: its edges, and some at random; NULL first."""
    rng = random.Random(f"{sql_type}{seed}")
    if sql_type == "BOOLEAN":
        found: list[str] = ["true", "false"]
    elif sql_type in BITS:
        high = 2 ** (BITS[sql_type] - 1)
        near = [0, 1, -1, 2, -2, 3, 5, 7, -7, 10, 100, high - 1, -high, high - 2, 1 - high, *(rng.randrange(-high, high) for _ in range(6))]
        found = [f"'{n}'" for n in sorted({n for n in near if -high <= n < high})]
    elif sql_type == "DOUBLE":
        found = [f"'{v}'" for v in DOUBLES] + [f"'{rng.uniform(-1e6, 1e6)!r}'" for _ in range(6)] + [f"'{rng.uniform(-1, 1)!r}'" for _ in range(4)]
    elif sql_type == "FLOAT":
        found = [f"'{v}'" for v in FLOATS] + [f"'{rng.uniform(-1e3, 1e3)!r}'" for _ in range(4)]
    elif sql_type.startswith("DECIMAL"):
        width, scale = (int(part) for part in sql_type[8:-1].split(","))
        high = 10**width
        near = [0, 1, -1, 5, -5, 10**scale, -(10**scale), 15 * 10**scale // 10, 25 * 10**scale // 10, -25 * 10**scale // 10, high - 1, 1 - high, high // 3, 9007199254740993]
        near += [rng.randrange(1 - high, high) for _ in range(6)] + [rng.randrange(-(10 ** min(width, 6)), 10 ** min(width, 6)) for _ in range(6)]
        found = [f"'{Decimal(n).scaleb(-scale, __import__('decimal').Context(prec=60)):f}'" for n in sorted({n for n in near if abs(n) < high})]
    elif sql_type == "VARCHAR":
        found = ["'" + text.replace("'", "''").replace("\0", "' || chr(0) || '") + "'" for text in TEXTS]
    elif sql_type == "DATE":
        found = [f"'{day}'" for day in DATES]
    else:
        found = [f"'{day} {time}'" for place, day in enumerate(DATES) for time in (TIMES[place % len(TIMES)], TIMES[(place * 5 + 1) % len(TIMES)])]
    return [f"CAST(NULL AS {sql_type})", *(f"CAST({v} AS {sql_type})" for v in found)]


def make_table(con: duckdb.DuckDBPyConnection, name: str, columns: dict[str, str], rows: int = 400) -> None:
    """Create a table with a column of each type: every value of each, all pairs of the first two where they are not too many."""
    lists = {column: values(kind) for column, kind in columns.items()}
    first, *rest = lists
    rng = random.Random(name)
    pairs: list[Sequence[str]] = []
    if rest:
        every = [(a, b) for a in lists[first] for b in lists[rest[0]]]
        rng.shuffle(every)
        most = max(rows, max(map(len, lists.values())))
        pairs = every[:most]
    count = max([len(pairs), *map(len, lists.values())])
    made = []
    for i in range(count):
        row = [found[i % len(found)] for found in lists.values()]
        if pairs and i % 2:
            row[:2] = pairs[i % len(pairs)]
        made.append(f"({i}, {', '.join(row)})")
    listed = ", ".join(f"{column} {kind}" for column, kind in columns.items())
    con.execute(f"CREATE TABLE {name} (i BIGINT, {listed})")
    con.execute(f"INSERT INTO {name} VALUES {', '.join(made)}")


def show(spark: Any, con: duckdb.DuckDBPyConnection, folder: Path, name: str) -> dict[str, str]:
    """Make a table of DuckDB a temporary view of Spark, and return the mapping that the translator wants."""
    path = folder / f"{name}.parquet"
    con.execute(f"COPY {name} TO '{path}' (FORMAT parquet)")
    spark.read.parquet(str(path)).createOrReplaceTempView(name)
    return {f'"memory"."main"."{name}"': f"`{name}`", f'"{name}"': f"`{name}`"}


def both(spark: Any, con: duckdb.DuckDBPyConnection, statement: str, relations: dict[str, str]) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """Return the rows of a statement from DuckDB and from Spark, in forms that compare."""
    found = translated(con, statement, relations)
    if found.texts:  # DuckDB writes the texts of keys that Spark would write otherwise
        arrow = spark.sql(found.sql).toArrow()
        texts = ", ".join(f"CAST(k{i} AS VARCHAR)" if name in found.texts else f"k{i}" for i, (name, _) in enumerate(found.columns))
        renamed = arrow.rename_columns([f"k{i}" for i in range(len(found.columns))])
        assert renamed.num_rows >= 0
        return [tuple(row) for row in con.execute(statement).fetchall()], con.execute(f"SELECT {texts} FROM renamed").fetchall()
    names = [f"c{i}" for i in range(len(found.columns))]
    forms = {"DATE": "date_diff('day', DATE '1970-01-01', {})", "TIMESTAMP": "epoch_us({})"}  # Python's own end with year 9999
    listed = ", ".join(forms.get(kind, "{}").format(name) for name, (_, kind) in zip(names, found.columns, strict=True))
    ours = con.execute(f"SELECT {listed} FROM ({statement}) AS t({', '.join(names)})").fetchall()
    wholes = {"date32[day]": "int32", "timestamp[us]": "int64"}
    theirs = [column.cast(wholes[str(column.type)]) if str(column.type) in wholes else column for column in spark.sql(found.sql).toArrow().columns]
    kinds = [kind for _, kind in found.columns]
    mine = [tuple(plain(v, kind) for v, kind in zip(row, kinds, strict=True)) for row in ours]
    other = [tuple(plain(v.as_py(), kind) for v, kind in zip(row, kinds, strict=True)) for row in zip(*theirs, strict=True)]
    return mine, other


def plain(value: Any, kind: str) -> Any:
    """Return a value in a form that compares: NaN as a text, whole numbers as such, one zero."""
    if value is None:
        return None
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value + 0.0
    if isinstance(value, Decimal) and value == value.to_integral_value():
        return int(value)
    return value
