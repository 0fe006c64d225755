"""Trees of counts: least squares against dense algebra, quantiles against the rows, and what noise does to them."""

import math

import numpy as np
import pytest
from estimate_counters import counters

from dpsql.errors import ArgumentError
from dpsql.estimates import quantiles as est
from dpsql.estimates.measures import LARGEST_COUNTERS, Measure, Variable
from dpsql.estimates.trees import least_squares, nonnegative, simplex


@pytest.mark.parametrize("branching", [(3,), (2, 3), (4, 2, 3), (2, 2, 2, 2)])
def test_least_squares_is_that_of_dense_algebra(branching: tuple[int, ...]) -> None:
    rng = np.random.default_rng(len(branching))
    lengths = [math.prod(branching[: k + 1]) for k in range(len(branching))]
    leaves, variances = lengths[-1], rng.uniform(0.5, 9.0, len(lengths)).tolist()
    levels = [rng.normal(5, 4, (3, size)) for size in lengths]
    rows = [np.kron(np.eye(size), np.ones((1, leaves // size))) / math.sqrt(v) for size, v in zip(lengths, variances, strict=True)]
    seen = [level / math.sqrt(v) for level, v in zip(levels, variances, strict=True)]
    design, target = np.concatenate(rows), np.concatenate(seen, axis=1)
    wanted = np.linalg.lstsq(design, target.T, rcond=None)[0].T
    found, deviations = least_squares(levels, variances)
    assert found[-1] == pytest.approx(wanted, abs=1e-9)
    for level in found[:-1]:
        assert level == pytest.approx(found[-1].reshape(*level.shape, -1).sum(axis=-1))
    covariance = np.linalg.inv(design.T @ design)
    assert math.sqrt(covariance[0, 0]) <= deviations[-1] * (1 + 1e-9)


def test_counts_become_nonnegative_and_stay_consistent() -> None:
    rng = np.random.default_rng(1)
    levels, _ = least_squares([rng.normal(2, 6, (50, 4)), rng.normal(0.5, 6, (50, 16)), rng.normal(0.1, 6, (50, 64))], [36.0] * 3)
    found = nonnegative(levels)
    assert all((level >= 0).all() for level in found) and (levels[-1] < 0).any()
    assert found[0].sum(axis=-1) == pytest.approx(np.maximum(levels[0].sum(axis=-1), 0))
    for above, below in zip(found, found[1:], strict=False):
        assert above == pytest.approx(below.reshape(*above.shape, -1).sum(axis=-1))
    exact = [np.array([[3.0, 0.0]]), np.array([[1.0, 2.0, 0.0, 0.0]])]
    for given, kept in zip(exact, nonnegative(exact), strict=True):
        assert (given == kept).all()


@pytest.mark.parametrize("size", [1, 2, 3, 4, 8, 9, 40])
def test_projections_are_the_nearest_points(size: int) -> None:
    """Against the conditions of the optimum: one shift for all that are above 0, and none of the others would rise."""
    rng = np.random.default_rng(size)
    points, totals = rng.normal(0, 3, (500, 2, size)), np.abs(rng.normal(2, 4, (500, 2)))
    totals[:50] = 0.0
    found = simplex(points, totals)
    assert (found >= 0).all() and found.sum(axis=-1) == pytest.approx(totals, abs=1e-9)
    shift = np.where(found > 0, points - found, -np.inf).max(axis=-1)
    assert np.where(found > 0, points - found - shift[..., None], 0.0) == pytest.approx(0.0, abs=1e-9)
    assert (np.where((found == 0) & (totals[..., None] > 0), points - shift[..., None], -1.0) <= 1e-9).all()


def _counted(measure: Measure, groups: list[np.ndarray]) -> np.ndarray:
    return np.stack([counters(measure, rows[:, None]) for rows in groups]).astype(float)


def test_without_noise_quantiles_are_within_a_leaf() -> None:
    rng = np.random.default_rng(2)
    variable = Variable(0, -10.0, 30.0)
    measure = Measure("tree", (variable,), levels=est.choose_levels(variable))
    groups = [rng.normal(5, 4, 3000), rng.exponential(3, 500), np.full(7, 12.3), np.array([]), np.array([99.0, -99.0, 3.0])]
    found = est.tree(measure, _counted(measure, groups), [0.0] * len(measure.levels))
    shares = [0.01, 0.25, 0.5, 0.9, 0.99]
    values = est.quantiles(found, shares)
    for row, rows in zip(values, groups, strict=True):
        if not rows.size:
            assert np.isnan(row).all()
            continue
        held = np.sort(np.clip(rows, -10, 30))
        for value, share in zip(row, shares, strict=True):
            near = np.clip([math.floor(share * rows.size) - 1, math.ceil(share * rows.size)], 0, rows.size - 1)
            assert held[near[0]] - measure.width <= value <= held[near[1]] + measure.width
    assert est.extreme(found, largest=False)[:3] == pytest.approx([max(r.min(), -10) for r in groups[:3]], abs=measure.width)
    assert est.extreme(found, largest=True)[:3] == pytest.approx([min(r.max(), 30) for r in groups[:3]], abs=measure.width)


@pytest.mark.parametrize("levels", [(5, 5, 5), (2, 3)])
def test_whole_numbers_stay_whole_and_within_bounds(levels: tuple[int, ...]) -> None:
    """With a leaf per integer, quantiles without noise are those of quantile_disc."""
    rng = np.random.default_rng(3)
    variable = Variable(0, 0, 120, whole=True)
    measure = Measure("tree", (variable,), levels=levels)
    groups = [rng.integers(0, 121, 999), rng.integers(118, 121, 11), np.array([120, 120, 120]), np.array([0])]
    found = est.tree(measure, _counted(measure, groups), [0.0] * len(levels))
    shares = [0.0, 0.1, 0.5, 0.77, 1.0]
    values = est.quantiles(found, shares)
    assert (values == np.floor(values)).all() and (values >= 0).all() and (values <= 120).all()
    if measure.width == 1:
        for row, rows in zip(values, groups, strict=True):
            assert row.tolist() == [float(np.quantile(rows, q, method="inverted_cdf")) for q in shares]
        assert est.extreme(found, largest=True).tolist() == [float(rows.max()) for rows in groups]
        assert est.extreme(found, largest=False).tolist() == [float(rows.min()) for rows in groups]


@pytest.mark.parametrize(
    ("levels", "stated"), [((1024,), 170.7), ((32, 32), 20.7), ((16, 8, 8), 13.6), ((4,) * 5, 10.8), ((2,) * 10, 10.7), ((4,) * 4, 7.16)]
)
def test_ranks_are_wrong_by_what_is_stated(levels: tuple[int, ...], stated: float) -> None:
    """Mean squared error of the cumulated counts' distance from q times the sum, by dense algebra: what `choose_levels` rests on."""
    leaves = math.prod(levels)
    precision = np.zeros((leaves, leaves))
    for k in range(len(levels)):
        cells = math.prod(levels[: k + 1])
        precision += np.kron(np.eye(cells), np.ones((leaves // cells, leaves // cells))) / len(levels)
    q = np.arange(1, leaves + 1)[:, None] / leaves
    distance = np.tril(np.ones((leaves, leaves))) - q
    found = float(np.mean(np.einsum("ij,ji->i", distance, np.linalg.solve(precision, distance.T))))
    assert found == pytest.approx(stated, rel=0.005)


def test_with_noise_medians_are_near_and_always_possible() -> None:
    """The cumulated count at the median is wrong by less than 8 deviations of it (3.3 sigma): false alarm below 1e-9."""
    rng = np.random.default_rng(5)
    variable = Variable(0, 0.0, 100.0)
    measure = Measure("tree", (variable,), levels=(4,) * 5)
    sigma, groups = 5.0 * math.sqrt(5), [rng.gamma(4, 6, 4000) for _ in range(40)]
    noisy = _counted(measure, groups) + rng.normal(0, sigma, (40, sum(measure.lengths)))
    values = est.quantiles(est.tree(measure, noisy, [sigma] * 5), [0.0, 0.25, 0.5, 1.0])
    assert (np.diff(values, axis=1) >= 0).all() and values.min() >= 0 and values.max() <= 100
    for value, rows in zip(values[:, 2], groups, strict=True):
        assert abs((rows <= value).sum() - 2000) < 8 * 3.4 * 5.0 + 4000 * 0.03 * measure.width
    top = est.extreme(est.tree(measure, noisy, [sigma] * 5), largest=True)
    beyond = [(rows > value).sum() for value, rows in zip(top, groups, strict=True)]
    assert np.median(beyond) < 8 * sigma and np.median(top) > 40


def test_nothing_but_noise_is_null_or_within_bounds() -> None:
    rng = np.random.default_rng(6)
    measure = Measure("tree", (Variable(0, -1.0, 1.0),), levels=(4, 4, 4))
    built = est.tree(measure, rng.normal(0, 9, (2, 500, 84)), [9.0] * 3)
    for values in (est.quantiles(built, [0.5])[..., 0], est.extreme(built, largest=True), est.extreme(built, largest=False)):
        assert values.shape == (2, 500) and np.isnan(values).any()
        kept = values[~np.isnan(values)]
        assert kept.size and (kept >= -1).all() and (kept <= 1).all()


def test_trees_are_chosen_from_public_numbers() -> None:
    unit = Variable(0)
    for groups in (1, 50, 3000, 100_000, 900_000, 10**7):
        levels = est.choose_levels(unit, groups)
        cells = sum(math.prod(levels[: k + 1]) for k in range(len(levels)))
        assert all(b >= 2 for b in levels) and (cells * groups <= est.LARGEST_TREES or math.prod(levels) <= 4)
        assert cells <= LARGEST_COUNTERS
    for span in (1, 2, 3, 6, 30, 99, 120, 1000, 1023, 10**9):
        variable = Variable(0, 0, span, whole=True)
        levels = est.choose_levels(variable)
        measure = Measure("tree", (variable,), levels=levels)
        assert measure.width == 1 if span < 1024 else measure.width > 1
        assert math.prod(levels) < 1.7 * min(span + 1, 1024) + 1
    with pytest.raises(ArgumentError, match="groups"):
        est.choose_levels(unit, -3)


def test_wrong_arguments_are_named() -> None:
    measure = Measure("tree", (Variable(0),), levels=(4, 4))
    for arguments, named in (((Measure("count"), np.zeros((1, 1)), [1.0]), "measure"), ((measure, np.zeros((1, 20)), [1.0]), "sigmas"),
                             ((measure, np.zeros((1, 19)), [1.0, 1.0]), "counters")):
        with pytest.raises(ArgumentError, match=named):
            est.tree(*arguments)
    with pytest.raises(ArgumentError, match="shares"):
        est.quantiles(est.tree(measure, np.zeros((1, 20)), [1.0, 1.0]), [1.5])
