"""What is publicly known of the tables that a query names. No row is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from dpsql.algebra.ranges import Range, meet
from dpsql.domains import sqltypes
from dpsql.domains.attributes import Attribute
from dpsql.domains.declare import self_declared
from dpsql.errors import ArgumentError, DpsqlError, NotProtected
from dpsql.protected.home import catalog_of
from dpsql.protected.linked import is_root
from dpsql.protected.renamed import check_renamed
from dpsql.protected.source import ProtectedSource, resolve, table_alone
from dpsql.queries.declared import range_of_attribute, range_of_type, range_of_values, typed_range
from dpsql.queries.taken import Leaf
from dpsql.queries.universes import Universe, universe_of_attribute, universe_of_type
from dpsql.session.instance import Context
from dpsql.source.analysis import relation_columns
from dpsql.source.catalog import FILE_ENDINGS, Catalog, file_table
from dpsql.source.model import TableId, fold, quoted
from dpsql.text.relation import identifier

_MOST_PUBLIC = 100_000
"""Values of a column of a public table that are listed."""


class Facts:
    """What is publicly known of the tables, views and files that one query names; looked up once each."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self._catalog = catalog_of(context)
        self._leaves: dict[str, Leaf] = {}
        self._columns: dict[str, dict[str, Attribute | str]] = {}
        self._protected: dict[str, ProtectedSource] = {}
        self._ranges: dict[tuple[str, str], Range] = {}
        self._listed: dict[tuple[str, str], Universe] = {}

    def __call__(self, node: exp.Table) -> Leaf:
        """Return what the splitting has to know of a relation.

        Raises
        ------
        ArgumentError
            There is none of that name.
        """
        key = _key(node)
        if key not in self._leaves:
            self._leaves[key] = _leaf(self.context, self._catalog, node)
        return self._leaves[key]

    def names(self, node: exp.Table) -> Sequence[str]:
        """Return the names of its columns, in order."""
        return self(node).columns

    def column(self, node: exp.Table, name: str) -> Attribute | str | None:
        """Return the declared domain of a column, else its type; None where there is no such column."""
        key = _key(node)
        if key not in self._columns:
            self._columns[key] = self._described(node)
        return self._columns[key].get(fold(name))

    def type_of(self, node: exp.Table, name: str) -> str | None:
        """Return the type of a column; None where there is no such column, or no such table."""
        try:
            column = self.column(node, name)
        except DpsqlError:
            return None
        return column.sql_type if isinstance(column, Attribute) else column

    def range(self, node: exp.Table, name: str) -> Range | None:
        """Return between which bounds the values of a column lie, as declared or by its type."""
        column = self.column(node, name)
        if column is None:
            return None
        if not isinstance(column, str):
            return range_of_attribute(column)
        return range_of_type(column) if self(node).protected else self._public_range(node, name, column)

    def _public_range(self, node: exp.Table, name: str, sql_type: str) -> Range:
        """Return between which bounds the values of a column of a public table are: everybody may read them."""
        key = (_key(node), fold(name))
        if key not in self._ranges:
            self._ranges[key] = range_of_type(sql_type)
            family, column = sqltypes.parse(sql_type).family, identifier(name)
            if family in ("integer", "decimal", "float", "temporal") and sql_type != "TIME":
                finite = f" WHERE system.main.isfinite({column})" if family in ("float", "temporal") else ""
                listed = ", ".join(f"CAST(system.main.{end}({column}) AS VARCHAR)" for end in ("min", "max"))
                ends = self.context.cursor.execute(f"SELECT {listed} FROM {self.sql(node)}{finite}").fetchall()[0]  # noqa: S608 -- quoted
                self._ranges[key] = range_of_values(sql_type, ends)
        return self._ranges[key]

    def universe(self, node: exp.Table, name: str) -> Universe | None:
        """Return what is known of the values of a column: as declared or by its type; of a public table's, what is in it."""
        column = self.column(node, name)
        if column is None:
            return None
        if isinstance(column, str):
            return universe_of_type(column) if self(node).protected else self._public(node, name, column)
        known = universe_of_attribute(column)
        return replace(known, strays=not known.open and self._strays(node, column))

    def bare(self, node: exp.Table, name: str) -> Universe | None:
        """Return the type and the bounds of `universe`, which are those of the type for a public table: nothing is listed."""
        column = self.column(node, name)
        if column is None:
            return None
        return universe_of_type(column) if isinstance(column, str) else universe_of_attribute(column)

    def _strays(self, node: exp.Table, attribute: Attribute) -> bool:
        """Whether rows may have other values than those that were declared: no type and no CHECK constraint rules them out."""
        protected = self._protected[_key(node)]
        column = protected.column(attribute.name)
        by = self_declared(column.name, column.sql_type, column.nullable) or protected.by_constraint(column)
        if attribute.kind == "categorical":
            return by is None or not by.categories or not set(by.categories) <= set(attribute.categories)
        inside, possible = range_of_attribute(attribute), typed_range(column.sql_type)
        possible = possible if by is None else meet(possible, range_of_attribute(by))
        return not inside.lower <= possible.lower <= possible.upper <= inside.upper

    def _public(self, node: exp.Table, name: str, sql_type: str) -> Universe:
        """Return the values of a column of a public table, which everybody may read."""
        key = (_key(node), fold(name))
        if key not in self._listed:
            self._listed[key] = self._values(node, name, sql_type)
        return self._listed[key]

    def _values(self, node: exp.Table, name: str, sql_type: str) -> Universe:
        column = identifier(name)
        rows = self.context.cursor.execute(
            f"SELECT DISTINCT CAST({column} AS VARCHAR) FROM {self.sql(node)} ORDER BY 1 ASC NULLS LAST LIMIT {_MOST_PUBLIC + 1}"  # noqa: S608
        ).fetchall()
        values = tuple(str(value) for (value,) in rows if value is not None)
        if len(values) > _MOST_PUBLIC:
            return universe_of_type(sql_type)
        return Universe(sql_type, values, range_of_type(sql_type), len(values) < len(rows))

    def sql(self, node: exp.Table) -> str:
        """Return what stands for a public table, view or file after FROM, whatever the cursor's own schema is."""
        path = _path(node)
        if path is not None:
            return file_table(path, repr(path)).sql
        entry = self._catalog.locate([part.name for part in node.parts], [(self.context.database, self.context.schema)])
        return _key(node) if entry is None else entry.table.sql

    def qualify(self, node: exp.Table) -> None:
        """Write the database and schema of a public table or view into its name: a cursor of dpsql's has its own search path."""
        if _path(node) is not None:
            return
        entry = self._catalog.locate([part.name for part in node.parts], [(self.context.database, self.context.schema)])
        if entry is None:
            return
        if not node.alias:
            node.set("alias", exp.TableAlias(this=exp.to_identifier(node.name, quoted=True)))
        for part, name in (("this", entry.table.name), ("db", entry.table.schema), ("catalog", entry.table.database)):
            node.set(part, exp.to_identifier(name, quoted=True))

    def _described(self, node: exp.Table) -> dict[str, Attribute | str]:
        if not self(node).protected:
            described = self.context.cursor.execute(f"DESCRIBE SELECT * FROM {self.sql(node)}").fetchall()  # noqa: S608
            return {fold(str(row[0])): str(row[1]) for row in described}
        table = _table(self.context, self._catalog, node)
        protected = None if table is None else table_alone(self.context, table)
        if protected is None:
            protected = resolve(self.context, _key(node), local=True)
        self._protected[_key(node)] = protected
        domain, without = protected.attributes()
        return {
            **{fold(column.name): column.sql_type for column in without},
            **{fold(attribute.name): attribute for attribute in domain.attributes},
        }


