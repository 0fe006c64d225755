"""Values of the columns that CTEs and subqueries make, as far as they are known without the data.

Privacy: none; public declarations and the text of the query alone. No table is read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import duckdb
from sqlglot import exp

from dpsql.algebra.aggregates import COUNTS, PICKS, WINDOWS
from dpsql.algebra.ranges import UNKNOWN, Range, hull
from dpsql.domains.attributes import OTHER_LABEL
from dpsql.queries.bounds import extent
from dpsql.queries.columns import Relations
from dpsql.queries.groups import Universes, public_groups, type_over
from dpsql.queries.lineage import Constants, Leaf, Lineage, Made
from dpsql.queries.naming import canonical
from dpsql.queries.universes import Universe
from dpsql.source.parse import render
from dpsql.text.names import fold

LeafUniverse = Callable[[exp.Table, str], Universe | None]
"""A table and the name of a column -> what is known of its values; of a public table they may all be listed."""

_AROUND = exp.Filter | exp.Window | exp.IgnoreNulls | exp.RespectNulls
MOST_LISTED = 10_000
"""Values of a column of a subquery that are listed one by one."""


@dataclass
class InnerValues:
    """What is known of the values of the columns that the SELECTs of one query see.

    Parameters
    ----------
    cursor : DuckDB cursor
        No table is read on it.
    leaf : callable
        `LeafUniverse`.
    given : mapping of str to Range
        From `dpsql.queries.columns.given_bounds`.
    bare : callable, optional
        As ``leaf``, where the type and the bounds are all that is asked for: nothing is listed. None: ``leaf``.

    Examples
    --------
    ``public_groups(cursor, keys, InnerValues(cursor, leaf).universes(Lineage(select, names)), select.args.get("where"))``
    """

    cursor: duckdb.DuckDBPyConnection
    leaf: LeafUniverse
    given: dict[str, Range] = field(default_factory=dict)
    bare: LeafUniverse | None = None
    _found: dict[tuple[int, str, bool], Universe | None] = field(default_factory=dict, repr=False)
    _kept: list[Lineage] = field(default_factory=list, repr=False)

    def __post_init__(self) -> None:
        """Make the ranges of the same columns."""
        self.relations = Relations(self._leaf_range, self.given)

    def _leaf_range(self, table: exp.Table, name: str) -> Range | None:
        universe = (self.bare or self.leaf)(table, name)
        return None if universe is None else universe.range

    def universes(self, lineage: Lineage, *, bare: bool = False) -> Universes:
        """Return what is known of the columns that a SELECT sees, for `dpsql.queries.groups.public_groups`.

        ``bare``: of columns of tables the type and bounds alone.
        """
        self._kept.append(lineage)  # so that its id stays its own
        leaf = self.bare or self.leaf if bare else self.leaf

        def of(column: exp.Column) -> Universe | None:
            key = (id(lineage), canonical(column), leaf is not self.leaf)
            if key not in self._found:
                self._found[key] = None  # a column that is made of itself has no values
                self._found[key] = self._column(lineage, column, leaf)
            return self._found[key]

        return of

    def _column(self, lineage: Lineage, column: exp.Column, leaf: LeafUniverse) -> Universe | None:
        origin = lineage.origin(column)
        parts = [self._part(part, leaf) for part in origin or ()]
        universes = [p for p in parts if p is not None]
        # one source of which nothing is known, or of another type, leaves the whole unknown
        if not universes or len(universes) < len(parts) or any(f.sql_type != universes[0].sql_type for f in universes):
            return None
        values = [v for f in universes for v in f.values or ()]
        listed = all(f.values is not None for f in universes)
        relation = column.table or _relation(lineage.select, origin or ())
        return Universe(
            universes[0].sql_type,
            tuple(dict.fromkeys(values)) if listed else None,
            hull(universes[0].range, *(f.range for f in universes[1:])),
            any(f.nullable for f in universes) or _adds_null(lineage.select, relation),
            any(f.open for f in universes) and listed,
            any(f.strays for f in universes),
        )

    def _part(self, part: Leaf | Made | Constants, leaf: LeafUniverse) -> Universe | None:
        if isinstance(part, Leaf):
            return leaf(part.relation, part.name)
        return self._constants(part) if isinstance(part, Constants) else self._made(part)

    def _constants(self, part: Constants) -> Universe | None:
        """Return the values of a column of VALUES, in the type that DuckDB gives it."""
        rows = ", ".join(f"({render(value)})" for value in part.expressions)
        query = f"SELECT DISTINCT system.main.typeof(x), CAST(x AS VARCHAR) FROM (VALUES {rows}) AS t(x) ORDER BY ALL ASC"  # noqa: S608
        try:
            listed = self.cursor.execute(query).fetchall()
        except duckdb.Error:  # what is wrong with it is said where it is checked
            return None
        values = tuple(value for _, value in listed if value is not None)
        return Universe(listed[0][0], values, self.relations.range_of((part,)), nullable=len(values) < len(listed))

    def _made(self, part: Made) -> Universe | None:
        """Return the values of a column that a SELECT makes."""
        inside, node = part.inside, part.expression
        known, where = self.universes(inside), inside.select.args.get("where")
        bounds = extent(node, self.relations.known(inside))
        # what stands around a value without changing which values there are
        while isinstance(node, exp.Paren | _AROUND):
            node = node.this
        name = str(node.this).lower() if isinstance(node, exp.Anonymous) else node.key
        if name in PICKS:
            return self._one_of(part, node, name, bounds)
        if name in COUNTS:
            return Universe("BIGINT", None, bounds, nullable=False)
        handed_on: Universe | None = None
        # a column that is handed on has the values that it had; WHERE may leave fewer of them
        if isinstance(node, exp.Column):
            universe = known(node)
            if universe is None or where is None or (universe.values is None and not _is_compared(node, where)):
                return None if universe is None else replace(universe, range=bounds)
            handed_on = universe
        node, known, where = self._summarised(inside, node, known, where)
        bare = self.universes(inside, bare=True)  # of WHERE, which stands beside no summaries
        groups = public_groups(self.cursor, [node], known, where, MOST_LISTED, bare=bare)
        nullable = _adds_null(inside.select)
        # the list is computed by DuckDB from the public lists of what the expression is made of
        if groups:
            text = f"SELECT CAST(k0 AS VARCHAR) FROM ({groups.sql}) ORDER BY k0 ASC NULLS LAST"  # noqa: S608 -- generated
            values = [row[0] for row in self.cursor.execute(text).fetchall()]
            nullable |= None in values
            listed = tuple(v for v in values if v is not None and not (groups.other and v == OTHER_LABEL))
            return Universe(groups.types[0], listed, bounds, nullable, bool(groups.other or groups.lost), bool(groups.strays))
        if handed_on is not None:
            return replace(handed_on, range=bounds)
        sql_type = type_over(self.cursor, node, known)
        return None if sql_type is None else Universe(sql_type, None, bounds)

    def _summarised(
        self, inside: Lineage, node: exp.Expression, known: Universes, where: exp.Expression | None
    ) -> tuple[exp.Expression, Universes, exp.Expression | None]:
        """Return an expression with a column in the place of each aggregate, and what is known of these columns."""
        holder, stand_ins = exp.Paren(this=node.copy()), dict[str, Universe | None]()
        for call in list(holder.find_all(exp.Anonymous)):
            if str(call.this).lower() not in PICKS | COUNTS:
                continue
            outer: exp.Expression = call
            while isinstance(outer.parent, _AROUND) and outer.arg_key == "this":
                outer = outer.parent
            name = f"__dp_summary{len(stand_ins)}"
            stand_ins[name] = self._made(Made(inside, outer.copy()))
            outer.replace(exp.column(name))
        if not stand_ins:
            return node, known, where
        return holder.this, lambda column: stand_ins[column.name] if column.name in stand_ins else known(column), None

    def _one_of(self, part: Made, node: exp.Expression, name: str, bounds: Range) -> Universe | None:
        arguments = node.expressions if isinstance(node, exp.Anonymous) else [node.this]
        if not arguments or (name in WINDOWS and len(arguments) > 2):
            return None
        first = arguments[0].expressions[0] if isinstance(arguments[0], exp.Distinct) else arguments[0]
        universe = self._made(Made(part.inside, first))
        return None if universe is None else replace(universe, range=bounds if bounds != UNKNOWN else universe.range, nullable=True)


def _is_compared(column: exp.Column, where: exp.Expression) -> bool:
    """Return whether a condition may name the values of a column."""
    same = (other for other in where.find_all(exp.Column) if fold(other.name) == fold(column.name))
    return any(other.find_ancestor(exp.In, exp.EQ) is not None for other in same)


def _relation(select: exp.Select, origin: Sequence[Leaf | Made | Constants]) -> str:
    """Return the relation of a SELECT that is the one table that a column is of; nothing where it is of another or of several."""
    table = origin[0].relation if len(origin) == 1 else None
    start, joins = select.args.get("from_") or select.args.get("from"), select.args.get("joins") or []
    items = [one.this for one in (start, *joins) if one is not None]
    return next((str(item.alias_or_name) for item in items if item is table), "")


def _adds_null(select: exp.Select, relation: str = "") -> bool:
    """Return whether a SELECT can put NULLs beside values, of one relation or of any: outer joins, groups of several levels."""
    group = select.args.get("group")
    if group is not None and any(group.args.get(k) for k in ("rollup", "cube", "grouping_sets", "totals")):
        return True
    start, joins = select.args.get("from_") or select.args.get("from"), select.args.get("joins") or []
    names = [fold(one.this.alias_or_name) for one in (start, *joins) if one is not None]
    if not relation or names.count(fold(relation)) != 1:  # a name without its relation may be of any, or of two at once (USING)
        return any(join.side for join in joins)
    place = names.index(fold(relation))
    # RIGHT and FULL leave rows without those before it, LEFT and FULL without its own
    return any(
        join.side in (("LEFT", "FULL") if place == number else ("RIGHT", "FULL") if place < number else ())
        for number, join in enumerate(joins, 1)
    )
