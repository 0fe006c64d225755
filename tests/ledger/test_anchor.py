"""A ledger that is cut, rewritten with new hashes or restored from a backup: the chain cannot tell, the anchor can."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import duckdb
import pytest
from sample_tables import DELTA, make_people, protect_people

import dpsql
from dpsql import sql
from dpsql.books import anchor as anchors
from dpsql.books.anchor import Anchor
from dpsql.books.ledger import Ledger
from dpsql.books.schema import Books
from dpsql.errors import LedgerError

pytestmark = pytest.mark.any_duckdb

CALL = "FROM dp_marginals('people', columns := ['sex'], epsilon := 0.5, release := '{}')"


def anchored(con: duckdb.DuckDBPyConnection, path: Path) -> None:
    con.execute(f"CALL dp_protect('people', epsilon := 5, delta := {DELTA}, anchor := '{path}')")


def refused(con: duckdb.DuckDBPyConnection, text: str) -> None:
    before = con.execute("SELECT count(*) FROM dpsql.ledger").fetchone()
    for call in (CALL.format("more"), f"CALL dp_protect('people', epsilon := 6, delta := {DELTA})"):
        with pytest.raises(duckdb.Error, match=text) as caught:
            con.execute(call)
        assert "anchor := 'a new file'" in str(caught.value)
    holds, books = con.execute("SELECT chain_holds, books FROM dp_budget()").fetchone()
    assert holds
    assert text in books
    assert con.execute("SELECT count(*) FROM dpsql.ledger").fetchone() == before


def rehash(con: duckdb.DuckDBPyConnection) -> None:
    """Compute all hashes anew, as anybody can who may write to the file."""
    for (entry,) in con.execute("SELECT entry FROM dpsql.ledger ORDER BY entry ASC").fetchall():
        if entry > 1:
            con.execute(
                "UPDATE dpsql.ledger SET previous = (SELECT hash FROM dpsql.ledger WHERE entry = ?) WHERE entry = ?", [entry - 1, entry]
            )
        con.execute(f"UPDATE dpsql.ledger SET hash = {sql.text('entry_hash')} WHERE entry = ?", [entry])


def test_every_entry_is_noted_before_and_after_it_is_written(con, tmp_path):
    path = tmp_path / "heads.anchor"
    anchored(con, path)
    con.execute(CALL.format("a"))
    rows = con.execute("SELECT entry, hash FROM dpsql.ledger ORDER BY entry ASC").fetchall()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["state"], line["entry"], line["hash"]) for line in lines] == [
        (state, entry, found) for entry, found in rows[1:] for state in ("intent", "written")
    ]
    assert {line["book"] for line in lines} == {rows[0][1]}
    assert con.execute("SELECT books, anchor FROM dp_budget()").fetchone() == ("intact", str(path))
    assert [a for (a,) in con.execute("SELECT action FROM dpsql.ledger ORDER BY entry ASC").fetchall()] == ["protect", "anchor", "charge", "store"]
    anchored(con, path)  # said again, nothing is written
    assert con.execute("SELECT count(*) FROM dpsql.ledger").fetchone() == (4,)


@pytest.mark.parametrize("lost", ["DELETE FROM dpsql.ledger", "DROP SCHEMA dpsql CASCADE"])
def test_a_budget_whose_book_is_gone_is_not_set_anew_under_its_anchor(con, tmp_path, lost):
    """Restored from before the first call: the same call would begin a book that nobody has spent of."""
    anchored(con, tmp_path / "a")
    con.execute(CALL.format("a"))
    con.execute(lost)
    for _ in range(2):
        with pytest.raises(duckdb.Error, match="that of another ledger of a table of this name"):
            anchored(con, tmp_path / "a")
        assert con.execute("SELECT count(*) FROM dpsql.ledger").fetchone() == (0,)
        with pytest.raises(duckdb.Error, match="has no privacy budget|not protected"):
            con.execute(CALL.format("b"))
    anchored(con, tmp_path / "new")
    assert con.execute("SELECT action FROM dpsql.ledger ORDER BY entry ASC").fetchall() == [("protect",), ("anchor",)]


def test_a_first_budget_without_the_anchor_that_it_names_is_none(con, tmp_path):
    con.execute("DROP SCHEMA dpsql CASCADE")
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "not there" / "a", tmp_path / "folder", Path("/proc/dpsql.anchor")):
        with pytest.raises(duckdb.Error, match="anchor"):
            anchored(con, path)
        with suppress(duckdb.CatalogException):  # there need be no books yet
            assert con.execute("SELECT count(*) FROM dpsql.ledger").fetchone() == (0,)


def test_a_table_that_another_session_protects_meanwhile_is_not_given_an_anchor_by_the_way(con, tmp_path, monkeypatch):
    ledger = Ledger(Books(con.cursor(), "people"), "main.people", "tester")
    held = ledger.standing()
    wanted = replace(held, budget=replace(held.budget, epsilon=Decimal(6)))
    seen = iter([None, held, held, held])  # nobody has protected it yet, when it is asked first
    monkeypatch.setattr(Ledger, "standing", lambda _: next(seen))
    with pytest.raises(LedgerError, match="was protected meanwhile; nothing was changed, repeat the call"):
        ledger.protect(wanted, tmp_path / "a")
    monkeypatch.undo()
    assert con.execute("SELECT action FROM dpsql.ledger").fetchall() == [("protect",)]
    assert not (tmp_path / "a").exists()
    con.execute(f"CALL dp_protect('people', epsilon := 6, delta := {DELTA}, anchor := '{tmp_path / 'a'}')")
    assert con.execute("SELECT action FROM dpsql.ledger ORDER BY entry ASC").fetchall() == [("protect",), ("anchor",), ("raise",)]


def test_a_ledger_whose_end_was_cut_sells_nothing(con, tmp_path):
    anchored(con, tmp_path / "a")
    con.execute(CALL.format("a"))
    con.execute("DELETE FROM dpsql.ledger WHERE entry > 2")
    assert con.execute("SELECT bool_and(chain_holds), max(entry) FROM dp_ledger()").fetchone() == (True, 2)  # the chain sees nothing
    refused(con, "its end was cut off")


def test_a_ledger_with_new_hashes_sells_nothing(con, tmp_path):
    anchored(con, tmp_path / "a")
    con.execute(CALL.format("a"))
    con.execute("UPDATE dpsql.ledger SET epsilon = 50 WHERE action = 'protect'")
    rehash(con)
    with pytest.raises(duckdb.Error, match="another ledger of a table of this name"):  # its first entry is another one
        con.execute(CALL.format("b"))


def test_an_entry_rewritten_with_new_hashes_sells_nothing(con, tmp_path):
    anchored(con, tmp_path / "a")
    con.execute(CALL.format("a"))
    con.execute("UPDATE dpsql.ledger SET rho = rho / 100, epsilon = epsilon / 10 WHERE action = 'charge'")
    rehash(con)
    refused(con, "is not the one that the anchor has seen")


def test_a_restored_backup_is_noticed_and_can_be_accepted_on_the_ledger(tmp_path):
    file, backup = tmp_path / "p.duckdb", tmp_path / "backup.duckdb"
    con = duckdb.connect(str(file))
    make_people(con)
    dpsql.load(con)
    protect_people(con)
    anchored(con, tmp_path / "first")
    con.execute(CALL.format("a"))
    con.close()
    shutil.copyfile(file, backup)
    con = duckdb.connect(str(file))
    dpsql.load(con)
    con.execute(CALL.format("b"))
    con.close()
    shutil.copyfile(backup, file)
    con = duckdb.connect(str(file))
    dpsql.load(con)
    refused(con, "restored from an older backup")
    anchored(con, tmp_path / "second")
    con.execute(CALL.format("c"))
    assert con.execute("SELECT books, anchor FROM dp_budget()").fetchone() == ("intact", str(tmp_path / "second"))
    (said,) = con.execute("SELECT parameters FROM dpsql.ledger WHERE action = 'anchor' ORDER BY entry DESC LIMIT 1").fetchone()
    assert json.loads(said) == {"anchor": str(tmp_path / "second"), "before": str(tmp_path / "first")}
    with pytest.raises(duckdb.Error, match="does not agree"):  # going back to the old one accepts nothing
        anchored(con, tmp_path / "first")
    con.close()


@pytest.mark.parametrize("broken", ["missing", "folder", "empty", "other"])
def test_an_anchor_that_is_not_there_stops_sales_and_says_the_way_out(con, tmp_path, broken):
    path = tmp_path / "a"
    anchored(con, path)
    con.execute(CALL.format("a"))
    path.unlink()
    if broken == "folder":
        path.mkdir()
    elif broken == "empty":
        path.touch()
    elif broken == "other":
        path.write_text("not an anchor\n{}\n[1]\n" + json.dumps({"state": "written"}) + "\n")
    refused(con, "cannot be read" if broken in ("missing", "folder") else "the file was replaced")
    con.execute(f"CALL dp_protect('people', anchor := '{tmp_path / 'new'}')")
    con.execute(CALL.format("b"))


def test_bought_releases_stay_readable_without_the_anchor(con, tmp_path):
    anchored(con, tmp_path / "a")
    first = con.execute(CALL.format("a")).fetchall()
    (tmp_path / "a").unlink()
    assert con.execute(CALL.format("a")).fetchall() == first


@pytest.mark.parametrize("moment", range(1, 9))
def test_a_crash_between_the_two_files_is_no_lock_out(con, charges, tmp_path, monkeypatch, moment):
    """Killed before or after any of the lines of a purchase: the same call finishes it, charged once."""
    path = tmp_path / "a"
    anchored(con, path)
    append, left = Anchor.append, [moment]

    class Killed(BaseException):
        pass

    def killing(self: Anchor, state: str, head: anchors.Head) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise Killed
        append(self, state, head)
        left[0] -= 1
        if left[0] == 0:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Anchor, "append", killing)
        with pytest.raises((Killed, duckdb.Error)):
            con.execute(CALL.format("a"))
    assert con.execute("SELECT books FROM dp_budget()").fetchone() == ("intact",)
    first = con.execute(CALL.format("a")).fetchall()
    assert len(first) == 3
    assert con.execute(CALL.format("a")).fetchall() == first
    assert charges() == 1
    con.execute(CALL.format("b"))
    assert con.execute("SELECT books FROM dp_budget()").fetchone() == ("intact",)


def test_half_a_line_that_a_crash_left_is_passed_over(con, tmp_path):
    path = tmp_path / "a"
    anchored(con, path)
    with path.open("a") as handle:
        handle.write('{"state": "writ')
    con.execute(CALL.format("a"))
    con.execute(CALL.format("b"))
    assert con.execute("SELECT books FROM dp_budget()").fetchone() == ("intact",)


def test_an_anchor_that_cannot_be_written_refuses_the_charge(con, charges, tmp_path, monkeypatch):
    anchored(con, tmp_path / "a")

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(duckdb.Error, match=r"anchor of main.people cannot be written.*No space left"):
            con.execute(CALL.format("a"))
    assert charges() == 0
    con.execute(CALL.format("a"))


def test_an_entry_by_somebody_who_does_not_know_the_anchor_is_noticed(con, tmp_path, monkeypatch):
    anchored(con, tmp_path / "a")
    with monkeypatch.context() as patch:
        patch.setattr(Anchor, "append", lambda *_: None)
        con.execute(CALL.format("a"))
    refused(con, "has never heard of entry 3")


@pytest.mark.parametrize("given", ["", "/", "/no/such/folder/a"])
def test_a_place_that_no_anchor_can_have_is_refused(con, given):
    with pytest.raises(duckdb.Error, match="anchor"):
        con.execute("CALL dp_protect('people', epsilon := 5, anchor := ?)", [given])


def test_tables_share_a_file_and_ledgers_of_one_name_do_not(con, tmp_path):
    path = tmp_path / "a"
    anchored(con, path)
    con.execute("CREATE TABLE other AS FROM people")
    con.execute(f"CALL dp_protect('other', epsilon := 5, delta := {DELTA}, anchor := '{path}')")
    con.execute(CALL.format("a"))
    con.execute("FROM dp_marginals('other', columns := ['sex'], epsilon := 0.5)")
    assert con.execute("SELECT books FROM dp_budget()").fetchall() == [("intact",), ("intact",)]
    again = duckdb.connect()
    make_people(again)
    dpsql.load(again)
    with pytest.raises(duckdb.Error, match="another ledger of a table of this name"):
        anchored(again, path)
    again.close()


def test_lines_of_others_are_no_lines(tmp_path):
    path = tmp_path / "a"
    path.write_text('{"state": "written", "source": "s", "book": "b", "entry": -1, "hash": "h", "at": "x"}\n[[[[\nnull\n{"entry": 1e999}\n')
    assert Anchor(path).lines("s") == []
    with pytest.raises(LedgerError, match="cannot be read"):
        Anchor(tmp_path / "none").lines("s")


@pytest.mark.parametrize("holding", ["notes of mine\n", "{}", '{"state": 1}\n', "\x00\x01binary"])
def test_a_file_of_others_is_no_anchor_and_stays_as_it_is(con, tmp_path, holding):
    precious = tmp_path / "precious.txt"
    precious.write_text(holding)
    with pytest.raises(duckdb.Error, match="holds other things"):
        anchored(con, precious)
    assert precious.read_text() == holding
    for path in tmp_path.glob("*.duckdb"):
        with pytest.raises(duckdb.Error, match="holds other things"):
            anchored(con, path)
    anchored(con, tmp_path / "anchor.jsonl")
    (tmp_path / "empty").touch()
    anchored(con, tmp_path / "empty")
