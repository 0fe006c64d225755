"""Columns of a unit-local SELECT that are never NULL: by their declaration, or because a row with NULL in them is not kept.

Privacy: post-processing of the catalog and of the text; no row was read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from dpsql.source.layers import plain
from dpsql.source.model import Column
from dpsql.source.scope import Scope

_STRICT = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE)
"""True of no row where a side is NULL."""


def is_present(column: Column) -> bool:
    """Return whether no row has NULL in a column."""
    return column.present or not column.nullable


def keep_present(scope: Scope, conditions: Sequence[exp.Expression]) -> None:
    """Note which columns are not NULL in the rows that satisfy these conditions, all of them."""
    for condition in conditions:
        for side in _not_null(condition.unnest()):
            resolved = plain(side, scope)
            if resolved is not None:
                item, column = resolved
                item.columns = [replace(one, present=True) if one is column else one for one in item.columns]


def _not_null(node: exp.Expression) -> tuple[exp.Expression, ...]:
    """Return parts of a condition that are not NULL where it is true."""
    if isinstance(node, exp.Not):
        inner = node.this.unnest()
        missing = isinstance(inner, exp.Is) and isinstance(inner.expression, exp.Null)
        return (inner.this,) if missing else ()
    if type(node) in _STRICT:
        return node.this, node.expression
    return (node.this,) if isinstance(node, exp.Between | exp.In) and node.args.get("query") is None else ()
