"""Rows from a fitted latent normal: blocks of bounded memory, drawn by several threads, reproducible from the generator.

Decoded rows are drawn with less variance than independent ones would have: the latent normals of a block come in
antithetic pairs with mean 0 and covariance exactly I, and the offsets of the block are adjusted until its one-way
tables are the fitted ones. Each row alone still follows the model (up to terms of the order of one over the block's
length).

Given the latent normals u, an attribute takes code a with probability softmax(z)_a, z = A u + o, which is what the
largest of z plus Gumbel noise gives, or of exp(z) over exponential noise. For two codes one uniform number v of 32 bits
does: code 1 where exp(z_0 - z_1) v / (1 - v) < 1. (One number would do for many codes too, falling among cumulative
probabilities; but then the adjustment of one code's offset moves all others, and the shares are not met.)

Privacy: post-processing of released statistics throughout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from dpsql.methods.gaussian_copula.fit import Float32, block_starts, even_normals
from dpsql.numerics.arrays import FloatArray
from dpsql.numerics.products import multiplies
from dpsql.running.blas import one_blas_thread
from dpsql.running.blocks import Stop, drawn, generators

IndexArray = npt.NDArray[np.intp]
AnyCodes = npt.NDArray[np.integer]

ROW_GROUP = 122_880
"""Rows that DuckDB stores together: blocks of this length are written fastest."""

_BLOCK_BYTES = 1 << 28
_PART_CELLS = 1 << 24
"""Latent values of one attribute, or latent normals, held at a time: 64 MB in float32."""

CHUNK = 64
"""Attributes of two codes whose utilities are computed with one matrix product."""

_SHORTEST_BLOCK = 4096
_ROUNDS = 8
_LARGEST_MOVE = 0.5
_LARGE = np.float32(1e30)
_STRIP, _WIDE_STRIP = 1 << 12, 1 << 14
"""Rows of all columns, or of a few, that are worked on together to keep them in the processor's cache."""

_LONG = 40_000
"""Rows of a block beyond which fewer rounds bring its shares as near."""


@dataclass(frozen=True)
class _Model:
    """What a block is drawn from: utilities of the two-code attributes as differences, those of others as they are."""

    loadings: Float32
    offsets: Float32
    starts: IndexArray
    counts: IndexArray
    shares: FloatArray
    binary: IndexArray
    binary_loadings: Float32
    binary_offsets: Float32

    @property
    def code_type(self) -> npt.DTypeLike:
        """The smallest unsigned type that holds every code."""
        return np.min_scalar_type(max(int(self.counts.max(initial=1)) - 1, 1))


def _model(loadings: Float32, offsets: Float32, sizes: Sequence[int], shares: FloatArray) -> _Model:
    starts, counts = block_starts(sizes), np.asarray(sizes, np.intp)
    binary = np.flatnonzero(counts == 2)
    zero, one = starts[binary], starts[binary] + 1
    return _Model(
        loadings, offsets, starts, counts, shares, binary, loadings[zero] - loadings[one], offsets[zero] - offsets[one]
    )


def block_lengths(sizes: Sequence[int], rank: int, rows: int) -> list[int]:
    """Return the lengths of the blocks that rows are drawn in: a row group or a half, a quarter, ... of it, for memory's sake.

    Examples
    --------
    >>> block_lengths([2] * 1000, 64, 300_000), block_lengths([200, 2], 64, 100_000)
    ([122880, 122880, 54240], [61440, 38560])
    """
    width, length = max(len(sizes) * (1 if max(sizes) <= 256 else 4), 1), ROW_GROUP
    most = max(max(sizes), rank, 1)
    while length > _SHORTEST_BLOCK and (length * most > _PART_CELLS or length * width > _BLOCK_BYTES):
        length //= 2
    whole, rest = divmod(rows, length)
    return [length] * whole + [rest] * (rest > 0)


