"""Bounds that an earlier release has learned, for a later query of the same rows: nothing is charged for them again.

Privacy: post-processing of released numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from sqlglot import exp

from dpsql.algebra.aggregates import RANKED
from dpsql.answers import held
from dpsql.books.entries import canonical_json
from dpsql.calls.query import ALL
from dpsql.errors import ArgumentError, DpsqlError
from dpsql.estimates.magnitudes import Bounds, beyond
from dpsql.protected.source import ProtectedSource
from dpsql.purchase import uses
from dpsql.queries.naming import canonical, read_expression
from dpsql.queries.purchase import QueryPurchase
from dpsql.queries.reading import Read
from dpsql.release.store import Release
from dpsql.rows import drawing
from dpsql.session.instance import Context
from dpsql.text import readable

_SAME = ("max_groups", "max_rows_per_group", "max_rows")


def check(read_query: Read) -> None:
    """Refuse bounds of what is not in the query, and bounds := {'expression': 'auto'} where no aggregate has this argument.

    A misspelt name must not leave other bounds in force.

    Raises
    ------
    ArgumentError
    """
    inside = {
        canonical(node, qualified=False)
        for _, sets in read_query.asked
        for one in sets
        for tree in (one.source, *one.arguments, *one.conditions, *one.keys)
        for node in tree.walk()
        if isinstance(node, exp.Condition)
    }
    for text, pair in read_query.call.stated_bounds.items():
        if canonical(read_expression(text, "bounds"), qualified=False) not in inside:
            said = "the query has no such column or expression; write it as it stands there"
            raise ArgumentError(f"bounds[{text!r}]", list(pair), said)
    known = {canonical(node, qualified=False) for _, sets in read_query.asked for one in sets for node in one.arguments}
    for text in read_query.call.auto:
        if text != ALL and canonical(read_expression(text, "bounds"), qualified=False) not in known:
            shown = sorted({readable.expression(name) for name in known})
            raise ArgumentError(f"bounds[{text!r}]", "auto", f"bounds are learned of what is aggregated, as written there: {shown}")


def reused(context: Context, source: ProtectedSource, call: QueryPurchase) -> QueryPurchase:
    """Return a purchase with the bounds that stored releases have learned of its arguments; as it is where it was charged."""
    if not call.call.auto or call.learned:
        return call
    if source.ledger.limit() is not None and call.release is None:
        if uses.hers(source, call) is not None:
            return call
    elif source.ledger.purchase(uses.asked(context, source, call).release) is not None:
        return call
    best: dict[str, tuple[float, Bounds]] = {}
    wanted = call.canonical()
    for stored, _, parameters in held.stored(source, [canonical_json(wanted["query"]["rows"])]):
        if any(parameters.get(key) != wanted.get(key) for key in _SAME):
            continue
        question = parameters.get("query")
        if not isinstance(question, dict) or question.get("rows") != wanted["query"]["rows"]:
            continue
        own = set(question.get("arguments") or ()) - set(parameters.get("learned") or ())  # whose bounds it may have learned itself
        if not parameters.get("bounds_share") or own.isdisjoint(call.asked.argument_texts):
            continue
        with suppress(DpsqlError):
            release = drawing.bought(context, source.books, stored)
            if release is not None:
                _take(best, release, question, call)
    return call.changed(learned={text: bounds for text, (_, bounds) in best.items()})


def _take(best: dict[str, tuple[float, Bounds]], release: Release, question: Mapping[str, Any], call: QueryPurchase) -> None:
    """Add what a release has learned of the arguments of a query, where nothing less noisy is there."""
    query, refinement = release.planned.query, release.refinement
    if query is None or refinement is None:
        return
    for one, chosen in zip(query.learning, refinement.bounds, strict=True):
        text = str(question["arguments"][one.position])
        if one.filter is not None or text not in call.asked.argument_texts:
            continue
        place = call.asked.argument_texts.index(text)
        ranked = any(place in wanted.arguments and wanted.function in RANKED for wanted in call.asked.wanted)
        if text not in best or one.deviation < best[text][0]:
            best[text] = one.deviation, chosen.range if ranked else chosen.sums


def said(release: Release, arguments: list[str]) -> list[str]:
    """Return what a release's histograms of magnitudes say of its bounds, in words."""
    query, refinement = release.planned.query, release.refinement
    if query is None:
        return []
    earlier = {arguments.index(text): tuple(pair) for text, pair in (release.manifest["parameters"].get("learned") or {}).items()}
    used = dict.fromkeys(v.position for m in query.measures for v in m.variables if earlier.get(v.position) == (v.lower, v.upper))
    out = [f"{readable.expression(arguments[position])}: the bounds were learned by an earlier release" for position in used]
    if refinement is None:
        return out
    for one, counts, chosen in zip(query.learning, refinement.counts[: len(query.learning)], refinement.bounds, strict=True):
        rows, cut = beyond(one, counts, chosen.sums)
        text = readable.expression(arguments[one.position])
        users = {m.kind for m in query.measures for v in m.variables if v.position == one.position and v.learned is not None}
        about = "" if users == {"tree"} else (
            f": about {rows:,.0f} rows beyond the bounds, about {cut:,.4g} of the sum, which are in no interval; a cell with fewer "
            f"than {one.sure:,.0f} rows may not have been seen"
        )
        out.append(
            f"{text}: the bounds were learned from a noisy histogram of magnitudes of this release ({one.cells} cells, standard "
            f"deviation {one.deviation:.4g} rows){about}"
        )
    return out
