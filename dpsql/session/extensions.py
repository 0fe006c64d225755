"""DuckDB's extensions quack and httpfs: where they come from, and what is said where they are missing.

Wheels of both are on the package index for some versions of DuckDB, and hold signed files. Nothing is downloaded here.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import duckdb

from dpsql.errors import DpsqlError, first_line
from dpsql.text.relation import literal

NAMES = ("httpfs", "quack")
"""In this order: quack speaks through httpfs."""
PINNED = ("1.5.3", "1.5.4", "1.5.5")
"""Versions of DuckDB that have wheels of both on the package index."""


def load_extensions(con: duckdb.DuckDBPyConnection) -> None:
    """Load both extensions: from wheels of this version of DuckDB, else installed ones.

    Raises
    ------
    DpsqlError
        One of them is missing, or does not load.
    """
    for name in NAMES:
        path = wheel_file(name)
        try:
            con.execute(f"LOAD {literal(str(path)) if path else name}")
        except duckdb.Error as error:
            raise DpsqlError(missing(name, duckdb.__version__, None if path is None else first_line(error))) from None


def wheel_file(name: str) -> Path | None:
    """Return the file of an extension that a wheel has brought for this version of DuckDB, or None."""
    spec = importlib.util.find_spec(f"duckdb_extension_{name}")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder) / "extensions" / f"v{duckdb.__version__}" / f"{name}.duckdb_extension"
        if path.is_file():
            return path
    return None


def missing(name: str, version: str, failed: str | None = None) -> str:
    """Return what to do where an extension cannot be loaded.

    Parameters
    ----------
    failed : str, optional
        What DuckDB said of a wheel's file.

    Examples
    --------
    >>> missing("quack", "1.5.5").startswith("DuckDB's extension quack is missing: pip install duckdb-extension-quack==1.5.5 ")
    True
    """
    if failed is not None:
        return f"DuckDB {version} does not load the extension {name} of its wheel: {failed}"
    if version in PINNED:
        return (
            f"DuckDB's extension {name} is missing: "
            f"pip install duckdb-extension-quack=={version} duckdb-extension-httpfs=={version}"
        )
    newest = PINNED[-1]
    return (
        f"DuckDB's extension {name} is missing, and there are no wheels of it for DuckDB {version}: "
        f"pip install duckdb=={newest} duckdb-extension-quack=={newest} duckdb-extension-httpfs=={newest}, or, where a network may "
        f"be used, INSTALL httpfs and INSTALL quack; --mysql needs neither"
    )
