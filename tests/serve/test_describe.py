"""Names and types before anything is bought: a description says exactly what the answer then has, and probes never buy."""

from __future__ import annotations

import pytest
from served_room import Served

from dpsql.serve.passed import Column, Refused

QUERIES = (
    "SELECT count(*) FROM visits", "SELECT ward, count(*) AS n, avg(cost) AS mean, sum(cost), sum(cost::INTEGER) FROM visits GROUP BY ward",
    "SELECT quantile_cont(cost, [0.25, 0.75]), median(cost), quantile_disc(cost, 0.5), percentile_cont(0.9) WITHIN GROUP (ORDER BY cost) FROM visits",
    "SELECT min(day), max(day), max(day) - min(day), mode(ward), histogram(ward), count(DISTINCT ward) FROM visits",
    "SELECT stddev(cost), var_pop(cost), corr(cost, cost // 10), bool_or(cost > 5), count_if(cost > 5) FROM visits",
    "SELECT count(*) FROM visits WHERE ward IN (SELECT ward FROM wards WHERE building = 'two') AND ward NOT IN ('C')",
    "SELECT count(*) FROM visits WHERE EXISTS (SELECT 1 FROM wards WHERE wards.ward = visits.ward) AND cost NOT BETWEEN 5 AND 6",
    "SELECT count(*) FROM visits WHERE ward LIKE 'A%' OR ward ILIKE 'b%' AND NOT (cost = 3) AND ward IS DISTINCT FROM 'C'",
    "SELECT month(day), count(*) FROM visits GROUP BY 1", "SELECT extract(month FROM day) AS m, count(*) FROM visits GROUP BY m",
    "SELECT date_trunc('month', visit_at) AS m, sum(cost) FILTER (WHERE ward = 'A') AS a FROM visits GROUP BY m ORDER BY m LIMIT 3",
    "SELECT time_bucket(INTERVAL '1 month', day) AS m, count(*) FROM visits WHERE day >= DATE '2024-02-01' - INTERVAL 7 DAY GROUP BY m",
    "SELECT cost // 100 AS h, count(*) FROM visits GROUP BY h", "SELECT sum(cost * 2 + 1), avg(cost * cost), sum(-cost), sum(abs(cost)) FROM visits",
    "SELECT CASE WHEN cost > 500 THEN 'high' ELSE 'low' END AS c, count(*) FROM visits GROUP BY c",
    "SELECT coalesce(ward, 'x') AS w, upper(ward) || '!' AS u, substring(ward FROM 1 FOR 1) AS s, count(*) FROM visits GROUP BY ALL",
    "SELECT CAST(avg(cost) AS INTEGER), round(avg(cost), 2), floor(sum(cost) / 100), sum(cost) / nullif(count(*), 0) AS m FROM visits",
    "SELECT ward, day > DATE '2024-06-01' AS late, grouping(ward), count(*) FROM visits GROUP BY ROLLUP (ward, late)",
    "SELECT ward, count(*) FROM visits GROUP BY ward HAVING count(*) > 5 ORDER BY 2 DESC NULLS LAST LIMIT 3 OFFSET 1",
    "SELECT w.building, count(*) FROM visits v JOIN wards w ON v.ward = w.ward GROUP BY w.building",
    "SELECT building, count(*), max(beds) FROM visits, wards WHERE visits.ward = wards.ward GROUP BY building",
    "SELECT ward, sum(n) OVER (ORDER BY ward), n / sum(n) OVER () AS share FROM (SELECT ward, count(*) AS n FROM visits GROUP BY ward)",
    "SELECT ward, rank() OVER (ORDER BY count(*) DESC), count(DISTINCT patient) FROM visits GROUP BY ward",
    "SELECT ward, count(*) AS n FROM visits GROUP BY ward UNION ALL SELECT 'all', count(*) FROM visits",
    "WITH t AS (SELECT * FROM visits WHERE cost > 5) SELECT ward, count(*) FROM t GROUP BY ward",
    "WITH t AS (SELECT ward, count(*) AS n FROM visits GROUP BY ward) SELECT avg(n), list(ward ORDER BY ward) FROM t",
    "SELECT avg(n), count(*) FROM (SELECT patient, count(*) AS n FROM visits GROUP BY patient)", "SELECT DISTINCT ward FROM visits",
    "SELECT building, sum(n), CAST(max(n) AS DOUBLE) AS most FROM wards JOIN (SELECT ward, count(*) AS n FROM visits GROUP BY ward) USING (ward) GROUP BY 1",
    "SELECT avg(cost - before) FROM (SELECT cost, lag(cost) OVER (PARTITION BY patient ORDER BY day) AS before FROM visits)",
    "SELECT ward, avg(cost) FROM over_visits GROUP BY ward",
)  # fmt: skip
"""What is answered by dp_query: named as DuckDB names it."""
OTHERS = (
    "FROM dp_query('SELECT ward, count(*) AS n, avg(cost) AS m FROM visits GROUP BY ward', confidence := 0.9)",
    "FROM dp_query('SELECT count(*) AS n FROM visits WHERE cost > (SELECT avg(cost) FROM visits)', adaptive := true)",
    "SELECT w.building, q.n * 2 AS twice FROM wards w JOIN dp_query('SELECT ward, count(*) AS n FROM visits GROUP BY ward') q USING (ward)",
    "SELECT (SELECT sum(n) FROM dp_query('SELECT ward, count(*) AS n FROM visits GROUP BY ward')) AS s, beds FROM wards",
    "FROM dp_summarize('visits')", "SELECT ward FROM wards LIMIT 1", "SELECT *, beds / 2 AS half, [beds] AS l, {'a': beds} AS s FROM wards", "FROM over_notes",
    "SELECT place, width * 2, since + INTERVAL 1 DAY FROM other.places", "FROM dp_budget()", "FROM dp_releases()", "FROM dp_ledger()",
    "FROM dp_domain('visits')", "SELECT affordable, notes FROM dp_plan('SELECT count(*) FROM visits')", "SHOW TABLES", "DESCRIBE visits",
    "FROM information_schema.columns", "SELECT 1, 'x', NULL, 1.5, DATE '2024-01-01', 5::HUGEINT, [1], MAP {1: 'a'}, INTERVAL 1 DAY, uuid()",
    "FROM dp_contributions('visits', epsilon := 0.1)", "SUMMARIZE wards", "PIVOT wards ON building IN ('one', 'two') USING sum(beds)",
    "FROM dp_histogram('visits', column_name := 'ward', domain := ['A', 'B', 'C'], epsilon := 0.1)", "SELECT #1, #2 FROM wards",
)  # fmt: skip
PROBES = (
    "SELECT * FROM visits LIMIT 0", "SELECT cost, patient FROM visits WHERE 1 = 0", "SELECT * FROM visits WHERE false", "FROM over_visits LIMIT 0",
    "SELECT ward, sum(cost) FROM visits GROUP BY ward LIMIT 0", "SELECT ward, sum(cost) FROM visits WHERE 1 = 0 GROUP BY ward",
    "SELECT * FROM (SELECT ward, avg(cost) AS m FROM visits GROUP BY ward) t WHERE 1 = 0", "SELECT * FROM (SELECT * FROM visits) t LIMIT 0",
    "SELECT * FROM (SELECT ward, avg(cost) AS m FROM visits GROUP BY ward LIMIT 0) t", "SELECT 2 * m FROM (SELECT avg(cost) AS m FROM visits WHERE false AND ward = 'A') t LIMIT 0",
    "SELECT * FROM dp_query('SELECT ward, count(*) FROM visits GROUP BY ward') LIMIT 0", "SELECT * FROM dp_summarize('visits') WHERE 1 = 0",
    "SELECT w.*, q.n FROM wards w JOIN dp_query('SELECT ward, count(*) AS n FROM visits GROUP BY ward') q USING (ward) LIMIT 0",
    "SELECT * FROM wards LIMIT 0", "SELECT visits.*, beds FROM visits JOIN wards USING (ward) WHERE 1 = 0", "WITH t AS (FROM visits) SELECT cost FROM t LIMIT 0",
)  # fmt: skip


