r"""The fit of nested classes to noisy blocks: gradients by hand, Adam in float32.

The penalised squared error in units of the noise, over all measured cells,

    1/2 sum S (M - Y)^2 + sum_t lambda_t sum_k W_tk sum_i r_ti KL(theta_tki || m_ti)
                        + sum_t mu_t sum_k (W_p q_t)_k KL(rho_tk || rho-_t),

where Y are the noisy shares of units, S their precisions, M the model's (`model.py`), m_t the shares of codes of all
rows of table t, and rho-_t the shares of their classes. The penalties are what the class of a row tells about each of its values,
and what the class of its parent's row tells about its own: the fit pays for every nat, so that noise is not worth explaining.
The rules are those of `latent_class` (`mixture/fit.py`, which says why): r_ti grows as a column depends less on the class,
and what the model misses for certain (`restored.py`) is added to the target once.

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

from dpsql.methods.nested_classes.model import NestedClasses, slices, slot_shares
from dpsql.methods.nested_classes.restored import certain
from dpsql.methods.nested_classes.targets import Target, Targets
from dpsql.numerics.adam import move
from dpsql.numerics.products import multiplies

Float32 = npt.NDArray[np.float32]
Key = tuple[str, int, int]
"""Kind of a matrix, the table of its left codes and that of its right ones."""

_SMALLEST_SHARE, _TINY, _LOWEST_LOG = 1e-7, 1e-12, -30.0
_RESTORED_AT = 0.55
"""Of the steps: what is missed before is what the fit has not come to yet; behind, steps are too short to follow."""
_REWEIGHT_FROM, _REWEIGHT_EVERY, _REWEIGHT_OFFSET = 0.3, 10, 0.05
_ANCHOR_EVERY = 10
_RATE, _START_DEVIATION, _START_GIVEN = 0.5, 0.5, 1.0


@dataclass(frozen=True)
class Pull:
    """Strengths of the penalties: of each table's columns (lambda_t) and of its classes (mu_t; of the root not used)."""

    columns: tuple[float, ...]
    classes: tuple[float, ...]


@dataclass
class _Forward:
    """What follows from the parameters, by table.

    theta (D, K), rho (K, S K_p), by group the shares of parent rows in each slot h (G, S, K_p) and of pairs of their rows
    q (G, S, S, K_p), and the weights of classes (G, K); of the root one group.
    """

    theta: list[Float32]
    given: list[Float32]
    slots: list[Float32]
    pairs: list[Float32]
    weights: list[Float32]


