"""Spark's writer: synthetic rows that were drawn here become a table, or files, of the server that has the source.

Privacy: post-processing. What is sent are rows of a released model; no protected row is read.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from dpsql.engines.remote import Remote, files_of
from dpsql.engines.spark import session
from dpsql.engines.spark.faults import lost, reason
from dpsql.engines.spark.reading import SparkReading
from dpsql.engines.spark.relation import parts_of, quoted
from dpsql.errors import ArgumentError, DpsqlError, EngineLost

_SAME = {
    "BOOLEAN": "boolean", "TINYINT": "tinyint", "SMALLINT": "smallint", "INTEGER": "int", "BIGINT": "bigint", "FLOAT": "float",
    "DOUBLE": "double", "VARCHAR": "string", "DATE": "date", "TIMESTAMP": "timestamp_ntz",
}  # fmt: skip
_FOLDER = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://[^/\s]+)?/[^\0]*[^/\0]")


class SparkWriter:
    """See `dpsql.engines.base.Writer`.

    Parameters
    ----------
    remote : Remote
        Of the source: its server writes.
    target : str
        A table as Spark names it, or 'parquet:/folder'.
    """

    def __init__(self, remote: Remote, target: str) -> None:
        self._remote, self._text = remote, target
        self._files, parts = files_of(target), parts_of(target)
        self._name = "" if parts is None else quoted(parts)
        if self._files is None and parts is None:
            required = "a table as Spark names it is required, 'spark:lake.people_synth', or 'spark:parquet:/folder'"
            raise ArgumentError("into_table", f"spark:{target}", required)
        if self._files is not None and not _FOLDER.fullmatch(self._files[1]):
            required = "an absolute folder is required: 'spark:parquet:/folder/people_synth'"
            raise ArgumentError("into_table", f"spark:{target}", required)

    def check(self, columns: Sequence[tuple[str, str]]) -> None:
        """Try whether columns of these names and DuckDB types can be written: the server answers, and nothing has the name."""
        for name, sql_type in columns:
            self._kind(name, sql_type)
        with self._session() as own:
            self._check(own)

    def _check(self, own: Any) -> None:
        def there() -> bool:
            if self._files is None:
                return bool(own.catalog.tableExists(self._name))
            try:
                return bool(own.read.format(self._files[0]).load(self._files[1]).schema.fields)  # a server may see no columns
            except Exception as error:
                if lost(error):
                    raise
                return False

        with SparkReading(own, self._public) as reading:
            exists = reading.run(there)
        if exists:
            raise ArgumentError("into_table", f"spark:{self._text}", "exists already; choose another name or remove it")

    def write(self, blocks: Iterable[Any], columns: Sequence[tuple[str, str]], rows: int) -> None:
        """Write blocks of rows, one after the other; a table is removed where that fails."""
        kinds = [self._kind(name, sql_type) for name, sql_type in columns]
        listed = [f"CAST({quoted([name])} AS {kind}) AS {quoted([name])}" for (name, _), kind in zip(columns, kinds, strict=True)]
        with self._session() as own:
            self._check(own)

            def put(block: Any) -> None:
                frame = own.createDataFrame(block).selectExpr(*listed)
                if self._files is None:
                    frame.write.insertInto(self._name)
                else:
                    frame.write.format(self._files[0]).mode("append").save(self._files[1])

            def count() -> int:
                frame = own.table(self._name) if self._files is None else own.read.format(self._files[0]).load(self._files[1])
                return int(frame.count())

            with SparkReading(own, self._public) as reading:
                if self._files is None:
                    column_list = ", ".join(f"{quoted([name])} {kind}" for (name, _), kind in zip(columns, kinds, strict=True))
                    reading.run(lambda: own.sql(f"CREATE TABLE {self._name} ({column_list})"))
                try:
                    for block in blocks:
                        reading.run(lambda block=block: put(block))  # type: ignore[misc]
                    # a block that was sent again after a lost answer may be there twice
                    if reading.run(count) != rows:
                        told = "Spark has written another number of rows than were drawn"
                        raise DpsqlError(f"into_table = 'spark:{self._text}': {told}")
                except BaseException:
                    self._drop(own)
                    raise

    def _kind(self, name: str, sql_type: str) -> str:
        kind = sql_type.lower() if sql_type.startswith("DECIMAL(") else _SAME.get(sql_type)
        if sql_type.startswith("ENUM("):
            kind = "string"
        if kind is None:
            lacking = f"column {name!r} has the type {sql_type}, which Spark lacks; CAST it in the source"
            raise ArgumentError("into_table", f"spark:{self._text}", lacking)
        return kind

    def _drop(self, own: Any) -> None:
        if self._files is None:
            with contextlib.suppress(Exception):  # Spark may be gone; the first error says more
                own.sql(f"DROP TABLE IF EXISTS {self._name}")

    @contextmanager
    def _session(self) -> Iterator[Any]:
        own = session.session(self._remote.url)
        try:
            yield own
        finally:
            session.close(own)

    @contextmanager
    def _public(self) -> Iterator[None]:
        """Say why Spark failed: nothing here depends on a protected row."""
        left = "may have a part of the rows: remove it" if self._files else "has been removed, if Spark is there"
        try:
            yield
        except DpsqlError:
            raise
        except Exception as error:
            told = f"into_table = 'spark:{self._text}': Spark "
            if lost(error):
                raise EngineLost(f"{told}was lost; what had been written {left}. dp_sample writes the release again") from None
            raise DpsqlError(f"{told}could not write it ({reason(error)}); what had been written {left}") from None


