"""What a release of a query measures: groups, measures over them, how a unit's rows are bounded. Decided before a row is read.

Privacy: None: plans are public; `numbers` is post-processing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from types import NoneType
from typing import Any

import numpy as np

from dpsql.domains import sqltypes
from dpsql.errors import ReleaseError
from dpsql.estimates.leaves import Cutting, Units, depth
from dpsql.estimates.magnitudes import Learning
from dpsql.estimates.measures import Measure
from dpsql.estimates.picks import Picking
from dpsql.numerics.arrays import IntArray

MOST_KEYS = 64
MOST_MEASURES = 1_000
MOST_GROUPS = 1_000_000
"""Public groups of one query, at most."""
MOST_COUNTERS = 20_000_000
"""Counters of all groups of one query, at most."""
_FIELDS = {
    "keys", "measures", "public", "groups", "groups_sql", "unit", "max_rows", "max_groups", "max_rows_per_group", "min_units",
    "threshold", "delta", "selecting", "asked",
}
_LISTS = ("learning", "cutting", "counting", "picking")
_NO_GROUPS = "a release of a query names groups that are none; restore it from a backup"
_JSON = json.JSONEncoder(ensure_ascii=False)
_OPTIONAL = (*_LISTS, "different", "other", "lost", "partial")


@dataclass(frozen=True)
class Counting:
    """What a row has to be to count somewhere.

    Parameters
    ----------
    filter : int or None
        Position of a condition that is true of it.
    arguments : tuple of int
        Positions of arguments that are not NULL.
    """

    filter: int | None = None
    arguments: tuple[int, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return plain values that ``from_json`` reads back."""
        return {"filter": self.filter, "arguments": list(self.arguments)}

    @classmethod
    def from_json(cls, item: Mapping[str, Any]) -> Counting:
        """Read what ``to_json`` wrote; ValueError: it is none."""
        _require(isinstance(item, dict) and set(item) == {"filter", "arguments"} and isinstance(item["arguments"], list))
        places = [*item["arguments"], *([] if item["filter"] is None else [item["filter"]])]
        _require(all(isinstance(place, int) and not isinstance(place, bool) and place >= 0 for place in places))
        return cls(item["filter"], tuple(item["arguments"]))


