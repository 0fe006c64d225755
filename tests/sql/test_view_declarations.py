"""Domains that are declared for a view hold for every query that copies its columns; its budget is its table's."""

from __future__ import annotations

import duckdb

import dpsql


def test_a_query_takes_the_declaration_of_the_outermost_view():
    con = duckdb.connect()
    dpsql.load(con)
    con.execute("CREATE TABLE t AS SELECT i % 10 AS a FROM range(100) r(i)")
    con.execute("CREATE VIEW v AS SELECT a, a * 2 AS b, a AS c FROM t; CREATE VIEW w(x, y, z) AS SELECT a, b, c FROM v")
    con.execute("CALL dp_protect('t', epsilon := 1, delta := 1e-9)")
    for source, column, bins in (("t", "a", 2), ("v", "b", 3), ("v", "c", 4), ("w", "z", 5)):
        con.execute(f"CALL dp_declare('{source}', '{column}', lower := 0, upper := 20, bins := {bins}, nullable := false)")

    def codes(source: str) -> dict[str, int | None]:
        return dict(con.execute("SELECT column_name, codes FROM dp_domain(?)", [source]).fetchall())

    assert codes("t") == {"a": 2}
    assert codes("v") == {"a": 2, "b": 3, "c": 4}
    assert codes("w") == {"x": 2, "y": 3, "z": 5}
    assert codes("SELECT z, y AS renamed, y + 1 AS more, x FROM w WHERE x > 1") == {"z": 5, "renamed": 3, "more": None, "x": 2}
    assert codes("WITH q AS (SELECT c AS d FROM v) SELECT d FROM q") == {"d": 4}
    assert con.execute("SELECT source, epsilon FROM dp_budget('w')").fetchall() == [("main.t", 1.0)]
    con.close()
