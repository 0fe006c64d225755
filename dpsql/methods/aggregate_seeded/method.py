"""Counts of k-tuples and rows seeded by them: what Synthetic Data Showcase does, without its faults.

Level by level, k = 1 ... R, the tuples whose parts were all kept are counted, those that no row has too, with integer noise of a
scale that was fixed beforehand. A tuple is kept if its noisy count is above a public integer threshold. What is *reported* are the
kept tuples, their counts capped by those of their parts; what is *released* are all noisy counts, so that a sampler need not do
without what a threshold hides.

Privacy: where every row is full (NULL is a value of its own), the number of k-tuples of a row is C(d, k), which is public: no
percentile of it has to be bought. Where NULL is an empty cell (`empty`), rows differ; then a private percentile bounds that number
at every level. Everything after the counts is post-processing.

References: [SDS]; [Durfee & Rogers 2019], arXiv:1905.04273.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from types import MappingProxyType
from typing import Any

import numpy as np

from dpsql.domains import multi_value
from dpsql.domains.attributes import Domain
from dpsql.errors import ArgumentError
from dpsql.methods.aggregate_seeded import levels as tuple_levels
from dpsql.methods.aggregate_seeded.model import Empty, schedule
from dpsql.methods.aggregate_seeded.published import published_rows
from dpsql.methods.aggregate_seeded.reported import AggregateModel, extra_of, levels_of
from dpsql.methods.aggregate_seeded.rows import seeded_rows
from dpsql.methods.base import MeasurementPlan, TuplePlan
from dpsql.methods.mixture.rows import sweeps
from dpsql.methods.mixture.starts import fit_seconds
from dpsql.methods.options import chosen_options, is_number, row_count
from dpsql.numerics.arrays import CodeArray, IntArray
from dpsql.tables.statistics import Statistics
from dpsql.tables.tuple_index import tuple_index
from dpsql.text.names import fold

SAMPLERS = ("dependence_preserving", "published")
ACCOUNTINGS = ("exact", "published")
_LONGEST = 10


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
        empty : where NULL is an empty cell, in no tuple: true for all nullable columns, or a list of them.
        multi_value_columns : columns of several values and their delimiters; each value is an attribute, present or empty.
        percentile_percentage : of the tuples that a row has, where cells can be empty; 100 bounds them by C(d, k), for free.
        percentile_epsilon_proportion, number_of_records_epsilon_proportion : parts of the loss for percentiles and for the number
        of rows, where cells can be empty; published accounting sets them aside in any case.
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
            "empty": False,
            "multi_value_columns": None,
            "percentile_percentage": 99,
            "percentile_epsilon_proportion": 0.01,
            "number_of_records_epsilon_proportion": 0.005,
        }
    )

    def plan(self, domain: Domain, options: Mapping[str, Any]) -> MeasurementPlan:
        """Return all tables of 1 ... R columns, or of as many as there are.

        Raises
        ------
        ArgumentError
            An option is unknown or out of range.
        DomainError
            There are too many tables or tuples.

        Notes
        -----
        Privacy: looks at the public domain and options alone.
        """
        chosen = self._checked(options)
        tuples = self.tuples(domain, chosen)
        cliques = tuple_index(tuples.sizes, tuples.length).cliques
        return MeasurementPlan((*cliques, ()) if tuples.empty else cliques)

    def tuples(
        self, domain: Domain, options: Mapping[str, Any], epsilon: float | None = None, delta: float | None = None
    ) -> TuplePlan:
        """Return what is counted, and how the loss is split. Privacy: looks at the public domain and options alone."""
        chosen = self._checked(options)
        empty = _empty_columns(domain, chosen)
        proportions = _proportions(chosen, len(domain.attributes))
        split = None
        if chosen["accounting"] == "published" and epsilon is not None and delta is not None:
            split = _split(epsilon, delta, chosen, proportions)
        percentage = Fraction(str(chosen["percentile_percentage"]))
        return TuplePlan(
            sizes=tuple(size - (i in empty) for i, size in enumerate(domain.sizes)),
            length=len(proportions),
            weights=tuple(p**-2 for p in proportions),
            empty=empty,
            percentile=percentage / 100 if empty and percentage < 100 else None,
            percentile_share=chosen["percentile_epsilon_proportion"],
            rows_share=chosen["number_of_records_epsilon_proportion"],
            published=split,
        )

    def threshold(self, k: int, scale: Fraction, options: Mapping[str, Any]) -> int:
        """Return the threshold of level k."""
        return tuple_levels.threshold(k, scale, self._checked(options))

    def notes(
        self,
        domain: Domain,
        scales: Sequence[Fraction],
        epsilon: float,
        delta: float,
        l2_sensitivity: float,
        options: Mapping[str, Any],
    ) -> tuple[str, ...]:
        """Return what the user should know before buying: noise and thresholds of each level, and what published accounting has."""
        chosen = self._checked(options)
        tuples = self.tuples(domain, chosen)
        upto = "at most " if tuples.percentile is not None else ""
        notes = [f"noise of a count, k = 1 to {len(scales)}: sigma {upto}{_listed(scales)}"]
        # Beside its own noise the exact accounting shows that of the published one, to compare.
        if chosen["accounting"] == "exact":
            columns = len(domain.attributes)
            split = _split(epsilon, delta, chosen, _proportions(chosen, columns))
            published = tuple_levels.published_scales(split, columns, l2_sensitivity)
            factor = float(published[0] / scales[0])
            notes[0] += f"; accounting := 'published' has {_listed(published)}, larger by a factor of {factor:.3g}"
        index = tuple_index(tuples.sizes, tuples.length)
        for k in range(2, len(scales) + 1):
            first, behind = index.level_keys(k)
            limit = self.threshold(k, scales[k - 1], chosen)
            share = tuple_levels.tail(scales[k - 1], limit)
            notes.append(
                f"k = {k}: reported if above {limit}; of the tuples that are counted and that nobody has, {share:.3g} are "
                f"expected to be, so at most {share * (behind - first):.6g}"
            )
        if tuples.percentile is not None:
            notes.append(
                f"NULL is an empty cell in {[domain.names[i] for i in tuples.empty]!r}: a row keeps as many of its tuples as a "
                f"private percentile ({float(100 * tuples.percentile):g}) allows, and noise and thresholds fall with it"
            )
        return tuple(notes)

    def output_domain(self, domain: Domain, options: Mapping[str, Any]) -> Domain:
        """Return the measured domain; the published sampler can leave any cell empty."""
        if self._checked(options)["sampler"] == "dependence_preserving":
            return domain
        return Domain(tuple(replace(attribute, nullable=True) for attribute in domain.attributes))

    def fit(self, statistics: Statistics, options: Mapping[str, Any]) -> AggregateModel:
        """Return the model of released counts; deterministic. Privacy: post-processing."""
        chosen = self._checked(options)
        domain = statistics.domain
        length = min(chosen["reporting_length"], len(statistics.sizes))
        tuples = self.tuples(domain, chosen) if domain is not None else TuplePlan(statistics.sizes, length, ())
        index = tuple_index(tuples.sizes, tuples.length)
        levels, scales = levels_of(statistics, index)
        limits = tuple(self.threshold(k, scale, chosen) for k, scale in enumerate(scales, 1))
        # The published sampler writes an empty cell as NULL.
        null = statistics.sizes
        if domain is not None:
            null = tuple(a.size if a.null_code is None else a.null_code for a in domain.attributes)
        total, missing = statistics.total, Empty()
        # Where cells are empty no table sums to the number of rows: it was measured by itself, unless it is public.
        if tuples.empty:
            missing = Empty(tuples.empty, 0.0 if total is not None else statistics.scales[()])
            total = int(extra_of(statistics, index)[0]) if total is None else total
        bounds = tuple(extra_of(statistics, index)[1:].tolist()) if tuples.empty else ()
        return AggregateModel(levels, index, total, missing, limits, chosen, null, bounds)

    def aggregates(self, statistics: Statistics, options: Mapping[str, Any]) -> tuple[IntArray, IntArray]:
        """Return keys and counts of the reported tuples, keys ascending. Privacy: post-processing."""
        model = self.fit(statistics, options)
        keys = [model.index.keys(level.attributes) for level in model.reported]
        return np.concatenate(keys), np.concatenate([level.counts for level in model.reported])

    def report(self, model: AggregateModel) -> list[str]:
        """Return how many tuples were counted and reported, and how many fabricated ones to expect. Post-processing."""
        lines = []
        for k, (level, shown, threshold) in enumerate(zip(model.levels, model.reported, model.thresholds, strict=True), 1):
            text = f"k = {k}: {len(shown.counts)} of {len(level.counts)} counted tuples are reported, those above {threshold}"
            if k > 1 and level.scale > 0:
                share = tuple_levels.tail(Fraction(level.scale), threshold)
                text += f"; at most {share * len(level.counts):.6g} of them are expected to be tuples that nobody has"
            lines.append(text)
        if model.bounds:
            lines.append(f"a row was counted in at most {', '.join(map(str, model.bounds))} tuples, k = 1 to {len(model.bounds)}")
        return lines

    def total(self, model: AggregateModel) -> int:
        """Return the number of rows that the counts suggest, at least 0."""
        return model.rows

    def forecast(self, sizes: Sequence[int], rows: int, options: Mapping[str, Any], measured: int = 0) -> tuple[float, float]:
        """Return roughly the seconds and megabytes that fitting and drawing take on two cores. Post-processing of public sizes."""
        columns, m = sum(sizes), len(sizes)
        if self._checked(options)["sampler"] == "published":
            return rows * m * columns * 4e-7, 100.0
        classes, steps = schedule(columns, 1000.0)
        fit = 2 * fit_seconds(columns, classes, steps, 2)
        draw = rows * m * 3e-7 + min(rows, 1 << 16) * sweeps(rows, m) * m**2 * 7e-8
        return fit + draw, 1e-6 * (100.0 * columns**2 + 60.0 * columns * classes) + 1e-6 * min(rows, 1 << 16) * m * 100

    def sample(self, model: AggregateModel, rows: int, rng: np.random.Generator) -> Iterator[CodeArray]:
        """Yield blocks of codes: ``rows`` rows in total; of the published sampler as many as its counts give, scaled to ``rows``.

        Privacy: post-processing.
        """
        rows = row_count(rows)
        if model.options["sampler"] == "published":
            return published_rows(
                [(level.attributes, level.counts) for level in model.reported],
                model.index,
                _factor(model, rows),
                rng,
                empty=model.empty,
                percentile=model.options["weight_selection_percentile"],
                use_synthetic_counts=model.options["use_synthetic_counts"],
            )
        return seeded_rows(model.seeded, model.missing.sizes(model.index), rows, rng)

    def _checked(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Fill in defaults; refuse unknown options and values."""
        chosen = chosen_options(self.options, options)
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
            ("percentile_percentage", 100.0),
            ("percentile_epsilon_proportion", 0.99),
            ("number_of_records_epsilon_proportion", 0.99),
        ):
            if not is_number(chosen[option], 0, most):
                raise ArgumentError(option, chosen[option], f"a number from 0 to {most:g} is required")
        return chosen


