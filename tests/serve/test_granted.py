"""Analysts with grants in the books, through the room: no way past a limit, to a column, to another's purchases or another's grant."""

from __future__ import annotations

import contextlib
import json
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from prepared import beside
from served_room import LIMITED, Listed, Served

from dpsql import udfs
from dpsql.errors import ArgumentError
from dpsql.serve.ask import Ask
from dpsql.serve.log import Log
from dpsql.serve.passed import Refused

BY_WARD = "SELECT ward, count(*) AS n FROM visits GROUP BY ward"
SPENT = "SELECT epsilon, epsilon_spent, epsilon_left, releases FROM dp_budget()"


def grant(hospital: Served, analyst: str, said: str = "epsilon := 1") -> str:
    """Give an analyst a grant of visits; return the name."""
    assert analyst in LIMITED
    beside(hospital.con).execute(f"CALL dp_grant('visits', analyst := '{analyst}', {said})")
    return analyst


def entries(hospital: Served, analyst: str) -> dict[str, int]:
    """Return how many charges and uses the books have of an analyst."""
    query = "SELECT action, count(*) FROM dpsql.ledger WHERE who = ? AND action IN ('charge', 'use') GROUP BY action"
    return dict(beside(hospital.con).execute(query, [f"analyst {analyst}"]).fetchall())


@pytest.fixture(scope="module")
def narrow(hospital: Served) -> str:
    """One who may ask two columns by two calls."""
    return grant(hospital, "erin0", "epsilon := 1, per_query := 0.25, methods := ['dp_query', 'dp_marginals'], columns := ['ward', 'cost']")


def test_one_question_is_charged_once_and_used_by_each(hospital: Served) -> None:
    """Both get the same numbers; each pays the same of her own."""
    one, other = grant(hospital, "erin1"), grant(hospital, "frank1")
    before = hospital.charges()
    numbers = hospital.ask(BY_WARD, (), one)
    assert hospital.ask(BY_WARD, (), other) == numbers == hospital.ask(BY_WARD, (), one)
    assert hospital.charges() == before + 1
    assert (entries(hospital, one), entries(hospital, other)) == ({"charge": 1}, {"use": 1})
    assert hospital.ask(SPENT, (), one) == hospital.ask(SPENT, (), other)
    seen = hospital.ask("SELECT who, action, operation, query FROM dp_ledger() ORDER BY entry", (), other)
    assert seen == [("custodian", "grant", None, None), (f"analyst {other}", "use", "query", 'SELECT ward AS "k0" FROM "main"."visits"')]
    (release,) = [row[0] for row in hospital.ask("SELECT release FROM dp_releases()", (), other)]
    assert hospital.ask(f"FROM dp_explain('{release}')", (), other)


def test_learned_rows_are_two_uses_of_each_and_one_charge(hospital: Served) -> None:
    """Who plans it pays nothing, whoever has bought it; both get the same, and neither more than her grant holds for both parts."""
    one, other = grant(hospital, "erin27"), grant(hospital, "erin28", "epsilon := 0.31")
    text = "SELECT ward, count(*) AS n FROM visits WHERE cost > 5 GROUP BY ward"
    call = f"FROM dp_query('{text}', epsilon := 0.3, max_rows := 'auto')"
    before = hospital.charges()
    numbers = hospital.ask(call, (), one)
    plan = f"SELECT operation, bought FROM dp_plan('{text}', epsilon := 0.3, options := {{'max_rows': 'auto'}})"
    assert hospital.ask(plan, (), one) == [("contributions", True), ("query", True)]
    assert hospital.ask(plan, (), other) == [("contributions", False), ("query", False)]
    assert entries(hospital, other) == {}
    assert hospital.ask(call, (), other) == numbers and hospital.charges() == before + 2
    assert (entries(hospital, one), entries(hospital, other)) == ({"charge": 2}, {"use": 2})
    third = grant(hospital, "erin29", "epsilon := 0.2, per_query := 0.19")
    assert "is the most of one call" in hospital.refused(call, (), third).text
    told = hospital.refused(call.replace("0.3", "0.19"), (), spent(hospital, third)).text
    assert "the call costs epsilon = 0.19" in told and "nothing was charged" in told


