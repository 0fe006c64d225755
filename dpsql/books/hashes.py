"""The hash of a ledger's entry, and whether entries follow from one another: what ``sql/entry_hash.sql`` and ``sql/chain.sql`` say.

The SQL is what readers without dpsql use, and what checks a long book. For a short one most of its time goes into setting up some
hundred expressions, so there the same is done here; a test holds the two against each other.

Privacy: None: hashes of the books.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Mapping, Sequence
from decimal import Context, Decimal
from typing import Any

from dpsql.books.entries import FIELDS

TEXTS = ("entry", "written_at", "rho", "epsilon", "delta", "max_contributions")
"""Columns that are no texts: what DuckDB writes of them is hashed."""
_KINDS = {"INTEGER": int, "TIMESTAMP": dt.datetime, "VARCHAR": str}
_EXACT = {name: kind for name, kind in FIELDS.items() if name in TEXTS and kind != "INTEGER"}
_WIDE = Context(prec=100)


def shown(value: object) -> str | None:
    """Return what DuckDB writes of a value that it has read from a column of its type (`FIELDS`); None for NULL.

    Examples
    --------
    >>> shown(dt.datetime(2026, 1, 2, 3, 4, 5, 600_000)), shown(Decimal("0.50")), shown(7)
    ('2026-01-02 03:04:05.6', '0.50', '7')
    """
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, dt.datetime):
        whole = value.replace(microsecond=0, tzinfo=None).isoformat(" ")
        return whole if not value.microsecond else f"{whole}.{value.microsecond:06d}".rstrip("0")
    return str(value)


def stored(value: object, kind: str) -> object:
    """Return a value as a column of a type will hold it.

    Raises
    ------
    ValueError
        Not without rounding, or the type is another one: DuckDB is to be asked.
    """
    wanted = _KINDS.get(kind, Decimal)
    if value is None or (type(value) is wanted and wanted is not Decimal and getattr(value, "tzinfo", None) is None):
        return value
    if not isinstance(value, Decimal) or wanted is not Decimal or not value.is_finite():
        raise ValueError(kind)
    width, scale = map(int, kind.removeprefix("DECIMAL(").rstrip(")").split(","))
    rounded = value.quantize(Decimal(1).scaleb(-scale), context=_WIDE)
    if rounded != value or len(rounded.as_tuple().digits) > width:
        raise ValueError(kind)
    return rounded


def types_hold(types: Mapping[str, str]) -> bool:
    """Return whether moments and numbers with digits are of the types that they had when the books were made, by column.

    A moment of another type has digits that Python does not see.
    """
    return all(types.get(name) == kind for name, kind in _EXACT.items())


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


def follows(source: str, entries: Sequence[Mapping[str, Any]], after: tuple[int, str | None] = (0, None)) -> bool:
    """Return whether each entry of a source, sorted by number, has its hash and follows from the one before.

    Parameters
    ----------
    entries : sequence of mapping
        All columns, of the types that `types_hold` wants.
    after : tuple of int and str
        Number and hash of the entry before the first one; 0 where there is none.
    """
    number, previous = after if after[0] else (0, first_hash(source))
    for entry in entries:
        if not all(_fits(entry[name], kind) for name, kind in FIELDS.items()) or entry["source"] != source:
            return False
        texts = {name: shown(entry[name]) for name in FIELDS}
        if entry["hash"] != entry_hash(texts) or entry["previous"] != previous or entry["entry"] != number + 1:
            return False
        previous, number = entry["hash"], entry["entry"]
    return True


def _fits(value: object, kind: str) -> bool:
    """Return whether a value is of the type that its column had when the books were made."""
    return value is None or isinstance(value, _KINDS.get(kind, Decimal))
