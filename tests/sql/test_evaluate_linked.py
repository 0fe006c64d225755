"""Databases of linked tables compared: known distances, and what is NULL, missing, twice or empty there."""

from __future__ import annotations

import sys
from pathlib import Path

import duckdb
import pytest

from dpsql.custodian.evaluate_linked import COLUMNS, MEASURES, Row, evaluate_linked
from dpsql.custodian.linked_reading import ComparedTable, read
from dpsql.domains.attributes import Attribute, Domain
from dpsql.errors import DomainError

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import households

YES_NO = Attribute("x", "VARCHAR", "categorical", ("a", "b"), nullable=False)
SEX = Attribute("sex", "VARCHAR", "categorical", ("Female", "Male"), nullable=False)
COST = Attribute("cost", "DOUBLE", "numeric", edges=(0.0, 10.0, 20.0), nullable=False)


@pytest.fixture
def con() -> duckdb.DuckDBPyConnection:
    con = duckdb.connect()
    con.execute(
        """CREATE SCHEMA s;
        CREATE TABLE p (id INTEGER, x VARCHAR); CREATE TABLE c (pid INTEGER, x VARCHAR, cost DOUBLE);
        CREATE TABLE s.p (id BIGINT, x VARCHAR); CREATE TABLE s.c (pid BIGINT, x VARCHAR, cost DOUBLE)"""
    )
    return con


def linked(schema: str, most: int = 5) -> list[ComparedTable]:
    return [
        ComparedTable("p", Domain((YES_NO,)), f"SELECT * FROM {schema}.p"),
        ComparedTable("c", Domain((YES_NO, COST)), f"SELECT * FROM {schema}.c", 0, "pid", "id", most),
    ]


def figures(rows: list[Row], measure: str, level: str = "columns", **wanted: str) -> list[dict[str, object]]:
    named = [dict(zip(COLUMNS, row, strict=True)) for row in rows]
    chosen = [row for row in named if row["measure"] == measure and row["level"] == level]
    return [row for row in chosen if all(row[name] == value for name, value in wanted.items())]


def test_equal_databases_have_no_error(con: duckdb.DuckDBPyConnection) -> None:
    households.create(con, 300)
    domains = (
        Domain((Attribute("region", "VARCHAR", "categorical", tuple(households.REGIONS), nullable=False),)),
        Domain((Attribute("age", "SMALLINT", "numeric", edges=tuple(map(float, range(0, 101, 10)))), SEX)),
    )
    tables = [
        ComparedTable("households", domains[0], "SELECT * FROM households"),
        ComparedTable("persons", domains[1], "SELECT * FROM persons", 0, "household_id", "household_id", 8, 0, ('"age" >= 0',)),
    ]
    rows = evaluate_linked(con, tables, tables)
    assert {row[1] for row in rows} == set(MEASURES)
    assert [row[1] for row in rows if row[0] == "summary"] == list(MEASURES)
    column = list(COLUMNS).index("error")
    assert all(row[column] == 0 == row[column + 1] for row in rows)
    assert figures(rows, "rows", "summary")[0]["raw"] > 900


def test_one_database_by_hand(con: duckdb.DuckDBPyConnection) -> None:
    con.execute(
        """INSERT INTO p VALUES (1, 'a'), (2, 'b'); INSERT INTO c VALUES (1, 'a', 1), (1, 'a', 3), (2, 'b', 12), (2, 'b', 14);
        INSERT INTO s.p VALUES (7, 'a'), (9, 'b'); INSERT INTO s.c VALUES (7, 'a', 2), (7, 'b', 2), (9, 'b', 13)"""
    )
    rows = evaluate_linked(con, linked("main"), linked("s"))
    (fan,) = figures(rows, "fan-out", "table")
    assert (fan["raw"], fan["synthetic"], fan["error"]) == (2, 1.5, 0.5)
    (across,) = figures(rows, "parent and child", column_name="x", other_column="x")
    assert across["error"] == pytest.approx((1 / 6 + 1 / 3 + 1 / 6) / 2)  # (aa, ab, bb): raw 1/2, 0, 1/2; synthetic 1/3 each
    assert across["independent"] == 0.5
    (siblings,) = figures(rows, "siblings", column_name="x", other_column="x")
    assert (siblings["error"], siblings["independent"]) == (1, 0.5)  # raw aa, bb; synthetic ab, ba
    (means,) = figures(rows, "group means", column_name="cost", other_column="x")
    assert (means["error"], means["largest"], means["figures"]) == (0, 0, 2)
    (one,) = figures(rows, "one column", table_name="c", column_name="x")
    assert one["error"] == pytest.approx(2 / 3 - 1 / 2)
    (number,) = figures(rows, "one column", table_name="p", column_name="count(c)")
    assert number["error"] == 0.5
    (two,) = figures(rows, "two children", column_name="x", other_column="x")
    bound = 0.01 * 2  # of two parents
    assert (two["error"], two["largest"]) == (pytest.approx((1 + 1 + 1 / bound) / 3), 1 / bound)  # aa, bb, and ab which none has