def spent(hospital: Served, analyst: str) -> str:
    """Spend a part of an analyst's grant; return the name."""
    hospital.ask("FROM dp_query('SELECT count(*) FROM visits WHERE cost > 6', epsilon := 0.1)", (), analyst)
    return analyst


def test_the_price_of_a_question_is_at_most_what_the_grant_says(hospital: Served) -> None:
    """The file says 0.5; a tenth of the grant, or the limit of one question, is less. A smaller one of the file stays."""
    for analyst, said, price in (("erin2", "epsilon := 1", 0.1), ("erin3", "epsilon := 9, per_query := 0.25", 0.25), ("erin4", "epsilon := 90", 0.5)):
        grant(hospital, analyst, said)
        hospital.ask("SELECT sum(cost) AS s FROM visits", (), analyst)
        assert hospital.ask("SELECT epsilon FROM dp_releases()", (), analyst) == [(pytest.approx(price, rel=1e-4),)]


def test_no_text_passes_the_limit(hospital: Served) -> None:
    """However she asks, what she has spent is within her grant, and nothing is charged beyond it."""
    analyst = grant(hospital, "frank2", "epsilon := 0.5, per_query := 0.25")
    two = "SELECT a.n, b.m FROM (SELECT count(*) AS n FROM visits) a, (SELECT sum(cost) AS m FROM visits) b"
    texts = [
        f"FROM dp_query('{BY_WARD}', epsilon := 0.3)", f"FROM dp_query('{two}', epsilon := 0.3)", "FROM dp_synthesize('visits', epsilon := 5)",
        "FROM dp_marginals('visits', columns := ['ward'], epsilon := 0.26)", "FROM dp_summarize('visits', epsilon := 0.5)",
        f"FROM dp_query('{BY_WARD} HAVING count(*) > (SELECT count(*) FROM visits) / 5', epsilon := 0.3, adaptive := true)",
        "FROM dp_histogram('visits', 'ward', epsilon := 1)", "FROM dp_contributions('visits', epsilon := 0.4)",
    ]  # fmt: skip
    for text in texts:
        assert "is the most of one call" in hospital.refused(text, (), analyst).text, text
    assert entries(hospital, analyst) == {}
    told = [hospital.refused(f"FROM dp_query('SELECT count(*) FROM visits WHERE cost > {i}', epsilon := -1)", (), analyst) for i in range(2)]
    assert all(one.kind == "refused" for one in told)
    refused = 0
    for number in range(12):
        try:
            hospital.ask(f"SELECT count(*) AS n FROM visits WHERE cost > {number + 100}", (), analyst)
        except Refused as error:
            assert "your grant on main.visits does not cover this" in error.text
            refused += 1
    ((epsilon, spent, _, releases),) = hospital.ask(SPENT, (), analyst)
    assert refused and spent <= epsilon and releases == sum(entries(hospital, analyst).values()) == 12 - refused


@pytest.mark.parametrize(
    "text",
    [
        "SELECT max(file) FROM visits", "SELECT count(*) FROM visits WHERE file > 3", "SELECT count(DISTINCT patient) FROM visits",
        "SELECT count(DISTINCT p) FROM (SELECT patient AS p FROM visits)", "SELECT count(*) FROM (SELECT * FROM visits) t WHERE t.day IS NULL",
        "SELECT avg(n) FROM (SELECT patient, count(*) AS n FROM visits GROUP BY patient)", "SELECT patient FROM visits LIMIT 0",
        "SELECT * FROM visits WHERE file = 1 LIMIT 0", "SELECT count(*) FROM over_visits", "SELECT COLUMNS('f.*') FROM visits LIMIT 0",
        "SELECT count(*) FROM visits v(a, b, c) WHERE c > DATE '2024-01-01'", "SELECT count(*) FROM visits GROUP BY ROLLUP(day)",
        "FROM dp_marginals('visits', columns := ['day'], epsilon := 0.1)", "FROM dp_marginals('SELECT file FROM visits', epsilon := 0.1)",
        "FROM dp_query('SELECT sum(file) FROM visits', epsilon := 0.1, bounds := {'file': [0, 1]})", "SELECT sum(hash(visits)) FROM visits",
        "SELECT visits.day FROM wards JOIN visits ON wards.ward = visits.ward WHERE false",
    ],
)  # fmt: skip
def test_other_columns_do_not_exist(hospital: Served, narrow: str, text: str) -> None:
    """They are refused before anything is charged, as a name that means nothing."""
    before = hospital.charges()
    hospital.refused(text, (), narrow)
    assert hospital.charges() == before


