"""What dp_query charges: once for each question, nothing for what was bought; true under threads, rollbacks and kills."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pairwise import grid
from prepared import beside, copied
from query_readings import ask, database, make_sales, protect_sales, replayed

import dpsql
from dpsql.accounting import rho_limit
from dpsql.estimates.magnitudes import sensitivity_of
from dpsql.estimates.measures import sensitivity
from dpsql.kinds.query import measure as measuring
from dpsql.measure import query as reading
from dpsql.mechanisms.ranked import sensitivity as penalty_sensitivity

pytestmark = pytest.mark.any_duckdb

BOUGHT = "SELECT region, count(*) AS n, sum(amount) AS s, avg(quantity) AS q FROM sales GROUP BY region"
CONTAINED = [
    BOUGHT,
    "select REGION, count(*), sum(Amount) from sales group by all",
    "SELECT region FROM sales GROUP BY region HAVING count(*) > 3 ORDER BY sum(amount) DESC LIMIT 2",
    "SELECT region AS r, sum(amount) / avg(quantity) AS quotient, 100 * count(*) AS hundreds FROM sales GROUP BY region",
    "SELECT avg(n) FROM (SELECT region, count(*) AS n FROM sales GROUP BY region) WHERE n > 2",
    "SELECT region, count(*), rank() OVER (ORDER BY sum(amount)) FROM sales GROUP BY region",
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("made") / "sales_there.duckdb"
    database(path=str(path)).close()
    return path


@pytest.fixture
def con(made: Path, tmp_path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    with copied(made, tmp_path, progress=False) as connection:
        yield connection


def charges(con: duckdb.DuckDBPyConnection) -> list[tuple[Any, ...]]:
    return beside(con).execute("SELECT rho, epsilon, delta FROM dpsql.ledger WHERE action = 'charge' ORDER BY entry").fetchall()


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function after which reading protected rows is an error."""

    def stop() -> None:
        def refuse(*given: Any) -> Any:
            raise AssertionError("rows were read")

        monkeypatch.setattr(reading, "counted", refuse)
        monkeypatch.setattr(measuring.Query, "bind", refuse)

    return stop


def test_what_is_contained_in_what_was_bought_costs_nothing_and_reads_nothing(con: duckdb.DuckDBPyConnection, unread: Any) -> None:
    first = ask(con, BOUGHT)
    unread()
    for sql in CONTAINED:
        again = ask(con, sql)
        assert again and len(charges(con)) == 1, sql
        if sql == BOUGHT:
            assert again == first
        assert ask(con, BOUGHT, "epsilon := 0.5") == first, "a smaller epsilon is in a larger one"


OTHERS = [
    (BOUGHT, "epsilon := 2"), (BOUGHT, "max_groups := 1, max_rows_per_group := 2"), (BOUGHT, "bounds := {'amount': [0, 50]}"),
    (BOUGHT.replace("sales GROUP", "sales WHERE gift GROUP"), ""), (BOUGHT, "mechanism := 'laplace'"), (BOUGHT, "groups := 'private'"),
    ("SELECT region, max(amount) FROM sales GROUP BY region", ""), (BOUGHT, "release := 'another'"),
]


def test_another_question_is_charged(con: duckdb.DuckDBPyConnection) -> None:
    for number, (sql, more) in enumerate([(BOUGHT, ""), *OTHERS]):
        ask(con, sql, more)
        assert len(charges(con)) == number + 1, (sql, more)


@grid(accountant=["zcdp", "basic"], mechanism=["gaussian", "laplace"], neighbors=["add_remove", "replace_one"])
def test_the_price_of_the_plan_is_the_charge(accountant: str, mechanism: str, neighbors: str) -> None:
    """And the books hold, and say so; what is over the budget is refused, and nothing is read or charged."""
    con = database(accountant=accountant, neighbors=neighbors, epsilon=10)
    for sql in (BOUGHT, "SELECT note, count(*), sum(amount) FROM sales GROUP BY note", "SELECT median(amount), count(*) FROM sales"):
        more = f"mechanism := '{mechanism}'" + (", delta := 1e-8" if accountant == "basic" and (mechanism == "gaussian" or "note" in sql) else "")
        before = len(charges(con))
        planned = con.execute(f"SELECT noise_scale FROM dp_plan('{sql}', epsilon := 1.0, {more})").fetchall()
        assert len(charges(con)) == before
        with replayed(pytest.MonkeyPatch()) as read:
            ask(con, sql, more)
        made, (held, _) = read.plans[0], read.last()
        assert len(charges(con)) == before + 1
        rho, epsilon, delta = charges(con)[-1]
        assert planned[0][0] == pytest.approx(float(made.scales[0]) / held.measures[0].grid, rel=1e-9)
        claims = [
            sensitivity(m, held.max_rows, held.max_groups, held.max_rows_per_group, neighbors, grouped=bool(held.keys))
            for m in held.measures for _ in m.lengths
        ]
        claims += [sensitivity_of(3, neighbors) for one in held.cutting for _ in one.scales]
        scales = [*made.scales, *(scale for one in held.cutting for scale in one.scales)]
        picks = [
            (2 * one.gamma * moved, count)
            for one in held.picking
            for moved, count in [penalty_sensitivity(one.share, neighbors, held.max_rows, held.max_groups, held.max_rows_per_group, grouped=bool(held.keys))]
        ]
        loss = sum((l2 / float(b)) ** 2 / 2 if mechanism == "gaussian" else l1 / float(b) for (l1, l2), b in zip(claims, scales, strict=True))
        loss += sum(float(count * (each**2 / 8 if mechanism == "gaussian" else each)) for each, count in picks)
        assert bool(picks) is ("median" in sql)
        if mechanism == "gaussian" and accountant == "basic":
            assert float(epsilon) <= 1.0 and 0 < float(delta) <= 1e-8
        else:
            charged = float(rho if mechanism == "gaussian" else epsilon)
            assert 0.95 * charged <= loss <= charged * (1 + 1e-9)
    held = charges(con)
    with replayed(pytest.MonkeyPatch()) as read, pytest.raises(duckdb.Error, match="exceeded"):
        ask(con, "SELECT count(*) FROM sales WHERE gift", "epsilon := 10" + (", delta := 1e-8" if accountant == "basic" else ""))
    assert charges(con) == held and not read.found
    assert con.execute("SELECT bool_and(chain_holds) FROM dp_ledger()").fetchone() == (True,)


