"""Links: whose rows a table's rows are, when it has no privacy unit of its own but a parent that has.

A link says that each row of a table belongs to at most one row of its parent, the one whose key its column holds. Links lead from a
table up to a root, which has the budget; a row's privacy unit is that of the root's row it ends in.

Privacy: None: links are public facts of the schema. No row is read here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dpsql.source.model import TableId

Orphans = Literal["drop", "unit"]
"""What becomes of rows whose parent is NULL or not there: left out, or all of them are rows of one unit, that of NULL."""


@dataclass(frozen=True)
class Hop:
    """One link, from a child to its parent.

    Parameters
    ----------
    child, parent : TableId
        Base tables of one database.
    column, parent_column : str
        As the catalog spells them. The parent's is a key (PRIMARY KEY or UNIQUE), of the type of the child's column.
    max_rows : int, at least 1
        Rows of the child that one row of the parent may have in a release.
    orphans : {'drop', 'unit'}
    order_by : str or None
        The child's column in whose order the rows of one parent row stand, as the link was given it; it may be gone.
    """

    child: TableId
    column: str
    parent: TableId
    parent_column: str
    max_rows: int
    orphans: Orphans = "drop"
    order_by: str | None = None


@dataclass(frozen=True)
class Lineage:
    """The way from a table up to the root that has the budget.

    Parameters
    ----------
    table, root : TableId
    hops : tuple of Hop
        From the table upwards, at least one; each one's parent is the next one's child, the last one's is the root.
    """

    table: TableId
    root: TableId
    hops: tuple[Hop, ...]

    @property
    def most(self) -> int:
        """Rows of the table that one row of the root may have.

        Examples
        --------
        >>> a, b, c = (TableId("d", "main", name) for name in "abc")
        >>> Lineage(a, c, (Hop(a, "x", b, "id", 5), Hop(b, "y", c, "id", 20))).most
        100
        """
        product = 1
        for hop in self.hops:
            product *= hop.max_rows
        return product
