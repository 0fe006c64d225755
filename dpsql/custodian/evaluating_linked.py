"""dp_evaluate of a schema: a synthetic database of linked tables beside the raw one. NOT PRIVATE, for the custodian only."""

from __future__ import annotations

from dataclasses import replace

from dpsql.custodian.evaluate import comparable_domain
from dpsql.custodian.evaluate_linked import COLUMNS, evaluate_linked
from dpsql.custodian.linked_reading import ComparedTable
from dpsql.errors import ArgumentError, DomainError
from dpsql.kinds.linked.schema import schema_of
from dpsql.protected.source import ProtectedSource
from dpsql.session.instance import Context
from dpsql.source.catalog import Catalog
from dpsql.text.names import fold
from dpsql.text.relation import identifier, packed, split_name


def schema_named(context: Context, name: str) -> tuple[str, str] | None:
    """Return the database and schema of a name, ``schema`` or ``database.schema``, as the catalog spells them; None if none has it.

    Privacy: the catalog is read, no row.
    """
    parts = split_name(name)
    if not 1 <= len(parts) <= 2:
        return None
    database = parts[0] if len(parts) == 2 else context.database
    rows = context.cursor.execute("SELECT database_name, schema_name FROM system.main.duckdb_schemas()").fetchall()
    schemas = [(str(a), str(b)) for a, b in rows if fold(a) == fold(database) and fold(b) == fold(parts[-1])]
    return schemas[0] if schemas else None


def evaluate_schema(context: Context, protected: ProtectedSource, schema: tuple[str, str], report: str) -> str:
    """Compare the tables of a schema with a root and the tables that are linked to it. Returns a relation.

    Raises
    ------
    ArgumentError
        The report is not one of databases; nothing is linked to the source, or it is not a root.
    DomainError
        The schema lacks a table or column, or one has another type.

    Notes
    -----
    Privacy: NOT PRIVATE. Errors come from raw counts; nothing is charged and nothing is stored.
    """
    shown = identifier(*schema)
    if report != "tables":
        expected = f"of a schema there is only 'tables'; for {report!r} name one table: synthetic := '{shown}.\"...\"'"
        raise ArgumentError("report", report, expected)
    if protected.own != protected.key:
        expected = f"is linked to {protected.key}: a database is compared from its root, dp_evaluate('{protected.key}', ...)"
        raise ArgumentError("source", protected.own, expected)
    linked = schema_of(context, protected)
    raw, synthetic = [], []
    catalog = Catalog(context.cursor)
    for table, place in zip(linked.tables, linked.places, strict=True):
        entry = catalog.find(*schema, table.name)
        if entry is None:
            needed = [each.name for each in linked.tables]
            raise DomainError(f"synthetic: the schema {shown} has no table {table.name!r}; it needs {needed!r}")
        compared = ComparedTable(
            table.name,
            table.domain,
            f"SELECT * FROM {place.sql}",  # noqa: S608 -- quoted by TableId
            table.parent,
            table.link or "",
            table.referred or "",
            table.most,
            table.order_place,
            table.rules,
            table.across,
            table.counted,
        )
        text = f"SELECT * FROM {entry.table.sql}"  # noqa: S608 -- quoted by TableId
        try:
            similar = comparable_domain(context.cursor, text, table.domain)
        except DomainError as error:
            raise DomainError(f"{error} (table {table.name!r})") from None
        raw.append(compared)
        synthetic.append(replace(compared, domain=similar, sql=text))
    return packed(COLUMNS, evaluate_linked(context.cursor, raw, synthetic))
