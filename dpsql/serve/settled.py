"""Whether a statement of the custodian's may have made a function, or may be about to: nobody else's can."""

from __future__ import annotations

import threading
import time


class Settled:
    """What `dpsql.source.listed.Functions` asks: a number that grows once a function may have been made, None while one may be.

    A session runs one statement after the other. So what a statement made is committed, or waits for a COMMIT that is a statement
    too, when its session says the next one.

    Parameters
    ----------
    idle : float
        Seconds after which a session without another statement is taken to be through with its last one.
    """

    def __init__(self, idle: float) -> None:
        self._idle, self._number = idle, 0
        self._changing: dict[str, float] = {}
        self._guard = threading.Lock()

    def __call__(self) -> int | None:
        """Return the number of changes so far, None while there may be one."""
        with self._guard:
            limit = time.monotonic() - self._idle
            for key in [key for key, since in self._changing.items() if since < limit]:
                del self._changing[key]
                self._number += 1
            return None if self._changing else self._number

    def statement(self, key: str, *, reads: bool) -> None:
        """Note that a session of the custodian's says a statement; ``reads``: it is nothing but SELECT."""
        with self._guard:
            if self._changing.pop(key, None) is not None:
                self._number += 1
            if not reads:
                self._changing[key] = time.monotonic()
