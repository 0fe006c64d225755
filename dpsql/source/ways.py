"""Linked tables as relations: a row of one stands beside the privacy unit of the row of its root that its links lead to.

The leaf of a linked table is ``SELECT c.a, ..., p.__dp_unit FROM child c JOIN (SELECT key, <unit> AS __dp_unit FROM parent) p ON
c.column = p.key``, where a parent that is linked itself stands for its own leaf. Equal means the same bytes. LEFT JOIN, with
``orphans := 'unit'``, keeps rows without a parent as rows of the unit NULL.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sqlglot import exp

from dpsql.errors import ArgumentError
from dpsql.source.catalog import Catalog, Described, table_expression
from dpsql.source.keys import KINDS, exact, in_bytes, is_unit, unit_value
from dpsql.source.linked import Hop, Lineage
from dpsql.source.model import RESERVED, UNIT, Column, TableId, fold, identifier

LEAF = "dpsql_leaf"
"""Mark on the generated SELECT of a protected table."""
KEY = f"{RESERVED}key"
"""Name of a parent's key in the relation that a child is joined to."""


class Ways:
    """The ways from one linked table up to its root, as joins.

    Parameters
    ----------
    catalog : Catalog
    unit_column : callable
        The column of a root that says whose row it is; None where a row is a person, and then it is the key that links point to.
    fresh : callable
        Gives an alias that nothing else has, and notes the columns of the table under it.
    """

    def __init__(
        self,
        catalog: Catalog,
        unit_column: Callable[[TableId], str | None],
        fresh: Callable[[TableId, list[Described]], str],
    ) -> None:
        self.catalog, self.unit_column, self.fresh = catalog, unit_column, fresh

    def unit(self, lineage: Lineage) -> str:
        """Return the column of the root that is the privacy unit, as the catalog spells it."""
        name = self.unit_column(lineage.root) or lineage.hops[-1].parent_column
        column = _column(self.catalog.columns(lineage.root), name)
        if column is None:
            raise ArgumentError("privacy_unit", name, f"{lineage.root.text} has no stored column of that name any more")
        if not is_unit(column.sql_type):
            several = f"is {column.sql_type} in {lineage.root.text}; name a column that is {KINDS}"
            raise ArgumentError("privacy_unit", name, several)
        return column.name

    def up(self, lineage: Lineage, alias: str) -> tuple[exp.Join, exp.Expression]:
        """Return the join of a linked table to its parent, and the privacy unit that it gives.

        Parameters
        ----------
        lineage : Lineage
        alias : str
            Of the linked table, in the generated SQL.

        Raises
        ------
        ArgumentError
            A column of a link is gone, or the two are not of one type whose equality is that of bytes.
        """
        return self._up(lineage, 0, alias)

    def _up(self, lineage: Lineage, at: int, alias: str) -> tuple[exp.Join, exp.Expression]:
        hop = lineage.hops[at]
        columns = self.catalog.columns(hop.parent)
        child, key = self._ends(hop, columns)
        parent = self.fresh(hop.parent, columns)
        select = exp.Select().from_(table_expression(hop.parent, parent))
        if at + 1 == len(lineage.hops):
            unit = self.unit(lineage)
            kind = next(c.sql_type for c in columns if c.name == unit)
            value = unit_value(exp.Column(this=identifier(unit), table=identifier(parent)), kind)
        else:
            join, value = self._up(lineage, at + 1, parent)
            select.append("joins", join)
        key_value = in_bytes(exp.Column(this=identifier(key.name), table=identifier(parent)), key.sql_type)
        select.set(
            "expressions",
            [exp.Alias(this=key_value, alias=identifier(KEY)), exp.Alias(this=value, alias=identifier(UNIT))],
        )
        above = self.fresh(hop.parent, [])
        relation = exp.Subquery(this=select, alias=exp.TableAlias(this=identifier(above)))
        own = in_bytes(exp.Column(this=identifier(child.name), table=identifier(alias)), child.sql_type)
        on = exp.EQ(this=own, expression=exp.Column(this=identifier(KEY), table=identifier(above)))
        side = {"side": "LEFT"} if hop.orphans == "unit" else {}
        return exp.Join(this=relation, on=on, **side), exp.Column(this=identifier(UNIT), table=identifier(above))

    def _ends(self, hop: Hop, columns: list[Described]) -> tuple[Described, Described]:
        """Return the two columns of a link."""
        child, key = _column(self.catalog.columns(hop.child), hop.column), _column(columns, hop.parent_column)
        for table, name, end in ((hop.child, hop.column, child), (hop.parent, hop.parent_column, key)):
            if end is None:
                raise ArgumentError("source", name, f"{table.text} has no stored column of that name any more; link it again")
        if child is None or key is None:  # pragma: no cover -- raised above
            raise AssertionError
        if child.sql_type != key.sql_type or not exact(child.sql_type):
            advice = f"the link compares {child.sql_type} with {key.sql_type} of {hop.parent.text}; both must be one type, {KINDS}"
            raise ArgumentError("source", hop.column, advice)
        return child, key


