"""Closed forms, degenerate ends and messages of the accounting."""

import itertools
import json
import math
from decimal import Decimal
from fractions import Fraction

import pytest

from dpsql import accounting as acc
from dpsql.accounting.checks import as_decimal
from dpsql.accounting.exact import limit_down, round_down, round_up, total
from dpsql.accounting.gaussian import gdp_of_pure
from dpsql.errors import ArgumentError, CalibrationError, LedgerError

DELTA = 2.0**-30
INF = math.inf


def _scale(mechanism: str, tables: int, **more: object) -> float:
    arguments = {"epsilon": 1.0, "delta": DELTA, "neighbors": "add_remove", **more}
    return float(acc.calibrate(mechanism=mechanism, tables=tables, **arguments).scales[0])


# Values of the issue (dp-accounting's PLD gives 54.87 for real-valued Laplace noise, 105 tables).
@pytest.mark.parametrize(
    ("found", "wanted", "digits"),
    [
        (acc.zcdp_rho(1.0, DELTA), 0.014913, 6),
        (1 / acc.advanced_epsilon_each(105, 1.0, DELTA), 67.65, 2),
        (acc.advanced_epsilon_each(105, 1.0, DELTA), 0.014783, 6),
        (1 / acc.pure_epsilon_each(105, 1.0, DELTA), 54.93, 2),
        (math.sqrt(105 / (2 * acc.zcdp_rho(1.0, DELTA))), 59.33, 2),
        (math.sqrt(105) / acc.gaussian_mu(1.0, DELTA), 56.43, 2),
        (1 / acc.advanced_epsilon_each(2_000_000, 1.0, DELTA), 9334, 0),
        (1 / acc.pure_epsilon_each(2_000_000, 1.0, DELTA), 7788, 0),
        (math.sqrt(1e6 / acc.zcdp_rho(1.0, DELTA)), 8189, 0),
        (math.sqrt(2e6) / acc.gaussian_mu(1.0, DELTA), 7788, 0),
    ],
)
def test_known_values(found: float, wanted: float, digits: int) -> None:
    assert round(found, digits) == wanted


@pytest.mark.parametrize(
    ("mechanism", "accountant", "calibration", "delta", "wanted"),
    [
        ("laplace", "zcdp", "basic", DELTA, 105.0),
        ("laplace", "zcdp", None, DELTA, 68.0),  # at 0.004 delta
        ("laplace", "basic", None, 0, 105.0),
        ("laplace", "zcdp", "advanced", DELTA, 67.65),
        ("laplace", "basic", None, DELTA, 54.93),
        ("laplace", "zcdp", "exact", DELTA, 54.93),
        ("gaussian", "zcdp", "zcdp", DELTA, 59.33),
        ("gaussian", "basic", None, DELTA, 56.43),
        ("gaussian", "zcdp", None, DELTA, 56.45),  # 0.99 delta and integer noise cost 0.02
    ],
)
def test_calibrated_scales_of_105_tables(mechanism, accountant, calibration, delta, wanted) -> None:
    found = _scale(mechanism, 105, accountant=accountant, calibration=calibration, delta=delta)
    assert round(found, 2) == wanted


