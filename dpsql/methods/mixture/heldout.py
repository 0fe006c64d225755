r"""How strongly to pull, told by the released tables: added noise splits them into two independent halves.

With e normal noise as large as that of the tables Y, Y + e and Y - e are independent of each other given the truth: their
errors are uncorrelated and (nearly) normal. A fit to the one is compared with the other, which estimates its error without
bias, up to what all fits share. Tables where dependence is spread over many cells ask for a stronger pull than `pull_strength`
says; which ones do, no public size tells. And where noise is large and dependence weak, independent columns are better than any
fit. So fits to the one half, with the rule's pull, with twice that (where that is better, with four times), and with a single
class, are compared by

    sum_ab ((M_ab - Y-_ab)^2 - 2 sigma^2 / n^2) / (m_a m_b + sigma / n),

and the best one is taken. Not less than the rule's pull: three-way tables, that no half shows, lose more by it than two-way
tables gain. Where there are coarse tables, which the halves leave out, the rule's pull is kept: a stronger one would lose trends.

Chosen on salary and Adult-15, checked on nist, sim50k, msnbc, small subsets and simulated attributes.

Privacy: post-processing of released statistics; the added noise is a fixed function of a fixed seed.

References: Oliveira et al. (2021), arXiv:2111.09447 (coupled bootstrap); Neufeld et al. (2024) for splitting by added noise.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from dpsql.methods.mixture.fit import Float32, Mixture, fit_mixture, pair_matrix, pull_strength
from dpsql.methods.mixture.targets import Targets
from dpsql.numerics.products import multiplies
from dpsql.running.parallel import THREADS, Workers

APART = math.inf
"""Stands for a single class: columns are independent."""

FACTORS = (1.0, 2.0, 4.0, APART)
_SEED = 20


def pull_factor(targets: Targets, classes: int, steps: int) -> float:
    """Return one of `FACTORS`, the pull relative to the rule for this noise. Deterministic.

    Parameters
    ----------
    classes, steps : int
        Of the two fits that are compared.

    Notes
    -----
    Privacy: post-processing.
    """
    half, held_out, variance = halves(targets, _SEED)
    strength = pull_strength(len(half.sizes), half.strength)

    def error(factor: float) -> float:
        if factor == APART:
            mixture = fit_mixture(half, classes=1, steps=steps, pull=0.0, seed=0)
        else:
            mixture = fit_mixture(half, classes=classes, steps=steps, pull=factor * strength, seed=0)
        return held_out_error(mixture, targets, held_out, variance)

    usual, twice, most, apart = FACTORS
    with Workers(THREADS) as workers:
        # The strongest pull is tried only where twice the usual one was better; independent columns always.
        errors = dict(zip((usual, twice), workers.map(error, (usual, twice)), strict=True))
        others = (apart,) if errors[usual] <= errors[twice] else (most, apart)
        errors.update(zip(others, workers.map(error, others), strict=True))
    return min(errors, key=errors.__getitem__)


def halves(targets: Targets, seed: int) -> tuple[Targets, Float32, Float32]:
    """Return tables with twice the variance, pair tables that are independent of them, and these tables' variance; (D, D) each."""
    rng, columns, unit = np.random.default_rng(seed), targets.one_way.size, max(targets.strength, 1.0)
    upper = np.triu(rng.standard_normal((columns, columns), dtype=np.float32), 1)
    noise = _deviation(targets.pair_weights, unit) * (upper + upper.T)
    single = _deviation(targets.single_weights, unit) * rng.standard_normal(columns, dtype=np.float32)
    half = replace(targets, strength=targets.strength / 2.0**0.5, pairs=targets.pairs + noise, singles=targets.singles + single)
    return half, targets.pairs - noise, np.float32(2.0) * _deviation(targets.pair_weights, unit) ** 2


@multiplies
def held_out_error(mixture: Mixture, targets: Targets, held_out: Float32, variance: Float32) -> float:
    """Return the weighted squared error of the module, an estimate from tables that the mixture was not fitted to."""
    one_way = mixture.values @ mixture.shares
    errors = (pair_matrix(mixture, targets.sizes) - held_out) ** 2 - variance
    errors /= np.outer(one_way, one_way) + 1.0 / max(targets.strength, 1.0)
    return float(errors[targets.pair_weights > 0.0].sum())


def _deviation(weights: Float32, unit: float) -> Float32:
    """Return the standard deviation of noisy shares; 0 where nothing was measured."""
    deviations = np.zeros_like(weights)
    np.divide(np.float32(1.0 / unit), np.sqrt(weights), out=deviations, where=weights > 0.0)
    return deviations
