"""The custodian's part of a report: the raw table beside a release. NOT PRIVATE, for the custodian only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import duckdb
import numpy as np

from dpsql.custodian.evaluate import evaluate
from dpsql.custodian.evaluate_values import evaluate_values
from dpsql.custodian.value_listings import listings_of
from dpsql.custodian.value_table import Row as ValueRow
from dpsql.domains import multi_value, unit_rows
from dpsql.domains.attributes import Domain
from dpsql.errors import DpsqlError
from dpsql.numerics.arrays import Clique, FloatArray
from dpsql.page.content import Comparison, Listing
from dpsql.page.figures import OneWay
from dpsql.page.fine import Cuts
from dpsql.page.markup import number
from dpsql.protected.source import ProtectedSource, resolve
from dpsql.release.store import Release
from dpsql.rows import drawing
from dpsql.rows.tallying import Tally
from dpsql.session.instance import Context
from dpsql.text.relation import identifier

_ALL_TRIPLES = 20
_TRIPLES = 300


@dataclass(frozen=True)
class Raw:
    """Exact counts of the protected table. NOT PRIVATE.

    Parameters
    ----------
    rows : int
    counts : mapping from clique to array
    evaluation : rows of ``dp_evaluate``
    capped : str or None
        What is kept where rows of a unit are bounded; None where all rows are.
    kept : int
        Rows that are kept, of `rows`.
    fine : mapping from position to array
        Counts of the fine bins of columns.
    values : rows of ``dp_evaluate(..., report := 'values')``
    """

    rows: int
    counts: Mapping[Clique, FloatArray]
    evaluation: Sequence[tuple[object, ...]]
    capped: str | None = None
    kept: int = 0
    fine: Mapping[int, FloatArray] = field(default_factory=dict)
    values: Sequence[ValueRow] = ()


def compare(
    context: Context,
    bought: Release,
    domain: Domain,
    pairs: Sequence[Clique],
    database: str,
    synthetic: Path | None,
    cut: Mapping[int, Cuts],
) -> Raw:
    """Count the protected table that a release was bought from.

    Parameters
    ----------
    domain : Domain
        Of the charts.
    pairs : cliques of two
    database : str
        Whose books charged the release.
    synthetic : path or None
        Rows of the release, as drawn.
    cut : mapping from position to fine bins

    Raises
    ------
    DpsqlError
        The source is gone, is another one now, or cannot be read; the text shows no value.

    Notes
    -----
    Privacy: NOT PRIVATE.
    """
    protected = _source(context, bought, database)
    protected.check_rows_here("compare := true")
    sql = multi_value.split_sql(protected.source.sql, domain, bought.plan.options)
    try:
        if not domain.attributes or 0 in domain.sizes:
            return Raw(0, {}, ())
        with Tally(context.cursor, sql, domain) as tally:
            counts = tally.counts([*((i,) for i in range(len(domain.attributes))), *pairs])
            rows = tally.rows()
        protection = protected.protection
        capped = unit_rows.capped(protection.privacy_unit, protection.max_contributions)
        kept = rows if capped is None else _kept(context, sql, protection.max_contributions, protected.source.row is not None)
        inside = _fine(context, sql, cut)
        evaluation, values = _evaluations(context, bought, sql, domain, synthetic)
        return Raw(rows, counts, evaluation, capped, kept, inside, values)
    except duckdb.Error as error:
        name = type(error).__name__
        raise DpsqlError(f"the comparison failed ({name}); the text is withheld because it could show a value") from None


def _kept(context: Context, sql: str, most: int, numbered: bool) -> int:
    row = context.cursor.execute(unit_rows.kept_sql(sql, most, numbered)).fetchone()
    return int(row[0]) if row else 0


def _source(context: Context, bought: Release, database: str) -> ProtectedSource:
    """Return the protected relation of a release, as its database sees it."""
    query, source = str(bought.manifest["query"]), str(bought.manifest["source"])
    home = replace(context, database=database) if database != context.database else context
    if query == source:
        query = source.removeprefix("file:") if source.startswith("file:") else f"{identifier(database)}.{source}"
    return resolve(home, query)


def _fine(context: Context, sql: str, cut: Mapping[int, Cuts]) -> Mapping[int, FloatArray]:
    if not cut:
        return {}
    with Tally(context.cursor, sql, Domain(tuple(cuts.attribute for cuts in cut.values()))) as tally:
        counts = tally.counts([(i,) for i in range(len(cut))])
    return {column: counts[(i,)] for i, column in enumerate(cut)}


def _evaluations(
    context: Context, bought: Release, sql: str, domain: Domain, synthetic: Path | None
) -> tuple[Sequence[tuple[object, ...]], Sequence[ValueRow]]:
    """Return the rows of both reports: of tables, and of values."""
    plan = bought.plan
    one_hot = plan.options.get("output") == "one_hot"
    if synthetic is None or plan.open or one_hot or multi_value.split(domain, plan.options):
        return (), ()
    triples = None if len(domain.attributes) <= _ALL_TRIPLES else _TRIPLES
    rows = f"SELECT * FROM {drawing.relation(bought, synthetic)}"  # noqa: S608 -- a file
    return evaluate(context.cursor, sql, rows, domain, 3, triples), evaluate_values(context.cursor, sql, rows, domain)


def as_content(raw: Raw, released: Sequence[OneWay | None], synthetic: Mapping[Clique, FloatArray], domain: Domain) -> Comparison:
    """Return the tables of the comparison. NOT PRIVATE."""
    notes = [f"The protected table has {raw.rows:,} rows."]
    if raw.capped is not None:
        share = raw.kept / raw.rows if raw.rows else 1.0
        notes.append(
            f"{raw.capped[0].upper()}{raw.capped[1:]}, {raw.kept:,} of {raw.rows:,} ({100 * share:.1f} %). The figures here are of "
            f"all rows: released counts fall short of them by about {100 * (1 - share):.1f} %, besides their noise."
        )
    rows = []
    for i, name in enumerate(domain.names if raw.counts else ()):
        exact, known = raw.counts[(i,)], released[i]
        error = None if known is None else float(np.abs(known.counts - exact).mean())
        expected = None if known is None or known.deviation is None else known.deviation * (2 / np.pi) ** 0.5
        drawn = synthetic.get((i,))
        rows.append((name, number(error, 3), number(expected, 3), "–" if drawn is None else f"{_distance(exact, drawn):.4f}"))
    listings = []
    if rows:
        head = ["Column", "Mean error of a released count", "Expected from the noise, about", "Synthetic: total variation distance"]
        note = "Of bins and categories: an error inside a bin is not in these figures."
        listings.append(Listing("One-way statistics against the raw ones", head, rows, (1, 2, 3), note))
    if raw.evaluation:
        head = [
            "k",
            "Tables",
            "Cells",
            "Mean total variation distance",
            "Mean error (best 95 %)",
            "Largest (best 95 %)",
            "Mean error (all)",
            "Largest (all)",
        ]
        shown = [(r[0], f"{r[1]:,}", f"{r[2]:,}", f"{r[3]:.4f}", *(number(r[i], 3) for i in (4, 5, 8, 9))) for r in raw.evaluation]  # type: ignore[arg-type]
        rows_, synthetic_rows, shortfall = raw.evaluation[0][10:13]
        missing = "" if shortfall is None else f", {100 * shortfall:.1f} % fewer" if shortfall > 0 else ""  # type: ignore[operator]
        note = f"{synthetic_rows:,} synthetic rows for {rows_:,} raw ones{missing}: counts are scaled to the raw number before. "
        note += "Cells are bins and categories: an error inside a bin is not in these figures, but in those of values below."
        listings.append(Listing("The synthetic table against the raw one (dp_evaluate)", head, shown, tuple(range(8)), note))
    return Comparison([*listings, *listings_of(raw.values, domain)], notes)


def _distance(exact: FloatArray, drawn: FloatArray) -> float:
    """Return the total variation distance of two tables."""
    if not exact.sum() or not drawn.sum():
        return 0.0 if exact.sum() == drawn.sum() else 1.0
    return float(np.abs(exact / exact.sum() - drawn / drawn.sum()).sum()) / 2
