"""Families of synthetic rows from a release of linked tables: the model, and its tables block by block, with new keys.

Privacy: post-processing throughout: free, repeatable, seedable.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

import duckdb
import numpy as np
import numpy.typing as npt
import pandas as pd

from dpsql.accounting import standard_deviation
from dpsql.domains import sqltypes
from dpsql.domains.attributes import Domain
from dpsql.domains.decoder import Columns, Decoder
from dpsql.domains.grid import Histogram
from dpsql.domains.within import Placed
from dpsql.errors import ArgumentError, ReleaseError
from dpsql.methods import nested_classes
from dpsql.methods.nested_classes import Drawn, NestedClasses
from dpsql.numerics.arrays import FloatArray, IntArray
from dpsql.release.linked import LinkedPlan, LinkedTable
from dpsql.release.ordered import scale_of
from dpsql.release.refined import histograms
from dpsql.release.store import Release
from dpsql.rows.block import Block
from dpsql.rows.counting import Counting, keep
from dpsql.rows.decoding import Codes
from dpsql.rows.models import mark
from dpsql.rows.obeying import Mender, check_found, mender_of
from dpsql.rows.recent import Recent
from dpsql.rows.zeros import emptied
from dpsql.rules.counted import necessary
from dpsql.rules.effects import concerning
from dpsql.rules.grammar import stored
from dpsql.text.relation import identifier

KEY, LINK = "__dp_key", "__dp_link"
_ROWS = 1 << 17
"""Rows that are decoded together."""
_SPARE_UNITS = 4096
_SPARE, _VALUES = 1, 2
"""In seeds: what follows is of its own."""


@dataclass(frozen=True)
class Model:
    """A fitted model of linked tables, and the number of units of the source, public or noisy."""

    fitted: NestedClasses
    units: int


_models: Recent[Model] = Recent(4)


def plan_of(bought: Release) -> LinkedPlan:
    """Return what a release holds of linked tables.

    Raises
    ------
    ReleaseError
        It is no such release.
    """
    if bought.plan.linked is None:
        raise ReleaseError(f"release {bought.identifier!r} is none of linked tables: those are bought by dp_synthesize_tables")
    return bought.plan.linked


def model_of(cursor: duckdb.DuckDBPyConnection, bought: Release) -> Model:
    """Return the model of a release, fitting it if this process has not done so lately."""
    return _models.get(f"{bought.path} {mark(bought)}", lambda: _fit(cursor, bought))


def _fit(cursor: duckdb.DuckDBPyConnection, bought: Release) -> Model:
    linked, plan = plan_of(bought), bought.plan
    statistics = bought.statistics(cursor)
    values = [
        np.asarray(table, np.float64).reshape(shape) / linked.one(block)
        for table, shape, block in zip(statistics.blocks, linked.shapes, linked.blocks, strict=True)
    ]
    values = emptied(cursor, linked, values)
    deviations = [
        standard_deviation(plan.mechanism, scale) / linked.one(block)
        for scale, block in zip(plan.scales, linked.blocks, strict=True)
    ]
    # Codes that nobody has, as far as the tables can say, get no share: noise alone shall make no rows.
    none = nested_classes.absent(linked.blocks, values, deviations, _undeclared(linked))
    total = statistics.total
    units = units_of(linked, values, deviations) if total is None else float(total)
    values = [nested_classes.without(block, value, none) for block, value in zip(linked.blocks, values, strict=True)]
    units, effort = max(units, 1.0), str(plan.options.get("effort", nested_classes.USUAL))
    if linked.independent:
        lone = nested_classes.fit_apart(linked.shape, linked.blocks, values, deviations, effort, _seed(bought.identifier))
        return Model(nested_classes.barred(lone, none), round(units))
    shares, noise = [block / units for block in values], [deviation / units for deviation in deviations]
    fitted = nested_classes.fit(linked.shape, linked.blocks, shares, noise, units, effort, _seed(bought.identifier))
    fitted = nested_classes.barred(fitted, none)
    scales = {
        t: scale_of(table.domain.attributes[table.order_place])
        for t, table in enumerate(linked.tables)
        if table.order_place is not None
    }
    if scales:
        fitted = nested_classes.ordered(fitted, linked.blocks, shares, noise, scales, _seed(bought.identifier))
    return Model(fitted, round(units))


def _undeclared(linked: LinkedPlan) -> dict[tuple[int, int], npt.NDArray[np.bool_]]:
    """Return which codes are no declared values: NULL, and what stands for other values."""
    columns = ((t, i, a) for t, table in enumerate(linked.tables) for i, a in enumerate(table.domain.attributes))
    return {(t, i): np.arange(attribute.size) >= attribute.values for t, i, attribute in columns}


def units_of(linked: LinkedPlan, values: list[FloatArray], deviations: list[float]) -> float:
    """Return the number of units from noisy tables of the root: each adds up to it, weighted by the inverse of its variance."""
    root = [place for place, block in enumerate(linked.blocks) if block.left[0] == 0 and block.kind in ("one", "pair")]
    if not root:
        raise ReleaseError("the release holds no table of its units; restore it from a backup")
    return nested_classes.total([values[place] for place in root], [deviations[place] for place in root])


def _seed(identifier_: str) -> int:
    return int(hashlib.sha256(identifier_.encode()).hexdigest()[:15], 16)


@dataclass(frozen=True)
class Described:
    """What is drawn: the plan, with its bins; what a fixed seed is made of; where in their bins values lie, by a column's place."""

    linked: LinkedPlan
    identifier: str
    inside: Mapping[int, Histogram]


