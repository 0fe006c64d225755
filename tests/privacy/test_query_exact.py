"""Answers to queries on tiny tables, exactly: every outcome of the noise is listed, and the law of what is shown compared with the charge.

The way is the product's: text, plan, SQL over a table, choice of groups. A threshold lowered by one has to fail.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import duckdb
import pytest
from query_readings import Readings, ask, divergence, release_law, replayed

import dpsql
from dpsql import accounting as acc
from dpsql.custodian import protect
from dpsql.measure import query as reading
from dpsql.release.plan import Plan

pytestmark = pytest.mark.usefixtures("functions_as_shipped", "unrehearsed")

GROUPS = "SELECT g, count(DISTINCT u) FROM t GROUP BY g"


@functools.cache
def database(rows: str, contract: tuple[tuple[str, Any], ...]) -> duckdb.DuckDBPyConnection:
    """Return a table of rows (unit, group, value). A delta of a half shows what a small one hides."""
    con = duckdb.connect()
    con.execute("CREATE TABLE t(u INTEGER, g VARCHAR, x INTEGER)")
    con.execute(f"INSERT INTO t VALUES {rows}")
    dpsql.load(con, progress=False)
    terms = {"epsilon": 1000, "delta": 0.5, "privacy_unit": "u", "max_contributions": 2} | dict(contract)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(protect, "_LARGEST_DELTA", 1.0)
        con.execute(f"CALL dp_protect('t', {', '.join(f'{name} := {value!r}' for name, value in terms.items())})")
    con.execute("CALL dp_declare('t', 'x', lower := 0, upper := 3)")
    return con


def read(patch: pytest.MonkeyPatch, rows: str, sql: str, more: str, epsilon: float, **contract: Any) -> Readings:
    """Ask a query that was not asked of the same table before; return what was read."""
    with replayed(patch) as found:
        ask(database(rows, tuple(contract.items())), sql, more, epsilon)
    return found


def admitted(plan: Plan, l1: float, l2: float, epsilon: float) -> float:
    """Return the delta that one block's noise admits at an epsilon."""
    if plan.mechanism == "laplace":
        return 0.0 if epsilon >= l1 / float(plan.scales[0]) * (1 - 1e-12) else 1.0
    return float(acc.gaussian_delta(math.sqrt(2 * float(acc.GaussianEvent(plan.scales[0], l2).rho)), epsilon))


OTHERS = "(1, 'a', 0)"
ONE = [f"{OTHERS}, (9, 'a', 0), (9, 'c', 0)", f"{OTHERS}, (9, 'c', 0), (9, 'd', 0)", f"{OTHERS}, (9, 'c', 0), (9, 'c', 1)"]
"""Tables with unit 9, whose neighbour is that of the others."""


@pytest.mark.parametrize("more", ["mechanism := 'gaussian'", "mechanism := 'laplace'", "min_units := 2"])
@pytest.mark.parametrize("neighbors", acc.NEIGHBORS)
def test_private_groups_cost_what_is_charged(monkeypatch: pytest.MonkeyPatch, more: str, neighbors: str) -> None:
    """Which groups appear, with which numbers: below the curve of the noise plus delta; not so with a threshold lowered by one."""
    lowered, asked = False, 15.0 if "laplace" in more else 9.0
    replace = neighbors == "replace_one"
    base = read(monkeypatch, f"{OTHERS}, (8, 'a', 0)" if replace else OTHERS, GROUPS, more, asked, neighbors=neighbors)
    for rows in ONE:
        here = read(monkeypatch, rows, GROUPS, more, asked, neighbors=neighbors)
        plan = here.plans[0]
        assert plan.query is not None and plan == base.plans[0]
        assert plan.query.threshold is not None and plan.query.delta is not None and len(plan.scales) == 1
        delta, groups = float(acc.ThresholdEvent(plan.query.delta).delta), 2
        factor = 2 if replace else 1
        less = dataclasses.replace(plan, query=dataclasses.replace(plan.query, threshold=plan.query.threshold - 1))
        pairs = [[release_law(made, found.found[0][1], monkeypatch) for found in (here, base)] for made in (plan, less)]
        for epsilon in (0.0, 3.0, 9.0, 15.0, 30.0):
            limit = admitted(plan, factor * groups, math.sqrt(factor * groups), epsilon)
            for p, q in (pairs[0], pairs[0][::-1]):
                assert divergence(p, q, epsilon) <= limit + delta + 1e-12
            lowered |= any(divergence(p, q, epsilon) > limit + delta + 1e-9 for p, q in (pairs[1], pairs[1][::-1]))
    assert lowered or "min_units" in more


