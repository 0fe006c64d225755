"""Ranges of values and the arithmetic on them: what the operators of SQL make of values between bounds.

Privacy: none; nothing in here has seen data.

References
----------
Moore, Kearfott and Cloud, Introduction to Interval Analysis, 2009.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

INF = math.inf
DAY = 86_400.0
TEMPORAL = ("date", "timestamp", "instant")
"""Sorts of moments."""
_STEPS = 4
"""Doubles by which an end that is no whole number is moved outwards: functions of the C library and of Python differ by fewer."""
_EXACT = 2.0**53


@dataclass(frozen=True)
class Range:
    """The values that an expression can have where it is not NULL and not NaN; both of these are always possible.

    Parameters
    ----------
    lower, upper : float
        May be infinite where nothing is known. Numbers as they are; dates in days, timestamps in seconds since 1970-01-01.
    whole : bool
        Every value is a whole number (in these units).
    sort : {'number', 'integer', 'date', 'timestamp', 'instant', 'time', 'unknown', 'nothing'}
        'integer': of a type of whole numbers, so that ``//`` cuts. 'instant': TIMESTAMP WITH TIME ZONE. 'time': a time of day, in
        seconds since midnight. 'unknown': the type is not
        known, or is none that has bounds. 'nothing': always NULL.
    """

    lower: float
    upper: float
    whole: bool = False
    sort: str = "number"

    @property
    def finite(self) -> bool:
        """Whether both bounds are known."""
        return math.isfinite(self.lower) and math.isfinite(self.upper)

    @property
    def empty(self) -> bool:
        """Whether only NULL is possible."""
        return self.sort == "nothing"

    @property
    def integer(self) -> bool:
        """Whether it is of a type of whole numbers."""
        return self.sort == "integer"


UNKNOWN = Range(-INF, INF, False, "unknown")
NOTHING = Range(INF, -INF, True, "nothing")
NUMBER = Range(-INF, INF)
TRUTH = Range(0.0, 1.0, True)
"""Of BOOLEAN: false is 0."""


def alike(first: str, second: str) -> bool:
    """Return whether ranges of two sorts are of one kind: numbers, moments, times of day."""
    return first == second or (first in TEMPORAL) == (second in TEMPORAL) and "time" not in (first, second)


def made(lower: float, upper: float, *, whole: bool = False, sort: str = "number") -> Range:
    """Return a range between two computed ends, moved outwards by the rounding of floating-point numbers.

    An end that is a whole number is kept: rounding is monotone, and whole numbers up to 2**53 are doubles.
    """
    lower = -INF if math.isnan(lower) or lower == INF else lower
    upper = INF if math.isnan(upper) or upper == -INF else upper
    return Range(_moved(lower, -INF), _moved(upper, INF), whole, sort)


def _moved(end: float, towards: float) -> float:
    if not math.isfinite(end) or (end == math.floor(end) and abs(end) <= _EXACT):
        return end
    for _ in range(_STEPS):
        end = math.nextafter(end, towards)
    return end


def as_sort(value: Range, sort: str) -> Range:
    """Return a range of moments in the units of another temporal sort; the local time of an instant is known to a day."""
    if value.sort == sort or value.sort not in TEMPORAL or sort not in TEMPORAL:
        return value
    factor = DAY if value.sort == "date" else 1.0
    lower, upper = value.lower * factor, value.upper * factor
    if "instant" in (value.sort, sort):
        lower, upper = lower - DAY, upper + DAY
    divisor = DAY if sort == "date" else 1.0
    whole = value.whole and value.sort == "date" and sort == "timestamp"
    return Range(lower / divisor, upper / divisor, whole, sort)


def hull(first: Range, *others: Range) -> Range:
    """Return the range of values that lie in any of these."""
    out = first
    for each in others:
        out = _hull(out, each)
    return out


def _hull(a: Range, b: Range) -> Range:
    if a.empty or b.empty:
        return b if a.empty else a
    if a.sort != b.sort:
        if a.sort in TEMPORAL and b.sort in TEMPORAL:
            sort = "instant" if "instant" in (a.sort, b.sort) else "timestamp"
            a, b = as_sort(a, sort), as_sort(b, sort)
        elif {a.sort, b.sort} == {"number", "integer"}:
            a, b = replace(a, sort="number"), replace(b, sort="number")
        else:
            return UNKNOWN
    return Range(min(a.lower, b.lower), max(a.upper, b.upper), a.whole and b.whole, a.sort)


def meet(value: Range, limit: Range | None) -> Range:
    """Return the values of a range that also lie within a limit; its own units and type are kept. Where none do, the range."""
    if limit is None or value.empty or limit.empty or limit.sort == "unknown":
        return value
    if value.sort == "unknown":
        return replace(limit, lower=max(value.lower, limit.lower), upper=min(value.upper, limit.upper))
    if not alike(value.sort, limit.sort):
        return value
    limit = as_sort(limit, value.sort)
    lower, upper = max(value.lower, limit.lower), min(value.upper, limit.upper)
    whole = value.whole or (limit.whole and value.sort == limit.sort)
    if whole:
        lower, upper = _ceil(lower), _floor(upper)
    return Range(lower, upper, whole, value.sort) if lower <= upper else value


def _floor(value: float) -> float:
    return float(math.floor(value)) if math.isfinite(value) else value


def _ceil(value: float) -> float:
    return float(math.ceil(value)) if math.isfinite(value) else value


# -- operators --------------------------------------------------------------------------------------------------------------


def plus(a: Range, b: Range) -> Range:
    """Return the range of ``a + b``, of numbers."""
    return _between("+", [(a.lower, b.lower)], [(a.upper, b.upper)], whole=a.whole and b.whole, sort=_joint(a, b))


def minus(a: Range, b: Range) -> Range:
    """Return the range of ``a - b``, of numbers, or of moments in the same units."""
    return _between("+", [(a.lower, -b.upper)], [(a.upper, -b.lower)], whole=a.whole and b.whole, sort=_joint(a, b))


def negated(a: Range) -> Range:
    """Return the range of ``-a``."""
    return Range(-a.upper, -a.lower, a.whole, a.sort)


def times(a: Range, b: Range) -> Range:
    """Return the range of ``a * b``."""
    pairs = [(x, y) for x in (a.lower, a.upper) for y in (b.lower, b.upper)]
    return _between("*", pairs, pairs, whole=a.whole and b.whole, sort=_joint(a, b))


_Pairs = Sequence[tuple[float, float]]


def _between(symbol: str, lower: _Pairs, upper: _Pairs, *, whole: bool = False, sort: str = "number") -> Range:
    """Return the range from the smallest to the largest result of an operator, each moved outwards unless it is exact."""
    lows = [_result(symbol, x, y, -INF) for x, y in lower]
    highs = [_result(symbol, x, y, INF) for x, y in upper]
    return Range(min(lows), max(highs), whole, sort)


def _result(symbol: str, x: float, y: float, towards: float) -> float:
    if symbol == "*" and 0 in (x, y):
        return 0.0
    if symbol == "/" and math.isinf(y):
        return 0.0 if math.isfinite(x) else towards
    nearest = x + y if symbol == "+" else x * y if symbol == "*" else x / y
    if math.isnan(nearest) or not (math.isfinite(x) and math.isfinite(y)):
        return towards if math.isnan(nearest) else nearest
    if math.isinf(nearest):
        return nearest
    first, second = Fraction(x), Fraction(y)
    exact = first + second if symbol == "+" else first * second if symbol == "*" else first / second
    return nearest if exact == nearest else _moved(nearest, towards)


def over(a: Range, b: Range) -> Range:
    """Return the range of ``a / b``, which is NULL where b is 0: infinite where b can come near 0."""
    if b.whole and b.lower <= 0 <= b.upper:  # the nearest values to 0 are -1 and 1
        parts = [Range(b.lower, -1.0), Range(1.0, b.upper)]
        return hull(*(_over(a, part) for part in parts if part.lower <= part.upper)) if b.lower < 0 or b.upper > 0 else NOTHING
    if b.lower <= 0 <= b.upper:
        return NUMBER
    return _over(a, b)


def _over(a: Range, b: Range) -> Range:
    pairs = [(x, y) for x in (a.lower, a.upper) for y in (b.lower, b.upper)]
    return _between("/", pairs, pairs)


def cut_over(a: Range, b: Range) -> Range:
    """Return the range of ``a // b``: cut towards 0 for types of whole numbers, plain division for the others."""
    real = over(a, b)
    if real.empty:
        return real
    lower = min(real.lower, _trunc(real.lower))
    upper = max(real.upper, _trunc(real.upper))
    if a.integer and b.integer:  # cutting is monotone
        return Range(_trunc(real.lower), _trunc(real.upper), True, "integer")
    return Range(lower, upper)


