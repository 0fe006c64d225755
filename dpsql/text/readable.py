"""Expressions and aggregates of a query as people write them, from the one form in which they are compared."""

from __future__ import annotations

from itertools import zip_longest
from typing import NamedTuple

from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import SqlglotError
from sqlglot.tokens import Token, TokenType

from dpsql.text.strict import StrictDuckDB

_CALLED = {"__dp_together": ""}
"""Calls of dpsql's own in the one form of an expression -> what people write: ``(a, b)``."""


def expression(text: str) -> str:
    """Return an expression without the quotes that its names do not need, functions in small letters.

    Examples
    --------
    >>> expression('LENGTH("Code")'), expression('LENGTH("code")')
    ('length("Code")', 'length(code)')
    >>> print(expression('"age" + 1 > "order" AND "my ward" = 3'))
    age + 1 > "order" AND "my ward" = 3
    """
    out, end, read = [], 0, _tokens(text)
    for token, after in zip_longest(read, read[1:]):
        quoted = text[token.start] == '"'
        called = after is not None and after.token_type == TokenType.L_PAREN and token.token_type == TokenType.VAR
        if (quoted and _plain(token.text)) or (called and not quoted):
            out += [text[end : token.start], token.text if quoted else _CALLED.get(token.text.lower(), token.text.lower())]
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
    >>> aggregate('count_distinct(__DP_TOGETHER("a", "b"))')
    'count(DISTINCT (a, b))'
    """
    read = parts(text)
    if read is None:
        return expression(text)
    name, arguments = read.name, expression(read.given)
    numbers = ", ".join(map(repr, read.quantiles))
    # Names that only dpsql uses are written as the SQL that they stand for.
    if name == "count_units":
        name, arguments = "count", f"DISTINCT {unit or 'unit'}"
    elif name == "count_distinct":
        name, arguments = "count", f"DISTINCT {arguments}"
    elif name == "count" and not arguments:
        arguments = "*"
    elif name == "quantile_cont" and read.quantiles == (0.5,) and not read.listed:
        name = "median"
    elif read.quantiles:
        arguments = f"{arguments}, [{numbers}]" if read.listed else f"{arguments}, {numbers}"
    shown = f"{name}({arguments})"
    return f"{shown} FILTER (WHERE {expression(read.condition)})" if read.condition else shown


class Parts(NamedTuple):
    """An aggregate in its one form, taken apart."""

    name: str
    given: str
    quantiles: tuple[float, ...]
    listed: bool
    condition: str


def parts(text: str) -> Parts | None:
    """Return the parts of an aggregate in its one form; None if it is not in it.

    Examples
    --------
    >>> parts('quantile_disc("a") list 0.1, 0.9 filter "b" > 1')
    Parts(name='quantile_disc', given='"a"', quantiles=(0.1, 0.9), listed=True, condition='"b" > 1')
    """
    name, opening, _ = text.partition("(")
    end = _closing(text)
    if not opening or end is None:
        return None
    rest, _, condition = text[end + 1 :].partition(" filter ") if " filter " in text[end + 1 :] else (text[end + 1 :], "", "")
    way, _, numbers = rest.strip().partition(" ")
    try:
        quantiles = tuple(float(number) for number in numbers.split(",")) if numbers else ()
    except ValueError:
        return None
    return Parts(name, text[len(name) + 1 : end], quantiles, way == "list", condition)


def _closing(text: str) -> int | None:
    """Return the place of the bracket that closes the first one."""
    depth = 0
    for token in _tokens(text):
        depth += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(token.token_type, 0)
        if depth == 0 and token.token_type == TokenType.R_PAREN:
            return int(token.start)
    return None


def _plain(name: str) -> bool:
    """Return whether a name needs no quotes: small letters and digits, no word of SQL."""
    if not name.isascii() or not name.isidentifier() or name != name.lower():
        return False
    return name not in DuckDB.Generator.RESERVED_KEYWORDS and [t.token_type for t in _tokens(name)] == [TokenType.VAR]


def _tokens(text: str) -> list[Token]:
    try:
        return list(StrictDuckDB().tokenize(text))
    except SqlglotError:
        return []
