"""dp_query, dp_summarize, dp_explain and dp_plan of a query, through SQL: what is bought, what is free, what comes out."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from statistics import NormalDist

import duckdb
import pytest
from noisy import near
from prepared import copied

import dpsql

SURE = NormalDist().inv_cdf(1 - 1e-9)
"""Noise beyond this many deviations comes once in 5e8 draws: the false alarm of each comparison."""
VISITS = """
CREATE TABLE visits AS SELECT i % 500 AS patient, ['er', 'icu', 'lab'][1 + i % 3] AS ward, (i * 37 % 1000) / 10.0::DOUBLE AS cost,
    DATE '2025-01-01' + (i % 365)::INTEGER AS day, (i * 13 % 90)::INTEGER AS age, i % 7 = 0 AS urgent FROM range(2000) t(i)
"""


@pytest.fixture(scope="module")
def visits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of visits, four of each patient, with more budget than noise: so answers are near the truth."""
    path = tmp_path_factory.mktemp("made") / "visits_there.duckdb"
    with duckdb.connect(str(path)) as made:
        dpsql.load(made, progress=False)
        made.execute(VISITS)
        made.execute("CALL dp_protect('visits', epsilon := 1000, delta := 1e-6, privacy_unit := 'patient', max_contributions := 4)")
        made.execute("CALL dp_declare('visits', 'ward', categories := ['er', 'icu', 'lab'], nullable := false)")
        for column, bounds in (("cost", "0, upper := 100"), ("age", "0, upper := 90"), ("day", "'2025-01-01', upper := '2025-12-31'")):
            made.execute(f"CALL dp_declare('visits', '{column}', lower := {bounds}, nullable := false)")
    return path


