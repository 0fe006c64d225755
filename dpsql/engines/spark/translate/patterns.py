r"""Regular expressions: a subset of RE2's, which DuckDB has, in Java's, which Spark has, with the same matches for every text.

A pattern is taken apart and written anew, so that nothing depends on what Java makes of its signs: a class of characters is spelt
out by its code points, ``.`` is all but a line feed, ``^`` and ``$`` are the ends of the text. Both
engines then take the leftmost match, and of several there the one that a backtracking search finds first.

What Java could fail on is left out, for whether a statement fails must not depend on a row. Its search calls itself once for each
repetition of a group, until the stack is full; so groups may be optional and not repeated. A class repeated by ``*``, ``+`` or
lazily is a loop there, and one with counts calls itself no more often than it counts. Java tries again and again where a repetition
can give back what the next one takes: a few of them pass.

References
----------
RE2's syntax: https://github.com/google/re2/wiki/Syntax. java.util.regex.Pattern of Java 17: `CharPropertyGreedy`, `Curly`,
`Branch`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dpsql.engines.spark.translate.characters import (  # fmt: skip
    ALSO,
    CONTROL,
    ESCAPED,
    LAST,
    POSIX,
    is_character,
    java_class,
    meet,
    merged,
    without,
)
from dpsql.engines.spark.translate.types import Part, Ranges, refuse

_MOST = 255
"""The largest count: Java may call itself as often."""
_LONG = 10_000
_WAYS = _LONG**3
"""In how many ways the repetitions of a pattern may share a text of `_LONG` characters."""


@dataclass(frozen=True)
class _Piece:
    """A part of a pattern, in Java.

    ``least``: of characters that it matches. ``chars``: the class, of one character or of one that is repeated, ``most`` times
    (None: without an end).
    """

    java: str
    least: int
    chars: Ranges = ()
    most: int | None = 1
    anchor: bool = False
    group: bool = False
    parts: tuple[Part, ...] = ()

    @property
    def varies(self) -> bool:
        """Whether it is a class that is repeated and may give something back."""
        return bool(self.chars) and self.least != self.most


@dataclass(frozen=True)
class Pattern:
    """A pattern in Java's signs.

    Parameters
    ----------
    java : str
        Of one piece.
    least : int
        The fewest characters that it matches.
    groups : int
    parts : tuple of (ranges, least, most)
        The classes that it is a sequence of; empty where it is none, and has groups or alternatives.
    """

    java: str
    least: int
    groups: int
    parts: tuple[Part, ...] = ()


def pattern(written: str, options: str = "", function: str = "regexp_matches") -> Pattern:
    r"""Return a pattern of RE2 in Java's signs.

    Parameters
    ----------
    written : str
    options : str
        DuckDB's: 'c' and 'i' (case), 's' and 'm', 'n', 'p' (whether ``.`` is a line feed, too); the last of each counts.
    function : str
        Named where it is refused.

    Raises
    ------
    UnsupportedQuery
        It is not of the subset.

    Examples
    --------
    >>> pattern("^a.$").java
    '(?:\\A[\\x{61}][\\x{0}-\\x{9}\\x{b}-\\x{10ffff}]\\z)'
    """
    return _Parser(written, options, function).whole()


class _Parser:
    def __init__(self, written: str, options: str, function: str) -> None:
        self._text, self._at, self._function = written, 0, function
        self._groups, self._ways = 0, 1
        self._fold = self._dot = False
        for option in options:
            if option not in "cismnp":
                self._refuse(f"with the option {option!r}")
            self._set(option)

    def _set(self, option: str) -> None:
        if option in "ci":
            self._fold = option == "i"
        else:
            self._dot = option == "s"

    def _refuse(self, what: str, reason: str = "") -> None:
        refuse(f"{self._function}() {what}", reason or "Java may match otherwise, or fail on some texts")

    def _peek(self, text: str) -> bool:
        return self._text.startswith(text, self._at)

    def _take(self, text: str) -> bool:
        is_next = self._peek(text)
        self._at += len(text) if is_next else 0
        return is_next

    def _next(self) -> str:
        if self._at == len(self._text):
            self._refuse("with a pattern that ends too early")
        self._at += 1
        return self._text[self._at - 1]

    def whole(self) -> Pattern:
        if self._take("(?"):
            while not self._take(")"):
                if (flag := self._next()) not in "is":
                    self._at = 0
                    break
                self._set(flag)
        piece = self._alternatives(last=True)
        if self._at < len(self._text):
            self._refuse("with a pattern that has ) without (")
        if self._ways > _WAYS:
            self._refuse("with so many repetitions", "they can share a text in too many ways, and Java tries each")
        return Pattern(f"(?:{piece.java})", piece.least, self._groups, piece.parts)

    def _alternatives(self, *, last: bool) -> _Piece:
        sequences = [self._sequence(last=last)]
        while self._take("|"):
            sequences.append(self._sequence(last=last))
        single = sequences[0] if len(sequences) == 1 else None
        return single or _Piece("|".join(each.java for each in sequences), min(each.least for each in sequences), group=True)

    def _sequence(self, *, last: bool) -> _Piece:
        pieces: list[_Piece] = []
        while self._at < len(self._text) and not self._peek("|") and not self._peek(")"):
            pieces.append(self._repeated(self._atom()))
        for i, piece in enumerate(pieces):
            # a repetition gives nothing back where what follows begins with none of its characters, or where the pattern ends
            if piece.varies:
                behind = pieces[i + 1] if i + 1 < len(pieces) else None
                apart = behind is not None and behind.least and behind.chars and not meet(piece.chars, behind.chars)
                if not (apart or (behind is None and last)):
                    self._ways *= _LONG if piece.most is None else piece.most - piece.least + 1
        # only of a plain sequence it is known which texts match it
        flat = not any(piece.group for piece in pieces)
        parts = tuple((piece.chars, piece.least, piece.most) for piece in pieces if not piece.anchor) if flat else ()
        return _Piece("".join(each.java for each in pieces), sum(each.least for each in pieces), group=True, parts=parts)

    def _atom(self) -> _Piece:
        sign = self._next()
        if sign == "(":
            return self._group()
        if sign == "[":
            return _of(self._class())
        if sign == ".":
            return _of(((0, LAST),) if self._dot else without(((10, 10),)))
        if sign in "^$":
            return _Piece(r"\A" if sign == "^" else r"\z", 0, anchor=True)
        if sign in "*+?{}]":
            self._refuse(f"with an unescaped {sign}")
        if sign == "\\":
            anchors = {"A": r"\A", "z": r"\z"}
            if self._peek("b"):
                self._refuse("with \\b", "not every server has an ASCII word boundary")
            if self._at < len(self._text) and self._text[self._at] in anchors:
                return _Piece(anchors[self._next()], 0, anchor=True)
            return _of(self._escape())
        return _of(self._folded(((ord(sign), ord(sign)),)))

    def _group(self) -> _Piece:
        plain = self._take("?:")
        if not plain and self._peek("?"):
            self._refuse("with (?")
        self._groups += not plain
        piece = self._alternatives(last=False)
        if not self._take(")"):
            self._refuse("with a pattern that has ( without )")
        return _Piece(f"({'?:' if plain else ''}{piece.java})", piece.least, group=True)

    def _repeated(self, piece: _Piece) -> _Piece:
        if not any(self._peek(sign) for sign in "*+?{"):
            return piece
        least, most = self._counts()
        lazy = "?" if self._take("?") else ""
        if any(self._peek(sign) for sign in "*+?{"):
            self._refuse("with a repetition of a repetition")
        if piece.anchor:
            self._refuse("with an anchor that is repeated")
        # Java calls itself for each repetition of a group, until its stack is full
        if piece.group:
            if (least, most) != (0, 1):
                self._refuse("with a group that is repeated", "Java's stack is too small for long texts; a group may be optional")
            self._ways *= 2
            return replace(piece, java=f"{piece.java}?{lazy}", least=0)
        java = piece.java
        if most is None:
            sign = {0: "*", 1: "+"}.get(least)
            java = f"{java}{sign}{lazy}" if sign else f"{java}{{{least}}}{java}*{lazy}"
        elif (least, most) == (0, 1):
            java = f"{java}?{lazy}"
        else:
            java = f"{java}{{{least},{most}}}{lazy}"
        return replace(piece, java=java, least=least, most=most)

    def _counts(self) -> tuple[int, int | None]:
        sign = self._next()
        if sign != "{":
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[sign]
        inside, _, rest = self._text[self._at :].partition("}")
        least, comma, most = inside.partition(",")
        numbers = [part for part in (least, most) if part]
        if not least or any(not (part.isascii() and part.isdigit()) or int(part) > _MOST for part in numbers):
            self._refuse("with { that counts otherwise", f"{{n}}, {{n,}} and {{n,m}} pass, up to {_MOST}")
        self._at = len(self._text) - len(rest)
        highest = int(least) if not comma else (int(most) if most else None)
        if highest is not None and (highest < int(least) or highest == 0):
            self._refuse("with a count of that kind")
        return int(least), highest

    def _escape(self) -> Ranges:
        """Return the class that stands behind a backslash."""
        sign = self._next()
        if sign in ESCAPED:
            return self._folded(ESCAPED[sign])
        if sign.lower() in ESCAPED:
            return without(self._folded(ESCAPED[sign.lower()]))
        code = CONTROL.get(sign)
        if code is None and sign == "x":
            code = self._hexadecimal()
        if code is None:
            if sign.isalnum() or not sign.isascii() or sign == "_":
                self._refuse(f"with \\{sign}")
            code = ord(sign)
        return self._folded(((code, code),))

    def _hexadecimal(self) -> int:
        if self._take("{"):
            digits, _, rest = self._text[self._at :].partition("}")
            self._at = len(self._text) - len(rest)
        else:
            digits = self._text[self._at : self._at + 2]
            self._at += 2
        known = 2 <= len(digits) <= 6 and all(digit in "0123456789abcdefABCDEF" for digit in digits)
        if not known or not is_character(int(digits, 16)):
            self._refuse("with \\x of that kind")
        return int(digits, 16)

    def _class(self) -> Ranges:
        negated = self._take("^")
        members: list[tuple[int, int]] = []
        first = True
        while first or not self._peek("]"):
            if first and self._peek("]"):
                self._refuse("with [ and ] in it")
            ranges = self._member(first=first)
            first = False
            single = len(ranges) == 1 and ranges[0][0] == ranges[0][1]
            # a - before ] stands for itself
            if self._peek("-") and not self._peek("-]"):
                self._at += 1
                end = self._member(first=False)
                if not single or len(end) != 1 or end[0][0] != end[0][1] or end[0][0] < ranges[0][0] or self._peek("-"):
                    self._refuse("with a range of that kind")
                ranges = ((ranges[0][0], end[0][0]),)
            members += ranges
        self._at += 1
        folded = self._folded(merged(members))
        ranges = without(folded) if negated else folded
        if not ranges:
            self._refuse("with a class of no characters")
        return ranges

    def _member(self, *, first: bool) -> Ranges:
        """Return what stands in a class next; letters are not folded here."""
        fold, self._fold = self._fold, False
        try:
            if self._take("[:"):
                name, end, _ = self._text[self._at :].partition(":]")
                if not end or name not in POSIX:
                    self._refuse("with [: of that kind")
                self._at += len(name) + 2
                return POSIX[name]
            sign = self._next()
            if sign == "\\":
                return self._escape()
            if sign == "-" and not first and not self._peek("]"):
                self._refuse("with a range of that kind")
            return ((ord(sign), ord(sign)),)
        finally:
            self._fold = fold

    def _folded(self, ranges: Ranges) -> Ranges:
        if not self._fold:
            return ranges
        if ranges and ranges[-1][1] > 127:
            self._refuse("with letters beyond ASCII where case does not matter")
        more = list(ranges)
        for low, high in ranges:
            for code in range(low, high + 1):
                swapped = ord(chr(code).swapcase())
                more.append((swapped, swapped))
                if also := ALSO.get(ord(chr(code).lower())):
                    more.append((also, also))
        return merged(more)


def _of(ranges: Ranges) -> _Piece:
    return _Piece(java_class(ranges), 1, ranges)
