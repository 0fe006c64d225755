"""Intervals of what is read off counts of listed values: how often they hold what is so without noise, and their ends in clear cases."""

from __future__ import annotations

import ast
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dpsql.answers import listed_intervals
from dpsql.estimates.measures import Measure, Variable
from dpsql.queries.estimating import Estimates

VALUES = tuple(map(str, range(8)))
COUNTS = np.array([0, 0, 1, 40, 300, 310, 200, 0])


def ends(function: str, counts: np.ndarray, values: tuple[str, ...] = VALUES, kind: str = "BIGINT", mechanism: str = "gaussian", scale: int = 10) -> Any:
    measure = Measure("values", (Variable(0),), values=values)
    query = SimpleNamespace(measures=(measure,), blocks_of=lambda place: slice(0, 1), max_rows=1, max_rows_per_group=None)
    plan: Any = SimpleNamespace(query=query, mechanism=mechanism, scales=[Fraction(scale)])
    one: Any = SimpleNamespace(function=function, arguments=(0,), condition=None, there=None, text=function, quantiles=())
    return listed_intervals.ends(Estimates(plan, [counts.astype(float)]), one, kind, 0.95)


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_they_hold_what_is_so(mechanism: str) -> None:
    """Of 2,000 releases, with a fixed seed; below 95 % by 1.5 % is three deviations."""
    rng = np.random.default_rng(4)
    noise = rng.normal(0, 10, (2_000, 8)) if mechanism == "gaussian" else rng.laplace(0, 10, (2_000, 8))
    released = np.rint(COUNTS + noise)
    there = [2, 3, 4, 5, 6]
    for function, value in [("mode", 5), ("sum_distinct", sum(there)), ("avg_distinct", np.mean(there))]:
        low, high = ends(function, released, kind="DOUBLE" if function == "avg_distinct" else "BIGINT", mechanism=mechanism)
        held = np.mean([float(a) <= value <= float(b) for a, b in zip(low, high, strict=True)])
        assert held >= 0.935, (function, held)
    low, high = ends("histogram", released, kind="MAP(BIGINT, UBIGINT)", mechanism=mechanism)
    for place, count in enumerate(COUNTS):
        held = np.mean([ast.literal_eval(a)[place]["v"] <= count <= ast.literal_eval(b)[place]["v"] for a, b in zip(low, high, strict=True)])
        assert held >= 0.935, (place, held)


@pytest.mark.parametrize(("false", "true"), [(0, 1), (1, 0), (0, 0), (300, 300)])
def test_truth_values_are_not_ruled_out_wrongly(false: int, true: int) -> None:
    released = np.rint([false, true] + np.random.default_rng(5).normal(0, 10, (2_000, 2)))
    for function, so in (("bool_or", true > 0), ("bool_and", false == 0)):
        low, high = ends(function, released, ("false", "true"), "BOOLEAN")
        assert np.mean([(a == "true") <= so <= (b == "true") for a, b in zip(low, high, strict=True)]) >= 0.935


def test_clear_cases_are_narrow() -> None:
    counts = np.array([[900, -900, 5000, 900, -900, -900, -900, -900]])
    assert ends("mode", counts) == (["2"], ["2"])
    assert ends("sum_distinct", counts) == (["5"], ["5"])
    assert ends("bool_or", np.array([[900, 900]]), ("false", "true"), "BOOLEAN") == (["true"], ["true"])
    assert ends("bool_and", np.array([[900, 900]]), ("false", "true"), "BOOLEAN") == (["false"], ["false"])
    assert ends("var_pop_distinct", counts, kind="DOUBLE") == ([None], [None])
    assert ends("mode", -counts * 0 - 9) == ([None], [None])
