"""What a SELECT of a source sees: its relations, their columns, the types of expressions over them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from sqlglot import exp

from dpsql.errors import ArgumentError
from dpsql.source.catalog import Catalog
from dpsql.source.kernel import LONGEST_TEXT, MOST_TEXT, SHORTEST_CUT
from dpsql.source.model import RESERVED, UNIT, Column, fold, quoted, refuse
from dpsql.source.parse import render

Result = TypeVar("Result")

LONGEST_EXPRESSION = 100_000
"""Characters that a rewritten expression may have."""


@dataclass
class Item:
    """One relation in FROM: ``name`` is what the text calls it, ``alias`` what the generated SQL does."""

    name: str
    alias: str
    node: exp.Expression
    columns: list[Column]
    path: tuple[str, ...] = ()
    hidden: set[str] = field(default_factory=set)
    protected: bool = True
    one: bool = False  # no privacy unit has more than one row in it
    outer: bool = False  # a row may have none of its rows beside it
    short: bool = False  # every value of it has a bound on its size
    most: int = 1  # rows that a unit with as many in the protected table as are counted has in it
    unsafe: dict[str, str] = field(default_factory=dict)  # folded name -> why a column is not there, and what to write

    def __post_init__(self) -> None:
        """Index the columns by name; the first of a name wins."""
        self._positions = {fold(c.name): i for i, c in reversed(list(enumerate(self.columns)))}
        self._generated: dict[str, Column] = {}

    def leave_out(self, column: Column, why: str) -> None:
        """Take a column away; ``why`` is said where it is named."""
        self.unsafe[fold(column.name)] = why
        self.columns = [one for one in self.columns if one is not column]
        self.__post_init__()

    def column(self, name: str) -> Column | None:
        """Return the column of this name."""
        position = self._positions.get(fold(name))
        return None if position is None else self.columns[position]


    def generated(self, ref: str) -> Column | None:
        """Return the column that the generated SQL calls so."""
        if len(self._generated) < len(self.columns):
            self._generated = {c.ref: c for c in self.columns}
        return self._generated.get(ref)


class TextsTooLongError(Exception):
    """All texts of a source together are too long, and may be cut shorter."""


@dataclass
class Texts:
    """How long all texts that a source computes for one row may be together, by their bounds.

    Parameters
    ----------
    longest : int
        Characters of one text.
    shortens : bool
        Whether the pass is begun again with shorter ones where these are too long together.
    """

    longest: int = LONGEST_TEXT
    shortens: bool = False
    left: int = MOST_TEXT

    @classmethod
    def public(cls) -> Texts:
        """Return what bounds expressions over public values alone: the room that they take is nobody's."""
        return cls(left=MOST_TEXT << 6)

    def shorter(self) -> Texts:
        """Return what another pass begins with."""
        longest = max(self.longest // 2, SHORTEST_CUT)
        return Texts(longest, longest > SHORTEST_CUT)

    def take(self, characters: int, construct: str, node: exp.Expression, where: str) -> None:
        """Note a text of at most so many characters; refuse it where the sum becomes too large.

        Raises
        ------
        TextsTooLongError
            Shorter ones may be enough.
        UnsupportedQuery
        """
        self.left -= characters
        if self.left < 0:
            if self.shortens:
                raise TextsTooLongError
            advice = f"its texts could have more than {MOST_TEXT} characters a row; compute fewer or shorter ones"
            refuse(construct, advice, node, where)


def shortening(run: Callable[[Texts], Result]) -> Result:
    """Return what a pass returns, begun again with shorter texts as long as all of them together are too long."""
    texts = Texts(shortens=True)
    while True:
        try:
            return run(texts)
        except TextsTooLongError:
            texts = texts.shorter()


@dataclass
class Scope:
    """The relations that a SELECT sees, and the catalog that knows types."""

    catalog: Catalog
    items: list[Item]
    homes: list[tuple[str, str]]
    where: str = ""
    texts: Texts = field(default_factory=lambda: Texts())

    def resolve(self, node: exp.Column) -> tuple[Item, Column, list[str]]:
        """Return the relation and the column that a name means, and the struct fields that follow it."""
        parts = [part.name for part in node.parts]
        for length in range(min(len(parts) - 1, 3), 0, -1):
            prefix = tuple(fold(p) for p in parts[:length])
            for item in self.items:
                matches = fold(item.name) == prefix[0] if length == 1 else item.path[-length:] == prefix
                if matches and (column := item.column(parts[length])):
                    return item, column, parts[length + 1 :]
        matching = [
            (item, c) for item in self.items if fold(parts[0]) not in item.hidden and (c := item.column(parts[0])) is not None
        ]
        if len(matching) > 1:
            refuse(f"column {parts[0]!r}", "several relations have it; write relation.column", node, self.where)
        if not matching:
            for item in self.items:
                for part in parts:
                    if (advice := item.unsafe.get(fold(part))) is not None:
                        refuse(f"column {part!r}", advice, node, self.where)
            names = [c.name for item in self.items for c in item.columns if not fold(c.name).startswith(RESERVED)]
            raise ArgumentError(
                "source",
                ".".join(parts),
                f"no such column{self.where}; there are {names!r} (a name given with AS in the same SELECT can't be used there)",
            )
        return (*matching[0], parts[1:])

    def column_type(self, column: exp.Column) -> str | None:
        """Return the type of a column in generated names, None of one that is not there."""
        if column.name == UNIT:
            return "BLOB"
        generated = (item.generated(column.name) for item in self.items if item.alias == column.table)
        return next((c.sql_type for c in generated if c is not None), None)

    def type_of(self, node: exp.Expression) -> str:
        """Return the type that DuckDB gives an expression in generated names. Binds over a relation without rows."""
        if isinstance(node, exp.Column) and (known := self.column_type(node)) is not None:
            return known
        needed: dict[str, dict[str, str]] = {}
        for column in node.find_all(exp.Column):
            needed.setdefault(column.table, {})[column.name] = self.column_type(column) or ""
        relations = ", ".join(empty_relation(list(columns.items()), alias) for alias, columns in needed.items())
        written = render(node)
        if len(written) > LONGEST_EXPRESSION:  # a guard repeats its argument, so nested calls grow fast
            refuse("an expression", "nested too deeply: give an inner part a name in a subquery", node, self.where)
        text = f"SELECT {written} AS x" + (f" FROM {relations}" if relations else "")  # noqa: S608 -- rendered tree
        return self.catalog.describe(text)[0].sql_type


def empty_relation(columns: Sequence[tuple[str, str]], alias: str) -> str:
    """Return a relation with columns of these names and types and no tie to any table, for binding."""
    listed = ", ".join(f"CAST(NULL AS {kind}) AS {quoted(name)}" for name, kind in columns)
    return f"(SELECT {listed}) AS {quoted(alias)}"


def with_relations(
    select: exp.Select, leaves: Mapping[str, Sequence[tuple[str, str]]], make: Callable[[Sequence[tuple[str, str]], str], str]
) -> exp.Select:
    """Return a generated SELECT with each table replaced by what ``make`` makes of its columns (those that are used) and alias."""
    tree = select.copy()
    used: dict[str, set[str]] = {}
    for column in tree.find_all(exp.Column):
        used.setdefault(column.table, set()).add(column.name)
    for node in list(tree.find_all(exp.Table)):
        everywhere = used.get("", set())
        names = used.get(node.alias, set()) | everywhere
        columns = [c for c in leaves[node.alias] if c[0] in names] or list(leaves[node.alias])[:1]
        node.replace(exp.Var(this=make(columns, node.alias)))
    return tree
