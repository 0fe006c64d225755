"""dp_rule: rules that every row obeys, as public knowledge. The protected table is not read."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from dpsql.calls.custody import RuleCall
from dpsql.custodian import ruling_across, ruling_counted
from dpsql.domains.attributes import Domain
from dpsql.errors import ArgumentError
from dpsql.protected.columns import without_domain
from dpsql.protected.ruled import CHECK, Ruled, in_force, rules_of
from dpsql.protected.source import ProtectedSource, resolve
from dpsql.rules import across
from dpsql.rules.contradictions import contradicting
from dpsql.rules.effects import ALWAYS, ROWS, TABLES, effect
from dpsql.rules.grammar import MOST_RULES, Rule, read
from dpsql.session.instance import Context
from dpsql.source.rules import check_expression
from dpsql.text.relation import inline

RULE_COLUMNS = {"source": "VARCHAR", "rule": "VARCHAR", "columns": "VARCHAR[]", "shapes": "VARCHAR", "change": "VARCHAR"}
SHAPES = {TABLES: "tables", ROWS: "rows", ALWAYS: "nothing"}
_SHOWN = 200


def rule(context: Context, call: RuleCall) -> str:
    """Declare a rule, or take one back. Returns a relation of one row.

    Privacy
    -------
    Free: the protected table is not read, and the rule is never evaluated on its rows. What is declared must be public knowledge:
    a rule that was found by looking at the data voids the guarantee.

    Raises
    ------
    ArgumentError
        The rule is not a boolean expression over declared columns of one row, or no row can obey it together with another one; or
        it counts rows of a table that is linked to no parent.
    """
    protected = resolve(context, call.source)
    counting = ruling_counted.declared(context, protected, call)
    if counting is not None:
        return inline(RULE_COLUMNS, [counting])
    names = [column.name for column in protected.source.columns]
    above = ruling_across.above(context, protected)
    rule = read(call.rule, names) if above is None else across.read(call.rule, (above.name, names), above.columns)
    if above is not None and isinstance(rule, across.Across):
        return inline(RULE_COLUMNS, [ruling_across.declared(context, protected, call, rule, above)])
    assert isinstance(rule, Rule)  # noqa: S101 -- for the type checker
    known = rules_of(protected)
    same = next((ruled for ruled in known if ruled.rule.text == rule.text), None)
    domain, _ = protected.attributes()
    if call.remove:
        _remove(protected, call, same, known)
    else:
        _check_declared(protected, call, rule)
        check_expression(context.cursor, call.rule, rule.tree, protected.source.columns)
        if same is None:
            if len(known) >= MOST_RULES:
                raise ArgumentError("rule", call.rule, f"the source has {MOST_RULES} rules, which is the most; join some with AND")
            check_contradictions(context, call.rule, rule, in_force(context.cursor, protected, domain), domain)
            protected.books.add_rule(protected.query, rule.text, context.user)
    shapes = None
    if set(rule.columns) <= set(domain.names):
        shapes = SHAPES[effect(context.cursor, rule, domain).kind]
    change = "declared" if not call.remove else "taken back" if same is not None else "was not declared"
    return inline(RULE_COLUMNS, [(protected.query, rule.text, list(rule.columns), shapes, change)])


def _remove(protected: ProtectedSource, call: RuleCall, same: Ruled | None, known: Sequence[Ruled]) -> None:
    if same is not None and same.status == CHECK:
        expected = "is a CHECK constraint of the table and holds as long as the table has it: ALTER TABLE, or make one without it"
        raise ArgumentError("rule", call.rule, expected)
    if same is None:
        return  # a statement is bound more than once: the second time there is nothing left to take back
    protected.books.remove_rule(same.place, same.original)


def _check_declared(protected: ProtectedSource, call: RuleCall, rule: Rule) -> None:
    """Refuse columns that no release can have."""
    domain, left_out = protected.attributes()
    missing = [column for column in left_out if column.name in set(rule.columns) - set(domain.names)]
    for column in missing:
        if protected.is_unit(column):
            raise ArgumentError("rule", call.rule, f"{column.name!r} {protected.unit_is}: it is no data, and in no synthetic row")
    if missing:
        raise ArgumentError("rule", call.rule, f"a rule is over declared columns; {without_domain(call.source, missing)}")


def check_contradictions(context: Context, text: str, rule: Rule, others: Sequence[Ruled], domain: Domain) -> None:
    """Refuse a rule that no row can obey: alone, with another one, or with all others over its columns."""
    cursor = context.cursor
    if contradicting(cursor, [rule], domain):
        expected = "no value of the declared domain obeys it; FROM dp_domain(source) shows it: declare it again, or another rule"
        raise ArgumentError("rule", text, expected)
    for ruled in others:
        if contradicting(cursor, [rule, ruled.rule], domain):
            raise ArgumentError("rule", text, f"contradicts {_named(ruled)}: no row can obey both; {_way_out(ruled)}")
    near = [nearby for nearby in others if set(nearby.rule.columns) <= set(rule.columns)]
    for size in range(2, len(near) + 1):
        if size < len(near) and len(near) > _MOST_SETS:
            continue
        for some in itertools.combinations(near, size):
            if contradicting(cursor, [rule, *(nearby.rule for nearby in some)], domain):
                listed = " and ".join(_named(nearby) for nearby in some)
                raise ArgumentError("rule", text, f"contradicts {listed}: no row can obey all of them; {_way_out(some[0])}")


_MOST_SETS = 6
"""Rules over the same columns of which every set is looked at, for the smallest one that clashes."""


def _named(ruled: Ruled) -> str:
    kind = "the rule" if ruled.status != CHECK else "the CHECK constraint"
    text = ruled.rule.text
    return f"{kind} {text if len(text) <= _SHOWN else text[:_SHOWN] + '…'}"


def _way_out(ruled: Ruled) -> str:
    return "remove := true takes a rule back" if ruled.status != CHECK else "declare another rule"
