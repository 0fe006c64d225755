"""What is publicly known of the tables that a query names. No row is read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sqlglot import exp

from dpsql.domains.attributes import Attribute
from dpsql.domains.declare import self_declared
from dpsql.errors import ArgumentError, NotProtected
from dpsql.protected.linked import is_root
from dpsql.protected.source import ProtectedSource, catalog_of, resolve, table_alone
from dpsql.queries.declared import range_of_attribute, range_of_type
from dpsql.queries.ranges import Range
from dpsql.queries.taken import Leaf
from dpsql.queries.universes import Universe, universe_of_attribute, universe_of_type
from dpsql.session.instance import Context
from dpsql.source.analysis import relation_columns
from dpsql.source.catalog import FILE_ENDINGS, Catalog
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
        self._universes: dict[tuple[str, str], Universe] = context.known.setdefault("public values", {})

    def expect(self, tree: exp.Expression) -> None:
        """Ask the catalog for all names of a text that may be tables, at once."""
        self._catalog.expect(table.name for table in tree.find_all(exp.Table) if isinstance(table.this, exp.Identifier))

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

    def range(self, node: exp.Table, name: str) -> Range | None:
        """Return between which bounds the values of a column lie, as declared or by its type."""
        found = self.column(node, name)
        if found is None:
            return None
        return range_of_type(found) if isinstance(found, str) else range_of_attribute(found)

    def universe(self, node: exp.Table, name: str) -> Universe | None:
        """Return what is known of the values of a column: as declared or by its type; of a public table's, what is in it."""
        found = self.column(node, name)
        if found is None:
            return None
        if isinstance(found, str):
            if self(node).protected:
                return universe_of_type(found)
            key = _key(node), fold(name)
            if key not in self._universes:
                self._universes[key] = self._public(node, name, found)
            return self._universes[key]
        return universe_of_attribute(found)

    def complete(self, node: exp.Table, name: str) -> bool:
        """Return whether no row can have another value than those listed: its type or a CHECK says so; so with NULL.

        A declaration alone does not: rows with other values are in no group, and it may say fewer values than there are.
        """
        found = self.column(node, name)
        if not isinstance(found, Attribute):
            return found is not None and (found == "BOOLEAN" or found.startswith("ENUM"))
        if found.kind != "categorical" or found.outside != "clamp" or not self(node).protected:
            return False
        protected = self._protected(node)
        column = next((one for one in protected.source.columns if fold(one.name) == fold(name)), None)
        if column is None or (column.nullable and not found.nullable):
            return False
        borne = self_declared(column.name, column.sql_type, column.nullable) or protected.by_constraint(column)
        return borne is not None and borne.kind == "categorical" and set(borne.categories) <= set(found.categories)

    def _public(self, node: exp.Table, name: str, sql_type: str) -> Universe:
        """Return the values of a column of a public table, which everybody may read, with NULL where it is in them."""
        column, table = identifier(name), self._sql(node)
        if self._many(column, table):
            return universe_of_type(sql_type)
        rows = self.context.cursor.execute(
            f"SELECT DISTINCT CAST({column} AS VARCHAR) FROM {table} "  # noqa: S608
            f"ORDER BY 1 ASC NULLS FIRST LIMIT {_MOST_PUBLIC + 1}"
        ).fetchall()
        if len(rows) > _MOST_PUBLIC:
            return universe_of_type(sql_type)
        values = tuple(str(row[0]) for row in rows if row[0] is not None)
        return Universe(sql_type, values, range_of_type(sql_type), len(values) < len(rows))

    def _many(self, column: str, table: str) -> bool:
        """Return whether a column of a public table has more values than are listed, without making texts of them."""
        for counted in ("*", f"DISTINCT {column}"):  # the number of rows is known without reading them
            row = self.context.cursor.execute(f"SELECT system.main.count({counted}) FROM {table}").fetchone()  # noqa: S608
            if row is not None and int(row[0]) <= _MOST_PUBLIC:
                return False
        return True

    def _sql(self, node: exp.Table) -> str:
        """Return what stands for a public table, view or file after FROM, whatever the cursor's own schema is."""
        path = _path(node)
        if path is not None:
            return self._catalog.file(path, repr(path)).sql
        entry = self._catalog.locate([part.name for part in node.parts], [(self.context.database, self.context.schema)])
        return _key(node) if entry is None else entry.table.sql

    def qualify(self, node: exp.Table) -> None:
        """Write the database and schema of a public table or view, or a file's whole path, into its name.

        A cursor of dpsql's has its own search path; and a setting (``file_search_path``) may find another file by a short name than
        the one that was checked.
        """
        path = _path(node)
        if path is not None:
            _written(node, self._catalog.file(path, repr(path)).name)
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
            described = self.context.cursor.execute(f"DESCRIBE SELECT * FROM {self._sql(node)}").fetchall()  # noqa: S608
            return {fold(str(row[0])): str(row[1]) for row in described}
        domain, without = self._protected(node).attributes()
        return {
            **{fold(column.name): column.sql_type for column in without},
            **{fold(attribute.name): attribute for attribute in domain.attributes},
        }

    def _protected(self, node: exp.Table) -> ProtectedSource:
        """Return a protected table or view."""
        table = base_table(self.context, self._catalog, node)
        protected = None if table is None else table_alone(self.context, table)
        return resolve(self.context, _key(node), local=True) if protected is None else protected


