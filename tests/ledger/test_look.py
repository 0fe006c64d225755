"""A call looks at a book once: what was written after the look decides all the same, and nobody gets another one's release."""

from __future__ import annotations

from decimal import Decimal

import duckdb
import pytest
from sample_tables import make_people, protect_people

import dpsql
from dpsql.books import chain
from dpsql.books.book import Look
from dpsql.books.entries import Protection
from dpsql.books.ledger import Ledger
from dpsql.books.schema import Books
from dpsql.calls.buying import BuyingCall
from dpsql.errors import LedgerError
from dpsql.protected.source import ProtectedSource
from dpsql.purchase import uses

TABLE = "FROM dp_marginals('people', columns := ['sex'], epsilon := {}, release := 'one name')"


@pytest.fixture
def con():
    con = duckdb.connect()
    make_people(con, 100)
    dpsql.load(con)
    protect_people(con)
    con.execute("FROM dp_marginals('people', columns := ['sex'], epsilon := 0.1, release := 'a')").fetchall()
    yield con
    con.close()


def looked(con: duckdb.DuckDBPyConnection) -> Ledger:
    """A ledger of a call that has looked."""
    ledger = Ledger(Books(con.cursor(), "memory"), "main.people", "tester")
    with ledger.whole():
        pass
    ledger.look()
    assert ledger._look is not None
    return ledger


def charge(ledger: Ledger, release: str) -> None:
    from dpsql.accounting import Charge

    held = ledger.protection()
    assert isinstance(held, Protection)
    cost = Charge(rho=Decimal("0.001"), epsilon=Decimal("0.01"), delta=Decimal(0), events=(), gaussian=True)
    ledger.charge(
        release, operation="query", query="main.people", parameters={"epsilon": 0.01}, plan={}, charge=cost, planned=held,
        versions={}, advice="",
    )


