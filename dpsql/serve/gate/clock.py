"""The time in a question about protected rows: that of the last full hour, written into its text.

A private query says all that it depends on, so that the same question is the same text: one that reads a clock never is. Charts of
"the last 30 days" do. With the hour in place of ``now()`` they are what they were, and one that is drawn again within the hour is
free. Public tables are read with the clock as it is.

Privacy: none; which hour it is, everybody knows, and what is asked and charged is the text with the hour in it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection
from typing import Any

Node = dict[str, Any]

MOMENTS = frozenset({
    "current_localtimestamp", "current_timestamp", "get_current_timestamp", "localtimestamp", "now", "transaction_timestamp",
})  # fmt: skip
DAYS = frozenset({"current_date", "today"})
WORDS = frozenset({"current_date", "current_timestamp", "localtimestamp"})
"""Those that are written without brackets: names of columns, to DuckDB's parser."""


def moment() -> dt.datetime:
    """Return what time it is, in UTC."""
    return dt.datetime.now(dt.UTC)


def stopped(tree: Any, columns: Collection[str], parsed: Callable[[str], Node]) -> Any:
    """Return a syntax tree with the hour, or the day, in place of every call that reads the clock.

    Parameters
    ----------
    tree : dict or list
        Of DuckDB's parser; it stays as it is.
    columns : collection of str
        Folded names that are columns of what is read, whatever else they mean.
    parsed : callable
        Parses a SELECT.
    """
    if isinstance(tree, list):
        return [stopped(part, columns, parsed) for part in tree]
    if not isinstance(tree, dict):
        return tree
    name = _called(tree, columns)
    if name not in MOMENTS | DAYS:
        return {key: stopped(part, columns, parsed) for key, part in tree.items()}
    text = moment().strftime("'%Y-%m-%d' AS DATE" if name in DAYS else "'%Y-%m-%d %H:00:00' AS TIMESTAMP")
    constant: Node = parsed(f"SELECT CAST({text})")["statements"][0]["node"]["select_list"][0]
    return {**constant, "alias": tree.get("alias", "")}


def _called(node: Node, columns: Collection[str]) -> str:
    """Return the name of the function that a node calls without arguments; '' where it is none."""
    if node.get("class") == "FUNCTION":
        return "" if node.get("children") or node.get("arguments") else str(node["function_name"]).lower()
    names = node.get("column_names") if node.get("class") == "COLUMN_REF" else None
    name = str(names[0]).lower() if isinstance(names, list) and len(names) == 1 else ""
    return name if name in WORDS and name not in columns else ""
