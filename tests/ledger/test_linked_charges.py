"""Releases over links, killed between the charge and the reading, rolled back, bought by threads: the root's books stay true."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from linked_tables import link_patients, make_patients
from victims import killed, nursery

import dpsql

pytestmark = pytest.mark.any_duckdb

JOINED = "SELECT p.sex, v.cost FROM visits v JOIN patients p USING (patient_id)"
CALLS = {
    "a query": "FROM dp_query('SELECT p.sex, avg(v.cost) FROM visits v JOIN patients p USING (patient_id) GROUP BY p.sex', epsilon := 0.1, max_rows := 20{})",
    "marginals": f"FROM dp_marginals('{JOINED}', columns := ['sex', 'cost'], epsilon := 0.1{{}})",
    "synthetic rows": f"FROM dp_synthesize('{JOINED}', epsilon := 0.1{{}}, options := {{{{'steps': 2}}}})",
    "a linked table alone": "FROM dp_marginals('procedures', columns := ['code'], epsilon := 0.1{})",
}
PLACES = {
    "before the charge is written": ("dpsql.books.ledger", "Ledger.charge"),
    "charged, nothing read": ("dpsql.purchase.buying", "measure"),
    "while rows are read": ("dpsql.kinds.measures", "measure"),
}
MODULES = ("dpsql.answers.tables", "dpsql.answers.query", "dpsql.kinds.query.measure", "dpsql.kinds.tables.measure", "dpsql.rows.drawing")


def opened(path: Path) -> duckdb.DuckDBPyConnection:
    con = duckdb.connect(str(path))
    dpsql.load(con, progress=False)
    return con


@pytest.fixture(scope="module")
def victims() -> Iterator[subprocess.Popen[str]]:
    with nursery(MODULES) as process:
        yield process


@pytest.fixture(scope="module")
def declared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database file with linked tables, of which nothing was bought."""
    path = tmp_path_factory.mktemp("linked") / "clinic.duckdb"
    with duckdb.connect(str(path)) as con:
        make_patients(con, 300)
        dpsql.load(con, progress=False)
        link_patients(con)
        con.execute("CALL dp_declare('patients', 'sex', categories := ['f', 'm'])")
        con.execute("CALL dp_declare('visits', 'cost', lower := 0, upper := 100, bins := 4)")
        con.execute("CALL dp_declare('procedures', 'code', categories := ['c0', 'c1', 'c2', 'c3', 'c4', 'c5', 'c6'])")
    return path


@pytest.fixture
def path(declared: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    there = tmp_path / "clinic.duckdb"
    there.write_bytes(declared.read_bytes())
    return there


def books(con: duckdb.DuckDBPyConnection) -> list[str]:
    """Return what was charged, stored or has failed, all of it on the root's ledger, whose chain holds."""
    assert con.execute("SELECT source, chain_holds, starts_with(books, 'intact') FROM dp_budget()").fetchall() == [("main.patients", True, True)]
    rows = con.execute("SELECT source, action FROM dpsql.ledger WHERE action IN ('charge', 'store', 'fail') ORDER BY entry ASC").fetchall()
    assert {source for source, _ in rows} <= {"main.patients"}
    return [action for _, action in rows]


@pytest.mark.parametrize(
    ("asked", "place"), [("a query", "before the charge is written"), *((asked, place) for place in list(PLACES)[1:] for asked in CALLS)]
)
def test_a_killed_release_over_links_has_paid_once_or_not_at_all(victims, path, asked, place):
    call = CALLS[asked].format("")
    killed(victims, path, *PLACES[place], 1, call)
    with opened(path) as con:
        charged = place != "before the charge is written"
        assert books(con) == ["charge"] * charged
        spent = con.execute("SELECT epsilon_spent FROM dp_budget('procedures')").fetchall()
        assert spent == con.execute("SELECT epsilon_spent FROM dp_budget('patients')").fetchall() and (spent[0][0] > 0) == charged
        if place == "while rows are read" and asked != "a linked table alone":  # nobody can tell whether a row has killed it
            with pytest.raises(duckdb.Error, match="final result"):
                con.execute(call)
            with pytest.raises(duckdb.Error, match="until the custodian"):
                con.execute(CALLS["a query"].format(", release := 'another'"))
            assert books(con) == ["charge", "fail"]
            assert con.execute(CALLS["a linked table alone"].format("")).fetchall()  # which a row cannot make fail
            assert books(con) == ["charge", "fail", "charge", "store"]
            return
        first = con.execute(call).fetchall()
        assert first or asked == "synthetic rows"  # of which noise may leave none
        assert books(con) == ["charge", "store"]
        assert con.execute(call).fetchall() == first and books(con) == ["charge", "store"]


@pytest.mark.parametrize("asked", ["a query", "marginals", "a linked table alone"])
def test_a_rollback_does_not_refund_what_was_bought_over_links(path, asked):
    with opened(path) as con:
        con.execute("BEGIN")
        first = con.execute(CALLS[asked].format("")).fetchall()
        con.execute("ROLLBACK")
        assert books(con) == ["charge", "store"]
        assert con.execute(CALLS[asked].format("")).fetchall() == first
        assert books(con) == ["charge", "store"]


def test_threads_that_buy_over_children_of_one_root_cannot_overspend_it(path):
    """Half of them ask of one child, half of the other: all are charged to the root, whose budget covers ten of sixteen."""
    outcomes: list[str] = []
    with opened(path) as con:
        con.execute("CALL dp_protect('patients', epsilon := 1, accountant := 'basic')")
        start = threading.Barrier(4)

        def work(cursor: duckdb.DuckDBPyConnection, number: int) -> None:
            source, column = [("visits", "cost"), ("procedures", "code")][number % 2]
            start.wait()
            for step in range(4):
                call = f"dp_marginals('{source}', columns := ['{column}'], epsilon := 0.1, mechanism := 'laplace', release := '{number}-{step}')"
                try:
                    cursor.execute(f"FROM {call}").fetchall()
                    outcomes.append(source)
                except duckdb.Error as error:
                    outcomes.append("refused" if "exceeded" in str(error) else str(error))

        threads = [threading.Thread(target=work, args=(con.cursor(), number)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert outcomes.count("visits") + outcomes.count("procedures") == 10 and outcomes.count("refused") == 6, outcomes
        assert sorted(books(con)) == ["charge"] * 10 + ["store"] * 10
        read = con.execute("SELECT DISTINCT parameters ->> '$.linked.root' FROM dp_ledger('visits') WHERE action = 'charge'").fetchall()
        assert read == [("main.patients",)]
        assert con.execute("SELECT DISTINCT epsilon_left FROM dp_budget()").fetchall() == [(0.0,)]
