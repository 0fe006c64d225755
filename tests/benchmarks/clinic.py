"""A made-up clinic: patients <- visits <- procedures, and patients <- prescriptions, with what real tables have.

Keys that are UUIDs and texts, DECIMAL, BOOLEAN, DATE and TIMESTAMP columns, NULLs, rare categories, spikes, heavy tails, many
patients without a visit and a few with many. What is planted: how ill somebody is decides the numbers of visits and of
prescriptions, wards and costs; the region the ward; smoking and age the drug; urgent visits cost more and have more procedures,
whose codes follow the ward; brothers and sisters among visits are mostly on one ward.
"""

from __future__ import annotations

import duckdb
import numpy as np
import pandas as pd
from planted_data import pick

REGIONS = ["North", "South", "East", "West", "Isles", "Abroad"]
WARDS = ["surgery", "medicine", "children", "heart", "eyes", "skin", "burns", "hospice"]
CODES = [f"P{i:02d}" for i in range(16)]
DRUGS = ["statin", "insulin", "opioid", "antibiotic", "inhaler", "vitamin", "vaccine", "thalidomide"]
VISITS, PROCEDURES, PRESCRIPTIONS = 30, 6, 15
DECLARED = {
    "patients": {
        "sex": "categories := ['f', 'm', 'x']",
        "born": "lower := '1920-01-01', upper := '2025-01-01'",
        "region": f"categories := {REGIONS!r}",
        "insured": "categories := [false, true]",
        "smoker": "categories := [false, true]",
        "income": "lower := 0, upper := 1000000",
        "bmi": "lower := 10, upper := 60",
    },
    "visits": {
        "visit_at": "lower := '2020-01-01', upper := '2025-01-01'",
        "ward": f"categories := {WARDS!r}",
        "urgent": "categories := [false, true]",
        "cost": "lower := 0, upper := 100000",
        "paid": "lower := 0, upper := 100000",
        "nights": "lower := 0, upper := 60",
    },
    "procedures": {
        "code": f"categories := {CODES!r}",
        "minutes": "lower := 0, upper := 600",
        "result": "lower := -5, upper := 5",
    },
    "prescriptions": {
        "drug": f"categories := {DRUGS!r}",
        "daily": "lower := 0, upper := 200",
        "started": "lower := '2020-01-01', upper := '2025-01-01'",
        "repeats": "lower := 0, upper := 24",
    },
}
TYPES = """
CREATE TABLE patients (patient_id UUID PRIMARY KEY, sex VARCHAR NOT NULL, born DATE, region VARCHAR, insured BOOLEAN NOT NULL,
    smoker BOOLEAN, income DECIMAL(10, 2), bmi DOUBLE);
CREATE TABLE visits (visit_id VARCHAR PRIMARY KEY, patient_id UUID NOT NULL REFERENCES patients (patient_id), visit_at TIMESTAMP NOT NULL,
    ward VARCHAR, urgent BOOLEAN, cost DECIMAL(10, 2), paid DECIMAL(10, 2), nights SMALLINT);
CREATE TABLE procedures (procedure_id BIGINT PRIMARY KEY, visit_id VARCHAR REFERENCES visits (visit_id), code VARCHAR, minutes INTEGER,
    result DOUBLE);
CREATE TABLE prescriptions (patient_id UUID NOT NULL REFERENCES patients (patient_id), drug VARCHAR NOT NULL, daily DECIMAL(6, 3),
    started DATE, repeats UTINYINT);
"""


def _missing(values: np.ndarray, share: float, rng: np.random.Generator) -> pd.Series:
    found = pd.Series(values).astype(object)
    found[rng.random(len(found)) < share] = None
    return found


