"""A repeated dp_query is answered from memory only while it would be the same, and cursors that are used again change nothing."""

from __future__ import annotations

import gc
import os
import weakref
from pathlib import Path

import duckdb
import pandas as pd
import pytest
from dpsql.udfs import instance_of
from prepared import copied

import dpsql
from dpsql.answers import remembered
from dpsql.session.instance import open_context
from dpsql.session.settings import PINNED
from dpsql.source import listed as functions

pytestmark = pytest.mark.any_duckdb

QUERY = "FROM dp_query('SELECT g, count(*) AS n, avg(x) AS mean FROM {} GROUP BY g ORDER BY g', epsilon := 1)"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    path = tmp_path_factory.mktemp("made") / "small.duckdb"
    with duckdb.connect(str(path)) as connection:
        dpsql.load(connection, progress=False)
        connection.execute("CREATE TABLE t AS SELECT i AS p, i % 3 AS g, (i % 100)::DOUBLE AS x FROM range(600) r(i)")
        connection.execute("CREATE VIEW v AS SELECT g, x FROM t WHERE x < 50")
        connection.execute("CALL dp_protect('t', epsilon := 50, delta := 1e-9, privacy_unit := 'p', max_contributions := 1)")
        connection.execute("CALL dp_declare('t', 'x', lower := 0, upper := 100)")
        connection.execute("CALL dp_declare('t', 'g', categories := [0, 1, 2], nullable := false)")
    return path


@pytest.fixture
def con(made, tmp_path):
    with copied(made, tmp_path, progress=False) as connection:
        yield connection


@pytest.fixture
def recalled(monkeypatch):
    """Whether each call was answered from memory."""
    found: list[bool] = []
    recall = remembered.recall

    def noted(context, call):
        answer = recall(context, call)
        found.append(answer is not None)
        return answer

    monkeypatch.setattr(remembered, "recall", noted)
    return found


def charges(con):
    return con.execute("SELECT count(*) FROM dpsql.ledger WHERE action = 'charge'").fetchone()[0]


@pytest.mark.parametrize("source", ["t", "v"])
def test_the_same_answer_for_nothing(con, recalled, source):
    first = con.execute(QUERY.format(source)).fetchall()
    assert len(first) == 3
    again = [con.execute(QUERY.format(source)).fetchall() for _ in range(3)]
    assert again == [first] * 3
    assert recalled == [False, True, True, True]
    assert charges(con) == 1


@pytest.mark.parametrize("columns", ["['g']", "['x', 'g']"])
def test_tables_of_counts_too(con, recalled, tmp_path, columns):
    text = f"FROM dp_marginals('v', columns := {columns}, k := 1, shape := 'long', epsilon := 0.5)"
    for made in (text, text.replace(", shape := 'long'", "")):
        first = con.execute(made).fetchall()
        assert [con.execute(made).fetchall() for _ in range(2)] == [first] * 2
    assert recalled == [False, True, True] * 2
    assert charges(con) == 1
    for path in (tmp_path / "small.duckdb.dpsql" / "drawn").iterdir():
        path.unlink()
    assert con.execute(made).fetchall() == first  # drawn again
    con.execute("CREATE OR REPLACE VIEW v AS SELECT g, x FROM t WHERE x < 40")
    assert con.execute(made).fetchall() == first  # by the name of the view
    assert recalled[-2:] == [False, False]


def test_a_table_of_another_database_or_schema_is_another_question(con, recalled):
    con.execute(QUERY.format("t"))
    con.execute("CREATE SCHEMA other; CREATE TABLE other.t AS FROM main.t; USE other")
    with pytest.raises(duckdb.Error, match="no protected table"):
        con.execute(QUERY.format("t"))
    con.execute("USE main")
    con.execute(QUERY.format("t"))
    assert recalled == [False, False, False]


@pytest.mark.parametrize(
    "change",
    [
        "CREATE OR REPLACE VIEW v AS SELECT g, x + 1 AS x FROM t",
        "BEGIN; DROP VIEW v; CREATE VIEW v AS SELECT g, x FROM t WHERE x < 49; COMMIT",
        "ALTER TABLE t ADD COLUMN other INTEGER",
        "CREATE TABLE copied AS FROM t; DROP TABLE t; ALTER TABLE copied RENAME TO t",
    ],
)
def test_a_changed_catalog_is_looked_at_again(con, recalled, change):
    con.execute(QUERY.format("v"))
    con.execute(change)
    con.execute(QUERY.format("v"))
    con.execute(QUERY.format("v"))
    assert recalled == [False, False, True]
    assert charges(con) == 1  # a release is known by the name of the view


