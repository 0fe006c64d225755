"""What a call says beside its answer of the rows that are counted."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from dpsql.algebra.aggregates import SPELLINGS
from dpsql.answers import kept, query_words
from dpsql.answers.held import Held
from dpsql.domains import unit_rows
from dpsql.protected.source import ProtectedSource
from dpsql.queries.groups import left_out, of_declared
from dpsql.queries.leaves import Facts
from dpsql.queries.reading import Read
from dpsql.release.queried import QueryPlan
from dpsql.running import saying
from dpsql.session.instance import NOTES, Context
from dpsql.source.model import fold
from dpsql.text import readable
from dpsql.text.names import printable
from dpsql.text.relation import literal

Stated = tuple[QueryPlan, Sequence[str]]
"""A plan, with the texts of its arguments."""
_ZONED = "TIMESTAMP WITH TIME ZONE"
_PARTS = exp.Anonymous | exp.Extract | exp.Cast | exp.TryCast
_SAME = SPELLINGS.keys() | {"timezone"}
"""Calls of a moment that reckon with no calendar."""


def tell(context: Context, name: str, protected: ProtectedSource, query: QueryPlan | None) -> None:
    """Say beside an answer which rows are in no group, and what is counted of a unit's rows, and about what share of all that is.

    Parameters
    ----------
    name : str
        Of the call.
    query : QueryPlan or None
        What was bought; None: tables of the source.

    Notes
    -----
    Privacy: what is declared, and what was released.
    """
    table = about(protected)
    lines = [] if query is None else [*map(left_out, query.lost), *map(of_declared, query.partial)]
    for line in lines:
        say(context, f"{name} of {table}: {line}")
    protection = protected.protection
    unit, most, source = protection.privacy_unit, protection.max_contributions, protected.source
    if not protected.of_units or source.one_per_unit or not heard(context):
        return
    if query is None:
        sentence, comparable = unit_rows.capped(unit, most), True
    else:
        sentence, most = query_words.bounding(query, unit)[0], query.max_rows or 0
        filtered = query.different or any(counted.filter is not None for counted in query.counting)
        # a share is known of the bound that the table is protected with, over all of its rows; rows that are units all count
        comparable = unit is not None and not filtered and most == protection.max_contributions
    share = ""
    if comparable:
        linked = bool(source.linked)
        known = None
        if context.analyst is None:  # that it is known says that somebody has asked how many rows units have
            known = kept.estimate(context, protected.ledger, protected.query, most, linked=linked)
        if known is not None:
            share = f", {known.said}"
        elif not linked or source.bare:
            share = f"; about what share of all rows that is, dp_contributions({literal(table)}, epsilon := ...) buys"
    say(context, f"{name} of {table}: {sentence}{share}")


def tell_narrowed(
    context: Context, name: str, protected: ProtectedSource, query: QueryPlan | None, arguments: Sequence[str], *, intervals: bool
) -> None:
    """Say beside an answer between which bounds values are counted whose declared ones are wide.

    Parameters
    ----------
    name : str
        Of the call.
    query : QueryPlan or None
        What was bought.
    arguments : sequence of str
        Texts, by position.
    intervals : bool
        Whether the answer has some: they are of the values as they were moved, and hold the true number less often where a few rows
        far out make up a sum, most of all that of a single group.

    Notes
    -----
    Privacy: bounds that were released.
    """
    if query is None or not heard(context):
        return
    narrowed = {learned.position: (learned.edges[0], learned.edges[-1]) for learned in query.learning if learned.declared}
    summed = [measure for measure in query.measures if measure.kind in ("moments", "scaled")]
    for variable in dict.fromkeys(v for measure in summed for v in measure.variables if v.position in narrowed):
        if (variable.lower, variable.upper) == narrowed[variable.position]:  # the histogram saw nothing but noise
            continue
        text = readable.expression(arguments[variable.position])
        low, high = f"{variable.lower:,.6g}", f"{variable.upper:,.6g}"
        line = f"values below {low} count as {low}, values above {high} as {high}, since declared bounds are far wider"
        line += "; intervals are of values so counted, not of those far out" if intervals else ""
        say(context, f"{name} of {about(protected)}: {text}: {line}")


def tell_older(
    context: Context, name: str, protected: ProtectedSource, stored: Held, today: Stated | None, *, just_now: bool = False
) -> None:
    """Say beside an answer that was bought before when that was, and what is declared otherwise since.

    Parameters
    ----------
    name : str
        Of the call.
    today : (QueryPlan, sequence of str) or None
        What would be bought now, with the texts of its arguments; None where that is not known.
    just_now : bool
        Whether this process bought it: only what is declared otherwise since is said then.

    Notes
    -----
    Privacy: what is declared, and was.
    """
    if not stored.bought:
        return
    bought = f"{name} of {about(protected)}: answered by release {stored.release}, bought {stored.bought[:10]}, free"
    query = stored.plan.query
    changed = [] if query is None or today is None else _changed((query, stored.question["arguments"]), today)
    then = f", with what was declared then ({'; '.join(changed)})" if changed else ""
    if stored.views is not None and stored.views != protected.source.views:
        changed, then = ["views"], f", of what the view said then, which says otherwise now{then}"
    if not changed and just_now:
        return
    if not changed:
        say(context, f"{bought}; rows that have changed since then are in it as they were")
        return
    say(context, f"{bought}{then}: release := 'another name' buys it anew")


def _changed(then: Stated, today: Stated) -> list[str]:
    """Return in words what was declared otherwise when a release was bought."""
    query, plan = then[0], today[0]
    lines = []
    if query.public and (not plan.public or query.groups_sql != plan.groups_sql):
        now_known = f", now {plan.groups:,}" if plan.public and plan.groups != query.groups else ""
        lines.append(f"{query.groups:,} public groups{now_known}")
    now = _declared(*today)
    for text, (lower, upper) in _declared(*then).items():
        low, high = now.get(text, (lower, upper))
        if (low, high) != (lower, upper):
            shown = readable.expression(text)
            lines.append(f"{shown} counted from {lower:,.6g} to {upper:,.6g}, now from {low:,.6g} to {high:,.6g}")
    return lines


def _declared(query: QueryPlan, arguments: Sequence[str]) -> dict[str, tuple[float, float]]:
    """Return the bounds of arguments that are declared, before they are narrowed; not those that are learned without."""
    bounds = {v.position: (v.lower, v.upper) for measure in query.measures for v in measure.variables}
    for learned in query.learning:
        if learned.declared:
            bounds[learned.position] = learned.edges[0], learned.edges[-1]
        else:
            bounds.pop(learned.position, None)
    return {arguments[position]: ends for position, ends in bounds.items()}


def about(protected: ProtectedSource) -> str:
    """Return the name of the table that a source reads; of linked ones all of them."""
    source = protected.source
    if source.bare and source.named is not None:
        return source.named.name
    return ", ".join(table.name for table in source.tables) if source.linked else source.table.name


def heard(context: Context) -> bool:
    """Return whether what is said reaches whoever asked."""
    return NOTES in context.known or saying.heard(context.progress)


def say(context: Context, line: str) -> None:
    """Say a line once, to whoever asked; a client that takes notes gets it with each answer."""
    notes, instance = context.known.get(NOTES), context.instance
    if notes is None:
        saying.say(line, instance.remembered, wanted=context.progress, through=instance.say)
    elif (shown := printable(line)) not in notes:
        notes.append(shown)


def in_utc(read: Read, facts: Facts) -> str | None:
    """Return what to know of an answer that takes days, months, ... of moments with a time zone; None of others."""
    columns: dict[str, None] = {}
    for core, _ in read.asked:
        tables = [table for table in core.rows.find_all(exp.Table) if isinstance(table.this, exp.Identifier)]
        parts = [core.rows, *core.keys, *(a for aggregate in core.aggregates for a in aggregate.arguments)]
        parts += [aggregate.condition for aggregate in core.aggregates if aggregate.condition is not None]
        for column in (column for part in parts for column in part.find_all(exp.Column)):
            if _reckons(column) and any(facts.type_of(table, column.name) == _ZONED for table in tables):
                columns[column.name] = None
    if not columns:
        return None
    listed, first = ", ".join(columns), next(iter(columns))
    of_there = f"{first} AT TIME ZONE 'Asia/Tokyo' is of there"
    return f"days and months of {listed} are of UTC, whatever the session's time zone is; {of_there}"


def _reckons(column: exp.Column) -> bool:
    call = column.parent
    if not isinstance(call, _PARTS):
        return False
    return not isinstance(call, exp.Anonymous) or fold(str(call.this)) not in _SAME
