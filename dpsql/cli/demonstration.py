"""`dpsql demo`: the main job on a made-up table, or on three linked ones."""

from __future__ import annotations

import time
from functools import partial

import dpsql
from dpsql import demo as sample
from dpsql.cli.session import Session


def run_demo(session: Session, rows: int, epsilon: float) -> None:
    """Protect, declare, plan, synthesize, evaluate, and show the books.

    Raises
    ------
    ArgumentError
        ``rows`` is out of range.
    """
    if not 1 <= rows <= 100_000_000:
        raise dpsql.ArgumentError("--rows", rows, "must be from 1 to 100,000,000")
    session.guarded(lambda: sample.create_people(session.con, rows))
    _say(session, f"-- A made-up table of {rows:,} people: mixed types, NULLs, dates, skew, dependence")
    _show(session, "FROM people LIMIT 5")
    _say(session, "\n-- The custodian protects it and declares what values are possible (ENUM and BOOLEAN declare themselves)")
    for statement in (sample.PROTECT, *sample.DECLARE):
        _say(session, f"{statement};")
        session.guarded(partial(session.con.execute, statement))
    _say(session, "\n-- Before spending: what would it cost?")
    _show(
        session,
        "SELECT tables, cells, mechanism, round(noise_scale, 2) AS noise_scale, epsilon, epsilon_left_after "  # noqa: S608
        f"FROM dp_plan('people', epsilon := {epsilon})",
    )
    _say(session, "\n-- Spend: one statement from the raw table to a synthetic one")
    started = time.perf_counter()
    _show(session, f"CREATE OR REPLACE TABLE people_synth AS FROM dp_synthesize('people', epsilon := {epsilon})")
    _say(session, f"   ({time.perf_counter() - started:.1f} s)")
    _show(session, "FROM people_synth LIMIT 8")
    _say(session, "\n-- How accurate is it? (compares with the raw table: for the custodian, not for publication)")
    _show(
        session,
        "SELECT k, queries, cells, round(tvd, 4) AS tvd, round(average_95, 1) AS average_95, "
        "round(average_100, 1) AS average_100, round(maximum_100) AS maximum_100 FROM dp_evaluate('people', 'people_synth')",
    )
    _say(session, "\n-- Those are counts of bins. How far are the values, inside bins too? (relative: in interquartile ranges)")
    _show(
        session,
        "SELECT column_name, measure, round(error, 4) AS error, round(relative, 4) AS relative "
        "FROM dp_evaluate('people', 'people_synth', report := 'values', max_k := 1) WHERE measure IN ('ks', 'wasserstein')",
    )
    _say(session, "\n-- The books: what was spent")
    _show(
        session,
        "SELECT entry, written_at, action, release, round(epsilon, 4) AS epsilon, round(rho, 6) AS rho, chain_holds "
        "FROM dp_ledger('people')",
    )
    _show(session, "SELECT source, epsilon, delta, epsilon_spent, epsilon_left, releases FROM dp_budget('people')")


def run_linked_demo(session: Session, patients: int, epsilon: float) -> None:
    """Protect, link, declare, plan, synthesize, evaluate, and show the books, of patients, visits and procedures.

    Raises
    ------
    ArgumentError
        ``patients`` is out of range.
    """
    if not 1 <= patients <= 10_000_000:
        raise dpsql.ArgumentError("--rows", patients, "must be from 1 to 10,000,000")
    session.guarded(lambda: sample.create_hospital(session.con, patients))
    _say(session, f"-- A made-up hospital: {patients:,} patients, their visits, and the procedures of those")
    _show(session, "FROM visits JOIN patients USING (patient_id) LIMIT 5")
    _say(session, "\n-- One budget for all three: a visit is its patient's, and so is a procedure of it")
    for statement in (*sample.PROTECT_LINKED, *sample.DECLARE_LINKED):
        _say(session, f"{statement};")
        session.guarded(partial(session.con.execute, statement))
    _say(session, "\n-- Spend: one statement from the raw database to a synthetic one")
    started = time.perf_counter()
    _show(session, f"FROM dp_synthesize_tables('patients', epsilon := {epsilon}, into_schema := 'synth')")
    _say(session, f"   ({time.perf_counter() - started:.1f} s)")
    _show(session, "FROM synth.visits JOIN synth.patients USING (patient_id) LIMIT 8")
    _say(session, "\n-- How accurate is it? (compares with the raw rows: for the custodian, not for publication)")
    _show(
        session,
        "SELECT measure, figures, round(error, 4) AS error, round(largest, 4) AS largest, round(independent, 4) AS independent "
        "FROM dp_evaluate('patients', 'synth') WHERE level = 'summary'",
    )
    _say(session, "\n-- The books: what was spent, for all three")
    _show(session, "SELECT source, epsilon, delta, epsilon_spent, epsilon_left, releases FROM dp_budget('visits')")


def _say(session: Session, text: str) -> None:
    session.out.write(f"{text}\n")
    session.out.flush()


def _show(session: Session, query: str) -> None:
    _say(session, f"{query};")
    session.statement(query)
