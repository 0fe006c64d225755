"""The SQL of a query's reading: the bounded rows of a source, and what is added up over them by group.

Privacy: what these statements return is exact and secret; they are executed by `dpsql.measure.query` alone. What is proved of the
vectors that a row adds is in `dpsql.estimates.measures`; that a unit has no more rows than the plan says, in
`dpsql.domains.bounding`.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from dpsql.domains import sqltypes
from dpsql.domains.attributes import OTHER_LABEL
from dpsql.domains.bounding import light_first_sql
from dpsql.domains.encoding import ROW_COLUMN, SOURCE_NAME, UNIT_COLUMN
from dpsql.errors import DpsqlError
from dpsql.estimates.leaves import Units
from dpsql.estimates.magnitudes import Learning
from dpsql.estimates.measures import Measure, Variable
from dpsql.estimates.picks import Picking, of_one_measure
from dpsql.measure.leaves import Regions
from dpsql.measure.steps import LARGEST_SUM, Steps, steps_of
from dpsql.protected.source import ProtectedSource
from dpsql.release.queried import Counting, QueryPlan
from dpsql.source.functions import caught
from dpsql.text.relation import identifier, literal

_COARSE_BITS = 14
_EPOCH = {"DATE": "system.main.date_diff('day', DATE '1970-01-01', {})", "TIME": "system.main.epoch({})"}


def number_sql(value: str, sql_type: str) -> str:
    """Return the number of a value, in DOUBLE, by which it is bounded: of a date its day, of a time its seconds since 1970.

    NULL stays NULL, NaN becomes NULL. Infinities, of dates too, are infinite: beyond every bound, so the nearer one.

    Examples
    --------
    >>> number_sql("a0", "BIGINT"), number_sql("a0", "BOOLEAN")
    ('CAST(a0 AS DOUBLE)', 'CAST(CAST(a0 AS TINYINT) AS DOUBLE)')
    """
    found = sqltypes.parse(sql_type)
    if found.family == "boolean":
        return f"CAST(CAST({value} AS TINYINT) AS DOUBLE)"
    if found.family == "temporal":
        inner = _EPOCH.get(sql_type, "system.main.epoch({})").format(value)
        if sql_type == "TIME":
            return f"CAST({caught(inner)} AS DOUBLE)"
        finite = f"CASE WHEN system.main.isfinite({value}) THEN {value} END"
        ends = " ".join(
            f"WHEN {value} = CAST('{end}' AS {sql_type}) THEN CAST('{end}' AS DOUBLE)" for end in ("-infinity", "infinity")
        )
        return f"CASE {ends} ELSE CAST({caught(inner.replace(value, finite))} AS DOUBLE) END"
    number = f"CAST({value} AS DOUBLE)"
    return f"CASE WHEN system.main.isnan({number}) THEN NULL ELSE {number} END" if found.family == "float" else number


def above_bounds(protected: ProtectedSource, plan: QueryPlan) -> str | None:
    """Return the statement that has a row if any unit may have more rows than the plan lets it have; None where it can't be asked.

    Privacy: secret. Where it has no row, no row of any unit has to be left out, and the statements of the same snapshot may read
    the rows as they are: their counters are those that bounded rows have. What makes a row of it out of a row of the source must
    be the same in both readings, so it is asked of sources that are row by row alone (nothing among rows of a unit that are tied),
    over tables of DuckDB's own, of which a transaction sees one state. It counts more rows than are kept, not fewer: those
    that are in no public group, or in no counter, too.
    """
    source = protected.source
    if not plan.unit or source.local or source.row is not None or plan.other or source.table.is_file:
        return None
    unit, rows = identifier(UNIT_COLUMN), identifier(SOURCE_NAME)
    if plan.max_groups is None:
        found = f"SELECT {unit} FROM {rows} GROUP BY {unit} HAVING count(*) > {plan.max_rows}"  # noqa: S608 -- generated
    else:
        types = {column.name: column.sql_type for column in source.columns}
        keys = [_one_form(identifier(SOURCE_NAME, f"k{i}"), types[f"k{i}"]) for i in range(len(plan.keys))]
        by = ", ".join([unit, *keys])
        most = "" if plan.max_rows_per_group is None else f" OR max(n) > {plan.max_rows_per_group}"
        each = f"SELECT {unit}, count(*) AS n FROM {rows} GROUP BY {by}"  # noqa: S608 -- generated
        found = f"SELECT {unit} FROM ({each}) GROUP BY {unit} HAVING count(*) > {plan.max_groups}{most}"  # noqa: S608
    databases = ", ".join(sorted({literal(table.database) for table in (source.table, *source.public_tables)}))
    elsewhere = f"SELECT 1 FROM system.main.duckdb_databases() WHERE database_name IN ({databases}) AND type <> 'duckdb'"  # noqa: S608
    return f"WITH {rows} AS (\n{source.sql}\n) (SELECT 1 FROM ({found}) LIMIT 1) UNION ALL ({elsewhere})"  # noqa: S608


class Statement:
    """The SQL of one reading: the bounded rows of a source, over which counters are added up.

    ``within``: whether no unit has more rows than the plan allows, so that all of them are read; see `above_bounds`.
    """

    def __init__(
        self, protected: ProtectedSource, plan: QueryPlan, groups: str | None, salt: str, *, within: bool = False
    ) -> None:
        self.protected, self.plan, self.groups, self.within = protected, plan, groups, within
        self.types = {column.name: column.sql_type for column in protected.source.columns}
        self.salt = salt
        self.keys = ["ord"] if groups is not None else [f"k{i}" for i in range(len(plan.keys))]
        self.steps = self._steps()
        self.columns = self._columns()
        self.rows = self._bounded(salt)

    def _steps(self) -> dict[int, Steps]:
        """Return the bounds of arguments that are added up exactly, by the places of their measures."""
        found = {}
        for place, measure in enumerate(self.plan.measures):
            if measure.variables:
                steps = steps_of(measure, self.types[f"a{measure.variables[0].position}"])
                if steps is not None:
                    found[place] = steps
        return found

    def _columns(self) -> dict[str, str]:
        """Return what is needed of a row: a name, and its SQL over the source."""
        found: dict[str, str] = {}
        for place, measure in enumerate(self.plan.measures):
            for variable in measure.variables:
                name = f"a{variable.position}"
                if measure.kind in ("moments", "scaled", "tree") and place not in self.steps:
                    found[f"x{variable.position}"] = number_sql(identifier(SOURCE_NAME, name), self.types[name])
                else:
                    found[name] = identifier(SOURCE_NAME, name)
                if measure.nans:
                    found[f"n{variable.position}"] = f"system.main.isnan({identifier(SOURCE_NAME, name)})"
            if measure.filter is not None:
                found[f"f{measure.filter}"] = identifier(SOURCE_NAME, f"f{measure.filter}")
        for counting in self.plan.counting:
            if counting.filter is not None:
                found[f"f{counting.filter}"] = identifier(SOURCE_NAME, f"f{counting.filter}")
            for place in counting.arguments:
                if f"x{place}" not in found:
                    found[f"a{place}"] = identifier(SOURCE_NAME, f"a{place}")
        for one in self.plan.learning:  # what leaves are cut for is a measure's own
            name = f"a{one.position}"
            found[f"x{one.position}"] = number_sql(identifier(SOURCE_NAME, name), self.types[name])
            if one.filter is not None:
                found[f"f{one.filter}"] = identifier(SOURCE_NAME, f"f{one.filter}")
        return found

    def _bounded(self, salt: str) -> str:
        """Return the rows that are counted, of every unit as many as the plan allows."""
        plan, unit = self.plan, [UNIT_COLUMN] if self.plan.unit else []
        listed = [f"{sql} AS {identifier(name)}" for name, sql in self.columns.items()]
        listed += [identifier(SOURCE_NAME, name) for name in unit]
        numbered = self.protected.source.row is not None
        listed += [identifier(SOURCE_NAME, ROW_COLUMN)] if numbered else []
        joined = ""
        if self.groups is not None:
            listed.append("groups.ord")
            pairs = [f"{self._key(i)} IS NOT DISTINCT FROM groups.k{i}" for i in range(len(plan.keys))]
            joined = f" JOIN {self.groups} AS groups ON {' AND '.join(pairs)}" if pairs else f", {self.groups} AS groups"
        else:
            listed += [f"{_one_form(identifier(SOURCE_NAME, key), self.types[key])} AS {identifier(key)}" for key in self.keys]
        found = f"SELECT {', '.join(listed) or '1 AS one'} FROM {identifier(SOURCE_NAME)}{joined}"  # noqa: S608
        names = [*self.columns, *unit, *self.keys]
        if numbered:
            each = ", ".join(f"min({identifier(name)}) AS {identifier(name)}" for name in names) or "1 AS one"
            found = f"SELECT {each} FROM ({found}) GROUP BY {identifier(ROW_COLUMN)}"  # noqa: S608
        if not plan.unit:
            return found
        if plan.counting:
            found = f"SELECT * FROM ({found}) WHERE {' OR '.join(self._counts(one) for one in plan.counting)}"  # noqa: S608
        if plan.different:
            by = ", ".join(identifier(name) for name in names)
            found = f"SELECT {by} FROM ({found}) GROUP BY {by}"  # noqa: S608
        if self.within:
            return found
        if plan.max_groups is None:
            return light_first_sql(found, unit, names, plan.max_rows, salt)
        return light_first_sql(found, unit, names, plan.max_rows_per_group, salt, groups=self.keys, max_groups=plan.max_groups)

    def _counts(self, one: Counting) -> str:
        """Return whether a row counts somewhere: a function of the row, so that a unit's rows are chosen by themselves."""
        names = [name for place in one.arguments for name in (f"x{place}", f"a{place}") if name in self.columns]
        conditions = [] if one.filter is None else [identifier(f"f{one.filter}")]
        return f"({' AND '.join([*conditions, *(f'{identifier(name)} IS NOT NULL' for name in names)]) or 'true'})"

    def _key(self, place: int) -> str:
        """Return a key of a row as it stands in the list of groups: a value that is in none of them is `OTHER_LABEL`."""
        key = identifier(SOURCE_NAME, f"k{place}")
        if place not in self.plan.other:
            return key
        listed = f"SELECT listed.k{place} FROM {self.groups} AS listed WHERE listed.k{place} IS NOT NULL"  # noqa: S608 -- made here
        return f"CASE WHEN {key} IS NULL OR {key} IN ({listed}) THEN {key} ELSE {literal(OTHER_LABEL)} END"

    def reading(self) -> str:
        """Return the beginning of every statement: the rows that are counted, as ``__dp_rows``."""
        return f"WITH {identifier(SOURCE_NAME)} AS (\n{self.protected.source.sql}\n), __dp_rows AS ({self.rows})"

    def sums(self) -> tuple[str, list[list[str]]]:
        """Return the statement of all counters but those of trees and lists of values; the columns of each measure."""
        listed: list[str] = []
        names: list[list[str]] = []
        for place, measure in enumerate(self.plan.measures):
            found = [] if measure.kind in ("tree", "values") else self._sums_of(place, measure)
            names.append([f"m{place}_{i}" for i in range(len(found))])
            listed += [f"{sql} AS {name}" for sql, name in zip(found, names[-1], strict=True)]
        keys = [identifier(key) for key in self.keys]
        by = f" GROUP BY {', '.join(keys)}" if keys else ""
        shown = ["ord"] if self.groups is not None else [f"CAST({key} AS VARCHAR) AS {key}" for key in keys]
        return f"{self.reading()} SELECT {', '.join([*shown, *(listed or ['1 AS one'])])} FROM __dp_rows{by}", names  # noqa: S608

    def _sums_of(self, place: int, measure: Measure) -> list[str]:
        condition = None if measure.filter is None else identifier(f"f{measure.filter}")
        if measure.kind == "count":
            return [_sum("count(*)", condition)]
        if measure.kind == "units":
            return [_sum(units_sql(self.plan, nulls=measure.nulls), condition)]
        if measure.kind == "distinct":
            return [_sum(f"count(DISTINCT {identifier(f'a{measure.variables[0].position}')})", condition)]
        # DuckDB's least and greatest leave NULL out: what is computed of a row with NULL is no vector of the measure
        steps = self.steps.get(place)
        known = [f"{'x' if steps is None else 'a'}{variable.position} IS NOT NULL" for variable in measure.variables]
        there = " AND ".join([*([] if condition is None else [condition]), *known])
        if steps is not None:
            parts = [steps.total(identifier(f"a{measure.variables[0].position}"), there)]
        elif measure.kind == "scaled":
            parts = [_sum(f"sum({_scaled(measure)})", there)]
        else:
            parts = [_sum(f"sum({sql})", there) for sql in _cumulated(measure)]
        if measure.kind == "scaled":
            return parts
        parts.append(_sum("count(*)", there))
        if measure.nans:
            of = measure.variables[0].position  # a row is in one counter, whatever else is made of it
            nan = f"n{of} AND x{of} IS NULL"
            parts.append(_sum("count(*)", nan if condition is None else f"{condition} AND {nan}"))
        if measure.nulls:
            parts.append(_sum("count(*)", condition))
        return parts

    def cells(self, measure: Measure) -> str:
        """Return the statement that counts equal leaves of a tree, or places in a list of values, by group."""
        variable = measure.variables[0]
        name = f"a{variable.position}"
        place = _leaf(measure) if measure.kind == "tree" else _place(
            identifier(name), measure.values, self.types[name], other=measure.other
        )
        there = f"x{variable.position}" if measure.kind == "tree" else place
        conditions = [f"{there} IS NOT NULL"] + ([] if measure.filter is None else [identifier(f"f{measure.filter}")])
        keys = [identifier(key) for key in self.keys]
        shown = ["ord"] if self.groups is not None else [f"CAST({key} AS VARCHAR) AS {key}" for key in keys]
        return (
            f"{self.reading()} SELECT {', '.join([*shown, f'{place} AS cell', 'count(*) AS n'])} FROM __dp_rows "  # noqa: S608
            f"WHERE {' AND '.join(conditions)} GROUP BY ALL"
        )

    def magnitudes(self, one: Learning) -> str:
        """Return the statement that counts the rows of all groups together by the magnitude of an argument."""
        x = identifier(f"x{one.position}")
        conditions = [f"system.main.isfinite({x})"] + ([] if one.filter is None else [identifier(f"f{one.filter}")])
        return (
            f"{self.reading()} SELECT {_cell(x, one.edges, 0, one.cells)} AS cell, count(*) AS n FROM __dp_rows "  # noqa: S608
            f"WHERE {' AND '.join(conditions)} GROUP BY ALL"
        )

    def ranks(self, ones: Sequence[Picking], *, every: bool = False, listed: str | None = None) -> str:
        """Return the statement that gives the rows of each unit and up to it, of each group with rows, for one measure's quantiles.

        ``near0``, ``near1``, ... say of which quantiles a unit is near enough: its penalty may be as small as their `reach`. Units
        that are near none are left out, unless ``every`` is to be known. See `dpsql.mechanisms.ranked.Ranked`. Most rows are far
        from the ranks: they are counted in coarse cells, and only where those are near by unit.

        ``listed``: private groups that were released, with the texts of their keys; rows of others are left out.
        """
        units = ones[0].units
        if units is None:
            raise DpsqlError("what units are is known once the bounds are learned")
        rows = self._in_units(self.plan.measures[ones[0].place], units)
        if listed is not None:
            pairs = [(f"CAST(held.{key} AS VARCHAR)", f"listed.{key}") for key in self.keys]
            same = " AND ".join(f"{own} IS NOT DISTINCT FROM {other}" for own, other in pairs)
            rows = f"SELECT listed.ord, held.unit FROM ({rows}) AS held JOIN {listed} AS listed ON {same}"  # noqa: S608 -- generated
        cells = f"SELECT *, unit >> {_coarse(units)} AS big FROM ({rows})"  # noqa: S608 -- generated
        near = ["true" if every else _near(one) for one in ones]
        some = " OR ".join(near)
        shown = [f"CAST({name} AS BIGINT) AS {name}" for name in ("ord", "cell", "n", "upto", "total")]
        cast = ", ".join([*shown, *(f"{condition} AS near{i}" for i, condition in enumerate(near))])

        def by_unit(rows: str) -> str:
            return f"SELECT ord, big, unit AS cell, count(*) AS n FROM {rows} GROUP BY ALL"  # noqa: S608 -- generated

        if every:
            together = "sum(n) OVER (PARTITION BY ord ORDER BY cell ASC) AS upto, sum(n) OVER (PARTITION BY ord) AS total"
            found = f"SELECT *, {together} FROM ({by_unit('__dp_units')})"  # noqa: S608 -- generated
            return f"{self.reading()}, __dp_units AS ({cells}) SELECT {cast} FROM ({found})"  # noqa: S608 -- generated
        coarse = "SELECT ord, big, count(*) AS n FROM __dp_units GROUP BY ALL"
        summed = (
            "SELECT ord, big, n, sum(n) OVER (PARTITION BY ord ORDER BY big ASC) AS upto, sum(n) OVER (PARTITION BY ord) AS total "  # noqa: S608
            f"FROM ({coarse})"
        )
        found = (
            "SELECT ord, cell, fine.n AS n, before + sum(fine.n) OVER (PARTITION BY ord, big ORDER BY cell ASC) AS upto, total "  # noqa: S608
            f"FROM ({by_unit('__dp_units SEMI JOIN __dp_near USING (ord, big)')}) AS fine "
            "JOIN __dp_near USING (ord, big)"
        )
        return (
            f"{self.reading()}, __dp_units AS ({cells}), "  # noqa: S608 -- generated
            f"__dp_near AS (SELECT ord, big, upto - n AS before, total FROM ({summed}) WHERE {some}) "
            f"SELECT {cast} FROM ({found}) WHERE {some}"
        )

    def _in_units(self, measure: Measure, units: Units) -> str:
        """Return the rows of a measure with the number of the unit that each is in."""
        variable = measure.variables[0]
        conditions = [f"x{variable.position} IS NOT NULL", *([] if measure.filter is None else [f"f{measure.filter}"])]
        listed = ", ".join([*map(identifier, self.keys), f"{_unit(variable, units)} AS unit"])
        return f"SELECT {listed} FROM __dp_rows WHERE {' AND '.join(conditions)}"  # noqa: S608 -- generated

    def units(self, measure: Measure, shift: int, regions: Regions = ()) -> str:
        """Return the statement that counts rows by group and cell of 2^shift units; of some larger cells alone, or of all."""
        if measure.units is None:
            raise DpsqlError("a tree of equal leaves has no units")
        inside = " OR ".join(f"unit >> {wide} IN ({', '.join(map(str, numbers))})" for wide, numbers in regions)
        keys = [identifier(key) for key in self.keys]
        shown = ["ord"] if self.groups is not None else [f"CAST({key} AS VARCHAR) AS {key}" for key in keys]
        rows = self._in_units(measure, measure.units)
        return (
            f"{self.reading()} SELECT {', '.join([*shown, f'unit >> {shift} AS cell', 'count(*) AS n'])} "  # noqa: S608
            f"FROM ({rows}){f' WHERE {inside}' if inside else ''} GROUP BY ALL"
        )