def test_several_cores_share_epsilon(con: duckdb.DuckDBPyConnection) -> None:
    """Two aggregates over different rows, and the sets of a ROLLUP, together cost no more than one query of this epsilon."""
    ask(con, "SELECT count(*) FROM sales WHERE gift")
    one = charges(con)[-1][0]
    for sql, parts in [
        ("SELECT (SELECT count(*) FROM sales WHERE amount > 3) - (SELECT count(*) FROM sales WHERE amount > 60) AS d", 2),
        ("SELECT count(*) FROM sales WHERE quantity > 1 UNION ALL SELECT sum(amount) FROM sales UNION ALL SELECT avg(price) FROM sales", 3),
        ("SELECT region, gift, count(*) FROM sales GROUP BY ROLLUP (region, gift)", 3),
    ]:
        before = charges(con)
        ask(con, sql)
        made = charges(con)[len(before) :]
        assert len(made) == parts
        assert 0.99 * float(one) < sum(float(rho) for rho, *_ in made) <= float(rho_limit(1.0, 1e-6, gaussian=True))


def test_a_rollback_does_not_refund(con: duckdb.DuckDBPyConnection) -> None:
    con.execute("BEGIN")
    first = ask(con, BOUGHT)
    con.execute("ROLLBACK")
    assert len(charges(con)) == 1
    assert ask(con, BOUGHT) == first
    assert len(charges(con)) == 1


def test_explain_charges_at_most_once_and_a_view_asks_what_was_bought(con: duckdb.DuckDBPyConnection) -> None:
    """DuckDB calls a table function while it binds: EXPLAIN may buy, but then the answer is bought."""
    call = f"FROM dp_query('{BOUGHT}', epsilon := 1.0)"
    for _ in "ab":
        con.execute(f"EXPLAIN {call}").fetchall()
    con.execute(f"CREATE VIEW answers AS {call}")
    first = con.execute("FROM answers ORDER BY ALL").fetchall()
    assert first == con.execute("SELECT * FROM answers ORDER BY ALL").fetchall() == con.execute(f"{call} ORDER BY ALL").fetchall()
    assert con.execute("SELECT count(*) FROM answers a JOIN answers b USING (region)").fetchone()
    assert len(charges(con)) == 1


def test_threads_buy_one_question_once(tmp_path: Path) -> None:
    path = tmp_path / "shop.duckdb"
    con = duckdb.connect(str(path))
    make_sales(con)
    dpsql.load(con, progress=False)
    protect_sales(con)
    start, seen, failed = threading.Barrier(4), [], []

    def call(cursor: duckdb.DuckDBPyConnection) -> None:
        start.wait()
        try:
            seen.append(ask(cursor, BOUGHT))
        except duckdb.Error as error:
            failed.append(str(error))

    threads = [threading.Thread(target=call, args=(con.cursor(),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert len(seen) == 4 and all(answer == seen[0] for answer in seen)
    assert len(charges(con)) == 1
    con.close()


VICTIM = """
import os, sys, duckdb, dpsql
from dpsql.answers import rehearsing  # reads too, before the charge, by the functions as they are now
from dpsql.estimates.measures import sensitivity
from dpsql.kinds.query import measure
from dpsql.release import store

con = duckdb.connect(sys.argv[1])
dpsql.load(con, progress=False)
plain = measure.reading.{place}
def last(*given):
    os.kill(os.getpid(), 9)
measure.reading.{place} = last
con.execute("FROM dp_query('{query}', epsilon := 1.0)")
"""


@pytest.mark.parametrize("place", ["counted", "released"])
def test_a_killed_process_has_paid_once(tmp_path: Path, place: str) -> None:
    """Killed between the charge and the answer: the books know, and the same question finishes without a second charge."""
    path = tmp_path / "shop.duckdb"
    con = duckdb.connect(str(path))
    make_sales(con)
    dpsql.load(con, progress=False)
    protect_sales(con)
    con.close()
    shutil.copy(path, tmp_path / "copy.duckdb")
    code = VICTIM.format(place=place, query=BOUGHT)
    ended = subprocess.run([sys.executable, "-P", "-c", code, str(path)], check=False, env=os.environ, capture_output=True)
    assert ended.returncode == -signal.SIGKILL, ended.stderr[-500:]
    con = duckdb.connect(str(path))
    dpsql.load(con, progress=False)
    assert len(charges(con)) == 1
    assert con.execute("SELECT bool_and(chain_holds) FROM dp_ledger()").fetchone() == (True,)
    assert len(ask(con, BOUGHT)) == 4
    assert len(charges(con)) == 1
    con.close()
