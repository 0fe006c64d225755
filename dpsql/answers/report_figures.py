"""Figures of the report from a stored release: what was released, and what its synthetic rows hold.

Privacy: None: post-processing of a release.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import cast

import numpy as np

from dpsql import methods
from dpsql.accounting.accuracy import expected_absolute_error
from dpsql.answers import kept
from dpsql.domains.attributes import FINE, Domain
from dpsql.errors import DpsqlError
from dpsql.methods.base import Contract, TupleMethod
from dpsql.numerics.arrays import Clique, FloatArray
from dpsql.page import figures
from dpsql.page.content import Listing
from dpsql.page.figures import Measured, OneWay
from dpsql.page.fine import Cuts
from dpsql.page.markup import number
from dpsql.release.plan import Plan
from dpsql.release.store import Release
from dpsql.rows import decoding, drawing, models
from dpsql.rows.tallying import Tally
from dpsql.running.progress import Progress
from dpsql.session.instance import Context
from dpsql.tables.statistics import Statistics
from dpsql.tables.tuple_index import tuple_index
from dpsql.text.relation import parquet

_MOST_LISTED = 25


@dataclass(frozen=True)
class Synthetic:
    """What the synthetic rows hold.

    Parameters
    ----------
    path : Path
        The rows.
    rows : int
        Of all sets together.
    counts : mapping from clique to array
        One-way tables of all attributes, two-way tables of the pairs that are shown; means over the sets.
    """

    path: Path
    rows: int
    counts: Mapping[Clique, FloatArray] = field(default_factory=dict)


def shown_domain(plan: Plan, statistics: Statistics) -> Domain:
    """Return the domain of the charts: the declared one, or the values that were released."""
    return models.output_domain(plan, statistics.values) if plan.open else plan.domain


def sets_of(plan: Plan) -> int:
    """Return the number of synthetic tables of a release."""
    return int(plan.options.get("sets", 1))


def measured(plan: Plan, statistics: Statistics) -> Measured:
    """Return the released tables, where a release has some: noisy tables, or the histograms that a method drew."""
    if statistics.tables:
        tables = {clique: table.astype(np.float64) for clique, table in statistics.tables.items()}
        scales = {clique: float(statistics.scales[clique]) for clique in tables}
        deviations = {clique: figures.deviation_of(plan.mechanism, scale) for clique, scale in scales.items()}
        return Measured(tables, deviations, scales if plan.mechanism == "laplace" else {}, statistics.total)
    whole = tuple(range(len(plan.domain.attributes)))
    if plan.blocks is not None and len(plan.cliques) > len(whole):  # one-way tables come first, then what is no table
        singles: dict[Clique, FloatArray] = {(i,): statistics.blocks[i].astype(np.float64) for i in whole}
        scale = float(Fraction(str(plan.parameters["scales"][0])))
        deviations = dict.fromkeys(singles, figures.deviation_of(plan.mechanism, scale))
        return Measured(singles, deviations, dict.fromkeys(singles, scale), statistics.total)
    if plan.listed or not statistics.blocks or any(block.size != plan.domain.cells(whole) for block in statistics.blocks):
        return Measured(total=statistics.total)
    if plan.method == "modips":  # of a binary column one count, which is no table
        return Measured(total=statistics.total)
    table = np.mean([block.astype(np.float64) for block in statistics.blocks], axis=0).reshape(plan.domain.sizes)
    sets = len(statistics.blocks)
    scale = float(plan.scales[0]) if plan.scales else 0.0
    deviation = figures.deviation_of(plan.mechanism, scale)
    laplace = {whole: scale} if plan.mechanism == "laplace" and sets == 1 else {}
    return Measured({whole: table}, {whole: None if deviation is None else deviation / sets**0.5}, laplace, statistics.total)


def released_one_way(plan: Plan, statistics: Statistics, tables: Measured) -> list[OneWay | None]:
    """Return the released one-way statistics of each attribute; None where there are none."""
    if plan.open:
        return [OneWay(statistics.blocks[0].astype(np.float64), None, None, (0,))]
    if plan.sparse:
        return _single_values(plan, statistics)
    return [figures.one_way(tables, i) for i in range(len(plan.domain.attributes))]


def _single_values(plan: Plan, statistics: Statistics) -> list[OneWay | None]:
    """Return the reported single values of each column; what was not reported counts as 0."""
    method = cast("TupleMethod", methods.get(plan.method or ""))
    combinations = method.tuples(plan.domain, plan.options)
    index = tuple_index(combinations.sizes, combinations.length)
    keys, counts = method.aggregates(statistics, plan.options)
    first, behind = np.searchsorted(keys, index.level_keys(1))
    attributes = index.attributes(keys[first:behind], 1)[:, 0]
    columns = index.columns_of_attributes[attributes]
    deviation = figures.deviation_of("gaussian", float(plan.scales[0]))
    released: list[OneWay | None] = []
    for i, size in enumerate(plan.domain.sizes):
        table, here = np.zeros(size), columns == i
        table[attributes[here] - index.first_attributes[i]] = counts[first:behind][here]
        released.append(OneWay(table, deviation, None if deviation is None else figures.half_width(deviation), (i,)))
    return released


def synthetic(context: Context, bought: Release, domain: Domain, pairs: Sequence[Clique], progress: Progress) -> Synthetic | None:
    """Return counts of the release's synthetic rows (the draw that ``dp_synthesize`` gives); None where it has no model."""
    plan = bought.plan
    if plan.method is None or not domain.attributes or 0 in domain.sizes:
        return None
    path = drawing.rows(context, bought, None, None, progress)
    singles: list[Clique] = [(i,) for i in range(len(domain.attributes))]
    if plan.options.get("output") == "one_hot":
        return _one_hot(context, path, domain)
    values = bought.statistics(context.cursor).values
    rows = decoding.rows_sql(models.output_domain(plan, values), path)
    sets = sets_of(plan)
    with Tally(context.cursor, rows, domain) as tally:
        counts = tally.counts([*singles, *pairs])
        return Synthetic(path, tally.rows(), {clique: table / sets for clique, table in counts.items()})