def test_units_weigh_one_where_that_is_asked_for(con: duckdb.DuckDBPyConnection) -> None:
    con.execute(
        """INSERT INTO p VALUES (1, 'a'), (2, 'b'); INSERT INTO c VALUES (1, 'a', 1), (2, 'b', 1), (2, 'b', 1), (2, 'b', 1);
        INSERT INTO s.p FROM p; INSERT INTO s.c VALUES (1, 'a', 1), (2, 'b', 1)"""
    )
    by_row, by_unit = (evaluate_linked(con, linked("main"), linked("s"), weighting) for weighting in ("rows", "units"))
    assert figures(by_row, "one column", table_name="c", column_name="x")[0]["error"] == 0.25
    assert figures(by_unit, "one column", table_name="c", column_name="x")[0]["error"] == 0


def test_siblings_by_row_are_those_of_a_self_join(con: duckdb.DuckDBPyConnection) -> None:
    con.execute(
        """INSERT INTO p VALUES (1, 'a'), (2, 'b'); INSERT INTO c VALUES (1, 'a', 1), (1, 'a', 1), (2, 'a', 1), (2, 'b', 1), (2, 'b', 1);
        INSERT INTO s.p FROM p; INSERT INTO s.c VALUES (1, 'a', 1), (1, 'b', 1), (2, 'b', 1), (2, 'b', 1)"""
    )
    joined = """SELECT count(*) FILTER (l.x = 'a' AND r.x = 'a'), count(*) FILTER (l.x <> r.x), count(*) FILTER (l.x = 'b' AND r.x = 'b')
        FROM (SELECT rowid AS n, * FROM {0}.c) l JOIN (SELECT rowid AS n, * FROM {0}.c) r ON l.pid = r.pid AND l.n <> r.n"""
    raw, synthetic = (con.execute(joined.format(schema)).fetchone() for schema in ("main", "s"))
    assert (raw, synthetic) == ((2, 4, 2), (0, 2, 2))
    rows = evaluate_linked(con, linked("main"), linked("s"))
    (found,) = figures(rows, "siblings by row", column_name="x", other_column="x")
    error = sum(abs(a / sum(raw) - b / sum(synthetic)) for a, b in zip(raw, synthetic, strict=True)) / 2
    assert found["error"] == pytest.approx(error)
    (weighed,) = figures(rows, "siblings", column_name="x", other_column="x")
    assert weighed["error"] == pytest.approx(0.5)  # aa 1/2 + 0, ab and ba 0 + 1/3, bb 0 + 1/6; and 0, 1/2, 1/2


def test_independent_children_have_the_known_distance() -> None:
    """Birthplaces are shared with a known probability; drawn again for everybody, the distance is that of independence.

    Both are seeded: the same every time. From 20,000 households the distance is within .01 of the known one.
    """
    con = duckdb.connect()
    households.create(con, 20_000)
    con.execute("CREATE SCHEMA s; CREATE TABLE s.households AS FROM households")
    con.execute("CREATE TABLE shuffled AS SELECT row_number() OVER () AS i, birthplace FROM (FROM persons ORDER BY hash(person_id, 7))")
    con.execute("CREATE TABLE s.persons AS SELECT p.person_id, household_id, s.birthplace FROM persons p JOIN shuffled s ON person_id = i")
    place = Domain((Attribute("birthplace", "VARCHAR", "categorical", tuple(households.BIRTHPLACES), nullable=False),))

    def tables(schema: str) -> list[ComparedTable]:
        return [
            ComparedTable("households", Domain(()), f"SELECT * FROM {schema}.households"),
            ComparedTable("persons", place, f"SELECT * FROM {schema}.persons", 0, "household_id", "household_id", 8),
        ]

    (found,) = figures(evaluate_linked(con, tables("main"), tables("s")), "siblings", column_name="birthplace")
    shares = households.BIRTHPLACES.values()
    known = households.SAME**2 * sum(p * (1 - p) for p in shares)
    assert found["error"] == pytest.approx(known, abs=0.01)
    assert found["independent"] == pytest.approx(known, abs=0.01)


