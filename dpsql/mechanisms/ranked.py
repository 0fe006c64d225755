r"""A private quantile over a large public range, by the exponential mechanism, drawn exactly from the rows near its rank.

Values are whole numbers u from 0 to below a public count ("units"): an integer, the last decimal, a second, 2^-48 of a range. The
penalty of u is that of `dpsql.mechanisms.percentile`: with n rows and the share q,

    p(u) = max(q n - #{rows <= u}, #{rows < u} - q n, 0),

and u is drawn with probability proportional to w(u) exp(-gamma p(u)), gamma = epsilon / (2 sensitivity). The weights w are public,
the same for both of two neighbours, so that they cancel in the privacy loss. Here all leaves of a public partition weigh the same,
and so do the units of a leaf: leaves that were cut where rows seem to be leave little weight to the rest of far too wide bounds.
Between two neighbouring values of rows the penalty is the same, so the units are parted into *pieces*: one for each value and one
for each gap, cut at the ends of leaves.

**Exact, from some of the rows.** Let U be a uniform real number of which only the first binary digits are drawn. The weights of
the pieces are bounded by integers (`dpsql.noise.inversion.Weights`), and a piece is chosen once U times the sum surely lies in it.
Else more digits of U, or of the weights, decide. Pieces with a penalty above a public number of rows (`reach`) need not be known:
they are at the ends, and weigh at least nothing and at most what the penalty `reach` makes them. Where that does not tell where U
is, which is as improbable as `reach` says, the draw wants all rows (`picked` returns None), and goes on with the same U. So no row
is left out of the law, and no probability is rounded.

**Many groups.** Of independent draws, one for each group, the privacy losses add up. A unit's rows move the penalty of group g by
at most max(q, 1 - q) times their number c_g in it, and the loss of its draw lies in an interval of length epsilon c_g / C if the
sensitivity is C max(q, 1 - q) and a unit has at most C rows. Where C bounds the rows of all groups together, the intervals add up
to one of length epsilon: one mechanism of bounded range epsilon. Where a unit is in at most G groups with at most R rows in each,
they are G of them, with C = R. A unit exchanged for another is one removed and one added, whose intervals add up: twice the
sensitivity (`sensitivity`), and with half the range for each of 2 G groups, which make G of full range in pairs.

Privacy: exact; of bounded range epsilon (`dpsql.accounting.other_events`).

References
----------
McSherry & Talwar (2007) for the mechanism. Smith (2011), Privacy-preserving statistical estimation with optimal convergence rates,
for quantiles. Karney (2016), arXiv:1303.6257, for sampling with lazy bits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np

from dpsql.mechanisms.percentile import penalty_sensitivity
from dpsql.noise.entropy import exp_bounds, integer_below, random_integer
from dpsql.noise.inversion import Weights
from dpsql.numerics.arrays import IntArray

BITS = 64
_SURE = 46.0
"""Minus the logarithm of the weight that may lie beyond `reach`, of all."""
_MOST_LEAVES = 1 << 22


def sensitivity(
    share: Fraction, neighbors: str, max_rows: int | None, max_groups: int | None, max_rows_per_group: int | None, *, grouped: bool
) -> tuple[Fraction, int]:
    """Return the sensitivity of the penalty, and how many mechanisms of bounded range the draws of all groups are together.

    Parameters
    ----------
    share : Fraction, in (0, 1)
        q.
    neighbors : {'add_remove', 'replace_one'}
    max_rows, max_groups, max_rows_per_group : int or None
        How rows of a unit are bounded: in all, or by groups.
    grouped : bool
        Whether there may be more than one group.

    Examples
    --------
    >>> sensitivity(Fraction(1, 2), "add_remove", 6, None, None, grouped=True)
    (Fraction(3, 1), 1)
    >>> sensitivity(Fraction(9, 10), "replace_one", None, 5, 2, grouped=True)
    (Fraction(18, 5), 5)
    """
    rows = max_rows if max_rows is not None else max_rows_per_group or 1
    if not grouped:
        return penalty_sensitivity(share, neighbors, rows), 1
    moved = penalty_sensitivity(share, "add_remove", rows) * (1 if neighbors == "add_remove" else 2)
    return moved, 1 if max_rows is not None else max_groups or 1


def reach(count: int, gamma: Fraction) -> int:
    """Return how many rows from the wanted rank all but a negligible part of the draws are.

    Examples
    --------
    >>> reach(2**20, Fraction(1, 100))
    7512
    """
    return math.ceil((math.log(count) + math.log(_MOST_LEAVES) + _SURE) / float(gamma))


@dataclass(frozen=True)
class Ranked:
    """The rows of one group near a rank. Privacy: exact, secret.

    Parameters
    ----------
    cells : int64 array
        Units with rows, ascending, none between them left out.
    rows : int64 array
        In each of them.
    upto : int64 array
        In each of them and all before.
    total : int
        All rows of the group.
    reach : int or None
        The penalty of a unit outside of them is more than this; None: all rows are there.
    """

    cells: IntArray
    rows: IntArray
    upto: IntArray
    total: int
    reach: int | None


_NOTHING: IntArray = np.zeros(0, np.int64)
NO_ROWS = Ranked(_NOTHING, _NOTHING, _NOTHING, 0, None)
"""Of a group without rows."""


class Uniform:
    """A uniform real number in [0, 1), of which so many binary digits were drawn."""

    def __init__(self, bits: int = BITS) -> None:
        self.step = bits
        self.bits, self.digits = 0, 0
        self.more()

    def more(self) -> None:
        """Draw more digits."""
        self.digits = self.digits << self.step | random_integer(self.step)
        self.bits += self.step


@dataclass(frozen=True)
class _Piece:
    """Units of the same penalty: the first, how many, the penalty in parts of a row; whether it is only a lower bound of it.

    ``width``: how many units the leaf has in which they are.
    """

    first: int
    size: int
    penalty: int
    unknown: bool
    width: int


def picked(known: Ranked, share: Fraction, edges: Sequence[int], gamma: Fraction, number: Uniform) -> int | None:
    """Return a private quantile, a unit; None where more rows have to be known for it.

    Parameters
    ----------
    known : Ranked
        Secret.
    share : Fraction, in (0, 1)
        q.
    edges : sequence of int
        Ends of the leaves, from 0 to the number of units, ascending; public.
    gamma : Fraction, > 0
        epsilon / (2 `sensitivity`).
    number : Uniform
        What decides; of this draw alone. After None, the same one goes on.
    """
    pieces = _pieces(known, share, edges)
    precision = number.bits + 2 * BITS
    while True:
        low, high = [0], [0]
        for piece, (least, most) in zip(pieces, _weights(pieces, share.denominator, gamma, precision), strict=True):
            low.append(low[-1] + (0 if piece.unknown else piece.size * least // piece.width))
            high.append(high[-1] - (-piece.size * most // piece.width))
        place = _place(low, high, number)
        if place is not None and not pieces[place].unknown:
            return pieces[place].first + integer_below(pieces[place].size)
        if any(piece.unknown for piece in pieces):
            return None  # their weight is part of the sum
        number.more()
        precision *= 2


def _place(low: list[int], high: list[int], number: Uniform) -> int | None:
    """Return the piece in which U times the sum surely lies, from bounds of the cumulated weights; None: they do not tell."""
    least, most = number.digits * low[-1], (number.digits + 1) * high[-1]
    first, last = 0, len(low) - 1
    while last - first > 1:  # the bounds rise: the last piece that surely begins below
        middle = (first + last) // 2
        if high[middle] << number.bits <= least:
            first = middle
        else:
            last = middle
    return first if low[first + 1] << number.bits >= most else None


def _pieces(known: Ranked, share: Fraction, edges: Sequence[int]) -> list[_Piece]:
    """Return all units in pieces, in order."""
    target, parts = share.numerator * known.total, share.denominator
    far = parts * (known.reach or 0)
    pieces: list[_Piece] = []
    leaf = 0

    def add(first: int, behind: int, penalty: int, unknown: bool = False) -> None:
        nonlocal leaf
        while first < behind:
            while edges[leaf + 1] <= first:
                leaf += 1
            end = min(behind, edges[leaf + 1])
            pieces.append(_Piece(first, end - first, penalty, unknown, edges[leaf + 1] - edges[leaf]))
            first = end

    place, before = 0, 0
    cells, upto = known.cells.tolist(), known.upto.tolist()
    if cells and upto[0] > known.rows[0]:  # rows before the first that is known
        add(0, cells[0], far, unknown=True)
        place, before = cells[0], upto[0] - int(known.rows[0])
    for cell, now in zip(cells, upto, strict=True):
        add(place, cell, abs(target - parts * before))
        add(cell, cell + 1, max(target - parts * now, parts * before - target, 0))
        place, before = cell + 1, now
    add(place, edges[-1], far if before < known.total else abs(target - parts * before), unknown=before < known.total)
    return pieces


def _weights(pieces: Sequence[_Piece], parts: int, gamma: Fraction, precision: int) -> Iterator[tuple[int, int]]:
    """Give bounds of 2^precision exp(-gamma penalty / parts) for each piece."""
    lows, highs = _powers(gamma, (max(piece.penalty for piece in pieces) // parts).bit_length(), precision)
    for piece in pieces:
        rows, rest = divmod(piece.penalty, parts)
        low, high = (lows[rows], highs[rows]) if rows < len(lows) else (0, highs[-1])
        if rest:
            least, most = _part(gamma * rest / parts, precision)
            low, high = low * least >> precision, -(-high * most >> precision)
        yield low, high


@lru_cache(maxsize=4)
def _powers(gamma: Fraction, bits: int, precision: int) -> tuple[list[int], list[int]]:
    """Return bounds of 2^precision exp(-gamma k), k = 0, 1, ..., below 2^bits, up to the first whose lower bound is 0."""
    lows, highs, _ = Weights(gamma, cells=1 << bits).bounds(precision)
    return lows, highs


@lru_cache(maxsize=64)
def _part(exponent: Fraction, precision: int) -> tuple[int, int]:
    return exp_bounds(exponent, precision)