def described(bought: Release) -> Described:
    """Return what a release gives rows of."""
    return Described(plan_of(bought), bought.identifier, histograms(bought.planned, bought.refinement))


def made_up(linked: LinkedPlan) -> tuple[Described, Model]:
    """Return what gives made-up rows of a plan, of its types alone: no rule holds, and no release is looked at."""
    bounded = _bounded(linked)
    tables = tuple(replace(table, rules=(), checks=(), across=(), counted=(), order=None) for table in bounded.tables)
    bounded = replace(bounded, tables=tables, blocks=())
    return Described(bounded, "rehearsal", {}), Model(nested_classes.uniform(bounded.shape), 1)


def check_rules(cursor: duckdb.DuckDBPyConnection, linked: LinkedPlan) -> None:
    """Refuse rules of which it is not sure that rows of a plan can be written.

    Raises
    ------
    DomainError
    """
    bounded = _bounded(linked)
    for place, table in enumerate(bounded.tables):
        joined = bounded.joined(place)
        rules = [*(stored(text) for text in table.rules), *joined.rules]
        for needed in necessary(bounded.counted(place), table.most) or [[]]:
            check_found(cursor, joined.domain, [*rules, *needed], table.name)


def _bounded(linked: LinkedPlan) -> LinkedPlan:
    """Return a plan whose bins are known: where they are cut from what is bought, there is one."""
    return linked.with_domain(Domain(tuple(a.bounded if a.automatic else a for a in linked.domain.attributes)))


@dataclass(frozen=True)
class Part:
    """Some rows of one table, as `Drawing.select` reads them."""

    table: int
    frame: pd.DataFrame


