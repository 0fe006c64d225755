"""Places of values in a public list: a tree of comparisons, log2 of the list's length deep, in the type of the values."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from dpsql.engines.spark.translate.binding import Binder
from dpsql.engines.spark.translate.types import FLOATS, TEXT, Typed, is_exact, of_type, refuse

_FEW = 6


def place_in_list(node: exp.Expression, binder: Binder, scalar: Callable[[exp.Expression], Typed]) -> Typed:
    """Return ``ENUM_CODE(TRY_CAST(CAST(value AS VARCHAR) AS ENUM(...)))``: the place of a value's text in a list, or NULL.

    Spark never writes the text: the list is brought into the type of the value. DuckDB's texts are one to one with the values
    of these types, once minus zero is zero; NaN and infinities are in no list.
    """
    if type(node) is not exp.TryCast or node.args["to"].this != exp.DataType.Type.ENUM:
        refuse("enum_code()", "only of TRY_CAST(... AS ENUM(...))")
    labels = [label.name for label in node.args["to"].expressions]
    inner = node.this
    if type(inner) is exp.Cast and inner.args["to"].this in (exp.DataType.Type.TEXT, exp.DataType.Type.VARCHAR):
        inner = inner.this
    value = scalar(inner)
    return of_type(_searched(value, listed(labels, value, binder)), "UINTEGER")


def listed(labels: list[str], value: Typed, binder: Binder) -> list[tuple[object, str, int]]:
    """Return values of a list, in order: what they are ordered by, as a constant of Spark, and their place in the list."""
    kind = value.type
    if kind == TEXT:
        return sorted((label.encode(), binder.text(label).sql, place) for place, label in enumerate(labels))
    if kind == "BOOLEAN":
        return [(label == "true", label, place) for place, label in enumerate(labels) if label in ("true", "false")]
    if kind not in (*FLOATS, "DATE", "TIMESTAMP") and not is_exact(kind):
        refuse(f"a list of {kind}")
    constants = [binder.cast_text(label, kind) for label in labels]
    return sorted(((c.value, c.sql, place) for place, c in enumerate(constants)), key=lambda entry: entry[0])  # type: ignore[arg-type, return-value]


def _searched(value: Typed, entries: list[tuple[object, str, int]]) -> str:
    if len(entries) <= _FEW:
        cases = " ".join(f"WHEN {value.sql} = {text} THEN {place}L" for _, text, place in entries)
        return f"CASE {cases} END" if cases else "CAST(NULL AS BIGINT)"
    middle = len(entries) // 2
    below, above = _searched(value, entries[:middle]), _searched(value, entries[middle:])
    return f"CASE WHEN {value.sql} < {entries[middle][1]} THEN {below} ELSE {above} END"


__all__ = ["listed", "place_in_list"]
