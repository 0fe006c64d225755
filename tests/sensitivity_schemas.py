"""Random protected tables, public tables, sources and neighbours, with the values that tell notions of equality apart."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import duckdb

# SQL literals by type: equal ones under some collation, rounding, folding or time zone, extreme ones, and NULL.
TEXTS = ["''", "'a'", "'A'", "'á'", "'Á'", "'b'", "'B'", "'ss'", "'ß'", "'a '", "'ab'", "'aB'", "'é'", "'e' || chr(769)", "'ﬁ'", "'fi'", "'\\'", "'0'"]
POOLS: dict[str, list[str]] = {
    "VARCHAR": TEXTS,
    "INTEGER": ["0", "1", "2", "3", "-1", "2147483647", "-2147483648"],
    "BIGINT": ["0", "1", "2", "9007199254740992", "9007199254740993", "9223372036854775807"],
    "HUGEINT": ["0", "1", "170141183460469231731687303715884105727"],
    "UTINYINT": ["0", "1", "2", "255"],
    "BOOLEAN": ["true", "false"],
    "DECIMAL(9,2)": ["0", "1.10", "1.1", "-1", "9999999.99"],
    "DATE": ["DATE '2020-01-01'", "DATE '2020-01-02'", "'infinity'::DATE", "'-infinity'::DATE", "DATE '0044-03-15 (BC)'"],
    "TIME": ["TIME '00:00:00'", "TIME '24:00:00'", "TIME '12:00:00'"],
    "TIMESTAMP": ["TIMESTAMP '2020-01-01'", "TIMESTAMP '2020-01-01 00:00:00.000001'", "'infinity'::TIMESTAMP"],
    "TIMESTAMP WITH TIME ZONE": ["TIMESTAMPTZ '2020-01-01 00:00:00+00'", "TIMESTAMPTZ '2020-01-01 01:00:00+01'", "TIMESTAMPTZ '2020-01-02 00:00:00+00'"],
    "UUID": ["'00000000-0000-0000-0000-000000000001'::UUID", "'ffffffff-ffff-ffff-ffff-ffffffffffff'::UUID"],
    "BLOB": ["''::BLOB", "'a'::BLOB", "'A'::BLOB", "'\\x00'::BLOB", "'\\xFF'::BLOB"],
    "ENUM('x', 'X', 'y')": ["'x'", "'X'", "'y'"],
    "DOUBLE": ["0.0::DOUBLE", "'-0.0'::DOUBLE", "'nan'::DOUBLE", "'-nan'::DOUBLE", "'inf'::DOUBLE", "1e308::DOUBLE", "1.5::DOUBLE", "2.5::DOUBLE"],
    "FLOAT": ["0.0::FLOAT", "'-0.0'::FLOAT", "'nan'::FLOAT", "1.5::FLOAT"],
    "INTERVAL": ["INTERVAL 1 MONTH", "INTERVAL 30 DAY", "INTERVAL 0 DAY"],
    "TIME WITH TIME ZONE": ["'00:00:00+00'::TIMETZ", "'01:00:00+01'::TIMETZ"],
    "VARCHAR[]": ["['a']", "['A']", "[]"],
    "STRUCT(f VARCHAR)": ["{'f': 'a'}", "{'f': 'A'}"],
    "JSON": ["'{\"a\":1}'", "'{\"a\": 1}'"],
    "BIT": ["'1'::BIT", "'01'::BIT"],
}
COLLATIONS = ["", "", " COLLATE NOCASE", " COLLATE NOACCENT", " COLLATE NFC", " COLLATE NOCASE.NOACCENT"]
EXACT = ["VARCHAR"] * 8 + [kind for kind in POOLS if kind not in ("DOUBLE", "FLOAT", "INTERVAL", "TIME WITH TIME ZONE", "VARCHAR[]", "STRUCT(f VARCHAR)", "JSON", "BIT", "UTINYINT")]
ANY = [*EXACT, *POOLS]
ATTRIBUTES = {
    "s": ("VARCHAR", {"categories": ["a", "A", "ss", ""]}),
    "i": ("INTEGER", {"lower": 0, "upper": 4, "bins": 2}),
    "d": ("DOUBLE", {"lower": 0, "upper": 3, "bins": 3}),
    "b": ("BOOLEAN", {"categories": ["true", "false"]}),
    "t": ("DATE", {"lower": "2019-12-31", "upper": "2020-01-03", "bins": 3}),
}
Row = tuple[str, ...]


@dataclass
class Schema:
    """A protected table with its contract, and public tables. ``rows`` are SQL literals; ``unit`` is the position of the unit."""

    columns: dict[str, str]
    collations: dict[str, str]
    neighbors: str
    unit: int | None
    contributions: int
    pools: dict[str, list[str]]
    rows: list[Row]
    parquet: Path | None
    public: dict[str, tuple[str, ...]] = field(default_factory=dict)
    setup: list[str] = field(default_factory=list)

    @property
    def table(self) -> str:
        """The protected table, as it is written after FROM."""
        return f"'{self.parquet}'" if self.parquet else "p"

    def definition(self) -> str:
        """CREATE TABLE of the protected table; of a file: of the table it is written from."""
        listed = ", ".join(f"{name} {kind}{self.collations.get(name, '')}" for name, kind in self.columns.items())
        return f"CREATE TABLE p ({listed})"


def make_schema(dice: random.Random, folder: Path, *, unique: bool = True) -> Schema:
    """A random schema; most keys are texts, because they have most notions of equality. Keys need not be ``unique``."""
    keys = {name: dice.choice(ANY) for name in ("k1", "k2", "k3")}
    if dice.random() < 0.4:
        keys["k3"] = keys["k1"]
    unit_type = dice.choice([*EXACT, "DOUBLE", "FLOAT", "DOUBLE"])
    columns = {**keys, "u": unit_type, **{name: kind for name, (kind, _) in ATTRIBUTES.items()}}
    parquet = folder / f"p{dice.getrandbits(40):x}.parquet" if dice.random() < 0.12 else None
    collated = {name: dice.choice(COLLATIONS) for name, kind in columns.items() if kind == "VARCHAR" and not parquet}
    with_unit = dice.random() < 0.6
    pools = {name: [*POOLS[kind], "NULL"] for name, kind in columns.items()}
    schema = Schema(
        columns, collated, dice.choice(["add_remove", "replace_one"]), 3 if with_unit else None,
        dice.choice([1, 1, 2, 3]) if with_unit else 1, pools, [], parquet,
    )
    schema.rows = [random_row(dice, schema) for _ in range(dice.randrange(0, 25))]
    _public(dice, schema, keys, unique)
    return schema


def random_row(dice: random.Random, schema: Schema) -> Row:
    """A row of any values."""
    return tuple(dice.choice(pool) for pool in schema.pools.values())


def _public(dice: random.Random, schema: Schema, keys: dict[str, str], unique: bool) -> None:
    """Public tables with a key of each of the types, and one with two of them."""
    for name, on in (("pub1", ("k1",)), ("pub2", ("k2",)), ("pub12", ("k1", "k2"))):
        listed = ", ".join(f"{k} {keys[k]}{dice.choice(COLLATIONS) if keys[k] == 'VARCHAR' else ''}" for k in on)
        constraint = dice.choice(["PRIMARY KEY", "UNIQUE", "INDEX"]) if unique else ""
        inside = f", {constraint} ({', '.join(on)})" if constraint in ("PRIMARY KEY", "UNIQUE") else ""
        schema.setup.append(f"CREATE TABLE {name} ({listed}, g VARCHAR{dice.choice(COLLATIONS)}, w INTEGER{inside})")
        if constraint == "INDEX":
            schema.setup.append(f"CREATE UNIQUE INDEX {name}_key ON {name} ({', '.join(on)})")
        for _ in range(dice.randrange(4, 30)):
            values = ", ".join(dice.choice(schema.pools[k]) for k in on)
            more = f"{dice.choice(TEXTS[1:4])}, {dice.randrange(4)}"
            schema.setup.append(f"INSERT{' OR IGNORE' if unique else ''} INTO {name} VALUES ({values}, {more})")
        schema.public[name] = on


def fill(con: duckdb.DuckDBPyConnection, schema: Schema, rows: Sequence[Row]) -> None:
    """Make the protected table hold these rows, in this order."""
    con.execute("DELETE FROM p")
    if rows:
        con.execute("INSERT INTO p VALUES " + ", ".join(f"({', '.join(row)})" for row in rows))
    if schema.parquet:
        con.execute(f"COPY (FROM p) TO '{schema.parquet}' (FORMAT parquet)")


def make_source(dice: random.Random, schema: Schema) -> str:
    """A random source: projections, filters, views, CTEs and joins, one or two, with one or several equalities."""
    inner = dice.choice([
        schema.table, schema.table, f"(SELECT * FROM {schema.table})", f"(SELECT * FROM {schema.table} WHERE i IS NOT NULL)",
        "(SELECT k1, k2, k3, s, i + 1 AS i, d, b, t FROM v)", "v", "c",
    ])
    joins, more = [], []
    for number in range(dice.choice([0, 1, 1, 1, 2]) if schema.public else 0):
        name = dice.choice(list(schema.public))
        alias = f"q{number}"
        kind = dice.choice(["JOIN", "LEFT JOIN"])
        on = schema.public[name]
        if dice.random() < 0.25 and number == 0:
            joins.append(f"{kind} {name} AS {alias} USING ({', '.join(on)})")
        else:
            equal = [_equality(dice, schema, alias, key) for key in on]
            if dice.random() < 0.3:
                equal.append(f"{alias}.g = x.s")
            if dice.random() < 0.3 and schema.columns[on[0]] == schema.columns["k3"]:
                equal.append(f"{alias}.{on[0]} = x.k3")
            joins.append(f"{kind} {name} AS {alias} ON {' AND '.join(equal)}")
        more += [f"{alias}.g AS g{number}", f"{alias}.w AS w{number}"]
    listed = ["x.s", "x.i", *dice.sample(["x.d", "x.b", "x.t", "lower(x.s) AS l", "x.i % 3 AS m", "coalesce(x.s, 'a') AS c"], 2), *more]
    where = dice.choice(["", "", " WHERE x.s = 'a'", " WHERE x.s IN ('A', 'ss') OR x.i > 0", " WHERE NOT x.b", " WHERE x.d < 2"])
    text = f"SELECT {', '.join(listed)} FROM {inner} AS x {' '.join(joins)}{where}"
    return f"WITH c AS (SELECT * FROM {schema.table} WHERE s IS NOT NULL) {text}" if inner == "c" else text


def _equality(dice: random.Random, schema: Schema, alias: str, key: str) -> str:
    value = f"x.{key}"
    if schema.columns[key] == "VARCHAR":
        value = dice.choice([value, value, value, f"lower({value})", f"CAST({value} AS VARCHAR)", f"coalesce({value}, 'a')"])
    sides = [value, f"{alias}.{key}"]
    dice.shuffle(sides)
    return " = ".join(sides)


def neighbour(dice: random.Random, con: duckdb.DuckDBPyConnection, schema: Schema) -> list[Row]:
    """Rows that differ in one privacy unit, in another order."""
    rows = list(schema.rows)
    if schema.unit is None:
        if schema.neighbors == "replace_one":
            if rows:
                rows[dice.randrange(len(rows))] = random_row(dice, schema)
        elif rows and dice.random() < 0.5:
            rows.pop(dice.randrange(len(rows)))
        else:
            rows.append(random_row(dice, schema))
    else:
        forms = {literal: _form(con, schema.columns["u"], literal) for literal in schema.pools["u"]}
        unit = [*schema.columns].index("u")
        held = {forms[row[unit]] for row in rows}
        free = [literal for literal in schema.pools["u"] if forms[literal] not in held]
        if held and (not free or schema.neighbors == "replace_one" or dice.random() < 0.5):
            gone = dice.choice(sorted(held))
            rows = [row for row in rows if forms[row[unit]] != gone]
            free = free or [literal for literal in schema.pools["u"] if forms[literal] == gone]
            added = schema.neighbors == "replace_one"
        else:
            added = schema.neighbors == "add_remove"
        if added:
            new = dice.choice(free)
            same = [literal for literal in schema.pools["u"] if forms[literal] == forms[new]]
            for _ in range(dice.randrange(1, 7)):
                row = list(random_row(dice, schema))
                row[unit] = dice.choice(same)
                rows.append(tuple(row))
    dice.shuffle(rows)
    return rows


_FORMS: dict[tuple[str, str], str] = {}


def _form(con: duckdb.DuckDBPyConnection, kind: str, literal: str) -> str:
    """What makes a unit the same, by an oracle of its own: one text for each value, letters told apart by their numbers."""
    if (kind, literal) not in _FORMS:
        value = con.execute(f"SELECT hex(encode(({literal})::{kind}::VARCHAR))").fetchone()[0]
        if kind in ("DOUBLE", "FLOAT") and value is not None:
            value = {"2D302E30": "302E30", "2D6E616E": "6E616E"}.get(value, value)  # -0.0 is 0.0, -nan is nan
        _FORMS[kind, literal] = str(value)
    return _FORMS[kind, literal]
