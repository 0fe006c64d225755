r"""Kendall's sums of all pairs of columns with integer Laplace noise: what `dpcopula_kendall` releases of dependence.

**The sum.** Codes are ordered. S_jk is the sum over all pairs of rows x, y of sign(x_j - y_j) sign(x_k - y_k): concordant
pairs minus discordant ones, a tie in either column counting 0; tau = S / (n (n - 1) / 2), Kendall's tau-a. It follows
from the two-way table of the columns alone.

**What one row changes.** Neighbours differ in one row, x becomes x', and n is public. Against one of the other n - 1 rows
let v be the signs of x minus it, w those of x' minus it: vectors of -1, 0 and 1 with m entries. S_jk changes by the sum
over the other rows of D_jk = v_j v_k - w_j w_k, at most 2 (n - 1), which is reached. All sums together change by less
than the sum of these. With p_j = |v_j + w_j|, 0 <= p_j <= 2, one has |v_j - w_j| <= 2 - p_j, and

    2 D_jk = (v_j + w_j) (v_k - w_k) + (v_j - w_j) (v_k + w_k),
    sum over j < k of |D_jk| <= (1/2) sum over j != k of p_j (2 - p_k).

The right-hand side is linear in every single p_j, so it is largest where each is 0 or 2: with c of them 2 it is
2 c (m - c), at most 2 floor(m^2 / 4). So the L1 sensitivity of all sums is 2 (n - 1) floor(m^2 / 4), reached where all
other rows are alike, x exceeds them in all columns, and x' in half of them and lies below in the others. (Composing the
m (m - 1) / 2 sums one by one would charge m (m - 1) (n - 1), almost twice as much.)

**Steps.** Released is u = floor(S FINE / (n - 1)), FINE = 2^16: then no number that is charged, and no noise scale, depends
on n. Entry by entry |floor(a) - floor(b)| < |a - b| + 1, so the L1 change is below 2 FINE floor(m^2 / 4) + m (m - 1) / 2.
It is an integer, so at most that minus 1. A step is 2^-17 of what one row may change. tau = 2 u / (n FINE). For n < 2 there
are no pairs, and 0 is put in their place.

**Where n is private.** The published noise [Li, Xiong & Jiang 2014] has a scale in proportion to 4 / (n + 1), the most that
tau changes when a row is added to n rows. That is right; but the scale itself then tells n, and two Laplace densities of
different scales have a ratio without bound. And S changes by up to n. So this holds where n is public, and nowhere else;
there tau changes by up to 4 / n, a little more than 4 / (n + 1). Kendall's tau-b, which public code takes with the same
noise, divides by the numbers of untied pairs, which are private: one row can change it from 1 to -1, whatever n is.

References
----------
Li, Xiong & Jiang (2014), *Differentially Private Synthesization of Multi-Dimensional Data using Copula Functions*, EDBT.
The joint sensitivity is ours.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

import numpy as np

from dpsql.accounting.events import LaplaceEvent
from dpsql.domains.attributes import FINE
from dpsql.noise.discrete import discrete_laplace
from dpsql.noise.entropy import clamped
from dpsql.numerics.arrays import FloatArray, IntArray
from dpsql.numerics.concordance import concordance

_EXACT_ROWS = 1 << 31
"""Rows up to which sums of products of counts fit 64 bits."""


def kendall_sensitivity(columns: int) -> int:
    """Return the L1 sensitivity of all m (m - 1) / 2 released sums together, as derived at the head of this file.

    Parameters
    ----------
    columns : int, >= 2
        m.

    Examples
    --------
    >>> [kendall_sensitivity(m) for m in (2, 3, 15)]
    [131072, 262146, 7340136]
    """
    return 2 * FINE * (columns * columns // 4) + columns * (columns - 1) // 2 - 1


def kendall_sum(table: IntArray) -> int:
    """Return Kendall's sum of the rows that a two-way table counts, exact.

    Parameters
    ----------
    table : int64 array, shape (c_j, c_k)
        Counts, codes in their order.

    Notes
    -----
    Privacy: exact, so secret. What one row changes: head of this file.
    """
    counts = table if int(table.sum()) <= _EXACT_ROWS else table.astype(object)
    return int(concordance(counts))


def kendall_steps(tables: Iterable[IntArray], rows: int) -> IntArray:
    """Return the exact sums in the steps in which they are released.

    Parameters
    ----------
    tables : iterable of int64 arrays
        The two-way table of every pair of columns.
    rows : int
        n, public; each table has as many.

    Returns
    -------
    int64 array, one number a table

    Notes
    -----
    Privacy: exact, so secret. What one row changes: head of this file.
    """
    return clamped(kendall_sum(table) * FINE // (rows - 1) if rows > 1 else 0 for table in tables)


def kendall_event(columns: int, scale: Fraction) -> LaplaceEvent:
    """Return what releasing the sums of all pairs of so many columns with noise of this scale does, for the accountant."""
    return LaplaceEvent(scale, kendall_sensitivity(columns))


def noisy_kendall(steps: IntArray, scale: Fraction) -> IntArray:
    """Return the sums with fresh noise.

    Notes
    -----
    Privacy: exactly the event of `kendall_event`. Entropy from the operating system, no seed.
    """
    return steps + discrete_laplace(scale, steps.shape)


def tau_of_steps(steps: IntArray, rows: int) -> FloatArray:
    """Return Kendall's tau from released sums: the middle of each step. May lie outside [-1, 1]. Post-processing.

    Examples
    --------
    >>> tau_of_steps(np.array([3 * FINE, 0]), 6).round(4).tolist()
    [1.0, 0.0]
    """
    tau: FloatArray = (2.0 * steps.astype(np.float64) + 1.0) / (max(rows, 1) * float(FINE))
    return tau
