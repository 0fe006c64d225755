"""What a release of linked tables measures: tables, links, blocks of shares of units. Decided before a row is read.

Privacy: None: plans are public. Links, key columns and constraints are facts of the schema.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, get_args

from dpsql.domains import sqltypes
from dpsql.domains.attributes import Domain
from dpsql.methods.nested_classes import GROUPS, ORDERED, Block, Shape, TableShape
from dpsql.release.ordered import can_order
from dpsql.rules import across
from dpsql.rules.across import Across, Joined
from dpsql.rules.counted import MOST_COUNTED, Counted
from dpsql.rules.counted import stored as stored_counted
from dpsql.rules.grammar import MOST_RULES, Rule, stored

Kind = Literal["one", "pair", "across", "sibling", "first", "next", "gap"]
MOST_TABLES = 64
MOST_BLOCKS = 200_000
MOST_ROWS = 1 << 20
"""Rows of a table that one parent row may have."""
WEIGHTS = (
    1, 2, 6, 12, 60, 120, 360, 840, 2_520, 5_040, 10_080, 20_160, 27_720, 55_440, 110_880, 166_320, 332_640, 720_720, 1_441_440,
    2_162_160, 4_324_320, 8_648_640, 17_297_280,
)  # fmt: skip
"""What a unit may weigh: numbers with many divisors, so that shares of small families are exact."""
NUMBERED = ("integer", "text", "uuid")
"""Families of types that new keys can have: whole numbers, texts of them, UUIDs that end with them."""
_FIELDS = {
    "source", "name", "parent", "most", "orphans", "link", "referred", "keys", "primary", "foreign", "columns", "domain", "rules",
    "checks",
}  # fmt: skip


@dataclass(frozen=True)
class LinkedColumn:
    """A column of a table that is written: name, type, and whether it is NOT NULL."""

    name: str
    sql_type: str
    required: bool


@dataclass(frozen=True)
class LinkedTable:
    """One table of a release of linked tables.

    Parameters
    ----------
    source : str
        As the books call it.
    name : str
        As the catalog spells it: what its synthetic copy is called.
    parent : int or None
        Place of its parent among the tables; None for the root.
    most : int
        Rows that one row of the parent may have; 1 for the root.
    groups : tuple of int
        Numbers of rows with which groups of parent rows begin (`dpsql.methods.nested_classes.cut`). A plan has none but (1,); the
        groups are cut from released numbers of rows and kept with these (`dpsql.release.refined`). Empty: those of the parent.
    orphans : {'drop', 'unit'}
        As declared. Here rows without a parent are left out in either case: no row could stand above them.
    link, referred : str or None
        The column that holds the key of the parent's row, and the parent's column; None for the root.
    keys : tuple of str
        Columns that are numbered anew: those that links point to, and a PRIMARY KEY of one column. The link may be one of them,
        where a row of the parent has one row at most.
    primary : str or None
        The column of `keys` that is the PRIMARY KEY.
    foreign : bool
        Whether the link is a FOREIGN KEY of the schema.
    columns : tuple of LinkedColumn
        What is written, in the order of the source: keys, the link, and the columns of the domain.
    domain : Domain
        Of the declared columns.
    rules : tuple of str
        Rules that every row obeys, in the canonical text of `dpsql.rules.grammar`.
    checks : tuple of str
        Those of them that are CHECK constraints.
    across : tuple of str
        Rules that every row obeys together with the rows above it, in the canonical text of `dpsql.rules.across`.
    counted : tuple of str
        Rules that the rows of one parent row obey together, in the canonical text of `dpsql.rules.counted`.
    order : str or None
        The declared column, with bins, in whose order the rows of one parent row stand.
    """

    source: str
    name: str
    parent: int | None
    most: int
    orphans: str
    link: str | None
    referred: str | None
    keys: tuple[str, ...]
    primary: str | None
    foreign: bool
    columns: tuple[LinkedColumn, ...]
    domain: Domain
    rules: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    order: str | None = None
    across: tuple[str, ...] = ()
    counted: tuple[str, ...] = ()
    groups: tuple[int, ...] = (1,)

    def to_json(self) -> dict[str, Any]:
        """Return plain values that ``from_json`` reads back."""
        return {
            "source": self.source,
            "name": self.name,
            "parent": self.parent,
            "most": self.most,
            "orphans": self.orphans,
            "link": self.link,
            "referred": self.referred,
            "keys": list(self.keys),
            "primary": self.primary,
            "foreign": self.foreign,
            "columns": [[column.name, column.sql_type, column.required] for column in self.columns],
            "domain": self.domain.to_json(),
            "rules": list(self.rules),
            "checks": list(self.checks),
            # Fields that came later are written where they say something: older releases keep their hash.
            **({} if self.order is None else {"order": self.order}),
            **({"across": list(self.across)} if self.across else {}),
            **({"counted": list(self.counted)} if self.counted else {}),
        }

    @classmethod
    def from_json(cls, item: Mapping[str, Any]) -> LinkedTable:
        """Read what ``to_json`` wrote; `LinkedPlan.check` says whether it fits the others."""
        _require(isinstance(item, dict) and set(item) - {"order", "across", "counted"} == _FIELDS)
        lists = ("keys", "columns", "rules", "checks", "across", "counted")
        _require(all(isinstance(item.get(name, []), list) for name in lists))
        return cls(**{
            **item,
            "keys": tuple(item["keys"]),
            "columns": tuple(LinkedColumn(*column) for column in item["columns"]),
            "domain": Domain.from_json(item["domain"]),
            "rules": tuple(item["rules"]),
            "checks": tuple(item["checks"]),
            "across": tuple(item.get("across", ())),
            "counted": tuple(item.get("counted", ())),
        })  # fmt: skip

    @property
    def order_place(self) -> int | None:
        """The position of the column of the order in the domain."""
        return None if self.order is None else self.domain.names.index(self.order)


@dataclass(frozen=True)
class LinkedPlan:
    """What a release of linked tables measures.

    Parameters
    ----------
    tables : tuple of LinkedTable
        The root first, parents before children.
    blocks : tuple of Block
        What is measured, in the order of the released integers.
    weight : int
        W: what a unit adds to a block, at most. A released integer over W is a number of units.
    independent : bool
        Whether each table is measured by itself alone. Then every row of a table weighs the same (`one`).
    """

    tables: tuple[LinkedTable, ...]
    blocks: tuple[Block, ...]
    weight: int
    independent: bool = False

    @cached_property
    def domain(self) -> Domain:
        """The attributes of all tables, one table after the other: their places are those of fine columns."""
        return Domain(tuple(attribute for table in self.tables for attribute in table.domain.attributes))

    def place(self, table: int, column: int) -> int:
        """Return the place of a column of a table in `domain`."""
        return sum(len(earlier.domain.attributes) for earlier in self.tables[:table]) + column

    def one(self, block: Block) -> int:
        """Return what a released integer of a block is divided by: then it is a number of units, of independent tables of rows."""
        return self.weight // self.most_rows(block.table) if self.independent else self.weight

    @property
    def weighing(self) -> str:
        """What rows weigh, in words."""
        each = "a unit's weight over the rows that links allow it" if self.independent else "1/k of its parent's row"
        of = "table" if self.independent else "family of k"
        return f"every row of a {of} weighs {each}: each unit weighs at most 1 in every table"

    def most_rows(self, table: int) -> int:
        """Return how many rows of a table a unit may have."""
        return math.prod(self.tables[place].most for place in (table, *self.ancestors(table)))

    def with_domain(self, domain: Domain) -> LinkedPlan:
        """Return the plan with other attributes, in the places of `domain`: those whose bins are cut have fewer codes, perhaps."""
        left = iter(domain.attributes)
        tables = (replace(table, domain=Domain(tuple(next(left) for _ in table.domain.attributes))) for table in self.tables)
        return replace(self, tables=tuple(tables))

    def with_groups(self, groups: Sequence[Sequence[int]]) -> LinkedPlan:
        """Return the plan with groups of parent rows for each table, as they were cut.

        Raises
        ------
        ValueError
            They are none that could have been cut.
        """
        _require(len(groups) == len(self.tables))
        for table, starts in zip(self.tables, groups, strict=True):
            _require(len(starts) <= GROUPS and all(_whole(start) for start in starts) and (len(starts) > 0 or bool(table.parent)))
            _require(not self.independent or len(starts) == 1)
            _require(not starts or (starts[0] == 1 and list(starts) == sorted({*starts}) and starts[-1] <= table.most))
        tables = (replace(table, groups=tuple(starts)) for table, starts in zip(self.tables, groups, strict=True))
        return replace(self, tables=tuple(tables))

    @property
    def most_cells(self) -> int:
        """Cells of all blocks, where each table has as many groups as there may be."""
        split = ("pair", "across", "sibling")
        times = (GROUPS if block.kind in split and block.table > 0 and not self.independent else 1 for block in self.blocks)
        return sum(length * most for length, most in zip(self.lengths, times, strict=True))

    def fan_outs(self) -> list[int]:
        """Return the places of the blocks of numbers of rows: they are released first, and groups are cut from them."""
        sizes = [len(table.domain.attributes) for table in self.tables]
        return [place for place, b in enumerate(self.blocks) if b.kind == "one" and b.left[1] >= sizes[b.left[0]]]

    def only(self, places: Sequence[int]) -> LinkedPlan:
        """Return the plan with some of its blocks."""
        return replace(self, blocks=tuple(self.blocks[place] for place in places))

    @cached_property
    def shape(self) -> Shape:
        """The sizes of the columns and of the families, for `dpsql.methods.nested_classes`."""
        listed = ((t.name, t.parent, t.domain.sizes, t.most, t.order_place, t.groups) for t in self.tables)
        return Shape(tuple(TableShape(*sizes) for sizes in listed))

    @cached_property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shape of each block."""
        return tuple(tuple(block.shape(self.shape)) for block in self.blocks)

    @cached_property
    def lengths(self) -> tuple[int, ...]:
        """The number of cells of each block."""
        return tuple(math.prod(shape) for shape in self.shapes)

    def to_json(self) -> dict[str, Any]:
        """Return plain values that ``from_json`` reads back."""
        blocks = [[b.kind, list(b.left), None if b.right is None else list(b.right)] for b in self.blocks]
        item = {"weight": self.weight, "tables": [table.to_json() for table in self.tables], "blocks": blocks}
        return {**item, "independent": True} if self.independent else item

    @classmethod
    def from_json(cls, item: Mapping[str, Any]) -> LinkedPlan:
        """Read what ``to_json`` wrote.

        Raises
        ------
        ValueError, TypeError, KeyError, IndexError, DpsqlError
            It is not a plan of linked tables.
        """
        _require(isinstance(item, dict) and set(item) - {"independent"} == {"weight", "tables", "blocks"})
        _require(item.get("independent", True) is True)
        # Sizes first: nothing large is built from a file that is not dpsql's.
        _require(isinstance(item["tables"], list) and 2 <= len(item["tables"]) <= MOST_TABLES)
        _require(isinstance(item["blocks"], list) and 1 <= len(item["blocks"]) <= MOST_BLOCKS)
        blocks = []
        for kind, left, right in item["blocks"]:
            _require(all(place is None or (isinstance(place, list) and len(place) == 2) for place in (left, right)))
            blocks.append(Block(kind, tuple(left), None if right is None else tuple(right)))
        tables = tuple(LinkedTable.from_json(table) for table in item["tables"])
        plan = cls(tables, tuple(blocks), item["weight"], "independent" in item)
        plan.check()
        return plan

    def check(self) -> None:
        """Refuse what dpsql would not have planned: names and types become SQL, sizes take memory.

        Raises
        ------
        ValueError, TypeError, KeyError, IndexError, DpsqlError
        """
        _require(_whole(self.weight) and 1 <= self.weight <= WEIGHTS[-1])
        for place, table in enumerate(self.tables):
            self._check_table(place, table)
        names = [table.name.lower() for table in self.tables]
        _require(len(set(names)) == len(names))
        for block in self.blocks:
            self._check_block(block)
            _require(not self.independent or (block.kind in ("one", "pair") and self.one(block) >= 1))
        _require(not self.independent or all(table.order is None for table in self.tables))

    def _check_table(self, place: int, table: LinkedTable) -> None:
        texts = (table.source, table.name, *table.keys, *(column.name for column in table.columns))
        _require(all(isinstance(text, str) and text and "\0" not in text for text in texts))
        _require(_whole(table.most) and 1 <= table.most <= MOST_ROWS and table.orphans in ("drop", "unit"))
        _require(isinstance(table.foreign, bool))
        names = [column.name for column in table.columns]
        _require(len({name.lower() for name in names}) == len(names))
        _require(all(sqltypes.parse(c.sql_type).text == c.sql_type and isinstance(c.required, bool) for c in table.columns))
        # Keys and links become new numbers in the copy: they have no domain, all other columns have one.
        own = {*table.keys, *([] if table.link is None else [table.link])}
        _require(all(sqltypes.parse(c.sql_type).family in NUMBERED for c in table.columns if c.name in own))
        types = {column.name: column.sql_type for column in table.columns}
        _require(own <= set(names) and (table.primary is None or table.primary in table.keys))
        _require(set(names) - own == set(table.domain.names) and not own & set(table.domain.names))
        _require(all(types[a.name] == a.sql_type for a in table.domain.attributes))
        _require(len(table.rules) <= MOST_RULES and set(table.checks) <= set(table.rules))
        # Rules are kept in the one form in which they are written: any other text was put there by somebody else.
        for text in table.rules:
            rule = stored(text)
            _require(rule.text == text and set(rule.columns) <= set(table.domain.names))
        _require(len(table.across) <= MOST_RULES and (place > 0 or not table.across))
        _require(len(table.counted) <= MOST_COUNTED and (place > 0 or not table.counted))
        for counting in self.counted(place):
            _require(set(counting.columns) <= set(table.domain.names))
        _require([counting.text for counting in self.counted(place)] == list(table.counted))
        if table.order is not None:
            _require(place > 0 and table.order in table.domain.names)
            _require(can_order(table.domain.attributes[table.domain.names.index(table.order)]))
        # The root hangs on nothing; from here on tables that do.
        if place == 0:
            _require(table.parent is None and table.link is None and table.referred is None and table.most == 1)
            return
        _require(_whole(table.parent) and (table.link not in table.keys or table.most == 1))
        assert table.parent is not None and table.link is not None  # noqa: S101 -- for the type checker
        _require(0 <= table.parent < place)
        parent = self.tables[table.parent]
        _require(table.referred in parent.keys)
        _require(types[table.link] == {c.name: c.sql_type for c in parent.columns}[str(table.referred)])
        _require([rule.text for rule in self._across(place)] == list(table.across))
        self.joined(place)

    def _check_block(self, block: Block) -> None:
        _require(block.kind in get_args(Kind) and (block.right is None) == (block.kind in ("one", "first", "gap")))
        for column in (block.left, *([] if block.right is None else [block.right])):
            _require(all(_whole(number) and number >= 0 for number in column) and column[0] < len(self.tables))
            _require(column[1] < len(self.shape.extended(column[0])))
        (a, i), order = block.left, self.tables[block.left[0]].order_place
        if block.kind in ORDERED:
            _require(order is not None and (i == order) == (block.kind == "gap") and i < len(self.tables[a].domain.attributes))
        if block.right is None:
            return
        (a, i), (b, j) = block.left, block.right
        if block.kind == "pair":
            _require(a == b and i < j)
        elif block.kind == "next":
            _require((a, i) == (b, j))
        elif block.kind == "sibling":
            _require(a == b and i <= j and a > 0)
        else:
            _require(a in self.ancestors(b))

    def _across(self, table: int) -> list[Across]:
        return [across.stored(text) for text in self.tables[table].across]

    def counted(self, table: int) -> list[Counted]:
        """Return the rules of a table that count the rows of one parent row."""
        return [stored_counted(text) for text in self.tables[table].counted]

    def joined(self, table: int, rules: Sequence[Across] | None = None) -> Joined:
        """Return rules of a table, by default those across it and those above, as rules of one row.

        Raises
        ------
        KeyError
            A column is not there.
        """
        above = {self.tables[place].name: self.tables[place].domain for place in self.ancestors(table)}
        return across.joined(self._across(table) if rules is None else rules, self.tables[table].domain, above)

    def ancestors(self, table: int) -> list[int]:
        """Return the tables above a table, its parent first."""
        above: list[int] = []
        parent = self.tables[table].parent
        while parent is not None:
            above.append(parent)
            parent = self.tables[parent].parent
        return above

    def below(self, table: int) -> list[int]:
        """Return the tables below a table, parents before children."""
        return [place for place in range(table + 1, len(self.tables)) if table in self.ancestors(place)]

    def every_rule(self, table: int) -> list[Across]:
        """Return the rules of a table and of those above it, as rules of this table: what each of its rows obeys."""
        rules = [across.of_table(stored(text), None) for text in self.tables[table].rules] + self._across(table)
        for place in self.ancestors(table):
            listed: list[Rule | Across] = [stored(text) for text in self.tables[place].rules]
            rules += [across.of_table(rule, self.tables[place].name) for rule in [*listed, *self._across(place)]]
        return rules

    def children(self, table: int) -> list[int]:
        """Return the tables whose parent this table is, in order."""
        return [place for place, child in enumerate(self.tables) if child.parent == table]


def least_share(tables: tuple[LinkedTable, ...], *, pairs: bool = True) -> int:
    """Return the number that a unit's weight is divided by where its families are as large as they may be.

    ``pairs``: whether pairs of rows of one parent row are counted.

    Examples
    --------
    >>> least_share(())
    1
    """
    largest = 1
    for table in tables:
        above = 1
        place: LinkedTable = table
        while place.parent is not None:
            above *= max(place.most * (place.most - 1), 1) if pairs and place is table else place.most
            place = tables[place.parent]
        largest = max(largest, above)
    return largest


def weight_for(largest: float) -> int:
    """Return the largest weight of a unit at which noise of this scale, in units, times the weight stays within a limit of 1.

    Parameters
    ----------
    largest : float
        What the weight may be, at most: the sampler's largest scale over the largest scale in units.

    Examples
    --------
    >>> weight_for(100_000.0), weight_for(0.5)
    (55440, 1)
    """
    return next((weight for weight in reversed(WEIGHTS) if weight <= largest), 1)


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _require(holds: bool) -> None:
    if not holds:
        raise ValueError("not a plan of linked tables")


