"""What a method is: plan, (measure), fit, sample. Pure mathematics on public domains and released statistics.

Most methods work on noisy contingency tables: they say which tables to measure (`plan`), and the noise is added for them. A
`DrawnMethod` makes its private output itself, from exact counts: it says what that costs (`price`) and draws it (`draw`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from dpsql.accounting.events import Event
from dpsql.domains.attributes import Attribute, Domain
from dpsql.methods.public_rows import PublicRows
from dpsql.numerics.arrays import Clique, CodeArray, IntArray
from dpsql.tables.statistics import Statistics
from dpsql.text.names import fold


@dataclass(frozen=True)
class MeasurementPlan:
    """The tables that a method wants counted, decided without looking at data.

    Parameters
    ----------
    cliques : sequence of cliques
        Attribute positions in ascending order, no repetition; `dpsql.tables.flat.AllCliques` where there are very many.
    weights : tuple of float, same length
        Relative share of the privacy loss (rho) of each table; equal by default. Not used by a `DrawnMethod`.
    notes : tuple of str
        What the user should know (shown by ``dp_plan``).
    coarse : tuple of cliques
        Pairs among `cliques` whose tables are measured a second time with few groups of codes, see `dpsql.tables.coarse`;
        under Laplace noise, which knows no weights, they are left out.
    coarse_weights : tuple of float, same length as coarse
        Relative share of rho of each of them, in the unit of `weights`.
    """

    cliques: Sequence[Clique]
    weights: tuple[float, ...] = ()
    notes: tuple[str, ...] = field(default=())
    coarse: tuple[Clique, ...] = ()
    coarse_weights: tuple[float, ...] = ()


@dataclass(frozen=True)
class Contract:
    """What a method has to know of the source's privacy contract.

    Parameters
    ----------
    neighbors : {'add_remove', 'replace_one'}
    max_contributions : int, at least 1
        Rows of one privacy unit among the measured rows, at most.
    public_total : bool
        Whether the number n of measured rows is public and every unit has exactly one of them (replace_one, no row left out).
    left_out : bool
        Whether a row of the table can be left out: by a filter, a join, or outside := 'drop'.
    """

    neighbors: str
    max_contributions: int
    public_total: bool
    left_out: bool = False


@dataclass(frozen=True)
class Price:
    """What a `DrawnMethod` will do to the data, decided without looking at data.

    Parameters
    ----------
    events : tuple of Event
        Everything that `draw` does, for the accountant.
    mechanism : str
        Short name, shown by ``dp_plan`` ('laplace', 'dirichlet_multinomial', ...).
    scale : Fraction or None
        Noise scale b of integer Laplace noise, where there is one, else None.
    parameters : mapping of str to JSON values
        What `draw` needs beyond the counts (exact fractions as text, e.g. '1/10'). Stored with the charge, so that what is
        drawn is what was charged for.
    notes : tuple of str
        Shown by ``dp_plan``, e.g. the epsilon of each set.
    """

    events: tuple[Event, ...]
    mechanism: str
    scale: Fraction | None
    parameters: Mapping[str, Any]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Counted:
    """Exact statistics of the protected rows, for `DrawnMethod.draw` alone.

    Parameters
    ----------
    tables : mapping from clique to int64 array
        Exact counts, one axis per attribute.
    total : int
        Number of rows; public only where `Contract.public_total` says so.
    sums : int64 array, shape (cells, p), or None
        Sum of each value z_i in every cell of the first clique (row-major), where `DrawnMethod.values` names p attributes. z is
        the value on the fixed-point scale: floor((x - lower) / (upper - lower) * FINE), clamped to 0 ... FINE - 1.
    products : list of int, length p (p + 1) / 2, or None
        Sum over all rows of z_i z_j, i <= j, in the order (0, 0), (0, 1), ..., (1, 1), ...; Python integers.

    Notes
    -----
    Privacy: secret. Nothing of it may be kept, returned or shown without noise.
    """

    tables: Mapping[Clique, IntArray]
    total: int
    sums: IntArray | None = None
    products: list[int] | None = None


def with_sets(domain: Domain, sets: int) -> Domain:
    """Return a domain with one more column, which says to which of several synthetic tables a row belongs.

    The column is called ``set`` (or ``set_``, ... where the source has such a column) and counts from 1; for one set
    there is none.

    Examples
    --------
    >>> with_sets(Domain((Attribute("Set", "INTEGER", "categorical", ("1",)),)), 2).names
    ('Set', 'set_')
    """
    if sets == 1:
        return domain
    name = "set"
    while name in {fold(column) for column in domain.names}:
        name += "_"
    numbers = tuple(str(i) for i in range(1, sets + 1))
    return Domain((*domain.attributes, Attribute(name, "INTEGER", "categorical", numbers, nullable=False)))


class Method(Protocol):
    """A synthesizer. ``fit`` and ``sample`` are post-processing and never see the raw table."""

    name: str
    options: Mapping[str, Any]
    """Every option with its default value; anything else is refused."""

    def plan(self, domain: Domain, options: Mapping[str, Any]) -> MeasurementPlan:
        """Return the tables to measure, from the public domain and options alone."""
        ...

    def fit(self, statistics: Statistics, options: Mapping[str, Any]) -> Any:
        """Fit the model to released statistics. Deterministic."""
        ...

    def total(self, model: Any) -> int:
        """Return the number of rows that the released statistics suggest (at least 0)."""
        ...

    def forecast(self, sizes: Sequence[int], rows: int, options: Mapping[str, Any], measured: int = 0) -> tuple[float, float]:
        """Return roughly the seconds and megabytes that fitting and drawing ``rows`` rows take on two cores. No data is seen.

        ``measured`` is what the caller supposes the source's number of rows to be, 0 where it supposes nothing.
        """
        ...

    def output_domain(self, domain: Domain, options: Mapping[str, Any]) -> Domain:
        """Return the domain of the rows that `sample` gives: the measured one, or with more columns or finer bins."""
        ...

    def sample(self, model: Any, rows: int, rng: np.random.Generator) -> Iterator[CodeArray]:
        """Yield blocks of shape (at most ``block``, columns of `output_domain`) of codes, ``rows`` rows in total."""
        ...


class OneHotMethod(Method, Protocol):
    """A synthesizer that can also give the rows as indicators of every value."""

    def sample_one_hot(self, model: Any, rows: int, rng: np.random.Generator) -> Iterator[npt.NDArray[np.uint8]]:
        """Yield blocks of shape (at most ``block``, D) of 0 and 1, D the number of codes of all attributes."""
        ...


class DrawnMethod(Method, Protocol):
    """A synthesizer that draws its private output itself; its ``plan`` names the tables that are counted for that."""

    public_rows: PublicRows | None
    """Why the number of rows has to be public, where it has to."""

    def price(self, domain: Domain, contract: Contract, epsilon: Fraction, options: Mapping[str, Any]) -> Price:
        """Return events and parameters of a release of this pure epsilon in total.

        Raises
        ------
        ArgumentError
            The method does not hold under this contract, or a number is out of range; says the way out. Nothing was read.
        """
        ...

    def lengths(self, domain: Domain, options: Mapping[str, Any]) -> tuple[int, ...]:
        """Return the length of each block of `draw`: public."""
        ...

    def values(self, domain: Domain, options: Mapping[str, Any]) -> tuple[int, ...]:
        """Return the positions of the numeric attributes whose values are summed (see `Counted`); () for counts alone."""
        ...

    def draw(self, counted: Counted, domain: Domain, parameters: Mapping[str, Any], options: Mapping[str, Any]) -> list[IntArray]:
        """Return the private output: flat blocks of `lengths`. Entropy from the operating system, no seed.

        Privacy: the one step between secret counts and a release; exactly the events of `price`.
        """
        ...


@dataclass(frozen=True)
class TuplePlan:
    """Which tuples of a domain are counted, and how the loss is split.

    Parameters
    ----------
    sizes : tuple of int, length d
        Number of values of each column that tuples are made of.
    length : int
        R.
    weights : tuple of float, length R
        Share of rho of each level as a whole.
    empty : tuple of int
        Positions of columns whose NULL is an empty cell: in no tuple. Rows then differ in their number of tuples.
    percentile : Fraction or None
        The private percentile of that number which bounds it, or None where it is bounded by C(d, k).
    percentile_share, rows_share : float
        Parts of the loss for percentiles and for the number of rows, where rows have empty cells.
    published : PublishedSplit or None
        The published split instead of the weights.
    """

    sizes: tuple[int, ...]
    length: int
    weights: tuple[float, ...]
    empty: tuple[int, ...] = ()
    percentile: Fraction | None = None
    percentile_share: float = 0.0
    rows_share: float = 0.0
    published: Any = None


class TupleMethod(Method, Protocol):
    """A synthesizer from counts of k-tuples, k = 1 ... R: which tuples are measured is decided level by level.

    Its ``plan`` names all tables of 1 ... R columns, in the order of `dpsql.tables.tuple_index`; where rows can have empty cells,
    the empty table last, which stands for the number of rows and the bounds of each level.
    """

    def tuples(
        self, domain: Domain, options: Mapping[str, Any], epsilon: float | None = None, delta: float | None = None
    ) -> TuplePlan:
        """Return what is counted; with epsilon and delta also the published split, where it was asked for."""
        ...

    def threshold(self, k: int, scale: Fraction, options: Mapping[str, Any]) -> int:
        """Return the number that a noisy count of level k has to be above for its tuple to be extended."""
        ...

    def notes(
        self,
        domain: Domain,
        scales: Sequence[Fraction],
        epsilon: float,
        delta: float,
        l2_sensitivity: float,
        options: Mapping[str, Any],
    ) -> tuple[str, ...]:
        """Return what ``dp_plan`` says about noise and thresholds of each level."""
        ...

    def aggregates(self, statistics: Statistics, options: Mapping[str, Any]) -> tuple[IntArray, IntArray]:
        """Return keys and counts of the reported tuples, in ascending order of the keys. Post-processing."""
        ...


class ReportingMethod(Method, Protocol):
    """A synthesizer that has something to say about a fitted model, for ``dp_releases``."""

    def report(self, model: Any) -> list[str]:
        """Return sentences about what was thresholded and the like. Post-processing."""
        ...


class OpenMethod(Method, Protocol):
    """A synthesizer of one column whose values no declared domain lists: the values are part of what it releases."""

    universe: bool
    """Whether it needs a public universe that values may come from (``domain``)."""

    def price(self, contract: Contract, epsilon: Fraction, delta: Fraction, options: Mapping[str, Any], size: int) -> Price:
        """Return events and parameters of a release; ``size`` is the number of members of the universe (0: there is none).

        Raises
        ------
        ArgumentError
            A number is out of range. Nothing was read.
        """
        ...

    def select(
        self, values: Sequence[str], counts: IntArray, universe: Any, parameters: Mapping[str, Any]
    ) -> tuple[list[str], IntArray]:
        """Return the released values and their noisy counts, from the values that occur and their exact counts.

        Privacy: the one step between secret counts and a release; exactly the events of `price`.
        """
        ...
