"""Rows of one parent in order: what is kept, what is drawn, what is fitted."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from linked_samples import made_up

from dpsql.errors import ArgumentError
from dpsql.methods.nested_classes import GAPS, Block, Ordering, Scale, Shape, TableShape, blocks, draw, order, ordered
from dpsql.methods.nested_classes.lines import Lines
from dpsql.methods.nested_classes.order import _Counts

SHAPE = Shape((TableShape("p", None, (3,)), TableShape("v", 0, (5, 3, 2), most=4, order=0), TableShape("u", 1, (2,), most=2)))
DAYS = Scale(np.array([0.0, 10.0, 20.0, 30.0, 40.0]), 1.0, np.geomspace(1.0, 39.0, GAPS - 1))


def ordering(**terms: float) -> Ordering:
    """Return an order by the first column of `SHAPE`'s visits, whose code 4 is no bin, with random terms of these sizes."""
    rng = np.random.default_rng(1)

    def of(name: str, *shape: int) -> np.ndarray:
        return terms.get(name, 0.0) * rng.standard_normal(shape)

    return Ordering(
        1, 0, DAYS, {i: of("first", size) for i, size in ((1, 3), (2, 2))}, {i: of("after", size, size) for i, size in ((1, 3), (2, 2))},
        {i: of("within", 4, size) for i, size in ((1, 3), (2, 2), (3, 3))}, of("gap", GAPS),
    )  # fmt: skip


@pytest.mark.parametrize("step", [1.0, 0.0])
def test_families_keep_their_rows_and_their_bins(step: float) -> None:
    model = made_up(SHAPE, 3, 1)
    drawn = draw(model, 300, np.random.default_rng(2))[1]
    given = replace(ordering(first=1, after=1, within=1, gap=1), scale=replace(DAYS, step=step))
    lines = Lines(given, drawn.codes.T, drawn.parent, np.random.default_rng(3))
    lines.run()
    at, parent = lines.at, drawn.parent
    assert np.array_equal(np.sort(at), np.arange(at.size))
    assert np.array_equal(parent[at], parent)
    for i, column in lines.columns.items():
        assert np.array_equal(column, drawn.codes[at, i])
    for family in np.unique(parent):
        rows = parent == family
        assert Counter(lines.bins[rows]) == Counter(drawn.codes[rows, 0])
        values = lines.values[rows]
        known = values[~np.isnan(values)]
        assert np.array_equal(np.isnan(values), lines.bins[rows] == 4)
        assert np.all(np.isnan(values[known.size :]))  # they stand last
        assert np.all(np.diff(known) >= 0)
    inside = ~np.isnan(lines.values)
    assert np.array_equal(np.searchsorted(DAYS.bins, lines.values[inside], side="right") - 1, lines.bins[inside])
    if step:
        assert np.array_equal(lines.values[inside], np.round(lines.values[inside]))


def test_orders_come_out_as_often_as_their_terms_say() -> None:
    """All orders of one family, each against its probability: |n - N p| < 7.8 sqrt(N p) for 24 of them. Families are independent; 6.5
    deviations would be exceeded with probability below 1e-8, and the rest is for chains of 32 moves that are not at their end."""
    given, families = ordering(first=0.7, after=0.7, within=0.7), 20_000
    rows = np.array([[0, 1, 1, 3], [0, 1, 2, 1], [0, 0, 1, 1], [0, 2, 1, 0]])
    codes, parent = np.tile(rows.T, (1, 1)), np.repeat(np.arange(families), 4)
    lines = Lines(given, np.ascontiguousarray(np.tile(codes.T, (1, families))), parent, np.random.default_rng(4))
    lines.run()
    found = Counter(map(tuple, (lines.at % 4).reshape(families, 4).tolist()))
    mass = {}
    for places in itertools.permutations(range(4)):
        columns = codes.T[:, places]
        bins = np.sort(codes.T[0])
        energy = sum(given.first[i][columns[i][0]] for i in given.first)
        energy += sum(given.after[i][columns[i][j], columns[i][j + 1]] for i in given.after for j in range(3))
        energy += sum(given.within[i][bins[j], columns[i][j]] for i in given.within for j in range(4))
        mass[places] = float(np.exp(energy))
    total = sum(mass.values())
    for places, one in mass.items():
        wanted = families * one / total
        assert abs(found[places] - wanted) < 6.5 * 1.2 * np.sqrt(wanted), places


def test_distances_come_out_as_often_as_their_terms_say() -> None:
    """Two values of one bin of four days: the six distances' cells against exact shares; a bound as above."""
    scale = Scale(np.array([0.0, 4.0]), 1.0, np.geomspace(1.0, 4.0, GAPS - 1))
    given = Ordering(1, 0, scale, {}, {}, {}, np.random.default_rng(5).standard_normal(GAPS))
    families = 20_000
    lines = Lines(given, np.zeros((1, 2 * families), np.int32), np.repeat(np.arange(families), 2), np.random.default_rng(6))
    lines.run()
    pairs = Counter(map(tuple, lines.values.reshape(families, 2).astype(int).tolist()))
    mass = {}
    for low, high in itertools.combinations_with_replacement(range(4), 2):
        cell = int(lines.cells(np.array([float(high - low)]))[0])
        mass[low, high] = float(np.exp(given.gap[cell]))
    total = sum(mass.values())
    for pair, one in mass.items():
        wanted = families * one / total
        assert abs(pairs[pair] - wanted) < 6.5 * 1.2 * np.sqrt(wanted), pair


