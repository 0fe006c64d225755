"""Whole statements give the same codes, the same integers and as many rows of each unit on both engines."""

from __future__ import annotations

import collections
import math
from pathlib import Path
from typing import Any

import duckdb
import pytest
from bounded_attributes import BOUNDS
from engine_values import both, make_table, show
from sqlglot import exp

import dpsql
from dpsql.domains.attributes import Attribute, Domain, open_attribute
from dpsql.domains.codes import number_expression
from dpsql.domains.declare import declare
from dpsql.domains.encoding import SOURCE_NAME, encode_sql, fixed_point, value_text
from dpsql.domains.multi_value import split_sql

pytestmark = [pytest.mark.any_duckdb]

SALT = "0123456789abcdef" * 2
TYPES = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(4,2)", "DECIMAL(10,2)", "DECIMAL(18,3)", "DATE", "TIMESTAMP")
LISTS: dict[str, list[tuple[str, ...]]] = {
    "BOOLEAN": [("true", "false"), ("false", "true"), ("true",)],
    "INTEGER": [("0", "1", "2", "3"), ("7", "-7", "100"), tuple(map(str, range(0, 400, 2)))],
    "BIGINT": [("9223372036854775807", "-1", "5"), ("-2", "-1", "0", "1", "2")],
    "DOUBLE": [("0.0", "0.5", "-1.5"), ("1e+22", "0.1", "9007199254740992.0")],
    "FLOAT": [("0.5", "0.1", "16777216.0")],
    "DECIMAL(10,2)": [("0.00", "1.00", "-0.05")],
    "DATE": [("2000-02-29", "0001-01-01", "9999-12-31")],
    "TIMESTAMP": [("1970-01-01 00:00:00", "1999-12-31 12:34:56.789")],
    "VARCHAR": [("a", "A", "é", ""), ("${env:HOME}", "'", "\\", "a;b", "😀", "a\nb", "--", "`"), tuple(f"{i:03}" for i in range(150)) + ("ab", "abc", "ÿ")],
}


def attributes(sql_type: str) -> list[Attribute]:
    """Return domains of every kind for columns of a type."""
    found = []
    for categories in LISTS.get(sql_type, []):
        for nullable, outside in ((True, "clamp"), (False, "clamp"), (True, "other"), (False, "drop")):
            found.append(Attribute("x", sql_type, "categorical", categories, (), nullable, outside))
    for kind, lower, upper in BOUNDS:
        if kind == sql_type and sql_type in TYPES:
            for bins, outside in ((1, "clamp"), (4, "other"), (24, "clamp"), (7, "drop")):
                try:
                    found.append(declare("x", sql_type, lower=lower, upper=upper, bins=bins, nullable=bins != 24, outside=outside))  # type: ignore[arg-type]
                except dpsql.errors.DpsqlError:  # fewer values than bins
                    continue
    return found


@pytest.mark.parametrize("sql_type", sorted({*TYPES, *LISTS}))
def test_a_value_has_the_same_code(sql_type: str, spark: Any, tmp_path: Path) -> None:
    con = duckdb.connect()
    make_table(con, "t", {"x": sql_type})
    relations = show(spark, con, tmp_path, "t")
    found = attributes(sql_type)
    assert found
    listed = ", ".join(f'x AS "x{i}"' for i in range(len(found)))
    for dropping in (False, True):
        some = [(i, a) for i, a in enumerate(found) if (a.outside == "drop") == dropping]
        batches = [[pair] for pair in some] if dropping else [some]
        for batch in batches[:3]:
            domain = Domain(tuple(Attribute(**{**a.__dict__, "name": f"x{i}"}) for i, a in batch))
            row = {"i": exp.column("i", SOURCE_NAME, quoted=True)}
            statement = encode_sql(f'SELECT i, {listed} FROM "memory"."main"."t"', domain, False, 1, SALT, extra=row)
            mine, theirs = both(spark, con, statement, relations)
            assert sorted(mine, key=lambda r: r[-1]) == sorted(theirs, key=lambda r: r[-1])
            assert all(value is not None for row_ in theirs for value in row_)


@pytest.mark.parametrize("sql_type", TYPES)
def test_numbers_of_fine_histograms_and_sums_are_the_same(sql_type: str, spark: Any, tmp_path: Path) -> None:
    con = duckdb.connect()
    make_table(con, "t", {"x": sql_type})
    relations = show(spark, con, tmp_path, "t")
    bounds = [(lower, upper) for kind, lower, upper in BOUNDS if kind == sql_type]
    made = [declare("x", sql_type, lower=lower, upper=upper, bins=1, nullable=True) for lower, upper in bounds]  # type: ignore[arg-type]
    extra = {f"n{i}": number_expression(a, exp.column("x", SOURCE_NAME, quoted=True)) for i, a in enumerate(made)}
    if made[0].kind == "numeric":
        wide = [a for a in made if 0 < float(a.edges[-1]) - float(a.edges[0]) < math.inf and 65536 / (float(a.edges[-1]) - float(a.edges[0])) < math.inf]
        extra |= {f"f{i}": fixed_point(a) for i, a in enumerate(wide)}
    extra["i"] = exp.column("i", SOURCE_NAME, quoted=True)
    mine, theirs = both(spark, con, encode_sql('SELECT i, x FROM "memory"."main"."t"', Domain(()), False, 1, SALT, extra=extra), relations)
    assert len(mine) == con.sql("SELECT count(*) FROM t").fetchall()[0][0]
    assert sorted(mine, key=lambda r: r[-1]) == sorted(theirs, key=lambda r: r[-1])


