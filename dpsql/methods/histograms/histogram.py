"""What the histogram methods share: one table over all columns, one or more sets, shares that rows are drawn from.

A method of this family counts the cross-tabulation of the chosen columns (a numeric column through its bins), draws a
private histogram for every set, and takes rows from it. Several sets are several synthetic tables, for `combining rules
of multiple imputation`_; together they cost what was asked for, so each has epsilon / sets.

.. _combining rules of multiple imputation: Reiter (2003), *Inference for partially synthetic, public use microdata sets*.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from dpsql.domains.attributes import Domain
from dpsql.errors import ArgumentError
from dpsql.methods.base import Contract, Counted, MeasurementPlan, Price, with_sets
from dpsql.methods.options import chosen_options, is_whole, row_count
from dpsql.methods.public_rows import HISTOGRAMS, PublicRows
from dpsql.numerics.arrays import CodeArray, FloatArray, IntArray
from dpsql.tables.statistics import Statistics

MAXIMUM_SETS = 1000
MAXIMUM_CELLS = 1 << 22
MAXIMUM_LENGTH = 1 << 24
"""Cells of all sets together."""

_BLOCK = 1 << 20
_SORTED_FROM = 1 << 12
_SHUFFLED = 1 << 29
"""Rows that numpy's hypergeometric splits at once, at most: it stops at 10^9."""


@dataclass(frozen=True)
class HistogramModel:
    """Shares that rows are drawn from, one line a set.

    Parameters
    ----------
    sizes : tuple of int, length m
        Codes of each column, without the one that numbers the sets.
    shares : ndarray, shape (sets, K)
        At least 0, each line sums to 1.
    rows : int
        Rows of one set, at least 0.
    counts : int64 array, shape (sets, K), or None
        The rows themselves, where a method draws rows.
    """

    sizes: tuple[int, ...]
    shares: FloatArray
    rows: int
    counts: IntArray | None


