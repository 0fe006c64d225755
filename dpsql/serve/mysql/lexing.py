"""MySQL's text taken to pieces by MySQL's own rules, and written again in a form that can be read in one way alone.

Comments are gone, strings have one spelling, a place of a parameter is a name; what another reader could take differently
(version comments, `--` that begins no comment, the end of a string) is decided here, before any parser sees it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from dpsql.serve.passed import Refused

SYNTAX = "You have an error in your SQL syntax"
LONGEST = 1 << 17
"""Characters of a statement; a longer value is a parameter."""
MOST_PIECES = 10_000
"""Words, signs and strings of a statement: what it takes to read one grows with them."""
DEEPEST = 100
"""Brackets within each other."""
PLACE = "dpsql_parameter_"
"""A parameter's place, with its number, in a text that was written again."""

_PIECE = re.compile(
    r"""
    (?P<string>'(?:[^'\\]|\\.|'')*+'|"(?:[^"\\]|\\.|"")*+")
    | (?P<name>`(?:[^`]|``)*+`)
    | (?P<comment>\#[^\n]*+|--(?=[\s\x00-\x1f]|\Z)[^\n]*+|/\*.*?\*/)
    | (?P<minus>--)
    | (?P<place>\?)
    | (?P<escape>\{\s*(?i:d|ts?|fn|oj)\b)
    | (?P<word>[^\W\d]\w*+|@@?[\w.$]*+)
    | (?P<rest>[^'"`\#\-/?@\w\\;():\[\]{}]++|\d\w*+|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_NO_MEANING = re.compile(r"/\*!\d{5,6}\s+SQL_NO_CACHE\s*\*/", re.IGNORECASE)
_ESCAPES = {
    "d": ("CAST(", " AS DATE)"), "t": ("CAST(", " AS TIME)"), "ts": ("CAST(", " AS DATETIME)"), "fn": ("(", ")"), "oj": (" ", " "),
}  # fmt: skip
_NO_END = frozenset("'\"`\\")
_MEANT = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}


@dataclass(frozen=True)
class Read:
    """A statement that was written again.

    Parameters
    ----------
    text : str
        The statement, without comments, and without the semicolon at its end.
    places : int
        How many parameters it has.
    statements : tuple of str
        More than one where there are several.
    """

    text: str
    places: int
    statements: tuple[str, ...]


def read(text: str) -> Read:
    """Write a text again; raises `Refused` where it is no statement of MySQL's, or one in disguise.

    Privacy
    -------
    None: the text that the analyst typed, and nothing else.
    """
    if len(text) > LONGEST:
        raise Refused("refused", f"a statement has at most {LONGEST} characters")
    out: list[str] = []
    ends: list[int] = []
    places = depth = 0
    closing: list[str] = []
    for count, piece in enumerate(_PIECE.finditer(text)):
        if count > MOST_PIECES:
            raise Refused("refused", f"a statement has at most {MOST_PIECES} words and signs: put a long list into a table")
        kind, sign = piece.lastgroup, piece.group()
        match kind:
            case "string":
                out.append(quoted(_meant(sign)))
            case "comment":
                if sign.startswith(("/*!", "/*M!")) and not _NO_MEANING.fullmatch(sign):
                    raise Refused("unsupported", "a comment that is run (/*! ... */) is not answered: write what is in it")
                out.append(" ")
            case "minus":
                out.append("- -")
            case "place":
                out.append(f" :{PLACE}{places} ")
                places += 1
            case "escape":  # of ODBC: {d '2024-01-01'}
                before, after = _ESCAPES[sign[1:].strip().lower()]
                out.append(before)
                closing.append(after)
            case "name" | "word":
                out.append(sign)
            case "rest" if sign == "}" and closing:
                out.append(closing.pop())
            case _:
                if sign in _NO_END or "\0" in sign or text.startswith("/*", piece.start()):
                    raise Refused("syntax", f"{SYNTAX}: a quote or comment has no end, or a sign is out of place")
                if sign == ":" and text[piece.start() + 1 : piece.start() + 2] != "=":
                    raise Refused("syntax", f"{SYNTAX}: ':' names nothing here")
                depth += (sign == "(") - (sign == ")")
                if depth > DEEPEST:
                    raise Refused("refused", f"brackets stand at most {DEEPEST} deep")
                if sign == ";":
                    ends.append(len(out))
                out.append(sign)
    # cut at the semicolons that are no part of a string or comment
    begins = [0, *(end + 1 for end in ends)]
    parts = ("".join(out[begin:end]).strip() for begin, end in zip(begins, [*ends, len(out)], strict=True))
    statements = tuple(part for part in parts if part)
    return Read(statements[0] if statements else "", places, statements)


def quoted(value: str) -> str:
    """Return a string as both MySQL and the parser read it."""
    return "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"


def named(name: str) -> str:
    """Return a name in backticks."""
    return "`" + name.replace("`", "``") + "`"


def unquoted(name: str) -> str:
    """Return the name that a piece of text is, in backticks or without."""
    return name[1:-1].replace("``", "`") if name.startswith("`") else name


def _meant(string: str) -> str:
    """Return the value of a string, by MySQL's escapes; those of a percent sign and an underscore stay, for LIKE."""
    quote, inner = string[0], string[1:-1]
    if "\\" not in inner:
        return inner.replace(quote * 2, quote)
    pieces = re.split(r"(\\.)", inner, flags=re.DOTALL)
    return "".join(
        _MEANT.get(piece[1], piece[1]) if piece.startswith("\\") else piece.replace(quote * 2, quote) for piece in pieces
    )
