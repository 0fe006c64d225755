"""Counts of k-tuples and rows seeded by them: what Synthetic Data Showcase does, without its faults.

Level by level, k = 1 ... R, the tuples whose parts were all kept are counted, those that no row has too, with integer noise of a
scale that was fixed beforehand. A tuple is kept if its noisy count is above a public integer threshold. What is *reported* are the
kept tuples, their counts capped by those of their parts; what is *released* are all noisy counts, so that a sampler need not do
without what a threshold hides.

Privacy: every row is full (NULL is a value of its own), so the number of k-tuples of a row is C(d, k), which is public: no
percentile of it has to be bought. Everything after the counts is post-processing.

References: [SDS]; [Durfee & Rogers 2019], arXiv:1905.04273.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np

from dpsql.domain import Domain
from dpsql.errors import ArgumentError
from dpsql.methods import tuple_levels
from dpsql.methods.aggregate_model import Level, Seeded, estimated_rows, fit_seeded, schedule
from dpsql.methods.aggregate_published import published_rows
from dpsql.methods.aggregate_rows import seeded_rows
from dpsql.methods.base import CodeArray, IntArray, MeasurementPlan, Statistics
from dpsql.methods.mixture_rows import sweeps
from dpsql.methods.tuple_index import TupleIndex, tuple_index

SAMPLERS = ("dependence_preserving", "published")
ACCOUNTINGS = ("exact", "published")
_LONGEST = 10


@dataclass(frozen=True)
class Aggregates:
    """Reported tuples of one level.

    Parameters
    ----------
    attributes : int64 array, shape (N, k)
    counts : int64 array, shape (N,)
        Above 0.
    """

    attributes: IntArray
    counts: IntArray


@dataclass(frozen=True)
class AggregateModel:
    """What rows are drawn from; the mixture is fitted when it is first needed.

    Parameters
    ----------
    levels : tuple of Level
        All measured counts.
    index : TupleIndex
    total : int or None
        Number of rows where it is public.
    thresholds : tuple of int
    options : mapping
    empty : tuple of int
        Code of an empty cell of each column in the output domain of the published sampler.
    """

    levels: tuple[Level, ...]
    index: TupleIndex
    total: int | None
    thresholds: tuple[int, ...]
    options: Mapping[str, Any]
    empty: tuple[int, ...]

    @cached_property
    def seeded(self) -> Seeded:
        """The fitted mixture."""
        return fit_seeded(self.levels, self.index, self.total)

    @cached_property
    def reported(self) -> tuple[Aggregates, ...]:
        """The kept tuples, capped."""
        return reported(self.levels, self.thresholds, self.index)

    @cached_property
    def rows(self) -> int:
        """Number of rows that the counts suggest."""
        return round(estimated_rows(self.levels, self.index)) if self.total is None else max(self.total, 0)


def reported(levels: Sequence[Level], thresholds: Sequence[int], index: TupleIndex) -> tuple[Aggregates, ...]:
    """Return the tuples above their level's threshold, each count capped by the smallest of its parts' counts.

    Notes
    -----
    Privacy: post-processing. Counts fall down the lattice, as those of rows do.
    """
    found: list[Aggregates] = []
    keys = counts = np.zeros(0, dtype=np.int64)
    for k, (level, threshold) in enumerate(zip(levels, thresholds, strict=True), 1):
        kept = level.counts > threshold
        attributes, capped = level.attributes[kept], level.counts[kept]
        if k > 1:
            for part in index.subkeys(attributes):
                capped = np.minimum(capped, counts[np.searchsorted(keys, part)]) if keys.size else capped
        keys, counts = index.keys(attributes), capped
        found.append(Aggregates(attributes, capped))
    return tuple(found)


class AggregateSeeded:
    """The method `aggregate_seeded`.

    Attributes
    ----------
    name : str
    options : mapping
        reporting_length : R, the largest number of attributes in a counted tuple, 1 to 10.
        sigma_proportions : how the noise is split between lengths: 'long', 'short', 'balanced', or R numbers.
        accounting : 'exact' (the smallest noise that the accountant accepts) or 'published' (the noise of [SDS]).
        thresholds : 'adaptive', or a whole number for each k = 2 ... R.
        fabrication_mode : where adaptive: 'uncontrolled', 'progressive', 'balanced', 'minimize', or a rate for each k = 2 ... R.
        sampler : 'dependence_preserving' or 'published'.
        weight_selection_percentile, use_synthetic_counts : of the published sampler.
        percentile_epsilon_proportion, number_of_records_epsilon_proportion : what published accounting sets aside.
    """

    name = "aggregate_seeded"
    options: Mapping[str, Any] = MappingProxyType(
        {
            "reporting_length": 3,
            "sigma_proportions": "long",
            "accounting": "exact",
            "thresholds": "adaptive",
            "fabrication_mode": "balanced",
            "sampler": "dependence_preserving",
            "weight_selection_percentile": 95,
            "use_synthetic_counts": False,
            "percentile_epsilon_proportion": 0.01,
            "number_of_records_epsilon_proportion": 0.005,
        }
    )

    def plan(self, domain: Domain, options: Mapping[str, Any]) -> MeasurementPlan:
        """Return all tables of 1 ... R columns.

        Raises
        ------
        ArgumentError
            An option is unknown or out of range, or R is above the number of columns.
        DomainError
            There are too many tables or tuples.

        Notes
        -----
        Privacy: looks at the public domain and options alone.
        """
        chosen = self._checked(options)
        length, columns = chosen["reporting_length"], len(domain.attributes)
        if length > columns:
            raise ArgumentError(
                "reporting_length",
                length,
                f"there are {columns} columns with a domain, {list(domain.names)!r}, and a tuple has at most one value of each: "
                f"at most {columns} is required",
            )
        index = tuple_index(domain.sizes, length)
        weights = tuple_levels.table_weights(tuple_levels.sigma_proportions(chosen["sigma_proportions"], length), columns)
        each = tuple(weights[len(clique) - 1] for clique in index.cliques)
        return MeasurementPlan(index.cliques, each)

    def scales(
        self, domain: Domain, epsilon: Fraction, delta: float, l2_sensitivity: float, options: Mapping[str, Any]
    ) -> tuple[Fraction, ...] | None:
        """Return the published noise scale of each level, or None for the smallest that the accountant accepts."""
        if self._checked(options)["accounting"] == "exact":
            return None
        return self._published(domain, float(epsilon), delta, l2_sensitivity, options)

    def _published(
        self, domain: Domain, epsilon: float, delta: float, l2_sensitivity: float, options: Mapping[str, Any]
    ) -> tuple[Fraction, ...]:
        chosen = self._checked(options)
        split = tuple_levels.published_split(
            epsilon,
            delta,
            tuple_levels.sigma_proportions(chosen["sigma_proportions"], chosen["reporting_length"]),
            percentile_share=chosen["percentile_epsilon_proportion"],
            records_share=chosen["number_of_records_epsilon_proportion"],
        )
        return tuple_levels.published_scales(split, len(domain.attributes), l2_sensitivity)

    def thresholds(self, scales: Sequence[Fraction], options: Mapping[str, Any]) -> tuple[int, ...]:
        """Return one threshold per level."""
        return tuple_levels.thresholds(scales, self._checked(options))

    def notes(
        self,
        domain: Domain,
        scales: Sequence[Fraction],
        epsilon: Fraction,
        delta: float,
        l2_sensitivity: float,
        options: Mapping[str, Any],
    ) -> tuple[str, ...]:
        """Return what the user should know before buying: noise and thresholds of each level, and what published accounting has."""
        chosen = self._checked(options)
        found = [f"noise of a count, k = 1 to {len(scales)}: sigma {_listed(scales)}"]
        if chosen["accounting"] == "exact":
            other = self._published(domain, float(epsilon), delta, l2_sensitivity, options)
            factor = float(other[0] / scales[0])
            found[0] += f"; accounting := 'published' has {_listed(other)}, larger by a factor of {factor:.3g}"
        limits = self.thresholds(scales, options)
        index = tuple_index(domain.sizes, len(scales))
        for k in range(2, len(scales) + 1):
            first, behind = index.level_keys(k)
            share = tuple_levels.tail(scales[k - 1], limits[k - 1])
            found.append(
                f"k = {k}: reported if above {limits[k - 1]}; of the tuples that are counted and that nobody has, {share:.3g} are "
                f"expected to be, so at most {share * (behind - first):.6g}"
            )
        return tuple(found)

    def output_domain(self, domain: Domain, options: Mapping[str, Any]) -> Domain:
        """Return the measured domain; the published sampler can leave any cell empty."""
        if self._checked(options)["sampler"] == "dependence_preserving":
            return domain
        return Domain(tuple(replace(attribute, nullable=True) for attribute in domain.attributes))

    def fit(self, statistics: Statistics, options: Mapping[str, Any]) -> AggregateModel:
        """Return the model of released counts; deterministic. Privacy: post-processing."""
        chosen = self._checked(options)
        index = tuple_index(statistics.sizes, chosen["reporting_length"])
        levels, exact = levels_of(statistics, index)
        empty = statistics.sizes
        if statistics.domain is not None:
            empty = tuple(a.size if a.null_code is None else a.null_code for a in statistics.domain.attributes)
        return AggregateModel(levels, index, statistics.total, self.thresholds(exact, chosen), chosen, empty)

    def aggregates(self, statistics: Statistics, options: Mapping[str, Any]) -> tuple[IntArray, IntArray]:
        """Return keys and counts of the reported tuples, keys ascending. Privacy: post-processing."""
        model = self.fit(statistics, options)
        keys = [model.index.keys(level.attributes) for level in model.reported]
        return np.concatenate(keys), np.concatenate([level.counts for level in model.reported])

    def report(self, model: AggregateModel) -> list[str]:
        """Return how many tuples were counted and reported, and how many fabricated ones to expect. Post-processing."""
        found = []
        for k, (level, shown, threshold) in enumerate(zip(model.levels, model.reported, model.thresholds, strict=True), 1):
            text = f"k = {k}: {len(shown.counts)} of {len(level.counts)} counted tuples are reported, those above {threshold}"
            if k > 1 and level.scale > 0:
                share = tuple_levels.tail(Fraction(level.scale), threshold)
                text += f"; at most {share * len(level.counts):.6g} of them are expected to be tuples that nobody has"
            found.append(text)
        return found

    def total(self, model: AggregateModel) -> int:
        """Return the number of rows that the counts suggest, at least 0."""
        return model.rows

    def forecast(self, sizes: Sequence[int], rows: int, options: Mapping[str, Any]) -> tuple[float, float]:
        """Return roughly the seconds and megabytes that fitting and drawing take on two cores. Post-processing of public sizes."""
        columns, m = sum(sizes), len(sizes)
        if self._checked(options)["sampler"] == "published":
            return rows * m * columns * 4e-7, 100.0
        classes, steps = schedule(columns, 1000.0)
        fit = 2 * steps * (4e-11 * columns**2 * classes + 1.2e-8 * columns**2 + 2.5e-8 * columns * classes)
        draw = rows * m * 3e-7 + min(rows, 1 << 16) * sweeps(rows, m) * m**2 * 7e-8
        return fit + draw, 1e-6 * (100.0 * columns**2 + 60.0 * columns * classes) + 1e-6 * min(rows, 1 << 16) * m * 100

    def sample(self, model: AggregateModel, rows: int, rng: np.random.Generator) -> Iterator[CodeArray]:
        """Yield blocks of codes: ``rows`` rows in total; of the published sampler as many as its counts give, scaled to ``rows``.

        Privacy: post-processing.
        """
        if rows < 0:
            raise ArgumentError("rows", rows, "a whole number of at least 0")
        if model.options["sampler"] == "published":
            return published_rows(
                [(level.attributes, level.counts) for level in model.reported],
                model.index,
                rows / model.rows if model.rows else 0.0,
                rng,
                empty=model.empty,
                percentile=model.options["weight_selection_percentile"],
                use_synthetic_counts=model.options["use_synthetic_counts"],
            )
        return seeded_rows(model.seeded, model.index.sizes, rows, rng)

    def _checked(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Fill in defaults; refuse unknown options and values."""
        for option in options:
            if option not in self.options:
                raise ArgumentError("options", option, f"not an option; there are {', '.join(map(repr, self.options))}")
        chosen = {**self.options, **options}
        length = chosen["reporting_length"]
        if isinstance(length, bool) or not isinstance(length, (int, float)) or length not in range(1, _LONGEST + 1):
            raise ArgumentError("reporting_length", length, f"a whole number from 1 to {_LONGEST} is required")
        chosen["reporting_length"] = length = int(length)
        tuple_levels.sigma_proportions(chosen["sigma_proportions"], length)
        tuple_levels.fixed_thresholds(chosen["thresholds"], length)
        tuple_levels.fabrication_rates(chosen["fabrication_mode"], length)
        for option, allowed in (("accounting", ACCOUNTINGS), ("sampler", SAMPLERS), ("use_synthetic_counts", (False, True))):
            if chosen[option] not in allowed or isinstance(chosen[option], bool) != isinstance(allowed[0], bool):
                raise ArgumentError(option, chosen[option], f"must be one of {', '.join(map(repr, allowed))}")
        for option, most in (
            ("weight_selection_percentile", 100.0),
            ("percentile_epsilon_proportion", 0.99),
            ("number_of_records_epsilon_proportion", 0.99),
        ):
            value = chosen[option]
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= most:
                raise ArgumentError(option, value, f"a number from 0 to {most:g} is required")
        return chosen


def levels_of(statistics: Statistics, index: TupleIndex) -> tuple[tuple[Level, ...], tuple[Fraction, ...]]:
    """Return the measured counts of each level, and its noise scale, from a release (table, cell, count)."""
    table, cell, counts = statistics.blocks
    keys = index.starts[table] + cell
    levels, scales = [], []
    for k in index.levels:
        first, behind = np.searchsorted(keys, index.level_keys(k))
        scale = statistics.scales[index.cliques[index.first_tables[k - 1]]]
        levels.append(Level(index.attributes(keys[first:behind], k), counts[first:behind], scale))
        scales.append(Fraction(scale))
    return tuple(levels), tuple(scales)


def _listed(scales: Sequence[Fraction]) -> str:
    return ", ".join(f"{math.ceil(float(scale) * 100) / 100:.2f}" for scale in scales)
