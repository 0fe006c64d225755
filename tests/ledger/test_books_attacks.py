"""Attacks on the books and the store: one charge is one draw of noise, whatever is killed, moved, renamed or shared."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from noisy import near, planned_noise
from sample_tables import DELTA, make_people, protect_people

import dpsql
from dpsql.books.ledger import Ledger
from dpsql.engines.duckdb import counting
from dpsql.errors import LedgerError
from dpsql.purchase import buying
from dpsql.purchase import measuring as measuring_purchase
from dpsql.release import identity, store

pytestmark = pytest.mark.any_duckdb

CALL = "FROM dp_marginals('people', columns := ['sex'], epsilon := 1.0)"


class Killed(BaseException):
    """Stands for a process that ends here."""


def visible(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*" + identity.SUFFIX))


def drafts(folder: Path) -> list[Path]:
    return sorted(folder.rglob(".*" + identity.SUFFIX + ".*"))


def counts(con: duckdb.DuckDBPyConnection, path: Path) -> list[tuple[int]]:
    return con.execute("SELECT n FROM read_parquet(?) ORDER BY tbl, cell", [str(path)]).fetchall()


def test_killed_before_the_books_know_shows_nothing_in_any_store(con, charges, monkeypatch, tmp_path):
    def kill(*_: object) -> None:
        raise Killed

    for number in range(3):
        dpsql.load(con, store=tmp_path / f"store{number}")
        with monkeypatch.context() as patch:
            patch.setattr(Ledger, "mark", kill)
            with pytest.raises((Killed, duckdb.Error)):
                con.execute(CALL)
        assert visible(tmp_path) == []
        with pytest.raises(duckdb.Error, match="no such release"):
            con.execute("FROM dp_sample('default')")
    dpsql.load(con, store=tmp_path / "store1")
    shown = [row[1] for row in con.execute(CALL).fetchall()]
    assert drafts(tmp_path / "store1") == []
    (path,) = visible(tmp_path)
    assert [n for (n,) in counts(con, path)] == shown
    assert charges() == 1


def test_killed_after_the_books_know_gives_back_what_they_know(con, charges, monkeypatch, tmp_path):
    def kill(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(store, "publish", kill)
        with pytest.raises((Killed, duckdb.Error)):
            con.execute(CALL)
    (draft,) = drafts(tmp_path)
    contents = con.execute("SELECT contents FROM dpsql.ledger WHERE action = 'store'").fetchone()[0]
    assert draft.name.endswith(contents)
    expected = counts(con, draft)
    monkeypatch.setattr(measuring_purchase, "_store", kill)  # the rows are not read again
    assert [row[1:2] for row in con.execute(CALL).fetchall()] == expected
    assert drafts(tmp_path) == []
    assert charges() == 1


def test_a_draw_that_the_books_refuse_is_removed(con, charges, monkeypatch, tmp_path):
    def refuse(*_: object) -> None:
        raise LedgerError("busy")

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "mark", refuse)
        with pytest.raises(duckdb.Error, match="busy"):
            con.execute(CALL)
    assert visible(tmp_path) == drafts(tmp_path) == []
    con.execute(CALL)
    assert len(visible(tmp_path)) == charges() == 1


def test_a_draw_that_comes_second_is_removed(con, monkeypatch, tmp_path):
    mark = Ledger.mark

    def late(self: Ledger, name: str, action: str, contents: str | None = None) -> None:
        mark(self, name, action, "0" * 64)  # another process was here
        mark(self, name, action, contents)

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "mark", late)
        with pytest.raises(duckdb.Error, match="is not there"):
            con.execute(CALL)
    assert visible(tmp_path) == drafts(tmp_path) == []


def test_a_release_file_that_was_replaced_is_refused(con, tmp_path):
    con.execute(CALL)
    con.execute(CALL.replace(")", ", release := 'other')"))
    one, other = visible(tmp_path)
    shutil.copyfile(other, one)
    for call in (CALL, CALL.replace(")", ", release := 'other')")):
        try:
            con.execute(call)
        except duckdb.Error as error:
            assert "not the release that the ledger knows" in str(error)
            break
    else:
        pytest.fail("a replaced file was accepted")


def two_databases(tmp_path: Path, where: str) -> Iterator[tuple[duckdb.DuckDBPyConnection, str]]:
    """Two databases with a table of the same name, 1000 and 50 rows, that share a folder of releases."""
    both = duckdb.connect()
    for name in ("large", "small"):
        both.execute(f"ATTACH '{':memory:' if where == 'memory' else tmp_path / (name + '.duckdb')}' AS {name}")
        both.execute(f"CREATE TABLE {name}.main.t AS SELECT i % 2 = 0 AS a FROM range({1000 if name == 'large' else 50}) t(i)")
    dpsql.load(both, store=None if where == "memory" else tmp_path / "shared store")
    for name in ("large", "small"):
        both.execute(f"CALL dp_protect('{name}.main.t', epsilon := 20, delta := {DELTA})")
    for name in ("large", "small", "large", "small"):
        yield both, name
    both.close()


@pytest.mark.parametrize("where", ["memory", "file"])
def test_tables_of_the_same_name_do_not_take_each_others_releases(tmp_path, where):
    totals: dict[str, set[int]] = {"large": set(), "small": set()}
    for both, name in two_databases(tmp_path, where):
        total, cells = both.execute(f"SELECT sum(n), count(*) FROM dp_marginals('{name}.main.t', epsilon := 5.0)").fetchone()
        totals[name].add(int(total))
        sigma, mechanism = planned_noise(both, f"'{name}.main.t', epsilon := 5.0, k := 1")
        assert mechanism == "gaussian" and near(total, 1000 if name == "large" else 50, sigma * cells**0.5)
    assert len(totals["large"]) == len(totals["small"]) == 1


def test_a_new_database_beside_an_old_store_neither_takes_nor_loses_what_is_there(con, tmp_path):
    con.execute("FROM dp_synthesize('people', epsilon := 1.0)")
    (old,) = visible(tmp_path)
    kept = old.read_bytes()
    name = con.execute("SELECT release FROM dp_releases()").fetchone()[0]
    con.close()
    (tmp_path / "people.duckdb").unlink()
    again = duckdb.connect(str(tmp_path / "people.duckdb"))
    make_people(again, 5000)
    dpsql.load(again)
    protect_people(again)
    count = again.execute("SELECT count(*) FROM dp_synthesize('people', epsilon := 1.0)").fetchone()[0]
    assert abs(count - 5000) < 300
    assert old.read_bytes() == kept
    assert len(visible(tmp_path)) == 2
    assert again.execute(f"SELECT count(*) FROM dp_sample('{name}')").fetchone()[0] == count
    again.close()


def test_a_view_redefined_before_its_release_was_read_cannot_show_its_number_of_rows(monkeypatch):
    con = duckdb.connect()
    make_people(con)
    dpsql.load(con)
    con.execute(f"CALL dp_protect('people', epsilon := 5, delta := {DELTA}, neighbors := 'replace_one')")
    con.execute("CREATE VIEW v AS SELECT sex, member FROM people")

    def kill(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(measuring_purchase, "_store", kill)
        with pytest.raises((Killed, duckdb.Error)):
            con.execute("FROM dp_synthesize('v', epsilon := 1.0)")
    con.execute("CREATE OR REPLACE VIEW v AS SELECT sex, member FROM people WHERE age > 50")
    with pytest.raises(duckdb.Error, match="the source was changed before it was read"):
        con.execute("FROM dp_synthesize('v', epsilon := 1.0)")
    con.execute("CREATE OR REPLACE VIEW v AS SELECT sex, member FROM people")
    assert con.execute("SELECT count(*) FROM dp_synthesize('v', epsilon := 1.0)").fetchone() == (600,)
    assert con.execute("SELECT count(*) FROM dpsql.ledger WHERE action = 'charge'").fetchone() == (1,)
    con.close()


@pytest.mark.parametrize("changed", ["privacy_unit := 'person', max_contributions := 5", "neighbors := 'replace_one'", "accountant := 'basic'"])
def test_a_contract_changed_between_plan_and_charge_is_noticed(con, charges, monkeypatch, changed):
    """The noise was calibrated for the old one."""
    bind = buying._bind

    def interfere(*given: Any) -> None:
        con.cursor().execute(f"CALL dp_protect('people', epsilon := 5, delta := {DELTA}, {changed})")
        bind(*given)

    with monkeypatch.context() as patch:
        patch.setattr(buying, "_bind", interfere)
        with pytest.raises(duckdb.Error, match="was protected anew"):
            con.execute(CALL)
    assert charges() == 0


def test_any_failure_after_reading_withholds_its_text(con, monkeypatch):
    def fail(*_: object) -> Any:
        raise ValueError("index 17 is out of bounds, at value 'north'")

    monkeypatch.setattr(counting, "count_select", fail)
    with pytest.raises(duckdb.Error, match="the text is withheld") as caught:
        con.execute(CALL)
    assert "north" not in str(caught.value)
    assert "17" not in str(caught.value).split("\n")[0]


def test_the_case_of_a_table_name_does_not_change_its_budget(con):
    con.execute(CALL)
    con.execute("ALTER TABLE people RENAME TO passing")
    con.execute('ALTER TABLE passing RENAME TO "People"')
    assert con.execute("SELECT source, releases FROM dp_budget('PEOPLE')").fetchall() == [("main.people", 1)]
    assert len(con.execute(CALL).fetchall()) == 3


def test_a_protected_file_stays_protected_from_another_database(tmp_path):
    con = duckdb.connect(str(tmp_path / "home.duckdb"))
    dpsql.load(con)
    file = tmp_path / "rows.parquet"
    con.execute(f"COPY (SELECT i % 2 = 0 AS a FROM range(100) t(i)) TO '{file}'")
    con.execute(f"CALL dp_protect('{file}', epsilon := 5, delta := {DELTA})")
    first = con.execute(f"FROM dp_marginals('{file}', epsilon := 1.0)").fetchall()
    con.execute("ATTACH ':memory:' AS elsewhere")
    con.execute("USE elsewhere")
    assert con.execute(f"FROM dp_marginals('{file}', epsilon := 1.0)").fetchall() == first
    con.execute(f"CALL dp_protect('{file}', epsilon := 6, delta := {DELTA})")
    assert con.execute("SELECT action FROM home.dpsql.ledger ORDER BY entry").fetchall() == [
        ("protect",), ("charge",), ("store",), ("raise",),
    ]
    con.close()


def test_the_refusal_names_an_epsilon_that_is_affordable(con):
    con.execute(CALL.replace("1.0", "3.0"))
    with pytest.raises(duckdb.Error, match="exceeded") as caught:
        con.execute(CALL.replace("1.0)", "5.0, release := 'more')"))
    most = float(str(caught.value).split("can have epsilon := ")[1].split(" ")[0])
    assert 3.5 < most < 4.5
    con.execute(CALL.replace("1.0)", f"{most}, release := 'more')"))
    with pytest.raises(duckdb.Error, match="exceeded"):
        con.execute(CALL.replace("1.0)", "0.05, release := 'still more')"))


def test_an_edited_book_with_a_refund_of_nothing_can_be_looked_at(con):
    con.execute(CALL)
    con.execute("UPDATE dpsql.ledger SET action = 'refund' WHERE action = 'charge'")
    assert con.execute("SELECT chain_holds FROM dp_budget('people')").fetchone() == (False,)
    assert con.execute("SELECT bool_and(chain_holds) FROM dp_ledger()").fetchone() == (False,)
