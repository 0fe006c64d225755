"""Rows of a linked table by the rows of a table above it: how many procedures a visit has, visits a patient.

Privacy: None: the books and the catalog are read, no row.
"""

from __future__ import annotations

from dpsql.calls.tables import ContributionsCall, LevelCall
from dpsql.domains.unit_rows import NAME
from dpsql.errors import ArgumentError, DpsqlError
from dpsql.protected.home import catalog_of
from dpsql.protected.linked import key_of, lineage_of
from dpsql.session.instance import Context
from dpsql.source.analysis import named_table
from dpsql.source.linked import Lineage
from dpsql.source.model import TableId, quoted


def at_level(context: Context, call: ContributionsCall) -> ContributionsCall:
    """Return the call over a source that has one row for each row of the table ``per`` with rows of the linked one.

    Its column counts these. A call without ``per`` counts rows of units, and stays as it is.

    Raises
    ------
    ArgumentError
        ``source`` is no linked table, or ``per`` is none above it.

    Notes
    -----
    Privacy: the text is a source like any other, checked and bound as one: a row of ``per`` is of one unit, as are the rows linked
    to it, and of a unit at most as many rows of ``per`` count as links allow.
    """
    if call.per is None:
        return call
    lineage = _linked(context, call.source)
    above = [hop.parent for hop in lineage.hops]
    wanted = _table(context, call.per)
    if wanted not in above:
        named = " or ".join(f"per := {key_of(table)!r}" for table in above)
        raise ArgumentError("per", call.per, f"rows of {key_of(lineage.table)} belong to rows of the tables above it: {named}")
    return LevelCall(**{**vars(call), "source": _counted(lineage, above.index(wanted)), "per": key_of(wanted)})


def _counted(lineage: Lineage, level: int) -> str:
    """Return the SELECT; rows without a parent at that level are left out."""
    joins = []
    for place, hop in enumerate(lineage.hops[: level + 1]):
        on = f"c{place}.{quoted(hop.column)} = c{place + 1}.{quoted(hop.parent_column)}"
        joins.append(f" JOIN {hop.parent.text} AS c{place + 1} ON {on}")
    key = f"c{level}.{quoted(lineage.hops[level].column)}"
    return f"SELECT count(*) AS {quoted(NAME)} FROM {lineage.table.text} AS c0{''.join(joins)} GROUP BY {key}"  # noqa: S608 -- quoted


def _linked(context: Context, source: str) -> Lineage:
    table = _table(context, source)
    lineage = None if table is None else lineage_of(context, table)
    if lineage is None:
        told = "is not the name of a linked table, whose rows belong to rows of others; leave per out to count rows of each unit"
        raise ArgumentError("source", source, told)
    return lineage


def _table(context: Context, text: str) -> TableId | None:
    try:
        return named_table(catalog_of(context), text, context.database, context.schema)
    except DpsqlError:
        return None
