"""The stored release that answers a question best, without another charge. Post-processing: no row is read.

A release answers a question if it was bought at no smaller epsilon (or the question names none), for the same rows, and gives the
same statistic: the same question with fewer aggregates; other aggregates that its measures give (`dpsql.queries.containing`);
coarser groups, where public groups are parts of them; numbers of rows as sums of cells of a table. Of several the one with the
least noise is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from dpsql.answers import contained, tabled
from dpsql.answers.held import Held, of_release, stored
from dpsql.books.entries import canonical_json
from dpsql.books.links import same_way
from dpsql.errors import DpsqlError
from dpsql.protected.source import ProtectedSource
from dpsql.queries.asked import Wanted
from dpsql.queries.containing import spread, translated
from dpsql.queries.estimating import Estimates
from dpsql.queries.purchase import QueryPurchase
from dpsql.release.store import Release
from dpsql.rows import drawing
from dpsql.session.instance import Context

MOST_COMPARED = 64
"""Releases that are compared, those of the largest epsilon; more are not looked at."""
_NOT_COMPARED = ("epsilon", "query", "weights", "bounds_share")


@dataclass(frozen=True)
class Candidate:
    """A release that answers a question: how noisy the answer is, what gives it, and whether it lacks intervals asked for."""

    spread: float
    held: Callable[[], Held | None]
    without: bool = False


def known(context: Context, source: ProtectedSource, call: QueryPurchase, *, coarser: bool = True) -> Held | None:
    """Return released numbers that already answer what is asked, at no smaller epsilon; None where there are none.

    Of several releases, the one with the least noise, by the mean logarithm of the standard deviations of the aggregates.

    Parameters
    ----------
    coarser : bool
        Whether finer groups may be added up.
    """
    wanted = call.asked.canonical()
    today = contained.Today(context, source, call)
    found: list[Candidate] = []
    for name, operation, query, parameters in stored(source, canonical_json(wanted["rows"]))[:MOST_COMPARED]:
        if not _cheap_enough(call, parameters):
            continue
        if not coarser and not _keys_alike(wanted, parameters):
            continue
        if not _read_alike(source, name):
            continue
        with suppress(DpsqlError):
            candidate = None
            if operation == "query":
                candidate = _of_query(context, source, call, today, name, parameters)
            elif operation == "marginals" and query == source.key and tabled.fits(context, source, call):
                release = drawing.of_ledger(context, source.ledger, name)
                made = None if release is None else tabled.from_table(context, source, call.asked, release)
                if made is not None:
                    candidate = Candidate(_spread(made), _giving(made))
            if candidate is not None:
                found.append(candidate)
    for candidate in sorted(found, key=lambda one: (one.without, one.spread)):
        with suppress(DpsqlError):
            held = candidate.held()
            if held is not None:
                return held
    return None


def _keys_alike(wanted: Mapping[str, Any], parameters: Mapping[str, Any]) -> bool:
    question = parameters.get("query")
    return isinstance(question, dict) and question.get("keys") == wanted["keys"]


def _read_alike(source: ProtectedSource, name: str) -> bool:
    """Return whether a release has read its tables by the links of today, else it is of other rows; max_rows is compared apart."""
    links = source.reads.links
    purchase = source.ledger.purchase(name) if links else None
    then = {} if purchase is None else source.ledger.links(purchase.entry)
    found = ((then.get(link.source), link) for link in links)
    return all(old is not None and same_way(old, link) and old.orphans == link.orphans for old, link in found)


def _cheap_enough(call: QueryPurchase, parameters: Mapping[str, Any]) -> bool:
    return call.epsilon is None or float(str(parameters["epsilon"])) >= call.epsilon


def _spread(held: Held) -> float:
    return spread(held.plan, held.wanted, held.most_added)


def _giving(held: Held) -> Callable[[], Held]:
    return lambda: held


def _of_query(
    context: Context, source: ProtectedSource, call: QueryPurchase, today: contained.Today, name: str, parameters: Mapping[str, Any]
) -> Candidate | None:
    """Return what the release of another query gives, or of the same one."""
    question = parameters.get("query")
    wanted = call.asked.canonical()
    if not isinstance(question, dict) or question.get("rows") != wanted["rows"] or not _stated_alike(call, question):
        return None
    if _same(question, wanted, call, parameters):
        release = drawing.of_ledger(context, source.ledger, name)
        return None if release is None else _same_question(context, call, release)
    if not contained.may_be(call, question, parameters):
        return None
    release = drawing.of_ledger(context, source.ledger, name)
    found = None if release is None else contained.in_release(today, release, question, parameters)
    if found is None or release is None:
        return None
    return Candidate(found.spread, lambda: found.held(context, release), _without(call, release, found.wanted))


def _without(call: QueryPurchase, release: Release, wanted: Sequence[Wanted]) -> bool:
    """Return whether intervals are asked for and cannot be given, for a quantile was drawn: better than to charge again."""
    estimates = Estimates(release.plan, [])
    return call.trees and any(estimates.drawn(one) for one in wanted)


def _same_question(context: Context, call: QueryPurchase, release: Release) -> Candidate | None:
    query = release.plan.query
    if query is None or (query.keys and query.public and not call.asked.wanted and call.call.groups != "public"):
        return None  # which of the groups have rows is asked, and public ones are all there
    wanted = translated(call.asked, release.manifest["parameters"]["query"])
    if wanted is None:
        return None
    return Candidate(spread(release.plan, wanted), lambda: of_release(context, release), _without(call, release, wanted))


def _same(question: Mapping[str, Any], wanted: Mapping[str, Any], call: QueryPurchase, parameters: Mapping[str, Any]) -> bool:
    """Return whether a bought question has the aggregates of another one, by their texts, and is bounded as it is."""
    if question.get("keys") != wanted["keys"] or not set(wanted["aggregates"]) <= set(question["aggregates"]):
        return False
    asked = call.filled(parameters).canonical()
    return all(asked[name] == parameters.get(name) for name in asked if name not in _NOT_COMPARED)


def _stated_alike(call: QueryPurchase, question: Mapping[str, Any]) -> bool:
    """Return whether the bounds that calls of aggregates state are those of a bought question."""
    held, asked = question.get("stated") or {}, call.asked.canonical().get("stated") or {}
    return all(held.get(text) == asked.get(text) for text in call.asked.argument_texts)
