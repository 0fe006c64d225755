"""A statement on another thread is stopped wherever Ctrl-C finds the thread that waits for it."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from dpsql.running.background import Background


class Statement:
    """One that ends when it is interrupted, and notes what was done to it."""

    def __init__(self):
        self.began, self.stopped, self.ended = threading.Event(), threading.Event(), threading.Event()

    def interrupt(self):
        self.stopped.set()

    def __call__(self):
        self.began.set()
        self.stopped.wait()
        self.ended.set()


def test_what_a_call_returns_or_raises():
    with Background(Statement(), "test") as background:
        assert background.run(lambda: 3) == 3
        assert background.begin(lambda: 4).result() == 4
        with pytest.raises(ZeroDivisionError):
            background.run(lambda: 1 // 0)


def test_struck_while_it_waits():
    statement = Statement()
    with pytest.raises(KeyboardInterrupt), Background(statement, "test") as background:
        background.begin(statement)
        statement.began.wait()
        raise KeyboardInterrupt
    assert statement.ended.is_set()


@pytest.mark.parametrize("begun", [True, False])
def test_struck_while_its_thread_is_started(monkeypatch, begun):
    """Python waits there for the new thread, which may run the statement before the wait ends."""
    statement, submit = Statement(), ThreadPoolExecutor.submit

    def struck(self, function, *arguments):
        if begun:
            submit(self, function, *arguments)
            statement.began.wait()
        raise KeyboardInterrupt

    monkeypatch.setattr(ThreadPoolExecutor, "submit", struck)
    with pytest.raises(KeyboardInterrupt), Background(statement, "test") as background:
        background.run(statement)
    assert statement.ended.is_set() is statement.stopped.is_set() is begun


def test_struck_between_the_start_and_the_statement(monkeypatch):
    """What was handed over and has not begun never begins."""
    statement, submit, shutdown = Statement(), ThreadPoolExecutor.submit, ThreadPoolExecutor.shutdown

    def released(self, **options):
        statement.stopped.set()  # the thread is held until then, or until the statement is interrupted, which is then too late
        shutdown(self, **options)

    def struck(self, function, *arguments):
        submit(self, statement.stopped.wait)
        submit(self, function, *arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(ThreadPoolExecutor, "submit", struck)
    monkeypatch.setattr(ThreadPoolExecutor, "shutdown", released)
    with pytest.raises(KeyboardInterrupt), Background(statement, "test") as background:
        background.run(statement)
    assert not statement.began.is_set()
