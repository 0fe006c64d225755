"""What schema.yml says about a relation under ``meta: {dpsql: ...}``, checked as plain values. No database is looked at."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dpsql.errors import DpsqlError

PROTECT = ("epsilon", "delta", "neighbors", "privacy_unit", "max_contributions", "accountant", "anchor")
DECLARE = ("lower", "upper", "bins", "edges", "calendar", "categories", "categories_from", "nullable", "outside")
LINK = ("column", "parent", "parent_column", "max_rows", "orphans", "merge", "order_by")
SYNTHESIZE = ("epsilon", "delta", "units", "seed", "options", "release", "into_schema")
RULE = ("rule", "remove")
_NUMBER = re.compile(r"[+-]?\d+(\.\d*)?[eE][+-]?\d+")


@dataclass(frozen=True)
class Node:
    """What schema.yml says about one relation.

    ``label`` is for messages, ``relation`` is SQL. ``name`` and ``group`` are what the project calls it: a table of a source, or a
    model without a group. ``synthesize``: what the release of it and the tables linked to it is.
    """

    label: str
    relation: str
    is_source: bool
    protect: Mapping[str, Any]
    columns: Mapping[str, Mapping[str, Any]]
    rules: Sequence[Mapping[str, Any]] = ()
    link: Mapping[str, Any] | None = None
    synthesize: Mapping[str, Any] | None = None
    name: str = ""
    group: str = ""


def node(item: Mapping[str, Any]) -> Node:
    """Check what one node declares.

    Examples
    --------
    >>> node({"label": "source raw.people", "relation": '"raw"."people"', "kind": "source", "meta": {"protect": {"epsilon": 1,
    ...       "delta": "1e-9"}}, "columns": {"age": {"lower": 0, "upper": "1e2"}}}).columns
    {'age': {'lower': 0, 'upper': 100.0}}
    """
    label, meta = str(item["label"]), item.get("meta") or {}
    _check_keys(label, meta, ("protect", "link", "synthesize", "rules"))
    protect = meta.get("protect") or {}
    _check_keys(f"{label}, protect", protect, PROTECT)
    link = None if meta.get("link") is None else part(f"{label}, link", meta["link"], LINK)
    if link is not None and (protect or meta.get("synthesize") is not None):
        raise DpsqlError(
            f"schema.yml, {label}: a linked table is under its root's budget and in its root's release; take protect and "
            "synthesize away here, or link"
        )
    synthesize = None if meta.get("synthesize") is None else part(f"{label}, synthesize", meta["synthesize"], SYNTHESIZE)
    columns = {name: arguments(f"{label}, column {name}", told) for name, told in (item.get("columns") or {}).items()}
    of_rows = rules(label, meta.get("rules"))
    return Node(
        label, str(item["relation"]), item["kind"] == "source", numbers(protect), columns, of_rows, link, synthesize,
        str(item.get("name") or ""), str(item.get("group") or ""),
    )  # fmt: skip


def part(label: str, given: Any, allowed: Sequence[str]) -> dict[str, Any]:
    """Return a mapping of arguments, checked for what it may hold."""
    _check_keys(label, given, allowed)
    return numbers(given)


def arguments(label: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of ``dp_declare`` that the meta of a column holds."""
    _check_keys(label, given, DECLARE)
    return numbers(given)


def rules(label: str, given: Any) -> list[dict[str, Any]]:
    """Return the arguments of ``dp_rule`` that a list of rules holds: texts, or mappings with ``rule`` and ``remove``.

    Examples
    --------
    >>> rules("source raw.people", ["age >= 18", {"rule": "age >= 21", "remove": True}])
    [{'rule': 'age >= 18'}, {'rule': 'age >= 21', 'remove': True}]
    """
    if given is None:
        return []
    if not isinstance(given, list):
        raise DpsqlError(f"schema.yml, {label}: rules is {given!r}, which is no list; write rules: ['age >= 18', ...]")
    listed = []
    for item in given:
        if isinstance(item, Mapping):
            _check_keys(f"{label}, rules", item, RULE)
        text = item.get("rule") if isinstance(item, Mapping) else item
        if not isinstance(text, str):
            raise DpsqlError(f"schema.yml, {label}: the rule {text!r} is no text; write it in quotes: rules: ['age >= 18', ...]")
        listed.append(dict(item) if isinstance(item, Mapping) else {"rule": text})
    return listed


def numbers(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values with numbers like 1e-9 as numbers: YAML reads them as texts unless they have a dot.

    Examples
    --------
    >>> numbers({"delta": "1e-9", "lower": "2020-01-01", "edges": ["1e3", 5]})
    {'delta': 1e-09, 'lower': '2020-01-01', 'edges': [1000.0, 5]}
    """

    def number(value: Any) -> Any:
        return float(value) if isinstance(value, str) and _NUMBER.fullmatch(value) else value

    read = {}
    for name, value in given.items():
        listed = name == "edges" and isinstance(value, list)
        read[name] = [number(item) for item in value] if listed else value if name == "categories" else number(value)
    return read


def _check_keys(label: str, given: Any, allowed: Sequence[str]) -> None:
    if not isinstance(given, Mapping):
        raise DpsqlError(f"schema.yml, {label}: {given!r} is not a mapping; it takes {', '.join(allowed)}")
    unknown = [name for name in given if name not in allowed]
    if unknown:
        hint = ""
        if unknown[0] == "discover":
            hint = ". Buying a list of values is no declaration: use a pre-hook, CALL dp_declare(..., discover := true)"
        raise DpsqlError(f"schema.yml, {label}: meta dpsql has no key {unknown[0]!r}; it takes {', '.join(allowed)}{hint}")
