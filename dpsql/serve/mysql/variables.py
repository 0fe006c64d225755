"""Variables of a session: what clients ask for and set, none of which changes an answer (but the most rows of one)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from dpsql.serve.mysql.codes import Fault, unknown_variable
from dpsql.serve.mysql.lexing import LONGEST
from dpsql.serve.mysql.login import VERSION
from dpsql.serve.passed import Refused

Value = str | int | None
MODES = "ONLY_FULL_GROUP_BY,STRICT_TRANS_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION"

_SET: Final[dict[str, Value]] = {
    "autocommit": 1, "auto_increment_increment": 1, "auto_increment_offset": 1, "big_tables": 0,
    "character_set_client": "utf8mb4", "character_set_connection": "utf8mb4", "character_set_database": "utf8mb4",
    "character_set_results": "utf8mb4", "character_set_server": "utf8mb4", "collation_connection": "utf8mb4_general_ci",
    "collation_database": "utf8mb4_general_ci", "collation_server": "utf8mb4_general_ci", "default_storage_engine": "InnoDB",
    "foreign_key_checks": 1, "group_concat_max_len": 1024, "innodb_lock_wait_timeout": 50, "interactive_timeout": 28800,
    "lock_wait_timeout": 31536000, "max_execution_time": 0, "net_read_timeout": 30, "net_write_timeout": 60, "optimizer_switch": "",
    "profiling": 0, "session_track_gtids": "OFF", "session_track_schema": 1,
    "session_track_state_change": 0, "session_track_system_variables": "", "session_track_transaction_info": "OFF",
    "sql_auto_is_null": 0, "sql_big_selects": 1, "sql_mode": MODES, "sql_notes": 1, "sql_quote_show_create": 1,
    "sql_safe_updates": 0,
    "sql_select_limit": 18446744073709551615, "sql_warnings": 0, "time_zone": "SYSTEM", "transaction_isolation": "SERIALIZABLE",
    "transaction_read_only": 0, "tx_isolation": "SERIALIZABLE", "tx_read_only": 0, "unique_checks": 1, "wait_timeout": 28800,
}  # fmt: skip
"""What a session may set, and what it is before."""

_READ: Final[dict[str, Value]] = {
    "character_set_filesystem": "binary", "character_set_system": "utf8mb3", "event_scheduler": "OFF", "have_openssl": "YES",
    "have_profiling": "NO", "have_query_cache": "NO", "have_ssl": "YES", "init_connect": "", "license": "Apache-2.0",
    "local_infile": 0, "lower_case_file_system": 0, "lower_case_table_names": 2, "max_allowed_packet": 1 << 24,
    "max_connections": 100, "net_buffer_length": 16384, "performance_schema": 0, "protocol_version": 10, "query_cache_size": 0,
    "query_cache_type": "OFF", "read_only": 1, "secure_file_priv": None, "skip_networking": 0, "skip_show_database": 0,
    "storage_engine": "InnoDB", "super_read_only": 1, "system_time_zone": "UTC", "version": VERSION, "version_comment": "dpsql",
    "version_compile_machine": "", "version_compile_os": "", "warning_count": 0, "error_count": 0, "last_insert_id": 0,
}  # fmt: skip
"""What can be read alone."""

_UNREADABLE = frozenset({
    "ANSI", "ANSI_QUOTES", "DB2", "MAXDB", "MSSQL", "NO_BACKSLASH_ESCAPES", "ORACLE", "PIPES_AS_CONCAT", "POSTGRESQL",
})  # fmt: skip
"""Modes in which a text would have to be read otherwise."""
LONGEST_SET: Final = 512
"""Characters that are kept of a value."""
_LETTERS = frozenset({"utf8", "utf8mb3", "utf8mb4", "binary", "ascii", "us-ascii", "default"})
_ITEM = re.compile(
    r"""(?P<names>NAMES|CHARACTER\s+SET|CHARSET)\s+(?P<letters>'[^']*'|[\w-]+)(?:\s+COLLATE\s+(?:'[^']*'|\w+))?
    |(?:(?P<reach>SESSION|LOCAL|GLOBAL|PERSIST)\s+)?TRANSACTION\s+(?P<transaction>.*)
    |(?:@@)?(?:(?P<scope>SESSION|LOCAL|GLOBAL|PERSIST|PERSIST_ONLY)(?:\s+|\.))?(?:@@)?`?(?P<name>\w+)`?\s*(?::=|=)\s*(?P<value>.*)""",
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)
_TRANSACTION = re.compile(
    r"(?:READ\s+(?:ONLY|WRITE)|ISOLATION\s+LEVEL\s+(?:READ\s+(?:UN)?COMMITTED|REPEATABLE\s+READ|SERIALIZABLE)|[\s,])*",
    re.IGNORECASE,
)
_WORD = re.compile(r"[\w-]+")
_SWITCHES = {"ON": 1, "TRUE": 1, "OFF": 0, "FALSE": 0}


class Variables:
    """The variables of one session."""

    def __init__(self) -> None:
        self._now: dict[str, Value] = {**_SET, **_READ}

    def get(self, name: str) -> Value:
        """Return a variable, of the session or of all; raises `Fault` where there is none."""
        key = name.lower().rpartition(".")[2]
        if key not in self._now:
            raise unknown_variable(key[:64])
        return self._now[key]

    def listed(self) -> list[tuple[str, str]]:
        """Return all variables, as SHOW has them."""
        return [(name, _shown(name, value)) for name, value in sorted(self._now.items())]

    def reset(self) -> None:
        """Return to what a session begins with."""
        self._now = {**_SET, **_READ}

    @property
    def autocommit(self) -> bool:
        """Whether clients are told that no transaction is open after a statement."""
        return str(self._now["autocommit"]) not in ("0", "OFF")

    @property
    def most_rows(self) -> int | None:
        """How many rows of an answer the client wants at most; None: all."""
        most = str(self._now["sql_select_limit"])
        return int(most) if most.isdigit() else None

    def put(self, text: str, value_of: Callable[[str], Value]) -> None:
        """Set what SET sets.

        Parameters
        ----------
        text : str
            What follows SET.
        value_of : callable
            The value of an expression without tables.
        """
        for item in split(text):
            setting = _ITEM.fullmatch(item)
            if setting is None:
                what = "user variables are not kept" if item.startswith("@") else "this SET is not understood"
                raise Refused("unsupported", what)
            if setting["names"]:
                if setting["letters"].strip("'").lower() not in _LETTERS:
                    raise Fault(1115, "42000", "Unknown character set: texts are in utf8mb4 here")
            elif setting["transaction"] is not None:
                _own(setting["reach"])
                if not _TRANSACTION.fullmatch(setting["transaction"]):
                    raise Refused("syntax", "You have an error in your SQL syntax near TRANSACTION")
            else:
                _own(setting["scope"])
                self._set(setting["name"].lower(), setting["value"].strip(), value_of)

    def _set(self, name: str, text: str, value_of: Callable[[str], Value]) -> None:
        if name in _READ:
            raise Fault(1238, "HY000", f"Variable '{name}' is a read only variable")
        if name not in _SET:
            raise unknown_variable(name[:64])
        if text.upper() == "DEFAULT":
            value = _SET[name]
        elif text.upper() in _SWITCHES:
            value = _SWITCHES[text.upper()]
        else:
            value = text if _WORD.fullmatch(text) and not text.isdigit() and text.upper() != "NULL" else value_of(text)
        if name == "sql_mode" and _UNREADABLE & {mode.strip().upper() for mode in str(value).split(",")}:
            raise Fault(1231, "42000", "Variable 'sql_mode' can't be set to a mode that reads quotes and signs otherwise")
        if name.startswith("character_set_") and value is not None and str(value).lower() not in _LETTERS:
            raise Fault(1115, "42000", "Unknown character set: texts are in utf8mb4 here")
        self._now[name] = value[:LONGEST_SET] if isinstance(value, str) else value


def _own(scope: str | None) -> None:
    if scope is not None and scope.upper() not in ("SESSION", "LOCAL"):
        raise Fault(1227, "42000", "Access denied; you need the privilege to set a variable for everybody")


def _shown(name: str, value: Value) -> str:
    if value is None:
        return ""
    return ("ON" if value else "OFF") if value in (0, 1) and name not in _COUNTS else str(value)


_COUNTED_BY = ("auto_increment", "last_insert_id", "warning_count", "error_count", "lower_case_table", "query_cache_size", "max_")
_COUNTS = frozenset(name for name in _SET | _READ if name.startswith(_COUNTED_BY))


def split(text: str) -> list[str]:
    """Return the parts of a list at its commas, outside of strings and brackets."""
    parts, depth, start = [], 0, 0
    for piece in re.finditer(r"'(?:[^'\\]|\\.|'')*+'|`(?:[^`]|``)*+`|[(),]", text[:LONGEST], re.DOTALL):
        depth += (piece[0] == "(") - (piece[0] == ")")
        if piece[0] == "," and depth == 0:
            parts.append(text[start : piece.start()].strip())
            start = piece.end()
    return [*parts, text[start:].strip()]
