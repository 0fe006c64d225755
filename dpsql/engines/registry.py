"""The engines by name. Those beyond DuckDB are loaded when a table of theirs is used."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import duckdb

from dpsql.calls.custody import ENGINES
from dpsql.engines.base import Reader, Writer
from dpsql.engines.duckdb.reader import DuckReader
from dpsql.engines.remote import FILES, Described, Remote
from dpsql.errors import ArgumentError, DpsqlError

WRITTEN = "spark:"
"""How a target begins that Spark writes."""


def _known(remote: Remote) -> None:
    if remote.engine not in ENGINES:
        known = " and ".join(map(repr, ENGINES))
        raise DpsqlError(f"engine = {remote.engine!r} is not known to this dpsql; it knows {known}")


def checked_url(engine: str, url: str | None) -> str:
    """Return a url without credentials that an engine understands; an ArgumentError where it is none. DuckDB itself has none."""
    _known(Remote(engine, url or "", ""))
    if engine == "duckdb":
        if url is not None:
            raise ArgumentError("url", url, "engine := 'duckdb' reads what is attached here, and takes none")
        return ""
    if url is None:
        raise ArgumentError("url", url, f"engine := {engine!r} needs it")
    from dpsql.engines.spark import session

    return session.checked_url(url)


def whole(engine: str, relation: str) -> str:
    """Return a relation as the books keep it: a folder with its whole path, since a later session may start elsewhere.

    Raises
    ------
    ArgumentError
        It holds credentials.
    """
    if engine == "spark":
        from dpsql.engines.spark import session

        session.check_relation(relation)
    if engine == "duckdb" and relation.startswith(FILES) and "://" not in relation:
        return FILES + str(Path(relation.removeprefix(FILES)).expanduser().absolute())
    return relation


def describe(remote: Remote, cursor: duckdb.DuckDBPyConnection) -> list[Described]:
    """Return the columns of a relation. No row is read."""
    _known(remote)
    if remote.engine == "duckdb":
        from dpsql.engines.attached.place import place_of

        return place_of(cursor, remote.relation).look(cursor).columns
    from dpsql.engines.spark import relation, session

    return relation.describe(session.session(remote.url), remote.relation)


def reader(
    cursor: duckdb.DuckDBPyConnection,
    remote: Remote | None,
    table: str = "",
    columns: Mapping[str, str] | None = None,
    version: str | None = None,
) -> Reader:
    """Return what reads the rows of a table: DuckDB on the cursor of the call, or the engine that has them.

    Parameters
    ----------
    table : str
        The quoted name under which statements read the table.
    columns : mapping of name to type
        What it has in DuckDB.
    version : str, optional
        Of `version`: all statements read it.
    """
    if remote is None:
        return DuckReader(cursor)
    _known(remote)
    if remote.engine == "duckdb":
        from dpsql.engines.attached.reader import AttachedReader

        return AttachedReader(cursor, remote, table, dict(columns or {}))
    from dpsql.engines.spark.reader import SparkReader

    return SparkReader(cursor, remote, table, dict(columns or {}), version)


def version(remote: Remote, columns: Mapping[str, str], before: str | None = None) -> str | None:
    """Return the version of a relation that a release is to read.

    Parameters
    ----------
    columns : mapping of name to type
        Those that it has to have.
    before : str, optional
        The one that an earlier try has read: taken again, where it still exists.

    Returns
    -------
    str or None
        None where the relation has none, or where the engine's reader takes one by itself (DuckLake).

    Notes
    -----
    Privacy: depends on the rows' history; for the custodian alone. No row is read.
    """
    if remote.engine != "spark":
        return None
    from dpsql.engines.spark import session, versions

    return versions.taken(session.session(remote.url), remote.relation, columns, before)


def writes(target: str) -> bool:
    """Return whether a target of rows is one of another engine's, 'spark:lake.people', and no table of DuckDB."""
    return target.startswith(WRITTEN)


def writer(remote: Remote | None, target: str) -> Writer:
    """Return what writes synthetic rows into a target of an engine, on the cluster that has the source.

    Parameters
    ----------
    remote : Remote or None
        Where the source's rows are.
    target : str
        'spark:' and a table, or 'spark:parquet:/folder'.

    Raises
    ------
    ArgumentError
        The source's rows are in DuckDB.
    """
    if remote is None:
        raise ArgumentError(
            "into",
            target,
            "the rows of this source are not in Spark, and no cluster is known to write to. COPY (FROM dp_sample('the release')) "
            "TO 'people_synth.parquet' (FORMAT parquet) writes a file that Spark reads",
        )
    _known(remote)
    from dpsql.engines.spark.session import check_relation
    from dpsql.engines.spark.writing import SparkWriter

    check_relation(target, "into")

    return SparkWriter(remote, target.removeprefix(WRITTEN))
