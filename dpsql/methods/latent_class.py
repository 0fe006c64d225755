"""Latent classes: the most accurate synthetic table from noisy two-way tables.

1. Measure every one-way and two-way table with Gaussian noise; nothing is selected. Then, for pairs of numeric or temporal
   attributes with many bins, a table of few groups of bins each (`dpsql.tables.coarse`), for the sake of their rank
   correlation.
2. Fit a mixture of products of one-way tables to the noisy tables as they are (`dpsql.methods.mixture.fit`); how strongly it is
   pulled towards independent columns, held-out noise tells (`dpsql.methods.mixture.heldout`). Columns that follow from another one
   of many values get classes of their own (`dpsql.methods.mixture.functions`).
3. Write rows whose tables are the model's almost exactly (`dpsql.methods.mixture.rows`).

Privacy: the tables are the only use of protected rows: one Gaussian release, composed exactly; the groups of the coarse
tables are chosen from the tables released before them, which adaptive composition covers. Everything here is
post-processing, and every number that steers it is fixed, a function of public sizes, the public noise scale or released
noisy counts.

Not measured: three-way tables. On Adult-15 at epsilon 1 the 3 or 10 triples that the fit explains worst, chosen with the raw
table in hand, gain less than 1 % of the two-way and of the three-way distance for 1, 3 or 10 % of the two-way tables' loss, and
cost 1.5 to 3.5 % of the one-way distance; on other tables they gain or lose (`tests/benchmarks/triples.py`,
`docs/methods/latent_class.md`). A private choice would pay for the choice too, so none is made.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from types import MappingProxyType
from typing import Any

import numpy as np

from dpsql.domains.attributes import Domain
from dpsql.errors import ArgumentError
from dpsql.methods.base import MeasurementPlan
from dpsql.methods.mixture.efforts import EFFORTS, USUAL, most_keys, schedule
from dpsql.methods.mixture.fit import Mixture
from dpsql.methods.mixture.functions import find_key
from dpsql.methods.mixture.heldout import APART, pull_factor
from dpsql.methods.mixture.rows import forecast_draw, mixture_rows
from dpsql.methods.mixture.starts import fit_from_starts, fit_seconds, fit_with_key
from dpsql.methods.mixture.targets import Targets, targets
from dpsql.methods.options import check_choices, chosen_options, is_number, is_whole, row_count
from dpsql.numerics.arrays import Clique, CodeArray
from dpsql.running.blas import one_blas_thread
from dpsql.tables.coarse import ordered, shape
from dpsql.tables.flat import AllCliques
from dpsql.tables.statistics import Statistics

_ONE_WAY_SHARE = 10.0
"""Two-way tables get at most this many times the privacy loss of the one-way tables.

