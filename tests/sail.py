"""A Spark Connect server of the tests: Sail, without Java. One in each process of the suite, or a process that a test may kill."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import duckdb
import pytest
from struck import LONG

import dpsql
from dpsql.engines.spark.session import as_of_a_file

of_sail = pytest.mark.skipif("DPSQL_SPARK" in os.environ, reason="of files that Spark itself does not read")
WHY = "pysail and pyspark-client are not installed: pip install 'dpsql[dev]'"
_running: list[Any] = []


@cache
def url() -> str:
    """Return the address of this process's server, or of the one that DPSQL_SPARK names."""
    if given := os.environ.get("DPSQL_SPARK"):
        return given
    with as_of_a_file():
        pytest.importorskip("pyspark.sql.connect", reason=WHY)
    pytest.importorskip("pysail", reason=WHY)
    os.environ.setdefault("RUST_LOG", "off")
    from pysail.spark import SparkConnectServer

    server = SparkConnectServer("127.0.0.1", 0)
    server.start(background=True)
    host, port = server.listening_address
    _running.append(server)
    return f"sc://{host}:{port}"


@cache
def session() -> Any:
    """Return a session of the tests' own on this process's server, with the settings that dpsql asks for."""
    from dpsql.engines.spark import session as sessions

    return sessions.session(url())


def copy(statement: str) -> None:
    """Write a file by a COPY of a database of its own."""
    with duckdb.connect() as con:
        con.execute(statement)


def remote(path: Path, name: str, folder: Path, address: str | None = None, **protection: Any) -> duckdb.DuckDBPyConnection:
    """Return a database whose table ``name`` has its rows in a Parquet file or folder behind a server, protected."""
    con = duckdb.connect(str(path))
    dpsql.load(con, progress=False)
    dpsql.remote(con, name, engine="spark", url=address or url(), relation=f"parquet:{folder}")
    dpsql.protect(con, name, **{"epsilon": 1000, "delta": 1e-9, **protection})
    return con


_SERVER = """
import sys
from pysail.spark import SparkConnectServer
server = SparkConnectServer("127.0.0.1", int(sys.argv[1]))
server.start(background=True)
print("ready", flush=True)
sys.stdin.read()
"""


class Server:
    """A server in a process of its own, which a test may kill and begin again at the same address."""

    def __init__(self) -> None:
        url()  # skips where there is none
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            self._port = int(found.getsockname()[1])
        self.url = f"sc://127.0.0.1:{self._port}"
        self.begin()

    def begin(self) -> None:
        """Begin the process, and wait until it listens."""
        command = [sys.executable, "-c", _SERVER, str(self._port)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={**os.environ, "RUST_LOG": "off"}
        )
        assert self.process.stdout is not None and self.process.stdout.readline() == b"ready\n"

    def kill(self) -> None:
        """Kill the process."""
        self.process.kill()
        self.process.communicate(timeout=LONG)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.kill()
