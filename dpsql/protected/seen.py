"""What the books say of the analyst who asks a served database: under which grant, and which columns of a table she may name.

Other columns do not exist for her: looking for one says what a misspelt name says. This is the wall behind the server's own gate,
which looks at the text of a statement; here it is every look-up of a column in the catalog, wherever the name comes from. Which
tables she may ask about says the gate.

Privacy: None: names alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from dpsql.books.granted import Grant
from dpsql.books.grants import Grants
from dpsql.errors import NotGranted
from dpsql.protected.booked import books_of, links_in
from dpsql.session.instance import ANALYST, Context
from dpsql.source.model import TableId
from dpsql.text.relation import key_name


def granted(context: Context, database: str) -> dict[str, Grant]:
    """Return the grants of the analyst who asks by table, as they were when the call first asked; none, to a custodian."""
    return {name: grant for name, grant in _said(context, database).items() if grant is not None}


def check_open(context: Context, database: str, source: str) -> None:
    """Refuse a table whose grant was taken back from the analyst who asks: what she has bought of it is closed as well.

    Raises
    ------
    NotGranted
    """
    if _said(context, database).get(source, ()) is None:
        raise NotGranted(source)


def _said(context: Context, database: str) -> dict[str, Grant | None]:
    """Return what the books say of the analyst who asks by table; None: her grant was taken back."""
    if context.analyst is None:
        return {}
    grants: dict[str, Grant | None] | None = context.known.get(("granted", database))
    if grants is None:
        grants = Grants(books_of(context, database)).said(context.analyst.removeprefix(ANALYST))
        context.known["granted", database] = grants
    return grants


def fingerprint(context: Context) -> str:
    """Return what the analyst who asks may see, as text: what was remembered for one text is not given out for another one."""
    if context.analyst is None:
        return ""
    return repr((context.analyst, [(name, sorted(_said(context, name).items())) for name in context.databases()]))


def seen_by(context: Context) -> Seen | None:
    """Return what whoever asks may name; None, to a custodian: everything."""
    return None if context.analyst is None else Seen(context)


@dataclass(frozen=True)
class Seen:
    """What the analyst who asks may name."""

    context: Context

    def column(self, table: TableId, name: str) -> bool:
        """Return whether a column of a table may be named; one of a linked table if the grant of its root is of all columns."""
        if table.is_file:
            return True
        held, key = granted(self.context, table.database), key_name(table.schema, table.name)
        link = links_in(self.context, table.database).get(key) if held else None
        grant = held.get(key if link is None else link.root)
        return grant is None or (grant.reads(name) if link is None else grant.columns is None)
