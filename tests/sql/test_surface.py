"""The SQL surface in all the ways it is called: one charge each time, and the same answer."""

from __future__ import annotations

import threading
from pathlib import Path

import duckdb
import pytest
from sample_tables import DELTA, make_people, protect_people

import dpsql
from dpsql.books.chain import Chain

CALL = "FROM dp_synthesize('people', epsilon := 1.0, options := {'steps': 5})"
"""A short fit: how it is called is what matters here."""


def rows_of(con: duckdb.DuckDBPyConnection, query: str = CALL) -> list[tuple]:
    return con.execute(query).fetchall()


def test_the_road_of_the_design(con, charges):
    plan = con.execute("SELECT tables, affordable, bought, epsilon_left_after FROM dp_plan('people', epsilon := 1.0)").fetchone()
    assert plan[0] == 4 * 5 // 2
    assert plan[1:3] == (True, False)
    con.execute(f"CREATE TABLE people_synth AS {CALL}")
    types = con.execute("SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = 'people_synth' ORDER BY column_index").fetchall()
    assert types == [("age", "SMALLINT"), ("sex", "ENUM('f', 'm')"), ("region", "VARCHAR"), ("member", "BOOLEAN")]
    assert con.execute("SELECT count(*) FROM people_synth WHERE age NOT BETWEEN 18 AND 78").fetchone() == (0,)
    table = con.execute("FROM dp_marginals('people', columns := ['sex', 'region'], k := 2, epsilon := 0.2)").fetchall()
    assert [row[:2] for row in table] == [(s, r) for s in ("f", "m", None) for r in ("north", "south", None)]
    name = con.execute("SELECT release FROM dp_releases() WHERE operation = 'synthesize'").fetchone()[0]
    assert con.execute(f"SELECT count(*) FROM dp_sample('{name}', rows := 1234, seed := 7)").fetchone() == (1234,)
    assert con.execute("SELECT count(*), bool_and(chain_holds) FROM dp_ledger()").fetchone() == (5, True)
    spent = con.execute("SELECT epsilon_spent, epsilon_left, releases FROM dp_budget('people')").fetchone()
    assert 1.0 <= spent[0] < 1.3
    assert spent[2] == 2
    errors = con.execute("SELECT k, tvd FROM dp_evaluate('people', 'people_synth')").fetchall()
    assert [k for k, _ in errors] == [1, 2, 3]
    assert all(0 <= tvd < 0.5 for _, tvd in errors)
    assert charges() == 2


@pytest.mark.parametrize(
    "how",
    [
        "execute",
        "sql_twice",
        "explain",
        "explain_analyze",
        "ctas",
        "call",
        "view",
        "prepared",
        "prepared_python",
        "cte",
        "subquery",
        "insert",
        "temp_table",
        "limit_zero",
        "where_false",
    ],
)
def test_one_charge_however_it_is_called(con, charges, how):
    if how == "execute":
        assert rows_of(con) == rows_of(con)
    elif how == "sql_twice":
        relation = con.sql(CALL)
        assert str(relation)
        assert relation.fetchall() == relation.fetchall()
        assert relation.df().shape[1] == 4
    elif how == "explain":
        con.execute(f"EXPLAIN {CALL}")
        con.execute(f"EXPLAIN {CALL}")
    elif how == "explain_analyze":
        con.execute(f"EXPLAIN ANALYZE {CALL}")
    elif how == "ctas":
        con.execute(f"CREATE TABLE a AS {CALL}")
        con.execute(f"CREATE TABLE b AS {CALL}")
        assert rows_of(con, "FROM a EXCEPT ALL FROM b") == []
    elif how == "call":
        con.execute("CALL dp_synthesize('people', epsilon := 1.0, options := {'steps': 5})")
    elif how == "view":
        con.execute(f"CREATE VIEW v AS {CALL}")
        assert len({tuple(rows_of(con, "FROM v")) for _ in range(3)}) == 1
    elif how == "prepared":
        con.execute(f"PREPARE q AS {CALL}")
        assert con.execute("EXECUTE q").fetchall() == con.execute("EXECUTE q").fetchall()
    elif how == "prepared_python":
        query = "FROM dp_synthesize(?, epsilon := ?)"
        assert con.execute(query, ["people", 1.0]).fetchall() == con.execute(query, ["people", 1.0]).fetchall()
    elif how == "cte":
        rows_of(con, f"WITH s AS ({CALL}) SELECT (SELECT count(*) FROM s), (SELECT max(age) FROM s)")
    elif how == "subquery":
        rows_of(con, f"SELECT count(*) FROM ({CALL}) WHERE age > 30")
    elif how == "insert":
        con.execute(f"CREATE TABLE a AS {CALL} LIMIT 0")
        con.execute(f"INSERT INTO a {CALL}")
    elif how == "temp_table":
        con.execute(f"CREATE TEMP TABLE a AS {CALL}")
    elif how == "limit_zero":
        assert rows_of(con, f"{CALL} LIMIT 0") == []
    else:
        assert rows_of(con, f"{CALL} WHERE false") == []
    assert charges() == 1


