"""The text of a query, read: sqlglot's tree, on which DuckDB's parser must agree, taken apart into cores and outer statement."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError

from dpsql.calls.query import QueryCall
from dpsql.errors import ArgumentError, UnsupportedQuery
from dpsql.protected.home import catalog_of
from dpsql.queries.asked import Asked, asked
from dpsql.queries.clause import cut
from dpsql.queries.constant_rows import series_by
from dpsql.queries.decorrelated import decorrelated
from dpsql.queries.leaves import facts_of
from dpsql.queries.names import duckdb_names, keeping_names
from dpsql.queries.one_form import one_form
from dpsql.queries.public_values import with_values
from dpsql.queries.respelled import respelled
from dpsql.queries.split import split
from dpsql.queries.taken import Core, FirstAsked, Query
from dpsql.queries.top_lists import of_groups
from dpsql.queries.unnested import unnested
from dpsql.session.instance import Context
from dpsql.source.model import refuse
from dpsql.source.parse import PIVOT_WAY, agree, render
from dpsql.text.spelled import plainly
from dpsql.text.strict import StrictDuckDB

LONGEST = 200_000
MOST_FIRST = 8
"""Scalar subqueries of one text that are answered first."""
_PLACE = re.compile(r" \(line \d+, column \d+\)")


@dataclass(frozen=True)
class Read:
    """A query, ready to be bought.

    Parameters
    ----------
    call : QueryCall
        With what the text says about privacy filled in.
    query : Query
    asked : list of (Core, list of Asked)
        What each core asks, a release for each of its grouping sets.
    """

    call: QueryCall
    query: Query
    asked: list[tuple[Core, list[Asked]]]


def read(context: Context, call: QueryCall) -> Read:
    """Read and take apart the text of a call.

    Raises
    ------
    ArgumentError, UnsupportedQuery, NotProtected
        It is no query that can be answered; says where and what to do. No row was read.
    """
    text, options = cut(call.sql)
    text = plainly(text)
    call = _with(call, options)
    tree = _tree(text)
    # DuckDB's own parser has to understand the text as sqlglot does: what is checked is what would run
    agree(context.cursor, text, tree)
    tree = _selected(tree)
    named = duckdb_names(context.cursor)
    # all names of the text are looked up in the catalog at once
    own = {cte.alias for cte in tree.find_all(exp.CTE)}
    catalog_of(context).look_up(table.name for table in tree.find_all(exp.Table) if table.name not in own)
    facts, series = facts_of(context), series_by(context.cursor)
    # spellings of tools, lists of groups and public constants: from here on the text is plain
    tree = respelled(tree, named, facts.type_of)
    tree = unnested(tree, facts, named)
    if tree.find(exp.Subquery) is not None:
        tree = keeping_names(tree, named, lambda tree: decorrelated(tree, facts))
    tree = of_groups(tree, lambda table: facts(table).protected)
    tree = with_values(tree, context, facts)

    def qualified(table: exp.Table) -> bool:
        protected = facts(table).protected
        facts.qualify(table)
        return protected

    def asks(query: Query) -> list[list[Asked]]:
        return [[asked(core, places, qualified) for places in core.sets] for core in query.cores]

    try:
        # releases of before there was one form, or of the form before, are to be found again
        as_written = tree.copy()
        former = one_form(tree.copy(), named, facts.type_of, False)
        tree = one_form(tree, named, facts.type_of)
        forms = [form for form in (as_written, former) if form != tree]
        if as_written == former:
            forms = forms[:1]
        # the cores are what is bought; the rest is computed from the released numbers
        query = split(tree, facts, series, named)
        for table in query.public:
            facts.qualify(table)
        older = [asks(split(form, facts, series, named)) for form in forms]
    except FirstAsked as first:
        first.refuse()
    except RecursionError:
        raise UnsupportedQuery("the nesting", "the text is nested too deeply; use fewer brackets or subqueries") from None

    # GoogleSQL's clause may name the unit, and has to name the right one
    unit = options.get("privacy_unit")
    for core in query.cores:
        if unit is not None and unit not in core.units:
            known = ", ".join(sorted(core.units)) or "the row"
            raise ArgumentError("sql", f"privacy_unit_column = {unit}", f"the privacy unit is {known}: say that, or leave it out")
    questions: list[list[Asked]] = []
    for asked_so in [*older, asks(query)]:  # each form knows the one before it
        # where a form is split otherwise, its aggregates cannot be told apart one by one
        if _shape(questions) == _shape(asked_so):
            pairs = zip(asked_so, questions, strict=True)
            questions = [[replace(question, written=former) for question, former in zip(*pair, strict=True)] for pair in pairs]
        else:
            questions = asked_so
    return Read(call, query, list(zip(query.cores, questions, strict=True)))


def _shape(questions: list[list[Asked]]) -> list[list[int]]:
    """Return how many aggregates each grouping set of each core asks for."""
    return [[len(question.wanted) for question in sets] for sets in questions]


def first_asked(context: Context, sql: str) -> tuple[str, list[str]]:
    """Return a text with a mark (a text constant, `mark`) in place of each scalar subquery over protected rows, and these.

    Raises
    ------
    ArgumentError
        There are more than `MOST_FIRST`.
    """
    text = plainly(cut(sql)[0])
    tree = _tree(text)
    agree(context.cursor, text, tree)
    facts, series = facts_of(context), series_by(context.cursor)
    tree = decorrelated(unnested(_selected(tree), facts, duckdb_names(context.cursor)), facts)
    texts: list[str] = []
    while True:
        try:
            split(tree.copy(), facts, series)
        except FirstAsked as first:
            # the split was of a copy: the same subquery in the tree itself gets the mark
            node = next((subquery for subquery in tree.find_all(exp.Subquery) if subquery == first.node), None)
            if node is None or len(texts) >= MOST_FIRST:
                raise ArgumentError("adaptive", True, f"at most {MOST_FIRST} scalar subqueries are answered first") from None
            if first.node.this.args.get("group") is not None:
                raise ArgumentError("sql", first.text[:80], "a scalar subquery gives one number: leave its GROUP BY out") from None
            node.replace(exp.Literal.string(mark(len(texts))))
            texts.append(first.text)
        else:
            return (render(tree) if texts else sql), texts


def mark(place: int) -> str:
    """Return what stands for a subquery that is answered first."""
    return f"__dp_first_{place}"


@contextmanager
def about_the_query(*, text: bool = True) -> Iterator[None]:
    """Name the argument 'sql' in refusals that come from the checks of a source.

    Parameters
    ----------
    text : bool
        Whether lines and columns are those of the user's text; else they are left out.
    """
    try:
        yield
    except UnsupportedQuery as error:
        construct = error.construct if text else _PLACE.sub("", error.construct)
        raise UnsupportedQuery(construct, error.reason, "sql") from None
    except ArgumentError as error:
        if error.argument != "source":
            raise
        raise ArgumentError("sql", error.value, error.expected) from None


@lru_cache(maxsize=256)
def is_aggregate_query(text: str) -> bool:
    """Return whether a text is a query with aggregates or groups, and not a source of rows: it can be read, and has some."""
    from dpsql.queries.aggregates import is_aggregate

    try:
        tree = _tree(plainly(cut(text)[0]))
    except (ArgumentError, UnsupportedQuery):
        return False
    if isinstance(tree, exp.SetOperation):
        return True
    return any(is_aggregate(node) or isinstance(node, exp.Group) for node in tree.walk()) or bool(tree.args.get("distinct"))


def _with(call: QueryCall, options: dict[str, Any]) -> QueryCall:
    """Return the call with what GoogleSQL's clause says; the same said twice must be the same."""
    changes = {}
    for name, value in options.items():
        if name in ("privacy_unit", "max_rows"):
            continue
        argument = getattr(call, name)
        if argument is not None and argument != value:
            raise ArgumentError(name, argument, f"the text says {value}: say it once")
        changes[name] = value
    if "max_rows" in options:
        changes.update(max_groups=1, max_rows_per_group=options["max_rows"])
    return call.changed(**changes) if changes else call


