"""MySQL's numbers of errors: a closed list, and the texts that this door says itself."""

from __future__ import annotations

from typing import Final

from dpsql.serve.passed import Kind, Refused

OF_KIND: Final[dict[Kind, tuple[int, str]]] = {
    "syntax": (1064, "42000"),
    "no_table": (1146, "42S02"),
    "no_column": (1054, "42S22"),
    "refused": (1142, "42000"),
    "unsupported": (1235, "42000"),
    "busy": (1041, "HY000"),
    "stopped": (3024, "HY000"),
    "failed": (1105, "HY000"),
}
"""The number and state that a kind of refusal has on this wire."""


class Fault(Exception):
    """What a MySQL server answers with a number of its own; the text is made from what the client typed."""

    def __init__(self, code: int, state: str, text: str) -> None:
        super().__init__(text)
        self.code, self.state, self.text = code, state, text


def fault_of(error: BaseException) -> Fault:
    """Return what is said of an error: a refusal by its kind, and of anything else that it was one.

    Privacy
    -------
    None: no word of an error that is not a refusal gets out.
    """
    if isinstance(error, Fault):
        return error
    if isinstance(error, Refused):
        return Fault(*OF_KIND[error.kind], error.text)
    return Fault(*OF_KIND["failed"], "the server could not answer this")


def denied(name: str) -> Fault:
    """Return what is said of a wrong token and of a name that nobody has: the same."""
    return Fault(1045, "28000", f"Access denied for user '{name}' (name, token, or a token that is over)")


def unknown_database(name: str) -> Fault:
    """Return what is said of a database that this analyst cannot name."""
    return Fault(1049, "42000", f"Unknown database '{name}'")


def unknown_table(database: str, table: str) -> Fault:
    """Return what is said of a table that is not there, or not for this analyst."""
    return Fault(1146, "42S02", f"Table '{database}.{table}' doesn't exist")


def unknown_variable(name: str) -> Fault:
    """Return what is said of a variable that is not on the list."""
    return Fault(1193, "HY000", f"Unknown system variable '{name}'")


def unknown_command() -> Fault:
    """Return what is said of a command that is not served."""
    return Fault(1047, "08S01", "Unknown command: it is not served here")


def too_many(what: str) -> Fault:
    """Return what is said where a limit of connections is reached."""
    return Fault(1040, "08004", f"Too many connections {what}")


def too_long(most: int) -> Fault:
    """Return what is said of a packet or value that is too long."""
    return Fault(1153, "08S01", f"Got a packet bigger than {most} bytes, which is what is taken")


def malformed() -> Fault:
    """Return what is said of a packet that is not one of the protocol's."""
    return Fault(1835, "HY000", "Malformed communication packet")
