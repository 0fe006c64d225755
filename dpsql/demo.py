"""Samples to try dpsql on, made up: a table with mixed types, NULLs, dates, skew and dependence, and three linked tables."""

from __future__ import annotations

import duckdb
import numpy as np
import pandas as pd

EDUCATION = ("primary", "secondary", "vocational", "bachelor", "master", "doctorate")
REGIONS = ("North", "East", "South", "West", "Islands")
SECTORS = ("care", "crafts", "education", "finance", "industry", "IT", "public", "retail")
DEPARTMENTS = ("general", "emergency", "surgery", "cardiology", "paediatrics", "orthopaedics")
PROCEDURES = {
    "blood test": {"general": 0.6, "emergency": 0.3, "cardiology": 0.3, "paediatrics": 0.4, "surgery": 0.2},
    "cast": {"orthopaedics": 0.4, "emergency": 0.2},
    "ecg": {"cardiology": 0.6, "emergency": 0.2, "general": 0.1},
    "operation": {"surgery": 0.7, "orthopaedics": 0.25, "cardiology": 0.1},
    "vaccination": {"paediatrics": 0.5, "general": 0.2},
    "x-ray": {"orthopaedics": 0.5, "emergency": 0.4, "surgery": 0.1},
}
"""How often a procedure is done in a department, relative to others; elsewhere .02."""
MINUTES = {"blood test": 8, "cast": 30, "ecg": 15, "operation": 110, "vaccination": 5, "x-ray": 12}

PROTECT = "CALL dp_protect('people', epsilon := 3.0, delta := 1e-9)"
DECLARE = (
    "CALL dp_declare('people', 'age', lower := 0, upper := 120, nullable := false)",
    f"CALL dp_declare('people', 'region', categories := {list(REGIONS)!r},\n    nullable := false)",
    f"CALL dp_declare('people', 'sector', categories :=\n    {list(SECTORS)!r})",
    "CALL dp_declare('people', 'hired', lower := DATE '1940-01-01', upper := DATE '2024-12-31')",
    "CALL dp_declare('people', 'children', lower := 0, upper := 8, nullable := false)",
    "CALL dp_declare('people', 'income', lower := 0, upper := 600000)",
)
PROTECT_LINKED = (
    "CALL dp_protect('patients', epsilon := 3.0, delta := 1e-9, privacy_unit := 'patient_id', max_contributions := 1)",
    "CALL dp_link('visits', 'patient_id', parent := 'patients', max_rows := 20)",
    "CALL dp_link('procedures', 'visit_id', parent := 'visits', max_rows := 5)",
)
DECLARE_LINKED = (
    "CALL dp_declare('patients', 'born', lower := DATE '1925-01-01', upper := DATE '2025-01-01', bins := 20)",
    f"CALL dp_declare('patients', 'region', categories := {list(REGIONS)!r}, nullable := false)",
    f"CALL dp_declare('visits', 'department', categories := {list(DEPARTMENTS)!r}, nullable := false)",
    "CALL dp_declare('visits', 'visit_at', lower := DATE '2020-01-01', upper := DATE '2025-01-01', bins := 20)",
    "CALL dp_declare('visits', 'cost', lower := 0, upper := 20000, bins := 20)",
    f"CALL dp_declare('procedures', 'code', categories := {sorted(PROCEDURES)!r}, nullable := false)",
    "CALL dp_declare('procedures', 'minutes', lower := 0, upper := 480, bins := 16, nullable := false)",
)



