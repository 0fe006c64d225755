"""Histogram, mode and occurrence from a counter per value."""

import numpy as np
import pytest

from dpsql.errors import ArgumentError
from dpsql.estimates import listed, moments, quantiles
from dpsql.estimates.measures import Measure, Variable

MEASURE = Measure("values", (Variable(0),), values=("a", "b", "c"))


def test_counts_of_values() -> None:
    noisy = np.array([[3.0, 9.0, -4.0], [-1.0, -2.0, 0.0], [0.0, 0.0, 40.0]])
    assert listed.histogram(MEASURE, noisy).tolist() == [[3, 9, 0], [0, 0, 0], [0, 0, 40]]
    assert listed.mode(MEASURE, noisy).tolist() == [1, -1, 2]
    assert listed.occurs(MEASURE, noisy, 2.0).tolist() == [[False, True, False], [False] * 3, [False, False, True]]
    assert listed.occurs(MEASURE, noisy, 0.0).tolist() == [[True, True, False], [False] * 3, [False, False, True]]
    with pytest.raises(ArgumentError, match="counters"):
        listed.mode(MEASURE, noisy[:, :2])
    with pytest.raises(ArgumentError, match="kind 'values'"):
        listed.mode(Measure("count"), noisy)


def test_a_value_that_does_not_occur_is_rarely_seen() -> None:
    """Of 30,000 counters of noise about 0.00135 pass: between 0.0007 and 0.0021 (4.9 deviations and more)."""
    noise = np.random.default_rng(1).normal(0, 5.0, (10_000, 3))
    assert 0.0003 < listed.occurs(MEASURE, noise, 5.0).mean() < 0.0024


def test_variances_of_counts_are_those_of_their_noise() -> None:
    """Of 20,000 draws each, within 4.9 deviations of the estimate of a variance."""
    rng, draws = np.random.default_rng(2), 20_000
    measure = Measure("moments", (Variable(0),), degree=2, nulls=True, grid=512)
    found = moments.moments(measure, rng.normal(0, 3.0 * 512, (draws, 4)), 3.0 * 512).count
    assert np.var(found) / (3 * 3.0**2) == pytest.approx(1, abs=0.049)
    tree = Measure("tree", (Variable(0),), levels=(4, 4))
    built = quantiles.tree(tree, np.concatenate([rng.normal(0, s, (draws, n)) for s, n in ((2.0, 4), (1.0, 16))], axis=1), [2.0, 1.0])
    assert np.var(built.count) / (4 * 2.0) == pytest.approx(1, abs=0.049)  # of each first cell: 4 alone, 4 from its leaves
