r"""The fit of nested classes to noisy blocks: gradients by hand, Adam in float32.

The penalised squared error in units of the noise, over all measured cells,

    1/2 sum S (M - Y)^2 + sum_t lambda_t sum_k W_tk sum_i r_ti KL(theta_tki || m_ti)
                        + sum_t mu_t sum_k (W_p q_t)_k KL(rho_tk || rho-_t),

where Y are the noisy shares of units, S their precisions, M the model's (`model.py`), m_t the shares of codes of all
rows of table t, and rho-_t the shares of their classes. The penalties are what the class of a row tells about each of its values,
and what the class of its parent's row tells about its own: the fit pays for every nat, so that noise is not worth explaining.
The rules are those of `latent_class` (`mixture/fit.py`, which says why): r_ti grows as a column depends less on the class,
and what the model misses by more than 2 deviations is added to the target once.

Privacy: post-processing of released statistics.

References: Goodman (1974) for latent classes; Vermunt (2003) for nested ones; Kingma & Ba (2015), arXiv:1412.6980; Osher et al.
(2005) for adding the residual back.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dpsql.methods.nested_classes.model import NestedClasses, slices
from dpsql.methods.nested_classes.targets import Target, Targets
from dpsql.numerics.products import multiplies

Float32 = npt.NDArray[np.float32]

_SMALLEST_SHARE, _TINY, _LOWEST_LOG = 1e-7, 1e-12, -30.0
_RESIDUAL_FROM, _RESIDUAL_AT = 2.0, 0.4
_REWEIGHT_FROM, _REWEIGHT_EVERY, _REWEIGHT_OFFSET = 0.3, 10, 0.05
_ANCHOR_EVERY = 10
_MOMENT, _RATE, _START_DEVIATION, _START_GIVEN = 0.9, 0.5, 0.5, 1.0


@dataclass(frozen=True)
class Pull:
    """Strengths of the penalties: of each table's columns (lambda_t) and of its classes (mu_t; of the root not used)."""

    columns: tuple[float, ...]
    classes: tuple[float, ...]


@dataclass
class _Forward:
    """What follows from the parameters, by table."""

    theta: list[Float32]
    given: list[Float32]
    one_or_more: list[Float32]
    two_or_more: list[Float32]
    weights: list[Float32]


