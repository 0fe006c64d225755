"""Nearest correlation matrix: Newton's method against alternating projections with Dykstra's correction.

    python tests/benchmarks/nearest_correlation.py [--sizes 200 674 1000 2000] [--noise 0.02] [--projections 30]

The matrix: six factors as in the generator of the wide tables, with normal errors in every entry as noisy tables cause them
(0.02 is about what 2,000 binary columns of 5.24 million rows at epsilon 1 have). Prints iterations, CPU seconds of one BLAS
thread, the largest error of the diagonal, and the residual of the optimality conditions. Alternating projections stop after
`--projections` rounds: `seconds to agree` says how long they would take to the same residual at the rate of the last rounds.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

sys.path.insert(0, str(Path(__file__).parents[1]))
from correlation_optimality import optimality_residual

from dpsql.numerics import nearest_correlation as module


def noisy_factors(d: int, noise: float) -> np.ndarray:
    rng = np.random.default_rng(d)
    loadings = rng.normal(size=(6, d)) * rng.choice([0.15, 0.5, 1.0], size=d)
    loadings /= np.sqrt(1.0 + np.square(loadings).sum(0))
    upper = np.triu(loadings.T @ loadings + rng.normal(0.0, noise, (d, d)), 1)
    found = np.clip(upper + upper.T, -1.0, 1.0)
    np.fill_diagonal(found, 1.0)
    return found


def alternating(matrix: np.ndarray, rounds: int) -> tuple[np.ndarray, list[float], int]:
    """Return the answer so far, the error of the diagonal after every round, and the rounds."""
    y, correction, errors, x = matrix.copy(), np.zeros_like(matrix), [], matrix
    for done in range(rounds):
        given = y - correction
        values, vectors = np.linalg.eigh(given)
        x = (vectors * np.maximum(values, 0.0)) @ vectors.T
        correction = x - given
        errors.append(float(np.abs(np.diag(x) - 1.0).max()))
        y = x.copy()
        np.fill_diagonal(y, 1.0)
        if errors[-1] < 1e-10:
            return x, errors, done + 1
    return x, errors, rounds


def newton(matrix: np.ndarray) -> tuple[np.ndarray, int]:
    """Return the answer and the number of eigendecompositions."""
    calls, kept = [0], module._spectrum

    def counted(*arguments):
        calls[0] += 1
        return kept(*arguments)

    module._spectrum = counted
    try:
        return module.nearest_correlation(matrix), calls[0]
    finally:
        module._spectrum = kept


def line(name: str, rounds: int, seconds: float, diagonal: float, residual: float, more: str = "") -> str:
    return f"  {name:24s}{rounds:8d} decompositions{seconds:9.2f} s   diagonal {diagonal:.1e}   residual {residual:.1e}{more}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[200, 674, 1000, 2000])
    parser.add_argument("--noise", type=float, default=0.02)
    parser.add_argument("--projections", type=int, default=30)
    chosen = parser.parse_args()
    with threadpool_limits(1):
        for d in chosen.sizes:
            matrix = noisy_factors(d, chosen.noise)
            print(f"{d} x {d}, noise {chosen.noise:g}, smallest eigenvalue {np.linalg.eigvalsh(matrix)[0]:.2f}")
            start = time.process_time()
            found, calls = newton(matrix)
            seconds = time.process_time() - start
            diagonal, residual = float(np.abs(np.diag(found) - 1.0).max()), optimality_residual(matrix, found)
            print(line("Newton", calls, seconds, diagonal, residual), flush=True)
            start = time.process_time()
            slow, errors, rounds = alternating(matrix, chosen.projections)
            spent = time.process_time() - start
            rate = (errors[-1] / errors[-6]) ** 0.2 if len(errors) > 6 and errors[-1] > 1e-10 else 0.0
            needed = rounds + (math.log(1e-10 / errors[-1]) / math.log(rate) if 0.0 < rate < 1.0 else 0.0)
            more = f"   seconds to agree {spent * needed / rounds:.1f}   distance {np.linalg.norm(slow - found):.1e}"
            residual = optimality_residual(matrix, slow)
            print(line("alternating projections", rounds, spent, errors[-1], residual, more), flush=True)


if __name__ == "__main__":
    main()
