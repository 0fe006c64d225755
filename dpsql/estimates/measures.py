r"""What a private query measures: vectors of integer counters per group, one noise scale a block, and their sensitivity.

Every row of the bounded source adds a vector of integers to the counters of its group. What a row can add, by kind:

- ``count``: 1.
- ``moments``: with y = (clip(x) - lower) / (upper - lower) in [0, 1], the Bernstein polynomials of y of the degree (products of
  them for two variables), times the grid, as non-negative integers that add up to the grid exactly. The polynomials are a
  partition of unity, so that is rounding alone. The counter of (i, j) is at i * (degree + 1) + j. With ``nans`` one more counter
  comes after them: the grid for a row where the variable is NaN. With ``nulls`` one more comes last: the grid for a row where a
  variable is NULL (or NaN, without ``nans``).
- ``scaled``: round(clip(x) / max(abs(lower), abs(upper)) * grid), from -grid to grid.
- ``values``: 1 at the place of its value in a public list, where it is listed; with ``other`` at the last place where it is not.
  With ``once`` for the first row of the privacy unit with this value in the group alone: the counters are numbers of units.
- ``tree``: 1 in a cell of every level; leaf = min(floor((clip(x) - lower) / width), leaves - 1), or the leaf between ``edges`` that
  its unit is in.
- ``units``: 1 for the first row of the privacy unit in the group, else nothing. Rows without a unit are bounded as those of one,
  and count as one with ``nulls`` only.
- ``distinct``: 1 for the first row of its value in the group, whatever the unit, else nothing.

Rows whose filter does not hold, and rows with NULL or NaN, add nothing (but to the counter of ``nulls``, or of ``nans``).

Privacy: public. What is proved here is `sensitivity`.

References
----------
Kulesza, Suresh & Wang (2024), arXiv:2312.06658, for y and 1 - y in one measurement. arXiv:2509.04919 for higher degrees.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from dpsql.accounting.checks import whole
from dpsql.accounting.events import NEIGHBORS
from dpsql.errors import ArgumentError
from dpsql.estimates.leaves import Units

KINDS = ("count", "moments", "scaled", "values", "tree", "units", "distinct")
"""Kinds of measures."""

GRID = 2**20
"""Default of ``Measure.grid``."""

MAXIMUM_GRID = 2**30
LARGEST_COUNTERS = 1 << 22
"""Counters of one group, at most."""

_WHOLE_BELOW = 2.0**53
_VARIABLES = {"count": (0, 0), "moments": (1, 2), "scaled": (1, 1), "values": (1, 1), "tree": (1, 1), "units": (0, 0),
              "distinct": (1, 1)}
_GRIDDED = ("moments", "scaled")


@dataclass(frozen=True)
class Variable:
    """An argument of an aggregate, with public bounds.

    Parameters
    ----------
    position : int, >= 0
        Of the row source's column ``a<position>``.
    lower, upper : float
        Values outside are moved to the nearer bound. lower < upper, and their difference is finite. (Not used by 'values'
        and 'distinct'.)
    whole : bool
        Whether all values are integers; then both bounds are, of absolute value at most 2^53.
    learned : int, optional
        Which histogram of magnitudes its bounds will be chosen from (`dpsql.estimates.magnitudes`). Until then ``lower`` and
        ``upper`` are the widest that can be chosen.

    Raises
    ------
    ArgumentError
        Something is out of range.
    """

    position: int
    lower: float = 0.0
    upper: float = 1.0
    whole: bool = False
    learned: int | None = None

    def __post_init__(self) -> None:
        _natural("position", self.position)
        object.__setattr__(self, "lower", _number("lower", self.lower))
        object.__setattr__(self, "upper", _number("upper", self.upper))
        if not self.lower < self.upper or not math.isfinite(self.upper - self.lower):
            raise ArgumentError("upper", self.upper, f"must be above lower = {self.lower!r}, by a finite difference")
        _flag("whole", self.whole)
        if self.learned is not None:
            _natural("learned", self.learned)
        if self.whole:
            for name, bound in (("lower", self.lower), ("upper", self.upper)):
                if bound != math.floor(bound) or abs(bound) > _WHOLE_BELOW:
                    raise ArgumentError(name, bound, "must be a whole number from -2^53 to 2^53 where all values are integers")

    @property
    def span(self) -> float:
        """Upper bound minus lower bound."""
        return self.upper - self.lower

    @property
    def magnitude(self) -> float:
        """The larger of the bounds' absolute values: the unit of 'scaled'."""
        return max(abs(self.lower), abs(self.upper))

    def to_json(self) -> dict[str, Any]:
        """Return plain values that ``from_json`` reads back, exactly."""
        fields = {"position": self.position, "lower": self.lower, "upper": self.upper, "whole": self.whole}
        return fields if self.learned is None else {**fields, "learned": self.learned}

    @classmethod
    def from_json(cls, item: Mapping[str, Any]) -> Variable:
        """Read what ``to_json`` wrote.

        Raises
        ------
        ArgumentError
            A field is missing, unknown or out of range.
        """
        learned = ("learned",) if isinstance(item, Mapping) and "learned" in item else ()
        return cls(**_fields("variable", item, ("position", "lower", "upper", "whole", *learned)))


