"""A checked source together with its books: whose budget it charges and which public domain its columns have."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property

import sqlglot
from sqlglot import exp

from dpsql.books.entries import Protection
from dpsql.books.ledger import Ledger
from dpsql.books.linked import Reads
from dpsql.books.schema import Books
from dpsql.domains.attributes import Attribute, Domain
from dpsql.domains.declare import self_declared
from dpsql.engines.remote import Remote
from dpsql.errors import ArgumentError, DomainError, DpsqlError, NotProtected, UnsupportedQuery
from dpsql.protected.booked import sources_in
from dpsql.protected.constraints import Constraints
from dpsql.protected.home import books_of, catalog_of, named_files, remotes_in
from dpsql.protected.linked import is_root, key_of, keys_linked, lineage_of, reads_of, root_key
from dpsql.protected.renamed import check_renamed
from dpsql.protected.seen import check_open
from dpsql.session.instance import Context
from dpsql.source.analysis import UNIT, OutputColumn, Source, TableId, analyse, find_table, named_table, relation_columns
from dpsql.source.catalog import Catalog
from dpsql.source.linked import Lineage
from dpsql.source.ways import KEY
from dpsql.text.names import fold

_PLAIN = (
    exp.Select, exp.From, exp.Subquery, exp.Table, exp.TableAlias, exp.Alias, exp.Column, exp.Identifier,
    exp.ReadParquet, exp.Literal, exp.EQ, exp.Boolean, exp.PropertyEQ, exp.Kwarg, exp.Join,
)
"""What the SQL of a plain source is made of; the second line is how a file is read."""


def home(context: Context, table: TableId) -> str:
    """Return the database whose books a table belongs to: its own; for a file the one that protects it, else the current one.

    Every road to a file that is taken for public, or gets a budget, comes by here.

    Raises
    ------
    UnsupportedQuery
        A file without a budget has rows that have one under another name.
    """
    if not table.is_file:
        return table.database
    for database in context.databases():  # USE another database, and the file must not look public
        if Ledger(books_of(context, database), key_of(table), context.user).protection() is not None:
            return database
    named_files(context).check(table)
    return context.database


def ledger_of(context: Context, table: TableId) -> Ledger:
    """Return the ledger of a table, protected or not; of a linked one its root's."""
    key = root_key(context, table) or key_of(table)
    return Ledger(books_of(context, home(context, table)), key, context.user, apart=context.analyst is not None)


@contextmanager
def own_ledger(context: Context, protected: ProtectedSource) -> Iterator[Ledger]:
    """Give the ledger of a table on a cursor of its own: after a failure or an interruption the call's may be in any state."""
    cursor = context.instance.cursor()
    try:
        yield Ledger(Books(cursor, protected.books.database), protected.key, context.user, apart=context.analyst is not None)
    finally:
        cursor.close()


def protection_of(context: Context, table: TableId) -> tuple[Ledger, Protection | None]:
    """Return the ledger of a table and its contract as the call found it, None where it is not protected.

    Of a linked table both are its root's. The contract's privacy_unit is then a column of the root: whose rows those of a linked
    table are says `dpsql.protected.linked.lineage_of`.
    """
    ledger_and_contract: tuple[Ledger, Protection | None] | None = context.known.get(("protection", table))
    if ledger_and_contract is None:
        ledger = ledger_of(context, table)
        known = ledger.source in sources_in(context, ledger.books.database)
        if known:
            ledger.look()
        ledger_and_contract = context.known["protection", table] = (ledger, ledger.protection() if known else None)
    return ledger_and_contract


