"""Parts of the server that need no server: texts of errors, limits of time and number, sessions, answers, addresses."""

import datetime as dt
import threading
import time
from pathlib import Path

import duckdb
import pytest

from dpsql.cli.serving import seconds
from dpsql.errors import ArgumentError, DpsqlError, LedgerError
from dpsql.running import interruption
from dpsql.serve import errors
from dpsql.serve.answering import refused
from dpsql.serve.answers import Answers, relation
from dpsql.serve.limits import Clock, Statement, Turns
from dpsql.serve.opening import cannot_open
from dpsql.serve.server import Options, _address
from dpsql.serve.sessions import Sessions
from dpsql.serve.shortage import Shortage
from dpsql.serve.tokens import Analyst
from dpsql.wire.extensions import missing


def test_an_error_of_duckdb_is_one_text_of_its_class():
    for kind in (duckdb.ConversionException, duckdb.OutOfRangeException, duckdb.BinderException, duckdb.IOException, duckdb.Error,
                 duckdb.InvalidInputException, duckdb.InternalException, duckdb.ConstraintException, OSError, ValueError, KeyError):  # fmt: skip
        told = errors.told(kind("value 'secret 42' in /data/census.duckdb"))
        assert told and "secret" not in told and "/data" not in told and "\n" not in told
    assert errors.told(MemoryError()) == errors.told(duckdb.OutOfMemoryException("x")) != errors.told(duckdb.Error("x"))


@pytest.mark.parametrize(
    "text", ["the store /data/x cannot be used", "see 'C:\\x'", "release.parquet is gone", "dpsql.load(con, store='folder')", "in ~/x", "the Xdata"]
)
def test_a_line_that_names_a_file_is_not_shown(text):
    assert errors.told(DpsqlError(text), ["Xdata"]) == errors.HIDDEN


def test_a_line_of_dpsql_is_shown_first_line_only_and_printable():
    assert errors.told(DpsqlError("epsilon = 7: at most 0.2\nsecond")) == "epsilon = 7: at most 0.2"
    assert errors.said("a\x1b[2Jb") == "a [2Jb"
    assert len(errors.said("x" * 9000)) == 2000


@pytest.mark.parametrize("kind", [duckdb.OutOfMemoryException, duckdb.IOException, duckdb.TransactionException, duckdb.InternalException])
def test_what_duckdb_says_of_the_machine_is_in_no_line_of_dpsql_either(kind):
    """One quoted sizes of the server's memory."""
    begins = {duckdb.OutOfMemoryException: "Out of Memory", duckdb.IOException: "IO", duckdb.TransactionException: "TransactionContext"}
    quoted = LedgerError(f"the ledger of main.big cannot be read: {begins.get(kind, 'INTERNAL')} Error: 590.9 MiB of 572.2 MiB")
    assert errors.of_machine(quoted) and errors.told(quoted) == errors.told(kind("x"))
    assert errors.of_machine(DpsqlError("epsilon = 7: at most 0.2")) is None


@pytest.mark.parametrize("text", ["INSERT INTO main.t VALUES (NULL)", "insert into t select 1", " \n\tInsert Into t values (1)"])
def test_a_refused_insert_returns_null_because_other_sql_lets_rows_in(text):
    assert refused(text, "no").sql is None


def test_a_refusal_has_a_text():
    assert refused("SELECT 1", "it's no").sql == "SELECT error('it''s no')"


def test_the_clock_stops_a_query_and_a_call_inside():
    clock, con = Clock(0.3), duckdb.connect()
    statement = Statement(con)
    begun = time.monotonic()
    with pytest.raises((duckdb.Error, interruption.Stopped)), clock.limited(statement):
        con.execute("SELECT count(*) FROM range(100000000) a, range(100000) b WHERE a.range * b.range % 7 = 9").fetchall()
    assert time.monotonic() - begun < 20
    inner = interruption.Running(con, "what the books know")
    outer = Statement(con, "nothing was charged")
    told = pytest.raises(interruption.Stopped, match="^what the books know$")
    with told, clock.limited(outer), outer.calling(), interruption.call(inner):
        for _ in range(400):
            time.sleep(0.05)
            interruption.check()
    after = Statement(con, "nothing was charged")
    with pytest.raises(interruption.Stopped, match="is not charged again"), clock.limited(after):
        with after.calling():
            pass
        for _ in range(400):
            time.sleep(0.05)
            interruption.check()
    assert clock.running() == 0
    assert con.execute("SELECT 1").fetchall() == [(1,)]
    clock.end()