Chosen on Adult-15, acs and small subsets, checked on salary: one-way distances fall by a tenth against 20 times and equal
shares, and two-way distances do not change.
"""

_COARSE_WEIGHT, _COARSE_SHARE = 0.3, 0.06
"""Privacy loss of a coarse table relative to a two-way table, and at most of all of them relative to all two-way tables."""

_FINE_CELLS = 4
"""A pair gets a coarse table where its table has at least this many times the cells of it."""

_HALF_CLASSES = 256
"""Of the fits that tell the pull, at most."""

_MANY_PAIRS = 1000
"""Two-way tables from which the plan says what spreading the budget means."""


@dataclass(frozen=True)
class LatentClassModel:
    """A fitted model.

    Parameters
    ----------
    sizes : tuple of int, length m
    rows : int
        Rows that the statistics suggest, at least 0.
    mixture : Mixture
    """

    sizes: tuple[int, ...]
    rows: int
    mixture: Mixture


class LatentClass:
    """The method `latent_class`.

    Attributes
    ----------
    name : str
    options : mapping
        classes : number of classes of a fit, 1 to 10,000; 'auto' takes more where noise is smaller.
        steps : gradient steps of a fit, 1 to 100,000; 'auto' takes more where noise is smaller.
        pull : how strongly classes are pulled towards the one-way tables, relative to the rule for this noise, 0 to 1000.
        one_way_weight : privacy loss (rho) of a one-way table relative to a two-way table, 0 to 1000; 'auto' gives one
        part in 11 of the whole to the one-way tables, most of it to those of many values, and more to an attribute whose
        two-way tables are too large to tell much about it; 0 measures none (where there are two attributes or more).
        effort : 'fast', 'balanced' or 'best': how much time a fit may take.
    """

    name = "latent_class"
    options: Mapping[str, Any] = MappingProxyType(
        {"classes": "auto", "steps": "auto", "pull": 1.0, "one_way_weight": "auto", "effort": USUAL}
    )

    def plan(self, domain: Domain, options: Mapping[str, Any]) -> MeasurementPlan:
        """Return all one-way and two-way tables, and pairs of numeric attributes for coarse ones.

        Parameters
        ----------
        domain : Domain
            At least one attribute.
        options : mapping
            As in `options`; what is missing has its default.

        Returns
        -------
        MeasurementPlan

        Raises
        ------
        ArgumentError
            If there is no attribute, or an option is unknown or out of range.

        Notes
        -----
        Privacy: looks at the public domain and options alone.
        """
        chosen = self._checked(options)
        m = len(domain.attributes)
        if not m:
            raise ArgumentError("columns", [], "at least one column with a domain is required")
        singles = _one_way_weights(domain.sizes) if chosen["one_way_weight"] == "auto" else (float(chosen["one_way_weight"]),) * m
        # A single column has no other table than its own.
        weights = (1.0,) if m == 1 else tuple(weight for weight in singles if weight > 0.0)
        pairs = math.comb(m, 2)
        cliques = AllCliques(m, [k for k, used in ((1, weights), (2, pairs)) if used])
        notes: tuple[str, ...] = ()
        if pairs >= _MANY_PAIRS:
            notes = (
                f"{pairs} two-way tables share the budget: dependence that is weak against the noise is left out, and such "
                "columns come out independent of each other; naming fewer columns gives more accurate ones",
            )
        # All coarse tables together have a share of the budget at most, however many there are.
        coarse = _coarse_pairs(domain)
        share = min(_COARSE_WEIGHT, _COARSE_SHARE * pairs / max(len(coarse), 1))
        return MeasurementPlan(cliques, (*weights, *(1.0,) * pairs), notes, coarse, (share,) * len(coarse))

    def output_domain(self, domain: Domain, options: Mapping[str, Any]) -> Domain:
        """Return the measured domain: rows have its columns."""
        return domain

    def fit(self, statistics: Statistics, options: Mapping[str, Any]) -> LatentClassModel:
        """Fit the classes. Deterministic.

        Parameters
        ----------
        statistics : Statistics
            Tables of any order with any noise scales.
        options : mapping
            As in `options`.

        Returns
        -------
        LatentClassModel

        Raises
        ------
        ArgumentError
            If an option is unknown or out of range, or a table's shape contradicts the sizes.

        Notes
        -----
        Privacy: post-processing.
        """
        chosen = self._checked(options)
        noisy = targets(statistics)
        with one_blas_thread():
            mixture = _fitted(noisy, chosen)
        return LatentClassModel(noisy.sizes, round(noisy.rows), mixture)

    def total(self, model: LatentClassModel) -> int:
        """Return the number of rows that the statistics suggest, at least 0."""
        return model.rows

    def forecast(self, sizes: Sequence[int], rows: int, options: Mapping[str, Any], measured: int = 0) -> tuple[float, float]:
        """Return roughly the seconds and megabytes that fitting and drawing take on two cores.

        The noise is not known here: that of epsilon = 1 is assumed, about 5.5 times the root of the number of tables.
        Post-processing of public sizes.
        """
        chosen = {**self.options, **options}
        columns = sum(sizes)
        strength = measured / (5.5 * max(len(sizes) * (len(sizes) - 1) / 2.0, 1.0) ** 0.5) or 1000.0
        effort = schedule(sizes, strength, chosen)
        fit = fit_seconds(columns, effort.classes, effort.steps, effort.starts)
        fit += fit_seconds(columns, min(effort.classes, _HALF_CLASSES), effort.steps, 1)
        draw, drawn = forecast_draw(sizes, rows)
        return fit + draw, max(1e-6 * (80.0 * columns**2 + 60.0 * columns * effort.classes), drawn)

    def sample(self, model: LatentClassModel, rows: int, rng: np.random.Generator) -> Iterator[CodeArray]:
        """Yield blocks of rows.

        Parameters
        ----------
        model : LatentClassModel
        rows : int
            At least 0.
        rng : numpy.random.Generator
            The same state gives the same rows.

        Yields
        ------
        ndarray of the smallest unsigned type, shape (b, m)

        Raises
        ------
        ArgumentError
            If rows is negative.

        Notes
        -----
        Privacy: post-processing.
        """
        return mixture_rows(model.mixture, model.sizes, row_count(rows), rng)

    def _checked(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Fill in defaults; refuse unknown options and values."""
        chosen = chosen_options(self.options, options)
        for option, most in (("classes", 10_000), ("steps", 100_000)):
            value = chosen[option]
            if value != "auto" and not is_whole(value, 1, most):
                raise ArgumentError(option, value, f"'auto' or a whole number from 1 to {most}")
        check_choices(chosen, {"effort": EFFORTS})
        for option, rule in (("pull", ""), ("one_way_weight", "'auto' or ")):
            value = chosen[option]
            if not (rule and value == "auto") and not is_number(value, 0.0, 1000.0):
                raise ArgumentError(option, value, f"{rule}a number from 0 to 1000")
        return chosen


