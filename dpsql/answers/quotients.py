"""Quotients of released numbers, estimated jointly: never without a value where the denominator may be positive. Post-processing.

A noisy number of rows, or sum of values that are not negative, may be 0 or less where the true one is not. As a denominator it is
then taken for one deviation of its noise: the quotient is small and finite, and its interval wide. A share of rows (``count(*)
FILTER (...) / count(*)``) lies in [0, 1]. WHERE, ORDER BY and LIMIT of the outer statement see the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sqlglot import exp

from dpsql.queries.aggregates import Aggregate
from dpsql.queries.choosing import LINEAR
from dpsql.queries.taken import CORE, Core
from dpsql.source.model import identifier as name_of

DENOMINATOR = "q"
"""Beginning of the name of the column that an aggregate is as a denominator: q0 of a0."""


def joint(outer: exp.Expression, cores: Iterable[Core]) -> tuple[exp.Expression, dict[str, list[int]]]:
    """Return the outer statement with its quotients of aggregates, and which aggregates of each core are denominators."""
    found: dict[str, set[int]] = {core.name: set() for core in cores}
    known: Mapping[str, Core] = {core.name: core for core in cores}
    made = outer.copy()
    for select in made.find_all(exp.Select):
        clause = select.args.get("from_")
        name = clause.this.name if clause is not None and isinstance(clause.this, exp.Table) else ""
        if not name.startswith(CORE) or name not in known or select.args.get("joins"):
            continue
        for node in [node for node in select.find_all(exp.Div) if node.parent_select is select]:
            place = _denominator(node.expression)
            if place is None or known[name].aggregates[place].function not in LINEAR:
                continue
            found[name].add(place)
            node.set("expression", _column(place))
            _limit(node, known[name], place)
    return made, {name: sorted(places) for name, places in found.items()}


def _limit(node: exp.Div, core: Core, place: int) -> None:
    """Keep a part of the rows between none and all of them."""
    for column in [*node.this.find_all(exp.Column)]:
        inner = _place(column)
        outermost = column.find_ancestor(exp.Anonymous, exp.Div) is node
        if inner is None or not outermost or not _part(core.aggregates[inner], core.aggregates[place]):
            continue
        least = exp.Anonymous(this="greatest", expressions=[column.copy(), exp.Literal.number(0)])
        column.replace(exp.Anonymous(this="least", expressions=[least, _column(place)]))


def parted(node: exp.Expression) -> tuple[float, int, int, bool] | None:
    """Return the factor, numerator and denominator of a quotient that `joint` has made, and whether it is a share; else None."""
    times = 1.0
    while isinstance(node, exp.Paren):
        node = node.this
    if not isinstance(node, exp.Div) or not isinstance(node.expression, exp.Column) or node.expression.name[:1] != DENOMINATOR:
        return None
    under, over = int(node.expression.name[1:]), node.this
    while isinstance(over, exp.Paren | exp.Mul):
        if isinstance(over, exp.Paren):
            over = over.this
            continue
        number, other = (over.this, over.expression) if isinstance(over.this, exp.Literal) else (over.expression, over.this)
        if not isinstance(number, exp.Literal) or number.is_string:
            return None
        times, over = times * float(number.name), other
    share = isinstance(over, exp.Anonymous) and str(over.this) == "least"
    if share:
        over = over.expressions[0].expressions[0]
    place = _place(over) if isinstance(over, exp.Column) else None
    return None if place is None else (times, place, under, share)


def _part(one: Aggregate, other: Aggregate) -> bool:
    """Return whether one counts a part of the rows that another one counts."""
    all_ = other.function == "count" and not other.arguments and other.condition is None
    return all_ and one.function == "count" and (bool(one.arguments) or one.condition is not None)


def _denominator(node: exp.Expression) -> int | None:
    """Return which aggregate a denominator is, brackets, casts and NULLIF(..., 0) aside."""
    while isinstance(node, exp.Paren | exp.Cast | exp.Nullif):
        if isinstance(node, exp.Nullif) and not (isinstance(node.expression, exp.Literal) and float(node.expression.name) == 0):
            return None
        node = node.this
    if isinstance(node, exp.Anonymous) and str(node.this).lower() == "nullif" and len(node.expressions) == 2:
        value, nothing = node.expressions
        return _denominator(value) if isinstance(nothing, exp.Literal) and nothing.name in ("0", "0.0") else None
    return _place(node) if isinstance(node, exp.Column) else None


def _place(column: exp.Column) -> int | None:
    digits = column.name[1:]
    return int(digits) if column.name[:1] == "a" and digits.isdecimal() else None


def _column(place: int) -> exp.Column:
    return exp.Column(this=name_of(f"{DENOMINATOR}{place}"))
