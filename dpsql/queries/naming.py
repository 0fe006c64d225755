"""Names of expressions: one text for all spellings of the same expression, and the reading of an expression that a user wrote.

Privacy: none; texts alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from dpsql.errors import ArgumentError
from dpsql.source.model import quoted
from dpsql.source.parse import render
from dpsql.text.names import fold
from dpsql.text.strict import StrictDuckDB

_OF_ONE_PIECE = (
    exp.Column, exp.Literal, exp.Anonymous, exp.Cast, exp.TryCast, exp.Case, exp.Null, exp.Boolean, exp.Paren, exp.Identifier,
    exp.DataType, exp.Var, exp.Star, exp.Distinct, exp.Where, exp.Window, exp.Interval, exp.Extract, exp.If,
)


def read_expression(text: str, argument: str) -> exp.Expression:
    """Return the tree of an expression that a user wrote.

    Parameters
    ----------
    text : str
    argument : str
        Of the call, for the message.

    Raises
    ------
    ArgumentError
        If it is not one expression.
    """
    try:
        trees = sqlglot.parse(text, dialect=StrictDuckDB)
    except (SqlglotError, RecursionError):
        trees = []
    if len(trees) != 1 or trees[0] is None or isinstance(trees[0], exp.Query | exp.Command | exp.DDL):
        raise ArgumentError(argument, text, "is not one expression; write a column, or an expression as it stands in the query")
    return plain(trees[0])


def plain(node: exp.Expression) -> exp.Expression:
    """Return a tree in which every function is a call by its written name, as `dpsql.source.parse` makes them."""
    if all(type(n) is exp.Anonymous or not isinstance(n, exp.Func) or _is_syntax(n) for n in node.walk()):
        return node
    read: exp.Expression = sqlglot.parse_one(node.sql(dialect="duckdb", comments=False), dialect=StrictDuckDB)
    return read


_SYNTAX = (exp.Cast, exp.Case, exp.Extract, exp.And, exp.Or, exp.Pow, exp.Exists)
"""What sqlglot counts among the functions and StrictDuckDB reads as syntax."""


def _is_syntax(node: exp.Expression) -> bool:
    return isinstance(node, _SYNTAX) or (isinstance(node, exp.If) and isinstance(node.parent, exp.Case))


def canonical(node: exp.Expression, *, qualified: bool = True) -> str:
    """Return the text of an expression in which brackets, blanks, and the case of names do not matter.

    Parameters
    ----------
    node : sqlglot expression
    qualified : bool
        Whether ``o.cost`` and ``cost`` are two texts.

    Examples
    --------
    >>> canonical(read_expression("SUM( (o.Cost) + 1*2 )", "bounds"), qualified=False)
    'SUM("cost" + (1 * 2))'
    """
    bare = _bare(node)
    if isinstance(bare, exp.Column):  # as below, and much sooner
        return quoted(*(fold(part.name) for part in (bare.parts if qualified else bare.parts[-1:])))
    return render(_bracketed(_bare(node.copy()), qualified), own=True)


def _bare(node: exp.Expression) -> exp.Expression:
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def _bracketed(node: exp.Expression, qualified: bool) -> exp.Expression:
    if isinstance(node, exp.Column):
        parts = [exp.to_identifier(fold(part.name), quoted=True) for part in node.parts]
        kept = reversed(parts if qualified else parts[-1:])
        return exp.Column(**dict(zip(("this", "table", "db", "catalog"), kept, strict=False)))
    if isinstance(node, exp.Anonymous):
        node.set("this", (node.this if isinstance(node.this, str) else node.this.name).lower())
    inside = isinstance(node, exp.Anonymous | exp.Case | exp.If | exp.Cast | exp.Where | exp.Extract)  # between commas and words
    for key, value in list(node.args.items()):
        if isinstance(value, exp.Expression):
            child = _bracketed(_bare(value), qualified)
            node.set(key, child if inside or isinstance(child, _OF_ONE_PIECE) else exp.Paren(this=child))
        elif isinstance(value, list) and all(isinstance(v, exp.Expression) for v in value):
            node.set(key, [_bracketed(_bare(v), qualified) for v in value])
    return node


def qualify(trees: Sequence[exp.Expression]) -> None:
    """Give a bare column name the one qualifier under which the same name stands elsewhere: both are one column."""
    columns = [column for tree in trees for column in tree.find_all(exp.Column)]
    tables: dict[str, dict[str, exp.Identifier]] = {}
    for column in columns:
        if len(column.parts) == 2:
            tables.setdefault(fold(column.name), {})[fold(column.table)] = column.args["table"]
    for column in columns:
        qualifiers = tables.get(fold(column.name), {})
        if len(column.parts) == 1 and len(qualifiers) == 1:
            column.set("table", next(iter(qualifiers.values())).copy())
