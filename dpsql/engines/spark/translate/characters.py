"""Classes of characters as ranges of code points: what RE2 means by its names, and how Java writes them."""

from __future__ import annotations

from collections.abc import Sequence

from dpsql.engines.spark.translate.types import Ranges

LAST = 0x10FFFF

DIGIT: Ranges = ((48, 57),)
WORD: Ranges = ((48, 57), (65, 90), (95, 95), (97, 122))
SPACE: Ranges = ((9, 10), (12, 13), (32, 32))  # RE2 leaves out the vertical tab
ESCAPED = {"d": DIGIT, "w": WORD, "s": SPACE}
CONTROL = {"t": 9, "n": 10, "v": 11, "f": 12, "r": 13, "a": 7}
POSIX: dict[str, Ranges] = {
    "digit": DIGIT, "alpha": ((65, 90), (97, 122)), "alnum": ((48, 57), (65, 90), (97, 122)), "upper": ((65, 90),),
    "lower": ((97, 122),), "word": WORD, "space": ((9, 13), (32, 32)), "blank": ((9, 9), (32, 32)),
    "punct": ((33, 47), (58, 64), (91, 96), (123, 126)), "xdigit": ((48, 57), (65, 70), (97, 102)),
}  # fmt: skip
ALSO = {ord("k"): 0x212A, ord("s"): 0x17F}
"""Signs beyond ASCII that RE2 takes for a letter where case does not matter."""


def is_character(code: int) -> bool:
    """Return whether a code point is one that a text can have."""
    return code <= LAST and not 0xD800 <= code <= 0xDFFF


def java_class(ranges: Ranges) -> str:
    r"""Return a class in Java's signs.

    Examples
    --------
    >>> java_class(((97, 97), (48, 57)))
    '[\\x{61}\\x{30}-\\x{39}]'
    """
    listed = (f"\\x{{{low:x}}}" + (f"-\\x{{{high:x}}}" if high > low else "") for low, high in ranges)
    return f"[{''.join(listed)}]"


def merged(ranges: Sequence[tuple[int, int]]) -> Ranges:
    """Return ranges in ascending order, none of which touches another.

    Examples
    --------
    >>> merged([(5, 9), (1, 2), (3, 4)])
    ((1, 9),)
    """
    joined: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if joined and low <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(joined[-1][1], high))
        else:
            joined.append((low, high))
    return tuple(joined)


def without(ranges: Ranges) -> Ranges:
    """Return all other characters."""
    gaps, next_ = [], 0
    for low, high in ranges:
        if low > next_:
            gaps.append((next_, low - 1))
        next_ = high + 1
    if next_ <= LAST:
        gaps.append((next_, LAST))
    return tuple(gaps)


def meet(first: Ranges, second: Ranges) -> bool:
    """Return whether two classes have a character in common."""
    return any(a <= d and c <= b for a, b in first for c, d in second)
