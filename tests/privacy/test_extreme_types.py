"""Every type, full of extreme values, through a dozen statements on neighbouring tables: nothing fails, and no counter moves further than claimed.

An outsider tried this with 28 types; here are all that a table of DuckDB can have, among units that one collation holds for equal. The
tables are read as they are, with the same choice of rows, and the exact counters are compared: of a unit taken out, of the rows without
a unit taken out, and of one unit in the place of another.
"""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest
from kernel_expressions import TYPES, make_table
from prepared import beside
from query_readings import Readings, ask, excess, excess_before, excess_picks, replayed

import dpsql
from dpsql.answers import rehearsing
from dpsql.estimates.measures import Measure
from dpsql.measure.statement import Statement
from dpsql.noise import discrete
from dpsql.source.catalog import Catalog

pytestmark = pytest.mark.any_duckdb

UNITS = "['a', 'b', 'B', NULL, 'ü', 'U', 'Ü']"
WITHOUT = {"a": "encode(who) = 'A'::BLOB", "nobody": "who IS NULL"}
MOST = 4
LISTED = ("js", "li", "lv", "ld", "st", "tmz", "iv", "bt", "mp", "un", "ar")
"""Columns whose values are never compared: equal ones may have several forms."""
COMPARED = [short for short in TYPES.values() if short not in LISTED]
NUMBERS = ("i", "bi", "ui", "ub", "hi", "uh", "fl", "db", "d18", "d38", "d37", "ti", "d4", "d3838")
ORDERED = ("bo", "hi", "db", "d3838", "s", "tz", "bl")
RANGES = {x: (-9, 9) for x in NUMBERS if x not in ("ti", "d4", "d3838")} | {"ui": (0, 9), "ub": (0, 9), "uh": (0, 9)}
TIMES = {x: ("2020-01-01", "2020-12-31") for x in ("da", "ts", "tz", "tss", "tsm", "tsn")}


def each(form: str, columns: object = COMPARED) -> str:
    return ", ".join(form.format(x=x) for x in columns)  # type: ignore[attr-defined]


STATEMENTS = {
    "counted": f"SELECT count(*), {each('count({x})', (*LISTED, *COMPARED[::2]))} FROM q",
    "different values": f"SELECT count(DISTINCT who), {each('count(DISTINCT {x})', TYPES.values())} FROM q",
    "summed": f"SELECT {each('sum({x}), avg({x})', NUMBERS)} FROM q",
    "varying": f"SELECT {each('var_pop({x})', NUMBERS)}, corr(db, fl), covar_pop(hi, d38) FROM q",
    "ranked": f"SELECT {each('median({x})', ('hi', 'fl', 'd37', 'da', 'tsn'))} FROM q",
    "first and last": f"SELECT {each('min({x}), max({x})', ('db', 'uh', 'ts', 'tz'))} FROM q",
    "listed": "SELECT mode(word), histogram(word), mode(bo), bool_and(bo), bool_or(bo2), count_if(bo) FROM q",
    "filtered": f"SELECT count(*), {each('sum(n) FILTER (WHERE {x} IS DISTINCT FROM {x}2 OR {x} > {x}2)', COMPARED[::2])} FROM q",
    "in public groups": "SELECT word, count(*), count(DISTINCT who), sum(db) FROM q GROUP BY word",
    "in private groups": f"SELECT {each('{x}', ('hi', 'fl', 's', 'tz', 'uu'))}, count(*) FROM q GROUP BY GROUPING SETS ((hi), (fl), (s), (tz), (uu))",
    "by unit": f"SELECT count(*), {each('count(t_{x})', COMPARED[1::2])} FROM (SELECT who, {each('max({x}) AS t_{x}', COMPARED[1::2])} FROM q GROUP BY who)",
    "in order": f"SELECT {each('count({x})', ORDERED)} FROM (SELECT who, {each('lag({x}) OVER (PARTITION BY who ORDER BY n) AS {x}', ORDERED)} FROM q)",
    "put together": f"SELECT count(*), count(w) FROM (SELECT who, word AS w, {each('{x}', COMPARED[::3])} FROM q UNION SELECT who, s2 AS w, {each('{x}2', COMPARED[::3])} FROM q)",
    "joined": "SELECT word, count(*) FROM (SELECT who, word, db, n FROM q) AS s JOIN (SELECT who, max(db) AS top FROM q GROUP BY who) AS t ON s.who = t.who WHERE db = top OR n > 2 GROUP BY word",
}


