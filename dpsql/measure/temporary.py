"""Temporary tables of the connection that reads, for as long as they are needed.

Privacy: what they hold is as secret as the rows that they are made of. They are gone with their transaction, however that ends.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import duckdb

from dpsql.domains.encoding import guarded
from dpsql.source.listed import noted
from dpsql.text.relation import identifier


class Temporary(NamedTuple):
    """A temporary table: its name, as SQL, and its number of rows."""

    name: str
    rows: int


@contextmanager
def temporary_table(
    cursor: duckdb.DuckDBPyConnection, what: str, select: str, values: Sequence[Any] = (), *, secret: bool = True
) -> Iterator[Temporary]:
    """Make a temporary table for as long as it is needed.

    Parameters
    ----------
    what : str
        Part of its name.
    select : str
    values : sequence
        Of the parameters of ``select``.
    secret : bool
        Whether it is made of protected rows: then the text of an error is withheld.
    """
    name = identifier(f"dpsql_{what}_{secrets.token_hex(8)}")
    text = f"CREATE TEMP TABLE {name} AS {select}"
    with noted(cursor, "table"):
        made = guarded(cursor, text, values or None) if secret else cursor.execute(text, values)
        rows = int(made.fetchall()[0][0])
    try:
        yield Temporary(name, rows)
    finally:
        with suppress(duckdb.TransactionException), noted(cursor, "dropped"):  # a statement failed: it goes with its transaction
            cursor.execute(f"DROP TABLE {name}")
