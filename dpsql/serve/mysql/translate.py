"""MySQL's questions in DuckDB's words: what is judged and run is DuckDB's text alone.

Differs from MySQL, and is said in the documentation: texts are compared as DuckDB does, by case, and none is taken for a number.
"""

from __future__ import annotations

import datetime
import itertools
import math
import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import ErrorLevel, SqlglotError
from sqlglot.tokens import TokenType

from dpsql.serve.mysql.functions import function
from dpsql.serve.mysql.lexing import PLACE, SYNTAX, Read, read
from dpsql.serve.mysql.moments import MADE
from dpsql.serve.passed import Refused

_BEGINS = re.compile(r"\(*\s*(SELECT|WITH|VALUES|TABLE)\b|\(", re.IGNORECASE)
_NO_MEANING = frozenset({
    "HIGH_PRIORITY", "SQL_BIG_RESULT", "SQL_BUFFER_RESULT", "SQL_CACHE", "SQL_NO_CACHE", "SQL_SMALL_RESULT", "STRAIGHT_JOIN",
})  # fmt: skip
"""Words after SELECT that say how to run it."""
MOST_NODES = 30_000
"""Nodes of a syntax tree in DuckDB's words."""
_SYNTAX = f"{SYNTAX}, or it is not understood here"


def to_duckdb(text: str, parameters: Sequence[Any] = ()) -> str:
    """Return a question of MySQL's as one of DuckDB's; raises `Refused`.

    Parameters
    ----------
    text : str
        One statement; parameters stand as question marks.
    parameters : sequence
        Their values, which become literals of the syntax tree.

    Privacy
    -------
    None: a text becomes another text.
    """
    rewritten = read(text)
    tree = parsed(rewritten)
    names = headings(tree, rewritten)
    try:
        return written(filled(tree, parameters, rewritten.places), names)
    except RecursionError:
        raise Refused("refused", "the question is nested too deeply") from None


def parsed(rewritten: Read) -> exp.Expression:
    """Return the syntax tree of a question; raises `Refused`: of anything else, and of several."""
    if len(rewritten.statements) > 1:
        raise Refused("unsupported", "one statement at a time: a text with several is not answered")
    if not rewritten.text:
        raise Refused("syntax", "Query was empty")
    if not _BEGINS.match(rewritten.text):
        raise Refused("unsupported", "only questions are answered: SELECT, SHOW, DESCRIBE, and FROM ... in DuckDB's own words")
    try:
        trees = sqlglot.parse(rewritten.text, read="mysql", error_level=ErrorLevel.IMMEDIATE)
    except (SqlglotError, RecursionError, ValueError, IndexError, TypeError, AttributeError):
        raise Refused("syntax", _SYNTAX) from None
    if len(trees) != 1 or not isinstance(trees[0], exp.Query | exp.Values):
        raise Refused("syntax", _SYNTAX)
    if not all(select.expressions for select in trees[0].find_all(exp.Select)):
        raise Refused("syntax", _SYNTAX)
    for node in trees[0].find_all(exp.Lock, exp.Into, exp.Command, exp.Hint):
        raise Refused("unsupported", f"{node.key.upper()} is not answered")
    return trees[0]


def filled(tree: exp.Expression, parameters: Sequence[Any], places: int) -> exp.Expression:
    """Return a tree with its parameters as literals."""
    if len(parameters) != places:
        raise Refused("syntax", f"the statement has {places} parameters, and {len(parameters)} came")

    def fill(node: exp.Expression) -> exp.Expression:
        if isinstance(node, exp.Placeholder):
            return literal(parameters[int(node.name.removeprefix(PLACE))])
        return node

    return tree.transform(fill)


def literal(value: Any) -> exp.Expression:
    """Return a value as a literal: as a client that puts values into its text would write it."""
    if value is None:
        return exp.null()
    if isinstance(value, bool):
        return exp.Boolean(this=value)
    if isinstance(value, int | float | Decimal):
        if not math.isfinite(value):
            raise Refused("syntax", "a parameter is not a finite number")
        text = format(value.copy_abs(), "f") if isinstance(value, Decimal) else repr(abs(value))  # abs() would round
        number = exp.Literal.number(text)
        return exp.Neg(this=number) if value < 0 else number
    if isinstance(value, datetime.date | datetime.time):
        return exp.Literal.string(value.isoformat().replace("T", " "))
    if isinstance(value, bytes):
        try:
            value = value.decode()
        except UnicodeDecodeError:
            raise Refused("syntax", "a parameter is not text in UTF-8") from None
    if isinstance(value, str):
        return exp.Literal.string(value)
    raise Refused("syntax", "a parameter has a type that is not taken")


def headings(tree: exp.Expression, rewritten: Read) -> list[str | None]:
    """Return how the columns of a question are called that have no name: as they were typed; None: DuckDB's name does.

    Only of a question that is one SELECT, or ends in one; of others DuckDB's names are good.
    """
    if not isinstance(tree, exp.Select):
        return []
    try:
        tokens = sqlglot.tokenize(rewritten.text, read="mysql")
    except SqlglotError:
        return []
    # the outermost SELECT is the last one outside of brackets: WITH may stand before it
    depth, begins = 0, -1
    for place, token in enumerate(tokens):
        depth += (token.token_type == TokenType.L_PAREN) - (token.token_type == TokenType.R_PAREN)
        if token.token_type == TokenType.SELECT and depth == 0:
            begins = place + 1
    if begins < 0:
        return []
    while begins < len(tokens) and tokens[begins].text.upper() in _BEFORE_COLUMNS:
        begins += 1
    # from comma to comma outside of brackets, until FROM or the end
    spans, first = [], begins
    for place in range(begins, len(tokens) + 1):
        token = tokens[place] if place < len(tokens) else None
        kind = token.token_type if token else None
        if token is None or depth == 0 and kind in _ENDS:
            if place > first:
                spans.append(rewritten.text[tokens[first].start : tokens[place - 1].end + 1])
            first = place + 1
            if kind != TokenType.COMMA:
                break
        depth += (kind == TokenType.L_PAREN) - (kind == TokenType.R_PAREN)
    # read in another way than the parser did: DuckDB's names are better than wrong ones
    if len(spans) != len(tree.expressions):
        return []
    return [
        None if isinstance(column, exp.Alias | exp.Column | exp.Star) or PLACE in span else span
        for column, span in zip(tree.expressions, spans, strict=True)
    ]


