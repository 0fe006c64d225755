"""Which connection a call came from, and what it may use: a cursor of its own, the release store, locks.

A Python UDF belongs to a database *instance*: DuckDB shows it to every connection and cursor of that instance and neither
replaces nor removes it once the connection that registered it is closed. So the UDF holds nothing but the key of an
`Instance` here, which knows the connections that were loaded by weak references, and any one that is still open serves.
"""

from __future__ import annotations

import atexit
import getpass
import shutil
import tempfile
import threading
import uuid
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import duckdb

from dpsql.errors import ArgumentError, BudgetExceeded, DpsqlError, NotProtected, UnsupportedQuery
from dpsql.running.interruption import Running, check
from dpsql.session.settings import encrypt_spilled, pin, repin

_instances: dict[str, Instance] = {}
ANALYST = "analyst "
"""What the ledger's ``who`` of an analyst of a served database begins with."""
_loaded: weakref.WeakKeyDictionary[duckdb.DuckDBPyConnection, Instance] = weakref.WeakKeyDictionary()
OWN_KINDS = ("duckdb", "motherduck")
"""Types of attached databases whose tables are DuckDB's own."""
_MOST_IDLE = 2
_REFUSALS = (ArgumentError, BudgetExceeded, NotProtected, UnsupportedQuery)
"""Errors of calls that have read no protected row."""
_LEFT = (
    "SELECT database_name FROM system.main.duckdb_tables() WHERE temporary "
    "UNION ALL SELECT database_name FROM system.main.duckdb_views() WHERE temporary AND NOT internal LIMIT 1"
)
"""What a call may have left on its cursor: temporary tables, and frames, which are temporary views."""


