"""From declared bounds, bins, edges or a calendar to the edges of bins, none of which is without a value of the column's type.

Privacy: none; declared bounds and edges are public. Nothing in here sees data.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from dpsql.domains import sqltypes
from dpsql.domains.calendar import calendar_marks
from dpsql.domains.sqltypes import SqlType
from dpsql.errors import ArgumentError, DomainError

MAX_BINS = 10_000  # a bin is a branch of the SQL that encodes; a category is an entry of a hash table
MOST_AUTOMATIC = 24
"""Bins of a column that says nothing of them, at most: they are cut from a fine histogram, bought with a release."""

_EXACT = 1 << 53
"""Below it every whole number is a double."""
_APART = "bounds and edges are kept as doubles: take numbers that lie further apart"

HUGE = 2**63
"""Whole numbers from here on may be bounds as their nearest double."""


def declared_edges(
    parsed: SqlType, lower: object, upper: object, bins: object, edges: Sequence[object] | None, *, rounded: bool = False
) -> tuple[float, ...] | tuple[str, ...]:
    """Return the edges of a column's bins, ISO texts of dates and times; parameters as in `dpsql.domains.declare.declare`.

    Parameters
    ----------
    rounded : bool
        Whether numbers that double precision does not hold may be rounded to some that it holds.

    Raises
    ------
    ArgumentError, DomainError
        An argument is no number or time, out of order or out of range.
    """
    if parsed.kind == "temporal":
        return _temporal(parsed, lower, upper, bins, edges)
    numbers = _numeric(parsed, lower, upper, bins, edges)
    for argument, values in (("lower", [lower]), ("upper", [upper])) if edges is None else (("edges", edges),):
        for value in values if not rounded else ():
            _check_held(parsed, argument, value)
    return numbers


def _count(bins: object) -> int:
    """Check the number of bins, or return the default."""
    if bins is None:
        return MOST_AUTOMATIC
    if isinstance(bins, bool) or not isinstance(bins, (int, float)) or bins not in range(1, MAX_BINS + 1):
        raise ArgumentError("bins", bins, f"a whole number from 1 to {MAX_BINS} is required")
    return int(bins)


def _number(argument: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        raise ArgumentError(argument, value, "a number is required")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ArgumentError(argument, value, "a finite number is required")
    return number + 0.0  # -0.0 becomes 0.0


def _check_held(parsed: SqlType, argument: str, value: Any) -> None:
    """Refuse a whole number beyond 2^53 that double precision does not hold: its neighbour would be the bound, without a word.

    The ends of a type are held as the nearest double, beyond which the type has no value; so are numbers beyond 64 bits, where
    whoever writes 10^30 does not mean its last digits.
    """
    exact = Fraction(value)
    steps = exact * 10**parsed.scale if parsed.family == "decimal" else exact
    if exact.denominator > 1 or abs(exact) >= HUGE or (parsed.family != "float" and steps in (parsed.low, parsed.high)):
        return
    near = neighbours(int(exact))
    if near is not None:
        raise ArgumentError(argument, value, f"is no number of double precision, in which bounds are kept: take {near}")


def neighbours(whole: int) -> str | None:
    """Return the two doubles around a whole number, as text; None if it is one itself.

    Examples
    --------
    >>> neighbours(2**53 + 1), neighbours(2**60)
    ('9007199254740992 or 9007199254740994', None)
    """
    near = float(whole)
    if int(near) == whole:
        return None
    beyond = math.nextafter(near, math.inf if near < whole else -math.inf)
    return " or ".join(str(int(number)) for number in sorted((near, beyond)))


def _exact(value: Any) -> Any:
    """Return a checked number for comparisons: whole numbers of any length stay what they are, beyond 2^53 too."""
    return value if isinstance(value, int) else float(value)


def _shown(parsed: SqlType, edge: float | str) -> str:
    """Return an edge for a message: of a column of whole numbers with all digits where Python would round."""
    whole = parsed.family == "integer" and not isinstance(edge, str) and abs(edge) >= _EXACT
    return str(int(edge) if whole else edge)


def _list(edges: object) -> list[object]:
    if isinstance(edges, str) or not isinstance(edges, Sequence) or len(edges) < 2:
        raise ArgumentError("edges", edges, "a list of two or more strictly increasing edges is required, e.g. [0, 18, 65, 120]")
    if any(edge is None for edge in edges):
        raise ArgumentError("edges", list(edges), "an edge is NULL; every edge needs a value")
    if len(edges) > MAX_BINS + 1:
        raise DomainError(f"edges: at most {MAX_BINS} bins are supported, {len(edges) - 1} were given")
    return list(edges)


def _numeric(parsed: SqlType, lower: object, upper: object, bins: object, edges: Sequence[object] | None) -> tuple[float, ...]:
    """Return the edges of a numeric column."""
    if edges is not None:
        listed = _list(edges)
        numbers = [_number("edges", edge) for edge in listed]
        _increasing([_exact(edge) for edge in listed])
        for a, b, left, right in zip(numbers[:-1], numbers[1:], listed[:-1], listed[1:], strict=True):
            if a == b:
                raise ArgumentError("edges", [left, right], f"are both {_shown(parsed, a)} in double precision; {_APART}")
        return tuple(numbers)
    low, high = _number("lower", lower), _number("upper", upper)
    if _exact(lower) >= _exact(upper):
        raise ArgumentError("lower", lower, f"must be below upper = {upper!r}")
    if low == high:
        raise ArgumentError("upper", upper, f"is {_shown(parsed, low)} in double precision, as lower = {lower!r} is; {_APART}")
    if bins is None and math.isinf(high - low):
        raise ArgumentError("upper", upper, f"lower = {lower!r} and upper are too far apart: their difference is no double")
    count = _count(bins)
    spaced = _spaced(low, high, count)
    if bins is None:
        # The default leaves no bin empty: fewer where the range holds fewer values of the type.
        while count > 1 and (spaced is None or empty_bin(parsed, spaced) is not None):
            count -= 1
            spaced = _spaced(low, high, count)
    if spaced is None:
        raise ArgumentError("bins", count, f"double precision has no {count} different bins between {lower!r} and {upper!r}")
    return spaced


def _spaced(low: float, high: float, count: int) -> tuple[float, ...] | None:
    """Return the edges of bins of equal width, None if double precision cannot tell them apart."""
    with np.errstate(all="ignore"):
        spaced = np.linspace(low, high, count + 1)
        distinct = np.isfinite(spaced).all() and (np.diff(spaced) > 0).all()
    return tuple(spaced.tolist()) if distinct else None


def _temporal(parsed: SqlType, lower: object, upper: object, bins: object, edges: Sequence[object] | None) -> tuple[str, ...]:
    """Return the edges of a date or time column as ISO texts."""
    if edges is not None:
        steps = [_step(parsed, "edges", edge) for edge in _list(edges)]
        _increasing(steps)
        return tuple(sqltypes.step_text(parsed, step) for step in steps)
    low, high = _step(parsed, "lower", lower), _step(parsed, "upper", upper)
    if low >= high:
        raise ArgumentError("lower", lower, f"must be before upper = {upper!r}")
    # By default no more bins than there are values; asked for, too many are refused.
    count = min(_count(bins), high - low) if bins is None else _count(bins)
    if count > high - low:
        raise ArgumentError("bins", bins, f"at most {high - low} for a {parsed.text} between these bounds, so that no bin is empty")
    return tuple(sqltypes.step_text(parsed, low + (i * (high - low)) // count) for i in range(count + 1))


def calendar_edges(parsed: SqlType, calendar: str, lower: object, upper: object) -> list[object]:
    """Return bounds and all starts of months, say, between them."""
    without = {"TIME": calendar != "hour", "DATE": calendar == "hour"}.get(parsed.text, False)
    if parsed.kind != "temporal" or without:
        raise ArgumentError("calendar", calendar, f"a {parsed.text} has no bins of that kind")
    low, high = _step(parsed, "lower", lower), _step(parsed, "upper", upper)
    if low >= high:
        raise ArgumentError("lower", lower, f"must be before upper = {upper!r}")
    marks = calendar_marks(parsed, low, high, calendar, MAX_BINS + 2)
    if len(marks) > MAX_BINS:
        raise ArgumentError("calendar", calendar, f"makes more than {MAX_BINS:,} bins between these bounds; take longer ones")
    return [sqltypes.step_text(parsed, step) for step in sorted({low, *(mark for mark in marks if low < mark < high), high})]


def _step(parsed: SqlType, argument: str, value: object) -> int:
    try:
        return sqltypes.steps_of(parsed, value)
    except (ValueError, OverflowError) as error:
        reason = str(error) if "nvalid" not in str(error) else "an ISO date or timestamp such as '2020-01-31' is required"
        raise ArgumentError(argument, value, f"not a {parsed.text} in the years 1 to 9999 ({reason})") from None


def _increasing(edges: Sequence[int | float]) -> None:
    for a, b in itertools.pairwise(edges):
        if a >= b:
            raise ArgumentError("edges", [a, b], "edges must increase strictly; sort them and list each once")


def check_filled(name: str, parsed: SqlType, edges: tuple[float, ...] | tuple[str, ...], *, by_bounds: bool) -> None:
    """Refuse bins that no value of the column's type can fall into: they would get noise and could not be decoded."""
    empty = empty_bin(parsed, edges)
    if empty is None:
        return
    low, high = (_shown(parsed, edge) for edge in edges[empty : empty + 2])
    what = (
        f"column {name!r}: no {parsed.text} lies in bin {empty + 1} of {len(edges) - 1}, from {low} to {high}"
    )
    bounds = sqltypes.grid(parsed, edges)
    if not by_bounds or bounds is None or bounds[0] >= bounds[-1]:
        raise DomainError(f"{what}; choose bounds and edges that leave a value of that type in every bin")
    # No more bins than values; a few fewer where bounds lie between two values or beyond the type's range.
    for count in range(min(bounds[-1] - bounds[0], len(edges) - 2), 0, -1):
        fewer = tuple(np.linspace(float(edges[0]), float(edges[-1]), count + 1).tolist())
        if empty_bin(parsed, fewer) is None:
            raise ArgumentError("bins", len(edges) - 1, f"{what}; bins := {count} fits these bounds")
    raise DomainError(f"{what}; choose bounds within the range of {parsed.text}")


