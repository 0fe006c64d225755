"""EXISTS with equalities and one inequality, by the least and the greatest value of the rows that have equal keys.

Some row of the same keys has another value than x if and only if the least or the greatest of them is another one; some has a
lesser value if and only if the least is less. So instead of every row, one for each key meets the rows outside: work is linear in
a unit's rows, none of them is left out (`dpsql.source.limits`), and DuckDB adds up instead of sorting.

NULL is as in the comparison itself: it is the least and the greatest of no rows but those of NULL alone, which meet nobody.

Privacy: the rows of one group are of one unit, which is among the keys; or, where the rows are those of a linked table without its
parent, they hold one key of the parent, whose unit theirs is (`dpsql.source.members`). DuckDB's own tree of the text is walked for
it once more (`dpsql.source.unit_local`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlglot import exp

from dpsql.algebra.pieces import call, paren
from dpsql.source.expressions import Rewriter
from dpsql.source.keys import exact
from dpsql.source.layers import COMBINING, plain
from dpsql.source.limits import looked_up
from dpsql.source.model import RESERVED, UNIT, Column, identifier
from dpsql.source.scope import Item, Scope
from dpsql.source.total import keeps

_TURNED: dict[type[exp.Expression], type[exp.Expression]] = {
    exp.NEQ: exp.NEQ, exp.LT: exp.GT, exp.LTE: exp.GTE, exp.GT: exp.LT, exp.GTE: exp.LTE,
}
_ENDS: dict[type[exp.Expression], tuple[str, ...]] = {
    exp.NEQ: ("min", "max"), exp.LT: ("min",), exp.LTE: ("min",), exp.GT: ("max",), exp.GTE: ("max",),
}


@dataclass(frozen=True)
class Extremes:
    """What connects a subquery with the rows outside: equalities of its columns, and one column that is compared otherwise.

    ``equal``: what is outside of equalities, and the column inside that each fixes. ``compare``: the kind of comparison, with the
    column inside on the left. ``outside``: its other side.
    """

    equal: Sequence[tuple[exp.Expression, Column]]
    compare: type[exp.Expression]
    column: Column
    outside: exp.Expression

    @classmethod
    def of(cls, conditions: Sequence[exp.Expression], item: Item, both: Scope) -> Extremes | None:
        """Return how conditions connect a subquery with the rows outside; None where it is in another way."""
        equal: list[tuple[exp.Expression, Column]] = []
        ranges: list[tuple[type[exp.Expression], Column, exp.Expression]] = []
        for condition in conditions:
            node = condition.unnest()
            sides = [(node.this, node.expression), (node.expression, node.this)] if isinstance(node, exp.Binary) else []
            for place, (inside, outside) in enumerate(sides):
                own = plain(inside, both) if isinstance(inside.unnest(), exp.Column) else None
                if own is None or own[0] is not item or any(both.resolve(c)[0] is item for c in outside.find_all(exp.Column)):
                    continue
                if looked_up([condition], item, both) and exact(own[1].sql_type):
                    equal.append((outside, own[1]))
                elif type(node) in _TURNED and _ordered(own[1].sql_type) and _kind(outside, both) == own[1].sql_type:
                    ranges.append((_TURNED[type(node)] if place else type(node), own[1], outside))
                break
        if len(ranges) != 1 or len(equal) + 1 != len(conditions):
            return None
        return cls(equal, *ranges[0])

    def grouped(self, item: Item, node: exp.Expression, more: Iterable[Column], unit: bool, alias: str) -> exp.Subquery:
        """Return the extremes of a relation's column by what is equal, with the unit of the rows if they carry one.

        ``more``: columns that are keys besides.
        """
        relation = node.copy()
        columns = {column.ref: column for column in [*(column for _, column in self.equal), *more]}
        keys = [exp.Column(this=identifier(ref), table=identifier(item.alias)) for ref in columns]
        listed = [exp.Alias(this=key.copy(), alias=identifier(key.name)) for key in keys]
        if unit:
            keys.insert(0, exp.Column(this=identifier(UNIT), table=identifier(item.alias)))
            listed.append(exp.Alias(this=keys[0].copy(), alias=identifier(UNIT)))
        value = exp.Column(this=identifier(self.column.ref), table=identifier(item.alias))
        ends = [exp.Alias(this=call(end, value.copy()), alias=identifier(_end(end))) for end in _ENDS[self.compare]]
        select = exp.Select(expressions=[*listed, *ends]).from_(relation)
        select.set("group", exp.Group(expressions=keys))
        select.meta[COMBINING] = True
        return exp.Subquery(this=select, alias=exp.TableAlias(this=identifier(alias)))

    def equalities(self, alias: str, both: Scope) -> list[exp.Expression]:
        """Return the equalities with the columns of the grouped relation."""
        return [
            exp.EQ(this=paren(Rewriter(both)(outside)), expression=exp.Column(this=identifier(column.ref), table=identifier(alias)))
            for outside, column in self.equal
        ]

    def holds(self, alias: str, both: Scope, negated: bool) -> exp.Expression:
        """Return the condition that some row has such a value, or that none has, over the grouped relation."""
        outside = paren(Rewriter(both)(self.outside))
        ends = [exp.Column(this=identifier(_end(end)), table=identifier(alias)) for end in _ENDS[self.compare]]
        reached = exp.or_(*(self.compare(this=end, expression=outside.copy()) for end in ends), copy=False)
        if negated:
            reached = exp.Case(ifs=[exp.If(this=reached, true=exp.false())], default=exp.true())
        if isinstance(outside, exp.Column):  # columns of one type are compared: nothing can fail
            keeps(reached, "BOOLEAN")
        return exp.Paren(this=reached)


def _end(name: str) -> str:
    return f"{RESERVED}{name}"


def _ordered(sql_type: str) -> bool:
    """Return whether a type's order is that of its bytes for everybody: no text, which has collations."""
    return exact(sql_type) and sql_type not in ("VARCHAR", "BLOB") and not sql_type.startswith("ENUM(")


def _kind(node: exp.Expression, scope: Scope) -> str:
    resolved = plain(node, scope) if isinstance(node.unnest(), exp.Column) else None
    return resolved[1].sql_type if resolved is not None else scope.type_of(Rewriter(scope)(node))
