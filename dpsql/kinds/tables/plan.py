"""Plan noisy contingency tables: integer noise whose scales are calibrated to what the call may cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpsql.accounting import calibrate
from dpsql.calls.buying import BuyingCall
from dpsql.kinds import fine
from dpsql.kinds.planned import Planned, check_meant, measurable, method_options, release_delta, total_is_public
from dpsql.protected.source import ProtectedSource
from dpsql.release.plan import Plan
from dpsql.session.instance import Context


def plan(context: Context, protected: ProtectedSource, call: BuyingCall, parameters: Mapping[str, Any]) -> Planned:
    """Plan and price the tables of a call, see `dpsql.kinds.planned.Planner`."""
    to_measure = measurable(protected, call, parameters)
    domain, measured = to_measure.domain, to_measure.tables
    options = parameters.get("options", {})
    mechanism = parameters.get("mechanism") or options["mechanism"]
    protection = protected.protection
    coarse = measured.coarse if mechanism == "gaussian" else ()
    weights = (*(measured.weights or (1.0,) * len(measured.cliques)), *measured.coarse_weights)
    tables = len(measured.cliques) + len(coarse)
    option = fine.option_of(parameters)
    histograms = fine.fine_wanted(domain, option, rows=_draws(call, options))
    if mechanism != "gaussian":
        histograms = fine.shallow(histograms, tables)
    each = fine.level_weight(sum(weights), histograms, option)
    levels = histograms.count
    weights = (*weights, *(each,) * levels)
    share = each * levels / sum(weights) if mechanism == "gaussian" else levels / (tables + levels)
    calibration = calibrate(
        mechanism=mechanism,
        tables=tables + levels,
        epsilon=parameters["epsilon"],
        delta=release_delta(protected, parameters["delta"], mechanism),
        neighbors=protection.neighbors,
        max_contributions=protection.max_contributions,
        accountant=protection.budget.accountant,
        calibration=options.get("accountant"),
        weights=weights if mechanism == "gaussian" and len(set(weights)) > 1 else None,
    )
    release_plan = Plan(
        domain=domain,
        cliques=measured.cliques,
        scales=calibration.scales[:tables],
        mechanism=mechanism,
        public_total=total_is_public(protected, domain),
        method=parameters.get("method"),
        options=method_options(parameters),
        coarse=coarse,
        fine=histograms.columns(calibration.scales[tables:], mechanism),
    )
    check_meant(protected, call, to_measure)
    told = fine.notes(domain, histograms, share, float(calibration.scales[len(measured.cliques) - 1]))
    notes = (*measured.notes, *told, *calibration.notes)
    return Planned(release_plan, calibration, to_measure.left_out, notes)


def _draws(call: BuyingCall, options: Mapping[str, Any]) -> bool:
    """Return whether values are drawn inside bins: in rows, but for those that only say which bin."""
    return call.release_method is not None and options.get("output") != "one_hot"
