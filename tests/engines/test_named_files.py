"""A file whose rows have a name or a budget is not public under any other name, wherever in a call it stands."""

from __future__ import annotations

import os
from pathlib import Path

import duckdb
import pytest

import dpsql

ROWS = "SELECT i AS id, i % 7 AS a, 'secret-' || i AS tx FROM range(700) t(i)"
SHAPES = {
    "scalar": "SELECT q.tx, (SELECT count(*) FROM people WHERE people.a = q.a) AS n FROM {q} q WHERE q.id < 3",
    "join": "WITH ans AS (SELECT a, count(*) AS n FROM people GROUP BY a) SELECT q.tx, n FROM ans JOIN {q} q USING (a) WHERE q.id < 3",
    "beside": "SELECT (SELECT count(*) FROM people) AS n, (SELECT list(tx) FROM {q} WHERE id < 3) AS x",
    "having": "SELECT count(*) AS n FROM people HAVING EXISTS (SELECT 1 FROM {q} WHERE tx = 'secret-5')",
    "union": "SELECT count(*)::VARCHAR AS n FROM people UNION ALL SELECT tx FROM {q} WHERE id < 3",
    "cte": "WITH p AS (FROM {q}) SELECT (SELECT count(*) FROM people) AS n, (SELECT max(tx) FROM p) AS x",
    "inside": "SELECT count(*) AS n FROM people WHERE id IN (SELECT id FROM {q})",
    "shadowed": 'SELECT (WITH "{path}" AS (SELECT 1 AS tx) SELECT max(tx) FROM "{path}") AS n, (SELECT list(tx) FROM "{path}") AS x, '
    "(SELECT count(*) FROM people) AS m",
}
SPELLED = ["'{path}'", "read_parquet('{path}')", "parquet_scan('{path}')", "view_of_it"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "people").mkdir()
    with duckdb.connect() as con:
        con.execute(f"COPY ({ROWS}) TO '{tmp_path / 'people' / 'a.parquet'}'")
    return tmp_path


@pytest.fixture
def con(folder):
    with duckdb.connect() as con:
        dpsql.load(con, progress=False)
        yield con


def named(con, folder, engine="duckdb"):
    if engine == "duckdb":
        con.execute(f"CALL dp_remote('people', engine := 'duckdb', relation := 'parquet:{folder / 'people'}')")
    protect(con, "people")
    con.execute("CALL dp_declare('people', 'a', lower := 0, upper := 6, bins := 6)")


def protect(con, source):
    con.execute(f"CALL dp_protect('{source}', epsilon := 100, delta := 1e-9, privacy_unit := 'id', max_contributions := 1)")


def other_path(folder, kind):
    path = folder / "people" / "a.parquet"
    other = folder / f"{kind}.parquet"
    if kind == "hard":
        os.link(path, other)
    elif kind == "soft":
        other.symlink_to(path)
    elif kind == "through":
        (folder / "door").symlink_to(folder / "people")
        other = folder / "door" / "a.parquet"
    else:
        other = path
    return other


def refused(con, sql, said):
    with pytest.raises(duckdb.Error, match=said) as error:
        con.execute("FROM dp_query($1, epsilon := 1)", [sql]).fetchall()
    assert "secret-" not in str(error.value)
    assert con.execute("SELECT count(*) FROM dp_ledger() WHERE action = 'charge'").fetchone() == (0,)


@pytest.mark.parametrize(
    ("shape", "kind"), [*((shape, "itself") for shape in SHAPES), *(("beside", kind) for kind in ("hard", "soft", "through"))]
)
def test_a_file_of_a_folder_is_public_nowhere(con, folder, shape, kind):
    named(con, folder)
    path = other_path(folder, kind)
    con.execute(f"CREATE VIEW view_of_it AS FROM '{path}'")
    for spelled in SPELLED if shape == "beside" else SPELLED[:1]:
        sql = SHAPES[shape].format(q=spelled.format(path=path), path=path)
        refused(con, sql, "whose rows are those of main.people|another name of|view_of_it")


