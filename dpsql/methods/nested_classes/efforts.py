"""The fit of nested classes: how many classes and steps, how strongly to pull, and from how many starts.

Functions of public sizes and the noise alone, as in `mixture/starts.py` and `mixture/efforts.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpsql.errors import ArgumentError
from dpsql.methods.mixture.fit import pull_strength
from dpsql.methods.mixture.starts import usual_steps
from dpsql.methods.nested_classes.descent import Descent, Pull
from dpsql.methods.nested_classes.model import NestedClasses
from dpsql.methods.nested_classes.shapes import Block, Shape
from dpsql.methods.nested_classes.targets import Targets, targets
from dpsql.numerics.arrays import FloatArray
from dpsql.running.parallel import Workers


@dataclass(frozen=True)
class Effort:
    """Classes, steps and starts of an effort: factors of what the noise suggests, and the number of starts."""

    classes: float
    steps: float
    starts: int


EFFORTS = {"fast": Effort(0.5, 1.0, 1), "balanced": Effort(1.0, 2.0, 4), "best": Effort(1.5, 6.0, 6)}
USUAL = "balanced"

_CLASSES, _FEWEST_CLASSES, _MOST_CLASSES = 5.0, 32, 256
_MOST_STEPS = 350
"""Of one unit of an effort."""

_CLASS_PULL = 1.0


def fit(
    shape: Shape,
    blocks: Sequence[Block],
    values: Sequence[FloatArray],
    deviations: Sequence[float],
    units: float,
    effort: str = USUAL,
    seed: int = 0,
) -> NestedClasses:
    """Fit nested classes to noisy blocks. Deterministic.

    Parameters
    ----------
    shape : Shape
    blocks : sequence of Block
    values : sequence of ndarray
        Noisy shares of units, each of its block's shape.
    deviations : sequence of float
        Standard deviation of the noise of each block's cells, as a share of units; 0: exact.
    units : float
        Number of units: public, or estimated.
    effort : {'fast', 'balanced', 'best'}
    seed : int
        Of the starts; a fixed number, so that the same release gives the same model.

    Raises
    ------
    ArgumentError
        If the effort is unknown, or lengths or shapes contradict each other.

    Notes
    -----
    Privacy: post-processing.
    """
    if effort not in EFFORTS:
        raise ArgumentError("effort", effort, f"one of {sorted(EFFORTS)}")
    noisy, chosen = targets(shape, blocks, values, deviations), EFFORTS[effort]
    steps = round(min(chosen.steps * usual_steps(noisy.strength), max(chosen.steps, 1.0) * _MOST_STEPS))
    classes = _classes(noisy, chosen.classes, units)
    pull = pulls(noisy)

    def fitted(start: int) -> NestedClasses:
        return Descent(noisy, classes, steps, pull, seed + start).run()

    # Nothing but one-way tables was measured: there is no dependence to spend classes on.
    if noisy.strength == 0.0:
        return Descent(noisy, [1] * len(shape.tables), steps, pull, seed).run()
    with Workers(chosen.starts) as workers:  # all at once: of three on two cores, one would have the second half for itself
        return average(workers.map(fitted, range(chosen.starts)))


def _classes(noisy: Targets, factor: float, units: float) -> list[int]:
    """Return the number of classes of each table."""
    usual = min(max(_CLASSES * noisy.strength**0.5, _FEWEST_CLASSES), _MOST_CLASSES)
    return [round(min(factor * usual, max(units, 1.0)))] * len(noisy.shape.tables)


def pulls(noisy: Targets) -> Pull:
    """Return the strengths of the penalties: `pull_strength` for the columns that a table's columns are measured with."""
    shape = noisy.shape
    columns = [len(shape.extended(t)) for t in range(len(shape.tables))]
    related = [
        sum(columns[u] for u in range(len(columns)) if u in shape.path(t) or t in shape.path(u)) for t in range(len(columns))
    ]
    strengths = tuple(pull_strength(m, noisy.strength) for m in related)
    return Pull(strengths, tuple(_CLASS_PULL * strength for strength in strengths))


def average(models: Sequence[NestedClasses]) -> NestedClasses:
    """Return the model whose blocks are the means of the given ones' blocks: each keeps to its own classes."""
    first, tables = models[0], range(len(models[0].shape.tables))
    return NestedClasses(
        first.shape,
        np.concatenate([model.shares for model in models]) / len(models),
        tuple(np.concatenate([model.values[t] for model in models], axis=1) for t in tables),
        tuple(np.concatenate([model.given[t] for model in models]) for t in tables),
        parts=len(models),
    )
