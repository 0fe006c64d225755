"""dp_evaluate(..., report := 'tuples') against a count in Python."""

from __future__ import annotations

import itertools
from collections import Counter

import duckdb
import numpy as np
import pytest

import dpsql

NAMES = ["a", "b", "c"]


@pytest.fixture
def con():
    connection = duckdb.connect()
    dpsql.load(connection)
    rng = np.random.default_rng(6)
    connection.execute("CREATE TABLE t (a VARCHAR, b VARCHAR, c INTEGER)")
    connection.execute("CREATE TABLE s (a VARCHAR, b VARCHAR, c INTEGER)")
    for table, n, blank in (("t", 400, 0.0), ("s", 430, 0.1)):
        a = np.where(rng.random(n) < 0.05, "rare" if table == "t" else "new", rng.choice(["x", "y"], n))
        b = rng.choice(["p", "q", None], n, p=[0.5, 0.45, 0.05])
        c = [None if rng.random() < blank else int(v) for v in rng.integers(0, 3, n) * (a == "x")]
        connection.executemany(f"INSERT INTO {table} VALUES (?, ?, ?)", list(zip(a.tolist(), b.tolist(), c, strict=True)))
    connection.execute("CALL dp_protect('t', epsilon := 1, delta := 1e-9)")
    connection.execute("CALL dp_declare('t', 'a', categories := ['x', 'y', 'rare', 'new'], nullable := false)")
    connection.execute("CALL dp_declare('t', 'b', categories := ['p', 'q'])")
    connection.execute("CALL dp_declare('t', 'c', categories := [0, 1, 2], nullable := false)")
    yield connection
    connection.close()


def tuples_of(con: duckdb.DuckDBPyConnection, table: str, k: int) -> Counter:
    found: Counter = Counter()
    for row in con.execute(f"SELECT a, b, c FROM {table}").fetchall():
        for columns in itertools.combinations(range(3), k):
            values = tuple(row[i] for i in columns)
            # NULL is a value of b, and an empty cell of c
            if not any(i == 2 and v is None for i, v in zip(columns, values, strict=True)):
                found[columns, values] += 1
    return found


def test_every_figure(con):
    got = con.execute("FROM dp_evaluate('t', 's', report := 'tuples')").fetchall()
    names = [d[0] for d in con.description]
    rows = {(r[0], r[1]): dict(zip(names, r, strict=True)) for r in got}
    assert len(rows) == len(got)
    seen = 0
    for k in (1, 2, 3):
        original, synthetic = tuples_of(con, "t", k), tuples_of(con, "s", k)
        edges, low, high = [("all", 0, 10**9)], 0, 10
        while low < max(original.values()):
            edges.append((f"({low}, {high}]", low, high))
            low, high = high, 2 * high
        for name, low, high in edges:
            inside = {t: n for t, n in original.items() if low < n <= high}
            if not inside:
                assert (k, name) not in rows
                continue
            seen += 1
            row = rows[k, name]
            n, m = np.asarray(list(inside.values()), float), np.asarray([synthetic[t] for t in inside], float)
            assert row["tuples"] == len(n)
            assert row["preservation"] == pytest.approx((m / n).mean())
            assert row["proportional_error"] == pytest.approx((np.abs(n - m) / n).mean())
            assert row["mean_absolute_error"] == pytest.approx(np.abs(n - m).mean())
            assert row["suppressed"] == pytest.approx((m == 0).mean())
            assert (row["private"], row["note"].startswith("not private")) == (False, True)
            if name != "all":
                assert row["fabricated"] is row["leaked"] is row["row_expansion"] is None
        row = rows[k, "all"]
        assert row["fabricated"] == pytest.approx(np.mean([t not in original for t in synthetic]))
        rare = [t for t, n in original.items() if n <= 10]
        assert row["leaked"] == (pytest.approx(np.mean([t in synthetic for t in rare])) if rare else None)
        assert row["row_expansion"] == pytest.approx(430 / 400)
    assert seen == len(rows)


def test_itself_empty_tables_and_what_is_refused(con):
    row = con.execute("SELECT * FROM dp_evaluate('t', 't', max_k := 1, report := 'tuples') WHERE bucket = 'all'").fetchone()
    assert row[3:8] == (1.0, 0.0, 0.0, 0.0, 0.0)
    con.execute("CREATE TABLE nothing AS FROM s LIMIT 0")
    row = con.execute("SELECT * FROM dp_evaluate('t', 'nothing', max_k := 1, report := 'tuples') WHERE bucket = 'all'").fetchone()
    assert row[6:10] == (1.0, None, 0.0 if row[8] is not None else None, 0.0)
    assert con.execute("SELECT count(*) FROM dp_evaluate('t', 's')").fetchone() == (3,)  # as before
    assert dpsql.evaluate(con, "t", "s", report="tuples").columns[:3] == ["k", "bucket", "tuples"]
    with pytest.raises(duckdb.Error, match="'tables', 'tuples'"):
        con.execute("FROM dp_evaluate('t', 's', report := 'sds')")
    con.execute("DELETE FROM t")
    assert con.execute("SELECT tuples, preservation, row_expansion FROM dp_evaluate('t', 's', max_k := 1, report := 'tuples')").fetchall() == [(0, None, None)]
