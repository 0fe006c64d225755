"""Linked tables for random statements: a chain of four, siblings, odd names, orphans, duplicates, NULLs, extreme values; and neighbours.

Privacy status: test data alone.
"""

from __future__ import annotations

import functools
import tempfile
from dataclasses import dataclass
from pathlib import Path

import duckdb

import dpsql
from dpsql.source.linked import Orphans

CREATE = """
CREATE TABLE doctors(doctor INTEGER PRIMARY KEY);
CREATE TABLE wards(ward INTEGER PRIMARY KEY, floor VARCHAR);
CREATE TABLE beds(ward INTEGER, floor VARCHAR);
CREATE TABLE patients(patient {kind} PRIMARY KEY, sex VARCHAR, age INTEGER, family INTEGER);
CREATE TABLE visits(visit BIGINT UNIQUE, patient {kind}, ward INTEGER, cost DOUBLE, day DATE, doctor INTEGER);
CREATE TABLE "lett ers"(patient {kind}, "größe 😀" SMALLINT, "select" VARCHAR);
CREATE TABLE procedures(proc VARCHAR UNIQUE, visit BIGINT, code VARCHAR, price DECIMAL(9,2));
CREATE TABLE labs(visit BIGINT, value INTEGER);
CREATE TABLE items(proc VARCHAR, "order" TINYINT);
INSERT INTO wards VALUES (0, 'first'), (1, 'first'), (2, 'second');
INSERT INTO beds VALUES (0, 'first'), (0, 'first'), (1, NULL), (2, 'second'), (NULL, 'second'), (9, 'first');
INSERT INTO doctors VALUES (1), (2);
"""
ROWS = """
INSERT INTO patients SELECT {name}, ['f', 'm'][1 + i % 2], nullif(20 + i * 7 % 60, 27), nullif(i // 2, 2) FROM range(10) t(i);
INSERT INTO visits SELECT i, CASE WHEN p < 11 THEN {at} END, i % 4, i % 100, DATE '2020-01-01' + (i * 7 % 300)::INTEGER, 1 + i % 2
    FROM (SELECT i, (i * 5 + i // 9) % 12 AS p FROM range(30) t(i));
INSERT INTO visits SELECT 100 + i, {seven}, i % 3, [1e308, 'nan', 'inf', '-inf', NULL, 50, -0.0][1 + i % 7]::DOUBLE, DATE '2020-06-06', 1
    FROM range(14) t(i);
INSERT INTO visits VALUES (NULL, {seven}, 1, 5, NULL, NULL), (NULL, {seven}, NULL, 5, 'infinity', 9), (60, NULL, 1, 7, '2020-03-03', 1);
INSERT INTO "lett ers" SELECT CASE WHEN p < 11 THEN {at} END, i % 12, ['a', 'b', 'a"b', NULL, ''][1 + i % 5] FROM (SELECT i, i % 13 AS p FROM range(26) t(i));
INSERT INTO "lett ers" SELECT {seven}, 32767, 'a' FROM range(8);
INSERT INTO procedures SELECT 'q' || i, i % 34, 'c' || i % 3, i % 50 FROM range(60) t(i);
INSERT INTO procedures SELECT 'r' || i, 100 + i % 3, 'only here', 99 FROM range(16) t(i);
INSERT INTO procedures VALUES ('Q1', NULL, 'c0', 1), ('x', 5000, 'c1', 2), (NULL, 101, 'c0', NULL), (NULL, 60, 'c0', 3);
INSERT INTO labs SELECT i * 3 % 50, i % 5 FROM range(50) t(i);
INSERT INTO labs SELECT 100 + i % 2, 4 FROM range(12) t(i);
INSERT INTO labs VALUES (NULL, 1), (60, 2);
INSERT INTO items SELECT 'q' || i % 40, i % 7 FROM range(50) t(i);
INSERT INTO items SELECT 'r' || i % 4, 127 FROM range(20) t(i);
INSERT INTO items VALUES (NULL, 1), ('nobody', 2), ('Q1', 3), ('x', -128);
"""
TAME = """
INSERT INTO patients SELECT {name}, ['f', 'm'][1 + i % 2], 20 + i * 7 % 60, i // 2 FROM range(10) t(i);
INSERT INTO visits SELECT i, {tame}, i % 4, i % 100, DATE '2020-01-01' + (i * 7 % 300)::INTEGER, 1 FROM range(30) t(i);
INSERT INTO "lett ers" SELECT {tame}, i % 10, ['a', 'b', NULL][1 + i % 3] FROM range(14) t(i);
INSERT INTO procedures SELECT 'q' || i, i * 7 % 30, 'c' || i % 3, i % 50 FROM range(50) t(i);
INSERT INTO labs SELECT i * 3 % 30, i % 5 FROM range(40) t(i);
INSERT INTO items SELECT 'q' || i * 11 % 50, i % 6 FROM range(70) t(i);
"""
"""Rows that every bound leaves as they are, none of them an orphan."""


@dataclass(frozen=True)
class Shape:
    """How the tables are linked; ``unit``: None where a row of the root is a person."""

    kind: str = "INTEGER"
    unit: str | None = "patient"
    orphans: Orphans = "drop"

    @property
    def units(self) -> tuple[object, ...]:
        """Units whose rows are left out: one with many rows, one with few, and the orphans where they are one."""
        many, few = {"VARCHAR": ("p7", "p3")}.get(self.kind, (7, 3)) if self.unit != "family" else (3, 1)
        return (many, few, *([None] if self.orphans == "unit" or self.unit == "family" else []))


