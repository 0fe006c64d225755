"""Views as DuckDB writes them down, which is not as they were typed; views that say something else later."""

from __future__ import annotations

import duckdb
import pytest

import dpsql

WHERE = [
    "home IN (SELECT home FROM homes WHERE side = 'north')",
    "home NOT IN (SELECT home FROM homes)",
    "home = ANY(SELECT home FROM homes)",
    "home <> ALL(SELECT home FROM homes)",
    "p IN (SELECT p FROM r WHERE age > 20)",
    "NOT (age > 5 AND home IN (SELECT home FROM homes)) IS NULL",
    "'red' IN tags",
    "contains(tags, 'red')",
    "list_contains(tags, 'blue')",
    "list_has_any(tags, ['red', 'green'])",
    "tags && ['green']",
    "list_has_all(tags, ['red', 'blue'])",
    "tags @> ['red', 'blue']",
    "NOT list_has_any(tags, ['red'])",
    "home SIMILAR TO 'a|b'",
    "home NOT SIMILAR TO 'a'",
    "home NOT LIKE 'a%'",
    "(age > 10) IS TRUE",
    "(age > 10) IS NOT TRUE",
    "age NOT BETWEEN 3 AND 20",
    "day + INTERVAL 1 MONTH > DATE '2024-02-02'",
    "EXTRACT(month FROM day) = 1 AND CASE home WHEN 'a' THEN 1 ELSE 2 END = 1",
]
REFUSED = {"NOT (age > 5 AND home IN (SELECT home FROM homes)) IS NULL"}


@pytest.fixture(scope="module")
def con():
    with duckdb.connect() as connection:
        connection.execute("""
            CREATE TABLE r AS SELECT i AS p, (i % 50)::INTEGER AS age, ['a', 'b', 'c', NULL][1 + i % 4] AS home,
                CASE i % 5 WHEN 0 THEN NULL WHEN 1 THEN [] WHEN 2 THEN ['red', NULL] WHEN 3 THEN ['red', 'blue'] ELSE ['green'] END AS tags,
                DATE '2024-01-01' + (i % 60)::INTEGER AS day
            FROM range(6000) x(i);
            CREATE TABLE homes AS SELECT * FROM (VALUES ('a', 'north'), ('b', 'south')) v(home, side);
        """)
        dpsql.load(connection, progress=True)
        connection.execute("CALL dp_protect('r', epsilon := 1000, delta := 1e-9, privacy_unit := 'p', max_contributions := 1)")
        connection.execute("CALL dp_declare('r', 'age', lower := 0, upper := 49, nullable := false)")
        yield connection


def asked(con, text):
    return con.execute("FROM dp_query(?, epsilon := 5)", [text]).fetchall()


@pytest.mark.any_duckdb
@pytest.mark.parametrize("where", WHERE)
def test_a_view_answers_as_its_text(con, where):
    con.execute(f"CREATE VIEW v{WHERE.index(where)} AS SELECT * FROM r WHERE {where}")
    texts = [f"SELECT count(*) FROM r WHERE {where}", f"SELECT count(*) FROM v{WHERE.index(where)}"]
    if where in REFUSED:
        for text in texts:
            with pytest.raises(duckdb.Error, match="as a condition of WHERE on its own"):
                asked(con, text)
        return
    [(true,)] = con.execute(texts[0]).fetchall()
    assert all(abs(asked(con, text)[0][0] - true) < 40 for text in texts)


@pytest.mark.any_duckdb
@pytest.mark.parametrize("values", ["[]", "['red', NULL]", "tags", "[home]"])
def test_what_a_list_is_asked_for_is_written_out(con, values):
    with pytest.raises(duckdb.Error, match="must be of constants, written out|not on the list"):
        asked(con, f"SELECT count(*) FROM r WHERE list_has_any(tags, {values})")


def test_a_view_that_says_otherwise_is_named_beside_the_answer(con, capfd):
    con.execute("CREATE VIEW later AS SELECT * FROM r WHERE age > 40")
    text = "SELECT count(*) FROM later"
    first = asked(con, text)
    con.execute("CREATE OR REPLACE VIEW later AS SELECT * FROM r WHERE age > 40")
    capfd.readouterr()
    assert asked(con, text) == first
    assert "says otherwise" not in capfd.readouterr().err
    con.execute("CREATE OR REPLACE VIEW later AS SELECT * FROM r WHERE age > 10")
    assert asked(con, text) == first
    assert "of what the view said then, which says otherwise now: release := 'another name' buys it anew" in capfd.readouterr().err
    con.execute("CREATE VIEW above AS SELECT * FROM later WHERE home = 'a'")
    first = asked(con, "SELECT count(*) FROM above")
    con.execute("CREATE OR REPLACE VIEW later AS SELECT * FROM r WHERE age > 11")
    assert asked(con, "SELECT count(*) FROM above") == first
    assert "says otherwise now" in capfd.readouterr().err
