"""What the database says about names: tables, views, columns, keys, enums, functions. Reads catalogs only, never a row."""

from __future__ import annotations

import difflib
import functools
import json
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

import duckdb
from sqlglot import exp
from sqlglot.tokens import TokenType

from dpsql.errors import ArgumentError, UnsupportedQuery, first_line, unanswered
from dpsql.session.instance import OWN_KINDS
from dpsql.source.keys import index_columns
from dpsql.source.listed import Functions
from dpsql.source.model import TableId, fold, literal, quoted, refuse
from dpsql.source.parse import tokens
from dpsql.source.types import is_collated
from dpsql.text.paths import is_file, resolved

SYSTEM_DATABASES = ("system", "temp")
SYSTEM_SCHEMAS = ("information_schema", "pg_catalog", "dpsql")
GLOB = set("*?[]{}")
FILE_ENDINGS = (".parquet", ".pq", ".csv", ".tsv", ".json", ".ndjson", ".jsonl", ".gz", ".zst", ".xlsx")
Row = tuple[Any, ...]

# Every function of these queries is named in full: a macro of the database must not answer in its place.
_FIND = {
    kind: f"""
SELECT database_name, schema_name, {kind}_name, '{kind}', sql, internal, {kind}_oid
FROM system.main.duckdb_{kind}s() WHERE system.main.list_contains($names,
    system.main.translate({kind}_name, 'ABCDEFGHIJKLMNOPQRSTUVWXYZ', 'abcdefghijklmnopqrstuvwxyz'))
"""  # noqa: S608 -- of two constants
    for kind in ("table", "view")
}
_NAMES = """
SELECT table_name FROM system.main.duckdb_tables() WHERE database_name = ? AND schema_name = ?
UNION ALL SELECT view_name FROM system.main.duckdb_views() WHERE database_name = ? AND schema_name = ? AND NOT internal
"""
_KEYS = """
SELECT table_name, constraint_column_names, NULL FROM system.main.duckdb_constraints()
WHERE constraint_type IN ('PRIMARY KEY', 'UNIQUE')
AND database_name = $database AND schema_name = $schema AND system.main.list_contains($names, table_name)
UNION ALL
SELECT table_name, NULL, sql FROM system.main.duckdb_indexes() WHERE is_unique AND NOT is_primary
AND database_name = $database AND schema_name = $schema AND system.main.list_contains($names, table_name)
"""
_CONSTRAINTS = """
SELECT constraint_type, expression, constraint_column_names, referenced_table, referenced_column_names
FROM system.main.duckdb_constraints() WHERE constraint_type IN ('CHECK', 'FOREIGN KEY')
AND database_name = $database AND schema_name = $schema AND table_name = $name ORDER BY constraint_index ASC
"""
_ENUMS = """
SELECT database_name, schema_name, type_name, labels FROM system.main.duckdb_types() WHERE logical_type = 'ENUM'
"""
_PLAIN = re.compile(
    r"BOOLEAN|U?(TINYINT|SMALLINT|INTEGER|BIGINT|HUGEINT)|FLOAT|DOUBLE|DECIMAL\(\d+,\d+\)|VARCHAR|BLOB|UUID|DATE|TIME|INTERVAL"
    r"|TIMESTAMP(_S|_MS|_NS| WITH TIME ZONE)?|ENUM\(.*\)",
    re.DOTALL,
)
"""Types whose names say all there is to know of a column but its collation, which the text of its table says."""
_MOST_KEPT = 1_000
T = TypeVar("T")
LAKE_TABLES = "ducklake_"
"""How the tables of a DuckLake's catalog begin, which is a database that can be attached by itself: small inserts lie in them."""
REACHED = ("ducklake", "postgres")
"""Types of attached databases whose tables get a name here (`dpsql.engines.attached`)."""
_FOREIGN = f"SELECT database_name, type FROM system.main.duckdb_databases() WHERE NOT internal AND type NOT IN {OWN_KINDS}"  # noqa: S608


@dataclass(frozen=True)
class Entry:
    """A table or view as the catalog lists it."""

    table: TableId
    is_view: bool
    sql: str


@dataclass(frozen=True)
class Described:
    """One column as DESCRIBE shows it."""

    name: str
    sql_type: str
    nullable: bool


class Seen(Protocol):
    """What somebody may name who is not the custodian: everything else does not exist."""

    def column(self, table: TableId, name: str) -> bool:
        """Return whether a column of a table may be named."""


