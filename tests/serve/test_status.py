"""The custodian's page: what the books say, escaped, for whoever has its address; others are answered as by nothing."""

from __future__ import annotations

import datetime as dt
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import duckdb
import pytest
from struck import LONG

import dpsql
from dpsql.errors import ArgumentError
from dpsql.serve import analysts
from dpsql.serve.analysts import Analysts
from dpsql.serve.doors import DOORS, room
from dpsql.serve.options import Address, Options
from dpsql.serve.server import Server, Stopping
from dpsql.serve.status import StatusDoor

SECRET = 987654321
ODD = "<script>alert(1)</script>"
TABLES = f"""
CREATE TABLE visits AS SELECT i AS patient, 'ward' || {SECRET} AS ward, {SECRET} + i AS cost FROM range(2000) t(i);
CREATE TABLE "{ODD}" AS SELECT 1 AS x;
CALL dp_protect('visits', epsilon := 4, delta := 1e-9);
CALL dp_protect('"{ODD}"', epsilon := 2, delta := 1e-9);
CALL dp_grant('visits', analyst := 'alice', epsilon := 1, per_query := 0.2, renew := 'month');
"""
QUESTION = "SELECT count(*) AS n FROM visits WHERE cost > 987654400"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, str]]:
    """A server as the command makes it, with a question that was asked, and the address of its page."""
    folder: Path = tmp_path_factory.mktemp("status")
    with duckdb.connect(folder / "census.duckdb") as con:
        dpsql.load(con)
        con.execute(TABLES)
    for name in ("alice", "bob"):
        analysts.add(folder / "analysts.toml", name, {"main.visits": 0.1})
    analysts.revoke(folder / "analysts.toml", "bob")
    options = Options(folder / "census.duckdb", folder / "analysts.toml", mysql=Address("localhost", 0), status=Address("localhost", 0), memory="1GB")
    stopping = Stopping()
    server = Server(options, room, DOORS, lambda text: None, stopping)
    server._room.ask("alice", QUESTION)
    (told,) = server.told
    found = re.fullmatch(r"status: (http://localhost:[0-9]+/[0-9a-f]{64}) \(who has this address sees budgets and analysts\)", told)
    assert found is not None
    yield server, found[1]
    stopping.ask()
    server.run()


def got(url: str) -> tuple[int, dict[str, str], str]:
    try:
        with urllib.request.urlopen(url, timeout=LONG) as answer:
            return answer.status, dict(answer.headers), answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, dict(error.headers), error.read().decode()


class Read(HTMLParser):
    """Tags, and texts of cells."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.rows: list[list[str]] = []
        self._cell = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        if tag == "tr":
            self.rows.append([])
        self._cell = tag in ("td", "th")
        if self._cell:
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        self._cell = self._cell and tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        if self._cell:
            self.rows[-1][-1] += data


def test_it_shows_what_the_books_say(served: tuple[Server, str]) -> None:
    server, url = served
    status, head, page = got(url)
    rows = Read(page).rows
    ((epsilon, spent, left, releases),) = server._opened.con.cursor().execute(
        "SELECT epsilon, epsilon_spent, epsilon_left, releases FROM dp_budget('visits')"
    ).fetchall()
    (budget,) = [row for row in rows if row[0] == "main.visits"]
    assert status == 200 and budget[1] == f"{epsilon:g}" and (float(budget[2]), float(budget[3])) == pytest.approx((spent, left), rel=1e-3)
    assert budget[6:] == [str(releases), "intact"] and releases == 1
    (grant,) = [row for row in rows if row[:2] == ["alice", "main.visits"]]
    assert grant[2] == "1" and grant[5:7] == ["0.2", "month"]
    assert ["alice", "valid", "never", "main.visits=0.1"] in rows and ["bob", "revoked", "never", "main.visits=0.1"] in rows
    (asked,) = [row for row in rows if row[1:2] == ["analyst alice"]]
    assert asked[2:4] == ["1", "0"] and float(asked[4]) == pytest.approx(0.1, rel=1e-2)
    assert head["Content-Type"] == "text/html; charset=utf-8" and head["Cache-Control"] == "no-store" and "default-src 'none'" in head["Content-Security-Policy"]


def test_it_shows_no_figure_question_or_release(served: tuple[Server, str]) -> None:
    """Nor anything of tokens: of rows there is nothing in it, and what was asked stays in the books."""
    server, url = served
    page = got(url)[2]
    cursor = server._opened.con.cursor()
    numbers = cursor.execute("SELECT release FROM dp_releases()").fetchall()
    assert "987654" not in page and "cost" not in page and "patient" not in page and "count(" not in page
    assert not any(release in page for (release,) in numbers)
    held = (server._opened.store.parent / "analysts.toml").read_text()
    assert not any(secret in page for secret in re.findall(r'(?:salt|hash|native) = "([^"]+)"', held))


def test_names_are_escaped_and_nothing_runs(served: tuple[Server, str]) -> None:
    page = got(served[1])[2]
    read = Read(page)
    assert ODD not in page and any(ODD in row[0] for row in read.rows if row)
    assert not {"script", "iframe", "img", "form", "object", "embed"} & set(read.tags)
    assert not re.search(r"""(?:src|href|action)=(?!"data:,")|@import|url\(""", page)


def test_others_are_answered_as_by_nothing(served: tuple[Server, str]) -> None:
    url = served[1]
    base, _, secret = url.rpartition("/")
    wrong = f"{secret[:-1]}{'0' if secret[-1] != '0' else '1'}"
    answers = [got(f"{base}/{path}")[::2] for path in ("", "status", wrong, secret[:-1], f"{secret}/", f"{secret}?x", "..%2f", "analysts.toml")]
    assert set(answers) == {(404, "not found\n")}


def test_an_address_that_others_reach_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="only a loopback address"):
        Options(tmp_path / "x", tmp_path / "y", mysql=Address("localhost", 0), status=Address("0.0.0.0", 8307))


def test_addresses_are_new_each_time_and_what_fails_says_nothing(tmp_path: Path) -> None:
    analysts.add(tmp_path / "analysts.toml", "alice", {})
    con = duckdb.connect()  # there are no books, and no macros
    one, other = (StatusDoor(Address("localhost", 0), con, Analysts(tmp_path / "analysts.toml"), "census") for _ in range(2))
    assert one.told != other.told
    path = one.told.split("/")[-1].split(" ")[0]
    reply = one.reply(f"/{path}".encode())
    assert (reply.status.value, reply.text) == (503, "the books cannot be read now") and one.reply(None).status.value == 404


def test_without_anything_it_says_so(tmp_path: Path) -> None:
    con = duckdb.connect(tmp_path / "empty.duckdb")
    dpsql.load(con)
    analysts.add(tmp_path / "analysts.toml", "alice", {})
    page = StatusDoor(Address("localhost", 0), con, Analysts(tmp_path / "analysts.toml"), "empty").page(dt.datetime(2026, 1, 2, 3, 4, tzinfo=dt.UTC))
    for told in ("No table is protected.", "There are none.", "Nothing was bought in the last 30 days.", "2026-01-02 03:04 UTC", "nothing"):
        assert told in page
    con.close()
