"""What one person can make a statement do: work grows with her rows, never with their square."""

from __future__ import annotations

import random
from collections.abc import Iterator

import duckdb
import pytest
from pairwise import WHOLE
from unit_local_statements import EVERY
from unit_local_tables import Database, random_table, violations
from work import rows_given

from dpsql.errors import UnsupportedQuery
from dpsql.source import limits
from dpsql.source.analysis import analyse

pytestmark = pytest.mark.usefixtures("functions_as_shipped")
FEW = 10
"""Rows of a unit that meet each other, in these tests."""
SELF_JOINS = (
    "SELECT a.age FROM visits a " + " ".join(f"JOIN (SELECT patient FROM visits WHERE age >= 0) {x} USING (patient)" for x in "bcdef"),
    "SELECT a.age FROM visits a LEFT JOIN visits b ON a.patient = b.patient AND a.age <> b.age",
    "SELECT a.age FROM (SELECT patient, age FROM visits WHERE age >= 0) a, visits b, visits c WHERE a.patient = b.patient AND b.patient = c.patient",
    "SELECT b.age FROM visits a RIGHT JOIN visits b USING (patient)",
    "SELECT b.age FROM visits a FULL JOIN visits b ON a.patient = b.patient AND a.ok",
    "WITH x AS (SELECT patient, age FROM visits) SELECT x.age FROM x JOIN (SELECT y.patient FROM x y JOIN x z USING (patient)) w USING (patient)",
    "SELECT v.age FROM visits v JOIN loose l ON v.kind = l.kind JOIN visits w ON w.patient = v.patient",
    "SELECT patient, kind FROM visits a JOIN visits b USING (patient, kind) UNION ALL SELECT a.patient, a.kind FROM visits a JOIN visits b USING (patient, kind)",
    "SELECT age FROM visits v WHERE EXISTS (SELECT 1 FROM visits w WHERE w.patient = v.patient AND w.age <> v.age) AND ok",
    "SELECT age FROM visits v WHERE EXISTS (SELECT 1 FROM visits w WHERE w.patient = v.patient AND w.age <> v.age AND w.day > v.day)",
    "SELECT age FROM visits v WHERE NOT EXISTS (SELECT 1 FROM visits w WHERE w.patient = v.patient AND w.note > v.note)",
    "SELECT age FROM visits v WHERE kind NOT IN (SELECT kind FROM visits w WHERE w.patient = v.patient AND NOT w.ok)",
)
LIMITED = {
    "SELECT age FROM visits v WHERE EXISTS (SELECT 1 FROM visits w WHERE w.patient = v.patient AND w.day > v.day)": False,
    "SELECT age FROM visits v WHERE EXISTS (SELECT 1 FROM visits w WHERE w.patient = v.patient AND w.day > v.day AND w.age <> v.age)": True,
    "SELECT age FROM visits v WHERE EXISTS (SELECT 1 FROM visits w WHERE w.patient = v.patient AND w.kind = v.kind)": False,
    "SELECT age FROM visits v WHERE EXISTS (SELECT 1 FROM visits w WHERE w.patient = v.patient AND w.age + v.age = 3)": True,
    "SELECT age FROM visits v WHERE patient IN (SELECT patient FROM visits WHERE ok)": False,
    "SELECT age FROM visits v WHERE patient IS NOT NULL AND patient NOT IN (SELECT patient FROM visits WHERE ok AND patient IS NOT NULL)": False,
    "SELECT age FROM visits v WHERE kind IN (SELECT kind FROM visits w WHERE w.patient = v.patient)": False,
    "SELECT age FROM visits v WHERE kind NOT IN (SELECT kind FROM visits w WHERE w.patient = v.patient)": True,
    "SELECT a.age FROM visits a SEMI JOIN (FROM visits WHERE ok) b USING (patient)": False,
    "SELECT a.age FROM visits a SEMI JOIN visits b ON a.patient = b.patient AND a.age < b.age": True,
    "SELECT a.age FROM visits a JOIN visits b USING (patient)": True,
    "SELECT v.age, p.n FROM visits v JOIN per_patient p USING (patient)": False,
    "SELECT v.age, p.kind FROM visits v LEFT JOIN latest p ON p.patient = v.patient": False,
    "SELECT v.age, p.n FROM per_patient p FULL JOIN visits v ON v.patient = p.patient": False,
    "SELECT a.kind FROM latest a JOIN latest b USING (patient)": False,
    "SELECT v.age, l.w FROM visits v CROSS JOIN loose l": False,
    "SELECT patient, sum(cost) AS s FROM visits GROUP BY patient": False,
    "SELECT patient, sum(cost) OVER (PARTITION BY patient) AS s FROM visits": True,
    "SELECT patient, mode(age) OVER (PARTITION BY patient ORDER BY day) AS s FROM visits": True,
    "SELECT patient, sum(age) OVER (PARTITION BY patient ORDER BY day) AS s FROM visits": False,
    "SELECT patient, median(cost) OVER (PARTITION BY patient ORDER BY day) AS s FROM visits": False,
}


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "MOST_ROWS", FEW)
        yield Database("INTEGER")


