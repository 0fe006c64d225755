"""The guards that make functions of the kernel total.

A guard replaces an argument for which a function would raise by NULL *before* the call; then it does not matter where the
optimizer moves the call. The whole expression stands in a ``TRY`` besides (:func:`caught`), for what nobody has thought of.
"""

from __future__ import annotations

from sqlglot import exp

from dpsql.algebra.pieces import call, only_if, paren

CAUGHT = "__dp_once"
"""Parameter of the lambda that a caught expression stands in."""


def guard_temporal(value: exp.Expression, sql_type: str, *, finite: bool = False) -> exp.Expression:
    """Return a date or timestamp, NULL further than a hundred thousand years away, where no field, difference or shift overflows.

    Differences in microseconds have room for 292,000 years, those of instants in hours for 245,000; a truncation or a step of
    ``dpsql.source.expressions`` before them takes up to 10,020. Within these years, and of infinities, no function of the kernel
    fails on any version (`tests/unit/test_date_functions.py`). ``finite``: whether an infinity is NULL too.
    """
    low, high = (exp.Cast(this=exp.Literal.string(t), to=exp.DataType.build(sql_type, dialect="duckdb")) for t in _years(sql_type))
    within: exp.Expression = exp.Between(this=paren(value.copy()), low=low, high=high)
    return only_if(within if finite else exp.Or(this=within, expression=call("isinf", value.copy())), value)


def _years(sql_type: str) -> tuple[str, str]:
    zone = "+00" if sql_type.endswith("ZONE") else ""
    first, last = ("", "") if sql_type == "DATE" else (f" 00:00:00{zone}", f" 23:59:59.999999{zone}")
    return f"100000-01-01 (BC){first}", f"99999-12-31{last}"


def guard_number(value: exp.Expression, kind: str) -> exp.Expression:
    """Return a number, NULL where the function of this kind of argument has no value."""
    left, zero = paren(value.copy()), exp.Literal.number(0)
    conditions: dict[str, exp.Expression] = {
        "p": exp.GT(this=left, expression=zero),
        "q": exp.GTE(this=left, expression=zero),
        "u": exp.Between(this=left, low=exp.Neg(this=exp.Literal.number(1)), high=exp.Literal.number(1)),
        "f": exp.Between(this=left, low=exp.Neg(this=exp.Literal.number("1e300")), high=exp.Literal.number("1e300")),
    }
    return only_if(conditions[kind], value) if kind in conditions else value


def not_zero(value: exp.Expression) -> exp.Expression:
    """Return a number, NULL where it is zero."""
    if isinstance(value, exp.Literal) and value.name.strip("0."):
        return value
    return only_if(exp.NEQ(this=paren(value.copy()), expression=exp.Literal.number(0)), value)


def cut(value: exp.Expression, longest: int) -> exp.Expression:
    """Return the beginning of a text, so that no text that a source makes grows without bound."""
    if isinstance(value, exp.Literal) and len(value.name) <= longest:
        return value
    if isinstance(value, exp.Anonymous) and value.this == "left" and value.expressions[1].name == str(longest):
        return value
    return call("left", value, exp.Literal.number(longest))


def caught(text: str) -> str:
    """Return an expression as SQL that is NULL where it would raise.

    ``TRY`` alone does not keep that promise: the optimizer pulls a subexpression that occurs twice out of it, and what it raises
    there reaches the caller (``SELECT TRY(s::INT + 1), TRY(s::INT + 2)``, on 1.4, 1.5 and 2.0). The body of a lambda is a
    world of its own that no optimizer looks into. It costs 10 to 20 nanoseconds a row. What it does not catch is raised before
    a row is looked at: while binding, or when a function prepares its constant arguments.

    Examples
    --------
    >>> caught("a + 1")
    'system.main.list_transform([0], lambda __dp_once: TRY(a + 1))[1]'
    """
    return f"system.main.list_transform([0], lambda {CAUGHT}: TRY({text}))[1]"