def test_ends() -> None:
    assert acc.gaussian_delta(0, 0) == 0 and acc.gaussian_delta(INF, 1) == 1 and acc.gaussian_delta(1, INF) == 0
    assert acc.gaussian_mu(1, 0) == 0 and acc.gaussian_mu(1, 1) == INF and acc.gaussian_mu(INF, 0) == INF
    assert acc.gaussian_epsilon(0, 0) == 0 and acc.gaussian_epsilon(1, 0) == INF and acc.gaussian_epsilon(1, 1) == 0
    assert acc.gaussian_epsilon(INF, 0.5) == INF and acc.gaussian_epsilon(0.1, 0.5) == 0
    assert acc.zcdp_delta(0, 0) == 0 and acc.zcdp_delta(INF, 1) == 1 and acc.zcdp_delta(1, INF) == 0
    assert acc.zcdp_rho(1, 0) == 0 and acc.zcdp_rho(1, 1) == INF and acc.zcdp_rho(INF, 0) == INF
    assert acc.zcdp_epsilon(0, 0) == 0 and acc.zcdp_epsilon(1, 0) == INF and acc.zcdp_epsilon(1, 1) == 0
    assert acc.zcdp_epsilon(INF, 0.5) == INF
    assert acc.pure_delta(3, 0, 0) == 0 and acc.pure_delta(3, INF, 1) == 1 and acc.pure_delta(3, 1, INF) == 0
    assert acc.pure_delta(3, 1, 3) == 0
    assert acc.pure_epsilon(3, 1, 0) == pytest.approx(3) and acc.pure_epsilon(3, 1, 1) == 0
    assert acc.pure_epsilon(3, 0, 0) == 0 and acc.pure_epsilon(3, INF, 0.1) == INF
    assert acc.pure_epsilon_each(3, 3, 0) == pytest.approx(1) and acc.pure_epsilon_each(3, 3, 1) == INF
    assert acc.advanced_epsilon(3, 0, 0) == 0 and acc.advanced_epsilon(3, 1, 0) == INF
    assert acc.advanced_epsilon_each(3, 1, 0) == 0 and acc.advanced_epsilon_each(3, INF, 0.1) == INF
    assert acc.advanced_epsilon_each(3, 0, 0.1) == 0 and acc.advanced_epsilon(3, 1000, 0.1) == INF


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (acc.gaussian_delta, (-1, 1)),
        (acc.gaussian_delta, (1, math.nan)),
        (acc.gaussian_mu, (1, 1.5)),
        (acc.gaussian_mu, (-1, 0.5)),
        (acc.gaussian_epsilon, (1, -0.1)),
        (acc.zcdp_delta, (-1, 1)),
        (acc.zcdp_rho, (1, math.nan)),
        (acc.zcdp_epsilon, (math.nan, 0.1)),
        (acc.pure_delta, (0, 1, 1)),
        (acc.pure_epsilon, (1, -1, 0.1)),
        (acc.pure_epsilon_each, (1, 1, 2)),
        (acc.advanced_epsilon, (1, 1, -1)),
    ],
)
def test_numbers_out_of_range_are_refused(function, arguments) -> None:
    with pytest.raises(ArgumentError, match="must be"):
        function(*arguments)


def test_sensitivities() -> None:
    assert acc.sensitivities("add_remove") == (1, 1)
    assert acc.sensitivities("add_remove", 5) == (5, 5)
    for rows in (1, 2, 3, 7, 1000, 999_983):
        l1, l2 = acc.sensitivities("replace_one", rows)
        assert l1 == 2 * rows
        assert 0 <= Fraction(l2) ** 2 / (2 * rows**2) - 1 < Fraction(1, 10**15)  # the root is rounded up
    with pytest.raises(ArgumentError, match="neighbors = 'both'"):
        acc.sensitivities("both")
    for bad in (0, -1, 1.5, "1", True, None, math.nan):
        with pytest.raises(ArgumentError, match="max_contributions"):
            acc.sensitivities("add_remove", bad)


EVENTS = [
    acc.GaussianEvent(Fraction(903, 16), math.sqrt(2), 105),
    acc.LaplaceEvent(Fraction(1, 3), 2.0, 7),
    acc.PureEvent(Fraction(1, 10), 3),
    acc.SelectionEvent(Fraction(1, 10), Fraction(1, 10**13), 2),
]


@pytest.mark.parametrize("event", EVENTS)
def test_events_survive_json(event: acc.Event) -> None:
    text = json.dumps(event.to_json(), sort_keys=True)
    assert acc.event_from_json(json.loads(text)) == event


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ({"event": "poisson", "count": 1}, "this version knows 'gaussian', 'laplace', 'pure', 'selection'"),
        ({}, "event = None"),
        ({"event": ["pure"]}, "this version knows"),
        ({"event": "pure", "epsilon": "1/2"}, "expected are"),
        ({"event": "pure", "epsilon": "1/2", "count": 1, "sampled": 0.1}, "has fields"),
        ({"event": "pure", "epsilon": "-1/2", "count": 1}, "is damaged"),
        ({"event": "pure", "epsilon": "1/0", "count": 1}, "is damaged"),
        ({"event": "pure", "epsilon": "x", "count": 1}, "is damaged"),
        ({"event": "gaussian", "sigma": "1/20", "l2_sensitivity": 1.0, "count": 1}, "is damaged"),
        ({"event": "laplace", "scale": "1", "l1_sensitivity": None, "count": 1}, "is damaged"),
        ({"event": "selection", "epsilon": "1/10", "delta": "1", "count": 1}, "is damaged"),
        ({"event": "selection", "epsilon": "1/10", "count": 1}, "expected are"),
        ({"event": "laplace", "scale": "1", "l1_sensitivity": 1.0, "count": 1.5}, "is damaged"),
    ],
)
def test_unknown_or_damaged_events_are_refused(item, message) -> None:
    with pytest.raises(LedgerError, match=message):
        acc.event_from_json(item)