@dataclass(frozen=True)
class QueryPlan:
    """What a release of a query measures.

    Parameters
    ----------
    keys : tuple of str
        SQL types of the group keys; empty where there is one group.
    measures : tuple of Measure
    public : bool
        Whether the groups are known without the data: then all of them are released, the empty ones too. Else those whose noisy
        number of units reaches ``threshold``.
    groups : int or None
        Number of public groups.
    groups_sql : str
        A SELECT of the public groups, as columns k0, k1, ..., which reads no table; '' for private ones.
    unit : bool
        Whether rows are bounded by privacy unit; else every row is one.
    max_rows, max_groups, max_rows_per_group : int or None
        How rows of one unit are bounded: in all, or by groups.
    different : bool
        Whether rows of a unit that are equal in all that is counted are one row, before they are bounded: numbers of different
        things alone are asked for.
    counting : tuple of Counting
        Only rows that are one of these are bounded, and count; empty: all.
    min_units, threshold, delta, selecting
        Of private groups: fewest units of a released group; what its noisy number of units has to reach; the probability that a
        group of fewer units is released; which measure counts units. None for public groups.
    asked : tuple of str
        The aggregates that were asked for, as texts.
    learning : tuple of Learning
        Histograms that are released before the measures, from which bounds of variables are chosen (`dpsql.release.learned`).
    cutting : tuple of Cutting
        The same for leaves of trees, of the measures with units (`dpsql.estimates.leaves`).
    picking : tuple of Picking
        Quantiles that are drawn for each group that is released, beside the trees.
    other : tuple of int
        Keys of public groups of which one, `OTHER_LABEL`, has all rows whose value is not listed.
    lost : tuple of str
        Columns with values that are not listed, or not declared, whose rows may be in no public group.
    partial : tuple of str
        Aggregates over a list of values of which rows may have others.
    """

    keys: tuple[str, ...]
    measures: tuple[Measure, ...]
    public: bool
    groups: int | None
    groups_sql: str
    unit: bool
    max_rows: int | None
    max_groups: int | None
    max_rows_per_group: int | None
    min_units: int | None = None
    threshold: int | None = None
    delta: str | None = None
    selecting: int | None = None
    asked: tuple[str, ...] = ()
    learning: tuple[Learning, ...] = ()
    cutting: tuple[Cutting, ...] = ()
    different: bool = False
    counting: tuple[Counting, ...] = ()
    other: tuple[int, ...] = ()
    picking: tuple[Picking, ...] = ()
    lost: tuple[str, ...] = ()
    partial: tuple[str, ...] = ()

    @property
    def early(self) -> bool:
        """Whether something is released before the measures."""
        return bool(self.learning or self.cutting or self.picking)

    @property
    def histograms(self) -> int:
        """Number of histograms that are released before the measures; picked quantiles come after them."""
        return len(self.learning) + len(self.cutting)

    @property
    def blocks(self) -> tuple[int, ...]:
        """Number of counters of each block of equal noise in one group."""
        return tuple(length for measure in self.measures for length in measure.lengths)

    def blocks_of(self, place: int) -> slice:
        """Return which blocks belong to a measure."""
        first = sum(len(measure.lengths) for measure in self.measures[:place])
        return slice(first, first + len(self.measures[place].lengths))

    def cells(self, cutting: Cutting) -> tuple[Units, str]:
        """Return the units and the mechanism of the histograms that leaves are cut from."""
        units = self.measures[cutting.place].units
        if units is None:
            raise ReleaseError("the plan cuts leaves of a measure that has none")
        return units, cutting.mechanism

    def to_json(self) -> dict[str, Any]:
        """Return plain values that ``from_json`` reads back, exactly."""
        return {
            "keys": list(self.keys),
            "measures": [measure.to_json() for measure in self.measures],
            "public": self.public,
            "groups": self.groups,
            "groups_sql": self.groups_sql,
            "unit": self.unit,
            "max_rows": self.max_rows,
            "max_groups": self.max_groups,
            "max_rows_per_group": self.max_rows_per_group,
            "min_units": self.min_units,
            "threshold": self.threshold,
            "delta": self.delta,
            "selecting": self.selecting,
            "asked": list(self.asked),
            **({"learning": [part.to_json() for part in self.learning]} if self.learning else {}),
            **({"cutting": [part.to_json() for part in self.cutting]} if self.cutting else {}),
            **({"different": True} if self.different else {}),
            **({"counting": [part.to_json() for part in self.counting]} if self.counting else {}),
            **({"other": list(self.other)} if self.other else {}),
            **({"lost": list(self.lost)} if self.lost else {}),
            **({"partial": list(self.partial)} if self.partial else {}),
            **({"picking": [part.to_json() for part in self.picking]} if self.picking else {}),
        }

    @classmethod
    def from_json(cls, item: Mapping[str, Any]) -> QueryPlan:
        """Read what ``to_json`` wrote.

        Raises
        ------
        ValueError, TypeError, KeyError, DpsqlError
            It is not a plan of a query.
        """
        _require(isinstance(item, dict) and set(item) - set(_OPTIONAL) == _FIELDS)
        learning, cutting, counting, picking = (item.get(name, []) for name in _LISTS)
        _require(item.get("different", True) is True)
        _require(all(isinstance(part, list) and len(part) <= MOST_MEASURES for part in (learning, cutting, counting, picking)))
        keys, measures, asked = item["keys"], item["measures"], item["asked"]
        other = item.get("other", [])
        lost, partial = item.get("lost", []), item.get("partial", [])
        for names in (lost, partial):
            _require(isinstance(names, list) and len(names) <= MOST_MEASURES and all(isinstance(name, str) for name in names))
        _require(isinstance(other, list) and (not other or item["public"] is True))
        _require(all(type(place) is int and 0 <= place < len(keys) for place in other))
        _require(all(isinstance(listed, list) for listed in (keys, measures, asked)))
        _require(len(keys) <= MOST_KEYS and 1 <= len(measures) <= MOST_MEASURES and len(asked) <= MOST_MEASURES)
        _require(all(isinstance(kind, str) and sqltypes.parse(kind).family != "other" for kind in keys))
        _require(all(isinstance(text, str) for text in asked) and isinstance(item["groups_sql"], str))
        _require(isinstance(item["public"], bool) and isinstance(item["unit"], bool))
        for name in ("max_rows", "max_groups", "max_rows_per_group", "min_units", "groups", "threshold", "selecting"):
            _require(item[name] is None or (isinstance(item[name], int) and not isinstance(item[name], bool) and item[name] >= 0))
        # Groups are public and few, or unknown and then kept by a threshold.
        known = item["groups"] is not None and item["groups"] <= MOST_GROUPS
        _require(known if item["public"] else item["threshold"] is not None)
        _require(item["delta"] is None or isinstance(item["delta"], str))
        plan = cls(
            **{
                **item,
                "keys": tuple(keys),
                "measures": tuple(Measure.from_json(measure) for measure in measures),
                "asked": tuple(asked),
                "learning": tuple(Learning.from_json(part) for part in learning),
                "other": tuple(other),
                "lost": tuple(lost),
                "partial": tuple(partial),
                "cutting": tuple(Cutting.from_json(part) for part in cutting),
                "counting": tuple(Counting.from_json(part) for part in counting),
                "picking": tuple(Picking.from_json(part) for part in picking),
            }
        )
        # What only the whole plan can say: that its parts refer to what is there.
        _require([part.place for part in plan.cutting] == [i for i, m in enumerate(plan.measures) if m.units is not None])
        _require(all(part.place < len(measures) and plan.measures[part.place].kind == "tree" for part in plan.picking))
        learns = [plan.measures[part.place].variables[0].learned is not None for part in plan.picking]
        _require([part.units is None for part in plan.picking] == learns)
        _require(all(len(part.scales) == depth(*plan.cells(part))[1] for part in plan.cutting))
        _require(all((v.learned or 0) < max(1, len(learning)) for measure in plan.measures for v in measure.variables))
        _require(bool(learning) or all(v.learned is None for measure in plan.measures for v in measure.variables))
        _require(item["public"] or (item["selecting"] is not None and item["selecting"] < len(measures)))
        _require(not item["public"] or (item["groups"] or 0) * sum(plan.blocks) <= MOST_COUNTERS)
        return plan


