"""Who is connected: Quack's session ids, and the analyst of each."""

from __future__ import annotations

import secrets
import threading
import time
from dataclasses import dataclass, field

from dpsql.serve.tokens import Analyst


@dataclass
class Session:
    """One connection of a client.

    Parameters
    ----------
    token : Analyst
        The entry of the file that it came in with.
    answers : list of str
        Names of the answers that it may still read.
    secret : str
        What its calls are known by, where it is a custodian's.
    """

    token: Analyst
    seen: float
    answers: list[str] = field(default_factory=list)
    secret: str = field(default_factory=lambda: secrets.token_hex(16), repr=False)

    @property
    def name(self) -> str:
        """Name of the analyst."""
        return self.token.name


class Sessions:
    """The sessions that were let in; the longest idle goes where there are too many.

    Parameters
    ----------
    most : int
    idle : float
        Seconds after which a session without a statement is over.
    """

    def __init__(self, most: int, idle: float) -> None:
        self._most, self._idle = most, idle
        self._held: dict[str, Session] = {}
        self._guard = threading.Lock()

    def open(self, key: str, token: Analyst) -> list[str]:
        """Let a session in; return the answers of those that had to go."""
        with self._guard:
            gone = []
            if key not in self._held and len(self._held) >= self._most:
                gone = self._held.pop(min(self._held, key=lambda other: self._held[other].seen)).answers
            self._held[key] = Session(token, time.monotonic())
            return gone

    def find(self, key: str) -> Session | None:
        """Return a session that is not over, and note that it was seen."""
        with self._guard:
            found = self._held.get(key)
            if found is not None:
                found.seen = time.monotonic()
            return found

    def sweep(self) -> list[str]:
        """Forget idle sessions; return their answers."""
        with self._guard:
            limit = time.monotonic() - self._idle
            over = [key for key, session in self._held.items() if session.seen < limit]
            return [name for key in over for name in self._held.pop(key).answers]

    def secrets(self) -> set[str]:
        """Return the secrets of all sessions."""
        with self._guard:
            return {session.secret for session in self._held.values()}

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._held)
