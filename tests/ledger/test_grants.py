"""What analysts may spend: limits, windows, who pays what, and books that say so."""

from __future__ import annotations

import datetime as dt
import threading

import duckdb
import pytest
from analysts import ask, named
from prepared import beside

import dpsql
from dpsql.books.granted import Grant
from dpsql.books.ledger import Ledger
from dpsql.books.schema import Books
from dpsql.errors import ArgumentError, BudgetExhausted, DpsqlError, GrantExceeded, LedgerError, NotGranted, NotProtected

pytestmark = pytest.mark.any_duckdb

BY_SEX = "SELECT sex, count(*) AS n FROM people GROUP BY sex"
BY_REGION = "SELECT region, count(*) AS n FROM people GROUP BY region"
NOTHING = {"epsilon_spent": 0.0, "per_query": None, "renew": None, "renews_on": None, "methods": None, "columns": None}
BY_MEMBER = "SELECT member, count(*) AS n FROM people GROUP BY member"


def entries(con, action):
    query = "SELECT count(*) FROM dpsql.ledger WHERE action = ?"
    return beside(con).execute(query, [action]).fetchall()[0][0]


def give(con, analyst="alice", **said):
    text = "".join(f", {name} := {value!r}" for name, value in {"epsilon": 1.0, **said}.items())
    con.execute(f"CALL dp_grant('people', analyst := '{analyst}'{text})")


def left(con, analyst):
    (row,) = named(con, analyst, "budget")
    return row


def test_a_grant_is_said_listed_changed_and_taken_back(con):
    shown = con.execute(
        "SELECT analyst, epsilon, per_query, renew, methods, columns, epsilon_spent, epsilon_left, releases, change FROM "
        "dp_grant('people', analyst := 'alice', epsilon := 1, per_query := 0.2, renew := 'month', "
        "methods := ['QUERY', 'latent_class'], columns := ['REGION', 'sex'])"
    )
    row = shown.fetchall()[0]
    assert row == ("alice", 1.0, 0.2, "month", ["query", "latent_class"], ["sex", "region"], 0.0, 1.0, 0, "granted")
    give(con, "bob", epsilon=0.5)
    listed = con.execute("SELECT analyst, epsilon, change FROM dp_grant('people')").fetchall()
    assert listed == [("alice", 1.0, "in force"), ("bob", 0.5, "in force")]
    before = entries(con, "grant")
    give(con, "bob", epsilon=0.5)
    assert entries(con, "grant") == before  # said again
    give(con, "bob", epsilon=0.25)
    taken = "SELECT change FROM dp_grant('people', analyst := 'alice', remove := true)"
    assert [con.execute(taken).fetchall() for _ in range(2)] == [[("removed",)], [("had none",)]]
    assert con.execute("SELECT analyst, epsilon FROM dp_grant('people')").fetchall() == [("bob", 0.25)]
    assert dpsql.ledger(con, "people").filter("NOT chain_holds").fetchall() == []


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        ("analyst := 'a b', epsilon := 1", "analyst"),
        ("analyst := 'a', epsilon := 0", "epsilon"),
        ("analyst := 'a', epsilon := 1, per_query := 2", "per_query"),
        ("analyst := 'a', epsilon := 1, renew := 'day'", "renew"),
        ("analyst := 'a', epsilon := 1, methods := ['protect']", "methods"),
        ("analyst := 'a', epsilon := 1, columns := ['agee']", "columns"),
        ("analyst := 'a', per_query := 1", "epsilon"),
        ("epsilon := 1", "analyst"),
        ("remove := true", "analyst"),
        ("analyst := 'a', epsilon := 1, remove := true", "remove"),
    ],
)
def test_a_wrong_grant_is_refused_and_nothing_written(con, said, wrong):
    with pytest.raises(duckdb.Error, match=rf"ArgumentError: {wrong}|{wrong} (=|is not given)"):
        con.execute(f"CALL dp_grant('people', {said})")
    assert entries(con, "grant") == 0