def test_a_join_of_two_calls(con, charges):
    query = (
        "SELECT count(*) FROM dp_marginals('people', k := 1, epsilon := 0.1) a "
        "JOIN dp_marginals('people', k := 1, epsilon := 0.1, release := 'second') b USING (columns, values)"
    )
    assert con.execute(query).fetchone()[0] >= 6
    assert charges() == 2


def test_cursors_and_a_second_connection_share_the_books(con, charges, tmp_path):
    first = rows_of(con)
    assert rows_of(con.cursor()) == first
    second = duckdb.connect(str(tmp_path / "people.duckdb"))
    dpsql.load(second)
    assert rows_of(second) == first
    con.execute("CREATE SCHEMA s2")
    con.execute("USE s2")
    assert rows_of(con, "FROM dp_synthesize('main.people', epsilon := 1.0, options := {'steps': 5})") == first
    second.close()
    assert charges() == 1


def test_the_connection_that_was_loaded_may_close(con, charges, tmp_path):
    first = rows_of(con)
    second = duckdb.connect(str(tmp_path / "people.duckdb"))
    con.close()
    with pytest.raises(duckdb.Error, match=r"dpsql\.load"):
        rows_of(second)
    dpsql.load(second)
    assert rows_of(second) == first
    second.close()


def test_load_is_safe_to_repeat(con):
    for _ in range(3):
        dpsql.load(con)
    assert len(rows_of(con, "SELECT DISTINCT function_name FROM duckdb_functions() WHERE function_name = 'dp_plan'")) == 1


@pytest.mark.parametrize("before", ["SELECT 1", "FROM range(100000)", "CREATE TABLE made AS SELECT 1"])
def test_a_result_that_is_not_read_to_its_end_is_no_obstacle(before):
    """DuckDB 2 takes no new functions then: `con.execute('SELECT 1').fetchone()` before a load made it fail."""
    for read in (False, True):
        con = duckdb.connect()
        con.execute(before)
        if read:
            con.fetchone()
        dpsql.load(con, progress=False)
        assert con.execute("FROM dp_releases()").fetchall() == []


def test_inside_a_transaction_that_is_rolled_back(con, charges):
    con.execute("BEGIN")
    con.execute(f"CREATE TABLE gone AS {CALL}")
    first = rows_of(con, "FROM gone")
    assert rows_of(con) == first
    con.execute("ROLLBACK")
    assert charges() == 1
    assert rows_of(con) == first
    assert charges() == 1


def test_a_source_of_the_open_transaction_is_refused(con):
    con.execute("BEGIN")
    con.execute("CREATE TABLE fresh AS FROM people")
    with pytest.raises(duckdb.Error, match="COMMIT"):
        con.execute("CALL dp_protect('fresh', epsilon := 1, delta := 1e-9)")
    con.execute("ROLLBACK")


def test_in_memory():
    con = duckdb.connect()
    make_people(con)
    dpsql.load(con)
    protect_people(con)
    assert rows_of(con) == rows_of(con)
    con.close()


def test_an_attached_database_keeps_its_own_books(tmp_path: Path):
    con = duckdb.connect()
    con.execute(f"ATTACH '{tmp_path / 'other.duckdb'}' AS \"Odd db\"")
    con.execute('USE "Odd db"')
    make_people(con)
    con.execute("USE memory")
    dpsql.load(con)
    con.execute(f"""CALL dp_protect('"Odd db".main.people', epsilon := 2, delta := {DELTA})""")
    con.execute("""FROM dp_marginals('"Odd db".main.people', columns := ['sex'], epsilon := 0.5)""")
    assert con.execute('SELECT count(*) FROM "Odd db".dpsql.ledger').fetchone() == (3,)
    select = "FROM dp_marginals('SELECT sex FROM {}.main.people WHERE age > 30', epsilon := 0.5)"
    first = con.execute(select.format('"Odd db"')).fetchall()
    con.execute('DETACH "Odd db"')
    con.execute(f"ATTACH '{tmp_path / 'other.duckdb'}' AS renamed")
    assert con.execute("SELECT releases, chain_holds FROM dp_budget('renamed.main.people')").fetchone() == (2, True)
    assert con.execute(select.format("renamed")).fetchall() == first
    assert con.execute("SELECT sum(n) IS NOT NULL FROM dp_marginals('renamed.main.people', columns := ['sex'], epsilon := 0.5)").fetchone() == (True,)
    assert con.execute("SELECT count(*) FROM renamed.dpsql.ledger").fetchone() == (5,)
    con.close()


