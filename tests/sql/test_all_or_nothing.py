"""A call of several releases is charged as a whole or not at all; one question asked at once in several spellings is bought once."""

from __future__ import annotations

import threading

import duckdb
import pytest

import dpsql
from dpsql.purchase import uses

pytestmark = pytest.mark.any_duckdb

CUBE = "SELECT a, b, count(*) AS n FROM t GROUP BY CUBE (a, b)"
JOINED = """WITH x AS (SELECT a, count(*) AS n FROM t GROUP BY a), y AS (SELECT b, count(*) AS m FROM t WHERE a > 0 GROUP BY b)
    SELECT * FROM x JOIN y ON a = b"""
UNION = "SELECT a, count(*) AS n FROM t GROUP BY a UNION ALL SELECT b, count(*) AS m FROM t WHERE a > 0 GROUP BY b"
LARGEST = "SELECT a, count(*) AS n FROM t WHERE a IN (SELECT a FROM t GROUP BY a ORDER BY count(*) DESC LIMIT 2) GROUP BY a"
ADAPTIVE = "SELECT a, count(*) AS n FROM t WHERE c > (SELECT avg(c) FROM t) GROUP BY a"


def protected(accountant="basic", budget=1.0):
    con = duckdb.connect()
    con.execute("CREATE TABLE t AS SELECT i // 2 AS p, i % 3 AS a, i % 5 AS b, i % 50 AS c FROM range(1000) r(i)")
    dpsql.load(con, progress=False)
    con.execute(
        f"CALL dp_protect('t', epsilon := {budget}, delta := 1e-6, accountant := '{accountant}', privacy_unit := 'p', max_contributions := 20)"
    )
    con.execute("CALL dp_declare('t', 'a', categories := [0, 1, 2], nullable := false)")
    con.execute("CALL dp_declare('t', 'b', categories := [0, 1, 2, 3, 4], nullable := false)")
    con.execute("CALL dp_declare('t', 'c', lower := 0, upper := 50, nullable := false)")
    return con


def charges(con):
    return con.execute("SELECT count(*) FROM dp_ledger() WHERE action = 'charge'").fetchone()[0]


@pytest.mark.parametrize(
    ("text", "more"),
    [
        (CUBE, ", mechanism := 'laplace'"),
        (CUBE.replace("CUBE", "ROLLUP"), ", mechanism := 'laplace'"),
        (JOINED, ", mechanism := 'laplace'"),
        (UNION, ", mechanism := 'laplace'"),
        (LARGEST, ", mechanism := 'laplace'"),
        (ADAPTIVE, ", mechanism := 'laplace', adaptive := true"),
        (CUBE, ", max_rows := 'auto', mechanism := 'laplace'"),
    ],
)
def test_what_costs_more_than_is_left_is_not_charged_in_part(text, more):
    with protected() as con:
        with pytest.raises(duckdb.Error, match="costs epsilon = 1.01, 1 is left; nothing was charged"):
            con.execute(f"FROM dp_query($${text}$$, epsilon := 1.01{more})").fetchall()
        assert charges(con) == 0
        con.execute(f"FROM dp_query($${text}$$, epsilon := 1{more})").fetchall()
        assert charges(con) > 1


@pytest.mark.parametrize("text", [CUBE, JOINED])
def test_rho_is_added_up_as_it_is_charged(text):
    with protected("zcdp") as con:
        with pytest.raises(duckdb.Error, match=r"costs rho = 0\.0285\d+, 0\.0279\d+ is left; nothing was charged"):
            con.execute(f"FROM dp_query($${text}$$, epsilon := 1.01)").fetchall()
        assert charges(con) == 0


def test_delta_is_added_up():
    with protected() as con:
        with pytest.raises(duckdb.Error, match="costs delta = 1.2e-06, 1e-06 is left; nothing was charged"):
            con.execute(f"FROM dp_query($${CUBE}$$, epsilon := 0.5, delta := 3e-7)").fetchall()
        assert charges(con) == 0


def test_what_is_there_is_not_counted():
    """Of four releases that cost .25 each two were bought before."""
    with protected() as con:
        con.execute("FROM dp_query('SELECT a, b, count(*) AS n FROM t GROUP BY a, b', epsilon := 0.25, mechanism := 'laplace')").fetchall()
        con.execute("FROM dp_query('SELECT a, count(*) AS n FROM t GROUP BY a', epsilon := 0.25, mechanism := 'laplace')").fetchall()
        con.execute(f"FROM dp_query($${CUBE}$$, epsilon := 1, mechanism := 'laplace')").fetchall()
        assert charges(con) == 4


def test_a_refusal_after_a_purchase_says_so(monkeypatch):
    """As where another session buys between the look at the whole and the last part."""
    monkeypatch.setattr(uses, "check_together", lambda *_: None)
    with protected() as con:
        said = "nothing more was charged.* 3 releases were bought before that and are kept: asked again they are free"
        with pytest.raises(duckdb.Error, match=said):
            con.execute(f"FROM dp_query($${CUBE}$$, epsilon := 1.01, mechanism := 'laplace')").fetchall()
        assert charges(con) == 3


def spellings(number):
    return [
        f"SELECT a, count(*) AS n FROM t WHERE c < {number} GROUP BY a",
        f"SELECT t.a, count(*) AS n FROM t WHERE t.c <= {number - 1} GROUP BY t.a",
        f"SELECT a, count(*) AS n, 2 * count(*) AS m FROM t WHERE {number} > c GROUP BY 1",
    ]


@pytest.mark.parametrize("more", ["", ", max_rows := 'auto'"])
def test_one_question_in_several_spellings_at_once_is_bought_once(more):
    with protected("zcdp", budget=1000) as con:
        for number in range(20, 26):
            before, barrier, answers = charges(con), threading.Barrier(3), [None] * 3
            cursors = [con.cursor() for _ in answers]

            def ask(place, number=number, barrier=barrier, cursors=cursors, answers=answers):
                barrier.wait()
                text = spellings(number)[place]
                answers[place] = sorted(row[:2] for row in cursors[place].execute(f"FROM dp_query(?, epsilon := 0.5{more})", [text]).fetchall())

            threads = [threading.Thread(target=ask, args=(place,)) for place in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert answers[0] is not None and answers[0] == answers[1] == answers[2]
            assert charges(con) - before == (2 if more else 1)