@pytest.mark.parametrize("text", QUERIES)
def test_queries(hospital: Served, text: str) -> None:
    """The description is free; the answer has these columns, which are called as DuckDB calls them."""
    before = hospital.charges()
    described = hospital.room.describe("alice", text)
    assert hospital.charges() == before
    assert hospital.room.ask("alice", text).columns == described
    cursor = hospital.con.cursor()
    assert [column.name for column in described] == [str(row[0]) for row in cursor.execute(f"DESCRIBE {text}").fetchall()]


@pytest.mark.parametrize("text", OTHERS)
def test_others(hospital: Served, text: str) -> None:
    """So it is for calls, catalogue and public tables, alone and together."""
    before = hospital.charges()
    described = hospital.room.describe("alice", text)
    assert hospital.charges() == before
    assert hospital.room.ask("alice", text).columns == described


@pytest.mark.parametrize("text", PROBES)
def test_probes(hospital: Served, text: str) -> None:
    """What needs no row has none, in the types that it is described by; nothing is bought."""
    before = hospital.state()
    answer = hospital.room.ask("alice", text)
    assert list(answer.rows) == [] and answer.columns == hospital.room.describe("alice", text) != ()
    assert hospital.state() == before


def test_aggregates_of_no_rows(hospital: Served) -> None:
    """An aggregate under a condition that is false by itself is known without the data, and in the types of its answer."""
    before = hospital.state()
    answer = hospital.room.ask("alice", "SELECT count(*), sum(cost::INTEGER), max(day), avg(cost) FROM visits WHERE 1 = 0")
    assert list(answer.rows) == [(0, None, None, None)] and [c.type for c in answer.columns] == ["BIGINT", "HUGEINT", "DATE", "DOUBLE"]
    assert hospital.state() == before


