"""The CatHist experiment [Rodriguez & Howe 2017]: fidelity of a released histogram over a domain that nobody can list.

    python tests/benchmarks/weak_domain.py [--runs 100] [--plot weak_domain.png]

Adult: sex over 171,476 words; workclass and marital-status over the 29,404,018,576 pairs of them; epsilon 0.01, 0.1 and 1,
rho (the probability that no value is shown that does not occur) from 0.1 to 0.999. Prints the mean fidelity F = (share of
the true mass on the common values) x (share of the released mass on the common values), its parts, and which findings of the paper
come out. The word list is made up here, so the column's own values are put into the universe as declared ones; what the mechanism
does depends on the number of members alone. Needs the folder of public data sets (DPSQL_SHARED, or `shared` beside the
project). Counts with pandas: it is the mechanism that is measured, not the way of the counts to it.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import sys
import time
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd

from dpsql.mechanisms import weak_domain
from dpsql.mechanisms.words import Listed, Tuples, Universe
from dpsql.noise.discrete import scale_grid

WORDS = 171_476
COLUMNS = {"sex": 1, "workclass": 2, "marital-status": 2}
EPSILONS = ("0.01", "0.1", "1")
RHOS = ("0.1", "0.3", "0.5", "0.7", "0.8", "0.9", "0.99", "0.999")


def shared_folder() -> Path:
    folder = Path(os.environ.get("DPSQL_SHARED", Path(__file__).parents[3] / "shared"))
    if not (folder / "data" / "adult.csv").is_file():
        sys.exit("the folder of public data sets is not here; set DPSQL_SHARED to it")
    return folder


def pseudo_words() -> Listed:
    """Return as many distinct words as the paper's dictionary has: consonants and vowels in turn."""
    patterns = itertools.product("bdfgklmnprstvz", "aeiou", "bdfgklmnprstvz", "aeiou", "lmnrstxyw", ("a", "e", "o", "as", "en"))
    return Listed("".join(letters) for letters in itertools.islice(patterns, WORDS))


def fidelity(true: dict[str, int], released: list[tuple[str, float]]) -> float:
    """Return F; 0 where nothing was released."""
    weights = dict(released)
    common = weights.keys() & {text for text, count in true.items() if count}
    shares = (sum(held[text] for text in common) / (sum(held.values()) or 1) for held in (true, weights))
    return math.prod(shares)


def one_setting(true: dict[str, int], universe: Universe, epsilon: str, rho: str, runs: int) -> dict[str, float]:
    """Return threshold and means over the runs."""
    scale = scale_grid(1 / Fraction(epsilon))
    t = weak_domain.integer_threshold(scale, Fraction(rho), universe.size)
    shares, others, kept = [], [], []
    for _ in range(runs):
        released = weak_domain.release(true, universe, scale, t)
        shares.append(fidelity(true, released))
        kept.append(sum(true.get(text, 0) for text, _ in released) / sum(true.values()))
        others.append(sum(text not in true for text, _ in released))
    error = float(np.std(shares, ddof=1) / np.sqrt(runs)) if runs > 1 else float("nan")
    return {
        "t": t, "F": float(np.mean(shares)), "error": error, "kept": float(np.mean(kept)), "others": float(np.mean(others)),
        "silent": float(np.mean(np.array(others) == 0)),
    }


def experiment(runs: int) -> dict[tuple[str, str, str], dict[str, float]]:
    adult = pd.read_csv(shared_folder() / "data" / "adult.csv", usecols=list(COLUMNS), keep_default_na=False)
    words = pseudo_words()
    results = {}
    for column, repeat in COLUMNS.items():
        true = {str(value): int(n) for value, n in adult[column].value_counts().items()}
        universe = Universe(sorted(true), Tuples(words, repeat, "-"), WORDS**repeat)
        print(f"\n{column}: {len(true)} values, {universe.size:,} members, counts {sorted(true.values(), reverse=True)}")
        print(f"{'epsilon':>8}{'rho':>8}{'threshold':>11}{'F':>9}{'+-':>8}{'true mass kept':>16}{'other values':>14}{'runs without':>14}")
        for epsilon, rho in itertools.product(EPSILONS, RHOS):
            found = results[column, epsilon, rho] = one_setting(true, universe, epsilon, rho, runs)
            print(
                f"{epsilon:>8}{rho:>8}{found['t']:>11}{found['F']:>9.4f}{found['error']:>8.4f}{found['kept']:>16.4f}"
                f"{found['others']:>14.3f}{found['silent']:>14.3f}"
            )
    return results


