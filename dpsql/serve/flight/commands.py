"""What each message of Flight SQL is answered with: the room's answers to statements, the catalogue's to questions about names.

Privacy
-------
It holds no policy and no connection to the served database: it hands a text to the room, and gives what it is given.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from dpsql.serve.errors import UNDESCRIBED
from dpsql.serve.flight import catalogue
from dpsql.serve.flight.handles import Asked, Handles
from dpsql.serve.flight.login import Visitor
from dpsql.serve.flight.messages import Message, read, written
from dpsql.serve.flight.types import batches_of, schema_of
from dpsql.serve.gate.reasons import own
from dpsql.serve.passed import Column, Refused, Room

PREPARE, CLOSE = "CreatePreparedStatement", "ClosePreparedStatement"
ACTIONS: Final = {PREPARE: "prepare a statement", CLOSE: "forget a prepared statement"}
_STATEMENT, _PREPARED, _TICKET = "CommandStatementQuery", "CommandPreparedStatementQuery", "TicketStatementQuery"
_LONGEST_VALUES: Final = 1 << 18
"""Bytes of the values of a statement."""
_NAMED_WRONGLY: Final = frozenset({"syntax", "no_table", "no_column"})
"""Kinds of refusals that no value of a parameter would change."""
_UNSERVED: Final = "{} is not answered here: queries, prepared queries and the catalogue are; nothing is changed or put in"


class Commands:
    """Answers messages.

    Parameters
    ----------
    room : Room
    """

    def __init__(self, room: Room) -> None:
        self._room = room
        self._prepared: Handles[Asked] = Handles()
        self._tickets: Handles[Asked] = Handles()

    def info(self, visitor: Visitor, command: bytes) -> tuple[Any, bytes]:
        """Return the schema of an answer, where it is known before, and the ticket for it; nothing is bought."""
        message = read(command)
        shape = catalogue.shape_of(message)
        if shape is not None:
            return shape, command
        asked = self._asked(visitor, message)
        columns = self._described(visitor, asked)
        ticket = written(_TICKET, {1: self._tickets.put(visitor, asked)})
        return None if columns is None else schema_of(columns), ticket

    def answer(self, visitor: Visitor, ticket: bytes) -> tuple[Any, Iterator[Any]]:
        """Return the schema and the batches of an answer."""
        message = read(ticket)
        if catalogue.shape_of(message) is not None:
            table = catalogue.answer(message, self._room.database, lambda: self._room.schema(visitor.name))
            return table.schema, iter(table.to_batches())
        if message.name != _TICKET:
            raise Refused("unsupported", _UNSERVED.format(own(message.name)))
        asked = self._tickets.get(visitor, message.bytes(1))
        return batches_of(self._room.ask(visitor.name, asked.text, "duckdb", asked.values))

    def act(self, visitor: Visitor, action: str, body: bytes) -> list[bytes]:
        """Do an action, and return what it gives."""
        if action == PREPARE:
            return [self._prepare(visitor, read(body))]
        if action == CLOSE:
            self._prepared.drop(visitor, read(body).bytes(1))
            return []
        raise Refused("unsupported", _UNSERVED.format(own(action)))

    def put(self, visitor: Visitor, command: bytes, batches: Iterator[Any]) -> None:
        """Take the values of a prepared statement; everything else that could be put in is refused."""
        message = read(command)
        if message.name != _PREPARED:
            raise Refused("unsupported", _UNSERVED.format(own(message.name)))
        handle = message.bytes(1)
        asked = self._prepared.get(visitor, handle)
        self._prepared.change(visitor, handle, Asked(asked.text, asked.places, _values(batches)))

    def _asked(self, visitor: Visitor, message: Message) -> Asked:
        """Return the statement that a command is about."""
        if message.name == _STATEMENT:
            return Asked(_text(message))
        if message.name == _PREPARED:
            return self._prepared.get(visitor, message.bytes(1))
        raise Refused("unsupported", _UNSERVED.format(own(message.name)))

    def _described(self, visitor: Visitor, asked: Asked) -> tuple[Column, ...] | None:
        """Return the columns of an answer; None: they follow from what is bought."""
        try:
            return self._room.describe(visitor.name, asked.text, "duckdb", asked.values)
        except Refused as refused:
            if refused.text == UNDESCRIBED:
                return None
            raise

    def _prepare(self, visitor: Visitor, message: Message) -> bytes:
        text = _text(message)
        places = self._room.places(visitor.name, text)
        try:
            columns = self._described(visitor, Asked(text, places, [None] * places))
        except Refused as refused:  # of NULL; other values may be answered
            if not places or refused.kind in _NAMED_WRONGLY:
                raise
            columns = None
        handle = self._prepared.put(visitor, Asked(text, places))
        fields = {1: handle}
        if columns is not None:
            fields[2] = _packed(schema_of(columns))
        if places:
            fields[3] = _packed(pa.schema([pa.field(str(number), pa.null()) for number in range(1, places + 1)]))
        return written("ActionCreatePreparedStatementResult", fields)


def _text(message: Message) -> str:
    if message.bytes(2):
        raise Refused("unsupported", "there are no transactions here: leave them out")
    return message.text(1)


def _values(batches: Iterator[Any]) -> list[Any]:
    """Return the values in the one row of parameters."""
    rows: list[list[Any]] = []
    for batch in batches:
        if batch.nbytes > _LONGEST_VALUES or len(rows) + batch.num_rows > 1:
            raise Refused("unsupported", f"the values of a statement are one row of at most {_LONGEST_VALUES:,} bytes")
        rows += [[_value(column[row]) for column in batch.columns] for row in range(batch.num_rows)]
    if not rows:
        raise Refused("syntax", "the values of a statement are one row: there is none")
    return rows[0]


def _value(scalar: Any) -> Any:
    """Return a value as the room takes it; a moment with nanoseconds is one of microseconds where it has no other ones."""
    if isinstance(scalar, pa.TimestampScalar) and scalar.is_valid and scalar.type.unit == "ns":
        scalar = scalar.cast(pa.timestamp("us", scalar.type.tz))
    value = scalar.as_py()
    return value.astimezone(dt.UTC) if isinstance(value, dt.datetime) and value.tzinfo is not None else value


def _packed(schema: Any) -> bytes:
    packed: bytes = schema.serialize().to_pybytes()
    return packed

