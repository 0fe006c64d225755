"""Budgets, links, domains and rules that a dbt project declares in schema.yml, under ``meta: {dpsql: ...}``.

A source, seed, snapshot or table model has ``protect`` with the arguments of ``dp_protect``, or ``link`` with those of ``dp_link``
(`dpsql.dbt.links`); the root of linked tables also ``synthesize`` (`dpsql.dbt.linked`); columns have the arguments of
``dp_declare``; ``rules`` of a source or model is a list of what ``dp_rule`` declares: texts, or mappings of its arguments, of which
``remove: true`` takes a rule back. They are applied when dbt starts and ends, and, for relations that the run itself makes, before
each ``dp_*`` call. Applying the same again writes nothing. What is no longer in schema.yml stays as it was declared.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dpsql.calls.custody import DeclareCall, ProtectCall, RuleCall
from dpsql.custodian import declaring, protect, ruling
from dpsql.dbt import links
from dpsql.dbt import nodes as schema_yml
from dpsql.dbt.nodes import Node
from dpsql.errors import ArgumentError, DpsqlError, NotProtected
from dpsql.protected.ruled import DECLARED, rules_of
from dpsql.protected.source import ProtectedSource, resolve
from dpsql.rules.counted import is_counted
from dpsql.rules.grammar import read
from dpsql.session.instance import Context
from dpsql.source.analysis import find_table, relation_columns
from dpsql.source.catalog import Catalog
from dpsql.text.names import fold

_declared: dict[str, Declarations] = {}  # by database instance


@dataclass
class Declarations:
    """The declarations of a project, and which of them this process has applied to which state of the catalog."""

    nodes: Sequence[Node]
    done: dict[str, str] = field(default_factory=dict)

    def apply(self, context: Context) -> list[str]:
        """Apply what is new to every relation that is there; return what could not be applied yet.

        A model's column may be missing because the run is about to rebuild the model: then its declaration waits.

        Raises
        ------
        DpsqlError
            A declaration is wrong, or the budget would fall below what is spent. The text names the node.

        Notes
        -----
        Privacy: free; no row is read.
        """
        with context.instance.lock("declarations of dbt"):
            present = [(node, shape) for node in self.nodes if (shape := _shape(context, node)) is not None]
            new = [(node, shape) for node, shape in present if self.done.get(node.label) != shape]
            for node, _ in new:
                _protect(context, node)
            unlinked = links.apply(context, [node for node, _ in new], self.nodes)
            labels = {node.label for node, _ in present}
            absent = [node for node in self.nodes if node.is_source and node.label not in labels]
            notices = [f"{node.label}: there is no {node.relation}" for node in absent]
            waiting = {node.label: _declare(context, node) for node, _ in new}
            domains_wait = any(waiting.values())
            for node, shape in new:  # a rule may look at columns that another node declares
                waits = [*unlinked.get(node.label, []), *waiting[node.label], *_declare_rules(context, node, domains_wait)]
                notices += waits
                if not waits:
                    self.done[node.label] = shape
            return notices

    def beyond(self, context: Context) -> list[str]:
        """Return the rules that the books have of relations with ``rules`` in schema.yml, and schema.yml has not: they hold on.

        Notes
        -----
        Privacy: free; no row is read.
        """
        notices = []
        for node in self.nodes:
            if node.rules and _shape(context, node) is not None:
                notices += _beyond(context, node)
        return notices

    def prepare(self, context: Context) -> None:
        """Apply what is new: this runs before every call."""
        self.apply(context)


def declare(context: Context, given: Mapping[str, Any]) -> list[str]:
    """Take over the declarations of the project and apply them; return what could not be applied.

    With ``again`` (at the end of a run) what the run has applied already is not repeated.
    """
    declarations = Declarations([schema_yml.node(item) for item in given["nodes"]])
    before = _declared.get(context.instance.key)
    if given.get("again") and before is not None and before.nodes == declarations.nodes:
        declarations = before
    _declared[context.instance.key] = declarations
    context.instance.prepare = declarations.prepare
    notices = declarations.apply(context)
    return [*notices, *declarations.beyond(context)] if given.get("again") else notices


def declared(context: Context) -> Sequence[Node]:
    """Return the nodes that the project has declared in this process."""
    declarations = _declared.get(context.instance.key)
    return () if declarations is None else declarations.nodes


def _shape(context: Context, node: Node) -> str | None:
    """Return the relation as the catalog has it, to see whether it was made anew; None if it is not there."""
    try:
        table = find_table(context.cursor, node.relation, database=context.database, schema=context.schema, views=True)
    except ArgumentError:
        return None
    if table.is_file:
        return json.dumps([[c.name, c.sql_type] for c in relation_columns(context.cursor, table)])
    entry = Catalog(context.cursor).find(table.database, table.schema, table.name)
    return entry.sql if entry is not None else None


def _protect(context: Context, node: Node) -> None:
    if node.protect:
        try:
            protect.protect(context, ProtectCall.parse({"source": node.relation, **node.protect}))
        except DpsqlError as error:
            raise DpsqlError(f"schema.yml, {node.label}: {error}") from None


def _declare(context: Context, node: Node) -> list[str]:
    """Declare the columns of a node; return those that have to wait."""
    if not node.columns:
        return []
    try:
        protected = resolve(context, node.relation)
    except NotProtected as error:
        if node.is_source:
            raise DpsqlError(f"schema.yml, {node.label}: {error}; in schema.yml: meta: {{dpsql: {{protect: ...}}}}") from None
        return [f"{node.label}: its columns have domains, but no table below it has a budget"]
    except DpsqlError as error:
        return [f"{node.label}: {error}"]
    present = {fold(column.name) for column in protected.source.columns}
    missing = [name for name in node.columns if fold(name) not in present]
    if missing and node.is_source:
        raise DpsqlError(f"schema.yml, {node.label}: it has no column {missing[0]!r}")
    for name, given in node.columns.items():
        if name not in missing:
            declare_column(context, f"{node.label}, column {name}", protected, name, given)
    return [f"{node.label}: it has no column {name!r} to declare" for name in missing]


def declare_column(context: Context, label: str, protected: ProtectedSource, column: str, given: Mapping[str, Any]) -> None:
    """Declare one column, and name the place in schema.yml if that fails."""
    values = given.get("categories")
    try:
        truths = isinstance(values, list) and any(isinstance(value, bool) for value in values)
        if truths and protected.column(column).sql_type != "BOOLEAN":
            raise ArgumentError("categories", values, "YAML reads yes, no, on and off as true and false: write them in quotes")
        declaring.declare(context, DeclareCall.parse({"source": protected.source.text, "column": column, **given}))
    except DpsqlError as error:
        raise DpsqlError(f"schema.yml, {label}: {error}") from None


def _declare_rules(context: Context, node: Node, domains_wait: bool) -> list[str]:
    """Declare the rules of a node, or take them back; return those that have to wait.

    ``domains_wait`` says whether a domain somewhere has to wait for the run: a rule over a model may need it.
    """
    if not node.rules:
        return []
    try:
        protected = resolve(context, node.relation)
        declare_rules(context, node.label, protected, node.rules)
    except NotProtected as error:
        if node.is_source:
            raise DpsqlError(f"schema.yml, {node.label}: {error}; in schema.yml: meta: {{dpsql: {{protect: ...}}}}") from None
        return [f"{node.label}: it has rules, but no table below it has a budget"]
    except DpsqlError as error:
        if node.is_source or not domains_wait:
            raise
        return [str(error).removeprefix("schema.yml, ")]
    return []


def declare_rules(context: Context, label: str, protected: ProtectedSource, given: Sequence[Mapping[str, Any]]) -> None:
    """Declare rules of a source or take them back, those first, and name the place in schema.yml if that fails.

    Notes
    -----
    Privacy: free; no row is read. What is declared must be public knowledge.
    """
    for rule in sorted(given, key=lambda item: not item.get("remove")):
        try:
            ruling.rule(context, RuleCall.parse({"source": protected.source.text, **rule}))
        except DpsqlError as error:
            raise DpsqlError(f"schema.yml, {label}: {error}") from None


def _beyond(context: Context, node: Node) -> list[str]:
    """Return a notice for each declared rule of a relation's own that schema.yml does not have."""
    try:
        protected = resolve(context, node.relation)
        names = [column.name for column in protected.source.columns]
        listed = {read(str(entry["rule"]), names).text for entry in node.rules if not is_counted(str(entry["rule"]))}
    except DpsqlError:
        return []  # what is wrong with them is said where they are applied
    own = [entry.rule.text for entry in rules_of(protected) if (entry.status, entry.place) == (DECLARED, protected.query)]
    way_out = "it stays in force; {rule: ..., remove: true} takes it back"
    missing = [text for text in own if text not in listed]
    return [f"{node.label}: schema.yml has not the rule {text}, which was declared; {way_out}" for text in missing]
