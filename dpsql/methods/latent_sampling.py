"""Rows from a fitted latent normal: blocks of bounded memory, reproducible from the generator.

Decoded rows are drawn with less variance than independent ones would have: the latent normals of a block come in
antithetic pairs with mean 0 and covariance exactly I, and the offsets of the block are adjusted until its one-way
tables are the fitted ones. Each row alone still follows the model (up to terms of the order of one over the block's
length).

Privacy: post-processing of released statistics throughout.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from dpsql.methods.blas import one_blas_thread
from dpsql.methods.latent_fit import Float32, block_starts, choice_probabilities, even_normals

FloatArray = npt.NDArray[np.float64]
IndexArray = npt.NDArray[np.intp]
CodeArray = npt.NDArray[np.int32]

_BLOCK_CELLS = 1 << 23
"""Latent values held at a time: 32 MB a copy in float32."""

_SHORTEST_BLOCK, _LONGEST_BLOCK = 4096, 65_536
_ROUNDS = 8
_LARGEST_MOVE = 0.5


def block_lengths(columns: int, rows: int) -> list[int]:
    """Return the lengths of the blocks that `rows` rows are drawn in: nearly equal, within the memory bound.

    Examples
    --------
    >>> block_lengths(194, 100_000)
    [33334, 33333, 33333]
    """
    longest = int(min(max(_BLOCK_CELLS // max(columns, 1), _SHORTEST_BLOCK), _LONGEST_BLOCK))
    blocks = -(-rows // longest)
    return [rows // blocks + (i < rows % blocks) for i in range(blocks)]


def sample_codes(
    loadings: Float32,
    offsets: Float32,
    sizes: Sequence[int],
    shares: FloatArray,
    rows: int,
    rng: np.random.Generator,
) -> Iterator[CodeArray]:
    """Yield blocks of decoded rows.

    Parameters
    ----------
    loadings : ndarray, shape (D, r)
    offsets : ndarray, shape (D,)
    sizes : sequence of int, length m
    shares : ndarray, shape (D,)
        One-way shares that the rows of each block are to have.
    rows : int
        At least 0.
    rng : numpy.random.Generator

    Yields
    ------
    ndarray of int32, shape (b, m)
    """
    starts, counts = block_starts(sizes), np.asarray(sizes, np.intp)
    for size in block_lengths(offsets.size, rows):
        yield _one_block(loadings, offsets, starts, counts, shares, size, rng)


def _one_block(
    loadings: Float32,
    offsets: Float32,
    starts: IndexArray,
    counts: IndexArray,
    shares: FloatArray,
    size: int,
    rng: np.random.Generator,
) -> CodeArray:
    """Draw `size` rows at once."""
    # A short block is cut from a longer one: over a few rows the shares could only be met by spoiling the rest.
    length = max(size, _SHORTEST_BLOCK)
    with one_blas_thread():
        utilities: Float32 = loadings @ even_normals(loadings.shape[1], length, rng)[:, :length]
    utilities += offsets[:, None]
    part = choice_probabilities(utilities[:, :_SHORTEST_BLOCK].copy(), starts, counts)
    slopes = length * (part * (1.0 - part)).mean(1, dtype=np.float64)
    noise = rng.standard_exponential(utilities.shape, dtype=np.float32)
    np.maximum(noise, np.float32(1e-30), out=noise)
    utilities -= np.log(noise, out=noise)
    codes = _decode_to_shares(utilities, starts, counts, length * shares, slopes)
    return codes[:size]


def _decode_to_shares(
    utilities: Float32, starts: IndexArray, counts: IndexArray, targets: FloatArray, slopes: FloatArray
) -> CodeArray:
    """Decode by the largest utility, with offsets moved until each value comes out as often as it should."""
    codes = np.zeros((utilities.shape[1], counts.size), np.int32)
    for i, (start, count) in enumerate(zip(starts, counts, strict=True)):
        if count == 1:
            continue
        block = slice(start, start + count)
        codes[:, i] = _decode_one(utilities[block], targets[block], slopes[block])
    return codes


def _decode_one(utilities: Float32, targets: FloatArray, slopes: FloatArray) -> IndexArray:
    """Decode one attribute.

    Newton's iteration on the counts with the diagonal of their derivative; (c - 1) / c allows for the values'
    moving against each other, which for two values is exact. The best of all rounds is returned.
    """
    count = len(targets)
    offset = np.zeros(count)
    slope = np.maximum(slopes, 1.0)
    best, best_miss = np.zeros(utilities.shape[1], np.intp), np.inf
    for _ in range(_ROUNDS):
        codes = np.argmax(utilities + offset.astype(np.float32)[:, None], axis=0)
        miss = targets - np.bincount(codes, minlength=count)
        size = float(np.abs(miss).sum())
        if size < best_miss:
            best, best_miss = codes, size
        large = np.where(np.abs(miss) < 1.0, 0.0, miss)  # a fraction of a row is left to chance
        if not large.any():
            break
        offset += np.clip((1.0 - 1.0 / count) * large / slope, -_LARGEST_MOVE, _LARGEST_MOVE)
    return best


def sample_thresholded(
    factor: Float32, thresholds: FloatArray, rows: int, rng: np.random.Generator
) -> Iterator[npt.NDArray[np.uint8]]:
    """Yield blocks of one-hot rows X = (L w > t), which may hold no value or several of one attribute.

    Parameters
    ----------
    factor : ndarray, shape (D, r)
        Root of the latent correlation matrix.
    thresholds : ndarray, shape (D,)
        May be infinite.
    rows : int
        At least 0.
    rng : numpy.random.Generator

    Yields
    ------
    ndarray of uint8, shape (b, D)
    """
    limits = thresholds.astype(np.float32)
    for size in block_lengths(thresholds.size, rows):
        with one_blas_thread():
            latent = rng.standard_normal((size, factor.shape[1]), dtype=np.float32) @ factor.T
        yield (latent > limits).astype(np.uint8)
