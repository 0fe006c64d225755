"""What the custodian looks at while the database is served: budgets, analysts and how much was asked, as a page of HTML.

It is read from the books and the file of analysts when it is asked for, needs no other file, runs no script and keeps nothing. It
listens on a loopback address, where others may be logged in, so its path is 256 random bits that are said once, when the server
starts: whoever has them is the custodian, and everybody else is answered as by nothing.

Privacy: none of it is read from rows: budgets, charges, uses and grants of the books, names and states of analysts. No question, no
value and no release is in it.
"""

from __future__ import annotations

import datetime as dt
import hmac
import threading
from collections.abc import Iterator, Sequence
from http import HTTPStatus
from typing import Any, Protocol

import duckdb

from dpsql.noise.entropy import random_bytes
from dpsql.page.markup import number, table, text
from dpsql.page.style import CSS
from dpsql.serve.http import LIMITS, HttpDoor, Reply
from dpsql.serve.options import Address
from dpsql.serve.roster import Analyst
from dpsql.serve.visits import Limits

DAYS = 30
"""So many days are listed."""
MOST = 500
"""Rows of a table of the page."""
_HEAD = (
    "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'", "Cache-Control: no-store", "Referrer-Policy: no-referrer", "X-Content-Type-Options: nosniff",
)  # fmt: skip
_BUDGETS = (
    "SELECT source, epsilon, epsilon_spent, epsilon_left, 100 * share_used, delta, releases, books FROM dp_budget() "
    "ORDER BY source ASC"
)
_GRANTS = (
    "SELECT analyst, source, epsilon, epsilon_spent, epsilon_left, per_query, renew, renews_on FROM dp_grant() "
    "WHERE change = 'in force' ORDER BY analyst ASC, source ASC"
)
_ASKED = (
    "SELECT CAST(written_at AS DATE), who, count(*) FILTER (WHERE action = 'charge'), count(*) FILTER (WHERE action = 'use'), "
    "sum(epsilon) FILTER (WHERE action = 'charge') FROM dp_ledger() WHERE action IN ('charge', 'use') "
    "AND written_at >= $1 GROUP BY ALL ORDER BY 1 DESC, 2 ASC"
)


class Roll(Protocol):
    """Who may come in (`dpsql.serve.analysts.Analysts`)."""

    def all(self) -> Sequence[Analyst]:
        """Return all analysts."""

    def public(self) -> frozenset[str]:
        """Return what is published."""


class StatusDoor(HttpDoor):
    """Answers GET of one path that nobody guesses.

    Parameters
    ----------
    at : Address
        A loopback one.
    con : DuckDB connection
        Of the served database, as its custodian.
    roll : Roll
    database : str
        As analysts know it.
    limits : Limits, optional
        Of whoever asks.
    """

    def __init__(self, at: Address, con: duckdb.DuckDBPyConnection, roll: Roll, database: str, limits: Limits = LIMITS) -> None:
        super().__init__(at, "dpsql-status", limits)
        self._con, self._roll, self._database = con, roll, database
        self._path = f"/{random_bytes(32).hex()}"
        self._asking = threading.Lock()

    @property
    def told(self) -> str:
        """What the custodian is told when it listens."""
        return f"status: http://{Address(self._at.host, self.port)}{self._path} (who has this address sees budgets and analysts)"

    def reply(self, path: bytes | None) -> Reply:
        """Return the page; of another path nothing."""
        if path is None or not hmac.compare_digest(path, self._path.encode()):
            return Reply(HTTPStatus.NOT_FOUND, "not found")
        with self._asking:
            try:
                page = self.page(dt.datetime.now(dt.UTC))
            except Exception:  # nothing of it is said: the server stops, or the books cannot be read, which dpsql ledger explains
                return Reply(HTTPStatus.SERVICE_UNAVAILABLE, "the books cannot be read now")
        return Reply(HTTPStatus.OK, page, "text/html; charset=utf-8", _HEAD)

    def page(self, now: dt.datetime) -> str:
        """Return the page at a time."""
        since = (now - dt.timedelta(days=DAYS)).replace(tzinfo=None)
        with self._con.cursor() as cursor:
            budgets = cursor.execute(_BUDGETS).fetchall()
            grants = cursor.execute(_GRANTS).fetchmany(MOST)
            asked = cursor.execute(_ASKED, [since]).fetchmany(MOST)
        title = f"{self._database}: status"
        body = "".join(_sections(budgets, grants, asked, self._roll, now))
        return (
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">'
            f'<meta name="robots" content="noindex"><title>{text(title)}</title><link rel="icon" href="data:,">'
            f'<style>{CSS}</style></head><body><header><p class="kicker">dpsql serve</p><h1>{text(title)}</h1>'
            f'<p class="lead">{now:%Y-%m-%d %H:%M} UTC, from the books and the file of analysts. Load it again for later.</p>'
            f"</header><main>{body}</main></body></html>"
        )


def _sections(
    budgets: Sequence[Sequence[Any]], grants: Sequence[Sequence[Any]], asked: Sequence[Sequence[Any]], roll: Roll, now: dt.datetime
) -> Iterator[str]:
    head: tuple[str, ...] = ("table", "epsilon", "spent", "left", "used", "delta", "releases", "books")
    rows: list[tuple[object, ...]]
    rows = [(row[0], *map(number, row[1:4]), f"{number(row[4], 3)} %", number(row[5]), *row[6:]) for row in budgets]
    yield _section("Budgets", table(head, rows, label="budgets", numeric=range(1, 7)), bool(rows), "No table is protected.")
    head = ("analyst", "table", "epsilon", "spent", "left", "of one question", "renews", "next")
    rows = [(*row[:2], *map(number, row[2:6]), row[6] or "never", row[7] or "–") for row in grants]
    yield _section("Grants in the books", table(head, rows, label="grants", numeric=range(2, 6)), bool(rows), "There are none.")
    head = ("analyst", "token", "expires", "epsilon of one question")
    people = [(one.name, one.state(now), _day(one.expires), _prices(one)) for one in roll.all()[:MOST]]
    yield _section("Analysts", table(head, people, label="analysts"), bool(people), "Nobody may come in.")
    head = ("day", "who", "bought", "shared", "epsilon, added up")
    rows = [(day, who, charges, uses, number(epsilon or 0.0)) for day, who, charges, uses, epsilon in asked]
    days = f"Nothing was bought in the last {DAYS} days."
    body = table(head, rows, label="questions", numeric=range(2, 5))
    yield _section(f"Questions of the last {DAYS} days", body, bool(rows), days)
    published = ", ".join(sorted(roll.public())) or "nothing"
    yield _section("Published", f"<p>{text(published)}</p>", True, "")


def _section(title: str, body: str, shown: bool, otherwise: str) -> str:
    return f"<section><h2>{text(title)}</h2>{body if shown else f'<p>{text(otherwise)}</p>'}</section>"


def _day(moment: dt.datetime | None) -> str:
    return "never" if moment is None else f"{moment.astimezone(dt.UTC):%Y-%m-%d}"


def _prices(analyst: Analyst) -> str:
    return ", ".join(f"{name}={epsilon:g}" for name, epsilon in sorted(analyst.grants.items())) or "–"
