"""The schema of linked tables as a release keeps it: keys, links, declared columns, constraints that a copy can keep.

Privacy: the catalog and the books are read, no row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dpsql.books.ledger import Ledger
from dpsql.domains import sqltypes
from dpsql.domains.attributes import Attribute, Domain
from dpsql.errors import ArgumentError, DomainError, ReleaseError
from dpsql.protected.constraints import Constraints
from dpsql.protected.home import catalog_of
from dpsql.protected.linked import key_of, tables_of
from dpsql.protected.ruled import CHECK, across_of, counted_of, in_force
from dpsql.protected.source import ProtectedSource
from dpsql.release.linked import MOST_ROWS, NUMBERED, LinkedColumn, LinkedPlan, LinkedTable
from dpsql.release.ordered import can_order
from dpsql.rules.contradictions import contradicting
from dpsql.rules.counted import Counted, contradicted, decided, extremes, undecided
from dpsql.rules.effects import effect, together
from dpsql.session.instance import Context
from dpsql.source.analysis import OutputColumn, Source, relation_columns
from dpsql.source.keys import KINDS, exact
from dpsql.source.linked import Hop, Lineage
from dpsql.source.model import TableId
from dpsql.text.names import fold

_MOST_NAMED = 6


@dataclass(frozen=True)
class Schema:
    """What is known of linked tables.

    Parameters
    ----------
    tables : tuple of LinkedTable
        The root first, parents before children.
    places : tuple of TableId
        Where they are.
    left_out : tuple of str
        Columns that have no domain, as table.column.
    notes : tuple of str
    """

    tables: tuple[LinkedTable, ...]
    places: tuple[TableId, ...]
    left_out: tuple[str, ...]
    notes: tuple[str, ...]


def schema_of(context: Context, protected: ProtectedSource, *, independent: bool = False) -> Schema:
    """Return the schema of a root and all tables that are linked to it; ``independent``: of tables in no order.

    Raises
    ------
    ArgumentError, DomainError
        The source is not a table that others are linked to with one row a unit, a key cannot be numbered, or nothing is declared.
    """
    root = protected.source.table
    if context.analyst is not None:  # a plan would show tables that she may not name
        raise ArgumentError("operation", "synthesize_tables", "is the custodian's: it is of all linked tables")
    check_root(context, protected)
    lineages = tables_of(context, root)
    if not lineages:
        raise ArgumentError(
            "source",
            protected.key,
            f"no table is linked to it: CALL dp_link('child', 'column', parent := '{protected.key}', max_rows := ...) links one; "
            "dp_synthesize makes a single table",
        )
    places = (root, *(lineage.table for lineage in lineages))
    return _Builder(context, protected, places, lineages, independent=independent).schema()


def check_root(context: Context, protected: ProtectedSource) -> None:
    """Refuse a source that is not a table, is elsewhere, or may have several rows of one unit.

    A unit adds at most W to a block because it has one row of the root (`dpsql.measure.families`): the privacy unit is a key by
    itself, of a type whose equality is that of bytes. Of a number like DOUBLE, 0.0 and -0.0 are two keys, and one unit.

    Raises
    ------
    ArgumentError
    """
    key = protected.key
    if not protected.source.bare or protected.source.table.is_file:
        raise ArgumentError("source", protected.query[:200], "name the protected table itself: all tables linked to it are copied")
    if protected.own != key:
        way = f"name the table that has the budget: dp_synthesize_tables('{key}', ...)"
        raise ArgumentError("source", protected.own, f"is linked to {key}; {way}")
    unit = protected.protection.privacy_unit
    if unit is None:
        return
    columns = relation_columns(context.cursor, protected.source.table, catalog_of(context))  # as they are now
    kind = next((column.sql_type for column in columns if fold(column.name) == fold(unit)), "that is gone")
    if not exact(kind):
        raise ArgumentError(
            "source",
            key,
            f"has the privacy unit {unit} of type {kind}, of which two keys can be one unit; a synthetic database has one row "
            f"of the first table for each unit: it must be {KINDS}",
        )
    if fold(unit) not in catalog_of(context).single_keys(protected.source.table):
        raise ArgumentError(
            "source",
            key,
            f"may have several rows of one {unit}: its privacy unit is no PRIMARY KEY and not UNIQUE. A synthetic database has one "
            f"row of the first table for each unit; where {unit} is unique, say so: CREATE UNIQUE INDEX ... ON {key}({unit}). Else "
            "make a table of the units, and link this one to it",
        )


class _Builder:
    """Puts the tables of a schema together, one after the other."""

    def __init__(
        self,
        context: Context,
        protected: ProtectedSource,
        places: Sequence[TableId],
        lineages: Sequence[Lineage],
        *,
        independent: bool = False,
    ) -> None:
        self._context, self._protected, self._places, self._independent = context, protected, places, independent
        self._hops: list[Hop | None] = [None, *(lineage.hops[0] for lineage in lineages)]
        self._left_out: list[str] = []
        self._notes: list[str] = []

    def schema(self) -> Schema:
        """Return the schema."""
        tables = tuple(self._table(place) for place in range(len(self._places)))
        if not any(table.domain.attributes for table in tables):
            raise DomainError(
                f"no column of {', '.join(table.source for table in tables)} has a declared domain; "
                f"CALL dp_declare('{tables[0].source}', 'column', ...) declares one"
            )
        tables = self._with_counted(self._with_across(tables))
        self._check_rules(tables)
        self._check_names(tables)
        self._about_orphans(tables)
        return Schema(tables, tuple(self._places), tuple(self._left_out), tuple(self._notes))

    def _table(self, place: int) -> LinkedTable:
        table, hop = self._places[place], self._hops[place]
        alone = self._alone(table)
        columns = {fold(column.name): column for column in alone.source.columns}
        keys, primary = self._keys(table, columns)
        link = None if hop is None else columns[fold(hop.column)].name
        own = {fold(name) for name in (*keys, *([] if link is None else [link]))}
        if place == 0 and self._protected.protection.privacy_unit is not None:
            own.add(fold(self._protected.protection.privacy_unit))
        declared, without = alone.attributes()
        domain = Domain(tuple(attribute for attribute in declared.attributes if fold(attribute.name) not in own))
        self._left_out += [f"{table.name}.{column.name}" for column in without if fold(column.name) not in own]
        ruled = in_force(self._context.cursor, alone, domain)
        for one in ruled:
            cells = effect(self._context.cursor, one.rule, domain).impossible
            if cells is not None and cells.all():
                raise DomainError(f"rule {one.rule.text[:200]} of {table.name}: no value of the declared domain obeys it")
        written = {fold(name) for name in (*keys, *([] if link is None else [link]), *domain.names)}
        attributes = {attribute.name: attribute for attribute in domain.attributes}
        kept_checks = {one.original for one in ruled if one.status == CHECK}
        constraints = Constraints(self._context.cursor, table)
        if constraints.others or any(rule.text not in kept_checks for rule in constraints.rules):
            self._notes.append(f"{table.name}: CHECK constraints over other than declared columns are not in the copy")
        return LinkedTable(
            source=key_of(table),
            name=table.name,
            parent=None if hop is None else self._places.index(hop.parent),
            most=1 if hop is None else self._most(table, hop),
            orphans="drop" if hop is None else hop.orphans,
            link=link,
            referred=None if hop is None else self._spelled(hop.parent, hop.parent_column),
            keys=tuple(keys),
            primary=primary,
            foreign=hop is not None and self._is_foreign(hop),
            columns=tuple(_column(c, attributes.get(c.name)) for c in alone.source.columns if fold(c.name) in written),
            domain=domain,
            rules=tuple(one.rule.text for one in ruled),
            checks=tuple(one.rule.text for one in ruled if one.status == CHECK),
            order=None if hop is None else self._order(table, hop, domain),
        )

    def _with_across(self, tables: tuple[LinkedTable, ...]) -> tuple[LinkedTable, ...]:
        """Return the tables with those of their rules that look at the tables above, too, where all columns are declared."""
        with_rules = list(tables)
        for place, table in enumerate(tables[1:], 1):
            kept = []
            for rule in across_of(self._alone(self._places[place])):
                changed = replace(table, across=(rule.text,))
                try:
                    LinkedPlan((*tables[:place], changed, *tables[place + 1 :]), (), 1).joined(place)
                except KeyError:
                    self._notes.append(f"rule {rule.text[:200]} of {table.name} is not kept: it names a column without a domain")
                    continue
                kept.append(rule.text)
                self._notes.append(f"every row of {table.name} obeys {rule.text[:200]}, with the rows above it")
            with_rules[place] = replace(table, across=tuple(kept))
        return tuple(with_rules)

    def _with_counted(self, tables: tuple[LinkedTable, ...]) -> tuple[LinkedTable, ...]:
        """Return the tables with those of their rules that count the rows of one parent, where all columns are declared.

        Raises
        ------
        DomainError
            Codes do not decide a condition, or no family can obey: a domain or link was declared anew since the rule was.
        """
        with_rules = list(tables)
        for place, table in enumerate(tables):
            kept: list[str] = []
            for rule in counted_of(self._alone(self._places[place])):
                shown = f"{rule.text[:200]} of {table.name}"
                if table.parent is None or not set(rule.columns) <= set(table.domain.names):
                    why = "the table has no parent" if table.parent is None else "it names a column without a domain"
                    self._notes.append(f"rule {shown} is not kept: {why}")
                    continue
                self._check_counted(rule, table, shown)
                kept.append(rule.text)
                which = "exactly one" if rule.exactly else "at most one"
                whose = f"of the rows of {table.name} with one parent, {which} fulfils"
                self._notes.append(f"{whose} {rule.condition.text[:200]}; nothing is measured for it")
            with_rules[place] = replace(table, counted=tuple(kept))
        return tuple(with_rules)

    def _check_counted(self, rule: Counted, table: LinkedTable, shown: str) -> None:
        cells = decided(self._context.cursor, rule, table.domain)
        contradiction = undecided(rule, table.domain, table.source) if cells is None else extremes(cells, rule, table.most)
        if contradiction is not None:
            raise DomainError(f"rule {shown}: {contradiction}. Or take it back: dp_rule with remove := true")

    def _check_rules(self, tables: tuple[LinkedTable, ...]) -> None:
        """Refuse rules that leave a table without any possible row, alone or with those of the tables above it."""
        plan = LinkedPlan(tables, (), 1)
        for place, table in enumerate(tables):
            every = plan.every_rule(place)
            joined = plan.joined(place, every)
            shown = {flat.text: original.text for flat, original in zip(joined.rules, every, strict=True)}
            for some in together(joined.rules):
                if contradicting(self._context.cursor, some, joined.domain):
                    listed = "; ".join(shown[rule.text] for rule in some)
                    raise DomainError(
                        f"{table.name}: no values of the declared domains obey {listed[:400]}, so it could have no row. Take a "
                        "rule back (dp_rule with remove := true), or declare other domains; "
                        f"FROM dp_domain('{table.source}') shows both"
                    )
            contradiction = contradicted(self._context.cursor, plan.counted(place), joined.rules, joined.domain, table.most)
            if contradiction is not None:
                way = "Take a rule back (dp_rule with remove := true), or declare other domains"
                raise DomainError(f"{table.name}: {contradiction}. {way}")

    def _order(self, table: TableId, hop: Hop, domain: Domain) -> str | None:
        """Return the column that rows of a parent's row are ordered by, where it has bins and there can be several rows."""
        if hop.order_by is None or self._most(table, hop) == 1:
            return None
        if self._independent:
            self._notes.append(f"rows of {table.name} are written in no order: tables are independent")
            return None
        attribute = next((a for a in domain.attributes if fold(a.name) == fold(str(hop.order_by))), None)
        if attribute is None or not can_order(attribute):
            self._notes.append(
                f"the order of {table.name} by {hop.order_by} is not measured: the column needs lower and upper bounds, "
                f"CALL dp_declare('{table.name}', '{hop.order_by}', lower := ..., upper := ...)"
            )
            return None
        whose = f"rows of {table.name} with one parent"
        self._notes.append(f"{whose} stand in the order of {attribute.name}: first and next ones are measured")
        return attribute.name

    def _alone(self, table: TableId) -> ProtectedSource:
        """Return a table by itself, to ask what is declared of its columns: its own declarations, constraints and rules."""
        columns = tuple(relation_columns(self._context.cursor, table, catalog_of(self._context)))
        source = Source(
            text=table.text, canonical=table.text, table=table, sql="", columns=columns, filtered=False, public_tables=(),
            unit=None, row=None, bare=True,
        )  # fmt: skip
        ledger = Ledger(self._protected.books, key_of(table), self._context.user)
        return ProtectedSource(source, ledger, replace(self._protected.protection, privacy_unit=None))

    def _keys(self, table: TableId, columns: dict[str, OutputColumn]) -> tuple[list[str], str | None]:
        """Return the columns that are numbered anew, as the table spells them, and the PRIMARY KEY among them."""
        referred = {fold(hop.parent_column) for hop in self._hops if hop is not None and hop.parent == table}
        primary = self._primary(table)
        keys = [column.name for name, column in columns.items() if name in referred or name == primary]
        for name in keys:
            kind = columns[fold(name)].sql_type
            if sqltypes.parse(kind).family not in NUMBERED:
                advice = f"is a key of type {kind}: new keys are whole numbers, texts of them, or UUIDs"
                raise ArgumentError("source", f"{table.name}.{name}", advice)
        return keys, None if primary is None else columns[primary].name

    def _primary(self, table: TableId) -> str | None:
        """Return the folded name of the PRIMARY KEY, where it is one column."""
        where = {"database": table.database, "schema": table.schema, "name": table.name}
        rows = self._context.cursor.execute(_PRIMARY, where).fetchall()
        names = [fold(str(name)) for (listed,) in rows for name in listed]
        return names[0] if len(names) == 1 else None

    def _is_foreign(self, hop: Hop) -> bool:
        """Return whether a link is a FOREIGN KEY constraint."""
        references = {fold(name): reference for name, reference in catalog_of(self._context).references(hop.child).items()}
        reference = references.get(fold(hop.column))
        return reference is not None and reference[0] == hop.parent and fold(reference[1]) == fold(hop.parent_column)

    def _most(self, table: TableId, hop: Hop) -> int:
        """Return the rows that one row of the parent may have: one, where the link is a key itself."""
        if fold(hop.column) in catalog_of(self._context).single_keys(table):
            return 1
        if hop.max_rows > MOST_ROWS:
            raise ArgumentError("max_rows", hop.max_rows, f"of the link of {table.name}: at most {MOST_ROWS:,} can be copied")
        return hop.max_rows

    def link_of(self, table: TableId) -> tuple[object, ...]:
        """Return what the books say of the link of a table: of what, by which columns, how many rows, what of orphans."""
        hop = self._hops[self._places.index(table)]
        if hop is None:
            return ()
        most = self._most(table, hop)
        return key_of(hop.parent), fold(hop.column), fold(hop.parent_column), most, hop.orphans

    def _spelled(self, table: TableId, name: str) -> str:
        columns = relation_columns(self._context.cursor, table, catalog_of(self._context))
        return next(column.name for column in columns if fold(column.name) == fold(name))

    def _check_names(self, tables: Sequence[LinkedTable]) -> None:
        """Refuse two tables of one name in two schemas: they are copied into one."""
        seen: dict[str, str] = {}
        for table in tables:
            if fold(table.name) in seen:
                first = seen[fold(table.name)]
                raise ArgumentError("source", table.source, f"has the name of {first}: both would be one table of the schema")
            seen[fold(table.name)] = table.source

    def _about_orphans(self, tables: Sequence[LinkedTable]) -> None:
        names = [table.name for table in tables if table.parent is not None]
        listed = ", ".join(names[:_MOST_NAMED]) + (", ..." if len(names) > _MOST_NAMED else "")
        self._notes.append(f"rows of {listed} without a parent are not counted")


