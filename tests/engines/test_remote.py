"""dp_remote: a name, types and no rows; what is refused. The engine is not asked: its description is given."""

from __future__ import annotations

import duckdb
import pytest

import dpsql
from dpsql.engines import registry
from dpsql.engines.remote import Described, Remote
from dpsql.engines.spark.session import checked_url
from dpsql.errors import ArgumentError
from dpsql.measure import reading

COLUMNS = [Described("person", "BIGINT", "bigint"), Described("Age", "INTEGER", "int"), Described("tags", None, "array<string>")]
CALL = "CALL dp_remote('people', engine := 'spark', url := 'sc://h:15002', relation := 'lake.people')"


@pytest.fixture
def described(monkeypatch):
    columns = list(COLUMNS)
    monkeypatch.setattr(registry, "describe", lambda remote, cursor: list(columns))
    return columns


@pytest.fixture
def con(described):
    with duckdb.connect() as con:
        dpsql.load(con, progress=False)
        yield con


def test_the_table_has_types_and_no_rows(con):
    rows = con.execute(CALL).fetchall()
    assert [row[:3] for row in rows] == [("person", "BIGINT", "bigint"), ("Age", "INTEGER", "int"), ("tags", None, "array<string>")]
    assert [row[3].split(":")[0] for row in rows] == ["added", "added", "left out"]
    assert con.execute("SELECT count(*) FROM people").fetchone() == (0,)
    assert [row[:2] for row in con.execute("DESCRIBE people").fetchall()] == [("person", "BIGINT"), ("Age", "INTEGER")]
    assert con.execute("SELECT source, engine, url, relation FROM dpsql.remotes").fetchall() == [("main.people", "spark", "sc://h:15002", "lake.people")]


def test_again_it_looks_again(con, described):
    con.execute(CALL)
    described.append(Described("later", "DATE", "date"))
    assert [row[3].split(":")[0] for row in con.execute(CALL).fetchall()] == ["there", "there", "left out", "left out"]
    con.execute(CALL.replace("h:15002", "other:15002"))
    assert con.execute("SELECT url FROM dpsql.remotes").fetchall() == [("sc://other:15002",)]
    described[1] = Described("Age", "BIGINT", "bigint")
    with pytest.raises(duckdb.Error, match=r"\['age'\] of people have other types"):
        con.execute(CALL)


def test_a_budget_stays_with_its_rows(con):
    con.execute(CALL)
    con.execute(CALL.replace("lake.people", "lake.others"))  # nothing was spent
    con.execute("CALL dp_protect('people', epsilon := 3, delta := 1e-9, privacy_unit := 'person', max_contributions := 1)")
    with pytest.raises(duckdb.Error, match="a budget of its own"):
        con.execute(CALL)


def test_a_table_with_rows_is_not_taken(con):
    con.execute("CREATE TABLE people AS SELECT 1 AS person")
    with pytest.raises(duckdb.Error, match="is a table of this database already"):
        con.execute(CALL)
    con.execute("CREATE VIEW v AS SELECT 1 AS person")
    with pytest.raises(duckdb.Error, match="already"):
        con.execute(CALL.replace("'people'", "'v'"))


@pytest.mark.parametrize("name", ["Odd one", "select", 'a"b', "ünïcode", "a.b"])
def test_odd_names(con, name):
    quoted = name.replace("'", "''")
    con.execute(CALL.replace("'people'", f"'{quoted}'"))
    identifier = '"' + name.replace('"', '""') + '"'
    assert con.execute(f"SELECT count(*) FROM {identifier}").fetchone() == (0,)
    con.execute(f"CALL dp_protect('{identifier}', epsilon := 1, delta := 1e-9)")


@pytest.mark.parametrize(
    "url",
    ["sc://h:15002/;token=hush", "sc://me:hush@h:15002", "spark://me:hush@h:7077", "sc://h:15002/;use_ssl=true;Authorization=hush", "sc://h:15002/;x-api-key=hush", "sc://h:15002/;pw=hush", "sc://h:15002/?pw=hush", "http://hush", "local[0]", "", "local[2] hush"],
)
def test_credentials_and_unknown_urls_are_refused_and_not_repeated(con, url):
    with pytest.raises(duckdb.Error) as error:
        con.execute(CALL.replace("sc://h:15002", url))
    assert "hush" not in str(error.value) or "//hush" in url or " hush" in url
    assert con.execute("SELECT count(*) FROM duckdb_tables() WHERE table_name = 'people'").fetchone() == (0,)


@pytest.mark.parametrize(
    "relation",
    ["parquet:s3a://KEY:hush@bucket/people", "parquet:s3a://KEY:hu/sh@bucket/people", "delta:wasbs://c@a/x?sig=hush", "lake.people;password=hush"],
)
def test_credentials_in_a_relation_are_refused_and_not_repeated(con, relation):
    with pytest.raises(duckdb.Error, match="holds credentials") as error:
        con.execute(CALL.replace("lake.people", relation))
    assert "hush" not in str(error.value)
    assert "hu/sh" not in str(error.value)
    with pytest.raises(ArgumentError, match="into = .* holds credentials"):
        registry.writer(Remote("spark", "local", "lake.people"), f"spark:{relation}")


@pytest.mark.parametrize("relation", ["parquet:hdfs://h:8020/a@b", "parquet:abfss://c@a.dfs/people", "parquet:/data/token=1", "a.b.c"])
def test_relations_without(relation):
    assert registry.whole("spark", relation) == relation


@pytest.mark.parametrize("url", ["active", "local", "local[*]", "local[2]", "spark://a:7077", "sc://a:15002/;use_ssl=true"])
def test_known_urls(url):
    assert checked_url(url) == url


def test_comparisons_with_raw_rows_are_refused(con):
    con.execute(CALL)
    con.execute("CALL dp_protect('people', epsilon := 3, delta := 1e-9, privacy_unit := 'person', max_contributions := 1)")
    con.execute("CALL dp_declare('people', 'Age', lower := 0, upper := 100, bins := 10)")
    con.execute("CREATE TABLE synth AS SELECT 1::INTEGER AS Age")
    for call in ("dp_evaluate('people', 'synth')", "dp_query_exact('SELECT count(*) FROM people')"):
        with pytest.raises(duckdb.Error, match="they are in spark"):
            con.execute(f"FROM {call}")


def test_a_failure_to_reach_the_engine_charges_nothing(con, monkeypatch):
    con.execute(CALL)
    con.execute("CALL dp_protect('people', epsilon := 3, delta := 1e-9, privacy_unit := 'person', max_contributions := 1)")
    con.execute("CALL dp_declare('people', 'Age', lower := 0, upper := 100, bins := 10)")

    def unreachable(*given: object) -> None:
        raise dpsql.DpsqlError("url: Spark cannot be reached")

    monkeypatch.setattr(reading, "reader", unreachable)
    with pytest.raises(duckdb.Error, match="cannot be reached"):
        con.execute("FROM dp_marginals('people', epsilon := 1)")
    assert con.execute("SELECT count(*) FROM dpsql.ledger WHERE action = 'charge'").fetchone() == (0,)
