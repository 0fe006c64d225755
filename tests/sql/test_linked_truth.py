"""Sources of linked tables give the rows that DuckDB gives for the text over the tables without orphans, or are refused."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from case_counts import cases
from linked_sources import BY_UNIT, LOCAL, ROWS, Linked

from dpsql.errors import ArgumentError, UnsupportedQuery

pytestmark = pytest.mark.any_duckdb

ANSWERED = (
    # NOT IN where neither side can be NULL
    "SELECT age FROM patients WHERE patient NOT IN (SELECT patient FROM visits WHERE cost > 0.1)",
    "SELECT age FROM patients p WHERE NOT (p.patient IN (SELECT v.patient FROM visits v WHERE v.ward = p.age))",
    "SELECT age FROM patients WHERE NOT (NOT (patient NOT IN (SELECT patient FROM visits WHERE ward = 1)))",
    "SELECT age FROM patients WHERE NOT (patient NOT IN (SELECT patient FROM visits WHERE ward = 1))",
    "SELECT code FROM procedures WHERE visit NOT IN (SELECT visit FROM labs WHERE value > 5)",
    "SELECT cost FROM visits WHERE visit IS NOT NULL AND visit NOT IN (SELECT visit FROM labs)",
    "SELECT cost FROM visits WHERE visit > 3 AND visit NOT IN (SELECT visit FROM labs UNION ALL SELECT visit FROM procedures WHERE price > 1)",
    "SELECT cost FROM visits WHERE visit NOT IN (SELECT visit FROM labs) AND NOT visit IS NULL",
    "SELECT v.cost FROM visits v JOIN labs a USING (visit) WHERE v.visit NOT IN (SELECT visit FROM procedures WHERE code = 'x')",
    "SELECT code FROM procedures WHERE visit NOT IN (SELECT visit FROM visits WHERE visit IS NOT NULL AND cost > 0.1)",
    "SELECT code FROM procedures WHERE visit NOT IN (SELECT visit FROM visits WHERE visit BETWEEN 2 AND 9)",
    "SELECT code FROM procedures WHERE visit NOT IN (SELECT visit FROM (SELECT visit, ward FROM visits WHERE visit IN (1, 2, 3, 4)) WHERE ward = 1)",
    "SELECT code FROM procedures WHERE visit NOT IN (SELECT visit FROM labs GROUP BY visit HAVING count(*) > 1)",
    "SELECT p.age, a.value FROM patients p LEFT JOIN visits v USING (patient) LEFT JOIN labs a ON a.visit = v.visit WHERE a.visit IS NOT NULL AND a.visit NOT IN (SELECT visit FROM procedures)",
    "SELECT s FROM (SELECT visit, sum(price) AS s FROM procedures GROUP BY visit) WHERE visit NOT IN (SELECT visit FROM labs WHERE value = 1)",
    # NOT IN whose subquery has rows of the unit of the row outside alone: NULLs on both sides, and none at all
    "SELECT ward FROM visits v WHERE ward NOT IN (SELECT a.value FROM labs a WHERE a.visit = v.visit)",
    "SELECT code FROM procedures q WHERE code NOT IN (SELECT r.code FROM procedures r WHERE r.visit = q.visit AND r.price IS DISTINCT FROM q.price)",
    "SELECT cost FROM visits v WHERE cost NOT IN (SELECT w.cost FROM visits w WHERE w.patient = v.patient AND w.ward <> v.ward)",
    "SELECT v.cost, q.code FROM visits v LEFT JOIN procedures q USING (visit) WHERE q.code NOT IN (SELECT r.code FROM procedures r WHERE r.visit = v.visit AND r.price > 1)",
    "SELECT v.cost, q.code FROM visits v LEFT JOIN procedures q USING (visit) WHERE q.visit NOT IN (SELECT a.visit FROM labs a WHERE a.visit = v.visit)",
    "SELECT cost FROM visits v WHERE 1 NOT IN (SELECT w.ward FROM visits w WHERE w.patient = v.patient AND w.cost > 0.1)",
    "SELECT cost FROM visits v WHERE NULL NOT IN (SELECT a.value FROM labs a WHERE a.visit = v.visit)",
    "SELECT ward FROM visits v WHERE ward + 1 NOT IN (SELECT a.value + 1 FROM labs a WHERE a.visit = v.visit)",
    "SELECT ward FROM visits v WHERE v.patient NOT IN (SELECT w.patient FROM visits w WHERE w.patient = v.patient AND w.ward > v.ward)",
    "SELECT age FROM patients p WHERE age NOT IN (SELECT v.ward FROM visits v WHERE v.patient = p.patient)",
    # of public rows
    "SELECT cost FROM visits WHERE ward NOT IN (SELECT ward FROM wards)",
    "SELECT cost FROM visits WHERE ward NOT IN (SELECT floor FROM floors)",
    "SELECT cost FROM visits WHERE ward NOT IN (SELECT floor FROM floors WHERE floor > 5)",
    "SELECT cost FROM visits v WHERE ward NOT IN (SELECT f.floor FROM floors f WHERE f.floor > v.ward OR f.floor IS NULL AND v.ward = 2)",
    # positive, and partners
    "SELECT cost FROM visits WHERE visit IN (SELECT visit FROM labs) AND patient IN (SELECT patient FROM patients WHERE age > 0)",
    "SELECT cost FROM visits WHERE visit = ANY (SELECT visit FROM labs)",
    "SELECT v.cost FROM visits v LEFT JOIN labs a USING (visit) WHERE a.visit IN (SELECT visit FROM procedures)",
    "SELECT v.cost FROM visits v ANTI JOIN labs a ON a.visit = v.visit AND a.value = v.ward",
    "SELECT v.cost FROM visits v SEMI JOIN labs a USING (visit) WHERE v.visit NOT IN (SELECT visit FROM procedures WHERE code = 'x' AND visit = v.visit)",
    "SELECT v.cost FROM visits v WHERE NOT EXISTS (SELECT 1 FROM labs a WHERE a.visit = v.visit AND a.value = v.ward)",
    # what does not change whether there is a row, or which values there are
    "SELECT v.cost FROM visits v WHERE EXISTS (SELECT DISTINCT a.value FROM labs a WHERE a.visit = v.visit ORDER BY a.value LIMIT 1)",
    "SELECT v.cost FROM visits v WHERE NOT EXISTS (SELECT a.value, count(*) FROM labs a WHERE a.visit = v.visit AND a.value > 0 GROUP BY a.value)",
    "SELECT v.cost FROM visits v WHERE EXISTS (SELECT 1 FROM labs a WHERE a.visit = v.visit AND a.value <> v.ward GROUP BY 1)",
    "SELECT v.cost FROM visits v WHERE EXISTS (SELECT max(a.value) FROM labs a WHERE a.visit = v.visit GROUP BY a.visit, a.value)",
    "SELECT age FROM patients p WHERE age IN (SELECT DISTINCT v.ward FROM visits v WHERE v.patient = p.patient)",
    "SELECT ward FROM visits v WHERE ward NOT IN (SELECT DISTINCT a.value FROM labs a WHERE a.visit = v.visit)",
)
REFUSED = {
    "SELECT v.cost FROM visits v WHERE EXISTS (SELECT count(*) FROM labs a WHERE a.visit = v.visit)": "v.visit is a column outside, .* rows are combined; .* v.visit IN",
    "SELECT v.cost FROM visits v WHERE EXISTS (SELECT a.value FROM labs a WHERE a.visit = v.visit GROUP BY ROLLUP(a.value))": "v.visit is a column outside",
    "SELECT v.cost FROM visits v WHERE NOT EXISTS (SELECT 1 FROM labs a WHERE a.visit = v.visit GROUP BY a.visit HAVING count(*) > 1)": "GROUP BY ...",
    "SELECT v.cost FROM visits v WHERE v.ward IN (SELECT max(a.value) FROM labs a WHERE a.visit = v.visit)": "v.visit is a column outside",
    "SELECT v.cost FROM visits v WHERE EXISTS (SELECT 1 FROM labs a WHERE a.visit = v.visit LIMIT 0)": "combined|LIMIT",
    "SELECT p.age FROM patients p WHERE EXISTS (SELECT 1 FROM visits v WHERE v.patient = p.patient AND EXISTS (SELECT 1 FROM labs a WHERE a.visit = v.visit AND a.value = p.age))": "p.age is a column outside, and stands two subqueries deep",
    "SELECT v.cost FROM visits v LEFT JOIN labs a USING (visit) WHERE a.visit NOT IN (SELECT visit FROM procedures)": "a.visit is NULL.*a.visit IS NOT NULL AND a.visit NOT IN.*NOT EXISTS",
    "SELECT cost FROM visits WHERE visit NOT IN (SELECT visit FROM labs)": "visit NOT IN .*where visit is NULL",
    "SELECT code FROM procedures WHERE visit NOT IN (SELECT v.visit FROM visits v WHERE v.cost > 0.1)": "where v.visit is NULL in any row.*v.visit IS NOT NULL in the subquery",
    "SELECT code FROM procedures WHERE visit NOT IN (SELECT v.visit FROM visits v WHERE v.visit IS NULL OR v.visit > 2)": "NOT EXISTS",
    "SELECT cost FROM visits WHERE (visit IS NOT NULL OR ward = 1) AND visit NOT IN (SELECT visit FROM labs)": "NOT EXISTS",
    "SELECT cost FROM visits WHERE NOT (visit IN (SELECT visit FROM visits))": "where visit is NULL, .* and where visit is NULL in any",
    "SELECT cost FROM visits WHERE visit IS NOT DISTINCT FROM 3 AND visit NOT IN (SELECT visit FROM labs)": "NOT EXISTS",
    "SELECT ward FROM visits WHERE patient NOT IN (SELECT v.patient FROM patients p LEFT JOIN visits v USING (patient))": "v.patient is NULL",
    "SELECT ward FROM visits WHERE patient NOT IN (SELECT v.patient FROM visits v FULL JOIN patients p USING (patient))": "NULL",
    "SELECT ward FROM visits WHERE patient NOT IN (SELECT v.patient FROM visits v RIGHT JOIN patients p ON p.patient = v.patient)": "NULL",
    "SELECT code FROM procedures WHERE visit NOT IN (SELECT visit FROM labs UNION ALL SELECT visit FROM visits)": "NULL",
    "SELECT ward FROM visits WHERE ward NOT IN (SELECT value FROM labs)": "other people",
    "SELECT cost FROM visits WHERE visit <> ALL (SELECT visit FROM labs)": "NOT IN",
    "SELECT cost FROM visits WHERE (visit, ward) NOT IN (SELECT visit, value FROM labs)": "NOT EXISTS",
    "SELECT cost FROM visits WHERE visit IN (SELECT visit FROM labs) OR ward = 1": "on its own",
    "SELECT cost FROM visits WHERE (visit IN (SELECT visit FROM labs)) IS NULL": "on its own",
    "SELECT cost FROM visits WHERE (visit IN (SELECT visit FROM labs)) IS NOT TRUE": "on its own",
    "SELECT cost FROM visits WHERE CASE WHEN visit IN (SELECT visit FROM labs) THEN ward = 1 ELSE ward = 2 END": "on its own",
    "SELECT visit IN (SELECT visit FROM labs) AS x FROM visits": "IN",
    "SELECT v.cost FROM visits v LEFT JOIN labs a ON a.visit = v.visit AND a.visit NOT IN (SELECT visit FROM procedures)": "IN",
}
EVERY = tuple(text for text in (*ROWS, *LOCAL) if text.startswith("SELECT") and "row_number" not in text)
"""But for bare names, and for rows that tie."""
LACKING = (
    "SELECT age FROM patients p WHERE EXISTS (SELECT 1 FROM visits v WHERE v.patient = p.patient)",
    "SELECT age FROM patients p WHERE NOT EXISTS (SELECT 1 FROM visits v WHERE v.patient = p.patient AND v.cost > 0.1)",
    "SELECT age FROM patients WHERE patient IN (SELECT patient FROM visits)",
    "SELECT p.age FROM patients p SEMI JOIN visits v ON v.patient = p.patient",
    "SELECT p.age FROM patients p ANTI JOIN visits v ON v.patient = p.patient AND v.ward > 1",
    "SELECT p.age, v.s FROM patients p JOIN (SELECT patient, cost + 1 AS s FROM visits) v ON v.patient = p.patient",
    "SELECT a.value, q.code FROM labs a JOIN procedures q ON a.visit = q.visit",
    "SELECT a.value, q.code FROM labs a LEFT JOIN procedures q ON a.visit = q.visit AND q.code = 'x'",
    "SELECT v.cost FROM visits v WHERE EXISTS (SELECT 1 FROM labs a WHERE a.visit = v.visit AND a.value <> v.ward)",
    "SELECT v.cost FROM visits v WHERE NOT EXISTS (SELECT 1 FROM labs a WHERE a.visit = v.visit AND a.value > v.ward)",
    # that units are equal, in the words of the text: NULL is not
    "SELECT p.age, q.age AS other FROM patients p JOIN patients q ON p.family = q.family",
    "SELECT p.age, q.age AS other FROM patients p JOIN patients q ON p.family IS NOT DISTINCT FROM q.family",
    "SELECT p.age FROM patients p SEMI JOIN patients q ON p.family = q.family AND p.age < q.age",
    "SELECT p.age FROM patients p SEMI JOIN patients q ON p.family IS NOT DISTINCT FROM q.family AND p.age < q.age",
    "SELECT p.age FROM patients p WHERE EXISTS (SELECT 1 FROM patients q WHERE q.family = p.family AND q.age <> p.age)",
    "SELECT age FROM patients p WHERE family IN (SELECT q.family FROM patients q JOIN visits v ON v.patient = q.patient)",
)
FLOORS = "CREATE TABLE floors(floor INTEGER); INSERT INTO floors VALUES (0), (NULL);"


@pytest.fixture(scope="module")
def db():
    made = Linked()
    made.con.execute(FLOORS)
    return made


@pytest.fixture(scope="module")
def family():
    made = Linked(unit="family")
    made.con.execute(FLOORS)
    return made


@pytest.fixture(scope="module")
def lacking():
    made = Linked(unit="family", orphans="unit")
    made.con.execute(FLOORS)
    return made


def is_answered(db: Linked, text: str) -> bool:
    try:
        db.source(text)
    except UnsupportedQuery:
        return False
    return True


def without_orphans(db: Linked, rows: dict[str, list[tuple]]) -> dict[str, list[tuple]]:
    units = db.units(rows)
    return {name: [row for row, unit in zip(given, units[name], strict=True) if unit != "nobody"] for name, given in rows.items()}


def differences(db: Linked, texts: tuple[str, ...], rows: dict[str, list[tuple]]) -> list[str]:
    """Return texts whose source over the rows gives others than DuckDB gives for the text over those that are no orphans."""
    db.fill(rows)
    found = {text: Counter(row[:-1] for row in db.read(text).elements()) for text in texts}
    db.fill(without_orphans(db, rows))
    return [text for text in texts if found[text] != Counter(tuple(map(str, row)) for row in db.con.execute(text).fetchall())]


@pytest.mark.parametrize("seed", range(cases(4)))
def test_rows_are_those_of_the_text(db, seed):
    rng = random.Random(seed)
    rows = db.random_rows(rng, rng.choice([0, 1, 3, 8]))
    assert differences(db, (*ANSWERED, *EVERY, *BY_UNIT), rows) == []


@pytest.mark.parametrize("seed", range(cases(2)))
def test_rows_are_those_of_the_text_where_a_unit_has_several_in_the_root(family, seed):
    rows = family.random_rows(random.Random(seed), 6)
    rows["patients"] = [(key, unit or 1, age) for key, unit, age in rows["patients"]]
    assert differences(family, (*ANSWERED, *EVERY), rows) == []


@pytest.mark.parametrize("seed", range(cases(4)))
def test_rows_are_those_of_the_text_where_units_are_null_and_orphans_are_one(lacking, seed):
    """Families that are NULL, and orphans in every table: rows of one unit, which meet along links as the text says."""
    answered = tuple(text for text in (*EVERY, *ANSWERED, *LACKING) if is_answered(lacking, text))
    assert len(answered) >= len(EVERY) + len(LACKING)
    rows = lacking.random_rows(random.Random(seed), 6)
    assert differences(lacking, answered, rows) == []


@pytest.mark.parametrize("listed", ["nothing", "a.nothing", "b.value", "a.value + nothing"])
@pytest.mark.parametrize("more", ["", " GROUP BY a.value"])
def test_names_in_the_list_of_exists_have_to_mean_something(db, listed, more):
    with pytest.raises(ArgumentError, match="nothing|b.value"):
        db.source(f"SELECT v.cost FROM visits v WHERE EXISTS (SELECT {listed} FROM labs a WHERE a.visit = v.visit{more})")
    for good in ("1", "*", "a.*", "value", "a.value", "v.cost"):
        db.source(f"SELECT v.cost FROM visits v WHERE EXISTS (SELECT {good} FROM labs a WHERE a.visit = v.visit)")


@pytest.mark.parametrize("text", REFUSED)
def test_what_other_peoples_rows_would_decide_is_refused(db, text):
    with pytest.raises(UnsupportedQuery, match=REFUSED[text]):
        db.source(text)
    db.con.execute(text)  # it is SQL that DuckDB answers
