import json
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import spearmanr

from dpsql.answers import forecast
from dpsql.domains.attributes import Attribute, Domain
from dpsql.measure import noising
from dpsql.methods.base import MeasurementPlan
from dpsql.methods.latent_class import LatentClass
from dpsql.methods.mixture.fit import _Descent
from dpsql.methods.mixture.targets import emphasis, targets
from dpsql.noise import discrete
from dpsql.release import contents
from dpsql.release.plan import Plan
from dpsql.tables import coarse
from dpsql.tables.statistics import Statistics

METHOD = LatentClass()


def bins(n, name="x", **more):
    return Attribute(name, "DOUBLE", "numeric", edges=tuple(map(float, range(n + 1))), **{"nullable": False, **more})


def words(n, name="w"):
    return Attribute(name, "VARCHAR", "categorical", tuple(map(str, range(n))), nullable=False)


def groups_of(attribute, counts):
    return coarse.groups(Domain((attribute,)), {(0,): np.asarray(counts, np.int64)}, [0])[0].tolist()


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ([10, 10, 10, 10, 10, 10], [0, 0, 1, 1, 2, 2]),
        ([90, 2, 2, 2, 2, 2], [0, 2, 2, 2, 2, 2]),  # an atom: its group ends with it, and one group has no code
        ([2, 2, 2, 2, 2, 90], [0, 0, 0, 0, 0, 2]),
        ([10, 5, 60, 10, 15], [0, 0, 1, 2, 2]),
        ([0, 0, 0, 0], [0, 2, 2, 2]),
        ([-3, -4, 1, 2], [0, 2, 2, 2]),
        ([40, -100, 200, 40], [0, 1, 1, 2]),
        ([100, -50, 40, 60], [0, 1, 2, 2]),  # sums that fall: the ends are sorted
        ([7, 7], [0, 1]),
        ([7], [0]),
    ],
)
def test_groups_end_where_thirds_of_the_released_rows_end(counts, expected):
    assert groups_of(bins(len(counts)), counts) == expected


def test_null_and_other_share_a_group_and_do_not_move_the_cuts():
    attribute = bins(6, nullable=True, outside="other")
    assert attribute.size == 8
    for rest in ([0, 0], [1000, -50]):
        assert groups_of(attribute, [10] * 6 + rest) == [0, 0, 1, 1, 2, 2, 3, 3]
    assert coarse.group_count(attribute) == 4
    assert groups_of(bins(1, nullable=True), [5, 5]) == [0, 1]
    assert groups_of(bins(2, nullable=True), [5, 5, 5]) == [0, 1, 2]


def test_sums_beyond_64_bits_do_not_overflow():
    assert groups_of(bins(3), [2**62, 2**62, 2**62]) == [0, 1, 2]


def test_groups_come_from_the_smallest_released_table_that_holds_the_attribute():
    domain = Domain((bins(4), bins(9), words(2)))
    flat, first, last = np.ones((4, 9), np.int64), np.array([97, 1, 1, 1]), np.array([[0, 0], [0, 1], [0, 1], [98, 0]])
    only_pairs = coarse.groups(domain, {(0, 1): flat, (0, 2): last}, [0])
    assert only_pairs[0].tolist() == [0, 0, 0, 2]
    assert coarse.groups(domain, {(0, 1): flat, (0, 2): last, (0,): first}, [0])[0].tolist() == [0, 2, 2, 2]


def test_groups_and_shapes_hold_whatever_is_released():
    rng = np.random.default_rng(1)
    for _ in range(200):
        n, nullable = int(rng.integers(1, 12)), bool(rng.integers(2))
        attribute = bins(n, nullable=nullable)
        found = groups_of(attribute, np.round(rng.normal(0, 10.0 ** rng.integers(0, 6), attribute.size)).astype(np.int64))
        assert found == sorted(found)
        assert found[0] == 0
        assert max(found) < coarse.group_count(attribute)
        if n > 1:
            assert len(set(found[:n])) > 1
        if nullable:
            assert found[-1] == coarse.group_count(attribute) - 1 > found[-2] - (n == 1)


def fine_domain():
    return Domain((bins(30, "a"), words(3), bins(20, "b", nullable=True), words(3, "c"), bins(24, "d")))


def test_plan_names_pairs_of_fine_bins():
    plan = METHOD.plan(fine_domain(), {})
    assert plan.coarse == ((0, 2), (0, 4), (2, 4))
    assert plan.coarse_weights == pytest.approx((0.06 * 10 / 3,) * 3)
    assert set(plan.coarse) < set(plan.cliques)
    assert METHOD.plan(Domain((words(30), words(30))), {}).coarse == ()
    assert METHOD.plan(Domain((bins(30), words(30))), {}).coarse == ()
    assert METHOD.plan(Domain((bins(30),)), {}).coarse == ()
    assert METHOD.plan(Domain((bins(5, "a"), bins(7, "b"))), {}).coarse == ()  # nine cells of 35 would tell little more
    assert METHOD.plan(Domain((bins(6, "a"), bins(6, "b"))), {}).coarse == ((0, 1),)
    assert METHOD.plan(Domain((bins(30, "a"), bins(1, "b"))), {}).coarse == ()