def test_a_change_that_is_committed_after_the_answer_was_remembered(con, recalled):
    other = con.cursor()
    other.execute("BEGIN; CREATE OR REPLACE VIEW v AS SELECT g, x FROM t WHERE x < 2")
    con.execute(QUERY.format("v"))
    con.execute(QUERY.format("v"))
    other.execute("COMMIT")
    con.execute(QUERY.format("v"))
    assert recalled == [False, True, False]


def test_a_view_that_is_gone_is_missing(con):
    con.execute(QUERY.format("v"))
    con.execute("DROP VIEW v")
    with pytest.raises(duckdb.Error, match="no such table or view"):
        con.execute(QUERY.format("v"))


def test_a_file_that_was_touched_is_read_again(con, recalled, tmp_path):
    first = con.execute(QUERY.format("t")).fetchall()
    (path,) = [found for found in (tmp_path / "small.duckdb.dpsql").iterdir() if found.suffix == ".release" or "query" in found.name]
    held = path.read_bytes()
    os.utime(path, (1, 1))
    assert con.execute(QUERY.format("t")).fetchall() == first
    path.unlink()
    before = charges(con)
    with pytest.raises(duckdb.Error, match="is not there"):
        con.execute(QUERY.format("t"))
    assert charges(con) == before
    path.write_bytes(held)
    assert con.execute(QUERY.format("t")).fetchall() == first
    assert recalled == [False] * 4


@pytest.mark.parametrize(
    "edit",
    [
        "UPDATE dpsql.ledger SET contents = repeat('0', 64) WHERE action = 'store'",
        "UPDATE dpsql.ledger SET hash = repeat('0', 64) WHERE action = 'charge'",
    ],
)
def test_an_edited_ledger_is_never_answered_from_memory(con, recalled, edit):
    con.execute(QUERY.format("t"))
    con.execute(edit)
    with pytest.raises(duckdb.Error):
        con.execute(QUERY.format("t"))
    assert recalled == [False, False]


def test_a_table_beside_that_is_protected_later_is_refused(con):
    con.execute("CREATE TABLE beside AS SELECT i AS g, 'name ' || i AS label FROM range(3) r(i)")
    text = "FROM dp_query('SELECT b.label, q.n FROM (SELECT g, count(*) AS n FROM t GROUP BY g) q JOIN beside b ON b.g = q.g', epsilon := 1)"
    for _ in range(2):
        assert len(con.execute(text).fetchall()) == 3
    con.execute("CALL dp_protect('beside', epsilon := 1, delta := 1e-9)")
    with pytest.raises(duckdb.Error, match="rows beside an aggregate"):
        con.execute(text)


def test_what_is_remembered_is_bounded(con, monkeypatch):
    monkeypatch.setattr(remembered, "MOST", 2)
    for limit in (1, 2, 3):
        con.execute(f"FROM dp_query('SELECT g, count(*) AS n FROM t GROUP BY g LIMIT {limit}', epsilon := 1)")
    assert len(instance_of(con).remembered["answers"]) == 2
    assert charges(con) == 1


@pytest.fixture
def statements(monkeypatch):
    """Return a function that makes a call and returns how many statements it took."""
    from dpsql.session.instance import Instance

    counts = [0]
    take = Instance.take

    class Counting:
        def __init__(self, cursor):
            self.cursor = cursor

        def __getattr__(self, name):
            if name == "execute":
                counts[-1] += 1
            return getattr(self.cursor, name)

    monkeypatch.setattr(Instance, "take", lambda self: Counting(take(self)))
    monkeypatch.setattr(Instance, "give", lambda self, cursor: cursor.cursor.close())

    def taken(connection, text):
        counts.append(0)
        connection.execute(text).fetchall()
        return counts[-1]

    return taken


def test_a_repeated_answer_takes_few_statements(con, statements):
    first, *again = (statements(con, QUERY.format("t")) for _ in range(3))
    assert again[0] == again[1] <= 4
    assert first <= 77


@pytest.mark.parametrize("more", ["", ", bounds := {'x': 'auto'}"])
def test_a_new_answer_takes_no_more_statements_the_more_were_bought(con, statements, more):
    """Over links too, where a release of before is of use only if it was charged under the links of today."""
    con.execute("CREATE TABLE people AS SELECT range AS id FROM range(200); ALTER TABLE people ADD PRIMARY KEY (id)")
    con.execute("CALL dp_protect('people', epsilon := 50, delta := 1e-9, privacy_unit := 'id')")
    con.execute("CREATE TABLE visits AS SELECT range % 200 AS p, range % 10 AS x FROM range(600)")
    con.execute("CALL dp_link('visits', 'p', parent := 'people', parent_column := 'id', max_rows := 20)")
    con.execute("CALL dp_declare('visits', 'x', lower := 0, upper := 10)")
    texts = [f"SELECT sum(x), count(*) FILTER (WHERE x < {most}) FROM visits" for most in range(1, 8)]
    counts = [statements(con, f"FROM dp_query('{text}', epsilon := 0.1{more})") for text in texts]
    assert max(counts[3:]) <= counts[2] + 1, "the first ones load what a process needs, or learn bounds"


