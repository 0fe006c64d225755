"""Noise in tests comes from a seed: the same test draws the same, alone or in the suite, first or last, in whichever worker.

Every draw of the package goes through ``dpsql.noise.entropy.random_bytes``, whose source is replaced here: for a test, and for
fixtures of its own, by a generator that is keyed by the test's node id and by DPSQL_TEST_SEED (default 0); for a fixture of a wider
scope, by one that is keyed by the fixture's name. Threads that a test starts draw from streams of their own, numbered as they are
started (the threads of DuckDB, which run a call when it pleases them, draw from the one of the test). Child processes are told by
their environment (`seeded_child/sitecustomize.py`). While no test runs, a draw is an error.

Tests whose subject is randomness itself say ``@pytest.mark.fresh_noise`` and draw from the operating system.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpsql.noise import entropy

SEED = os.environ.get("DPSQL_TEST_SEED", "0")
KEY, CHILD = "DPSQL_TEST_NOISE", Path(__file__).parent / "seeded_child"
NUMBER = "dpsql_test_stream"
"""Attribute of a thread: which stream it draws from."""


class Streams:
    """Stands for `os.urandom`: deterministic streams, one for the main thread and DuckDB's, one for each thread that was started."""

    def __init__(self, key: str) -> None:
        self.key = key
        self._guard = threading.Lock()
        self._made: dict[str, np.random.Generator] = {}
        self.started = 0
        self.children = 0

    def __call__(self, count: int) -> bytes:
        """Return so many bytes."""
        name = getattr(threading.current_thread(), NUMBER, "")
        with self._guard:
            if name not in self._made:
                digest = hashlib.sha256(f"{SEED}\n{self.key}\n{name}".encode()).digest()
                self._made[name] = np.random.Generator(np.random.PCG64(int.from_bytes(digest)))
            return self._made[name].bytes(count)


def refused(count: int) -> bytes:
    """Draw outside of tests and fixtures."""
    raise AssertionError("noise was drawn while no test and no fixture ran: at import, or by a thread that outlived its test")


class Sources:
    """Which source serves now; the ones before it, while a fixture of a wider scope is set up."""

    def __init__(self) -> None:
        self.now: Callable[[int], bytes] = refused

    def use(self, source: Callable[[int], bytes]) -> Callable[[int], bytes]:
        """Draw from this source; return the one before."""
        before, self.now = self.now, source
        entropy._source = source
        return before


SOURCES = Sources()


def _key(item: pytest.Item) -> Callable[[int], bytes]:
    return os.urandom if item.get_closest_marker("fresh_noise") else Streams(item.nodeid)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Give a test its stream."""
    before = SOURCES.use(_key(item))
    try:
        return (yield)
    finally:
        SOURCES.use(before)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest) -> Iterator[None]:
    """Give a fixture of a wider scope a stream of its own: which test asks for it first must not matter."""
    if fixturedef.scope == "function":
        return (yield)
    before = SOURCES.use(Streams(f"{fixturedef.baseid}::{fixturedef.argname}[{getattr(request, 'param', '')!r}]"))
    try:
        return (yield)
    finally:
        SOURCES.use(before)


def pytest_configure() -> None:
    """Number the threads and the child processes of a test as they are started."""
    SOURCES.use(refused)
    start, begin = threading.Thread.start, subprocess.Popen.__init__

    def numbered(self: threading.Thread) -> None:
        # The package's own threads (progress, interruption, drawing rows) take nothing from here, and some start by the clock.
        if isinstance(SOURCES.now, Streams) and not self.name.startswith("dpsql-"):
            SOURCES.now.started += 1
            outer = getattr(threading.current_thread(), NUMBER, "")
            setattr(self, NUMBER, f"{outer}/{SOURCES.now.started}")
        start(self)

    def told(self: Any, *given: Any, **named: Any) -> None:
        named["env"] = environment(named.get("env"))
        begin(self, *given, **named)

    threading.Thread.start = numbered  # type: ignore[method-assign]
    subprocess.Popen.__init__ = told  # type: ignore[method-assign]


def environment(given: dict[str, str] | None = None) -> dict[str, str]:
    """Return the environment of a child process that draws from a seed, like its test; another one for each child."""
    made = dict(os.environ if given is None else given)
    source = SOURCES.now
    if isinstance(source, Streams):
        source.children += 1
        made[KEY] = f"{source.key}/child {source.children}"
        made["PYTHONPATH"] = os.pathsep.join(filter(None, [str(CHILD), made.get("PYTHONPATH", "")]))
    return made
