"""Accuracy of synthetic tables: ours, independent columns and resampling, beside what other systems were measured to reach.

    python tests/benchmarks/accuracy.py [--data adult15|ordered|acs|nist|hospital|sim50k|wide|msnbc|salary|small] [--epsilon 0.1 1 10]
        [--seeds 5] [--methods latent_class gaussian_copula dpcopula_kendall independent resampling] [--effort fast|balanced|best]

Prints medians over the seeds: wall and CPU seconds (noise, fit and rows; counting is left out), total variation distance of one-,
two- and three-way tables (at most 200 triples), average and maximum of the absolute count errors of one- and two-way tables, and
deviations of the rank correlation (Spearman) of two numeric columns, of the values as written from those as read: `ranks` is the
largest over the pairs of each pair's median over the seeds, `worst` the median over the seeds of the largest over the pairs.
Rows are scored as written. The noise is the real one: other figures every run, seeds are those of the rows.

The data are not part of the project: the folder `shared` next to the project's, or the one DPSQL_SHARED names. `wide` is made here:
100 attributes that depend on six normals; `small` is 1,304 rows and nine columns of Adult-15. `nist` is the ten features of the
k-marginal score, 1000 (1 - mean two-way distance). `ordered` are the columns of Adult that have an order: the numbers, and those of
two values.
`independent` is made from noisy one-way tables with the whole budget; `resampling` draws rows of the original, with no privacy.
`dpcopula_kendall` spends epsilon alone, no delta, and takes the number of rows as public (replace_one); values of categories are taken in
the order of the domain file.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import resource
import sys
import time
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from dpsql.accounting import calibrate
from dpsql.domains.attributes import Attribute, Domain
from dpsql.measure.noising import released
from dpsql.methods.base import Contract, Counted, MeasurementPlan
from dpsql.methods.dpcopula_kendall.method import DpcopulaKendall
from dpsql.methods.gaussian_copula.method import GaussianCopula
from dpsql.methods.latent_class import LatentClass
from dpsql.release.contents import as_statistics
from dpsql.release.plan import Plan
from dpsql.rows.decoding import Decoder
from dpsql.tables.consistency import consistent_tables
from dpsql.tables.statistics import Statistics

METHODS = {"latent_class": LatentClass(), "gaussian_copula": GaussianCopula()}
DRAWN = {"dpcopula_kendall": {}, "dpcopula_kendall, sine": {"correlation": "sine"}}
DELTAS = {"sim50k": 1.9e-6, "hospital": 1.9e-6}
DELTA = 2.0**-30
TRIPLES, TRIPLE_SEED, PAIRS = 200, 7, 1000
MOST_CELLS = 2_000_000
"""Of a three-way table: where the largest has more, none is scored."""
NIST = ["AGEP", "SEX", "MSP", "RAC1P", "HOUSING_TYPE", "OWN_RENT", "EDU", "PINCP_DECILE", "DVET", "DEYE"]
ACS_EDGES = {
    "AGEP": list(range(0, 100, 5)),
    "DENSITY": [1400 + 100 * i for i in range(24)],
    "PINCP": [-5000, 1, 5000, 10000, 15000, 20000, 25000, 30000, 40000, 50000, 60000, 75000, 100000, 150000, 250000, 1500000],
    "POVPIP": [*range(0, 501, 50), 501, 502],
    "PWGTP": [1, 5, 10, 15, 20, 25, 30, 40, 50, 75, 100, 1003],
    "WGTP": [0, 1, 5, 10, 15, 20, 25, 30, 40, 50, 75, 100, 690],
}

# What two-way and three-way distances at epsilon = 1 should be at most (median of the seeds), and the seconds of 'balanced'.
GOALS = {
    "adult15": "two-way .0255, three-way .060, 10 s", "msnbc": "two-way .006, three-way .026, 30 s",
    "salary": "two-way .021, three-way .052", "hospital": "two-way .40", "small": "not above independent columns",
}

# Adult-15, epsilon = 1, delta = 2^-30, single runs on a shared machine of two cores:
# wall s, CPU s, TVD of one-, two-, three-way tables, one-way error average and maximum, two-way error average and maximum.
_NAN = float("nan")
PUBLISHED = {
    "SWIFT (dpsynth), clique size 1e5": (182, 307, 0.0077, 0.0319, 0.071, 33, 150, 9.4, 401),
    "AIM (mbi 2.0), 1 MB": (362, 509, 0.0072, 0.0337, 0.075, 31, 132, 9.9, 770),
    "MST (mbi)": (152, 123, 0.0056, 0.0455, 0.100, 24, 88, 13.4, 879),
    "MST (dpsynth)": (29, 40, 0.0090, 0.0485, 0.103, 39, 145, 14.3, 910),
    "MST (smartnoise-synth 1.0.8)": (111, _NAN, 0.0067, 0.126, 0.27, 29, 115, 37, 3247),
    "PrivBayes (dpmm)": (159, _NAN, 0.0188, 0.0708, 0.140, 81, 1170, 21, 1884),
    "rank copula, not private": (_NAN, _NAN, 0.0054, 0.0656, 0.147, 23, 158, 19, 6717),
    "independent columns, exact": (_NAN, _NAN, 0.0, 0.0819, 0.195, 0, 0, 24, 7103),
    "target": (10, _NAN, 0.0056, 0.0290, 0.068, 24, _NAN, 8.5, 400),
}


def shared_folder() -> Path:
    """Return the folder with the data, or leave with a message."""
    named = os.environ.get("DPSQL_SHARED")
    folder = Path(named) if named else Path(__file__).resolve().parents[3] / "shared"
    if not (folder / "data" / "adult.csv").exists():
        sys.exit(f"no data in {folder}: set DPSQL_SHARED to the folder that holds data/adult.csv")
    return folder


def binned(values: np.ndarray, edges: list[float]) -> np.ndarray:
    return np.clip(np.searchsorted(np.asarray(edges, float), values.astype(float), side="right") - 1, 0, len(edges) - 2)


@dataclass(frozen=True)
class Data:
    """A table: codes, number of codes of each attribute, and for numeric ones the bins' edges and the values as they were read."""

    codes: np.ndarray
    sizes: list[int]
    edges: dict[int, list[float]] = field(default_factory=dict)
    raw: dict[int, np.ndarray] = field(default_factory=dict)

    def domain(self) -> Domain:
        found = []
        for i, size in enumerate(self.sizes):
            if i in self.edges:
                edges = tuple(map(float, self.edges[i]))
                found.append(Attribute(f"a{i}", "BIGINT", "numeric", edges=edges, nullable=size >= len(edges)))
            else:
                found.append(Attribute(f"a{i}", "VARCHAR", "categorical", tuple(map(str, range(size))), nullable=False))
        return Domain(tuple(found))


