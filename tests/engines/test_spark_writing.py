"""Synthetic rows that Spark draws and keeps: as good as those of DuckDB, repeatable, complete or not there at all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from scipy import stats

import dpsql
from dpsql.engines.spark import session as sessions
from dpsql.engines.spark import workers
from dpsql.rows import parts

pytestmark = [pytest.mark.spark, pytest.mark.any_duckdb, pytest.mark.filterwarnings("ignore")]

ROWS = """
    SELECT i AS person, (i * 7 % 131 - 5)::INTEGER AS age, CASE i % 7 WHEN 0 THEN NULL WHEN 1 THEN 'É' WHEN 2 THEN 'it''s \\' ELSE 'm' END AS sex,
        CASE WHEN i % 11 = 0 THEN NULL ELSE ((i % 97) ** 2 / 40)::DECIMAL(12,2) END AS income, i % 13 / 7.0 AS weight,
        DATE '2020-01-01' + (i % 700)::INTEGER AS born, TIMESTAMP '2024-02-28 23:59:59.999999' + INTERVAL (i * 37) MINUTE AS seen,
        i % 7 < 2 AS ok, (i % 256 - 128)::TINYINT AS tiny, (i * 4294967297)::UBIGINT AS wide
    FROM range(3000) r(i)"""
DECLARE = (
    "'age', lower := 0, upper := 120, bins := 12, nullable := false",
    "'sex', categories := ['m', 'É', 'it''s \\']",
    "'income', lower := 0, upper := 300, bins := 7",
    "'weight', lower := 0, upper := 2, bins := 4, nullable := false",
    "'born', lower := '2020-01-01', upper := '2022-06-01', bins := 6",
    "'seen', lower := '2024-01-01', upper := '2024-06-01', bins := 5, nullable := false",
    "'tiny', lower := -128, upper := 127, bins := 8, nullable := false",
)
COLUMNS = ("age", "sex", "income", "weight", "born", "seen", "ok", "tiny")
FALSE_ALARM = 1e-6


def remote(con: duckdb.DuckDBPyConnection, relation: str, url: str = "local[2]") -> None:
    dpsql.load(con, progress=False)
    con.execute("CALL dp_remote('people', engine := 'spark', url := $1, relation := $2)", [url, relation])
    con.execute("CALL dp_protect('people', epsilon := 900, delta := 1e-6)")
    for declared in DECLARE:
        con.execute(f"CALL dp_declare('people', {declared})")
    con.execute("CALL dp_rule('people', 'NOT ok OR age < 100')")


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lake")
    duckdb.execute(f"COPY ({ROWS}) TO '{folder / 'people.parquet'}' (FORMAT parquet)")
    return folder


@pytest.fixture(scope="module")
def con(lake: Path, spark: Any) -> Iterator[duckdb.DuckDBPyConnection]:
    spark.sql(f"CREATE DATABASE lake LOCATION '{lake / 'tables'}'")
    zoned = spark.read.parquet(str(lake / "people.parquet")).selectExpr("*", "CAST(seen AS TIMESTAMP) AS zoned").drop("seen")
    zoned.withColumnRenamed("zoned", "seen").write.parquet(str(lake / "zoned"))
    with pytest.MonkeyPatch.context() as patch, duckdb.connect() as con:
        patch.setattr(sessions, "_begun", lambda sessions_, url: spark)
        remote(con, f"parquet:{lake / 'zoned'}")
        con.execute("FROM dp_synthesize('people', epsilon := 30, release := 'first', rows := 0)").fetchall()
        yield con
    spark.sql("DROP DATABASE lake CASCADE")


def release(con: duckdb.DuckDBPyConnection, name: str = "first") -> str:
    return con.execute("SELECT release FROM dp_releases() WHERE contains(release, $1)", [f"-{name}-"]).fetchone()[0]


def sampled(con: duckdb.DuckDBPyConnection, target: str, rows: int, seed: int = 1) -> tuple[Any, ...]:
    call = f"FROM dp_sample('{release(con)}', rows := {rows}, seed := {seed}, into_table := '{target}')"
    return con.execute(call).fetchone()


def charges(con: duckdb.DuckDBPyConnection) -> int:
    return con.execute("SELECT count(*) FROM dpsql.ledger WHERE action = 'charge'").fetchone()[0]


def drafts(lake: Path) -> list[str]:
    return [path.name for path in lake.rglob("*dpsql_draft*")]


def same_distribution(one: Any, other: Any) -> float:
    """Return the chance of counts that differ so much where both are of one distribution: Pearson's test of two samples."""
    cells = [frame.value_counts(dropna=False, normalize=False) for frame in (one, other)]
    index = cells[0].index.union(cells[1].index)
    counts = np.array([cell.reindex(index, fill_value=0).to_numpy() for cell in cells])
    few = counts.sum(axis=0) < 20
    counts = np.column_stack([counts[:, ~few], counts[:, few].sum(axis=1)]) if few.any() else counts
    counts = counts[:, counts.sum(axis=0) > 0]
    return float(stats.chi2_contingency(counts, correction=False).pvalue) if counts.shape[1] > 1 else 1.0


