"""Released tables of counts answer questions about all rows of their table, and no other question."""

from __future__ import annotations

import duckdb
import pytest

import dpsql

WHOLE = {
    'SELECT count(*) FROM "My V"': 6000,
    "SELECT count(*) FROM main.\"my v\" AS z": 6000,
    'SELECT count(1) AS n FROM (SELECT * FROM "My V") t': 6000,
    'SELECT sum(n) FROM (SELECT w, count(*) AS n FROM memory.main."My V" GROUP BY w)': 6000,
}
PARTS = {
    'SELECT count(*) FROM "My V" WHERE x = 4': 600,
    "SELECT count(*) FROM fourths": 600,
    'SELECT count(*) FROM (SELECT * FROM "My V" WHERE x = 4) t': 600,
    'WITH q AS (SELECT * FROM "My V" WHERE x = 4) SELECT count(*) FROM q': 600,
    'SELECT sum(n) FROM (SELECT w, count(*) AS n FROM (SELECT w FROM "My V" WHERE x = 4) t GROUP BY w)': 600,
    "SELECT sum(n) FROM (SELECT w, count(*) AS n FROM fourths GROUP BY w)": 600,
}
OF_PEOPLE = {
    'SELECT count(*) FROM "My V" JOIN few ON x = k': 1200,
    'SELECT count(*) FROM "My V" SEMI JOIN few ON x = k': 1200,
    'SELECT count(*) FROM "My V", few': 12_000,
    'SELECT count(*) FROM (SELECT id, w FROM "My V" UNION ALL SELECT id, w FROM "My V") u': 12_000,
    "SELECT sum(n) FROM (SELECT v.w, count(*) AS n FROM \"My V\" v JOIN (SELECT 'a' AS w) g ON g.w = v.w GROUP BY v.w)": 3000,
}


def loaded(unit: str) -> duckdb.DuckDBPyConnection:
    con = duckdb.connect()
    dpsql.load(con)
    con.execute("CREATE TABLE \"My V\" AS SELECT i AS id, ['a', 'b'][1 + i % 2] AS w, i % 10 AS x FROM range(6000) AS numbers(i)")
    con.execute('CREATE VIEW fourths AS SELECT * FROM "My V" WHERE x = 4')
    con.execute("CREATE TABLE few AS SELECT range AS k FROM range(2)")
    con.execute(f"CALL dp_protect('\"My V\"', epsilon := 1000, delta := 1e-6{unit})")
    con.execute("CALL dp_declare('\"My V\"', 'w', categories := ['a', 'b'], nullable := false)")
    con.execute("CALL dp_declare('\"My V\"', 'x', lower := 0, upper := 9, nullable := false)")
    con.execute("FROM dp_marginals('\"My V\"', columns := ['w'], epsilon := 20)").fetchall()
    return con


def charges(con: duckdb.DuckDBPyConnection) -> int:
    (found,) = con.execute("SELECT count(*) FROM dp_ledger('\"My V\"') WHERE action = 'charge'").fetchall()
    return int(found[0])


@pytest.mark.parametrize("unit", ["", ", privacy_unit := 'id', max_contributions := 2"], ids=["rows", "people"])
def test_tables_answer_what_is_of_all_rows_alone(unit: str) -> None:
    """At epsilon 20 noise is some rows wide; tables that answered a question about other rows were wrong by thousands."""
    with loaded(unit) as con:
        for text, truth in {**WHOLE, **PARTS, **(OF_PEOPLE if unit else {})}.items():
            before = charges(con)
            (answer,) = con.execute("FROM dp_query($1, epsilon := 20)", [text]).fetchall()
            assert abs(answer[0] - truth) < 500, text
            assert (charges(con) == before) is (text in WHOLE), text
