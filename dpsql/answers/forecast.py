"""dp_plan: what a call would measure, cost and take. Computed from the domain and the books; no row is read."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from fractions import Fraction
from operator import itemgetter
from typing import Any

import numpy as np

from dpsql import methods
from dpsql.accounting import charges_of, expected_absolute_error, remaining
from dpsql.answers import held as held_by
from dpsql.answers import kept, link_words, linked_words, query_words, row_bounds, ruled
from dpsql.answers.query import queries
from dpsql.books.entries import Purchase, failure
from dpsql.calls.arguments import MOST_EPSILON
from dpsql.calls.buying import BuyingCall
from dpsql.calls.planning import PlanCall
from dpsql.calls.tables import ContributionsCall, LevelCall, RowsCall
from dpsql.calls.values import BoundsCall, DiscoverCall
from dpsql.domains import sqltypes, unit_rows
from dpsql.errors import ArgumentError, DpsqlError, EngineLost
from dpsql.kinds import measures as measured
from dpsql.kinds.plans import Request, request
from dpsql.protected.columns import asked_order, spelled
from dpsql.protected.levels import at_level
from dpsql.protected.source import ProtectedSource, resolve
from dpsql.purchase import uses
from dpsql.purchase.buying import stopped_text
from dpsql.queries.purchase import QueryPurchase
from dpsql.queries.reading import is_aggregate_query
from dpsql.release.checking import planned
from dpsql.release.costs import estimate, too_large
from dpsql.release.plan import Plan
from dpsql.session.instance import Context
from dpsql.text import readable
from dpsql.text.relation import at_least, at_most, inline

PLAN_COLUMNS = {  # terminals hide those in the middle
    "measures": "VARCHAR", "epsilon": "DOUBLE", "affordable": "BOOLEAN", "noise_scale": "DOUBLE",
    "expected_error_1way": "DOUBLE", "expected_error_2way": "DOUBLE", "expected_error_3way": "DOUBLE",
    "noise_by_contributions": "MAP(INTEGER, DOUBLE)", "bought": "BOOLEAN", "release": "VARCHAR", "columns": "VARCHAR[]",
    "operation": "VARCHAR", "method": "VARCHAR", "tables": "INTEGER", "cells": "BIGINT", "mechanism": "VARCHAR",
    "delta": "DOUBLE", "rho": "DOUBLE", "delta_left_after": "DOUBLE", "rho_left_after": "DOUBLE", "calibration": "VARCHAR",
    "estimated_memory_mb": "DOUBLE", "estimated_for_rows": "BIGINT", "estimated_stages": "MAP(VARCHAR, DOUBLE)",
    "estimated_seconds": "DOUBLE", "epsilon_left_after": "DOUBLE", "left_out": "VARCHAR[]", "notes": "VARCHAR[]",
}
_ORDINAL = {0: "total", 1: "one-way", 2: "two-way", 3: "three-way"}
_MOST_NAMED = 3
NOISE_SCALE = "noise_scale"
_LEAST_EPSILON = 1e-4
_BOUNDED = ("integer", "decimal", "float")
"""Types of which dp_declare(..., discover := true) buys bounds."""


def plan(context: Context, call: PlanCall) -> str:
    """Return the plan of a dp_synthesize(_tables), dp_marginals (with ``k``) or dp_contributions call, as a relation of one row.

    Of an aggregate query: a row for each release that it would buy. With ``options := {'noise_scale': s}`` in the place of an
    epsilon: of the least one with which no release has a larger noise scale.
    """
    most = call.options.get(NOISE_SCALE)
    if NOISE_SCALE in call.options:
        call = _with_epsilon(context, call)
    rows = [row_of(context, *pair, call) for pair in _releases(context, call)]
    if most is not None:  # of several releases each row has its own epsilon
        told = f"epsilon := {call.epsilon:g} is the least of the call with a noise scale of at most {most:g}"
        rows = [[*row[:-1], [told, *row[-1]]] for row in rows]
    return inline(PLAN_COLUMNS, rows)


def _releases(context: Context, call: PlanCall) -> list[tuple[ProtectedSource, BuyingCall]]:
    """Return what a call would buy, with the source of each release."""
    if call.operation == "query" or (call.operation is None and is_aggregate_query(call.source)):
        return [
            (source, variant)
            for source, purchase in queries(context, call.as_query())
            for variant in row_bounds.bought(context, source, purchase)
        ]
    protected = resolve(context, call.source)
    asked: BuyingCall = call.asked()
    if isinstance(asked, ContributionsCall) and asked.per is not None:
        asked = at_level(context, asked)
        protected = resolve(context, asked.source, local=asked.local)
    # of numbers and dates bounds are bought, no list of values
    if isinstance(asked, DiscoverCall) and sqltypes.parse(protected.column(asked.column).sql_type).family in _BOUNDED:
        asked = BoundsCall(asked.source, asked.column, asked.epsilon, asked.delta, asked.release)
    if asked.columns is not None:
        asked = asked.spelled(spelled(protected, asked.columns))
    return [(protected, asked)]


def _with_epsilon(context: Context, call: PlanCall) -> PlanCall:
    """Return a call with the least epsilon, rounded up to three digits, with which no noise scale is above the one that is said.

    Of a query that learns how many rows count first, that histogram's is left aside.
    """
    wanted, rest = call.options[NOISE_SCALE], {name: value for name, value in call.options.items() if name != NOISE_SCALE}
    name = f"options[{NOISE_SCALE!r}]"
    if call.epsilon is not None:
        raise ArgumentError(name, wanted, "leave epsilon out: it is what is looked for")
    if isinstance(wanted, bool) or not isinstance(wanted, int | float) or not 0 < wanted < math.inf:
        raise ArgumentError(name, wanted, "a number above 0 is required: the noise that is wanted, as in the column of that name")

    def largest(epsilon: float) -> float:
        pairs = _releases(context, call.changed(epsilon=epsilon, options=rest))
        kept = [pair for pair in pairs if not isinstance(pair[1], RowsCall)] or pairs
        plans = [request(context, *pair).plan for pair in kept]
        return max(_noise_scale(plan) or 0.0 for plan in plans)

    low, high = _LEAST_EPSILON, float(MOST_EPSILON)
    if largest(high) > wanted:
        raise ArgumentError(name, wanted, f"is below the noise at epsilon := {high:g}, {largest(high):.3g}; ask for less at once")
    while high > 1.0005 * low:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if largest(middle) <= wanted else (middle, high)
    digits = 2 - math.floor(math.log10(high))
    return call.changed(epsilon=min(math.ceil(high * 10**digits) / 10**digits, MOST_EPSILON), options=rest)


def row_of(context: Context, protected: ProtectedSource, asked: BuyingCall, call: PlanCall) -> list[Any]:
    """Return the plan of one release as a row of `PLAN_COLUMNS`."""
    operation = asked.operation
    use = uses.asked(context, protected, asked)
    name = use.release
    # what somebody else has bought is no purchase of hers
    purchase = protected.ledger.purchase(name) if use.hers else None
    if purchase is None:
        uses.check(context, protected, asked)
    if purchase is not None and purchase.operation == operation:
        asked = asked.filled(purchase.parameters)
    # planned as the call would be, with nothing charged and no row read
    requested = request(context, protected, asked)
    differing = [] if purchase is None else asked.differing(purchase.parameters)
    bought = purchase is not None and not differing
    of_name = _taken(requested, purchase, differing)
    of_then = False
    if purchase is not None and bought and not of_name and protected.lineages:  # its links may have allowed another number of rows
        stored = planned(purchase.plan, name)
        of_then = stored.to_json() != requested.plan.to_json()
        requested = dataclasses.replace(requested, plan=stored)
    # a question may be answered by another release, under another name
    stored_answer = held_by.known(context, protected, asked) if isinstance(asked, QueryPurchase) and not bought else None
    if stored_answer is not None:
        bought, name = True, stored_answer[0].release
    unasked = [] if bought else _bound(context, protected, requested.plan)
    # what the budget will have left; what is bought already costs nothing
    (budget, charges), charge = uses.limit(protected), requested.calibration.charge
    affordable = bought or uses.affordable(protected, charge)
    after = remaining(budget, charges if bought or not affordable else charges_of(charges).plus([charge]))
    rows = call.rows
    by_number = _by_contributions(context, protected, asked, requested.plan)
    rules = ruled.effects(context.cursor, requested.plan)
    capped = not isinstance(asked, LevelCall) and (not of_then or requested.plan.query is not None)
    # from here on it is shown, losses rounded up and what is left rounded down
    order = asked_order(call.columns, requested.plan.domain.names)
    shown: dict[str, Any] = {
        "measures": measures(requested.plan, order, protected.protection.privacy_unit),
        "operation": operation,
        "method": requested.plan.method,
        "tables": _tables(requested.plan),
        "cells": None if requested.plan.open else requested.plan.cells,
        "mechanism": requested.plan.mechanism,
        "noise_scale": _noise_scale(requested.plan),
        "noise_by_contributions": _map(by_number),
        "epsilon": at_most(float(charge.epsilon)),
        "delta": float(charge.delta),
        "rho": at_most(float(charge.rho)),
        "affordable": affordable,
        "bought": bought,
        "epsilon_left_after": at_least(after.epsilon_left),
        "delta_left_after": after.delta_left,
        "rho_left_after": None if after.rho_left is None else at_least(after.rho_left),
        **{f"expected_error_{k}way": _rounded(expected_error(requested.plan, k)) for k in (1, 2, 3)},
        **estimate(ruled.breakable(requested.plan, rules), rows, duckdb_limit_mb(context)),
        "calibration": requested.calibration.method,
        "columns": _columns(requested.plan) if not isinstance(asked, QueryPurchase) else _keys(asked),
        "left_out": list(requested.left_out),
        "notes": [
            *of_name,
            *([] if stored_answer is None else [f"answered from release {stored_answer[0].release!r}, free"]),
            *unasked,
            *_notes(protected, requested, affordable, rows),
            *(_capped(context, protected, requested.plan, by_number) if capped else []),
            *link_words.notes(protected, purchase if bought else None),
            *ruled.notes(protected, requested.plan, rules),
        ],
        "release": name,
    }
    return [shown[column] for column in PLAN_COLUMNS]


def _bound(context: Context, protected: ProtectedSource, plan: Plan) -> list[str]:
    """Refuse what the engine that has the rows would refuse before a charge; return a note where it cannot be asked."""
    if protected.remote is None:
        return []
    try:
        measured.bind(context, protected, plan)
    except EngineLost:
        return [f"{protected.remote.engine} cannot be reached now: whether it can compute this is not known"]
    return []


def _tables(plan: Plan) -> int:
    if plan.linked is not None:
        return len(plan.linked.blocks)
    return len(plan.cliques) - _pairs(plan) + len(plan.coarse)


def _noise_scale(plan: Plan) -> float | None:
    if plan.query is not None:
        return query_words.scale(plan)
    return usual_scale(plan) if plan.linked is None else linked_words.scale(plan, plan.linked)


def _columns(plan: Plan) -> list[str]:
    return list(plan.domain.names) if plan.linked is None else linked_words.columns(plan.linked)


def _keys(asked: QueryPurchase) -> list[str]:
    return [readable.expression(text) for text in asked.asked.key_texts]


def measures(plan: Plan, order: Sequence[int], unit: str | None = None) -> str:
    """Return in words which tables a plan measures; ``order``: of the attributes, as the caller named them."""
    if plan.query is not None:
        return query_words.measures(plan.query, unit)
    if plan.linked is not None:
        return linked_words.measures(plan.linked)
    names = [plan.domain.names[position] for position in order]
    if plan.units:
        return "privacy units by their number of rows"
    if plan.open:
        return f"values of {names[0]}"
    if plan.sparse:
        longest = max(len(clique) for clique in plan.cliques)
        return f"combinations of up to {longest} values of {len(names)} columns"
    if len(plan.cliques) == 1 and not plan.coarse and len(plan.cliques[0]) == len(names) <= _MOST_NAMED:
        return f"{' × '.join(names)} ({plan.cells:,} cells)"
    # many columns are counted, and not named
    few = f" of {', '.join(names)}" if len(names) <= _MOST_NAMED else f" of {len(names)} columns"
    parts = []
    if pairs := _pairs(plan):
        parts = [f"{len(names):,} one-way tables", f"{pairs:,} pairwise Kendall tau{'' if pairs == 1 else 's'}"]
    # tables by their order; under a method of pairs the two lines above say all
    for places, attributes in sorted(plan.orders, key=lambda ordered: ordered[1].shape[1]) if not pairs else ():
        k = attributes.shape[1]
        parts.append(f"{places.size:,} {_ORDINAL.get(k, f'{k}-way')} table{'' if places.size == 1 else 's'}")
    if plan.coarse:
        parts.append(f"{len(plan.coarse):,} coarse ones")
    if plan.fine:
        parts.append(f"{len(plan.fine):,} fine histogram{'' if len(plan.fine) == 1 else 's'}")
    return ", ".join(parts) + few


def _pairs(plan: Plan) -> int:
    """Return of how many pairs one number is released: their two-way tables are counted for it, and not released."""
    return max(len(plan.cliques) - len(plan.domain.names), 0) if plan.blocks is not None else 0


def _by_contributions(
    context: Context, protected: ProtectedSource, asked: BuyingCall, plan: Plan
) -> dict[int, float | None]:
    """Return the noise scale of the same call for other bounds on the rows of a unit; nothing where rows are the units."""
    protection = protected.protection
    if protection.privacy_unit is None or plan.units or plan.query is not None or plan.linked is not None:
        return {}
    offered = sorted({*unit_rows.OFFERED, protection.max_contributions})
    scale = usual_scale(plan)
    if scale is not None and methods.measures_tables(methods.of(plan.method)):  # sensitivities, and so scales, are in proportion
        return {most: scale / protection.max_contributions * most for most in offered}
    scales: dict[int, float | None] = {}
    # the scale is not in proportion here: each bound is planned by itself
    for most in offered:
        rebounded = dataclasses.replace(protected, protection=dataclasses.replace(protection, max_contributions=most))
        with suppress(DpsqlError):  # a method may not hold under it, or its noise pass the largest scale
            scales[most] = usual_scale(request(context, rebounded, asked).plan)
    return scales


def _map(numbers: Mapping[int, float | None]) -> str | None:
    """Return a text that DuckDB casts to a MAP."""
    shown = {most: scale for most, scale in numbers.items() if scale is not None}
    return "{" + ", ".join(f"{most}={scale:.6g}" for most, scale in shown.items()) + "}" if shown else None


def _notes(protected: ProtectedSource, requested: Request, affordable: bool, rows: int | None) -> list[str]:
    notes = [*requested.notes, *_scales(requested.plan)]
    if requested.left_out:
        notes.append(f"left out, since no domain is declared: {', '.join(requested.left_out)}")
    if not affordable:
        whose = "the budget" if protected.ledger.limit() is None else "your grant, or the budget of the table,"
        notes.append(f"{whose} does not cover this call")
    # from here on: what would stand in the way of the call itself
    large = too_large(requested.plan, rows)
    if large is not None:
        notes.append(f"this call would be refused: it {large}")
    if requested.operation in ("marginals", "contributions"):
        notes.append("counts are noisy: small ones may come out negative")
    stopped = protected.ledger.stopped(plain=protected.plain)
    if stopped is not None:
        notes.append(f"this call would be refused: {stopped_text(protected, stopped)}")
    if not protected.ledger.chain_holds():
        notes.append("this call would be refused: the ledger was edited, its chain of hashes does not hold")
    return notes


def _capped(context: Context, protected: ProtectedSource, plan: Plan, by_number: Mapping[int, float | None]) -> list[str]:
    """Return what is counted where rows of a unit are bounded, about how many of all rows that is, and what other bounds cost."""
    protection = protected.protection
    words = unit_rows.capped(protection.privacy_unit, protection.max_contributions)
    if plan.query is not None:
        return [
            *query_words.bounding(plan.query, protection.privacy_unit),
            *query_words.limiting(protected.source.limited, protection.privacy_unit),
        ]
    if plan.linked is not None:
        return linked_words.bounding(plan.linked)
    if words is None or plan.units:
        return []
    linked, most = bool(protected.source.linked), protection.max_contributions
    known = kept.estimate(context, protected.ledger, protected.query, most, linked=linked)
    if known is not None:
        words += f", {known.said}"
    notes = [f"{words}; errors and noise are those of the counts of kept rows"]
    scales = ", ".join(f"{most}: {scale:.4g}" for most, scale in by_number.items() if scale is not None)
    if scales:
        notes.append(f"noise scale by max_contributions: {scales}")
    if known is None:
        unit = protection.privacy_unit
        notes.append(f"FROM dp_contributions(source, epsilon := 0.05) sells a noisy histogram of rows per {unit}")
    return notes


def _taken(requested: Request, purchase: Purchase | None, differing: list[str]) -> list[str]:
    """Return what to know where the name of the release is taken."""
    if purchase is None:
        return []
    if differing:
        listed = ", ".join(f"{key} = {purchase.parameters.get(key)!r}" for key in differing)
        return [f"a release of this name was bought with {listed}: this call would fail; say release := 'another name'"]
    if purchase.status == "failed":
        return [str(failure(purchase))]
    # the same name and parameters: what is given back is the release as it was bought
    stored = planned(purchase.plan, purchase.release)
    if stored.linked != requested.plan.linked:
        return ["links or domains were declared since: the call gives back the stored release, of the tables of then"]
    if stored.domain != requested.plan.domain:
        return ["domains were declared since: the call gives back the stored release, over the domains of then"]
    if set(stored.rules) != set(requested.plan.rules):
        return ["rules were declared or taken back since: the call gives back the stored release, over the rules of then"]
    return []


def usual_scale(plan: Plan) -> float | None:
    """Return the noise scale that most tables have, the largest of equally many; None where there is no such noise."""
    times: dict[Fraction, int] = {}
    for scale, count in plan.scale_runs:
        times[scale] = times.get(scale, 0) + count
    return float(max(times, key=lambda scale: (times[scale], scale))) if times else None


def _scales(plan: Plan) -> list[str]:
    """Return a note that says every kind of table's noise, where it is not all the same."""
    if plan.query is not None:
        return query_words.noise(plan)
    if (len(plan.scale_runs) < 2 and not plan.fine) or plan.sparse or plan.blocks is not None:
        return []
    scales = plan.scale_numbers
    kinds = [(places[0], f"{attributes.shape[1]}-way tables", scales[places]) for places, attributes in plan.orders]
    if plan.coarse:
        kinds.append((len(plan.cliques), "coarse tables", scales[len(plan.cliques) :]))
    if plan.fine:
        levels = [float(scale) for column in plan.fine for scale in column.scales]
        kinds.append((len(plan.cliques) + len(plan.coarse), "levels of fine histograms", np.asarray(levels)))
    parts = []
    for _, kind, of_kind in sorted(kinds, key=itemgetter(0)):
        least, most = of_kind.min(), of_kind.max()
        parts.append(f"{kind} {least:.4g}" + (f" to {most:.4g}" if most > least else ""))
    return [f"noise scales: {', '.join(parts)}"]


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.6g}")


