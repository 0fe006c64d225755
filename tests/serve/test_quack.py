"""The door for DuckDB's own clients: who comes in, what is run in place of a statement, how answers arrive.

The room is made up here. Clients are connections of DuckDB to a database of their own, over Quack; where its wheels are missing the
tests that need it are skipped. To run them: pip install --target FOLDER duckdb==1.5.5 duckdb-extension-quack==1.5.5
duckdb-extension-httpfs==1.5.5, and FOLDER first on the path.
"""

from __future__ import annotations

import datetime as dt
import math
import socket
import threading
import time
import uuid
from decimal import Decimal

import duckdb
import pytest
import tls_proxy

import dpsql
from dpsql.errors import ArgumentError, DpsqlError
from dpsql.serve import analysts, kept, quack
from dpsql.serve.analysts import Analysts
from dpsql.serve.doors import DOORS
from dpsql.serve.kept import Kept
from dpsql.serve.options import Address, Options
from dpsql.serve.passed import Answer, Column, Refused
from dpsql.serve.quack import OVER, UNFORESEEN, Desk
from dpsql.serve.server import Server, Stopping
from dpsql.session import extensions


def missing():
    """Why nothing is served here; None: all is there."""
    try:
        with duckdb.connect() as con:
            extensions.load_extensions(con)
    except DpsqlError as error:
        return str(error)
    return None


over_quack = pytest.mark.skipif(missing() is not None, reason=str(missing()))
SCHEMATA = "SELECT catalog_name, schema_name FROM information_schema.schemata"
TABLES = "SELECT schema_name, sql, 'table' FROM duckdb_tables()"
EVERY_TYPE = [
    ("BIGINT", -(1 << 62)), ("HUGEINT", (1 << 126) + 1), ("DOUBLE", 0.1), ("FLOAT", 0.5), ("DECIMAL(18,3)", Decimal("1.250")), ("BOOLEAN", True),
    ("VARCHAR", "it's\0 größe 😀"), ("DATE", dt.date(2020, 2, 29)), ("TIMESTAMP", dt.datetime(2020, 1, 2, 3, 4, 5, 678901)), ("TIME", dt.time(3, 4, 5)),
    ("INTERVAL", dt.timedelta(days=3, hours=2)), ("BLOB", b"\x00\xff'"), ("INTEGER[]", [1, None, 3]), ("STRUCT(a INTEGER, b VARCHAR)", {"a": 1, "b": "x"}),
    ("MAP(VARCHAR, INTEGER)", {"k": 1}), ("UUID", uuid.UUID(int=7)), ("ENUM('a', 'it''s')", "it's"), ("STRUCT(a DECIMAL(5,2)[])[]", [{"a": [Decimal("1.50")]}]),
    ("DOUBLE[2]", (1.0, 2.0)), ("UTINYINT", 250), ("TIMESTAMP WITH TIME ZONE", dt.datetime(2020, 1, 2, tzinfo=dt.UTC)),
]  # fmt: skip


class Room:
    """Answers what the test has put in; a text that is not known is refused by its words."""

    database = "census"

    def __init__(self):
        self.answers, self.asked = {}, []

    def ask(self, analyst, text, dialect="duckdb", parameters=()):
        said = " ".join(text.split())
        self.asked.append((analyst, said))
        if said.startswith(SCHEMATA):
            return Answer((Column("catalog_name", "VARCHAR"), Column("schema_name", "VARCHAR")), [("census", "main")])
        if said.startswith(TABLES):
            columns = tuple(Column(name, "VARCHAR") for name in ("schema_name", "sql", "'table'"))
            return Answer(columns, [("main", "CREATE TABLE wards(ward BIGINT, beds BIGINT);", "table")])
        if said == "fail":
            raise ValueError("secret 424242")
        if said not in self.answers:
            raise Refused("refused", f"it's refused: {said[:20]}")
        return self.answers[said]


@pytest.fixture
def cursor():
    with duckdb.connect() as con:
        kept.attach(con)
        yield con


@pytest.fixture
def census(tmp_path):
    with duckdb.connect(tmp_path / "census.duckdb") as con:
        dpsql.load(con)
        con.execute("CREATE TABLE wards AS SELECT 1::BIGINT AS ward, 20::BIGINT AS beds; CREATE TABLE raw AS SELECT 424242 AS secret")
    return tmp_path / "census.duckdb"


