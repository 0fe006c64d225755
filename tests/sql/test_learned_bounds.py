"""bounds := 'auto' of dp_query: what is learned, kept, reused and told; nothing fails by what is in the rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest
from made_once import in_memory
from pairwise import tried

import dpsql

pytestmark = pytest.mark.any_duckdb


def made(rows: str, unit: bool = True) -> duckdb.DuckDBPyConnection:
    """Return a database with a protected table ``t`` of the columns u, x (BIGINT), y (DOUBLE), d (DATE), p (DECIMAL)."""
    con = in_memory(protected, rows, unit)
    dpsql.load(con, progress=False)
    return con


def protected(con: duckdb.DuckDBPyConnection, rows: str, unit: bool) -> None:
    con.execute("CREATE TABLE t (u INTEGER, x BIGINT, y DOUBLE, d DATE, p DECIMAL(12, 2), g INTEGER)")
    con.execute(f"INSERT INTO t {rows}")
    dpsql.load(con, progress=False)
    said = "privacy_unit := 'u', max_contributions := 2" if unit else "neighbors := 'add_remove'"
    con.execute(f"CALL dp_protect('t', epsilon := 1000, delta := 1e-9, {said})")


ROWS = "SELECT i // 2, 100 + i % 50, exp((i % 97) / 10.0), DATE '2015-01-01' + (i % 900)::INTEGER, (i % 1000) / 10.0, i % 3 FROM range(20000) r(i)"


@pytest.fixture(scope="module")
def table() -> duckdb.DuckDBPyConnection:
    return made(ROWS)


def charged(con: duckdb.DuckDBPyConnection) -> int:
    return len(con.execute("SELECT * FROM dp_ledger() WHERE action = 'charge'").fetchall())


def test_aggregates_are_near_the_truth(table: duckdb.DuckDBPyConnection) -> None:
    """Noise is 1e-3 of each at this epsilon, bounds are within a factor of two: 20 % off has probability below 1e-9."""
    sql = "SELECT {}(x), {}(y), {}(p) FROM {}"
    for function in ("sum", "avg", "stddev_pop"):
        wanted = table.execute(sql.format(function, function, function, "t")).fetchone()
        asked = sql.format(function, function, function, "t")
        found = table.execute(f"FROM dp_query('{asked}', epsilon := 40, bounds := 'auto')").fetchone()
        assert wanted is not None and found is not None
        assert [float(v) for v in found] == pytest.approx([float(v) for v in wanted], rel=0.2), function
    found = table.execute("FROM dp_query('SELECT median(x), min(d), max(d), median(y) FROM t', epsilon := 40, bounds := 'auto')").fetchone()
    assert found is not None
    assert 118 <= float(found[0]) <= 131 and str(found[1]) < "2015-02-15" and str(found[2]) > "2017-05-01"
    assert 90 <= found[3] <= 170


def test_without_bounds_the_ways_are_named(table: duckdb.DuckDBPyConnection) -> None:
    before = charged(table)
    with pytest.raises(duckdb.Error, match=r"dp_declare.*bounds := \{'p / 3': \[lower, upper\]\}.*bounds := 'auto'"):
        table.execute("FROM dp_query('SELECT sum(p / 3) FROM t', epsilon := 1)")
    assert charged(table) == before


@pytest.mark.parametrize(
    ("bounds", "match"),
    [("'automatic'", "'auto' or a struct"), ("{'z': 'auto'}", "bounds are learned of what is aggregated"), ("{'*': [0, 1]}", "can be 'auto' only"),
     ("{'y': 'Auto'}", "or 'auto'"), ("{'sum(': 'auto'}", "not one expression")],
)
def test_what_is_meant_has_to_be_said(table: duckdb.DuckDBPyConnection, bounds: str, match: str) -> None:
    before = charged(table)
    with pytest.raises(duckdb.Error, match=match):
        table.execute(f"FROM dp_query('SELECT sum(y) FROM t', epsilon := 1, bounds := {bounds})")
    assert charged(table) == before


@pytest.mark.parametrize("share", ["0", "1", "'a'", "true", "-0.5"])
def test_shares_are_checked(table: duckdb.DuckDBPyConnection, share: str) -> None:
    with pytest.raises(duckdb.Error, match=r"bounds_share.*from 0\.01 to 0\.9"):
        table.execute(f"FROM dp_query('SELECT sum(y) FROM t', epsilon := 1, bounds := 'auto', options := {{'bounds_share': {share}}})")


def test_named_ones_are_learned_others_are_as_given() -> None:
    con = made(ROWS)
    con.execute("FROM dp_query('SELECT sum(y), sum(x), sum(p * 2) FROM t', epsilon := 20, bounds := {'y': 'auto', 'x': [0, 200], 'p*2': 'AUTO'}, release := 'q')"
                .replace("AUTO", "auto"))
    said = [text for about, text in con.execute("FROM dp_explain('q')").fetchall() if about == "bounds"]
    assert any(text.startswith("x: values below 0 count as 0, values above 200") for text in said)
    assert [text.split(":")[0] for text in said if "learned" in text] == ["p * 2", "y"] or [
        text.split(":")[0] for text in said if "learned" in text
    ] == ["y", "p * 2"]
    assert all("rows beyond the bounds" in text for text in said if "learned" in text)


ODD = {
    "empty": "SELECT 1, 1, 1, '2020-01-01', 1, 1 WHERE false",
    "null": "SELECT i, NULL, NULL, NULL, NULL, NULL FROM range(500) r(i)",
    "infinite": "SELECT i, NULL, ['inf', '-inf', 'nan'][1 + i % 3]::DOUBLE, ['infinity', '-infinity'][1 + i % 2]::DATE, 0, i FROM range(500) r(i)",
    "large": "SELECT i, 9223372036854775807 - i, 1.7e308, '9999-12-31', 9999999999.99, 2147483647 FROM range(500) r(i)",
    "small": "SELECT i, -9223372036854775807 + i, -1.7e308, '0001-01-01', -9999999999.99, -2147483648 FROM range(500) r(i)",
    "tiny": "SELECT i, 0, 5e-324, '1970-01-01', 0.01, 0 FROM range(500) r(i)",
    "two values": "SELECT i, i % 2, 0, '1969-12-31', 0, 0 FROM range(500) r(i)",
}
ITEMS = [
    "sum(x), sum(y), sum(p)", "avg(x), avg(y), var_samp(p)", "corr(x, y)", "median(x), max(y), min(d), median(p)", "sum(x) FILTER (WHERE g > 0), avg(y)",
]


@pytest.mark.parametrize("rows", ODD)
def test_nothing_in_the_rows_makes_it_fail(rows: str) -> None:
    con = made(ODD[rows])
    asked = [f"'SELECT {items} FROM t{by}', epsilon := 1, bounds := 'auto', mechanism := '{mechanism}'"
             for name, items, by, mechanism in tried(list(ODD), ITEMS, ["", " GROUP BY g"], ["gaussian", "laplace"]) if name == rows]
    assert len(asked) >= len(ITEMS)
    for given in asked:
        con.execute(f"FROM dp_query({given})").fetchall()
    assert con.execute("FROM dp_releases() WHERE status = 'failed'").fetchall() == []


def test_no_unit_and_zero_bounds() -> None:
    con = made(ROWS, unit=False)
    found = con.execute("FROM dp_query('SELECT sum(x) FROM t', epsilon := 20, bounds := 'auto')").fetchone()
    assert found is not None and float(found[0]) == pytest.approx(20000 * 124.5, rel=0.05)


def test_bounds_are_kept_and_reused() -> None:
    con = made(ROWS)
    asked = "FROM dp_query('SELECT sum(y) FROM t', epsilon := 10, bounds := 'auto')"
    first = con.execute(asked).fetchall()
    assert con.execute(asked).fetchall() == first and charged(con) == 1
    assert con.execute(asked.replace("epsilon := 10, ", "")).fetchall() == first and charged(con) == 1
    assert con.execute(asked.replace(")", ", options := {'bounds_share': 0.5})", 2).replace("sum(y, options := {'bounds_share': 0.5})", "sum(y)")).fetchall() == first
    other = "FROM dp_query('SELECT avg(y) FROM t', epsilon := 10, bounds := 'auto'{})"
    notes = con.execute("SELECT notes FROM dp_plan('SELECT avg(y) FROM t', epsilon := 10, options := {'bounds': 'auto'})").fetchone()
    assert notes is not None and not any("histogram of magnitudes" in note for note in notes[0]), "they are there already"
    second = con.execute(other.format(", release := 'avg'")).fetchall()
    assert charged(con) == 2
    said = " ".join(text for _, text in con.execute("FROM dp_explain('avg')").fetchall())
    assert "y: the bounds were learned by an earlier release" in said and "noisy histogram" not in said
    assert con.execute(other.format(", release := 'avg'")).fetchall() == second and charged(con) == 2
    con.execute("FROM dp_query('SELECT avg(y) FROM t WHERE x > 100', epsilon := 10, bounds := 'auto', release := 'where')")
    said = " ".join(text for _, text in con.execute("FROM dp_explain('where')").fetchall())
    assert "noisy histogram" in said, "other rows have other bounds"


def test_the_share_is_what_is_paid() -> None:
    con = made(ROWS)

    def scale(options: str) -> float:
        row = con.execute(f"SELECT noise_scale FROM dp_plan('SELECT sum(y) FROM t', epsilon := 1, options := {options})").fetchone()
        assert row is not None
        return float(row[0])

    known = scale("{'bounds': {'y': [0, 20000]}}")
    assert scale("{'bounds': 'auto'}") == pytest.approx(known / 0.85**0.5, rel=1e-3)
    assert scale("{'bounds': 'auto', 'bounds_share': 0.5}") == pytest.approx(known / 0.5**0.5, rel=1e-3)
    row = con.execute("SELECT notes FROM dp_plan('SELECT sum(y) FROM t', epsilon := 1, options := {'bounds': 'auto'})").fetchone()
    assert row is not None and any("histogram of magnitudes" in note for note in row[0])
    assert charged(con) == 0


def test_a_declared_column_can_have_tighter_ones() -> None:
    con = made(ROWS)
    con.execute("CALL dp_declare('t', 'x', lower := 0, upper := 1000000)")
    con.execute("FROM dp_query('SELECT sum(x) FROM t', epsilon := 20, bounds := {'x': 'auto'}, release := 'q')")
    con.execute("FROM dp_query('SELECT sum(x), count(*) FROM t', epsilon := 20, bounds := 'auto', release := 'again')")
    con.execute("CALL dp_declare('t', 'x', lower := 0, upper := 250)")
    con.execute("FROM dp_query('SELECT sum(x), count(*), avg(y) FROM t', epsilon := 20, bounds := 'auto', release := 'declared')")
    q, again, declared = (" ".join(text for _, text in con.execute(f"FROM dp_explain('{name}')").fetchall()) for name in ("q", "again", "declared"))
    assert "learned" in q and "1e+06" not in q
    assert "x: the bounds were learned by an earlier release" in again and "1e+06" not in again
    assert "values above 250 as 250" in declared and "x: the bounds were learned" not in declared


def test_edited_bounds_are_found(tmp_path: Path, charges: Callable[[], int], con: duckdb.DuckDBPyConnection) -> None:
    con.execute("FROM dp_query('SELECT sum(age * 2) FROM people', epsilon := 1, bounds := {'age * 2': 'auto'}, release := 'q')")
    assert charges() == 1
    file = tmp_path / "q.parquet"
    con.execute(f"CALL dp_export('q', '{file}')")
    row = con.execute(f"SELECT decode(value) FROM parquet_kv_metadata('{file}') WHERE decode(key) = 'dpsql'").fetchone()
    assert row is not None
    for change in ("sums", "counts", "beyond", "none"):
        manifest = json.loads(row[0])
        held = manifest["fine"]
        if change == "sums":
            held["bounds"][0][1] -= 1
        elif change == "counts":
            held["counts"][0][0] += 1
        elif change == "beyond":
            held["bounds"][0][1] = 1e30
        text = json.dumps(manifest).replace("'", "''")
        edited = tmp_path / f"{change}.parquet"
        con.execute(f"COPY (SELECT * FROM read_parquet('{file}') ORDER BY tbl, cell) TO '{edited}' (FORMAT parquet, KV_METADATA {{dpsql: '{text}'}})")
        if change == "none":
            read_back(con, edited)
            continue
        with pytest.raises(duckdb.Error, match="damaged or was edited"):
            read_back(con, edited)


def read_back(con: duckdb.DuckDBPyConnection, path: Path) -> None:
    from dpsql.release.store import read

    try:
        read(con.cursor(), path).statistics(con.cursor())
    except dpsql.errors.DpsqlError as error:
        raise duckdb.Error(str(error)) from error
