"""Public domains that nobody has to list: ordered sets of texts that give the i-th member and the place of a text.

A generator has a `size` (any integer, above 2^63 too), ``rank(text)``, the place of a member or None, and ``unrank(i)``, its
inverse. Texts are compared character by character (code points): nothing is trimmed, folded or normalised.

Privacy: generators are public; none of this sees data.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Protocol

from dpsql.errors import ArgumentError
from dpsql.mechanisms.pattern import Pattern, checked_place

__all__ = ["Generator", "Listed", "Pattern", "Tuples", "Universe", "from_list", "nth_missing"]

SEPARATORS = ("-", "_", " ", "|", "/", "+", "~", " | ")


class Generator(Protocol):
    """An ordered set of distinct texts."""

    @property
    def size(self) -> int:
        """Number of members."""
        ...

    def rank(self, text: str) -> int | None:
        """Return the place of a member, counted from 0, or None for any other text."""
        ...

    def unrank(self, index: int) -> str:
        """Return the member at a place in [0, size); IndexError beyond."""
        ...


def nth_missing(used: Sequence[int], index: int) -> int:
    """Return the ``index``-th of the integers 0, 1, ... that are not in the ascending list ``used``.

    Below taken[i] there are taken[i] - i missing ones, which does not decrease in i.

    Examples
    --------
    >>> [nth_missing([1, 2, 5], i) for i in range(5)]
    [0, 3, 4, 6, 7]
    """
    return index + bisect_right(range(len(used)), index, key=lambda i: used[i] - i)


class Listed:
    """A list of texts, in this order.

    Parameters
    ----------
    words : iterable of str
        Distinct.

    Attributes
    ----------
    words : tuple of str
    places : dict of str to int

    Raises
    ------
    ArgumentError
        A word is not a text, appears twice, or there is none.

    Examples
    --------
    >>> words = Listed(["red", "green"])
    >>> words.rank("green"), words.rank("blue"), words.unrank(0)
    (1, None, 'red')
    """

    def __init__(self, words: Iterable[str]) -> None:
        self.words = tuple(words)
        self.places = {word: i for i, word in enumerate(self.words)}
        if not self.words:
            raise ArgumentError("domain", [], "must hold at least one text")
        for word in self.words:
            if not isinstance(word, str):
                raise ArgumentError("domain", word, "every word must be a text; leave NULL out, and cast other types to VARCHAR")
        if len(self.places) < len(self.words):
            repeated = next(word for i, word in enumerate(self.words) if self.places[word] != i)
            raise ArgumentError("domain", repeated, "appears more than once in the list; take SELECT DISTINCT of it")

    @property
    def size(self) -> int:
        """Number of words."""
        return len(self.words)

    def rank(self, text: str) -> int | None:
        """Return the place of a word, or None."""
        return self.places.get(text)

    def unrank(self, index: int) -> str:
        """Return the word at a place."""
        return self.words[checked_place(index, len(self.words))]


class Tuples:
    """All r-tuples of a list, joined by a separator; the last word changes fastest.

    Parameters
    ----------
    words : Listed or iterable of str
    repeat : int, at least 1
        r; 2 gives all pairs, also of a word with itself.
    separator : str
        Not empty where r > 1.

    Raises
    ------
    ArgumentError
        The separator is empty or could not be told from the words around it, or an argument is out of range.

    Notes
    -----
    Two tuples never give one text: it is required that for every word w the separator's first place in w + separator is
    len(w). An occurrence that starts before len(w) in a joined text lies within w + separator, so the first one in the text
    ends the first word; and so on. Hence ``text.split(separator)`` gives the words back.

    Examples
    --------
    >>> pairs = Tuples(["a", "b", "c"], 2)
    >>> pairs.size, pairs.unrank(5), pairs.rank("b-c"), pairs.rank("b")
    (9, 'b-c', 5, None)
    """

    def __init__(self, words: Listed | Iterable[str], repeat: int, separator: str = "-") -> None:
        self.words = words if isinstance(words, Listed) else Listed(words)
        if isinstance(repeat, bool) or not isinstance(repeat, int) or repeat < 1:
            raise ArgumentError("repeat", repeat, "must be a whole number of at least 1")
        if repeat > 1:
            _check_separator(self.words.words, separator)
        self.repeat = repeat
        self.separator = separator
        self._base = self.words.size
        self._size: int = self._base**repeat

    @property
    def size(self) -> int:
        """Number of tuples, N^r."""
        return self._size

    def rank(self, text: str) -> int | None:
        """Return the place of a joined tuple, or None."""
        if self.repeat == 1:
            return self.words.rank(text)
        parts = text.split(self.separator)
        if len(parts) != self.repeat:
            return None
        place = 0
        digits = self.words.places
        for part in parts:
            if part not in digits:
                return None
            place = place * self._base + digits[part]
        return place

    def unrank(self, index: int) -> str:
        """Return the joined tuple at a place."""
        checked_place(index, self._size)
        parts = []
        for _ in range(self.repeat):
            index, digit = divmod(index, self._base)
            parts.append(self.words.words[digit])
        return self.separator.join(reversed(parts))


def _clash(words: Iterable[str], separator: str) -> str | None:
    """Return a word after which the separator would be found too early, or None."""
    return next((word for word in words if (word + separator).find(separator) != len(word)), None)


def _check_separator(words: tuple[str, ...], separator: object) -> None:
    if not isinstance(separator, str) or not separator:
        raise ArgumentError("separator", separator, "must be a text of at least one character, e.g. '-'")
    clash = _clash(words, separator)
    if clash is not None:
        alternative = next((s for s in SEPARATORS if s != separator and _clash(words, s) is None), None)
        advice = f"take separator := {alternative!r}" if alternative else "take a separator that no word contains"
        raise ArgumentError(
            "separator", separator, f"occurs in the word {clash!r}, so two tuples could give the same text; {advice}"
        )


class Universe:
    """Declared values first, then the first members of a generator that are not among them.

    Parameters
    ----------
    declared : iterable of str
        Public categories, distinct; may be empty.
    generator : Generator or None
        None: the declared values are all.
    size : int or None
        Members in total, the declared ones included; None for all there are.

    Raises
    ------
    ArgumentError
        ``domain_size`` exceeds what there is or is below the number of declared values; a declared value appears twice.

    Notes
    -----
    Place and member take O(log d) for d declared values, on top of the generator's own.

    Examples
    --------
    >>> universe = Universe(["b", "?"], Listed(["a", "b", "c", "d"]), 4)
    >>> [universe.unrank(i) for i in range(4)], universe.rank("c"), universe.rank("d")
    (['b', '?', 'a', 'c'], 3, None)
    """

    def __init__(self, declared: Iterable[str], generator: Generator | None, size: int | None = None) -> None:
        texts = tuple(declared)
        if not texts and generator is None:
            raise ArgumentError("domain", None, "name a public list of words or a pattern, or declare the column's categories")
        self._declared = Listed(texts) if texts else None
        self._first = len(texts)
        self._generator = generator
        places = (generator.rank(text) for text in texts) if generator is not None else ()
        self._taken = sorted(place for place in places if place is not None)
        available = self._first + (generator.size - len(self._taken) if generator is not None else 0)
        self._size = available if size is None else _checked_size(size, self._first, available)

    @property
    def size(self) -> int:
        """Number of members."""
        return self._size

    def rank(self, text: str) -> int | None:
        """Return the place of a member, or None."""
        if self._declared is not None:
            place = self._declared.rank(text)
            if place is not None:
                return place
        if self._generator is None or not isinstance(text, str):
            return None
        rank = self._generator.rank(text)
        if rank is None:
            return None
        # Declared values are taken out of the generated ones, so that none has two places.
        rank += self._first - bisect_right(self._taken, rank)
        return rank if rank < self._size else None

    def unrank(self, index: int) -> str:
        """Return the member at a place."""
        checked_place(index, self._size)
        if self._declared is not None and index < self._first:
            return self._declared.unrank(index)
        if self._generator is None:  # not reached: then every place is a declared one
            raise IndexError(index)
        return self._generator.unrank(nth_missing(self._taken, index - self._first))


def _checked_size(size: object, declared: int, available: int) -> int:
    expected = f"must be a whole number from {max(1, declared)} (the declared values are members) to {available}"
    if isinstance(size, bool) or not isinstance(size, int) or size < max(1, declared):
        raise ArgumentError("domain_size", size, expected)
    if size > available:
        raise ArgumentError("domain_size", size, f"{expected}, which is all that `domain` gives; name a larger list or a pattern")
    return size


def from_list(words: Iterable[str], size: int | None, separator: str = "-", declared: Iterable[str] = ()) -> Universe:
    """Return the first ``size`` words, pairs, triples, ... of a list: the shortest tuples of which there are enough.

    Parameters
    ----------
    words : iterable of str
        N distinct texts.
    size : int or None
        Members in total. The smallest r with N^r >= size is taken; r = 1 for None.
    separator : str
        Between the words of a tuple.
    declared : iterable of str
        Public categories of the column, which come first and count among the ``size``.

    Raises
    ------
    ArgumentError
        As `Tuples` and `Universe`; ``domain_size`` cannot be reached with a single word.

    Examples
    --------
    >>> from_list(["a", "b", "c"], 5).unrank(4), from_list(["a", "b", "c"], None).size
    ('b-b', 3)
    """
    listed = Listed(words)
    repeat = 1
    if size is not None:
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise ArgumentError("domain_size", size, "must be a whole number of at least 1")
        if listed.size == 1 and size > 1:
            return Universe(declared, listed, size)  # says what there is, unless declared values fill it up
        while listed.size**repeat < size:
            repeat += 1
    return Universe(declared, Tuples(listed, repeat, separator), size)
