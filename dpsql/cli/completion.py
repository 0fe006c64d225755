"""What Tab offers: dp_* calls and their parameters, tables, columns, functions, keywords, dot commands."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import duckdb
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document

from dpsql import sql
from dpsql.calls.registry import declarations
from dpsql.cli.dot import COMMANDS
from dpsql.cli.printing import MODES
from dpsql.text.relation import identifier

_WORD = re.compile(r'"?[\w$]*$')
_QUALIFIED = re.compile(r'("(?:[^"]|"")+"|[\w$]+)\.("?[\w$]*)$')
_IN_CALL = re.compile(r"(dp_\w+)\s*\(", re.IGNORECASE)
_ARGUMENT = re.compile(r"(\w+)\s*:=\s*'([^']*)$")
_FIRST_ARGUMENT = re.compile(r"dp_(\w+)\s*\(\s*'([^']*)$", re.IGNORECASE)
_QUOTED = re.compile(r"'(?:[^']|'')*'|--[^\n]*")

CHOICES: dict[str, tuple[str, ...]] = {p.name: p.choices for call in declarations() for p in call.parameters() if p.choices}
"""Texts that a parameter takes."""
RESERVED = frozenset(p.name for call in declarations() for p in call.parameters() if p.also)
"""Parameters that need quotes; others, which need none, say the same."""
_OF_RELEASES = frozenset(call.name for call in declarations() if call.parameters()[0].name == "release")


@dataclass
class Names:
    """What is there to name, read from the catalogs when it is first asked for.

    Privacy: names and types only; no row is read.
    """

    con: Callable[[], duckdb.DuckDBPyConnection]
    calls: dict[str, list[str]] = field(default_factory=dict)
    tables: dict[str, list[str]] = field(default_factory=dict)
    functions: list[str] = field(default_factory=list)
    keywords: list[str] = field(default_factory=list)
    releases: list[str] = field(default_factory=list)
    fresh: bool = False

    def read(self) -> Names:
        """Read the catalogs again if a statement has run since."""
        if not self.fresh:
            con = self.con()
            # Looking up names is no query of the user's: it shows no progress.
            with _without_bar(con):
                calls, columns, functions, keywords = (con.execute(query).fetchall() for query in sql.statements("completion"))
                self.releases = _releases(con)
            self.calls = {name: list(parameters) for name, parameters in calls}
            self.tables = {}
            for table, column in columns:
                self.tables.setdefault(table, []).append(column)
            self.functions = [name for (name,) in functions]
            self.keywords = [word.upper() for (word,) in keywords]
            self.fresh = True
        return self


@contextmanager
def _without_bar(con: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Keep DuckDB's progress bar out of the line that is being typed: on a slow machine the catalogs take seconds."""
    row = con.execute("SELECT current_setting('enable_progress_bar')").fetchone()
    shown = row is not None and bool(row[0])
    if shown:
        with suppress(duckdb.InvalidInputException):  # the configuration is locked
            con.execute("SET enable_progress_bar = false")
    try:
        yield
    finally:
        if shown:
            with suppress(duckdb.Error):
                con.execute("SET enable_progress_bar = true")


def _releases(con: duckdb.DuckDBPyConnection) -> list[str]:
    try:
        return [name for (name,) in con.execute("SELECT release FROM dpsql.releases ORDER BY 1 ASC").fetchall()]
    except duckdb.Error:  # nothing is protected yet
        return []


