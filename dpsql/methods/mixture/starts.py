"""How large a mixture is and how long it is fitted, and the fit from several starts. Of public sizes and the noise alone."""

from __future__ import annotations

from dpsql.methods.mixture.fit import Mixture, average, fit_mixture, pull_strength
from dpsql.methods.mixture.targets import Targets
from dpsql.running.parallel import THREADS, Workers

FEWEST_CLASSES = 64
_USUAL_CLASSES, _MOST_CLASSES = 128, 512
_FEWEST_STEPS, _MOST_STEPS = 300, 1000


def usual_steps(strength: float) -> int:
    """Return the number of steps of a fit for n / sigma = ``strength``.

    Examples
    --------
    >>> usual_steps(1600.0)
    800
    """
    steps: int = round(min(max(20.0 * strength**0.5, _FEWEST_STEPS), _MOST_STEPS))
    return steps


def class_work(columns: int, steps: int) -> float:
    """Return the floating-point operations that one class takes in a fit of D one-hot columns."""
    return 4.0 * columns**2 * steps


def usual_classes(columns: int, steps: int, strength: float, work: float, fewest: int = FEWEST_CLASSES) -> int:
    """Return the number of classes of a fit for n / sigma = ``strength``: fewer where it would take more than ``work``.

    Examples
    --------
    >>> usual_classes(71, 800, 1600.0, 2e11), usual_classes(1000, 800, 1600.0, 2e11)
    (320, 64)
    """
    wanted = max(8.0 * strength**0.5, _USUAL_CLASSES, fewest)
    classes: int = round(max(min(wanted, _MOST_CLASSES, work / class_work(columns, steps)), fewest))
    return classes


def fit_from_starts(given: Targets, *, classes: int, steps: int, starts: int, pull: float = 1.0) -> Mixture:
    """Fit from several starts, two at a time, and average. Deterministic.

    Parameters
    ----------
    pull : float
        How strongly classes are pulled towards the one-way tables, relative to the rule for this noise.
    """
    strength = pull * pull_strength(len(given.sizes), given.one_way.size, given.strength)

    def fit(seed: int) -> Mixture:
        return fit_mixture(given, classes=classes, steps=steps, pull=strength, seed=seed)

    with Workers(THREADS) as workers:
        return average(workers.map(fit, range(starts)))
