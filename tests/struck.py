"""Child processes that Ctrl-C strikes while DuckDB is in a statement of theirs, for certain: they say so themselves.

A statement that is to be struck calls ``running``, which notes the call; a thread waits until no frame of it is left (DuckDB has
gone on) and then writes RUNNING. What follows in the statement cannot be folded away, and would take a day. A wait or a loop of
Python's, which never ends either, is announced by ``say``. So a child that ends at all was stopped by what struck it.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Sequence

RUNNING = "statement is running"
ENDLESS = "FROM (SELECT running(1) AS x) AS one, range(1000000) AS a, range(1000000) AS b WHERE hash(a.range * b.range + one.x) % 1000003 = 7"
LONG = 600.0
"""Seconds after which a child is taken to hang: nothing is decided by how long it takes."""

PRELUDE = f"""
import contextlib, json, os, signal, sys, threading, time
import duckdb, dpsql
from dpsql.cli import session

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it, and so do its children
called = threading.Event()

def running(x):
    called.set()
    return x

def left():
    stacks = list(sys._current_frames().values())
    while stacks:
        frame = stacks.pop()
        if frame.f_code is running.__code__:
            return False
        if frame.f_back is not None:
            stacks.append(frame.f_back)
    return True

def announce():
    while True:
        called.wait()
        called.clear()
        while not left():
            time.sleep(0.001)
        os.write(1, b"{RUNNING}\\n")

threading.Thread(target=announce, daemon=True).start()

def say():  # of a wait or a loop of Python
    os.write(1, b"{RUNNING}\\n")

connect = session.connect

def connected(*given, **named):
    con = connect(*given, **named)
    con.create_function("running", running, ["BIGINT"], "BIGINT", side_effects=True)
    return con

session.connect = connected
"""


def strike(program: str, arguments: Sequence[object] = (), *, times: int = 1) -> subprocess.CompletedProcess[str]:
    """Run a program after the prelude, strike it each time that it says its statement runs, and return how it ended."""
    command = [sys.executable, "-P", "-c", PRELUDE + program, *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        hangs = threading.Timer(LONG, child.kill)
        hangs.start()
        try:
            assert child.stdout is not None
            seen = ""
            for line in child.stdout:
                seen += line
                if RUNNING in line:
                    child.send_signal(signal.SIGINT)
                    times -= 1
                    if times == 0:
                        break
            rest, errors = child.communicate(timeout=LONG)
        finally:
            hangs.cancel()
            child.kill()
    assert times == 0, f"{times} statements never ran:\n{seen}{rest}\n{errors}"
    return subprocess.CompletedProcess(command, child.returncode, seen + rest, errors)
