"""What a stored release answers besides the question that bought it, free; and what it must not answer."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import duckdb
import numpy as np
import pytest

import dpsql

VISITS = """
CREATE TABLE visits (patient BIGINT, ward VARCHAR NOT NULL CHECK (ward IN ('er', 'icu', 'lab')), sex VARCHAR NOT NULL CHECK (sex IN ('f', 'm')),
    cost DOUBLE, age INTEGER, stay DOUBLE, code VARCHAR, urgent BOOLEAN);
INSERT INTO visits SELECT i % 500 AS patient, ['er', 'icu', 'lab'][1 + i % 3] AS ward, CASE WHEN i % 4 = 0 THEN 'f' ELSE 'm' END AS sex,
    (i * 37 % 1000) / 10.0::DOUBLE AS cost, (i * 13 % 90)::INTEGER AS age, CASE WHEN i % 10 > 0 THEN (i % 50)::DOUBLE END AS stay,
    'c' || (i % 4) AS code, i % 5 = 0 AS urgent FROM range(2000) t(i)
"""


@pytest.fixture
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    """A table of visits, four of each patient, with more budget than noise. ``stay`` is NULL in a tenth of the rows."""
    made = duckdb.connect()
    dpsql.load(made, progress=False)
    made.execute(VISITS)
    made.execute("CALL dp_protect('visits', epsilon := 1000, delta := 1e-6, privacy_unit := 'patient', max_contributions := 4)")
    made.execute("CALL dp_declare('visits', 'ward', categories := ['er', 'icu', 'lab'], nullable := false)")
    made.execute("CALL dp_declare('visits', 'sex', categories := ['f', 'm'], nullable := false)")
    made.execute("CALL dp_declare('visits', 'cost', lower := 0, upper := 100, nullable := false)")
    made.execute("CALL dp_declare('visits', 'age', lower := 0, upper := 90, nullable := false)")
    made.execute("CALL dp_declare('visits', 'stay', lower := 0, upper := 50)")
    yield made
    made.close()


def bought(con: duckdb.DuckDBPyConnection) -> int:
    return int(con.execute("SELECT count(*) FROM dp_releases()").fetchall()[0][0])


def ask(con: duckdb.DuckDBPyConnection, text: str, more: str = "epsilon := 20") -> list[tuple[Any, ...]]:
    return con.execute(f"FROM dp_query($${text}$${', ' + more if more else ''})").fetchall()


def plan(con: duckdb.DuckDBPyConnection, text: str, epsilon: float = 20) -> tuple[bool, str, list[str]]:
    return con.execute(f"SELECT bought, release, notes FROM dp_plan($${text}$$, epsilon := {epsilon})").fetchall()[0]


FREE = [
    ("avg(cost)", "sum(cost)"), ("avg(cost)", "count(cost)"), ("avg(cost)", "count(*)"), ("avg(cost)", "sum(cost) / count(*)"),
    ("avg(cost), count(stay)", "count(*), avg(cost)"), ("avg(stay)", "sum(stay)"), ("avg(stay)", "count(stay)"),
    ("avg(stay), count(*)", "count(*) - count(stay)"), ("var_samp(cost)", "avg(cost), sum(cost), stddev_pop(cost), count(*)"),
    ("corr(cost, age)", "avg(cost), var_pop(age), sum(age), count(*), count(age)"), ("corr(cost, age)", "corr(age, cost)"),
    ("regr_slope(cost, age)", "regr_slope(age, cost), regr_avgx(age, cost), regr_intercept(age, cost)"), ("corr(cost, age)", "covar_samp(age, cost) / 10"),
    ("covar_pop(cost, age)", "avg(cost), sum(age)"), ("corr(cost, stay)", "avg(stay), count(stay), regr_count(cost, stay)"),
    ("min(cost)", "quantile_cont(cost, [0.1, 0.9]), median(cost), max(cost)"), ("max(cost)", "count(cost), count(*)"),
    ("max(stay)", "count(stay)"), ("avg(cost) FILTER (WHERE urgent)", "sum(cost) FILTER (WHERE urgent), count(*) FILTER (WHERE urgent)"),
    ("avg(cost + age)", "count(*), sum(cost + age)"), ("count(*)", "count(cost)"), ("count(*)", "count(age + cost)"),
    ("avg(CASE WHEN ward = 'er' THEN cost ELSE 0 END)", "count(*)"), ("avg(coalesce(stay, 0))", "count(*)"),
]  # fmt: skip
PAID = [
    ("avg(cost)", "var_samp(cost)"), ("avg(cost)", "median(cost)"), ("avg(stay)", "count(*)"), ("count(*)", "count(stay)"),
    ("sum(cost)", "avg(cost)"), ("sum(cost)", "count(*)"), ("corr(cost, stay)", "avg(cost)"), ("corr(cost, stay)", "count(cost)"),
    ("corr(cost, stay)", "count(*)"), ("covar_pop(cost, age)", "var_pop(cost)"), ("covar_pop(cost, age)", "corr(cost, age)"),
    ("median(stay)", "count(*)"), ("avg(cost)", "sum(cost) FILTER (WHERE urgent)"), ("avg(cost) FILTER (WHERE urgent)", "sum(cost)"),
    ("avg(cost) FILTER (WHERE urgent)", "count(*)"), ("avg(cost) FILTER (WHERE urgent)", "avg(cost) FILTER (WHERE NOT urgent)"),
    ("avg(cost)", "avg(age)"), ("avg(cost)", "avg(cost + 0)"), ("avg(cost)", "count(DISTINCT patient)"), ("avg(nullif(cost, 7))", "count(*)"),
    ("avg(least(cost, 50))", "sum(cost)"), ("avg(cost / stay)", "count(*)"), ("avg(TRY_CAST(code AS INTEGER))", "count(*)"), ("median(cost)", "avg(cost)"),
]  # fmt: skip


def test_the_same_vector_gives_other_aggregates(con: duckdb.DuckDBPyConnection) -> None:
    """Each of them is free, and near the truth: noise of epsilon 20 is of a few rows of 667."""
    for number, (first, later) in enumerate(FREE):
        where = f"WHERE age >= {-number}"  # rows of their own: nothing else is stored for them
        ask(con, f"SELECT ward, {first} FROM visits {where} GROUP BY ward")
        before = bought(con)
        text = f"SELECT ward, {later} FROM visits {where} GROUP BY ward ORDER BY ward"
        assert plan(con, text)[0], (first, later)
        rows = ask(con, text, "")
        assert bought(con) == before, (first, later)
        for row, true in zip(rows, con.execute(text).fetchall(), strict=True):
            assert row[0] == true[0]
            found = np.concatenate([np.atleast_1d(np.asarray(x, float)) for x in row[1:]])
            wanted = np.concatenate([np.atleast_1d(np.asarray(x, float)) for x in true[1:]])
            assert np.allclose(found, wanted, rtol=0.1, atol=6), (first, later, found, wanted)


@pytest.mark.parametrize(("first", "later"), PAID)
def test_what_a_vector_does_not_hold_is_bought(con: duckdb.DuckDBPyConnection, first: str, later: str) -> None:
    unbounded = next((text for text in ("cost / stay", "TRY_CAST(code AS INTEGER)") if text in first), "")
    ask(con, f"SELECT ward, {first} FROM visits GROUP BY ward", "epsilon := 20" + (f", bounds := {{'{unbounded}': [0, 9]}}" if unbounded else ""))
    ask(con, f"SELECT ward, {later} FROM visits GROUP BY ward")
    assert bought(con) == 2


def test_bounds_that_equal_the_declared_ones_are_the_same_question(con: duckdb.DuckDBPyConnection) -> None:
    ask(con, "SELECT ward, avg(cost) FROM visits GROUP BY ward")
    same = ask(con, "SELECT ward, avg(cost) FROM visits GROUP BY ward", "epsilon := 20, bounds := {'cost': [0, 100]}")
    assert bought(con) == 1 and same == ask(con, "SELECT ward, avg(cost) FROM visits GROUP BY ward")
    ask(con, "SELECT ward, sum(cost) FROM visits GROUP BY ward", "epsilon := 20, bounds := {'COST': [0.0, 100.0]}")
    assert bought(con) == 1
    for number, bounds in enumerate(("[0, 50]", "[0, 100.5]", "[-1, 100]"), 2):
        ask(con, "SELECT ward, avg(cost) FROM visits GROUP BY ward", f"epsilon := 20, bounds := {{'cost': {bounds}}}")
        assert bought(con) == number
    ask(con, "SELECT ward, sum(cost) FROM visits GROUP BY ward", "epsilon := 20, bounds := {'cost': [0, 50]}")
    assert bought(con) == 4, "bought with these bounds above"


def test_bounds_that_are_declared_anew_are_another_question_for_other_aggregates(con: duckdb.DuckDBPyConnection) -> None:
    first = ask(con, "SELECT avg(cost) FROM visits")
    con.execute("CALL dp_declare('visits', 'cost', lower := 0, upper := 60, nullable := false)")
    assert ask(con, "SELECT avg(cost) FROM visits") == first, "what was bought is what it was"
    ask(con, "SELECT sum(cost) FROM visits")
    assert bought(con) == 2


@pytest.mark.parametrize("bounds", ["(0, 50)", "(0, 20)"])
def test_bounds_that_a_call_states_belong_to_the_question(con: duckdb.DuckDBPyConnection, bounds: str) -> None:
    clause = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 20)"
    ask(con, f"{clause} sum(cost, contribution_bounds_per_row => (0, 50)) FROM visits", "")
    ask(con, f"{clause} sum(cost, contribution_bounds_per_row => {bounds}) FROM visits", "")
    assert bought(con) == (1 if bounds == "(0, 50)" else 2)
    ask(con, "SELECT sum(cost) FROM visits")
    assert bought(con) == (2 if bounds == "(0, 50)" else 3)
    with pytest.raises(duckdb.Error, match="bounds an argument once"):
        ask(con, f"{clause} sum(cost, contribution_bounds_per_row => (0, 5)) + avg(cost, contribution_bounds_per_row => (0, 6)) FROM visits", "")


COARSER = [
    "SELECT ward, count(*) FROM visits GROUP BY ward", "SELECT count(*), avg(cost) FROM visits", "SELECT sex, sum(cost) FROM visits GROUP BY sex",
    "SELECT sex, ward, count(*) FROM visits GROUP BY sex, ward", "SELECT avg(n) FROM (SELECT ward, count(*) AS n FROM visits GROUP BY ward)",
    "SELECT ward, sex, count(*), sum(cost) FROM visits GROUP BY ROLLUP (ward, sex)", "SELECT ward, avg(cost) AS a FROM visits GROUP BY ward HAVING count(*) > 3",
    "SELECT ward, count(cost) FROM visits GROUP BY GROUPING SETS ((ward), ())",
]  # fmt: skip


def test_coarser_public_groups_are_sums_of_finer_ones(con: duckdb.DuckDBPyConnection) -> None:
    fine = ask(con, "SELECT ward, sex, count(*), sum(cost) FROM visits GROUP BY ward, sex")
    for text in COARSER:
        found, notes = ask(con, text, ""), plan(con, text)[2]
        assert bought(con) == 1, text
        assert any("free" in note for note in notes)
        if "ROLLUP" not in text and "sex, ward" not in text:
            assert any("is a sum of those of its groups by ward, sex" in note for note in notes), text
        true = con.execute(text).fetchall()
        if "HAVING" not in text:
            assert len(found) == len(true)
            for row, exact in zip(sorted(found, key=repr), sorted(true, key=repr), strict=True):
                for x, y in zip(row, exact, strict=True):
                    assert x == y if not isinstance(y, int | float) else math.isclose(x, y, rel_tol=0.2, abs_tol=8), text  # more than ten deviations
    by_ward = {ward: sum(n for w, _, n, _ in fine if w == ward) for ward in ("er", "icu", "lab")}
    assert dict(ask(con, COARSER[0], "")) == pytest.approx(by_ward, abs=1), "rounded once, not twice"
    assert [row[0] for row in ask(con, COARSER[0], "")] == ["er", "icu", "lab"], "in order"


def test_intervals_of_sums_are_as_wide_as_their_noise(con: duckdb.DuckDBPyConnection) -> None:
    for mechanism in ("gaussian", "laplace"):
        ask(con, "SELECT ward, sex, count(*) AS n FROM visits GROUP BY ward, sex", f"epsilon := 1, mechanism := '{mechanism}'")
        more = f"mechanism := '{mechanism}', confidence := 0.95"
        fine = ask(con, "SELECT ward, sex, count(*) AS n FROM visits GROUP BY ward, sex", more)
        coarse = ask(con, "SELECT count(*) AS n FROM visits", more)
        narrow, wide = np.mean([row[4] - row[3] for row in fine]), coarse[0][2] - coarse[0][1]
        assert wide == pytest.approx(narrow * math.sqrt(6), rel=0.25)  # of 1,000 draws: more than six of their deviations
    assert bought(con) == 2


NOT_PARTS = [
    ("SELECT ward, code, count(*) FROM visits GROUP BY ward, code", "epsilon := 20", "SELECT ward, count(*) FROM visits GROUP BY ward", "epsilon := 20"),
    ("SELECT ward, sex, count(*) FROM visits GROUP BY ward, sex", "epsilon := 20, groups := 'private'", "SELECT ward, count(*) FROM visits GROUP BY ward", "epsilon := 20"),
    ("SELECT ward, sex, count(*) FROM visits GROUP BY ward, sex", "epsilon := 20, groups := 'private'", "SELECT count(*) FROM visits", "epsilon := 20"),
    ("SELECT ward, sex, count(*) FROM visits GROUP BY ward, sex", "epsilon := 20", "SELECT ward, count(*) FROM visits GROUP BY ward", "epsilon := 20, groups := 'private'"),
    ("SELECT ward, sex, count(*) FROM visits GROUP BY ward, sex", "epsilon := 20, max_groups := 2", "SELECT ward, count(*) FROM visits GROUP BY ward", "epsilon := 20, max_groups := 2"),
    ("SELECT ward, sex, count(*) FROM visits GROUP BY ward, sex", "epsilon := 20, max_groups := 2", "SELECT count(*) FROM visits", "epsilon := 20"),
    ("SELECT ward, sex, count(*) FROM visits GROUP BY ward, sex", "epsilon := 20", "SELECT ward, count(*) FROM visits GROUP BY ward", "epsilon := 20, max_groups := 2"),
    ("SELECT ward, sex, count(*) FROM visits GROUP BY ward, sex", "epsilon := 20", "SELECT ward, count(*) FROM visits WHERE sex = 'f' GROUP BY ward", "epsilon := 20"),
    ("SELECT ward, sex, count(*) FROM visits WHERE urgent GROUP BY ward, sex", "epsilon := 20", "SELECT ward, count(*) FROM visits GROUP BY ward", "epsilon := 20"),
    ("SELECT ward, age, count(*) FROM visits GROUP BY ward, age", "epsilon := 20", "SELECT ward, count(*) FROM visits GROUP BY ward", "epsilon := 20"),
    ("SELECT ward, sex, count(DISTINCT patient) FROM visits GROUP BY ward, sex", "epsilon := 20", "SELECT ward, count(DISTINCT patient) FROM visits GROUP BY ward", "epsilon := 20"),
    ("SELECT ward, sex, count(DISTINCT code) FROM visits GROUP BY ward, sex", "epsilon := 20", "SELECT count(DISTINCT code) FROM visits", "epsilon := 20"),
    ("SELECT ward, sex, count(*) FROM visits GROUP BY ward, sex", "epsilon := 20", "SELECT DISTINCT ward FROM visits", "epsilon := 20"),
    ("SELECT ward, count(*) FROM visits GROUP BY ward", "epsilon := 20", "SELECT DISTINCT ward FROM visits", "epsilon := 20"),
    ("SELECT ward, sex, count(*) FROM visits GROUP BY ward, sex", "epsilon := 20", "SELECT ward, count(*) FROM visits GROUP BY ward", "epsilon := 21"),
    ("SELECT ward, sex, count(*) FROM visits GROUP BY ward, sex", "epsilon := 20", "SELECT ward, count(*) FROM visits GROUP BY ward", "epsilon := 10, mechanism := 'laplace'"),
    ("SELECT ward, count(*) FROM visits GROUP BY ward", "epsilon := 20", "SELECT upper(ward) AS u, count(*) FROM visits GROUP BY u", "epsilon := 20"),
    ("SELECT code, avg(cost) FROM visits GROUP BY code", "epsilon := 20", "SELECT code, sum(cost) FROM visits GROUP BY code", "epsilon := 20, min_units := 20"),
]  # fmt: skip


@pytest.mark.parametrize(("first", "more", "later", "options"), NOT_PARTS)
def test_groups_that_are_no_parts_of_others_do_not_answer_for_them(
    con: duckdb.DuckDBPyConnection, first: str, more: str, later: str, options: str
) -> None:
    ask(con, first, more)
    ask(con, later, options)
    assert bought(con) == 2


def test_other_aggregates_of_the_same_private_groups_are_free(con: duckdb.DuckDBPyConnection) -> None:
    first = ask(con, "SELECT code, avg(cost) FROM visits GROUP BY code")
    found = ask(con, "SELECT code, sum(cost), count(*) FROM visits GROUP BY code")
    assert bought(con) == 1 and sorted(code for code, _ in first) == sorted(code for code, *_ in found) == ["c0", "c1", "c2", "c3"]


def test_a_key_with_other_values_is_not_summed_over(con: duckdb.DuckDBPyConnection) -> None:
    """Rows with a value that is not declared are in no group, so sums over it would leave them out."""
    con.execute("CALL dp_declare('visits', 'code', categories := ['c0', 'c1'], outside := 'other', nullable := false)")
    ask(con, "SELECT ward, code, count(*) FROM visits GROUP BY ward, code")
    rows = ask(con, "SELECT ward, count(*) FROM visits GROUP BY ward")
    assert bought(con) == 2 and sum(n for _, n in rows) == pytest.approx(2000, abs=60)
    ask(con, "SELECT code, count(*) FROM visits GROUP BY code")
    assert bought(con) == 2, "sums over wards hold all rows of each code"


@pytest.mark.parametrize(
    ("column", "declared", "free"),
    [
        ("VARCHAR", "categories := ['a', 'b'], nullable := false", False),
        ("VARCHAR", "categories := ['a', 'b']", False),
        ("VARCHAR CHECK (c IN ('a', 'b', 'z'))", "categories := ['a', 'b']", False),
        ("VARCHAR CHECK (c IN ('a', 'b', 'z'))", "categories := ['a', 'b', 'z']", True),
        ("VARCHAR CHECK (c IN ('a', 'b', 'z'))", "categories := ['a', 'b', 'z'], nullable := false", False),
        ("VARCHAR NOT NULL CHECK (c IN ('a', 'b', 'z'))", "categories := ['a', 'b', 'z', 'y'], nullable := false", True),
        ("ENUM('a', 'b', 'z')", None, True),
        ("ENUM('a', 'b', 'z')", "categories := ['a', 'b', 'z'], nullable := false", False),
        ("ENUM('a', 'b', 'z')", "categories := ['a', 'b']", False),
    ],
)
def test_a_total_is_summed_only_of_groups_that_hold_every_row(con: duckdb.DuckDBPyConnection, column: str, declared: str | None, free: bool) -> None:
    """A declaration alone promises nothing of the rows: what it leaves out is in no group, and SQL's total counts it."""
    null = "'a'" if "NOT NULL" in column else "NULL"
    con.execute(f"CREATE TABLE t (c {column}); INSERT INTO t SELECT CASE WHEN i < 10 THEN 'a' WHEN i < 500 THEN {null} ELSE 'z' END FROM range(1000) t(i)")
    con.execute("CALL dp_protect('t', epsilon := 1000, delta := 1e-6)")
    if declared is not None:
        con.execute(f"CALL dp_declare('t', 'c', {declared})")
    ask(con, "SELECT c, count(*) FROM t GROUP BY c")
    ((total,),) = ask(con, "SELECT count(*) FROM t")
    assert total == pytest.approx(1000, abs=20) and bought(con) == (1 if free else 2)


