"""Elements of lists as rows, and groups that a condition names: exact counters of neighbours against the claimed sensitivity."""

from __future__ import annotations

import numpy as np
import pytest
from query_readings import NEIGHBOURS, Readings, check_moves, moves, priced, read_questions

from dpsql.measure.statement import Statement

MAKING = (
    "ALTER TABLE sales ADD COLUMN l VARCHAR[]; ALTER TABLE sales ADD COLUMN m DOUBLE[];"
    "UPDATE sales SET l = CASE WHEN \"order\" = 2 THEN NULL ELSE [region, note, region, 'note 1', repeat('long', 1000)] END, "
    "m = [amount, price, NULL, 'nan'][:\"order\"::INTEGER + 2]"
)
NAMED = "('north', 'note 1', 'the moon', 'nowhere')"
QUESTIONS: list[tuple[str, str]] = [
    ("SELECT x, count(*) FROM sales, unnest(l[:3]) AS t(x) GROUP BY x", ""),
    (f"SELECT x, count(*), sum(amount) FROM sales, unnest(l[:3]) AS t(x) WHERE x IN {NAMED} GROUP BY x", ""),
    (f"SELECT x, count(*) FROM sales, unnest(l[:4]) AS t(x) WHERE x IN {NAMED} GROUP BY x", "max_rows := 5"),
    (f"SELECT x, count(*) FROM sales, unnest(l[:4]) AS t(x) WHERE x IN {NAMED} GROUP BY x", "max_groups := 2, max_rows_per_group := 3"),
    (f"SELECT x, count(DISTINCT customer) FROM sales, unnest(l[:3]) AS t(x) WHERE x IN {NAMED} GROUP BY x", ""),
    ("SELECT sum(greatest(0, least(y, 100))), count(y) FROM sales, unnest(m[:3]) AS t(y)", ""),
    (f"SELECT x, y > 10, count(*) FROM sales, unnest(l[:2]) AS t(x), unnest(m[:2]) AS u(y) WHERE x IN {NAMED} GROUP BY 1, 2", ""),
    ("SELECT sum(n) FROM (SELECT customer, count(*) AS n FROM sales, unnest(l[:3]) AS t(x) GROUP BY customer)", ""),
    (f"SELECT x, count(*) FROM sales, unnest([region, note, 'note 1']) AS t(x) WHERE x IN {NAMED} GROUP BY x", ""),
    ("SELECT note, count(*), avg(amount) FROM sales WHERE note IN ('note 1', '', 'only here', 'no note') GROUP BY note", ""),
    ("SELECT upper(region), gift, count(*) FROM sales WHERE upper(region) IN ('NORTH', ' NORTH') GROUP BY 1, 2", ""),
    ("SELECT quantity, count(*) FROM sales WHERE quantity = 4 OR quantity IN (0, 2147483647) GROUP BY 1", ""),
    ("SELECT day, count(*) FROM sales WHERE day IN ('9999-12-31', '0001-01-01') GROUP BY day", ""),
]


def read(patch: pytest.MonkeyPatch, left_out: str | None, earlier: Readings | None = None) -> Readings:
    return read_questions(patch, left_out, priced(QUESTIONS), earlier, MAKING)


@pytest.fixture(scope="module")
def of_all() -> Readings:
    with pytest.MonkeyPatch.context() as patch:
        return read(patch, None)


@pytest.mark.parametrize("left_out", NEIGHBOURS)
@pytest.mark.usefixtures("unrehearsed")
def test_a_unit_moves_counters_by_what_is_paid(monkeypatch: pytest.MonkeyPatch, of_all: Readings, left_out: str) -> None:
    reached = check_moves(of_all, read(monkeypatch, left_out, of_all), len(QUESTIONS))
    if NEIGHBOURS[left_out] == 7:  # a unit with more rows than count
        assert np.count_nonzero(np.asarray(reached) > 0.5) >= 6, "the bounds are reached"


@pytest.mark.usefixtures("unrehearsed")
def test_unbounded_elements_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Statement._bounded

    def unbounded(self: Statement, places: bool) -> str:
        self.heavy = ""  # as if nobody had more rows than count
        return made(self, places)

    monkeypatch.setattr(Statement, "_bounded", unbounded)
    whole = read(monkeypatch, None)
    assert max(moves(whole, read(monkeypatch, "extreme", whole))) > 1
