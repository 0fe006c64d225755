"""Intervals between bounds that a release narrows: two rounds of noise, drawn many times over, against the mean without noise.

The plan is the product's; counters come from numpy, bounds from the histogram with its noise, the interval from the counters with theirs.
Noise has a fixed seed: an interval that covers 95 % would be outside of 93.7 to 96.3 % of 4,000 cases with a probability of 2e-4 with a
fresh one, and the seed is one of the others.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import duckdb
import numpy as np
import pytest
from estimate_counters import counters
from pairwise import WHOLE, in_turn

import dpsql
from dpsql.measure import query as reading
from dpsql.queries.asked import Wanted
from dpsql.queries.estimating import Estimates
from dpsql.release.plan import Plan
from dpsql.release.refined import Refinement, resolved

pytestmark = pytest.mark.usefixtures("unrehearsed")

GROUPS, ROWS = 8, 100_000
MEAN = Wanted("avg", (0,), None, None, (), False, "avg(a0)")


def planned(mechanism: str) -> Plan:
    """Return the plan of a mean by groups, of a column declared from 0 to 10,000,000."""
    con = duckdb.connect()
    con.execute("CREATE TABLE t AS SELECT i AS u, (i % 8)::INTEGER AS g, 1.5::DOUBLE AS x FROM range(10) r(i)")
    dpsql.load(con, progress=False)
    con.execute("CALL dp_protect('t', epsilon := 100, delta := 1e-9, privacy_unit := 'u', max_contributions := 1)")
    con.execute(f"CALL dp_declare('t', 'g', lower := 0, upper := {GROUPS - 1}, nullable := false)")
    con.execute("CALL dp_declare('t', 'x', lower := 0, upper := 10000000, nullable := false)")
    seen: list[Plan] = []
    with pytest.MonkeyPatch.context() as patch:
        released = reading.learned
        patch.setattr(reading, "learned", lambda plan, exact: (seen.append(plan), released(plan, exact))[1])
        con.execute(f"FROM dp_query('SELECT g, avg(x) FROM t GROUP BY g', epsilon := 0.5, mechanism := '{mechanism}')").fetchall()
    con.close()
    return seen[0]


def values(shape: str) -> np.ndarray:
    """Return values, shape (groups, rows of each)."""
    rng = np.random.default_rng(11)
    each = (GROUPS, ROWS // GROUPS)
    if shape == "alike":
        return np.exp(6 + rng.standard_normal(each))
    if shape == "unlike":
        return np.exp(6 + 0.15 * np.arange(GROUPS)[:, None] + rng.standard_normal(each))
    if shape == "all over":
        return 1e7 * rng.random(each)
    return np.full(each, 40.0)


def covered(shape: str, mechanism: str, releases: int, believed: float = 1.0) -> tuple[float, float]:
    """Return how often the interval holds the mean of values as they were moved to the bounds, and the mean of all."""
    plan, rows = planned(mechanism), values(shape)
    assert plan.query is not None and [one.declared for one in plan.query.learning] == [True]
    [one] = plan.query.learning
    places = np.clip(np.searchsorted(one.edges, rows.reshape(-1), side="right") - 1, 0, one.cells - 1)
    exact: Any = SimpleNamespace(magnitudes=[np.bincount(places, minlength=one.cells)])
    truth, known = rows.mean(axis=1), {}
    inside, all_ = 0.0, 0.0
    for _ in range(releases):
        first = reading.learned(plan, exact)
        assert isinstance(first, Refinement)
        found = resolved(plan, first)
        assert found.query is not None
        [measure] = found.query.measures
        variable = measure.variables[0]
        if measure not in known:
            block = np.stack([counters(measure, group[:, None]) for group in rows])
            known[measure] = block, np.clip(rows, variable.lower, variable.upper).mean(axis=1)
        block, moved = known[measure]
        noisy = reading._noisy(block, found.scales[0], mechanism)
        said: Any = SimpleNamespace(query=found.query, mechanism=mechanism, scales=[float(found.scales[0]) * believed])
        ends = Estimates(said, [noisy.astype(float)]).interval(MEAN, 0.95)
        assert ends is not None
        low, high = ends
        inside += float(((low <= moved * (1 + 1e-9)) & (moved * (1 - 1e-9) <= high)).mean())
        all_ += float(((low <= truth * (1 + 1e-9)) & (truth * (1 - 1e-9) <= high)).mean())
    return inside / releases, all_ / releases


@pytest.mark.parametrize(("shape", "mechanism"), in_turn(["alike", "unlike", "one value", "all over"], ["gaussian", "laplace"]))
def test_the_mean_between_the_bounds_is_covered(shape: str, mechanism: str) -> None:
    """And the mean of all values nearly as often: what is seen to be cut is a twentieth of the noise. Under Laplace noise, of which a
    small share buys less, more of a tail is not seen.
    """
    inside, everything = covered(shape, mechanism, 2_000 if WHOLE else 500)
    low, high = (0.94, 0.965) if WHOLE else (0.937, 0.97)
    assert low <= inside <= high, inside
    assert everything >= (0.92 if mechanism == "gaussian" else 0.88), everything


def test_intervals_of_too_little_noise_are_caught() -> None:
    inside, _ = covered("alike", "gaussian", 100, believed=0.8)
    assert inside < 0.92
