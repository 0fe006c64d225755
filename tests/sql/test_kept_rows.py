"""Which rows of a unit count: none that counts nowhere, things once, as many as a FROM makes of one; and what is said of it."""

import duckdb
import pytest

import dpsql

pytestmark = pytest.mark.any_duckdb

UNITS = 300


@pytest.fixture(scope="module")
def con():
    """300 patients with 24 visits each, at most four of which count: of ward a 12, of b to e three each; codes are seven a ward."""
    con = duckdb.connect()
    con.execute(
        f"""
        CREATE TABLE visits AS
        SELECT p AS patient, CASE WHEN i < 12 THEN 'a' ELSE ['b', 'c', 'd', 'e'][1 + i % 4] END AS ward, i % 7 AS code,
            (i * 7 % 24)::DOUBLE AS cost, i % 3 AS third
        FROM range({UNITS}) AS patients(p), range(24) AS v(i);
        CREATE TABLE months AS SELECT m FROM range(1, 13) AS t(m);
        CREATE TABLE tags (ward VARCHAR, tag INTEGER);
        INSERT INTO tags VALUES ('a', 1), ('a', 2), ('b', 1), ('c', 1), ('d', 3), ('e', 3), (NULL, 9), (NULL, 8), (NULL, 7);
        """
    )
    dpsql.load(con, progress=False)
    con.execute("CALL dp_protect('visits', epsilon := 1000, delta := 1e-9, privacy_unit := 'patient', max_contributions := 4)")
    con.execute("CALL dp_declare('visits', 'ward', categories := ['a', 'b', 'c', 'd', 'e'], nullable := false)")
    con.execute("CALL dp_declare('visits', 'cost', lower := 0, upper := 24)")
    yield con
    con.close()


def asked(con, select, call="dp_query", more=""):
    given = ", epsilon := 20" if call == "dp_query" else ""
    return con.execute(f"FROM {call}($$ {select} $$ {given} {more})").fetchall()


def notes(con, select):
    return "; ".join(row[0] for row in con.execute(f"SELECT unnest(notes) FROM dp_plan($$ {select} $$, epsilon := 1)").fetchall())


@pytest.mark.parametrize("call", ["dp_query", "dp_query_exact"])
def test_units_are_counted_in_groups_not_in_rows(con, call):
    """Four rows of 24 would be half of them in ward a: a patient would be in some 2.4 wards. Four different ones of five: all in 4."""
    rows = dict(asked(con, "SELECT ward, count(DISTINCT patient) AS n FROM visits GROUP BY ward", call))
    assert sum(rows.values()) == pytest.approx(4 * UNITS, abs=60)
    assert rows["a"] == pytest.approx(0.8 * UNITS, abs=70)  # 8.6 standard deviations of the choice


def test_noise_is_that_of_the_rows_that_count(con):
    """The same sensitivity as of four rows: one in each of four groups."""
    [[wide]] = con.execute("SELECT noise_scale FROM dp_plan('SELECT ward, count(DISTINCT patient) FROM visits GROUP BY ward', epsilon := 1)").fetchall()
    [[one]] = con.execute(
        "SELECT noise_scale FROM dp_plan('SELECT ward, count(DISTINCT patient) FROM visits GROUP BY ward', epsilon := 1,"
        " options := {'max_groups': 4, 'max_rows_per_group': 1})"
    ).fetchall()
    assert wide == pytest.approx(one)


def test_things_are_counted_once(con):
    """All 35 pairs of ward and code are in the answer where each patient keeps four different ones."""
    select = "SELECT ward, count(DISTINCT code) AS n FROM visits GROUP BY ward ORDER BY ward"
    exact = con.execute(select).fetchall()
    assert asked(con, select, "dp_query_exact") == exact
    assert [n for _, n in asked(con, select)] == pytest.approx([n for _, n in exact], abs=12)


def test_rows_that_count_nowhere_take_no_place(con):
    """Ward b has three visits of a patient, and four count: all of them, where nothing else is asked for."""
    [[n, mean]] = asked(con, "SELECT count(*) FILTER (WHERE ward = 'b'), avg(cost) FILTER (WHERE ward = 'b') FROM visits")
    [[exact]] = con.execute("SELECT avg(cost) FROM visits WHERE ward = 'b'").fetchall()
    assert n == pytest.approx(3 * UNITS, abs=5) and mean == pytest.approx(exact, abs=0.2)
    [[n]] = asked(con, "SELECT count(CASE WHEN ward = 'b' THEN cost END) FROM visits")
    assert n == pytest.approx(3 * UNITS, abs=5)
    [[n, every]] = asked(con, "SELECT count(*) FILTER (WHERE ward = 'b'), count(*) FROM visits")
    assert every == pytest.approx(4 * UNITS, abs=5) and n < 2 * UNITS  # every row counts there


