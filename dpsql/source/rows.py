"""What travels with every row of the protected table through a rewritten source: its privacy unit, and its number.

The unit says whose row it is. The number says which row it is, so that a row which comes out of a join more than once is
counted once, whatever was believed about the key (`dpsql.domains.encoding.encode_sql`). Both come from the protected table alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from dpsql.errors import ArgumentError
from dpsql.source.keys import KINDS, is_unit, unit_value
from dpsql.source.model import HEAVY, ROW, UNIT, Column, TableId, fold, identifier
from dpsql.source.parse import used


def of_units(select: exp.Select) -> exp.Select | None:
    """Return the rows of a source, of the units in the relation `HEAVY` alone; None where they are not made row by row.

    The units are joined below what is computed of a row, so that nothing is computed of the others. DuckDB moves no join there.
    """
    if set(used(select)) - {"expressions", "from_", "from", "joins", "where"}:
        return None
    unit = next((one.this for one in select.expressions if one.alias == UNIT), None)
    if unit is None:
        return None
    out, units = select.copy(), exp.Table(this=identifier(HEAVY))
    same = exp.NullSafeEQ(this=unit.copy(), expression=exp.Column(this=identifier(UNIT), table=identifier(HEAVY)))
    out.append("joins", exp.Join(this=units, kind="SEMI", on=same))
    return out


def number_column(table: TableId) -> str:
    """Return DuckDB's own column that numbers the rows of a table or file."""
    return "file_row_number" if table.is_file else "rowid"


class Carried:
    """The columns ``__dp_unit`` and ``__dp_row`` of one source. ``unit`` is the privacy unit column, if there is one."""

    def __init__(self) -> None:
        self.unit: str | None = None
        self.of_rows = False  # whether each row is a unit
        self.numbered = False  # whether rows have a number: a column of that name may hide it
        self._origin: dict[str, dict[str, exp.Expression]] = {}  # of the protected table's alias: what they are there
        self._selects: list[exp.Select] = []
        self.joins: dict[str, exp.Join] = {}  # of a linked table's alias: the join to its parent
        self.linked = False

    def begin(self, table: TableId, alias: str, stored: Sequence[str], columns: Sequence[Column], unit: str | None) -> None:
        """Note what they are in the protected table.

        Parameters
        ----------
        alias : str
            Of the table, in the generated SQL.
        stored : sequence of str
            Names of all of its columns, the generated ones too.
        columns : sequence of Column
            Without the generated ones.
        unit : str or None
            Name of the privacy unit column; `ROW`: each row is a unit.

        Raises
        ------
        ArgumentError
            The privacy unit is gone, or of a type whose values have several forms.
        """
        carried: dict[str, exp.Expression] = {}
        self.numbered = all(fold(name) != number_column(table) for name in stored)
        number = exp.Column(this=identifier(number_column(table)), table=identifier(alias))
        if unit == ROW and self.numbered:
            self.unit, self.of_rows = number_column(table), True
            carried[UNIT] = number
        elif unit is not None:
            column = next((c for c in columns if fold(c.name) == fold(unit)), None)
            if column is None:
                raise ArgumentError("privacy_unit", unit, f"{table.text} has no stored column of that name any more")
            if not is_unit(column.sql_type):
                raise ArgumentError("privacy_unit", unit, f"is {column.sql_type} in {table.text}; name a column that is {KINDS}")
            self.unit = column.name
            carried[UNIT] = unit_value(exp.Column(this=identifier(column.name), table=identifier(alias)), column.sql_type)
        if self.numbered:
            carried[ROW] = number.copy()
        self._origin[alias] = carried

    def begin_linked(self, alias: str, unit: str, value: exp.Expression, join: exp.Join) -> None:
        """Note what the unit of a linked table is: ``value``, after ``join``. Its rows have no number: a unit's are bounded.

        Parameters
        ----------
        alias : str
            Of the linked table, in the generated SQL.
        unit : str
            The privacy unit column of its root.
        """
        if self.unit is not None and fold(self.unit) != fold(unit):
            raise ArgumentError("source", unit, f"its rows are told apart by {self.unit!r} elsewhere; declare a privacy_unit")
        self.unit, self.numbered, self.linked = unit, False, True
        self._origin[alias], self.joins[alias] = {UNIT: value}, join

    def unit_of(self, alias: str) -> exp.Expression | None:
        """Return the privacy unit of the protected table of this alias, in its one form; None if it has none."""
        return self._origin[alias].get(UNIT)

    def add(self, select: exp.Select, alias: str) -> None:
        """Add them to the list of a SELECT whose first relation has this alias."""
        names = [name for name, is_carried in ((UNIT, self.unit is not None), (ROW, self.numbered)) if is_carried]
        known = self._origin.get(alias) or {n: exp.Column(this=identifier(n), table=identifier(alias)) for n in names}
        listed = [exp.Alias(this=known[name].copy(), alias=identifier(name)) for name in names]
        select.set("expressions", [*select.expressions, *listed])
        self._selects.append(select)

    def drop_numbers(self) -> None:
        """Take the numbers of rows out again: without a join nothing can repeat a row."""
        for select in self._selects:
            select.set("expressions", [e for e in select.expressions if e.alias != ROW])
