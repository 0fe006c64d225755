"""Public relations beside rows, as texts: outer joins, lists of constants, CTEs that nothing uses."""

from __future__ import annotations

import duckdb
import pytest
import sqlglot
from sqlglot import exp

from dpsql.errors import ArgumentError
from dpsql.estimates import listed
from dpsql.queries import public_rows
from dpsql.queries.constant_rows import series_by, write_out
from dpsql.text.strict import StrictDuckDB


def prepared(text: str, rows: str = "t") -> str:
    """Return a SELECT as it is prepared; the relation of this name has rows of people."""
    tree = sqlglot.parse_one(text, dialect=StrictDuckDB)
    items = [(tree.args["from_"] if "from_" in tree.args else tree.args["from"]).this, *(j.this for j in tree.args.get("joins") or [])]
    public_rows.prepare(tree, [(item, item.alias_or_name == rows) for item in items])
    return tree.sql(dialect="duckdb")


def written(text: str) -> str:
    """Return a SELECT with its lists of constants written out."""
    tree = sqlglot.parse_one(text, dialect=StrictDuckDB)
    with duckdb.connect() as con:
        write_out(tree, [tree], series_by(con))
    return tree.sql(dialect="duckdb")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT g FROM t RIGHT JOIN p USING (g) GROUP BY g",
         'SELECT "p".g FROM t JOIN p USING (g) WHERE NOT "p"."g" IS NULL GROUP BY "p".g'),
        ("SELECT p.g FROM p LEFT JOIN t ON p.g = t.g WHERE x > 1 OR x < 0 GROUP BY p.g",
         'SELECT p.g FROM p JOIN t ON p.g = t.g WHERE (x > 1 OR x < 0) AND NOT "p"."g" IS NULL GROUP BY p.g'),
        ("SELECT g FROM t LEFT JOIN p USING (g)", "SELECT g FROM t LEFT JOIN p USING (g)"),
        ("SELECT g FROM t FULL JOIN p USING (g)", "SELECT g FROM t FULL JOIN p USING (g)"),
        ("SELECT g FROM t RIGHT JOIN (SELECT g FROM q) USING (g) HAVING (SELECT g) = 1",
         'SELECT "public_0".g FROM t JOIN (SELECT g FROM q) AS "public_0" USING (g) WHERE NOT "public_0"."g" IS NULL '
         "HAVING (SELECT g) = 1"),
    ],
)
def test_outer_joins_that_keep_rows_of_nobody_become_inner_ones(text: str, expected: str) -> None:
    assert prepared(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT v FROM t CROSS JOIN UNNEST([1, -2]) AS u(v)", 'SELECT v FROM t CROSS JOIN (VALUES (1), (-2)) AS "u"("v")'),
        ("SELECT v FROM t, (VALUES (1, 'a')) AS u(v)", "SELECT v FROM t, (VALUES (1, 'a')) AS \"u\"(\"v\", \"col1\")"),
        ("SELECT * FROM t JOIN range(-1, 2) ON x = range", 'SELECT * FROM t JOIN (VALUES (CAST((-1) AS BIGINT)), (CAST(0 AS BIGINT)), (CAST(1 AS BIGINT))) AS "range"("range") ON x = range'),
        ("SELECT r.r FROM t, range(1) AS r", 'SELECT r.r FROM t, (VALUES (CAST(0 AS BIGINT))) AS "r"("r")'),
        ("SELECT i FROM t, generate_series(DATE '2024-01-31', DATE '2024-03-01', INTERVAL 1 MONTH) AS g(i)",
         "SELECT i FROM t, (VALUES (CAST('2024-01-31 00:00:00' AS TIMESTAMP)), (CAST('2024-02-29 00:00:00' AS TIMESTAMP))) AS \"g\"(\"i\")"),
        ("SELECT * FROM t WHERE x IN (SELECT unnest([1, NULL]))",
         'SELECT * FROM t WHERE x IN (SELECT "public_0"."unnest" AS "unnest" FROM (VALUES (1), (NULL)) AS "public_0"("unnest"))'),
        ("SELECT v FROM t CROSS JOIN UNNEST([g]) AS u(v)", "SELECT v FROM t CROSS JOIN UNNEST([g]) AS u(v)"),
        ("SELECT v FROM t, (VALUES (1), (nextval('s'))) AS u(v)", "SELECT v FROM t, (VALUES (1), (NEXTVAL('s'))) AS u(v)"),
        ("SELECT v FROM t, range(x) AS u(v)", "SELECT v FROM t, RANGE(x) AS u(v)"),
        ("SELECT v FROM t, range(getenv('A')::INT) AS u(v)", "SELECT v FROM t, RANGE(CAST(GETENV('A') AS INT)) AS u(v)"),
    ],
)
def test_lists_of_constants_are_written_out_and_nothing_else_is_evaluated(text: str, expected: str) -> None:
    assert written(text) == expected


@pytest.mark.parametrize(
    "listed",
    [
        f"UNNEST({list(range(1001))}) AS u(v)", "range(1001) AS u(v)", "range(100000000000000) AS u(v)",
        "(SELECT unnest(range(1001)) AS v) AS u", f"(SELECT unnest({list(range(1001))}) AS v) AS u",
    ],
)
def test_long_lists_are_refused(listed: str) -> None:
    with pytest.raises(ArgumentError, match="more than 1,000 rows"):
        written(f"SELECT v FROM t CROSS JOIN {listed}")


def test_ctes_that_nothing_uses_are_left_out() -> None:
    tree = sqlglot.parse_one("SELECT * FROM (WITH a AS (SELECT 1), b AS (FROM a), c AS (FROM b), d AS (FROM a) SELECT * FROM c)",
                             dialect=StrictDuckDB)
    public_rows.prune(tree)
    assert [cte.alias for cte in tree.find_all(exp.CTE)] == ["a", "b", "c"]


def test_the_threshold_of_distinct_values_lets_few_false_ones_through() -> None:
    from scipy import stats

    for count in (1, 2, 50, 4_000):
        limit = listed.threshold(3.0, count, "gaussian")
        assert count * stats.norm.sf(limit, scale=3.0) == pytest.approx(listed.FALSE_VALUES)
        limit = listed.threshold(3.0, count, "laplace")
        assert count * stats.laplace.sf(limit, scale=3.0 / 2**0.5) == pytest.approx(listed.FALSE_VALUES)
