"""dp_explain: what a released answer is made of, in words. Post-processing."""

from __future__ import annotations

from dpsql.answers import kept, query_words
from dpsql.calls.query import ExplainCall
from dpsql.errors import ArgumentError
from dpsql.release.queried import QueryPlan
from dpsql.release.store import Release
from dpsql.rows import drawing
from dpsql.session.instance import Context
from dpsql.text.relation import inline

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
    asked = manifest["parameters"]["query"]
    rows = [("question", f"{query_words.measures(query)}, of the rows of: {str(asked['rows']).removeprefix('SELECT 1 ')}".replace('"', ""))]
    rows += [("price", f"epsilon = {manifest['parameters']['epsilon']}, charged once as release {found.identifier}")]
    rows += [("rows", text) for text in query_words.bounding(query, manifest.get("privacy_unit"))] or [
        ("rows", "every row is a unit of its own; none is left out")
    ]
    rows += _share(context, found, query)
    rows += _groups(query)
    rows += [("bounds", text) for text in _bounds(query, list(asked["arguments"]))]
    rows += [("noise", text) for text in query_words.noise(found.plan)]
    rows.append(("intervals", "confidence := 0.95 gives <name>_low and <name>_high: of the noise alone, not of rows left out or clipped"))
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
        said = f"the {query.groups:,} groups are known without the data, so all of them are there, also empty ones; rows outside are left out"
        return [("groups", said)]
    return [("groups", "a group with few units, or with unlucky noise, is missing; that it is missing does not say that it is empty")]


def _bounds(query: QueryPlan, arguments: list[str]) -> list[str]:
    found = []
    for measure in query.measures:
        if measure.kind in ("moments", "scaled", "tree"):
            for one in measure.variables:
                text = arguments[one.position].replace('"', "")
                said = f"{text}: values below {one.lower:g} count as {one.lower:g}, values above {one.upper:g} as {one.upper:g}"
                if said not in found:
                    found.append(said)
    return found
