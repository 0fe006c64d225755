"""Quantiles drawn by rank against quantiles read from a tree of noisy counts, at the same cost: which of them dp_query takes, and why.

python tests/benchmarks/query_quantiles.py [--runs 200] [--rows 1000 10000 100000] [--epsilons 0.1 1]

Five tables of a column with declared bounds (two of them far too wide). Of each quantile, mean over the runs of the error of the rank, in
rows, and of the value: the tree, then the exponential mechanism on 2^20 cells. Every row is a unit, delta 1e-9, no groups.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from dpsql.accounting.blocks import calibrate_blocks
from dpsql.estimates.measures import Measure, Variable
from dpsql.estimates.quantiles import choose_levels, quantiles, tree
from dpsql.estimates.ranks import cells_of, grid, ranked, values
from dpsql.mechanisms.ranked import private_quantile

SHARES = ("1/2", "1/10", "9/10", "19/20", "99/100")
Table = tuple[Callable[[np.random.Generator, int], np.ndarray], float, float, bool]
TABLES: dict[str, Table] = {
    "uniform": (lambda rng, n: rng.uniform(0, 100, n), 0, 100, False),
    "lognormal, wide": (lambda rng, n: np.exp(rng.normal(3, 1, n)), 0, 20_000, False),
    "ages": (lambda rng, n: np.clip(rng.normal(40, 18, n).round(), 0, 99), 0, 120, True),
    "narrow in wide": (lambda rng, n: rng.normal(500, 5, n), 0, 10_000, False),
    "counts, wide": (lambda rng, n: rng.poisson(30, n).astype(float), 0, 100_000, True),
}


def leaves(x: np.ndarray, measure: Measure, count: int) -> np.ndarray:
    """Return the cell of each row."""
    one = measure.variables[0]
    return np.clip(np.floor((np.clip(x, one.lower, one.upper) - one.lower) / measure.width), 0, count - 1).astype(np.int64)


def by_tree(x: np.ndarray, over: Variable, share: str, epsilon: float, runs: int, rng: np.random.Generator) -> np.ndarray:
    """Return quantiles of trees."""
    measure = Measure("tree", (over,), levels=choose_levels(over, 1))
    count = len(measure.levels)
    scales = calibrate_blocks(mechanism="gaussian", sensitivities=[(1, 1)] * count, weights=[1] * count, epsilon=epsilon, delta=1e-9).scales
    leaf = np.bincount(leaves(x, measure, measure.lengths[-1]), minlength=measure.lengths[-1])
    exact = np.concatenate([leaf.reshape(length, -1).sum(axis=1) for length in measure.lengths])
    noisy = exact + np.rint(rng.normal(0, float(scales[0]), (runs, exact.size)))
    return quantiles(tree(measure, noisy, [float(scale) for scale in scales]), [float(Fraction(share))])[:, 0]


def by_rank(x: np.ndarray, over: Variable, share: str, epsilon: float, runs: int) -> np.ndarray:
    """Return quantiles that are drawn."""
    measure = Measure("quantile", (over,), levels=(cells_of(over),), share=share)
    [scale] = calibrate_blocks(mechanism="gaussian", sensitivities=[ranked(measure, 1, grouped=False)], weights=[1], epsilon=epsilon, delta=1e-9).scales
    cells, counts = np.unique(leaves(x, measure, measure.levels[0]), return_counts=True)
    many, width = grid(measure)
    return values(measure, [private_quantile(cells, counts, Fraction(share), scale, many, width) for _ in range(runs)])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--epsilons", type=float, nargs="+", default=[0.1, 1.0])
    given = parser.parse_args()
    rng = np.random.default_rng(3)
    print(f"rank / value by the tree, rank / value by rank, of {given.runs} runs")
    for epsilon in given.epsilons:
        for n in given.rows:
            for name, (make, lower, upper, whole) in TABLES.items():
                x = make(rng, n)
                ordered, over, shown = np.sort(x), Variable(0, lower, upper, whole), []
                for share in SHARES:
                    q, parts = float(Fraction(share)), []
                    for found in (by_tree(x, over, share, epsilon, given.runs, rng), by_rank(x, over, share, epsilon, given.runs)):
                        below, upto = (np.searchsorted(ordered, found, side=side) for side in ("left", "right"))
                        rank = np.maximum(np.maximum(q * n - upto, below - q * n), 0)
                        parts.append(f"{rank.mean():7.1f}/{np.abs(found - np.quantile(x, q)).mean():8.3g}")
                    shown.append(" ".join(parts))
                print(f"{epsilon:<4g} {n:7,} {name:16}", " | ".join(shown), flush=True)


if __name__ == "__main__":
    main()
