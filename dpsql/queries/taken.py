"""What a query is taken apart into: relations of the text, cores, the outer statement."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NoReturn, Protocol

from sqlglot import exp

from dpsql.queries.aggregates import Aggregate
from dpsql.source.model import RESERVED, refuse
from dpsql.source.parse import render

CORE = f"{RESERVED}core"
"""Beginning of the name of the relation that a core's answer is, in the outer statement."""
SHOWN = 20
"""Columns that a message lists."""
ADAPTIVE = (
    "it needs an answer about the rows before others of them are counted. Say adaptive := true (it is then a release of its own), "
    "or ask for it first, and write the number that it released into the text"
)
BESIDE = (
    "it is needed before the rows are counted. Write it as a scalar subquery, WHERE x > (SELECT avg(x) FROM ...), and say "
    "adaptive := true; or ask for it first, and write the number that it released into the text"
)


@dataclass(frozen=True)
class Leaf:
    """What is publicly known of a table or view that a text names. ``columns``: folded names, in order.

    ``units``: those that are the privacy unit; ``keys``: others that tell it, for rows with one value of them belong to one unit.
    """

    protected: bool
    columns: tuple[str, ...]
    units: frozenset[str] = frozenset()
    keys: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Relation:
    """What a relation of the text is: rows of people, an answer (or made of answers), or public; ``keys`` as of `Leaf`."""

    kind: Literal["rows", "answer", "public"]
    columns: tuple[str, ...] | None = None
    units: frozenset[str] = frozenset()
    keys: frozenset[str] = frozenset()

    @property
    def telling(self) -> frozenset[str]:
        """The columns of which rows with one value belong to one unit."""
        return self.units | self.keys


@dataclass
class Core:
    """One SELECT to be counted.

    Parameters
    ----------
    name : str
        Of the relation that stands for its answer: columns k0, k1, ... (keys), a0, a1, ... (aggregates), g0, ... (whether a key is
        left out of the grouping set).
    rows : sqlglot Select
        FROM, WHERE and WITH of its rows, with nothing selected.
    keys, aggregates
        Over the columns of these rows.
    sets : list of tuple of int
        Grouping sets: positions of keys.
    canonical : callable
        The text of an expression of it by which it is compared.
    """

    name: str
    rows: exp.Select
    keys: list[exp.Expression]
    aggregates: list[Aggregate]
    sets: list[tuple[int, ...]]
    canonical: Callable[[exp.Expression], str]
    units: frozenset[str] = frozenset()


@dataclass
class Query:
    """A query taken apart. ``public``: the tables that the outer statement reads besides answers."""

    outer: exp.Expression
    cores: list[Core]
    public: list[exp.Table]


class FirstAsked(Exception):
    """A scalar subquery over protected rows has to be answered before the rest can be asked.

    Attributes
    ----------
    node : sqlglot expression
        Where its number goes.
    text : str
        The subquery, with the CTEs that it uses.
    """

    def __init__(self, node: exp.Expression, ctes: Sequence[exp.CTE]) -> None:
        super().__init__()
        self.node = node
        inner = node.this.copy()
        if ctes:
            inner.set("with_", exp.With(expressions=[cte.copy() for cte in ctes]))
        self.text = render(inner)

    def refuse(self) -> NoReturn:
        """Say that it is not answered by itself."""
        refuse("a scalar subquery over protected rows", ADAPTIVE, self.node)


Known = Mapping[str, "Cte"]


@dataclass
class Cte:
    """A common table expression, what it is, and what was known where it stands."""

    node: exp.CTE
    relation: Relation
    known: Known


class Reader(Protocol):
    """Whoever finds out what the relations of a text are."""

    facts: Callable[[exp.Table], Leaf]

    def relation(self, node: exp.Expression, known: Known) -> Relation:
        """Return what a relation is; cores below it are taken out."""
        ...
