"""Every call where the configuration is locked and nothing outside but the release store may be reached."""

from __future__ import annotations

import subprocess
import sys

import duckdb
import pytest

import dpsql
from dpsql.errors import ArgumentError, DpsqlError
from dpsql.serve.opening import open_database

TABLE = """CREATE TABLE adult AS SELECT 17 + (i * 7919) % 74 AS age, CASE WHEN i % 3 = 0 THEN 'Female' ELSE 'Male' END AS sex,
 CASE WHEN i % 17 < 12 OR i % 3 = 0 THEN 'private' WHEN i % 17 < 15 THEN 'government' END AS employer, i // 3 AS person FROM range(3000) t(i)"""
DECLARED = [
    "CALL dp_protect('adult', epsilon := 40.0, delta := 1e-6, privacy_unit := 'person', max_contributions := 3)",
    "CALL dp_declare('adult', 'age', lower := 0, upper := 120, nullable := false)",
    "CALL dp_declare('adult', 'sex', categories_from := 'sexes.sex', nullable := false)",
]
CALLS = [
    "CALL dp_declare('adult', 'employer', discover := true, epsilon := 1.0)",
    "CALL dp_rule('adult', 'NOT (age < 20 AND employer = ''government'')')",
    "FROM dp_domain('adult')",
    "FROM dp_plan('adult', epsilon := 1.0)",
    "FROM dp_plan('SELECT sex, count(*) AS n FROM adult GROUP BY sex', epsilon := 1.0)",
    "FROM dp_marginals('adult', k := 2, epsilon := 1.0)",
    "FROM dp_aggregates('adult', reporting_length := 2, epsilon := 0.5, columns := ['sex', 'employer'])",
    "FROM dp_histogram('adult', 'employer', epsilon := 0.5)",
    "FROM dp_contributions('adult', epsilon := 0.5)",
    "FROM dp_query('SELECT sex, count(*) AS n, avg(age), median(age) FROM adult GROUP BY ALL', epsilon := 1.0, confidence := 0.95, release := 'q')",
    "FROM dp_explain('q')",
    "FROM dp_query_exact('SELECT sex, count(*) AS n FROM adult GROUP BY ALL')",
    "FROM dp_summarize('adult', epsilon := 1.0)",
    "FROM dp_synthesize('adult', epsilon := 1.0, release := 'first')",
    "FROM dp_synthesize('adult', method := 'gaussian_copula', epsilon := 1.0, columns := ['age', 'sex'], release := 'g')",
    "FROM dp_sample('first', rows := 2000)",
    "CREATE TABLE s AS FROM dp_sample('first', rows := 3000)",
    "FROM dp_ledger()",
    "FROM dp_budget('adult')",
    "FROM dp_releases()",
    "FROM dp_evaluate('adult', 's')",
]
OUTSIDE = [
    "FROM read_csv('{folder}/outside.csv')",
    "FROM read_text('{folder}/outside.csv')",
    "FROM glob('{folder}/*')",
    "COPY sexes TO '{folder}/out.csv'",
    "EXPORT DATABASE '{folder}/export'",
    "ATTACH '{folder}/other.duckdb'",
    "INSTALL httpfs",
    "LOAD httpfs",
    "FROM frame",
    "CREATE PERSISTENT SECRET s (TYPE http, BEARER_TOKEN 'x')",
]
SETTINGS = ["threads = 1", "GLOBAL memory_limit = '9GB'", "enable_external_access = true", "lock_configuration = false", "GLOBAL python_enable_replacements = true"]


def prepared(folder):
    with duckdb.connect(folder / "census.duckdb") as con:
        dpsql.load(con)
        con.execute(TABLE)
        con.execute("CREATE TABLE sexes AS SELECT unnest(['Female', 'Male']) AS sex")
        for statement in DECLARED:
            con.execute(statement)
    return folder / "census.duckdb"


@pytest.fixture
def opened(tmp_path):
    found = open_database(prepared(tmp_path), memory="1GB")
    yield found
    found.con.close()


def test_every_call_after_the_lock(opened):
    for statement in CALLS:
        assert opened.con.execute(statement).fetchall(), statement
    assert opened.con.execute("SELECT count(*) FROM s WHERE age < 20 AND employer = 'government'").fetchall() == [(0,)]
    assert opened.con.execute("SELECT books FROM dp_budget('adult')").fetchall() == [("intact",)]
    assert (opened.database, opened.store.name) == ("census", "census.duckdb.dpsql") and list(opened.store.glob("*.parquet"))
    cursor = opened.con.cursor()  # every connection of the process is locked, and has the calls
    assert cursor.execute("SELECT release FROM dp_releases() WHERE release LIKE '%-q-%'").fetchall()
    with pytest.raises(duckdb.InvalidInputException, match="locked"):
        cursor.execute("SET threads = 1")


