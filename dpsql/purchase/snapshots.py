"""Which version of a relation a release has read: taken once, kept in the release store beside the release.

Privacy
-------
A version is not public. It counts commits, or names one: where a row, or the rows of a unit, came by a commit of their own, it
differs between neighbouring tables, and no noise is on it. So it is in no release, no entry of the ledger, no plan and no message.
It is in a file of its own in the release store, which is the custodian's, and which neither an export nor a report takes along.
"""

from __future__ import annotations

import datetime as dt
import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dpsql.books.entries import Purchase
from dpsql.errors import ReleaseError
from dpsql.measure.reading import version_of
from dpsql.protected.source import ProtectedSource
from dpsql.release.identity import SUFFIX
from dpsql.session.instance import Context

SAME = dt.timedelta(days=1)
"""So long a call that finishes a release reads the version of the first try: formats keep versions for some days at least, and a
version whose files are gone is noticed no sooner than a task fails."""
_ENDING = ".version.json"


@dataclass(frozen=True)
class Note:
    """What is kept: which release has read which version of which relation, and when it was taken (UTC)."""

    release: str
    relation: str
    version: str
    taken_at: str


def note_of(path: Path) -> Path:
    """Return where the note of a release lies, given the path of its file."""
    return path.with_name(path.name.removesuffix(SUFFIX) + _ENDING)


def pinned(context: Context, protected: ProtectedSource, purchase: Purchase, path: Path) -> str | None:
    """Return the version that all statements of a release are to read, and keep it; None where the relation has none.

    Parameters
    ----------
    path : Path
        Of the release.

    Raises
    ------
    DpsqlError
        For a public reason, before a row was read: Spark cannot be reached, or the store cannot be written to.

    Notes
    -----
    Privacy: see above; what is returned goes to the reader and to the note alone.
    """
    if protected.remote is None:
        return None
    place, relation = note_of(path), protected.remote.relation
    for exclusive in (True, False):
        before = _kept(place, relation)
        found = version_of(context, protected, before)
        if found is None:
            with suppress(OSError):  # an earlier try may have had one
                place.unlink(missing_ok=True)
        if found == before or found is None:
            return found
        now = dt.datetime.now(dt.UTC).replace(microsecond=0).isoformat()
        # Of two processes that finish one release side by side, the second one reads the version of the first.
        if _written(place, Note(purchase.release, relation, found, now), new=exclusive and before is None):
            return found
    raise AssertionError  # pragma: no cover -- the second round writes


def _kept(place: Path, relation: str) -> str | None:
    """Return the version of an earlier try; None where there is none, or it is old, or of another relation."""
    try:
        note = Note(**json.loads(place.read_text(encoding="utf-8")))
        taken = dt.datetime.fromisoformat(note.taken_at)
    except (OSError, ValueError, TypeError):
        return None
    fresh = dt.timedelta() <= dt.datetime.now(dt.UTC) - taken <= SAME
    return str(note.version) if fresh and note.relation == relation else None


def _written(place: Path, note: Note, *, new: bool) -> bool:
    """Write a note; False where it was to be a new one and is there."""
    try:
        with place.open("x" if new else "w", encoding="utf-8") as handle:
            json.dump(vars(note), handle)
    except FileExistsError:
        return False
    except OSError as error:
        raise ReleaseError(f"the release store cannot be written to ({type(error).__name__}): {place.parent}") from None
    return True
