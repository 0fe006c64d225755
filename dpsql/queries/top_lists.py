"""The largest groups of a chart: rows are not chosen by an answer, its groups are.

Superset and Tableau draw "the five largest regions" as rows joined to a list of these, ``JOIN (SELECT region AS k, sum(x) AS s FROM
t GROUP BY region ORDER BY s DESC LIMIT 5) AS top ON region = k``, people write ``WHERE region IN (SELECT ...)``. Of rows that would
be a question that needs another's answer first. Where the rows are grouped by that column, it says the same as ``HAVING region IN
(SELECT k FROM (...) AS top)``: a list that is grouped by one key has each value once, so a row meets one of its entries or none,
and all rows of a group meet the same.

Privacy: none; the text alone. Both are answers that are paid for, and which groups of one are shown follows from the other.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from dpsql.source.joins import conjuncts
from dpsql.source.model import fold

Protected = Callable[[exp.Table], bool]


def of_groups(tree: exp.Expression, protected: Protected) -> exp.Expression:
    """Return a query whose lists of groups choose groups.

    Parameters
    ----------
    tree : sqlglot expression
        It is changed.
    protected : callable
        Whether a table has protected rows.
    """
    named = {fold(cte.alias): cte.this for cte in tree.find_all(exp.CTE)}
    for select in list(tree.find_all(exp.Select)):
        if isinstance(select.args.get("group"), exp.Group):
            _join_lists(select, named, protected)
            _where_lists(select, named, protected)
    return tree


def _join_lists(select: exp.Select, named: dict[str, exp.Expression], protected: Protected) -> None:
    for join in list(select.args.get("joins") or []):
        parts = _joined(select, join, named)
        if parts is None:
            continue
        column, key, listed = parts
        if _reads(listed, named, protected):
            left = [sibling for sibling in select.args["joins"] if sibling is not join]
            select.set("joins", left or None)
            chosen = exp.select(exp.column(exp.to_identifier(key, quoted=True))).from_(join.this.copy())
            _require(select, exp.In(this=column.copy(), query=exp.Subquery(this=chosen)))


def _joined(
    select: exp.Select, join: exp.Join, named: dict[str, exp.Expression]
) -> tuple[exp.Column, str, exp.Select] | None:
    """Return the grouped column that a list is joined by, the list's key, and the list; None where it is something else."""
    listed = join.this.this if isinstance(join.this, exp.Subquery) else None
    if isinstance(join.this, exp.Table) and len(join.this.parts) == 1:
        listed = named.get(fold(join.this.name))
    alias = fold(join.this.alias_or_name)
    if not isinstance(listed, exp.Select) or not alias or join.side or join.kind not in ("", "INNER") or join.method:
        return None
    key = _key(listed)
    pair = None if key is None else _pair(join, alias, key)
    if key is None or pair is None or not _grouped(select, pair):
        return None
    # where another column of the list is used, it is a relation to read and no mere list
    outputs = {fold(item.alias_or_name) for item in listed.expressions} - ({key} if join.args.get("using") else set())
    inside = {id(node) for node in join.walk()}
    for column in select.find_all(exp.Column, exp.Star):
        if id(column) in inside or column.find_ancestor(exp.Select) is not select:
            continue
        table = fold(column.text("table"))
        if isinstance(column, exp.Star) and not isinstance(column.parent, exp.Anonymous | exp.Count):
            return None
        if table == alias or (not table and fold(column.name) in outputs):
            return None
    return pair, key, listed


def _pair(join: exp.Join, alias: str, key: str) -> exp.Column | None:
    """Return the column of the rows that a join sets equal to the key of a list, where it does that and no more."""
    using = join.args.get("using") or []
    if using:
        return exp.column(using[0].name) if len(using) == 1 and fold(using[0].name) == key else None
    on = join.args.get("on")
    while isinstance(on, exp.Paren):
        on = on.this
    if not isinstance(on, exp.EQ):
        return None
    for mine, theirs in ((on.this.unnest(), on.expression.unnest()), (on.expression.unnest(), on.this.unnest())):
        columns = isinstance(mine, exp.Column) and isinstance(theirs, exp.Column)
        if columns and fold(theirs.name) == key and fold(theirs.text("table")) == alias and fold(mine.text("table")) != alias:
            return mine
        if columns and fold(theirs.name) == key and not theirs.text("table") and fold(mine.name) != key:
            return mine
    return None