class Served:
    def __init__(self, census):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.file, self.room, self.stopping = census.with_name("analysts.toml"), Room(), Stopping()
        self.tokens = {name: analysts.add(self.file, name, {}) for name in ("alice", "bob")}
        self.options = Options(census, self.file, quack=Address("localhost", self.port), memory="1GB")
        self.server = Server(self.options, lambda *_: self.room, DOORS, print, self.stopping)
        self.clients = []

    def client(self, name="alice"):
        con = duckdb.connect()
        self.clients.append(con)
        extensions.load_extensions(con)
        con.execute(f"ATTACH 'quack:localhost:{self.port}' AS census (TOKEN '{self.tokens[name]}')")
        return con

    def stop(self):
        for con in self.clients:
            con.close()
        self.stopping.ask()
        self.server.run()


@pytest.fixture
def served(census, monkeypatch):
    monkeypatch.setattr(quack, "_READING", 0.0)
    made = Served(census)
    yield made
    made.stop()


def ask(con, text):
    return con.execute("FROM census.query(?)", [text]).fetchall()


def refusal(con, text):
    with pytest.raises(duckdb.Error) as found:
        con.execute(text).fetchall()
    return str(found.value).split("\n\nLINE")[0]


@over_quack
def test_an_answer_arrives_with_its_types_and_in_its_order(served):
    served.room.answers["everything"] = Answer(
        tuple(Column(f"c {kind}", kind) for kind, _ in EVERY_TYPE), [tuple(value for _, value in EVERY_TYPE), (None,) * len(EVERY_TYPE)]
    )
    rows = [(f"r{i % 7}", i) for i in range(120_000)]
    served.room.answers["many"] = Answer((Column("a", "VARCHAR"), Column("a", "BIGINT")), rows)
    served.room.answers["none"] = Answer((Column('a "b"', "DATE"),), [])
    alice = served.client()
    found = alice.execute("FROM census.query('everything')")
    with duckdb.connect() as own:
        wanted = own.execute("SELECT " + ", ".join(f"NULL::{kind} AS \"c {kind}\"" for kind, _ in EVERY_TYPE)).description
    assert [(name, str(kind)) for name, kind, *_ in found.description] == [(name, str(kind)) for name, kind, *_ in wanted]
    assert found.fetchall() == served.room.answers["everything"].rows
    assert ask(alice, "many") == rows
    empty = alice.execute("FROM census.query('none')")
    assert [(name, str(kind)) for name, kind, *_ in empty.description] == [('a "b"', "DATE")] and empty.fetchall() == []
    assert ("alice", "many") in served.room.asked


@over_quack
def test_a_refusal_is_its_text_and_what_fails_says_nothing(served):
    alice = served.client()
    assert "it's refused: FROM raw" in refusal(alice, "FROM census.query('FROM raw')")
    for statement in ("SET threads = 1", "SELECT 1; SELECT 2", "FROM quack_sessions()", "BEGIN"):
        assert "it's refused: " in refusal(alice, f"FROM census.query('{statement}')")
    told = refusal(alice, "FROM census.query('fail')")
    assert UNFORESEEN in told and "424242" not in told and ".py" not in told and "ValueError" not in told


@over_quack
def test_who_does_not_come_in(served):
    for token in ("", "x" * 8, served.tokens["alice"][:-1], "dpsql_" + "x" * 43):
        con = duckdb.connect()
        extensions.load_extensions(con)
        told = refusal(con, f"ATTACH 'quack:localhost:{served.port}' AS census (TOKEN '{token}')")
        assert "uthentication" in told or "token" in told.lower(), told
        con.close()
    assert served.room.asked == []


