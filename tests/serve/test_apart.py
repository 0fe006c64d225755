"""No analyst learns what another one has asked: not from books, releases, plans, prices or repeats."""

from __future__ import annotations

import pytest
from served_room import Served

ASKED = "SELECT ward, count(*) AS n FROM visits WHERE cost < 123 GROUP BY ward"


@pytest.fixture(scope="module")
def of_bob(hospital: Served) -> list[str]:
    """What bob has bought."""
    hospital.ask(ASKED, analyst="bob")
    hospital.ask("FROM dp_marginals('visits', columns := ['ward'], release := 'secret plan')", analyst="bob")
    hospital.con.execute("FROM dp_query('SELECT count(*) FROM visits WHERE cost > 880', epsilon := 0.5)")
    found = [str(name) for (name,) in hospital.ask("SELECT release FROM dp_releases()", analyst="bob")]
    assert len(found) == 2
    return found


def test_books(hospital: Served, of_bob: list[str]) -> None:
    """Entries and releases of others are not there."""
    assert hospital.ask("FROM dp_releases()") == [] and hospital.ask("FROM dp_ledger()") == []
    assert hospital.ask("SELECT DISTINCT who FROM dp_ledger()", analyst="bob") == [("analyst bob",)]


@pytest.mark.parametrize("call", ["dp_explain('{}')", "dp_sample('{}')", "dp_sample('{}', rows := 5)"])
def test_releases(hospital: Served, of_bob: list[str], call: str) -> None:
    """A release of another is as one that is not there, by its identifier and by its name."""
    for name in (*of_bob, "secret plan"):
        missing = hospital.refused(f"FROM {call.format('nothing of it')}").text
        assert hospital.refused(f"FROM {call.format(name)}").text == missing.replace("nothing of it", name[:60])
    assert hospital.ask(f"FROM dp_explain('{of_bob[0]}')", analyst="bob") or hospital.ask(f"FROM dp_explain('{of_bob[1]}')", analyst="bob")


def test_plans(hospital: Served, of_bob: list[str]) -> None:
    """A plan says what she has bought, not what was."""
    planned = "SELECT bought FROM dp_plan('" + ASKED.replace("'", "''") + "')"
    assert hospital.ask(planned) == [(False,)] and hospital.ask(planned, analyst="bob") == [(True,)]


def test_names_of_others_are_free(hospital: Served, of_bob: list[str]) -> None:
    """The name of another's release is no name that is taken: with other parameters it is a new one."""
    hospital.ask("FROM dp_marginals('visits', columns := ['day'], release := 'secret plan')")
    hospital.ask("FROM dp_marginals('visits', columns := ['ward'], epsilon := 0.4)")
    hospital.ask("FROM dp_marginals('visits', columns := ['ward'], epsilon := 0.3)", analyst="bob")


def test_a_repeat_of_anothers_question_is_bought(hospital: Served, of_bob: list[str]) -> None:
    """So its price tells nobody that it was asked; her own repeats are free, and so is what she has bought in part."""
    before = hospital.charges()
    numbers = hospital.ask(ASKED)
    assert hospital.charges() == before + 1
    assert hospital.ask(ASKED) == numbers and hospital.ask(f"{ASKED} ORDER BY n LIMIT 9") == sorted(numbers, key=lambda row: row[1])
    assert hospital.ask(ASKED, analyst="bob") != numbers
    assert hospital.charges() == before + 1
    hospital.ask("SELECT count(*) FROM visits WHERE cost > 880")  # the custodian's answer is not hers
    assert hospital.charges() == before + 2


def test_the_custodian_has_all(hospital: Served, of_bob: list[str]) -> None:
    """Who opens the database finds what analysts have bought, and repeats it free."""
    before = hospital.charges()
    hospital.con.execute(f"FROM dp_query('{ASKED}', epsilon := 0.5)").fetchall()
    assert hospital.charges() == before
    assert {"analyst alice", "analyst bob", "custodian"} <= {who for (who,) in hospital.con.execute("SELECT DISTINCT who FROM dp_ledger()").fetchall()}


def test_what_another_has_bought_is_in_no_explanation(hospital: Served) -> None:
    """A histogram of rows per unit says what share of rows is kept: to whom has bought it."""
    text = "SELECT ward, count(*) AS n FROM visits WHERE cost > 7 GROUP BY ward"
    hospital.ask(text)
    (release,) = [row[0] for row in hospital.ask("SELECT release FROM dp_releases() ORDER BY charged_at DESC LIMIT 1")]
    before = hospital.ask(f"FROM dp_explain('{release}')")
    bought = "FROM dp_contributions('visits', epsilon := 0.4)"
    hospital.ask(bought, (), "bob")
    assert hospital.ask(f"FROM dp_explain('{release}')") == before
    hospital.ask(bought)
    assert hospital.ask(f"FROM dp_explain('{release}')") != before


def test_a_name_of_the_file_is_no_analyst(hospital: Served) -> None:
    """Whoever is called as a user in the books has nothing of what that user has bought."""
    hospital.con.execute("FROM dp_query('SELECT count(*) AS n FROM visits WHERE cost > 91', epsilon := 0.1)").fetchall()
    for call in ("dp_releases", "dp_ledger"):
        assert hospital.ask(f"FROM {call}()", (), "custodian") == []
    before = hospital.charges()
    hospital.ask("SELECT count(*) AS n FROM visits WHERE cost > 91", (), "custodian")
    assert hospital.charges() == before + 1 and hospital.charges("custodian") == 1
