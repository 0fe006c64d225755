"""Where the rows of a table are, and what an engine says of its columns."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from dpsql.errors import DpsqlError

FILES = "parquet:"
"""How a relation begins that is files."""
FORMATS = ("parquet", "delta", "orc")
_FILES = re.compile(rf"({'|'.join(FORMATS)}):(.+)", re.DOTALL)


@dataclass(frozen=True)
class Remote:
    """Where the rows of a table are that has none in DuckDB.

    Parameters
    ----------
    engine : str
        A name of `dpsql.engines.registry`.
    url : str
        Where the engine is reached; without credentials. With 'duckdb' the type of the attached database, '' for files, or where
        the name is of before it was written.
    relation : str
        What the engine calls the relation.
    """

    engine: str
    url: str
    relation: str


@dataclass(frozen=True)
class Described:
    """A column of a relation that an engine has: its name there, and the type that it has in DuckDB; None where it has none.

    ``kind``: the engine's name of the type. ``exact``: whether two values are equal here if and only if they are there.
    """

    name: str
    sql_type: str | None
    kind: str
    exact: bool = True


def files_of(relation: str) -> tuple[str, str] | None:
    """Return format and path where a relation is files.

    Examples
    --------
    >>> files_of("delta:/lake/people"), files_of("lake.people")
    (('delta', '/lake/people'), None)
    """
    match = _FILES.fullmatch(relation)
    return (match[1], match[2]) if match else None


def changed(relation: str, columns: Collection[str]) -> DpsqlError:
    """Return the error about a relation whose columns are not what they were when it got its name."""
    return DpsqlError(
        f"relation = {relation!r}: its columns {list(columns)[:12]!r} have other types now, or are gone; CALL dp_remote(...) with "
        "the same arguments shows what it has"
    )
