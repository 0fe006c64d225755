"""Rules across linked tables: boolean expressions over the columns of a row and of the rows above it.

They are read as `dpsql.rules.grammar` reads rules of one table; a column of a table above is written as table.column. To be
evaluated they become rules of one row again, over the columns of the row and, behind them, those of the rows above. A rule may look
at rows above alone: only those of which it is not false have rows in the table.

Privacy: none; rules are public, and are evaluated on synthetic rows alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

from sqlglot import exp

from dpsql.domains.attributes import Domain
from dpsql.errors import ArgumentError
from dpsql.rules.grammar import Rule, render, tree_of
from dpsql.text.names import fold

Column = tuple[str | None, str]
"""A table above and its column; None: a column of the row itself."""


@dataclass(frozen=True)
class Across:
    """A rule over columns of rows above a row, and of the row itself or not.

    Parameters
    ----------
    text : str
        Canonical SQL: names spelled and quoted as the tables have them.
    columns : tuple of (str or None, str)
        Table and column, in the order in which they occur; None: the row's own.
    """

    text: str
    columns: tuple[Column, ...]

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables above that it names."""
        return tuple(dict.fromkeys(table for table, _ in self.columns if table is not None))

    def shown(self) -> list[str]:
        """Return its columns for reading."""
        return [name if table is None else f"{table}.{name}" for table, name in self.columns]

    def flat(self, names: Mapping[Column, str]) -> Rule:
        """Return the rule over columns of one row."""
        tree = tree_of(self.text)
        for column in list(tree.find_all(exp.Column)):
            column.set("this", exp.to_identifier(names[_place(column)], quoted=True))
            column.set("table", None)
        return Rule(render(tree), tuple(dict.fromkeys(names[place] for place in self.columns)))


def read(text: str, own: tuple[str, Sequence[str]], above: Mapping[str, Sequence[str]]) -> Rule | Across:
    """Read and check a rule of a table that may name columns of those above it.

    Parameters
    ----------
    text : str
        As for `dpsql.rules.grammar.read`. A name without a table is the table's own column, or else that of the nearest table
        above that has it.
    own : (str, sequence of str)
        The table's name and columns.
    above : mapping of str to sequence of str
        Names and columns of the tables above, the nearest one first.

    Raises
    ------
    ArgumentError
        It is no rule, or names a table or column that is not there.

    Examples
    --------
    >>> read("visit_at >= born", ("visits", ["visit_at"]), {"patients": ["born"]}).text
    '"visit_at" >= "patients"."born"'
    """
    tree = tree_of(text)
    tables = {fold(name): name for name in above}
    used: dict[Column, None] = {}
    for column in list(tree.find_all(exp.Column, bfs=False)):
        table, name = _place(column)
        named = None if table is None else tables.get(fold(table))
        # A name without a table is looked for among the own columns first, then above, the nearest table first.
        places: list[str | None] = [None, *above] if table is None else [named]
        if table is not None and named is None and fold(table) != fold(own[0]):
            _refuse(text, f"{table!r} is neither {own[0]!r} nor a table above it, which are {list(above)!r}")
        chosen = next((at for at in (_spelled(place, name, own[1], above) for place in places) if at is not None), None)
        if chosen is None:
            known = [*own[1], *(f"{parent}.{label}" for parent, columns in above.items() for label in columns)]
            _refuse(text, f"{name!r} is not a column of the source or of a table above it; there are {known[:40]!r}")
        column.set("this", exp.to_identifier(chosen[1], quoted=True))
        column.set("table", None if chosen[0] is None else exp.to_identifier(chosen[0], quoted=True))
        used[chosen] = None
    if not used:
        _refuse(text, "looks at no column; write what holds for every row, e.g. 'visit_at >= date_of_birth'")
    if all(table is None for table, _ in used):
        return Rule(render(tree), tuple(name for _, name in used))
    return Across(render(tree), tuple(used))


def is_across(text: str) -> bool:
    """Return whether a rule that was written down names a table; False where it is none."""
    try:
        return any(_place(column)[0] is not None for column in tree_of(text).find_all(exp.Column))
    except ArgumentError:
        return False


def stored(text: str) -> Across:
    """Return a rule that was written down: in the books or in a release; checked as in `read`.

    Raises
    ------
    ArgumentError
    """
    tree = tree_of(text)
    columns: dict[Column, None] = {}
    for column in list(tree.find_all(exp.Column, bfs=False)):
        table, name = _place(column)
        column.set("this", exp.to_identifier(name, quoted=True))
        column.set("table", None if table is None else exp.to_identifier(table, quoted=True))
        columns[table, name] = None
    if all(table is None for table, _ in columns):
        _refuse(text, "is no rule across tables")
    return Across(render(tree), tuple(columns))


@dataclass(frozen=True)
class Joined:
    """Rules across tables as rules of one row.

    Parameters
    ----------
    domain : Domain
        The row's own attributes, then those of rows above that a rule names.
    above : tuple of (str, int)
        Table and position there of each of the latter.
    rules : tuple of Rule
    """

    domain: Domain
    above: tuple[tuple[str, int], ...]
    rules: tuple[Rule, ...]


def joined(rules: Sequence[Across], own: Domain, above: Mapping[str, Domain]) -> Joined:
    """Return rules across tables as rules of one row; a KeyError where a domain lacks a column.

    Parameters
    ----------
    above : mapping of str to Domain
        By the names of the tables above.
    """
    used = {fold(name) for name in own.names}
    names: dict[Column, str] = {(None, name): name for name in own.names}
    added, places = [], []
    for table, name in dict.fromkeys(place for rule in rules for place in rule.columns):
        if table is None:
            if name not in own.names:
                raise KeyError(name)
            continue
        position = {known: at for at, known in enumerate(above[table].names)}[name]
        called = f"{table}.{name}"
        # A column of the own table may be called like that.
        while fold(called) in used:
            called += "_"
        used.add(fold(called))
        names[table, name] = called
        added.append(replace(above[table].attributes[position], name=called))
        places.append((table, position))
    return Joined(Domain((*own.attributes, *added)), tuple(places), tuple(rule.flat(names) for rule in rules))


def of_table(rule: Rule | Across, table: str | None) -> Across:
    """Return a rule of a table as one of the tables below it; None: as one of the table itself.

    Examples
    --------
    >>> of_table(Rule('"a" > 3', ("a",)), "t").text
    '"t"."a" > 3'
    """
    tree = tree_of(rule.text)
    columns: dict[Column, None] = {}
    for column in list(tree.find_all(exp.Column, bfs=False)):
        above, name = _place(column)
        if above is None and table is not None:
            above = table
            column.set("table", exp.to_identifier(table, quoted=True))
        columns[above, name] = None
    return Across(render(tree), tuple(columns))


def _place(column: exp.Column) -> Column:
    return (str(column.table) if column.args.get("table") is not None else None, str(column.name))


def _spelled(table: str | None, name: str, own: Sequence[str], above: Mapping[str, Sequence[str]]) -> Column | None:
    """Return a column of a table as it is spelled there; None where there is none."""
    columns = own if table is None else above[table]
    spelling = next((column for column in columns if fold(column) == fold(name)), None)
    return None if spelling is None else (table, spelling)


def _refuse(text: str, expected: str) -> NoReturn:
    raise ArgumentError("rule", text, expected)