def test_what_is_there_for_her(hospital: Served, narrow: str) -> None:
    """Names, domains and made-up rows are of her columns alone; other analysts have theirs at the same time."""
    for analyst, columns in ((narrow, {"ward", "cost"}), ("alice", {"ward", "cost", "day", "visit_at", "file", "patient"}), (narrow, {"ward", "cost"})):
        assert {row[0] for row in hospital.ask("DESCRIBE visits", (), analyst)} == columns
        assert {column.name for column in hospital.room.describe(analyst, "FROM visits LIMIT 0")} == columns
        assert {column.name for column in hospital.room.describe(analyst, "FROM dp_dummy('visits')")} == columns
        (table,) = [found for found in hospital.room.schema(analyst) if found.name == "visits"]
        assert {column.name for column in table.columns} == columns
    assert {row[0] for row in hospital.ask("SELECT column_name FROM dp_domain('visits')", (), narrow)} == {"ward", "cost"}
    assert hospital.ask("SELECT privacy_unit FROM dp_budget()", (), narrow) == [("a column that is not granted",)]


@pytest.mark.parametrize("call", ["dp_synthesize('visits', epsilon := 0.1)", "dp_contributions('visits', epsilon := 0.1)", "dp_summarize('visits', epsilon := 0.1)"])
def test_other_calls_are_closed(hospital: Served, narrow: str, call: str) -> None:
    """The line says which are open."""
    assert hospital.refused(f"FROM {call}", (), narrow).text.endswith("your grant on main.visits is for marginals, query")


@pytest.mark.parametrize(
    "text",
    [
        "FROM dp_grant()", "FROM dp_grant('visits')", "CALL dp_grant('visits', analyst := 'erin0', epsilon := 100)",
        "FROM dp_grant('visits', analyst := 'erin0', epsilon := 100)", "FROM dp_grant('visits', analyst := 'erin0', remove := true)",
        "FROM dpsql.ledger", "SELECT grants FROM dpsql.budgets", "INSERT INTO dpsql.ledger SELECT * FROM dpsql.ledger",
        "FROM dp_query('SELECT count(*) FROM dpsql.ledger', epsilon := 0.1)", "FROM system.main.dp_grant('visits')",
        "SELECT __dp_call_needs_dpsql_load('grant', '{}')", "FROM query('FROM dp_grant()')",
    ],
)  # fmt: skip
def test_she_grants_nothing(hospital: Served, narrow: str, text: str) -> None:
    """Who may spend what is the custodian's to say and to see."""
    before = hospital.state()
    hospital.refused(text, (), narrow)
    assert hospital.state() == before


def test_nobody_sees_another(hospital: Served, narrow: str) -> None:
    """Not her grant, entries, releases, names of releases, nor what of the table she has used up."""
    other = grant(hospital, "frank3")
    before = [hospital.ask(f"FROM {call}()", (), narrow) for call in ("dp_budget", "dp_ledger", "dp_releases")]
    hospital.ask("SELECT ward, avg(cost) AS a FROM visits GROUP BY ward", (), other)
    hospital.ask("FROM dp_marginals('visits', columns := ['cost'], epsilon := 0.125, release := 'secret plan')", (), other)
    assert [hospital.ask(f"FROM {call}()", (), narrow) for call in ("dp_budget", "dp_ledger", "dp_releases")] == before
    assert "frank" not in str(before) and "alice" not in str(before)
    assert hospital.refused("FROM dp_explain('secret plan')", (), narrow).kind == "no_table"
    plan = "SELECT bought, affordable FROM dp_plan('SELECT ward, avg(cost) AS a FROM visits GROUP BY ward', epsilon := 0.1)"
    assert hospital.ask(plan, (), narrow) == [(False, True)] and hospital.ask(plan, (), other) == [(True, True)]
    hospital.ask("FROM dp_marginals('visits', columns := ['ward'], epsilon := 0.125, release := 'secret plan')", (), narrow)
    assert [row[0] for row in hospital.con.execute("SELECT unnest(grants).analyst FROM dp_budget('visits')").fetchall()].count(other) == 1


