"""Columns that nothing names are left out of a generated source, before it is checked.

A source lists every column of a table, and of each subquery: which of them are needed is known at its end. Of a wide table most are
not, and each would be parsed, bound, rehearsed with made-up values, and, where rows of a unit are numbered, sorted by.

Privacy
-------
What is left out is copied: a column of what stands in FROM, or its first characters, under a name that no expression above it has.
It decides over no row, so that there are the same rows without it, and no condition, key or aggregate sees it. What is left is
checked as every generated source is, by itself.

*Rows that are numbered* (`dpsql.source.limits`) are kept by a hash of their columns, and then by these. Let p be a unit's rows
without the columns that nothing above names. What stands above sees p alone, and rows that are equal in p are one to it; which
of p is kept is decided by p's columns alone. So what is kept is a function of the unit's own rows still, and their number is the
same. (To number by a column that is left out would cost time only. Not to number by one that is named would be a fault: DuckDB
would choose which of several rows is kept.)
"""

from __future__ import annotations

from collections import Counter

from sqlglot import exp

from dpsql.source.model import ROW, UNIT

NUMBERING = "dpsql_numbering"
"""Mark on a generated SELECT whose one window numbers the rows of a unit by all other columns that it lists."""
_COPYING = ("left", "decode", "encode")
"""What makes the first characters of a text, and what has no collation."""
_CHOOSING = {"expressions", "from_", "joins", "where"}
"""Parts of a SELECT that only chooses rows and columns."""


def narrow(select: exp.Select) -> None:
    """Leave the columns out of the subqueries of a generated source that nothing names. What it gives has all of its columns."""
    selects = list(select.find_all(exp.Select))
    if any(join.args.get("using") for join in select.find_all(exp.Join)) or any(
        one.is_star for part in selects for one in part.expressions
    ):
        return  # these name columns without writing them
    named = Counter((column.table, column.name) for column in select.find_all(exp.Column))
    for inner in selects:  # from the outermost inwards: what is dropped above is not named below
        outer = inner.parent
        chooses = {name for name, value in inner.args.items() if value} <= _CHOOSING
        if not (chooses and isinstance(outer, exp.Subquery) and outer.alias and isinstance(outer.parent, exp.From | exp.Join)):
            continue
        kept = [one for one in inner.expressions if not _copied(one) or named[outer.alias, one.alias] or named["", one.alias]]
        if inner.meta.get(NUMBERING):
            if not any(map(_copied, kept)):  # rows that are all alike: any column numbers them
                kept = [*[one for one in inner.expressions if _copied(one)][:1], *kept]
            if not _renumbered(inner, kept, named):
                continue
        kept = kept or inner.expressions[:1]
        here = {id(one) for one in kept}
        for one in inner.expressions:
            column = _copied(one)
            if column is not None and id(one) not in here:
                named[column.table, column.name] -= 1
        inner.set("expressions", kept)


def _copied(listed: exp.Expression) -> exp.Column | None:
    """Return the column that this copies, or the first characters of, and that may be left out; None of anything else."""
    if not isinstance(listed, exp.Alias) or listed.alias in (UNIT, ROW):
        return None
    value = listed.this
    while isinstance(value, exp.Anonymous) and str(value.this).lower() in _COPYING:
        value = value.expressions[0]
    return value if isinstance(value, exp.Column) else None


def _renumbered(select: exp.Select, kept: list[exp.Expression], named: Counter[tuple[str, str]]) -> bool:
    """Let the rows be numbered by the columns that are kept alone; return whether they are: False where they have no order."""
    [window] = [window for one in select.expressions for window in one.find_all(exp.Window)]
    order = window.args.get("order")
    listed = {(column.table, column.name) for one in kept if (column := _copied(one)) is not None}
    keys = [] if order is None else order.expressions[1:]
    left = [key for key in keys if (key.this.table, key.this.name) in listed]
    if order is None or not left:
        return False
    for key in keys:
        if key not in left:
            named[key.this.table, key.this.name] -= 2  # once as a key, once in the hash
    hashed = order.expressions[0]
    hashed.this.set("expressions", [key.this.copy() for key in left])
    order.set("expressions", [hashed, *left])
    return True


__all__ = ["NUMBERING", "narrow"]
