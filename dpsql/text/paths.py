"""Paths of this machine: where a text leads, and which file or folder a path is, whatever it is called there."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import unquote

_LOCAL = re.compile(r"file:(?://(?:localhost)?(?=/))?(.+)", re.DOTALL)
Identity = tuple[int, int]
"""Device and inode."""


def local_path(path: str) -> Path | None:
    """Return the real path of a folder or file of this machine; None for what is elsewhere, or cannot be followed.

    Examples
    --------
    >>> str(local_path("file:///data/my%20people")), local_path("s3://data/people")
    ('/data/my people', None)
    """
    match = _LOCAL.fullmatch(path)
    if match:
        path = unquote(match[1])
    elif re.match(r"[A-Za-z][A-Za-z0-9+.-]+:", path):
        return None
    return resolved(path)


def resolved(path: str | Path) -> Path | None:
    """Return the real path; None where it cannot be followed: one may not look, or links lead round.

    Examples
    --------
    >>> str(resolved("/usr/../usr")), resolved("~nobody-has-this-name/x")
    ('/usr', None)
    """
    try:
        return Path(path).expanduser().resolve()
    except (OSError, RuntimeError, ValueError):
        return None


def is_folder(path: str | Path) -> bool:
    """Return whether there is a folder, as far as one may look."""
    try:
        return stat.S_ISDIR(Path(path).stat().st_mode)
    except (OSError, ValueError):
        return False


def is_file(path: str | Path) -> bool:
    """Return whether there is a file, as far as one may look: no pipe, which may never end, and no device."""
    try:
        return stat.S_ISREG(Path(path).stat().st_mode)
    except (OSError, ValueError):
        return False


def identity(path: str | Path) -> Identity | None:
    """Return which file or folder a path leads to; None where there is none, or one may not look."""
    try:
        status = Path(path).stat()
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino


def one_file_twice(paths: Iterable[str | Path]) -> bool:
    """Return whether two paths are one file: a symbolic link, a hard link or a mount. No file is opened."""
    identities = [file for file in map(identity, paths) if file is not None]
    return len(set(identities)) != len(identities)
