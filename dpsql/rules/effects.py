"""What a rule does to a release: cells in which no row can be (structural zeros), or nothing but a check of every row.

Privacy: post-processing; a noisy count of a cell that public knowledge calls empty is set to zero, which takes its noise away.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import duckdb
import numpy as np

from dpsql.domains.attributes import Domain
from dpsql.numerics.arrays import Clique, IntArray
from dpsql.rules.grammar import Rule
from dpsql.rules.reasoning import MAY_FALSE, MOST_CELLS, outcomes
from dpsql.tables.emptied import Cells, emptied, spread
from dpsql.tables.statistics import Statistics

TABLES, ROWS, ALWAYS = "tables", "rows", "always"


@dataclass(frozen=True)
class Effect:
    """What a rule does over a domain.

    Parameters
    ----------
    kind : {'tables', 'rows', 'always'}
        'tables': some cells are impossible. 'rows': none surely is, every row is checked. 'always': no value breaks it.
    positions : tuple of int
        Of the rule's attributes, ascending.
    impossible : bool array or None
        For 'tables': one axis per attribute.
    """

    kind: str
    positions: Clique
    impossible: Cells | None = None


def places(rule: Rule, domain: Domain) -> Clique:
    """Return the positions of a rule's columns, ascending; a KeyError where the domain lacks one."""
    known = {name: position for position, name in enumerate(domain.names)}
    return tuple(sorted(known[name] for name in rule.columns))


def concerning(rules: Iterable[Rule], domain: Domain) -> list[Rule]:
    """Return the rules all of whose columns a domain has."""
    names = set(domain.names)
    return [rule for rule in rules if names.issuperset(rule.columns)]


def together(rules: Sequence[Rule]) -> list[list[Rule]]:
    """Return the rules in groups that share no column."""
    groups: list[tuple[set[str], list[Rule]]] = []
    for rule in rules:
        names, members = set(rule.columns), [rule]
        apart = []
        # A rule joins all groups that it shares a column with.
        for known, some in groups:
            if known & names:
                names, members = names | known, [*some, *members]
            else:
                apart.append((known, some))
        groups = [*apart, (names, members)]
    return [members for _, members in groups]


def effect(cursor: duckdb.DuckDBPyConnection, rule: Rule, domain: Domain) -> Effect:
    """Return what a rule does over a domain that has its columns."""
    positions = places(rule, domain)
    attributes = [domain.attributes[position] for position in positions]
    if math.prod(attribute.size for attribute in attributes) > MOST_CELLS:
        return Effect(ROWS, positions)
    may = outcomes(cursor, rule, attributes)
    if may is None:
        return Effect(ROWS, positions)
    if not (may & MAY_FALSE).any():
        return Effect(ALWAYS, positions)
    impossible = may == MAY_FALSE
    # Zeros of three columns and more are left to the check of rows.
    return Effect(TABLES, positions, impossible) if len(positions) <= 2 and impossible.any() else Effect(ROWS, positions)


def shaped(cursor: duckdb.DuckDBPyConnection, statistics: Statistics, domain: Domain, rules: Sequence[Rule]) -> Statistics:
    """Return released tables in which impossible cells are zero.

    Parameters
    ----------
    statistics : Statistics
        Noisy tables; what a method has drawn itself stays as it is.
    domain : Domain
        Of the attributes that were measured.
    rules : sequence of Rule

    Notes
    -----
    Privacy: post-processing of released counts by public knowledge.
    """
    zeros = _zeros([effect(cursor, rule, domain) for rule in concerning(rules, domain)]) if statistics.tables else {}
    if not zeros:
        return statistics
    coarse = replace(statistics.coarse, tables=_coarse(statistics, zeros))
    return replace(statistics, tables=emptied(statistics, zeros), coarse=coarse)


def _zeros(effects: Sequence[Effect]) -> dict[Clique, Cells]:
    """Return the impossible cells of each pair and of each attribute; a code that goes with no other one is impossible itself."""
    zeros: dict[Clique, Cells] = {}
    for on_cells in effects:
        if on_cells.impossible is not None:
            zeros[on_cells.positions] = zeros.get(on_cells.positions, np.zeros_like(on_cells.impossible)) | on_cells.impossible
    for positions, impossible in list(zeros.items()):
        for axis, position in enumerate(positions if len(positions) == 2 else ()):
            never = impossible.all(axis=1 - axis)
            if never.any():
                zeros[(position,)] = zeros.get((position,), np.zeros_like(never)) | never
    return zeros


def _coarse(statistics: Statistics, zeros: dict[Clique, Cells]) -> dict[Clique, IntArray]:
    """Return the coarse tables, zero where every pair of codes of two groups is impossible."""
    coarse, tables = statistics.coarse, dict(statistics.coarse.tables)
    for pair, table in coarse.tables.items():
        possible = np.ones([statistics.sizes[i] for i in pair], bool)
        for positions, impossible in zeros.items():
            if set(positions) <= set(pair):
                possible &= ~spread(impossible, positions, pair)
        reached = np.zeros(table.shape, bool)
        rows, columns = (np.asarray(coarse.groups[i]) for i in pair)
        np.logical_or.at(reached, (rows[:, None], columns[None, :]), possible)
        tables[pair] = np.where(reached, table, 0)
    return tables
