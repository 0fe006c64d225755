"""Methods that turn noisy statistics into synthetic rows, one file a method."""

from __future__ import annotations

from dpsql.errors import ArgumentError
from dpsql.methods.base import Method
from dpsql.methods.gaussian_copula import GaussianCopula

DEFAULT = "gaussian_copula"
_REGISTERED: dict[str, Method] = {method.name: method for method in (GaussianCopula(),)}


def names() -> tuple[str, ...]:
    """Return the names of all methods."""
    return tuple(_REGISTERED)


def get(name: str) -> Method:
    """Return the method of this name.

    Raises
    ------
    ArgumentError
        There is none.

    Examples
    --------
    >>> get("gaussian_copula").name
    'gaussian_copula'
    """
    if name not in _REGISTERED:
        raise ArgumentError("method", name, f"not a method; there are {', '.join(map(repr, _REGISTERED))}")
    return _REGISTERED[name]
