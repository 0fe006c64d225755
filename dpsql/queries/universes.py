"""Finite sets of values that a column or a part of an expression can have, and the SQL that lists them.

Privacy: none; public declarations alone. The SQL reads no table.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import duckdb

from dpsql.algebra.parts import SECONDS
from dpsql.algebra.ranges import DAY, UNKNOWN, Range
from dpsql.domains import sqltypes
from dpsql.domains.attributes import OTHER_LABEL, Attribute
from dpsql.domains.declare import self_declared
from dpsql.queries.declared import range_of_attribute, range_of_type
from dpsql.source.model import literal, quoted

MOST_VALUES = 1_000_000
"""Values, combinations of values, and groups that are listed."""
GRAINS = {grain: SECONDS[grain] for grain in ("second", "minute", "hour", "day")}
"""Distance of the moments that stand for a column of timestamps, in seconds."""


@dataclass(frozen=True)
class Universe:
    """What is known of the values of a column.

    Parameters
    ----------
    sql_type : str
        As DuckDB spells it.
    values : tuple of str, optional
        All values but NULL, as DuckDB casts them to VARCHAR; None if they are not listed.
    range : Range
        Bounds of the values, infinite where not known.
    nullable : bool
        Whether NULL is possible.
    open : bool
        Whether there are values besides the listed ones (a list that was bought, or ``outside := 'other'``).
    strays : bool
        Whether rows may have values besides the listed ones, or outside of the bounds, for which nothing stands: they were declared
        by somebody, and neither the type nor a CHECK constraint says the same.
    """

    sql_type: str
    values: tuple[str, ...] | None = None
    range: Range = UNKNOWN
    nullable: bool = True
    open: bool = False
    strays: bool = False

    @property
    def other(self) -> bool:
        """Whether `OTHER_LABEL` stands for all values that are not listed: it is a value of the type."""
        return self.open and sqltypes.parse(self.sql_type).family == "text"

    @property
    def listed(self) -> int | None:
        """How many values there are without NULL; None if they can't be listed."""
        if self.values is not None:
            return len(self.values)
        steps = _steps(self)
        return None if steps is None else steps[1] - steps[0] + 1


def universe_of_attribute(attribute: Attribute) -> Universe:
    """Return the values of a declared column.

    Examples
    --------
    >>> universe_of_attribute(Attribute("n", "UTINYINT", "numeric", edges=(0.0, 5.0, 9.0))).listed
    10
    """
    values = attribute.categories if attribute.kind == "categorical" and attribute.categories else None
    bounds = range_of_attribute(attribute)
    return Universe(attribute.sql_type, values, bounds, attribute.nullable, bool(values) and attribute.outside == "other")


def universe_of_type(sql_type: str) -> Universe:
    """Return the values of a column of which only the type is known: labels of an ENUM, true and false, or small numbers."""
    attribute = self_declared("x", sql_type, nullable=True)
    return Universe(sql_type, None if attribute is None else attribute.categories, range_of_type(sql_type), nullable=True)


def _steps(universe: Universe) -> tuple[int, int, int] | None:
    """Return the first and last step and the steps per unit of a column whose values are a bounded grid; None if they are none."""
    parsed, bounds = sqltypes.parse(universe.sql_type), universe.range
    if not bounds.finite or not (parsed.family in ("integer", "decimal") or universe.sql_type == "DATE"):
        return None
    units: int = 10**parsed.scale if parsed.family == "decimal" else 1
    # beyond 2^53 a double is no longer every whole number
    if max(abs(bounds.lower), abs(bounds.upper)) * units > 2**53:
        return None
    first, last = math.floor(bounds.lower * units + 1e-6), math.ceil(bounds.upper * units - 1e-6)
    return (first, last, units) if first <= last else (first, first, units)


