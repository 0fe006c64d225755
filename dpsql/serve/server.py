"""The server: one process that owns the file, answers analysts over Quack, and stops without leaving anything half done."""

from __future__ import annotations

import math
import os
import re
import secrets
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import duckdb

from dpsql.books.ledger import Ledger
from dpsql.books.schema import Books
from dpsql.door import dispatch
from dpsql.errors import ArgumentError, DpsqlError, first_line
from dpsql.purchase import failures
from dpsql.serve.answering import Answerer
from dpsql.serve.answers import Answers
from dpsql.serve.custodian import UNNAMED
from dpsql.serve.desk import Desk
from dpsql.serve.health import Health
from dpsql.serve.limits import Clock, Turns
from dpsql.serve.log import Log
from dpsql.serve.opening import create_macros, key_of, lock_down, open_database
from dpsql.serve.sessions import Sessions
from dpsql.serve.settled import Settled
from dpsql.serve.shortage import Shortage
from dpsql.serve.tokens import Analysts
from dpsql.session.instance import Instance
from dpsql.source.listed import Functions
from dpsql.text.relation import literal
from dpsql.udfs import instance_of, load

_FUNCTIONS = ("__dpsql_who_comes_in", "__dpsql_what_is_run")
_LISTEN = re.compile(r"(?:quack:)?(localhost|127\.0\.0\.1|\[::1\]|[A-Za-z0-9.:_\[\]-]+):([0-9]{1,5})")
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_SWEEP = 1.0
_READING = 2.0  # seconds that clients have to read answers that they were given, when the server stops
OTHERS = (
    "warning: {listen} can be reached from other machines, and Quack here is not encrypted: tokens and answers can be read on the "
    "way. Listen on localhost behind a reverse proxy with TLS"
)


@dataclass(frozen=True)
class Options:
    """What `dpsql serve` is told.

    Parameters
    ----------
    time_limit : float
        Seconds of one statement of an analyst.
    memory : str
        DuckDB's memory limit.
    answer_every : float
        Seconds; 0: as soon as there is an answer.
    other_hosts : bool
        Whether another than a loopback address may be listened on.
    encryption_key_env : str, optional
        Variable of the environment that has the key of an encrypted database; it is removed from the environment.
    encryption_key_file : Path, optional
        Or the file that has it.
    rows : int
        The most rows of an answer.
    custodian_time_limit : float
        Seconds of one call of a custodian's.
    at_once : int
        Statements that run at once, of all analysts.
    """

    database: Path
    listen: str
    analysts: Path
    time_limit: float = 60.0
    memory: str = "4GB"
    answer_every: float = 0.0
    read_only_analysts: bool = False
    log: Path | None = None
    store: Path | None = None
    health: int | None = None
    other_hosts: bool = False
    encryption_key_env: str | None = None
    encryption_key_file: Path | None = None
    rows: int = 1_000_000
    at_once: int = max(2, os.cpu_count() or 2)
    each: int = 1
    waiting: int = 4
    sessions: int = 1_000
    idle: float = 3_600.0
    kept: float = 300.0
    custodian_time_limit: float = math.inf
    kept_bytes: int = 512 << 20


