"""A release that others have bought is had exactly where it could be bought; one call costs no more than its limit, whatever delta."""

from __future__ import annotations

import pytest
from analysts import ask, named

from dpsql.errors import BudgetExhausted, DpsqlError, GrantExceeded, ReleaseError

pytestmark = pytest.mark.any_duckdb
BOUGHT = "SELECT count(*) AS n FROM people WHERE age > 30"
NEW = "SELECT count(*) AS n FROM people WHERE age > 31"


@pytest.fixture
def people(con):
    for analyst in ("alice", "bob"):
        con.execute(f"CALL dp_grant('people', analyst := '{analyst}', epsilon := 1.0, per_query := 0.1)")
    return con


def told(con, analyst, sql):
    with pytest.raises(DpsqlError) as found:
        ask(con, analyst, "query", sql=sql, epsilon=0.1)
    return type(found.value), str(found.value)


def plan(con, sql):
    (row,) = named(con, "alice", "plan", source=sql, epsilon=0.1)
    return row["affordable"], row["bought"]


def test_an_exhausted_table_refuses_what_others_have_bought_as_what_nobody_has(people):
    ask(people, "bob", "query", sql=BOUGHT, epsilon=0.1)
    left = people.execute("SELECT epsilon_spent FROM dp_budget('people')").fetchall()[0][0]
    people.execute(f"CALL dp_protect('people', epsilon := {left * 1.001})")
    assert told(people, "alice", BOUGHT) == told(people, "alice", NEW)
    assert told(people, "alice", NEW)[0] is BudgetExhausted
    assert plan(people, BOUGHT) == plan(people, NEW) == (False, False)
    assert ask(people, "bob", "query", sql=BOUGHT, epsilon=0.1)  # hers stays hers
    assert named(people, "alice", "budget")[0]["releases"] == 0
    people.execute("CALL dp_protect('people', epsilon := 50.0)")
    assert plan(people, BOUGHT) == plan(people, NEW) == (True, False)
    assert ask(people, "alice", "query", sql=BOUGHT, epsilon=0.1) == ask(people, "bob", "query", sql=BOUGHT, epsilon=0.1)


def test_a_table_whose_reading_failed_refuses_both(people, monkeypatch):
    ask(people, "bob", "query", sql=BOUGHT, epsilon=0.1)

    def broken(*_given):
        raise ValueError("a row")

    with monkeypatch.context() as patch, pytest.raises(ReleaseError):
        patch.setattr("dpsql.kinds.measures.measure", broken)
        ask(people, "bob", "query", sql="SELECT count(*) AS n FROM people WHERE age > 35", epsilon=0.1)
    assert told(people, "alice", BOUGHT) == told(people, "alice", NEW)
    assert ask(people, "bob", "query", sql=BOUGHT, epsilon=0.1)


@pytest.mark.parametrize("delta", [1e-4, 1e-2, 0.2])
@pytest.mark.parametrize("name", ["query", "marginals"])
def test_a_larger_delta_buys_no_more_in_one_call(people, delta, name):
    given = {"sql": "SELECT sex, count(*) AS n FROM people GROUP BY sex"} if name == "query" else {"source": "people", "columns": ["sex"]}
    with pytest.raises(GrantExceeded, match="delta"):
        ask(people, "alice", name, **given, epsilon=0.1, delta=delta)
    assert named(people, "alice", "budget")[0]["epsilon_spent"] == 0.0
    assert ask(people, "alice", name, **given, epsilon=0.1)
    assert ask(people, "alice", name, **given, epsilon=0.09, delta=1e-12)
    assert named(people, "alice", "budget")[0]["releases"] == 2


def test_a_grant_that_delta_exceeds_says_so(con):
    con.execute("CALL dp_grant('people', analyst := 'alice', epsilon := 0.2)")
    with pytest.raises(GrantExceeded, match=r"the call's delta = 0\.2 is above"):
        ask(con, "alice", "marginals", source="people", columns=["sex"], epsilon=0.15, delta=0.2)


def test_every_kind_of_call_fits_its_own_limit(people):
    """A call at the limit of one call is allowed, by whatever mechanism it is bought."""
    calls = {
        "histogram": {"source": "people", "column": "sex"},
        "summarize": {"source": "people"},
        "marginals": {"source": "people", "columns": ["sex", "region"]},
        "synthesize": {"source": "people", "columns": ["sex", "region"]},
    }
    for name, given in calls.items():
        ask(people, "alice", name, **given, epsilon=0.1)
