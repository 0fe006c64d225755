"""What a name of Spark stands for: a table, whose rows are what is stored, or a view, whose rows a query makes.

In a view one row may decide what another one holds (a window, an aggregate, a subquery, LIMIT), or chance may (``rand()``), and
nothing here sees its text. What is made of rows is made in DuckDB, in a view over the name, where it is checked.
"""

from __future__ import annotations

from typing import Any

from dpsql.errors import ArgumentError, DpsqlError
from dpsql.text.paths import local_path, one_file_twice

_TABLES = ("MANAGED", "EXTERNAL")
_OTHERS = ("jdbc", "csv", "json", "xml", "text", "binaryfile")
_DETAILS = "# Detailed Table Information"


def check_table(session: Any, relation: str) -> None:
    """Refuse a name that stands for no stored table.

    Raises
    ------
    ArgumentError
        It is a view, or a table of a source whose rows are a query's or are told apart by what is in them.
    DpsqlError
        Spark does not say what it is.
    """
    try:
        kind = str(session.catalog.getTable(relation).tableType).upper()
    except Exception as error:
        raise DpsqlError(f"relation = {relation!r}: Spark does not say what it is ({type(error).__name__})") from None
    if kind not in _TABLES:
        raise ArgumentError(
            "relation", relation,
            f"is no table of Spark but a view or the like ({kind}): its rows may depend on each other. "
            "Name the table below it, or write it as a table; and make the view here, over the name that it gets",
        )  # fmt: skip
    provider = _provider(session, relation).lower()
    if any(format_ in provider for format_ in _OTHERS):
        raise ArgumentError(
            "relation", relation,
            f"is a table USING {provider}: its rows are those of a query elsewhere, or one broken line moves its neighbours; write "
            "it as a table of Parquet files",
        )  # fmt: skip


def check_files(frame: Any, relation: str) -> None:
    """Refuse files of this machine of which one lies there under two names: its rows would count twice.

    Raises
    ------
    DpsqlError
    """
    try:
        files = list(frame.inputFiles())
    except Exception:  # a server that does not say; reading them says what is wrong
        return
    if one_file_twice(path for path in map(local_path, files) if path is not None):
        raise DpsqlError(f"relation = {relation!r}: two names in it are one file, whose rows would count twice")


def _provider(session: Any, relation: str) -> str:
    """Return what reads the files of a table, as its catalog says; '' where it says nothing."""
    try:
        rows = [(str(row[0]), str(row[1])) for row in session.sql(f"DESCRIBE TABLE EXTENDED {relation}").collect()]
    except Exception as error:
        raise DpsqlError(f"relation = {relation!r}: Spark does not say what it is ({type(error).__name__})") from None
    names = [name for name, _ in rows]
    details = rows[names.index(_DETAILS) + 1 :] if _DETAILS in names else []
    return dict(reversed(details)).get("Provider", "")
