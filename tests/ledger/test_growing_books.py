"""A call takes as long after thousands of releases as after a few, and counts what a reader of the whole book counts."""

from __future__ import annotations

import itertools
import random
from decimal import Decimal
from typing import Any

import duckdb
import pytest
from long_books import extend, releases
from sample_tables import make_people, protect_people

import dpsql
from dpsql.accounting import Charges
from dpsql.answers import held
from dpsql.books import book, chain
from dpsql.books.ledger import Ledger
from dpsql.books.schema import Books
from dpsql.errors import BudgetExceeded, LedgerError
from dpsql.text.bounded_json import load

pytestmark = pytest.mark.any_duckdb


@pytest.fixture
def con():
    with duckdb.connect() as connection:
        make_people(connection, 50)
        dpsql.load(connection, progress=False)
        protect_people(connection)
        connection.execute("FROM dp_marginals('people', columns := ['sex'], epsilon := 0.001, release := 'first')")
        yield connection


def ledger(con: duckdb.DuckDBPyConnection) -> Ledger:
    return Ledger(Books(con.cursor(), "memory"), "main.people", "tester")


def counted(con: duckdb.DuckDBPyConnection) -> tuple[dict[str, Any], Charges]:
    found = ledger(con)
    return found.charged(), found.charges()


@pytest.mark.parametrize("seed", range(4))
def test_what_is_read_in_parts_is_what_is_read_as_a_whole(con, seed, monkeypatch):
    """Charges, refunds and repeated names, read after every few of them: never another sum than that of the whole book."""
    draw = random.Random(seed)
    for _ in range(12):
        entries = [
            {
                "action": draw.choice(["charge", "charge", "refund", "store"]), "release": f"r{draw.randrange(8)}",
                "epsilon": Decimal(draw.randrange(1, 99)) / 1000, "rho": Decimal(draw.randrange(1, 99)) / 10**6,
            }
            for _ in range(draw.randrange(4))
        ]
        extend(con, "main.people", entries) if entries else None
        parts = counted(con)
        monkeypatch.setattr(chain, "_known", {})
        assert counted(con) == parts
        each = parts[1]
        assert (each.cost, each.epsilon, each.delta) == tuple(getattr(Charges(tuple(each)), name) for name in ("cost", "epsilon", "delta"))
        assert ledger(con).condition() == "intact"


def test_a_long_book_is_read_once(con, monkeypatch):
    """Entries that are read, hashed and added up by each call: those that are new."""
    extend(con, "main.people", releases(300))
    read: list[str] = []
    charge_of = book.charge_from_row
    monkeypatch.setattr(book, "charge_from_row", lambda *row: read.append("charge") or charge_of(*row))
    follows = book.follows
    monkeypatch.setattr(book, "follows", lambda source, entries, after: read.extend(["entry"] * len(entries)) or follows(source, entries, after))
    call = "FROM dp_marginals('people', columns := ['sex'], epsilon := 0.001, release := 'new {}')"
    con.execute(call.format("first"))
    assert read.count("charge") == 301  # all, once
    for name in "abc":
        read.clear()
        con.execute(call.format(name))
        assert 0 < read.count("charge") <= 2
        assert 0 < read.count("entry") <= 6
    assert ledger(con).condition() == "intact"


def test_tables_that_were_bought_are_looked_through_where_they_may_answer(con, monkeypatch):
    """Parameters of stored releases that a query reads: those of the tables for counts of all rows alone."""
    extend(con, "main.people", releases(50))
    read: list[str] = []
    monkeypatch.setattr(held, "load", lambda text: read.append(text) or load(text))
    con.execute("FROM dp_query('SELECT avg(age) FROM people', epsilon := 0.01)")
    assert read == []
    con.execute("FROM dp_query('SELECT region, count(*) FROM people GROUP BY region', epsilon := 0.01)")
    assert len(read) == 52  # and the answer before, which is of the same rows


@pytest.mark.parametrize("long", [False, True])
def test_the_limit_holds_whichever_way_a_book_is_read(con, monkeypatch, long):
    monkeypatch.setattr(chain, "MOST_AT_ONCE", 0 if long else chain.MOST_AT_ONCE)
    extend(con, "main.people", [{"action": "charge", "release": "dear", "rho": Decimal(1000), "epsilon": Decimal(50)}])
    with pytest.raises(BudgetExceeded, match="budget of main.people exceeded"):
        dpsql.marginals(con, "people", columns=["sex"], epsilon=0.001, release="more")
    extend(con, "main.people", [{"action": "refund", "release": "dear"}])
    dpsql.marginals(con, "people", columns=["sex"], epsilon=0.001, release="more")


@pytest.mark.parametrize("column", ["rho", "events", "plan", "parameters", "query", "release"])
def test_a_change_in_a_long_book_that_was_read_is_found(con, column):
    extend(con, "main.people", [{"action": "charge", "release": f"r{i}"} for i in range(40)])
    ledger(con).check_intact()
    con.execute(f"UPDATE dpsql.ledger SET {column} = {'rho / 2' if column == 'rho' else f'{column} || chr(32)'} WHERE entry = 20")
    for call in itertools.repeat("FROM dp_marginals('people', columns := ['sex'], epsilon := 0.001, release := 'x')", 2):
        with pytest.raises(duckdb.Error, match="was edited"):
            con.execute(call)
    with pytest.raises(LedgerError, match="was edited"):
        ledger(con).check_intact()
