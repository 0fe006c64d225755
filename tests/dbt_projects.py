"""dbt projects for tests: a folder with a database, and commands run in it by a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb

from dpsql.dbt.project import init

DRIVER = Path(__file__).with_name("dbt") / "dbt_driver.py"
CHARGES = ["sql", "SELECT release FROM dpsql.ledger WHERE action = 'charge' ORDER BY release"]
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


def dbt(folder: Path, *commands: list[str], environment: dict[str, str] | None = None) -> list[Any]:
    """Run commands in a project; return what `dbt_driver` says of each."""
    done = subprocess.run(
        [sys.executable, "-P", DRIVER, json.dumps(commands)], cwd=folder, capture_output=True, text=True, check=False,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "DBT_SEND_ANONYMOUS_USAGE_STATS": "false", **(environment or {})},
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if not lines:
        return [done.returncode, done.stdout + done.stderr]
    return json.loads(lines[0].removeprefix("RESULT "))


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