@over_quack
def test_a_proxy_speaks_tls_for_it(served, certificate):
    """What docs/serve.md says of a reverse proxy; from Python, whose client checks the certificate."""
    served.room.answers["FROM wards"] = Answer((Column("beds", "BIGINT"),), [(20,)])
    with tls_proxy.before(served.port, certificate) as port:
        there = f"quack://localhost:{port}"
        with dpsql.connect(there, served.tokens["alice"], ca=certificate[0]) as con:
            assert con.sql("FROM wards").fetchall() == [(20,)]
        with pytest.raises(DpsqlError, match="no connection"):
            dpsql.connect(there, served.tokens["alice"], tls=True)
        with pytest.raises(DpsqlError, match="no connection"):
            dpsql.connect(there, served.tokens["alice"])
    with dpsql.connect(f"quack://localhost:{served.port}", served.tokens["alice"]) as con:
        assert con.sql("FROM wards").fetchall() == [(20,)]
        with pytest.raises(DpsqlError, match=r"^it's refused: other"):
            con.sql("other")
    with pytest.raises(DpsqlError, match="no connection") as refused:
        dpsql.connect(f"quack://localhost:{served.port}", "wrong-token")
    assert "wrong-token" not in str(refused.value)


@over_quack
def test_each_statement_asks_whether_the_token_still_holds(served):
    served.room.answers["one"] = Answer((Column("a", "BIGINT"),), [(1,)])
    alice, bob = served.client(), served.client("bob")
    alice.execute("PREPARE again AS FROM census.query('one')")
    assert ask(alice, "one") == alice.execute("EXECUTE again").fetchall() == ask(bob, "one") == [(1,)]
    analysts.revoke(served.file, "alice")
    assert OVER in refusal(alice, "FROM census.query('one')")
    before = list(served.room.asked)
    assert alice.execute("EXECUTE again").fetchall() == [(1,)] and served.room.asked == before  # her client has it: nothing is sent
    assert OVER in refusal(alice, "PREPARE once_more AS FROM census.query('one')")
    served.tokens["alice"] = analysts.add(served.file, "alice", {})
    assert OVER in refusal(alice, "FROM census.query('one')")  # the session is the old token's
    assert ask(served.client(), "one") == ask(bob, "one") == [(1,)]
    assert {name for name, text in served.room.asked if text == "one"} == {"alice", "bob"}


@over_quack
def test_what_an_attached_client_sends_goes_to_the_room(served):
    served.room.answers["SELECT #1, #2 FROM wards"] = Answer((Column("ward", "BIGINT"), Column("beds", "BIGINT")), [(7, 8)])
    alice = served.client()
    assert alice.execute("FROM census.wards").fetchall() == [(7, 8)]
    for statement in (
        "INSERT INTO census.wards VALUES (5, 5)", "CREATE TABLE census.mine AS SELECT 1 AS a", "DELETE FROM census.wards", "DROP TABLE census.wards",
        "UPDATE census.wards SET beds = 0", "ALTER TABLE census.wards ADD COLUMN c INTEGER",
    ):  # fmt: skip
        assert refusal(alice, statement)
    assert ("alice", "INSERT INTO main.wards VALUES (NULL)") in served.room.asked
    served.stop()
    with duckdb.connect(served.options.database) as con:
        assert con.execute("FROM wards").fetchall() == [(1, 20)] and con.execute("SELECT count(*) FROM duckdb_tables() WHERE schema_name = 'main'").fetchall() == [(2,)]
    served.stop = lambda: None


@over_quack
def test_one_port_has_one_server(served, census, tmp_path):
    (tmp_path / "other").mkdir()
    with duckdb.connect(tmp_path / "other" / "other.duckdb"):
        pass
    options = Options(tmp_path / "other" / "other.duckdb", served.file, quack=served.options.quack, memory="1GB")
    with pytest.raises(ArgumentError, match=r"^quack = 'localhost:[0-9]+': another process listens there; name another port"):
        Server(options, lambda *_: Room(), DOORS, print, Stopping())


def test_what_is_said_where_the_extensions_are_missing(monkeypatch):
    assert extensions.missing("quack", "1.5.5").endswith("pip install duckdb-extension-quack==1.5.5 duckdb-extension-httpfs==1.5.5")
    told = extensions.missing("quack", "2.0.1")
    assert "no wheels of it for DuckDB 2.0.1" in told and "duckdb==1.5.5" in told and "--mysql needs neither" in told
    monkeypatch.setattr(extensions, "wheel_file", lambda name: None)
    monkeypatch.setattr(extensions, "NAMES", ("no_such_extension",))
    with duckdb.connect(config={"autoinstall_known_extensions": False}) as con, pytest.raises(DpsqlError, match="extension no_such_extension is missing"):
        extensions.load_extensions(con)


