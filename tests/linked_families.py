"""Small linked tables of every kind of trouble, and their blocks counted row by row in plain Python."""

from __future__ import annotations

import functools
import itertools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import duckdb
import numpy as np

from dpsql.domains.attributes import Attribute, Domain
from dpsql.measure.linked import LinkedReading, Statements
from dpsql.measure.reading import snapshot
from dpsql.methods.nested_classes import Block, blocks, folded
from dpsql.numerics.arrays import IntArray
from dpsql.release.linked import LinkedColumn, LinkedPlan, LinkedTable
from dpsql.release.ordered import gap_edges
from dpsql.source.model import TableId

WEIGHT = 5_040
Row = dict[str, Any]


def attribute(name: str, values: int, **more: Any) -> Attribute:
    """Return a column of whole numbers from 0."""
    return Attribute(name, "INTEGER", "categorical", categories=tuple(map(str, range(values))), **{"nullable": True, **more})


def table(name: str, parent: int | None, most: int, sizes: Sequence[int], referred: str | None = None, **more: Any) -> LinkedTable:
    """Return a table whose key is ``id`` and whose link is ``up``."""
    groups = more.pop("groups", (1, 2) if most > 1 else (1,))
    attributes = tuple(attribute(f"{name}{i}", size, **more) for i, size in enumerate(sizes))
    link = None if parent is None else "up"
    names = ["id", *([] if link is None else [link]), *(a.name for a in attributes)]
    columns = tuple(LinkedColumn(found, "INTEGER", required=False) for found in names)
    return LinkedTable(
        f"main.{name}", name, parent, most, "drop", link, None if parent is None else referred or "id", ("id",), "id", False, columns,
        Domain(attributes), groups=groups,
    )


def timed(found: LinkedTable, **more: Any) -> LinkedTable:
    """Return a table with one more column, by which its rows are ordered: days 0 to 8 in three bins."""
    attribute = Attribute("day", "INTEGER", "numeric", edges=(0.0, 2.0, 5.0, 8.0), **more)
    columns = (*found.columns, LinkedColumn("day", "INTEGER", required=False))
    return replace(found, columns=columns, domain=Domain((*found.domain.attributes, attribute)), order="day")


def planned(tables: Sequence[LinkedTable], *, independent: bool = False) -> LinkedPlan:
    """Return the plan of all blocks of tables."""
    empty = LinkedPlan(tuple(tables), (), WEIGHT)
    return LinkedPlan(tuple(tables), tuple(blocks(empty.shape, independent=independent)), WEIGHT, independent)


CHAIN = planned([table("a", None, 1, (2, 3)), table("b", 0, 3, (2, 2)), table("c", 1, 2, (3,))])
TWO = planned([table("a", None, 1, (3,), outside="drop", nullable=False), table("b", 0, 4, (2,)), table("c", 0, 2, (2, 2), outside="drop", nullable=False)])
TREE = planned([table("a", None, 1, (2,)), table("b", 0, 2, (2,)), table("c", 0, 3, (2,)), table("d", 1, 3, (2,), groups=()), table("e", 3, 2, (2,), groups=())])
ORDERED = planned([table("a", None, 1, (2,)), timed(table("b", 0, 4, (2, 3))), table("c", 1, 2, (2,))])
DEEP = planned([table("a", None, 1, (2,)), table("b", 0, 2, (2,)), timed(table("c", 1, 3, (3,)), nullable=False, outside="other")])
APART = planned([replace(found, groups=(1,)) for found in TREE.tables], independent=True)
PLANS = {"chain": CHAIN, "two children": TWO, "tree": TREE, "ordered": ORDERED, "deep and ordered": DEEP, "independent": APART}


@functools.cache
def database() -> duckdb.DuckDBPyConnection:
    """A database of all tests: opening one takes longer than counting."""
    return duckdb.connect(config={"threads": 1})