def facts_of(context: Context) -> Facts:
    """Return what is known of tables as a call sees it: everything is looked up once, for all that the call buys.

    Privacy: a table that is protected or linked meanwhile is found before a charge, and once more before rows are read
    (`dpsql.books.linked`).
    """
    facts = context.known.get("facts")
    if not isinstance(facts, Facts):
        facts = context.known["facts"] = Facts(context)
    return facts


def _key(node: exp.Table) -> str:
    """Return a relation as text, without its alias."""
    if isinstance(node.this, exp.Identifier):
        return quoted(*(part.name for part in node.parts))
    return str(node.this.sql(dialect="duckdb", comments=False))


def _table(context: Context, catalog: Catalog, node: exp.Table) -> TableId | None:
    """Return the base table or file that a relation is; None for a view."""
    path = _path(node)
    if path is not None:
        return file_table(path, repr(path))
    entry = catalog.locate([part.name for part in node.parts], [(context.database, context.schema)])
    return None if entry is None or entry.is_view else entry.table


def _leaf(context: Context, catalog: Catalog, node: exp.Table) -> Leaf:
    path = _path(node)
    if path is None:
        parts = [part.name for part in node.parts]
        entry = catalog.locate(parts, [(context.database, context.schema)])
        if entry is None:
            near = catalog.near(parts[-1], [(context.database, context.schema)])
            raise ArgumentError(
                "sql", ".".join(parts),
                f"no such table or view in {context.database}.{context.schema}{near}. If its transaction is still open, "
                "COMMIT first; a TEMP table belongs to one connection and can't be used; in another schema write schema.table",
            )
        if entry.is_view:
            return _view(context, quoted(entry.table.database, entry.table.schema, entry.table.name))
        table = entry.table
    else:
        table = file_table(path, repr(path))
    protected = table_alone(context, table)
    if protected is None:
        check_renamed(context, [table])
        return Leaf(False, tuple(fold(column.name) for column in relation_columns(context.cursor, table, catalog)))
    columns = tuple(fold(column.name) for column in protected.source.columns)
    unit = protected.protection.privacy_unit
    units = frozenset(fold(column.name) for column in protected.source.columns if protected.is_unit(column))
    table_ = protected.source.named
    if unit is not None and not protected.lineages and (table_ is None or catalog.nameable(table_, unit)):
        units |= {fold(unit)}  # it may be a column that a source cannot name; but one that is not granted does not exist
    return Leaf(True, columns, units, _keys(context, catalog, protected) - units)