def test_a_table_without_a_budget_has_nothing_to_grant(con):
    con.execute("CREATE TABLE wards AS SELECT 1 AS ward")
    with pytest.raises(NotProtected, match="dp_protect"):
        ask(con, None, "grant", source="wards", analyst="alice", epsilon=1.0)


def test_the_same_question_is_paid_once_by_each_and_charged_once(con, charges):
    give(con, "alice")
    give(con, "bob")
    first = ask(con, "alice", "query", sql=BY_SEX, epsilon=0.25)
    assert charges() == 1
    assert ask(con, "bob", "query", sql=BY_SEX, epsilon=0.25) == first
    assert charges() == 1 and entries(con, "use") == 1
    one, other = left(con, "alice"), left(con, "bob")
    assert one["epsilon_spent"] == pytest.approx(0.25, abs=1e-4) and one["releases"] == 1
    assert {**one, "grants": []} == {**other, "grants": []}
    for analyst in ("alice", "bob"):
        assert ask(con, analyst, "query", sql=BY_SEX, epsilon=0.25) == first
        assert (charges(), entries(con, "use")) == (1, 1)
    who = con.execute("SELECT who FROM dpsql.ledger WHERE action IN ('charge', 'use') ORDER BY entry").fetchall()
    assert who == [("analyst alice",), ("analyst bob",)]


def test_what_the_custodian_bought_changes_nothing_for_an_analyst(con):
    give(con)
    before = ask(con, "alice", "plan", source=BY_SEX, epsilon=0.25)
    con.execute(f"FROM dp_query('{BY_SEX}', epsilon := 0.25)")
    con.execute("FROM dp_marginals('people', columns := ['sex'], epsilon := 0.5)")
    con.execute("FROM dp_marginals('people', columns := ['region'], epsilon := 0.5, release := 'mine')")
    assert ask(con, "alice", "plan", source=BY_SEX, epsilon=0.25) == before
    assert left(con, "alice")["epsilon_spent"] == 0
    ask(con, "alice", "query", sql=BY_SEX, epsilon=0.25)
    ask(con, "alice", "marginals", source="people", columns=["sex"], epsilon=0.25)  # another epsilon: no collision of names
    ask(con, "alice", "marginals", source="people", columns=["region"], epsilon=0.25, release="mine")
    assert left(con, "alice")["releases"] == 3


def test_names_of_releases_are_her_own(con):
    give(con, "alice")
    give(con, "bob")
    ask(con, "alice", "marginals", source="people", columns=["sex"], epsilon=0.25, release="first")
    ask(con, "bob", "marginals", source="people", columns=["region"], epsilon=0.125, release="first")
    with pytest.raises(DpsqlError, match=r"bought with epsilon = 0.25, the call says epsilon = 0.3"):
        ask(con, "alice", "marginals", source="people", columns=["sex"], epsilon=0.3, release="first")
    ask(con, "bob", "marginals", source="people", columns=["sex"], epsilon=0.3, release="first2")


def test_the_window_limit_is_composed_and_hard(con, charges):
    give(con, epsilon=0.3, per_query=0.25)
    ask(con, "alice", "query", sql=BY_SEX, epsilon=0.25)
    with pytest.raises(GrantExceeded, match="your grant on main.people"):
        ask(con, "alice", "query", sql=BY_REGION, epsilon=0.25)
    assert (charges(), left(con, "alice")["releases"]) == (1, 1)
    assert 0 < left(con, "alice")["epsilon_left"] < 0.2
    ask(con, "alice", "query", sql=BY_REGION, epsilon=0.9 * left(con, "alice")["epsilon_left"])
    assert charges() == 2