def test_coarse_tables_get_at_most_a_small_share():
    for domain in (fine_domain(), Domain(tuple(bins(20, f"x{i}") for i in range(12)))):
        plan = METHOD.plan(domain, {})
        assert 0 < sum(plan.coarse_weights) <= 0.06 * sum(plan.weights)
    many = METHOD.plan(Domain((*(bins(20, f"x{i}") for i in range(2)), *(words(2, f"w{i}") for i in range(10)))), {})
    assert many.coarse_weights == (0.3,)


def planned(domain):
    plan = METHOD.plan(domain, {})
    return Plan(domain, plan.cliques, (Fraction(3),) * len(plan.cliques) + (Fraction(5),) * len(plan.coarse), "gaussian", False,
                "latent_class", {}, coarse=plan.coarse)


def exact_tables(codes, plan):
    found = {}
    for clique in plan.cliques:
        counts = np.zeros([plan.domain.sizes[i] for i in clique], np.int64)
        np.add.at(counts, tuple(codes[:, i] for i in clique), 1)
        found[clique] = counts
    return found


def some_rows(domain, rows=500, seed=0):
    rng = np.random.default_rng(seed)
    return np.stack([rng.integers(0, size, rows) for size in domain.sizes], 1)


def test_a_plan_keeps_its_coarse_tables():
    plan = planned(fine_domain())
    again = Plan.from_json(json.loads(json.dumps(plan.to_json())))
    assert again == plan
    assert plan.lengths.tolist() == [*plan.table_lengths.tolist(), 3 * 4, 3 * 3, 4 * 3]


def test_an_old_plan_still_loads():
    item = planned(fine_domain()).to_json()
    del item["coarse"]
    old = Plan.from_json(item)
    assert old.coarse == ()
    assert old.lengths.tolist() == old.table_lengths.tolist()
    plain = Plan(Domain((words(3),)), ((0,),), (Fraction(2),), "gaussian", False, None, {})
    assert "coarse" not in plain.to_json()


def test_the_second_round_sees_released_counts_only(monkeypatch):
    """The groups are those of the noisy tables, also where the exact ones say otherwise; each round has its scales."""
    plan, calls = planned(fine_domain()), []
    tables = exact_tables(some_rows(plan.domain), plan)

    def skewed(counts, mechanism, scale):
        calls.append((counts.size, scale))
        return counts + (np.arange(counts.size) % 7 - 3) * 40 if scale == 3 else counts

    monkeypatch.setattr(discrete, "add_noise", skewed)
    flat = noising.released(plan, tables)
    assert calls == [(sum(plan.table_lengths), Fraction(3)), (12 + 9 + 12, Fraction(5))]
    found = contents.as_statistics(plan, flat, None)
    wanted = coarse.groups(plan.domain, found.tables, [0, 2, 4])
    exact = coarse.groups(plan.domain, tables, [0, 2, 4])
    assert any((wanted[i] != exact[i]).any() for i in wanted)
    for pair, table in found.coarse.tables.items():
        summed = coarse.coarsened(tables[pair], pair, wanted, coarse.shape(plan.domain, pair))
        assert (table == summed).all()
        assert table.sum() == 500
        assert all((found.coarse.groups[i] == wanted[i]).all() for i in pair)
    assert found.coarse.scales == dict.fromkeys(plan.coarse, 5.0)
    assert found.scales == dict.fromkeys(plan.cliques, 3.0)


def test_groups_are_the_same_at_every_reading():
    plan = planned(fine_domain())
    flat = noising.released(plan, exact_tables(some_rows(plan.domain), plan))
    one, other = (contents.as_statistics(Plan.from_json(plan.to_json()), flat.copy(), None).coarse for _ in range(2))
    assert one.groups.keys() == other.groups.keys() == {0, 2, 4}
    assert all((one.groups[i] == other.groups[i]).all() for i in one.groups)


def test_expected_errors_are_those_of_the_tables():
    plan = planned(fine_domain())
    bare = Plan(plan.domain, plan.cliques, plan.scales[: len(plan.cliques)], "gaussian", False, None, {})
    assert [forecast.expected_error(plan, k) for k in (1, 2, 3)] == [forecast.expected_error(bare, k) for k in (1, 2, 3)]


