"""The same chart asked by two tools is one question: the spellings that clients send are charged once."""

from __future__ import annotations

import datetime as dt

import pytest
from served_room import Served

SPELLINGS: dict[str, tuple[str | tuple[str, tuple[object, ...]], ...]] = {
    "conditions": (
        "SELECT ward, count(*) AS n FROM visits WHERE ward <> 'C' AND cost > 30 AND cost <= 800 GROUP BY ward",
        "SELECT ward, count(*) AS n FROM visits WHERE cost > 30 AND ward <> 'C' AND cost <= 800 GROUP BY ward",
        "SELECT ward, count(1) AS n FROM visits WHERE cost <= 800 AND cost > 30 AND ward <> 'C' GROUP BY ward",
        "SELECT \"ward\", COUNT(*) AS \"how many\" FROM \"main\".\"visits\" WHERE 30 < cost AND ward <> 'C' AND cost <= 800 GROUP BY \"ward\"",
        "SELECT v.ward, count(*) FROM visits v WHERE (v.ward <> 'C') AND (v.cost > 30) AND (v.cost <= 800) GROUP BY v.ward",
        "SELECT ward, count(*) AS n FROM (SELECT * FROM visits) t WHERE ward <> 'C' AND cost > 30 AND cost <= 800 GROUP BY ward",
        "SELECT t.ward, count(*) AS n FROM (SELECT * FROM visits) AS t WHERE t.cost > 30 AND t.ward <> 'C' AND t.cost <= 800 GROUP BY 1",
        "SELECT ward, count(*) AS n FROM visits WHERE ward <> 'C' AND cost > 30 AND cost <= 800 GROUP BY ward ORDER BY n DESC LIMIT 1000",
        "SELECT CAST(count(*) AS DOUBLE) AS n, ward FROM visits WHERE ward <> 'C' AND cost > 30 AND cost <= 800 GROUP BY ward",
        "SELECT ward, count(*) FROM census.main.visits WHERE ward <> 'C' AND cost > 30 AND cost <= 800 GROUP BY ALL;",
        "SELECT /* a tool */ ward, count(*) AS n FROM hospital.main.visits WHERE ward <> 'C' AND cost > 30 AND cost <= 800 GROUP BY ward -- end",
        ("SELECT ward, count(*) AS n FROM visits WHERE ward <> ? AND cost > ? AND cost <= ? GROUP BY ward", ("C", 30, 800)),
        ("SELECT ward, count(*) AS n FROM visits WHERE cost > $2 AND ward <> $1 AND cost <= $3 GROUP BY ward", ("C", 30, 800)),
    ),
    "moments": (
        "SELECT count(*) FROM visits WHERE visit_at >= TIMESTAMP '2024-02-01 00:00:00'",
        "SELECT count(*) FROM visits WHERE visit_at >= TIMESTAMP '2024-02-01'",
        "SELECT count(*) FROM visits WHERE visit_at >= TIMESTAMP '2024-02-01 00:00:00.000000'",
        "SELECT count(*) FROM visits WHERE visit_at >= CAST('2024-02-01 00:00:00' AS TIMESTAMP)",
        "SELECT count(*) FROM visits WHERE visit_at >= '2024-02-01 00:00:00'::TIMESTAMP",
        "SELECT count(*) FROM visits WHERE visit_at >= '2024-02-01 00:00:00'",
        "SELECT count(*) FROM visits WHERE visit_at >= '2024-02-01 00:00:00.000000'",
        "SELECT count(*) FROM visits WHERE visit_at >= '2024-02-01'",
        "SELECT count(1) AS n FROM (SELECT * FROM visits) virtual_table WHERE visit_at >= '2024-02-01 00:00:00.000'",
        ("SELECT count(*) FROM visits WHERE visit_at >= ?", (dt.datetime(2024, 2, 1),)),
        ("SELECT count(*) FROM visits WHERE visit_at >= ?", ("2024-02-01 00:00:00",)),
    ),
    "dates": (
        "SELECT sum(cost) FROM visits WHERE day BETWEEN DATE '2024-03-01' AND DATE '2024-03-31'",
        "SELECT sum(cost) FROM visits WHERE day >= DATE '2024-03-01' AND day <= DATE '2024-03-31'",
        "SELECT sum(cost) FROM visits WHERE day <= '2024-03-31' AND day >= '2024-03-01'",
        "SELECT sum(cost) AS total FROM visits WHERE day >= CAST('2024-03-01' AS DATE) AND day <= '2024-03-31'::DATE",
        ("SELECT sum(cost) FROM visits WHERE day >= ? AND day <= ?", (dt.date(2024, 3, 1), dt.date(2024, 3, 31))),
        ("SELECT sum(cost) FROM visits WHERE day BETWEEN ? AND ?", ("2024-03-01", "2024-03-31")),
    ),
    "subqueries": (
        "SELECT ward, avg(cost) AS mean FROM visits GROUP BY ward",
        "SELECT * FROM (SELECT ward, avg(cost) AS mean FROM visits GROUP BY ward) t",
        "SELECT ward, mean FROM (SELECT ward, avg(cost) AS mean FROM visits GROUP BY ward) t ORDER BY mean LIMIT 5",
        "WITH t AS (SELECT ward, avg(cost) AS mean FROM visits GROUP BY ward) SELECT * FROM t WHERE mean > 0",
        "SELECT avg(cost), ward FROM visits GROUP BY 2",
        "SELECT ward, avg(cost) FROM visits GROUP BY ward HAVING avg(cost) > 0",
        "FROM dp_query('SELECT ward, avg(cost) AS mean FROM visits GROUP BY ward')",
        "SELECT t.ward FROM dp_query('select \"ward\", avg(\"cost\") from main.visits group by 1', epsilon := 0.5) t",
    ),
}  # fmt: skip


@pytest.mark.parametrize("question", SPELLINGS)
def test_one_charge(hospital: Served, question: str) -> None:
    """The first spelling is bought, every other one is answered from it; another question is not."""
    before, again = hospital.charges(), []
    for number, spelt in enumerate(SPELLINGS[question]):
        text, values = (spelt, ()) if isinstance(spelt, str) else spelt
        charged = hospital.charges()
        hospital.ask(text, values)
        if number and hospital.charges() > charged:
            again.append(spelt)
    assert again == [] and hospital.charges() == before + 1


def test_another_question_is_charged(hospital: Served) -> None:
    """One that differs in a bound, an operator or a column."""
    texts = [
        "SELECT count(*) FROM visits WHERE cost > 31", "SELECT count(*) FROM visits WHERE cost >= 31", "SELECT count(*) FROM visits WHERE cost < 31",
        "SELECT count(*) FROM visits WHERE visit_at >= '2024-02-01 00:00:01'", "SELECT count(*) FROM visits WHERE ward = 'A'",
    ]  # fmt: skip
    for text in texts:
        before = hospital.charges()
        hospital.ask(text)
        assert hospital.charges() == before + 1, text
