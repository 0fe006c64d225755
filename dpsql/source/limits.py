"""How many rows of one privacy unit meet each other, so that no person can make a statement slow, or fail.

A source may combine the rows of one unit in any number, and how many they are is not bounded before they are counted: GROUP BY,
DISTINCT, set operations, ranks, running sums of whole numbers and joins with one row a unit take time and memory in proportion to a
unit's rows. What is not of that kind takes at most `MOST_ROWS` rows of a unit from each side:

- joins of people's rows with people's rows, where both sides may have several of one unit;
- EXISTS and IN with more than equalities, which compare rows with rows;
- windows over lists, which hold a list for each row.

So one unit makes at most the square of it in each of them. What a join leaves of a unit has no bound again, and is limited anew
where it meets another relation.

Privacy: which rows are kept is a function of the unit's own rows, as a set: by a hash of all columns of a row, then by these
columns; rows that are equal in all of them are the same. Where a column has no such order, a unit with more rows has none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from sqlglot import exp

from dpsql.source.functions import call
from dpsql.source.layers import COMBINING, Layer, Rows, comparable
from dpsql.source.model import identifier
from dpsql.source.scope import Item, Scope

MOST_ROWS = 1000
"""Rows of one unit that each side of a join of people's rows keeps."""

LIMITING = "dpsql_limiting"
"""Mark on a generated SELECT that leaves rows of a unit out: how many it keeps."""


def limit(rows: Rows) -> None:
    """Keep at most `MOST_ROWS` rows of each unit; nothing changes where no unit can have more."""
    if rows.unit is not None and not rows.one and not rows.few:
        vars(rows).update(vars(_limited(rows)))


def _limited(rows: Rows) -> Rows:
    below = Layer(rows)
    below.keep_all()
    over = below.close()
    numbering = _copied(over)
    columns = [column for column, _, _ in numbering.listed if column.sql_type != '"NULL"']
    values = [value for column, value, _ in numbering.listed if column.sql_type != '"NULL"']
    unit: list[exp.Expression] = [] if over.unit is None else [over.unit.copy()]
    if all(comparable(column.sql_type) for column in columns):
        keys: list[exp.Expression] = [call("hash", *(v.copy() for v in values)), *(v.copy() for v in values)] if values else []
        orders = [exp.Ordered(this=key, desc=False, nulls_first=False) for key in keys]
        order = {"order": exp.Order(expressions=orders)} if orders else {}
        window = exp.Window(this=call("row_number"), partition_by=unit, over="OVER", **order)
    else:
        window = exp.Window(this=call("count", exp.Star()), partition_by=unit, over="OVER")
    place = numbering.add(window)
    numbered = _closed(numbering)
    numbered.scope.items[:] = [item for item in numbered.scope.items if place not in item.columns]
    number = exp.Column(this=identifier(place.ref), table=numbered.unit.args["table"].copy() if numbered.unit is not None else None)
    numbered.restrict(exp.LTE(this=number, expression=exp.Literal.number(MOST_ROWS)))
    out = _closed(_copied(numbered), {LIMITING: MOST_ROWS})
    out.few = True
    return out


def looked_up(conditions: Sequence[exp.Expression], item: Item, both: Scope) -> bool:
    """Return whether conditions are equalities of a relation's values with those of others: rows are found by a hash."""
    for condition in conditions:
        condition = condition.unnest()
        if type(condition) is not exp.EQ:
            return False
        sides = [{both.resolve(c)[0] is item for c in side.find_all(exp.Column)} for side in (condition.this, condition.expression)]
        if sides not in ([{True}, {False}], [{False}, {True}]):
            return False
    return True


def _copied(rows: Rows) -> Layer:
    """Return a layer that lists every column of the rows under the name that it has."""
    layer = Layer(rows)
    for item in rows.scope.items:
        for column in item.columns:
            layer.listed.append((column, exp.Column(this=identifier(column.ref), table=identifier(item.alias)), item))
    return layer


def _closed(layer: Layer, marks: Mapping[str, int] = MappingProxyType({})) -> Rows:
    select = layer.select()
    select.meta.update({COMBINING: True, **marks})
    return layer.close(select)
