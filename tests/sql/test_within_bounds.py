"""Rows are bounded of heavy units alone, held where many statements need them, and joined with groups after they are added up.

The counters are those of bounded rows, whatever the rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext

import duckdb
import pytest
from pairwise import WHOLE

import dpsql
from dpsql.measure import query as reading
from dpsql.measure import rows
from dpsql.measure.statement import NOBODY, Statement
from dpsql.noise import discrete

pytestmark = pytest.mark.usefixtures("functions_as_shipped")

TABLES = {
    "all within": [(u, "ab"[u % 2], 1.0) for u in range(30) for _ in range(u % 3 + 1)],
    "a heavy unit in the middle": [(u, "ab"[i % 2], 1.0) for u in range(30) for i in range(40 if u == 15 else 2)],
    "the NULL unit is heavy": [(u or "NULL", "ab"[i % 2], 1.0) for u in range(30) for i in range(40 if u == 0 else 2)],
    "heavy in one group alone": [(u, "a" if u == 7 else "ab"[i % 2], 1.0) for u in range(30) for i in range(3)],
    "many groups of one unit": [(u, "abc"[i % 3], 1.0) for u in range(30) for i in range(3 if u == 3 else 1)],
    "outside of the groups": [(u, "zz" if u == 9 else "a", 1.0) for u in range(30) for _ in range(9 if u == 9 else 1)],
    "one row": [(1, "a", 1.0)],
}
ASKED = (
    "SELECT count(*) FROM t", "SELECT g, count(*) FROM t GROUP BY g", "SELECT g, sum(x), avg(x) FROM t GROUP BY g",
    "SELECT count(DISTINCT u) FROM t", "SELECT count(*) FROM t WHERE g = 'a'", "SELECT g, count(DISTINCT u) FROM t GROUP BY g",
    "SELECT max(x) FROM t", "SELECT g, median(x), count(*) FROM t GROUP BY g", "SELECT g, sum(w), avg(w), median(w) FROM t GROUP BY g",
    "SELECT d, count(*), sum(x) FROM t GROUP BY d", "SELECT date_trunc('month', d) AS m, count(*), avg(w) FROM t GROUP BY m",
)
CHOSEN = "0123456789abcdef" * 2
OPTIONS = ("", ", max_groups := 2, max_rows_per_group := 2", ", groups := 'private', min_units := 1", ", max_groups := 1")


@pytest.fixture
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as made:
        dpsql.load(made)
        yield made


def protect(con: duckdb.DuckDBPyConnection, rows: list[tuple[object, str, float]]) -> None:
    listed = ", ".join(f"({u}, '{g}', {x})" for u, g, x in rows)
    con.execute(
        f"""
        CREATE OR REPLACE TABLE t AS SELECT u::INTEGER AS u, g, x::DOUBLE + n % 3 / 4 AS x, (x * n % 11 * 37)::DECIMAL(12, 2) AS w,
            DATE '2024-01-30' + (n % 4)::INTEGER AS d
        FROM (SELECT *, row_number() OVER (ORDER BY u ASC, g ASC) AS n FROM (VALUES {listed}) AS v(u, g, x))
        """
    )
    con.execute("CALL dp_protect('t', epsilon := 1000, delta := 1e-6, privacy_unit := 'u', max_contributions := 3)")
    con.execute("CALL dp_declare('t', 'g', categories := ['a', 'b', 'c'])")
    con.execute("CALL dp_declare('t', 'x', lower := 0, upper := 2)")
    con.execute("CALL dp_declare('t', 'w', lower := 0, upper := 1e7)")  # so wide that a histogram of magnitudes comes first
    con.execute("CALL dp_declare('t', 'd', lower := '2024-01-30', upper := '2024-02-02')")


def answers(con: duckdb.DuckDBPyConnection, release: str, turn: int, part: int | None = None) -> dict[str, list[tuple[object, ...]]]:
    """Ask with one of the options, which take turns from table to table and text to text; with all of them when thorough.

    ``part``: 0 or 1 for every other text, so that two other ways of reading take turns as well.
    """
    out = {}
    for i, text in enumerate(ASKED):
        if part is not None and (i + turn) % 2 != part and not WHOLE:
            continue
        grouped = "GROUP BY" in text
        for j, options in enumerate(OPTIONS):
            if (options and not grouped) or (grouped and (i + j + turn) % len(OPTIONS) and not WHOLE):
                continue
            call = f"FROM dp_query($${text}$$, epsilon := 1, release := '{release} {i} {j}'{options})"
            out[f"{i} {j}"] = sorted(con.execute(call).fetchall(), key=str)
    return out


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.usefixtures("unrehearsed")
def test_the_counters_are_those_of_bounded_rows(con: duckdb.DuckDBPyConnection, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discrete, "add_noise", lambda counts, *_: counts.copy())
    monkeypatch.setattr(reading, "fresh_salt", lambda: CHOSEN)  # the same rows of a heavy unit
    protect(con, TABLES[name])
    turn = list(TABLES).index(name)
    as_they_are = answers(con, "a", turn)
    with monkeypatch.context() as patch:
        patch.setattr(reading, "heavy_units", lambda *_: nullcontext(None))
        assert (others := answers(con, "b", turn, 0)) and others.items() <= as_they_are.items()
    monkeypatch.setattr(Statement, "holds", property(lambda made: made.held is not None))
    monkeypatch.setattr(Statement, "after", property(lambda _: False))
    others = answers(con, "c", turn, 1)  # read again for each statement, joined before
    assert others and others.items() <= as_they_are.items()


def test_the_rows_of_a_heavy_unit_are_bounded(con: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the comparison above would find: rows that are read as they are although one unit is heavy."""
    monkeypatch.setattr(discrete, "add_noise", lambda counts, *_: counts.copy())
    protect(con, TABLES["a heavy unit in the middle"])
    assert con.execute("FROM dp_query('SELECT count(*) FROM t', epsilon := 1)").fetchall() == [(61,)]
    monkeypatch.setattr(reading, "heavy_units", lambda *_: nullcontext(NOBODY))
    assert con.execute("FROM dp_query('SELECT count(*) FROM t', epsilon := 1, release := 'all')").fetchall() == [(98,)]