def fine_counts(context: Context, bought: Release, drawn: Synthetic | None, cut: Mapping[int, Cuts]) -> Mapping[int, FloatArray]:
    """Return counts of the fine bins of some columns in the synthetic rows; empty where rows are indicators of values."""
    plan = bought.plan
    if drawn is None or not cut or plan.options.get("output") == "one_hot":
        return {}
    rows = decoding.rows_sql(models.output_domain(plan, bought.statistics(context.cursor).values), drawn.path)
    with Tally(context.cursor, rows, Domain(tuple(cuts.attribute for cuts in cut.values()))) as tally:
        counts = tally.counts([(i,) for i in range(len(cut))])
    return {column: counts[(i,)] for i, column in enumerate(cut)}


def _one_hot(context: Context, path: Path, domain: Domain) -> Synthetic:
    """Return the one-way counts of rows that are indicators of every value."""
    fetched = context.cursor.execute(f"SELECT count(*), sum(COLUMNS(*)) FROM {parquet(path)}").fetchone() or (0,)  # noqa: S608 -- a file
    sums = np.asarray([float(v or 0) for v in fetched[1:]])
    ends = list(itertools.accumulate(domain.sizes))
    counts: dict[Clique, FloatArray] = {
        (i,): sums[end - size : end] for i, (size, end) in enumerate(zip(domain.sizes, ends, strict=True))
    }
    return Synthetic(path, int(fetched[0]), counts)


# -- tables