def largest_fall(cells: list[dict[str, float]]) -> tuple[float, float, int, int]:
    """Return the fall of F from a lower to a higher rho that is surest: size, number of standard errors, and where."""
    falls = [(0.0, 0.0, 0, 0)]
    for i, j in itertools.combinations(range(len(cells)), 2):
        fall = cells[i]["F"] - cells[j]["F"]
        error = float(np.hypot(cells[i]["error"], cells[j]["error"]))
        if fall > 0 and error > 0:
            falls.append((fall, fall / error, i, j))
    return max(falls, key=lambda found: found[1])


def findings(results: dict[tuple[str, str, str], dict[str, float]]) -> None:
    """Print which of the published findings come out.

    A line through all rho gives the trend; it cannot see that F rises first and falls then, so the surest fall between any two
    rho stands beside it. Beyond 5 standard errors it is none of chance (28 pairs in each of 9 curves).
    """
    x = np.arange(len(RHOS), dtype=float)
    x -= x.mean()
    print("\nF rises with rho, except workclass at epsilon = 0.01")
    print(f"  {'':15}{'epsilon':>8}{'change, by a line':>22}{'surest fall':>13}  between")
    for column, epsilon in itertools.product(COLUMNS, EPSILONS):
        cells = [results[column, epsilon, rho] for rho in RHOS]
        slope = float(x @ [c["F"] for c in cells] / (x @ x)) * (len(RHOS) - 1)
        error = float(np.sqrt(x**2 @ np.square([c["error"] for c in cells])) / (x @ x)) * (len(RHOS) - 1)
        fall, errors, i, j = largest_fall(cells)
        where = f"rho = {RHOS[i]} and {RHOS[j]}: {errors:.1f} standard errors" if fall else "-"
        verdict = "falls" if slope < -3 * error else "rises" if slope > 3 * error else "no trend"
        verdict += ", then falls" if verdict == "rises" and errors > 5 else ""
        print(f"  {column:<15}{epsilon:>8}{slope:>+13.4f} +- {error:.4f}{fall:>13.4f}  {where}  => {verdict}")
    near = ", ".join(f"{results['sex', e, '0.9']['F']:.4f} (epsilon = {e})" for e in EPSILONS)
    print(f"F of sex is near 1 for rho = 0.9: {near}")


def plot(results: dict[tuple[str, str, str], dict[str, float]], path: str) -> None:
    try:
        import matplotlib
    except ImportError:
        print("no plot: matplotlib is not installed (python -m pip install matplotlib)")
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, len(COLUMNS), figsize=(12, 3.8), sharey=True, layout="constrained")
    for panel, (column, repeat) in zip(panels, COLUMNS.items(), strict=True):
        for epsilon in EPSILONS:
            cells = [results[column, epsilon, rho] for rho in RHOS]
            panel.errorbar(range(len(RHOS)), [c["F"] for c in cells], [2 * c["error"] for c in cells], marker="o", ms=4, label=f"epsilon = {epsilon}")
        panel.set_xticks(range(len(RHOS)), RHOS)
        panel.set_ylim(0, 1.03)
        panel.set_xlabel("rho")
        panel.set_title(f"{column}, {WORDS**repeat:,} members", fontsize=10)
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("mean fidelity F")
    panels[-1].legend(fontsize=8)
    figure.savefig(path, dpi=130)
    print(f"plot: {path}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--plot", metavar="FILE.png")
    chosen = parser.parse_args()
    started = time.perf_counter()
    results = experiment(chosen.runs)
    findings(results)
    print(f"{chosen.runs} runs a setting, {len(results)} settings, {time.perf_counter() - started:.1f} s")
    if chosen.plot:
        plot(results, chosen.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