def test_nothing_outside_is_reached_and_nothing_is_set(opened, tmp_path):
    (tmp_path / "outside.csv").write_text("a\n1\n")
    frame = opened.con.execute("SELECT 1 AS a").df()  # noqa: F841 -- what `FROM frame` must not find
    before = sorted(tmp_path.iterdir())
    for statement in OUTSIDE:
        with pytest.raises(duckdb.Error):
            opened.con.execute(statement.format(folder=tmp_path)).fetchall()
    assert sorted(tmp_path.iterdir()) == before
    for setting in SETTINGS:
        with pytest.raises(duckdb.InvalidInputException, match="locked"):
            opened.con.execute(f"SET {setting}")
    assert opened.con.execute("SELECT current_setting('TimeZone'), current_setting('memory_limit')").fetchall() == [("UTC", "953.6 MiB")]


def test_what_a_door_takes_is_set_before_the_lock(tmp_path):
    found = open_database(prepared(tmp_path), memory="1GB", before=lambda con: con.execute("SET GLOBAL threads = 1; ATTACH ':memory:' AS answers"))
    assert found.con.execute("SELECT current_setting('threads')").fetchall() == [(1,)]
    found.con.execute("CREATE TABLE answers.main.a AS SELECT 1 AS x")
    found.con.close()


def test_a_store_elsewhere(tmp_path):
    path = prepared(tmp_path)
    found = open_database(path, memory="1GB", store=tmp_path / "it's here")
    assert len(found.con.execute("FROM dp_query('SELECT sex, count(*) FROM adult GROUP BY sex', epsilon := 1.0)").fetchall()) == 2
    assert list((tmp_path / "it's here").glob("*.parquet")) and not path.with_name("census.duckdb.dpsql").exists()
    found.con.close()


def test_a_draw_into_a_table_is_the_same_with_and_without_access(tmp_path):
    con = duckdb.connect(prepared(tmp_path))
    dpsql.load(con)
    given = {"epsilon": 1.0, "columns": ["age", "sex"], "rows": 130_000, "seed": 3}
    dpsql.synthesize(con, "adult", into="one", **given)
    con.execute(f"SET allowed_directories = ['{tmp_path / 'census.duckdb.dpsql'}']")
    con.execute("SET enable_external_access = false")  # frames are not found among variables then, either
    dpsql.synthesize(con, "adult", into="two", **given)
    assert con.execute("SELECT count(*), (SELECT count(*) FROM two) FROM (FROM one EXCEPT ALL FROM two)").fetchall() == [(0, 130000)]
    con.close()


def test_one_process_owns_the_file(tmp_path):
    path = prepared(tmp_path)
    program = "import sys, duckdb; con = duckdb.connect(sys.argv[1]); print('open', flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", program, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout.readline() == "open\n"
        with pytest.raises(DpsqlError, match=rf"is open in another process \(python[0-9.]*, process {child.pid}\): one process owns a database"):
            open_database(path)
        child.stdin.close()


@pytest.mark.parametrize("memory", ["", "4", "4 gigs", "0GB", "-1GB", "lots", "1GB; SET threads = 1", "0.0MB", "1e3GB"])
def test_an_amount_of_memory(tmp_path, memory):
    with pytest.raises(ArgumentError, match=r"^memory = .*'4GB', '512MB', '50%'"):
        open_database(tmp_path / "census.duckdb", memory=memory)


def test_what_is_no_database(tmp_path):
    with pytest.raises(ArgumentError, match="there is no such file; dpsql shell FILE makes one"):
        open_database(tmp_path / "none.duckdb")
    assert not (tmp_path / "none.duckdb").exists()
    (tmp_path / "text.duckdb").write_text("a,b\n1,2\n" * 9000)
    with pytest.raises(DpsqlError, match=r"text\.duckdb cannot be opened: "):
        open_database(tmp_path / "text.duckdb")


def test_what_fails_before_the_lock_leaves_the_file_free(tmp_path):
    path = prepared(tmp_path)
    with pytest.raises(DpsqlError, match="cannot be served"):
        open_database(path, before=lambda con: con.execute("LOAD '/none'"))
    with pytest.raises(ZeroDivisionError):
        open_database(path, before=lambda con: 1 / 0)
    duckdb.connect(path, config={"threads": "1"}).close()  # would not open beside another configuration
