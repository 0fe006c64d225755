"""Reading JSON that somebody may have written by hand: an imported file, an edited book. Bounded in time and memory.

Privacy: None: nothing here sees a protected row.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any, NoReturn

MAX_JSON = 1 << 26
"""Letters of a text that is parsed: a plan of 5,000 columns with long lists of values has a few million."""

_MAX_EXPONENT = 400
_EXPONENT = re.compile(r"\s*[+-]?[\d_.]*[eE][+-]?0*(\d+)\s*")


def load(text: object) -> Any:
    """Return what a JSON text says.

    Raises
    ------
    ValueError
        It is not JSON, longer than `MAX_JSON`, nested too deeply, or has NaN, infinities or integers of thousands of digits.

    Examples
    --------
    >>> load('{"scale": "5/2"}')
    {'scale': '5/2'}
    """
    if not isinstance(text, str):
        raise ValueError("not a text")
    if len(text) > MAX_JSON:
        raise ValueError("too long")
    try:
        return json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _refuse(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number out of range")
    return number


def check_numbers(value: object) -> None:
    """Refuse texts that are read as numbers and would take long: ``Fraction('1e999999999')`` takes hours.

    Python itself refuses numbers of thousands of digits.

    Raises
    ------
    ValueError
        There is one in the value, a list or an object of them.

    Examples
    --------
    >>> check_numbers({"sigma": "5/2", "count": 3})
    """
    if isinstance(value, Mapping):
        for item in value.values():
            check_numbers(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            check_numbers(item)
    elif isinstance(value, str):
        exponent = _EXPONENT.fullmatch(value)
        if exponent is not None and (len(exponent[1]) > 4 or int(exponent[1]) > _MAX_EXPONENT):
            raise ValueError("a number out of range")