def statements(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements that a ledger sends from now on."""
    sent: list[str] = []
    cursor = ledger.books.cursor

    class Noting:
        def execute(self, text: str, *values: object) -> duckdb.DuckDBPyConnection:
            sent.append(text)
            return cursor.execute(text, *values)

    monkeypatch.setattr(ledger.books, "cursor", Noting())
    return sent


def test_what_was_looked_at_is_not_asked_again(con, monkeypatch):
    ledger = looked(con)
    sent = statements(ledger, monkeypatch)
    there = ledger.protection(), ledger.stopped(), ledger.interruptions(), ledger.purchase("not there"), ledger.links()
    assert sent == []
    fresh = Ledger(Books(con.cursor(), "memory"), "main.people", "tester")
    assert there == (fresh.protection(), fresh.stopped(), fresh.interruptions(), fresh.purchase("not there"), fresh.links())


def test_a_call_knows_its_own_entries(con, monkeypatch):
    ledger = looked(con)
    charge(ledger, "mine")
    sent = statements(ledger, monkeypatch)
    held = ledger.purchase("mine")
    assert held is not None and held.status == "charged" and sent == []
    fresh = Ledger(Books(con.cursor(), "memory"), "main.people", "tester")
    assert held == fresh.purchase("mine")
    stored = ledger.mark("mine", "store", "0" * 64)
    assert [text.split()[0] for text in sent if "duckdb_databases" not in text] == ["BEGIN", "INSERT", "COMMIT"]
    assert stored == fresh.purchase("mine") == ledger.purchase("mine")
    assert ledger.entries_of("mine") == fresh.entries_of("mine")
    assert ledger._last() == fresh._last() and ledger.chain_holds()


@pytest.mark.parametrize("outcome", ["store", "fail", "refund"])
def test_an_outcome_that_another_session_has_written_is_the_outcome(con, outcome):
    mine = looked(con)
    charge(mine, "both")
    theirs = Ledger(Books(con.cursor(), "memory"), "main.people", "tester")
    theirs.mark("both", outcome, "1" * 64 if outcome == "store" else None)
    assert mine.mark("both", "store", "0" * 64) is None
    mine.look()
    there = mine.purchase("both")
    assert (None if there is None else (there.status, there.contents)) == {
        "store": ("stored", "1" * 64), "fail": ("failed", None), "refund": None
    }[outcome]
    assert con.execute("SELECT count(*) FROM dpsql.ledger WHERE release = 'both'").fetchone() == (2,)


def test_an_outcome_is_written_after_what_others_have_bought_meanwhile(con):
    mine = looked(con)
    charge(mine, "mine")
    charge(Ledger(Books(con.cursor(), "memory"), "main.people", "tester"), "theirs")
    held = mine.mark("mine", "store", "0" * 64)
    assert held is not None and held.status == "stored" and mine.chain_holds()
    assert con.execute("SELECT action, release FROM dpsql.ledger ORDER BY entry DESC LIMIT 3").fetchall() == [
        ("store", "mine"), ("charge", "theirs"), ("charge", "mine")
    ]


def test_a_look_that_is_old_buys_nothing_twice(con):
    mine = looked(con)
    charge(Ledger(Books(con.cursor(), "memory"), "main.people", "tester"), "both")
    assert mine.purchase("both") is None  # as it looked
    with pytest.raises(LedgerError, match="charged already"):
        charge(mine, "both")


def test_nothing_is_kept_of_what_was_not_committed(con):
    ledger = looked(con)
    charge(ledger, "mine")

    def fails() -> None:
        ledger._insert({"action": "store", "release": "mine", "contents": "0" * 64})
        raise KeyError

    with pytest.raises(KeyError):
        ledger._append(fails, few=True)
    assert ledger._look is None and ledger.purchase("mine").status == "charged"
    assert ledger.mark("mine", "store", "0" * 64).status == "stored" and ledger.chain_holds()


@pytest.mark.parametrize("change", ["DELETE FROM dpsql.ledger", "UPDATE dpsql.ledger SET hash = 'x' WHERE entry = 3"])
def test_another_book_is_not_taken_for_the_one_that_is_known(con, change):
    assert looked(con)._look is not None
    con.execute(change)
    ledger = Ledger(Books(con.cursor(), "memory"), "main.people", "tester")
    ledger.look()
    assert ledger._look is None


def test_an_entry_that_does_not_follow_is_no_part_of_a_look(con):
    assert looked(con)._look is not None
    con.execute("INSERT INTO dpsql.ledger BY NAME SELECT * REPLACE (entry + 1 AS entry) FROM dpsql.ledger WHERE entry = 3")
    ledger = Ledger(Books(con.cursor(), "memory"), "main.people", "tester")
    ledger.look()
    assert ledger._look is None and not ledger.chain_holds()


def test_entries_that_were_not_read_are_looked_at_anew(con):
    ledger = looked(con)
    charge(Ledger(Books(con.cursor(), "memory"), "main.people", "tester"), "theirs")
    ledger.look()
    assert isinstance(ledger._look, Look) and ledger._look.last[0] == 4
    assert chain._known["memory", "main.people"].last[0] == 4  # the next call begins there


def test_nothing_is_read_again_where_nobody_has_written(con, monkeypatch):
    ledger = looked(con)
    charge(ledger, "mine")
    sent = statements(ledger, monkeypatch)
    ledger.look()
    assert sent == []
    protect_people(con, epsilon=20)
    ledger.look()
    assert len(sent) == 1 and ledger.protection().budget.epsilon == 20


def test_a_link_is_seen_by_looks_at_both_books(con):
    con.execute("CREATE TABLE patients(patient INTEGER PRIMARY KEY); CREATE TABLE visits(patient INTEGER)")
    con.execute("CALL dp_protect('patients', epsilon := 1, delta := 1e-9, privacy_unit := 'patient')")
    link = "CALL dp_link('visits', 'patient', parent := 'patients', max_rows := {})"
    con.execute(link.format(3))
    ledgers = [Ledger(Books(con.cursor(), "memory"), source, "tester") for source in ("main.patients", "main.visits")]
    for ledger in ledgers:
        with ledger.whole():
            pass
        ledger.look()
    con.execute("CALL dp_unlink('visits')")
    for ledger in ledgers:
        ledger.look()
    assert ledgers[0].links() == {} and ledgers[1].is_unlinked()
    con.execute(link.format(4))
    for ledger in ledgers:
        ledger.look()
    assert ledgers[0].links()["main.visits"].max_rows == 4 and not ledgers[1].is_unlinked()


def test_a_name_that_another_call_has_taken_meanwhile_is_not_shown_for_this_question(con, monkeypatch):
    """Between the look of a call and its purchase another session buys something else under the same name."""
    other, asked, done = con.cursor(), uses.asked, []

    def first_another(context: object, protected: ProtectedSource, call: BuyingCall) -> uses.Asked:
        if not done:
            done.append(True)
            other.execute(TABLE.format(0.2)).fetchall()
        return asked(context, protected, call)

    monkeypatch.setattr(uses, "asked", first_another)
    with pytest.raises(duckdb.Error, match=r"belongs to another call|was bought with"):
        con.execute(TABLE.format(0.3)).fetchall()
    assert con.execute("SELECT count(*) FROM dpsql.ledger WHERE action = 'charge'").fetchone() == (2,)
