"""Which kind of statistics a call asks for, and its plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from dpsql.accounting import Calibration
from dpsql.calls.buying import BuyingCall
from dpsql.calls.schemas import SynthesizeTablesCall
from dpsql.calls.tables import ContributionsCall
from dpsql.calls.values import BoundsCall
from dpsql.errors import DomainError
from dpsql.kinds.bounds.plan import plan as bounds
from dpsql.kinds.drawn.plan import plan as drawn
from dpsql.kinds.linked.plan import plan as linked
from dpsql.kinds.open.plan import plan as open_values
from dpsql.kinds.planned import Planner
from dpsql.kinds.query.plan import plan as query
from dpsql.kinds.tables.plan import plan as tables
from dpsql.kinds.tuples.plan import plan as tuples
from dpsql.kinds.units.plan import plan as units
from dpsql.kinds.which import Kind, kind_of
from dpsql.protected.ruled import in_force
from dpsql.protected.source import ProtectedSource
from dpsql.queries.purchase import QueryPurchase
from dpsql.release.plan import Plan
from dpsql.rules.effects import effect
from dpsql.session.instance import Context

_PLANNERS: dict[Kind, Planner] = {
    "tables": tables, "units": units, "tuples": tuples, "drawn": drawn, "open": open_values, "query": query,
    "linked": linked,
}


@dataclass(frozen=True)
class Request:
    """A call that could be bought: its canonical parameters, its plan and its price.

    ``parameters`` identify what is bought: another value of one of them is another release.
    """

    operation: str
    name: str
    parameters: Mapping[str, Any]
    plan: Plan
    calibration: Calibration
    left_out: tuple[str, ...]
    notes: tuple[str, ...]


def planner_of(call: BuyingCall) -> Planner:
    """Return the planner of the kind of statistics that a call asks for."""
    if isinstance(call, BoundsCall):
        return bounds
    return _PLANNERS[kind_of(
        call.release_method, units=isinstance(call, ContributionsCall), query=isinstance(call, QueryPurchase),
        linked=isinstance(call, SynthesizeTablesCall),
    )]


def request(context: Context, protected: ProtectedSource, call: BuyingCall) -> Request:
    """Plan and price a call.

    Raises
    ------
    ArgumentError, DomainError, CalibrationError
        Something is missing or out of range. Nothing has been charged, no row was read.

    Notes
    -----
    Within a call of dpsql the same purchase of the same source is planned once: a query is rehearsed by the plan that it is charged
    by. That the contract of the plan is still in force is checked where it is charged (`Ledger.charge`).
    """
    requests: dict[int, tuple[ProtectedSource, BuyingCall, Request]] = context.known.setdefault("planned", {})
    source, asked, done = requests.get(id(call), (None, None, None))
    if done is None or source is not protected or asked is not call:
        parameters = call.canonical()
        planned = planner_of(call)(context, protected, call, parameters)
        plan = _ruled(context, protected, planned.plan)
        done = Request(call.operation, call.release_name, parameters, plan, planned.calibration, planned.left_out, planned.notes)
        requests[id(call)] = protected, call, done
    return done


def _ruled(context: Context, protected: ProtectedSource, plan: Plan) -> Plan:
    """Return the plan with the rules that its rows are to obey. Privacy: the books and the catalog are read, no row.

    Raises
    ------
    DomainError
        A column was declared anew, and no value of its domain obeys a rule: nothing that is bought could be drawn.
    """
    if plan.method is None or plan.units:
        return plan
    rules = [ruled.rule for ruled in in_force(context.cursor, protected, plan.domain)]
    for rule in rules if not plan.open else ():
        cells = effect(context.cursor, rule, plan.domain).impossible
        if cells is not None and cells.all():
            raise DomainError(
                f"rule {rule.text[:200]}: no value of the declared domain obeys it. Declare {list(rule.columns)!r} again, "
                "or take the rule back: dp_rule(source, rule, remove := true)"
            )
    return replace(plan, rules=tuple(rule.text for rule in rules))
