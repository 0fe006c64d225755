"""Questions as charting tools write them for MySQL: answered, and those of one meaning are one question."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator

import pytest
from served_room import Served, served

TOOLS = (
    "SELECT DATE(DATE_SUB(visit_at, INTERVAL DAYOFMONTH(visit_at) - 1 DAY)) AS __timestamp, COUNT(*) AS n FROM visits GROUP BY DATE(DATE_SUB(visit_at, INTERVAL DAYOFMONTH(visit_at) - 1 DAY)) ORDER BY n DESC LIMIT 1000",
    "SELECT DATE(DATE_SUB(day, INTERVAL DAYOFWEEK(day) - 1 DAY)) AS w, COUNT(*) AS n FROM visits GROUP BY 1",
    "SELECT DATE(DATE_SUB(day, INTERVAL DAYOFWEEK(DATE_SUB(day, INTERVAL 1 DAY)) - 1 DAY)) AS w, COUNT(*) AS n FROM visits GROUP BY 1",
    "SELECT DATE(DATE_SUB(day, INTERVAL DAYOFYEAR(day) - 1 DAY)) AS w, COUNT(*) AS n FROM visits GROUP BY 1",
    "SELECT MAKEDATE(YEAR(day), 1) + INTERVAL QUARTER(day) QUARTER - INTERVAL 1 QUARTER AS q, COUNT(*) AS n FROM visits GROUP BY 1",
    "SELECT STR_TO_DATE(CONCAT(DATE_FORMAT(day, '%Y-%m'), '-01'), '%Y-%m-%d') AS m, COUNT(*) AS n FROM visits GROUP BY 1",
    "SELECT DATE(day) AS d, AVG(cost) FROM visits WHERE day >= '2024-03-01' AND day < '2024-03-05' GROUP BY DATE(day)",
    "SELECT ward, SUM(cost) / NULLIF(COUNT(*), 0) AS r FROM visits GROUP BY ward",
    "SELECT ward AS ward, SUM(cost) AS `SUM(cost)` FROM visits GROUP BY ward ORDER BY `SUM(cost)` DESC LIMIT 100",
    "SELECT * FROM (SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward) AS virtual_table LIMIT 10",
    "SELECT COUNT(1) AS X__alias__0 FROM `census`.`visits` `visits` HAVING (COUNT(1) > 0)",
    "SELECT SUM(1) AS `cnt`, `visits`.`ward` AS `ward` FROM `visits` GROUP BY 2",
    "SELECT `source`.`ward` AS `ward`, COUNT(*) AS `count` FROM (SELECT `visits`.`ward` AS `ward`, `visits`.`cost` AS `cost` FROM `visits` WHERE `visits`.`cost` > 10) `source` GROUP BY `source`.`ward` ORDER BY `source`.`ward` ASC",
    "SELECT CASE WHEN cost < 100 THEN 'low' ELSE 'high' END AS b, COUNT(*) FROM visits GROUP BY CASE WHEN cost < 100 THEN 'low' ELSE 'high' END",
    "SELECT FLOOR(cost / 100) * 100 AS bin, COUNT(*) FROM visits GROUP BY FLOOR(cost / 100) * 100",
    "SELECT YEAR(day) AS y, MONTH(day) AS m, COUNT(*) FROM visits GROUP BY YEAR(day), MONTH(day)",
    "SELECT EXTRACT(MONTH FROM day) AS m, COUNT(*) FROM visits GROUP BY m",
    "SELECT DATE_FORMAT(day, '%Y-%m') AS m, COUNT(*) FROM visits GROUP BY m",
    "SELECT COUNT(DISTINCT ward) FROM visits",
    "SELECT STDDEV_SAMP(cost), MIN(cost), MAX(cost) FROM visits",
    "SELECT WEEKDAY(day) AS d, COUNT(*) FROM visits GROUP BY d",
    "SELECT HOUR(visit_at) h, COUNT(*) FROM visits GROUP BY h",
    "SELECT TIMESTAMPDIFF(DAY, day, '2024-12-31') > 30 AS old, COUNT(*) FROM visits GROUP BY 1",
    "SELECT IF(cost > 50, 'a', 'b') AS x, COUNT(*) FROM visits GROUP BY x",
    "SELECT COUNT(*) FROM visits WHERE ward IN ('A','B') AND cost BETWEEN 1 AND 5",
    "SELECT SUM(CASE WHEN ward = 'A' THEN 1 ELSE 0 END) FROM visits",
    "SELECT DATE_ADD(DATE(visit_at), INTERVAL HOUR(visit_at) HOUR) AS h, COUNT(*) FROM visits WHERE visit_at < '2024-01-02' GROUP BY 1",
)
"""Of Superset, Metabase, Tableau and the like: their grains, quotes, quotients, aliases and subqueries."""


@pytest.fixture(scope="module")
def hospital(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("tools")) as found:
        yield found


@pytest.mark.parametrize("text", TOOLS)
def test_it_is_answered(hospital: Served, text: str) -> None:
    before = hospital.charges()
    answer = hospital.room.ask("alice", text, "mysql")
    again = hospital.room.ask("alice", text, "mysql")
    assert answer == again and hospital.charges() <= before + 1
    assert [column.name for column in answer.columns] == [column.name for column in hospital.room.describe("alice", text, "mysql")]


def test_grains_of_mysql_are_those_of_the_calendar(hospital: Served) -> None:
    """Sunday is MySQL's first day of a week; most are one question with DuckDB's own truncation."""
    for mysql, duckdb_ in (
        ("DATE(DATE_SUB(day, INTERVAL DAYOFMONTH(day) - 1 DAY))", "CAST(date_trunc('month', day) AS DATE)"),
        ("DATE(DATE_SUB(day, INTERVAL DAYOFWEEK(day) - 1 DAY))", "CAST(date_trunc('week', day + INTERVAL 1 DAY) - INTERVAL 1 DAY AS DATE)"),
        ("DATE(DATE_SUB(day, INTERVAL DAYOFWEEK(DATE_SUB(day, INTERVAL 1 DAY)) - 1 DAY))", "CAST(date_trunc('week', day) AS DATE)"),
        ("MAKEDATE(YEAR(day), 1) + INTERVAL QUARTER(day) QUARTER - INTERVAL 1 QUARTER", "CAST(date_trunc('quarter', day) AS TIMESTAMP)"),
    ):
        rows = hospital.ask(f"SELECT {duckdb_} AS grain, count(*) AS n FROM visits WHERE cost > 3 GROUP BY 1 ORDER BY 1")
        before = hospital.charges()
        answer = hospital.room.ask("alice", f"SELECT {mysql} AS grain, COUNT(*) AS n FROM visits WHERE cost > 3 GROUP BY 1 ORDER BY 1", "mysql")
        assert [row[0] for row in answer.rows] == [row[0] for row in rows], mysql
        if "INTERVAL 1 DAY" not in duckdb_:  # which DuckDB writes back in another way
            assert list(answer.rows) == rows and hospital.charges() == before, mysql
    sundays = hospital.room.ask("alice", "SELECT DATE(DATE_SUB(day, INTERVAL DAYOFWEEK(day) - 1 DAY)) AS w, COUNT(*) FROM visits GROUP BY 1", "mysql").rows
    assert {dt.date.isoweekday(row[0]) for row in sundays} == {7}