class SqlCompleter(Completer):
    """Completion for the shell."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self._paths = PathCompleter(expanduser=True)

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        """Yield what may stand at the cursor; nothing where the catalogs cannot be read (in an aborted transaction)."""
        before = document.text_before_cursor
        if before.lstrip().startswith("."):
            yield from self._command(before.lstrip(), complete_event)
            return
        try:
            names = self.names.read()
        except duckdb.Error:
            return
        yield from _sql(before, document.text, names)

    def _command(self, before: str, event: CompleteEvent) -> Iterator[Completion]:
        name, blank, argument = before[1:].partition(" ")
        if not blank:
            yield from _matching(name, (f"{known}" for known in COMMANDS))
        elif name == "mode":
            yield from _matching(argument, MODES)
        elif name in ("timer", "echo"):
            yield from _matching(argument, ("on", "off"))
        elif name in ("read", "output", "open"):
            yield from self._paths.get_completions(Document(argument, len(argument)), event)


def _sql(before: str, text: str, names: Names) -> Iterator[Completion]:
    """Yield what may stand at the cursor in a statement."""
    open_text = _ARGUMENT.search(before)
    if open_text:
        named: dict[str, Iterable[str]] = {"release": names.releases, "parent": names.tables}
        values = named.get(open_text[1].lower(), CHOICES.get(open_text[1].lower(), ()))
        yield from _matching(open_text[2], values)
        return
    first = _FIRST_ARGUMENT.search(before)
    if first:
        yield from _matching(first[2], names.releases if first[1].lower() in _OF_RELEASES else names.tables)
        return
    if "'" in _QUOTED.sub("", before):  # inside some other text
        return
    qualified = _QUALIFIED.search(before)
    if qualified:
        yield from _members(qualified[1], qualified[2], names)
        return
    match = _WORD.search(before)
    word = match[0] if match else ""
    call = _enclosing(before, names)
    if call:
        used = set(re.findall(r"(\w+)\s*:=", _since(before, call)))
        left = [p for p in names.calls[call][1:] if p not in used and p not in RESERVED]
        yield from _matching(word, (f"{p} := " for p in left), kind="parameter", show=lambda p: p.split(" ")[0])
    if not word.strip('"') and not call:
        return
    yield from _words(word, text, names)


def _words(word: str, text: str, names: Names) -> Iterator[Completion]:
    # Columns of the tables that the statement names; of all where it names none yet.
    mentioned = [t for t in names.tables if re.search(rf"(?<!\w){re.escape(t)}(?!\w)", text, re.IGNORECASE)]
    columns = dict.fromkeys(c for t in mentioned or names.tables for c in names.tables[t])
    if not word.strip('"'):
        return
    for call, parameters in names.calls.items():
        if call.startswith(word.lower()):
            yield Completion(f"{call}(", -len(word), display=call, display_meta=", ".join(parameters))
    yield from _matching(word, (_spelled(t) for t in names.tables), kind="table")
    yield from _matching(word, map(identifier_if_needed, columns), kind="column")
    # Keywords in the case in which they are being typed.
    upper = word.isupper() or len(word) < 2 or not word.islower()
    yield from _matching(word, (k if upper else k.lower() for k in names.keywords), kind="")
    yield from _matching(word, names.functions, kind="function")


def _members(owner: str, word: str, names: Names) -> Iterator[Completion]:
    """Yield the columns of a table, or the tables of a schema."""
    plain = owner.strip('"').replace('""', '"').lower()
    for table, columns in names.tables.items():
        if table.lower() == plain:
            yield from _matching(word, map(identifier_if_needed, columns), kind="column")
    yield from _matching(word, (t.split(".", 1)[1] for t in names.tables if t.lower().startswith(f"{plain}.")), kind="table")


def _spelled(table: str) -> str:
    return ".".join(map(identifier_if_needed, table.split(".", 1)))


def identifier_if_needed(name: str) -> str:
    """Quote a name where SQL needs it.

    Examples
    --------
    >>> identifier_if_needed("age"), identifier_if_needed("odd name")
    ('age', '"odd name"')
    """
    return name if re.fullmatch(r"[A-Za-z_]\w*", name) else identifier(name)


def _enclosing(before: str, names: Names) -> str | None:
    """Return the dp_* call whose brackets the cursor is in."""
    plain = _QUOTED.sub("", before)
    for match in reversed(list(_IN_CALL.finditer(plain))):
        rest = plain[match.end() :]
        if rest.count("(") >= rest.count(")") and match[1].lower() in names.calls:
            return match[1].lower()
    return None


def _since(before: str, call: str) -> str:
    return before[before.lower().rindex(call) :]


def _matching(
    word: str, candidates: Iterable[str], *, kind: str = "", show: Callable[[str], str] = str
) -> Iterator[Completion]:
    """Yield the candidates that begin with a word, in any case."""
    start = word.lower()
    for candidate in candidates:
        if candidate.lower().startswith(start):
            yield Completion(candidate, -len(word), display=show(candidate), display_meta=kind)
