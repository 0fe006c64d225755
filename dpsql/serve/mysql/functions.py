"""Functions of a name that both have and mean otherwise, or that MySQL alone has: as what MySQL means by them."""

from __future__ import annotations

from typing import Final

from sqlglot import exp

from dpsql.serve.mysql.moments import moment
from dpsql.serve.passed import Refused

_TRUTHS = (exp.Predicate, exp.Not, exp.Connector, exp.Boolean, exp.In, exp.Between)
MOST_PADDED: Final = 64
"""Characters to which a text is filled up."""


def function(node: exp.Expression) -> exp.Expression:
    """Return a function in DuckDB's words; other nodes as they are.

    Raises
    ------
    Refused
    """
    if isinstance(node, exp.Length) and node.args.get("binary"):
        return exp.Anonymous(this="strlen", expressions=[node.this])
    if isinstance(node, exp.Avg) and isinstance(node.this.unnest(), _TRUTHS):  # DuckDB has no mean of truth values
        return exp.Avg(this=exp.cast(node.this, "int"))
    if isinstance(node, exp.Round | exp.Trunc) and isinstance(node.args.get("decimals"), exp.Neg):
        return _coarse(node)
    if isinstance(node, exp.Elt):
        branches = [_branch(exp.EQ, node.this, str(place), then) for place, then in enumerate(node.expressions, 1)]
        return exp.Case(ifs=branches)
    if isinstance(node, exp.Pad):
        return _padded(node)
    name = node.name.upper() if isinstance(node, exp.Anonymous) else ""
    if name == "MID" and len(node.expressions) == 3:
        text, start, length = node.expressions
        return exp.Substring(this=text, start=start, length=length)
    if name == "FIELD" and len(node.expressions) > 1:
        what, *listed = node.expressions
        places = [exp.If(this=exp.EQ(this=what.copy(), expression=one), true=_number(n)) for n, one in enumerate(listed, 1)]
        return exp.Case(ifs=places, default=_number(0))
    return moment(node)


def _number(value: int) -> exp.Literal:
    return exp.Literal.number(value)


def _branch(kind: type[exp.Binary], what: exp.Expression, number: str, then: exp.Expression) -> exp.If:
    return exp.If(this=kind(this=exp.paren(what.copy()), expression=exp.Literal.number(number)), true=then)


def _coarse(node: exp.Expression) -> exp.Expression:
    """Return ROUND(x, -2) as the nearest hundred."""
    places = node.args["decimals"].this
    if not isinstance(places, exp.Literal) or not places.name.isdigit() or int(places.name) > 15:
        raise Refused("unsupported", "a number of decimals is written out, and at least -15")
    width = _number(10 ** int(places.name))
    scaled = exp.Div(this=exp.paren(node.this.copy()), expression=width.copy(), typed=False, safe=False)
    return exp.paren(exp.Mul(this=type(node)(this=scaled), expression=width))


def _padded(node: exp.Expression) -> exp.Expression:
    """Return LPAD and RPAD by one letter as DuckDB's functions that never make more than a text's own length of it."""
    length, fill = node.expression, node.args.get("fill_pattern")
    written = isinstance(length, exp.Literal) and length.name.isdigit() and int(length.name) <= MOST_PADDED
    if not written or not isinstance(fill, exp.Literal) or len(fill.name) != 1:
        raise Refused("unsupported", f"lpad() and rpad() take a number up to {MOST_PADDED} and one letter, both written out")
    # the whole filling beside the text, and of both as much as is asked for
    text, filled = exp.cast(node.this, "text"), exp.Literal.string(fill.name * int(length.name))
    left = bool(node.args.get("is_left"))
    joined = exp.DPipe(this=filled, expression=text.copy()) if left else exp.DPipe(this=text.copy(), expression=filled)
    kept = (exp.Right if left else exp.Left)(this=exp.paren(joined), expression=length.copy())
    longer = exp.GTE(this=exp.Length(this=text.copy()), expression=length.copy())
    cut = exp.Left(this=text.copy(), expression=length.copy())
    return exp.Case(ifs=[exp.If(this=longer, true=cut)], default=kept)