def test_events_cost_what_the_formulas_say() -> None:
    assert acc.GaussianEvent(Fraction(3), 1.0, 3).rho == 3 / (2 * (9 - Fraction(1, 12) - Fraction(1, 324)))
    assert acc.GaussianEvent(Fraction(1), 1.0, 3).rho < 3 / (2 * (1 - Fraction(1, 12) - Fraction(1, 36)))
    epsilon = Fraction(1, 2)
    assert acc.LaplaceEvent(Fraction(4), 2.0).rho == acc.PureEvent(epsilon).rho
    assert float(acc.PureEvent(epsilon, 3).rho) == pytest.approx(1.5 * math.tanh(0.25), rel=1e-12)
    assert acc.rho_of_pure(Fraction(1000)) == 1000  # tanh = 1
    with pytest.raises(CalibrationError, match=r"sigma = 0\.09"):
        acc.GaussianEvent(Fraction(9, 100))
    with pytest.raises(ValueError, match="1/100"):
        acc.effective_variance(Fraction(1, 101))


def test_effective_variance_rises_with_the_variance_also_in_proportion() -> None:
    """So more noise never costs more, and D counts with noise of root D times one's cost no more than the one."""
    grid = [Fraction(n, 400) for n in range(4, 2000)]
    found = [acc.effective_variance(v) for v in grid]
    assert all(a < b for a, b in itertools.pairwise(found))
    assert all(a / v <= b / w for (a, v), (b, w) in itertools.pairwise(zip(found, grid, strict=True)))
    assert all(0 < e < v for e, v in zip(found, grid, strict=True))


@pytest.mark.parametrize("epsilon", [5.0, 12.0, 20.0, 40.0, 200.0])
def test_large_epsilons_get_as_little_noise_as_they_pay_for(epsilon: float) -> None:
    """There was a floor at sigma = 0.577, where sigma = 0.32 will do at epsilon 40."""
    found = acc.calibrate(mechanism="gaussian", tables=1, epsilon=epsilon, delta=1e-9, neighbors="add_remove")
    assert 0.999 * epsilon < found.charge.epsilon <= epsilon
    assert acc.fits(acc.Budget(epsilon, 1e-9), [], found.charge)


def test_decimals_round_against_the_caller() -> None:
    third = Fraction(1, 3)
    assert Fraction(round_down(third)) < third < Fraction(round_up(third))
    assert round_up(third) - round_down(third) == Decimal("1e-24")
    assert round_up(Fraction(1, 4)) == round_down(Fraction(1, 4)) == Decimal("0.25")
    assert total([Decimal("99999999999999.000000000000000000000001"), Decimal("1e-24")]) == Decimal(
        "99999999999999.000000000000000000000002"
    )
    assert limit_down(0.0) == 0
    with pytest.raises(CalibrationError, match="does not fit the books"):
        round_up(Fraction(10**14))
    for value in (math.nan, math.inf, "x", None, True, [], Decimal("NaN"), 1, -1):
        with pytest.raises(ArgumentError, match="delta"):
            as_decimal("delta", value, low=0, high=1, expected="must be a probability")
    assert as_decimal("delta", 0, low=0, high=1, expected="", closed=True) == 0
    assert as_decimal("epsilon", 0.1, low=0, high=INF, expected="") == Decimal("0.1")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mechanism": "gauss"}, "mechanism = 'gauss': must be one of 'gaussian', 'laplace'"),
        ({"accountant": "rdp"}, "accountant = 'rdp'"),
        ({"tables": 0}, "tables = 0"),
        ({"tables": 1.5}, "tables = 1.5"),
        ({"epsilon": 0}, "epsilon = 0"),
        ({"epsilon": 1e-25}, "epsilon = 1e-25"),
        ({"epsilon": INF}, "epsilon = inf"),
        ({"epsilon": math.nan}, "epsilon = nan"),
        ({"epsilon": True}, "epsilon = True"),
        ({"delta": 0}, "delta = 0"),
        ({"delta": 1}, "delta = 1"),
        ({"delta": 1e-40}, "delta = 1e-40"),
        ({"neighbors": "x"}, "neighbors = 'x'"),
        ({"calibration": "advanced"}, "calibration = 'advanced': must be one of 'exact', 'zcdp'"),
        ({"mechanism": "laplace", "calibration": "pld"}, "calibration = 'pld'"),
        ({"accountant": "basic", "delta": 0}, "Gaussian noise needs a delta above 0"),
        ({"accountant": "basic", "delta": 0, "mechanism": "laplace", "calibration": "exact"}, "needs a delta above 0"),
        ({"weights": [1.0]}, "one number per table"),
        ({"weights": [1.0, -1.0]}, "positive finite share"),
        ({"weights": [1.0, 1.0], "mechanism": "laplace"}, "'gaussian' only"),
    ],
)
def test_calibrate_refuses(change, message) -> None:
    arguments = {"mechanism": "gaussian", "tables": 2, "epsilon": 1.0, "delta": 1e-9, "neighbors": "add_remove", **change}
    with pytest.raises(ArgumentError, match=message):
        acc.calibrate(**arguments)


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_noise_beyond_the_samplers_is_refused(mechanism: str) -> None:
    with pytest.raises(CalibrationError, match="samplers draw up to"):
        _scale(mechanism, 2_000_000, epsilon=1e-9, accountant="basic", calibration=None if mechanism == "gaussian" else "basic")
    with pytest.raises(CalibrationError):
        _scale(mechanism, 1, epsilon=1e-20, delta=1e-30)


