"""Errors of dpsql.

Every text names the argument, the value that was given, what is allowed and the next step. An error is an output that an
adversary may read, so none of them ever carries a count, a value or a row of a protected table.
"""

from __future__ import annotations


class DpsqlError(Exception):
    """Base class of every error that dpsql raises on purpose."""


class ArgumentError(DpsqlError, ValueError):
    """An argument is missing, of the wrong type or out of range.

    Attributes
    ----------
    argument : str
        Name of the argument as the caller wrote it.
    value : object
        The value that was given.
    """

    def __init__(self, argument: str, value: object, expected: str) -> None:
        self.argument = argument
        self.value = value
        given = "is not given" if value is None else f"= {value!r}"
        super().__init__(f"{argument} {given}: {expected}")


class DomainError(DpsqlError):
    """A declared domain is missing, empty, contradictory or does not fit the column's type."""


class NotProtected(DpsqlError):
    """The source reaches no protected table, so there is no budget to charge."""


class UnsupportedQuery(DpsqlError):
    """The source is not a relation with one output row per input row of one protected table.

    Attributes
    ----------
    construct : str
        The construct that was refused, as it is written in SQL.
    """

    def __init__(self, construct: str, reason: str) -> None:
        self.construct = construct
        super().__init__(f"source refused at {construct}: {reason}")


class BudgetExceeded(DpsqlError):
    """The privacy budget of the source does not cover what was asked for; nothing was charged.

    Attributes
    ----------
    source : str
        The protected table.
    requested, remaining : float
        In the unit that does not suffice (``unit``): 'rho' for Gaussian noise under 'zcdp', else 'epsilon' or 'delta'.
    unit : str
    """

    def __init__(self, source: str, requested: float, remaining: float, unit: str, advice: str) -> None:
        self.source = source
        self.requested = requested
        self.remaining = remaining
        self.unit = unit
        super().__init__(
            f"privacy budget of {source} exceeded: the call costs {unit} = {requested:.6g}, {remaining:.6g} is left; "
            f"nothing was charged. {advice}"
        )


class ReleaseError(DpsqlError):
    """A release does not exist, was bought with other parameters, or its file is missing or damaged."""


class LedgerError(DpsqlError):
    """The books cannot be written or read, or their hash chain is broken."""


class CalibrationError(DpsqlError):
    """No noise scale within the supported range reaches the requested guarantee."""


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text: DuckDB appends the statement below it."""
    return (str(error).splitlines() or [""])[0]