def fill(con: duckdb.DuckDBPyConnection, table: LinkedTable, rows: Sequence[Row]) -> None:
    """Make a table of these rows, in the place of an earlier one."""
    names = [column.name for column in table.columns]
    values = ", ".join(f"({', '.join('NULL' if row[name] is None else str(row[name]) for name in names)})" for row in rows)
    con.execute(f"CREATE OR REPLACE TABLE {table.name} ({', '.join(f'{name} INTEGER' for name in names)})")
    if rows:
        con.execute(f"INSERT INTO {table.name} VALUES {values}")


@dataclass
class Made:
    """A database as lists of rows, by table of the plan."""

    plan: LinkedPlan
    rows: list[list[Row]]

    def without(self, unit: int) -> Made:
        """Return the database without all rows of a unit."""
        gone, kept = {0: {unit}}, [[row for row in self.rows[0] if row["id"] != unit]]
        for place, found in enumerate(self.plan.tables[1:], start=1):
            above = gone[found.parent or 0]
            gone[place] = {row["id"] for row in self.rows[place] if row["up"] in above}
            kept.append([row for row in self.rows[place] if row["up"] not in above])
        return Made(self.plan, kept)

    def counted(self, salt: str = "0") -> list[IntArray]:
        """Return the blocks that the release would measure, without noise."""
        con = database()
        for found, rows in zip(self.plan.tables, self.rows, strict=True):
            fill(con, found, rows)
        places = tuple(TableId("memory", "main", found.name) for found in self.plan.tables)
        with snapshot(con):
            flat = LinkedReading(con, Statements(self.plan, places, None), [salt * 32] * len(places)).counted(self.plan).flat()
        return [part.reshape(shape) for part, shape in zip(np.split(flat, np.cumsum(self.plan.lengths)[:-1]), self.plan.shapes, strict=True)]


def made(plan: LinkedPlan, seed: int, units: int = 6, *, heavy: bool = True) -> Made:
    """Return a small random database: rows without parents, NULL links and values, values outside, families of all sizes.

    ``heavy``: whether families may be larger than a release counts.
    """
    rng = np.random.default_rng(seed)
    rows: list[list[Row]] = []
    for found in plan.tables:
        here: list[Row] = []
        parents: list[int | None] = [None]
        if found.parent is not None:
            for above in rows[found.parent]:
                largest = 2 * found.most + 1 if heavy else found.most
                parents += [above["id"]] * int(rng.integers(0, largest + 1) * (rng.random() < 0.8))
            parents = [*parents, None, None, 990, 991, 991] if heavy else [*parents[1:], None, 990]
        else:
            parents = [None] * units
        numbers = rng.permutation(len(parents)) + 1
        for number, above in zip(numbers, parents, strict=True):
            row: Row = {"id": int(number), **({} if found.parent is None else {"up": above})}
            for a in found.domain.attributes:
                value = int(rng.integers(-1, 10 if a.kind == "numeric" else a.values + 1))
                row[a.name] = None if rng.random() < 0.1 else value
            here.append(row)
        rows.append([here[i] for i in rng.permutation(len(here))])
    return Made(plan, rows)


def code(a: Attribute, value: int | None) -> int | None:
    """Return the code of a value; None where the row is dropped."""
    if a.kind == "numeric":
        inside = value is not None and a.edges[0] <= value <= a.edges[-1]
        if a.outside == "other":
            return sum(edge <= (value or 0) for edge in a.edges[1:-1]) if inside else a.other_code
        return a.null_code if value is None else sum(edge <= value for edge in a.edges[1:-1])
    if value is not None and 0 <= value < a.values:
        return value
    if value is not None and a.outside == "drop":
        return None
    if a.nullable:
        return a.null_code
    return None if a.outside == "drop" else 0