def test_a_read_only_database_can_be_sampled(con, tmp_path):
    first = rows_of(con)
    con.close()
    reader = duckdb.connect(str(tmp_path / "people.duckdb"), read_only=True)
    dpsql.load(reader)
    assert rows_of(reader) == first
    with pytest.raises(duckdb.Error, match="cannot be written"):
        rows_of(reader, "FROM dp_synthesize('people', epsilon := 1.0, options := {'steps': 5}, release := 'new')")
    assert reader.execute("SELECT releases FROM dp_budget('people')").fetchone() == (1,)
    reader.close()


def test_another_release_name_buys_again_and_the_same_name_with_other_parameters_is_refused(con, charges):
    first = rows_of(con)
    assert rows_of(con, "FROM dp_synthesize('people', epsilon := 1.0, options := {'steps': 5}, release := 'b')") != first
    assert charges() == 2
    with pytest.raises(duckdb.Error, match=r"bought with epsilon = 1\.0"):
        rows_of(con, "FROM dp_synthesize('people', epsilon := 0.5)")
    with pytest.raises(duckdb.Error, match="bought with columns"):
        rows_of(con, "FROM dp_synthesize('people', epsilon := 1.0, options := {'steps': 5}, columns := ['sex', 'age'], release := 'b')")
    assert charges() == 2


def test_calls_about_other_columns_are_other_releases_without_a_name(con, charges):
    age = rows_of(con, "FROM dp_marginals('people', columns := ['age'], epsilon := 0.5)")
    sex = rows_of(con, "FROM dp_marginals('people', columns := ['Sex'], epsilon := 0.5)")
    assert charges() == 2
    assert rows_of(con, "FROM dp_marginals('people', columns := ['age'], epsilon := 0.5)") == age != sex
    with pytest.raises(duckdb.Error, match=r"bought with epsilon = 0\.5"):
        rows_of(con, "FROM dp_marginals('people', columns := ['age'], epsilon := 0.4)")
    assert charges() == 2


def test_rows_seed_and_into_draw_again_for_free(con, charges):
    assert len(rows_of(con, "FROM dp_synthesize('people', epsilon := 1.0, options := {'steps': 5}, rows := 17)")) == 17
    one = rows_of(con, "FROM dp_synthesize('people', epsilon := 1.0, options := {'steps': 5}, rows := 300, seed := 1)")
    assert one == rows_of(con, "FROM dp_synthesize('people', epsilon := 1.0, options := {'steps': 5}, rows := 300, seed := 1)")
    assert one != rows_of(con, "FROM dp_synthesize('people', epsilon := 1.0, options := {'steps': 5}, rows := 300, seed := 2)")
    assert rows_of(con, "FROM dp_synthesize('people', epsilon := 1.0, options := {'steps': 5}, rows := 0)") == []
    con.execute("""FROM dp_synthesize('people', epsilon := 1.0, options := {'steps': 5}, rows := 300, seed := 1, "into" := 'made')""")
    assert rows_of(con, "FROM made") == one
    con.execute("FROM dp_synthesize('people', epsilon := 1.0, options := {'steps': 5}, rows := 20, into_table := 'main.made')")
    assert con.execute("SELECT count(*) FROM made").fetchone() == (20,)
    with pytest.raises(duckdb.Error, match="was not made by dpsql"):
        con.execute("FROM dp_synthesize('people', epsilon := 1.0, options := {'steps': 5}, into_table := 'people')")
    assert con.execute("SELECT count(*) FROM people").fetchone() == (600,)
    assert charges() == 1


def test_a_synthetic_table_with_a_budget_of_its_own_is_not_replaced(con):
    draw = "FROM dp_synthesize('people', epsilon := 1.0, options := {{'steps': 5}}, rows := {}, into_table := 'mine')"
    con.execute(draw.format(20))
    con.execute("CALL dp_protect('mine', epsilon := 1, delta := 1e-9)")
    with pytest.raises(duckdb.Error, match="table main.mine would be replaced, and has a budget or a link"):
        con.execute(draw.format(30))
    assert con.execute("SELECT count(*) FROM mine").fetchone() == (20,)
    con.execute("DROP TABLE mine")
    con.execute(draw.format(30))
    assert con.execute("SELECT count(*) FROM mine").fetchone() == (30,)