class Catalog:
    """Look-ups on one cursor, each once. What the cursor cannot see is what no other connection has committed.

    Parameters
    ----------
    seen : Seen, optional
        What whoever asks may name; None: everything.
    foreign : mapping of str to str, optional
        The types of the attached databases that are not DuckDB's own; None: they are looked up.
    tables : dict, optional
        What follows from the text of a table, by what `entries` gives of it, kept from call to call.
    """

    def __init__(
        self,
        cursor: duckdb.DuckDBPyConnection,
        functions: Functions | None = None,
        seen: Seen | None = None,
        foreign: Mapping[str, str] | None = None,
        tables: dict[Row, dict[str, Any]] | None = None,
    ) -> None:
        self.cursor = cursor
        self._foreign = foreign
        self._tables = {} if tables is None else tables
        self.seen = seen
        self._functions = functions or Functions()
        self._function_lists: tuple[frozenset[str], frozenset[str]] | None = None
        self._described: dict[str, list[Described]] = {}
        self._named: dict[tuple[str, str], list[Row]] = {}
        self.asked_types = False
        self._collated: dict[TableId, set[str]] = {}
        self._constrained: dict[TableId, list[Row]] = {}
        self._keys: dict[TableId, list[list[str]]] = {}

    def find(self, database: str, schema: str, name: str) -> Entry | None:
        """Return the table or view of this name, compared as DuckDB does."""
        place = (fold(database), fold(schema), fold(name))
        for row in (one for kind in _FIND for one in self.entries(name, kind)):  # a schema has one table or view of a name
            if tuple(fold(part) for part in row[:3]) == place:
                _forbid_system(*row[:3], internal=row[5])
                self._forbid_foreign(TableId(*row[:3]))
                return Entry(TableId(*row[:3]), row[3] == "view", row[4] or "")
        return None

    def _forbid_foreign(self, table: TableId) -> None:
        """Refuse a table that is no table of DuckDB's own, protected or public.

        Privacy: its readings are not DuckDB's: it may be filtered and compared elsewhere, of several moments, or fail at a value.
        And a protected one has another name here, which has the budget: beside it, it would be read as if it were public.
        """
        if self._foreign is None:
            self._foreign = {str(name): str(kind) for name, kind in _rows(self.cursor, _FOREIGN, {})}
        kind = self._foreign.get(table.database)
        if kind is not None:
            copied = f"CREATE TABLE name AS FROM {table.text}"
            named = f"CALL dp_remote('name', engine := 'duckdb', relation := {literal(table.text)})"
            way = f"protected rows get a name here, which has the budget: {named}; public ones are copied: {copied}"
            refuse(
                table.text,
                f"is in a database of type {kind!r}, attached to this one, which cannot hold the books: "
                f"{way if kind in REACHED else f'copy its rows, {copied}, and use that'}",
            )

    def nameable(self, table: TableId, name: str) -> bool:
        """Return whether whoever asks may name a column of a table."""
        return self.seen is None or self.seen.column(table, name)

    def entries(self, name: str, kind: str) -> list[Row]:
        """Return all tables, or views, of a name in all databases: database, schema, name, kind, text, whether internal, number."""
        self.look_up([name], kind)
        return self._named[fold(name), kind]

    def look_up(self, names: Iterable[str], kind: str = "table") -> None:
        """Look tables, or views, of these names up at once, and the keys of all when one is asked for; a statement takes time."""
        unknown = [name for name in dict.fromkeys(map(fold, names)) if (name, kind) not in self._named]
        if not unknown:
            return
        rows = sorted(_rows(self.cursor, _FIND[kind], {"names": unknown}), key=repr)
        self._named.update({(name, kind): [row for row in rows if fold(row[2]) == name] for name in unknown})

    def looked_up(self) -> dict[tuple[str, str], list[Row]]:
        """Return what was found of every name and kind that was asked for."""
        return dict(self._named)

    def locate(self, parts: list[str], homes: list[tuple[str, str]]) -> Entry | None:
        """Return what a name of one, two or three parts means to someone whose search path is ``homes``.

        Raises
        ------
        UnsupportedQuery
            If two parts can be read as schema.table and as database.table.
        """
        if len(parts) == 1:
            return next((e for home in homes if (e := self.find(*home, parts[0]))), None)
        if len(parts) == 3:
            _forbid_system(*parts, internal=False)
            return self.find(*parts)
        _forbid_system("", parts[0], parts[1], internal=fold(parts[0]) in SYSTEM_DATABASES)
        meanings = [self.find(homes[0][0], parts[0], parts[1]), self.find(parts[0], "main", parts[1])]
        if all(meanings) and meanings[0] != meanings[1]:
            refuse(".".join(parts), "it names a schema and a database; write database.schema.table")
        return meanings[0] or meanings[1]

    def near(self, name: str, homes: Iterable[tuple[str, str]]) -> str:
        """Return a question for the table or view whose name is nearly this one, empty where there is none."""
        existing: list[str] = []
        with suppress(duckdb.Error):  # it is advice
            for home in homes:
                existing += [str(shown) for (shown,) in self.cursor.execute(_NAMES, [*home, *home]).fetchall()]
        close = difflib.get_close_matches(name.lower(), [one.lower() for one in existing], 1, 0.6)
        return f" (did you mean {next(one for one in existing if one.lower() == close[0])!r}?)" if close else ""

    def describe(self, query: str) -> list[Described]:
        """Return the columns of a SELECT; it is bound, not run.

        Raises
        ------
        ArgumentError
            With DuckDB's first line, which speaks of names and types only: no row was read.
        """
        if query not in self._described:
            try:
                if len(self.cursor.extract_statements(query)) != 1:  # pragma: no cover -- text is generated
                    raise ArgumentError("source", query, "generated SQL holds several statements")
                rows = self.cursor.execute(f"DESCRIBE {query}").fetchall()
            except duckdb.Error as error:
                raise ArgumentError("source", first_line(error), "DuckDB cannot bind it; check names and types") from None
            self._described[query] = [Described(str(r[0]), str(r[1]), r[2] != "NO") for r in rows]
        return self._described[query]

    def run(self, query: str) -> None:
        """Run a query over no table to its end without fetching what it gives: Python has no value for some of DuckDB's.

        A hash of whole rows needs every value of them.
        """
        text = f"SELECT system.main.bit_xor(system.main.hash(__dp_all)) FROM ({query}) AS __dp_all"  # noqa: S608 -- generated
        self.cursor.execute(text).fetchall()

    def columns(self, table: TableId) -> list[Described]:
        """Return the stored columns of a table or file."""
        return self._kept(table, "columns", lambda: self.describe(f"SELECT * FROM {table.sql}"))  # noqa: S608 -- quoted by TableId

    def _kept(self, table: TableId, what: str, look: Callable[[], T]) -> T:
        """Return what follows from the text that the catalog shows of a table, looked up once for each text.

        The table's number stands beside the text, and no other table of the process gets it. Both are looked at again after what
        is kept, so that it is of this text and not of one that came between. A type by a name of its own, or with others inside,
        may have a collation that no text shows.
        """
        row = self._row(table)
        if row is None:
            return look()
        kept = self._tables.get(row, {})
        if what in kept:
            known: T = kept[what]
            return known
        value = look()
        columns = self.describe(f"SELECT * FROM {table.sql}")  # noqa: S608 -- quoted by TableId
        if all(_PLAIN.fullmatch(column.sql_type) for column in columns) and self._row(table, again=True) == row:
            if len(self._tables) >= _MOST_KEPT:
                self._tables.clear()
            self._tables[row] = {**kept, what: value}
        return value

    def _row(self, table: TableId, *, again: bool = False) -> Row | None:
        """Return what the catalog shows of a table that was looked up; None of what was not: a view, a file."""
        place = (fold(table.name), "table")
        if table.is_file or place not in self._named:
            return None
        rows = _rows(self.cursor, _FIND["table"], {"names": [place[0]]}) if again else self._named[place]
        return next((row for row in rows if row[:3] == (table.database, table.schema, table.name)), None)

    def collated(self, table: TableId) -> set[str]:
        """Return the columns of a table that have a collation, of their own or inside. The statement is not run."""
        if table not in self._collated:
            self._collated[table] = self._kept(table, "collated", partial(self._look_collated, table))
        return self._collated[table]

    def _look_collated(self, table: TableId) -> set[str]:
        query = f"SELECT * FROM {table.sql} WHERE false"  # noqa: S608 -- quoted by TableId
        row = self.cursor.execute("SELECT system.main.json_serialize_plan(?::VARCHAR)", [query]).fetchone()
        plan = json.loads(row[0]) if row else {"error": True}
        if plan.get("error"):
            raise ArgumentError("source", table.text, f"DuckDB cannot show its types: {plan.get('error_message')}")
        listed = plan["plans"][0]["expressions"]
        return {str(node["alias"]) for node in listed if is_collated(node["return_type"])}

    def keys(self, table: TableId) -> list[list[str]]:
        """Return the columns of each PRIMARY KEY and UNIQUE constraint and of each UNIQUE INDEX of a table."""
        if table not in self._keys:
            home = (table.database, table.schema)
            beside = {TableId(*row[:3]) for (_, kind), rows in self._named.items() for row in rows if kind == "table"}
            same = {one for one in beside if (one.database, one.schema) == home} - self._keys.keys() | {table}
            where = {"database": table.database, "schema": table.schema, "names": [one.name for one in same]}
            rows = _rows(self.cursor, _KEYS, where)
            for sibling in same:
                own = [row for row in rows if row[0] == sibling.name]
                listed = [index_columns(str(sql or "")) if names is None else list(names) for _, names, sql in own]
                self._keys[sibling] = [key for key in listed if key]
        return self._keys[table]

    def single_keys(self, table: TableId) -> dict[str, str]:
        """Return the columns that are declared unique by themselves, by their names folded."""
        return {fold(key[0]): key[0] for key in self.keys(table) if len(key) == 1}

    def checks(self, table: TableId) -> list[str]:
        """Return the expression of each CHECK constraint of a table."""
        return [str(row[1]) for row in self._constraints(table) if row[0] == "CHECK" and row[1]]

    def references(self, table: TableId) -> dict[str, tuple[TableId, str]]:
        """Return what each column alone refers to: the table, in the same schema, and its column."""
        return {
            str(row[2][0]): (TableId(table.database, table.schema, str(row[3])), str(row[4][0]))
            for row in self._constraints(table)
            if row[0] == "FOREIGN KEY" and row[3] and len(row[2]) == len(row[4]) == 1
        }

    def _constraints(self, table: TableId) -> list[Row]:
        if table.is_file:
            return []
        if table not in self._constrained:
            where = {"database": table.database, "schema": table.schema, "name": table.name}
            self._constrained[table] = self._kept(table, "constraints", lambda: _rows(self.cursor, _CONSTRAINTS, where))
        return self._constrained[table]

    def enum_labels(self, parts: list[str], homes: list[tuple[str, str]]) -> list[str] | None:
        """Return the labels of a user's ENUM type, or None if there is no such type."""
        self.asked_types = True
        rows = _rows(self.cursor, _ENUMS, {})
        places = homes if len(parts) == 1 else [(homes[0][0], parts[0])] if len(parts) == 2 else [(parts[0], parts[1])]
        for home in places:
            place = (fold(home[0]), fold(home[1]), fold(parts[-1]))
            for row in rows:
                if tuple(fold(part) for part in row[:3]) == place and row[3]:
                    return [str(label) for label in row[3]]
        return None

    def changed_function(self, names: Iterable[str]) -> str | None:
        """Return one of these functions that is not, or not only, what DuckDB ships; None if all of them are."""
        return min(self._listed()[0] & {name.lower() for name in names}, default=None)

    def _listed(self) -> tuple[frozenset[str], frozenset[str]]:
        if self._function_lists is None:
            self._function_lists = self._functions.listed(self.cursor)
        return self._function_lists

    def check_functions(self, *, again: bool = False) -> None:
        """Refuse a database in which dpsql's own statements would call functions that are not DuckDB's.

        ``again``: as they are now, whatever was looked up before.

        Raises
        ------
        UnsupportedQuery
        """
        if again:
            self._function_lists = None
        changed = min(self._listed()[1], default=None)
        if changed is not None:
            raise UnsupportedQuery(
                f"function {changed!r}",
                "a function that was registered in this process gives it another meaning, in dpsql's own statements too; register "
                "it under another name, and open the database anew (con.remove_function takes DuckDB's own away as well)",
            )


