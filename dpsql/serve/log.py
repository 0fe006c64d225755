"""A line for each question, for the custodian: who asked, what became of it, what it bought at which cost, about how long it took.

No text of a question, no value, no token, no address is in it; of a release the end of its name alone, since the rest may be an
analyst's words. How long something took is said in classes, as what is exact could
show a row to whoever reads logs and no tables.

Privacy: None: of the books, and of a clock; for the custodian alone.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import threading
from collections.abc import Iterable
from pathlib import Path

from dpsql.errors import ArgumentError
from dpsql.purchase.uses import Paid

CLASSES = (0.1, 1.0, 10.0, 100.0)
"""Seconds at which another class of durations begins."""


def duration(seconds: float) -> str:
    """Return the class of a duration.

    Examples
    --------
    >>> duration(0.05), duration(0.1), duration(99), duration(500)
    ('< 0.1 s', '< 1 s', '< 100 s', '>= 100 s')
    """
    return next((f"< {most:g} s" for most in CLASSES if seconds < most), f">= {CLASSES[-1]:g} s")


def _end(release: str) -> str:
    """Return the end of a release's name, which is a hash.

    Examples
    --------
    >>> _end("visits-query-my words-0822aa4a")
    '0822aa4a'
    """
    return release.rsplit("-", 1)[-1]


class Log:
    """A file of JSON, a line a question; for its owner alone. Where it was moved away another one is begun.

    Parameters
    ----------
    path : Path

    Raises
    ------
    ArgumentError
        It cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._guard = threading.Lock()
        try:
            os.close(self._opened())
        except OSError as error:
            raise ArgumentError("log", str(path), f"cannot be written ({error.strerror}); name another file") from None

    def __call__(self, analyst: str, outcome: str, paid: Iterable[Paid], seconds: float) -> None:
        """Write a line; where the disk takes none the question is answered all the same."""
        line = {
            "at": dt.datetime.now(dt.UTC).replace(microsecond=0).isoformat().replace("+00:00", "Z"),
            "analyst": analyst,
            "outcome": outcome,
            "paid": [{"release": _end(one.release), "epsilon": float(f"{one.epsilon:.6g}"), "shared": one.shared} for one in paid],
            "took": duration(seconds),
        }
        text = f"{json.dumps(line, ensure_ascii=False)}\n".encode()
        with self._guard:
            try:
                handle = self._opened()
            except OSError:
                return
            try:
                os.write(handle, text)
            except OSError:
                return
            finally:
                os.close(handle)

    def _opened(self) -> int:
        return os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