def _tables(lines: Lines, parent: np.ndarray, families: int) -> dict[tuple[str, int], np.ndarray]:
    return _Counts(lines, parent, np.ones(families), np.ones(parent.size)).now()


def test_a_known_order_is_found_again() -> None:
    """From exact tables of rows in a known order. Seeded: the same every time."""
    model, units = made_up(SHAPE, 3, 1, contrast=1.0), 6_000
    shape = SHAPE
    truth = replace(model, orders=(ordering(first=1.0, after=1.0, gap=1.0),))
    measured = [block for block in blocks(shape) if block.kind in ("first", "next", "gap")]
    assert [block.kind for block in measured] == ["first", "first", "next", "next", "gap"]

    def tables(given: object, seed: int) -> dict[tuple[str, int], np.ndarray]:
        rows = draw(given, units, np.random.default_rng(seed))[1]  # type: ignore[arg-type]
        lines = Lines(replace(ordering(), gap=np.zeros(GAPS)), rows.codes.T, rows.parent, np.random.default_rng(0))
        lines.at, lines.values = np.arange(rows.parent.size), rows.order if rows.order is not None else lines.values
        lines.columns = {i: rows.codes[:, i].astype(np.intp) for i in lines.columns}
        lines.bins = rows.codes[:, 0].astype(np.intp)
        return _tables(lines, rows.parent, units)

    wanted = tables(truth, 7)
    rows = draw(model, units, np.random.default_rng(9))[1]
    totals = _Counts(Lines(ordering(), rows.codes.T, rows.parent, np.random.default_rng(0)), rows.parent, np.ones(units), np.ones(rows.parent.size)).totals(units)
    exact = [wanted[block.kind, block.left[1]] * totals[block.kind] for block in measured]
    fitted = ordered(model, measured, exact, [0.0] * len(measured), {1: DAYS}, 1)
    assert fitted.orders[0].column == 0
    without = replace(model, orders=(ordering(),))
    for key, table in wanted.items():
        near, far = (0.5 * np.abs(tables(one, 8)[key] - table).sum() for one in (fitted, without))
        if key[0] != "within":
            assert near < 0.03, key
            assert near < 0.5 * far, key
    as_drawn, now = (tables(one, 8) for one in (model, fitted))
    for key, table in as_drawn.items():
        if key[0] == "within":  # what the bin says of the row's columns is kept
            assert 0.5 * np.abs(now[key] - table).sum() < 0.03, key


def test_noise_alone_is_not_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables of rows in no order, with noise: the terms stay small. Seeded."""
    monkeypatch.setattr(order, "_MOST_UNITS", 4_000)
    model = made_up(SHAPE, 3, 1, contrast=1.0)
    rng, measured = np.random.default_rng(9), [b for b in blocks(SHAPE) if b.kind in ("first", "next", "gap")]
    flat = ordered(model, measured, [np.full(b.shape(SHAPE), 0.0) for b in measured], [1.0] * len(measured), {1: DAYS}, 1)
    noisy = [rng.normal(0, 1.0, b.shape(SHAPE)) for b in measured]
    wild = ordered(model, measured, noisy, [1.0] * len(measured), {1: DAYS}, 1)
    again = ordered(model, measured, noisy, [1.0] * len(measured), {1: DAYS}, 1)
    assert np.array_equal(wild.orders[0].gap, again.orders[0].gap)
    for found in (flat, wild):
        terms = [*found.orders[0].first.values(), *found.orders[0].after.values()]
        assert max(float(np.abs(term).max()) for term in terms) < 1.5


def test_rows_below_follow_their_rows() -> None:
    model = made_up(SHAPE, 3, 1)
    found = draw(replace(model, orders=(ordering(first=2, after=2),)), 200, np.random.default_rng(1))
    assert np.array_equal(np.bincount(found[2].parent, minlength=len(found[1].codes)), found[1].codes[:, 3])
    assert found[1].order is not None
    assert found[2].order is None


def test_no_rows_and_single_rows() -> None:
    for parent in (np.zeros(0, np.int64), np.arange(3)):
        lines = Lines(ordering(gap=1.0), np.zeros((4, parent.size), np.int32), parent, np.random.default_rng(1))
        lines.run()
        assert lines.at.size == parent.size == lines.values.size


def test_an_order_is_of_a_column_of_a_child() -> None:
    with pytest.raises(ArgumentError, match="order"):
        Shape((TableShape("p", None, (3,), order=0),))
    with pytest.raises(ArgumentError, match="order"):
        Shape((TableShape("p", None, (3,)), TableShape("v", 0, (2,), most=2, order=1)))
    assert Block("gap", (1, 0)).shape(SHAPE) == (GAPS,)
    one = Shape((TableShape("p", None, (3,)), TableShape("v", 0, (2, 2), most=1, order=0)))
    assert not [block for block in blocks(one) if block.kind in ("first", "next", "gap")]
