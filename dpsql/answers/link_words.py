"""What a plan says of linked tables: whose rows are read, how many of a unit the links allow, what becomes of orphans."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from dpsql.books.entries import Purchase
from dpsql.protected.linked import key_of
from dpsql.protected.source import ProtectedSource


def notes(protected: ProtectedSource, purchase: Purchase | None = None) -> list[str]:
    """Return in words what links mean for a release; nothing for a source of one table.

    Parameters
    ----------
    protected : ProtectedSource
    purchase : Purchase, optional
        Of a release that was bought: its links are those that it was read by.

    Privacy: public facts of the schema.
    """
    if not protected.lineages:
        return []
    hops = {hop.child: hop for lineage in protected.lineages for hop in lineage.hops}
    today, then = dict(hops), {} if purchase is None else protected.ledger.links_of(purchase.release)
    for child, hop in today.items():
        link = then.get(key_of(child))
        if link is not None:
            hops[child] = replace(hop, max_rows=link.max_rows, orphans=link.orphans)
    changed = hops != today
    tables = sorted(key_of(table) for table in {*protected.source.tables, *hops})
    unit = protected.protection.privacy_unit
    links = ", ".join(f"{key_of(hop.child)}: at most {hop.max_rows} a row of {key_of(hop.parent)}" for hop in hops.values())
    sentences = [whose(tables, unit, protected.key)]
    if changed:
        sentences.append(f"it was read by links that were changed since ({links} then)")
    else:
        most = protected.source.most
        sentences.append(f"links allow {most:,} rows of a unit here ({links}); that is the bound where none is given")
    dropped = sorted(key_of(hop.child) for hop in hops.values() if hop.orphans == "drop")
    kept = sorted(key_of(hop.child) for hop in hops.values() if hop.orphans == "unit")
    if dropped:
        sentences.append(f"rows of {', '.join(dropped)} without a parent are left out")
    if kept:
        sentences.append(f"rows of {', '.join(kept)} without a parent are those of one unit together")
    return sentences


def whose(tables: Iterable[str], unit: str | None, root: str) -> str:
    """Return in words whose rows a release of linked tables is about."""
    return f"reads {', '.join(tables)}; a unit is one {unit} of {root} with all its rows in all tables that are linked to it"
