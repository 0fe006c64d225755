"""A second round of measurements for `latent_class`: what three-way tables, or strong pairs once more, would gain. An experiment.

    python tests/benchmarks/triples.py [--data made adult15 nist sim50k salary acs small msnbc] [--epsilon 1] [--seeds 3]
        [--variants again=0.3 triples=0.03:3:told triples=0.1:10:oracle triples=0.1:30:told ...]

The product measures all one- and two-way tables, and no triple. Here, a share of the two-way tables' privacy loss buys a second round:

* ``again=S``: with share S, the third of the pairs whose released tables show most dependence is measured once more.
* ``triples=S:T:CHOICE``: with share S, T three-way tables with equal noise, of at most 50,000 cells each.

CHOICE says which: ``told`` are those with the largest sum of dependence of their three pairs in the released tables, dependence
being the root of the squared distance from independent columns in units of the noise, less what noise adds to it. That is
post-processing: no private choice is needed, and all of the share goes to the tables. ``oracle`` looks at
the raw table (not private): those where the model of the first round misses most, in squares; a private choice by that measure can
only be worse. One-way and coarse tables keep their noise.

Triples enter the fit as one more sum of squares in units of their noise, 1/2 sum (n / sigma)^2 (T - Y)^2, T = sum_k pi_k theta_k (x)
theta_k (x) theta_k; all else is the product's. Prints the mean distance of one-, two- and three-way tables of the written rows, what each
changes in percent, and seconds of the fit. The noise is normal, rounded, with fixed seeds, the same for all variants. ``made`` needs no
data: 12 attributes that depend on six normals (accuracy.py, `wide`); the others are those of accuracy.py.
"""

from __future__ import annotations

import argparse
import math
import time
from dataclasses import replace
from fractions import Fraction
from itertools import chain, combinations

import numpy as np
from accuracy import DATA, DELTA, DELTAS, Data, Score, table, wide

from dpsql.accounting import calibrate
from dpsql.methods.latent_class import _HALF_CLASSES, LatentClass
from dpsql.methods.mixture.efforts import schedule
from dpsql.methods.mixture.fit import Mixture, _Descent, _softmax, pull_strength
from dpsql.methods.mixture.heldout import APART, pull_factor
from dpsql.methods.mixture.rows import mixture_rows
from dpsql.methods.mixture.starts import averaged
from dpsql.methods.mixture.targets import Targets, targets
from dpsql.release.store import Plan, as_statistics
from dpsql.running.blas import one_blas_thread
from dpsql.tables import coarse
from dpsql.tables.statistics import Statistics

METHOD = LatentClass()
MOST_CELLS = 50_000
STRONGEST = 1 / 3
VARIANTS = ["again=0.3", "triples=0.03:3:told", "triples=0.1:10:oracle", "triples=0.1:30:told", "again=0.3,triples=0.1:30:told"]


class WithTriples(_Descent):
    """The product's descent with a sum of squares of triples: (slices of the codes, noisy shares, precision / strength^2) each."""

    triples: tuple = ()

    def _gradients(self, step, correct):
        slope, share_slope = super()._gradients(step, correct)
        if not self.triples:
            return slope, share_slope
        added, added_shares = self._of_triples()
        return slope + added, share_slope + added_shares

    def _of_triples(self):
        values, shares = np.exp(self.logits), _softmax(self.class_logits)  # `_gradients` has normalised the logits
        slope, told = np.zeros_like(values), np.zeros_like(shares)
        for (i, j, k), noisy, weight in self.triples:
            a, b, c = values[i], values[j], values[k]
            both = (b[:, None, :] * c[None]).reshape(-1, shares.size)
            misses = ((a * shares) @ both.T - noisy.reshape(len(a), -1)) * np.float32(weight)
            first = misses @ both
            rest = (misses.T @ a).reshape(len(b), len(c), -1)
            slope[i] += first
            slope[j] += np.einsum("bck,ck->bk", rest, c)
            slope[k] += np.einsum("bck,bk->ck", rest, b)
            told += np.einsum("dk,dk->k", a, first)
        slope *= values
        slope -= values * self._spread(self.members @ slope)
        return slope * shares, shares * (told - shares @ told)


