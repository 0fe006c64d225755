"""docs/serve.md as it stands there: the custodian's commands, a server process, and stock clients.

A mark before a block says who runs it: ``custodian`` (bash, in the page's folder), ``server`` (the same in the background), and the
clients ``mariadb``, ``duckdb``, ``python`` and ``flight`` (Python, too), with alice's token where they look for it; of ``mariadb fails`` each statement has to.
A client that is not there is skipped, and the page's ports are replaced by free ones.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from struck import LONG

import dpsql

PAGE = Path(__file__).parents[2] / "docs/serve.md"
BLOCK = re.compile(r"^<!-- (?P<mark>[a-z ]+) -->\n```[a-z]+\n(?P<code>.*?)^```", re.DOTALL | re.MULTILINE)
BESIDE = Path(sys.executable).parent


class Walk:
    """The page's folder, and the server while it runs."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port, self.flight = folder, "", ""
        self.blocks = [(m["mark"], m["code"]) for m in BLOCK.finditer(PAGE.read_text(encoding="utf-8"))]
        (folder / "bin").mkdir()
        root = Path(dpsql.__file__).parents[1]
        command = folder / "bin" / "dpsql"
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m dpsql.cli "$@"\n')
        command.chmod(0o700)
        paths = os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])
        path = os.pathsep.join([str(folder / "bin"), str(BESIDE), os.environ["PATH"]])
        self.env = {**os.environ, "PYTHONPATH": paths, "PATH": path, "HOME": str(folder), "OPENBLAS_NUM_THREADS": "1"}
        self.server: subprocess.Popen[str] | None = None

    def marked(self, mark: str) -> list[str]:
        found = [code.replace("3306", self.port).replace("31337", self.flight or "") for name, code in self.blocks if name == mark]
        assert found, mark
        return found

    def run(self, command: list[str], text: str = "", code: int = 0) -> str:
        done = subprocess.run(command, input=text, cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=LONG, check=False)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout if code == 0 else done.stderr

    def start(self) -> None:
        """Set up and serve."""
        told = [self.run(["bash", "-e", "-c", code]) for code in self.marked("custodian")]
        (self.listed,) = [text for text in told if "published" in text]
        (code,) = self.marked("server")
        command = code.replace("localhost:", "localhost:0") if importlib.util.find_spec("pyarrow") else code.replace("localhost:", "localhost:0 #")
        self.server = subprocess.Popen(["bash", "-c", f"exec {command}"], cwd=self.folder, env=self.env, stderr=subprocess.PIPE, text=True)
        hangs = threading.Timer(LONG, self.server.kill)
        hangs.start()
        told = self.server.stderr.readline()
        hangs.cancel()
        self.port, self.flight = re.search(r"serving census\.duckdb as census: mysql on localhost:([0-9]+)(?:, flight on localhost:([0-9]+))?; ", told).groups()
        token = (self.folder / "alice.token").read_text().strip()
        self.env |= {"MYSQL_PWD": token, "DPSQL_TOKEN": token}

    def stop(self) -> None:
        if self.server is not None:
            self.server.terminate()
            rest = self.server.communicate(timeout=LONG)[1]
            assert self.server.returncode == 0 and rest.endswith("stopped\n"), rest


@pytest.fixture(scope="module")
def walk(tmp_path_factory):
    made = Walk(tmp_path_factory.mktemp("walkthrough"))
    made.start()
    yield made
    made.stop()


def test_the_custodian_sets_up(walk):
    told, *lines = walk.listed.splitlines()
    assert told == "main.wards is published" and [line.split()[:2] for line in lines[1:3]] == [["alice", "valid"], ["bob", "valid"]]
    assert lines[1].endswith("main.visits=0.05") and lines[2].endswith("main.visits=0.1") and lines[3] == "published: main.wards"


@pytest.mark.skipif(shutil.which("mariadb") is None, reason="mariadb's shell is not there")
def test_the_mariadb_shell(walk):
    code, own = walk.marked("mariadb")
    lines = walk.run(["bash", "-e", "-c", code]).splitlines()
    assert lines[0].startswith("Tables_in_census") and {"visits", "wards"} <= set(lines)
    wards = [line.split("\t") for line in lines[lines.index("ward\tn\tmean") + 1 :][:3]]
    assert {ward for ward, *_ in wards} == {"north", "south", "east"} and sum(int(n) for _, n, _ in wards) > 15_000
    assert [float(n) for _, n, _ in wards] == sorted((float(n) for _, n, _ in wards), reverse=True)
    assert {line.split("\t")[0] for line in lines[lines.index("m\tn") + 1 :][:12]} == {str(month) for month in range(1, 13)}
    assert len(lines[lines.index("beds\tn") + 1 :]) == 3
    answer = walk.run(["mariadb", "--protocol", "tcp", "--port", walk.port, "--user", "alice", "census", "-e", own]).splitlines()
    assert answer[0] == "ward\ts" and len(answer) == 4
    (refused,) = walk.marked("mariadb fails")
    for statement in filter(str.strip, refused.split(";\n")):
        told = walk.run(["mariadb", "--protocol", "tcp", "--port", walk.port, "--user", "alice", "census", "-e", statement], code=1)
        assert told.splitlines()[-1].startswith("ERROR ") and not re.search(r"dpsql/|\.py|Traceback", told), told


@pytest.mark.skipif(importlib.util.find_spec("pymysql") is None, reason="pymysql is not there")
def test_python(walk):
    for code in walk.marked("python"):
        assert re.search(r"'north'|│ north ", walk.run([sys.executable, "-P", "-c", code]))


@pytest.mark.skipif(importlib.util.find_spec("adbc_driver_flightsql") is None, reason="the driver adbc-driver-flightsql is not there")
def test_flight(walk):
    (code,) = walk.marked("flight")
    told = walk.run([sys.executable, "-P", "-c", code])
    assert "north" in told and "ward: string" in told and "n: int64" in told


def shell_and_extension() -> tuple[str, Path] | None:
    """DuckDB's own shell, and its extension for MySQL from the wheel of that version."""
    package = importlib.util.find_spec("duckdb_cli")  # of several versions the one that this process would take
    shell = None if package is None or package.origin is None else shutil.which(str(Path(package.origin).parent / "duckdb"))
    found = importlib.util.find_spec("duckdb_extension_mysql_scanner")
    if shell is None or found is None:
        return None
    version = subprocess.run([shell, "--version"], capture_output=True, text=True, check=True).stdout.split()[0]
    file = Path(next(iter(found.submodule_search_locations or []))) / "extensions" / version / "mysql_scanner.duckdb_extension"
    return (shell, file) if file.is_file() else None


@pytest.mark.skipif(shell_and_extension() is None, reason="no duckdb shell with the wheel of its mysql extension: duckdb-cli and duckdb-extension-mysql-scanner of 1.5.5")
def test_the_duckdb_shell(walk):
    shell, file = shell_and_extension()
    (code,) = walk.marked("duckdb")
    rows = walk.run([shell, "-csv", "-bail"], code.replace("LOAD mysql;", f"LOAD '{file}';")).splitlines()
    first, second = rows.index("ward,n,mean"), rows.index("m,n")
    assert {row.split(",")[0] for row in rows[first + 1 : first + 4]} == {"north", "south", "east"} and len(rows[second + 1 :]) == 12
