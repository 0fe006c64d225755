"""dp_remote: a name for rows that are elsewhere; what is refused, by name and uncharged; where credentials do not go."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest
import sail

import dpsql
from dpsql.algebra.aggregates import AGGREGATES, WINDOWS
from dpsql.algebra.functions import LISTED
from dpsql.engines.spark import session
from dpsql.engines.spark.translate import aggregates
from dpsql.engines.spark.translate.expressions import _FUNCTIONS
from dpsql.errors import ArgumentError, DpsqlError, EngineLost, UnsupportedQuery
from dpsql.protected.source import resolve
from dpsql.session.instance import instance_with, open_context

pytestmark = pytest.mark.any_duckdb


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("lake")
    sail.copy(f"COPY (SELECT i AS id, i // 2 AS person, i % 7 AS age, [i] AS list FROM range(70) t(i)) TO '{found / 'p.parquet'}' (FORMAT parquet)")
    return found


@pytest.fixture(scope="module")
def con(folder: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    made = sail.remote(Path(":memory:remote"), "people", folder, privacy_unit="person", max_contributions=2)
    dpsql.declare(made, "people", "age", lower=0, upper=6, nullable=False)
    made.execute("CREATE TABLE regions AS SELECT i AS age, i % 2 AS half FROM range(7) t(i)")
    made.execute("CREATE TABLE local (person BIGINT, cost INTEGER)")
    yield made
    made.close()


def charges(con: duckdb.DuckDBPyConnection) -> int:
    return con.execute("SELECT count(*) FROM dpsql.ledger WHERE action = 'charge'").fetchone()[0]


def test_names_and_types_and_no_row(con: duckdb.DuckDBPyConnection, folder: Path) -> None:
    again = dpsql.remote(con, "people", engine="spark", url=sail.url(), relation=f"parquet:{folder}").fetchall()
    assert [(name, sql_type, status.split(":")[0]) for name, sql_type, _, status in again] == [
        ("id", "BIGINT", "there"), ("person", "BIGINT", "there"), ("age", "BIGINT", "there"), ("list", None, "left out"),
    ]  # fmt: skip
    assert con.execute("SELECT count(*) FROM people").fetchone() == (0,)
    assert con.execute("SELECT engine, relation FROM dpsql.remotes").fetchall() == [("spark", f"parquet:{folder}")]


REFUSED = {
    "FROM dp_query_exact('SELECT count(*) FROM people')": "reads rows that are here",
    "FROM dp_evaluate('people', 'people')": "reads rows that are here",
    "CALL dp_link('local', 'person', parent := 'people', parent_column := 'person', max_rows := 2)": "its rows are in another place",
    "CALL dp_link('people', 'person', parent := 'people', parent_column := 'person', max_rows := 2)": "its rows are in another place",
    "FROM dp_query('SELECT half, count(*) FROM people JOIN regions USING (age) GROUP BY half', epsilon := 1)": "(not where the protected rows|without other tables|JOIN|it is not where)",
    "FROM dp_query('SELECT sum(ln(age + 1)) FROM people', epsilon := 1)": r"ln\(\)",
    "FROM dp_marginals('SELECT sin(age) > 0 AS up FROM people', epsilon := 1)": r"sin\(\)",
    "FROM dp_synthesize('people', epsilon := 1, into_table := 'spark:no name')": "a table as Spark names it",
    "FROM dp_synthesize('people', epsilon := 1, into_table := 'spark:parquet:here')": "an absolute folder",
}  # fmt: skip


@pytest.mark.parametrize("call", REFUSED)
def test_refused_by_name_and_uncharged(call: str, con: duckdb.DuckDBPyConnection) -> None:
    before = charges(con)
    with pytest.raises(duckdb.Error, match=REFUSED[call]):
        con.execute(call).fetchall()
    assert charges(con) == before


def test_an_analyst_of_a_served_database_is_refused(con: duckdb.DuckDBPyConnection) -> None:
    instance = instance_with(con)
    assert instance is not None
    with open_context(instance, con.execute("SELECT current_database()").fetchone()[0], "main") as context:
        assert resolve(context, "people").remote is not None
        with pytest.raises(UnsupportedQuery, match="served database does not ask"):
            resolve(replace(context, analyst="ann", known={}), "people")


def test_a_name_without_a_budget_is_no_public_table(con: duckdb.DuckDBPyConnection, folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "public")  # a second name for the folder of people is refused
    dpsql.remote(con, "public_there", engine="spark", url=sail.url(), relation=f"parquet:{tmp_path / 'public'}")
    con.execute("CREATE TABLE IF NOT EXISTS mine AS SELECT 1::BIGINT AS id")
    dpsql.protect(con, "mine", epsilon=1, delta=1e-9, privacy_unit="id", max_contributions=1)
    with pytest.raises(duckdb.Error, match="another place"):
        con.execute("FROM dp_query('SELECT count(*) FROM mine WHERE id IN (SELECT id FROM public_there)', epsilon := .1)")


def test_rows_of_a_budget_stay_those_of_its_name(con: duckdb.DuckDBPyConnection, folder: Path) -> None:
    with pytest.raises(ArgumentError, match="has a budget, and its rows are"):
        dpsql.remote(con, "people", engine="spark", url=sail.url(), relation="parquet:/elsewhere").fetchall()
    with pytest.raises(ArgumentError, match="is a table of this database already"):
        dpsql.remote(con, "regions", engine="spark", url=sail.url(), relation=f"parquet:{folder}").fetchall()
    con.execute("CREATE TABLE was_here (id INTEGER)")
    dpsql.protect(con, "was_here", epsilon=1, delta=1e-9)
    con.execute("DROP TABLE was_here")
    with pytest.raises(ArgumentError, match="were in this database"):
        dpsql.remote(con, "was_here", engine="spark", url=sail.url(), relation=f"parquet:{folder}").fetchall()


def test_changed_columns_are_refused_before_the_charge(tmp_path: Path) -> None:
    file = tmp_path / "p.parquet"
    sail.copy(f"COPY (SELECT i AS x FROM range(9) t(i)) TO '{file}' (FORMAT parquet)")
    with sail.remote(Path(":memory:changed"), "people", tmp_path) as con:
        dpsql.declare(con, "people", "x", lower=0, upper=9)
        sail.copy(f"COPY (SELECT 'text' AS x) TO '{file}' (FORMAT parquet)")
        with pytest.raises(duckdb.Error, match="have other types now"):
            con.execute("FROM dp_marginals('people', epsilon := 1)").fetchall()
        assert charges(con) == 0
        with pytest.raises(DpsqlError, match="have other types there now"):
            dpsql.remote(con, "people", engine="spark", url=sail.url(), relation=f"parquet:{tmp_path}").fetchall()


@pytest.mark.parametrize("url", ["sc://host;token=abc", "sc://user:abc@host", "sc://host/;Authorization=abc", "sc://h?x=abc", "http://abc", "sc://host:15002/;other=abc", "sc://host/abc", "sc://host/;user_agent=token%3Dabc", "sc://host/;user_id=me:abc"])
def test_no_url_with_credentials(url: str) -> None:
    with pytest.raises(ArgumentError) as refused:
        session.checked_url(url)
    assert "abc" not in str(refused.value) or url == "http://abc"


@pytest.mark.parametrize(
    "relation",
    [
        "parquet:s3a://KEY:abc@bucket/x", "parquet:/x?token=abc", "jdbc;password=abc", "parquet:https://h/x?api_key=abc", "parquet:https://h/x?code=abc",
        "parquet:https://h/x#access_token=abc", "parquet:https://u%3Aabc@h/x", "parquet:s3a://abc@bucket/x", "parquet:/x/token=abc/", "parquet:ftp://u:1/abc@h",
    ],
)
def test_no_relation_with_credentials(relation: str) -> None:
    with pytest.raises(ArgumentError) as refused:
        session.check_relation(relation)
    assert "abc" not in str(refused.value)


@pytest.mark.parametrize(
    "relation",
    [
        "parquet:/data/people", "parquet:s3a://bucket/x/day=2024-01-01/", "delta:abfss://container@account.dfs.core.windows.net/people",
        "orc:hdfs://nn:8020/x y/z", "catalog.schema.people", "`odd;name?`.t", "parquet:file:///tmp/x",
    ],
)
def test_addresses_without_credentials_pass(relation: str) -> None:
    session.check_relation(relation)
    assert session.checked_url("sc://h:15002/;use_ssl=true;user_agent=dpsql/1.0") == "sc://h:15002/;use_ssl=true;user_agent=dpsql/1.0"


def test_the_token_goes_nowhere(con: duckdb.DuckDBPyConnection, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(session.TOKEN, "abc-secret")  # to a server that has none the client does not send it in clear text
    monkeypatch.setattr(session, "RETRIES", 0)
    with pytest.raises(EngineLost) as lost:
        session.session("sc://127.0.0.1:1")
    assert "abc-secret" not in str(lost.value)
    assert "abc-secret" not in repr(con.execute("FROM dpsql.remotes").fetchall()) + repr(con.execute("FROM dpsql.ledger").fetchall())


def test_a_missing_client_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyspark.sql.connect.session", None)
    with pytest.raises(DpsqlError, match=r"pip install 'dpsql\[spark\]'"):
        session.session("sc://127.0.0.1:1")


def test_what_is_rendered_is_of_the_table_of_functions() -> None:
    """A function that no source may call has no business on the list of what is rendered."""
    assert set(_FUNCTIONS) - set(LISTED) <= {"hash", "epoch_us", "milliseconds", "microseconds"}  # of dpsql's own statements, and parts
    assert set(aggregates.AGGREGATES) <= set(AGGREGATES) and set(aggregates.WINDOWS) <= set(WINDOWS) | set(AGGREGATES)


def test_a_plan_refuses_what_the_engine_would(con: duckdb.DuckDBPyConnection) -> None:
    for text in ("SELECT count(*) FROM people WHERE sin(age) > 0", "SELECT count(*) FROM people GROUP BY chr(age::INTEGER)"):
        with pytest.raises(duckdb.Error) as plan:
            con.execute(f"FROM dp_plan('{text}', epsilon := 1)")
        with pytest.raises(duckdb.Error) as query:
            con.execute(f"FROM dp_query('{text}', epsilon := 1)")
        said = [str(refused.value).split("UnsupportedQuery: ")[-1].split(":")[0] for refused in (plan, query)]
        assert said[0] == said[1]


def test_a_plan_without_the_server_says_so(con: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(url: str) -> None:
        raise EngineLost("gone")

    monkeypatch.setattr(session, "session", gone)
    [notes] = con.execute("SELECT notes FROM dp_plan('people', epsilon := 1)").fetchall()
    assert "spark cannot be reached now: whether it can compute this is not known" in notes[0]
