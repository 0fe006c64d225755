"""A served database for tests: protected visits, public wards, what is hidden beside them, two analysts; and the room over it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
from prepared import beside

import dpsql
from dpsql import udfs
from dpsql.serve.ask import Ask
from dpsql.serve.limits import Limits
from dpsql.serve.passed import Refused
from dpsql.session.settings import sound_plans

SENTINEL = 987654321
"""Stands in every row that no analyst may see, and in labels, views and macros about them."""
SCHEMA = f"""
CREATE TYPE mood AS ENUM ('m{SENTINEL}');
CREATE TABLE visits AS
    SELECT i // 3 AS patient, ['A', 'B', 'C'][i % 3 + 1] AS ward, DATE '2024-01-01' + (i % 300)::INTEGER AS day,
        (i * 7 % 900)::DOUBLE AS cost, TIMESTAMP '2024-01-01' + INTERVAL (i % 300) DAY AS visit_at, {SENTINEL} + i AS file
    FROM range(6007) t(i);
CREATE TABLE payroll AS SELECT {SENTINEL} AS x, 'bob' AS who;
CREATE TABLE raw_notes AS SELECT {SENTINEL} AS x, 'note' AS note;
CREATE TABLE wards(ward VARCHAR, beds INTEGER, building VARCHAR);
INSERT INTO wards VALUES ('A', 1, 'one'), ('B', 2, 'two'), ('C', 2, 'two');
CREATE SCHEMA other;
CREATE TABLE other.wards AS SELECT {SENTINEL} AS beds, 'x' AS building;
CREATE TABLE other.places AS SELECT 'north' AS place, 2.5::DECIMAL(9, 2) AS width, DATE '2024-05-01' AS since;
CREATE VIEW over_wards AS SELECT beds + 1 AS beds FROM wards;
CREATE VIEW over_visits AS SELECT ward, cost FROM visits WHERE file > {SENTINEL} - 1;
CREATE VIEW over_payroll AS SELECT x FROM payroll;
CREATE VIEW over_notes AS SELECT x - {SENTINEL} AS number FROM raw_notes;
CREATE VIEW over_call AS FROM dp_ledger();
CREATE VIEW over_view AS FROM over_payroll;
CREATE VIEW over_file AS SELECT 1 AS x WHERE 1 IN (SELECT x FROM raw_notes);
CREATE VIEW of_settings AS SELECT current_setting('threads') AS x;
CREATE VIEW of_tables AS SELECT estimated_size AS n FROM duckdb_tables();
CREATE MACRO leak() AS (SELECT max(x) FROM payroll);
CREATE MACRO leaks() AS TABLE FROM payroll;
CREATE MACRO trim(given) AS (SELECT max(x) FROM payroll);
CREATE SEQUENCE numbers;
"""
PUBLIC = tuple(
    f"main.{name}"
    for name in ("wards", "over_wards", "over_visits", "over_notes", "payroll", "over_payroll", "over_view", "over_call", "of_settings", "of_tables")
) + ("other.places",)
"""The last six of main are hidden all the same: by what they are, or read."""
EPSILON = 0.5
LIMITED = tuple(f"{name}{number}" for name in ("erin", "frank") for number in range(30))


class Listed:
    """Who may ask about what: alice, bob and one who is called as the custodian about visits, dora about payroll too, carol about nothing.

    Those of `LIMITED` may ask about visits; tests give them grants in the books.
    """

    def granted(self, analyst: str) -> Mapping[str, float]:
        """Return her grants."""
        granted = {"main.visits": EPSILON} if analyst in ("alice", "bob", "dora", "custodian", *LIMITED) else {}
        return {**granted, "main.payroll": 0.1} if analyst == "dora" else granted

    def public(self) -> Collection[str]:
        """Return what all see."""
        return PUBLIC


class Served:
    """The database and its room."""

    def __init__(self, path: Path) -> None:
        self.con = duckdb.connect(str(path))
        dpsql.load(self.con, user="custodian")
        self.con.execute(SCHEMA)
        self.con.execute(
            "CALL dp_protect('visits', epsilon := 1000, delta := 1e-9, privacy_unit := 'patient', max_contributions := 3);"
            "CALL dp_protect('payroll', epsilon := 5, delta := 1e-9);"
            "CALL dp_declare('visits', 'ward', categories := ['A', 'B', 'C'], nullable := false);"
            "CALL dp_declare('visits', 'cost', lower := 0, upper := 1000, nullable := false);"
            "CALL dp_declare('visits', 'day', lower := '2024-01-01', upper := '2024-12-31', nullable := false);"
        )
        sound_plans(self.con)  # as a server does: the first reading would, and be a change of the database's settings
        self.room = self.with_limits(Limits())

    def with_limits(self, limits: Limits) -> Ask:
        """Return a room over the database with other limits."""
        instance = udfs.instance_of(self.con)
        assert instance is not None
        return Ask(instance, "hospital", Listed(), database="census", limits=limits)

    def ask(self, text: str, parameters: tuple[Any, ...] = (), analyst: str = "alice") -> list[tuple[Any, ...]]:
        """Return the rows that an analyst gets."""
        return list(self.room.ask(analyst, text, "duckdb", parameters).rows)

    def refused(self, text: str, parameters: tuple[Any, ...] = (), analyst: str = "alice") -> Refused:
        """Return the refusal that an analyst gets."""
        try:
            answer = self.room.ask(analyst, text, "duckdb", parameters)
        except Refused as refused:
            return refused
        raise AssertionError(f"answered: {answer}")

    def charges(self, analyst: str | None = None) -> int:
        """Return how many charges there are in the books."""
        query = "SELECT count(*) FROM dpsql.ledger WHERE action = 'charge' AND ($1 IS NULL OR who = 'analyst ' || $1)"
        return int(beside(self.con).execute(query, [analyst]).fetchall()[0][0])

    def state(self) -> list[Any]:
        """Return all that a statement could change: catalog, settings, attached databases, books, rows of small tables."""
        cursor = beside(self.con)
        queries = (
            "SELECT database_name, schema_name, table_name, sql FROM duckdb_tables() WHERE NOT temporary ORDER BY ALL",
            "SELECT database_name, schema_name, view_name, sql FROM duckdb_views() WHERE NOT internal AND NOT temporary ORDER BY ALL",
            "SELECT function_name, count(*) FROM duckdb_functions() GROUP BY ALL ORDER BY ALL",
            "SELECT sequence_name, last_value FROM duckdb_sequences() WHERE NOT temporary ORDER BY ALL",
            "SELECT type_name FROM duckdb_types() WHERE NOT internal ORDER BY ALL",
            "SELECT name, value FROM duckdb_settings() WHERE name NOT IN ('search_path', 'schema') ORDER BY ALL",
            "SELECT name FROM duckdb_secrets() ORDER BY ALL",
            "SELECT database_name, path FROM duckdb_databases() ORDER BY ALL",
            "SELECT extension_name FROM duckdb_extensions() WHERE loaded ORDER BY ALL",
            "SELECT * FROM duckdb_variables()",
            "SELECT * FROM dpsql.ledger ORDER BY source, entry",
            "SELECT * FROM wards ORDER BY ALL",
            "SELECT count(*), sum(cost) FROM visits",
        )
        return [cursor.execute(query).fetchall() for query in queries]

    def close(self) -> None:
        """Close the database."""
        self.con.close()


@contextmanager
def served(folder: Path) -> Iterator[Served]:
    """Give a served database in a folder."""
    found = Served(folder / "hospital.duckdb")
    try:
        yield found
    finally:
        found.close()
