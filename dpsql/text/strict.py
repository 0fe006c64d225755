"""A dialect of sqlglot that knows no function: every call stays a call by its written name.

sqlglot knows hundreds of functions and rewrites many of them between dialects, which may change what they mean. So there is one
place where names are judged, and nothing between the text that was checked and the text that runs.
"""

from __future__ import annotations

from typing import Any

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.tokens import TokenType


class StrictDuckDB(DuckDB):
    """DuckDB's grammar without any knowledge of functions."""

    class Parser(DuckDB.Parser):
        """Parser that leaves every function call as it is written."""

        FUNCTIONS: dict[str, Any] = {}  # noqa: RUF012
        FUNCTION_PARSERS = {  # noqa: RUF012
            **{k: v for k, v in DuckDB.Parser.FUNCTION_PARSERS.items() if k in ("CAST", "TRY_CAST", "EXTRACT")},
            "SUBSTRING": lambda self: self._parse_places(),
        }
        NO_PAREN_FUNCTION_PARSERS = {  # noqa: RUF012
            k: v for k, v in DuckDB.Parser.NO_PAREN_FUNCTION_PARSERS.items() if k == "CASE"
        }

        def _parse_places(self) -> exp.Expression:
            """Read ``substring(x FROM 1 FOR 2)`` as the call ``substring(x, 1, 2)``, which is what DuckDB's parser makes of it."""
            name = self._tokens[self._index - 2]
            called = exp.Identifier(this=name.text, quoted=True) if name.token_type == TokenType.IDENTIFIER else name.text
            given = self._parse_csv(self._parse_disjunction)
            places: dict[TokenType, exp.Expression | None] = {}
            while self._curr and self._curr.token_type in (TokenType.FROM, TokenType.FOR):
                word = self._curr.token_type
                self._advance()
                if word in places:
                    self.raise_error("FROM and FOR once each")
                places[word] = self._parse_bitwise()
            if places:
                given += [places.get(TokenType.FROM) or exp.Literal.number(1)]
            if TokenType.FOR in places:
                given += [places[TokenType.FOR]]
            return exp.Anonymous(this=called, expressions=given)

        def _parse_exponent(self) -> exp.Expression | None:
            """Read ``x ^ 2`` and ``x ** 2`` as the call ``pow(x, 2)``, which is what DuckDB computes."""
            return _called(super()._parse_exponent())

    class Generator(DuckDB.Generator):
        """Generator that writes ``FROM a, UNNEST(b)`` as it was written."""

        def join_sql(self, expression: exp.Join) -> str:
            """Return a join; that of a list after a comma keeps its comma."""
            said = [key for key, value in expression.args.items() if value and key != "this"]
            if isinstance(expression.this, exp.Unnest) and not said:
                return f", {self.sql(expression, 'this')}"
            return str(super().join_sql(expression))


def _called(node: exp.Expression | None) -> exp.Expression | None:
    if type(node) is not exp.Pow:
        return node
    return exp.Anonymous(this="pow", expressions=[_called(node.this), node.expression])
