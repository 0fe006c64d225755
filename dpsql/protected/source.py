"""A checked source together with its books: whose budget it charges and which public domain its columns have."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

import sqlglot
from sqlglot import exp

from dpsql.books.entries import Protection
from dpsql.books.ledger import Ledger
from dpsql.books.schema import Books
from dpsql.domains.attributes import Attribute, Domain
from dpsql.domains.declare import self_declared
from dpsql.errors import ArgumentError, DomainError, DpsqlError, NotProtected
from dpsql.protected.constraints import Constraints
from dpsql.protected.home import books_of
from dpsql.protected.seen import check_open, seen_by
from dpsql.session.instance import Context
from dpsql.source.analysis import UNIT, OutputColumn, Source, TableId, analyse, find_table, relation_columns
from dpsql.source.catalog import Catalog
from dpsql.source.listed import Functions
from dpsql.text.names import fold
from dpsql.text.relation import key_name

_PLAIN = (
    exp.Select, exp.From, exp.Subquery, exp.Table, exp.TableAlias, exp.Alias, exp.Column, exp.Identifier,
    exp.ReadParquet, exp.Literal, exp.EQ, exp.Boolean, exp.PropertyEQ, exp.Kwarg,
)
"""What the SQL of a plain source is made of; the second line is how a file is read."""


def home(context: Context, table: TableId) -> str:
    """Return the database whose books a table belongs to: its own; for a file the one that protects it, else the current one."""
    if not table.is_file:
        return table.database
    for database in context.databases():  # USE another database, and the file must not look public
        if Ledger(books_of(context, database), key_of(table), context.user).protection() is not None:
            return database
    return context.database


def key_of(table: TableId) -> str:
    """Return the name under which the books know a table, whatever the database is attached as and in whatever case it is spelled.

    Examples
    --------
    >>> key_of(TableId("census", "main", "Adult")), key_of(TableId("census", "Odd one", "1a"))
    ('main.adult', '"odd one"."1a"')
    """
    if table.is_file:
        return f"file:{table.name}"
    return key_name(table.schema, table.name)


def ledger_of(context: Context, table: TableId) -> Ledger:
    """Return the ledger of a table, protected or not."""
    return Ledger(books_of(context, home(context, table)), key_of(table), context.user, apart=context.analyst is not None)


@contextmanager
def own_ledger(context: Context, protected: ProtectedSource) -> Iterator[Ledger]:
    """Give the ledger of a table on a cursor of its own: after a failure or an interruption the call's may be in any state."""
    cursor = context.instance.cursor()
    try:
        yield Ledger(Books(cursor, protected.books.database), protected.key, context.user, apart=context.analyst is not None)
    finally:
        cursor.close()


def protection_of(context: Context, table: TableId) -> tuple[Ledger, Protection | None]:
    """Return the ledger of a table and its contract as the call found it, None where it is not protected."""
    found: tuple[Ledger, Protection | None] | None = context.known.get(("protection", table))
    if found is None:
        ledger = ledger_of(context, table)
        found = context.known["protection", table] = (ledger, ledger.protection())
    return found


def catalog_of(context: Context) -> Catalog:
    """Return the catalog as a call sees it: everything is looked up once."""
    found = context.known.get("catalog")
    if not isinstance(found, Catalog):
        functions = context.instance.remembered.setdefault("functions", Functions())
        found = context.known["catalog"] = Catalog(context.cursor, functions, seen_by(context))
    return found