@dataclass(frozen=True)
class ProtectedSource:
    """A source that passed the check, its protected table's contract and books."""

    source: Source
    ledger: Ledger
    protection: Protection
    reads: Reads = Reads()
    """The protected tables that it reads and their links, where some are linked."""
    contract: Protection | None = None
    """The contract in the books where ``protection`` is not that itself, but what it comes to over links: `held`."""
    lineages: tuple[Lineage, ...] = ()
    """The ways up of the linked tables that it reads."""
    remote: Remote | None = None
    """Where the rows of its table are, where that is not here: then its table here is empty."""
    catalog: Catalog | None = field(default=None, compare=False, repr=False)  # what the call has looked up of tables

    def check_rows_here(self, call: str) -> None:
        """Refuse a source whose rows are elsewhere, for a call that reads them as they are.

        Raises
        ------
        ArgumentError
        """
        if self.remote is not None:
            told = f"its rows are in {self.remote.relation!r}, read by {self.remote.engine}, and {call} reads rows that are here"
            raise ArgumentError("source", self.key, told)

    @property
    def books(self) -> Books:
        """The books of the protected table."""
        return self.ledger.books

    @property
    def key(self) -> str:
        """Name of the protected table in the books."""
        return self.ledger.source

    @property
    def held(self) -> Protection:
        """The contract in the books. ``protection``: the same with the unit and the rows of a unit that a source over links has."""
        return self.contract or self.protection

    @property
    def most_rows(self) -> int:
        """How many rows of a unit may count: what its contract allows or, where rows meet, what that comes to."""
        return self.source.most_rows or self.protection.max_contributions

    @property
    def of_units(self) -> bool:
        """Whether rows are those of units, of which so many count, or of rows that may come out several times; else all count."""
        return self.protection.privacy_unit is not None or self.source.local

    @property
    def unit_is(self) -> str:
        """What a column is that says whose row it is: of a linked table its link."""
        return "is the privacy unit" if self.own == self.key else f"is the link to {self.key}"

    @property
    def own(self) -> str:
        """Name of the table that the source names, in the books: of a linked one not its root's, which is ``key``."""
        named = self.source.named
        return key_of(named) if self.source.bare and named is not None else self.key

    @property
    def query(self) -> str:
        """What identifies the measured relation: the table's name, or the normalised text of a view, file or query."""
        return self.own if self.source.bare else self.source.canonical

    def home_of(self, column: OutputColumn) -> str:
        """Return the table that a column is a copy of a column of, as the books call it."""
        return self.key if column.home is None else key_of(column.home)

    @property
    def plain(self) -> bool:
        """Whether the source is no more than the table or some of its columns: nothing in it is computed, filtered or joined.

        The SQL that would run is looked at, not what it gives: an expression that nobody asked for may be computed all the same.
        """
        source = self.source
        if source.bare:
            return True
        narrowed = source.filtered and not source.linked
        if source.local or narrowed or source.public_tables:
            return False
        parsed = sqlglot.parse_one(source.sql, read="duckdb")
        constants = {one.alias for one in parsed.selects if isinstance(one, exp.Alias) and isinstance(one.this, exp.Literal)}
        if any(column.origin is None and column.name not in constants for column in source.columns):  # SELECT 1, for count(*)
            return False
        for alias in parsed.find_all(exp.Alias):
            if alias.alias in (UNIT, KEY):  # our own expressions, total: the privacy unit and the key of a parent, in bytes
                alias.set("this", exp.column(alias.alias))
        if source.linked:  # the joins of links are our own as well: nothing else is joined in a source that is row by row
            for join in list(parsed.find_all(exp.Join)):
                join.set("on", None)
        return all(isinstance(node, _PLAIN) for node in parsed.walk())

    def column(self, name: str) -> OutputColumn:
        """Return the column of the source that has this name, compared as DuckDB does.

        Raises
        ------
        ArgumentError
            There is none.
        """
        columns = {fold(c.name): c for c in self.source.columns}
        column = columns.get(fold(name))
        if column is None:
            raise ArgumentError("column", name, f"not a column of the source; it has {[c.name for c in columns.values()]!r}")
        return column

    def declared(self) -> dict[str, Attribute]:
        """Return what was declared for this source, for views below it or for the protected table itself, by column name."""
        return {**self.books.declared(self.own), **self.books.declared(self.query), **self.declarations()}

    def declarations(self) -> dict[str, Attribute]:
        """Return what was declared for each column of the source: for this query, for a view below it, or for the table."""
        homes = {self.home_of(column) for column in self.source.columns}
        places = {place: self.books.declared(place) for place in {self.query, self.key, *homes, *self.views()}}
        attributes: dict[str, Attribute] = {}
        for column in self.source.columns:
            copied = [(self.query, column.name), *reversed(column.views), (self.home_of(column), column.origin or "")]
            attribute = next((places[place][name] for place, name in copied if name in places[place]), None)
            if attribute is not None:
                attributes[column.name] = attribute
        return attributes

    def views(self) -> set[str]:
        """Return the views below the source, as the books call them."""
        return {view for column in self.source.columns for view, _ in column.views}

    @cached_property
    def constraints(self) -> dict[str, Constraints]:
        """What the schema says of the tables whose columns are copied, as the books call them. Privacy: no row is read."""
        homes = {self.home_of(column): column.home or self.source.table for column in self.source.columns}
        return {name: Constraints(self.books.cursor, table, self.catalog) for name, table in homes.items()}

    def by_constraint(self, column: OutputColumn) -> Attribute | None:
        """Return the domain that CHECK constraints of its table give a column that copies one."""
        return None if column.origin is None else self.constraints[self.home_of(column)].attribute(column)

    def refers_to(self, column: OutputColumn) -> tuple[TableId, str] | None:
        """Return the table and column that a column refers to by a foreign key. Privacy: of the catalog; neither table is read."""
        return None if column.origin is None else self.constraints[self.home_of(column)].reference(column)

    def is_unit(self, column: OutputColumn) -> bool:
        """Return whether a column says whose row this is: it has no domain, and is no data."""
        unit = self.protection.privacy_unit
        if unit is None:
            return False
        if column.home is None:
            return fold(column.origin or column.name) == fold(unit)
        return any(holds_unit(lineage, column.origin or "", unit) for lineage in self.lineages if lineage.table == column.home)

    def attributes(self) -> tuple[Domain, list[OutputColumn]]:
        """Return the domain of the declared columns, in column order, and the columns that have none.

        A declaration for this very view or query comes first, then the one of the column that an output column copies: of
        the outermost view that has one, or of the protected table; then what an ENUM or BOOLEAN column declares by its type, and
        what CHECK constraints of the table say.
        A column that says whose row it is has none, whatever was declared before it became that.
        """
        attributes: list[Attribute] = []
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
                attributes.append(dataclasses.replace(attribute, name=column.name))
        return Domain(tuple(attributes)), left_out


