"""Several values as one text: what ``count(DISTINCT (a, b))`` counts.

Tuples and structs are no values that a source compares (`dpsql.source.kernel`). Two texts are the same where DuckDB says that
the two tuples are: NULL is the same as NULL in it, a tuple of NULLs is a value, -0.0 is 0.0, and there is one NaN. Texts of any
length stand in it by their MD5.
"""

from __future__ import annotations

from sqlglot import exp

from dpsql.algebra.pieces import call, try_cast
from dpsql.source.functions import guard_temporal
from dpsql.source.kernel import FLOATS, TEMPORAL, TEXT, TO_TEXT, family
from dpsql.source.model import RESERVED, refuse
from dpsql.source.scope import Scope

TOGETHER = f"{RESERVED}together"
"""The call that stands for a tuple in the argument of a count."""
LONGEST = 64
"""Characters of one value, with the comma before it."""


def as_one(node: exp.Expression) -> exp.Expression | None:
    """Return the call of `TOGETHER` that a tuple, ``row(...)`` or struct is; None for other expressions.

    Examples
    --------
    >>> from dpsql.source.parse import parse
    >>> [as_one(item).sql() for item in parse("SELECT (a, (b, c)), row(a), {'x': a, 'y': b + 1}").expressions]
    ['__DP_TOGETHER(a, b, c)', '__DP_TOGETHER(a)', '__DP_TOGETHER(a, b + 1)']
    """
    parts = _parts(node)
    return None if parts is None else call(TOGETHER, *parts)


def _parts(node: exp.Expression) -> list[exp.Expression] | None:
    while isinstance(node, exp.Paren):
        node = node.this
    called = isinstance(node, exp.Anonymous) and str(node.this).lower() in ("row", "struct_pack")
    if not called and not isinstance(node, exp.Tuple | exp.Struct):
        return None
    parts: list[exp.Expression] = []
    for part in node.expressions:
        inner = part.expression if isinstance(part, exp.PropertyEQ | exp.Kwarg) else part
        below = _parts(inner)
        parts += [inner.copy()] if below is None else below
    return parts


def together(values: list[exp.Expression], scope: Scope, at: exp.Expression) -> exp.Expression:
    """Return rewritten values as one text.

    Raises
    ------
    UnsupportedQuery
        One is of a type that has no text.
    """
    pieces: list[exp.Expression] = []
    for value in values:
        sql_type = scope.type_of(value)
        if isinstance(value, exp.Null) or sql_type == '"NULL"':
            text: exp.Expression = exp.Literal.string("")
        else:
            text = exp.Coalesce(this=_text(value, sql_type, scope, at), expressions=[exp.Literal.string("")])
        pieces += [text, exp.Literal.string(",")]
    scope.texts.take(LONGEST * len(values), "count(DISTINCT (...))", at, scope.where)
    return call("concat", *pieces)


def _text(value: exp.Expression, sql_type: str, scope: Scope, at: exp.Expression) -> exp.Expression:
    """Return a text without a comma that is never empty: the same for equal values, another for others."""
    if sql_type == TEXT:
        return call("md5", value)
    if family(sql_type) == "ENUM":
        return call("md5", try_cast(value, TEXT))
    if sql_type in TEMPORAL:
        value = guard_temporal(value, sql_type)
    if sql_type == "TIMESTAMP WITH TIME ZONE":
        return try_cast(call("timezone", exp.Literal.string("UTC"), value), TEXT)
    if sql_type in FLOATS:
        double = try_cast(value, "DOUBLE")
        zero = exp.Cast(this=exp.Literal.number(0), to=exp.DataType.build("DOUBLE"))
        text = try_cast(exp.Add(this=double, expression=zero), TEXT)
        return exp.Case(ifs=[exp.If(this=call("isnan", double.copy()), true=exp.Literal.string("nan"))], default=text)
    if family(sql_type) not in TO_TEXT:
        refuse("count(DISTINCT (...))", f"values of {sql_type} are not compared in a source; CAST it to a text", at, scope.where)
    return try_cast(value, TEXT)