def test_declared_groups_that_were_changed_since_are_not_summed(con: duckdb.DuckDBPyConnection) -> None:
    ask(con, "SELECT ward, sex, count(*) FROM visits GROUP BY ward, sex")
    con.execute("CALL dp_declare('visits', 'sex', categories := ['f', 'm', 'x'], nullable := false)")
    ask(con, "SELECT ward, count(*) FROM visits GROUP BY ward")
    assert bought(con) == 2


def test_the_least_noisy_release_answers(con: duckdb.DuckDBPyConnection) -> None:
    ask(con, "SELECT ward, sex, avg(cost), median(age), corr(cost, age) FROM visits GROUP BY ward, sex", "epsilon := 3, release := 'many'")
    ask(con, "SELECT ward, avg(cost) FROM visits GROUP BY ward", "epsilon := 2, release := 'few'")
    text = "SELECT ward, sum(cost), count(*) FROM visits GROUP BY ward"
    assert "few" in plan(con, text, 1)[1], "half the groups and a third of the aggregates are worth more than epsilon"
    assert "many" in plan(con, text, 3)[1], "no smaller epsilon than what is asked"
    assert not plan(con, text, 4)[0]
    con.execute("FROM dp_marginals('visits', columns := ['ward'], epsilon := 9, release := 'table')").fetchall()
    assert "table" in plan(con, "SELECT ward, count(*) FROM visits GROUP BY ward", 1)[1]
    assert "few" in plan(con, text, 1)[1]