def has_inside(parsed: SqlType, edges: tuple[float, ...] | tuple[str, ...]) -> bool:
    """Return whether a bin holds more than one value of the type.

    Examples
    --------
    >>> has_inside(sqltypes.parse("INTEGER"), (0.0, 1.0, 2.0)), has_inside(sqltypes.parse("INTEGER"), (0.0, 1.0))
    (True, True)
    >>> has_inside(sqltypes.parse("INTEGER"), (-0.5, 0.5, 1.5))
    False
    """
    bounds = sqltypes.grid(parsed, edges)
    return bounds is None or any(b - a > 1 for a, b in itertools.pairwise(bounds))


def empty_bin(parsed: SqlType, edges: Sequence[float] | Sequence[str]) -> int | None:
    """Return the first bin that no value of the type can fall into, or None."""
    if parsed.text == "DOUBLE":
        return None
    if parsed.text == "FLOAT":
        first, last = sqltypes.float32_bounds([float(edge) for edge in edges])
        bad = np.flatnonzero(~(np.isfinite(first) & np.isfinite(last) & (first <= last)))
        return int(bad[0]) if len(bad) else None
    bounds = sqltypes.grid(parsed, edges)
    return next((i for i, (a, b) in enumerate(itertools.pairwise(bounds or [])) if a >= b), None)


def without_empty_bins(parsed: SqlType, edges: Sequence[Any]) -> list[Any]:
    """Return the edges with each bin that no value of the type can fall into joined to a neighbour; the ends stay."""
    kept = [*edges]
    while len(kept) > 2 and (empty := empty_bin(parsed, kept)) is not None:
        del kept[empty + 1 if empty + 2 < len(kept) else empty]
    return kept
