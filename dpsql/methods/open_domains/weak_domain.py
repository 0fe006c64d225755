"""The method `weak_domain`: the values of a column whose public domain is too large to list, with noisy counts.

Privacy: epsilon-DP; the argument is in `dpsql.mechanisms.weak_domain`. ``fit`` and ``sample`` are post-processing.

References
----------
Rodriguez & Howe (2017), Privacy-Preserving Synthetic Datasets Over Weakly Constrained Domains.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np

from dpsql.accounting.events import LaplaceEvent, sensitivities
from dpsql.mechanisms import weak_domain
from dpsql.mechanisms.words import Universe
from dpsql.methods.base import Contract, Price
from dpsql.methods.open_domains.open_values import OpenValues
from dpsql.noise.discrete import scale_grid
from dpsql.numerics.arrays import IntArray


class Members(Protocol):
    """What carries a public universe."""

    @property
    def members(self) -> Universe:
        """The universe."""
        ...


class WeakDomain(OpenValues):
    """Releases the members of a public universe whose noisy count reaches a threshold, with that count.

    Attributes
    ----------
    name : str
    options : mapping
        ``domain``: the public universe: a table of words, a list or a pattern. ``domain_size``: its number of members; by default
        all words, or all texts of the pattern; more than there are words makes pairs, triples, ... of them. ``rho``: the
        probability that no value is released that does not occur, at least. ``separator``: between the words of a tuple.
    """

    name = "weak_domain"
    options: Mapping[str, Any] = MappingProxyType({"domain": None, "domain_size": None, "rho": 0.9, "separator": "-"})
    universe = True

    def price(self, contract: Contract, epsilon: Fraction, delta: Fraction, options: Mapping[str, Any], size: int) -> Price:
        """Return the event, the noise scale and the threshold of a release of this pure epsilon; delta is not used.

        Parameters
        ----------
        contract, epsilon, delta, options
            As in `OpenMethod`.
        size : int
            Members of the universe.

        Returns
        -------
        Price
            ``scale``: C / epsilon (add_remove) or 2 C / epsilon (replace_one) on ``scale_grid``. ``parameters``: 'scale' and
            'rho' as exact texts, 'threshold' (int), 'domain_size' (text: it may exceed every integer type).

        Raises
        ------
        ArgumentError
            rho is not a probability or too small for this universe, or the scale is out of range.

        Notes
        -----
        Privacy: decided without data. The universe is public, so the noisy histogram over all of it has the L1 sensitivity
        of one contingency table.

        Examples
        --------
        >>> contract = Contract("add_remove", 1, public_total=False)
        >>> WeakDomain().price(contract, Fraction(1), 0.0, WeakDomain.options, 29_404_018_576).parameters["threshold"]
        27
        """
        l1, _ = sensitivities(contract.neighbors, contract.max_contributions)
        rho = weak_domain.checked_rho(options["rho"])
        scale = scale_grid(Fraction(l1) / epsilon)
        threshold = weak_domain.integer_threshold(scale, rho, size)
        expected = math.log(rho.denominator) - math.log(rho.numerator)
        notes = (
            f"values that fewer than about {threshold} rows hold are likely left out",
            f"no value that does not occur is released with a probability of at least {float(rho):.6g}; about "
            f"{expected:.2g} such values are to be expected",
        )
        parameters = {"scale": str(scale), "threshold": threshold, "rho": str(rho), "domain_size": str(size)}
        return Price((LaplaceEvent(scale, l1),), "laplace", scale, parameters, notes)

    def select(
        self, values: Sequence[str], counts: IntArray, universe: Members, parameters: Mapping[str, Any]
    ) -> tuple[list[str], IntArray]:
        """Return the released values in alphabetical order and their noisy counts.

        Privacy: the one step between secret counts and a release; the event of `price`.
        """
        scale, threshold = Fraction(parameters["scale"]), int(parameters["threshold"])
        released = weak_domain.release((values, counts), universe.members, scale, threshold)
        return [text for text, _ in released], np.asarray([n for _, n in released], dtype=np.int64)
