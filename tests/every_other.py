"""On older versions of DuckDB every other case is tried: one version has the even ones, the other the odd ones.

DuckDB 1.4 and 1.5 read SQL alike, so that what holds of a case on one of them, and of its neighbour on the other, is not tried
twice. ``DPSQL_TEST_EVERY_OTHER`` is 0 or 1; without it, and with DPSQL_HYPOTHESIS=thorough, each version tries all cases. Cases are
numbered within their function, functions with a single case in the order of the file: so both versions try every function that
has several.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest
from case_counts import PROFILE


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what the other version tries."""
    wanted = os.environ.get("DPSQL_TEST_EVERY_OTHER")
    if wanted is None or PROFILE == "thorough":
        return
    number: Counter[str] = Counter()
    several = Counter(_function(item) for item in items)
    kept, left_out = [], []
    for item in items:
        counted = _function(item) if several[_function(item)] > 1 else item.nodeid.split("::")[0]
        (kept if number[counted] % 2 == int(wanted) else left_out).append(item)
        number[counted] += 1
    items[:] = kept
    config.hook.pytest_deselected(items=left_out)


def _function(item: pytest.Item) -> str:
    return item.nodeid.split("[")[0]
