"""`dpsql demo`: a question, a synthetic table, how good both are, and the books, on a made-up table whose truth is known.

With ``--linked``: a synthetic database of three linked tables.
"""

from __future__ import annotations

import time
from functools import partial

import dpsql
from dpsql import demo as sample
from dpsql.cli.session import MEMORY, Session

WIDTH = 100
"""Of everything that is printed, unless the terminal is narrower."""
ASKED = """\
    SELECT sector, count(*) AS n, round(median(income)) AS income
    FROM people WHERE sector IS NOT NULL GROUP BY sector ORDER BY n DESC"""
QUESTION = f"CREATE OR REPLACE TABLE answer AS FROM dp_query($$\n{ASKED}\n$$, epsilon := 0.5, confidence := 0.95)"
BESIDE_THE_TRUTH = """\
SELECT sector, n, n_low, n_high, true_n, income, income_low AS low, income_high AS high, true_income
FROM answer JOIN (
    SELECT sector, count(*) AS true_n, round(median(income)) AS true_income FROM people GROUP BY ALL
) USING (sector)
ORDER BY n DESC"""
HELD = f"""\
SELECT count(*) FILTER (true_n BETWEEN n_low AND n_high) + count(*) FILTER (true_income BETWEEN low AND high), 2 * count(*)
FROM ({BESIDE_THE_TRUTH})"""  # noqa: S608 -- constants of this module
BOTH = """\
SELECT "table", round(avg(age), 1) AS mean_age, round(median(income)) AS median_income,
    round(100 * avg(remote::INT), 1) AS remote_pct, round(corr(age, children), 2) AS age_children
FROM (SELECT 'raw' AS "table", * FROM people UNION ALL SELECT 'synthetic', * FROM people_synth)
GROUP BY ALL ORDER BY "table" ASC"""
EVALUATED = "FROM dp_evaluate('people', 'people_synth', max_k := 2)"
VISITS = """\
SELECT patient_id, born, region, visit_at, department, cost
FROM {schema}.visits JOIN {schema}.patients USING (patient_id) LIMIT 5"""
SUMMED = f"SELECT 100 * min(tvd), 100 * max(tvd), max(maximum_100) {EVALUATED}"


def run_demo(session: Session, rows: int, epsilon: float) -> None:
    """Protect, declare, ask, synthesize, say how good the answers are, and show the books.

    Raises
    ------
    ArgumentError
        ``rows`` is out of range.
    """
    if not 1 <= rows <= 100_000_000:
        raise dpsql.ArgumentError("--rows", rows, "must be from 1 to 100,000,000")
    # Tables as wide as in the documentation, whatever the terminal.
    session.fixed_width = WIDTH
    _say(session, f"-- A made-up table of {rows:,} people: mixed types, NULLs, dates, skew, dependence")
    session.guarded(lambda: sample.create_people(session.con, rows))
    _show(session, "SELECT age, sex, region, education, sector, hired, children, income FROM people LIMIT 4")
    _say(session, "\n-- The custodian protects it, and declares what values are possible, from public knowledge:")
    _say(session, "-- a number needs bounds alone; ENUM and BOOLEAN declare themselves")
    for statement in (sample.PROTECT, *sample.DECLARE):
        _say(session, f"{statement};")
        session.guarded(partial(session.con.execute, statement))
    _ask(session)
    _synthesize(session, epsilon)
    _say(session, "\n-- The books: every purchase, and what is left. Losses add up in rho, not in epsilon")
    _show(
        session,
        "SELECT entry, action, release, round(epsilon, 2) AS epsilon, round(rho, 5) AS rho, chain_holds\nFROM dp_ledger('people')",
    )
    _show(session, "SELECT source, epsilon, delta, epsilon_spent, epsilon_left, releases FROM dp_budget('people')")
    _lead_on(session)


