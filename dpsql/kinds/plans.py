"""Which kind of statistics a call asks for, and its plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dpsql.accounting import Calibration
from dpsql.calls.buying import BuyingCall
from dpsql.calls.tables import ContributionsCall
from dpsql.calls.values import BoundsCall
from dpsql.kinds.bounds.plan import plan as bounds
from dpsql.kinds.drawn.plan import plan as drawn
from dpsql.kinds.open.plan import plan as open_values
from dpsql.kinds.planned import Planner
from dpsql.kinds.tables.plan import plan as tables
from dpsql.kinds.tuples.plan import plan as tuples
from dpsql.kinds.units.plan import plan as units
from dpsql.kinds.which import Kind, kind_of
from dpsql.protected.source import ProtectedSource
from dpsql.release.plan import Plan
from dpsql.session.instance import Context

_PLANNERS: dict[Kind, Planner] = {"tables": tables, "units": units, "tuples": tuples, "drawn": drawn, "open": open_values}


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
    return _PLANNERS[kind_of(call.release_method, units=isinstance(call, ContributionsCall))]


def request(context: Context, protected: ProtectedSource, call: BuyingCall) -> Request:
    """Plan and price a call.

    Raises
    ------
    ArgumentError, DomainError, CalibrationError
        Something is missing or out of range. Nothing has been charged, no row was read.
    """
    parameters = call.canonical()
    found = planner_of(call)(context, protected, call, parameters)
    return Request(
        call.operation, call.release_name, parameters, found.plan, found.calibration, found.left_out, found.notes
    )
