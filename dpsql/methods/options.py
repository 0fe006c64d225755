"""Options and arguments that methods are called with: unknown and impossible ones are refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeGuard

import numpy as np

from dpsql.errors import ArgumentError


def chosen_options(known: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return a method's options, the defaults filled in.

    Parameters
    ----------
    known : mapping
        Every option with its default value.

    Raises
    ------
    ArgumentError
        An option is given that the method does not have.

    Examples
    --------
    >>> chosen_options({"classes": "auto", "pull": 1.0}, {"pull": 2.0})
    {'classes': 'auto', 'pull': 2.0}
    """
    for option in options:
        if option not in known:
            raise ArgumentError("options", option, f"not an option; there are {', '.join(map(repr, known))}")
    return {**known, **options}


def check_choices(chosen: Mapping[str, Any], allowed: Mapping[str, Iterable[str]]) -> None:
    """Refuse an option, with an ArgumentError, whose value is none of those that it can have.

    Examples
    --------
    >>> check_choices({"output": "decoded"}, {"output": ("decoded", "one_hot")})
    """
    for option, values in allowed.items():
        value, words = chosen[option], tuple(values)
        if not isinstance(value, str) or value not in words:
            raise ArgumentError(option, value, f"one of {', '.join(map(repr, words))}")


def is_number(value: object, least: float, most: float) -> TypeGuard[int | float]:
    """Return whether this is a number of this range, and no truth value.

    Examples
    --------
    >>> is_number(0.5, 0, 1), is_number(True, 0, 1), is_number(float("nan"), 0, 1)
    (True, False, False)
    """
    return isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most


def is_whole(value: object, least: int, most: int) -> TypeGuard[int]:
    """Return whether this is a whole number of this range, and no truth value.

    Examples
    --------
    >>> is_whole(3, 1, 10), is_whole(3.0, 1, 10), is_whole(0, 1, 10)
    (True, False, False)
    """
    return isinstance(value, int) and is_number(value, least, most)


def row_count(rows: object) -> int:
    """Return the number of rows that are to be drawn, with an ArgumentError where it is none.

    Examples
    --------
    >>> row_count(3)
    3
    """
    if isinstance(rows, bool) or not isinstance(rows, int | np.integer) or rows < 0:
        raise ArgumentError("rows", rows, "a whole number of at least 0")
    return int(rows)