@pytest.mark.parametrize(
    ("source", "asked"),
    [
        ("SELECT g, x FROM t", True),
        ("SELECT g, x FROM t WHERE x > 0", True),
        ("SELECT g, sum(x) AS x FROM t GROUP BY u, g", False),  # rows of a unit together: in two readings ties may fall otherwise
        ("SELECT g, row_number() OVER (PARTITION BY u ORDER BY x) AS x FROM t", False),
        ("SELECT t.g, x FROM t JOIN p ON p.g = t.g", False),  # numbered rows, of which each is counted once
    ],
)
def test_it_is_asked_of_plain_rows_alone(
    con: duckdb.DuckDBPyConnection, source: str, asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    protect(con, TABLES["all within"])
    con.execute("CREATE TABLE p AS SELECT unnest(['a', 'b', 'c']) AS g; CREATE UNIQUE INDEX pg ON p(g)")
    seen = []
    plain = rows.above_bounds

    def noted(*given: object) -> tuple[str, str] | None:
        seen.append(plain(*given))
        return seen[-1]

    monkeypatch.setattr(rows, "above_bounds", noted)
    con.execute(f"FROM dp_query($$SELECT g, count(*) FROM ({source}) GROUP BY g$$, epsilon := 1)").fetchall()
    assert {text is not None for text in seen} == {asked}


def test_of_a_file_it_is_not_asked(con: duckdb.DuckDBPyConnection, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file may be another one at the second reading."""
    path = tmp_path / "t.parquet"
    con.execute(f"COPY (SELECT range AS u, 'a' AS g FROM range(20)) TO '{path}'")
    con.execute(f"CALL dp_protect('{path}', epsilon := 10, delta := 1e-6, privacy_unit := 'u', max_contributions := 3)")
    monkeypatch.setattr(rows, "guarded", lambda cursor, text: pytest.fail("asked") if "duckdb_databases" in text else cursor.execute(text))
    con.execute(f"FROM dp_query($$SELECT count(*) FROM '{path}'$$, epsilon := 1)").fetchall()