def test_weights_share_rho() -> None:
    weights = [1.0, 2.0, 2.0, 0.5]
    found = acc.calibrate(mechanism="gaussian", tables=4, epsilon=1.0, delta=DELTA, neighbors="replace_one", weights=weights)
    assert found.scales[1] == found.scales[2] and len(found.charge.events) == 3
    precision = [1 / float(s) ** 2 for s in found.scales]
    assert [p / precision[0] for p in precision] == pytest.approx(weights, rel=1e-3)  # sigma^2 - 1/12
    limit = acc.rho_limit(1.0, DELTA, gaussian=True)
    assert limit * Decimal("0.9999") < found.charge.rho <= limit
    assert sum(e.count for e in found.charge.events) == 4


def _charge(rho: str, epsilon: str = "0.1", delta: str = "1e-10", gaussian: bool = True) -> acc.Charge:
    return acc.Charge(rho=Decimal(rho), epsilon=Decimal(epsilon), delta=Decimal(delta), gaussian=gaussian)


def test_basic_budget_adds_decimals() -> None:
    budget = acc.Budget(0.3, 3e-10, "basic")
    spent = [_charge("0", "0.1"), _charge("0", "0.1")]
    assert acc.fits(budget, spent, _charge("0", "0.1"))
    assert not acc.fits(budget, spent, _charge("0", "0.100000000000000000000001"))
    assert not acc.fits(budget, spent, _charge("0", "0.1", "1.1e-10"))
    assert acc.shortfall(budget, spent, _charge("0", "0.2")) == (0.2, 0.1, "epsilon")
    assert acc.shortfall(budget, spent, _charge("0", "0.1", "2e-10")) == (2e-10, 1e-10, "delta")
    state = acc.remaining(budget, spent)
    assert (state.epsilon_spent, state.epsilon_left, state.delta_spent, state.delta_left) == (0.2, 0.1, 2e-10, 1e-10)
    assert state.rho_limit is None and state.rho_left is None
    assert acc.total_guarantee(budget, spent).epsilon == 0.2


def test_charges_of_unknown_events_have_the_smaller_limit() -> None:
    budget = acc.Budget(1.0, DELTA)
    gaussian, mixed = (acc.rho_limit(1.0, DELTA, gaussian=g) for g in (True, False))
    assert mixed < gaussian
    between = _charge("0.0117")
    assert mixed < between.rho < gaussian
    assert acc.fits(budget, [], between)
    assert not acc.fits(budget, [], _charge("0.0117", gaussian=False))
    assert not acc.fits(budget, [between], _charge("0.0000001", gaussian=False))
    assert not acc.fits(budget, [_charge("0.0001", gaussian=False)], between)
    assert acc.fits(budget, [_charge("0.0001", gaussian=False)], _charge("0.0112"))
    requested, left, unit = acc.shortfall(budget, [between], _charge("0.005"))
    assert (requested, unit) == (0.005, "rho") and left == pytest.approx(float(gaussian) - 0.0117)
    assert acc.shortfall(budget, [between], _charge("0.005", gaussian=False)).left == 0
    assert acc.remaining(budget, [_charge("0.0001", gaussian=False)]).rho_left == float(mixed - Decimal("0.0001"))


