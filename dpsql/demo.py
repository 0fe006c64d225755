"""A sample table to try dpsql on: made up, with mixed types, NULLs, dates, skew and dependence."""

from __future__ import annotations

import duckdb
import numpy as np
import pandas as pd

EDUCATION = ("primary", "secondary", "vocational", "bachelor", "master", "doctorate")
REGIONS = ("North", "East", "South", "West", "Islands")
SECTORS = ("care", "crafts", "education", "finance", "industry", "IT", "public", "retail")

PROTECT = "CALL dp_protect('people', epsilon := 3.0, delta := 1e-9)"
DECLARE = (
    "CALL dp_declare('people', 'age', lower := 0, upper := 120, nullable := false)",
    f"CALL dp_declare('people', 'region', categories := {list(REGIONS)!r},\n    nullable := false)",
    f"CALL dp_declare('people', 'sector', categories :=\n    {list(SECTORS)!r})",
    "CALL dp_declare('people', 'hired', lower := DATE '1940-01-01', upper := DATE '2024-12-31')",
    "CALL dp_declare('people', 'children', lower := 0, upper := 8, nullable := false)",
    "CALL dp_declare('people', 'income', lower := 0, upper := 600000)",
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
