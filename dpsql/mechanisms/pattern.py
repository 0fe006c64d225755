r"""A small dialect of regular expressions whose strings can be counted, ranked and given by number.

Literals, escapes, character classes such as ``[A-Z0-9_]``, ``\d`` (0-9), ``\w`` (A-Z, a-z, 0-9 and _), and ``{n}`` after any of
them. Everything else is refused with its place: a choice, an optional part or an unlimited repetition would make texts of several
lengths, or one text in several ways.

Privacy: patterns are public; none of this sees data.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate

from dpsql.errors import ArgumentError

MAXIMUM_LENGTH = 1000

_SHORT = {"d": ((48, 57),), "w": ((48, 57), (65, 90), (95, 95), (97, 122))}
_SURROGATES = (0xD800, 0xDFFF)
_REFUSED = {
    ".": r"any character has no known alphabet: write a class such as [A-Za-z0-9], or \. for a dot",
    "|": r"choices are not supported: put the values in a list, or write \| for the character",
    "*": r"unlimited repetition is not supported: write {n}, or \* for the character",
    "+": r"unlimited repetition is not supported: write {n}, or \+ for the character",
    "?": r"optional parts are not supported: write one pattern for one length, or \? for the character",
    "(": r"groups are not supported: write their content out, or \( for the character",
    ")": r"groups are not supported: write their content out, or \) for the character",
    "^": r"the pattern always covers the whole text: leave ^ out, or write \^ for the character",
    "$": r"the pattern always covers the whole text: leave $ out, or write \$ for the character",
    "{": r"nothing stands before it to repeat: write \{ for the character",
    "}": r"no { stands before it: write \} for the character",
    "]": r"no [ stands before it: write \] for the character",
}

Ranges = tuple[tuple[int, int], ...]


def checked_place(index: int, size: int) -> int:
    """Return the index if it is in [0, size), else raise IndexError."""
    if not 0 <= index < size:
        raise IndexError(f"index = {index}: must be at least 0 and below the size {size}")
    return index


class _Alphabet:
    """The characters that one place may hold, in the order of their code points."""

    def __init__(self, ranges: Ranges) -> None:
        merged: list[list[int]] = []
        for first, last in sorted(_without_surrogates(ranges)):
            if merged and first <= merged[-1][1] + 1:
                merged[-1][1] = max(merged[-1][1], last)
            else:
                merged.append([first, last])
        self.firsts = [first for first, _ in merged]
        self.before = [0, *accumulate(last - first + 1 for first, last in merged)]
        self.size = self.before[-1]

    def rank(self, character: str) -> int | None:
        code = ord(character)
        i = bisect_right(self.firsts, code) - 1
        if i < 0:
            return None
        place = self.before[i] + code - self.firsts[i]
        return place if place < self.before[i + 1] else None

    def unrank(self, index: int) -> str:
        i = bisect_right(self.before, index) - 1
        return chr(self.firsts[i] + index - self.before[i])


def _without_surrogates(ranges: Ranges) -> list[tuple[int, int]]:
    """Return ranges without the code points that are no characters of their own: no stored text can hold them."""
    low, high = _SURROGATES
    kept = []
    for first, last in ranges:
        kept += [(a, b) for a, b in ((first, min(last, low - 1)), (max(first, high + 1), last)) if a <= b]
    return kept


class Pattern:
    r"""All texts of a pattern, the last character changing fastest.

    Parameters
    ----------
    text : str

    Raises
    ------
    ArgumentError
        The pattern holds something that is not supported; names its place, counted from 1, and the way out.

    Examples
    --------
    >>> plates = Pattern(r"[A-C]{2}-\d{3}")
    >>> plates.size, plates.unrank(8042), plates.rank("CB-042"), plates.rank("cb-042")
    (9000, 'CC-042', 7042, None)
    """

    def __init__(self, text: str) -> None:
        if not isinstance(text, str) or not text:
            raise ArgumentError("domain", text, r"must be a pattern such as '[A-Z]{3}-\d{4}'")
        self.text = text
        self._places = _Parser(text).parse()
        self._size = 1
        for place in self._places:
            self._size *= place.size

    @property
    def size(self) -> int:
        """Number of texts."""
        return self._size

    def rank(self, text: str) -> int | None:
        """Return the place of a text, or None."""
        if len(text) != len(self._places):
            return None
        index = 0
        for place, character in zip(self._places, text, strict=True):
            digit = place.rank(character)
            if digit is None:
                return None
            index = index * place.size + digit
        return index

    def unrank(self, index: int) -> str:
        """Return the text at a place."""
        checked_place(index, self._size)
        characters = []
        for place in reversed(self._places):
            index, digit = divmod(index, place.size)
            characters.append(place.unrank(digit))
        return "".join(reversed(characters))


class _Parser:
    """Reads one pattern from left to right."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def refuse(self, at: int, reason: str) -> ArgumentError:
        shown = repr(self.text[at]) if at < len(self.text) else "the end"
        return ArgumentError("domain", self.text, f"pattern refused at character {at + 1} ({shown}): {reason}")

    def parse(self) -> list[_Alphabet]:
        places: list[_Alphabet] = []
        while self.at < len(self.text):
            begun = self.at
            alphabet = _Alphabet(self.atom())
            if not alphabet.size:
                raise self.refuse(begun, "no character is left in it")
            times = self.repetition()
            if len(places) + times > MAXIMUM_LENGTH:
                raise self.refuse(begun, f"texts of more than {MAXIMUM_LENGTH} characters are not supported")
            places += [alphabet] * times
        return places

    def atom(self) -> Ranges:
        at, character = self.at, self.text[self.at]
        if character == "[":
            return self.bracket()
        if character == "\\":
            return self.escape()
        if character in _REFUSED:
            raise self.refuse(at, _REFUSED[character])
        self.at += 1
        return ((ord(character), ord(character)),)

    def escape(self) -> Ranges:
        r"""Read \d, \w or an escaped character that is neither letter nor digit."""
        at = self.at
        following = self.text[at + 1 : at + 2]
        if following in _SHORT:
            self.at += 2
            return _SHORT[following]
        if not following or following.isalnum():
            raise self.refuse(at, r"only \d, \w and escaped punctuation are supported; write \\ for the character itself")
        self.at += 2
        return ((ord(following), ord(following)),)

    def bracket(self) -> Ranges:
        """Read a character class."""
        opened = self.at
        self.at += 1
        ranges: list[tuple[int, int]] = []
        if self.text[self.at : self.at + 1] == "^":
            raise self.refuse(self.at, r"an excluding class has no known alphabet: list what is allowed, or write \^")
        while self.at < len(self.text) and self.text[self.at] != "]":
            at = self.at
            item = self.member()
            # Without a dash, or with one right before the end of the class, there is no range.
            nothing_to_span = self.text[self.at : self.at + 1] != "-" or self.text[self.at + 1 : self.at + 2] in ("]", "")
            if nothing_to_span:
                ranges += item
                continue
            self.at += 1
            last = self.member()
            if len(item) > 1 or len(last) > 1 or item[0][0] != item[0][1] or last[0][0] != last[0][1] or last[0] < item[0]:
                raise self.refuse(at, r"a range goes from a character to a later one, as in A-Z; write \- for the character")
            ranges.append((item[0][0], last[0][0]))
        if self.at == len(self.text):
            raise self.refuse(opened, r"the class is not closed by ]; write \[ for the character")
        self.at += 1
        if not ranges:
            raise self.refuse(opened, "the class is empty; list what is allowed")
        return tuple(ranges)

    def member(self) -> Ranges:
        character = self.text[self.at]
        if character == "\\":
            return self.escape()
        if character == "[":
            raise self.refuse(self.at, r"a class within a class is not supported; write \[ for the character")
        self.at += 1
        return ((ord(character), ord(character)),)

    def repetition(self) -> int:
        """Read {n} if it stands here."""
        if self.text[self.at : self.at + 1] != "{":
            return 1
        at = self.at
        closed = self.text.find("}", at)
        digits = self.text[at + 1 : closed] if closed > 0 else ""
        if not (digits.isascii() and digits.isdigit() and 0 < len(digits) < 10 and int(digits) > 0):
            raise self.refuse(at, r"only {n}, n a whole number of at least 1, is supported, no {m,n}; write \{ for the character")
        self.at = closed + 1
        if self.text[self.at : self.at + 1] == "{":
            raise self.refuse(self.at, "a repetition of a repetition is not supported; multiply the numbers")
        return int(digits)
