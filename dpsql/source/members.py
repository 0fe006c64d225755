"""EXISTS and IN of unit-local relations: they become SEMI and ANTI joins, so that no subquery is left in an expression.

A subquery over people's rows is connected with the row outside by the privacy unit, as a join is (:mod:`dpsql.source.unit_joins`):
whether a row stays depends on rows of its own unit and on public ones. That is what the text means only where rows of others could
not decide. EXISTS, IN and NOT EXISTS ask for a partner; where the text says that a partner is of the same unit, others have none.
``x NOT IN (SELECT y ...)`` asks more: it is true of no row if any y is NULL, and of a row where x is NULL only if there is no y at
all. If the conditions of the subquery say that its rows are those of the unit of the row outside, all these y are that unit's. If
not, they are everybody's, and what is left to ask is a partner only where neither x nor y can be NULL; everything else is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

from sqlglot import exp

from dpsql.algebra.pieces import paren, try_cast
from dpsql.errors import ArgumentError
from dpsql.source.aggregates import is_aggregate
from dpsql.source.combining import is_unit, is_window, same_key
from dpsql.source.expressions import Rewriter
from dpsql.source.extremes import Extremes
from dpsql.source.kernel import INTEGERS
from dpsql.source.keys import one_equality
from dpsql.source.layers import Layer, Rows, compared, outermost, plain
from dpsql.source.leaves import View
from dpsql.source.limits import limit, looked_up
from dpsql.source.model import Column, fold, identifier, refuse
from dpsql.source.parse import render, used
from dpsql.source.present import is_present, keep_present
from dpsql.source.scope import Item, Scope
from dpsql.source.unit_joins import Joins, Meets, joined, unit_column
from dpsql.source.ways import below_parent, is_leaf

Pair = tuple[exp.Expression, exp.Expression, Column]
"""A condition that two keys are equal, the one outside, and the column inside."""


@dataclass
class Members(Joins):
    """The joins of one SELECT, and the conditions after WHERE; ``rows_of`` reads the FROM of a subquery."""

    rows_of: Callable[[exp.Select, View], tuple[Rows, list[exp.Expression]]]

    def restrict(self, rows: Rows, conditions: Sequence[exp.Expression]) -> None:
        """Apply the conditions after WHERE; those that are EXISTS or IN become joins, of the rows that the others keep."""
        # plain conditions first: they leave fewer rows to look for partners of
        for condition in sorted(conditions, key=lambda c: c.find(exp.Select) is not None):
            node, negated = condition, False
            while isinstance(node, exp.Paren | exp.Not):
                negated ^= isinstance(node, exp.Not)
                node = node.this
            if isinstance(node, exp.Exists):
                self._member(rows, node.this, negated, None, node)
            elif isinstance(node, exp.In) and node.args.get("query") is not None:
                self._member(rows, node.args["query"], negated, node.this, node)
            else:
                for compared_with in condition.find_all(exp.Any, exp.All):
                    advice = "write IN (SELECT ...) for = ANY, NOT IN (SELECT ...) for <> ALL, as a condition of WHERE on its own"
                    refuse(f"{compared_with.key.upper()} (SELECT ...)", advice, compared_with, self.view.where)
                for inner in condition.find_all(exp.Exists, exp.Select):
                    advice = "as a condition of WHERE on its own, connected by AND to others; or join the table"
                    refuse("EXISTS or IN (SELECT ...) inside an expression", advice, inner, self.view.where)
                rows.restrict(Rewriter(rows.scope)(condition))
                keep_present(rows.scope, [condition])

    def _member(self, rows: Rows, query: exp.Expression, negated: bool, value: exp.Expression | None, at: exp.Expression) -> None:
        """Keep rows that have, or do not have, a partner among the rows of a subquery."""
        while isinstance(query, exp.Subquery) and set(used(query)) == {"this"}:
            query = query.this
        if isinstance(value, exp.Tuple):
            no = "NOT " * negated
            refuse(f"(a, b) {no}IN (SELECT ...)", f"write {no}EXISTS (SELECT ... WHERE a = x AND b = y)", at, self.view.where)
        query = _as_set(query, value is None)
        self._check_reached(rows, query, value is not None, at)
        inner, conditions, column = self._inner(rows, query, value is not None, at)
        item = inner.scope.items[0]
        both = replace(rows.scope, items=[*rows.scope.items, *inner.scope.items])
        # conditions that say whose rows these are become the generated one; the rest is written as it stands
        by_unit = [c for c in conditions if self._says_unit(c, rows.scope, both)]
        rest = [c for c in conditions if c not in by_unit]
        member = value is not None and column is not None and not (column.unit and is_unit(value, rows.scope))
        perhaps = [] if value is None or column is None or not negated else self._perhaps_null(value, column, rows.scope)
        # rows that are not found by a hash are compared pair by pair, of one person with each other
        compared = not looked_up(rest, item, both) or (member and bool(perhaps))
        several = inner.unit is not None and rows.unit is not None and not rows.one and not inner.one
        if compared and several and not Meets.of(self, item, conditions, both).linear:
            if value is None and self._by_extremes(rows, item, conditions, rest, both, by_unit, negated):
                return
            limit(rows)
            limit(inner)
            item = inner.scope.items[0]
            column = column and item.column(column.name)
            both = replace(rows.scope, items=[*rows.scope.items, *inner.scope.items])
        written = [self._condition(c, Rewriter(both)) for c in rest]
        pairs = self._pairs(conditions, rows, item, both)
        own = bool(by_unit) or bool(pairs)  # the subquery's rows are, by its conditions, those of the unit of the row outside
        same = own
        if value is not None and column is not None:
            outside = plain(value, rows.scope) if isinstance(value, exp.Column | exp.Paren) else None
            same |= outside is not None and same_key(outside[1], column)
            if outside is not None and not perhaps:
                pairs.append((value, value, column))
            if column.unit and is_unit(value, rows.scope):
                same = True
                by_unit.append(value)
            else:
                written += self._in(rows, value, column, item, perhaps)
        # people's rows decide about a row only if they are of its own unit
        if inner.unit is not None:
            if rows.unit is None:
                refuse("EXISTS or IN", "it chooses public rows by people's", at, self.view.where)
            if not same:
                advice = "connect them: EXISTS (SELECT 1 FROM t2 WHERE t2.unit = t.unit ...) or unit IN (SELECT unit ...)"
                refuse("EXISTS or IN", f"its rows are other people's; {advice}", at, self.view.where)
            if perhaps and not own and value is not None:
                self._of_everybody(value, query, perhaps, at)
            loose = self._loose(pairs, rows, item)
            if loose is None:
                written.insert(0, self._one_unit(rows.unit, inner.unit.copy(), by_equality=_by_equality(by_unit)))
            else:
                item = replace(item, node=loose[0])
                written[:0] = self._said_key(loose[1], by_unit, rows, item.alias)
        rows.tree.append("joins", joined(item, "ANTI" if negated else "SEMI", None, written or [exp.true()]))

    def _by_extremes(
        self, rows: Rows, item: Item, conditions: Sequence[exp.Expression], rest: Sequence[exp.Expression], both: Scope,
        by_unit: Sequence[exp.Expression], negated: bool,
    ) -> bool:
        """Apply an EXISTS by the extremes of what it compares; return whether it is one that can be: see `Extremes`."""
        extremes = Extremes.of(rest, item, both)
        pairs = self._pairs(conditions, rows, item, both)
        if extremes is None or rows.unit is None or not (by_unit or pairs):
            return False
        alias = rows.fresh("s")
        written = extremes.equalities(alias, both)
        loose = self._loose(pairs, rows, item)
        if loose is None:
            grouped = extremes.grouped(item, item.node, (), True, alias)
            written.insert(0, self._one_unit(rows.unit, unit_column(alias), by_equality=_by_equality(by_unit)))
        else:
            grouped = extremes.grouped(item, loose[0], [loose[1][2]], False, alias)
            written[:0] = self._said_key(loose[1], by_unit, rows, alias)
        join = joined(replace(item, node=grouped), None, "LEFT" if negated else None, written)
        rows.tree.append("joins", join)
        rows.restrict(extremes.holds(alias, both, negated))
        return True

    def _pairs(self, conditions: Sequence[exp.Expression], rows: Rows, item: Item, both: Scope) -> list[Pair]:
        """Return the conditions that say that a row inside is of the unit of the row outside, with the two sides of each."""
        return [
            (c, self._beside(c, rows.scope, both), pair[1]) for c in conditions if (pair := self._linked(c, item, both)) is not None
        ]

    def _loose(self, pairs: Sequence[Pair], rows: Rows, item: Item) -> tuple[exp.Subquery, Pair] | None:
        """Return the rows of a subquery without their parents, and the pair that is their link; None where they are needed.

        A row that is there holds the key of its parent, whose unit is that of the row outside.
        """
        link = next((one for one in pairs if self._on_link(*one, rows.scope)), None)
        below = below_parent(item.node) if link is not None else None
        return None if link is None or below is None else (below, link)

    @staticmethod
    def _said_key(link: Pair, by_unit: Sequence[exp.Expression], rows: Rows, alias: str) -> list[exp.Expression]:
        """Return a link as a condition, where it is among those that are not written for themselves; else nothing."""
        if not any(link[0] is c for c in by_unit):
            return []
        column = exp.Column(this=identifier(link[2].ref), table=identifier(alias))
        return [exp.EQ(this=Rewriter(rows.scope)(link[1]), expression=column)]

    @staticmethod
    def _beside(condition: exp.Expression, outer: Scope, both: Scope) -> exp.Expression:
        """Return the side of an equality that is a column of the rows outside."""
        condition = condition.unnest()
        sides = (condition.this, condition.expression)
        return next(side for side in sides if (match := plain(side, both)) is not None and any(match[0] is i for i in outer.items))

    def _on_link(self, _: exp.Expression, key: exp.Expression, inside: Column, outer: Scope) -> bool:
        """Return whether an equality says that a row of a linked table is one of the unit of the row outside.

        ``key``: the side of it that is a column outside, of a table that is read as it is. Where an orphan could be a row, or a row
        of the root have no unit, the units themselves are compared.
        """
        resolved = plain(key, outer)
        if resolved is None or resolved[0].outer or not is_leaf(resolved[0].node):
            return False
        outside = resolved[1]
        analysis = self.analysis
        lineage = analysis.lineages.get(inside.home) if inside.home is not None else None
        if lineage is None or outside.sql_type != inside.sql_type or not one_equality(inside.sql_type):
            return False
        hop = lineage.hops[0]
        if analysis.may_lack_unit() or fold(inside.origin or "") != fold(hop.column):
            return False
        return (hop.parent, fold(hop.parent_column)) in outside.keys

    def _inner(
        self, rows: Rows, query: exp.Expression, valued: bool, at: exp.Expression
    ) -> tuple[Rows, list[exp.Expression], Column | None]:
        """Return the rows of a subquery, conditions that connect them with the rows outside, and the column that IN compares."""
        analysis = self.analysis
        if not isinstance(query, exp.Select) or not self._is_simple(query):
            # a query that combines cannot name the rows outside: it is a relation by itself
            relation = analysis.query(query, replace(self.view, depth=self.view.depth + 1))
            item = analysis._nested(relation, exp.Table(), "", self.view)
            below = analysis.over(item)
            return below, [], self._one(item.columns, at) if valued else None
        view, own = analysis._with(query, replace(self.view, depth=self.view.depth + 1))
        if extra := set(used(query)) - {"expressions", "from", "from_", "joins", "where", "with", "with_", "order"}:
            refuse(min(extra).upper(), "not allowed in EXISTS or IN", query, self.view.where)
        below, rest = self.rows_of(query, view)
        inside = Members(analysis, view, self.rows_of)
        # conditions that name the rows outside wait for the join; the others are the subquery's own
        outer = [c for c in rest if not c.find(exp.Select) and not self._known(c, below.scope)]
        inside.restrict(below, [c for c in rest if not any(c is o for o in outer)])
        if any(not cte.used for cte in own):
            refuse("WITH", "never used; take it out", query, self.view.where)
        # what they compare has to come out of the subquery as a column
        layer = Layer(below)
        column = None
        for listed in [] if valued else query.expressions:
            self._check_named(listed, below.scope, rows.scope)
        if valued:
            entries = analysis._entries(query, below.scope)
            if len(entries) != 1:
                refuse("IN (SELECT ...)", "select one column", at, self.view.where)
            column = layer.compute(entries[0][1])
        conditions = [self._outside(c, layer) for c in outer]
        out = layer.close()
        out.scope.items[:] = out.scope.items[-1:] if out.scope.items and out.scope.items[-1].columns else out.scope.items[:1]
        return out, conditions, column

    @staticmethod
    def _check_named(listed: exp.Expression, below: Scope, outside: Scope) -> None:
        """Refuse names in the list of an EXISTS that mean nothing there: they decide nothing, and are a mistake all the same."""
        for node in listed.find_all(exp.Column):
            if isinstance(node.this, exp.Star) or node.find_ancestor(exp.Query) is not listed.find_ancestor(exp.Query):
                continue
            try:
                below.resolve(node)
            except ArgumentError:
                outside.resolve(node)

    def _is_simple(self, query: exp.Select) -> bool:
        """Return whether a subquery's rows are those that its WHERE keeps."""
        combined = any(query.args.get(key) for key in ("group", "having", "qualify", "distinct", "limit"))
        return not combined and not any(self._combines(listed) for listed in query.expressions)

    def _check_reached(self, rows: Rows, query: exp.Expression, valued: bool, at: exp.Expression) -> None:
        """Refuse columns of the rows outside where they cannot connect rows: below something that combines, or deeper."""
        outside = {fold(item.name) for item in rows.scope.items if item.name}
        named = {fold(part.alias_or_name) for part in query.find_all(exp.Table, exp.Subquery, exp.CTE)}
        simple = isinstance(query, exp.Select) and self._is_simple(query)
        for column in query.find_all(exp.Column):
            if fold(column.table) in outside - named and (not simple or column.find_ancestor(exp.Query) is not query):
                shown, way = render(column), "stands two subqueries deep; name it in the WHERE of the first"
                if not simple:
                    way = f"stands where rows are combined; compare it with what is listed: {shown} IN (SELECT ... GROUP BY ...)"
                refuse("IN (SELECT ...)" if valued else "EXISTS", f"{shown} is a column outside, and {way}", at, self.view.where)

    def _outside(self, condition: exp.Expression, layer: Layer) -> exp.Expression:
        """Return a condition in which columns of the subquery have the names that its layer gives them."""
        out = exp.Paren(this=condition.copy())
        for node in list(out.find_all(exp.Column)):
            try:
                item, column, fields = layer.rows.scope.resolve(node)
            except ArgumentError:
                continue
            if fields:
                refuse("a field of a struct", "give it a name in a subquery", node, self.view.where)
            key = (item.alias, column.ref)
            if key not in layer.seen:
                value = exp.Column(this=identifier(column.ref), table=identifier(item.alias))
                layer.seen[key] = layer.add(value, column)
            node.replace(exp.Column(this=identifier(layer.seen[key].ref)))
        return out

    @staticmethod
    def _says_unit(node: exp.Expression, outer: Scope, both: Scope) -> bool:
        """Whether a condition says that the unit inside is that outside."""
        pair = compared(node, both, exp.EQ, exp.NullSafeEQ)
        if pair is None or not all(column.unit for _, column in pair):
            return False
        return sum(any(one is i for i in outer.items) for one, _ in pair) == 1

    @staticmethod
    def _perhaps_null(value: exp.Expression, column: Column, scope: Scope) -> list[str]:
        """Return which sides of ``value NOT IN (SELECT column ...)`` could be NULL: 'value', 'column'."""
        resolved = plain(value, scope) if isinstance(value, exp.Column | exp.Paren) else None
        outside = isinstance(value, exp.Literal) or (resolved is not None and is_present(resolved[1]))
        return [*([] if outside else ["value"]), *([] if is_present(column) else ["column"])]

    def _of_everybody(self, value: exp.Expression, query: exp.Expression, perhaps: Sequence[str], at: exp.Expression) -> NoReturn:
        """Refuse NOT IN where a NULL of other people's rows, or whether there are any, would decide about a row."""
        listed = query.expressions if isinstance(query, exp.Select) else []
        left, right = render(value), render(listed[0].unalias()) if len(listed) == 1 else "its column"
        why = {
            "value": f"where {left} is NULL, it is true only if the subquery has no rows",
            "column": f"where {right} is NULL in any row of the subquery, it is never true",
        }
        ways = {"value": f"{left} IS NOT NULL AND {left} NOT IN (...)", "column": f"{right} IS NOT NULL in the subquery's WHERE"}
        reasons, ways_out = (" and ".join(texts[side] for side in perhaps) for texts in (why, ways))
        advice = f"write {ways_out}, or NOT EXISTS, which asks for equal values alone"
        refuse(f"{left} NOT IN (SELECT ...)", f"{reasons}: other people's rows would decide; {advice}", at, self.view.where)

    def _in(self, rows: Rows, value: exp.Expression, column: Column, item: Item, perhaps: Sequence[str]) -> list[exp.Expression]:
        """Return ``value = column``; of NOT IN what SQL means by it: no partner that is equal, none where either is NULL.

        ``perhaps``: of NOT IN, which sides could be NULL.
        """
        left: exp.Expression = paren(Rewriter(rows.scope)(value))
        right: exp.Expression = exp.Column(this=identifier(column.ref), table=identifier(item.alias))
        kind = rows.scope.type_of(left)
        if kind != column.sql_type and {kind, column.sql_type} <= set(INTEGERS):  # all of them fit into the largest
            left, right = try_cast(left, "BIGINT"), try_cast(right, "BIGINT")
        elif kind not in (column.sql_type, '"NULL"'):
            refuse("IN (SELECT ...)", f"it compares {kind} with {column.sql_type}; CAST one of them", value, self.view.where)
        equal = exp.EQ(this=left, expression=right)
        sides = [side for name, side in (("value", left), ("column", right)) if name in perhaps]
        missing = [exp.Is(this=side.copy(), expression=exp.Null()) for side in sides]
        return [exp.Paren(this=exp.or_(equal, *missing, copy=False))] if missing else [equal]

    def _one(self, columns: Sequence[Column], at: exp.Expression) -> Column:
        if len(columns) != 1:
            refuse("IN (SELECT ...)", "select one column", at, self.view.where)
        return columns[0]

    @staticmethod
    def _combines(node: exp.Expression) -> bool:
        return bool(outermost(node, lambda n: is_aggregate(n) or is_window(n)))


