"""The made-up databases of linked tables: the same every time, whole, and as dependent as they say."""

from __future__ import annotations

import sys
from pathlib import Path

import duckdb
import numpy as np
import pytest

import dpsql
from dpsql import demo

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import households


def test_the_hospital_is_whole_and_the_same_every_time() -> None:
    con = duckdb.connect()
    demo.create_hospital(con, 500)
    for frame, again in zip(demo.sample_hospital(500), demo.sample_hospital(500), strict=True):
        assert frame.equals(again)
    born_later = "SELECT count(*) FROM visits JOIN patients USING (patient_id) WHERE visit_at < born"
    assert con.execute(born_later).fetchone() == (0,)
    (most,) = con.execute("SELECT max(n) FROM (SELECT count(*) AS n FROM visits GROUP BY patient_id)").fetchall()[0]
    assert 8 < most <= 20
    demo.create_hospital(con, 100)  # again, over the old one
    assert con.execute("SELECT count(*) FROM patients").fetchone() == (100,)


def test_the_hospital_is_protected_linked_and_declared_as_the_demo_does() -> None:
    con = duckdb.connect()
    demo.create_hospital(con, 200)
    dpsql.load(con)
    for statement in (*demo.PROTECT_LINKED, *demo.DECLARE_LINKED):
        con.execute(statement)
    links = con.execute("SELECT count(*) FROM dp_links()").fetchone()
    assert links == (2,)
    con.execute("CREATE SCHEMA s; CREATE TABLE s.patients AS FROM patients; CREATE TABLE s.visits AS FROM visits")
    con.execute("CREATE TABLE s.procedures AS FROM procedures")
    names = con.execute("SELECT DISTINCT column_name FROM dp_evaluate('patients', 's') WHERE table_name = 'visits'").fetchall()
    assert {"department", "visit_at", "urgent", "cost", "count(procedures)"} <= {name for (name,) in names}


def test_small_and_empty_hospitals() -> None:
    for patients in (0, 1):
        assert [len(frame) for frame in demo.sample_hospital(patients)][0] == patients


def test_households_have_at_most_eight_persons_and_share_what_they_say() -> None:
    """Seeded: the same every time. The shares are within four standard deviations of the known ones."""
    homes, persons = households.census(20_000)
    sizes = persons.groupby("household_id").size()
    assert sizes.max() == households.MOST and len(sizes) == len(homes)
    assert sizes.mean() == pytest.approx(2.65, abs=0.05)
    pairs = persons.groupby("household_id").head(2).groupby("household_id")["birthplace"]
    two = pairs.agg(["first", "last", "size"])
    two = two[two["size"] == 2]
    p = np.array(list(households.BIRTHPLACES.values()))
    known = households.SAME**2 + (1 - households.SAME**2) * float(p @ p)
    assert (two["first"] == two["last"]).mean() == pytest.approx(known, abs=4 * (known * (1 - known) / len(two)) ** 0.5)
