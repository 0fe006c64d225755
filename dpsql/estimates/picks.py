r"""Quantiles that the exponential mechanism picks, beside the tree of counts that they are otherwise read from.

A tree answers every quantile, and how exact each is; of its counts, thousands of cells share the loss. One quantile alone is drawn
by `dpsql.mechanisms.ranked` with far less error of its rank. At the same rho the tree's is 2.6 / sqrt(rho) for a median (1,024
leaves), the pick's .63 / sqrt(rho); under Laplace noise they are 12 / epsilon and 1.4 / epsilon. So a third of a quantile's share
buys the pick, which is the value: its error is 1.1 / sqrt(rho) and 4.2 / epsilon. The rest buys the tree, which has the interval:
1.2 times (1.5 times) as wide as all of the share would make it.

Units are weighed by the leaves of the tree, which were cut where the rows of all groups are; under learned bounds by leaves that
are cut from the histogram of magnitudes. A pick is used where the tree's number of rows says that it is near the data (`trusted`):
in a group of few rows, leaves without rows outweigh those with some. Of private groups, quantiles are picked once the groups were
released, if these are not too many (`worth`).

Privacy: choices that depend on public numbers, and post-processing of released ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from dpsql.domains import sqltypes
from dpsql.errors import ArgumentError
from dpsql.estimates.leaves import MOST_UNITS, Units, points, units_of
from dpsql.estimates.measures import Variable
from dpsql.mechanisms.ranked import reach
from dpsql.noise.entropy import BoolArray
from dpsql.numerics.arrays import FloatArray, IntArray

SHARE = Fraction(1, 3)
"""Of the loss of a quantile: what buys its pick."""
MOST_PICKS = 4
"""Quantiles of one argument that are picked; of more, the tree alone is as good."""
LARGEST_REACH = 1 << 17
MOST_PIECES = 1 << 20
"""Rows near the wanted rank, of all groups, that draws may have to look at."""
LIKELY_GROUPS = 100
"""Private groups that are reckoned with where it is planned whether quantiles are picked."""
_LARGEST_DENOMINATOR = 1_000_000
_TIMES = 8
_FIELDS = ("place", "share", "gamma")
_NUMBERS = ("integer", "float", "decimal", "boolean", "temporal")
_SURE = 7.0
"""Logarithm of the leaves (1,024, or fewer): all rows may be in one of them."""


@dataclass(frozen=True)
class Picking:
    """A quantile that is picked.

    Parameters
    ----------
    place : int
        The measure, a tree, beside which it is.
    share : Fraction, in (0, 1)
        Which quantile.
    units : Units or None
        Of which it is one; None as long as bounds are not learned.
    gamma : Fraction, > 0
        epsilon / (2 sensitivity of the penalty), see `dpsql.mechanisms.ranked`.
    found : tuple of int
        The unit that was picked for each group, once it was released; none, if there were too many groups.
    sql_type : str
        Of the argument, where bounds are learned.
    """

    place: int
    share: Fraction
    units: Units | None
    gamma: Fraction
    found: tuple[int, ...] = ()
    sql_type: str = ""

    @property
    def deviation(self) -> float:
        """Standard deviation of the rank, in rows, where rows are dense."""
        return math.sqrt(2.0) / float(self.gamma)

    @property
    def reach(self) -> int:
        """Rows from the wanted rank that are read."""
        return reach(MOST_UNITS if self.units is None else self.units.count, self.gamma)

    def over(self, variable: Variable) -> Picking:
        """Return it with the units between the bounds of a variable, where they were not known."""
        if self.units is not None:
            return self
        return replace(self, units=units_of(self.sql_type, variable.lower, variable.upper, whole=variable.whole))

    def picked(self, units: IntArray) -> Picking:
        """Return it with the units that were picked.

        Raises
        ------
        ValueError
            They are none.
        """
        if self.units is None or units.ndim != 1 or not all(0 <= unit < self.units.count for unit in units.tolist()):
            raise ValueError("not what a release holds of picked quantiles")
        return replace(self, found=tuple(units.tolist()))

    def values(self) -> FloatArray:
        """Return the values that were picked, one for each group."""
        cells, units = np.asarray(self.found, np.float64), self.units
        if units is None:
            raise ValueError("what units are is not known before the bounds are learned")
        if units.single:
            return units.values(cells)
        each = [points(units, np.array([unit, unit + 1], np.int64))[0] for unit in self.found]
        middle = units.values(cells + 0.5)
        return np.where(np.isnan(each), middle, each)

    def to_json(self) -> dict[str, Any]:
        """Return plain values that ``from_json`` reads back, exactly; without what was picked."""
        of: dict[str, Any] = {"sql_type": self.sql_type} if self.units is None else {"units": self.units.to_json()}
        return {"place": self.place, "share": str(self.share), **of, "gamma": str(self.gamma)}

    @classmethod
    def from_json(cls, item: Mapping[str, Any]) -> Picking:
        """Read what ``to_json`` wrote.

        Raises
        ------
        ArgumentError, ValueError
            It is something else.
        """
        if not isinstance(item, Mapping) or {*item} not in ({*_FIELDS, "units"}, {*_FIELDS, "sql_type"}):
            raise ArgumentError("picking", "(an object)", "must have the fields place, share, gamma, and units or sql_type")
        if type(item["place"]) is not int or item["place"] < 0:
            raise ArgumentError("place", item["place"], "must be a whole number of at least 0")
        if not all(isinstance(item[name], str) and len(item[name]) < 100 for name in ("share", "gamma")):
            raise ArgumentError("picking", "(numbers)", "must be fractions as texts")
        share, gamma = Fraction(item["share"]), Fraction(item["gamma"])
        if not pickable(share) or not 0 < gamma < 1 << 64:
            raise ArgumentError("picking", "(numbers)", "are out of range")
        if "units" in item:
            return cls(item["place"], share, Units.from_json(item["units"]), gamma)
        if not isinstance(item["sql_type"], str) or sqltypes.parse(item["sql_type"]).family not in _NUMBERS:
            raise ArgumentError("sql_type", "(a type)", "must be a type of numbers, dates or times")
        return cls(item["place"], share, None, gamma, sql_type=item["sql_type"])


def pickable(share: Fraction) -> bool:
    """Return whether a quantile is one that can be picked: not an end, and of a short fraction."""
    return 0 < share < 1 and share.denominator <= _LARGEST_DENOMINATOR


def worth(pickings: Sequence[Picking], groups: int) -> bool:
    """Return whether draws of so many groups are near the data, and soon done; from public numbers."""
    if not pickings or len(pickings) > MOST_PICKS:
        return False
    counts = (MOST_UNITS if picking.units is None else picking.units.count for picking in pickings)
    pieces = groups * sum(min(2 * picking.reach, count) for picking, count in zip(pickings, counts, strict=True))
    return pieces <= MOST_PIECES and all(picking.reach <= LARGEST_REACH for picking in pickings)


def used(picking: Picking, threshold: int) -> bool:
    """Return whether a pick is near the data in private groups of a few times as many rows as units that a group has to have.

    Small groups are more than large ones, most often: a pick that only the largest can use costs all of them a third of their tree.
    """
    return bool(trusted(picking, np.array([_TIMES * float(threshold)]))[0])


def trusted(picking: Picking, rows: FloatArray) -> BoolArray:
    """Return for which groups a pick is near the data, from released estimates of their rows, shape (groups,).

    Notes
    -----
    Of n rows, m = min(q, 1 - q) n are on the nearer side. A leaf beyond all of them has exp(-gamma m) of the weight of one at the
    quantile; of all units with rows, a part 1 / (gamma n) is near it, and at the worst they are all in one leaf.
    """
    mass = float(picking.gamma) * np.maximum(rows, 0.0)
    return np.asarray(mass * float(min(picking.share, 1 - picking.share)) >= np.log1p(mass) + _SURE)


def of_one_measure(pickings: Sequence[Picking]) -> list[list[Picking]]:
    """Return quantiles in lists, of one measure each, in order: these are read together."""
    by_measure: dict[int, list[Picking]] = {}
    for picking in pickings:
        by_measure.setdefault(picking.place, []).append(picking)
    return [*by_measure.values()]
