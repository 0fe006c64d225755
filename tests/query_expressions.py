"""Random expressions over columns with known bounds, and rows that keep to them.

Privacy status: test data alone.
"""

from __future__ import annotations

import random

import duckdb
from sqlglot import exp

from dpsql.algebra.ranges import INF, Range
from dpsql.queries.universes import Universe, universe_of_type
from dpsql.source.catalog import Catalog
from dpsql.source.expressions import Rewriter
from dpsql.source.functions import caught
from dpsql.source.model import Column, identifier
from dpsql.source.parse import render
from dpsql.source.scope import Item, Scope

DAY = 86_400.0
COLUMNS: dict[str, Universe] = {
    "i": Universe("INTEGER", None, Range(-7.0, 12.0, True, "integer")),
    "j": Universe("TINYINT", None, Range(0.0, 100.0, True, "integer"), False),
    "k": Universe("BIGINT", None, Range(-INF, INF, True, "integer")),
    "x": Universe("DOUBLE", None, Range(-2.5, 10.0)),
    "y": Universe("DOUBLE", None, Range(0.0, 1.0), False),
    "z": Universe("DOUBLE", None, Range(-INF, INF)),
    "f": Universe("FLOAT", None, Range(0.0, 8.0)),
    "m": Universe("DECIMAL(6,2)", None, Range(-3.25, 99.99)),
    "b": universe_of_type("BOOLEAN"),
    "d": Universe("DATE", None, Range(18_300.0, 18_700.0, True, "date")),
    "e": Universe("DATE", None, Range(18_320.0, 18_340.0, True, "date"), False),
    "t": Universe("TIMESTAMP", None, Range(18_300.25 * DAY, 18_302.5 * DAY, False, "timestamp")),
    "c": Universe("VARCHAR", ("Oslo", "bergen", "", "Åre"), nullable=False),
    "s": Universe("VARCHAR"),
}
"""Name -> what is declared of a column of the test rows."""

_VALUES = {
    "i": "CAST(floor(random() * 20) - 7 AS INTEGER)", "j": "CAST(floor(random() * 101) AS TINYINT)",
    "k": "CASE WHEN random() < 0.3 THEN 9223372036854775807 WHEN random() < 0.3 THEN -9223372036854775808 ELSE CAST(random() * 50 AS BIGINT) END",
    "x": "CASE WHEN random() < 0.1 THEN 'nan'::DOUBLE WHEN random() < 0.2 THEN -2.5 WHEN random() < 0.2 THEN round(random() * 12.5 - 2.5, 1) ELSE random() * 12.5 - 2.5 END",
    "y": "CASE WHEN random() < 0.2 THEN 0 WHEN random() < 0.2 THEN 1 WHEN random() < 0.2 THEN 0.5 ELSE random() END",
    "z": "CASE WHEN random() < 0.2 THEN 1e300 WHEN random() < 0.2 THEN -1e300 ELSE random() * 100 - 50 END",
    "f": "CAST(random() * 8 AS FLOAT)", "m": "CAST(floor(random() * 10325) / 100 - 3.25 AS DECIMAL(6,2))", "b": "random() < 0.5",
    "d": "DATE '1970-01-01' + CAST(18300 + floor(random() * 401) AS INTEGER)",
    "e": "DATE '1970-01-01' + CAST(18320 + floor(random() * 21) AS INTEGER)",
    "t": "make_timestamp(CAST((18300.25 + random() * 2.25) * 86400000000 AS BIGINT))",
    "c": "['Oslo', 'bergen', '', 'Åre'][CAST(floor(random() * 4) + 1 AS INTEGER)]", "s": "CAST(CAST(floor(random() * 40) AS INTEGER) AS VARCHAR)",
}
_EDGES = {
    "i": "[-7, 12, 0, -1]", "j": "[0, 100]", "x": "[-2.5, 10.0, 0.0, 0.5]", "y": "[0.0, 1.0]", "f": "[0.0, 8.0]", "m": "[-3.25, 99.99, 0]",
    "d": "[DATE '2020-02-08', DATE '2021-03-14']", "e": "[DATE '2020-02-28', DATE '2020-03-19']",
    "t": "[TIMESTAMP '2020-02-08 06:00:00', TIMESTAMP '2020-02-10 12:00:00']",
}


