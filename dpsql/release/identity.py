"""What a release is called, and which file it is in."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

from dpsql.errors import ReleaseError

SUFFIX = ".release.parquet"
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
    found = [*store.glob("*" + SUFFIX), *imports_of(store).glob("*" + SUFFIX)]
    return sorted((path.name.split(".", 1)[0], path) for path in found)


def draft_of(path: Path, contents: str) -> Path:
    """Return the hidden name of a finished file that the ledger does not know yet."""
    return path.with_name(f".{path.name}.{contents}")