def fitted(given: Targets, triples: tuple = ()) -> Mixture:
    """Fit as the method does where there is no key."""
    wanted = schedule(given.sizes, given.strength, METHOD.options)
    with one_blas_thread():
        factor = 1.0 if given.groups.size else pull_factor(given, min(wanted.classes, _HALF_CLASSES), wanted.steps)
        classes, pull = (1, 0.0) if factor == APART else (wanted.classes, factor * pull_strength(len(given.sizes), given.strength))

        def fit(seed: int) -> Mixture:
            descent = WithTriples(given, classes, wanted.steps, pull, seed)
            descent.triples = triples
            return descent.run()

        return averaged(fit, wanted.starts)


class Experiment:
    """A table, the noise scales of its plan, and its exact tables."""

    def __init__(self, data: Data, epsilon: float, delta: float) -> None:
        self.data, self.domain, self.rows = data, data.domain(), len(data.codes)
        self.plan = METHOD.plan(self.domain, {})
        weights = [*self.plan.weights, *self.plan.coarse_weights]
        found = calibrate(
            mechanism="gaussian", tables=len(weights), epsilon=epsilon, delta=delta, neighbors="add_remove", weights=weights
        )
        self.scales = [float(scale) for scale in found.scales]
        self.pairs = [clique for clique in self.plan.cliques if len(clique) == 2]
        self.rho = sum(0.5 / scale**2 for clique, scale in zip(self.plan.cliques, self.scales, strict=False) if len(clique) == 2)
        ends = np.cumsum((0, *data.sizes))
        self.blocks = [slice(int(first), int(last)) for first, last in zip(ends[:-1], ends[1:], strict=True)]
        triples = combinations(range(len(data.sizes)), 3)
        self.triples = [triple for triple in triples if self.domain.cells(triple) <= MOST_CELLS]

    def counts(self, clique) -> np.ndarray:
        return table(self.data.codes, clique, self.data.sizes).astype(np.int64)

    def first(self, seed: int, left: float) -> Statistics:
        """Return the product's tables, the two-way ones with a part of their privacy loss."""
        rng, plan = np.random.default_rng(seed), self.plan
        scales = [
            scale / math.sqrt(left) if len(clique) == 2 else scale for clique, scale in zip(plan.cliques, self.scales, strict=False)
        ]
        scales += self.scales[len(plan.cliques) :]
        noisy = {c: noised(self.counts(c), scale, rng) for c, scale in zip(plan.cliques, scales, strict=False)}
        pieces = [found.ravel() for found in noisy.values()]
        if plan.coarse:
            groups = coarse.groups(self.domain, noisy, chain.from_iterable(plan.coarse))
            for pair, scale in zip(plan.coarse, scales[len(plan.cliques) :], strict=True):
                summed = coarse.coarsened(self.counts(pair), pair, groups, coarse.shape(self.domain, pair))
                pieces.append(noised(summed, scale, rng).ravel())
        rational = tuple(Fraction(scale).limit_denominator(10**6) for scale in scales)
        planned = Plan(self.domain, plan.cliques, rational, "gaussian", False, None, {}, coarse=plan.coarse)
        return as_statistics(planned, np.concatenate(pieces), None)

    def dependence(self, given: Targets) -> dict:
        """Return the root of the unbiased squared distance of every pair's noisy table from independent columns, in noise units."""
        found, unit = {}, max(given.strength, 1.0) ** 2
        for i, j in self.pairs:
            block = self.blocks[i], self.blocks[j]
            misses = given.pairs[block] - np.outer(given.one_way[block[0]], given.one_way[block[1]])
            found[i, j] = math.sqrt(max(float((given.pair_weights[block] * unit * misses**2 - 1.0).sum()), 0.0))
        return found

    def strong_pairs_again(self, given: Statistics, share: float, rng: np.random.Generator) -> Statistics:
        strengths = self.dependence(targets(given))
        chosen = sorted(self.pairs, key=strengths.__getitem__, reverse=True)[: max(round(STRONGEST * len(self.pairs)), 1)]
        scale, tables, scales = math.sqrt(len(chosen) / (2.0 * share * self.rho)), dict(given.tables), dict(given.scales)
        for pair in chosen:
            before, now = 1.0 / scales[pair] ** 2, 1.0 / scale**2
            tables[pair] = (before * tables[pair] + now * noised(self.counts(pair), scale, rng)) / (before + now)
            scales[pair] = (before + now) ** -0.5
        return replace(given, tables=tables, scales=scales)

    def measured_triples(self, given: Targets, share: float, number: int, choice: str, rng: np.random.Generator) -> tuple:
        number = min(number, len(self.triples))
        scale = math.sqrt(number / (2.0 * share * self.rho))
        if choice == "oracle":
            model = fitted(given)
            score = {c: self.missed(model, c) for c in self.triples}
        else:
            pairs = self.dependence(given)
            score = {c: sum(pairs[pair] for pair in combinations(c, 2)) for c in self.triples}
        chosen = sorted(self.triples, key=score.__getitem__, reverse=True)[:number]
        rows = max(given.rows, 1.0)
        weight = (rows / scale / max(given.strength, 1.0)) ** 2
        noisy = [noised(self.counts(c), scale, rng) / rows for c in chosen]
        return tuple((tuple(self.blocks[i] for i in c), n.astype(np.float32), weight) for c, n in zip(chosen, noisy, strict=True))

    def missed(self, model: Mixture, clique) -> float:
        a, b, c = (model.values[self.blocks[i]] for i in clique)
        both = (b[:, None, :] * c[None]).reshape(-1, model.shares.size)
        return float(((self.rows * ((a * model.shares) @ both.T).ravel() - self.counts(clique).ravel()) ** 2).sum())

    def run(self, variant: dict[str, str], seed: int) -> tuple[np.ndarray, float]:
        """Return rows and the seconds of the fit."""
        again, (share, number, choice) = float(variant.get("again", 0)), variant.get("triples", "0:0:told").split(":")
        statistics, rng = self.first(1000 + seed, 1.0 - again - float(share)), np.random.default_rng(2000 + seed)
        if again:
            statistics = self.strong_pairs_again(statistics, again, rng)
        given = targets(statistics)
        triples = self.measured_triples(given, float(share), int(number), choice, rng) if int(number) else ()
        start = time.perf_counter()
        model = fitted(given, triples)
        seconds, rows = time.perf_counter() - start, max(round(given.rows), 1)
        return np.concatenate(list(mixture_rows(model, given.sizes, rows, np.random.default_rng(seed)))), seconds


