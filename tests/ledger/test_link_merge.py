"""A table that has a budget of its own is linked: what it spent counts as its root's, exactly, or it is refused."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from linked_tables import PROTECT, make_patients

import dpsql
from dpsql.books.ledger import Ledger
from dpsql.books.schema import Books

pytestmark = pytest.mark.any_duckdb

LINK = "CALL dp_link('visits', 'patient_id', parent := 'patients', max_rows := 20{})"
OWN = "CALL dp_protect('visits', epsilon := {}, delta := 1e-9, privacy_unit := 'patient_id', max_contributions := 4)"
BUY = "FROM dp_marginals('{}', columns := ['{}'], epsilon := {}, release := '{}')"


@pytest.fixture
def con(tmp_path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    connection = duckdb.connect(str(tmp_path / "clinic.duckdb"))
    make_patients(connection)
    dpsql.load(connection, user="tester")
    connection.execute(PROTECT)
    connection.execute("CALL dp_declare('patients', 'sex', categories := ['f', 'm'])")
    yield connection
    connection.close()


def protect(con: duckdb.DuckDBPyConnection, statement: str = OWN, epsilon: float = 2.0) -> None:
    con.execute(statement.format(epsilon))
    con.execute("CALL dp_declare('visits', 'cost', lower := 0, upper := 100, bins := 4)")


def spent(con: duckdb.DuckDBPyConnection, table: str) -> tuple[float, float, int]:
    row = con.execute(f"SELECT epsilon_spent, rho_spent, releases FROM dp_budget('{table}')").fetchone()
    assert row is not None
    return row


def ledger(con: duckdb.DuckDBPyConnection, source: str) -> Ledger:
    return Ledger(Books(con.cursor(), "clinic"), source, "tester")


def change(con: duckdb.DuckDBPyConnection, more: str = "") -> str:
    statement = LINK.format(more).replace("CALL", "SELECT change FROM")
    ((found,),) = con.execute(statement).fetchall()
    return str(found)


def test_a_budget_of_which_nothing_is_spent_is_given_up(con):
    protect(con)
    assert change(con) == "linked, its budget is given up"
    assert con.execute("SELECT source FROM dp_budget()").fetchall() == [("main.patients",)]
    assert con.execute("SELECT source FROM dpsql.budgets").fetchall() == [("main.patients",)]
    assert con.execute("SELECT bool_and(chain_holds) FROM dp_ledger()").fetchall() == [(True,)]


def test_what_was_spent_is_added_exactly_as_if_it_had_been_the_roots(con, tmp_path):
    """The root's losses after a merge are those of a root that bought all of it: the same events, summed by the same accountant."""
    protect(con)
    con.execute(BUY.format("patients", "sex", 0.5, "a"))
    con.execute(BUY.format("visits", "cost", 0.75, "b"))
    con.execute(BUY.format("visits", "cost", 0.25, "c"))
    apart = [*ledger(con, "main.patients").charges(), *ledger(con, "main.visits").charges()]
    with pytest.raises(duckdb.Error, match="merge := true"):
        con.execute(LINK.format(""))
    assert spent(con, "visits")[2] == 2  # nothing was written
    assert change(con, ", merge := true") == "merged"
    together = ledger(con, "main.patients").charges()
    key = lambda charge: (charge.rho, charge.epsilon, charge.delta, charge.gaussian, repr(charge.events))  # noqa: E731
    assert sorted(map(key, together)) == sorted(map(key, apart))
    assert spent(con, "visits") == spent(con, "patients") and spent(con, "patients")[2] == 3
    assert spent(con, "patients")[1] == pytest.approx(float(sum(charge.rho for charge in apart)), rel=1e-4)
    assert change(con, ", merge := true") == "in force"
    con.execute("CALL dp_link('visits', max_rows := 3)")  # another entry neither repeats nor forgets them
    assert spent(con, "patients")[2] == 3
    con.close()
    shutil.copytree(tmp_path, tmp_path / "again")
    with duckdb.connect(str(tmp_path / "again/clinic.duckdb")) as again:
        dpsql.load(again)
        assert spent(again, "visits")[2] == 3


def test_what_was_merged_limits_what_can_be_bought(con):
    protect(con)
    con.execute("CALL dp_protect('patients', epsilon := 1)")
    con.execute(BUY.format("visits", "cost", 0.9, "b"))
    con.execute(LINK.format(", merge := true"))
    with pytest.raises(duckdb.Error, match="privacy budget of main.patients exceeded"):
        con.execute(BUY.format("patients", "sex", 0.9, "a"))
    con.execute(BUY.format("patients", "sex", 0.2, "a"))


def test_what_was_bought_before_is_kept(con, tmp_path):
    protect(con)
    con.execute(BUY.format("visits", "cost", 0.75, "b"))
    (name,) = [name for (name,) in con.execute("SELECT release FROM dp_releases('visits')").fetchall()]
    con.execute(LINK.format(", merge := true"))
    listed = con.execute(f"SELECT source, status FROM dp_releases() WHERE release = '{name}'").fetchall()
    assert listed == [("main.visits", "stored")]
    con.execute(f"FROM dp_export('{name}', path := '{tmp_path / 'kept.release'}')")
    con.execute(f"FROM dp_report('{name}', path := '{tmp_path / 'kept.html'}')")
    assert (tmp_path / "kept.release").is_file() and (tmp_path / "kept.html").is_file()


