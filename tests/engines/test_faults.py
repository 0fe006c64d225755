"""A server that is killed: charged once, finished by the same call; errors of the engine are withheld."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
import sail
from struck import LONG

import dpsql
from dpsql.engines.spark import reading, session
from dpsql.engines.spark.faults import lost
from dpsql.engines.spark.reader import SparkReader
from dpsql.engines.spark.reading import SparkReading, withheld
from dpsql.errors import DpsqlError, EngineLost
from dpsql.purchase import measuring

pytestmark = pytest.mark.any_duckdb


@pytest.fixture(scope="module")
def server() -> Iterator[sail.Server]:
    with sail.Server() as found:
        yield found


@pytest.fixture
def con(server: sail.Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[duckdb.DuckDBPyConnection]:
    monkeypatch.setattr(session, "RETRIES", 1)
    (tmp_path / "lake").mkdir()
    sail.copy(f"COPY (SELECT i // 2 AS person, i % 7 AS age FROM range(70) t(i)) TO '{tmp_path / 'lake' / 'p.parquet'}' (FORMAT parquet)")
    made = sail.remote(tmp_path / "books.duckdb", "people", tmp_path / "lake", server.url, privacy_unit="person", max_contributions=2)
    dpsql.declare(made, "people", "age", lower=0, upper=6, nullable=False)
    yield made
    made.close()


@pytest.fixture
def reading_rows(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Becomes true once rows are read: everything is charged."""
    found, store = [], measuring._store

    def stored(*given: Any) -> Any:
        found.append(True)
        return store(*given)

    monkeypatch.setattr(measuring, "_store", stored)
    return found


def actions(con: duckdb.DuckDBPyConnection) -> list[str]:
    return [text for (text,) in con.execute("SELECT action FROM dpsql.ledger ORDER BY entry ASC").fetchall()]


CALLS = ("FROM dp_marginals('people', columns := ['age'], epsilon := 50)", "FROM dp_query('SELECT age, count(*) FROM people GROUP BY age', epsilon := 50)")


@pytest.mark.parametrize("call", CALLS)
def test_killed_while_it_counts(
    call: str, server: sail.Server, con: duckdb.DuckDBPyConnection, reading_rows: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    arrow = SparkReading.arrow

    def killed(found: SparkReading, make: Any) -> Any:
        if reading_rows:
            monkeypatch.setattr(SparkReading, "arrow", arrow)
            server.kill()
        return arrow(found, make)

    monkeypatch.setattr(SparkReading, "arrow", killed)
    with pytest.raises(duckdb.Error, match="charged and not finished, and the same call finishes it"):
        con.execute(call).fetchall()
    assert actions(con) == ["protect", "charge"]
    with pytest.raises(duckdb.Error, match="cannot be reached"):  # it is still dead
        con.execute(call).fetchall()
    server.begin()
    found = con.execute(call).fetchall()
    assert actions(con) == ["protect", "charge", "store"]
    assert con.execute(call).fetchall() == found


def test_dead_before_anything_is_charged(server: sail.Server, con: duckdb.DuckDBPyConnection) -> None:
    server.kill()
    try:
        with pytest.raises(duckdb.Error, match="cannot be reached"):
            con.execute(CALLS[0]).fetchall()
        assert actions(con) == ["protect"]
    finally:
        server.begin()


def test_a_failure_is_final_and_its_text_withheld(con: duckdb.DuckDBPyConnection, reading_rows: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    """A statement that fails at a value of a row: Spark's text has the value, dpsql's has not, and nothing is read again."""
    own = SparkReader._spark

    def broken(reader: SparkReader, statement: str) -> str:
        made = own(reader, statement)
        return f"SELECT CAST(raise_error(concat('secret-', c0)) AS INT) AS c0 FROM ({made})" if reading_rows else made

    monkeypatch.setattr(SparkReader, "_spark", broken)
    for _ in range(2):
        with pytest.raises(duckdb.Error) as failed:
            con.execute(CALLS[0]).fetchall()
        assert "secret-" not in str(failed.value) and "withheld" in str(failed.value)
        monkeypatch.setattr(SparkReader, "_spark", own)
    assert actions(con) == ["protect", "charge", "fail"]


def test_interrupted_and_finished(con: duckdb.DuckDBPyConnection, reading_rows: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    begun, arrow, stopped = threading.Event(), SparkReading.arrow, []

    def waits(found: SparkReading, make: Any) -> Any:
        def held() -> Any:
            begun.set()
            return gate.wait(LONG) and make()

        gate = threading.Event()
        own = found._interrupt
        monkeypatch.setattr(found, "_interrupt", lambda: (stopped.append(1), own(), gate.set()))
        return arrow(found, held) if reading_rows else arrow(found, make)

    monkeypatch.setattr(SparkReading, "arrow", waits)
    caught: list[BaseException] = []

    def call() -> None:
        try:
            con.execute(CALLS[0]).fetchall()
        except BaseException as error:
            caught.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    begun.wait(LONG)
    dpsql.interrupt(con)
    thread.join(LONG)
    assert caught and stopped
    monkeypatch.setattr(SparkReading, "arrow", arrow)
    con.execute(CALLS[0]).fetchall()
    assert actions(con)[-1] == "store" and actions(con).count("charge") == 1


class Refused(Exception):
    """As gRPC says it."""

    def code(self) -> Any:
        return type("Code", (), {"name": "UNAVAILABLE"})


Refused.__module__ = "grpc._channel"
SAYS = {
    "Job aborted due to stage failure: Master removed our application: KILLED": True,
    "a value: Job aborted due to stage failure: Master removed our application: KILLED": False,
    "INVALID_HANDLE.SESSION_CLOSED": False,  # a value could say so, a condition cannot
    "[CAST_INVALID_INPUT] The value 'SparkContext was shut down' cannot be cast": False,
}


@pytest.mark.parametrize("text", SAYS)
def test_a_value_does_not_make_a_loss(text: str) -> None:
    pytest.importorskip("pyspark", reason=sail.WHY)
    from pyspark.errors.exceptions.connect import SparkConnectGrpcException

    assert lost(SparkConnectGrpcException(text)) == SAYS[text]


@pytest.mark.parametrize(("error", "kind"), [(Refused(), EngineLost), (ConnectionResetError("x"), EngineLost), (ValueError("secret"), DpsqlError)])
def test_what_is_said_of_an_error(error: Exception, kind: type[DpsqlError]) -> None:
    with pytest.raises(DpsqlError) as said, withheld():
        raise error
    assert type(said.value) is kind and "secret" not in str(said.value)
    assert reading.MOST >= 2
