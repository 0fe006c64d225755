"""Analysts of a served database, for people who don't write SQL: who may come in, what each may spend, what is published."""

from __future__ import annotations

import argparse
import datetime as dt
import sys
from collections.abc import Callable, Sequence

from dpsql.cli.session import Session
from dpsql.serve import tokens
from dpsql.text.relation import literal

Adder = Callable[[str, Callable[[Session, argparse.Namespace], int | None], str], argparse.ArgumentParser]


def add_commands(command: Adder) -> None:
    """Add `dpsql grant` and `dpsql publish`."""
    grant = command("grant", _grant, "what an analyst of a served database may spend of a table; without --epsilon: list")
    grant.add_argument("database", metavar="FILE", help="DuckDB file")
    grant.add_argument("source", nargs="?", metavar="TABLE", help="protected table; grants of all are listed, if left out")
    grant.add_argument("--analyst", metavar="NAME", help="as in the file of tokens")
    grant.add_argument("--epsilon", type=float, help="the most she spends within a window")
    grant.add_argument("--per-query", type=float, metavar="EPSILON", help="the most of one call, and what a query costs by default")
    grant.add_argument("--renew", choices=["month", "week"], help="the window, in UTC (default: for ever)")
    grant.add_argument("--methods", metavar="A,B", help="calls and synthesizers that she may buy with (default: all)")
    grant.add_argument("--columns", metavar="A,B", help="columns that she may read (default: all)")
    grant.add_argument("--remove", action="store_true", help="take the grant back")
    publish = command("publish", _publish, "let analysts read a table or view without protected rows; without TABLE: list")
    publish.add_argument("database", metavar="FILE", help="DuckDB file")
    publish.add_argument("source", nargs="?", metavar="TABLE", help="the table or view")
    publish.add_argument("--remove", action="store_true", help="take the publication back")


def add_tokens(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `dpsql analyst add|list|revoke`, which open no database."""
    analyst = commands.add_parser("analyst", help="who may come in to a served database").add_subparsers(
        dest="analyst_command", required=True, metavar="add|list|revoke"
    )
    for name, told in {
        "add": "add an analyst and print the token, which is shown this once",
        "list": "list analysts",
        "revoke": "revoke a token; open sessions end",
    }.items():
        made = analyst.add_parser(name, help=told, description=told[0].upper() + told[1:] + ".")
        made.add_argument("--file", default=tokens.FILE, metavar="FILE", help=f"the file of analysts (default: {tokens.FILE})")
        if name != "list":
            made.add_argument("name", metavar="NAME", help="letters, digits, '_', '-' and '.'")
        if name == "add":
            made.add_argument("--expires", metavar="90d", help="how long the token holds: 12h, 90d, 8w (default: until revoked)")
            made.add_argument("--custodian", action="store_true", help="may do everything, over the wire")


def run_tokens(chosen: argparse.Namespace) -> int:
    """Run `dpsql analyst ...`; return 0. The token goes to standard output alone, what else there is to say to standard error."""
    if chosen.analyst_command == "add":
        token = tokens.add(chosen.file, chosen.name, custodian=chosen.custodian, expires=chosen.expires)
        sys.stderr.write(f"the token of {chosen.name}, shown this once; {chosen.file} has its hash:\n")
        sys.stdout.write(f"{token}\n")
    elif chosen.analyst_command == "revoke":
        found = tokens.revoke(chosen.file, chosen.name)
        sys.stdout.write(f"{found.name} is revoked\n")
    else:
        sys.stdout.writelines(f"{line}\n" for line in _listed(tokens.Analysts(chosen.file).all()))
    return 0


def _listed(held: Sequence[tokens.Analyst]) -> list[str]:
    """Return the analysts as a table."""
    today = dt.datetime.now(dt.UTC)
    rows = [("name", "role", "state", "made", "expires")]
    for one in held:
        rows.append((one.name, one.role, one.state(today), _day(one.made), _day(one.expires)))
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    return ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _day(moment: dt.datetime | None) -> str:
    return "" if moment is None else f"{moment.astimezone(dt.UTC):%Y-%m-%d}"


def _grant(session: Session, chosen: argparse.Namespace) -> None:
    given = {name: getattr(chosen, name) for name in ("analyst", "epsilon", "per_query", "renew")}
    given |= {name: _names(getattr(chosen, name)) for name in ("methods", "columns")}
    named = "".join(f", {name} := {literal(value)}" for name, value in given.items() if value is not None)
    session.look.rows = 0
    taken = ", remove := true" if chosen.remove else ""
    session.statement(f"FROM dp_grant({literal(chosen.source)}{named}{taken})")


def _publish(session: Session, chosen: argparse.Namespace) -> None:
    source = [] if chosen.source is None else [literal(chosen.source)]
    session.look.rows = 0
    session.statement(f"FROM dp_publish({', '.join([*source, *(['remove := true'] if chosen.remove else [])])})")


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [part.strip() for part in text.split(",") if part.strip()]
