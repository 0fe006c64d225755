"""MySQL's questions in DuckDB's words: what is judged and run is DuckDB's text alone.

Differs from MySQL, and is said in the documentation: texts are compared as DuckDB does, by case, and none is taken for a number.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import ErrorLevel, SqlglotError
from sqlglot.tokens import TokenType

from dpsql.serve.mysql.lexing import PLACE, SYNTAX, Read, read
from dpsql.serve.passed import Refused

_BEGINS = re.compile(r"\(*\s*(SELECT|WITH|VALUES|TABLE)\b|\(", re.IGNORECASE)
_NO_MEANING = frozenset({
    "HIGH_PRIORITY", "SQL_BIG_RESULT", "SQL_BUFFER_RESULT", "SQL_CACHE", "SQL_NO_CACHE", "SQL_SMALL_RESULT", "STRAIGHT_JOIN",
})  # fmt: skip
"""Words after SELECT that say how to run it."""
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
    taken = read(text)
    tree = parsed(taken)
    names = headings(tree, taken)
    try:
        return written(filled(tree, parameters, taken.places), names)
    except RecursionError:
        raise Refused("refused", "the question is nested too deeply") from None


def parsed(taken: Read) -> exp.Expression:
    """Return the syntax tree of a question; raises `Refused`: of anything else, and of several."""
    if len(taken.statements) > 1:
        raise Refused("unsupported", "one statement at a time: a text with several is not answered")
    if not taken.text:
        raise Refused("syntax", "Query was empty")
    if not _BEGINS.match(taken.text):
        raise Refused("unsupported", "only questions are answered: SELECT, SHOW, DESCRIBE, and FROM ... in DuckDB's own words")
    try:
        trees = sqlglot.parse(taken.text, read="mysql", error_level=ErrorLevel.IMMEDIATE)
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


def headings(tree: exp.Expression, taken: Read) -> list[str | None]:
    """Return how the columns of a question are called that have no name: as they were typed; None: DuckDB's name does.

    Only of a question that is one SELECT, or ends in one; of others DuckDB's names are good.
    """
    if not isinstance(tree, exp.Select):
        return []
    try:
        tokens = sqlglot.tokenize(taken.text, read="mysql")
    except SqlglotError:
        return []
    depth, begins = 0, -1
    for place, token in enumerate(tokens):
        depth += (token.token_type == TokenType.L_PAREN) - (token.token_type == TokenType.R_PAREN)
        if token.token_type == TokenType.SELECT and depth == 0:
            begins = place + 1
    if begins < 0:
        return []
    while begins < len(tokens) and tokens[begins].text.upper() in _BEFORE_COLUMNS:
        begins += 1
    spans, first = [], begins
    for place in range(begins, len(tokens) + 1):
        token = tokens[place] if place < len(tokens) else None
        kind = token.token_type if token else None
        if token is None or depth == 0 and kind in _ENDS:
            if place > first:
                spans.append(taken.text[tokens[first].start : tokens[place - 1].end + 1])
            first = place + 1
            if kind != TokenType.COMMA:
                break
        depth += (kind == TokenType.L_PAREN) - (kind == TokenType.R_PAREN)
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
        return str(tree.transform(_meant).sql(dialect="duckdb", unsupported_level=ErrorLevel.RAISE, comments=False))
    except (SqlglotError, RecursionError, ValueError, TypeError, AttributeError):
        raise Refused("unsupported", "this has no words of DuckDB's: write it in another way") from None


def _alias(column: exp.Expression, name: str) -> exp.Alias:
    return exp.Alias(this=column, alias=exp.to_identifier(name[:256], quoted=True))


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
    if isinstance(node, exp.Div) and isinstance(node.expression, exp.Literal) and float(node.expression.name or 0):
        node.set("safe", False)
        return node
    if isinstance(node, exp.Cast):
        return _cast(node)
    if isinstance(node, exp.Like) and not isinstance(node.parent, exp.Escape) and "\\" in node.expression.name:
        return exp.Escape(this=node, expression=exp.Literal.string("\\"))
    return _function(node)


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
        return node
    text = exp.cast(node.this, "text")
    return exp.Left(this=text, expression=kind.expressions[0].this) if kind.expressions else text


def _function(node: exp.Expression) -> exp.Expression:
    """Return a function of a name that both have, and mean otherwise, as what MySQL means."""
    if isinstance(node, exp.Length) and node.args.get("binary"):
        return exp.Anonymous(this="strlen", expressions=[node.this])
    if isinstance(node, exp.DayOfWeek):
        day = exp.Anonymous(this="dayofweek", expressions=[_date(node.this)])
        return exp.paren(exp.Add(this=day, expression=exp.Literal.number(1)))
    if isinstance(node, exp.Week):
        if node.args.get("mode") is not None:
            raise Refused("unsupported", "week() with a mode is not answered: weekofyear(day) is the week of ISO")
        return exp.cast(exp.Anonymous(this="strftime", expressions=[_date(node.this), exp.Literal.string("%U")]), "int")
    if isinstance(node, exp.DateDiff | exp.TimestampDiff):
        for key in ("this", "expression"):
            if isinstance(node.args.get(key), exp.Literal):
                node.set(key, exp.cast(node.args[key], "timestamp"))
        return node
    if isinstance(node, exp.Anonymous | exp.Func) and _name(node) in ("WEEKDAY", "YEARWEEK", "MID", "MAKEDATE"):
        arguments = node.expressions or [node.this]
        if _name(node) == "MAKEDATE" and len(arguments) == 2 and arguments[1] == exp.Literal.number(1):  # the first of January
            one = exp.Literal.number(1)
            return exp.Anonymous(this="make_date", expressions=[arguments[0], one, one.copy()])
        if _name(node) == "MID" and len(arguments) == 3:
            return exp.Substring(this=arguments[0], start=arguments[1], length=arguments[2])
        if _name(node) == "WEEKDAY" and len(arguments) == 1:
            day = exp.Anonymous(this="isodow", expressions=[_date(arguments[0])])
            return exp.paren(exp.Sub(this=day, expression=exp.Literal.number(1)))
        raise Refused("unsupported", f"{_name(node).lower()}() is not answered")
    return node


def _name(node: exp.Expression) -> str:
    return node.name.upper() if isinstance(node, exp.Anonymous) else node.sql_name() if isinstance(node, exp.Func) else ""


def _date(node: exp.Expression) -> exp.Expression:
    """Return a day: what is a cast to one already stays as it is."""
    inner = node.this if isinstance(node, exp.TsOrDsToDate) else node
    return exp.cast(inner, "date")
