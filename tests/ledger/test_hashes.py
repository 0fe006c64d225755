"""The hashes of the ledger in Python are those of the shipped SQL, entry by entry and for every edit of a column."""

from __future__ import annotations

import duckdb
import pytest
from prepared import copied
from sample_tables import make_people, protect_people

import dpsql
from dpsql import sql
from dpsql.books import chain
from dpsql.books.entries import FIELDS
from dpsql.books.hashes import TEXTS, entry_hash
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
    for *texts, stored, computed in rows:
        assert entry_hash(dict(zip(FIELDS, texts, strict=True))) == computed == stored
    assert set(TEXTS) == {name for name, kind in FIELDS.items() if kind != "VARCHAR"}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_is_noticed_by_both(con, edit, monkeypatch):
    found = ledger(con)
    with found.whole():
        assert found._held is not None
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
            assert (found._held is None) == (most == 0)
            releases = [name for (name,) in con.execute("SELECT DISTINCT release FROM dpsql.releases ORDER BY 1").fetchall()]
            said += [found.protection(), found.charges(), found.stopped(), found.anchor(), found._last(), found.chain_holds()]
            said += [found.purchase(name) for name in [*releases, "none"]]
    assert short == long
    con.execute("FROM dp_marginals('people', columns := ['sex'], epsilon := 0.1, release := 'bought of a long book')")
    monkeypatch.undo()
    ledger(con).check_intact()
    assert ledger(con)._last()[0] == long[4][0] + 2
