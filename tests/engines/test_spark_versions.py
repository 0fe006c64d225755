"""A table that changes while a release reads it: all statements read one version, which is kept for the custodian alone.

The tables are those of `java/VersionedCatalog.java`, a catalog of Spark's own kind: ``VERSION AS OF`` takes the road of every format.
"""

from __future__ import annotations

import datetime as dt
import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.engines.spark import reader as readers
from dpsql.engines.spark import relation, versions
from dpsql.engines.spark import session as sessions
from dpsql.errors import EngineLost
from dpsql.kinds import measures
from dpsql.noise import discrete

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.any_duckdb, pytest.mark.filterwarnings("ignore")]
COLUMNS = {"a": "INTEGER", "b": "BOOLEAN"}
PEOPLE = "versioned.db.people"


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Any:
    import pyspark

    if shutil.which("javac") is None:
        pytest.skip("there is no javac")
    folder = tmp_path_factory.mktemp("classes")
    jars = Path(pyspark.__file__).parent / "jars" / "*"
    source = Path(__file__).parent / "java" / "VersionedCatalog.java"
    subprocess.run(["javac", "-cp", str(jars), "-d", str(folder), str(source)], check=True)
    jvm = spark.sparkContext._jvm
    jvm.Thread.currentThread().getContextClassLoader().addURL(jvm.java.io.File(str(folder)).toURI().toURL())
    return spark


