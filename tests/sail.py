"""A Spark Connect server of the tests: Sail, without Java. One in each process of the suite, or a process that a test may kill."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import warnings
from functools import cache
from types import TracebackType
from typing import Any, Self

import pytest

WHY = "pysail and pyspark-client are not installed: pip install 'dpsql[dev]'"


@cache
def url() -> str:
    """Return the address of this process's server."""
    pytest.importorskip("pyspark.sql.connect", reason=WHY)
    pytest.importorskip("pysail", reason=WHY)
    from pysail.spark import SparkConnectServer

    os.environ.setdefault("RUST_LOG", "off")
    server = SparkConnectServer("127.0.0.1", 0)
    server.start(background=True)
    host, port = server.listening_address
    _running.append(server)
    return f"sc://{host}:{port}"


_running: list[Any] = []


@cache
def session() -> Any:
    """Return a session of the tests' own on this process's server, with the settings that dpsql asks for."""
    from dpsql.engines.spark import session as sessions

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return sessions.session(url())