@dataclass
class Instance:
    """What is shared by all connections to one open database."""

    key: str
    user: str
    store: Path | None = None
    progress: bool | None = None  # whether calls show a bar; None: on a terminal and in a notebook
    connections: list[weakref.ref[duckdb.DuckDBPyConnection]] = field(default_factory=list)
    temporary: Path | None = None
    last_seconds: dict[str, float] = field(default_factory=dict)  # stages of the last dp_synthesize, for benchmarks
    last_peak_mb: dict[str, float] = field(default_factory=dict)  # largest resident memory up to the end of each stage
    prepare: Callable[[Context], None] | None = None  # what to do before each call: declarations of a dbt project
    say: Callable[[str], None] | None = None  # where what is said beside an answer goes; None: standard error, or the notebook
    functions: tuple[Callable[..., Any], ...] = ()  # the UDFs, kept alive for as long as the process
    running: list[Running] = field(default_factory=list)  # calls, in any thread
    unrecorded: set[tuple[str, str, str]] = field(default_factory=set)  # failures not in the books yet: database, source, release
    remembered: dict[str, Any] = field(default_factory=dict)  # what holds from call to call; whoever puts it there says why
    _idle: list[duckdb.DuckDBPyConnection] = field(default_factory=list)
    _locks: dict[str, threading.Lock] = field(default_factory=dict)
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """Return a new cursor of any loaded connection that is still open, with the settings that dpsql depends on.

        Raises
        ------
        DpsqlError
            All of them are closed, or the configuration is locked with a setting that dpsql cannot work under.
        """
        for reference in list(self.connections):
            connection = reference()
            if connection is not None:
                with suppress(duckdb.ConnectionException):
                    cursor = connection.cursor()
                    try:
                        pin(cursor)
                    except BaseException:
                        cursor.close()
                        raise
                    return cursor
            with suppress(ValueError):  # another thread has removed it
                self.connections.remove(reference)
        raise DpsqlError("every connection that dpsql.load was called on is closed; call dpsql.load(con) on this connection")

    def take(self) -> duckdb.DuckDBPyConnection:
        """Return a cursor for one call: one that an earlier call has given back, else a new one. Errors are those of `cursor`."""
        while self._idle:
            with suppress(IndexError):  # another thread has taken it
                cursor = self._idle.pop()
                try:
                    repin(cursor)
                except duckdb.Error:  # closed with the connection that it came from
                    _close(cursor)
                else:
                    return cursor
        return self.cursor()

    def give(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Keep the cursor of a call that ended well, for the next one: setting it up takes as long as ten small statements.

        It keeps the database open for no longer than the connections do: closing a connection closes its cursors, and where one is
        collected without being closed, `forget` closes them.
        """
        try:
            with suppress(duckdb.TransactionException):  # none is open
                cursor.execute("ROLLBACK")
        except duckdb.Error:
            _close(cursor)
            return
        if len(self._idle) < _MOST_IDLE:
            self._idle.append(cursor)
        else:
            _close(cursor)

    def give_refused(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Keep the cursor of a call that was refused, if nothing of the call is left on it: else the next one makes a cursor.

        A cursor is a new entry of the catalog, after which all functions are listed anew, which takes longer than a refusal.
        """
        try:
            with suppress(duckdb.TransactionException):  # none is open
                cursor.execute("ROLLBACK")
            left = cursor.execute(_LEFT).fetchall()
        except duckdb.Error:
            left = [()]
        if left:
            _close(cursor)
        else:
            self.give(cursor)

    def forget(self, _: object = None) -> None:
        """Close the cursors that no call uses."""
        while self._idle:
            with suppress(IndexError):
                _close(self._idle.pop())

    def add(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Remember a connection, without keeping it alive."""
        if connection not in _loaded:
            _loaded[connection] = self
            self.connections.append(weakref.ref(connection, self.forget))

    @contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """Serialise work on one release (or table) within this process: two threads must not draw its noise twice."""
        with self._guard:
            lock = self._locks.setdefault(name, threading.Lock())
        while not lock.acquire(timeout=0.1):
            check()  # dpsql.interrupt stops a call that waits, too
        try:
            yield
        finally:
            lock.release()

    @contextmanager
    def listed(self, running: Running) -> Iterator[None]:
        """Let `dpsql.interrupt` find a call while the block runs."""
        self.running.append(running)
        try:
            yield
        finally:
            self.running.remove(running)

    def temporary_store(self) -> Path:
        """Return the folder for releases of an in-memory database; it goes when the process ends."""
        with self._guard:
            if self.temporary is None:
                self.temporary = Path(tempfile.mkdtemp(prefix="dpsql-"))
                weakref.finalize(self, shutil.rmtree, self.temporary, True)  # ignore_errors
            return self.temporary


def current_user() -> str:
    """Return the name that ledger entries carry when ``load`` was given none."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return "unknown"


def new_instance(user: str) -> Instance:
    """Register a new instance."""
    instance = Instance(key=uuid.uuid4().hex, user=user)
    _instances[instance.key] = instance
    return instance


def _close(cursor: duckdb.DuckDBPyConnection) -> None:
    with suppress(duckdb.Error):
        cursor.close()


@atexit.register
def _close_idle() -> None:
    for instance in _instances.values():
        instance.forget()


def find_instance(key: str) -> Instance:
    """Return the instance that a UDF was registered for."""
    return _instances[key]


def instance_with(connection: duckdb.DuckDBPyConnection) -> Instance | None:
    """Return the instance that a connection was added to; of a connection that was not, one of its database may be there."""
    return _loaded.get(connection)


class Attached(NamedTuple):
    """An attached database.

    ``number``: DuckDB's of it; ``path``: of its file, None in memory; ``kind``: its type, 'internal' of DuckDB's own system.
    """

    name: str
    number: int
    path: str | None
    kind: str
    encrypted: bool


NOTES = "notes"
"""Where a call's context has the list of what is said beside its answer, if the caller wants it."""


@dataclass(frozen=True)
class Context:
    """One call: its cursor, and the database and schema that unqualified names mean.

    The cursor is not the caller's connection: it sees committed data only, and what it writes stays whatever the caller's
    transaction does.
    """

    instance: Instance
    cursor: duckdb.DuckDBPyConnection
    database: str
    schema: str
    progress: bool | None = None
    known: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)  # what was looked up in this call, once each
    analyst: str | None = None  # of a served database: only what she has bought herself is there for her

    @property
    def user(self) -> str:
        """Return who is asking, for the ledger."""
        return self.instance.user if self.analyst is None else self.analyst

    def database_path(self, database: str) -> Path | None:
        """Return the file of an attached database, or None if it is in memory."""
        path = next((one.path for one in self.attached() if one.name == database), None)
        return Path(path).absolute() if path else None

    def attached(self) -> list[Attached]:
        """Return the attached databases, in the order of their names."""
        if "attached" not in self.known:
            rows = self.cursor.execute(
                "SELECT database_name, database_oid, path, CASE WHEN internal THEN 'internal' ELSE type END, encrypted "
                "FROM system.main.duckdb_databases() ORDER BY 1 ASC"
            ).fetchall()
            databases = self.known["attached"] = [Attached(*row) for row in rows]
            if any(one.encrypted for one in databases):  # whatever a call reads, for the custodian too
                self.known["spilled"] = encrypt_spilled(self.cursor)
        attached: list[Attached] = self.known["attached"]
        return attached

    def store(self, database: str) -> Path:
        """Return the folder of the releases of a database: `<file>.dpsql`, or where `load(con, store=...)` says."""
        if self.instance.store is not None:
            return self.instance.store
        path = self.database_path(database)
        return path.with_name(path.name + ".dpsql") if path else self.instance.temporary_store()

    def spills_in_the_clear(self, database: str) -> bool:
        """Return whether a database is encrypted, and what of it does not fit into memory is not."""
        return self._encrypted(database) and not self.known["spilled"]

    def clear_beside_encrypted(self, database: str) -> bool:
        """Return whether releases would lie in the clear beside a database that is encrypted, and nobody said so."""
        return self._encrypted(database) and self.instance.store is None

    def _encrypted(self, database: str) -> bool:
        return any(one.encrypted for one in self.attached() if one.name == database)

    def databases(self) -> list[str]:
        """Return the attached databases that may have books, the current one first: others than DuckDB's own have none."""
        own = (one.name for one in self.attached() if one.kind in OWN_KINDS)
        return sorted(own, key=lambda name: name != self.database)

    def foreign(self) -> dict[str, str]:
        """Return the types of the attached databases that are not DuckDB's own."""
        return {one.name: one.kind for one in self.attached() if one.kind not in (*OWN_KINDS, "internal")}


@contextmanager
def open_context(
    instance: Instance, database: str, schema: str, progress: bool | None = None, analyst: str | None = None
) -> Iterator[Context]:
    """Open a cursor for one call; ``progress`` is what the session asks for, over ``load``'s.

    After an error that is no refusal it is closed.
    """
    cursor = instance.take()
    try:
        shown = instance.progress if progress is None else progress
        yield Context(instance, cursor, database, schema, shown, analyst=analyst)
    except _REFUSALS:
        instance.give_refused(cursor)
        raise
    except BaseException:
        cursor.close()
        raise
    instance.give(cursor)