def expected_error(plan: Plan, k: int) -> float | None:
    """Return the mean absolute error that noise alone puts on a k-way count of the stored tables, before post-processing.

    A k-way count that was not measured is summed from the smallest table that holds it; None where no table does.
    """
    if plan.open or plan.query is not None or not plan.scales:
        return None
    if plan.linked is not None:
        return linked_words.expected_error(plan, plan.linked, k)
    wide = [(places, attributes) for places, attributes in plan.orders if attributes.shape[1] >= k]
    if not wide:
        return None
    places, attributes = wide[0]
    runs = [expected_absolute_error(plan.mechanism, scale) for scale, _ in plan.scale_runs]
    errors = np.repeat(runs, [count for _, count in plan.scale_runs])[places]
    # a k-way count is read off a wider table: it is a sum over the cells of that one's smallest columns
    summed = np.sort(np.asarray(plan.domain.sizes)[attributes], axis=1)[:, : attributes.shape[1] - k].prod(axis=1, dtype=np.float64)
    return math.fsum((errors * np.sqrt(summed)).tolist()) / places.size


def duckdb_limit_mb(context: Context) -> float:
    """Return DuckDB's memory_limit in megabytes."""
    row = context.cursor.execute("SELECT current_setting('memory_limit')").fetchone()
    number, unit = (str(row[0]).split() + [""])[:2] if row else ("", "")
    scale = {"bytes": 1e-6, "KiB": 2**10 / 1e6, "MiB": 2**20 / 1e6, "GiB": 2**30 / 1e6, "TiB": 2**40 / 1e6}.get(unit)
    return float(number) * scale if scale else math.inf