class Descent:
    """One run of Adam. Parameters are logits: theta_t (D_t, K_t) of every table, pi (K_0, 1), rho_t (K_t, K_p) of the others."""

    def __init__(self, given: Targets, classes: Sequence[int], steps: int, pull: Pull, seed: int) -> None:
        self.given, self.shape, self.steps = given, given.shape, steps
        shape, rng = given.shape, np.random.default_rng(seed)
        self.tables = range(len(shape.tables))
        self.parents = [0, *(shape.parent(t) for t in self.tables[1:])]
        self.places = [slices(shape, t) for t in self.tables]
        self.fans = [slice(0, 0), *(self.places[shape.parent(t)][shape.fan_out(t)] for t in self.tables[1:])]
        sizes = [np.asarray(shape.extended(t), np.intp) for t in self.tables]
        self.owners = [np.repeat(np.arange(size.size), size) for size in sizes]
        self.members = [
            (owner == np.arange(size.size)[:, None]).astype(np.float32) for owner, size in zip(self.owners, sizes, strict=True)
        ]
        unit = max(given.strength, 1.0) ** 2
        self.pulls = [np.float32(p / unit) for p in pull.columns], [np.float32(p / unit) for p in pull.classes]
        self.anchors = [np.log(np.maximum(one, _SMALLEST_SHARE)).astype(np.float32)[:, None] for one in given.one_way]
        self.given_anchors = [np.full((k, 1), -math.log(k), np.float32) for k in classes]
        self.relative = [np.ones_like(anchor) for anchor in self.anchors]
        normal = rng.standard_normal
        self.logits = [
            anchor + np.float32(_START_DEVIATION if k > 1 else 0.0) * normal((anchor.size, k), dtype=np.float32)
            for anchor, k in zip(self.anchors, classes, strict=True)
        ]
        self.class_logits = [np.zeros((classes[0], 1), np.float32)] + [
            np.float32(_START_GIVEN) * normal((classes[t], classes[self.parents[t]]), dtype=np.float32) for t in self.tables[1:]
        ]
        self.targets = self._copied()
        self.moments = [(np.zeros_like(x), np.zeros_like(x)) for x in (*self.logits, *self.class_logits)]

    def _copied(self) -> dict[tuple[str, int, int], Target]:
        """Return the matrices that have a measured cell; their shares are changed in the course of the fit."""
        given = self.given
        found = {("pair", t, t): target for t, target in enumerate(given.pairs)}
        found |= {("sibling", t, t): target for t, target in enumerate(given.siblings)}
        found |= {("across", a, t): target for (a, t), target in given.across.items()}
        return {key: Target(x.shares.copy(), x.weights) for key, x in found.items() if x.weights.any()}

    def run(self) -> NestedClasses:
        """Take all steps; a fit that leaves the finite numbers is one of independent columns."""
        correction = round(_RESIDUAL_AT * self.steps)
        for step in range(1, self.steps + 1):
            gradients = self.gradients(step, correct=step == correction)
            rate = 0.5 * _RATE * (1.0 + math.cos(math.pi * step / self.steps))
            for parameter, gradient, moments in zip((*self.logits, *self.class_logits), gradients, self.moments, strict=True):
                _move(parameter, gradient, *moments, step, rate)
        found = self.model()
        finite = all(bool(np.isfinite(part).all()) for part in (found.shares, *found.values, *found.given))
        return found if finite else self.independent()

    def independent(self) -> NestedClasses:
        """Return classes that all have the given one-way tables."""
        theta, given = [], [np.zeros((self.class_logits[0].size, 0))]
        for t, places in enumerate(self.places):
            floor = np.maximum(self.given.one_way[t], _SMALLEST_SHARE)
            for place in places:
                floor[place] /= floor[place].sum()
            theta.append(np.repeat(floor[:, None], self.logits[t].shape[1], axis=1))
            if t:
                given.append(np.full(self.class_logits[t].shape, 1.0 / len(self.class_logits[t])))
        shares = np.full(self.class_logits[0].size, 1.0 / self.class_logits[0].size)
        return NestedClasses(self.shape, shares, tuple(theta), tuple(given))

    def model(self) -> NestedClasses:
        """Return the classes as they are."""
        theta = [values.astype(float) for values in self._forward().theta]
        for values, places in zip(theta, self.places, strict=True):
            for place in places:
                values[place] /= values[place].sum(0)
        given = [_softmax(logits.astype(float)) for logits in self.class_logits]
        return NestedClasses(self.shape, given[0][:, 0], tuple(theta), (np.zeros((given[0].size, 0)), *given[1:]))

    @multiplies
    def _forward(self) -> _Forward:
        theta: list[Float32] = []
        for t, logits in enumerate(self.logits):
            np.maximum(logits, np.float32(_LOWEST_LOG), out=logits)  # smaller ones would be subnormal, and slow
            values = np.exp(logits)
            sums = self.members[t] @ values
            values *= (np.float32(1.0) / sums)[self.owners[t]]
            logits -= np.log(sums)[self.owners[t]]
            theta.append(values)
        given: list[Float32] = []
        for logits in self.class_logits:
            logits -= logits.max(0)
            np.maximum(logits, np.float32(_LOWEST_LOG), out=logits)
            logits -= np.log(np.exp(logits).sum(0))
            given.append(np.exp(logits))
        ones, twos, weights = [np.ones(1, np.float32)], [np.ones(1, np.float32)], [given[0][:, 0]]
        for t in self.tables[1:]:
            fan_out = theta[self.parents[t]][self.fans[t]]
            ones.append(fan_out[1:].sum(0))
            twos.append(fan_out[2:].sum(0))
            weights.append(given[t] @ (weights[self.parents[t]] * ones[t]))
        return _Forward(theta, given, ones, twos, weights)

    @multiplies
    def gradients(self, step: int, *, correct: bool = False) -> list[Float32]:
        """Return the gradients with respect to all logits, and keep the loss of the error and of the penalties."""
        now = self._forward()
        back = _Forward(*([np.zeros_like(x) for x in part] for part in vars(now).values()))
        self.loss = self._singles(now, back)
        for t in self.tables:
            if ("pair", t, t) in self.targets:
                self.loss += self._squares("pair", t, now.theta[t], now.weights[t], back.theta[t], back.weights[t], correct)
            if t:
                self.loss += self._chain(t, now, back, correct)
        if step:
            self._penalise(now, back, step)
        for t in reversed(self.tables[1:]):
            p = self.parents[t]
            back.given[t] += np.outer(back.weights[t], now.weights[p] * now.one_or_more[t])
            shared = back.weights[t] @ now.given[t]
            back.weights[p] += shared * now.one_or_more[t]
            back.one_or_more[t] += shared * now.weights[p]
            fan_out = back.theta[p][self.fans[t]]
            fan_out[1:] += back.one_or_more[t]
            fan_out[2:] += back.two_or_more[t]
        back.given[0] = back.weights[0][:, None]
        return self._logit_slopes(now, back)

    @multiplies
    def _logit_slopes(self, now: _Forward, back: _Forward) -> list[Float32]:
        """Go from shares to logits."""
        found = []
        for t in self.tables:
            slope = back.theta[t] * now.theta[t]
            slope -= now.theta[t] * (self.members[t] @ slope)[self.owners[t]]
            found.append(slope)
        for t in self.tables:
            slope = back.given[t] * now.given[t]
            slope -= now.given[t] * slope.sum(0)
            found.append(slope)
        return found

    @multiplies
    def _singles(self, now: _Forward, back: _Forward) -> float:
        loss = 0.0
        for t, target in enumerate(self.given.singles):
            error = now.theta[t] @ now.weights[t] - target.shares
            slope = target.weights * error
            loss += 0.5 * float(slope @ error)
            back.theta[t] += np.outer(slope, now.weights[t])
            back.weights[t] += slope @ now.theta[t]
        return loss

    @multiplies
    def _squares(
        self, kind: str, t: int, values: Float32, weights: Float32, slope: Float32, weight_slope: Float32, correct: bool
    ) -> float:
        """Add the slopes of 1/4 sum S (V w V^T - Y)^2 to those of V and w."""
        target = self.targets[kind, t, t]
        rooted = values * np.sqrt(weights)
        residual = rooted @ rooted.T  # a product with its own transpose takes half the operations
        loss = self._residual(residual, target, correct) / 2.0
        pulled = residual @ values
        weight_slope += np.float32(0.5) * np.einsum("dk,dk->k", values, pulled)
        pulled *= weights
        slope += pulled
        return loss

    @multiplies
    def _residual(self, model: Float32, target: Target, correct: bool) -> float:
        """Make S (M - Y) of the model's table, in place; return 1/2 sum S (M - Y)^2."""
        if correct:
            unit = np.float32(max(self.given.strength, 1.0))
            weights = target.weights
            limit = np.divide(_RESIDUAL_FROM / unit, np.sqrt(weights), out=np.full_like(weights, np.inf), where=weights > 0.0)
            missed = target.shares - model
            target.shares += np.sign(missed) * np.maximum(np.abs(missed) - limit, np.float32(0.0))
        model -= target.shares
        error = model.copy()
        model *= target.weights
        return 0.5 * float(np.vdot(error, model))

    @multiplies
    def _chain(self, t: int, now: _Forward, back: _Forward, correct: bool) -> float:
        """Add the slopes of the siblings of a table and of it and each of its ancestors."""
        loss, path = 0.0, self.shape.path(t)[::-1]
        # Shares of the codes of a row given the class of its ancestor's row (and that there is one), from the row up.
        seen, kept = [now.theta[t]], [now.theta[t]]
        for b, below in zip(path[:-1], (None, *path), strict=False):
            kept[-1] = seen[-1] if below is None else seen[-1] * now.one_or_more[below]
            seen.append(kept[-1] @ now.given[b])
            kept.append(seen[-1])
        slope = np.zeros_like(seen[-1])
        for at in range(len(path) - 1, 0, -1):
            a, b = path[at], path[at - 1]
            if ("across", a, t) in self.targets:
                loss += self._across(a, b, t, seen[at], slope, now, back, correct)
            if at == 1 and ("sibling", t, t) in self.targets:
                paired, paired_slope = now.weights[a] * now.two_or_more[t], np.zeros_like(now.weights[a])
                loss += self._squares("sibling", t, seen[1], paired, slope, paired_slope, correct)
                back.weights[a] += paired_slope * now.two_or_more[t]
                back.two_or_more[t] += paired_slope * now.weights[a]
            back.given[b] += kept[at - 1].T @ slope
            slope = slope @ now.given[b].T
            if at > 1:
                below = path[at - 2]
                back.one_or_more[below] += np.einsum("dk,dk->k", seen[at - 1], slope)
                slope *= now.one_or_more[below]
        back.theta[t] += slope
        return loss

    @multiplies
    def _across(
        self, a: int, b: int, t: int, right: Float32, right_slope: Float32, now: _Forward, back: _Forward, correct: bool
    ) -> float:
        """Add the slopes of the tables of an ancestor's columns with a row's; b is the ancestor's child table on the way."""
        some, fan = now.one_or_more[b], self.fans[b]
        left = now.theta[a] * some
        left[fan] = now.theta[a][fan]
        left[fan.start] = 0.0
        weights = now.weights[a]
        residual: Float32 = np.asarray((left * weights) @ right.T, left.dtype)
        loss = self._residual(residual, self.targets["across", a, t], correct)
        slope = residual @ right
        back.weights[a] += np.einsum("dk,dk->k", left, slope)
        right_slope += (residual.T @ left) * weights
        slope *= weights
        slope[fan.start] = 0.0
        back.theta[a][fan] += slope[fan]
        slope[fan] = 0.0
        back.one_or_more[b] += np.einsum("dk,dk->k", slope, now.theta[a])
        slope *= some
        back.theta[a] += slope
        return loss

    @multiplies
    def _penalise(self, now: _Forward, back: _Forward, step: int) -> None:
        """Add the slopes of the penalties."""
        for t in self.tables:
            weights = now.weights[t]
            if self.pulls[0][t] > 0.0:
                if step % _ANCHOR_EVERY == 0:
                    one_way = now.theta[t] @ weights / max(float(weights.sum()), _TINY)
                    self.anchors[t] = np.log(np.maximum(one_way, np.float32(_SMALLEST_SHARE)))[:, None]
                against = self.logits[t] - self.anchors[t]
                if step >= _REWEIGHT_FROM * self.steps and step % _REWEIGHT_EVERY == 0:
                    self._reweight(t, now.theta[t], weights, against)
                against *= self.pulls[0][t] * self.relative[t]
                back.weights[t] += (told := np.einsum("dk,dk->k", now.theta[t], against))
                self.loss += float(told @ weights)
                against *= weights
                back.theta[t] += against
            if t and self.pulls[1][t] > 0.0:
                p = self.parents[t]
                parents = now.weights[p] * now.one_or_more[t]
                if step % _ANCHOR_EVERY == 0:
                    shares = now.given[t] @ parents / max(float(parents.sum()), _TINY)
                    self.given_anchors[t] = np.log(np.maximum(shares, np.float32(_SMALLEST_SHARE)))[:, None]
                against = self.class_logits[t] - self.given_anchors[t]
                against *= self.pulls[1][t]
                told = np.einsum("dk,dk->k", now.given[t], against)
                self.loss += float(told @ parents)
                back.weights[p] += told * now.one_or_more[t]
                back.one_or_more[t] += told * now.weights[p]
                against *= parents
                back.given[t] += against

    @multiplies
    def _reweight(self, t: int, theta: Float32, weights: Float32, against: Float32) -> None:
        """Set the relative pull on each column from what its codes tell about the class."""
        told = np.maximum(self.members[t] @ ((theta * against) @ weights), 0.0)
        relative = 1.0 / np.sqrt(told + _REWEIGHT_OFFSET)
        relative *= max(float(told.sum()), _TINY) / max(float(told @ relative), _TINY)
        self.relative[t] = relative[self.owners[t]].astype(np.float32)[:, None]


def _move(parameter: Float32, gradient: Float32, first: Float32, second: Float32, step: int, rate: float) -> None:
    """Take one step of Adam in place."""
    kept, part = np.float32(_MOMENT), np.float32(1.0 - _MOMENT)
    correction = 1.0 - _MOMENT**step
    first *= kept
    second *= kept
    scale = gradient * part
    first += scale
    scale *= gradient
    second += scale
    np.multiply(second, np.float32(1.0 / correction), out=scale)
    np.sqrt(scale, out=scale)
    scale += np.float32(_TINY)
    np.divide(first, scale, out=scale)
    scale *= np.float32(rate / correction)
    parameter -= scale


def _softmax(logits: npt.NDArray[Any]) -> npt.NDArray[Any]:
    raised = np.exp(logits - logits.max(0))
    shares: npt.NDArray[Any] = raised / raised.sum(0)
    return shares
