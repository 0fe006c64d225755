"""How many values a column has, where they are listed: as a user asks it, of small budgets and people with many rows."""

from __future__ import annotations

import duckdb
import pytest

import dpsql
from dpsql.errors import ArgumentError

pytestmark = pytest.mark.any_duckdb

STATES = ("lost", "new", "open", "paid", "void")


@pytest.fixture(scope="module")
def con():
    """Two thousand people of 15 calls each; a state that nobody has, codes that no list has, and a rare one."""
    db = duckdb.connect()
    dpsql.load(db, progress=False)
    db.execute(f"CREATE TYPE state AS ENUM {STATES!r}")
    db.execute(
        """
        CREATE TABLE calls AS SELECT i % 2000 AS person, (['open', 'paid', 'lost', 'new'])[1 + (i + i // 2000) % 4]::state AS state,
            'c' || ((i * 7 + i // 2000) % 20) AS code, ((i * 11 + i // 2000) % 10)::TINYINT AS rating, i % 3 = 0 AS urgent, ['a', 'b', 'c'][1 + i % 3] AS site
        FROM range(30000) t(i)
        """
    )
    db.execute("CALL dp_protect('calls', epsilon := 500, delta := 1e-9, privacy_unit := 'person', max_contributions := 15)")
    db.execute("CALL dp_declare('calls', 'code', categories := list_transform(range(16), lambda i: 'c' || i), nullable := false)")
    db.execute("CALL dp_declare('calls', 'rating', lower := 0, upper := 20)")
    db.execute("CALL dp_declare('calls', 'site', categories := ['a', 'b', 'c', 'd'], nullable := false, outside := 'drop')")
    yield db
    db.close()


def test_the_values_of_an_enum_are_counted(con):
    [row] = con.execute("FROM dp_query('SELECT count(DISTINCT state) AS n FROM calls', epsilon := 0.1, confidence := 0.95)").fetchall()
    assert 4 <= row[1] <= row[0] <= row[2] <= 5  # one in fifty takes a state for there that nobody has


def test_each_unit_counts_once_for_a_value(con):
    """15 rows of a person: noise for the root of 5, where a number of values without a list has noise for 15."""
    con.execute("FROM dp_query('SELECT count(DISTINCT state) FROM calls', epsilon := 0.2, release := 'states')")
    con.execute("FROM dp_query('SELECT count(DISTINCT code || site) FROM calls', epsilon := 0.2, release := 'texts')")
    noise = {}
    for name in ("states", "texts"):
        lines = con.execute(f"FROM dp_explain('{name}')").fetchall()
        [line] = [words for about, words in lines if about == "noise"]
        noise[name] = float(line.split()[2])
        assert line.endswith("units that have each of 5 values" if name == "states" else "on a number of distinct values")
    assert noise["texts"] / noise["states"] == pytest.approx(15 / 5**0.5, rel=1e-3)


def test_open_lists_and_bounds_count_what_is_declared(con, capfd):
    [row] = con.execute("FROM dp_query('SELECT count(DISTINCT code) AS n FROM calls', epsilon := 0.5, release := 'codes')").fetchall()
    assert row == (16,)  # of 20, four of which no list has
    lines = con.execute("FROM dp_explain('codes')").fetchall()
    assert ("values", "count(DISTINCT code) is of declared values alone: rows with others do not count in it") in lines
    [row] = con.execute("FROM dp_query('SELECT count(DISTINCT rating), sum(DISTINCT rating) FROM calls', epsilon := 0.5)").fetchall()
    assert 10 <= row[0] <= 14 and 45 <= row[1] <= 45 + 74  # of 11 others four are not taken for there, but for 1e-9


def test_groups_conditions_and_quotients(con):
    rows = con.execute(
        "FROM dp_query('SELECT site, count(DISTINCT state), count(DISTINCT state) FILTER (WHERE urgent), count(*) / count(DISTINCT state) "
        "FROM calls GROUP BY site ORDER BY site', epsilon := 1)"
    ).fetchall()
    assert [row[0] for row in rows] == ["a", "b", "c", "d"]
    assert all(4 <= row[1] <= 5 for row in rows[:3]) and rows[3][1] < 4
    assert 4 <= rows[0][2] <= 5 and all(row[2] < 4 for row in rows[1:])
    assert all(row[3] == pytest.approx(2500, rel=0.3) for row in rows[:3]) and abs(rows[3][3]) < 2000


@pytest.mark.parametrize("beside", ["sum(rating)", "avg(rating), count(*)", "median(rating)", "stddev(rating), mode(state)", "corr(rating, rating)"])
@pytest.mark.parametrize("epsilon", [0.01, 0.1, 3, 100])
def test_beside_other_aggregates_at_any_price(con, beside, epsilon):
    """A sum at a low price has more noise on its finest grid than can be drawn: it is planned on a coarser one."""
    planned = con.execute(f"FROM dp_plan('SELECT count(DISTINCT state), {beside} FROM calls', epsilon := {epsilon})").fetchall()
    assert len(planned) == 1


def test_where_noise_is_smaller_than_the_list_a_number_is_measured(con):
    con.execute("FROM dp_query('SELECT count(DISTINCT code) FROM calls', epsilon := 300, release := 'exactly')")
    [line] = [words for about, words in con.execute("FROM dp_explain('exactly')").fetchall() if about == "noise"]
    assert line.endswith("on a number of distinct values")


def test_values_that_nobody_sees_are_said_to_be_hidden(con, capfd):
    con.execute("SET enable_progress_bar = true")
    dpsql.load(con, progress=True)
    con.execute("FROM dp_query('SELECT site, count(DISTINCT code) AS n FROM calls WHERE person < 4 GROUP BY site', epsilon := 0.1)")
    assert "noise hides count(DISTINCT code) in 4 of 4 groups" in capfd.readouterr().err


def test_intervals_hold(con):
    """Of 16 codes all are there: the least that is certain is never above, in 40 answers at 90 %: 1e-9 for more than 22 misses."""
    missed = 0
    for i in range(40):
        [row] = con.execute(
            f"FROM dp_query('SELECT count(DISTINCT code) AS n FROM calls WHERE urgent', epsilon := {0.06 + i / 1e6}, confidence := 0.9)"
        ).fetchall()
        missed += not row[1] <= 16 <= row[2]
        assert row[1] <= row[0] <= row[2] <= 16
    assert missed <= 22


def test_what_is_asked_in_vain_costs_nothing(con):
    before = con.execute("SELECT epsilon_spent FROM dp_budget('calls')").fetchall()
    with pytest.raises(ArgumentError, match="fsum|distinct|declared"):
        dpsql.query(con, "SELECT sum(DISTINCT code) FROM calls", epsilon=0.1)
    assert con.execute("SELECT epsilon_spent FROM dp_budget('calls')").fetchall() == before
