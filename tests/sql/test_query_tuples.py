"""count(DISTINCT (a, b)): as many combinations as DuckDB counts, of every type, NULLs among them."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

import dpsql
from dpsql.errors import DpsqlError, UnsupportedQuery

VALUES = {
    "INTEGER": ("NULL", "0", "-1", "2147483647"),
    "DOUBLE": ("NULL", "'nan'", "-'nan'::DOUBLE", "-0.0", "0.0", "'inf'", "'-inf'", "0.1", "0.1::FLOAT"),
    "FLOAT": ("NULL", "'nan'", "-0.0", "0", "0.1", "3.4e38"),
    "DECIMAL(9,2)": ("NULL", "0.1", "0.10", "-12.34"),
    "VARCHAR": ("NULL", "''", "','", "'a'", "'a,'", "'A'", "'é'", "'e\u0301'", "repeat('x', 20000)", "repeat('x', 20000) || 'y'", "'nan'"),
    "BOOLEAN": ("NULL", "true", "false"),
    "DATE": ("NULL", "'infinity'", "'-infinity'", "'0001-01-01'", "'9999-12-31'", "'2024-02-29'"),
    "TIMESTAMP": ("NULL", "'infinity'", "'2024-02-29 12:00:00'", "'2024-02-29 12:00:00.000001'", "'0001-01-01'"),
    "TIMESTAMP WITH TIME ZONE": ("NULL", "'infinity'", "'2024-02-29 12:00:00+00'", "'2024-02-29 12:00:00+01'", "'2024-02-29 11:00:00+00'"),
    "TIME": ("NULL", "'00:00:00'", "'24:00:00'"),
    "UUID": ("NULL", "'00000000-0000-0000-0000-000000000000'"),
    "ENUM('a', 'a,', '')": ("NULL", "'a'", "'a,'", "''"),
}
NAMES = [f"c{i}" for i in range(len(VALUES))]


@pytest.fixture(scope="module")
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    made = duckdb.connect()
    dpsql.load(made, progress=False)
    rows = 400
    columns = [
        f"([{', '.join(f'CAST({v} AS {kind})' for v in found)}])[1 + (i * {2 * place + 3} + i // {place + 2}) % {len(found)}] AS c{place}"
        for place, (kind, found) in enumerate(VALUES.items())
    ]
    made.execute(f"CREATE TABLE t AS SELECT i AS id, i % 100 AS person, i % 4 AS \"group\", [i] AS list, {', '.join(columns)} FROM range({rows}) r(i)")
    made.execute("CREATE TABLE none AS FROM t WHERE false")
    for name in ("t", "none"):
        made.execute(f"CALL dp_protect('{name}', epsilon := 1000, delta := 1e-6, privacy_unit := 'person', max_contributions := 4)")
        made.execute(f"CALL dp_declare('{name}', 'group', lower := 0, upper := 3, nullable := false)")
    yield made
    made.close()


@pytest.mark.parametrize("name", NAMES)
def test_pairs_are_counted_as_duckdb_counts_them(con: duckdb.DuckDBPyConnection, name: str) -> None:
    pairs = [(name, other) for other in NAMES[NAMES.index(name) :]]
    sql = f"SELECT {', '.join(f'count(DISTINCT ({a}, {b})) AS {a}{b}' for a, b in pairs)} FROM t"
    assert dpsql.query_exact(con, sql).fetchall() == con.sql(sql).fetchall()


@pytest.mark.parametrize("sql", [
    "SELECT count(DISTINCT ({})), count(DISTINCT c4), count((c0, c1)) FROM t".format(", ".join(NAMES)),
    "SELECT \"group\", count(DISTINCT (\"group\", c0, c3)) AS n FROM t GROUP BY \"group\" ORDER BY 1",
    "SELECT count(DISTINCT row(c0, (c1, c5))) FILTER (WHERE \"group\" > 1) FROM t",
    "SELECT count(DISTINCT {'x': c0, 'y': c4}), count(DISTINCT struct_pack(a := c4, b := c6)) FROM t",
    "SELECT count(DISTINCT (c0, lower(c4), \"group\" + 1)) AS n, count(DISTINCT c0 || '-' || c4) FROM t WHERE length(c4) < 9",
    "SELECT avg(least(n, 4)) FROM (SELECT person, count(DISTINCT (c0, c5)) AS n, count((c0, c1)) AS m FROM t GROUP BY person)",
    "SELECT count(DISTINCT (\"group\", n)) FROM (SELECT \"group\", count(*) AS n FROM t GROUP BY 1)",
    "SELECT count(DISTINCT (NULL, c0)), count(DISTINCT (c0, 1)) FROM t",
])
def test_it_stands_wherever_a_count_does(con: duckdb.DuckDBPyConnection, sql: str) -> None:
    exact, wanted = dpsql.query_exact(con, sql), con.sql(sql)
    assert exact.fetchall() == wanted.fetchall() and exact.columns == wanted.columns and exact.types == wanted.types
    answer = dpsql.query(con, sql, epsilon=40)
    assert answer.columns == wanted.columns and answer.types == wanted.types
    for row, other in zip(answer.fetchall(), wanted.fetchall(), strict=True):
        assert row == pytest.approx(other, abs=12)


def test_an_empty_table_has_no_combination(con: duckdb.DuckDBPyConnection) -> None:
    assert dpsql.query_exact(con, "SELECT count(DISTINCT (c0, c4)), count((c0, c1)) FROM none").fetchall() == [(0, 0)]


def test_the_question_is_shown_as_people_write_it_and_is_one_in_every_spelling(con: duckdb.DuckDBPyConnection) -> None:
    said = con.execute("FROM dp_plan('SELECT count(DISTINCT (c0, c9)) FROM t', epsilon := 2)").fetchall()
    assert "count(DISTINCT (c0, c9))" in repr(said)
    bought = [dpsql.query(con, f"SELECT count(DISTINCT {one}) FROM t", epsilon=2).fetchall() for one in ("(c0, c5)", "row(c0, c5)", "{'a': c0, 'b': c5}")]
    before = con.execute("SELECT count(*) FROM dp_ledger('t')").fetchone()
    assert bought[0] == bought[1] == bought[2] == dpsql.query(con, "SELECT count(DISTINCT ((C0, T.c5))) FROM t").fetchall()
    assert con.execute("SELECT count(*) FROM dp_ledger('t')").fetchone() == before


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT count(DISTINCT (c0, list)) FROM t", r"count\(DISTINCT \(...\)\): values of BIGINT\[\] are not compared in a source; CAST it to a text"),
        ("SELECT count(DISTINCT c0, c1) FROM t", r"write count\(DISTINCT \(a, b\)\)"),
        ("SELECT avg((c0, c1)) FROM t", "TUPLE"),
        ("SELECT count(*) FROM t WHERE (c0, c1) = (1, 2)", "TUPLE"),
    ],
)
def test_what_is_not_counted_is_refused_free(con: duckdb.DuckDBPyConnection, sql: str, said: str) -> None:
    before = con.execute("SELECT count(*) FROM dp_ledger('t')").fetchone()
    with pytest.raises(UnsupportedQuery, match=said) as refused:
        dpsql.query(con, sql, epsilon=1)
    assert isinstance(refused.value, DpsqlError) and con.execute("SELECT count(*) FROM dp_ledger('t')").fetchone() == before
