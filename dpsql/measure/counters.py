"""The integers that a row adds to the counters of its group, as columns: made of one row, before rows are chosen and added up.

Narrow integers rather than the numbers themselves are kept, sorted and added: a fifth of the bytes, and no floating-point sum.
What is proved of the vectors is in `dpsql.estimates.measures`.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from dpsql.estimates.measures import Measure, Variable
from dpsql.text.relation import identifier

_WIDTHS = (("SMALLINT", 1 << 15), ("INTEGER", 1 << 31))


def double(number: float) -> str:
    """Return a number as a constant of DOUBLE, exactly."""
    return f"CAST('{number!r}' AS DOUBLE)"


def clipped(x: str, variable: Variable) -> str:
    """Return a number moved to the nearer bound; NULL stays NULL, which it does not in DuckDB's least and greatest.

    Strict comparisons: where the least and the greatest value that DuckDB notes of a column are the bounds, it leaves them out.
    """
    lower, upper = double(variable.lower), double(variable.upper)
    return f"CASE WHEN {x} < {lower} THEN {lower} WHEN {x} > {upper} THEN {upper} ELSE {x} END"


def unit_interval(x: str, variable: Variable) -> str:
    """Return y = (clip(x) - lower) / (upper - lower), NULL where x is.

    It is in [0, 1]: rounding does not change the order of numbers, so clip(x) - lower is at most upper - lower as `Variable.span`
    has it, and a quotient of numbers of which the upper one is not larger is at most 1.
    """
    return f"({clipped(x, variable)} - {double(variable.lower)}) / {double(variable.span)}"


def cumulated(measure: Measure, names: Sequence[str]) -> list[str]:
    """Return the cumulated counters of a row of 'moments' over its y, as integers, all but the last, which is the grid.

    Sums of numbers that are not negative do not fall, nor does rounding; so the differences are not negative, and add up to the
    grid. NULL where a y is.
    """
    each = []
    for y in names:
        one = f"(1 - {y})"
        each.append([one, y] if measure.degree == 1 else [f"{one} * {one}", f"2 * {y} * {one}", f"{y} * {y}"])
    products = [" * ".join(f"({part})" for part in chosen) for chosen in itertools.product(*each)]
    total, found = "", []
    for product in products[:-1]:
        total = f"({total} + {product})" if total else product
        share = f"({total})" if len(products) == 2 else f"CASE WHEN {total} > 1 THEN 1 ELSE {total} END"  # 1 - y is at most 1
        found.append(whole(f"{share} * {measure.grid}", measure.grid))
    return found


def scaled(measure: Measure) -> str:
    """Return the counter of 'scaled' over x, NULL where x is: within the grid, as clip(x) is within the magnitude."""
    [variable] = measure.variables
    x = clipped(f"x{variable.position}", variable)
    return whole(f"({x}) / {double(variable.magnitude)} * {measure.grid}", measure.grid)


def whole(number: str, most: int) -> str:
    """Return a number from -most to most in the narrowest type: conversion rounds to the nearest whole number, so order stays."""
    kind = next((name for name, beyond in _WIDTHS if most < beyond), "BIGINT")
    return f"TRY_CAST({number} AS {kind})"


class Counters:
    """The counters of all 'moments' and 'scaled' of a plan: each is one column, however many measures add it up.

    Parameters
    ----------
    measures : sequence of Measure
        A filter makes no difference here: it says which rows are added.

    Attributes
    ----------
    names : list
        The columns of each measure, [] of other kinds.
    """

    def __init__(self, measures: Sequence[Measure]) -> None:
        self._intervals: dict[str, str] = {}
        self._counters: dict[str, str] = {}
        self.names = [[self._counter(sql) for sql in self._of(measure)] for measure in measures]

    @property
    def columns(self) -> list[str]:
        """Names of all counters."""
        return list(self._counters.values())

    def _of(self, measure: Measure) -> list[str]:
        if measure.kind == "scaled":
            return [scaled(measure)]
        if measure.kind != "moments":
            return []
        return cumulated(measure, [self._interval(variable) for variable in measure.variables])

    def _interval(self, variable: Variable) -> str:
        return self._intervals.setdefault(unit_interval(f"x{variable.position}", variable), f"y{len(self._intervals)}")

    def _counter(self, sql: str) -> str:
        return self._counters.setdefault(sql, f"c{len(self._counters)}")

    def over(self, rows: str, carried: Sequence[str], kept: Sequence[str]) -> str:
        """Return the counters of rows.

        Parameters
        ----------
        rows : str
            A SELECT with a number x<position> for each variable.
        carried, kept : sequences of str
            Columns of rows that are needed: here, and afterwards.
        """
        if not self._counters:
            return rows
        if self._intervals:
            listed = [*map(identifier, carried), *(f"{sql} AS {name}" for sql, name in self._intervals.items())]
            rows = f"SELECT {', '.join(listed)} FROM ({rows})"  # noqa: S608 -- generated
        listed = [*map(identifier, kept), *(f"{sql} AS {name}" for sql, name in self._counters.items())]
        return f"SELECT {', '.join(listed)} FROM ({rows})"  # noqa: S608 -- generated
