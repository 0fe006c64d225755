"""What a hostile reviewer tried on histograms, unknown domains and bought domains."""

from __future__ import annotations

import duckdb
import pytest
from noisy import near, near_plan
from prepared import beside

import dpsql

pytestmark = pytest.mark.any_duckdb


def protected(con: duckdb.DuckDBPyConnection, name: str, query: str, **contract: object) -> None:
    con.execute(f"CREATE TABLE {name} AS {query}")
    given = "".join(f", {key} := {value!r}" for key, value in contract.items())
    con.execute(f"CALL dp_protect('{name}', epsilon := 1000, delta := 1e-3{given})")


@pytest.fixture
def con(tmp_path):
    connection = duckdb.connect(str(tmp_path / "a.duckdb"))
    dpsql.load(connection)
    yield connection
    connection.close()


def charges(con) -> int:
    return beside(con).execute("SELECT count(*) FROM dpsql.ledger WHERE action = 'charge'").fetchone()[0]


@pytest.mark.parametrize("globally", [False, True])
def test_a_collation_does_not_merge_texts_or_units(con, globally):
    collated = "" if globally else " COLLATE NOCASE"
    con.execute(f"CREATE TABLE d (person INTEGER, job VARCHAR{collated})")
    con.execute("INSERT INTO d SELECT i, CASE WHEN i = 0 THEN 'SMITH' WHEN i % 3 = 0 THEN 'Jones' ELSE 'smith' END FROM range(1000) t(i)")
    if globally:
        con.execute("SET GLOBAL default_collation = 'NOCASE'")
    con.execute("CALL dp_protect('d', epsilon := 1000, delta := 1e-3)")
    found = dict(con.execute("FROM dp_histogram('d', 'job', epsilon := 20)").fetchall())
    assert set(found) == {"smith", "Jones"}
    sigma = 2**0.5 / 20  # of the two-sided geometric distribution of epsilon = 20: far less than one
    assert near(found["smith"], 666, sigma, "laplace")
    weak = dict(con.execute("FROM dp_histogram('d', 'job', epsilon := 20, domain := ['smith', 'SMITH', 'jones'], release := 'w')").fetchall())
    assert near(weak["smith"], 666, sigma, "laplace")
    assert "jones" not in weak


def test_a_global_collation_does_not_merge_units(con):
    con.execute("SET GLOBAL default_collation = 'NOCASE'")
    protected(con, "v", "SELECT ['u', 'U'][1 + i % 2] || (i // 2) AS who, i % 2 = 0 AS even FROM range(600) t(i)",
              privacy_unit="who", max_contributions=1)
    con.execute("CALL dp_declare('v', 'even', categories := [true, false], nullable := false)")
    table = con.execute("SELECT n FROM dp_marginals('v', columns := ['even'], epsilon := 50)").fetchall()
    assert near_plan(con, "'v', columns := ['even'], epsilon := 50, k := 1", table, [(300,), (300,)])


@pytest.mark.parametrize("value", ["[i % 3]", "{'a': i % 3}", "'x'::BLOB", "to_days((i % 3)::INTEGER)", "MAP {'k': i % 3}", "'101'::BIT"])
def test_types_that_no_category_can_have_are_refused_before_the_charge(con, value):
    protected(con, "l", f"SELECT {value} AS x FROM range(300) t(i)")
    for call in ("FROM dp_histogram('l', 'x', epsilon := 1)", "CALL dp_declare('l', 'x', discover := true, epsilon := 1)"):
        with pytest.raises(duckdb.Error, match=r"cast it|cast the column"):
            con.execute(call)
    assert charges(con) == 0