def _pure(epsilon: str, budget: acc.Budget, count: int = 1) -> acc.Charge:
    return acc.charge_for([acc.PureEvent(Fraction(epsilon), count)], delta=budget.delta, accountant="zcdp")


def _select(epsilon: str, delta: Decimal, budget: acc.Budget) -> acc.Charge:
    return acc.charge_for([acc.SelectionEvent(Fraction(epsilon), Fraction(delta))], delta=budget.delta, accountant="zcdp")


def test_pure_releases_fill_a_budget_by_their_plain_sum() -> None:
    budget = acc.Budget(10, 1e-9)
    five = _pure("5", budget)
    assert (five.epsilon, five.delta) == (5, 0)
    assert acc.fits(budget, [five], five)
    assert not acc.fits(budget, [five, five], _pure("1e-24", budget))
    state = acc.remaining(budget, [five])
    assert state.pure_epsilon_left == 5 and state.epsilon_spent == 5
    assert acc.remaining(budget, []).pure_epsilon_left == 10
    assert acc.remaining(budget, [five, five]).pure_epsilon_left == 0 == acc.remaining(budget, [five, five]).epsilon_left
    assert acc.shortfall(budget, [five], _pure("6", budget)) == (6, 5, "epsilon")
    assert acc.total_guarantee(budget, [five, five]).epsilon == 10
    assert acc.total_guarantee(budget, [five, five, five]).epsilon == 15


def test_pure_and_gaussian_releases_share_a_budget() -> None:
    """After a pure 5, Gaussian releases have 0.70 of the rho that (5, delta) alone would give: scales 1.20 times as large."""
    budget = acc.Budget(10, 1e-9)
    five = _pure("5", budget)
    state = acc.remaining(budget, [five])
    alone = acc.rho_limit(5.0, 1e-9, gaussian=True)
    assert state.rho_left is not None and state.rho_limit is not None
    assert state.rho_left / float(alone) == pytest.approx(0.696, abs=0.001)
    assert state.rho_limit == pytest.approx(state.rho_spent + state.rho_left, rel=1e-15)
    assert 4 < state.epsilon_left < 5
    rest = acc.calibrate(mechanism="gaussian", tables=105, epsilon=state.epsilon_left, delta=1e-9, neighbors="add_remove").charge
    for books in ([five, rest], [rest, five]):
        assert acc.fits(budget, books) and 9.99 < acc.total_guarantee(budget, books).epsilon <= 10
        assert acc.remaining(budget, books).pure_epsilon_left == 0
        assert not acc.fits(budget, books, rest)
    both = acc.charge_for([*five.events, *rest.events], delta=1e-9, accountant="zcdp")
    assert acc.fits(budget, [], both) and not both.gaussian and both.delta == Decimal("1e-9")
    assert 9.99 < both.epsilon <= 10
    missing = acc.shortfall(budget, [five], acc.calibrate(
        mechanism="gaussian", tables=1, epsilon=5, delta=1e-9, neighbors="add_remove").charge)  # fmt: skip
    assert missing.unit == "rho" and missing.left == state.rho_left < missing.requested
    again = acc.shortfall(budget, [five], acc.charge_for([*both.events, *both.events], delta=1e-9, accountant="zcdp"))
    assert again.unit == "rho" and again.left == 0  # its own pure events leave nothing


def test_many_small_pure_releases_are_cheaper_than_their_plain_sum() -> None:
    budget = acc.Budget(1.0, 1e-9)
    many = _pure("1/100", budget, 200)
    assert many.epsilon < 1 and many.delta == Decimal("1e-9")  # the plain sum is 2
    assert acc.fits(budget, [], many)
    assert not acc.fits(budget, [many], _pure("1/2", budget))
    left = acc.remaining(budget, [many]).pure_epsilon_left
    assert 0 < left < 0.1
    more = _pure("1/100", budget, 100)
    requested, shown, unit = acc.shortfall(budget, [many], more)
    assert not acc.fits(budget, [many], more) and unit == "epsilon" and requested > shown == left


