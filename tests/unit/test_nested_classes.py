"""Nested classes: what is measured, the model's tables against rows, gradients, recovery."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from linked_samples import BELOW, DEEP, HOMES, MANY, counted, independent_rows, made_up
from pairwise import WHOLE, in_turn

from dpsql.errors import ArgumentError
from dpsql.methods.nested_classes import (
    Block,
    NestedClasses,
    Shape,
    TableShape,
    blocks,
    expected,
    fit,
    fit_apart,
    shares,
    total,
    unfolded,
)
from dpsql.methods.nested_classes.descent import Descent, Pull
from dpsql.methods.nested_classes.model import parted, slices
from dpsql.methods.nested_classes.targets import targets

ONE_CHILD = Shape((TableShape("a", None, (3,)), TableShape("b", 0, (2, 3), most=1)))
TWO_CHILDREN = Shape((TableShape("a", None, (2, 3)), TableShape("b", 0, (3, 2), most=4), TableShape("c", 0, (2,), most=3)))
ALONE = Shape((TableShape("a", None, (2, 3, 4)),))
ONE_VALUE = Shape((TableShape("a", None, (1, 2)), TableShape("b", 0, (1,), most=2), TableShape("c", 1, (), most=2)))
SHAPES = (HOMES, MANY, BELOW, DEEP, ONE_CHILD, TWO_CHILDREN, ALONE, ONE_VALUE)


def _distances(shape: Shape, model: NestedClasses, truth: dict[Block, np.ndarray]) -> dict[str, float]:
    """Return the mean distance of each kind of block."""
    found: dict[str, list[float]] = {}
    for block, table in truth.items():
        found.setdefault(block.kind, []).append(0.5 * np.abs(expected(model, block) - table).sum() / table.sum())
    return {kind: float(np.mean(values)) for kind, values in found.items()}


def _fitted(shape: Shape, deviation: float, seed: int = 3) -> tuple[NestedClasses, dict[Block, np.ndarray]]:
    model, rng = made_up(shape, 4, 1), np.random.default_rng(seed)
    truth = {block: expected(model, block) for block in blocks(shape)}
    noisy = [table + deviation * rng.standard_normal(table.shape) for table in truth.values()]
    return fit(shape, list(truth), noisy, [deviation] * len(truth), 1e5, "fast"), truth


def test_blocks_of_homes() -> None:
    kinds = [block.kind for block in blocks(HOMES)]
    assert {kind: kinds.count(kind) for kind in set(kinds)} == {"one": 6, "pair": 6, "across": 9, "sibling": 6}
    assert Block("across", (0, 2), (1, 1)) in blocks(HOMES)
    assert Block("across", (0, 2), (1, 1)).shape(HOMES) == (6, 5)


def test_no_siblings_where_a_parent_has_one_row_and_no_blocks_of_one_code() -> None:
    assert not [block for block in blocks(ONE_CHILD) if block.kind == "sibling"]
    assert all(min(block.shape(ONE_VALUE)) > 1 for block in blocks(ONE_VALUE))


@pytest.mark.parametrize("shape", SHAPES)
def test_shares_add_up(shape: Shape) -> None:
    found = shares(shape, blocks(shape))
    assert found.min() > 0.0
    assert found.sum() == pytest.approx(1.0)


@pytest.mark.parametrize(
    "tables",
    [
        (),
        (TableShape("a", 0, (2,)),),
        (TableShape("a", None, (2,)), TableShape("b", 1, (2,), most=2)),
        (TableShape("a", None, (2,)), TableShape("b", None, (2,))),
        (TableShape("a", None, (2,)), TableShape("b", 0, (2,), most=0)),
        (TableShape("a", None, (0,)),),
    ],
)
def test_refused_shapes(tables: tuple[TableShape, ...]) -> None:
    with pytest.raises(ArgumentError):
        Shape(tables)


@pytest.mark.parametrize("shape", SHAPES)
def test_expected_is_what_rows_drawn_one_by_one_give(shape: Shape) -> None:
    """Each cell is a mean over n units of weights in [0, 1]: Hoeffding's bound at 1e-6 / 2000 cells is sqrt(log(4e9) / 2n)."""
    model, units = made_up(shape, 4, 1), 50_000
    rows = independent_rows(model, units, 2)
    bound = (np.log(4e9) / (2 * units)) ** 0.5
    assert sum(np.prod(block.shape(shape)) for block in blocks(shape)) < 2000
    for block in blocks(shape):
        assert np.abs(expected(model, block) - counted(shape, rows, block)).max() < bound, block