def test_a_rollup_is_not_read_off_its_finest_set(con: duckdb.DuckDBPyConnection) -> None:
    """Each of its sets is bought, with less noise than sums of the finest have; asked again, each is its own."""
    text = "SELECT ward, sex, count(*) FROM visits GROUP BY ROLLUP (ward, sex)"
    first = ask(con, text, "epsilon := 3")
    assert bought(con) == 3 and ask(con, text.replace("count", "COUNT"), "epsilon := 3") == first and bought(con) == 3


def test_two_parts_of_one_query_share_what_the_first_buys(con: duckdb.DuckDBPyConnection) -> None:
    ask(con, "SELECT (SELECT avg(cost) FROM visits) AS a, (SELECT sum(cost) FROM visits) AS b, (SELECT avg(cost) FROM visits) AS c")
    assert bought(con) == 1


TABLE_IS_NOT = [
    "SELECT count(*) FROM few", "SELECT ward, count(*) FROM few GROUP BY ward", "SELECT count(*) FROM visits JOIN wards USING (ward)",
    "SELECT count(*) FROM (SELECT * FROM visits WHERE age > 50)", "SELECT count(*) FROM (SELECT DISTINCT patient, ward FROM visits)",
    "WITH v AS (SELECT * FROM visits WHERE age > 50) SELECT ward, count(*) FROM v GROUP BY ward", "SELECT count(*) FROM visits WHERE urgent",
]  # fmt: skip