def test_one_call_has_a_limit_of_its_own(con, charges):
    give(con, epsilon=3.0, per_query=0.25)
    several = "SELECT (SELECT count(*) FROM people) AS a, (SELECT count(*) FROM people WHERE member) AS b"
    for sql, more in ((BY_SEX, {}), (several, {}), (f"{BY_SEX} HAVING count(*) > (SELECT count(*) FROM people) / 5", {"adaptive": True})):
        with pytest.raises(GrantExceeded, match="the most of one call"):
            ask(con, "alice", "query", sql=sql, epsilon=0.5, **more)
    for name, given in (
        ("marginals", {"columns": ["sex"]}), ("synthesize", {"columns": ["sex", "member"]}), ("summarize", {"columns": ["sex"]}),
        ("plan", {}),
    ):
        with pytest.raises(GrantExceeded, match="the most of one call"):
            ask(con, "alice", name, source="people", epsilon=0.5, **given)
    assert charges() == 0


def test_methods_limit_what_is_bought_with(con, charges):
    give(con, "alice", methods=["query"])
    give(con, "bob", methods=["latent_class"])
    ask(con, "alice", "query", sql=BY_SEX, epsilon=0.1)
    with pytest.raises(ArgumentError, match="is for query"):
        ask(con, "alice", "marginals", source="people", columns=["sex"], epsilon=0.1)
    with pytest.raises(ArgumentError, match="is for latent_class"):
        ask(con, "bob", "query", sql=BY_SEX, epsilon=0.1)
    with pytest.raises(ArgumentError, match="is for latent_class"):
        ask(con, "bob", "synthesize", source="people", columns=["sex", "member"], epsilon=0.1, method="perturbed_histogram")
    assert charges() == 1
    ask(con, "bob", "synthesize", source="people", columns=["sex", "member"], epsilon=0.1, rows=10)
    assert charges() == 2


def test_the_table_stays_the_limit_of_all(con, charges):
    con.execute("CALL dp_protect('people', epsilon := 0.3)")
    give(con, "alice")
    give(con, "bob")
    ask(con, "alice", "query", sql=BY_SEX, epsilon=0.29)
    with pytest.raises(BudgetExhausted) as told:
        ask(con, "bob", "query", sql=BY_REGION, epsilon=0.29)
    assert not any(character.isdigit() for character in str(told.value))  # nothing of what others have left
    assert left(con, "bob")["epsilon_spent"] == 0 and charges() == 1
    with pytest.raises(BudgetExhausted):  # it is there, and that is not told either
        ask(con, "bob", "query", sql=BY_SEX, epsilon=0.29)
    ask(con, "alice", "query", sql=BY_SEX, epsilon=0.29)
    assert charges() == 1


@pytest.mark.parametrize(
    ("renew", "inside", "next_one"),
    [
        ("month", [dt.datetime(2026, 11, 1), dt.datetime(2026, 11, 30, 23, 59, 59)], dt.datetime(2026, 12, 1)),
        ("week", [dt.datetime(2026, 12, 28), dt.datetime(2027, 1, 3, 23, 59, 59)], dt.datetime(2027, 1, 4)),
    ],
)
def test_a_grant_renews(con, monkeypatch, charges, renew, inside, next_one):
    give(con, epsilon=0.3, renew=renew)
    clock = [inside[0]]
    for module in ("dpsql.books.granted", "dpsql.books.ledger", "dpsql.purchase.uses", "dpsql.answers.hers"):
        monkeypatch.setattr(f"{module}.now", lambda: clock[0])
    first = ask(con, "alice", "query", sql=BY_SEX, epsilon=0.25)
    assert left(con, "alice")["grants"][0]["renews_on"] == next_one.date()
    clock[0] = inside[1]
    with pytest.raises(GrantExceeded, match=f"renews on {next_one:%Y-%m-%d}"):
        ask(con, "alice", "query", sql=BY_REGION, epsilon=0.25)
    clock[0] = next_one
    assert left(con, "alice")["epsilon_spent"] == 0
    assert ask(con, "alice", "query", sql=BY_SEX, epsilon=0.25) == first  # free for ever
    assert left(con, "alice")["epsilon_spent"] == 0 and charges() == 1
    ask(con, "alice", "query", sql=BY_REGION, epsilon=0.25)
    assert left(con, "alice")["releases"] == 1
    clock[0] = inside[0]  # a clock that is set back gives nothing
    assert left(con, "alice")["releases"] == 2
    with pytest.raises(GrantExceeded):
        ask(con, "alice", "query", sql=BY_MEMBER, epsilon=0.25)