@pytest.mark.parametrize(("shape", "penalised"), in_turn([HOMES, DEEP, TWO_CHILDREN, MANY, BELOW], [False, True]))
def test_gradients_are_finite_differences(shape: Shape, penalised: bool) -> None:
    model, rng, count = made_up(shape, 4, 1), np.random.default_rng(3), len(shape.tables)
    measured = blocks(shape)
    values = [rng.normal(expected(model, block), 0.1) for block in measured]
    given = targets(shape, measured, values, [0.01 + 0.001 * i for i in range(len(measured))])
    pull = Pull((30.0 * penalised,) * count, (20.0 * penalised,) * count)
    descent = Descent(given, list(range(3, 3 + count)), 10, pull, 1)
    descent.logits, descent.class_logits = ([x.astype(float) for x in part] for part in (descent.logits, descent.class_logits))
    parameters = (*descent.logits, *descent.class_logits)
    gradients = descent.gradients(10)
    start = [x.copy() for x in parameters]

    def loss(parameter: np.ndarray, at: tuple[int, ...], by: float) -> float:
        for x, kept in zip(parameters, start, strict=True):
            x[...] = kept
        parameter[at] += by
        descent.gradients(10)
        return descent.loss

    for parameter, gradient in zip(parameters, gradients, strict=True):
        for _ in range(6):
            at = tuple(int(rng.integers(n)) for n in parameter.shape)
            slope = (loss(parameter, at, 1e-3) - loss(parameter, at, -1e-3)) / 2e-3
            assert slope == pytest.approx(gradient[at], abs=0.01 * np.abs(gradient).max() + 1e-7)


@pytest.mark.parametrize("shape", [HOMES, DEEP, TWO_CHILDREN, ONE_CHILD, ALONE])
def test_tables_without_noise_are_recovered(shape: Shape) -> None:
    model, truth = _fitted(shape, 0.0)
    found = _distances(shape, model, truth)
    assert max(found.values()) < 0.02, found


def test_noise_is_averaged_out() -> None:
    """The fit is nearer to the truth than the noisy tables, in every kind of block, and than independent columns are."""
    deviation = 0.003
    model, truth = _fitted(HOMES, deviation)
    found = _distances(HOMES, model, truth)
    for kind, distance in found.items():
        cells = np.mean([table.size / table.sum() for block, table in truth.items() if block.kind == kind])
        assert distance < 0.5 * deviation * cells * (2 / np.pi) ** 0.5


def test_siblings_are_dependent() -> None:
    """Rows that depend on each other: an eighth as far from the truth as independent rows in every group, and nearer than the noise.

    The first row of a home is of its class, all others of the opposite one, so that rows of one parent are each other's opposite.
    """
    model, deviation = made_up(HOMES, 4, 1), 0.001
    given = np.full((4, 3, 4), 0.02)
    for home, slot in itertools.product(range(4), range(3)):
        given[(home + 2 * (slot > 0)) % 4, slot, home] = 0.94
    model.values[0][slices(HOMES, 0)[2]] = 1 / 6  # as many homes of each number of rows
    model = dataclasses.replace(model, shares=np.full(4, 0.25), given=(model.given[0], given))
    truth = {block: expected(model, block) for block in blocks(HOMES)}
    rng, apart, noise = np.random.default_rng(3), [], []
    noisy = [table + deviation * rng.standard_normal(table.shape) for table in truth.values()]
    for (block, table), raw in zip(truth.items(), noisy, strict=True):
        if block.kind == "sibling":
            whole = unfolded(table) if block.folded else table
            product = whole.sum(-1, keepdims=True) * whole.sum(-2, keepdims=True)
            independent = product / np.maximum(whole.sum((-2, -1), keepdims=True), 1e-12)
            apart.append(0.5 * np.abs(independent - whole).sum() / whole.sum())
            noise.append(0.5 * np.abs(raw - table).sum() / table.sum())
    found = _distances(HOMES, fit(HOMES, list(truth), noisy, [deviation] * len(truth), 1e5, "fast"), truth)["sibling"]
    assert found < np.mean(apart) / 8
    assert found < 0.7 * np.mean(noise)