def test_orphans_and_duplicate_keys_are_counted_and_left_out(con: duckdb.DuckDBPyConnection) -> None:
    con.execute(
        """INSERT INTO p VALUES (1, 'a'), (2, 'b'), (NULL, 'a'); INSERT INTO c VALUES (1, 'a', 1), (NULL, 'b', 1), (9, 'b', 1);
        INSERT INTO s.p VALUES (1, 'a'), (1, 'a'), (2, 'b'); INSERT INTO s.c VALUES (1, 'a', 1), (3, 'b', 1)"""
    )
    rows = evaluate_linked(con, linked("main"), linked("s"))
    (orphans,) = figures(rows, "orphans", "table")
    assert (orphans["raw"], orphans["synthetic"], orphans["error"]) == (2, 1, 1)
    (keys,) = figures(rows, "duplicate keys", "table")
    assert (keys["raw"], keys["synthetic"], keys["error"]) == (1, 1, 1)
    assert figures(rows, "one column", table_name="c", column_name="x")[0]["error"] == 0
    assert figures(rows, "rows", "table", table_name="c")[0]["synthetic"] == 2
    assert figures(rows, "fan-out", "table")[0]["synthetic"] == pytest.approx(1 / 3)


def test_empty_tables(con: duckdb.DuckDBPyConnection) -> None:
    rows = evaluate_linked(con, linked("main"), linked("s"))
    assert all(row[9] == 0 for row in rows)
    con.execute("INSERT INTO p VALUES (1, 'a'); INSERT INTO c VALUES (1, 'a', 1), (1, 'b', 1)")
    rows = evaluate_linked(con, linked("main"), linked("s"))
    for measure in ("one column", "two columns", "parent and child", "siblings"):
        assert {row["error"] for row in figures(rows, measure)} == {1.0}, measure
    assert figures(rows, "fan-out", "table")[0]["error"] == 1


def test_keys_of_text_are_compared_by_bytes(con: duckdb.DuckDBPyConnection) -> None:
    con.execute(
        """CREATE OR REPLACE TABLE p (id VARCHAR COLLATE NOCASE, x VARCHAR);
        CREATE OR REPLACE TABLE c (pid VARCHAR COLLATE NOCASE, x VARCHAR, cost DOUBLE);
        INSERT INTO p VALUES ('k', 'a'), ('K', 'b'); INSERT INTO c VALUES ('K', 'a', 1)"""
    )
    (parent, child) = read(con, linked("main"))
    assert parent.duplicates == 0
    assert child.codes.parent is not None
    assert parent.codes.columns[0][child.codes.parent].tolist() == [1]  # the parent 'K', whose x is 'b'


def test_more_children_than_a_release_may_have(con: duckdb.DuckDBPyConnection) -> None:
    con.execute("INSERT INTO p VALUES (1, 'a'); INSERT INTO c SELECT 1, 'a', 1 FROM range(9)")
    con.execute("INSERT INTO s.p VALUES (1, 'a'); INSERT INTO s.c SELECT 1, 'a', 1 FROM range(2)")
    rows = evaluate_linked(con, linked("main", 2), linked("s", 2))
    assert figures(rows, "fan-out", "table")[0]["error"] == 1
    assert figures(rows, "one column", table_name="p", column_name="count(c)")[0]["error"] == 1


def test_a_link_that_is_missing_or_of_another_type_is_named(con: duckdb.DuckDBPyConnection) -> None:
    con.execute("ALTER TABLE s.c DROP pid")
    with pytest.raises(DomainError, match="'c' lacks the column 'pid'"):
        evaluate_linked(con, linked("main"), linked("s"))
    con.execute("ALTER TABLE s.c ADD pid VARCHAR")
    with pytest.raises(DomainError, match=r"c\.pid is VARCHAR and the key it refers to, p\.id, is BIGINT"):
        evaluate_linked(con, linked("main"), linked("s"))
    assert con.execute("SELECT count(*) FROM duckdb_tables() WHERE temporary").fetchone() == (0,)