@dataclass(frozen=True)
class Numbers:
    """What a release of a query holds.

    Parameters
    ----------
    groups : list of tuples
        The texts of each group's keys, None for NULL, in the order of the answer.
    blocks : list of int64 arrays, shape (groups, counters)
        One for each block of the plan.
    """

    groups: list[tuple[str | None, ...]]
    blocks: list[IntArray]


def flat(plan: QueryPlan, groups: list[tuple[str | None, ...]], blocks: list[IntArray]) -> tuple[IntArray, list[str]]:
    """Return the integers of a release in a row, block by block, and the texts that stand beside them.

    These are a group's keys with the first counter of the first block, nothing with the others.
    """
    joined = np.concatenate([block.reshape(-1) for block in blocks]) if blocks else np.zeros(0, np.int64)
    values = [""] * joined.size
    each = plan.blocks[0]
    values[: len(groups) * each : each] = [_keys_text(keys) for keys in groups]
    return joined, values


def _keys_text(keys: tuple[str | None, ...]) -> str:
    """Return a group's keys as JSON, text by text: of a list, Python would make an encoder for each of a million groups."""
    return f"[{', '.join(['null' if key is None else _JSON.encode(key) for key in keys])}]"


def numbers(plan: QueryPlan, integers: IntArray, values: tuple[str, ...]) -> Numbers:
    """Return what `flat` was made of.

    Raises
    ------
    ReleaseError
        They do not fit the plan: the file was edited.
    """
    each = sum(plan.blocks)
    count = integers.size // each
    if count * each != integers.size or (plan.public and count != plan.groups):
        raise ReleaseError("a release of a query holds other numbers than its plan says; restore it from a backup")
    ends = np.cumsum([0, *(count * length for length in plan.blocks)])
    cut = zip(ends[:-1], ends[1:], plan.blocks, strict=True)
    blocks = [integers[a:b].reshape(count, length) for a, b, length in cut]  # of no groups, too
    first = values[: count * plan.blocks[0] : plan.blocks[0]]
    try:
        groups = [tuple(keys) for keys in json.loads(f"[{','.join(first)}]")]
    except (ValueError, TypeError):
        raise ReleaseError(_NO_GROUPS) from None
    texts = (str, NoneType)
    if len(groups) != count or any(len(keys) != len(plan.keys) for keys in groups):
        raise ReleaseError(_NO_GROUPS)
    if not all(isinstance(key, texts) for key in chain.from_iterable(groups)):
        raise ReleaseError(_NO_GROUPS)
    if any(len(pick.found) not in (0, count) for pick in plan.picking):
        raise ReleaseError("a release of a query has quantiles of other groups than it names; restore it from a backup")
    return Numbers(groups, blocks)


def _require(holds: bool) -> None:
    if not holds:
        raise ValueError("not a plan of a query")