@pytest.mark.parametrize("text", TABLE_IS_NOT)
def test_a_table_of_all_rows_does_not_answer_for_other_rows(con: duckdb.DuckDBPyConnection, text: str) -> None:
    con.execute("CREATE VIEW few AS SELECT * FROM visits WHERE age > 50")
    con.execute("CREATE TABLE wards AS SELECT * FROM (VALUES ('er', 1), ('icu', 2)) t(ward, floor)")
    con.execute("ALTER TABLE wards ADD PRIMARY KEY (ward)")
    con.execute("FROM dp_marginals('visits', columns := ['ward'], epsilon := 20)").fetchall()
    rows = ask(con, text, "epsilon := 10")
    assert bought(con) == 2
    assert sum(row[-1] for row in rows) == pytest.approx(sum(row[-1] for row in con.execute(text).fetchall()), abs=60)


def test_a_view_that_leaves_no_row_out_is_not_looked_through_and_errors_stay_the_same(con: duckdb.DuckDBPyConnection) -> None:
    ask(con, "SELECT avg(cost) FROM visits")
    with pytest.raises(duckdb.Error, match="no bounds"):
        ask(con, "SELECT sum(length(code)) FROM visits")
    with pytest.raises(duckdb.Error, match="epsilon"):
        ask(con, "SELECT var_pop(cost) FROM visits", "")
    assert bought(con) == 1


