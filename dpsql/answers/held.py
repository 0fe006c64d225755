"""Released numbers that answer a query: those of its own release, or of another one that holds them. Post-processing."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import duckdb
import numpy as np

from dpsql.books.entries import canonical_json
from dpsql.domains.attributes import Domain
from dpsql.errors import DpsqlError, LedgerError, ReleaseError
from dpsql.estimates.measures import Measure
from dpsql.protected.source import ProtectedSource
from dpsql.queries.asked import Asked
from dpsql.queries.estimating import Estimates
from dpsql.queries.leaves import facts_of
from dpsql.queries.lineage import Leaf, Lineage
from dpsql.queries.purchase import QueryPurchase
from dpsql.release.plan import Plan
from dpsql.release.queried import Numbers, QueryPlan, numbers
from dpsql.release.store import Release
from dpsql.rows import drawing
from dpsql.session.instance import Context
from dpsql.source.model import quoted
from dpsql.text.bounded_json import load
from dpsql.text.names import fold

_Stored = tuple[str, str, dict[str, Any]]
"""Name, operation and parameters of a stored release."""


@dataclass(frozen=True)
class Held:
    """Numbers that answer a question.

    Parameters
    ----------
    release : str
        Identifier of the release that they are from.
    seed : str
        What the draws of intervals are seeded with: the release's hash.
    plan : Plan
        Whose ``query`` says what was measured.
    numbers : Numbers
    question : mapping
        ``arguments`` and ``conditions``: texts, in the order of the positions in the plan.
    bought : str
        When, in ISO format; empty where that is not known.
    views : str or None
        What the views that were read said then (`dpsql.source.model.Source.views`), where this DuckDB writes them as it did.
    """

    release: str
    seed: str
    plan: Plan
    numbers: Numbers
    question: Mapping[str, Any]
    bought: str = ""
    views: str | None = None

    @cached_property
    def estimates(self) -> Estimates:
        """What the numbers say of each aggregate."""
        return Estimates(self.plan, [np.asarray(block, dtype=np.float64) for block in self.numbers.blocks])


@dataclass(frozen=True)
class Part:
    """Released numbers that answer one grouping set of a core."""

    asked: Asked
    held: Held
    protected: ProtectedSource


def of_release(context: Context, release: Release) -> Held:
    """Return what a release of a query holds.

    Raises
    ------
    ReleaseError
        It is not one, or its file was edited.
    """
    plan = release.plan
    if plan.query is None:
        raise ReleaseError(f"release {release.identifier!r} is not the answer of a query")
    statistics = release.statistics(context.cursor)
    answer = numbers(plan.query, np.asarray(statistics.blocks[0]), statistics.values)
    manifest = release.manifest
    question, bought = manifest["parameters"]["query"], str(manifest["created"])
    views = manifest.get("views") if manifest.get("versions", {}).get("duckdb") == duckdb.__version__ else None
    return Held(release.identifier, str(manifest["sha256"]), plan, answer, question, bought, views)


def known(context: Context, source: ProtectedSource, call: QueryPurchase) -> tuple[Held, Asked] | None:
    """Return released numbers that already answer what is asked, at no smaller epsilon, and as what; None where there are none."""
    ways = [replace(call, asked=asked) for asked in _ways(call)]
    counted = any(_is_counted(source, way) for way in ways)
    rows = [canonical_json(way.asked.canonical()["rows"]) for way in ways]
    answers = stored(source, rows, source.key if counted else None)
    for way in ways:
        there = _known(context, source, way, answers)
        if there is not None:
            return there, way.asked
    return None


def _ways(call: QueryPurchase) -> Iterator[Asked]:
    """Give the question of a purchase, in every way of asking it."""
    asked: Asked | None = call.asked
    while asked is not None:
        yield asked
        asked = asked.written


def may_answer(call: QueryPurchase, question: object) -> bool:
    """Return whether a stored question has the keys and aggregates that are asked for, in one way of asking."""
    return any(_holds(question, asked.canonical()) for asked in _ways(call))


def _holds(question: object, wanted: Mapping[str, Any]) -> bool:
    """Return whether a stored question is of the same rows and groups as another one, and has all of its aggregates."""
    if not isinstance(question, dict) or any(question.get(key) != wanted[key] for key in ("rows", "keys")):
        return False
    return set(wanted["aggregates"]) <= set(question["aggregates"])


def _known(context: Context, source: ProtectedSource, call: QueryPurchase, answers: Sequence[_Stored]) -> Held | None:
    wanted, counted = call.asked.canonical(), _is_counted(source, call)
    # what this call itself has bought comes before what is more accurate: asked again it gives the same
    for name, operation, parameters in sorted(answers, key=lambda one: not _is_its_own(call, wanted, one[2])):
        with suppress(ReleaseError, LedgerError, DpsqlError):
            if operation == "query":
                if _holds(parameters.get("query"), wanted) and _bounded_alike(call, parameters) and _read_alike(source, name):
                    release = drawing.of_ledger(context, source.ledger, name)
                    if release is not None:
                        return of_release(context, release)
            elif counted and _cheap_enough(call, parameters):
                release = drawing.of_ledger(context, source.ledger, name) if _read_alike(source, name) else None
                summed = None if release is None else _from_tables(context, source, call.asked, release)
                if summed is not None:
                    return summed
    return None


def _is_its_own(call: QueryPurchase, wanted: Mapping[str, Any], parameters: Mapping[str, Any]) -> bool:
    """Return whether a release was bought by the same question at the same epsilon."""
    question = parameters.get("query")
    if not isinstance(question, dict) or call.epsilon is None or _epsilon(parameters) != call.epsilon:
        return False
    return _holds(question, wanted) and set(question["aggregates"]) == set(wanted["aggregates"])


def _read_alike(source: ProtectedSource, name: str) -> bool:
    """Return whether a release has read its tables by the links of today: else it is of other rows, or keeps others of a unit."""
    if not source.reads.links:
        return True
    then = source.ledger.links_of(name)
    return all(then.get(link.source) == link for link in source.reads.links)


def _bounded_alike(call: QueryPurchase, parameters: Mapping[str, Any]) -> bool:
    """Return whether a question was bought as it is asked for now, at no smaller epsilon."""
    if set(call.differing(parameters)) - {"epsilon", "query", "weights", "bounds_share"}:
        return False
    return _cheap_enough(call, parameters)


def _cheap_enough(call: QueryPurchase, parameters: Mapping[str, Any]) -> bool:
    return call.epsilon is None or float(str(parameters["epsilon"])) >= call.epsilon


def _is_counted(source: ProtectedSource, call: QueryPurchase) -> bool:
    """Return whether numbers of all rows are asked for, which are bounded, and groups chosen, as in tables of counts."""
    said, asked = call.call, call.asked
    if (said.max_groups, said.max_rows_per_group, said.max_rows, said.min_units) != (None,) * 4 or said.groups == "private":
        return False
    rows = all(w.function == "count" and not w.arguments and w.condition is None and w.there is None for w in asked.wanted)
    return rows and bool(asked.wanted) and asked.rows == _whole(source)


def stored(source: ProtectedSource, rows: Sequence[str], tables: str | None = None) -> list[_Stored]:
    """Return name, operation and parameters of the stored answers over these rows, and of the tables of a source."""
    answers: list[_Stored] = []
    for name, operation, text in source.ledger.stored(rows, tables):
        with suppress(ValueError):
            parameters = load(text)
            if isinstance(parameters, dict):
                answers.append((name, operation, parameters))
    return sorted(answers, key=lambda one: -_epsilon(one[2]))  # the most accurate first


def _epsilon(parameters: Mapping[str, Any]) -> float:
    value = parameters.get("epsilon")
    return float(value) if isinstance(value, int | float) else 0.0


def _from_tables(context: Context, source: ProtectedSource, asked: Asked, release: Release) -> Held | None:
    """Return numbers of rows by declared categories, summed from a released table of the whole protected table."""
    columns = _columns(context, asked)
    plan = release.plan
    if columns is None or plan.query is not None or plan.method is not None or plan.units or plan.coarse:
        return None
    places = {fold(name): i for i, name in enumerate(plan.domain.names)}
    if not set(columns) <= set(places):
        return None
    wanted = [places[name] for name in columns]
    attributes = [plan.domain.attributes[i] for i in wanted]
    if any(a.kind != "categorical" or a.outside == "other" for a in attributes):
        return None
    fitting = [(plan.domain.cells(clique), i, clique) for i, clique in enumerate(plan.cliques) if set(wanted) <= set(clique)]
    if not fitting:
        return None
    cells, place, clique = min(fitting)
    # the smallest released table that has all columns has the least noise once the others are summed out
    table = release.statistics(context.cursor).tables[clique]
    kept = table.sum(axis=tuple(i for i, attribute in enumerate(clique) if attribute not in wanted))
    order = [sorted(wanted).index(i) for i in wanted]
    counts = np.transpose(kept, order).reshape(-1, 1) if wanted else np.asarray(kept).reshape(1, 1)
    labels = [list(a.labels()) for a in attributes]
    groups: list[tuple[str | None, ...]] = [()]
    for each in labels:
        groups = [(*group, label) for group in groups for label in each]
    summed = cells // math.prod(len(each) for each in labels)
    # the sum is shown as the answer of a query that was never bought: its noise is that of the cells that were added up
    query = QueryPlan(
        keys=tuple(a.sql_type for a in attributes), measures=(Measure("count"),), public=True, groups=len(groups), groups_sql="",
        unit=source.protection.privacy_unit is not None, max_rows=source.protection.max_contributions, max_groups=None,
        max_rows_per_group=None, asked=tuple(w.text for w in asked.wanted),
    )
    scale = Fraction(float(plan.scales[place]) * math.sqrt(summed))
    made = Plan(Domain(()), (), (scale,), plan.mechanism, public_total=False, method=None, options={}, query=query)
    numbers_ = Numbers(groups, [np.asarray(counts, dtype=np.int64)])
    return Held(release.identifier, str(release.manifest["sha256"]), made, numbers_, {"arguments": [], "conditions": []})


def _whole(source: ProtectedSource) -> str:
    """Return how a question about all rows of a protected table, and about nothing else, is identified (`Asked.rows`)."""
    table = source.source.table
    name = fold(table.name)
    return f"SELECT 1 FROM {quoted(fold(table.schema), name)} AS {quoted(name)}"  # noqa: S608 -- compared, not run


def _columns(context: Context, asked: Asked) -> Sequence[str] | None:
    """Return the columns of the table that the keys copy, folded; None where a key is anything else."""
    facts = facts_of(context)
    lineage = Lineage(asked.source, facts.names)
    columns = []
    for key in asked.keys:
        origin = lineage.origin(key) if hasattr(key, "parts") else None
        if not origin or len(origin) != 1 or not isinstance(origin[0], Leaf):
            return None
        columns.append(fold(origin[0].name))
    return columns
