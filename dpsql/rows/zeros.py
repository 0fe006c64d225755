"""Structural zeros of linked tables: released cells in which, by public rules, no row can be.

Privacy: post-processing of released counts by public knowledge.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import duckdb
import numpy as np

from dpsql.domains.attributes import Domain
from dpsql.methods.nested_classes import Block
from dpsql.numerics.arrays import FloatArray
from dpsql.release.linked import LinkedPlan
from dpsql.rules.effects import effect, places, together
from dpsql.rules.grammar import Rule, stored
from dpsql.rules.possible import Choices, possible
from dpsql.tables.emptied import Cells

_Column = tuple[int, int]


@dataclass(frozen=True)
class _Zeros:
    """Impossible codes of a column, or pairs of codes of two columns, in tables of rows of some tables of the plan."""

    columns: tuple[_Column, ...]
    cells: Cells
    tables: frozenset[int]


def emptied(cursor: duckdb.DuckDBPyConnection, linked: LinkedPlan, values: Sequence[FloatArray]) -> list[FloatArray]:
    """Return released blocks in which impossible cells are zero.

    Parameters
    ----------
    cursor : DuckDB cursor
        No table is read on it.
    values : sequence of float array
        Of the plan's blocks.

    Notes
    -----
    A rule of a table says which of its rows there can be. Where it leaves a row above without any, by a column of that row, the
    cells of this column with a number of rows above 0 are impossible too, and all cells of rows of the table, or below it, that
    have it.
    """
    zeros = _zeros(cursor, linked)
    if not zeros:
        return list(values)
    return [_without(block, value, zeros) for block, value in zip(linked.blocks, values, strict=True)]


def _zeros(cursor: duckdb.DuckDBPyConnection, linked: LinkedPlan) -> list[_Zeros]:
    """Return the impossible cells of columns and of pairs of columns; of a pair across tables the one above comes first."""
    zeros: list[_Zeros] = []
    names = {table.name: place for place, table in enumerate(linked.tables)}
    for place, table in enumerate(linked.tables):
        if not table.rules and not table.across:
            continue
        joined = linked.joined(place)
        rules = [*(stored(text) for text in table.rules), *joined.rules]
        columns = [*((place, i) for i in range(len(table.domain.attributes))), *((names[name], i) for name, i in joined.above)]
        rows = frozenset([place, *linked.below(place)])
        for rule in rules:
            shown = effect(cursor, rule, joined.domain)
            if shown.impossible is not None:
                zeros.append(_ordered([columns[position] for position in shown.positions], shown.impossible, rows))
        # Rules that share columns may forbid together what none of them forbids alone.
        for some in together(rules) if table.parent is not None else ():
            zeros += _barren(cursor, linked, place, some, joined.domain, columns)
    return zeros


def _barren(
    cursor: duckdb.DuckDBPyConnection,
    linked: LinkedPlan,
    place: int,
    rules: Sequence[Rule],
    domain: Domain,
    columns: Sequence[_Column],
) -> list[_Zeros]:
    """Return what follows from codes of rows above beside which rules leave no row of a table."""
    positions = sorted({position for rule in rules for position in places(rule, domain)})
    free = [axis for axis, position in enumerate(positions) if columns[position][0] == place]
    above = [columns[position] for position in positions[len(free) :]]
    cells = possible(cursor, rules, [domain.attributes[position] for position in positions]) if above else None
    if cells is None:
        return []
    barren, rows = Choices(cells, free).barren, frozenset([place, *linked.below(place)])
    parent = linked.shape.parent(place)
    number = (parent, linked.shape.fan_out(place))
    some = np.arange(linked.tables[place].most + 1) > 0
    zeros = []
    for axis, column in enumerate(above):
        never: Cells = np.asarray(np.moveaxis(barren, axis, 0).reshape(barren.shape[axis], -1).all(axis=1))
        # No row is below such a code: cells with one are zero, and so are numbers of rows other than none.
        if never.any():
            zeros.append(_Zeros((column,), never, rows))
            zeros.append(_Zeros((column, number), never[:, None] & some, frozenset([parent])))
    return zeros


def _ordered(columns: Sequence[_Column], cells: Cells, tables: frozenset[int]) -> _Zeros:
    if len(columns) == 2 and columns[0] > columns[1]:
        return _Zeros((columns[1], columns[0]), cells.T, tables)
    return _Zeros(tuple(columns), cells, tables)


def _without(block: Block, value: FloatArray, zeros: Sequence[_Zeros]) -> FloatArray:
    """Return a block without its impossible cells."""
    if block.kind in ("gap", "sibling", "next"):  # of two rows: a rule says what holds for one
        return value
    columns = tuple(column for column in (block.left, block.right) if column is not None)
    for impossible in zeros:
        if block.table not in impossible.tables:
            continue
        if impossible.columns == columns:
            value = np.where(impossible.cells, 0.0, value)
        elif len(impossible.columns) == 1 and impossible.columns[0] in columns:
            axis = 1 - columns.index(impossible.columns[0])
            value = np.where(np.expand_dims(impossible.cells, axis) if len(columns) == 2 else impossible.cells, 0.0, value)
    return value
