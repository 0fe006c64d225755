"""Options and columns that `modips` takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dpsql.domains.attributes import Attribute
from dpsql.errors import ArgumentError
from dpsql.methods.options import check_choices, is_number, is_whole

BUDGETS = ("split", "joint")

THRESHOLDS = ("clamp", "truncate")

MAXIMUM_SETS = 1000


def check_values(chosen: Mapping[str, Any]) -> None:
    """Refuse an option that is none of those allowed."""
    sets = chosen["sets"]
    if not is_whole(sets, 1, MAXIMUM_SETS):
        raise ArgumentError("sets", sets, f"a whole number from 1 to {MAXIMUM_SETS} is required")
    check_choices(chosen, {"budget": BUDGETS, "threshold": THRESHOLDS})
    shares = chosen["shares"]
    if isinstance(shares, str) and shares == "auto":
        return
    expected = "'auto' or three numbers from 0.001 to 1000: relative shares of counts, sums and moments, e.g. [0.25, 0.5, 0.25]"
    if isinstance(shares, str) or not isinstance(shares, Sequence) or len(shares) != 3:
        raise ArgumentError("shares", shares, expected)
    if not all(is_number(share, 0.001, 1000) for share in shares):
        raise ArgumentError("shares", list(shares), expected)


def check_columns(attributes: Sequence[Attribute]) -> None:
    """Refuse numeric columns that may hold something that is no number between the bounds: all of them at once."""
    numeric = [attribute for attribute in attributes if attribute.kind == "numeric"]
    empty = [attribute.name for attribute in numeric if attribute.nullable]
    beyond = [attribute.name for attribute in numeric if attribute.outside != "clamp"]
    faults = []
    if empty:
        faults.append(
            f"modips sums the values of numeric columns, and {', '.join(map(repr, empty))} may be NULL: dp_declare(..., "
            "nullable := false), which counts NULL as the lower bound; or fill it in a view"
        )
    if beyond:
        faults.append(
            f"modips needs numeric columns with outside := 'clamp', not so {', '.join(map(repr, beyond))}: "
            "dp_declare(..., outside := 'clamp')"
        )
    if faults:
        raise ArgumentError("columns", list(dict.fromkeys([*empty, *beyond])), "; ".join(faults))
