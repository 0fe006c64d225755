"""What the dbt package asks about a model: may its release be bought, and how far is its table from what was released."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any

import duckdb
import numpy as np

from dpsql import methods
from dpsql.answers import row_bounds
from dpsql.answers.explaining import rows_asked
from dpsql.answers.query import queries
from dpsql.calls import arguments
from dpsql.calls.query import QueryCall
from dpsql.custodian.evaluate import comparable_domain, evaluate
from dpsql.dbt.declarations import declare_column, declare_rules
from dpsql.dbt.nodes import arguments as declared_arguments
from dpsql.dbt.nodes import rules as declared_rules
from dpsql.domains.encoding import encode
from dpsql.engines.duckdb.counting import count_tables
from dpsql.errors import DomainError, DpsqlError, ReleaseError
from dpsql.numerics.arrays import Clique, IntArray
from dpsql.protected.source import ProtectedSource, resolve
from dpsql.queries.purchase import QueryPurchase
from dpsql.release import identity
from dpsql.release.store import Release
from dpsql.rows import drawing
from dpsql.session.instance import Context
from dpsql.source.analysis import TableId, find_table
from dpsql.tables.statistics import Statistics
from dpsql.text import readable
from dpsql.text.relation import identifier

MARK = "dpsql release: "
"""How the comment of a table begins that the materialization has made; the identifier of the release follows."""


def check(context: Context, given: Mapping[str, Any]) -> dict[str, Any]:
    """Check, before anything is bought, that a model gives what its SELECT says, under a name that is free or its own.

    Parameters
    ----------
    given : mapping
        ``source`` (the model's SQL), ``release``, ``method``, ``label`` of the model, ``columns`` and ``rules``: what
        schema.yml declares for columns of the model itself, and for its rows.

    Returns
    -------
    dict
        ``release``: the identifier, ``columns``: the argument that the call needs (for methods of open domains), or None; and what
        `dpsql.dbt.spending.spent` is to be given afterwards: ``label``, ``releases``, ``before``.

    Raises
    ------
    DomainError
        A column of the SELECT has no domain: the synthetic table would lack it.
    ReleaseError
        The model's release was bought for other SQL.

    Notes
    -----
    Privacy: free; no row is read.
    """
    if context.instance.prepare is not None:
        context.instance.prepare(context)
    source, label = arguments.text(given, "source"), str(given["label"])
    protected = resolve(context, source)
    for column, meta in given["columns"].items():
        place = f"{label}, column {column}"
        declare_column(context, place, protected, column, declared_arguments(place, meta))
    declare_rules(context, label, protected, declared_rules(label, given.get("rules")))
    columns = None
    if given.get("method") is not None and methods.is_open(methods.get(arguments.text(given, "method"))):
        columns = [column.name for column in protected.source.columns]
    elif left_out := protected.attributes()[1]:
        raise DomainError(
            f"{label}: the column {left_out[0].name!r} has no declared domain, so the synthetic table would be without it. Declare "
            "it in schema.yml under the source's or the model's columns (meta: {dpsql: {lower: ..., upper: ...}}, or categories), "
            "or leave it out of the SELECT"
        )
    release, before = _free(protected, label, arguments.text(given, "release"))
    return {"release": release, "columns": columns, "label": label, "releases": [release], "before": [release] if before else []}


def check_query(context: Context, given: Mapping[str, Any]) -> dict[str, Any]:
    """Check, before anything is bought, that a model's query is one, under a name that is free or its own.

    Parameters
    ----------
    given : mapping
        ``call``: the arguments of dp_query, ``label`` of the model.

    Returns
    -------
    dict
        What `dpsql.dbt.spending.spent` is to be given afterwards: ``label``, ``releases``, ``before``.

    Raises
    ------
    DpsqlError
        The query cannot be answered.
    ReleaseError
        The model's release was bought for other SQL.

    Notes
    -----
    Privacy: free; no row is read.
    """
    if context.instance.prepare is not None:
        context.instance.prepare(context)
    label = str(given["label"])
    releases = []
    for protected, purchase in queries(context, QueryCall.parse(given["call"])):
        for variant in row_bounds.bought(context, protected, purchase):
            asked = variant.asked.canonical() if isinstance(variant, QueryPurchase) else None
            releases.append(_free(protected, label, variant.release_name, variant.operation, asked))
    return {"label": label, "releases": [name for name, _ in releases], "before": [name for name, before in releases if before]}


def _words(question: Mapping[str, Any]) -> str:
    """Return a stored question for reading."""
    aggregates = ", ".join(readable.aggregate(str(text)) for text in question["aggregates"])
    keys = ", ".join(readable.expression(str(text)) for text in question["keys"])
    return " ".join((aggregates or "groups", *([f"by {keys}"] if keys else []), rows_asked(question)))


def _within(asked: Mapping[str, Any], stored: Mapping[str, Any]) -> bool:
    """Return whether a question asks for nothing that a stored one does not hold."""
    same = all(asked[part] == stored[part] for part in ("keys", "rows"))
    return same and set(asked["aggregates"]) <= set(stored["aggregates"])


def _free(
    protected: ProtectedSource, label: str, name: str, operation: str = "synthesize", asked: Mapping[str, Any] | None = None
) -> tuple[str, bool]:
    """Return the identifier of the release, and whether it was bought; refuse a name under which the books have another query."""
    rows = protected.books.cursor.execute(
        f"SELECT DISTINCT source, query, release, parameters FROM ({protected.books.releases()}) "  # noqa: S608 -- quoted by Books
        "WHERE operation = ? AND status <> 'refunded'",
        [operation],
    ).fetchall()
    for source, query, bought, parameters in rows:
        stored: Mapping[str, Any] = {} if asked is None else json.loads(str(parameters))["query"]
        differs = (source, query) != (protected.key, protected.query) or (asked is not None and not _within(asked, stored))
        if differs and bought == identity.release_id(source, operation, query, name):
            before, now = (str(query), protected.query) if asked is None else (_words(stored), _words(asked))
            raise ReleaseError(
                f"{label}: its release {bought!r} was bought for other SQL: {before}. Now it is: {now}. "
                "A changed model is another release and costs anew: give its config another release, or put the SQL back to use "
                "what was bought"
            )
    own = identity.release_id(protected.key, operation, protected.query, name)
    return own, own in {bought for _, _, bought, _ in rows}


def within_error(context: Context, given: Mapping[str, Any]) -> list[str]:
    """Return why a synthetic table is not within an error, the farthest columns first; empty if it is.

    Parameters
    ----------
    given : mapping
        ``relation``, ``max_tvd``, ``k``; ``release``, or None: the one that the comment of the table names; ``against``:

        - 'released': the noisy tables of up to k columns that the release holds. What is compared with ``max_tvd`` is an upper
          bound for the distance from the raw table: the distance from the noisy table, plus what the known noise can
          account for (exceeded with a probability below about 1 % a table).
        - 'raw': the raw tables of k columns, in the mean.

    Notes
    -----
    Privacy: 'released' is post-processing. 'raw' is NOT PRIVATE: one bit about raw counts, for the custodian; the text
    has no number in it.
    """
    against = arguments.choice({"against": "released", **given}, "against", ("released", "raw"))
    most = arguments.number(given, "max_tvd")
    if most is None or not 0 < most <= 1:
        raise ReleaseError(f"dp_within_error: max_tvd = {given.get('max_tvd')!r}: a number above 0, up to 1, is required")
    k = arguments.integer({"k": 1, **given}, "k", 1, 3) or 1
    table = find_table(
        context.cursor, arguments.text(given, "relation"), database=context.database, schema=context.schema, views=True
    )
    bought = drawing.find(context, given.get("release") or _marked(context, table))
    if bought.plan.linked is not None:
        raise ReleaseError(
            f"dp_within_error: release {bought.identifier!r} is of linked tables, which this test does not compare; FROM "
            "dp_report(release) shows distances from the released tables, and dp_evaluate compares schemas"
        )
    if against == "raw":
        return _outside_of_raw(context, table, bought, k, most)
    return _outside_of_released(context, table, bought, k, most)


def _marked(context: Context, table: TableId) -> str:
    """Return the release that the comment of a table names."""
    rows = context.cursor.execute(
        "SELECT comment FROM duckdb_tables() WHERE database_name = ? AND schema_name = ? AND table_name = ?",
        [table.database, table.schema, table.name],
    ).fetchall()
    marks = [line for (comment,) in rows for line in (comment or "").splitlines() if line.startswith(MARK)]
    if not marks:
        raise ReleaseError(
            f"dp_within_error: {table.text} was not made by the materialization dp_synthetic; name its release: "
            "dp_within_error: {arguments: {release: ..., max_tvd: ...}} (FROM dp_releases() lists them)"
        )
    return marks[-1].removeprefix(MARK).strip()


def _outside_of_raw(context: Context, table: TableId, bought: Release, k: int, most: float) -> list[str]:
    """Compare with the raw table. Privacy: NOT PRIVATE; one bit leaves."""
    home = drawing.home(context, bought.identifier)
    protected = resolve(dataclasses.replace(context, database=home, schema="main"), str(bought.manifest["query"]))
    protected.check_rows_here("dp_within_error with against: raw")
    synthetic = f"SELECT * FROM {table.sql}"  # noqa: S608 -- quoted by TableId
    try:
        rows = evaluate(context.cursor, protected.source.sql, synthetic, bought.plan.domain, max_k=k)
    except duckdb.Error as error:
        raise DpsqlError(f"dp_within_error failed ({type(error).__name__}); the text is withheld: it could show a value") from None
    if any(row[0] == k and row[3] > most for row in rows):
        return [f"not private: {k}-way tables are farther from the raw ones than max_tvd = {most:g}"]
    return []


def _outside_of_released(context: Context, table: TableId, bought: Release, k: int, most: float) -> list[str]:
    """Compare with the released noisy tables."""
    statistics, domain = bought.statistics(context.cursor), bought.plan.domain
    cliques = [clique for clique in statistics.tables if 1 <= len(clique) <= k]
    if not cliques:
        raise ReleaseError(
            f"dp_within_error: release {bought.identifier!r} holds no noisy tables of up to {k} columns to compare with; "
            "against: raw compares with the raw table (not private)"
        )
    query = f"SELECT * FROM {table.sql}"  # noqa: S608 -- quoted by TableId
    codes = encode(context.cursor, query, comparable_domain(context.cursor, query, domain))
    try:
        counts = count_tables(context.cursor, codes, domain.sizes, cliques)
    finally:
        context.cursor.execute(f"DROP TABLE IF EXISTS {identifier(codes)}")
    reasons: list[tuple[float, str]] = []
    for clique in cliques:
        distance, noise = bound(statistics, clique, counts[clique])
        if distance + noise > most:
            names = ", ".join(domain.names[position] for position in clique)
            how = f"{distance:.3f} from the released table, and {noise:.3f} that its noise can account for"
            reason = f"{names}: up to {distance + noise:.3f} from the raw table ({how}); max_tvd is {most:g}"
            reasons.append((distance + noise, reason))
    return [reason for _, reason in sorted(reasons, key=lambda item: -item[0])]


def bound(statistics: Statistics, clique: Clique, counts: IntArray) -> tuple[float, float]:
    """Return the distance of counts from a noisy table, and how far noise can have taken that table from the raw one.

    Both as total variation distance of shares. The sum of |noise| over m cells is at most its mean plus three standard
    deviations, and so is the error of the number of rows, with a probability of about 99 %.

    Examples
    --------
    >>> exact = Statistics((2,), {(0,): np.array([60, 40])}, {(0,): 0.0})
    >>> bound(exact, (0,), np.array([5, 5]))
    (0.1, 0.0)
    """
    noisy = statistics.tables[clique]
    scale, cells = statistics.scales[clique], noisy.size
    mean, deviation = scale, scale
    spread = scale * math.sqrt(2)
    if statistics.mechanism == "gaussian":
        mean, deviation, spread = scale * math.sqrt(2 / math.pi), scale * math.sqrt(1 - 2 / math.pi), scale
    total = statistics.total
    size = max(float(noisy.sum()) if total is None else float(total), 1.0)
    missed = 0.0 if total is not None else 3 * spread * math.sqrt(cells)
    noise = (cells * mean + 3 * math.sqrt(cells) * deviation + missed) / (2 * size)
    rows = int(counts.sum())
    distance = float(np.abs(noisy / size - counts / rows).sum()) / 2 if rows else 1.0
    return min(round(distance, 12), 1.0), min(noise, 1.0)
