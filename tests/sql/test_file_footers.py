"""What the footer of a Parquet file says of some rows decides over no others: least and largest values, filters of hashes."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

import dpsql
from dpsql.errors import UnsupportedQuery
from dpsql.protected.source import resolve
from dpsql.session.instance import instance_with, open_context
from dpsql.session.versions import first_number

pytestmark = pytest.mark.older_duckdb
SPIKE = {
    "nan": ("'nan'::DOUBLE", "x > 5"),  # writers leave NaN out of the largest value
    "minus zero": ("-0.0::DOUBLE", "x = 0"),  # and in filters of hashes DuckDB 1 looks zero up under another hash
    "one of": ("-0.0::DOUBLE", "x IN (0, 7)"),
}
arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
OTHERS = ("1.0", "6.0", "0.0", "2.0")


@pytest.mark.parametrize("spike", SPIKE)
def test_one_row_makes_a_difference_of_one(spike: str, tmp_path: Path) -> None:
    value, condition = SPIKE[spike]
    found = []
    with duckdb.connect() as con:
        dpsql.load(con)
        for other in ("", *OTHERS):
            file = tmp_path / f"{other or 'none'}.parquet"
            first = f"SELECT {other}::DOUBLE AS x, 1 AS k UNION ALL " if other else ""
            rows = con.execute(f"{first}SELECT {value} AS x, 1 AS k FROM range(50)").fetchnumpy()
            parquet.write_table(arrow.table({name: list(column) for name, column in rows.items()}), file)  # DuckDB notes NaN
            con.execute(f"CALL dp_protect('{file}', epsilon := 1, delta := 1e-9)")
            text = f"SELECT x, k FROM '{file}' WHERE {condition}"
            with open_context(instance_with(con), "memory", "main") as context:
                if first_number() == 1:
                    with pytest.raises(UnsupportedQuery, match="minus zero"):
                        resolve(context, text)
                    text = f"SELECT k FROM '{file}'"
                source = resolve(context, text).source
                found += context.cursor.execute(f"SELECT count(*) FROM ({source.sql})").fetchall()[0]
    assert max(abs(count - found[0]) for count in found) <= 1