@pytest.fixture(scope="module")
def unsold(visits: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    """For what is refused."""
    with copied(visits, tmp_path_factory.mktemp("unsold"), progress=False) as connection:
        yield connection


@pytest.fixture
def con(visits: Path, tmp_path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    with copied(visits, tmp_path, progress=False) as connection:
        yield connection


def releases(con: duckdb.DuckDBPyConnection) -> list[tuple[str, float]]:
    return con.execute("SELECT release, epsilon FROM dp_releases() ORDER BY ALL").fetchall()


def ask(con: duckdb.DuckDBPyConnection, text: str, more: str = "epsilon := 200") -> list[tuple[object, ...]]:
    return con.execute(f"FROM dp_query($${text}$${', ' + more if more else ''})").fetchall()


def scale_of(con: duckdb.DuckDBPyConnection, text: str, epsilon: float) -> float:
    """Return the deviation of the noise of a count, of the first release that a question buys."""
    scale, mechanism = con.execute(f"SELECT noise_scale, mechanism FROM dp_plan($${text}$$, epsilon := {epsilon})").fetchall()[0]
    assert mechanism == "gaussian"
    return float(scale)


def test_an_answer_has_the_columns_types_and_about_the_values_of_the_query(con: duckdb.DuckDBPyConnection) -> None:
    text = (
        "SELECT ward, count(*) AS n, avg(cost) AS mean, sum(age) AS ages, min(day) AS first, median(cost) AS middle, "
        "quantile_disc(age, 0.9) AS old, bool_or(urgent) AS any_urgent, count(DISTINCT patient) AS people FROM visits "
        "GROUP BY ward ORDER BY ward"
    )
    con.execute("CALL dp_declare('visits', 'urgent', categories := [true, false])")
    answer = con.execute(f"FROM dp_query($${text}$$, epsilon := 900)")
    described, rows = answer.description, answer.fetchall()
    exact = con.execute(text)
    assert [d[:2] for d in described] == [d[:2] for d in exact.description]
    truth = exact.fetchall()
    assert near([[row[1], row[8]] for row in rows], [[row[1], row[8]] for row in truth], scale_of(con, text, 900))
    for row, wanted in zip(rows, truth, strict=True):
        assert row[0] == wanted[0] and row[7] is True
        assert row[2] == pytest.approx(wanted[2], abs=2) and row[3] == pytest.approx(wanted[3], rel=0.05)
        assert abs((row[4] - wanted[4]).days) <= 40 and row[5] == pytest.approx(wanted[5], abs=8)  # a day of a ward has two rows
        assert row[6] == pytest.approx(wanted[6], abs=8)


def test_what_comes_after_the_aggregates_is_free(con: duckdb.DuckDBPyConnection) -> None:
    ask(con, "SELECT ward, count(*) AS n, avg(cost) FROM visits GROUP BY ward")
    bought = releases(con)
    first = dict(ask(con, "SELECT ward, avg(cost) AS c FROM visits GROUP BY ward HAVING count(*) > 10 ORDER BY c", ""))
    assert dict(ask(con, "SELECT ward, avg(cost) FROM visits GROUP BY ward", "epsilon := 100")) == first
    assert ask(con, "SELECT max(n) - min(n) FROM (SELECT WARD, count(*) AS n FROM visits GROUP BY visits.ward)", "")
    assert ask(con, "SELECT ward, rank() OVER (ORDER BY count(*)) AS r FROM visits GROUP BY ALL QUALIFY r = 1 LIMIT 1", "")
    assert releases(con) == bought and len(bought) == 1


def test_another_question_is_another_release(con: duckdb.DuckDBPyConnection) -> None:
    asked = [
        ("SELECT ward, avg(cost) FROM visits GROUP BY ward", "epsilon := 20"),
        ("SELECT ward, avg(cost) FROM visits WHERE age > 40 GROUP BY ward", "epsilon := 20"),
        ("SELECT ward, avg(age) FROM visits GROUP BY ward", "epsilon := 20"),
        ("SELECT urgent, avg(cost) FROM visits GROUP BY urgent", "epsilon := 20"),
        ("SELECT ward, avg(cost) FROM visits GROUP BY ward", "epsilon := 30"),
        ("SELECT ward, avg(cost) FROM visits GROUP BY ward", "epsilon := 20, bounds := {'cost': [0, 50]}"),
        ("SELECT ward, avg(cost) FROM visits GROUP BY ward", "epsilon := 20, max_groups := 1"),
        ("SELECT ward, avg(cost) FROM visits GROUP BY ward", "epsilon := 20, groups := 'private'"),
        ("SELECT ward, avg(cost) FILTER (WHERE urgent) FROM visits GROUP BY ward", "epsilon := 20"),
    ]
    for number, (text, more) in enumerate(asked):
        ask(con, text, more)
        assert len(releases(con)) == number + 1, (text, more)
    with pytest.raises(duckdb.Error, match="epsilon"):
        ask(con, "SELECT sum(cost) FROM visits WHERE age = 3", "")
    assert len(releases(con)) == len(asked)


def test_counts_are_summed_from_a_bought_table(con: duckdb.DuckDBPyConnection) -> None:
    table = dict(con.execute("SELECT ward, n FROM dp_marginals('visits', columns := ['ward'], epsilon := 200)").fetchall())
    assert dict(ask(con, "SELECT ward, count(*) FROM visits GROUP BY ward", "epsilon := 100")) == table
    assert ask(con, "SELECT count(*) FROM visits", "") == [(sum(table.values()),)]
    assert len(releases(con)) == 1
    said = con.execute("SELECT bought, release, notes FROM dp_plan('SELECT count(*) FROM visits', epsilon := 1)").fetchall()
    assert said[0][0] is True and said[0][1] == releases(con)[0][0] and any("free" in note for note in said[0][2])
    ask(con, "SELECT ward, count(*) FROM visits WHERE age > 3 GROUP BY ward", "epsilon := 100")
    assert len(releases(con)) == 2


def test_asked_again_a_call_gives_what_it_bought_whatever_was_bought_and_declared_since(con: duckdb.DuckDBPyConnection) -> None:
    """Also where its number stands in the text of another question, which would be a new one with another number."""
    mean, above = "SELECT avg(cost) AS mean FROM visits", "SELECT count(*) AS n FROM visits WHERE cost > (SELECT avg(cost) FROM visits)"
    first = [ask(con, mean, "epsilon := 0.5"), ask(con, above, "epsilon := 1, adaptive := true")]
    better = ask(con, "SELECT avg(cost) AS mean, count(*) AS n FROM visits", "epsilon := 50")
    assert len({first[0][0][0], better[0][0]}) == 2
    con.execute("CALL dp_declare('visits', 'cost', lower := 0, upper := 120, nullable := false)")  # what was remembered is forgotten
    sold = releases(con)
    assert [ask(con, mean, "epsilon := 0.5"), ask(con, above, "epsilon := 1, adaptive := true")] == first
    # at another epsilon, or at none, the most accurate one answers
    assert ask(con, mean, "epsilon := 2")[0][0] == ask(con, mean, "")[0][0] == better[0][0]
    assert releases(con) == sold


def test_several_cores_share_the_loss(con: duckdb.DuckDBPyConnection) -> None:
    text = "SELECT 'all' AS w, count(*) FROM visits UNION ALL SELECT ward, count(*) FROM visits WHERE age > 9 GROUP BY ward"
    before = con.execute("SELECT epsilon_spent FROM dp_budget()").fetchall()[0][0]
    ask(con, text, "epsilon := 1")
    spent = con.execute("SELECT epsilon_spent FROM dp_budget()").fetchall()[0][0]
    assert before == 0 and len(releases(con)) == 2 and 0.95 < spent < 1.03
    bought = releases(con)
    ask(con, text, "epsilon := 1")
    assert releases(con) == bought


def test_grouping_sets_are_releases_of_their_own(con: duckdb.DuckDBPyConnection) -> None:
    rows = ask(con, "SELECT ward, urgent, count(*), grouping(ward, urgent) FROM visits GROUP BY ROLLUP (ward, urgent)", "epsilon := 900")
    exact = con.execute("SELECT ward, urgent, count(*), grouping(ward, urgent) FROM visits GROUP BY ROLLUP (ward, urgent)").fetchall()
    there = {(w, u, g): n for w, u, n, g in exact}
    assert len(releases(con)) == 3 and set(there) <= {(w, u, g) for w, u, _, g in rows}
    for ward, urgent, n, sets in rows:
        assert n == pytest.approx(there.get((ward, urgent, sets), 0), abs=15)


def test_intervals_are_around_the_answer_and_as_wide_as_the_noise(con: duckdb.DuckDBPyConnection) -> None:
    rows = con.execute(
        "SELECT n, n_low, n_high, r, r_low, r_high FROM "
        "dp_query('SELECT count(*) AS n, sum(cost) / count(*) AS r FROM visits', epsilon := 1, confidence := 0.95)"
    ).fetchall()
    n, low, high, ratio, ratio_low, ratio_high = rows[0]
    scale = con.execute("SELECT noise_scale FROM dp_plan('SELECT count(*) AS n, sum(cost) FROM visits', epsilon := 1)").fetchall()[0][0]
    assert low < n < high and ratio_low < ratio < ratio_high
    # A count is the sum of three counters: of both ends of the bounds, and of NULL. Of 1,000 draws: SURE deviations are .2
    assert (high - low) / (2 * 1.96 * scale * math.sqrt(3)) == pytest.approx(1, abs=0.2)
    with pytest.raises(duckdb.Error, match="others hand its columns on"):
        ask(con, "SELECT max(n) FROM (SELECT ward, count(*) AS n FROM visits GROUP BY ward)", "epsilon := 1, confidence := 0.9")


def test_a_scalar_subquery_is_answered_first_only_where_that_is_said(con: duckdb.DuckDBPyConnection) -> None:
    text = "SELECT count(*) FROM visits WHERE cost > (SELECT avg(cost) FROM visits)"
    with pytest.raises(duckdb.Error, match="adaptive := true"):
        ask(con, text)
    assert releases(con) == []
    first = ask(con, text, "epsilon := 400, adaptive := true")
    assert [e for _, e in releases(con)] == [200, 200]
    # the average is 49.95, with noise of less than .05; two rows have each value
    assert near(first[0][0], 1000, scale_of(con, "SELECT count(*) FROM visits WHERE cost > 49.95", 200), also=2.5)
    assert ask(con, text, "epsilon := 400, adaptive := true") == first and len(releases(con)) == 2


def test_googlesql_s_clause_is_understood(con: duckdb.DuckDBPyConnection) -> None:
    clause = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 300, max_groups_contributed = 2, privacy_unit_column = patient)"
    rows = ask(con, f"{clause} ward, sum(cost, contribution_bounds_per_group => (0, 50)) FROM visits GROUP BY ward", "")
    assert len(rows) == 3 and releases(con)[0][1] == 300
    said = con.execute("SELECT string_agg(explanation, ' ') FROM dp_explain(?)", [releases(con)[0][0]]).fetchall()[0][0]
    assert "at most 2 groups of each patient" in said and "above 50" in said
    for bad in ("OPTIONS (speed = 3)", "OPTIONS (privacy_unit_column = ward)", "OPTIONS (epsilon = 1) "):
        with pytest.raises(duckdb.Error, match=r"sql|epsilon"):
            ask(con, f"SELECT WITH DIFFERENTIAL_PRIVACY {bad} count(*) FROM visits")
    assert len(releases(con)) == 1


def test_a_summary_is_one_release(con: duckdb.DuckDBPyConnection) -> None:
    found = {row[0]: row for row in con.execute("FROM dp_summarize('visits', epsilon := 900)").fetchall()}
    exact = {row[0]: row for row in con.execute("SUMMARIZE visits").fetchall()}
    assert len(releases(con)) == 1 and set(found) == {"ward", "cost", "day", "age", "urgent"}
    assert [d[0] for d in con.execute("FROM dp_summarize('visits')").description][:11] == [
        d[0] for d in con.execute("SUMMARIZE visits").description
    ][:11]
    assert found["ward"][2:5] == ("er", "lab", 3)
    for column in ("cost", "age"):
        assert float(found[column][5]) == pytest.approx(float(exact[column][5]), abs=2)
        assert float(found[column][8]) == pytest.approx(float(exact[column][8]), abs=4)
        assert near(found[column][10], 2000, scale_of(con, "SELECT count(cost) FROM visits", 100))  # a ninth of epsilon or more is each one's
    assert con.execute("SELECT min, max FROM dp_summarize('visits') WHERE column_name = 'day'").fetchall()[0][0].startswith("2025-01")
    assert len(releases(con)) == 1


def test_a_plan_buys_and_reads_nothing(con: duckdb.DuckDBPyConnection) -> None:
    text = "SELECT ward, avg(cost) FROM visits GROUP BY ROLLUP (ward)"
    rows = con.execute("SELECT release, measures, epsilon, bought, columns FROM dp_plan(?, epsilon := 3)", [text]).fetchall()
    assert len(rows) == 2 and not any(row[3] for row in rows) and releases(con) == [] and rows[0][4] == ["ward"]
    ask(con, text, "epsilon := 3")
    assert sorted(name for name, _ in releases(con)) == sorted(row[0] for row in rows)
    assert all(row[0] for row in con.execute("SELECT bought FROM dp_plan(?, epsilon := 3)", [text]).fetchall())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SELECT * FROM visits", "raw rows"),
        ("SELECT patient, count(*) FROM visits GROUP BY patient", "privacy unit"),
        ("SELECT ward, cost FROM visits GROUP BY ward", "neither a group key"),
        ("SELECT string_agg(ward, ',') FROM visits", "lists rows"),
        ("SELECT max(patient) FROM visits", "privacy unit"),
        ("SELECT count(*) FROM (SELECT * FROM visits LIMIT 10)", "LIMIT"),
        ("SELECT count(*) FROM visits WHERE random() < 0.5", "random"),
        ("WITH RECURSIVE r AS (SELECT 1 AS x UNION ALL SELECT x + 1 FROM r) SELECT count(*) FROM visits", "RECURSIVE"),
        ("SELECT getenv('HOME'), count(*) FROM visits", "getenv"),
        ("SELECT count(*) FROM query('FROM visits')", "query"),
        ("SELECT count(*) FROM visits, visits AS other", ""),
        ("SELECT sum(patient * 2) FROM visits", "bounds"),
        ("FROM visits", "raw rows"),
        ("SELECT 1", "no protected table"),
        ("DELETE FROM visits", ""),
        ("SELECT count(*) FROM visits; DROP TABLE visits", "statements"),
        ("SELECT count(*) FROM nowhere", "no such table"),
    ],
)
def test_what_is_refused_says_why_and_costs_nothing(unsold: duckdb.DuckDBPyConnection, text: str, said: str) -> None:
    con = unsold
    with pytest.raises(duckdb.Error) as found:
        ask(con, text, "epsilon := 1")
    assert said.lower() in str(found.value).lower() and "AttributeError" not in str(found.value)
    assert releases(con) == [] and con.execute("SELECT count(*) FROM visits").fetchall() == [(2000,)]


