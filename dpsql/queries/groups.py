"""Group keys whose values are known without the data.

A key is evaluated by DuckDB on every combination of the values that its columns can have, in the total form in which it runs on the
rows (`dpsql.source.expressions.Rewriter`). Columns have listed values (categories, labels, small whole numbers, days); timestamps
stand under functions that see days, hours, minutes or seconds alone, and are listed in those; of what is left, comparisons come out
as true, false or NULL, and whole numbers between bounds are listed. So the list holds every value that the key can have where the
columns keep to their declarations. It may hold more, which are empty groups; rows whose key is not in it are in no group.

Privacy: none; public declarations and the text of the query alone. No table is read.
"""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
from sqlglot import exp

from dpsql.errors import DpsqlError
from dpsql.queries.combinations import Combinations
from dpsql.queries.grains import searched
from dpsql.queries.keys import Groups, KeyValues, NotListed, Universes
from dpsql.queries.naming import plain
from dpsql.queries.universes import MOST_VALUES

__all__ = ["Groups", "Universes", "left_out", "of_declared", "public_groups", "type_over"]


def left_out(name: str) -> str:
    """Return what to know of a column with values besides those that were declared: `Groups.lost`, `Groups.strays`."""
    return (
        f"rows whose value of {name} is not among those declared may be in no group; groups := 'private' finds other values that "
        "enough units have"
    )


def of_declared(aggregate: str) -> str:
    """Return what to know of an aggregate that is made of the declared values of its argument, where rows may have others."""
    return f"{aggregate} is of declared values alone: rows with others do not count in it"


def public_groups(
    cursor: duckdb.DuckDBPyConnection,
    keys: Sequence[exp.Expression],
    known_values: Universes,
    where: exp.Expression | None = None,
    most: int = MOST_VALUES,
    together: Sequence[Combinations] = (),
    bare: Universes | None = None,
) -> Groups:
    """Return every group that the rows can have.

    Parameters
    ----------
    cursor : DuckDB cursor
        No table is read on it.
    keys : sequence of sqlglot expression
        Of GROUP BY, over the columns of one relation.
    known_values : callable
        A column -> what is known of its values; None if not even the type is.
    where : sqlglot expression, optional
        The condition that all rows satisfy: groups that it rules out are left out where that is seen.
    most : int
        Groups, and combinations of values that a key is evaluated on.
    together : sequence of Combinations
        Which values some columns have together; other combinations are no groups.
    bare : callable, optional
        As ``known_values``, where the type and the bounds are all that is asked for; None: ``known_values``.

    Returns
    -------
    Groups
        Keys over the same column are evaluated together: ``year(d), month(d)`` gives months that exist. False, with the reason,
        where the groups are not known without the data.

    Notes
    -----
    Privacy: free.
    """
    condition = where.this if isinstance(where, exp.Where) else where
    try:
        simple = plain(condition.copy()) if condition is not None else None
        known = KeyValues(cursor, known_values, simple, most, tuple(together), bare)
        return known.groups([searched(plain(key.copy())) for key in keys])
    except NotListed as error:
        return Groups("", reason=str(error))
    except (DpsqlError, duckdb.Error, RecursionError):  # a key that a source may not compute is refused elsewhere
        return Groups("", reason="a key can't be evaluated without rows")


def type_over(cursor: duckdb.DuckDBPyConnection, node: exp.Expression, known_values: Universes) -> str | None:
    """Return the type of an expression over columns of known types; None where it has none, or may not be computed."""
    tree = plain(node.copy())
    try:
        key_values = KeyValues(cursor, known_values, None, MOST_VALUES)
        for column in tree.find_all(exp.Column):
            key_values.universe(column)
        return key_values.type_of(tree)
    except (NotListed, DpsqlError, duckdb.Error, RecursionError):
        return None
