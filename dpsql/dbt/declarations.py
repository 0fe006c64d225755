"""Budgets and domains that a dbt project declares in schema.yml, under ``meta: {dpsql: ...}``.

A source, seed, snapshot or table model has ``protect`` with the arguments of ``dp_protect``; columns have the arguments of
``dp_declare``. They are applied when dbt starts and ends, and, for relations that the run itself makes, before each ``dp_*``
call. Applying the same again writes nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dpsql.calls.custody import DeclareCall, ProtectCall
from dpsql.custodian import declaring, protect
from dpsql.errors import ArgumentError, DpsqlError, NotProtected
from dpsql.protected.source import ProtectedSource, resolve
from dpsql.session.instance import Context
from dpsql.source.analysis import find_table, relation_columns
from dpsql.source.catalog import Catalog
from dpsql.text.names import fold

PROTECT = ("epsilon", "delta", "neighbors", "privacy_unit", "max_contributions", "accountant", "anchor")
DECLARE = ("lower", "upper", "bins", "edges", "calendar", "categories", "categories_from", "nullable", "outside")
_NUMBER = re.compile(r"[+-]?\d+(\.\d*)?[eE][+-]?\d+")


_declared: dict[str, Declarations] = {}  # by database instance


@dataclass(frozen=True)
class Node:
    """What schema.yml says about one relation: ``label`` for messages, ``relation`` as SQL."""

    label: str
    relation: str
    is_source: bool
    protect: Mapping[str, Any]
    columns: Mapping[str, Mapping[str, Any]]


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
            there = {node.label for node, _ in present}
            absent = [node for node in self.nodes if node.is_source and node.label not in there]
            notices = [f"{node.label}: there is no {node.relation}" for node in absent]
            for node, shape in new:
                waiting = _declare(context, node)
                notices += waiting
                if not waiting:
                    self.done[node.label] = shape
            return notices

    def prepare(self, context: Context) -> None:
        """Apply what is new: this runs before every call."""
        self.apply(context)


def declare(context: Context, given: Mapping[str, Any]) -> list[str]:
    """Take over the declarations of the project and apply them; return what could not be applied.

    With ``again`` (at the end of a run) what the run has applied already is not repeated.
    """
    declarations = Declarations([node(item) for item in given["nodes"]])
    before = _declared.get(context.instance.key)
    if given.get("again") and before is not None and before.nodes == declarations.nodes:
        declarations = before
    _declared[context.instance.key] = declarations
    context.instance.prepare = declarations.prepare
    return declarations.apply(context)


def node(item: Mapping[str, Any]) -> Node:
    """Check what one node declares.

    Examples
    --------
    >>> node({"label": "source raw.people", "relation": '"raw"."people"', "kind": "source", "meta": {"protect": {"epsilon": 1,
    ...       "delta": "1e-9"}}, "columns": {"age": {"lower": 0, "upper": "1e2"}}}).columns
    {'age': {'lower': 0, 'upper': 100.0}}
    """
    label, meta = str(item["label"]), item.get("meta") or {}
    _check_keys(label, meta, ("protect",))
    protect = meta.get("protect") or {}
    _check_keys(f"{label}, protect", protect, PROTECT)
    columns = {name: arguments(f"{label}, column {name}", given) for name, given in (item.get("columns") or {}).items()}
    return Node(label, str(item["relation"]), item["kind"] == "source", numbers(protect), columns)


def arguments(label: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of ``dp_declare`` that the meta of a column holds."""
    _check_keys(label, given, DECLARE)
    return numbers(given)


def numbers(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values with numbers like 1e-9 as numbers: YAML reads them as texts unless they have a dot.

    Examples
    --------
    >>> numbers({"delta": "1e-9", "lower": "2020-01-01", "edges": ["1e3", 5]})
    {'delta': 1e-09, 'lower': '2020-01-01', 'edges': [1000.0, 5]}
    """

    def number(value: Any) -> Any:
        return float(value) if isinstance(value, str) and _NUMBER.fullmatch(value) else value

    found = {}
    for name, value in given.items():
        listed = name == "edges" and isinstance(value, list)
        found[name] = [number(item) for item in value] if listed else value if name == "categories" else number(value)
    return found


def _check_keys(label: str, given: Any, allowed: Sequence[str]) -> None:
    if not isinstance(given, Mapping):
        raise DpsqlError(f"schema.yml, {label}: {given!r} is not a mapping; it takes {', '.join(allowed)}")
    unknown = [name for name in given if name not in allowed]
    if unknown:
        hint = ""
        if unknown[0] == "discover":
            hint = ". Buying a list of values is no declaration: use a pre-hook, CALL dp_declare(..., discover := true)"
        raise DpsqlError(f"schema.yml, {label}: meta dpsql has no key {unknown[0]!r}; it takes {', '.join(allowed)}{hint}")


def _shape(context: Context, node: Node) -> str | None:
    """Return the relation as the catalog has it, to see whether it was made anew; None if it is not there."""
    home = {"database": context.database, "schema": context.schema}
    try:
        table = find_table(context.cursor, node.relation, **home, views=True)
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
