"""Values that have several bits (NaN, zero) are one value: a unit is one unit however it is written, columns and what is computed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import numpy as np
import pytest
import sail

import dpsql

pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
pytestmark = pytest.mark.any_duckdb
UNITS = 40
NAN = {"DOUBLE": (np.uint64, np.float64, 0x7FF8 << 48, 0xFFF8 << 48, 1 << 63), "FLOAT": (np.uint32, np.float32, 0x7FC << 20, 0xFFC << 20, 1 << 31)}


def written(folder: Path, sql_type: str) -> None:
    """Write 40 units of one row; a unit NaN of 300 rows, no two of them with the same bits; a unit zero of two rows, with both its bits."""
    bits, number, quiet, signed, minus = NAN[sql_type]
    odd = [quiet + i for i in range(150)] + [signed + i for i in range(150)] + [0, minus]
    units = np.concatenate([np.arange(1, UNITS + 1).astype(number), np.asarray(odd, dtype=bits).view(number)])
    infinite = np.full(len(units), np.inf)
    pq.write_table(pa.table({"u": units, "inf": infinite, "k": np.arange(len(units)) % 3}), folder / "p.parquet")


@pytest.fixture(scope="module", params=NAN)
def con(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    folder = tmp_path_factory.mktemp("lake")
    written(folder, request.param)
    made = sail.remote(Path(":memory:one_value"), "people", folder, privacy_unit="u", max_contributions=1)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("select", "truth"),
    [
        ("count(*)", UNITS + 2),
        ("count(DISTINCT u)", UNITS + 2),
        ("count(*) FILTER (WHERE isnan(u))", 1),
        ("count(*) FILTER (WHERE u > 1e30)", 1),  # NaN is the greatest number, also one with a sign
        ("count(*) FILTER (WHERE u < 0)", 0),
        ("count(*) FILTER (WHERE u = 0)", 1),
        ("count(*) FILTER (WHERE isnan(inf - inf))", UNITS + 2),
        ("count(*) FILTER (WHERE inf - inf > 1)", UNITS + 2),
        ("count(*) FILTER (WHERE -(inf - inf) = 'nan'::DOUBLE)", UNITS + 2),
    ],
)
def test_a_unit_counts_once(select: str, truth: int, con: duckdb.DuckDBPyConnection) -> None:
    [[value]] = con.execute(f"FROM dp_query($$SELECT {select} AS n FROM people$$, epsilon := 20)").fetchall()
    assert abs(value - truth) <= 8  # the noise's deviation is .1 to .3


@pytest.mark.parametrize("expression", ["u", "inf - inf", "0 * -u", "-(u - u)", "round(-u / 1000)"])
def test_what_is_computed_has_one_text_a_value(expression: str, con: duckdb.DuckDBPyConnection) -> None:
    """Rows in the cells of a number's bins are those of the value, whatever bits it was computed with."""
    call = f"FROM dp_query($$SELECT count(DISTINCT {expression}) AS n FROM people WHERE isnan({expression}) OR {expression} = 0$$, epsilon := 20)"
    [[value]] = con.execute(call).fetchall()
    assert value <= 2 + 8


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Unsigned numbers up to the greatest, names that are there twice or are none, and more digits than DuckDB has."""
    folder = tmp_path_factory.mktemp("odd")
    most = {f"u{bits}": pa.array([0, 1, 2 ** (bits - 1), 2**bits - 1], getattr(pa, f"uint{bits}")()) for bits in (8, 16, 32, 64)}
    wide = pa.array([1, 2, 3, 4], pa.decimal256(60, 2))
    pq.write_table(pa.table([*most.values(), wide, most["u8"], most["u8"]], [*most, "wide", "a", "A"]), folder / "p.parquet")
    return folder


@sail.of_sail
def test_unsigned_numbers_have_a_type_that_holds_them(odd: Path) -> None:
    with sail.remote(Path(":memory:unsigned"), "people", odd) as con:
        told = dict(con.execute("SELECT column_name, column_type FROM (DESCRIBE people)").fetchall())
        assert told == {"u8": "SMALLINT", "u16": "INTEGER", "u32": "BIGINT", "u64": "DECIMAL(20,0)", "a": "SMALLINT"}
        for name, bits in (("u8", 8), ("u16", 16), ("u32", 32), ("u64", 64)):
            [[value]] = con.execute(f"FROM dp_query('SELECT count(*) AS n FROM people WHERE {name} >= {2 ** (bits - 1)}', epsilon := 20)").fetchall()
            assert abs(value - 2) <= 8


@sail.of_sail
def test_what_is_left_out_is_said(odd: Path) -> None:
    with duckdb.connect() as con:
        dpsql.load(con)
        listed = dpsql.remote(con, "people", engine="spark", url=sail.url(), relation=f"parquet:{odd}").fetchall()
    said = {name: status for name, _, _, status in listed}
    assert said["wide"] == "left out: no type of DuckDB that dpsql counts" and said["A"] == "left out: a name that is there twice"


@sail.of_sail
def test_a_type_that_spark_has_no_name_for(tmp_path: Path) -> None:
    pq.write_table(pa.table({"at": pa.array([1], pa.timestamp("ns"))}), tmp_path / "p.parquet")
    with duckdb.connect() as con:
        dpsql.load(con)
        with pytest.raises(dpsql.DpsqlError, match="no name for the type of one of its columns"):
            dpsql.remote(con, "people", engine="spark", url=sail.url(), relation=f"parquet:{tmp_path}")
        with pytest.raises(dpsql.DpsqlError, match="is the folder there"):
            dpsql.remote(con, "people", engine="spark", url=sail.url(), relation=f"parquet:{tmp_path / 'nothing'}")


@sail.of_sail
def test_rows_under_the_name_are_not_passed_over_in_silence(odd: Path) -> None:
    with sail.remote(Path(":memory:rows"), "people", odd) as con:
        con.execute("INSERT INTO people (u8) VALUES (1)")
        with pytest.raises(duckdb.Error, match="has rows here"):
            con.execute("FROM dp_query('SELECT count(*) AS n FROM people', epsilon := 1)")
        assert con.execute("SELECT count(*) FROM dp_ledger() WHERE action = 'charge'").fetchone() == (0,)
