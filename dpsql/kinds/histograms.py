"""Plans of one histogram: rows per unit, and powers of two that the bounds of a number are read off."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpsql.accounting import calibrate
from dpsql.calls.buying import BuyingCall
from dpsql.calls.tables import LevelCall, RowsCall
from dpsql.domains import bounds, unit_rows
from dpsql.domains.attributes import Domain
from dpsql.errors import ArgumentError
from dpsql.kinds.planned import Planned, release_delta
from dpsql.protected import columns
from dpsql.protected.source import ProtectedSource
from dpsql.release.plan import Plan
from dpsql.session.instance import Context


def rows_per_unit(context: Context, protected: ProtectedSource, call: BuyingCall, parameters: Mapping[str, Any]) -> Planned:
    """Plan and price the histogram of rows per unit, see `dpsql.kinds.planned.Planner`.

    It is one table in which every unit counts once, whatever max_contributions is. Of rows per row of a table above a linked one,
    each row of that table counts once (`dpsql.protected.levels`).

    Privacy: the source has one row for each row of ``per`` that has rows linked to it, and that row's unit is the unit of all of
    them. So its number depends on one unit's rows alone, and a unit taken away takes its rows of ``per`` with it and changes no
    other's. Of a unit at most ``max_contributions`` of them are counted, which for this source is what links allow of ``per``: a
    unit adds that much to the sum of all counts at most, all of it to one count at worst. That is the sensitivity of every table
    of bounded rows, L1 and L2, and the noise is calibrated to the same number by which rows are bounded when they are read.
    """
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
        return _one_table(protected, parameters, unit_rows.counted_domain(), parameters["mechanism"], note, max_contributions=most)
    note = f"counts units ({protection.privacy_unit}), each once: the noise does not depend on max_contributions"
    buckets = unit_rows.domain(unit_rows.finer(protected.most_rows) if isinstance(call, RowsCall) else unit_rows.LOWER)
    return _one_table(protected, parameters, buckets, parameters["mechanism"], note, max_contributions=1, units=True)


def magnitudes(context: Context, protected: ProtectedSource, call: BuyingCall, parameters: Mapping[str, Any]) -> Planned:
    """Plan and price the histogram over powers of two that bounds are read off, see `dpsql.kinds.planned.Planner`.

    Privacy: one contingency table of one column, over cells that follow from its type: Gaussian noise under 'zcdp', Laplace noise
    without delta under 'basic'.
    """
    named = list(parameters["columns"])
    columns.check_released(protected, named)
    column, protection = protected.column(named[0]), protected.protection
    mechanism = "gaussian" if protection.budget.accountant == "zcdp" or parameters["delta"] else "laplace"
    return _one_table(
        protected,
        parameters,
        Domain((bounds.magnitudes(column.name, column.sql_type, nullable=True),)),
        mechanism,
        "bounds are powers of two, read off a noisy histogram over them",
        max_contributions=protection.max_contributions,
    )


def _one_table(
    protected: ProtectedSource,
    parameters: Mapping[str, Any],
    domain: Domain,
    mechanism: str,
    note: str,
    *,
    max_contributions: int,
    units: bool = False,
) -> Planned:
    """Plan and price the noisy table of a domain of one attribute, for the epsilon and delta of a call.

    Parameters
    ----------
    mechanism : {'gaussian', 'laplace'}
    note : str
        Shown by ``dp_plan``.
    max_contributions : int
        Rows of the table that one privacy unit has, at most.
    units : bool
        Whether each privacy unit is one row of the table.
    """
    protection = protected.protection
    calibration = calibrate(
        mechanism=mechanism,
        tables=1,
        epsilon=parameters["epsilon"],
        delta=release_delta(protected, parameters["delta"], mechanism),
        neighbors=protection.neighbors,
        max_contributions=max_contributions,
        accountant=protection.budget.accountant,
    )
    release_plan = Plan(
        domain=domain,
        cliques=((0,),),
        scales=calibration.scales,
        mechanism=mechanism,
        public_total=False,
        method=None,
        options={},
        units=units,
    )
    return Planned(release_plan, calibration, (), (note,))
