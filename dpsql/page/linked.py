"""Sections of linked tables: one a table, one about links.

Privacy: post-processing of a release.
"""

from __future__ import annotations

from collections.abc import Sequence

from dpsql.page import parts
from dpsql.page.content import Link, LinkedTable, LinkedTables
from dpsql.page.markup import paragraphs, text

_NAMED = 40
_WEIGHTS = (
    "Counts are numbers of units, not of rows: every unit counts 1, and a row that is one of k rows of its parent 1/k of the "
    "parent's row. This is how they were measured: the noise does not grow with the rows that a unit has."
)

_ROWS = (
    "Counts are numbers of rows: each table was measured by itself, and its rows are given to parents at random. The noise grows "
    "with the rows that links allow a unit."
)


def sections(of: LinkedTables) -> list[tuple[str, str, str]]:
    """Return the sections as (key, title, HTML), the overview first."""
    counts = _ROWS if of.independent else _WEIGHTS
    listed = [("database", "The synthetic database", paragraphs(*of.about) + parts.listing(of.listing) + paragraphs(counts))]
    listed += [(f"table-{number}", f"Table {table.name}", _table(table)) for number, table in enumerate(of.tables, 1)]
    return [*listed, ("links", "How the tables are linked", "".join(map(_link, of.links)))]


def _table(of: LinkedTable) -> str:
    body = paragraphs(*of.about) + parts.listing(of.errors)
    if of.rules:
        body += "<h3>Rules that rows obey</h3>" + parts.items(of.rules)
    if of.columns:
        body += "<h3>Columns one by one</h3>" + parts.legend(of.columns) + _left_out(of.left_out) + parts.figures(of.columns)
    if of.maps is not None:
        body += "<h3>Dependence of pairs</h3>" + parts.pairs(of.maps)
    return body


def _left_out(names: Sequence[str]) -> str:
    if not names:
        return ""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return paragraphs(f"{len(names)} columns are left out: {', '.join(names[:_NAMED])}{more}.")


def _link(of: Link) -> str:
    body = f"<h3>{text(of.title)}</h3>" + paragraphs(*of.about)
    charts = [of.fan_out, *of.ordered]
    return body + parts.legend(charts) + parts.figures(charts) + "".join(map(parts.listing, of.listings))
