"""A made-up census of households and their persons, in which it is known how alike the persons of a household are.

python tests/benchmarks/households.py DATABASE [--households 100000] [--seed 1]

Made of a hidden kind of the household (alone, couple, family, lone parent, shared flat, three generations). How many persons it has
follows from the kind, and so do their ages, in turn: that is the dependence of persons on the household and on one another. Two more
dependences are known exactly: with probability `SAME` a person was born where the household's origin is, else anywhere as
`BIRTHPLACES` says, so that of two persons of one household, whatever else they are, P(x, y) = SAME^2 [x = y] p(x) + (1 - SAME^2) p(x)
p(y); and `faith` likewise with `SAME_FAITH`, whose origin is drawn by region.
"""

from __future__ import annotations

import argparse

import duckdb
import numpy as np
import pandas as pd

SAME, SAME_FAITH = 0.8, 0.9
MOST = 8
REGIONS = {"North": 0.24, "North-East": 0.11, "East": 0.17, "South": 0.21, "South-West": 0.09, "West": 0.12, "Islands": 0.06}
BIRTHPLACES = {"here": 0.72, "neighbour": 0.1, "Europe": 0.07, "Asia": 0.05, "Africa": 0.04, "Americas": 0.02}
FAITHS = ("none", "A", "B", "C", "other")
TENURES, KINDS = ("owned", "mortgage", "rented", "social"), 6
EDUCATION = ("none", "primary", "secondary", "vocational", "bachelor", "master")
WORK = ("child", "student", "employed", "self-employed", "unemployed", "retired", "home")
SECTORS = ("care", "crafts", "education", "finance", "industry", "IT", "public", "retail", "none")
MARRIED = ("single", "married", "divorced", "widowed")

DECLARE = {
    "households": {
        "region": f"categories := {list(REGIONS)!r}, nullable := false",
        "tenure": f"categories := {list(TENURES)!r}, nullable := false",
        "rooms": "lower := 1, upper := 9, bins := 8, nullable := false",
        "cars": "lower := 0, upper := 4, bins := 4, nullable := false",
        "income": "lower := 0, upper := 200000, bins := 20, nullable := false",
    },
    "persons": {
        "age": "lower := 0, upper := 100, bins := 20, nullable := false",
        "sex": "categories := ['Female', 'Male'], nullable := false",
        "married": f"categories := {list(MARRIED)!r}, nullable := false",
        "birthplace": f"categories := {list(BIRTHPLACES)!r}, nullable := false",
        "faith": f"categories := {list(FAITHS)!r}, nullable := false",
        "education": f"categories := {list(EDUCATION)!r}, nullable := false",
        "work": f"categories := {list(WORK)!r}, nullable := false",
        "sector": f"categories := {list(SECTORS)!r}, nullable := false",
        "wage": "lower := 0, upper := 120000, bins := 12, nullable := false",
    },
}


