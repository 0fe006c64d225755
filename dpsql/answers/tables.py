"""dp_marginals, dp_aggregates, dp_histogram, dp_contributions: noisy counts as relations."""

from __future__ import annotations

from dpsql.accounting import noise_band
from dpsql.answers import kept, remembered
from dpsql.calls.tables import AggregatesCall, ContributionsCall, MarginalsCall
from dpsql.calls.values import HistogramCall
from dpsql.domains import unit_rows
from dpsql.protected.columns import asked_order
from dpsql.protected.levels import at_level
from dpsql.protected.source import resolve
from dpsql.purchase import buying
from dpsql.rows import crosstab, drawing
from dpsql.rows.writing import parquet_files
from dpsql.running.progress import Progress
from dpsql.session.instance import Context
from dpsql.text.relation import inline, parquet

CONTRIBUTION_COLUMNS = {
    "rows_per_unit": "VARCHAR", "units": "BIGINT", "units_low": "BIGINT", "units_high": "BIGINT",
    "max_contributions": "INTEGER", "share_kept": "DOUBLE",
}


def marginals(context: Context, call: MarginalsCall) -> str:
    """Return noisy contingency tables, buying them at the first call.

    The order of ``columns`` and ``shape`` say how the answer looks; they are not part of what is bought.
    """
    crosstab.check_shape(call)
    answer = remembered.recall(context, call)
    if answer is not None:
        return answer
    with Progress("dp_marginals", show=context.progress) as progress:
        bought = buying.buy(context, call, progress)
        order = asked_order(call.columns, bought.plan.domain.names)
        if crosstab.is_wide(call, bought.plan):
            text, path = drawing.wide(context, bought, order)
        else:
            path = drawing.cells(context, bought, order)
            text = f"(SELECT columns, values, n FROM {parquet_files(path)})"  # noqa: S608
    source = resolve(context, call.source, local=call.local)  # as it was bought: a call checks it once
    remembered.remember(context, call, call.source, text, [(source, bought.identifier)], [path])
    return text


def aggregates(context: Context, call: AggregatesCall) -> str:
    """Return the reported counts of tuples, buying them at the first call."""
    with Progress("dp_aggregates", show=context.progress) as progress:
        bought = buying.buy(context, call, progress)
        return f"(SELECT columns, values, n FROM {parquet_files(drawing.reported(context, bought))})"  # noqa: S608


def histogram(context: Context, call: HistogramCall) -> str:
    """Return the released values of one column and their noisy counts, buying them at the first call."""
    with Progress("dp_histogram", show=context.progress) as progress:
        bought = buying.buy(context, call, progress)
        bought.statistics(context.cursor)  # what is in the file is what the ledger knows
        return f"(SELECT value, n FROM {parquet(bought.path)} ORDER BY n DESC, value ASC NULLS LAST)"  # noqa: S608


def contributions(context: Context, call: ContributionsCall) -> str:
    """Return noisy numbers of units, or of rows of a table above, by their number of rows, buying them at the first call."""
    with Progress("dp_contributions", show=context.progress) as progress:
        bought = buying.buy(context, at_level(context, call), progress)
    plan, counts = bought.plan, bought.statistics(context.cursor).tables[(0,)]
    band, lower = noise_band(plan.mechanism, plan.scales[0]), unit_rows.lower_of(plan.domain)
    shares = [kept.share_of(context.cursor, bought, low) for low in lower]
    rows = [
        (label, int(n), int(n) - band, int(n) + band, low, None if share is None else round(share, 3))
        for label, n, low, share in zip(unit_rows.domain(lower).attributes[0].categories, counts, lower, shares, strict=True)
    ]
    return inline(CONTRIBUTION_COLUMNS, rows)


