"""What an older dpsql has stored opens: its ledger, its releases, an exported file (tests/data/older, made by make.py there)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

import dpsql

OLDER = Path(__file__).parents[1] / "data/older"
KNOWN = json.loads((OLDER / "answers.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    folder = tmp_path_factory.mktemp("older")
    shutil.copytree(OLDER, folder, dirs_exist_ok=True)
    con = duckdb.connect(str(folder / "older.duckdb"))
    dpsql.load(con, store=folder / "store")
    yield con
    con.close()


def numbers(rows: list[tuple[object, ...]]) -> list[int]:
    """The noisy counts of an answer."""
    return sorted(value for row in rows for value in row if isinstance(value, int) and not isinstance(value, bool))


def test_the_chain_holds_and_the_budget_is_what_it_was(older):
    assert older.execute("SELECT bool_and(chain_holds), count(*) FROM dp_ledger()").fetchone() == (True, len(KNOWN["ledger"]))
    found = older.execute("SELECT source, entry, action, hash FROM dpsql.ledger ORDER BY 1, 2").fetchall()
    assert [list(row) for row in found] == KNOWN["ledger"]
    now = older.execute("SELECT source, epsilon, delta, epsilon_spent FROM dp_budget() ORDER BY 1").fetchall()
    assert [[str(value) for value in row] for row in now] == KNOWN["budget"]


@pytest.mark.parametrize("call", KNOWN["answers"])
def test_the_same_call_gives_back_what_was_bought(older, call):
    charges = "SELECT count(*) FROM dpsql.ledger WHERE action = 'charge'"
    before = older.execute(charges).fetchone()
    rows = older.execute(call).fetchall()
    assert older.execute(charges).fetchone() == before
    if "dp_synthesize" in call:  # rows are drawn anew, by a sampler that may have got better
        assert len(rows) == 5
        return
    if "dp_marginals" in call:
        rows = older.execute(call.removesuffix(")") + ", shape := 'long')").fetchall()
    assert numbers(rows) == numbers(KNOWN["answers"][call])


def test_more_can_be_bought_under_the_old_budget(older):
    spent = older.execute("SELECT epsilon_spent FROM dp_budget('people')").fetchone()
    older.execute("FROM dp_marginals('people', columns := ['age'], epsilon := 0.5, release := 'new')")
    assert older.execute("SELECT epsilon_spent FROM dp_budget('people')").fetchone() > spent
    assert older.execute("SELECT bool_and(chain_holds) FROM dp_ledger()").fetchone() == (True,)
    with pytest.raises(duckdb.Error, match="budget"):
        older.execute("FROM dp_marginals('people', columns := ['age'], epsilon := 100, release := 'too much')")


def test_an_exported_file_is_imported_elsewhere(tmp_path):
    con = duckdb.connect()
    dpsql.load(con, store=tmp_path)
    (name,) = con.execute("SELECT release FROM dp_import(?)", [str(OLDER / "exported.dpsql.parquet")]).fetchone()
    assert con.execute("SELECT source, columns FROM dp_import(?)", [str(OLDER / "exported.dpsql.parquet")]).fetchone() == (
        "main.people", ["sex", "age", "day"],
    )
    (path,) = con.execute("SELECT path FROM dp_report(?, path := ?)", [name, str(tmp_path)]).fetchone()
    assert "laplace" in Path(path).read_text(encoding="utf-8").lower()
    con.close()
