"""What dbt's log says of a model that was bought: what it cost, and what is left."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpsql.accounting.left import remaining
from dpsql.books.ledger import Ledger
from dpsql.books.links import Links
from dpsql.books.schema import Books
from dpsql.errors import DpsqlError
from dpsql.rows import drawing
from dpsql.session.instance import Context
from dpsql.text.relation import at_least, at_most


def spent(context: Context, given: Mapping[str, Any]) -> list[str]:
    """Return a line for each release of a model that was made.

    Parameters
    ----------
    given : mapping
        ``label`` of the model, ``releases``: their identifiers, ``before``: those that were in the books before it was made.

    Notes
    -----
    Privacy: free, from the books alone.
    """
    return [f"{given['label']}: {_line(context, str(name), name in given['before'])}" for name in given["releases"]]


def _line(context: Context, name: str, before: bool) -> str:
    try:
        bought = drawing.find(context, name)
    except DpsqlError:
        return "answered with what was bought before, nothing is spent"
    source, epsilon = str(bought.manifest["source"]), at_most(float(bought.manifest["charge"]["epsilon"]))
    paid = "bought before, nothing is spent" if before else f"bought for epsilon = {epsilon:g}"
    home_books = Books(context.cursor, drawing.home(context, name))
    source = Links(home_books.cursor, home_books.database, home_books).root(source)  # of a table that was linked since
    books = Ledger(home_books, source, context.user)
    protection = books.protection()
    if protection is None:
        return f"{name}: {paid}"
    left = at_least(remaining(protection.budget, books.charges()).epsilon_left)
    return f"{name}: {paid}; one more release of {source} may have epsilon = {left:g}"