def _cell(x: str, edges: Sequence[float], first: int, stop: int) -> str:
    """Return the number of the cell, from ``first`` to ``stop`` - 1, that a number is in; by halves, so that few are compared."""
    if stop - first == 1:
        return str(first)
    middle = (first + stop) // 2
    below, above = _cell(x, edges, first, middle), _cell(x, edges, middle, stop)
    return f"CASE WHEN {x} < {_double(edges[middle])} THEN {below} ELSE {above} END"


def _one_form(value: str, sql_type: str) -> str:
    """Return a key such that equal ones are the same: 0.0 and -0.0 are one group, whose text must not be that of some row."""
    if sqltypes.parse(sql_type).family != "float":
        return value
    return f"CASE WHEN system.main.isnan({value}) THEN CAST('nan' AS {sql_type}) ELSE {value} + CAST(0 AS {sql_type}) END"


def units_sql(plan: QueryPlan, *, nulls: bool) -> str:
    """Return the aggregate that counts units; with ``nulls`` rows without a unit, which are bounded as one, count as one."""
    if not plan.unit:  # each row is one
        return "count(*)"
    unit = identifier(UNIT_COLUMN)
    return f"count(DISTINCT {{'u': {unit}}})" if nulls else f"count(DISTINCT {unit})"


def _sum(aggregate: str, condition: str | None) -> str:
    """Return an aggregate as a BIGINT, cut to `LARGEST_SUM`; 0 where there is no row."""
    found = aggregate if condition is None else f"{aggregate} FILTER (WHERE {condition})"
    return f"CAST(greatest(least(coalesce({found}, 0), {LARGEST_SUM}), -{LARGEST_SUM}) AS BIGINT)"