def sample_people(rows: int) -> pd.DataFrame:
    """Return a made-up table of people.

    Parameters
    ----------
    rows : int

    Returns
    -------
    DataFrame with columns age, sex, region, education, sector, hired, children, remote, income.
    """
    rng = np.random.default_rng(1)
    ability = rng.normal(size=rows)
    age = np.clip(rng.gamma(9.0, 5.0, rows) + 10, 16, 95).astype(np.int16)
    education = np.clip(np.rint(1.9 + 1.1 * ability + 0.4 * rng.normal(size=rows)), 0, 5).astype(int)
    region = rng.choice(5, rows, p=[0.34, 0.25, 0.22, 0.16, 0.03])
    pull = rng.gumbel(size=(rows, len(SECTORS)))
    pull += np.outer(education - 2, [-0.1, -0.7, 0.6, 0.7, -0.3, 0.8, 0.2, -0.5])
    pull[:, 5] += 0.8 * (region == 0) - 0.04 * (age - 40)
    sector = pull.argmax(axis=1)
    women = rng.random(rows) < np.array([0.78, 0.1, 0.7, 0.48, 0.25, 0.22, 0.55, 0.6])[sector]
    years = np.minimum(rng.exponential(7.0, rows), age - 16)
    hired = np.datetime64("2024-12-31") - (years * 365.25).astype("timedelta64[D]")
    children = np.minimum(rng.poisson(np.clip((age - 18) / 18, 0.05, 1.7)), 8)
    income = np.exp(9.9 + 0.22 * education + 0.3 * ability + 0.012 * np.minimum(age - 16, 35) + 0.35 * rng.normal(size=rows))
    income *= 1 + 0.25 * np.isin(sector, (3, 5)) - 0.1 * women
    income = np.minimum(income, 600_000)  # what is declared holds for every row, however many are made
    employed = rng.random(rows) < np.where(age > 66, 0.1, 0.93)
    frame = pd.DataFrame(
        {
            "age": age,
            "sex": np.where(women, "Female", "Male"),
            "region": np.array(REGIONS)[region],
            "education": np.array(EDUCATION)[education],
            "sector": pd.Series(np.array(SECTORS)[sector]).where(employed),
            "hired": pd.Series(hired).where(employed),
            "children": children.astype(np.int16),
            "remote": rng.random(rows) < np.where(np.isin(sector, (3, 5, 6)), 0.55, 0.08),
            "income": np.round(income, 2),
        }
    )
    frame["income"] = frame["income"].where(rng.random(rows) > 0.04)
    return frame


def create_people(con: duckdb.DuckDBPyConnection, rows: int = 20_000) -> None:
    """Create the table ``people`` with its types: SMALLINT, ENUM, VARCHAR, DATE, BOOLEAN, DECIMAL."""
    frame = sample_people(rows)
    con.register("people_frame", frame)
    levels = ", ".join(f"'{level}'" for level in EDUCATION)
    con.execute(
        f"""
        CREATE OR REPLACE TABLE people AS
        SELECT age::SMALLINT AS age, sex::ENUM('Female', 'Male') AS sex, region::VARCHAR AS region,
            education::ENUM({levels}) AS education, sector::VARCHAR AS sector, hired::DATE AS hired,
            children::SMALLINT AS children, remote::BOOLEAN AS remote, income::DECIMAL(10, 2) AS income
        FROM people_frame
        """  # noqa: S608 -- constants of this module
    )
    con.unregister("people_frame")


