"""What a rule can come out as in each cell of the domain: three-valued logic on bins, exact on categories.

Between AND, OR and NOT every part of a rule is looked at by itself. Where each code of its columns has one value (categories, bins
of one value, NULL), DuckDB evaluates it there. Where a column has bins, comparisons of columns, constants, sums and dates are
decided from bounds (`dpsql.rules.terms`). What is not understood may come out in any way. So the outcomes of a cell hold those of
every row in it, and a cell that can only come out as false holds no row that obeys: a structural zero.

Privacy: none; public domains and rules alone.

References
----------
Kleene, Introduction to Metamathematics, 1952, section 64 (three-valued logic). Bishop, Fienberg and Holland, Discrete
Multivariate Analysis, 1975, chapter 5 (structural zeros).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import duckdb
import numpy as np
import numpy.typing as npt
from sqlglot import exp

from dpsql.domains import sqltypes
from dpsql.domains.attributes import Attribute
from dpsql.rules.evaluating import FALSE as IS_FALSE
from dpsql.rules.evaluating import NULL as IS_NULL
from dpsql.rules.evaluating import TRUE as IS_TRUE
from dpsql.rules.evaluating import Evaluator
from dpsql.rules.grammar import COMPARISONS, Rule
from dpsql.rules.terms import Term, column_term, moment, term

Outcomes = npt.NDArray[np.uint8]
MAY_TRUE, MAY_FALSE, MAY_NULL = np.uint8(1), np.uint8(2), np.uint8(4)
_ANY = np.uint8(7)
MOST_CELLS = 1_000_000
"""Cells of a table that are looked at one by one."""
_SAME_MOMENTS = ("DATE", "TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS")


def outcomes(cursor: duckdb.DuckDBPyConnection, rule: Rule, attributes: Sequence[Attribute]) -> Outcomes | None:
    """Return what a rule can come out as for each combination of codes.

    Parameters
    ----------
    cursor : DuckDB cursor
        No table is read on it.
    rule : Rule
    attributes : sequence of Attribute
        They hold the rule's columns; an axis each.

    Returns
    -------
    uint8 array, one axis per attribute, or None
        Sums of `MAY_TRUE`, `MAY_FALSE`, `MAY_NULL`. None where there are more than 1,000,000 cells.
    """
    shape = tuple(attribute.size for attribute in attributes)
    if math.prod(shape) > MOST_CELLS:
        return None
    sets = _Cells(cursor, attributes).sets(rule.tree)
    whole: Outcomes = np.ascontiguousarray(np.broadcast_to(sets, shape))
    return whole


def single_valued(attribute: Attribute) -> bool:
    """Return whether every code stands for one value: categories, or bins of one value each."""
    if attribute.kind == "categorical":
        return True
    grid = sqltypes.grid(sqltypes.parse(attribute.sql_type), attribute.edges)
    return grid is not None and all(after - before == 1 for before, after in zip(grid[:-1], grid[1:], strict=True))


class _Cells:
    """The codes of some attributes, an axis each, and what expressions come out as there."""

    def __init__(self, cursor: duckdb.DuckDBPyConnection, attributes: Sequence[Attribute]) -> None:
        self._cursor = cursor
        self._attributes = {attribute.name: (axis, attribute) for axis, attribute in enumerate(attributes)}
        self._axes = len(attributes)
        self._terms: dict[str, Term | None] = {
            attribute.name: column_term(attribute, axis, self._axes) for axis, attribute in enumerate(attributes)
        }

    def sets(self, node: exp.Expression) -> Outcomes:
        """Return the possible outcomes of a boolean expression, of a shape that all codes are broadcast to."""
        kind = type(node)
        if kind is exp.Paren:
            return self.sets(node.this)
        if kind is exp.Not:
            return _not(self.sets(node.this))
        if kind is exp.And:
            return _and(self.sets(node.this), self.sets(node.expression))
        if kind is exp.Or:
            return _not(_and(_not(self.sets(node.this)), _not(self.sets(node.expression))))
        if kind is exp.Coalesce:  # of `dpsql.rules.counted` alone: false where it is NULL
            inner = self.sets(node.this)
            false: Outcomes = np.where(inner & (MAY_FALSE | MAY_NULL), MAY_FALSE, np.uint8(0))
            return (inner & MAY_TRUE) | false
        # Where every code is one value DuckDB itself decides; from here on ranges are compared.
        exact = self._exact(node)
        if exact is not None:
            return exact
        if kind is exp.Between:
            low = self._compared(exp.GTE(this=node.this, expression=node.args["low"]))
            high = self._compared(exp.LTE(this=node.this, expression=node.args["high"]))
            return self._constant(_ANY) if low is None or high is None else _and(low, high) | ((low | high) & MAY_NULL)
        if kind is exp.In:
            return self._listed(node)
        if kind is exp.Is and type(node.expression) is exp.Null and type(node.this) is exp.Column:
            return self._is_null(node.this.name)
        if kind in COMPARISONS:
            compared = self._compared(node)
            return self._constant(_ANY) if compared is None else compared
        return self._constant(_ANY)

    def _listed(self, node: exp.Expression) -> Outcomes:
        """Return the outcomes of IN, which is a disjunction, but is NULL as a whole where one of its parts would raise."""
        among, null = self._constant(MAY_FALSE), self._constant(np.uint8(0))
        for value in node.expressions:
            equal = self._compared(exp.EQ(this=node.this, expression=value))
            if equal is None:
                return self._constant(_ANY)
            among, null = _not(_and(_not(among), _not(equal))), null | (equal & MAY_NULL)
        return among | null

    def _constant(self, outcome: np.uint8) -> Outcomes:
        return np.full([1] * self._axes, outcome, np.uint8)

    def _exact(self, node: exp.Expression) -> Outcomes | None:
        """Return what a part comes out as where all its columns have one value per code; None where they have not."""
        names = {column.name for column in node.find_all(exp.Column)}
        used = sorted((self._attributes[name] for name in names), key=lambda pair: pair[0])
        if math.prod(a.size for _, a in used) > MOST_CELLS or not all(single_valued(a) for _, a in used):
            return None
        sizes = [a.size for _, a in used]
        codes = np.indices(sizes or [1]).reshape(len(sizes) or 1, -1).T.astype(np.int32)
        asked = Evaluator(self._cursor, [a for _, a in used], [node])
        arrays = asked.decoded(codes, np.random.default_rng(0)) if used else {}
        try:
            (verdicts,) = asked.verdicts(arrays, len(codes))
        except duckdb.InterruptException:
            raise
        except duckdb.Error:  # it does not fit the types
            return None
        sets = np.zeros(len(codes), np.uint8)
        for verdict, outcome in ((IS_TRUE, MAY_TRUE), (IS_FALSE, MAY_FALSE), (IS_NULL, MAY_NULL)):
            sets[verdicts == verdict] = outcome
        shape = [1] * self._axes
        for axis, attribute in used:
            shape[axis] = attribute.size
        return sets.reshape(shape)

    def _is_null(self, name: str) -> Outcomes:
        axis, attribute = self._attributes[name]
        shape = [1] * self._axes
        shape[axis] = attribute.size
        null = np.arange(attribute.size) >= attribute.values  # bins: the code of other values is written as NULL too
        return np.where(null, MAY_TRUE, MAY_FALSE).astype(np.uint8).reshape(shape)

    def _compared(self, node: exp.Expression) -> Outcomes | None:
        """Return the outcomes of a comparison; None where it is not understood."""
        left, right = (term(side, self._terms, self._axes) for side in (node.this, node.expression))
        if left is None or right is None:
            return None
        if left.kind == "text" and right.kind not in ("text", "number"):
            left = moment(left, right.kind)
        elif right.kind == "text" and left.kind not in ("text", "number"):
            right = moment(right, left.kind)
        if left is None or right is None or not _comparable(left.kind, right.kind):
            return None
        return _ordered(type(node), *_rounded(left, right))


def _comparable(left: str, right: str) -> bool:
    return (left == right and left != "text") or (left in _SAME_MOMENTS and right in _SAME_MOMENTS)


def _rounded(left: Term, right: Term) -> tuple[Term, Term]:
    """Return both sides as FLOAT where one of them is: the other one may be rounded to it."""
    if not (left.single or right.single):
        return left, right
    return _to_single(left), _to_single(right)


def _to_single(side: Term) -> Term:
    with np.errstate(over="ignore"):
        low, high = side.low.astype(np.float32), side.high.astype(np.float32)
    below = np.where(low > side.low, np.nextafter(low, np.float32(-np.inf)), low)
    above = np.where(high < side.high, np.nextafter(high, np.float32(np.inf)), high)
    return replace(side, low=below.astype(np.float64), high=above.astype(np.float64))


def _ordered(kind: type[exp.Expression], left: Term, right: Term) -> Outcomes:
    """Return the outcomes of a comparison of two ranges."""
    less, more = left.low < right.high, left.high > right.low
    overlap = (left.low <= right.high) & (right.low <= left.high)
    same = (left.low == left.high) & (right.low == right.high) & (left.low == right.low)
    # For each comparison: where it may be true, and where it may be false.
    may = {
        exp.LT: (less, left.high >= right.low),
        exp.LTE: (left.low <= right.high, more),
        exp.GT: (more, left.low <= right.high),
        exp.GTE: (left.high >= right.low, less),
        exp.EQ: (overlap, ~same),
        exp.NEQ: (~same, overlap),
    }
    may_true, may_false = may[kind]
    value, null = left.value & right.value, left.null | right.null
    sets: Outcomes = (
        np.where(may_true & value, MAY_TRUE, 0) | np.where(may_false & value, MAY_FALSE, 0) | np.where(null, MAY_NULL, 0)
    ).astype(np.uint8)
    return sets


def _not(sets: Outcomes) -> Outcomes:
    negated: Outcomes = np.array([0, 2, 1, 3, 4, 6, 5, 7], np.uint8)[sets]
    return negated


def _and(a: Outcomes, b: Outcomes) -> Outcomes:
    """Return the outcomes of a conjunction of two parts, each of which has at least one."""
    both = a & b & MAY_TRUE
    either = (a | b) & MAY_FALSE
    beside = ((a & MAY_NULL) & np.where(b & (MAY_TRUE | MAY_NULL), MAY_NULL, 0)) | (
        (b & MAY_NULL) & np.where(a & (MAY_TRUE | MAY_NULL), MAY_NULL, 0)
    )
    conjunction: Outcomes = (both | either | beside).astype(np.uint8)
    return conjunction
