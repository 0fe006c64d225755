"""A dialect of sqlglot that knows no function: every call stays a call by its written name.

sqlglot knows hundreds of functions and rewrites many of them between dialects, which may change what they mean. So there is one
place where names are judged, and nothing between the text that was checked and the text that runs.
"""

from __future__ import annotations

import re
from typing import Any

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.tokens import TokenType

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
IS_NOT = "is_not"
"""Mark of NOT (x IS NULL) that was written as x IS NOT NULL, which DuckDB names so."""


def _named_not(node: exp.Expression | None) -> exp.Expression | None:
    if isinstance(node, exp.Not) and isinstance(node.this, exp.Is):
        node.meta[IS_NOT] = True
    return node


def _respelled(node: exp.Expression) -> None:
    """Write what DuckDB's parser makes one of in one way, which is not always how it writes views.

    ``x = ANY (SELECT ...)`` becomes ``x IN (SELECT ...)``, ``x <> ALL (SELECT ...)`` NOT IN, SIMILAR TO regexp_full_match.
    """
    if isinstance(node, exp.SimilarTo):
        node.replace(exp.Anonymous(this="regexp_full_match", expressions=[node.this, node.expression]))
        return
    query = node.expression.this.unnest()
    negated = isinstance(node, exp.NEQ)
    if not isinstance(query, exp.Query) or isinstance(node.expression, exp.All) != negated or node.parent is None:
        return
    member = exp.In(this=node.this, query=exp.Subquery(this=query))
    member._meta = node._meta
    node.replace(exp.Not(this=member) if negated else member)


class _Marks(dict[str, Any]):
    """What a node is marked with, its place in the text above all: numbers and names, so that a copy is a shallow one.

    Trees are copied hundreds of times while a query is read, and copying every number of every mark took most of that time.
    """

    def __deepcopy__(self, _: object) -> _Marks:
        return _Marks(self)


class StrictDuckDB(DuckDB):
    """DuckDB's grammar without any knowledge of functions."""

    def parse(self, sql: str, **options: Any) -> list[exp.Expression | None]:
        """Return the trees of a text. A function whose name stands in quotes, as DuckDB itself writes "mode"(x), is one as any."""
        trees: list[exp.Expression | None] = super().parse(sql, **options)
        for tree in trees:
            written: list[exp.Expression] = []
            for node in () if tree is None else tree.walk():
                if node._meta:
                    node._meta = _Marks(node._meta)
                if isinstance(node, exp.Anonymous) and isinstance(node.this, exp.Identifier) and _WORD.fullmatch(node.this.name):
                    node.set("this", node.this.name)
                compared = isinstance(node, exp.EQ | exp.NEQ) and isinstance(node.expression, exp.Any | exp.All)
                if compared or isinstance(node, exp.SimilarTo):
                    written.append(node)
            for node in written:
                _respelled(node)
        return trees

    class Parser(DuckDB.Parser):
        """Parser that leaves every function call as it is written."""

        FUNCTIONS: dict[str, Any] = {}
        RANGE_PARSERS = {**DuckDB.Parser.RANGE_PARSERS, TokenType.IS: lambda self, this: _named_not(self._parse_is(this))}
        FUNCTION_PARSERS = {
            k: v for k, v in DuckDB.Parser.FUNCTION_PARSERS.items() if k in ("CAST", "TRY_CAST", "EXTRACT")
        }
        NO_PAREN_FUNCTION_PARSERS = {
            k: v for k, v in DuckDB.Parser.NO_PAREN_FUNCTION_PARSERS.items() if k == "CASE"
        }

    class Generator(DuckDB.Generator):
        """Generator that leaves a comma before a list of constants, where sqlglot's writes JOIN ... ON TRUE."""

        def join_sql(self, expression: exp.Join, join_op: str | None = None) -> str:
            """Return the text of a join."""
            if isinstance(expression.this, exp.Unnest) and not any(v for name, v in expression.args.items() if name != "this"):
                return f", {self.sql(expression, 'this')}"
            return str(super().join_sql(expression, join_op))