class Server:
    """A database that is being served.

    Parameters
    ----------
    options : Options

    Raises
    ------
    ArgumentError, DpsqlError
        It cannot be served as the options say; nothing is open then.
    """

    def __init__(self, options: Options) -> None:
        self.host, self.port = _address(options)
        self.uri = f"quack:{self.host}:{self.port}"
        if not 0 < options.time_limit < math.inf or not 0 <= options.answer_every < math.inf:
            raise ArgumentError("time-limit", options.time_limit, "seconds above 0 are required, and --answer-every of 0 or more")
        if not options.custodian_time_limit > 0:
            raise ArgumentError("custodian-time-limit", options.custodian_time_limit, "seconds above 0 are required")
        key = key_of(options.encryption_key_env, options.encryption_key_file)
        analysts = Analysts(options.analysts)
        try:
            log = Log(options.log)
        except OSError as error:
            raise ArgumentError("log", str(options.log), f"cannot be written ({error.strerror})") from None
        self.options, self._stopping = options, threading.Event()
        self.health: Health | None = None
        path = options.database.expanduser().absolute()
        self.con = open_database(path, options.memory, key)
        try:
            self._start(analysts, log, path, key)
        except BaseException:
            self.con.close()
            raise

    def _start(self, analysts: Analysts, log: Log, path: Path, key: str | None) -> None:
        options = self.options
        store = (options.store or path.with_name(path.name + ".dpsql")).expanduser().absolute()
        store.mkdir(parents=True, exist_ok=True, mode=0o700)
        load(self.con, store=store, user=UNNAMED, progress=False, encryption_key=key)
        self.instance = _instance(self.con)
        self.instance.analysts_buy = not options.read_only_analysts
        database, schema = self.con.execute("SELECT system.main.current_database(), system.main.current_schema()").fetchall()[0]
        if key is not None:
            create_macros(self.con, str(database))
        self._shortage = Shortage(self.con, options.kept_bytes)
        self.clock = Clock(options.time_limit, self._shortage)
        self.answers = Answers(self.instance.borrowed, options.rows, options.kept_bytes, options.kept)
        self.instance.most_idle = 2 * options.at_once + 1  # of a statement, and of a call in it
        settled = Settled(options.idle)
        functions = self.instance.remembered["functions"] = Functions(settled)
        books = self._books(str(database), store)
        hidden = (str(path.parent), str(store))
        answerer = Answerer(self.instance, str(database), str(schema), self.clock, self.answers, functions, books, hidden)
        turns = Turns(options.each, options.at_once, options.waiting, options.time_limit)
        sessions = Sessions(options.sessions, options.idle)
        self.desk = Desk(
            analysts, sessions, turns, answerer, self.answers, log, settled, options.answer_every, options.custodian_time_limit
        )
        self.desk.home = None if key is None else str(database)
        self.con.create_function(_FUNCTIONS[0], self.desk.authenticate, ["VARCHAR"] * 3, "BOOLEAN", side_effects=True)
        # Not "side effects": so it runs where Quack's query is planned, once a statement, and not in a thread of DuckDB's pool, for
        # which the one that waits would look in a loop, with a core of its own. Nothing keeps what it gave for the next statement.
        self.con.create_function(_FUNCTIONS[1], self.desk.authorize, ["VARCHAR"] * 2, "VARCHAR", side_effects=False)
        for name in dispatch.ANSWERS:  # loaded now: the first analyst need not wait for it
            dispatch.answer(name)
        lock_down(self.con, store, _FUNCTIONS)
        self.instance.cursor().close()  # a setting that does not fit is said now
        _check_free(self.host, self.port, self.options.listen)
        more = ", allow_other_hostname := true" if self.host not in _LOOPBACK else ""
        try:  # the token is nobody's: it is required, and not looked at
            self.con.execute(f"CALL quack_serve({literal(self.uri)}, token := {literal(secrets.token_hex(32))}{more})").fetchall()
        except duckdb.Error as error:
            raise DpsqlError(f"listen = {self.options.listen!r}: {first_line(error)}") from None
        if options.health is not None:
            self.health = Health(options.health, self.well)
        log.write("server", "started")

    def _record_failures(self, books: Books, store: Path) -> None:
        """Write down readings that died with the process before: from the first statement on the custodian sees it."""
        notes = failures.noted(store)
        for source in {note.source for note in notes}:
            ledger = Ledger(books, source, UNNAMED)
            failures.record(ledger, store, self.instance.key, [note for note in notes if note.source == source])

    def _books(self, database: str, store: Path) -> tuple[set[object], object]:
        """Bring the books up to date, if there are any: then no statement has to look whether they are."""
        known: set[object] = self.instance.remembered.setdefault("books", set())
        with self.instance.borrowed() as cursor:
            asked = "SELECT database_oid FROM system.main.duckdb_databases() WHERE database_name = ?"
            current = (known, (database, cursor.execute(asked, [database]).fetchall()[0][0]))
            books = Books(cursor, database, current=current)
            if books.exist():
                books.open()
                self._record_failures(books, store)
        self.instance.forget()  # this one was made before the configuration is locked
        return current

    def well(self) -> bool:
        """Return whether the database answers."""
        try:
            cursor = self.con.cursor()
            try:
                return bool(cursor.execute("SELECT 1").fetchall()) and not self.desk.closing
            finally:
                cursor.close()
        except duckdb.Error:
            return False

    def stop(self) -> None:
        """Ask `run` to come to an end, from any thread or a signal."""
        self._stopping.set()

    def run(self) -> None:
        """Serve until `stop` is called; then finish what runs, and close."""
        while not self._stopping.wait(_SWEEP):
            self.desk.sweep()
        self.close()

    def close(self) -> None:
        """Refuse what comes, let what runs finish within its limit, then stop listening and close the database."""
        self.desk.closing = True
        self._wait(self.options.time_limit + 1)
        self.clock.stop()
        for call in list(self.instance.running):  # the custodian's own
            call.stop()
        finished = self._wait(30.0)
        if self.desk.busy == 0:
            time.sleep(_READING if self.desk.sessions else 0.0)
        if self.health is not None:
            self.health.close()
        with suppress(duckdb.Error):
            self.con.execute(f"CALL quack_stop({literal(self.uri)})").fetchall()
        with suppress(duckdb.Error):
            self.con.execute("CHECKPOINT")
        self.clock.end()
        self._shortage.close()
        self.desk.log.write("server", "stopped" if finished else "stopped with statements that did not end")
        self.instance.forget()
        self.con.close()

    def _wait(self, seconds: float) -> bool:
        """Wait until nothing runs; return whether that came."""
        until = time.monotonic() + seconds
        while self.desk.busy or self.instance.running:
            if time.monotonic() >= until:
                return False
            time.sleep(0.05)
        return True


