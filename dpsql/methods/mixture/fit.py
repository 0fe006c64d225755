r"""A mixture of product distributions, fitted to noisy one-way and two-way tables.

The model: a row belongs to one of K latent classes, and within its class the attributes are independent. With pi_k the
share of class k and theta_ka the share of its rows that have code a (of D codes, all attributes one after the other),
the model's table of every pair of attributes is a block of M = sum_k pi_k theta_k theta_k^T: one matrix product.

The fit minimises the penalised squared error in units of the noise,

    1/4 sum_ab S_ab (M_ab - Y_ab)^2 + 1/2 sum_a s_a (m_a - y_a)^2 + lambda sum_k pi_k sum_i r_i KL(theta_ki || m_i),

where Y and y are the noisy tables as shares, S and s their precisions (n / sigma)^2, m the model's one-way table and i runs over
attributes. The last sum is what the class of a row tells about each of its values (their mutual information, r_i = 1): the
fit pays lambda for every nat of it, so that noise is not worth explaining. Nothing pulls m itself: all tables together tell
the one-way tables better than their own estimates do, most where noise is large. Three
rules, functions of public sizes and released numbers alone, set everything:

* `pull_strength`: lambda = 0.18 m (n / sigma)^0.8 + 3 min(n / sigma, 100)^0.5 for m attributes.
* r_i grows as attribute i depends less on the class, r_i ~ (I_i + 0.05)^(-1/2) with I_i its part of the last sum,
  normalised so that the total penalty stays: an attribute that looks independent should be, one that does not should be
  left alone.
* The penalty biases strong dependence towards independence. Where a cell of the model misses the noisy one by more than
  2 sigma, what exceeds 2 sigma is added to the target, once during the fit.

Coarse tables, where there are some, add 1/4 sum_gh T_gh (C (M - m m^T) C^T - Z)_gh^2, where C sums the codes of a group and Z
is a noisy coarse table less the product of the one-way tables: covariances of groups, which say nothing of the one-way tables.

Adam in float32, rate falling as a cosine, with the same memory for both moments: with the usual longer one for the second,
steps are too short for most of the fit, and where noise is small ten times as many are needed (chosen on msnbc, checked on
Adult-15, sim50k, acs and salary). The average of fits from different fixed starts is itself a mixture.

Privacy: post-processing of released statistics.

References: Goodman (1974) for latent classes; Kingma & Ba (2015), arXiv:1412.6980; Osher et al. (2005) for adding the
residual back.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dpsql.methods.mixture.targets import Targets
from dpsql.numerics.adam import move
from dpsql.numerics.arrays import FloatArray
from dpsql.numerics.products import multiplies

Float32 = npt.NDArray[np.float32]

_SMALLEST_SHARE = 1e-7
_PULL, _LEAST_PULL, _LARGE_NOISE = 0.18, 3.0, 100.0
_RESIDUAL_FROM = 2.0
_RESIDUAL_AT = 0.4
_REWEIGHT_FROM, _REWEIGHT_EVERY, _REWEIGHT_OFFSET = 0.3, 10, 0.05
_ANCHOR_EVERY = 10
_RATE, _START_DEVIATION = 0.5, 0.5
_TINY, _LOWEST_LOG = 1e-12, -30.0


@dataclass(frozen=True)
class Mixture:
    """Latent classes.

    Parameters
    ----------
    shares : ndarray, shape (K,)
        pi, sum 1.
    values : ndarray, shape (D, K)
        theta: column k holds class k's shares of the codes of every attribute, each attribute's sum 1.
    """

    shares: FloatArray
    values: FloatArray


def pull_strength(attributes: int, strength: float) -> float:
    """Return lambda for m attributes and n / sigma = `strength`.

    Noise pulls at a class with a force that grows like n / sigma and with the number of tables that an attribute is in; a
    larger table in units of noise can bear somewhat less. The second part matters where noise is large. The numbers were
    chosen on Adult-15 at epsilon .1, 1 and 10, sim50k, nist, small subsets of them, 20 and 100 simulated attributes and
    hospital, and checked on msnbc, acs and salary: a factor of 1.4 costs about 3 % of the distances.

    Examples
    --------
    >>> round(pull_strength(15, 540.0))
    444
    """
    pull: float = _PULL * attributes * strength**0.8 + _LEAST_PULL * min(strength, _LARGE_NOISE) ** 0.5
    return pull


def fit_mixture(
    targets: Targets,
    *,
    classes: int,
    steps: int,
    pull: float,
    seed: int,
    start: tuple[Float32, Float32] | None = None,
    independent: Sequence[int] = (),
) -> Mixture:
    """Fit a mixture. Deterministic.

    Parameters
    ----------
    targets : Targets
    classes : int
        K, at least 1.
    steps : int
        At least 1.
    pull : float
        lambda, at least 0.
    seed : int
        Of the start; fixed numbers, so that the same release gives the same model.
    start : (ndarray of float32 of shape (D, K), ndarray of float32 of shape (K,)), optional
        Logarithms of theta and pi to start from, each up to a constant; `classes` and `seed` are not used then.
    independent : sequence of int
        Attributes that are the same in every class.

    Returns
    -------
    Mixture
        Finite: where the descent leaves the finite numbers, every class has the one-way tables, so that columns are independent.

    Notes
    -----
    Privacy: post-processing.
    """
    descent = _Descent(targets, classes, steps, pull, seed)
    if start is not None:
        descent.begin(*start)
    descent.tie(independent)
    mixture = descent.run()
    return mixture if np.isfinite(mixture.shares).all() and np.isfinite(mixture.values).all() else descent.independent(classes)


def average(mixtures: Sequence[Mixture]) -> Mixture:
    """Return the mixture whose tables are the means of the given ones' tables."""
    return Mixture(
        np.concatenate([mixture.shares for mixture in mixtures]) / len(mixtures),
        np.concatenate([mixture.values for mixture in mixtures], axis=1),
    )


