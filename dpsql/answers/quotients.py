"""Quotients of released numbers, estimated jointly: never without a value where the denominator may be positive. Post-processing.

A noisy number of rows, or sum of values that are not negative, may be 0 or less where the true one is not. As a denominator it is
then taken for one deviation of its noise: the quotient is small and finite, and its interval wide. A share of rows (``count(*)
FILTER (...) / count(*)``) lies in [0, 1]. WHERE, ORDER BY and LIMIT of the outer statement see the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sqlglot import exp

from dpsql.algebra.aggregates import LINEAR
from dpsql.queries.aggregates import Aggregate, is_aggregate
from dpsql.queries.names import is_star, spreads
from dpsql.queries.taken import CORE, Core
from dpsql.source.model import RESERVED, fold
from dpsql.source.model import identifier as name_of

DENOMINATOR = "q"
"""Beginning of the name of the column that an aggregate is as a denominator: q0 of a0."""
HANDED = f"{RESERVED}q"
"""The same, where a SELECT hands it on to the one that reads it."""


def joint(outer: exp.Expression, cores: Iterable[Core]) -> tuple[exp.Expression, dict[str, list[int]]]:
    """Return the outer statement with its quotients of aggregates, and which aggregates of each core are denominators.

    Also where a SELECT reads one with the aggregates, by subquery or WITH, and divides by a column that is an aggregate.
    """
    denominators: dict[str, set[int]] = {core.name: set() for core in cores}
    known: Mapping[str, Core] = {core.name: core for core in cores}
    tree = outer.copy()
    direct: dict[int, Core] = {}
    for select in tree.find_all(exp.Select):
        name = _relation(select)
        if isinstance(name, exp.Table) and name.name.startswith(CORE) and name.name in known:
            direct[id(select)] = core = known[name.name]
            denominators[core.name] |= _quotients(select, core, {f"a{i}": i for i in range(len(core.aggregates))}, DENOMINATOR)
    for select in list(tree.find_all(exp.Select)):
        inner = None if id(select) in direct else _read(select, tree)
        if inner is None or id(inner) not in direct:
            continue
        core = direct[id(inner)]
        handed = {fold(item.alias): place for item in inner.expressions if (place := _aggregate(item)) is not None}
        for place in sorted(_quotients(select, core, handed, HANDED)):
            denominators[core.name].add(place)
            if all(item.alias_or_name != f"{HANDED}{place}" for item in inner.expressions):
                inner.append("expressions", exp.Alias(this=_column(place), alias=name_of(f"{HANDED}{place}")))
    return tree, {name: sorted(places) for name, places in denominators.items()}


def _relation(select: exp.Select) -> exp.Expression | None:
    """Return what a SELECT reads, if it is one relation."""
    clause = select.args.get("from_")
    return None if clause is None or select.args.get("joins") or select.args.get("laterals") else clause.this


def _read(select: exp.Select, tree: exp.Expression) -> exp.Select | None:
    """Return the SELECT that another one reads and to which a column may be added that nobody sees; None: there is none."""
    relation = _relation(select)
    readers: list[exp.Expression] = [select]
    if isinstance(relation, exp.Subquery):
        inner, alias = relation.this, relation.args.get("alias")
    elif isinstance(relation, exp.Table) and not relation.db:
        ctes = [cte for cte in tree.find_all(exp.CTE) if fold(cte.alias) == fold(relation.name)]
        if len(ctes) != 1:
            return None
        inner, alias = ctes[0].this, ctes[0].args.get("alias")
        uses = [table for table in tree.find_all(exp.Table) if not table.db and fold(table.name) == fold(relation.name)]
        readers = [reader for table in uses if (reader := table.parent_select) is not None]
        if len(readers) < len(uses):
            return None
    else:
        return None
    renamed = alias is not None and alias.args.get("columns")
    if not isinstance(inner, exp.Select) or inner.args.get("distinct") or renamed:
        return None
    return None if any(_takes_all(reader) for reader in readers) else inner


def _takes_all(select: exp.Expression) -> bool:
    """Whether a SELECT gives all columns of what it reads, by a star or COLUMNS(...)."""
    items = [item.this if isinstance(item, exp.Alias) else item for item in select.expressions]
    return not items or any(is_star(item) or spreads(item) for item in items)


def _aggregate(item: exp.Expression) -> int | None:
    return _place(item.this) if isinstance(item, exp.Alias) and isinstance(item.this, exp.Column) else None


def _quotients(select: exp.Select, core: Core, places: Mapping[str, int], prefix: str) -> set[int]:
    """Write the denominators of a SELECT's quotients as what they are as such, ``<prefix>i``; return which aggregates they are.

    ``places``: names of columns -> the aggregates that they are.
    """
    denominators = set()
    for node in [node for node in select.find_all(exp.Div) if node.parent_select is select]:
        column = _denominator(node.expression)
        place = None if column is None or _of_group(node, select) else places.get(fold(column.name))
        if place is None or core.aggregates[place].function not in LINEAR:
            continue
        denominators.add(place)
        under = _column(place, prefix)
        node.set("expression", under)
        _limit(node, core, place, places, under)
    return denominators


def _of_group(node: exp.Expression, select: exp.Select) -> bool:
    """Whether a part of a SELECT is about its groups, whose columns are named after GROUP BY; what is in an aggregate is not."""
    above = node.parent
    while above is not None and above is not select:
        if is_aggregate(above):
            return False
        above = above.parent
    return select.args.get("group") is not None


def _limit(node: exp.Div, core: Core, place: int, places: Mapping[str, int], under: exp.Column) -> None:
    """Keep a part of the rows between none and all of them."""
    for column in [*node.this.find_all(exp.Column)]:
        inner = places.get(fold(column.name))
        outermost = column.find_ancestor(exp.Anonymous, exp.Div) is node
        if inner is None or not outermost or not _part(core.aggregates[inner], core.aggregates[place]):
            continue
        least = exp.Anonymous(this="greatest", expressions=[column.copy(), exp.Literal.number(0)])
        column.replace(exp.Anonymous(this="least", expressions=[least, under.copy()]))


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
        number, operand = (over.this, over.expression) if isinstance(over.this, exp.Literal) else (over.expression, over.this)
        if not isinstance(number, exp.Literal) or number.is_string:
            return None
        times, over = times * float(number.name), operand
    share = isinstance(over, exp.Anonymous) and str(over.this) == "least"
    if share:
        over = over.expressions[0].expressions[0]
    place = _place(over) if isinstance(over, exp.Column) else None
    return None if place is None else (times, place, under, share)


def _part(part: Aggregate, whole: Aggregate) -> bool:
    """Return whether one counts a part of the rows that another one counts."""
    all_ = whole.function == "count" and not whole.arguments and whole.condition is None
    return all_ and part.function == "count" and (bool(part.arguments) or part.condition is not None)


def _denominator(node: exp.Expression) -> exp.Column | None:
    """Return which column a denominator is, brackets, casts and NULLIF(..., 0) aside."""
    while isinstance(node, exp.Paren | exp.Cast | exp.Nullif):
        if isinstance(node, exp.Nullif) and not (isinstance(node.expression, exp.Literal) and float(node.expression.name) == 0):
            return None
        node = node.this
    if isinstance(node, exp.Anonymous) and str(node.this).lower() == "nullif" and len(node.expressions) == 2:
        value, nothing = node.expressions
        return _denominator(value) if isinstance(nothing, exp.Literal) and nothing.name in ("0", "0.0") else None
    return node if isinstance(node, exp.Column) else None


def _place(column: exp.Column) -> int | None:
    digits = column.name[1:]
    return int(digits) if column.name[:1] == "a" and digits.isdecimal() else None


def _column(place: int, prefix: str = DENOMINATOR) -> exp.Column:
    return exp.Column(this=name_of(f"{prefix}{place}"))
