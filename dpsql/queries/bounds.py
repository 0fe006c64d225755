"""Which values an expression over columns with declared bounds can have.

Interval arithmetic over the syntax tree of what a source may compute (`dpsql.source.kernel`). The ranges hold for the values that
the rewritten expression has where it is not NULL: what would raise is NULL there, and whole numbers are calculated in 128 bits, so
no value outside of a range comes from an overflow. A raw value outside of declared bounds leads outside of the range; whoever
measures clamps to it.

Privacy: none; public bounds and the text of the query alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from sqlglot import exp

from dpsql.algebra import moments, ranges
from dpsql.algebra.aggregate_rules import WITHOUT_ARGUMENT
from dpsql.algebra.aggregates import AGGREGATES, WINDOWS
from dpsql.algebra.functions import range_of
from dpsql.algebra.moments import moment, time_of_day
from dpsql.algebra.parts import INTERVALS
from dpsql.algebra.ranges import NOTHING, NUMBER, TEMPORAL, TRUTH, UNKNOWN, Range, alike, as_sort, hull, meet
from dpsql.domains import sqltypes
from dpsql.queries.declared import literal_range, range_of_attribute, range_of_type, type_name, typed_range
from dpsql.queries.naming import canonical, plain
from dpsql.queries.narrowing import limits_of
from dpsql.source.intervals import interval_of, whole_of

__all__ = ["Known", "Range", "as_known", "extent", "narrowed", "range_of_attribute", "range_of_type"]

Columns = Callable[[exp.Column], Range | None]
_ROUNDS = 2


@dataclass(frozen=True)
class Known:
    """What is known about columns and expressions; called with a column it gives the column's range.

    Parameters
    ----------
    columns : callable
        A column -> its range as declared; None if nothing is known, not even the type.
    limits : mapping of str to Range
        Canonical text of an expression (`dpsql.queries.naming.canonical`) -> what limits it besides, as a WHERE does.
    given : mapping of str to Range
        The same without qualifiers -> the range that the user gave, which counts whatever else is known.
    """

    columns: Columns
    limits: Mapping[str, Range] = field(default_factory=dict)
    given: Mapping[str, Range] = field(default_factory=dict)

    def __call__(self, node: exp.Column) -> Range | None:
        """Return the range of a column."""
        declared = self.columns(node)
        out = self.limited(node, UNKNOWN if declared is None else declared)
        return None if declared is None and out == UNKNOWN else out

    def limited(self, node: exp.Expression, value: Range) -> Range:
        """Return the range of an expression with what is known about it as a whole."""
        if self.limits:
            value = meet(value, self._limit(node))
        if self.given and (stated := self.given.get(canonical(node, qualified=False))) is not None:
            sort = stated.sort if value.sort == "unknown" else value.sort
            same = alike(sort, stated.sort)
            value = replace(as_sort(stated, sort), sort=sort, whole=value.whole) if same and not value.empty else value
        return value

    def _limit(self, node: exp.Expression) -> Range | None:
        """Return the limit of an expression; ``x`` and ``t.x`` are one column where both stand in one SELECT."""
        text = canonical(node)
        own = self.limits.get(text)
        if own is not None or not isinstance(node, exp.Column):
            return own
        name = canonical(node, qualified=False)
        if node.table:
            return self.limits.get(name)
        same = [limit for limited, limit in self.limits.items() if limited.endswith(f".{name}") and _is_name(limited)]
        return same[0] if len(same) == 1 else None

    def with_limits(self, limits: Mapping[str, Range]) -> Known:
        """Return the same with more limits."""
        both = dict(self.limits)
        for name, limit in limits.items():
            both[name] = meet(both[name], limit) if name in both else limit
        return replace(self, limits=both)


def _is_name(text: str) -> bool:
    return text.startswith('"') and text.count('"') == 4


def as_known(known: Columns) -> Known:
    """Return what is known as a `Known`."""
    return known if isinstance(known, Known) else Known(known)


def narrowed(where: exp.Expression | None, known: Columns) -> Known:
    """Return what is known where a condition is true.

    Parameters
    ----------
    where : sqlglot expression, optional
        The condition, or the WHERE clause.
    known : callable
        A column -> its range, which may be infinite on one side, or None. A `Known` also limits expressions.

    Examples
    --------
    >>> import sqlglot
    >>> query = sqlglot.parse_one("SELECT FROM t WHERE a BETWEEN 1 AND 9 AND a + b < 20 AND b >= 0", dialect="duckdb")
    >>> known = narrowed(query.args["where"], lambda column: None)
    >>> [extent(sqlglot.parse_one(text, dialect="duckdb"), known).upper for text in ("A+B", "b + a", "a")]
    [20.0, inf, 9.0]
    """
    out = as_known(known)
    condition = where.this if isinstance(where, exp.Where) else where
    for _ in range(_ROUNDS if condition is not None else 0):  # a < x AND x < 10: what is known of x bounds a
        out = out.with_limits(limits_of(plain(condition), _Extents(out), "true"))
    return out


def extent(node: exp.Expression, known: Columns) -> Range:
    """Return what is known of the range of an expression, with infinite bounds where nothing is.

    Parameters
    ----------
    node : sqlglot expression
        As the user wrote it; any dialect's tree.
    known : callable
        As for `narrowed`.

    Returns
    -------
    Range
        Dates in days, timestamps in seconds since 1970.

    Notes
    -----
    NULL and NaN are possible besides. Arithmetic on FLOAT rounds to 24 bits, which may pass a bound by that much.

    Examples
    --------
    >>> import sqlglot
    >>> extent(sqlglot.parse_one("least(greatest(x, 0), 100) / 4", dialect="duckdb"), lambda column: None)
    Range(lower=0.0, upper=25.0, whole=False, sort='number')
    """
    try:
        return _Extents(as_known(known))(plain(node))
    except RecursionError:
        return UNKNOWN


class _Extents:
    """The ranges of the parts of one expression."""

    def __init__(self, known: Known) -> None:
        self.known = known
        self._found: dict[int, tuple[exp.Expression, Range]] = {}  # the node is kept, so that its id stays its own

    def __call__(self, node: exp.Expression) -> Range:
        if id(node) not in self._found:
            self._found[id(node)] = node, self._of(node)
        return self._found[id(node)][1]

    def _of(self, node: exp.Expression) -> Range:
        while isinstance(node, exp.Paren):
            node = node.this
        if isinstance(node, exp.Column):
            known = self.known(node)
            return UNKNOWN if known is None else known
        value = self._made(node)
        return self.known.limited(node, value) if self.known.limits or self.known.given else value

    def _made(self, node: exp.Expression) -> Range:
        if isinstance(node, exp.Literal):
            return literal_range(node)
        if isinstance(node, exp.Null):
            return NOTHING
        if isinstance(node, exp.Boolean):
            return Range(float(node.this), float(node.this), True)
        if isinstance(node, exp.Condition) and isinstance(node, _TRUTHS):
            return TRUTH
        if isinstance(node, exp.Neg):
            return ranges.negated(self(node.this))
        if isinstance(node, exp.Cast):
            return self._cast(node)
        if isinstance(node, exp.Case):
            return self._case(node)
        if isinstance(node, exp.Coalesce | exp.Anonymous):
            return self._call(node)
        if isinstance(node, exp.Filter):
            return _Extents(self.known.with_limits(limits_of(node.expression.this, self, "true")))(node.this)
        if isinstance(node, exp.Window | exp.IgnoreNulls | exp.RespectNulls | exp.WithinGroup):
            return self(node.this)
        if isinstance(node, exp.Extract):
            return moments.field(node.this.name.lower(), self(node.expression))
        if type(node) in _ARITHMETIC or isinstance(node, exp.Pow):
            return self._arithmetic(node)
        return UNKNOWN

    def _arithmetic(self, node: exp.Expression) -> Range:
        left, right = self(node.this), node.expression
        while isinstance(right, exp.Paren):
            right = right.this
        step = interval_of(right)
        if step is not None:
            return self._shift(node, left, step)
        operand = self(right)
        if left.empty or operand.empty:
            return NOTHING
        if left.sort in TEMPORAL or operand.sort in TEMPORAL:
            return _dates(node, left, operand)
        if isinstance(node, exp.Pow):
            return ranges.power(left, operand.lower) if operand.lower == operand.upper else NUMBER
        if "time" in (left.sort, operand.sort):
            return UNKNOWN
        if "unknown" in (left.sort, operand.sort) and not isinstance(node, exp.Mod | exp.Div):
            return UNKNOWN
        return _ARITHMETIC[type(node)](left, operand)

    @staticmethod
    def _shift(node: exp.Expression, value: Range, step: exp.Interval) -> Range:
        unit = step.args.get("unit")
        name = unit.name.lower().removesuffix("s") if isinstance(unit, exp.Var) else ""
        amount = whole_of(step)
        if name not in INTERVALS or amount is None:
            return UNKNOWN
        return moments.shifted(value, amount * (-1 if isinstance(node, exp.Sub) else 1), name)

    def _case(self, node: exp.Case) -> Range:
        """Return the hull of the branches, each where its condition is true and those before are not."""
        covered, known = NOTHING, self.known
        subject = node.this
        for branch in node.args["ifs"]:
            condition = exp.EQ(this=subject.copy(), expression=branch.this.copy()) if subject is not None else branch.this
            before = _Extents(known)
            inside = known.with_limits(limits_of(condition, before, "true"))
            covered = hull(covered, _Extents(inside)(branch.args["true"]))
            known = known.with_limits(limits_of(condition, before, "untrue"))
        default = node.args.get("default")
        return covered if default is None else hull(covered, _Extents(known)(default))

    def _cast(self, node: exp.Cast) -> Range:
        sql_type = type_name(node.args["to"])
        typed = typed_range(sql_type)
        inner = node.this
        if isinstance(inner, exp.Literal) and inner.is_string and typed.sort in TEMPORAL:
            return moment(inner.name, typed.sort) or typed
        value = self(inner)
        if typed.sort == "time":
            read = time_of_day(inner.name) if isinstance(inner, exp.Literal) and inner.is_string else None
            return read or (value if value.empty or value.sort == "time" else typed)
        if value.empty or typed.sort == "unknown":
            return NOTHING if value.empty else typed
        if typed == TRUTH:
            return TRUTH
        if not alike(value.sort, typed.sort) or value.sort == "unknown":
            return range_of_type(sql_type) if typed.sort not in TEMPORAL else typed  # of a text
        if typed.sort in TEMPORAL:
            moved = as_sort(value, typed.sort)
            if typed.sort == "date" and value.sort != "date":
                return Range(_floor(moved.lower), _floor(moved.upper), True, "date")
            return replace(moved, sort=typed.sort)
        parsed = sqltypes.parse(sql_type)
        if parsed.family in ("integer", "decimal"):
            value = ranges.rounded(value, parsed.scale)
        return meet(replace(value, sort=typed.sort), replace(range_of_type(sql_type), whole=False))

    def _call(self, node: exp.Expression) -> Range:
        if isinstance(node, exp.Coalesce):
            name, arguments = "coalesce", [node.this, *node.expressions]
        else:
            name = (node.this if isinstance(node.this, str) else node.this.name).lower()
            arguments = node.expressions
        if name == "try":
            return self(arguments[0])
        bounds = range_of(name, self, arguments)
        if bounds is not None:
            return bounds
        combined = AGGREGATES.get(name) or WINDOWS.get(name)
        rule = None if combined is None else combined.range
        return rule(self, arguments) if rule is not None and (arguments or rule in WITHOUT_ARGUMENT) else UNKNOWN


def _dates(node: exp.Expression, left: Range, right: Range) -> Range:
    """DATE + days, DATE - days, DATE - DATE."""
    if left.sort in TEMPORAL and right.sort in TEMPORAL and isinstance(node, exp.Sub):
        days = ranges.minus(as_sort(left, "date"), as_sort(right, "date"))
        return Range(_floor(days.lower), -_floor(-days.upper), True, "integer")
    if left.sort in TEMPORAL and isinstance(node, exp.Add | exp.Sub):
        moved = as_sort(left, "date")
        shifted = (ranges.plus if isinstance(node, exp.Add) else ranges.minus)(moved, right)
        return Range(_floor(shifted.lower), -_floor(-shifted.upper), True, "date")
    return UNKNOWN


def _floor(value: float) -> float:
    return float(math.floor(value)) if math.isfinite(value) else value


_ARITHMETIC: dict[type[exp.Expression], Callable[[Range, Range], Range]] = {
    exp.Add: ranges.plus, exp.Sub: ranges.minus, exp.Mul: ranges.times, exp.Div: ranges.over, exp.IntDiv: ranges.cut_over,
    exp.Mod: ranges.remainder,
}
_TRUTHS = (
    exp.And, exp.Or, exp.Not, exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Is,
    exp.Between, exp.In, exp.Like, exp.ILike, exp.Exists,
)
