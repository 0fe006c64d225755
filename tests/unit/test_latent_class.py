import itertools

import numpy as np
import pytest

from dpsql.domains.attributes import Attribute, Domain
from dpsql.errors import ArgumentError
from dpsql.methods.latent_class import LatentClass
from dpsql.methods.mixture.fit import Mixture, average, fit_mixture, pair_matrix, pull_strength
from dpsql.methods.mixture.rows import class_rows, exchange, mixture_rows, sweeps, systematic
from dpsql.methods.mixture.targets import targets
from dpsql.tables.statistics import Statistics

METHOD = LatentClass()
QUICK = {"classes": 24, "steps": 300}


def domain_of(sizes):
    return Domain(
        tuple(Attribute(f"a{i}", "VARCHAR", "categorical", tuple(map(str, range(n))), nullable=False) for i, n in enumerate(sizes))
    )


def table(codes, clique, sizes):
    shape = [sizes[i] for i in clique]
    return np.bincount(np.ravel_multi_index([codes[:, i] for i in clique], shape), minlength=int(np.prod(shape))).reshape(shape)


def statistics_of(codes, sizes, scale=0.0, total=None, seed=0, orders=(1, 2)):
    rng, tables = np.random.default_rng(seed), {}
    for k in orders:
        for clique in itertools.combinations(range(len(sizes)), k):
            exact = table(codes, clique, sizes)
            tables[clique] = (exact + np.round(rng.normal(0, scale, exact.shape) if scale else 0)).astype(np.int64)
    return Statistics(tuple(sizes), tables, dict.fromkeys(tables, scale), "gaussian", total)


def classes_of_rows(rows, sizes, classes=4, seed=3):
    """Rows of a true latent class model."""
    rng = np.random.default_rng(seed)
    member = rng.choice(classes, rows, p=rng.dirichlet(np.full(classes, 3.0)))
    codes = np.empty((rows, len(sizes)), np.int64)
    for i, size in enumerate(sizes):
        shares = rng.dirichlet(np.full(size, 0.6), classes)
        codes[:, i] = (shares[member].cumsum(1) < rng.random((rows, 1)) * (1 - 1e-12)).sum(1)
    return codes


def drawn(model, rows, seed=1):
    blocks = list(METHOD.sample(model, rows, np.random.default_rng(seed)))
    return np.concatenate(blocks) if blocks else np.zeros((0, len(model.sizes)), np.int32)


def distance(exact, rows, sizes, k=2):
    """Mean total variation distance of k-way tables."""
    found = []
    for clique in itertools.combinations(range(len(sizes)), k):
        found.append(np.abs(table(exact, clique, sizes) / len(exact) - table(rows, clique, sizes) / len(rows)).sum() / 2)
    return float(np.mean(found))


SIZES = [3, 5, 2, 7, 4, 6]
ROWS = classes_of_rows(6000, SIZES)


def independent_of(codes, seed=0):
    rng = np.random.default_rng(seed)
    return np.stack([rng.permutation(codes[:, i]) for i in range(codes.shape[1])], 1)


def test_plan_measures_every_one_way_and_two_way_table():
    plan = METHOD.plan(domain_of([2, 3, 4]), {})
    assert plan.cliques == ((0,), (1,), (2,), (0, 1), (0, 2), (1, 2))
    # 1 - 1/3 - 1/4, 1 - 1/2 - 1/4, 1 - 1/2 - 1/3: what the row sums of the two-way tables do not tell.
    assert plan.weights == pytest.approx((5 / 12, 1 / 4, 1 / 6, 1.0, 1.0, 1.0))


def test_one_way_tables_get_one_part_in_11_of_the_privacy_loss():
    plan = METHOD.plan(domain_of([2] * 15), {})
    singles = sum(w for c, w in zip(plan.cliques, plan.weights, strict=True) if len(c) == 1)
    assert singles / sum(plan.weights) == pytest.approx(1 / 11)


