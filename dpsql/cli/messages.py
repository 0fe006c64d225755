"""Errors as one line of text that a person at a terminal can act on."""

from __future__ import annotations

import re
from pathlib import Path

from dpsql import errors

_FROM_UDF = re.compile(r"Invalid Input (?:Error|Exception): Python exception occurred while executing the UDF: (\w+)(?:: |$)")
_PLACE = re.compile(r"\n+LINE (\d+): .*", re.DOTALL)
_TRACE = re.compile(r"\n+At:\n.*", re.DOTALL)
_NAMES = tuple(name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, errors.DpsqlError))


def message(error: BaseException) -> str:
    r"""Return an error as one line: DuckDB's own kind of error before its text, ``Error:`` before one of dpsql.

    Examples
    --------
    >>> message(ValueError("Invalid Input Error: Python exception occurred while executing the UDF: DomainError: no bins"))
    'Error: no bins'
    >>> message(ValueError("Catalog Error: Table with name a does not exist!\nDid you mean \"b\"?\n\nLINE 1: FROM a\n        ^"))
    'Catalog Error: Table with name a does not exist! Did you mean "b"?'
    """
    text = _TRACE.sub("", _PLACE.sub("", str(error))).strip() or type(error).__name__
    from_udf = _FROM_UDF.match(text)
    if from_udf:
        text = text[from_udf.end() :]
        text = text if from_udf[1] in _NAMES else f"{from_udf[1]}: {text}"
    elif re.match(r"[A-Z][\w -]* Error: ", text):
        return one_line(text)
    return f"Error: {one_line(text)}"


def place(error: BaseException) -> int | None:
    """Return the line of the statement at which DuckDB says the error is, or None."""
    match = _PLACE.search(str(error))
    return int(match[1]) if match else None


def one_line(text: str) -> str:
    """Join lines, and show control characters instead of sending them to the terminal."""
    return visible(re.sub(r"\s*\n\s*", " ", text.strip()))


def visible(text: str) -> str:
    r"""Return a text with its control characters written out: a value must not move the cursor.

    Examples
    --------
    >>> visible("a\nb\x1b[2J")
    'a\\nb\\x1b[2J'
    """
    return text if text.isprintable() else "".join(_shown(c) for c in text)


def _shown(character: str) -> str:
    if character.isprintable() or character in "\u200d\ufe0f":  # joiners of composed characters
        return character
    named = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}
    return named.get(character) or (f"\\x{ord(character):02x}" if ord(character) < 256 else f"\\u{ord(character):04x}")


def cannot_open(path: str, error: BaseException) -> str:
    """Say why a database file cannot be opened, and what to do."""
    holder = errors.holder(error)
    if holder is not None:
        who = f"{Path(holder[0]).name}, process {holder[1]}"
        return (
            f"{path} is open in another process ({who}). DuckDB lets one process write to a file, or several read it: "
            "close it there, or ask there"
        )
    return f"{path} cannot be opened: {one_line(_TRACE.sub('', str(error)))}"
