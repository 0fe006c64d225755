"""The commands of examples/serve, as they stand there but for places and ports: the unit answers, logs, and stops when told to."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import duckdb
import pytest
from struck import LONG

import dpsql
from dpsql.cli.commands import main
from dpsql.serve import analysts

UNIT = Path(__file__).parents[2] / "examples/serve/dpsql.service"
DOCKERFILE = UNIT.with_name("Dockerfile")
COMMAND = re.search(r"^ExecStart=(.+)$", UNIT.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.fixture
def served(tmp_path):
    with duckdb.connect(tmp_path / "census.duckdb") as con:
        dpsql.load(con)
        con.execute("CREATE TABLE wards AS SELECT 7 AS beds")
    token = analysts.add(tmp_path / "analysts.toml", "alice", {})
    analysts.publish(tmp_path / "analysts.toml", "main.wards")
    assert COMMAND is not None
    program, *words = shlex.split(COMMAND[1])
    assert program.endswith("/bin/dpsql")
    words = [re.sub(r"^localhost:\d+$", "localhost:0", word) for word in words]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(dpsql.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])}
    process = subprocess.Popen([sys.executable, "-P", "-m", "dpsql.cli", *words], cwd=tmp_path, env=env, stderr=subprocess.PIPE, text=True)
    told = process.stderr.readline()
    mysql, health = re.search(r"mysql on localhost:([0-9]+), health on localhost:([0-9]+); ", told).groups()
    yield tmp_path, process, token, int(mysql), f"http://127.0.0.1:{health}"
    process.kill()
    process.communicate(timeout=LONG)


def test_the_unit_serves(served):
    pymysql = pytest.importorskip("pymysql")
    folder, process, token, port, health = served
    with urllib.request.urlopen(f"{health}/health", timeout=LONG) as answer:
        assert (answer.status, answer.read()) == (200, b"ok\n")
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"{health}/analysts.toml", timeout=LONG)
    con = pymysql.connect(host="127.0.0.1", port=port, user="alice", password=token, database="census")
    with con.cursor() as cursor:
        cursor.execute("SELECT beds FROM wards")
        assert cursor.fetchall() == ((7,),)
    con.close()
    line = json.loads((folder / "census.log").read_text().splitlines()[-1])
    assert (line["analyst"], line["outcome"], line["paid"]) == ("alice", "answered", [])
    process.terminate()
    assert process.communicate(timeout=LONG)[1].endswith("stopped\n") and process.returncode == 0
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"{health}/health", timeout=LONG)


def test_the_container_serves_by_a_command_that_is_one(monkeypatch):
    """What the image runs is read as it stands there, TLS on an address that others reach; its check asks where --health listens."""
    lines = dict(re.findall(r"^(ENTRYPOINT|CMD|USER|STOPSIGNAL|HEALTHCHECK) (.+)$", DOCKERFILE.read_text(encoding="utf-8"), re.MULTILINE))
    found = []
    monkeypatch.setattr("dpsql.serve.server.serve", lambda options, room, doors: found.append(options))
    program, *words = json.loads(lines["ENTRYPOINT"]) + json.loads(lines["CMD"])
    assert program == "dpsql" and main(words) == 0
    (options,) = found
    assert (str(options.mysql), str(options.health)) == ("0.0.0.0:3306", "localhost:8306") and options.tls_cert and options.log
    checked = json.loads(lines["HEALTHCHECK"].removeprefix("CMD "))
    assert f"http://{options.health}/health" in checked[-1]
    compile(checked[-1], "HEALTHCHECK", "exec")
    assert (lines["USER"], lines["STOPSIGNAL"]) == ("dpsql", "SIGTERM")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not there")
def test_systemd_knows_every_line(tmp_path):
    """What is said of the program, which is not installed there, aside."""
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text(encoding="utf-8").replace("/opt/dpsql/bin/dpsql", "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", "--recursive-errors=no", str(unit)], capture_output=True, text=True, timeout=LONG, check=False)
    assert "Unknown" not in done.stderr and "Failed to parse" not in done.stderr, done.stderr