def test_a_bought_domain_is_checked_before_it_is_bought(con):
    protected(
        con, "t", "SELECT i AS who, 'x' AS job, i % 2 = 0 AS flag, now() AS at_, 'a'::ENUM('a', 'b') AS e FROM range(300) t(i)",
        privacy_unit="who", max_contributions=1,
    )
    for column, more in (("job", ", outside := 'nonsense'"), ("job", ", nullable := 'x'"), ("at_", ""), ("who", ""), ("flag", ""), ("e", ""), ("nope", "")):
        with pytest.raises(duckdb.Error):
            con.execute(f"CALL dp_declare('t', '{column}', discover := true, epsilon := 5{more})")
    assert charges(con) == 0


def test_values_that_no_category_can_be_are_left_out(con):
    protected(con, "f", "SELECT CASE i % 4 WHEN 0 THEN 'nan' WHEN 1 THEN 'inf' WHEN 2 THEN '-0.0' ELSE '1.5' END::DOUBLE AS x, 'a' || chr(0) AS z FROM range(4000) t(i)")
    row = con.execute("CALL dp_declare('f', 'x', discover := 'values', epsilon := 5, nullable := false)").fetchone()
    assert row[4] == "'0.0', '1.5', others"
    assert row[6] == "other"
    assert con.execute("FROM dp_histogram('f', 'z', epsilon := 5)").fetchall() == []


def test_the_spelling_and_order_of_columns_buys_nothing_again(con):
    protected(con, "v", "SELECT 'x' AS Job, i % 2 = 0 AS b, 'n' AS c FROM range(300) t(i)")
    con.execute("CALL dp_declare('v', 'job', categories := ['x'], nullable := false)")
    one = con.execute("FROM dp_histogram('v', 'job', epsilon := 5, domain := ['x', 'y'])").fetchall()
    assert con.execute("FROM dp_histogram('v', 'JOB', epsilon := 5, domain := ['x', 'y'])").fetchall() == one
    rows = con.execute("FROM dp_synthesize('v', method := 'laplace_sanitizer', columns := ['job', 'b'], epsilon := 1)").fetchall()
    assert con.execute("FROM dp_synthesize('v', method := 'laplace_sanitizer', columns := ['B', 'JOB'], epsilon := 1)").fetchall() == rows
    assert charges(con) == 2


def test_sixteen_selections_of_the_default_delta_fit(con):
    con.execute("CREATE TABLE s AS SELECT 'x' AS job FROM range(300) t(i)")
    con.execute("CALL dp_protect('s', epsilon := 1000, delta := 1e-9)")
    for number in range(16):
        con.execute(f"FROM dp_histogram('s', 'job', epsilon := 1, release := '{number}')")
    with pytest.raises(duckdb.Error, match="smaller delta"):
        con.execute("FROM dp_histogram('s', 'job', epsilon := 1, release := 'more')")


def test_a_universe_for_numbers_holds_numbers(con):
    protected(con, "n", "SELECT (i % 3)::DECIMAL(9, 2) AS y FROM range(900) t(i)")
    for given in ("domain := 'pattern:[a-z]'", "domain := ['a']", "domain := ['1'], domain_size := 100"):
        with pytest.raises(duckdb.Error, match=r"VARCHAR|not a value"):
            con.execute(f"FROM dp_histogram('n', 'y', epsilon := 5, {given})")
    assert charges(con) == 0
    found = con.execute("FROM dp_histogram('n', 'y', epsilon := 20, domain := [0, 1, 2, 7])").fetchall()
    assert {value for value, _ in found} == {"0.00", "1.00", "2.00"}
    rows = con.execute(
        "SELECT DISTINCT y FROM dp_synthesize('n', columns := ['y'], method := 'weak_domain', epsilon := 20, options := {'domain': ['2', '1', '0']}) ORDER BY y"
    ).fetchall()
    assert [float(y) for (y,) in rows] == [0.0, 1.0, 2.0]