def test_one_way_tables_share_so_that_the_sum_of_their_errors_is_smallest():
    sizes = np.array([8, 8, 8, 27, 27, 27, 64, 64])
    weights = np.array(METHOD.plan(domain_of(sizes), {}).weights[:8])
    known = 1.0 - (1.0 / sizes).sum() + 1.0 / sizes
    assert known.max() < 0.75
    weights_of_rule = 28 / 10 * sizes ** (2 / 3) / (sizes ** (2 / 3)).sum()
    assert weights == pytest.approx(np.maximum(weights_of_rule, known))
    # Without the second part: c_i w_i^(-1/2) summed is least among all splits of the same whole.
    rng = np.random.default_rng(0)
    for _ in range(50):
        moved = weights_of_rule * np.exp(0.2 * rng.standard_normal(8))
        moved *= weights_of_rule.sum() / moved.sum()
        assert (sizes / np.sqrt(moved)).sum() >= (sizes / np.sqrt(weights_of_rule)).sum()


def test_plan_of_many_attributes_says_what_to_expect():
    assert METHOD.plan(domain_of([2] * 45), {}).notes == ()
    assert "1035 two-way tables share the budget" in METHOD.plan(domain_of([2] * 46), {}).notes[0]


def test_large_attributes_get_more_for_their_one_way_tables():
    plan = METHOD.plan(domain_of([200, 200, 200, 4]), {})
    assert plan.weights[:4] == pytest.approx((1 - 2 / 200 - 1 / 4,) * 3 + (1 - 3 / 200,))


def test_plan_of_one_attribute_measures_it_whatever_the_weight():
    for weight in (0, 0.0, 2, "auto"):
        plan = METHOD.plan(domain_of([4]), {"one_way_weight": weight})
        assert plan.cliques == ((0,),)
        assert plan.weights[0] > 0.0


def test_plan_without_one_way_tables():
    assert METHOD.plan(domain_of([2, 3, 4]), {"one_way_weight": 0}).cliques == ((0, 1), (0, 2), (1, 2))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"clases": 3}, "not an option"),
        ({"classes": 0}, "'auto' or a whole number from 1 to 10000"),
        ({"classes": True}, "'auto' or a whole number from 1 to 10000"),
        ({"classes": 2.5}, "'auto' or a whole number from 1 to 10000"),
        ({"steps": 100_001}, "'auto' or a whole number from 1 to 100000"),
        ({"pull": -1}, "a number from 0 to 1000"),
        ({"pull": "auto"}, "a number from 0 to 1000"),
        ({"pull": float("nan")}, "a number from 0 to 1000"),
        ({"one_way_weight": 2000}, "'auto' or a number from 0 to 1000"),
        ({"one_way_weight": False}, "'auto' or a number from 0 to 1000"),
        ({"effort": "much"}, "one of 'fast', 'balanced', 'best'"),
        ({"effort": None}, "one of 'fast', 'balanced', 'best'"),
    ],
)
def test_options_are_checked(options, text):
    with pytest.raises(ArgumentError, match=text):
        METHOD.plan(domain_of([2, 2]), options)
    with pytest.raises(ArgumentError, match=text):
        METHOD.fit(statistics_of(ROWS[:10], SIZES), options)


def test_no_attribute_is_refused():
    with pytest.raises(ArgumentError, match="at least one column"):
        METHOD.plan(Domain(()), {})


def test_negative_rows_are_refused():
    model = METHOD.fit(statistics_of(ROWS, SIZES), QUICK)
    with pytest.raises(ArgumentError, match="at least 0"):
        METHOD.sample(model, -1, np.random.default_rng(0))


def test_a_table_of_another_shape_is_refused():
    with pytest.raises(ArgumentError, match="shape"):
        METHOD.fit(Statistics((2, 3), {(0, 1): np.zeros((3, 2), np.int64)}, {(0, 1): 1.0}), {})


