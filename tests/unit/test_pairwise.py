"""Covering arrays: every pair of values of two parameters is in one of the cases, and no case is for nothing."""

from __future__ import annotations

import itertools

import pairwise
import pytest

pytestmark = pytest.mark.any_duckdb


def pairs(cases):
    return {(i, j, case[i], case[j]) for case in cases for i, j in itertools.combinations(range(len(case)), 2)}


@pytest.mark.parametrize("sizes", [(3, 2, 2), (2, 3, 5), (8, 6, 4), (7, 9, 4), (2, 2, 2, 2, 2), (5, 2, 2, 2), (1, 1, 4), (3, 3), (4,), (2, 0, 3)])
def test_every_pair_of_values_occurs_and_no_case_is_for_nothing(sizes):
    lists = [[f"{name}{i}" for i in range(size)] for name, size in zip("abcde", sizes, strict=False)]
    whole = list(itertools.product(*lists))
    found = pairwise.covering(*lists)
    assert pairs(found) == pairs(whole)
    assert found == [case for case in whole if case in found] == pairwise.covering(*lists)
    for case in found:
        assert pairs([other for other in found if other != case]) != pairs(whole)
    if len(sizes) > 2 and min(sizes) > 1:
        largest, second, *_ = sorted(sizes, reverse=True)
        assert largest * second <= len(found) <= 1.5 * largest * second < len(whole) or len(found) <= 8


def test_equal_values_are_told_apart_by_their_place():
    assert pairwise.covering([1, True], [0, 0], ["a"]) == [(1, 0, "a"), (1, 0, "a"), (True, 0, "a"), (True, 0, "a")]


def test_a_grid_is_the_whole_product_when_everything_is_asked_for(monkeypatch):
    lists = {"size": [1, 2], "name": "ab", "more": [0.5, 0.25]}
    monkeypatch.setattr(pairwise, "WHOLE", False)
    names, found = pairwise.grid(**lists).args
    assert names == ("size", "name", "more") and found == pairwise.covering(*lists.values()) and len(found) == 4
    assert pairwise.grid(ids=str, **lists).kwargs["ids"][0] == "1-a-0.5"
    assert pairwise.in_turn("abc", [1, 2]) == [("a", 1), ("b", 2), ("c", 1)]
    assert pairwise.in_turn("ab", [1, 2, 3, 4], 2) == [("a", 1), ("a", 3), ("b", 2), ("b", 4)]
    monkeypatch.setattr(pairwise, "WHOLE", True)
    assert pairwise.grid(**lists).args[1] == list(itertools.product(*lists.values()))
    assert pairwise.in_turn("abc", [1, 2]) == list(itertools.product("abc", [1, 2]))