def _factor(model: AggregateModel, rows: int) -> float:
    """Return what the published sampler multiplies single counts with, for about ``rows`` rows.

    It writes as many rows as single counts say. Where noise says many times more than the number of rows does, they are scaled to
    twice the rows that were asked for: else it would write them for ever.
    """
    singles = model.reported[0]
    column = model.index.columns_of_attributes[singles.attributes[:, 0]]
    largest = float(np.bincount(column, weights=singles.counts).max(initial=0.0))
    factor = rows / model.rows if model.rows else 0.0
    return min(factor, 2.0 * rows / largest) if largest else factor


def _empty_columns(domain: Domain, chosen: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the positions of the columns whose NULL is an empty cell, those of split columns among them."""
    empty, parts = chosen["empty"], set(multi_value.split(domain, chosen))
    nullable = {fold(a.name): i for i, a in enumerate(domain.attributes) if a.nullable}
    if empty is False or empty is True:
        return tuple(nullable.values()) if empty else tuple(sorted(parts))
    if not isinstance(empty, (list, tuple)) or not all(isinstance(name, str) and fold(name) in nullable for name in empty):
        names = [a.name for a in domain.attributes if a.nullable]
        raise ArgumentError("empty", empty, f"must be true, false or a list of nullable columns; there are {names!r}")
    return tuple(sorted({nullable[fold(name)] for name in empty} | parts))


def _proportions(chosen: Mapping[str, Any], columns: int) -> tuple[float, ...]:
    """Return the noise of each level in proportion: a tuple has at most one value of each column, so there are no more levels."""
    return tuple(tuple_levels.sigma_proportions(chosen["sigma_proportions"], chosen["reporting_length"])[:columns])


def _split(
    epsilon: float, delta: float, chosen: Mapping[str, Any], proportions: Sequence[float]
) -> tuple_levels.PublishedSplit:
    return tuple_levels.published_split(
        epsilon,
        delta,
        proportions,
        percentile_share=chosen["percentile_epsilon_proportion"],
        records_share=chosen["number_of_records_epsilon_proportion"],
    )


def _listed(scales: Sequence[Fraction]) -> str:
    return ", ".join(f"{math.ceil(float(scale) * 100) / 100:.2f}" for scale in scales)
