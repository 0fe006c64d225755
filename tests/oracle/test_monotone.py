"""The monotone curve against scipy's, which computes the same."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.interpolate import PchipInterpolator

from dpsql.numerics.monotone import Monotone

SHAPES = {
    "two points": ([0.0, 3.0], [1.0, 5.0]),
    "flat": ([0.0, 1.0, 2.0, 5.0], [2.0, 2.0, 2.0, 2.0]),
    "a step": ([0.0, 1.0, 1.0 + 1e-9, 2.0], [0.0, 0.0, 1.0, 1.0]),
    "turns": ([-2.0, 0.0, 0.5, 4.0, 4.5], [0.0, 3.0, -1.0, -1.0, 7.0]),
    "held back at its ends": ([0.0, 1.0, 1.5, 3.0, 3.1], [0.0, 0.1, -9.0, 8.0, 8.01]),
    "steep first": ([0.0, 1.0, 2.0, 3.0], [0.0, 100.0, 101.0, 1000.0]),
    "slopes that underflow": ([0.0, 1.0, 2.0, 3.0], [0.0, 1e-300, 3e-300, 4e-300]),
}


def same(places: np.ndarray, values: np.ndarray) -> None:
    reach = places[-1] - places[0]
    at = np.concatenate([places, np.linspace(places[0] - reach / 9, places[-1] + reach / 9, 501)])
    found, wanted = Monotone(places, values)(at), PchipInterpolator(places, values)(at)
    scale = np.abs(wanted).max()
    assert np.allclose(found / scale if scale else found, wanted / scale if scale else wanted, rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("shape", SHAPES)
def test_it_is_scipys(shape: str) -> None:
    same(*(np.array(part) for part in SHAPES[shape]))


@pytest.mark.parametrize("rising", [False, True])
@pytest.mark.parametrize("count", [2, 3, 4, 9, 60])
def test_random_points(count: int, rising: bool) -> None:
    rng = np.random.default_rng(count)
    for _ in range(20):
        places = np.cumsum(rng.exponential(size=count) + 1e-6)
        values = rng.standard_cauchy(count) * (rng.random(count) < 0.8)
        same(places, np.cumsum(np.abs(values)) if rising else values)


def test_it_never_leaves_the_values_beside_it() -> None:
    rng = np.random.default_rng(7)
    places, values = np.cumsum(rng.exponential(size=50) + 1e-6), rng.standard_normal(50).round(1)
    curve = Monotone(places, values)
    for left, right, one, other in zip(places, places[1:], values, values[1:], strict=False):
        between = curve(np.linspace(left, right, 40, endpoint=False))
        assert min(one, other) - 1e-12 <= between.min() and between.max() <= max(one, other) + 1e-12


@pytest.mark.parametrize("places", [[1.0], [0.0, 0.0], [0.0, 2.0, 1.0]])
def test_points_in_no_order_are_refused(places: list[float]) -> None:
    with pytest.raises(ValueError, match="two points, in ascending order"):
        Monotone(np.array(places), np.zeros(len(places)))
