"""A smooth curve through points that rises where they rise and falls where they fall.

Privacy: None: mathematics.

References: F. N. Fritsch and J. Butland, "A method for constructing local monotone piecewise cubic interpolants", SIAM J. Sci.
Stat. Comput. 5(2), 1984; what `scipy.interpolate.PchipInterpolator` computes, which takes .4 s to load.
"""

from __future__ import annotations

import numpy as np

from dpsql.numerics.arrays import FloatArray


class Monotone:
    """The curve, a cubic between any two neighboring points.

    Parameters
    ----------
    places : float64 array, shape (n,), n at least 2
        Strictly ascending.
    values : float64 array, shape (n,)

    Examples
    --------
    >>> curve = Monotone(np.array([0.0, 1.0, 2.0]), np.array([0.0, 1.0, 1.0]))
    >>> curve(np.array([0.0, 0.5, 1.0, 1.5])).tolist()
    [0.0, 0.6875, 1.0, 1.0]
    """

    def __init__(self, places: FloatArray, values: FloatArray) -> None:
        widths = np.diff(places)
        if widths.size == 0 or not (widths > 0.0).all():
            raise ValueError("a curve goes through at least two points, in ascending order")
        slopes = np.diff(values) / widths
        rises = _derivatives(widths, slopes)
        bend = (rises[:-1] + rises[1:] - 2 * slopes) / widths
        self._places = places
        self._powers = (values[:-1], rises[:-1], (slopes - rises[:-1]) / widths - bend, bend / widths)

    def __call__(self, at: FloatArray) -> FloatArray:
        """Return the values of the curve; beyond its ends the outermost cubics go on."""
        part = np.clip(np.searchsorted(self._places, at, side="right") - 1, 0, self._places.size - 2)
        off = at - self._places[part]
        found, power = self._powers[0][part], off
        for factors in self._powers[1:]:
            found = found + factors[part] * power
            power = power * off
        return found


def _derivatives(widths: FloatArray, slopes: FloatArray) -> FloatArray:
    """Return how steep the curve is at each point: weighted harmonic means of the slopes beside it, 0 at a turn."""
    if slopes.size == 1:
        return np.repeat(slopes, 2)
    before, after = 2 * widths[1:] + widths[:-1], widths[1:] + 2 * widths[:-1]
    with np.errstate(divide="ignore", invalid="ignore"):
        means = (before + after) / (before / slopes[:-1] + after / slopes[1:])
    along = (np.sign(slopes[:-1]) == np.sign(slopes[1:])) & (slopes[1:] != 0.0)
    first = _end(widths[0], widths[1], slopes[0], slopes[1])
    last = _end(widths[-1], widths[-2], slopes[-1], slopes[-2])
    return np.concatenate([[first], np.where(along, means, 0.0), [last]])


def _end(width: float, next_width: float, slope: float, next_slope: float) -> float:
    """Return how steep the curve is at its end: as a parabola through three points, held back where it would turn."""
    found = ((2 * width + next_width) * slope - width * next_slope) / (width + next_width)
    if np.sign(found) != np.sign(slope):
        return 0.0
    if np.sign(slope) != np.sign(next_slope) and abs(found) > 3 * abs(slope):
        return 3 * slope
    return found
