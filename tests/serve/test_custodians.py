"""Custodians over the wire: the ledger names them, errors are plain texts, their calls have a limit."""

import threading
import time

import duckdb
import pytest
from serve.conftest import until

import dpsql

pytestmark = pytest.mark.serve


def test_the_ledger_names_the_custodian_whose_token_it_is(served):
    from dpsql.serve import tokens

    served.tokens = {**served.tokens, "dora": tokens.add(served.folder / "analysts.toml", "dora", custodian=True)}
    found = {}

    def work(name):
        client = served.client(name)
        for number in range(6):
            (entry,) = client.ask(f"CALL dp_grant('adult', analyst := 'of_{name}', epsilon := {number + 1})")
            found.setdefault(name, []).append(entry)

    threads = [threading.Thread(target=work, args=(name,)) for name in ("carl", "dora")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert {name: len(rows) for name, rows in found.items()} == {"carl": 6, "dora": 6}
    served.client().ask("SELECT count(*) FROM adult WHERE age < 30")
    served.client("carl").ask("CREATE TABLE mine AS FROM dp_query('SELECT count(*) AS n FROM adult', epsilon := 0.1)")
    seen = served.client("carl").ask("SELECT who, action, parameters FROM dp_ledger('adult') WHERE entry > 3")
    grants = [(who, said) for who, action, said in seen if action == "grant"]
    assert len(grants) == 12 and all(f"of_{who.removeprefix('custodian:')}" in said for who, said in grants)
    charges = [who for who, action, _ in seen if action in ("charge", "store")]
    assert charges == ["analyst:alice"] * 2 + ["custodian:carl"] * 2
    assert served.stop() == 0
    assert served.books("SELECT DISTINCT who FROM dp_ledger('adult') WHERE entry <= 3") == [("tester",)]
    assert served.books("SELECT books FROM dp_budget('adult')") == [("intact",)]


def test_what_a_call_says_comes_without_words_around_it(served):
    carl = served.client("carl")
    for statement, told in (
        ("SELECT n FROM dp_query('SELECT count(*) AS n FROM adult', epsilon := -1)", "Invalid Input Error: epsilon = -1:"),
        ("CALL dp_protect('nowhere', epsilon := 1, delta := 0)", "Invalid Input Error: "),
        ("CREATE TABLE t AS FROM dp_query('SELECT * FROM adult', epsilon := 1)", "Invalid Input Error: "),
        ("SELECT x, n FROM dp_budget('raw'), range(3) t(x) WHERE y = n", "Invalid Input Error: "),
    ):
        said = carl.refusal(statement)
        assert said.startswith(told) and "Python" not in said and "UDF" not in said and ".py" not in said, said
    assert carl.ask("SELECT releases FROM dp_budget('adult')") == [(0,)]
    assert carl.ask("SELECT secret FROM raw") == [(424242,)]


def test_a_call_of_a_custodian_stops_at_its_limit_and_the_books_are_true(new_served):
    served = new_served("--custodian-time-limit", "1")
    carl = served.client("carl")
    carl.ask("CREATE TABLE wide AS SELECT " + ", ".join(f"(i * {7 + n}) % 11 AS c{n}" for n in range(12)) + " FROM range(300000) t(i)")
    carl.ask("CALL dp_protect('wide', epsilon := 10, delta := 1e-6)")
    for number in range(12):
        carl.ask(f"CALL dp_declare('wide', 'c{number}', lower := 0, upper := 11, bins := 11, nullable := false)")
    begun = time.monotonic()
    told = carl.refusal("SELECT count(*) AS n FROM dp_synthesize('wide', epsilon := 1.0, rows := 300)")
    assert "stopped after 1 seconds" in told and time.monotonic() - begun < 20
    assert until(lambda: carl.ask("SELECT books FROM dp_budget('wide')") == [("intact",)])
    assert served.client().ask("SELECT count(*) FROM big") == [(200_000,)]
    assert served.stop() == 0
    assert served.books("SELECT books, releases <= 1 FROM dp_budget('wide')") == [("intact", True)]


def test_transactions_and_variables_of_a_custodian_are_her_session_s_own(served):
    carl = served.client("carl")
    carl.ask("BEGIN")
    assert carl.refusal("INSERT INTO raw SELECT 'no number'")
    assert carl.refusal("SELECT epsilon FROM dp_budget('adult')")  # the transaction has failed
    carl.ask("ROLLBACK")
    carl.ask("SET VARIABLE bound = 3")
    assert carl.ask("SELECT getvariable('bound'), epsilon FROM dp_budget('adult')") == [(3, 100.0)]
    carl.ask("SET VARIABLE dpsql_caller = 'custodian:dora'")
    carl.ask("SET VARIABLE dpsql_caller = 'dora'; CALL dp_grant('adult', analyst := 'eve', epsilon := 1)")
    carl.ask("CALL dp_grant('adult', analyst := 'fay', epsilon := 1)")
    assert carl.ask("SELECT who FROM dp_ledger('adult') ORDER BY entry DESC LIMIT 2") == [("custodian:carl",), ("custodian",)]


def test_rows_are_appended_to_a_table_whatever_its_name(served):
    served.client("carl").ask("CREATE TABLE dp_notes (x BIGINT)")
    carl = served.client("carl")  # sees it in the catalogue
    carl.con.execute("INSERT INTO c.dp_notes VALUES (7), (8)")
    assert carl.con.execute("SELECT sum(x) FROM c.dp_notes").fetchall() == [(15,)]
    assert carl.ask("SELECT sum(x) FROM dp_notes") == [(15,)]


UNBOUND = (
    "CREATE SEQUENCE s; CREATE TABLE t0 (a INT DEFAULT nextval('s'), k INT DEFAULT 7, CHECK (k > 1))",
    "CREATE MACRO twice(x) AS x * 2; CREATE TABLE t1 (a INT, k INT DEFAULT (twice(3)))",
    "CREATE TABLE t2 (a INT, k INT GENERATED ALWAYS AS (twice(a)))",
    "CREATE TABLE t3 (a INT CHECK (twice(a) > 2), k INT)",
    "CREATE TABLE zz (id INT PRIMARY KEY); CREATE TABLE t4 (a INT REFERENCES zz(id), k INT)",
    "CREATE TABLE t5 (a INT, k TIMESTAMP DEFAULT current_timestamp, u UUID DEFAULT uuid(), v INT DEFAULT getvariable('x'))",
    "CREATE TYPE mood AS ENUM ('calm'); CREATE TABLE t6 (a INT, k mood DEFAULT 'calm', \"o\"\"dd\" DATE DEFAULT DATE '2020-01-01')",
)


def test_no_table_keeps_a_custodian_or_an_analyst_from_attaching(served):
    first = served.client("carl")
    for statement in UNBOUND:
        first.ask(statement)
    carl = served.client("carl").con
    for number in range(len(UNBOUND)):
        assert carl.execute(f"SELECT count(k) FROM c.t{number}").fetchall() == [(0,)]
    for number, column in ((0, "k"), (1, "a"), (2, "a"), (5, "a")):  # NULL would stand for what only the server knows
        with pytest.raises(duckdb.Error, match="only the server knows"):
            carl.execute(f"INSERT INTO c.t{number}({column}) VALUES (5)")
    for statement in ("INSERT INTO c.t0 VALUES (1, 0)", "INSERT INTO c.t3 VALUES (1, 0)", "INSERT INTO c.t4 VALUES (1, 0)"):
        with pytest.raises(duckdb.Error, match="constraint"):
            carl.execute(statement)
    carl.execute("INSERT INTO c.t0(a) VALUES (9)")
    carl.execute("INSERT INTO c.t6(a) VALUES (1)")
    first.ask("INSERT INTO t0(k) VALUES (3)")
    assert first.ask("SELECT a, k FROM t0 ORDER BY a") == [(1, 3), (9, 7)]
    assert str(first.ask("SELECT * FROM t6")) == "[(1, 'calm', datetime.date(2020, 1, 1))]"
    first.ask("CALL dp_publish('t0')")
    assert served.client().con.execute("SELECT sum(k) FROM c.t0").fetchall() == [(10,)]
    with dpsql.connect(f"quack:localhost:{served.port}", token=served.tokens["carl"]) as con:
        assert con.sql("SELECT count(*) FROM t2").fetchall() == [(0,)]