def test_targets_are_precision_weighted_means():
    tables = {(0,): np.array([10, 30]), (0, 1): np.array([[4, 8], [12, 16]])}
    found = targets(Statistics((2, 2), tables, {(0,): 1.0, (0, 1): 2.0}, "gaussian", 40))
    # One-way: variance 1 against 2 * 4 of the row sums 12, 28: weights 8 : 1.
    assert found.one_way[:2] * 40 == pytest.approx([(8 * 10 + 12) / 9, (8 * 30 + 28) / 9])
    assert found.one_way[2:] * 40 == pytest.approx([16, 24])
    assert found.pairs[:2, 2:] * 40 == pytest.approx(np.array([[4, 8], [12, 16]]))
    assert found.pairs == pytest.approx(found.pairs.T)
    assert found.strength == pytest.approx(20.0)
    assert found.pair_weights[:2, 2:] == pytest.approx(np.ones((2, 2)))
    assert not found.pair_weights[:2, :2].any()
    assert found.singles[:2] * 40 == pytest.approx([10, 30])
    assert found.single_weights == pytest.approx([4.0, 4.0, 0.0, 0.0])


def test_larger_tables_are_summed_over_pairs():
    three, two = statistics_of(ROWS, SIZES, orders=(3,)), statistics_of(ROWS, SIZES, orders=(2,))
    assert targets(three).pairs == pytest.approx(targets(two).pairs, abs=1e-7)
    assert targets(three).rows == pytest.approx(len(ROWS))


def test_the_total_is_public_or_estimated():
    assert METHOD.total(METHOD.fit(statistics_of(ROWS, SIZES, 5.0, total=1234), QUICK)) == 1234
    estimated = METHOD.total(METHOD.fit(statistics_of(ROWS, SIZES, 5.0), QUICK))
    assert abs(estimated - len(ROWS)) < 60


def test_the_pull_is_what_a_class_tells_not_how_far_the_one_way_tables_are_from_an_estimate():
    """A fit whose classes are all the same pays nothing, whatever its one-way tables are."""
    from dpsql.methods.mixture.fit import _Descent

    given = targets(statistics_of(ROWS, SIZES, 20.0))
    descent = _Descent(given, 3, 1000, 1e6, 0)
    descent.begin(np.repeat(np.random.default_rng(0).standard_normal((sum(SIZES), 1)).astype(np.float32), 3, axis=1), np.zeros(3, np.float32))
    pulled = descent._gradients(10, correct=False)[0]  # every tenth step it looks at its own one-way tables
    descent.pull = np.float32(0.0)
    assert pulled == pytest.approx(descent._gradients(10, correct=False)[0], abs=1e-5)


def numeric_gradient(given, pull, parameter, position, logits, class_logits):
    """Central difference of the objective of the module, computed from its formula in float64."""

    def objective(moved_logits, moved_classes):
        starts = np.cumsum((0, *given.sizes))
        values = np.exp(moved_logits)
        for s, e in itertools.pairwise(starts):
            values[s:e] /= values[s:e].sum(0)
        shares = np.exp(moved_classes) / np.exp(moved_classes).sum()
        model = (values * shares) @ values.T
        error = 0.25 * (given.pair_weights * (model - given.pairs) ** 2).sum()
        error += 0.5 * (given.single_weights * ((values * shares).sum(1) - given.singles) ** 2).sum()
        told = (shares * (values * np.log(values / given.one_way[:, None])).sum(0)).sum()
        return error + pull / max(given.strength, 1.0) ** 2 * told

    step = 1e-5
    results = []
    for sign in (1, -1):
        moved = [logits.copy(), class_logits.copy()]
        moved[parameter][position] += sign * step
        results.append(objective(*moved))
    return (results[0] - results[1]) / (2 * step)


def test_the_gradient_is_that_of_the_objective():
    from dpsql.methods.mixture.fit import _Descent

    given = targets(statistics_of(ROWS, SIZES, 20.0))
    pull = 40.0
    descent = _Descent(given, 3, 1000, pull, 0)
    descent.class_logits += np.array([0.3, -0.2, 0.1], np.float32)
    logits, class_logits = descent.logits.astype(float), descent.class_logits.astype(float)
    gradients = descent._gradients(1, correct=False)
    for parameter, position in [(0, (0, 0)), (0, (4, 1)), (0, (12, 2)), (0, (26, 0)), (1, (0,)), (1, (2,))]:
        expected = numeric_gradient(given, pull, parameter, position, logits, class_logits)
        assert gradients[parameter][position] == pytest.approx(expected, rel=2e-3, abs=2e-7)


