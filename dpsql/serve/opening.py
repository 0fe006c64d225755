"""The database that is served: opened, locked down, nothing left that a statement could change.

What holds from then on, for every connection: nothing outside of the database file and the release store can be read or written, no
extension is loaded, and no setting can be changed, so neither who is let in nor what may be run. The room allows nothing of that
anyway; this is what stands behind it.

Privacy: None: no row is read here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import duckdb

from dpsql.errors import ArgumentError, DpsqlError, first_line, holder
from dpsql.session.settings import PINNED, sound_plans
from dpsql.text.relation import literal
from dpsql.udfs import load

MEMORY = "4GB"
"""What DuckDB may take, where nothing is said."""
_AMOUNT = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?(?:[KMGT]i?B|%)", re.IGNORECASE)
CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "allow_unsigned_extensions": False,
    "allow_community_extensions": False,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "allow_persistent_secrets": False,
}


@dataclass(frozen=True)
class Opened:
    """A database that may be served.

    Parameters
    ----------
    con : duckdb.DuckDBPyConnection
        Of the process that owns it; `dpsql.load` was called on it.
    database : str
        Its name, which unqualified names of tables are in.
    store : Path
        Folder of the releases: the only one that statements reach.
    """

    con: duckdb.DuckDBPyConnection
    database: str
    store: Path


def open_database(
    path: Path | str,
    *,
    memory: str = MEMORY,
    store: Path | str | None = None,
    before: Callable[[duckdb.DuckDBPyConnection], object] = lambda con: None,
) -> Opened:
    """Open a database file for serving, load dpsql, and lock it down.

    Parameters
    ----------
    memory : str
        DuckDB's memory limit.
    store : path, optional
        Folder of the releases; default: ``<database file>.dpsql``.
    before : callable
        Called with the connection before it is locked: for settings and extensions that a door takes.

    Raises
    ------
    ArgumentError, DpsqlError
        There is no such file, another process has it, or it cannot be locked down; nothing is open then.
    """
    path = Path(path).expanduser().absolute()
    amount = _AMOUNT.fullmatch(memory)
    if not amount or not float(amount[1]):
        raise ArgumentError("memory", memory, "an amount is required: '4GB', '512MB', '50%'")
    if not path.is_file():
        raise ArgumentError("database", str(path), "there is no such file; dpsql shell FILE makes one")
    folder = path.with_name(path.name + ".dpsql") if store is None else Path(store).expanduser().absolute()
    try:
        con = duckdb.connect(path, config=CONFIG)
    except (duckdb.Error, OSError) as error:
        raise DpsqlError(cannot_open(path, error)) from None
    try:
        con.execute(f"SET GLOBAL memory_limit = {literal(memory)}")
        load(con, store=folder, progress=False)
        before(con)
        row = con.execute("SELECT system.main.current_database()").fetchone()
        _lock_down(con, folder)
    except duckdb.Error as error:
        con.close()
        raise DpsqlError(f"{path} cannot be served: {first_line(error)}") from None
    except BaseException:
        con.close()
        raise
    return Opened(con, str(row and row[0]), folder)


def cannot_open(path: Path, error: BaseException) -> str:
    """Return why a file cannot be opened, in one line."""
    owner = holder(error)
    if owner is not None:
        return (
            f"{path} is open in another process ({Path(owner[0]).name}, process {owner[1]}): one process owns a database. Stop "
            "that one, or, where it serves the database, ask it"
        )
    return f"{path} cannot be opened: {first_line(error)}"


def _lock_down(con: duckdb.DuckDBPyConnection, store: Path) -> None:
    """Set what holds for every connection from now on, and lock it.

    Raises
    ------
    DpsqlError
        Something could not be set.
    """
    for name, pinned in PINNED.items():  # cursors of dpsql cannot set them any more
        if name != "search_path":
            with suppress(duckdb.Error):  # of another version, or of a session alone; a cursor says what does not fit
                con.execute(f"SET GLOBAL {name} = {literal(pinned.value)}")
    sound_plans(con)
    locked = {
        "python_enable_replacements": "false",
        "allowed_directories": f"[{literal(str(store))}]",
        "enable_external_access": "false",
        "lock_configuration": "true",
    }
    for name, value in locked.items():
        try:
            con.execute(f"SET GLOBAL {name} = {value}")
        except duckdb.Error as error:
            raise DpsqlError(f"setting {name} cannot be made {value}: {first_line(error)}") from None