def measurements(plan: Plan, statistics: Statistics) -> Listing:
    """Return what was measured, with which noise: one line for tables alike."""
    head = ["What", "Tables", "Cells", "Mechanism", "Noise scale", "Mean error of a cell", "95 % within\N{NO-BREAK SPACE}±"]
    rows: list[tuple[object, ...]] = []
    if plan.open:
        scale = float(plan.scales[0]) if plan.scales else None
        rows.append(("values of one column", 1, f"{len(statistics.values)} released", plan.mechanism, number(scale), "–", "–"))
    elif plan.blocks is not None:
        whole = tuple(range(len(plan.domain.attributes)))
        scale = float(plan.scales[0]) if plan.scales else None
        if len(plan.cliques) > len(whole):
            rows += _margins_and_taus(plan, statistics)
        else:
            cells = f"{plan.domain.cells(whole):,}"
            noise = (plan.mechanism, number(scale), *_errors(plan.mechanism, scale))
            rows.append((", ".join(plan.domain.names), sets_of(plan), cells, *noise))
    else:
        rows += _table_rows(plan, statistics)
    return Listing("Measurements", head, rows, numeric=(1, 2, 4, 5, 6), note=_noise_note(plan))


def _margins_and_taus(plan: Plan, statistics: Statistics) -> list[tuple[object, ...]]:
    """Return a line for the one-way tables and one for Kendall's tau of pairs, whose noise is in units of tau: n is public."""
    margin, steps = (float(Fraction(str(scale))) for scale in plan.parameters["scales"])
    columns = len(plan.domain.attributes)
    taus, cells = len(plan.cliques) - columns, f"{sum(plan.domain.sizes):,}"
    scale = 2 * steps / (FINE * max(statistics.total or 0, 1))
    within = 3.0 * scale  # of Laplace noise 95 % lies within -log(0.05) = 2.996 scales
    return [
        ("tables of 1 column", columns, cells, plan.mechanism, number(margin), *_errors(plan.mechanism, margin)),
        ("Kendall's tau of 2 columns", taus, f"{taus:,}", plan.mechanism, number(scale, 3), number(scale, 3), number(within, 3)),
    ]


def _noise_note(plan: Plan) -> str:
    """Return where the noise is; nothing for methods that add none."""
    if plan.mechanism not in ("gaussian", "laplace"):
        return ""
    where = "on every cell, on empty ones too"
    if plan.open:
        where = "on the count of every value; which values are released depends on it too, so their errors are not symmetrical"
    elif plan.sparse:
        where = "on every combination that was counted; which ones are was decided by what was released before"
    elif plan.blocks is not None and len(plan.cliques) > len(plan.domain.attributes):
        where = "on every cell of the tables, and on the sums that Kendall's tau is computed from"
    elif plan.parameters.get("scales"):
        scales = ", ".join(number(float(Fraction(str(scale)))) for scale in plan.parameters["scales"])
        where = f"on each statistic of the method (scales: {scales}, in its own units)"
    return f"Noise is integer and independent, {where}. The scale is sigma (Gaussian) or b (Laplace)."


def _errors(mechanism: str, scale: float | None) -> tuple[str, str]:
    deviation = None if scale is None else figures.deviation_of(mechanism, scale)
    if scale is None or deviation is None:
        return "–", "–"
    width = figures.half_width(deviation, scale if mechanism == "laplace" else None)
    return number(expected_absolute_error(mechanism, scale), 3), number(width, 3)


def _table_rows(plan: Plan, statistics: Statistics) -> list[tuple[object, ...]]:
    kind = "combinations of" if plan.sparse else "tables of"
    rows: list[tuple[object, ...]] = []
    items = [(len(c), s, c) for c, s in zip(plan.cliques, plan.scales, strict=False)]
    for (order, scale), group in itertools.groupby(items, key=lambda item: item[:2]):
        alike = [clique for _, _, clique in group]
        cells = [plan.domain.cells(clique) for clique in alike]
        what = "number of rows" if order == 0 else f"{kind} {order} {'column' if order == 1 else 'columns'}"
        if order and len(alike) == 1 and not plan.sparse:
            what = f"table of {', '.join(plan.domain.names[i] for i in alike[0])}"
        shown = f"at most {sum(cells):,}" if plan.sparse and order > 1 else f"{sum(cells):,}"
        rows.append(
            (
                what,
                len(cells),
                shown,
                f"discrete {plan.mechanism.title()}",
                number(float(scale)),
                *_errors(plan.mechanism, float(scale)),
            )
        )
    if plan.coarse:
        scale = float(plan.scales[-1])
        size = sum(table.size for table in statistics.coarse.tables.values())
        noise = (f"discrete {plan.mechanism.title()}", number(scale), *_errors(plan.mechanism, scale))
        rows.append(("coarse tables of pairs of numeric columns", len(plan.coarse), f"{size:,}", *noise))
    return rows


