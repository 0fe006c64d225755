"""Leaves of trees that lie where the rows are: units of types, the cells that are counted, the leaves that are cut."""

import itertools
import json
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsql.errors import ArgumentError
from dpsql.estimates.leaves import Cutting, Units, cut, depth, points, released, units_of
from dpsql.estimates.measures import Measure, Variable

WIDE = units_of("INTEGER", 0, 500_000, whole=True)


def cutting(units, scale=10, mechanism="gaussian"):
    return Cutting(0, (Fraction(scale),) * depth(units, mechanism)[1], mechanism)


def counted(units, values, scale=10, noise=None, mechanism="gaussian", leaves=1024):
    """Return the levels of some units, without noise or with what ``noise`` adds."""
    ordered = np.sort(np.asarray(values, np.int64))

    def answer(level, cells):
        exact = np.searchsorted(ordered, cells[1]) - np.searchsorted(ordered, cells[0])
        return exact if noise is None else exact + noise(exact.size)

    return released(units, cutting(units, scale, mechanism), leaves, answer)


@pytest.mark.parametrize(
    ("sql_type", "lower", "upper", "whole", "count", "third"),
    [
        ("INTEGER", -5, 120, True, 126, -3.0),
        ("BIGINT", 0, 9_999_999_999, True, 10_000_000_000, 2.0),
        ("DECIMAL(12,2)", 0, 10, False, 1001, 0.02),
        ("DECIMAL(12,2)", -1.005, 1.005, False, 201, -0.98),
        ("DATE", 0, 20_000, True, 20_001, 2.0),
        ("TIMESTAMP", 10.5, 100.25, False, 91, 12.0),
        ("DOUBLE", 0, 2.0**48, False, 2**48, 2.0),
        ("DECIMAL(38,10)", -1e27, 1e27, False, 2**48, -1e27 + 2 * 2e27 / 2**48),
    ],
)
def test_units_are_the_steps_of_a_type(sql_type, lower, upper, whole, count, third):
    units = units_of(sql_type, lower, upper, whole=whole)
    assert units.count == count and units.values(np.array([2.0]))[0] == third
    assert Units.from_json(json.loads(json.dumps(units.to_json()))) == units


def test_decimals_come_back_as_they_were_written():
    units = units_of("DECIMAL(12,2)", 0.1, 700_000, whole=False)
    written = [0.1, 0.3, 1.1, 65_000.07, 699_999.99]
    places = np.rint((np.array(written) - units.lower) / units.width)
    assert units.values(places).tolist() == written


@pytest.mark.parametrize(
    "changed",
    [{"count": 1}, {"count": 2**53 + 1}, {"count": True}, {"width": 0.0}, {"width": math.inf}, {"lower": math.nan}, {"single": 1},
     {"sort": "text"}, {"lower": "0"}, {"more": 1}],
)
def test_other_units_are_refused(changed):
    with pytest.raises(ArgumentError):
        Units.from_json({**WIDE.to_json(), **changed})


@pytest.mark.parametrize(
    "changed",
    [{"place": -1}, {"place": True}, {"scales": []}, {"scales": ["0"]}, {"scales": [1]}, {"scales": ["1"] * 65}, {"mechanism": "none"}, {"more": 1}],
)
def test_other_histograms_are_refused(changed):
    made = cutting(WIDE).to_json()
    assert Cutting.from_json(made) == cutting(WIDE)
    with pytest.raises((ArgumentError, ValueError)):
        Cutting.from_json({**made, **changed})


def test_a_tree_takes_only_leaves_that_it_can_have():
    age = Variable(0, 0, 500_000, whole=True)
    made = Measure("tree", (age,), levels=(4, 4), units=WIDE, edges=(*range(16), WIDE.count))
    assert Measure.from_json(json.loads(json.dumps(made.to_json()))) == made
    for edges in [(0, 5, WIDE.count), (*range(1, 17), WIDE.count), (*range(16), 99), (0, *range(15), WIDE.count), (*map(float, range(16)), WIDE.count)]:
        with pytest.raises(ArgumentError):
            Measure("tree", (age,), levels=(4, 4), units=WIDE, edges=edges)
    with pytest.raises(ArgumentError):
        Measure("tree", (age,), levels=(4, 4), edges=made.edges)
    with pytest.raises(ArgumentError):
        Measure("tree", (age,), levels=(4, 4), units=units_of("INTEGER", 0, 9, whole=True))
    with pytest.raises(ArgumentError):
        Measure("values", (age,), values=("a",), units=WIDE)


