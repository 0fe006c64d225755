"""The same through Spark Connect: a server that this test starts, a client without a JVM."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

import dpsql

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.any_duckdb, pytest.mark.filterwarnings("ignore")]
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    pyspark = pytest.importorskip("pyspark", reason="pyspark is not installed")
    pytest.importorskip("grpc_status", reason="Spark Connect needs grpcio-status")
    if shutil.which("java") is None:
        pytest.skip("there is no Java")
    home, folder = Path(pyspark.__file__).parent, tmp_path_factory.mktemp("server")
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    environment = {
        **os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT),
        "OPENBLAS_NUM_THREADS": "1",
    }  # fmt: skip
    command = [
        str(home / "bin" / "spark-submit"), "--driver-memory", "700m", "--master", "local[2]", "--conf", "spark.ui.enabled=false",
        "--conf", f"spark.connect.grpc.binding.port={port}", "--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal",
    ]  # fmt: skip
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, cwd=folder, stdout=log, stderr=log, start_new_session=True)
    until = time.monotonic() + 90
    while time.monotonic() < until:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            break
        except OSError:
            time.sleep(0.3)
    yield f"sc://127.0.0.1:{port}", process
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def test_counted_written_and_lost(server: tuple[str, subprocess.Popen[bytes]], tmp_path: Path) -> None:
    url, process = server
    rows = "SELECT i % 131 AS age, CASE i % 3 WHEN 0 THEN 'f' WHEN 1 THEN 'm' END AS sex, i % 3 = 0 AS ok FROM range(3000) r(i)"
    duckdb.execute(f"COPY ({rows}) TO '{tmp_path / 'p.parquet'}' (FORMAT parquet)")
    with duckdb.connect(str(tmp_path / "books.duckdb")) as con:
        dpsql.load(con, progress=False)
        con.execute("CALL dp_remote('people', engine := 'spark', url := $1, relation := $2)", [url, f"parquet:{tmp_path / 'p.parquet'}"])
        con.execute("CALL dp_protect('people', epsilon := 900, delta := 1e-6)")
        con.execute("CALL dp_declare('people', 'age', lower := 0, upper := 130, nullable := false)")
        con.execute("CALL dp_declare('people', 'sex', categories := ['f', 'm'])")

        query = "SELECT sex, count(*) AS n, avg(age) AS mean FROM people GROUP BY sex"
        found = con.execute(f"SELECT sex, n, mean FROM dp_query('{query}', epsilon := 100) ORDER BY sex").fetchall()
        assert [row[0] for row in found] == ["f", "m", None]
        assert all(abs(n - 1000) < 40 and abs(mean - 65) < 5 for _, n, mean in found)  # twenty standard deviations

        made = con.execute("FROM dp_synthesize('people', epsilon := 9, rows := 500, into_table := 'spark:people_synth')").fetchone()
        assert made[:2] == ("spark:people_synth", 500)
        with pytest.raises(duckdb.Error, match="name a table"):
            con.execute(f"FROM dp_sample('{made[2]}', into_table := 'spark:parquet:{tmp_path / 'out'}')")
        with pytest.raises(duckdb.Error, match="another draw"):
            con.execute(f"FROM dp_sample('{made[2]}', rows := 9, into_table := 'spark:people_synth')")

        charges = "SELECT count(*) FROM dpsql.ledger WHERE action = 'charge'"
        before = con.execute(charges).fetchone()
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        with pytest.raises(duckdb.Error, match="cannot be reached|was lost|cannot read it"):
            con.execute("FROM dp_marginals('people', epsilon := 1)")
        assert con.execute(charges).fetchone() == before
