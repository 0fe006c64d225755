"""One attribute's codes as values: arrays for a block of codes, and the SQL that turns them into the column's type.

Privacy: post-processing throughout.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from sqlglot import exp

from dpsql.domains import sqltypes
from dpsql.domains.attributes import OTHER_LABEL, Attribute
from dpsql.domains.grid import Histogram
from dpsql.domains.sqltypes import SqlType
from dpsql.domains.within import Placed, Within
from dpsql.numerics.arrays import IntArray

if TYPE_CHECKING:
    import pandas as pd

_EXACT = 2**62  # bounds below this leave room for int64 arithmetic
# Parquet has no such types; the rows are written as text and cast when they are read.
_AS_TEXT = ("HUGEINT", "UHUGEINT")
Columns = dict[str, "npt.NDArray[np.generic] | pd.Categorical"]


def _kind(labels: Sequence[str]) -> pd.CategoricalDtype:
    """Return the type of an array of these texts."""
    import pandas as pd  # loaded when needed: pandas takes .3 s

    return pd.CategoricalDtype(pd.Index(labels, dtype=object))


def _labelled(codes: npt.NDArray[np.integer], kind: pd.CategoricalDtype) -> pd.Categorical:
    """Return an array of texts; -1 is NULL."""
    import pandas as pd

    return pd.Categorical.from_codes(codes, dtype=kind)


class Decoder:
    """Values of one attribute: arrays for a block of codes, and the SQL that gives them the column's type.

    Parameters
    ----------
    attribute : Attribute
        The attribute.
    name : str
        Prefix of the arrays' column names.
    histogram : Histogram, optional
        Says where in a bin values lie; without one they are uniform.

    Notes
    -----
    Privacy: none needed, post-processing. Encoding a value again gives the same code.
    """

    def __init__(self, attribute: Attribute, name: str, histogram: Histogram | None = None) -> None:
        self.within: Within | Placed | None = None
        if histogram is not None and Within.fits(attribute):
            self.within = Within(attribute, histogram)
        self.attribute = attribute
        self.name = name
        self.parsed = sqltypes.parse(attribute.sql_type)
        values = attribute.values
        self._table = _small_values(attribute, self.parsed)
        if attribute.kind == "categorical":
            labels = [*attribute.categories]
            if attribute.outside == "other" and self.parsed.family == "text":
                labels.append(OTHER_LABEL)
            self._labels = _kind(labels)
            return
        bounds = sqltypes.grid(self.parsed, attribute.edges)
        # Floats have no grid to count along: bins are intervals.
        if bounds is None:
            edges = np.asarray([float(edge) for edge in attribute.edges])
            self._low, self._high = edges[:-1], np.append(np.nextafter(edges[1:-1], -np.inf), edges[-1])
            if self.parsed.text == "FLOAT":
                self._low, self._high = sqltypes.float32_bounds(edges.tolist())
            return
        # Where doubles are exact, values are integers; beyond, the text of a bin's start and an offset.
        self._exact = bounds[0] > -_EXACT and bounds[-1] < _EXACT
        widths = [b - a for a, b in zip(bounds[:-1], bounds[1:], strict=True)]
        if self._exact:
            self._starts = np.asarray(bounds[:-1], dtype=np.int64)
            self._widths = np.asarray(widths, dtype=np.int64)
        else:
            self._labels = _kind([str(bound) for bound in bounds[:values]])
            self._spans = np.asarray(widths, dtype=np.float64)
            # The largest double that is no larger than width - 1.
            tops = [(float(w - 1), w - 1) for w in widths]
            self._tops = np.asarray([t if int(t) <= exact else math.nextafter(t, 0.0) for t, exact in tops])

    def arrays(self, codes: npt.NDArray[np.integer], rng: np.random.Generator) -> Columns:
        """Return what the SQL reads: arrays of the length of ``codes``."""
        attribute, values = self.attribute, self.attribute.values
        if self._table is not None:
            return self._looked_up(codes)
        codes = codes.astype(np.int32, copy=False)
        if attribute.kind == "categorical":
            known = len(self._labels.categories)
            return {self.name: _labelled(np.where(codes < known, codes, -1), self._labels)}
        columns: Columns = {}
        inside = codes
        if attribute.size > values:
            columns[f"{self.name}_null"] = codes >= values
            inside = np.minimum(codes, values - 1)
        if self.parsed.family == "float":
            columns[self.name] = self._floats(inside, rng)
        elif self._exact:
            columns[self.name] = self._integers(inside, rng)
        else:
            offset = np.minimum(np.floor(rng.random(len(inside)) * self._spans[inside]), self._tops[inside])
            columns[self.name] = _labelled(inside, self._labels)
            # Two halves: the width of a bin may exceed what the integer type can hold.
            columns[f"{self.name}_half"] = half = np.floor(offset / 2)
            columns[f"{self.name}_rest"] = offset - half
        return columns

    def _looked_up(self, codes: npt.NDArray[np.integer]) -> Columns:
        """Return values that follow from the code alone, in a type as small as they are."""
        table = self._table
        columns: Columns = {}
        if table is None:
            raise ValueError(f"{self.attribute.name}: its values do not follow from the codes")
        if self.attribute.size > table.size:
            columns[f"{self.name}_null"] = codes >= table.size
        same = codes.dtype == np.uint8 and not columns and table.size <= 1 << 8 and np.array_equal(table, np.arange(table.size))
        # The codes are the values already: nothing is copied.
        columns[self.name] = codes.view(table.dtype) if same and table.itemsize == 1 else table.take(codes, mode="clip")
        return columns

    @property
    def width(self) -> int:
        """Return roughly the bytes of a value among the arrays."""
        return (self._table.itemsize if self._table is not None else 8) + (self.attribute.size > self.attribute.values)

    def _floats(self, codes: npt.NDArray[np.integer], rng: np.random.Generator) -> npt.NDArray[np.floating]:
        low, high = self._low[codes], self._high[codes]
        if self.within is not None:
            drawn: npt.NDArray[np.floating] = np.clip(self.within.draw(codes, rng).astype(low.dtype), low, high)
            return drawn
        share = rng.random(len(codes))
        mixed = low.astype(np.float64) * (1 - share) + high.astype(np.float64) * share
        placed: npt.NDArray[np.floating] = np.clip(mixed.astype(low.dtype), low, high)
        return placed

    def _integers(self, codes: npt.NDArray[np.integer], rng: np.random.Generator) -> IntArray:
        starts: IntArray = self._starts[codes]
        if self._widths.max() == 1:
            return starts
        width = self._widths[codes]
        if self.within is not None:
            inside: IntArray = np.clip(self.within.draw(codes, rng).astype(np.int64), starts, starts + width - 1)
            return inside
        offset = (rng.random(len(codes)) * width).astype(np.int64)
        starts += np.minimum(offset, width - 1)
        return starts

    def expression(self) -> exp.Expression:
        """Return the value as it is stored in Parquet, computed from the arrays."""
        column, text = exp.column(self.name, quoted=True), self.attribute.sql_type
        if self._table is not None:
            small = column if self.parsed.family == "boolean" else cast(column, text)
            if self.attribute.size == self._table.size:
                return small
            null = exp.column(f"{self.name}_null", quoted=True)
            return exp.Case(ifs=[exp.If(this=null, true=exp.null())], default=small)
        if self.attribute.kind == "categorical":
            if self.parsed.family in ("text", "enum") or text in _AS_TEXT:
                return cast(column, "VARCHAR")
            return cast(cast(column, "VARCHAR"), text)
        if self.parsed.family == "float":
            value: exp.Expression = column
        elif self.parsed.family == "temporal":
            # Nanoseconds may be as far apart as int64 reaches.
            value = _moment(text, column if self._exact else cast(self._large(column), "BIGINT"))
        elif self._exact:
            value = _from_units(self.parsed, column)
        else:
            value = _from_units(self.parsed, self._large(column))
        if text in _AS_TEXT:
            value = cast(value, "VARCHAR")
        if self.attribute.size == self.attribute.values:
            return value
        return exp.Case(ifs=[exp.If(this=exp.column(f"{self.name}_null", quoted=True), true=exp.null())], default=value)

    def _large(self, column: exp.Expression) -> exp.Expression:
        wide = "UHUGEINT" if self.parsed.text == "UHUGEINT" else "HUGEINT"
        start = cast(cast(column, "VARCHAR"), wide)
        half, rest = (cast(exp.column(f"{self.name}_{part}", quoted=True), wide) for part in ("half", "rest"))
        return exp.Paren(this=exp.Add(this=exp.Add(this=start, expression=half), expression=rest))


def cast(value: exp.Expression, text: str) -> exp.Expression:
    """Return the value in a DuckDB type."""
    return exp.Cast(this=value, to=exp.DataType.build(text, dialect="duckdb"))


def _from_units(parsed: SqlType, value: exp.Expression) -> exp.Expression:
    """Return an integer or decimal from a whole number of units."""
    if parsed.scale == 0:
        return cast(value, parsed.text)
    # Exact: the product of DECIMAL(w, 0) and 10**-scale has the digits of the first factor.
    wide = "DECIMAL(18,0)" if parsed.high < 10**18 else "DECIMAL(38,0)"
    unit = cast(exp.Literal.string(sqltypes.unit_text(parsed, 1)), f"DECIMAL({parsed.scale},{parsed.scale})")
    return cast(exp.Mul(this=cast(value, wide), expression=unit), parsed.text)


def _moment(text: str, value: exp.Expression) -> exp.Expression:
    """Return a date or time from days, seconds, milliseconds, microseconds or nanoseconds since 1970."""
    if text == "DATE":
        return exp.Add(this=cast(exp.Literal.string("1970-01-01"), "DATE"), expression=cast(value, "INTEGER"))
    if text == "TIMESTAMP_NS":
        return exp.Anonymous(this="make_timestamp_ns", expressions=[value])
    factor = {"TIMESTAMP_S": 1_000_000, "TIMESTAMP_MS": 1000}.get(text, 1)
    micros = exp.Mul(this=value, expression=exp.Literal.number(factor)) if factor > 1 else value
    stamp = exp.Anonymous(this="make_timestamp", expressions=[micros])
    if text == "TIMESTAMP WITH TIME ZONE":
        return exp.AtTimeZone(this=stamp, zone=exp.Literal.string("UTC"))
    return stamp if text == "TIMESTAMP" else cast(stamp, text)


def _small_values(attribute: Attribute, parsed: SqlType) -> npt.NDArray[np.generic] | None:
    """Return the value of every code that is neither NULL nor 'other', where it is a truth value or a whole number."""
    text = attribute.sql_type
    if attribute.kind == "categorical":
        if parsed.family == "boolean" and set(attribute.categories) <= {"false", "true"}:
            return np.asarray([value == "true" for value in attribute.categories], dtype=np.bool_)
        if parsed.family != "integer" or text in _AS_TEXT:
            return None
        # Only where the text of each category is the one that DuckDB would write for the number.
        plain = [value.removeprefix("-").isdecimal() and value.isascii() for value in attribute.categories]
        values = [int(value) for value in attribute.categories] if all(plain) else []
        if [str(value) for value in values] != [*attribute.categories]:
            return None
    else:
        bounds = sqltypes.grid(parsed, attribute.edges) if parsed.family == "integer" and text not in _AS_TEXT else None
        if bounds is None or any(after - before != 1 for before, after in zip(bounds[:-1], bounds[1:], strict=True)):
            return None
        values = [*bounds[:-1]]
    if not values or min(values) < -_EXACT or max(values) > _EXACT:
        return None
    return np.asarray(values, dtype=np.result_type(np.min_scalar_type(min(values)), np.min_scalar_type(max(values))))
