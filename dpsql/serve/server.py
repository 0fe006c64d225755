"""The life of the server: one process that owns the file, lets analysts ask, and stops without leaving anything half done.

Privacy: None: whatever is asked goes to the room (`dpsql.serve.ask`).
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any, Protocol

import duckdb

from dpsql.errors import ArgumentError
from dpsql.serve.analysts import Analysts
from dpsql.serve.opening import Opened, open_database
from dpsql.serve.options import Address, Options
from dpsql.serve.passed import Answer, Column, Dialect, Keys, Refused, Room, Table
from dpsql.udfs import interrupt

STOPPING = "the server is stopping; nothing was charged for this: ask again when it runs"
WAITING = "stopping: what was begun is finished; Ctrl-C or SIGTERM again stops it (what was charged is finished by asking again)"
_SWITCH = 0.0005
"""Seconds for which a thread keeps Python's lock where others wait: an answer from memory waits for those that are bought."""
_AGAIN = 0.1
"""Seconds until what did not stop is told again: an interrupt between two statements is lost."""


class Door(Protocol):
    """A wire on which analysts come in. What it has in ``told``, if anything, the custodian is told when it listens."""

    @property
    def port(self) -> int:
        """The port that is listened on."""

    def start(self) -> None:
        """Listen; returns when clients can connect. Raises OSError or `dpsql.errors.DpsqlError`."""

    def stop(self) -> None:
        """Let nobody in any more, write what was answered, and end what is open; returns when that is done."""


def _nothing(_: duckdb.DuckDBPyConnection) -> None:
    """Prepare nothing."""


@dataclass(frozen=True)
class Kind:
    """A kind of door.

    Parameters
    ----------
    make : callable
        Makes one; it does not listen yet.
    before : callable
        Prepares the database, before its configuration is locked.
    """

    make: Callable[[Room, Keys, Options, Opened], Door]
    before: Callable[[duckdb.DuckDBPyConnection], object] = _nothing


class Attended:
    """A room that knows who is in it, and that can be closed: what was begun is finished, what comes after is refused."""

    def __init__(self, room: Room) -> None:
        self.database = room.database
        self._room, self._inside, self._closing = room, 0, False
        self._changed = threading.Condition()

    def ask(self, analyst: str, text: str, dialect: Dialect = "duckdb", parameters: Sequence[Any] = ()) -> Answer:
        """Answer one statement; raises `Refused` and nothing else."""
        with self._counted():
            return self._room.ask(analyst, text, dialect, parameters)

    def describe(self, analyst: str, text: str, dialect: Dialect = "duckdb", parameters: Sequence[Any] = ()) -> tuple[Column, ...]:
        """Return the columns that `ask` would give."""
        with self._counted():
            return self._room.describe(analyst, text, dialect, parameters)

    def places(self, analyst: str, text: str) -> int:
        """Return how many values a statement takes for its parameters."""
        with self._counted():
            return self._room.places(analyst, text)

    def schema(self, analyst: str) -> tuple[Table, ...]:
        """Return what the analyst may see."""
        with self._counted():
            return self._room.schema(analyst)

    def close(self) -> None:
        """Refuse what comes from now on."""
        with self._changed:
            self._closing = True

    def empty(self, seconds: float | None = None) -> bool:
        """Wait until nothing runs in it, at most so long; return whether that is so."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._inside, seconds)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        with self._changed:
            if self._closing:
                raise Refused("stopped", STOPPING)
            self._inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()


class Stopping:
    """Whether the server is to stop, and whether at once."""

    def __init__(self) -> None:
        self.told, self.hurried = threading.Event(), threading.Event()

    def ask(self) -> None:
        """Ask for it, from any thread or a signal; asked again, what was begun is stopped, too."""
        (self.hurried if self.told.is_set() else self.told).set()


class Server:
    """A database that is being served, from when this is made until `run` returns.

    Parameters
    ----------
    options : Options
    room : callable
        Makes the room of an opened database.
    doors : mapping of str to Kind
        By the name of the option that says where one listens.
    say : callable
        Where the custodian reads.
    stopping : Stopping

    Raises
    ------
    ArgumentError, DpsqlError
        It cannot be served as the options say; nothing is open then.
    """

    def __init__(
        self,
        options: Options,
        room: Callable[[Opened, Analysts, Options], Room],
        doors: Mapping[str, Kind],
        say: Callable[[str], object],
        stopping: Stopping,
    ) -> None:
        self._say, self._stopping = say, stopping
        self._doors: list[Door] = []
        self.at: dict[str, Address] = {}
        self.told: list[str] = []
        options.tls()  # before the file is opened
        keys = Analysts(options.analysts, say=say)
        kinds = {name: kind for name, kind in doors.items() if getattr(options, name) is not None}

        def before(con: duckdb.DuckDBPyConnection) -> None:
            for kind in kinds.values():
                kind.before(con)

        self._opened = open_database(options.database, memory=options.memory, store=options.store, before=before)
        try:
            self._room = Attended(room(self._opened, keys, options))
            for name, kind in kinds.items():
                self._start(name, kind.make(self._room, keys, options, self._opened), getattr(options, name))
        except BaseException:
            self._end()
            raise
        self.database = self._room.database

    def _start(self, name: str, door: Door, address: Address) -> None:
        try:
            door.start()
        except OSError as error:
            told = f"nothing can listen there ({error.strerror or 'no such host'}); name another host or port"
            raise ArgumentError(name, str(address), told) from None
        self._doors.append(door)
        self.at[name] = replace(address, port=door.port)
        self.told += [told] if (told := getattr(door, "told", "")) else []

    def run(self) -> None:
        """Serve until told to stop; then finish what was begun, and close."""
        self._stopping.told.wait()
        self._room.close()
        if not self._room.empty(0):
            self._say(WAITING)
        while not self._room.empty(_AGAIN):
            if self._stopping.hurried.is_set():
                interrupt(self._opened.con)
        self._end()

    def _end(self) -> None:
        """Close doors and database."""
        try:
            # doors first: nobody may come in while the file is written and closed
            while self._doors:
                self._doors.pop().stop()
        finally:
            self._opened.con.close()  # which writes everything into the file


def serve(
    options: Options,
    room: Callable[[Opened, Analysts, Options], Room],
    doors: Mapping[str, Kind],
    say: Callable[[str], object] | None = None,
) -> None:
    """Serve a database until SIGTERM or Ctrl-C. Parameters and errors are those of `Server`."""
    say, stopping = say or _stderr, Stopping()

    def stop(_number: int, _frame: FrameType | None) -> None:
        if stopping.hurried.is_set():  # something hears no interrupt: the books are true all the same, as after a crash
            os._exit(1)
        stopping.ask()

    sys.setswitchinterval(_SWITCH)
    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        server = Server(options, room, doors, say, stopping)
        for warning in options.warnings():
            say(warning)
        at = ", ".join(f"{name} on {address}" for name, address in server.at.items())
        say(f"serving {options.database} as {server.database}: {at}; stop with Ctrl-C or SIGTERM")
        for told in server.told:
            say(told)
        server.run()
        say("stopped")
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stderr(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