def _rows(cursor: duckdb.DuckDBPyConnection, query: str, parameters: dict[str, Any]) -> list[Row]:
    """Return the rows of a query on the catalog.

    On DuckDB 1.4 a macro that is called duckdb_tables breaks even ``system.main.duckdb_tables``: that gives a refusal.
    """
    try:
        return cursor.execute(query, parameters).fetchall() if parameters else cursor.execute(query).fetchall()
    except duckdb.Error as error:
        raise UnsupportedQuery("the catalog of this database", unanswered(error)) from None


@functools.cache
def shipped_kinds() -> dict[str, str]:
    """Return what each function is ('scalar', 'aggregate', 'table', ...) in a database that nobody has touched."""
    with duckdb.connect(":memory:") as fresh:
        rows = fresh.execute("SELECT lower(function_name), max(function_type) FROM duckdb_functions() GROUP BY 1").fetchall()
    return {str(name): str(kind) for name, kind in rows}


def _forbid_system(database: str, schema: str, name: str, *, internal: bool) -> None:
    if internal or fold(database) in SYSTEM_DATABASES or fold(schema) in SYSTEM_SCHEMAS:
        refuse(
            quoted(*(p for p in (database, schema, name) if p)),
            "system tables, TEMP tables and the books of dpsql are no sources; make what you need a table of your own",
        )
    if fold(name).startswith(LAKE_TABLES):
        refuse(
            quoted(*(p for p in (database, schema, name) if p)),
            "tables of a DuckLake's catalog hold rows of its tables, which may be protected, and what is least and largest in "
            "them; CREATE TABLE name AS FROM it, if it is public",
        )