@pytest.fixture(scope="module")
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    """The table in three schemas: whole, and without a unit. Rehearsals and the search for macros, which have tests of their own, are off."""
    with pytest.MonkeyPatch.context() as patch, duckdb.connect() as connection:
        patch.setattr(Catalog, "changed_function", lambda self, names: None)
        patch.setattr(Catalog, "check_functions", lambda self, **given: None)
        patch.setattr(rehearsing, "rehearse", lambda *given: None)
        patch.setattr(discrete, "add_noise", lambda counts, mechanism, scale: counts.copy())
        make_table(connection, rows=24)
        dpsql.load(connection, progress=False)
        for world in ("whole", *WITHOUT):
            connection.execute(f"CREATE SCHEMA {world}; USE {world}; CREATE TABLE q AS SELECT '' AS who, '' AS word, 0 AS n, * EXCLUDE (g) FROM main.p")
            connection.execute("ALTER TABLE q ALTER who TYPE VARCHAR COLLATE NOCASE; ALTER TABLE q ALTER word TYPE VARCHAR COLLATE NOCASE")
            connection.execute(f"UPDATE q SET who = CASE WHEN rowid % 4 = 0 THEN 'A' ELSE {UNITS}[1 + rowid % 7] END, "
                               "word = ['x', 'X', 'xx', NULL][1 + rowid // 2 % 4], n = rowid % 5")
            connection.execute(f"DELETE FROM q WHERE {WITHOUT.get(world, 'false')}")
            connection.execute(f"CALL dp_protect('q', epsilon := 1000, delta := 1e-3, privacy_unit := 'who', max_contributions := {MOST})")
            connection.execute("CALL dp_declare('q', 'word', categories := ['x', 'X', 'xx'])")
            connection.execute("CALL dp_declare('q', 'n', lower := 0, upper := 5)")
            for x, (low, high) in {**RANGES, **TIMES}.items():
                connection.execute(f"CALL dp_declare('q', '{x}', lower := {low!r}, upper := {high!r})")
        yield connection


def read(patch: pytest.MonkeyPatch, con: duckdb.DuckDBPyConnection, world: str, sql: str, earlier: Readings | None = None) -> Readings:
    con.execute(f"USE {world}")
    with replayed(patch, earlier=earlier) as seen:
        ask(con, sql, epsilon=15)
    return seen


def moved(whole: Readings, other: Readings, neighbors: str = "add_remove") -> float:
    """Return how far counters, histograms and ranks differ, where 1 is what is claimed."""
    assert [plan for plan, _ in whole.found] == [plan for plan, _ in other.found] and whole.found
    found = [max(pair) for (plan, a), (_, b) in zip(whole.found, other.found, strict=True) for pair in excess(plan, a, b, neighbors)]
    for (plan, first), (_, second) in zip(whole.before, other.before, strict=True):
        found += [one / (1 if neighbors == "add_remove" else 2) for one in excess_before(plan, first, second)]
    for (plan, _), one_ranks, other_ranks in zip(whole.before, whole.ranks, other.ranks, strict=True):
        found += excess_picks(plan, one_ranks, other_ranks, neighbors)
    return max(found)


@pytest.mark.parametrize("name", STATEMENTS)
def test_no_value_of_a_unit_moves_more_than_is_claimed(con: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    whole = read(monkeypatch, con, "whole", STATEMENTS[name])
    one, nobody = (read(monkeypatch, con, world, STATEMENTS[name], whole) for world in WITHOUT)
    assert 0 < moved(whole, one) <= 1
    assert (name == "joined") <= (moved(whole, nobody) == 0)  # nobody is joined with nobody
    assert moved(whole, nobody) <= 1 and moved(one, nobody, "replace_one") <= 1
    assert beside(con).execute("SELECT count(*) FROM dpsql.ledger WHERE action = 'fail'").fetchall() == [(0,)]


def test_units_and_categories_are_told_apart_byte_by_byte(con: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the one unit of too many rows nothing is left out: exact counts are those under no collation; rows without a unit are none."""
    con.execute("USE a")
    counted = "SELECT encode(word), count(*), count(DISTINCT encode(who)) FROM q WHERE word IS NOT NULL GROUP BY ALL ORDER BY ALL"
    wanted = con.execute(counted).fetchall()
    assert [word for word, *_ in wanted] == [b"X", b"x", b"xx"]
    found = ask(con, "SELECT word, count(*) AS n, count(DISTINCT who) AS u FROM q GROUP BY word", epsilon=15)
    assert sorted((str(word).encode(), n, u) for word, n, u in found if word is not None) == wanted
    with replayed(monkeypatch) as seen:  # before the threshold
        ask(con, "SELECT word, count(*) AS n FROM q GROUP BY word", "groups := 'private'")
    assert {*seen.last()[1].groups} == {("x",), ("X",), ("xx",), (None,)}


def test_rows_that_count_ten_times_are_noticed(con: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin: what moves more than is claimed is seen."""
    made = Statement._sums_of

    def tenfold(statement: Statement, place: int, measure: Measure) -> list[str]:
        return [f"10 * ({text})" for text in made(statement, place, measure)]

    monkeypatch.setattr(Statement, "_sums_of", tenfold)
    sql = "SELECT count(*), avg(db) FROM q WHERE n < 5"
    whole = read(monkeypatch, con, "whole", sql)
    assert moved(whole, read(monkeypatch, con, "a", sql, whole)) > 1