@pytest.mark.parametrize("sql_type", ["VARCHAR", "BIGINT", "DATE", "TIMESTAMP", "BOOLEAN", "DECIMAL(12,2)"])
def test_values_without_a_list_have_the_same_text(sql_type: str, spark: Any, tmp_path: Path) -> None:
    con = duckdb.connect()
    make_table(con, "t", {"x": sql_type})
    extra = {"v": value_text(open_attribute("x", sql_type)), "i": exp.column("i", SOURCE_NAME, quoted=True)}
    statement = encode_sql('SELECT i, x FROM "memory"."main"."t"', Domain(()), False, 1, SALT, extra=extra)
    mine, theirs = both(spark, con, statement, show(spark, con, tmp_path, "t"))
    assert sorted(mine, key=lambda r: r[-1]) == sorted(theirs, key=lambda r: r[-1])


UNITS = {"BIGINT": "u", "VARCHAR": "encode(u)", "DOUBLE": "CASE WHEN isnan(u) THEN 'nan'::DOUBLE ELSE u + 0::DOUBLE END", "DATE": "u", "DECIMAL(12,2)": "u"}


FEW, MORE, MANY = (5, 3), (300, 7000, 2, 5), (7000,) * 5
"""Codes of 5, 26 and 65 bits: half of a hash and a number, and two numbers next to a hash."""


@pytest.mark.parametrize(("sql_type", "sizes"), [("BIGINT", FEW), ("VARCHAR", MANY), ("DOUBLE", FEW), ("DATE", MORE), ("DECIMAL(12,2)", FEW)])
def test_rows_of_a_unit_are_bounded(sql_type: str, sizes: tuple[int, ...], spark: Any, tmp_path: Path) -> None:
    con = duckdb.connect()
    make_table(con, "v", {"u": sql_type})
    con.execute("CREATE TABLE t AS SELECT u, CAST(dense_rank() OVER (ORDER BY u) AS BIGINT) AS k, (i * 7 + r) % 1000 AS x FROM v, range(12) AS r(r) WHERE (i + r) % 3 > 0")
    relations = show(spark, con, tmp_path, "t")
    listed = ", ".join(f"x AS x{i}" for i in range(len(sizes)))
    source = f'SELECT k, {listed}, {UNITS[sql_type]} AS "__dp_unit" FROM "memory"."main"."t"'
    places = [Attribute(f"x{i}", "BIGINT", "categorical", tuple(map(str, range(size))), (), False, "clamp") for i, size in enumerate(sizes)]
    free, theirs = both(spark, con, encode_sql(source, Domain(tuple(places)), True, 10_000, SALT), relations)
    assert collections.Counter(free) == collections.Counter(theirs)
    for most in (1, 5, 1 << 21):  # the last one counts places in more than 64 bits
        mine, theirs = both(spark, con, encode_sql(source, Domain(tuple(places)), True, most, SALT), relations)
        [[expected]] = con.execute(f"SELECT sum(least(n, {most})) FROM (SELECT count(*) AS n FROM t GROUP BY u)").fetchall()
        assert len(mine) == len(theirs) == expected
        assert not collections.Counter(theirs) - collections.Counter(free)
    # with the unit's number next to the codes: how many rows of each unit are kept, and which
    numbered = encode_sql(source, Domain(tuple(places)), True, 3, SALT, extra={"k": exp.column("k", SOURCE_NAME, quoted=True)})
    mine, theirs = both(spark, con, numbered, relations)
    kept = collections.Counter(row[-1] for row in theirs)
    assert kept == collections.Counter(row[-1] for row in mine) == dict(con.execute("SELECT k, least(count(*), 3) FROM t GROUP BY k").fetchall())


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT x % 3 AS third, count(*) AS n FROM t GROUP BY third",
        "SELECT x % 3 AS y, count(*) AS n FROM t GROUP BY y, x % 3",
        "SELECT x % 3 AS a, y, CASE WHEN grouping(y) = 0 THEN 1 WHEN grouping(x) = 0 THEN 2 END AS which, count(*) AS n FROM t "
        "GROUP BY GROUPING SETS ((x % 3, y), (x % 3, x), (x % 3))",
    ],
    ids=["an alias", "a column comes before an alias", "sets of keys"],
)
def test_keys_of_groups(statement: str, spark: Any, tmp_path: Path) -> None:
    con = duckdb.connect()
    con.execute("CREATE TABLE t AS SELECT i % 7 AS x, i % 2 AS y FROM range(20) AS r(i) UNION ALL SELECT NULL, 1")
    mine, theirs = both(spark, con, statement, show(spark, con, tmp_path, "t"))
    assert len(mine) > 3
    assert sorted(map(repr, mine)) == sorted(map(repr, theirs))


def test_columns_of_several_values_are_split_alike(spark: Any, tmp_path: Path) -> None:
    con = duckdb.connect()
    make_table(con, "t", {"x": "VARCHAR"})
    relations = show(spark, con, tmp_path, "t")
    for delimiter in (";", "|", "\\", "b", ".", "'", "${"):
        names = [v for v in ("a", "b", "", "X", "n") if delimiter not in v]
        domain = Domain(tuple(Attribute(f"x: {v}", "VARCHAR", "categorical", (v,), nullable=True) for v in names))
        source = split_sql('SELECT i, x FROM "memory"."main"."t"', domain, {"multi_value_columns": {"x": delimiter}})
        row = {"i": exp.column("i", SOURCE_NAME, quoted=True)}
        mine, theirs = both(spark, con, encode_sql(source, domain, False, 1, SALT, extra=row), relations)
        assert sorted(mine, key=lambda r: r[-1]) == sorted(theirs, key=lambda r: r[-1])
