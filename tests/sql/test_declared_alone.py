"""A declaration looks at a table's columns, not at a query of all of them: what it finds is what a query of them all would find."""

from __future__ import annotations

import duckdb
import pytest

import dpsql
from dpsql.calls.custody import ProtectCall
from dpsql.custodian.protect import protect
from dpsql.protected import source as sources
from dpsql.protected.source import protection_of
from dpsql.session.instance import instance_with, open_context
from dpsql.source.analysis import find_table

TABLES = """
CREATE TABLE "odd ""name"" select" (id BIGINT NOT NULL, "Größe" INTEGER, "a.b" DOUBLE CHECK ("a.b" BETWEEN 0 AND 1), twice INTEGER AS ("Größe" * 2), l INTEGER[]);
CREATE TABLE patients (patient BIGINT PRIMARY KEY, sex VARCHAR);
CREATE TABLE visits (visit BIGINT, patient BIGINT REFERENCES patients (patient), cost DOUBLE);
CREATE VIEW costs AS SELECT patient, cost * 2 AS double FROM visits;
CALL dp_protect('"odd ""name"" select"', epsilon := 1, delta := 1e-9, privacy_unit := 'id', max_contributions := 1);
CALL dp_protect('patients', epsilon := 1, delta := 1e-9, privacy_unit := 'patient', max_contributions := 1);
CALL dp_link('visits', 'patient', parent := 'patients', max_rows := 5);
"""


@pytest.fixture(scope="module")
def con() -> duckdb.DuckDBPyConnection:
    con = duckdb.connect()
    dpsql.load(con)
    con.execute(TABLES)
    return con


@pytest.mark.parametrize("text", ['"odd ""name"" select"', "patients", "visits", "main.visits", "costs", "SELECT cost FROM visits"])
def test_the_columns_are_those_of_the_query(text, con):
    with open_context(instance_with(con), "memory", "main") as context:
        alone, whole = sources.columns_of(context, text), sources.resolve(context, text)
        assert alone.query == whole.query and alone.key == whole.key and alone.protection == whole.protection
        assert [(c.name, c.sql_type, c.origin, c.nullable, c.home) for c in alone.source.columns] == [
            (c.name, c.sql_type, c.origin, c.nullable, c.home) for c in whole.source.columns
        ]
        assert [alone.is_unit(c) for c in alone.source.columns] == [whole.is_unit(c) for c in whole.source.columns]
        assert (alone.source is whole.source) == (text in ("visits", "main.visits", "costs", "SELECT cost FROM visits"))


def test_no_declaration_of_a_table_reads_a_query_of_it(con, monkeypatch):
    monkeypatch.setattr(sources, "analyse", None)
    con.execute("CALL dp_declare('patients', 'sex', categories := ['f', 'm'])")
    with pytest.raises(duckdb.Error, match="column = 'sexes'"):
        con.execute("CALL dp_declare('patients', 'sexes', categories := ['f', 'm'])")


@pytest.mark.parametrize("text", ["nobody", "SELECT", "other.visits", "'; DROP TABLE visits; --"])
def test_what_is_no_table_is_refused_as_ever(text, con):
    for call in (dpsql.declare, lambda con, text, column, **_: dpsql.plan(con, text, epsilon=1)):
        with pytest.raises(dpsql.DpsqlError) as refused:
            call(con, text, "cost", nullable=False)
        said = str(refused.value)
        if call is dpsql.declare:
            first = said
    assert said == first


def test_a_table_that_is_protected_by_the_same_caller_is_public_no_more(con):
    """A caller of several calls, as dbt's: what was known of a table before it had a budget is known no more."""
    con.execute("CREATE TABLE later AS SELECT 1 AS x")
    with open_context(instance_with(con), "memory", "main") as context:
        table = find_table(context.cursor, "later", database="memory", schema="main")
        assert protection_of(context, table)[1] is None
        protect(context, ProtectCall.parse({"source": "later", "epsilon": 1.0, "delta": 1e-9}))
        assert protection_of(context, table)[1] is not None