def test_calls_from_python_list_the_functions_once(con, monkeypatch):
    """A new cursor would be a new entry of the catalog, after which they are listed anew."""
    listed = []
    plain = functions._listing
    monkeypatch.setattr(functions, "_listing", lambda cursor: listed.append(cursor) or plain(cursor))
    for most in range(1, 6):
        if most == 3:  # the first purchase has made a table for its noise
            listed.clear()
        dpsql.query(con, f"SELECT count(*) FROM t WHERE x < {most}", epsilon=1).fetchall()
    assert not listed
    con.execute("CREATE MACRO something(x) AS x")
    dpsql.query(con, "SELECT count(*) FROM t WHERE x < 7", epsilon=1).fetchall()
    assert len(listed) == 1


def test_one_session_lists_the_functions_once(tmp_path, monkeypatch):
    """What DuckDB creates by itself, and a refusal, are no reason to list them anew."""
    listed = []
    plain = functions._listing
    functions._shipped(())
    monkeypatch.setattr(functions, "_listing", lambda cursor: listed.append(cursor) or plain(cursor))
    with duckdb.connect(str(tmp_path / "fresh.duckdb")) as con:
        con.execute("CREATE TABLE t AS SELECT i AS p, i % 3 AS g, i % 100 AS x, DATE '2020-01-01' AS d FROM range(600) r(i)")
        dpsql.load(con, progress=False)
        con.execute("CALL dp_protect('t', epsilon := 50, delta := 1e-9, privacy_unit := 'p', max_contributions := 1)")
        con.execute("CALL dp_declare('t', 'x', lower := 0, upper := 100)")
        con.execute("CALL dp_declare('t', 'g', categories := [0, 1, 2], nullable := false)")
        con.execute("CALL dp_declare('t', 'd', lower := DATE '2020-01-01', upper := DATE '2021-01-01')")
        for _ in range(2):
            with pytest.raises(duckdb.Error):
                con.execute("FROM dp_query('SELECT x FROM t', epsilon := 1)")
            con.execute(QUERY.format("t")).fetchall()
            con.execute("FROM dp_query('SELECT g, count(*)::SMALLINT, median(x) FROM t WHERE x > 3 GROUP BY g', epsilon := 1)").fetchall()
        assert len(listed) == 1
        con.execute("CREATE MACRO something(x) AS x")
        con.execute("FROM dp_query('SELECT count(*) FROM t WHERE x > 5', epsilon := 1)").fetchall()
        assert len(listed) == 2


def test_a_closed_connection_is_said_to_be(con):
    con.close()
    for call in (lambda: dpsql.load(con), lambda: dpsql.budget(con), lambda: dpsql.query(con, "SELECT 1", epsilon=1)):
        with pytest.raises(dpsql.DpsqlError, match="con: .*[Cc]onnection.*closed"):
            call()


# -- cursors that are used again ------------------------------------------------------------------------------------------------


def test_a_closed_connection_leaves_the_file_free(con, tmp_path):
    con.execute(QUERY.format("t"))
    assert instance_of(con)._idle
    con.close()
    with duckdb.connect(str(tmp_path / "small.duckdb"), config={"threads": 1}) as other:  # another configuration: no open instance
        assert other.execute("SELECT count(*) FROM t").fetchone() == (600,)


def test_a_connection_that_is_collected_leaves_the_file_free(tmp_path):
    path = tmp_path / "collected.duckdb"
    con = duckdb.connect(str(path))
    dpsql.load(con, progress=False)
    con.execute("FROM dp_budget()").fetchall()
    gone, instance = weakref.ref(con), instance_of(con)
    assert instance._idle
    del con
    gc.collect()
    assert gone() is None
    assert not instance._idle
    with duckdb.connect(str(path), config={"threads": 1}) as other:
        assert other.execute("SELECT 1").fetchone() == (1,)


def test_settings_of_a_cursor_that_is_used_again_are_pinned(con):
    con.execute(QUERY.format("t"))
    con.execute("SET GLOBAL default_order = 'DESC'; SET GLOBAL default_null_order = 'NULLS_FIRST'; SET GLOBAL integer_division = true")
    cursor = instance_of(con).take()
    found = dict(cursor.execute("SELECT name, value FROM duckdb_settings()").fetchall())
    for name in ("default_order", "default_null_order", "integer_division", "TimeZone", "search_path"):
        pinned = PINNED[name]
        assert found[name].lower() in {text.lower() for text in (pinned.value, *pinned.same)}, name
    cursor.close()


