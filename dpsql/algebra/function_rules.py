"""Rules of the table of functions: the range of a call's values, how long its text is, what it is written out as.

Privacy: none; nothing in here has seen data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from sqlglot import exp

from dpsql.algebra import moments
from dpsql.algebra.pieces import call, only_if, paren
from dpsql.algebra.ranges import INF, NUMBER, Range, absolute, hull, made, monotone, rounded, truncated

Extent = Callable[[exp.Expression], Range]
Rule = Callable[[Extent, Sequence[exp.Expression]], Range]
"""What gives the range of an argument, and the arguments -> the range of a call."""
Most = Callable[[exp.Expression], float]
Length = Callable[[Most, Sequence[exp.Expression]], float]
"""What gives how many characters a text has at most, and the arguments -> how many a call's text has."""
Syntax = Callable[[Sequence[exp.Expression]], exp.Expression]


def increasing(function: Callable[[float], float], least: float = -INF, limits: tuple[float, float] = (-INF, INF)) -> Rule:
    """Return the rule of an increasing function; see `dpsql.algebra.ranges.monotone`."""
    return lambda extent, given: monotone(extent(given[0]), function, least, limits=limits)


def fixed(lower: float, upper: float, *, whole: bool = False, sort: str = "number") -> Rule:
    """Return the rule of a function with the same bounds whatever its arguments are."""
    value = Range(lower, upper, whole, sort)
    return lambda extent, given: value


def within(lower: float, upper: float) -> Rule:
    """Return the rule of a function with these computed bounds, which are moved outwards."""
    value = made(lower, upper)
    return lambda extent, given: value


def cube_root(x: float) -> float:
    """Return the cube root, with the sign of the number."""
    return math.copysign(abs(x) ** (1 / 3), x)


def rounding(*, down: bool, up: bool) -> Rule:
    """Return the rule of rounding to a grid: down, up, or to the nearest value."""
    def rule(extent: Extent, given: Sequence[exp.Expression]) -> Range:
        value = extent(given[0])
        out = rounded(value, _digits(given), down, up)
        return out if (down and up) or value.sort == "unknown" else replace(out, sort="number")  # floor makes a DOUBLE of INTEGER

    return rule


def _digits(given: Sequence[exp.Expression]) -> int:
    return int(given[1].name) if len(given) > 1 and isinstance(given[1], exp.Literal) and given[1].name.isdigit() else 0


def truncating(extent: Extent, given: Sequence[exp.Expression]) -> Range:
    """Return the range of a number whose digits are cut."""
    value = extent(given[0])
    return truncated(value, _digits(given)) if value.sort == "unknown" else replace(truncated(value, _digits(given)), sort="number")


def sign(extent: Extent, given: Sequence[exp.Expression]) -> Range:
    """Return the range of ``sign(a)``."""
    value = extent(given[0])
    if not value.integer:  # of NaN it is 0
        value = hull(replace(value, sort="number"), Range(0.0, 0.0))
    return Range(-1.0 if value.lower < 0 else 0.0 if value.lower == 0 else 1.0, _upper_sign(value.upper), True, "integer")


def _upper_sign(value: float) -> float:
    return 1.0 if value > 0 else 0.0 if value == 0 else -1.0


def greatest(extent: Extent, given: Sequence[exp.Expression]) -> Range:
    """Return the range of ``greatest(a, b)``."""
    return _extreme(extent, given, most=True)


def least(extent: Extent, given: Sequence[exp.Expression]) -> Range:
    """Return the range of ``least(a, b)``."""
    return _extreme(extent, given, most=False)


def _extreme(extent: Extent, given: Sequence[exp.Expression], *, most: bool) -> Range:
    """Return the range of greatest or least, which leave NULLs out: a bound of one argument holds where it can't be NULL."""
    values = [extent(g) for g in given]
    out = hull(values[0], *values[1:])
    if out.sort == "unknown" and all(v.sort in ("unknown", "number", "integer", "nothing") for v in values):
        known = [v for v in values if v.sort in ("number", "integer")]
        out = replace(NUMBER, lower=-INF, upper=INF) if known else out
    for node, value in zip(given, values, strict=True):
        if isinstance(_inner(node), exp.Literal | exp.Neg) and value.finite and value.sort in ("number", "integer", out.sort):
            out = replace(out, lower=max(out.lower, value.lower)) if most else replace(out, upper=min(out.upper, value.upper))
    return out


def _inner(node: exp.Expression) -> exp.Expression:
    while isinstance(node, exp.Paren | exp.Cast):
        node = node.this
    if isinstance(node, exp.Neg) and not isinstance(node.this, exp.Literal):
        return node.this
    return node


def unsigned(extent: Extent, given: Sequence[exp.Expression]) -> Range:
    """Return the range of ``abs(a)``."""
    return absolute(extent(given[0]))


def hulled(extent: Extent, given: Sequence[exp.Expression]) -> Range:
    """Return the range of one of these values."""
    values = [extent(g) for g in given]
    return hull(values[0], *values[1:])


