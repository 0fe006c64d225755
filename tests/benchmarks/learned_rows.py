"""How near the number of rows that ``max_rows := 'auto'`` learns comes to the best one, on tables whose units have rows of many kinds.

usage: python tests/benchmarks/learned_rows.py [--draws 200]

Printed are, for each table, its best number of rows and the error of a group's count (noise, and rows that are lost) as a multiple of
the error with that number: the median, the root mean square and the 95 % quantile over draws of the histogram's noise; for one group, 5
and 50 of equal size. The loss is that of epsilon 1 at delta 1e-9 with three statistics a group, a tenth of it the histogram's.
"""

from __future__ import annotations

import argparse

import numpy as np

from dpsql.domains.unit_rows import finer
from dpsql.estimates.row_bounds import chosen

MOST = 1000
NOISE, DEVIATION = 8.0, 17.4  # of a count for each row of a unit that may count, and of a number of units of the histogram


def tables(units: int) -> dict[str, np.ndarray]:
    """Return the rows of each unit of each table."""
    draw = np.random.default_rng(1)
    lines = np.array([draw.integers(1, 8, orders).sum() for orders in np.clip(draw.poisson(15, units), 1, 40)])
    return {
        "all 1": np.full(units, 1),
        "all 5": np.full(units, 5),
        "all 12": np.full(units, 12),
        "Poisson 5": 1 + draw.poisson(4, units),
        "Poisson 40": 1 + draw.poisson(40, units),
        "geometric 5": draw.geometric(0.2, units),
        "geometric 30": draw.geometric(1 / 30, units),
        "lines of orders": lines,
        "lognormal 12": np.ceil(draw.lognormal(2, 1, units)).astype(int),
        "lognormal 40": np.ceil(draw.lognormal(3, 1.2, units)).astype(int),
        "1, a tenth 100": np.where(draw.random(units) < 0.9, 1, 100),
        "3, few 800": np.where(draw.random(units) < 0.003, 800, draw.geometric(0.3, units)),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=200)
    draws, lower, everything = parser.parse_args().draws, finer(MOST), []
    noise = np.random.default_rng(2)
    print(f"{'units':>6} {'rows of a unit':16} " + " ".join(f"{f'{groups} groups: best':>18} median   rms   95 %" for groups in (1, 5, 50)))
    for units in (500, 2_000, 20_000):
        for name, rows in tables(units).items():
            numbers = np.arange(1, MOST + 1)
            lost = np.array([np.maximum(rows - number, 0).sum() for number in numbers])
            exact = np.bincount(np.searchsorted(lower, rows, side="right") - 1, minlength=len(lower))
            line = f"{units:6} {name:16} "
            for groups in (1, 5, 50):
                error = np.hypot(NOISE * numbers, lost / groups)
                noisy = exact + np.rint(noise.normal(0, DEVIATION, (draws, len(lower)))).astype(np.int64)
                ratio = np.array([error[chosen(lower, one, DEVIATION, MOST, NOISE, groups) - 1] for one in noisy]) / error.min()
                everything.append((np.median(ratio), np.sqrt(np.mean(ratio**2)), np.quantile(ratio, 0.95)))
                line += f"{numbers[error.argmin()]:18} " + " ".join(f"{value:6.2f}" for value in everything[-1])
            print(line, flush=True)
    means = np.exp(np.log(everything).mean(axis=0))
    print("geometric means: median {:.2f}, rms {:.2f}, 95 % {:.2f}".format(*means))


if __name__ == "__main__":
    main()
