"""The database that is served: opened, locked down, nothing left that a statement could change.

What holds from then on, for every connection: nothing outside of the database file and the release store can be read or written, no
extension is loaded, and no setting can be changed, so neither who is let in nor what may be run.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

import duckdb

from dpsql import sql
from dpsql.errors import ArgumentError, DpsqlError, first_line
from dpsql.serve.answers import Answers
from dpsql.session.settings import PINNED, sound_plans
from dpsql.text.relation import identifier, literal
from dpsql.wire.extensions import load_extensions

_HELD = re.compile(r"Conflicting lock is held in (.+?) \(PID (\d+)\)")
_LONGEST_KEY = 1 << 12
_MEMORY = re.compile(r"[0-9]+(?:\.[0-9]+)? ?(?:[KMGT]i?B|%)", re.IGNORECASE)
ENCRYPTED = "the database is encrypted: name the variable or file that has its key, --encryption-key-env or --encryption-key-file"
_OTHERS_MAY_READ = 0o077
CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "allow_unsigned_extensions": False,
    "allow_community_extensions": False,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
}


def key_of(variable: str | None, file: Path | None) -> str | None:
    """Return the key of an encrypted database from the environment or a file; None where neither is named.

    Raises
    ------
    ArgumentError
        There is none, or others than the owner of the file may read it.
    """
    if variable is not None and file is not None:
        raise ArgumentError("encryption-key-file", str(file), "there is one key: in a variable, or in a file")
    if variable is not None:
        key = os.environ.pop(variable, "")
        if not key:
            raise ArgumentError("encryption-key-env", variable, "no such variable of the environment has the key")
        return key
    if file is None:
        return None
    try:
        with file.expanduser().open("rb") as handle:
            open_to = os.fstat(handle.fileno()).st_mode & _OTHERS_MAY_READ
            key = handle.read(_LONGEST_KEY).decode("utf-8").strip()
    except (OSError, UnicodeDecodeError):
        raise ArgumentError("encryption-key-file", str(file), "cannot be read, or is no text") from None
    if open_to or not key:
        told = "others than its owner may read it: chmod 600" if open_to else "is empty"
        raise ArgumentError("encryption-key-file", str(file), told)
    return key


def open_database(path: Path, memory: str, key: str | None = None) -> duckdb.DuckDBPyConnection:
    """Open a database file for serving, with the extensions that this takes.

    Parameters
    ----------
    key : str, optional
        Of an encrypted database. Such a file can only be attached, so it is not the first database of its connection then; the
        temporary files of DuckDB are encrypted, too.

    Raises
    ------
    ArgumentError, DpsqlError
        It cannot be opened, another process has it, or an extension is missing.
    """
    if not _MEMORY.fullmatch(memory):
        raise ArgumentError("memory", memory, "an amount is required: '4GB', '512MB', '50%'")
    if not path.is_file():
        raise ArgumentError("database", str(path), "there is no such file; dpsql shell FILE makes one")
    try:
        con = duckdb.connect(path if key is None else ":memory:", config=CONFIG)
    except (duckdb.Error, OSError) as error:
        raise DpsqlError(cannot_open(path, error)) from None
    try:
        con.execute(f"SET GLOBAL memory_limit = {literal(memory)}")
        load_extensions(con)
        Answers.attach(con)
        if key is not None:
            _attach(con, path, key)
    except duckdb.Error as error:
        con.close()
        raise DpsqlError(f"{path} cannot be served: {first_line(error)}") from None
    except BaseException:
        con.close()
        raise
    return con


def _attach(con: duckdb.DuckDBPyConnection, path: Path, key: str) -> None:
    """Attach an encrypted database under the name of its file, and use it."""
    name = identifier(path.stem)
    con.execute("SET GLOBAL temp_file_encryption = true")
    con.execute(f"SET GLOBAL temp_directory = {literal(str(path) + '.tmp')}")
    try:
        con.execute(f"ATTACH {literal(str(path))} AS {name} (ENCRYPTION_KEY {literal(key)})")
    except duckdb.Error as error:
        told = "the key is not that of the database" if "key" in str(error).lower() else cannot_open(path, error)
        raise DpsqlError(told.replace(key, "...")) from None
    con.execute(f"USE {name}")
    query = "SELECT encrypted FROM system.main.duckdb_databases() WHERE database_name = ?"
    if con.execute(query, [path.stem]).fetchall() != [(True,)]:
        raise DpsqlError(f"{path} is not encrypted; leave the key out")


def create_macros(con: duckdb.DuckDBPyConnection, database: str) -> None:
    """Create dpsql's macros in an attached database, where sessions that use it find them."""
    for statement in sql.statements("macros"):
        con.execute(statement.replace("CREATE OR REPLACE MACRO ", f"CREATE OR REPLACE MACRO {identifier(database)}.main.", 1))


def cannot_open(path: Path, error: BaseException) -> str:
    """Return why a file cannot be opened, in one line."""
    held = _HELD.search(str(error))
    if held:
        return (
            f"{path} is open in another process ({Path(held[1]).name}, process {held[2]}): one process owns a database. Stop that "
            "one, or, where it is a server, ask it"
        )
    if "encrypt" in str(error).lower():
        return f"{path}: {ENCRYPTED}"
    return f"{path} cannot be opened: {first_line(error)}"


def lock_down(con: duckdb.DuckDBPyConnection, store: Path, functions: tuple[str, str]) -> None:
    """Set what holds for every connection from now on, and lock it.

    Parameters
    ----------
    store : Path
        Folder of the releases: the only one that statements reach.
    functions : tuple of str
        Names of the functions that say who comes in, and what is run.

    Raises
    ------
    DpsqlError
        Something could not be set.
    """
    for name, pinned in PINNED.items():
        if name != "search_path":
            with suppress(duckdb.Error):  # of another version or of a session alone; `pin` says what does not fit
                con.execute(f"SET GLOBAL {name} = {literal(pinned.value)}")
    sound_plans(con)
    wanted = {
        "quack_authentication_function": literal(functions[0]),
        "quack_authorization_function": literal(functions[1]),
        "python_enable_replacements": "false",
        "allowed_directories": f"[{literal(str(store))}]",
        "enable_external_access": "false",
        "lock_configuration": "true",
    }
    for name, value in wanted.items():
        try:
            con.execute(f"SET GLOBAL {name} = {value}")
        except duckdb.Error as error:
            raise DpsqlError(f"setting {name} cannot be made {value}: {first_line(error)}") from None
