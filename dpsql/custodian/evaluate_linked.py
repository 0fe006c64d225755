"""How far a synthetic database of linked tables is from the raw one. NOT PRIVATE: for the custodian.

Inside each table as `dpsql.custodian.evaluate` does, and what only a database has: how many children parents have, which children
which parents have, and how alike the children of one parent are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import duckdb
import numpy as np

from dpsql.custodian import linked_counts as counts
from dpsql.custodian.linked_counts import Codes, crossed, dependence, distance
from dpsql.custodian.linked_questions import questions
from dpsql.custodian.linked_reading import ComparedTable, Reading, read
from dpsql.custodian.linked_rules import rows_breaking
from dpsql.methods.nested_classes import GAPS
from dpsql.numerics.arrays import CodeArray, FloatArray
from dpsql.release.ordered import gap_cells

NOTE = "not private: computed from raw rows, for the custodian only; distances are of bins and categories"
COLUMNS = {
    "level": "VARCHAR",
    "measure": "VARCHAR",
    "table_name": "VARCHAR",
    "column_name": "VARCHAR",
    "other_table": "VARCHAR",
    "other_column": "VARCHAR",
    "figures": "BIGINT",
    "raw": "DOUBLE",
    "synthetic": "DOUBLE",
    "error": "DOUBLE",
    "largest": "DOUBLE",
    "independent": "DOUBLE",
    "private": "BOOLEAN",
    "note": "VARCHAR",
}
MEASURES = (
    "rows", "orphans", "duplicate keys", "broken rule", "fan-out", "one column", "two columns", "parent and child", "siblings",
    "siblings by row", "two children", "first child", "next child", "time between", "group means", "question",
)  # fmt: skip
SANITY = 0.01
"""Share of the raw parents below which no count is taken when an error is set in relation to it."""
Row = tuple[str | float | int | bool | None, ...]
Weighting = Literal["rows", "units"]


@dataclass(frozen=True)
class Figure:
    """One figure, about a table and up to two columns; see `evaluate_linked`."""

    measure: str
    table: str
    error: float
    column: str | None = None
    other_table: str | None = None
    other_column: str | None = None
    raw: float | None = None
    synthetic: float | None = None
    largest: float | None = None
    independent: float | None = None
    figures: int = 1

    def row(self) -> Row:
        """Return the row of the relation, see `COLUMNS`."""
        level = "table" if self.column is None else "columns"
        names = (level, self.measure, self.table, self.column, self.other_table, self.other_column, self.figures)
        largest = self.error if self.largest is None else self.largest
        return (*names, self.raw, self.synthetic, self.error, largest, self.independent, False, NOTE)


def evaluate_linked(
    cursor: duckdb.DuckDBPyConnection,
    raw: Sequence[ComparedTable],
    synthetic: Sequence[ComparedTable],
    weighting: Weighting = "rows",
) -> list[Row]:
    """Compare a database of linked tables with the raw one.

    Parameters
    ----------
    raw, synthetic : sequences of ComparedTable
        The same tables in the same order, the root first, parents before children.
    weighting : {'rows', 'units'}
        Of distances inside tables and between parent and child: every row counts 1, or every unit counts 1 in each table, and the
        children of a parent have equal parts of what it counts.

    Returns
    -------
    list of tuples
        Columns as in `COLUMNS`. First the rows of level 'summary', one for each measure: ``figures``, the mean ``error``, the
        ``largest``, the mean of ``independent``. Then those of level 'table' and 'columns', in the order of the measures:

        - 'rows': rows of the table; ``error`` relative to the raw number.
        - 'orphans': rows whose link is NULL or leads nowhere; ``error``: the number in the synthetic table, which should be 0.
        - 'duplicate keys': likewise, keys that links lead to and that are NULL or another row's.
        - 'broken rule': likewise, rows that break a rule of the table, alone or with the rows above, and parents whose rows break
          one together; ``column_name``: the rule.
        - 'fan-out': ``raw`` and ``synthetic`` are mean numbers of children; ``error`` is the distance of the two distributions.
        - 'one column', 'two columns': distances of tables of the columns of one row.
        - 'parent and child': of a column of a row and one of its parent (or its parent's parent).
        - 'siblings': of columns of two different children of one parent, in this order; every unit counts 1.
        - 'siblings by row': the same, as a self-join of the table has it: every pair of children counts 1, whatever the weighting.
        - 'two children': mean and largest relative error of the number of parents that have two different children of these two
          values; of numbers below 1 % of the parents, over that 1 %.
        - 'first child', 'next child', where children stand in an order: of a column of the first child of a parent, and of one of a
          child and the one after it; every unit counts 1. ``independent``: if first children were as all are, and next ones anyhow.
        - 'time between': of how far the column of the order is from a child to the next one, in the cells of the release; ``raw``
          and ``synthetic`` are means, in the steps of the column's type (days of a DATE, microseconds of a TIMESTAMP).
        - 'group means': mean (weighted by raw rows) and largest relative error of the mean of a numeric column by values of a
          categorical one of the parent (or its parent's parent).
        - 'question': ten questions about each child table (`dpsql.custodian.linked_questions`), ``column_name`` says which; mean
          and largest relative error of its answers, over 1 % of the rows, units or span of values at least. ``raw`` and
          ``synthetic``: means of its answers. ``independent``: if rows had been given to parents at random.

        Distances are total variation distances, from 0 to 1. ``independent``: what the distance would be if the two columns were
        as they are in the raw table, and independent. The number of children of a row is one more column of its table, named
        ``count(child)``, in all of these.

    Raises
    ------
    DomainError
        A column that links is missing or of the wrong type.

    Notes
    -----
    Privacy: NOT PRIVATE. Errors come from raw counts. Rows without a parent are in 'rows' and 'orphans' only; the children that
    ``max_rows`` leaves out of a release are in all figures, so that what they are missed by is seen.
    """
    return compare(raw, _read(cursor, raw), _read(cursor, synthetic), weighting)


def compare(
    tables: Sequence[ComparedTable], raw: Sequence[Reading], synthetic: Sequence[Reading], weighting: Weighting = "rows"
) -> list[Row]:
    """Compare what was read of both databases; see `evaluate_linked`. Codes without values have no means. NOT PRIVATE."""
    pair = _Pair(tables, raw, synthetic, weighting)
    figures: list[Figure] = []
    steps: tuple[Callable[[int], Iterator[Figure]], ...] = (
        pair.of_rows, pair.fan_outs, pair.one_column, pair.two_columns, pair.parent_and_child, pair.of_siblings, pair.in_order,
        pair.means, pair.questions,
    )  # fmt: skip
    for step in steps:
        for position in range(len(tables)):
            figures.extend(step(position))
    figures.sort(key=lambda figure: MEASURES.index(figure.measure))
    return [*_summary(figures), *(figure.row() for figure in figures)]


def _read(cursor: duckdb.DuckDBPyConnection, tables: Sequence[ComparedTable]) -> list[Reading]:
    readings = read(cursor, tables)
    return [replace(reading, broken=tuple(rows_breaking(cursor, tables, place))) for place, reading in enumerate(readings)]


def _summed(codes: CodeArray, weights: FloatArray, size: int) -> FloatArray:
    return np.bincount(codes, weights, size).astype(np.float64)


def _mean(values: FloatArray, weights: FloatArray) -> float | None:
    """Return the weighted mean; None where there is nothing."""
    return float(np.sum(values * weights) / weights.sum()) if values.size else None


def _summary(figures: Sequence[Figure]) -> Iterator[Row]:
    """Return a row for each measure, over all its figures."""
    for measure in MEASURES:
        chosen = [figure for figure in figures if figure.measure == measure]
        if not chosen:
            continue
        errors = np.array([figure.error for figure in chosen])
        largest = max(figure.error if figure.largest is None else figure.largest for figure in chosen)
        yardsticks = [figure.independent for figure in chosen if figure.independent is not None]
        independent = float(np.mean(yardsticks)) if yardsticks else None
        totals: tuple[float | None, float | None] = (None, None)
        if measure in ("rows", "orphans", "duplicate keys", "broken rule"):
            totals = (sum(f.raw or 0 for f in chosen), sum(f.synthetic or 0 for f in chosen))
        number = sum(figure.figures for figure in chosen)
        names = ("summary", measure, None, None, None, None, number)
        yield (*names, *totals, float(errors.mean()), largest, independent, False, NOTE)


class _Pair:
    """Both databases, with the numbers of children as columns."""

    def __init__(
        self, tables: Sequence[ComparedTable], raw: Sequence[Reading], synthetic: Sequence[Reading], weighting: Weighting
    ) -> None:
        self.tables, self.readings = tables, (raw, synthetic)
        self.children = [[c for c, table in enumerate(tables) if table.above == t] for t in range(len(tables))]
        self.sides = tuple([self._extended(side, t) for t in range(len(tables))] for side in self.readings)
        self.names = [
            (*table.domain.names, *(f"count({tables[c].name})" for c in self.children[t])) for t, table in enumerate(tables)
        ]
        self.weights: list[list[FloatArray | None]] = [
            [counts.weights(side, t) if weighting == "units" else None for t in range(len(tables))] for side in self.sides
        ]

    def _extended(self, side: Sequence[Reading], position: int) -> Codes:
        """Return the codes of a table with the numbers of its rows' children, those above ``max_rows`` together."""
        codes, database = side[position].codes, [reading.codes for reading in side]
        columns, sizes = list(codes.columns), list(codes.sizes)
        for child in self.children[position]:
            most = self.tables[child].max_rows
            columns.append(np.minimum(counts.numbers_of_children(database, child), most + 1))
            sizes.append(most + 2)
        return Codes(tuple(columns), tuple(sizes), codes.rows, codes.parent, codes.above, codes.values, codes.order)

    def of_rows(self, t: int) -> Iterator[Figure]:
        name, (raw, synthetic) = self.tables[t].name, (side[t] for side in self.readings)
        relative = abs(raw.rows - synthetic.rows) / max(raw.rows, 1)
        yield Figure("rows", name, relative, raw=raw.rows, synthetic=synthetic.rows)
        if self.tables[t].above is not None:
            yield Figure("orphans", name, synthetic.orphans, raw=raw.orphans, synthetic=synthetic.orphans)
        if self.children[t]:
            yield Figure("duplicate keys", name, synthetic.duplicates, raw=raw.duplicates, synthetic=synthetic.duplicates)
        rules = (*self.tables[t].rules, *self.tables[t].across, *self.tables[t].counted)
        for rule, ours, theirs in zip(rules, raw.broken, synthetic.broken, strict=False):  # read without rules: none
            yield Figure("broken rule", name, theirs, rule, raw=ours, synthetic=theirs)

    def fan_outs(self, t: int) -> Iterator[Figure]:
        above = self.tables[t].above
        if above is None:
            return
        numbers = [counts.numbers_of_children(side, t) for side in self.sides]
        most = max((int(number.max()) for number in numbers if len(number)), default=0)
        tables = [np.bincount(number, minlength=most + 1).astype(np.float64) for number in numbers]
        means = [float(number.mean()) if len(number) else None for number in numbers]
        error = distance(tables[0], tables[1])
        names = (self.tables[t].name, self.tables[above].name)
        yield Figure("fan-out", names[0], error, other_table=names[1], raw=means[0], synthetic=means[1])

    def one_column(self, t: int) -> Iterator[Figure]:
        for i, column in enumerate(self.names[t]):
            tables = [
                np.bincount(side[t].columns[i], weights=weight[t], minlength=side[t].sizes[i]).astype(np.float64)
                for side, weight in zip(self.sides, self.weights, strict=True)
            ]
            yield Figure("one column", self.tables[t].name, distance(tables[0], tables[1]), column)

    def two_columns(self, t: int) -> Iterator[Figure]:
        for i in range(len(self.names[t])):
            for j in range(i + 1, len(self.names[t])):
                yield self._crossing("two columns", t, i, t, j)

    def parent_and_child(self, t: int) -> Iterator[Figure]:
        for a in counts.ancestors(self.sides[0], t):
            for i in range(len(self.names[t])):
                for j in range(len(self.names[a])):
                    yield self._crossing("parent and child", t, i, a, j)

    def _above(self, side: Sequence[Codes], t: int, a: int, j: int) -> CodeArray:
        """Return a column of each row's ancestor."""
        column = side[a].columns[j]
        return column if a == t else column[counts.rows_above(side, t, a)]

    def _crossing(self, measure: str, t: int, i: int, a: int, j: int) -> Figure:
        """Compare the table of a column of a row and one of the same row or of an ancestor."""
        raw, synthetic = (
            crossed(side[t].columns[i], self._above(side, t, a, j), (side[t].sizes[i], side[a].sizes[j]), weight[t])
            for side, weight in zip(self.sides, self.weights, strict=True)
        )
        names = (self.tables[t].name, self.names[t][i], self.tables[a].name, self.names[a][j])
        return Figure(measure, names[0], distance(raw, synthetic), *names[1:], independent=dependence(raw))

    def of_siblings(self, t: int) -> Iterator[Figure]:
        if self.tables[t].above is None:
            return
        raw, synthetic = (counts.siblings(side, t) for side in self.sides)
        name = self.tables[t].name
        for (i, j), table in raw.shares.items():
            names = (self.names[t][i], name, self.names[t][j])
            yield Figure("siblings", name, distance(table, synthetic.shares[i, j]), *names, independent=dependence(table))
            pairs, others = raw.pairs[i, j], synthetic.pairs[i, j]
            yield Figure("siblings by row", name, distance(pairs, others), *names, independent=dependence(pairs))
            mean, largest = counts.relative_errors(raw, synthetic, (i, j), SANITY)
            yield Figure("two children", name, mean, *names, largest=largest)

    def in_order(self, t: int) -> Iterator[Figure]:
        """Compare first children and neighbours."""
        order, above = self.tables[t].order, self.tables[t].above
        if order is None or above is None:
            return
        name, attribute = self.tables[t].name, self.tables[t].domain.attributes[order]
        lines = [counts.line(side, t) for side in self.sides]
        everybody = counts.weights(self.sides[0], t)
        for i in range(len(self.tables[t].domain.attributes)):
            if i == order:
                continue
            column, size = self.names[t][i], self.sides[0][t].sizes[i]
            raw, synthetic = (
                _summed(side[t].columns[i][line.first], line.weights, size) for side, line in zip(self.sides, lines, strict=True)
            )
            usual = distance(raw, _summed(self.sides[0][t].columns[i], everybody, size))
            yield Figure("first child", name, distance(raw, synthetic), column, independent=usual)
            raw, synthetic = (
                crossed(side[t].columns[i][line.before], side[t].columns[i][line.after], (size, size), line.shares)
                for side, line in zip(self.sides, lines, strict=True)
            )
            yield Figure("next child", name, distance(raw, synthetic), column, name, column, independent=dependence(raw))
        cells, means = [], []
        for side, line in zip(self.sides, lines, strict=True):
            values = side[t].order
            gaps = np.zeros(0) if values is None else values[line.after] - values[line.before]
            cells.append(_summed(gap_cells(attribute, gaps), line.shares, GAPS))
            means.append(_mean(gaps, line.shares))
        yield Figure("time between", name, distance(cells[0], cells[1]), attribute.name, raw=means[0], synthetic=means[1])

    def means(self, t: int) -> Iterator[Figure]:
        for a in counts.ancestors(self.sides[0], t):
            groups = [j for j, attribute in enumerate(self.tables[a].domain.attributes) if attribute.kind == "categorical"]
            for i in (i for i in self.sides[0][t].values if i in self.sides[1][t].values):
                for j in groups:
                    raw, synthetic = (
                        counts.group_means(side[t].values[i], self._above(side, t, a, j), side[a].sizes[j]) for side in self.sides
                    )
                    mean, largest, number = counts.mean_errors(raw, synthetic)
                    names = (self.names[t][i], self.tables[a].name, self.names[a][j])
                    yield Figure("group means", self.tables[t].name, mean, *names, largest=largest, figures=number)

    def questions(self, t: int) -> Iterator[Figure]:
        """Ask both databases the same."""
        if self.tables[t].above is None:
            return
        domains = [(table.name, table.domain) for table in self.tables]
        raw, synthetic = ([reading.codes for reading in side] for side in self.readings)
        for asked in questions(raw, synthetic, domains, t):
            errors, moved = asked.errors(asked.synthetic), asked.errors(asked.shuffled)
            if not errors.size:
                continue
            means = [float(np.nanmean(answers)) if np.isfinite(answers).any() else None for answers in (asked.raw, asked.synthetic)]
            yield Figure(
                "question", self.tables[t].name, float(errors.mean()), asked.text, raw=means[0], synthetic=means[1],
                largest=float(errors.max()), independent=float(moved.mean()), figures=errors.size,
            )  # fmt: skip
