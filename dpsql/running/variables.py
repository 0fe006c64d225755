"""Whether a statement finds frames by the names of Python's variables."""

from __future__ import annotations

from typing import Any


def finds_variables(cursor: Any) -> bool:
    """Return whether the session of a DuckDB cursor lets it find frames among Python's variables.

    It counts them as access from outside: neither ``python_enable_replacements`` nor ``enable_external_access`` may be off.
    """
    own = "system.main.current_setting"
    found = cursor.execute(f"SELECT {own}('python_enable_replacements') AND {own}('enable_external_access')").fetchall()  # noqa: S608
    return bool(found[0][0])
