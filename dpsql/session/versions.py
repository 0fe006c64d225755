"""Which versions of DuckDB dpsql was tried with.

What dpsql refuses and rewrites rests on how DuckDB parses, binds, optimises and runs a statement. Each of these facts has a test
(marker ``fact``), and no wall stands on a single one; but a version that nobody has run the tests on may differ in several.
"""

from __future__ import annotations

import threading
import warnings

import duckdb

from dpsql.errors import UntriedDuckDB

TRIED = ("1.4.5", "1.5.6", "2.0.0", "2.0.1")
"""Every test was run on these."""
_said: set[str] = set()
_saying = threading.Lock()


def newer(version: str) -> bool:
    """Return whether a version is newer than any that was tried; one that cannot be read as numbers is taken to be.

    Examples
    --------
    >>> newer("2.0.0"), newer("99.0.0"), newer("1.3.9"), newer("2.0.2.dev3")
    (False, True, False, True)
    """
    numbers = _numbers(version)
    return numbers is None or numbers > max(filter(None, map(_numbers, TRIED)))


def first_number() -> int:
    """Return the first number of the version of the DuckDB that runs."""
    numbers = _numbers(duckdb.__version__)
    return numbers[0] if numbers else int(TRIED[-1].split(".", maxsplit=1)[0])


def described(version: str | None = None) -> str:
    """Return a version (default: of the DuckDB that runs) with, where it is newer than any tried one, a word that says so.

    Examples
    --------
    >>> described("2.0.0")
    '2.0.0'
    """
    version = duckdb.__version__ if version is None else version
    return f"{version}: newer than any that dpsql was tried with, {TRIED[-1]}" if newer(version) else version


def warn_once() -> None:
    """Warn, once a process, where the DuckDB that runs is newer than any that was tried.

    Warns
    -----
    UntriedDuckDB
    """
    version = duckdb.__version__
    with _saying:
        if version in _said or not newer(version):
            return
        _said.add(version)
    warnings.warn(
        f"DuckDB {version} is newer than any version that dpsql was tried with (the last is {TRIED[-1]}). What dpsql relies on may "
        f"have changed; `pip install duckdb=={TRIED[-1]}` gives one that was tried, `pytest -m fact` lists what differs.",
        UntriedDuckDB,
        stacklevel=3,
    )


def _numbers(version: str) -> tuple[int, ...] | None:
    try:
        return tuple(int(part) for part in version.split("."))
    except ValueError:
        numbers = version.split(".dev")[0].split("rc")[0]
        return None if numbers == version else _numbers(numbers)