def test_without_noise_the_model_has_the_tables():
    model = METHOD.fit(statistics_of(ROWS, SIZES), {"classes": 64, "steps": 2000})
    given = targets(statistics_of(ROWS, SIZES))
    excess = (pair_matrix(model.mixture, SIZES) - given.pairs)[given.pair_weights > 0.0]
    assert np.abs(excess).max() < 0.002


def test_with_noise_the_rows_are_closer_than_independent_columns_and_than_the_noise():
    statistics = statistics_of(ROWS, SIZES, 30.0)
    model = METHOD.fit(statistics, {})
    rows = drawn(model, METHOD.total(model))
    assert distance(ROWS, rows, SIZES) < 0.35 * distance(ROWS, independent_of(ROWS), SIZES)
    noise = np.mean([np.abs(t - table(ROWS, c, SIZES)).sum() / 2 / len(ROWS) for c, t in statistics.tables.items() if len(c) == 2])
    assert distance(ROWS, rows, SIZES) < 0.7 * noise
    assert distance(ROWS, rows, SIZES, 3) < 0.5 * distance(ROWS, independent_of(ROWS), SIZES, 3)


def test_pure_noise_gives_nearly_independent_columns():
    rng = np.random.default_rng(0)
    codes = np.stack([rng.integers(0, n, 500) for n in SIZES], 1)
    model = METHOD.fit(statistics_of(codes, SIZES, 200.0, total=500), {})
    matrix, given = pair_matrix(model.mixture, SIZES), targets(statistics_of(codes, SIZES, 200.0, total=500))
    own = model.mixture.values @ model.mixture.shares
    dependence = np.abs(matrix - np.outer(own, own))[given.pair_weights > 0.0].sum() / 2 / 30
    assert dependence < 0.1


def test_the_fit_is_deterministic():
    statistics = statistics_of(ROWS, SIZES, 10.0)
    first, second = METHOD.fit(statistics, QUICK), METHOD.fit(statistics, QUICK)
    assert np.array_equal(first.mixture.values, second.mixture.values)
    assert np.array_equal(first.mixture.shares, second.mixture.shares)


def test_more_noise_means_relatively_more_pull():
    assert pull_strength(15, 50.0) / 50.0 > pull_strength(15, 500.0) / 500.0
    assert pull_strength(15, 50.0) < pull_strength(15, 500.0)


def test_strong_pull_gives_independent_columns():
    model = METHOD.fit(statistics_of(ROWS, SIZES, 10.0), {**QUICK, "pull": 1000})
    own = model.mixture.values @ model.mixture.shares
    measured = targets(statistics_of(ROWS, SIZES, 10.0)).pair_weights > 0.0
    assert np.abs(pair_matrix(model.mixture, SIZES) - np.outer(own, own))[measured].max() < 0.002


def test_average_of_mixtures_has_the_mean_tables():
    given = targets(statistics_of(ROWS, SIZES, 10.0))
    parts = [fit_mixture(given, classes=5, steps=30, pull=10.0, seed=s) for s in range(3)]
    mean = np.mean([pair_matrix(part, SIZES) for part in parts], axis=0)
    assert pair_matrix(average(parts), SIZES) == pytest.approx(mean, abs=1e-12)


def test_rows_are_shuffled_and_reproducible_and_of_any_number():
    model = METHOD.fit(statistics_of(ROWS, SIZES, 10.0), QUICK)
    for count in (0, 1, 2, 7, 1000):
        rows = drawn(model, count)
        assert rows.shape == (count, len(SIZES))
        assert rows.dtype == (np.uint8 if count else np.int32)
        assert np.array_equal(rows, drawn(model, count))
    rows = drawn(model, 6000)
    assert not np.array_equal(rows, drawn(model, 6000, seed=2))
    # Neighbouring rows share no class: an attribute agrees between them no more often than between any rows.
    shares = np.bincount(rows[:, 3], minlength=7) / len(rows)
    assert (rows[1:, 3] == rows[:-1, 3]).mean() == pytest.approx((shares**2).sum(), abs=0.03)


