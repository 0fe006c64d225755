"""Whether noisy numbers are as near to the truth as their noise says, and no nearer than it must be asked: one tolerance for all tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
from scipy import stats

FALSE_ALARM = 1e-9


def near(values: npt.ArrayLike, truths: npt.ArrayLike, sigma: float, mechanism: str = "gaussian", *, also: float = 0.5) -> bool:
    """Return whether values differ from the truth as noise of this standard deviation makes them differ.

    All values together are tested, with a false alarm of at most 1e-9 for each law: the sum of squares for Gaussian noise, of absolute
    values for Laplace noise. Six values are enough to notice noise five times as large, four hundred to notice half as much more.

    Parameters
    ----------
    values, truths : array_like, same shape
        Independent values.
    sigma : float
        Standard deviation of each.
    mechanism : {'gaussian', 'laplace'}
    also : float
        What each may be off beside the noise: half a unit of rounding.
    """
    off = np.maximum(np.abs(np.subtract(values, truths, dtype=float)) - also, 0.0).ravel() / sigma
    if mechanism == "gaussian":
        return bool((off**2).sum() <= stats.chi2.isf(FALSE_ALARM, off.size))
    return bool(off.sum() * 2**0.5 <= stats.gamma.isf(FALSE_ALARM, off.size))


def planned_noise(con: duckdb.DuckDBPyConnection, call: str) -> tuple[float, str]:
    """Return the standard deviation and the mechanism that ``dp_plan`` says for a call with these arguments."""
    scale, mechanism = con.execute(f"SELECT noise_scale, mechanism FROM dp_plan({call})").fetchone()
    return scale * (1.0 if mechanism == "gaussian" else 2**0.5), mechanism


def near_plan(con: duckdb.DuckDBPyConnection, call: str, values: Sequence[Any], truths: Sequence[Any]) -> bool:
    """Return whether the counts that a call with these arguments gave are as near as its plan says."""
    return near(values, truths, *planned_noise(con, call))
