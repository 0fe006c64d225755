"""Plans and manifests from books and files: those that dpsql would not have written are refused before anything is computed.

A ledger may have been edited, an exported file made by hand, and what they say becomes SQL and takes memory.

Privacy: None: plans are public.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

from dpsql import methods
from dpsql.domains import grid, sqltypes
from dpsql.domains.attributes import OUTSIDE, Domain
from dpsql.errors import DpsqlError, ReleaseError
from dpsql.numerics.arrays import Clique
from dpsql.release.linked import LinkedPlan
from dpsql.release.plan import MAX_CELLS, MAX_TABLES, Plan
from dpsql.release.queried import QueryPlan
from dpsql.rules.grammar import MOST_RULES, stored
from dpsql.text.bounded_json import check_numbers

_ATTRIBUTE = {"name", "sql_type", "kind", "categories", "edges", "nullable", "outside", "automatic"}
_MOST_FINE = 10_000
_UNREADABLE = (KeyError, IndexError, TypeError, ValueError, AttributeError, ArithmeticError, DpsqlError)


def check_readable(plan: Plan) -> None:
    """Refuse, before anything is charged, a plan that the ledger could not be asked for again.

    Raises
    ------
    DpsqlError
        It could not: a fault of dpsql, or bounds that no release can have.
    """
    try:
        item = json.loads(json.dumps(plan.to_json(), allow_nan=False))
        check_item(item)
        Plan.from_json(item)
    except _UNREADABLE:
        raise DpsqlError(
            "the plan of this call could not be stored and read again, so nothing was charged. Try bounds of a usual size; "
            "otherwise this is a defect of dpsql: please report the declarations of its columns"
        ) from None


def planned(item: Mapping[str, Any], name: str) -> Plan:
    """Return the plan that a ledger has of a release.

    Raises
    ------
    ReleaseError
        It is not one: the book was edited.
    """
    try:
        check_item(item)
        return Plan.from_json(item)
    except _UNREADABLE:
        told = f"release {name!r}: the ledger was edited, its plan cannot be read; restore the books from a backup"
        raise ReleaseError(told) from None


def check_manifest(item: Mapping[str, Any]) -> None:
    """Refuse a manifest that dpsql would not have written.

    Raises
    ------
    ValueError, TypeError, KeyError, ArithmeticError, DpsqlError
        Something is missing, of another type, out of range or too large.
    """
    texts = ("release", "source", "operation", "query", "sha256")
    _require(all(isinstance(item[name], str) for name in texts))
    _require(isinstance(item["charge"], dict) and isinstance(item.get("parameters", {}), dict))
    # Looked at as texts first: a number with a huge exponent would take hours to read.
    check_numbers(item["charge"])
    for name in ("epsilon", "delta", "rho"):
        _require(0 <= Fraction(str(item["charge"].get(name, 0))) < 1 << 64)
    _require(_whole(item.get("max_contributions", 1)) and item.get("max_contributions", 1) >= 1)
    _require(item.get("privacy_unit") is None or isinstance(item["privacy_unit"], str))
    _require(isinstance(item.get("created", ""), str) and item.get("neighbors", "add_remove") in ("add_remove", "replace_one"))
    _require(isinstance(item.get("views", ""), str))
    total = item["total"]
    _require(total is None or (_whole(total) and 0 <= total < 1 << 53))
    _require(all(isinstance(note, str) for note in item.get("notes", [])) and isinstance(item.get("versions", {}), dict))
    check_item(item["plan"])


def check_item(item: Mapping[str, Any]) -> None:
    """Refuse the JSON of a plan that dpsql would not have written, before anything is computed from it; errors as above."""
    domain = _domain(item["domain"])
    tables, cells = _tables(item["tables"], domain.sizes)
    pairs = item.get("coarse", [])
    _require(isinstance(pairs, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in pairs) and len(pairs) <= tables)
    _require(all(_ascending(pair, len(domain.sizes)) for pair in pairs))
    listed = "all_of_order" in item["tables"]
    _require(not pairs or (2 in item["tables"]["all_of_order"] if listed else {tuple(p) for p in pairs} <= _tuples(item["tables"])))
    linked = _linked(item)
    _check_fine(item)
    scales = item["scales"]
    _require(isinstance(scales, list) and all(isinstance(run, list) and len(run) == 2 for run in scales))
    _require(all(isinstance(text, str) and _whole(count) and count > 0 for text, count in scales))
    query = QueryPlan.from_json(item["query"]) if "query" in item else None
    _require(query is None or (not domain.attributes and tables == 0 and item["method"] is None))
    beside = (0 if query is None else len(query.blocks)) + (0 if linked is None else len(linked.blocks))
    _require(sum(count for _, count in scales) <= tables + len(pairs) + 1 + beside)
    check_numbers(scales)
    _require(all(0 < Fraction(text) < 1 << 64 for text, _ in scales))
    _require(isinstance(item["mechanism"], str) and isinstance(item["public_total"], bool) and isinstance(item["options"], dict))
    _require(all(isinstance(item.get(name, False), bool) for name in ("open", "sparse", "units")))
    blocks, parameters = item.get("blocks"), item.get("parameters", {})
    _require(blocks is None or (isinstance(blocks, list) and all(_whole(length) and length >= 0 for length in blocks)))
    _require(sum(blocks or [0]) <= MAX_CELLS and isinstance(parameters, dict))
    check_numbers(parameters)
    # Counts of all cells of a domain are bounded by its size; those of open, sparse and block releases are not.
    is_open, sparse = item.get("open", False), item.get("sparse", False)
    _require(not (sparse and (is_open or blocks is not None)) and (not is_open or len(domain.sizes) == 1))
    _require(sparse or is_open or blocks is not None or cells <= MAX_CELLS)
    _require(item["method"] is None or methods.get(item["method"]) is not None)
    _check_rules(item.get("rules", []), domain)


def _linked(item: Mapping[str, Any]) -> LinkedPlan | None:
    """Return what is planned of linked tables, None where nothing is; refuse blocks that do not fit it."""
    if "linked" not in item:
        return None
    for table in item["linked"]["tables"]:
        _domain(table["domain"])
    linked = LinkedPlan.from_json(item["linked"])
    _require(not item["domain"] and item["method"] is None and "query" not in item and item.get("blocks") == list(linked.lengths))
    return linked


def _check_rules(rules: object, domain: Domain) -> None:
    """Refuse rules that are none over the columns of the domain: they become SQL."""
    _require(isinstance(rules, list) and len(rules) <= MOST_RULES and all(isinstance(text, str) for text in rules))
    assert isinstance(rules, list)  # noqa: S101 -- for the type checker
    for text in rules:
        rule = stored(text)
        _require(rule.text == text and set(rule.columns) <= set(domain.names))


def _check_fine(item: Mapping[str, Any]) -> None:
    """Refuse fine histograms of columns without bounds, or automatic bins without a fine histogram."""
    columns, domain = item.get("fine", []), item["domain"]
    if "linked" in item:
        domain = [attribute for table in item["linked"]["tables"] for attribute in table["domain"]]
    _require(isinstance(columns, list) and len(columns) <= _MOST_FINE)
    _require(all(isinstance(column, list) and len(column) == 3 for column in columns))
    positions = [column[0] for column in columns]
    _require(_ascending(positions, len(domain)) and all(domain[i]["kind"] in ("numeric", "temporal") for i in positions))
    # Scales of a level each, no more levels than a grid may have.
    for position, mechanism, scales in columns:
        deepest = grid.DEEPEST if domain[position]["kind"] == "temporal" else grid.DEPTH
        _require(mechanism in ("gaussian", "laplace") and isinstance(scales, list) and 1 <= len(scales) <= deepest)
        _require(all(isinstance(text, str) for text in scales))
        check_numbers(scales)
        _require(all(0 < Fraction(text) < 1 << 64 for text in scales))
    # Without a fine histogram automatic bins could never be cut.
    _require({i for i, attribute in enumerate(domain) if attribute.get("automatic")} <= set(positions))


def _require(holds: bool) -> None:
    if not holds:
        raise ValueError("not a plan")


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _domain(item: object) -> Domain:
    """Return the domain, of types and kinds that there are."""
    _require(isinstance(item, list) and len(item) <= 100_000)
    assert isinstance(item, list)  # noqa: S101 -- for the type checker
    for attribute in item:
        # Names and types become SQL text: only what dpsql writes itself goes on.
        _require(isinstance(attribute, dict) and {"name", "sql_type", "kind"} <= attribute.keys() <= _ATTRIBUTE)
        _require(all(isinstance(attribute[name], str) for name in ("name", "sql_type", "kind")))
        _require(attribute["kind"] in ("categorical", "numeric", "temporal") and attribute.get("outside", "clamp") in OUTSIDE)
        _require(isinstance(attribute.get("nullable", True), bool) and isinstance(attribute.get("automatic", False), bool))
        _require(not attribute.get("automatic", False) or attribute["kind"] != "categorical")
        categories = attribute.get("categories", [])
        _require(attribute["name"] != "" and isinstance(categories, list) and all(isinstance(text, str) for text in categories))
        _require(len(set(categories)) == len(categories))
        kind = float | int if attribute["kind"] == "numeric" else str
        _require(all(isinstance(edge, kind) and not isinstance(edge, bool) for edge in attribute.get("edges", [])))
        parsed = sqltypes.parse(attribute["sql_type"])
        _require(parsed.family != "other" and _fits(attribute["kind"], parsed.family, categories))
        edges = attribute.get("edges", [])
        # Moments are compared as numbers: texts sort otherwise.
        if attribute["kind"] == "temporal":
            edges = [sqltypes.steps_of(parsed, edge) for edge in edges]
        _require(attribute["kind"] == "categorical" or len(edges) >= 2)
        _require(all(a < b for a, b in itertools.pairwise(edges)) and all(abs(edge) < 1 << 1024 for edge in edges))
    _require(len({attribute["name"] for attribute in item}) == len(item))
    return Domain.from_json(item)


def _fits(kind: str, family: str, categories: Sequence[str]) -> bool:
    """Return whether a column of a family of types can have a domain of this kind, and these values."""
    if kind == "numeric":
        return family in ("integer", "decimal", "float")
    if kind == "temporal":
        return family == "temporal"
    if family in ("integer", "decimal", "float"):
        return all(_is_number(text) for text in categories)
    return family != "boolean" or set(categories) <= {"true", "false"}


def _is_number(text: str) -> bool:
    try:
        return Decimal(text).is_finite() and len(text) < 1_000
    except ArithmeticError:
        return False


def _ascending(clique: object, attributes: int) -> bool:
    """Return whether this is a list of places of attributes, ascending."""
    if not isinstance(clique, list) or not all(_whole(i) and 0 <= i < attributes for i in clique):
        return False
    return all(a < b for a, b in itertools.pairwise(clique))


def _tuples(tables: Mapping[str, Any]) -> set[Clique]:
    return {tuple(clique) for clique in tables["cliques"]}


def _tables(item: Mapping[str, Any], sizes: Sequence[int]) -> tuple[int, int]:
    """Return how many tables there are and how many cells they have, without making any."""
    if "all_of_order" in item:
        orders = item["all_of_order"]
        _require(isinstance(orders, list) and all(_whole(k) and 0 <= k <= 10 for k in orders) and len(set(orders)) == len(orders))
        counts = sum(math.comb(len(sizes), k) for k in orders)
        _require(counts <= MAX_TABLES)
        sums = [1, *[0] * max(orders, default=0)]  # elementary symmetric: cells of all tables of 0, 1, 2, ... attributes
        for size in sizes:
            for k in range(len(sums) - 1, 0, -1):
                sums[k] += sums[k - 1] * size
        return counts, sum(sums[k] for k in orders)
    cliques = item["cliques"]
    _require(isinstance(cliques, list) and len(cliques) <= MAX_TABLES and all(_ascending(clique, len(sizes)) for clique in cliques))
    return len(cliques), sum(math.prod(sizes[i] for i in clique) for clique in cliques)
