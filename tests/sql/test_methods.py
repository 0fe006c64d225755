"""Every method of dp_synthesize through SQL: planned, charged once, released, drawn again, refused where it does not hold."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from noisy import near, planned_noise
from prepared import beside
from sample_tables import DELTA

import dpsql

pytestmark = pytest.mark.any_duckdb

ROWS = 400
DRAWN = {
    "laplace_sanitizer": ["race"],
    "multinomial_dirichlet": ["race", "urban"],
    "beta_binomial": ["urban"],
    "poisson_gamma": ["race"],
    "dp_prior": ["race"],
    "perturbed_histogram": ["income"],
    "smoothed_histogram": ["income"],
    "empirical_cdf": ["income"],
    "modips": ["race", "income", "tax"],
}
BOTH_RELATIONS = {"laplace_sanitizer", "perturbed_histogram"}


@pytest.fixture(scope="module")
def protected_ce(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed file with a table whose number of rows is public; tests copy it."""
    path = tmp_path_factory.mktemp("protected") / "ce.duckdb"
    con = duckdb.connect(str(path))
    con.execute(
        f"""
        CREATE TABLE ce AS SELECT i AS person, ['a','b','c','d','e','f'][1 + (i * i % 11) % 6] AS race, i % 3 = 0 AS urban,
            (i * 7919 % 1000)::INTEGER AS income, ((i * 7919 % 1000) / 10 + i % 7)::DOUBLE AS tax,
            'job ' || (i % 9) AS job FROM range({ROWS}) t(i)
        """
    )
    con.execute("ALTER TABLE ce ALTER urban SET NOT NULL")
    dpsql.load(con)
    con.execute("CALL dp_protect('ce', epsilon := 40, delta := 1e-9, neighbors := 'replace_one')")
    con.execute("CALL dp_declare('ce', 'race', categories := ['a','b','c','d','e','f'], nullable := false)")
    con.execute("CALL dp_declare('ce', 'income', lower := 0, upper := 1000, bins := 8, nullable := false)")
    con.execute("CALL dp_declare('ce', 'tax', lower := 0, upper := 110, bins := 11, nullable := false)")
    con.execute("CREATE TABLE words AS SELECT 'job ' || i AS word FROM range(1000) t(i)")
    con.close()
    return path