@pytest.mark.parametrize("kind", ["itself", "hard", "soft"])
def test_nor_is_a_domain_read_off_it(con, folder, kind):
    named(con, folder)
    path = other_path(folder, kind)
    for call in (
        f"CALL dp_declare('people', 'tx', categories_from := '\"{path}\".tx')",
        f"FROM dp_histogram('people', 'tx', domain := '{path}', epsilon := 1)",
        f"CALL dp_protect('{path}', epsilon := 1, delta := 1e-9)",
        f"FROM dp_plan('{path}', epsilon := 1)",
    ):
        with pytest.raises(duckdb.Error) as error:
            con.execute(call).fetchall()
        assert "secret-" not in str(error.value)


@pytest.mark.parametrize("shape", ["scalar", "union"])
def test_another_name_of_a_protected_file_is_not_public(con, folder, shape):
    path = folder / "people" / "a.parquet"
    protect(con, path)
    con.execute("CREATE TABLE people AS SELECT i AS id, i % 7 AS a FROM range(70) t(i)")
    protect(con, "people")
    con.execute("CALL dp_declare('people', 'a', lower := 0, upper := 6, bins := 6)")
    refused(con, SHAPES[shape].format(q=f"'{other_path(folder, 'hard')}'"), "another name of the file")
    with pytest.raises(duckdb.Error, match="another name of the file"):
        protect(con, folder / "hard.parquet")


@pytest.mark.parametrize("relation", ["parquet:{}", "orc:{}"])
def test_a_folder_that_spark_reads_is_one_too(con, folder, relation, monkeypatch):
    from dpsql.engines import registry
    from dpsql.engines.remote import Described

    columns = [Described("id", "BIGINT", "bigint"), Described("a", "BIGINT", "bigint"), Described("tx", "VARCHAR", "string")]
    monkeypatch.setattr(registry, "describe", lambda remote, cursor: columns)
    relation = relation.format(folder / "people")
    con.execute(f"CALL dp_remote('people', engine := 'spark', url := 'sc://localhost:1', relation := '{relation}')")
    named(con, folder, "spark")
    for kind in ("itself", "hard"):
        refused(con, SHAPES["scalar"].format(q=f"'{other_path(folder, kind)}'"), "main.people")


def test_a_public_file_stays_public_and_is_the_one_that_was_checked(con, folder):
    named(con, folder)
    (folder / "public").mkdir()
    con.execute(f"COPY (SELECT i AS a, 'open-' || i AS tx FROM range(3) t(i)) TO '{folder / 'public' / 'a.parquet'}'")
    sql = f"SELECT (SELECT count(*) FROM people) AS n, (SELECT max(q.tx) FROM '{folder / 'public' / 'a.parquet'}' q) AS tx"
    assert con.execute("FROM dp_query($1, epsilon := 50)", [sql]).fetchone()[1] == "open-2"


def test_a_short_path_means_one_file(con, folder, monkeypatch):
    named(con, folder)
    (folder / "public").mkdir()
    con.execute(f"COPY (SELECT i AS a, 'open-' || i AS tx FROM range(3) t(i)) TO '{folder / 'public' / 'a.parquet'}'")
    monkeypatch.chdir(folder / "public")
    try:
        con.execute(f"SET GLOBAL file_search_path = '{folder / 'people'}'")
    except duckdb.CatalogException:  # before DuckDB 1.5: of one session alone
        con.execute(f"SET file_search_path = '{folder / 'people'}'")
    sql = "SELECT (SELECT count(*) FROM people) AS n, (SELECT max(q.tx) FROM 'a.parquet' q) AS tx"
    assert con.execute("FROM dp_query($1, epsilon := 50)", [sql]).fetchone()[1] == "open-2"
