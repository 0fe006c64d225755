"""The public part of the catalogue: names and types of what an analyst may see, as relations of constants.

No row count, size or statistic stands in them. An attaching client asks ``duckdb_tables()`` and ``duckdb_views()``, and would scan
what it finds there: granted tables are left out of these two, and stand in all others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dpsql.serve.gate.reasons import refuse
from dpsql.serve.gate.view import PUBLIC
from dpsql.text.names import fold
from dpsql.text.relation import identifier, literal

if TYPE_CHECKING:
    from dpsql.serve.gate.view import Entry, View

_FUNCTIONS = ("duckdb_tables", "duckdb_views", "duckdb_columns", "duckdb_schemas", "duckdb_databases")
_SCHEMA = ("tables", "columns", "schemata")
_SHOWS = ("tables", "databases", "schemas")
_ALL = "__show_tables_expanded"
_DESCRIBE = {name: "VARCHAR" for name in ("column_name", "column_type", "null", "key", "default", "extra")}
_LAYOUTS = {
    "show:tables": {"name": "VARCHAR"},
    "show:databases": {"database_name": "VARCHAR"},
    "show:schemas": {"database_name": "VARCHAR", "schema_name": "VARCHAR"},
    f"show:{_ALL}": {
        "database": "VARCHAR", "schema": "VARCHAR", "name": "VARCHAR", "column_names": "VARCHAR[]", "column_types": "VARCHAR[]",
        "temporary": "BOOLEAN",
    },
}  # fmt: skip


def of_name(parts: list[str]) -> str | None:
    """Return which relation of the catalogue a name means."""
    low = [fold(part) for part in parts]
    if len(low) > 1 and low[-2] == "information_schema" and low[-1] in _SCHEMA:
        return f"information_schema.{low[-1]}"
    return low[0] if len(low) == 1 and low[0] in _FUNCTIONS else None


def of_function(name: str) -> str | None:
    """Return which relation of the catalogue a table function without arguments gives."""
    return name if name in _FUNCTIONS else None


def of_show(node: dict[str, Any], kind: str) -> str:
    """Return which relation a SHOW means that is about no table."""
    name = fold(str(node.get("table_name") or "").strip('"'))
    if kind == "SHOW_FROM" or node.get("catalog_name") or node.get("schema_name") or name not in (*_SHOWS, _ALL):
        refuse("show", node.get("table_name") or kind)
    return f"show:{name}"


def relation(view: View, known: str) -> str:
    """Return a relation of constants in brackets, as SQL."""
    if known.startswith("describe:"):
        layout = _DESCRIBE
    elif known in _LAYOUTS:
        layout = _LAYOUTS[known]
    else:
        asked = f"FROM {known}" if "." in known else f"FROM system.main.{known}()"
        layout = {str(r[0]): str(r[1]) for r in view.cursor.execute(f"DESCRIBE {asked}").fetchall()}
    rows = _rows(view, known)
    if not rows:
        nothing = ", ".join(f"CAST(NULL AS {kind}) AS {identifier(name)}" for name, kind in layout.items())
        return f"(SELECT {nothing} LIMIT 0)"
    listed = ", ".join(f"CAST(c{i} AS {kind}) AS {identifier(name)}" for i, (name, kind) in enumerate(layout.items()))
    values = ", ".join(f"({', '.join(_written(row.get(name)) for name in layout)})" for row in rows)
    return f"(SELECT {listed} FROM (VALUES {values}) AS v({', '.join(f'c{i}' for i in range(len(layout)))}))"  # noqa: S608 -- literals


def _written(value: object) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool | int):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(map(_written, value))}]"
    return literal(str(value))


def _rows(view: View, known: str) -> list[dict[str, Any]]:
    entries = view.all()
    schemas = sorted({"main", *(e.schema for e in entries)})
    public = [e for e in entries if e.status == PUBLIC]
    if known.startswith("describe:"):
        entry = next(e for e in entries if e.key == known.removeprefix("describe:"))
        return [{"column_name": n, "column_type": t, "null": "YES"} for n, t in view.columns(entry)]
    if known == "show:tables":
        return [{"name": e.name} for e in entries if fold(e.schema) == fold("main")]
    if known == f"show:{_ALL}":
        return [
            {
                "database": view.shown, "schema": e.schema, "name": e.name, "temporary": False,
                "column_names": [n for n, _ in view.columns(e)], "column_types": [t for _, t in view.columns(e)],
            }
            for e in entries
        ]  # fmt: skip
    if known in ("show:databases", "duckdb_databases"):
        return [{"database_name": view.shown, "internal": False, "type": "duckdb", "readonly": True}]
    if known in ("show:schemas", "duckdb_schemas"):
        return [{"database_name": view.shown, "schema_name": s, "internal": False} for s in schemas]
    if known == "information_schema.schemata":
        return [{"catalog_name": view.shown, "schema_name": s} for s in schemas]
    place = {"database_name": view.shown, "internal": False, "temporary": False, "is_temporary": False}
    if known == "duckdb_tables":
        return [
            place | {"schema_name": e.schema, "table_name": e.name, "sql": _ddl(view, e)} for e in public if not e.is_view
        ]
    if known == "duckdb_views":
        return [place | {"schema_name": e.schema, "view_name": e.name} for e in public if e.is_view]
    if known == "information_schema.tables":
        kinds = {True: "VIEW", False: "BASE TABLE"}
        return [
            {
                "table_catalog": view.shown, "table_schema": e.schema, "table_name": e.name, "table_type": kinds[e.is_view],
                "is_insertable_into": "NO", "is_typed": "NO",
            }
            for e in entries
        ]  # fmt: skip
    return [
        place
        | {
            "schema_name": e.schema, "table_catalog": view.shown, "table_schema": e.schema, "table_name": e.name,
            "column_name": n, "column_index": i, "ordinal_position": i, "data_type": t, "is_nullable": _nullable(known),
        }
        for e in entries
        for i, (n, t) in enumerate(view.columns(e), 1)
    ]  # fmt: skip


def _nullable(known: str) -> object:
    return True if known == "duckdb_columns" else "YES"


def _ddl(view: View, entry: Entry) -> str:
    """Return the CREATE TABLE of a table's names and types."""
    columns = ", ".join(f"{identifier(name)} {kind}" for name, kind in view.columns(entry))
    return f"CREATE TABLE {identifier(entry.schema, entry.name)}({columns});"