@multiplies
def pair_matrix(mixture: Mixture, sizes: Sequence[int]) -> FloatArray:
    """Return the model's share of every pair of codes of different attributes, shape (D, D); 0 within an attribute."""
    matrix: FloatArray = (mixture.values * mixture.shares) @ mixture.values.T
    start = 0
    for size in sizes:
        matrix[start : start + size, start : start + size] = 0.0
        start += size
    return matrix


class _Descent:
    """One run of Adam; arrays of shape (D, K) have one row a code and one column a class."""

    def __init__(self, targets: Targets, classes: int, steps: int, pull: float, seed: int) -> None:
        self.targets, self.steps = targets, steps
        self.counts = np.asarray(targets.sizes, np.intp)
        self.starts = (np.cumsum(self.counts) - self.counts).astype(np.intp)
        self.owner = np.repeat(np.arange(self.counts.size), self.counts)
        # Sums over the codes of each attribute as a product: far faster than `reduceat` along the first axis.
        self.members: Float32 = (self.owner == np.arange(self.counts.size)[:, None]).astype(np.float32)
        self.target = targets.pairs.copy()
        floor = np.maximum(targets.one_way, _SMALLEST_SHARE)
        self.anchor: Float32 = np.log(floor / self._spread(np.add.reduceat(floor, self.starts))).astype(np.float32)[:, None]
        self.pull = np.float32(pull / max(targets.strength, 1.0) ** 2)
        self.relative: Float32 = np.ones((floor.size, 1), np.float32)
        rng = np.random.default_rng(seed)
        self.logits: Float32 = self.anchor + np.float32(_START_DEVIATION) * rng.standard_normal(
            (floor.size, classes), dtype=np.float32
        )
        self.tied: npt.NDArray[np.bool_] | None = None
        self.begin(self.logits, np.zeros(classes, np.float32))

    def begin(self, logits: Float32, class_logits: Float32) -> None:
        """Start from these."""
        self.logits, self.class_logits = logits.copy(), class_logits.copy()
        self.moments = [(np.zeros_like(x), np.zeros_like(x)) for x in (self.logits, self.class_logits)]

    def tie(self, attributes: Sequence[int]) -> None:
        """Keep these attributes the same in every class."""
        if attributes:
            self.tied = np.isin(self.owner, attributes)
            self.logits[self.tied] = self.anchor[self.tied]

    @multiplies
    def run(self) -> Mixture:
        """Take all steps."""
        correction = round(_RESIDUAL_AT * self.steps)
        for step in range(1, self.steps + 1):
            gradients = self._gradients(step, step == correction)
            rate = 0.5 * _RATE * (1.0 + math.cos(math.pi * step / self.steps))
            for at, parameter in enumerate((self.logits, self.class_logits)):
                move(parameter, gradients[at], *self.moments[at], step, rate)
        exact = self._values().astype(float)
        shares = _softmax(self.class_logits.astype(float))
        return Mixture(shares, exact / self._spread(np.add.reduceat(exact, self.starts, axis=0)))

    def independent(self, classes: int) -> Mixture:
        """Return classes that all have the given one-way tables."""
        floor = np.maximum(self.targets.one_way.astype(float), _SMALLEST_SHARE)
        values = floor / self._spread(np.add.reduceat(floor, self.starts))
        return Mixture(np.full(classes, 1.0 / classes), np.repeat(values[:, None], classes, axis=1))

    def _spread(self, per_attribute: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Repeat one row per attribute for each of its codes."""
        return per_attribute[self.owner]

    @multiplies
    def _values(self) -> Float32:
        """Return theta; the logits become its logarithms."""
        np.maximum(self.logits, np.float32(_LOWEST_LOG), out=self.logits)  # smaller ones would be subnormal, and slow
        values: Float32 = np.exp(self.logits)
        sums = self.members @ values
        values *= self._spread(np.float32(1.0) / sums)
        self.logits -= self._spread(np.log(sums))
        return values

    @multiplies
    def _gradients(self, step: int, correct: bool) -> tuple[Float32, Float32]:
        """Return the gradients with respect to logits and class logits."""
        targets = self.targets
        values, shares = self._values(), _softmax(self.class_logits)
        rooted = values * np.sqrt(shares)
        residual: Float32 = rooted @ rooted.T  # a product with its own transpose takes half the operations
        one_way: Float32 = values @ shares
        if correct:
            self._restore(residual, self.target, targets.pair_weights)
        residual -= self.target
        residual *= targets.pair_weights
        slope: Float32 = residual @ values
        single = targets.single_weights * (one_way - targets.singles)
        slope += single[:, None]
        share_slope = 0.5 * (np.einsum("dk,dk->k", values, slope) + single @ values)
        if targets.groups.size:
            coarse, coarse_shares = self._coarse_slopes(values, shares)
            slope += coarse
            share_slope += coarse_shares
        # The anchor follows the model now and then only: one that moved with every step would pull to nothing.
        if self.pull > 0.0:
            if step % _ANCHOR_EVERY == 0:
                self.anchor = np.log(np.maximum(one_way, np.float32(_SMALLEST_SHARE)))[:, None]
            against = self.logits - self.anchor
            if step >= _REWEIGHT_FROM * self.steps and step % _REWEIGHT_EVERY == 0:
                self._reweight(values, shares, against)
            against *= self.pull * self.relative
            slope += against
            share_slope += np.einsum("dk,dk->k", values, against)
        # Through the softmax: logits of one attribute that move together change no share.
        slope *= values
        slope -= values * self._spread(self.members @ slope)
        slope *= shares
        # What is tied is independent of the class, so all classes move alike.
        if self.tied is not None:
            slope[self.tied] = slope[self.tied].sum(1, keepdims=True)
        return slope, shares * (share_slope - shares @ share_slope)

    @multiplies
    def _coarse_slopes(self, values: Float32, shares: Float32) -> tuple[Float32, Float32]:
        """Return what the covariances of groups add to the slopes: two thin products each."""
        targets = self.targets
        grouped: Float32 = targets.groups @ values
        # Groups as deviations from their means: the products are covariances.
        grouped -= (grouped @ shares)[:, None]
        weighted: Float32 = grouped * shares
        residual: Float32 = weighted @ grouped.T
        residual -= targets.coarse
        residual *= targets.coarse_weights
        pulled: Float32 = residual @ grouped
        slope: Float32 = targets.groups.T @ pulled
        share_slope: Float32 = np.einsum("gk,gk->k", grouped, pulled)
        share_slope *= np.float32(0.5)
        return slope, share_slope

    @multiplies
    def _reweight(self, values: Float32, shares: Float32, against: Float32) -> None:
        """Set the relative pull on each attribute from what its codes tell about the class."""
        told = np.maximum(self.members @ ((values * against) @ shares), 0.0)
        relative = 1.0 / np.sqrt(told + _REWEIGHT_OFFSET)
        relative *= max(float(told.sum()), _TINY) / max(float(told @ relative), _TINY)
        self.relative = self._spread(relative).astype(np.float32)[:, None]

    def _restore(self, model: Float32, target: Float32, weights: Float32) -> None:
        """Add to a target, in place, what the model misses by more than the noise explains, see the module."""
        unit = np.float32(max(self.targets.strength, 1.0))
        limit = np.divide(_RESIDUAL_FROM / unit, np.sqrt(weights), out=np.full_like(weights, np.inf), where=weights > 0.0)
        missed = target - model
        target += np.sign(missed) * np.maximum(np.abs(missed) - limit, np.float32(0.0))


def _softmax(logits: npt.NDArray[Any]) -> npt.NDArray[Any]:
    raised = np.exp(logits - logits.max())
    shares: npt.NDArray[Any] = raised / raised.sum()
    return shares