class Descent:
    """One run of Adam. Parameters are logits: theta_t (D_t, K_t) of all tables, pi (K_0, 1), rho_t (K_t, S_t K_p) of the others."""

    def __init__(self, given: Targets, classes: Sequence[int], steps: int, pull: Pull, seed: int) -> None:
        self.given, self.shape, self.steps = given, given.shape, steps
        shape, rng = given.shape, np.random.default_rng(seed)
        self.tables = range(len(shape.tables))
        self.parents = [0, *(shape.parent(t) for t in self.tables[1:])]
        self.places = [slices(shape, t) for t in self.tables]
        none = np.zeros((1, 1, 1), np.float32)
        counted = [slot_shares(table) for table in shape.tables[1:]]
        self.slots = [none, *(one.astype(np.float32) for one, _ in counted)]
        self.paired = [none, *(two.astype(np.float32).reshape(*two.shape[:2], -1) for _, two in counted)]
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
            np.float32(_START_GIVEN) * normal((classes[t], shape.tables[t].slots * classes[self.parents[t]]), dtype=np.float32)
            for t in self.tables[1:]
        ]
        self.targets = self._copied()
        self.missed: dict[Key, Float32] = {}
        self.moments = [(np.zeros_like(x), np.zeros_like(x)) for x in (*self.logits, *self.class_logits)]

    def _copied(self) -> dict[Key, Target]:
        """Return the matrices that have a measured cell; their shares are changed in the course of the fit."""
        given = self.given
        found: dict[Key, Target] = {("pair", t, t): target for t, target in enumerate(given.pairs)}
        found |= {("sibling", t, t): target for t, target in enumerate(given.siblings)}
        found |= {("across", a, t): target for (a, t), target in given.across.items()}
        return {key: Target(x.shares.copy(), x.weights) for key, x in found.items() if x.weights.any()}

    def run(self) -> NestedClasses:
        """Take all steps; a fit that leaves the finite numbers is one of independent columns."""
        restored = round(_RESTORED_AT * self.steps)
        for step in range(1, self.steps + 1):
            gradients = self.gradients(step, keep=step == restored)
            if step == restored:
                self._restore()
            rate = 0.5 * _RATE * (1.0 + math.cos(math.pi * step / self.steps))
            for parameter, gradient, moments in zip((*self.logits, *self.class_logits), gradients, self.moments, strict=True):
                move(parameter, gradient, *moments, step, rate)
        found = self.model()
        finite = all(bool(np.isfinite(part).all()) for part in (found.shares, *found.values, *found.given))
        return found if finite else self.independent()

    def _restore(self) -> None:
        """Add what the model misses for certain to the targets."""
        for key, missed in self.missed.items():
            (_, a, t), target = key, self.targets[key]
            for i, rows in enumerate(self.places[a]):
                for j, columns in enumerate(self.places[t]):
                    if key[0] != "across" and j < i:
                        continue  # symmetric
                    weights = target.weights[:, rows, columns]
                    groups = np.flatnonzero(weights.any(axis=(1, 2)))
                    if not groups.size:
                        continue
                    usual = float(np.median(weights[weights > 0.0]))  # of a cell that was measured
                    deviation = 1.0 / (max(self.given.strength, 1.0) * math.sqrt(usual))
                    found: Float32 = certain(missed[groups, rows, columns].astype(float), deviation).astype(np.float32)
                    if key[0] != "across" and i == j:
                        found = np.asarray((found + found.transpose(0, 2, 1)) / 2.0, np.float32)
                    target.shares[groups, rows, columns] += found
                    if key[0] != "across" and i != j:
                        target.shares[groups, columns, rows] += found.transpose(0, 2, 1)
        self.missed.clear()

    def independent(self) -> NestedClasses:
        """Return classes that all have the given one-way tables."""
        theta, given = [], [np.zeros((self.class_logits[0].size, 0, 0))]
        for t, places in enumerate(self.places):
            floor = np.maximum(self.given.one_way[t], _SMALLEST_SHARE)
            for place in places:
                floor[place] /= floor[place].sum()
            theta.append(np.repeat(floor[:, None], self.logits[t].shape[1], axis=1))
            if t:
                given.append(np.full((len(self.class_logits[t]), *self._sides(t)), 1.0 / len(self.class_logits[t])))
        shares = np.full(self.class_logits[0].size, 1.0 / self.class_logits[0].size)
        return NestedClasses(self.shape, shares, tuple(theta), tuple(given))

    def model(self) -> NestedClasses:
        """Return the classes as they are."""
        theta = [values.astype(float) for values in self._forward().theta]
        for values, places in zip(theta, self.places, strict=True):
            for place in places:
                values[place] /= values[place].sum(0)
        given = [_softmax(logits.astype(float)) for logits in self.class_logits]
        rest = (given[t].reshape(len(given[t]), *self._sides(t)) for t in self.tables[1:])
        return NestedClasses(self.shape, given[0][:, 0], tuple(theta), (np.zeros((given[0].size, 0, 0)), *rest))

    def _sides(self, t: int) -> tuple[int, int]:
        """Return the numbers of slots and of the parent's classes of a table."""
        return self.shape.tables[t].slots, self.logits[self.parents[t]].shape[1]

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
        none = np.zeros((1, 1, 1), np.float32)
        now = _Forward(theta, given, [none], [none], [given[0].T])
        for t in self.tables[1:]:
            fan_out = theta[self.parents[t]][self.fans[t]]
            now.slots.append(np.einsum("gks,km->gsm", self.slots[t], fan_out, optimize=True))
            pairs = np.einsum("gkr,km->grm", self.paired[t], fan_out, optimize=True)
            now.pairs.append(pairs.reshape(len(pairs), *(self.shape.tables[t].slots,) * 2, pairs.shape[2]))
            now.weights.append(_flat(self._parents(t, now)) @ given[t].T)
        return now

    def _parents(self, t: int, now: _Forward) -> Float32:
        """Return the weights of the rows of a table by group, slot and their parents' class, shape (G, S, K_p)."""
        above = now.weights[self.parents[t]]
        return np.asarray(now.slots[t] * (above.sum(0) if self.shape.tables[t].groups else above[:, None]))

    @multiplies
    def gradients(self, step: int, *, keep: bool = False) -> list[Float32]:
        """Return the gradients with respect to all logits, and keep the loss; ``keep``: what is missed, too."""
        now = self._forward()
        back = _Forward(*([np.zeros_like(x) for x in part] for part in vars(now).values()))
        self.loss = self._singles(now, back)
        for t in self.tables:
            if ("pair", t, t) in self.targets:
                for g, weights in enumerate(now.weights[t]):
                    self.loss += self._pairs(t, g, now.theta[t], weights, back, keep)
            if t:
                self.loss += self._chain(t, now, back, keep)
        if step:
            self._penalise(now, back, step)
        for t in reversed(self.tables[1:]):
            p, parents = self.parents[t], self._parents(t, now)
            back.given[t] += back.weights[t].T @ _flat(parents)
            self._spread(t, (back.weights[t] @ now.given[t]).reshape(parents.shape), now, back)
            fan_out = back.theta[p][self.fans[t]]
            fan_out += np.einsum("gks,gsm->km", self.slots[t], back.slots[t], optimize=True)
            pairs = back.pairs[t].reshape(len(self.paired[t]), self.paired[t].shape[2], fan_out.shape[1])
            fan_out += np.einsum("gkr,grm->km", self.paired[t], pairs, optimize=True)
        back.given[0] = back.weights[0].T.copy()
        return self._logit_slopes(now, back)

    @multiplies
    def _spread(self, t: int, slope: Float32, now: _Forward, back: _Forward) -> None:
        """Add the slopes of `_parents` to those of what they are products of."""
        p = self.parents[t]
        if self.shape.tables[t].groups:
            back.weights[p] += np.einsum("gsm,gsm->m", slope, now.slots[t])
            back.slots[t] += slope * now.weights[p].sum(0)
        else:
            back.weights[p] += np.einsum("gsm,sm->gm", slope, now.slots[t][0])
            back.slots[t][0] += np.einsum("gsm,gm->sm", slope, now.weights[p])

    def _within(self, t: int, a: int, g: int) -> slice:
        """Return the groups of weights of an ancestor's classes (or its own) that a group of a table's rows stands beside."""
        decided = len(self.shape.path(a)) >= len(self.shape.path(self.shape.home(t)))
        return slice(g, g + 1) if decided else slice(None)

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
            weights = now.weights[t].sum(0)
            error = now.theta[t] @ weights - target.shares
            slope = target.weights * error
            loss += 0.5 * float(slope @ error)
            back.theta[t] += np.outer(slope, weights)
            back.weights[t] += slope @ now.theta[t]
        return loss

    @multiplies
    def _pairs(self, t: int, g: int, values: Float32, weights: Float32, back: _Forward, keep: bool) -> float:
        """Add the slopes of 1/4 sum S (V w V^T - Y)^2 of a group to those of V and w."""
        rooted = values * np.sqrt(weights)
        residual = rooted @ rooted.T  # a product with its own transpose takes half the operations
        loss = self._residual(residual, ("pair", t, t), g, keep) / 2.0
        pulled = residual @ values
        back.weights[t][g] += np.float32(0.5) * np.einsum("dk,dk->k", values, pulled)
        back.theta[t] += pulled * weights
        return loss

    @multiplies
    def _siblings(self, t: int, g: int, seen: Float32, slope: Float32, now: _Forward, back: _Forward, keep: bool) -> float:
        """Add the slopes of 1/4 sum S (sum_st C_s w q_st C_t^T - Y)^2 of a group; ``seen``: C, shape (D, S, K_p)."""
        p = self.parents[t]
        own, some = (g, slice(None)) if self.shape.tables[t].groups else (0, slice(g, g + 1))
        above = now.weights[p][some].sum(0)
        paired = now.pairs[t][own] * above
        flat = _flat(seen)
        residual = flat @ _flat(_mixed(seen, paired)).T
        loss = self._residual(residual, ("sibling", t, t), g, keep) / 2.0
        pulled: Float32 = np.asarray(residual @ flat, flat.dtype).reshape(seen.shape)
        slope += _mixed(pulled, paired)
        crossed = np.matmul(seen.transpose(2, 1, 0), pulled.transpose(2, 0, 1)).transpose(1, 2, 0) * np.float32(0.5)
        back.pairs[t][own] += crossed * above
        back.weights[p][some] += np.einsum("stk,stk->k", crossed, now.pairs[t][own])
        return loss

    @multiplies
    def _residual(self, model: Float32, key: Key, g: int, keep: bool) -> float:
        """Make S (M - Y) of the model's table of a group, in place; return 1/2 sum S (M - Y)^2."""
        target = self.targets[key]
        model -= target.shares[g]
        if keep:
            self.missed.setdefault(key, np.zeros_like(target.shares))[g] = -model
        error = model.copy()
        model *= target.weights[g]
        return 0.5 * float(np.vdot(error, model))

    @multiplies
    def _chain(self, t: int, now: _Forward, back: _Forward, keep: bool) -> float:
        """Add the slopes of the siblings of a table, and of it and each of its ancestors, group by group."""
        loss, path, home = 0.0, self.shape.path(t)[::-1], self.shape.home(t)
        # Shares of the codes of a row given slot and class of the ancestor's row: `seen` by slot, `kept` of all slots.
        first = self._seen(t, now.theta[t], now)
        first_slope = np.zeros_like(first)
        for g in range(self.shape.group_count(t)):
            if ("sibling", t, t) in self.targets:
                loss += self._siblings(t, g, first, first_slope, now, back, keep)
            shares = [now.slots[b][g] if b == home else now.slots[b].sum(0) for b in path[:-1]]
            seen, kept = [first], [_kept(first, shares[0])]
            for b, share in zip(path[1:-1], shares[1:], strict=True):
                seen.append(self._seen(b, kept[-1], now))
                kept.append(_kept(seen[-1], share))
            slopes = [first_slope, *(np.zeros_like(one) for one in seen[1:])]
            for at in range(len(seen) - 1, -1, -1):
                a, b, slope = path[at + 1], path[at], np.zeros_like(kept[at])
                if ("across", a, t) in self.targets:
                    loss += self._across(a, b, t, g, (seen[at], kept[at]), (slopes[at], slope), now, back, keep)
                if at + 1 < len(seen):
                    flat = _flat(slopes[at + 1])
                    back.given[a] += kept[at].T @ flat
                    slope += flat @ now.given[a].T
                slopes[at] += slope[:, None, :] * shares[at]
                moved = np.einsum("dk,dsk->sk", slope, seen[at], optimize=True)
                if b == home:
                    back.slots[b][g] += moved
                else:
                    back.slots[b] += moved
        flat = _flat(first_slope)
        back.given[t] += now.theta[t].T @ flat
        back.theta[t] += flat @ now.given[t].T
        return loss

    @multiplies
    def _seen(self, t: int, kept: Float32, now: _Forward) -> Float32:
        """Return shares of codes by slot and class of a table's parent, shape (D, S, K_p), from those by the class of its row."""
        return np.asarray((kept @ now.given[t]).reshape(len(kept), *self._sides(t)))

    @multiplies
    def _across(
        self,
        a: int,
        b: int,
        t: int,
        g: int,
        right: tuple[Float32, Float32],
        slopes: tuple[Float32, Float32],
        now: _Forward,
        back: _Forward,
        keep: bool,
    ) -> float:
        """Add the slopes of a group's tables of an ancestor's columns with a row's; b is the ancestor's child table on the way.

        ``right``: shares of the row's codes by slot and class of the ancestor's row, and of all slots; ``slopes``: theirs.
        """
        fan, some = self.fans[b], self._within(t, a, g)
        weights = now.weights[a][some].sum(0)
        seen, kept = right
        flat, theta = _flat(seen), now.theta[a]
        numbers = self.slots[b].sum(0)
        by_number = _flat((theta[fan] * weights)[:, None, :] * numbers[:, :, None])
        residual: Float32 = np.asarray((theta * weights) @ kept.T, theta.dtype)
        residual[fan] = by_number @ flat.T
        loss = self._residual(residual, ("across", a, t), g, keep)
        of_number = residual[fan].copy()
        residual[fan] = 0.0
        slope = residual @ kept
        slopes[1][...] += (residual.T @ theta) * weights
        slopes[0][...] += (of_number.T @ by_number).reshape(seen.shape)
        slope[fan] += np.einsum("ksm,ks->km", (of_number @ flat).reshape(*numbers.shape, len(weights)), numbers, optimize=True)
        back.weights[a][some] += np.einsum("dk,dk->k", theta, slope)
        back.theta[a] += slope * weights
        return loss

    @multiplies
    def _penalise(self, now: _Forward, back: _Forward, step: int) -> None:
        """Add the slopes of the penalties."""
        for t in self.tables:
            weights = now.weights[t].sum(0)
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
                by_group = self._parents(t, now)
                parents = by_group.sum(0).reshape(-1)
                if step % _ANCHOR_EVERY == 0:
                    shares = now.given[t] @ parents / max(float(parents.sum()), _TINY)
                    self.given_anchors[t] = np.log(np.maximum(shares, np.float32(_SMALLEST_SHARE)))[:, None]
                against = self.class_logits[t] - self.given_anchors[t]
                against *= self.pulls[1][t]
                told = np.einsum("dk,dk->k", now.given[t], against)
                self.loss += float(told @ parents)
                self._spread(t, np.broadcast_to(told.reshape(by_group.shape[1:]), by_group.shape), now, back)
                against *= parents
                back.given[t] += against

    @multiplies
    def _reweight(self, t: int, theta: Float32, weights: Float32, against: Float32) -> None:
        """Set the relative pull on each column from what its codes tell about the class."""
        told = np.maximum(self.members[t] @ ((theta * against) @ weights), 0.0)
        relative = 1.0 / np.sqrt(told + _REWEIGHT_OFFSET)
        relative *= max(float(told.sum()), _TINY) / max(float(told @ relative), _TINY)
        self.relative[t] = relative[self.owners[t]].astype(np.float32)[:, None]


def _flat(values: Float32) -> Float32:
    """Return an array whose last two axes are one."""
    return values.reshape(len(values), values.shape[1] * values.shape[2])


@multiplies
def _mixed(values: Float32, paired: Float32) -> Float32:
    """Return sum_t V_t q_st for each slot s, shape (D, S, K); q of shape (S, S, K)."""
    return np.asarray(np.matmul(values.transpose(2, 0, 1), paired.transpose(2, 1, 0)).transpose(1, 2, 0))


@multiplies
def _kept(seen: Float32, share: Float32) -> Float32:
    """Return sum_s C_s h_s, shape (D, K)."""
    return np.asarray(np.einsum("dsk,sk->dk", seen, share, optimize=True))


def _softmax(logits: npt.NDArray[Any]) -> npt.NDArray[Any]:
    raised = np.exp(logits - logits.max(0))
    shares: npt.NDArray[Any] = raised / raised.sum(0)
    return shares
