"""The books: a hard limit, true under threads, rollbacks, reopening and tampering."""

from __future__ import annotations

import threading
from decimal import Decimal

import duckdb
import pytest
from sample_tables import DELTA, make_people

import dpsql

MARGINALS = "FROM dp_marginals('people', columns := ['sex'], epsilon := {epsilon}, release := '{name}')"


def test_over_budget_fails_before_anything_is_written(con, charges, tmp_path):
    con.execute(MARGINALS.format(epsilon=3.0, name="a"))
    before = con.execute("SELECT count(*) FROM dpsql.ledger").fetchone()
    files = sorted(p.name for p in (tmp_path / "people.duckdb.dpsql").rglob("*"))
    with pytest.raises(duckdb.Error, match=r"budget of main\.people exceeded") as caught:
        con.execute(MARGINALS.format(epsilon=4.5, name="b"))
    assert "is left" in str(caught.value)
    assert con.execute("SELECT count(*) FROM dpsql.ledger").fetchone() == before
    assert sorted(p.name for p in (tmp_path / "people.duckdb.dpsql").rglob("*")) == files
    assert charges() == 1


def test_the_whole_budget_can_be_spent_at_once_and_nothing_after(con):
    con.execute(MARGINALS.format(epsilon=5.0, name="all"))
    spent, left = con.execute("SELECT epsilon_spent, epsilon_left FROM dp_budget('people')").fetchone()
    assert 4.99 < spent <= 5.0
    assert left >= 0
    with pytest.raises(duckdb.Error, match="exceeded"):
        con.execute(MARGINALS.format(epsilon=0.01, name="more"))


