"""The published evaluation of the Gaussian copula on Adult [Asghar 2019], on arrays.

usage: python tests/benchmarks/copula_reference.py [--runs 5] [--data adult|sim50k|hospital] [--triples 0]

Prints, for one-, two- and three-way queries, the average and the maximum of the best 95, 99 and 100 % of the absolute
count errors, medians over the runs: ours (decoded), the published mode (one_hot, Laplace, advanced composition), the
reference variants cop, cop-ID, cop-1, no-cor and Lap, and the published figures. (epsilon, delta) = (1, 2^-30).

The data are not part of the project: the folder `shared` next to the project's, or the one DPSQL_SHARED names.

Noise: the real samplers, at the scale that a release pays for. Laplace noise is shown at 67.65 (105 equal tables, advanced
composition, as the text of the paper says) with one draw a cell, and with two: the paper's algorithms put independent noise on
both cells of every one-hot column, n0 and n1, and its figures fit the sum of two draws (E|sum| = 1.5 b = 101.5; published: 105).
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import time
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import special

from dpsql.accounting import calibrate
from dpsql.domains.attributes import Attribute, Domain
from dpsql.methods.gaussian_copula.method import GaussianCopula
from dpsql.methods.gaussian_copula.sampling import sample_thresholded
from dpsql.noise import discrete
from dpsql.tables.statistics import Statistics

COPULA = GaussianCopula()
EPSILON, DELTA = 1.0, 2.0**-30
SHARES = (0.95, 0.99, 1.0)

PUBLISHED = {
    "published dpc": [[92, 389, 107, 482, 106, 773], [18, 184, 29, 504, 38, 4788], [12, 120, 20, 408, 28, 6148]],
    "published Lap": [[85, 353, 99, 505, 105, 741], [58, 317, 72, 536, 78, 1246], [102, 591, 128, 1002, 138, 2508]],
}


def shared_folder() -> Path:
    """Return the folder with the data, or leave with a message."""
    named = os.environ.get("DPSQL_SHARED")
    folder = Path(named) if named else Path(__file__).resolve().parents[3] / "shared"
    if not (folder / "data" / "adult.csv").exists():
        sys.exit(f"no data in {folder}: set DPSQL_SHARED to the folder that holds data/adult.csv")
    return folder


def load(name: str) -> tuple[np.ndarray, list[int]]:
    """Return codes (n, m) and sizes. Adult has a declared domain; of the others the values are taken as the domain."""
    folder = shared_folder() / "data"
    frame = pd.read_csv(folder / f"{name}.csv", keep_default_na=False, dtype=None if name == "adult" else str)
    if name != "adult":
        parts = [pd.factorize(frame[column], sort=True) for column in frame]
        return np.stack([codes for codes, _ in parts], 1), [len(values) for _, values in parts]
    columns, sizes = [], []
    for column, spec in json.loads((folder / "adult_domain14.json").read_text()).items():
        if "categories" in spec:
            columns.append(frame[column].map({v: i for i, v in enumerate(spec["categories"])}).to_numpy(int))
            sizes.append(len(spec["categories"]))
            continue
        edges = spec.get("edges") or list(np.linspace(spec["lower"], spec["upper"], spec["bins"] + 1))
        code = np.searchsorted(np.asarray(edges, float), frame[column].to_numpy(float), side="right") - 1
        columns.append(np.clip(code, 0, len(edges) - 2))
        sizes.append(len(edges) - 1)
    return np.stack(columns, 1), sizes


def table(codes: np.ndarray, clique: tuple[int, ...], sizes: list[int]) -> np.ndarray:
    shape = [sizes[i] for i in clique]
    flat = np.ravel_multi_index([codes[:, i] for i in clique], shape)
    return np.bincount(flat, minlength=int(np.prod(shape))).reshape(shape)


def measure(codes: np.ndarray, sizes: list[int], mechanism: str | None, *, total: bool, draws: int = 1) -> Statistics:
    """Count the tables of the plan and add the noise that (EPSILON, DELTA) asks for, ``draws`` times; None: no noise."""
    cliques = COPULA.plan(Domain(tuple(Attribute(f"a{i}", "VARCHAR", "categorical", ("",) * n, nullable=False) for i, n in enumerate(sizes))), {}).cliques
    tables = {clique: table(codes, clique, sizes).astype(np.int64) for clique in cliques}
    scale = Fraction(0)
    if mechanism is not None:
        scale = calibrate(
            mechanism=mechanism, tables=len(cliques), epsilon=EPSILON, delta=DELTA, neighbors="add_remove",
            calibration="advanced" if mechanism == "laplace" else None,
        ).scales[0]
        for _ in range(draws):
            tables = {clique: discrete.add_noise(counts, mechanism, scale) for clique, counts in tables.items()}
    known = len(codes) if total else None
    return Statistics(tuple(sizes), tables, dict.fromkeys(tables, float(scale)), mechanism or "gaussian", known)


class Queries:
    """The exact answers to all queries of one to three values of distinct attributes, and errors against them."""

    def __init__(self, codes: np.ndarray, sizes: list[int], triples: int) -> None:
        self.codes, self.sizes = codes, sizes
        self.cliques = {k: list(itertools.combinations(range(len(sizes)), k)) for k in (1, 2, 3)}
        if triples and triples < len(self.cliques[3]):
            picked = np.random.default_rng(7).choice(len(self.cliques[3]), triples, replace=False)
            self.cliques[3] = [self.cliques[3][i] for i in picked]
        if max(sizes) > 60:
            self.cliques[3] = []

    def _summary(self, errors: list[np.ndarray]) -> list[float]:
        if not errors:
            return [float("nan")] * 6
        ordered = np.sort(np.concatenate([e.ravel() for e in errors]))
        best = [ordered[: max(1, round(share * len(ordered)))] for share in SHARES]
        return [x for part in best for x in (float(part.mean()), float(part[-1]))]

    def of_codes(self, rows: np.ndarray) -> list[list[float]]:
        scale = len(self.codes) / len(rows)

        def error(clique: tuple[int, ...]) -> np.ndarray:
            return np.abs(table(self.codes, clique, self.sizes) - scale * table(rows, clique, self.sizes))

        return [self._summary([error(c) for c in self.cliques[k]]) for k in (1, 2, 3)]

    def of_answers(self, answers: dict[tuple[int, ...], np.ndarray]) -> list[list[float]]:
        def errors(k: int) -> list[np.ndarray]:
            return [np.abs(table(self.codes, c, self.sizes) - answers[c]) for c in self.cliques[k] if c in answers]

        return [self._summary(errors(k)) for k in (1, 2, 3)]

    def of_one_hot(self, rows: np.ndarray) -> list[list[float]]:
        parts = np.split(rows.astype(np.float32), np.cumsum(self.sizes)[:-1], axis=1)
        answers = {}
        for clique in itertools.chain(*self.cliques.values()):
            joint = parts[clique[0]]
            for i in clique[1:-1]:
                joint = (joint[:, :, None] * parts[i][:, None, :]).reshape(len(rows), -1)
            last = joint.T @ parts[clique[-1]] if len(clique) > 1 else joint.sum(0)
            answers[clique] = last.reshape([self.sizes[i] for i in clique])
        return self.of_answers(answers)


def one_hot(statistics: Statistics, rows: int, seed: int, **options: object) -> np.ndarray:
    model = COPULA.fit(statistics, {"output": "one_hot", **options})
    return np.concatenate(list(COPULA.sample_one_hot(model, rows, np.random.default_rng(seed))))


def with_matrix(kind: str, codes: np.ndarray, sizes: list[int], seed: int) -> np.ndarray:
    """Thresholded normals with exact one-way shares and the identity (cop-ID) or the all-ones matrix (cop-1)."""
    shares = np.concatenate([table(codes, (i,), sizes) for i in range(len(sizes))]) / len(codes)
    factor = (np.eye(sum(sizes)) if kind == "cop-ID" else np.ones((sum(sizes), 1))).astype(np.float32)
    return np.concatenate(list(sample_thresholded(factor, -special.ndtri(shares), len(codes), np.random.default_rng(seed))))


def evaluate(codes: np.ndarray, sizes: list[int], queries: Queries, seed: int) -> dict[str, list[list[float]]]:
    n, result = len(codes), {}
    start = time.perf_counter()
    model = COPULA.fit(measure(codes, sizes, "gaussian", total=False), {})
    fitted = time.perf_counter()
    rows = np.concatenate(list(COPULA.sample(model, n, np.random.default_rng(seed))))
    print(f"  run {seed}: measure and fit {fitted - start:.2f} s, sample {time.perf_counter() - fitted:.2f} s", flush=True)
    result["dpsql decoded"] = queries.of_codes(rows)
    published = {"consistency": "none", "shrinkage": "none"}
    for label, draws in (("one draw", 1), ("two draws", 2)):
        noisy = measure(codes, sizes, "laplace", total=True, draws=draws)
        result[f"dpc as published, {label}"] = queries.of_one_hot(one_hot(noisy, n, seed, **published))
        result[f"Lap, {label}"] = queries.of_answers(noisy.tables)
    exact = measure(codes, sizes, None, total=True)
    result["cop"] = queries.of_one_hot(one_hot(exact, n, seed, **published))
    for kind in ("cop-ID", "cop-1"):
        result[kind] = queries.of_one_hot(with_matrix(kind, codes, sizes, seed))
    rng = np.random.default_rng(seed)
    shares = [table(codes, (i,), sizes) / n for i in range(len(sizes))]
    result["no-cor"] = queries.of_codes(np.stack([rng.choice(len(p), n, p=p) for p in shares], 1))
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--data", choices=("adult", "sim50k", "hospital"), default="adult")
    parser.add_argument("--triples", type=int, default=0, help="attribute triples for k = 3, at random; 0: all")
    arguments = parser.parse_args()
    codes, sizes = load(arguments.data)
    print(f"{arguments.data}: {codes.shape[0]} rows, {len(sizes)} attributes, {sum(sizes)} one-hot columns")
    queries = Queries(codes, sizes, arguments.triples)
    runs = [evaluate(codes, sizes, queries, seed) for seed in range(arguments.runs)]
    lines = {name: np.median([run[name] for run in runs], axis=0) for name in runs[0]}
    if arguments.data == "adult":
        lines.update({name: np.asarray(figures, float) for name, figures in PUBLISHED.items()})
    head = "".join(f"{share:8.0%} ave     max" for share in SHARES)
    for k in (1, 2, 3):
        print(f"\n{k}-way, median of {arguments.runs} runs\n{'':28s}{head}")
        for name, figures in lines.items():
            if not np.isnan(figures[k - 1]).all():
                print(f"{name:28s}" + "".join(f"{figures[k - 1][i]:12.1f}{figures[k - 1][i + 1]:8.0f}" for i in (0, 2, 4)))


if __name__ == "__main__":
    main()