class HistogramMethod(ABC):
    """Base of the histogram methods; a method says what it costs, and how it draws one set.

    Attributes
    ----------
    name : str
    options : mapping
        sets : number of synthetic tables, 1 to 1000; each has epsilon / sets.
    draws_rows : bool
        Whether what is drawn are the synthetic rows themselves, as counts; else noisy counts.
    public_rows : PublicRows or None
        What to say where n is private; None where the method holds under both relations.
    """

    name: str = ""
    options: Mapping[str, Any] = MappingProxyType({"sets": 1})
    draws_rows: ClassVar[bool] = True
    public_rows: PublicRows | None = PublicRows("its privacy argument fixes the number n of rows", HISTOGRAMS)
    summary: ClassVar[str] = ""

    def plan(self, domain: Domain, options: Mapping[str, Any]) -> MeasurementPlan:
        """Return the cross-tabulation of all columns.

        Parameters
        ----------
        domain : Domain
            At least one column.
        options : mapping
            As in `options`; what is missing has its default.

        Returns
        -------
        MeasurementPlan
            One clique.

        Raises
        ------
        ArgumentError
            There are too many cells, the method does not fit the columns, or an option is unknown or out of range.

        Notes
        -----
        Privacy: looks at the public domain and options alone.
        """
        self._cells(domain, self._sets(options))
        return MeasurementPlan((tuple(range(len(domain.attributes))),), notes=(self.summary,) if self.summary else ())

    def lengths(self, domain: Domain, options: Mapping[str, Any]) -> tuple[int, ...]:
        """Return one length a set: the number of cells."""
        sets = self._sets(options)
        return (self._cells(domain, sets),) * sets

    def values(self, domain: Domain, options: Mapping[str, Any]) -> tuple[int, ...]:
        """Return (): counts are enough."""
        return ()

    def price(self, domain: Domain, contract: Contract, epsilon: Fraction, options: Mapping[str, Any]) -> Price:
        """Return what a release of this epsilon in total does: every set is one mechanism of epsilon / sets.

        Parameters
        ----------
        domain : Domain
        contract : Contract
        epsilon : Fraction, > 0
        options : mapping

        Raises
        ------
        ArgumentError
            The method does not hold under this contract, or an argument is out of range.

        Notes
        -----
        Privacy: sequential composition over the sets. Public numbers alone.
        """
        sets = self._sets(options)
        cells = self._cells(domain, sets)
        if epsilon <= 0:
            raise ArgumentError("epsilon", float(epsilon), "must be above 0")
        if self.public_rows is not None:
            self.public_rows.require(self.name, contract)
        price = self._price(cells, contract, epsilon / sets, sets)
        if sets == 1:
            return price
        notes = (f"sets: {sets}, epsilon {float(epsilon / sets):.6g} each", *price.notes)
        return Price(price.events, price.mechanism, price.scale, price.parameters, notes)

    def draw(
        self, counted: Counted, domain: Domain, parameters: Mapping[str, Any], options: Mapping[str, Any]
    ) -> list[IntArray]:
        """Return one block a set.

        Parameters
        ----------
        counted : Counted
            Exact counts of the cross-tabulation.
        domain : Domain
        parameters : mapping
            `Price.parameters`: what was charged for decides, not the options.

        Returns
        -------
        list of int64 arrays, shape (K,)

        Notes
        -----
        Privacy: reads exact counts. Each block is one mechanism of the events of `price`; entropy from the operating
        system, no seed.
        """
        table = counted.tables[tuple(range(len(domain.attributes)))]
        counts = np.ascontiguousarray(table, dtype=np.int64).reshape(-1)
        return self._draw(counts, Fraction(parameters["epsilon"]), parameters, int(parameters["sets"]))

    def fit(self, statistics: Statistics, options: Mapping[str, Any]) -> HistogramModel:
        """Return shares: negative counts are taken as 0, and a set without any count is uniform. Deterministic.

        Parameters
        ----------
        statistics : Statistics
            With the blocks that `draw` gave.
        options : mapping

        Returns
        -------
        HistogramModel

        Notes
        -----
        Privacy: post-processing.
        """
        blocks = np.stack(statistics.blocks)
        if statistics.total is not None:
            rows = statistics.total
        else:
            rows = max(0, round(sum(int(block.sum()) for block in statistics.blocks) / len(statistics.blocks)))
        kept = np.maximum(blocks, 0).astype(np.float64)
        totals = kept.sum(axis=1, keepdims=True)
        shares = np.where(totals > 0, kept / np.maximum(totals, 1.0), 1.0 / blocks.shape[1])
        return HistogramModel(statistics.sizes, shares, rows, blocks if self.draws_rows else None)

    def total(self, model: HistogramModel) -> int:
        """Return the number of rows of all sets: as many in each as the source has, or seems to have."""
        return len(model.shares) * model.rows

    def forecast(self, sizes: Sequence[int], rows: int, options: Mapping[str, Any], measured: int = 0) -> tuple[float, float]:
        """Return roughly seconds and megabytes for a source of `rows` rows, each set having as many.

        Fitted to runs on one core. Post-processing of public sizes.
        """
        cells, sets = math.prod(sizes), self._sets(options)
        seconds = 0.01 + sets * (5e-8 * rows * len(sizes) + 2e-7 * cells * (1 + rows // _BLOCK))
        if self.draws_rows:
            seconds += sets * 1.1e-7 * rows * (1.0 + math.log10(cells) / 5.0)
        return seconds, 30.0 + 3e-5 * cells * sets + 4e-5 * min(rows, _BLOCK)

    def output_domain(self, domain: Domain, options: Mapping[str, Any]) -> Domain:
        """Return the columns, and ``set`` where there are several sets."""
        return with_sets(domain, self._sets(options))

    def sample(self, model: HistogramModel, rows: int, rng: np.random.Generator) -> Iterator[CodeArray]:
        """Yield blocks of rows, set by set, shuffled within a set.

        Every set has the same number of rows, up to one. Where that is the number of rows that were drawn, these are
        the rows; otherwise they are independent draws from the shares.

        Parameters
        ----------
        model : HistogramModel
        rows : int, >= 0
            Of all sets together.
        rng : numpy.random.Generator
            The same state gives the same rows.

        Yields
        ------
        ndarray of int32, shape (b, m) or (b, m + 1), b at most 2^20

        Raises
        ------
        ArgumentError
            rows is negative.

        Notes
        -----
        Privacy: post-processing.
        """
        return self._blocks(model, row_count(rows), rng)

    @staticmethod
    def _blocks(model: HistogramModel, rows: int, rng: np.random.Generator) -> Iterator[CodeArray]:
        sets = model.shares.shape[0]
        for number in range(sets):
            share = rows // sets + (number < rows % sets)
            drawn = None if model.counts is None else model.counts[number]
            # Counts of exactly so many rows are dealt out as they are, in random order; else rows are drawn by their shares.
            if drawn is not None and int(drawn.sum()) == share:
                blocks = shuffled_rows(drawn, rng)
            else:
                blocks = random_rows(model.shares[number], share, rng)
            for cells in blocks:
                codes = np.empty((cells.size, len(model.sizes) + (sets > 1)), dtype=np.int32)
                for column, values in enumerate(np.unravel_index(cells, model.sizes)):
                    codes[:, column] = values
                codes[:, len(model.sizes) :] = number
                yield codes

    @abstractmethod
    def _price(self, cells: int, contract: Contract, epsilon: Fraction, sets: int) -> Price:
        """Return the price of ``sets`` mechanisms of this epsilon each."""

    @abstractmethod
    def _draw(self, counts: IntArray, epsilon: Fraction, parameters: Mapping[str, Any], sets: int) -> list[IntArray]:
        """Return the blocks of all sets, each of this epsilon."""

    def _sets(self, options: Mapping[str, Any]) -> int:
        """Check the options and return the number of sets."""
        sets = chosen_options(self.options, options)["sets"]
        if not is_whole(sets, 1, MAXIMUM_SETS):
            raise ArgumentError("sets", sets, f"must be a whole number from 1 to {MAXIMUM_SETS}")
        return sets

    def _cells(self, domain: Domain, sets: int) -> int:
        """Check the columns and return the number of cells."""
        names = list(domain.names)
        if not names:
            raise ArgumentError("columns", names, "must name at least one column with a declared domain")
        cells = domain.cells(range(len(names)))
        if cells > MAXIMUM_CELLS or cells * sets > MAXIMUM_LENGTH:
            raise ArgumentError(
                "columns", names,
                f"their cross-tabulation has {cells} cells in each of {sets} sets; {self.name} takes up to {MAXIMUM_CELLS} cells, "
                f"{MAXIMUM_LENGTH} with all sets: choose fewer columns, coarser bins or fewer sets, or method := 'gaussian_copula'",
            )
        return cells


def shuffled_rows(counts: IntArray, rng: np.random.Generator) -> Iterator[IntArray]:
    """Yield the rows that the counts stand for, as numbers of cells, in random order. Post-processing."""
    pieces = -(-int(counts.sum()) // _SHUFFLED)
    whole, rest = np.divmod(counts, max(pieces, 1))  # counts times pieces could pass 2^63
    for piece in range(pieces):  # rows of one piece are shuffled among themselves
        left = whole + rest * (piece + 1) // pieces - rest * piece // pieces
        while (missing := int(left.sum())) > 0:
            part = left if missing <= _BLOCK else rng.multivariate_hypergeometric(left, _BLOCK, method="marginals")
            yield rng.permutation(np.repeat(np.arange(counts.size), part))
            left = left - part


def random_rows(shares: FloatArray, rows: int, rng: np.random.Generator) -> Iterator[IntArray]:
    """Yield independent rows, as numbers of cells. Post-processing."""
    cumulative = np.cumsum(shares)
    last = int(np.flatnonzero(shares)[-1])  # where rounding leaves the sum below 1
    for start in range(0, rows, _BLOCK):
        size = min(_BLOCK, rows - start)
        uniform = rng.random(size) * cumulative[-1]
        if shares.size >= _SORTED_FROM:  # unsorted look-ups in a long list miss the cache
            uniform.sort()
        cells = np.minimum(cumulative.searchsorted(uniform, side="right"), last)
        yield rng.permutation(cells) if shares.size >= _SORTED_FROM else cells
