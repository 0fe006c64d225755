"""The method `stable_selection`: the values of a column that nobody declared, as far as enough units hold them.

Privacy: (epsilon, delta); the argument is in `dpsql.mechanisms.stable_selection`. ``fit`` and ``sample`` are post-processing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from types import MappingProxyType
from typing import Any

import numpy as np

from dpsql.accounting.events import SelectionEvent
from dpsql.mechanisms import stable_selection
from dpsql.methods.base import Contract, Price
from dpsql.methods.open_domains.open_values import OpenValues
from dpsql.numerics.arrays import IntArray


class StableSelection(OpenValues):
    """Releases the values of one column whose noisy number of units exceeds a threshold, with that number.

    Attributes
    ----------
    name : str
    options : mapping
        None: epsilon and delta say everything.
    """

    name = "stable_selection"
    options: Mapping[str, Any] = MappingProxyType({})
    universe = False

    def price(self, contract: Contract, epsilon: Fraction, delta: Fraction, options: Mapping[str, Any], size: int) -> Price:
        """Return the event of a selection, the noise scale and the threshold.

        Raises
        ------
        ArgumentError
            delta is not above 0 and below 1, or the scale is out of range.

        Notes
        -----
        Privacy: epsilon-DP but for an event of probability at most delta.
        """
        scale, threshold = stable_selection.parameters(epsilon, delta, contract.neighbors, contract.max_contributions)
        event = SelectionEvent(epsilon, delta)
        notes = (f"values that fewer than about {threshold} units hold are likely left out",)
        return Price((event,), "stable_selection", scale, {"scale": str(scale), "threshold": threshold}, notes)

    def select(
        self, values: Sequence[str], counts: IntArray, universe: None, parameters: Mapping[str, Any]
    ) -> tuple[list[str], IntArray]:
        """Return the selected values in alphabetical order and their noisy counts."""
        chosen = stable_selection.select(values, counts, Fraction(parameters["scale"]), int(parameters["threshold"]))
        return [text for text, _ in chosen], np.asarray([n for _, n in chosen], dtype=np.int64)
