"""Rules of the table of functions: the range of a call's values, how long its text is, what it is written out as.

Privacy: none; nothing in here has seen data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from sqlglot import exp

from dpsql.algebra.pieces import call, only_if, paren
from dpsql.algebra.ranges import INF, NUMBER, Range, hull, made, monotone, rounded, truncated

Arguments = Sequence[exp.Expression]
Extent = Callable[[exp.Expression], Range]
Rule = Callable[[Extent, Arguments], Range]
"""What gives the range of an argument, and the arguments -> the range of a call."""
Most = Callable[[exp.Expression], float]
Length = Callable[[Most, Arguments], float]
"""What gives how many characters a text has at most, and the arguments -> how many a call's text has."""
Syntax = Callable[[Arguments], exp.Expression]


def on_first(function: Callable[[Range], Range]) -> Rule:
    """Return the rule of what the range of the first argument decides."""
    return lambda extent, arguments: function(extent(arguments[0]))


def increasing(function: Callable[[float], float], least: float = -INF, limits: tuple[float, float] = (-INF, INF)) -> Rule:
    """Return the rule of an increasing function; see `dpsql.algebra.ranges.monotone`."""
    return on_first(lambda value: monotone(value, function, least, limits=limits))


def fixed(lower: float, upper: float, *, whole: bool = False, sort: str = "number") -> Rule:
    """Return the rule of bounds whatever the arguments are; ends that are no whole numbers are moved outwards."""
    value = made(lower, upper, whole=whole, sort=sort)
    return lambda extent, arguments: value


def cube_root(x: float) -> float:
    """Return the cube root, with the sign of the number."""
    return math.copysign(abs(x) ** (1 / 3), x)


MOST_TENS = 15
"""Digits before the point that may be rounded away."""


def digits_of(arguments: Arguments) -> int:
    """Return how many digits after the point are kept; below 0: how many before it are not."""
    last = arguments[1] if len(arguments) > 1 else None
    number = last.this if isinstance(last, exp.Neg) else last
    if not isinstance(number, exp.Literal) or not number.name.isdigit():
        return 0
    return -min(int(number.name), MOST_TENS) if number is not last else int(number.name)


def rounding(*, down: bool, up: bool, cut: bool = False) -> Rule:
    """Return the rule of rounding to a grid: down, up, to the nearest value, or with the digits cut."""

    def rule(extent: Extent, arguments: Arguments) -> Range:
        value, digits = extent(arguments[0]), digits_of(arguments)
        out = truncated(value, digits) if cut else rounded(value, digits, down, up)
        nearest = down and up and not cut  # the others make a DOUBLE of INTEGER
        return out if nearest or value.sort == "unknown" else replace(out, sort="number")

    return rule


def sign(value: Range) -> Range:
    """Return the range of ``sign(a)``."""
    if not value.integer:  # of NaN it is 0
        value = hull(replace(value, sort="number"), Range(0.0, 0.0))
    lower, upper = (math.copysign(1.0, end) if end else 0.0 for end in (value.lower, value.upper))
    return Range(lower, upper, True, "integer")


def extreme(*, most: bool) -> Rule:
    """Return the rule of greatest or least, which leave NULLs out: a bound of one argument holds where it can't be NULL."""

    def rule(extent: Extent, arguments: Arguments) -> Range:
        values, out = [extent(g) for g in arguments], hulled(extent, arguments)
        if out.sort == "unknown" and all(v.sort in ("unknown", "number", "integer", "nothing") for v in values):
            out = NUMBER if any(v.sort in ("number", "integer") for v in values) else out
        for node, value in zip(arguments, values, strict=True):
            if isinstance(_inner(node), exp.Literal | exp.Neg) and value.finite and value.sort in ("number", "integer", out.sort):
                out = replace(out, lower=max(out.lower, value.lower)) if most else replace(out, upper=min(out.upper, value.upper))
        return out

    return rule


def _inner(node: exp.Expression) -> exp.Expression:
    while isinstance(node, exp.Paren | exp.Cast):
        node = node.this
    return node.this if isinstance(node, exp.Neg) and not isinstance(node.this, exp.Literal) else node


def hulled(extent: Extent, arguments: Arguments) -> Range:
    """Return the range of one of these values."""
    return hull(*map(extent, arguments))


def piece(place: int) -> Length:
    """Return the rule of a piece of a text, whose length an argument says; from its end, if that is negative, or left out."""

    def rule(most: Most, arguments: Arguments) -> float:
        written = arguments[place].name if place < len(arguments) and isinstance(arguments[place], exp.Literal) else ""
        return min(most(arguments[0]), float(written)) if written.isdigit() else most(arguments[0])

    return rule


def coalesce(arguments: Arguments) -> exp.Expression:
    """Return ``COALESCE(a, b)``."""
    return exp.Coalesce(this=arguments[0], expressions=list(arguments[1:]))


def choice(arguments: Arguments) -> exp.Expression:
    """Return ``CASE WHEN a THEN b ELSE c END``."""
    return exp.Case(ifs=[exp.If(this=arguments[0], true=arguments[1])], default=arguments[2])


def modulo(arguments: Arguments) -> exp.Expression:
    """Return ``a % b``."""
    return exp.Mod(this=arguments[0].copy(), expression=arguments[1].copy())


def nothing_if(arguments: Arguments) -> exp.Expression:
    """Return ``CASE WHEN a = b THEN NULL ELSE a END``."""
    same = exp.EQ(this=paren(arguments[0].copy()), expression=paren(arguments[1]))
    return exp.Case(ifs=[exp.If(this=same, true=exp.Null())], default=arguments[0])


def split(arguments: Arguments) -> exp.Expression:
    """Return ``string_split(a, b)[c]``, '' where there are not so many parts."""
    part = call("list_extract", call("string_split", arguments[0], arguments[1]), arguments[2])
    known = exp.Not(this=exp.Is(this=paren(arguments[0].copy()), expression=exp.Null()))
    return only_if(known, exp.Coalesce(this=part, expressions=[exp.Literal.string("")]))
