"""Which place a relation names, and how its rows are read there."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import duckdb
from sqlglot.tokens import TokenType

from dpsql.engines.attached.lake import LakeTable
from dpsql.engines.attached.looked import Looked
from dpsql.engines.attached.parquet import ParquetFolder
from dpsql.engines.attached.postgres import PostgresTable
from dpsql.engines.remote import FILES
from dpsql.errors import ArgumentError, OnlyType
from dpsql.source.catalog import GLOB
from dpsql.source.parse import tokens
from dpsql.text.names import fold
from dpsql.text.relation import identifier

_WANTED = f"name a table of an attached database with its schema, 'pg.public.people', or files, '{FILES}/folder'"


class Place(Protocol):
    """Where rows are. Privacy: nothing here reads one; the SELECT that is made does."""

    def look(self, cursor: duckdb.DuckDBPyConnection) -> Looked:
        """Return what the catalog, or the footers of files, say now."""


def place_of(cursor: duckdb.DuckDBPyConnection, relation: str) -> Place:
    """Return the place that a relation names: 'pg.public.people', or 'parquet:/folder'.

    Raises
    ------
    ArgumentError
        It names nothing that can be read so that one row changes no other, and no value makes the reading fail.
    """
    if relation.startswith(FILES):
        return ParquetFolder(relation.removeprefix(FILES))
    parts = parts_of(relation)
    if len(parts) != 3:
        raise ArgumentError("relation", relation, _WANTED)
    kind = _kinds(cursor).get(fold(parts[0]))
    if kind is None:
        raise ArgumentError("relation", relation, f"no database is attached as {parts[0]!r}; ATTACH it first")
    database, name = kind
    if name == "postgres":
        return PostgresTable(database, parts[1], parts[2])
    if name == "ducklake":
        return LakeTable(database, parts[1], parts[2])
    if name == "duckdb":
        raise ArgumentError("relation", relation, "is in a database of DuckDB: give that table its budget, with dp_protect")
    raise ArgumentError(
        "relation",
        relation,
        f"is in a database of type {name!r}, where a value of another type than its column's makes a reading fail; make a table of "
        "it, CREATE TABLE people AS FROM ..., and protect that",
    )


def whole(relation: str) -> str:
    """Return a relation as the books keep it: a folder with its whole path, since a later session may start elsewhere.

    Raises
    ------
    ArgumentError
        It names neither a table nor a folder: whatever else it holds, credentials of a connection string among it, is not written.
    """
    if relation.startswith(FILES):
        path = relation.removeprefix(FILES)
        if "://" in path or GLOB & set(path):
            raise ArgumentError("relation", FILES, "a folder of this machine comes after it: no patterns, no addresses")
        return FILES + str(Path(path).expanduser().absolute())
    parts = parts_of(relation)
    if len(parts) != 3:
        shown = relation if parts else OnlyType(relation)  # it may be a connection string
        raise ArgumentError("relation", shown, _WANTED)
    return ".".join(part if part.isascii() and part.isidentifier() else identifier(part) for part in parts)  # no comment in it


def parts_of(name: str) -> list[str]:
    """Return the parts of a dotted name, read as SQL.

    Examples
    --------
    >>> parts_of('pg."Odd one".people'), parts_of("pg.public.people LIMIT 3")
    (['pg', 'Odd one', 'people'], [])
    """
    read = tokens(name)
    words, dots = read[0::2], read[1::2]
    if len(words) != len(dots) + 1 or any(token.token_type != TokenType.DOT for token in dots):
        return []
    if any(token.token_type in (TokenType.STRING, TokenType.NUMBER, TokenType.DOT) for token in words):
        return []
    return [token.text for token in words]


def _kinds(cursor: duckdb.DuckDBPyConnection) -> dict[str, tuple[str, str]]:
    """Return name and type of each attached database, by folded name."""
    rows = cursor.execute("SELECT database_name, type FROM system.main.duckdb_databases() WHERE NOT internal").fetchall()
    return {fold(str(name)): (str(name), str(kind)) for name, kind in rows}
