"""Readings that may have failed without the books knowing: a note beside the releases, until they do.

A fatal error of DuckDB closes the database, and a crash ends the process: then the ledger cannot say that a reading failed, and a
new process would read again under the same charge, which tells by one more crash what a row holds. So a reading through anything
but a plain source leaves a note before it begins, and takes it away when its outcome is known, or when somebody interrupted it. A
note that is found later belongs to a reading that died, of which nobody can tell whether a row killed it: it has failed. Notes hold
public words.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_PREFIX = ".failed-"


@dataclass(frozen=True)
class Note:
    """What a note says: which release of which table was read, under which charge, by which open database.

    ``charge`` is the hash of the ledger's entry: a store may serve several databases with tables of one name.
    """

    source: str
    release: str
    charge: str
    instance: str

    def path(self, store: Path) -> Path:
        """Return where the note lies."""
        return store / f"{_PREFIX}{hashlib.sha256(json.dumps([self.source, self.charge]).encode()).hexdigest()[:32]}.json"

    def write(self, store: Path) -> None:
        """Write the note to disk; a disk that cannot take it leaves none."""
        with suppress(OSError), self.path(store).open("w", encoding="utf-8") as handle:
            json.dump(vars(self), handle)
            handle.flush()
            os.fsync(handle.fileno())

    def forget(self, store: Path) -> None:
        """Remove the note: the outcome is known."""
        with suppress(OSError):
            self.path(store).unlink(missing_ok=True)


def noted(store: Path, source: str) -> list[Note]:
    """Return the notes about a table; a damaged one says nothing.

    Privacy: free; public words.
    """
    notes: list[Note] = []
    for path in sorted(store.glob(f"{_PREFIX}*.json")):
        try:
            said = Note(**json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            continue
        if said.source == source:
            notes.append(said)
    return notes