def domain_listing(domain: Domain) -> Listing:
    """Return the public domain of each column."""
    rows = []
    for a in domain.attributes:
        texts = figures.label_texts(a)
        shown = ", ".join(texts[:12]) + (f", … ({len(texts)} in all)" if len(texts) > 12 else "")
        rows.append((a.name, a.sql_type, shown or "not declared: the values are part of the release", a.outside))
    return Listing("", ["Column", "Type", "Values", "Values outside"], rows)


def listings(context: Context, bought: Release, statistics: Statistics) -> list[Listing]:
    """Return the most frequent released values of an open column, or the most frequent combinations."""
    plan = bought.plan
    if plan.open:
        order = np.argsort(-statistics.blocks[0], kind="stable")[:_MOST_LISTED]
        values = [(statistics.values[i], f"{int(statistics.blocks[0][i]):,}") for i in order]
        note = "Counts of values that were released for being large lean upwards a little: with high noise they passed more easily."
        title = f"{len(values)} of {len(statistics.values):,} released values of {plan.domain.names[0]}"
        return [Listing(title, ["value", "n (noisy)"], values, (1,), note)]
    if not plan.sparse:
        return []
    relation = parquet(drawing.reported(context, bought))
    query = f"""
        SELECT len(columns) AS k, columns, "values", n, count(*) OVER (PARTITION BY len(columns)) AS of_all FROM {relation}
        WHERE len(columns) > 1
        QUALIFY row_number() OVER (PARTITION BY len(columns) ORDER BY n DESC, columns ASC, "values" ASC) <= {_MOST_LISTED}
        ORDER BY k ASC, n DESC, columns ASC, "values" ASC
    """  # noqa: S608 -- a file
    fetched = context.cursor.execute(query).fetchall()
    result: list[Listing] = []
    for k, group in itertools.groupby(fetched, key=lambda row: row[0]):
        best = list(group)
        shown = [
            (", ".join(f"{c} = {'NULL' if v is None else v}" for c, v in zip(r[1], r[2], strict=True)), f"{r[3]:,}") for r in best
        ]
        title = f"{len(best)} of {best[0][4]:,} reported combinations of {k} columns"
        result.append(Listing(title, ["combination", "n (noisy)"], shown, (1,)))
    return result


def counted(context: Context, bought: Release, database: str | None = None) -> str | None:
    """Return the sentence that says what is counted where rows of a unit were bounded, and about how many of all rows that is.

    ``database``: whose books the release is in. None: every row is counted.
    """
    sentence = kept.sentence(context, database or context.database, bought)
    return None if sentence is None else f"{sentence[0].upper()}{sentence[1:]}."


def method_notes(bought: Release) -> list[str]:
    """Return what the method says about its release and what it does to shares."""
    plan, manifest = bought.plan, bought.manifest
    notes = [str(note) for note in manifest.get("notes", [])]
    method = methods.of(plan.method)
    if methods.is_drawn(method):
        contract = Contract(str(manifest["neighbors"]), int(manifest["max_contributions"] or 1), plan.public_total)
        with suppress(DpsqlError):
            notes += method.price(plan.domain, contract, Fraction(repr(manifest["parameters"]["epsilon"])), plan.options).notes
    if plan.sparse:
        notes.append("A value that was not frequent enough to be reported is shown as 0 in the charts.")
    return notes
