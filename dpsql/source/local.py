"""Unit-local relations: SELECTs that may combine and repeat rows, as long as they are rows of one privacy unit.

See :mod:`dpsql.source.analysis` for what holds of them and why. Each SELECT becomes layers (:mod:`dpsql.source.layers`): FROM,
WHERE and joins below, then GROUP BY, then windows, then the list, each with the column ``__dp_unit``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from dpsql.algebra.pieces import call
from dpsql.errors import ArgumentError, UnsupportedQuery
from dpsql.source.aggregates import composed, is_aggregate
from dpsql.source.catalog import Entry
from dpsql.source.combining import grouped, is_unit, is_window, orphaned, windowed
from dpsql.source.expressions import Rewriter
from dpsql.source.joins import chain
from dpsql.source.layers import Rows, finish, outermost, plain, substituted
from dpsql.source.leaves import View
from dpsql.source.listing import Listing
from dpsql.source.members import Members
from dpsql.source.model import RESERVED, UNIT, TableId, fold, identifier, refuse
from dpsql.source.parse import parse_query, used
from dpsql.source.relations import DEEPEST, Relation
from dpsql.source.scope import Item, Scope
from dpsql.source.sets import set_operation
from dpsql.source.unit_joins import Joins, conditions_of
from dpsql.source.ways import LEAF

_REFUSED = {
    "limit": (
        "LIMIT",
        "which rows it picks depends on other people's; of one person: QUALIFY row_number() OVER (PARTITION BY unit ...) <= n",
    ),
    "offset": ("OFFSET", "which rows it leaves out depends on other people's"),
    "sample": ("SAMPLE", "it picks rows at random, so the same call would give other rows"),
    "laterals": ("LATERAL", "join a table or a subquery"),
    "pivots": ("PIVOT", "write GROUP BY unit with FILTER (WHERE ...)"),
    "into": ("INTO", "a source is only read"),
}
_ACCEPTED = (
    "expressions", "from", "from_", "joins", "where", "with", "with_", "order", "group", "having", "qualify", "distinct", "windows",
)
_TREES = (exp.Select, exp.SetOperation)


class WithoutUnit(UnsupportedQuery):
    """Rows would be combined of a table in which every row is a person."""


class LocalAnalysis(Listing):
    """One pass over one source whose relations keep the privacy unit."""

    queries = (*_TREES, exp.Subquery, exp.Values)

    def text(self, text: str, where: str = "") -> exp.Expression:
        """Return the tree of a text or of a view's."""
        return parse_query(text, where)

    def query(self, node: exp.Expression, view: View) -> Relation:
        """Check a query and return its rewriting."""
        if isinstance(node, exp.Subquery):
            for key in used(node):
                if key not in ("this", "order"):
                    construct, reason = _REFUSED.get(key, (key.upper(), "not allowed in a source"))
                    refuse(construct, reason, node, view.where)
            return self.query(node.this, replace(view, depth=view.depth + 1))
        if view.depth > DEEPEST:
            refuse("the nesting", f"deeper than {DEEPEST} views, CTEs and subqueries", node, view.where)
        for name in (i for i in node.find_all(exp.Identifier) if fold(i.name).startswith(RESERVED)):
            refuse(repr(name.name), f"names that start with {RESERVED} are dpsql's own", name, view.where)
        if isinstance(node, exp.SetOperation):
            return self._set(node, view)
        if isinstance(node, exp.Values):
            return self._values(node, view)
        if isinstance(node, exp.Select):
            return self.select(node, view)
        return refuse(node.key.upper(), "not a relation that a source may read", node, view.where)

    def select(self, node: exp.Select, view: View) -> Relation:
        """Check a SELECT and return its rewriting."""
        for key in used(node):
            if key not in _ACCEPTED:
                construct, reason = _REFUSED.get(key, (key.upper().replace("_", " "), "not allowed in a source"))
                part = node.args[key]
                at = part[0] if isinstance(part, list) and part else part
                refuse(construct, reason, at if isinstance(at, exp.Expression) else node, view.where)
        view, own = self._with(node, view)
        rows, rest = self.rows(node, view)
        Members(self, view, self.rows).restrict(rows, rest)
        for cte in own:
            if not cte.used:
                refuse(f"WITH {cte.node.alias}", "never used; take it out", cte.node, view.where)
        return self._listed(node, rows, view)

    def rows(self, node: exp.Select, view: View) -> tuple[Rows, list[exp.Expression]]:
        """Return what stands after FROM, joined, and the conditions after WHERE, which are still to be applied."""
        where = node.args.get("where")
        rest = conditions_of(where.this) if where is not None else []
        clause = node.args.get("from_") or node.args.get("from")
        scope = Scope(self.catalog, [], list(view.homes), view.where, self.texts)
        if clause is None:
            return Rows(scope, exp.Select(), None, self._fresh), rest
        start, joins = chain(clause.this)
        start, joins, on = self._parents_first(node, start, [*joins, *(node.args.get("joins") or [])], view)
        rest += on
        first = self._item(start, view)
        scope.items.append(first)
        unit = exp.Column(this=identifier(UNIT), table=identifier(first.alias)) if first.protected else None
        rows = Rows(scope, exp.Select().from_(first.node), unit, self._fresh, first.one, most=first.most)
        for join in joins:
            rows = Joins(self, view).join(rows, join, rest)
        return rows, rest

    def _parents_first(
        self, node: exp.Select, start: exp.Expression, joins: list[exp.Join], view: View
    ) -> tuple[exp.Expression, list[exp.Join], list[exp.Expression]]:
        """Return FROM with linked tables after their parents, where the order does not matter, and the conditions after ON."""
        inner = all(
            set(used(join)) <= {"this", "on", "kind"} and str(join.args.get("kind") or "").upper() in ("", "INNER", "CROSS")
            for join in joins
        )
        relations = [start, *(join.this for join in joins)]
        stars = any(isinstance(e.this if isinstance(e, exp.Column) else e, exp.Star) for e in node.expressions)
        if not inner or stars or not all(isinstance(relation, exp.Table | exp.Subquery) for relation in relations):
            return start, joins, []
        depths = [self._depth(relation, view) for relation in relations]
        own_first = sorted(range(len(relations)), key=lambda i: (depths[i] is None, depths[i] or 0))
        if not any(depths) or own_first == sorted(own_first):
            return start, joins, []
        on = [part for join in joins if join.args.get("on") for part in conditions_of(join.args["on"])]
        first, *others = (relations[i] for i in own_first)
        return first, [exp.Join(this=relation) for relation in others], on

    def _depth(self, node: exp.Expression, view: View) -> int | None:
        """Return how many links lead from a protected table up to its root; None for anything else."""
        if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
            return None
        parts = [part.name for part in node.parts]
        if len(parts) == 1 and any(name == fold(node.name) for name, _ in view.ctes):
            return None
        entry = self.catalog.locate(parts, list(view.homes))
        if entry is None or entry.is_view or not self.protected(entry.table):
            return None
        lineage = self.lineage(entry.table)
        return 0 if lineage is None else len(lineage.hops)

    def _listed(self, node: exp.Select, rows: Rows, view: View) -> Relation:
        """Compute groups, windows and the list of a SELECT."""
        where = view.where
        # the list, HAVING, QUALIFY and DISTINCT ON pass through the layers together, at known places of `trees`
        entries = self._entries(node, rows.scope)
        names = [name for name, _ in entries]
        aliases = {fold(e.alias): e.this for e in node.expressions if isinstance(e, exp.Alias)}
        named = {w.this.name.lower(): w for w in node.args.get("windows") or []}
        trees = [tree for _, tree in entries]
        count = len(trees)
        having = node.args.get("having")
        qualify = node.args.get("qualify")
        distinct = node.args.get("distinct")
        extra = [self._spelled(clause.this, aliases, rows.scope) for clause in (having, qualify) if clause is not None]
        trees += extra
        on = distinct.args.get("on") if distinct is not None else None
        if on is not None:
            trees.append(self._first(node, on, trees[:count], aliases, rows.scope, qualify, where))
        trees = [substituted(tree, _composed) for tree in trees]
        # groups first, then windows over them, then what stands around the windows
        group = node.args.get("group")
        if group is not None or having is not None or any(outermost(tree, is_aggregate) for tree in trees):
            keys = self._keys(group, trees[:count], aliases, rows.scope, where) if group is not None else []
            most = self._groups(keys, rows)
            rows, trees = grouped(rows, keys, trees, where)
            rows.most = min(rows.most, most)
        if having is not None:
            rows.restrict(Rewriter(rows.scope)(trees.pop(count)))
        if any(outermost(tree, is_window) for tree in trees):
            rows, trees = windowed(rows, trees, named, where)
        for tree in trees[count:]:
            rows.restrict(Rewriter(rows.scope)(tree))
        if on is not None:
            # DISTINCT ON the unit alone keeps one row of each
            rows.one = rows.unit is not None and self._only_unit
        relation = self._columns(node, rows, list(zip(names, trees[:count], strict=True)), where)
        if distinct is not None and on is None:
            relation = self._distinct(node, relation, view)
        return relation

    def _groups(self, keys: Sequence[exp.Expression], rows: Rows) -> int:
        """Return how many groups of a unit there are, at most, as links allow.

        Of keys that are made of columns of some relations, and of the unit, as many as a unit's rows of these have combinations; of
        a key of one table's, as many as that has rows. It is a default for whoever bounds rows, as `Relation.most` is. Privacy does
        not rest on it.
        """
        items: dict[int, Item] = {}
        for column in (column for key in keys for column in key.find_all(exp.Column)):
            try:
                known = plain(column, rows.scope)
            except ArgumentError:
                return rows.most
            # what is computed below, and public, is as different as the rows are
            if known is None or not (known[1].unit or (known[0].name and known[0].protected)):
                return rows.most
            if not known[1].unit:
                items[id(known[0])] = known[0]
        most = min(rows.most, math.prod(item.most + item.outer for item in items.values()))
        columns = [known[1] for key in keys if (known := plain(key, rows.scope)) is not None and not known[1].unit]
        if len(columns) != 1 or any(plain(key, rows.scope) is None for key in keys):
            return most
        return min((self.most_of(table) for table, _ in columns[0].keys), default=most)

    def _spelled(self, node: exp.Expression, aliases: dict[str, exp.Expression], scope: Scope) -> exp.Expression:
        """Return an expression with names that AS gave in the same SELECT written out; a column of that name must be the same."""
        out = exp.Paren(this=node.copy())
        for column in list(out.find_all(exp.Column)):
            meant = aliases.get(fold(column.name)) if not column.table and not isinstance(column.this, exp.Star) else None
            if meant is None:
                continue
            try:
                column_meant = scope.resolve(column)
            except ArgumentError:
                column_meant = None
            if column_meant is not None and (not isinstance(meant, exp.Column) or scope.resolve(meant)[:2] != column_meant[:2]):
                refuse(f"column {column.name!r}", "a column and an expression have that name; rename the latter", node, scope.where)
            column.replace(exp.Paren(this=meant.copy()))
        return out

    def _keys(
        self, group: exp.Group, trees: list[exp.Expression], aliases: dict[str, exp.Expression], scope: Scope, where: str
    ) -> list[exp.Expression]:
        """Return the expressions after GROUP BY: ordinals, aliases and ALL written out."""
        if extra := set(used(group)) - {"expressions", "all"}:
            refuse(min(extra).upper().replace("_", " "), "only GROUP BY keys", group, where)
        if group.args.get("all"):
            return [tree for tree in trees if not outermost(tree, lambda n: is_aggregate(n) or is_window(n))]
        keys: list[exp.Expression] = []
        for key in group.expressions:
            if isinstance(key, exp.Literal) and not key.is_string and key.name.isdigit() and 1 <= int(key.name) <= len(trees):
                keys.append(trees[int(key.name) - 1])
            elif isinstance(key, exp.Rollup | exp.Cube | exp.GroupingSets | exp.Tuple):
                refuse(key.key.upper(), "write one GROUP BY for each and UNION ALL", group, where)
            elif isinstance(key, exp.Column) and not key.table and not self._known(key, scope):
                keys.append(aliases.get(fold(key.name), key))
            else:
                keys.append(key)
        return keys

    @staticmethod
    def _known(node: exp.Column, scope: Scope) -> bool:
        try:
            scope.resolve(node)
        except ArgumentError:
            return False
        return True

    # -- DISTINCT -----------------------------------------------------------------------------------------------------------

    _only_unit = False

    def _first(
        self,
        node: exp.Select,
        on: exp.Expression,
        trees: list[exp.Expression],
        aliases: dict[str, exp.Expression],
        scope: Scope,
        qualify: exp.Expression | None,
        where: str,
    ) -> exp.Expression:
        """Return the condition that DISTINCT ON is: the first row of each key, in the order that is asked for."""
        if qualify is not None:
            refuse("DISTINCT ON with QUALIFY", "put one of them into a subquery", on, where)
        keys = [self._spelled(key, aliases, scope) for key in (on.expressions if isinstance(on, exp.Tuple) else [on])]
        self._only_unit = all(is_unit(key, scope) and not orphaned(key, scope) for key in keys)
        order = node.args.get("order")
        orders = []
        for entry in order.expressions if order is not None else []:
            key = entry.this
            if isinstance(key, exp.Literal):
                good = not key.is_string and key.name.isdigit() and 1 <= int(key.name) <= len(trees)
                key = trees[int(key.name) - 1] if good else refuse("ORDER BY", "name a column", entry, where)
            down, first = bool(entry.args.get("desc")), bool(entry.args.get("nulls_first"))
            orders.append(exp.Ordered(this=self._spelled(key, aliases, scope), desc=down, nulls_first=first))
        parts = {"order": exp.Order(expressions=orders)} if orders else {}
        window = exp.Window(this=call("row_number"), partition_by=keys, over="OVER", **parts)
        return exp.EQ(this=window, expression=exp.Literal.number(1))

    # -- relations ----------------------------------------------------------------------------------------------------------

    def _item(self, node: exp.Expression, view: View) -> Item:
        """Return what one item of FROM is."""
        if isinstance(node, exp.Values):
            return self._nested(self._values(node, view), node, node.alias, view)
        if isinstance(node, exp.Subquery) and node.args.get("joins"):
            refuse("brackets around a join", "write (SELECT ... FROM a JOIN b ...)", node, view.where)
        return super()._item(node, view)

    def _base(self, table: TableId, entry: Entry | None, node: exp.Table, view: View, *, public: bool) -> Item:
        """Return a base table as a SELECT of its columns and, if it is protected, of the privacy unit."""
        item = super()._base(table, entry, node, view, public=public)
        unit = self.carried.unit_of(item.alias) if item.protected else None
        if item.protected and unit is None:
            raise WithoutUnit(
                f"{table.text}{view.where}",
                "it has no privacy unit, so a row is a person, and rows can't be combined; declare one: "
                "dp_protect(..., privacy_unit := 'column')",
            )
        if not item.protected and table not in self.public:
            self.public.append(table)
        inner = self.over(replace(item, protected=False))
        listed = [
            (replace(c, name=c.ref), Rewriter(inner.scope)(exp.column(c.name, table=item.name, quoted=True))) for c in item.columns
        ]
        inner.unit = unit
        if (join := self.carried.joins.get(item.alias)) is not None:
            inner.tree.append("joins", join)
        alias = self._alias()
        out = exp.Subquery(this=finish(inner, listed), alias=exp.TableAlias(this=identifier(alias)))
        out.this.meta[LEAF] = item.protected
        columns = [
            replace(
                c,
                collated=c.collated and c.sql_type != "VARCHAR",
                unit=c.unit or (unit is not None and c.home is None and c.origin == self.carried.unit),
            )
            for c in item.columns
        ]
        return replace(item, alias=alias, node=out, columns=columns, one=item.protected and self.carried.of_rows)

    def _values(self, node: exp.Values, view: View) -> Relation:
        """Return VALUES as constants, one SELECT after another."""
        selects = [exp.Select(expressions=list(row.expressions)) for row in node.expressions if isinstance(row, exp.Tuple)]
        if len(selects) != len(node.expressions) or len(selects) > 1000 or len({len(s.expressions) for s in selects}) != 1:
            refuse("VALUES", "up to 1000 rows of as many constants each", node, view.where)
        first = [exp.Alias(this=e, alias=identifier(f"col{i}")) for i, e in enumerate(selects[0].expressions)]
        selects[0].set("expressions", first)
        out: exp.Expression = selects[0]
        relation = self.query(out, view)
        if len(selects) == 1:
            return relation
        return set_operation(self, [relation, *(self.query(s, view) for s in selects[1:])], exp.Union, False, node, view)

    def _set(self, node: exp.SetOperation, view: View) -> Relation:
        """Check a set operation: with the privacy unit in its rows, it is one of each unit."""
        for key in used(node):
            if key not in ("this", "expression", "distinct", "with", "with_", "order", "by_name"):
                construct, reason = _REFUSED.get(key, (key.upper(), "not allowed in a source"))
                refuse(construct, reason, node, view.where)
        view, own = self._with(node, view)
        inside = replace(view, depth=view.depth + 1)
        sides = [self.query(side, inside) for side in (node.this, node.expression)]
        for cte in own:
            if not cte.used:
                refuse(f"WITH {cte.node.alias}", "never used; take it out", cte.node, view.where)
        if node.args.get("by_name"):
            refuse("BY NAME", "write the columns in one order", node, view.where)
        return set_operation(self, sides, type(node), bool(node.args.get("distinct")), node, view)


def _composed(node: exp.Expression) -> exp.Expression | None:
    """Return what an aggregate is made of, of one that is made of others; in a window there is none."""
    formula = None if isinstance(node.parent, exp.Window) else composed(node)
    return None if formula is None else exp.Paren(this=formula)
