"""Rows of nested classes: keys, fan-outs, and tables that come out as expected."""

from __future__ import annotations

import numpy as np
import pytest
from linked_samples import DEEP, HOMES, counted, made_up

from dpsql.methods.mixture.rows import rounded
from dpsql.methods.nested_classes import Block, Drawn, Shape, TableShape, blocks, draw, draw_parts, expected
from dpsql.methods.nested_classes.efforts import average
from dpsql.methods.nested_classes.model import NestedClasses, parted

NO_COLUMNS = Shape((TableShape("a", None, (1,)), TableShape("b", 0, (), most=3), TableShape("c", 1, (), most=2)))


def _check_keys(shape: Shape, rows: list[Drawn], units: int) -> None:
    for t, table in enumerate(shape.tables):
        codes = rows[t].codes
        assert codes.dtype == np.int32
        assert codes.shape[1] == len(shape.extended(t))
        for column, size in zip(codes.T, shape.extended(t), strict=True):
            assert not column.size or (column.min() >= 0 and column.max() < size)
        if table.parent is None:
            assert len(codes) == units
            assert rows[t].parent.size == 0
        else:
            parents = rows[table.parent].codes
            fan_out = np.bincount(rows[t].parent, minlength=len(parents))
            assert np.array_equal(fan_out, parents[:, shape.fan_out(t)])
            assert (np.diff(rows[t].parent) >= 0).all()
            assert len(rows[t].parent) == len(codes)


@pytest.mark.parametrize("shape", [HOMES, DEEP, NO_COLUMNS])
@pytest.mark.parametrize("units", [0, 1, 7, 5000])
def test_keys_and_fan_outs(shape: Shape, units: int) -> None:
    _check_keys(shape, draw(made_up(shape, 5, 1), units, np.random.default_rng(1)), units)


@pytest.mark.parametrize("shape", [HOMES, DEEP])
def test_every_block_is_the_models(shape: Shape) -> None:
    """Sampling is systematic, hence no wider than independent draws are: Hoeffding's bound at 1e-6 / 2000 cells holds for these."""
    model, units = made_up(shape, 5, 1), 100_000
    rows = draw(model, units, np.random.default_rng(1))
    for block in blocks(shape):
        assert np.abs(expected(model, block) - counted(shape, rows, block)).max() < (np.log(4e9) / (2 * units)) ** 0.5, block


def test_one_way_tables_of_units_have_no_sampling_noise() -> None:
    model, units = made_up(HOMES, 5, 1), 10_000
    rows = draw(model, units, np.random.default_rng(1))
    for i in range(3):
        block = Block("one", (0, i))
        # The classes' sizes are rounded (5 of them), and each value once more.
        assert np.abs(units * (expected(model, block) - counted(HOMES, rows, block))).max() < 8


def test_parts_are_the_units_and_the_same_again() -> None:
    model = made_up(DEEP, 5, 1)
    first, second = (list(draw_parts(model, 1000, np.random.default_rng(4), longest=300)) for _ in range(2))
    assert [len(part[0].codes) for part in first] == [250] * 4
    for one, other in zip(first, second, strict=True):
        _check_keys(DEEP, one, 250)
        assert all(np.array_equal(a.codes, b.codes) for a, b in zip(one, other, strict=True))
    assert not np.array_equal(first[0][0].codes, first[1][0].codes)
    assert list(draw_parts(model, 0, np.random.default_rng(4))) == []


def test_rare_classes_are_drawn_as_often_as_they_should() -> None:
    """A class of half a unit comes in half of the draws: 2000 draws, six standard deviations (2e-9)."""
    shape = Shape((TableShape("a", None, (2,)),))
    model = NestedClasses(shape, np.array([0.05, 0.95]), (np.array([[0.0, 1.0], [1.0, 0.0]]),), (np.zeros((2, 0)),))
    rng = np.random.default_rng(5)
    found = sum(int((draw(model, 10, rng)[0].codes[:, 0] == 1).sum()) for _ in range(2000))
    assert abs(found - 1000) < 6 * 500**0.5


