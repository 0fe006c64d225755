"""What clients come back for, under names that nobody can guess: prepared statements, and statements whose answer is to be read."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from dpsql.serve.flight.login import Visitor
from dpsql.serve.passed import Refused

Kept = TypeVar("Kept")
UNKNOWN: Final = "this handle or ticket is none of yours, or is too old: prepare or ask the statement again"


@dataclass(frozen=True)
class Asked:
    """A statement, the number of values that it takes, and these values once they were sent."""

    text: str
    places: int = 0
    values: Sequence[Any] = ()


class Handles(Generic[Kept]):
    """Things that are kept, each for the one analyst with the one token that put it there.

    Parameters
    ----------
    each : int
        Of one analyst: the one that was not used for longest goes where there are more.
    seconds : float
        How long one is kept that nobody uses.

    Privacy
    -------
    A handle has 128 random bits, and is looked up with who shows it: another analyst's is as one that there never was.
    """

    def __init__(self, each: int = 64, seconds: float = 3_600.0) -> None:
        self._each, self._seconds = each, seconds
        self._kept: dict[tuple[Visitor, bytes], tuple[Kept, float]] = {}  # the one that was used last comes last
        self._guard = threading.Lock()

    def put(self, visitor: Visitor, value: Kept) -> bytes:
        """Keep a thing, and return its handle."""
        handle, now = secrets.token_hex(16).encode(), time.monotonic()
        with self._guard:
            self._kept[visitor, handle] = value, now
            hers = [key for key in self._kept if key[0] == visitor]
            old = {key for key, (_, used) in self._kept.items() if now - used > self._seconds} | set(hers[: -self._each])
            for key in old:
                del self._kept[key]
        return handle

    def get(self, visitor: Visitor, handle: bytes) -> Kept:
        """Return a thing; raises `Refused` where there is none for this analyst."""
        with self._guard:
            entry = self._kept.pop((visitor, handle), None)
            if entry is None:
                raise Refused("refused", UNKNOWN)
            self._kept[visitor, handle] = entry[0], time.monotonic()
        return entry[0]

    def change(self, visitor: Visitor, handle: bytes, value: Kept) -> None:
        """Put a thing in the place of another; raises `Refused` where there is none for this analyst."""
        self.get(visitor, handle)
        with self._guard:
            self._kept[visitor, handle] = value, time.monotonic()

    def drop(self, visitor: Visitor, handle: bytes) -> None:
        """Forget a thing."""
        with self._guard:
            self._kept.pop((visitor, handle), None)
