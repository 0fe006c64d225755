"""The grains of charting tools: days, months and hours made by adding and taking away, as truncations of the calendar.

Superset's MySQL grains, for example, take ``DAYOFMONTH(t) - 1`` days away and keep the date. What they mean is a truncation, of
which the rest of dpsql knows values, groups and ranges. A text is one of the listed forms with a column for ``x``, or it stays.

Privacy: none; the text of a query and types.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import sqlglot
from sqlglot import exp

from dpsql.algebra.functions import called
from dpsql.algebra.parts import PARTS, part_of
from dpsql.queries.naming import plain
from dpsql.source.intervals import interval_of

_WEEK = "CAST(date_trunc('week', x) AS DATE)"
_WEEK_OF_SUNDAY = "CAST(date_trunc('week', x + INTERVAL 1 DAY) - INTERVAL 1 DAY AS DATE)"
_MONTH, _QUARTER, _YEAR = (f"CAST(date_trunc('{unit}', x) AS DATE)" for unit in ("month", "quarter", "year"))
_DAY, _HOUR, _MINUTE, _SECOND = (f"CAST(date_trunc('{unit}', x) AS TIMESTAMP)" for unit in ("day", "hour", "minute", "second"))
FORMS: Mapping[str, str] = {
    "CAST(x - INTERVAL (day(x) - 1) DAY AS DATE)": _MONTH,
    "CAST(x - INTERVAL (dayofyear(x) - 1) DAY AS DATE)": _YEAR,
    "CAST(x - INTERVAL (isodow(x) - 1) DAY AS DATE)": _WEEK,
    "CAST(x - INTERVAL (dayofweek(x)) DAY AS DATE)": _WEEK_OF_SUNDAY,
    "CAST(x - INTERVAL (dayofweek(x) + 1 - 1) DAY AS DATE)": _WEEK_OF_SUNDAY,
    "CAST(x - INTERVAL (dayofweek(x - INTERVAL 1 DAY)) DAY AS DATE)": _WEEK,
    "CAST(x - INTERVAL (dayofweek(x - INTERVAL 1 DAY) + 1 - 1) DAY AS DATE)": _WEEK,
    "CAST(x AS DATE) + INTERVAL (hour(x)) HOUR": _HOUR,
    "CAST(x AS DATE) + INTERVAL (hour(x) * 60 + minute(x)) MINUTE": _MINUTE,
    "CAST(x AS DATE) + INTERVAL (hour(x) * 60 * 60 + minute(x) * 60 + second(x)) SECOND": _SECOND,
    "CAST(x AS DATE) + INTERVAL (hour(x) * 3600 + minute(x) * 60 + second(x)) SECOND": _SECOND,
    "make_date(year(x), 1, 1)": _YEAR,
    "make_date(year(x), month(x), 1)": _MONTH,
    "make_date(year(x), quarter(x) * 3 - 2, 1)": _QUARTER,
    "make_date(year(x), (quarter(x) - 1) * 3 + 1, 1)": _QUARTER,
    "make_date(year(x), 1, 1) + INTERVAL (quarter(x)) QUARTER - INTERVAL 1 QUARTER": "CAST(date_trunc('quarter', x) AS TIMESTAMP)",
    "strptime(strftime(x, '%Y-%m') || '-01', '%Y-%m-%d')": "CAST(date_trunc('month', x) AS TIMESTAMP)",
    "strptime(strftime(x, '%Y-%m-%d'), '%Y-%m-%d')": _DAY,
    "strptime(strftime(x, '%Y-%m-%d %H'), '%Y-%m-%d %H')": _HOUR,
    "strptime(strftime(x, '%Y-%m-%d %H:%M'), '%Y-%m-%d %H:%M')": _MINUTE,
}
"""How tools write a grain of a finite date or timestamp ``x`` -> what it is."""
_ROOTS = (exp.Cast, exp.Add, exp.Sub, exp.Anonymous)
_SIGNS = {exp.Add: "+", exp.Sub: "-", exp.DPipe: "||"}
_INTEGERS = frozenset([exp.DataType.Type.INT, exp.DataType.Type.BIGINT])
_DATES = frozenset([exp.DataType.Type.DATE])
_TIMESTAMPS = frozenset([exp.DataType.Type.TIMESTAMP, exp.DataType.Type.TIMESTAMPNTZ])
Shape = tuple[object, ...]


def truncation(node: exp.Expression, kind_of: Callable[[exp.Expression], str | None]) -> exp.Expression | None:
    """Return the truncation that an expression is; None where it is none that is listed.

    Parameters
    ----------
    node : sqlglot expression
        It stays as it is.
    kind_of : callable
        Tells of a column whether it is a 'DATE' or a 'TIMESTAMP'; None: neither, or not known.

    Examples
    --------
    >>> from dpsql.queries.naming import plain
    >>> tree = plain(sqlglot.parse_one("CAST(t - INTERVAL (DAYOFMONTH(t) - 1) DAY AS DATE)", dialect="duckdb"))
    >>> truncation(tree, lambda column: "TIMESTAMP").sql("duckdb")
    "CAST(DATE_TRUNC('month', t) AS DATE)"
    """
    if not isinstance(node, _ROOTS):
        return None
    column = node.find(exp.Column)
    text = None if column is None else _listed().get(_shape(node, column) or ())
    if text is None or column is None or kind_of(column) is None:
        return None
    out = _parsed(text)
    for hole in list(out.find_all(exp.Column)):
        hole.replace(column.copy())
    for unit in out.find_all(exp.Literal):
        if unit.is_string and unit.arg_key == "expressions":  # as people write it: one question
            unit.set("this", unit.name.lower())
    return out


@functools.cache
def _listed() -> dict[Shape, str]:
    shapes: dict[Shape, str] = {}
    for written, meant in FORMS.items():
        tree = _parsed(written)
        column = tree.find(exp.Column)
        shape = None if column is None else _shape(tree, column)
        if shape is None:  # pragma: no cover -- a form that is written wrongly here
            raise AssertionError(written)
        shapes[shape] = meant
    return shapes


def _parsed(text: str) -> exp.Expression:
    return plain(sqlglot.parse_one(text, dialect="duckdb"))


def _shape(node: exp.Expression, column: exp.Column) -> Shape | None:
    """Return what an expression is made of, other spellings of it alike; None where there is more in it than grains have."""
    if isinstance(node, exp.Paren):
        return _shape(node.this, column)
    if isinstance(node, exp.Column):
        return ("x",) if node == column else None
    if isinstance(node, exp.Literal):
        return ("text" if node.is_string else "number", node.name)
    interval = interval_of(node)
    if interval is not None:
        unit = interval.args.get("unit")
        amount = _shape(_amount(interval.this), column)
        if unit is None or amount is None:
            return None
        return ("interval", unit.name.upper().removesuffix("S"), ("number", *amount[1:]) if amount[0] == "text" else amount)
    if isinstance(node, exp.Extract):
        return _field(node.this.name.lower(), node.expression, column)
    if isinstance(node, exp.Cast):
        return _of("cast", node.to.this, [node.this], column)
    if isinstance(node, exp.Mul):
        sides = _of("*", "", [node.this, node.expression], column)
        return None if sides is None else (*sides[:2], *sorted(sides[2:], key=repr))
    if type(node) in _SIGNS:
        return _of(_SIGNS[type(node)], "", [node.this, node.expression], column)
    return _call(node, column) if isinstance(node, exp.Anonymous) else None


def _call(node: exp.Anonymous, column: exp.Column) -> Shape | None:
    name, arguments = str(node.this).lower(), list(node.expressions)
    function = called(node)
    if function is not None and function.unit == "part" and len(arguments) == 2 and isinstance(arguments[0], exp.Literal):
        return _field(arguments[0].name.lower(), arguments[1], column)
    if len(arguments) == 1:
        return _field(name, arguments[0], column)
    if name == "strftime":
        arguments[0] = _without_cast(arguments[0], _TIMESTAMPS)
    return _of("call", name, arguments, column)


def _field(name: str, of: exp.Expression, column: exp.Column) -> Shape | None:
    """Return a field of a moment; one of its day is the same of the date."""
    of_day = name in PARTS and PARTS[name].grain == "day"
    return _of("field", part_of(name), [_without_cast(of, _DATES) if of_day else of], column)


def _without_cast(node: exp.Expression, to: frozenset[exp.DataType.Type]) -> exp.Expression:
    while isinstance(node, exp.Paren):
        node = node.this
    return node.this if type(node) is exp.Cast and node.to.this in to else node


def _of(kind: str, name: object, parts: list[exp.Expression], column: exp.Column) -> Shape | None:
    shapes = [_shape(part, column) for part in parts]
    return None if None in shapes else (kind, name, *shapes)


def _amount(node: exp.Expression) -> exp.Expression:
    """Return the number of an interval without the cast to a whole number that writing it as a call takes."""
    while isinstance(node, exp.Paren) or (isinstance(node, exp.Cast) and node.to.this in _INTEGERS):
        node = node.this
    return node
