"""The life of the server: it serves, finishes what was begun when it is told to stop, and leaves a file that others can open.

The room and the door are made up here: the door hands over what the test says on standard input, a line each.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import duckdb
import pytest
from struck import LONG

import dpsql
from dpsql.errors import ArgumentError, DpsqlError
from dpsql.serve import analysts
from dpsql.serve.options import Address, Options
from dpsql.serve.passed import Answer, Refused
from dpsql.serve.server import STOPPING, WAITING, Attended, Kind, Server, Stopping, serve

MADE_UP = """
import sys, threading
from pathlib import Path
import dpsql
from dpsql.running import interruption
from dpsql.serve.options import Address, Options
from dpsql.serve.passed import Answer, Column, Refused
from dpsql.serve.server import Kind, serve
from dpsql.udfs import instance_of

def tell(*words):
    print(*words, flush=True)

class Room:
    database = "census"
    go = threading.Event()

    def __init__(self, opened, keys, options):
        self.con = opened.con

    def ask(self, analyst, text, dialect="duckdb", parameters=()):
        tell("asking", text)
        if text == "endless":
            running = interruption.Running(self.con.cursor(), "the books know it")
            try:
                with instance_of(self.con).listed(running), interruption.call(running):
                    while not self.go.wait(0.01):
                        interruption.check()
            except interruption.Stopped as error:
                raise Refused("stopped", str(error)) from None
        self.go.wait()
        return Answer((Column("n", "BIGINT"),), self.con.cursor().execute(text).fetchall())

class Door:
    port = 4242

    def __init__(self, room, keys, options, opened):
        self.room, self.threads = room, []

    def start(self):
        tell("listening")
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in sys.stdin:
            if line == "go\\n":
                Room.go.set()
                continue
            self.threads.append(threading.Thread(target=self.one, args=(line.strip(),)))
            self.threads[-1].start()

    def one(self, text):
        try:
            tell("answer", len(self.room.ask("alice", text).rows))
        except Refused as refused:
            tell("refused", refused.kind, refused.text)

    def stop(self):
        for thread in self.threads:
            thread.join()
        tell("closed")