@dataclass(frozen=True)
class ProtectedSource:
    """A source that passed the check, its protected table's contract and books."""

    source: Source
    ledger: Ledger
    protection: Protection

    @property
    def books(self) -> Books:
        """The books of the protected table."""
        return self.ledger.books

    @property
    def key(self) -> str:
        """Name of the protected table in the books."""
        return self.ledger.source

    @property
    def query(self) -> str:
        """What identifies the measured relation: the table's name, or the normalised text of a view, file or query."""
        return self.key if self.source.bare else self.source.canonical

    @property
    def plain(self) -> bool:
        """Whether the source is no more than the table or some of its columns: nothing in it is computed, filtered or joined.

        The SQL that would run is looked at, not what it gives: an expression that nobody asked for may be computed all the same.
        """
        source = self.source
        if source.bare:
            return True
        if source.local or source.filtered or source.public_tables:
            return False
        parsed = sqlglot.parse_one(source.sql, read="duckdb")
        constants = {one.alias for one in parsed.selects if isinstance(one, exp.Alias) and isinstance(one.this, exp.Literal)}
        if any(column.origin is None and column.name not in constants for column in source.columns):  # SELECT 1, for count(*)
            return False
        for alias in parsed.find_all(exp.Alias):
            if alias.alias == UNIT:  # our own expression, total: the privacy unit in bytes
                alias.set("this", exp.column(UNIT))
        return all(isinstance(node, _PLAIN) for node in parsed.walk())

    def column(self, name: str) -> OutputColumn:
        """Return the column of the source that has this name, compared as DuckDB does.

        Raises
        ------
        ArgumentError
            There is none.
        """
        columns = {fold(c.name): c for c in self.source.columns}
        found = columns.get(fold(name))
        if found is None:
            raise ArgumentError("column", name, f"not a column of the source; it has {[c.name for c in columns.values()]!r}")
        return found

    def declared(self) -> dict[str, Attribute]:
        """Return what was declared for this source, for views below it or for the protected table itself, by column name."""
        return {**self.books.declared(self.key), **self.books.declared(self.query), **self.declarations()}

    def declarations(self) -> dict[str, Attribute]:
        """Return what was declared for each column of the source: for this query, for a view below it, or for the table."""
        places = {place: self.books.declared(place) for place in {self.query, self.key, *self.views()}}
        found: dict[str, Attribute] = {}
        for column in self.source.columns:
            copied = [(self.query, column.name), *reversed(column.views), (self.key, column.origin or "")]
            attribute = next((places[place][name] for place, name in copied if name in places[place]), None)
            if attribute is not None:
                found[column.name] = attribute
        return found

    def views(self) -> set[str]:
        """Return the views below the source, as the books call them."""
        return {view for column in self.source.columns for view, _ in column.views}

    @cached_property
    def constraints(self) -> Constraints:
        """What the schema of the protected table says. Privacy: no row of it is read."""
        return Constraints(self.books.cursor, self.source.table)

    def by_constraint(self, column: OutputColumn) -> Attribute | None:
        """Return the domain that CHECK constraints of the table give a column that copies one of its."""
        return None if column.origin is None else self.constraints.attribute(column)

    def refers_to(self, column: OutputColumn) -> tuple[TableId, str] | None:
        """Return the table and column that a column refers to by a foreign key. Privacy: of the catalog; neither table is read."""
        return None if column.origin is None else self.constraints.reference(column)

    def is_unit(self, column: OutputColumn) -> bool:
        """Return whether a column says whose row this is: it has no domain, and is no data."""
        unit = self.protection.privacy_unit
        return unit is not None and fold(column.origin or column.name) == fold(unit)

    def attributes(self) -> tuple[Domain, list[OutputColumn]]:
        """Return the domain of the declared columns, in column order, and the columns that have none.

        A declaration for this very view or query comes first, then the one of the column that an output column copies: of
        the outermost view that has one, or of the protected table; then what an ENUM or BOOLEAN column declares by its type, and
        what CHECK constraints of the table say.
        A column that says whose row it is has none, whatever was declared before it became that.
        """
        found: list[Attribute] = []
        left_out: list[OutputColumn] = []
        declared = self.declarations()
        for column in self.source.columns:
            if self.is_unit(column):
                left_out.append(column)
                continue
            attribute = declared.get(column.name)
            if attribute is not None and attribute.sql_type != column.sql_type:
                raise DomainError(
                    f"column {column.name!r} was declared as {attribute.sql_type} and is {column.sql_type} now; "
                    f"declare it again: CALL dp_declare(source, '{column.name}', ...)"
                )
            if attribute is None:
                attribute = self_declared(column.name, column.sql_type, column.nullable)
            if attribute is None:
                attribute = self.by_constraint(column)
            if attribute is None:
                left_out.append(column)
            else:
                found.append(dataclasses.replace(attribute, name=column.name))
        return Domain(tuple(found)), left_out