@pytest.mark.parametrize("shadow", ["round(a, b)", "abs(a)", '"+"(a, b)', '"||"(a, b)', "sum(a)"])
def test_macros_never_come_between_an_answer_and_its_numbers(con: duckdb.DuckDBPyConnection, shadow: str) -> None:
    """A macro of the database is refused by name; one of the session changes nothing, nor do the session's settings."""
    text = "SELECT abs(round(sum(n) + 1, 1)) || '' AS x FROM (SELECT ward, count(*) AS n FROM visits GROUP BY ward)"
    before = ask(con, text)
    con.execute(f"CREATE TEMP MACRO {shadow} AS (SELECT max(cost) FROM visits)")
    con.execute("SET integer_division = true")
    assert ask(con, text, "") == before
    con.execute(f"CREATE MACRO {shadow} AS (SELECT max(cost) FROM visits)")
    with pytest.raises(duckdb.Error, match="another meaning|function"):
        ask(con, text.replace("''", "'!'"), "")
    assert len(releases(con)) == 1


def test_a_scalar_subquery_beside_aggregates_is_an_answer_of_its_own(con: duckdb.DuckDBPyConnection) -> None:
    n, most = ask(con, "SELECT count(*), (SELECT max(cost) FROM visits) FROM visits", "epsilon := 800")[0]
    assert near(n, 2000, scale_of(con, "SELECT count(*) FROM visits", 400)) and most == pytest.approx(99.9, abs=3)
    shares = ask(con, "SELECT ward, count(*) / (SELECT count(*) FROM visits) FROM visits GROUP BY ward", "epsilon := 100")
    assert sum(share for _, share in shares) == pytest.approx(1, abs=0.05) and len(shares) == 3


