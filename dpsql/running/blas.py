"""One BLAS thread for the many small matrix products of a fit."""

from __future__ import annotations

from contextlib import AbstractContextManager


def one_blas_thread() -> AbstractContextManager[object]:
    """Return a context in which BLAS uses one thread.

    Products of a few hundred rows gain little from a second thread, and where another process or DuckDB's own workers
    hold a core, OpenBLAS waits for it at every product: a fit of 2 seconds was seen to take 32. One thread also makes
    the order of summation, so the fit, independent of the number of cores.

    Notes
    -----
    Privacy: none.
    """
    from threadpoolctl import threadpool_limits  # loaded when needed: it looks at every library of the process

    limits: AbstractContextManager[object] = threadpool_limits(limits=1, user_api="blas")
    return limits
