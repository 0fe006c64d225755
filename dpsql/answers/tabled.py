"""Numbers of rows of a query as sums of the cells of a released table of counts. Post-processing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from sqlglot import exp

from dpsql.answers.held import Held
from dpsql.domains.attributes import Domain
from dpsql.estimates.measures import Measure
from dpsql.protected.source import ProtectedSource, catalog_of
from dpsql.queries.asked import Asked
from dpsql.queries.leaves import Facts, base_table
from dpsql.queries.lineage import Leaf, Lineage
from dpsql.queries.purchase import QueryPurchase
from dpsql.release.plan import Plan
from dpsql.release.queried import Numbers, QueryPlan
from dpsql.release.store import Release
from dpsql.session.instance import Context
from dpsql.text.names import fold


def fits(context: Context, source: ProtectedSource, call: QueryPurchase) -> bool:
    """Return whether a question is one of numbers of rows of the whole table, bounded and grouped as tables of counts are."""
    said, asked = call.call, call.asked
    plain = said.max_groups is None and said.max_rows_per_group is None and said.min_units is None and said.groups != "private"
    rows = all(w.function == "count" and not w.arguments and w.condition is None and w.there is None for w in asked.wanted)
    if not plain or not rows or not asked.wanted:
        return False
    if {name for name, value in asked.source.args.items() if value} - {"from_", "from", "expressions"}:
        return False
    clause = asked.source.args.get("from_") or asked.source.args.get("from")
    if clause is None or not isinstance(clause.this, exp.Table):
        return False
    if {name for name, value in clause.this.args.items() if value} - {"this", "db", "catalog", "alias"}:
        return False
    return base_table(context, catalog_of(context), clause.this) == source.source.table  # not a view


def from_table(context: Context, source: ProtectedSource, asked: Asked, release: Release) -> Held | None:
    """Return numbers of rows by declared categories, summed from a released table of the whole protected table."""
    columns = _columns(context, asked)
    plan = release.plan
    if columns is None or plan.query is not None or plan.method is not None or plan.units or plan.coarse:
        return None
    contract = (release.manifest.get("privacy_unit"), release.manifest.get("max_contributions", 1))
    if contract != (source.protection.privacy_unit, source.protection.max_contributions):
        return None
    places = {fold(name): i for i, name in enumerate(plan.domain.names)}
    if not set(columns) <= set(places):
        return None
    wanted = [places[name] for name in columns]
    attributes = [plan.domain.attributes[i] for i in wanted]
    if any(a.kind != "categorical" or a.outside == "other" for a in attributes):
        return None
    fitting = [
        (float(plan.scales[i]) * math.sqrt(plan.domain.cells(clique)), i, clique)
        for i, clique in enumerate(plan.cliques) if set(wanted) <= set(clique)
    ]  # fmt: skip
    if not fitting:
        return None
    _, place, clique = min(fitting)
    if any(plan.domain.attributes[i].outside == "drop" for i in set(range(len(plan.domain.attributes))) - set(wanted)):
        return None  # rows that dp_query counts
    table = release.statistics(context.cursor).tables[clique]
    kept = table.sum(axis=tuple(i for i, attribute in enumerate(clique) if attribute not in wanted))
    order = [sorted(wanted).index(i) for i in wanted]
    counts = np.transpose(kept, order).reshape(-1, 1) if wanted else np.asarray(kept).reshape(1, 1)
    labels = [list(a.labels()) for a in attributes]
    groups: list[tuple[str | None, ...]] = [()]
    for each in labels:
        groups = [(*group, label) for group in groups for label in each]
    added = plan.domain.cells(clique) // math.prod(len(each) for each in labels)
    query = QueryPlan(
        keys=tuple(a.sql_type for a in attributes), measures=(Measure("count"),), public=True, groups=len(groups), groups_sql="",
        unit=source.protection.privacy_unit is not None, max_rows=source.protection.max_contributions, max_groups=None,
        max_rows_per_group=None, asked=tuple(w.text for w in asked.wanted),
    )  # fmt: skip
    made = Plan(
        Domain(()), (), (plan.scales[place],), plan.mechanism, public_total=False, method=None, options={}, query=query
    )
    numbers = Numbers(groups, [np.asarray(counts, dtype=np.int64)])
    whole = Held(release.identifier, str(release.manifest["sha256"]), made, numbers, {}, wanted=asked.wanted)
    if added == 1:
        return whole
    said = (f"each number is the sum of {added:,} noisy cells of a table",)
    return replace(whole, added=np.full(len(groups), added, np.int64), said=said)


def _columns(context: Context, asked: Asked) -> Sequence[str] | None:
    """Return the columns of the table that the keys copy, folded; None where a key is anything else."""
    facts = Facts(context)
    lineage = Lineage(asked.source, facts.names)
    found = []
    for key in asked.keys:
        origin = lineage.origin(key) if hasattr(key, "parts") else None
        if not origin or len(origin) != 1 or not isinstance(origin[0], Leaf):
            return None
        found.append(fold(origin[0].name))
    return found
