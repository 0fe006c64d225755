"""dp_explain: what a released answer is made of, in words. Post-processing."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from dpsql.algebra.aggregates import EXTREMES, QUANTILES, SECOND
from dpsql.answers import auto, kept, link_words, linked_words, query_words
from dpsql.answers.cells import cell_text
from dpsql.books.schema import Books
from dpsql.calls.query import ExplainCall
from dpsql.domains import sqltypes
from dpsql.errors import ArgumentError, DpsqlError
from dpsql.protected.source import ProtectedSource, resolve
from dpsql.queries.groups import left_out, of_declared
from dpsql.release.queried import QueryPlan
from dpsql.release.store import Release
from dpsql.rows import drawing
from dpsql.session.instance import Context
from dpsql.text import readable
from dpsql.text.relation import at_most, inline

_PLACED = re.compile(r'(?:"(?:[^"]|"")+"\.)+("(?:[^"]|"")+") AS \1')
"""A table with its schema, under its own name."""
_INTERVALS = "confidence := 0.95 adds <name>_low and <name>_high: of the noise alone, not of rows left out or clipped"
_PUBLIC = "public: all {:,} are known without the data and are there, also empty ones; rows in no such group are left out"
_PRIVATE = "private: a group with few units, or with unlucky noise, is missing; that it is missing does not say that it is empty"
_LISTED = (
    "mode, histogram, bool_and, bool_or and aggregates of DISTINCT listed values are read off noisy counts of the values: one that "
    "few rows have may be missed"
)
_RANKED = "min and max are quantiles as far out as the noise lets one see, not the values of a row"
_LEANING = "means and the like of a group whose number of rows is no more than its noise lean on those of all groups"
COLUMNS = {"about": "VARCHAR", "explanation": "VARCHAR"}


def explain(context: Context, call: ExplainCall) -> str:
    """Return what was bounded, selected and clipped for an answer, and how large the noise is.

    Raises
    ------
    ArgumentError
        The release is neither the answer of a query nor one of linked tables.
    """
    release = drawing.find(context, call.release)
    if release.plan.linked is not None:
        return inline(COLUMNS, linked_words.explanation(release, release.plan.linked))
    if release.plan.query is None:
        raise ArgumentError("release", call.release, "is not the answer of a query; FROM dp_releases() says what it is")
    return inline(COLUMNS, rows(context, release))


def rows(context: Context, release: Release) -> list[tuple[str, str]]:
    """Return the explanation of a release: what it is about, and the words."""
    query = release.plan.query
    if query is None:
        return []
    manifest = release.manifest
    unit = manifest.get("privacy_unit")
    asked = manifest["parameters"]["query"]
    charge = manifest["charge"]
    epsilon, delta = at_most(float(charge["epsilon"])), float(charge["delta"])
    lines = [("question", f"{query_words.measures(query, unit)}, of the rows of: {rows_asked(asked)}")]
    lines += [("groups", f"by {readable.expression(text)}") for text in asked["keys"]]
    lines += _groups(query)
    bounded = query_words.bounding(query, unit) or ["every row is a unit of its own; none is left out"]
    lines += [("rows", text) for text in bounded]
    # the tables may be gone since; what the manifest says is then all that is known
    read = source(context, release)
    lines += [("rows", text) for text in query_words.limiting(read.source.limited if read is not None else None, unit)]
    if read is not None:
        lines += [("rows", text) for text in link_words.notes(read, read.ledger.purchase(release.identifier))]
    elif linked := manifest.get("linked"):  # the tables are gone
        lines.append(("rows", link_words.whose(linked["tables"], unit, linked["root"])))
    histogram = _kept(context, release, query)
    lines += [] if histogram is None else [("rows", f"kept of all rows: {histogram.said}")]
    shown = texts(context, release)
    lines += [("bounds", text) for text in _bounds(query, list(asked["arguments"]), shown)]
    lines += [("bounds", text) for text in auto.said(release, list(asked["arguments"]))]
    lines += [("values", text) for text in _estimates(query)]
    lines += [("noise", text) for text in query_words.noise(release.plan, shown)]
    lines.append(("intervals", _INTERVALS))
    lines.append(("price", f"epsilon = {epsilon:g} at delta = {delta:g}, charged once, as release {release.identifier}"))
    if histogram is not None and histogram.query != manifest["source"]:
        first = drawing.find(context, histogram.release).manifest["charge"]
        told = f"for how many of these rows units have, from which max_rows := 'auto' takes its number, here {query.max_rows}"
        lines.append(("price", f"epsilon = {at_most(float(first['epsilon'])):g} before it, as release {histogram.release}, {told}"))
    return lines


def rows_asked(asked: Mapping[str, Any]) -> str:
    """Return which rows a stored question is about: its FROM and WHERE."""
    return readable.expression(_PLACED.sub(r"\1", str(asked["rows"]).removeprefix("SELECT 1 ")))


def _kept(context: Context, release: Release, query: QueryPlan) -> kept.Kept | None:
    """Return about how many rows are kept, where a histogram of rows per unit was bought, of these rows or of the whole table."""
    most, manifest = query.max_rows, release.manifest
    if not query.unit or most is None:
        return None
    # the histogram may have been bought in another database than the one in use
    for database in context.databases():
        ledger = kept.ledger_in(context, database, str(manifest["source"]))
        known = kept.estimate(context, ledger, str(manifest["query"]), most, linked=bool(manifest.get("linked")))
        if known is not None:
            return known
    return None


def _groups(query: QueryPlan) -> list[tuple[str, str]]:
    some = [("values", of_declared(aggregate)) for aggregate in query.partial]
    if not query.keys:
        return some
    if query.public:
        return [("groups", _PUBLIC.format(query.groups)), *(("groups", left_out(name)) for name in query.lost), *some]
    return [("groups", _PRIVATE), *some]


def _estimates(query: QueryPlan) -> list[str]:
    """Return what to know of aggregates that are not what their name says without privacy."""
    # the text of an aggregate begins with its name
    asked = {text.partition("(")[0] for text in query.asked}
    lines = []
    if asked & EXTREMES:
        lines.append(_RANKED)
    if any(measure.kind == "values" for measure in query.measures):
        lines.append(_LISTED)
    if query.keys and asked & (SECOND | QUANTILES | {"avg", "corr"}):
        lines.append(_LEANING)
    return lines


def source(context: Context, release: Release) -> ProtectedSource | None:
    """Return the source of a release, for the types of its columns; None where it is not here any more. No row is read."""
    for database in context.databases():
        if Books(context.cursor, database).sources_of(release.identifier):
            home = dataclasses.replace(context, database=database, schema="main")
            with suppress(DpsqlError):
                return resolve(home, str(release.manifest["query"]), local=True)
    return None


def texts(context: Context, release: Release) -> query_words.Texts:
    """Return how dates and times among the arguments are shown, whose bounds are kept as numbers."""
    protected = source(context, release)
    columns = [] if protected is None else protected.source.columns
    types = {int(c.name[1:]): c.sql_type for c in columns if c.name[:1] == "a"}
    return {place: partial(cell_text, sql_type=kind) for place, kind in types.items() if sqltypes.parse(kind).family == "temporal"}


def _bounds(query: QueryPlan, arguments: list[str], texts: query_words.Texts) -> list[str]:
    lines = []
    for measure in query.measures:
        if measure.kind in ("moments", "scaled", "tree"):
            for variable in measure.variables:
                text = readable.expression(arguments[variable.position])
                low, high = query_words.ends(variable, texts)
                line = f"{text}: values below {low} count as {low}, values above {high} as {high}"
                if line not in lines:
                    lines.append(line)
    return lines