def holds_unit(lineage: Lineage, column: str, unit: str) -> bool:
    """Return whether a column of a linked table holds the privacy unit of the root itself."""
    hop = lineage.hops[0]
    return len(lineage.hops) == 1 and fold(hop.column) == fold(column) and fold(hop.parent_column) == fold(unit)


def unit_of(context: Context, root: TableId) -> str | None:
    """Return the column that tells the units of a table apart: its privacy unit, or, where a row is a person, what links hold.

    Raises
    ------
    UnsupportedQuery
        Links hold two keys of a table whose rows are people: neither is the unit.
    """
    _, contract = protection_of(context, root)
    if contract is None or contract.privacy_unit is not None:
        return None if contract is None else contract.privacy_unit
    keys = keys_linked(context, root)
    if len(keys) > 1:
        reason = f"links hold several of its keys, {sorted(keys.values())!r}, and it has no privacy unit; link all by one key"
        raise UnsupportedQuery(root.text, reason)
    return next(iter(keys.values()), None)


def resolve(context: Context, text: str, *, local: bool = False) -> ProtectedSource:
    """Check a source and find the budget it charges.

    Parameters
    ----------
    context : Context
    text : str
    local : bool
        Whether it may combine rows of one privacy unit (:func:`dpsql.source.analysis.analyse`); whoever asks then bounds the rows
        of a unit. Linked tables may be joined without it: their rows are bounded wherever they are counted.

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


def columns_of(context: Context, text: str) -> ProtectedSource:
    """Return a source to ask what is declared of its columns: nothing is to be read through it.

    A table that the text names is not analysed as a query of all of its columns would be: that takes as long as there are columns,
    and would be done again for each one that is declared. Errors are those of `resolve`.
    """
    known = context.known.get(("columns", text))
    if isinstance(known, ProtectedSource):
        return known
    try:
        table = named_table(catalog_of(context), text, context.database, context.schema)
    except ArgumentError:
        table = None
    protected = None
    if table is not None:
        catalog_of(context).check_functions()
        protected = table_alone(context, table)
    if protected is None or protected.lineages:  # of a link NULL may be left out, which the query says
        protected = resolve(context, text)
    context.known["columns", text] = known = protected
    return known


def table_alone(context: Context, table: TableId) -> ProtectedSource | None:
    """Return a protected table with its columns, to ask what is declared of them; None where it has no budget.

    Nothing can be read through it: its ``sql`` is empty.
    """
    ledger, contract = protection_of(context, table)
    if contract is None:
        return None
    lineage = lineage_of(context, table)
    columns = tuple(relation_columns(context.cursor, table, catalog_of(context)))
    root = table
    if lineage is not None:
        root, columns = lineage.root, tuple(dataclasses.replace(column, home=table) for column in columns)
    source = Source(
        text=table.text, canonical=table.text, table=root, sql="", columns=columns, filtered=lineage is not None,
        public_tables=(), unit=None, row=None, bare=True, named=table, tables=(table,),
        linked=() if lineage is None else (table,), most=None if lineage is None else lineage.most * contract.max_contributions,
    )
    return _over_links(context, ProtectedSource(source, ledger, contract, catalog=catalog_of(context)))


def _resolved(context: Context, text: str, *, local: bool) -> ProtectedSource:
    """Check a source; see `resolve`."""
    consulted: dict[TableId, Ledger] = {}

    def protection(table: TableId) -> Protection | None:
        consulted[table], contract = protection_of(context, table)
        return contract

    def most_rows(table: TableId) -> int:
        contract = protection(table)
        return contract.max_contributions if contract else 1

    linked: set[TableId] = set()

    def lineage(table: TableId) -> Lineage | None:
        way = lineage_of(context, table)
        if way is not None:
            linked.add(table)
        return way

    def analysed(local: bool) -> Source:
        return analyse(
            context.cursor,
            text,
            database=context.database,
            schema=context.schema,
            protected=lambda table: protection(table) is not None,
            public_keys=lambda table: (),
            unit_column=lambda table: None if protection(table) is None else unit_of(context, table),
            most_rows=most_rows,
            lineage=lineage,
            is_root=lambda table: is_root(context, table),
            local=local,
            catalog=catalog_of(context),
        )

    catalog_of(context).check_functions()
    try:
        try:
            source = analysed(local)
        except UnsupportedQuery:
            if local or not linked:
                raise
            source = analysed(True)  # joins along links are unit-local; whoever counts bounds the rows of a unit
    except DpsqlError:
        for ledger in consulted.values():  # an edited book may name a unit that is not there
            ledger.check_chain()
        raise
    contract = protection(source.table)
    if contract is None:  # pragma: no cover -- analyse has just seen it
        raise NotProtected(f"source = {text!r}: its budget has gone")
    if source.public_tables:
        check_renamed(context, source.public_tables)
    # the contract was known to the analysis; an analyst may still be shut out of this table
    ledger = consulted[source.table]
    check_open(context, ledger.books.database, ledger.source)
    return _elsewhere(context, _over_links(context, ProtectedSource(source, ledger, contract, catalog=catalog_of(context))))


def _elsewhere(context: Context, protected: ProtectedSource) -> ProtectedSource:
    """Return a source with the place of its rows, where that is another engine's.

    Privacy: a table without rows here must be counted where its rows are, or not at all: a release of the empty table would be
    charged and wrong.

    Raises
    ------
    UnsupportedQuery
        It cannot be counted there: it is linked, joined with what is here, or asked for by an analyst of a served database.
    """
    source = protected.source
    read = [source.table, *source.tables, *source.linked, *source.public_tables]
    away = {table: remote for table in read if (remote := remote_of(context, table)) is not None}
    if not away:
        return protected
    if context.analyst is not None:
        raise UnsupportedQuery(source.table.text, "its rows are in another place, which a served database does not ask")
    for table in away:
        if source.linked or table != source.table or not protected.protection.privacy_unit and source.local:
            reason = "its rows are in another place: it is read alone, not beside protected tables, linked or joined"
            raise UnsupportedQuery(table.text, reason)
        if context.cursor.execute(f"SELECT 1 FROM {table.text} LIMIT 1").fetchone() is not None:  # noqa: S608 -- quoted
            reason = "has rows here, and is the name of rows in another engine, which alone are counted: move them to another table"
            raise ArgumentError("source", table.text, reason)
    return dataclasses.replace(protected, remote=away[source.table])


def remote_of(context: Context, table: TableId) -> Remote | None:
    """Return where the rows of a table are, None where they are here. The books alone are asked."""
    return None if table.is_file else remotes_in(context, table.database).get(key_of(table))


def _over_links(context: Context, protected: ProtectedSource) -> ProtectedSource:
    """Return a source with the unit and the rows of a unit that it has, where those are not what its table's contract says."""
    source, held = protected.source, protected.protection
    unit = unit_of(context, source.table) if source.linked or (source.local and held.privacy_unit is None) else None
    if unit is None and not source.linked:
        return protected
    lineages = (lineage_of(context, table) for table in source.linked)
    return dataclasses.replace(
        protected,
        protection=dataclasses.replace(
            held,
            privacy_unit=unit,
            max_contributions=held.max_contributions if source.most is None else source.most,
        ),
        contract=held,
        reads=reads_of(context, source.tables),
        lineages=tuple(lineage for lineage in lineages if lineage is not None),
    )


def describe_key(context: Context, text: str) -> tuple[str, str]:
    """Return the database and the key in its books of a table named by the user, for the reports; of a view: of its table."""
    table = find_table(context.cursor, text, database=context.database, schema=context.schema, views=True)
    if not table.is_file and _is_view(context, table):
        protected = resolve(context, text)
        return protected.books.database, protected.key
    ledger = ledger_of(context, table)
    return ledger.books.database, ledger.source


def _is_view(context: Context, table: TableId) -> bool:
    entry = Catalog(context.cursor).find(table.database, table.schema, table.name)
    return entry is not None and entry.is_view