def make_rows(con: duckdb.DuckDBPyConnection, rows: int = 300) -> None:
    """Create the table ``p`` of random values inside of the bounds, with edges and NULLs."""
    con.execute("SELECT setseed(0.5)")
    shown = []
    for name, made in _VALUES.items():
        edges = _EDGES.get(name)
        value = f"CASE WHEN random() < 0.2 THEN {edges}[CAST(1 + floor(random() * len({edges})) AS INTEGER)] ELSE {made} END" if edges else made
        null = f"CASE WHEN random() < 0.1 THEN NULL ELSE {value} END" if COLUMNS[name].nullable else value
        shown.append(f"CAST({null} AS {COLUMNS[name].sql_type}) AS {name}")
    con.execute(f"CREATE OR REPLACE TABLE p AS SELECT {', '.join(shown)} FROM range({rows})")


def known(column: exp.Column) -> Universe | None:
    """Return what is declared of a column."""
    return COLUMNS.get(column.name)


def known_range(column: exp.Column) -> Range | None:
    """Return the declared range of a column."""
    found = COLUMNS.get(column.name)
    return None if found is None else found.range


def total(con: duckdb.DuckDBPyConnection, tree: exp.Expression) -> tuple[str, str]:
    """Return the SQL of an expression as a source runs it over ``p``, and its type."""
    relation = exp.Table(this=identifier("p"), alias=exp.TableAlias(this=identifier("p")))
    scope = Scope(Catalog(con), [Item("p", "p", relation, [Column(n, n, u.sql_type, None) for n, u in COLUMNS.items()])], [])
    out = Rewriter(scope)(tree)
    return caught(render(out)), scope.type_of(out)


