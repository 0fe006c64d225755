"""A served database under load, on this machine alone: 20 clients at once, repeated answers, memory, kills.

    python tests/benchmarks/serve.py [--clients 20] [--queries 50] [--repeats 10000] [--kills 30]

Needs the wheels of quack and httpfs. Every client asks distinct queries and ones that others ask too; afterwards the books must have
exactly one charge for each query that was answered, and every analyst a use for each that was hers. Prints medians and 99th
percentiles of new and repeated answers, the server's CPU time, and its resident memory over repeated queries.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

import duckdb
import numpy as np

sys.path[0] = str(Path(__file__).parents[1])  # its own folder has a module `serve`: this one
from serve.conftest import DECLARED, TABLE, Client, Served  # noqa: E402

import dpsql  # noqa: E402
from dpsql.books.granted import Grant  # noqa: E402
from dpsql.books.grants import Grants  # noqa: E402
from dpsql.serve import tokens  # noqa: E402

_NEW = 100
FAILED = "SELECT release FROM dp_ledger('adult') WHERE action = 'fail'"


def made(folder: Path, clients: int) -> Served:
    """Make a protected table and an analyst with a grant for each client."""
    names = [f"analyst{i}" for i in range(clients)]
    with duckdb.connect(folder / "census.duckdb") as con:
        dpsql.load(con, user="benchmark")
        con.execute(TABLE)
        for statement in (DECLARED[0].replace("100.0", "1000.0"), *DECLARED[1:]):
            con.execute(statement)
        grants = Grants(con.cursor(), "census")
        for name in names:
            grants.set(Grant(name, "main.adult", 500.0, 0.1, None, None, None), "benchmark")
    return Served(folder, {name: tokens.add(folder / "analysts.toml", name) for name in names})


def query(number: int) -> str:
    """Return a query of its own for each number."""
    return f"SELECT count(*) AS n FROM adult WHERE age < {20 + number % 80} AND age > {number // 80}"


def timed(client: Client, sql: str) -> tuple[float, list[tuple]]:
    begun = time.perf_counter()
    found = client.ask(sql)
    return time.perf_counter() - begun, found


def load(served: Served, queries: int) -> None:
    """Ask from all clients at once: half distinct queries, half that others ask as well, each asked twice."""
    new, again, lost, answers, guard = [], [], [], {}, threading.Lock()
    names = list(served.tokens)

    def ask(place: int) -> None:
        client = served.client(names[place])
        for i in range(queries // 2):
            sql = query(i if i % 2 else queries + place * queries + i)
            for times in (new, again):
                try:
                    seconds, found = timed(client, sql)
                except Exception as error:
                    lost.append((sql, str(error)))
                    continue
                with guard:
                    times.append(seconds)
                    if answers.setdefault(sql, found) != found:
                        lost.append((sql, "two answers of one query"))

    threads = [threading.Thread(target=ask, args=(place,)) for place in range(len(names))]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - begun
    for told, times in (("new", new), ("repeated", again)):
        print(f"{told}: {len(times)} answers, median {np.median(times):.3f} s, 99th percentile {np.quantile(times, 0.99):.3f} s")
    spent = cpu(served)
    print(f"{len(names)} clients, {seconds:.0f} s, server's CPU {spent:.0f} s, {1000 * spent / (len(new) + len(again)):.0f} ms an "
          f"answer, lost or wrong: {len(lost)} {lost[:2]}", flush=True)  # fmt: skip
    served.stop()
    bought = served.books("SELECT release FROM dp_ledger('adult') WHERE action = 'charge'")
    intact = served.books("SELECT books FROM dp_budget('adult')")
    print(f"books {intact[0][0]}: {len(bought)} charges, {len(set(bought))} releases, {len(answers)} queries")
    assert len(bought) == len(set(bought)) == len(answers) and not lost


def cpu(served: Served) -> float:
    """Return the CPU seconds of the server."""
    fields = Path(f"/proc/{served.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident(served: Served) -> float:
    """Return the resident memory of the server in MB."""
    pages = int(Path(f"/proc/{served.process.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def memory(served: Served, repeats: int) -> None:
    """Ask new queries from one client, then repeat one."""
    served.start()
    client, times = served.client(next(iter(served.tokens))), []
    client.ask(query(1))
    before = cpu(served)
    for i in range(_NEW):
        times.append(timed(client, query(200_000 + i))[0])
    print(f"one client, new: median {np.median(times):.4f} s, server's CPU {1000 * (cpu(served) - before) / _NEW:.0f} ms an answer")
    times, before = [], cpu(served)
    for i in range(repeats + 1):
        times.append(timed(client, query(1))[0])
        if i % max(1, repeats // 10) == 0:
            print(f"after {i} repeated queries: {resident(served):.0f} MB", flush=True)
    print(f"one client, repeated: median {np.median(times):.4f} s, 99th percentile {np.quantile(times, 0.99):.4f} s, "
          f"server's CPU {1000 * (cpu(served) - before) / len(times):.0f} ms an answer", flush=True)  # fmt: skip
    served.stop()


def kills(served: Served, count: int) -> None:
    """Kill the server under load, again and again; answers that were given have to come again, none charged twice.

    Readings that died count as failed; the custodian looks and says so before the next start.
    """
    known, names = {}, list(served.tokens)[:4]
    for turn in range(count):
        served.start()
        stop = threading.Event()

        def ask(name: str, first: int, stop: threading.Event = stop) -> None:
            try:
                client = served.client(name)
                for number in range(first, first + 1000):
                    if stop.is_set():
                        return
                    sql = query(100_000 + number)
                    try:
                        (answer,) = client.ask(sql)
                    except duckdb.InvalidInputException as error:
                        if "fail" not in str(error):
                            print("REFUSED", error)
                        continue
                    if known.setdefault(sql, answer) != answer:
                        print("WRONG", sql)
            except duckdb.Error:
                return

        threads = [threading.Thread(target=ask, args=(name, 40 * turn)) for name in names]
        for thread in threads:
            thread.start()
        before, last = len(known), time.monotonic() + 30
        while len(known) == before and time.monotonic() < last:
            time.sleep(0.02)
        time.sleep(0.07 * turn)
        served.stop(signal.SIGKILL)
        stop.set()
        for thread in threads:
            thread.join(120)
        assert not any(thread.is_alive() for thread in threads), "a client waits for a server that is gone"
        served.books(f"FROM dp_query('SELECT count(*) AS n FROM adult', epsilon := 0.1, release := 'look{turn}')")  # notes what died
        (books,) = served.books("SELECT books FROM dp_budget('adult')")[0]
        if books != "intact":
            assert books.startswith("intact; only tables and their columns"), books
            served.books("CALL dp_protect('adult', resume := true)")
        print(f"kill {turn + 1}: {len(known)} answers, {books}", flush=True)
    bought = served.books("SELECT release FROM dp_ledger('adult') WHERE action = 'charge'")
    print(f"{count} kills: {len(known)} answers, books {served.books('SELECT books FROM dp_budget()')[0][0]}, "
          f"{len(bought)} charges of {len(set(bought))} releases, "
          f"{len(served.books(FAILED))} readings that died")  # fmt: skip
    assert len(bought) == len(set(bought)) >= len(known) + count, "an answer without a charge"  # a look is bought after each kill
    served.start()
    client = served.client(names[0])
    assert all(client.ask(sql) == [answer] for sql, answer in known.items())
    served.stop()


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("clients", 20), ("queries", 50), ("repeats", 10_000), ("kills", 30)):
        parser.add_argument(f"--{name}", type=int, default=default)
    chosen = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="dpsql-serve-"))
    try:
        served = made(folder, chosen.clients)
        if chosen.queries:
            load(served.start(), chosen.queries)
        if chosen.repeats:
            memory(served, chosen.repeats)
        if chosen.kills:
            kills(served, chosen.kills)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
