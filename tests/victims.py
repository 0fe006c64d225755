"""Child processes that kill themselves where a call comes to a place of the package: one process imports everything, and forks them.

Importing takes longer than a call, and no database is opened in the process that forks, so it has no threads.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

PROGRAM = """
import importlib, json, os, sys, duckdb, dpsql

def victim(path, module, name, when, call):
    con = duckdb.connect(path)
    dpsql.load(con, progress=False)
    there, calls = importlib.import_module(module), []
    *owner, name = name.split(".")
    for one in owner:
        there = getattr(there, one)
    plain = getattr(there, name)

    def last(*given, **named):
        calls.append(name)
        if len(calls) == when or when in given:
            os.kill(os.getpid(), 9)
        return plain(*given, **named)

    setattr(there, name, last)
    con.execute(call).fetchall()

for name in sys.argv[1:]:
    importlib.import_module(name)
for line in sys.stdin:
    child = os.fork()
    if not child:
        os.dup2(2, 1)  # DuckDB's own bar, which a busy machine shows, is no answer
        victim(*json.loads(line))
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@contextmanager
def nursery(modules: Sequence[str] = ()) -> Iterator[subprocess.Popen[str]]:
    """Give a process that makes victims; ``modules`` are imported once, for all of them."""
    command = [sys.executable, "-P", "-c", PROGRAM, *modules]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


def killed(victims: subprocess.Popen[str], path: Path, module: str, name: str, when: int | str, call: str) -> None:
    """Call in a process that is killed at the n-th call of a function, or at its first one with a text.

    ``name``: of the function in the module, or ``Class.method``.
    """
    assert victims.stdin is not None and victims.stdout is not None
    print(json.dumps([str(path), module, name, when, call]), file=victims.stdin, flush=True)
    assert int(victims.stdout.readline()) == -signal.SIGKILL