class Expressions:
    """Random expressions, by what they give."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def number(self, depth: int) -> str:
        """Return a number."""
        rng = self.rng
        if depth <= 0 or rng.random() < 0.15:
            return rng.choice(["i", "j", "k", "x", "y", "z", "f", "m", "3", "0", "1.5", "-2", "100", "0.1"])
        a, b = self.number(depth - 1), self.number(depth - 1)
        kind = rng.randrange(26)
        if kind < 6:
            return f"({a} {rng.choice(['+', '-', '*', '/', '//', '%'])} {b})"
        if kind < 8:
            return f"{rng.choice(['least', 'greatest', 'coalesce', 'ifnull', 'nullif'])}({a}, {b})"
        if kind < 10:
            return f"(CASE WHEN {self.truth(depth - 1)} THEN {a} WHEN {self.truth(depth - 1)} THEN {b}{rng.choice(['', ' ELSE ' + self.number(depth - 1)])} END)"
        if kind < 13:
            name = rng.choice(["abs", "floor", "ceil", "sign", "round", "trunc", "sqrt", "ln", "log2", "log10", "exp", "cbrt", "atan", "radians", "cos"])
            return f"{name}({a})"
        if kind < 14:
            return f"{rng.choice(['round', 'trunc'])}({a}, {rng.randrange(3)})"
        if kind < 15:
            return f"pow({a}, {rng.choice(['2', '3', '0', '-1', '-2', '0.5'])})"
        if kind < 16:
            return f"if({self.truth(depth - 1)}, {a}, {b})"
        if kind < 18:
            kinds = ["INTEGER", "TINYINT", "UTINYINT", "BIGINT", "DOUBLE", "FLOAT", "DECIMAL(4,1)", "DECIMAL(18,3)", "BOOLEAN"]
            return f"CAST(({a}) AS {rng.choice(kinds)})" if rng.random() < 0.8 else "CAST(s AS INTEGER)"
        if kind < 21:
            part = rng.choice(["year", "month", "day", "quarter", "dow", "doy", "week", "isodow", "decade", "century", "yearweek", "epoch"])
            return f"date_part('{part}', {self.moment(depth - 1)})"
        if kind < 22:
            return f"date_part('{rng.choice(['hour', 'minute', 'second', 'millisecond'])}', {rng.choice(['t', 'd', self.moment(depth - 1)])})"
        if kind < 24:
            unit = rng.choice(["year", "month", "day", "week", "quarter", "decade", "century", "hour", "minute"])
            return f"{rng.choice(['date_diff', 'date_sub'])}('{unit}', {self.moment(depth - 1)}, {self.moment(depth - 1)})"
        if kind < 25:
            return f"length({rng.choice(['left(s, 3)', 'substr(c, 1, 2)', 'md5(s)', 'monthname(d)', 'c', 'left(s, 1) || c'])})"
        return f"(- {a})"

    def moment(self, depth: int) -> str:
        """Return a date or timestamp."""
        rng = self.rng
        if depth <= 0 or rng.random() < 0.4:
            return rng.choice(["d", "e", "t", "d", "DATE '2020-06-15'", "TIMESTAMP '2020-06-15 10:00:00'"])
        a = self.moment(depth - 1)
        return rng.choice([
            f"date_trunc('{rng.choice(['year', 'month', 'week', 'day', 'hour', 'quarter', 'decade'])}', {a})", f"last_day({a})",
            f"({a} {rng.choice('+-')} INTERVAL {rng.randrange(40)} {rng.choice(['DAY', 'MONTH', 'HOUR', 'YEAR', 'WEEK'])})",
            f"CAST({a} AS {rng.choice(['DATE', 'TIMESTAMP'])})", f"greatest({a}, {a})", f"coalesce({a}, {self.moment(0)})",
            f"(CASE WHEN {self.truth(depth - 1)} THEN {a} ELSE {self.moment(0)} END)", f"(d {rng.choice('+-')} {rng.randrange(99)})",
        ])

    def truth(self, depth: int) -> str:
        """Return a condition."""
        rng = self.rng
        kind = rng.randrange(9)
        a, b = self.number(min(depth - 1, 1)), self.number(min(depth - 1, 0))
        if kind < 4:
            return f"({a} {rng.choice(['<', '<=', '>', '>=', '=', '<>'])} {b})"
        if kind < 5:
            return f"({a} BETWEEN {b} AND {self.number(0)})"
        if kind < 6:
            return f"({rng.choice('ijxyz')} IN (1, 2, 0.5))"
        if kind < 7:
            return f"({a} IS {rng.choice(['', 'NOT '])}NULL)"
        if kind < 8 and depth > 0:
            return f"({self.truth(depth - 1)} {rng.choice(['AND', 'OR'])} {self.truth(depth - 1)})"
        return f"(NOT {self.truth(depth - 1)})" if depth > 0 else "(d > '2020-06-01')"

    def key(self) -> str:
        """Return a group key."""
        rng = self.rng
        if rng.random() < 0.5:
            return rng.choice([self.number(2), self.moment(2), self.truth(2)])
        return rng.choice([
            "floor(x / 2) * 2", "CAST(y * 10 AS INTEGER)", "upper(c) || i", "CASE WHEN z < 0 THEN 'low' WHEN z < 10 THEN 'mid' ELSE c END",
            "date_trunc('hour', t)", "strftime(t, '%Y-%m-%d %H')", "hour(t) // 6", "round(x, 1)", "m", "c", "b", "(s LIKE '1%')",
            "CASE i WHEN 1 THEN 'one' WHEN 2 THEN 'two' END", "coalesce(c, '?')", "length(c)", "year(d) * 100 + month(d)", "dayname(d)",
            "CASE z WHEN 0 THEN 'none' ELSE 'some' END", "trunc(x)", "ceil(y - 0.5)", "-j", "substr(c, 1, 1)", "CAST(t AS DATE)", "x > y",
            "if(s IS NULL, i, -1)", "least(greatest(CAST(z AS INTEGER), 0), 9)", "k % 5", "sign(z)", "c IN ('Oslo', s)",
        ])
