"""How finely an expression looks at a timestamp, and whether it can be NULL.

Privacy: none; the text of the query alone.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from dpsql.algebra.functions import called
from dpsql.algebra.parts import INTERVALS, PARTS
from dpsql.source.intervals import interval_of

_FORMATS = {**dict.fromkeys("aAdbBmyYwujUWVG%", "day"), **dict.fromkeys("HIp", "hour"), "M": "minute", "S": "second"}
_ORDER = ("day", "hour", "minute", "second")


def grain_of(column: exp.Column) -> str | None:
    """Return the unit whose beginnings stand for all timestamps, as far as the function around a column sees.

    Returns
    -------
    {'day', 'hour', 'minute', 'second'} or None
        None if the column stands bare, or under something that sees more.

    Examples
    --------
    >>> import sqlglot
    >>> tree = sqlglot.parse_one("CASE WHEN hour(t) < 12 THEN 1 END", dialect="duckdb")
    >>> from dpsql.queries.naming import plain
    >>> grain_of(plain(tree).find(exp.Column))
    'hour'
    """
    node: exp.Expression = column
    while isinstance(node.parent, exp.Paren) or _moves_days(node):
        node = node.parent or node
    outer = node.parent
    if isinstance(outer, exp.Extract):
        return grain_of_part(outer.this.name.lower())
    if isinstance(outer, exp.Cast):
        return "day" if outer.args["to"].this.value == "DATE" else None
    if not isinstance(outer, exp.Anonymous):
        return None
    function, arguments = called(outer), outer.expressions
    if function is None:
        return None
    if function.unit and len(arguments) == 2 and isinstance(arguments[0], exp.Literal):
        return grain_of_part(arguments[0].name.lower())
    if function.name == "strftime" and len(arguments) == 2 and isinstance(arguments[1], exp.Literal):
        return _of_format(arguments[1].name)
    return function.grain or None


def _moves_days(node: exp.Expression) -> bool:
    """Whether whole days, months or years are added to an operand: moments of one day stay together."""
    outer = node.parent
    if not isinstance(outer, exp.Add | exp.Sub) or node.arg_key != "this":
        return False
    step = interval_of(outer.expression)
    unit = None if step is None else step.args.get("unit")
    name = "" if unit is None else str(unit.name).lower().removesuffix("s")
    return name in INTERVALS and PARTS[name].grain == "day"


def grain_of_part(part: str) -> str | None:
    """Return the unit whose beginnings stand for all moments of which a field, or a truncation, is asked; None for finer ones."""
    return (PARTS[part].grain or None) if part in PARTS else None


def _of_format(text: str) -> str | None:
    letters = [piece[:1] for piece in text.replace("%-", "%").replace("%%", "").split("%")[1:]]
    if any(letter not in _FORMATS for letter in letters):
        return None
    return max((_FORMATS[letter] for letter in letters), key=_ORDER.index, default="day")


def searched(node: exp.Expression) -> exp.Expression:
    """Return an expression with ``CASE x WHEN a`` written as ``CASE WHEN x = a``."""
    holder = exp.Paren(this=node)
    for case in list(holder.find_all(exp.Case)):
        subject = case.this
        if subject is not None:
            for branch in case.args["ifs"]:
                branch.set("this", exp.EQ(this=exp.Paren(this=subject.copy()), expression=exp.Paren(this=branch.this.copy())))
            case.set("this", None)
    out: exp.Expression = holder.this
    out.parent = None
    return out


def may_be_null(node: exp.Expression, nullable: Callable[[exp.Column], bool]) -> bool:
    """Return whether an expression can be NULL for values that keep to their declarations; True where that is not clear."""
    if isinstance(node, exp.Column):
        return nullable(node)
    if isinstance(node, exp.Literal | exp.Boolean | exp.Is | exp.NullSafeEQ | exp.NullSafeNEQ):
        return False
    if isinstance(node, exp.Paren | exp.Not):
        return may_be_null(node.this, nullable)
    if isinstance(node, exp.EQ | exp.NEQ | exp.LT | exp.LTE | exp.GT | exp.GTE | exp.And | exp.Or):
        return may_be_null(node.this, nullable) or may_be_null(node.expression, nullable)
    if isinstance(node, exp.Between):
        return any(may_be_null(node.args[k], nullable) for k in ("this", "low", "high"))
    if isinstance(node, exp.In):
        return any(may_be_null(n, nullable) for n in (node.this, *node.expressions))
    divisor = node.expression if isinstance(node, exp.Div | exp.IntDiv | exp.Mod) else None
    if isinstance(divisor, exp.Literal) and divisor.name.strip("0."):
        return may_be_null(node.this, nullable)
    function = called(node)
    if function is None or not function.null or not node.expressions:
        return True
    return all(may_be_null(n, nullable) for n in (node.expressions if function.null == "all" else node.expressions[:1]))
