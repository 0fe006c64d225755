"""Shares of numbers of children from noisy ones."""

from __future__ import annotations

import numpy as np

from dpsql.methods.nested_classes import Shape, TableShape, blocks, shares
from dpsql.methods.nested_classes.smooth import smoothed
from dpsql.methods.nested_classes.targets import targets


def bump(size: int = 33) -> np.ndarray:
    """Return a third without children, the others around ten."""
    mass = np.exp(-0.5 * ((np.arange(size - 1) - 10.0) / 4.0) ** 2)
    return np.concatenate([[1 / 3], 2 / 3 * mass / mass.sum()])


def test_smooth_shares_lose_most_of_their_noise() -> None:
    """Means of 40 seeded draws: the same every time."""
    truth, rng, deviation = bump(), np.random.default_rng(1), 0.003
    before, after, claimed = [], [], []
    for _ in range(40):
        noisy = truth + rng.normal(0, deviation, truth.size)
        found, variances = smoothed(noisy, np.full(truth.size, deviation**2))
        before.append(((noisy - truth)[1:] ** 2).mean())
        after.append(((found - truth)[1:] ** 2).mean())
        claimed.append(variances[1:].mean())
        assert found[0] == noisy[0]
    assert np.mean(after) < 0.5 * np.mean(before)
    assert 0.5 < np.mean(after) / np.mean(claimed) < 2.0


def test_a_long_tail_is_smoothed_more_than_the_shares_before_it() -> None:
    """Means of 40 seeded draws: the same every time."""
    truth, rng, deviation = 0.3 * 0.7 ** np.arange(21), np.random.default_rng(4), 0.0012
    before, after, spread = np.zeros(20), np.zeros(20), np.zeros(20)
    for _ in range(40):
        noisy = truth + rng.normal(0, deviation, truth.size)
        found, variances = smoothed(noisy, np.full(truth.size, deviation**2))
        before += (noisy - truth)[1:] ** 2 / 40
        after += (found - truth)[1:] ** 2 / 40
        spread += variances[1:] / 40
    assert after[:4].mean() < 1.1 * before[:4].mean()
    assert after[10:].mean() < 0.4 * before[10:].mean()
    assert spread[10:].mean() < 0.4 * deviation**2 < spread[:2].mean()


def test_shares_that_jump_by_more_than_their_noise_stay() -> None:
    truth = np.concatenate([[0.2], np.tile([0.08, 0.02], 8)])
    noisy = truth + np.random.default_rng(2).normal(0, 1e-3, truth.size)
    found, variances = smoothed(noisy, np.full(truth.size, 1e-6))
    assert np.abs(found - noisy).max() < 5e-4
    assert variances.min() > 0.8e-6


def test_short_and_exact_shares_are_not_touched() -> None:
    for size, variance in ((6, 1e-4), (12, 0.0)):
        given = np.random.default_rng(size).random(size)
        found, variances = smoothed(given, np.full(size, variance))
        assert np.array_equal(found, given)
        assert np.array_equal(variances, np.full(size, variance))


def test_the_fit_gets_the_better_shares_and_their_precision() -> None:
    shape = Shape((TableShape("p", None, (3,)), TableShape("c", 0, (2,), most=32)))
    measured, rng, deviation = blocks(shape), np.random.default_rng(3), 0.003
    place = next(i for i, block in enumerate(measured) if block.kind == "one" and block.left == (0, 1))
    values = [np.full(block.shape(shape), 1 / np.prod(block.shape(shape))) for block in measured]
    values = [value + rng.normal(0, deviation, value.shape) for value in values]
    values[place] = bump() + rng.normal(0, deviation, 33)
    found = targets(shape, measured, values, [deviation] * len(measured))
    plain = found.singles[0].weights[:3]
    assert found.singles[0].weights[4:].min() > 1.5 * plain.max()
    assert np.array_equal(found.singles[0].shares[:3], values[0].astype(np.float32))


def test_numbers_of_children_have_a_part_of_their_own() -> None:
    shape = Shape((TableShape("p", None, (3, 7)), TableShape("c", 0, (2, 2), most=32), TableShape("d", 0, (4,), most=2)))
    measured = blocks(shape)
    found = shares(shape, measured)
    counting = [block.kind == "one" and block.left in ((0, 2), (0, 3)) for block in measured]
    assert found.sum() == np.float64(1.0) or abs(found.sum() - 1.0) < 1e-12
    assert abs(found[counting].sum() - 1 / 7) < 1e-12
    others = [block.kind == "one" and not counted for block, counted in zip(measured, counting, strict=True)]
    assert abs(found[others].sum() - 1 / 11) < 1e-12