@pytest.mark.parametrize("groups", [1, 2])
def test_a_threshold_lowered_by_one_is_caught(monkeypatch: pytest.MonkeyPatch, groups: int) -> None:
    """A unit alone in all its groups: that any of them appears has at most the probability that is charged, and no slack of one."""
    rows = "(9, 'a', 0)" if groups == 1 else "(9, 'a', 0), (9, 'b', 0)"
    for least in (1, 2):
        units = rows if least == 1 else f"{rows}, {rows.replace('9', '8')}"
        found = read(monkeypatch, units, GROUPS, f"min_units := {least}", 9.0, max_contributions=groups)
        plan = found.plans[0]
        assert plan.query is not None and plan.query.threshold is not None and plan.query.delta is not None
        for lower in (0, 1):
            made = dataclasses.replace(plan, query=dataclasses.replace(plan.query, threshold=plan.query.threshold - lower))
            law = release_law(made, found.found[0][1], monkeypatch)
            seen = math.fsum(p for text, p in law.items() if not text.startswith("([],"))
            assert (seen <= float(acc.ThresholdEvent(plan.query.delta).delta)) == (lower == 0)


def test_fewer_units_than_the_minimum_never_appear(monkeypatch: pytest.MonkeyPatch) -> None:
    """However large the noise: nobody's group of two appears where three were promised. Without the drop, it would."""
    found = read(monkeypatch, "(1, 'a', 0), (2, 'a', 0)", GROUPS, "min_units := 3", 9.0)
    plan, (_, counted) = found.plans[0], found.found[0]
    assert all(text.startswith("([],") for text in release_law(plan, counted, monkeypatch))
    monkeypatch.setattr(reading, "present", lambda units, least=1: units >= 1)
    assert not all(text.startswith("([],") for text in release_law(plan, counted, monkeypatch))


NUMBERS = {
    "count": ("SELECT count(*) FROM t", 2.0),
    "count of units": ("SELECT count(DISTINCT u) FROM t", 1.0),
    "distinct": ("SELECT count(DISTINCT x) FROM t", 2.0),
    "filter": ("SELECT count(*) FILTER (WHERE x > 1) FROM t", 2.0),
    "sum": ("SELECT sum(x) FROM t", 2.0),
}
VALUES = ["(9, 'a', 0)", "(9, 'a', 3), (9, 'b', 2)", "(9, NULL, NULL), (9, 'a', 3)", "(9, 'a', 7), (9, 'a', -5), (9, 'a', 3)"]


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_cost_what_is_charged(monkeypatch: pytest.MonkeyPatch, name: str, mechanism: str) -> None:
    """Of one number: the ratio of probabilities, or the curve, of each pair of tables; a scale that is half as large fails."""
    sql, largest = NUMBERS[name]
    asked = 2.0 if mechanism == "laplace" else 3.0
    base = read(monkeypatch, "(1, 'a', 0), (1, 'b', 1), (2, 'a', 2)", sql, f"mechanism := '{mechanism}'", asked)
    caught = False
    for rows in VALUES:
        here = read(monkeypatch, f"(1, 'a', 0), (1, 'b', 1), (2, 'a', 2), {rows}", sql, f"mechanism := '{mechanism}'", asked)
        plan = here.plans[0]
        assert plan.query is not None and len(plan.scales) == 1
        step = largest * plan.query.measures[0].grid
        half = dataclasses.replace(plan, scales=(plan.scales[0] / 2,))
        one, other = (int(found.found[0][1].blocks[0][0, 0]) for found in (here, base))
        assert abs(one - other) <= step
        if float(plan.scales[0]) > 1000:  # a sum in parts of a grid: too many outcomes to list, and the bound above is all
            caught = True
            continue
        laws = [[release_law(made, found.found[0][1], monkeypatch) for found in (here, base)] for made in (plan, half)]
        for epsilon in (0.0, 0.5, 1.0, 2.0, 3.0):
            limit = admitted(plan, step, step, epsilon)
            for p, q in (laws[0], laws[0][::-1]):
                assert divergence(p, q, epsilon) <= limit + 1e-12
            p, q = laws[1]
            caught |= divergence(p, q, epsilon) > limit + 1e-6
    assert caught


def test_quantiles_cost_what_is_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of trees: cells are independent, so those that differ are all that matters; their loss is within the charge."""
    for mechanism in ("gaussian", "laplace"):
        base = read(monkeypatch, "(1, 'a', 0), (1, 'b', 1), (2, 'a', 2)", "SELECT median(x) FROM t", f"mechanism := '{mechanism}'", 3.0)
        for rows in VALUES:
            here = read(monkeypatch, f"(1, 'a', 0), (1, 'b', 1), (2, 'a', 2), {rows}", "SELECT median(x) FROM t", f"mechanism := '{mechanism}'", 3.0)
            plan, loss = here.plans[0], 0.0
            for a, b, scale in zip(here.found[0][1].blocks, base.found[0][1].blocks, plan.scales, strict=True):
                steps = abs(a - b).ravel()
                assert steps.sum() <= 2
                loss += float((steps**2).sum() / (2 * scale**2) if mechanism == "gaussian" else steps.sum() / float(scale))
            assert loss <= (acc.rho_limit(3.0, 0.5, gaussian=True) if mechanism == "gaussian" else 3.0)
