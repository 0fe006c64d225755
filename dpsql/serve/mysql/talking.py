"""What one client asks after it was let in: commands, one after the other, each answered before the next is read."""

from __future__ import annotations

import re
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from enum import IntEnum
from typing import Any, Final

from dpsql.serve.limits import until_due
from dpsql.serve.mysql import packets
from dpsql.serve.mysql.catalogue import Catalogue, Session
from dpsql.serve.mysql.codes import Fault, denied, fault_of, malformed, unknown_command
from dpsql.serve.mysql.lexing import LONGEST, read
from dpsql.serve.mysql.login import AUTOCOMMIT
from dpsql.serve.mysql.packets import Fields, Gone, Wire
from dpsql.serve.mysql.prepared import Statements
from dpsql.serve.mysql.results import definition, rows
from dpsql.serve.mysql.variables import Variables
from dpsql.serve.passed import Answer, Column, Dialect, Keys, Refused, Room


class Command(IntEnum):
    """Commands of the protocol that are served; every other one is refused."""

    QUIT, INIT_DB, QUERY, FIELD_LIST, PING, CHANGE_USER = 0x01, 0x02, 0x03, 0x04, 0x0E, 0x11
    PREPARE, EXECUTE, LONG_DATA, CLOSE, RESET = 0x16, 0x17, 0x18, 0x19, 0x1A
    SET_OPTION, RESET_CONNECTION = 0x1B, 0x1F


_FROM = re.compile(r"\s*FROM\b", re.IGNORECASE)
_UNANSWERED: Final = frozenset({Command.LONG_DATA, Command.CLOSE})
_IN_TRANSACTION = 1
_AT_ONCE = 1 << 16
"""Bytes that are sent at once."""


