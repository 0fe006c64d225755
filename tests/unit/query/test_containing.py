"""Aggregates read off measures that were made for others: where the counters are exact, they are exact."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from dpsql.domains.attributes import Domain
from dpsql.estimates.measures import Measure, Variable
from dpsql.queries.asked import Wanted
from dpsql.queries.containing import spread
from dpsql.queries.estimating import Estimates
from dpsql.release.plan import Plan
from dpsql.release.queried import QueryPlan

X = np.array([0.0, 2.0, 5.0, 10.0, 10.0])
Y = np.array([1.0, 1.0, 3.0, 0.0, 4.0])
GRID = 1 << 20


def plan(*measures: Measure, scale: int = 0) -> Plan:
    query = QueryPlan((), measures, public=True, groups=1, groups_sql="", unit=True, max_rows=3, max_groups=None, max_rows_per_group=None)
    return Plan(Domain(()), (), (Fraction(scale),) * len(query.blocks), "gaussian", public_total=False, method=None, options={}, query=query)


def variable(position: int, *, not_null: bool) -> Variable:
    return Variable(position, 0.0, 10.0 if position == 0 else 4.0, not_null=not_null)


def bernstein(values: np.ndarray, upper: float, degree: int) -> np.ndarray:
    y = values / upper
    return np.stack([1 - y, y] if degree == 1 else [(1 - y) ** 2, 2 * y * (1 - y), y**2], axis=-1)


def pair(degree: int, *, nulls: tuple[bool, bool] = (False, False)) -> tuple[Measure, np.ndarray]:
    """A vector of both variables; ``nulls``: whether each may be NULL."""
    measure = Measure("moments", tuple(variable(i, not_null=not null) for i, null in enumerate(nulls)), degree=degree, grid=GRID)
    counters = np.einsum("ri,rj->ij", bernstein(X, 10.0, degree), bernstein(Y, 4.0, degree)).reshape(1, -1) * GRID
    return measure, counters


def wanted(function: str, *arguments: int, there: int | None = None) -> Wanted:
    return Wanted(function, arguments, None, there, (), listed=False, text=function)


EXACT = {
    ("avg", 0): X.mean(), ("avg", 1): Y.mean(), ("sum", 0): X.sum(), ("sum", 1): Y.sum(), ("var_pop", 0): X.var(), ("var_samp", 1): Y.var(ddof=1),
    ("stddev_samp", 0): X.std(ddof=1), ("corr", 1, 0): np.corrcoef(X, Y)[0, 1], ("covar_pop", 1, 0): np.cov(X, Y, ddof=0)[0, 1],
    ("regr_slope", 1, 0): np.polyfit(X, Y, 1)[0], ("regr_slope", 0, 1): np.polyfit(Y, X, 1)[0], ("regr_intercept", 1, 0): np.polyfit(X, Y, 1)[1],
    ("regr_avgx", 1, 0): X.mean(), ("regr_avgy", 1, 0): Y.mean(), ("regr_sxx", 1, 0): X.var() * 5, ("regr_syy", 1, 0): Y.var() * 5,
    ("regr_r2", 1, 0): np.corrcoef(X, Y)[0, 1] ** 2, ("regr_count", 1, 0): 5.0,
}  # fmt: skip


@pytest.mark.parametrize("asked", EXACT)
def test_a_pair_gives_each_of_its_variables_and_both_the_other_way_round(asked: tuple[str, *tuple[int, ...]]) -> None:
    measure, counters = pair(2)
    estimates = Estimates(plan(measure), [counters])
    assert estimates.value(wanted(*asked))[0] == pytest.approx(EXACT[asked], rel=1e-5)


def test_a_pair_of_degree_one_gives_no_squares() -> None:
    measure, counters = pair(1)
    estimates = Estimates(plan(measure), [counters])
    assert estimates.value(wanted("avg", 1))[0] == pytest.approx(Y.mean(), rel=1e-5)
    for one in (wanted("var_pop", 0), wanted("stddev_samp", 1), wanted("corr", 1, 0), wanted("regr_slope", 0, 1)):
        assert estimates.find(one) == []


def test_rows_with_null_in_the_other_variable_are_not_in_a_pair() -> None:
    measure, counters = pair(2, nulls=(False, True))
    estimates = Estimates(plan(measure), [counters])
    for one in (wanted("avg", 0), wanted("count"), wanted("count", 0, there=4)):
        assert estimates.find(one) == []
    for one in (wanted("avg", 1), wanted("count", 1, there=4), wanted("corr", 1, 0)):
        assert estimates.find(one) == [0]
    assert estimates.value(wanted("count", 1, there=4))[0] == 5
    assert not measure.complete and pair(2)[0].complete


def test_a_histogram_counts_rows_by_all_of_its_levels() -> None:
    tree = Measure("tree", (variable(0, not_null=True),), levels=(2, 2))
    leaves = np.array([[2.0, 0.0, 1.0, 2.0]])
    estimates = Estimates(plan(tree, scale=3), [leaves.reshape(1, 2, 2).sum(axis=2), leaves])
    assert estimates.value(wanted("count"))[0] == 5 == estimates.value(wanted("count", 0, there=1))[0]
    assert estimates.spread(wanted("count")) == pytest.approx(3 * (1 / (1 / 2 + 1 / 4)) ** 0.5)
    nullable = Measure("tree", (variable(0, not_null=False),), levels=(2, 2))
    assert Estimates(plan(nullable), []).find(wanted("count")) == []
    other = Measure("tree", (variable(0, not_null=True),), filter=1, levels=(2, 2))
    assert Estimates(plan(other), []).find(wanted("count")) == []


def test_added_counters_have_more_noise() -> None:
    measure = Measure("moments", (variable(0, not_null=True),), grid=GRID)
    made = plan(measure, scale=GRID)
    one = Estimates(made, []).spread(wanted("count"))
    assert one == pytest.approx(2**0.5)
    assert Estimates(made, [], 9).spread(wanted("count")) == pytest.approx(3 * one)
    assert Estimates(made, []).spread(wanted("sum", 0)) == pytest.approx(10.0)
    assert spread(made, [wanted("count"), wanted("sum", 0)], 4) == pytest.approx(np.log([2 * one, 20.0]).mean())


def test_what_is_never_null_is_written_and_read() -> None:
    for one in (variable(0, not_null=True), variable(0, not_null=False)):
        assert Variable.from_json(one.to_json()) == one
    assert "not_null" not in variable(0, not_null=False).to_json()
    with pytest.raises(Exception, match="not_null"):
        Variable(0, 0.0, 1.0, not_null="yes")  # type: ignore[arg-type]
