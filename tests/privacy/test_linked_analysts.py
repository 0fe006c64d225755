"""What analysts of a served database see of linked tables: they go with their root, and only where all of it is granted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from analysts import ask, instance_of, named
from linked_tables import link_patients, make_patients

import dpsql
from dpsql.books.grants import Grants
from dpsql.errors import ArgumentError, DpsqlError, GrantExceeded
from dpsql.protected.source import catalog_of
from dpsql.serve.gate import Refused, decide, view_of
from dpsql.session.instance import open_context

pytestmark = pytest.mark.any_duckdb

TABLES = ("patients", "visits", "procedures")
SEEN = {"alice": set(TABLES), "bob": {"patients"}, "carol": set(), "dan": set()}
"""alice: all of the root; bob: columns of it; carol: another table; dan: a table that was linked since."""


@pytest.fixture
def con(tmp_path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    connection = duckdb.connect(str(tmp_path / "clinic.duckdb"))
    make_patients(connection)
    dpsql.load(connection, user="tester")
    connection.execute("CREATE TABLE doctors AS SELECT 1 AS doctor; CALL dp_protect('doctors', epsilon := 1, delta := 1e-9)")
    connection.execute("CALL dp_grant('doctors', analyst := 'carol', epsilon := 1)")
    connection.execute("CALL dp_protect('visits', epsilon := 1, delta := 1e-9)")
    connection.execute("CALL dp_grant('visits', analyst := 'dan', epsilon := 1)")
    connection.execute("CREATE VIEW dear AS SELECT cost FROM visits WHERE cost > 50")
    connection.execute("CALL dp_publish('procedures')")
    link_patients(connection)
    connection.execute("CALL dp_publish('dear')")
    connection.execute("CALL dp_grant('patients', analyst := 'alice', epsilon := 1)")
    connection.execute("CALL dp_grant('patients', analyst := 'bob', epsilon := 1, columns := ['patient_id', 'sex'])")
    yield connection
    connection.close()


@pytest.mark.parametrize("analyst", sorted(SEEN))
def test_the_wall_shows_linked_tables_with_their_root(con, analyst):
    with open_context(instance_of(con), "clinic", "main", analyst=analyst) as context:
        catalog = catalog_of(context)
        seen = {name for name in TABLES if catalog.find("clinic", "main", name) is not None}
        view = catalog.find("clinic", "main", "dear")
    assert seen == SEEN[analyst]
    assert (view is not None) == ("visits" in seen)


@pytest.mark.parametrize("analyst", sorted(SEEN))
def test_so_does_the_gate(con, analyst):
    cursor = con.cursor()
    held = Grants(cursor, "clinic")
    view = view_of(cursor, "clinic", "main", analyst, held.of(analyst), held.published())
    shown = {entry.name for entry in view.shown()}
    assert shown & set(TABLES) == SEEN[analyst] and ("dear" in shown) == ("visits" in SEEN[analyst])
    for name in TABLES:
        decided = decide(f"SELECT count(*) FROM {name}", view)
        assert isinstance(decided, Refused) != (name in SEEN[analyst])
    hidden = isinstance(decide("SELECT count(*) FROM dear", view), Refused)
    assert hidden == ("visits" not in SEEN[analyst])


def test_a_raw_row_of_a_linked_table_is_never_read(con):
    """It was published before it was linked: neither its rows nor a list of its values are public since."""
    assert list(Grants(con.cursor(), "clinic").published()) == ["main.dear"]
    with pytest.raises(duckdb.Error, match="is protected"):
        con.execute("CALL dp_publish('procedures')")
    with pytest.raises(duckdb.Error, match="that table is protected"):
        con.execute("CALL dp_declare('patients', 'sex', categories_from := 'procedures.code')")


def test_her_books_are_those_of_the_root(con):
    (row,) = named(con, "alice", "budget", source="visits")
    assert row["source"] == "main.patients"
    for analyst in ("bob", "carol", "dan"):
        with pytest.raises(DpsqlError, match="no such table|not granted"):
            ask(con, analyst, "budget", source="visits")
    assert named(con, "dan", "budget") == []  # her grant went with the table's own budget


@pytest.mark.parametrize(("call", "given"), [("link", {"source": "visits", "max_rows": 1}), ("links", {})])
def test_links_are_the_custodians(con, call, given):
    before = con.execute("SELECT count(*) FROM dpsql.ledger").fetchall()
    with pytest.raises(ArgumentError, match="custodian's"):
        ask(con, "alice", call, **given)
    assert con.execute("SELECT count(*) FROM dpsql.ledger").fetchall() == before


def synthesize(con: duckdb.DuckDBPyConnection) -> str:
    """Buy a synthetic database, as the custodian; return the release."""
    con.execute("CALL dp_declare('patients', 'sex', categories := ['f', 'm'])")
    con.execute("CALL dp_declare('visits', 'cost', lower := 0, upper := 100, bins := 4)")
    text = "FROM dp_synthesize_tables('patients', epsilon := 0.5, into_schema := 'synth', options := {'effort': 'fast'})"
    return str(con.execute(text).fetchall()[0][3])


def test_a_synthetic_database_is_the_custodians(con):
    """Who may ask about all tables can neither buy, plan, redraw, compare nor see the release that the custodian has bought."""
    release = synthesize(con)
    before = con.execute("SELECT count(*) FROM dpsql.ledger").fetchall()
    refused = [
        ("synthesize_tables", {"source": "patients", "epsilon": 0.1, "into_schema": "hers"}),
        ("plan", {"source": "patients", "operation": "synthesize_tables", "epsilon": 0.1}),
        ("evaluate", {"source": "patients", "release": "synth"}), ("sample", {"release": release, "into_schema": "hers"}),
        ("sample", {"release": release}), ("explain", {"release": release}), ("export", {"release": release, "path": "x"}),
    ]  # fmt: skip
    for call, given in refused:
        for analyst in ("alice", "bob"):
            with pytest.raises(DpsqlError) as said:
                ask(con, analyst, call, **given)
            with pytest.raises(DpsqlError) as unknown:
                ask(con, analyst, call, **{**given, **({"release": "nothing"} if "release" in given else {})})
            assert str(said.value).replace(release, "nothing") == str(unknown.value), "whether it was bought is not hers to know"
    assert ask(con, "alice", "releases") == [] and con.execute("SELECT count(*) FROM dpsql.ledger").fetchall() == before
    shown = con.execute("SELECT schema_name FROM duckdb_schemas() WHERE schema_name = 'hers'").fetchall()
    assert shown == []


def test_what_she_asks_of_a_linked_table_is_charged_to_her_grant_of_the_root(con):
    synthesize(con)
    con.execute("CALL dp_grant('patients', analyst := 'eve', epsilon := 1, per_query := 0.5)")
    asked = {"source": "visits", "columns": ["cost"], "epsilon": 0.4}
    for analyst in ("alice", "eve"):
        assert len(ask(con, analyst, "marginals", **asked)) >= 4
        assert len(ask(con, analyst, "marginals", **asked)) >= 4  # free the second time
        (row,) = named(con, analyst, "budget")
        assert (row["source"], row["releases"]) == ("main.patients", 1) and 0.39 < row["epsilon_spent"] <= 0.41
    entries = con.execute("SELECT source, action, who FROM dpsql.ledger WHERE who LIKE 'analyst:%' AND action IN ('charge', 'use')").fetchall()
    assert sorted(entries) == [("main.patients", "charge", "analyst:alice"), ("main.patients", "use", "analyst:eve")]
    with pytest.raises(GrantExceeded):
        ask(con, "eve", "marginals", **{**asked, "epsilon": 0.6, "release": "second"})
    joined = "SELECT count(*) FROM visits v JOIN patients p USING (patient_id)"
    with pytest.raises(GrantExceeded):
        ask(con, "alice", "query", sql=joined, epsilon=0.99)
    con.execute("CALL dp_grant('patients', analyst := 'alice', epsilon := 1, columns := ['sex', 'patient_id'])")
    for text in (joined, "SELECT count(*) FROM visits", "SELECT count(*) FROM patients p WHERE EXISTS (SELECT 1 FROM visits v WHERE v.patient_id = p.patient_id)"):
        with pytest.raises(DpsqlError, match="no such table"):
            ask(con, "alice", "query", sql=text, epsilon=0.1)
