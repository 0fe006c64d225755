"""Spark fails while it counts: workers, the master or the driver are killed. One charge, and the same integers in the end."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from spark_clusters import Cluster

from dpsql.engines.spark import faults

ROWS = 6_000
CALL = "FROM dp_marginals('slow', epsilon := 1, release := '{}')"
SLOW = f"""CREATE OR REPLACE GLOBAL TEMP VIEW slow AS SELECT CAST(id % 3 AS INT) AS a, h <> 0 AS b FROM (SELECT id,
    aggregate(sequence(0, 20000), 0L, (a, x) -> a + hash(x, id)) AS h FROM range(0, {ROWS}, 1, 12))"""


def driver() -> None:
    """The program of the process that a test starts: a call a line, what came of it as JSON; noise is switched off."""
    import warnings

    import duckdb

    import dpsql
    from dpsql.engines.spark import relation, session
    from dpsql.noise import discrete

    warnings.simplefilter("ignore")
    relation.check_table = lambda session, name: None  # a view is none, and a table would not be slow
    discrete.add_noise = lambda counts, mechanism, scale: counts.copy()
    url = sys.argv[1]
    con = duckdb.connect(sys.argv[2])
    dpsql.load(con, progress=False)
    for line in sys.stdin:
        try:
            session.session(url).sql(SLOW)
            if con.execute("SELECT count(*) FROM duckdb_tables() WHERE table_name = 'slow'").fetchone() == (0,):
                con.execute("CALL dp_remote('slow', engine := 'spark', url := $1, relation := 'global_temp.slow')", [url])
                con.execute("CALL dp_protect('slow', epsilon := 900, delta := 1e-6)")
                con.execute("CALL dp_declare('slow', 'a', categories := ['0', '1', '2'], nullable := false)")
                con.execute("CALL dp_declare('slow', 'b', nullable := false)")
            print("begun", flush=True)
            found: object = sorted(con.execute(line).fetchall(), key=str)
        except Exception as error:
            found = f"{type(error).__name__}: {error}"
        charged = "SELECT count(*) FROM dpsql.ledger WHERE action = 'charge'"
        print(json.dumps([found, con.execute(charged).fetchone()[0]], default=str), flush=True)


class Driver:
    """A process that counts on a cluster."""

    def __init__(self, url: str, folder: Path) -> None:
        settings = {
            "spark.executor.memory": "512m", "spark.driver.memory": "600m", "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
        }  # fmt: skip
        given = " ".join(f"--conf {name}={value}" for name, value in settings.items())
        environment = {
            **os.environ, "PYSPARK_SUBMIT_ARGS": f"{given} pyspark-shell", "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable,
            "DPSQL_SPARK_PATIENCE": "45", "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(map(str, (Path(__file__).parent, *Path(__file__).parents[1:3]))),
        }  # fmt: skip
        program = [sys.executable, "-c", "import test_spark_faults as t; t.driver()", url, str(folder / "books.duckdb")]
        with (folder / "driver.log").open("wb") as log:
            self.process = subprocess.Popen(
                program, env=environment, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
            )
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)

    def begin(self, release: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(CALL.format(release) + "\n")
        self.process.stdin.flush()
        assert self._lines.get(timeout=180) == "begun\n"

    def end(self) -> tuple[Any, int]:
        found, charges = json.loads(self._lines.get(timeout=240))
        return found, charges

    def close(self) -> None:
        """Close the pipes of a process that has ended."""
        self._reader.join(timeout=60)
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()

    def java(self) -> list[int]:
        """Return the JVM below the process."""
        found = subprocess.run(["ps", "-o", "pid=,comm=", "--ppid", str(self.process.pid)], capture_output=True, text=True, check=False)
        return [int(line.split()[0]) for line in found.stdout.splitlines() if "java" in line]


def busy(folder: Path, known: int = 0) -> None:
    """Wait until the executors have begun more tasks than are known."""
    until = time.monotonic() + 120
    while time.monotonic() < until:
        if tasks(folder) > known:
            return
        time.sleep(0.2)
    raise TimeoutError("no task began")


def tasks(folder: Path) -> int:
    return sum(log.read_text(errors="replace").count("Running task") for log in folder.glob("work/*/*/stderr"))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path) as found:
        yield found


@pytest.fixture
def process(cluster: Cluster, tmp_path: Path) -> Iterator[Driver]:
    found = Driver(cluster.url, tmp_path)
    yield found
    for pid in (found.process.pid,):
        os.killpg(pid, signal.SIGKILL)
    found.process.wait()
    found.close()


def counted(found: Any) -> int:
    """Return the rows of all cells of the table of both columns; they are exact here."""
    assert isinstance(found, list), found
    return sum(int(row[-1]) if not isinstance(row[-1], float) else round(row[-1]) for row in found)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.any_duckdb
def test_killed_while_it_counts(cluster: Cluster, process: Driver, tmp_path: Path) -> None:
    process.begin("calm")
    calm, charges = process.end()
    assert charges == 1
    assert counted(calm) % ROWS == 0
    assert counted(calm) > 0

    before = tasks(tmp_path)
    process.begin("worker")
    busy(tmp_path, before + 3)
    cluster.kill(cluster.workers[0])
    assert process.end() == (calm, 2), "another worker does what the killed one had"

    before = tasks(tmp_path)
    process.begin("master")
    busy(tmp_path, before + 2)
    cluster.kill(cluster.master, *cluster.workers)
    found, charges = process.end()
    assert charges == 3
    assert "charged and not finished: the same call finishes it" in found
    with Cluster(tmp_path, port=cluster.port):
        process.begin("master")
        assert process.end() == (calm, 3), "on a new cluster at the same address, in the same process"

        before = tasks(tmp_path)
        process.begin("driver")
        busy(tmp_path, before + 2)
        for pid in process.java():
            os.kill(pid, signal.SIGKILL)
        found, charges = process.end()
        assert charges == 4
        assert "charged and not finished: the same call finishes it" in found
        process.begin("driver")
        assert process.end() == (calm, 4)


class Spoken(Exception):
    """As pyspark shows an error of Spark Connect: a text, and no object of the JVM."""


Spoken.__module__ = "pyspark.errors.exceptions.connect"
TASK = "Job aborted due to stage failure: Task 0 in stage 3.0 failed 4 times, most recent failure: Lost task 0.3 in stage 3.0 (TID 9) (10.0.0.7 executor 2): "


@pytest.mark.parametrize(
    ("text", "is_lost"),
    [
        (TASK + "ExecutorLostFailure (executor 2 exited caused by one of the running tasks) Reason: worker lost", True),
        (TASK + "java.lang.RuntimeException: ExecutorLostFailure (executor 2", False),
        (TASK + "org.apache.spark.SparkException: Job 3 cancelled because SparkContext was shut down", False),
        ("Job 3 cancelled because SparkContext was shut down", True),
        ("Job aborted due to stage failure: Master removed our application: KILLED", True),
        ("[CAST_INVALID_INPUT] The value 'Job 3 cancelled because SparkContext was shut down' cannot be cast", False),
        ("Cannot call methods on a stopped SparkContext.\nThis stopped SparkContext was created at:", True),
        ("value\nJob 3 cancelled because SparkContext was shut down", False),
        ("", False),
    ],
)
def test_what_is_a_loss(text: str, is_lost: bool) -> None:
    """A text that a value can write stands behind the name of the fault."""
    assert faults.lost(Spoken(text)) is is_lost


def test_a_broken_connection_is_a_loss() -> None:
    assert faults.lost(ConnectionRefusedError())
    assert not faults.lost(ValueError("ConnectionRefusedError"))
    try:
        try:
            raise ConnectionResetError
        except ConnectionResetError as error:
            raise Spoken("wrapped") from error
    except Spoken as error:
        assert faults.lost(error)
