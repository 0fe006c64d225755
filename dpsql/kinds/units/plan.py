"""Plan the histogram of rows per unit: one table in which every unit counts once, whatever max_contributions is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpsql.accounting import calibrate
from dpsql.calls.buying import BuyingCall
from dpsql.domains import unit_rows
from dpsql.errors import ArgumentError
from dpsql.kinds.planned import Planned, release_delta
from dpsql.protected.source import ProtectedSource
from dpsql.release.plan import Plan
from dpsql.session.instance import Context


def plan(context: Context, protected: ProtectedSource, call: BuyingCall, parameters: Mapping[str, Any]) -> Planned:
    """Plan and price the histogram, see `dpsql.kinds.planned.Planner`."""
    held, mechanism = protected.protection, parameters["mechanism"]
    if held.privacy_unit is None:
        raise ArgumentError(
            "source",
            protected.key,
            "has no privacy_unit: every row is a unit of its own. CALL dp_protect(..., privacy_unit := 'column', "
            "max_contributions := ...) declares one before anything is bought",
        )
    calibration = calibrate(
        mechanism=mechanism,
        tables=1,
        epsilon=parameters["epsilon"],
        delta=release_delta(protected, parameters["delta"], mechanism),
        neighbors=held.neighbors,
        max_contributions=1,
        accountant=held.budget.accountant,
        calibration=None,
        weights=None,
    )
    wanted = Plan(
        domain=unit_rows.domain(),
        cliques=((0,),),
        scales=calibration.scales,
        mechanism=mechanism,
        public_total=False,
        method=None,
        options={},
        units=True,
    )
    note = f"counts units ({held.privacy_unit}), each once: the noise does not depend on max_contributions"
    return Planned(wanted, calibration, (), (note,))
