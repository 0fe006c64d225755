"""The columns that a call names: found, spelled as the source does, in the order asked for, and with a public domain."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from dpsql.domains import sqltypes
from dpsql.domains.attributes import Domain
from dpsql.errors import ArgumentError, DomainError
from dpsql.protected.source import ProtectedSource
from dpsql.source.analysis import OutputColumn
from dpsql.text.names import fold
from dpsql.text.relation import literal

_MOST_DECLARED = 8
"""Calls that a refusal says, at most."""


def spelled(protected: ProtectedSource, columns: Sequence[str]) -> tuple[str, ...]:
    """Return names of columns as the source spells and orders them, so that no spelling buys a second time; unknown ones last."""
    wanted = {fold(name) for name in columns}
    known = [c.name for c in protected.source.columns if fold(c.name) in wanted]
    unknown = [name for name in columns if fold(name) not in {fold(other) for other in known}]
    return (*known, *unknown)


def asked_order(columns: Sequence[str] | None, names: Sequence[str]) -> list[int]:
    """Return the positions of the columns in the order that the caller named them in; of all in their own order, if none were.

    Examples
    --------
    >>> asked_order(["Month", "ward"], ["ward", "month"]), asked_order(None, ["ward", "month"])
    ([1, 0], [0, 1])
    """
    if columns is None:
        return list(range(len(names)))
    place = {fold(name): i for i, name in enumerate(columns)}
    return sorted(range(len(names)), key=lambda i: place.get(fold(names[i]), len(place)))


def check_known(argument: str, wanted: Sequence[str], known: Sequence[str]) -> None:
    """Refuse names that are not there, and say which is the nearest.

    Raises
    ------
    ArgumentError
        A name is not among ``known``.
    """
    there = {fold(name): name for name in known}
    for name in wanted:
        if fold(name) not in there:
            near = difflib.get_close_matches(fold(name), list(there), 1, 0.6)
            hint = f"did you mean {there[near[0]]!r}? " if near else ""
            raise ArgumentError(argument, name, f"no such column; {hint}The source has {list(known)!r}")


def chosen(protected: ProtectedSource, source: str, columns: list[str] | None) -> tuple[Domain, list[OutputColumn]]:
    """Return the domain of the wanted columns (all declared ones by default), and the columns of the source that have none.

    Parameters
    ----------
    source : str
        The SQL of the call, for the text of an error.

    Raises
    ------
    ArgumentError
        There is no such column.
    DomainError
        A wanted column, or every one, has no domain; says the call that declares it.
    """
    declared, without = protected.attributes()
    left_out = [c for c in without if not protected.is_unit(c)]
    if columns is not None:
        check_released(protected, columns)
        missing = [c for c in left_out if c.name in columns]
        if missing:
            raise DomainError(f"columns = {columns!r}: {without_domain(source, missing)}")
        return declared.select(columns), left_out
    if not declared.attributes:
        way = f": {declarations(source, left_out)}" if left_out else ""
        raise DomainError(f"no column of the source has a declared domain{way}")
    return declared, left_out


def check_released(protected: ProtectedSource, columns: Sequence[str]) -> None:
    """Refuse columns that are not there, or say whose row it is: of every kind of statistics, whatever their domain.

    Raises
    ------
    ArgumentError
        Names the column.
    """
    check_known("columns", columns, [c.name for c in protected.source.columns])
    for column in protected.source.columns:
        if column.name in columns and protected.is_unit(column):
            expected = f"{column.name!r} is the privacy unit: whose row it is cannot be released"
            raise ArgumentError("columns", list(columns), expected)


def check_k(source: str, columns: list[str] | None, k: int, domain: Domain, left_out: Sequence[OutputColumn]) -> None:
    """Refuse tables of more columns than have a domain.

    Raises
    ------
    ArgumentError
        Says which columns have one, which have none, and the call that declares one.
    """
    if k <= len(domain.attributes):
        return
    if columns is not None or not left_out:
        raise ArgumentError("k", k, f"there are only {len(domain.attributes)} columns: {list(domain.names)!r}")
    raise ArgumentError("k", k, f"only {list(domain.names)!r} have a domain; {without_domain(source, left_out)}")


def without_domain(source: str, missing: Sequence[OutputColumn]) -> str:
    """Return what to do about columns without a domain."""
    named = ", ".join(repr(c.name) for c in missing[:_MOST_DECLARED]) + (", ..." if len(missing) > _MOST_DECLARED else "")
    way = declarations(source, missing)
    if any(c.origin is None and not c.views for c in missing):
        way += " (it is computed here: this declares it for this very text; on a view it is declared once)"
    return f"{named} {'has' if len(missing) == 1 else 'have'} no declared domain: {way}"


def declarations(source: str, missing: Sequence[OutputColumn]) -> str:
    """Return the calls that declare columns of the source of a call, all of them unless there are very many."""
    calls = [declaration(source, column) for column in missing[:_MOST_DECLARED]]
    return "; ".join([*calls, *(["..."] if len(missing) > _MOST_DECLARED else [])])


def declaration(source: str, column: OutputColumn) -> str:
    """Return the call that declares a column of the source of a call, with what its type wants."""
    family = sqltypes.parse(column.sql_type).family
    says = {"text": "categories := ['...', '...']", "temporal": "lower := '2020-01-01', upper := '2030-01-01', bins := 10"}
    if column.sql_type == "TIME":
        says["temporal"] = "lower := '00:00:00', upper := '23:59:59', bins := 24"
    numbers = "lower := ..., upper := ..., bins := ..." if family in ("integer", "decimal", "float") else "categories := [...]"
    return f"CALL dp_declare({literal(source)}, {literal(column.name)}, {says.get(family, numbers)})"