class Drawing:
    """One draw of all tables.

    Parameters
    ----------
    cursor : DuckDB cursor
        Evaluates rules on synthetic rows; no table is read.
    wanted : Described
    model : Model
    units : int
        Rows of the root.
    seed : int or None
        The same seed gives the same tables; None is a fixed seed of the release.

    Attributes
    ----------
    rows : list of int
        Rows of each table so far.
    """

    def __init__(
        self, cursor: duckdb.DuckDBPyConnection, description: Described, model: Model, units: int, seed: int | None
    ) -> None:
        self.plan, self._model, self._units = description.linked, model, units
        self._seeds = [seed or 0, _seed(description.identifier)]
        self.rows = [0] * len(self.plan.tables)
        inside = description.inside
        self._inside: list[dict[str, Histogram]] = [
            {a.name: inside[place] for i, a in enumerate(table.domain.attributes) if (place := self.plan.place(t, i)) in inside}
            for t, table in enumerate(self.plan.tables)
        ]
        self._decoders = [
            [Decoder(a, f"v{i}", self._inside[t].get(a.name)) for i, a in enumerate(table.domain.attributes)]
            for t, table in enumerate(self.plan.tables)
        ]
        # What is ordered is drawn with the rows: its decoder is told the values, part by part.
        self._placed: dict[int, Placed] = {}
        for t, table in enumerate(self.plan.tables):
            if table.order_place is not None:
                decoder = self._decoders[t][table.order_place]
                self._placed[t] = decoder.within = Placed(decoder.attribute)
        self._above = {place: self.plan.joined(place) for place, table in enumerate(self.plan.tables) if table.across}
        self._places = {table.name: place for place, table in enumerate(self.plan.tables)}
        self._named = {self._places[name] for joined in self._above.values() for name, _ in joined.above}
        self._counting = {
            place: Counting(cursor, self.plan, place, partial(self._spare, place), description.identifier)
            for place, table in enumerate(self.plan.tables)
            if table.counted
        }
        self._menders = [self._mender(cursor, place, description.identifier) for place in range(len(self.plan.tables))]
        # Repairs may change what rows are ordered by: such tables are put in order again before they are written.
        ruled = {place for place, mending in enumerate(self._menders) if mending is not None}
        self._sorted = {place for place, table in enumerate(self.plan.tables) if table.order is not None and place in ruled}

    def _mender(self, cursor: duckdb.DuckDBPyConnection, place: int, release: str) -> Mender | None:
        table, above = self.plan.tables[place], self._above.get(place)
        if not table.rules and above is None:
            return None
        domain, across = (table.domain, ()) if above is None else (above.domain, above.rules)
        rules = [*concerning([stored(text) for text in table.rules], domain), *across]
        if place in self._counting:
            domain, rules = self._counting[place].marked(domain, rules)
        fixed = len(domain.attributes) - len(table.domain.attributes)
        return mender_of(cursor, domain, rules, partial(self._spare_codes, place), release, self._inside[place], fixed)

    def _spare(self, place: int) -> list[Drawn]:
        """Return other rows."""
        return nested_classes.draw(self._model.fitted, _SPARE_UNITS, np.random.default_rng([*self._seeds, _SPARE, place]))

    def _spare_codes(self, place: int) -> Codes:
        """Return codes of other rows of a table."""
        return np.asarray(self._spare(place)[place].codes[:, : len(self.plan.tables[place].domain.attributes)])

    def select(self, place: int) -> str:
        """Return the SELECT list of a table's columns, in order and in their types, over the frame of a part."""
        table = self.plan.tables[place]
        expressions = {d.attribute.name: d.expression().sql(dialect="duckdb") for d in self._decoders[place]}
        listed = []
        for column in table.columns:
            if column.name in expressions:
                listed.append(f"CAST({expressions[column.name]} AS {column.sql_type}) AS {identifier(column.name)}")
            else:
                number = identifier(LINK if column.name == table.link else KEY)
                listed.append(f"{key_value(number, column.sql_type)} AS {identifier(column.name)}")
        return ", ".join(listed)

    def parts(self) -> Iterator[Part]:
        """Yield rows of all tables, parents before their children; their number is in `rows` afterwards."""
        rng = np.random.default_rng([*self._seeds, _VALUES])
        for drawn in nested_classes.draw_parts(self._model.fitted, self._units, np.random.default_rng(self._seeds)):
            keys: list[IntArray] = []
            for place, rows, block in self._blocks(drawn, rng):
                # A table without rows in this part yields no block, but its children look their keys up in its place.
                while len(keys) <= place:
                    keys.append(self._keys(len(keys), drawn, keys))
                table, order = self.plan.tables[place], None
                if place in self._sorted:
                    order = self._order(place, drawn[place].parent, block)
                    keys[place][order] = keys[place].copy()
                arrays: Columns = {KEY: keys[place][rows] if order is None else keys[place][order]}
                if table.parent is not None:
                    links = keys[table.parent][drawn[place].parent[rows]]
                    arrays[LINK] = links if order is None else links[order]
                arrays.update(self._own(place, block, slice(None) if order is None else order))
                yield Part(place, pd.DataFrame(arrays, copy=False))
            for place, drawn_rows in enumerate(drawn):
                self.rows[place] += len(drawn_rows.codes)

    def _keys(self, place: int, drawn: list[Drawn], keys: list[IntArray]) -> IntArray:
        """Return the keys of the rows of a part."""
        table, rows = self.plan.tables[place], drawn[place]
        if table.parent is not None and table.link in table.keys:
            own: IntArray = keys[table.parent][rows.parent]
        else:
            own = np.arange(len(rows.codes), dtype=np.int64) + self.rows[place] + 1
        check_range(table, int(own.max()) if len(own) else 0)
        return own

    def _order(self, place: int, parent: IntArray, block: Block) -> IntArray:
        """Return which row stands in a place, where rules may have changed values that rows are ordered by."""
        position = self.plan.tables[place].order_place
        assert position is not None  # noqa: S101 -- for the type checker
        attribute = self.plan.tables[place].domain.attributes[position]
        values = block.take(position, slice(None))[f"v{position}"]
        return np.lexsort((values, block.codes(position) >= attribute.values, parent))

    def families(self) -> Iterator[list[Drawn]]:
        """Yield the codes of the rows that `parts` gives, some units at a time; no drawing gives both.

        A row of an order whose place in it a rule has changed has NaN as its ``order``.
        """
        ruled = bool(self._counting) or any(mending is not None for mending in self._menders)
        rng = np.random.default_rng([*self._seeds, _VALUES])
        for drawn in nested_classes.draw_parts(self._model.fitted, self._units, np.random.default_rng(self._seeds)):
            yield self._obeying(drawn, rng) if ruled else drawn

    def _obeying(self, drawn: list[Drawn], rng: np.random.Generator) -> list[Drawn]:
        """Return the codes of rows that obey the rules."""
        mended: list[Drawn] = []
        for place, some, block in self._blocks(drawn, rng):
            while len(mended) <= place:
                mended.append(_copied(drawn[len(mended)]))
            columns, ordered = len(self.plan.tables[place].domain.attributes), self.plan.tables[place].order_place
            codes, order = mended[place].codes, mended[place].order
            for i, changed in block.changed().items():
                if i >= columns:
                    continue
                if order is not None and i == ordered:
                    order[some] = np.where(changed == codes[some, i], order[some], np.nan)
                codes[some, i] = changed
        mended += [_copied(rows) for rows in drawn[len(mended) :]]
        # Rows may have been given up: the numbers of rows below follow those that are left.
        for place in {**self._above, **self._counting}:
            parent, fan_out = self.plan.shape.parent(place), self.plan.shape.fan_out(place)
            mended[parent].codes[:, fan_out] = np.bincount(mended[place].parent, minlength=len(mended[parent].codes))
        return mended

    def _blocks(self, drawn: list[Drawn], rng: np.random.Generator) -> Iterator[tuple[int, slice, Block]]:
        """Yield the rows of a part, decoded and repaired: the table, which of its rows, and the block.

        Rows that there cannot be beside those above them are taken out of ``drawn``, with those below, before any of their table
        come.
        """
        for counting in self._counting.values():
            counting.settle(drawn, rng)
        whole: dict[int, Block] = {}  # of tables that rules of others name
        for place, rows in enumerate(drawn):
            columns = len(self.plan.tables[place].domain.attributes)
            # Rules of several rows have to see all rows of a part; all other tables go block by block.
            at_once = place in self._named | self._sorted or place in self._above or place in self._counting
            step = max(len(rows.codes), 1) if at_once else _ROWS
            for start in range(0, len(rows.codes), step):
                some = slice(start, start + step)
                if rows.order is not None:
                    self._placed[place].values = rows.order[some]
                codes: Codes = rows.codes[some, :columns]
                arrays = self._values(place, codes, rng)
                if place in self._above:
                    codes, arrays = self._with_above(place, some, drawn, whole, codes, arrays)
                mending, kept, counted = self._menders[place], None, self._counting.get(place)
                if mending is None:
                    block = Block(codes, arrays)
                else:
                    if counted is not None and counted.marks:
                        codes, arrays = _with_marks(codes, arrays, counted.mark_codes(codes))
                    block, kept = mending.mended_kept(codes, arrays, rng)
                if kept is not None and counted is not None:
                    kept = counted.whole(codes, drawn[place].parent, kept)
                if kept is not None and not kept.all():  # a table whose rows are all in one block
                    block = block.some(np.flatnonzero(kept))
                    keep(self.plan, drawn, place, kept)
                    some = slice(0, len(block))
                if place in self._named:
                    whole[place] = block
                yield place, some, block

    def _with_above(
        self, place: int, some: slice, drawn: list[Drawn], whole: dict[int, Block], codes: Codes, arrays: Columns
    ) -> tuple[Codes, Columns]:
        """Return codes and arrays with those of the rows above that rules name, behind the own ones."""
        count = len(self.plan.tables[place].domain.attributes)
        added = []
        for k, (name, position) in enumerate(self._above[place].above):
            at, rows, target = self.plan.tables[place].parent, drawn[place].parent[some], self._places[name]
            while at is not None and at != target:
                rows, at = drawn[at].parent[rows], self.plan.tables[at].parent
            block = whole[target]
            added.append(block.codes(position)[rows])
            prefix = f"v{position}"
            columns = block.take(position, rows)
            arrays = {**arrays, **{f"v{count + k}{key.removeprefix(prefix)}": array for key, array in columns.items()}}
        return np.column_stack([codes, *added]), arrays

    def _own(self, place: int, block: Block, rows: slice | IntArray) -> Columns:
        """Return the arrays of a table's own columns in some rows."""
        columns: Columns = {}
        for i in range(len(self.plan.tables[place].domain.attributes)):
            columns.update(block.take(i, rows))
        return columns

    def _values(self, place: int, codes: Codes, rng: np.random.Generator) -> Columns:
        columns: Columns = {}
        for i, decoder in enumerate(self._decoders[place]):
            columns.update(decoder.arrays(np.ascontiguousarray(codes[:, i]), rng))
        return columns


