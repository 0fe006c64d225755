"""A relation that Spark has: its columns with the types that they have in DuckDB, and a view of them for one reading."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from dpsql.engines.remote import FORMATS, Described, changed, files_of
from dpsql.engines.spark.faults import lost
from dpsql.engines.spark.quiet import quiet
from dpsql.engines.spark.translate.types import spark_type, tried
from dpsql.engines.spark.views import check_files, check_table
from dpsql.errors import ArgumentError, DpsqlError, EngineLost
from dpsql.text.names import fold
from dpsql.text.paths import local_path

_PART = r"(?:`(?:[^`]|``)+`|\w+)"
_NAME = re.compile(rf"{_PART}(?:\.{_PART}){{0,7}}")
_TYPES = {
    "boolean": "BOOLEAN", "tinyint": "TINYINT", "smallint": "SMALLINT", "int": "INTEGER", "bigint": "BIGINT", "float": "FLOAT",
    "double": "DOUBLE", "string": "VARCHAR", "date": "DATE", "timestamp": "TIMESTAMP", "timestamp_ntz": "TIMESTAMP",
}  # fmt: skip
_MOMENTS = (
    "CASE WHEN {} < CAST('0001-01-01 00:00:00' AS TIMESTAMP_NTZ) THEN CAST('0001-01-01 00:00:00' AS TIMESTAMP_NTZ) "
    "WHEN {} > CAST('9999-12-31 23:59:59.999999' AS TIMESTAMP_NTZ) THEN CAST('9999-12-31 23:59:59.999999' AS TIMESTAMP_NTZ) "
    "ELSE {} END"
)
_NUMBERS = "CASE WHEN isnan({}) THEN CAST('NaN' AS TYPE) WHEN {} = CAST(0 AS TYPE) THEN CAST(0 AS TYPE) ELSE {} END"
_FORMS = {
    "float": _NUMBERS.replace("TYPE", "FLOAT"),
    "double": _NUMBERS.replace("TYPE", "DOUBLE"),
    "string": "make_valid_utf8({})",
    "date": "CASE WHEN {} < CAST('0001-01-01' AS DATE) THEN CAST('0001-01-01' AS DATE) WHEN {} > CAST('9999-12-31' AS DATE) "
            "THEN CAST('9999-12-31' AS DATE) ELSE {} END",
    "timestamp_ntz": _MOMENTS,
    "timestamp": _MOMENTS.replace("{}", "CAST({} AS TIMESTAMP_NTZ)"),
}  # fmt: skip
"""How a column is read, by Spark's name of its type."""
_WHOLE = {"tinyint": "SMALLINT", "smallint": "INTEGER", "int": "BIGINT", "bigint": "DECIMAL(20,0)"}
"""Types of whole numbers, and the DuckDB type of an unsigned number that a server names so."""
_MOST_DIGITS = 38
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


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


def frame_of(session: Any, relation: str) -> Any:
    """Return a relation as a DataFrame: a table by its name, or files, 'parquet:/folder'. Only metadata is read.

    Raises
    ------
    EngineLost
        Spark has gone.
    DpsqlError
        There is none, or it cannot be read.
    """
    files_there = files_of(relation)
    try:
        with quiet():
            frame = session.read.format(files_there[0]).load(files_there[1]) if files_there else session.read.table(relation)
            frame.schema  # noqa: B018 -- it is looked up now
    except Exception as error:
        if lost(error):
            raise EngineLost(f"relation = {relation!r}: Spark cannot be reached, or was lost before a row was read") from None
        files = " or ".join(repr(f"{name}:/folder") for name in FORMATS)
        if type(error).__name__ == "UnsupportedOperationException":
            raise DpsqlError(
                f"relation = {relation!r}: Spark has no name for the type of one of its columns (a timestamp in nanoseconds, a "
                "FLOAT of 16 bits, a dictionary, ...); write it without the column, or the column with another type"
            ) from None
        raise DpsqlError(
            f"relation = {relation!r}: Spark cannot read it ({type(error).__name__}); name a table as Spark calls it (a temporary "
            f"view belongs to one session, and is none), or {files}"
        ) from None
    # rows of a view may depend on each other, and a file under two names would count twice
    if files_there is None:
        check_table(session, relation)
    elif local_path(files_there[1]) is not None:
        check_files(frame, relation)
    return frame


