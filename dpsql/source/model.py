"""What the analysis of a source text yields, and the small tools its parts share. None of it has seen a row."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NoReturn

from sqlglot import exp

from dpsql.errors import UnsupportedQuery
from dpsql.text import relation
from dpsql.text.names import fold as fold  # also the name under which the rest of the analysis knows it

UNIT = "__dp_unit"
"""Name of the column that carries the privacy unit through a rewritten source."""

HEAVY = "__dp_heavy_units"
"""A relation of units, as a name in ``Source.theirs``."""

ROW = "__dp_row"
"""Name of the column that carries the number of the protected table's row through the joins of a rewritten source."""

RESERVED = "__dp_"
"""Prefix of every name that the rewriting makes up; no name of the user's may start with it."""


def identifier(name: str) -> exp.Identifier:
    """Return the name as a quoted identifier: the only way in which a name gets into generated SQL."""
    return exp.to_identifier(name, quoted=True)


quoted = relation.identifier
"""Names as text, quoted and joined with dots."""
literal = relation.literal
"""A value as text."""


@dataclass(frozen=True)
class TableId:
    """Identity of a base table or of a file.

    Parameters
    ----------
    database, schema, name : str
        As the catalog spells them. Of a file: database and schema are empty, name is the absolute real path.
    kind : {'table', 'file'}
    """

    database: str
    schema: str
    name: str
    kind: str = "table"

    @property
    def is_file(self) -> bool:
        """Whether this is a file."""
        return self.kind == "file"

    @property
    def text(self) -> str:
        """The identity as SQL: three quoted names, or the path as a string literal."""
        return literal(self.name) if self.is_file else quoted(self.database, self.schema, self.name)

    @property
    def sql(self) -> str:
        """What stands for the relation after FROM."""
        if not self.is_file:
            return self.text
        # Many writers leave NaN out of the largest value that a footer notes: whether a condition like x > 5 reads the rows with
        # NaN would depend on other rows.
        return f"read_parquet({self.text}, hive_partitioning = FALSE, can_have_nan = TRUE)"


@dataclass(frozen=True)
class OutputColumn:
    """One column of a source.

    Parameters
    ----------
    name : str
    sql_type : str
        As DuckDB describes the column of the rewritten SQL.
    origin : str or None
        Column of the protected table that this is a plain copy of; None for an expression or a public column.
    nullable : bool
        False only for a plain copy of a column that is declared NOT NULL.
    views : tuple of (str, str)
        The columns of views that this is a plain copy of, the innermost first: the view as the books call it, and its column.
    home : TableId or None
        The linked table that ``origin`` is a column of; None: of the table that has the budget.
    """

    name: str
    sql_type: str
    origin: str | None
    nullable: bool = True
    views: tuple[tuple[str, str], ...] = ()
    home: TableId | None = None


