"""Values that have several bits (NaN, zero) are one value: a unit is one unit however it is written, columns and what is computed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import numpy as np
import pytest
import sail

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
