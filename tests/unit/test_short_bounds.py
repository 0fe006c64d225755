"""Bounds of sums that are learned have few digits: whole steps of a DECIMAL, between which it is added up exactly."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import pytest

from dpsql.estimates.magnitudes import Learning, edges_of
from dpsql.estimates.measures import Measure, Variable
from dpsql.measure.steps import steps_of
from dpsql.release.learned import _short


def learning(sql_type: str, lower: float, upper: float) -> Learning:
    return Learning(0, edges_of(sql_type, lower, upper), Fraction(1), "gaussian")


def test_they_hold_what_was_chosen_and_stay_inside_the_edges() -> None:
    rng, one = random.Random(1), learning("DOUBLE", -1e9, 1e9)
    for _ in range(2000):
        lower, upper = sorted(rng.choice([-1, 1]) * 10 ** rng.uniform(-8, 8.9) for _ in range(2))
        low, high = _short(one, (lower, upper))
        assert one.edges[0] <= low <= lower < upper <= high <= one.edges[-1]
        assert high - low <= (upper - lower) * 1.0021


def test_a_declared_bound_is_not_passed() -> None:
    assert _short(learning("DECIMAL(15,2)", 0, 103105.01), (0.0, 103104.9)) == (0.0, 103105.01)


@pytest.mark.parametrize(("sql_type", "upper"), [("DECIMAL(15,2)", 103104.73036667878), ("DECIMAL(38,4)", 96641.6856725959), ("DECIMAL(9,1)", 512.3)])
def test_decimals_are_added_up_in_steps(sql_type: str, upper: float) -> None:
    bounds = _short(learning(sql_type, 0, 110000), (0.0, upper))
    for ends, exact in ((bounds, True), ((0.0, upper), "(9" in sql_type)):
        assert (steps_of(Measure("moments", (Variable(0, *ends),), grid=4250), sql_type) is not None) is exact


def test_whole_numbers_keep_theirs() -> None:
    one = Learning(0, edges_of("BIGINT", 0, 10**9, whole=True), Fraction(1), "gaussian", whole=True)
    assert _short(one, (0.0, 123456.0)) == (0.0, 123456.0)
    assert math.isclose(sum(_short(learning("DOUBLE", 0, 1e9), (0.0, 123456.0))), 123500)
