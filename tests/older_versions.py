"""On older versions of DuckDB a share of the cases is tried: of those of a function a fourth on each version, of many an eighth, never the same.

DuckDB 1.4 and 1.5 read SQL alike, and the newest version tries every case: what holds of a case there, and of its neighbours on both
older ones, is not tried twice more. ``DPSQL_TEST_OLDER`` is 0 or 1; without it, and with DPSQL_HYPOTHESIS=thorough, each version tries
all cases (so ``.ci/newest`` does). Cases are numbered within their function; functions with a single case in the order of the file,
of which each version has a third. So both versions try every function that has several cases, and all cases marked ``older_duckdb``.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest
from case_counts import PROFILE

MANY = 16
"""Of functions with so many cases, those of a case are its neighbours' too."""


def share(cases: int) -> int:
    """Return of how many cases of a function with so many each older version tries one."""
    return 3 if cases == 1 else 4 if cases < MANY else 8


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what this version does not try."""
    place = os.environ.get("DPSQL_TEST_OLDER")
    if place is None or PROFILE == "thorough":
        return
    number: Counter[str] = Counter()
    cases = Counter(_function(item) for item in items)
    kept, left_out = [], []
    for item in items:
        if item.get_closest_marker("older_duckdb") is not None:
            kept.append(item)
            continue
        counted = _function(item) if cases[_function(item)] > 1 else item.nodeid.split("::")[0]
        (kept if number[counted] % share(cases[_function(item)]) == int(place) else left_out).append(item)
        number[counted] += 1
    items[:] = kept
    config.hook.pytest_deselected(items=left_out)


def _function(item: pytest.Item) -> str:
    return item.nodeid.split("[")[0]