MADE = [
    ("SELECT count(*) FROM (SELECT * FROM visits UNION ALL SELECT * FROM visits)", 8),
    ("SELECT count(*) FROM (SELECT patient FROM visits UNION ALL SELECT patient FROM visits WHERE ward = 'a' UNION ALL SELECT patient FROM visits)", 12),
    ("SELECT count(*) FROM visits a JOIN visits b USING (patient)", 16),
    ("SELECT count(*) FROM visits a JOIN (SELECT patient, max(cost) AS top FROM visits GROUP BY patient) b USING (patient)", 4),
    ("SELECT count(*) FROM visits CROSS JOIN months", 48),
    ("SELECT count(*) FROM months, visits", 48),
    ("SELECT count(*) FROM visits CROSS JOIN (SELECT m FROM months WHERE m <= 3)", 12),
    ("SELECT count(*) FROM visits JOIN tags USING (ward)", 8),  # three rows of tags have no ward, and meet nobody
    ("SELECT count(*) FROM tags, visits WHERE visits.ward = tags.ward", 8),
    ("SELECT count(*) FROM visits JOIN (SELECT ward, tag FROM tags WHERE tag < 2) t USING (ward)", 4),
    ("SELECT count(*) FROM visits JOIN months ON m BETWEEN third AND third + 1", 48),  # as many as there are
    ("SELECT count(*) FROM (SELECT patient, count(*) AS n FROM visits GROUP BY patient) CROSS JOIN months", 12),
    ("SELECT count(*) FROM visits WHERE EXISTS (SELECT 1 FROM visits b WHERE b.patient = visits.patient)", 4),
    ("SELECT count(*) FROM (SELECT patient, ward FROM visits EXCEPT SELECT patient, 'a' FROM visits)", 4),
]


@pytest.mark.parametrize(("select", "most"), MADE)
def test_as_many_rows_count_as_a_source_makes_of_those_of_the_table(con, select, most):
    said = notes(con, select)
    assert f"at most {most} rows of each patient are kept" in said
    assert (f"4 rows of a patient can become {most:,} in this FROM" in said) == (most > 4)


def test_what_a_source_makes_of_rows_counts(con):
    [[n]] = asked(con, MADE[0][0])
    assert n == pytest.approx(8 * UNITS, abs=5)
    [[n]] = asked(con, MADE[0][0], more=", max_rows_per_group := 3")
    assert n == pytest.approx(3 * UNITS, abs=5)


@pytest.fixture
def alone(tmp_path, monkeypatch):
    """Rows of 400 units, of which three in four have two; calls may speak."""
    monkeypatch.delenv("DPSQL_PROGRESS", raising=False)
    con = duckdb.connect()
    con.execute("CREATE TABLE t AS SELECT i % 400 AS u, i % 3 AS x FROM range(700) r(i)")
    dpsql.load(con)
    con.execute("CALL dp_protect('t', epsilon := 1000, delta := 1e-9, privacy_unit := 'u', max_contributions := 1)")
    con.execute("CALL dp_declare('t', 'x', lower := 0, upper := 2, nullable := false)")
    yield con
    con.close()


def test_what_share_of_rows_is_kept_is_said_once(alone, capfd):
    ask = "FROM dp_query('SELECT {} FROM t', epsilon := 50)"
    alone.execute(ask.format("count(*)")).fetchall()
    said = capfd.readouterr().err
    assert said == (
        "dp_query of t: at most 1 row of each u is kept, at random: numbers are of the kept rows; about what share of all rows "
        "that is, dp_contributions('t', epsilon := ...) buys\n"
    )
    alone.execute(ask.format("sum(x)")).fetchall()
    assert capfd.readouterr().err == "", "the same again"
    alone.execute("FROM dp_contributions('t', epsilon := 50)").fetchall()
    alone.execute(ask.format("avg(x)")).fetchall()
    assert "kept rows, about 57 % of all, or less where few have very many (by release 't-contributions-" in capfd.readouterr().err
    alone.execute("SELECT count(*) FROM dp_synthesize('t', epsilon := 20)").fetchall()
    assert capfd.readouterr().err.startswith("dp_synthesize of t: at most 1 row of each u is kept")
    alone.execute(ask.format("count(*)")).fetchall()
    assert capfd.readouterr().err == ""


def test_nothing_is_said_where_all_rows_count_or_nobody_wants_it(alone, capfd, monkeypatch):
    alone.execute("FROM dp_query('SELECT avg(n) FROM (SELECT u, least(count(*), 5) AS n FROM t GROUP BY u)', epsilon := 50)").fetchall()
    monkeypatch.setenv("DPSQL_PROGRESS", "off")
    alone.execute("FROM dp_query('SELECT count(*) FROM t', epsilon := 50)").fetchall()
    assert capfd.readouterr().err == ""


def test_rows_without_a_unit_are_bounded_as_one_and_counted_as_none():
    """NULL counted as a unit; SQL counts values alone."""
    con = duckdb.connect()
    con.execute("CREATE TABLE t AS SELECT CASE WHEN i < 30 THEN i % 3 END AS p, i % 2 = 0 AS g FROM range(60) t(i)")
    dpsql.load(con, progress=False)
    con.execute("CALL dp_protect('t', epsilon := 1000, delta := 1e-3, privacy_unit := 'p', max_contributions := 20)")
    calls = {"count(DISTINCT p)": 3, "count(DISTINCT p) FILTER (WHERE g)": 3, "count(*)": 50, "count(DISTINCT p), count(*)": 3}
    for call, truth in calls.items():
        found = con.execute(f"FROM dp_query('SELECT {call} FROM t', epsilon := 100)").fetchone()[0]
        assert abs(found - truth) <= (25 if call == "count(*)" else 0)  # noise of 20 rows of a unit, and of one
        assert con.execute(f"FROM dp_query_exact('SELECT {call} FROM t')").fetchone()[0] == truth
    private = ", groups := 'private', max_groups := 2, max_rows_per_group := 1"
    for call, truth in {"count(*) AS n": 4, "count(DISTINCT p) AS n": 3}.items():  # three units, and the rows without one
        found = con.execute(f"FROM dp_query('SELECT g, {call} FROM t GROUP BY g ORDER BY g ASC', epsilon := 100, delta := 1e-4{private})").fetchall()
        assert found == [(False, truth), (True, truth)]