def adult15() -> Data:
    folder = shared_folder() / "data"
    frame = pd.read_csv(folder / "adult.csv", keep_default_na=False)
    columns, sizes, bins, raw = [], [], {}, {}
    for column, spec in json.loads((folder / "adult_domain15.json").read_text()).items():
        if "categories" in spec:
            columns.append(frame[column].map({v: i for i, v in enumerate(spec["categories"])}).to_numpy(int))
            sizes.append(len(spec["categories"]))
            continue
        edges = spec.get("edges") or list(np.linspace(spec["lower"], spec["upper"], spec["bins"] + 1))
        bins[len(columns)], raw[len(columns)] = edges, frame[column].to_numpy(float)
        columns.append(binned(frame[column].to_numpy(), edges))
        sizes.append(len(edges) - 1)
    return Data(np.stack(columns, 1), sizes, bins, raw)


def ordered() -> Data:
    """Return the columns of Adult that are numbers or have two values."""
    data = adult15()
    kept = [i for i, size in enumerate(data.sizes) if i in data.edges or size == 2]
    edges, raw = ({new: given[old] for new, old in enumerate(kept) if old in given} for given in (data.edges, data.raw))
    return Data(data.codes[:, kept], [data.sizes[i] for i in kept], edges, raw)


def acs(names: list[str] | None = None) -> Data:
    """Return the Massachusetts excerpt: the values of its schema, numbers in the bins of ACS_EDGES."""
    folder = shared_folder() / "data"
    frame = pd.read_csv(folder / "acs_ma2018.csv", keep_default_na=False, dtype=str)
    schema, columns, sizes = json.loads((folder / "acs_ma2018.json").read_text())["schema"], [], []
    bins: dict[int, list[float]] = {}
    raw: dict[int, np.ndarray] = {}
    for column, spec in schema.items():
        if names is not None and column not in names:
            continue
        if column in ACS_EDGES:
            edges, missing = ACS_EDGES[column], (frame[column] == spec.get("null_value", "~")).to_numpy()
            codes = np.full(len(frame), len(edges) - 1)
            codes[~missing] = binned(frame[column].to_numpy()[~missing], edges)
            bins[len(columns)], raw[len(columns)] = edges, np.where(missing, np.nan, frame[column].where(~missing, "0").to_numpy(float))
            sizes.append(len(edges) - 1 + bool(spec.get("has_null")))
        else:
            codes = frame[column].map({str(v): i for i, v in enumerate(spec["values"])}).to_numpy(int)
            sizes.append(len(spec["values"]))
        columns.append(codes)
    return Data(np.stack(columns, 1), sizes, bins, raw)