def _double(number: float) -> str:
    return f"CAST('{number!r}' AS DOUBLE)"


def _unit_interval(variable: Variable) -> str:
    """Return y = (clip(x) - lower) / (upper - lower), in [0, 1]; NULL where x is."""
    x = f"x{variable.position}"
    return f"least(greatest(({x} - {_double(variable.lower)}) / {_double(variable.span)}, 0), 1)"


def _cumulated(measure: Measure) -> list[str]:
    """Return the cumulated counters of a row, as integers, all but the last, which is the grid.

    Sums of numbers that are not negative do not fall, nor does rounding; so the differences are not negative, and add up to the
    grid. Of one variable of degree 1 there is one: between the bounds upper - x is from 0 to the span (subtraction does not fall
    either), and times grid / span, both rounded to 53 bits, less than half above the grid, which has 30.
    """
    if measure.degree == 1 and len(measure.variables) == 1:
        [variable] = measure.variables
        x, lower, upper = f"x{variable.position}", _double(variable.lower), _double(variable.upper)
        inside = f"round(({upper} - {x}) * {_double(measure.grid / variable.span)})"
        return [f"CAST(CASE WHEN {x} <= {lower} THEN {measure.grid} WHEN {x} >= {upper} THEN 0 ELSE {inside} END AS BIGINT)"]
    each = []
    for variable in measure.variables:
        y = _unit_interval(variable)
        one = f"(1 - {y})"
        each.append([one, y] if measure.degree == 1 else [f"{one} * {one}", f"2 * {y} * {one}", f"{y} * {y}"])
    products = [" * ".join(f"({part})" for part in chosen) for chosen in itertools.product(*each)]
    total, found = "", []
    for product in products[:-1]:
        total = f"({total} + {product})" if total else product
        found.append(f"CAST(least(round(({total}) * {measure.grid}), {measure.grid}) AS BIGINT)")
    return found


