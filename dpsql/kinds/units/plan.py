"""Plan the histogram of rows per unit: one table in which every unit counts once, whatever max_contributions is.

Of rows per row of a table above a linked one, each row of that table counts once (`dpsql.protected.levels`).

Privacy: the source has one row for each row of ``per`` that has rows linked to it, and that row's unit is the unit of all of them.
So its number depends on one unit's rows alone, and a unit taken away takes its rows of ``per`` with it and changes no other's. Of
a unit at most ``max_contributions`` of them are counted, which for this source is what links allow of ``per``: a unit adds that
much to the sum of all counts at most, all of it to one count at worst. That is the sensitivity of every table of bounded rows, L1
and L2, and the noise is calibrated to the same number by which rows are bounded when they are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpsql.calls.buying import BuyingCall
from dpsql.calls.tables import LevelCall
from dpsql.domains import unit_rows
from dpsql.errors import ArgumentError
from dpsql.kinds.planned import Planned, one_table
from dpsql.protected.source import ProtectedSource
from dpsql.session.instance import Context


def plan(context: Context, protected: ProtectedSource, call: BuyingCall, parameters: Mapping[str, Any]) -> Planned:
    """Plan and price the histogram, see `dpsql.kinds.planned.Planner`."""
    protection = protected.protection
    if protection.privacy_unit is None:
        raise ArgumentError(
            "source",
            protected.key,
            "has no privacy_unit: every row is a unit of its own. CALL dp_protect(..., privacy_unit := 'column', "
            "max_contributions := ...) declares one before anything is bought",
        )
    if isinstance(call, LevelCall):
        most, unit = protection.max_contributions, protection.privacy_unit
        note = f"counts rows of {call.per}, at most {most} of each {unit}, by their number of rows linked to each"
        return one_table(protected, parameters, unit_rows.counted_domain(), parameters["mechanism"], note, max_contributions=most)
    note = f"counts units ({protection.privacy_unit}), each once: the noise does not depend on max_contributions"
    return one_table(protected, parameters, unit_rows.domain(), parameters["mechanism"], note, max_contributions=1, units=True)