def test_selections_have_a_share_of_delta_and_cost_epsilon_like_pure_events() -> None:
    budget = acc.Budget(1.0, 1e-9)
    each = acc.selection_delta(budget.delta)
    assert each == Decimal("1.875e-13")
    small = _select("1/20", each, budget)
    assert (small.epsilon, small.delta, small.gaussian) == (Decimal("0.05"), each, False)
    assert acc.fits(budget, [small] * 15, small)
    assert not acc.fits(budget, [small] * 16, small)
    assert acc.shortfall(budget, [small] * 16, small) == (float(each), 0, "delta")
    assert acc.fits(budget, [small] * 16, _pure("1/5", budget))  # 0.8 + 0.2
    assert not acc.fits(budget, [small] * 16, _pure("0.200001", budget))
    assert acc.total_guarantee(budget, [small] * 4).epsilon == pytest.approx(0.2)
    assert math.isinf(acc.total_guarantee(budget, [small] * 17).epsilon)
    for state in (acc.remaining(budget, [small] * 17), acc.remaining(budget, [_select("2", each, budget)])):
        assert state.epsilon_left == state.pure_epsilon_left == state.rho_left == 0
    assert acc.shortfall(budget, [], _select("2", each, budget)) == (2, 1, "epsilon")
    # rule M: many small ones
    tiny = [acc.SelectionEvent(Fraction(1, 1000), Fraction(1, 10**17), 2000)]
    assert acc.fits(budget, [], acc.charge_for(tiny, delta=1e-9, accountant="zcdp"))
    # a small selection leaves what a small pure event leaves: no limit falls because there is one
    for limit in (budget, acc.Budget(1e-6, 0.5), acc.Budget(3, 1e-3)):
        chosen, pure = _select("1e-9", acc.selection_delta(limit.delta), limit), _pure("1e-9", limit)
        assert acc.remaining(limit, [chosen]) == acc.remaining(limit, [pure])


@pytest.mark.parametrize("epsilon", ["0.01", "0.1", "0.5"])
def test_a_bought_domain_costs_gaussian_noise_what_its_epsilon_does(epsilon: str) -> None:
    """It used to close the exact Gaussian rule: 1.16 to 1.21 times the noise after a selection at 0.01."""
    for limit in (1.0, 3.0, 10.0):
        budget = acc.Budget(limit, 1e-9)
        full = acc.remaining(budget, []).rho_left
        left = acc.remaining(budget, [_select(epsilon, acc.selection_delta(budget.delta), budget)]).rho_left
        assert full is not None and left is not None
        assert left >= (full - float(gdp_of_pure(Fraction(epsilon)))) * (1 - 1e-9)
        if epsilon == "0.01":
            assert math.sqrt(full / left) < 1.003


def test_selections_under_basic_add_epsilon_and_delta() -> None:
    event = acc.SelectionEvent(Fraction(1, 10), Fraction(1, 10**12), 2)
    alone = acc.charge_for([event], delta=0, accountant="basic")
    assert (alone.epsilon, alone.delta) == (Decimal("0.2"), Decimal("2e-12"))
    assert acc.charge_for([event], delta=2e-12, accountant="basic").delta == Decimal("2e-12")
    pure = acc.PureEvent(Fraction(1, 10), 3)
    assert acc.charge_for([event, pure], delta=0, accountant="basic").epsilon == Decimal("0.5")
    normal = acc.GaussianEvent(Fraction(100))
    with pytest.raises(ArgumentError, match="Gaussian noise needs a delta above 0"):
        acc.charge_for([event, normal], delta=2e-12, accountant="basic")
    mixed = acc.charge_for([event, normal], delta=1e-9, accountant="basic")
    rest = acc.charge_for([normal], delta=Decimal("9.98e-10"), accountant="basic")
    assert float(mixed.epsilon) == pytest.approx(0.2 + float(rest.epsilon), rel=1e-12)
    assert mixed.epsilon >= rest.epsilon + Decimal("0.2")


def test_what_a_selection_may_cost() -> None:
    assert acc.selection_delta(Decimal("1e-9"), 1) == acc.selection_share(Decimal("1e-9")) == Decimal("3e-12")
    for bad in (0, 1, 1e-37, "x", None, math.nan):
        with pytest.raises(ArgumentError, match="delta"):
            acc.selection_delta(bad)
    with pytest.raises(ArgumentError, match="calls = 0"):
        acc.selection_delta(1e-9, 0)
    for epsilon, delta in ((0, 0.1), (1, 0), (1, 1), (1, 2)):
        with pytest.raises(ArgumentError):
            acc.SelectionEvent(Fraction(epsilon), Fraction(delta))
    assert acc.SelectionEvent(Fraction(1), Decimal("1e-12")).delta == Fraction(1, 10**12)
    assert acc.SelectionEvent(Fraction(1), Fraction(1, 10**12)).rho == acc.PureEvent(Fraction(1)).rho
    greedy = [acc.GaussianEvent(Fraction(100)), acc.SelectionEvent(Fraction(1, 10), Fraction(1, 10**9))]
    with pytest.raises(CalibrationError, match="next to Gaussian noise they can have 3e-12 at most"):
        acc.charge_for(greedy, delta=1e-9, accountant="zcdp")
    budget = acc.Budget(1.0, 1e-9)
    alone = _select("1/10", Decimal("1e-9"), budget)
    assert (alone.epsilon, alone.delta) == (Decimal("0.1"), Decimal("1e-9"))
    assert acc.shortfall(budget, [], alone) == (1e-9, 3e-12, "delta") and not acc.fits(budget, [], alone)


