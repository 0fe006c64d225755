"""The values of group keys, evaluated on every combination of the values that their columns can have.

Privacy: none; public declarations and the text of the query alone. No table is read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

import duckdb
from sqlglot import exp

from dpsql.algebra.function_rules import digits_of
from dpsql.algebra.functions import TRUTH, called
from dpsql.algebra.ranges import UNKNOWN, Range
from dpsql.domains import sqltypes
from dpsql.domains.attributes import OTHER_LABEL
from dpsql.errors import DpsqlError
from dpsql.queries import condition_lists
from dpsql.queries.bounds import Known, extent, narrowed
from dpsql.queries.combinations import Combinations, Listed
from dpsql.queries.declared import range_of_type
from dpsql.queries.grains import grain_of, grain_of_part, may_be_null, searched
from dpsql.queries.names import operands
from dpsql.queries.naming import canonical, qualify
from dpsql.queries.narrowing import is_between
from dpsql.queries.universes import GRAINS, Universe, listing, step_universe
from dpsql.source.catalog import Catalog
from dpsql.source.expressions import Rewriter
from dpsql.source.functions import caught
from dpsql.source.kernel import is_number
from dpsql.source.model import Column, identifier, literal, quoted
from dpsql.source.parse import render
from dpsql.source.scope import Item, Scope, Texts
from dpsql.source.total import is_total

Universes = Callable[[exp.Column], Universe | None]
_ALIAS = "__dp_g"
_IN_KEY, _IS_ATOM = "dpsql_in_key", "atom"
"""Mark on a column of WHERE that stands in a key, and what it says where it is the name of an atom."""
_BOOLEAN = (
    exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Is, exp.Between, exp.In, exp.Like,
    exp.ILike,
)


@dataclass(frozen=True)
class Groups:
    """The public groups of a query.

    Parameters
    ----------
    sql : str
        A SELECT of every combination of keys that is possible, as columns ``k0``, ``k1``, ..., each once. It reads no table and can
        stand in brackets after FROM.
    types : tuple of str
        Of the keys, as DuckDB spells them: those of the keys of the rows.
    count : int
        Number of groups.
    reason : str
        Where there are no public groups: why not; then ``sql`` is empty.
    other : tuple of int
        Which keys are texts whose rows with values that are not listed are in the group `OTHER_LABEL`.
    lost : tuple of str
        Columns with values that are not listed, whose rows may be in no group.
    strays : tuple of str
        Columns whose rows may have values besides those that were declared: they may be in no group either.
    """

    sql: str
    types: tuple[str, ...] = ()
    count: int = 0
    reason: str = ""
    other: tuple[int, ...] = ()
    lost: tuple[str, ...] = ()
    strays: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return not self.reason


class NotListed(Exception):
    """A key has values that are not known; the text says of what."""


@dataclass
class _Atom:
    """A column of the list that keys are evaluated on: a column of the rows, or a part of a key."""

    name: str
    sql_type: str
    sql: str
    count: int


@dataclass
class KeyValues:
    """One call of `public_groups`."""

    cursor: duckdb.DuckDBPyConnection
    known_values: Universes
    condition: exp.Expression | None
    most: int
    together: tuple[Combinations, ...] = ()
    bare: Universes | None = None
    atoms: dict[str, _Atom] = field(default_factory=dict)
    universes: dict[str, Universe] = field(default_factory=dict)
    known: Known = field(default_factory=lambda: Known(lambda column: None))
    keys: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        """Open the catalog."""
        self.catalog = Catalog(self.cursor)

    def groups(self, keys: list[exp.Expression]) -> Groups:
        """Return the groups; see :func:`public_groups`."""
        # one column has one name from here on
        qualify([*keys, *([self.condition] if self.condition is not None else [])])
        for key in keys:
            for column in key.find_all(exp.Column):
                self.universe(column)
        self.keys = frozenset(canonical(key) for key in keys if not isinstance(key, exp.Column))
        # values that WHERE lets through: bounds of it can make a list finite
        self.known = narrowed(self.condition, self._range)
        self._columns(keys)
        # keys are functions of atoms now, each of which has its values in a list
        replaced = [self._replaced(key) for key in keys]
        listed = [self._total(key) for key in replaced]
        # which atoms each key depends on: keys that share one have to be listed together
        sets = [_names(key) for key in replaced]
        with_other = tuple(i for i, key in enumerate(keys) if self._has_other(key))
        listed = [
            text if isinstance(key, exp.Column) else self._without_label(key, text, names, shown=i in with_other)
            for i, (key, text, names) in enumerate(zip(keys, listed, sets, strict=True))
        ]
        combined = self._combined()
        filters = [*self._filters(), *combined]
        for linked, _ in combined:
            sets = [columns | (linked & frozenset().union(*sets)) if columns & linked else columns for columns in sets]
        parts = []
        for together in self._components(sets):
            names = sorted(frozenset().union(*(sets[i] for i in together)))
            parts.append((together, self._select([(i, listed[i]) for i in together], names, filters)))
        # counted before anything is listed: the product may be far too many
        total = 1
        for _, text in parts:
            total *= self._count(text)
            if total > self.most:
                raise NotListed(f"the keys have more than {self.most} combinations")
        tables = " CROSS JOIN ".join(f"({text}) AS {quoted(f'{_ALIAS}{n}')}" for n, (_, text) in enumerate(parts))
        order = ", ".join(f"k{i}" for i in range(len(keys)))
        sql = f"SELECT {order} FROM {tables}"  # noqa: S608 -- generated
        types = [d.sql_type for d in self.catalog.describe(sql)]
        shared = [canonical(column) for key in keys for column in {canonical(c): c for c in self._unlisted(key)}.values()]
        lost = {
            column.name: None for i, key in enumerate(keys) for column in key.find_all(exp.Column)
            if self.universe(column).open and not self._tested(column)
            and (i not in with_other or (key is not column and shared.count(canonical(column)) > 1))
        }
        # groups are public, so rows in none of them are said, and never looked for
        strays = {column.name: None for key in keys for column in key.find_all(exp.Column) if self._strays(column)}
        return Groups(sql, tuple(types), total, other=with_other, lost=tuple(lost), strays=tuple(strays))

    # -- columns --------------------------------------------------------------------------------------------------------------

    def universe(self, column: exp.Column) -> Universe:
        """Return what is known of a column."""
        name = canonical(column)
        if name not in self.universes:
            universe = self.known_values(column)
            if universe is None:
                raise _unknown(column)
            self.universes[name] = _with_units(universe)
        return self.universes[name]

    def _outline(self, column: exp.Column) -> Universe:
        """Return the type and the bounds of a column."""
        if canonical(column) in self.universes or self.bare is None:
            return self.universe(column)
        universe = self.bare(column)
        if universe is None:
            raise _unknown(column)
        return _with_units(universe)

    def _range(self, column: exp.Column) -> Range | None:
        try:
            return self._outline(column).range
        except NotListed:
            return None

    def _of_type(self, column: exp.Column) -> Range:
        return range_of_type(self._outline(column).sql_type)

    def _columns(self, keys: Sequence[exp.Expression]) -> None:
        """List the columns that have a list of values, and the timestamps of which keys see whole units only."""
        for name, universe in list(self.universes.items()):
            nodes = [c for key in keys for c in key.find_all(exp.Column) if canonical(c) == name]
            # values of WHERE alone are not listed: it filters, and no group is made of it
            if not nodes:  # of WHERE alone
                continue
            limited = replace(universe, range=extent(nodes[0], self.known))
            if universe.sql_type == "TIMESTAMP" and is_between(self.condition, nodes[0], partial(extent, known=self._of_type)):
                limited = replace(limited, nullable=False)
            values = listing(limited, "v")
            if values is None and universe.sql_type == "TIMESTAMP":
                grains = [grain_of(node) for node in nodes]
                if all(grains):
                    values = listing(limited, "v", grain=min((g for g in grains if g), key=lambda g: GRAINS[g]))
            if values is not None:
                self._add(name, universe.sql_type, *values)

    def _add(self, key: str, sql_type: str, sql: str, count: int) -> _Atom:
        if key not in self.atoms:
            self.atoms[key] = _Atom(f"v{len(self.atoms)}", sql_type, sql, count)
        return self.atoms[key]

    # -- keys over listed values --------------------------------------------------------------------------------------------------

    def _replaced(self, node: exp.Expression) -> exp.Expression:
        """Return an expression over atoms.

        Raises
        ------
        NotListed
        """
        if node.meta.get(_IN_KEY) == _IS_ATOM:
            return node.copy()
        if isinstance(node, exp.Column):
            atom = self.atoms.get(canonical(node)) or self._named(node)
            if atom is None:
                raise NotListed(f"the values of column {node.name!r} are not listed; declare its categories or narrow bounds")
            return _reference(atom)
        if isinstance(node, exp.Star | exp.Query | exp.Window | exp.Subquery):
            raise NotListed("a key depends on other rows")
        try:
            out = node.copy()
            for child, atom_of in [(c, self._replaced(c)) for c in operands(out)]:
                child.replace(atom_of)
        except NotListed:
            return self._part(node)
        # of too many values together what is made of them may have few: a condition, a number of years
        if self._combinations(_names(out)) > self.most:
            with suppress(NotListed):
                return self._part(node)
        return out

    def _part(self, node: exp.Expression) -> exp.Expression:
        """Return a part of a key, whose columns have no lists, as a column that lists the part's own values."""
        key = canonical(node)
        if key in self.atoms:
            return _reference(self.atoms[key])
        named = self._named(node)
        if named is not None:
            return _reference(named)
        nullable = may_be_null(node, lambda column: self.universe(column).nullable)
        function = called(node)
        # a condition has two values, and NULL where a part of it may be NULL
        if isinstance(node, _BOOLEAN) or (function is not None and function.range is TRUTH):
            self.type_of(node)  # checked like every part
            values = "[true, false, NULL]" if nullable and not _of_null(node) else "[true, false]"
            return _reference(self._add(key, "BOOLEAN", f"SELECT system.main.unnest({values}) AS v", values.count(",") + 1))
        bounds = extent(node, self.known)
        # a number rounded to digits, between bounds, is a grid
        digits = digits_of(node.expressions) if function is not None and function.grid else 0
        if bounds.finite and (bounds.whole or digits > 0) and bounds.sort in ("number", "integer", "date"):
            sql_type = self.type_of(node)
            if sql_type == "DATE":
                listed = listing(Universe("DATE", None, bounds, nullable), "v")
            elif is_number(sql_type):
                listed = step_universe(sql_type, bounds.lower, bounds.upper, digits, nullable=nullable)
            else:
                listed = None
            if listed is not None:
                return _reference(self._add(key, sql_type, *listed))
        # the beginnings of units between two dates
        if function is not None and function.name == "date_trunc" and bounds.finite and bounds.sort == "timestamp":
            sql_type = self.type_of(node)
            listed = self._truncations(node.expressions[0].name, sql_type, Universe("TIMESTAMP", None, bounds, nullable))
            if listed is not None:
                return _reference(self._add(key, sql_type, *listed))
        raise NotListed(f"the values of {render(node)} are not known without the data")

    def _named(self, node: exp.Expression) -> _Atom | None:
        """List the values that WHERE leaves of a part of a key, by name; None where it names none."""
        values = condition_lists.left_by(self.condition, node)
        if values is None:
            return None
        sql_type = self.universe(node).sql_type if isinstance(node, exp.Column) else self.type_of(node)
        listed = condition_lists.select_of(values, sql_type)
        return None if listed is None else self._add(canonical(node), sql_type, listed, len(values))

    def _truncations(self, unit: str, sql_type: str, moments: Universe) -> tuple[str, int] | None:
        """Return a SELECT of what truncation makes of moments between two bounds, and how many there are."""
        grain = grain_of_part(unit)
        steps = None if grain is None else listing(moments, "v", grain=grain)
        if steps is None or sql_type not in ("DATE", "TIMESTAMP"):
            return None
        text = f"SELECT DISTINCT CAST(system.main.date_trunc({literal(unit)}, v) AS {sql_type}) AS v FROM ({steps[0]})"  # noqa: S608 -- quoted
        return text, self._count(text)

    def type_of(self, node: exp.Expression) -> str:
        """Return the type of a part over the columns of the rows; what a source may not compute is refused."""
        names = list(self.universes)
        tree = node.copy()
        called = {name: f"c{i}" for i, name in enumerate(names)}
        holder = exp.Paren(this=tree)
        for column in list(holder.find_all(exp.Column)):
            column.replace(exp.column(identifier(called[canonical(column)])))
        scope = self._scope([(called[name], self.universes[name].sql_type) for name in names])
        return scope.type_of(Rewriter(scope)(holder.this))

    def _scope(self, columns: Sequence[tuple[str, str]]) -> Scope:
        relation = exp.Table(this=identifier(_ALIAS), alias=exp.TableAlias(this=identifier(_ALIAS)))
        atoms = [Column(n, n, t, None) for n, t in columns]
        return Scope(self.catalog, [Item(_ALIAS, _ALIAS, relation, atoms)], [], texts=Texts.public())

    def _total(self, node: exp.Expression) -> str:
        """Return an expression over atoms as the SQL that runs: total, like that of a source."""
        scope = self._scope([(atom.name, atom.sql_type) for atom in self.atoms.values()])
        total = Rewriter(scope)(node)
        return render(total) if is_total(total) else caught(render(total))

    def _filters(self) -> list[tuple[frozenset[str], str]]:
        """Return the parts of WHERE that listed columns alone decide, with the atoms in them."""
        out = []
        for part in self.condition.flatten() if isinstance(self.condition, exp.And) else [self.condition]:
            if part is None or any(True for _ in part.find_all(exp.Query, exp.Window)):
                continue
            columns = list(part.find_all(exp.Column))
            # what stands in it of a key that is listed as a whole has that list's values
            apart, over = self._over_parts(searched(part.copy()))
            if not columns or any(self._coarse(column) for column in apart):
                continue
            try:
                tree = self._replaced(over)
                text = self._total(tree)
                for column in columns if not self._decides(part) else []:
                    if self.universe(column).other:  # what is true of values that are not listed is not known
                        text += f" OR {quoted(_ALIAS, self.atoms[canonical(column)].name)} = {literal(OTHER_LABEL)}"
                out.append((_names(tree), text))
            except (DpsqlError, NotListed):
                continue
        return out

    def _over_parts(self, tree: exp.Expression) -> tuple[list[exp.Column], exp.Expression]:
        """Return a condition with listed parts of keys, which are no columns, as atoms, and the columns that stand beside these.

        Beside neither stand those in a key as a whole: moments of one unit make one value of it.
        """
        holder = exp.Paren(this=tree)
        for node in list(holder.walk()) if self.keys else ():
            name = "" if isinstance(node, exp.Column | exp.Literal) or node is holder else canonical(node)
            if name in self.atoms:
                reference = _reference(self.atoms[name])
                reference.meta[_IN_KEY] = _IS_ATOM
                node.replace(reference)
            elif name in self.keys:
                for column in node.find_all(exp.Column):
                    column.meta.setdefault(_IN_KEY, "")
        return [column for column in holder.find_all(exp.Column) if _IN_KEY not in column.meta], holder.this

    def _combined(self) -> list[tuple[frozenset[str], str]]:
        """Return the conditions that values which stand together in public tables do so in the list, with the atoms in them."""
        out = []
        for table in self.together:
            atoms = [self.atoms[name] for name in table.columns if name in self.atoms]
            # a column that is listed as a part of a key has no atom of its own to compare
            if len(atoms) < len(table.columns) or any(atom.sql_type == "TIMESTAMP" for atom in atoms):
                continue
            pairs = zip(atoms, table.columns, strict=True)
            text = table.condition([Listed(quoted(_ALIAS, a.name), a.sql_type, self._declared(name)) for a, name in pairs])
            if text is not None:
                out.append((frozenset(atom.name for atom in atoms), text))
        return out

    def _declared(self, column: str) -> frozenset[str] | None:
        """Return the values of a column in whose list `OTHER_LABEL` stands for all others; None of other columns."""
        universe = self.universes[column]
        return frozenset(universe.values or ()) if universe.other else None

    def _has_other(self, key: exp.Expression) -> bool:
        """Whether rows of a key whose value is not listed are the group `OTHER_LABEL`: a text of a column that has other values."""
        if isinstance(key, exp.Column):
            return self.universe(key).other
        return bool(self._unlisted(key)) and sqltypes.parse(self.type_of(key)).family == "text"

    def _unlisted(self, key: exp.Expression) -> list[exp.Column]:
        """Return the columns whose other values make a key something that `OTHER_LABEL` in their place does not."""
        return [column for column in key.find_all(exp.Column) if self.universe(column).other and not self._tested(column)]

    def _strays(self, column: exp.Column) -> bool:
        """Whether rows with other values than the declared ones may be in no group: neither the key nor WHERE compares them."""
        universe = self.universe(column)
        if not universe.strays or column.find_ancestor(exp.Predicate) is not None:  # true or false, as others are
            return False
        if universe.values is not None:
            conditions = self.condition.flatten() if isinstance(self.condition, exp.And) else [self.condition]
            own = canonical(column)
            same = [part for part in conditions if part and isinstance(part.this, exp.Column) and canonical(part.this) == own]
            return not any(self._decides(part) for part in same)
        # without a list: whether the condition itself lets nothing pass beyond the declared bounds
        asked = extent(column, narrowed(self.condition, self._of_type))
        return not universe.range.lower <= asked.lower <= asked.upper <= universe.range.upper

    def _tested(self, column: exp.Column) -> bool:
        """Whether a column is compared with listed values alone where it stands: all other values are alike there."""
        return isinstance(column.parent, exp.EQ | exp.In) and column.parent.this is column and self._decides(column.parent)

    def _without_label(self, key: exp.Expression, text: str, names: frozenset[str], *, shown: bool) -> str:
        """Return a key over atoms, of these names, that is not computed of `OTHER_LABEL`, which is no value of the rows."""
        columns = dict.fromkeys(canonical(column) for column in self._unlisted(key))
        atoms = [self.atoms[column].name for column in columns if column in self.atoms]
        labelled = " OR ".join(f"{quoted(_ALIAS, name)} = {literal(OTHER_LABEL)}" for name in atoms if name in names)
        if not labelled:
            return text
        return f"CASE WHEN {labelled} THEN {literal(OTHER_LABEL) if shown else 'NULL'} ELSE {text} END"

    def _decides(self, part: exp.Expression) -> bool:
        """Whether a condition is true of listed values alone: it compares a column with some of them."""
        if not isinstance(part, exp.EQ | exp.In) or not isinstance(part.this, exp.Column):
            return False
        values = self.universe(part.this).values or ()
        constants = part.expressions if isinstance(part, exp.In) else [part.expression]
        return all(isinstance(value, exp.Literal) and value.is_string and value.name in values for value in constants)

    def _coarse(self, column: exp.Column) -> bool:
        """Whether a column of WHERE has no list of its exact values."""
        name = canonical(column)
        return name not in self.atoms or self.universes[name].sql_type == "TIMESTAMP"

    # -- the list -----------------------------------------------------------------------------------------------------------------

    def _components(self, sets: Sequence[frozenset[str]]) -> list[list[int]]:
        """Return the keys that share columns, together; each on its own where their combinations are too many."""
        groups: list[tuple[list[int], frozenset[str]]] = []
        for i, names in enumerate(sets):
            joined, rest = ([i], names), []
            # a key that shares columns with two groups joins them
            for group in groups:
                if group[1] & joined[1]:
                    joined = (group[0] + joined[0], group[1] | joined[1])
                else:
                    rest.append(group)
            groups = [*rest, joined]
        out: list[list[int]] = []
        for together, names in groups:
            # apart, they have combinations that cannot be; that is allowed, and the groups are empty
            few = self._combinations(names) <= self.most
            out += [together] if few else [[i] for i in together]
        return out

    def _combinations(self, names: frozenset[str]) -> int:
        return math.prod(atom.count for atom in self.atoms.values() if atom.name in names)

    def _select(self, keys: Sequence[tuple[int, str]], names: Sequence[str], filters: Sequence[tuple[frozenset[str], str]]) -> str:
        """Return the SELECT of the values that some keys have together."""
        if self._combinations(frozenset(names)) > self.most:
            raise NotListed(f"a key's columns have more than {self.most} combinations of values")
        by_name = {atom.name: atom for atom in self.atoms.values()}
        crossed = " CROSS JOIN ".join(f"({by_name[n].sql}) AS {quoted('t' + n)}({quoted(n)})" for n in names)
        columns = ", ".join(f'"{n}"' for n in names)
        # The atoms stand under the one alias that the total expressions name.
        inner = f"(SELECT {columns} FROM {crossed})" if names else "(SELECT 1 AS one)"  # noqa: S608 -- generated
        kept = [text for used, text in filters if used <= set(names)]
        where = f" WHERE {' AND '.join(f'({text})' for text in kept)}" if kept else ""
        return f"SELECT DISTINCT {', '.join(f'{text} AS k{i}' for i, text in keys)} FROM {inner} AS {quoted(_ALIAS)}{where}"  # noqa: S608 -- generated

    def _count(self, text: str) -> int:
        row = self.cursor.execute(f"SELECT system.main.count(*) FROM ({text})").fetchone()  # noqa: S608 -- generated
        return int(row[0]) if row else 0


def _unknown(column: exp.Column) -> NotListed:
    return NotListed(f"nothing is known of column {column.name!r}; declare it")


def _with_units(known: Universe) -> Universe:
    """Return a universe whose bounds have the units of its type, even where there are no bounds."""
    return replace(known, range=range_of_type(known.sql_type)) if known.range == UNKNOWN else known


def _names(tree: exp.Expression) -> frozenset[str]:
    """Return the names of the atoms that an expression over atoms depends on."""
    return frozenset(column.name for column in tree.find_all(exp.Column))


def _reference(atom: _Atom) -> exp.Expression:
    return exp.column(identifier(atom.name))


def _of_null(node: exp.Expression) -> bool:
    return isinstance(node, exp.Is | exp.NullSafeEQ | exp.NullSafeNEQ)
