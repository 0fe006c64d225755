"""Plan a release that the method draws itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dpsql import methods
from dpsql.calls.buying import BuyingCall
from dpsql.errors import ArgumentError
from dpsql.kinds import fine
from dpsql.kinds.drawn.wants import wanted
from dpsql.kinds.planned import (
    Planned,
    calibration_of,
    contract_of,
    exact_epsilon,
    method_options,
    naming_epsilon,
)
from dpsql.protected.source import ProtectedSource
from dpsql.release.plan import Plan
from dpsql.session.instance import Context


def plan(context: Context, protected: ProtectedSource, call: BuyingCall, parameters: Mapping[str, Any]) -> Planned:
    """Plan and price what the method draws, see `dpsql.kinds.planned.Planner`."""
    method, options = call.release_method, method_options(parameters)
    if not methods.is_drawn(method):
        raise ArgumentError("method", parameters["method"], "draws nothing itself")
    to_measure = wanted(protected, call, parameters, method, options)
    unbinned = method.values(to_measure.domain, options)
    domain, measured = fine.without_automatic(to_measure.domain, unbinned), to_measure.tables
    contract = contract_of(protected, domain)
    histograms = fine.fine_wanted(domain, "auto", rows=False, unbinned=unbinned)
    histograms = fine.shallow(histograms, 8)
    epsilon, levels = fine.pure_share(exact_epsilon(parameters), histograms, contract.neighbors, contract.max_contributions)
    with naming_epsilon(parameters):
        price = method.price(domain, contract, epsilon, options)
    price = replace(price, events=(*price.events, *(event for event in (levels,) if event is not None)))
    release_plan = Plan(
        domain=domain,
        cliques=measured.cliques,
        scales=() if price.scale is None else (price.scale,),
        mechanism=price.mechanism,
        public_total=contract.public_total,
        method=method.name,
        options=options,
        blocks=method.lengths(domain, options),
        parameters=price.parameters,
        fine=() if levels is None else histograms.columns((levels.scale,) * levels.count, "laplace"),
    )
    notes = (*measured.notes, *fine.notes(domain, histograms, float(fine.PURE_SHARE)), *price.notes)
    return Planned(release_plan, calibration_of(protected, price, 0.0), to_measure.left_out, notes)