_BEFORE_COLUMNS = _NO_MEANING | {"ALL", "DISTINCT"}
_ENDS = frozenset({
    TokenType.COMMA, TokenType.FROM, TokenType.WHERE, TokenType.LIMIT, TokenType.ORDER_BY, TokenType.GROUP_BY, TokenType.HAVING,
    TokenType.SEMICOLON,
})  # fmt: skip


def written(tree: exp.Expression, names: Sequence[str | None] = ()) -> str:
    """Return a tree as DuckDB's text."""
    if isinstance(tree, exp.Select) and any(names):
        called = zip(tree.expressions, names, strict=True)
        tree.set("expressions", [column if name is None else _alias(column, name) for column, name in called])
    try:
        return str(_everywhere(tree, itertools.count()).sql(dialect="duckdb", unsupported_level=ErrorLevel.RAISE, comments=False))
    except (SqlglotError, RecursionError, ValueError, TypeError, AttributeError):
        raise Refused("unsupported", "this has no words of DuckDB's: write it in another way") from None


def _alias(column: exp.Expression, name: str) -> exp.Alias:
    return exp.Alias(this=column, alias=exp.to_identifier(name[:256], quoted=True))


def _everywhere(node: exp.Expression, count: Iterator[int]) -> exp.Expression:
    """Return a tree whose nodes mean in DuckDB what they meant in MySQL: a node before its parts, which may be one with it.

    Some meanings hold an argument several times, and so grow with every one inside of another: they are counted.
    """
    if next(count) > MOST_NODES:
        raise Refused("refused", "written out in DuckDB's words, the question is too long: nest fewer functions in each other")
    changed = node if node.meta.get(MADE) else _meant(node)
    for part in list(changed.iter_expressions()):
        meant = _everywhere(part, count)
        if meant is not part:
            part.replace(meant)
    return changed


def _meant(node: exp.Expression) -> exp.Expression:
    """Return a node whose meaning in DuckDB is what it was in MySQL."""
    if isinstance(node, exp.Select):
        return _select(node)
    if isinstance(node, exp.Join) and node.args.get("kind") == "STRAIGHT_JOIN":
        node.set("kind", None)
        return node
    if isinstance(node, exp.Parameter | exp.SessionParameter):
        raise Refused("unsupported", "variables are not answered in a question about tables")
    if isinstance(node, exp.Introducer):
        return node.expression
    if isinstance(node, exp.National):
        return exp.Literal.string(node.name)
    if isinstance(node, exp.Group) and node.args.get("rollup"):
        return _rolled(node)
    if isinstance(node, exp.Div):
        by = node.expression.unnest()
        # a divisor that is written out and not zero needs no guard
        if isinstance(by, exp.Literal) and float(by.name or 0):
            node.set("safe", False)
        return node
    if isinstance(node, exp.Cast):
        return _cast(node)
    if isinstance(node, exp.Like) and not isinstance(node.parent, exp.Escape) and "\\" in node.expression.name:
        return exp.Escape(this=node.copy(), expression=exp.Literal.string("\\"))
    return function(node)


def _select(node: exp.Select) -> exp.Select:
    """Return a SELECT without words on how to run it, and of no table where it asks of MySQL's table of nothing."""
    words = {word.name.upper() for word in node.args.get("operation_modifiers") or ()}
    if words - _NO_MEANING:
        raise Refused("unsupported", f"{min(words - _NO_MEANING)} is not answered")
    node.set("operation_modifiers", None)
    source = node.args.get("from_") or node.args.get("from")
    table = source.this if source is not None else None
    if isinstance(table, exp.Table) and table.name.upper() == "DUAL" and not table.text("db") and not node.args.get("joins"):
        for key in ("from_", "from"):
            if key in node.args:
                node.set(key, None)
    return node


def _rolled(node: exp.Group) -> exp.Group:
    """Return GROUP BY a, b WITH ROLLUP as GROUP BY ROLLUP (a, b)."""
    if any(rollup.expressions for rollup in node.args["rollup"]):
        return node
    return exp.Group(rollup=[exp.Rollup(expressions=list(node.expressions))])


def _cast(node: exp.Cast) -> exp.Expression:
    """Return a cast as DuckDB has it: to a text of any length and letters; `BINARY x` is how DuckDB compares anyway."""
    kind = node.to
    name = kind.this if isinstance(kind, exp.DataType) else None
    if name == exp.DataType.Type.BINARY and not kind.expressions:
        return node.this
    if name not in (exp.DataType.Type.CHARACTER_SET, exp.DataType.Type.CHAR, exp.DataType.Type.NCHAR):
        return function(node)
    text = exp.cast(node.this, "text")
    return exp.Left(this=text, expression=kind.expressions[0].this) if kind.expressions else text