def by_hand(database: Made) -> list[IntArray]:
    """Return the blocks of a database without large families, row by row."""
    plan = database.plan
    codes: list[dict[int, list[int]]] = []
    parents: list[dict[int, int]] = []
    for found, rows in zip(plan.tables, database.rows, strict=True):
        coded: dict[int, list[int]] = {}
        above: dict[int, int] = {}
        for row in rows:
            values = [code(a, row[a.name]) for a in found.domain.attributes]
            there = found.parent is None or row["up"] in codes[found.parent]
            if there and all(value is not None for value in values):
                coded[row["id"]] = [value for value in values if value is not None]
                above[row["id"]] = row.get("up", -1)
        codes.append(coded)
        parents.append(above)
    families: list[dict[int, list[int]]] = []
    for place in range(len(plan.tables)):
        family = defaultdict(list)
        for number, up in parents[place].items():
            family[up].append(number)
        families.append(family)
    weights: list[dict[int, int]] = [dict.fromkeys(codes[0], plan.weight)]
    for place, found in enumerate(plan.tables[1:], start=1):
        above = weights[found.parent or 0]
        among = {up: found.most if plan.independent else len(family) for up, family in families[place].items()}
        weights.append({n: above[up] // among[up] for n, up in parents[place].items()})
    for place in range(len(plan.tables)):
        for child, found in enumerate(plan.tables):
            if found.parent == place:
                for number, values in codes[place].items():
                    values.append(len(families[child].get(number, [])))
    found_blocks = []
    for block, shape in zip(plan.blocks, plan.shapes, strict=True):
        (t, i), split = block.left, block.split(plan.shape)
        sizes = shape
        if block.kind in ("pair", "across", "sibling"):
            sizes = tuple(plan.shape.extended(place)[column] for place, column in (block.left, block.right))
        home = plan.shape.home(block.table)
        starts = plan.tables[home].groups if split else (1,)
        whole = np.zeros((len(starts), *sizes), np.int64)
        cells = whole[0]

        def group(up: int, starts: tuple[int, ...] = starts, at: int = block.table, home: int = home) -> int:
            """Return the group of the rows of the parent row with this number."""
            while at != home:
                at, up = plan.tables[at].parent or 0, parents[plan.tables[at].parent or 0][up]
            return sum(start <= len(families[home][up]) for start in starts) - 1

        if block.kind in ("first", "next", "gap"):
            _add_ordered(database, block, cells, codes[t], families[t], weights[plan.tables[t].parent or 0])
        elif block.right is None:
            for number, values in codes[t].items():
                cells[values[i]] += weights[t][number]
        elif block.kind == "sibling":
            above = plan.tables[t].parent or 0
            for up, members in families[t].items():
                for r, s in itertools.permutations(members, 2):
                    share = weights[above][up] // (len(members) * (len(members) - 1))
                    whole[group(up), codes[t][r][i], codes[t][s][block.right[1]]] += share
        else:
            (u, j) = block.right
            for number, values in codes[u].items():
                at, place = number, u
                while place != t:
                    at, place = parents[place][at], plan.tables[place].parent or 0
                whole[group(parents[u][number]) if split else 0, codes[t][at][i], values[j]] += weights[u][number]
        whole = folded(whole) if block.folded else whole
        found_blocks.append(whole if split else whole[0])
    return found_blocks


def _add_ordered(
    database: Made, block: Block, cells: IntArray, codes: dict[int, list[int]], families: dict[int, list[int]], above: dict[int, int]
) -> None:
    """Add what the order of a table's rows says, family by family."""
    (t, i), found = block.left, database.plan.tables[block.left[0]]
    days = {row["id"]: row["day"] for row in database.rows[t]}
    attribute = found.domain.attributes[found.domain.names.index("day")]
    low, high = attribute.edges[0], attribute.edges[-1]
    for up, members in families.items():
        inside = [n for n in members if codes[n][found.domain.names.index("day")] < attribute.values]
        day = {n: min(max(days[n], low), high) for n in inside}
        line = sorted(inside, key=lambda n: (day[n], codes[n][::-1]))
        if block.kind == "first":
            if line:
                cells[codes[line[0]][i]] += above[up]
            continue
        for one, after in itertools.pairwise(line):
            share = above[up] // (len(line) - 1)
            if block.kind == "next":
                cells[codes[one][i], codes[after][i]] += share
            else:
                cells[sum(edge <= 1e-6 + day[after] - day[one] for edge in gap_edges(attribute))] += share
