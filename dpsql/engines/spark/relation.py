"""A relation that Spark has: its columns with the types that they have in DuckDB, and a view of them for one reading."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from dpsql.engines.remote import Described, changed
from dpsql.engines.spark.views import check_files, check_table
from dpsql.errors import ArgumentError, DpsqlError
from dpsql.text.names import fold
from dpsql.text.paths import local_path

FORMATS = ("parquet", "delta", "orc")
_FILES = re.compile(rf"({'|'.join(FORMATS)}):(.+)", re.DOTALL)
_PART = r"(?:`(?:[^`]|``)+`|\w+)"
_NAME = re.compile(rf"{_PART}(?:\.{_PART}){{0,7}}")
VERSION = re.compile(r"[A-Za-z0-9_.:+-]{1,200}")
"""What a version may be called: it stands between quotes in a statement."""
_TYPES = {
    "boolean": "BOOLEAN", "tinyint": "TINYINT", "smallint": "SMALLINT", "int": "INTEGER", "bigint": "BIGINT", "float": "FLOAT",
    "double": "DOUBLE", "string": "VARCHAR", "date": "DATE", "timestamp": "TIMESTAMP", "timestamp_ntz": "TIMESTAMP",
}  # fmt: skip
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


def files_of(relation: str) -> tuple[str, str] | None:
    """Return format and path where a relation is files.

    Examples
    --------
    >>> files_of("delta:/lake/people"), files_of("lake.people")
    (('delta', '/lake/people'), None)
    """
    found = _FILES.fullmatch(relation)
    return (found[1], found[2]) if found else None


def parts_of(relation: str) -> list[str] | None:
    """Return the parts of a table's name; None where a text is none.

    Examples
    --------
    >>> parts_of("lake.`a.b`"), parts_of("a b")
    (['lake', 'a.b'], None)
    """
    if not _NAME.fullmatch(relation):
        return None
    return [part.strip("`").replace("``", "`") for part in re.findall(_PART, relation)]


def quoted(parts: Sequence[str]) -> str:
    """Return a name as Spark's SQL has it."""
    return ".".join("`" + part.replace("`", "``") + "`" for part in parts)


def frame_of(session: Any, relation: str, version: str | None = None) -> Any:
    """Return a relation as a DataFrame: a table by its name, or files, 'parquet:/folder'. Only metadata is read.

    Parameters
    ----------
    version : str, optional
        Of `dpsql.engines.spark.versions`: every statement over the frame reads this one.

    Raises
    ------
    DpsqlError
        There is none, or it cannot be read. The text does not name the version.
    """
    try:
        frame = _frame(session, relation, version)
        frame.schema  # noqa: B018 -- it is looked up now
    except Exception as error:
        files = " or ".join(repr(f"{name}:/folder") for name in FORMATS)
        raise DpsqlError(
            f"relation = {relation!r}: Spark cannot read it ({type(error).__name__}); name a table as Spark calls it (a temporary "
            f"view belongs to one session, and is none), or {files}"
        ) from None
    files_there = files_of(relation)
    if files_there is None:
        check_table(session, relation)
    elif local_path(files_there[1]) is not None:
        check_files(frame, relation)
    return frame


def _frame(session: Any, relation: str, version: str | None) -> Any:
    if version is not None and not VERSION.fullmatch(version):
        raise ValueError("no version")
    files, parts = files_of(relation), parts_of(relation)
    if files is not None:
        reader = session.read.format(files[0])
        return (reader if version is None else reader.option("versionAsOf", version)).load(files[1])
    if version is None or parts is None:
        return session.read.table(relation)
    return session.sql(f"SELECT * FROM {quoted(parts)} VERSION AS OF '{version}'")  # noqa: S608 -- quoted, and `VERSION`


def duckdb_type(kind: str) -> str | None:
    """Return the DuckDB type of a column, from Spark's name of its type; None where the column cannot be used.

    A timestamp is its reading in UTC. Texts are compared by their bytes: a column with another collation cannot be used.

    Examples
    --------
    >>> duckdb_type("decimal(12,2)"), duckdb_type("array<int>")
    ('DECIMAL(12,2)', None)
    """
    decimal = _DECIMAL.fullmatch(kind)
    return f"DECIMAL({decimal[1]},{decimal[2]})" if decimal else _TYPES.get(kind)


def describe(session: Any, relation: str) -> list[Described]:
    """Return the columns of a relation. No row is read.

    Raises
    ------
    ArgumentError
        It has no column that can be used.
    """
    found = []
    names: set[str] = set()
    for field in frame_of(session, relation).schema.fields:
        kind = field.dataType.simpleString()
        usable = fold(field.name) not in names and "\0" not in field.name  # DuckDB would take Age and age for one
        names.add(fold(field.name))
        found.append(Described(field.name, duckdb_type(kind) if usable else None, kind))
    if not any(column.sql_type for column in found):
        raise ArgumentError("relation", relation, "has no column of a type that can be used")
    return found


def checked_frame(session: Any, relation: str, columns: Mapping[str, str], version: str | None = None) -> Any:
    """Return a relation as a DataFrame, after a look whether its columns are what they were.

    Parameters
    ----------
    columns : mapping
        Name to DuckDB type, as they were described.
    version : str, optional
        As in `frame_of`.

    Raises
    ------
    DpsqlError
        The relation has changed.
    """
    frame = frame_of(session, relation, version)
    kinds = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
    other = [name for name, sql_type in columns.items() if duckdb_type(kinds.get(name, "")) != sql_type]
    if other:
        raise changed(relation, other)
    return frame


def viewed(session: Any, relation: str, columns: Mapping[str, str], version: str | None = None) -> str:
    """Make a temporary view of some columns, after a look whether they are what they were; its quoted name.

    Texts are made valid UTF-8 here, before anything else: two that are the same afterwards are one value, also where rows of a unit
    are bounded by group.

    Parameters
    ----------
    columns, version
        As in `checked_frame`.

    Raises
    ------
    DpsqlError
        The relation has changed.
    """
    frame = checked_frame(session, relation, columns, version)
    kinds = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
    listed = []
    for name in columns:
        forms = {"timestamp": "CAST({} AS TIMESTAMP_NTZ)", "string": "make_valid_utf8({})"}
        listed.append(f"{forms.get(kinds[name], '{}').format(quoted([name]))} AS {quoted([name])}")
    view = f"dpsql_{secrets.token_hex(8)}"
    frame.selectExpr(*listed).createOrReplaceTempView(view)
    return f"`{view}`"
