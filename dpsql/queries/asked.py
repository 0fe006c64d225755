"""What one release of a query asks: columns of its row source by number, and the aggregates over them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from dpsql.queries.aggregates import Aggregate
from dpsql.queries.names import canonical
from dpsql.queries.taken import Core
from dpsql.source.model import fold, identifier
from dpsql.source.parse import render


@dataclass(frozen=True)
class Wanted:
    """An aggregate over numbered columns of a row source.

    Parameters
    ----------
    function : str
        As in `Aggregate`.
    arguments : tuple of int
        Positions of columns ``a``.
    condition : int or None
        Position of a column ``f``: only rows where it is true count.
    there : int or None
        Of 'count' with an argument: position of the column ``f`` that says whether the row counts (argument not NULL, condition
        true).
    text : str
        The aggregate, in one form for all spellings.
    """

    function: str
    arguments: tuple[int, ...]
    condition: int | None
    there: int | None
    quantiles: tuple[float, ...]
    listed: bool
    text: str


@dataclass(frozen=True)
class Asked:
    """What one release asks: one grouping set of a core.

    Parameters
    ----------
    sql : str
        The row source: columns k0, ... (keys), a0, ... (arguments), f0, ... (conditions).
    keys, arguments, conditions : tuple of expressions
        Over the columns of the rows.
    places : tuple of int
        Which keys of the core these are.
    wanted : tuple of Wanted
        One for each aggregate of the core.
    rows : str
        FROM and WHERE, in one form.
    key_texts, argument_texts, condition_texts : tuple of str
        In one form.
    stated : mapping
        Text of an argument -> (lower, upper) that its call states.
    written : Asked or None
        The same question in an earlier form, as the text has it at last: releases of before there was one form are found by it.
    """

    sql: str
    keys: tuple[exp.Expression, ...]
    arguments: tuple[exp.Expression, ...]
    conditions: tuple[exp.Expression, ...]
    places: tuple[int, ...]
    wanted: tuple[Wanted, ...]
    rows: str
    key_texts: tuple[str, ...]
    argument_texts: tuple[str, ...]
    condition_texts: tuple[str, ...]
    stated: Mapping[str, tuple[exp.Expression, ...]]
    source: exp.Select
    written: Asked | None = None

    def canonical(self) -> dict[str, Any]:
        """Return what identifies it, as plain lists and texts."""
        return {
            "rows": self.rows,
            "keys": list(self.key_texts),
            "arguments": list(self.argument_texts),
            "conditions": list(self.condition_texts),
            "aggregates": sorted(wanted.text for wanted in self.wanted),
        }


def asked(core: Core, places: Sequence[int], qualify: Callable[[exp.Table], bool] = lambda table: False) -> Asked:
    """Return what a grouping set of a core asks.

    Parameters
    ----------
    places : sequence of int
        Its keys.
    qualify : callable
        Writes database and schema into the name of a table, so that all spellings of one are the same question; returns whether the
        table is protected.
    """
    keys = [core.keys[place] for place in places]
    arguments = _Numbered(core)
    conditions = _Numbered(core)
    stated: dict[str, tuple[exp.Expression, ...]] = {}
    wanted: list[Wanted | None] = [None] * len(core.aggregates)
    counts = [place for place, a in enumerate(core.aggregates) if a.function == "count"]
    for place in [*(p for p in range(len(wanted)) if p not in counts), *counts]:  # a count can be had from a sum of the same
        wanted[place] = _wanted(core.aggregates[place], arguments, conditions, core, stated)
    rows = core.rows.copy()
    listed = [*_named("k", keys), *_named("a", arguments.nodes), *_named("f", conditions.nodes)]
    source = rows.copy()
    source.set("expressions", listed or [exp.alias_(exp.Literal.number(1), "one", quoted=True)])
    return Asked(
        sql=render(source),
        keys=tuple(keys),
        arguments=tuple(arguments.nodes),
        conditions=tuple(conditions.nodes),
        places=tuple(places),
        wanted=tuple(aggregate for aggregate in wanted if aggregate is not None),
        rows=_rows(core, qualify),
        key_texts=tuple(map(core.canonical, keys)),
        argument_texts=tuple(arguments.texts),
        condition_texts=tuple(conditions.texts),
        stated=stated,
        source=core.rows,
    )


def _rows(core: Core, qualify: Callable[[exp.Table], bool]) -> str:
    """Return FROM, WITH and WHERE in one form for all spellings of names, tables and brackets.

    The protected table's own database is left out: a question stays the same when its file is renamed or attached otherwise.
    """
    bare = core.rows.copy()
    where = bare.args.get("where")
    bare.set("where", None)
    bare.set("expressions", [exp.Literal.number(1)])
    ctes = {fold(cte.alias) for cte in bare.find_all(exp.CTE)}
    tables = [
        table
        for table in bare.find_all(exp.Table)
        if isinstance(table.this, exp.Identifier) and not (len(table.parts) == 1 and fold(table.name) in ctes)
    ]
    own = {table.catalog for table in tables if qualify(table)}
    for table in tables:
        if table.catalog in own:
            table.set("catalog", None)
    text = canonical(bare)
    return text if where is None else f"{text} WHERE {core.canonical(where.this)}"


class _Numbered:
    """Expressions by their text, each once."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.nodes: list[exp.Expression] = []
        self.texts: list[str] = []

    def place(self, node: exp.Expression) -> int:
        """Return the number of an expression, a new one where it was not there."""
        text = self.core.canonical(node)
        if text not in self.texts:
            self.texts.append(text)
            self.nodes.append(node)
        return self.texts.index(text)


def _wanted(
    aggregate: Aggregate, arguments: _Numbered, conditions: _Numbered, core: Core, stated: dict[str, tuple[exp.Expression, ...]]
) -> Wanted:
    condition = None if aggregate.condition is None else conditions.place(aggregate.condition)
    counted = None
    if aggregate.function == "count" and aggregate.arguments:
        not_null = exp.Not(this=exp.Is(this=exp.Paren(this=aggregate.arguments[0].copy()), expression=exp.Null()))
        both = not_null if aggregate.condition is None else exp.and_(exp.Paren(this=aggregate.condition.copy()), not_null)
        counted = conditions.place(both)
        places: tuple[int, ...] = ()
        text = core.canonical(aggregate.arguments[0])
        if text in arguments.texts:
            places = (arguments.texts.index(text),)
    else:
        places = tuple(arguments.place(node) for node in aggregate.arguments)
    if aggregate.bounds and aggregate.function != "count":  # how often a unit counts is bounded by rows
        stated[core.canonical(aggregate.arguments[0])] = aggregate.bounds
    return Wanted(
        aggregate.function, places, condition, counted, aggregate.quantiles, aggregate.listed, aggregate.key(core.canonical)
    )


def _named(letter: str, nodes: Sequence[exp.Expression]) -> list[exp.Expression]:
    return [exp.Alias(this=node.copy(), alias=identifier(f"{letter}{i}")) for i, node in enumerate(nodes)]