def _as_set(query: exp.Expression, exists: bool) -> exp.Expression:
    """Return a subquery without what changes neither whether it has a row nor which different values it has.

    That is DISTINCT; and where it is only asked whether there is a row, ``exists``, LIMIT of one or more and GROUP BY, whose keys
    are listed then: they have to be columns that are there.
    """
    if not isinstance(query, exp.Select):
        return query
    limit, group, distinct = (query.args.get(key) for key in ("limit", "group", "distinct"))
    unneeded = ["distinct"] if distinct is not None and distinct.args.get("on") is None else []
    if exists and isinstance(limit, exp.Limit) and set(used(limit)) == {"expression"} and _is_some(limit.expression):
        unneeded.append("limit")
    keys: list[exp.Expression] = []
    if exists and group is not None and set(used(group)) == {"expressions"} and query.args.get("having") is None:
        keys = group.expressions
    if keys and all(isinstance(part, exp.Column) or _is_some(part) for part in keys):
        unneeded.append("group")
    if not unneeded:
        return query
    out = query.copy()
    for key in unneeded:
        out.set(key, None)
    if "group" in unneeded:
        listed = [*out.expressions, *(key.copy() for key in keys)]
        named = [part for part in listed if not isinstance(part.unalias(), exp.Literal) and not Members._combines(part)]
        out.set("expressions", named or [exp.Literal.number(1)])
    return out


def _is_some(node: exp.Expression | None) -> bool:
    return isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit() and int(node.name) > 0


def _by_equality(by_unit: Sequence[exp.Expression]) -> bool:
    """Return whether some condition says with ``=``, or with IN, that units are equal: then it is true of no unit that is NULL."""
    return any(not isinstance(condition.unnest(), exp.NullSafeEQ) for condition in by_unit)