def duckdb_type(kind: str) -> str | None:
    """Return the DuckDB type of a column, from Spark's name of its type; None where the column cannot be used.

    A timestamp is its reading in UTC. Texts are compared by their bytes: a column with another collation cannot be used.

    Examples
    --------
    >>> duckdb_type("decimal(12,2)"), duckdb_type("array<int>")
    ('DECIMAL(12,2)', None)
    """
    decimal = _DECIMAL.fullmatch(kind)
    if decimal is None:
        return _TYPES.get(kind)
    return f"DECIMAL({decimal[1]},{decimal[2]})" if int(decimal[1]) <= _MOST_DIGITS else None


def describe(session: Any, relation: str) -> list[Described]:
    """Return the columns of a relation. No row is read.

    Raises
    ------
    ArgumentError
        It has no column that can be used.
    """
    columns = []
    frame = frame_of(session, relation)
    fields, names = frame.schema.fields, set[str]()
    unsigned = _unsigned(frame, [field.name for field in fields if field.dataType.simpleString() in _WHOLE])
    for field in fields:
        kind = field.dataType.simpleString()
        usable = field.name and fold(field.name) not in names and "\0" not in field.name  # DuckDB would take Age and age for one
        names.add(fold(field.name))
        sql_type = _WHOLE[kind] if field.name in unsigned else duckdb_type(kind)
        columns.append(Described(field.name, sql_type if usable else None, f"unsigned {kind}" if field.name in unsigned else kind))
    if not any(column.sql_type for column in columns):
        raise ArgumentError("relation", relation, "has no column of a type that can be used; is the folder there, with files?")
    return columns


def _unsigned(frame: Any, names: Sequence[str]) -> set[str]:
    """Return which columns hold unsigned numbers of Parquet: Sail names their types as those of as many bits. No row is read."""
    if not names:
        return set()
    try:
        with quiet():
            none = frame.where("false").selectExpr(*(f"max({quoted([name])}) AS c{place}" for place, name in enumerate(names)))
            kinds = none.selectExpr(*(f"typeof(c{place}) AS t{place}" for place in range(len(names)))).toArrow().to_pylist()
    except Exception as error:
        if lost(error):
            raise EngineLost("Spark was lost before a row was read") from None
        return set()
    types = dict(zip(names, kinds[0].values(), strict=True)) if kinds else {}
    return {name for name, kind in types.items() if str(kind).startswith("unsigned")}


def viewed(session: Any, relation: str, columns: Mapping[str, str]) -> str:
    """Make a temporary view of some columns, after a look whether they are what they were; its quoted name.

    Texts are made valid UTF-8 here, before anything else: two that are the same afterwards are one value, also where rows of a unit
    are bounded by group. NaN has many bits and zero has two: each is one value here, which Spark knows and Sail does not (one unit
    would be many there). Whole numbers are brought to the type that dpsql takes them for: a server may name an unsigned one
    otherwise. Dates and timestamps outside the years 1 to 9999 are the first or the last moment of these: beyond them functions
    raise, and whether a statement fails would depend on a row.

    Parameters
    ----------
    columns : mapping
        Name to DuckDB type, as they were described.

    Raises
    ------
    DpsqlError
        The relation has changed.
    """
    frame = frame_of(session, relation)
    kinds = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
    differ = [n for n, sql_type in columns.items() if sql_type not in (duckdb_type(kinds.get(n, "")), _WHOLE.get(kinds.get(n, "")))]
    if differ:
        raise changed(relation, differ)
    listed = []
    # values that DuckDB has otherwise, or not at all, are brought into its form here: no later statement knows of them
    for name, sql_type in columns.items():
        form = tried("{}", spark_type(sql_type)) if kinds[name] in _WHOLE else _FORMS.get(kinds[name], "{}")
        listed.append(f"{form.replace('{}', quoted([name]))} AS {quoted([name])}")
    view = f"dpsql_{secrets.token_hex(8)}"
    frame.selectExpr(*listed).createOrReplaceTempView(view)
    return f"`{view}`"
