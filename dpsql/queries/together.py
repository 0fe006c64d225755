"""Which values columns of a public table have together, where a query joins it: other combinations are no groups.

Privacy: none; public tables, declarations and the text of the query alone. No protected table is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import duckdb
from sqlglot import exp

from dpsql.queries.combinations import Combinations
from dpsql.queries.leaves import Facts
from dpsql.queries.lineage import Lineage
from dpsql.queries.naming import canonical
from dpsql.source.joins import conjuncts
from dpsql.source.parse import render
from dpsql.text.names import fold
from dpsql.text.relation import identifier

_READ = (("CAST", " AS VARCHAR"), ("system.main.typeof", ""))
"""What is read of columns: the texts of their values, then their types."""
MOST = 2_000
"""Combinations of a public table that are looked at."""


@dataclass(frozen=True)
class Together:
    """The public tables after FROM of one SELECT.

    Parameters
    ----------
    cursor : DuckDB cursor
    facts : Facts
    lineage : Lineage
        Of the SELECT.
    """

    cursor: duckdb.DuckDBPyConnection
    facts: Facts
    lineage: Lineage

    def values(self, select: exp.Select, keys: Sequence[exp.Expression]) -> list[Combinations]:
        """Return, for each public table that is joined, the values that columns of keys have in its rows.

        These are its own columns, and those of others that its own must equal. Conditions of WHERE on its columns alone hold. Of a
        LEFT JOIN the table's columns are NULL together as well, and what its ON says holds of the other rows.
        """
        columns = {canonical(column): column for key in keys for column in key.find_all(exp.Column)}
        joins = select.args.get("joins") or []
        kinds = {"": ("", "INNER", "CROSS"), "LEFT": ("", "OUTER")}
        # other outer joins have rows that are in no public table's list
        if not joins or any(join.method or join.kind not in kinds.get(join.side, ()) for join in joins):
            return []
        start = select.args.get("from_") or select.args.get("from")
        where = select.args.get("where")
        conditions = conjuncts(where.this) if where is not None else []
        # ON and USING say which columns are equal, as WHERE does
        for join in joins:
            conditions += _matched(join) if not join.side else []
        combinations = []
        for join in [None, *joins] if start is not None else []:
            node = start.this if join is None else join.this
            named = isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier) and not self._is_cte(node)
            if named or isinstance(node, exp.Values):
                combinations += self._of(node, columns, conditions, join if join is not None and join.side else None)
        return combinations

    def _is_cte(self, node: exp.Table) -> bool:
        return len(node.parts) == 1 and fold(node.name) in self.lineage._ctes

    def _of(
        self, node: exp.Table | exp.Values, columns: dict[str, exp.Column], conditions: Sequence[exp.Expression],
        outer: exp.Join | None,
    ) -> list[Combinations]:
        """Return the values of one table, if it is public and there is something to be known; ``outer``: of a LEFT JOIN."""
        if isinstance(node, exp.Table) and self.facts(node).protected:
            return []
        own = {text: name for text, column in columns.items() if (name := self._own(node, column))}
        absent = tuple(own) if outer is not None else ()
        # a key that is set equal to a column of the table has that column's values; of a LEFT JOIN, where a row is met
        of_join = _matched(outer) if outer is not None else []
        rows: list[str] = []
        equal: dict[str, None] = {}
        complete = True
        for place, condition in enumerate([*conditions, *of_join]):
            pairs = self._pairs(node, condition)
            same = {text: name for name, other in pairs for text, column in columns.items() if self._same(column, other)}
            kept = self._condition(node, condition)
            own |= same
            equal |= dict.fromkeys(name for name, _ in pairs)
            rows += [kept] if kept is not None else []
            complete &= place < len(conditions) or bool(same or kept)
        # one column without a condition says no more than its own list; without one of its own it may be missing
        if len(own) + bool(rows) < 2 or (outer is not None and not absent) or not own:
            return []
        # a row that meets another one has no NULL where they are equal
        rows += [f"{identifier('__dp_p', name)} IS NOT NULL" for name in equal]
        listed = ", ".join(f"{text}({identifier(name)}{more})" for text, more in _READ for name in own.values())
        kept = f" WHERE {' AND '.join(rows)}" if rows else ""
        try:
            rows_read = self.cursor.execute(
                f"SELECT DISTINCT {listed} FROM {self._rows(node)}{kept} LIMIT {MOST + 1}"  # noqa: S608 -- quoted
            ).fetchall()
        except duckdb.Error:  # of a condition: what is wrong with it is said where it is checked
            return []
        types = rows_read[0][len(own) :] if rows_read else ()
        values = tuple(row[: len(own)] for row in rows_read)
        return [Combinations(tuple(own), values, types, absent, complete)] if len(rows_read) <= MOST else []

    def _pairs(self, node: exp.Table | exp.Values, condition: exp.Expression) -> list[tuple[str, exp.Expression]]:
        """Return the columns of a table that a condition sets equal to something, each with what that is."""
        sides = (condition.this, condition.expression) if isinstance(condition, exp.EQ) else ()
        pairs = zip(sides, reversed(sides), strict=True)
        return [(name, other) for side, other in pairs if (name := self._own(node, side))]

    def _rows(self, node: exp.Table | exp.Values) -> str:
        """Return what stands after FROM for all rows of a public relation."""
        if isinstance(node, exp.Table):
            return f"{self.facts.sql(node)} AS {identifier('__dp_p')}"
        rows = node.copy()
        rows.args["alias"].set("this", exp.to_identifier("__dp_p", quoted=True))
        return render(rows, own=True)

    def _own(self, node: exp.Table | exp.Values, column: exp.Expression) -> str | None:
        """Return the name in a table of a column that is its own."""
        if not isinstance(column, exp.Column):
            return None
        qualified = len(column.parts) > 1
        if qualified:
            return column.name if fold(column.table) == fold(node.alias_or_name) else None
        join = node.parent
        # a column that USING has made one is the other side's where this one may be missing
        shared = join.args.get("using") or [] if isinstance(join, exp.Join) and join.side else []
        if any(fold(column.name) == fold(name.name) for name in shared):
            return None
        origin = self.lineage.origin(column)
        return column.name if origin and all(part.relation is node for part in origin) else None

    def _same(self, first: exp.Column, second: exp.Expression) -> bool:
        """Whether two expressions are one column of the rows."""
        if not isinstance(second, exp.Column):
            return False
        if canonical(first) == canonical(second):
            return True
        origins = self.lineage.origin(first), self.lineage.origin(second)
        return fold(first.name) == fold(second.name) and origins[0] is not None and origins[0] == origins[1]

    def _condition(self, node: exp.Table | exp.Values, condition: exp.Expression) -> str | None:
        """Return a condition on columns of a table alone, over its rows; None for others."""
        inside = list(condition.find_all(exp.Column))
        simple = isinstance(condition, exp.EQ | exp.In | exp.GT | exp.GTE | exp.LT | exp.LTE | exp.Between | exp.NEQ)
        parts = (exp.Column, exp.Identifier, exp.Literal, exp.Boolean, exp.Neg, exp.Cast, exp.DataType, type(condition))
        if not inside or not simple or not all(isinstance(part, parts) for part in condition.walk()):
            return None
        if not all(self._own(node, column) for column in inside):
            return None
        tree = exp.Paren(this=condition.copy())
        for column in list(tree.find_all(exp.Column)):
            column.replace(exp.column(column.name, table="__dp_p", quoted=True))
        return render(tree)


def _matched(join: exp.Join) -> list[exp.Expression]:
    """Return the conditions that hold of rows that a join has put together."""
    conditions = conjuncts(join.args["on"]) if join.args.get("on") is not None else []
    for name in join.args.get("using") or []:
        own = exp.column(name.name, table=join.this.alias_or_name, quoted=True)
        conditions.append(exp.EQ(this=exp.column(name.name, quoted=True), expression=own))
    return conditions
