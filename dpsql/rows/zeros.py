"""Structural zeros of linked tables: released cells in which, by public rules, no row can be.

Privacy: post-processing of released counts by public knowledge.
"""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import numpy as np

from dpsql.domains.attributes import Domain
from dpsql.methods.nested_classes import Block
from dpsql.numerics.arrays import FloatArray
from dpsql.release.linked import LinkedPlan
from dpsql.rules.effects import effect
from dpsql.rules.grammar import Rule, stored
from dpsql.tables.emptied import Cells

_Column = tuple[int, int]


def emptied(cursor: duckdb.DuckDBPyConnection, linked: LinkedPlan, values: Sequence[FloatArray]) -> list[FloatArray]:
    """Return released blocks in which impossible cells are zero.

    Parameters
    ----------
    cursor : DuckDB cursor
        No table is read on it.
    values : sequence of float array
        Of the plan's blocks.
    """
    zeros = _zeros(cursor, linked)
    if not zeros:
        return list(values)
    return [_without(block, value, zeros) for block, value in zip(linked.blocks, values, strict=True)]


def _zeros(cursor: duckdb.DuckDBPyConnection, linked: LinkedPlan) -> dict[tuple[_Column, ...], Cells]:
    """Return the impossible cells of columns and of pairs of columns; of a pair across tables the one above comes first."""
    found: dict[tuple[_Column, ...], Cells] = {}

    def add(rule: Rule, domain: Domain, columns: Sequence[_Column]) -> None:
        shown = effect(cursor, rule, domain)
        if shown.impossible is None:
            return
        key, cells = tuple(columns[position] for position in shown.positions), shown.impossible
        if len(key) == 2 and key[0] > key[1]:
            key, cells = (key[1], key[0]), cells.T
        found[key] = found.get(key, np.zeros_like(cells)) | cells

    names = {table.name: place for place, table in enumerate(linked.tables)}
    for place, table in enumerate(linked.tables):
        own = [(place, i) for i in range(len(table.domain.attributes))]
        for text in table.rules:
            add(stored(text), table.domain, own)
        if table.across:
            joined = linked.joined(place)
            for rule in joined.rules:
                add(rule, joined.domain, [*own, *((names[above], i) for above, i in joined.above)])
    return found


def _without(block: Block, value: FloatArray, zeros: dict[tuple[_Column, ...], Cells]) -> FloatArray:
    """Return a block without its impossible cells."""
    if block.kind in ("gap", "sibling", "next"):  # of two rows: a rule says what holds for one
        return value
    columns = tuple(column for column in (block.left, block.right) if column is not None)
    for key, cells in zeros.items():
        if key == columns:
            value = np.where(cells, 0.0, value)
        elif len(key) == 1 and key[0] in columns:
            value = np.where(np.expand_dims(cells, 1 - columns.index(key[0])) if len(columns) == 2 else cells, 0.0, value)
    return value
