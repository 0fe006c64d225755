"""Exact numbers of the books: fractions in, decimals with 24 places out, always rounded against the caller.

A charge is rounded up and a limit is rounded down, so a release whose exact cost is at most the rounded limit also
has a rounded cost of at most that limit. No float is ever added to a float in the books.

Privacy: none of these functions sees data.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from decimal import Context, Decimal
from fractions import Fraction

from dpsql.errors import CalibrationError

PLACES = 24
"""Decimal places of rho and epsilon in the books (``DECIMAL(38, 24)`` in DuckDB)."""

DELTA_PLACES = 37
"""Decimal places of delta in the books (``DECIMAL(38, 37)``)."""

_WIDTH = 10**38
_CONTEXT = Context(prec=120)  # the default context has 28 digits and would round sums silently
_LIMIT_DIGITS = 12


def _decimal(units: int, places: int) -> Decimal:
    """Return ``units`` times 10^-places, exactly."""
    if abs(units) >= _WIDTH:
        raise CalibrationError(
            "the cost does not fit the books, which hold amounts below 1e14; ask for a smaller epsilon or more noise"
        )
    return _CONTEXT.scaleb(Decimal(units), -places)


def round_up(amount: Fraction, places: int = PLACES) -> Decimal:
    """Return the smallest decimal with this many places that is at least ``amount``.

    Raises
    ------
    CalibrationError
        The amount has more than 38 digits.

    Examples
    --------
    >>> round_up(Fraction(1, 3))
    Decimal('0.333333333333333333333334')
    """
    return _decimal(-(-amount.numerator * 10**places // amount.denominator), places)


def round_down(amount: Fraction, places: int = PLACES) -> Decimal:
    """Return the largest decimal with this many places that is at most ``amount``.

    Raises
    ------
    CalibrationError
        The amount has more than 38 digits.

    Examples
    --------
    >>> round_down(Fraction(2, 3))
    Decimal('0.666666666666666666666666')
    """
    return _decimal(amount.numerator * 10**places // amount.denominator, places)


def limit_down(amount: float) -> Decimal:
    """Return a float limit as a decimal, rounded down to 12 significant digits and 24 places.

    Twelve digits because the last bits of a float depend on the machine's libm, and a book that was full to the brim on
    one machine should not read as overdrawn on another.

    Examples
    --------
    >>> limit_down(0.0149131234567899)
    Decimal('0.014913123456700000000000')
    """
    if amount <= 0:
        return round_down(Fraction(0))
    exact = Fraction(amount)
    exponent = math.floor(math.log10(amount)) - _LIMIT_DIGITS + 1
    step = Fraction(10) ** exponent
    return round_down((exact // step) * step)


def total(amounts: Iterable[Decimal]) -> Decimal:
    """Return the exact sum of decimals.

    Examples
    --------
    >>> total([Decimal("0.1")] * 3)
    Decimal('0.3')
    """
    result = Decimal(0)
    for amount in amounts:
        result = _CONTEXT.add(result, amount)
    return result


def subtract(minuend: Decimal, subtrahend: Decimal) -> Decimal:
    """Return the exact difference of two decimals."""
    return _CONTEXT.subtract(minuend, subtrahend)