def _rounded_plainly(expected: np.ndarray, counts: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Rows one after the other; of each, those values go up that rounding has left behind most so far."""
    whole = np.floor(expected + 1e-9).astype(int)
    carried = rng.random(expected.shape[1]) - 0.5
    for k, (part, left) in enumerate(zip(expected - whole, counts - whole.sum(axis=1), strict=True)):
        possible = [c for c in range(part.size) if part[c] > 1e-9]
        carried += part
        for c in sorted(possible, key=lambda c: -carried[c])[:left]:
            whole[k, c] += 1
            carried[c] -= 1.0
    return whole


@pytest.mark.parametrize(("classes", "values", "alike"), [(1, 1, 1.0), (1, 4, 1.0), (40, 3, 0.2), (60, 21, 0.1), (30, 200, 5.0)])
def test_rounding_is_the_plain_one(classes: int, values: int, alike: float) -> None:
    rng = np.random.default_rng(6)
    shares, counts = rng.dirichlet(np.full(values, alike), classes), rng.poisson(9, classes)
    shares[rng.random(shares.shape) < 0.3] = 0.0
    shares[:, 0] += 1.0 - shares.sum(axis=1)
    shares[0] = np.eye(values)[0]  # nothing is left to round
    expected = shares * counts[:, None]
    found = rounded(expected, counts, np.random.default_rng(7))
    assert np.array_equal(found, _rounded_plainly(expected, counts, np.random.default_rng(7)))
    assert np.array_equal(found.sum(axis=1), counts)
    assert np.abs(found.sum(axis=0) - expected.sum(axis=0)).max() < 3


def _average(shape: Shape, count: int) -> tuple[NestedClasses, list[NestedClasses]]:
    models = [made_up(shape, 5, seed) for seed in range(1, count + 1)]
    return average(models), models


@pytest.mark.parametrize("shape", [HOMES, DEEP])
def test_an_average_is_parted_into_its_models(shape: Shape) -> None:
    model, models = _average(shape, 3)
    for part, one in zip(parted(model), models, strict=True):
        assert part.parts == 1
        assert all(np.allclose(a, b) for a, b in zip(part.values, one.values, strict=True))
        assert all(np.allclose(a, b) for a, b in zip(part.given, one.given, strict=True))
        assert np.allclose(part.shares, one.shares)


@pytest.mark.parametrize("units", [0, 1, 2, 7, 5000])
def test_keys_of_an_average(units: int) -> None:
    model, _ = _average(DEEP, 3)
    _check_keys(DEEP, draw(model, units, np.random.default_rng(1)), units)
    assert sum(len(part[0].codes) for part in draw_parts(model, units, np.random.default_rng(1), longest=1000)) == units


def test_every_block_is_that_of_the_average() -> None:
    """As `test_every_block_is_the_models`: of all units at once, and of parts that are of one model each."""
    model, units = _average(HOMES, 3)[0], 100_000
    at_once = draw(model, units, np.random.default_rng(1))
    parts = list(draw_parts(model, units, np.random.default_rng(1), longest=30_000))
    assert [len(part[0].codes) for part in parts] == [16_667] * 4 + [16_666] * 2
    for block in blocks(HOMES):
        bound = (np.log(4e9) / (2 * units)) ** 0.5
        assert np.abs(expected(model, block) - counted(HOMES, at_once, block)).max() < bound, block
        tables = sum(len(part[0].codes) * counted(HOMES, part, block) for part in parts)
        assert np.abs(expected(model, block) - tables / units).max() < bound, block


def test_rows_of_an_average_are_of_every_model_alike() -> None:
    """Three models of one code each: a third of the units, rounded, whichever has one more."""
    shape = Shape((TableShape("a", None, (3,)),))
    model = average([NestedClasses(shape, np.ones(1), (np.eye(3)[:, [code]],), (np.zeros((1, 0, 0)),)) for code in range(3)])
    rng = np.random.default_rng(2)
    found = np.array([np.bincount(draw(model, 7, rng)[0].codes[:, 0], minlength=3) for _ in range(600)])
    assert set(found.ravel().tolist()) == {2, 3}
    assert abs(found.sum(axis=0) - 1400).max() < 6 * (600 * 2 / 9) ** 0.5
    parts = list(draw_parts(model, 90, rng, longest=20))
    assert [sorted(set(part[0].codes[:, 0].tolist())) for part in parts] == [[0], [1], [2]] * 2
