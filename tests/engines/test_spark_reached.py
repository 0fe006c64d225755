"""Spark that is missing, cannot be reached, or has another relation than was planned for: a public error, and nothing is lost."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.engines.spark import session as sessions
from dpsql.purchase import measuring

pytestmark = [pytest.mark.any_duckdb, pytest.mark.filterwarnings("ignore")]
CHARGES = "SELECT count(*) FROM dpsql.ledger WHERE action = 'charge'"
MARGINALS = "FROM dp_marginals('people', epsilon := 1)"


def put(folder: Path, a: str) -> None:
    for old in folder.glob("*"):
        old.unlink()
    folder.mkdir(exist_ok=True)
    duckdb.execute(f"COPY (SELECT {a} AS a, i % 3 = 0 AS b FROM range(300) t(i)) TO '{folder / 'p.parquet'}' (FORMAT parquet)")


@pytest.fixture
def con(tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[duckdb.DuckDBPyConnection]:
    monkeypatch.setattr(sessions, "_begun", lambda sessions_, url: spark)
    put(tmp_path / "people", "(i % 7)::INTEGER")
    with duckdb.connect(str(tmp_path / "books.duckdb")) as con:
        dpsql.load(con, progress=False)
        con.execute("CALL dp_remote('people', engine := 'spark', url := 'local[2]', relation := $1)", [f"parquet:{tmp_path / 'people'}"])
        con.execute("CALL dp_protect('people', epsilon := 900, delta := 1e-6)")
        con.execute("CALL dp_declare('people', 'a', lower := 0, upper := 6)")
        con.execute("CALL dp_declare('people', 'b', nullable := false)")
        yield con


@pytest.mark.spark
def test_changed_between_plan_and_count(con: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Charged, since it changed after it was looked at; put back, the same call finishes without another charge."""
    real = measuring._store

    def changed(*given: Any) -> Any:
        put(tmp_path / "people", "'text'")
        return real(*given)

    with monkeypatch.context() as patch:
        patch.setattr(measuring, "_store", changed)
        with pytest.raises(duckdb.Error, match=r"\['a'\] have other types now.*the same call finishes it"):
            con.execute(MARGINALS)
    assert con.execute(CHARGES).fetchone() == (1,)
    with pytest.raises(duckdb.Error, match="nothing was read yet, and the same call finishes it once this is mended"):
        con.execute(MARGINALS)
    put(tmp_path / "people", "(i % 7)::INTEGER")
    assert len(con.execute(MARGINALS).fetchall()) > 2
    assert con.execute(CHARGES).fetchone() == (1,)


@pytest.mark.spark
def test_changed_before_the_charge(con: Any, tmp_path: Path) -> None:
    put(tmp_path / "people", "'text'")
    with pytest.raises(duckdb.Error, match="have other types now"):
        con.execute(MARGINALS)
    assert con.execute(CHARGES).fetchone() == (0,)


@pytest.mark.spark
def test_a_lost_road_before_the_charge(con: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*given: Any) -> Any:
        raise ConnectionRefusedError

    monkeypatch.setattr(sessions, "_sessions", {})
    monkeypatch.setattr(sessions, "_begun", lambda sessions_, url: type("Gone", (), {"newSession": unreachable})())
    with pytest.raises(duckdb.Error, match=r"url = 'local\[2\]': Spark cannot be reached"):
        con.execute(MARGINALS)
    assert con.execute(CHARGES).fetchone() == (0,)


@pytest.mark.parametrize("missing", ["pyspark", "java"])
def test_what_is_missing_is_said_in_one_line(missing: str, tmp_path: Path) -> None:
    if missing == "java":
        pytest.importorskip("pyspark", reason="pyspark is not installed")
    block = "import sys; sys.modules['pyspark'] = None; sys.modules['pyspark.sql'] = None\n" if missing == "pyspark" else ""
    program = (
        f"{block}import duckdb, dpsql\ncon = duckdb.connect(); dpsql.load(con, progress=False)\n"
        "try: con.execute(\"CALL dp_remote('people', engine := 'spark', url := 'local[2]', relation := 'lake.people')\")\n"
        "except Exception as error: print(str(error).splitlines()[0])"
    )
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"} | {"PATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], env=environment, capture_output=True, text=True, check=False)
    expected = {"pyspark": "pip install 'dpsql[spark]'", "java": "apt install openjdk-17-jre-headless"}[missing]
    assert expected in done.stdout, done.stderr
    assert len(done.stdout.splitlines()) == 1
