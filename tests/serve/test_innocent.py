"""What people and tools ask every day: answered."""

from __future__ import annotations

import pytest
from noisy import near
from served_room import Served

PUBLIC = {
    "SELECT 1": [(1,)],
    "SELECT 1; -- one": [(1,)],
    "select 1 as one, 'x' as two": [(1, "x")],
    "SELECT * FROM wards ORDER BY ward": [("A", 1, "one"), ("B", 2, "two"), ("C", 2, "two")],
    "FROM wards SELECT ward WHERE beds = 1": [("A",)],
    "TABLE over_wards LIMIT 1": [(2,)],
    "SELECT #1, #3 FROM wards ORDER BY 1 LIMIT 1": [("A", "one")],
    "SELECT max(beds) FROM main.wards": [(2,)],
    "SELECT max(beds) FROM census.wards": [(2,)],
    "SELECT max(beds) FROM census.main.wards": [(2,)],
    "SELECT beds FROM census.\"MAIN\".WARDS WHERE building LIKE 'o%'": [(1,)],
    "SELECT place, width FROM other.places": [("north", 2.5)],
    "SELECT building, count(*), sum(beds) FROM wards GROUP BY building ORDER BY ALL": [("one", 1, 1), ("two", 2, 4)],
    "SELECT building FROM wards GROUP BY 1 HAVING count(*) > 1": [("two",)],
    "SELECT DISTINCT building FROM wards ORDER BY building DESC": [("two",), ("one",)],
    "SELECT w.ward, p.place FROM wards w CROSS JOIN other.places p WHERE w.beds = 1": [("A", "north")],
    "SELECT a.ward, b.ward FROM wards a JOIN wards b ON a.beds = b.beds AND a.ward < b.ward": [("B", "C")],
    "SELECT a.ward FROM wards a LEFT JOIN wards b USING (ward) WHERE b.ward IS NULL": [],
    "SELECT ward FROM wards WHERE beds IN (SELECT max(beds) FROM wards) ORDER BY 1": [("B",), ("C",)],
    "SELECT ward, row_number() OVER (ORDER BY beds DESC, ward) FROM wards ORDER BY ward": [("A", 3), ("B", 1), ("C", 2)],
    "SELECT ward, lag(beds) OVER (ORDER BY ward) FROM wards ORDER BY 1": [("A", None), ("B", 1), ("C", 2)],
    "WITH big AS (FROM wards WHERE beds > 1) SELECT count(*) FROM big": [(2,)],
    "WITH a AS (FROM wards), b AS (SELECT beds FROM a) SELECT sum(b.beds), (SELECT min(beds) FROM a) FROM b": [(5, 1)],
    "WITH RECURSIVE c AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM c WHERE i < 3) SELECT sum(i) FROM c": [(6,)],
    "SELECT sum(i) FROM range(4) t(i)": [(6,)],
    "SELECT p.beds, x FROM wards p, LATERAL (SELECT p.beds + 1 AS x) ORDER BY 1 LIMIT 1": [(1, 2)],
    "SELECT [x + 1 FOR x IN [1, 2]], list_transform([1], lambda x: x * 2)": [([2, 3], [2])],
    "VALUES (1, 'x')": [(1, "x")],
    "SELECT CASE WHEN beds > 1 THEN 'large' ELSE 'small' END FROM wards ORDER BY ward LIMIT 1": [("small",)],
    "SELECT upper(ward) || '-' || lower(building), length(building), coalesce(NULL, 5) FROM wards LIMIT 1": [("A-one", 3, 5)],
    "SELECT date_trunc('month', since)::DATE::VARCHAR, year(since), since + INTERVAL 1 DAY > since FROM other.places": [("2024-05-01", 2024, True)],
    "SELECT CAST('5' AS INTEGER), TRY_CAST('x' AS INTEGER), 7 // 2, 7 % 2, round(2.567, 1)::VARCHAR": [(5, None, 3, 1, "2.6")],
    "PIVOT wards ON building IN ('one', 'two') USING sum(beds) GROUP BY ward ORDER BY ward LIMIT 1": [("A", 1, None)],
    "SELECT 1 UNION ALL SELECT 2 EXCEPT SELECT 2": [(1,)],
    "SHOW TABLES": [("over_notes",), ("over_visits",), ("over_wards",), ("visits",), ("wards",)],
    "SELECT column_name, column_type FROM (DESCRIBE visits) LIMIT 2": [("patient", "BIGINT"), ("ward", "VARCHAR")],
    "DESCRIBE wards": [
        ("ward", "VARCHAR", "YES", None, None, None), ("beds", "INTEGER", "YES", None, None, None), ("building", "VARCHAR", "YES", None, None, None),
    ],
    "SELECT table_schema, table_name, table_type FROM information_schema.tables WHERE table_name LIKE 'v%'": [("main", "visits", "BASE TABLE")],
    "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = 'wards' ORDER BY ordinal_position": [
        ("ward", "VARCHAR"), ("beds", "INTEGER"), ("building", "VARCHAR"),
    ],
    "SELECT schema_name, table_name FROM duckdb_tables() ORDER BY ALL": [("main", "wards"), ("other", "places")],
    "SELECT column_name, max FROM (SUMMARIZE wards)": [("ward", "C"), ("beds", "2"), ("building", "two")],
    "SELECT database_name FROM duckdb_databases()": [("census",)],
    "SELECT count(*) FROM range(1000000)": [(1_000_000,)],
    "SELECT ward FROM wards WHERE building ILIKE 'T%' ORDER BY ward DESC LIMIT 1 OFFSET 1": [("B",)],
}  # fmt: skip
NOISY = {
    "SELECT count(*) FROM visits": [(6007,)],
    "SELECT count(*) AS n FROM main.visits": [(6007,)],
    'SELECT COUNT(1) AS "N" FROM census.main.visits': [(6007,)],
    "SELECT ward, count(*) AS n FROM visits GROUP BY ward ORDER BY ward": [("A", 2003), ("B", 2002), ("C", 2002)],
    "SELECT ward, count(*) FROM visits GROUP BY 1 HAVING count(*) > -1e6 ORDER BY 1 LIMIT 2": [("A", 2003), ("B", 2002)],
    "SELECT building, count(*) FROM visits JOIN wards USING (ward) GROUP BY building ORDER BY 1": [("one", 2003), ("two", 4004)],
    "SELECT building, sum(n) FROM wards JOIN (SELECT ward, count(*) AS n FROM visits GROUP BY ward) USING (ward) GROUP BY 1 ORDER BY 1": [
        ("one", 2003), ("two", 4004),
    ],
    "SELECT w.building, q.n FROM wards w JOIN dp_query('SELECT ward, count(*) AS n FROM visits GROUP BY ward') q USING (ward) ORDER BY w.ward": [
        ("one", 2003), ("two", 2002), ("two", 2002),
    ],
    "SELECT count(*) FROM visits WHERE ward = 'A' AND cost >= 0": [(2003,)],
    "SELECT count(*) FROM visits WHERE ward IN (SELECT ward FROM wards WHERE building = 'two')": [(4004,)],
    "SELECT count(*) FILTER (WHERE ward = 'A') AS a, count(*) AS n FROM visits": [(2003, 6007)],
    "WITH t AS (SELECT ward, count(*) AS n FROM visits GROUP BY ward) SELECT sum(n) FROM t": [(6007,)],
    "SELECT sum(n) FROM (SELECT ward, count(*) AS n FROM visits GROUP BY ward) WHERE ward <> 'A'": [(4004,)],
    "SELECT ward, count(*) AS n FROM over_visits GROUP BY ward ORDER BY ward": [("A", 2003), ("B", 2002), ("C", 2002)],
    "SELECT (SELECT sum(n) FROM dp_query('SELECT ward, count(*) AS n FROM visits GROUP BY ward')) AS all_of_them": [(6007,)],
    "SELECT count(*) FROM visits WHERE day BETWEEN '2024-01-01' AND '2025-01-01'": [(6007,)],
    "SELECT count(*) + 1 AS more FROM visits": [(6008,)],
    "SELECT n FROM dp_query('SELECT count(*) AS n FROM visits', epsilon := 1)": [(6007,)],
    "SELECT n_low <= n AND n <= n_high, n FROM dp_query('SELECT count(*) AS n FROM visits', confidence := 0.95)": [(True, 6007)],
}  # fmt: skip
"""Counts of visits: the nearest that an answer is to is said, and how far noise may go is of a stated deviation."""
SCALE = 150.0
"""More than the standard deviation of any count here: a person's three rows at epsilon 0.5 and delta 1e-9, among up to three parts."""
SHAPES = {
    "SELECT ward, avg(cost) AS mean, sum(cost) AS total FROM visits GROUP BY ward ORDER BY mean DESC": 3,
    "SELECT month(day) AS m, count(*) FROM visits GROUP BY m ORDER BY m": 12,
    "SELECT date_trunc('month', day) AS m, count(*) AS n FROM visits GROUP BY ALL": 12,
    "SELECT median(cost), stddev(cost), min(cost), max(cost) FROM visits": 1,
    "SELECT mode(ward), count(*) FROM visits": 1,
    'SELECT "mode"(ward), "Sum"(cost) FROM visits': 1,
    "SELECT count(DISTINCT ward) FROM visits": 1,
    "SELECT ward, day > DATE '2024-06-01' AS late, count(*) FROM visits GROUP BY ROLLUP (ward, late)": 10,
    "SELECT quantile_cont(cost, [0.25, 0.75]) FROM visits": 1,
    "SELECT round(avg(cost), 1), count(*) / 12 FROM visits WHERE ward = 'B'": 1,
    "FROM dp_summarize('visits')": 3,
    "FROM dp_domain('visits')": 6,
    "FROM dp_budget('visits')": 1,
    "FROM dp_plan('SELECT ward, count(*) FROM visits GROUP BY ward')": 1,
    "FROM dp_marginals('visits', columns := ['ward'])": 3,
    "FROM dp_contributions('visits', epsilon := 0.1)": None,
    "SELECT ward, count(*) FROM dp_synthesize('visits', columns := ['ward', 'cost'], rows := 50) GROUP BY ward": None,
}
"""Statements by the number of their rows, where that is known without the data."""


