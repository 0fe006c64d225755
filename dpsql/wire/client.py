"""A served database as a connection: `dpsql.connect('quack:host:port')`, and the functions of dpsql over it.

An answer is asked for once, and kept in a temporary table of the client's own DuckDB. The token is in a secret of that DuckDB: not
in a statement, a relation, an error or what a client shows of itself.
"""

from __future__ import annotations

import itertools
import os
import re
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import duckdb

from dpsql.errors import ArgumentError, DpsqlError
from dpsql.text.relation import identifier, literal
from dpsql.wire.extensions import load_extensions
from dpsql.wire.statements import statement, told

TOKEN = "DPSQL_TOKEN"  # noqa: S105 -- the name of the variable
_URI = re.compile(r"quack:(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")
_SERVER = "__dpsql_server"
_UNASKED = ("the session is over", "Invalid connection id", "Could not connect")
"""What errors say where the statement was not run: only then is it sent again."""
_REACHED = "Failed to send message"


class Client:
    """A connection to a served database; see `connect`. Threads may share it: they ask one after the other."""

    def __init__(self, uri: str, token: str, ca_file: Path | None, tls: bool | None) -> None:
        self.uri = uri
        self._token = token  # for taking it out of errors
        self._tls = tls
        self._lock = threading.RLock()
        self._attached = False
        self._numbers = itertools.count(1)
        self._con = duckdb.connect(":memory:", config={"autoinstall_known_extensions": False})
        try:
            load_extensions(self._con)
            if ca_file is not None:
                self._con.execute(f"SET GLOBAL ca_cert_file = {literal(str(ca_file))}")
            self._run(
                f"CREATE SECRET __dpsql_token (TYPE quack, TOKEN {literal(token)}, SCOPE {literal(uri)})", "the token is not taken"
            )
            self._attach()
        except BaseException:
            self._con.close()
            raise

    def __repr__(self) -> str:
        """Return where it is connected to."""
        return f"dpsql.connect({self.uri!r})"

    def sql(self, text: str) -> duckdb.DuckDBPyRelation:
        """Send a statement, and return its answer.

        Parameters
        ----------
        text : str
            What an analyst may say: a query of a protected table, which `dp_query` answers at the price of her grant; calls;
            queries of what is published.

        Raises
        ------
        DpsqlError
            The server refuses it, is not there, or does not know the token any more. The text is the server's.
        """
        name = identifier(f"answer_{next(self._numbers)}")
        asked = f"CREATE TEMP TABLE {name} AS FROM {_SERVER}.query({literal(text)})"
        with self._lock:
            if not self._attached:
                self._attach()
            try:
                self._run(asked)
            except DpsqlError as error:
                # The server was started anew, or the session was idle for too long.
                if not any(words in str(error) for words in _UNASKED):
                    raise
                self._attach()
                self._run(asked)
            return self._con.table(f"temp.main.{name}")

    def call(self, name: str, given: Mapping[str, Any]) -> duckdb.DuckDBPyRelation:
        """Ask for a call; errors are those of `sql`."""
        return self.sql(statement(name, given))

    def close(self) -> None:
        """Close it; its answers are gone with it."""
        with self._lock:
            self._con.close()

    def __enter__(self) -> Self:
        """Return the client, which is closed at the end of the block."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close it."""
        self.close()

    def _attach(self) -> None:
        with suppress(duckdb.Error):
            self._con.execute(f"DETACH {_SERVER}")
        self._attached = False
        tls = "" if self._tls is None else f" (DISABLE_SSL {str(not self._tls).lower()})"
        self._run(f"ATTACH {literal(self.uri)} AS {_SERVER}{tls}")
        self._attached = True

    def _run(self, text: str, otherwise: str | None = None) -> None:
        """Execute a statement; an error has the server's words, and neither the statement's nor the token."""
        try:
            self._con.execute(text)
            return
        except duckdb.InterruptException:
            raise
        except duckdb.Error as error:
            said = otherwise or told(error).replace(self._token, "...")
        if "Authentication failed" in said:
            said = f"{self.uri} does not know this token: it is mistyped, was revoked, or has expired"
        elif _REACHED in said:
            said = f"{self.uri} does not answer: is dpsql serve running there, and does TLS fit (tls := ..., ca_file)? ({said})"
        raise DpsqlError(said) from None


def connect(
    uri: str, *, token: str | None = None, ca_file: str | Path | None = None, tls: bool | None = None
) -> Client:
    """Connect to a database that ``dpsql serve`` serves: dpsql's functions take what this returns as they take a connection.

    Parameters
    ----------
    uri : str
        ``quack:host:port``.
    token : str, optional
        The analyst's or custodian's; what the environment variable DPSQL_TOKEN says, if left out.
    ca_file : str or Path, optional
        Certificates (PEM) that the server's is checked by; the system's, if left out.
    tls : bool, optional
        Whether the connection is encrypted; if left out, for every host but localhost.

    Returns
    -------
    Client
        With ``sql(text)`` and ``close()``; also a context manager.

    Raises
    ------
    ArgumentError
        An argument is missing or wrong.
    DpsqlError
        Nobody answers there, the token is not known, or DuckDB's extensions are missing.

    Notes
    -----
    Answers are DuckDB relations over copies in the client's memory, until it is closed. Privacy: None: the server decides.

    Examples
    --------
    >>> con = dpsql.connect("quack:localhost:9494")  # doctest: +SKIP
    >>> dpsql.query(con, "SELECT sex, count(*) FROM adult GROUP BY sex", epsilon=0.1)  # doctest: +SKIP
    """
    if not isinstance(uri, str) or not _URI.fullmatch(uri):
        raise ArgumentError("uri", uri, "where dpsql serve listens is required: 'quack:localhost:9494'")
    found = os.environ.get(TOKEN) if token is None else token
    if not isinstance(found, str) or not found.strip():
        raise ArgumentError("token", None, f"name it, or set the environment variable {TOKEN}; dpsql analyst add NAME makes one")
    return Client(uri, found.strip(), None if ca_file is None else Path(ca_file), tls)