def serve(options: Options, say: Callable[[str], Any] = sys.stderr.write) -> None:
    """Serve a database until SIGTERM or Ctrl-C. Errors are those of `Server`."""
    server = Server(options)

    def stop(_number: int, _frame: FrameType | None) -> None:
        server.stop()

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        if server.host not in _LOOPBACK:
            say(OTHERS.format(listen=options.listen) + "\n")
        say(f"serving {options.database} on {server.uri}; stop with SIGTERM or Ctrl-C\n")
        server.run()
        say("stopped\n")
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _address(options: Options) -> tuple[str, int]:
    found = _LISTEN.fullmatch(options.listen)
    if not found or not 0 < int(found[2]) < 1 << 16:
        raise ArgumentError("listen", options.listen, "a host and a port are required: localhost:9494")
    if found[1] not in _LOOPBACK and not options.other_hosts:
        raise ArgumentError(
            "listen", options.listen, "only a loopback address is served (localhost, 127.0.0.1): Quack here is not encrypted. Put "
            "a reverse proxy with TLS before it, or say --allow-other-hostname"
        )  # fmt: skip
    return found[1], int(found[2])


def _check_free(host: str, port: int, listen: str) -> None:
    """Refuse an address that somebody listens on: the system would let Quack share it, and tokens would go to either."""
    with suppress(OSError), socket.create_connection((host.strip("[]"), port), timeout=1.0):
        raise ArgumentError("listen", listen, "another process, or another server of this one, listens there; name another port")


def _instance(con: duckdb.DuckDBPyConnection) -> Instance:
    found = instance_of(con)
    if found is None:  # pragma: no cover -- load has just registered it
        raise DpsqlError("dpsql could not be loaded on the database")
    return found
