"""The same rows in DuckDB and in Spark: the same integers of every method and every aggregate, with the noise switched off.

Units have no more rows than they may, so that nothing is chosen at random.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import numpy as np
import pytest

import dpsql
from dpsql.engines.spark import session as sessions
from dpsql.kinds import measures
from dpsql.mechanisms import percentile
from dpsql.noise import discrete

pytestmark = [pytest.mark.spark, pytest.mark.any_duckdb, pytest.mark.filterwarnings("ignore")]

ROWS = """
    SELECT (i // 3)::BIGINT AS person, (i * 7 % 131 - 5)::INTEGER AS age,
        CASE i % 7 WHEN 0 THEN NULL WHEN 1 THEN 'f' WHEN 2 THEN 'm' WHEN 3 THEN 'É' WHEN 4 THEN '' WHEN 5 THEN 'it''s \\n' ELSE 'm' END AS sex,
        CASE WHEN i % 11 = 0 THEN NULL ELSE (i % 977 - 100)::DECIMAL(12,2) / 3 END::DECIMAL(12,2) AS income,
        CASE i % 97 WHEN 0 THEN 'NaN'::DOUBLE WHEN 1 THEN 'inf'::DOUBLE WHEN 2 THEN '-inf'::DOUBLE WHEN 3 THEN -0.0 ELSE i % 13 / 7.0 END AS weight,
        CASE WHEN i % 17 = 0 THEN NULL ELSE DATE '2019-12-25' + (i % 1000)::INTEGER END AS born,
        TIMESTAMP '2024-02-28 23:59:59.999999' + INTERVAL (i * 37) MINUTE AS seen, i % 3 = 0 AS ok, (i % 256 - 128)::TINYINT AS tiny
    FROM range(1500) r(i)"""
DECLARE = (
    "'age', lower := 0, upper := 120, bins := 24, nullable := false",
    "'sex', categories := ['f', 'm', 'É', '', 'it''s \\n']",
    "'income', lower := 0, upper := 300, bins := 7",
    "'weight', lower := 0, upper := 2, bins := 4, nullable := false",
    "'born', lower := '2020-01-01', upper := '2022-06-01', bins := 6",
    "'seen', lower := '2024-01-01', upper := '2024-06-01', bins := 5",
    "'tiny', lower := -128, upper := 127, bins := 8, nullable := false",
)
QUERIES = (
    "SELECT count(*), count(income), count(DISTINCT person), sum(income), avg(income), stddev_samp(income) FROM people",
    "SELECT sex, count(*), avg(age), quantile_cont(income, [.25, .5]), max(weight) FROM people GROUP BY sex",
    "SELECT date_trunc('month', born) AS month, ok, count(*), sum(age) FILTER (WHERE ok) FROM people GROUP BY ALL",
    "SELECT age // 10 AS decade, corr(age, income), mode(sex) FROM people WHERE age BETWEEN 0 AND 119 AND sex <> 'f' GROUP BY decade",
    "SELECT upper(sex) AS s, count_if(weight > 1), bool_or(ok) FROM people GROUP BY s",
    "SELECT CASE WHEN age < 18 THEN 'child' WHEN age < 65 THEN 'adult' ELSE 'old' END AS stage, count(*), avg(income * 2 + 1) FROM people GROUP BY stage",
    "SELECT year(seen) AS y, extract(month FROM seen) AS m, count(*) FROM people GROUP BY GROUPING SETS ((y, m), (y), ())",
    "WITH p AS (SELECT person, least(sum(age), 500) AS total, count(*) AS n FROM people GROUP BY person) SELECT n, count(*), avg(total) FROM p WHERE total > -20 GROUP BY n",
)
CALLS = (
    "dp_marginals('people', columns := ['age', 'sex', 'ok', 'tiny'], k := 2, epsilon := 1)",
    "dp_marginals('SELECT age, weight, born, seen, income FROM people WHERE age > 3', k := 1, epsilon := 1)",
    "dp_synthesize('people', epsilon := 1, release := 'lc')",
    "dp_synthesize('people', epsilon := 1, method := 'gaussian_copula', release := 'gc')",
    "dp_synthesize('people', epsilon := 1, method := 'aggregate_seeded', release := 'as')",
    "dp_synthesize('people', epsilon := 1, method := 'laplace_sanitizer', columns := ['sex', 'ok', 'weight'], release := 'ls')",
    "dp_contributions('people', epsilon := 1)",
)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Iterator[tuple[duckdb.DuckDBPyConnection, duckdb.DuckDBPyConnection]]:
    """Give the rows in DuckDB, and a name for the same ones in Spark."""
    folder = str(tmp_path_factory.mktemp("lake") / "people.parquet")
    with pytest.MonkeyPatch.context() as patch, duckdb.connect() as here, duckdb.connect() as there:
        patch.setattr(sessions, "_begun", lambda sessions_, url: spark)
        here.execute(f"COPY ({ROWS}) TO '{folder}' (FORMAT parquet, ROW_GROUP_SIZE 500)")
        for con in (here, there):
            dpsql.load(con, progress=False)
        here.execute(f"CREATE TABLE people AS {ROWS}")
        there.execute("CALL dp_remote('people', engine := 'spark', url := 'local[2]', relation := $1)", [f"parquet:{folder}"])
        for con in (here, there):
            con.execute("CALL dp_protect('people', epsilon := 900, delta := 1e-6, privacy_unit := 'person', max_contributions := 3)")
            for declared in DECLARE:
                con.execute(f"CALL dp_declare('people', {declared})")
        yield here, there


def measured(con: duckdb.DuckDBPyConnection, call: str) -> list[Any]:
    """Return what a call would release without noise."""
    found: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(discrete, "add_noise", lambda counts, mechanism, scale: counts.copy())
        patch.setattr(percentile, "private_percentile", lambda histogram, *given: int(histogram.nonzero()[0].max()))
        real = measures.measure
        patch.setattr(measures, "measure", lambda *given: found.append(real(*given)) or found[-1])
        con.execute(f"FROM {call}").fetchall()
    return found


@pytest.mark.parametrize("call", [*CALLS, *(f"dp_query('{q.replace(chr(39), chr(39) * 2)}', epsilon := 1)" for q in QUERIES)])
def test_the_same_integers(both, call):
    here, there = (measured(con, call) for con in both)
    assert len(here) == len(there) >= 1
    for one, other in zip(here, there, strict=True):
        assert one.values == other.values
        assert np.array_equal(one.flat, other.flat)
        assert one.flat.size == 0 or np.abs(one.flat).max() > 0
        assert one.total == other.total


def test_no_row_came_here(both):
    _, there = both
    assert there.execute("SELECT count(*) FROM people").fetchone() == (0,)
