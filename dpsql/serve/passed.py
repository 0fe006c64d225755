"""What passes between a door and the room: a text comes in, a typed answer or a refusal goes out.

A door is a wire. It knows who asks, hands over a text, and writes what it is given. It holds no policy, and no connection to the
served database.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

Dialect = Literal["duckdb", "mysql"]
Kind = Literal["syntax", "no_table", "no_column", "refused", "unsupported", "busy", "stopped", "failed"]
"""What a refusal is about, so that a door finds its protocol's code: ``no_table`` and ``no_column`` are names that mean nothing to
this analyst, ``refused`` is policy (and the way out is in the text), ``failed`` is the machine's."""


@dataclass(frozen=True)
class Column:
    """A column of an answer: its name and DuckDB's text of its type ('BIGINT', 'DECIMAL(18,3)', 'VARCHAR[]')."""

    name: str
    type: str


@dataclass(frozen=True)
class Answer:
    """Rows of Python values, as DuckDB's `fetchall` gives them, under typed columns; beside them lines on what they are made of."""

    columns: tuple[Column, ...]
    rows: Sequence[tuple[Any, ...]]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Table:
    """A table that an analyst may ask about: names and types alone. ``protected``: its rows are never shown."""

    schema: str
    name: str
    columns: tuple[Column, ...]
    is_view: bool
    protected: bool


class Refused(Exception):
    """No answer: one line of a closed list, made from what the analyst typed and may see."""

    def __init__(self, kind: Kind, text: str) -> None:
        super().__init__(text)
        self.kind, self.text = kind, text


class Room(Protocol):
    """The one place with policy (`dpsql.serve.ask`)."""

    database: str
    """The name under which analysts know the database."""

    def ask(self, analyst: str, text: str, dialect: Dialect = "duckdb", parameters: Sequence[Any] = ()) -> Answer:
        """Answer one statement; raises `Refused` and nothing else. Safe to call from several threads at once."""

    def describe(self, analyst: str, text: str, dialect: Dialect = "duckdb", parameters: Sequence[Any] = ()) -> tuple[Column, ...]:
        """Return the columns that `ask` would give, from an empty copy of the schema: nothing is read, bought or charged."""

    def places(self, analyst: str, text: str) -> int:
        """Return how many values a statement takes for its parameters; it is parsed, in DuckDB's dialect, and nothing else."""

    def schema(self, analyst: str) -> tuple[Table, ...]:
        """Return what the analyst may see."""


class Keys(Protocol):
    """Who may come in (`dpsql.serve.analysts`)."""

    def native(self, name: str) -> bytes | None:
        """Return SHA1(SHA1(token)) of a valid analyst's token, which MySQL's native password takes; None: nobody of that name."""

    def admits(self, name: str, token: str) -> int | None:
        """Return the number of a valid analyst's token if this is it; None: it is not, or there is nobody of that name."""

    def of_token(self, token: str) -> tuple[str, int] | None:
        """Return whose token this is, and its number, for doors that ask for no name; None: nobody's."""

    def number(self, name: str) -> int | None:
        """Return the number of a valid analyst's token; a session whose number it is no longer is over (revoked, expired, new)."""


class Grants(Protocol):
    """What analysts may ask about (`dpsql.serve.analysts`); tables and views by the name that the books have: ``main.visits``."""

    def granted(self, analyst: str) -> Mapping[str, float]:
        """Return the protected tables that an analyst may ask about, each with the epsilon of one question; of nobody: none."""

    def public(self) -> Collection[str]:
        """Return the tables and views that every analyst sees: unprotected ones, and views over what is granted."""