def test_guarantee_is_shown_at_most_as_the_budget() -> None:
    budget = acc.Budget(1.0, DELTA)
    full = acc.Charge(acc.rho_limit(1.0, DELTA, gaussian=True), Decimal(1), Decimal(0), True)
    assert 1 - 1e-9 < acc.total_guarantee(budget, [full]).epsilon <= 1
    assert acc.total_guarantee(budget, []) == (0.0, Decimal(0))
    over = _charge("0.02")
    assert acc.total_guarantee(budget, [over]).epsilon > 1
    state = acc.remaining(budget, [full])
    assert state.epsilon_left == 0 and state.rho_left == 0 and state.delta_spent == pytest.approx(DELTA)
    fresh = acc.remaining(budget, [])
    assert fresh.epsilon_left == 1 and fresh.epsilon_spent == 0 and fresh.delta_spent == 0
    assert acc.remaining(budget, [over]).rho_left == 0


def test_the_share_used_is_in_the_unit_that_binds() -> None:
    budget = acc.Budget(1.0, DELTA)
    limit = acc.rho_limit(1.0, DELTA, gaussian=True)
    assert acc.share_used(budget, []) == 0
    assert acc.share_used(budget, [acc.Charge(limit, Decimal(1), Decimal(0), True)]) == 1
    assert acc.share_used(budget, [acc.Charge(limit * 2, Decimal(1), Decimal(0), True)]) == 2  # a lowered budget
    tenth = acc.calibrate(mechanism="gaussian", tables=3, epsilon=0.2, delta=DELTA, neighbors="add_remove").charge
    one, two = acc.share_used(budget, [tenth]), acc.share_used(budget, [tenth, tenth])
    assert two == pytest.approx(2 * one) and one == pytest.approx(float(tenth.rho / limit))
    assert acc.share_used(budget, [_pure("1/4", budget)]) == 0.25  # alone: the plain sum
    assert 0.25 < acc.share_used(budget, [_pure("1/4", budget), tenth]) < 0.5
    each = acc.selection_delta(budget.delta)
    assert acc.share_used(budget, [_select("1/20", each, budget)] * 4) == 0.2
    assert acc.share_used(budget, [_select("1/20", each, budget)] * 16) == pytest.approx(0.8)
    assert acc.share_used(budget, [_select("1/200", each, budget)] * 17) == pytest.approx(17 / 16)  # their share of delta
    basic = acc.Budget(0.4, 4e-10, "basic")
    assert acc.share_used(basic, [_charge("0", "0.1", "1e-10")]) == 0.25
    assert acc.share_used(basic, [_charge("0", "0.1", "3e-10")]) == 0.75
    assert acc.share_used(acc.Budget(0.4, 0, "basic"), [_charge("0", "0.1", "0")]) == 0.25
    assert math.isinf(acc.share_used(acc.Budget(0.4, 0, "basic"), [_charge("0", "0.1", "3e-10")]))


def test_a_plan_says_where_laplace_noise_pays_for_what_else_may_be_bought() -> None:
    arguments = {"mechanism": "laplace", "epsilon": 1.0, "delta": 1e-9, "neighbors": "replace_one"}
    [note] = acc.calibrate(tables=105, **arguments).notes
    needed = 2 / acc.pure_epsilon_each(105, 1.0, 1e-9)
    factor = float(acc.calibrate(tables=105, **arguments).scales[0]) / needed
    assert 1.15 < factor < 1.3 and f"{factor:.2f} times" in note
    assert not acc.calibrate(tables=1, **arguments).notes  # nothing is to be had
    assert not acc.calibrate(tables=105, accountant="basic", **arguments).notes
    assert not acc.calibrate(tables=105, **{**arguments, "mechanism": "gaussian"}).notes


