"""Constant intervals in the trees of a text and of what the catalog stores."""

from __future__ import annotations

from sqlglot import exp

from dpsql.algebra.parts import INTERVALS
from dpsql.text.spelled import interval_parts

_STORED = {f"to_{name}s": name.upper() for name in INTERVALS}


def whole_of(interval: exp.Interval) -> int | None:
    """Return the number of units of a constant interval; None where it is no whole number."""
    node, sign = interval.this, 1
    while isinstance(node, exp.Paren | exp.Neg):
        sign, node = -sign if isinstance(node, exp.Neg) else sign, node.this
    text = node.name if isinstance(node, exp.Literal) else ""
    return sign * int(text) if text.lstrip("+-").isdecimal() and len(text) < 12 else None


def _constant_interval(text: str) -> exp.Interval | None:
    """Return the interval of a text with one number and one unit; None for others."""
    parts = interval_parts(text)
    return None if parts is None else exp.Interval(this=exp.Literal.number(parts[0]), unit=exp.Var(this=parts[1]))


def interval_of(node: exp.Expression) -> exp.Interval | None:
    """Return a constant interval, also as the catalog stores it: ``to_days(CAST(trunc(CAST(1 AS DOUBLE)) AS INTEGER))``."""
    while isinstance(node, exp.Paren):
        node = node.this
    if isinstance(node, exp.Interval):
        return node
    if isinstance(node, exp.Cast) and node.to.this == exp.DataType.Type.INTERVAL and isinstance(node.this, exp.Literal):
        return _constant_interval(node.this.name)
    unit = _STORED.get(str(node.this).lower()) if isinstance(node, exp.Anonymous) and len(node.expressions) == 1 else None
    if unit is None:
        return None
    amount = node.expressions[0]
    while isinstance(amount, exp.Cast | exp.Paren) or (isinstance(amount, exp.Anonymous) and str(amount.this).lower() == "trunc"):
        amount = amount.expressions[0] if isinstance(amount, exp.Anonymous) else amount.this
    return exp.Interval(this=amount, unit=exp.Var(this=unit))