def resolve(context: Context, text: str, *, local: bool = False) -> ProtectedSource:
    """Check a source and find the budget it charges.

    Parameters
    ----------
    context : Context
    text : str
    local : bool
        Whether it may combine rows of one privacy unit (:func:`dpsql.source.analysis.analyse`); whoever asks then bounds the rows
        of a unit.

    Raises
    ------
    UnsupportedQuery
        The source does not keep one output row per input row.
    NotProtected
        It reaches no table with a budget.

    Notes
    -----
    Within a call a text is checked once: what was checked is what the call charges for, and runs. That its contract is still in
    force is checked where it is charged (`Ledger.charge`) and before rows are read (`dpsql.purchase.measuring.check_unchanged`), on
    the books as they are then. A change of a contract forgets what the call has checked before (`dpsql.custodian.protect`).
    """
    known = context.known.get(("source", text, local))
    if not isinstance(known, ProtectedSource):
        known = context.known["source", text, local] = _resolved(context, text, local=local)
    return known


def table_alone(context: Context, table: TableId) -> ProtectedSource | None:
    """Return a protected table with its columns, to ask what is declared of them; None where it has no budget.

    Nothing can be read through it: its ``sql`` is empty.
    """
    ledger, found = protection_of(context, table)
    if found is None:
        return None
    columns = tuple(relation_columns(context.cursor, table, catalog_of(context)))
    source = Source(
        text=table.text, canonical=table.text, table=table, sql="", columns=columns, filtered=False, public_tables=(), unit=None,
        row=None, bare=True,
    )
    return ProtectedSource(source, ledger, found)


def _resolved(context: Context, text: str, *, local: bool) -> ProtectedSource:
    """Check a source; see `resolve`."""
    consulted: dict[TableId, Ledger] = {}

    def protection(table: TableId) -> Protection | None:
        consulted[table], found = protection_of(context, table)
        return found

    def unit(table: TableId) -> str | None:
        found = protection(table)
        return found.privacy_unit if found else None

    def most_rows(table: TableId) -> int:
        found = protection(table)
        return found.max_contributions if found else 1

    catalog_of(context).check_functions()
    try:
        source = analyse(
            context.cursor,
            text,
            database=context.database,
            schema=context.schema,
            protected=lambda table: protection(table) is not None,
            public_keys=lambda table: (),
            unit_column=unit,
            most_rows=most_rows,
            local=local,
            catalog=catalog_of(context),
        )
    except DpsqlError:
        for ledger in consulted.values():  # an edited book may name a unit that is not there
            ledger.check_chain()
        raise
    found = protection(source.table)
    if found is None:  # pragma: no cover -- analyse has just seen it
        raise NotProtected(f"source = {text!r}: its budget has gone")
    ledger = consulted[source.table]
    check_open(context, ledger.books.database, ledger.source)
    return ProtectedSource(source, ledger, found)


def describe_key(context: Context, text: str) -> tuple[str, str]:
    """Return the database and the key in its books of a table named by the user, for the reports; of a view: of its table."""
    table = find_table(context.cursor, text, database=context.database, schema=context.schema, views=True)
    if not table.is_file and _is_view(context, table):
        protected = resolve(context, text)
        return protected.books.database, protected.key
    return ledger_of(context, table).books.database, key_of(table)


def _is_view(context: Context, table: TableId) -> bool:
    entry = Catalog(context.cursor).find(table.database, table.schema, table.name)
    return entry is not None and entry.is_view
