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
from dpsql.errors import ArgumentError, CalibrationError, LedgerError

DELTA = 2.0**-30
INF = math.inf


def _scale(mechanism: str, tables: int, **more: object) -> float:
    arguments = {"epsilon": 1.0, "delta": DELTA, "neighbors": "add_remove", **more}
    return float(acc.calibrate(mechanism=mechanism, tables=tables, **arguments).scales[0])


# Reference values (dp-accounting's PLD gives 54.87 for real-valued Laplace noise, 105 tables).
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
