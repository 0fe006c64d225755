"""The version of a relation that is current, where its format keeps versions, so that all statements of a release read one.

- Delta: the newest of ``DESCRIBE HISTORY``. Iceberg: the snapshot that the branch ``main`` is at, of the table ``refs``.
- Another format of a catalog: what ``Table.version()`` of Spark's DataSource V2 says (Spark 4.1), where the table that is read
  ``VERSION AS OF`` it says the same of itself. Not through Spark Connect, where there is no such object.

Privacy: a version depends on the rows' history. It counts commits, and where a row is a commit of its own it counts rows. So it is
for the custodian alone, and in no release, ledger or message (`dpsql.purchase.snapshots` says where it is kept).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpsql.engines.spark.faults import classic
from dpsql.engines.spark.reading import SparkReading
from dpsql.engines.spark.relation import VERSION, checked_frame, files_of, frame_of, parts_of, quoted
from dpsql.errors import DpsqlError, EngineLost

_DETAILS = "# Detailed Table Information"
_LEAF = "DataSourceV2Relation"


def taken(session: Any, relation: str, columns: Mapping[str, str], before: str | None = None) -> str | None:
    """Return the version that a release is to read; None where it has none that can be named and read.

    Parameters
    ----------
    columns : mapping of name to DuckDB type
        Those that a version has to have: a column that was added since the last commit is in none.
    before : str, optional
        The one that an earlier try at the same release has read: it is taken again, where it still exists.

    Raises
    ------
    EngineLost
        Spark has gone.

    Notes
    -----
    Privacy: for the custodian alone, see above. No row is read.
    """
    with SparkReading(session) as reading:
        if before is not None and reading.run(lambda: _readable(session, relation, columns, before)):
            return before
        found = reading.run(lambda: _current(session, relation))
        if found is not None and reading.run(lambda: _readable(session, relation, columns, found)):
            return found
    return None


def _readable(session: Any, relation: str, columns: Mapping[str, str], version: str) -> bool:
    try:
        checked_frame(session, relation, columns, version)
    except EngineLost:
        raise
    except DpsqlError:
        return False
    return True


def _current(session: Any, relation: str) -> str | None:
    files, parts = files_of(relation), parts_of(relation)
    if files is not None:
        return _of_delta(session, quoted(files)) if files[0] == "delta" else None
    if parts is None:
        return None
    provider = _provider(session, quoted(parts))
    if provider == "delta":
        return _of_delta(session, quoted(parts))
    if provider == "iceberg":
        return _asked(session, f"SELECT snapshot_id FROM {quoted([*parts, 'refs'])} WHERE name = 'main'")  # noqa: S608 -- quoted
    return _of_catalog(session, relation)


def _of_delta(session: Any, name: str) -> str | None:
    try:
        found = session.sql(f"DESCRIBE HISTORY {name} LIMIT 1").select("version").collect()
    except Exception:  # it has gone, or is no table of Delta
        return None
    return _named(found[0][0]) if found else None


def _asked(session: Any, query: str) -> str | None:
    try:
        found = session.sql(query).collect()
    except Exception:
        return None
    return _named(found[0][0]) if found else None


def _named(version: object) -> str | None:
    return str(version) if version is not None and VERSION.fullmatch(str(version)) else None


def _provider(session: Any, name: str) -> str:
    """Return the format of a table, in lower letters; '' where Spark does not say it."""
    try:
        rows = session.sql(f"DESCRIBE TABLE EXTENDED {name}").collect()
    except Exception:
        return ""
    told = [str(row[0]) for row in rows]
    behind = rows[told.index(_DETAILS) :] if _DETAILS in told else []  # a column may have the name, too
    return next((str(row[1]).lower() for row in behind if row[0] == "Provider"), "")


def _of_catalog(session: Any, relation: str) -> str | None:
    """Return what a table's own object says; None unless the table that is read at this version says the same of itself."""
    if not classic(session):
        return None
    try:
        found = _said(frame_of(session, relation))
        return found if found is not None and _said(frame_of(session, relation, found)) == found else None
    except Exception:  # the table takes no version
        return None


def _said(frame: Any) -> str | None:
    leaves = frame._jdf.queryExecution().analyzed().collectLeaves()  # noqa: SLF001 -- pyspark has no other way
    if leaves.size() != 1 or leaves.head().getClass().getSimpleName() != _LEAF:
        return None
    return _named(leaves.head().table().version())
