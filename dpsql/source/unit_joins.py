"""Joins and EXISTS or IN of unit-local relations: rows of people meet rows of the same person, or public rows.

A join of two relations with people's rows has ``l.__dp_unit = r.__dp_unit`` in its condition, whatever else the text says; the text has
to say it too, in its own words. NULL is no unit that equals another: rows without a unit meet nobody's, not even each other, which
depends on rows without a unit alone. RIGHT and FULL joins become a layer of their own, whose unit is that of the side that is there.
EXISTS and IN become SEMI and ANTI joins, so that no subquery is left in an expression.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.errors import ArgumentError
from dpsql.source.aggregates import is_aggregate
from dpsql.source.combining import is_unit, is_window
from dpsql.source.expressions import Rewriter
from dpsql.source.functions import paren
from dpsql.source.layers import Layer, Rows, outermost, plain
from dpsql.source.leaves import View
from dpsql.source.model import UNIT, Column, fold, identifier, refuse
from dpsql.source.parse import used
from dpsql.source.scope import Item, Scope

if TYPE_CHECKING:
    from dpsql.source.local import LocalAnalysis

COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ)
MOST_RELATIONS = 12
"""Tables that a source may read, each reading counted."""
_SAME_UNIT = "the rows of two people may not meet; write ON a.unit = b.unit [AND ...] or USING (unit), of the privacy unit column"
_NO_UNIT = "rows of the public table that meet nobody would belong to no person; write protected LEFT JOIN public"


def conditions_of(node: exp.Expression) -> list[exp.Expression]:
    """Return the conditions that AND connects."""
    if isinstance(node, exp.Paren) and isinstance(node.this, exp.Paren | exp.And):
        return conditions_of(node.this)
    return [*conditions_of(node.this), *conditions_of(node.expression)] if isinstance(node, exp.And) else [node]


@dataclass
class Joins:
    """The joins of one SELECT."""

    analysis: LocalAnalysis
    view: View

    def join(self, rows: Rows, join: exp.Join, rest: Sequence[exp.Expression]) -> Rows:
        """Return rows joined with one more relation.

        Parameters
        ----------
        rows : Rows
        join : sqlglot expression
        rest : sequence of expressions
            Conditions after WHERE, which may say that units are equal.
        """
        where = self.view.where
        side, kind = (str(join.args.get(k) or "").upper() for k in ("side", "kind"))
        name = f"{side} {kind} JOIN".replace("  ", " ").strip()
        if set(used(join)) - {"this", "on", "using", "side", "kind"} or kind not in ("", "INNER", "OUTER", "CROSS", "SEMI", "ANTI"):
            name = " ".join(str(join.args[k]).upper() for k in ("method", "side", "kind") if join.args.get(k))
            refuse(f"{name} JOIN", "only JOIN, LEFT, RIGHT, FULL, CROSS, SEMI and ANTI JOIN", join, where)
        item = self.analysis._item(join.this, self.view)  # noqa: SLF001 -- one class in several files
        if len(self.analysis.leaves) > MOST_RELATIONS:
            refuse("JOIN", f"a source may read {MOST_RELATIONS} tables; make one of them of several", join, where)
        if item.name and any(fold(item.name) == fold(other.name) for other in rows.scope.items):
            refuse(f"{item.name!r}", "two relations have that name; give one another with AS", join, where)
        using = [u.name for u in join.args.get("using") or []]
        given = self._using(rows.scope, item, using) if using else conditions_of(join.args["on"]) if join.args.get("on") else []
        if side and not given:
            refuse(name, "write ON or USING", join, where)
        self._allowed(rows, item, side, kind, name, join)
        both = replace(rows.scope, items=[*rows.scope.items, item])
        conditions = [c for c in given if not self._same_unit(c, rows.scope, item, both)]
        units = rows.unit is not None and item.protected
        if units:
            pool = rest if not side and kind in ("", "INNER", "CROSS") else []
            if len(conditions) == len(given) and not any(
                self._known(c, both) and self._same_unit(c, rows.scope, item, both) for c in pool
            ):
                refuse(name, _SAME_UNIT, join, where)
        written = [self._condition(c, Rewriter(both)) for c in conditions]
        if units and rows.unit is not None:
            written.insert(0, exp.EQ(this=rows.unit.copy(), expression=_unit(item.alias)))
        if kind in ("SEMI", "ANTI"):
            rows.tree.append("joins", _joined(item, kind, None, written))
            return rows
        if side in ("RIGHT", "FULL"):
            return self._wrapped(rows, item, side, using, written)
        for column in using:
            item.hidden.add(fold(column))
        if side == "LEFT":
            item.columns = [replace(c, nullable=True, unit=False) for c in item.columns]
        rows.one = rows.one and item.one and item.protected
        rows.unit = rows.unit if rows.unit is not None or not item.protected else _unit(item.alias)
        rows.joined(item, _joined(item, None if written else "CROSS", side or None, written))
        return rows

    def _allowed(self, rows: Rows, item: Item, side: str, kind: str, name: str, join: exp.Join) -> None:
        """Refuse joins that leave rows without a person, or that choose public rows by people's."""
        where = self.view.where
        left = rows.unit is not None
        if left and not item.protected and side in ("RIGHT", "FULL"):
            refuse(name, _NO_UNIT, join, where)
        if not left and item.protected and (side in ("LEFT", "FULL") or kind in ("SEMI", "ANTI")):
            refuse(name, _NO_UNIT, join, where)

    def _using(self, scope: Scope, item: Item, names: Sequence[str]) -> list[exp.Expression]:
        """Return USING as equalities."""
        found: list[exp.Expression] = []
        for name in names:
            column = item.column(name)
            if column is None:
                raise ArgumentError("source", name, f"{item.name} has no such column{self.view.where}")
            owner, left, _ = scope.resolve(exp.column(name, quoted=True))
            found.append(
                exp.EQ(
                    this=exp.column(left.name, table=owner.name, quoted=True),
                    expression=exp.column(column.name, table=item.name, quoted=True),
                )
            )
        return found

    @staticmethod
    def _known(node: exp.Expression, scope: Scope) -> bool:
        """Whether every column of a condition is one of these relations'."""
        try:
            for column in node.find_all(exp.Column):
                scope.resolve(column)
        except ArgumentError:
            return False
        return not node.find(exp.Select)

    @staticmethod
    def _same_unit(node: exp.Expression, left: Scope, item: Item, both: Scope) -> bool:
        """Whether a condition says that the units of both sides are equal."""
        while isinstance(node, exp.Paren):
            node = node.this
        if type(node) not in (exp.EQ, exp.NullSafeEQ):
            return False
        found = [plain(side, both) if isinstance(side, exp.Column | exp.Paren) else None for side in (node.this, node.expression)]
        if any(f is None or not f[1].unit for f in found):
            return False
        return sum(f is not None and f[0] is item for f in found) == 1

    @staticmethod
    def _condition(node: exp.Expression, rewrite: Rewriter) -> exp.Expression:
        """Return a condition; the two sides of a comparison are expressions of their own."""
        while isinstance(node, exp.Paren):
            node = node.this
        if type(node) in COMPARISONS:
            return type(node)(this=paren(rewrite(node.this)), expression=paren(rewrite(node.expression)))
        return paren(rewrite(node))

    def _wrapped(self, rows: Rows, item: Item, side: str, using: Sequence[str], written: list[exp.Expression]) -> Rows:
        """Return a RIGHT or FULL join as a layer: its unit is that of the side that is there."""
        left_unit, right_unit = rows.unit, _unit(item.alias) if item.protected else None
        merged: list[tuple[str, Column, Item, Column]] = []
        for name in using:
            owner, column, _ = rows.scope.resolve(exp.column(name, quoted=True))
            right = item.column(name)
            if right is not None:
                merged.append((name, column, owner, right))
        one = rows.one and item.one and side == "RIGHT"
        items = [replace(i, columns=[replace(c, nullable=True, unit=False) for c in i.columns]) for i in rows.scope.items]
        last = replace(item, columns=[replace(c, nullable=True, unit=c.unit and side == "RIGHT") for c in item.columns])
        rows.scope.items[:] = items
        rows.joined(last, _joined(item, None, side, written))
        rows.unit = right_unit
        if side == "FULL" and left_unit is not None and right_unit is not None:
            rows.unit = exp.Coalesce(this=left_unit.copy(), expressions=[right_unit.copy()])
        layer = Layer(rows)
        for name, column, owner, right in merged:
            sides = [
                exp.Column(this=identifier(c.ref), table=identifier(a)) for c, a in ((column, owner.alias), (right, item.alias))
            ]
            value: exp.Expression = sides[1] if side == "RIGHT" else exp.Coalesce(this=sides[0], expressions=[sides[1]])
            unit = right.unit and (side == "RIGHT" or column.unit)
            same = column.origin if column.origin == right.origin else None
            made = layer.add(value, replace(right, origin=right.origin if side == "RIGHT" else same, unit=unit, nullable=True))
            layer.listed[-1] = (replace(made, name=name), value, None)
        layer.keep_all()
        out = layer.close(one=one)
        for name in using:
            for old in out.scope.items[:-1] if merged else out.scope.items:
                old.hidden.add(fold(name))
        if merged:  # the merged columns come first in *
            out.scope.items.insert(0, out.scope.items.pop())
        return out

    # -- EXISTS and IN ------------------------------------------------------------------------------------------------------

    def restrict(self, rows: Rows, conditions: Sequence[exp.Expression]) -> None:
        """Apply the conditions after WHERE; those that are EXISTS or IN become joins."""
        for condition in conditions:
            node, negated = condition, False
            while isinstance(node, exp.Paren | exp.Not):
                negated ^= isinstance(node, exp.Not)
                node = node.this
            if isinstance(node, exp.Exists):
                self._member(rows, node.this, negated, None, node)
            elif isinstance(node, exp.In) and node.args.get("query") is not None:
                self._member(rows, node.args["query"], negated, node.this, node)
            else:
                for inner in condition.find_all(exp.Exists, exp.Select):
                    advice = "as a condition of WHERE on its own, connected by AND to others; or join the table"
                    refuse("EXISTS or IN (SELECT ...) inside an expression", advice, inner, self.view.where)
                rows.restrict(Rewriter(rows.scope)(condition))

    def _member(self, rows: Rows, query: exp.Expression, negated: bool, value: exp.Expression | None, at: exp.Expression) -> None:
        """Keep rows that have, or do not have, a partner among the rows of a subquery."""
        while isinstance(query, exp.Subquery) and set(used(query)) == {"this"}:
            query = query.this
        if isinstance(value, exp.Tuple):
            refuse("(a, b) IN (SELECT ...)", "write EXISTS (SELECT ... WHERE a = x AND b = y)", at, self.view.where)
        inner, conditions, column = self._inner(rows, query, value is not None, at)
        item = inner.scope.items[0]
        both = replace(rows.scope, items=[*rows.scope.items, *inner.scope.items])
        said = [c for c in conditions if self._says_unit(c, rows.scope, both)]
        written = [self._condition(c, Rewriter(both)) for c in conditions if c not in said]
        same = bool(said)
        if value is not None and column is not None:
            if column.unit and is_unit(value, rows.scope):
                same = True
            else:
                written += self._in(rows, value, column, item, negated)
        if inner.unit is not None:
            if rows.unit is None:
                refuse("EXISTS or IN", "it chooses public rows by people's", at, self.view.where)
            if not same:
                advice = "its rows are other people's; connect them: EXISTS (SELECT 1 FROM t2 WHERE t2.unit = t.unit ...) or unit IN (SELECT unit ...)"
                refuse("EXISTS or IN", advice, at, self.view.where)
            written.insert(0, exp.EQ(this=rows.unit.copy(), expression=inner.unit.copy()))
        rows.tree.append("joins", _joined(item, "ANTI" if negated else "SEMI", None, written or [exp.true()]))

    def _inner(
        self, rows: Rows, query: exp.Expression, valued: bool, at: exp.Expression
    ) -> tuple[Rows, list[exp.Expression], Column | None]:
        """Return the rows of a subquery, the conditions that connect them with the rows outside, and the column that IN compares."""
        analysis = self.analysis
        simple = isinstance(query, exp.Select) and not any(
            query.args.get(k) for k in ("group", "having", "qualify", "distinct", "limit")
        )
        if not isinstance(query, exp.Select) or not simple or any(self._combines(e) for e in query.expressions):
            relation = analysis.query(query, replace(self.view, depth=self.view.depth + 1))
            item = analysis._nested(relation, exp.Table(), "", self.view)  # noqa: SLF001
            below = analysis.over(item)
            return below, [], self._one(item.columns, at) if valued else None
        view, own = analysis._with(query, replace(self.view, depth=self.view.depth + 1))  # noqa: SLF001
        if extra := set(used(query)) - {"expressions", "from", "from_", "joins", "where", "with", "with_", "order"}:
            refuse(min(extra).upper(), "not allowed in EXISTS or IN", query, self.view.where)
        below, rest = analysis.rows(query, view)
        inside = Joins(analysis, view)
        outer = [c for c in rest if not c.find(exp.Select) and not self._known(c, below.scope)]
        inside.restrict(below, [c for c in rest if not any(c is o for o in outer)])
        if any(not cte.used for cte in own):
            refuse("WITH", "never used; take it out", query, self.view.where)
        layer = Layer(below)
        column = None
        if valued:
            entries = analysis._entries(query, below.scope)  # noqa: SLF001
            if len(entries) != 1:
                refuse("IN (SELECT ...)", "select one column", at, self.view.where)
            column = layer.compute(entries[0][1])
        conditions = [self._outside(c, layer) for c in outer]
        out = layer.close()
        out.scope.items[:] = out.scope.items[-1:] if out.scope.items and out.scope.items[-1].columns else out.scope.items[:1]
        return out, conditions, column

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
        while isinstance(node, exp.Paren):
            node = node.this
        if type(node) not in (exp.EQ, exp.NullSafeEQ):
            return False
        found = [plain(side, both) if isinstance(side, exp.Column | exp.Paren) else None for side in (node.this, node.expression)]
        if any(f is None or not f[1].unit for f in found):
            return False
        return sum(any(f is not None and f[0] is i for i in outer.items) for f in found) == 1

    def _in(self, rows: Rows, value: exp.Expression, column: Column, item: Item, negated: bool) -> list[exp.Expression]:
        """Return ``value = column``, and of NOT IN what SQL means by it: no partner that is equal, and none where either is NULL."""
        left = paren(Rewriter(rows.scope)(value))
        right = exp.Column(this=identifier(column.ref), table=identifier(item.alias))
        kind = rows.scope.type_of(left)
        if kind not in (column.sql_type, '"NULL"'):
            refuse("IN (SELECT ...)", f"it compares {kind} with {column.sql_type}; CAST one of them", value, self.view.where)
        equal = exp.EQ(this=left, expression=right)
        if not negated:
            return [equal]
        missing = [exp.Is(this=side.copy(), expression=exp.Null()) for side in (left, right)]
        return [exp.Paren(this=exp.or_(equal, *missing, copy=False))]

    def _one(self, columns: Sequence[Column], at: exp.Expression) -> Column:
        if len(columns) != 1:
            refuse("IN (SELECT ...)", "select one column", at, self.view.where)
        return columns[0]

    @staticmethod
    def _combines(node: exp.Expression) -> bool:
        return bool(outermost(node, lambda n: is_aggregate(n) or is_window(n)))


def _unit(alias: str) -> exp.Column:
    return exp.Column(this=identifier(UNIT), table=identifier(alias))


def _joined(item: Item, kind: str | None, side: str | None, conditions: Sequence[exp.Expression]) -> exp.Join:
    on = {"on": exp.and_(*conditions, copy=False)} if conditions else {}
    return exp.Join(this=item.node, kind=kind, side=side, **on)
