"""How much memory this process may use, so that a call which cannot fit is refused before it is charged."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from dpsql.errors import ArgumentError

if sys.platform != "win32":
    import resource

VARIABLE = "DPSQL_MEMORY_MB"
_GROUPS = Path("/sys/fs/cgroup")


def memory_mb() -> float | None:
    """Return the memory of this machine or, where they are less, of its control group and of this process, in megabytes.

    The environment variable DPSQL_MEMORY_MB overrides it, for those who know better. None where nothing says.

    Raises
    ------
    ArgumentError
        The environment variable is not a positive number.
    """
    spelled = os.environ.get(VARIABLE)
    if spelled:
        try:
            asked = float(spelled)
        except ValueError:
            asked = 0.0
        if not 0 < asked < float("inf"):
            raise ArgumentError(VARIABLE, spelled, "the environment variable must be a positive number of megabytes, or not be set")
        return asked
    known = [limit for limit in (_physical(), _group(), _process()) if limit is not None]
    return min(known) / 1e6 if known else None


def _physical() -> float | None:
    try:
        return float(os.sysconf("SC_PHYS_PAGES")) * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def _group() -> float | None:
    """Return the least limit of the control groups above this process (version 2, or the one group of version 1)."""
    files = [_GROUPS / "memory.max", _GROUPS / "memory" / "memory.limit_in_bytes"]
    try:
        own = [line[3:].strip("/") for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::")]
    except OSError:
        own = []
    # a group is limited by each of those above it, too
    for name in own:
        folder = _GROUPS / name
        files += [place / "memory.max" for place in (folder, *folder.parents) if place.is_relative_to(_GROUPS)]
    limits = [limit for limit in map(_number, files) if limit is not None]
    return min(limits, default=None)


def _number(file: Path) -> float | None:
    try:
        return float(file.read_text())
    except (OSError, ValueError):  # not there, or 'max'
        return None


def _process() -> float | None:
    if sys.platform == "win32":
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if soft == resource.RLIM_INFINITY else float(soft)
