"""One step of gradient descent that knows how large gradients were, in place.

References
----------
Kingma and Ba (2015), *Adam: a method for stochastic optimization*, ICLR.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Float32 = npt.NDArray[np.float32]

_MOMENT, _TINY = 0.9, 1e-12


def move(parameter: Float32, gradient: Float32, first: Float32, second: Float32, step: int, rate: float) -> None:
    """Take one step.

    Parameters
    ----------
    parameter, first, second : float32 arrays of one shape
        What is moved; the moments so far, 0 before the first step. All three are changed in place.
    gradient : float32 array
    step : int
        Number of the step, from 1.
    rate : float
    """
    kept, part = np.float32(_MOMENT), np.float32(1.0 - _MOMENT)
    # Both moments begin at zero and are too small at first.
    correction = 1.0 - _MOMENT**step
    first *= kept
    second *= kept
    scale = gradient * part
    first += scale
    scale *= gradient
    second += scale
    np.multiply(second, np.float32(1.0 / correction), out=scale)
    np.sqrt(scale, out=scale)
    scale += np.float32(_TINY)
    np.divide(first, scale, out=scale)
    scale *= np.float32(rate / correction)
    parameter -= scale