def listing(universe: Universe, name: str, *, grain: str | None = None) -> tuple[str, int] | None:
    """Return a SELECT of the values under a name, and how many there are; None if there is no such list of reasonable length.

    Parameters
    ----------
    universe : Universe
    name : str
    grain : {'day', 'hour', 'minute', 'second'}, optional
        For timestamps: the beginnings of these units stand for all moments.
    """
    cast = f"AS {universe.sql_type}) AS {quoted(name)}"
    null = f" UNION ALL SELECT CAST(NULL {cast}" if universe.nullable else ""
    if universe.values is not None:
        if len(universe.values) > MOST_VALUES:
            return None
        values = (*universe.values, *([OTHER_LABEL] if universe.other else []))
        texts = ", ".join(literal(value) for value in values)
        of_texts = f"SELECT system.main.unnest(CAST([{texts}] AS VARCHAR[])) AS v"
        return f"SELECT CAST(v {cast} FROM ({of_texts}){null}", len(values) + universe.nullable  # noqa: S608 -- quoted
    steps = _moments(universe, grain) if grain else _steps(universe)
    if steps is None or steps[1] - steps[0] >= MOST_VALUES:
        return None
    first, last, units = steps
    numbers = f"SELECT system.main.unnest(system.main.range({first}, {last + 1})) AS i"
    if grain:
        value = f"system.main.make_timestamp(CAST(i * {units * 1_000_000} AS BIGINT))"
    elif universe.sql_type == "DATE":
        value = "DATE '1970-01-01' + CAST(i AS INTEGER)"
    elif units > 1:
        value = f"CAST(i AS VARCHAR) || 'e-{round(math.log10(units))}'"
    else:
        value = "i"
    return f"SELECT CAST({value} {cast} FROM ({numbers}){null}", last - first + 1 + universe.nullable  # noqa: S608 -- numbers alone


def grid_values(cursor: duckdb.DuckDBPyConnection, universe: Universe, most: int) -> tuple[str, ...] | None:
    """Return the values of a bounded grid, cast to VARCHAR; None where there is none, or more of them than ``most``."""
    listed = None if universe.range.sort == "nothing" else listing(universe, "v")
    if listed is None or not 0 < listed[1] <= most:
        return None
    query = f"SELECT CAST(v AS VARCHAR) FROM ({listed[0]}) ORDER BY v ASC NULLS LAST"  # noqa: S608 -- numbers alone
    return tuple(text for (text,) in cursor.execute(query).fetchall())


def _moments(universe: Universe, grain: str) -> tuple[int, int, int] | None:
    """Return the first and last unit since 1970 that a bounded timestamp lies in, and its seconds."""
    bounds = universe.range
    if not bounds.finite or bounds.sort not in ("date", "timestamp") or universe.sql_type != "TIMESTAMP":
        return None
    seconds = GRAINS[grain]
    factor = DAY if bounds.sort == "date" else 1.0
    return math.floor(bounds.lower * factor / seconds), math.floor(bounds.upper * factor / seconds), seconds


def step_universe(sql_type: str, lower: float, upper: float, digits: int, *, nullable: bool) -> tuple[str, int] | None:
    """Return a SELECT of all multiples of 10**-digits between two bounds, as values ``v`` of a type, and how many there are."""
    units, step = 10 ** max(digits, 0), 10 ** max(-digits, 0)
    first, last = math.floor(lower * units / step + 1e-6), math.ceil(upper * units / step - 1e-6)
    if last - first >= MOST_VALUES or last < first or max(abs(first), abs(last)) * step > 2**53:
        return None
    value = f"CAST(i AS DOUBLE) / {units}e0" if units > 1 else "i" if step == 1 else f"i * {step}"
    null = f" UNION ALL SELECT CAST(NULL AS {sql_type})" if nullable else ""
    numbers = f"SELECT system.main.unnest(system.main.range({first}, {last + 1})) AS i"
    text = f"SELECT TRY_CAST({value} AS {sql_type}) AS v FROM ({numbers}){null}"  # noqa: S608 -- numbers alone
    return text, last - first + 1 + nullable
