"""Entries that are appended to a ledger as dpsql appends them, many at once: books of thousands of releases, for tests and benchmarks."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from typing import Any

import duckdb
import pandas as pd

from dpsql.books.entries import FIELDS
from dpsql.books.hashes import entry_hash, shown, stored

_NAMES = [*FIELDS, "hash"]


def extend(con: duckdb.DuckDBPyConnection, source: str, entries: Iterable[Mapping[str, Any]]) -> None:
    """Append entries to the book of a source in the database in use; what is not said of one is as in its first charge."""
    listed = f"SELECT {', '.join(_NAMES)} FROM dpsql.ledger WHERE source = '{source}'"
    first, last = (
        dict(zip(_NAMES, con.execute(f"{listed} {which}").fetchall()[0], strict=True))
        for which in ("AND action = 'charge' ORDER BY entry ASC", "ORDER BY entry DESC")
    )
    number, previous, rows = last["entry"], last["hash"], []
    for entry in entries:
        number += 1
        moment = dt.datetime(2026, 1, 1) + dt.timedelta(seconds=number)
        row = {**first, **entry, "entry": number, "previous": previous, "written_at": moment}
        texts = {name: shown(stored(row[name], kind)) for name, kind in FIELDS.items()}
        previous = entry_hash(texts)
        rows.append([*texts.values(), previous])
    if rows:
        appended = pd.DataFrame(rows, columns=_NAMES, dtype=object)
        cast = ", ".join(f"{name}::{FIELDS.get(name, 'VARCHAR')}" for name in _NAMES)
        con.register("dpsql_appended", appended)
        con.execute(f"INSERT INTO dpsql.ledger SELECT {cast} FROM dpsql_appended")
        con.unregister("dpsql_appended")


def releases(many: int) -> list[dict[str, Any]]:
    """Return the entries of so many stored releases."""
    return [{"action": action, "release": f"earlier {i}"} for i in range(many) for action in ("charge", "store")]
