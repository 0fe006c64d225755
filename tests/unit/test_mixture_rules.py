"""The rules that steer the fit of `latent_class`: effort, pull, columns that follow from others, small tables."""

import itertools

import numpy as np
import pytest

from dpsql.domains.attributes import Attribute, Domain
from dpsql.methods.latent_class import LatentClass
from dpsql.methods.mixture.efforts import EFFORTS, schedule
from dpsql.methods.mixture.fit import Mixture, fit_mixture, pair_matrix
from dpsql.methods.mixture.functions import Key, dependence, determination, find_key, sharpened, start
from dpsql.methods.mixture.heldout import APART, FACTORS, halves, held_out_error, pull_factor
from dpsql.methods.mixture.starts import fit_from_starts, fit_seconds, fit_with_key
from dpsql.methods.mixture.targets import targets
from dpsql.tables.statistics import Statistics

METHOD = LatentClass()
AUTO = {"effort": "balanced", "classes": "auto", "steps": "auto"}


def table(codes, clique, sizes):
    shape = [sizes[i] for i in clique]
    return np.bincount(np.ravel_multi_index([codes[:, i] for i in clique], shape), minlength=int(np.prod(shape))).reshape(shape)


def statistics_of(codes, sizes, scale, seed=0, weights=None):
    """Noisy one-way and two-way tables; ``weights``: of the one-way tables relative to the two-way ones."""
    rng, tables, scales = np.random.default_rng(seed), {}, {}
    for k in (1, 2):
        for clique in itertools.combinations(range(len(sizes)), k):
            exact, own = table(codes, clique, sizes), scale
            if k == 1 and weights is not None:
                own = scale / weights[clique[0]] ** 0.5
            tables[clique] = (exact + np.round(rng.normal(0, own, exact.shape))).astype(np.int64)
            scales[clique] = own
    return Statistics(tuple(sizes), tables, scales, "gaussian", len(codes))


def distances(mixture, codes, sizes):
    """Mean total variation distances of the model's one-way and two-way tables."""
    matrix, own = pair_matrix(mixture, sizes), mixture.values @ mixture.shares
    starts = np.cumsum((0, *sizes))
    block = [slice(a, b) for a, b in itertools.pairwise(starts)]
    one = [np.abs(own[block[i]] - table(codes, (i,), sizes) / len(codes)).sum() / 2 for i in range(len(sizes))]
    pairs = itertools.combinations(range(len(sizes)), 2)
    two = [np.abs(matrix[block[i], block[j]] - table(codes, (i, j), sizes) / len(codes)).sum() / 2 for i, j in pairs]
    return float(np.mean(one)), float(np.mean(two))


def functional_rows(rows=8000, values=80, noise=0.0, seed=5):
    """A key, two columns of many values and one of four that follow from it, and one that nothing depends on."""
    rng = np.random.default_rng(seed)
    sizes = [values, values, 70, 4, 10]
    key = rng.integers(0, values, rows)
    maps = [rng.permutation(values), rng.integers(0, 70, values), rng.integers(0, 4, values)]
    columns = [key, *(m[key] for m in maps), rng.integers(0, 10, rows)]
    for column, size in zip(columns[1:4], sizes[1:4], strict=True):
        wrong = rng.random(rows) < noise
        column[wrong] = rng.integers(0, size, int(wrong.sum()))
    return np.stack(columns, 1), sizes


FUNCTIONAL, FUNCTIONAL_SIZES = functional_rows()
NOISY = targets(statistics_of(FUNCTIONAL, FUNCTIONAL_SIZES, 35.0))
"""A value of the key has 100 rows, three times the noise of a cell; a table of the key has up to 6,400 cells."""


def test_more_effort_is_more_work():
    for sizes, strength in (([15] * 15, 500.0), ([18] * 16, 1e4), ([200] * 7, 300.0), ([3] * 9, 40.0)):
        found = [schedule(sizes, strength, {**AUTO, "effort": effort}) for effort in EFFORTS]
        seconds = [fit_seconds(sum(sizes), each.classes, each.steps, each.starts) for each in found]
        assert seconds == sorted(seconds)
        assert seconds[0] < seconds[2]
        assert all(each.starts >= 2 for each in found)


