"""From what a custodian declares of a column to its public domain. Nothing in here sees data.

What may be declared: ``lower`` and ``upper`` with an optional number of ``bins``; or ``edges``; or ``categories``. ENUM and
BOOLEAN columns declare themselves by their type.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np

from dpsql.domains import sqltypes
from dpsql.domains.attributes import OTHER_LABEL, OUTSIDE, Attribute
from dpsql.domains.calendar import calendar_marks
from dpsql.domains.sqltypes import SqlType
from dpsql.errors import ArgumentError, DomainError

MAX_VALUES = 100_000
MAX_BINS = 10_000  # a bin is a branch of the SQL that encodes; a category is an entry of a hash table
MOST_AUTOMATIC = 24
"""Bins of a column that says nothing of them, at most: they are cut from a fine histogram, bought with a release."""


def declare(
    name: str,
    sql_type: str,
    *,
    nullable: bool,
    lower: object = None,
    upper: object = None,
    bins: object = None,
    edges: Sequence[object] | None = None,
    categories: Sequence[object] | None = None,
    outside: str = "clamp",
    calendar: str | None = None,
) -> Attribute:
    """Build the public domain of a column.

    Parameters
    ----------
    name : str
        Column name.
    sql_type : str
        The column's type, as DuckDB spells it.
    nullable : bool
        Whether NULL is a value of its own.
    lower, upper : number, or ISO date or timestamp (text or Python value)
        Public bounds, lower < upper. Numeric bins are ``numpy.linspace(lower, upper, bins + 1)``; dates get bins of whole days,
        timestamps of whole microseconds (seconds and milliseconds for TIMESTAMP_S and TIMESTAMP_MS), as equal as those allow.
    bins : int, 1 to 10,000
        Without it bins are automatic: cut to fit from a fine histogram that every release buys; at most 24, fewer where the
        range has fewer values (integers, days, ...). Where each value has a bin of its own, nothing is bought.
    edges : list of numbers or ISO texts, strictly increasing, at least 2
        Bin i is [edges[i], edges[i + 1]); the last one includes its right edge.
    categories : list
        Distinct values, none of them NULL, as DuckDB writes values of the column's type; their order is kept.
        `dpsql.domains.encoding.canonical_categories` turns 1 into '1.0' for a DOUBLE column, and so on.
    outside : {'clamp', 'other', 'drop'}
        What becomes of values outside the domain; see `dpsql.domains.attributes.Attribute`.
    calendar : {'hour', 'day', 'week', 'month', 'quarter', 'year'}, optional
        Bins of a date or timestamp that end where the calendar's do, between ``lower`` and ``upper``; weeks begin on Monday.

    Raises
    ------
    ArgumentError
        An argument is missing, malformed or contradicts another one.
    DomainError
        The declaration does not fit the column's type, or is empty.

    Notes
    -----
    Privacy: the caller vouches that bounds and lists are public knowledge. Nothing is read.

    Examples
    --------
    >>> declare("age", "INTEGER", nullable=False, lower=0, upper=120, bins=24).edges[:3]
    (0.0, 5.0, 10.0)
    >>> declare("sex", "VARCHAR", nullable=True, categories=["Female", "Male"]).size
    3
    """
    parsed = sqltypes.parse(sql_type)
    _check_choice(
        name, parsed, nullable, outside, {"lower": lower, "upper": upper, "bins": bins, "edges": edges, "categories": categories}
    )
    if calendar is not None and (lower is None or bins is not None or edges is not None or categories is not None):
        raise ArgumentError("calendar", calendar, "makes bins between lower and upper: name these two, and no bins or edges")
    if categories is not None:
        values = _categories(name, parsed, categories, outside)
        return Attribute(name, sql_type, "categorical", categories=values, nullable=nullable, outside=outside)
    if lower is None and edges is None:
        found = self_declared(name, sql_type, nullable, outside)
        if found is None:
            raise ArgumentError(
                "categories",
                None,
                f"column {name!r} is {sql_type}: declare categories := [...], edges := [...], or lower and upper",
            )
        return found
    if not parsed.binned:
        raise DomainError(
            f"column {name!r} is {sql_type}, which has no bins: declare categories := [...], or CAST it to a number or date"
        )
    if calendar is not None:
        edges = _calendar_edges(parsed, calendar, lower, upper)
        lower = upper = None
    found_edges = (
        _temporal(parsed, lower, upper, bins, edges) if parsed.kind == "temporal" else _numeric(parsed, lower, upper, bins, edges)
    )
    _check_filled(name, parsed, found_edges, by_bounds=edges is None)
    automatic = bins is None and edges is None and has_inside(parsed, found_edges)
    return Attribute(name, sql_type, parsed.kind, edges=found_edges, nullable=nullable, outside=outside, automatic=automatic)


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


def self_declared(name: str, sql_type: str, nullable: bool, outside: str = "clamp") -> Attribute | None:
    """Return the domain that an ENUM or BOOLEAN column has by its type, else None.

    Examples
    --------
    >>> self_declared("smoker", "BOOLEAN", False).categories
    ('false', 'true')
    """
    parsed = sqltypes.parse(sql_type)
    values = ("false", "true") if parsed.family == "boolean" else parsed.members
    if not values:
        return None
    return Attribute(name, sql_type, "categorical", categories=values, nullable=nullable, outside=outside)


def _check_choice(name: str, parsed: SqlType, nullable: object, outside: object, given: dict[str, object]) -> None:
    """Refuse contradictory sets of arguments."""
    if outside not in OUTSIDE:
        raise ArgumentError("outside", outside, f"must be one of {', '.join(map(repr, OUTSIDE))}")
    if not isinstance(nullable, bool):
        raise ArgumentError("nullable", nullable, "must be true or false")
    if parsed.family == "other":
        raise DomainError(
            f"column {name!r} is {parsed.text}, which cannot have a domain; in a view, cast it to a text, number or date, "
            "or take one field of it"
        )
    used = {key for key, value in given.items() if value is not None}
    ways = [way for way in ({"lower", "upper", "bins"}, {"edges"}, {"categories"}) if used & way]
    if len(ways) > 1:
        raise ArgumentError(
            sorted(used & ways[1])[0],
            given[sorted(used & ways[1])[0]],
            f"contradicts {sorted(used & ways[0])[0]}: declare lower and upper (with bins), or edges, or categories",
        )
    if ways and ways[0] == {"lower", "upper", "bins"} and not {"lower", "upper"} <= used:
        missing = "lower" if "lower" not in used else "upper"
        raise ArgumentError(missing, None, f"both bounds are needed for column {name!r}: lower := ..., upper := ...")


def _categories(name: str, parsed: SqlType, values: object, outside: str) -> tuple[str, ...]:
    """Return the canonical texts of a declared list."""
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise ArgumentError("categories", values, "a list is required, e.g. ['Female', 'Male']")
    if not values:
        raise DomainError(f"categories = []: column {name!r} needs at least one category")
    if len(values) > MAX_VALUES:
        raise DomainError(f"categories of column {name!r}: at most {MAX_VALUES} are supported, {len(values)} were given")
    if any(value is None for value in values):
        raise ArgumentError("categories", list(values)[:10], "NULL cannot be listed; nullable := true makes it a value of its own")
    texts = [category_text(value) for value in values]
    seen: dict[str, object] = {}
    for text, value in zip(texts, values, strict=True):
        if text in seen:
            raise ArgumentError(
                "categories", [seen[text], value], f"both are {text!r} in a column of type {parsed.text}; list every category once"
            )
        seen[text] = value
    if outside == "other" and parsed.family == "text" and OTHER_LABEL in seen:
        raise ArgumentError("categories", OTHER_LABEL, "is what outside := 'other' writes; remove it or use outside := 'clamp'")
    return tuple(texts)


def category_text(value: object) -> str:
    """Return the text of one declared category, before DuckDB casts it to the column's type.

    Raises
    ------
    ArgumentError
        It is not a scalar, not a number, or a text that SQL cannot hold.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and not math.isfinite(value):
        raise ArgumentError("categories", value, "a finite value is required; NaN counts as NULL: nullable := true")
    if isinstance(value, (int, float, Decimal)):
        return str(value)
    text = str(value) if hasattr(value, "isoformat") else value
    if not isinstance(text, str):
        raise ArgumentError("categories", value, "texts, numbers, booleans and dates are supported")
    if "\0" in text or not text.isascii() and any("\ud800" <= c <= "\udfff" for c in text):
        raise ArgumentError("categories", value, "a text without NUL characters and in valid Unicode is required")
    return text


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
        found = float(value)
    except OverflowError:
        found = math.inf
    if not math.isfinite(found):
        raise ArgumentError(argument, value, "a finite number is required")
    return found + 0.0  # -0.0 becomes 0.0


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
        found = [_number("edges", edge) for edge in _list(edges)]
        _increasing(found)
        return tuple(found)
    low, high = _number("lower", lower), _number("upper", upper)
    if low >= high:
        raise ArgumentError("lower", lower, f"must be below upper = {upper!r}")
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
    count = min(_count(bins), high - low) if bins is None else _count(bins)
    if count > high - low:
        raise ArgumentError("bins", bins, f"at most {high - low} for a {parsed.text} between these bounds, so that no bin is empty")
    return tuple(sqltypes.step_text(parsed, low + (i * (high - low)) // count) for i in range(count + 1))


def _calendar_edges(parsed: SqlType, calendar: str, lower: object, upper: object) -> list[object]:
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


def _increasing(edges: Sequence[float]) -> None:
    for a, b in itertools.pairwise(edges):
        if a >= b:
            raise ArgumentError("edges", [a, b], "edges must increase strictly; sort them and list each once")


def _check_filled(name: str, parsed: SqlType, edges: tuple[float, ...] | tuple[str, ...], *, by_bounds: bool) -> None:
    """Refuse bins that no value of the column's type can fall into: they would get noise and could not be decoded."""
    empty = empty_bin(parsed, edges)
    if empty is None:
        return
    what = (
        f"column {name!r}: no {parsed.text} lies in bin {empty + 1} of {len(edges) - 1}, from {edges[empty]} to {edges[empty + 1]}"
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
    found = [*edges]
    while len(found) > 2 and (empty := empty_bin(parsed, found)) is not None:
        del found[empty + 1 if empty + 2 < len(found) else empty]
    return found