def cells(con: duckdb.DuckDBPyConnection, rows: str) -> Any:
    """Return rows in coarse cells, values inside bins among them."""
    return con.execute(
        "SELECT age // 7 AS age, coalesce(sex, 'none') AS sex, coalesce(income // 13, -1)::INT AS income, (weight * 5)::INT AS weight, "
        f"coalesce(year(born) * 12 + month(born), 0) AS born, dayofyear(seen) // 5 AS seen, ok, tiny // 9 AS tiny FROM {rows}"
    ).df()


def test_the_rows_are_as_those_of_duckdb(con: Any, lake: Path) -> None:
    """One-way counts, also inside bins, and some of two columns: 12 tests at 1e-6 / 12. Drawn rows spread less than independent ones."""
    target = f"spark:parquet:{lake / 'alike'}"
    assert sampled(con, target, 540_000) == (target, 540_000, release(con))
    assert len(list((lake / "alike").glob("*.parquet"))) == 2
    there = cells(con, f"'{lake}/alike/*.parquet'")
    here = cells(con, f"dp_sample('{release(con)}', rows := 540000, seed := 9)")
    tried = [[name] for name in COLUMNS] + [["sex", "ok"], ["age", "ok"], ["income", "weight"], ["sex", "tiny"]]
    found = {tuple(names): same_distribution(there[names], here[names]) for names in tried}
    assert min(found.values()) > FALSE_ALARM / len(tried), found
    shifted = there.assign(sex=there["sex"].mask(there.index % 20 == 0, "none"))  # the test can fail
    assert same_distribution(shifted[["sex"]], here[["sex"]]) < FALSE_ALARM


def test_rules_and_types_and_number_of_rows(con: Any, spark: Any) -> None:
    con.execute("FROM dp_synthesize('people', epsilon := 30, release := 'first', into_table := 'spark:lake.whole')")
    made = spark.table("lake.whole")
    assert made.where("ok AND NOT age < 100").count() == 0
    assert made.where("ok").count() > 100
    kinds = {field.name: field.dataType.simpleString() for field in made.schema.fields}
    assert kinds == {
        "age": "int", "sex": "string", "income": "decimal(12,2)", "weight": "double", "born": "date", "seen": "timestamp", "ok": "boolean",
        "tiny": "tinyint",
    }  # fmt: skip
    assert abs(made.count() - 3000) < 60
    assert set(made.select("sex").distinct().toPandas()["sex"].dropna()) == {"m", "É", "it's \\"}