@dataclass(frozen=True)
class Measure:
    """A vector of integer counters per group; the kinds are described at the head of this file.

    Parameters
    ----------
    kind : one of ``KINDS``
    variables : tuple of Variable
        One; two for 'moments' of a pair; none for 'count' and 'units'.
    degree : int, 1 or 2
        Of 'moments', in each variable.
    filter : int, optional
        Position of the row source's column ``f<position>``: rows where it is not true add nothing.
    nulls : bool
        Whether 'moments' counts rows with NULL; whether 'units' counts those whose unit is NULL, as one.
    nans : bool
        Whether 'moments' of one variable counts rows with NaN, which is no number and not NULL, apart.
    grid : int, 1 to 2^30
        What the counters of one row add up to, of 'moments' and 'scaled'. 1 for all others, whatever is given.
    values : tuple of str
        The public list of 'values', distinct.
    levels : tuple of int, each >= 2
        Branching of 'tree', from the root: level k has ``prod(levels[:k + 1])`` cells.
    other : bool
        Whether the last of ``values`` stands for all values that are not listed.
    once : bool
        Whether 'values' counts a unit once for each value in a group, however many rows it has with it.
    units : Units, optional
        Of a 'tree' whose leaves are cut where the rows are (`dpsql.estimates.leaves`).
    edges : tuple of int
        Ends of the leaves in these units; empty until they were cut.

    Raises
    ------
    ArgumentError
        Something is out of range, or does not go with the kind.

    Examples
    --------
    >>> age = Variable(0, 0, 120, whole=True)
    >>> Measure("moments", (age,), degree=2, nulls=True).lengths, Measure("tree", (age,), levels=(4, 8)).lengths
    ((4,), (4, 32))
    """

    kind: str
    variables: tuple[Variable, ...] = ()
    degree: int = 1
    filter: int | None = None
    nulls: bool = False
    grid: int = GRID
    values: tuple[str, ...] = ()
    levels: tuple[int, ...] = ()
    units: Units | None = None
    edges: tuple[int, ...] = ()
    nans: bool = False
    other: bool = False
    once: bool = False

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ArgumentError("kind", self.kind, f"must be one of {', '.join(map(repr, KINDS))}")
        for name in ("variables", "values", "levels"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        least, most = _VARIABLES[self.kind]
        if not least <= len(self.variables) <= most:
            raise ArgumentError("variables", len(self.variables), f"must be from {least} to {most} for kind {self.kind!r}")
        if self.degree not in ((1, 2) if self.kind == "moments" else (1,)) or isinstance(self.degree, bool):
            raise ArgumentError("degree", self.degree, "must be 1, or 2 for kind 'moments'")
        if self.filter is not None:
            _natural("filter", self.filter)
        _flag("nulls", self.nulls)
        if self.nulls and self.kind not in ("moments", "units"):
            raise ArgumentError("nulls", True, "rows with NULL are counted by kinds 'moments' and 'units' only")
        _flag("nans", self.nans)
        if self.nans and (self.kind != "moments" or len(self.variables) != 1):
            raise ArgumentError("nans", True, "rows with NaN are counted by kind 'moments' of one variable only")
        for name in ("other", "once"):
            _flag(name, getattr(self, name))
            if getattr(self, name) and self.kind != "values":
                raise ArgumentError(name, True, "is of kind 'values'")
        if whole("grid", self.grid, _GRID) > MAXIMUM_GRID:
            raise ArgumentError("grid", self.grid, _GRID)
        object.__setattr__(self, "grid", int(self.grid) if self.kind in _GRIDDED else 1)
        self._check_lists()

    def _check_lists(self) -> None:
        if (self.kind == "values") != bool(self.values):
            raise ArgumentError("values", len(self.values), "must hold at least one for kind 'values', and none else")
        if not all(isinstance(value, str) for value in self.values) or len(set(self.values)) < len(self.values):
            raise ArgumentError("values", "(a list)", "must be distinct texts")
        if (self.kind == "tree") != bool(self.levels):
            raise ArgumentError("levels", list(self.levels), "must name at least one branching for kind 'tree', and be empty else")
        for level in self.levels:
            if whole("levels", level, _BRANCHING) < 2:
                raise ArgumentError("levels", level, _BRANCHING)
        object.__setattr__(self, "levels", tuple(map(int, self.levels)))
        self._check_leaves()
        if sum(self.lengths) > LARGEST_COUNTERS:
            raise ArgumentError("levels" if self.levels else "values", sum(self.lengths), "are too many counters: 2^22 at most")

    def _check_leaves(self) -> None:
        if self.units is None:
            if self.edges:
                raise ArgumentError("edges", len(self.edges), "need units")
            return
        if self.kind != "tree" or self.units.count < self.lengths[-1]:
            raise ArgumentError("units", self.units.count, "are of a 'tree' with no more leaves than units")
        object.__setattr__(self, "edges", tuple(self.edges))
        if self.edges:
            ascending = all(type(edge) is int for edge in self.edges) and all(a < b for a, b in itertools.pairwise(self.edges))
            if len(self.edges) != self.lengths[-1] + 1 or not ascending or (self.edges[0], self.edges[-1]) != (0, self.units.count):
                raise ArgumentError("edges", len(self.edges), "must be the ends of all leaves, from 0 to the number of units")

    @property
    def lengths(self) -> tuple[int, ...]:
        """Number of counters of each block of equal noise: one block; of a tree one per level, from the top."""
        if self.kind == "moments":
            return ((self.degree + 1) ** len(self.variables) + self.nans + self.nulls,)
        if self.kind == "values":
            return (len(self.values),)
        if self.kind == "tree":
            return tuple(math.prod(self.levels[: k + 1]) for k in range(len(self.levels)))
        return (1,)

    @property
    def width(self) -> float:
        """Width of a leaf of a tree of equal ones: whole where all values are; the last leaves may then lie beyond ``upper``."""
        if self.kind != "tree":
            raise ArgumentError("kind", self.kind, "only a 'tree' has leaves")
        variable, leaves = self.variables[0], self.lengths[-1]
        if variable.whole:
            return float(-(-(int(variable.upper) - int(variable.lower) + 1) // leaves))
        return variable.span / leaves

    @property
    def signed(self) -> bool:
        """Whether a row can lower a counter."""
        return self.kind == "scaled" and self.variables[0].lower < 0 < self.variables[0].upper

    def to_json(self) -> dict[str, Any]:
        """Return plain values that ``from_json`` reads back, exactly."""
        return {
            "kind": self.kind,
            "variables": [variable.to_json() for variable in self.variables],
            "degree": self.degree,
            "filter": self.filter,
            "nulls": self.nulls,
            "grid": self.grid,
            "values": list(self.values),
            "levels": list(self.levels),
            **({"nans": True} if self.nans else {}),
            **({"other": True} if self.other else {}),
            **({"once": True} if self.once else {}),
            **({} if self.units is None else {"units": self.units.to_json(), "edges": list(self.edges)}),
        }

    @classmethod
    def from_json(cls, item: Mapping[str, Any]) -> Measure:
        """Read what ``to_json`` wrote.

        Raises
        ------
        ArgumentError
            A field is missing, unknown or out of range.
        """
        names = ("kind", "variables", "degree", "filter", "nulls", "grid", "values", "levels")
        cut = ("units", "edges") if isinstance(item, Mapping) and "units" in item else ()
        flags = tuple(name for name in ("nans", "other", "once") if isinstance(item, Mapping) and name in item)
        fields = _fields("measure", item, (*names, *cut, *flags))
        for name in ("variables", "values", "levels", *cut[1:]):
            if not isinstance(fields[name], (list, tuple)):
                raise ArgumentError(name, fields[name], "must be a list")
        fields["variables"] = tuple(Variable.from_json(variable) for variable in fields["variables"])
        if cut:
            fields["units"] = Units.from_json(fields["units"])
        return cls(**fields)


_GRID = "must be a whole number from 1 to 2^30"
_BRANCHING = "each branching must be a whole number of at least 2"


def _natural(argument: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ArgumentError(argument, value, "must be a whole number of at least 0")


def _flag(argument: str, value: object) -> None:
    if not isinstance(value, bool):
        raise ArgumentError(argument, value, "must be true or false")


def _number(argument: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ArgumentError(argument, value, "must be a finite number")
    return float(value)


def _fields(what: str, item: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(item, Mapping) or set(item) != set(names):
        raise ArgumentError(what, sorted(item) if isinstance(item, Mapping) else item, f"must have the fields {', '.join(names)}")
    return dict(item)


def sensitivity(
    measure: Measure,
    max_rows: int | None = None,
    max_groups: int | None = None,
    max_rows_per_group: int | None = None,
    neighbors: str = "add_remove",
    *,
    grouped: bool = True,
) -> tuple[float, float]:
    r"""Return the L1 and L2 sensitivity of each block of a measure, over all groups together.

    Parameters
    ----------
    measure : Measure
    max_rows : int, optional
        C: rows of one unit in all, at most.
    max_groups, max_rows_per_group : int, optional
        G and R: groups of one unit, and its rows in each of them, at most.
        Either C or both G and R must be given ('units', and 'values' ``once``, need C or G); a row is in one group. More bounds
        make it smaller.
    neighbors : {'add_remove', 'replace_one'}
    grouped : bool
        False where there is one group only, for every table: the query has no GROUP BY.

    Returns
    -------
    l1, l2 : float
        Rounded up.

    Raises
    ------
    ArgumentError
        A bound is missing or out of range.

    Notes
    -----
    Privacy. *One unit's vector.* Let the unit have r_g rows in group g. What it adds to the block is a vector v: its rows' vectors,
    added up within a group. A row's vector has L1 norm at most ``grid``: 'moments' by construction; all others have one counter,
    or one of them is 1 and the others 0 (a tree: on each level). Its L2 norm is at most its L1 norm. By the triangle inequality
    v has L1 norm at most grid * sum r_g, and L2 norm at most grid * r_g in group g, so at most grid * sqrt(sum r_g^2) in all.
    'units': every r_g counts as 1, or as 0 where the unit is NULL and not counted. 'values' counted ``once``: the same, where each
    of a group's V values is a group of its own; a unit has rows in at most min(V, R) of one group's. 'distinct': adding rows to a
    table raises the number of distinct values in a group by at most the number of rows, and never lowers it; so v, the difference
    that the unit makes to the others' table, obeys the same.

    *Largest norms.* sum r_g is at most min(C, G R). sum r_g^2 is convex, so it is largest at a vertex: as many groups as possible
    with R rows (or C, where that is less), one with what is left. (C rows in one group: C; G groups of R rows: R sqrt(G).)

    *add_remove*: tables differ by v. *replace_one*: by a - b, where a and b are what two units add to the others' table; each has
    the norms above. L1 at most 2 times that. L2: ||a - b||^2 = ||a||^2 + ||b||^2 - 2 a.b, at most 2 s^2 where no entry is
    negative, or none is positive (then a.b >= 0), and at most 4 s^2 by the triangle inequality where they have signs (a 'scaled'
    whose bounds have different signs). A block of one counter without groups and without signs: a and b are numbers in
    [0, s], or in [-s, 0], so s for both norms. (Under replace_one both tables have a unit at this place; a unit without rows has
    v = 0, which is within all of this.)

    Examples
    --------
    >>> sensitivity(Measure("count"), max_rows=3), sensitivity(Measure("count"), None, 4, 3, "replace_one")
    ((3.0, 3.0), (24.0, 8.485281374238571))
    >>> sensitivity(Measure("units"), None, 9), sensitivity(Measure("moments", (Variable(0, 0, 5),), grid=1024), None, 4, 1)
    ((9.0, 3.0), (4096.0, 2048.0))
    """
    if neighbors not in NEIGHBORS:
        raise ArgumentError("neighbors", neighbors, f"must be one of {', '.join(map(repr, NEIGHBORS))}")
    rows = None if max_rows is None else whole("max_rows", max_rows, "must be a whole number of rows, at least 1")
    groups = None if max_groups is None else whole("max_groups", max_groups, "must be a whole number of groups, at least 1")
    each = max_rows_per_group
    each = None if each is None else whole("max_rows_per_group", each, "must be a whole number of rows, at least 1")
    if not grouped:
        groups = 1
    # a unit counts once in a group, however many rows it has there
    if measure.kind == "units":
        each = 1
    # and once for each value
    elif measure.once:
        inside = len(measure.values) if each is None else min(len(measure.values), each)
        groups, each = None if groups is None else groups * inside, 1
    if rows is None and (groups is None or each is None):
        raise ArgumentError("max_rows", None, "give max_rows, or both max_groups and max_rows_per_group")
    l1, square = _largest(rows, groups, each)
    l1, square = l1 * measure.grid, square * measure.grid**2
    # a replaced row leaves some counters and enters others; a lone one that is never negative it moves by one row
    if neighbors == "replace_one" and (grouped or measure.lengths != (1,) or measure.signed):
        l1, square = 2 * l1, (4 if measure.signed else 2) * square
    return _up(Fraction(l1)), _root_up(square)


def _largest(rows: int | None, groups: int | None, each: int | None) -> tuple[int, int]:
    """Return the largest sum r_g and the largest sum r_g^2."""
    if rows is None:
        assert groups is not None and each is not None  # noqa: S101
        return groups * each, groups * each * each
    # both sums are largest with all rows in as few groups as may be
    part = rows if each is None else min(each, rows)
    full, rest = divmod(rows, part)
    if groups is not None and groups <= full:
        full, rest = groups, 0
    return full * part + rest, full * part * part + rest * rest


def _up(number: Fraction) -> float:
    nearest = float(number)
    return nearest if Fraction(nearest) >= number else math.nextafter(nearest, math.inf)


def _root_up(square: int) -> float:
    root = math.isqrt(square)
    nearest = float(root) if root * root == square else math.sqrt(square)
    while Fraction(nearest) ** 2 < square:
        nearest = math.nextafter(nearest, math.inf)
    return nearest
