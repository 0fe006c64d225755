import itertools

import numpy as np
import pytest

from dpsql.tables.pairs import Pairs, PairTables, PairValues, empty_stack

SIZES = (2, 3, 2, 20, 2)
PAIRS = np.array(list(itertools.combinations(range(5), 2)))


def filled() -> tuple[PairTables, dict[tuple[int, ...], np.ndarray]]:
    """All pairs of five attributes, with different numbers in every cell, and the same tables as a dict."""
    index = Pairs(SIZES, PAIRS)
    expected = {(i, j): np.arange(SIZES[i] * SIZES[j]).reshape(SIZES[i], SIZES[j]) + 1000.0 * (10 * i + j) for i, j in PAIRS.tolist()}
    stacks = []
    for members, shape in zip(index.members, index.shapes, strict=True):
        stacks.append(empty_stack(members.size, shape))
        for place, (i, j) in enumerate(index.pairs[members].tolist()):
            stacks[-1][place] = expected[i, j]
    return PairTables(index, stacks), expected


def test_a_mapping_in_ascending_order() -> None:
    tables, expected = filled()
    assert list(tables) == sorted(expected)
    assert len(tables) == 10
    for pair, table in tables.items():
        assert table.tolist() == expected[pair].tolist()
    assert (0, 3) in tables


def test_by_shape_goes_over_every_table_once() -> None:
    tables, expected = filled()
    seen = []
    for pairs, stack in tables.by_shape():
        for (i, j), table in zip(pairs.tolist(), stack, strict=True):
            assert table.tolist() == expected[i, j].tolist()
            seen.append((i, j))
    assert sorted(seen) == list(tables)
    assert sorted(stack.shape[1:] for _, stack in tables.by_shape()) == [(2, 2), (2, 3), (2, 20), (3, 2), (3, 20), (20, 2)]


@pytest.mark.parametrize("pair", [(1, 0), (0, 0), (0, 5), (-1, 2), (0,), (0, 1, 2), "ab"])
def test_what_is_not_there(pair: object) -> None:
    tables, _ = filled()
    with pytest.raises(KeyError):
        tables[pair]  # type: ignore[index]
    assert pair not in tables


def test_numbers_of_pairs() -> None:
    values = PairValues(Pairs(SIZES, PAIRS[::2]), np.arange(5.0))
    assert dict(values) == {tuple(pair): float(i) for i, pair in enumerate(PAIRS[::2].tolist())}
    assert values.of(PAIRS[[4, 0]]).tolist() == [2.0, 0.0]
    with pytest.raises(KeyError):
        values.of(PAIRS[:2])


def test_no_pairs() -> None:
    index = Pairs((), np.zeros((0, 2), int))
    assert not PairTables(index, [])
    assert list(PairTables(index, []).by_shape()) == []
    assert PairValues(index, np.zeros(0)).of(np.zeros((0, 2), int)).size == 0


@pytest.mark.parametrize(("shape", "cell_first"), [((2, 2), True), ((20, 30), False)])
def test_small_tables_lie_cell_by_cell(shape: tuple[int, int], cell_first: bool) -> None:
    stack = empty_stack(5, shape)
    assert stack.shape == (5, *shape)
    assert (stack.strides[0] == 8) is cell_first
