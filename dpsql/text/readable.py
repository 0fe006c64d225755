"""Expressions and aggregates of a query as people write them, from the one form in which they are compared."""

from __future__ import annotations

from sqlglot.errors import SqlglotError
from sqlglot.tokens import Token, TokenType

from dpsql.text.strict import StrictDuckDB


def expression(text: str) -> str:
    """Return an expression without the quotes that its names do not need.

    Examples
    --------
    >>> print(expression('"age" + 1 > "order" AND "my ward" = ' + "'\\"x\\"'"))
    age + 1 > "order" AND "my ward" = '"x"'
    """
    out, end = [], 0
    for token in _tokens(text):
        if text[token.start] == '"' and _plain(token.text):
            out += [text[end : token.start], token.text]
            end = token.end + 1
    return "".join(out) + text[end:]


def aggregate(text: str, unit: str | None = None) -> str:
    """Return an aggregate as it stands in SQL.

    Parameters
    ----------
    text : str
        Its one form, as `dpsql.queries.aggregates.Aggregate.key` makes it.
    unit : str, optional
        The privacy unit, which a number of units counts.

    Examples
    --------
    >>> aggregate("count()"), aggregate('quantile_cont("stay") at 0.5'), aggregate('sum("a") filter "b" > 1')
    ('count(*)', 'median(stay)', 'sum(a) FILTER (WHERE b > 1)')
    >>> aggregate("count_units()", "patient"), aggregate('quantile_disc("a") list 0.1, 0.9'), aggregate('count_distinct("a")')
    ('count(DISTINCT patient)', 'quantile_disc(a, [0.1, 0.9])', 'count(DISTINCT a)')
    """
    name, opening, _ = text.partition("(")
    end = _closing(text)
    if not opening or end is None:
        return expression(text)
    given, rest = expression(text[len(name) + 1 : end]), text[end + 1 :]
    head, _, condition = rest.partition(" filter ") if " filter " in rest else (rest, "", "")
    way, _, numbers = head.strip().partition(" ")
    if name == "count_units":
        name, given = "count", f"DISTINCT {unit or 'unit'}"
    elif name == "count_distinct":
        name, given = "count", f"DISTINCT {given}"
    elif name == "count" and not given:
        given = "*"
    elif name == "quantile_cont" and (way, numbers) == ("at", "0.5"):
        name = "median"
    elif way:
        given = f"{given}, {numbers}" if way == "at" else f"{given}, [{numbers}]"
    shown = f"{name}({given})"
    return f"{shown} FILTER (WHERE {expression(condition)})" if condition else shown


def _closing(text: str) -> int | None:
    """Return the place of the bracket that closes the first one."""
    depth = 0
    for token in _tokens(text):
        depth += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(token.token_type, 0)
        if depth == 0 and token.token_type == TokenType.R_PAREN:
            return token.start
    return None


def _plain(name: str) -> bool:
    """Return whether a name needs no quotes: small letters and digits, no word of SQL."""
    if not name.isascii() or not name.isidentifier() or name != name.lower():
        return False
    return [token.token_type for token in _tokens(name)] == [TokenType.VAR]


def _tokens(text: str) -> list[Token]:
    try:
        return list(StrictDuckDB().tokenize(text))
    except SqlglotError:
        return []
