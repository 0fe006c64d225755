"""Where Spark puts a synthetic table: under a name, or into a folder; complete, or not at all.

Rows go into a draft, which gets its name in one step at the end. A failure removes the draft. A driver that is killed leaves one
behind under a name that says so ('dpsql_draft_...'), and never the target.

Privacy: post-processing; no protected row is read here.
"""

from __future__ import annotations

import contextlib
import re
import secrets
from collections.abc import Callable
from typing import Any, Protocol

from dpsql.engines.spark.faults import classic
from dpsql.engines.spark.relation import files_of, parts_of, quoted
from dpsql.errors import ArgumentError

MARK = "dpsql.draw"
_FOLDER = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://[^/\s]+)?/[^\0]*[^/\0]")
_SESSION = "spark_catalog"


class Target(Protocol):
    """A place that does not exist yet."""

    def existing(self) -> str | None:
        """Return the mark of the draw that is there, '' where something else is, None where nothing is."""

    def write(self, frame: Any, mark: str, check: Callable[[Any], None]) -> None:
        """Write a data frame, or nothing; ``check`` gets what was written before it has its name."""


def target_of(session: Any, text: str) -> Target:
    """Return the target that a text names: 'lake.people_synth', or 'parquet:/folder'.

    Raises
    ------
    ArgumentError
        It is neither.
    """
    files, parts = files_of(text), parts_of(text)
    if files is not None:
        if not _FOLDER.fullmatch(files[1]):
            raise ArgumentError("into", f"spark:{text}", "an absolute folder is required: 'spark:parquet:/folder/people_synth'")
        if not classic(session):
            raise ArgumentError(
                "into", f"spark:{text}", "through Spark Connect a folder cannot be written as a whole or not at all; name a table"
            )
        return Folder(session, *files)
    if parts is None:
        raise ArgumentError(
            "into", f"spark:{text}", "a table as Spark names it is required, 'spark:lake.people_synth', or 'spark:parquet:/folder'"
        )
    return Table(session, parts)


def _text(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


class Table:
    """A table of a catalog.

    In Spark's own catalog a table is made under another name, filled and renamed. Other catalogs (Iceberg's, for instance) make and
    fill a table in one step themselves, and remove what they could not fill.
    """

    def __init__(self, session: Any, parts: list[str]) -> None:
        self._session, self._parts, self._name = session, parts, quoted(parts)

    def existing(self) -> str | None:
        """Return the mark of the draw that is there."""
        place = self._parts[:-1]
        if place and not self._session.catalog.databaseExists(quoted(place)):
            expected = f"there is no schema {quoted(place)}; CREATE SCHEMA in Spark makes one"
            raise ArgumentError("into", f"spark:{self._name}", expected)
        if not self._session.catalog.tableExists(self._name):
            return None
        with contextlib.suppress(Exception):  # a view has none
            for key, value in self._session.sql(f"SHOW TBLPROPERTIES {self._name}").collect():
                if key == MARK:
                    return str(value)
        return ""

    def _of_session(self) -> bool:
        first = self._parts[0]
        if first == _SESSION:
            return True
        named = len(self._parts) > 1 and self._session.conf.get(f"spark.sql.catalog.{first}", None) is not None
        return not named and self._session.catalog.currentCatalog() == _SESSION

    def write(self, frame: Any, mark: str, check: Callable[[Any], None]) -> None:
        """Write a data frame, or nothing."""
        if not self._of_session():
            frame.writeTo(self._name).tableProperty(MARK, mark).create()
            try:
                check(self._session.table(self._name))
            except BaseException:
                self._drop(self._name)
                raise
            return
        draft = quoted([*self._parts[:-1], f"dpsql_draft_{secrets.token_hex(8)}"])
        columns = ", ".join(f"{quoted([f.name])} {f.dataType.simpleString()}" for f in frame.schema.fields)
        try:
            self._session.sql(f"CREATE TABLE {draft} ({columns}) TBLPROPERTIES ('{MARK}' = {_text(mark)})")
            frame.write.insertInto(draft)
            check(self._session.table(draft))
            self._session.sql(f"ALTER TABLE {draft} RENAME TO {self._name}")
        except BaseException:
            self._drop(draft)
            raise

    def _drop(self, name: str) -> None:
        with contextlib.suppress(Exception):  # Spark may be gone; the first error says more
            self._session.sql(f"DROP TABLE IF EXISTS {name}")


class Folder:
    """Files in a folder of a file system that Hadoop knows, reached through the driver in this process."""

    def __init__(self, session: Any, kind: str, path: str) -> None:
        self._session, self._kind, self._path = session, kind, path
        self._java = session.sparkContext._jvm.org.apache.hadoop.fs  # noqa: SLF001 -- pyspark has no file systems
        configuration = session._jsparkSession.sessionState().newHadoopConf()  # noqa: SLF001
        self._files = self._at(path).getFileSystem(configuration)
        self._configuration = configuration

    def _at(self, path: str) -> Any:
        return self._java.Path(path)

    def existing(self) -> str | None:
        """Return the mark of the draw that is there."""
        if not self._files.exists(self._at(self._path)):
            return None
        marked = self._at(f"{self._path}/_{MARK}")
        if not self._files.exists(marked):
            return ""
        stream = self._files.open(marked)
        try:
            return str(stream.readUTF())
        finally:
            stream.close()

    def write(self, frame: Any, mark: str, check: Callable[[Any], None]) -> None:
        """Write a data frame, or nothing."""
        place, _, name = self._path.rpartition("/")
        draft = f"{place}/.dpsql_draft_{secrets.token_hex(8)}_{name}"
        try:
            frame.write.format(self._kind).mode("errorifexists").save(draft)
            check(self._session.read.format(self._kind).load(draft))
            stream = self._files.create(self._at(f"{draft}/_{MARK}"))
            stream.writeUTF(mark)
            stream.close()
            self._rename(draft)
        except BaseException:
            with contextlib.suppress(Exception):  # Spark may be gone; the first error says more
                self._files.delete(self._at(draft), True)
            raise

    def _rename(self, draft: str) -> None:
        """Give the draft its name; refused where something has it by now."""
        context = self._java.FileContext.getFileContext(self._at(self._path).toUri(), self._configuration)
        options = getattr(self._java, "Options$Rename")
        none = self._session.sparkContext._gateway.new_array(options, 0)  # noqa: SLF001
        context.rename(self._at(draft), self._at(self._path), none)
