"""Matrix products, whose floating-point flags mean nothing."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import numpy as np

P = ParamSpec("P")
T = TypeVar("T")


def multiplies(function: Callable[P, T]) -> Callable[P, T]:
    """Run a function that multiplies matrices without warnings of invalid or too large values.

    Some kernels of BLAS raise these flags on finite input, for lanes of a register that nobody reads: NumPy then warns of an
    ``invalid value encountered in matmul`` where every number is right, now and then. So the flags decide nothing, and a function
    that can leave the finite numbers looks at what it returns. Every function with a product in it has this decorator, nested ones
    too (they may run in a thread of their own, where an outer one's state is unknown); a test holds the package to it.

    Notes
    -----
    Privacy: none.

    Examples
    --------
    >>> @multiplies
    ... def squared(matrix):
    ...     return matrix @ matrix
    >>> bool(np.isnan(squared(np.array([[np.inf, 1.0], [0.0, np.nan]]))).any())
    True
    """

    @functools.wraps(function)
    def run(*arguments: P.args, **named: P.kwargs) -> T:
        with np.errstate(invalid="ignore", over="ignore"):
            return function(*arguments, **named)

    return run
