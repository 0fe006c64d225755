"""Tables without rows in cells that are known to be empty.

Privacy: post-processing of released statistics by public knowledge, or by what was released.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from dpsql.numerics.arrays import Clique
from dpsql.tables.flat import FlatTables
from dpsql.tables.statistics import Statistics

Cells = npt.NDArray[np.bool_]


def emptied(statistics: Statistics, empty: Mapping[Clique, Cells]) -> FlatTables:
    """Return the tables with some cells set to 0; those of the statistics stay as they are.

    Parameters
    ----------
    statistics : Statistics
    empty : mapping from clique to bool array, one axis per attribute
        Codes, or combinations of codes, of which there are no rows, in every table that has all attributes of the clique.
    """
    tables = statistics.tables
    if isinstance(tables, FlatTables):
        copy = FlatTables(statistics.sizes, tables.cliques, tables.flat.copy())
    else:
        flat: Any = np.concatenate([np.zeros(0, np.int64), *(np.ravel(table) for table in tables.values())])
        copy = FlatTables(statistics.sizes, tuple(tables), flat)
    zeros = [(set(positions), positions, cells) for positions, cells in empty.items()]
    for clique in copy.cliques:
        for members, positions, cells in zeros:
            if members.issubset(clique):
                table = copy[clique]  # a view
                table[np.broadcast_to(spread(cells, positions, clique), table.shape)] = 0
    return copy


def spread(cells: Cells, positions: Clique, clique: Clique) -> Cells:
    """Return cells of some attributes with an axis of length 1 for each other attribute of a clique."""
    return cells.reshape([cells.shape[positions.index(i)] if i in positions else 1 for i in clique])
