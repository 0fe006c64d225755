"""Limits of a served database: time, turns and sizes; what is stopped leaves true books behind."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
from served_room import Served
from struck import LONG

from dpsql.purchase import buying
from dpsql.running import interruption
from dpsql.serve.limits import Limits, Turns
from dpsql.serve.passed import Refused

ENDLESS = "SELECT count(*) FROM range(10000000000) a, range(10000000000) b WHERE hash(a.range, b.range) = 1"
SHORT = Limits(seconds=0.5)


def refused(work: Callable[[], object]) -> Refused:
    with pytest.raises(Refused) as found:
        work()
    return found.value


def endless(context: Any, *given: object) -> None:
    """Work for ever on the cursor of a call, until its statement is stopped, as the clock does it: again and again."""
    statement, done = interruption._current.get().outer, threading.Event()

    def stop() -> None:
        while not done.wait(0.05):
            statement.stop()

    thread = threading.Thread(target=stop)
    thread.start()
    try:
        context.cursor.execute(ENDLESS).fetchall()
    finally:
        done.set()
        thread.join()


def test_a_statement_is_stopped(hospital: Served) -> None:
    """One that takes too long ends, and the next one is answered."""
    room = hospital.with_limits(SHORT)
    found = refused(lambda: room.ask("alice", ENDLESS))
    assert found.kind == "stopped" and found.text == "stopped after 0.5 seconds, the server's limit of a statement; nothing was charged"
    assert list(hospital.room.ask("alice", "SELECT 1").rows) == [(1,)]


def _working(lend: Callable[[Any], AbstractContextManager[Any]]) -> Callable[[Any], AbstractContextManager[Any]]:
    """Lend cursors of the copy that work for ever at whatever they are asked."""

    class Working:
        def __init__(self, cursor: Any) -> None:
            self.cursor, self.interrupt = cursor, cursor.interrupt

        def execute(self, text: str) -> Any:
            return self.cursor.execute(ENDLESS)

    @contextmanager
    def working(view: Any) -> Iterator[Any]:
        with lend(view) as cursor:
            yield Working(cursor)

    return working


def test_probes_are_stopped_too(hospital: Served) -> None:
    """What runs in the empty copy has the same limit."""
    room = hospital.with_limits(SHORT)
    assert list(room.ask("alice", f"SELECT * FROM ({ENDLESS}) WHERE 1 = 0 LIMIT 5").rows) == []  # DuckDB sees that there is none
    assert refused(lambda: room.ask("alice", f"SELECT * FROM ({ENDLESS} ORDER BY 1) LIMIT (SELECT 0)")).kind == "stopped"
    room._copy.cursor = _working(room._copy.cursor)  # type: ignore[method-assign]
    assert refused(lambda: room.ask("alice", "SELECT * FROM visits LIMIT 0")).kind == "stopped"
    assert list(hospital.room.ask("alice", "SELECT 1").rows) == [(1,)]


def test_stopped_before_the_charge(hospital: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is charged, and the text says so."""
    before, text = hospital.charges(), "SELECT count(*) FROM visits WHERE cost > 41"
    with monkeypatch.context() as patch:
        patch.setattr(buying, "request", endless)
        found = refused(lambda: hospital.room.ask("alice", text))
    assert found.kind == "stopped" and "before anything was charged" in found.text and hospital.charges() == before
    assert len(hospital.ask(text)) == 1 and hospital.charges() == before + 1


def test_stopped_after_the_charge(hospital: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same question finishes what was charged, without another charge."""
    before, text = hospital.charges(), "SELECT count(*) FROM visits WHERE cost > 42"
    with monkeypatch.context() as patch:
        patch.setattr(buying, "measure", endless)
        found = refused(lambda: hospital.room.ask("alice", text))
    assert found.kind == "stopped" and "charged and not finished" in found.text and hospital.charges() == before + 1
    assert len(hospital.ask(text)) == 1 and hospital.charges() == before + 1


def test_stopped_between_two_calls(hospital: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was bought before is not charged again."""
    before = hospital.charges()
    calls = ", ".join(f"dp_query('SELECT count(*) AS n FROM visits WHERE cost > {cost}') q{cost}" for cost in (51, 52))
    real, measured = buying.measure, []

    def second(*given: Any) -> Any:
        measured.append(given)
        return real(*given) if len(measured) == 1 else endless(*given)

    with monkeypatch.context() as patch:
        patch.setattr(buying, "measure", second)
        found = refused(lambda: hospital.room.ask("alice", f"SELECT q51.n, q52.n FROM {calls}"))
    assert found.kind == "stopped" and hospital.charges() == before + 2
    assert len(hospital.ask(f"SELECT q51.n, q52.n FROM {calls}")) == 1 and hospital.charges() == before + 2


def test_rows(hospital: Served) -> None:
    """An answer has at most so many rows."""
    room = hospital.with_limits(Limits(rows=10))
    assert len(room.ask("alice", "FROM range(10)").rows) == 10
    found = refused(lambda: room.ask("alice", "FROM range(11)"))
    assert found.kind == "refused" and "at most 10 rows" in found.text


def test_turns() -> None:
    """So many of one analyst run, so many wait, the next one is told; others are not held up."""
    turns, inside, leave = Turns(Limits(each=1, most=2, waiting=1, patience=LONG)), threading.Semaphore(0), threading.Event()

    def hold(name: str) -> bool:
        with turns.turn(name) as given:
            inside.release()
            leave.wait(LONG)
            return given

    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(hold, "alice")
        assert inside.acquire(timeout=LONG)
        second = pool.submit(hold, "alice")
        while not turns._queue:
            pass
        with turns.turn("alice") as given:
            assert not given
        with turns.turn("bob") as given:
            assert given
        leave.set()
        assert first.result(LONG) and second.result(LONG)
    assert turns._running == {} and turns._queue == []


def test_nobody_waits_for_ever() -> None:
    """Whose turn does not come in time is told."""
    turns = Turns(Limits(each=1, patience=0.01))
    with turns.turn("alice"), turns.turn("alice") as given:
        assert not given
    with turns.turn("alice") as given:
        assert given


def test_busy(hospital: Served) -> None:
    """The refusal has a kind of its own."""
    room = hospital.with_limits(Limits(each=0, waiting=0))
    assert refused(lambda: room.ask("alice", "SELECT 1")).kind == "busy"


def test_many_at_once(hospital: Served) -> None:
    """Several analysts and threads: each gets what she asked, and one question of hers is bought once."""
    texts = [f"SELECT count(*) AS n FROM visits WHERE cost > {cost}" for cost in (61, 62)] + ["SELECT max(beds) FROM wards", "FROM dp_budget()"]
    before = hospital.charges()
    with ThreadPoolExecutor(8) as pool:
        asked = [(who, text, pool.submit(hospital.ask, text, (), who)) for who in ("alice", "bob") for text in texts * 3]
        answers = [(who, text, repr(one.result(LONG))) for who, text, one in asked]
    assert hospital.charges() == before + 4
    counts = {(who, text, rows) for who, text, rows in answers if "visits" in text}
    assert len(counts) == 4 and len({rows for _, _, rows in counts}) == 4
    assert {rows for _, text, rows in answers if "wards" in text} == {"[(2,)]"}