def test_targets_of_coarse_tables():
    plan = planned(fine_domain())
    statistics = contents.as_statistics(plan, noising.released(plan, exact_tables(some_rows(plan.domain), plan)), None)
    found = targets(statistics)
    assert found.groups.shape == (3 + 4 + 3, sum(plan.domain.sizes))
    assert found.groups.sum(0).tolist() == [1] * 30 + [0] * 3 + [1] * 21 + [0] * 3 + [1] * 24
    shares = found.groups @ found.one_way
    block = (found.coarse[:3, 3:7] + np.outer(shares[:3], shares[3:7])) * found.rows
    assert np.allclose(block, statistics.coarse.tables[0, 2], atol=1e-2)
    assert (found.coarse == found.coarse.T).all()
    precision = emphasis(np.array(found.rows / 5.0)) * (found.rows / 5.0) ** 2 / max(found.strength, 1.0) ** 2
    assert np.allclose(found.coarse_weights[:3, 3:7], precision, rtol=1e-4)
    assert not found.coarse_weights[:3, :3].any()
    assert not found.coarse[:3, :3].any()
    bare = targets(without(statistics))
    assert bare.groups.shape == (0, sum(plan.domain.sizes))


def test_slopes_of_coarse_covariances_are_those_of_the_objective():
    """Against differences of 1/4 sum T (C (M - m m') C' - Z)^2, written out."""
    plan, rng = planned(fine_domain()), np.random.default_rng(4)
    statistics = contents.as_statistics(plan, noising.released(plan, exact_tables(some_rows(plan.domain), plan)), None)
    given = targets(statistics)
    values, shares = rng.random((given.one_way.size, 5)), rng.dirichlet(np.ones(5))

    def objective(values, shares):
        m = values @ shares
        covariance = given.groups @ ((values * shares) @ values.T - np.outer(m, m)) @ given.groups.T
        return float((given.coarse_weights * (covariance - given.coarse).astype(float) ** 2).sum()) / 4

    slope, share_slope = _Descent(given, 5, 10, 0.0, 0)._coarse_slopes(values, shares)
    for _ in range(20):
        step = rng.standard_normal(values.shape) * 1e-5
        wanted = (objective(values + step, shares) - objective(values - step, shares)) / 2
        assert (slope * shares * step).sum() == pytest.approx(wanted, rel=1e-4)
        move = rng.standard_normal(5) * 1e-5
        move -= move.mean()  # shares keep their sum
        wanted = (objective(values, shares + move) - objective(values, shares - move)) / 2
        assert share_slope @ move == pytest.approx(wanted, rel=1e-4)


def trend(rows=20_000, strength=0.25, seed=2):
    """Rows of two columns of 30 and 25 bins with a weak trend, and two of few values."""
    rng = np.random.default_rng(seed)
    a = rng.standard_normal(rows)
    b = strength * a + np.sqrt(1 - strength**2) * rng.standard_normal(rows)
    codes = [np.clip((x + 2.5) / 5 * n, 0, n - 1).astype(int) for x, n in ((a, 30), (b, 25))]
    return np.stack([*codes, (a > 0.3).astype(int), rng.integers(0, 4, rows)], 1)


@pytest.mark.parametrize("strength", [0.15, -0.15])
def test_rows_keep_a_weak_trend_that_fine_tables_lose(strength, monkeypatch):
    rng = np.random.default_rng(11)
    monkeypatch.setattr(discrete, "add_noise", lambda counts, _, scale: counts + rng.normal(0, float(scale), counts.shape).round().astype(int))
    domain, codes = Domain((bins(30, "a"), bins(25, "b"), words(2, "c"), words(4, "d"))), trend(strength=strength)
    plan = METHOD.plan(domain, {})
    scales = (Fraction(80),) * len(plan.cliques) + (Fraction(80),) * len(plan.coarse)
    full = Plan(domain, plan.cliques, scales, "gaussian", False, None, {}, coarse=plan.coarse)
    flat = noising.released(full, exact_tables(codes, full))
    wanted, missed = spearmanr(codes[:, 0], codes[:, 1])[0], []
    for statistics in (contents.as_statistics(full, flat, None), without(contents.as_statistics(full, flat, None))):
        model = METHOD.fit(statistics, {"classes": 40, "steps": 600})
        rows = np.concatenate(list(METHOD.sample(model, 20_000, np.random.default_rng(0))))
        missed.append(abs(spearmanr(rows[:, 0], rows[:, 1])[0] - wanted))
    assert missed[0] < 0.05
    assert missed[0] < 0.7 * missed[1]


def without(statistics):
    return Statistics(statistics.sizes, statistics.tables, statistics.scales, domain=statistics.domain)


def test_a_plan_without_coarse_tables_is_as_before():
    assert MeasurementPlan(((0,),)).coarse == ()
    plan = Plan(Domain((words(3), words(2))), ((0,), (0, 1)), (Fraction(2), Fraction(3)), "gaussian", False, None, {})
    flat = noising.released(plan, {(0,): np.arange(3), (0, 1): np.arange(6).reshape(3, 2)})
    assert flat.size == plan.cells == 9
    assert contents.as_statistics(plan, flat, None).coarse.tables == {}
