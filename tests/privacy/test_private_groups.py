"""Private groups, exactly: the law of what is released on tiny tables, for neighbours, against what is charged."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from dpsql import accounting as acc
from dpsql.estimates.thresholds import passing, present, threshold

ABSENT = None
Law = dict[int | None, float]


def _noise(mechanism: str, scale: float) -> dict[int, float]:
    reach = math.ceil(11 * scale) if mechanism == "gaussian" else math.ceil(32 * scale)  # all but 1e-14 of it
    weights = {x: math.exp(-x * x / (2 * scale**2) if mechanism == "gaussian" else -abs(x) / scale) for x in range(-reach, reach + 1)}
    mass = sum(weights.values())
    return {x: weight / mass for x, weight in weights.items()}


def _law(units: int, noise: dict[int, float], tau: int, min_units: int) -> Law:
    """Return the law of what one group shows: nothing, or its noisy count; by the functions that a release uses."""
    if not present(np.asarray([units]), min_units)[0] or units == 0:
        return {ABSENT: 1.0}
    found: Law = {ABSENT: 0.0}
    noisy = np.asarray([units + x for x in noise])
    for value, seen, probability in zip(noisy.tolist(), passing(noisy, tau, min_units).tolist(), noise.values(), strict=True):
        key = value if seen else ABSENT
        found[key] = found.get(key, 0.0) + probability
    return found


def divergence(first: list[int], second: list[int], noise: dict[int, float], tau: int, min_units: int, epsilon: float) -> float:
    """Return sup over events of P(A) - e^epsilon Q(A), by listing all outputs."""
    pairs = []
    for a, b in zip(first, second, strict=True):
        p, q = _law(a, noise, tau, min_units), _law(b, noise, tau, min_units)
        if p != q:  # equal groups are independent of the others and add nothing
            pairs.append([(p.get(key, 0.0), q.get(key, 0.0)) for key in {**p, **q}])
    found = 0.0
    for outcome in itertools.product(*pairs):
        p_all, q_all = math.prod(p for p, _ in outcome), math.prod(q for _, q in outcome)
        found += max(0.0, p_all - math.exp(epsilon) * q_all)
    return found


def _neighbours(groups: int, neighbors: str) -> list[tuple[list[int], list[int]]]:
    """Return tables of up to three groups, as numbers of units, and neighbours; a unit is in at most ``groups`` of them."""
    found = []
    for others in [(0, 0, 0), (0, 1, 3), (1, 1, 0), (2, 0, 1), (1, 2, 2)]:
        subsets = [set(s) for n in range(groups + 1) for s in itertools.combinations(range(3), n)]
        for unit in subsets:
            table = [n + (g in unit) for g, n in enumerate(others)]
            found += [(table, list(others)), (list(others), table)] if neighbors == "add_remove" else [
                (table, [n + (g in other) for g, n in enumerate(others)]) for other in subsets
            ]
    return found


@pytest.mark.parametrize("min_units", [1, 2])
@pytest.mark.parametrize("neighbors", acc.NEIGHBORS)
@pytest.mark.parametrize(
    ("mechanism", "scale", "groups", "delta"),
    [("gaussian", 0.8, 1, 1e-4), ("gaussian", 0.9, 2, 1e-3), ("gaussian", 0.7, 3, 3e-4), ("laplace", 0.6, 2, 1e-3)],
)
def test_what_is_released_costs_what_is_charged(
    mechanism: str, scale: float, groups: int, delta: float, neighbors: str, min_units: int
) -> None:
    """The curve of every pair is below that of the noise plus delta; with a threshold of one less it is not."""
    exact = Fraction(scale)
    tau = threshold(mechanism, exact, groups, delta)
    noise = _noise(mechanism, scale)
    factor = 1 if neighbors == "add_remove" else 2
    event = acc.GaussianEvent(exact, math.sqrt(factor * groups)) if mechanism == "gaussian" else acc.LaplaceEvent(exact, factor * groups)
    small = 0 if event.gaussian else float(event.epsilon)

    def admitted(epsilon: float) -> float:
        if isinstance(event, acc.GaussianEvent):
            return acc.gaussian_delta(math.sqrt(2 * float(event.rho)), epsilon)
        return 0.0 if epsilon >= small else 1.0

    lowered = False
    for first, second in _neighbours(groups, neighbors):
        for epsilon in (small, 0.5 + small, 2.0 + small, 6.0 + small, 30.0):
            assert divergence(first, second, noise, tau, min_units, epsilon) <= admitted(epsilon) + delta + 1e-12
            lowered |= divergence(first, second, noise, tau - 1, min_units, epsilon) > admitted(epsilon) + delta + 1e-9
    assert lowered


def test_the_delta_of_all_groups_of_a_unit_is_charged() -> None:
    """A threshold for one group, used where a unit may be in three, costs more than its delta."""
    one, three = (threshold("gaussian", Fraction(1), n, 1.5e-4) for n in (1, 3))
    assert one <= three
    first, second, noise = [1, 1, 1], [0, 0, 0], _noise("gaussian", 1.0)
    alone = divergence([1], [0], noise, one, 1, 30.0)
    assert alone <= 1.5e-4 < divergence(first, second, noise, one, 1, 30.0) == pytest.approx(1 - (1 - alone) ** 3, rel=1e-9)
    assert divergence(first, second, noise, three, 1, 30.0) <= 1.5e-4


@pytest.mark.parametrize("min_units", [1, 3])
def test_a_minimum_without_dropping_smaller_groups_is_caught(min_units: int) -> None:
    """The hard promise: with k = 3 no group of two units appears, whatever its noise."""
    noise = _noise("gaussian", 1.0)
    tau = threshold("gaussian", Fraction(1), 1, 1e-2)
    assert _law(min_units - 1, noise, tau, min_units) == {ABSENT: 1.0}
    seen = _law(min_units, noise, tau, min_units)
    assert 0 < 1 - float(seen[ABSENT] or 0) <= 1e-2
    assert min(key for key in seen if key is not None) == tau + min_units - 1
