r"""Counts, sums and second moments with integer Laplace noise: what is released for `modips`, and what one row can change.

**Scale.** A value x between the public bounds of its column is z = floor((x - lower) / (upper - lower) FINE), clamped to
0 ... TOP with TOP = FINE - 1; FINE = 2^16. The centred value is c = 2 z - TOP, an odd integer from -TOP to TOP. Everything
below is exact integer arithmetic on z and c. Neighbours differ in one row, and the number of rows n is public: so is every
number that a formula divides by. K cells are those of the contingency table of the categorical columns, p the number of
numeric columns. "One row changes" means: its z go from z to z', and it stays in its cell or moves to another one.

**count** (one column, two codes): the number of rows with code 1 changes by at most 1.

**sum** (one numeric column): the sum of z changes by z' - z, at most TOP.

**variance** (one numeric column): s^2 = V / (n (n - 1)), V = n sum z^2 - (sum z)^2, an integer. With mean m of the other
n - 1 rows, s^2 is a term without the row plus (z - m)^2 / n. So s^2 changes by at most TOP^2 / n, since z, z' and m all lie
between 0 and TOP; reached when all others are 0 and z goes from 0 to TOP. Released is floor(u), u = s^2 FINE n / TOP^2 =
FINE V / ((n - 1) TOP^2), which changes by at most FINE. |floor(u) - floor(u')| < |u - u'| + 1, and it is an integer, so it is
at most FINE, exactly the change before rounding: rounding costs nothing. A step is 2^-16 of what one row may change. For
n < 2 there is no variance; 0 is put in its place, and gets noise like any other number.

**counts** (K cells): one row leaves a cell and enters another: L1 at most 2. For K = 1 the only count is n, which is public;
where there are sums, it is not released.

**sums** (sum of c in every cell, p tables of K cells). Table i: a row that stays changes one cell by |c'_i - c_i| <= 2 TOP. A row
that moves changes one cell by |c_i| and another one by |c'_i|, together <= 2 TOP. So L1 is at most 2 TOP for each table,
whatever the number of rows in a cell; reached when c_i goes from -TOP to TOP.

**moments** (sums of c_i c_j over all rows, i <= j: T = p (p + 1) / 2 numbers). Let x and y be the centred values of the row before
and after, divided by TOP, so that they lie in [-1, 1]^p. The change is D = x x' - y y', and with u = x + y, v = x - y:
D_ij = (u_i v_j + v_i u_j) / 2, and |u_i| + |v_i| = 2 max(|x_i|, |y_i|) <= 2. Hence
  sum over all i, j of |D_ij| <= (sum |u_i|) (sum |v_i|) <= (sum (|u_i| + |v_i|) / 2)^2 <= p^2, and
  sum over i of |D_ii| = sum |u_i| |v_i| <= sum ((|u_i| + |v_i|) / 2)^2 <= p.
The upper triangle is half the sum of both: L1 at most T TOP^2. (Adding up TOP^2 for each diagonal and 2 TOP^2 for each off-diagonal
entry would give p^2 TOP^2, almost twice as much.) Nearly reached when all c_i go from TOP to +-1. Released is floor(moment / FINE).
Entry by entry |floor(u) - floor(u')| < |u - u'| + 1, so the L1 change is below T TOP^2 / FINE + T = T (TOP + 1 / FINE), because
TOP^2 / FINE = TOP - 1 + 1 / FINE. It is an integer, and so at most T TOP as long as T <= FINE.

What is derived from the noisy numbers (means, which divide by noisy counts; covariances) is post-processing: no sensitivity uses
the number of rows in a cell, which is private.

References: [Bowen & Liu 2020]; the bounds on sums and moments are ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dpsql.accounting.events import LaplaceEvent
from dpsql.errors import ArgumentError
from dpsql.noise.discrete import MAXIMUM_LAPLACE_SCALE, discrete_laplace, scale_grid
from dpsql.noise.entropy import MOST_ROWS, clamped
from dpsql.numerics.arrays import IntArray

FINE = 1 << 16
"""Steps between the bounds; the same number as `dpsql.methods.base.FINE`."""

TOP = FINE - 1
"""Largest value on the fixed-point scale, and largest centred value."""

MOST_NUMERIC = 361
"""Numeric columns for which p (p + 1) / 2 <= FINE."""


@dataclass(frozen=True)
class Part:
    """One vector of integers that gets Laplace noise of one scale.

    Parameters
    ----------
    name : {'count', 'sum', 'variance', 'counts', 'sums', 'moments'}
    l1 : int
        L1 sensitivity of one table of it, as derived at the head of this file.
    tables : int
        Number of tables whose sensitivities may be reached at once.
    length : int
        Numbers in all tables together.
    """

    name: str
    l1: int
    tables: int
    length: int


def parts(kind: str, cells: int = 1, numeric: int = 0) -> tuple[Part, ...]:
    """Return what is released for one synthetic table, in order.

    Parameters
    ----------
    kind : {'binary', 'normal', 'mixed'}
    cells : int, at least 1
        K, for 'mixed'.
    numeric : int, 0 to 361
        p, for 'mixed'.

    Raises
    ------
    ArgumentError
        More numeric columns than that.

    Examples
    --------
    >>> [(part.name, part.l1, part.tables, part.length) for part in parts("mixed", 24, 2)]
    [('counts', 2, 1, 24), ('sums', 131070, 2, 48), ('moments', 196605, 1, 3)]
    """
    if kind == "binary":
        return (Part("count", 1, 1, 1),)
    if kind == "normal":
        return Part("sum", TOP, 1, 1), Part("variance", FINE, 1, 1)
    if numeric > MOST_NUMERIC:
        raise ArgumentError("columns", numeric, f"at most {MOST_NUMERIC} numeric columns at once; name fewer")
    released = [Part("counts", 2, 1, cells)] if cells > 1 or not numeric else []
    if numeric:
        entries = numeric * (numeric + 1) // 2
        released += [Part("sums", 2 * TOP, numeric, cells * numeric), Part("moments", TOP * entries, 1, entries)]
    return tuple(released)


def scales(released: Sequence[Part], shares: Sequence[Fraction], epsilon: Fraction, sets: int) -> tuple[Fraction, ...]:
    """Return the Laplace scale of every part, so that ``sets`` releases of all of them are epsilon-DP.

    Parameters
    ----------
    released : parts
    shares : sequence of Fraction
        Share of epsilon of each part; they add up to at most 1.
    epsilon : Fraction, > 0
        Of all sets together.
    sets : int, at least 1

    Raises
    ------
    ArgumentError
        A scale is above the largest that the sampler draws.

    Notes
    -----
    Privacy: a part with L1 sensitivity l1 a table costs ``tables * l1 / scale`` a set. Scales are rounded up.

    Examples
    --------
    >>> [str(scale) for scale in scales(parts("binary"), [Fraction(1)], Fraction(1, 2), 10)]
    ['20']
    """
    exact = [part.l1 * part.tables * sets / (epsilon * share) for part, share in zip(released, shares, strict=True)]
    if max(exact) > MAXIMUM_LAPLACE_SCALE:
        least = max(exact) * epsilon / MAXIMUM_LAPLACE_SCALE
        raise ArgumentError(
            "epsilon", float(epsilon), f"at least {float(least):.3g} with these options, so that the noise can be drawn exactly"
        )
    return tuple(scale_grid(scale) for scale in exact)


def events(released: Sequence[Part], noise_scales: Sequence[Fraction], sets: int) -> tuple[LaplaceEvent, ...]:
    """Return what releasing all parts of all sets with these scales does, for the accountant.

    Examples
    --------
    >>> events(parts("binary"), [Fraction(20)], 10)
    (LaplaceEvent(scale=Fraction(20, 1), l1_sensitivity=1.0, count=10),)
    """
    pairs = zip(released, noise_scales, strict=True)
    return tuple(LaplaceEvent(scale, part.l1, part.tables * sets) for part, scale in pairs)


def binary_statistics(counts: IntArray) -> list[IntArray]:
    """Return the exact count of code 1, as the parts of 'binary'.

    Parameters
    ----------
    counts : int64 array, shape (2,)

    Notes
    -----
    Privacy: exact, so secret. What may change: head of this file.
    """
    return [np.array([int(counts[1])], dtype=np.int64)]


def normal_statistics(rows: int, total: int, square: int) -> list[IntArray]:
    """Return the exact sum of z and the variance in its public steps, as the parts of 'normal'.

    Parameters
    ----------
    rows : int
        n, public.
    total, square : int
        Sum of z and of z^2.

    Notes
    -----
    Privacy: exact, so secret. What may change: head of this file.

    Examples
    --------
    >>> [int(part[0]) for part in normal_statistics(2, TOP, TOP**2)]  # z = 0 and TOP: s^2 = TOP^2 / 2
    [65535, 65536]
    """
    steps = FINE * (rows * square - total * total) // ((rows - 1) * TOP**2) if rows > 1 else 0
    return [clamped([total]), clamped([steps])]


def mixed_statistics(counts: IntArray, sums: IntArray | None, products: Sequence[int] | None) -> list[IntArray]:
    """Return exact counts, centred sums and second moments, as the parts of 'mixed'.

    Parameters
    ----------
    counts : int64 array, K cells in any shape
    sums : int64 array, shape (K, p), or None
        Sum of z in every cell, row-major.
    products : sequence of int, length p (p + 1) / 2, or None
        Sum of z_i z_j over all rows, i <= j.

    Notes
    -----
    Privacy: exact, so secret. What may change: head of this file.
    """
    flat = counts.reshape(-1).astype(np.int64)
    counted = [flat]
    if sums is None or products is None or sums.shape[1] == 0:
        return counted
    rows, totals = int(flat.sum()), [sum(column) for column in sums.T.tolist()]
    # Sums that may leave 64 bits are Python's integers.
    if rows <= MOST_ROWS:
        centred = (2 * sums - TOP * flat[:, None]).reshape(-1)
    else:
        centred = clamped((2 * sums.astype(object) - TOP * flat[:, None].astype(object)).reshape(-1))
    pairs = [(i, j) for i in range(len(totals)) for j in range(i, len(totals))]
    moments = [
        4 * int(product) - 2 * TOP * (totals[i] + totals[j]) + rows * TOP**2
        for (i, j), product in zip(pairs, products, strict=True)
    ]
    return [*(counted if flat.size > 1 else []), centred, clamped(moment // FINE for moment in moments)]


def with_noise(statistics: Sequence[IntArray], noise_scales: Sequence[Fraction], sets: int) -> list[IntArray]:
    """Return the parts with fresh noise, once for each set: all parts of the first set, then all of the second, ...

    Notes
    -----
    Privacy: exactly the events of `events`. Entropy from the operating system, no seed.
    """
    noise = [discrete_laplace(scale, (sets, *part.shape)) for part, scale in zip(statistics, noise_scales, strict=True)]
    return [part + some[i] for i in range(sets) for part, some in zip(statistics, noise, strict=True)]
