"""Links on the books: who is linked to what, one budget and one ledger for all, and books that say so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from dpsql.udfs import instance_of
from linked_tables import PROCEDURES, PROTECT, VISITS, link_patients, make_patients

import dpsql
from dpsql.books.links import Links
from dpsql.protected.linked import lineage_of
from dpsql.protected.source import protection_of
from dpsql.session.instance import Context, open_context
from dpsql.source.linked import Hop
from dpsql.source.model import TableId

pytestmark = pytest.mark.any_duckdb


@pytest.fixture
def con(tmp_path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    connection = duckdb.connect(str(tmp_path / "clinic.duckdb"))
    make_patients(connection)
    dpsql.load(connection, user="tester")
    yield connection
    connection.close()


@pytest.fixture
def linked(con: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    link_patients(con)
    return con


@pytest.fixture
def context(linked: duckdb.DuckDBPyConnection) -> Iterator[Context]:
    with open_context(instance_of(linked), "clinic", "main") as found:
        yield found


def entries(con: duckdb.DuckDBPyConnection) -> list[tuple[str, str]]:
    return con.execute("SELECT source, action FROM dpsql.ledger ORDER BY written_at, source DESC, entry").fetchall()


def table(name: str) -> TableId:
    return TableId("clinic", "main", name)


def test_links_are_set_listed_and_changed(con):
    con.execute(PROTECT)
    columns = "source, column_name, parent, parent_column, root, max_rows, orphans"
    shown = con.execute(f"SELECT {columns}, change FROM dp_link('visits', 'PATIENT_ID', parent := 'Patients', max_rows := 20)")
    first = ("main.visits", "patient_id", "main.patients", "patient_id", "main.patients", 20, "drop")
    assert shown.fetchall() == [(*first, "linked")]
    before = entries(con)
    assert con.execute(f"SELECT change FROM ({VISITS.replace('CALL', 'FROM')})").fetchall() == [("in force",)]
    assert entries(con) == before  # said again
    con.execute(PROCEDURES)
    second = ("main.procedures", "visit_id", "main.visits", "visit_id", "main.patients", 5, "drop")
    assert con.execute(f"SELECT {columns} FROM dp_links()").fetchall() == [first, second]
    assert con.execute("SELECT source FROM dp_links('procedures')").fetchall() == [("main.procedures",)]
    assert con.execute("SELECT source FROM dp_links('patients')").fetchall() == [("main.visits",), ("main.procedures",)]
    assert con.execute("SELECT max_rows, change FROM dp_link('visits', max_rows := 7)").fetchall() == [(7, "changed")]
    assert con.execute("SELECT max_rows, orphans FROM dp_link('visits', orphans := 'unit')").fetchall() == [(7, "unit")]
    assert con.execute("SELECT bool_and(chain_holds) FROM dp_ledger()").fetchall() == [(True,)]
    on_root = [action for source, action in entries(con) if source == "main.patients"]
    assert on_root == ["protect", "link", "link", "link", "link"]


def test_the_way_up_is_found(context):
    lineage = lineage_of(context, table("procedures"))
    up = Hop(table("visits"), "patient_id", table("patients"), "patient_id", 20)
    assert lineage is not None and lineage.root == table("patients") and lineage.most == 100
    assert lineage.hops == (Hop(table("procedures"), "visit_id", table("visits"), "visit_id", 5), up)
    assert lineage_of(context, table("patients")) is None
    ledger, protection = protection_of(context, table("procedures"))
    assert ledger.source == "main.patients" and protection is not None and protection.privacy_unit == "patient_id"
    links = Links(context.cursor, "clinic")
    assert set(links.all()) == {"main.visits", "main.procedures"} and links.root("main.procedures") == "main.patients"
    found = links.of("main.visits")
    assert found is not None and found.max_rows == 20 and links.of("main.patients") is None


def test_there_is_one_budget_and_one_ledger(linked):
    assert linked.execute("SELECT source FROM dp_budget()").fetchall() == [("main.patients",)]
    for name in ("visits", "procedures"):
        for call in ("budget", "ledger", "releases"):
            assert linked.execute(f"FROM dp_{call}('{name}')").fetchall() == linked.execute(f"FROM dp_{call}('patients')").fetchall()
    with pytest.raises(duckdb.Error, match="is linked, and under the budget of main.patients"):
        linked.execute("CALL dp_protect('visits', epsilon := 1, delta := 1e-9)")
    linked.execute("CALL dp_protect('patients', epsilon := 4)")
    assert linked.execute("SELECT epsilon FROM dp_budget('procedures')").fetchall() == [(4.0,)]


def test_a_broken_link_stops_nothing_that_does_not_read_its_table(linked):
    linked.execute("ALTER TABLE visits RENAME TO elsewhere")
    for text in ("SELECT count(*) FROM patients", "SELECT count(DISTINCT patient_id) FROM patients"):
        assert linked.execute(f"FROM dp_query('{text}', epsilon := 0.01)").fetchall()
    with pytest.raises(duckdb.Error, match="does not hold any more"):
        linked.execute("FROM dp_query('SELECT count(*) FROM procedures', epsilon := 0.01)").fetchall()
    linked.execute("ALTER TABLE elsewhere RENAME TO visits")
    assert linked.execute("FROM dp_query('SELECT count(*) FROM procedures', epsilon := 0.01)").fetchall()


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("'patients', 'patient_id', parent := 'visits', max_rows := 1", "links would go in a circle"),
        ("'visits', 'visit_id', parent := 'visits', max_rows := 1", "is the table itself"),
        ("'visits', 'visit_id', parent := 'patients', max_rows := 1", "both must be of one type"),
        ("'visits', 'patient_id', parent := 'doctors', max_rows := 1", "two kinds of people"),
        ("'loose', 'patient_id', parent := 'wards', max_rows := 1", "no privacy budget"),
        ("'loose', 'patient_id', parent := 'patients'", "max_rows is not given"),
        ("'loose', 'patient_id', parent := 'patients', max_rows := 0", "max_rows"),
        ("'loose', 'nothing', parent := 'patients', max_rows := 1", "not a stored column"),
        ("'loose', 'patient_id', parent := 'patients', parent_column := 'age', max_rows := 1", "not declared unique"),
        ("'loose', 'text', parent := 'patients', max_rows := 1", "both must be of one type"),
    ],
)
def test_what_makes_no_way_up_is_refused_and_nothing_written(linked, said, why):
    linked.execute("CREATE TABLE doctors (doctor_id INTEGER PRIMARY KEY)")
    linked.execute("CALL dp_protect('doctors', epsilon := 1, delta := 1e-9)")
    linked.execute("CREATE TABLE wards (patient_id INTEGER PRIMARY KEY)")
    linked.execute("CREATE TABLE loose (patient_id INTEGER, text VARCHAR)")
    before = entries(linked)
    with pytest.raises(duckdb.Error, match=why):
        linked.execute(f"CALL dp_link({said})")
    assert entries(linked) == before
