"""What a source reads in the end: base tables, and files; which of them is protected, and how names reach it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

from sqlglot import exp

from dpsql.errors import ArgumentError, NotProtected
from dpsql.source.catalog import FILE_ENDINGS, Catalog, Described, Entry, file_table, generated_columns, table_expression
from dpsql.source.kernel import FLOATS
from dpsql.source.limits import MOST_COUNTED
from dpsql.source.linked import Lineage
from dpsql.source.model import RESERVED, UNIT, Column, TableId, fold, identifier, literal, quoted, refuse
from dpsql.source.parquet import unsafe_columns
from dpsql.source.parse import render
from dpsql.source.rows import Carried, number_column
from dpsql.source.scope import Item, Texts
from dpsql.source.ways import Ways, marked

_FAR = "one far value of a {} column fails every call that reads it; CREATE TABLE t AS FROM the file"
_LOOKED_UP = (
    "DuckDB 1 finds rows of minus zero in a {} column of a file or not, depending on other rows; CREATE TABLE t AS FROM the file, "
    "name its folder with dp_remote, or use DuckDB 2"
)


@dataclass
class Cte:
    """A common table expression and what its text may see."""

    node: exp.CTE
    view: View
    used: bool = False


@dataclass(frozen=True)
class View:
    """Where a text stands: how names in it are looked up, and what encloses it."""

    homes: tuple[tuple[str, str], ...]
    where: str = ""
    stack: tuple[TableId, ...] = ()
    depth: int = 0
    ctes: tuple[tuple[str, Cte], ...] = ()


class Leaves:
    """What a pass over one source reads: ``table`` (the protected one), ``public``, ``leaves``, and their names in the text."""

    local = False
    """Whether rows of one privacy unit may be combined; then the protected table may be read more than once."""

    def __init__(
        self,
        catalog: Catalog,
        protected: Callable[[TableId], bool],
        public_keys: Callable[[TableId], Sequence[Sequence[str]]],
        unit_column: Callable[[TableId], str | None],
        home: tuple[str, str],
        most_rows: Callable[[TableId], int] = lambda table: 1,
        lineage: Callable[[TableId], Lineage | None] = lambda table: None,
        is_root: Callable[[TableId], bool] = lambda table: False,
        texts: Texts | None = None,
    ) -> None:
        self.home, self.most_rows = home, most_rows
        self.catalog, self.public_keys, self.unit_column = catalog, public_keys, unit_column
        self.protected: Callable[[TableId], bool] = lambda table: lineage(table) is not None or protected(table)
        self.lineage, self.is_root = lineage, is_root
        self.ways = Ways(catalog, unit_column, self._parent)
        self.table: TableId | None = None
        self.read: list[TableId] = []  # protected tables, each once
        self.lineages: dict[TableId, Lineage] = {}  # of those that are linked, and are not read as parents only
        self.public: list[TableId] = []
        self.views: dict[TableId, str] = {}  # what they say
        self.filtered = False
        self.leaves: dict[str, list[tuple[str, str]]] = {}
        self.named: list[tuple[exp.Table, TableId]] = []
        self.texts = texts or Texts()
        self._aliases = 0
        self.carried = Carried()
        self.met: list[int] = []  # public rows that one row may meet, of each relation where they are several
        self.counted: dict[str, int] = {}  # statements that count public rows, and what they gave

    def _file(self, node: exp.Table, parts: list[str], view: View) -> TableId:
        """Return the file that a name in place of a table means, or say that there is nothing of that name."""
        path = ".".join(parts)
        if "/" in path or path.lower().endswith(FILE_ENDINGS):
            return file_table(path, f"{path!r}{view.where}")
        homes, near = ", ".join(quoted(*home) for home in view.homes), self.catalog.near(parts[-1], view.homes)
        raise ArgumentError(
            "source",
            path,
            f"no such table or view{view.where} (looked in {homes}){near}. If it was created in a transaction that is still open, "
            "COMMIT first; a TEMP table belongs to one connection and can't be used; in another schema write schema.table",
        )

    def _function(self, node: exp.Table, view: View) -> TableId:
        """Return the file of ``read_parquet('file')``; refuse every other table function."""
        call = node.this
        name = str(call.this).lower() if isinstance(call, exp.Anonymous) and isinstance(call.this, str) else render(call)
        arguments = call.expressions if isinstance(call, exp.Anonymous) else []
        if name not in ("read_parquet", "parquet_scan") or len(node.parts) != 1:
            if name.startswith(("read_", "sniff_")) and arguments and isinstance(arguments[0], exp.Literal):
                return file_table(arguments[0].name, f"{name}(){view.where}")
            refuse(f"{name}()", "table functions and macros are not looked into; name a table, view or file", node, view.where)
        if len(arguments) != 1 or not isinstance(arguments[0], exp.Literal) or not arguments[0].is_string:
            refuse(f"{name}()", "takes one file name here", node, view.where)
        return file_table(arguments[0].name, f"{name}(){view.where}")

    def _base(self, table: TableId, entry: Entry | None, node: exp.Table, view: View, *, public: bool) -> Item:
        """Return a base table or a file; note it as the protected one if it has a budget."""
        self.named.append((node, table))
        described = self.catalog.columns(table)
        skip = generated_columns(entry.sql) if entry is not None else frozenset()
        unsafe = unsafe_columns(self.catalog.cursor, table) if table.is_file else {}
        collated = set() if table.is_file else self.catalog.collated(table)
        columns = [
            Column(d.name, d.name, d.sql_type, None, d.nullable, collated=d.name in collated)
            for d in described
            if fold(d.name) not in skip and fold(d.name) not in unsafe
        ]
        for column in columns:
            if fold(column.name).startswith(RESERVED):
                refuse(f"column {column.name!r}", f"names that start with {RESERVED} are dpsql's own", node, view.where)
        # what the custodian has declared decides, and nothing that the text says
        protected = self.protected(table)
        # only a unit, or a link, says which rows of two protected tables belong together
        if protected and public:
            refuse("JOIN", f"{table.text} is protected too: a join of protected tables is not allowed", node, view.where)
        if protected:
            lineage = self.lineage(table)
            root = table if lineage is None else lineage.root
            if self.table is not None and not (self.local and self.table == root):
                unlinked = "two protected tables can be combined if they are linked (dp_link) to one; else make one table of both"
                reason = unlinked if self.local else "a protected table may be read once, and only one of them"
                refuse(f"{table.text}", reason, node, view.where)
            self.table = root
            columns = [replace(c, origin=c.name) for c in columns]
            if lineage is not None or self.is_root(table):
                unit = self.unit_column(root) if lineage is None else self.ways.unit(lineage)
                keys = self.catalog.keys(table)
                columns = [marked(c, lineage, keys, table, unit) for c in columns]
            self._reads(table)
        alias = self._alias()
        self.leaves[alias] = [(d.name, d.sql_type) for d in described]
        out = table_expression(table, alias)
        if protected and lineage is not None:
            self.lineages[table] = lineage
            join, unit_ = self.ways.up(lineage, alias)
            self.carried.begin_linked(alias, self.ways.unit(lineage), unit_, join)
        elif protected:
            self.carried.begin(table, alias, [d.name for d in described], columns, self.unit_column(table))
            if self.carried.numbered:
                self.leaves[alias].append((number_column(table), "BIGINT"))
        # hidden columns are rehearsed and carried like others, they only have no name
        columns = [c for c in columns if self.catalog.nameable(table, c.name)]
        name = node.alias_or_name or alias
        if protected and lineage is not None and not self.local:
            alias, out = self._beside(alias, out, columns)
        most = self.most_of(table) if protected else 1
        left_out = {column: (_LOOKED_UP if kind in FLOATS else _FAR).format(kind) for column, kind in unsafe.items()}
        columns = self._renamed(node, columns, view)
        return Item(name, alias, out, columns, path_of(node, table), protected=protected, unsafe=left_out, most=most)

    def _beside(self, alias: str, table: exp.Expression, columns: Sequence[Column]) -> tuple[str, exp.Subquery]:
        """Return a linked table as a relation of its columns and its privacy unit, and the alias of that."""
        listed: list[exp.Expression] = [
            exp.Alias(this=exp.Column(this=identifier(c.ref), table=identifier(alias)), alias=identifier(c.ref)) for c in columns
        ]
        listed.append(exp.Alias(this=self.carried.unit_of(alias), alias=identifier(UNIT)))
        select = exp.Select(expressions=listed).from_(table)
        select.append("joins", self.carried.joins[alias])
        above = self._alias()
        return above, exp.Subquery(this=select, alias=exp.TableAlias(this=identifier(above)))

    def most_of(self, table: TableId) -> int:
        """Return the rows of a unit that a protected table has by its contract and its links."""
        lineage = self.lineage(table)
        return self.most_rows(table) if lineage is None else min(self.most_rows(lineage.root) * lineage.most, MOST_COUNTED)

    def _reads(self, table: TableId) -> None:
        if table not in self.read:
            self.read.append(table)

    def _parent(self, table: TableId, columns: list[Described]) -> str:
        """Return an alias for a parent's rows, under which its columns are known."""
        alias = self._alias()
        if columns:
            self._reads(table)
            self.leaves[alias] = [(d.name, d.sql_type) for d in columns]
        return alias

    def nothing_protected(self) -> NoReturn:
        """Say that a source reaches no table with a budget."""
        if not self.named or all(self.protected(t) for _, t in self.named):
            refuse("SELECT", "its rows belong to nobody: read the protected table")
        self._not_protected()

    def _not_protected(self) -> NoReturn:
        table = next(t for _, t in reversed(self.named) if not self.protected(t))
        home = (fold(self.home[0]), fold(self.home[1]))
        parts = [table.schema, table.name] if fold(table.database) == home[0] else [table.database, table.schema, table.name]
        short = not table.is_file and (fold(table.database), fold(table.schema)) == home
        name = table.name if short or table.is_file else quoted(*parts)
        raise NotProtected(
            f"source: {table.text} has no privacy budget, so there is nothing to charge. To protect it: "
            f"CALL dp_protect({literal(name)}, epsilon := 1.0, delta := 1e-9)"
        )

    def _fresh(self, letter: str) -> str:
        """Return a name for a column that nothing else has."""
        self._aliases += 1
        return f"{RESERVED}{letter}{self._aliases}"

    def _alias(self) -> str:
        self._aliases += 1
        return f"{RESERVED}s{self._aliases}"

    def _renamed(self, node: exp.Expression, columns: list[Column], view: View) -> list[Column]:
        """Apply the column names of ``AS name(a, b)``, which may be fewer than the columns."""
        alias = node.args.get("alias")
        names = [c.name for c in alias.args.get("columns") or []] if isinstance(alias, exp.TableAlias) else []
        if len(names) > len(columns):
            refuse(f"{alias.name}(...)", "more names than columns", node, view.where)
        out = [replace(c, name=names[i]) if i < len(names) else c for i, c in enumerate(columns)]
        if names and len({fold(c.name) for c in out}) < len(out):
            refuse(f"{alias.name}(...)", "two columns get the same name", node, view.where)
        return out


def path_of(node: exp.Table, table: TableId) -> tuple[str, ...]:
    """Return the folded names by which an item without alias may be qualified: database, schema, table."""
    return () if node.alias else tuple(fold(p) for p in (table.database, table.schema, table.name))
