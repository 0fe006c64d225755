"""The variance of integer noise."""

from __future__ import annotations

from dpsql.errors import ArgumentError


def noise_variance(scale: float, mechanism: str) -> float:
    """Return the variance of one cell's noise.

    Parameters
    ----------
    scale : float
        Standard deviation (Gaussian) or b (Laplace); 0 for no noise.
    mechanism : {'gaussian', 'laplace'}

    Returns
    -------
    float
        sigma^2, or 2 b^2 (the discrete distributions differ from it by less than 1/6 for scales above 1).

    Raises
    ------
    ArgumentError
        If the mechanism is unknown or the scale negative.

    Notes
    -----
    Privacy: none; public parameters.

    Examples
    --------
    >>> noise_variance(3.0, "laplace")
    18.0
    """
    if mechanism not in ("gaussian", "laplace"):
        raise ArgumentError("mechanism", mechanism, "'gaussian' or 'laplace'")
    if not scale >= 0.0:
        raise ArgumentError("scale", scale, "a noise scale of at least 0")
    return float(scale) ** 2 * (2.0 if mechanism == "laplace" else 1.0)
