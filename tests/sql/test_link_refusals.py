"""What dp_link takes and refuses: keys, types, names, kinds of tables; and links that the schema does not bear out any more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from dpsql.udfs import instance_of
from linked_tables import link_patients, make_patients

import dpsql
from dpsql.errors import LinkBroken
from dpsql.protected.linked import lineage_of
from dpsql.session.instance import open_context
from dpsql.source.linked import Lineage
from dpsql.source.model import TableId

pytestmark = pytest.mark.any_duckdb


@pytest.fixture
def con(tmp_path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    connection = duckdb.connect(str(tmp_path / "clinic.duckdb"))
    make_patients(connection)
    dpsql.load(connection, user="tester")
    link_patients(connection)
    yield connection
    connection.close()


def way(con: duckdb.DuckDBPyConnection, name: str, schema: str = "main") -> Lineage | None:
    with open_context(instance_of(con), "clinic", "main") as context:
        return lineage_of(context, TableId("clinic", schema, name))


def refused(con: duckdb.DuckDBPyConnection, said: str, why: str) -> None:
    before = con.execute("SELECT count(*) FROM dpsql.ledger").fetchall()
    with pytest.raises(duckdb.Error, match=why):
        con.execute(f"CALL dp_link({said}, max_rows := 2)")
    assert con.execute("SELECT count(*) FROM dpsql.ledger").fetchall() == before


# -- kinds of tables ----------------------------------------------------------------------------------------------------------------


def test_views_files_and_other_tables_are_refused(con, tmp_path):
    con.execute("CREATE TABLE stays (patient_id INTEGER)")
    con.execute("CREATE VIEW seen AS FROM stays; CREATE VIEW people AS FROM patients; CREATE TEMP TABLE passing (patient_id INTEGER)")
    con.execute(f"COPY stays TO '{tmp_path / 'stays.parquet'}'; COPY patients TO '{tmp_path / 'patients.parquet'}'")
    con.execute(f"ATTACH '{tmp_path / 'other.duckdb'}' AS other; CREATE TABLE other.stays (patient_id INTEGER)")
    key = "'patient_id', parent := 'patients'"
    refused(con, f"'seen', {key}", "source = 'seen': is a view; a link is one of tables that hold rows")
    refused(con, "'stays', 'patient_id', parent := 'people'", "parent = 'people': is a view")
    refused(con, f"'{tmp_path / 'stays.parquet'}', {key}", "is a file, which has no keys")
    refused(con, f"'stays', 'patient_id', parent := '{tmp_path / 'patients.parquet'}'", "parent = .*: is a file")
    refused(con, f"'other.stays', {key}", "one budget is in one database")
    refused(con, f"'passing', {key}", "source = 'passing'")
    refused(con, f"'nothing', {key}", "source = 'nothing': no such table")
    refused(con, "'stays', 'patient_id', parent := 'nothing'", "parent = 'nothing': no such table")
    refused(con, f"'dpsql.ledger', {key}", "books of dpsql are no sources")
    refused(con, "'stays', 'patient_id', parent := 'stays'", "parent = 'main.stays'|no PRIMARY KEY")


# -- keys and types -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "key", "other", "why"),
    [
        ("BIGINT", "PRIMARY KEY", "INTEGER", "both must be of one type"),
        ("VARCHAR", "PRIMARY KEY", "INTEGER", "both must be of one type"),
        ("DECIMAL(9,2)", "PRIMARY KEY", "DECIMAL(9,1)", "both must be of one type"),
        ("DOUBLE", "PRIMARY KEY", "DOUBLE", "whose equal values have several forms"),
        ("INTERVAL", "", "INTERVAL", "whose equal values have several forms"),
        ("INTEGER[]", "", "INTEGER[]", "whose equal values have several forms"),
        ("VARCHAR COLLATE NOCASE", "PRIMARY KEY", "VARCHAR", "has a collation"),
        ("VARCHAR", "PRIMARY KEY", "VARCHAR COLLATE NOCASE", "has a collation"),
        ("INTEGER", "", "INTEGER", "is not declared unique"),
        ("INTEGER", ", second INTEGER DEFAULT 1, PRIMARY KEY (id, second)", "INTEGER", r"is not declared unique.*it has \(id, second\)"),
    ],
)
def test_columns_that_are_no_key_of_one_type_are_refused(con, kind, key, other, why):
    con.execute(f"CREATE TABLE people (id {kind} {key}); CREATE TABLE trips (person {other})")
    con.execute("CALL dp_protect('people', epsilon := 1, delta := 1e-9)")
    refused(con, "'trips', 'person', parent := 'people', parent_column := 'id'", why)


@pytest.mark.parametrize(
    "kind",
    ["BOOLEAN", "UTINYINT", "HUGEINT", "DECIMAL(30,4)", "VARCHAR", "DATE", "TIME", "TIMESTAMP", "TIMESTAMPTZ", "UUID", "BLOB",
     "ENUM('a', 'b')"],
)
def test_keys_of_every_type_whose_equality_is_that_of_bytes(con, kind):
    con.execute(f"CREATE TABLE people (id {kind} PRIMARY KEY); CREATE TABLE trips (person {kind})")
    con.execute("CALL dp_protect('people', epsilon := 1, delta := 1e-9)")
    con.execute("CALL dp_link('trips', 'person', parent := 'people', max_rows := 2)")
    found = way(con, "trips")
    assert found is not None and found.hops[0].parent_column == "id"


def test_the_parents_key_is_found(con):
    con.execute("CREATE TABLE a (x INTEGER, y INTEGER UNIQUE NOT NULL, z INTEGER)")
    con.execute("CREATE UNIQUE INDEX places ON a (z)")
    con.execute("CREATE TABLE b (k INTEGER)")
    con.execute("CALL dp_protect('a', epsilon := 1, delta := 1e-9)")
    refused(con, "'b', 'k', parent := 'a'", r"parent_column is not given: main.a has no PRIMARY KEY of one column and several .*y, z")
    con.execute("DROP INDEX places")
    con.execute("CALL dp_link('b', 'k', parent := 'a', max_rows := 2)")
    found = way(con, "b")
    assert found is not None and found.hops[0].parent_column == "y"
    generated = "CREATE TABLE c (i INTEGER, made INTEGER GENERATED ALWAYS AS (i + 1)); CREATE TABLE d (k INTEGER PRIMARY KEY)"
    con.execute(generated)
    con.execute("CALL dp_protect('d', epsilon := 1, delta := 1e-9)")
    refused(con, "'c', 'made', parent := 'd'", "is not a stored column")


def test_a_foreign_key_is_offered(con):
    con.execute("CREATE TABLE stays (id INTEGER PRIMARY KEY, who INTEGER REFERENCES patients (patient_id))")
    con.execute("SELECT 1")
    shown = con.execute("SELECT column_name, parent, parent_column FROM dp_link('stays', max_rows := 3)").fetchall()
    assert shown == [("who", "main.patients", "patient_id")]
    con.execute(
        "CREATE TABLE moves (a INTEGER REFERENCES stays (id), b INTEGER REFERENCES patients (patient_id), c INTEGER REFERENCES "
        "patients (patient_id))"
    )
    refused(con, "'moves'", "parent is not given: .*column_name := 'a', parent := 'main.stays', parent_column := 'id'; .*'b'.*'c'")
    refused(con, "'moves', parent := 'patients'", "column is not given: .*'b'.*'c'")
    refused(con, "'visits_of_nobody', parent := 'patients'", "no such table")
    con.execute("CALL dp_link('moves', parent := 'stays', max_rows := 2)")
    found = way(con, "moves")
    assert found is not None and [hop.column for hop in found.hops] == ["a", "who"]
    con.execute("CREATE TABLE loose (b INTEGER)")
    refused(con, "'loose'", "it has no FOREIGN KEY of one column")
    assert con.execute("SELECT parent_column FROM dp_link('stays', 'who', parent := 'patients')").fetchall() == [("patient_id",)]


def test_a_key_that_was_named_stays(con):
    con.execute("CREATE TABLE people (id INTEGER PRIMARY KEY, mail INTEGER UNIQUE NOT NULL); CREATE TABLE mails (mail INTEGER)")
    con.execute("CALL dp_protect('people', epsilon := 1, delta := 1e-9)")
    con.execute("CALL dp_link('mails', 'mail', parent := 'people', parent_column := 'MAIL', max_rows := 2)")
    changed = con.execute("SELECT parent_column, change FROM dp_link('mails', 'mail', parent := 'people', max_rows := 3)").fetchall()
    assert changed == [("mail", "changed")]


# -- names ------------------------------------------------------------------------------------------------------------------------


def test_names_of_every_kind(con):
    con.execute('CREATE SCHEMA "Süd.west"')
    con.execute("""CREATE TABLE "Süd.west"."a ""b'" ("select" INTEGER PRIMARY KEY)""")
    con.execute("""CREATE TABLE "group" ("öre.x" INTEGER)""")
    con.execute("""CALL dp_protect('"Süd.west"."a ""b''"', epsilon := 1, delta := 1e-9)""")
    con.execute("""CALL dp_link('"group"', 'öRE.X', parent := '"SüD.West"."A ""b''"', max_rows := 2)""")
    found = way(con, "group")
    assert found is not None and found.root == TableId("clinic", "Süd.west", "a \"b'")
    assert (found.hops[0].column, found.hops[0].parent_column) == ("öre.x", "select")
    shown = con.execute("""SELECT source, column_name, root FROM dp_links('"group"')""").fetchall()
    assert shown == [("main.group", "öre.x", '''"süd.west"."a ""b'"''')]
    assert con.execute("""SELECT source FROM dp_budget('"group"')""").fetchall() == [('''"süd.west"."a ""b'"''',)]


# -- schemas that change ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ("DROP INDEX by_visit", "'visit_id' of main.visits is not declared unique"),
        ("DROP INDEX by_visit; ALTER TABLE visits RENAME TO stays", "main.visits is gone"),
        ("DROP INDEX by_visit; ALTER TABLE visits RENAME TO v; CREATE VIEW visits AS FROM v", "main.visits is gone"),
        ("ALTER TABLE procedures RENAME visit_id TO visit", "'visit_id' is not a stored column of main.procedures"),
        ("ALTER TABLE procedures ALTER visit_id TYPE INTEGER", "both must be of one type"),
        ("DROP TABLE visits", "main.visits is gone"),
    ],
)
def test_a_link_that_the_schema_does_not_bear_out_is_an_error_that_names_it(con, changes, told):
    con.execute("CREATE TABLE visits_ AS FROM visits; DROP TABLE visits; ALTER TABLE visits_ RENAME TO visits")
    con.execute("CREATE UNIQUE INDEX by_visit ON visits (visit_id)")
    assert way(con, "procedures") is not None
    for statement in changes.split("; "):
        con.execute(statement)
    with pytest.raises(LinkBroken, match=told) as caught:
        way(con, "procedures")
    assert (caught.value.source, caught.value.parent) == ("main.procedures", "main.visits")
    with pytest.raises(duckdb.Error, match="LinkBroken"):
        con.execute("FROM dp_marginals('procedures', columns := ['code'], epsilon := 0.1)")
    assert con.execute("SELECT source FROM dp_budget('procedures')").fetchall() == [("main.patients",)]  # the books need no catalog


def test_a_table_that_was_dropped_comes_back_linked(con):
    con.execute("DROP TABLE procedures")
    con.execute("CREATE TABLE PROCEDURES (code VARCHAR, visit_id BIGINT)")
    found = way(con, "PROCEDURES")
    assert found is not None and found.most == 100
    with pytest.raises(duckdb.Error, match="is linked"):
        con.execute("CALL dp_protect('procedures', epsilon := 1, delta := 1e-9)")


def test_where_a_row_is_a_person_its_key_has_to_be_there(con):
    con.execute("CREATE TABLE people (id INTEGER UNIQUE NOT NULL); CREATE TABLE trips (person INTEGER)")
    con.execute("CALL dp_protect('people', epsilon := 1, delta := 1e-9)")
    con.execute("CALL dp_link('trips', 'person', parent := 'people', max_rows := 2)")
    assert way(con, "trips") is not None
    con.execute("DROP TABLE people; CREATE TABLE people (id INTEGER UNIQUE)")
    with pytest.raises(LinkBroken, match="may be NULL"):
        way(con, "trips")
    con.execute("DROP TABLE people; CREATE TABLE people (id INTEGER PRIMARY KEY)")
    assert way(con, "trips") is not None


@pytest.mark.parametrize(("table", "column", "is_"), [("visits", "patient_id", "is the link to main.patients"), ("patients", "patient_id", "is the privacy unit")])
def test_what_says_whose_row_it_is_is_no_data(con, table, column, is_):
    for statement in (f"CALL dp_declare('{table}', '{column}', lower := 0, upper := 3)", f"CALL dp_rule('{table}', '{column} > 3')"):
        with pytest.raises(duckdb.Error, match=is_):
            con.execute(statement)