def _selected(tree: exp.Expression) -> exp.Expression:
    """Return a statement as a SELECT: ``PIVOT ...`` as ``SELECT * FROM (PIVOT ...)``."""
    if not isinstance(tree, exp.Pivot):
        return tree
    return exp.Select(expressions=[exp.Star()], from_=exp.From(this=exp.Subquery(this=tree)))


def _tree(text: str) -> exp.Expression:
    """Return the tree of the one SELECT or set operation of a text."""
    if len(text) > LONGEST:
        raise ArgumentError("sql", text[:40], f"must have at most {LONGEST} characters")
    try:
        trees = [tree for tree in sqlglot.parse(text, dialect=StrictDuckDB) if tree is not None]
    except ParseError as error:
        first: dict[str, Any] = error.errors[0] if error.errors else {}
        at = f" (line {first['line']}, column {first['col']})" if first.get("line") else ""
        raise UnsupportedQuery(f"{str(first.get('highlight') or 'the text')!r}{at}", "not understood as SQL") from None
    except (SqlglotError, RecursionError):
        raise UnsupportedQuery("the text", "not understood as SQL") from None
    if len(trees) != 1:
        raise UnsupportedQuery(f"{len(trees)} statements", "one SELECT is answered at a time")
    tree: exp.Expression = trees[0]
    # brackets around the whole text are nothing
    while isinstance(tree, exp.Subquery) and not tree.alias and isinstance(tree.this, exp.Select | exp.SetOperation | exp.Subquery):
        tree = tree.this
        tree.parent = None
    for distinct in tree.find_all(exp.Distinct):
        if isinstance(distinct.parent, exp.Anonymous) and len(distinct.expressions) > 1:
            refuse("DISTINCT a, b", "write count(DISTINCT (a, b)) for combinations, as DuckDB does", distinct.parent)
    if isinstance(tree, exp.Summarize | exp.Describe):
        way = "dp_query and dp_summarize answer it" if isinstance(tree, exp.Summarize) else "dp_query answers it, free"
        raise UnsupportedQuery(tree.key.upper(), f"{way}; here only SELECT can be")
    # which values become columns must not follow from the data
    if isinstance(tree, exp.Pivot):
        if any(not isinstance(condition, exp.In) for condition in tree.expressions) and not tree.unpivot:
            raise UnsupportedQuery("PIVOT", PIVOT_WAY)
        return tree
    if not isinstance(tree, exp.Select | exp.SetOperation):
        raise UnsupportedQuery(tree.key.upper(), "only SELECT can be answered")
    return tree
