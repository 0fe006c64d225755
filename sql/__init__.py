"""The fixed SQL of dpsql, shipped as package data."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def text(name: str) -> str:
    """Return the SQL file ``name`` (without its ending) as it was shipped, comments removed.

    Raises
    ------
    FileNotFoundError
        No such file.
    """
    lines = files(__name__).joinpath(f"{name}.sql").read_text(encoding="utf-8").splitlines()
    return "\n".join(line for line in lines if not line.lstrip().startswith("--"))


def statements(name: str) -> tuple[str, ...]:
    """Return the statements of the SQL file ``name``, in order."""
    return tuple(s for s in (part.strip() for part in text(name).split(";\n")) if s)