class Talk:
    """One client's commands.

    Parameters
    ----------
    wire : Wire
    room : Room
    keys : Keys
    session : Session
    number : int
        The number of the token that let her in: where it is another one, the session is over.
    catalogue : callable
        Her catalogue, as it is now.
    largest : int
        Bytes of a packet.
    idle : float
        Seconds without a command after which the connection ends.
    every : float
        An answer leaves at a whole multiple of so many seconds after its question came; 0: at once.
    ending : threading.Event
        Set when the door closes: what runs is finished, and no command is read after it.
    """

    def __init__(
        self, wire: Wire, room: Room, keys: Keys, session: Session, number: int, catalogue: Callable[[], Catalogue], *,
        largest: int, idle: float, every: float, ending: threading.Event,
    ) -> None:  # fmt: skip
        self._wire, self._room, self._keys, self._session, self._number = wire, room, keys, session, number
        self._catalogue, self._largest, self._idle, self._every, self._ending = catalogue, largest, idle, every, ending
        self._statements = Statements()

    def talk(self) -> None:
        """Answer commands until the client or the session ends."""
        while not (self._session.over or self._ending.is_set()):
            self._wire.restart()
            command = self._wire.read(self._largest, time.monotonic() + self._idle)
            if not command:
                raise malformed()
            if command[0] == Command.QUIT:
                return
            self._stay()
            self._answer(command[0], Fields(command[1:]))

    def _stay(self) -> None:
        """Raise where the token of this session is no longer the analyst's."""
        if self._keys.number(self._session.analyst) != self._number:
            raise denied(self._session.analyst)

    def _answer(self, code: int, fields: Fields) -> None:
        asked = time.monotonic()
        try:
            answer = list(self._done(code, fields))
        except Gone:
            raise
        except Exception as error:  # nothing of it gets out: `fault_of`
            answer = [packets.failed(fault_of(error))]
            if code == Command.CHANGE_USER:
                self._session.over = True
        # the protocol has no answer to them, not even an error
        if code in _UNANSWERED:
            return
        # errors wait as answers do: how soon one comes would tell what was looked at
        if code in (Command.QUERY, Command.PREPARE, Command.EXECUTE):
            self._wait(asked)
        self._stay()
        self._send(answer)

    def _wait(self, asked: float) -> None:
        if self._every > 0:
            time.sleep(until_due(self._every, time.monotonic() - asked))

    def _send(self, answer: list[bytes]) -> None:
        waiting = bytearray()
        for packet in answer:
            waiting += self._wire.framed([packet])
            if len(waiting) >= _AT_ONCE:
                self._wire.send(bytes(waiting))
                waiting.clear()
        self._wire.send(bytes(waiting))

    def _done(self, code: int, fields: Fields) -> Iterable[bytes]:
        """Do a command, and return the packets of its answer."""
        # whatever does not return here is answered with an OK
        match code:
            case Command.QUERY:
                return self._rows(self._ask(_text(fields.rest())), binary=False)
            case Command.PREPARE:
                return self._prepare(_text(fields.rest()))
            case Command.EXECUTE:
                return self._execute(fields)
            case Command.LONG_DATA:
                prepared = self._statements.find(fields.number(4))
                if prepared is not None:
                    prepared.add(fields.number(2), fields.rest(), self._largest)
            case Command.CLOSE:
                self._statements.drop(fields.number(4))
            case Command.RESET:
                self._statements.get(fields.number(4)).reset()
            case Command.INIT_DB:
                self._catalogue().use(self._session, _text(fields.rest()))
            case Command.FIELD_LIST:
                listed = self._catalogue().fields(self._session, _text(fields.until_zero()))
                return [*(definition(column, listed=True) for column in listed), packets.end(self._status)]
            case Command.SET_OPTION:
                if fields.number(2) != 1:  # 1: several statements off, as they are
                    raise Fault(1235, "42000", "several statements in one text are not answered")
                return [packets.end(self._status)]
            case Command.RESET_CONNECTION:
                self._statements.clear()
                self._session.notes = ()
                self._session.variables = Variables()
                self._session.current, self._session.transaction = self._session.database, False
            case Command.PING:
                pass
            case _:
                raise unknown_command()
        return [packets.done(self._status)]

    @property
    def _status(self) -> int:
        status = AUTOCOMMIT if self._session.variables.autocommit else 0
        return status | (_IN_TRANSACTION if self._session.transaction else 0)

    def _ask(self, text: str, parameters: Sequence[Any] = ()) -> Answer:
        """Return the answer of the catalogue, or else the room's."""
        dialect: Dialect = "duckdb" if is_duckdb(text) else "mysql"
        known = self._catalogue().answer(self._session, text, parameters) if dialect == "mysql" else None
        if known is not None:
            return known
        self._session.notes = ()  # of the last question; what the catalogue answers leaves them there
        answer = self._room.ask(self._session.analyst, text, dialect, parameters)
        self._session.notes = answer.notes
        most = self._session.variables.most_rows
        return answer if most is None or len(answer.rows) <= most else replace(answer, rows=answer.rows[:most])

    def _rows(self, answer: Answer, *, binary: bool) -> Iterator[bytes]:
        if not answer.columns:
            yield packets.done(self._status, len(answer.notes))
            return
        yield packets.length(len(answer.columns))
        yield from map(definition, answer.columns)
        yield packets.end(self._status)
        yield from rows(answer.columns, answer.rows, binary=binary)
        yield packets.end(self._status, len(answer.notes))

    def _prepare(self, text: str) -> list[bytes]:
        places = 0
        if not is_duckdb(text):
            rewritten = read(text)
            places = rewritten.places
            if len(rewritten.statements) > 1:
                raise Refused("unsupported", "one statement at a time: a text with several is not answered")
        columns = self._described(text, places)
        number = self._statements.keep(text, places)
        answer = [b"\0" + struct.pack("<IHHBH", number, len(columns), places, 0, 0)]
        if places:
            answer += [definition(Column("?", "VARCHAR"))] * places + [packets.end(self._status)]
        if columns:
            answer += [*map(definition, columns), packets.end(self._status)]
        return answer

    def _described(self, text: str, places: int) -> tuple[Column, ...]:
        """Return the columns that an execution will have; none where that depends on its parameters.

        Nothing is bought or charged: the catalogue has no row, and the room looks at an empty copy of the schema.
        """
        if is_duckdb(text):
            return self._room.describe(self._session.analyst, text)
        nothing = [None] * places
        try:
            known = self._catalogue().described(self._session, text, nothing)
            return self._room.describe(self._session.analyst, text, "mysql", nothing) if known is None else known
        except Refused as refused:
            if places and refused.kind not in ("syntax", "no_table", "no_column"):
                return ()
            raise

    def _execute(self, fields: Fields) -> Iterator[bytes]:
        prepared = self._statements.get(fields.number(4))
        fields.take(5)  # a cursor is not opened, whoever asks for one
        try:
            parameters = prepared.parameters(fields)
        finally:
            prepared.reset()
        return self._rows(self._ask(prepared.text, parameters), binary=True)


def is_duckdb(text: str) -> bool:
    """Return whether a statement is in DuckDB's own words: it begins with FROM, as no question of MySQL's does."""
    return _FROM.match(text) is not None


def _text(value: bytes) -> str:
    if len(value) > 4 * LONGEST:
        raise Refused("refused", f"a statement has at most {LONGEST} characters")
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise Fault(1300, "HY000", "Invalid utf8mb4 character string: texts are in UTF-8 here") from None
