"""Measures: their JSON, their counters, and their sensitivity against a search over all that one unit can do."""

import itertools
import json
import math

import numpy as np
import pytest
from estimate_counters import bernstein
from pairwise import grid

from dpsql.errors import ArgumentError
from dpsql.estimates.measures import Measure, Variable, sensitivity

SIGNED, POSITIVE = Variable(0, -3.0, 5.0), Variable(0, 0.0, 5.0)
ALL = [
    Measure("count", filter=2),
    Measure("moments", (SIGNED,), degree=2, nulls=True, grid=8),
    Measure("moments", (SIGNED, POSITIVE), degree=1, grid=4),
    Measure("scaled", (SIGNED,), grid=10),
    Measure("scaled", (POSITIVE,), grid=10),
    Measure("values", (Variable(3),), values=("a", "b", "c")),
    Measure("tree", (Variable(0, 0, 9, whole=True),), levels=(2, 3)),
    Measure("units"),
    Measure("distinct", (Variable(1),)),
    Measure("values", (Variable(3),), values=("a", "b", "c"), once=True),
    Measure("moments", (POSITIVE,), nans=True, grid=8),
    Measure("moments", (SIGNED,), nans=True, nulls=True, grid=8),
]


@pytest.mark.parametrize("measure", ALL, ids=lambda m: m.kind)
def test_json_gives_the_same_measure(measure: Measure) -> None:
    assert Measure.from_json(json.loads(json.dumps(measure.to_json()))) == measure
    assert measure.grid == (measure.grid if measure.kind in ("moments", "scaled") else 1)


def test_lengths_and_widths() -> None:
    assert [measure.lengths for measure in ALL] == [(1,), (4,), (4,), (1,), (1,), (3,), (2, 6), (1,), (1,), (3,), (3,), (4,)]
    assert ALL[6].width == 2.0 and Measure("tree", (SIGNED,), levels=(4,)).width == 2.0


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"kind": "mean"}, "kind"),
        ({"kind": "count", "variables": (SIGNED,)}, "variables"),
        ({"kind": "moments"}, "variables"),
        ({"kind": "moments", "variables": (SIGNED,), "degree": 3}, "degree"),
        ({"kind": "scaled", "variables": (SIGNED,), "nulls": True}, "nulls"),
        ({"kind": "scaled", "variables": (SIGNED,), "nans": True}, "nans"),
        ({"kind": "moments", "variables": (SIGNED, SIGNED), "nans": True}, "nans"),
        ({"kind": "scaled", "variables": (SIGNED,), "grid": 0}, "grid"),
        ({"kind": "scaled", "variables": (SIGNED,), "grid": 2**31}, "grid"),
        ({"kind": "values", "variables": (SIGNED,)}, "values"),
        ({"kind": "values", "variables": (SIGNED,), "values": ("a", "a")}, "values"),
        ({"kind": "tree", "variables": (SIGNED,)}, "levels"),
        ({"kind": "tree", "variables": (SIGNED,), "levels": (4, 1)}, "levels"),
        ({"kind": "tree", "variables": (SIGNED,), "levels": (2**12, 2**12)}, "levels"),
        ({"kind": "count", "filter": -1}, "filter"),
        ({"kind": "count", "once": True}, "once"),
        ({"kind": "values", "variables": (SIGNED,), "values": ("a",), "once": 1}, "once"),
    ],
)
def test_what_does_not_fit_is_refused(fields: dict[str, object], named: str) -> None:
    with pytest.raises(ArgumentError, match=f"^{named}"):
        Measure(**fields)  # type: ignore[arg-type]


def test_variables_are_checked() -> None:
    for wrong in ((0, 1.0, 1.0), (0, -math.inf, 1.0), (0, -1.7e308, 1.7e308), (-1, 0.0, 1.0), (True, 0.0, 1.0), (0, 0.5, 2.0, True)):
        with pytest.raises(ArgumentError):
            Variable(*wrong)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="fields"):
        Variable.from_json({"position": 0})


def _row_vectors(measure: Measure) -> list[tuple[int, ...]]:
    """Return the vectors that one row can add: all of them, or the extreme ones and some between."""
    (length,) = {measure.lengths[-1]}
    if measure.kind == "moments":
        ends = [np.linspace(v.lower, v.upper, 3) for v in measure.variables]
        rows = np.array(list(itertools.product(*ends)))
        found = bernstein(measure.variables, measure.degree, rows, measure.grid)
        assert (found.sum(axis=1) == measure.grid).all() and (found >= 0).all()
        more = measure.nulls + measure.nans
        extra = [tuple(measure.grid * (i == length - 1 - j) for i in range(length)) for j in range(more)]
        return [tuple(row) + (0,) * more for row in found.tolist()] + extra
    if measure.kind == "scaled":
        unit = measure.variables[0].magnitude
        return [(round(x / unit * measure.grid),) for x in (measure.variables[0].lower, 0.0, 1.0, measure.variables[0].upper)]
    return [tuple(int(i == j) for i in range(length)) for j in range(length)]


