"""Work counted instead of timed: a machine that is busy changes seconds, and nothing that is counted here."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import duckdb


def calls_made(job: Callable[[], object]) -> int:
    """Return how many calls, of Python and of C functions, a job makes in this thread."""
    made = 0

    def count(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal made
        made += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        job()
    finally:
        sys.setprofile(before)
    return made


def rows_given(cursor: duckdb.DuckDBPyConnection, query: str) -> int:
    """Return how many rows all operators of a statement gave, as DuckDB's own profile says."""
    todo: list[Any] = [json.loads(cursor.execute(f"EXPLAIN (ANALYZE, FORMAT json) {query}").fetchall()[0][1])]
    found = []
    while todo:
        node = todo.pop()
        if isinstance(node, list):
            todo += node
        elif isinstance(node, dict):
            todo += node.values()
            found += [int(node[name]) for name in ("operator_cardinality", "intermediate_rows") if name in node]  # 1.x, 2.0
    assert found
    return sum(found)
