"""The SQL of a query's reading: the bounded rows of a source, and what is added up over them by group.

Privacy: what these statements return is exact and secret; they are executed by `dpsql.measure.query` alone. What is proved of the
vectors that a row adds is in `dpsql.estimates.measures`; that a unit has no more rows than the plan says, in
`dpsql.domains.bounding`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpsql.domains.attributes import OTHER_LABEL
from dpsql.domains.bounding import bounded_sql, light_first_sql
from dpsql.domains.encoding import ROW_COLUMN, SOURCE_NAME, UNIT_COLUMN
from dpsql.errors import DpsqlError
from dpsql.estimates.leaves import Units
from dpsql.estimates.magnitudes import Learning
from dpsql.estimates.measures import Measure
from dpsql.estimates.picks import Picking, of_one_measure
from dpsql.measure.leaves import Regions
from dpsql.measure.steps import LARGEST_SUM, Steps, steps_of
from dpsql.measure.values import (
    cell,
    cell_counts,
    cumulated,
    is_null_of_null,
    leaf,
    number_sql,
    one_form,
    place_in,
    scaled,
    unit_number,
)
from dpsql.protected.source import ProtectedSource
from dpsql.release.queried import Counting, QueryPlan
from dpsql.source.keys import exact
from dpsql.source.model import HEAVY
from dpsql.text.relation import identifier, literal

NOBODY = ""
"""In place of a relation of units: there are none."""
_COARSE_BITS = 14
_THEIRS = identifier("__dp_theirs")


class Statement:
    """The SQL of one reading: the bounded rows of a source, over which counters are added up.

    Parameters
    ----------
    groups : str or None
        A relation of the public groups; None for private ones.
    heavy : str or None
        A relation of all units with more rows than the plan allows, perhaps of others too; `NOBODY`; None where it isn't known.
        See `dpsql.measure.rows.above_bounds`.
    held : str or None
        A relation of the rows, where an equal statement's `rows` were read before.

    Notes
    -----
    Privacy. *Rows of light units* are read as they are, those of heavy ones are bounded. Both halves read the source, in one
    snapshot; a unit is listed as heavy or it is not, NULL too, so each of its rows is in one half.

    *Groups after* (`after`): where all counters are sums over rows, they are added up by the keys, and the sums by public group.
    Each row is added to the groups that its keys are not distinct from, as if they had been joined before: keys that are grouped
    together are of one stored form (`dpsql.source.keys`) and are joined alike, and where several are joined to one group their
    sums are added. Numbers of different things are no such sums. What is bounded is joined before: rows in no group do not count.
    """

    def __init__(
        self, protected: ProtectedSource, plan: QueryPlan, groups: str | None, salt: str, *, heavy: str | None = None,
        held: str | None = None,
    ) -> None:
        self.protected, self.plan, self.groups, self.salt, self.heavy, self.held = protected, plan, groups, salt, heavy, held
        self.types = {column.name: column.sql_type for column in protected.source.columns}
        self.steps = self._steps()
        self.columns = self._columns()
        self.rows = self._bounded(groups is not None)
        """The rows that are counted, with ``ord`` of public groups, else with their keys."""

    def over(self, plan: QueryPlan, groups: str | None, held: str | None) -> Statement:
        """Return the statements of a plan whose bounds and leaves are known, over the same rows."""
        return Statement(self.protected, plan, groups, self.salt, heavy=self.heavy, held=held)

    @property
    def after(self) -> bool:
        """Whether rows are joined with the public groups after they are added up."""
        plan = self.plan
        if self.groups is None or not plan.keys or self.holds or plan.other or self.protected.source.row is not None:
            return False
        counted = self._of_units or any(measure.kind == "distinct" for measure in plan.measures)
        exact_keys = all(exact(self.types[f"k{i}"]) for i in range(len(plan.keys)))
        return exact_keys and (self.heavy is not None or not plan.unit) and not counted

    @property
    def _of_units(self) -> bool:
        """Whether units are counted, so that the rows have to say whose they are."""
        return any(measure.kind == "units" or measure.once for measure in self.plan.measures)

    @property
    def holds(self) -> bool:
        """Whether rows are read once and held: where leaves are cut or ranks asked for, or many statements follow.

        Where rows have to be bounded in the order of all of them, two are many.
        """
        plan = self.plan
        if self.held is not None:
            return True
        cells = [measure for measure in plan.measures if measure.kind in ("tree", "values")]
        readings = bool(plan.learning) + len(cells) + (len(cells) < len(plan.measures))
        return bool(plan.cutting or plan.picking) or readings > (1 if plan.unit and self.heavy is None else 2)

    @property
    def keys(self) -> list[str]:
        """The columns that the groups are shown by."""
        return ["ord"] if self.groups is not None else self._own_keys

    @property
    def _own_keys(self) -> list[str]:
        return [f"k{i}" for i in range(len(self.plan.keys))]

    def _steps(self) -> dict[int, Steps]:
        """Return the bounds of arguments that are added up exactly, by the places of their measures."""
        by_measure = {}
        for place, measure in enumerate(self.plan.measures):
            if measure.variables:
                steps = steps_of(measure, self.types[f"a{measure.variables[0].position}"])
                if steps is not None:
                    by_measure[place] = steps
        return by_measure

    def _columns(self) -> dict[str, str]:
        """Return what is needed of a row: a name, and its SQL over the source."""
        columns: dict[str, str] = {}
        for place, measure in enumerate(self.plan.measures):
            for variable in measure.variables:
                name = f"a{variable.position}"
                if measure.kind in ("moments", "scaled", "tree") and place not in self.steps:
                    columns[f"x{variable.position}"] = number_sql(identifier(SOURCE_NAME, name), self.types[name])
                else:
                    columns[name] = identifier(SOURCE_NAME, name)
                if variable.learned is not None:  # between the bounds that are learned it may be added up exactly
                    columns[name] = identifier(SOURCE_NAME, name)
                if measure.nans:
                    columns[f"n{variable.position}"] = f"system.main.isnan({identifier(SOURCE_NAME, name)})"
            if measure.filter is not None:
                columns[f"f{measure.filter}"] = identifier(SOURCE_NAME, f"f{measure.filter}")
        for counting in self.plan.counting:
            if counting.filter is not None:
                columns[f"f{counting.filter}"] = identifier(SOURCE_NAME, f"f{counting.filter}")
            for place in counting.arguments:
                if f"x{place}" not in columns:
                    columns[f"a{place}"] = identifier(SOURCE_NAME, f"a{place}")
        for one in self.plan.learning:  # what leaves are cut for is a measure's own
            name = f"a{one.position}"
            columns[f"x{one.position}"] = number_sql(identifier(SOURCE_NAME, name), self.types[name])
            if one.filter is not None:
                columns[f"f{one.filter}"] = identifier(SOURCE_NAME, f"f{one.filter}")
        return columns

    def _bounded(self, places: bool) -> str:
        """Return the rows that are counted, of every unit as many as the plan allows; with places of groups, or with keys."""
        plan, source = self.plan, identifier(SOURCE_NAME)
        keys = ["ord"] if places else self._own_keys
        if not plan.unit or self.heavy == NOBODY:
            return self._counted_rows(source, keys)
        names = [*self.columns, UNIT_COLUMN, *(["ord"] if self.groups is not None else keys)]
        by_group: dict[str, Any] = {} if plan.max_groups is None else {"groups": names[-len(keys) :], "max_groups": plan.max_groups}
        most = plan.max_rows if plan.max_groups is None else plan.max_rows_per_group
        bounded = names[names.index(UNIT_COLUMN) + 1 :]
        if self.heavy is None:
            return light_first_sql(self._counted_rows(source, keys), [UNIT_COLUMN], names, most, self.salt, **by_group)
        theirs = bounded_sql(self._counted_rows(self._side("SEMI"), bounded), [UNIT_COLUMN], names, most, self.salt, **by_group)
        if keys != bounded:
            listed = [*map(identifier, [*self.columns, UNIT_COLUMN])]
            listed += [f"CAST(groups.{key} AS {self.types[key]}) AS {key}" for key in keys]
            theirs = f"SELECT {', '.join(listed)} FROM ({theirs}) AS bounded JOIN {self.groups} AS groups USING (ord)"  # noqa: S608
        return f"{self._counted_rows(self._side('ANTI'), keys)} UNION ALL ({theirs})"

    def _side(self, join: str) -> str:
        """Return the rows of the source that are of heavy units (SEMI), or of others (ANTI)."""
        source, unit = identifier(SOURCE_NAME), identifier(UNIT_COLUMN)
        if join == "SEMI" and self.protected.source.theirs is not None:
            return f"{_THEIRS} AS {source}"
        same = f"{source}.{unit} IS NOT DISTINCT FROM heavy.{unit}"
        return f"(SELECT {source}.* FROM {source} {join} JOIN {self.heavy} AS heavy ON {same}) AS {source}"  # noqa: S608

    def _counted_rows(self, source: str, keys: Sequence[str]) -> str:
        """Return all rows of the source that count, with places of public groups (``ord``) or with their keys."""
        plan, unit = self.plan, [UNIT_COLUMN] if self.plan.unit else []
        listed = [f"{sql} AS {identifier(name)}" for name, sql in self.columns.items()]
        listed += [identifier(SOURCE_NAME, name) for name in unit]
        numbered = self.protected.source.row is not None
        listed += [identifier(SOURCE_NAME, ROW_COLUMN)] if numbered else []
        joined = ""
        if "ord" in keys:
            listed.append("groups.ord")
            pairs = [f"{self._key(i)} IS NOT DISTINCT FROM groups.k{i}" for i in range(len(plan.keys))]
            joined = f" JOIN {self.groups} AS groups ON {' AND '.join(pairs)}" if pairs else f", {self.groups} AS groups"
        else:
            listed += [f"{one_form(identifier(SOURCE_NAME, key), self.types[key])} AS {identifier(key)}" for key in keys]
        rows = f"SELECT {', '.join(listed) or '1 AS one'} FROM {source}{joined}"  # noqa: S608
        names = [*self.columns, *unit, *keys]
        if numbered:
            each = ", ".join(f"min({identifier(name)}) AS {identifier(name)}" for name in names) or "1 AS one"
            rows = f"SELECT {each} FROM ({rows}) GROUP BY {identifier(ROW_COLUMN)}"  # noqa: S608
        # without a unit every row is one, and there is nothing to choose among
        if not plan.unit:
            return rows
        if plan.counting:
            rows = f"SELECT * FROM ({rows}) WHERE {' OR '.join(self._counts(one) for one in plan.counting)}"  # noqa: S608
        if plan.different:
            by = ", ".join(identifier(name) for name in names)
            rows = f"SELECT {by} FROM ({rows}) GROUP BY {by}"  # noqa: S608
        return rows

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
        if self.held is not None:
            return f"WITH __dp_rows AS (SELECT * FROM {self.held})"  # noqa: S608
        rows = self._bounded(False) if self.after else self.rows
        return f"{self._sources()}, __dp_rows AS ({rows})"

    def holding(self) -> str:
        """Return the SELECT of the rows, with what any statement over them needs."""
        unit = [UNIT_COLUMN] if self._of_units and self.plan.unit else []
        names = ", ".join(map(identifier, [*self.columns, *unit, *self.keys]))
        return f"{self._sources()} SELECT {names or '1 AS one'} FROM ({self.rows}) AS held"  # noqa: S608

    def _sources(self) -> str:
        """Return the source by its name; where light and heavy units are read for themselves also of these, and neither is kept."""
        source = self.protected.source
        if not self.heavy:
            return f"WITH {identifier(SOURCE_NAME)} AS (\n{source.sql}\n)"
        named = f"WITH {identifier(SOURCE_NAME)} AS NOT MATERIALIZED (\n{source.sql}\n)"
        if source.theirs is None:
            return named
        return f"{named}, {identifier(HEAVY)} AS (SELECT * FROM {self.heavy}), {_THEIRS} AS NOT MATERIALIZED (\n{source.theirs}\n)"  # noqa: S608

    def _by_group(self, listed: Sequence[tuple[str, str]], then: str, by: Sequence[str]) -> str:
        """Return a statement over the rows that shows the groups, and expressions with their names.

        ``by``: what it is grouped by, beside the keys.
        """
        sums = [f"{sql} AS {name}" for sql, name in listed]
        if self.after:
            keys = [identifier(key) for key in self._own_keys]
            added = f"SELECT {', '.join([*keys, *sums])} FROM __dp_rows{then} GROUP BY {', '.join([*keys, *by])}"  # noqa: S608
            same = " AND ".join(f"added.{key} IS NOT DISTINCT FROM groups.{key}" for key in keys)
            shown = ", ".join(["groups.ord", *(f"added.{name}" for _, name in listed)])
            return f"{self.reading()} SELECT {shown} FROM ({added}) AS added JOIN {self.groups} AS groups ON {same}"  # noqa: S608
        keys = [identifier(key) for key in self.keys]
        shown = "ord" if self.groups is not None else ", ".join(f"CAST({key} AS VARCHAR) AS {key}" for key in keys)
        text = f"{self.reading()} SELECT {', '.join(filter(None, [shown, *sums]))} FROM __dp_rows{then}"  # noqa: S608
        return f"{text} GROUP BY {', '.join([*keys, *by])}" if keys or by else text

    def sums(self) -> tuple[str, list[list[str]]]:
        """Return the statement of all counters but those of trees and lists of values; the columns of each measure."""
        listed: list[tuple[str, str]] = []
        names: list[list[str]] = []
        for place, measure in enumerate(self.plan.measures):
            columns = [] if measure.kind in ("tree", "values") else self._sums_of(place, measure)
            names.append([f"m{place}_{i}" for i in range(len(columns))])
            listed += zip(columns, names[-1], strict=True)
        return self._by_group(listed or [("1", "one")], "", []), names

    def _sums_of(self, place: int, measure: Measure) -> list[str]:
        condition = None if measure.filter is None else identifier(f"f{measure.filter}")
        if measure.kind == "count":
            return [_sum("count(*)", condition)]
        if measure.kind == "units":
            return [_sum(units_sql(self.plan, nulls=measure.nulls), condition)]
        if measure.kind == "distinct":
            return [_sum(f"count(DISTINCT {identifier(f'a{measure.variables[0].position}')})", condition)]
        steps = self.steps.get(place)
        values = [identifier(f"{'x' if steps is None else 'a'}{variable.position}") for variable in measure.variables]
        # DuckDB's least and greatest leave NULL out: what is computed of a row with NULL is no vector of the measure
        there = " AND ".join([*([] if condition is None else [condition]), *(f"{value} IS NOT NULL" for value in values)])
        # sums first, then how many rows were summed, of NaN and of NULL: `_counters` reads them in this order
        if steps is not None:
            parts = [steps.total(values[0], condition)]
        elif measure.kind == "scaled":
            parts = [_sum(f"sum({scaled(measure)})", there)]
        else:
            parts = [_sum(f"sum({sql})", condition if is_null_of_null(measure) else there) for sql in cumulated(measure)]
        if measure.kind == "scaled":
            return parts
        parts.append(_sum(f"count({values[0]})", condition) if len(values) == 1 else _sum("count(*)", there))
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
        place = leaf(measure) if measure.kind == "tree" else place_in(
            identifier(name), measure.values, self.types[name], other=measure.other
        )
        there = f"x{variable.position}" if measure.kind == "tree" else place
        conditions = [f"{there} IS NOT NULL"] + ([] if measure.filter is None else [identifier(f"f{measure.filter}")])
        number = units_sql(self.plan, nulls=True) if measure.once else "count(*)"
        return self._by_group([(place, "cell"), (number, "n")], f" WHERE {' AND '.join(conditions)}", ["cell"])

    def magnitudes(self) -> str:
        """Return the statement that counts the rows of all groups together by the magnitudes of arguments, of each for itself.

        ``which`` is the place in ``plan.learning``. Whatever keys rows have that are in no public group, one state is kept.
        """
        if self.protected.remote is not None:  # other engines have no histogram between given bounds
            return self._magnitudes_in_sets()
        rows = "__dp_rows"
        if self.after:
            same = " AND ".join(f"__dp_rows.{key} IS NOT DISTINCT FROM groups.{key}" for key in self._cell_keys)
            rows = f"__dp_rows SEMI JOIN {self.groups} AS groups ON {same}"
        learning = list(enumerate(self.plan.learning))
        counts = ", ".join(f"{cell_counts(*self._magnitude(one))} AS c{place}" for place, one in learning)
        each = " UNION ALL ".join(
            f"SELECT {place} AS which, {one.cells} - system.main.generate_subscripts(c{place}, 1) AS cell, "  # noqa: S608 -- generated
            f"CAST(system.main.unnest(c{place}) AS BIGINT) AS n FROM __dp_counts"
            for place, one in learning
        )
        return f"{self.reading()}, __dp_counts AS MATERIALIZED (SELECT {counts} FROM {rows}) {each}"  # noqa: S608 -- generated

    def _magnitude(self, one: Learning) -> tuple[str, tuple[float, ...], str]:
        """Return a number of a row, the edges of its cells, and which rows are in one."""
        x = identifier(f"x{one.position}")
        conditions = [f"system.main.isfinite({x})"] + ([] if one.filter is None else [identifier(f"f{one.filter}")])
        return x, one.edges, " AND ".join(conditions)

    def _magnitudes_in_sets(self) -> str:
        """Return `magnitudes` as rows by cell; those of one argument are counted in sets of their own."""
        cells, names = [], []
        for place, one in enumerate(self.plan.learning):
            x, edges, condition = self._magnitude(one)
            names.append(f"c{place}")
            cells.append(f"CASE WHEN {condition} THEN {cell(x, edges, 0, one.cells)} END AS {names[-1]}")
        listed = ", ".join([*self._cell_keys, *cells])
        sets = ", ".join(f"({', '.join([*self._cell_keys, name])})" for name in names)
        which = " ".join(f"WHEN grouping({name}) = 0 THEN {place}" for place, name in enumerate(names))
        counts = (
            f"SELECT {', '.join([*self._cell_keys, f'CASE {which} END AS which'])}, coalesce({', '.join(names)}) AS cell, "  # noqa: S608
            f"count(*) AS n FROM (SELECT {listed} FROM __dp_rows) GROUP BY GROUPING SETS ({sets})"
        )
        if self.after:
            same = " AND ".join(f"added.{key} IS NOT DISTINCT FROM groups.{key}" for key in self._cell_keys)
            counts = f"SELECT added.* FROM ({counts}) AS added JOIN {self.groups} AS groups ON {same}"  # noqa: S608
        summed = f"SELECT which, cell, CAST(sum(n) AS BIGINT) AS n FROM ({counts}) WHERE cell IS NOT NULL GROUP BY which, cell"  # noqa: S608
        return f"{self.reading()} {summed}"

    @property
    def _cell_keys(self) -> list[str]:
        """The keys by which rows are counted that are joined with the groups afterwards."""
        return [identifier(key) for key in self._own_keys] if self.after else []

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
            ranked = f"SELECT *, {together} FROM ({by_unit('__dp_units')})"  # noqa: S608 -- generated
            return f"{self.reading()}, __dp_units AS ({cells}) SELECT {cast} FROM ({ranked})"  # noqa: S608 -- generated
        coarse = "SELECT ord, big, count(*) AS n FROM __dp_units GROUP BY ALL"
        summed = (
            "SELECT ord, big, n, sum(n) OVER (PARTITION BY ord ORDER BY big ASC) AS upto, sum(n) OVER (PARTITION BY ord) AS total "  # noqa: S608
            f"FROM ({coarse})"
        )
        ranked = (
            "SELECT ord, cell, fine.n AS n, before + sum(fine.n) OVER (PARTITION BY ord, big ORDER BY cell ASC) AS upto, total "  # noqa: S608
            f"FROM ({by_unit('__dp_units SEMI JOIN __dp_near USING (ord, big)')}) AS fine "
            "JOIN __dp_near USING (ord, big)"
        )
        return (
            f"{self.reading()}, __dp_units AS ({cells}), "  # noqa: S608 -- generated
            f"__dp_near AS (SELECT ord, big, upto - n AS before, total FROM ({summed}) WHERE {some}) "
            f"SELECT {cast} FROM ({ranked}) WHERE {some}"
        )

    def _in_units(self, measure: Measure, units: Units) -> str:
        """Return the rows of a measure with the number of the unit that each is in."""
        variable = measure.variables[0]
        conditions = [f"x{variable.position} IS NOT NULL", *([] if measure.filter is None else [f"f{measure.filter}"])]
        listed = ", ".join([*map(identifier, self.keys), f"{unit_number(variable, units)} AS unit"])
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


def units_sql(plan: QueryPlan, *, nulls: bool) -> str:
    """Return the aggregate that counts units; with ``nulls`` rows without a unit, which are bounded as one, count as one."""
    if not plan.unit:  # each row is one
        return "count(*)"
    unit = identifier(UNIT_COLUMN)
    return f"count(DISTINCT {{'u': {unit}}})" if nulls else f"count(DISTINCT {unit})"


def _sum(aggregate: str, condition: str | None) -> str:
    """Return an aggregate as a BIGINT, cut to `LARGEST_SUM`; 0 where there is no row."""
    rows = aggregate if condition is None else f"{aggregate} FILTER (WHERE {condition})"
    return f"CAST(greatest(least(coalesce({rows}, 0), {LARGEST_SUM}), -{LARGEST_SUM}) AS BIGINT)"


def _near(one: Picking) -> str:
    """Return whether a cell, of n rows, upto with those before, may have a penalty of at most as many rows as are read."""
    wanted, parts = f"{one.share.numerator} * total", one.share.denominator
    far = parts * one.reach
    return f"({parts} * upto >= {wanted} - {far} AND {parts} * (upto - n) <= {wanted} + {far})"


def _coarse(units: Units) -> int:
    """Return the power of two that is the number of units of a coarse cell: there are some thousands of cells."""
    return max(0, (units.count - 1).bit_length() - _COARSE_BITS)


def no_groups(plan: QueryPlan) -> str:
    """Return a SELECT of no group, with the columns of a list of groups that were released."""
    keys = ", ".join(f"CAST(NULL AS VARCHAR) AS k{i}" for i in range(len(plan.keys)))
    return f"SELECT CAST(0 AS BIGINT) AS ord, {keys} LIMIT 0"


def statements(protected: ProtectedSource, plan: QueryPlan, groups: str | None, salt: str, heavy: str | None) -> list[str]:
    """Return all statements over the bounded rows, to be bound before anything is charged."""
    made = Statement(protected, plan, groups, salt, heavy=heavy)
    first = [made.holding()] if made.holds else []
    first += [made.magnitudes()] if plan.learning else []
    cut = [plan.measures[one.place] for one in plan.cutting]
    units = [made.units(measure, 0, regions) for measure in cut for regions in ([], [(6, [0])])]
    listed = None if plan.public else f"({no_groups(plan)})"
    picks = [one.over(plan.measures[one.place].variables[0]) for one in plan.picking]
    ranks = [
        made.ranks(ones, every=every, listed=listed) for ones in of_one_measure(picks) for every in (False, True)
    ]
    cells = [made.cells(measure) for measure in plan.measures if measure.kind in ("tree", "values") and measure.units is None]
    return [*first, *units, *ranks, made.sums()[0], *cells]
