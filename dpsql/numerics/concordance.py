"""Kendall's sum of a two-way table: concordant minus discordant pairs."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def concordance(table: npt.NDArray[Any]) -> Any:
    """Return the sum over unordered pairs of entries of +1 where both codes differ in the same direction, -1 in the opposite.

    Parameters
    ----------
    table : ndarray, shape (..., c_j, c_k)
        Counts or shares of the pairs of codes, in the codes' order.

    Returns
    -------
    number, or ndarray of shape (...)
        Of the table's type; a tie in either code counts 0. Takes c_j c_k steps, whatever the number of rows.

    Examples
    --------
    >>> int(concordance(np.array([[2, 0], [0, 3]]))), int(concordance(np.array([[1, 1], [1, 0]])))
    (6, -1)
    """
    before = np.zeros_like(table)
    before[..., 1:, :] = np.cumsum(table, axis=-2)[..., :-1, :]  # those with a smaller first code
    smaller, larger = np.zeros_like(table), np.zeros_like(table)
    smaller[..., 1:] = np.cumsum(before, axis=-1)[..., :-1]
    larger[..., :-1] = np.cumsum(before[..., ::-1], axis=-1)[..., ::-1][..., 1:]
    return (table * (smaller - larger)).sum(axis=(-2, -1))
