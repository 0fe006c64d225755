"""Ranges of function calls: a rule for each function of the kernel of sources whose values have bounds.

Privacy: none; nothing in here has seen data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from sqlglot import exp

from dpsql.queries import moments
from dpsql.queries.ranges import (
    INF,
    NUMBER,
    TRUTH,
    UNKNOWN,
    Range,
    absolute,
    hull,
    made,
    monotone,
    rounded,
    truncated,
)

Extent = Callable[[exp.Expression], Range]
Rule = Callable[[Extent, Sequence[exp.Expression]], Range]
_LAST_LETTER = 1_114_111.0


def _increasing(function: Callable[[float], float], least: float = -INF, limits: tuple[float, float] = (-INF, INF)) -> Rule:
    return lambda extent, given: monotone(extent(given[0]), function, least, limits=limits)


def _fixed(lower: float, upper: float, *, whole: bool = False, sort: str = "number") -> Rule:
    value = Range(lower, upper, whole, sort)
    return lambda extent, given: value


def _cube_root(x: float) -> float:
    return math.copysign(abs(x) ** (1 / 3), x)


def _rounding(*, down: bool, up: bool) -> Rule:
    def rule(extent: Extent, given: Sequence[exp.Expression]) -> Range:
        value = extent(given[0])
        made = rounded(value, _digits(given), down, up)
        return made if (down and up) or value.sort == "unknown" else replace(made, sort="number")  # floor makes a DOUBLE of INTEGER

    return rule


def _digits(given: Sequence[exp.Expression]) -> int:
    return int(given[1].name) if len(given) > 1 and isinstance(given[1], exp.Literal) and given[1].name.isdigit() else 0


def _truncating(extent: Extent, given: Sequence[exp.Expression]) -> Range:
    value = extent(given[0])
    return truncated(value, _digits(given)) if value.sort == "unknown" else replace(truncated(value, _digits(given)), sort="number")


def _sign(extent: Extent, given: Sequence[exp.Expression]) -> Range:
    value = extent(given[0])
    if not value.integer:  # of NaN it is 0
        value = hull(replace(value, sort="number"), Range(0.0, 0.0))
    return Range(-1.0 if value.lower < 0 else 0.0 if value.lower == 0 else 1.0, _upper_sign(value.upper), True, "integer")


def _upper_sign(value: float) -> float:
    return 1.0 if value > 0 else 0.0 if value == 0 else -1.0


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


def _hull(extent: Extent, given: Sequence[exp.Expression]) -> Range:
    values = [extent(g) for g in given]
    return hull(values[0], *values[1:])


def _turned(factor: float) -> Rule:
    return _increasing(lambda x: x * factor)


# -- texts ------------------------------------------------------------------------------------------------------------------


def longest(node: exp.Expression) -> float:
    """Return how many characters a text has at most, as far as its expression tells."""
    while isinstance(node, exp.Paren):
        node = node.this
    if isinstance(node, exp.Null):
        return 0.0
    if isinstance(node, exp.Literal):
        return float(len(node.name))
    if isinstance(node, exp.DPipe):
        return longest(node.this) + longest(node.expression)
    if isinstance(node, exp.Case):
        branches = [b.args["true"] for b in node.args["ifs"]] + [d for d in [node.args.get("default")] if d is not None]
        return max(longest(b) for b in branches)
    if not isinstance(node, exp.Anonymous):
        return INF
    name, given = str(node.this).lower(), node.expressions
    if name in _TEXTS_OF:
        return _TEXTS_OF[name]
    if name in ("left", "right", "substring", "substr") and len(given) == (3 if name.startswith("sub") else 2):
        most = float(given[-1].name) if isinstance(given[-1], exp.Literal) and given[-1].name.isdigit() else INF
        return min(most, longest(given[0]))
    if name in ("trim", "ltrim", "rtrim", "reverse", "split_part", "regexp_extract") and given:
        return longest(given[0])
    if name in ("concat", "coalesce", "ifnull"):
        return sum(map(longest, given)) if name == "concat" else max(map(longest, given))
    return INF


_TEXTS_OF = {"md5": 32.0, "sha256": 64.0, "dayname": 9.0, "monthname": 9.0}


def _letters(factor: float) -> Rule:
    return lambda extent, given: Range(0.0, factor * longest(given[0]), True, "integer")


CALLS: dict[str, Rule] = {
    "abs": lambda extent, given: absolute(extent(given[0])),
    "sign": _sign,
    **dict.fromkeys(("ceil", "ceiling"), _rounding(down=False, up=True)),
    "floor": _rounding(down=True, up=False),
    "round": _rounding(down=True, up=True),
    "trunc": _truncating,
    "exp": _increasing(math.exp, limits=(0.0, INF)),
    "sqrt": _increasing(math.sqrt, 0.0),
    "cbrt": _increasing(_cube_root),
    "ln": _increasing(math.log, 0.0),
    **dict.fromkeys(("log", "log10"), _increasing(math.log10, 0.0)),
    "log2": _increasing(math.log2, 0.0),
    "degrees": _turned(180 / math.pi),
    "radians": _turned(math.pi / 180),
    "atan": _increasing(math.atan, limits=(-math.pi / 2, math.pi / 2)),
    **dict.fromkeys(("sin", "cos"), _fixed(-1.0, 1.0)),
    "asin": lambda extent, given: made(-math.pi / 2, math.pi / 2),
    "acos": lambda extent, given: made(0.0, math.pi),
    "atan2": lambda extent, given: made(-math.pi, math.pi),
    "greatest": lambda extent, given: _extreme(extent, given, most=True),
    "least": lambda extent, given: _extreme(extent, given, most=False),
    "coalesce": _hull,
    "last_day": lambda extent, given: moments.last_day(extent(given[0])),
    **dict.fromkeys(
        ("isnan", "isinf", "isfinite", "contains", "starts_with", "ends_with", "prefix", "suffix", "regexp_matches",
         "regexp_full_match", "list_contains"),
        _fixed(TRUTH.lower, TRUTH.upper, whole=True),
    ),
    **dict.fromkeys(("length", "len", "char_length", "character_length", "strpos", "instr"), _letters(1.0)),
    "strlen": _letters(4.0),  # bytes of UTF-8
    "bit_length": _letters(32.0),
    **dict.fromkeys(("ascii", "ord", "unicode"), _fixed(-1.0, _LAST_LETTER, whole=True, sort="integer")),
    "timezone": lambda extent, given: moments.in_zone(given[0].name, extent(given[1])) if len(given) > 1 else UNKNOWN,
    **dict.fromkeys(("strptime", "try_strptime"), _fixed(-INF, INF, sort="timestamp")),
}
"""Function -> range of a call from the ranges of its arguments."""
