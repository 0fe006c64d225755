"""The hash of a ledger's entry, and whether entries follow from one another: what ``sql/entry_hash.sql`` and ``sql/chain.sql`` say.

The SQL is what readers without dpsql use, and what checks a long book. For a short one most of its time goes into setting up some
hundred expressions, so there the same is done here; a test holds the two against each other.

Privacy: None: hashes of the books.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from dpsql.books.entries import FIELDS

TEXTS = ("entry", "written_at", "rho", "epsilon", "delta", "max_contributions")
"""Columns that are no texts: what DuckDB writes of them is hashed."""
_KINDS = {"INTEGER": int, "TIMESTAMP": dt.datetime, "VARCHAR": str}


def first_hash(source: str) -> str:
    """Return what the first entry of a source follows from."""
    return hashlib.sha256(source.encode()).hexdigest()


def entry_hash(texts: Mapping[str, str | None]) -> str:
    """Return the SHA-256 of an entry: of its fields in the order of `FIELDS`, each as '<bytes>:<text>', or '-' where NULL.

    Examples
    --------
    >>> entry_hash({"source": "main.t", "entry": "1"})[:8], entry_hash({"source": "main.t1", "entry": ""})[:8]
    ('d1374393', '7a5f3d10')
    """
    hashed = hashlib.sha256()
    for name in FIELDS:
        text = texts.get(name)
        data = b"" if text is None else text.encode()
        hashed.update(b"-" if text is None else b"%d:%s" % (len(data), data))
    return hashed.hexdigest()


def follows(source: str, entries: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether each entry of a source, sorted by number, has its hash and follows from the one before.

    Parameters
    ----------
    entries : sequence of mapping
        All columns, and ``<column>_text`` of those in `TEXTS`.
    """
    previous, number = first_hash(source), 0
    for entry in entries:
        if not all(_fits(entry[name], kind) for name, kind in FIELDS.items()) or entry["source"] != source:
            return False
        texts = {name: entry[f"{name}_text"] if name in TEXTS else entry[name] for name in FIELDS}
        if entry["hash"] != entry_hash(texts) or entry["previous"] != previous or entry["entry"] != number + 1:
            return False
        previous, number = entry["hash"], entry["entry"]
    return True


def _fits(value: object, kind: str) -> bool:
    """Return whether a value is of the type that its column had when the books were made."""
    return value is None or isinstance(value, _KINDS.get(kind, Decimal))
