"""Errors of dpsql.

Every text names the argument, the value that was given, what is allowed and the next step. An error is an output that an
adversary may read, so none of them ever carries a count, a value or a row of a protected table.
"""

from __future__ import annotations

import datetime as dt
import itertools
import re
from decimal import Decimal
from fractions import Fraction

_SHOWN, _ITEMS, _KEYS = 400, 12, 50
"""Letters of an argument that an error shows; items of a list (a longer one may be data, and is not shown), and of an object."""

_HELD = re.compile(r"Conflicting lock is held in (.*?) ?\(PID (\d+)\)")


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
    expected : str
        What is allowed, and the way out.
    """

    def __init__(self, argument: str, value: object, expected: str) -> None:
        self.argument = argument
        self.value = value.value if isinstance(value, OnlyType) else value
        self.expected = expected
        given = "is not given" if value is None else f"= {shown(value)}"
        super().__init__(f"{argument} {given}: {expected}")


class OnlyType:
    """Stands for an argument of which an error shows the type alone: a list where a text is wanted may hold rows."""

    def __init__(self, value: object) -> None:
        self.value = value


def shown(value: object) -> str:
    """Return an argument as a message may show it: plain values, cut to a bounded length; of any other object its type alone.

    A data frame that was given by mistake would print its rows.

    Examples
    --------
    >>> shown(["a", 1, None]), shown({"x": 2.5}), shown(object())
    ("['a', 1, None]", "{'x': 2.5}", 'a value of type object')
    """
    text = _plain(value, 4)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def _plain(value: object, depth: int) -> str:
    """Return plain values as Python writes them, of long ones the beginning."""
    if type(value) is str:
        return repr(value[:_SHOWN] + ("…" if len(value) > _SHOWN else ""))
    if value is None or type(value) in (bool, int, float) or isinstance(value, (Decimal, Fraction, dt.date, dt.time)):
        try:
            return repr(value)
        except ValueError:  # an integer of thousands of digits
            return f"a value of type {type(value).__name__}"
    if depth and isinstance(value, (list, tuple)) and type(value) in (list, tuple) and len(value) <= _ITEMS:
        return f"[{', '.join(_plain(item, 0) for item in value)}]"  # a list in a list may be a row
    if depth and type(value) is dict:
        pairs = [f"{_plain(k, 0)}: {_plain(v, depth - 1)}" for k, v in itertools.islice(value.items(), _KEYS)]
        return "{" + ", ".join([*pairs, *(["…"] if len(value) > _KEYS else [])]) + "}"
    return f"a value of type {type(value.value if isinstance(value, OnlyType) else value).__name__}"


class DomainError(DpsqlError):
    """A declared domain is missing, empty, contradictory or does not fit the column's type."""


class NotProtected(DpsqlError):
    """The source reaches no protected table, so there is no budget to charge."""


class UnsupportedQuery(DpsqlError):
    """The source is not a relation with one output row per input row of one protected table, or a query cannot be answered.

    Attributes
    ----------
    construct : str
        The construct that was refused, as it is written in SQL.
    reason : str
        Why, and the way out.
    argument : str
        Of the call: 'source', or 'sql' of a query.
    """

    def __init__(self, construct: str, reason: str, argument: str = "source") -> None:
        self.construct = construct
        self.reason = reason
        self.argument = argument
        super().__init__(f"{argument} refused at {construct}: {reason}")


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


class BudgetExhausted(DpsqlError):
    """The table's budget does not cover what an analyst asks for, who is told just that; nothing was charged, nor her grant."""

    def __init__(self, source: str) -> None:
        self.source = source
        super().__init__(
            f"the privacy budget of {source} does not cover this call, whatever your grant says; nothing was charged. A smaller "
            "epsilon may fit; what you have bought can be read again"
        )


class NotGranted(DpsqlError):
    """An analyst of a served database has no grant of a table: she is told what somebody is told who misspells a name."""

    def __init__(self, source: str) -> None:
        self.source = source
        super().__init__(f"source = {source!r}: no such table, or it is not granted")


class GrantExceeded(DpsqlError):
    """A grant does not cover what its analyst asks for; nothing was charged.

    Attributes
    ----------
    source : str
    requested, remaining : float
        Epsilon of the call, and what one more release can have; of her own grant, whatever others have bought.
    until : str or None
        Day on which the grant renews.
    """

    def __init__(self, source: str, requested: float, remaining: float, until: str | None, limit: str = "is left") -> None:
        self.source = source
        self.requested = requested
        self.remaining = remaining
        self.until = until
        renews = "" if until is None else f" It renews on {until} (UTC)."
        super().__init__(
            f"your grant on {source} does not cover this: the call costs epsilon = {requested:.6g}, {remaining:.6g} {limit}; "
            f"nothing was charged.{renews} FROM dp_budget() shows your grants"
        )


