"""EXISTS with one inequality, answered by least and greatest values: the rows that the text means, of any type, with NULLs."""

from __future__ import annotations

import itertools
import random

import duckdb
import pytest

from dpsql.source import limits
from dpsql.source.analysis import analyse
from dpsql.source.model import Source

pytestmark = [pytest.mark.any_duckdb, pytest.mark.usefixtures("functions_as_shipped")]
VALUES = {
    "INTEGER": ("-2147483648", "-1", "0", "7", "2147483647"), "DECIMAL(38, 2)": ("-1.25", "0", "0.01", "999999999999999999999999999999999999.99"),
    "DATE": ("-infinity", "1999-12-31", "2000-01-01", "infinity"), "BOOLEAN": ("false", "true"), "UUID": ("0" * 32, "f" * 32, "7" * 32),
    "TIMESTAMP": ("-infinity", "2000-01-01", "2000-01-01 00:00:00.000001", "infinity"), "VARCHAR": ("", "a", "A", "ä", "b" * 200),
    "DOUBLE": ("nan", "-inf", "inf", "0.0", "1e308"), "BLOB": ("", "a", "A"),
}
BY_EXTREMES = {"INTEGER", "DECIMAL(38, 2)", "DATE", "BOOLEAN", "UUID", "TIMESTAMP"}
COMPARISONS = ("<>", "<", "<=", ">", ">=")


def filled(kind: str) -> duckdb.DuckDBPyConnection:
    rng, con = random.Random(kind), duckdb.connect()
    con.execute(f"CREATE TABLE t (u INTEGER NOT NULL, k INTEGER, x {kind}, y {kind})")
    values = [*VALUES[kind], None]
    rows = [(rng.randrange(9), rng.choice([0, 1, None]), rng.choice(values), rng.choice(values)) for _ in range(90)]
    con.executemany(f"INSERT INTO t VALUES (?, ?, ?::{kind}, ?::{kind})", rows)
    return con


def made(con: duckdb.DuckDBPyConnection, text: str) -> Source:
    return analyse(
        con.cursor(), text, database="memory", schema="main", local=True, protected=lambda t: True, unit_column=lambda t: "u"
    )


@pytest.mark.parametrize("kind", VALUES)
def test_the_rows_are_those_of_the_text(kind: str) -> None:
    con = filled(kind)
    for negated, comparison, turned, same in itertools.product(("", "NOT "), COMPARISONS, (False, True), ("", " AND o.k = t.k", " AND t.k + 1 = o.k")):
        compared = f"t.y {comparison} o.x" if turned else f"o.x {comparison} t.y"
        text = f"SELECT u, k, y FROM t WHERE {negated}EXISTS (SELECT 1 FROM t AS o WHERE o.u = t.u{same} AND {compared})"
        source = made(con, text)
        assert (source.limited is None) == (kind in BY_EXTREMES), text
        listed = sorted(con.execute(f"SELECT u, k, y::VARCHAR FROM ({source.sql})").fetchall(), key=repr)
        assert listed == sorted(con.execute(f"SELECT u, k, y::VARCHAR FROM ({text})").fetchall(), key=repr), text


@pytest.mark.parametrize(
    "condition",
    [
        "o.x <> t.y AND o.k > t.k",  # two inequalities
        "o.x + 1 <> t.y",  # of no column
        "o.x <> o.y OR t.y = 1",
        "o.x IS DISTINCT FROM t.y",
        "o.x <> CAST(t.y AS BIGINT)",  # another type
        "o.k = t.k + o.x AND o.x <> t.y",
    ],
)
def test_what_is_connected_otherwise_is_limited(condition: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOST_ROWS", 1000)
    con = filled("INTEGER")
    text = f"SELECT u, k, y FROM t WHERE EXISTS (SELECT 1 FROM t AS o WHERE o.u = t.u AND ({condition}))"
    source = made(con, text)
    assert source.limited == 1000
    found = con.execute(f"SELECT u, k, y FROM ({source.sql})").fetchall()
    con.execute("SET disabled_optimizers = 'filter_pushdown'")  # with which DuckDB 1 leaves rows of such an EXISTS out
    assert sorted(found, key=repr) == sorted(con.execute(text.replace("o.x + 1", "o.x::HUGEINT + 1").replace("t.k + o.x", "t.k::HUGEINT + o.x")).fetchall(), key=repr)


def test_several_of_them_and_rows_that_are_chosen() -> None:
    con = filled("INTEGER")
    text = (
        "SELECT u, y FROM t WHERE EXISTS (SELECT 1 FROM t AS o WHERE o.u = t.u AND o.x > t.y AND o.k = 1) "
        "AND NOT EXISTS (SELECT 1 FROM t AS o WHERE t.u = o.u AND o.k = t.k AND o.y < t.x) AND k = 0"
    )
    source = made(con, text)
    assert source.limited is None
    found = con.execute(f"SELECT u, y FROM ({source.sql})").fetchall()
    assert found and sorted(found, key=repr) == sorted(con.execute(text).fetchall(), key=repr)
