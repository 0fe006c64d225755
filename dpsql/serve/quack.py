"""The door that DuckDB's own clients come to, over Quack: two functions that Quack asks, who comes in and what is run.

Quack's connections are on the served database itself. So none of an analyst's text reaches them: what they run in its place reads a
finished answer, or raises an error.

Privacy: None: it hands texts to the room, and writes what it is given.
"""

from __future__ import annotations

import secrets
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import duckdb

from dpsql.errors import ArgumentError, DpsqlError, first_line
from dpsql.serve import kept
from dpsql.serve.kept import Kept
from dpsql.serve.limits import until_due
from dpsql.serve.options import Address
from dpsql.serve.passed import Keys, Refused, Room
from dpsql.session.extensions import load_extensions
from dpsql.text.relation import literal

OVER = "your session is over (the token was revoked, has expired or is another one now): connect again"
UNFORESEEN = "the statement failed for a reason that only the custodian can find; what was charged is finished by asking again"
_COMES_IN, _IS_RUN = "__dpsql_who_comes_in", "__dpsql_what_is_run"
_APPENDS = "INSERT INTO "
_READING = 2.0
"""Seconds after the latest answer until nobody reads it any more, when the server stops: Quack does not say who does."""


def before(con: duckdb.DuckDBPyConnection) -> None:
    """Prepare a database for this door, before its configuration is locked.

    Raises
    ------
    DpsqlError
        An extension is missing.
    """
    load_extensions(con)
    kept.attach(con)
    con.execute(f"SET GLOBAL quack_authentication_function = {literal(_COMES_IN)}")
    con.execute(f"SET GLOBAL quack_authorization_function = {literal(_IS_RUN)}")


@dataclass
class _Session:
    """One connection of a client: whose, and by which token."""

    name: str
    number: int
    seen: float


class Desk:
    """The two functions.

    Parameters
    ----------
    room : Room
    keys : Keys
    answers : Kept
    every : float
        Answers leave at multiples of so many seconds after the statement came; 0: at once.
    most : int
        Sessions; the one that was idle longest goes where there are more.
    idle : float
        Seconds after which a session without a statement is over.
    sleep : callable
    """

    def __init__(
        self,
        room: Room,
        keys: Keys,
        answers: Kept,
        every: float = 0.0,
        *,
        most: int = 1_000,
        idle: float = 3_600.0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._room, self._keys, self._answers = room, keys, answers
        self._every, self._most, self._idle, self._sleep = every, most, idle, sleep
        self._sessions: dict[str, _Session] = {}
        self._guard = threading.Condition()
        self._running = 0

    def comes_in(self, key: str, token: str, _server: str) -> bool:
        """Let a session in, if its token is an analyst's."""
        try:
            owner = self._keys.of_token(token)
        except Exception:  # whatever it is, nobody comes in
            return False
        if owner is None:
            return False
        now = time.monotonic()
        with self._guard:
            # of too many sessions the one that was silent longest ends
            if key not in self._sessions and len(self._sessions) >= self._most:
                del self._sessions[min(self._sessions, key=lambda each: self._sessions[each].seen)]
            self._sessions[key] = _Session(*owner, now)
        return True

    def is_run(self, key: str, text: str) -> str | None:
        """Return the SQL that is run in place of a statement; None refuses it without a text."""
        begun = time.monotonic()
        with self._guard:
            self._running += 1
        try:
            statement = self._decided(key, text)
            if self._every:
                self._sleep(until_due(self._every, time.monotonic() - begun))
            return statement
        finally:
            with self._guard:
                self._running -= 1
                self._guard.notify_all()

    def quiet(self) -> None:
        """Wait until no statement is being answered."""
        with self._guard:
            self._guard.wait_for(lambda: not self._running)

    def _decided(self, key: str, text: str) -> str | None:
        try:
            return self._answered(key, text)
        except Refused as error:
            return _refusal(text, error.text)
        except Exception:  # of memory, or not foreseen: its text may show a value
            return _refusal(text, UNFORESEEN)

    def _answered(self, key: str, text: str) -> str:
        with self._guard:
            session, now = self._sessions.get(key), time.monotonic()
            if session is not None and now - session.seen > self._idle:
                del self._sessions[key]
                session = None
            if session is not None:
                session.seen = now
        # since the session came in, its token may have been revoked, or be another one
        if session is None or self._keys.number(session.name) != session.number:
            raise Refused("refused", OVER)
        return self._answers.put(key, self._room.ask(session.name, text))


def _refusal(text: str, told: str) -> str | None:
    """Return what is run for a refusal.

    Rows that a client appends are announced as INSERT INTO ..., by the server, and come in unless NULL is returned: other SQL that
    is returned is not run then. So such a refusal has no text of its own; Quack says that authorization failed.
    """
    if text.lstrip()[: len(_APPENDS)].upper() == _APPENDS:
        return None
    return f"SELECT system.main.error({literal(told)})"


class QuackDoor:
    """A door for DuckDB's own clients.

    Parameters
    ----------
    room : Room
    keys : Keys
    address : Address
        A loopback address: Quack is not encrypted.
    con : duckdb.DuckDBPyConnection
        Of the served database, on which `before` was called.
    every : float
        See `Desk`.
    """

    def __init__(
        self, room: Room, keys: Keys, address: Address, con: duckdb.DuckDBPyConnection, every: float = 0.0
    ) -> None:
        self._con, self._address, self._uri = con, address, f"quack:{address}"
        self._answers = Kept(con)
        self._desk = Desk(room, keys, self._answers, every)
        self._listens = False

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return self._address.port

    def start(self) -> None:
        """Listen.

        Raises
        ------
        DpsqlError
            It cannot.
        """
        self._con.create_function(_COMES_IN, self._desk.comes_in, ["VARCHAR"] * 3, "BOOLEAN", side_effects=True)
        # Not "side effects": so it runs where Quack's query is planned, once a statement, and not in a thread of DuckDB's pool, for
        # which the one that waits would look in a loop, with a core of its own. Nothing keeps what it gave for the next statement.
        self._con.create_function(_IS_RUN, self._desk.is_run, ["VARCHAR"] * 2, "VARCHAR", side_effects=False)
        with suppress(OSError), socket.create_connection((self._address.host, self._address.port), timeout=1.0):
            # The system would let Quack share it, and tokens would go to either.
            raise ArgumentError("quack", str(self._address), "another process listens there; name another port")
        try:  # the token is nobody's: it is required, and not looked at
            self._con.execute(f"CALL quack_serve({literal(self._uri)}, token := {literal(secrets.token_hex(32))})").fetchall()
        except duckdb.Error as error:
            raise DpsqlError(f"quack = {str(self._address)!r}: {first_line(error)}") from None
        self._listens = True

    def stop(self) -> None:
        """Give clients a moment to read what they were answered, and listen no longer."""
        if not self._listens:
            return
        self._desk.quiet()
        time.sleep(max(0.0, min(_READING, self._answers.latest() + _READING - time.monotonic())))
        self._listens = False
        with suppress(duckdb.Error):
            self._con.execute(f"CALL quack_stop({literal(self._uri)})").fetchall()
