"""How many rows of one privacy unit meet each other, so that no person can make a statement slow, or fail.

A source may combine the rows of one unit in any number, and how many they are is not bounded before they are counted: GROUP BY,
DISTINCT, set operations, ranks, running sums of whole numbers and joins with one row a unit take time and memory in proportion to a
unit's rows. What is not of that kind takes at most `MOST_ROWS` rows of a unit from each side:

- joins of people's rows with people's rows, where both sides may have several of one unit, and neither is compared by a unique
  key of linked tables, of which a row meets one row at most;
- EXISTS and IN with more than equalities, which compare rows with rows, in the same way; not EXISTS with one inequality beside
  equalities, which the least and the greatest value decide (:mod:`dpsql.source.extremes`);
- windows over lists, which hold a list for each row.

And a value is repeated for many rows (by a window, by a join with one row a unit or a key, or with public rows) only where it has a
bound: texts are cut to `LONGEST` characters, longer BLOBs are NULL, and columns of other types without a fixed size are not there.

So one unit makes at most the square of it in each of them. What a join leaves of a unit has no bound again, and is limited anew
where it meets another relation.

Privacy: which rows are kept is a function of the unit's own rows, as a set: by a hash of all columns of a row, then by these
columns; rows that are equal in all of them are the same. Where a column has no such order, a unit with more rows has none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from sqlglot import exp

from dpsql.algebra.pieces import call, only_if
from dpsql.source.layers import COMBINING, Layer, Rows, canonical, comparable
from dpsql.source.model import Column, fold, identifier, refuse
from dpsql.source.narrow import NUMBERING
from dpsql.source.parse import LIST_WAY
from dpsql.source.scope import Item, Scope
from dpsql.source.total import keeps
from dpsql.source.ways import LEAF

MOST_ROWS = 1000
"""Rows of one unit that each side of a join of people's rows keeps."""

MOST_BY_ORDER = 1_000
"""Public rows that one row of people is reckoned to meet by ``<`` and the like: of more the noise would hide what is asked."""
MOST_MET = 1_000_000
"""Combinations of public rows beside one row of people, where there are several public relations: the work is done only where there
is such a row."""
MOST_COUNTED = 1_000_000_000
"""Rows of one unit that are reckoned with, at most, in what a source makes of them."""

LONGEST = 256
"""Characters of a text, and bytes of a BLOB, that is repeated for many rows."""

_FIXED = frozenset({"INTERVAL", "TIME WITH TIME ZONE", '"NULL"'})
_LONG = "a {} of one row would be repeated for many; CAST it to VARCHAR, or take a part of it, in a subquery before the join"
_LISTED = f"a {{}} of one row would be repeated for many; {LIST_WAY}, l[1] takes one"
LIMITING = "dpsql_limiting"
"""Mark on a generated SELECT that leaves rows of a unit out: how many it keeps."""


def limit(rows: Rows) -> bool:
    """Keep at most `MOST_ROWS` rows of each unit; return whether that changes the rows: not where no unit can have more."""
    if rows.unit is None or rows.one or rows.few:
        return False
    vars(rows).update(vars(_limited(rows)))
    return True


def _limited(rows: Rows) -> Rows:
    over = _shortened(rows)
    numbering = _copied(over)
    # NULL written out tells no rows apart, and has no order
    told = [(column, value) for column, value, _ in numbering.listed if column.sql_type != '"NULL"']
    columns, values = [column for column, _ in told], [value for _, value in told]
    unit: list[exp.Expression] = [] if over.unit is None else [over.unit.copy()]
    # by a hash first, so that no value's order decides who is kept
    if all(comparable(column.sql_type) for column in columns):
        keys: list[exp.Expression] = [call("hash", *(v.copy() for v in values)), *(v.copy() for v in values)] if values else []
        orders = [exp.Ordered(this=key, desc=False, nulls_first=False) for key in keys]
        order = {"order": exp.Order(expressions=orders)} if orders else {}
        window = exp.Window(this=call("row_number"), partition_by=unit, over="OVER", **order)
    else:
        # rows cannot be put in order: a unit that has too many has none
        window = exp.Window(this=call("count", exp.Star()), partition_by=unit, over="OVER")
    place = numbering.add(window)
    numbered = _closed(numbering, {NUMBERING: 1})
    numbered.scope.items[:] = [item for item in numbered.scope.items if place not in item.columns]
    number = exp.Column(this=identifier(place.ref), table=numbered.unit.args["table"].copy() if numbered.unit is not None else None)
    numbered.restrict(exp.LTE(this=number, expression=exp.Literal.number(MOST_ROWS)))
    out = _closed(_copied(numbered), {LIMITING: MOST_ROWS})
    out.few = True
    out.most = min(out.most, MOST_ROWS)
    return out


