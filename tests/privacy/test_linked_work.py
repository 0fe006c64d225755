"""What one person can make a statement over linked tables do: work grows with the rows of a unit in all of them, never with their square."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from linked_sources import BY_UNIT, LOCAL, ROWS, Linked
from pairwise import WHOLE
from work import rows_given

from dpsql.source import limits, unit_joins

FEW = 10
"""Rows of a unit that meet each other, in these tests."""
SIBLINGS = "SELECT a.value FROM labs a, procedures b, labs c, procedures d WHERE a.visit = b.visit AND c.visit = a.visit AND d.visit = a.visit"
TWO = "SELECT a.value FROM labs a JOIN procedures q ON a.visit = q.visit"
MANY = (
    SIBLINGS,
    "SELECT a.cost FROM visits a JOIN visits b USING (patient) JOIN visits c USING (patient) JOIN visits d USING (patient)",
    "SELECT p.age FROM patients p JOIN visits v USING (patient) JOIN labs a USING (visit) JOIN procedures b USING (visit) JOIN labs c USING (visit)",
    "SELECT v.cost FROM visits v LEFT JOIN labs a ON a.visit = v.visit LEFT JOIN procedures b ON b.visit = v.visit AND b.price > a.value",
    "SELECT a.value FROM labs a FULL JOIN procedures b USING (visit)",
    "SELECT a.value FROM labs a WHERE EXISTS (SELECT 1 FROM procedures b WHERE b.visit = a.visit AND b.price <> a.value)",
    "SELECT a.value FROM labs a WHERE visit NOT IN (SELECT b.visit FROM procedures b WHERE b.visit = a.visit AND b.price > 1)",
)
LIMITED = {
    "visits": False,
    "SELECT v.cost, q.code FROM procedures q JOIN visits v USING (visit)": False,
    "SELECT v.cost, q.code FROM visits v LEFT JOIN procedures q ON q.visit = v.visit": False,
    "SELECT p.age, q.code FROM patients p, visits v, procedures q WHERE p.patient = v.patient AND q.visit = v.visit": False,
    "SELECT p.age, q.code FROM procedures q, visits v, patients p WHERE p.patient = v.patient AND q.visit = v.visit": False,
    "SELECT v.cost, a.s FROM visits v JOIN (SELECT visit, sum(price) AS s FROM procedures GROUP BY visit) a USING (visit)": False,
    "SELECT q.code, a.s FROM procedures q JOIN (SELECT visit, count(*) AS s FROM labs GROUP BY visit) a USING (visit)": False,
    "SELECT cost FROM visits v WHERE EXISTS (SELECT 1 FROM procedures q WHERE q.visit = v.visit AND q.price > v.cost)": False,
    "SELECT code FROM procedures q WHERE EXISTS (SELECT 1 FROM visits v WHERE q.visit = v.visit AND q.price > v.cost)": False,
    "SELECT code FROM procedures q WHERE visit IN (SELECT visit FROM labs)": False,
    TWO: True,
    "SELECT p.age FROM patients p JOIN visits v USING (patient) JOIN labs a USING (visit) JOIN procedures b USING (visit)": True,
    "SELECT v.cost FROM visits v JOIN labs a USING (visit) JOIN visits w ON w.patient = v.patient": True,
    "SELECT v.cost FROM (SELECT visit, cost FROM visits UNION ALL SELECT visit, cost FROM visits) v JOIN labs a USING (visit)": True,
    "SELECT code FROM procedures q WHERE EXISTS (SELECT 1 FROM procedures r WHERE r.visit = q.visit AND r.price > q.price)": False,
    "SELECT code FROM procedures q WHERE EXISTS (SELECT 1 FROM procedures r WHERE r.visit = q.visit AND r.price > q.price AND r.code <> q.code)": True,
}


@pytest.fixture(scope="module")
def database() -> Iterator[Linked]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "MOST_ROWS", FEW)
        yield Linked()


def heavy(db: Linked, rows: int) -> None:
    """Give one patient so many visits, one of which has so many procedures and labs; and thirty others three of each."""
    for name in ("labs", "procedures", "visits", "patients"):
        db.con.execute(f"DELETE FROM {name}")
    db.con.execute("INSERT INTO patients SELECT i, i, 30 FROM range(31) t(i)")
    db.con.execute("INSERT INTO visits SELECT 100 + i, 1 + i // 3, i % 3, i FROM range(90) t(i)")
    db.con.execute("INSERT INTO visits SELECT 1000 + i, 0, i % 3, i FROM range(?) t(i)", [rows])
    for name, values in (("labs", "i % 7"), ("procedures", "'x', i % 9")):
        db.con.execute(f"INSERT INTO {name} SELECT 100 + i, {values} FROM range(90) t(i)")
        db.con.execute(f"INSERT INTO {name} SELECT 1000, {values} FROM range(?) t(i)", [rows])


def test_work_grows_with_the_rows_of_a_unit_and_not_with_their_square(database):
    texts = [*ROWS, *LOCAL[::3], *BY_UNIT, *MANY]
    found: dict[int, list[int]] = {}
    for rows in (1, 1000):
        heavy(database, rows)
        found[rows] = [rows_given(database.cursor, database.source(text).sql) for text in texts]
    most = 12 * 8 * 3 * 1000 + 12 * 10 * FEW**2  # tables, layers of each, rows of a unit in three tables; joins, each limited
    assert {text: more - one for text, one, more in zip(texts, found[1], found[1000], strict=True) if more - one > most} == {}


def test_without_the_limit_it_grows_with_a_power(monkeypatch):
    """What the test above would find: four hundred rows of one unit in each of two tables."""
    monkeypatch.setattr(limits, "MOST_ROWS", 10**6)
    unlimited = Linked()
    heavy(unlimited, 400)
    assert rows_given(unlimited.cursor, unlimited.source(TWO).sql) > 400**2


def test_a_key_that_is_taken_for_unique_is_found(database, monkeypatch):
    """Siblings that pass for children of one row each are joined without a limit."""
    monkeypatch.setattr(unit_joins.Meets, "linear", property(lambda self: True))
    monkeypatch.setattr(limits, "MOST_ROWS", FEW)
    fooled = Linked()
    assert not fooled.source(TWO).limited
    heavy(fooled, 1000)
    assert rows_given(fooled.cursor, fooled.source(TWO).sql) > 10**6


@pytest.mark.parametrize(("text", "expected"), LIMITED.items())
def test_what_is_limited(database, text, expected):
    assert (database.source(text).limited == FEW) is expected


def test_which_rows_are_kept_depends_on_nobody_else(monkeypatch):
    monkeypatch.setattr(limits, "MOST_ROWS", 2)
    for shape in ({}, {"unit": "family", "orphans": "unit"}):
        db = Linked(**shape)
        texts = [text for text in (*LOCAL[::3], *MANY, *(BY_UNIT if not shape else ())) if db.source(text).limited]
        assert len(texts) >= 8
        for seed in range(2 if WHOLE else 1):
            assert db.violations(texts, seed, 12) == []


def test_long_texts_are_not_repeated(database):
    """Of a row that others are linked to, texts are cut before they stand beside each of those; of a row alone they are whole."""
    db = Linked()
    db.con.execute("ALTER TABLE visits ADD COLUMN note VARCHAR; ALTER TABLE visits ADD COLUMN codes VARCHAR[]")
    rows = db.random_rows(random.Random(1), 3)
    db.fill({**rows, "patients": [(1, 1, 30)], "visits": [], "procedures": [], "labs": []})
    db.con.execute("INSERT INTO visits VALUES (7, 1, 0, 1, repeat('x', 1000), ['a']); INSERT INTO procedures VALUES (7, 'c', 1), (7, 'd', 2)")
    texts = {
        "SELECT length(note) AS n FROM visits": ["1000"],
        "SELECT length(v.note) AS n FROM visits v JOIN patients p USING (patient)": ["1000"],
        "SELECT length(v.note) AS n FROM visits v JOIN procedures q USING (visit)": ["256", "256"],
        "SELECT length(v.note) AS n FROM procedures q JOIN visits v USING (visit)": ["256", "256"],
        "SELECT length(v.note) AS n FROM patients p JOIN visits v USING (patient) JOIN procedures q USING (visit)": ["256", "256"],
    }
    for text, lengths in texts.items():
        found = db.cursor.execute(db.source(text).sql).fetchall()
        assert [str(row[0]) for row in found] == lengths, text
    with pytest.raises(Exception, match="would be repeated for many"):
        db.source("SELECT v.codes FROM visits v JOIN procedures q USING (visit)")
