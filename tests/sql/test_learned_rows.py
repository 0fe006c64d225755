"""max_rows of dp_query: how many rows of a unit count in all, said, or learned from a histogram that is bought first."""

from __future__ import annotations

from fractions import Fraction

import duckdb
import pytest
from noisy import near

import dpsql
from dpsql.accounting.rules import rho_limit
from dpsql.domains.unit_rows import LOWER
from dpsql.estimates import row_bounds
from dpsql.noise import discrete

MOST = 200
TEXT = "SELECT g, count(*) AS n, sum(x) AS s FROM t GROUP BY g ORDER BY g"


def protected(accountant: str = "zcdp") -> duckdb.DuckDBPyConnection:
    """Return 6,000 units with one to three rows, in a table that allows 200 each."""
    con = duckdb.connect()
    con.execute("CREATE TABLE t AS SELECT i // (1 + i % 3) AS u, i % 2 AS g, i % 100 AS x FROM range(12000) r(i)")
    dpsql.load(con, progress=False)
    con.execute(
        f"CALL dp_protect('t', epsilon := 500, delta := 1e-9, privacy_unit := 'u', max_contributions := {MOST}, accountant := '{accountant}')"
    )
    con.execute("CALL dp_declare('t', 'g', categories := [0, 1], nullable := false)")
    con.execute("CALL dp_declare('t', 'x', lower := 0, upper := 100, nullable := false)")
    return con


@pytest.fixture
def con():
    with protected() as connection:
        yield connection


def charges(con):
    return con.execute("SELECT operation, release, epsilon, rho FROM dp_ledger() WHERE action = 'charge' ORDER BY entry").fetchall()


def bounds_of(con, release):
    """Return how many rows of a unit count, as the release says."""
    (said,) = con.execute(f"SELECT explanation FROM dp_explain('{release}') WHERE about = 'rows'").fetchone()
    return int(said.removeprefix("at most ").split(" row")[0])


def test_what_is_learned_is_near_what_units_have(con, monkeypatch):
    monkeypatch.setattr(discrete, "add_noise", lambda counts, *_: counts.copy())  # with noise more may be learned, now and then
    con.execute(f"FROM dp_query('{TEXT}', epsilon := 1, max_rows := 'auto')").fetchall()
    (first, _, *_), (second, release, *_) = charges(con)
    assert (first, second) == ("contributions", "query")
    assert 3 <= bounds_of(con, release) <= 12


def test_what_was_learned_and_what_it_cost_is_explained(con):
    con.execute(f"FROM dp_query('{TEXT}', epsilon := 4, max_rows := 'auto')").fetchall()
    (_, histogram, price, _), (_, release, rest, _) = charges(con)
    explained = con.execute("FROM dp_explain(?)", [release]).fetchall()
    prices = [text for about, text in explained if about == "price"]
    assert [float(text.split()[2]) for text in prices] == [pytest.approx(rest, rel=1e-4), pytest.approx(price, rel=1e-4)]
    assert prices[0].endswith(f"as release {release}")
    assert f"before it, as release {histogram}, " in prices[1] and prices[1].endswith(f"here {bounds_of(con, release)}")
    [kept] = [text for about, text in explained if text.startswith("kept of all rows: about ")]
    assert histogram in kept


def test_a_histogram_of_the_coarser_buckets_of_before_is_read_as_it_is(con, monkeypatch):
    with monkeypatch.context() as before:
        before.setattr("dpsql.domains.unit_rows.finer", lambda most: LOWER)
        con.execute(f"FROM dp_query('{TEXT}', epsilon := 4, max_rows := 'auto')").fetchall()
    read, choose = [], row_bounds.chosen
    monkeypatch.setattr(row_bounds, "chosen", lambda lower, *rest: (read.append(lower), choose(lower, *rest))[1])
    con.execute("FROM dp_query('SELECT g, median(x) FROM t GROUP BY g', epsilon := 4, max_rows := 'auto')").fetchall()
    assert read == [LOWER] and [operation for operation, *_ in charges(con)] == ["contributions", "query", "query"]
    con.execute("FROM dp_query('SELECT g, median(x) FROM t GROUP BY g', epsilon := 5, max_rows := 'auto')").fetchall()
    assert read[1:] == [(1, 2, 3, 4, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200)]


