"""Spark's writer: the workers draw synthetic rows from a model that is sent to them, and write them where Spark keeps tables.

Privacy: post-processing. What goes to the workers is a released model; no protected row is read, and no row comes to the driver.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from dpsql.engines.base import Part
from dpsql.engines.remote import Remote
from dpsql.engines.spark import relation, session, targets, workers
from dpsql.engines.spark.faults import lost, reason
from dpsql.engines.spark.reading import SparkReading
from dpsql.errors import ArgumentError, DpsqlError, EngineLost

_SAME = {
    "BOOLEAN": "boolean", "TINYINT": "tinyint", "SMALLINT": "smallint", "INTEGER": "int", "BIGINT": "bigint", "FLOAT": "float",
    "DOUBLE": "double", "VARCHAR": "string", "DATE": "date", "TIMESTAMP": "timestamp_ntz",
}  # fmt: skip
_OTHERS = {
    "UTINYINT": "SMALLINT", "USMALLINT": "INTEGER", "UINTEGER": "BIGINT", "UBIGINT": "DECIMAL(20,0)", "HUGEINT": "DECIMAL(38,0)",
    "TIMESTAMP_S": "TIMESTAMP", "TIMESTAMP_MS": "TIMESTAMP", "TIMESTAMP_NS": "TIMESTAMP", "UUID": "VARCHAR",
}  # fmt: skip
"""DuckDB types that Spark lacks, and those that hold their values."""


class SparkWriter:
    """See `dpsql.engines.base.Writer`.

    Parameters
    ----------
    remote : Remote
        Of the source: its cluster writes.
    target : str
        A table as Spark names it, or 'parquet:/folder'.
    """

    def __init__(self, remote: Remote, target: str) -> None:
        self._remote, self._text = remote, target

    @cached_property
    def _session(self) -> Any:
        return session.session(self._remote.url)

    @cached_property
    def _target(self) -> targets.Target:
        return targets.target_of(self._session, self._text)

    def check(self) -> str:
        """Try whether the target can be written; return the mark of the draw that it holds already."""
        found = self._existing()
        if found is None:
            workers.check_counting(self._session, self._remote.url)
            workers.check_drawing(self._session, f"spark:{self._text}")
        return found or ""

    def _existing(self) -> str | None:
        with SparkReading(self._session, self._public) as reading:
            found = reading.run(lambda: self._target.existing())
        if found == "":
            raise ArgumentError("into", f"spark:{self._text}", "exists and was not made by dpsql; choose another name or remove it")
        return found

    def types(self, columns: Sequence[tuple[str, str]]) -> tuple[str, ...]:
        """Return the DuckDB types in which parts are to hand over columns."""
        found = []
        for name, kind in columns:
            same = "VARCHAR" if kind.startswith("ENUM(") else _OTHERS.get(kind, kind)
            if spark_type(same) is None:
                raise ArgumentError(
                    "into", f"spark:{self._text}", f"column {name!r} has the type {kind}, which Spark lacks; CAST it in the source"
                )
            found.append(same)
        return tuple(found)

    def write(self, part: Part, parts: int, columns: Sequence[tuple[str, str]], rows: int, mark: str) -> None:
        """Write all parts, or nothing."""
        zoned = self._zoned()
        schema = ", ".join(f"{_column(name)} {spark_type(kind)}" for name, kind in columns)
        shown = [
            f"CAST({_column(n)} AS TIMESTAMP) AS {_column(n)}" if kind == "TIMESTAMP" and n in zoned else _column(n)
            for n, kind in columns
        ]

        def drawn(batches: Any) -> Any:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield from part(number)

        def count(written: Any) -> None:
            if written.count() != rows:
                raise DpsqlError(f"into = 'spark:{self._text}': Spark wrote another number of rows than were drawn; it was removed")

        def put() -> None:
            numbers = self._session.range(0, parts, 1, parts)
            self._target.write(numbers.mapInArrow(drawn, schema).selectExpr(*shown), mark, count)

        self._existing()
        with SparkReading(self._session, self._public) as reading:
            reading.run(put)

    def _zoned(self) -> set[str]:
        """Return the names of the source's columns that Spark has as TIMESTAMP and not as TIMESTAMP_NTZ."""
        try:
            return {c.name for c in relation.describe(self._session, self._remote.relation) if c.kind == "timestamp"}
        except DpsqlError:  # the source may have gone: a release does not need it
            return set()

    @contextmanager
    def _public(self) -> Iterator[None]:
        """Say why Spark failed: nothing here depends on a protected row."""
        try:
            yield
        except DpsqlError:
            raise
        except Exception as error:
            if lost(error, self._session):
                raise EngineLost(f"into = 'spark:{self._text}': Spark was lost while it wrote; nothing has that name") from None
            told = f"into = 'spark:{self._text}': Spark could not write it, and nothing has that name: {reason(error)}"
            raise DpsqlError(told) from None


def spark_type(kind: str) -> str | None:
    """Return Spark's type for a DuckDB type that `dpsql.engines.spark.relation.duckdb_type` gives; None for any other.

    Examples
    --------
    >>> spark_type("DECIMAL(12,2)"), spark_type("TIMESTAMP"), spark_type("TIME")
    ('decimal(12,2)', 'timestamp_ntz', None)
    """
    return kind.lower() if kind.startswith("DECIMAL(") else _SAME.get(kind)


def _column(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
