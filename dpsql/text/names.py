"""How DuckDB compares names, and texts that stand for names: ASCII letters without case, everything else byte by byte."""

from __future__ import annotations

_UPPER_TO_LOWER = {c: c + 32 for c in range(ord("A"), ord("Z") + 1)}


def fold(name: str) -> str:
    """Return the name as DuckDB compares it: letters A to Z in lower case, everything else as it is.

    ``str.casefold`` and ``str.lower`` know more letters: under them 'maße' would be 'masse', another column.

    Examples
    --------
    >>> fold("Größe AGE") == fold("größe age"), fold("Ä") == fold("ä"), fold("maße") == fold("masse")
    (True, False, False)
    """
    return name.translate(_UPPER_TO_LOWER)