def _written(node: exp.Table, path: str) -> None:
    """Write the whole path of a file in place of the one that is there; its columns keep the name by which they are qualified."""
    if isinstance(node.this, exp.Anonymous):
        node.this.set("expressions", [exp.Literal.string(path)])
        return
    if not node.alias:  # as DuckDB names it
        node.set("alias", exp.TableAlias(this=exp.to_identifier(Path(path).name.split(".")[0], quoted=True)))
    node.set("this", exp.to_identifier(path, quoted=True))
    node.set("db", None)
    node.set("catalog", None)


def _key(node: exp.Table) -> str:
    """Return a relation as text, without its alias."""
    if isinstance(node.this, exp.Identifier):
        return quoted(*(part.name for part in node.parts))
    return str(node.this.sql(dialect="duckdb", comments=False))


def base_table(context: Context, catalog: Catalog, node: exp.Table) -> TableId | None:
    """Return the base table or file that a relation is; None for a view."""
    path = _path(node)
    if path is not None:
        return catalog.file(path, repr(path))
    entry = catalog.locate([part.name for part in node.parts], [(context.database, context.schema)])
    return None if entry is None or entry.is_view else entry.table


def _leaf(context: Context, catalog: Catalog, node: exp.Table) -> Leaf:
    path = _path(node)
    if path is None:
        parts = [part.name for part in node.parts]
        entry = catalog.locate(parts, [(context.database, context.schema)])
        if entry is None:
            raise ArgumentError(
                "sql", ".".join(parts),
                f"no such table or view in {context.database}.{context.schema}. If its transaction is still open, "
                "COMMIT first; a TEMP table belongs to one connection and can't be used; in another schema write schema.table",
            )  # fmt: skip
        if entry.is_view:
            return _view(context, quoted(entry.table.database, entry.table.schema, entry.table.name))
        table = entry.table
    else:
        table = catalog.file(path, repr(path))
    protected = table_alone(context, table)
    if protected is None:
        return Leaf(False, tuple(fold(column.name) for column in relation_columns(context.cursor, table, catalog)))
    columns = tuple(fold(column.name) for column in protected.source.columns)
    units = frozenset(fold(column.name) for column in protected.source.columns if protected.is_unit(column))
    unit = protected.protection.privacy_unit
    if unit is not None and not protected.lineages:  # an analyst may count units whose column she may not name otherwise
        units |= {fold(unit)}
    return Leaf(True, columns, units, units | keys_of(context, catalog, protected))


def keys_of(context: Context, catalog: Catalog, protected: ProtectedSource) -> frozenset[str]:
    """Return the columns of a table with links whose values tell whose row one is: the link's own, and keys without NULL."""
    table = protected.source.named
    linked = bool(protected.lineages)
    if table is None or table.is_file or not (linked or is_root(context, table)):
        return frozenset()
    there = {fold(column.name): column for column in protected.source.columns}
    single = [fold(key[0]) for key in catalog.keys(table) if len(key) == 1]
    held = {fold(lineage.hops[0].column) for lineage in protected.lineages}
    return frozenset(held | {name for name in single if name in there and not there[name].nullable})


def _view(context: Context, name: str) -> Leaf:
    try:
        protected = resolve(context, name, local=True)
    except NotProtected:
        advice = "is a view of no protected table; make it a table first: CREATE TABLE ... AS FROM it"
        raise ArgumentError("sql", name, advice) from None
    columns = protected.source.columns
    units = frozenset(fold(c.name) for c in columns if protected.is_unit(c))
    return Leaf(True, tuple(fold(c.name) for c in columns), units, units)


def _path(node: exp.Table) -> str | None:
    """Return the path of a file that stands in place of a table; None for names."""
    if isinstance(node.this, exp.Anonymous):
        given = node.this.expressions
        if len(given) == 1 and isinstance(given[0], exp.Literal) and given[0].is_string:
            return str(given[0].name)
        raise ArgumentError("sql", node.this.sql(dialect="duckdb"), "takes one file name here")
    path = ".".join(part.name for part in node.parts)
    return path if "/" in path or path.lower().endswith(FILE_ENDINGS) else None