def test_nothing_is_open_on_a_cursor_that_is_given_back(con):
    instance = instance_of(con)
    cursor = instance.take()
    cursor.execute("BEGIN")
    cursor.execute('INSERT INTO "small".main.t VALUES (1, 1, 1)')
    instance.give(cursor)
    assert instance.take() is cursor
    cursor.execute("BEGIN")  # no other one is open
    cursor.execute("ROLLBACK")
    assert con.execute("SELECT count(*) FROM t").fetchone() == (600,)
    instance.give(cursor)


def test_a_call_that_was_refused_gives_its_cursor_back_with_nothing_open(con):
    instance = instance_of(con)
    instance.forget()
    with pytest.raises(duckdb.Error):
        con.execute("FROM dp_query('SELECT nothing', epsilon := 1)")
    (cursor,) = instance._idle
    with pytest.raises(dpsql.ArgumentError), open_context(instance, "small", "main") as context:
        assert context.cursor is cursor
        cursor.execute("BEGIN")
        cursor.execute('INSERT INTO "small".main.t VALUES (1, 1, 1)')
        raise dpsql.ArgumentError("sql", "SELECT nothing", "refused")
    assert instance.take() is cursor
    cursor.execute("BEGIN")  # no other one is open
    cursor.execute("ROLLBACK")
    assert con.execute("SELECT count(*) FROM t").fetchone() == (600,)
    cursor.close()


@pytest.mark.parametrize("error", [dpsql.DpsqlError, dpsql.LedgerError, dpsql.ReleaseError, RuntimeError, KeyboardInterrupt, duckdb.IOException])
def test_a_call_that_failed_gives_nothing_back(con, error):
    instance = instance_of(con)
    instance.forget()
    with pytest.raises(error), open_context(instance, "small", "main"):
        raise error("something")
    assert not instance._idle


@pytest.mark.parametrize("left", ["CREATE TEMP TABLE left_there AS SELECT 1 AS one", "CREATE TEMP VIEW left_there AS SELECT 1 AS one", None])
def test_a_cursor_with_something_on_it_is_not_given_back(con, left):
    instance = instance_of(con)
    instance.forget()
    with pytest.raises(dpsql.UnsupportedQuery), open_context(instance, "small", "main") as context:
        if left is None:
            context.cursor.register("left_there", pd.DataFrame({"one": [1]}))
        else:
            context.cursor.execute(left)
        raise dpsql.UnsupportedQuery("something", "refused")
    assert not instance._idle
    with pytest.raises(duckdb.Error, match="closed"):
        context.cursor.execute("SELECT 1")


@pytest.mark.any_duckdb
def test_a_function_that_is_registered_between_two_calls_is_noticed(tmp_path: Path):
    with duckdb.connect(str(tmp_path / "udf.duckdb")) as con:
        dpsql.load(con, progress=False)
        con.execute("CREATE TABLE t AS SELECT 'A' || i % 3 AS s FROM range(100) r(i)")
        con.execute("CALL dp_protect('t', epsilon := 5, delta := 1e-9)")
        text = "FROM dp_marginals('SELECT lower(s) = ''a1'' AS b FROM t', columns := ['b'], epsilon := 0.1, release := '{}')"
        for name in "abc":
            con.execute(text.format(name)).fetchall()
        con.create_function("lower", lambda x: x, ["INTEGER"], "INTEGER")
        with pytest.raises(duckdb.Error, match="gives it another meaning"):
            con.execute(text.format("d"))
        con.execute("CREATE TABLE anything AS SELECT 1 AS one")
        with pytest.raises(duckdb.Error, match="gives it another meaning"):
            con.execute(text.format("d"))


@pytest.mark.any_duckdb
def test_a_macro_is_noticed_once_and_forgotten_when_it_is_dropped(tmp_path: Path):
    with duckdb.connect(str(tmp_path / "macro.duckdb")) as con:
        dpsql.load(con, progress=False)
        con.execute("CREATE TABLE t AS SELECT 'A' || i % 3 AS s FROM range(100) r(i)")
        con.execute("CALL dp_protect('t', epsilon := 5, delta := 1e-9)")
        text = "FROM dp_marginals('SELECT lower(s) = ''a1'' AS b FROM t', columns := ['b'], epsilon := 0.1, release := '{}')"
        con.execute(text.format("a"))
        con.execute("CREATE MACRO lower(x) AS 'A1'")
        for _ in range(2):
            with pytest.raises(duckdb.Error, match="gives it another meaning"):
                con.execute(text.format("b"))
        con.execute("DROP MACRO lower")
        con.execute(text.format("b"))
