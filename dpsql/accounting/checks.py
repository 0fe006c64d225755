"""Checks of the arguments that accounting takes from a caller: each says what is allowed. No data is seen."""

from __future__ import annotations

import math
from decimal import Decimal, InvalidOperation
from fractions import Fraction

from dpsql.accounting.exact import DELTA_PLACES, PLACES, round_down
from dpsql.errors import ArgumentError

ACCOUNTANTS = ("zcdp", "basic")
_EPSILON = "must be a positive finite number of at least 1e-24, e.g. epsilon := 1.0"
_DELTA_ZCDP = "must be above 0 and below 1 under the 'zcdp' accountant, far below 1 / (number of people), e.g. delta := 1e-9"
_DELTA_BASIC = "must be at least 0 and below 1, far below 1 / (number of people), e.g. delta := 1e-9"


def check_nonnegative(argument: str, value: float) -> None:
    """Refuse a negative number or NaN.

    Raises
    ------
    ArgumentError
        See above.
    """
    if not value >= 0:
        raise ArgumentError(argument, value, "must be a number of at least 0")


def check_delta(delta: float) -> None:
    """Refuse a delta outside [0, 1].

    Raises
    ------
    ArgumentError
        See above.
    """
    if not 0 <= delta <= 1:
        raise ArgumentError("delta", delta, "must be a probability, from 0 to 1")


def check_count(k: int) -> None:
    """Refuse a number of mechanisms below 1."""
    if k < 1:
        raise ArgumentError("k", k, "must be a number of mechanisms, at least 1")


def positive(argument: str, value: object) -> Fraction:
    """Return a positive finite number as an exact fraction; floats are taken at their exact value."""
    expected = "must be a positive finite number"
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal | Fraction):
        raise ArgumentError(argument, value, expected)
    try:
        number = Fraction(value)
    except (ValueError, OverflowError, ZeroDivisionError):
        raise ArgumentError(argument, value, expected) from None
    if number <= 0:
        raise ArgumentError(argument, value, expected)
    return number


def as_decimal(argument: str, value: object, *, low: float, high: float, expected: str, closed: bool = False) -> Decimal:
    """Return a number given by a user as the decimal it was written as.

    A float is read as its shortest decimal text: 0.1 means one tenth, so that ten releases of 0.1 fill a budget of 1.

    Parameters
    ----------
    argument : str
        Name of the argument, for the message.
    value : float, int or Decimal
        What was given. Booleans are refused.
    low, high : float
        Allowed range, without its ends; ``closed`` admits ``low`` itself.
    expected : str
        What is allowed and what to do, for the message.
    closed : bool
        Whether ``low`` is allowed.

    Raises
    ------
    ArgumentError
        Not a number, not finite or out of range.
    """
    if isinstance(value, bool):
        raise ArgumentError(argument, value, expected)
    try:
        number = value if isinstance(value, Decimal) else Decimal(repr(float(value)))  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError, InvalidOperation):
        raise ArgumentError(argument, value, expected) from None
    if not number.is_finite() or not (low < number < high or (closed and number == Decimal(low))):
        raise ArgumentError(argument, value, expected)
    return number


def whole(argument: str, value: object, expected: str) -> int:
    """Return a positive integer given by a user.

    Raises
    ------
    ArgumentError
        Not an integer, or below 1.
    """
    try:
        number = int(value)  # type: ignore[call-overload]
    except (TypeError, ValueError, OverflowError):
        raise ArgumentError(argument, value, expected) from None
    if isinstance(value, bool | str | bytes) or number != value or number < 1:
        raise ArgumentError(argument, value, expected)
    return int(number)


def mechanisms(count: object) -> int:
    """Return a number of mechanisms, which is at least 1."""
    return whole("count", count, "must be a number of mechanisms, at least 1")


def checked_accountant(accountant: object) -> str:
    """Return the name of an accountant, or raise ArgumentError."""
    if accountant not in ACCOUNTANTS:
        raise ArgumentError("accountant", accountant, f"must be one of {', '.join(map(repr, ACCOUNTANTS))}")
    return str(accountant)


def checked_guarantee(epsilon: object, delta: object, accountant: str) -> tuple[Decimal, Decimal]:
    """Return epsilon and delta as the books can hold them: 24 and 37 decimal places, rounded down (it is a limit).

    Raises
    ------
    ArgumentError
        One of them is out of range.
    """
    exact_epsilon = as_decimal("epsilon", epsilon, low=0, high=math.inf, expected=_EPSILON)
    needed = accountant == "zcdp"
    exact_delta = as_decimal("delta", delta, low=0, high=1, expected=_DELTA_ZCDP if needed else _DELTA_BASIC, closed=not needed)
    held_epsilon = round_down(Fraction(exact_epsilon), PLACES)
    held_delta = round_down(Fraction(exact_delta), DELTA_PLACES)
    if held_epsilon <= 0:
        raise ArgumentError("epsilon", epsilon, _EPSILON)
    if needed and held_delta <= 0:
        raise ArgumentError("delta", delta, _DELTA_ZCDP)
    return held_epsilon, held_delta