def occurring(name: str) -> Data:
    """Return a table whose values are taken as its domain."""
    frame = pd.read_csv(shared_folder() / "data" / f"{name}.csv", keep_default_na=False, dtype=str)
    parts = [pd.factorize(frame[column], sort=True) for column in frame]
    return Data(np.stack([codes for codes, _ in parts], 1), [len(values) for _, values in parts])


def coded(name: str) -> Data:
    """Return a table of codes, with the number of codes of each column beside it."""
    folder = shared_folder() / "data"
    sizes = json.loads((folder / f"{name}.json").read_text())
    frame = pd.read_csv(folder / f"{name}.csv.gz")
    return Data(frame.to_numpy(int), [int(sizes[column]) for column in frame])


def small(rows: int = 1304) -> Data:
    """Return a few rows and nine columns of Adult-15, always the same."""
    whole = adult15()
    picked = np.random.default_rng(1).choice(len(whole.codes), rows, replace=False)
    columns = [0, 1, 3, 5, 6, 8, 9, 12, 13]
    return Data(whole.codes[picked][:, columns], [whole.sizes[i] for i in columns])


def wide(attributes: int = 100, rows: int = 30_000) -> Data:
    """Return a table whose attributes depend, to different degrees, on six normals; half of them in no order."""
    rng = np.random.default_rng(5)
    sizes, factors, columns = rng.integers(2, 11, attributes).tolist(), rng.standard_normal((rows, 6)), []
    for size in sizes:
        loadings = rng.standard_normal(6) * (rng.random(6) < 0.4) * rng.uniform(0, 1.5)
        latent = (factors @ loadings + rng.standard_normal(rows)) / np.sqrt(1 + loadings @ loadings)
        edges = np.quantile(latent, np.cumsum(rng.dirichlet(np.full(size, 1.5)))[:-1])
        codes = np.searchsorted(edges, latent)
        columns.append(rng.permutation(size)[codes] if rng.random() < 0.5 else codes)
    return Data(np.stack(columns, 1), sizes)


DATA = {
    "adult15": adult15, "ordered": ordered, "acs": acs, "nist": lambda: acs(NIST), "wide": wide,
    "hospital": lambda: occurring("hospital"), "sim50k": lambda: occurring("sim50k"),
    "msnbc": lambda: coded("msnbc"), "salary": lambda: coded("salary"), "small": small,
}


def table(codes: np.ndarray, clique: tuple[int, ...], sizes: list[int]) -> np.ndarray:
    shape = [sizes[i] for i in clique]
    return np.bincount(np.ravel_multi_index([codes[:, i] for i in clique], shape), minlength=int(np.prod(shape))).reshape(shape)


def _largest_triple(sizes: list[int]) -> int:
    return int(np.prod(sorted(sizes)[-3:]))