def without_parent(leaf: exp.Subquery) -> exp.Subquery:
    """Return the leaf of a linked table without its parent and its unit: for a join to the parent that the text has itself."""
    out = leaf.copy()
    select = out.this
    select.set("joins", None)
    select.set("expressions", [listed for listed in select.expressions if listed.alias != UNIT])
    return out


def below_parent(relation: exp.Expression) -> exp.Subquery | None:
    """Return ``(SELECT columns FROM leaf WHERE ...)`` of a linked table without its parent and its unit; None for anything else.

    For a SEMI or ANTI join on the link, beside a row whose unit is that of the parent's row.
    """
    if not isinstance(relation, exp.Subquery) or not isinstance(relation.this, exp.Select):
        return None
    out = relation.copy()
    select = out.this
    clause = select.args.get("from_") or select.args.get("from")
    if any(select.args.get(key) for key in ("joins", "group", "distinct", "having", "qualify")) or clause is None:
        return None
    if not is_leaf(clause.this) or not clause.this.this.args.get("joins"):
        return None
    clause.set("this", without_parent(clause.this))
    select.set("expressions", [listed for listed in select.expressions if listed.alias != UNIT])
    if not select.expressions or any(fold(column.name) == UNIT for column in select.find_all(exp.Column)):
        return None
    return out


def is_leaf(node: exp.Expression) -> bool:
    """Return whether a relation is a protected table as it is read."""
    return isinstance(node, exp.Subquery) and bool(node.this.meta.get(LEAF))


def _column(columns: list[Described], name: str) -> Described | None:
    return next((c for c in columns if fold(c.name) == fold(name)), None)


def marked(column: Column, lineage: Lineage | None, keys: list[list[str]], table: TableId, unit: str | None) -> Column:
    """Return a column of a protected table with what its values say of the unit of a row.

    Parameters
    ----------
    column : Column
        Of the table itself.
    lineage : Lineage or None
        Of a linked table.
    keys : list of list of str
        The unique keys of the table.
    unit : str or None
        The privacy unit column of the root.
    """
    keys_held = {(table, fold(key[0])) for key in keys if len(key) == 1 and fold(key[0]) == fold(column.name)}
    column = replace(column, unique=bool(keys_held))
    if lineage is None:
        return replace(column, keys=frozenset(keys_held), told=not column.nullable)
    hop = lineage.hops[0]
    if fold(hop.column) != fold(column.name):
        return replace(column, home=table, keys=frozenset(keys_held), told=not column.nullable)
    keys_held.add((hop.parent, fold(hop.parent_column)))
    ends = len(lineage.hops) == 1 and unit is not None and fold(hop.parent_column) == fold(unit)
    kept = hop.orphans == "unit"
    # without a parent a row is left out, or of the unit NULL: so the column tells the unit, be it NULL or not
    return replace(
        column,
        home=table,
        keys=frozenset(keys_held),
        told=True,
        unit=ends,
        orphans=ends and kept,
        nullable=column.nullable and kept,
    )
