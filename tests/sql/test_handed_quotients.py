"""Quotients of aggregates that a subquery or WITH hands on to the SELECT around it: as good as those of one SELECT."""

import duckdb
import pytest

import dpsql

pytestmark = pytest.mark.any_duckdb

HANDED = [  # each beside the same question in one SELECT
    ("SELECT g, s / n AS m FROM (SELECT g, sum(v) AS s, count(*) AS n FROM t GROUP BY g)", "SELECT g, sum(v) / count(*) AS m FROM t GROUP BY g"),
    ("WITH q AS (SELECT g, sum(v) AS S, count(*) AS \"N\" FROM t GROUP BY g) SELECT g, s / nullif(n, 0) AS m FROM q", "SELECT g, sum(v) / nullif(count(*), 0) AS m FROM t GROUP BY g"),
    ("SELECT g, 100.0 * p / x.n AS m FROM (SELECT g, count(*) FILTER (WHERE v > 50) AS p, count(*) AS n FROM t GROUP BY g) AS x ORDER BY p / n DESC, g", "SELECT g, 100.0 * count(*) FILTER (WHERE v > 50) / count(*) AS m FROM t GROUP BY g ORDER BY m DESC, g"),
    ("WITH q AS (SELECT g, sum(v) AS s, count(*) AS n FROM t GROUP BY g) SELECT max(s / n) AS m, count(*) AS k FROM q", "SELECT max(m) AS m, count(*) AS k FROM (SELECT g, sum(v) / count(*) AS m FROM t GROUP BY g)"),
    ("WITH q AS (SELECT g, sum(v) AS s, count(*) AS n FROM t GROUP BY g) SELECT h, max(s / n) AS m FROM (SELECT left(g, 2) AS h, s, n FROM q) GROUP BY h ORDER BY h", None),
    ("SELECT n, s / n AS m FROM (SELECT g, sum(v) AS s, count(*) AS n FROM t GROUP BY g) GROUP BY n, s", None),
    ("WITH q AS (SELECT g, sum(v) AS s, count(*) AS n FROM t GROUP BY g) SELECT a.g, a.s / a.n AS m, b.n FROM q a JOIN q b USING (g)", None),
    ("WITH q AS (SELECT g, sum(v) AS s, count(*) AS n FROM t GROUP BY g) SELECT *, s / n AS m FROM q", None),
    ("SELECT b / c AS m FROM (SELECT g, sum(v), count(*) FROM t GROUP BY g) AS x(a, b, c)", None),
    ("SELECT s / n AS m FROM (SELECT DISTINCT g, sum(v) AS s, count(*) AS n FROM t GROUP BY g)", None),
]


@pytest.fixture(scope="module")
def con():
    con = duckdb.connect()
    con.execute("CREATE TABLE t AS SELECT i AS u, 'g' || (i % 60) AS g, (i * 7 % 101)::DOUBLE AS v FROM range(600) r(i)")
    dpsql.load(con, progress=False)
    con.execute("CALL dp_protect('t', epsilon := 100, delta := 1e-9, privacy_unit := 'u', max_contributions := 1)")
    con.execute(f"CALL dp_declare('t', 'g', categories := [{', '.join(repr(f'g{i}') for i in range(60))}], nullable := false)")
    con.execute("CALL dp_declare('t', 'v', lower := 0, upper := 100, nullable := false)")
    yield con
    con.close()


@pytest.mark.parametrize(("handed", "plain"), HANDED, ids=range(len(HANDED)))
def test_a_quotient_of_columns_that_are_handed_on_is_one_of_aggregates(con, handed, plain):
    """A SELECT around the one with the aggregates divides as that one does; where columns are seen or renamed, all is as it was."""
    names = [column[0] for column in con.execute(handed).description]
    answer = dpsql.query(con, handed, epsilon=0.3)
    assert list(answer.columns) == names
    rows = answer.fetchall()
    assert rows and dpsql.query(con, handed, epsilon=0.3).fetchall() == rows
    if plain is not None:
        assert sorted(map(repr, rows)) == sorted(map(repr, dpsql.query(con, plain, epsilon=0.3).fetchall()))
        shares = [row[-1] for row in rows] if "100.0" in handed else []
        assert all(0 <= share <= 100 for share in shares)
    more = dpsql.query(con, "SELECT n, s / n AS m FROM (SELECT g, sum(v) AS s, count(*) AS n FROM t GROUP BY g)", epsilon=0.3, confidence=0.95)
    assert more.columns == ["n", "n_low", "n_high", "m"] and len(more.fetchall()) == 60


INNER = "(SELECT g, avg(v) AS m, count(*) AS n FROM t GROUP BY g)"


@pytest.mark.parametrize(
    ("items", "columns"),
    [
        ("*", ["g", "m", "m_low", "m_high", "n", "n_low", "n_high"]),
        ("* REPLACE (m * 12 AS m)", ["g", "m", "n", "n_low", "n_high"]),
        ("* EXCLUDE (m), n / 2 AS m", ["g", "n", "n_low", "n_high", "m"]),
        ('x.* EXCLUDE ("M")', ["g", "n", "n_low", "n_high"]),
        ("* RENAME (m AS mean)", ["g", "mean", "n", "n_low", "n_high", "mean_low", "mean_high"]),
        ("* EXCLUDE (n) REPLACE (upper(g) AS g)", ["g", "m", "m_low", "m_high"]),
    ],
)
def test_a_star_hands_on_the_intervals_of_columns_as_they_are(con, items, columns):
    answer = dpsql.query(con, f"SELECT {items} FROM {INNER} AS x", epsilon=0.3, confidence=0.95)
    assert answer.columns == columns
    whole = dpsql.query(con, f"SELECT * FROM {INNER} AS x", epsilon=0.3, confidence=0.95)
    for name in ("m_low", "n_high"):
        if name in columns:
            assert [row[columns.index(name)] for row in answer.fetchall()] == [row[whole.columns.index(name)] for row in whole.fetchall()]


def test_a_star_without_a_number_has_no_interval(con):
    with pytest.raises(dpsql.ArgumentError, match="confidence = 0.95"):
        dpsql.query(con, f"SELECT * REPLACE (m * 12 AS m) FROM {INNER.replace(', count(*) AS n', '')}", epsilon=0.3, confidence=0.95)
