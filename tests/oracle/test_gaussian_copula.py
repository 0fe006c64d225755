"""The calibration's gradient against finite differences, and the fitted tables against the model's own integral."""

import numpy as np
import pytest

from dpsql.methods.gaussian_copula.fit import (
    FreeColumns,
    Schedule,
    block_starts,
    calibrate,
    choice_probabilities,
    targets,
    utility_pull,
)

SIZES = (3, 2, 1, 4, 2)
D = sum(SIZES)
STARTS, COUNTS = block_starts(SIZES), np.asarray(SIZES)
FREE = FreeColumns.of(SIZES)
PAIRS = [(0, 1), (0, 3), (1, 3), (0, 4), (1, 4), (3, 4)]


def stacks(tables: dict, deviation: dict):
    return [(np.array([pair]), table[None], np.array([deviation[pair]])) for pair, table in tables.items()]


def spread(free: np.ndarray) -> np.ndarray:
    """Utilities of all columns from those of the free ones."""
    every = np.zeros((D, *free.shape[1:]), free.dtype)
    every[FREE.columns] = free
    return every


def softmax_by_hand(utilities: np.ndarray) -> np.ndarray:
    parts = np.split(np.exp(utilities), np.cumsum(SIZES)[:-1])
    return np.concatenate([p / p.sum(0) for p in parts])


def test_choice_probabilities_survive_large_utilities() -> None:
    utilities = np.random.default_rng(0).normal(size=(D, 50)).astype(np.float32)
    found = choice_probabilities(utilities.copy(), STARTS, COUNTS)
    assert np.allclose(found, softmax_by_hand(utilities), atol=1e-6)
    extreme = choice_probabilities(1e4 * utilities, STARTS, COUNTS)
    assert np.isfinite(extreme).all()
    assert np.allclose(np.add.reduceat(extreme, STARTS, axis=0), 1.0, atol=1e-5)


def test_free_columns_are_one_of_two_values_and_all_of_more() -> None:
    # Columns 0-2, 3-4, 5, 6-9, 10-11: the second of either pair first, then attributes of 3 and 4 values.
    assert FREE.columns.tolist() == [4, 11, 0, 1, 2, 6, 7, 8, 9]
    assert (FREE.binary, FREE.starts.tolist(), FREE.counts.tolist()) == (2, [2, 5], [3, 4])
    assert FREE.firsts.tolist() == [2, 0, -1, 5, 1]
    alone = FreeColumns.of((1, 1))
    assert alone.columns.size == alone.binary == alone.starts.size == 0


@pytest.mark.parametrize("size", [1.0, 1e4])
def test_choice_is_the_softmax_with_one_utility_of_a_binary_attribute_at_zero(size: float) -> None:
    utilities = size * np.random.default_rng(0).normal(size=(9, 50)).astype(np.float32)
    with np.errstate(over="ignore"):
        expected = choice_probabilities(spread(utilities), STARTS, COUNTS)[FREE.columns]
    assert np.allclose(FREE.choice(utilities.copy()), expected, atol=1e-6)


def test_gradient_equals_finite_differences() -> None:
    rng = np.random.default_rng(1)
    utilities = rng.normal(size=(9, 6))
    tables = {(i, j): rng.uniform(size=(SIZES[i], SIZES[j])) for i, j in PAIRS}
    deviation = {**dict.fromkeys(PAIRS, 1.0), (0, 3): 2.0}
    one_way = [rng.uniform(size=size) for size in SIZES]
    given = targets(FREE, one_way, stacks(tables, deviation))
    shares, greatest = np.concatenate(one_way), 4.0  # two binary attributes at deviation 1

    def loss(free: np.ndarray) -> float:
        choice = softmax_by_hand(spread(free))
        total = 0.5 * np.sum((choice.mean(1) - shares)[FREE.columns] ** 2)
        blocks = np.split(choice, np.cumsum(SIZES)[:-1])
        for i, j in PAIRS:
            miss = blocks[i] @ blocks[j].T / 6 - tables[(i, j)]
            miss, stands = miss[SIZES[i] == 2 :, SIZES[j] == 2 :], (1 + (SIZES[i] == 2)) * (1 + (SIZES[j] == 2))
            total += 0.5 * stands / greatest / deviation[(i, j)] ** 2 * np.sum(miss**2)
        return float(total)

    choice = FREE.choice(utilities.astype(np.float32))
    found = utility_pull(choice @ choice.T, choice, given, FREE) / 6
    for row in range(9):
        for column in range(6):
            moved, back = utilities.copy(), utilities.copy()
            moved[row, column] += 1e-5
            back[row, column] -= 1e-5
            assert abs((loss(moved) - loss(back)) / 2e-5 - found[row, column]) < 1e-6


def test_calibration_finds_the_tables_of_a_model_of_its_own_kind() -> None:
    rng = np.random.default_rng(2)
    loadings, offsets = rng.normal(0, 2, (D, 3)), rng.normal(0, 0.5, D)
    choice = softmax_by_hand(loadings @ rng.standard_normal((3, 400_000)) + offsets[:, None])
    blocks = np.split(choice, np.cumsum(SIZES)[:-1])
    tables = {(i, j): blocks[i] @ blocks[j].T / 400_000 for i, j in PAIRS}
    given = targets(FREE, [b.mean(1) for b in blocks], stacks(tables, dict.fromkeys(PAIRS, 1.0)))
    start = rng.normal(0, 0.3, (9, 5)).astype(np.float32)
    fitted, offset = calibrate(start, np.zeros(9, np.float32), FREE, given, Schedule(400, 2048, 0.1))
    draws = np.random.default_rng(3).standard_normal((5, 400_000)).astype(np.float32)
    again = np.split(softmax_by_hand(spread(fitted @ draws + offset[:, None])), np.cumsum(SIZES)[:-1])
    for i, j in PAIRS:
        assert np.abs(again[i] @ again[j].T / 400_000 - tables[(i, j)]).max() < 0.006