def test_threads_cannot_overspend_together(tmp_path):
    con = duckdb.connect(str(tmp_path / "busy.duckdb"))
    make_people(con, 50)
    dpsql.load(con)
    con.execute("CALL dp_protect('people', epsilon := 2.0, accountant := 'basic')")
    outcomes: list[str] = []

    def work(cursor: duckdb.DuckDBPyConnection, number: int) -> None:
        for step in range(5):
            query = (
                "FROM dp_marginals('people', columns := ['sex'], epsilon := 0.1, mechanism := 'laplace', "
                f"release := 't{number}s{step}')"
            )
            try:
                cursor.execute(query).fetchall()
                outcomes.append("bought")
            except duckdb.Error as error:
                outcomes.append("refused" if "exceeded" in str(error) else str(error))

    threads = [threading.Thread(target=work, args=(con.cursor(), number)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(set(outcomes)) == ["bought", "refused"]
    assert outcomes.count("bought") == 20
    assert con.execute("SELECT count(*), sum(epsilon) FROM dpsql.ledger WHERE action = 'charge'").fetchone() == (20, Decimal(2))
    assert con.execute("SELECT epsilon_left, chain_holds FROM dp_budget()").fetchone() == (0.0, True)
    con.close()


def test_two_cursors_that_decided_on_the_same_books_cannot_both_write(con):
    """Without the process-wide lock: the primary key alone keeps the books true."""
    from dpsql.accounting import Budget
    from dpsql.books.ledger import Ledger, Protection
    from dpsql.books.schema import Books

    ledgers = [Ledger(Books(con.cursor(), "people"), "main.people", "t") for _ in range(2)]
    for ledger in ledgers:
        ledger.books.cursor.execute("BEGIN")
        assert ledger.protection() is not None
    ledgers[0]._insert({"action": "raise"})
    ledgers[0].books.cursor.execute("COMMIT")
    with pytest.raises(duckdb.Error):
        ledgers[1]._insert({"action": "raise"})
        ledgers[1].books.cursor.execute("COMMIT")
    assert Budget and Protection


def test_a_rollback_does_not_refund(con, charges):
    con.execute("BEGIN")
    con.execute(MARGINALS.format(epsilon=1.0, name="x"))
    con.execute("ROLLBACK")
    assert charges() == 1


def test_reopening_keeps_the_books_and_the_release(con, tmp_path):
    first = con.execute(MARGINALS.format(epsilon=1.0, name="x")).fetchall()
    con.close()
    again = duckdb.connect(str(tmp_path / "people.duckdb"))
    dpsql.load(again)
    assert again.execute(MARGINALS.format(epsilon=1.0, name="x")).fetchall() == first
    assert again.execute("SELECT count(*) FROM dpsql.ledger WHERE action = 'charge'").fetchone() == (1,)
    again.close()


@pytest.mark.parametrize(
    "edit",
    [
        "UPDATE dpsql.ledger SET rho = 0 WHERE action = 'charge'",
        "UPDATE dpsql.ledger SET epsilon = 1000 WHERE action = 'protect'",
        "DELETE FROM dpsql.ledger WHERE action = 'charge'",
        "UPDATE dpsql.ledger SET who = 'somebody else' WHERE entry = 2",
        "UPDATE dpsql.ledger SET written_at = written_at + INTERVAL 1 SECOND WHERE entry = 1",
    ],
)
def test_an_edited_book_shows_and_stops_sales(con, edit):
    for name in "ab":
        con.execute(MARGINALS.format(epsilon=0.5, name=name))
    assert con.execute("SELECT bool_and(chain_holds) FROM dp_ledger()").fetchone() == (True,)
    if edit.startswith("DELETE"):
        edit += " AND entry = (SELECT min(entry) FROM dpsql.ledger WHERE action = 'charge')"
    con.execute(edit)
    assert con.execute("SELECT bool_and(chain_holds) FROM dp_ledger()").fetchone() == (False,)
    assert con.execute("SELECT chain_holds FROM dp_budget('people')").fetchone() == (False,)
    with pytest.raises(duckdb.Error, match="was edited"):
        con.execute(MARGINALS.format(epsilon=0.5, name="c"))
    con.execute("CREATE OR REPLACE VIEW dpsql.chain AS SELECT source, entry, true AS holds FROM dpsql.ledger")
    assert con.execute("SELECT bool_and(chain_holds) FROM dp_ledger()").fetchone() == (False,)


def test_raising_and_lowering_are_on_the_ledger(con):
    def change(epsilon: float, **more: object) -> str:
        given = "".join(f", {k} := {v!r}" for k, v in more.items())
        return con.execute(f"SELECT change FROM dp_protect('people', epsilon := {epsilon}, delta := {DELTA}{given})").fetchone()[0]

    assert change(5.0) == change(5.0) == "protect"
    assert change(6.0) == "raise"
    con.execute(MARGINALS.format(epsilon=3.0, name="a"))
    assert change(4.0) == "lower"
    with pytest.raises(duckdb.Error, match="below what"):
        change(1.0)
    with pytest.raises(duckdb.Error, match="do not add up"):
        change(4.0, neighbors="replace_one")
    with pytest.raises(duckdb.Error, match="do not add up"):
        change(4.0, accountant="basic")
    actions = [row[0] for row in con.execute("SELECT action FROM dpsql.ledger ORDER BY entry").fetchall()]
    assert actions == ["protect", "raise", "charge", "store", "lower"]


def test_every_entry_says_who_what_and_under_which_contract(con):
    con.execute(MARGINALS.format(epsilon=1.0, name="x"))
    row = con.execute(
        "SELECT who, operation, query, neighbors, accountant, rho > 0, epsilon, parameters, events, versions "
        "FROM dp_ledger('people') WHERE action = 'charge'"
    ).fetchone()
    assert row[:6] == ("tester", "marginals", "main.people", "add_remove", "zcdp", True)
    assert row[6] == pytest.approx(1.0, rel=1e-3)
    assert '"columns":["sex"]' in row[7]
    assert '"sigma"' in row[8] or "sigma" in row[8]
    assert duckdb.__version__ in row[9]


def test_basic_accountant_adds_epsilon_and_delta(tmp_path):
    con = duckdb.connect()
    make_people(con)
    dpsql.load(con)
    con.execute("CALL dp_protect('people', epsilon := 1.0, delta := 1e-9, accountant := 'basic')")
    with pytest.raises(duckdb.Error, match="name the release's share"):
        con.execute("FROM dp_marginals('people', columns := ['sex'], epsilon := 0.4)")
    con.execute("FROM dp_marginals('people', columns := ['sex'], epsilon := 0.4, delta := 1e-9)")
    con.execute("FROM dp_marginals('people', columns := ['sex'], epsilon := 0.6, mechanism := 'laplace', release := 'b')")
    spent = con.execute("SELECT epsilon_spent, delta_spent, epsilon_left FROM dp_budget('people')").fetchone()
    assert spent == pytest.approx((1.0, 1e-9, 0.0), abs=1e-12)
    con.close()


def test_a_failure_before_any_row_was_read_is_refunded(con, charges, monkeypatch):
    from dpsql.release import store

    def fail(*_: object) -> None:
        raise OSError("disk gone")

    monkeypatch.setattr(store, "remove_leftovers", fail)
    with pytest.raises((duckdb.Error, OSError), match="disk gone"):
        con.execute(MARGINALS.format(epsilon=1.0, name="x"))
    monkeypatch.undo()
    assert con.execute("SELECT epsilon_spent, releases FROM dp_budget('people')").fetchone() == (0.0, 0)
    con.execute(MARGINALS.format(epsilon=1.0, name="x"))
    assert charges() == 2  # one refunded, one in force
    assert con.execute("SELECT releases, chain_holds FROM dp_budget('people')").fetchone() == (1, True)


def test_a_failure_after_reading_is_the_final_result_of_its_charge(con, charges, monkeypatch):
    from dpsql.release import store

    def fail(*_: object, **__: object) -> None:
        raise duckdb.IOException("disk full at value 'north'")

    monkeypatch.setattr(store, "write", fail)
    with pytest.raises(duckdb.Error, match="the text is withheld") as caught:
        con.execute(MARGINALS.format(epsilon=1.0, name="x"))
    assert "north" not in str(caught.value)
    monkeypatch.undo()
    assert con.execute("SELECT status FROM dp_releases()").fetchall() == [("failed",)]
    with pytest.raises(duckdb.Error) as again:
        con.execute(MARGINALS.format(epsilon=1.0, name="x"))
    assert str(again.value).split("\n")[0] == str(caught.value).split("\n")[0]
    assert charges() == 1
    assert con.execute("SELECT status FROM dpsql.releases").fetchall() == [("failed",)]
    assert con.execute("SELECT releases FROM dp_budget()").fetchone() == (1,)


def test_raising_a_budget_keeps_the_privacy_unit(tmp_path):
    con = duckdb.connect()
    make_people(con)
    dpsql.load(con)
    con.execute("CALL dp_protect('people', epsilon := 1, delta := 1e-9, privacy_unit := 'person', max_contributions := 3)")
    row = con.execute("FROM dp_protect('people', epsilon := 2)").fetchone()
    assert row[1:] == (2.0, 1e-9, "add_remove", "person", 3, "zcdp", "raise")
    con.execute(MARGINALS.format(epsilon=1.0, name="a"))
    row = con.execute("FROM dp_protect('people', epsilon := 3)").fetchone()
    assert row[1:] == (3.0, 1e-9, "add_remove", "person", 3, "zcdp", "raise")
    with pytest.raises(duckdb.Error, match=r"The present one is epsilon := 3, delta := 1e-09"):
        con.execute("CALL dp_protect('people', epsilon := 0.5)")
    con.close()


def test_the_plan_says_when_the_name_is_taken(con):
    con.execute(MARGINALS.format(epsilon=1.0, name="default"))
    plan = "SELECT bought, notes FROM dp_plan('people', columns := ['sex'], k := 1, epsilon := {}, release := 'default')"
    assert con.execute(plan.format(1.0)).fetchone() == (True, ["counts are noisy: small ones may come out negative"])
    bought, notes = con.execute(plan.format(0.5)).fetchone()
    assert not bought
    assert "bought with epsilon = 1.0: this call would fail" in notes[0]


def test_a_delta_that_promises_nothing_is_refused(con):
    """With a half for everybody, an answer for epsilon 0.1 was the exact count of ten rows."""
    make_people(con, 10)
    con.execute("CREATE TABLE others AS FROM people")
    for delta in (0.5, 0.0011, 0.999):
        with pytest.raises(duckdb.Error, match=rf"delta = {delta}: is the probability with which nothing is promised"):
            con.execute(f"CALL dp_protect('others', epsilon := 3, delta := {delta})")
    con.execute("CALL dp_protect('others', epsilon := 3, delta := 0.001)")
    with pytest.raises(duckdb.Error, match="delta = 0.01: is the probability"):
        con.execute("CALL dp_protect('others', delta := 0.01)")
    con.execute("CALL dp_protect('others', epsilon := 2)")
    assert con.execute("SELECT epsilon, delta FROM dp_budget('others')").fetchall() == [(2.0, 0.001)]
