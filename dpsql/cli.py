"""The command line: `dpsql demo` and `dpsql run`."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import duckdb

import dpsql
from dpsql import demo as sample
from dpsql import interruption


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; return its exit code: 0 done, 1 a statement failed, 2 the arguments are wrong, 130 stopped by Ctrl-C."""
    parser = argparse.ArgumentParser(prog="dpsql", description="Differentially private statistics and synthetic tables in DuckDB.")
    commands = parser.add_subparsers(dest="command", required=True)
    demo = commands.add_parser("demo", help="make a sample table, synthesize it, show accuracy and ledger")
    demo.add_argument("--database", default=":memory:", help="DuckDB file to create (default: in memory)")
    demo.add_argument("--rows", type=int, default=20_000, help="rows of the sample table (default: 20000)")
    demo.add_argument("--epsilon", type=float, default=1.0, help="privacy loss of the synthetic table (default: 1.0)")
    run = commands.add_parser("run", help="run a SQL file with the dp_* macros loaded and print what its queries return")
    run.add_argument("file", type=Path, help="SQL file")
    run.add_argument("--database", default=":memory:", help="DuckDB file (default: in memory)")
    dbt = commands.add_parser("dbt", help="use dpsql in a dbt project").add_subparsers(dest="dbt_command", required=True)
    init = dbt.add_parser("init", help="copy the dbt package into a dbt project and name it in packages.yml; then run `dbt deps`")
    init.add_argument("project", nargs="?", type=Path, default=Path(), help="folder of the project (default: this one)")
    chosen = parser.parse_args(argv)
    try:
        if chosen.command == "demo":
            run_demo(chosen.database, chosen.rows, chosen.epsilon)
        elif chosen.command == "dbt":
            init_dbt(chosen.project)
        else:
            run_file(chosen.database, chosen.file)
    except (dpsql.DpsqlError, duckdb.Error, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt as stopped:
        print(str(stopped) or "interrupted", file=sys.stderr)
        return 130
    return 0


@contextmanager
def interruptible(con: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Let Ctrl-C stop whatever statement runs, DuckDB's own too, as a KeyboardInterrupt that says what was bought."""
    with interruption.call(interruption.Running(con, "interrupted")):
        yield


def run_demo(database: str, rows: int, epsilon: float) -> None:
    """Run the main job on a made-up table: protect, declare, plan, synthesize, evaluate, and show the books."""
    if not 1 <= rows <= 100_000_000:
        raise dpsql.ArgumentError("--rows", rows, "must be from 1 to 100,000,000")
    with duckdb.connect(database) as con:
        sample.create_people(con, rows)
        dpsql.load(con)
        print(f"-- A made-up table of {rows:,} people: mixed types, NULLs, dates, skew, dependence")
        show(con, "FROM people LIMIT 5")
        print("\n-- The custodian protects it and declares what values are possible (ENUM and BOOLEAN declare themselves)")
        for statement in (sample.PROTECT, *sample.DECLARE):
            print(f"{statement};")
            con.execute(statement)
        print("\n-- Before spending: what would it cost?")
        show(
            con,
            "SELECT tables, cells, mechanism, round(noise_scale, 2) AS noise_scale, epsilon, epsilon_left_after "  # noqa: S608
            f"FROM dp_plan('people', epsilon := {epsilon})",
        )
        print("\n-- Spend: one statement from the raw table to a synthetic one")
        started = time.perf_counter()
        show(con, f"CREATE OR REPLACE TABLE people_synth AS FROM dp_synthesize('people', epsilon := {epsilon})", result=False)
        print(f"   ({time.perf_counter() - started:.1f} s)")
        show(con, "FROM people_synth LIMIT 8")
        print("\n-- How accurate is it? (compares with the raw table: for the custodian, not for publication)")
        show(
            con,
            "SELECT k, queries, cells, round(tvd, 4) AS tvd, round(average_95, 1) AS average_95, "
            "round(average_100, 1) AS average_100, round(maximum_100) AS maximum_100 FROM dp_evaluate('people', 'people_synth')",
        )
        print("\n-- The books: what was spent")
        show(
            con,
            "SELECT entry, written_at, action, release, round(epsilon, 4) AS epsilon, round(rho, 6) AS rho, chain_holds "
            "FROM dp_ledger('people')",
        )
        show(con, "SELECT source, epsilon, delta, epsilon_spent, epsilon_left, releases FROM dp_budget('people')")


def init_dbt(project: Path) -> None:
    """Copy the dbt package into a project."""
    try:
        from dpsql.dbt.project import init
    except ImportError as missing:
        raise dpsql.DpsqlError(str(missing)) from None
    for line in init(project):
        print(line)
    print("next: dbt deps")


def run_file(database: str, file: Path) -> None:
    """Run every statement of a SQL file."""
    text = file.read_text(encoding="utf-8")
    with duckdb.connect(database) as con:
        dpsql.load(con)
        for statement in con.extract_statements(text):
            with interruptible(con):
                result = con.execute(statement)
                if statement.expected_result_type == [duckdb.ExpectedResultType.QUERY_RESULT]:
                    print_table(result)


def show(con: duckdb.DuckDBPyConnection, query: str, *, result: bool = True) -> None:
    """Print a statement and, run once, what it returns."""
    print(f"{query};")
    with interruptible(con):
        done = con.execute(query)
        if result:
            print_table(done)


def print_table(result: duckdb.DuckDBPyConnection) -> None:
    """Print the rows of an executed statement, without running it again."""
    names = [column[0] for column in result.description or []]
    rows = [["" if value is None else str(value) for value in row] for row in result.fetchall()]
    widths = [max(len(name), *(len(row[i]) for row in rows)) if rows else len(name) for i, name in enumerate(names)]
    widths = [min(width, 60) for width in widths]
    for line in (names, ["-" * width for width in widths], *rows):
        print("  " + "  ".join(cell[:width].ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


if __name__ == "__main__":
    sys.exit(main())
