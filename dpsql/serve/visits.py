"""Who stands at a door: connections and their limits, counted the same way at each.

Privacy: None: nothing of the database is here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar


@dataclass(frozen=True)
class Limits:
    """What clients of a door may take.

    Parameters
    ----------
    connections : int
        In all.
    each : int
        Of one analyst, after she was let in.
    strangers : int
        Before anybody was let in; the one that waits longest goes where another one comes.
    login : float
        Seconds until a token was shown, whatever is sent meanwhile.
    packet : float
        Seconds for the rest of a packet or frame, and for a client to take a piece of an answer or of a frame.
    idle : float
        Seconds between two commands, or without a frame and without an open call.
    largest : int
        Bytes of a packet, or of what a client sends in one call.
    """

    connections: int = 100
    each: int = 10
    strangers: int = 20
    login: float = 10.0
    packet: float = 30.0
    idle: float = 3600.0
    largest: int = 1 << 24


class Visit(Protocol):
    """One connection. ``name``: whose it is; None: nobody was let in yet."""

    name: str | None

    def cut(self) -> None:
        """End the connection."""


Key = TypeVar("Key")
One = TypeVar("One", bound=Visit)


class Visits(Generic[Key, One]):
    """The connections of a door, by a key that nobody can guess; safe to use from any thread."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._guard = threading.Lock()
        self._there: dict[Key, One] = {}

    def enter(self, key: Callable[[], Key], begin: Callable[[Key], One]) -> One | None:
        """Take a connection; None where there are too many. Of too many strangers the one that waits longest is ended."""
        with self._guard:
            strangers = [visit for visit in self._there.values() if visit.name is None]
            if len(strangers) >= self._limits.strangers:
                strangers[0].name = ""  # it counts no longer, and ends by itself
                strangers[0].cut()
            if len(self._there) >= self._limits.connections:
                return None
            new_key = key()
            while new_key in self._there:
                new_key = key()
            visit = self._there[new_key] = begin(new_key)
            return visit

    def admit(self, key: Key, name: str) -> bool:
        """Count a connection as an analyst's; False: she has too many of them, or it is none."""
        with self._guard:
            visit = self._there.get(key)
            if visit is None:
                return False
            if not visit.name:
                if sum(visitor.name == name for visitor in self._there.values()) >= self._limits.each:
                    return False
                visit.name = name
            return True

    def get(self, key: Key) -> One | None:
        """Return a connection, None if it is none."""
        with self._guard:
            return self._there.get(key)

    def leave(self, key: Key) -> None:
        """Count a connection no longer."""
        with self._guard:
            self._there.pop(key, None)

    def values(self) -> list[One]:
        """Return the connections as they are now."""
        with self._guard:
            return list(self._there.values())
