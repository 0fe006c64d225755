"""Unit-local sources as a call resolves them: the books of their table, files, and a database that redefines functions."""

from __future__ import annotations

import duckdb
import pytest
from dpsql.udfs import instance_of

import dpsql
from dpsql.errors import UnsupportedQuery
from dpsql.protected.source import resolve
from dpsql.session.instance import open_context

GROUPS = "SELECT patient, kind, sum(cost) AS s FROM {} GROUP BY patient, kind"


@pytest.fixture
def con(tmp_path):
    connection = duckdb.connect(str(tmp_path / "clinic.db"))
    dpsql.load(connection)
    connection.execute(
        "CREATE TABLE visits AS SELECT i % 5 AS patient, 'k' || i % 3 AS kind, i / 4 AS cost FROM range(50) AS r(i); "
        "CREATE VIEW per_patient AS SELECT patient, count(*) AS n FROM visits GROUP BY patient"
    )
    connection.execute(f"COPY visits TO '{tmp_path / 'v.parquet'}'")
    for name in ("visits", f"{tmp_path / 'v.parquet'}"):
        connection.execute(f"CALL dp_protect('{name}', epsilon := 1, delta := 1e-9, privacy_unit := 'patient', max_contributions := 5)")
    yield connection
    connection.close()


def context_of(con):
    instance = instance_of(con)
    assert instance is not None
    return open_context(instance, "clinic", "main")


def test_a_local_source_is_not_plain_and_charges_its_table(con, tmp_path):
    with context_of(con) as context:
        found = resolve(context, GROUPS.format("visits"), local=True)
        assert found.source.local and not found.plain and found.key == "main.visits"
        assert found.protection.privacy_unit == "patient"
        assert [c.name for c in found.source.columns if found.is_unit(c)] == ["patient"]
        assert context.cursor.execute(f"SELECT count(*) FROM ({found.source.sql})").fetchone() == (15,)
        assert resolve(context, "per_patient", local=True).source.one_per_unit
        assert resolve(context, "visits", local=True).plain and not resolve(context, "visits", local=True).source.local
        with pytest.raises(UnsupportedQuery, match="GROUP BY"):
            resolve(context, GROUPS.format("visits"))


def test_a_file_is_combined_as_a_table_is(con, tmp_path):
    file = tmp_path / "v.parquet"
    text = f"SELECT a.patient, b.n FROM '{file}' a JOIN (SELECT patient, count(*) AS n FROM '{file}' GROUP BY 1) b USING (patient)"
    with context_of(con) as context:
        found = resolve(context, text, local=True)
        assert found.source.local and found.source.table.is_file
        rows = context.cursor.execute(f"SELECT n, __dp_unit, count(*) FROM ({found.source.sql}) GROUP BY ALL").fetchall()
        assert sorted(rows) == [(10, unit, 10) for unit in range(5)]


@pytest.mark.parametrize("macro", ["list_sort(x)", "sum(x)", "list_aggregate(x, y)", "row_number()", "isnan(x)"])
def test_a_macro_with_the_name_of_an_aggregate_is_found(con, macro):
    con.execute(f"CREATE MACRO {macro} AS 1")
    text = "SELECT patient, sum(cost) AS s, sum(patient) AS p, row_number() OVER (PARTITION BY patient ORDER BY sum(cost)) AS r FROM visits GROUP BY ALL"
    with context_of(con) as context, pytest.raises(UnsupportedQuery, match="gives it another meaning"):
        resolve(context, text, local=True)


def test_nothing_of_a_view_is_run_before_it_is_checked(con):
    con.execute("CREATE MACRO boom() AS error('run')")
    con.execute("CREATE VIEW bad AS SELECT patient, count(*) AS n FROM visits WHERE cost > 1e9 AND boom() GROUP BY patient")
    with context_of(con) as context, pytest.raises(UnsupportedQuery, match="macros and functions of users are not looked into"):
        resolve(context, "bad", local=True)


def test_errors_of_binding_show_no_row(con):
    with context_of(con) as context, pytest.raises((UnsupportedQuery, duckdb.Error, ValueError)) as caught:
        resolve(context, "SELECT patient, sum(nosuch) AS s FROM visits GROUP BY patient", local=True)
    assert "nosuch" in str(caught.value)