class Score:
    """Distances and count errors of rows, as the reference scorer computes them."""

    def __init__(self, data: Data) -> None:
        codes, sizes = data.codes, data.sizes
        self.rows, self.sizes, self.domain = len(codes), sizes, data.domain()
        self.ranks = rank_correlations(data.raw)
        self.exact = []
        for k in (1, 2, 3):
            cliques = list(itertools.combinations(range(len(sizes)), k))
            most = {1: len(cliques), 2: PAIRS, 3: TRIPLES if _largest_triple(sizes) <= MOST_CELLS else 0}[k]
            if len(cliques) > most or k == 3:
                picked = np.random.default_rng(TRIPLE_SEED).choice(len(cliques), min(most, len(cliques)), replace=False)
                cliques = [cliques[i] for i in picked]
            self.exact.append({clique: table(codes, clique, sizes) for clique in cliques})

    def __call__(self, codes: np.ndarray) -> list[float]:
        """Return TVD of 1-, 2-, 3-way tables, average and maximum error of 1- and 2-way tables, largest deviation of a rank correlation,
        then every pair's deviation.
        """
        distances, errors = [], []
        for exact in self.exact:
            found = [np.abs(t - table(codes, c, self.sizes) * (self.rows / len(codes))) for c, t in exact.items()]
            distances.append(float(np.mean([e.sum() / 2 / self.rows for e in found])) if found else float("nan"))
            cells = np.concatenate([e.ravel() for e in found]) if found else np.array([np.nan])
            errors += [float(cells.mean()), float(cells.max())]
        deviations = [abs(deviation) for deviation in self.deviations(codes).values()]
        return [*distances, *errors[:4], max(deviations, default=float("nan")), *deviations]

    def deviations(self, codes: np.ndarray) -> dict[tuple[int, int], float]:
        """Return by how much rank correlations of the values as they would be written differ from those that were read."""
        values, rng = {}, np.random.default_rng(TRIPLE_SEED)
        for i in sorted({i for pair in self.ranks for i in pair}):
            attribute = self.domain.attributes[i]
            written = Decoder(attribute, "v").arrays(codes[:, i], rng)["v"]
            values[i] = np.where(codes[:, i] < attribute.values, np.asarray(written, float), np.nan)
        found = rank_correlations(values)
        return {pair: found[pair] - exact for pair, exact in self.ranks.items()}


def rank_correlations(values: dict[int, np.ndarray]) -> dict[tuple[int, int], float]:
    """Return Spearman's correlation of every two columns, over the rows that have both values."""
    found = {}
    for i, j in itertools.combinations(sorted(values), 2):
        both = ~(np.isnan(values[i]) | np.isnan(values[j]))
        found[i, j] = float(np.corrcoef(rankdata(values[i][both]), rankdata(values[j][both]))[0, 1])
    return found


def measure(data: Data, plan: MeasurementPlan, epsilon: float, delta: float) -> tuple[Statistics, float]:
    """Count, and release what a plan of this price releases; return the seconds of the noise too."""
    exact = {clique: table(data.codes, clique, data.sizes).astype(np.int64) for clique in plan.cliques}
    start = time.perf_counter()
    weights = [*plan.weights, *plan.coarse_weights]
    found = calibrate(
        mechanism="gaussian", tables=len(weights), epsilon=epsilon, delta=delta, neighbors="add_remove",
        weights=weights if len(set(weights)) > 1 else None,
    )
    planned = Plan(data.domain(), plan.cliques, found.scales, "gaussian", False, None, {}, coarse=plan.coarse)
    return as_statistics(planned, released(planned, exact), None), time.perf_counter() - start


def measure_drawn(method: DpcopulaKendall, data: Data, epsilon: float, options: dict[str, str]) -> tuple[Statistics, float]:
    """Count, and let the method draw what it releases of a table whose number of rows is public."""
    domain = data.domain()
    exact = {clique: table(data.codes, clique, data.sizes).astype(np.int64) for clique in method.plan(domain, options).cliques}
    start = time.perf_counter()
    price = method.price(domain, Contract("replace_one", 1, True), Fraction(repr(epsilon)), options)
    blocks = method.draw(Counted(exact, len(data.codes)), domain, price.parameters, options)
    found = Statistics(domain.sizes, {}, {}, "laplace", len(data.codes), tuple(blocks), domain, price.parameters)
    return found, time.perf_counter() - start


def independent(statistics: Statistics, rng: np.random.Generator) -> np.ndarray:
    """Return columns drawn one by one from noisy one-way tables."""
    tables = consistent_tables(statistics)
    return np.stack([rng.choice(p.size, max(round(tables.total), 1), p=p) for p in tables.one_way], 1)


