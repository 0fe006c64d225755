"""Run dbt commands and SQL in one process, and print as JSON what came of each: importing dbt costs more than a run.

    python dbt_driver.py '[["build"], ["sql", "FROM dpsql.ledger"]]'
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any

import duckdb
from dbt.cli.main import dbtRunner


def main(commands: list[list[str]]) -> None:
    runner, found = dbtRunner(), []
    for command in commands:
        own = {"sql": sql, "write": lambda name, text: Path(name).write_text(text)}
        found.append(own[command[0]](*command[1:]) if command[0] in own else invoke(runner, command))
    sys.stdout.write("\nRESULT " + json.dumps(found, default=str) + "\n")


def sql(text: str) -> list[Any]:
    with duckdb.connect("project.duckdb") as con:
        return con.execute(text).fetchall()


def invoke(runner: dbtRunner, command: list[str]) -> dict[str, Any]:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        done = runner.invoke(["--no-use-colors", *command])
    results = getattr(done.result, "results", None) or []
    return {
        "success": done.success,
        "exception": str(done.exception or ""),
        "nodes": {result.node.name: [str(result.status), result.message or ""] for result in results if hasattr(result, "node")},
        "printed": printed.getvalue(),
    }


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
