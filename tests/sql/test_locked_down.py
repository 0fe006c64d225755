"""Every call where the configuration is locked and nothing outside but the release store may be reached, and how errors leave."""

import duckdb
import pytest

import dpsql
from dpsql.answers import books

TABLE = """CREATE TABLE adult AS SELECT 17 + (i * 7919) % 74 AS age, CASE WHEN i % 3 = 0 THEN 'Female' ELSE 'Male' END AS sex,
 CASE WHEN i % 17 < 12 OR i % 3 = 0 THEN 'private' WHEN i % 17 < 15 THEN 'government' END AS employer, i % 5 = 0 AS high,
 i // 3 AS person FROM range(3000) t(i)"""
STORY = [
    "CALL dp_protect('adult', epsilon := 40.0, delta := 1e-6)",
    "CALL dp_protect('adult', privacy_unit := 'person', max_contributions := 3)",
    "CALL dp_declare('adult', 'age', lower := 0, upper := 120, nullable := false)",
    "CALL dp_declare('adult', 'sex', categories_from := 'sexes.sex', nullable := false)",
    "CALL dp_declare('adult', 'employer', discover := true, epsilon := 1.0)",
    "CALL dp_rule('adult', 'NOT (age < 20 AND employer = ''government'')')",
    "FROM dp_domain('adult')",
    "FROM dp_plan('adult', epsilon := 1.0)",
    "FROM dp_marginals('adult', k := 2, epsilon := 1.0)",
    "FROM dp_aggregates('adult', reporting_length := 2, epsilon := 0.5, columns := ['sex', 'employer'])",
    "FROM dp_histogram('adult', 'employer', epsilon := 0.5)",
    "FROM dp_contributions('adult', epsilon := 0.5)",
    "FROM dp_query('SELECT sex, count(*) AS n, avg(age), median(age) FROM adult GROUP BY ALL', epsilon := 1.0, confidence := 0.95, "
    "release := 'q')",
    "FROM dp_explain('q')",
    "FROM dp_query_exact('SELECT sex, count(*) AS n FROM adult GROUP BY ALL')",
    "FROM dp_summarize('adult', epsilon := 1.0)",
    "FROM dp_synthesize('adult', epsilon := 1.0, release := 'first')",
    "FROM dp_synthesize('adult', method := 'gaussian_copula', epsilon := 1.0, columns := ['age', 'sex'], release := 'g')",
    "FROM dp_sample('first', rows := 2000)",
    "FROM dp_sample('first', rows := 130000, into_table := 's')",
    "FROM dp_ledger()",
    "FROM dp_budget('adult')",
    "FROM dp_releases()",
    "FROM dp_evaluate('adult', 's')",
    "FROM dp_evaluate('adult', 's', report := 'values')",
    "FROM dp_export('first', '{store}/x.parquet')",
    "FROM dp_import('{store}/x.parquet')",
    "FROM dp_report('first', path := '{store}/r.html')",
    "FROM dp_report('first', path := '{store}/c.html', compare := true)",
]


def test_every_call_under_a_locked_configuration_without_access_to_anything_else(tmp_path):
    con, store = duckdb.connect(tmp_path / "a.duckdb"), tmp_path / "a.duckdb.dpsql"
    dpsql.load(con)
    con.execute(TABLE)
    con.execute("CREATE TABLE sexes AS SELECT unnest(['Female', 'Male']) AS sex")
    con.execute(f"SET allowed_directories = ['{store}']")
    con.execute("SET enable_external_access = false")
    con.execute("SET lock_configuration = true")
    for statement in STORY:
        assert con.execute(statement.format(store=store)).fetchall(), statement
    assert con.execute("SELECT count(*) FROM s").fetchall() == [(130000,)]
    assert con.execute("SELECT count(*) FROM s WHERE age < 20 AND employer = 'government'").fetchall() == [(0,)]
    assert con.execute("SELECT books FROM dp_budget('adult')").fetchall() == [("intact",)]
    con.close()


def test_a_draw_into_a_table_is_the_same_with_and_without_access(tmp_path):
    con = duckdb.connect(tmp_path / "a.duckdb")
    dpsql.load(con)
    con.execute(TABLE)
    con.execute("CREATE TABLE sexes AS SELECT unnest(['Female', 'Male']) AS sex")
    for statement in [*STORY[:6], STORY[16]]:
        con.execute(statement)
    con.execute("FROM dp_sample('first', rows := 130000, seed := 3, into_table := 'one')")
    con.execute(f"SET allowed_directories = ['{tmp_path / 'a.duckdb.dpsql'}']")
    con.execute("SET enable_external_access = false")
    con.execute("FROM dp_sample('first', rows := 130000, seed := 3, into_table := 'two')")
    assert con.execute("SELECT count(*) FROM (FROM one EXCEPT ALL FROM two)").fetchall() == [(0,)]
    con.close()




@pytest.mark.parametrize(
    ("raised", "told"),
    [
        (ValueError("secret 42"), "for a reason that dpsql did not foresee"),
        (MemoryError("secret 42"), "not enough memory for this call"),
        (duckdb.OutOfMemoryException("secret 42"), "not enough memory for this call"),
        (dpsql.errors.DpsqlError("said on purpose"), "said on purpose"),
        (duckdb.IOException("first\nsecret 42"), "first"),
    ],
)
def test_an_error_leaves_a_sql_function_without_trace_or_what_was_not_foreseen(monkeypatch, capfd, raised, told):
    def failing(*_):
        raise raised

    con = duckdb.connect()
    dpsql.load(con)
    monkeypatch.setattr(books, "budget", failing)
    dpsql.door.dispatch.answer.cache_clear()
    try:
        with pytest.raises(duckdb.Error) as found:
            con.execute("FROM dp_budget()")
        text = str(found.value)
        assert told in text and "secret" not in text
        assert ".py" not in text and "/" not in text.replace("dpsql/", "")
        assert "secret" not in capfd.readouterr().err
        monkeypatch.setenv("DPSQL_DEBUG", "1")
        with pytest.raises(duckdb.Error) as found:
            con.execute("FROM dp_budget()")
        assert "secret" not in str(found.value)
        assert ("test_locked_down" in capfd.readouterr().err) == (type(raised) is not dpsql.errors.DpsqlError)
    finally:
        dpsql.door.dispatch.answer.cache_clear()
        con.close()


def test_an_error_of_arguments_leaves_without_a_trace():
    con = duckdb.connect()
    dpsql.load(con)
    with pytest.raises(duckdb.Error) as found:
        con.execute("FROM dp_marginals('nothing', epsilon := 1.0)")
    assert "no such table or view" in str(found.value) and ".py" not in str(found.value)
    with pytest.raises(duckdb.Error) as found:
        con.execute("SELECT system.main.__dp_call_needs_dpsql_load('budget', 'no json')")
    assert ".py" not in str(found.value) and "Expecting" not in str(found.value)
    with pytest.raises(duckdb.Error) as found:
        con.execute("SELECT dp_combine([1.0, NULL], [1.0, 1.0])")
    assert "estimates" in str(found.value) and ".py" not in str(found.value)
    con.close()
