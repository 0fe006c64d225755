"""`dpsql grant`: what an analyst may spend of a table, in the books; and that the table is open to her, in the file of analysts."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from dpsql.cli.books import show
from dpsql.cli.session import Session
from dpsql.text.relation import literal

NONE = "none"
"""What --renew is where it is said and there is no window."""


def options(parser: argparse.ArgumentParser) -> None:
    """Add what the command is told."""
    parser.add_argument("database", metavar="FILE", help="DuckDB file; no server may have it")
    parser.add_argument("source", nargs="?", metavar="TABLE", help="protected table; without --epsilon its grants are listed")
    parser.add_argument("--analyst", metavar="NAME", help="as `dpsql analyst list` shows it")
    parser.add_argument("--epsilon", type=float, help="the most that she may spend, within a window")
    parser.add_argument("--per-query", type=float, metavar="EPSILON", help="the most that one question may cost")
    told = "when the grant begins anew, in UTC (default: none; the table's own budget never does)"
    parser.add_argument("--renew", choices=("month", "week", NONE), help=told)
    told_methods = "what she may buy with: dp_query,dp_synthesize,latent_class (default: all)"
    parser.add_argument("--methods", metavar="A,B", help=told_methods)
    parser.add_argument("--columns", metavar="A,B", help="what she may read, in conditions as well (default: all)")
    parser.add_argument("--remove", action="store_true", help="take the grant back: the table is closed to her")
    parser.add_argument("--analysts", metavar="FILE", type=Path, help="default: analysts.toml beside the database")


def grant(session: Session, chosen: argparse.Namespace) -> None:
    """Set, list or take back grants, and open the table to her who has one."""
    renew = None if chosen.renew == NONE else chosen.renew
    lists = {name: None if getattr(chosen, name) is None else getattr(chosen, name).split(",") for name in ("methods", "columns")}
    arguments = {
        "source": chosen.source, "analyst": chosen.analyst, "epsilon": chosen.epsilon, "per_query": chosen.per_query,
        "renew": renew, **lists, "remove": chosen.remove,
    }
    # What is not said keeps its default; `false` is the default of `remove`.
    told = {name: value for name, value in arguments.items() if value is not None and value is not False}
    written = ", ".join(f"{name} := {literal(value)}" for name, value in told.items())
    show(session, "grants", f"dp_grant({written})")
    if chosen.epsilon is not None:
        _open(session, chosen)


def _open(session: Session, chosen: argparse.Namespace) -> None:
    """Open the table to the analyst where the file of analysts does not yet, at the price of a question that the grant says."""
    from dpsql.cli.serving import key
    from dpsql.serve import analysts
    from dpsql.serve.roster import MOST

    path, table, name = chosen.analysts or analysts.beside(session.path), key("table", chosen.source), chosen.analyst
    # A question costs what the grant lets one cost, by default a tenth of the whole.
    price = min(chosen.epsilon / 10 if chosen.per_query is None else chosen.per_query, MOST)
    known = {analyst.name: analyst for analyst in analysts.Analysts(path).all()} if path.exists() else {}
    if name not in known:
        told = f"there is no analyst {name} yet: dpsql analyst add {name} {session.path} --grant {chosen.source}={price:g}"
    elif table in known[name].grants:
        return
    else:
        analysts.grant(path, name, {table: price})
        told = f"{name} may ask {table} now, at {price:g} a question"
    sys.stderr.write(f"{told}\n")