def test_the_ledger_is_read_once_for_all_releases(con, charges, monkeypatch):
    """It was read three times for each of them, and the histogram of rows per unit looked for as often: 40 ms a release."""
    asked = []
    real = Chain._rows
    monkeypatch.setattr(Chain, "_rows", lambda self, *given, **more: asked.append(more) or real(self, *given, **more))
    counted = []
    for name in "abc":
        con.execute(f"CREATE OR REPLACE TABLE m AS FROM dp_marginals('people', columns := ['sex'], epsilon := 0.01, release := '{name}')")
        asked.clear()
        listed = con.execute("SELECT release, status, notes FROM dp_releases()").fetchall()
        counted.append((len(listed), len(asked)))
        assert all(status == "stored" and not any("cannot be read" in note for note in notes) for _, status, notes in listed)
    assert [number for number, _ in counted] == [1, 2, 3] and len({times for _, times in counted}) == 1


def test_the_answer_stays_whatever_happens_to_the_data(con, charges):
    first = rows_of(con)
    con.execute("DELETE FROM people WHERE person < 100")
    assert rows_of(con) == first
    assert charges() == 1


def test_export_and_import_where_the_data_never_was(con, tmp_path):
    name = con.execute("SELECT release FROM dp_releases()").fetchall()
    assert name == []
    rows_of(con)
    name = con.execute("SELECT release FROM dp_releases()").fetchone()[0]
    con.execute(f"FROM dp_export('{name}', '{tmp_path / 'carried.parquet'}')")
    expected = con.execute(f"FROM dp_sample('{name}', rows := 50, seed := 3)").fetchall()
    con.close()
    elsewhere = duckdb.connect()
    dpsql.load(elsewhere)
    found = elsewhere.execute(f"FROM dp_import('{tmp_path / 'carried.parquet'}')").fetchone()
    assert found[0] == name
    assert elsewhere.execute(f"FROM dp_sample('{name}', rows := 50, seed := 3)").fetchall() == expected
    elsewhere.close()


def test_a_damaged_release_is_refused(con, tmp_path):
    rows_of(con)
    name = con.execute("SELECT release FROM dp_releases()").fetchone()[0]
    (path,) = (tmp_path / "people.duckdb.dpsql").glob(f"{name}.*.release.parquet")
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(duckdb.Error, match="not a dpsql release"):
        con.execute(f"FROM dp_sample('{name}', rows := 3)")
    path.unlink()
    with pytest.raises(duckdb.Error, match="restore it from a backup"):
        rows_of(con)


def test_two_threads_ask_for_the_same_release(con, charges):
    answers: list[list[tuple]] = []
    threads = [threading.Thread(target=lambda cursor: answers.append(rows_of(cursor)), args=(con.cursor(),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 4
    assert all(answer == answers[0] for answer in answers)
    assert charges() == 1


def test_python_functions_have_the_same_names_and_answers(con, charges):
    assert len(dpsql.plan(con, "people", epsilon=1.0).fetchall()) == 1
    made = dpsql.synthesize(con, "people", epsilon=1.0, options={"steps": 5})
    assert made.fetchall() == rows_of(con)
    assert len(dpsql.marginals(con, "people", columns=["sex"], epsilon=0.1).fetchall()) == 3
    name = dpsql.releases(con).fetchall()[0][0]
    assert len(dpsql.sample(con, name, rows=9).fetchall()) == 9
    assert [row[0] for row in dpsql.evaluate(con, "people", "people").fetchall()] == [1, 2, 3]
    assert len(dpsql.domain(con, "people").fetchall()) == 6
    assert dpsql.budget(con, "people").fetchall()[0][0] == "main.people"
    assert len(dpsql.ledger(con).fetchall()) == 5
    with pytest.raises(dpsql.BudgetExceeded) as caught:
        dpsql.synthesize(con, "people", epsilon=100.0, release="too much")
    assert caught.value.requested > caught.value.remaining
    assert charges() == 2


def test_an_imported_release_cannot_bring_sql(con, tmp_path):
    rows_of(con)
    name = con.execute("SELECT release FROM dp_releases()").fetchone()[0]
    (path,) = (tmp_path / "people.duckdb.dpsql").glob(f"{name}.*.release.parquet")
    manifest = con.execute(f"SELECT decode(value) FROM parquet_kv_metadata('{path}') WHERE decode(key) = 'dpsql'").fetchone()[0]
    evil = manifest.replace("SMALLINT", "SMALLINT) AS age, (SELECT max(person) FROM people")
    assert evil != manifest
    quoted = evil.replace("'", "''")
    con.execute(f"COPY (FROM '{path}') TO '{tmp_path / 'evil.parquet'}' (FORMAT parquet, KV_METADATA {{dpsql: '{quoted}'}})")
    with pytest.raises(duckdb.Error, match="damaged or was edited"):
        con.execute(f"FROM dp_import('{tmp_path / 'evil.parquet'}')")
