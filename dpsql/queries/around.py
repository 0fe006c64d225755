"""What one SELECT over rows has around it: the CTEs that it uses, and queries in its expressions and around it."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from dpsql.queries import public_rows
from dpsql.queries.taken import SHOWN, FirstAsked, Known, Reader, Relation
from dpsql.source.model import fold, refuse


class Around:
    """One SELECT over rows, and what it may name."""

    def __init__(self, splitter: Reader, node: exp.Select, items: Sequence[tuple[str, Relation]], known: Known) -> None:
        self.splitter, self.node, self.items, self.known = splitter, node, items, known
        there = [relation.columns for _, relation in items]
        self.columns = None if any(c is None for c in there) else {name for c in there for name in c or ()}
        self.aliases = {fold(e.alias): e.this for e in node.expressions if isinstance(e, exp.Alias)}
        self.keys: list[exp.Expression] = []

    def no_scalar_subqueries(self) -> None:
        """Refuse a value that is computed of other people's rows, in what is counted."""
        where = self.node.args.get("where")
        for part in [*([where] if where is not None else []), *self.keys]:
            self._first_asked(part)

    def _first_asked(self, part: exp.Expression) -> None:
        """Refuse a number that all rows together have, before they are counted; one of the same person is the source's matter."""
        for inner in part.find_all(exp.Subquery):
            if not isinstance(inner.parent, exp.In | exp.Exists) and self._reads_rows(inner) and not self._is_correlated(inner):
                raise FirstAsked(inner, self._ctes(inner.this))

    def _is_correlated(self, query: exp.Expression) -> bool:
        """Return whether a subquery names columns of a SELECT around it."""
        tables = [table for table in query.find_all(exp.Table) if isinstance(table.this, exp.Identifier)]
        names = {fold(item.alias_or_name) for item in [*tables, *query.find_all(exp.Subquery)]}
        there = [self._columns_of(table) for table in tables]
        known = {name for c in there for name in c or ()}
        columns = [column for column in query.find_all(exp.Column) if not isinstance(column.this, exp.Star)]
        if any(fold(column.table) not in names | known for column in columns if column.table):  # t.x, of t outside; x.y is a field
            return True
        if self.columns is None or any(c is None for c in there):
            return False
        return any(not c.table and fold(c.name) in self.columns - known for c in columns)

    def _columns_of(self, table: exp.Table) -> tuple[str, ...] | None:
        cte = self.known.get(fold(table.name)) if len(table.parts) == 1 else None
        return cte.relation.columns if cte else self.splitter.facts(table).columns

    def _no_outer_columns(self) -> None:
        """Refuse columns of a query around this one: its answer would be another one for each of its rows."""
        if self.columns is None:
            return
        where = self.node.args.get("where")
        names = {name for name, _ in self.items} | self.columns
        for part in [*([where] if where is not None else []), *self.keys]:
            for column in public_rows.own_columns(part):
                table, name = fold(column.table), fold(column.name)
                if isinstance(column.this, exp.Star) or name in self.aliases or (table in names if table else name in self.columns):
                    continue
                refuse(
                    f"column {column.sql(dialect='duckdb')}",
                    f"this SELECT reads {', '.join(sorted(self.columns)[:SHOWN])}. Columns of a query around it can't be used: "
                    "group by what is compared, and join the answer", column,
                )  # fmt: skip

    def _reads_rows(self, node: exp.Expression) -> bool:
        for table in node.find_all(exp.Table):
            if isinstance(table.this, exp.Identifier):
                cte = self.known.get(fold(table.name)) if len(table.parts) == 1 else None
                if (cte.relation.kind != "public") if cte else self.splitter.facts(table).protected:
                    return True
        return False

    def _ctes(self, node: exp.Expression) -> list[exp.CTE]:
        """Return the CTEs that a relation uses, those first that others use."""
        found: dict[str, exp.CTE] = {}

        def visit(part: exp.Expression, known: Known) -> None:
            for table in part.find_all(exp.Table):
                cte = known.get(fold(table.name)) if isinstance(table.this, exp.Identifier) and len(table.parts) == 1 else None
                if cte is None or found.get(fold(table.name)) is cte.node:
                    continue
                if fold(table.name) in found:
                    refuse(f"WITH {table.name}", "two of that name are used together; rename one", cte.node)
                visit(cte.node.this, cte.known)
                found[fold(table.name)] = cte.node

        visit(node, self.known)
        return list(found.values())