@given(
    st.lists(st.integers(0, WIDE.count - 1), max_size=300),
    st.integers(0, 2**32 - 1),
    st.sampled_from(["gaussian", "laplace"]),
    st.sampled_from([WIDE, units_of("DOUBLE", 0, 1, whole=False), units_of("INTEGER", 0, 1100, whole=True)]),
)
def test_cells_of_a_level_are_disjoint_and_leaves_cover_all(values, seed, mechanism, units):
    rng = np.random.default_rng(seed)
    scaled = [value * (units.count - 1) // (WIDE.count - 1) for value in values]
    levels = counted(units, scaled, 10, lambda size: np.rint(rng.normal(0, 10, size)).astype(np.int64), mechanism)
    before = None
    for level in levels:
        assert (level.first < level.behind).all() and (level.behind[:-1] <= level.first[1:]).all()
        if before is None:
            assert level.first[0] == 0 and level.behind[-1] == units.count and (level.behind[:-1] == level.first[1:]).all()
        else:
            for place in set(level.parent.tolist()):
                here = level.parent == place
                assert (level.first[here].min(), level.behind[here].max()) == (before.first[place], before.behind[place])
                assert (level.behind - level.first)[here].sum() == before.behind[place] - before.first[place]
                assert before.counts[place] > 30
        before = level
    for leaves in (2, 16, 1024):
        ends = cut(units, levels, leaves)
        assert len(ends) == leaves + 1 and (ends[0], ends[-1]) == (0, units.count)
        assert all(a < b for a, b in itertools.pairwise(ends)) and all(type(end) is int for end in ends)


def test_a_value_that_many_have_gets_a_leaf_of_its_own():
    rng = np.random.default_rng(1)
    values = np.concatenate([np.full(8_000, 65_000), rng.integers(0, 500_001, 2_000)])
    levels = counted(WIDE, values, 40, lambda size: np.rint(rng.normal(0, 40, size)).astype(np.int64))
    ends = cut(WIDE, levels, 1024)
    assert 65_000 in ends and 65_001 in ends


def test_leaves_are_where_the_rows_are():
    rng = np.random.default_rng(2)
    levels = counted(WIDE, rng.integers(20, 141, 20_000), 40, lambda size: np.rint(rng.normal(0, 40, size)).astype(np.int64))
    ends = np.asarray(cut(WIDE, levels, 256))
    assert ((ends >= 20) & (ends <= 141)).sum() > 110


@pytest.mark.parametrize("counts", [0, -50])
def test_of_nothing_leaves_are_equal(counts):
    levels = counted(WIDE, [], 10, lambda size: np.full(size, counts, np.int64))
    assert len(levels) == 1
    widths = np.diff(cut(WIDE, levels, 64))
    assert widths.max() <= 2 * widths.min() + 1


def test_narrow_leaves_of_reals_stand_for_their_roundest_number():
    units = units_of("DOUBLE", 0, 500_000, whole=False)
    at = int(65_000.5 / units.width)
    edges = np.array([0, 1, at, at + 1, at + 2**40, units.count])
    found = points(units, edges)
    assert found[0] == 0.0 and found[2] == 65_000.5 and np.isnan(found[[1, 3, 4]]).all()
    moments = units_of("TIMESTAMP", 0, 1e9, whole=False)
    assert points(moments, np.array([0, 5, 6, moments.count])).tolist()[1] == 5.0
    assert np.isnan(points(WIDE, np.array([0, 5, 6, WIDE.count]))).all(), "an integer's leaf says its value by itself"
