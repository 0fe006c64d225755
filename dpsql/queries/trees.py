"""Small questions about syntax trees of queries."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from dpsql.queries.aggregates import is_aggregate
from dpsql.queries.names import shown_name, spreads
from dpsql.queries.taken import CORE, Relation
from dpsql.source.model import RESERVED, fold, refuse


def inner_of(node: exp.Expression) -> exp.Expression:
    """Return an item without its name, an expression without its brackets."""
    while isinstance(node, exp.Alias | exp.Paren):
        node = node.this
    return node


def has_aggregate(node: exp.Expression) -> bool:
    """Return whether an aggregate over rows is in an expression: not one that is a window itself, nor one of a subquery."""
    if isinstance(node, exp.Select | exp.SetOperation | exp.Subquery):
        return False
    if isinstance(node, exp.Window):
        called = node.this.this if isinstance(node.this, exp.Filter) else node.this
        parts = [*called.expressions, *(v for k, v in node.args.items() if k != "this")]
        return any(has_aggregate(part) for part in flat(parts))
    return is_aggregate(node) or any(has_aggregate(part) for part in flat(node.args.values()))


def flat(values: object) -> list[exp.Expression]:
    """Return the expressions among values and lists of values."""
    expressions: list[exp.Expression] = []
    for value in values if isinstance(values, list) else list(values):  # type: ignore[call-overload]
        if isinstance(value, exp.Expression):
            expressions.append(value)
        elif isinstance(value, list):
            expressions += [v for v in value if isinstance(v, exp.Expression)]
    return expressions


def subqueries(node: exp.Expression) -> list[exp.Expression]:
    """Return the outermost queries inside the expressions of a SELECT (not those after FROM or WITH), or of an expression."""
    queries: list[exp.Expression] = []
    skip = ("from", "from_", "joins", "with", "with_") if isinstance(node, exp.Select) else ()

    def visit(part: exp.Expression) -> None:
        for name, value in part.args.items():
            if part is node and name in skip:
                continue
            for inner in flat([value]):
                if isinstance(inner, exp.Select | exp.SetOperation):
                    queries.append(inner)
                else:
                    visit(inner)

    if isinstance(node, exp.Subquery | exp.Exists) and isinstance(node.this, exp.Select | exp.SetOperation):
        return [node.this]
    visit(node)
    for join in (node.args.get("joins") or []) if isinstance(node, exp.Select) else []:
        for part in flat([join.args.get("on")]):
            visit(part)
    return queries


def joined(node: exp.Expression) -> list[exp.Expression]:
    """Return what is joined inside the brackets of a relation after FROM."""
    return [join.this for join in node.args.get("joins") or []]


def no_parameters(part: exp.Expression | None) -> None:
    """Leave nothing in the outer statement that reads more than what is named: functions are checked where it is bound."""
    for node in [] if part is None else part.find_all(exp.Placeholder, exp.Parameter):
        refuse("a parameter", "write the value into the text", node)


def names_are_free(node: exp.Select) -> None:
    """Refuse names that the rewriting makes up itself."""
    for name in node.find_all(exp.Identifier):
        if fold(name.name).startswith(RESERVED) and not fold(name.name).startswith(CORE):
            refuse(repr(name.name), f"names that start with {RESERVED} are dpsql's own", name)


def renamed(node: exp.Expression, relation: Relation) -> Relation:
    """Return a relation under the names of ``AS name(a, b)``."""
    alias = node.args.get("alias")
    names = [fold(c.name) for c in alias.args.get("columns") or []] if isinstance(alias, exp.TableAlias) else []
    if not names:
        return relation
    columns = relation.columns
    if columns is None or len(names) > len(columns):
        renames = set(names)
        return Relation(relation.kind, (*names,) if columns is None else columns, relation.units - renames, relation.keys - renames)
    new = (*names, *columns[len(names) :])
    pairs = list(zip(columns, new, strict=True))
    units, keys = (frozenset(b for a, b in pairs if a in known) for known in (relation.units, relation.keys))
    return Relation(relation.kind, new, units, keys)


def output(
    node: exp.Select, items: Sequence[tuple[str, Relation]]
) -> tuple[tuple[str, ...] | None, frozenset[str], frozenset[str]]:
    """Return the columns that a SELECT gives, and which of them copy the privacy unit, or another column that tells it."""
    names: list[str] = []
    units: set[str] = set()
    keys: set[str] = set()
    known = True
    for item in node.expressions:
        inner = inner_of(item)
        if spreads(inner):
            known = False
            continue
        star = inner if isinstance(inner, exp.Star) else inner.this if isinstance(inner, exp.Column) else None
        if isinstance(star, exp.Star):
            table = fold(inner.table) if isinstance(inner, exp.Column) else ""
            left_out = {fold(e.name) for e in star.args.get("except_") or star.args.get("except") or []}
            for name, relation in items:
                if table in ("", name):
                    known &= relation.columns is not None
                    names += [c for c in relation.columns or () if c not in left_out]
                    units |= relation.units - left_out
                    keys |= relation.keys - left_out
            continue
        name = fold(item.alias) if isinstance(item, exp.Alias) else fold(shown_name(item))
        names.append(name)
        if isinstance(inner, exp.Column):
            table = fold(inner.table)
            for copies, told in ((units, [r.units for _, r in items]), (keys, [r.keys for _, r in items])):
                sources = zip(items, told, strict=True)
                if any(fold(inner.name) in columns and table in ("", qualifier) for (qualifier, _), columns in sources):
                    copies.add(name)
    return (tuple(names) if known else None), frozenset(units), frozenset(keys)