def noised(counts: np.ndarray, scale: float, rng: np.random.Generator) -> np.ndarray:
    return counts + np.rint(scale * rng.standard_normal(counts.shape)).astype(np.int64)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", choices=["made", *DATA], nargs="+", default=["made"])
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--variants", nargs="+", default=VARIANTS)
    arguments = parser.parse_args()
    for name in arguments.data:
        data = wide(12, 20_000) if name == "made" else DATA[name]()
        experiment, score = Experiment(data, arguments.epsilon, DELTAS.get(name, DELTA)), Score(data)
        triples, base = len(experiment.triples), None
        print(f"\n{name}: {len(data.codes)} rows, {len(data.sizes)} attributes, {triples} triples; epsilon {arguments.epsilon:g}")
        for text in ["", *arguments.variants]:
            variant = dict(part.split("=") for part in text.split(",") if part)
            runs = [experiment.run(variant, seed) for seed in range(arguments.seeds)]
            mean = np.mean([score(rows)[:3] for rows, _ in runs], axis=0)
            base = mean if base is None else base
            change = "".join(f"{100 * change:+8.1f}%" for change in mean / base - 1)
            distances, seconds = "".join(f"{x:8.4f}" for x in mean), np.median([s for _, s in runs])
            print(f"{text or 'today':34s}{distances}{change}{seconds:7.1f} s", flush=True)


if __name__ == "__main__":
    main()
