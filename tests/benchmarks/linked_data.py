"""Databases of linked tables for `linked.py`: how they are made, linked and declared."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import duckdb
import households

from dpsql import demo

DELTA = 1e-9
FLAGS = {"returnflag": ["A", "N", "R"], "linestatus": ["F", "O"]}
PRIORITIES = ["1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW"]
SEGMENTS = ["AUTOMOBILE", "BUILDING", "FURNITURE", "HOUSEHOLD", "MACHINERY"]
MODES = ["AIR", "FOB", "MAIL", "RAIL", "REG AIR", "SHIP", "TRUCK"]
INSTRUCTIONS = ["COLLECT COD", "DELIVER IN PERSON", "NONE", "TAKE BACK RETURN"]


@dataclass(frozen=True)
class Child:
    """A linked table.

    Parameters
    ----------
    name, column, parent, key : str
        ``name.column`` refers to ``parent.key``.
    most : int
        Its max_rows.
    """

    name: str
    column: str
    parent: str
    key: str
    most: int


@dataclass(frozen=True)
class Schema:
    """A database.

    Parameters
    ----------
    root, unit : str
        The root and its key.
    children : tuple of Child
        Parents before children.
    declared : dict
        Of each table: what is declared of each column, as in ``CALL dp_declare(table, column, ...)``.
    """

    root: str
    unit: str
    children: tuple[Child, ...]
    declared: dict[str, dict[str, str]]

    @property
    def tables(self) -> tuple[str, ...]:
        """All tables, the root first."""
        return (self.root, *(child.name for child in self.children))


HOUSEHOLDS = Schema(
    "households",
    "household_id",
    (Child("persons", "household_id", "households", "household_id", households.MOST),),
    households.DECLARE,
)
_DATES = "lower := '1992-01-01', upper := '1999-01-01', bins := 14, nullable := false"
_TPCH = {
    "customer": {
        "c_mktsegment": f"categories := {SEGMENTS!r}, nullable := false",
        "c_nationkey": f"categories := {list(range(25))!r}, nullable := false",
        "c_acctbal": "lower := -1000, upper := 10000, bins := 11, nullable := false",
    },
    "orders": {
        "o_orderstatus": "categories := ['F', 'O', 'P'], nullable := false",
        "o_totalprice": "lower := 0, upper := 500000, bins := 20, nullable := false",
        "o_orderdate": _DATES,
        "o_orderpriority": f"categories := {PRIORITIES!r}, nullable := false",
    },
    "lineitem": {
        "l_quantity": "lower := 1, upper := 51, bins := 10, nullable := false",
        "l_extendedprice": "lower := 0, upper := 110000, bins := 11, nullable := false",
        "l_discount": "lower := 0, upper := 0.11, bins := 11, nullable := false",
        "l_returnflag": "categories := ['A', 'N', 'R'], nullable := false",
        "l_linestatus": "categories := ['F', 'O'], nullable := false",
        "l_shipdate": _DATES,
        "l_shipinstruct": f"categories := {INSTRUCTIONS!r}, nullable := false",
        "l_shipmode": f"categories := {MODES!r}, nullable := false",
    },
}
_ORDERS = Child("orders", "o_custkey", "customer", "c_custkey", 32)
_LINES = Child("lineitem", "l_orderkey", "orders", "o_orderkey", 7)
_NO_NULL = "nullable := false"
_HOSPITAL = {
    "patients": {
        "sex": f"categories := ['Female', 'Male'], {_NO_NULL}",
        "born": "lower := '1925-01-01', upper := '2025-01-01', bins := 20, nullable := true",
        "region": f"categories := {list(demo.REGIONS)!r}, {_NO_NULL}",
        "chronic": f"categories := ['false', 'true'], {_NO_NULL}",
    },
    "visits": {
        "visit_at": "lower := '2020-01-01', upper := '2025-01-01', bins := 20, nullable := true",
        "department": f"categories := {list(demo.DEPARTMENTS)!r}, {_NO_NULL}",
        "urgent": f"categories := ['false', 'true'], {_NO_NULL}",
        "cost": "lower := 0, upper := 20000, bins := 20, nullable := true",
    },
    "procedures": {
        "code": f"categories := {sorted(demo.PROCEDURES)!r}, {_NO_NULL}",
        "minutes": f"lower := 0, upper := 480, bins := 16, {_NO_NULL}",
    },
}
_VISITS = Child("visits", "patient_id", "patients", "patient_id", 20)
_PROCEDURES = Child("procedures", "visit_id", "visits", "visit_id", 5)
SCHEMAS = {
    "households": HOUSEHOLDS,
    "hospital": Schema("patients", "patient_id", (_VISITS, _PROCEDURES), _HOSPITAL),
    "orders": Schema("customer", "c_custkey", (_ORDERS,), {name: _TPCH[name] for name in ("customer", "orders")}),
    "lineitem": Schema("customer", "c_custkey", (_ORDERS, _LINES), _TPCH),
}
"""'hospital': that of `dpsql demo --linked`. 'orders' and 'lineitem': TPC-H with the customer as the unit, two and three levels deep."""


def create(con: duckdb.DuckDBPyConnection, name: str, scale: float, seed: int, folder: Path | None) -> Schema:
    """Make the tables of a schema, with their keys.

    Parameters
    ----------
    scale : float
        Of 'households' and 'hospital' in 100,000 of them and of its patients, else TPC-H's.
    folder : Path or None
        Where customer1.parquet, orders1.parquet and lineitem1.parquet are (for scale 1); else DuckDB's tpch extension makes them
        (package duckdb-extension-tpch).
    """
    schema = SCHEMAS[name]
    if name == "households":
        households.create(con, round(100_000 * scale), seed)
        return schema
    if name == "hospital":
        demo.create_hospital(con, round(100_000 * scale))
        return schema
    if folder is None:
        import duckdb_extension_tpch

        found = next(Path(duckdb_extension_tpch.__file__).parent.rglob("*.duckdb_extension"))
        con.execute(f"LOAD '{found}'")
        con.execute(f"CALL dbgen(sf = {scale})")
    keys = {child.parent: child.key for child in schema.children}
    for table in schema.tables:
        links = [child.column for child in schema.children if child.name == table]
        columns = [*([keys[table]] if table in keys else []), *links, *schema.declared[table]]
        origin = f"'{folder}/{table}{scale:g}.parquet'" if folder else f"main.{table}"
        con.execute(f"CREATE TABLE made_{table} AS SELECT {', '.join(columns)} FROM {origin}")
        con.execute(f"DROP TABLE IF EXISTS {table}")
        con.execute(f"ALTER TABLE made_{table} RENAME TO {table}")
        if table in keys:
            con.execute(f"CREATE UNIQUE INDEX {table}_key ON {table} ({keys[table]})")
    return schema


def protect(con: duckdb.DuckDBPyConnection, schema: Schema) -> None:
    """Protect the root, link the other tables, declare all columns."""
    con.execute(
        f"CALL dp_protect('{schema.root}', epsilon := 1000, delta := {DELTA}, privacy_unit := '{schema.unit}', max_contributions := 1)"
    )
    for child in schema.children:
        con.execute(
            f"CALL dp_link('{child.name}', '{child.column}', parent := '{child.parent}', parent_column := '{child.key}', "
            f"max_rows := {child.most})"
        )
    for table, columns in schema.declared.items():
        for column, said in columns.items():
            con.execute(f"CALL dp_declare('{table}', '{column}', {said})")