def _where_lists(select: exp.Select, named: dict[str, exp.Expression], protected: Protected) -> None:
    where = select.args.get("where")
    if where is None:
        return
    for condition in conjuncts(where.this):
        inner = condition.args.get("query") if isinstance(condition, exp.In) else None
        listed = inner.unnest() if isinstance(inner, exp.Expression) else None
        column = condition.this.unnest() if isinstance(condition, exp.In) else None
        if not isinstance(listed, exp.Select) or not isinstance(column, exp.Column) or not _grouped(select, column):
            continue
        source = listed.args.get("from_") or listed.args.get("from")
        # SELECT a FROM (SELECT a, count(*) ... GROUP BY a) is one step further out
        answer = listed if isinstance(listed.args.get("group"), exp.Group) else source.this.unnest() if source is not None else None
        if not isinstance(answer, exp.Select) or not isinstance(answer.args.get("group"), exp.Group):
            continue
        # rows are not filtered by released numbers: groups are
        if _reads(listed, named, protected):
            _require(select, condition.copy())
            condition.replace(exp.true())



def _require(select: exp.Select, condition: exp.Expression) -> None:
    """Add a condition on the groups of a SELECT."""
    having = select.args.get("having")
    whole = condition if having is None else exp.And(this=exp.paren(having.this), expression=condition)
    select.set("having", exp.Having(this=whole))


def _key(listed: exp.Select) -> str | None:
    """Return the folded name of the one key that a list is grouped by; None where it has others, or does not give it out."""
    group = listed.args.get("group")
    if not isinstance(group, exp.Group) or any(group.args.get(k) for k in ("rollup", "cube", "grouping_sets", "all", "totals")):
        return None
    if len(group.expressions) != 1 or listed.args.get("distinct"):
        return None
    by = group.expressions[0]
    if isinstance(by, exp.Literal):
        place = int(by.name) if by.name.isdigit() else 0
        return fold(listed.expressions[place - 1].alias_or_name) or None if 0 < place <= len(listed.expressions) else None
    for item in listed.expressions:
        if _same(item.unalias(), by) and not _shadowed(listed, by):
            return fold(item.alias_or_name) or None
    return None


def _shadowed(select: exp.Select, by: exp.Expression) -> bool:
    """Whether a name in GROUP BY is also that of an item which is something else."""
    name = fold(by.name) if isinstance(by, exp.Column) and not by.text("table") else ""
    return any(isinstance(i, exp.Alias) and fold(i.alias) == name and not _same(i.this, by) for i in select.expressions)


def _grouped(select: exp.Select, column: exp.Column) -> bool:
    """Whether a SELECT is grouped by a column, and by nothing that has groups without it."""
    group = select.args["group"]
    if any(group.args.get(k) for k in ("rollup", "cube", "grouping_sets", "totals")):
        return False
    if group.args.get("all"):
        return any(_same(item.unalias(), column) for item in select.expressions)
    for by in group.expressions:
        if isinstance(by, exp.Literal) and by.name.isdigit() and 0 < int(by.name) <= len(select.expressions):
            if _same(select.expressions[int(by.name) - 1].unalias(), column):
                return True
        elif _same(by, column) and not _shadowed(select, by):
            return True
    return False


def _same(left: exp.Expression, right: exp.Expression) -> bool:
    """Whether two expressions are one column, or alike."""
    left, right = left.unnest(), right.unnest()
    if isinstance(left, exp.Column) and isinstance(right, exp.Column):
        tables = {fold(left.text("table")), fold(right.text("table"))} - {""}
        return fold(left.name) == fold(right.name) and len(tables) < 2
    return bool(left == right)


def _reads(
    query: exp.Expression, named: dict[str, exp.Expression], protected: Protected, seen: frozenset[str] = frozenset()
) -> bool:
    """Whether a query reads protected rows, by itself or by what WITH names."""
    for table in query.find_all(exp.Table):
        name = fold(table.name)
        if len(table.parts) == 1 and name in named:
            if name not in seen and _reads(named[name], named, protected, seen | {name}):
                return True
        elif isinstance(table.this, exp.Identifier) and protected(table):
            return True
    return False
