"""Memory of a served database over many questions of one client: flat, or not.

    python tests/benchmarks/served_memory.py [--questions 10000] [--new 20]

Needs pymysql. Of every `--new` questions one is bought, the others were asked before, of a table, of the catalogue, or are refused. Prints
what the server process holds (VmRSS) after a tenth of them, half and all, and how many questions it answered in a second.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import duckdb
import pymysql

import dpsql
from dpsql.serve import analysts

TABLE = (
    "CREATE TABLE visits AS SELECT i % 9 AS ward, (i * 7919) % 900 AS cost FROM range(20000) t(i);"
    "CREATE TABLE wards AS SELECT i AS ward, 'w' || i AS name FROM range(9) t(i);"
    "CALL dp_protect('visits', epsilon := 900, delta := 1e-9);"
    "CALL dp_declare('visits', 'cost', lower := 0, upper := 1000, nullable := false);"
)
OFTEN = (
    "SELECT ward, count(*) AS n FROM visits GROUP BY ward",
    "SELECT * FROM wards",
    "SHOW TABLES",
    "SELECT avg(cost) FROM visits",
    "SELECT cost FROM visits",
    "SELECT column_name FROM information_schema.columns WHERE table_name = 'visits'",
)


def resident(process: int) -> float:
    """Return MB."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text(encoding="ascii"))
    assert found is not None
    return int(found[1]) / 1000


def main() -> None:
    """Serve, ask, and look at the process."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--questions", type=int, default=10_000)
    parser.add_argument("--new", type=int, default=20)
    said = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "census.duckdb"
        with duckdb.connect(path) as con:
            dpsql.load(con)
            con.execute(TABLE)
        token = analysts.add(analysts.beside(path), "alice", {"main.visits": 0.02})
        analysts.publish(analysts.beside(path), "main.wards")
        command = [sys.executable, "-P", "-m", "dpsql.cli", "serve", str(path), "--mysql", "localhost:0"]
        server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, "OPENBLAS_NUM_THREADS": "1"})
        assert server.stderr is not None
        found = re.search(r"mysql on localhost:([0-9]+)", server.stderr.readline())
        assert found is not None
        con = pymysql.connect(host="127.0.0.1", port=int(found[1]), user="alice", password=token, database="census")
        looked = {said.questions // 10, said.questions // 2, said.questions}
        begun = time.perf_counter()
        with con.cursor() as cursor:
            for number in range(1, said.questions + 1):
                new = f"SELECT ward, sum(cost) AS s{number} FROM dp_query('SELECT ward, sum(cost) AS cost FROM visits GROUP BY ward', release := 'q{number}') GROUP BY ward"
                with suppress(pymysql.err.MySQLError):
                    cursor.execute(OFTEN[number % len(OFTEN)] if number % said.new else new)
                    cursor.fetchall()
                if number in looked:
                    rate = number / (time.perf_counter() - begun)
                    print(f"{number:,} questions: {resident(server.pid):,.0f} MB; {rate:.0f} a second", flush=True)
        con.close()
        server.terminate()
        server.communicate()
        with duckdb.connect(path) as con:
            dpsql.load(con)
            print(con.execute("SELECT books, releases FROM dp_budget()").fetchall())


if __name__ == "__main__":
    main()
