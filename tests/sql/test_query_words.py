"""What is said about the answer of a query: dp_explain, notes of releases and plans, the report's page, messages."""

from __future__ import annotations

import re

import duckdb
import pytest

import dpsql
from dpsql.algebra.aggregates import SPELLINGS
from dpsql.estimates.measures import Measure
from dpsql.queries import stored
from dpsql.text import readable
from tests.sql.test_report import Page

pytestmark = pytest.mark.any_duckdb

SETUP = """
CREATE TABLE visits AS SELECT i % 900 AS patient, ['a', 'b', 'c'][1 + i % 3] AS ward, 'x' || i % 5 AS code, (i % 60)::INTEGER AS age,
    DATE '2024-01-01' + (i % 300)::INTEGER AS day, (i % 7)::DOUBLE AS "Cost in €" FROM range(9000) t(i);
CALL dp_protect('visits', epsilon := 50, delta := 1e-8, privacy_unit := 'patient', max_contributions := 10);
CALL dp_declare('visits', 'ward', categories := ['a', 'b', 'c', '<d>'], nullable := false);
CALL dp_declare('visits', 'age', lower := 0, upper := 60, nullable := false);
CALL dp_declare('visits', 'day', lower := DATE '2024-01-01', upper := DATE '2024-12-31', nullable := false);
CALL dp_declare('visits', 'Cost in €', lower := 0, upper := 10);
"""
ALL = """SELECT ward, count(*) AS n, count("Cost in €"), count("Cost in €") FILTER (WHERE age > 30), avg("Cost in €") FILTER (WHERE age > 30),
    corr(age, "Cost in €"), sum(age), median(age), quantile_cont(age, [0.1, 0.9]), max(day), mode(ward), histogram(ward),
    count(DISTINCT patient), bool_or(age > 3) FROM visits GROUP BY ward"""


@pytest.fixture(scope="module")
def con():
    connection = duckdb.connect()
    dpsql.load(connection, progress=False)
    connection.execute(SETUP)
    connection.execute(f"FROM dp_query($$ {ALL} $$, epsilon := 8, release := 'all')").fetchall()
    connection.execute(
        "FROM dp_query('SELECT code, count(*) AS n FROM visits GROUP BY code', epsilon := 8, release := 'codes', "
        "max_groups := 2, max_rows_per_group := 1, min_units := 20)"
    ).fetchall()
    yield connection
    connection.close()


def explained(con, release):
    found: dict[str, list[str]] = {}
    for about, text in con.execute("FROM dp_explain(?)", [release]).fetchall():
        found.setdefault(about, []).append(text)
    return found


def test_a_name_of_a_function_may_stand_in_quotes(con):
    """As DuckDB writes "mode" and "left" itself; what is an operator to DuckDB without quotes stays refused."""
    plain, quoted = (f"SELECT {mode}(ward), count(*) FROM visits WHERE {left}(ward, 1) < 'c'" for mode, left in (("mode", "left"), ('"Mode"', '"left"')))
    bought = con.execute("FROM dp_query(?, epsilon := 0.5)", [plain]).fetchall()
    assert con.execute("FROM dp_query(?, epsilon := 0.5)", [quoted]).fetchall() == bought
    with pytest.raises(duckdb.Error, match="two ways"):
        con.execute("""FROM dp_query('SELECT "coalesce"(sum(age), 1) FROM visits', epsilon := 0.5)""")


def test_aggregates_are_shown_as_in_sql(con):
    found = explained(con, "all")
    for text in ("count(*)", 'count("cost in €")', "FILTER (WHERE age > 30)", "by 1 key (4 public groups)", "FROM visits"):
        assert text in found["question"][0]
    assert "by ward" in found["groups"]
    assert "at most 10 rows of each patient are kept, at random: numbers are of the kept rows" in found["rows"]
    assert "day: values below 2024-01-01 count as 2024-01-01, values above 2024-12-31 as 2024-12-31" in found["bounds"]
    assert "age: values below 0 count as 0, values above 60 as 60" in found["bounds"]
    assert any("min and max" in text for text in found["values"])
    assert any("standard deviation" in text for text in found["noise"])
    assert "epsilon = 8" in found["price"][0]


def test_private_groups_and_bounds_on_groups_are_told(con):
    found = explained(con, "codes")
    said = "at most 2 groups of each patient, and at most 1 row of it in each, are kept, at random: numbers are of the kept rows"
    assert said in found["rows"]
    threshold = next(text for text in found["rows"] if "noisy number of patients" in text)
    assert "never one with fewer than 20 patients" in threshold
    assert float(re.search(r"probability of at most (\S+)", threshold)[1]) <= 1e-8
    notes = dict(con.execute("SELECT release, notes FROM dp_releases('visits')").fetchall())
    by_name = {name.split("-")[2]: text for name, text in notes.items()}
    assert said in by_name["codes"][0]
    assert not any("at most 10 rows" in note for note in by_name["codes"])
    assert any("at most 10 rows" in note for note in by_name["all"])