def test_other_spellings_are_the_same_question(con: duckdb.DuckDBPyConnection) -> None:
    first = ask(con, "SELECT ward, count(*) FROM visits WHERE age > 40 GROUP BY ward")
    for source in ("VISITS", "main.visits", '"visits"', "visits_there.main.visits"):
        for where in ("age > 40", "(AGE > 40)", '"age">40'):
            assert ask(con, f"SELECT ward, count(*) FROM {source} WHERE {where} GROUP BY ward") == first
    assert len(releases(con)) == 1


def test_what_fails_on_released_numbers_says_that_they_are_kept(con: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(duckdb.Error, match="bought and kept"):
        ask(con, "SELECT CAST(count(*) AS TINYINT) FROM visits")
    bought = ask(con, "SELECT count(*) FROM visits", "")[0][0]
    assert near(bought, 2000, scale_of(con, "SELECT count(*) FROM visits WHERE cost >= 0", 200)) and len(releases(con)) == 1


def test_nested_results_come_as_they_are(con: duckdb.DuckDBPyConnection) -> None:
    rows = ask(con, "SELECT {'n': count(*), 'w': ward} AS s, [ward, 'it''s'] AS l, histogram(ward) AS h FROM visits GROUP BY ward")
    assert {row[0]["w"] for row in rows} == {"er", "icu", "lab"} and all(row[1][1] == "it's" for row in rows)
    assert all(isinstance(row[2], dict) for row in rows)


@pytest.mark.parametrize(
    ("bounds", "said"),
    [("{'costs': [0, 10]}", "no such column"), ("{'cost': ['2025-01-01', '2025-02-01']}", "numbers"), ("{'day': [0, 5]}", "dates"),
     ("{'cost': [10, 0]}", "lower bound first")],
)
def test_bounds_that_are_none_of_the_query_are_refused(con: duckdb.DuckDBPyConnection, bounds: str, said: str) -> None:
    with pytest.raises(duckdb.Error, match=said):
        ask(con, "SELECT avg(cost), max(day) FROM visits", f"epsilon := 1, bounds := {bounds}")
    assert releases(con) == []
    nested = "WITH p AS (SELECT patient, sum(cost) AS total FROM visits GROUP BY patient) SELECT avg(total) FROM p"
    for good in ("{'total': [0, 400]}", "{'sum(cost)': [0, 400]}"):
        assert len(ask(con, nested, f"epsilon := 1, bounds := {good}")) == 1


def test_a_renamed_file_holds_the_same_answers(tmp_path) -> None:
    answers = []
    for name in ("first", "second"):
        path = tmp_path / f"{name}.duckdb"
        if name == "second":
            (tmp_path / "first.duckdb").rename(path)
            (tmp_path / "first.duckdb.dpsql").rename(tmp_path / "second.duckdb.dpsql")
        made = duckdb.connect(str(path))
        dpsql.load(made, progress=False)
        if name == "first":
            made.execute(VISITS)
            made.execute("CREATE TABLE wards(code VARCHAR PRIMARY KEY, site VARCHAR); INSERT INTO wards VALUES ('er', 'n'), ('icu', 's')")
            made.execute("CALL dp_protect('visits', epsilon := 9, delta := 1e-6, privacy_unit := 'patient', max_contributions := 4)")
        answers.append(ask(made, "SELECT site, count(*) FROM visits JOIN wards ON ward = code GROUP BY site", "epsilon := 1"))
        assert len(releases(made)) == 1
        made.close()
    assert answers[0] == answers[1]
