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

    def __init__(self, noisy: Targets, classes: Sequence[int], steps: int, pull: Pull, seed: int) -> None:
        self.noisy, self.shape, self.steps = noisy, noisy.shape, steps
        shape, rng = noisy.shape, np.random.default_rng(seed)
        self.tables = range(len(shape.tables))
        self.parents = [0, *(shape.parent(t) for t in self.tables[1:])]
        self.places = [slices(shape, t) for t in self.tables]
        counted = [slot_shares(table) for table in shape.tables[1:]]
        # Matrices whose products with shares of numbers of rows are those of slots and of their pairs, by group.
        self.slots = [np.zeros((1, 1), np.float32), *(_by_number(one) for one, _ in counted)]
        self.paired = [np.zeros((1, 1), np.float32), *(_by_number(two) for _, two in counted)]
        self.numbers = [np.zeros((1, 1), np.float32), *(one.sum(axis=0).astype(np.float32) for one, _ in counted)]
        self.fans = [slice(0, 0), *(self.places[shape.parent(t)][shape.fan_out(t)] for t in self.tables[1:])]
        sizes = [np.asarray(shape.extended(t), np.intp) for t in self.tables]
        self.owners = [np.repeat(np.arange(size.size), size) for size in sizes]
        self.members = [
            (owner == np.arange(size.size)[:, None]).astype(np.float32) for owner, size in zip(self.owners, sizes, strict=True)
        ]
        # Penalties count against noise: the more the tables say, the less a penalty does.
        unit = max(noisy.strength, 1.0) ** 2
        self.pulls = [np.float32(p / unit) for p in pull.columns], [np.float32(p / unit) for p in pull.classes]
        self.anchors = [np.log(np.maximum(shares, _SMALLEST_SHARE)).astype(np.float32)[:, None] for shares in noisy.one_way]
        self.given_anchors = [np.full((k, 1), -math.log(k), np.float32) for k in classes]
        self.relative = [np.ones_like(anchor) for anchor in self.anchors]
        normal = rng.standard_normal
        # A single class has none to differ from, and starts at the released shares.
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
        noisy = self.noisy
        matrices: dict[Key, Target] = {("pair", t, t): target for t, target in enumerate(noisy.pairs)}
        matrices |= {("sibling", t, t): target for t, target in enumerate(noisy.siblings)}
        matrices |= {("across", a, t): target for (a, t), target in noisy.across.items()}
        return {key: Target(x.shares.copy(), x.weights) for key, x in matrices.items() if x.weights.any()}

    def run(self) -> NestedClasses:
        """Take all steps; a fit that leaves the finite numbers is one of independent columns."""
        restored = round(_RESTORED_AT * self.steps)
        for step in range(1, self.steps + 1):
            gradients = self.gradients(step, keep=step == restored)
            # Once in a fit: what noise does not explain of the misses goes back into the targets.
            if step == restored:
                self._restore()
            rate = 0.5 * _RATE * (1.0 + math.cos(math.pi * step / self.steps))
            for parameter, gradient, moments in zip((*self.logits, *self.class_logits), gradients, self.moments, strict=True):
                move(parameter, gradient, *moments, step, rate)
        model = self.model()
        finite = all(bool(np.isfinite(part).all()) for part in (model.shares, *model.values, *model.given))
        return model if finite else self.independent()

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
                    deviation = 1.0 / (max(self.noisy.strength, 1.0) * math.sqrt(usual))
                    missing: Float32 = certain(missed[groups, rows, columns].astype(float), deviation).astype(np.float32)
                    if key[0] != "across" and i == j:
                        missing = np.asarray((missing + missing.transpose(0, 2, 1)) / 2.0, np.float32)
                    target.shares[groups, rows, columns] += missing
                    if key[0] != "across" and i != j:
                        target.shares[groups, columns, rows] += missing.transpose(0, 2, 1)
        self.missed.clear()

    def independent(self) -> NestedClasses:
        """Return classes that all have the given one-way tables."""
        theta, given = [], [np.zeros((self.class_logits[0].size, 0, 0))]
        for t, places in enumerate(self.places):
            floor = np.maximum(self.noisy.one_way[t], _SMALLEST_SHARE)
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
            slots, parents = self._sides(t)
            now.slots.append((self.slots[t] @ fan_out).reshape(-1, slots, parents))
            now.pairs.append((self.paired[t] @ fan_out).reshape(-1, slots, slots, parents))
            now.weights.append(_flat(self._parents(t, now)) @ given[t].T)
        return now

    def _parents(self, t: int, now: _Forward) -> Float32:
        """Return the weights of the rows of a table by group, slot and their parents' class, shape (G, S, K_p)."""
        return np.asarray(now.slots[t] * self._above(t, now)[:, None])

    def _above(self, t: int, now: _Forward) -> Float32:
        """Return the weights of parents' classes by what their rows are in groups of, where that is not their number of rows."""
        above = now.weights[self.parents[t]]
        return np.asarray(above.sum(0, keepdims=True) if self.shape.tables[t].groups else above)

    @multiplies
    def gradients(self, step: int, *, keep: bool = False) -> list[Float32]:
        """Return the gradients with respect to all logits, and keep the loss; ``keep``: what is missed, too."""
        now = self._forward()
        back = _Forward(*([np.zeros_like(x) for x in part] for part in vars(now).values()))
        self.loss = self._singles(now, back)
        for t in self.tables:
            if ("pair", t, t) in self.targets:
                self.loss += self._pairs(t, now, back, keep)
            if t:
                self.loss += self._chain(t, now, back, keep)
        # Step 0 asks for the gradients of the tables alone.
        if step:
            self._penalise(now, back, step)
        # From the leaves to the root: what a table's weights say goes on to its parent's.
        for t in reversed(self.tables[1:]):
            p, parents = self.parents[t], self._parents(t, now)
            back.given[t] += back.weights[t].T @ _flat(parents)
            self._spread(t, (back.weights[t] @ now.given[t]).reshape(parents.shape), now, back)
            fan_out = back.theta[p][self.fans[t]]
            fan_out += self.slots[t].T @ back.slots[t].reshape(len(self.slots[t]), fan_out.shape[1])
            fan_out += self.paired[t].T @ back.pairs[t].reshape(len(self.paired[t]), fan_out.shape[1])
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

    @multiplies
    def _logit_slopes(self, now: _Forward, back: _Forward) -> list[Float32]:
        """Go from shares to logits."""
        slopes = []
        for t in self.tables:
            slope = back.theta[t] * now.theta[t]
            slope -= now.theta[t] * (self.members[t] @ slope)[self.owners[t]]
            slopes.append(slope)
        for t in self.tables:
            slope = back.given[t] * now.given[t]
            slope -= now.given[t] * slope.sum(0)
            slopes.append(slope)
        return slopes

    @multiplies
    def _singles(self, now: _Forward, back: _Forward) -> float:
        loss = 0.0
        for t, target in enumerate(self.noisy.singles):
            weights = now.weights[t].sum(0)
            error = now.theta[t] @ weights - target.shares
            slope = target.weights * error
            loss += 0.5 * float(slope @ error)
            back.theta[t] += np.outer(slope, weights)
            back.weights[t] += slope @ now.theta[t]
        return loss

    @multiplies
    def _pairs(self, t: int, now: _Forward, back: _Forward, keep: bool) -> float:
        """Add the slopes of 1/4 sum S (V w V^T - Y)^2 to those of V and w, for all groups."""
        values, weights = now.theta[t], now.weights[t]
        rooted = values * np.sqrt(weights)[:, None]
        residual = np.matmul(rooted, rooted.transpose(0, 2, 1))  # with its own transpose: half the operations
        loss = self._residual(residual, ("pair", t, t), keep) / 2.0
        pulled = np.matmul(residual, values)
        back.weights[t] += np.float32(0.5) * np.einsum("dk,gdk->gk", values, pulled)
        back.theta[t] += np.einsum("gdk,gk->dk", pulled, weights)
        return loss

    @multiplies
    def _siblings(self, t: int, seen: Float32, slope: Float32, now: _Forward, back: _Forward, keep: bool) -> float:
        """Add the slopes of 1/4 sum S (sum_st C_s w q_st C_t^T - Y)^2 for all groups; ``seen``: C, shape (D, S, K_p)."""
        # Siblings are two rows of one parent: their classes are independent given its class and their slots.
        above, flat = self._above(t, now), _flat(seen)
        paired = now.pairs[t] * above[:, None, None]
        mixed = np.einsum("dtk,gstk->gdsk", seen, paired)
        shape = mixed.shape
        residual: Float32 = np.asarray(mixed.reshape(-1, flat.shape[1]) @ flat.T).reshape(len(mixed), len(seen), len(seen))
        loss = self._residual(residual, ("sibling", t, t), keep) / 2.0
        pulled = (residual.reshape(-1, len(seen)) @ flat).reshape(shape)
        slope += np.einsum("gdtk,gstk->dsk", pulled, paired)
        crossed = np.einsum("dsk,gdtk->gstk", seen, pulled) * np.float32(0.5)
        back.pairs[t] += _over(crossed * above[:, None, None], len(back.pairs[t]))
        back.weights[self.parents[t]] += _over(np.einsum("gstk,gstk->gk", crossed, now.pairs[t]), len(above))
        return loss

    @multiplies
    def _residual(self, model: Float32, key: Key, keep: bool) -> float:
        """Make S (M - Y) of the model's tables of all groups, in place; return 1/2 sum S (M - Y)^2."""
        target = self.targets[key]
        model -= target.shares
        if keep:
            self.missed[key] = -model
        error = model.copy()
        model *= target.weights
        return 0.5 * float(np.vdot(error, model))

    @multiplies
    def _chain(self, t: int, now: _Forward, back: _Forward, keep: bool) -> float:
        """Add the slopes of the siblings of a table, and of it and each of its ancestors.

        What is the same in all groups has a first axis of length 1.
        """
        loss, path, home = 0.0, self.shape.path(t)[::-1], self.shape.home(t)
        # Shares of the codes of a row given slot and class of the ancestor's row: `seen` by slot, `kept` of all slots.
        seen, kept, slopes = [self._seen(t, now.theta[t][None], now)], list[Float32](), list[Float32]()
        shares = [now.slots[b] if b == home else now.slots[b].sum(0, keepdims=True) for b in path[:-1]]
        for at, b in enumerate(path[:-1]):
            if at:
                seen.append(self._seen(b, kept[-1], now))
            slopes.append(np.zeros_like(seen[at]))
            kept.append(np.einsum("gdsk,gsk->gdk", seen[at], shares[at]))
        if ("sibling", t, t) in self.targets:
            loss += self._siblings(t, seen[0][0], slopes[0][0], now, back, keep)
        for at in range(len(seen) - 1, -1, -1):
            a, b, slope = path[at + 1], path[at], np.zeros_like(kept[at])
            if ("across", a, t) in self.targets:
                loss += self._across(a, b, t, (seen[at], kept[at]), (slopes[at], slope), now, back, keep)
            if at + 1 < len(seen):
                flat = slopes[at + 1].reshape(-1, now.given[a].shape[1])
                back.given[a] += kept[at].reshape(-1, len(now.given[a])).T @ flat
                slope += (flat @ now.given[a].T).reshape(slope.shape)
            slopes[at] += np.einsum("gdk,gsk->dsk" if len(seen[at]) == 1 else "gdk,gsk->gdsk", slope, shares[at])
            back.slots[b] += np.einsum("gdk,gdsk->gsk" if b == home else "gdk,gdsk->sk", slope, seen[at])
        flat = _flat(slopes[0][0])
        back.given[t] += now.theta[t].T @ flat
        back.theta[t] += flat @ now.given[t].T
        return loss

    @multiplies
    def _seen(self, t: int, kept: Float32, now: _Forward) -> Float32:
        """Return shares of codes by slot and class of a table's parent, (G, D, S, K_p), from those by the class of its row."""
        groups, codes, own = kept.shape
        return np.asarray((kept.reshape(-1, own) @ now.given[t]).reshape(groups, codes, *self._sides(t)))

    @multiplies
    def _across(
        self,
        a: int,
        b: int,
        t: int,
        right: tuple[Float32, Float32],
        slopes: tuple[Float32, Float32],
        now: _Forward,
        back: _Forward,
        keep: bool,
    ) -> float:
        """Add the slopes of the tables of an ancestor's columns with a row's; b is the ancestor's child table on the way.

        ``right``: shares of the row's codes by slot and class of the ancestor's row, and of all slots; ``slopes``: theirs.
        """
        # Groups of the row's are groups of the ancestor's, too, where what they are of stands above it.
        decided = len(self.shape.path(a)) >= len(self.shape.path(self.shape.home(t)))
        weights = now.weights[a] if decided else now.weights[a].sum(0, keepdims=True)
        fan, theta, numbers = self.fans[b], now.theta[a], self.numbers[b]
        seen, kept = right
        flat = seen.reshape(*seen.shape[:2], -1)
        by_number = (theta[fan] * weights[:, None])[:, :, None] * numbers[:, :, None]
        by_number = by_number.reshape(*by_number.shape[:2], -1)
        residual: Float32 = np.matmul(theta * weights[:, None], kept.transpose(0, 2, 1))
        residual[:, fan] = np.matmul(by_number, flat.transpose(0, 2, 1))
        loss = self._residual(residual, ("across", a, t), keep)
        of_number = residual[:, fan].copy()
        residual[:, fan] = 0.0
        slope = np.matmul(residual, kept)
        slopes[1][...] += _over(np.matmul(residual.transpose(0, 2, 1), theta) * weights[:, None], len(kept))
        slopes[0][...] += _over(np.matmul(of_number.transpose(0, 2, 1), by_number), len(seen)).reshape(seen.shape)
        pulled = np.matmul(of_number, flat).reshape(*of_number.shape[:2], *seen.shape[2:])
        slope[:, fan] += np.einsum("gnsk,ns->gnk", pulled, numbers)
        back.weights[a] += _over(np.einsum("dk,gdk->gk", theta, slope), len(weights))
        back.theta[a] += np.einsum("gdk,gk->dk", slope, weights)
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


def _over(values: Float32, groups: int) -> Float32:
    """Return slopes of what is the same in all groups, or by group, as its first axis says."""
    return values.sum(0, keepdims=True) if groups == 1 else values


def _by_number(shares: npt.NDArray[Any]) -> Float32:
    """Return a matrix of groups and slots by numbers of rows, from shares of shape (groups, numbers, slots ...)."""
    numbers = shares.shape[1]
    return np.ascontiguousarray(np.moveaxis(shares, 1, -1).reshape(-1, numbers), np.float32)


def _softmax(logits: npt.NDArray[Any]) -> npt.NDArray[Any]:
    raised = np.exp(logits - logits.max(0))
    shares: npt.NDArray[Any] = raised / raised.sum(0)
    return shares
