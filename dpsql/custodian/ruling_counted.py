"""dp_rule of a linked table: rules that count the rows of one parent. No protected row is read."""

from __future__ import annotations

from typing import Any

from dpsql.calls.custody import RuleCall
from dpsql.custodian import ruling_across
from dpsql.errors import ArgumentError
from dpsql.protected.columns import without_domain
from dpsql.protected.ruled import counted_of
from dpsql.protected.source import ProtectedSource
from dpsql.rules.counted import MOST_COUNTED, Counted, decided, extremes, read, undecided
from dpsql.session.instance import Context
from dpsql.source.rules import check_expression


def declared(context: Context, protected: ProtectedSource, call: RuleCall) -> list[Any] | None:
    """Declare a rule that counts rows, or take it back; return the row of the answer, None for another rule.

    Raises
    ------
    ArgumentError
        The source is not linked to a parent, the condition is over columns without a domain or not decided by its codes, or no rows
        can obey the rule.

    Notes
    -----
    Privacy: free. The rule is public knowledge; domains, links and books are read, no row.
    """
    above = ruling_across.above(context, protected)
    named = protected.source.named if protected.source.bare else None
    own = (named.name if named is not None else call.source, [column.name for column in protected.source.columns])
    rule = read(call.rule, own, {} if above is None else above.columns)
    if rule is None:
        return None
    known = [counted.text for counted in counted_of(protected)]
    if call.remove:
        if rule.text in known:
            protected.books.remove_rule(protected.own, rule.text)
        return _answer(protected, rule, None, "taken back" if rule.text in known else "was not declared")
    if above is None:
        expected = (
            "counts the rows of one parent, and the source is not linked to one: name the linked table itself, or link it, "
            "CALL dp_link('child', 'column', parent := 'parent', max_rows := ...)"
        )
        raise ArgumentError("rule", call.rule, expected)
    shapes = _check(context, protected, call, rule)
    if rule.text not in known:
        if len(known) >= MOST_COUNTED:
            raise ArgumentError("rule", call.rule, f"the source has {MOST_COUNTED} rules that count rows, which is the most")
        protected.books.add_rule(protected.own, rule.text, context.user)
    return _answer(protected, rule, shapes, "declared")


def _check(context: Context, protected: ProtectedSource, call: RuleCall, rule: Counted) -> str:
    """Refuse a rule that cannot be kept over the domain as it is declared; return what it shapes."""
    domain, left_out = protected.attributes()
    for column in left_out:
        if column.name in rule.columns and protected.is_unit(column):
            raise ArgumentError("rule", call.rule, f"{column.name!r} {protected.unit_is}: it is no data, and in no synthetic row")
    missing = [column for column in left_out if column.name in set(rule.columns) - set(domain.names)]
    if missing:
        raise ArgumentError("rule", call.rule, f"a rule is over declared columns; {without_domain(call.source, missing)}")
    check_expression(context.cursor, call.rule, rule.condition.tree, protected.source.columns)
    cells = decided(context.cursor, rule, domain)
    if cells is None:
        raise ArgumentError("rule", call.rule, undecided(rule, domain, call.source))
    # a link can be declared anew: how many rows a parent may have is looked at when a release is planned
    contradiction = extremes(cells, rule, 1)
    if contradiction is not None:
        raise ArgumentError("rule", call.rule, f"{contradiction}; FROM dp_domain(source) shows it")
    return "rows" if cells.cells.any() else "nothing"


def _answer(protected: ProtectedSource, rule: Counted, shapes: str | None, change: str) -> list[Any]:
    return [protected.query, rule.text, list(rule.columns), shapes, change]