def _trunc(value: float) -> float:
    return float(math.trunc(value)) if math.isfinite(value) else value


def remainder(a: Range, b: Range) -> Range:
    """Return the range of ``a % b``, which has the sign of a and is smaller than b."""
    whole = a.whole and b.whole
    largest = max(abs(b.lower), abs(b.upper))
    if whole:
        largest = max(largest - 1.0, 0.0)
    lower = 0.0 if a.lower >= 0 else max(a.lower, -largest)
    upper = 0.0 if a.upper <= 0 else min(a.upper, largest)
    return Range(lower, upper, whole, _joint(a, b))


def absolute(a: Range) -> Range:
    """Return the range of ``abs(a)``."""
    top = max(abs(a.lower), abs(a.upper))
    bottom = 0.0 if a.lower <= 0 <= a.upper else min(abs(a.lower), abs(a.upper))
    return Range(bottom, top, a.whole, a.sort)


def power(a: Range, n: float) -> Range:
    """Return the range of ``a`` to a constant power; where a is negative and n is no whole number, there is no value."""
    if n == 0:
        return Range(1.0, 1.0, True)
    odd_or_even = n == math.floor(n)
    if not odd_or_even:
        a = Range(max(a.lower, 0.0), max(a.upper, 0.0))
    if n < 0 and a.lower <= 0 <= a.upper:
        return NUMBER
    if odd_or_even and n % 2 == 0:
        a = absolute(a)
    ends = [_power(a.lower, n), _power(a.upper, n)]
    return made(min(ends), max(ends), whole=a.whole and n > 0 and odd_or_even)


