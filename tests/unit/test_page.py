"""The report's figures and markup: noise accounted for, words true, texts escaped."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from dpsql import noise
from dpsql.domain import Attribute, Domain
from dpsql.page import figures, markup, svg, words

UNIFORM = Domain((Attribute("a", "INTEGER", "numeric", edges=tuple(range(201)), nullable=True),))


def test_without_noise_the_strength_is_cramers_v():
    rng = np.random.default_rng(1)
    for shape in ((2, 2), (3, 5), (6, 4)):
        table = rng.integers(1, 60, shape)
        assert figures.plain_strength(table.astype(float)).value == pytest.approx(stats.contingency.association(table, "cramer"))


@pytest.mark.parametrize("margins_known", [True, False])
def test_noise_is_taken_off_on_average_and_independent_columns_stay_below_the_bound(margins_known):
    rng = np.random.default_rng(2)
    p, q, n, sigma = np.array([0.5, 0.3, 0.15, 0.05]), np.array([0.4, 0.3, 0.2, 0.06, 0.04]), 4000, 35.0
    squares, above = [], 0
    for _ in range(400):
        table = rng.multinomial(n, np.outer(p, q).ravel()).reshape(4, 5) + rng.normal(0, sigma, (4, 5))
        first = p if margins_known else figures.shares_of(table, 0)
        second = q if margins_known else figures.shares_of(table, 1)
        found = figures.strength(table, first, second, sigma)
        above += found.told_apart
        squares.append(found.value**2)
    uncorrected = [figures.strength(table, p, q, 0.0, like=sigma).value ** 2]
    assert np.mean(squares) < 0.25 * uncorrected[0]  # values below 0 are cut off, so the mean is not 0
    assert above / 400 < 0.10


def test_a_dependence_above_the_noise_is_found_with_its_size():
    rng = np.random.default_rng(3)
    exact = np.array([[1500.0, 300.0], [200.0, 1000.0]])
    wanted = figures.plain_strength(exact, 20.0).value
    found = [figures.strength(exact + rng.normal(0, 20, (2, 2)), np.array([0.6, 0.4]), np.array([17 / 30, 13 / 30]), 20.0) for _ in range(200)]
    assert all(f.told_apart for f in found)
    assert np.mean([f.value for f in found]) == pytest.approx(wanted, abs=0.01)


@pytest.mark.parametrize(("mechanism", "scale"), [("gaussian", 30.0), ("laplace", 12.0)])
@pytest.mark.parametrize("cells", [1, 6])
def test_bands_hold_95_percent_of_the_noise(mechanism, scale, cells):
    drawn = noise.add_noise(np.zeros((20_000, cells), dtype=np.int64), mechanism, scale).sum(axis=1)
    deviation = figures.deviation_of(mechanism, scale)
    width = figures.half_width(deviation, scale if mechanism == "laplace" else None, cells)
    inside = float(np.mean(np.abs(drawn) <= width))
    assert 0.935 < inside < 0.965  # the standard error is 0.0015


def test_groups_keep_all_counts_and_their_bands_add_up():
    counts = np.arange(201.0)
    known = figures.OneWay(counts, 10.0, 19.6, (0,))
    column = figures.column_of(UNIFORM, 0, known, counts, None)
    assert len(column.labels) <= figures.MAX_BARS + 1
    assert column.released.sum() == counts.sum()
    assert column.labels[0] == "[0, 5)" and column.labels[-1] == "NULL"
    assert column.half_width[0] == pytest.approx(1.96 * 10 * math.sqrt(5), rel=1e-3)
    assert column.half_width[-1] == 19.6


def test_one_way_statistics_come_from_the_least_noisy_table():
    tables = {(0, 1): np.ones((2, 50)), (0, 2): np.full((2, 3), 7.0)}
    found = figures.one_way(figures.Measured(tables, {(0, 1): 1.0, (0, 2): 2.0}), 0)
    assert found.clique == (0, 2)
    assert found.counts.tolist() == [21.0, 21.0]
    assert found.deviation == pytest.approx(2 * math.sqrt(3))


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 0.0), (1.0, 0.01), (4.0, 0.2)])
def test_the_best_test_is_never_right_more_often_than_said(epsilon, delta):
    """The two laws that an (epsilon, delta) guarantee allows to be furthest apart: one secret sign, told truly or not."""
    told = math.exp(epsilon) / (1 + math.exp(epsilon))
    absent = {"surely absent": delta, "yes": (1 - delta) * (1 - told), "no": (1 - delta) * told, "surely present": 0.0}
    present = {"surely absent": 0.0, "yes": (1 - delta) * told, "no": (1 - delta) * (1 - told), "surely present": delta}
    allowed, right = 0.05, 0.0
    for event in sorted(absent, key=lambda e: -present[e] / absent[e] if absent[e] else -math.inf):
        share = min(1.0, allowed / absent[event]) if absent[event] else 1.0
        right += share * present[event]
        allowed -= share * absent[event]
    assert right <= words.most_often_right(0.05, epsilon, delta) + 1e-12
    assert right == pytest.approx(words.most_often_right(0.05, epsilon, delta))  # and it is reached


def test_the_words_say_who_is_protected():
    said = " ".join(words.promise(1.0, 1e-9, "replace_one", words.unit_words("patient", 5)))
    assert "column “patient”" in said and "at most 5 of them" in said and "e^1 = 2.7183" in said and "1e-09" in said
    assert "13.6 of 100" in said
    assert "except with probability" not in " ".join(words.promise(1.0, 0.0, "add_remove", words.unit_words(None, 1)))


def test_texts_are_escaped_and_cannot_turn_the_page():
    assert markup.text("<script>\"'&\x00\u202e") == "&lt;script&gt;&quot;&#x27;&amp;\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}"
    evil = '"><script>alert(1)</script>'
    column = figures.Column(evil, evil, [evil, "[<b>, 2)"], np.array([1.0, 2.0]), np.array([1.0, 1.0]), None, None)
    for ordered in (True, False):
        drawn = svg.chart(figures.Column(**{**column.__dict__, "ordered": ordered}))
        assert "<script" not in drawn and "<b>" not in drawn
    assert "<script" not in svg.heat_map(np.full((2, 2), 0.5), [evil, evil], evil)


def test_charts_of_nothing_and_of_negative_counts_are_drawn():
    for labels in ([], ["a"], ["a", "b"]):
        values = np.full(len(labels), -3.0)
        for ordered in (True, False):
            drawn = svg.chart(figures.Column("c", "", labels, values, np.ones(len(labels)), values * 0, None, ordered))
            assert "nan" not in drawn.lower() and drawn.startswith("<svg")
    assert "nan" not in svg.heat_map(np.full((3, 3), np.nan), ["a", "b", "c"], "t")
