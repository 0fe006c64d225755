"""A ledger that somebody wrote into by hand: every call gives an answer that says so, or an error that does, and nothing is sold."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Sequence

import duckdb
import pytest
from case_counts import cases
from pairwise import WHOLE
from sample_tables import make_people, protect_people

import dpsql
from dpsql.books.entries import FIELDS

pytestmark = pytest.mark.any_duckdb

CALLS = (
    "FROM dp_budget()",
    "FROM dp_budget('people')",
    "FROM dp_ledger()",
    "FROM dp_releases()",
    "FROM dp_plan('people', columns := ['sex'], k := 1, epsilon := 0.1)",
    "FROM dp_domain('people')",
    "FROM dp_dummy('people', rows := 9)",
    "FROM dp_sample('people-synthesize-s-0')",
    "CALL dp_protect('people', epsilon := 7)",
    "CALL dp_protect('people', resume := true)",
)
BUY = "FROM dp_marginals('people', columns := ['sex'], epsilon := 0.1, release := 'another')"
VALUES = (
    "NULL", "0", "-1", "1", "1e30", "''", "'x'", "'{}'", "'[]'", "'null'", "'NaN'", "'[{}]'", "'\"x\"'", "'[[[[[[1]]]]]]'",
    "'{\"anchor\": 5}'", "'{\"epsilon\": NaN}'", "'[{\"event\": \"pure\", \"epsilon\": \"1e999999999\", \"count\": 1}]'", "repeat('[', 100000)",
    "'[{\"event\": \"gaussian\", \"sigma\": \"1\", \"l2_sensitivity\": 1e308, \"count\": 1}]'", "repeat('9', 5000)", "'infinity'", "'basic'",
    "'protect'", "'refund'", "'charge'", "'fail'", "'resume'", "'anchor'", "'store'", "'0001-01-01 (BC)'", "chr(0)",
)
KNOWN = ("was edited", "cannot be read", "chain of hashes", "no such release", "anchor", "is not protected", "below what", "do not add up",
         "no privacy budget", "has no budget", "dp_protect", "was not made", "damaged", "plan cannot be read")


@pytest.fixture(scope="module")
def books():
    con = duckdb.connect()
    make_people(con, 100)
    dpsql.load(con)
    protect_people(con)
    for release in "ab":
        con.execute(f"FROM dp_marginals('people', columns := ['sex'], epsilon := 0.1, release := '{release}')")
    con.execute("CREATE TABLE kept AS FROM dpsql.ledger")
    yield con
    con.close()


def loosened(con: duckdb.DuckDBPyConnection, statements: list[str]) -> None:
    """Put the ledger back without its constraints, then edit it."""
    con.execute("DROP VIEW IF EXISTS dpsql.budgets; DROP VIEW IF EXISTS dpsql.releases; DROP VIEW IF EXISTS dpsql.chain")
    con.execute("CREATE OR REPLACE TABLE dpsql.ledger AS FROM kept")
    for statement in statements:
        with contextlib.suppress(duckdb.Error):  # not every value goes into every column
            con.execute(statement)


def check(con: duckdb.DuckDBPyConnection, edits: list[str], calls: Sequence[str] = CALLS) -> None:
    changed = con.execute("SELECT count(*) FROM (FROM kept EXCEPT ALL FROM dpsql.ledger)").fetchone()[0] if typed(con) else 1
    changed += con.execute("SELECT abs((SELECT count(*) FROM kept) - (SELECT count(*) FROM dpsql.ledger))").fetchone()[0]
    texts = []
    for call in calls:
        try:
            con.execute(call).fetchall()
        except duckdb.Error as error:
            text = str(error)
            assert "Error: " in text
            assert any(known in text for known in KNOWN), (edits, call, text)
            assert "Traceback" not in text, (edits, call)
            texts.append(text)
    if not changed:
        return
    with pytest.raises(duckdb.Error) as caught:
        con.execute(BUY)
    assert any(known in str(caught.value) for known in KNOWN), (edits, str(caught.value))


def typed(con: duckdb.DuckDBPyConnection) -> bool:
    try:
        con.execute("FROM kept EXCEPT ALL FROM dpsql.ledger LIMIT 0")
    except duckdb.Error:
        return False
    return True


@pytest.mark.parametrize("column", FIELDS)
def test_any_value_in_any_column(books, column):
    place = list(FIELDS).index(column)
    for number in range(min(cases(2), 4)):  # each value comes to stand in some column, in several when thorough
        value = VALUES[(place + number * 21) % len(VALUES)]
        edits = [f"UPDATE dpsql.ledger SET {column} = {value} WHERE entry = {1 + (place + number) % 4}"]
        loosened(books, edits)
        check(books, edits, CALLS if WHOLE else CALLS[(place + number) % 2 :: 2])  # every call on every column


def test_random_edits(books):
    rng = random.Random(20261122)
    names = [*FIELDS, "hash"]
    for _ in range(cases(12)):
        edits = []
        for _ in range(rng.randint(1, 3)):
            column, entry = rng.choice(names), rng.randint(1, 5)
            edits.append(
                rng.choice(
                    [
                        f"UPDATE dpsql.ledger SET {column} = {rng.choice(VALUES)} WHERE entry = {entry}",
                        f"UPDATE dpsql.ledger SET {column} = (SELECT {column} FROM kept WHERE entry = {rng.randint(1, 5)}) WHERE entry = {entry}",
                        f"DELETE FROM dpsql.ledger WHERE entry = {rng.randint(1, 4)}",
                        f"INSERT INTO dpsql.ledger FROM kept WHERE entry = {entry}",
                        f"ALTER TABLE dpsql.ledger ALTER {column} TYPE {rng.choice(['VARCHAR', 'DOUBLE', 'BLOB', 'VARCHAR[]', 'BIGINT'])}",
                        f"ALTER TABLE dpsql.ledger DROP {column}",
                        f"ALTER TABLE dpsql.ledger RENAME {column} TO other",
                        f"UPDATE dpsql.ledger SET entry = {6} - entry",
                        f"UPDATE dpsql.ledger SET source = 'main.other' WHERE entry = {entry}",
                    ]
                )
            )
        loosened(books, edits)
        check(books, edits)


def test_the_budget_says_what_is_wrong(con):
    con.execute("FROM dp_marginals('people', columns := ['sex'], epsilon := 0.1)")
    con.execute("UPDATE dpsql.ledger SET epsilon = 0")
    row = con.execute("SELECT source, epsilon, chain_holds, books FROM dp_budget()").fetchone()
    assert row[:3] == ("main.people", None, False)
    assert "was edited: its chain of hashes does not hold" in row[3]
    assert "the ledger was edited" in con.execute("SELECT notes FROM dp_releases()").fetchone()[0][-1]
    assert con.execute("SELECT bool_or(chain_holds), count(*) FROM dp_ledger()").fetchone() == (False, 3)


def test_a_table_whose_budget_was_deleted_does_not_look_public(con):
    con.execute("FROM dp_marginals('people', columns := ['sex'], epsilon := 0.1)")
    con.execute("CREATE TABLE own AS SELECT 1 AS person, true AS b")
    con.execute("CALL dp_protect('own', epsilon := 1, delta := 1e-9)")
    con.execute("DELETE FROM dpsql.ledger WHERE source = 'main.people' AND action = 'protect'")
    for call in (
        "CALL dp_protect('people', epsilon := 50, delta := 1e-9)",
        "FROM dp_marginals('people', columns := ['sex'], epsilon := 0.1, release := 'b')",
        "FROM dp_marginals('SELECT o.b FROM own o JOIN people p ON o.person = p.person', columns := ['b'], epsilon := 0.1)",
        "CALL dp_declare('own', 'person', categories_from := 'people.person')",
    ):
        with pytest.raises(duckdb.Error, match="was edited|that table is protected"):
            con.execute(call)


def test_functions_of_the_database_cannot_stand_in_for_the_chain(con):
    con.execute("FROM dp_marginals('people', columns := ['sex'], epsilon := 0.1)")
    for macro in ("sha256(a) AS 'x'", "bool_and(a) AS true", "concat(a) AS 'x'", "strlen(a) AS 1", "lag(a) AS a", "arg_max(a, b) AS a"):
        con.execute(f"CREATE OR REPLACE MACRO {macro}")
    assert con.execute("SELECT chain_holds FROM dp_budget()").fetchone() == (True,)
    con.execute("UPDATE dpsql.ledger SET who = 'x' WHERE entry = 2")
    assert con.execute("SELECT chain_holds FROM dp_budget()").fetchone() == (False,)
