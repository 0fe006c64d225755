"""Tests of facts about DuckDB: ``@pytest.mark.fact("1.4.5", "2.0.0")`` holds on these of the tried versions, ``@pytest.mark.fact`` on all.

A fact that fails on a version which was tried is news, and fails; so does one that begins to hold. On a version that nobody has
tried, a fact is reported (``xfail``, or ``XPASS`` where it holds), since no wall stands on one of them alone.
"""

from __future__ import annotations

import duckdb
import pytest

from dpsql.session import versions


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Say of each fact what is expected on the version that runs."""
    for item in items:
        mark = item.get_closest_marker("fact")
        if mark is not None:
            expected = expectation(duckdb.__version__, mark.args)
            if expected is not None:
                item.add_marker(expected)


def expectation(version: str, holds_on: tuple[str, ...]) -> pytest.MarkDecorator | None:
    """Return the mark for a version, or None where the fact has to hold."""
    unknown = set(holds_on) - set(versions.TRIED)
    if unknown:
        raise ValueError(f"fact: {sorted(unknown)} are not among the versions that were tried, {versions.TRIED}")
    if version not in versions.TRIED:
        return pytest.mark.xfail(reason=f"a fact about DuckDB, and {version} is none of the versions that were tried", strict=False)
    if holds_on and version not in holds_on:
        return pytest.mark.xfail(reason=f"does not hold on DuckDB {version}", strict=True)
    return None