def test_repeatable_and_independent(con: Any, spark: Any, lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "PART_ROWS", 600)
    for name, seed in (("one", 4), ("two", 4), ("three", 5)):
        assert sampled(con, f"spark:parquet:{lake / name}", 3000, seed)[1] == 3000
    rows = {name: duckdb.execute(f"FROM '{lake / name}/*.parquet' ORDER BY ALL").fetchall() for name in ("one", "two", "three")}
    assert rows["one"] == rows["two"]
    assert rows["one"] != rows["three"]
    files = sorted((lake / "one").glob("*.parquet"))
    drawn = [duckdb.execute(f"SELECT age, income, seen FROM '{file}' ORDER BY ALL").fetchall() for file in files]
    assert [len(part) for part in drawn] == [600] * 5
    assert all(not set(a) & set(b) for i, a in enumerate(drawn) for b in drawn[:i]), "microseconds of seen are drawn: no two rows are the same"
    (lake / "one" / "_SUCCESS").stat()


def test_no_rows(con: Any, spark: Any) -> None:
    assert sampled(con, "spark:lake.nothing", 0)[1] == 0
    assert spark.table("lake.nothing").count() == 0
    assert len(spark.table("lake.nothing").columns) == len(COLUMNS)


def test_one_hot(con: Any, spark: Any) -> None:
    call = "dp_synthesize('people', epsilon := 9, method := 'gaussian_copula', columns := ['sex', 'ok'], options := {'output': 'one_hot'}, rows := 50"
    con.execute(f"FROM {call}, into_table := 'spark:lake.hot')")
    made = spark.table("lake.hot")
    assert made.count() == 50
    assert made.columns == [row[0] for row in con.execute(f"DESCRIBE FROM {call})").fetchall()]
    assert {field.dataType.simpleString() for field in made.schema.fields} == {"smallint"}


@pytest.mark.parametrize("kind", ["orc"])
def test_other_files(con: Any, spark: Any, lake: Path, kind: str) -> None:
    sampled(con, f"spark:{kind}:{lake / kind}", 10)
    assert spark.read.format(kind).load(str(lake / kind)).count() == 10


def test_the_same_draw_is_there_already(con: Any, lake: Path) -> None:
    for target in ("spark:lake.again", f"spark:parquet:{lake / 'again'}"):
        first = sampled(con, target, 100)
        before = {path: path.stat().st_mtime_ns for path in lake.rglob("again/*.parquet")}
        assert sampled(con, target, 100) == first
        assert {path: path.stat().st_mtime_ns for path in lake.rglob("again/*.parquet")} == before
        with pytest.raises(duckdb.Error, match="another draw"):
            sampled(con, target, 101)


def test_what_exists_is_refused_before_the_charge(con: Any, spark: Any, lake: Path) -> None:
    (lake / "taken").mkdir()
    (lake / "taken" / "a.txt").write_text("mine")
    spark.sql("CREATE TABLE lake.taken AS SELECT 1 AS a")
    before = charges(con)
    for target, why in (
        ("spark:lake.taken", "not made by dpsql"), (f"spark:parquet:{lake / 'taken'}", "not made by dpsql"), ("spark:", "a table as Spark"),
        ("spark:lake.people; DROP TABLE lake.taken", "a table as Spark"), ("spark:nowhere.people", "no schema"), ("spark:parquet:people", "absolute"),
        ("spark:parquet:/", "absolute"), ("spark:csv:/people", "a table as Spark"),
    ):  # fmt: skip
        with pytest.raises(duckdb.Error, match=why):
            con.execute("FROM dp_synthesize('people', epsilon := 1, release := 'refused', into_table := $1)", [target])
    assert charges(con) == before
    assert spark.table("lake.taken").count() == 1
    assert (lake / "taken" / "a.txt").read_text() == "mine"


