"""From what a custodian declares of a column to its public domain. Nothing in here sees data.

What may be declared: ``lower`` and ``upper`` with an optional number of ``bins``; or ``edges``; or ``categories``. ENUM and
BOOLEAN columns declare themselves by their type.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal

from dpsql.domains import sqltypes
from dpsql.domains.attributes import OTHER_LABEL, OUTSIDE, Attribute
from dpsql.domains.edges import calendar_edges, check_filled, declared_edges, has_inside
from dpsql.domains.sqltypes import SqlType
from dpsql.errors import ArgumentError, DomainError

MAX_VALUES = 100_000


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
    rounded: bool = False,
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

    rounded : bool
        Whether bounds that double precision does not hold may be rounded, as those of a CHECK constraint are.

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
    # Types of few values, such as truth values and enumerations, declare themselves.
    if lower is None and edges is None:
        attribute = self_declared(name, sql_type, nullable, outside)
        if attribute is None:
            raise ArgumentError(
                "categories",
                None,
                f"column {name!r} is {sql_type}: declare categories := [...], edges := [...], or lower and upper",
            )
        return attribute
    if not parsed.binned:
        raise DomainError(
            f"column {name!r} is {sql_type}, which has no bins: declare categories := [...], or CAST it to a number or date"
        )
    if calendar is not None:
        edges = calendar_edges(parsed, calendar, lower, upper)
        # The calendar has made edges of them.
        lower = upper = None
    bin_edges = declared_edges(parsed, lower, upper, bins, edges, rounded=rounded)
    check_filled(name, parsed, bin_edges, by_bounds=edges is None)
    # Bounds alone: where the bins end is left to the fine histogram of a release.
    automatic = bins is None and edges is None and has_inside(parsed, bin_edges)
    return Attribute(name, sql_type, parsed.kind, edges=bin_edges, nullable=nullable, outside=outside, automatic=automatic)


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


def _check_choice(name: str, parsed: SqlType, nullable: object, outside: object, arguments: dict[str, object]) -> None:
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
    # The three ways to declare a column exclude each other.
    used = {key for key, value in arguments.items() if value is not None}
    ways = [way for way in ({"lower", "upper", "bins"}, {"edges"}, {"categories"}) if used & way]
    if len(ways) > 1:
        raise ArgumentError(
            sorted(used & ways[1])[0],
            arguments[sorted(used & ways[1])[0]],
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
