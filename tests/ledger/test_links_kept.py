"""Links stay what they are: rolled back, killed, by threads, attached under another name, read-only, edited, and older books."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import duckdb
import pytest
from analysts import instance_of
from linked_tables import PROCEDURES, PROTECT, VISITS, link_patients, make_patients

import dpsql
from dpsql.accounting import charge_for
from dpsql.accounting.events import GaussianEvent
from dpsql.books.ledger import Ledger
from dpsql.books.linked import Link, Reads
from dpsql.books.links import Links
from dpsql.books.schema import Books
from dpsql.errors import ArgumentError, LedgerError
from dpsql.protected.linked import lineage_of, reads_of
from dpsql.purchase import buying as purchase_buying
from dpsql.session.instance import open_context
from dpsql.source.model import TableId

pytestmark = pytest.mark.any_duckdb


@pytest.fixture
def con(tmp_path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    connection = duckdb.connect(str(tmp_path / "clinic.duckdb"))
    make_patients(connection)
    dpsql.load(connection, user="tester")
    connection.execute(PROTECT)
    connection.execute("CALL dp_declare('patients', 'sex', categories := ['f', 'm'])")
    yield connection
    connection.close()


def test_a_rollback_takes_no_link_back(con):
    con.execute("BEGIN")
    con.execute(VISITS)
    con.execute("ROLLBACK")
    assert con.execute("SELECT source FROM dp_links()").fetchall() == [("main.visits",)]
    assert con.execute("SELECT bool_and(chain_holds) FROM dp_ledger()").fetchall() == [(True,)]


def test_a_table_of_an_open_transaction_is_not_there_yet(con):
    con.execute("BEGIN")
    con.execute("CREATE TABLE stays (patient_id INTEGER)")
    with pytest.raises(duckdb.Error, match="COMMIT"):
        con.execute("CALL dp_link('stays', 'patient_id', parent := 'patients', max_rows := 1)")
    con.execute("ROLLBACK")


def test_threads_link_each_table_once_and_nobody_protects_it_meanwhile(con):
    """Twelve threads link, change and protect the same tables: of each table one of the two happened, and the books hold."""
    statements = [
        VISITS, VISITS.replace("20", "7"), "CALL dp_protect('visits', epsilon := 1, delta := 1e-9)",
        "CALL dp_link('stays', 'patient_id', parent := 'patients', max_rows := 1)", "CALL dp_protect('stays', epsilon := 1, delta := 1e-9)",
        "CALL dp_protect('patients', epsilon := 4)",
    ] * 2  # fmt: skip
    con.execute("CREATE TABLE stays (patient_id INTEGER)")
    refused, barrier = [], threading.Barrier(len(statements))

    def run(statement: str) -> None:
        cursor = con.cursor()
        barrier.wait()
        try:
            cursor.execute(statement)
        except duckdb.Error as error:
            refused.append(str(error))

    threads = [threading.Thread(target=run, args=(statement,)) for statement in statements]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all("is linked" in text for text in refused), refused
    assert con.execute("SELECT bool_and(chain_holds) FROM dp_ledger()").fetchall() == [(True,)]
    linked = con.execute("SELECT source, root FROM dp_links()").fetchall()
    assert sorted(linked) == [("main.stays", "main.patients"), ("main.visits", "main.patients")]  # nothing was spent of a budget
    assert con.execute("SELECT source FROM dp_budget()").fetchall() == [("main.patients",)]
    assert con.execute("SELECT count(*) FROM dpsql.ledger WHERE action = 'linked'").fetchall() == [(2,)]


KILLED = """
import os, signal, sys, duckdb, dpsql
from dpsql.books import anchor, chain
con = duckdb.connect(sys.argv[1])
dpsql.load(con)
written = []
insert = chain.Chain._insert
def counted(self, *given):
    made = insert(self, *given)
    written.append(self.source)
    if len(written) == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
    return made