def sizes(kind: np.ndarray, poor: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return the number of persons of each household, 1 to `MOST`, mean 2.6."""
    children = 1 + np.minimum(rng.poisson(0.75 + 0.45 * poor), 4)
    shared = 2 + np.minimum(rng.poisson(0.9, len(kind)), 5)
    return np.choose(kind, [np.ones_like(kind), np.full_like(kind, 2), 2 + children, 1 + children, shared, 4 + np.minimum(children, 4)])


def census(households: int, seed: int = 1) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return households and persons.

    Parameters
    ----------
    households : int
    seed : int

    Returns
    -------
    (DataFrame, DataFrame)
        household_id, region, tenure, rooms, cars, income; person_id, household_id, age, sex, married, birthplace, faith, education,
        work, sector, wage. About 2.6 persons a household, at most `MOST`; a person's household_id comes in ascending order.
    """
    rng = np.random.default_rng(seed)
    n = households
    region = rng.choice(len(REGIONS), n, p=list(REGIONS.values()))
    urban = rng.random(n) < np.array([0.8, 0.5, 0.6, 0.75, 0.3, 0.55, 0.1])[region]
    chances = np.array([[0.19, 0.31, 0.34, 0.06, 0.02, 0.08], [0.27, 0.23, 0.26, 0.09, 0.10, 0.05]])[urban.astype(int)]
    kind = (rng.random((n, 1)) > chances.cumsum(axis=1)).sum(axis=1).clip(0, KINDS - 1)
    wealth = rng.normal(size=n) + np.array([-0.2, 0.2, 0.4, -0.6, -0.5, 0.1])[kind] + 0.2 * urban
    poor = wealth < -0.5
    size = sizes(kind, poor, rng)
    old = rng.random(n) < np.array([0.42, 0.4, 0.03, 0.08, 0.0, 0.6])[kind]
    tenure = np.where(poor, np.where(rng.random(n) < 0.5, 3, 2), np.where(old, 0, np.where(wealth + rng.normal(size=n) > 0.2, 1, 2)))
    rooms = np.clip(np.rint(1.2 + 0.6 * size + 0.7 * wealth - 0.6 * urban + 0.7 * rng.normal(size=n)), 1, 9).astype(int)
    cars = np.clip(rng.poisson(np.clip(0.35 * np.minimum(size, 4) + 0.3 * wealth - 0.5 * urban + 0.4, 0.05, 3)), 0, 4)

    home = np.repeat(np.arange(n), size)
    persons = len(home)
    place = np.arange(persons) - np.repeat(np.cumsum(size) - size, size)
    of, is_old = kind[home], old[home]
    adult = place < np.array([1, 2, 2, 1, 99, 4])[of]
    base = np.where(is_old, 66 + 9 * rng.random(n)[home], 24 + 26 * rng.beta(1.6, 1.4, n)[home] + np.where(of == 4, -3, 3))
    eldest = base + np.where(of == 5, np.where(place < 2, 8, -28), 0)
    child_age = np.clip(base - 28 + np.where(of == 5, -20, 0) - 2.4 * (place - 2) + 3 * rng.normal(size=persons), 0, 24)
    age = np.clip(np.where(adult, eldest + 3.5 * rng.normal(size=persons), child_age), 0, 99).astype(int)
    age = np.where(adult, np.maximum(age, 18), age)
    coupled = adult & np.isin(of, (1, 2, 5))
    first = rng.random(n)[home] < 0.5
    sex = np.where(coupled, (place % 2 == 0) == first, rng.random(persons) < np.where(of == 3, np.where(adult, 0.85, 0.5), 0.5))
    wed = coupled & (rng.random(n)[home] < 0.75)
    single = np.where(age > 70, np.where(rng.random(persons) < 0.6, 3, 2), np.where(rng.random(persons) < (age - 18) / 120, 2, 0))
    married = np.where(wed, 1, np.where(adult, single, 0))
    births = np.array(list(BIRTHPLACES.values()))
    birthplace = _shared(rng, births[None, :], np.zeros(n, int), home, SAME)
    faiths = np.array([[0.5, 0.3, 0.1, 0.05, 0.05], [0.3, 0.5, 0.08, 0.08, 0.04], [0.4, 0.2, 0.3, 0.05, 0.05]])
    faith = _shared(rng, faiths, region % 3, home, SAME_FAITH)
    ability = 0.6 * wealth[home] + 0.8 * rng.normal(size=persons)
    education = np.clip(np.rint(2.2 + 1.3 * ability - 0.012 * (age - 40)), 0, 5).astype(int)
    education = np.where(age < 6, 0, np.where(age < 16, np.minimum(education, 1), np.where(age < 20, np.minimum(education, 2), education)))
    draw = rng.random(persons)
    busy = np.where(draw < 0.7, 2, np.where(draw < 0.8, 3, np.where(draw < 0.87 + 0.05 * poor[home], 4, np.where(sex & (draw > 0.9), 6, 2))))
    young = np.where(rng.random(persons) < np.clip((26 - age) / 8, 0, 1), 1, busy)
    work = np.where(age < 16, 0, np.where(age > 66, 5, np.where(age < 26, young, busy)))
    pull = rng.gumbel(size=(persons, 8)) + np.outer(education - 2, [-0.1, -0.7, 0.6, 0.7, -0.3, 0.8, 0.2, -0.5])
    working = np.isin(work, (2, 3))
    sector = np.where(working, pull.argmax(axis=1), 8)
    wage = np.exp(9.7 + 0.2 * education + 0.25 * ability + 0.01 * np.clip(age - 18, 0, 35) + 0.35 * rng.normal(size=persons))
    wage = np.where(working, wage * (1 + 0.25 * np.isin(sector, (3, 5)) - 0.1 * sex), 0)
    other = np.where(work == 5, 14_000, np.where(work == 4, 7_000, 0)) * np.exp(0.2 * rng.normal(size=persons))
    income = np.bincount(home, weights=wage + other, minlength=n) + 4_000 * np.exp(0.6 * wealth)
    return (
        pd.DataFrame(
            {
                "household_id": np.arange(1, n + 1), "region": np.array(list(REGIONS))[region], "tenure": np.array(TENURES)[tenure],
                "rooms": rooms, "cars": cars, "income": np.round(income, 2),
            }
        ),
        pd.DataFrame(
            {
                "person_id": np.arange(1, persons + 1), "household_id": home + 1, "age": age, "sex": np.where(sex, "Female", "Male"),
                "married": np.array(MARRIED)[married], "birthplace": np.array(list(BIRTHPLACES))[birthplace],
                "faith": np.array(FAITHS)[faith], "education": np.array(EDUCATION)[education], "work": np.array(WORK)[work],
                "sector": np.array(SECTORS)[sector], "wage": np.round(wage, 2),
            }
        ),
    )  # fmt: skip


def _shared(rng: np.random.Generator, chances: np.ndarray, which: np.ndarray, home: np.ndarray, same: float) -> np.ndarray:
    """Return a value of each person: the household's with this probability, else one drawn as the household's was."""

    def drawn(rows: np.ndarray) -> np.ndarray:
        return (rng.random((len(rows), 1)) > chances[rows].cumsum(axis=1)).sum(axis=1).clip(0, chances.shape[1] - 1)

    return np.where(rng.random(len(home)) < same, drawn(which)[home], drawn(which[home]))


def create(con: duckdb.DuckDBPyConnection, households: int = 100_000, seed: int = 1) -> None:
    """Create the tables ``households`` and ``persons`` with their keys."""
    frames = census(households, seed)
    con.execute(
        """CREATE OR REPLACE TABLE households (household_id INTEGER PRIMARY KEY, region VARCHAR, tenure VARCHAR, rooms SMALLINT,
        cars SMALLINT, income DECIMAL(12, 2));
        CREATE OR REPLACE TABLE persons (person_id INTEGER PRIMARY KEY, household_id INTEGER, age SMALLINT, sex VARCHAR, married VARCHAR,
        birthplace VARCHAR, faith VARCHAR, education VARCHAR, work VARCHAR, sector VARCHAR, wage DECIMAL(12, 2))"""
    )
    for name, frame in zip(("households", "persons"), frames, strict=True):
        con.register("frame", frame)
        con.execute(f"INSERT INTO {name} SELECT * FROM frame")
        con.unregister("frame")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("database")
    parser.add_argument("--households", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with duckdb.connect(given.database) as opened:
        create(opened, given.households, given.seed)
        print(opened.execute("SELECT (SELECT count(*) FROM households), count(*) FROM persons").fetchone())