@pytest.mark.parametrize(
    ("own", "more", "why"),
    [
        (OWN.replace(", privacy_unit := 'patient_id', max_contributions := 4", ""), "", "its privacy_unit was None"),
        (OWN.replace("'patient_id'", "'visit_id'"), "", "its privacy_unit was 'visit_id'"),
        (OWN.replace("max_con", "neighbors := 'replace_one', max_con"), "", "its number of rows was taken for public"),
        (OWN.replace("max_con", "accountant := 'basic', max_con"), "", "its accountant is 'basic'"),
        (OWN, ", orphans := 'unit'", "has to be 'drop'"),
    ],
)
def test_losses_of_other_units_are_not_added(con, own, more, why):
    protect(con, own)
    con.execute(BUY.format("visits", "cost", 0.5, "b").replace(")", ", delta := 1e-10)" if "basic" in own else ")"))
    before = con.execute("SELECT count(*) FROM dpsql.ledger").fetchall()
    with pytest.raises(duckdb.Error, match=why):
        con.execute(LINK.format(f", merge := true{more}"))
    assert con.execute("SELECT count(*) FROM dpsql.ledger").fetchall() == before
    assert con.execute("FROM dp_links()").fetchall() == []


def test_a_deeper_table_had_other_units(con):
    con.execute("CALL dp_link('visits', 'patient_id', parent := 'patients', max_rows := 20)")
    con.execute(OWN.format(1).replace("visits", "procedures").replace("'patient_id'", "'visit_id'"))
    con.execute("CALL dp_declare('procedures', 'code', categories := ['c1', 'c2'])")
    con.execute(BUY.format("procedures", "code", 0.5, "b"))
    with pytest.raises(duckdb.Error, match="is not what says whose row a row of main.patients is"):
        con.execute("CALL dp_link('procedures', 'visit_id', parent := 'visits', max_rows := 5, merge := true)")


def test_a_root_that_cannot_pay_is_raised_first(con):
    protect(con)
    con.execute("CALL dp_protect('patients', epsilon := 0.5)")
    con.execute(BUY.format("visits", "cost", 0.75, "b"))
    with pytest.raises(duckdb.Error, match="does not cover what both have spent"):
        con.execute(LINK.format(", merge := true"))
    con.execute("CALL dp_protect('patients', epsilon := 1)")
    assert change(con, ", merge := true") == "merged"
    with pytest.raises(duckdb.Error, match="below what main.patients has spent"):
        con.execute("CALL dp_protect('patients', epsilon := 0.5)")


def test_orphans_stay_out_after_a_merge(con):
    protect(con)
    con.execute(BUY.format("visits", "cost", 0.75, "b"))
    con.execute(LINK.format(", merge := true"))
    with pytest.raises(duckdb.Error, match="after a merge it has to be 'drop'"):
        con.execute("CALL dp_link('visits', orphans := 'unit')")
    with pytest.raises(duckdb.Error, match="one way up"):
        con.execute("CALL dp_link('visits', 'cost', parent := 'patients')")


def test_a_root_of_rows_takes_losses_of_its_key(con):
    """Where each row of the root is a person, the key that links point to says who it is."""
    con.execute("CREATE TABLE people (id INTEGER PRIMARY KEY); CREATE TABLE trips (id INTEGER, cost INTEGER)")
    con.execute("CALL dp_protect('people', epsilon := 2, delta := 1e-9)")
    con.execute(OWN.format(1).replace("visits", "trips").replace("patient_id", "id"))
    con.execute("CALL dp_declare('trips', 'cost', lower := 0, upper := 100, bins := 4)")
    con.execute(BUY.format("trips", "cost", 0.75, "b"))
    con.execute("CALL dp_link('trips', 'id', parent := 'people', max_rows := 4, merge := true)")
    assert spent(con, "people")[2] == 1


def test_an_edited_merge_is_noticed(con):
    protect(con)
    con.execute(BUY.format("visits", "cost", 0.75, "b"))
    con.execute(LINK.format(", merge := true"))
    cursor = con.cursor()
    cursor.execute("UPDATE dpsql.ledger SET parameters = replace(parameters, '\"merged\"', '\"merger\"') WHERE action = 'link'")
    assert con.execute("SELECT chain_holds FROM dp_budget('patients')").fetchall() == [(False,)]
    with pytest.raises(duckdb.Error, match="was edited"):
        con.execute(BUY.format("patients", "sex", 0.2, "a"))


def test_after_a_merge_the_contract_of_the_root_stays_as_after_a_release(con):
    protect(con)
    con.execute(BUY.format("visits", "cost", 0.5, "own"))
    change(con, ", merge := true")
    for other in ("max_contributions := 10", "neighbors := 'replace_one'"):
        with pytest.raises(duckdb.Error, match="has releases already"):
            con.execute(f"CALL dp_protect('patients', {other})")
    con.execute("CALL dp_protect('patients', epsilon := 4)")