def _scaled(measure: Measure) -> str:
    variable = measure.variables[0]
    x = f"least(greatest(x{variable.position}, {_double(variable.lower)}), {_double(variable.upper)})"
    rounded = f"round({x} / {_double(variable.magnitude)} * {measure.grid})"
    return f"CAST(greatest(least({rounded}, {measure.grid}), -{measure.grid}) AS BIGINT)"


def _leaf(measure: Measure) -> str:
    variable, last = measure.variables[0], measure.lengths[-1] - 1
    x = f"least(greatest(x{variable.position}, {_double(variable.lower)}), {_double(variable.upper)})"
    return f"CAST(least(floor(({x} - {_double(variable.lower)}) / {_double(measure.width)}), {last}) AS INTEGER)"


def _near(one: Picking) -> str:
    """Return whether a cell, of n rows, upto with those before, may have a penalty of at most as many rows as are read."""
    wanted, parts = f"{one.share.numerator} * total", one.share.denominator
    far = parts * one.reach
    return f"({parts} * upto >= {wanted} - {far} AND {parts} * (upto - n) <= {wanted} + {far})"


def _coarse(units: Units) -> int:
    """Return the power of two that is the number of units of a coarse cell: there are some thousands of cells."""
    return max(0, (units.count - 1).bit_length() - _COARSE_BITS)