def test_volatile_functions_are_refused_whatever_was_bought(con: duckdb.DuckDBPyConnection) -> None:
    ask(con, "SELECT avg(cost) FROM visits")
    for text in ("SELECT sum(cost + random()) FROM visits", "SELECT count(*) FROM visits WHERE random() < 0.5"):
        with pytest.raises(duckdb.Error, match="random"):
            ask(con, text)
    assert bought(con) == 1


def test_no_null_is_counted_where_there_is_none(con: duckdb.DuckDBPyConnection) -> None:
    """A number of rows is the sum of two counters, not three, where a declaration or a constraint says that no row has NULL."""
    con.execute("CREATE TABLE other (a DOUBLE NOT NULL, b DOUBLE)")
    con.execute("INSERT INTO other SELECT i % 10, CASE WHEN i % 2 = 0 THEN i % 10 END FROM range(3000) t(i)")
    con.execute("CALL dp_protect('other', epsilon := 100, delta := 1e-6)")
    for column in "ab":
        con.execute(f"CALL dp_declare('other', '{column}', lower := 0, upper := 10)")
    found = {}
    for table, columns in (("visits", ("cost", "age", "stay")), ("other", ("a", "b"))):
        for column in columns:
            notes = plan(con, f"SELECT count(*), avg({column}) FROM {table}", 1)[2]
            found[column] = next(float(note.split()[2]) for note in notes if "on a number of rows" in note)
    assert found["stay"] / found["cost"] == pytest.approx(math.sqrt(1.5), rel=1e-3)
    assert found["age"] == pytest.approx(found["cost"], rel=1e-3) and found["b"] / found["a"] == pytest.approx(math.sqrt(1.5), rel=1e-3)
    for column in "ab":
        n, known, mean = ask(con, f"SELECT count(*), count({column}), avg({column}) FROM other")[0]
        exact = con.execute(f"SELECT count(*), count({column}), avg({column}) FROM other").fetchall()[0]
        assert (n, known, mean) == pytest.approx(exact, abs=8)
    assert ask(con, "SELECT count(*) FROM other", "")


def test_a_row_with_null_against_its_declaration_is_in_no_number(con: duckdb.DuckDBPyConnection) -> None:
    con.execute("UPDATE visits SET cost = NULL WHERE patient < 100")
    n, mean = ask(con, "SELECT count(*), avg(cost) FROM visits")[0]
    assert n == pytest.approx(1600, abs=40) and mean == pytest.approx(50, abs=5)


def test_learned_bounds_are_those_of_the_release(con: duckdb.DuckDBPyConnection) -> None:
    more = "epsilon := 20, bounds := 'auto'"
    ask(con, "SELECT ward, avg(length(code)) FROM visits GROUP BY ward", more)
    ask(con, "SELECT ward, sum(length(code)) FROM visits GROUP BY ward", more)
    assert bought(con) == 1
    ask(con, "SELECT ward, sum(length(code)) FROM visits GROUP BY ward", "epsilon := 20, bounds := {'length(code)': [0, 9]}")
    assert bought(con) == 2
    ask(con, "SELECT ward, sum(length(ward)) FROM visits GROUP BY ward", more)
    assert bought(con) == 3
