"""Patterns of LIKE and ILIKE: written out, and matched in time that grows with the text.

Privacy: a row whose pattern takes a power of its text's length would keep a call from ending, which shows.
"""

from __future__ import annotations

import re

from sqlglot import exp

from dpsql.session.versions import first_number
from dpsql.source.model import refuse
from dpsql.text.relation import literal

_RUNS = re.compile("%+")
_WAYS = "contains(), starts_with(), ends_with() and strpos() take columns"


def check_pattern(node: exp.Binary, where: str) -> None:
    """Refuse a pattern that is no constant, or that the DuckDB which runs matches by going back.

    DuckDB 1 tries each place of a text for each ``%`` but the last where ILIKE or ``_`` stands beside it; DuckDB 2 does not.

    Raises
    ------
    UnsupportedQuery
    """
    construct = "ILIKE" if isinstance(node, exp.ILike) else "LIKE"
    pattern = node.expression
    while isinstance(pattern, exp.Paren):
        pattern = pattern.this
    if not isinstance(pattern, exp.Literal) or not pattern.is_string:
        refuse(construct, f"its pattern must be a string, written out; {_WAYS}", node, where)
    if first_number() < 2 and goes_back(pattern.name, any_case=construct == "ILIKE"):
        same = regular(pattern.name)
        advice = (
            "DuckDB 1 takes a power of a text's length for more than one % before the end, with _ or with ILIKE; "
            f"regexp_full_match(..., {literal(same if construct == 'LIKE' else f'(?i){same}')}) does not"
        )
        refuse(construct, advice, node, where)


def goes_back(pattern: str, *, any_case: bool) -> bool:
    """Return whether DuckDB 1 may try a text's places several times over.

    Examples
    --------
    >>> goes_back("%a_b%", any_case=False), goes_back("%a%b%", any_case=False), goes_back("%a%b%", any_case=True)
    (False, False, True)
    """
    return (any_case or "_" in pattern) and len(_RUNS.findall(pattern.rstrip("%"))) > 1


def regular(pattern: str) -> str:
    """Return the regular expression that matches a whole text where LIKE does.

    Examples
    --------
    >>> regular("ab%_")
    '(?s)ab.*.'
    """
    return "(?s)" + "".join({"%": ".*", "_": "."}.get(letter) or re.escape(letter) for letter in pattern)
