"""Plan the release of a column whose values no declared domain lists."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from dpsql import methods
from dpsql.accounting.rules import selection_delta
from dpsql.calls.buying import BuyingCall
from dpsql.domains import sqltypes
from dpsql.domains.attributes import Domain, open_attribute
from dpsql.errors import ArgumentError
from dpsql.kinds.planned import Planned, calibration_of, contract_of, exact_epsilon, method_options, naming_epsilon, no_delta
from dpsql.protected import columns, universes
from dpsql.protected.source import ProtectedSource
from dpsql.release.plan import Plan
from dpsql.session.instance import Context


def plan(context: Context, protected: ProtectedSource, call: BuyingCall, parameters: Mapping[str, Any]) -> Planned:
    """Plan and price a selection of values, see `dpsql.kinds.planned.Planner`."""
    method = call.release_method
    if not methods.is_open(method):
        raise ArgumentError("method", parameters["method"], "selects no values")
    named = parameters["columns"] or []
    if len(named) != 1:
        raise ArgumentError("columns", parameters["columns"], f"{method.name} releases one column: columns := ['name']")
    columns.check_released(protected, named)
    column = protected.column(named[0])
    if sqltypes.parse(column.sql_type).family == "other":
        raise ArgumentError(
            "columns",
            named,
            f"{method.name} takes texts, numbers and dates; {column.name!r} is {column.sql_type}: cast it to VARCHAR in a view",
        )
    options = method_options(parameters)
    domain = Domain((open_attribute(column.name, column.sql_type),))
    universe = universes.resolve(context, protected, column, options) if method.universe else None
    delta = no_delta(method, parameters) if method.universe else _selection_delta(protected, parameters["delta"])
    contract = contract_of(protected, domain)
    with naming_epsilon(parameters):
        price = method.price(contract, exact_epsilon(parameters), delta, options, universe.size if universe else 0)
    release_plan = Plan(
        domain=domain,
        cliques=((0,),),
        scales=() if price.scale is None else (price.scale,),
        mechanism=price.mechanism,
        public_total=False,
        method=method.name,
        options=options,
        parameters={**price.parameters, **({"universe": universe.fingerprint} if universe else {})},
        open=True,
    )
    notes = (*price.notes, *((universe.note,) if universe else ()))
    return Planned(release_plan, calibration_of(protected, price, float(delta)), (), notes)


def _selection_delta(protected: ProtectedSource, stated: float | None) -> Fraction:
    """Return the delta of a stable selection: a share of the source's under 'zcdp'; under 'basic' it has to be named."""
    budget = protected.protection.budget
    if stated is not None:
        return Fraction(repr(stated))
    if budget.accountant == "zcdp":
        return Fraction(selection_delta(budget.delta))
    raise ArgumentError("delta", None, "under the 'basic' accountant name what a selection may spend, e.g. delta := 1e-10")