def heavy(db: Database, rows: int) -> None:
    """Fill the table with thirty people of three rows each, and one of so many."""
    db.con.execute("DELETE FROM visits")
    for patient, count in [*((number, 3) for number in range(2, 32)), (1, rows)]:
        db.con.execute(
            "INSERT INTO visits SELECT ?, i % 50, i % 7, DATE '2020-01-01' + CAST(i % 300 AS INTEGER), 'k' || i % 3, 'n' || i, i % 2 = 0, 1, i, i, NULL "
            "FROM range(?) AS numbers(i)", [patient, count]
        )


@pytest.mark.slow
def test_work_grows_with_the_rows_of_a_unit_and_not_with_their_square(database: Database) -> None:
    texts = [*EVERY, *SELF_JOINS]
    found: dict[int, list[int]] = {}
    for rows in (1, 1000):
        heavy(database, rows)
        found[rows] = [rows_given(database.cursor, database.source(text).sql) for text in texts]
    bounds = [12 * 8 * 1000 + 12 * 10 * FEW**2] * len(texts)  # tables, layers of each, rows; joins, each limited
    above = {text: more - one for text, one, more, most in zip(texts, found[1], found[1000], bounds, strict=True) if more - one > most}
    assert not above


def test_without_the_limit_it_grows_with_the_square(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the test above would find."""
    monkeypatch.setattr(limits, "MOST_ROWS", 10**6)
    unlimited = Database("INTEGER")
    heavy(unlimited, 1000)
    assert rows_given(unlimited.cursor, unlimited.source("SELECT a.age FROM visits a JOIN visits b USING (patient)").sql) > 10**6


@pytest.mark.parametrize(("text", "expected"), LIMITED.items())
def test_what_is_limited(database: Database, text: str, expected: bool) -> None:
    assert (database.source(text).limited == FEW) is expected


def test_nobody_with_few_rows_loses_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOST_ROWS", 1000)
    database = Database("INTEGER")
    heavy(database, 3)
    database.con.execute("SET disabled_optimizers = 'filter_pushdown'")  # with which DuckDB 1 leaves rows of an EXISTS out
    for text in SELF_JOINS:
        wanted = len(database.con.execute(text).fetchall())
        assert sum(database.rows(database.source(text).sql).values()) == wanted, text


def test_whose_rows_are_kept_depends_on_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOST_ROWS", 2)
    database = Database("INTEGER")
    texts = [text for text in (*EVERY, *SELF_JOINS) if any(word in text for word in (" JOIN ", "EXISTS", " IN (", "OVER", "visits b"))]
    limited = [text for text in texts if database.source(text).limited]
    assert len(limited) >= 20
    for seed in range(4 if WHOLE else 1):
        assert violations(database, random_table(random.Random(seed), "INTEGER", 40), limited, seed) == []


def test_columns_that_no_order_tells_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a unit with too many rows none is kept, instead of any."""
    monkeypatch.setattr(limits, "MOST_ROWS", 2)
    con = duckdb.connect()
    con.execute("CREATE TABLE t AS SELECT i // 3 AS u, to_days(CAST(i AS INTEGER)) AS l FROM range(5) AS numbers(i)")
    source = analyse(con.cursor(), "SELECT a.l FROM t a JOIN t b ON a.u = b.u", database="memory", schema="main", local=True,
                     protected=lambda t: True, unit_column=lambda t: "u")
    assert source.limited
    assert sorted(row[0].days for row in con.execute(source.sql).fetchall()) == [3, 3, 4, 4]
    con.close()


REPEATED = (
    "SELECT max(note) OVER (PARTITION BY patient) AS x FROM visits",
    "SELECT first_value(note) OVER (PARTITION BY patient ORDER BY age) AS x FROM visits",
    "SELECT nth_value(note, 1) OVER (PARTITION BY patient ORDER BY age) AS x FROM visits",
    "SELECT quantile_disc(note, 0.5) OVER (PARTITION BY patient) AS x FROM visits",
    "SELECT mode(note) OVER (PARTITION BY patient) AS x FROM visits",
    "SELECT arg_max(note, age) OVER (PARTITION BY patient) AS x FROM visits",
    "SELECT arg_max(age, note) OVER (PARTITION BY patient) AS x FROM visits",
    "SELECT x FROM visits JOIN (SELECT patient, max(note) AS x FROM visits GROUP BY patient) p USING (patient)",
    "SELECT x FROM (SELECT patient, max(note) AS x FROM visits GROUP BY patient) p JOIN visits USING (patient)",
    "SELECT x FROM (SELECT patient, max(note) AS x FROM visits GROUP BY patient) p FULL JOIN visits USING (patient)",
    "SELECT a.note AS x FROM visits a JOIN visits b USING (patient)",
    "SELECT note AS x FROM visits CROSS JOIN loose",
    "SELECT note AS x FROM visits, (VALUES (1), (2)) AS c(y)",
    "SELECT note AS x FROM loose CROSS JOIN visits",
    "SELECT note AS x FROM visits LEFT JOIN loose ON visits.age > loose.low",
    "SELECT x FROM (SELECT patient, max(note) AS x FROM visits GROUP BY patient) CROSS JOIN loose",
    "SELECT b.note AS x FROM visits a LEFT JOIN visits b ON a.patient = b.patient AND a.age = b.age",
)


@pytest.mark.parametrize("text", REPEATED)
def test_what_is_repeated_for_many_rows_has_a_bound(database: Database, text: str) -> None:
    database.con.execute("DELETE FROM visits; INSERT INTO visits (patient, age, note) SELECT 1, i, repeat('é', 5000) FROM range(3) AS numbers(i)")
    (longest,) = database.cursor.execute(f"SELECT max(length(CAST(x AS VARCHAR))) FROM ({database.source(text).sql})").fetchall()[0]
    assert longest == (1 if "arg_max(age" in text else limits.LONGEST)


def test_what_is_one_row_is_as_it_was(database: Database) -> None:
    database.con.execute("DELETE FROM visits; INSERT INTO visits (patient, age, note) SELECT 1, i, repeat('é', 5000) FROM range(3) AS numbers(i)")
    for text in (
        "SELECT patient, max(note) AS x FROM visits GROUP BY patient",
        "SELECT patient, lag(note) OVER (PARTITION BY patient ORDER BY age) AS x FROM visits",
        "SELECT v.note AS x FROM visits v JOIN per_patient p USING (patient)",
        "SELECT v.note AS x FROM visits v JOIN per_patient p USING (patient) LEFT JOIN region r ON r.kind = v.kind",
        "SELECT a.x FROM (SELECT patient, max(note) AS x FROM visits GROUP BY patient) a JOIN per_patient USING (patient)",
    ):
        assert database.cursor.execute(f"SELECT max(length(x)) FROM ({database.source(text).sql})").fetchall() == [(5000,)], text


@pytest.mark.parametrize(("kind", "made"), [("INTEGER[]", "range(1000)"), ("STRUCT(q VARCHAR)", "{'q': 'x'}"), ("JSON", "'[1]'")])
def test_what_has_no_size_is_not_repeated(kind: str, made: str) -> None:
    con = duckdb.connect()
    con.execute(f"CREATE TABLE t AS SELECT i // 3 AS u, CAST({made} AS {kind}) AS l, 'x'::BLOB AS b FROM range(5) AS numbers(i)")
    field = ".q" if kind.startswith("STRUCT") else ""
    for text in (f"SELECT a.l{field} AS x FROM t a JOIN t b USING (u)", "SELECT first_value(l) OVER (PARTITION BY u ORDER BY b) AS x FROM t"):
        with pytest.raises(UnsupportedQuery, match=r"would be repeated for many|tie are told apart"):
            analyse(con.cursor(), text, database="memory", schema="main", local=True, protected=lambda t: True, unit_column=lambda t: "u")
    con.close()


def test_long_blobs_are_left_out_where_they_would_be_repeated() -> None:
    con = duckdb.connect()
    con.execute("CREATE TABLE t AS SELECT 1 AS u, CAST(repeat('x', 200 * CAST(i AS INTEGER)) AS BLOB) AS b FROM range(1, 3) AS numbers(i)")
    source = analyse(con.cursor(), "SELECT a.b FROM t a JOIN t b USING (u)", database="memory", schema="main", local=True,
                     protected=lambda t: True, unit_column=lambda t: "u")
    assert sorted(len(row[0]) if row[0] else 0 for row in con.execute(source.sql).fetchall()) == [0, 0, 200, 200]
    con.close()
