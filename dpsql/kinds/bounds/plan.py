"""Plan the histogram over powers of two that bounds are read off."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpsql.calls.buying import BuyingCall
from dpsql.domains import bounds
from dpsql.domains.attributes import Domain
from dpsql.kinds.planned import Planned, one_table
from dpsql.protected import columns
from dpsql.protected.source import ProtectedSource
from dpsql.session.instance import Context


def plan(context: Context, protected: ProtectedSource, call: BuyingCall, parameters: Mapping[str, Any]) -> Planned:
    """Plan and price the histogram, see `dpsql.kinds.planned.Planner`.

    Privacy: one contingency table of one column, over cells that follow from its type: Gaussian noise under 'zcdp', Laplace noise
    without delta under 'basic'.
    """
    named = list(parameters["columns"])
    columns.check_released(protected, named)
    column, protection = protected.column(named[0]), protected.protection
    mechanism = "gaussian" if protection.budget.accountant == "zcdp" or parameters["delta"] else "laplace"
    return one_table(
        protected,
        parameters,
        Domain((bounds.magnitudes(column.name, column.sql_type, nullable=True),)),
        mechanism,
        "bounds are powers of two, read off a noisy histogram over them",
        max_contributions=protection.max_contributions,
    )