def test_workers_without_dpsql_are_refused_before_the_charge(con: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    before = charges(con)
    monkeypatch.setattr(workers, "version", lambda name: "99.0")
    with pytest.raises(duckdb.Error, match=r"have dpsql .*install dpsql 99\.0 there"):
        con.execute("FROM dp_synthesize('people', epsilon := 1, release := 'refused', into_table := 'spark:lake.refused')")
    assert charges(con) == before


def test_a_source_in_duckdb_is_refused(tmp_path: Path) -> None:
    with duckdb.connect() as con:
        dpsql.load(con, progress=False)
        con.execute("CREATE TABLE people AS SELECT i % 2 = 0 AS ok FROM range(9) t(i)")
        con.execute("CALL dp_protect('people', epsilon := 900, delta := 1e-6)")
        with pytest.raises(duckdb.Error, match="not in Spark.*COPY"):
            con.execute("FROM dp_synthesize('people', epsilon := 1, into_table := 'spark:lake.people')")
        assert charges(con) == 0


def test_a_failure_leaves_nothing(con: Any, spark: Any, lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, columns, good = parts.Parts.of, parts.Parts.columns, []

    def without_model(bought: Any, found: Any, rows: int, seed: int | None) -> parts.Parts:
        good.append(whole(bought, found, rows, seed))
        return replace(good[-1], found=found._replace(model=None))

    monkeypatch.setattr(parts.Parts, "of", without_model)
    monkeypatch.setattr(parts.Parts, "columns", lambda self: columns(good[-1]))
    for target in ("spark:lake.failed", f"spark:parquet:{lake / 'failed'}"):
        with pytest.raises(duckdb.Error, match="could not write it, and nothing has that name: .*Error: "):
            sampled(con, target, 100)
    assert not spark.catalog.tableExists("lake.failed")
    assert not (lake / "failed").exists()
    assert drafts(lake) == []


@pytest.mark.parametrize("target", ["spark:lake.stopped", "spark:parquet:{lake}/stopped"])
def test_stopped_in_the_middle(con: Any, spark: Any, lake: Path, target: str) -> None:
    def once_there() -> None:
        until = time.monotonic() + 120
        while not any(drafts(lake)) and time.monotonic() < until:
            time.sleep(0.05)
        time.sleep(1)
        dpsql.interrupt(con)

    thread = threading.Thread(target=once_there)
    thread.start()
    with pytest.raises(duckdb.Error, match="(?i)interrupt"):
        sampled(con, target.format(lake=lake), 400_000_000)
    thread.join()
    assert not spark.catalog.tableExists("lake.stopped")
    assert not (lake / "stopped").exists()
    assert drafts(lake) == []


@pytest.mark.slow
def test_killed_in_the_middle(con: Any, lake: Path, tmp_path: Path) -> None:
    """The whole process, with its driver: the target has not come to be, and the next call makes it."""
    script = f"""
        import sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        import duckdb
        import test_spark_writing as t
        con = duckdb.connect({str(tmp_path / "books.duckdb")!r})
        t.remote(con, {f"parquet:{lake / 'people.parquet'}"!r})
        rows = 400_000_000 if sys.argv[1] == "long" else 1000
        call = f"FROM dp_synthesize('people', epsilon := 1, release := 'first', rows := {{rows}}, into_table := 'spark:parquet:{lake / "killed"}')"
        print(con.execute(call).fetchall(), t.charges(con))
    """
    program = [sys.executable, "-c", textwrap.dedent(script)]
    with subprocess.Popen([*program, "long"], cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True) as running:
        until = time.monotonic() + 180
        while not any(drafts(lake)) and running.poll() is None and time.monotonic() < until:
            time.sleep(0.1)
        time.sleep(1)
        assert running.poll() is None
        os.killpg(running.pid, signal.SIGKILL)
    assert len(drafts(lake)) >= 1
    assert not (lake / "killed").exists()
    done = subprocess.run([*program, "short"], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert "1000" in done.stdout, done.stderr[-2000:]
    assert done.stdout.rstrip().endswith(" 1")
    assert duckdb.execute(f"SELECT count(*) FROM '{lake}/killed/*.parquet'").fetchone() == (1000,)
