"""What was released of contingency tables: noisy counts with their scales. Everything computed from it is post-processing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from dpsql.domains.attributes import Domain
from dpsql.domains.grid import Histogram
from dpsql.numerics.arrays import Clique, IntArray
from dpsql.tables.measured import Sums, laid_out, summed


@dataclass(frozen=True)
class CoarseTables:
    """Noisy two-way tables of groups of neighbouring codes, released after the tables; see `dpsql.tables.coarse`.

    Parameters
    ----------
    groups : mapping from attribute position to int64 array, shape (codes,)
        Group of each code. A function of released tables.
    tables : mapping from (i, j), i < j, to int64 array
        Noisy counts, one axis per attribute and one entry per group; a group may have no code.
    scales : mapping from (i, j) to float
        Noise scale of each table, as in `Statistics`.

    Notes
    -----
    Privacy: released.
    """

    groups: Mapping[int, IntArray] = field(default_factory=dict)
    tables: Mapping[Clique, IntArray] = field(default_factory=dict)
    scales: Mapping[Clique, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Statistics:
    """What was released: noisy contingency tables, or the blocks that a `DrawnMethod` has drawn.

    Parameters
    ----------
    sizes : tuple of int, length m
        Number of codes of each attribute.
    tables : mapping from clique to int64 array
        Clique: attribute positions in ascending order. Array: noisy counts, one axis per attribute of the clique, every
        cell of the public domain. Cells may be negative.
    scales : mapping from clique to float
        Noise scale of each table: standard deviation sigma (Gaussian) or b (Laplace). 0 means no noise (tests, benchmarks).
    mechanism : str
        'gaussian' or 'laplace'; for blocks the one of `Price`.
    total : int or None
        Number of rows where it is public (replace_one, whole table), else None.
    blocks : tuple of int64 arrays
        What `DrawnMethod.draw` returned; of a `TupleMethod` the table, the cell and the noisy count of every measured tuple, in
        ascending order; empty for noisy tables.
    domain : Domain or None
        The public domain of the attributes; None where sizes say enough (tests).
    parameters : mapping
        `Price.parameters`.
    values : tuple of str
        The released values, one per integer of the only block, where no declared domain lists them; else ().
    coarse : CoarseTables
        What was released in a second round; empty for methods that ask for none.
    fine : mapping from attribute position to Histogram
        Estimates of the fine histograms that were released before the tables.

    Notes
    -----
    Privacy: everything in here is released; whatever is computed from it is post-processing.
    """

    sizes: tuple[int, ...]
    tables: Mapping[Clique, IntArray]
    scales: Mapping[Clique, float]
    mechanism: str = "gaussian"
    total: int | None = None
    blocks: tuple[IntArray, ...] = ()
    domain: Domain | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    values: tuple[str, ...] = ()
    coarse: CoarseTables = field(default_factory=CoarseTables)
    fine: Mapping[int, Histogram] = field(default_factory=dict)

    @cached_property
    def sums(self) -> Sums:
        """What all tables say of the total and of each attribute's codes; an ArgumentError where a shape contradicts the sizes."""
        return summed(laid_out(self.sizes, self.tables, self.scales, self.mechanism))