def test_what_is_explained_is_a_query(con):
    con.execute("FROM dp_marginals('visits', columns := ['ward'], epsilon := 1, release := 'table')").fetchall()
    with pytest.raises(duckdb.Error, match="not the answer of a query"):
        con.execute("FROM dp_explain('table')").fetchall()


@pytest.mark.parametrize("release", ["all", "codes"])
def test_the_report_shows_the_answer_with_its_intervals(con, tmp_path, release):
    path = tmp_path / "page.html"
    assert con.execute("SELECT publishable FROM dp_report(?, path := ?)", [release, str(path)]).fetchall() == [(True,)]
    text = path.read_text(encoding="utf-8")
    page = Page(text)
    assert page.sections[0] == "answer"
    table = page.tables[0]
    if release == "codes":
        answer = "SELECT code, n, n_low, n_high FROM dp_query('SELECT code, count(*) AS n FROM visits GROUP BY code ORDER BY code', "
        rows = con.execute(f"{answer} release := 'codes', max_groups := 2, max_rows_per_group := 1, min_units := 20, "
                           "confidence := 0.95)").fetchall()
        assert [line[1:] for line in [[None, *row] for row in table[1:]]] == [[c, f"{n:,} ({a:,} to {b:,})"] for c, n, a, b in rows]
    else:
        assert table[0][0] == "ward"
        assert [line[0] for line in table[1:]] == ["<d>", "a", "b", "c"]
        assert len(table[0]) == 14, "every aggregate has its column"
        assert "mode(ward)" in table[0]
        assert "<d>" not in text, "values are escaped"
    assert text.count("<figure>") == (1 if release == "codes" else 8)
    assert not re.search(r"\bnan\b", text, flags=re.IGNORECASE)


def test_the_report_of_a_query_is_headed_by_its_question(con, tmp_path):
    """And weeks of DATE columns, which are timestamps, are dates there, along a line."""
    path = tmp_path / "weeks.html"
    con.execute(
        "FROM dp_query('SELECT date_trunc(''week'', day) AS w, count(*) AS n FROM visits WHERE age > 9 GROUP BY w', epsilon := 4, release := 'weeks')"
    ).fetchall()
    con.execute("FROM dp_report('weeks', path := ?)", [str(path)]).fetchall()
    text = path.read_text(encoding="utf-8")
    assert re.search(r"<h1>(.*?)</h1>", text)[1] == "count(*) by date_trunc(&#x27;week&#x27;, day)"
    assert re.search(r'<p class="lead">(.*?)</p>', text)[1].startswith("The answer to a query: FROM visits WHERE age &gt;= 10. Released ")
    assert Page(text).tables[0][1][0] == "2024-01-01" and "<polyline" in text


def test_a_query_is_not_compared_with_the_table(con, tmp_path):
    with pytest.raises(duckdb.Error, match="compare"):
        con.execute("FROM dp_report('all', path := ?, compare := true)", [str(tmp_path / "page.html")]).fetchall()
    assert not list(tmp_path.iterdir())


def test_every_aggregate_of_a_release_is_read_back(con):
    held = con.execute("SELECT parameters FROM dp_releases('visits') WHERE release LIKE '%-all-%'").fetchall()[0][0]
    import json

    question = (json.loads(held) if isinstance(held, str) else held)["query"]
    found = stored.wanted(question)
    assert sorted(one.text for one in found) == sorted(question["aggregates"])
    assert {one.function for one in found} <= set(SPELLINGS.values()) | {"count_units", "count_distinct"}


def test_messages_show_names_as_they_were_written(con):
    with pytest.raises(duckdb.Error, match=r"bounds := \{'length\(code\)': \[lower, upper\]\}"):
        con.execute("FROM dp_query('SELECT avg(length(code)) FROM visits', epsilon := 1)").fetchall()
    assert con.execute("SELECT measures, columns FROM dp_plan('SELECT count(*) FROM visits GROUP BY age // 10', epsilon := 1)").fetchall() == [
        ("count(*) by 1 key (7 public groups)", ["age // 10"])
    ]


def test_quotes_that_are_needed_stay():
    assert readable.expression('"select" + "x y" + "abc" = \'"abc"\'') == '"select" + "x y" + abc = \'"abc"\''
    assert readable.aggregate("no aggregate") == "no aggregate"
    assert Measure("count").lengths == (1,)


