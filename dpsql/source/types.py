"""Whole types of a plan that DuckDB has serialized: children, collation and alias included."""

from __future__ import annotations

from typing import Any

from dpsql.source.model import literal, quoted

Node = dict[str, Any]


def type_text(kind: Node) -> str:
    """Return a serialized type as DuckDB describes it; a collation or an alias makes it a type of its own.

    Examples
    --------
    >>> type_text({"id": "DECIMAL", "type_info": {"width": 4, "scale": 2}}), type_text({"id": "BIGINT", "type_info": None})
    ('DECIMAL(4,2)', 'BIGINT')
    >>> type_text({"id": "LIST", "type_info": {"child_type": {"id": "DATE"}}})
    'DATE[]'
    >>> type_text({"id": "VARCHAR", "type_info": {"alias": "JSON"}})
    'JSON'
    >>> type_text({"id": "VARCHAR", "type_info": {"collation": "NOCASE"}})
    'VARCHAR COLLATE NOCASE'
    """
    info = kind.get("type_info") or {}
    name = str(kind["id"])
    if name == "DECIMAL":
        return f"DECIMAL({info['width']},{info['scale']})"
    if name == "ENUM":  # the name of an ENUM is no other type: its labels are what it is
        return f"ENUM({', '.join(literal(str(label)) for label in info.get('values', []))})"
    if info.get("alias"):
        return "JSON" if info["alias"] == "JSON" else f"{info['alias']} AS {name}"  # no alias is spelled like a type of DuckDB
    if info.get("collation"):
        return f"{name} COLLATE {info['collation']}"
    if name == "LIST":
        return f"{type_text(info['child_type'])}[]"
    if name == "ARRAY":
        return f"{type_text(info['child_type'])}[{info.get('size')}]"
    if name == "STRUCT":
        fields = ", ".join(f"{quoted(str(f['first']))} {type_text(f['second'])}" for f in info.get("child_types", []))
        return f"STRUCT({fields})"
    if "child_type" in info:
        return f"{name}({type_text(info['child_type'])})"
    return name


def is_collated(kind: Node) -> bool:
    """Return whether a type, or one inside it, has a collation."""
    info = kind.get("type_info") or {}
    inner = [info["child_type"]] if "child_type" in info else [f["second"] for f in info.get("child_types", [])]
    return bool(info.get("collation")) or any(is_collated(child) for child in inner)
