"""The conditions that the nearest correlation matrix alone meets."""

import numpy as np
from threadpoolctl import threadpool_limits


def optimality_residual(matrix: np.ndarray, nearest: np.ndarray) -> float:
    """Return by how much the second matrix misses the conditions that only the correlation matrix X nearest to the first meets.

    The largest of: a diagonal entry's distance from 1; -(smallest eigenvalue) of X; and, for the multipliers
    y = diag((X - matrix) X) and Z = X - matrix - Diag(y), -(smallest eigenvalue) of Z and the norm of Z X.
    """
    with threadpool_limits(1):
        dual = nearest - matrix
        product = dual @ nearest
        y = np.diag(product).copy()
        dual[np.diag_indices_from(dual)] -= y
        least = min(np.linalg.eigvalsh(nearest)[0], np.linalg.eigvalsh(dual)[0])
        complementary = float(np.linalg.norm(product - y[:, None] * nearest))
    return max(float(np.abs(np.diag(nearest) - 1.0).max()), -float(least), complementary)
