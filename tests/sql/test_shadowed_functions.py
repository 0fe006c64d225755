"""Macros of the database cannot change what a source, the codes, the counts, the books or drawing compute."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import duckdb
import pytest
from dpsql.udfs import instance_of

import dpsql
from dpsql.door import dispatch
from dpsql.measure import reading
from dpsql.noise import discrete
from dpsql.session.instance import open_context

SEEN = re.compile(r"function '([^']+)': a macro")
ROADS: list[tuple[str, dict[str, Any]]] = [
    ("marginals", {"source": "p", "k": 2, "epsilon": 0.5, "mechanism": "gaussian"}),
    ("marginals", {"source": "SELECT p.s, q.g FROM p JOIN q ON p.s = q.k WHERE p.i > 1", "k": 1, "columns": ["g"], "epsilon": 0.5, "mechanism": "gaussian"}),
    ("marginals", {"source": "v", "k": 3, "columns": ["s", "b", "x"], "epsilon": 0.5, "mechanism": "gaussian"}),
    ("aggregates", {"source": "p", "reporting_length": 2, "epsilon": 0.5, "release": "tuples"}),
    ("synthesize", {"source": "p", "epsilon": 0.5, "rows": 50, "seed": 3, "release": "rows"}),
    ("dummy", {"source": "p", "rows": 20}),
]


def database(path: Path) -> duckdb.DuckDBPyConnection:
    con = duckdb.connect(str(path))
    con.execute("CREATE TABLE p (person VARCHAR, s VARCHAR, i INTEGER, x DOUBLE, b BOOLEAN, d DATE)")
    con.execute(
        "INSERT INTO p SELECT 'p' || i // 3, ['a', 'b', NULL, 'é'][1 + i % 4], i % 7, CASE WHEN i % 5 = 0 THEN 'nan'::DOUBLE ELSE i % 9 END, "
        "i % 2 = 0, DATE '2020-01-01' + INTERVAL (i % 30) DAY FROM range(300) t(i)"
    )
    con.execute("CREATE TABLE q (k VARCHAR PRIMARY KEY, g VARCHAR); INSERT INTO q VALUES ('a', 'u'), ('b', 'w'), ('é', 'u')")
    con.execute("CREATE VIEW v AS SELECT s, b, x FROM p WHERE d IS NOT NULL")
    dpsql.load(con, progress=False)
    con.execute("CALL dp_protect('p', epsilon := 50, delta := 1e-9, privacy_unit := 'person', max_contributions := 2)")
    for declared in (
        "'s', categories := ['a', 'b', 'z'], outside := 'other'", "'i', lower := 0, upper := 7, bins := 7", "'b', nullable := false, categories := [false, true]",
        "'x', edges := [0, 1.5, 4, 8]", "'d', lower := '2020-01-01', upper := '2020-02-01', bins := 4, outside := 'drop'",
    ):
        con.execute(f"CALL dp_declare('p', {declared})")
    con.execute(f"CALL dp_declare('{ROADS[1][1]['source']}', 'g', categories := ['u', 'w'])")
    return con


def shadow(con: duckdb.DuckDBPyConnection) -> int:
    """Put a macro in the place of every function of DuckDB that can have one; return how many."""
    names = [name for (name,) in con.execute("SELECT DISTINCT function_name FROM duckdb_functions() WHERE database_name = 'system'").fetchall()]
    made = 0
    for name in names:
        if name.startswith(("duckdb_", "dp_", "__dp_")):  # those have a test of their own; 1.4 cannot even name its tables then
            continue
        quoted = '"' + name.replace('"', '""') + '"'
        forms = ["() AS 7", "(a) AS 7", "(a, b) AS 7", "(a, b, c) AS 7", "(a, b, c, d) AS 7", "(a, b, c, d, e) AS 7"]
        con.execute(f"CREATE MACRO main.{quoted} {', '.join(forms)}")
        made += 1
    for name in ("range", "unnest", "generate_series", "read_parquet", "query"):
        con.execute(f"CREATE MACRO main.{name}(a) AS TABLE SELECT 7 AS {name}")
    return made


def answers(con: duckdb.DuckDBPyConnection, refused: set[str]) -> list[Any]:
    """The rows of every call, read on a cursor of dpsql's own; a macro that a source is refused for is dropped, and noted."""
    instance = instance_of(con)
    assert instance is not None
    found: list[Any] = []
    for name, given in ROADS:
        while True:
            try:
                relation = dispatch.run(instance, name, dict(given), database="shadow", schema="main")
                break
            except dpsql.DpsqlError as error:
                seen = SEEN.search(str(error))
                assert seen is not None, error
                assert seen[1] not in refused
                refused.add(seen[1])
                quoted = '"' + seen[1].replace('"', '""') + '"'
                con.execute(f"DROP MACRO IF EXISTS main.{quoted}")
                con.execute(f"DROP MACRO TABLE IF EXISTS main.{quoted}")
        with open_context(instance, "shadow", "main") as context:
            found.append(sorted(map(repr, context.cursor.execute(f"FROM {relation}").fetchall())))
    return found


@pytest.fixture
def exact(monkeypatch):
    monkeypatch.setattr(discrete, "add_noise", lambda counts, mechanism, scale: counts.copy())
    monkeypatch.setattr(reading, "fresh_salt", lambda: "0123456789abcdef" * 2)


@pytest.mark.usefixtures("exact")
def test_no_function_of_the_database_changes_an_answer(tmp_path):
    for folder in ("plain", "shadowed"):
        (tmp_path / folder).mkdir()
    plain, refused = database(tmp_path / "plain" / "shadow.duckdb"), set[str]()
    wanted = answers(plain, refused)
    assert not refused
    plain.close()
    shadowed = database(tmp_path / "shadowed" / "shadow.duckdb")
    assert shadow(shadowed.cursor()) > 500
    assert shadowed.cursor().execute("SELECT 1 + 2, 'a' || 'b', lower('A')").fetchone() == (7, 7, 7)  # they do shadow
    assert answers(shadowed, refused) == wanted
    # refused where the text of a source calls them, or syntax may: a handful, everything else has been tried
    assert len(refused) <= 16, refused
    shadowed.close()


@pytest.mark.parametrize("macro", ["to_json(x) AS '{}'", "current_database() AS 'x'", "current_schema() AS 'x'", "getvariable(x) AS 'x'", "concat(a, b) AS 'x'"])
def test_calls_in_sql_are_not_shadowed(tmp_path, macro):
    con = database(tmp_path / "shadow.duckdb")
    con.execute(f"CREATE MACRO main.{macro}")
    assert len(con.execute("FROM dp_marginals('p', columns := ['b'], epsilon := 1)").fetchall()) == 2
    con.close()