def _with_marks(codes: Codes, arrays: Columns, marks: Codes) -> tuple[Codes, Columns]:
    """Return codes and arrays with those of boolean marks behind them."""
    known = codes.shape[1]
    added = {f"v{known + k}": marks[:, k].astype(np.bool_) for k in range(marks.shape[1])}
    return np.column_stack([codes, marks]), {**arrays, **added}


def _copied(rows: Drawn) -> Drawn:
    return Drawn(rows.codes.copy(), rows.parent, None if rows.order is None else rows.order.copy())


def key_value(number: str, sql_type: str) -> str:
    """Return a new key in the type of a column: a whole number, or the text or UUID of one.

    Examples
    --------
    >>> key_value("k", "VARCHAR"), key_value("k", "SMALLINT")
    ('CAST(k AS VARCHAR)', 'CAST(k AS SMALLINT)')
    """
    if sql_type == "UUID":
        digits = f"CAST(to_hex(CAST({number} AS BIGINT)) AS VARCHAR)"
        return f"CAST('00000000-0000-0000-0000-' || lpad(lower({digits}), 12, '0') AS UUID)"
    return f"CAST({number} AS {sql_type})"


def check_range(table: LinkedTable, largest: int) -> None:
    """Refuse more rows than a key's type has numbers for.

    Raises
    ------
    ArgumentError
        Of synthetic rows: nothing but the release decides.
    """
    for column in table.columns:
        parsed = sqltypes.parse(column.sql_type)
        if column.name in table.keys and parsed.family == "integer" and largest > parsed.high:
            raise ArgumentError(
                "units",
                largest,
                f"rows of {table.name} are more than {column.name!r}, which is {column.sql_type}, can number; ask for fewer",
            )
