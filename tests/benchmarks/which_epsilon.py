"""How wide intervals are, for so many rows and so much epsilon: the tables of docs/epsilon.md.

    python tests/benchmarks/which_epsilon.py

A made-up column from 0 to 100 with mean 40, and a group by four values of the same size; one row a person, delta 1e-9. Each figure is the median
of five answers, half the width of their 95 % interval.
"""

from __future__ import annotations

import statistics

import duckdb

import dpsql

ROWS, EPSILONS, ANSWERS = (100, 1_000, 10_000, 100_000, 1_000_000), (0.1, 0.5, 1.0, 3.0), 5
QUESTIONS = {
    "count": "SELECT count(*) AS a FROM t{rows}",
    "mean": "SELECT avg(x) AS a FROM t{rows}",
    "median": "SELECT median(x) AS a FROM t{rows}",
    "count of one of four groups": "SELECT g, count(*) AS a FROM t{rows} GROUP BY g",
    "mean of one of four groups": "SELECT g, avg(x) AS a FROM t{rows} GROUP BY g",
}


def prepared() -> duckdb.DuckDBPyConnection:
    """Return a database with a protected table for each number of rows."""
    con = duckdb.connect()
    dpsql.load(con, progress=False)
    for rows in ROWS:
        con.execute(
            f"CREATE TABLE t{rows} AS SELECT (i * 7919) % 4 AS g, 100 * pow((i * 0.7548776662) % 1, 1.5) AS x FROM range({rows}) t(i)"
        )
        con.execute(f"CALL dp_protect('t{rows}', epsilon := 1000, delta := 1e-9)")
        con.execute(f"CALL dp_declare('t{rows}', 'x', lower := 0, upper := 100, nullable := false)")
        con.execute(f"CALL dp_declare('t{rows}', 'g', categories := [0, 1, 2, 3], nullable := false)")
    return con


def half_width(con: duckdb.DuckDBPyConnection, sql: str, epsilon: float) -> float:
    """Return the median half width of the intervals of an answer."""
    found = []
    for number in range(ANSWERS):
        answer = dpsql.query(con, sql, epsilon=epsilon, confidence=0.95, release=f"{sql} {epsilon} {number}").fetchall()
        found += [(row[-1] - row[-2]) / 2 for row in answer]
    return statistics.median(found)


def main() -> None:
    """Print one table for each question."""
    con = prepared()
    for name, sql in QUESTIONS.items():
        print(f"\n{name}\n| rows | " + " | ".join(f"epsilon {epsilon:g}" for epsilon in EPSILONS) + " |\n| --- |" + " --- |" * len(EPSILONS))
        for rows in ROWS:
            widths = [half_width(con, sql.format(rows=rows), epsilon) for epsilon in EPSILONS]
            print(f"| {rows:,} | " + " | ".join(f"{width:.3g}" for width in widths) + " |", flush=True)


if __name__ == "__main__":
    main()
