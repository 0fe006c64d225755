"""dp_rule of a linked table: rules that look at the rows above too. No protected row is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from dpsql.calls.custody import RuleCall
from dpsql.domains.attributes import Domain
from dpsql.errors import ArgumentError
from dpsql.protected.linked import lineage_of
from dpsql.protected.ruled import across_of
from dpsql.protected.source import ProtectedSource, resolve
from dpsql.rules.across import Across, joined
from dpsql.rules.contradictions import contradicting
from dpsql.rules.effects import effect
from dpsql.rules.grammar import MOST_RULES
from dpsql.session.instance import Context
from dpsql.source.analysis import OutputColumn
from dpsql.source.rules import check_expression

_SHAPES = {"tables": "tables", "rows": "rows", "always": "nothing"}


@dataclass(frozen=True)
class Above:
    """The tables above a linked one, the nearest first.

    Parameters
    ----------
    name : str
        Of the linked table.
    tables : mapping of str to ProtectedSource
        By their names.
    """

    name: str
    tables: Mapping[str, ProtectedSource]

    @property
    def columns(self) -> dict[str, list[str]]:
        """The names of their columns."""
        return {name: [column.name for column in table.source.columns] for name, table in self.tables.items()}


def above(context: Context, protected: ProtectedSource) -> Above | None:
    """Return the tables above a linked table; None for other sources."""
    named = protected.source.named if protected.source.bare else None
    lineage = None if named is None else lineage_of(context, named)
    if named is None or lineage is None:
        return None
    return Above(named.name, {hop.parent.name: resolve(context, hop.parent.text) for hop in lineage.hops})


def declared(context: Context, protected: ProtectedSource, call: RuleCall, rule: Across, tables: Above) -> list[Any]:
    """Declare a rule across tables, or take it back; return the row of the answer.

    Raises
    ------
    ArgumentError
        It is over columns without a domain, not boolean over their types, or no rows can obey it.
    """
    known = [declared.text for declared in across_of(protected)]
    _check_domains(protected, call, rule, tables)
    domains = {name: table.attributes()[0] for name, table in tables.tables.items()}
    flat = joined([rule], protected.attributes()[0], domains)
    shapes = _SHAPES[effect(context.cursor, flat.rules[0], flat.domain).kind]
    if call.remove:
        if rule.text in known:
            protected.books.remove_rule(protected.own, rule.text)
        change = "taken back" if rule.text in known else "was not declared"
        return [protected.query, rule.text, rule.shown(), shapes, change]
    _check_expression(context, protected, call, rule, tables)
    if contradicting(context.cursor, list(flat.rules), flat.domain):
        raise ArgumentError("rule", call.rule, "no values of the declared domains obey it; FROM dp_domain(source) shows them")
    if rule.text not in known:
        if len(known) >= MOST_RULES:
            raise ArgumentError("rule", call.rule, f"the source has {MOST_RULES} rules, which is the most; join some with AND")
        protected.books.add_rule(protected.own, rule.text, context.user)
    return [protected.query, rule.text, rule.shown(), shapes, "declared"]


def _check_domains(protected: ProtectedSource, call: RuleCall, rule: Across, tables: Above) -> None:
    domains: dict[str | None, Domain] = {name: table.attributes()[0] for name, table in tables.tables.items()}
    domains[None] = protected.attributes()[0]
    for table, name in rule.columns:
        if name not in domains[table].names:
            source = call.source if table is None else table
            expected = f"a rule is over declared columns, and {name!r} has no domain; CALL dp_declare('{source}', '{name}', ...)"
            raise ArgumentError("rule", call.rule, expected)


def _check_expression(context: Context, protected: ProtectedSource, call: RuleCall, rule: Across, tables: Above) -> None:
    columns: list[OutputColumn] = []
    names = {}
    for number, (table, name) in enumerate(rule.columns):
        source = protected if table is None else tables.tables[table]
        known = next(column for column in source.source.columns if column.name == name)
        names[table, name] = f"c{number}"
        columns.append(replace(known, name=f"c{number}"))
    check_expression(context.cursor, call.rule, rule.flat(names).tree, columns)
