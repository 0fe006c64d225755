"""Lists of constants that stand in the text beside rows of people, written out as VALUES.

``VALUES (1), (2)``, ``UNNEST([1, 2])``, ``range(0, 80, 10)`` and ``generate_series(DATE '2024-01-01', DATE '2024-12-01', INTERVAL 1
MONTH)``, after FROM or, of a SELECT without one, as its list. Privacy: none; the text alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import duckdb
from sqlglot import exp

from dpsql.errors import ArgumentError, first_line
from dpsql.source.kernel import INTEGERS
from dpsql.source.model import fold, identifier
from dpsql.source.parse import render

MOST_LISTED = 1_000
"""Rows of a list that stands in the text."""
SERIES = ("range", "generate_series")

Series = Callable[[exp.Expression], list[exp.Expression]]
"""The numbers or moments of a series of constants, as constants."""
_Rows = list[list[exp.Expression]]


def series_by(cursor: duckdb.DuckDBPyConnection) -> Series:
    """Return what evaluates series: DuckDB's own table functions, whatever users have defined under these names.

    Raises
    ------
    ArgumentError
        DuckDB refuses the constants.
    """

    def values(call: exp.Expression) -> list[exp.Expression]:
        arguments = ", ".join(render(argument) for argument in call.expressions)
        function = f"system.main.{fold(str(call.this))}({arguments})"
        query = f"SELECT CAST(x AS VARCHAR), system.main.typeof(x) FROM {function} AS t(x) LIMIT {MOST_LISTED + 1}"  # noqa: S608 -- constants
        try:
            rows = cursor.execute(query).fetchall()
        except duckdb.Error as error:
            raise ArgumentError("sql", render(call)[:80], f"DuckDB refuses it: {first_line(error)}") from None
        return [_constant(text, kind) for text, kind in rows]

    return values


def _constant(text: str, kind: str) -> exp.Expression:
    number: exp.Expression = exp.Literal.number(text.removeprefix("-")) if kind in INTEGERS else exp.Literal.string(text)
    if kind in INTEGERS and text.startswith("-"):
        number = exp.Paren(this=exp.Neg(this=number))
    return exp.cast(number, kind, dialect="duckdb")


def write_out(node: exp.Select, items: Iterable[exp.Expression], series: Series) -> None:
    """Write the lists of constants of relations as VALUES, with names for their columns.

    Parameters
    ----------
    node : sqlglot Select
        Which reads them.
    items : iterable of sqlglot expressions
        Relations of public rows; they are changed.
    series : callable
        See :func:`series_by`.

    Raises
    ------
    ArgumentError
        A list is longer than `MOST_LISTED`.
    """
    for item in items:
        for select in list(item.find_all(exp.Select)):
            _spread(select, series)
        for listed in list(item.find_all(exp.Values, exp.Unnest, exp.Table)):
            rows = _rows(listed, series)
            if rows is not None:
                listed.replace(_subquery(node, listed, rows))


def _spread(select: exp.Select, series: Series) -> None:
    """Move the list of ``SELECT unnest([1, 2]) AS x`` into a FROM of its own."""
    calls = [call for item in select.expressions for call in item.find_all(exp.Anonymous) if fold(str(call.this)) == "unnest"]
    if len(calls) != 1 or select.args.get("from_") is not None or len(calls[0].expressions) != 1:
        return
    values = _array(calls[0].expressions[0], series)
    if not values:
        return
    alias = free_name(select)
    item = calls[0].parent
    column = exp.Column(this=identifier("unnest"), table=identifier(alias))
    if item is select:
        select.set("expressions", [exp.alias_(column, "unnest", quoted=True) if e is calls[0] else e for e in select.expressions])
    else:
        calls[0].replace(column)
    select.set("from_", exp.From(this=_relation([[value] for value in values], ["unnest"], alias)))


def _subquery(node: exp.Select, listed: exp.Expression, rows: _Rows) -> exp.Values:
    alias = listed.args.get("alias")
    name = alias.this.name if isinstance(alias, exp.TableAlias) and alias.this else ""
    names = [c.name for c in alias.args.get("columns") or []] if isinstance(alias, exp.TableAlias) else []
    # columns without a name in AS have DuckDB's
    names = [*names, *(_default(listed, name, place) for place in range(len(names), len(rows[0])))][: len(rows[0])]
    return _relation(rows, names, name or (names[0] if isinstance(listed, exp.Table) else free_name(node)))


def _relation(rows: _Rows, names: list[str], alias: str) -> exp.Values:
    if len(rows) > MOST_LISTED:
        raise ArgumentError("sql", "a list of constants", f"has more than {MOST_LISTED:,} rows; make a table of longer ones")
    listed = [exp.Tuple(expressions=[value.copy() for value in row]) for row in rows]
    columns = [exp.to_identifier(name, quoted=True) for name in names]
    return exp.Values(expressions=listed, alias=exp.TableAlias(this=identifier(alias), columns=columns))


def free_name(node: exp.Expression, like: str = "public") -> str:
    """Return a name that the text does not use: ``like`` with a number behind it."""
    used = {fold(name.name) for name in node.root().find_all(exp.Identifier)}
    return next(name for n in range(len(used) + 1) if (name := f"{like}_{n}") not in used)


def _default(listed: exp.Expression, alias: str, place: int) -> str:
    """Return the name that DuckDB gives a column; of a function DuckDB 2.0 calls it by the alias of the relation too."""
    if isinstance(listed, exp.Values):
        return f"col{place}"
    if alias and any(fold(column.name) == fold(alias) for column in listed.root().find_all(exp.Column)):
        return alias
    return "unnest" if isinstance(listed, exp.Unnest) else fold(str(listed.this.this))


def _rows(listed: exp.Expression, series: Series) -> _Rows | None:
    """Return the rows of a list of constants; None for anything else."""
    if isinstance(listed, exp.Values):
        return constants(listed)
    if isinstance(listed, exp.Table):
        return [[value] for value in _series(listed.this, series)] or None
    if len(listed.expressions) != 1 or listed.args.get("offset"):
        return None
    return [[value] for value in _array(listed.expressions[0], series)] or None


def constants(listed: exp.Values) -> _Rows | None:
    """Return the rows of VALUES; None where they are not all constants, or of several lengths."""
    rows = [list(row.expressions) if isinstance(row, exp.Tuple) else [row] for row in listed.expressions]
    constant = all(is_constant(value) for row in rows for value in row)
    return rows if rows and constant and len({len(row) for row in rows}) == 1 else None


def _array(node: exp.Expression, series: Series) -> list[exp.Expression]:
    """Return the constants of an array or series; none for anything else."""
    if isinstance(node, exp.Array):
        return node.expressions if all(is_constant(value) for value in node.expressions) else []
    return _series(node, series)


def _series(node: exp.Expression, series: Series) -> list[exp.Expression]:
    if not isinstance(node, exp.Anonymous) or fold(str(node.this)) not in SERIES:
        return []
    return series(node) if all(is_constant(value) for value in node.expressions) else []


def is_constant(node: exp.Expression) -> bool:
    """Return whether a node is a number, a text, a truth or NULL, with a sign or a type perhaps."""
    while isinstance(node, exp.Neg | exp.Paren | exp.Cast | exp.Interval):
        node = node.this
    return isinstance(node, exp.Literal | exp.Boolean | exp.Null)