def same(extent: Extent, given: Sequence[exp.Expression]) -> Range:
    """Return the range of the first argument."""
    return extent(given[0])


def remainder(extent: Extent, given: Sequence[exp.Expression]) -> Range:
    """Return the range of ``a % b``."""
    return extent(modulo(given))


def raised(extent: Extent, given: Sequence[exp.Expression]) -> Range:
    """Return the range of ``a ** b``."""
    return extent(exp.Pow(this=given[0].copy(), expression=given[1].copy()))


def modulo(given: Sequence[exp.Expression]) -> exp.Expression:
    """Return ``a % b``."""
    return exp.Mod(this=given[0].copy(), expression=given[1].copy())


# -- dates and times --------------------------------------------------------------------------------------------------------


def field(part: str) -> Rule:
    """Return the rule of a part of a moment."""
    return lambda extent, given: moments.field(part, extent(given[0]))


def _part(given: Sequence[exp.Expression]) -> str:
    return given[0].name.lower() if isinstance(given[0], exp.Literal) else ""


def part(extent: Extent, given: Sequence[exp.Expression]) -> Range:
    """Return the range of ``date_part('year', t)``."""
    return moments.field(_part(given), extent(given[1]))


def truncation(extent: Extent, given: Sequence[exp.Expression]) -> Range:
    """Return the range of ``date_trunc('year', t)``."""
    return moments.truncated(_part(given), extent(given[1]))


def difference(*, complete: bool) -> Rule:
    """Return the rule of ``date_diff('year', s, t)``, or of date_sub, which counts whole units."""
    return lambda extent, given: moments.difference(_part(given), extent(given[1]), extent(given[2]), complete=complete)


def in_zone(extent: Extent, given: Sequence[exp.Expression]) -> Range:
    """Return the range of ``timezone('UTC', t)``."""
    return moments.in_zone(given[0].name, extent(given[1]))


def last_day(extent: Extent, given: Sequence[exp.Expression]) -> Range:
    """Return the range of ``last_day(t)``."""
    return moments.last_day(extent(given[0]))


# -- texts ------------------------------------------------------------------------------------------------------------------


def characters(number: float) -> Length:
    """Return the rule of a text that is always so long, or shorter."""
    return lambda most, given: number


def shorter(most: Most, given: Sequence[exp.Expression]) -> float:
    """Return the length of a text that is the first one, or a piece of it."""
    return most(given[0])


def piece(place: int) -> Length:
    """Return the rule of a piece of a text, whose length an argument says; from its end, if that is negative, or left out."""

    def rule(most: Most, given: Sequence[exp.Expression]) -> float:
        said = given[place].name if place < len(given) and isinstance(given[place], exp.Literal) else ""
        return min(most(given[0]), float(said)) if said.isdigit() else most(given[0])

    return rule


def joined(most: Most, given: Sequence[exp.Expression]) -> float:
    """Return the length of texts that stand behind each other."""
    return sum(map(most, given))


def separated(most: Most, given: Sequence[exp.Expression]) -> float:
    """Return the length of texts with the first one between each two of them."""
    return most(given[0]) * len(given) + joined(most, given[1:])


def largest(most: Most, given: Sequence[exp.Expression]) -> float:
    """Return the length of one of these texts."""
    return max(map(most, given))


# -- syntax -----------------------------------------------------------------------------------------------------------------


def coalesce(given: Sequence[exp.Expression]) -> exp.Expression:
    """Return ``COALESCE(a, b)``."""
    return exp.Coalesce(this=given[0], expressions=list(given[1:]))


def choice(given: Sequence[exp.Expression]) -> exp.Expression:
    """Return ``CASE WHEN a THEN b ELSE c END``."""
    return exp.Case(ifs=[exp.If(this=given[0], true=given[1])], default=given[2])


def chosen(extent: Extent, given: Sequence[exp.Expression]) -> Range:
    """Return the range of ``if(a, b, c)``."""
    return extent(choice([node.copy() for node in given]))


def nothing_if(given: Sequence[exp.Expression]) -> exp.Expression:
    """Return ``CASE WHEN a = b THEN NULL ELSE a END``."""
    same = exp.EQ(this=paren(given[0].copy()), expression=paren(given[1]))
    return exp.Case(ifs=[exp.If(this=same, true=exp.Null())], default=given[0])


def read(given: Sequence[exp.Expression]) -> exp.Expression:
    """Return ``try_strptime(a, b)``."""
    return call("try_strptime", *given)


def split(given: Sequence[exp.Expression]) -> exp.Expression:
    """Return ``string_split(a, b)[c]``, '' where there are not so many parts."""
    part = call("list_extract", call("string_split", given[0], given[1]), given[2])
    known = exp.Not(this=exp.Is(this=paren(given[0].copy()), expression=exp.Null()))
    return only_if(known, exp.Coalesce(this=part, expressions=[exp.Literal.string("")]))