def sample_codes(
    loadings: Float32,
    offsets: Float32,
    sizes: Sequence[int],
    shares: FloatArray,
    rows: int,
    rng: np.random.Generator,
) -> Iterator[AnyCodes]:
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
    ndarray of the smallest unsigned type, shape (b, m)
        Each column is contiguous.

    Notes
    -----
    Privacy: post-processing.
    """
    model = _model(loadings, offsets, sizes, shares)
    return _blocks(partial(_one_block, model), block_lengths(sizes, loadings.shape[1], rows), rng)


def _blocks(
    draw: Callable[[int, np.random.Generator, Stop], AnyCodes], lengths: Sequence[int], rng: np.random.Generator
) -> Iterator[AnyCodes]:
    def task(length: int, own: np.random.Generator) -> Callable[[Stop], AnyCodes]:
        return lambda stop: draw(length, own, stop)

    tasks = [task(length, own) for length, own in zip(lengths, generators(rng, len(lengths)), strict=True)]
    with one_blas_thread():
        yield from drawn(tasks)


def _one_block(model: _Model, size: int, rng: np.random.Generator, stop: Stop) -> AnyCodes:
    """Draw `size` rows at once."""
    # A short block is cut from a longer one: over a few rows the shares could only be met by spoiling the rest.
    length = max(size, _SHORTEST_BLOCK)
    latent = even_normals(model.loadings.shape[1], length, rng)[:, :length]
    codes = np.zeros((model.counts.size, length), model.code_type)
    with np.errstate(over="ignore", invalid="ignore"):
        _draw_binary(model, latent, codes, rng, stop)
        many = np.flatnonzero(model.counts > 2)
        memory = np.empty((model.counts[many].max(initial=0), length), np.float32)
        for i in many:
            block = slice(model.starts[i], model.starts[i] + model.counts[i])
            utilities = _product(model.loadings[block], latent, memory, stop)
            utilities += model.offsets[block, None]
            _choose(utilities, length * model.shares[block], rng, codes[i], stop)
    return codes[:, :size].T


def _draw_binary(model: _Model, latent: Float32, codes: AnyCodes, rng: np.random.Generator, stop: Stop) -> None:
    """Draw the attributes with two codes into the rows of `codes`."""
    length = latent.shape[1]
    odds = np.empty(length, np.float32)
    memory = np.empty((min(CHUNK, model.binary.size), length), np.float32)
    for first in range(0, model.binary.size, CHUNK):
        chunk = slice(first, first + CHUNK)
        utilities = _product(model.binary_loadings[chunk], latent, memory, stop)
        for i, against, offset in zip(model.binary[chunk], utilities, model.binary_offsets[chunk], strict=True):
            against += offset
            np.exp(against, out=against)
            # The slope is told by the first rows: it only says how far to move a bound.
            part = np.minimum(against[:_SHORTEST_BLOCK], _LARGE).astype(np.float64)
            slope = length * float(np.mean(part / np.square(1.0 + part)))
            _random_odds(rng, odds)
            against *= odds
            codes[i] = _below(against, length * float(model.shares[model.starts[i] + 1]), slope)


def _random_odds(rng: np.random.Generator, odds: Float32) -> None:
    """Fill with v / (1 - v), v uniform in steps of 2^-32: as exact where v is near 1 as where it is near 0."""
    bits = rng.integers(0, 2**64, odds.size // 2 + 1, dtype=np.uint64).view(np.uint32)[: odds.size]
    np.copyto(odds, bits, casting="same_kind")
    odds += np.float32(0.5)
    np.invert(bits, out=bits)
    others = bits.astype(np.float32)
    others += np.float32(0.5)
    odds /= others


@multiplies
def _product(loadings: Float32, latent: Float32, memory: Float32, stop: Stop) -> Float32:
    """Return loadings @ latent within the given memory, in strips that stay in the processor's cache."""
    product = memory[: len(loadings)]
    for first in range(0, latent.shape[1], _STRIP):
        stop.check()
        strip = slice(first, first + _STRIP)
        np.matmul(loadings, latent[:, strip], out=product[:, strip])
    return product


def _below(values: Float32, count: float, slope: float) -> npt.NDArray[np.bool_]:
    """Return where values are below a bound near 1, chosen so that `count` of them are; a fraction is left to chance.

    Newton's iteration in the logarithm of the bound, along which the count grows by `slope`. The best round is returned.
    """
    move, best, best_miss, least = 0.0, None, np.inf, _tolerance(values.size)
    for _ in range(_ROUNDS):
        below = values < np.float32(np.exp(move))
        miss = count - np.count_nonzero(below)
        if abs(miss) < best_miss:
            best, best_miss = below, abs(miss)
        if abs(miss) < least:
            break
        move += min(max(miss / max(slope, 1.0), -_LARGEST_MOVE), _LARGEST_MOVE)
    return below if best is None else best


