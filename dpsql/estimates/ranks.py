r"""Quantiles that are drawn by rank (kind 'quantile'): when they are, on which grid, what they cost, how far they are off.

**When.** One quantile of one expression between `LEAST_SHARE` and 1 - `LEAST_SHARE` is drawn by the exponential mechanism
(`dpsql.mechanisms.ranked`); several of one expression, and minimum and maximum, are read from a tree of noisy counts
(`dpsql.estimates.quantiles`). The rule depends on the text of the query alone. Why, at the same cost (`tests/benchmarks/
query_quantiles.py`; five tables): the median's rank is off by a half to a fifth of what it is by the tree, and the grid can be
a thousand times finer, since empty cells cost nothing. Far out the tree is better where bounds are wide: an exponential
mechanism takes the empty range beyond the largest value for the quantile, if it is long enough, where fewer rows lie beyond the
quantile than noise.

**Cost.** The penalty of group g moves by at most r max(q, 1 - q) where one unit's r rows come or go, and by at most max(r, s)
where s others come in their place (`dpsql.mechanisms.percentile`). So the draws of one group are of range 2 / scale times that,
and the groups that the unit is in are as many mechanisms. Let f be what an accountant adds for a range (mu^2 / 2, a zCDP
parameter, epsilon). It is superadditive, f(x) + f(y) <= f(x + y): epsilon; epsilon^2 / 8; epsilon tanh(epsilon / 2) or the
like, whose quotient by epsilon rises; and mu^2 / 2 = 2 h(x)^2, x = epsilon / 2, h(x) = Phi^-1(1 / (1 + e^-x)), which is convex
and 0 at 0. *Proof.* (h^2)'' / 2 = h'^2 + h h''. With g = h^-1, h' = 1 / g', h'' = -g'' / g'^3, so this is not negative iff
g'(z) >= z g''(z), z = h(x) >= 0. g' = f / (F (1 - F)) with f and F the normal density and distribution function; g'' / g' = -z
+ f (2 F - 1) / (F (1 - F)). So it is to be shown that z f (2 F - 1) / (F (1 - F)) <= 1 + z^2. (2 F - 1) / F <= 1, and f / (1 -
F) < (z + sqrt(z^2 + 4)) / 2 (Birnbaum 1942), so the left side is at most (z^2 + z sqrt(z^2 + 4)) / 2 <= (z^2 + z^2 + 2) / 2.
QED

So a unit of at most C rows in all, wherever they are, costs at most one mechanism of C max(q, 1 - q); one of at most R rows in
each of at most G groups at most G mechanisms of R max(q, 1 - q). Under replace_one: without groups one of C; with groups twice
as many, of C or R, since f of the larger of two is at most the sum of both.

Privacy: none; choices and costs depend on public numbers alone, values on what was released.

References
----------
Birnbaum (1942), An inequality for Mill's ratio, Annals of Mathematical Statistics 13(2).
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from dpsql.accounting.blocks import Ranked
from dpsql.accounting.events import NEIGHBORS
from dpsql.errors import ArgumentError
from dpsql.estimates.measures import LARGEST_SHARE, Measure, Variable
from dpsql.numerics.arrays import FloatArray

LEAST_SHARE = 0.1
CELLS = 1 << 20
"""Cells of the grid: of whole numbers in a smaller range one each."""


def drawn_share(quantile: float) -> str | None:
    """Return a quantile as the share of a measure that is drawn; None where the tree is better, or it has too many digits.

    Examples
    --------
    >>> drawn_share(0.5), drawn_share(0.9), drawn_share(0.95), drawn_share(1 / 3)
    ('1/2', '9/10', None, None)
    """
    share = Fraction(repr(float(quantile)))
    least = Fraction(repr(LEAST_SHARE))
    return str(share) if least <= share <= 1 - least and share.denominator <= LARGEST_SHARE else None


def cells_of(variable: Variable) -> int:
    """Return the number of cells of the grid of a quantile that is drawn."""
    if variable.whole and variable.learned is None:
        return max(2, min(CELLS, int(variable.span) + 1))
    return CELLS


def grid(measure: Measure) -> tuple[int, int]:
    """Return the values of the grid, and how many of them a cell holds: of whole numbers all of them, else one a cell."""
    variable = measure.variables[0]
    if variable.whole:
        return int(variable.upper) - int(variable.lower) + 1, int(measure.width)
    return measure.levels[0], 1


def ranked(
    measure: Measure,
    max_rows: int | None = None,
    max_groups: int | None = None,
    max_rows_per_group: int | None = None,
    neighbors: str = "add_remove",
    *,
    grouped: bool = True,
) -> Ranked:
    """Return the sensitivity of a quantile that is drawn, and how many mechanisms it costs; see the head of this file.

    Parameters
    ----------
    measure : Measure
        Of kind 'quantile'.
    max_rows, max_groups, max_rows_per_group, neighbors, grouped
        As of `dpsql.estimates.measures.sensitivity`.

    Raises
    ------
    ArgumentError
        The measure is of another kind, or a bound is missing.

    Examples
    --------
    >>> median = Measure("quantile", (Variable(0, 0, 5),), levels=(64,), share="1/2")
    >>> ranked(median, max_rows=3), ranked(median, None, 4, 3, "replace_one")
    (Ranked(sensitivity=Fraction(3, 2), count=1), Ranked(sensitivity=Fraction(3, 1), count=8))
    """
    if measure.kind != "quantile":
        raise ArgumentError("measure", measure.kind, "must be of kind 'quantile'")
    if neighbors not in NEIGHBORS:
        raise ArgumentError("neighbors", neighbors, f"must be one of {', '.join(map(repr, NEIGHBORS))}")
    for name, bound in (("max_rows", max_rows), ("max_groups", max_groups), ("max_rows_per_group", max_rows_per_group)):
        if bound is not None and bound < 1:
            raise ArgumentError(name, bound, "must be a whole number of at least 1")
    if max_rows is not None:
        rows, count = max_rows, 1
    elif max_rows_per_group is not None and (max_groups is not None or not grouped):
        rows, count = max_rows_per_group, (max_groups or 1) if grouped else 1
    else:
        raise ArgumentError("max_rows", None, "give max_rows, or both max_groups and max_rows_per_group")
    share = Fraction(measure.share)
    if neighbors == "add_remove":
        return Ranked(rows * max(share, 1 - share), count)
    return Ranked(Fraction(rows), 2 * count if grouped else count)


def values(measure: Measure, places: npt.ArrayLike) -> FloatArray:
    """Return the values that places on the grid stand for: whole numbers, or the middles of cells."""
    variable, held = measure.variables[0], np.asarray(places, dtype=np.float64)
    if variable.whole:
        return np.asarray(np.clip(variable.lower + np.rint(held), variable.lower, variable.upper))
    return np.asarray(np.clip(variable.lower + measure.width * (held + 0.5), variable.lower, variable.upper))


def rank_error(measure: Measure, scale: float, confidence: float = 0.95) -> float:
    """Return how many rows the released value's rank is off by at most, with a probability, for all tables.

    Notes
    -----
    All values together weigh at most ``values`` times what the best of them does, so those of a penalty above d have a
    probability of at most values * exp(-d / scale) (McSherry & Talwar 2007). Where rows are spread it is much less.
    """
    return scale * (math.log(grid(measure)[0]) + math.log(1 / (1 - confidence)))
