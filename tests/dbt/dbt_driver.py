"""Run dbt commands and SQL in one process, and print as JSON what came of each: importing dbt costs more than a run.

    python dbt_driver.py '[["build"], ["sql", "FROM dpsql.ledger"]]'

Without an argument it imports all of dbt and dpsql, and forks a process for each request on standard input: an object with commands,
folder, environment and the file that takes what is printed. The answer is the exit code.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import sys
import traceback
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


def serve() -> None:
    import dbt.adapters.duckdb.connections  # noqa: F401 -- for the forks, as what follows

    import dpsql.dbt  # noqa: F401
    from dpsql.door.dispatch import ANSWERS, answer

    for name in ANSWERS:
        answer(name)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            forked(**json.loads(line))
        sys.stdout.write(f"{os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}\n")
        sys.stdout.flush()


def forked(commands: list[list[str]], folder: str, environment: dict[str, str], output: str) -> None:
    from dpsql.noise import entropy

    code = 1
    try:
        os.chdir(folder)
        os.environ.update(environment)
        key = environment.get("DPSQL_TEST_NOISE")
        if key:  # as `seeded_child/sitecustomize.py` does in a process of its own
            entropy._source = random.Random(f"{environment.get('DPSQL_TEST_SEED', '0')}\n{key}").randbytes
        written = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(written, 1)
        os.dup2(written, 2)
        main(commands)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(json.loads(sys.argv[1]))
    else:
        serve()
