"""Where statements begin and end in a text: DuckDB's own lexer finds the semicolons, so quotes and comments keep theirs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import duckdb

_SEMICOLON, _DOT = b";"[0], b"."[0]


@dataclass(frozen=True)
class Piece:
    """A SQL statement without its semicolon, or a dot command.

    Attributes
    ----------
    text : str
    line : int
        Where it begins, from 1.
    closed : bool
        Whether its semicolon (of a dot command: its end of line, or the end of the text) is there.
    """

    text: str
    line: int
    closed: bool

    @property
    def command(self) -> bool:
        """Whether this is a dot command."""
        return self.text.startswith(".")


def pieces(text: str) -> Iterator[Piece]:
    r"""Yield the statements and dot commands of a text, in order.

    A dot command begins with a dot where a statement could begin, and ends with its line.

    Examples
    --------
    >>> [p.text for p in pieces("SELECT ';'; .mode csv\nFROM t -- the end;")]
    ["SELECT ';'", '.mode csv', 'FROM t -- the end;']
    >>> [(p.line, p.closed) for p in pieces("SELECT\n1;\n\n/* ; */ SELECT $$;$$")]
    [(1, True), (4, False)]
    """
    data = text.encode("utf-8", "surrogatepass")
    start, ends = 0, None
    line, counted = 1, 0
    while True:
        start, _ = _skip_blank(data, start)
        if start == len(data):
            return
        line, counted = line + data.count(b"\n", counted, start), start
        if data[start] == _DOT:
            end = data.find(b"\n", start)
            end = len(data) if end < 0 else end
            yield Piece(_text(data[start:end]), line, True)
            start, ends = end, None  # what a dot command holds is not SQL: the lexer begins anew behind it
            continue
        if ends is None:
            ends = _semicolons(data, start)
        end = next((place for place in ends if place >= start), -1)
        if end < 0:
            yield Piece(_text(data[start:]), line, False)
            return
        if end > start:
            yield Piece(_text(data[start:end]), line, True)
        start = end + 1


def complete(text: str) -> bool:
    """Whether a text is ready to run: its last statement is closed, or it holds nothing but blanks, or dot commands.

    Examples
    --------
    >>> complete("SELECT 1"), complete("SELECT 1; -- done"), complete("SELECT ';"), complete("SELECT 1; /* open"), complete(".help")
    (False, True, False, False, True)
    """
    last = None
    for piece in pieces(text):
        last = piece
    if last is not None and not last.closed:
        return False
    data = text.encode("utf-8", "surrogatepass")
    start, closed = _skip_blank(data, 0)
    # Behind the last semicolon there may be a comment that is still open.
    if start < len(data) and data[start] != _DOT:
        tail = max(_semicolons(data, start), default=0)
        _, closed = _skip_blank(data, tail + 1)
    return closed


def _semicolons(data: bytes, start: int) -> Iterator[int]:
    """Yield the places of the semicolons from ``start`` on that are outside of quotes and comments."""
    try:
        tokens = duckdb.tokenize(_text(data[start:]))
    except duckdb.Error:
        return
    for place, _ in tokens:
        if data[start + place] == _SEMICOLON:
            yield start + place


def _skip_blank(data: bytes, start: int) -> tuple[int, bool]:
    """Return where blanks, semicolons and comments from ``start`` on end, and whether the last comment does.

    Semicolons before a statement end nothing. Comments in C style nest, as in DuckDB.
    """
    while start < len(data):
        if data[start] == _SEMICOLON or data[start : start + 1].isspace():
            start += 1
        elif data.startswith(b"--", start):
            end = data.find(b"\n", start)
            start = len(data) if end < 0 else end
        elif data.startswith(b"/*", start):
            end = _comment_end(data, start)
            if end < 0:
                return len(data), False
            start = end
        else:
            break
    return start, True


def _comment_end(data: bytes, start: int) -> int:
    """Return the place behind a comment, -1 if it does not end."""
    # Comments nest in DuckDB.
    depth, place = 0, start
    while place < len(data):
        mark = data[place : place + 2]
        if mark in (b"/*", b"*/"):
            depth += 1 if mark == b"/*" else -1
            place += 2
            if depth == 0:
                return place
        else:
            place += 1
    return -1


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass").rstrip()
