"""Plan counts of tuples, level by level."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpsql import methods
from dpsql.accounting import Calibration, sensitivities
from dpsql.calls.buying import BuyingCall
from dpsql.errors import ArgumentError
from dpsql.kinds import fine
from dpsql.kinds.planned import Planned, check_meant, contract_of, measurable, method_options, release_delta
from dpsql.kinds.tuples import pricing
from dpsql.protected.source import ProtectedSource
from dpsql.release.plan import Plan
from dpsql.session.instance import Context
from dpsql.tables.tuple_index import tuple_index


def plan(context: Context, protected: ProtectedSource, call: BuyingCall, parameters: Mapping[str, Any]) -> Planned:
    """Plan and price the levels of a call, see `dpsql.kinds.planned.Planner`."""
    method, options = call.release_method, method_options(parameters)
    if not methods.counts_tuples(method):
        raise ArgumentError("method", parameters["method"], "counts no tuples")
    to_measure = measurable(protected, call, parameters, options)
    domain, measured = to_measure.domain, to_measure.tables
    delta = release_delta(protected, parameters["delta"], "gaussian")
    if not delta:
        raise ArgumentError("delta", delta, "Gaussian noise needs a delta above 0, e.g. delta := 1e-10")
    protection = protected.protection
    contract = contract_of(protected, domain)
    tuples = method.tuples(domain, options, parameters["epsilon"], delta)
    histograms = fine.fine_wanted(domain, "auto", rows=False)
    price = pricing.price(tuples, contract, parameters["epsilon"], delta, protection.budget.accountant, histograms.count)
    index = tuple_index(tuples.sizes, tuples.length)
    scales = [price.scales[len(clique) - 1] for clique in index.cliques]
    release_plan = Plan(
        domain=domain,
        cliques=measured.cliques,
        scales=(*scales, price.rows_scale) if price.rows_scale is not None else tuple(scales),
        mechanism="gaussian",
        public_total=contract.public_total,
        method=method.name,
        options=options,
        parameters=price.parameters,
        sparse=True,
        fine=histograms.columns(price.fine_scales, "gaussian"),
    )
    _, l2 = sensitivities(protection.neighbors, protection.max_contributions)
    notes = method.notes(domain, price.scales, parameters["epsilon"], delta, l2, options)
    check_meant(protected, call, to_measure)
    calibration = Calibration("gaussian", release_plan.scales, price.charge, price.calibration)
    notes = (*fine.notes(domain, histograms, fine.SHARE), *notes)
    return Planned(release_plan, calibration, to_measure.left_out, (*measured.notes, *notes))
