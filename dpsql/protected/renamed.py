"""Public tables that may be protected ones under another name.

A budget goes by the name of its table. After ``ALTER TABLE patients RENAME TO patients_2024`` the books know a table that is not
there, and what has its columns would be read as public beside other people's rows. Privacy: none; names and the books alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from dpsql.books.ledger import Ledger
from dpsql.errors import DpsqlError, UnsupportedQuery
from dpsql.protected.booked import books_of, links_in, sources_in
from dpsql.protected.files import PROTECTED
from dpsql.protected.home import catalog_of
from dpsql.protected.linked import key_of
from dpsql.session.instance import Context
from dpsql.source.analysis import relation_columns
from dpsql.source.model import TableId
from dpsql.text.names import fold

_RELATIONS = """
    SELECT schema_name, table_name FROM system.main.duckdb_tables() WHERE database_name = $database
    UNION ALL SELECT schema_name, view_name FROM system.main.duckdb_views() WHERE database_name = $database
"""


def check_renamed(context: Context, public: Sequence[TableId]) -> None:
    """Refuse public tables with the columns of a protected table that is not there any more.

    Raises
    ------
    UnsupportedQuery
    """
    for database in dict.fromkeys(table.database for table in public if not table.is_file):
        missing = _missing(context, database)
        for table in public if missing else ():
            if table.is_file or table.database != database:
                continue
            names = {fold(column.name) for column in relation_columns(context.cursor, table, catalog_of(context))}
            for source, columns in missing.items():
                if columns <= names:
                    _refuse(context, table, source, columns)


def _missing(context: Context, database: str) -> dict[str, frozenset[str]]:
    """Return the protected tables that are not there, with the columns that are known of them; within a call looked up once."""
    missing: dict[str, frozenset[str]] | None = context.known.get(("missing", database))
    if missing is None:
        missing = context.known["missing", database] = _looked_up(context, database)
    return missing


def _looked_up(context: Context, database: str) -> dict[str, frozenset[str]]:
    protected = [source for source in sources_in(context, database) if not source.startswith(PROTECTED)]
    if not protected:
        return {}
    books = books_of(context, database)
    there = {key_of(TableId(database, *name)) for name in context.cursor.execute(_RELATIONS, {"database": database}).fetchall()}
    links = links_in(context, database)
    out = {}
    for source in sorted(protected):
        if source in there:
            continue
        columns = set(map(fold, books.declared(source)))
        if source in links:
            columns.add(fold(links[source].column))
        else:
            try:
                held = Ledger(books, source, context.user).protection()
            except DpsqlError:  # it was linked once: its columns are all that is known
                held = None
            if held is not None and held.privacy_unit is not None:
                columns.add(fold(held.privacy_unit))
        if columns:
            out[source] = frozenset(columns)
    return out


def _refuse(context: Context, table: TableId, source: str, columns: frozenset[str]) -> None:
    if context.analyst is not None:
        raise UnsupportedQuery(table.text, "may be a protected table under another name; the custodian has to say so")
    named = ", ".join(sorted(columns))
    raise UnsupportedQuery(
        table.text,
        f"may be {source} under another name, which is protected and not there, and whose columns ({named}) it has: a budget goes "
        f"by the name, so rename it back, or dp_protect it. If {source} is gone for good, create it again without rows",
    )