class ReleaseError(DpsqlError):
    """A release does not exist, was bought with other parameters, or its file is missing or damaged."""


class LedgerError(DpsqlError):
    """The books cannot be written or read, or were edited.

    Attributes
    ----------
    uncertain : bool
        Whether an entry may be on disk all the same: the commit itself failed, and what a restart finds decides.
    """

    uncertain = False


class LinkBroken(DpsqlError):
    """The schema does not bear out a link any more, so it is not known whose rows a table's rows are; nothing was read or charged.

    Attributes
    ----------
    source, parent : str
        The linked table and its parent, as the books call them.
    why : str
        What does not hold.
    everything : bool
        Whether it is not known of the parent's own rows either.
    """

    def __init__(self, source: str, parent: str, why: str, *, everything: bool = False) -> None:
        self.source = source
        self.parent = parent
        self.why = why
        then = f"Releases that do not read {source} go on without it; a table that is not needed can be dropped"
        if everything:
            then = f"Until it holds again nothing is sold of {parent} and what is linked to it"
        super().__init__(f"the link of {source} to {parent} does not hold any more, and nothing was read or charged: {why}. {then}")


class EngineLost(DpsqlError):
    """The engine that has the rows cannot be reached, or died while it counted. Nothing was released; the same call finishes it.

    Whether an engine dies is taken for no function of a row, as the death of the process is: noise that was drawn is not shown.
    """


class CalibrationError(DpsqlError):
    """No noise scale within the supported range reaches the requested guarantee."""


class UntriedDuckDB(UserWarning):
    """The DuckDB that runs is newer than any version that dpsql was tried with: what dpsql relies on may have changed."""


def holder(error: object) -> tuple[str, str] | None:
    """Return program and process number of whom DuckDB says that it holds a file; None: the error is about something else.

    Examples
    --------
    >>> holder("IO Error: Could not set lock on file x: Conflicting lock is held in /bin/duckdb (PID 7). See also")
    ('/bin/duckdb', '7')
    """
    found = _HELD.search(str(error))
    return None if found is None else (found[1], found[2])


_WITHHELD = (
    "a place that is not DuckDB's own does not answer, and what it says is withheld: that may hold credentials or values. Is each "
    "attached database there (FROM duckdb_databases())? One that is not stops look-ups in all others: DETACH it"
)
_SAYS = r"\b(?:password|passwd|pwd|token|secret|key_id|sslkey)\s*=|connection to server|failed to (?:execute|prepare) query"
_SYSTEMS = r"postgres|libpq|mysql|sqlite|ducklake|motherduck|mssql|odbc|://|\b(?:user|host|hostaddr|dsn)\s*="
_KINDS = ("IOException", "HTTPException", "ConnectionException", "InternalException", "FatalException", "Error")
"""Kinds of DuckDB's errors that are not about the text of a statement, and so may be another system's."""
_OF_TEXTS = ("BinderException", "ParserException", "CatalogException")
"""Kinds that are: a column may be called password."""


def foreign(error: object) -> bool:
    """Return whether an error's text may be that of a system below DuckDB: a driver's may have passwords in it, a server's values.

    Examples
    --------
    >>> foreign('Unable to connect to Postgres at "host=h password=x"'), foreign(ValueError("no such column"))
    (True, False)
    """
    text = str(error)
    kind = type(error).__name__
    if kind not in _OF_TEXTS and re.search(_SAYS, text, re.IGNORECASE):
        return True
    return kind in _KINDS and re.search(_SYSTEMS, text, re.IGNORECASE) is not None


def first_line(error: object) -> str:
    """Return the first line of an error's text: DuckDB appends the statement below it. Of what is not DuckDB's own: no text."""
    return _WITHHELD if foreign(error) else (str(error).splitlines() or [""])[0]


def unanswered(error: object) -> str:
    """Return why a catalog does not answer, and the way out. The statement is dpsql's own, and has no word of a system below it."""
    if foreign(error) or re.search(f"{_SAYS}|{_SYSTEMS}", str(error), re.IGNORECASE):
        return f"it does not answer ({_WITHHELD})"
    return f"it does not answer ({first_line(error)}); DROP macros that are called duckdb_..."
