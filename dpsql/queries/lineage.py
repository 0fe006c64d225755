"""Where the columns of a query come from: through CTEs, subqueries, joins and set operations down to the tables.

Privacy: none; names alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlglot import exp

from dpsql.queries.constant_rows import constants
from dpsql.queries.names import star_of
from dpsql.text.names import fold

DEEPEST = 64
"""CTEs and subqueries may be nested this deep; beyond nothing is known."""

Names = Callable[[exp.Table], Sequence[str] | None]


@dataclass(frozen=True)
class Leaf:
    """A column of a table: the node that names the table, and the column's name there."""

    relation: exp.Table
    name: str


@dataclass(frozen=True)
class Made:
    """A column that a SELECT makes: the expression, and the SELECT that it stands in."""

    inside: Lineage
    expression: exp.Expression
    relation: None = None  # it is made of others


@dataclass(frozen=True)
class Constants:
    """A column of VALUES: the node, and the column's place."""

    relation: exp.Values
    place: int

    @property
    def expressions(self) -> list[exp.Expression]:
        """The constants, by row."""
        return [row[self.place] for row in constants(self.relation) or []]


Origin = tuple[Leaf | Made | Constants, ...]
"""Several where a set operation puts rows of several SELECTs together."""


@dataclass
class _Item:
    name: str
    columns: dict[str, Origin] | None  # by folded name, in order; None where they are not known


@dataclass
class Lineage:
    """The columns that one SELECT sees.

    Parameters
    ----------
    select : sqlglot Select
    names : callable
        A table -> the names of its columns in order, None if they are not known. CTEs are not asked about.
    """

    select: exp.Select
    names: Names
    _ctes: dict[str, Any] = field(default_factory=dict, repr=False)
    _depth: int = 0
    _seen: dict[int, dict[str, Origin] | None] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        """Read WITH and FROM."""
        known = dict(self._ctes)
        clause = self.select.args.get("with_") or self.select.args.get("with")
        for cte in clause.expressions if clause is not None else []:
            known[fold(cte.alias)] = (cte, dict(known))
        self._ctes = known
        self._items: list[_Item] | None = None

    def origin(self, column: exp.Column) -> Origin | None:
        """Return where a column comes from; None where that is not clear."""
        parts = [fold(part.name) for part in column.parts]
        if len(parts) == 1:
            # a bare name may be of the relation whose columns are not known
            if any(item.columns is None for item in self.items):
                return None
            origins = [item.columns[parts[0]] for item in self.items if item.columns and parts[0] in item.columns]
            return origins[0] if len(origins) == 1 or (origins and self._using(parts[0])) else None
        for item in self.items:
            if item.name == parts[-2]:
                return item.columns.get(parts[-1]) if item.columns else None
        return None

    def outputs(self) -> dict[str, Origin] | None:
        """Return the columns that the SELECT gives, by folded name, in order; None where ``*`` stands for unknown ones."""
        out: dict[str, Origin] = {}
        for node in self.select.expressions:
            star = star_of(node)
            if star is not None:
                spread = self._star(star, fold(node.table) if isinstance(node, exp.Column) else "")
                if spread is None:
                    return None
                for name, origin in spread.items():
                    out.setdefault(name, origin)
                continue
            expression = node.this if isinstance(node, exp.Alias) else node
            out.setdefault(fold(node.alias_or_name), (Made(self, expression),))
        return out

    @property
    def items(self) -> list[_Item]:
        """The relations in FROM."""
        if self._items is None:
            clause = self.select.args.get("from_") or self.select.args.get("from")
            nodes = [clause.this] if clause is not None else []
            nodes += [join.this for join in self.select.args.get("joins") or []]
            for node in list(nodes):
                nodes += [join.this for join in node.args.get("joins") or []]
            self._items = [self._item(node) for node in nodes]
        return self._items

    def _using(self, name: str) -> bool:
        joins = self.select.args.get("joins") or []
        return any(fold(i.name) == name for join in joins for i in join.args.get("using") or [])

    def _star(self, star: exp.Star, table: str) -> dict[str, Origin] | None:
        """Return what ``*`` stands for; None where it also changes or renames columns."""
        left_out = {fold(n.name) for n in (star.args.get("except_") or star.args.get("except") or [])}
        if any(v for k, v in star.args.items() if k not in ("except_", "except")):
            return None
        out: dict[str, Origin] = {}
        for item in self.items:
            if table in ("", item.name):
                if item.columns is None:
                    return None
                for name in item.columns:
                    if name not in left_out:  # through this SELECT, whose WHERE counts
                        column = exp.column(exp.to_identifier(name, quoted=True), table=item.name or None, quoted=True)
                        out.setdefault(name, (Made(self, column),))
        return out

    def _item(self, node: exp.Expression) -> _Item:
        if isinstance(node, exp.Subquery):
            return _Item(fold(node.alias), self._renamed(self._query(node.this, self._ctes), node))
        if isinstance(node, exp.Values) and (rows := constants(node)):
            listed: dict[str, Origin] = {f"col{place}": (Constants(node, place),) for place in range(len(rows[0]))}
            return _Item(fold(node.alias), self._renamed(listed, node))
        if not isinstance(node, exp.Table):
            return _Item(fold(node.alias_or_name), None)
        name = fold(node.alias_or_name)
        cte = None if node.db else self._ctes.get(fold(node.name))
        if cte is not None:
            inner, ctes = cte
            return _Item(name, self._renamed(self._renamed(self._query(inner.this, ctes), inner), node))
        names = self.names(node)
        columns: dict[str, Origin] | None = None if names is None else {fold(n): (Leaf(node, n),) for n in names}
        return _Item(name, self._renamed(columns, node))

    @staticmethod
    def _renamed(columns: dict[str, Origin] | None, node: exp.Expression) -> dict[str, Origin] | None:
        """Return the columns under the names of ``AS t(a, b)``."""
        alias = node.args.get("alias")
        renamed = [fold(c.name) for c in alias.args.get("columns") or []] if isinstance(alias, exp.TableAlias) else []
        if columns is None or not renamed:
            return columns
        names = [*renamed, *list(columns)[len(renamed) :]]
        return dict(zip(names, columns.values(), strict=True)) if len(names) == len(columns) else None

    def _query(self, query: exp.Expression, ctes: dict[str, Any]) -> dict[str, Origin] | None:
        """Return the columns of a query in brackets."""
        while isinstance(query, exp.Subquery) and not query.alias:
            query = query.this
        if self._depth > DEEPEST:
            return None
        if id(query) not in self._seen:
            self._seen[id(query)] = self._outputs_of(query, ctes)
        return self._seen[id(query)]

    def _outputs_of(self, query: exp.Expression, ctes: dict[str, Any]) -> dict[str, Origin] | None:
        if isinstance(query, exp.Select):
            return Lineage(query, self.names, ctes, self._depth + 1, self._seen).outputs()
        if isinstance(query, exp.SetOperation) and not query.args.get("by_name"):
            left, right = self._query(query.this, ctes), self._query(query.expression, ctes)
            if isinstance(query, exp.Intersect | exp.Except):
                return left
            if left is None or right is None or len(left) != len(right):
                return None
            return {name: (*a, *b) for (name, a), b in zip(left.items(), right.values(), strict=True)}
        return None
