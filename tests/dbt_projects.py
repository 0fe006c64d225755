"""dbt projects for tests: a folder with a database, and commands run in it by a process of its own.

Importing dbt and dpsql takes longer than a build: one process does so, and forks one for each test.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
from seeded_entropy import SOURCES, environment, refused

from dpsql.dbt.project import init

DRIVER = Path(__file__).with_name("dbt") / "dbt_driver.py"
CHARGES = ["sql", "SELECT release FROM dpsql.ledger WHERE action = 'charge' ORDER BY release"]
SETTINGS = {"OPENBLAS_NUM_THREADS": "1", "DBT_SEND_ANONYMOUS_USAGE_STATS": "false"}
PROFILE = """
project:
  target: dev
  outputs:
    dev:
      type: duckdb
      path: project.duckdb
      threads: 4
      module_paths: [.]
      plugins: [{module: dpsql.dbt}, {module: killer}]
"""
KILLER = """
import os
from dbt.adapters.duckdb.plugins import BasePlugin
from dpsql.purchase import buying

class Plugin(BasePlugin):
    def initialize(self, plugin_config):
        if os.environ.get("KILL") == "after the charge":
            buying.measure = lambda *arguments: os._exit(9)
"""


def dbt(folder: Path, *commands: list[str], more: dict[str, str] | None = None, alone: bool = False) -> list[Any]:
    """Run commands in a project; return what `dbt_driver` says of each.

    Parameters
    ----------
    more : dict, optional
        Added to the environment.
    alone : bool
        Whether the process imports everything itself, in the order in which dbt does.
    """
    given = {**os.environ, **SETTINGS, **(more or {})}
    if alone:
        command = [sys.executable, "-P", DRIVER, json.dumps(commands)]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=given)
        code, text = done.returncode, done.stdout + done.stderr
    else:
        output = folder.with_name(f"{folder.name}.printed")
        asked = {"commands": commands, "folder": str(folder), "environment": environment(given), "output": str(output)}
        server = _server()
        assert server.stdin is not None and server.stdout is not None
        server.stdin.write(json.dumps(asked) + "\n")
        server.stdin.flush()
        code, text = int(server.stdout.readline()), output.read_text()
    lines = [line for line in text.splitlines() if line.startswith("RESULT ")]
    return json.loads(lines[0].removeprefix("RESULT ")) if lines else [code, text]


@functools.cache
def _server() -> subprocess.Popen[str]:
    """Start the process that forks; it is no child of the test that happens to come first, and draws nothing itself."""
    before = SOURCES.use(refused)
    try:
        server = subprocess.Popen(
            [sys.executable, "-P", DRIVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **SETTINGS}
        )
    finally:
        SOURCES.use(before)
    atexit.register(server.communicate)
    return server


def project(folder: Path, tables: str, files: dict[str, str]) -> Path:
    """Make a project with the dbt package installed, and its database."""
    (folder / "models").mkdir(parents=True)
    (folder / "dbt_project.yml").write_text("name: project\nversion: '1.0'\nprofile: project\n")
    (folder / "profiles.yml").write_text(PROFILE)
    (folder / "killer.py").write_text(KILLER)
    for name, text in files.items():
        (folder / "models" / name).write_text(text)
    with duckdb.connect(str(folder / "project.duckdb")) as con:
        con.execute(tables)
    init(folder)
    (folder / "dbt_packages").mkdir()
    (folder / "dbt_packages" / "dpsql").symlink_to(folder / "dpsql_package")  # as `dbt deps` does, which another test runs
    return folder
