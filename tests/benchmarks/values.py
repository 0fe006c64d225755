"""Values of synthetic tables: distributions, group means and quartiles of numeric columns of which only bounds were declared.

    python tests/benchmarks/values.py [--data adult ce acs visits] [--roads automatic equal hand peer floor] [--seeds 5] [--epsilon 1]

Everything goes through SQL: dp_declare with ``lower := 0, upper := 1.25 max`` (rounded, as someone would who knows the order of
magnitude), one dp_synthesize over all columns with the default method. Roads: ``automatic`` bins; ``equal``: 20 bins of equal width
and no fine histogram, what dpsql did before; ``hand``: edges made by hand where there are some, with fine histograms; ``peer``: dpmm,
MST over PrivTree bins with the same bounds, run by the Python that DPSQL_PEER names (an environment of its own). ``floor``: no table is
made; of columns that are mostly one value, what the noise of the pair tables alone leaves of a mean by group if of all other values the
mean is known, and only their number in the group comes from the table: as it is released, and drawn to the mean of all groups by what
would be best if one knew how far groups are from it (the spread of the true means).

Printed, medians over the seeds: KS distance of each numeric column; median and largest relative error of its mean by group, over the
groups of the named columns with at least 1 % (visits: 2 %) of the rows; the largest error of its quartiles by group, median over the
groups, in interquartile ranges of the column (in units of its standard deviation where that range is 0); total variation distance of
two- and three-way tables (200 triples) over bins made by hand, or 20 equal ones.

The data are not part of the project, see accuracy.py; ``visits`` is made here: 200,000 rows, lognormal cost by ward, spikes, dates.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
from accuracy import ACS_EDGES, shared_folder

import dpsql

DELTA = 1e-9
GOALS = {
    "age": 0.03, "fnlwgt": 0.03, "hours-per-week": 0.03, "education-num": 0.03, "capital-loss": 0.12, "capital-gain": 0.25,
    "cost": 0.05,
}


@dataclass(frozen=True)
class Study:
    """A table with the bounds of its numeric columns, edges made by hand, and the columns whose groups are compared."""

    frame: pd.DataFrame
    bounds: dict[str, tuple[float, float] | tuple[str, str]]
    groups: list[str]
    hand: dict[str, list[float]] = field(default_factory=dict)
    least: float = 0.01
    unit: str | None = None


def adult() -> Study:
    folder = shared_folder() / "data"
    frame = pd.read_csv(folder / "adult.csv", keep_default_na=False)
    spec = json.loads((folder / "adult_domain15.json").read_text())
    numeric = [c for c in frame.columns if frame[c].dtype.kind in "if"]
    bounds = {c: (0.0, float(int(1.25 * frame[c].max()))) for c in numeric}
    hand = {c: [float(e) for e in spec[c]["edges"]] for c in numeric}
    return Study(frame[list(spec)], bounds, ["sex", "education", "race", "occupation", "income"], hand)


def ce() -> Study:
    frame = pd.read_csv(shared_folder() / "data" / "ce.csv")
    frame[["UrbanRural", "Race"]] = frame[["UrbanRural", "Race"]].astype(str)
    bounds = {c: (0.0, float(int(1.25 * frame[c].max()))) for c in ("Income", "Expenditure")}
    return Study(frame, bounds, ["UrbanRural", "Race"])


def acs() -> Study:
    frame = pd.read_csv(shared_folder() / "data" / "acs_ma2018.csv", dtype=str, keep_default_na=False)
    frame = frame[["AGEP", "SEX", "MSP", "RAC1P", "EDU", "OWN_RENT", "DVET", "PINCP", "PWGTP"]].copy()
    for column in ("AGEP", "PINCP", "PWGTP"):
        frame[column] = pd.to_numeric(frame[column], errors="coerce")
    bounds = {"AGEP": (0.0, 120.0), "PINCP": (-20_000.0, 2_000_000.0), "PWGTP": (0.0, 1_250.0)}
    hand = {c: [float(e) for e in ACS_EDGES[c]] for c in bounds}
    return Study(frame, bounds, ["SEX", "MSP", "RAC1P", "EDU", "OWN_RENT"], hand)


def visits() -> Study:
    rng = np.random.default_rng(13)
    n = 200_000
    wards = np.asarray(["surgery", "medicine", "maternity", "paediatrics", "psychiatry", "emergency", "oncology", "geriatrics"])
    ward = rng.choice(8, n, p=[0.22, 0.25, 0.08, 0.1, 0.05, 0.2, 0.04, 0.06])
    middle = np.asarray([7.2, 6.0, 6.6, 5.4, 6.3, 5.2, 8.0, 6.5])[ward]
    cost = np.round(np.exp(rng.normal(middle, 0.9)), 2)
    cost[rng.random(n) < 0.08] = 0.0
    cost[(ward == 5) & (rng.random(n) < 0.25)] = 75.0
    stay = np.minimum(rng.geometric(np.asarray([0.2, 0.25, 0.4, 0.5, 0.05, 0.8, 0.12, 0.1])[ward]) - 1, 400)
    age = np.clip(rng.normal(np.asarray([50, 60, 30, 8, 42, 45, 62, 80])[ward], 10), 0, 110).astype(int)
    day = pd.Timestamp("2021-01-01") + pd.to_timedelta(np.floor(1460 * rng.random(n) ** 0.7), unit="D")
    frame = pd.DataFrame({
        "patient": rng.integers(0, 120_000, n), "ward": wards[ward],
        "sex": np.where(ward == 2, "F", rng.choice(["F", "M"], n)), "age": age, "cost": cost, "stay": stay, "visit_on": day,
    })
    bounds = {"age": (0.0, 120.0), "cost": (0.0, 100_000.0), "stay": (0.0, 500.0), "visit_on": ("2020-01-01", "2026-01-01")}
    return Study(frame, bounds, ["ward", "sex"], least=0.02, unit="patient")


STUDIES: dict[str, Callable[[], Study]] = {"adult": adult, "ce": ce, "acs": acs, "visits": visits}


def declare(con: duckdb.DuckDBPyConnection, study: Study, road: str) -> None:
    for column in study.frame.columns:
        if column == study.unit:
            continue
        if column not in study.bounds:
            categories = sorted(map(str, study.frame[column].unique()))
            con.execute("CALL dp_declare('t', ?, categories := ?, nullable := false)", [column, categories])
            continue
        nullable = bool(study.frame[column].isna().any())
        if road == "hand" and column in study.hand:
            con.execute("CALL dp_declare('t', ?, edges := ?, nullable := ?)", [column, study.hand[column], nullable])
            continue
        bins = ", bins := 20" if road == "equal" else ""
        low, high = study.bounds[column]
        con.execute(f"CALL dp_declare('t', ?, lower := ?, upper := ?, nullable := ?{bins})", [column, low, high, nullable])


def ours(study: Study, road: str, epsilon: float, folder: str) -> tuple[pd.DataFrame, float]:
    con = duckdb.connect()
    dpsql.load(con, store=folder)
    raw = study.frame  # noqa: F841 -- DuckDB reads it by name
    con.execute("CREATE TABLE t AS SELECT * FROM raw")
    unit = f", privacy_unit := '{study.unit}', max_contributions := 1" if study.unit else ""
    con.execute(f"CALL dp_protect('t', epsilon := ?, delta := ?{unit})", [max(2 * epsilon, 1.0), DELTA])
    declare(con, study, road)
    options = ", options := {'fine': 0}" if road == "equal" else ""
    start = time.perf_counter()
    found = con.execute(f"FROM dp_synthesize('t', epsilon := {epsilon}{options})").fetchdf()
    seconds = time.perf_counter() - start
    con.close()
    return found, seconds


def peer(study: Study, epsilon: float) -> tuple[pd.DataFrame, float]:
    with tempfile.TemporaryDirectory() as folder:
        frame = study.frame.drop(columns=[study.unit] if study.unit else [])
        days = [c for c in frame if str(frame[c].dtype).startswith("datetime")]
        for column in days:
            frame[column] = (frame[column] - pd.Timestamp("1970-01-01")).dt.days
        frame.to_csv(f"{folder}/raw.csv", index=False)
        domain: dict[str, object] = {}
        for column in frame:
            if column in study.bounds:
                low, high = ((pd.Timestamp(end) - pd.Timestamp("1970-01-01")).days if column in days else end
                             for end in study.bounds[column])
                domain[column] = {"lower": low, "upper": high}
            else:
                domain[column] = {"categories": sorted(map(str, frame[column].unique()))}
        Path(f"{folder}/domain.json").write_text(json.dumps(domain))
        script = Path(__file__).with_name("values_peer.py")
        start = time.perf_counter()
        subprocess.run([os.environ["DPSQL_PEER"], str(script), folder, str(epsilon), str(DELTA)], check=True)
        seconds = time.perf_counter() - start
        found = pd.read_csv(f"{folder}/synthetic.csv", keep_default_na=False, dtype={c: str for c in frame if c not in study.bounds})
        for column in study.bounds:
            found[column] = pd.to_numeric(found[column], errors="coerce")
        for column in days:
            found[column] = pd.Timestamp("1970-01-01") + pd.to_timedelta(found[column].astype(float), unit="D")
        return found, seconds


def floor(study: Study, column: str, epsilon: float) -> tuple[float, float] | None:
    """Return the median relative error of group means that noise on one cell alone makes, as released and shrunk; None of other columns."""
    raw = numbers(study.frame[column])
    usual = pd.Series(raw).mode()[0]
    rest = raw[raw != usual]
    if rest.size > raw.size / 2 or np.isnan(raw).any():
        return None
    con = duckdb.connect()
    dpsql.load(con)
    held = study.frame  # noqa: F841 -- DuckDB reads it by name
    con.execute("CREATE TABLE t AS SELECT * FROM held")
    con.execute("CALL dp_protect('t', epsilon := ?, delta := ?)", [max(2 * epsilon, 1.0), DELTA])
    declare(con, study, "automatic")
    [(scale,)] = con.execute(f"SELECT noise_scale FROM dp_plan('t', epsilon := {epsilon})").fetchall()
    con.close()
    groups = [(study.frame[group] == value).to_numpy() for group in study.groups for value in sorted(study.frame[group].unique())]
    groups = [mine for mine in groups if mine.sum() >= study.least * raw.size]
    means, sizes = np.asarray([raw[mine].mean() for mine in groups]), np.asarray([mine.sum() for mine in groups])
    deviation = scale * abs(rest.mean() - usual) / sizes
    noise = np.random.default_rng(5).standard_normal((4_000, sizes.size)) * deviation
    spread = ((means - raw.mean()) ** 2).mean()
    drawn = raw.mean() + spread / (spread + deviation**2) * (means + noise - raw.mean())
    direct, shrunk = (float(np.median(np.median(np.abs(off) / np.abs(means), axis=1))) for off in (noise, drawn - means))
    return direct, shrunk


def numbers(values: pd.Series) -> np.ndarray:
    if str(values.dtype).startswith("datetime"):
        return (values - pd.Timestamp("1970-01-01")).dt.total_seconds().to_numpy(float) / 86_400
    return pd.to_numeric(values, errors="coerce").to_numpy(float)


def ks(one: np.ndarray, other: np.ndarray) -> float:
    a, b = np.sort(one[~np.isnan(one)]), np.sort(other[~np.isnan(other)])
    both = np.union1d(a, b)
    return float(np.abs(np.searchsorted(a, both, "right") / a.size - np.searchsorted(b, both, "right") / max(b.size, 1)).max())


def scores(study: Study, column: str, found: pd.DataFrame) -> tuple[float, float, float, float]:
    """Return KS distance, median and largest relative error of group means, and the median error of group quartiles."""
    raw, made = numbers(study.frame[column]), numbers(found[column])
    first, last = np.nanquantile(raw, [0.25, 0.75])
    spread = last - first or float(np.nanstd(raw))
    means, quartiles = [], []
    for group in study.groups:
        labels, other = study.frame[group].astype(str).to_numpy(), found[group].astype(str).to_numpy()
        for value in sorted(set(labels)):
            mine = raw[labels == value]
            if mine.size < study.least * len(study.frame) or np.isnan(mine).all():
                continue
            theirs = made[other == value]
            theirs = theirs[~np.isnan(theirs)]
            if theirs.size == 0:
                theirs = np.zeros(1)
            mean = np.nanmean(mine)
            means.append(abs(theirs.mean() - mean) / abs(mean))
            error = np.abs(np.nanquantile(mine, [0.25, 0.5, 0.75]) - np.quantile(theirs, [0.25, 0.5, 0.75]))
            quartiles.append(error.max() / spread)
    return ks(raw, made), float(np.median(means)), float(np.max(means)), float(np.median(quartiles))


def distances(study: Study, found: pd.DataFrame) -> tuple[float, float]:
    """Return total variation distances of two- and three-way tables over bins made by hand, or 20 equal ones."""
    columns = [c for c in study.frame if c != study.unit]
    codes: list[tuple[np.ndarray, np.ndarray]] = []
    for column in columns:
        if column in study.bounds:
            low, high = numbers(pd.Series(pd.to_datetime(list(study.bounds[column])) if isinstance(study.bounds[column][0], str)
                                          else list(study.bounds[column])))
            edges = np.asarray(study.hand.get(column) or np.linspace(low, high, 21))
            both = []
            for frame in (study.frame, found):
                values = numbers(frame[column])
                place = np.clip(np.searchsorted(edges, values, "right") - 1, 0, edges.size - 2)
                both.append(np.where(np.isnan(values), edges.size - 1, place))
        else:
            known = sorted(map(str, study.frame[column].unique()))
            both = [pd.Categorical(frame[column].astype(str), known).codes.astype(int) + 1 for frame in (study.frame, found)]
        codes.append((both[0], both[1]))
    sizes = [int(max(a.max(), b.max())) + 1 for a, b in codes]

    def distance(clique: tuple[int, ...]) -> float:
        cells = int(np.prod([sizes[i] for i in clique]))
        shares = []
        for side in (0, 1):
            index = np.ravel_multi_index([codes[i][side] for i in clique], [sizes[i] for i in clique])
            shares.append(np.bincount(index, minlength=cells) / index.size)
        return 0.5 * float(np.abs(shares[0] - shares[1]).sum())

    pairs = list(itertools.combinations(range(len(columns)), 2))
    triples = list(itertools.combinations(range(len(columns)), 3))
    chosen = [triples[i] for i in np.random.default_rng(7).permutation(len(triples))[:200]]
    return float(np.mean([distance(p) for p in pairs])), float(np.mean([distance(t) for t in chosen]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", choices=STUDIES, default=list(STUDIES))
    parser.add_argument("--roads", nargs="+", choices=("automatic", "equal", "hand", "peer", "floor"), default=("automatic", "equal", "hand"))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epsilon", type=float, default=1.0)
    given = parser.parse_args()
    for name in given.data:
        study = STUDIES[name]()
        print(f"\n{name}: {len(study.frame):,} rows, epsilon {given.epsilon}, delta {DELTA}, {given.seeds} seeds")
        print(f"{'road':10} {'column':16} {'KS':>7} {'mean':>7} {'goal':>6} {'worst':>7} {'quartiles':>9}")
        for road in given.roads:
            if road == "peer" and "DPSQL_PEER" not in os.environ:
                print("peer: DPSQL_PEER names no Python", file=sys.stderr)
                continue
            if road == "floor":
                for column in study.bounds:
                    limit = floor(study, column, given.epsilon)
                    if limit is not None:
                        print(f"{road:10} {column:16} mean {limit[0]:.3f} as released, {limit[1]:.3f} shrunk", flush=True)
                continue
            runs, seconds, tables = [], [], []
            for _ in range(given.seeds):
                with tempfile.TemporaryDirectory() as folder:
                    found, took = peer(study, given.epsilon) if road == "peer" else ours(study, road, given.epsilon, folder)
                runs.append([scores(study, column, found) for column in study.bounds])
                seconds.append(took)
                tables.append(distances(study, found))
            for column, (far, mean, worst, quartile) in zip(study.bounds, np.median(runs, axis=0), strict=True):
                goal = GOALS.get(column, float("nan")) if name in ("adult", "visits") else float("nan")
                print(f"{road:10} {column:16} {far:7.4f} {mean:7.4f} {goal:6.2f} {worst:7.3f} {quartile:9.4f}", flush=True)
            two, three = np.median(tables, axis=0)
            print(f"{road:10} tables: {two:.4f} / {three:.4f}, {np.median(seconds):.1f} s", flush=True)


if __name__ == "__main__":
    main()
