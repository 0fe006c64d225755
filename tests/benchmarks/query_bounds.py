"""Errors of sums whose bounds are learned (``bounds := 'auto'`` of dp_query), on made-up tables.

    python tests/benchmarks/query_bounds.py [--draws 300] [--epsilon 0.8] [--share 0.15] [--mechanism laplace]

Each case is a sum over units of one number per unit: those of TPC-H at scale factor 1 (drawn from its distributions: 100,000 customers
with orders, 1 to 7 line items each, quantities 1 to 50), and heavy tails. Printed are mean absolute errors over draws of the whole
mechanism: the histogram of magnitudes, the bounds chosen from it, the sum. 'known' is the error where the maximum is known and all
of the loss goes to the sum; 'goal' that of the study in which the rule was proposed.
"""

from __future__ import annotations

import argparse
import math
from fractions import Fraction

import numpy as np

from dpsql.accounting.blocks import calibrate_blocks
from dpsql.estimates.magnitudes import Learning, chosen, edges_of, sensitivity_of

GOALS = {"orders (Q10)": 100, "line items (Q3)": 200, "line items of an order (Q12)": 12, "quantity (Q18)": 7_100}


def tables(seed: int = 1) -> dict[str, np.ndarray]:
    """Return numbers by unit."""
    rng = np.random.default_rng(seed)
    customers = rng.integers(0, 100_000, 1_500_000)
    items = rng.integers(1, 8, 1_500_000)
    shipped = rng.binomial(items, 0.48)
    quantities = np.zeros(1_500_000)
    order_of = np.repeat(np.arange(1_500_000), items)
    np.add.at(quantities, order_of, rng.integers(1, 51, order_of.size))
    found = {
        "orders (Q10)": np.bincount(customers),
        "line items (Q3)": np.bincount(customers, shipped),
        "line items of an order (Q12)": items,
        "quantity (Q18)": np.bincount(customers, quantities),
        "Pareto 1.5, 10,000 units": np.floor(1 / rng.random(10_000) ** (1 / 1.5)),
        "Pareto 2.5, 10,000 units": np.floor(10 / rng.random(10_000) ** (1 / 2.5)),
        "lognormal 1.5, 10,000 units": np.floor(10 * np.exp(1.5 * rng.standard_normal(10_000))),
        "lognormal 1, 100,000 units": np.floor(100 * np.exp(rng.standard_normal(100_000))),
        "uniform to 1,000, 2,000 units": rng.integers(0, 1001, 2_000),
        "always 40, 1,000 units": np.full(1_000, 40),
        "normal, both signs, 10,000 units": np.rint(100 * rng.standard_normal(10_000)),
    }
    return {name: np.asarray(values, np.float64) for name, values in found.items()}


def scales(epsilon: float, share: float, mechanism: str, delta: float) -> tuple[float, Fraction, float]:
    """Return the noise scale of the sum in units of the bound, that of the histogram, and the sum's where bounds are known."""
    accountant = "zcdp" if mechanism == "gaussian" else "basic"
    delta = delta if mechanism == "gaussian" else 0.0
    grid = 2**20
    both = calibrate_blocks(
        mechanism=mechanism, sensitivities=[(grid, grid), sensitivity_of(1, "add_remove")], weights=[1 - share, share],
        epsilon=epsilon, delta=delta, accountant=accountant,
    ).scales  # fmt: skip
    alone = calibrate_blocks(
        mechanism=mechanism, sensitivities=[(grid, grid)], weights=[1], epsilon=epsilon, delta=delta, accountant=accountant
    ).scales
    return float(both[0]) / grid, both[1], float(alone[0]) / grid


def drawn(rng: np.random.Generator, mechanism: str, scale: float, size: int) -> np.ndarray:
    """Return noise."""
    return rng.laplace(0, scale, size) if mechanism == "laplace" else rng.normal(0, scale, size)


def errors(values: np.ndarray, epsilon: float, share: float, mechanism: str, delta: float, draws: int) -> tuple[float, ...]:
    """Return mean and median absolute error, the error with known bounds, and the mean bound."""
    rng = np.random.default_rng(7)
    sum_scale, cell_scale, alone = scales(epsilon, share, mechanism, delta)
    learning = Learning(0, edges_of("BIGINT", whole=True), cell_scale, mechanism, whole=True)
    places = np.clip(np.searchsorted(learning.edges, values, side="right") - 1, 0, learning.cells - 1)
    exact = np.bincount(places, minlength=learning.cells)
    times = math.sqrt(2) if mechanism == "laplace" else 1.0
    kept: dict[float, float] = {}
    found, bounds = [], []
    for _ in range(draws):
        noisy = np.rint(exact + drawn(rng, mechanism, float(cell_scale), exact.size)).astype(np.int64)
        low, high = chosen(learning, noisy, sum_scale * times, span=False)
        reach = max(abs(low), abs(high))
        if reach not in kept:
            kept[reach] = float(np.clip(values, low, high).sum() - values.sum())
        found.append(abs(kept[reach] + float(drawn(rng, mechanism, sum_scale * reach, 1)[0])))
        bounds.append(reach)
    known = alone * float(np.abs(values).max()) * (math.sqrt(2 / math.pi) if mechanism == "gaussian" else 1.0)
    return float(np.mean(found)), float(np.median(found)), known, float(np.median(bounds)), float(np.abs(values).max())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=300)
    parser.add_argument("--epsilon", type=float, default=0.8)
    parser.add_argument("--share", type=float, default=0.15)
    parser.add_argument("--mechanism", choices=("laplace", "gaussian"), default="laplace")
    parser.add_argument("--delta", type=float, default=1e-6)
    given = parser.parse_args()
    print(f"{'case':34} {'mean':>10} {'median':>10} {'known':>10} {'goal':>8} {'bound':>8} {'maximum':>9}")
    for name, values in tables().items():
        mean, median, known, bound, most = errors(values, given.epsilon, given.share, given.mechanism, given.delta, given.draws)
        print(f"{name:34} {mean:10.1f} {median:10.1f} {known:10.1f} {GOALS.get(name, ''):>8} {bound:8.0f} {most:9.0f}")


if __name__ == "__main__":
    main()
