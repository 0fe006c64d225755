"""A served database under load, on this machine alone: clients at once, each an analyst with a grant that does not reach for all.

    python tests/benchmarks/grants.py [--clients 20] [--questions 50] [--kills 0]

Needs pymysql. Half of a client's questions are its own, half are asked by all of them; each is asked twice. A server process answers, and
is killed and started again so many times meanwhile. Afterwards the books must have one charge for each question that was answered, one
use for each analyst who got it, nobody beyond her grant, and all of whom a question was answered the same numbers.

Prints medians and 99th percentiles of first and repeated answers, at once with them and afterwards, and how often a client had to ask
again.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pymysql

import dpsql
from dpsql.serve import analysts

PRICE, GRANT = 0.05, 0.25
TABLE = (
    "CREATE TABLE visits AS SELECT i % 9 AS ward, (i * 7919) % 900 AS cost FROM range(20000) t(i);"
    "CALL dp_protect('visits', epsilon := 900, delta := 1e-9);"
    "CALL dp_declare('visits', 'cost', lower := 0, upper := 1000, nullable := false);"
)
LOST = (pymysql.err.OperationalError, pymysql.err.InterfaceError, pymysql.err.InternalError, OSError)


class Server:
    """The server process; started anew it takes the same port."""

    def __init__(self, path: Path) -> None:
        self.path, self.port = path, 0
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-P", "-m", "dpsql.cli", "serve", str(self.path), "--mysql", f"localhost:{self.port}"]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, "OPENBLAS_NUM_THREADS": "1"})
        assert self.process.stderr is not None
        told = self.process.stderr.readline()
        found = re.search(r"mysql on localhost:([0-9]+)", told)
        assert found, told
        self.port = int(found[1])

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.start()

    def stop(self) -> None:
        self.process.terminate()
        self.process.communicate()


class Client:
    """One analyst, who connects again after a kill."""

    def __init__(self, server: Server, name: str, token: str) -> None:
        self.server, self.name, self.token, self.again = server, name, token, 0
        self.con: Any = None

    def ask(self, sql: str) -> tuple[float, Any]:
        """Return how long the last try took, and the rows, or the refusal."""
        while True:
            begun = time.perf_counter()
            try:
                if self.con is None:
                    self.con = pymysql.connect(host="127.0.0.1", port=self.server.port, user=self.name, password=self.token, database="census")
                with self.con.cursor() as cursor:
                    cursor.execute(sql)
                    return time.perf_counter() - begun, cursor.fetchall()
            except LOST as error:
                if "does not cover this" in str(error):
                    return time.perf_counter() - begun, str(error)
                self.con, self.again = None, self.again + 1
                time.sleep(0.2)
            except pymysql.err.MySQLError as error:
                return time.perf_counter() - begun, str(error)


def question(number: int) -> str:
    return f"SELECT count(*) AS n FROM visits WHERE cost < {number % 900} AND ward <> {number // 900}"


def main() -> None:
    """Make a database, serve it, ask, and look into the books."""
    parser = argparse.ArgumentParser()
    for name, usual in (("clients", 20), ("questions", 50), ("kills", 0)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    said = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "census.duckdb"
        names = [f"analyst{i}" for i in range(said.clients)]
        with duckdb.connect(path) as con:
            dpsql.load(con)
            con.execute(TABLE)
            for name in names:
                con.execute(f"CALL dp_grant('visits', analyst := '{name}', epsilon := {GRANT}, per_query := {PRICE})")
        tokens = {name: analysts.add(analysts.beside(path), name, {"main.visits": PRICE}) for name in names}
        server = Server(path)
        clients = [Client(server, name, token) for name, token in tokens.items()]
        first, again, answers, wrong = asked(server, clients, said.questions, said.kills)
        drawn = redrawn(clients, answers, wrong)
        server.stop()
        for told, times in (("first", first), ("repeated, others buying", again), ("repeated, nobody buying", drawn)):
            print(f"{told}: {len(times)}, median {np.median(times):.3f} s, 99th percentile {np.quantile(times, 0.99):.3f} s")
        print(f"asked again after a lost connection: {sum(client.again for client in clients)}; wrong: {len(wrong)} {wrong[:2]}")
        with duckdb.connect(path) as con:
            dpsql.load(con)
            checked(con, names, answers)
        assert not wrong


def asked(server: Server, clients: list[Client], count: int, kills: int) -> tuple[list[float], list[float], dict[str, dict[str, Any]], list[str]]:
    """Ask from all clients at once; return times, and what each question gave to whom."""
    first: list[float] = []
    again: list[float] = []
    answers: dict[str, dict[str, Any]] = {}
    wrong: list[str] = []
    guard = threading.Lock()

    def run(place: int, client: Client) -> None:
        for number in range(count):
            sql = question(number if number % 2 else 50 + place * count + number)
            for times in (first, again):
                seconds, found = client.ask(sql)
                with guard:
                    if isinstance(found, str):
                        if "does not cover this" not in found:
                            wrong.append(found)
                        continue
                    times.append(seconds)
                    if answers.setdefault(sql, {}).setdefault(client.name, found) != found:
                        wrong.append(f"two answers to {client.name} of {sql}")

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate(clients)]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    for _ in range(kills):
        time.sleep(3)
        if any(thread.is_alive() for thread in threads):
            server.kill()
    for thread in threads:
        thread.join()
    print(f"{len(clients)} clients x {count} questions, each twice: {time.perf_counter() - begun:.0f} s")
    return first, again, answers, wrong


def redrawn(clients: list[Client], answers: dict[str, dict[str, Any]], wrong: list[str]) -> list[float]:
    """Ask everything again that was answered, from all clients at once, as dashboards do that are opened; return times."""
    times: list[float] = []

    def run(client: Client) -> None:
        for sql, given in answers.items():
            if client.name in given:
                seconds, found = client.ask(sql)
                times.append(seconds)
                if found != given[client.name]:
                    wrong.append(f"another answer to {client.name} of {sql}")

    threads = [threading.Thread(target=run, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return times


def checked(con: duckdb.DuckDBPyConnection, names: list[str], answers: dict[str, dict[str, Any]]) -> None:
    """Compare the books with what was answered."""
    charges = [release for (release,) in con.execute("SELECT release FROM dp_ledger() WHERE action = 'charge'").fetchall()]
    used = dict(con.execute("SELECT who, count(*) FROM dp_ledger() WHERE action IN ('charge', 'use') GROUP BY who").fetchall())
    (state,) = con.execute("SELECT books FROM dp_budget()").fetchall()
    grants = con.execute("SELECT analyst, epsilon, epsilon_spent, releases FROM dp_grant()").fetchall()
    shared = sum(len(given) > 1 for given in answers.values())
    alike = all(len(set(given.values())) == 1 for given in answers.values())
    print(
        f"books {state[0]}: {len(charges)} charges, {len(answers)} questions answered ({shared} to several, alike: {alike}), "
        f"{sum(used.values())} uses, {sum(map(len, answers.values()))} answers to somebody; most spent of {GRANT}: "
        f"{max(spent for _, _, spent, _ in grants):.4f}, releases of one: {min(g[3] for g in grants)} to {max(g[3] for g in grants)}"
    )
    assert state == ("intact",) and len(charges) == len(set(charges)) == len(answers) and alike
    assert all(spent <= epsilon for _, epsilon, spent, _ in grants)
    for name in names:
        assert used.get(f"analyst {name}", 0) == sum(name in given for given in answers.values())


if __name__ == "__main__":
    main()