def test_taken_back(hospital: Served) -> None:
    """The table is closed, whatever the file says; granted anew, what she had bought is there, and what she has spent stays spent."""
    analyst = grant(hospital, "frank4")
    numbers, spent = hospital.ask(BY_WARD, (), analyst), hospital.ask(SPENT, (), analyst)
    beside(hospital.con).execute(f"CALL dp_grant('visits', analyst := '{analyst}', remove := true)")
    for text in (BY_WARD, "FROM visits LIMIT 0", "FROM dp_domain('visits')"):
        assert hospital.refused(text, (), analyst).text == "table visits does not exist: SHOW TABLES lists what there is"
    assert [hospital.ask(f"FROM {call}()", (), analyst) for call in ("dp_budget", "dp_ledger", "dp_releases")] == [[], [], []]
    grant(hospital, analyst)
    assert hospital.ask(BY_WARD, (), analyst) == numbers and hospital.ask(SPENT, (), analyst) == spent


def test_at_once(hospital: Served) -> None:
    """Several analysts ask the same questions at once: each is charged once, nobody passes her limit, all get the same numbers."""
    names, most = [grant(hospital, f"erin{number}", "epsilon := 0.2") for number in range(20, 24)], 5
    questions = [f"FROM dp_query('SELECT count(*) AS n FROM visits WHERE cost < {n}', epsilon := 0.1)" for n in range(200, 200 + most)]
    answers: list[tuple[str, Any]] = []
    start = threading.Barrier(len(names) * 2)

    def run(analyst: str, order: int) -> None:
        start.wait()
        for text in questions[::order]:
            try:
                answers.append((text, hospital.ask(text, (), analyst)))
            except Refused as error:
                answers.append((text, error.text))

    before = hospital.charges()
    threads = [threading.Thread(target=run, args=(name, order)) for name in names for order in (1, -1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == len(threads) * most
    assert all("does not cover this" in said for _, said in answers if isinstance(said, str))
    given = {(text, said[0]) for text, said in answers if not isinstance(said, str)}
    assert len(given) == len({text for text, _ in given}) == hospital.charges() - before
    held = {name: entries(hospital, name) for name in names}
    assert sum(Counter(one).get("charge", 0) for one in held.values()) == len(given)
    for name in names:
        ((epsilon, spent, _, releases),) = hospital.ask(SPENT, (), name)
        assert spent <= epsilon and 0 < releases == sum(held[name].values()) < most
    assert hospital.con.execute("SELECT bool_and(chain_holds) FROM dp_ledger('visits')").fetchall() == [(True,)]


def test_the_log_says_who_has_paid_what(hospital: Served, tmp_path: Path) -> None:
    """A line a question, for its owner alone: no text, no value; of what was there already nothing is paid, or her grant alone."""
    one, other = grant(hospital, "erin10"), grant(hospital, "frank10")
    instance = udfs.instance_of(hospital.con)
    assert instance is not None
    log = Log(tmp_path / "census.log")
    room = Ask(instance, "hospital", Listed(), database="census", log=log)
    text = "SELECT count(*) AS n FROM visits WHERE cost < 777"
    named = f"FROM dp_query('{text}', epsilon := 0.01, release := 'my words')"
    for analyst, asked in ((one, text), (one, text), (other, text), (one, named), (one, "FROM wards"), (one, "SELECT cost FROM visits"), (one, f"{text} AND file > x")):
        with contextlib.suppress(Refused):
            room.ask(analyst, asked)
    written = (tmp_path / "census.log").read_text()
    lines = [json.loads(line) for line in written.splitlines()]
    assert [(line["analyst"], line["outcome"], [paid["shared"] for paid in line["paid"]]) for line in lines] == [
        (one, "answered", [False]), (one, "answered", []), (other, "answered", [True]), (one, "answered", [False]), (one, "answered", []), (one, "refused", []), (one, "no_column", []),
    ]  # fmt: skip
    paid = lines[0]["paid"][0]
    assert lines[2]["paid"][0] == {**paid, "shared": True} and paid["epsilon"] == pytest.approx(0.1, rel=1e-3)
    assert {line["took"] for line in lines} <= {"< 0.1 s", "< 1 s", "< 10 s", "< 100 s", ">= 100 s"}
    (release,) = [row[0] for row in hospital.ask("SELECT release FROM dp_releases()", (), other)]
    assert release.endswith(paid["release"]) and "words" not in written and "visits" not in written
    assert "777" not in written and "SELECT" not in written and (tmp_path / "census.log").stat().st_mode & 0o077 == 0
    (tmp_path / "census.log").rename(tmp_path / "old.log")
    room.ask(one, "FROM wards")
    assert len((tmp_path / "census.log").read_text().splitlines()) == 1
    with pytest.raises(ArgumentError, match="cannot be written"):
        Log(tmp_path / "nowhere" / "census.log")


def test_what_is_wrong_with_a_question_about_a_view_is_one_text(hospital: Served) -> None:
    """What it says of a name, or does not, would tell whether the name is in the text of the view: whatever she writes, it is the same."""
    texts = {
        hospital.refused(f"SELECT {aggregate}, '{word}' AS {name} FROM over_visits").text
        for aggregate in ("product(cost)", "max(ward)", "list(cost)") for word in ("file", "patient", "x", "cost") for name in ("file", "y")
    }  # fmt: skip
    assert len(texts) == 1 and "dp_ledger() says what was charged" in texts.pop()
    for text in ("SELECT max(file) FROM over_visits", "SELECT sum(nofile) FROM over_visits"):  # of its columns alone, which she sees
        assert "does not exist" in hospital.refused(text).text
    assert "epsilon" in hospital.refused("FROM dp_query('SELECT count(*) FROM over_visits', epsilon := 4)", (), grant(hospital, "erin11")).text


def test_a_view_of_columns_that_are_not_granted_is_not_there(hospital: Served) -> None:
    """Neither is one over such a view; names and types of its columns would be theirs."""
    con = beside(hospital.con)
    con.execute("CREATE OR REPLACE VIEW over_wards AS SELECT ward, cost FROM visits")
    con.execute("CREATE OR REPLACE VIEW over_notes AS SELECT * FROM visits")
    con.execute("CREATE OR REPLACE VIEW over_view AS SELECT ward, file AS cost FROM over_notes")
    analyst = grant(hospital, "erin12", "epsilon := 1, columns := ['ward', 'cost']")
    assert {table.name for table in hospital.room.schema(analyst)} == {"visits", "wards", "over_wards", "places"}
    assert {"over_notes", "over_view", "over_visits"} < {table.name for table in hospital.room.schema("alice")}
    assert len(hospital.ask("SELECT ward, count(*) FROM over_wards GROUP BY ward", (), analyst)) == 3
    missing = hospital.refused("SELECT count(*) FROM nothing", (), analyst)
    for view in ("over_notes", "over_view", "over_visits"):
        found = hospital.refused(f"SELECT count(*) FROM {view}", (), analyst)
        assert (found.kind, found.text.replace(view, "nothing")) == (missing.kind, missing.text)


MEANT = [
    "SELECT count(*) FROM (SELECT DISTINCT * FROM visits)", "SELECT count(*) FROM (SELECT * FROM visits UNION SELECT * FROM visits)",
    "SELECT count(*) FROM visits AS v(a, b, c) WHERE c IS NOT NULL", "SELECT count(*) FROM (SELECT * FROM visits) AS v(a, b, c) WHERE c IS NOT NULL",
    "WITH v(a, b, c) AS (FROM visits) SELECT count(*) FROM v WHERE c IS NOT NULL", "SELECT count(*) FROM (SELECT DISTINCT COLUMNS(*) FROM visits)",
    "SELECT count(*) FROM (SELECT DISTINCT * EXCLUDE (ward) FROM visits)", "SELECT count(*) FROM (FROM visits INTERSECT FROM visits)",
]  # fmt: skip


@pytest.mark.parametrize("text", MEANT)
def test_what_means_other_columns_is_another_question(hospital: Served, text: str) -> None:
    """A star, or names by places: the text is one, and the columns of their grants are not; each gets what is hers, and pays for it."""
    number = 13 + 3 * MEANT.index(text) % 15
    one = grant(hospital, f"frank{number}", "epsilon := 5, columns := ['patient', 'cost', 'ward']")
    other = grant(hospital, f"frank{number + 1}", "epsilon := 5, columns := ['patient', 'ward', 'day']")
    third = grant(hospital, f"frank{number + 2}", "epsilon := 5, columns := ['day', 'ward', 'patient']")
    asked = f"FROM dp_query($$ {text} $$, epsilon := 2)"
    try:
        hospital.ask(asked, (), one)
    except Refused as refused:
        assert "COLUMNS" in text and refused.kind == "refused"
        return
    before = hospital.charges()
    found = hospital.ask(asked, (), other)
    assert hospital.charges() == before + 1 and entries(hospital, other)["charge"] >= 1
    assert hospital.ask(asked, (), third) == found and hospital.charges() == before + 1  # the same columns, in whatever order they are said
    named = f"FROM dp_query($$ SELECT count(*) FROM (SELECT DISTINCT patient, ward FROM visits) WHERE '{text[7:20]}' IS NOT NULL $$, epsilon := 1)"
    assert hospital.ask(named, (), one) == hospital.ask(named, (), other)  # what both may name they share


@pytest.mark.parametrize(
    "body",
    [
        "SELECT ward, cost FROM (SELECT DISTINCT * FROM visits)", "SELECT w AS ward, d AS cost FROM visits AS v(p, w, d)", "FROM visits",
        "SELECT ward, cost FROM (FROM visits)", "SELECT ward, cost FROM visits NATURAL JOIN wards", "WITH v AS (FROM visits) SELECT ward, cost FROM v",
        "SELECT ward, cost FROM visits WHERE ward IN (SELECT ward FROM (FROM visits))",
    ],
)  # fmt: skip
def test_a_view_that_means_columns_without_naming_them_is_not_there(hospital: Served, body: str) -> None:
    """What it gives depends on columns that are not granted; to whom all are, it is there."""
    beside(hospital.con).execute(f"CREATE OR REPLACE VIEW over_notes AS {body}")
    analyst = grant(hospital, "erin13", "epsilon := 1, columns := ['ward', 'cost', 'patient', 'day']")
    assert "over_notes" not in {table.name for table in hospital.room.schema(analyst)}
    assert "over_notes" in {table.name for table in hospital.room.schema("alice")}
    missing = hospital.refused("SELECT count(*) FROM nothing", (), analyst)
    assert hospital.refused("SELECT count(*) FROM over_notes", (), analyst).text.replace("over_notes", "nothing") == missing.text


def test_her_books_are_read_beside_tables_without_a_grant(hospital: Served) -> None:
    """Of visits she has a grant, payroll is open to her by the file alone; entries of others are there, of which she sees none."""
    con = beside(hospital.con)
    con.execute("CALL dp_grant('visits', analyst := 'dora', epsilon := 1)")
    hospital.ask("SELECT count(*) FROM visits", (), "dora")
    con.execute("FROM dp_query('SELECT count(*) FROM payroll', epsilon := 0.5)")
    assert len(hospital.ask("FROM dp_releases()", (), "dora")) == 1
    hospital.ask("SELECT count(*) FROM payroll", (), "dora")
    assert len(hospital.ask("FROM dp_releases()", (), "dora")) == 2
    assert [row[0] for row in hospital.ask("SELECT source FROM dp_ledger() WHERE action IN ('charge', 'use')", (), "dora")] == ["main.payroll", "main.visits"]
