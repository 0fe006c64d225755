"""Numbers as the texts that DuckDB casts to a type: whole ones, decimals, dates, truth values."""

from __future__ import annotations

import datetime as dt
import math

from dpsql.domains import sqltypes
from dpsql.protected.source import ProtectedSource
from dpsql.queries.asked import Wanted

_EPOCH = dt.datetime(1970, 1, 1)  # without a zone, as TIMESTAMP is


def cell_text(value: float, sql_type: str) -> str | None:
    """Return a number as the text of a value of a type; None for NaN, which stands for NULL.

    Dates are days, timestamps seconds since 1970. What is beyond the type's range is its nearest end.

    Examples
    --------
    >>> cell_text(12.6, "BIGINT"), cell_text(2.5, "DECIMAL(4,2)"), cell_text(1.0, "DATE"), cell_text(float("nan"), "DOUBLE")
    ('13', '2.50', '1970-01-02', None)
    >>> cell_text(-3.0, "DECIMAL(3,3)")
    '-0.999'
    """
    if math.isnan(value):
        return None
    parsed = sqltypes.parse(sql_type)
    if parsed.family in ("integer", "decimal"):
        near = (parsed.high if value > 0 else parsed.low) if math.isinf(value) else round(value * 10**parsed.scale)
        return _decimal(min(max(near, parsed.low), parsed.high), parsed.scale)
    if parsed.family == "boolean":
        return "true" if value >= 0.5 else "false"
    if parsed.family == "temporal":
        return _moment(value, sql_type)
    return repr(float(value))


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
