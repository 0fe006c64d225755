"""The source of a ``dp_*`` call: its text checked, and rewritten into SQL that keeps one row for each row of one table.

A source is the name of a table or view, a Parquet file, or a SELECT. :func:`analyse` returns a :class:`Source` whose ``sql``
is generated from the checked syntax tree, so what was checked is what runs.

Why the result has stability 1
------------------------------
Adding, removing or changing one row of the protected table adds, removes or changes at most one row of the result, and no
other row of the result moves. By induction over the generated SQL, which is built from nothing but:

- the protected table itself, read once (a second reading, under any name, in any view or CTE, is refused); or a linked one beside
  its parents (see below);
- ``SELECT e1, ..., en FROM r``: every e is deterministic and reads one row of r (no aggregate, window, subquery, lateral or
  volatile function: every node of the tree and every function is on a list of allowed ones, nothing is on a list of
  forbidden ones), so a row of r gives one row;
- ``WHERE p``: p likewise reads one row, so a row of r gives one row or none;
- ``r [LEFT] JOIN public ON r.x = public.key``: the public side is ``SELECT DISTINCT ON (key) ...`` of a table that has no
  budget, and ON fixes every column of the key, so a row of r meets at most one row, and which one depends on public data only.
  Equal means the same bytes, in DISTINCT ON as in ON (:mod:`dpsql.source.keys`).

The last point is believed, not measured; so the number of the protected table's row travels along as ``__dp_row`` where there is
a join, and whoever counts makes rows of one number one row first (:func:`dpsql.domains.encoding.encode_sql`). Rows of a linked
table have no number, and are joined with public ones here on whole numbers and dates alone, of which nothing can change what is
equal. A privacy unit column travels along as ``__dp_unit``, in the one form that its values have.

Unit-local sources
------------------
With ``local=True`` a source that is not row by row may be *unit-local* instead: every row carries ``__dp_unit``, and the rows with
unit u are a function of the set of protected rows of unit u and of public tables alone. (Rows without a unit, NULL, are those of
one unit.) How many they are is not bounded here; whoever counts keeps a bounded number of rows per unit, chosen by that unit's rows
alone, and so bounds the effect of a unit. By induction over the generated SQL (:mod:`dpsql.source.local`), in which r and s have
the property and p is public:

- the protected table, with ``__dp_unit`` made of its privacy unit column, has it, and one without such a column, in which each row
  is a unit, with the number of the row, a name that nothing else is made of; so have ``SELECT e1, ..., en, __dp_unit FROM r``
  and ``WHERE``, of expressions that read one row;
- ``GROUP BY __dp_unit, ...``: a group holds rows of one unit. The aggregates do not depend on the order of rows;
- a window with ``PARTITION BY __dp_unit, ...``: a partition holds rows of one unit. Where the order of rows matters, it is total:
  rows that tie in all columns of the layer are the same row;
- ``UNION``, ``EXCEPT`` and ``INTERSECT``, with or without ALL, of r and s with ``__dp_unit`` in one place: they compare whole rows,
  so a row of unit u is kept or dropped by rows of unit u; DISTINCT is GROUP BY;
- ``r [LEFT | RIGHT | FULL | SEMI | ANTI] JOIN s ON r.__dp_unit = s.__dp_unit AND c``: a row meets rows of its own unit, or none,
  with IS NOT DISTINCT FROM in place of ``=`` as well, by which rows without a unit meet each other;
  the unit of the result is that of a side which is there in every row, or of the side that is there (COALESCE);
- ``r [LEFT | SEMI | ANTI | CROSS] JOIN p ON c``: a row meets rows of p, whatever r has besides. Rows of p that meet nothing are
  never in the result.

Linked tables
-------------
A table without a unit of its own may be linked to a parent (:mod:`dpsql.source.linked`): its rows are those of the unit whose
row of the parent has, in a unique column, the value that their link column has. Neighbours then differ by *all* rows of one
unit in *all* linked tables. Both inductions begin with one more leaf (:mod:`dpsql.source.ways`), ``SELECT c.x, ..., p.__dp_unit
FROM child c [LEFT] JOIN p ON c.column = p.key``, where p is (key, ``__dp_unit``) of the root, or of the leaf of a parent that
is linked itself:

- Let R(u) be the rows with unit u of all linked tables: of the root those that have it, of a child those that link to a row of
  R(u). A key is unique, so a row links to one row at most, and is of one unit: the R(u) are disjoint. Rows that link to no row,
  the orphans, are left out, or are R(NULL) together with what they lead to.
- The rows of the leaf with unit u are a function of R(u) alone: of a root, those that have it; of a child, a row that meets a
  row of p with unit u is in R(u) by definition, and every row of R(u) of the child does; with LEFT JOIN what meets nothing has
  unit NULL, and is in R(NULL). So the leaf has the property of unit-local sources, in whose induction "the protected table" is
  any of them.
- Equal means the same bytes, of one type, and unique is then unique in bytes: a constraint that takes more values for equal
  allows fewer rows. Were a key not unique all the same, a child's row would be there once for each row that it meets, with the
  unit of that row, and the rows with unit u would still depend on the root's rows of u and on rows that link to them; nothing
  here believes that a row comes out once.
- A join of two relations with people's rows has ``l.__dp_unit = r.__dp_unit`` in its condition as before, whatever the text
  says. That the text joins on one key (child to parent, or siblings to one another), and not on the unit, changes which rows of
  the unit meet; the unit is that of both sides anyway, by the uniqueness of the key, so the join gives what the text says.
- A text may group by, or partition by, a key in place of the unit (``Column.tells_unit``): ``__dp_unit`` is among the keys of
  the generated SQL all the same.
- Where the text joins a linked table to its parent by the link itself (``c.column = p.key``, inner or LEFT), the table is read
  without a way up of its own: a row of it meets the row of its parent, which stands on the left with its unit, and is of that
  unit by definition.

- Where EXISTS or IN compares the link column of a linked table with a column of a row outside that holds the same key, as the key
  itself or as a link to it, the rows of the subquery are read without a way up (SEMI or ANTI JOIN). Let v be the value outside,
  and u the unit of that row. The row of the key v is of unit u, for the row outside is that one or links to it; so every row that
  links to v is in R(u) by definition, and partners are sought in R(u) alone. Where there is no row of the key v, both are orphans,
  and u is NULL. The answer is that of the text as well if no orphan is a row and the root's unit is NOT NULL; elsewhere units
  are compared too.

How many rows a unit has after such joins is not bounded by anything here: links state numbers of rows (``Source.most``), which
are a default for whoever bounds. Counting keeps so many rows of each unit, chosen by that unit's rows alone, and its
sensitivity is that of the bound. Work is bounded before rows meet (:mod:`dpsql.source.limits`): a row meets one row at most where
a unique key is compared, and else both sides are limited, by the unit's own rows. A source of one linked table that is row by row
has stability 1 in its rows and carries the unit; whether the number of all rows is public cannot be said of it
(``Source.filtered``). Tables of two roots are refused: bounding rows per unit of one kind lets in rows of others of the other
kind.

*Function of the set* is meant literally: which of several equal values comes out, which of two rows that tie comes first, and the
last digit of a sum of floating-point numbers must not depend on where the rows stand, because that changes with other people's
rows (:mod:`dpsql.source.layers`, :mod:`dpsql.source.aggregates`). The unit is the carried column in its one form, never the column
as a collation compares it. :mod:`dpsql.source.unit_local` checks all this once more, on DuckDB's parse tree of the generated SQL.
A text that is row by row stays what it is without ``local``.

Why it does not fail on a value
-------------------------------
An error that one person's value causes is an output about that person, and DuckDB's texts even quote the value. There are three
walls:

- The kernel (:mod:`dpsql.source.kernel`) lists every function, operator and conversion with the exact types for which no value
  makes it fail. Conversions are TRY_CASTs, functions with a limited domain see NULL for what lies outside of it, integers are
  calculated in 128 bits, texts are cut before they grow, constant patterns and formats are tried before anything is charged, and
  the whole source is rehearsed on made-up rows (:mod:`dpsql.source.rehearsal`). What is not listed is refused. What would have
  raised is NULL: that includes division by zero, and dates further than 100,000 years away in date functions.
- Every computed expression of the SQL that runs stands in a ``TRY`` that no optimizer looks into
  (:func:`dpsql.source.functions.caught`).
- Where reading fails all the same (a Parquet file with invalid UTF-8, lack of memory), the failure is the final result of its
  charge, and the table's books stop selling anything but plain columns until the custodian has looked
  (:mod:`dpsql.purchase.buying`).

Whoever runs ``Source.sql`` must not show the text of an error.

Who is asked
------------
sqlglot parses, DuckDB's parser must agree with it on the text (:mod:`dpsql.source.parse`), and DuckDB's parser and binder
must find nothing else in the generated SQL (:mod:`dpsql.source.binder`), with no macro, Python function or extension in the
place of a function that it uses. Views are inlined from the text in the catalog and checked like everything else; nothing is
bound before it is checked, because binding a view may run a ``dp_*`` macro in it. Only catalogs and file footers are read.

Names are looked up in the caller's current schema; TEMP objects belong to one connection and are invisible here. ORDER BY is
accepted and dropped: it has no effect on a set of rows. Copies of protected data (CREATE TABLE AS) are other tables: they
need a budget of their own, or must not be offered as public tables.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence

import duckdb
from sqlglot import exp
from sqlglot.tokens import Token, TokenType

from dpsql.errors import ArgumentError, NotProtected, UnsupportedQuery
from dpsql.source.binder import check, check_local
from dpsql.source.catalog import FILE_ENDINGS, Catalog, Entry, file_table, generated_columns
from dpsql.source.layers import GATHERED
from dpsql.source.leaves import View
from dpsql.source.limits import LIMITING
from dpsql.source.linked import Lineage
from dpsql.source.local import LocalAnalysis, WithoutUnit
from dpsql.source.model import ROW, UNIT, Column, OutputColumn, Source, TableId, fold, identifier, quoted
from dpsql.source.narrow import narrow
from dpsql.source.parquet import unsafe_columns
from dpsql.source.parse import QUERY, agree, render, tokens
from dpsql.source.rehearsal import guarded, rehearse
from dpsql.source.relations import Analysis
from dpsql.source.rows import of_units
from dpsql.source.scope import shortening
from dpsql.source.unit_local import UnitLocal
from dpsql.text.spelled import plainly

__all__ = ["UNIT", "OutputColumn", "Source", "TableId", "analyse", "find_table", "relation_columns"]

_OF_PEOPLE = ("people", "privacy unit", "privacy_unit", "rowid", "file_row_number")
"""Words of refusals because rows of several people would meet, or would be told apart by a column."""
LONGEST = 200_000
"""A source may have this many characters."""


def analyse(
    cursor: duckdb.DuckDBPyConnection,
    text: str,
    *,
    database: str,
    schema: str,
    protected: Callable[[TableId], bool],
    public_keys: Callable[[TableId], Sequence[Sequence[str]]] = lambda table: (),
    unit_column: Callable[[TableId], str | None] = lambda table: None,
    most_rows: Callable[[TableId], int] = lambda table: 1,
    lineage: Callable[[TableId], Lineage | None] = lambda table: None,
    is_root: Callable[[TableId], bool] = lambda table: False,
    local: bool = False,
    catalog: Catalog | None = None,
) -> Source:
    """Check a source and rewrite it.

    Parameters
    ----------
    cursor : DuckDB cursor
        A fresh one; catalogs are read and statements are bound on it, nothing is run on data.
    text : str
        A table or view, quoted as in SQL where needed; a Parquet file; or a SELECT.
    database, schema : str
        The caller's current ones.
    protected : callable
        Whether a base table or file has a budget.
    public_keys : callable
        Declared unique keys of a public table or file; PRIMARY KEY, UNIQUE constraints and UNIQUE indexes are found without it.
    unit_column : callable
        The privacy unit column of a protected table, or None. Of the root of links it is what tells its rows apart.
    most_rows : callable
        Rows of one unit of a table with a budget that are counted.
    lineage : callable
        The way from a linked table up to its root; None for a table that is not linked.
    is_root : callable
        Whether tables are linked to a table with a budget: then its keys tell its units apart too.
    local : bool
        Whether a source that is not row by row may be unit-local instead.
    catalog : Catalog, optional
        On the same cursor: what it has looked up is not asked again.

    Returns
    -------
    Source

    Raises
    ------
    UnsupportedQuery, NotProtected, ArgumentError
        A construct is not allowed (which, where, why, what instead); no table with a budget; a name means nothing.

    Notes
    -----
    Privacy: free. Reads names, types and constraints only; the messages depend on nothing else.
    """
    catalog = catalog or Catalog(cursor)

    def run(kind: type[Analysis], unit: Callable[[TableId], str | None] = unit_column) -> Source:
        home = (database, schema)
        return shortening(
            lambda texts: _analyse(
                catalog, kind(catalog, protected, public_keys, unit, home, most_rows, lineage, is_root, texts), text
            )
        )

    try:
        _checked_text(text)
        try:
            return run(Analysis)
        except (UnsupportedQuery, ArgumentError, NotProtected):
            if not local:
                raise
            # what is not row by row may still be unit-local
        try:
            return run(LocalAnalysis)
        except WithoutUnit as without:
            # a row is a person: DuckDB's number of the row says whose it is
            try:
                return run(LocalAnalysis, lambda table: unit_column(table) or ROW)
            except (UnsupportedQuery, ArgumentError) as again:
                # where no rows of people meet, a unit would not help
                raise (without if any(word in str(again) for word in _OF_PEOPLE) else again) from None
    except RecursionError:
        raise UnsupportedQuery("the nesting", "the text is nested too deeply; use fewer brackets or subqueries") from None


def _checked_text(text: str) -> str:
    """Refuse what is not a text of reasonable length; DuckDB speaks UTF-8."""
    if not isinstance(text, str) or not text.strip():
        raise ArgumentError("source", text, "must be a table, a view, a Parquet file or a SELECT")
    if len(text) > LONGEST or "\0" in text or not text.isascii() and text != text.encode("utf-8", "ignore").decode():
        raise ArgumentError("source", text[:40], f"must be valid Unicode without NUL, up to {LONGEST} characters")
    return text


def _analyse(catalog: Catalog, analysis: Analysis, text: str) -> Source:
    """Check and rewrite; see :func:`analyse`."""
    database, schema = analysis.home
    cursor = catalog.cursor
    view = View(((database, schema),))
    # a text is a name, or a query; of a name the query is made here, and there is nothing to agree about
    named = _named(catalog, text, database, schema)
    spelled = plainly(text)
    tree = analysis.text(spelled) if named is None else exp.Select(expressions=[exp.Star()]).from_(_reference(named))
    relation = analysis.query(tree, view)
    if named is None:
        agree(cursor, spelled, tree)
    for position in relation.unnamed:
        raise ArgumentError("source", render(tree.selects[position]), "this expression has no name: give it one with AS")
    # what the text reads is known only now that all of its relations were visited
    table = analysis.table
    if table is None or not relation.protected:
        analysis.nothing_protected()
    # numbers of rows are for joins with public rows, and rows of linked tables have none
    if not analysis.public or analysis.lineages:
        analysis.carried.drop_numbers()
    narrow(relation.select)
    sql = render(relation.select)
    # the generated SQL is checked as if a stranger had written it
    walk = UnitLocal(table, analysis.carried.unit or "", analysis.lineages)
    if analysis.local:
        check_local(catalog, sql, analysis.probe(relation.select), [*analysis.read, *analysis.public], walk)
    else:
        linked = walk if analysis.lineages else None
        check(catalog, sql, analysis.probe(relation.select), analysis.read, analysis.public, linked)
    rehearse(catalog, relation.select, analysis.leaves)
    # the columns are described without the net below: a TRY changes no type
    described, total = catalog.describe(sql), guarded(relation.select)
    theirs = None if analysis.local else of_units(total)
    sql = render(total, own=True)
    outputs = tuple(
        OutputColumn(d.name, d.sql_type, c.origin, c.nullable, _views(c, table.database), c.home)
        for d, c in zip(described, relation.columns, strict=False)
    )
    return Source(
        text=text,
        canonical=_canonical(tree, analysis, table.database) if named is None else _canonical_name(named, table.database),
        table=table,
        sql=sql,
        columns=outputs,
        filtered=analysis.filtered or analysis.local or bool(analysis.lineages),
        public_tables=tuple(analysis.public),
        unit=UNIT if analysis.carried.unit is not None else None,
        row=ROW if analysis.public and not (analysis.local or analysis.lineages) else None,
        bare=named is not None and (named == table or named in analysis.lineages),
        local=analysis.local,
        one_per_unit=relation.one,
        gathered=max((part.meta.get(GATHERED, 0) for part in relation.select.find_all(exp.Select)), default=0) or None,
        most_rows=relation.most if analysis.local else None,
        limited=max((part.meta.get(LIMITING, 0) for part in relation.select.find_all(exp.Select)), default=0) or None,
        named=named,
        tables=tuple(analysis.read),
        linked=tuple(analysis.lineages),
        most=relation.most if analysis.lineages else None,
        theirs=None if theirs is None else render(theirs, own=True),
        views=_digest(analysis.views),
    )


def _digest(views: Mapping[TableId, str]) -> str | None:
    """Return what changes where a view comes to say something else; None without views."""
    texts = sorted((view.text, text) for view, text in views.items())
    return hashlib.sha256(repr(texts).encode()).hexdigest()[:16] if texts else None


def find_table(cursor: duckdb.DuckDBPyConnection, text: str, *, database: str, schema: str, views: bool = False) -> TableId:
    """Return the table or file that a name means, as for ``dp_protect``.

    Parameters
    ----------
    views : bool
        Whether the name may be a view's.

    Raises
    ------
    ArgumentError
        If there is none, or the text is not a name.

    Notes
    -----
    Privacy: free; reads the catalog.
    """
    catalog = Catalog(cursor)
    entry = _entry(catalog, _checked_text(text), database, schema)
    if entry is not None and entry.is_view and not views:
        raise ArgumentError("source", text, "is a view; a budget belongs to the table that holds the rows: name that table")
    named = entry.table if entry is not None else _file(text)
    if named is None:
        raise _missing(catalog, text, database, schema)
    return named


def named_table(catalog: Catalog, text: str, database: str, schema: str) -> TableId | None:
    """Return the table of DuckDB that the whole text names; None for a view, a file or a query."""
    entry = None if _named(catalog, _checked_text(text), database, schema) is None else _entry(catalog, text, database, schema)
    return None if entry is None or entry.is_view else entry.table


def relation_columns(
    cursor: duckdb.DuckDBPyConnection, table: TableId, catalog: Catalog | None = None
) -> list[OutputColumn]:
    """Return the stored columns of a table or file; generated columns are left out.

    Notes
    -----
    Privacy: free; reads the catalog or the footer of the file.
    """
    catalog = catalog or Catalog(cursor, foreign={})  # whoever has found the table has looked whose it is
    entry = None if table.is_file else catalog.find(table.database, table.schema, table.name)
    skip = generated_columns(entry.sql) if entry is not None else frozenset()
    skip |= unsafe_columns(cursor, table).keys() if table.is_file else set()
    return [
        OutputColumn(c.name, c.sql_type, c.name, c.nullable)
        for c in catalog.columns(table)
        if fold(c.name) not in skip and catalog.nameable(table, c.name)
    ]


def _named(catalog: Catalog, text: str, database: str, schema: str) -> TableId | None:
    """Return the relation that the whole text names; None if the text is (or should be) a query."""
    read = tokens(text)
    if len(read) > 1 and read[0].token_type in QUERY:
        return None
    entry = _entry(catalog, text, database, schema)
    named = entry.table if entry is not None else _file(text)
    if named is None and (_parts(text) or not read or _is_words(read)):
        raise _missing(catalog, text, database, schema)
    return named


def _is_words(read: Sequence[Token]) -> bool:
    """Whether a text is words none of which begins a query: a table name with blanks, then, and not a statement."""
    return all(token.text.isidentifier() and token.token_type not in QUERY for token in read) and (
        read[0].token_type in (TokenType.VAR, TokenType.IDENTIFIER)  # no statement begins with one
    )


def _missing(catalog: Catalog, text: str, database: str, schema: str) -> ArgumentError:
    near = catalog.near(text, [(database, schema)])
    return ArgumentError(
        "source",
        text,
        f"no such table or view in {database}.{schema}{near}. If it was created in a transaction that is still open, COMMIT first; "
        "a TEMP table belongs to one connection and can't be used; in another schema write schema.table; a file must be Parquet; a "
        "DataFrame or Arrow table (also a registered one) becomes a table first: CREATE TABLE t AS FROM df",
    )


def _entry(catalog: Catalog, text: str, database: str, schema: str) -> Entry | None:
    """Return the table or view of this name: read as SQL first, then letter by letter."""
    parts = _parts(text)
    entry = catalog.locate(parts, [(database, schema)]) if parts else None
    return entry or catalog.find(database, schema, text.strip()) or catalog.find(database, schema, text)


def _parts(text: str) -> list[str]:
    """Return the parts of a dotted name, [] if the text is no such name.

    Examples
    --------
    >>> _parts('main."a.b"'), _parts("a b"), _parts("a.b.c.d"), _parts("order")
    (['main', 'a.b'], [], [], ['order'])
    """
    read = tokens(text)
    words, dots = read[0::2], read[1::2]
    if len(read) not in (1, 3, 5) or any(t.token_type != TokenType.DOT for t in dots):
        return []
    if any(t.token_type in (TokenType.STRING, TokenType.NUMBER) or not (t.text[:1].isalpha() or t.text[:1] == "_") for t in words
           if t.token_type != TokenType.IDENTIFIER):
        return []
    return [t.text for t in words]


def _file(text: str) -> TableId | None:
    """Return the file that the text names, with or without quotes; None if it does not look like one."""
    path = text.strip()
    read = tokens(text)
    if len(read) == 1 and read[0].token_type == TokenType.STRING:
        path = read[0].text
    elif "(" in path or not path.lower().endswith(FILE_ENDINGS):
        return None
    return file_table(path, repr(path))


def _reference(table: TableId) -> exp.Table:
    """Return a relation as it would be written after FROM."""
    if table.is_file:
        return exp.Table(this=identifier(table.name))
    return exp.Table(this=identifier(table.name), db=identifier(table.schema), catalog=identifier(table.database))


def _views(column: Column, database: str) -> tuple[tuple[str, str], ...]:
    """Return the columns of views that a column copies, under the names that declarations for those views have."""
    return tuple((_canonical_name(view, database), name) for view, name in column.views)


def _canonical_name(named: TableId, database: str) -> str:
    """Return the identity of a relation, without the name under which the protected table's database is attached at the moment."""
    return quoted(named.schema, named.name) if not named.is_file and named.database == database else named.text


def _canonical(tree: exp.Expression, analysis: Analysis, database: str) -> str:
    """Return the text of a SELECT with its tables qualified, one text for all spellings of blanks, comments and names.

    The protected table's own database is left out: a release stays the same when its file is renamed or attached as something else.
    """
    for node, table in analysis.named:
        node.set("this", identifier(table.name))
        node.set("db", None if table.is_file else identifier(table.schema))
        node.set("catalog", None if table.is_file or table.database == database else identifier(table.database))
    return render(tree)
