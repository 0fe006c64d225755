"""How long a reading takes may depend on a row: interruptions are counted, and after some of them only plain sources are sold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import duckdb
import pytest
from prepared import beside

import dpsql
from dpsql.books.ledger import MOST_INTERRUPTIONS, Ledger
from dpsql.books.schema import Books
from dpsql.kinds import measures

pytestmark = pytest.mark.any_duckdb
ASK = "FROM dp_query('SELECT count(*) FROM people WHERE age > {}', epsilon := 0.01)"


def interrupted(con: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch, ask: Callable[[], Any]) -> str:
    """Return what a call says whose reading is interrupted, after it has seen the rows."""
    plain = measures.measure

    def late(*given: Any) -> Any:
        plain(*given)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(measures, "measure", late)
        with pytest.raises(duckdb.Error) as caught:
            ask()
    return str(caught.value)


def actions(con: duckdb.DuckDBPyConnection) -> list[str]:
    return [str(row[0]) for row in beside(con).execute("SELECT action FROM dpsql.ledger WHERE entry > 1 ORDER BY entry").fetchall()]


def test_three_interruptions_and_no_more(con: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(MOST_INTERRUPTIONS):
        said = interrupted(con, monkeypatch, lambda n=number: con.execute(ASK.format(n)))  # type: ignore[misc]
        left = MOST_INTERRUPTIONS - number - 1
        assert "charged and not finished" in said
        assert (f"{left} more times" if left > 1 else "once more" if left else "resume := true") in said
    assert actions(con) == ["charge", "interrupt"] * MOST_INTERRUPTIONS
    before = con.execute("SELECT epsilon_spent FROM dp_budget('people')").fetchall()
    for text in (ASK.format(0), ASK.format(99)):  # neither is one finished, nor another begun
        with pytest.raises(duckdb.Error, match=r"(?s)was interrupted 3 times.*resume := true"):
            con.execute(text)
    assert con.execute("SELECT epsilon_spent FROM dp_budget('people')").fetchall() == before
    notes = con.execute("SELECT notes FROM dp_plan('SELECT age FROM people WHERE age > 3', columns := ['age'], epsilon := 0.01)").fetchall()
    assert "was interrupted 3 times" in str(notes)
    assert "interrupted" in str(con.execute("SELECT books FROM dp_budget('people')").fetchall())
    con.execute("FROM dp_query('SELECT count(*) FROM people', epsilon := 0.01)").fetchall()  # plain, as is
    con.execute("FROM dp_marginals('people', columns := ['age'], epsilon := 0.01)").fetchall()
    entry = beside(con).execute("SELECT max(entry) FROM dpsql.ledger WHERE action = 'interrupt'").fetchall()[0][0]
    (note,) = con.execute("SELECT note FROM dp_protect('people', resume := true)").fetchone()  # type: ignore[misc]
    assert f"entry {entry}" in note and "interrupted" in note
    assert len(con.execute(ASK.format(0)).fetchall()) == 1
    assert actions(con).count("charge") == MOST_INTERRUPTIONS + 2


def test_readings_of_plain_columns_are_interrupted_as_often_as_one_likes(con: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(MOST_INTERRUPTIONS + 1):
        said = interrupted(con, monkeypatch, lambda: con.execute("FROM dp_marginals('people', columns := ['age'], epsilon := 0.01)"))
        assert "same call finishes it" in said and "more" not in said.partition("finishes it")[2].partition("LINE")[0]
    assert actions(con) == ["charge"]


def test_where_the_books_cannot_take_it_down_the_reading_has_failed(con: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second Ctrl-C, while the first one is written down."""
    with monkeypatch.context() as patch:
        patch.setattr("dpsql.books.ledger.Ledger.interrupted", lambda self, release: (_ for _ in ()).throw(KeyboardInterrupt))
        interrupted(con, monkeypatch, lambda: con.execute(ASK.format(0)))
    with pytest.raises(duckdb.Error, match="failed: its rows could not be read"):
        con.execute(ASK.format(0))
    assert actions(con) == ["charge", "fail"]


def test_releases_are_as_they_were(con: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interruption names its release among the parameters: views of older books know nothing of it."""
    interrupted(con, monkeypatch, lambda: con.execute(ASK.format(0)))
    assert con.execute("SELECT status FROM dp_releases()").fetchall() == [("charged",)]
    assert con.execute("SELECT chain_holds FROM dp_ledger()").fetchall() == [(True,)] * 3
    con.execute(ASK.format(0)).fetchall()
    assert con.execute("SELECT status FROM dp_releases()").fetchall() == [("stored",)]
    assert dpsql.budget(con, "people").fetchall()


def test_the_state_of_the_books_is_read_once(con: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, reads = Ledger._outcomes, []
    monkeypatch.setattr(Ledger, "_outcomes", lambda ledger: reads.append(1) or plain(ledger))
    ledger = Ledger(Books(beside(con), "people"), "main.people", "tester")
    assert ledger.condition() == "intact" and reads == [1]
    interrupted(con, monkeypatch, lambda: con.execute(ASK.format(1)))
    assert ledger.condition() == "intact"
    (release,) = beside(con).execute("SELECT release FROM dpsql.ledger WHERE action = 'charge'").fetchone()  # type: ignore[misc]
    ledger.mark(release, "fail")
    assert ledger.condition().startswith("intact; only tables and their columns can be bought since a reading failed")