def _unit_vectors(measure: Measure, rows: int | None, groups: int | None, each: int | None, cells: int) -> set[tuple[int, ...]]:
    """Return all vectors, over ``cells`` groups, that a unit of at most three rows within the bounds can add."""
    single = _row_vectors(measure)
    blank = (0,) * len(single[0])
    most = 3 if rows is None else min(rows, 3)
    found = set()
    for n in range(most + 1):
        for places in itertools.combinations_with_replacement(range(cells), n):
            taken = [places.count(g) for g in range(cells)]
            if (groups is not None and sum(map(bool, taken)) > groups) or (each is not None and max(taken) > each):
                continue
            for vectors in itertools.product(single, repeat=n):
                table = [list(blank) for _ in range(cells)]
                for place, vector in zip(places, vectors, strict=True):
                    added = [a + b for a, b in zip(table[place], vector, strict=True)]
                    table[place] = [min(x, 1) for x in added] if measure.kind == "units" or measure.once else added
                found.add(tuple(x for row in table for x in row))
    return found


@grid(
    neighbors=["add_remove", "replace_one"],
    bounds=[(1, None, None), (2, None, None), (3, None, 2), (3, 1, 2), (None, 2, 1), (None, 1, 3), (3, 2, None)],
    measure=[m for m in ALL if m.kind != "distinct" and m.lengths[0] < 4] + [ALL[1], ALL[-1]],
    ids=lambda value: getattr(value, "kind", str(value)),
)
def test_no_unit_does_more_and_some_unit_does_as_much(
    measure: Measure, bounds: tuple[int | None, int | None, int | None], neighbors: str
) -> None:
    cells = 2 if measure.lengths[-1] > 1 else 4
    vectors = np.array(sorted(_unit_vectors(measure, *bounds, cells)))
    for grouped in (True, False):
        held = vectors if grouped else vectors[(vectors.reshape(len(vectors), cells, -1)[:, 1:] == 0).all(axis=(1, 2))]
        moved = held if neighbors == "add_remove" else (held[:, None] - held[None]).reshape(-1, held.shape[1])
        l1, l2 = sensitivity(measure, *bounds, neighbors, grouped=grouped)
        assert np.abs(moved).sum(axis=1).max() <= l1 and np.sqrt((moved**2).sum(axis=1)).max() <= l2 * (1 + 1e-15)
        if neighbors == "add_remove" and (measure.kind != "units" or not grouped or bounds[1] is not None):
            reached = np.sqrt((moved**2).sum(axis=1)).max()
            # two groups are fewer than some bounds allow, but with their values no fewer than there are rows
            assert reached == pytest.approx(l2, rel=1e-12) or (cells < 3 and not measure.once)
        if not grouped and measure.kind in ("count", "scaled") and not (measure.signed and neighbors == "replace_one"):
            assert np.abs(moved).max() == l1 == l2


def test_distinct_values_move_by_what_is_charged() -> None:
    """The others' values shield the unit's own: exhaustive over tables of two groups."""
    measure = Measure("distinct", (Variable(0),))
    values = [(g, v) for g in range(2) for v in range(2)]
    units = [set(s) for n in range(3) for s in itertools.combinations(values, n)]
    most = {"add_remove": 0.0, "replace_one": 0.0}
    for others in units:
        counted = [[len([1 for g, _ in others | unit if g == group]) for group in range(2)] for unit in units]
        base = [len([1 for g, _ in others if g == group]) for group in range(2)]
        for a in counted:
            most["add_remove"] = max(most["add_remove"], math.dist(a, base))
            most["replace_one"] = max(most["replace_one"], *(math.dist(a, b) for b in counted))
    for neighbors, moved in most.items():
        assert moved <= sensitivity(measure, 2, None, None, neighbors)[1] and moved >= 2.0


def test_bounds_are_needed() -> None:
    for bounds in ((None, None, None), (None, 3, None), (None, None, 3)):
        with pytest.raises(ArgumentError, match="max_rows"):
            sensitivity(Measure("count"), *bounds)
    assert sensitivity(Measure("units"), None, 4) == (4.0, 2.0)
    assert sensitivity(Measure("count"), None, None, 7, grouped=False) == (7.0, 7.0)
    with pytest.raises(ArgumentError, match="neighbors"):
        sensitivity(Measure("count"), 1, neighbors="swap")
