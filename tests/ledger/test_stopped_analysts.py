"""A reading for an analyst that is stopped has failed: whether it takes too long, or too much, could show a row."""

from __future__ import annotations

import duckdb
import pytest
from analysts import ask, instance_of, named

from dpsql.errors import GrantSuspended, OutOfMemory, ReleaseError
from dpsql.running import interruption
from dpsql.running.progress import Progress
from dpsql.serve.limits import NOTHING, Clock, Statement

pytestmark = pytest.mark.any_duckdb
FILTERED = "SELECT count(*) AS n FROM people WHERE age > 30"
PLAIN = "SELECT sex, count(*) AS n FROM people GROUP BY sex"


@pytest.fixture
def people(con):
    for analyst in ("alice", "bob"):
        con.execute(f"CALL dp_grant('people', analyst := '{analyst}', epsilon := 1.0, per_query := 0.1)")
    return con


def entries(con, action):
    return con.execute("SELECT count(*) FROM dpsql.ledger WHERE action = ?", [action]).fetchall()[0][0]


def stopped(con, monkeypatch, analyst, sql, stage="count"):
    """Ask, with a limit of time that is over while rows are read; return what she is told."""
    plain, clock, statement, seen = Progress.stage, Clock(60.0), Statement(None), []

    def slow(self, name):
        seen.append(name)
        if name == stage:
            statement.stop()  # as the clock does
        return plain(self, name)

    with monkeypatch.context() as patch:
        patch.setattr(Progress, "stage", slow)
        with pytest.raises((interruption.Stopped, duckdb.InterruptException)) as found, clock.limited(statement), statement.calling():
            ask(con, analyst, "query", sql=sql)
    clock.end()
    assert stage in seen
    assert NOTHING not in str(found.value)
    return str(found.value)


def test_a_stopped_reading_suspends_her_grant_alone(people, monkeypatch):
    told = stopped(people, monkeypatch, "alice", FILTERED)
    assert "suspended" in told
    assert (entries(people, "charge"), entries(people, "suspend"), entries(people, "fail")) == (1, 1, 0)
    with pytest.raises(ReleaseError, match="suspended"):  # decided: never read again
        ask(people, "alice", "query", sql=FILTERED)
    for sql in (PLAIN, "SELECT count(*) AS n FROM people WHERE age > 31"):
        with pytest.raises(GrantSuspended, match="suspended"):
            ask(people, "alice", "query", sql=sql)
    assert entries(people, "charge") == 1
    assert named(people, "alice", "budget")[0]["suspended"] is True
    assert named(people, "alice", "releases")[0]["status"] == "failed"
    shown = people.execute("SELECT analyst, change FROM dp_grant('people')").fetchall()
    assert shown == [("alice", "suspended"), ("bob", "in force")]
    assert "alice" in people.execute("SELECT books FROM dp_budget('people')").fetchall()[0][0]
    assert len(ask(people, "bob", "query", sql="SELECT count(*) AS n FROM people WHERE age > 32")) == 1  # nobody else is kept out
    assert len(ask(people, None, "query", sql="SELECT count(*) AS n FROM people WHERE age > 33", epsilon=0.1)) == 1
    assert people.execute("SELECT bool_and(chain_holds) FROM dp_ledger('people')").fetchall() == [(True,)]


@pytest.mark.parametrize(
    "act",
    ["CALL dp_grant('people', analyst := 'alice', epsilon := 1.0, per_query := 0.1)", "CALL dp_protect('people', resume := true)"],
)
def test_the_custodian_lets_her_buy_again(people, monkeypatch, act):
    stopped(people, monkeypatch, "alice", FILTERED)
    people.execute(act)
    assert named(people, "alice", "budget")[0]["suspended"] is False
    assert len(ask(people, "alice", "query", sql="SELECT count(*) AS n FROM people WHERE age > 31")) == 1
    with pytest.raises(ReleaseError, match="nothing is read again"):
        ask(people, "alice", "query", sql=FILTERED)
    stopped(people, monkeypatch, "alice", "SELECT count(*) AS n FROM people WHERE age > 35")
    assert entries(people, "suspend") == 2


def test_a_plain_reading_is_finished_later(people, monkeypatch):
    assert "the same call finishes it" in stopped(people, monkeypatch, "alice", PLAIN)
    assert len(ask(people, "alice", "query", sql=PLAIN)) == 3
    assert (entries(people, "charge"), entries(people, "suspend")) == (1, 0)


def test_an_answer_that_is_stopped_after_it_was_bought_is_there(people, monkeypatch):
    plain, running = Progress.stage, interruption.Running(people)

    def stop(self, name):
        if name not in ("encode", "count", "noise", "store"):
            running.stop()
        return plain(self, name)

    ask(people, "alice", "query", sql=FILTERED)
    with monkeypatch.context() as patch:
        patch.setattr(Progress, "stage", stop)
        with interruption.call(running):
            ask(people, "alice", "query", sql=FILTERED)
    assert entries(people, "suspend") == 0


@pytest.mark.parametrize("error", [duckdb.OutOfMemoryException("x"), MemoryError(), OutOfMemory("x")], ids=lambda e: type(e).__name__)
def test_memory_that_is_short_suspends_her_grant_and_not_the_table(people, monkeypatch, error):
    def short(*_given):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr("dpsql.kinds.measures.measure", short)
        with pytest.raises(ReleaseError, match="suspended"):
            ask(people, "alice", "query", sql=FILTERED)
    assert (entries(people, "suspend"), entries(people, "fail")) == (1, 0)
    assert len(ask(people, "bob", "query", sql="SELECT count(*) AS n FROM people WHERE age > 32")) == 1


def test_one_bit_at_most_where_many_are_charged_and_not_read(people, monkeypatch):
    """Charges that were not read before the grant was suspended are not finished through WHERE afterwards."""
    calls = ["SELECT count(*) AS n FROM people WHERE age > 40", "SELECT count(*) AS n FROM people WHERE age > 41"]

    def before(*_given):
        raise interruption.Stopped("before a row is read")

    for sql in calls:
        with monkeypatch.context() as patch:
            patch.setattr("dpsql.purchase.measuring._public_facts", before)
            with pytest.raises(duckdb.InterruptException):
                ask(people, "alice", "query", sql=sql)
    assert (entries(people, "charge"), entries(people, "suspend")) == (2, 0)
    stopped(people, monkeypatch, "alice", calls[0])
    with pytest.raises(GrantSuspended):
        ask(people, "alice", "query", sql=calls[1])
    assert instance_of(people).unrecorded == set()