def test_equal_counts_of_two_tables_decode_in_their_own_domains(con):
    for name, value in (("a", "x"), ("b", "p")):
        protected(con, name, f"SELECT '{value}' AS race FROM range(3)", neighbors="replace_one")
        con.execute(f"CALL dp_declare('{name}', 'race', categories := ['{value}', '{value}2'], nullable := false)")
    call = "SELECT race FROM dp_synthesize('{}', columns := ['race'], method := 'multinomial_dirichlet', epsilon := 100)"
    assert con.execute(call.format("a")).fetchall() == [("x",)] * 3
    assert con.execute(call.format("b")).fetchall() == [("p",)] * 3


def test_an_old_folder_of_drawn_rows_does_not_answer_for_a_new_database(tmp_path):
    for value in ("x", "p"):
        (tmp_path / "r.duckdb").unlink(missing_ok=True)
        con = duckdb.connect(str(tmp_path / "r.duckdb"))
        dpsql.load(con)
        protected(con, "a", f"SELECT '{value}' AS race FROM range(3)", neighbors="replace_one")
        con.execute(f"CALL dp_declare('a', 'race', categories := ['{value}', '{value}2'], nullable := false)")
        call = "SELECT race FROM dp_synthesize('a', columns := ['race'], method := 'multinomial_dirichlet', epsilon := 100)"
        assert con.execute(call).fetchall() == [(value,)] * 3
        con.close()


def test_a_protected_domain_table_is_named_as_such(con):
    protected(con, "ce", "SELECT 'x' AS job FROM range(10) t(i)")
    con.execute("CREATE VIEW peek AS FROM ce")
    for taken, text in (("ce", "protected"), ("main.ce", "protected"), ("ce.job", "protected"), ("main.ce.job", "protected"), ("peek", "not a view"), ("peek.job", "not a view")):
        with pytest.raises(duckdb.Error, match=text):
            con.execute(f"FROM dp_histogram('ce', 'job', epsilon := 1, domain := '{taken}')")
    assert charges(con) == 0


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("method := 'weak_domain', options := {'domain': ['x']}, delta := 0.5", "delta = 0.5: weak_domain spends none"),
        ("method := 'laplace_sanitizer', delta := 0.5", "delta = 0.5: laplace_sanitizer spends none"),
        ("method := 'laplace_sanitizer', epsilon := 1e-14", "epsilon = 1e-14: must be at least"),
        ("method := 'weak_domain', options := {'domain': 'pattern:[a-z]{999}'}", "10.300 members"),
        ("method := 'weak_domain', options := {'domain': ['x'], 'domain_size': 5.5}", r"domain_size = 5.5: a whole number from 1 to 1e\+300"),
        ("method := 'weak_domain', options := {'domain': ['x']}, epsilon := 1e-14", "epsilon = 1e-14: is too small"),
    ],
)
def test_messages_name_the_argument(con, given, text):
    protected(con, "m", "SELECT 'x' AS job FROM range(10) t(i)")
    con.execute("CALL dp_declare('m', 'job', categories := ['x'])")
    epsilon = "" if "epsilon" in given else ", epsilon := 1"
    with pytest.raises(duckdb.Error, match=text):
        con.execute(f"FROM dp_synthesize('m', columns := ['job'], {given}{epsilon})")
    assert charges(con) == 0


def test_an_old_folder_of_reported_tuples_does_not_answer_for_a_new_database(tmp_path, monkeypatch):
    monkeypatch.setattr("dpsql.noise.discrete.add_noise", lambda counts, mechanism, scale: counts)  # equal counts in both
    for value in ("x", "p"):
        (tmp_path / "r.duckdb").unlink(missing_ok=True)
        con = duckdb.connect(str(tmp_path / "r.duckdb"))
        dpsql.load(con)
        protected(con, "a", f"SELECT '{value}' AS race FROM range(300)")
        con.execute(f"CALL dp_declare('a', 'race', categories := ['{value}', '{value}2'], nullable := false)")
        found = con.execute("SELECT \"values\" FROM dp_aggregates('a', reporting_length := 1, epsilon := 1)").fetchall()
        assert found == [([value],)]
        con.close()
