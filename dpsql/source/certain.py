"""Which generated expressions cannot fail, by the types that they are made of: they run as they are, without the net of `caught`.

The net costs 20 nanoseconds for each row and expression, and nothing passes it: no filter reaches the scan of a table. Here stands
what needs none. The list is short on purpose, far shorter than the kernel: forms that every database runs all day, and of which
DuckDB documents what they do at the ends of their types. Whatever is made of anything else stays in the net, as a whole.

Nothing here rests on what a custodian has declared. Bounds are what he believes of the rows; a proof needs what their types hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from sqlglot import exp

from dpsql.source.kernel import cast_is_safe, is_number

PROVEN = "dp_proven"
"""Key of `Expression.meta`: whoever made this node has shown that it fails for no value of its arguments' types."""

_STRUCTURAL = (
    exp.Paren, exp.Not, exp.And, exp.Or, exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ,
    exp.Between, exp.In, exp.Is, exp.Case, exp.If, exp.Alias,
)  # fmt: skip
_LEAVES = (exp.Column, exp.Literal, exp.Null, exp.Boolean)
_PARTS = frozenset(("year", "month", "day", "quarter"))
_E = TypeVar("_E", bound=exp.Expression)


def proven(node: _E) -> _E:
    """Note that a node fails for no value of its arguments' types, and return it."""
    node.meta[PROVEN] = True
    return node


def widens(source: str, target: str) -> bool:
    """Return whether TRY_CAST between these whole types is one from number to number that every number survives.

    One that can give NULL stays in the net: DuckDB 1 compares ``TRY_CAST(wide AS INTEGER) < 7`` as ``wide < 7``, and has a value
    where there is none. (In the net too, where nothing stands between; outside of it in more places.)

    Examples
    --------
    >>> widens("TINYINT", "DOUBLE"), widens("DOUBLE", "TINYINT"), widens("VARCHAR", "TINYINT"), widens("INTEGER", "DECIMAL(11,1)")
    (True, False, False, True)
    """
    return is_number(source) and is_number(target) and cast_is_safe(source, target)


def part_is_certain(name: str, sql_type: str) -> bool:
    """Return whether a part of a date in years 1 to 9999 is one that needs no calendar of an extension.

    Examples
    --------
    >>> part_is_certain("year", "DATE"), part_is_certain("year", "TIMESTAMP WITH TIME ZONE"), part_is_certain("strftime", "DATE")
    (True, False, False)
    """
    return name in _PARTS and sql_type in ("DATE", "TIMESTAMP")


def certain(node: exp.Expression) -> bool:
    """Return whether a generated expression fails for no value of its columns.

    Parameters
    ----------
    node : sqlglot expression
        As `dpsql.source.expressions` has made it and `dpsql.source.binder` has accepted it.

    Notes
    -----
    Privacy: by induction over the expression. Columns and constants do not fail. Comparisons, of values of one comparable type
    (`dpsql.source.bound`, which also sees to it that a conversion which the binder adds can't fail), connectives, IS NULL,
    BETWEEN, IN, CASE and LIKE with a constant pattern without ESCAPE have a value for all arguments. What is computed is marked
    by whoever made it (`proven`), who knows the types: TRY_CAST to numbers that hold all of the former ones; + - * of DECIMALs
    whose result has room for every digit, and of DOUBLEs, which end at infinity; their quotients by what is not zero; parts of
    dates that were replaced by NULL outside of years 1 to 9999. An argument that fails is in none of them, for it is not certain
    itself.
    """
    if isinstance(node, exp.Anonymous) and str(node.this).rsplit(".", 1)[-1] == "encode" and len(node.expressions) == 1:
        return isinstance(node.expressions[0], exp.Column)  # the bytes of a text
    if isinstance(node, _LEAVES) or (type(node) is exp.Neg and isinstance(node.this, exp.Literal)):
        return True
    if type(node) is exp.Like:
        return certain(node.this) and isinstance(node.expression, exp.Literal)
    if isinstance(node, exp.Cast) and isinstance(node.this, exp.Literal | exp.Null):
        return True  # a constant: it was converted before anything was charged
    if not node.meta.get(PROVEN) and type(node) not in _STRUCTURAL:
        return False
    return all(certain(child) for child in _children(node))


def conditions(node: exp.Expression) -> tuple[list[exp.Expression], list[exp.Expression]]:
    """Return the conditions that AND connects in a WHERE: those that are certain, and the others."""
    parts = _parts(node)
    kept = [certain(part) for part in parts]
    return [p for p, k in zip(parts, kept, strict=True) if k], [p for p, k in zip(parts, kept, strict=True) if not k]


def _parts(node: exp.Expression) -> list[exp.Expression]:
    if isinstance(node, exp.Paren):
        return _parts(node.this)
    return [*_parts(node.this), *_parts(node.expression)] if isinstance(node, exp.And) else [node]


def _children(node: exp.Expression) -> Sequence[exp.Expression]:
    """Return the arguments of a node; the type of a conversion is none."""
    return [child for child in node.iter_expressions() if not isinstance(child, exp.DataType)]
