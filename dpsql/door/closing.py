"""What leaves by a SQL function when a call fails: a text of dpsql's, no trace, and nothing of what was not foreseen.

DuckDB 1.x appends the places of a Python error's trace to the text that SQL users read, and those of whoever called: the deepest
place of the trace and all around it. So an error leaves with a trace of one place that is nowhere.
"""

from __future__ import annotations

import os
import sys
import traceback
from types import FrameType, TracebackType
from typing import Any

import duckdb

from dpsql.errors import DpsqlError, first_line

DEBUG = "DPSQL_DEBUG"
OUT_OF_MEMORY = "not enough memory for this call; what was charged is finished by the same call, without another charge"
UNFORESEEN = (
    "the call failed for a reason that dpsql did not foresee; what was charged is finished by the same call, without a new charge."
    " The custodian sees the reason on standard error with the environment variable DPSQL_DEBUG=1"
)


def closed(error: BaseException) -> BaseException:
    """Return the error that a SQL function raises in place of another one.

    Errors of dpsql and interruptions keep their text, those of DuckDB its first line; of any other error nothing is said. With
    DPSQL_DEBUG=1 in the environment the trace goes to standard error.
    """
    if not isinstance(error, (DpsqlError, KeyboardInterrupt, duckdb.InterruptException)):
        debug(error)
        if isinstance(error, (MemoryError, duckdb.OutOfMemoryException)):
            error = DpsqlError(OUT_OF_MEMORY)
        elif isinstance(error, duckdb.Error):
            error = type(error)(first_line(error))
        elif isinstance(error, Exception):
            error = DpsqlError(UNFORESEEN)
    error.__context__ = error.__cause__ = None
    return error.with_traceback(TracebackType(None, _NOWHERE, 0, 1))


def debug(error: BaseException) -> None:
    """Write the trace of an error to standard error, where the environment asks for it."""
    if os.environ.get(DEBUG, "") not in ("", "0"):
        sys.stderr.write("".join(traceback.format_exception(error)))


def _nowhere() -> FrameType:
    """Return a frame without a caller, of code in no file."""
    names: dict[str, Any] = {}
    exec(compile("def call():\n    yield\n", "dpsql", "exec"), names)  # noqa: S102 -- two lines of ours
    generator = names["call"]()
    _kept.append(generator)
    frame: FrameType = generator.gi_frame
    return frame


_kept: list[object] = []  # a frame goes with its generator
_NOWHERE = _nowhere()
