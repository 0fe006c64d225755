"""The calibration's gradient against finite differences, and the fitted tables against the model's own integral."""

import numpy as np

from dpsql.methods.latent_fit import (
    Schedule,
    _target,
    _utility_gradient,
    block_starts,
    calibrate,
    choice_probabilities,
)

SIZES = (3, 2, 4)
STARTS, COUNTS = block_starts(SIZES), np.asarray(SIZES)
PAIRS = [(0, 1), (0, 2), (1, 2)]


def softmax_by_hand(utilities: np.ndarray) -> np.ndarray:
    parts = np.split(np.exp(utilities), np.cumsum(SIZES)[:-1])
    return np.concatenate([p / p.sum(0) for p in parts])


def test_choice_probabilities_survive_large_utilities() -> None:
    utilities = np.random.default_rng(0).normal(size=(9, 50)).astype(np.float32)
    found = choice_probabilities(utilities.copy(), STARTS, COUNTS)
    assert np.allclose(found, softmax_by_hand(utilities), atol=1e-6)
    extreme = choice_probabilities(1e4 * utilities, STARTS, COUNTS)
    assert np.isfinite(extreme).all()
    assert np.allclose(np.add.reduceat(extreme, STARTS, axis=0), 1.0, atol=1e-5)


def test_gradient_equals_finite_differences() -> None:
    rng = np.random.default_rng(1)
    utilities = rng.normal(size=(9, 6))
    tables = {(i, j): rng.uniform(size=(SIZES[i], SIZES[j])) for i, j in PAIRS}
    deviation = {(0, 1): 1.0, (0, 2): 2.0, (1, 2): 1.0}
    shares = rng.uniform(size=9).astype(np.float32)
    target, precision = _target(STARTS, COUNTS, tables, deviation)

    def loss(given: np.ndarray) -> float:
        choice = softmax_by_hand(given)
        total = 0.5 * np.sum((choice.mean(1) - shares) ** 2)
        blocks = np.split(choice, np.cumsum(SIZES)[:-1])
        for i, j in PAIRS:
            weight = 0.25 if (i, j) == (0, 2) else 1.0
            total += 0.5 * weight * np.sum((blocks[i] @ blocks[j].T / 6 - tables[(i, j)]) ** 2)
        return float(total)

    choice = choice_probabilities(utilities.astype(np.float32), STARTS, COUNTS)
    found = _utility_gradient(choice, target, precision, shares, STARTS, COUNTS) / 6
    for row in range(9):
        for column in range(6):
            moved = utilities.copy()
            moved[row, column] += 1e-5
            back = utilities.copy()
            back[row, column] -= 1e-5
            assert abs((loss(moved) - loss(back)) / 2e-5 - found[row, column]) < 1e-6


def test_calibration_finds_the_tables_of_a_model_of_its_own_kind() -> None:
    rng = np.random.default_rng(2)
    loadings, offsets = rng.normal(0, 2, (9, 3)), rng.normal(0, 0.5, 9)
    choice = softmax_by_hand(loadings @ rng.standard_normal((3, 400_000)) + offsets[:, None])
    blocks = np.split(choice, np.cumsum(SIZES)[:-1])
    tables = {(i, j): blocks[i] @ blocks[j].T / 400_000 for i, j in PAIRS}
    one_way = [b.mean(1) for b in blocks]
    start = rng.normal(0, 0.3, (9, 5)).astype(np.float32)
    fitted, offset = calibrate(
        start, np.zeros(9, np.float32), SIZES, one_way, tables, dict.fromkeys(PAIRS, 1.0), Schedule(400, 2048, 0.1)
    )
    draws = np.random.default_rng(3).standard_normal((5, 400_000)).astype(np.float32)
    again = np.split(softmax_by_hand(fitted @ draws + offset[:, None]), np.cumsum(SIZES)[:-1])
    for i, j in PAIRS:
        assert np.abs(again[i] @ again[j].T / 400_000 - tables[(i, j)]).max() < 0.006
