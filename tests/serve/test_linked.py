"""Linked tables of a served database: as their root, never public; whoever has a grant of the root asks about them and pays with it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from fractions import Fraction

import duckdb
import pytest
from linked_tables import PROCEDURES, VISITS, make_patients
from prepared import beside

import dpsql
from dpsql import udfs
from dpsql.accounting.rules import rho_limit
from dpsql.door import dispatch
from dpsql.errors import DpsqlError
from dpsql.serve.ask import Ask
from dpsql.serve.passed import Answer, Refused

TABLES = ("patients", "visits", "procedures")
EPSILON = 0.5


class Listed:
    """Alice has a grant of the root; bob one of a linked table, from before it was linked; carol none. Too much was published once."""

    def granted(self, analyst: str) -> Mapping[str, float]:
        if analyst in ("erin", "frank", "grace"):  # they have grants in the books
            return {"main.patients": EPSILON, "main.visits": EPSILON}
        return {"alice": {"main.patients": EPSILON}, "bob": {"main.visits": EPSILON}}.get(analyst, {})

    def public(self) -> Collection[str]:
        names = ("wards", "visits", "procedures", "over_wards", "over_visits", "over_both", "over_list", "over_pairs")
        return [f"main.{name}" for name in names]


class Room:
    def __init__(self, con: duckdb.DuckDBPyConnection) -> None:
        self.con = con
        instance = udfs.instance_of(con)
        assert instance is not None
        self._room = Ask(instance, "memory", Listed(), database="clinic")

    def ask(self, analyst: str, text: str) -> Answer:
        return self._room.ask(analyst, text)

    def seen(self, analyst: str) -> dict[str, bool]:
        return {table.name: table.protected for table in self._room.schema(analyst)}

    def charges(self) -> list[tuple[str, str, str]]:
        query = "SELECT source, who, rho::VARCHAR FROM dpsql.ledger WHERE action = 'charge' ORDER BY written_at"
        return beside(self.con).execute(query).fetchall()


@pytest.fixture(scope="module")
def room() -> Iterator[Room]:
    con = duckdb.connect()
    make_patients(con, 500)
    con.execute(
        "CREATE TABLE wards AS SELECT 'c' || i AS code, i AS beds FROM range(7) t(i);"
        "CREATE TABLE listed AS SELECT 1 AS x;"
        "CREATE VIEW over_wards AS FROM wards;"
        "CREATE VIEW over_visits AS SELECT cost FROM visits WHERE cost < 90;"
        "CREATE VIEW over_both AS SELECT count(*) AS n FROM listed, visits;"
        "CREATE VIEW over_list AS SELECT x FROM listed WHERE x IN (SELECT cost FROM procedures, visits);"
        "CREATE VIEW over_pairs AS SELECT v.cost, q.code FROM visits v JOIN procedures q USING (visit_id)"
    )
    dpsql.load(con, user="custodian", progress=False)
    con.execute("CALL dp_protect('patients', epsilon := 900, delta := 1e-9, privacy_unit := 'patient_id')")
    con.execute(VISITS)
    con.execute(PROCEDURES)
    con.execute("CALL dp_declare('patients', 'sex', categories := ['f', 'm'], nullable := false)")
    con.execute("CALL dp_declare('visits', 'cost', lower := 0, upper := 100, bins := 4)")
    con.execute("CALL dp_declare('procedures', 'code', categories := ['c0', 'c1', 'c2', 'c3', 'c4', 'c5', 'c6'], nullable := false)")
    yield Room(con)
    con.close()


def test_what_each_of_them_sees(room):
    assert room.seen("alice") == dict.fromkeys((*TABLES, "over_visits", "over_pairs"), True) | {"wards": False, "over_wards": False}
    assert room.seen("bob") == room.seen("carol") == {"wards": False, "over_wards": False}
    told = [str(refused(room, who, f"SELECT * FROM {table}")) for who in ("bob", "carol") for table in ("visits", "nothing")]
    assert {text.replace("visits", "nothing") for text in told} == {"table nothing does not exist: SHOW TABLES lists what there is"}


def refused(room: Room, analyst: str, text: str) -> Refused:
    before = room.charges()
    with pytest.raises(Refused) as caught:
        room.ask(analyst, text)
    assert room.charges() == before
    return caught.value


ASKED = (
    "SELECT count(*) FROM visits",
    "SELECT count(*) FROM procedures",
    "SELECT p.sex, avg(v.cost) FROM visits v JOIN patients p USING (patient_id) GROUP BY p.sex",
    "SELECT code, count(*) FROM procedures q JOIN visits v USING (visit_id) WHERE v.cost > 50 GROUP BY code",
    "SELECT count(*) FROM over_visits",
    "SELECT beds, (SELECT count(*) FROM procedures WHERE code = 'c3') FROM wards",
    "FROM dp_marginals('visits', columns := ['cost'])",
    "FROM dp_query('SELECT count(*) FROM patients WHERE EXISTS (SELECT 1 FROM visits v WHERE v.patient_id = patients.patient_id)')",
    "FROM dp_contributions('visits')",
)


@pytest.mark.parametrize("text", ASKED)
def test_the_root_and_her_grant_of_it_are_charged(room, text):
    before = len(room.charges())
    first = room.ask("alice", text).rows
    made = room.charges()[before:]
    assert made and {(source, who) for source, who, _ in made} == {("main.patients", "analyst alice")}
    assert sum(Fraction(rho) for *_, rho in made) <= Fraction(rho_limit(EPSILON, 1e-9, gaussian=True))
    assert room.ask("alice", text).rows == first and len(room.charges()) == before + len(made)
    for other in ("bob", "carol"):
        assert "does not exist" in str(refused(room, other, text))


@pytest.mark.parametrize("table", ["visits", "procedures", "over_visits", "over_pairs", "over_both", "over_list"])
@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM {}", "FROM {}", "SELECT w.beds FROM wards w, {}", "SELECT beds FROM wards WHERE EXISTS (FROM {})", "SUMMARIZE {}",
        "SELECT beds, (SELECT 1 FROM {} LIMIT 1) FROM wards", "FROM dp_ledger(), {}", "SELECT beds FROM wards UNION ALL SELECT 1 FROM {}",
        "FROM dp_histogram('patients', column_name := 'sex', epsilon := 0.1, domain := '{}.cost')",
        "FROM dp_query('SELECT w.beds, count(*) FROM wards w JOIN {} USING (code) GROUP BY 1')",
    ],
)
def test_rows_of_a_linked_table_are_never_shown(room, table, text):
    """Whoever asks. What alice may ask about the tables is private; nothing here is."""
    for who in ("bob", "carol"):
        refused(room, who, text.format(table))
    if "dp_query" not in text:
        refused(room, "alice", text.format(table))


def test_a_question_of_more_than_the_grant_is_refused(room):
    assert "at most 5 here" in str(refused(room, "alice", "FROM dp_query('SELECT count(*) FROM visits', epsilon := 6)"))


def test_links_are_the_custodians(room):
    for text in ("FROM dp_links()", "FROM dp_link('wards', 'code', parent := 'patients', max_rows := 1)"):
        assert "for the custodian alone" in str(refused(room, "alice", text))


def test_books_are_hers_and_the_roots(room):
    room.ask("alice", ASKED[0])
    for call in ("ledger", "releases"):
        found = room.ask("alice", f"SELECT DISTINCT source FROM dp_{call}('visits')").rows
        assert found == [("main.patients",)]
        assert room.ask("bob", f"FROM dp_{call}()").rows == []
        assert "does not exist" in str(refused(room, "bob", f"FROM dp_{call}('visits')"))
    assert room.ask("alice", "SELECT source FROM dp_budget()").rows == [("main.patients",)]
    assert room.ask("bob", "FROM dp_budget()").rows == []


def test_a_table_that_is_linked_while_it_is_served_is_public_no_more(room):
    beside(room.con).execute("CREATE TABLE notes (patient_id INTEGER, x INTEGER); INSERT INTO notes VALUES (1, 7)")
    held = type("Held", (Listed,), {"public": lambda self: ["main.notes"]})()
    instance = udfs.instance_of(room.con)
    assert instance is not None
    served = Ask(instance, "memory", held, database="clinic")
    assert served.ask("carol", "SELECT x FROM notes").rows == [(7,)]
    beside(room.con).execute("CALL dp_link('notes', 'patient_id', parent := 'patients', max_rows := 2)")
    for who in ("alice", "bob", "carol"):
        with pytest.raises(Refused):
            served.ask(who, "SELECT x FROM notes")
    beside(room.con).execute("CALL dp_protect('patients', epsilon := 901)")
    assert served.ask("alice", "SELECT count(*) FROM notes").rows


def test_a_grant_of_the_root_is_one_of_all_that_is_linked(room):
    for analyst in ("erin", "frank"):
        beside(room.con).execute(f"CALL dp_grant('patients', analyst := '{analyst}', epsilon := 0.5, per_query := 0.25)")
    before = len(room.charges())
    text = "FROM dp_query('SELECT count(*) AS n FROM visits WHERE cost > 41', epsilon := 0.25, max_rows := 20)"
    assert room.ask("erin", text).rows == room.ask("frank", text).rows and len(room.charges()) == before + 1
    assert room.ask("erin", "SELECT source, releases FROM dp_budget()").rows == [("main.patients", 1)]
    assert "is the most of one call" in str(refused(room, "erin", text.replace("0.25", "0.3").replace("41", "42")))
    refusals = 0
    for number in range(10):
        try:
            room.ask("erin", text.replace("41", str(number + 50)) if number % 2 else f"SELECT count(*) AS n FROM patients WHERE patient_id > {number}")
        except Refused as error:
            assert "your grant on main.patients does not cover this" in error.text
            refusals += 1
    ((epsilon, spent),) = room.ask("erin", "SELECT epsilon, epsilon_spent FROM dp_budget()").rows
    assert refusals and spent <= epsilon


def test_a_linked_table_alone_is_not_granted(room):
    with pytest.raises(duckdb.Error, match=r"is linked, and under the budget of main\.patients"):
        room.con.execute("CALL dp_grant('visits', analyst := 'grace', epsilon := 1)")
    assert room.con.execute("FROM dp_grant(analyst := 'grace')").fetchall() == []


def test_columns_of_a_root_are_none_of_linked_tables(room):
    """Neither by name, nor as the way up of what she may ask."""
    beside(room.con).execute("CALL dp_grant('patients', analyst := 'grace', epsilon := 1, columns := ['sex'])")
    assert set(room.seen("grace")) == {"patients", "wards", "over_wards"}
    assert room.ask("grace", "SELECT sex, count(*) FROM patients GROUP BY sex").rows
    for table in ("visits", "procedures", "over_visits", "over_pairs"):
        assert "does not exist" in str(refused(room, "grace", f"SELECT count(*) FROM {table}"))
    for text in ("SELECT count(*) FROM patients p JOIN visits v USING (patient_id)", "SELECT count(*) FROM patients WHERE patient_id > 3",
                 "SELECT count(*) FROM patients p WHERE EXISTS (FROM visits v WHERE v.patient_id = p.patient_id)"):
        refused(room, "grace", text)
    instance = udfs.instance_of(room.con)
    assert instance is not None
    for sql in ("SELECT count(*) FROM visits WHERE cost > 3", "SELECT sum(cost) FROM visits"):  # the wall behind the gate
        with pytest.raises(DpsqlError):
            dispatch.run(instance, "query", {"sql": sql, "epsilon": 0.1}, database="memory", schema="main", analyst="analyst grace")
    assert not any(who == "analyst grace" and "visits" in source for source, who, _ in room.charges())