def _unit(variable: Variable, units: Units) -> str:
    """Return the number of the unit that a row is in, from 0."""
    x = f"least(greatest(x{variable.position}, {_double(variable.lower)}), {_double(variable.upper)})"
    number = f"{'round' if units.single else 'floor'}(({x} - {_double(units.lower)}) / {_double(units.width)})"
    return f"CAST(least(greatest({number}, 0), {units.count - 1}) AS BIGINT)"


def _place(value: str, values: Sequence[str], sql_type: str, *, other: bool) -> str:
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


def no_groups(plan: QueryPlan) -> str:
    """Return a SELECT of no group, with the columns of a list of groups that were released."""
    keys = ", ".join(f"CAST(NULL AS VARCHAR) AS k{i}" for i in range(len(plan.keys)))
    return f"SELECT CAST(0 AS BIGINT) AS ord, {keys} LIMIT 0"


def statements(protected: ProtectedSource, plan: QueryPlan, groups: str | None, salt: str) -> list[str]:
    """Return all statements that read the rows, to be bound before anything is charged."""
    made = Statement(protected, plan, groups, salt)
    above = above_bounds(protected, plan)
    first = [made.magnitudes(one) for one in plan.learning]
    cut = [plan.measures[one.place] for one in plan.cutting]
    units = [made.units(measure, 0, regions) for measure in cut for regions in ([], [(6, [0])])]
    listed = None if plan.public else f"({no_groups(plan)})"
    picks = [one.over(plan.measures[one.place].variables[0]) for one in plan.picking]
    ranks = [
        made.ranks(ones, every=every, listed=listed) for ones in of_one_measure(picks) for every in (False, True)
    ]
    cells = [made.cells(measure) for measure in plan.measures if measure.kind in ("tree", "values") and measure.units is None]
    return [*([] if above is None else [above]), *first, *units, *ranks, made.sums()[0], *cells]
