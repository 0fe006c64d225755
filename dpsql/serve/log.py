"""The server's log: a line of JSON an event, without statements, values, tokens or session ids."""

from __future__ import annotations

import datetime as dt
import json
import os
import threading
from pathlib import Path

_ROUNDED = 100


class Log:
    """Lines at the end of a file that its owner alone can read; nothing without a file.

    Parameters
    ----------
    path : Path or None

    Raises
    ------
    OSError
        It cannot be written.
    """

    def __init__(self, path: Path | None) -> None:
        self._guard = threading.Lock()
        self._file = None if path is None else os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, kind: str, outcome: str, who: str | None = None, seconds: float | None = None) -> None:
        """Write what happened; a time in milliseconds is rounded to hundreds."""
        if self._file is None:
            return
        line: dict[str, object] = {"at": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"), "kind": kind, "outcome": outcome}
        if who is not None:
            line["who"] = who
        if seconds is not None:
            line["ms"] = int(round(seconds * 1000 / _ROUNDED) * _ROUNDED)
        with self._guard:
            try:
                os.write(self._file, (json.dumps(line, ensure_ascii=False) + "\n").encode())
            except OSError:  # a full disk: the log is not worth an answer
                return
