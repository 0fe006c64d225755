"""How DuckDB compares names, and texts that stand for names: ASCII letters without case, everything else byte by byte."""

from __future__ import annotations

import re

_UPPER_TO_LOWER = {c: c + 32 for c in range(ord("A"), ord("Z") + 1)}


_ANALYST = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")


def printable(text: str) -> str:
    r"""Return a text on one line, without what a terminal would obey: names may hold anything.

    Examples
    --------
    >>> printable("at most 5 rows of each \x1b[31mperson\n")
    'at most 5 rows of each  [31mperson '
    """
    return "".join(letter if letter.isprintable() else " " for letter in text)


def is_analyst(name: str) -> bool:
    """Return whether a text can be the name of an analyst: letters, digits, '_', '-' and '.', at most 63 characters.

    Examples
    --------
    >>> is_analyst("alice.b-2"), is_analyst("alice b"), is_analyst("-x")
    (True, False, False)
    """
    return _ANALYST.fullmatch(name) is not None


def fold(name: str) -> str:
    """Return the name as DuckDB compares it: letters A to Z in lower case, everything else as it is.

    ``str.casefold`` and ``str.lower`` know more letters: under them 'maße' would be 'masse', another column.

    Examples
    --------
    >>> fold("Größe AGE") == fold("größe age"), fold("Ä") == fold("ä"), fold("maße") == fold("masse")
    (True, False, False)
    """
    return name.translate(_UPPER_TO_LOWER)
