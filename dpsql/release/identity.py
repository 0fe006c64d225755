"""What a release is called, and which file it is in."""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path

from dpsql.errors import ReleaseError

SUFFIX = ".release.parquet"
MOST_LISTED = 12
"""Identifiers that a message shows."""
_HASH = re.compile(r"[0-9a-f]{64}")


def slug(text: str) -> str:
    """Return a name as it stands in an identifier of a release.

    Examples
    --------
    >>> slug("by order")
    'by_order'
    """
    return re.sub(r"[^A-Za-z0-9_]+", "_", text).strip("_")[:40]


def release_id(source: str, operation: str, query: str, name: str, owner: str = "") -> str:
    """Return the identifier of a release: readable, usable as a file name, and distinct for distinct keys.

    Parameters
    ----------
    owner : str
        The analyst who alone is to have it; '': whoever asks.

    Examples
    --------
    >>> release_id("main.adult", "synthesize", "main.adult", "default")
    'adult-synthesize-default-c1eceb74'
    """
    key = json.dumps([source, operation, query, name, *([owner] if owner else [])], ensure_ascii=False)
    digest = hashlib.sha256(key.encode()).hexdigest()[:8]
    stem = source.rsplit("/", 1)[-1] if source.startswith("file:") else source.rsplit(".", 1)[-1]
    parts = [slug(part) for part in (stem, operation, name)]
    return "-".join([part for part in parts if part] + [digest])


def valid_identifier(identifier: str) -> bool:
    """Return whether a text can be the identifier of a release (and so a file name)."""
    return re.fullmatch(r"[A-Za-z0-9_-]{1,160}", identifier) is not None


def path_of(store: Path, identifier: str, charge_hash: str) -> Path:
    """Return where the store keeps the release that a charge (the hash of its ledger entry) has paid for."""
    if not valid_identifier(identifier) or not _HASH.fullmatch(charge_hash):
        raise ReleaseError(f"release = {identifier!r}: not an identifier of a release; FROM dp_releases() lists them")
    return store / f"{identifier}.{charge_hash[:16]}{SUFFIX}"


def imports_of(store: Path) -> Path:
    """Return the folder of what was imported: apart, so that it never stands in the place of what was bought."""
    return store / "imported"


def stored_files(store: Path) -> list[tuple[str, Path]]:
    """Return identifier and path of every release in a store, bought or imported."""
    files = [*store.glob("*" + SUFFIX), *imports_of(store).glob("*" + SUFFIX)]
    return sorted((path.name.split(".", 1)[0], path) for path in files)


def draft_of(path: Path, contents: str) -> Path:
    """Return the hidden name of a finished file that the ledger does not know yet."""
    return path.with_name(f".{path.name}.{contents}")


def listed(known: Sequence[str], wrong: str | None = None, most: int = MOST_LISTED) -> str:
    """Return identifiers for a message, those first that are nearly what was written, or whose name is.

    Examples
    --------
    >>> listed([f"p-query-{name}-0{i}" for i, name in enumerate(["wards", "ages", "stays"])], "agse")
    "'p-query-ages-01' (did you mean this?), 'p-query-wards-00', 'p-query-stays-02'"
    >>> listed([]), listed(["a-query-b-1"] * (MOST_LISTED + 1))[-21:]
    ('none yet', "query-b-1' and 1 more")
    """
    near: list[str] = []
    if wrong is not None:
        forms = {item: {item.lower(), item.rsplit("-", 1)[0].split("-", 2)[-1].lower()} for item in known}
        same = {form: item for item in reversed(known) for form in forms[item]}
        spellings = [form for name in (wrong, slug(wrong)) for form in difflib.get_close_matches(name.lower(), list(same), 3, 0.6)]
        near = list(dict.fromkeys(same[form] for form in spellings))
    shown = [*near, *(item for item in known if item not in near)]
    texts = [f"{item!r}{' (did you mean this?)' if item in near[:1] else ''}" for item in shown[:most]]
    return (", ".join(texts) + (f" and {len(shown) - most} more" if len(shown) > most else "")) or "none yet"
