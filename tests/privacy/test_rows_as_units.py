"""Tables without a privacy unit beside public rows: exact counters of tables that differ in one row against the claimed sensitivity."""

from __future__ import annotations

import numpy as np
import pytest
from query_readings import Readings, ask, check_moves, database, fixed, moves, priced, replayed

from dpsql.domains.encoding import SOURCE_NAME
from dpsql.measure.statement import Statement
from dpsql.noise import discrete
from dpsql.text.relation import identifier

EAST = "SELECT name FROM regions WHERE climate = 'warm'"
BOUNDED = "sum(greatest(0, least(amount, 100)))"
QUESTIONS: list[tuple[str, str]] = [
    (f"SELECT count(*), {BOUNDED} FROM sales WHERE region IN ({EAST})", ""),
    (f"SELECT count(*) FROM sales WHERE region NOT IN ({EAST})", ""),
    ("SELECT quantity, count(*) FROM sales s WHERE EXISTS (SELECT 1 FROM regions r WHERE r.name = s.region AND place > 1) GROUP BY 1", ""),
    ("SELECT count(*), avg(price) FROM sales SEMI JOIN regions ON region = name", ""),
    ("SELECT count(*) FROM sales ANTI JOIN regions ON region = name", ""),
    ("SELECT climate, count(*) FROM sales JOIN (SELECT name, climate FROM regions WHERE place < 9) r ON region = r.name GROUP BY climate", ""),
    (
        f"SELECT climate, count(*), {BOUNDED} FROM sales JOIN (SELECT name, climate FROM regions WHERE place < 9) r ON region = r.name "
        "GROUP BY climate",
        "max_rows := 2",
    ),
    ("SELECT climate, count(*) FROM sales, (SELECT * FROM regions WHERE place < 9) r WHERE region = name GROUP BY 1", "max_rows := 1"),
    (
        "SELECT climate, count(*) FROM sales JOIN (SELECT name, climate FROM regions WHERE place < 9) r ON region = r.name GROUP BY 1",
        "max_groups := 1, max_rows_per_group := 2",
    ),
    ("SELECT place, count(*), count(DISTINCT quantity) FROM sales JOIN (SELECT place FROM regions WHERE place < 9) r ON quantity <= place GROUP BY 1", ""),
    ("SELECT count(*) FROM (SELECT region FROM sales UNION ALL SELECT region FROM sales) WHERE region IN ('east', 'north')", ""),
    (f"SELECT note, count(*) FROM (SELECT * FROM sales WHERE gift) WHERE region IN ({EAST}) GROUP BY note", ""),
    (f"SELECT median(amount) FROM sales WHERE region IN ({EAST})", ""),
]
PEOPLE = {
    "in two groups": "amount = 1e308",
    "infinite": "amount = 'inf'",
    "nothing": "amount IS NULL",
    "one of three alike": "rowid = (SELECT min(rowid) FROM sales WHERE amount = 100 AND customer = 7)",
}
"""Rows by what is odd about them."""


def read(patch: pytest.MonkeyPatch, left_out: str | None, earlier: Readings | None = None) -> Readings:
    con = database(privacy_unit=None, max_contributions=None)
    con.execute("UPDATE sales SET region = 'east' WHERE amount = 1e308")
    if left_out is not None:
        assert con.execute(f"DELETE FROM sales WHERE {PEOPLE[left_out]}").fetchone() == (1,)
    with replayed(patch, earlier=earlier) as seen:
        patch.setattr(discrete, "add_noise", fixed)
        for sql, more in priced(QUESTIONS):
            ask(con, sql, more)
    con.close()
    return seen


@pytest.fixture(scope="module")
def of_all() -> Readings:
    with pytest.MonkeyPatch.context() as patch:
        return read(patch, None)


@pytest.mark.any_duckdb
@pytest.mark.parametrize("left_out", PEOPLE)
@pytest.mark.usefixtures("unrehearsed")
def test_a_row_moves_counters_by_what_is_paid(monkeypatch: pytest.MonkeyPatch, of_all: Readings, left_out: str) -> None:
    reached = check_moves(of_all, read(monkeypatch, left_out, of_all), len(QUESTIONS))
    if left_out == "in two groups":
        assert np.count_nonzero(np.asarray(reached) > 0.5) >= 6, "the bounds are reached"


@pytest.mark.usefixtures("unrehearsed")
def test_a_row_that_becomes_several_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def unbounded(self: Statement, places: bool) -> str:
        return self._counted_rows(identifier(SOURCE_NAME), ["ord"] if places else self._own_keys)

    monkeypatch.setattr(Statement, "_bounded", unbounded)
    whole = read(monkeypatch, None)
    assert max(moves(whole, read(monkeypatch, "in two groups", whole))) > 1
