"""Arguments at the door: two names of one, what a call does not have, values that Python alone can give, and the privacy unit."""

from __future__ import annotations

import duckdb
import pandas as pd
import pytest

import dpsql

pytestmark = pytest.mark.any_duckdb

CHARGES = "SELECT count(*) FROM dpsql.ledger WHERE action = 'charge'"


def visits(extra: str = "") -> duckdb.DuckDBPyConnection:
    con = duckdb.connect()
    dpsql.load(con)
    con.execute("CREATE TABLE visits AS SELECT 'p' || (i % 50) AS who, i % 50 < 25 AS member, i % 2 = 0 AS a FROM range(500) t(i)")
    con.execute(extra)
    con.execute("CALL dp_protect('visits', epsilon := 40, delta := 1e-9, privacy_unit := 'who', max_contributions := 10)")
    return con


@pytest.mark.parametrize(
    "call",
    [
        "FROM dp_histogram('visits', 'who', epsilon := 1, domain := 'pattern:p[0-9]{2}')",
        "FROM dp_histogram('visits', 'WHO', epsilon := 1)",
        "FROM dp_histogram('SELECT who AS x FROM visits', 'x', epsilon := 1)",
        "FROM dp_synthesize('visits', columns := ['who'], method := 'weak_domain', options := {'domain': ['p1']}, epsilon := 1)",
        "FROM dp_synthesize('visits', columns := ['who'], method := 'stable_selection', epsilon := 1)",
        "FROM dp_plan('visits', columns := ['who'], method := 'stable_selection', epsilon := 1)",
        "FROM dp_marginals('visits', columns := ['who'], epsilon := 1)",
        "FROM dp_aggregates('visits', columns := ['a', 'who'], reporting_length := 2, epsilon := 1)",
        "FROM dp_synthesize('visits', columns := ['a', 'who'], method := 'gaussian_copula', epsilon := 1)",
    ],
)
def test_whose_row_it_is_cannot_be_bought_by_any_kind(call):
    con = visits()
    with pytest.raises(duckdb.Error, match="is the privacy unit"):
        con.execute(call)
    assert con.execute(CHARGES).fetchone() == (0,)
    con.close()


def test_a_column_that_was_declared_before_it_became_the_unit_is_no_data_either():
    declared = "CALL dp_protect('visits', epsilon := 1, delta := 1e-9); CALL dp_declare('visits', 'who', categories := ['p1', 'p2'])"
    con = visits(declared)
    rows = con.execute("SELECT column_name, status FROM dp_domain('visits')").fetchall()
    assert dict(rows)["who"] == "the privacy unit"
    assert con.execute("SELECT columns FROM dp_plan('visits', columns := ['a'], epsilon := 1)").fetchone() == (["a"],)
    with pytest.raises(duckdb.Error, match="is the privacy unit"):
        con.execute("FROM dp_marginals('visits', columns := ['who'], epsilon := 1)")
    con.execute("CALL dp_protect('visits', privacy_unit := 'member', max_contributions := 10)")  # by its type it would have a domain
    with pytest.raises(duckdb.Error, match="is the privacy unit"):
        con.execute("FROM dp_marginals('visits', columns := ['member'], epsilon := 1)")
    assert con.execute(CHARGES).fetchone() == (0,)
    con.close()


def test_two_names_of_one_argument_say_the_same_or_are_refused(con, charges):
    with pytest.raises(duckdb.Error, match="column_name = 'sex'.*\"column\" is the same argument and says 'age'"):
        con.execute("FROM dp_histogram('people', column_name := 'sex', \"column\" := 'age', epsilon := 1)")
    with pytest.raises(duckdb.Error, match="into_table = 'o1'.*\"into\" is the same argument"):
        con.execute("FROM dp_synthesize('people', epsilon := 1, into_table := 'o1', \"into\" := 'o2')")
    with pytest.raises(duckdb.Error, match='"column" is the same argument and says 1'):
        con.execute("FROM dp_histogram('people', column_name := 'sex', \"column\" := 1, epsilon := 1)")
    assert charges() == 0
    con.execute("FROM dp_histogram('people', column_name := 'sex', \"column\" := 'sex', epsilon := 1)")
    assert charges() == 1


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("k := 1, method := 'modips'", "method = 'modips': dp_marginals has no such argument"),
        ("k := 1, options := {'nosuch': 1}", "options = .*: dp_marginals has no such argument"),
        ("operation := 'synthesize', k := 3", "k = 3: dp_synthesize has no such argument"),
        ("mechanism := 'laplace', options := {'mechanism': 'gaussian'}", "options say mechanism = 'gaussian'"),
    ],
)
def test_a_plan_refuses_what_the_call_would_not_take(con, given, told):
    with pytest.raises(duckdb.Error, match=told):
        con.execute(f"FROM dp_plan('people', epsilon := 1, {given})")


def test_a_plan_of_a_query_takes_its_mechanism_in_either_place(con):
    asked = "SELECT noise_scale FROM dp_plan('SELECT sex, count(*) FROM people GROUP BY sex', epsilon := 1, {})"
    either = [con.execute(asked.format(given)).fetchall() for given in ("mechanism := 'laplace'", "options := {'mechanism': 'laplace'}")]
    assert either[0] == either[1] != con.execute(asked.format("mechanism := 'gaussian'")).fetchall()
    for given in ("options := {'mechanism': 'lapl'}", "mechanism := 'gaussian', options := {'mechanism': 'laplace'}"):
        with pytest.raises(duckdb.Error, match="mechanism = "):
            con.execute(asked.format(given))


DATA = pd.Series([f"SECRET{i}" for i in range(40)])
LISTED = DATA.tolist()


@pytest.mark.parametrize(
    "given",
    [
        {"epsilon": 10**400}, {"delta": 10**400}, {"seed": 10**400}, {"rows": 10**5000}, {"options": {"steps": 10**4400}},
        {"options": {"steps": DATA}}, {"options": {"steps": DATA.to_frame()}}, {"options": LISTED}, {"release": "\ud800"},
        {"release": "a\0b"}, {"columns": ["\ud800"]}, {"columns": LISTED}, {"method": LISTED}, {"into": "a\0b"},
    ],
    ids=lambda given: next(iter(given)),
)
def test_what_python_alone_can_give_is_refused_by_name_and_not_shown(con, charges, given):
    with pytest.raises(dpsql.DpsqlError) as caught:
        dpsql.synthesize(con, "people", **{"epsilon": 1.0, **given})
    assert next(iter(given)) in str(caught.value)
    assert "SECRET2" not in str(caught.value) and len(str(caught.value)) < 1000
    assert charges() == 0


def test_data_in_the_place_of_a_mode_is_not_shown(con, charges):
    with pytest.raises(dpsql.ArgumentError, match="fabrication") as caught:
        dpsql.aggregates(con, "people", epsilon=1.0, columns=["sex", "member"], reporting_length=2, fabrication=DATA)
    assert "SECRET" not in str(caught.value)
    with pytest.raises(dpsql.ArgumentError, match="fabrication = 'balance': must be one of"):
        dpsql.aggregates(con, "people", epsilon=1.0, fabrication="balance")
    assert charges() == 0
