"""Made-up patients and their visits, in whose order first visits, next visits and the time between them are known to differ.

python tests/benchmarks/visits.py [--patients 20000] [--epsilon 1] [--seed 1] [--seeds 1]

A patient's first visit is a check-up more often than any later one, what a visit is for follows from the one before, and a visit
comes a week, a month or a quarter after it as that says. Prints the errors of `dp_evaluate` of two synthetic databases of the same
rows: from a link without an order, and with one.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd

sys.path[:0] = [str(path) for path in (Path(__file__).parents[2], Path(__file__).parents[1])]

import dpsql  # noqa: E402

REASONS = ("check-up", "acute", "follow-up", "chronic", "other")
FIRST = np.array([0.55, 0.25, 0.02, 0.08, 0.1])
AFTER = np.array([
    [0.45, 0.2, 0.05, 0.1, 0.2], [0.05, 0.1, 0.7, 0.05, 0.1], [0.25, 0.1, 0.45, 0.1, 0.1], [0.02, 0.05, 0.03, 0.85, 0.05],
    [0.3, 0.25, 0.05, 0.1, 0.3],
])  # fmt: skip
WAIT = np.array([200.0, 7.0, 14.0, 90.0, 120.0])
"""Mean days after a visit of each kind."""
DAYS, MOST = 1461, 12
DECLARE = {
    "patients": {"sex": "categories := ['f', 'm'], nullable := false", "born": "lower := 1920, upper := 2020, bins := 10, nullable := false"},
    "visits": {
        "day": "lower := '2020-01-01', upper := '2023-12-31', bins := 16, nullable := false",
        "reason": f"categories := {list(REASONS)!r}, nullable := false",
        "ward": "categories := ['a', 'b', 'c', 'd'], nullable := false",
        "cost": "lower := 0, upper := 500, bins := 8, nullable := false",
    },
}


def made(patients: int, seed: int = 1) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return patients and their visits, in no order."""
    rng = np.random.default_rng(seed)
    old = rng.random(patients) < 0.4
    number = np.minimum(rng.poisson(np.where(old, 5.0, 2.0)), MOST)
    ward = rng.integers(0, 4, patients)
    day = rng.uniform(0, DAYS / 2, patients)
    reason = _drawn(np.where(old[:, None], FIRST * [0.6, 1, 1, 4, 1], FIRST), rng)
    rows = []
    for j in range(MOST):
        here = np.flatnonzero((number > j) & (day < DAYS))
        cost = np.clip(rng.gamma(2.0, [40.0, 60.0, 20.0, 80.0, 30.0][0] * (1.0 + reason[here] % 3)), 0, 500)
        moved = rng.random(here.size) < 0.2
        place = np.where(moved, rng.integers(0, 4, here.size), ward[here])
        rows.append(pd.DataFrame({"patient": here, "day": day[here].astype(int), "reason": reason[here], "ward": place, "cost": cost}))
        day = day + rng.gamma(4.0, WAIT[reason] / 4.0)
        reason = _drawn(AFTER[reason], rng)
    visits = pd.concat(rows).sample(frac=1.0, random_state=seed).reset_index(drop=True)
    people = pd.DataFrame({"sex": rng.integers(0, 2, patients), "born": np.where(old, 1920, 1970) + rng.integers(0, 50, patients)})
    return people, visits


def _drawn(shares: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    sums = np.cumsum(shares / shares.sum(1, keepdims=True), 1)
    return np.minimum((rng.random(len(shares))[:, None] > sums).sum(1), shares.shape[1] - 1)


def create(con: duckdb.DuckDBPyConnection, patients: int, seed: int = 1) -> None:
    """Make patients and visits."""
    people, rows = made(patients, seed)
    con.register("people_frame", people)
    con.register("visits_frame", rows)
    con.execute("CREATE TABLE patients (patient INTEGER PRIMARY KEY, sex VARCHAR, born SMALLINT)")
    con.execute("INSERT INTO patients SELECT row_number() OVER () - 1, ['f', 'm'][sex + 1], born FROM people_frame")
    con.execute("CREATE TABLE visits (visit INTEGER PRIMARY KEY, patient INTEGER, day DATE, reason VARCHAR, ward VARCHAR, cost DOUBLE)")
    con.execute(
        f"INSERT INTO visits SELECT row_number() OVER (), patient, DATE '2020-01-01' + day::INTEGER, {list(REASONS)!r}[reason + 1], "
        "['a', 'b', 'c', 'd'][ward + 1], cost FROM visits_frame"
    )
    con.unregister("people_frame")
    con.unregister("visits_frame")


def protected(con: duckdb.DuckDBPyConnection, *, order: bool, epsilon: float = 900.0) -> None:
    """Protect, declare and link both."""
    dpsql.load(con, user="tester")
    dpsql.protect(con, "patients", epsilon=epsilon, delta=1e-6, privacy_unit="patient", max_contributions=1)
    by = ", order_by := 'day'" if order else ""
    con.execute(f"CALL dp_link('visits', 'patient', parent := 'patients', parent_column := 'patient', max_rows := {MOST}{by})")
    for table, columns in DECLARE.items():
        for name, how in columns.items():
            con.execute(f"CALL dp_declare('{table}', '{name}', {how})")

def errors(patients: int, epsilon: float, seed: int, *, order: bool) -> dict[str, tuple[float, float | None]]:
    """Return mean error, and that of independence, by measure."""
    with duckdb.connect() as con:
        create(con, patients, seed)
        protected(con, order=order)
        cpu = time.process_time()
        con.execute(f"FROM dp_synthesize_tables('patients', epsilon := {epsilon}, delta := 1e-9, into_schema := 'synth')")
        cpu = time.process_time() - cpu
        if not order:  # the same measures of both
            con.execute("CALL dp_link('visits', order_by := 'day')")
        rows = con.execute("SELECT measure, error, independent, raw, synthetic FROM dp_evaluate('patients', 'synth') WHERE level = 'summary'").fetchall()
        between = con.execute("SELECT raw, synthetic FROM dp_evaluate('patients', 'synth') WHERE measure = 'time between' AND level = 'columns'").fetchone()
    print("with an order" if order else "without one  ", *(f"{name} {error:.4f}" for name, error, *_ in rows), f"mean days {between}", f"CPU {cpu:.1f} s", sep=", ")
    return {name: (error, independent) for name, error, independent, *_ in rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--patients", type=int, default=20_000)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=1)
    chosen = parser.parse_args()
    for seed in range(chosen.seed, chosen.seed + chosen.seeds):
        for order in (False, True):
            found = errors(chosen.patients, chosen.epsilon, seed, order=order)
        print("independent", {name: round(value, 4) for name, (_, value) in found.items() if value is not None})


if __name__ == "__main__":
    main()