def test_the_noise_is_that_of_what_was_learned(con):
    """At epsilon 8 the noise of all 200 rows is 200 times that of one row."""
    answers = {}
    for rows in ("NULL", "'auto'"):
        found = con.execute(f"FROM dp_query('{TEXT}', epsilon := 8, max_rows := {rows}, confidence := 0.95)").fetchall()
        answers[rows] = [row[3] - row[2] for row in found]
    assert all(12 * few < many for few, many in zip(answers["'auto'"], answers["NULL"], strict=True))


def test_the_answer_is_near_the_truth(con):
    found = con.execute(f"FROM dp_query('{TEXT}', epsilon := 40, max_rows := 'auto')").fetchall()
    true = con.execute(TEXT).fetchall()
    (sigma,) = con.execute(
        f"SELECT noise_scale FROM dp_plan('{TEXT}', epsilon := 40, options := {{'max_rows': 'auto'}}) WHERE operation = 'query'"
    ).fetchone()
    assert near([row[1] for row in found], [row[1] for row in true], sigma)


@pytest.mark.parametrize(("accountant", "mechanism"), [("zcdp", "gaussian"), ("zcdp", "laplace"), ("basic", "laplace")])
def test_both_releases_cost_what_the_call_says_at_most(accountant, mechanism):
    with protected(accountant) as con:
        con.execute(f"FROM dp_query('{TEXT}', epsilon := 2, max_rows := 'auto', mechanism := '{mechanism}')").fetchall()
        found = charges(con)
        assert len(found) == 2
        if mechanism == "gaussian":
            assert sum(Fraction(rho) for *_, rho in found) <= Fraction(rho_limit(2.0, 1e-9, gaussian=True))
            assert sum(Fraction(rho) for *_, rho in found) > 0.98 * Fraction(rho_limit(2.0, 1e-9, gaussian=True))
        else:
            assert 1.98 < sum(epsilon for _, _, epsilon, _ in found) <= 2.0


def test_again_is_free_and_the_same(con):
    call = f"FROM dp_query('{TEXT}', epsilon := 1, max_rows := 'auto')"
    first = con.execute(call).fetchall()
    con.execute("CREATE TABLE elsewhere AS SELECT 1 AS one")
    dpsql.udfs.instance_of(con).remembered.clear()
    assert con.execute(call).fetchall() == first
    assert len(charges(con)) == 2
    con.execute("DELETE FROM t")
    dpsql.udfs.instance_of(con).remembered.clear()
    assert con.execute(call).fetchall() == first


def test_what_is_declared_later_changes_nothing_of_what_was_bought(con):
    call = f"FROM dp_query('{TEXT}', epsilon := 1, max_rows := 'auto')"
    first = con.execute(call).fetchall()
    con.execute("CALL dp_declare('t', 'x', lower := 0, upper := 3000000, nullable := false)")
    dpsql.udfs.instance_of(con).remembered.clear()
    assert con.execute(call).fetchall() == first
    assert len(charges(con)) == 2


def test_where_units_have_one_row_nothing_is_learned(con):
    con.execute("FROM dp_query('SELECT avg(n) FROM (SELECT u, count(*) AS n FROM t GROUP BY u)', epsilon := 2, max_rows := 'auto', bounds := {'n': [0, 9]})")
    assert [(operation, round(epsilon, 4)) for operation, _, epsilon, _ in charges(con)] == [("query", 2.0)]


def test_a_name_is_given_to_the_query(con):
    con.execute(f"FROM dp_query('{TEXT}', epsilon := 1, max_rows := 'auto', release := 'mine')").fetchall()
    assert [release.rsplit("-", 1)[0] for _, release, *_ in charges(con)] == ["t-contributions-mine_rows", "t-query-mine"]


