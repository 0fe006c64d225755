"""A call takes as long after thousands of releases as after a few, and counts what a reader of the whole book counts."""

from __future__ import annotations

import datetime as dt
import itertools
import random
from decimal import Decimal
from typing import Any

import duckdb
import pytest
from sample_tables import make_people, protect_people

import dpsql
from dpsql.accounting import Charges
from dpsql.books import book, chain
from dpsql.books.entries import FIELDS
from dpsql.books.hashes import entry_hash, shown, stored
from dpsql.books.ledger import Ledger
from dpsql.books.schema import Books
from dpsql.errors import BudgetExceeded, LedgerError

pytestmark = pytest.mark.any_duckdb
NAMES = [*FIELDS, "hash"]


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


def extend(con: duckdb.DuckDBPyConnection, entries: list[dict[str, Any]]) -> None:
    """Append entries to the book as dpsql does, all of them at once; what is not said is as in its first charge."""
    rows = con.execute(f"SELECT {', '.join(NAMES)} FROM dpsql.ledger ORDER BY entry ASC").fetchall()
    first, last = (dict(zip(NAMES, row, strict=True)) for row in (next(row for row in rows if row[4] == "charge"), rows[-1]))
    number, previous, made = last["entry"], last["hash"], []
    for entry in entries:
        number += 1
        moment = dt.datetime(2026, 1, 1) + dt.timedelta(seconds=number)
        row = {**first, **entry, "entry": number, "previous": previous, "written_at": moment}
        previous = entry_hash({name: shown(stored(row[name], kind)) for name, kind in FIELDS.items()})
        made.append([*(str(row[name]) if isinstance(row[name], Decimal) else row[name] for name in FIELDS), previous])
    con.executemany(f"INSERT INTO dpsql.ledger VALUES ({', '.join('?' * len(NAMES))})", made)


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
        extend(con, entries) if entries else None
        parts = counted(con)
        monkeypatch.setattr(chain, "_known", {})
        assert counted(con) == parts
        each = parts[1]
        assert (each.cost, each.epsilon, each.delta) == tuple(getattr(Charges(tuple(each)), name) for name in ("cost", "epsilon", "delta"))
        assert ledger(con).condition() == "intact"


def test_a_long_book_is_read_once(con, monkeypatch):
    """Entries that are read, hashed and added up by each call: those that are new."""
    extend(con, [{"action": action, "release": f"r{i}"} for i in range(300) for action in ("charge", "store")])
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


@pytest.mark.parametrize("long", [False, True])
def test_the_limit_holds_whichever_way_a_book_is_read(con, monkeypatch, long):
    monkeypatch.setattr(chain, "MOST_AT_ONCE", 0 if long else chain.MOST_AT_ONCE)
    extend(con, [{"action": "charge", "release": "dear", "rho": Decimal(1000), "epsilon": Decimal(50)}])
    with pytest.raises(BudgetExceeded, match="budget of main.people exceeded"):
        dpsql.marginals(con, "people", columns=["sex"], epsilon=0.001, release="more")
    extend(con, [{"action": "refund", "release": "dear"}])
    dpsql.marginals(con, "people", columns=["sex"], epsilon=0.001, release="more")


@pytest.mark.parametrize("column", ["rho", "events", "plan", "parameters", "query", "release"])
def test_a_change_in_a_long_book_that_was_read_is_found(con, column):
    extend(con, [{"action": "charge", "release": f"r{i}"} for i in range(40)])
    ledger(con).check_intact()
    con.execute(f"UPDATE dpsql.ledger SET {column} = {'rho / 2' if column == 'rho' else f'{column} || chr(32)'} WHERE entry = 20")
    for call in itertools.repeat("FROM dp_marginals('people', columns := ['sex'], epsilon := 0.001, release := 'x')", 2):
        with pytest.raises(duckdb.Error, match="was edited"):
            con.execute(call)
    with pytest.raises(LedgerError, match="was edited"):
        ledger(con).check_intact()
