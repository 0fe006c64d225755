"""How large a mixture is and how long it is fitted, and the fit from several starts. Of public sizes and the noise alone.

Noise decides what is worth expressing: where n / sigma is larger, smaller differences between rows can be told, so more classes
and more steps are spent on them. Where a table is so large that this would take too long, there are fewer classes.

The numbers were chosen on Adult-15 and sim50k (n / sigma of 60 to 5,000) and msnbc (10,000), and checked on salary, nist and acs:
beyond them the distances change by less than they do from one release to the next.
"""

from __future__ import annotations

from collections.abc import Callable

from dpsql.methods.mixture.fit import Mixture, average, fit_mixture, pull_strength
from dpsql.methods.mixture.functions import Key, sharpened, start
from dpsql.methods.mixture.targets import Targets
from dpsql.running.parallel import THREADS, Workers

FEWEST_CLASSES = 64
_USUAL_CLASSES, _MOST_CLASSES, _CLASSES = 128, 1024, 10.0
_FEWEST_STEPS, _MOST_STEPS, _STEPS = 200, 600, 6.0


def usual_steps(strength: float) -> int:
    """Return the number of steps of a fit for n / sigma = ``strength``.

    Examples
    --------
    >>> usual_steps(500.0), usual_steps(1600.0), usual_steps(10_000.0)
    (200, 240, 600)
    """
    steps: int = round(min(max(_STEPS * strength**0.5, _FEWEST_STEPS), _MOST_STEPS))
    return steps


def class_work(columns: int, steps: int) -> float:
    """Return the floating-point operations that one class takes in a fit of D one-hot columns."""
    return 4.0 * columns**2 * steps


def usual_classes(
    columns: int, steps: int, strength: float, work: float, fewest: int = FEWEST_CLASSES, factor: float = 1.0
) -> int:
    """Return the number of classes of a fit for n / sigma = ``strength``: fewer where it would take more than ``work``.

    ``factor`` multiplies what the noise alone would suggest.

    Examples
    --------
    >>> usual_classes(71, 240, 1600.0, 2e11), usual_classes(1000, 240, 1600.0, 2e11)
    (400, 208)
    """
    usual = max(_CLASSES * strength**0.5, _USUAL_CLASSES, fewest)
    classes: int = round(max(min(factor * min(usual, _MOST_CLASSES), work / class_work(columns, steps)), fewest))
    return classes


def fit_seconds(columns: int, classes: int, steps: int, starts: int) -> float:
    """Return roughly the seconds of `fit_from_starts` on two cores, for D one-hot columns: measured on one machine."""
    step = 5.2e-11 * columns**2 * classes + 5e-9 * columns**2 + 6e-9 * columns * classes + 1.5e-4
    return steps * -(-starts // THREADS) * step


def fit_from_starts(targets: Targets, *, classes: int, steps: int, starts: int, pull: float = 1.0) -> Mixture:
    """Fit from several starts, two at a time, and average. Deterministic.

    Parameters
    ----------
    pull : float
        How strongly classes are pulled towards the one-way tables, relative to the rule for this noise.
    """
    strength = pull * pull_strength(len(targets.sizes), targets.strength)

    def fit(seed: int) -> Mixture:
        return fit_mixture(targets, classes=classes, steps=steps, pull=strength, seed=seed)

    return averaged(fit, starts)


def fit_with_key(targets: Targets, key: Key, *, classes: int, steps: int, starts: int, pull: float = 1.0) -> Mixture:
    """Fit as `fit_from_starts` does, but with the classes starting as the values of a column that others follow from."""
    strength = pull * pull_strength(len(targets.sizes), targets.strength)

    def fit(seed: int) -> Mixture:
        first = start(targets, key, classes, seed)
        mixture = fit_mixture(
            targets, classes=classes, steps=steps, pull=strength, seed=seed, start=first, independent=key.independent
        )
        return sharpened(mixture, targets, key)

    return averaged(fit, starts)


def averaged(fit: Callable[[int], Mixture], starts: int) -> Mixture:
    """Return the average of what a fit gives from each of several starts, two at a time."""
    with Workers(THREADS) as workers:
        return average(workers.map(fit, range(starts)))
