"""Rows as MySQL's protocol writes them: text for a question, binary for a prepared one.

What MySQL's types cannot carry is NULL in both: NaN and infinity of FLOAT and DOUBLE, and moments that Python gives as no date.
A moment with a time zone is written in UTC; a type that MySQL does not have is text, and what is nested is JSON as text.
"""

from __future__ import annotations

import datetime
import json
import math
import struct
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

from dpsql.serve.mysql.packets import counted, length
from dpsql.serve.mysql.types import Type, of_duckdb
from dpsql.serve.passed import Column

_NULL = b"\xfb"


def definition(column: Column, *, listed: bool = False) -> bytes:
    """Return the packet that says what a column is; ``listed``: as the answer to a list of fields."""
    kind, name = of_duckdb(column.type), counted(column.name.encode("utf-8", "replace"))
    fixed = struct.pack("<HIBHBxx", kind.charset, kind.length, kind.code, kind.flags, kind.decimals)
    return counted(b"def") + counted(b"") * 3 + name * 2 + b"\x0c" + fixed + (_NULL if listed else b"")


def rows(columns: Sequence[Column], values: Sequence[tuple[Any, ...]], *, binary: bool) -> Iterator[bytes]:
    """Return the packets of rows."""
    types = [of_duckdb(column.type) for column in columns]
    write = _binary_row if binary else _text_row
    return (write(types, row) for row in values)


def _text_row(types: list[Type], row: tuple[Any, ...]) -> bytes:
    written = (as_text(kind, value) for kind, value in zip(types, row, strict=True))
    return b"".join(_NULL if value is None else counted(value) for value in written)


def _binary_row(types: list[Type], row: tuple[Any, ...]) -> bytes:
    nulls, out = bytearray((len(row) + 9) // 8), bytearray()
    for place, (kind, value) in enumerate(zip(types, row, strict=True), 2):
        written = _as_binary(kind, value)
        if written is None:
            nulls[place // 8] |= 1 << place % 8
        else:
            out += written
    return b"\0" + bytes(nulls) + bytes(out)


def as_text(kind: Type, value: Any) -> bytes | None:
    """Return a value of a type as text; None: NULL."""
    if value is None:
        return None
    match kind.shape:
        case "integer":
            return b"%d" % int(value)
        case "float" | "double":
            return _number(float(value), single=kind.shape == "float")
        case "decimal":
            return format(Decimal(value), "f").encode()
        case "date" | "datetime" | "time":
            moment = _moment(kind, value)
            return None if moment is None else _written(moment).encode()
        case "bytes":
            return bytes(value)
        case "json":
            return json.dumps(_plain(value), ensure_ascii=False).encode("utf-8", "replace")
        case _:
            return str(value).encode("utf-8", "replace")


def _as_binary(kind: Type, value: Any) -> bytes | None:
    if value is None:
        return None
    match kind.shape:
        case "integer":
            return int(value).to_bytes(kind.size, "little", signed=not kind.unsigned)
        case "float" | "double":
            number = float(value)
            return struct.pack("<f" if kind.shape == "float" else "<d", number) if math.isfinite(number) else None
        case "date" | "datetime":
            moment = _moment(kind, value)
            return _packed(moment) if isinstance(moment, datetime.date) else None
        case "time":
            moment = _moment(kind, value)
            return _packed_time(moment) if isinstance(moment, datetime.time) else None
        case _:
            text = as_text(kind, value)
            return None if text is None else counted(text)


def _number(value: float, *, single: bool) -> bytes | None:
    """Return the shortest text of a number that reads as the same; None where it is no number of MySQL's."""
    if not math.isfinite(value):
        return None
    if single:
        kept = struct.pack("<f", value)
        # the fewest digits that read as the same FLOAT: MySQL's clients show them all
        for digits in range(6, 9):
            text = f"{value:.{digits}g}"
            if struct.pack("<f", float(text)) == kept:
                return text.encode()
        return f"{value:.9g}".encode()
    return repr(value).encode()


def _moment(kind: Type, value: Any) -> datetime.date | datetime.time | None:
    """Return a date, datetime or time, without a time zone; None: it is none that MySQL could carry."""
    if kind.shape == "time":
        return value if isinstance(value, datetime.time) else None
    if isinstance(value, datetime.datetime):
        if value.tzinfo is not None:
            value = value.astimezone(datetime.UTC).replace(tzinfo=None)
        moment: datetime.datetime = value
        return moment.date() if kind.shape == "date" else moment
    if isinstance(value, datetime.date):
        return value if kind.shape == "date" else datetime.datetime(value.year, value.month, value.day)
    return None


def _written(moment: datetime.date | datetime.time) -> str:
    text = moment.isoformat()
    return text.replace("T", " ")


def _packed(moment: datetime.date) -> bytes:
    """Return a date or datetime of a binary row: the shortest of its forms."""
    packed = struct.pack("<HBB", moment.year, moment.month, moment.day)
    if isinstance(moment, datetime.datetime) and moment.time() != datetime.time():
        packed += struct.pack("<BBB", moment.hour, moment.minute, moment.second)
        packed += struct.pack("<I", moment.microsecond) if moment.microsecond else b""
    return length(len(packed)) + packed


def _packed_time(moment: datetime.time) -> bytes:
    if moment == datetime.time():
        return b"\0"
    packed = struct.pack("<BIBBB", 0, 0, moment.hour, moment.minute, moment.second)
    packed += struct.pack("<I", moment.microsecond) if moment.microsecond else b""
    return length(len(packed)) + packed


def _plain(value: Any) -> Any:
    """Return a value as JSON has it."""
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, bytes):
        return value.hex()
    return str(value)