def _keys(context: Context, catalog: Catalog, protected: ProtectedSource) -> frozenset[str]:
    """Return the columns of a table with links whose values tell whose row one is: the link's own, and unique keys.

    Of a unique key that may be NULL too: its groups are of one person each. Inside of a person rows may be grouped by it where the
    text leaves NULL out, or names the unit beside it (:mod:`dpsql.source.combining`).
    """
    table = protected.source.named
    if table is None or table.is_file or not (protected.lineages or is_root(context, table)):
        return frozenset()
    names = {fold(column.name) for column in protected.source.columns}
    linking = {fold(lineage.hops[0].column) for lineage in protected.lineages}
    return frozenset(linking | (names & set(catalog.single_keys(table))))


def _view(context: Context, name: str) -> Leaf:
    try:
        protected = resolve(context, name, local=True)
    except NotProtected:
        advice = "is a view of no protected table; make it a table first: CREATE TABLE ... AS FROM it"
        raise ArgumentError("sql", name, advice) from None
    columns = protected.source.columns
    return Leaf(True, tuple(fold(c.name) for c in columns), frozenset(fold(c.name) for c in columns if protected.is_unit(c)))


def _path(node: exp.Table) -> str | None:
    """Return the path of a file that stands in place of a table; None for names."""
    if isinstance(node.this, exp.Anonymous):
        arguments = node.this.expressions
        if len(arguments) == 1 and isinstance(arguments[0], exp.Literal) and arguments[0].is_string:
            return str(arguments[0].name)
        raise ArgumentError("sql", node.this.sql(dialect="duckdb"), "takes one file name here")
    path = ".".join(part.name for part in node.parts)
    return path if "/" in path or path.lower().endswith(FILE_ENDINGS) else None
