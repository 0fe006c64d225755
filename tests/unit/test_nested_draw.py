"""Rows of nested classes: keys, fan-outs, and tables that come out as expected."""

from __future__ import annotations

import numpy as np
import pytest
from linked_samples import DEEP, HOMES, counted, made_up

from dpsql.methods.nested_classes import Block, Drawn, Shape, TableShape, blocks, draw, draw_parts, expected
from dpsql.methods.nested_classes.model import NestedClasses

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