def has_long(columns: Iterable[Column]) -> bool:
    """Return whether values of some column have no bound on their size."""
    return any(not _fixed(column.sql_type) for column in columns)


def shorten(rows: Rows) -> None:
    """Give every value of the rows a bound on its size: each of them may be repeated."""
    if rows.unit is not None and has_long(column for item in rows.scope.items for column in item.columns):
        vars(rows).update(vars(_shortened(rows)))


def cut(rows: Rows) -> None:
    """Do what `shorten` does, in the SELECTs of tables themselves where that is enough: they stay what they are."""
    # a layer around a table would hide that it is one, and links are joined to tables alone
    long = [item for item in rows.scope.items if has_long(item.columns) and not item.short]
    if rows.unit is None or not all(isinstance(item.node, exp.Subquery) and LEAF in item.node.this.meta for item in long):
        shorten(rows)
        return
    for item in long:
        columns = {column.ref: column for column in item.columns}
        listed = []
        for shown in item.node.this.expressions:
            column = columns.get(shown.alias)
            value = shown.this if column is None else short(shown.this, column.sql_type)
            # a column that cannot be bounded is missing by name, and refused only if the text uses it
            if column is not None and value is None:
                item.leave_out(column, _long(column.sql_type))
            elif value is shown.this:
                listed.append(shown)
            elif value is not None:
                if column is not None and column.sql_type == "VARCHAR":
                    keeps(value, "VARCHAR")
                listed.append(exp.Alias(this=value, alias=identifier(shown.alias)))
        item.node.this.set("expressions", listed)
        item.short = True


def _long(sql_type: str) -> str:
    return (_LISTED if sql_type.endswith("]") else _LONG).format(sql_type)


def short(value: exp.Expression, sql_type: str) -> exp.Expression | None:
    """Return a value of bounded size; None for a type of which there is none."""
    if sql_type == "VARCHAR":
        return call("left", value, exp.Literal.number(LONGEST))
    if sql_type == "BLOB":
        return only_if(exp.LTE(this=call("octet_length", value.copy()), expression=exp.Literal.number(LONGEST)), value)
    return value if _fixed(sql_type) else None


def repeated(value: exp.Expression, sql_type: str, at: exp.Expression, where: str) -> exp.Expression:
    """Return a value of bounded size, or refuse it."""
    bounded = short(value, sql_type)
    if bounded is None:
        advice = f"a {sql_type} of one row would be repeated for many; CAST it to VARCHAR, or take a part of it"
        refuse("a window", advice, at, where)
    return bounded


def _fixed(sql_type: str) -> bool:
    return sql_type not in ("VARCHAR", "BLOB") and (comparable(sql_type) or sql_type in _FIXED)


def _shortened(rows: Rows) -> Rows:
    """Return the rows with values of bounded size, equal ones the same; columns without such values are refused by name."""
    layer = Layer(rows)
    for item in rows.scope.items:
        for column in item.columns:
            value = short(exp.Column(this=identifier(column.ref), table=identifier(item.alias)), column.sql_type)
            if value is None:
                item.unsafe[fold(column.name)] = _long(column.sql_type)
            else:
                layer.listed.append((replace(column, ref=rows.fresh("p")), canonical(value, column.sql_type), item))
    return layer.close()


def looked_up(conditions: Sequence[exp.Expression], item: Item, both: Scope) -> bool:
    """Return whether conditions are equalities of a relation's values with those of others: rows are found by a hash."""
    for condition in conditions:
        condition = condition.unnest()
        if type(condition) is not exp.EQ:
            return False
        sides = [{both.resolve(c)[0] is item for c in side.find_all(exp.Column)} for side in (condition.this, condition.expression)]
        # each side of one relation alone: else there is nothing to look up by
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