SHAPES = {
    "numbers": Shape(), "texts, orphans are a unit": Shape("VARCHAR", orphans="unit"), "families": Shape(unit="family"),
    "families, orphans are a unit": Shape(unit="family", orphans="unit"), "a row is a person": Shape(unit=None),
}  # fmt: skip
OWNERS = """
CREATE TEMP TABLE p AS SELECT patient, {unit} AS unit FROM patients;
CREATE TEMP TABLE v AS SELECT v.rowid AS place, v.visit, p.unit, p.patient IS NULL AS lost FROM visits v LEFT JOIN p ON p.patient = v.patient;
CREATE TEMP TABLE q AS SELECT q.rowid AS place, q.proc, v.unit, coalesce(v.lost, true) AS lost FROM procedures q LEFT JOIN v ON v.visit = q.visit;
CREATE TEMP TABLE l AS SELECT x.rowid AS place, p.unit, p.patient IS NULL AS lost FROM "lett ers" x LEFT JOIN p ON p.patient = x.patient;
CREATE TEMP TABLE a AS SELECT x.rowid AS place, v.unit, coalesce(v.lost, true) AS lost FROM labs x LEFT JOIN v ON v.visit = x.visit;
CREATE TEMP TABLE i AS SELECT x.rowid AS place, q.unit, coalesce(q.lost, true) AS lost FROM items x LEFT JOIN q ON q.proc = x.proc;
"""
"""Whose each row is, by the definition: its root's row's, along the links."""
OWNED = {"items": "i", "labs": "a", '"lett ers"': "l", "procedures": "q", "visits": "v"}


def world(shape: Shape, path: Path, *, left_out: object = "nobody", moved: bool = False, tame: bool = False) -> duckdb.DuckDBPyConnection:
    """Return a database in a file; ``left_out``: the unit whose rows are not there; ``moved``: whether a visit is of another patient."""
    path.write_bytes(_protected(shape, tame))
    con = duckdb.connect(str(path), config={"threads": 1})
    if moved:
        con.execute("UPDATE visits SET patient = $1 WHERE visit = 101", ["p3" if shape.kind == "VARCHAR" else 3])
    if left_out != "nobody":
        remove(con, shape, left_out)
    dpsql.load(con, progress=False)
    return con


@functools.cache
def _protected(shape: Shape, tame: bool) -> bytes:
    """Return the file of a database of which nothing was bought: whose rows are there is no part of what is declared."""
    text = shape.kind == "VARCHAR"
    words = {
        "kind": shape.kind, "name": "'p' || i" if text else "i", "at": "'p' || p" if text else "p", "seven": "'p7'" if text else "7",
        "tame": "'p' || (i % 10)" if text else "i % 10",
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "world.duckdb"
        with duckdb.connect(str(path), config={"threads": 1}) as con:
            con.execute(CREATE.format(**words) + (TAME if tame else ROWS).format(**words))
            dpsql.load(con, progress=False)
            protect(con, shape)
        return path.read_bytes()


def remove(con: duckdb.DuckDBPyConnection, shape: Shape, unit: object) -> None:
    """Remove all rows of a unit from all tables. Orphans are rows of the unit NULL, where they count at all."""
    con.execute(OWNERS.format(unit=shape.unit or "patient"))
    orphans = "true" if shape.orphans == "unit" else "NOT lost"
    for table, owner in OWNED.items():
        con.execute(f"DELETE FROM {table} WHERE rowid IN (SELECT place FROM {owner} WHERE unit IS NOT DISTINCT FROM $1 AND {orphans})", [unit])
    con.execute(f"DELETE FROM patients WHERE {shape.unit or 'patient'} IS NOT DISTINCT FROM $1", [unit])
    for table in ("p", "v", "q", "l", "a", "i"):
        con.execute(f"DROP TABLE {table}")


def protect(con: duckdb.DuckDBPyConnection, shape: Shape) -> None:
    """Protect, link and declare them; every bound holds for the tame rows."""
    most = 2 if shape.unit == "family" else 1
    unit = "" if shape.unit is None else f", privacy_unit := '{shape.unit}', max_contributions := {most}"
    con.execute(f"CALL dp_protect('patients', epsilon := 1000, delta := 1e-6{unit})")
    con.execute("CALL dp_protect('doctors', epsilon := 10, delta := 1e-6)")
    links = {"visits": ("patient", "patients", 4), '"lett ers"': ("patient", "patients", 3), "procedures": ("visit", "visits", 3),
             "labs": ("visit", "visits", 3), "items": ("proc", "procedures", 2)}  # fmt: skip
    for child, (column, parent, rows) in links.items():
        name, key = child, ("visit" if parent == "visits" else "proc" if parent == "procedures" else "patient")
        con.execute(
            f"CALL dp_link('{name}', '{column}', parent := '{parent}', parent_column := '{key}', max_rows := {rows}, orphans := '{shape.orphans}')"
        )
    bounds = {("patients", "age"): 90, ("visits", "cost"): 100, ('"lett ers"', "größe 😀"): 12, ("procedures", "price"): 50, ("labs", "value"): 4, ("items", "order"): 6}
    for (table, column), upper in bounds.items():
        con.execute(f"CALL dp_declare('{table}', '{column}', lower := 0, upper := {upper})")
    con.execute("CALL dp_declare('visits', 'day', lower := '2020-01-01', upper := '2020-12-31')")
    con.execute("CALL dp_declare('visits', 'ward', lower := 0, upper := 3)")
    for table, column, values in (("procedures", "code", ["c0", "c1", "c2"]), ("patients", "sex", ["f", "m"]), ('"lett ers"', "select", ["a", "b", 'a"b'])):
        con.execute(f"CALL dp_declare('{table}', '{column}', categories := {values})")