def test_less_noise_is_more_work_up_to_an_end():
    sizes = [6] * 10
    found = [schedule(sizes, strength, AUTO) for strength in (50.0, 1000.0, 5000.0, 1e4)]
    assert [each.steps for each in found] == sorted(each.steps for each in found)
    assert [each.classes for each in found] == sorted(each.classes for each in found)
    assert found[-1].classes <= 1024
    assert schedule(sizes, 1e9, AUTO).classes == 1024


def test_stated_classes_and_steps_are_taken():
    found = schedule([5] * 5, 100.0, {"effort": "best", "classes": 7, "steps": 3})
    assert (found.classes, found.steps) == (7, 3)


def test_a_release_without_effort_is_fitted_as_balanced():
    codes = np.random.default_rng(0).integers(0, 3, (500, 3))
    statistics = statistics_of(codes, [3, 3, 3], 5.0)
    old = {"classes": "auto", "steps": "auto", "pull": 1.0, "one_way_weight": "auto"}
    first, second = METHOD.fit(statistics, old), METHOD.fit(statistics, {**old, "effort": "balanced"})
    assert np.array_equal(first.mixture.values, second.mixture.values)


def test_determination_is_without_bias_and_its_error_is_known():
    sizes, taus = [20, 20], []
    rng = np.random.default_rng(1)
    key = rng.integers(0, 20, 4000)
    codes = np.stack([key, (7 * key) % 20], 1)
    for seed in range(60):
        _, tau, error = determination(targets(statistics_of(codes, sizes, 60.0, seed)))
        taus.append((tau[0, 1], error[0, 1]))
    found, errors = np.array(taus).T
    # The mean of 60 is known to error / sqrt(60); five of these, and the error itself to 9 %, four of these.
    assert abs(found.mean() - 1.0) < 5.0 * errors.mean() / 60**0.5
    assert 0.6 < found.std() / errors.mean() < 1.4


def test_a_key_is_found_with_all_that_follows_and_what_does_not():
    found = find_key(NOISY, 1024)
    assert found is not None
    assert found.position in (0, 1)  # each is a permutation of the other
    assert set(found.determined) == {0, 1, 2, 3} - {found.position}
    assert found.independent == (4,)
    assert 0.8 < found.level <= 1.0
    assert dependence(NOISY)[4] < 2.0 < dependence(NOISY)[:4].min()


def test_no_key_where_there_is_none():
    rng = np.random.default_rng(2)
    sizes = [100, 90, 80, 4]
    nothing = np.stack([rng.integers(0, n, 8000) for n in sizes], 1)
    assert find_key(targets(statistics_of(nothing, sizes, 20.0)), 1024) is None
    # What follows has few values only, or there are more values than classes.
    few = np.stack([FUNCTIONAL[:, 0], FUNCTIONAL[:, 3], FUNCTIONAL[:, 4]], 1)
    assert find_key(targets(statistics_of(few, [80, 4, 10], 10.0)), 1024) is None
    assert find_key(NOISY, 69) is None
    # No one-way tables: how many rows share a value is not known.
    pairs = {clique: np.round(4.0 * np.ones([sizes[i] for i in clique])).astype(np.int64) for clique in ((0, 1), (0, 2))}
    assert find_key(targets(Statistics((100, 90, 80), pairs, dict.fromkeys(pairs, 5.0), "gaussian", 8000)), 1024) is None


def test_columns_that_follow_from_another_are_kept():
    """The aim of the rules for keys: the same work from random starts leaves more of the dependence out."""
    key = find_key(NOISY, 1024)
    kept = fit_with_key(NOISY, key, classes=80, steps=120, starts=1)
    usual = fit_from_starts(NOISY, classes=80, steps=120, starts=1)
    measured, random = distances(kept, FUNCTIONAL, FUNCTIONAL_SIZES)[1], distances(usual, FUNCTIONAL, FUNCTIONAL_SIZES)[1]
    assert measured < 0.75 * random
    own = np.concatenate([np.bincount(FUNCTIONAL[:, i], minlength=n) / len(FUNCTIONAL) for i, n in enumerate(FUNCTIONAL_SIZES)])
    assert measured < 0.4 * distances(Mixture(np.ones(1), own[:, None]), FUNCTIONAL, FUNCTIONAL_SIZES)[1]
    # The column that nothing depends on is the same in every class.
    assert np.ptp(kept.values[-10:], axis=1).max() < 1e-6


