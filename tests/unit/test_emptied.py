"""Tables with cells set to 0 where no row can be."""

import itertools

import numpy as np
import pytest

from dpsql.tables.emptied import emptied
from dpsql.tables.flat import AllCliques, FlatScales, FlatTables
from dpsql.tables.statistics import Statistics

SIZES = (3, 4, 2)
CLIQUES = AllCliques(3, (1, 2, 3))


def statistics(flat):
    counts = np.arange(1, 1 + sum(int(np.prod([SIZES[i] for i in c])) for c in CLIQUES))
    tables = FlatTables(SIZES, CLIQUES, counts)
    given = tables if flat else {clique: np.array(tables[clique]) for clique in reversed(list(CLIQUES))}
    return Statistics(SIZES, given, FlatScales(CLIQUES, np.ones(len(CLIQUES))))


@pytest.mark.parametrize("flat", [True, False])
def test_cells_are_emptied_in_every_table_that_has_all_their_attributes(flat):
    codes, pairs = np.array([False, True, False]), np.zeros((4, 2), bool)
    pairs[2, 1] = True
    before = statistics(flat)
    found = emptied(before, {(0,): codes, (1, 2): pairs})
    assert list(found) == list(before.tables)
    for clique, table in found.items():
        for cell in itertools.product(*(range(SIZES[i]) for i in clique)):
            code = dict(zip(clique, cell, strict=True))
            never = code.get(0) == 1 or (code.get(1), code.get(2)) == (2, 1)
            assert table[cell] == (0 if never else before.tables[clique][cell])
    assert all(np.all(table > 0) for table in before.tables.values())  # what is stored stays as it was


def test_no_tables_no_cells():
    assert len(emptied(Statistics(SIZES, {}, {}), {(0,): np.ones(3, bool)})) == 0