def test_a_year_of_windows_meets_end_to_begin():
    for renew in ("month", "week"):
        grant = Grant("a", "main.t", 1.0, renew=renew)
        day = dt.datetime(2026, 1, 1)
        for hours in range(0, 24 * 400, 7):
            moment = day + dt.timedelta(hours=hours)
            first, last = grant.begin(moment), grant.end(moment)
            assert first <= moment < last
            assert grant.begin(last) == last and grant.end(first) == last
            assert grant.begin(last - dt.timedelta(microseconds=1)) == first
    assert Grant("a", "main.t", 1.0).begin(dt.datetime(2026, 1, 1)) is None


def test_calls_at_once_do_not_pass_a_limit_together(con, charges):
    give(con, "alice", epsilon=0.3)
    give(con, "bob", epsilon=0.3)
    for one in (BY_SEX, BY_REGION, BY_MEMBER):  # they are there: hers are uses without a charge
        ask(con, "bob", "query", sql=one, epsilon=0.15)
    start, outcomes = threading.Barrier(6), []

    def run(sql):
        start.wait()
        try:
            outcomes.append(ask(con, "alice", "query", sql=sql, epsilon=0.15))
        except GrantExceeded as error:
            outcomes.append(error)

    new = ["SELECT count(*) FROM people WHERE member", "SELECT sum(age) FROM people", "SELECT count(*) FROM people WHERE age < 40"]
    threads = [threading.Thread(target=run, args=(sql,)) for sql in (BY_SEX, BY_REGION, BY_MEMBER, *new)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(outcomes) == 6
    spent = left(con, "alice")["releases"]
    assert 1 <= spent == sum(not isinstance(one, GrantExceeded) for one in outcomes) < 6
    assert left(con, "alice")["epsilon_left"] >= 0 and left(con, "alice")["epsilon_spent"] <= 0.3
    assert dpsql.ledger(con, "people").filter("NOT chain_holds").fetchall() == []


def test_a_call_at_once_by_both_is_charged_once(con, charges):
    for analyst in ("alice", "bob", "carol", "dave"):
        give(con, analyst)
    start, answers = threading.Barrier(8), []

    def run(analyst):
        start.wait()
        answers.append(ask(con, analyst, "query", sql=BY_SEX, epsilon=0.25))

    threads = [threading.Thread(target=run, args=(name,)) for name in ("alice", "bob", "carol", "dave") * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 8 and all(answer == answers[0] for answer in answers)
    assert (charges(), entries(con, "use")) == (1, 3)
    assert {left(con, name)["releases"] for name in ("alice", "bob", "carol", "dave")} == {1}


def test_a_kill_between_charge_and_answer_is_finished_for_free(con, monkeypatch, charges):
    give(con, "alice")
    give(con, "bob")
    from dpsql.purchase import buying

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(buying, "measure", killed)
        with pytest.raises(KeyboardInterrupt):
            ask(con, "alice", "query", sql=BY_SEX, epsilon=0.25)
    assert charges() == 1 and entries(con, "store") == 0
    first = ask(con, "bob", "query", sql=BY_SEX, epsilon=0.25)  # somebody else finishes it, and pays for her own use
    assert ask(con, "alice", "query", sql=BY_SEX, epsilon=0.25) == first
    assert (charges(), entries(con, "use"), entries(con, "store")) == (1, 1, 1)
    assert left(con, "alice")["releases"] == left(con, "bob")["releases"] == 1


def test_a_use_changes_nothing_about_a_release(con):
    give(con, "alice")
    give(con, "bob")
    for name in ("alice", "bob"):
        ask(con, name, "query", sql=BY_SEX, epsilon=0.25)
    assert entries(con, "use") == 1
    told = ["SELECT status FROM dp_releases('people')", "SELECT status FROM dpsql.releases"]
    assert [con.execute(query).fetchall() for query in told] == [[("stored",)]] * 2
    con.execute("CREATE OR REPLACE VIEW dpsql.releases AS SELECT 'failed' AS status")  # an older version's
    Books(con.cursor(), con.execute("SELECT current_database()").fetchall()[0][0]).open()
    assert con.execute("SELECT status FROM dpsql.releases").fetchall() == [("stored",)]


def test_a_refunded_charge_is_no_use(con, monkeypatch, charges):
    give(con)
    from dpsql.purchase import buying

    def full(*_):
        raise OSError

    with monkeypatch.context() as patch:
        patch.setattr(buying.release, "remove_leftovers", full)
        with pytest.raises(OSError):
            ask(con, "alice", "query", sql=BY_SEX, epsilon=0.25)
    assert entries(con, "refund") == 1
    assert left(con, "alice")["releases"] == 0
    ask(con, "alice", "query", sql=BY_SEX, epsilon=0.25)
    assert left(con, "alice")["releases"] == 1


def test_an_edited_grant_is_noticed(con):
    give(con, epsilon=0.3)
    con.execute("UPDATE dpsql.ledger SET parameters = replace(parameters, '0.3', '3.0') WHERE action = 'grant'")
    with pytest.raises(LedgerError, match="edited"):
        ask(con, "alice", "query", sql=BY_SEX, epsilon=0.25)
    con.execute("UPDATE dpsql.ledger SET parameters = '[1]' WHERE action = 'grant'")
    with pytest.raises(LedgerError, match="edited"):
        ask(con, "alice", "budget")


def test_a_removed_use_is_noticed(con):
    give(con, "alice")
    give(con, "bob")
    ask(con, "alice", "query", sql=BY_SEX, epsilon=0.25)
    ask(con, "bob", "query", sql=BY_SEX, epsilon=0.25)
    con.execute("DELETE FROM dpsql.ledger WHERE action = 'use'")
    give_again = con.execute("SELECT max(entry), count(*) FROM dpsql.ledger").fetchall()[0]
    assert give_again[0] == give_again[1]  # the end was cut: only an anchor sees that
    con.execute("DELETE FROM dpsql.ledger WHERE action = 'grant' AND parameters LIKE '%bob%'")
    with pytest.raises(LedgerError, match="edited"):
        ask(con, "alice", "query", sql=BY_REGION, epsilon=0.25)


def test_an_anchor_sees_uses(con, tmp_path):
    con.execute(f"CALL dp_protect('people', anchor := '{tmp_path / 'anchor.txt'}')")
    give(con, "alice")
    give(con, "bob")
    ask(con, "alice", "query", sql=BY_SEX, epsilon=0.25)
    ask(con, "bob", "query", sql=BY_SEX, epsilon=0.25)
    con.execute("DELETE FROM dpsql.ledger WHERE action = 'use'")
    with pytest.raises(LedgerError):
        ask(con, "alice", "query", sql=BY_REGION, epsilon=0.25)


def test_uses_are_known_again_in_a_new_process(con, tmp_path, charges):
    give(con)
    first = ask(con, "alice", "query", sql=BY_SEX, epsilon=0.25)
    path = tmp_path / "people.duckdb"
    con.close()
    with duckdb.connect(str(path)) as other:
        dpsql.load(other)
        assert ask(other, "alice", "query", sql=BY_SEX, epsilon=0.25) == first
        assert left(other, "alice")["releases"] == 1


def test_the_moment_of_a_use_is_the_one_that_was_checked(con, monkeypatch):
    give(con, renew="week")
    moment = dt.datetime(2030, 1, 2, 3, 4, 5)
    monkeypatch.setattr("dpsql.books.ledger.now", lambda: moment)
    ask(con, "alice", "query", sql=BY_SEX, epsilon=0.25)
    (use,) = Ledger(Books(con.cursor(), "people"), "main.people", "x").uses("alice")
    assert use.at == moment


def test_the_custodian_sees_all_grants_beside_the_budgets(con):
    assert con.execute("SELECT grants FROM dp_budget()").fetchall() == [([],)]
    assert con.execute("FROM dp_grant()").fetchall() == []
    con.execute("CREATE TABLE second AS FROM people")
    con.execute("CALL dp_protect('second', epsilon := 2, delta := 1e-6)")
    give(con, epsilon=0.5, renew="week")
    give(con, "bob")
    con.execute("CALL dp_grant('second', analyst := 'alice', epsilon := 0.25)")
    before = con.execute("SELECT epsilon, epsilon_left, releases FROM dp_budget('people')").fetchone()
    ask(con, "alice", "query", sql=BY_SEX, epsilon=0.25)
    shown = dict(con.execute("SELECT source, grants FROM dp_budget()").fetchall())
    assert [list(shown[name]) for name in ("main.second",)] == [
        [{**NOTHING, "analyst": "alice", "epsilon": 0.25, "epsilon_left": 0.25}]
    ]
    alice, bob = shown["main.people"]
    assert (alice["analyst"], alice["epsilon"], alice["renew"]) == ("alice", 0.5, "week")
    assert 0 < alice["epsilon_spent"] <= 0.25001 and alice["epsilon_left"] < 0.5
    assert bob == {**NOTHING, "analyst": "bob", "epsilon": 1.0, "epsilon_left": 1.0}
    after = con.execute("SELECT epsilon, epsilon_left, releases FROM dp_budget('people')").fetchone()
    assert after[0] == before[0] and after[1] < before[1] and after[2] == before[2] + 1
    listed = con.execute("SELECT source, analyst, epsilon_spent, change FROM dp_grant()").fetchall()
    assert [row[:2] for row in listed] == [("main.people", "alice"), ("main.people", "bob"), ("main.second", "alice")]
    assert listed[0][2] == alice["epsilon_spent"] and {row[3] for row in listed} == {"in force"}
    hers = con.execute("SELECT source, epsilon FROM dp_grant(analyst := 'alice')").fetchall()
    assert hers == [("main.people", 0.5), ("main.second", 0.25)]
    assert dpsql.grant(con, analyst="bob").project("source, analyst").fetchall() == [("main.people", "bob")]
    for given in ("epsilon := 1", "remove := true", "renew := 'week'"):
        with pytest.raises(duckdb.Error, match="source|epsilon"):
            con.execute(f"CALL dp_grant(analyst := 'alice', {given})")
    con.execute("CALL dp_grant('people', analyst := 'bob', remove := true)")
    assert [one["analyst"] for one in con.execute("SELECT grants FROM dp_budget('people')").fetchone()[0]] == ["alice"]


def test_an_analyst_sees_her_own_books_alone(con):
    give(con, "alice", per_query=0.3, columns=["sex", "region"])
    give(con, "bob")
    ask(con, "bob", "query", sql=BY_SEX, epsilon=0.25)
    ask(con, "bob", "marginals", source="people", columns=["region"], epsilon=0.125, release="mine")
    alone = [named(con, "alice", name) for name in ("budget", "ledger", "releases")]
    assert "bob" not in str(alone) and alone[2] == []
    (grant,) = alone[0][0]["grants"]
    assert (grant["analyst"], grant["per_query"], grant["columns"]) == ("alice", 0.3, ["sex", "region"])
    assert (alone[0][0]["epsilon"], alone[0][0]["epsilon_spent"], alone[0][0]["epsilon_left"]) == (1.0, 0.0, 1.0)
    ask(con, "alice", "query", sql=BY_SEX, epsilon=0.25)
    entries = named(con, "alice", "ledger")
    assert [(one["entry"], one["action"], one["who"]) for one in entries] == [(1, "grant", "custodian"), (2, "use", "analyst alice")]
    assert all(one["hash"] is None and one["previous"] is None for one in entries)
    (release,) = named(con, "alice", "releases")
    assert (release["epsilon"], release["status"]) == (0.25, "stored") or 0.25 <= release["epsilon"] < 0.2501
    shown = "SELECT action, count(*) FROM dp_ledger('people') WHERE who = 'analyst alice' GROUP BY action"
    assert con.execute(shown).fetchall() == [("use", 1)]


def test_who_has_no_grant_is_limited_by_the_table_alone_and_shares_nothing(con, charges):
    give(con, "bob")
    ask(con, "bob", "query", sql=BY_SEX, epsilon=0.25)
    first = ask(con, "alice", "query", sql=BY_SEX, epsilon=0.25)
    assert charges() == 2 and entries(con, "use") == 0
    assert left(con, "alice")["grants"] == [] and left(con, "alice")["epsilon"] == 5.0
    give(con, "alice")  # what she has bought before is hers, and counts
    assert ask(con, "alice", "query", sql=BY_SEX, epsilon=0.25) == first
    assert charges() == 2 and left(con, "alice")["releases"] == 1
    assert 0.2 < left(con, "alice")["epsilon_spent"] < 0.2501


def test_a_grant_that_was_taken_back_buys_nothing(con, charges):
    give(con)
    ask(con, "alice", "query", sql=BY_SEX, epsilon=0.25)
    con.execute("CALL dp_grant('people', analyst := 'alice', remove := true)")
    for sql in (BY_SEX, BY_REGION):
        with pytest.raises(NotGranted, match="no such table, or it is not granted"):
            ask(con, "alice", "query", sql=sql, epsilon=0.25)
    give(con)
    ask(con, "alice", "query", sql=BY_SEX, epsilon=0.25)
    assert charges() == 1


def test_columns_that_are_not_granted_do_not_exist(con, charges):
    give(con, columns=["sex", "region"])
    refused = (
        "SELECT max(age) FROM people", "SELECT count(*) FROM people WHERE age > 30", "SELECT sex, count(*) FROM people GROUP BY sex, age",
        "SELECT count(*) FROM (SELECT * FROM people) t WHERE t.age > 3", "SELECT sum(x) FROM (SELECT age AS x FROM people)",
        "SELECT count(*) FROM people p(a, b, c) WHERE c > 3", "SELECT count(DISTINCT age) FROM people",
        "SELECT count(*) FILTER (age > 2) FROM people", "SELECT count(*) FROM people WHERE people.age IS NULL",
    )
    for sql in refused:
        with pytest.raises(DpsqlError):
            ask(con, "alice", "query", sql=sql, epsilon=0.1)
    for name, given in (("marginals", {"columns": ["age"]}), ("histogram", {"column": "age"}), ("synthesize", {"columns": ["sex", "age"]})):
        with pytest.raises(DpsqlError, match="age"):
            ask(con, "alice", name, source="people", epsilon=0.1, **given)
    assert charges() == 0
    assert {row["column_name"] for row in named(con, "alice", "domain", source="people")} == {"sex", "region"}
    assert set(named(con, "alice", "dummy", source="people", rows=2)[0]) == {"sex", "region"}
    ask(con, "alice", "marginals", source="people", k=1, epsilon=0.1)
    said = con.execute("SELECT parameters FROM dpsql.ledger WHERE action = 'charge'").fetchall()
    assert charges() == 1 and "age" not in str(said)


def test_an_analyst_grants_nothing(con):
    give(con)
    for given in ({"source": "people", "analyst": "alice", "epsilon": 4.0}, {}, {"source": "people", "analyst": "alice", "remove": True}):
        with pytest.raises(ArgumentError, match="is the custodian's"):
            ask(con, "alice", "grant", **given)
    assert entries(con, "grant") == 1