chain.Chain._insert = counted
con.execute(sys.argv[3])
con.close()
"""


@pytest.mark.parametrize("entry", [1, 2])
def test_a_kill_between_the_two_entries_leaves_none_of_them(con, tmp_path, entry):
    con.execute(f"CALL dp_protect('patients', anchor := '{tmp_path / 'heads'}')")
    con.close()
    path = tmp_path / "clinic.duckdb"
    killed = subprocess.run([sys.executable, "-P", "-c", KILLED, path, str(entry), VISITS], check=False, env={**os.environ})
    assert killed.returncode == -signal.SIGKILL
    with duckdb.connect(str(path)) as again:
        dpsql.load(again)
        assert again.execute("FROM dp_links()").fetchall() == []
        assert again.execute("SELECT count(*) FROM dpsql.ledger WHERE action LIKE 'link%'").fetchall() == [(0,)]
        again.execute(VISITS)
        again.execute(PROCEDURES)
        assert again.execute("SELECT bool_and(chain_holds), any_value(books) FROM dp_budget()").fetchall() == [(True, "intact")]


def test_both_anchors_know_their_entries(con, tmp_path):
    """The table had a budget and an anchor of its own, which is told that it is linked, too."""
    con.execute(f"CALL dp_protect('patients', anchor := '{tmp_path / 'root'}')")
    con.execute(f"CALL dp_protect('visits', epsilon := 1, delta := 1e-9, anchor := '{tmp_path / 'own'}')")
    con.execute(VISITS)
    for name, source in (("root", "main.patients"), ("own", "main.visits")):
        head = con.execute("SELECT arg_max(hash, entry) FROM dpsql.ledger WHERE source = ?", [source]).fetchone()
        assert head is not None and (tmp_path / name).read_text(encoding="utf-8").count(str(head[0])) == 2
    assert con.execute("SELECT books FROM dp_budget()").fetchall() == [("intact",)]


def test_a_file_has_its_links_under_another_name(con, tmp_path):
    link_patients(con)
    con.close()
    with duckdb.connect() as other:
        dpsql.load(other)
        other.execute(f"ATTACH '{tmp_path / 'clinic.duckdb'}' AS \"Ward 1\"")
        assert other.execute("SELECT source, root FROM dp_links()").fetchall() == [
            ("main.visits", "main.patients"), ("main.procedures", "main.patients"),
        ]  # fmt: skip
        assert other.execute("SELECT source FROM dp_budget('\"Ward 1\".visits')").fetchall() == [("main.patients",)]
        with open_context(instance_of(other), "memory", "main") as context:
            found = lineage_of(context, TableId("Ward 1", "main", "procedures"))
        assert found is not None and found.root == TableId("Ward 1", "main", "patients")
        other.execute("CREATE TABLE stays (patient_id INTEGER)")
        with pytest.raises(duckdb.Error, match="one budget is in one database"):
            other.execute("CALL dp_link('stays', 'patient_id', parent := '\"Ward 1\".patients', max_rows := 1)")
        other.execute("CALL dp_link('\"Ward 1\".visits', max_rows := 3)")
        assert other.execute("SELECT max_rows FROM dp_links('\"Ward 1\".visits')").fetchall() == [(3,)]


def test_a_file_that_is_read_only_shows_its_links_and_takes_none(con, tmp_path):
    con.execute(VISITS)
    con.close()
    with duckdb.connect(str(tmp_path / "clinic.duckdb"), read_only=True) as reading:
        dpsql.load(reading)
        assert reading.execute("SELECT source FROM dp_links('visits')").fetchall() == [("main.visits",)]
        assert reading.execute("SELECT source FROM dp_budget('visits')").fetchall() == [("main.patients",)]
        with pytest.raises(duckdb.Error, match="read-only"):
            reading.execute(PROCEDURES)


# -- what a charge is told, and edited books -------------------------------------------------------------------------------------


def charge(con: duckdb.DuckDBPyConnection, reads: Reads, name: str = "r") -> None:
    """Charge the root as a release of these tables would."""
    ledger = Ledger(Books(con.cursor(), "clinic"), "main.patients", "tester")
    protection = ledger.protection()
    assert protection is not None
    ledger.charge(
        name, operation="marginals", query="q", parameters={"epsilon": 0.1}, plan={}, planned=protection, versions={}, advice="",
        charge=charge_for([GaussianEvent(Fraction(100), 1.0, 1)], delta=1e-9, accountant="zcdp"), reads=reads,
    )  # fmt: skip


def planned(con: duckdb.DuckDBPyConnection, *tables: str) -> Reads:
    with open_context(instance_of(con), "clinic", "main") as context:
        return reads_of(context, [TableId("clinic", "main", name) for name in tables])


def test_a_charge_names_what_it_reads_and_old_entries_stay_as_they_are(con):
    charge(con, planned(con, "patients"), "before")
    link_patients(con)
    charge(con, planned(con, "patients"), "root alone")
    charge(con, planned(con, "procedures"), "chain")
    said = dict(con.execute("SELECT release, parameters FROM dpsql.ledger WHERE action = 'charge'").fetchall())
    assert said["before"] == said["root alone"] == '{"epsilon":0.1}'
    assert said["chain"] == '{"epsilon":0.1,"linked":{"root":"main.patients","tables":["main.procedures"]}}'
    purchase = Ledger(Books(con.cursor(), "clinic"), "main.patients", "tester").purchase("chain")
    assert purchase is not None and purchase.parameters == {"epsilon": 0.1}
    assert purchase.linked == {"root": "main.patients", "tables": ["main.procedures"]}


@pytest.mark.parametrize(
    "changed",
    ["CALL dp_link('visits', max_rows := 3)", "CALL dp_link('visits', orphans := 'unit')",
     "CALL dp_link('procedures', max_rows := 6)", "CALL dp_link('visits', 'doctor', parent := 'patients')"],
)  # fmt: skip
def test_links_that_change_between_plan_and_charge_are_refused(con, changed):
    con.execute("ALTER TABLE visits ADD COLUMN doctor INTEGER")
    link_patients(con)
    reads = planned(con, "procedures", "patients")
    con.execute(changed)
    before = con.execute("SELECT count(*) FROM dpsql.ledger").fetchall()
    with pytest.raises(LedgerError, match="was changed while the call was planned; nothing was charged"):
        charge(con, reads)
    assert con.execute("SELECT count(*) FROM dpsql.ledger").fetchall() == before
    charge(con, planned(con, "procedures", "patients"))


@pytest.mark.parametrize(
    "changed",
    ["CALL dp_link('wards', 'patient_id', parent := 'patients', max_rows := 1)",
     "CALL dp_link('wards', 'patient_id', parent := 'doctors', max_rows := 1)", "CALL dp_protect('wards', epsilon := 1, delta := 1e-9)"],
)  # fmt: skip
def test_a_table_that_was_public_in_the_plan_is_not_at_the_charge(con, monkeypatch, changed):
    """A key of wards is joined as a public table; between plan and charge it is linked, to this root or to another, or protected."""
    con.execute("CREATE TABLE wards (age INTEGER PRIMARY KEY, patient_id INTEGER, ward INTEGER)")
    con.execute("INSERT INTO wards SELECT i, i, i % 3 FROM range(100) t(i)")
    con.execute("CREATE TABLE doctors (id INTEGER PRIMARY KEY); CALL dp_protect('doctors', epsilon := 1, delta := 1e-9)")
    buying, bound = "SELECT p.sex FROM patients p JOIN wards w ON p.age = w.age", []
    bind = purchase_buying._bind

    def linking(*given: object) -> None:
        bound.append(1)
        con.cursor().execute(changed)
        bind(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(purchase_buying, "_bind", linking)
    call = f"FROM dp_marginals('{buying}', columns := ['sex'], epsilon := 0.1)"
    with pytest.raises(duckdb.Error, match=r"main.wards was public while the call was planned, and is .* now; nothing was charged"):
        con.execute(call)
    assert bound and con.execute("SELECT count(*) FROM dpsql.ledger WHERE action = 'charge'").fetchall() == [(0,)]


def test_a_wrong_column_is_mended_until_a_release_has_read_it(con):
    con.execute("ALTER TABLE visits ADD COLUMN doctor INTEGER")
    con.execute(VISITS.replace("'patient_id'", "'doctor'"))
    con.execute(PROCEDURES)
    assert con.execute("SELECT change FROM dp_link('visits', 'patient_id', parent := 'patients')").fetchall() == [("changed",)]
    charge(con, planned(con, "patients"))
    con.execute("CALL dp_link('visits', 'doctor', parent := 'patients')")
    con.execute("CALL dp_link('visits', 'patient_id', parent := 'patients')")
    charge(con, planned(con, "procedures"), "deeper")  # reads visits, too
    with pytest.raises(duckdb.Error, match="Releases have read it under that link"):
        con.execute("CALL dp_link('visits', 'doctor', parent := 'patients')")
    con.execute("CALL dp_link('visits', max_rows := 3)")


@pytest.mark.parametrize(
    ("edit", "told"),
    [
        ("UPDATE dpsql.ledger SET parameters = replace(parameters, ':20', ':0') WHERE action = 'link'", "was edited"),
        ("UPDATE dpsql.ledger SET parameters = '{' WHERE action = 'link'", "was edited"),
        ("UPDATE dpsql.ledger SET parameters = replace(parameters, '\"patients\"', '\"visits\"') WHERE action = 'link'", "was edited"),
        ("DELETE FROM dpsql.ledger WHERE action = 'link'", "is linked"),
    ],
)
def test_an_edited_link_is_noticed_and_the_table_is_not_public(con, edit, told):
    con.execute(VISITS)
    con.cursor().execute(edit)
    for statement in ("FROM dp_marginals('visits', columns := ['cost'], epsilon := 0.1)", "CALL dp_publish('visits')"):
        with pytest.raises(duckdb.Error, match=told):
            con.execute(statement)
    with pytest.raises(duckdb.Error, match=told):
        con.execute("CALL dp_declare('patients', 'sex', categories_from := 'visits.patient_id')")


def test_nobody_who_knows_no_links_takes_a_linked_table_for_public(con):
    """Its own ledger says something, and no budget: what an older dpsql takes for an edited book, and sells nothing of."""
    con.execute(VISITS)
    actions = con.execute("SELECT action FROM dpsql.ledger WHERE source = 'main.visits'").fetchall()
    assert actions == [("linked",)]
    with pytest.raises(LedgerError):
        Ledger(Books(con.cursor(), "clinic"), "main.visits", "tester").protection()


def test_books_refuse_links_whose_root_has_no_budget_and_keys_that_do_not_name_units(con):
    con.execute("CREATE TABLE people (id INTEGER PRIMARY KEY, code INTEGER UNIQUE, mail INTEGER UNIQUE NOT NULL)")
    con.execute("CREATE TABLE trips (person INTEGER, code INTEGER); CREATE TABLE mails (mail INTEGER)")
    con.execute("CALL dp_protect('people', epsilon := 1, delta := 1e-9)")
    with pytest.raises(duckdb.Error, match="may be NULL in main.people, which has no privacy_unit"):
        con.execute("CALL dp_link('trips', 'code', parent := 'people', parent_column := 'code', max_rows := 2)")
    con.execute("CALL dp_link('mails', 'mail', parent := 'people', parent_column := 'mail', max_rows := 2)")
    with pytest.raises(duckdb.Error, match="other links to main.people point to 'mail'"):
        con.execute("CALL dp_link('trips', 'person', parent := 'people', max_rows := 2)")
    links = Links(con.cursor(), "clinic")
    with pytest.raises(ArgumentError, match="circle"):
        links.set(Link(("main", "people"), "id", ("main", "mails"), "mail", 1, "drop", ""), "tester")
