"""Types of arrays, named once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
CodeArray = npt.NDArray[np.integer]
"""Codes of a public domain, of the smallest integer type that holds them."""
Clique = tuple[int, ...]
"""Positions of attributes, ascending: which table is meant."""
