"""An answer is given again from memory only where it is the same, to whom it was given; nothing is looked up for it."""

from __future__ import annotations

import duckdb
import pytest
from dpsql.udfs import instance_of
from served_room import PUBLIC, Listed, Served

from dpsql.serve import again
from dpsql.serve.ask import Ask
from dpsql.serve.gate.functions import FUNCTIONS
from dpsql.serve.passed import Refused

QUESTION = "SELECT ward, count(*) AS n FROM visits WHERE cost > 17 GROUP BY ward"
CALL = "SELECT ward, n FROM dp_query('SELECT ward, count(*) AS n FROM visits GROUP BY ward', epsilon := 0.5) ORDER BY n DESC"


class Changing(Listed):
    """Grants and public names that a test changes."""

    def __init__(self):
        self.grants, self.shown = {}, list(PUBLIC)

    def granted(self, analyst):
        return self.grants.get(analyst, super().granted(analyst))

    def public(self):
        return self.shown


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    served = Served(tmp_path_factory.mktemp("again") / "hospital.duckdb")
    yield served
    served.con.close()


@pytest.fixture
def keys():
    return Changing()


@pytest.fixture
def room(served, keys):
    return Ask(instance_of(served.con), "hospital", keys, database="census", alone=True)


@pytest.fixture
def looked(served, monkeypatch):
    """How many cursors were taken: an answer from memory takes none."""
    instance, taken = instance_of(served.con), []
    take = type(instance).take
    monkeypatch.setattr(type(instance), "take", lambda self: (taken.append(self), take(self))[1])
    return taken


@pytest.mark.parametrize("text", [QUESTION, CALL, "SELECT round(avg(cost), 1) AS age FROM visits"])
def test_a_repeated_question_takes_nothing(room, looked, served, text):
    first = room.ask("alice", text)
    charges, taken = served.charges(), len(looked)
    assert [room.ask("alice", text) for _ in range(3)] == [first] * 3
    assert (served.charges(), len(looked)) == (charges, taken)


def test_values_are_part_of_the_question(room, looked):
    text = "SELECT count(*) FROM visits WHERE cost > ?"
    answers = [room.ask("alice", text, "duckdb", (value,)).rows for value in (1, 900, 1, 900)]
    assert answers[:2] == answers[2:] and answers[0] != answers[1]
    taken = len(looked)
    room.ask("alice", text, "duckdb", (1.0,))  # of another type: it is judged anew
    assert len(looked) > taken


@pytest.mark.parametrize(
    "text",
    [
        "SELECT ward, n, random() AS r FROM dp_query('SELECT ward, count(*) AS n FROM visits GROUP BY ward', epsilon := 0.5)",
        "SELECT now() AS at, n FROM dp_query('SELECT count(*) AS n FROM visits', epsilon := 0.5)",
        "SELECT n FROM dp_query('SELECT count(*) AS n FROM visits', epsilon := 0.5) WHERE current_date > DATE '2020-01-01'",
        "SELECT count(*) AS n FROM visits WHERE day < current_date",
        "SELECT count(*) AS n FROM visits WHERE day < now()",
        "SELECT q.ward, beds FROM dp_query('SELECT ward, count(*) AS n FROM visits GROUP BY ward', epsilon := 0.5) q JOIN wards USING (ward)",
        "FROM dp_budget('visits')",
        "SELECT * FROM dp_ledger('visits')",
        "SELECT * FROM wards",
    ],
)
def test_what_may_be_another_answer_later_is_looked_up(room, looked, text):
    try:
        room.ask("alice", text)
    except Refused as refused:
        pytest.fail(refused.text)
    taken = len(looked)
    room.ask("alice", text)
    assert len(looked) > taken


def test_nobody_gets_what_was_given_to_another(room):
    room.ask("alice", QUESTION)
    assert room.ask("bob", QUESTION).rows  # her own
    with pytest.raises(Refused):
        room.ask("carol", QUESTION)


def test_what_she_may_see_is_looked_up_once_for_what_she_is_granted(room, keys, looked, served):
    first = room.schema("alice")
    taken = len(looked)
    assert room.schema("alice") is first and len(looked) == taken
    assert room.schema("carol") != first
    keys.grants["alice"] = {}
    assert "visits" not in [table.name for table in room.schema("alice")]
    del keys.grants["alice"]
    assert room.schema("alice") == first == served.room.schema("alice")


def test_a_grant_that_was_taken_back_is_heard_at_once(room, keys):
    room.ask("alice", QUESTION)
    keys.grants["alice"] = {}
    with pytest.raises(Refused):
        room.ask("alice", QUESTION)


def test_a_view_that_is_public_no_longer_is_gone(room, keys, served):
    with served.con.cursor() as cursor:
        cursor.execute("CREATE OR REPLACE VIEW hospital.main.dear AS SELECT ward FROM hospital.main.visits WHERE cost > 500")
    keys.shown.append("main.dear")
    question = "SELECT ward, count(*) FROM dear GROUP BY ward"
    assert room.ask("alice", question) == room.ask("alice", question)
    keys.shown.remove("main.dear")
    with pytest.raises(Refused):
        room.ask("alice", question)


def test_a_file_that_was_touched_is_looked_at_on_the_usual_way(room, looked, served):
    text = "SELECT count(*) AS n FROM visits WHERE cost > 333"
    first = room.ask("alice", text)
    (_, files), = room._again._kept.values()
    for path, _ in files:
        path.touch()
    taken = len(looked)
    assert room.ask("alice", text) == first
    assert len(looked) > taken


def test_a_room_that_is_not_alone_keeps_nothing(served, looked):
    served.ask(QUESTION)
    taken = len(looked)
    served.ask(QUESTION)
    assert len(looked) > taken


def test_few_answers_are_kept_and_no_large_ones(room, monkeypatch):
    monkeypatch.setattr(again, "CELLS", 40)
    for cost in range(100, 140, 5):
        room.ask("alice", f"SELECT count(*) AS n FROM visits WHERE cost > {cost}")
        room.ask("alice", f"SELECT ward, count(*) AS n FROM visits WHERE cost > {cost} GROUP BY ward")  # six values: above a tenth
    assert room._again._cells == len(room._again._kept) == 8
    monkeypatch.setattr(again, "MOST", 3)
    room.ask("alice", "SELECT count(*) AS n FROM visits WHERE cost > 140")
    assert room._again._cells == len(room._again._kept) == 3


def test_what_reads_a_clock_or_draws_is_known():
    """Every function on the gate's list that needs no argument and is not consistent, or is volatile, or a macro over one."""
    con = duckdb.connect()
    unsteady = {
        name
        for (name,) in con.execute(
            "SELECT DISTINCT function_name FROM duckdb_functions() "
            "WHERE stability = 'VOLATILE' OR (stability = 'CONSISTENT_WITHIN_QUERY' AND len(parameter_types) = 0)"
        ).fetchall()
    }
    macros = con.execute("SELECT function_name, macro_definition FROM duckdb_functions() WHERE function_type = 'macro'").fetchall()
    unsteady |= {name for name, text in macros if not again.is_steady(text)}
    assert unsteady & FUNCTIONS - again.FUNCTIONS - again.WORDS == set()
