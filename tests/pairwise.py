"""Which cases of a grid of parameters are tried: of three or more lists, as few as have every pair of values of any two of them.

A mistake that takes one value, or two at once, is met by such a covering array (Cohen, Dalal, Fredman & Patton, "The AETG system", 1997)
as by the whole product. With DPSQL_HYPOTHESIS=thorough it is the whole product that is tried.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from case_counts import cases

Case = tuple[Any, ...]
WHOLE = cases(1) > 1


def covering(*lists: Sequence[Any]) -> list[Case]:
    """Return cases of the product of these lists, in its order, such that each pair of values of two lists occurs in one of them."""
    product = list(itertools.product(*(range(len(values)) for values in lists)))
    pairs = {case: {(i, j, case[i], case[j]) for i, j in itertools.combinations(range(len(lists)), 2)} for case in product}
    missing = set().union(*pairs.values())
    chosen = []
    while missing:  # greedily: the first of those that have most of what is missing
        chosen.append(max(product, key=lambda case: len(pairs[case] & missing)))
        missing -= pairs[chosen[-1]]
    return [tuple(values[i] for values, i in zip(lists, case, strict=True)) for case in sorted(chosen)]


def tried(*lists: Sequence[Any]) -> list[Case]:
    """Return a covering array of these lists, or the whole product."""
    return list(itertools.product(*lists)) if WHOLE else covering(*lists)


def grid(ids: Callable[[Any], str] | None = None, **lists: Sequence[Any]) -> pytest.MarkDecorator:
    """Parametrise a test by what is tried of named lists of values."""
    found = tried(*lists.values())
    return pytest.mark.parametrize(tuple(lists), found, ids=ids and ["-".join(map(ids, case)) for case in found])


def in_turn(firsts: Sequence[Any], seconds: Sequence[Any], times: int = 1) -> list[Case]:
    """Return every first with one second, or with so many, which take turns: neighbours in ``firsts`` meet different ones; or all pairs."""
    if WHOLE:
        return list(itertools.product(firsts, seconds))
    steps = [turn * len(seconds) // times for turn in range(times)]
    return [(first, seconds[(i + step) % len(seconds)]) for i, first in enumerate(firsts) for step in steps]
