"""The rules of a source: those declared for it, for views below it, for the protected table, and the table's CHECK constraints.

A rule of a table or view holds for a source that copies the columns it looks at, whatever else the source does.

Privacy: rules are public knowledge; the books and the catalog are read, no row.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import duckdb

from dpsql.domains.attributes import Domain
from dpsql.errors import ArgumentError, LedgerError
from dpsql.protected.source import ProtectedSource
from dpsql.rules.across import Across, is_across
from dpsql.rules.across import stored as stored_across
from dpsql.rules.counted import Counted, is_counted
from dpsql.rules.counted import stored as stored_counted
from dpsql.rules.effects import concerning
from dpsql.rules.evaluating import evaluator
from dpsql.rules.grammar import MOST_RULES, Rule, stored
from dpsql.text.names import fold

DECLARED, CHECK = "declared", "CHECK constraint"
_MOST_COPIES = 16


@dataclass(frozen=True)
class Ruled:
    """A rule of a source, over the source's own columns.

    Parameters
    ----------
    rule : Rule
    status : {'declared', 'CHECK constraint'}
    place : str
        What it was declared for, as the books call it.
    original : str
        Its text there.
    """

    rule: Rule
    status: str
    place: str
    original: str


def rules_of(protected: ProtectedSource) -> list[Ruled]:
    """Return the rules of a source whose columns it has, declared ones first.

    Raises
    ------
    LedgerError
        The books hold what is no rule: they were edited.
    """
    rules: dict[str, Ruled] = {}
    for place, copies in _places(protected):
        for text in protected.books.rules(place):
            if is_across(text) or is_counted(text):  # of synthetic databases alone
                continue
            try:
                rule = stored(text)
            except ArgumentError:
                told = f"the books of {protected.key} were edited: a rule in them is none; restore them from a backup"
                raise LedgerError(told) from None
            for own in _copied(rule, copies):
                rules.setdefault(own.text, Ruled(own, DECLARED, place, text))
    for home, constraints in protected.constraints.items():
        for rule in constraints.rules:
            for own in _copied(rule, _by_origin(protected, home)):
                rules.setdefault(own.text, Ruled(own, CHECK, home, rule.text))
    return list(rules.values())[:MOST_RULES]


def across_of(protected: ProtectedSource) -> list[Across]:
    """Return the rules of a linked table that look at the tables above it too; none of other sources."""
    if not protected.source.bare:
        return []
    return [stored_across(text) for text in protected.books.rules(protected.own) if is_across(text)]


def counted_of(protected: ProtectedSource) -> list[Counted]:
    """Return the rules of a table that count the rows of one parent, also where it is linked to none now; none of other sources."""
    if not protected.source.bare:
        return []
    return [stored_counted(text) for text in protected.books.rules(protected.own) if is_counted(text)]


def in_force(cursor: duckdb.DuckDBPyConnection, protected: ProtectedSource, domain: Domain) -> list[Ruled]:
    """Return the rules of a source whose columns are all in a domain; of CHECK constraints those that fit its types."""
    every = rules_of(protected)
    held = {rule.text for rule in concerning([one.rule for one in every], domain)}
    return [one for one in every if one.rule.text in held and (one.status == DECLARED or _fits(cursor, one.rule, domain))]


def _fits(cursor: duckdb.DuckDBPyConnection, rule: Rule, domain: Domain) -> bool:
    try:
        evaluator(cursor, domain.select(rule.columns).attributes, [rule]).check()
    except duckdb.InterruptException:
        raise
    except (duckdb.Error, ValueError):
        return False
    return True


def _places(protected: ProtectedSource) -> Iterator[tuple[str, Mapping[str, list[str]]]]:
    """Yield where rules may be declared, and the source's columns that are a copy of each column there (by folded name)."""
    if not protected.source.bare:
        yield protected.query, {fold(c.name): [c.name] for c in protected.source.columns}
    for view in sorted(protected.views() - {protected.query}):
        copies: dict[str, list[str]] = {}
        for column in protected.source.columns:
            for shown, name in column.views:
                if shown == view:
                    copies.setdefault(fold(name), []).append(column.name)
        yield view, copies
    for home in dict.fromkeys([protected.own, *(protected.home_of(column) for column in protected.source.columns)]):
        yield home, _by_origin(protected, home)


def _by_origin(protected: ProtectedSource, home: str) -> dict[str, list[str]]:
    copies: dict[str, list[str]] = {}
    for column in protected.source.columns:
        if column.origin is not None and protected.home_of(column) == home and not protected.is_unit(column):
            copies.setdefault(fold(column.origin), []).append(column.name)
    return copies


def _copied(rule: Rule, copies: Mapping[str, list[str]]) -> Iterator[Rule]:
    """Yield a rule over the columns that are copies of those it looks at; nothing where one has no copy."""
    lists = [copies.get(fold(name), []) for name in rule.columns]
    for names in itertools.islice(itertools.product(*lists), _MOST_COPIES):
        chosen = {fold(column): name for column, name in zip(rule.columns, names, strict=True)}
        yield rule.renamed(lambda name, chosen=chosen: chosen[fold(name)])  # type: ignore[misc]