class Query:
    """What a statement runs on; says when it was stopped."""

    def __init__(self):
        self.stopped = threading.Event()

    def interrupt(self):
        self.stopped.set()


def test_who_only_takes_what_was_bought_is_the_last_to_be_stopped_for_memory():
    looks = []
    clock = Clock(60.0, lambda: bool(looks.append(1)) or True)
    taken, greedy = Query(), Query()
    with clock.own(Statement(taken), more=False):
        with clock.own(asks := Statement(greedy)):
            assert greedy.stopped.wait(30) and asks.short
            seen = len(looks)
            while len(looks) < seen + 4:
                time.sleep(0.01)
            assert not taken.stopped.is_set()
        assert taken.stopped.wait(30)  # it alone is left, and memory is short still
    clock.end()


def test_a_statement_that_failed_says_what_its_books_know():
    statement = Statement(duckdb.connect())
    assert statement.text() == "nothing was charged"
    with pytest.raises(duckdb.OutOfMemoryException), statement.calling():
        raise duckdb.OutOfMemoryException("no memory")
    assert statement.text() == "what was charged is finished by asking again"


def test_sql_of_its_own_gives_way_where_memory_is_short_and_a_call_does_not():
    short = [False]
    clock, con = Clock(60.0, lambda: short[0]), duckdb.connect()
    mine, call = Statement(con.cursor()), Statement(con.cursor())
    with clock.limited(call):
        with pytest.raises((duckdb.Error, interruption.Stopped)), clock.limited(mine), clock.own(mine):
            short[0] = True
            mine.cursors[0].execute(
                "SELECT count(*) FROM range(100000000) a, range(100000) b WHERE a.range * b.range % 7 = 9"
            ).fetchall()
        assert mine.short and mine.stopped and not call.stopped and not call.short
    clock.end()


def test_memory_is_short_where_answers_or_what_runs_take_too_much():
    con = duckdb.connect(config={"memory_limit": "300MB"})
    Answers.attach(con)
    short = Shortage(con, 20 << 20)
    assert not short()
    answers = Answers(con.cursor, rows=10**9, size=400 << 20, seconds=100)
    answers.keep(con.cursor(), "SELECT repeat(i::VARCHAR, 3000) AS t FROM range(5000) r(i)")  # long texts are counted apart
    assert short() and not Shortage(con, 100 << 20)()
    answers.keep(con.cursor(), "SELECT repeat(i::VARCHAR, 3000) AS t FROM range(20000) r(i)")
    assert Shortage(con, 1 << 40)()
    short.close()


def test_an_answer_ends_where_it_is_too_large_and_its_columns_may_have_one_name():
    con = duckdb.connect()
    Answers.attach(con)
    answers = Answers(con.cursor, rows=1000, size=64 << 20, seconds=100)
    begun = time.monotonic()
    with pytest.raises(DpsqlError, match="too large"):
        answers.keep(con.cursor(), "FROM range(100000000000)")
    assert time.monotonic() - begun < 10
    found = con.execute(f"FROM {relation(answers.keep(con.cursor(), 'SELECT 1 AS a, 2 AS a'))}")
    assert found.fetchall() == [(1, 2)]