def _power(x: float, n: float) -> float:
    try:
        return float(x**n)
    except OverflowError:
        return math.copysign(INF, x) if n % 2 == 1 else INF


def monotone(
    a: Range, function: Callable[[float], float], least: float = -INF, *, limits: tuple[float, float] = (-INF, INF)
) -> Range:
    """Return the range of an increasing function.

    Parameters
    ----------
    function : callable
        Its value at a finite number that is above ``least`` (or at it, where it has a value there).
    least : float
        It is NULL below.
    limits : tuple of float
        What it comes near at ``least`` (or minus infinity) and at infinity.
    """
    if a.upper < least:
        return NOTHING

    def at(x: float, limit: float) -> float:
        if math.isinf(x):
            return limit
        try:
            return function(x)
        except (ValueError, OverflowError):
            return limit

    return made(at(max(a.lower, least), limits[0]), at(a.upper, limits[1]))


def rounded(a: Range, digits: int, down: bool = True, up: bool = True) -> Range:
    """Return the range after rounding to a grid of 10**-digits.

    ``down`` only is floor, ``up`` only is ceil, both is to the nearest value, halves in either direction.
    """
    unit = 10.0**-digits
    nearest = down and up

    def end(value: float, upper: bool) -> float:
        if not math.isfinite(value) or digits > 15:
            return value
        steps = float(f"{value * 10.0**digits:.15g}")  # 0.1 is one step of 0.1
        if nearest:
            steps = math.floor(steps + 0.5) if upper else math.ceil(steps - 0.5)
        else:
            steps = math.floor(steps) if down else math.ceil(steps)
        return float(f"{steps * unit:.15g}")

    if digits > 15:
        return made(a.lower - unit, a.upper + unit, whole=a.whole, sort=a.sort)
    return Range(end(a.lower, False), end(a.upper, True), a.whole or digits <= 0, a.sort)


def truncated(a: Range, digits: int) -> Range:
    """Return the range after digits are cut: floor above 0, ceil below."""
    low, high = rounded(a, digits, down=a.lower >= 0, up=a.lower < 0), rounded(a, digits, down=a.upper >= 0, up=a.upper < 0)
    return Range(low.lower, high.upper, a.whole or digits <= 0, a.sort)


def _joint(a: Range, b: Range) -> str:
    return "integer" if a.integer and b.integer else "number"
