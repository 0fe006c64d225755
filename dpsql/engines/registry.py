"""The engines by name. Those beyond DuckDB are loaded when a table of theirs is used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import duckdb

from dpsql.calls.custody import ENGINES
from dpsql.engines.attached.looked import Apart, unasked
from dpsql.engines.base import Reader, Writer
from dpsql.engines.duckdb.reader import DuckReader
from dpsql.engines.remote import Described, Remote
from dpsql.errors import ArgumentError, DpsqlError, OnlyType

WRITTEN = "spark:"
"""How a target begins that Spark writes."""


def _known(remote: Remote) -> None:
    if remote.engine not in ENGINES:
        known = " and ".join(map(repr, ENGINES))
        raise DpsqlError(f"engine = {remote.engine!r} is not known to this dpsql; it knows {known}")


def checked(engine: str, url: str | None, relation: str) -> Remote:
    """Return where a relation is, as the books keep it: a folder of this machine with its whole path.

    Raises
    ------
    ArgumentError
        The url is none of the engine's, or either text holds credentials.
    """
    remote = Remote(engine, url or "", relation)
    _known(remote)
    if engine == "duckdb":
        if url is not None:
            told = "engine := 'duckdb' reads what is attached here, and takes none; ATTACH has the address"
            raise ArgumentError("url", OnlyType(url), told)
        from dpsql.engines.attached.place import whole

        return replace(remote, relation=whole(relation))
    if url is None:
        raise ArgumentError("url", url, f"engine := {engine!r} needs it: 'sc://host:15002'")
    from dpsql.engines.spark import session

    session.checked_url(url)
    session.check_relation(relation)
    return remote


def describe(remote: Remote, cursor: duckdb.DuckDBPyConnection) -> list[Described]:
    """Return the columns of a relation. No row is read.

    Parameters
    ----------
    cursor : duckdb.DuckDBPyConnection
        Of the call: it sees what is attached here.
    """
    _known(remote)
    if remote.engine == "duckdb":
        from dpsql.engines.attached.place import place_of

        return place_of(cursor, remote.relation).look(cursor).columns
    from dpsql.engines.spark import relation, session

    own = session.session(remote.url)
    try:
        return relation.describe(own, remote.relation)
    finally:
        session.close(own)


def reader(
    cursor: duckdb.DuckDBPyConnection,
    remote: Remote | None,
    table: str = "",
    columns: Mapping[str, str] | None = None,
    unit: str | None = None,
    apart: Apart = unasked,
) -> Reader:
    """Return what reads the rows of a table: DuckDB on the cursor of the call, or the engine that has them.

    Parameters
    ----------
    table : str
        The quoted name under which statements read the table.
    columns : mapping of name to type
        What it has in DuckDB.
    unit : str, optional
        Its column that says whose row it is.
    apart : function
        Refuses files of which one has rows of another table of the books, where the engine is DuckDB: it lists what it reads.
    """
    if remote is None:
        return DuckReader(cursor)
    _known(remote)
    if remote.engine == "duckdb":
        from dpsql.engines.attached.reader import AttachedReader

        return AttachedReader(cursor, remote, table, dict(columns or {}), unit, apart)
    from dpsql.engines.spark.reader import SparkReader

    return SparkReader(cursor, remote, table, dict(columns or {}))


def writes(target: str) -> bool:
    """Return whether a target of rows is one of another engine's, 'spark:lake.people', and no table of DuckDB."""
    return target.startswith(WRITTEN)


def writer(remote: Remote | None, target: str) -> Writer:
    """Return what writes synthetic rows into a target of an engine, on the server that has the source.

    Parameters
    ----------
    remote : Remote or None
        Where the source's rows are.
    target : str
        'spark:' and a table, or 'spark:parquet:/folder'.

    Raises
    ------
    ArgumentError
        The source's rows are not in Spark.
    """
    if remote is None or remote.engine != "spark":
        raise ArgumentError(
            "into_table",
            target,
            "the rows of this source are not in Spark, and no server is known to write to. COPY (FROM dp_sample('the release')) "
            "TO 'people_synth.parquet' (FORMAT parquet) writes a file that Spark reads",
        )
    _known(remote)
    from dpsql.engines.spark.session import check_relation
    from dpsql.engines.spark.writing import SparkWriter

    check_relation(target, "into_table")
    return SparkWriter(remote, target.removeprefix(WRITTEN))