def test_the_method_uses_a_key():
    model = METHOD.fit(statistics_of(FUNCTIONAL, FUNCTIONAL_SIZES, 35.0), {"steps": 60, "effort": "fast"})
    assert np.ptp(model.mixture.values[-10:], axis=1).max() < 0.01  # of about 0.1; starts differ a little
    rows = np.concatenate(list(METHOD.sample(model, 8000, np.random.default_rng(0))))
    follows = table(rows, (0, 1), FUNCTIONAL_SIZES)
    exact = table(FUNCTIONAL, (0, 1), FUNCTIONAL_SIZES) > 0
    assert follows[exact].sum() / 8000 > 0.5  # by chance it would be 1 in 80


def test_a_start_has_a_class_for_each_value():
    key = find_key(NOISY, 1024)
    logits, classes = start(NOISY, key, 150, 3)
    assert logits.shape == (sum(FUNCTIONAL_SIZES), 160)
    assert classes.shape == (160,)
    first = 0 if key.position == 0 else 80
    assert np.array_equal(logits[first : first + 80].argmax(axis=0), np.tile(np.arange(80), 2))
    assert np.array_equal(logits, start(NOISY, key, 150, 3)[0])
    assert not np.array_equal(logits, start(NOISY, key, 150, 4)[0])


def test_sharpening_stops_where_the_tables_are():
    """Two classes, one for each value of the key; what follows does so in 70 % of the rows."""
    values = np.array([[1.0, 0.0], [0.0, 1.0], [0.7, 0.3], [0.3, 0.7]])
    mixture = Mixture(np.array([0.5, 0.5]), values)
    given = targets(Statistics((2, 2), {(0, 1): np.array([[35, 15], [15, 35]])}, {(0, 1): 1.0}, "gaussian", 100))
    known = 0.7**2 + 0.3**2
    assert np.array_equal(sharpened(mixture, given, Key(0, (1,), (), known, (known + 1e-6,))).values, values)
    found = sharpened(mixture, given, Key(0, (1,), (), 1.0, (1.0,)))
    assert found.values[2:, 0] == pytest.approx(np.array([0.7**3, 0.3**3]) / (0.7**3 + 0.3**3))
    assert np.array_equal(found.values[:2], values[:2])
    # The whole may be as close to functions as that, but this column is known not to be.
    assert np.array_equal(sharpened(mixture, given, Key(0, (1,), (), 1.0, (known + 1e-6,))).values, values)


def test_tied_attributes_are_the_same_in_every_class():
    given = targets(statistics_of(FUNCTIONAL[:, 2:], FUNCTIONAL_SIZES[2:], 20.0))
    found = fit_mixture(given, classes=8, steps=40, pull=10.0, seed=0, independent=[1])
    assert np.ptp(found.values[70:74], axis=1).max() < 1e-6
    assert np.ptp(found.values[:70], axis=1).max() > 1e-3


def test_halves_are_independent_and_have_the_stated_variance():
    sizes = [30, 30, 30]
    codes = np.random.default_rng(0).integers(0, 30, (6000, 3))
    exact = targets(statistics_of(codes, sizes, 1e-3))
    given = targets(statistics_of(codes, sizes, 40.0, seed=8))
    half, other, variance = halves(given, 1)
    assert half.strength == pytest.approx(given.strength / 2**0.5)
    wanted = np.triu(given.pair_weights, 1) > 0.0
    first, second = ((x - exact.pairs)[wanted] / np.sqrt(variance[wanted]) for x in (half.pairs, other))
    # 2,700 pairs of standard normals: five standard errors.
    assert first.std() == pytest.approx(1.0, abs=5 / (2 * 2700) ** 0.5)
    assert second.std() == pytest.approx(1.0, abs=5 / (2 * 2700) ** 0.5)
    assert abs(np.corrcoef(first, second)[0, 1]) < 5 / 2700**0.5
    assert half.pairs == pytest.approx(half.pairs.T)


