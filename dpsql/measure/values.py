"""The SQL of what is computed of one value: its number, its place in a list, the leaf or the unit that it is in, its counters.

Privacy: text alone. What is proved of the vectors that a row adds is in `dpsql.estimates.measures`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from dpsql.domains import sqltypes
from dpsql.estimates.leaves import Units
from dpsql.estimates.measures import Measure, Variable
from dpsql.source.functions import caught
from dpsql.text.relation import literal

_EPOCH = {"DATE": "system.main.date_diff('day', DATE '1970-01-01', {})", "TIME": "system.main.epoch({})"}


def number_sql(value: str, sql_type: str) -> str:
    """Return the number of a value, in DOUBLE, by which it is bounded: of a date its day, of a time its seconds since 1970.

    NULL stays NULL, NaN becomes NULL. Infinities, of dates too, are infinite: beyond every bound, so the nearer one.

    Examples
    --------
    >>> number_sql("a0", "BIGINT"), number_sql("a0", "BOOLEAN")
    ('CAST(a0 AS DOUBLE)', 'CAST(CAST(a0 AS TINYINT) AS DOUBLE)')
    """
    kind = sqltypes.parse(sql_type)
    if kind.family == "boolean":
        return f"CAST(CAST({value} AS TINYINT) AS DOUBLE)"
    if kind.family == "temporal":
        inner = _EPOCH.get(sql_type, "system.main.epoch({})").format(value)
        if sql_type == "TIME":
            return f"CAST({caught(inner)} AS DOUBLE)"
        finite = f"CASE WHEN system.main.isfinite({value}) THEN {value} END"
        ends = " ".join(
            f"WHEN {value} = CAST('{end}' AS {sql_type}) THEN CAST('{end}' AS DOUBLE)" for end in ("-infinity", "infinity")
        )
        return f"CASE {ends} ELSE CAST({caught(inner.replace(value, finite))} AS DOUBLE) END"
    number = f"CAST({value} AS DOUBLE)"
    return f"CASE WHEN system.main.isnan({number}) THEN NULL ELSE {number} END" if kind.family == "float" else number


def cell(x: str, edges: Sequence[float], first: int, stop: int) -> str:
    """Return the number of the cell, from ``first`` to ``stop`` - 1, that a number is in; by halves, so that few are compared."""
    if stop - first == 1:
        return str(first)
    middle = (first + stop) // 2
    below, above = cell(x, edges, first, middle), cell(x, edges, middle, stop)
    return f"CASE WHEN {x} < {double(edges[middle])} THEN {below} ELSE {above} END"


def cell_counts(x: str, edges: Sequence[float], condition: str) -> str:
    """Return the aggregate of the numbers of rows in each `cell`, as a list, the last cell first; without the first if it is empty.

    DuckDB's histogram has upper bounds that are inside. Of -x it counts where ``-x <= -edge``, which is ``x >= edge``, exactly.
    """
    inner = ", ".join(double(-edge) for edge in reversed(edges[1:-1]))
    if not inner:
        return f"[count(*) FILTER (WHERE {condition})]"
    return f"system.main.map_values(system.main.histogram(-{x}, [{inner}]) FILTER (WHERE {condition}))"


def one_form(value: str, sql_type: str) -> str:
    """Return a key such that equal ones are the same: 0.0 and -0.0 are one group, whose text must not be that of some row."""
    if sqltypes.parse(sql_type).family != "float":
        return value
    return f"CASE WHEN system.main.isnan({value}) THEN CAST('nan' AS {sql_type}) ELSE {value} + CAST(0 AS {sql_type}) END"


def double(number: float) -> str:
    """Return a number as a constant of type DOUBLE, exactly."""
    return f"CAST('{number!r}' AS DOUBLE)"


def _unit_interval(variable: Variable) -> str:
    """Return y = (clip(x) - lower) / (upper - lower), in [0, 1]; NULL where x is."""
    x = f"x{variable.position}"
    return f"least(greatest(({x} - {double(variable.lower)}) / {double(variable.span)}, 0), 1)"


def is_null_of_null(measure: Measure) -> bool:
    """Return whether `cumulated` is NULL, which no sum adds, of a row without a value."""
    return measure.degree == 1 and len(measure.variables) == 1


def cumulated(measure: Measure) -> list[str]:
    """Return the cumulated counters of a row, as integers, all but the last, which is the grid.

    Sums of numbers that are not negative do not fall, nor does rounding; so the differences are not negative, and add up to the
    grid. Of one variable of degree 1 there is one: between the bounds upper - x is from 0 to the span (subtraction does not fall
    either), and times grid / span, both rounded to 53 bits, less than half above the grid, which has 30.
    """
    if is_null_of_null(measure):
        [variable] = measure.variables
        x, lower, upper = f"x{variable.position}", double(variable.lower), double(variable.upper)
        inside = f"round(({upper} - {x}) * {double(measure.grid / variable.span)})"
        return [f"CAST(CASE WHEN {x} <= {lower} THEN {measure.grid} WHEN {x} >= {upper} THEN 0 ELSE {inside} END AS BIGINT)"]
    each = []
    for variable in measure.variables:
        y = _unit_interval(variable)
        one = f"(1 - {y})"
        each.append([one, y] if measure.degree == 1 else [f"{one} * {one}", f"2 * {y} * {one}", f"{y} * {y}"])
    products = [" * ".join(f"({part})" for part in chosen) for chosen in itertools.product(*each)]
    total, counters = "", []
    for product in products[:-1]:
        total = f"({total} + {product})" if total else product
        counters.append(f"CAST(least(round(({total}) * {measure.grid}), {measure.grid}) AS BIGINT)")
    return counters


def scaled(measure: Measure) -> str:
    """Return the counter of a row of a 'scaled' sum, from -grid to grid."""
    variable = measure.variables[0]
    x = f"least(greatest(x{variable.position}, {double(variable.lower)}), {double(variable.upper)})"
    rounded = f"round({x} / {double(variable.magnitude)} * {measure.grid})"
    return f"CAST(greatest(least({rounded}, {measure.grid}), -{measure.grid}) AS BIGINT)"


def leaf(measure: Measure) -> str:
    """Return the number of the leaf of equal ones that a row is in, from 0."""
    variable, last = measure.variables[0], measure.lengths[-1] - 1

    def numbered(x: str) -> str:
        return f"CAST(least(floor(({x} - {double(variable.lower)}) / {double(measure.width)}), {last}) AS INTEGER)"

    return _between(variable, numbered)


def unit_number(variable: Variable, units: Units) -> str:
    """Return the number of the unit that a row is in, from 0."""

    def numbered(x: str) -> str:
        number = f"{'round' if units.single else 'floor'}(({x} - {double(units.lower)}) / {double(units.width)})"
        return f"CAST(least(greatest({number}, 0), {units.count - 1}) AS BIGINT)"

    return _between(variable, numbered)


def _between(variable: Variable, number: Callable[[str], str]) -> str:
    """Return a function of a value moved to its bounds: at the bounds it is a constant, which takes less than to move the value."""
    x, lower, upper = f"x{variable.position}", double(variable.lower), double(variable.upper)
    return f"CASE WHEN {x} <= {lower} THEN {number(lower)} WHEN {x} >= {upper} THEN {number(upper)} ELSE {number(x)} END"


def place_in(value: str, values: Sequence[str], sql_type: str, *, other: bool) -> str:
    """Return the place of a value in a list; NULL if it is not in it, the last one where that stands for ``other`` values."""
    if len(values) > 1 and sqltypes.parse(sql_type).family == "integer" and values == _whole(values[0], len(values)):
        first, last = values[0], values[-1]  # no comparison with each of them
        return f"CASE WHEN {value} BETWEEN {first} AND {last} THEN CAST(CAST({value} AS HUGEINT) - ({first}) AS INTEGER) END"
    cases = " ".join(f"WHEN {literal(text)} THEN {place}" for place, text in enumerate(values))
    rest = f" ELSE CASE WHEN {value} IS NOT NULL THEN {len(values) - 1} END" if other else ""
    return f"CASE CAST({value} AS VARCHAR) {cases}{rest} END"


def _whole(first: str, count: int) -> tuple[str, ...]:
    """Return consecutive whole numbers as texts; nothing if the first is none."""
    digits = first.removeprefix("-")
    return tuple(str(int(first) + i) for i in range(count)) if digits.isdecimal() and len(digits) < 18 else ()
