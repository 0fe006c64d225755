"""What a user of a served database is told when there is no answer: a closed list of texts, one line each.

Privacy: a text says what its reader typed, what her grants are and what is public; never a path, a row, or DuckDB's own words,
which may show values.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import duckdb

from dpsql.errors import DpsqlError, StoreError, first_line

OVER = "the session is over, idle for too long or put out by newer ones: ATTACH again"
NOBODY = "the token of this session is not valid any more: it was revoked, replaced or has expired"
STOPPING = "the server is stopping; nothing was charged"
BUSY = "too many statements at once: wait for the answer of an earlier one, then ask again; nothing was charged"
TOO_LONG = "the statement is too long: at most {most:,} characters are read"
TOO_LARGE = "the answer is too large: at most {rows:,} rows and {megabytes:,} MB are given at once; ask for less, or use LIMIT"
STOPPED = "stopped after {seconds:g} seconds, the server's limit of a statement; {books}"
SHORT = (
    "stopped: what runs now needs more memory than the server has for statements that cost nothing; {books}. Ask for less, or again"
    " later"
)
UNFORESEEN = "the statement failed for a reason that only the custodian can find"
STORE = (
    "the server cannot store a release now: its disk may be full. Nothing more was charged; the custodian has to look. Ask again"
    " later"
)
HIDDEN = "the call was refused or failed for a reason that only the custodian may see"
NO_DATABASE_ERROR = "the statement cannot be run: check names, types and functions"
_CLASSES: tuple[tuple[tuple[type[BaseException], ...], str], ...] = (
    ((duckdb.OutOfMemoryException, MemoryError), "the statement needs more memory than the server gives: ask for less"),
    ((duckdb.ParserException, duckdb.SyntaxException), "the statement cannot be read: check its syntax"),
    ((duckdb.BinderException, duckdb.CatalogException), "a name in the statement is not known, or its types do not fit"),
    ((duckdb.ConversionException,), "a value in the statement's tables or texts cannot be converted; TRY_CAST gives NULL instead"),
    ((duckdb.OutOfRangeException,), "a value in the statement's result is out of the range of its type"),
    ((duckdb.NotImplementedException, duckdb.NotSupportedError), "the statement uses something that DuckDB does not do"),
    ((duckdb.PermissionException,), "the statement asks for something that this server does not do"),
    ((duckdb.IOException, OSError), "a file of the server cannot be read or written; the custodian has to look. Ask again later"),
    ((duckdb.TransactionException,), "another statement was faster; ask again"),
    ((duckdb.Error,), NO_DATABASE_ERROR),
)
_MACHINE = {
    "Out of Memory Error": duckdb.OutOfMemoryException,
    "IO Error": duckdb.IOException,
    "TransactionContext Error": duckdb.TransactionException,
    "INTERNAL Error": duckdb.InternalException,
    "FATAL Error": duckdb.FatalException,
}
"""How DuckDB begins what it says of the server's machine and other statements; it goes on with sizes, paths and names."""
_PATH = re.compile(r"(?:^|[\s'\"(=,:])(?:~?/|[A-Za-z]:\\)\S|\.(?:parquet|duckdb|py|toml)\b|dpsql\.load\(")
_LONGEST = 2_000


def of_machine(error: BaseException) -> type[duckdb.Error] | None:
    """Return the class of what a line of dpsql's own quotes, where DuckDB says there how the server is."""
    line = first_line(error) if isinstance(error, DpsqlError) and not isinstance(error, StoreError) else ""
    return next((kind for words, kind in _MACHINE.items() if words.casefold() in line.casefold()), None)


def told(error: BaseException, hidden: Sequence[str] = ()) -> str:
    """Return what an analyst reads of an error; what the books know of her statement follows it.

    Parameters
    ----------
    hidden : sequence of str
        Texts that are in no line: paths of the database and its store.
    """
    if isinstance(error, StoreError):
        return STORE
    quoted = of_machine(error)
    if quoted is not None:
        return told(quoted())
    if isinstance(error, DpsqlError):
        return said(first_line(error), hidden)
    return next((text for kinds, text in _CLASSES if isinstance(error, kinds)), UNFORESEEN)


def said(text: str, hidden: Sequence[str] = ()) -> str:
    """Return a line of dpsql's own, where it names no file of the server's."""
    if _PATH.search(text) or any(part and part in text for part in hidden):
        return HIDDEN
    line = "".join(letter if letter.isprintable() else " " for letter in text)
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"
