"""Plan a synthetic database: which blocks of linked tables are measured, and the noise that its price buys. No row is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from dpsql.accounting import Calibration, calibrate
from dpsql.calls.buying import BuyingCall
from dpsql.calls.schemas import SynthesizeTablesCall
from dpsql.domains.attributes import Domain
from dpsql.errors import ArgumentError, DomainError
from dpsql.kinds import fine
from dpsql.kinds.linked.schema import Schema, schema_of
from dpsql.kinds.planned import Planned, release_delta, total_is_public
from dpsql.methods import nested_classes
from dpsql.methods.nested_classes import Block
from dpsql.noise.discrete import MAXIMUM_LAPLACE_SCALE, MAXIMUM_SIGMA
from dpsql.protected.source import ProtectedSource
from dpsql.release.linked import MOST_BLOCKS, LinkedPlan, LinkedTable, least_share, weight_for
from dpsql.release.plan import Plan
from dpsql.session.instance import Context

MAX_CELLS = 50_000_000
_SPARE = Fraction(999, 1000)
"""Of the sampler's largest scale: scales are rounded up to a grid."""
_FINE = 100
"""Weight of the row of the largest family from which rounding down takes less than a hundredth."""


def plan(context: Context, protected: ProtectedSource, call: BuyingCall, parameters: Mapping[str, Any]) -> Planned:
    """Plan and price a synthetic database, see `dpsql.kinds.planned.Planner`."""
    if not isinstance(call, SynthesizeTablesCall):
        raise ArgumentError("source", call.operation, "is no call for linked tables")
    schema = schema_of(context, protected, independent=call.independent)
    unweighted = LinkedPlan(schema.tables, (), 1, call.independent)
    blocks = tuple(nested_classes.blocks(unweighted.shape, independent=call.independent))
    _check_size(replace(unweighted, blocks=blocks))
    mechanism = parameters["options"]["mechanism"]
    histograms, shares, part = _weights(unweighted, blocks, mechanism, parameters["options"]["fine"])
    count = len(blocks) + histograms.count
    in_units = _calibrated(protected, parameters, count, shares, 1)
    largest = MAXIMUM_SIGMA if mechanism == "gaussian" else MAXIMUM_LAPLACE_SCALE
    weight = weight_for(float(_SPARE * largest / max(in_units.scales)))
    _check_weight(unweighted, weight, parameters)
    calibration = _calibrated(protected, parameters, count, shares, weight)
    linked = replace(unweighted, blocks=blocks, weight=weight)
    release_plan = Plan(
        domain=Domain(()),
        cliques=(),
        scales=calibration.scales[: len(blocks)],
        mechanism=mechanism,
        public_total=units_are_public(protected, schema.tables),
        method=None,
        options={"effort": parameters["options"]["effort"]},
        blocks=linked.lengths,
        fine=histograms.columns(calibration.scales[len(blocks) :], mechanism),
        linked=linked,
    )
    told = fine.notes(linked.domain, histograms, part)
    return Planned(release_plan, calibration, schema.left_out, (*_notes(schema, linked, release_plan), *told, *calibration.notes))


def _weights(
    linked: LinkedPlan, blocks: Sequence[Block], mechanism: str, option: Any
) -> tuple[fine.FineWanted, tuple[float, ...] | None, float]:
    """Return the fine histograms of automatic columns, the shares of all blocks and of their levels, and the levels' part.

    Under Laplace noise, which knows no shares, these are None.
    """
    histograms = fine.fine_wanted(linked.domain, option, rows=False)
    if mechanism != "gaussian":
        histograms = fine.shallow(histograms, len(blocks))
        return histograms, None, histograms.count / (len(blocks) + histograms.count)
    shares = [float(share) for share in nested_classes.shares(linked.shape, blocks, independent=linked.independent)]
    others = [share for share, block in zip(shares, blocks, strict=True) if block.right is not None]
    two_way = min(others) if others else min(shares)
    each = fine.level_weight(sum(shares) / two_way, histograms, option) * two_way
    return histograms, (*shares, *(each,) * histograms.count), each * histograms.count / (sum(shares) + each * histograms.count)


