"""Rules that no row can obey together, found when they are declared. Public domains and rules alone; nothing is read.

Bins are cut at the constants of the rules first, so that ``age < 3`` and ``age > 4`` are known to clash inside one bin. That a row
may obey by holding NULL does not save two rules, unless one of them speaks of NULL.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import duckdb
import numpy as np
from sqlglot import exp

from dpsql.domains import sqltypes
from dpsql.domains.attributes import Attribute, Domain
from dpsql.rules.effects import places
from dpsql.rules.grammar import Rule, render
from dpsql.rules.possible import possible

_ORDERS = {
    exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=", exp.EQ: "=", exp.NEQ: "<>",
}
_TURNED = str.maketrans("<>", "><")
_MOST_CUTS = 200


def contradicting(cursor: duckdb.DuckDBPyConnection, rules: Sequence[Rule], domain: Domain) -> bool:
    """Return whether it is certain that no row of a domain obeys these rules together.

    Parameters
    ----------
    rules : sequence of Rule
        One or more, over columns of the domain.

    Notes
    -----
    False where it is not known: expressions that are not understood, or more than 1,000,000 combinations.
    """
    if len(rules) == 2 and _orders_clash(rules[0].tree, rules[1].tree):
        return True
    positions = sorted({position for rule in rules for position in places(rule, domain)})
    cuts = _constants(rules)
    attributes = [_cut(domain.attributes[position], cuts) for position in positions]
    # A rule holds where it is NULL, so rows of NULL obey nearly anything: unless a rule is about NULL they prove nothing.
    speaks_of_null = any(_speaks_of_null(rule.tree) for rule in rules)
    cells = possible(cursor, rules, attributes)
    if cells is None:
        return False
    if not speaks_of_null:
        for axis, attribute in enumerate(attributes):
            if attribute.null_code is not None and attribute.values:
                cells = np.delete(cells, attribute.null_code, axis)
    return not cells.any()


def _speaks_of_null(tree: exp.Expression) -> bool:
    return any(type(node) in (exp.Is, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Anonymous, exp.Null, exp.Case) for node in tree.walk())


def _orders_clash(first: exp.Expression, second: exp.Expression) -> bool:
    """Return whether two plain comparisons of the same two sides exclude each other, as a < b and a >= b do."""
    if type(first) not in _ORDERS or type(second) not in _ORDERS:
        return False
    sides = [(render(tree.this), render(tree.expression)) for tree in (first, second)]
    signs = [_ORDERS[type(first)], _ORDERS[type(second)]]
    if sides[0] == sides[1][::-1] != sides[1]:
        sides[1], signs[1] = sides[0], signs[1] if signs[1] == "<>" else signs[1].translate(_TURNED)
    return sides[0] == sides[1] and not (_allowed(signs[0]) & _allowed(signs[1]))


def _allowed(sign: str) -> set[str]:
    return {"<", ">"} if sign == "<>" else set(sign)


def _constants(rules: Sequence[Rule]) -> list[exp.Literal]:
    return [node for rule in rules for node in rule.tree.find_all(exp.Literal)][:_MOST_CUTS]


def _cut(attribute: Attribute, constants: Sequence[exp.Literal]) -> Attribute:
    """Return an attribute with bins that end at, and after, each constant which could be one of its values."""
    if attribute.kind == "categorical":
        return attribute
    parsed = sqltypes.parse(attribute.sql_type)
    if attribute.kind == "temporal":
        steps = [sqltypes.steps_of(parsed, edge) for edge in attribute.edges]
        inside = set()
        for node in constants:
            try:
                step = sqltypes.steps_of(parsed, node.name) if node.is_string else None
            except (ValueError, OverflowError):
                continue
            inside |= {step, step + 1} if step is not None else set()
        cuts = sorted({*steps, *(step for step in inside if steps[0] < step < steps[-1])})
        return replace(attribute, edges=tuple(sqltypes.step_text(parsed, step) for step in cuts))
    edges = [float(edge) for edge in attribute.edges]
    numbers: set[float] = set()
    for node in constants:
        try:
            value = float(node.name) if not node.is_string else math.nan
        except (ValueError, OverflowError):
            continue
        # A constant may stand beside a minus, which is a node of its own.
        for signed in (value, -value):
            after = signed + 1.0 if parsed.family == "integer" else math.nextafter(signed, math.inf)
            numbers |= {signed, after}
    cut = replace(attribute, edges=tuple(sorted({*edges, *(x for x in numbers if edges[0] < x < edges[-1])})))
    return _filled(cut)


def _filled(attribute: Attribute) -> Attribute:
    """Return an attribute without edges between which its type has no value."""
    parsed = sqltypes.parse(attribute.sql_type)
    edges = [float(edge) for edge in attribute.edges]
    if parsed.text == "DOUBLE":
        return attribute
    if parsed.text == "FLOAT":
        first, last = sqltypes.float32_bounds(edges)
        empty = [bool(a > b) for a, b in zip(first, last, strict=True)]
    else:
        grid = sqltypes.grid(parsed, edges) or []
        empty = [a >= b for a, b in zip(grid[:-1], grid[1:], strict=True)]
    kept = edges[:1]
    for i, edge in enumerate(edges[1:]):
        if empty[i]:
            if edge != edges[-1]:
                continue  # joined with the bin that follows
            kept.pop()
        kept.append(edge)
    return replace(attribute, edges=tuple(kept)) if len(kept) >= 2 else attribute
