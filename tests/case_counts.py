"""How many cases property tests try: few on every change, twenty times as many with DPSQL_HYPOTHESIS=thorough."""

from __future__ import annotations

import os

PROFILE = os.environ.get("DPSQL_HYPOTHESIS", "ci")


def cases(few: int) -> int:
    """Return the number of examples, given that of every change."""
    return few * {"ci": 1, "thorough": 20}[PROFILE]
