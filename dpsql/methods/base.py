"""What a method is: plan, fit, sample. Pure mathematics on public domains and noisy statistics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
CodeArray = npt.NDArray[np.int32]
Clique = tuple[int, ...]


@dataclass(frozen=True)
class Statistics:
    """Noisy contingency tables, as they were released.

    Parameters
    ----------
    sizes : tuple of int, length m
        Number of codes of each attribute.
    tables : mapping from clique to int64 array
        Clique: attribute positions in ascending order. Array: noisy counts, one axis per attribute of the clique, every
        cell of the public domain. Cells may be negative.
    scales : mapping from clique to float
        Noise scale of each table: standard deviation sigma (Gaussian) or b (Laplace). 0 means no noise (tests, benchmarks).
    mechanism : {'gaussian', 'laplace'}
    total : int or None
        Number of rows where it is public (replace_one, whole table), else None.

    Notes
    -----
    Privacy: everything in here is released; whatever is computed from it is post-processing.
    """

    sizes: tuple[int, ...]
    tables: Mapping[Clique, IntArray]
    scales: Mapping[Clique, float]
    mechanism: str = "gaussian"
    total: int | None = None


@dataclass(frozen=True)
class MeasurementPlan:
    """The tables that a method wants measured, decided without looking at data.

    Parameters
    ----------
    cliques : tuple of cliques
        Attribute positions in ascending order, no repetition.
    weights : tuple of float, same length
        Relative share of the privacy loss (rho) of each table; equal by default.
    notes : tuple of str
        What the user should know (shown by ``dp_plan``).
    """

    cliques: tuple[Clique, ...]
    weights: tuple[float, ...] = ()
    notes: tuple[str, ...] = field(default=())


class Method(Protocol):
    """A synthesizer. ``fit`` and ``sample`` are post-processing and never see the raw table."""

    name: str
    options: Mapping[str, Any]
    """Every option with its default value; anything else is refused."""

    def plan(self, sizes: Sequence[int], options: Mapping[str, Any]) -> MeasurementPlan:
        """Return the tables to measure, from public sizes and options alone."""
        ...

    def fit(self, statistics: Statistics, options: Mapping[str, Any]) -> Any:
        """Fit the model to noisy statistics. Deterministic."""
        ...

    def total(self, model: Any) -> int:
        """Return the number of rows that the noisy statistics suggest (at least 0)."""
        ...

    def forecast(self, sizes: Sequence[int], rows: int, options: Mapping[str, Any]) -> tuple[float, float]:
        """Return roughly the seconds and megabytes that fitting and drawing take on two cores. No data is seen."""
        ...

    def sample(self, model: Any, rows: int, rng: np.random.Generator) -> Iterator[CodeArray]:
        """Yield blocks of shape (at most ``block``, m) of attribute codes, ``rows`` rows in total."""
        ...


class OneHotMethod(Method, Protocol):
    """A synthesizer that can also give the rows as indicators of every value."""

    def sample_one_hot(self, model: Any, rows: int, rng: np.random.Generator) -> Iterator[npt.NDArray[np.uint8]]:
        """Yield blocks of shape (at most ``block``, D) of 0 and 1, D the number of codes of all attributes."""
        ...
