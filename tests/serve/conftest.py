"""A served database: the server is a process of its own, its clients are processes or connections of DuckDB."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
import pytest

import dpsql

TABLE = """CREATE TABLE adult AS SELECT 17 + (i * 7919) % 74 AS age, CASE WHEN i % 3 = 0 THEN 'Female' ELSE 'Male' END AS sex,
 CASE WHEN i % 17 < 12 OR i % 3 = 0 THEN 'private' WHEN i % 17 < 15 THEN 'government' END AS employer FROM range(3000) t(i)"""
DECLARED = (
    "CALL dp_protect('adult', epsilon := 100.0, delta := 1e-6)",
    "CALL dp_declare('adult', 'age', lower := 0, upper := 120, nullable := false)",
    "CALL dp_declare('adult', 'sex', categories := ['Female', 'Male'], nullable := false)",
    "CALL dp_declare('adult', 'employer', categories := ['private', 'government'])",
)


@dataclass
class Served:
    """A database, its analysts, and the process that serves it."""

    folder: Path
    tokens: dict[str, str]
    port: int = 0
    process: subprocess.Popen[str] | None = None
    options: list[str] = field(default_factory=list)

    @property
    def database(self) -> Path:
        return self.folder / "census.duckdb"

    def command(self, *options: str) -> list[str]:
        analysts = str(self.folder / "analysts.toml")
        given = ["serve", str(self.database), "--listen", f"localhost:{self.port}", "--analysts", analysts]
        return [sys.executable, "-m", "dpsql.cli", *given, "--memory", "1GB", "--log", str(self.folder / "log"), *options]

    def start(self, *options: str, port: int = 0, **more: object) -> Served:
        self.port = port or free_port()
        env = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": str(Path(dpsql.__file__).parents[1])}
        env["PYTHONPATH"] += os.pathsep + os.environ.get("PYTHONPATH", "")
        self.process = subprocess.Popen(
            self.command(*options), env=env, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, **more
        )
        line = self.process.stderr.readline()
        while "serving" not in line and line:
            line = self.process.stderr.readline()
        assert "serving" in line, self.process.wait()
        return self

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Stop the server; return its exit code."""
        if self.process is None:
            return 0
        self.process.send_signal(number)
        code = self.process.wait(60)
        self.process.stderr.close()
        self.process = None
        return code

    def client(self, name: str = "alice") -> Client:
        return Client(self.port, self.tokens[name])

    def books(self, sql: str) -> list[tuple]:
        """Ask the database itself, while it is not served."""
        with duckdb.connect(self.database) as con:
            dpsql.load(con)
            return con.execute(sql).fetchall()


class Client:
    """A connection of DuckDB with the database attached."""

    def __init__(self, port: int, token: str) -> None:
        from dpsql.wire.extensions import load_extensions

        self.con = duckdb.connect()
        load_extensions(self.con)
        self.port, self.token = port, token
        self.con.execute(f"ATTACH 'quack:localhost:{port}' AS c (TOKEN '{token}')")

    def ask(self, sql: str) -> list[tuple]:
        return self.con.execute(f"FROM c.query({text(sql)})").fetchall()

    def refusal(self, sql: str) -> str:
        with pytest.raises(duckdb.Error) as found:
            self.ask(sql)
        return str(found.value).split("\n\nLINE")[0]

    def close(self) -> None:
        self.con.close()


def text(sql: str) -> str:
    return "'" + sql.replace("'", "''") + "'"


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def missing() -> str | None:
    """Return why nothing can be served here."""
    from dpsql.errors import DpsqlError
    from dpsql.wire.extensions import load_extensions

    try:
        with duckdb.connect() as con:
            load_extensions(con)
    except DpsqlError as error:
        return str(error)
    return None


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A folder with a protected table, two analysts with a grant each, one without, and a custodian."""
    reason = missing()
    if reason:
        pytest.skip(reason)
    from dpsql.books.granted import Grant
    from dpsql.books.grants import Grants
    from dpsql.serve import tokens

    folder = tmp_path_factory.mktemp("served")
    with duckdb.connect(folder / "census.duckdb") as con:
        dpsql.load(con, user="tester")
        con.execute(TABLE)
        con.execute("CREATE TABLE raw AS SELECT 424242 AS secret")
        for statement in DECLARED:
            con.execute(statement)
        con.execute("CREATE TABLE big AS SELECT x FROM range(200_000) t(x)")
        grants = Grants(con.cursor(), "census")
        grants.publish("main.big", "tester")
        for name in ("alice", "bob"):
            grants.set(Grant(name, "main.adult", 50.0, 0.2, None, None, None), "tester")
    made = {
        name: tokens.add(folder / "analysts.toml", name, custodian=name == "carl") for name in ("alice", "bob", "nobody", "carl")
    }
    return folder, made


@pytest.fixture
def new_served(prepared: tuple[Path, dict[str, str]], tmp_path: Path) -> Iterator[Callable[..., Served]]:
    """A function that serves a copy of the database."""
    import shutil

    made: list[Served] = []

    def serve(*options: str, **more: object) -> Served:
        folder = tmp_path / f"s{len(made)}"
        shutil.copytree(prepared[0], folder)
        made.append(Served(folder, prepared[1]))
        return made[-1].start(*options, **more)

    yield serve
    for served in made:
        if served.process is not None and served.process.poll() is None:
            served.process.kill()
            served.process.wait()
        if served.process is not None:
            served.process.stderr.close()


@pytest.fixture
def served(new_served: Callable[..., Served]) -> Served:
    """The database, served."""
    return new_served()


def until(true: Callable[[], bool], seconds: float = 20.0) -> bool:
    """Wait until something holds; return whether it came."""
    end = time.monotonic() + seconds
    while not true() and time.monotonic() < end:
        time.sleep(0.05)
    return true()