@pytest.mark.parametrize("said", ["epsilon := 2, max_rows := 'auto'", "epsilon := 1.5, max_rows := 'auto', mechanism := 'laplace'"])
def test_a_name_that_is_taken_is_refused_in_words_of_what_was_said(con, said):
    con.execute(f"FROM dp_query('{TEXT}', epsilon := 1, max_rows := 'auto', release := 'taken')").fetchall()
    before = con.execute("SELECT count(*) FROM dp_ledger('t')").fetchall()
    with pytest.raises(duckdb.Error, match="release 'taken' was bought for a smaller epsilon, another number of rows or another question"):
        con.execute(f"FROM dp_query('{TEXT}', {said}, release := 'taken')").fetchall()
    assert con.execute("SELECT count(*) FROM dp_ledger('t')").fetchall() == before
    con.execute(f"FROM dp_query('{TEXT}', epsilon := .5, max_rows := 'auto', release := 'taken')").fetchall()


def test_what_answers_already_needs_no_histogram(con):
    """Bought under a name, or with more aggregates, or as one of several grouping sets."""
    con.execute(f"FROM dp_query('{TEXT}', epsilon := 1, max_rows := 'auto', release := 'mine')").fetchall()
    con.execute("FROM dp_query('SELECT g, count(*), sum(x) FROM t GROUP BY ROLLUP (g)', epsilon := 1, max_rows := 'auto')").fetchall()
    bought = charges(con)
    for text in (TEXT, "SELECT g, sum(x) FROM t GROUP BY g", "SELECT count(*) FROM t", "SELECT g, count(*) FROM t GROUP BY ROLLUP (g)"):
        con.execute(f"FROM dp_query('{text}', epsilon := 0.3, max_rows := 'auto')").fetchall()
    assert charges(con) == bought


def test_a_histogram_of_laplace_noise_spends_no_delta():
    with protected("basic") as con:
        call = "FROM dp_query('SELECT x, count(*) FROM t GROUP BY x', epsilon := 1, delta := {}, max_rows := 'auto', mechanism := 'laplace', groups := 'private')"
        for delta in (1e-12, 1e-11):
            con.execute(call.format(delta)).fetchall()
        spent = con.execute("SELECT operation, delta FROM dp_ledger() WHERE action = 'charge' ORDER BY entry").fetchall()
        assert [operation for operation, _ in spent] == ["contributions", "query", "query"]
        assert [delta for _, delta in spent] == pytest.approx([0.0, 1e-12, 1e-11], rel=1e-12)  # as DuckDB makes a DOUBLE of a DECIMAL


def test_the_plan_says_both_and_buys_neither(con):
    plan = f"SELECT operation, epsilon, bought FROM dp_plan('{TEXT}', epsilon := 1, options := {{'max_rows': 'auto'}})"
    planned = con.execute(plan).fetchall()
    assert [row[0] for row in planned] == ["contributions", "query"] and not charges(con)
    con.execute(f"FROM dp_query('{TEXT}', epsilon := 1, max_rows := 'auto')").fetchall()
    assert con.execute(plan).fetchall() == [(*row[:2], True) for row in planned]
    assert [round(epsilon, 4) for *_, epsilon, _ in charges(con)] == [round(row[1], 4) for row in planned]


def test_a_number_is_another_release(con):
    calls = ["", ", max_rows := 3", ", max_rows := 2", ", max_rows_per_group := 1, max_groups := 1"]
    answers = [con.execute(f"FROM dp_query('{TEXT}', epsilon := 1{call})").fetchall() for call in calls]
    assert len(charges(con)) == 4
    assert [con.execute(f"FROM dp_query('{TEXT}'{call})").fetchall() for call in calls] == answers  # without a price: each its own
    assert len(charges(con)) == 4
    with pytest.raises(duckdb.Error, match="bought with max_rows = 3, the call says max_rows = None"):
        con.execute(f"FROM dp_query('{TEXT}', epsilon := 1, max_rows := 3, release := 'a')").fetchall()
        con.execute(f"FROM dp_query('{TEXT}', epsilon := 1, release := 'a')").fetchall()


