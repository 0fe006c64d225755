"""No outcome of a call tells one person's value: sources that failed for some rows and not for others, asked in two worlds.

In one world bob is sick, in the other he is not. Whether a call answers, is refused or fails, with which words, what it charges and
whether its name can be used again: all of that must be the same in both. (What it answers has noise.)
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from pairwise import in_turn

import dpsql

SICK = "name = 'bob' AND sick"
LONG = "a" * 1000
ORACLES = {
    "format": f"strftime(CASE WHEN {SICK} THEN TIMESTAMPTZ '2020-01-01' END, '%Q') = 'x'",
    "format of a cast": f"strftime(CASE WHEN {SICK} THEN CAST('2020-01-01 00:00:00+00' AS TIMESTAMPTZ) END, '%Q') = 'x'",
    "format of a date": f"strftime(CASE WHEN {SICK} THEN d END, '%') = 'x'",
    "format to read": f"strptime(CASE WHEN {SICK} THEN 'x' END, '%Q') IS NULL",
    "json with text": f"j = CASE WHEN {SICK} THEN '{{' ELSE '1' END",
    "json of a public table": f"zips.info = CASE WHEN {SICK} THEN '{{' ELSE '1' END",
    "lists of two types": f"CASE WHEN {SICK} THEN l END = dl",
    "lists of two types in a function": f"list_contains(CASE WHEN {SICK} THEN lv END, 1)",
    "structs of two types": f"CASE WHEN {SICK} THEN st END = sd",
    "pattern": f"regexp_extract(CASE WHEN {SICK} THEN sex END, '(') = 'x'",
    "pattern behind a zone map": f"salary >= CASE WHEN {SICK} THEN 0 ELSE 999999 END AND regexp_extract(sex, '(') = 'x'",
    "pattern of a replacement": f"regexp_replace(CASE WHEN {SICK} THEN sex END, '[', 'x') = 'x'",
    "options of a pattern": f"regexp_matches(CASE WHEN {SICK} THEN sex END, 'a', 'zz')",
    "length of a text": f"length(concat({', '.join(['x'] * 60)})) >= 0",
    "growth": f"length(replace(replace(CASE WHEN {SICK} THEN 'aaaaaaaaaa' ELSE '' END, 'a', '{LONG}'), 'a', '{LONG}')) >= 0",
    "bytes of a letter": f"upper(regexp_replace(CASE WHEN {SICK} THEN 'né' ELSE 'na' END, '^n\\C', '')) <> 'Q'",
    "bytes of a letter, taken out": f"reverse(regexp_extract(CASE WHEN {SICK} THEN 'né' ELSE 'na' END, '^n\\C')) <> 'Q'",
    "power": f"pow(CASE WHEN {SICK} THEN 0 ELSE 1 END, -1) > 0",
    "overflow": f"salary * CASE WHEN {SICK} THEN 2147483647 ELSE 1 END > 0",
    "decimals": f"d18 * CASE WHEN {SICK} THEN 99 ELSE 0 END > 0",
    "cast": f"CAST(CASE WHEN {SICK} THEN 'x' ELSE '1' END AS INTEGER) = 1",
    "try": f"TRY(CAST(CASE WHEN {SICK} THEN 'x' ELSE '1' END AS INTEGER) + 1) = 1 AND TRY(CAST(CASE WHEN {SICK} THEN 'x' ELSE '1' END AS INTEGER) + 2) = 1",
    "far date": f"date_part('year', CASE WHEN {SICK} THEN DATE '5881580-07-10' END + INTERVAL 9999 YEAR) > 0",
    "negative root": f"sqrt(CASE WHEN {SICK} THEN -1 ELSE 1 END) > 0",
    "error()": f"CASE WHEN {SICK} THEN error('x') ELSE true END",
    "bits": f"bt = CASE WHEN {SICK} THEN '2' ELSE '1' END",
    "map": f"m[CASE WHEN {SICK} THEN 'a' END] = 1",
    "a column of its own kind": f"struct_extract(st, CASE WHEN {SICK} THEN 'zz' ELSE 'a' END) = 1",
}
FROM = {
    "json of a public table": "people JOIN zips ON people.zip = zips.zip",
    "length of a text": f"(SELECT *, replace(CASE WHEN {SICK} THEN 'aaaaaaaaaa' ELSE '' END, 'a', '{LONG}') AS x FROM people)",
}


SETTINGS = ("ieee_floating_point_ops = false", "integer_division = true", "old_implicit_casting = true", "TimeZone = 'Asia/Tokyo'")
MOVED = ("power", "overflow", "cast", "format", "json with text", "far date")
"""What a setting could change."""


def world(sick: bool, setting: str = "") -> duckdb.DuckDBPyConnection:
    con = duckdb.connect(":memory:")
    dpsql.load(con, progress=False)
    con.execute(
        "CREATE TABLE people AS SELECT 'n' || i AS name, 'm' AS sex, i AS salary, false AS sick, DATE '2020-01-01' AS d, '{}'::JSON AS j, "
        "[1] AS l, ['1'] AS lv, [DATE '2020-01-01'] AS dl, {'a': 1} AS st, {'a': DATE '2020-01-01'} AS sd, 999999999999999999::DECIMAL(18, 0) AS d18, "
        "'1'::BIT AS bt, MAP {'a': 1} AS m, 1 AS zip FROM range(500) AS r(i)"
    )
    con.execute(f"INSERT INTO people SELECT * REPLACE ('bob' AS name, {sick} AS sick) FROM people LIMIT 1")
    con.execute("CREATE TABLE zips(zip INTEGER PRIMARY KEY, info JSON); INSERT INTO zips VALUES (1, '{}')")
    con.execute("CALL dp_protect('people', epsilon := 5, delta := 1e-9)")
    con.execute("CALL dp_declare('people', 'sex', categories := ['m', 'f'], nullable := false)")
    if setting:
        con.execute(setting)
    return con


def outcome(con: duckdb.DuckDBPyConnection, source: str) -> tuple[object, ...]:
    """What an analyst sees of two calls of one name, apart from noise."""
    seen: list[object] = []
    for _ in range(2):
        try:
            rows = con.execute("FROM dp_marginals(?, columns := ['sex'], epsilon := 0.01)", [source]).fetchall()
            seen.append(len(rows))
        except duckdb.Error as error:
            seen.append(str(error))
    seen.append(con.execute("SELECT epsilon_spent, epsilon_left FROM dp_budget()").fetchall())
    seen.append([action for (action,) in con.execute("SELECT action FROM dp_ledger() ORDER BY entry ASC").fetchall()])
    return tuple(seen)


@pytest.fixture(scope="module")
def worlds() -> Iterator[dict[str, list[duckdb.DuckDBPyConnection]]]:
    """Both worlds under each setting; every source is asked of the same two, which have the same books as long as no test fails."""
    made: dict[str, list[duckdb.DuckDBPyConnection]] = {}
    yield made
    for pair in made.values():
        for con in pair:
            con.close()


def outcomes(worlds: dict[str, list[duckdb.DuckDBPyConnection]], source: str, setting: str = "") -> list[tuple[object, ...]]:
    if setting not in worlds:
        worlds[setting] = [world(sick, setting) for sick in (False, True)]
    found = [outcome(con, source) for con in worlds[setting]]
    if found[0] != found[1] or "fail" in found[0][-1]:  # the next source gets worlds of its own
        del worlds[setting]
    return found


@pytest.mark.parametrize("name", ORACLES)
def test_both_worlds_look_the_same(name, worlds):
    source = f"SELECT sex FROM {FROM.get(name, 'people')} WHERE {ORACLES[name]}"
    found = outcomes(worlds, source)
    assert found[0] == found[1]
    assert "fail" not in found[0][-1]  # the third wall was not needed


@pytest.mark.parametrize(("name", "setting"), in_turn(MOVED, SETTINGS, 2))
def test_both_worlds_look_the_same_under_any_setting(name, setting, worlds):
    found = outcomes(worlds, f"SELECT sex FROM people WHERE {ORACLES[name]}", f"SET GLOBAL {setting}")
    assert found[0] == found[1]


def test_a_far_moment_in_a_file_tells_nothing(tmp_path):
    """Parquet's milliseconds are multiplied while they are read: such a column is no part of a source."""
    path = tmp_path / "people.parquet"
    found = []
    for far in (False, True):
        with duckdb.connect() as raw:
            raw.execute("CREATE TABLE x AS SELECT 'a' AS g, TIMESTAMP_MS '2020-01-01' AS t, 'n' || i AS name FROM range(100) AS r(i)")
            raw.execute("INSERT INTO x VALUES ('a', TIMESTAMP_MS '2200-01-01', 'bob')")
            raw.execute(f"COPY x TO '{path}' (FORMAT parquet, COMPRESSION uncompressed)")
        if far:
            data = path.read_bytes()
            old = struct.pack("<q", 7258118400000)
            assert old in data
            path.write_bytes(data.replace(old, struct.pack("<q", 9223372036854775000)))
        found.append(_file_outcomes(path))
    assert found[0] == found[1]
    assert found[0][0] == 3 and "TIMESTAMP_MILLIS" in str(found[0][1])


def _file_outcomes(path: Path) -> list[object]:
    con = duckdb.connect()
    dpsql.load(con, progress=False)
    con.execute("CALL dp_protect(?, epsilon := 5, delta := 1e-9)", [str(path)])
    con.execute("CALL dp_declare(?, 'g', categories := ['a', 'b'])", [str(path)])
    seen: list[object] = []
    for source in (str(path), f"SELECT g FROM '{path}' WHERE year(t) > 3000", f"SELECT g FROM '{path}' WHERE name = 'bob'"):
        try:
            seen.append(len(con.execute("FROM dp_marginals(?, columns := ['g'], epsilon := 0.1)", [source]).fetchall()))
        except duckdb.Error as error:
            seen.append(str(error))
    con.close()
    return seen