def one_run(name: str, data: Data, epsilon: float, delta: float, seed: int, options: dict | None = None) -> tuple[np.ndarray, float, float]:
    """Return rows, wall seconds and CPU seconds."""
    rng, codes = np.random.default_rng(seed), data.codes
    if name == "resampling":
        return codes[rng.integers(0, len(codes), len(codes))], float("nan"), float("nan")
    if name == "independent":
        singles = tuple((i,) for i in range(len(data.sizes)))
        statistics, _ = measure(data, MeasurementPlan(singles, (1.0,) * len(singles)), epsilon, delta)
        return independent(statistics, rng), float("nan"), float("nan")
    if name in DRAWN:
        method, options = DpcopulaKendall(), DRAWN[name]
        statistics, seconds = measure_drawn(method, data, epsilon, options)
    else:
        method, options = METHODS[name], options if name == "latent_class" and options else {}
        statistics, seconds = measure(data, method.plan(data.domain(), options), epsilon, delta)
    wall, cpu = time.perf_counter(), time.process_time()
    model = method.fit(statistics, options)
    rows = np.concatenate(list(method.sample(model, max(method.total(model), 1), rng)))
    return rows, time.perf_counter() - wall + seconds, time.process_time() - cpu + seconds


HEAD = f"{'':36s}{'wall s':>8s}{'CPU s':>8s}{'1-way':>8s}{'2-way':>8s}{'3-way':>8s}{'1: ave':>8s}{'max':>7s}{'2: ave':>8s}{'max':>7s}{'ranks':>8s}{'worst':>8s}"


def line(name: str, figures) -> str:
    wall, cpu, one, two, three, a, b, c, d, worst, *pairs = figures
    ranks = max(pairs, default=float("nan"))
    text = f"{name:36s}{wall:8.1f}{cpu:8.1f}{one:8.4f}{two:8.4f}{three:8.4f}{a:8.1f}{b:7.0f}{c:8.2f}{d:7.0f}{ranks:8.3f}{worst:8.3f}"
    return text.replace("nan", "  -")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", choices=DATA, nargs="+", default=["adult15"])
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1.0])
    parser.add_argument("--seeds", type=int, default=5)
    every = [*METHODS, *DRAWN, "independent", "resampling"]
    parser.add_argument("--methods", nargs="+", choices=every, default=every)
    parser.add_argument("--effort", choices=["fast", "balanced", "best"], default="balanced", help="of latent_class")
    arguments = parser.parse_args()
    for data in arguments.data:
        given = DATA[data]()
        codes, sizes = given.codes, given.sizes
        score, delta = Score(given), DELTAS.get(data, DELTA)
        for epsilon in arguments.epsilon:
            print(f"\n{data}: {len(codes)} rows, {len(sizes)} attributes, {sum(sizes)} columns; epsilon {epsilon:g}, delta {delta:.2g}")
            print(HEAD)
            for name in arguments.methods:
                runs = []
                for seed in range(arguments.seeds):
                    rows, wall, cpu = one_run(name, given, epsilon, delta, seed, {"effort": arguments.effort})
                    runs.append([wall, cpu, *score(rows)])
                middle = np.median(runs, axis=0)
                nist = f"   k-marginal {1000 * (1 - middle[3]):.0f}" if data == "nist" else ""
                print(line(name, middle) + nist, flush=True)
            if data in GOALS and epsilon == 1.0:
                print(f"{'goal':36s}{GOALS[data]}")
            if data == "nist":
                picks = [np.random.default_rng(s).choice(len(codes), round(0.4 * len(codes)), replace=False) for s in range(arguments.seeds)]
                middle = np.median([[np.nan, np.nan, *score(codes[p])] for p in picks], axis=0)
                print(line("40 % subsample, no privacy", middle) + f"   k-marginal {1000 * (1 - middle[3]):.0f}")
            if data == "adult15" and epsilon == 1.0:
                for name, figures in PUBLISHED.items():
                    print(line(name, (*figures, _NAN, 0.03 if name == "target" else _NAN)))
    print(f"\npeak memory of the whole run: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


if __name__ == "__main__":
    main()