@pytest.mark.parametrize("rows", [1, 2, 5, MOST, 10 * MOST])
def test_no_more_rows_of_a_unit_count_than_were_said(con, rows):
    con.execute(f"INSERT INTO t SELECT 99999, 0, 1 FROM range({3 * MOST})")
    exact = f"SELECT n FROM dp_query_exact('SELECT count(*) AS n FROM t WHERE u = 99999', max_rows := {rows})"
    assert con.execute(exact).fetchall() == [(min(rows, MOST),)]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT x, count(*) FROM t GROUP BY x",
        "SELECT g, avg(x), median(x), count(DISTINCT u) FROM t GROUP BY CUBE (g)",
        "SELECT (SELECT count(*) FROM t WHERE x > 50) / (SELECT count(*) FROM t)",
        "SELECT a.g, count(*) FROM t a JOIN t b ON a.u = b.u GROUP BY a.g",
        "SELECT count(*) FROM t WHERE x > 1000",
        "SELECT avg(n) FROM (SELECT u, count(*) AS n FROM t GROUP BY u)",
    ],
)
def test_any_query_can_have_it(con, text):
    more = ", bounds := {'n': [0, 10]}" if "avg(n)" in text else ""
    call = f"FROM dp_query('{text}', epsilon := 20, max_rows := 'auto'{more})"
    first = con.execute(call).fetchall()
    count = len(charges(con))
    assert first and con.execute(call).fetchall() == first and len(charges(con)) == count


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("max_rows := 'x'", "max_rows = 'x': a whole number from 1 on, or 'auto', is required"),
        ("max_rows := 0", "max_rows = 0"),
        ("max_rows := 3, max_groups := 2", "max_rows = 3: says how many rows of a unit count in all groups together"),
        ("max_rows := 'auto', max_rows_per_group := 2", "max_rows = 'auto': says how many"),
        ("max_rows := 'auto', bounds := {'y': [0, 1]}", "no such column"),
    ],
)
def test_what_it_cannot_be_is_said_before_a_charge(con, said, why):
    with pytest.raises(duckdb.Error, match=why):
        con.execute(f"FROM dp_query('{TEXT}', epsilon := 1, {said})").fetchall()
    assert not charges(con)


def test_without_a_price_or_a_unit_nothing_is_learned(con):
    for call in (f"dp_query('{TEXT}', max_rows := 'auto')", f"dp_plan('{TEXT}', options := {{'max_rows': 'auto'}})"):
        with pytest.raises(duckdb.Error, match="epsilon is not given"):
            con.execute(f"FROM {call}").fetchall()
    con.execute("CREATE TABLE rows AS SELECT 1 AS x; CALL dp_protect('rows', epsilon := 1, delta := 1e-9)")
    with pytest.raises(duckdb.Error, match="max_rows = 'auto': every row is a unit of its own here"):
        con.execute("FROM dp_query('SELECT count(*) FROM rows', epsilon := 0.1, max_rows := 'auto')").fetchall()
    assert not charges(con)


def test_where_both_cannot_be_paid_neither_is():
    with protected() as con:
        con.execute("CREATE TABLE s AS FROM t; CALL dp_protect('s', epsilon := 1, delta := 1e-9, privacy_unit := 'u', max_contributions := 9)")
        con.execute("FROM dp_query('SELECT count(*) FROM s', epsilon := 0.7)").fetchall()
        before = charges(con)
        with pytest.raises(duckdb.Error, match="BudgetExceeded: .* nothing was charged"):
            con.execute("FROM dp_query('SELECT sum(1) FROM s', epsilon := 0.9, max_rows := 'auto', bounds := {'1': [0, 1]})").fetchall()
        assert charges(con) == before