def test_what_is_shown_as_left_can_be_bought() -> None:
    budget = acc.Budget(3.0, 1e-9)
    charges: list[acc.Charge] = []
    for epsilon in (0.7, 1.1, 0.3):
        charges.append(acc.calibrate(mechanism="gaussian", tables=10, epsilon=epsilon, delta=1e-9, neighbors="add_remove").charge)
        left = acc.remaining(budget, charges).epsilon_left
        last = acc.calibrate(mechanism="gaussian", tables=3, epsilon=left, delta=1e-9, neighbors="add_remove").charge
        assert acc.fits(budget, charges, last)
        more = acc.calibrate(mechanism="gaussian", tables=3, epsilon=left * 1.0001, delta=1e-9, neighbors="add_remove").charge
        assert not acc.fits(budget, charges, more)


@pytest.mark.parametrize(("epsilon", "delta"), [(0, 1e-9), (1, 0), (1, 1), (-1, 1e-9), (math.nan, 1e-9), (1, "x")])
def test_budgets_out_of_range_are_refused(epsilon, delta) -> None:
    with pytest.raises(ArgumentError):
        acc.Budget(epsilon, delta)


def test_charges_must_be_decimals_of_at_least_zero() -> None:
    for bad in (Decimal(-1), Decimal("NaN"), 0.5):
        with pytest.raises(ArgumentError, match="rho"):
            acc.Charge(bad, Decimal(0), Decimal(0), True)
    with pytest.raises(ArgumentError, match="gaussian = True"):
        acc.Charge(Decimal(1), Decimal(0), Decimal(0), True, (acc.PureEvent(Fraction(1)),))


def test_charge_for_events() -> None:
    gaussian, laplace, pure, _ = EVENTS
    with pytest.raises(ArgumentError, match="events"):
        acc.charge_for([], delta=1e-9, accountant="zcdp")
    mixed = acc.charge_for(EVENTS, delta=1e-9, accountant="zcdp")
    assert not mixed.gaussian and Fraction(mixed.rho) >= sum(e.rho for e in EVENTS)
    with pytest.raises(ArgumentError, match="delta"):
        acc.charge_for([gaussian, pure], delta=0, accountant="basic")
    assert acc.charge_for([pure], delta=0, accountant="basic").epsilon == Decimal("0.3")
    assert acc.charge_for([pure, pure], delta=0, accountant="basic").epsilon == Decimal("0.6")
    many = acc.PureEvent(Fraction(1, 100), 1000)
    found = float(acc.charge_for([many], delta=1e-9, accountant="basic").epsilon)
    assert found == pytest.approx(acc.pure_epsilon(1000, 0.01, 1e-9), rel=1e-9)
    other = float(acc.charge_for([many, pure], delta=1e-9, accountant="basic").epsilon)
    assert other == pytest.approx(acc.zcdp_epsilon(float(many.rho + pure.rho), 1e-9), rel=1e-9)
    alone = float(acc.charge_for([gaussian], delta=1e-9, accountant="basic").epsilon)
    assert alone == pytest.approx(acc.gaussian_epsilon(math.sqrt(2 * float(gaussian.rho)), 1e-9), rel=1e-9)
    assert float(acc.charge_for([gaussian, laplace], delta=1e-9, accountant="basic").epsilon) > alone


def test_errors_of_one_cell() -> None:
    for scale in (0.3, 1.0, 5.0):
        for mechanism, weight in (
            ("laplace", lambda x, s: math.exp(-abs(x) / s)),
            ("gaussian", lambda x, s: math.exp(-(x**2) / (2 * s**2))),
        ):
            xs = range(-400, 401)
            mass = sum(weight(x, scale) for x in xs)
            mean = sum(abs(x) * weight(x, scale) for x in xs) / mass
            deviation = math.sqrt(sum(x * x * weight(x, scale) for x in xs) / mass)
            assert acc.expected_absolute_error(mechanism, scale) == pytest.approx(mean, rel=1e-12)
            assert acc.standard_deviation(mechanism, scale) == pytest.approx(deviation, rel=1e-12)
    below, above = (acc.expected_absolute_error("gaussian", s) / s for s in (999.999, 1000.001))
    assert above == pytest.approx(below, rel=1e-8)
    assert acc.expected_absolute_error("laplace", 0.001) == 0 == acc.standard_deviation("laplace", 0.001)
    with pytest.raises(ArgumentError):
        acc.expected_absolute_error("gaussian", -1)
