"""What an analyst is told when there is no answer: a closed list of texts, one line each.

What is refused before anything is bought has its texts in `dpsql.serve.gate.reasons`; calls say what dpsql says, in its own words.

Privacy: a text says what its reader typed, what she may see and what is public; never a path, a row, or DuckDB's own words, which
may show values.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import duckdb

from dpsql.calls.registry import WHERE
from dpsql.errors import BudgetExceeded, BudgetExhausted, DpsqlError, GrantExceeded, NotGranted, first_line
from dpsql.serve.gate.calls import OPEN
from dpsql.serve.gate.reasons import own
from dpsql.serve.passed import Kind, Refused
from dpsql.text.names import printable

BUSY = "too many statements at once: wait for the answer of an earlier one, then ask again; nothing was charged"
STOPPED = "stopped after {seconds:g} seconds, the server's limit of a statement; {books}"
TOO_LARGE = "the answer is too large: at most {rows:,} rows are given at once; ask for less, or use LIMIT"
UNDESCRIBED = "the columns of this call are known once it was asked: ask it without preparing it"
UNTRANSLATED = "the text is not understood as MySQL's: write it more plainly"
UNFORESEEN = "the statement failed for a reason that only the custodian can find"
_HIDDEN = "the call was refused or failed for a reason that only the custodian may see"
_OF_VIEW = (
    "the view cannot be asked about like this: something in the question, or in the text of the view, which only the custodian "
    "sees, is not granted or not answered; dp_ledger() says what was charged"
)
_UNFITTING = "{} does not take values of these types: say the types, as in CAST('5' AS INTEGER), or CAST(... AS DATE)"
_UNBOUND = "a name in the statement is not known, or its types do not fit"
_CLASSES: tuple[tuple[tuple[type[BaseException], ...], Kind, str], ...] = (
    ((duckdb.OutOfMemoryException, MemoryError), "failed", "the statement needs more memory than the server gives: ask for less"),
    ((duckdb.ParserException, duckdb.SyntaxException), "syntax", "the statement cannot be read: check its syntax"),
    ((duckdb.BinderException, duckdb.CatalogException), "no_column", _UNBOUND),
    ((duckdb.ConversionException,), "failed", "a value in the statement cannot be converted; TRY_CAST gives NULL instead"),
    ((duckdb.OutOfRangeException,), "failed", "a value in the statement's result is out of the range of its type"),
    ((duckdb.NotImplementedException, duckdb.NotSupportedError), "unsupported", "the statement uses what DuckDB does not do"),
    ((duckdb.PermissionException,), "refused", "the statement asks for something that this server does not do"),
    ((duckdb.IOException, OSError), "failed", "a file of the server cannot be read or written; the custodian has to look"),
    ((duckdb.TransactionException,), "failed", "another statement was faster; ask again"),
    ((duckdb.Error,), "failed", "the statement cannot be run: check names, types and functions"),
)
_MACHINE = {
    "Out of Memory Error": duckdb.OutOfMemoryException,
    "IO Error": duckdb.IOException,
    "TransactionContext Error": duckdb.TransactionException,
    "INTERNAL Error": duckdb.InternalException,
    "FATAL Error": duckdb.FatalException,
}
"""How DuckDB begins what it says of the server's machine and other statements; it goes on with sizes, paths and names."""
_UNWRITTEN = ("Could not write", "No space left", "File too large", "quota")
"""A commit that failed of the disk, and not of another statement."""
_PATH = re.compile(r"(?:^|[\s'\"(=,:])(?:~?/|[A-Za-z]:\\)\S|\.(?:parquet|duckdb|py|toml)\b|dpsql\.load\(")
_COLUMN = re.compile(r"[Rr]eferenced column \"([^\"]+)\"|does not have a column named \"([^\"]+)\"")
_CALLED = re.compile(r"(?:function call|name and argument types) [\"']([^(\"']+)\(")
_CALL = re.compile(r"\bdp_([a-z_]+)")
_MONEY = (BudgetExceeded, BudgetExhausted, GrantExceeded, NotGranted)
_MISSING = "no such column"
_LONGEST = 2_000
_PLACE = re.compile(r" ?\(line \d+, column \d+\)")


def told(error: BaseException, hidden: Sequence[str] = (), *, of_view: bool = False) -> Refused:
    """Return what an analyst reads of an error.

    Parameters
    ----------
    hidden : sequence of str
        Texts that are in no line: paths of the database and its store, releases of others.
    of_view : bool
        Whether her statement names a view. Then she reads one text whatever is wrong, but for what her budget does not cover: what
        is said of a name would tell whether it is in the text of the view, and so would what is not said.
    """
    if isinstance(error, DpsqlError):
        if of_view and not isinstance(error, _MONEY):
            return Refused("refused", _OF_VIEW)
        line = first_line(error)
        quoted = next((kind for words, kind in _MACHINE.items() if words.lower() in line.lower()), None)
        if quoted is duckdb.TransactionException and any(words in line for words in _UNWRITTEN):
            quoted = duckdb.IOException
        if quoted is not None:
            return told(quoted())
        return Refused("no_column" if _MISSING in line else "refused", said(f"{line}{_whose(line)}", hidden))
    known = next(((kind, text) for kinds, kind, text in _CLASSES if isinstance(error, kinds)), None)
    return Refused("failed", UNFORESEEN) if known is None else Refused(*known)


def _whose(line: str) -> str:
    """Return which calls of those that a line advises are not the reader's to make; '' where she may make all of them."""
    closed = [f"dp_{name}" for name in dict.fromkeys(_CALL.findall(line)) if name in WHERE and name not in OPEN]
    return f" ({' and '.join(closed)} {'is a call' if len(closed) == 1 else 'are calls'} of the custodian's)" if closed else ""


def unbound(error: duckdb.Error) -> Refused:
    """Return what is wrong with a name, of an error in the empty copy: there DuckDB's words are about names and types alone."""
    column = _COLUMN.search(str(error))
    if column is None:
        called = _CALLED.search(str(error))
        return told(error) if called is None else Refused("no_column", _UNFITTING.format(own(called[1])))
    return Refused("no_column", f"column {own(column[1] or column[2])} does not exist: DESCRIBE shows the columns of a table")


def said(text: str, hidden: Sequence[str] = ()) -> str:
    """Return a line of dpsql's own, where it names nothing that is hidden."""
    if _PATH.search(text) or any(part and part in text for part in hidden):
        return _HIDDEN
    line = printable(_PLACE.sub("", text))  # places in the gate's text
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"
