"""Functions whose answer, or whose work, is not bounded by the size of their arguments: what is written must bound it.

DuckDB looks whether it is to stop between chunks of rows, not inside of a function. So one call that works for minutes holds a turn
of the server's, whatever the limit of time. What works with the square of its arguments' length is on no list at all
(`dpsql.serve.gate.functions`); what makes a large value of a small number is here: the number is a constant, and small.
"""

from __future__ import annotations

import math
import re
from typing import Any

from dpsql.serve.gate.reasons import refuse

Node = dict[str, Any]

LETTERS, ITEMS = 10_000, 1_000_000
MOST = 10_000_000
"""The sizes of one statement, multiplied: one call may repeat what another one has made."""
_SMALL = 100
SIZED: dict[str, tuple[int, int]] = {
    "repeat": (1, LETTERS), "lpad": (1, LETTERS), "rpad": (1, LETTERS), "bar": (3, LETTERS), "to_base": (2, LETTERS),
    "bitstring": (1, LETTERS), "list_resize": (1, ITEMS), "array_resize": (1, ITEMS), "equi_width_bins": (2, ITEMS),
}  # fmt: skip
"""By function: which argument is a size, from 0, and its limit."""
RANGES = frozenset({"range", "generate_series"})
"""Lists from one number to another; as table functions they give one row after the other, and can be stopped."""
PATTERNS = frozenset({
    "~~", "!~~", "~~*", "!~~*", "~~~", "like_escape", "not_like_escape", "ilike_escape", "not_ilike_escape"
})  # fmt: skip
"""Patterns, which DuckDB matches with a power of the text's length: of the number of wildcards."""
FORMATS = frozenset({"format", "printf"})
WILDCARDS = 2
_WIDE = re.compile(r"[0-9]{4,}|\{[^}]*\{|%[^a-zA-Z%]*\*")


def check(name: str, node: Node) -> int:
    """Check a call of a function; return the size that it makes, 1 where there is none.

    Raises
    ------
    Refusal
    """
    arguments = node.get("children") or [a["expression"] for a in node.get("arguments") or []]
    if name in SIZED:
        place, most = SIZED[name]
        return _size(name, arguments[place], most) if place < len(arguments) else 1
    if name in RANGES:
        ends = [number(one) for one in arguments]
        if any(one is None for one in ends) or not 1 <= len(ends) <= 3:
            refuse("size", name, ITEMS)
        numbers = [float(one) for one in ends if one is not None]
        first, last = (0.0, numbers[0]) if len(numbers) == 1 else (numbers[0], numbers[1])
        step = numbers[2] if len(numbers) == 3 else 1.0
        length = abs(last - first) / abs(step) + 1 if step else 1.0
        return int(length) if math.isfinite(length) and length <= ITEMS + 1 else refuse("size", name, ITEMS)
    if name in PATTERNS and len(arguments) > 1:
        text = plain(arguments[1])
        simple = name in ("~~", "!~~") and text is not None and "_" not in text
        if text is None or (not simple and sum(map(text.count, "%*")) > WILDCARDS):
            refuse("pattern", WILDCARDS)
    if name in FORMATS and arguments:
        text = plain(arguments[0])
        if text is None or _WIDE.search(text):
            refuse("format", name)
    return 1


def check_all(sizes: list[int]) -> None:
    """Refuse a statement whose sizes, one times the other, are too large.

    Raises
    ------
    Refusal
    """
    # calls stand in each other, so that what one makes may be made again by the next
    if math.prod(size for size in sizes if size > _SMALL) > MOST:
        refuse("sizes", MOST)


def _size(name: str, node: Node, most: int) -> int:
    size = number(node)
    if size is None or not size <= most:
        refuse("size", name, most)
    return max(1, int(size))


def number(node: Node) -> float | None:
    """Return a number that is written, None for anything else."""
    if node.get("class") == "FUNCTION" and node.get("function_name") == "-":
        inside = node.get("children") or [a["expression"] for a in node.get("arguments") or []]
        negated = number(inside[0]) if len(inside) == 1 else None
        return None if negated is None else -negated
    value = _constant(node)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def plain(node: Node) -> str | None:
    """Return a text that is written, None for anything else."""
    value = _constant(node)
    return value if isinstance(value, str) else None


def _constant(node: Node) -> str | int | float | bool | None:
    """Return a constant, in the parse tree of any version of DuckDB; None for anything else."""
    if node.get("class") != "CONSTANT":
        return None
    if "literal" not in node:
        stored: str | int | float | bool | None = (node.get("value") or {}).get("value")
        return stored
    text = str(node["literal"].get("text", ""))
    if node["literal"].get("kind") == "STRING":
        return text
    try:
        return float(text) if node["literal"].get("kind") in ("INTEGER", "NUMERIC") else None
    except ValueError:
        return None