@pytest.mark.parametrize(
    "text",
    ["SELECT count(*) FROM visits WHERE 1 = 1", "SELECT count(*) FROM visits LIMIT 1", "SELECT count(*) FROM visits WHERE false OR ward = 'A'",
     "SELECT * FROM (SELECT ward, count(*) FROM visits WHERE true GROUP BY ward) LIMIT 2"],
)  # fmt: skip
def test_what_is_no_probe_is_answered(hospital: Served, text: str) -> None:
    """A condition that may hold is asked for."""
    assert hospital.ask(text)


def test_descriptions_are_refused_as_the_question_is(hospital: Served) -> None:
    """A scan, a hidden table, a missing column, a call whose columns follow from what is bought."""
    for text, kind in {
        "SELECT cost FROM visits": "refused", "FROM payroll": "no_table", "SELECT nothing FROM wards": "no_column",
        "SELECT sum(nothing) FROM visits": "no_column", "SELECT n FROM dp_query('SELECT count(*) AS m FROM visits')": "no_column",
        "FROM dp_marginals('visits', columns := ['day'])": "unsupported", "EXPLAIN FROM wards": "refused", "SELECT": "syntax",
    }.items():  # fmt: skip
        with pytest.raises(Refused) as refused:
            hospital.room.describe("alice", text)
        assert refused.value.kind == kind, text


def test_nothing_is_bought_for_a_statement_that_does_not_bind(hospital: Served) -> None:
    """A misspelt name around a call is found before the call is made."""
    before = hospital.charges()
    for text in (
        "SELECT nothing FROM dp_query('SELECT count(*) AS n FROM visits WHERE cost > 77')",
        "SELECT n + ward FROM dp_query('SELECT count(*) AS n FROM visits WHERE cost > 77'), wards WHERE beds = 'x'::DATE",
    ):
        assert hospital.refused(text).kind == "no_column"
    assert hospital.charges() == before


def test_the_copy_follows_the_schema(hospital: Served) -> None:
    """A column that is added is described at once; types of the custodian's own are as they are written."""
    cursor = hospital.con.cursor()
    before = hospital.room.describe("alice", "FROM other.places")
    cursor.execute("ALTER TABLE other.places ADD COLUMN open_on ENUM('mon', 'tue')")
    try:
        assert hospital.room.describe("alice", "FROM other.places") == (*before, Column("open_on", "ENUM('mon', 'tue')"))
    finally:
        cursor.execute("ALTER TABLE other.places DROP COLUMN open_on")


def test_the_copy_has_no_row(hospital: Served) -> None:
    """Whatever is asked of the copy, it holds nothing."""
    hospital.room.describe("alice", "FROM wards")
    con = next(reversed(hospital.room._copy._made_of.values()))
    listed = con.cursor().execute("SELECT database_name, schema_name, table_name, estimated_size FROM duckdb_tables()").fetchall()
    assert ("hospital", "main", "visits", 0) in listed and {size for *_, size in listed} == {0}
    assert con.cursor().execute("SELECT value FROM duckdb_settings() WHERE name = 'enable_external_access'").fetchall() == [("false",)]


@pytest.mark.parametrize(("text", "called"), [("SELECT '5' + 2", "+"), ("SELECT -'5'", "-"), ("SELECT abs('5')", "abs"), ("SELECT '2024-01-01' + INTERVAL 1 DAY", "+"), ("SELECT ward + 1 FROM wards", "+")])  # fmt: skip
def test_what_has_no_such_types(hospital: Served, text: str, called: str) -> None:
    """The line says what was called, and how types are said; nothing of DuckDB's words is in it."""
    refused = hospital.refused(text)
    assert refused.kind == "no_column" and refused.text.startswith(f"{called} does not take values of these types: say the types, as in CAST('5' AS INTEGER)")