@pytest.fixture
def ce(tmp_path: Path, protected_ce: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    con = duckdb.connect(str(shutil.copy(protected_ce, tmp_path / "ce.duckdb")))
    dpsql.load(con)
    yield con
    con.close()


def charges(con: duckdb.DuckDBPyConnection) -> int:
    return beside(con).execute("SELECT count(*) FROM dpsql.ledger WHERE action = 'charge'").fetchone()[0]


@pytest.mark.parametrize("method", DRAWN)
def test_a_method_is_planned_charged_once_released_and_drawn_again(ce, method):
    columns = DRAWN[method]
    plan = ce.execute(
        f"SELECT method, tables, affordable, bought, epsilon, delta, epsilon_left_after, release FROM dp_plan('ce', method := '{method}', epsilon := 1, columns := {columns})"
    ).fetchone()
    assert plan[:4] == (method, 1, True, False)
    assert 0.99 < plan[4] <= 1.0
    assert plan[5] == 0  # pure
    assert charges(ce) == 0
    call = f"FROM dp_synthesize('ce', method := '{method}', epsilon := 1, columns := {columns})"
    ce.execute(f"CREATE TABLE synth AS {call}")
    described = ce.execute("SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = 'synth' ORDER BY column_index").fetchall()
    original = dict(ce.execute("SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = 'ce'").fetchall())
    assert described == [(name, original[name]) for name in original if name in columns]
    rows = ce.execute("SELECT count(*) FROM synth").fetchone()[0]
    if method in BOTH_RELATIONS:
        (cells,) = ce.execute(f"SELECT cells FROM dp_plan('ce', method := '{method}', epsilon := 1, columns := {columns})").fetchone()
        sigma, mechanism = planned_noise(ce, f"'ce', method := '{method}', epsilon := 1, columns := {columns}")
        assert near(rows, ROWS, sigma * cells**0.5, mechanism)
    else:
        assert rows == ROWS
    assert ce.execute(call).fetchall() == ce.execute("FROM synth").fetchall()
    assert charges(ce) == 1
    name = ce.execute("SELECT release FROM dp_releases()").fetchone()[0]
    assert name == plan[7]
    one, again, other = (
        ce.execute(f"FROM dp_sample('{name}', rows := 3000, seed := {seed})").fetchall() for seed in (1, 1, 2)
    )
    assert len(one) == 3000
    assert one == again != other
    assert ce.execute(f"SELECT count(*) FROM dp_sample('{name}', rows := 0)").fetchone() == (0,)
    spent = ce.execute("SELECT epsilon_spent, epsilon_left FROM dp_budget('ce')").fetchone()
    assert 0.99 < spent[0] <= 1.0 + 1e-9
    assert spent[1] > 30
    outside = "NOT income BETWEEN 0 AND 1000" if "income" in columns else "false"
    assert ce.execute(f"SELECT count(*) FROM synth WHERE {outside}").fetchone() == (0,)


@pytest.mark.parametrize("method", [name for name in DRAWN])
def test_sets_are_numbered_and_split_the_budget(ce, method):
    columns = DRAWN[method]
    notes = ce.execute(
        f"SELECT epsilon, list_aggregate(notes, 'string_agg', ' ') FROM dp_plan('ce', method := '{method}', epsilon := 5, columns := {columns}, options := {{'sets': 10}})"
    ).fetchone()
    assert 4.99 < notes[0] <= 5.0
    assert "0.5" in notes[1]
    call = f"FROM dp_synthesize('ce', method := '{method}', epsilon := 5, columns := {columns}, options := {{'sets': 10}})"
    found = ce.execute(f"SELECT set, count(*) FROM ({call}) GROUP BY set ORDER BY set").fetchall()
    assert [number for number, _ in found] == list(range(1, 11))
    assert all(count == ROWS for _, count in found) or method in BOTH_RELATIONS
    events = ce.execute("SELECT events FROM dpsql.ledger WHERE action = 'charge'").fetchone()[0]
    assert '"count": 10' in events or '"count":10' in events
    assert ce.execute(f"SELECT count(*) FROM ({call.replace('columns', 'rows := 25, columns')})").fetchone() == (25,)


@pytest.mark.parametrize("method", [name for name in DRAWN if name not in BOTH_RELATIONS])
def test_a_method_that_needs_a_public_n_says_so(con, charges, method):
    """The fixture's table is add_remove."""
    con.execute("CALL dp_declare('people', 'sex', categories := ['f', 'm'], nullable := false)")
    columns = {"beta_binomial": ["sex"], "empirical_cdf": ["age"], "smoothed_histogram": ["age"]}.get(method, ["region"])
    for call in ("dp_plan", "dp_synthesize"):
        with pytest.raises(duckdb.Error, match="replace_one"):
            con.execute(f"FROM {call}('people', method := '{method}', epsilon := 1, columns := {columns})").fetchall()
    assert charges() == 0


def test_a_filtered_table_has_no_public_n(ce):
    with pytest.raises(duckdb.Error, match=r"public|filter"):
        ce.execute("FROM dp_synthesize('SELECT race FROM ce WHERE income > 10', method := 'dp_prior', epsilon := 1, columns := ['race'])")
    assert charges(ce) == 0


def test_a_method_answers_for_wrong_columns_and_options(ce):
    bad = {
        "beta_binomial": (["race"], "exactly 2"),
        "empirical_cdf": (["race", "urban"], "one column"),
        "weak_domain": (["race", "urban"], "one column"),
    }
    for method, (columns, text) in bad.items():
        with pytest.raises(duckdb.Error, match=text):
            ce.execute(f"FROM dp_synthesize('ce', method := '{method}', epsilon := 1, columns := {columns})")
    for options in ("{'sets': 0}", "{'sets': 1.5}", "{'sets': 'many'}", "{'mechanism': 'gaussian'}"):
        with pytest.raises(duckdb.Error, match="sets|no such option"):
            ce.execute(f"FROM dp_synthesize('ce', method := 'dp_prior', epsilon := 1, columns := ['race'], options := {options})")
    assert charges(ce) == 0


def test_pure_releases_add_up_and_the_budget_is_a_hard_limit(ce):
    for number in range(4):
        ce.execute(f"FROM dp_synthesize('ce', method := 'dp_prior', epsilon := 10, columns := ['race'], release := 'r{number}')")
    with pytest.raises(duckdb.Error, match=r"budget|left"):
        ce.execute("FROM dp_synthesize('ce', method := 'dp_prior', epsilon := 0.01, columns := ['race'], release := 'more')")
    assert charges(ce) == 4
    assert ce.execute("SELECT bool_and(chain_holds) FROM dp_ledger()").fetchone() == (True,)


def test_dp_releases_says_what_was_thresholded(ce):
    ce.execute("FROM dp_synthesize('ce', method := 'modips', epsilon := 0.000001, columns := ['income'], release := 'noisy')")
    ce.execute("FROM dp_synthesize('ce', method := 'modips', epsilon := 10, columns := ['income'], release := 'fine')")
    notes = dict(ce.execute("SELECT release.regexp_extract('noisy|fine'), notes FROM dp_releases()").fetchall())
    assert notes["fine"] == ["no statistic lay outside its range"]
    assert notes["noisy"] != notes["fine"]


def test_a_release_opens_on_another_machine(ce, tmp_path):
    ce.execute("FROM dp_synthesize('ce', method := 'modips', epsilon := 5, columns := ['race', 'income'])")
    name = ce.execute("SELECT release FROM dp_releases()").fetchone()[0]
    ce.execute(f"FROM dp_export('{name}', '{tmp_path / 'r.parquet'}')")
    rows = ce.execute(f"FROM dp_sample('{name}', rows := 50, seed := 3)").fetchall()
    other = duckdb.connect()
    dpsql.load(other, store=tmp_path / "elsewhere")
    other.execute(f"FROM dp_import('{tmp_path / 'r.parquet'}')")
    assert other.execute(f"FROM dp_sample('{name}', rows := 50, seed := 3)").fetchall() == rows
    other.close()


def test_expected_counts_of_the_cells(ce):
    call = "'ce', method := 'poisson_gamma', columns := ['race'], epsilon := 4, options := {'expected': [9, 9, 4, 4, 3, 3.5]}"
    (note,) = ce.execute(f"SELECT notes FROM dp_plan({call})").fetchone()[0]
    assert note.startswith("prior strength of a cell: n * 0.0") and "expected count" in note
    found = dict(ce.execute(f"SELECT race, count(*) FROM dp_synthesize({call}) GROUP BY race").fetchall())
    assert set(found) <= set("abcdef") and sum(found.values()) == ROWS
    for wrong, text in (("[1, 2]", "list of 6 numbers"), ("[1, 1, 1, 1, 1, 1000]", "100 times"), ("'none'", "'equal' or a list")):
        with pytest.raises(duckdb.Error, match=text):
            ce.execute(f"FROM dp_synthesize({call.split(', options')[0]}, release := 'w', options := {{'expected': {wrong}}})")
    assert charges(ce) == 1


def test_a_copula_of_rank_correlations(ce, tmp_path):
    call = "'ce', method := 'dpcopula_kendall', columns := ['race', 'urban', 'income', 'tax'], epsilon := 30"
    plan = ce.execute(f"SELECT measures, epsilon, delta, cells, mechanism, notes, release, tables FROM dp_plan({call})").fetchone()
    assert plan[0] == "4 one-way tables, 6 pairwise Kendall taus of 4 columns" and plan[7] == 4
    assert 29.99 < plan[1] <= 30 and plan[2] == 0
    assert plan[3:5] == (6 + 2 + 8 + 11 + 6, "laplace")
    fewer = call.replace("'race', 'urban', ", "")
    (two,) = ce.execute(f"SELECT measures FROM dp_plan({fewer})").fetchone()
    assert two == "2 one-way tables, 1 pairwise Kendall tau of income, tax"
    assert plan[5][0] == "taken in the order in which they were declared: race" and "on the counts of 4 columns" in plan[5][1]
    ce.execute(f"CREATE TABLE synth AS FROM dp_synthesize({call})")
    ce.execute(f"FROM dp_synthesize({call})")
    assert charges(ce) == 1
    raw, synthetic = (ce.execute(f"SELECT count(*), corr(income, tax), avg(income), avg(urban::INT) FROM {t}").fetchone() for t in ("ce", "synth"))
    assert synthetic[0] == raw[0] == ROWS and raw[1] > 0.99
    # Of noise and of drawing 400 rows together: deviations of 0.006, 18 and 0.02, as 24 releases have them.
    assert synthetic[1] > 0.9 and abs(synthetic[2] - raw[2]) < 130 and abs(synthetic[3] - raw[3]) < 0.15
    events = json.loads(ce.execute("SELECT events FROM dpsql.ledger WHERE action = 'charge'").fetchone()[0])
    assert [(event["event"], event["l1_sensitivity"], event["count"]) for event in events] == [("laplace", 2.0, 4), ("laplace", 524293.0, 1)]
    rows = ce.execute(f"FROM dp_sample('{plan[6]}', rows := 50, seed := 3)").fetchall()
    ce.execute(f"FROM dp_export('{plan[6]}', '{tmp_path / 'r.parquet'}')")
    other = duckdb.connect()
    dpsql.load(other, store=tmp_path / "elsewhere")
    other.execute(f"FROM dp_import('{tmp_path / 'r.parquet'}')")
    assert other.execute(f"FROM dp_sample('{plan[6]}', rows := 50, seed := 3)").fetchall() == rows
    other.close()


@pytest.mark.parametrize(
    ("method", "columns", "more", "unit"),
    [
        ("dpcopula_kendall", ["answer", "income", "day"], "", ""),
        ("multinomial_dirichlet", ["answer", "day"], "", ", privacy_unit := 'person', max_contributions := 3"),
        ("modips", ["answer", "income"], ", nullable := false", ""),
    ],
)
def test_all_that_is_in_the_way_is_said_at_once(method, columns, more, unit):
    """A newcomer declares nothing: the calls of the first refusal, with his own words in them, are all that the second try needs."""
    con = duckdb.connect()
    dpsql.load(con, progress=False)
    con.execute("CREATE TABLE survey AS SELECT i AS person, 'abc'[1 + i % 3] AS answer, i / 7 AS income, DATE '2021-01-01' + i::INTEGER AS day FROM range(99) t(i)")
    con.execute(f"CALL dp_protect('survey', epsilon := 20, delta := {DELTA}{unit})")
    ask = f"FROM dp_synthesize('survey', columns := {columns}, method := '{method}', epsilon := 1)"
    with pytest.raises(duckdb.Error, match=r"things are in the way, and nothing was charged\. \(1\) columns = ") as caught:
        con.execute(ask.replace("epsilon := 1", "epsilon := 1, delta := 1e-9"))
    said = str(caught.value).split("\n\nLINE 1")[0]
    assert "which must be public" in said and f"delta = 1e-09: {method} spends none" in said
    assert ("'income' may be NULL" in said) == bool(more)
    calls = re.findall(r"CALL .*?\)(?=[;.] |\.$)", said)
    assert len(calls) == len(columns) + 1
    for call in calls:
        call = call.replace("lower := ..., upper := ..., bins := ...", f"lower := 0, upper := 20, bins := 4{more}")
        con.execute(call.replace("['...', '...']", "['a', 'b', 'c']"))
    assert len(con.execute(ask).fetchall()) == 99
    con.close()


def test_what_is_filtered_is_said_beside_the_contract(con):
    """Two reasons why the number of rows is private are said together."""
    source = "SELECT region, sex FROM people WHERE age > 40"
    with pytest.raises(duckdb.Error, match="Here neighbors is 'add_remove' and the source is not the whole table.*CALL dp_protect"):
        con.execute(f"FROM dp_synthesize('{source}', method := 'dpcopula_kendall', epsilon := 1)")


def test_a_copula_of_rank_correlations_needs_a_public_n(con, charges):
    """The fixture's table is add_remove."""
    for call in ("dp_plan", "dp_synthesize"):
        with pytest.raises(duckdb.Error, match="twice the number of rows, which must be public.*replace_one.*latent_class"):
            con.execute(f"FROM {call}('people', method := 'dpcopula_kendall', epsilon := 1, columns := ['region', 'age'])").fetchall()
    assert charges() == 0


def test_options_of_a_copula_of_rank_correlations(ce):
    for options, text in (("{'ratio': 0}", "0.01 to 100"), ("{'correlation': 'x'}", "'posterior', 'sine'"), ("{'sets': 2}", "option")):
        with pytest.raises(duckdb.Error, match=text):
            ce.execute(f"FROM dp_synthesize('ce', method := 'dpcopula_kendall', epsilon := 1, columns := ['income', 'tax'], options := {options})")
    assert charges(ce) == 0
    call = "FROM dp_synthesize('ce', method := 'dpcopula_kendall', epsilon := 1, columns := {}, options := {}, release := '{}')"
    for number, (columns, options) in enumerate([(["income"], "{'ratio': 1}"), (["income", "tax"], "{'ratio': 2.5, 'correlation': 'sine'}")]):
        assert len(ce.execute(call.format(columns, options, number)).fetchall()) == ROWS


def test_a_weak_domain_in_a_histogram_and_as_rows(ce):
    call = "FROM dp_histogram('ce', 'job', epsilon := 2, domain := 'words', rho := 0.9)"
    ce.execute(f"CREATE TABLE released AS {call}")
    assert ce.execute("DESCRIBE released").fetchall()[0][:2] == ("value", "VARCHAR")
    assert ce.execute("FROM released").fetchall() == ce.execute(call).fetchall()
    assert charges(ce) == 1
    found = dict(ce.execute("FROM released").fetchall())
    true = dict(ce.execute("SELECT job, count(*) FROM ce GROUP BY job").fetchall())
    assert set(true) <= set(found)
    assert all(abs(found[job] - true[job]) < 40 for job in true)
    assert len(found) < 20
    ce.execute(
        "CREATE TABLE jobs AS FROM dp_synthesize('ce', method := 'weak_domain', columns := ['job'], epsilon := 2, "
        "options := {'domain': 'words.word', 'domain_size': 999, 'rho': 0.5})"
    )
    assert ce.execute("SELECT count(DISTINCT job) FROM jobs").fetchone()[0] >= 9
    parameters = ce.execute("SELECT plan FROM dpsql.ledger WHERE release LIKE '%synthesize%' AND action = 'charge'").fetchone()[0]
    assert '"domain_size": 999' in parameters.replace('":', '": ').replace("  ", " ")
    plan = ce.execute(
        "SELECT epsilon, delta, cells FROM dp_plan('ce', method := 'weak_domain', columns := ['job'], epsilon := 1, options := {'domain': 'pattern:job [0-9]'})"
    ).fetchone()
    assert plan[0] <= 1.0
    assert plan[1:] == (0.0, None)


def test_a_weak_domain_never_shows_a_value_that_is_not_in_it(ce):
    ce.execute("UPDATE ce SET job = 'secret' WHERE person < 200")
    found = dict(ce.execute("FROM dp_histogram('ce', 'job', epsilon := 5, domain := ['job 1', 'job 2', 'nothing'], rho := 0.9)").fetchall())
    assert set(found) <= {"job 1", "job 2", "nothing"}


def test_the_domain_must_be_public(ce):
    with pytest.raises(duckdb.Error, match="protected"):
        ce.execute("FROM dp_histogram('ce', 'job', epsilon := 1, domain := 'ce.job')")
    for given in ("domain := 'nowhere'", "domain := 7", "domain := []", "domain := 'words', domain_size := 0", "rho := 0.5", "domain := 'words', rho := 1"):
        with pytest.raises(duckdb.Error, match=r"domain|rho"):
            ce.execute(f"FROM dp_histogram('ce', 'job', epsilon := 1, {given})")
    assert charges(ce) == 0


def test_a_domain_that_changes_after_the_charge_is_refused(ce, monkeypatch):
    from dpsql.engines.duckdb import counting

    real = counting.count_values

    def fail(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(counting, "count_values", fail)
    with pytest.raises(BaseException):  # noqa: B017
        dpsql.histogram(ce, "ce", "job", epsilon=1.0, domain="words")
    monkeypatch.setattr(counting, "count_values", real)
    ce.execute("INSERT INTO words VALUES ('another')")
    with pytest.raises(dpsql.ReleaseError, match="changed"):
        dpsql.histogram(ce, "ce", "job", epsilon=1.0, domain="words")
    ce.execute("DELETE FROM words WHERE word = 'another'")
    assert dpsql.histogram(ce, "ce", "job", epsilon=1.0, domain="words").fetchall()
    assert charges(ce) == 1


def test_a_bought_domain_is_declared_and_on_the_ledger(ce):
    call = "CALL dp_declare('ce', 'job', discover := true, epsilon := 4, nullable := false)"
    row = ce.execute(call).fetchone()
    assert row[0] == "job"
    labels = json.loads(ce.execute("SELECT attribute FROM dpsql.domains WHERE \"column\" = 'job'").fetchone()[0])["categories"]
    assert set(labels) <= {f"job {i}" for i in range(9)}
    assert len(labels) >= 4
    assert labels == sorted(labels)
    assert row[4].endswith("others") or "values)" in row[4]  # what was not bought, by default
    assert ce.execute(call).fetchone() == row
    assert charges(ce) == 1
    bought = ce.execute("SELECT operation, epsilon, delta FROM dp_releases()").fetchone()
    assert bought[0] == "discover"
    assert bought[2] > 0
    ce.execute("FROM dp_synthesize('ce', method := 'multinomial_dirichlet', epsilon := 5, columns := ['job'])")
    assert charges(ce) == 2
    with pytest.raises(duckdb.Error, match="discover"):
        ce.execute("CALL dp_declare('ce', 'job', discover := true, epsilon := 4, categories := ['x'])")
    with pytest.raises(duckdb.Error, match="discover"):
        ce.execute("CALL dp_declare('ce', 'job', epsilon := 4, categories := ['x'])")


def test_nothing_is_bought_where_nobody_repeats(ce):
    ce.execute("ALTER TABLE ce ADD COLUMN code VARCHAR")
    ce.execute("UPDATE ce SET code = md5(person::VARCHAR)")
    with pytest.raises(duckdb.Error, match="empty"):
        ce.execute("CALL dp_declare('ce', 'code', discover := true, epsilon := 1)")
    assert charges(ce) == 1
    assert ce.execute("FROM dp_histogram('ce', 'code', epsilon := 1)").fetchall() == []
    with pytest.raises(duckdb.Error, match="no value"):
        ce.execute("FROM dp_synthesize('ce', method := 'stable_selection', columns := ['code'], epsilon := 1, rows := 5)")


def test_estimates_are_combined_in_sql(ce):
    ce.execute("CREATE TABLE estimates AS SELECT * FROM (VALUES ('x', 1.0, 0.5), ('x', 2.0, 0.7), ('x', 4.0, 0.6), ('y', 1, 1), ('y', 1, 1)) t(g, estimate, variance)")
    row = ce.execute("SELECT estimate, variance, df, sets FROM dp_combine((SELECT list(e) FROM estimates e WHERE g = 'x'))").fetchone()
    b, v = 7 / 3, 0.6
    assert row[0] == pytest.approx(7 / 3)
    assert row[1] == pytest.approx(b / 3 + v)
    assert row[2] == pytest.approx(2 * (1 + v * 3 / b) ** 2)
    assert row[3] == 3
    rows = ce.execute("SELECT g, unnest(dp_combine(list(estimate), list(variance), level := 0.9)) FROM estimates GROUP BY g ORDER BY g").fetchall()
    assert [r[0] for r in rows] == ["x", "y"]
    assert rows[1][1] == 1
    assert rows[1][2] == 1
    for bad in ("[1.0]", "[]", "[1.0, NULL]", "NULL"):
        with pytest.raises(duckdb.Error, match="estimates|variances"):
            ce.execute(f"SELECT dp_combine({bad}, {bad})").fetchall()
    with pytest.raises(duckdb.Error, match="level"):
        ce.execute("SELECT dp_combine([1.0, 2.0], [1.0, 1.0], level := 1.5)").fetchall()
    assert dpsql.combine([1.0, 2.0, 4.0], [0.5, 0.7, 0.6]).estimate == pytest.approx(7 / 3)


def test_empty_and_tiny_tables(ce):
    for rows in (0, 1, 2):
        ce.execute(f"CREATE TABLE tiny{rows} AS FROM ce LIMIT {rows}")
        ce.execute(f"CALL dp_protect('tiny{rows}', epsilon := 100, delta := 1e-9, neighbors := 'replace_one')")
        ce.execute(f"CALL dp_declare('tiny{rows}', 'race', categories := ['a','b','c','d','e','f'], nullable := false)")
        ce.execute(f"CALL dp_declare('tiny{rows}', 'urban', categories := [true, false], nullable := false)")
        for column in ("income", "tax"):
            ce.execute(f"CALL dp_declare('tiny{rows}', '{column}', lower := 0, upper := 1000, bins := 8, nullable := false)")
        for method, columns in DRAWN.items():
            call = f"dp_synthesize('tiny{rows}', method := '{method}', epsilon := 1, columns := {columns}, release := '{method}')"
            count = ce.execute(f"SELECT count(*) FROM {call}").fetchone()[0]
            assert count == rows or method in BOTH_RELATIONS
        assert ce.execute(f"FROM dp_histogram('tiny{rows}', 'job', epsilon := 1, domain := 'words')").fetchall() is not None
