"""`dpsql serve`."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from dpsql.errors import ArgumentError

_UNITS = {"": 1.0, "s": 1.0, "ms": 0.001, "m": 60.0}


def add_serve(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command and its options."""
    told = "serve a database to analysts over DuckDB's own protocol, Quack; the process owns the file"
    serve = commands.add_parser("serve", help=told, description=told[0].upper() + told[1:] + ".")
    serve.add_argument("database", metavar="FILE", type=Path, help="DuckDB file")
    serve.add_argument("--listen", required=True, metavar="HOST:PORT", help="a loopback address: localhost:9494")
    serve.add_argument("--analysts", required=True, metavar="FILE", type=Path, help="who may ask: dpsql analyst add makes it")
    serve.add_argument("--time-limit", type=float, default=60.0, metavar="SECONDS", help="of one statement (default: 60)")
    told_own = "of one dpsql call of a custodian's (default: no limit)"
    serve.add_argument("--custodian-time-limit", type=float, default=float("inf"), metavar="SECONDS", help=told_own)
    serve.add_argument("--memory", default="4GB", metavar="SIZE", help="DuckDB's memory limit (default: 4GB)")
    told_every = "answer at multiples of this time only, so that the time says less: 1s (default: as soon as there is an answer)"
    serve.add_argument("--answer-every", default="0s", metavar="TIME", help=told_every)
    serve.add_argument("--read-only-analysts", action="store_true", help="analysts read what they bought, and buy nothing")
    serve.add_argument("--log", metavar="FILE", type=Path, help="a line of JSON a statement: who, when, outcome; no text or values")
    serve.add_argument("--store", metavar="FOLDER", type=Path, help="where releases are kept (default: FILE.dpsql)")
    serve.add_argument("--health", metavar="PORT", type=int, help="answer GET http://127.0.0.1:PORT/health")
    serve.add_argument("--max-rows", type=int, default=1_000_000, metavar="N", help="of one answer (default: 1000000)")
    serve.add_argument("--at-once", type=int, metavar="N", help="statements that run at once (default: as many as cores)")
    serve.add_argument("--allow-other-hostname", action="store_true", help="an address that other machines reach, in clear")
    serve.add_argument("--encryption-key-env", metavar="NAME", help="variable that has the key of an encrypted database")
    told_key = "file that has it, which its owner alone may read"
    serve.add_argument("--encryption-key-file", metavar="FILE", type=Path, help=told_key)


def run_serve(chosen: argparse.Namespace) -> None:
    """Serve until a signal ends it."""
    from dpsql.serve.server import Options, serve  # takes half a second, which other commands need not wait for

    own = {} if chosen.at_once is None else {"at_once": max(1, chosen.at_once)}
    serve(
        Options(
            database=chosen.database, listen=chosen.listen, analysts=chosen.analysts, time_limit=chosen.time_limit,
            memory=chosen.memory, answer_every=seconds(chosen.answer_every), read_only_analysts=chosen.read_only_analysts,
            log=chosen.log, store=chosen.store, health=chosen.health, other_hosts=chosen.allow_other_hostname,
            custodian_time_limit=chosen.custodian_time_limit, encryption_key_env=chosen.encryption_key_env,
            encryption_key_file=chosen.encryption_key_file, rows=chosen.max_rows, **own,
        )
    )  # fmt: skip


def seconds(text: str) -> float:
    """Return how many seconds '1s', '500ms' or '2' are.

    Raises
    ------
    ArgumentError

    Examples
    --------
    >>> seconds("500ms"), seconds("2")
    (0.5, 2.0)
    """
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|)", text)
    if not found:
        raise ArgumentError("answer-every", text, "a time is required: 1s, 500ms")
    return float(found[1]) * _UNITS[found[2]]