def test_turns_are_bounded_for_one_and_for_all():
    turns, order = Turns(each=1, most=2, waiting=1, seconds=0.4), []
    with turns.turn("alice") as first, turns.turn("bob") as second:
        assert first and second
        begun = time.monotonic()
        with turns.turn("carol") as third:  # the most of all run
            assert not third and time.monotonic() - begun >= 0.3
        waiting = threading.Thread(target=lambda: order.append(turns._take("alice")))
        waiting.start()
        time.sleep(0.1)
        begun = time.monotonic()
        with turns.turn("alice") as fourth:  # one of hers waits already
            assert not fourth and time.monotonic() - begun < 0.3
        waiting.join()
    assert order == [False]
    with turns.turn("alice") as again:
        assert again


def test_sessions_are_bounded_and_idle_ones_end():
    sessions = Sessions(most=2, idle=0.2)
    made = dt.datetime(2026, 11, 1, tzinfo=dt.UTC)
    alice, bob, carol = (Analyst(name, "analyst", "0" * 32, "0" * 64, made) for name in ("alice", "bob", "carol"))
    assert sessions.open("a", alice) == []
    sessions.find("a").answers.append("x")
    time.sleep(0.01)
    sessions.open("b", bob)
    assert sessions.open("c", carol) == ["x"] and sessions.find("a") is None and len(sessions) == 2
    time.sleep(0.3)
    sessions.find("c")
    sessions.sweep()
    assert sessions.find("b") is None and sessions.find("c").name == "carol"


def test_answers_keep_order_and_types_and_are_bounded():
    con = duckdb.connect()
    Answers.attach(con)
    answers = Answers(con.cursor, rows=1000, size=64 << 20, seconds=0.2)
    name = answers.keep(con.cursor(), "SELECT i::UTINYINT AS i, [i] AS listed FROM range(100) t(i) ORDER BY i DESC")
    found = con.execute(f"FROM {relation(name)}")
    assert [str(column[1]) for column in found.description] == ["UTINYINT", "BIGINT[]"] or found.description
    assert [row[0] for row in found.fetchall()] == list(range(99, -1, -1))
    with pytest.raises(DpsqlError, match="too large"):
        answers.keep(con.cursor(), "FROM range(1001)")
    time.sleep(0.3)
    answers.sweep()
    assert con.execute("SELECT count(*) FROM duckdb_tables() WHERE database_name = '__dpsql_answers'").fetchall() == [(0,)]
    tight = Answers(con.cursor, rows=10_000_000, size=4 << 20, seconds=100)
    old = [tight.keep(con.cursor(), "SELECT hash(range) FROM range(200000)") for _ in range(6)]
    left = con.execute("SELECT table_name FROM duckdb_tables() WHERE database_name = '__dpsql_answers'").fetchall()
    assert 0 < len(left) < 6 and (old[-1],) in left
    with pytest.raises(DpsqlError, match="too large"):
        tight.keep(con.cursor(), "SELECT hash(range) FROM range(3000000)")


def test_addresses_and_times():
    options = Options(Path("a"), "localhost:9494", Path("b"))
    assert _address(options) == ("localhost", 9494)
    for listen in ("localhost", "localhost:0", "localhost:70000", "", "example.org:9494", "0.0.0.0:1", "localhost:1'; --"):
        with pytest.raises(ArgumentError, match="listen"):
            _address(Options(Path("a"), listen, Path("b")))
    assert _address(Options(Path("a"), "example.org:9494", Path("b"), other_hosts=True)) == ("example.org", 9494)
    assert (seconds("1s"), seconds("250ms"), seconds("2"), seconds("1m")) == (1.0, 0.25, 2.0, 60.0)
    with pytest.raises(ArgumentError):
        seconds("-1s")


def test_what_is_missing_and_who_has_the_file_is_said():
    assert "pip install duckdb-extension-quack==1.5.5 duckdb-extension-httpfs==1.5.5" in missing("quack", "1.5.5")
    assert "no wheels of it for DuckDB 2.0.0" in missing("quack", "2.0.0")
    held = "IO Error: Could not set lock on file \"/x\": Conflicting lock is held in /usr/bin/python3.11 (PID 123) by user root."
    assert "python3.11, process 123" in cannot_open(Path("x"), duckdb.IOException(held))
    assert "the database is encrypted" in cannot_open(Path("x"), duckdb.Error("Cannot open encrypted database"))
