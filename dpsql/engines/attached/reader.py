"""DuckDB's reader over rows that are in no table of its own: statements read the place instead of the empty table.

Privacy
-------
The rows of a place reach DuckDB one for one, in the types of the empty table: what holds for a statement over a table, that one
row becomes one row of codes and that rows of a unit are bounded, holds for it. Errors are withheld as for tables. Where a place
gives no snapshot that outlives a statement (Postgres), several statements of one release may read it at different moments: each
bounds by itself what a unit changes in it, and its noise is for that, so the promise holds; the numbers are of different moments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any

import duckdb

from dpsql.engines.attached.looked import Apart, Looked, unasked
from dpsql.engines.attached.place import place_of
from dpsql.engines.base import Numbers
from dpsql.engines.duckdb.reader import DuckCodes, DuckReader
from dpsql.engines.remote import Remote, changed
from dpsql.errors import DpsqlError
from dpsql.numerics.arrays import Clique, IntArray
from dpsql.source.parse import tokens
from dpsql.tables.flat import FlatTables
from dpsql.text.names import fold
from dpsql.text.relation import identifier

_NUMBER = "rowid"
"""The column that numbers the rows of a table (`dpsql.source.rows.number_column`)."""


class AttachedReader:
    """See `dpsql.engines.base.Reader`.

    Parameters
    ----------
    cursor : DuckDB cursor
    remote : Remote
    table : str
        The quoted name of the empty table, as statements have it.
    columns : mapping of name to DuckDB type
    unit : str, optional
        The column that says whose row it is.
    apart : function
        Refuses files that have rows of another table; asked before each reading.
    """

    def __init__(
        self,
        cursor: duckdb.DuckDBPyConnection,
        remote: Remote,
        table: str,
        columns: Mapping[str, str],
        unit: str | None = None,
        apart: Apart = unasked,
    ) -> None:
        self._reader, self._remote, self._columns, self._unit, self._apart = DuckReader(cursor), remote, columns, unit, apart
        self._table = [token.text for token in tokens(table)]

    @property
    def cursor(self) -> duckdb.DuckDBPyConnection:
        """The cursor of the call."""
        return self._reader.cursor

    @cached_property
    def rows(self) -> str:
        """The SELECT of the rows, after a look whether the columns are what they were: one for all statements of a reading."""
        looked = place_of(self.cursor, self._remote.relation).look(self.cursor)
        self._apart(looked.files)
        kinds = {column.name: column.sql_type for column in looked.columns}
        altered = [name for name, kind in self._columns.items() if not _same(kinds.get(name), kind)]
        if altered:
            raise changed(self._remote.relation, altered)
        self._check_unit(looked)
        return looked.select(self._columns)

    def _check_unit(self, looked: Looked) -> None:
        """Refuse a unit whose values are not told apart here as they are there.

        Privacy: two people who became one unit would share its rows, and adding one of them could replace rows of the other: twice
        the rows that the noise is for. One who became two would have twice as many.
        """
        for column in looked.columns:
            if self._unit is not None and fold(column.name) == fold(self._unit) and not column.exact:
                raise DpsqlError(
                    f"relation = {self._remote.relation!r}: its privacy unit {column.name!r} is of type {column.kind}, whose "
                    "values are not told apart here as they are there; name another unit: an integer, a text, a uuid, or "
                    "numeric(p, 0) with up to 38 digits"
                )

    def placed(self, statement: str) -> str:
        """Return a statement that reads the place where the given one reads the empty table.

        Raises
        ------
        DpsqlError
            It does not read the table: it would count none of the rows.
        """
        read = tokens(statement)
        # a place has no row numbers of its own; a column of that name hides them, as in DuckDB
        numbered = any(fold(token.text) == _NUMBER for token in read) and _NUMBER not in map(fold, self._columns)
        size = len(self._table)
        # the name is replaced as tokens: in a text or a longer name the same letters are left alone
        parts, end = [], 0
        for i in range(len(read) - size + 1):
            if [token.text for token in read[i : i + size]] == self._table and (i == 0 or read[i - 1].text != "."):
                parts += [statement[end : read[i].start], self._relation(numbered=numbered)]
                end = read[i + size - 1].end + 1
        if not parts:
            raise DpsqlError(f"a statement does not read the rows of {self._remote.relation!r}; please report this")
        return "".join([*parts, statement[end:]])

    def _relation(self, *, numbered: bool) -> str:
        number = f", row_number() OVER () AS {identifier(_NUMBER)}" if numbered else ""
        return f"(SELECT *{number} FROM ({self.rows}))" if numbered else f"({self.rows})"  # noqa: S608 -- quoted

    def bind(self, statement: str) -> None:
        """Bind a statement, over the empty table and over the place."""
        self._reader.bind(statement)
        self._reader.bind(self.placed(statement))

    def groups(self, select: str, *, inline: bool) -> AbstractContextManager[str]:
        """Give a public relation."""
        return self._reader.groups(select, inline=inline)

    def frame(self, statement: str) -> dict[str, Any]:
        """Return the result of a statement."""
        return self._reader.frame(self.placed(statement))

    def tables(self, select: str, sizes: Sequence[int], cliques: Sequence[Clique]) -> tuple[FlatTables, int]:
        """Count contingency tables of a SELECT of codes."""
        return self._reader.tables(self.placed(select), sizes, cliques)

    def fine(self, select: str, numbers: Sequence[Numbers]) -> list[IntArray]:
        """Count numbers along their grids."""
        return self._reader.fine(self.placed(select), numbers)

    def codes(self, select: str) -> AbstractContextManager[DuckCodes]:
        """Keep the rows in a TEMP table of this cursor."""
        return self._reader.codes(self.placed(select))


def _same(now: str | None, before: str) -> bool:
    """Whether a column has the type that it had; an ENUM may have got further labels, whose values are NULL here."""
    return now == before or now is not None and now.startswith("ENUM(") and before.startswith("ENUM(")