def test_there_are_enough() -> None:
    """At least 60."""
    assert len(PUBLIC) + len(NOISY) + len(SHAPES) >= 60


@pytest.mark.parametrize("text", PUBLIC)
def test_public(hospital: Served, text: str) -> None:
    """Ordinary SQL over public tables, names and types gives what it gives everywhere, and costs nothing."""
    before = hospital.charges()
    assert [tuple(float(v) if type(v).__name__ == "Decimal" else v for v in row) for row in hospital.ask(text)] == PUBLIC[text]
    assert hospital.charges() == before


@pytest.mark.parametrize("text", NOISY)
def test_noisy(hospital: Served, text: str) -> None:
    """Aggregates over the granted table are those of dp_query: near the truth."""
    found = hospital.ask(text)
    assert len(found) == len(NOISY[text])
    for row, truth in zip(found, NOISY[text], strict=True):
        for value, expected in zip(row, truth, strict=True):
            if isinstance(expected, int) and not isinstance(expected, bool):
                assert near(float(value), expected, SCALE)
            else:
                assert value == expected


@pytest.mark.parametrize("text", SHAPES)
def test_answered(hospital: Served, text: str) -> None:
    """The answer has the rows that are known beforehand."""
    rows = hospital.ask(text)
    assert len(rows) == SHAPES[text] if SHAPES[text] is not None else rows


def test_a_plain_aggregate_is_charged_at_the_grant(hospital: Served) -> None:
    """The ledger names the analyst, and the epsilon is the grant's."""
    hospital.ask("SELECT sum(cost) FROM visits WHERE ward = 'C'")
    asked = "SELECT who, epsilon FROM dpsql.ledger WHERE action = 'charge' ORDER BY entry DESC LIMIT 1"
    who, epsilon = hospital.con.cursor().execute(asked).fetchall()[0]
    assert who == "analyst alice" and 0.45 < float(epsilon) <= 0.5
    assert hospital.ask("SELECT count(*) > 0 FROM dp_releases()") == [(True,)]
