"""Random expressions from the kernel's own tables: what the translator lets through gives the same value on both engines."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import duckdb
import pytest
from engine_values import both, show, values
from kernel_expressions import Generator

from dpsql.engines.spark.translate import translated
from dpsql.errors import ArgumentError, UnsupportedQuery
from dpsql.source.analysis import Source, analyse

pytestmark = [pytest.mark.any_duckdb]
TYPES = {
    "bo": "BOOLEAN", "ti": "TINYINT", "si": "SMALLINT", "i": "INTEGER", "bi": "BIGINT", "fl": "FLOAT", "db": "DOUBLE", "d4": "DECIMAL(4,1)", "d12": "DECIMAL(12,2)",
    "s": "VARCHAR", "da": "DATE", "ts": "TIMESTAMP",
}  # fmt: skip
ROWS, WANTED, TOGETHER = 60, 12, 4


def source_of(con: duckdb.DuckDBPyConnection, expressions: list[str]) -> Source:
    listed = ", ".join(f"{text} AS r{place}" for place, text in enumerate(expressions))
    return analyse(con.cursor(), f"SELECT n, {listed} FROM t", database="memory", schema="main", protected=lambda table: True)


def test_what_is_let_through_gives_the_same_value(spark: Any, tmp_path: Path) -> None:
    seed = 1
    con = duckdb.connect()
    rng = random.Random(seed)
    columns = {name + ending: kind for name, kind in TYPES.items() for ending in ("", "2")}
    known = {kind: [value for value in values(kind) if "0001-" not in value and "9999-" not in value] for kind in TYPES.values()}
    rows = [f"({n}, {', '.join(rng.choice(known[kind]) for kind in columns.values())})" for n in range(ROWS)]
    con.execute(f"CREATE TABLE t (n BIGINT, {', '.join(f'{name} {kind}' for name, kind in columns.items())})")
    con.execute(f"INSERT INTO t VALUES {', '.join(rows)}")
    relations = show(spark, con, tmp_path, "t")
    generator = Generator(columns, seed)
    found: list[str] = []
    while len(found) < WANTED:
        text = generator.expression(2)
        try:
            if len(translated(con, source_of(con, [text]).sql, relations).sql) < 3_000:
                found.append(text)
        except (UnsupportedQuery, ArgumentError, duckdb.Error):
            continue
    assert len(set(found)) > WANTED / 3
    for start in range(0, WANTED, TOGETHER):
        some = found[start : start + TOGETHER]
        mine, theirs = both(spark, con, source_of(con, some).sql, relations)
        ours = {row[0]: row for row in mine}
        wrong = [
            (text, one, other)
            for row in theirs
            for text, one, other in zip(some, ours[row[0]][1:], row[1:], strict=True)
            if not (one == other and type(one) is type(other))
        ]
        assert len(mine) == len(theirs) == ROWS
        assert not wrong, "\n".join(f"{text}: DuckDB {one!r}, Spark {other!r}" for text, one, other in wrong[:10])
