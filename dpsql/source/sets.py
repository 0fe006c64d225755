"""Set operations of relations that carry their privacy unit: with the unit among the columns, they act inside of each unit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from dpsql.algebra.pieces import try_cast
from dpsql.source.kernel import cast_is_safe, try_cast_is_listed
from dpsql.source.layers import canonical, combine_inside, comparable, finish
from dpsql.source.leaves import View
from dpsql.source.limits import MOST_COUNTED
from dpsql.source.listing import Listing
from dpsql.source.model import Column, identifier, refuse
from dpsql.source.present import is_present
from dpsql.source.relations import Relation
from dpsql.source.scope import Scope

_FEW = 24
"""Sides of a set operation that stand one inside of the other: of more DuckDB 1.4 says that they are nested too deeply."""


def _put_together(selects: Sequence[exp.Expression], kind: type[exp.Expression], distinct: bool) -> exp.Expression:
    """Return the sides as one query; many are constants under UNION ALL, halved and halved again."""
    if len(selects) > _FEW:
        half = len(selects) // 2
        sides = [_put_together(part, kind, distinct) for part in (selects[:half], selects[half:])]
        return kind(this=sides[0], expression=exp.Subquery(this=sides[1]), distinct=distinct)
    tree = selects[0]
    for select in selects[1:]:
        tree = kind(this=tree, expression=select, distinct=distinct)
    return tree


def set_operation(
    analysis: Listing,
    sides: Sequence[Relation],
    kind: type[exp.Expression],
    distinct: bool,
    node: exp.Expression,
    view: View,
) -> Relation:
    """Return a set operation of checked queries.

    Parameters
    ----------
    analysis : Listing
    sides : sequence of Relation
    kind : type
        exp.Union, exp.Except or exp.Intersect.
    distinct : bool
        Without ALL.
    node : sqlglot expression
        What messages point to.
    view : View
    """
    construct = kind.__name__.upper()
    if len({side.protected for side in sides}) > 1:
        refuse(construct, "one side has people's rows, the other has none; a row must belong to a person", node, view.where)
    if len({len(side.columns) for side in sides}) > 1:
        refuse(construct, "its sides have different numbers of columns", node, view.where)
    first = sides[0]
    types = [_common(analysis, [side.columns[i] for side in sides], construct, node, view) for i in range(len(first.columns))]
    columns = [_column([side.columns[i] for side in sides], kind, sql_type) for i, sql_type in enumerate(types)]
    # whole rows are compared from here on, of one unit with each other
    if kind is not exp.Union or distinct:
        # rows of two people may be equal in all columns, unless one of these tells the unit
        told = (c.tells_unit and all(side.columns[i].tells_unit for side in sides) for i, c in enumerate(columns))
        if first.protected and not any(told):
            refuse(
                construct,
                combine_inside(Scope(analysis.catalog, [], []), "have {} in the same place on both sides"),
                node,
                view.where,
            )
        for column in columns:
            if not comparable(column.sql_type):
                advice = f"values of {column.sql_type} may be equal without being the same; CAST column {column.name!r}"
                refuse(construct, advice, node, view.where)
    selects = [_side(analysis, side, columns, view) for side in sides]
    native = distinct and kind is not exp.Union
    tree = _put_together(selects, kind, native)
    one = first.one and kind is not exp.Union
    most = min(sum(side.most for side in sides), MOST_COUNTED) if kind is exp.Union else first.most
    outer = Relation(tree, columns, [], first.protected, one, most)
    item = analysis._nested(outer, exp.Table(), "", view)  # one class in two files
    rows = analysis.over(item)
    listed = [(c, exp.Column(this=identifier(c.ref), table=identifier(item.alias))) for c in item.columns]
    out = Relation(finish(rows, listed), columns, first.unnamed, first.protected, one, most)
    if kind is exp.Union and distinct:
        return analysis._distinct(exp.Select(distinct=exp.Distinct()), out, view)
    return out


def _common(analysis: Listing, columns: list[Column], construct: str, node: exp.Expression, view: View) -> str:
    """Return the type that columns in one place of a set operation get."""
    types = list(dict.fromkeys(c.sql_type for c in columns if c.sql_type != '"NULL"'))
    if len(types) == 1:
        return types[0]
    if not types:
        return "INTEGER"
    text = " UNION ALL ".join(f"SELECT CAST(NULL AS {kind}) AS x" for kind in types)
    # the binder casts each side to it outside of any TRY, so that type must hold all of their values
    bound = analysis.catalog.describe(text)[0].sql_type
    for kind in types:
        if kind != bound and not cast_is_safe(kind, bound):
            refuse(construct, f"column {columns[0].name!r} is {' and '.join(types)}; CAST one of them", node, view.where)
    return bound


def _column(columns: list[Column], kind: type[exp.Expression], sql_type: str) -> Column:
    """Return the column that columns in one place of a set operation become: a copy only where all of them copy the same."""
    first = columns[0]
    # what comes out of EXCEPT are rows of the first side
    if kind is exp.Except:
        return replace(first, ref=first.name, sql_type=sql_type)
    same = all((c.origin, c.home) == (first.origin, first.home) for c in columns)
    return replace(
        first,
        ref=first.name,
        sql_type=sql_type,
        origin=first.origin if same else None,
        views=first.views if all(c.views == first.views for c in columns) else (),
        nullable=any(c.nullable for c in columns),
        home=first.home if same else None,
        unit=all(c.unit for c in columns),
        orphans=any(c.orphans for c in columns),
        keys=frozenset.intersection(*(c.keys for c in columns)),
        told=all(c.told for c in columns),
        unique=first.unique and kind is not exp.Union,
        present=all(is_present(c) for c in columns),
    )


def _side(analysis: Listing, side: Relation, columns: Sequence[Column], view: View) -> exp.Select:
    """Return one side, with types and names of the whole, and values of which equal ones are the same."""
    item = analysis._nested(side, exp.Table(), "", view)
    rows = analysis.over(item)
    listed = []
    for own, column in zip(item.columns, columns, strict=True):
        value: exp.Expression = exp.Column(this=identifier(own.ref), table=identifier(item.alias))
        if own.sql_type != column.sql_type and try_cast_is_listed(own.sql_type, column.sql_type):
            value = try_cast(value, column.sql_type)
        listed.append((column, canonical(value, column.sql_type)))
    return finish(rows, listed)
