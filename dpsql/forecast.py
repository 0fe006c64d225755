"""dp_plan: what a call would measure, cost and take. Computed from the domain and the books; no row is read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from operator import itemgetter
from typing import Any

import numpy as np

from dpsql import arguments, release
from dpsql.accounting import expected_absolute_error, fits, remaining
from dpsql.costs import estimate, too_large
from dpsql.ledger import Purchase
from dpsql.planning import Request, request, spelled
from dpsql.protected import ProtectedSource, resolve
from dpsql.relation import at_least, at_most, inline
from dpsql.release import Plan
from dpsql.session import Context

PLAN_COLUMNS = {
    "operation": "VARCHAR", "method": "VARCHAR", "tables": "INTEGER", "cells": "BIGINT", "mechanism": "VARCHAR",
    "noise_scale": "DOUBLE", "epsilon": "DOUBLE", "delta": "DOUBLE", "rho": "DOUBLE", "affordable": "BOOLEAN", "bought": "BOOLEAN",
    "epsilon_left_after": "DOUBLE", "delta_left_after": "DOUBLE", "rho_left_after": "DOUBLE",
    "expected_error_1way": "DOUBLE", "expected_error_2way": "DOUBLE", "expected_error_3way": "DOUBLE",
    "estimated_seconds": "DOUBLE", "estimated_stages": "MAP(VARCHAR, DOUBLE)", "estimated_memory_mb": "DOUBLE",
    "estimated_for_rows": "BIGINT", "calibration": "VARCHAR",
    "columns": "VARCHAR[]", "left_out": "VARCHAR[]", "notes": "VARCHAR[]", "release": "VARCHAR",
}  # fmt: skip


def plan(context: Context, given: Mapping[str, Any]) -> str:
    """Return the plan of a dp_marginals call (where ``k`` is given) or a dp_synthesize call, as a relation of one row."""
    protected = resolve(context, arguments.text(given, "source"))
    operation = "marginals" if given.get("k") is not None else "synthesize"
    wanted = request(context, protected, operation, spelled(protected, _as_called(operation, given)))
    name = release.release_id(protected.key, operation, protected.query, wanted.name)
    purchase = protected.ledger.purchase(name)
    other = [key for key, value in wanted.parameters.items() if purchase is not None and purchase.parameters.get(key) != value]
    bought = purchase is not None and not other
    charges = protected.ledger.charges()
    budget, charge = protected.protection.budget, wanted.calibration.charge
    affordable = bought or fits(budget, charges, charge)
    after = remaining(budget, charges if bought or not affordable else [*charges, charge])
    rows = arguments.integer(given, "rows", 0, 10**12)
    shown: dict[str, Any] = {
        "operation": operation,
        "method": wanted.plan.method,
        "tables": len(wanted.plan.cliques) + len(wanted.plan.coarse),
        "cells": None if wanted.plan.open else wanted.plan.cells,
        "mechanism": wanted.plan.mechanism,
        "noise_scale": usual_scale(wanted.plan),
        "epsilon": at_most(float(charge.epsilon)),
        "delta": float(charge.delta),
        "rho": at_most(float(charge.rho)),
        "affordable": affordable,
        "bought": bought,
        "epsilon_left_after": at_least(after.epsilon_left),
        "delta_left_after": after.delta_left,
        "rho_left_after": None if after.rho_left is None else at_least(after.rho_left),
        **{f"expected_error_{k}way": expected_error(wanted.plan, k) for k in (1, 2, 3)},
        **estimate(wanted.plan, rows, duckdb_limit_mb(context)),
        "calibration": wanted.calibration.method,
        "columns": list(wanted.plan.domain.names),
        "left_out": list(wanted.left_out),
        "notes": [*_notes(protected, wanted, affordable, rows), *_taken(wanted, purchase, other)],
        "release": name,
    }
    return inline(PLAN_COLUMNS, [[shown[column] for column in PLAN_COLUMNS]])


def _as_called(operation: str, given: Mapping[str, Any]) -> dict[str, Any]:
    if operation == "marginals":
        return {**given, "mechanism": given.get("mechanism") or "gaussian"}
    if given.get("mechanism") is None:
        return dict(given)
    return {**given, "options": {**arguments.options(given), "mechanism": given["mechanism"]}}


def _notes(protected: ProtectedSource, wanted: Request, affordable: bool, rows: int | None) -> list[str]:
    notes = [*wanted.notes, *_scales(wanted.plan)]
    if wanted.left_out:
        notes.append(f"left out, since no domain is declared: {', '.join(wanted.left_out)}")
    if not affordable:
        notes.append("the budget does not cover this call")
    large = too_large(wanted.plan, rows)
    if large is not None:
        notes.append(f"this call would be refused: it {large}")
    if protected.protection.max_contributions > 1:
        notes.append(f"noise covers {protected.protection.max_contributions} rows per {protected.protection.privacy_unit}")
    return notes


def _taken(wanted: Request, purchase: Purchase | None, other: list[str]) -> list[str]:
    """Return what to know where the name of the release is taken."""
    if purchase is None:
        return []
    if other:
        listed = ", ".join(f"{key} = {purchase.parameters.get(key)!r}" for key in other)
        return [f"a release of this name was bought with {listed}: this call would fail; say release := 'another name'"]
    if Plan.from_json(purchase.plan).domain != wanted.plan.domain:
        return ["domains were declared since: the call gives back the stored release, over the domains of then"]
    return []


def usual_scale(plan: Plan) -> float | None:
    """Return the noise scale that most tables have, the largest of equally many; None where there is no such noise."""
    times: dict[Fraction, int] = {}
    for scale, count in plan.scale_runs:
        times[scale] = times.get(scale, 0) + count
    return float(max(times, key=lambda scale: (times[scale], scale))) if times else None


def _scales(plan: Plan) -> list[str]:
    """Return a note that says every kind of table's noise, where it is not all the same."""
    if len(plan.scale_runs) < 2 or plan.sparse or plan.blocks is not None:
        return []
    scales = plan.scale_numbers
    kinds = [(places[0], f"{attributes.shape[1]}-way tables", scales[places]) for places, attributes in plan.orders]
    if plan.coarse:
        kinds.append((len(plan.cliques), "coarse tables", scales[len(plan.cliques) :]))
    parts = []
    for _, kind, found in sorted(kinds, key=itemgetter(0)):
        least, most = found.min(), found.max()
        parts.append(f"{kind} {least:.4g}" + (f" to {most:.4g}" if most > least else ""))
    return [f"noise scales: {', '.join(parts)}"]


