"""Random expressions from the kernel's own tables, over a table of extreme values of every type.

Privacy status: test data alone.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import duckdb

from dpsql.algebra import parts
from dpsql.algebra.functions import FUNCTIONS
from dpsql.source.kernel import DECIMAL, ENUM, KINDS, TRY_CASTS, WRITTEN_OUT
from dpsql.source.rehearsal import values_of

TYPES = {
    "BOOLEAN": "bo", "TINYINT": "ti", "SMALLINT": "si", "INTEGER": "i", "BIGINT": "bi", "UTINYINT": "ut", "USMALLINT": "us", "UINTEGER": "ui",
    "UBIGINT": "ub", "HUGEINT": "hi", "UHUGEINT": "uh", "FLOAT": "fl", "DOUBLE": "db", "DECIMAL(4,1)": "d4", "DECIMAL(18,0)": "d18",
    "DECIMAL(38,0)": "d38", "DECIMAL(38,38)": "d3838", "DECIMAL(37,5)": "d37", "VARCHAR": "s", "DATE": "da", "TIMESTAMP": "ts",
    "TIMESTAMP WITH TIME ZONE": "tz", "TIMESTAMP_S": "tss", "TIMESTAMP_MS": "tsm", "TIMESTAMP_NS": "tsn", "TIME": "tm", "UUID": "uu", "BLOB": "bl",
    "JSON": "js", "ENUM('a', 'b', '', '2020-01-01')": "en", "INTEGER[]": "li", "VARCHAR[]": "lv", "DATE[]": "ld",
    'STRUCT(a INTEGER, b VARCHAR)': "st", "TIME WITH TIME ZONE": "tmz", "INTERVAL": "iv", "BIT": "bt", "MAP(VARCHAR, INTEGER)": "mp",
    "UNION(n INTEGER, s VARCHAR)": "un", "INTEGER[3]": "ar",
}
NEWER = {"VARIANT": "va", "BIGNUM": "bn"}
"""Types that not every version has."""
ODD = {
    "TIME WITH TIME ZONE": ("'24:00:00+15:59:59'", "'00:00:00-15:59:59'"), "INTERVAL": ("'178956970 years'", "'106751991 days'"), "BIT": ("'1'", "'0101'"),
    "MAP(VARCHAR, INTEGER)": ("MAP {'a': 1}", "MAP {}"), "UNION(n INTEGER, s VARCHAR)": ("1", "'x'"), "INTEGER[3]": ("[1, 2, 3]",),
    "STRUCT(a INTEGER, b VARCHAR)": ("{'a': 2147483647, 'b': 'x'}", "{'a': NULL, 'b': ''}"), "VARIANT": ("1", "'x'", "{'a': 1}"), "BIGNUM": ("'9'", "-1"),
}
TEXTS = (
    "'('", "'%Q'", "'['", "'zz'", "'*'", "'%Z'", "'%z'", "'%n'", "'(a)'", "''", "'a'", "'%Y-%m-%d'", "'(a|b)*'", "'.'", "'g'", "'x'", "'%'", "'a\\'",
    "'b'", "'i'", "'l'", "'s'", "'%H:%M %A %j %U %f %g %p'", "'(?i)é'", "'\\p{L}'", "'(?P<n>a)'", "'a{1000}'", "'%-d'", "'%'", "'%e%k%l'", "' '",
)
PARTS = (*(f"'{name}'" for name in parts.PARTS), "'julian'", "'timezone'")
ZONES = ("'UTC'", "'Europe/Berlin'", "'America/St_Johns'", "'Pacific/Apia'", "'Asia/Manila'", "'America/Juneau'", "'Etc/GMT+12'", "'EST'", "'Nowhere'")
WHOLE = ("0", "1", "2", "3", "100", "1000000", "308", "38")
SETTINGS = (
    "ieee_floating_point_ops = false", "integer_division = true", "default_order = 'DESC'", "default_null_order = 'NULLS_FIRST'",
    "TimeZone = 'America/St_Johns'", "TimeZone = 'Pacific/Apia'", "Calendar = 'buddhist'", "Calendar = 'japanese'", "old_implicit_casting = true",
    "default_collation = 'NOCASE'", "preserve_identifier_case = false", "order_by_non_integer_literal = true", "enable_object_cache = true",
)
"""Settings that change what expressions mean; those that a call pins are in `dpsql.session.instance`."""


def make_table(con: duckdb.DuckDBPyConnection, name: str = "p", rows: int = 120, seed: int = 1) -> dict[str, str]:
    """Create a table with two columns of every type, full of extreme values; return column -> type."""
    rng = random.Random(seed)
    columns: dict[str, str] = {}
    lists: list[list[str]] = []
    for sql_type, short in {**TYPES, **NEWER}.items():
        found = ["NULL", *(f"({v})::{sql_type}" for v in ODD[sql_type])] if sql_type in ODD else values_of(sql_type)
        try:
            con.execute(f"CREATE OR REPLACE TEMP TABLE probe AS SELECT {', '.join(f'{v} AS v{i}' for i, v in enumerate(found))}")
        except duckdb.Error:
            if sql_type in NEWER:
                continue
            raise
        for ending in ("", "2"):
            columns[short + ending] = sql_type
            lists.append([rng.choice(found) for _ in range(rows)] + found[: rows // 2])
    most = max(map(len, lists))
    shown = [f"unnest([{', '.join((found * 3)[:most])}]) AS {column}" for column, found in zip(columns, lists, strict=True)]
    con.execute(f"CREATE TABLE {name} AS SELECT 'a' AS g, {', '.join(shown)}")
    return columns


class Generator:
    """Random expressions: mostly of the types that the kernel lists, sometimes of others."""

    def __init__(self, columns: dict[str, str], seed: int) -> None:
        self.rng = random.Random(seed)
        self.by_type: dict[str, list[str]] = {}
        for column, sql_type in columns.items():
            self.by_type.setdefault(sql_type, []).append(column)
        self.columns = list(columns)

    def column(self, types: Sequence[str] = ()) -> str:
        """Return a column of one of these types, or any."""
        fitting = [c for t, cs in self.by_type.items() for c in cs if any(t == w or (w in (DECIMAL, ENUM) and t.startswith(w)) for w in types)]
        return self.rng.choice(fitting or self.columns)

    def argument(self, kind: str, depth: int) -> str:
        """Return an argument of a kind of `dpsql.source.kernel.KINDS`."""
        rng = self.rng
        if kind == "s":
            return rng.choice(TEXTS)
        if kind in "ni":
            return ("-" if kind == "i" and rng.random() < 0.4 else "") + rng.choice(WHOLE)
        if rng.random() < 0.06:
            return self.column()
        if depth > 0 and rng.random() < 0.45:
            return self.expression(depth - 1)
        if kind in "ly":
            return self.column(("INTEGER[]", "VARCHAR[]", "DATE[]"))
        if kind == "r":
            return "st"
        types = KINDS[kind]
        if kind in "dpquf":
            types = KINDS["a"]
        return self.column(types)

    def call(self, depth: int) -> str:
        """Return a call of a function of the kernel."""
        rng = self.rng
        name = rng.choice([*FUNCTIONS])
        spec = FUNCTIONS[name]
        count = rng.randint(spec.least, len(spec.kinds) + (2 if spec.many else 0))
        kinds = spec.kinds + spec.kinds[-1:] * 3
        given = [self.argument(kinds[i], depth) for i in range(count)]
        if spec.unit:
            given[0] = rng.choice(PARTS)
        if name == "timezone":
            given[0] = rng.choice(ZONES)
        if name == "list_contains" and rng.random() < 0.7:
            given = rng.choice((["li", "i"], ["lv", "s"], ["ld", "da"], ["li2", "i2"], ["lv", "'a'"], ["li", "3"]))
        if name == "struct_extract":
            given = [given[0], rng.choice(("'a'", "'b'", "'zz'"))]
        if rng.random() < 0.15 and name not in WRITTEN_OUT | {"pi"}:  # a column in the place of a constant
            given[rng.randrange(len(given))] = self.column()
        return f"{name}({', '.join(given)})"

    def expression(self, depth: int) -> str:
        """Return a random expression."""
        rng = self.rng
        if depth <= 0 and rng.random() < 0.5:
            return self.column()
        kind = rng.random()
        if kind < 0.5:
            return self.call(depth)
        if kind < 0.62:
            number = KINDS["a"]
            sides = [self.argument("a", depth), self.column(number) if rng.random() < 0.7 else rng.choice((*WHOLE, "1.5", "1e308"))]
            return f"({sides[0]} {rng.choice(['+', '-', '*', '/', '//', '%'])} {sides[1]})"
        if kind < 0.72:
            types = rng.choice([t for t in self.by_type])
            sides = [self.column((types,)), self.column((types,)) if rng.random() < 0.8 else self.column()]
            return f"({sides[0]} {rng.choice(('=', '<', '<>', '>=', 'IS NOT DISTINCT FROM', 'IS DISTINCT FROM'))} {sides[1]})"
        if kind < 0.76:
            operator = rng.choice(("LIKE", "ILIKE", "NOT LIKE", "||", "NOT ILIKE"))
            return f"({self.argument('w', depth)} {operator} {self.column(('VARCHAR',)) if operator == '||' else rng.choice(TEXTS)})"
        if kind < 0.88:
            source = rng.choice([*TRY_CASTS, "JSON", "BLOB", "INTEGER[]"])
            targets = TRY_CASTS.get(source, ("VARCHAR",))
            target = {DECIMAL: rng.choice(("DECIMAL(4,1)", "DECIMAL(38,10)", "DECIMAL(18,17)")), ENUM: "ENUM('a', 'b')"}
            wanted = rng.choice(targets) if rng.random() < 0.85 else rng.choice(list(TYPES))
            return f"CAST({self.column((source,)) if rng.random() < 0.6 else self.expression(depth - 1)} AS {target.get(wanted, wanted)})"
        if kind < 0.91:
            return f"(CASE WHEN {self.expression(depth - 1)} THEN {self.expression(depth - 1)} ELSE {self.expression(depth - 1)} END)"
        if kind < 0.912:
            return f"__dp_together({', '.join(self.argument(rng.choice('wactv'), depth) for _ in range(rng.randint(1, 4)))})"
        if kind < 0.92:
            return f"({self.argument('z', depth)} AT TIME ZONE {rng.choice(ZONES)})"
        if kind < 0.94:
            moment = self.column(KINDS["t"])
            step = f"INTERVAL {rng.choice(('1', '100000', '3660000'))} {rng.choice(('DAY', 'MONTH', 'YEAR', 'HOUR', 'SECOND'))}"
            return f"({moment} {rng.choice('+-')} {rng.choice((step, step, '5', self.column(('DATE',))))})"
        if kind < 0.96:
            return f"({self.expression(depth - 1)} BETWEEN {self.expression(depth - 1)} AND {self.expression(depth - 1)})"
        if kind < 0.98:
            return f"({self.expression(depth - 1)} IN ({self.expression(depth - 1)}, {self.expression(depth - 1)}))"
        if kind < 0.99:
            return f"EXTRACT({rng.choice(PARTS)[1:-1]} FROM {self.column(KINDS['v'])})"
        return f"(-{self.column(KINDS['a'])})"
