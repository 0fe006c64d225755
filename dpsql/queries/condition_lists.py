"""Values that a condition leaves of an expression: ``tag IN ('red', 'blue')``, ``upper(code) = 'A1'``.

Whoever names them has listed them, so that they can be public groups though nobody has declared them. Privacy: none; the
text alone.
"""

from __future__ import annotations

import duckdb
from sqlglot import exp

from dpsql.domains import sqltypes
from dpsql.queries.constant_rows import is_constant
from dpsql.queries.naming import canonical, plain, qualify
from dpsql.source.joins import conjuncts, connected
from dpsql.source.parse import render

_WRITTEN = frozenset({"DATE"})
"""Types whose constants are written as texts."""


def left_by(condition: exp.Expression | None, node: exp.Expression) -> list[exp.Expression] | None:
    """Return the constants of which an expression equals one wherever a condition is true; None where it names none.

    Examples
    --------
    >>> from dpsql.source.parse import parse
    >>> tree = parse("SELECT lower(a) FROM t WHERE b > 1 AND LOWER(t.a) IN ('x', 'y') AND (b = 2 OR b = 3)")
    >>> keys = parse("SELECT lower(t.a), b, c").expressions
    >>> [values and [value.name for value in values] for values in (left_by(tree.args["where"].this, key) for key in keys)]
    [['x', 'y'], ['2', '3'], None]
    """
    if condition is None or is_constant(node):
        return None
    own = canonical(node)
    for part in conjuncts(condition):
        named = [_named(one, own) for one in connected(part, exp.Or)]
        if all(named):
            return [value for values in named for value in values or ()]
    return None


def select_of(values: list[exp.Expression], sql_type: str) -> str | None:
    """Return a SELECT of constants as values of a type, without NULL; None where others of the type may be equal to one.

    A text that is compared with a number is equal to it in several spellings, and a row is in the group of its own.
    """
    if not all(isinstance(value, exp.Null) or _is_of(value, sql_type) for value in values):
        return None
    # what is no value of the type equals none
    rows = ", ".join(f"(TRY_CAST({render(value)} AS {sql_type}))" for value in values)
    return f"SELECT DISTINCT v FROM (VALUES {rows}) AS listed(v) WHERE v IS NOT NULL"  # noqa: S608 -- constants


def listed_by(
    cursor: duckdb.DuckDBPyConnection, condition: exp.Expression | None, node: exp.Expression, sql_type: str
) -> tuple[str, ...] | None:
    """Return the values that a condition leaves of an expression of this type over the same rows, as DuckDB writes them.

    None where it names none. Neither is changed.
    """
    if condition is None:
        return None
    trees = [plain(condition.copy()), plain(node.copy())]
    qualify(trees)
    values = left_by(*trees)
    listed = None if values is None else select_of(values, sql_type)
    if listed is None:
        return None
    rows = cursor.execute(f"SELECT CAST(v AS VARCHAR) FROM ({listed}) ORDER BY v ASC").fetchall()  # noqa: S608 -- constants
    return tuple(text for (text,) in rows) or None


def _is_of(value: exp.Expression, sql_type: str) -> bool:
    """Return whether a constant is compared as a value of a type: a text with texts and dates, a number with whole numbers."""
    family = sqltypes.parse(sql_type).family
    if isinstance(value, exp.Cast):
        made = value.to.sql(dialect="duckdb")
        return sql_type in _WRITTEN and made == sql_type and isinstance(value.this, exp.Literal)
    if family == "integer":
        number = value.this if isinstance(value, exp.Neg) else value
        return isinstance(number, exp.Literal) and not number.is_string and number.name.isdigit()
    return (family == "text" or sql_type in _WRITTEN) and isinstance(value, exp.Literal) and value.is_string


def _named(condition: exp.Expression, own: str) -> list[exp.Expression] | None:
    """Return the constants with which a condition sets an expression of this text equal."""
    if isinstance(condition, exp.In):
        values = condition.expressions
        same = canonical(condition.this) == own and not condition.args.get("query")
    elif isinstance(condition, exp.EQ):
        sides = [condition.this, condition.expression]
        values = [side for side in sides if is_constant(side)]
        same = len(values) == 1 and any(canonical(side) == own for side in sides if side is not values[0])
    else:
        return None
    return values if same and values and all(map(is_constant, values)) else None