def test_one_way_tables_of_rows_are_the_models_up_to_a_row():
    model = METHOD.fit(statistics_of(ROWS, SIZES, 10.0), QUICK)
    rows, start = drawn(model, 6000), 0
    expected = 6000 * model.mixture.values @ model.mixture.shares
    for i, size in enumerate(SIZES):
        found = np.bincount(rows[:, i], minlength=size)
        # Class sizes are rounded too, each by less than one row.
        assert np.abs(found - expected[start : start + size]).max() < 4.0
        start += size


def test_rows_are_nearly_as_good_as_the_model():
    statistics = statistics_of(ROWS, SIZES, 20.0)
    model = METHOD.fit(statistics, {})
    matrix, starts = pair_matrix(model.mixture, SIZES), np.cumsum((0, *SIZES))
    rows = drawn(model, 6000)

    def error(found):
        pairs = list(itertools.combinations(range(len(SIZES)), 2))
        return np.mean([np.abs(found(i, j) - table(ROWS, (i, j), SIZES) / 6000).sum() / 2 for i, j in pairs])

    model_error = error(lambda i, j: matrix[starts[i] : starts[i + 1], starts[j] : starts[j + 1]])
    assert error(lambda i, j: table(rows, (i, j), SIZES) / 6000) < 1.1 * model_error


def test_exchange_keeps_classes_and_lowers_the_error():
    rng = np.random.default_rng(0)
    model = METHOD.fit(statistics_of(ROWS, SIZES, 10.0), QUICK)
    codes, classes = class_rows(model.mixture, SIZES, 3000, rng)
    wanted = 3000 * pair_matrix(model.mixture, SIZES)
    moved = exchange(codes, classes, wanted, SIZES, 2, rng)
    starts = np.cumsum((0, *SIZES))

    def error(rows):
        return sum(
            ((table(rows, (i, j), SIZES) - wanted[starts[i] : starts[i + 1], starts[j] : starts[j + 1]]) ** 2).sum()
            for i, j in itertools.combinations(range(len(SIZES)), 2)
        )

    assert error(moved) < 0.25 * error(codes)
    for i, size in enumerate(SIZES):
        flat = classes * size + codes[:, i]
        assert np.array_equal(np.bincount(flat), np.bincount(classes * size + moved[:, i]))


def test_systematic_sampling_rounds_each_share():
    shares = np.random.default_rng(0).dirichlet(np.full(50, 0.3))
    for seed in range(20):
        found = systematic(shares, 777, np.random.default_rng(seed))
        assert found.sum() == 777
        assert np.abs(found - 777 * shares).max() < 1.0 + 1e-9


def test_long_tables_come_in_blocks_without_exchange():
    assert sweeps(10**6, 15) == 0
    assert sweeps(2 * 10**5, 9) == 2
    assert sweeps(1, 1) == 2
    mixture = Mixture(np.array([0.5, 0.5]), np.array([[0.9, 0.1], [0.1, 0.9], [0.8, 0.2], [0.2, 0.8]]))
    blocks = list(mixture_rows(mixture, [2, 2], 300_001, np.random.default_rng(0)))
    assert sorted(len(b) for b in blocks) == [150_000, 150_001]
    joint = table(np.concatenate(blocks), (0, 1), [2, 2]) / 300_001
    assert joint == pytest.approx(pair_matrix(mixture, [2, 2])[:2, 2:], abs=0.005)


def test_a_value_the_model_excludes_is_never_drawn():
    mixture = Mixture(np.array([0.7, 0.3]), np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.5], [1.0, 0.5]]))
    rows = np.concatenate(list(mixture_rows(mixture, [2, 2], 101, np.random.default_rng(0))))
    assert not ((rows[:, 0] == 0) & (rows[:, 1] == 0)).any()


def test_one_attribute_gets_its_own_table():
    counts = np.array([50, 0, 25, 25])
    model = METHOD.fit(Statistics((4,), {(0,): counts}, {(0,): 0.0}), {})
    assert np.array_equal(np.bincount(drawn(model, 100)[:, 0], minlength=4), counts)


def test_forecast_grows_with_the_table():
    small, large = METHOD.forecast([5] * 10, 10_000, {}), METHOD.forecast([50] * 20, 100_000, {})
    assert 0.0 < small[0] < large[0]
    assert 0.0 < small[1] < large[1]
