"""Joins of a source: which columns of a public table they fix, whether those are a key, and one row of it for each key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from dpsql.errors import ArgumentError
from dpsql.source.expressions import Rewriter
from dpsql.source.keys import KINDS, exact, in_bytes
from dpsql.source.model import Column, TableId, fold, identifier, refuse
from dpsql.source.scope import Item, Scope


def chain(node: exp.Expression) -> tuple[exp.Expression, list[exp.Join]]:
    """Return the first relation of FROM and the joins that brackets hold: DuckDB 2.0 stores a view's as ``((a JOIN b) JOIN c)``."""
    joins = node.args.get("joins") or []
    if isinstance(node, exp.Subquery) and not node.alias and isinstance(node.this, exp.Table | exp.Subquery):
        start, inner = chain(node.this)
        return start, [*inner, *joins]
    return node, joins


def conjuncts(node: exp.Expression) -> list[exp.Expression]:
    """Return the conditions that AND connects."""
    return connected(node, exp.And)


def connected(node: exp.Expression, by: type[exp.Connector]) -> list[exp.Expression]:
    """Return the conditions that AND, or OR, connects, whatever brackets stand around them."""
    if isinstance(node, exp.Paren):
        return connected(node.this, by)
    return [*connected(node.this, by), *connected(node.expression, by)] if isinstance(node, by) else [node]


def key_pairs(join: exp.Join, scope: Scope, item: Item, where: str) -> list[tuple[Column, exp.Expression]]:
    """Return columns of the public table, each with an expression over the relations on the left that must equal it."""
    outside, both = Rewriter(scope), replace(scope, items=[*scope.items, item])
    # USING and ON come to the same from here on: pairs of which one side is the public table's
    equal: list[tuple[exp.Expression, exp.Expression]] = []
    if join.args.get("using"):
        for name in join.args["using"]:
            public = item.column(name.name)
            if public is None:
                raise ArgumentError("source", name.name, f"{item.name} has no such column{where}")
            item.hidden.add(fold(name.name))
            equal.append((exp.column(name.name, quoted=True), exp.column(public.name, table=item.name, quoted=True)))
    else:
        equal = [(c.this, c.expression) if isinstance(c, exp.EQ) else (c, c) for c in conjuncts(join.args["on"])]
    pairs: list[tuple[Column, exp.Expression]] = []
    for a, b in equal:
        sides = [s for s in (a, b) if isinstance(s, exp.Column) and both.resolve(s)[0] is item]
        if len(sides) != 1 or both.resolve(sides[0])[2]:
            refuse("ON", "only equalities with columns of the public table: left = public.key AND ...", join, where)
        public = both.resolve(sides[0])[1]
        value = outside(a if sides[0] is b else b)
        # a cast that DuckDB adds could make two values equal, and one row would meet several
        if (kind := scope.type_of(value)) != public.sql_type:
            advice = f"it compares {kind} with {public.sql_type}; write CAST(... AS {public.sql_type}) on the other side"
            refuse("ON", advice, join, where)
        if not exact(kind):
            advice = f"{kind} has several forms of one value, so a row could meet several; make the key of {item.name} {KINDS}"
            refuse("ON", advice, join, where)
        pairs.append((public, value))
    return pairs


def covered_key(
    keys: Sequence[Sequence[str]], table: TableId, item: Item, fixed: set[str], join: exp.Join, where: str
) -> list[str]:
    """Return the first of the keys of a public table that the join covers."""
    by_name = {fold(c.ref): c.ref for c in item.columns}
    for key in keys:
        refs = [by_name.get(fold(name)) for name in key]
        if refs and all(ref in fixed for ref in refs):
            return [ref for ref in refs if ref is not None]
    return refuse(
        "JOIN",
        f"ON does not cover a declared key of {table.text}, so one row could meet several; give it a PRIMARY KEY, a "
        "UNIQUE constraint or a UNIQUE INDEX of plain columns, and join on all of them",
        join,
        where,
    )


def one_row_a_key(item: Item, key: Sequence[str]) -> exp.Subquery:
    """Return a public table with one row for each value of its key, byte by byte."""
    columns = {c.ref: c.sql_type for c in item.columns}
    refs = {ref: exp.Column(this=identifier(ref), table=identifier(item.alias)) for ref in columns}
    source = exp.Select(expressions=[ref.copy() for ref in refs.values()]).from_(item.node)
    source = source.distinct(*(in_bytes(refs[ref].copy(), columns[ref]) for ref in key))
    return exp.Subquery(this=source, alias=exp.TableAlias(this=identifier(item.alias)))
