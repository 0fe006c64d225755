"""dp_explain: what a released answer is made of, in words. Post-processing."""

from __future__ import annotations

from dpsql.answers import auto, kept, query_words
from dpsql.calls.query import ExplainCall
from dpsql.errors import ArgumentError
from dpsql.release.queried import QueryPlan
from dpsql.release.store import Release
from dpsql.rows import drawing
from dpsql.session.instance import Context
from dpsql.text import readable
from dpsql.text.relation import at_most, inline

COLUMNS = {"about": "VARCHAR", "explanation": "VARCHAR"}


def explain(context: Context, call: ExplainCall) -> str:
    """Return what was bounded, selected and clipped for an answer, and how large the noise is.

    Raises
    ------
    ArgumentError
        The release is not the answer of a query.
    """
    found = drawing.find(context, call.release)
    query = found.plan.query
    if query is None:
        raise ArgumentError("release", call.release, "is not the answer of a query; FROM dp_releases() says what it is")
    manifest = found.manifest
    unit = manifest.get("privacy_unit")
    asked = manifest["parameters"]["query"]
    charge = manifest["charge"]
    epsilon, delta = at_most(float(charge["epsilon"])), float(charge["delta"])
    of_rows = readable.expression(str(asked["rows"]).removeprefix("SELECT 1 "))
    rows = [("question", f"{query_words.measures(query, unit)}, of the rows of: {of_rows}")]
    rows += [("groups", f"by {readable.expression(text)}") for text in asked["keys"]]
    rows += _groups(query)
    rows += [("rows", text) for text in query_words.bounding(query, unit)] or [("rows", "every row is a unit of its own; none is left out")]
    rows += _share(context, found, query)
    rows += [("bounds", text) for text in _bounds(query, list(asked["arguments"]))]
    rows += [("bounds", text) for text in auto.said(found, list(asked["arguments"]))]
    rows += [("values", text) for text in _estimates(query)]
    rows += [("noise", text) for text in query_words.noise(found.plan)]
    rows.append(("intervals", "confidence := 0.95 adds <name>_low and <name>_high: of the noise alone, not of rows left out or clipped"))
    rows.append(("price", f"epsilon = {epsilon:g} at delta = {delta:g}, charged once, as release {found.identifier}"))
    return inline(COLUMNS, rows)


def _share(context: Context, found: Release, query: QueryPlan) -> list[tuple[str, str]]:
    """Return about how many rows are kept, where a histogram of rows per unit was bought."""
    most, manifest = query.max_rows, found.manifest
    if not query.unit or most is None:
        return []
    for database in context.databases():
        known = kept.estimate(context, database, str(manifest["source"]), str(manifest["source"]), most)
        if known is not None:
            return [("rows", f"about {100 * known.share:.0f} % of all rows of the table are kept (by release {known.release!r})")]
    return []


def _groups(query: QueryPlan) -> list[tuple[str, str]]:
    if not query.keys:
        return []
    if query.public:
        said = f"public: all {query.groups:,} are known without the data and are there, also empty ones; rows in no such group are left out"
        return [("groups", said)]
    return [("groups", "private: a group with few units, or with unlucky noise, is missing; that it is missing does not say that it is empty")]


def _estimates(query: QueryPlan) -> list[str]:
    """Return what to know of aggregates that are not what their name says without privacy."""
    asked = {text.partition("(")[0] for text in query.asked}
    found = []
    if asked & {"min", "max"}:
        found.append("min and max are quantiles as far out as the noise lets one see, not the values of a row")
    if asked & {"mode", "histogram", "bool_and", "bool_or"}:
        found.append("mode, histogram, bool_and and bool_or are read off noisy counts of the values: one that few rows have may be missed")
    if query.keys and asked & {"avg", "var_pop", "var_samp", "stddev_pop", "stddev_samp", "corr"}:
        found.append("means and the like of a group whose number of rows is no more than its noise lean on those of all groups")
    return found


def _bounds(query: QueryPlan, arguments: list[str]) -> list[str]:
    found = []
    for measure in query.measures:
        if measure.kind in ("moments", "scaled", "tree"):
            for one in measure.variables:
                text = readable.expression(arguments[one.position])
                said = f"{text}: values below {one.lower:g} count as {one.lower:g}, values above {one.upper:g} as {one.upper:g}"
                if said not in found:
                    found.append(said)
    return found
