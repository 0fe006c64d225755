"""Spark: a name stands for a stored table; and what Spark says of a row is printed by none of pyspark's loggers."""

from __future__ import annotations

import logging
import os

import duckdb
import pytest

import dpsql

pytest.importorskip("pyspark.sql")

from dpsql.engines.spark.reading import SparkReading, withheld  # noqa: E402
from dpsql.errors import DpsqlError  # noqa: E402

VIEWS = {
    "windows": "SELECT id, count(*) OVER () AS total FROM seen_people",
    "chance": "SELECT id, rand() AS x FROM seen_people",
    "inside": "SELECT id, (SELECT max(id) FROM seen_people) AS x FROM seen_people",
    "plain": "SELECT id FROM seen_people",
}


@pytest.fixture
def people(spark, tmp_path):
    spark.sql("DROP TABLE IF EXISTS seen_people")
    spark.sql(f"CREATE TABLE seen_people USING parquet LOCATION '{tmp_path}/t' AS SELECT id, concat('secret-', id) AS tx FROM range(50)")
    yield spark
    spark.sql("DROP TABLE IF EXISTS seen_people")


@pytest.fixture
def con():
    with duckdb.connect() as con:
        dpsql.load(con, progress=False)
        yield con


def named(con, relation, name="people"):
    con.execute(f"CALL dp_remote('{name}', engine := 'spark', url := 'active', relation := $1)", [relation])


@pytest.mark.parametrize("kind", ["VIEW", "GLOBAL TEMPORARY VIEW"])
def test_views_are_refused(con, people, kind):
    for name, text in VIEWS.items():
        shown = f"global_temp.seen_{name}" if "GLOBAL" in kind else f"seen_{name}"
        people.sql(f"CREATE {kind} seen_{name} AS {text}")
        try:
            with pytest.raises(duckdb.Error, match="no table of Spark but a view"):
                named(con, shown)
        finally:
            people.sql(f"DROP VIEW {shown}")
    named(con, "seen_people")


def test_a_table_that_becomes_a_view_is_not_read(con, people):
    named(con, "seen_people")
    con.execute("CALL dp_protect('people', epsilon := 1, delta := 1e-9, privacy_unit := 'id', max_contributions := 1)")
    people.sql("ALTER TABLE seen_people RENAME TO seen_below")
    people.sql("CREATE VIEW seen_people AS SELECT id, tx FROM seen_below LIMIT 3")
    try:
        with pytest.raises(duckdb.Error, match="no table of Spark but a view"):
            con.execute("FROM dp_query('SELECT count(*) FROM people', epsilon := 0.1)").fetchall()
        assert con.execute("SELECT count(*) FROM dp_ledger() WHERE action = 'charge'").fetchone() == (0,)
    finally:
        people.sql("DROP VIEW seen_people")
        people.sql("ALTER TABLE seen_below RENAME TO seen_people")


def test_tables_that_are_queries_elsewhere_or_lines_are_refused(con, people, tmp_path):
    people.sql(f"CREATE TABLE seen_lines (id INT) USING csv LOCATION '{tmp_path}/c'")
    try:
        with pytest.raises(duckdb.Error, match="USING csv"):
            named(con, "seen_lines")
    finally:
        people.sql("DROP TABLE seen_lines")


def test_temporary_views_are_none(con, people):
    people.range(3).createOrReplaceTempView("seen_mine")
    with pytest.raises(duckdb.Error, match="temporary view belongs to one session"):
        named(con, "seen_mine")


def test_a_file_under_two_names_is_refused(con, people, tmp_path):
    first = next((tmp_path / "t").glob("*.parquet"))
    named(con, f"parquet:{tmp_path}/t")
    for link in (os.link, os.symlink):
        link(first, tmp_path / "t" / "other.parquet")
        with pytest.raises(duckdb.Error, match="two names in it are one file"):
            named(con, f"parquet:file://{tmp_path}/t", "again")
        (tmp_path / "t" / "other.parquet").unlink()


@pytest.mark.parametrize("through", ["reading", "withheld"])
def test_no_logger_says_what_spark_says(people, capfd, through):
    own = people.newSession()
    own.conf.set("spark.sql.ansi.enabled", "true")
    failing = lambda: own.sql("SELECT sum(CAST(tx AS INT)) FROM seen_people").collect()  # noqa: E731
    with pytest.raises(Exception, match="secret-"):
        failing()
    assert "secret-" in capfd.readouterr().err  # pyspark's logger does print it: else this test would say nothing
    before = [list(logging.getLogger(name).filters) for name in ("SQLQueryContextLogger", "py4j")]
    with pytest.raises(DpsqlError) as error:
        if through == "reading":
            with SparkReading(own) as reading:
                reading.run(failing)
        else:
            with withheld():
                failing()
    said = capfd.readouterr()
    assert "secret-" not in said.err + said.out + str(error.value)
    assert before == [list(logging.getLogger(name).filters) for name in ("SQLQueryContextLogger", "py4j")]
    with pytest.raises(Exception, match="secret-"):
        failing()
    assert "secret-" in capfd.readouterr().err  # the caller's own errors are printed as before