def test_the_held_out_error_prefers_the_truth():
    sizes = [30, 30, 30]
    rng = np.random.default_rng(3)
    codes = np.repeat(rng.integers(0, 30, (6000, 1)), 3, axis=1)
    given = targets(statistics_of(codes, sizes, 40.0))
    _, other, variance = halves(given, 1)
    truth = Mixture(np.bincount(codes[:, 0], minlength=30) / 6000, np.tile(np.eye(30), (3, 1)))
    apart = Mixture(np.ones(1), given.one_way[:, None])
    assert held_out_error(truth, given, other, variance) < held_out_error(apart, given, other, variance)
    assert pull_factor(given, 16, 20) in FACTORS


def small_table(dependence, seed, rows=1304):
    """Nine columns of 2 to 42 values with long tails that depend on three classes: few rows for their 141 values."""
    rng = np.random.default_rng(seed)
    sizes = [25, 9, 16, 7, 15, 5, 2, 20, 42]
    member, columns = rng.choice(3, rows, p=[0.5, 0.3, 0.2]), []
    for size in sizes:
        common = rng.dirichlet(np.full(size, 0.3))
        shares = (1.0 - dependence) * common + dependence * rng.dirichlet(np.full(size, 0.3), 3)
        columns.append((shares[member].cumsum(1) < rng.random((rows, 1)) * (1 - 1e-9)).sum(1))
    return np.stack(columns, 1), sizes


def against_independent_columns(dependence, releases=3):
    """Mean distances of the method, and of independent columns from one-way tables that have the whole budget."""
    codes, sizes = small_table(dependence, 4)
    domain = Domain(
        tuple(Attribute(f"a{i}", "VARCHAR", "categorical", tuple(map(str, range(n))), nullable=False) for i, n in enumerate(sizes))
    )
    weights = METHOD.plan(domain, {}).weights
    alone = 36.0 * (9 / sum(weights)) ** 0.5  # the same privacy loss on nine tables: rho ~ sum of weights / sigma^2
    ours, apart = [], []
    for seed in range(releases):
        model = METHOD.fit(statistics_of(codes, sizes, 36.0, seed, weights[:9]), {"effort": "fast"})
        ours.append(distances(model.mixture, codes, sizes))
        every = statistics_of(codes, sizes, alone, 100 + seed).tables
        singles = {clique: counts for clique, counts in every.items() if len(clique) == 1}
        given = targets(Statistics(tuple(sizes), singles, dict.fromkeys(singles, alone), "gaussian", len(codes)))
        apart.append(distances(Mixture(np.ones(1), given.one_way[:, None]), codes, sizes))
    return np.mean(ours, axis=0), np.mean(apart, axis=0)


def test_a_small_noisy_table_is_not_worse_than_independent_columns_for_the_same_budget():
    (_, two), (_, two_apart) = against_independent_columns(1.0)
    assert two < two_apart


def test_a_small_table_with_hardly_any_dependence_comes_out_with_independent_columns():
    """What is left is what two-way tables have cost: noise of the one-way tables."""
    (one, two), (one_apart, two_apart) = against_independent_columns(0.2)
    assert two < 1.35 * two_apart
    assert one < 1.5 * one_apart
    codes, sizes = small_table(0.0, 4)
    factors = [pull_factor(targets(statistics_of(codes, sizes, 36.0, seed)), 32, 100) for seed in range(4)]
    assert min(factors) > 1.0
    assert FACTORS[-1] == APART


def test_columns_that_depend_are_not_taken_apart():
    codes, sizes = small_table(1.0, 4, rows=20_000)
    assert pull_factor(targets(statistics_of(codes, sizes, 36.0)), 32, 100) < APART