@functools.lru_cache(maxsize=64)
def generated_columns(sql: str) -> frozenset[str]:
    """Return the folded names of the generated columns of a table, from the CREATE TABLE that the catalog shows.

    Examples
    --------
    >>> sorted(generated_columns('CREATE TABLE t(a INTEGER, "g h" INTEGER GENERATED ALWAYS AS((a + 1)), PRIMARY KEY(a));'))
    ['g h']
    """
    generated: set[str] = set()
    depth, column, previous = 0, "", ""
    for token in tokens(sql):
        if token.token_type == TokenType.L_PAREN:
            depth += 1
        elif token.token_type == TokenType.R_PAREN:
            depth -= 1
        elif depth == 1 and previous in ("(", ","):
            column = token.text
        elif depth == 1 and token.text.upper() == "ALWAYS" and previous.upper() == "GENERATED":
            generated.add(fold(column))
        previous = token.text
    return frozenset(generated)


def file_table(path: str, construct: str) -> TableId:
    """Return the identity of a Parquet file.

    Notes
    -----
    Only Parquet. The types of a CSV or JSON file are guessed from its content, so one row could change them; and a single
    unbalanced quote makes the reader swallow or drop all lines after it: one person's line would move everybody's rows.

    Raises
    ------
    UnsupportedQuery, ArgumentError
    """
    if "://" in path or GLOB & set(path):
        refuse(
            construct,
            "a protected source is one local file: no patterns, no addresses. A folder of Parquet files gets a name here: "
            "CALL dp_remote('name', engine := 'duckdb', relation := 'parquet:/folder')",
        )
    real = resolved(path)
    if real is None:
        raise ArgumentError("source", path, "no such table in the current schema, and no file that this process may look up")
    if real.suffix.lower() not in (".parquet", ".pq"):
        refuse(
            construct,
            "only Parquet files can be sources: the layout of other files is guessed from their rows and a broken line moves "
            "its neighbours; CREATE TABLE t AS FROM '...' and protect that",
        )
    if GLOB & set(str(real)):
        refuse(construct, "the path of the file has one of the characters * ? [ ] { }: DuckDB reads them as a pattern; rename it")
    if not is_file(real):
        raise ArgumentError("source", path, "no such table in the current schema and no such file")
    return TableId("", "", str(real), "file")


def table_expression(table: TableId, alias: str) -> exp.Table:
    """Return the table as an item of FROM."""
    name = exp.TableAlias(this=exp.to_identifier(alias, quoted=True))
    if table.is_file:
        plain = exp.EQ(this=exp.column("hive_partitioning"), expression=exp.false())
        whole = exp.EQ(this=exp.column("can_have_nan"), expression=exp.true())  # see `TableId.sql`
        call = exp.Anonymous(this="read_parquet", expressions=[exp.Literal.string(table.name), plain, whole])
        return exp.Table(this=call, alias=name)
    parts = (exp.to_identifier(p, quoted=True) for p in (table.name, table.schema, table.database))
    return exp.Table(**dict(zip(("this", "db", "catalog"), parts, strict=True)), alias=name)
