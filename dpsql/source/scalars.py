"""Subqueries inside of expressions of unit-local relations: each becomes a LEFT JOIN to its groups, so that none is left.

``(SELECT avg(w.cost) FROM visits w WHERE w.patient = v.patient AND w.ward = v.ward)`` is the column ``s`` of ``LEFT JOIN (SELECT
w.patient AS k0, w.ward AS k1, avg(w.cost) AS s FROM visits w GROUP BY 1, 2) q ON q.k0 = v.patient AND q.k1 = v.ward``: SQL's
answer, where a number of no rows is 0. Columns of the row outside that are compared otherwise, or computed with, go in as a
relation of their own, ``SELECT DISTINCT v.patient, v.day FROM <what is outside>``. Text becomes text here, and all of it is
checked as if a user had written it (:mod:`dpsql.source.local`); so rows of two people cannot meet in it either.

``EXISTS``, ``IN`` and ``ANY`` or ``ALL`` inside of expressions are numbers of rows that are compared with 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from dpsql.errors import ArgumentError
from dpsql.source.aggregates import is_aggregate
from dpsql.source.combining import is_unit, same_key, tells_unit
from dpsql.source.functions import call
from dpsql.source.layers import Rows, outermost, plain, substituted
from dpsql.source.leaves import View
from dpsql.source.model import fold, identifier, refuse
from dpsql.source.parse import render, used
from dpsql.source.scope import Scope
from dpsql.source.unit_joins import Joins

_OUTER = "dpsql_outer"
"""Mark on a column of the row outside that stands inside of a subquery."""
_COUNTS = ("count", "count_star", "count_if", "countif")
_QUANTIFIED = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE)
_ALLOWED = ("expressions", "from", "from_", "joins", "where", "with", "with_", "order")


@dataclass
class _Parts:
    """A scalar subquery taken apart: equalities (inside, outside), conditions of its rows alone, and other conditions."""

    scope: Scope
    pairs: list[tuple[exp.Expression, exp.Expression]] = field(default_factory=list)
    own: list[exp.Expression] = field(default_factory=list)
    others: list[exp.Expression] = field(default_factory=list)


@dataclass
class Scalars(Joins):
    """The subqueries in the expressions of one SELECT; ``rows_of`` reads a FROM, ``node`` is the SELECT."""

    rows_of: Callable[[exp.Select, View], tuple[Rows, list[exp.Expression]]]
    node: exp.Select
    _known_texts: dict[str, exp.Expression] = field(default_factory=dict)

    def conditions(self, rows: Rows, conditions: Sequence[exp.Expression]) -> list[exp.Expression]:
        """Return the conditions after WHERE without subqueries in expressions; EXISTS and IN by themselves stay what they are."""
        found = []
        for condition in conditions:
            bare = condition
            while isinstance(bare, exp.Paren | exp.Not):
                bare = bare.this
            alone = isinstance(bare, exp.Exists) or (isinstance(bare, exp.In) and bare.args.get("query") is not None)
            found.append(condition if alone else self.without(rows, condition))
        return found

    def listed(self, rows: Rows) -> exp.Select:
        """Return the SELECT with columns in the place of the subqueries of its list, groups, HAVING and QUALIFY."""
        parts = ("expressions", "group", "having", "qualify", "distinct", "windows")
        if not any(self._has(part) for name in parts for part in self._nodes(self.node.args.get(name))):
            return self.node
        out = self.node.copy()
        for name in parts:
            value = out.args.get(name)
            if isinstance(value, list):
                out.set(name, [self.without(rows, part) for part in value])
            elif isinstance(value, exp.Expression):
                out.set(name, self.without(rows, value))
        return out

    def without(self, rows: Rows, node: exp.Expression) -> exp.Expression:
        """Return an expression without subqueries; relations are joined to the rows."""
        return substituted(node, lambda part: self._found(rows, part)) if self._has(node) else node

    @staticmethod
    def _has(node: exp.Expression) -> bool:
        return node.find(exp.Query) is not None

    @staticmethod
    def _nodes(value: object) -> list[exp.Expression]:
        return [part for part in (value if isinstance(value, list) else [value]) if isinstance(part, exp.Expression)]

    def _found(self, rows: Rows, node: exp.Expression) -> exp.Expression | None:
        """Return what stands in the place of a node, if that is a subquery."""
        asked: tuple[exp.Expression, exp.Expression | None] | None = None
        if isinstance(node, exp.Subquery | exp.Select):
            asked = (node, None)
        elif isinstance(node, exp.Exists):
            if any(outermost(listed, is_aggregate) for listed in self._plain(node.this).expressions):
                advice = "it has one row always; compare the aggregate itself"
                refuse("EXISTS (SELECT of an aggregate)", advice, node, self.view.where)
            asked = (node.this, exp.GT(this=call("count", exp.Star()), expression=exp.Literal.number(0)))
        elif isinstance(node, exp.In) and node.args.get("query") is not None:
            asked = self._quantified(rows, node.this, node.args["query"], exp.EQ, every=False)
        elif isinstance(node, _QUANTIFIED) and isinstance(node.expression, exp.Any | exp.All):
            inner = node.expression.this
            if isinstance(inner, exp.Subquery | exp.Select):
                asked = self._quantified(rows, node.this, inner, type(node), every=isinstance(node.expression, exp.All))
        if asked is None:
            return None
        text = render(node)
        if text not in self._known_texts:
            self._known_texts[text] = self._value(rows, *asked, node)
        return exp.Paren(this=self._known_texts[text].copy())

    def _quantified(
        self, rows: Rows, value: exp.Expression, query: exp.Expression, kind: type[exp.Expression], *, every: bool
    ) -> tuple[exp.Expression, exp.Expression]:
        """Return ``value = ANY (SELECT x ...)`` as numbers of rows: with a true comparison, with one that is NULL."""
        if isinstance(value, exp.Tuple):
            refuse("(a, b) IN (SELECT ...)", "write EXISTS (SELECT ... WHERE a = x AND b = y)", value, self.view.where)
        inner = self._plain(query)
        left = self.without(rows, value).copy()
        for column in [left, *left.find_all(exp.Column)]:
            if isinstance(column, exp.Column):
                column.meta[_OUTER] = True
        shown = inner.expressions[0] if len(inner.expressions) == 1 else refuse("IN (SELECT ...)", "select one column", query)
        right = shown.this if isinstance(shown, exp.Alias) else shown
        same = exp.Paren(this=kind(this=exp.Paren(this=left), expression=exp.Paren(this=right.copy())))
        wanted = exp.Not(this=same) if every else same

        def some(condition: exp.Expression) -> exp.Expression:
            return exp.GT(this=call("count_if", condition), expression=exp.Literal.number(0))

        missing = exp.Is(this=same.copy(), expression=exp.Null())
        ifs = [exp.If(this=some(wanted), true=exp.Boolean(this=not every)), exp.If(this=some(missing), true=exp.Null())]
        return query, exp.Case(ifs=ifs, default=exp.Boolean(this=every))

    def _plain(self, query: exp.Expression) -> exp.Select:
        """Return a subquery that is one plain SELECT."""
        while isinstance(query, exp.Subquery) and set(used(query)) == {"this"}:
            query = query.this
        if not isinstance(query, exp.Select):
            return refuse("a subquery", "one plain SELECT in an expression; join anything else", query, self.view.where)
        if extra := set(used(query)) - set(_ALLOWED):
            advice = "it is not understood in a subquery inside of an expression; join the subquery, by the privacy unit"
            refuse(min(extra).upper().replace("_", " "), advice, query, self.view.where)
        return query

    def _value(
        self, rows: Rows, query: exp.Expression, item: exp.Expression | None, at: exp.Expression
    ) -> exp.Expression:
        """Join the groups of a subquery to the rows, and return its value for a row. ``item``: instead of what it selects."""
        inner = self._plain(query)
        if item is None:
            if len(inner.expressions) != 1:
                refuse("a scalar subquery", "it gives one value", at, self.view.where)
            item = inner.expressions[0].unalias()
        calls = outermost(item, is_aggregate)
        if not calls:
            refuse("a scalar subquery", "it may find several rows; select max(...), or join the table", at, self.view.where)
        parts = self._parts(inner)
        inside = {id(column) for one in calls for column in one.find_all(exp.Column)}
        outside = [column for column in item.find_all(exp.Column) if id(column) not in inside]
        if any(not self._is_outer(c, parts.scope) for c in outside):
            refuse("a scalar subquery", "its columns stand inside of aggregates", at, self.view.where)
        people = any(i.protected for i in parts.scope.items)
        loose = self._loose(rows, [*parts.others, *calls], parts.scope)
        self._allowed_here(rows, parts, people=people, loose=loose, at=at)
        return self._joined(rows, inner, item, calls, parts, loose)

    def _parts(self, inner: exp.Select) -> _Parts:
        """Return the conditions of a subquery by whose columns they are about. What was read to know that is read again later."""
        held = self.analysis
        saved = dict(held.leaves), list(held.named), list(held.public), held.texts.left
        view, _ = held._with(inner, replace(self.view, depth=self.view.depth + 1))  # noqa: SLF001 -- one class in several files
        below, conditions = self.rows_of(inner, view)
        held.leaves, held.named, held.public, held.texts.left = saved
        parts = _Parts(below.scope)
        for condition in conditions:
            if condition.find(exp.Query) is not None or not self._outer_columns(condition, parts.scope):
                parts.own.append(condition)
            elif (pair := self._pair(condition, parts.scope)) is not None:
                parts.pairs.append(pair)
            else:
                parts.others.append(condition)
        return parts

    def _pair(self, node: exp.Expression, scope: Scope) -> tuple[exp.Expression, exp.Expression] | None:
        """Return the sides of an equality of which one is of the subquery and the other of the row outside."""
        while isinstance(node, exp.Paren):
            node = node.this
        if type(node) is not exp.EQ:
            return None
        for inside, outside in ((node.this, node.expression), (node.expression, node.this)):
            theirs = list(outside.find_all(exp.Column))
            if not self._outer_columns(inside, scope) and theirs and all(self._is_outer(c, scope) for c in theirs):
                return inside, outside
        return None

    @staticmethod
    def _is_outer(column: exp.Column, scope: Scope) -> bool:
        if column.meta.get(_OUTER):
            return True
        try:
            scope.resolve(column)
        except ArgumentError:
            return True
        return False

    def _outer_columns(self, node: exp.Expression, scope: Scope) -> list[exp.Column]:
        return [c for c in node.find_all(exp.Column) if not isinstance(c.this, exp.Star) and self._is_outer(c, scope)]

    def _loose(self, rows: Rows, nodes: Sequence[exp.Expression], scope: Scope) -> list[exp.Column]:
        """Return columns of the row outside, each once, that are not merely equal to something of the subquery."""
        found: dict[tuple[str, str, str], exp.Column] = {}
        for node in nodes:
            for column in self._outer_columns(node, scope):
                item, known, fields = rows.scope.resolve(column)
                found.setdefault((item.alias, known.ref, ".".join(fields)), column)
        return list(found.values())

    def _allowed_here(self, rows: Rows, parts: _Parts, *, people: bool, loose: Sequence[exp.Column], at: exp.Expression) -> None:
        """Refuse a subquery over other people's rows, and what cannot be written as a join."""
        where = self.view.where
        unit = next((c.name for i in parts.scope.items for c in i.columns if c.unit), "unit")
        if people and rows.unit is None:
            refuse("a subquery", "it looks up people's rows for public ones", at, where)
        if people and not any(self._units(pair, rows.scope, parts.scope) for pair in parts.pairs):
            advice = f"connect them by the privacy unit: (SELECT max(a.x) FROM t a WHERE a.{unit} = t.{unit} AND ...)"  # noqa: S608
            refuse("a subquery", f"its rows are other people's; {advice}", at, where)
        if loose and not people:
            advice = "compare columns of a public table by equality, = , in a subquery; or join the table"
            refuse("a subquery", advice, at, where)

    @staticmethod
    def _units(pair: tuple[exp.Expression, exp.Expression], outer: Scope, scope: Scope) -> bool:
        sides = list(zip(pair, (scope, outer), strict=True))
        if not all(isinstance(side, exp.Column | exp.Paren) for side in pair):
            return False
        found = [plain(side, known) for side, known in sides]
        linked = found[0] is not None and found[1] is not None and same_key(found[0][1], found[1][1])
        return all(is_unit(side, known) for side, known in sides) or (linked and tells_unit(pair[0], scope))

    def _joined(
        self,
        rows: Rows,
        inner: exp.Select,
        item: exp.Expression,
        calls: Sequence[exp.Expression],
        parts: _Parts,
        loose: Sequence[exp.Column],
    ) -> exp.Expression:
        """Join the groups, and return the item over them."""
        name = self._free()
        keys = [pair[0].copy() for pair in parts.pairs]
        given = [self._marked(rows, c) for c in loose]
        made = inner.copy()
        inserted = {mark: exp.column(f"{name}_c{i}", table=f"{name}_d", quoted=True) for i, mark in enumerate(given)}

        def outside(node: exp.Expression) -> exp.Expression | None:
            mine = isinstance(node, exp.Column) and not isinstance(node.this, exp.Star) and self._is_outer(node, parts.scope)
            return inserted[self._marked(rows, node)] if mine and isinstance(node, exp.Column) else None

        if loose:
            unit = next(pair for pair in parts.pairs if self._units(pair, rows.scope, parts.scope))
            made.append("joins", self._values(name, unit, loose))
            keys += [column.copy() for column in inserted.values()]
        numbers = [exp.alias_(substituted(one, outside), f"{name}_s{i}", quoted=True) for i, one in enumerate(calls)]
        made.set("expressions", [*(exp.alias_(k.copy(), f"{name}_k{i}", quoted=True) for i, k in enumerate(keys)), *numbers])
        kept = [condition.copy() for condition in parts.own] + [substituted(c, outside) for c in parts.others]
        made.set("where", exp.Where(this=exp.and_(*kept, copy=False)) if kept else None)
        made.set("order", None)
        if keys:
            made.set("group", exp.Group(expressions=[k.copy() for k in keys]))
        column = [exp.column(f"{name}_k{i}", table=name, quoted=True) for i in range(len(keys))]
        on: list[exp.Expression] = [
            exp.EQ(this=pair[1].copy(), expression=key) for pair, key in zip(parts.pairs, column, strict=False)
        ]
        on += [exp.NullSafeEQ(this=c.copy(), expression=key) for c, key in zip(loose, column[len(parts.pairs) :], strict=True)]
        relation = exp.Subquery(this=made, alias=exp.TableAlias(this=identifier(name)))
        how = {"side": "LEFT", "on": exp.and_(*on, copy=False)} if on else {"kind": "CROSS"}
        one, most = rows.one, rows.most
        self.join(rows, exp.Join(this=relation, **how), [])
        rows.one, rows.most = one, most  # each row meets one group at most
        rows.scope.items[-1].hidden |= {fold(c.name) for c in rows.scope.items[-1].columns}
        places = {id(node): i for i, node in enumerate(calls)}

        def value(node: exp.Expression) -> exp.Expression | None:
            place = places.get(id(node))
            if place is None:
                return None
            found = exp.column(f"{name}_s{place}", table=name, quoted=True)
            bare = node.this if isinstance(node, exp.Filter) else node
            counts = isinstance(bare, exp.Anonymous) and fold(str(bare.this)) in _COUNTS
            return call("coalesce", found, exp.Literal.number(0)) if counts else found

        return substituted(item, value)

    @staticmethod
    def _marked(rows: Rows, column: exp.Column) -> tuple[str, str, str]:
        item, known, fields = rows.scope.resolve(column)
        return item.alias, known.ref, ".".join(fields)

    def _values(self, name: str, unit: tuple[exp.Expression, exp.Expression], loose: Sequence[exp.Column]) -> exp.Join:
        """Return the join to what the rows outside have in some columns, of the same person."""
        listed = [exp.alias_(unit[1].copy(), f"{name}_u", quoted=True)]
        listed += [exp.alias_(c.copy(), f"{name}_c{i}", quoted=True) for i, c in enumerate(loose)]
        below = exp.Select(expressions=listed, distinct=exp.Distinct())
        clause = self.node.args.get("from_") or self.node.args.get("from")
        below.set("from_", clause.copy())
        if self.node.args.get("joins"):
            below.set("joins", [join.copy() for join in self.node.args["joins"]])
        where = self.node.args.get("where")
        kept = [c.copy() for c in self._conjuncts(where.this) if not self._has(c)] if where is not None else []
        if kept:
            below.set("where", exp.Where(this=exp.and_(*kept, copy=False)))
        alias = exp.TableAlias(this=identifier(f"{name}_d"))
        same = exp.EQ(this=unit[0].copy(), expression=exp.column(f"{name}_u", table=f"{name}_d", quoted=True))
        return exp.Join(this=exp.Subquery(this=below, alias=alias), on=same)

    @staticmethod
    def _conjuncts(node: exp.Expression) -> list[exp.Expression]:
        if isinstance(node, exp.Paren) and isinstance(node.this, exp.Paren | exp.And):
            return Scalars._conjuncts(node.this)
        both = isinstance(node, exp.And)
        return [*Scalars._conjuncts(node.this), *Scalars._conjuncts(node.expression)] if both else [node]

    def _free(self) -> str:
        """Return a name that the text does not use."""
        there = {fold(name.name) for name in self.node.root().find_all(exp.Identifier)}
        while True:
            self.analysis._aliases += 1  # noqa: SLF001 -- no two subqueries have one
            name = f"subquery_{self.analysis._aliases}"  # noqa: SLF001
            if not any(other.startswith(name) for other in there):
                return name
