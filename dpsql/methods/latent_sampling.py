"""Rows from a fitted latent normal: blocks of bounded memory, reproducible from the generator.

Privacy: post-processing of released statistics throughout.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from dpsql.methods.latent_fit import block_starts, choice_probabilities

Float32 = npt.NDArray[np.float32]
CodeArray = npt.NDArray[np.int32]

_BLOCK_CELLS = 1 << 23
"""Latent values held at a time: 32 MB a copy in float32."""

_LONGEST_BLOCK = 65_536


def block_length(columns: int) -> int:
    """Return how many rows are drawn at a time for a table of this many one-hot columns."""
    return int(min(max(_BLOCK_CELLS // max(columns, 1), 1024), _LONGEST_BLOCK))


def sample_codes(
    loadings: Float32, offsets: Float32, sizes: Sequence[int], rows: int, rng: np.random.Generator
) -> Iterator[CodeArray]:
    """Yield blocks of decoded rows.

    Parameters
    ----------
    loadings : ndarray, shape (D, r)
    offsets : ndarray, shape (D,)
    sizes : sequence of int, length m
    rows : int
        At least 0.
    rng : numpy.random.Generator

    Yields
    ------
    ndarray of int32, shape (b, m)
    """
    starts, counts = block_starts(sizes), np.asarray(sizes, np.intp)
    block = block_length(offsets.size)
    for begin in range(0, rows, block):
        size = min(block, rows - begin)
        factors = rng.standard_normal((loadings.shape[1], size), dtype=np.float32)
        choice = choice_probabilities(loadings @ factors + offsets[:, None], starts, counts)
        yield _draw(choice, starts, counts, rng)


def _draw(
    choice: Float32, starts: npt.NDArray[np.intp], counts: npt.NDArray[np.intp], rng: np.random.Generator
) -> CodeArray:
    """Draw one code of each attribute from its column of probabilities (the largest of Gumbel utilities)."""
    rows = choice.shape[1]
    codes = np.zeros((rows, counts.size), np.int32)
    for i, (start, count) in enumerate(zip(starts, counts, strict=True)):
        level = rng.random(rows, dtype=np.float32)
        below = np.cumsum(choice[start : start + count - 1], axis=0) <= level
        codes[:, i] = below.sum(0)
    return codes


def sample_thresholded(
    factor: Float32, thresholds: npt.NDArray[np.float64], rows: int, rng: np.random.Generator
) -> Iterator[npt.NDArray[np.uint8]]:
    """Yield blocks of one-hot rows X = (L w > t), which may hold no value or several of one attribute.

    Parameters
    ----------
    factor : ndarray, shape (D, r)
        Root of the latent correlation matrix.
    thresholds : ndarray, shape (D,)
        May be infinite.
    rows : int
    rng : numpy.random.Generator

    Yields
    ------
    ndarray of uint8, shape (b, D)
    """
    block = block_length(thresholds.size)
    limits = thresholds.astype(np.float32)
    for begin in range(0, rows, block):
        size = min(block, rows - begin)
        latent = rng.standard_normal((size, factor.shape[1]), dtype=np.float32) @ factor.T
        yield (latent > limits).astype(np.uint8)
