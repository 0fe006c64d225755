"""Reported tuples, the model behind the rows, and both samplers: on counts that are known."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from dpsql.domains.attributes import Attribute, Domain
from dpsql.errors import ArgumentError, DomainError
from dpsql.methods import get
from dpsql.methods.aggregate_seeded.model import Level, estimated_rows, fit_seeded, impossible_pairs, pair_targets
from dpsql.methods.aggregate_seeded.reported import reported
from dpsql.methods.aggregate_seeded.rows import seeded_rows
from dpsql.tables.statistics import Statistics
from dpsql.tables.tuple_index import TupleIndex, tuple_index

SIZES = (3, 4, 2)
METHOD = get("aggregate_seeded")


def rows_of(n: int, seed: int = 3) -> np.ndarray:
    """Dependent columns; the pair (0 of the first, 3 of the second) does not occur."""
    rng = np.random.default_rng(seed)
    a = rng.choice(3, n, p=[0.4, 0.4, 0.2])
    b = np.where(rng.random(n) < 0.6, a, rng.integers(0, 4, n))
    b[(a == 0) & (b == 3)] = 1
    c = np.where(rng.random(n) < 0.8, (a + b) % 2, rng.integers(0, 2, n))
    return np.stack([a, b, c], axis=1)


def levels_of(rows: np.ndarray, length: int, scale: float = 0.0, sizes=SIZES, seed: int = 1) -> tuple[TupleIndex, list[Level]]:
    index = tuple_index(tuple(sizes), length)
    rng = np.random.default_rng(seed)
    found = []
    for k in index.levels:
        parts = []
        for clique in itertools.combinations(range(len(sizes)), k):
            cell = np.ravel_multi_index(tuple(rows[:, i] for i in clique), [sizes[i] for i in clique])
            parts.append(np.bincount(cell, minlength=int(np.prod([sizes[i] for i in clique]))))
        counts = np.concatenate(parts)
        counts = counts + np.rint(rng.normal(0, scale, counts.size)).astype(np.int64)
        found.append(Level(index.attributes(np.arange(*index.level_keys(k)), k), counts, scale))
    return index, found


def statistics_of(index: TupleIndex, levels: list[Level], total: int | None = None, domain: Domain | None = None) -> Statistics:
    keys = np.concatenate([index.keys(level.attributes) for level in levels])
    table = index.tables_of(keys)
    scales = {clique: levels[len(clique) - 1].scale for clique in index.cliques}
    blocks = (table, keys - index.starts[table], np.concatenate([level.counts for level in levels]))
    return Statistics(index.sizes, {}, scales, total=total, blocks=blocks, domain=domain)


def test_keys_number_the_cells_of_all_tables():
    index = TupleIndex((2, 3, 4, 2), 3)
    cells = [
        (clique, *cell)
        for k in (1, 2, 3)
        for clique in itertools.combinations(range(4), k)
        for cell in itertools.product(*(range(index.sizes[i]) for i in clique))
    ]
    at = 0
    for k in index.levels:
        first, behind = index.level_keys(k)
        assert first == at
        keys = np.arange(first, behind)
        attributes = index.attributes(keys, k)
        assert (index.keys(attributes) == keys).all()
        for row in attributes:
            clique = tuple(int(index.columns_of_attributes[a]) for a in row)
            assert (clique, *(int(a - index.first_attributes[c]) for a, c in zip(row, clique, strict=True))) == cells[at]
            at += 1
    assert at == len(cells)


def test_too_many_tables_are_refused():
    with pytest.raises(DomainError, match="tables"):
        TupleIndex((2,) * 400, 4)
    with pytest.raises(DomainError, match="tuples"):
        TupleIndex((2**22,) * 3, 3)


def test_reported_counts_are_above_the_threshold_and_fall_down_the_lattice():
    index, levels = levels_of(rows_of(500), 3, scale=15.0)
    shown = reported(levels, (0, 5, 9), index)
    count = [dict(zip(map(tuple, level.attributes.tolist()), level.counts.tolist(), strict=True)) for level in shown]
    raw = [dict(zip(map(tuple, level.attributes.tolist()), level.counts.tolist(), strict=True)) for level in levels]
    for k, threshold in ((1, 0), (2, 5), (3, 9)):
        parts_kept = {t: all(p in count[k - 2] for p in itertools.combinations(t, k - 1)) for t in raw[k - 1]} if k > 1 else {}
        for t, n in count[k - 1].items():
            assert raw[k - 1][t] > threshold
            if k > 1 and parts_kept[t]:
                assert n == min(raw[k - 1][t], *(count[k - 2][p] for p in itertools.combinations(t, k - 1)))


def test_without_noise_everything_is_as_counted():
    rows = rows_of(2000)
    index, levels = levels_of(rows, 2)
    assert estimated_rows(levels, index) == pytest.approx(2000)
    given, errors = pair_targets(levels, index, None)
    assert given.one_way[:3] * 2000 == pytest.approx(np.bincount(rows[:, 0], minlength=3))
    pair = given.pairs[:3, 3:7] * 2000
    assert pair == pytest.approx(np.histogram2d(rows[:, 0], rows[:, 1], [range(4), range(5)])[0], abs=0.05)
    assert np.isinf(errors[0, 1])
    assert errors[0, 3] < 0.01


def test_triples_add_their_sums_to_pairs():
    rows = rows_of(2000)
    index, levels = levels_of(rows, 3)
    with_triples, errors = pair_targets(levels, index, None)
    without, alone = pair_targets(levels[:2], tuple_index(SIZES, 2), None)
    assert with_triples.pairs == pytest.approx(without.pairs, abs=1e-5)
    # the pair (first, second) has one more table, over 2 values of the third: precision 1 + 1/2
    assert (alone[0, 3] / errors[0, 3]) ** 2 == pytest.approx(1.5)


def test_the_impossible_pair_is_found_and_avoided_and_nothing_else():
    rows = rows_of(30_000)
    index, levels = levels_of(rows, 2, scale=30.0)
    model = fit_seeded(levels, index, None)
    assert np.argwhere(model.impossible).tolist() == [[0, 6], [6, 0]]
    drawn = np.concatenate(list(seeded_rows(model, SIZES, 20_000, np.random.default_rng(5))))
    assert drawn.shape == (20_000, 3)
    assert not ((drawn[:, 0] == 0) & (drawn[:, 1] == 3)).any()
    for i, j in itertools.combinations(range(3), 2):
        wanted = np.histogram2d(rows[:, i], rows[:, j], [range(SIZES[i] + 1), range(SIZES[j] + 1)])[0] / 30_000
        found = np.histogram2d(drawn[:, i], drawn[:, j], [range(SIZES[i] + 1), range(SIZES[j] + 1)])[0] / 20_000
        assert np.abs(found - wanted).max() < 0.004


def test_a_rare_pair_of_rare_values_is_not_called_impossible():
    rows = rows_of(400)
    index, levels = levels_of(rows, 2, scale=30.0)
    given, errors = pair_targets(levels, index, None)
    found = impossible_pairs(fit_seeded(levels, index, None).mixture, given, errors)
    expected = given.rows * np.outer(given.one_way, given.one_way)
    assert not (found & (expected <= errors)).any()


@pytest.mark.parametrize("total", [0, 1, 2])
def test_hardly_any_rows(total):
    index, levels = levels_of(rows_of(total), 2, scale=8.0)
    model = METHOD.fit(statistics_of(index, levels), {"reporting_length": 2})
    assert METHOD.total(model) >= 0
    drawn = list(METHOD.sample(model, 100, np.random.default_rng(1)))
    assert sum(map(len, drawn)) == 100
    assert len(METHOD.report(model)) == 2


def test_negative_counts_throughout():
    index, levels = levels_of(rows_of(10), 2)
    low = [Level(level.attributes, level.counts - 100, 20.0) for level in levels]
    statistics = statistics_of(index, low)
    model = METHOD.fit(statistics, {"reporting_length": 2})
    assert METHOD.total(model) == 0
    keys, counts = METHOD.aggregates(statistics, {"reporting_length": 2})
    assert keys.size == counts.size == 0
    for sampler, rows in (("dependence_preserving", 50), ("published", 0)):
        model = METHOD.fit(statistics, {"reporting_length": 2, "sampler": sampler})
        assert sum(map(len, METHOD.sample(model, 50, np.random.default_rng(1)))) == rows


def published(rows: np.ndarray, length: int, **options: object) -> tuple[np.ndarray, np.ndarray]:
    index, levels = levels_of(rows, length)
    chosen = {"reporting_length": length, "sampler": "published", "thresholds": [0] * (length - 1), **options}
    levels = [Level(level.attributes, level.counts, 0.6) for level in levels]
    model = METHOD.fit(statistics_of(index, levels), chosen)
    return np.concatenate(list(METHOD.sample(model, len(rows), np.random.default_rng(2)))), rows


@pytest.mark.parametrize("length", [1, 2, 3])
@pytest.mark.parametrize("use_synthetic_counts", [False, True])
def test_the_published_sampler_uses_reported_tuples_up(length, use_synthetic_counts):
    drawn, rows = published(rows_of(1500), length, use_synthetic_counts=use_synthetic_counts)
    for i, size in enumerate(SIZES):
        found, counted = (np.bincount(x[:, i], minlength=size + 1) for x in (drawn, rows))
        assert (found[:size] == counted[:size]).all()  # every attribute is used as often as it was reported; the rest is empty
    if length > 1:
        assert not ((drawn[:, 0] == 0) & (drawn[:, 1] == 3)).any()
    if length == 3:
        assert set(map(tuple, drawn[(drawn < SIZES).all(1)].tolist())) <= set(map(tuple, rows.tolist()))


def test_the_published_sampler_scales_and_repeats():
    index, levels = levels_of(rows_of(1000), 2, scale=5.0)
    model = METHOD.fit(statistics_of(index, levels), {"reporting_length": 2, "sampler": "published"})
    one, same, other, twice = (
        np.concatenate(list(METHOD.sample(model, n, np.random.default_rng(seed)))) for n, seed in ((1000, 1), (1000, 1), (1000, 2), (2000, 1))
    )
    assert (one == same).all()
    assert one.shape != other.shape or (one != other).any()
    assert len(twice) > 1.8 * len(one)


def test_the_default_sampler_repeats_and_is_exact():
    index, levels = levels_of(rows_of(3000), 2, scale=5.0)
    model = METHOD.fit(statistics_of(index, levels), {"reporting_length": 2})
    for rows in (0, 1, 777, 70_001):
        one, same = (list(METHOD.sample(model, rows, np.random.default_rng(4))) for _ in range(2))
        assert sum(map(len, one)) == rows
        assert all((a == b).all() for a, b in zip(one, same, strict=True))


def test_the_plan_weighs_levels_and_refuses_nonsense():
    domain = Domain(tuple(Attribute(f"c{i}", "VARCHAR", "categorical", tuple("abcd"[:s]), nullable=False) for i, s in enumerate(SIZES)))
    plan = METHOD.plan(domain, {"reporting_length": 2})
    assert plan.cliques == ((0,), (1,), (2,), (0, 1), (0, 2), (1, 2))
    weights = METHOD.tuples(domain, {"reporting_length": 2}).weights
    assert METHOD.plan(domain, {"reporting_length": 9}) == METHOD.plan(domain, {"reporting_length": 3})
    assert weights == pytest.approx((1, 4))
    for options, match in (
        ({"reporting_length": 0}, "reporting_length"),
        ({"reporting_length": 2.5}, "reporting_length"),
        ({"reporting_length": True}, "reporting_length"),
        ({"length": 2}, "not an option"),
        ({"sampler": "best"}, "sampler"),
        ({"accounting": None}, "accounting"),
        ({"use_synthetic_counts": 1}, "use_synthetic_counts"),
        ({"weight_selection_percentile": 101}, "weight_selection_percentile"),
        ({"percentile_epsilon_proportion": 1}, "percentile_epsilon_proportion"),
        ({"fabrication_mode": [0.5]}, "fabrication_mode"),
    ):
        with pytest.raises(ArgumentError, match=match):
            METHOD.plan(domain, options)
    split = METHOD.tuples(domain, {"reporting_length": 2, "accounting": "published"}, 1.0, 1e-6).published
    assert METHOD.tuples(domain, {"reporting_length": 2}, 1.0, 1e-6).published is None
    assert split.sigmas[0] / split.sigmas[1] == pytest.approx(2.0)


def test_a_column_of_one_value():
    sizes = (1, 3)
    rows = np.stack([np.zeros(900, int), np.arange(900) % 3], axis=1)
    index, levels = levels_of(rows, 2, scale=4.0, sizes=sizes)
    model = METHOD.fit(statistics_of(index, levels), {"reporting_length": 2})
    drawn = np.concatenate(list(METHOD.sample(model, 900, np.random.default_rng(1))))
    assert (drawn[:, 0] == 0).all()
    assert np.abs(np.bincount(drawn[:, 1], minlength=3) - 300).max() < 20
