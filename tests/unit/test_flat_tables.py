import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsql.tables.flat import AllCliques, FlatScales, FlatTables, by_order, cell_counts, total_cells

SIZES = (2, 3, 1, 5)
CLIQUES = ((1,), (0, 3), (), (0, 1, 3), (0,), (2, 3))


def listed(attributes: int, orders: list[int]) -> tuple[tuple[int, ...], ...]:
    return tuple(itertools.chain.from_iterable(itertools.combinations(range(attributes), k) for k in orders))


@given(st.integers(0, 6), st.lists(st.integers(0, 4), max_size=3))
def test_all_cliques_are_the_sequence_of_combinations(attributes: int, orders: list[int]) -> None:
    found, expected = AllCliques(attributes, orders), listed(attributes, orders)
    assert tuple(found) == expected
    assert len(found) == len(expected)
    assert [found[i] for i in range(len(found))] == list(expected)
    assert found[1:5] == expected[1:5]
    assert found == expected
    assert expected == found
    assert hash(found) == hash(expected)
    with pytest.raises(IndexError):
        found[len(expected)]
    for mine, plain in zip(by_order(found), by_order(expected), strict=True):
        assert [x.tolist() for x in mine] == [x.tolist() for x in plain]
    sizes = (2, 3, 1, 5, 4, 7)[:attributes]
    assert total_cells(sizes, found) == sum(math.prod(sizes[i] for i in clique) for clique in expected)


def test_all_cliques_differ() -> None:
    assert AllCliques(3, [1, 2]) != AllCliques(3, [2, 1])
    assert AllCliques(3, [2]) != AllCliques(4, [2])
    assert AllCliques(3, [1]) != ((0,), (2,), (1,))
    assert AllCliques(1, [2]) == AllCliques(0, [1])
    assert AllCliques(3, [1]) != "abc"
    assert AllCliques(5, [2])[-1] == (3, 4)


def test_cells_of_mixed_cliques() -> None:
    assert cell_counts(SIZES, CLIQUES).tolist() == [3, 10, 1, 30, 2, 5]
    assert total_cells(SIZES, CLIQUES) == 51
    assert cell_counts((10**6,) * 4, [(0, 1, 2, 3), (0, 1)]).tolist() == [2**40, 10**12]
    assert total_cells((10**6,) * 4, AllCliques(4, [4])) == 10**24
    assert cell_counts(SIZES, ()).tolist() == []


def test_tables_by_shape() -> None:
    tables = FlatTables(SIZES, CLIQUES, np.arange(51))
    assert tables[0, 1, 3].shape == (2, 3, 5)
    assert dict(tables)[()].tolist() == 13
    seen = []
    for places, cliques, shape in tables.by_shape():
        stack = tables.stack(places, shape)
        assert stack.shape == (len(places), *shape)
        for clique, table in zip(cliques.tolist(), stack, strict=True):
            assert table.tolist() == tables[tuple(clique)].tolist()
            seen.append(tuple(clique))
    assert sorted(seen) == sorted(CLIQUES)


def test_tables_of_one_shape_apart_and_together() -> None:
    cliques = ((0,), (0, 1), (1,), (0, 2), (2,))
    tables = FlatTables((2, 2, 2), cliques, np.arange(14))
    groups = {shape: (places, tables.stack(places, shape)) for places, _, shape in tables.by_shape()}
    assert groups[2,][1].tolist() == [[0, 1], [6, 7], [12, 13]]
    assert groups[2, 2][0].tolist() == [1, 3]
    assert FlatTables((2, 2, 2), ((0,), (1,)), tables.flat[:4]).stack(np.array([0, 1]), (2,)).base is not None


def test_refusals() -> None:
    with pytest.raises(ValueError, match="7 counts"):
        FlatTables(SIZES, ((0,), (1,)), np.arange(7))
    with pytest.raises(ValueError, match="2 numbers for 1 tables"):
        FlatScales(((0,),), np.ones(2))


def test_scales() -> None:
    scales = FlatScales(CLIQUES, np.arange(6.0))
    assert scales[0, 1, 3] == 3.0
    assert scales == dict(zip(CLIQUES, range(6), strict=True))
