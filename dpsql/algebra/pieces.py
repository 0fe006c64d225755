"""Pieces of generated expressions.

Privacy: none; syntax alone.
"""

from __future__ import annotations

from sqlglot import exp


def call(name: str, *arguments: exp.Expression) -> exp.Anonymous:
    """Return a function call."""
    return exp.Anonymous(this=name, expressions=list(arguments))


def try_cast(value: exp.Expression, sql_type: str | exp.DataType) -> exp.TryCast:
    """Return ``TRY_CAST(value AS sql_type)``."""
    kind = exp.DataType.build(sql_type, dialect="duckdb") if isinstance(sql_type, str) else sql_type
    return exp.TryCast(this=value, to=kind)


def only_if(condition: exp.Expression, value: exp.Expression) -> exp.Case:
    """Return the value where the condition is true, else NULL."""
    return exp.Case(ifs=[exp.If(this=condition, true=value)])


def paren(value: exp.Expression) -> exp.Expression:
    """Return the value in brackets unless it is of one piece."""
    simple = exp.Column | exp.Literal | exp.Anonymous | exp.Paren | exp.TryCast | exp.Cast | exp.Case | exp.Null | exp.Boolean
    return value if isinstance(value, simple) else exp.Paren(this=value)
