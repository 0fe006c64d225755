"""How much of a computer `latent_class` spends: classes, steps and starts for an effort, from public sizes and n / sigma."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dpsql.methods.mixture.starts import FEWEST_CLASSES, class_work, usual_classes, usual_steps


@dataclass(frozen=True)
class Effort:
    """What an effort allows.

    Parameters
    ----------
    work : float
        Floating-point operations of all starts together, where the fewest classes do not take more.
    factor : float
        Classes and steps, relative to what the noise suggests.
    starts : int
        At most.
    """

    work: float
    factor: float
    starts: int


EFFORTS = {"fast": Effort(1.2e11, 1.0, 2), "balanced": Effort(8e11, 1.0, 6), "best": Effort(3e12, 2.0, 8)}
USUAL = "balanced"

_FEWEST_STARTS = 2
"""Two run side by side, and two are better than one of them."""

_LARGEST_FEWEST = 256
_MOST_KEYS, _KEY_WORK = 1024, 3.2e12


@dataclass(frozen=True)
class Schedule:
    """Classes of a fit, its steps, and the number of fits from different starts."""

    classes: int
    steps: int
    starts: int


def schedule(sizes: Sequence[int], strength: float, chosen: Mapping[str, Any]) -> Schedule:
    """Return what to fit.

    Parameters
    ----------
    sizes : sequence of int
    strength : float
        n / sigma of the two-way tables.
    chosen : mapping
        The options 'effort', 'classes' and 'steps' of the method.

    Examples
    --------
    >>> schedule([15] * 15, 540.0, {"effort": "balanced", "classes": "auto", "steps": "auto"})
    Schedule(classes=232, steps=200, starts=6)
    >>> schedule([18] * 16, 1e4, {"effort": "fast", "classes": "auto", "steps": "auto"})
    Schedule(classes=301, steps=600, starts=2)
    """
    effort, columns = EFFORTS[chosen["effort"]], sum(sizes)
    steps, classes = chosen["steps"], chosen["classes"]
    if steps == "auto":
        steps = round(effort.factor * usual_steps(strength))
    if classes == "auto":
        # An attribute that follows from another one needs a class for each of its values.
        fewest = min(max(*sizes, FEWEST_CLASSES), _LARGEST_FEWEST)
        classes = usual_classes(columns, steps, strength, effort.work / _FEWEST_STARTS, fewest, effort.factor)
    starts = min(max(effort.work / (class_work(columns, steps) * classes), _FEWEST_STARTS), effort.starts)
    return Schedule(classes, steps, int(starts))


def most_keys(columns: int, effort: Schedule) -> int:
    """Return the number of values that a column may have whose values become the classes: each takes a class.

    Examples
    --------
    >>> most_keys(1273, Schedule(200, 200, 2)), most_keys(3000, Schedule(256, 200, 2))
    (1024, 256)
    """
    affordable = _KEY_WORK / (class_work(columns, effort.steps) * effort.starts)
    return max(effort.classes, int(min(_MOST_KEYS, affordable)))