def expected_error(plan: Plan, k: int) -> float | None:
    """Return the mean absolute error that noise alone puts on a k-way count of the stored tables, before post-processing.

    A k-way count that was not measured is summed from the smallest table that holds it; None where no table does.
    """
    if plan.open or not plan.scales:
        return None
    wide = [(places, attributes) for places, attributes in plan.orders if attributes.shape[1] >= k]
    if not wide:
        return None
    places, attributes = wide[0]
    runs = [expected_absolute_error(plan.mechanism, scale) for scale, _ in plan.scale_runs]
    one = np.repeat(runs, [count for _, count in plan.scale_runs])[places]
    summed = np.sort(np.asarray(plan.domain.sizes)[attributes], axis=1)[:, : attributes.shape[1] - k].prod(axis=1, dtype=np.float64)
    return math.fsum((one * np.sqrt(summed)).tolist()) / places.size


def duckdb_limit_mb(context: Context) -> float:
    """Return DuckDB's memory_limit in megabytes."""
    row = context.cursor.execute("SELECT current_setting('memory_limit')").fetchone()
    number, unit = (str(row[0]).split() + [""])[:2] if row else ("", "")
    scale = {"bytes": 1e-6, "KiB": 2**10 / 1e6, "MiB": 2**20 / 1e6, "GiB": 2**30 / 1e6, "TiB": 2**40 / 1e6}.get(unit)
    return float(number) * scale if scale else math.inf