def sample_hospital(patients: int) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Return made-up patients, their visits, and the procedures of those.

    Parameters
    ----------
    patients : int

    Returns
    -------
    three DataFrames
        patient_id, sex, born, region, chronic; visit_id, patient_id, visit_at, department, urgent, cost; procedure_id, visit_id,
        code, minutes. Of a patient 0 to 20 visits, more of the old and the chronically ill, whose visits are mostly to one
        department; of a visit 0 to 5 procedures, as the department has them. Costs have heavy tails; no visit is before its
        patient's birth.
    """
    rng = np.random.default_rng(1)
    age = np.clip(rng.gamma(4.0, 12.0, patients), 0, 95)
    women = rng.random(patients) < 0.53
    region = rng.choice(5, patients, p=[0.34, 0.25, 0.22, 0.16, 0.03])
    chronic = rng.random(patients) < 0.05 + 0.4 * (age / 95) ** 1.5
    usual = rng.choice(len(DEPARTMENTS), patients, p=[0.3, 0.12, 0.16, 0.14, 0.12, 0.16])
    usual = np.where(age < 15, DEPARTMENTS.index("paediatrics"), usual)
    visits = np.minimum(rng.poisson(rng.gamma(1.5, (0.5 + 0.03 * age + 3.0 * chronic) / 1.5)), 20)
    of = np.repeat(np.arange(patients), visits)
    own = rng.random(len(of)) < np.where(chronic, 0.85, 0.5)[of]
    department = np.where(own, usual[of], rng.choice(len(DEPARTMENTS), len(of), p=[0.35, 0.25, 0.1, 0.1, 0.02, 0.18]))
    urgent = rng.random(len(of)) < np.array([0.1, 0.75, 0.2, 0.05, 0.3, 0.15])[department]
    today = np.datetime64("2024-12-31")
    ago = np.minimum(rng.random(len(of)) * 1800, age[of] * 365.25)  # nobody comes before birth
    severe = (0.4 * rng.normal(size=patients))[of]
    typical = np.array([4.2, 5.6, 6.8, 5.9, 4.8, 5.2])[department]
    cost = np.exp(typical + severe + 0.4 * urgent + 0.5 * rng.normal(size=len(of))) * (1 + rng.pareto(2.5, len(of)))
    procedures = np.minimum(rng.poisson(np.array([0.4, 1.3, 2.1, 1.2, 0.6, 0.9])[department] * np.exp(0.5 * severe)), 5)
    at = np.repeat(np.arange(len(of)), procedures)
    codes = sorted(PROCEDURES)
    chances = np.array([[PROCEDURES[code].get(name, 0.02) for code in codes] for name in DEPARTMENTS])
    chances = (chances / chances.sum(axis=1, keepdims=True)).cumsum(axis=1)[department[at]]
    code = (rng.random((len(at), 1)) > chances).sum(axis=1).clip(0, len(codes) - 1)
    minutes = rng.gamma(2.0, np.array([MINUTES[name] for name in codes])[code] / 2)
    birth = today - np.maximum(age * 365.25, 0).astype("timedelta64[D]")
    frames = (
        pd.DataFrame(
            {
                "patient_id": np.arange(1, patients + 1),
                "sex": np.where(women, "Female", "Male"),
                "born": birth,
                "region": np.array(REGIONS)[region],
                "chronic": chronic,
            }
        ),
        pd.DataFrame(
            {
                "visit_id": np.arange(1, len(of) + 1),
                "patient_id": of + 1,
                "visit_at": np.maximum(today - ago.astype("timedelta64[D]"), birth[of]),
                "department": np.array(DEPARTMENTS)[department],
                "urgent": urgent,
                "cost": np.round(np.minimum(cost, 1e6), 2),
            }
        ),
        pd.DataFrame(
            {
                "procedure_id": np.arange(1, len(at) + 1),
                "visit_id": at + 1,
                "code": np.array(codes)[code],
                "minutes": np.clip(np.rint(minutes), 1, 480).astype(np.int16),
            }
        ),
    )
    frames[1]["cost"] = frames[1]["cost"].where(rng.random(len(of)) > 0.03)
    return frames


def create_hospital(con: duckdb.DuckDBPyConnection, patients: int) -> None:
    """Create the tables ``patients``, ``visits`` and ``procedures`` with their keys; of 10,000 patients about 25,000 visits."""
    con.execute(
        """
        DROP TABLE IF EXISTS procedures;
        DROP TABLE IF EXISTS visits;
        DROP TABLE IF EXISTS patients;
        CREATE TABLE patients (patient_id INTEGER PRIMARY KEY, sex ENUM('Female', 'Male') NOT NULL, born DATE NOT NULL,
            region VARCHAR, chronic BOOLEAN NOT NULL);
        CREATE TABLE visits (visit_id INTEGER PRIMARY KEY, patient_id INTEGER NOT NULL REFERENCES patients (patient_id),
            visit_at DATE, department VARCHAR, urgent BOOLEAN NOT NULL, cost DECIMAL(10, 2));
        CREATE TABLE procedures (procedure_id INTEGER PRIMARY KEY, visit_id INTEGER NOT NULL REFERENCES visits (visit_id),
            code VARCHAR, minutes SMALLINT);
        """
    )
    for name, frame in zip(("patients", "visits", "procedures"), sample_hospital(patients), strict=True):
        con.register("hospital_frame", frame)
        con.execute(f"INSERT INTO {name} SELECT * FROM hospital_frame")  # noqa: S608 -- constants of this module
        con.unregister("hospital_frame")