def _one_way_weights(sizes: Sequence[int]) -> tuple[float, ...]:
    """Return the weight of each one-way table, from public sizes.

    The row sums of a two-way table with an attribute of c codes have c times the variance of a cell. So two-way tables
    of equal noise together have sum_j 1 / c_j times the precision of one cell; what is missing to 1 is measured. At least, the
    one-way tables share one part in 11 so that the sum of all their errors is smallest: c_i cells with standard deviation
    w_i^(-1/2) ask for weights w_i ~ c_i^(2/3).
    """
    parts = [size ** (2.0 / 3.0) for size in sizes]
    share = math.comb(len(sizes), 2) / _ONE_WAY_SHARE / sum(parts)
    known = sum(1.0 / size for size in sizes)
    return tuple(max(share * part, 1.0 - (known - 1.0 / size)) for part, size in zip(parts, sizes, strict=True))


def _coarse_pairs(domain: Domain) -> tuple[Clique, ...]:
    """Return the pairs of ordered attributes whose two-way table is so fine that a coarse one helps to tell their trend."""
    positions = [i for i, attribute in enumerate(domain.attributes) if ordered(attribute)]
    return tuple(
        pair for pair in combinations(positions, 2) if domain.cells(pair) >= _FINE_CELLS * math.prod(shape(domain, pair))
    )


def _fitted(noisy: Targets, chosen: Mapping[str, Any]) -> Mixture:
    """Fit from several starts and average. Independent columns where no two-way table was measured."""
    if noisy.strength == 0.0:
        return Mixture(np.ones(1), noisy.one_way[:, None])
    effort, pull = schedule(noisy.sizes, noisy.strength, chosen), float(chosen["pull"])
    # Classes that are asked for in number are not tied to the values of a column.
    key = find_key(noisy, most_keys(sum(noisy.sizes), effort)) if chosen["classes"] == "auto" else None
    if key is None:
        # The halves know nothing of coarse tables, and a stronger pull would lose the weak trends that these are there for.
        factor = 1.0 if noisy.groups.size else pull_factor(noisy, min(effort.classes, _HALF_CLASSES), effort.steps)
        if factor == APART:
            return fit_from_starts(noisy, classes=1, steps=effort.steps, starts=1)
        pull *= factor
        return fit_from_starts(noisy, classes=effort.classes, steps=effort.steps, starts=effort.starts, pull=pull)
    return fit_with_key(noisy, key, classes=effort.classes, steps=effort.steps, starts=effort.starts, pull=pull)
