"""What Flight SQL asks of a catalogue, from the names and types that an analyst may see."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

import pyarrow as pa

from dpsql.serve.flight.messages import Message
from dpsql.serve.flight.types import schema_of
from dpsql.serve.passed import Table


def _version() -> str:
    try:
        return version("dpsql")
    except PackageNotFoundError:
        return "0"


def _required(name: str, kind: Any) -> Any:
    return pa.field(name, kind, nullable=False)


_CATALOG, _SCHEMA = pa.field("catalog_name", pa.string()), pa.field("db_schema_name", pa.string())
_TABLE = [_CATALOG, _SCHEMA, _required("table_name", pa.string()), _required("table_type", pa.string())]
_VALUES: Final = [
    pa.field("string_value", pa.string()),
    pa.field("bool_value", pa.bool_()),
    pa.field("bigint_value", pa.int64()),
    pa.field("int32_bitmask", pa.int32()),
    pa.field("string_list", pa.list_(pa.string())),
    pa.field("int32_to_int32_list_map", pa.map_(pa.int32(), pa.list_(pa.int32()))),
]
_TYPES: Final = ("TABLE", "VIEW")
_INFO: Final[dict[int, str | bool | int]] = {
    0: "dpsql",
    1: _version(),
    2: pa.__version__,
    3: True,  # nothing is written
    4: True,  # SQL is understood,
    5: False,  # Substrait is not,
    8: 0,  # and there are no transactions
    9: False,  # no cancelling by a message
    10: False,  # no ingestion
    100: 0,
    101: 0,
    500: False,
    501: False,
    502: False,
    504: '"',
}
"""By Flight SQL's numbers: the server, what it can do, and how names are quoted."""
_SHAPES: Final[dict[str, Any]] = {
    "CommandGetCatalogs": pa.schema([_required("catalog_name", pa.string())]),
    "CommandGetDbSchemas": pa.schema([_CATALOG, _required("db_schema_name", pa.string())]),
    "CommandGetTables": pa.schema(_TABLE),
    "CommandGetTableTypes": pa.schema([_required("table_type", pa.string())]),
    "CommandGetSqlInfo": pa.schema([_required("info_name", pa.uint32()), _required("value", pa.dense_union(_VALUES))]),
}


def shape_of(message: Message) -> Any:
    """Return the schema of the answer of a command about the catalogue; None: it is about something else."""
    if message.name == "CommandGetTables" and message.flag(5):
        return pa.schema([*_TABLE, _required("table_schema", pa.binary())])
    return _SHAPES.get(message.name)


def answer(message: Message, database: str, tables: Callable[[], Sequence[Table]]) -> Any:
    """Return the answer of a command that `shape_of` knows.

    Parameters
    ----------
    message : Message
    database : str
    tables : callable
        What the analyst may see.

    Privacy
    -------
    None: names and types that are hers to see, from the room.
    """
    shape = shape_of(message)
    if message.name == "CommandGetSqlInfo":
        return _info(message, shape)
    rows: list[dict[str, Any]] = []
    match message.name:
        case "CommandGetCatalogs":
            rows = [{"catalog_name": database}]
        case "CommandGetTableTypes":
            rows = [{"table_type": kind} for kind in _TYPES]
        case "CommandGetDbSchemas" if _here(message, database):
            names = sorted({"main", *(table.schema for table in tables())})
            rows = [{"catalog_name": database, "db_schema_name": name} for name in names if _fits(message, 2, name)]
        case "CommandGetTables" if _here(message, database):
            visible = sorted(tables(), key=lambda table: (table.schema, table.name, table.is_view))
            rows = [_listed(database, table) for table in visible if _is_wanted(message, table)]
    return pa.Table.from_pylist(rows, schema=shape)


def _listed(database: str, table: Table) -> dict[str, Any]:
    return {
        "catalog_name": database,
        "db_schema_name": table.schema,
        "table_name": table.name,
        "table_type": _kind(table),
        "table_schema": schema_of(table.columns).serialize().to_pybytes(),
    }


def _is_wanted(message: Message, table: Table) -> bool:
    kinds = message.texts(4)
    return _fits(message, 2, table.schema) and _fits(message, 3, table.name) and (not kinds or _kind(table) in kinds)


def _kind(table: Table) -> str:
    return _TYPES[table.is_view]


def _here(message: Message, database: str) -> bool:
    return message.maybe(1) in (None, database)


def _fits(message: Message, number: int, name: str) -> bool:
    pattern = message.maybe(number)
    return pattern is None or like(pattern, name)


def like(pattern: str, name: str) -> bool:
    """Return whether a name is like a pattern: % for any letters, _ for one, a backslash before a letter that is itself.

    Its time is at most that of both lengths, one times the other, whatever the pattern is.

    Examples
    --------
    >>> like("vis%", "visits"), like("_isits", "visits"), like(chr(92) + "_isits", "visits"), like("%" * 1000 + "x", "visits")
    (True, True, False, False)
    """
    signs: list[str | None] = []  # None: any letters; an empty text: one letter
    letters = iter(pattern)
    for letter in letters:
        signs.append(next(letters, letter) if letter == "\\" else {"%": None, "_": ""}.get(letter, letter))
    place = at = after = 0
    back: int | None = None
    while at < len(name):
        if place < len(signs) and signs[place] in ("", name[at]):
            place, at = place + 1, at + 1
        elif place < len(signs) and signs[place] is None:
            place, back, after = place + 1, place + 1, at
        elif back is not None:
            after += 1
            place, at = back, after
        else:
            return False
    return all(rest is None for rest in signs[place:])


def _info(message: Message, shape: Any) -> Any:
    """Return what a client asks about the server; what is not on the list is left out."""
    numbers = message.numbers(1) or list(_INFO)
    facts = {number: _INFO[number] for number in numbers if number in _INFO}
    kinds = [_place(number, value) for number, value in facts.items()]
    values = [[value for value, kind in zip(facts.values(), kinds, strict=True) if kind == place] for place in range(len(_VALUES))]
    offsets = [kinds[:number].count(kind) for number, kind in enumerate(kinds)]
    union = pa.UnionArray.from_dense(
        pa.array(kinds, pa.int8()),
        pa.array(offsets, pa.int32()),
        [pa.array(each, field.type) for each, field in zip(values, _VALUES, strict=True)],
        [field.name for field in _VALUES],
    )
    return pa.Table.from_arrays([pa.array(list(facts), pa.uint32()), union], schema=shape)


def _place(number: int, value: str | bool | int) -> int:
    """Return which of `_VALUES` one is: 8, on transactions, is the one enumeration; times are whole numbers."""
    return 0 if isinstance(value, str) else 1 if isinstance(value, bool) else 3