def run_linked_demo(session: Session, patients: int, epsilon: float) -> None:
    """Protect, link, declare, plan, synthesize, evaluate, and show the books, of patients, visits and procedures.

    Raises
    ------
    ArgumentError
        ``patients`` is out of range.
    """
    if not 1 <= patients <= 10_000_000:
        raise dpsql.ArgumentError("--rows", patients, "must be from 1 to 10,000,000")
    session.fixed_width = WIDTH
    session.guarded(lambda: sample.create_hospital(session.con, patients))
    _say(session, f"-- A made-up hospital: {patients:,} patients, their visits, and the procedures of those")
    _show(session, VISITS.format(schema="main"))
    _say(session, "\n-- One budget for all three: a visit is its patient's, and so is a procedure of it")
    for statement in (*sample.PROTECT_LINKED, *sample.DECLARE_LINKED):
        _say(session, f"{statement};")
        session.guarded(partial(session.con.execute, statement))
    _say(session, "\n-- Spend: one statement from the raw database to a synthetic one")
    started = time.perf_counter()
    _show(session, f"FROM dp_synthesize_tables('patients', epsilon := {epsilon}, into_schema := 'synth')")
    _say(session, f"   ({time.perf_counter() - started:.1f} s)")
    _show(session, VISITS.format(schema="synth"))
    _say(session, "\n-- How accurate is it? (compares with the raw rows: for the custodian, not for publication)")
    _show(
        session,
        "SELECT measure, figures, round(error, 4) AS error, round(largest, 4) AS largest, round(independent, 4) AS independent "
        "FROM dp_evaluate('patients', 'synth') WHERE level = 'summary'",
    )
    _say(session, "-- independent: the raw columns without any noise, each as if it did not depend on the other")
    _say(session, "\n-- The books: what was spent, for all three")
    _show(session, "SELECT source, epsilon, delta, epsilon_spent, epsilon_left, releases FROM dp_budget('visits')")


def _ask(session: Session) -> None:
    """Buy an answer, and lay it beside the truth."""
    _say(session, "\n-- An analyst asks in SQL, for epsilon 0.5 of the 3; every number comes with its 95 % interval")
    _show(session, QUESTION)
    _say(session, "\n-- Beside the truth, which the custodian alone sees:")
    _show(session, BESIDE_THE_TRUTH)
    within, of = _row(session, HELD)
    _say(session, f"-- {within} of {of} true numbers lie within their intervals; 95 % do, on average")


def _synthesize(session: Session, epsilon: float) -> None:
    """Buy a synthetic table, and say how near it is to the raw one."""
    _say(session, "\n-- A synthetic table, for all other questions: one statement over the raw table")
    started = time.perf_counter()
    _show(session, f"CREATE OR REPLACE TABLE people_synth AS\nFROM dp_synthesize('people', epsilon := {epsilon})")
    _say(session, f"-- {time.perf_counter() - started:.1f} s")
    _show(session, "SELECT age, sex, region, education, sector, hired, children, income FROM people_synth LIMIT 4")
    _say(session, "\n-- How good is it? That compares with the raw table: for the custodian, not for publication")
    _show(session, f"SELECT k, queries, cells, round(tvd, 4) AS tvd, round(maximum_100) AS maximum_100\n{EVALUATED}")
    one, pair, most = _row(session, SUMMED)
    _say(session, f"-- tvd: {one:.1f} % of the rows are in a wrong bin or category of a column, {pair:.1f} % of a pair of columns;")
    _say(session, f"-- maximum_100: of all counts of those, the worst is {most:,.0f} rows off. Statistics are as near:")
    _show(session, BOTH)


def _lead_on(session: Session) -> None:
    """Say what to type next."""
    file = "demo.db" if session.path == MEMORY else session.path
    _say(session, "\n-- Next:")
    if session.path == MEMORY:
        _say(session, f"dpsql demo --database {file}   # the same in a file, for what follows")
    _say(session, f"dpsql -c \"FROM dp_query('SELECT region, avg(age) FROM people GROUP BY 1', epsilon := 0.1)\" {file}")  # noqa: S608 -- constants of this module
    _say(session, f"dpsql budget {file}")
    _say(session, "-- and with a table of your own, in five minutes: docs/first-answer.md")


def _row(session: Session, query: str) -> tuple[float, ...]:
    """Return the only row of a query."""
    (row,) = session.guarded(lambda: session.con.execute(query).fetchall())
    return tuple(row)


def _say(session: Session, text: str) -> None:
    session.out.write(f"{text}\n")
    session.out.flush()


def _show(session: Session, query: str) -> None:
    _say(session, f"{query};")
    session.statement(query)
