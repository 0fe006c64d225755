"""What share of a table's rows is counted where rows of a unit are bounded: from a bought histogram of rows per unit.

Privacy: None: post-processing of a stored release.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

import duckdb

from dpsql.accounting import noise_band
from dpsql.answers import linked_words, query_words
from dpsql.books.ledger import Ledger
from dpsql.books.schema import Books
from dpsql.domains import unit_rows
from dpsql.errors import LedgerError, ReleaseError
from dpsql.release.store import Release
from dpsql.rows import drawing
from dpsql.session.instance import Context


class Kept(NamedTuple):
    """A share of rows, the release that it was estimated from, and of which relation that is, as the books call it."""

    share: float
    release: str
    query: str

    @property
    def said(self) -> str:
        """Return it for reading: units with the most rows are few, and do not show in the noise, so there may be more rows."""
        return f"about {100 * self.share:.0f} % of all, or less where few have very many (by release {self.release!r})"


def estimate(context: Context, ledger: Ledger, query: str, most: int, *, linked: bool = False) -> Kept | None:
    """Estimate the share of rows that are kept; None where no histogram of rows per unit was bought, or it says nothing.

    Parameters
    ----------
    ledger : Ledger
        Of the protected table.
    query : str
        The relation, as the books call it. A histogram of it comes before one of the table.
    most : int
        max_contributions.
    linked : bool
        Whether the relation has rows of linked tables: then a histogram of the protected table says nothing of it.
    """
    asked = ("kept", ledger.books.database, ledger.source, query, most, linked)
    if asked not in context.known:  # of many releases of one source once
        context.known[asked] = _estimate(context, ledger, query, most, linked=linked)
    kept: Kept | None = context.known[asked]
    return kept


def ledger_in(context: Context, database: str, source: str) -> Ledger:
    """Return the ledger of a table in the books of a database."""
    return Ledger(Books(context.cursor, database), source, context.user, apart=context.analyst is not None)


def _estimate(context: Context, ledger: Ledger, query: str, most: int, *, linked: bool) -> Kept | None:
    books, source = ledger.books, ledger.source
    if not ledger.may_have_bought("contributions"):
        return None
    rows = context.cursor.execute(
        f"SELECT release, query FROM ({books.releases()}) "  # noqa: S608
        "WHERE source = ? AND operation = 'contributions' AND status = 'stored' AND query IN (?, ?) "
        "ORDER BY (query = ?)::INTEGER DESC, charged_at DESC, release ASC",
        [source, query, query if linked else source, query],
    ).fetchall()
    used = ledger.used()
    for name, relation in rows:
        if used is not None and name not in used:
            continue
        with suppress(ReleaseError, LedgerError):
            bought = drawing.bought(context, books, name)
            if bought is not None and not bought.plan.units:  # of rows per row of a table above
                continue
            share = None if bought is None else share_of(context.cursor, bought, most)
            return None if share is None else Kept(share, name, relation)
    return None


def share_of(cursor: duckdb.DuckDBPyConnection, bought: Release, most: int) -> float | None:
    """Return the share of rows that a bought histogram of rows per unit suggests."""
    plan = bought.plan
    band = noise_band(plan.mechanism, plan.scales[0], unit_rows.SURE)
    return unit_rows.share_kept(unit_rows.lower_of(plan.domain), bought.statistics(cursor).tables[(0,)], band, most)


def sentence(context: Context, database: str, bought: Release) -> str | None:
    """Return what a release counts where rows of a unit were bounded, and about how many of all rows that is; None: all rows.

    Parameters
    ----------
    database : str
        Whose books the release is in.
    """
    manifest = bought.manifest
    unit, most = manifest.get("privacy_unit"), int(manifest.get("max_contributions") or 1)
    if bought.plan.query is not None:
        return "; ".join(query_words.bounding(bought.plan.query, unit)) or None
    if bought.plan.linked is not None:
        return "; ".join(linked_words.bounding(bought.plan.linked))
    if bought.plan.units:
        return f"counts are of units ({unit}), each once, by their number of rows"
    words = unit_rows.capped(unit, most)
    # of a level, rows of `per` are bounded, not rows of the source
    if manifest["operation"] == "contributions":
        return f"counts are of rows of {manifest['parameters']['per']}, at most {most} of each {unit}, by their number of rows"
    if words is None:
        return None
    linked = bool(manifest.get("linked"))
    known = estimate(context, ledger_in(context, database, str(manifest["source"])), str(manifest["query"]), most, linked=linked)
    return words if known is None else f"{words}, {known.said}"
