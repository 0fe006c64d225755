"""Lists of unit-local SELECTs: the columns that come out, DISTINCT, and relations as items of FROM."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from dpsql.source.combining import grouped
from dpsql.source.expressions import Rewriter
from dpsql.source.layers import Rows, combine_inside, finish, plain
from dpsql.source.leaves import View
from dpsql.source.model import UNIT, Column, fold, identifier, refuse
from dpsql.source.relations import Analysis, Relation
from dpsql.source.scope import Item, Scope


class Listing(Analysis):
    """What every part of a pass over a unit-local source needs."""

    local = True

    def may_lack_unit(self) -> bool:
        """Return whether rows may be of the unit NULL: linked ones that are orphans, or the root's own without a unit."""
        lineage = next(iter(self.lineages.values()), None)
        if lineage is None:
            return True
        unit = self.ways.unit(lineage)
        nullable = [column.nullable for column in self.catalog.columns(lineage.root) if column.name == unit] != [False]
        return nullable or any(hop.orphans != "drop" for one in self.lineages.values() for hop in one.hops)

    def _entries(self, node: exp.Select, scope: Scope) -> list[tuple[str, exp.Expression]]:
        """Return the list after SELECT with * written out; '' is the name of what has none."""
        entries: list[tuple[str, exp.Expression]] = []
        for listed in node.expressions:
            for name, inner in self._expand(listed, scope):
                if not name and isinstance(inner, exp.Column) and not isinstance(inner.this, exp.Star):
                    _, column, fields = scope.resolve(inner)
                    name = fields[-1] if fields else column.name
                entries.append((name, inner))
        return entries

    def _columns(self, node: exp.Select, rows: Rows, entries: list[tuple[str, exp.Expression]], where: str) -> Relation:
        """Check and rewrite the list after SELECT."""
        rewrite = Rewriter(rows.scope)
        listed: list[tuple[Column, exp.Expression]] = []
        unnamed: list[int] = []
        seen: set[str] = set()
        for name, tree in entries:
            resolved = plain(tree, rows.scope)
            value = rewrite(tree)
            if not name:
                unnamed.append(len(listed))
                name = self._fresh("c")
            column = replace(resolved[1], name=name, ref=name) if resolved else Column(name, name, rows.scope.type_of(value), None)
            if fold(name) in seen:
                refuse(f"column {name!r}", "two columns have that name; rename one with AS", node, where)
            seen.add(fold(name))
            listed.append((column, value))
        if not listed:
            refuse("SELECT", "no column is left", node, where)
        protected, one = rows.unit is not None, rows.one
        most = 1 if one else rows.most
        return Relation(finish(rows, listed), [column for column, _ in listed], unnamed, protected, one, most)

    def _distinct(self, node: exp.Select, relation: Relation, view: View) -> Relation:
        """Return the different rows of each unit."""
        if relation.protected and not any(c.tells_unit for c in relation.columns):
            refuse("DISTINCT", combine_inside(Scope(self.catalog, [], []), "add {} to the list"), node.args["distinct"], view.where)
        item = self._nested(relation, exp.Table(), "", view)
        rows = self.over(item)
        keys = [exp.column(c.name, quoted=True) for c in item.columns]
        rows, trees = grouped(rows, keys, keys, view.where)
        names = [c.name for c in relation.columns]
        out = self._columns(node, rows, list(zip(names, trees, strict=True)), view.where)
        return replace(out, unnamed=relation.unnamed)

    def over(self, item: Item) -> Rows:
        """Return the rows of one relation."""
        unit = exp.Column(this=identifier(UNIT), table=identifier(item.alias)) if item.protected else None
        scope = Scope(self.catalog, [item], [self.home], "", self.texts)
        return Rows(scope, exp.Select().from_(item.node), unit, self._fresh, item.one, most=item.most)

    def _nested(self, inner: Relation, node: exp.Expression, name: str, view: View) -> Item:
        """Return a checked query as an item of FROM; a column without a name can't be named, and that is all."""
        return super()._nested(replace(inner, unnamed=[]), node, name, view)
