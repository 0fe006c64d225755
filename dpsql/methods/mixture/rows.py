"""Rows from a mixture of product distributions, with far less sampling noise than independent draws have.

1. Class sizes by systematic sampling: each is its expectation, rounded up or down.
2. Within a class every attribute takes each value as often as the model says, rounded up or down; what rounding leaves
   over is carried from class to class, so that the one-way tables of all rows are the model's up to one row a value.
   The values are put in random order, independently for every attribute.
3. What is random now is which values of a class meet. Pairs of rows of one class exchange their values of an attribute
   where that brings the two-way tables of the rows closer to the model's (least squares). No exchange changes a one-way
   table, or what a class holds; so dependence of higher order stays the model's.
4. The rows are shuffled.

Work is done in blocks of bounded length, by several threads. The noise of sampling falls with the number of rows and
the model's own error does not, so step 3 is left out where a table is long.

Privacy: post-processing of released statistics.

References: Zhang et al. (2021), *PrivSyn*, arXiv:2012.15128, for updating rows step by step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from dpsql.methods.mixture.fit import Mixture, pair_matrix
from dpsql.numerics.arrays import CodeArray, FloatArray
from dpsql.running.blocks import Stop, drawn, generators

Float32 = npt.NDArray[np.float32]
IndexArray = npt.NDArray[np.intp]

_LONGEST_BLOCK, _LONG_BLOCK = 1 << 16, 1 << 18
"""Rows of a block of a short table and of a long one, whose work per class is worth sharing."""

_LONG = 1 << 17
"""Rows beyond which a table is long."""

_LONGEST_FINISHED = 1 << 18
"""Rows beyond which their pair tables are left as they fall: they fall closer to the model's than this is to the data's."""

_SWEEPS = 2
_SWEEP_WORK = 650_000_000
"""Cells that may be looked up: a sweep of n rows with m attributes looks up 2 n m^2."""

_BATCHES = 32
"""Parts of the pairs of a sweep: within a part exchanges do not know of each other."""

_IMPOSSIBLE = 1e-9


def sweeps(rows: int, attributes: int) -> int:
    """Return how many times every attribute of a table of so many rows is gone through in step 3.

    Examples
    --------
    >>> sweeps(32_561, 15), sweeps(1_000_000, 15)
    (2, 0)
    """
    if rows > _LONGEST_FINISHED:
        return 0
    return min(_SWEEPS, _SWEEP_WORK // max(2 * rows * attributes**2, 1))


def forecast_draw(sizes: Sequence[int], rows: int, output: str = "decoded") -> tuple[float, float]:
    """Return roughly the seconds and megabytes that drawing takes and writing into a table, on two cores.

    Notes
    -----
    Per value and core, measured: 70 ns to draw, 36 ns to write; 5 ns a cell that an exchange looks up.

    Examples
    --------
    >>> round(forecast_draw([25] * 27, 5_240_260)[0], 1), round(forecast_draw([14] * 14, 32_561)[0], 1)
    (7.6, 0.3)
    """
    m = len(sizes)
    length = min(max(rows, 1), _LONGEST_BLOCK if rows <= _LONG else _LONG_BLOCK)
    parts = min(2.0, max(rows / length, 1.0))
    seconds = rows * m * 106e-9 + sweeps(rows, m) * 2.0 * rows * m**2 * 5e-9
    return 0.15 + seconds / parts, 50.0 + parts * length * (6.0 * m + 40.0) / 1e6 + 8e-6 * sum(sizes) ** 2


def mixture_rows(mixture: Mixture, sizes: Sequence[int], rows: int, rng: np.random.Generator) -> Iterator[CodeArray]:
    """Yield blocks of rows.

    Parameters
    ----------
    mixture : Mixture
    sizes : sequence of int, length m
    rows : int
        At least 0.
    rng : numpy.random.Generator
        The same state gives the same rows.

    Yields
    ------
    ndarray of the smallest unsigned type, shape (b, m)
        Codes, each column contiguous; b at most 262,144.

    Notes
    -----
    Privacy: post-processing.
    """
    rounds = sweeps(rows, len(sizes))
    longest = _LONGEST_BLOCK if rows <= _LONG else _LONG_BLOCK
    blocks = -(-rows // longest)
    matrix = pair_matrix(mixture, sizes) if rounds else None

    def task(length: int, own: np.random.Generator) -> Callable[[Stop], CodeArray]:
        return lambda stop: _one_block(mixture, sizes, length, matrix, rounds, own, stop)

    lengths = [rows // blocks + (block < rows % blocks) for block in range(blocks)]
    yield from drawn([task(length, own) for length, own in zip(lengths, generators(rng, blocks), strict=True)])


def _one_block(
    mixture: Mixture,
    sizes: Sequence[int],
    length: int,
    matrix: FloatArray | None,
    rounds: int,
    rng: np.random.Generator,
    stop: Stop,
) -> CodeArray:
    """Draw `length` rows at once; each column of what is returned is contiguous."""
    columns, classes = _class_columns(mixture, sizes, length, rng, stop)
    if matrix is not None:
        kind = columns.dtype
        wide = exchange(columns.T.astype(np.intp), classes, length * matrix, sizes, rounds, rng, stop)
        columns = wide.T.astype(kind)
    order = rng.permutation(length)
    for column in columns:
        column[:] = column[order]
    return columns.T


def systematic(shares: FloatArray, total: int, rng: np.random.Generator) -> IndexArray:
    """Return whole numbers of the given sum, each its share of it rounded up or down, without bias.

    Examples
    --------
    >>> systematic(np.array([0.5, 0.25, 0.25]), 8, np.random.default_rng(1))
    array([4, 2, 2])
    """
    ends = np.floor(np.cumsum(shares) / shares.sum() * total + rng.random()).astype(np.intp)
    ends[-1] = total
    parts: IndexArray = np.diff(np.minimum(ends, total), prepend=0)
    return parts


def class_rows(
    mixture: Mixture, sizes: Sequence[int], rows: int, rng: np.random.Generator
) -> tuple[IndexArray, IndexArray]:
    """Return rows (steps 1 and 2), ordered by class, and their classes; shapes (n, m) and (n,)."""
    columns, classes = _class_columns(mixture, sizes, rows, rng, Stop())
    return columns.T.astype(np.intp), classes


def _class_columns(
    mixture: Mixture, sizes: Sequence[int], rows: int, rng: np.random.Generator, stop: Stop
) -> tuple[CodeArray, IndexArray]:
    """Return the columns of `class_rows` in the smallest type, shape (m, n), and the classes, shape (n,).

    Values are put in random order within a class by sorting numbers made of class, 32 random bits and value.
    """
    # Classes in random order make what systematic sampling rounds unbiased.
    order = rng.permutation(mixture.shares.size)
    counts = systematic(mixture.shares[order], rows, rng)
    order, counts = order[counts > 0], counts[counts > 0]
    classes = np.repeat(np.arange(counts.size), counts)
    columns = np.empty((len(sizes), rows), np.min_scalar_type(max(*sizes, 2) - 1))
    start = 0
    for column, size in zip(columns, sizes, strict=True):
        stop.check()
        expected = mixture.values[start : start + size, order].T * counts[:, None]
        whole = rounded(expected, counts, rng)
        values = np.repeat(np.tile(np.arange(size, dtype=column.dtype), counts.size), whole.ravel())
        column[:] = shuffled(values, classes, size, rng)
        start += size
    return columns, classes


def shuffled(values: CodeArray, classes: IndexArray, size: int, rng: np.random.Generator) -> CodeArray:
    """Return values in random order within each class."""
    places = int(classes[-1]) + 1 if classes.size else 1
    bits = max(size - 1, 1).bit_length()
    if places.bit_length() + bits > 32:  # more classes times codes than the sorted numbers can hold besides
        return values[np.argsort(classes + rng.random(values.size))]
    keys = classes.astype(np.uint64)
    keys <<= np.uint64(32)
    keys |= rng.integers(0, 2**32, values.size, dtype=np.uint32)
    keys <<= np.uint64(bits)
    keys |= values
    keys.sort()
    keys &= np.uint64((1 << bits) - 1)
    return keys.astype(values.dtype)


def rounded(expected: FloatArray, counts: IndexArray, rng: np.random.Generator) -> IndexArray:
    """Round a classes x values table: row sums exact, column sums up to one, every cell up or down."""
    whole = np.floor(expected + _IMPOSSIBLE).astype(np.intp)
    parts = expected - whole
    left = counts - whole.sum(1)
    carried = rng.random(expected.shape[1]) - 0.5
    rows = np.flatnonzero(left)
    chosen = [np.zeros(0, np.intp)]
    for k, up in zip(rows.tolist(), left[rows].tolist(), strict=True):
        part = parts[k]  # one row after the other: with many classes this is most of the time of a draw
        carried += part
        largest = np.where(part > _IMPOSSIBLE, carried, -np.inf).argpartition(-up)[-up:]
        carried[largest] -= 1.0
        chosen.append(largest)
    whole[np.repeat(rows, left[rows]), np.concatenate(chosen)] += 1
    return whole


def exchange(
    codes: IndexArray,
    classes: IndexArray,
    goal: FloatArray,
    sizes: Sequence[int],
    rounds: int,
    rng: np.random.Generator,
    stop: Stop | None = None,
) -> IndexArray:
    """Return the rows with values exchanged within classes, so that their pair tables come closer to those wanted.

    Parameters
    ----------
    codes : ndarray of intp, shape (n, m)
        Ordered by class.
    classes : ndarray of intp, shape (n,)
    goal : ndarray, shape (D, D)
        Counts of pairs of codes of different attributes; 0 within an attribute.
    rounds : int

    Returns
    -------
    ndarray of intp, shape (n, m)

    Notes
    -----
    For rows r and s that exchange codes a and b of one attribute, every other attribute j moves one row from the cells
    (a, r_j) and (b, s_j) to (b, r_j) and (a, s_j). With E the excess of the counts, the squared error changes by
    2 (E[b, r_j] - E[a, r_j] + E[a, s_j] - E[b, s_j]) + 4, or by nothing where r_j = s_j.
    """
    count = np.asarray(sizes, np.intp)
    starts = np.cumsum(count) - count
    columns = int(count.sum())
    placed = codes + starts
    excess = (_pair_counts(placed, columns, starts, count) - goal).astype(np.float32)
    for _ in range(rounds):
        for i in rng.permutation(count.size):
            # Partners are of one class, in random order: what a class has of every code stays as it is.
            order = np.argsort(classes + rng.random(classes.size))
            first, second = order[: order.size // 2 * 2 : 2], order[1::2]
            useful = (classes[first] == classes[second]) & (placed[first, i] != placed[second, i])
            pairs = np.stack([first[useful], second[useful]])[:, rng.permutation(int(useful.sum()))]
            block = slice(starts[i], starts[i] + count[i])
            # Gains are computed as if each exchange were the only one, so only a part is made at a time.
            for part in range(_BATCHES):
                if stop is not None:
                    stop.check()
                _exchange_some(placed, excess, i, block, pairs[:, part::_BATCHES])
    exchanged: IndexArray = placed - starts
    return exchanged


def _exchange_some(placed: IndexArray, excess: Float32, i: int, block: slice, pairs: IndexArray) -> None:
    """Exchange the codes of attribute i within those of the given pairs of rows that gain by it, in place."""
    if not pairs.shape[1]:
        return
    columns = excess.shape[0]
    flat = excess.reshape(-1)
    left, right = placed[pairs[0]], placed[pairs[1]]
    a, b = left[:, i, None] * columns, right[:, i, None] * columns
    change = (flat[b + left] - flat[a + left] + flat[a + right] - flat[b + right]).sum(1)
    # The first part is the slope alone; a row pair that differs in many codes would overshoot.
    better = change + 2.0 * ((left != right).sum(1) - 1) < 0.0
    if not better.any():
        return
    left, right, a, b = left[better], right[better], a[better], b[better]
    np.add.at(flat, np.concatenate([b + left, a + right]), np.float32(1.0))
    np.add.at(flat, np.concatenate([a + left, b + right]), np.float32(-1.0))
    # Codes of one attribute have no table with each other.
    excess[block, block] = 0.0
    excess[:, block] = excess[block].T
    rows = pairs[:, better]
    placed[rows[0], i], placed[rows[1], i] = right[:, i], left[:, i]


def _pair_counts(placed: IndexArray, columns: int, starts: IndexArray, count: IndexArray) -> FloatArray:
    """Return the counts of all pairs of codes of different attributes, shape (D, D)."""
    counts = np.zeros((columns, columns))
    for i in range(count.size):
        for j in range(i + 1, count.size):
            flat = (placed[:, i] - starts[i]) * count[j] + placed[:, j] - starts[j]
            table = np.bincount(flat, minlength=int(count[i] * count[j])).reshape(count[i], count[j])
            counts[starts[i] : starts[i] + count[i], starts[j] : starts[j] + count[j]] = table
    whole: FloatArray = counts + counts.T
    return whole
