"""Sums of whole numbers and DECIMALs: added up exactly, in steps of their type, and put on the grid of a measure once a group.

Rounding every row to the grid takes three times as long, and its errors add up where values lie alike between the points of the
grid, as decimals do: a mean was off by some 10^-5 of its bounds, however many rows it had. What is rounded once is off by half a
point of the grid in all.

Privacy
-------
`dpsql.estimates.measures.sensitivity` holds for counters that are rounded once, too. Let a unit have r rows in a group, and let the
exact sum of the group's distances from the upper bound, in points of the grid, be u without them and u + D with them. A distance
lies between 0 and the grid g, so 0 <= D <= r g. The first counter is floor(u + 1/2) without them and changes by some d; floor does
not fall, and floor(a + D) - floor(a) <= ceil(D) <= r g, because r g is whole; so 0 <= d <= r g. The second counter is the number of
rows times g less the first: it changes by r g - d. Neither falls, together they rise by r g: what r rows of L1 norm g add up to.
A 'scaled' sum alike, with D from -r g to r g, of one sign where its bounds have one. (That is why floor is taken of exact numbers:
of halves rounded to even, or of doubles, floor(a + whole) = floor(a) + whole would not hold.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dpsql.domains import sqltypes
from dpsql.domains.sqltypes import SqlType
from dpsql.estimates.measures import Measure
from dpsql.numerics.arrays import IntArray

_LARGEST = 1 << 80
"""Bounds in steps: the sum of 2^42 rows within them has room in a HUGEINT and in a DECIMAL of 38 digits."""
LARGEST_SUM = 1 << 60
"""Sums are cut to this absolute value before the noise, which changes no sensitivity: they fit into 64 bits."""


@dataclass(frozen=True)
class Steps:
    """The bounds of an argument in whole steps of its type.

    Parameters
    ----------
    sql_type : SqlType
        Of family 'integer' or 'decimal'.
    lower, upper : int
        Values outside are moved to the nearer one.
    """

    sql_type: SqlType
    lower: int
    upper: int

    def total(self, value: str, condition: str | None) -> str:
        """Return the sum of a column's values, moved to the bounds, where a condition holds: a text of DuckDB, '0' of no row.

        NULL stays NULL, which no sum adds: asking each row for it takes as long as the sum.
        """
        low, high = self.sql_type.low, self.sql_type.high
        cases = [(f"{value} <= {self._constant(self.lower)}", self.lower)] if low < self.lower <= high else []
        cases += [(f"{value} >= {self._constant(self.upper)}", self.upper)] if low <= self.upper < high else []
        inside = value
        if cases:
            listed = " ".join(f"WHEN {case} THEN {self._constant(end)}" for case, end in cases)
            inside = f"CASE {listed} ELSE {value} END"
        rows = "" if condition is None else f" FILTER (WHERE {condition})"
        return f"coalesce(CAST(sum({inside}){rows} AS VARCHAR), '0')"

    def _constant(self, steps: int) -> str:
        return f"CAST('{sqltypes.unit_text(self.sql_type, steps)}' AS {self.sql_type.text})"

    @staticmethod
    def read(total: str) -> int:
        """Return a `total` in steps."""
        return int(total.replace(".", ""))

    def cumulated(self, totals: Sequence[int], rows: IntArray, measure: Measure) -> IntArray:
        """Return the first counter of 'moments' of degree 1, or that of 'scaled', of each group.

        Parameters
        ----------
        totals : sequence of int
            What was added up, in steps, by group: of all its rows, before it is rounded.
        rows : int64 array
            Rows that were added up, by group.
        measure : Measure
        """
        if measure.kind == "scaled":
            unit = max(abs(self.lower), abs(self.upper))
            counters = [(2 * total * measure.grid + unit) // (2 * unit) for total in totals]
        else:
            span = self.upper - self.lower
            each = zip(totals, rows.tolist(), strict=True)
            counters = [(2 * (n * self.upper - total) * measure.grid + span) // (2 * span) for total, n in each]
        return np.array([max(min(counter, LARGEST_SUM), -LARGEST_SUM) for counter in counters], np.int64)


def steps_of(measure: Measure, sql_type: str) -> Steps | None:
    """Return the bounds of a measure's argument in steps of its type; None where it is added up row by row.

    Examples
    --------
    >>> from dpsql.estimates.measures import Variable
    >>> measure = Measure("moments", (Variable(0, 0, 0.1),), grid=100)
    >>> cents = steps_of(measure, "DECIMAL(15,2)")
    >>> cents.upper, cents.cumulated([cents.read("0.05"), cents.read("0.30")], np.array([1, 3]), measure).tolist()
    (10, [50, 0])
    """
    parsed = sqltypes.parse(sql_type)
    if parsed.family not in ("integer", "decimal") or len(measure.variables) != 1:
        return None
    if measure.kind not in ("moments", "scaled") or measure.degree != 1 or parsed.text == "UHUGEINT":  # whose sum is a DOUBLE
        return None
    ends = [Fraction(repr(bound)) * 10**parsed.scale for bound in (measure.variables[0].lower, measure.variables[0].upper)]
    if any(end.denominator != 1 or abs(end) > _LARGEST for end in ends) or ends[0] >= ends[1]:
        return None
    return Steps(parsed, int(ends[0]), int(ends[1]))
