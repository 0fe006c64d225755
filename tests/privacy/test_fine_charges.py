"""The round before the tables: what is drawn in it is what was charged."""

from __future__ import annotations

from fractions import Fraction

import duckdb
import pytest
from fine_drawings import asked

import dpsql
from dpsql.accounting import sensitivities
from dpsql.accounting.gaussian import effective_variance
from dpsql.calls.rows import SynthesizeCall
from dpsql.calls.tables import AggregatesCall, MarginalsCall
from dpsql.domains.grid import grid_of
from dpsql.noise import discrete
from dpsql.release import refined
from dpsql.release.plan import Plan


def total_rho(plan: Plan, l2: float, fine_only: bool = False) -> float:
    scales = [scale for column in plan.fine for scale in column.scales] + ([] if fine_only else list(plan.scales))
    return float(sum(Fraction(l2) ** 2 / (2 * effective_variance(scale**2)) for scale in scales))


MANY = """CREATE TABLE t AS SELECT (i * 37 % 1000)::DOUBLE AS x, (i * 13 % 90)::INTEGER AS age, i % 3 = 0 AS c, (i % 7)::DECIMAL(9, 2) AS d,
    DATE '2000-01-01' + (i * 11 % 5000)::INTEGER AS day, i % 50 AS unit FROM range(400) r(i)"""


def many(neighbors: str = "add_remove", unit: bool = False) -> duckdb.DuckDBPyConnection:
    con = duckdb.connect()
    con.execute(MANY)
    dpsql.load(con, progress=False)
    more = ", privacy_unit := 'unit', max_contributions := 2" if unit else ""
    con.execute(f"CALL dp_protect('t', epsilon := 100, delta := 1e-6, neighbors := '{neighbors}'{more})")
    con.execute("CALL dp_declare('t', 'x', lower := 0, upper := 1000)")
    con.execute("CALL dp_declare('t', 'age', lower := 0, upper := 99, bins := 10)")
    con.execute("CALL dp_declare('t', 'day', lower := '2000-01-01', upper := '2020-01-01', outside := 'drop')")
    return con


def expected_levels(plan: Plan) -> list[int]:
    return [len(grid_of(plan.domain.attributes[column.position]).levels) for column in plan.fine]


@pytest.mark.parametrize(("neighbors", "unit"), [("add_remove", False), ("replace_one", False), ("add_remove", True)])
@pytest.mark.parametrize("call", [SynthesizeCall(source="t", epsilon=1.0), MarginalsCall(source="t", k=2, epsilon=1.0)], ids=["rows", "tables"])
def test_under_gaussian_noise_tables_coarse_tables_and_levels_are_what_is_charged(neighbors, unit, call):
    with many(neighbors, unit) as con, asked(con, call) as (wanted, _):
        plan, charge = wanted.plan, wanted.calibration.charge
    _, l2 = sensitivities(neighbors, 2 if unit else 1)
    rows = isinstance(call, SynthesizeCall)
    names = [plan.domain.names[column.position] for column in plan.fine]
    assert names == (["x", "age", "day"] if rows else ["x", "day"])
    assert [len(column.scales) for column in plan.fine] == expected_levels(plan)
    assert len(plan.scales) == len(plan.cliques) + len(plan.coarse)
    assert bool(plan.coarse) == rows
    rho = total_rho(plan, l2)
    assert rho <= float(charge.rho) <= rho * 1.001
    counted_events = sum(event.count for event in charge.events)
    assert counted_events == len(plan.scales) + sum(map(len, (column.scales for column in plan.fine)))
    assert sum(float(event.rho) for event in charge.events) == pytest.approx(rho, rel=1e-12)
    assert all(event.l2_sensitivity == l2 for event in charge.events)
    share = total_rho(plan, l2, fine_only=True) / rho
    assert 0.01 < share < 0.21


