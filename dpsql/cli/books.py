"""The books for people who don't write SQL: budget, ledger, releases, a plan, a report. Nothing here reads a protected row."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import dpsql
from dpsql import sql
from dpsql.cli.session import Session
from dpsql.session.instance import ANALYST
from dpsql.text.relation import literal

FOR_PROGRAMS = ("csv", "json", "jsonlines")
"""Modes that get the columns of the dp_* call as they are, with all digits."""


def show(session: Session, view: str, call: str) -> None:
    """Print a call through its view for people, or as it is for programs."""
    text = f"FROM {call}"
    if session.look.mode not in FOR_PROGRAMS:
        text = sql.text(f"show_{view}").replace("{call}", call)
        session.look.null, session.look.plain = "", True
    session.look.rows = 0
    session.statement(text)


def books(session: Session, view: str, source: str | None, analyst: str | None = None) -> None:
    """Print budget, ledger or releases of one table, or of all; the ledger also of one analyst."""
    if not protected(session):
        sys.stderr.write(f"{session.path}: no table is protected yet: CALL dp_protect('table', epsilon := ..., delta := ...)\n")
    call = f"dp_{view}({'' if source is None else literal(source)})"
    if analyst is not None:
        about = f"action IN ('grant', 'revoke') AND parameters ->> '$.analyst' = {literal(analyst)}"
        call = f"(SELECT * FROM {call} WHERE who = {literal(ANALYST + analyst)} OR {about})"  # noqa: S608 -- literals
    show(session, view, call)


def heads(session: Session, source: str | None) -> None:
    """Print where each ledger ends (table, entry, hash), to be kept elsewhere; in every mode the same columns."""
    call = f"dp_ledger({'' if source is None else literal(source)})"
    session.look.rows = 0
    session.statement(sql.text("show_heads").replace("{call}", call))


def protected(session: Session) -> bool:
    """Whether the database has books."""
    query = "SELECT count(*) FROM duckdb_tables() WHERE schema_name = 'dpsql' AND table_name = 'ledger'"
    row = session.guarded(lambda: session.con.execute(query).fetchone())
    return row is not None and row[0] > 0


def plan(session: Session, source: str, arguments: Mapping[str, float | str | None]) -> None:
    """Print what a purchase with these arguments would measure and cost."""
    named = "".join(f", {name} := {literal(value)}" for name, value in arguments.items() if value is not None)
    show(session, "plan", f"dp_plan({literal(source)}{named})")


def report(session: Session, release: str, path: str | None, *, compare: bool) -> None:
    """Write the page about a release, and print where it is."""
    target = Path(path if path is not None else f"{release}.html")
    session.guarded(lambda: dpsql.report(session.con, release, path=target, compare=compare).fetchall())
    sys.stdout.write(f"{target}\n")