@dataclass(frozen=True)
class Source:
    """A checked and rewritten source: at most one output row for each row of one protected table, or of each unit any rows.

    Parameters
    ----------
    text : str
        The source as it was given.
    canonical : str
        For the release key: the resolved identity of a bare relation, or the SELECT with every table name qualified.
    table : TableId
        The one table whose budget pays: the protected table that the source reaches, of linked tables their root.
    sql : str
        A SELECT with every name qualified and quoted, views and CTEs inlined, every expression total; safe to embed as
        ``FROM (<sql>) AS s``. Its columns are ``columns``, followed by ``__dp_unit`` where ``unit`` says so, and
        ``__dp_row`` where ``row`` does.
    columns : tuple of OutputColumn
        Without the privacy unit.
    filtered : bool
        Whether rows of the protected table may be left out; then the number of rows is private under 'replace_one' too.
    public_tables : tuple of TableId
        Tables joined on their key.
    unit : str or None
        ``__dp_unit`` if each row says whose it is: by the privacy unit column, or, in a local source of a table without one, by its
        number; else None. Its values are equal if their bytes are.
    row : str or None
        ``'__dp_row'`` if the source has a join: the number of the protected table's row, so that a row which comes out more
        than once can be counted once. Rows of a linked table have none.
    bare : bool
        Whether the text names the protected table itself, or a linked one, with nothing between.
    local : bool
        Whether rows of one privacy unit are combined or repeated (GROUP BY unit, windows, DISTINCT, set operations, joins of the
        table with itself, joins that multiply): then only the rows with one ``__dp_unit`` depend on the rows of that unit, and
        *how many* they are is not bounded. Whoever counts bounds rows per unit at the end. There is no number of a row then
        (``row`` is None), and none is needed: a row that comes out twice counts twice within the bound of its unit.
    one_per_unit : bool
        Whether no unit has more than one row, by construction: GROUP BY the unit alone, DISTINCT ON (unit), and what keeps
        rows apart above it. Only where ``local``.
    most_rows : int or None
        Rows that it makes, at most, of a unit with as many in the table as are counted: more where a join, a cross join or
        UNION ALL makes several of one. None: as many as there are.
    gathered : int or None
        Rows of a unit that are grouped inside of it, at most, where they are: of a unit with as many in the table as are counted.
    limited : int or None
        Rows of a unit that are kept, at most, where they meet others of it (:mod:`dpsql.source.limits`); None: all are.
    named : TableId or None
        The table, view or file that the text is the name of; None for a SELECT.
    tables : tuple of TableId
        The protected tables that are read, parents of linked tables among them, in the order in which they are met.
    linked : tuple of TableId
        Those whose rows the text reads by a link, and whose units it has from their parents; () for a source of one table alone.
    theirs : str or None
        ``sql`` of the units in a relation `HEAVY` alone, which a WITH has to give; None where that is not made row by row.
    most : int or None
        Rows of one unit that the links allow, as a default for whoever bounds them; None without linked tables. It is no bound of
        what comes out: rows of a unit are bounded where they are counted, whatever this says.
    views : str or None
        What changes where a view that it reads comes to say something else; None without views.

    Notes
    -----
    Privacy: post-processing of the catalog; no row was read.
    """

    text: str
    canonical: str
    table: TableId
    sql: str
    columns: tuple[OutputColumn, ...]
    filtered: bool
    public_tables: tuple[TableId, ...] = ()
    unit: str | None = None
    row: str | None = None
    bare: bool = False
    local: bool = False
    one_per_unit: bool = False
    most_rows: int | None = None
    gathered: int | None = None
    limited: int | None = None
    named: TableId | None = None
    tables: tuple[TableId, ...] = ()
    linked: tuple[TableId, ...] = ()
    most: int | None = None
    theirs: str | None = None
    views: str | None = None

    @property
    def meets(self) -> bool:
        """Whether rows of people are combined or joined with one another: then DuckDB's plans have to be sound."""
        return self.local or bool(self.linked)

    def over(self, sql: str) -> Source:
        """Return a source of the same columns that reads other rows, and no row of its tables."""
        return replace(self, sql=sql, theirs=None)


@dataclass(frozen=True)
class Column:
    """A column of a relation in FROM while a SELECT is analysed: the text calls it ``name``, the generated SQL ``ref``.

    ``collated``: whether its type has a collation, so that values which differ could be called equal. ``unit``: whether in every
    row it is the privacy unit whose row this is. ``orphans``: but rows of the unit NULL may have any value in it. ``home``: the
    linked table that ``origin`` is of. ``keys``: unique columns of protected tables such that a row in which this column has the
    value of one of them, and is not NULL, is a row of the same unit as the row of that value. ``told``: and rows in which it is
    NULL, if there are any, are those of one unit. ``unique``: whether no two rows have one value in it, NULL aside: known of keys
    of tables with links, and believed where work is bounded, not where rows of people could meet. ``present``: whether the text
    keeps only rows in which it is not NULL, whatever was declared.
    """

    name: str
    ref: str
    sql_type: str
    origin: str | None
    nullable: bool = True
    views: tuple[tuple[TableId, str], ...] = ()
    collated: bool = False
    unit: bool = False
    orphans: bool = False
    home: TableId | None = None
    keys: frozenset[tuple[TableId, str]] = frozenset()
    told: bool = False
    unique: bool = False
    present: bool = False

    @property
    def tells_unit(self) -> bool:
        """Whether rows with one value in it are rows of one unit: the unit, or a key of which NULL says as much or is not there."""
        return self.unit or (bool(self.keys) and (self.told or self.present))


def place(node: exp.Expression | None) -> str:
    """Return where a node stands in the text, as far as the parser kept it."""
    if node is not None:
        for part in node.walk():
            if "line" in part.meta:
                length = part.meta.get("end", 0) - part.meta.get("start", 0)  # sqlglot keeps the column of the last letter
                return f" (line {part.meta['line']}, column {part.meta['col'] - length})"
    return ""


def refuse(construct: str, reason: str, node: exp.Expression | None = None, where: str = "") -> NoReturn:
    """Raise the refusal of a construct.

    Parameters
    ----------
    construct : str
        As it is written in SQL.
    reason : str
        Why, and what to write instead.
    node : sqlglot expression, optional
        Where it stands.
    where : str, optional
        The view it stands in, as ' in view "v"'.
    """
    raise UnsupportedQuery(f"{construct}{where}{place(node)}", reason)
