"""Plan the histogram of rows per unit: one table in which every unit counts once, whatever max_contributions is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpsql.calls.buying import BuyingCall
from dpsql.domains import unit_rows
from dpsql.errors import ArgumentError
from dpsql.kinds.planned import Planned, one_table
from dpsql.protected.source import ProtectedSource
from dpsql.session.instance import Context


def plan(context: Context, protected: ProtectedSource, call: BuyingCall, parameters: Mapping[str, Any]) -> Planned:
    """Plan and price the histogram, see `dpsql.kinds.planned.Planner`."""
    held = protected.protection
    if held.privacy_unit is None:
        raise ArgumentError(
            "source",
            protected.key,
            "has no privacy_unit: every row is a unit of its own. CALL dp_protect(..., privacy_unit := 'column', "
            "max_contributions := ...) declares one before anything is bought",
        )
    note = f"counts units ({held.privacy_unit}), each once: the noise does not depend on max_contributions"
    return one_table(protected, parameters, unit_rows.domain(), parameters["mechanism"], note, max_contributions=1, units=True)