_PRIMARY = """
SELECT constraint_column_names FROM system.main.duckdb_constraints() WHERE constraint_type = 'PRIMARY KEY'
AND database_name = $database AND schema_name = $schema AND table_name = $name
"""


def _column(column: OutputColumn, attribute: Attribute | None) -> LinkedColumn:
    """Return a column of the copy: NOT NULL where it is in the source, and no code of its domain is written as NULL."""
    required = not column.nullable
    if attribute is not None:
        text = sqltypes.parse(attribute.sql_type).family == "text"
        required = required and not attribute.nullable and (attribute.outside != "other" or text)
    return LinkedColumn(column.name, column.sql_type, required)


def places_of(
    context: Context, protected: ProtectedSource, planned: Sequence[LinkedTable], *, anew: bool = True
) -> tuple[TableId, ...]:
    """Return where the tables of a plan are, if their links and keys are still those of the plan.

    Domains may have been declared since: those of the plan are measured.

    Parameters
    ----------
    anew : bool
        Whether the books and the catalog are read anew, whatever this call has looked up before.

    Raises
    ------
    ReleaseError
        A link, a key or the type of a column is another one.
    DpsqlError
        The key of a link is no longer declared unique, or a table is gone.
    """
    if anew:
        known = context.known.items()
        books = {name: value for name, value in known if name == "call" or (isinstance(name, tuple) and name[0] == "books")}
        context = replace(context, known=books)
    check_root(context, protected)
    lineages = {key_of(lineage.table): lineage for lineage in tables_of(context, protected.source.table)}
    root = protected.source.table
    below = [linked for table in planned[1:] if (linked := lineages.get(table.source)) is not None]
    builder = _Builder(context, protected, (root, *(lineage.table for lineage in below)), below)
    places: list[TableId] = []
    for table in planned:
        place = root if table.parent is None else lineages[table.source].table if table.source in lineages else None
        above = None if table.parent is None else planned[table.parent]
        if place is None or builder.link_of(place) != _link(table, above) or not _typed(context, place, table):
            raise ReleaseError(
                f"{table.source} was changed since the release was planned: its link, its keys or the type of a column are others. "
                "Put it back to finish the release, or buy another one: release := 'another name'"
            )
        places.append(place)
    return tuple(places)


def _link(table: LinkedTable, above: LinkedTable | None) -> tuple[object, ...]:
    if above is None:
        return ()
    return above.source, fold(str(table.link)), fold(str(table.referred)), table.most, table.orphans


def _typed(context: Context, place: TableId, table: LinkedTable) -> bool:
    """Return whether a table has the columns of the plan, of the same types."""
    types = {column.name: column.sql_type for column in relation_columns(context.cursor, place, catalog_of(context))}
    return all(types.get(column.name) == column.sql_type for column in table.columns)