@pytest.mark.parametrize("order", ["n DESC", "2 DESC", "count(*) DESC"])
def test_a_list_of_the_largest_groups_says_where_noise_alone_is(capfd, order):
    with duckdb.connect() as con:
        con.execute("CREATE TABLE t AS SELECT i AS p, CASE WHEN i < 400 THEN i % 2 ELSE i END::INTEGER AS x FROM range(1000) r(i)")
        dpsql.load(con, progress=True)
        con.execute("CALL dp_protect('t', epsilon := 50, delta := 1e-8, privacy_unit := 'p', max_contributions := 1)")
        con.execute("CALL dp_declare('t', 'x', lower := 0, upper := 9999, nullable := false)")
        text = f"FROM dp_query('SELECT x, count(*) AS n FROM t GROUP BY x ORDER BY {order} LIMIT {{}}', epsilon := 1)"
        assert {x for x, _ in con.execute(text.format(2)).fetchall()} == {0, 1}
        assert "noise alone" not in capfd.readouterr().err
        assert len(con.execute(text.format(20)).fetchall()) == 20
        said = capfd.readouterr().err
        [(sigma,)] = con.execute("SELECT noise_scale FROM dp_plan('SELECT x, count(*) AS n FROM t GROUP BY x', epsilon := 1) WHERE operation = 'query'").fetchall()
        reach = re.search("the largest 20 of 10,000 groups: of so many, noise alone reaches about ([0-9.]+),", said)
        assert reach is not None and float(reach[1]) == pytest.approx(sigma * 4.292, rel=0.01)


@pytest.mark.parametrize(
    ("text", "epsilon", "said"),
    [
        ("SELECT g, avg(x) AS m FROM t GROUP BY g", 0.5, ["noise hides avg(x) in 1 of 3 groups"]),
        ("SELECT g, median(x) AS m, max(x) AS top FROM t GROUP BY g", 1, ["noise hides median(x) in 1 of 3 groups"]),
        ("SELECT avg(x) FILTER (WHERE g = 'c') AS m, avg(x) AS all FROM t", 0.5, ["noise hides avg(x) FILTER (WHERE g = 'c') here"]),
        ("SELECT g, avg(x) AS m, count(*) AS n FROM t WHERE g <> 'c' GROUP BY g", 0.5, []),
        ("SELECT g, sum(x) AS s, stddev(x) AS d FROM t GROUP BY g", 0.5, []),
    ],
)
def test_what_noise_hides_is_said_where_no_interval_says_it(capfd, text, epsilon, said):
    with duckdb.connect() as con:
        con.execute("CREATE TABLE t AS SELECT i AS p, CASE WHEN i < 5 THEN 'c' WHEN i % 2 = 0 THEN 'a' ELSE 'b' END AS g, (i % 100)::DOUBLE AS x FROM range(4000) r(i)")
        dpsql.load(con, progress=True)
        con.execute("CALL dp_protect('t', epsilon := 50, delta := 1e-8, privacy_unit := 'p', max_contributions := 1)")
        con.execute("CALL dp_declare('t', 'x', lower := 0, upper := 100); CALL dp_declare('t', 'g', categories := ['a', 'b', 'c'], nullable := false)")
        con.execute("FROM dp_query(?, epsilon := ?)", [text, epsilon]).fetchall()
        lines = [line for line in capfd.readouterr().err.splitlines() if "noise hides" in line]
        assert len(lines) == len(said) and all(words in line for words, line in zip(said, lines, strict=True))
        con.execute("FROM dp_query(?, epsilon := ?, confidence := 0.9)", [text, epsilon]).fetchall()
        assert "noise hides" not in capfd.readouterr().err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SELECT month(seen) AS m, count(*) AS n FROM t GROUP BY m", True),
        ("SELECT count(*) AS n FROM t WHERE seen::DATE = DATE '2024-01-01'", True),
        ("WITH a AS (SELECT date_trunc('day', seen) AS d FROM t) SELECT count(DISTINCT d) AS n FROM a", True),
        ("SELECT avg(hour(seen)) AS h FROM t", True),
        ("SELECT month(seen AT TIME ZONE 'Asia/Tokyo') AS m, count(*) AS n FROM t GROUP BY m", False),
        ("SELECT count(*) AS n FROM t WHERE seen > TIMESTAMPTZ '2024-01-01 00:00:00+00'", False),
        ("SELECT month(local) AS m, count(*) AS n FROM t GROUP BY m", False),
    ],
)
def test_days_and_months_of_moments_with_a_zone_are_said_to_be_of_utc(capfd, text, said):
    with duckdb.connect() as con:
        con.execute("CREATE TABLE t AS SELECT i AS p, TIMESTAMPTZ '2024-01-01 00:00:00+00' + to_hours(i) AS seen, TIMESTAMP '2024-01-01' + to_hours(i) AS local FROM range(2000) r(i)")
        dpsql.load(con, progress=True)
        con.execute("CALL dp_protect('t', epsilon := 50, delta := 1e-8, privacy_unit := 'p', max_contributions := 1)")
        for column in ("seen", "local"):
            con.execute(f"CALL dp_declare('t', '{column}', lower := '2024-01-01 00:00:00', upper := '2024-04-01 00:00:00', nullable := false)")
        con.execute("FROM dp_query(?, epsilon := 1)", [text]).fetchall()
        assert ("days and months of seen are of UTC" in capfd.readouterr().err) == said
