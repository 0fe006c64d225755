"""Numbers as the texts that DuckDB casts to a type: whole ones, decimals, dates, truth values."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from functools import partial
from itertools import islice

import numpy as np
import numpy.typing as npt

from dpsql.domains import sqltypes
from dpsql.protected.source import ProtectedSource
from dpsql.queries.asked import Wanted

_SMALL = 2**62
_EPOCH = dt.datetime(1970, 1, 1)  # without a zone, as TIMESTAMP is


def cell_texts(values: npt.ArrayLike, sql_type: str) -> list[str | None]:
    """Return numbers as the texts of values of a type; None for NaN, which stands for NULL.

    Dates are days, timestamps seconds since 1970. What is beyond the type's range is its nearest end.

    Parameters
    ----------
    values : floats, shape (n,)

    Examples
    --------
    >>> cell_texts([12.6, 2.5, math.nan, math.inf], "TINYINT")
    ['13', '2', None, '127']
    >>> cell_texts([2.5, -0.004], "DECIMAL(4,2)"), cell_texts([1.0], "DATE")
    (['2.50', '0.00'], ['1970-01-02'])
    >>> cell_texts([-3.0], "DECIMAL(3,3)")
    ['-0.999']
    """
    parsed, numbers = sqltypes.parse(sql_type), np.asarray(values, dtype=np.float64)
    if parsed.family in ("integer", "decimal"):
        return _whole_texts(numbers, parsed)
    texts: dict[str, Callable[[float], str | None]] = {"boolean": _truth, "temporal": partial(_moment, sql_type=sql_type)}
    text = texts.get(parsed.family, repr)
    return [None if math.isnan(value) else text(value) for value in numbers.tolist()]


def cell_text(value: float, sql_type: str) -> str | None:
    """Return one number as `cell_texts` does."""
    return cell_texts([value], sql_type)[0]


def list_texts(rows: np.ndarray, sql_type: str) -> list[str | None]:
    """Return rows of numbers, shape (n, m), as texts of lists of a type, NULL for NaN."""
    texts = iter([text or "NULL" for text in cell_texts(np.ravel(rows), sql_type)])
    return ["[" + ", ".join(islice(texts, np.shape(rows)[1])) + "]" for _ in range(len(rows))]


def _whole_texts(numbers: np.ndarray, parsed: sqltypes.SqlType) -> list[str | None]:
    with np.errstate(over="ignore"):
        units = np.rint(numbers * float(10**parsed.scale))
    # 64 bits hold nearly all of them; Python's integers the rest
    small = np.abs(units) < _SMALL
    whole = np.clip(np.where(small, units, 0).astype(np.int64), max(parsed.low, -_SMALL), min(parsed.high, _SMALL)).tolist()
    texts: list[str | None] = list(map(str, whole)) if not parsed.scale else [_decimal(units, parsed.scale) for units in whole]
    for place in np.flatnonzero(~small):
        value = float(units[place])
        near = 0 if math.isnan(value) else (parsed.high if value > 0 else parsed.low) if math.isinf(value) else int(value)
        texts[place] = None if math.isnan(value) else _decimal(min(max(near, parsed.low), parsed.high), parsed.scale)
    return texts


def _truth(value: float) -> str:
    return "true" if value >= 0.5 else "false"


def _decimal(scaled: int, scale: int) -> str:
    """Return a whole number of units of the last place as a decimal, digit by digit: Python's own would round to 28 of them."""
    if not scale:
        return str(scaled)
    digits = str(abs(scaled)).zfill(scale + 1)
    return f"{'-' * (scaled < 0)}{digits[:-scale]}.{digits[-scale:]}"


def factor(aggregate: Wanted, protected: ProtectedSource, sql_type: str) -> float:
    """Return what a number has to be multiplied with: DuckDB's median of dates (days) is a timestamp (seconds)."""
    if not aggregate.arguments:
        return 1.0
    kinds = {column.name: column.sql_type for column in protected.source.columns}
    is_date = kinds.get(f"a{aggregate.arguments[0]}") == "DATE"
    return 86_400.0 if is_date and sql_type.removesuffix("[]").startswith("TIMESTAMP") else 1.0


def _moment(value: float, sql_type: str) -> str | None:
    try:
        if sql_type == "DATE":
            return (_EPOCH + dt.timedelta(days=round(value))).date().isoformat()
        if sql_type == "TIME":
            return (_EPOCH + dt.timedelta(seconds=min(max(value, 0.0), 86399.999999))).time().isoformat()
        moment = _EPOCH + dt.timedelta(seconds=value)
        return moment.isoformat(sep=" ") + ("+00" if sql_type.endswith("ZONE") else "")
    except OverflowError:
        return None
