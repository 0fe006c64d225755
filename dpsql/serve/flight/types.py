"""DuckDB's types as Arrow's, and rows of Python values as arrays of them.

What Arrow, or Python on the way to it, cannot carry is NULL: dates before Christ and after 9999, 24:00:00. Instants are in UTC. An
enumeration, a UUID, bits, JSON, a union and whatever else Arrow has no plain type for are texts.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from dpsql.serve.passed import Answer, Column, Refused

Converter = Callable[[Any], Any]
TYPE_NAME: Final = b"ARROW:FLIGHT:SQL:TYPE_NAME"
"""Where Flight SQL looks for the server's own name of a type."""
_UTC = "UTC"
_TYPES: Final[dict[str, Any]] = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INTEGER": pa.int32(),
    "BIGINT": pa.int64(),
    "UTINYINT": pa.uint8(),
    "USMALLINT": pa.uint16(),
    "UINTEGER": pa.uint32(),
    "UBIGINT": pa.uint64(),
    "HUGEINT": pa.decimal128(38, 0),
    "UHUGEINT": pa.decimal256(39, 0),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "DATE": pa.date32(),
    "TIME": pa.time64("us"),
    "TIMESTAMP": pa.timestamp("us"),
    "TIMESTAMP_S": pa.timestamp("s"),
    "TIMESTAMP_MS": pa.timestamp("ms"),
    "TIMESTAMP_NS": pa.timestamp("ns"),
    "TIMESTAMP WITH TIME ZONE": pa.timestamp("us", _UTC),
    "INTERVAL": pa.duration("us"),
    "BLOB": pa.binary(),
    "NULL": pa.null(),
    '"NULL"': pa.null(),
}
_DECIMAL = re.compile(r"DECIMAL\((\d+),\s*(\d+)\)")
_PIECES = re.compile(r""""(?:[^"]|"")*"|'(?:[^']|'')*'|[^"']""")
_AT_ONCE = 1 << 20
"""Bytes of a piece of an answer: clients take 4 MB or more at once."""


def type_of(text: str) -> Any:
    """Return Arrow's type of DuckDB's text of one.

    Examples
    --------
    >>> str(type_of("DECIMAL(9,2)")), str(type_of('STRUCT(a INTEGER, "b c" VARCHAR[])'))
    ('decimal128(9, 2)', 'struct<a: int32, b c: list<item: string>>')
    """
    text = text.strip()
    if text in _TYPES:
        return _TYPES[text]
    if text.endswith("]"):
        inner, size = text[:-1].rsplit("[", 1)
        return pa.list_(type_of(inner), int(size)) if size else pa.list_(type_of(inner))
    if text.startswith("STRUCT(") and text.endswith(")"):
        return pa.struct([pa.field(*_named(part)) for part in _parts(text[len("STRUCT(") : -1])])
    if text.startswith("MAP(") and text.endswith(")"):
        return pa.map_(*map(type_of, _parts(text[len("MAP(") : -1])))
    decimal = _DECIMAL.fullmatch(text)
    return pa.decimal128(int(decimal[1]), int(decimal[2])) if decimal else pa.string()


def schema_of(columns: Sequence[Column]) -> Any:
    """Return Arrow's schema of columns."""
    return pa.schema([pa.field(column.name, type_of(column.type), metadata={TYPE_NAME: column.type}) for column in columns])


def batches_of(answer: Answer) -> tuple[Any, Iterator[Any]]:
    """Return the schema and the batches of an answer.

    Raises
    ------
    Refused
        A value is beyond its type's range in Arrow.
    """
    schema = schema_of(answer.columns)
    columns: list[Any] = list(zip(*answer.rows, strict=True)) if answer.rows else [()] * len(schema)
    arrays = [_array(field, values) for field, values in zip(schema, columns, strict=True)]
    table = pa.Table.from_arrays(arrays, schema=schema)
    rows = max(1, table.num_rows * _AT_ONCE // max(table.nbytes, 1))
    return schema, iter(table.to_batches(max_chunksize=rows))


def _array(field: Any, values: Sequence[Any]) -> Any:
    converter = _converter(field.type)
    converted = values if converter is None else [converter(value) for value in values]
    try:
        return pa.array(converted, type=field.type)
    except (pa.ArrowException, OverflowError, ValueError, TypeError):
        text = f"a value of the column {field.name[:64]!r} does not fit Arrow's {field.type}: CAST it to DOUBLE or VARCHAR"
        raise Refused("failed", text) from None


def _converter(kind: Any) -> Converter | None:
    """Return what makes Arrow's value of a Python value; None: it is taken as it is."""
    converter: Converter | None = None
    if pa.types.is_string(kind):
        converter = _text
    elif pa.types.is_decimal(kind):
        converter = Decimal
    elif pa.types.is_timestamp(kind):
        converter = _instant if kind.tz else _moment
    elif pa.types.is_date(kind):
        converter = _date
    elif pa.types.is_time(kind):
        converter = _time
    elif pa.types.is_map(kind):
        converter = _pairs(_converter(kind.key_type), _converter(kind.item_type))
    elif pa.types.is_struct(kind):
        converter = _struct({field.name: _converter(field.type) for field in kind})
    elif pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        converter = _list(_converter(kind.value_type))
    return None if converter is None else _unless_null(converter)


def _unless_null(converter: Converter) -> Converter:
    return lambda value: None if value is None else converter(value)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else str(value)


def _moment(value: Any) -> dt.datetime | None:
    if isinstance(value, dt.datetime):
        return value
    return dt.datetime(value.year, value.month, value.day) if isinstance(value, dt.date) else None


def _instant(value: Any) -> dt.datetime | None:
    moment = _moment(value)
    return moment.replace(tzinfo=dt.UTC) if moment is not None and moment.tzinfo is None else moment


def _date(value: Any) -> dt.date | None:
    if isinstance(value, dt.datetime):
        return value.date()
    return value if isinstance(value, dt.date) else None


def _time(value: Any) -> dt.time | None:
    return value if isinstance(value, dt.time) else None


def _list(inner: Converter | None) -> Converter:
    return lambda value: list(value) if inner is None else [inner(item) for item in value]


def _struct(inner: dict[str, Converter | None]) -> Converter:
    def convert(value: Any) -> dict[str, Any]:
        named = value if isinstance(value, dict) else dict(zip(inner, value, strict=True))
        return {name: named[name] if make is None else make(named[name]) for name, make in inner.items()}

    return convert


def _pairs(key: Converter | None, item: Converter | None) -> Converter:
    def convert(value: dict[Any, Any]) -> list[tuple[Any, Any]]:
        return [(k if key is None else key(k), v if item is None else item(v)) for k, v in value.items()]

    return convert


def _parts(text: str) -> Iterator[str]:
    """Return the parts between the outer commas."""
    depth, part = 0, ""
    for piece in _PIECES.findall(text):
        depth += (piece in "([") - (piece in ")]")
        if piece == "," and not depth:
            yield part
            part = ""
        else:
            part += piece
    yield part


def _named(text: str) -> tuple[str, Any]:
    """Return the name and the type of a part of a STRUCT."""
    text = text.strip()
    if text.startswith('"'):
        name, rest = re.fullmatch(r'"((?:[^"]|"")*)"\s*(.*)', text, re.DOTALL).groups()  # type: ignore[union-attr]
        return name.replace('""', '"'), type_of(rest)
    name, _, rest = text.partition(" ")
    return name, type_of(rest)