@pytest.fixture
def state(classes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return what sets the state of the table; a catalog is made once for a session, so each test has a session of its own."""
    place = tmp_path / "state"

    def put(**changed: object) -> None:
        known = dict(line.split("=", 1) for line in place.read_text().splitlines()) if place.exists() else {}
        draft = place.with_suffix(".new")
        draft.write_text("".join(f"{name}={value}\n" for name, value in {**known, **changed}.items() if value is not None))
        draft.replace(place)

    put(current=3, oldest=1, provider="iceberg")
    classes.conf.set("spark.sql.catalog.versioned", "VersionedCatalog")
    real = sessions.session

    def session(url: str) -> Any:
        own = real(url)
        own.conf.set("spark.sql.catalog.versioned", "VersionedCatalog")
        own.conf.set("spark.sql.catalog.versioned.state", str(place))
        return own

    monkeypatch.setattr(sessions, "session", session)
    monkeypatch.setattr(sessions, "_begun", lambda sessions_, url: classes)
    monkeypatch.setattr(sessions, "_sessions", {})
    return put


@pytest.fixture
def con(state: Callable[..., None], tmp_path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(str(tmp_path / "books.duckdb")) as con:
        dpsql.load(con, progress=False)
        con.execute("CALL dp_remote('people', engine := 'spark', url := 'local[2]', relation := $1)", [PEOPLE])
        con.execute("CALL dp_protect('people', epsilon := 900, delta := 1e-6, neighbors := 'replace_one')")
        con.execute("CALL dp_declare('people', 'a', lower := 0, upper := 100)")
        con.execute("CALL dp_declare('people', 'b', nullable := false)")
        yield con


def notes(tmp_path: Path) -> list[dict[str, str]]:
    return [json.loads(path.read_text()) for path in sorted((tmp_path / "books.duckdb.dpsql").glob("*.version.json"))]


def changing(monkeypatch: pytest.MonkeyPatch, state: Callable[..., None], version: int) -> list[int]:
    """Commit a version before each statement that counts; return how many rows each of them has read."""
    seen: list[int] = []

    def committed(real: Callable[..., Any], rows: Callable[[Any], int]) -> Callable[..., Any]:
        def call(self: Any, *given: Any) -> Any:
            state(current=version + len(seen))
            found = real(self, *given)
            seen.append(rows(found))
            return found

        return call

    ways: dict[str, Callable[[Any], int]] = {"fine": lambda found: int(found[0].sum()), "tables": lambda found: int(found[1])}
    for name, rows in ways.items():
        monkeypatch.setattr(readers.SparkReader, name, committed(getattr(readers.SparkReader, name), rows))
    return seen


def measured(con: duckdb.DuckDBPyConnection, call: str) -> Any:
    """Return what a call would release without noise."""
    found: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(discrete, "add_noise", lambda counts, mechanism, scale: counts.copy())
        real = measures.measure
        patch.setattr(measures, "measure", lambda *given: found.append(real(*given)) or found[-1])
        con.execute(call).fetchall()
    return found[-1]


def current(state: Callable[..., None], **changed: object) -> str | None:
    state(**changed)
    return versions.taken(sessions.session("local[2]"), PEOPLE, COLUMNS)


def test_the_current_version_of_a_format(state: Callable[..., None]) -> None:
    assert current(state) == "3"
    assert current(state, current=12) == "12"
    assert current(state, provider="other") is None
    assert current(state, says=0) == "12", "a table that says its version itself"
    assert current(state, says=1) is None, "what it says is no version"
    assert current(state, says=-1) is None, "what it says is another version"
    assert current(state, says=0, oldest=13) is None
    own = sessions.session("local[2]")
    assert versions.taken(own, "parquet:/nowhere", COLUMNS) is None
    assert versions.taken(own, "versioned.db.nothing", COLUMNS) is None


def test_a_version_of_an_earlier_try(state: Callable[..., None]) -> None:
    own = sessions.session("local[2]")
    assert versions.taken(own, PEOPLE, COLUMNS, before="2") == "2"
    state(oldest=3, current=5)
    assert versions.taken(own, PEOPLE, COLUMNS, before="2") == "5"
    assert versions.taken(own, PEOPLE, COLUMNS, before="1' OR '1") == "5"


def test_a_column_that_is_in_no_version_yet(state: Callable[..., None]) -> None:
    """Formats change columns without a commit: such a table is read as it is."""
    state(wide=9, altered=1)
    own = sessions.session("local[2]")
    wide = {**COLUMNS, "Provider": "INTEGER"}
    assert [column.name for column in relation.describe(own, PEOPLE)] == list(wide)
    assert versions.taken(own, PEOPLE, wide) is None
    assert versions.taken(own, PEOPLE, COLUMNS) == "3", "a column may be called as the format is told"
    state(current=9)
    assert versions.taken(own, PEOPLE, wide) == "9"


@pytest.mark.parametrize("pins", [True, False])
def test_all_statements_read_one_version(con: Any, state: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pins: bool) -> None:
    if not pins:
        state(provider="other")
    seen = changing(monkeypatch, state, 4)
    found = measured(con, "FROM dp_synthesize('people', epsilon := 1, rows := 3)")
    assert seen == ([300, 300] if pins else [400, 500])
    assert found.total == seen[-1]
    kept = [(note["release"], note["relation"], note["version"]) for note in notes(tmp_path)]
    assert kept == ([(*names(con), PEOPLE, "3")] if pins else [])


def names(con: Any) -> list[str]:
    return [name for (name,) in con.execute("SELECT release FROM dp_releases()").fetchall()]


def test_nothing_that_is_given_out_has_the_version(con: Any, state: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts commits, maybe rows: the note in the store has it, and no release, entry, plan or message."""
    state(current=271003, oldest=271003)
    call = "FROM dp_marginals('people', epsilon := 1)"

    def lost(*given: Any) -> Any:
        raise EngineLost("Spark was lost")

    with monkeypatch.context() as patch:
        patch.setattr(readers.SparkReader, "tables", lost)
        with pytest.raises(duckdb.Error, match="the same call finishes it") as told:
            con.execute(call)
    assert [note["version"] for note in notes(tmp_path)] == ["271003"]
    assert measured(con, call).total == 300
    [name] = names(con)
    con.execute(f"FROM dp_export('{name}', path := '{tmp_path / 'one.release'}')")
    texts = [str(told.value), str(duckdb.execute(f"FROM parquet_kv_metadata('{tmp_path / 'one.release'}')").fetchall())]
    assert "created" in texts[-1], "the manifest"
    for shown in ("dp_ledger()", "dp_releases()", "dp_budget()"):
        texts.append(str(con.execute(f"FROM {shown}").fetchall()))
    for (table,) in con.execute("SELECT table_name FROM duckdb_tables() WHERE schema_name = 'dpsql'").fetchall():
        texts.append(str(con.execute(f"FROM dpsql.{table}").fetchall()))
    assert not [text for text in texts if "271003" in text]


def test_after_a_fault_the_same_version(con: Any, state: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as it exists, and for a day; else the newest one. One charge."""
    call = "FROM dp_marginals('people', epsilon := 1, release := '{}')"
    place = tmp_path / "books.duckdb.dpsql"

    def lost(*given: Any) -> Any:
        raise EngineLost("Spark was lost")

    for name in ("same", "expired", "old", "whole"):
        state(current=3, oldest=1)
        with monkeypatch.context() as patch:
            patch.setattr(readers.SparkReader, "tables", lost)
            with pytest.raises(duckdb.Error, match="the same call finishes it"):
                con.execute(call.format(name))
        state(current=5, oldest=5 if name == "expired" else 1)
        [note] = [path for path in place.glob("*.version.json") if f"-{name}-" in path.name]
        if name == "old":
            known = json.loads(note.read_text())
            known["taken_at"] = (dt.datetime.now(dt.UTC) - dt.timedelta(hours=25)).isoformat()
            note.write_text(json.dumps(known))
        if name == "whole":
            note.write_text("{")
        rows = 300 if name == "same" else 500
        found = measured(con, call.format(name))
        assert found.total == rows
        assert json.loads(note.read_text())["version"] == str(rows // 100)
    assert con.execute("SELECT count(*) FROM dpsql.ledger WHERE action = 'charge'").fetchone() == (4,)


def test_a_version_that_goes_before_it_is_read(con: Any, state: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A public fault: nothing was read; the same call reads the newest."""
    call = "FROM dp_marginals('people', epsilon := 1)"
    real = relation.viewed

    def expired(*given: Any) -> Any:
        if given[-1] is not None:
            state(current=5, oldest=5)
        return real(*given)

    with monkeypatch.context() as patch:
        patch.setattr(relation, "viewed", expired)
        with pytest.raises(duckdb.Error, match="charged and not finished: the same call finishes it") as told:
            con.execute(call)
    assert "'3'" not in str(told.value)
    assert measured(con, call).total == 500