def create(con: duckdb.DuckDBPyConnection, patients: int = 150_000, seed: int = 1) -> None:
    """Make the four tables."""
    rng, n = np.random.default_rng(seed), patients
    ill = rng.choice(3, n, p=[0.55, 0.33, 0.12])
    region = rng.choice(6, n, p=[0.4, 0.3, 0.18, 0.1, 0.017, 0.003])
    age = np.clip(rng.normal(38 + 14 * ill, 18, n), 0, 100)
    smoker = rng.random(n) < 0.15 + 0.15 * (ill == 2)
    income = np.where(rng.random(n) < 0.3, 0.0, np.round(np.exp(rng.normal(10 - 0.3 * ill, 0.8, n)), 2))
    keys = np.array([f"{value:032x}" for value in rng.permutation(n) * 7919 + 10**12])
    frames = {}
    frames["patients"] = pd.DataFrame({
        "patient_id": keys, "sex": rng.choice(["f", "m", "x"], n, p=[0.51, 0.485, 0.005]),
        "born": _missing((np.datetime64("2025-01-01") - (age * 365.25).astype("timedelta64[D]")).astype(str), 0.03, rng),
        "region": np.array(REGIONS)[region], "insured": rng.random(n) < 0.9 - 0.3 * (region == 5),
        "smoker": _missing(smoker, 0.1, rng), "income": np.minimum(income, 999_999.0),
        "bmi": _missing(np.round(np.clip(rng.normal(24 + 2 * ill, 4, n), 12, 55), 1), 0.2, rng),
    })  # fmt: skip
    calls = np.minimum(rng.negative_binomial(0.7, 0.7 / (0.7 + np.array([0.8, 2.5, 8.0])[ill])), VISITS)
    home = pick(np.array([[3, 5, 2, 1, 1, 1, 0.05, 0.01], [2, 6, 1, 3, 1, 1, 0.1, 0.05], [4, 4, 0.2, 6, 1, 0.5, 0.4, 1.0]])[ill]
                * np.where(region[:, None] == 1, [1, 1, 1, 3, 1, 1, 1, 1], 1), rng)  # fmt: skip
    who = np.repeat(np.arange(n), calls)
    m = who.size
    ward = np.where(rng.random(m) < 0.65, home[who], rng.choice(8, m, p=[0.2, 0.35, 0.12, 0.15, 0.08, 0.07, 0.02, 0.01]))
    urgent = rng.random(m) < np.array([0.1, 0.2, 0.5])[ill[who]]
    cost = np.round(np.exp(rng.normal(5 + 0.9 * urgent + 0.5 * (ward == 3), 1.1, m)), 2)
    kind = rng.random(m)
    cost = np.where(kind < 0.2, 0.0, np.where(kind < 0.35, 120.0, np.minimum(cost, 99_999.0)))
    first = rng.integers(0, 4 * 365, n)[who]
    at = np.datetime64("2020-01-01T00:00:00") + (
        np.minimum(first + rng.exponential(60, m), 1825.0) * 86_400 + rng.integers(28_800, 64_800, m)
    ).astype("timedelta64[s]")
    visit = np.array([f"V{value:07d}" for value in rng.permutation(m)])
    frames["visits"] = pd.DataFrame({
        "visit_id": visit, "patient_id": keys[who], "visit_at": at, "ward": _missing(np.array(WARDS)[ward], 0.02, rng),
        "urgent": urgent, "cost": cost, "paid": np.round(cost * rng.choice([0, 0.5, 0.8, 1], m, p=[0.1, 0.2, 0.2, 0.5]), 2),
        "nights": np.where(urgent, rng.geometric(0.25, m), rng.binomial(1, 0.1, m)).clip(0, 60),
    })  # fmt: skip
    done = np.minimum(rng.poisson(np.where(urgent, 2.2, 0.7)), PROCEDURES)
    whose = np.repeat(np.arange(m), done)
    q = whose.size
    code = np.where(rng.random(q) < 0.7, 2 * ward[whose] + (rng.random(q) < 0.3), np.minimum(rng.geometric(0.25, q) - 1, 15))
    minutes = np.where(rng.random(q) < 0.4, rng.choice([15, 30, 60], q), np.minimum(rng.gamma(2, 20 + 4 * code), 600)).astype(int)
    frames["procedures"] = pd.DataFrame({
        "procedure_id": rng.permutation(q) + 10**12, "visit_id": visit[whose], "code": np.array(CODES)[code], "minutes": minutes,
        "result": _missing(np.clip(rng.standard_t(4, q) + (code % 2), -5, 5), 0.4, rng),
    })  # fmt: skip
    given = np.minimum(rng.poisson(np.array([0.4, 2.0, 5.0])[ill]), PRESCRIPTIONS)
    whom = np.repeat(np.arange(n), given)
    r = whom.size
    old, smokes = age[whom] > 55, smoker[whom]
    shares = np.array([2, 1, 0.5, 2, 0.5, 2, 1, 0.01])[None] * np.where(old[:, None], [5, 2, 1, 1, 1, 0.5, 0.3, 1], 1.0)
    drug = pick(shares * np.where(smokes[:, None], [1, 1, 2, 1, 8, 1, 1, 1], 1.0), rng)
    frames["prescriptions"] = pd.DataFrame({
        "patient_id": keys[whom], "drug": np.array(DRUGS)[drug],
        "daily": np.where(rng.random(r) < 0.8, rng.choice([5, 10, 20, 40], r), np.round(rng.exponential(15, r), 3)).clip(0, 200),
        "started": np.datetime64("2020-01-01") + rng.integers(0, 1825, r).astype("timedelta64[D]"),
        "repeats": np.where(drug == 6, 0, rng.geometric(0.2, r)).clip(0, 24),
    })  # fmt: skip
    con.execute(TYPES)
    for name, frame in frames.items():
        columns = ", ".join(frame.columns)
        con.register("made", frame)
        con.execute(f"INSERT INTO {name} ({columns}) SELECT {columns} FROM made")
        con.unregister("made")