options = Options(Path(sys.argv[1]), Path(sys.argv[2]), mysql=Address("localhost", 0), memory="1GB")
serve(options, Room, {"mysql": Kind(Door)})
"""
QUESTION = "FROM dp_query('SELECT count(*) AS n FROM visits', epsilon := 0.5)"


@pytest.fixture(scope="module")
def census(tmp_path_factory):
    folder = tmp_path_factory.mktemp("serve")
    with duckdb.connect(folder / "census.duckdb") as con:
        dpsql.load(con)
        con.execute("CREATE TABLE visits AS SELECT i % 7 AS ward FROM range(500) t(i)")
        con.execute("CALL dp_protect('visits', epsilon := 100, delta := 1e-9)")
    analysts.add(folder / "analysts.toml", "alice", {"main.visits": 0.1})
    return folder / "census.duckdb"


class Child:
    """The server as a process; it is read line by line."""

    def __init__(self, census: Path) -> None:
        root = Path(dpsql.__file__).parents[1]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])}
        command = [sys.executable, "-P", "-c", MADE_UP, census, census.with_name("analysts.toml")]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)
        self.hangs = threading.Timer(LONG, self.process.kill)
        self.hangs.start()
        self.seen: list[str] = []

    def until(self, begin: str) -> str:
        for line in self.process.stdout:
            self.seen.append(line)
            if line.startswith(begin):
                return line
        raise AssertionError("".join(self.seen))

    def say(self, line: str) -> None:
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def end(self) -> int:
        """Return the exit code."""
        self.seen += self.process.stdout.readlines()
        return self.process.wait()

    def close(self) -> None:
        self.hangs.cancel()
        self.process.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            pipe.close()
        self.process.wait()


@pytest.fixture
def child(census):
    made = Child(census)
    yield made
    made.close()


def ledger(census):
    with duckdb.connect(census) as con:
        dpsql.load(con)
        assert con.execute("SELECT books FROM dp_budget('visits')").fetchall() == [("intact",)]
        return [action for (action,) in con.execute("SELECT action FROM dp_ledger('visits') ORDER BY entry").fetchall()]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_and_stops(child, census, number):
    assert child.until("listening")
    told = child.until("serving ")
    assert told == f"serving {census} as census: mysql on localhost:4242; stop with Ctrl-C or SIGTERM\n"
    child.process.send_signal(number)
    assert child.end() == 0 and child.seen[-2:] == ["closed\n", "stopped\n"]
    assert not census.with_name("census.duckdb.wal").exists() and ledger(census)


def test_what_was_begun_is_finished_and_nothing_else_begins(child, census):
    child.until("serving ")
    child.say(QUESTION)
    child.until("asking FROM dp_query")
    child.process.send_signal(signal.SIGTERM)
    child.until(WAITING)
    child.say("SELECT 1")
    assert child.until("refused") == f"refused stopped {STOPPING}\n"
    child.say("go")
    assert child.end() == 0
    assert [line for line in child.seen if line.startswith(("answer", "closed", "stopped"))] == ["answer 1\n", "closed\n", "stopped\n"]
    assert ledger(census)[-2:] == ["charge", "store"]


def test_told_again_it_stops_what_was_begun(child, census):
    child.until("serving ")
    child.say("endless")
    child.until("asking endless")
    child.process.send_signal(signal.SIGTERM)
    child.until(WAITING)
    child.process.send_signal(signal.SIGINT)
    assert "the books know it" in child.until("refused stopped")
    assert child.end() == 0 and child.seen[-1] == "stopped\n"


def test_a_second_server_says_who_has_the_file(child, census):
    child.until("serving ")
    second = Child(census)
    try:
        assert second.end() != 0
        assert f"is open in another process (python{sys.version_info.major}.{sys.version_info.minor}, process {child.process.pid}): one process owns" in "".join(second.seen)
        assert not any(line.startswith(("listening", "serving")) for line in second.seen)
    finally:
        second.close()


class Room:
    database = "census"

    def __init__(self):
        self.go, self.inside = threading.Event(), threading.Semaphore(0)

    def ask(self, analyst, text, dialect="duckdb", parameters=()):
        self.inside.release()
        self.go.wait()
        return Answer((), [(analyst, text, dialect, *parameters)])

    def describe(self, *given):
        return given

    def schema(self, analyst):
        return (analyst,)


def test_a_room_is_closed_when_nobody_is_in_it():
    inner = Room()
    room, found = Attended(inner), []
    asking = threading.Thread(target=lambda: found.append(room.ask("alice", "SELECT ?", "mysql", [1])))
    assert room.empty(0) and room.describe("alice", "x") == ("alice", "x", "duckdb", ()) and room.schema("alice") == ("alice",)
    asking.start()
    inner.inside.acquire()
    assert not room.empty(0)
    room.close()
    for call in (lambda: room.ask("bob", "SELECT 2"), lambda: room.describe("bob", "SELECT 2"), lambda: room.schema("bob")):
        with pytest.raises(Refused) as refused:
            call()
        assert (refused.value.kind, refused.value.text) == ("stopped", STOPPING)
    inner.go.set()
    assert room.empty()
    asking.join()
    assert found[0].rows == [("alice", "SELECT ?", "mysql", 1)]


class Door:
    port = 3306

    def __init__(self, story, name, fails=None):
        self.story, self.name, self.fails = story, name, fails

    def start(self):
        if self.fails:
            raise self.fails
        self.story.append(f"{self.name} listens")

    def stop(self):
        self.story.append(f"{self.name} ends")


def options(census, **given):
    return Options(census, census.with_name("analysts.toml"), **{"mysql": Address("localhost", 3306), "memory": "1GB", **given})


@pytest.mark.parametrize(
    ("fails", "told"),
    [
        (DpsqlError("it is taken"), "^it is taken"),
        (OSError(98, "Address already in use"), r"^quack = 'localhost:9494': nothing can listen there \(Address already in use\); name another"),
    ],
)
def test_a_door_that_cannot_listen_leaves_nothing_open(census, fails, told):
    story = []
    kinds = {
        "mysql": Kind(lambda *_: Door(story, "mysql"), lambda con: story.append("mysql prepares")),
        "quack": Kind(lambda *_: Door(story, "quack", fails), lambda con: story.append("quack prepares")),
    }
    with pytest.raises(DpsqlError, match=told):
        Server(options(census, quack=Address("localhost", 9494)), lambda *_: Room(), kinds, story.append, Stopping())
    assert story == ["mysql prepares", "quack prepares", "mysql listens", "mysql ends"]
    with pytest.raises(ZeroDivisionError):
        Server(options(census), lambda *_: 1 / 0, kinds, story.append, Stopping())
    duckdb.connect(census, config={"threads": "1"}).close()  # would not open beside another configuration


def test_a_door_that_is_not_named_is_not_made(census):
    story, stopping = [], Stopping()
    kinds = {"mysql": Kind(lambda *_: Door(story, "mysql")), "quack": Kind(lambda *_: 1 / 0, lambda con: 1 / 0)}
    server = Server(options(census), lambda *_: Room(), kinds, story.append, stopping)
    stopping.ask()
    server.run()
    assert story == ["mysql listens", "mysql ends"]


def test_nothing_is_opened_where_the_files_are_wrong(census, tmp_path):
    kinds = {"mysql": Kind(lambda *_: 1 / 0, lambda con: 1 / 0)}
    for given, told in (
        ({"tls_cert": tmp_path / "c", "tls_key": tmp_path / "k"}, "^tls-cert = "),
        ({"memory": "much"}, "^memory = "),
    ):
        with pytest.raises(ArgumentError, match=told):
            Server(options(census, **given), lambda *_: Room(), kinds, print, Stopping())
    with pytest.raises(ArgumentError, match=r"^analysts = .*dpsql analyst add NAME DATABASE makes one"):
        Server(Options(census, tmp_path / "none.toml", mysql=Address("localhost", 1)), lambda *_: Room(), kinds, print, Stopping())


def test_serve_gives_the_signals_back_and_warns(census):
    said, before = [], (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT))

    def room(*_):
        signal.raise_signal(signal.SIGTERM)  # while it starts
        return Room()

    out = options(census, mysql=Address("0.0.0.0", 3306), allow_unencrypted=True)
    serve(out, room, {"mysql": Kind(lambda *_: Door([], "mysql"))}, said.append)
    assert [line.partition(" ")[0] for line in said] == ["warning:", "serving", "stopped"]
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