@pytest.mark.parametrize(("shape", "deviation"), [*((shape, 1.0) for shape in SHAPES), (HOMES, 1e6), (ONE_VALUE, 1e6)])
def test_huge_noise_gives_independent_columns(shape: Shape, deviation: float) -> None:
    model, truth = _fitted(shape, deviation)
    for block in truth:
        table = expected(model, block)
        assert np.isfinite(table).all()
        assert table.min() >= 0.0
        for group in (table if block.split(shape) else [table]) if block.kind == "pair" else ():
            table = np.asarray(group)
            assert table == pytest.approx(np.outer(table.sum(1), table.sum(0)) / max(table.sum(), 1e-12), abs=0.02)


@pytest.mark.parametrize("shape", SHAPES if WHOLE else SHAPES[1::2])
def test_a_fit_is_a_model_and_always_the_same(shape: Shape) -> None:
    first, second = _fitted(shape, 0.01)[0], _fitted(shape, 0.01)[0]
    assert first.shares.sum() == pytest.approx(1.0)
    for t in range(len(shape.tables)):
        assert np.array_equal(first.values[t], second.values[t])
        assert first.values[t].shape == (sum(shape.extended(t)), first.shares.size)
        if t:
            assert all(np.allclose(part.given[t].sum(0), 1.0) for part in parted(first))


def test_nothing_measured_and_no_units() -> None:
    for units in (0.0, 10.0):
        model = fit(HOMES, (), (), (), units)
        assert expected(model, Block("one", (0, 0))) == pytest.approx(np.full(4, 0.25), abs=0.01)


def test_wrong_arguments() -> None:
    block = Block("one", (0, 0))
    with pytest.raises(ArgumentError, match="effort"):
        fit(HOMES, (block,), (np.ones(4),), (0.1,), 10.0, "none")
    with pytest.raises(ArgumentError, match="values"):
        fit(HOMES, (block,), (), (0.1,), 10.0)
    with pytest.raises(ArgumentError, match="shape"):
        fit(HOMES, (block,), (np.ones(5),), (0.1,), 10.0)


def test_tables_fitted_apart_keep_their_own_pairs_and_nothing_across() -> None:
    shape = Shape((TableShape("a", None, (2, 2)), TableShape("b", 0, (2, 2), most=2)))
    measured = blocks(shape, independent=True)
    assert {block.kind for block in measured} == {"one", "pair"} and shares(shape, measured, independent=True).sum() == pytest.approx(1)
    parts = shares(shape, measured, independent=True)
    assert sum(part for part, block in zip(parts, measured, strict=True) if block.table == 1) == pytest.approx(0.5)
    above, below = np.zeros((2, 2, 3)), np.array([[300.0, 0.0], [100.0, 200.0]])
    above[0, 0, 1], above[1, 1, 2], above[0, 1, 0] = 400.0, 100.0, 100.0
    values = []
    for block in measured:
        whole, columns = (above, 3) if block.table == 0 else (below, 2)
        kept = [block.left[1]] if block.right is None else [block.left[1], block.right[1]]
        values.append(whole.sum(axis=tuple(set(range(columns)) - set(kept))))
    model = fit_apart(shape, measured, values, [0.5] * len(measured))
    assert total([values[-1]], [0.5]) == pytest.approx(600)
    for block, value in zip(measured, values, strict=True):
        table = expected(model, block)
        assert np.abs(table / table.sum() - value / value.sum()).max() < 0.02, block
    across = expected(model, Block("across", (0, 0), (1, 0)))
    assert np.allclose(across, np.outer(across.sum(1), across.sum(0)) / across.sum(), atol=1e-6)