def _tolerance(length: int) -> float:
    """Return the number of rows by which a block may miss its shares: the noise of any release is larger."""
    return max(1.0, length / 2**15)


def _choose(utilities: Float32, targets: FloatArray, rng: np.random.Generator, codes: AnyCodes, stop: Stop) -> None:
    """Draw one attribute of three or more codes, with weights moved until each code comes out as often as it should.

    Newton's iteration on the counts with the diagonal of their derivative; (c - 1) / c allows for the values'
    moving against each other. The best of all rounds is kept.
    """
    utilities -= utilities.max(axis=0)
    weights = np.exp(utilities, out=utilities)
    count, length = weights.shape
    part = weights[:, :_SHORTEST_BLOCK] / weights[:, :_SHORTEST_BLOCK].sum(0)
    slopes = np.maximum(length * (part * (1.0 - part)).mean(1, dtype=np.float64), 1.0)
    scores = _against_noise(weights, rng)
    offset, best_miss, least = np.zeros(count), np.inf, _tolerance(length)
    for _ in range(_ROUNDS if length < _LONG else _ROUNDS // 2):
        stop.check()
        factors: Float32 = np.exp(offset, dtype=np.float64).astype(np.float32)
        chosen = _largest(scores, factors, codes.dtype)
        miss = targets - np.bincount(chosen, minlength=count)
        size = float(np.abs(miss).sum())
        if size < best_miss:
            codes[:], best_miss = chosen, size
        large = np.where(np.abs(miss) < least, 0.0, miss)  # a fraction of a row is left to chance
        if not large.any():
            break
        offset += np.clip((1.0 - 1.0 / count) * large / slopes, -_LARGEST_MOVE, _LARGEST_MOVE)


def _against_noise(weights: Float32, rng: np.random.Generator) -> Float32:
    """Divide weights by standard exponential numbers, in place: the largest of a column is each code with its probability."""
    for row in weights:
        noise = rng.integers(0, 2**64, row.size // 2 + 1, dtype=np.uint64).view(np.uint32)[: row.size].astype(np.float32)
        noise += np.float32(0.5)
        noise *= np.float32(2.0**-32)
        np.log(noise, out=noise)
        np.minimum(noise, np.float32(-1e-9), out=noise)
        row /= noise
    return np.negative(weights, out=weights)


def _largest(scores: Float32, factors: Float32, kind: npt.DTypeLike) -> AnyCodes:
    """Return the row in which each column of scores times factors is largest."""
    largest = np.zeros(scores.shape[1], kind)
    memory, truths = np.empty((2, _WIDE_STRIP), np.float32), np.empty(_WIDE_STRIP, np.bool_)
    for first in range(0, largest.size, _WIDE_STRIP):
        some, place = scores[:, first : first + _WIDE_STRIP], largest[first : first + _WIDE_STRIP]
        best, step = memory[:, : place.size]
        larger = truths[: place.size]
        np.multiply(some[0], factors[0], out=best)
        for code in range(1, len(some)):
            np.multiply(some[code], factors[code], out=step)
            np.greater(step, best, out=larger)
            np.copyto(place, code, where=larger, casting="unsafe")
            np.maximum(best, step, out=best)
    return largest


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
        Each column is contiguous.

    Notes
    -----
    Privacy: post-processing.
    """
    limits = thresholds.astype(np.float32)

    @multiplies
    def draw(size: int, own: np.random.Generator, stop: Stop) -> AnyCodes:
        latent = own.standard_normal((factor.shape[1], size), dtype=np.float32)
        hot = np.empty((limits.size, size), np.bool_)
        for first in range(0, limits.size, CHUNK):
            stop.check()
            chunk = slice(first, first + CHUNK)
            np.greater(factor[chunk] @ latent, limits[chunk, None], out=hot[chunk])
        return hot.view(np.uint8).T

    lengths = block_lengths([1] * thresholds.size, factor.shape[1], rows)
    yield from (block.astype(np.uint8, copy=False) for block in _blocks(draw, lengths, rng))