@pytest.fixture
def linked():
    """A thousand patients with three visits each, of twenty that links allow."""
    with duckdb.connect() as con:
        con.execute("CREATE TABLE patients AS SELECT i AS patient, i % 2 AS sex FROM range(1000) t(i)")
        con.execute("CREATE TABLE visits AS SELECT i % 1000 AS patient, i % 100 AS cost FROM range(3000) t(i)")
        con.execute("CREATE UNIQUE INDEX patients_key ON patients(patient)")
        dpsql.load(con, progress=False)
        con.execute("CALL dp_protect('patients', epsilon := 100, delta := 1e-9, privacy_unit := 'patient', max_contributions := 1)")
        con.execute("CALL dp_link('visits', 'patient', parent := 'patients', max_rows := 20)")
        con.execute("CALL dp_declare('visits', 'cost', lower := 0, upper := 100, nullable := false)")
        yield con


LINKED = "SELECT count(*) AS n, sum(cost) AS s FROM visits WHERE cost > 10"


def test_of_linked_tables_the_number_is_learned_unless_it_is_said(linked, monkeypatch):
    with monkeypatch.context() as patch:  # with noise any number up to what links allow may be learned
        patch.setattr(discrete, "add_noise", lambda counts, *_: counts.copy())
        first = linked.execute(f"FROM dp_query('{LINKED}', epsilon := 4)").fetchall()
    (one, *_), (two, release, *_) = charges(linked)
    assert (one, two) == ("contributions", "query") and 3 <= bounds_of(linked, release) < 20
    for again in ("", ", epsilon := 4", ", epsilon := 2", ", max_rows := 'auto'"):
        dpsql.udfs.instance_of(linked).remembered.clear()
        assert linked.execute(f"FROM dp_query('{LINKED}'{again})").fetchall() == first, again
    assert len(charges(linked)) == 2
    linked.execute("FROM dp_query('SELECT count(*) FROM patients', epsilon := 1)").fetchall()
    for said in ("max_rows := 20", "max_rows_per_group := 2"):
        linked.execute(f"FROM dp_query('{LINKED}', epsilon := 1, {said})").fetchall()
    assert [operation for operation, *_ in charges(linked)] == ["contributions", *["query"] * 4]


def test_what_was_bought_before_it_was_the_default_is_found(linked, monkeypatch):
    call = f"FROM dp_query('{LINKED}', epsilon := 4)"
    monkeypatch.setattr("dpsql.answers.row_bounds.MANY", 1000)
    first = linked.execute(call).fetchall()
    monkeypatch.undo()
    for again in (call, f"FROM dp_query('{LINKED}')", f"FROM dp_query('{LINKED}', epsilon := 1)"):
        dpsql.udfs.instance_of(linked).remembered.clear()
        assert linked.execute(again).fetchall() == first
    assert [operation for operation, *_ in charges(linked)] == ["query"]


def test_a_unit_with_all_its_rows_is_in_one_bucket(linked, monkeypatch):
    """The histogram is of the rows that the query reads; orphans, and rows that WHERE leaves out, are in no bucket.

    At this epsilon a count of units is 4 off with a probability below 1e-9.
    """
    linked.execute("DELETE FROM visits; INSERT INTO visits SELECT i % 800, i % 100 FROM range(1600) t(i)")
    linked.execute("INSERT INTO visits SELECT 900, 50 FROM range(500); INSERT INTO visits SELECT 5000 + i, 50 FROM range(50) t(i)")
    seen = []
    monkeypatch.setattr("dpsql.estimates.row_bounds.chosen", lambda lower, counts, *_: (seen.extend(counts.tolist()), 3)[1])
    linked.execute(f"FROM dp_query('{LINKED}', epsilon := 90)").fetchall()
    true = linked.execute(
        "SELECT count(*) FILTER (n = 1), count(*) FILTER (n = 2), count(*) FILTER (n >= 500) FROM "
        "(SELECT count(*) AS n FROM visits JOIN patients USING (patient) WHERE cost > 10 GROUP BY patient)"
    ).fetchone()
    assert all(abs(seen[place] - exact) <= 4 for place, exact in zip((0, 1, -1), true, strict=True))
    assert abs(sum(seen) - sum(true)) <= 14