@pytest.mark.parametrize("neighbors", ["add_remove", "replace_one"])
def test_under_laplace_noise_levels_are_tables_among_others(neighbors):
    with many(neighbors) as con, asked(con, MarginalsCall(source="t", k=2, epsilon=2.0, mechanism="laplace")) as (wanted, _):
        plan, charge = wanted.plan, wanted.calibration.charge
    l1, _ = sensitivities(neighbors)
    scales = [scale for column in plan.fine for scale in column.scales]
    assert scales
    assert {column.mechanism for column in plan.fine} == {"laplace"}
    epsilon = sum(Fraction(l1) / scale for scale in (*scales, *plan.scales))
    assert 1.99 < float(epsilon) <= 2.0
    assert sum(event.count * event.l1_sensitivity / float(event.scale) for event in charge.events) == pytest.approx(float(epsilon))


def test_methods_that_draw_pay_for_levels_from_their_pure_epsilon():
    for method in ("laplace_sanitizer", "perturbed_histogram"):
        with many() as con, asked(con, SynthesizeCall(source="t", columns=("x", "c"), method=method, epsilon=2.0)) as (wanted, _):
            plan, charge = wanted.plan, wanted.calibration.charge
        levels = [scale for column in plan.fine for scale in column.scales]
        assert levels
        pure = sum(Fraction(1) / scale for scale in levels)
        assert float(pure) <= 0.2
        assert float(pure) == pytest.approx(0.2, rel=0.01)
        told = [event for event in charge.events if event.to_json()["event"] == "laplace" and event.count == len(levels) and event.scale == levels[0]]
        assert len(told) == 1
        rest = [event for event in charge.events if event is not told[0]]
        assert rest
        assert float(charge.epsilon) <= 2.0 * (1 + 1e-9)


def test_counts_of_combinations_pay_for_levels_too():
    with many() as con, asked(con, AggregatesCall(source="t", reporting_length=2, epsilon=1.0)) as (wanted, _):
        plan, charge = wanted.plan, wanted.calibration.charge
    rho = total_rho(plan, 1.0)
    assert [plan.domain.names[column.position] for column in plan.fine] == ["x", "day"]
    assert [len(column.scales) for column in plan.fine] == expected_levels(plan)
    assert rho <= float(charge.rho) <= rho * 1.001
    assert total_rho(plan, 1.0, fine_only=True) / rho == pytest.approx(0.04, rel=0.02)


@pytest.mark.parametrize("option", [0.01, 0.2, 0.5])
def test_the_option_is_the_part_of_the_loss(option):
    with many() as con, asked(con, SynthesizeCall(source="t", epsilon=1.0, options={"fine": option})) as (wanted, _):
        plan = wanted.plan
    assert total_rho(plan, 1.0, fine_only=True) / total_rho(plan, 1.0) == pytest.approx(option, rel=0.01)


def test_noise_has_the_scales_of_the_plan(monkeypatch):
    """What is drawn is what is charged: every drawing of a release, and its scale."""
    drawn: list[tuple[int, Fraction, str]] = []
    real = discrete.add_noise
    monkeypatch.setattr(discrete, "add_noise", lambda c, mechanism, scale: drawn.append((c.size, scale, mechanism)) or real(c, mechanism, scale))
    with many() as con, asked(con, SynthesizeCall(source="t", epsilon=1.0)) as (wanted, measure):
        found, plan = measure(), wanted.plan
    levels = [scale for column in plan.fine for scale in column.scales]
    assert [scale for _, scale, _ in drawn[: len(levels)]] == levels
    cells = sum(size for size, _, _ in drawn[: len(levels)])
    assert cells == sum(counts.size for counts in found.refinement.counts)
    now = refined.resolved(plan, found.refinement)
    assert sum(size for size, _, _ in drawn[len(levels) :]) == found.flat.size == now.cells
    assert {scale for _, scale, _ in drawn[len(levels) :]} == set(plan.scales)
    assert {name for _, _, name in drawn} == {"gaussian"}