def test_answers_are_kept_for_a_while(cursor):
    def tables():
        return {name for (name,) in cursor.execute("SELECT table_name FROM duckdb_tables() WHERE database_name = '__dpsql_answers'").fetchall()}

    def one(number):
        return Answer((Column("n", "BIGINT"),), [(number,)])

    held = Kept(cursor, each=2)
    assert held.latest() == -math.inf
    queries = [held.put("s", one(number)) for number in range(3)]
    assert cursor.execute(queries[2]).fetchall() == [(2,)] and cursor.execute(queries[1]).fetchall() == [(1,)] and len(tables()) == 2
    with pytest.raises(duckdb.CatalogException):
        cursor.execute(queries[0])
    assert held.put("t", one(3)) and len(tables()) == 3 and held.latest() <= time.monotonic()
    brief = Kept(cursor, seconds=-1.0)
    assert [brief.put("s", one(number)) for number in range(2)] and len(tables()) == 3  # of these both are too old


def test_not_a_number_stays_what_it_is(cursor):
    query = Kept(cursor).put("s", Answer((Column("x", "DOUBLE"), Column("y", '"NULL"')), [(math.nan, None), (0.1, None), (None, None), (-math.inf, None)]))
    rows = cursor.execute(query).fetchall()
    assert math.isnan(rows[0][0]) and [row[0] for row in rows[1:]] == [0.1, None, -math.inf]


def test_what_cannot_be_kept_leaves_nothing(cursor):
    with pytest.raises(duckdb.Error):
        Kept(cursor).put("s", Answer((Column("x", "BIGINT"),), [("no number",)]))
    assert cursor.execute("SELECT count(*) FROM duckdb_tables() WHERE database_name = '__dpsql_answers'").fetchall() == [(0,)]


@pytest.fixture
def desk(cursor, tmp_path):
    token = analysts.add(tmp_path / "analysts.toml", "alice", {})
    room = Room()
    room.answers["one"] = Answer((Column("a", "BIGINT"),), [(1,)])

    def made(**given):
        return Desk(room, Analysts(tmp_path / "analysts.toml"), Kept(cursor), **given)

    made.token, made.room, made.path = token, room, tmp_path / "analysts.toml"
    return made


def test_answers_and_refusals_leave_at_multiples(desk):
    slept = []
    slow = desk(every=1000.0, sleep=slept.append)
    assert slow.comes_in("s", desk.token, "")
    assert slow.is_run("s", "one").startswith("SELECT c0") and "error" in slow.is_run("s", "x") and "error" in slow.is_run("nobody", "x")
    assert slow.is_run("s", "insert into t values (1)") is None
    assert len(slept) == 4 and all(0 < seconds <= 1000 for seconds in slept)
    quick = desk(sleep=slept.append)
    assert OVER in quick.is_run("s", "one") and len(slept) == 4


def test_sessions_have_an_end(desk):
    few = desk(most=2)
    for key in ("a", "b", "c"):
        assert few.comes_in(key, desk.token, "")
    assert OVER in few.is_run("a", "one") and OVER not in few.is_run("b", "one") and OVER not in few.is_run("c", "one")
    idle = desk(idle=-1.0)
    assert idle.comes_in("a", desk.token, "") and OVER in idle.is_run("a", "one")
    assert not few.comes_in("d", "wrong", "") and OVER in few.is_run("d", "one")
    desk.path.unlink()
    assert not few.comes_in("e", desk.token, "") and OVER in few.is_run("b", "one")


def test_the_door_closes_when_nothing_is_being_answered(desk):
    waiting, go = threading.Event(), threading.Event()
    found = desk()
    found.comes_in("s", desk.token, "")
    inner = desk.room.ask

    def ask_(*given):
        waiting.set()
        go.wait()
        return inner(*given)

    desk.room.ask = ask_
    asking, closing = threading.Thread(target=found.is_run, args=("s", "one")), threading.Thread(target=found.quiet)
    found.quiet()
    asking.start()
    waiting.wait()
    closing.start()
    assert closing.is_alive()
    go.set()
    for thread in (asking, closing):
        thread.join()
