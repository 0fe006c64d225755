r"""What a penalised fit misses for certain: dependence that noise does not explain, of all groups of a table together.

Penalties bias strong dependence towards independence, a little in each cell and in each group: less than the noise of a cell, but
the same pattern everywhere. With E_g what the model misses in group g of a block of a x b codes, noise of deviation s in each
cell, the sum of G groups has noise s sqrt(G), whose largest singular value is about s sqrt(G) (sqrt(a) + sqrt(b)). Patterns u v^T
of the sum with a larger one are dependence, and what each group has of them, (u^T E_g v) u v^T, is given back.

Privacy: post-processing of released statistics.

References: Davidson & Szarek (2001), Theorem II.13, for the largest singular value; Osher et al. (2005) for adding the residual
back.
"""

from __future__ import annotations

import math

import numpy as np

from dpsql.numerics.arrays import FloatArray
from dpsql.numerics.products import multiplies


@multiplies
def certain(missed: FloatArray, deviation: float) -> FloatArray:
    """Return what of the missed shares noise does not explain.

    Parameters
    ----------
    missed : ndarray, shape (G, a, b)
        A noisy block less the model's, by groups.
    deviation : float
        Standard deviation of the noise of a cell.

    Notes
    -----
    Privacy: post-processing.

    Examples
    --------
    >>> pattern = np.outer([1.0, -1.0], [1.0, 0.0, -1.0])
    >>> certain(np.stack([pattern, 2 * pattern]), 0.1).round(6).tolist() == [pattern.tolist(), (2 * pattern).tolist()]
    True
    >>> float(np.abs(certain(np.stack([pattern, -pattern]), 0.1)).max())
    0.0
    """
    groups, a, b = missed.shape
    if not np.isfinite(missed).all():
        return np.zeros_like(missed)
    left, sizes, right = np.linalg.svd(missed.sum(axis=0), full_matrices=False)
    count = int((sizes > deviation * math.sqrt(groups) * (math.sqrt(a) + math.sqrt(b))).sum())
    left, right = left[:, :count], right[:count]
    each = np.einsum("ar,gab,rb->gr", left, missed, right, optimize=True)
    significant: FloatArray = np.einsum("ar,gr,rb->gab", left, each, right, optimize=True)
    return significant