def _calibrated(
    protected: ProtectedSource, parameters: Mapping[str, Any], blocks: int, shares: Sequence[float] | None, weight: int
) -> Calibration:
    """Return the noise of blocks in which every unit adds at most ``weight``: that of tables with so many rows a unit."""
    protection = protected.protection
    options = parameters["options"]
    return calibrate(
        mechanism=options["mechanism"],
        tables=blocks,
        epsilon=parameters["epsilon"],
        delta=release_delta(protected, parameters["delta"], options["mechanism"]),
        neighbors=protection.neighbors,
        max_contributions=weight,
        accountant=protection.budget.accountant,
        calibration=options["accountant"],
        weights=shares,
    )


def units_are_public(protected: ProtectedSource, tables: Sequence[LinkedTable]) -> bool:
    """Return whether the number of units that are counted is public.

    Under replace_one, where every unit has exactly one row of the root that is counted: none is dropped, none has a key that is
    NULL, and no rows without a parent are a unit of their own, for which another one could stand.
    """
    root, unit = tables[0], protected.protection.privacy_unit
    whose = [unit] if unit is not None else [str(t.referred) for t in tables if t.parent == 0]
    nullable = {column.name: column.nullable for column in protected.source.columns}
    named = {name.lower(): value for name, value in nullable.items()}
    whole = not any(named.get(name.lower(), True) for name in whose) and all(t.orphans == "drop" for t in tables)
    return whole and total_is_public(protected, root.domain)


def _check_size(linked: LinkedPlan) -> None:
    if not linked.blocks:
        raise DomainError("there is nothing to measure: declare columns of the tables with dp_declare")
    cells = linked.most_cells
    if cells > MAX_CELLS or len(linked.blocks) > MOST_BLOCKS:
        largest = max(zip(linked.lengths, linked.blocks, strict=True), key=lambda sized: sized[0])[1]
        where = {linked.tables[place[0]].name for place in (largest.left, largest.right) if place is not None}
        raise DomainError(
            f"the blocks of linked tables have {cells:,} cells, more than {MAX_CELLS:,}; the largest are of "
            f"{', '.join(sorted(where))}: declare coarser bins or fewer categories, or link with a smaller max_rows"
        )


def _check_weight(linked: LinkedPlan, weight: int, parameters: Mapping[str, Any]) -> None:
    least = least_share(linked.tables, pairs=not linked.independent)
    if least > weight:
        raise ArgumentError(
            "epsilon",
            parameters["epsilon"],
            f"leaves a unit {weight:,} parts, and families of max_rows rows would need {least:,}: ask for a larger "
            "epsilon, or link with a smaller max_rows",
        )


def _notes(schema: Schema, linked: LinkedPlan, plan: Plan) -> list[str]:
    names = ", ".join(table.name for table in schema.tables[1:])
    sentences = [
        f"a row of {schema.tables[0].name} is one unit; linked to it: {names}; {linked.weighing}",
        *schema.notes,
    ]
    if linked.independent:
        sentences.append("independent: each table by itself has the same part of the loss; rows are given to parents at random")
    elif any(table.most > 1 for table in linked.tables):
        sentences.append(
            f"tables of rows are split by up to {nested_classes.GROUPS} groups of numbers of rows of one parent row, cut from the "
            "released numbers: a unit is in one cell of them together, as before"
        )
    scales = sorted({float(scale) / linked.one(block) for scale, block in zip(plan.scales, linked.blocks, strict=True)})
    of = "rows" if linked.independent else "units"
    sentences.append(f"noise scale in {of}: {scales[0]:.4g}" + (f" to {scales[-1]:.4g}" if scales[-1] > scales[0] else ""))
    if not linked.independent and linked.weight < _FINE * least_share(schema.tables):
        sentences.append("shares of the largest families are rounded down by over 1 %: a smaller max_rows, or more epsilon, helps")
    return sentences
