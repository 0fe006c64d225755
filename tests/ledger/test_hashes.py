"""The hashes of the ledger in Python are those of the shipped SQL, entry by entry and for every edit of a column."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal

import duckdb
import pytest
from prepared import copied
from sample_tables import make_people, protect_people

import dpsql
from dpsql import sql
from dpsql.books import chain
from dpsql.books.entries import FIELDS
from dpsql.books.hashes import TEXTS, entry_hash, shown, stored
from dpsql.books.ledger import Ledger
from dpsql.books.schema import Books
from dpsql.errors import LedgerError

pytestmark = pytest.mark.any_duckdb

EDITS = (
    *(f"UPDATE dpsql.ledger SET {name} = NULL WHERE entry = 2" for name in FIELDS if name not in ("source", "entry", "privacy_unit", "contents")),
    *(
        f"UPDATE dpsql.ledger SET {name} = {name}{more} WHERE entry = 2"
        for name, more in {"written_at": " + INTERVAL 1 MICROSECOND", "rho": " + 0.000000000000000000000001",
                           "epsilon": " - 0.000000000000000000000001", "delta": " + 1", "max_contributions": " + 1"}.items()
    ),
    *(f"UPDATE dpsql.ledger SET {name} = {name} || 'é' WHERE entry = 2" for name in ("who", "action", "release", "plan", "hash", "previous")),
    "UPDATE dpsql.ledger SET contents = '' WHERE entry = 2",
    "DELETE FROM dpsql.ledger WHERE entry = 1",
    "DELETE FROM dpsql.ledger WHERE entry = 2",
    "UPDATE dpsql.ledger SET entry = 17 WHERE entry = 3",
    "UPDATE dpsql.ledger SET who = chr(0) || who WHERE entry = 3",
    "ALTER TABLE dpsql.ledger ALTER epsilon TYPE DOUBLE",
    "ALTER TABLE dpsql.ledger ALTER written_at TYPE TIMESTAMP_NS; UPDATE dpsql.ledger SET written_at = '2026-01-01 00:00:00.000000001'",
    "ALTER TABLE dpsql.ledger ALTER rho TYPE DECIMAL(38, 25)",
    "ALTER TABLE dpsql.ledger DROP plan",
)


WHO = 'Zoë "the" custodian'


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    path = tmp_path_factory.mktemp("made") / "book.duckdb"
    with duckdb.connect(str(path)) as connection:
        make_people(connection, 100)
        dpsql.load(connection, user=WHO)
        protect_people(connection)
        for release in ("a", "ß"):
            connection.execute(f"FROM dp_marginals('people', columns := ['sex'], epsilon := 0.1, release := '{release}')")
    return path


@pytest.fixture
def con(made, tmp_path):
    with copied(made, tmp_path, user=WHO) as connection:
        yield connection


def ledger(con: duckdb.DuckDBPyConnection) -> Ledger:
    return Ledger(Books(con.cursor(), "book"), "main.people", "tester")


def test_every_hash_is_that_of_the_shipped_sql(con):
    listed = ", ".join(f"{name}::VARCHAR" for name in FIELDS)
    rows = con.execute(f"SELECT {listed}, hash, {sql.text('entry_hash')} FROM dpsql.ledger ORDER BY entry ASC").fetchall()
    assert len(rows) > 4
    for *texts, held, computed in rows:
        assert entry_hash(dict(zip(FIELDS, texts, strict=True))) == computed == held
    assert set(TEXTS) == {name for name, kind in FIELDS.items() if kind != "VARCHAR"}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_is_noticed_by_both(con, edit, monkeypatch):
    found = ledger(con)
    with found.whole():
        assert found._book is not None
        assert found.chain_holds()
    con.execute("DROP VIEW dpsql.budgets; DROP VIEW dpsql.releases; DROP VIEW dpsql.chain")
    con.execute("CREATE TABLE kept AS FROM dpsql.ledger; DROP TABLE dpsql.ledger; CREATE TABLE dpsql.ledger AS FROM kept")
    con.execute(edit)
    for most in (chain.MOST_AT_ONCE, 0):  # read at once, and left to DuckDB
        monkeypatch.setattr(chain, "MOST_AT_ONCE", most)
        with pytest.raises(LedgerError):
            ledger(con).check_intact()


def test_a_long_book_says_the_same(con, monkeypatch):
    short, long = [], []
    for most, said in ((chain.MOST_AT_ONCE, short), (0, long)):
        monkeypatch.setattr(chain, "MOST_AT_ONCE", most)
        found = ledger(con)
        with found.whole():
            assert found._book is not None
            releases = [name for (name,) in con.execute("SELECT DISTINCT release FROM dpsql.releases ORDER BY 1").fetchall()]
            said += [found.protection(), found.charges(), found.stopped(), found.anchor(), found._last(), found.chain_holds()]
            said += [found.purchase(name) for name in [*releases, "none"]]
    assert short == long
    con.execute("FROM dp_marginals('people', columns := ['sex'], epsilon := 0.1, release := 'bought of a long book')")
    monkeypatch.undo()
    ledger(con).check_intact()
    assert ledger(con)._last()[0] == long[4][0] + 2


def test_values_are_shown_as_duckdb_shows_them():
    """Of every type, at many lengths: what Python says an entry will hold is what DuckDB holds and writes."""
    draw = random.Random(1)
    given: list[tuple[str, object]] = [("INTEGER", n) for n in (0, -1, 2**31 - 1, -(2**31), None)]
    for _ in range(300):
        micro = draw.randrange(10**9) * 10 ** draw.randrange(7) + draw.randrange(2)
        given.append(("TIMESTAMP", dt.datetime(draw.randrange(1, 9000), 2, 28) + dt.timedelta(microseconds=micro)))
        number = Decimal(draw.randrange(-(10**14), 10**14)) / 10 ** draw.randrange(14)
        given += [("DECIMAL(38,24)", number), ("DECIMAL(38,37)", Decimal(draw.randrange(10**15)).scaleb(-draw.randrange(15, 37)))]
    given += [("DECIMAL(38,24)", Decimal(text)) for text in ("0", "1e-24", "12345678901234", "0.50", "1E+3")] + [("DECIMAL(38,37)", None)]
    con = duckdb.connect()
    for kind, value in given:
        asked = str(value) if isinstance(value, Decimal) else value
        held, text = con.execute(f"SELECT v, v::VARCHAR FROM (SELECT ?::{kind} AS v)", [asked]).fetchone()
        assert shown(stored(value, kind)) == shown(held) == text, (kind, value)
    con.close()


@pytest.mark.parametrize(("value", "kind"), [(Decimal("1e-25"), "DECIMAL(38,24)"), (Decimal(10**14), "DECIMAL(38,24)"), (0.5, "DECIMAL(38,24)"),
                                             (Decimal("NaN"), "DECIMAL(38,24)"), (True, "INTEGER"), ("1", "INTEGER"),
                                             (dt.datetime(2026, 1, 1, tzinfo=dt.UTC), "TIMESTAMP")])
def test_what_would_be_converted_is_left_to_duckdb(value, kind):
    with pytest.raises(ValueError, match=r"."):
        stored(value, kind)
