"""Joins and EXISTS or IN of unit-local relations: rows of people meet rows of the same person, or public rows.

A join of two relations with people's rows has ``l.__dp_unit = r.__dp_unit`` in its condition, whatever else the text says; the text
has to say it too, in its own words. Where its words are ``=`` between units, rows without a unit (NULL) meet nobody, as the text
says; where they are IS NOT DISTINCT FROM, or a link, such rows are those of one unit, and meet each other. RIGHT and FULL joins
become a layer of their own, whose unit is that of the side that is there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import duckdb
from sqlglot import exp

from dpsql.algebra.pieces import call, paren
from dpsql.errors import ArgumentError
from dpsql.source.combining import same_key, windowed
from dpsql.source.expressions import Rewriter
from dpsql.source.keys import exact, one_equality
from dpsql.source.layers import Layer, Rows, comparable, compared, plain
from dpsql.source.leaves import View
from dpsql.source.limits import MOST_BY_ORDER, MOST_COUNTED, MOST_MET, cut, limit, looked_up, shorten
from dpsql.source.listing import Listing
from dpsql.source.model import UNIT, Column, fold, identifier, refuse
from dpsql.source.parse import render, used
from dpsql.source.present import keep_present
from dpsql.source.scope import Item, Scope
from dpsql.source.ways import is_leaf, without_parent

COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ)
MOST_RELATIONS = 12
"""Tables that a source may read, each reading counted."""
_SAME_UNIT = "the rows of two people may not meet; write ON a.{0} = b.{0} [AND ...] or USING ({0}), the privacy unit column"
_NO_UNIT = "rows of the public table that meet nobody would belong to no person; write protected LEFT JOIN public"


def conditions_of(node: exp.Expression) -> list[exp.Expression]:
    """Return the conditions that AND connects."""
    if isinstance(node, exp.Paren) and isinstance(node.this, exp.Paren | exp.And | exp.Or):
        return conditions_of(node.this)
    if isinstance(node, exp.Or):
        return _factored(node)
    return [*conditions_of(node.this), *conditions_of(node.expression)] if isinstance(node, exp.And) else [node]


def _factored(node: exp.Or) -> list[exp.Expression]:
    """Return ``a AND b OR a AND c`` as ``a`` and ``b OR c``, which is the same with NULLs as well: DuckDB joins on ``a``."""
    sides = [conditions_of(side) for side in node.flatten()]
    texts = [{render(part) for part in side} for side in sides]
    common = set.intersection(*texts)
    if not common:
        return [node]
    first = {render(part): part for part in sides[0]}
    shared = [part for text, part in first.items() if text in common]
    left = [[part.copy() for part in side if render(part) not in common] for side in sides]
    if not all(left):
        return shared
    return [*shared, exp.Paren(this=exp.or_(*(exp.Paren(this=exp.and_(*parts, copy=False)) for parts in left), copy=False))]


@dataclass
class Meets:
    """How often rows of two relations of people meet, by unique keys of tables with links; work, not privacy, rests on it.

    ``left_once``: a row on the right meets at most one on the left; ``right_once``: one on the left at most one on the right.
    """

    left_once: bool = False
    right_once: bool = False

    @property
    def linear(self) -> bool:
        """Whether there are no more pairs than rows on one of the sides, so that neither has to be limited before they meet."""
        return self.left_once or self.right_once

    @classmethod
    def of(cls, joins: Joins, item: Item, conditions: Sequence[exp.Expression], both: Scope, *, key: bool = False) -> Meets:
        """Return how often they meet under conditions; ``key``: whether the right side is a public table that has one row a key."""
        pairs = [pair for c in conditions if (pair := joins._linked(c, item, both)) is not None]
        pairs = [(left, right) for left, right in pairs if left.sql_type == right.sql_type]
        return cls(any(left.unique for left, _ in pairs), key or any(right.unique for _, right in pairs))

    def mark(self, rows: Rows, item: Item) -> None:
        """Note which keys are not unique any more once the relations are joined."""
        repeated = [*([] if self.right_once else rows.scope.items), *([] if self.left_once else [item])]
        for one in repeated:
            one.columns = [replace(column, unique=False) if column.unique else column for column in one.columns]


@dataclass
class Joins:
    """The joins of one SELECT."""

    analysis: Listing
    view: View

    def join(self, rows: Rows, join: exp.Join, rest: Sequence[exp.Expression]) -> Rows:
        """Return rows joined with one more relation.

        Parameters
        ----------
        rows : Rows
        join : sqlglot expression
        rest : sequence of expressions
            Conditions after WHERE, which may say that units are equal.
        """
        where = self.view.where
        side, kind = (str(join.args.get(k) or "").upper() for k in ("side", "kind"))
        name = f"{side} {kind} JOIN".replace("  ", " ").strip()
        if set(used(join)) - {"this", "on", "using", "side", "kind"} or kind not in ("", "INNER", "OUTER", "CROSS", "SEMI", "ANTI"):
            name = " ".join(str(join.args[k]).upper() for k in ("method", "side", "kind") if join.args.get(k))
            refuse(f"{name} JOIN".strip(), "only JOIN, LEFT, RIGHT, FULL, CROSS, SEMI and ANTI JOIN", join, where)
        item = self.analysis._item(join.this, self.view)  # one class in several files
        if len(self.analysis.leaves) > MOST_RELATIONS:
            refuse("JOIN", f"a source may read {MOST_RELATIONS} tables; make one of them of several", join, where)
        if item.name and any(fold(item.name) == fold(other.name) for other in rows.scope.items):
            refuse(f"{item.name!r}", "two relations have that name; give one another with AS", join, where)
        # USING and ON come to the same from here on; what says "same unit" is generated, and not written again
        using = [u.name for u in join.args.get("using") or []]
        on = self._using(rows.scope, item, using) if using else conditions_of(join.args["on"]) if join.args.get("on") else []
        if side and not on:
            refuse(name, "write ON or USING", join, where)
        self._allowed(rows, item, side, kind, name, join)
        both = replace(rows.scope, items=[*rows.scope.items, item])
        conditions = [c for c in on if not self._same_unit(c, rows.scope, item, both)]
        units = rows.unit is not None and item.protected
        linked_tables = bool(self.analysis.lineages)
        # conditions after WHERE say as much as those after ON where the join is an inner one
        pool = [c for c in rest if self._known(c, both)] if not side and kind in ("", "INNER", "CROSS") else []
        known = [*on, *pool]
        if units:
            linked = any(self._linked(c, item, both) for c in known)
            if not linked and not any(self._same_unit(c, rows.scope, item, both) for c in known):
                refuse(name, self._two_people(), join, where)
        # of a public table whose key is fixed, a row meets one row at most, so that a unit with one row keeps one
        key = [] if item.protected else self._key(join, item, [*conditions, *pool] if linked_tables else conditions, both)
        if rows.one and key:
            item = self._first_of(item, key)
            both = replace(rows.scope, items=[*rows.scope.items, item])
        if not item.protected and kind not in ("SEMI", "ANTI"):
            self._repeat(rows, item, known, both, join, key=bool(key))
        # work: before two relations of many rows meet, those of each unit are limited
        meets = Meets.of(self, item, known, both, key=bool(key))
        several = units and not rows.one and not item.one
        if several and not meets.linear and not (kind in ("SEMI", "ANTI") and looked_up(conditions, item, both)):
            limit(rows)
            item = self._changed(item, limit)
        elif several and meets.linear and kind not in ("SEMI", "ANTI"):
            if not meets.right_once:
                cut(rows)
            item = item if meets.left_once else self._changed(item, cut)
        elif kind not in ("SEMI", "ANTI"):
            item = self._bounded(rows, item, key=bool(key))
        both = replace(rows.scope, items=[*rows.scope.items, item])
        # a linked table beside its parent needs no way up of its own: the unit is the parent's
        to_parent: exp.Expression | None = None
        if units and side in ("", "LEFT") and kind in ("", "INNER", "CROSS"):
            to_parent = next((one for c in known if (one := self._held(c, rows, item, both)) is not None), None)
        written = [self._condition(c, Rewriter(both)) for c in conditions]
        if to_parent is not None and isinstance(item.node, exp.Subquery):
            item.node = without_parent(item.node)  # the row on the left is its parent, and of the same unit
            written.insert(0, to_parent)
        elif units and rows.unit is not None:
            by_equality = any(isinstance(c.unnest(), exp.EQ) for c in known if self._same_unit(c, rows.scope, item, both))
            written.insert(0, self._one_unit(rows.unit, unit_column(item.alias), by_equality=by_equality))
            written += [self._condition(c, Rewriter(both)) for c in known if self._linked(c, item, both) and c not in on]
        if kind in ("SEMI", "ANTI"):
            rows.tree.append("joins", joined(item, kind, None, written))
            return rows
        # what is noted from here on is of the joined rows: how many, which keys, which columns may be NULL
        most = self._most(rows, item, side, [*on, *(c for c in rest if self._known(c, both))], both, key=bool(key))
        meets.mark(rows, item)
        if side in ("RIGHT", "FULL"):
            out = self._wrapped(rows, item, side, using, written)
            out.most = most
            return out
        for column in using:
            item.hidden.add(fold(column))
        if side == "LEFT":
            item.columns, item.outer = _perhaps(item.columns), True
        rows.one = rows.one and item.one
        rows.unit = rows.unit if rows.unit is not None or not item.protected else unit_column(item.alias)
        rows.joined(item, joined(item, None if written else "CROSS", side or None, written))
        rows.most = most
        if not side:
            keep_present(rows.scope, on)
        return rows

    def _one_unit(self, left: exp.Expression, right: exp.Expression, *, by_equality: bool) -> exp.Expression:
        """Return the condition that two rows are of one unit; ``by_equality``: the text has ``=``, which is true of no NULL."""
        equal = exp.EQ if by_equality or not self.analysis.may_lack_unit() else exp.NullSafeEQ
        return equal(this=left.copy(), expression=right)

    def _two_people(self) -> str:
        """Return why rows of people do not meet here, and what to write."""
        lineage = next(iter(self.analysis.lineages.values()), None)
        table = self.analysis.table
        unit = self.analysis.ways.unit(lineage) if lineage is not None else table and self.analysis.unit_column(table)
        reason = _SAME_UNIT.format(unit or "unit")
        if lineage is None:
            return reason
        hop = lineage.hops[0]
        return f"{reason}; or join along a link, as ON child.{hop.column} = parent.{hop.parent_column}"

    def _key(self, join: exp.Join, item: Item, conditions: Sequence[exp.Expression], both: Scope) -> list[str]:
        """Return a declared key of a public table that a join fixes: then a row meets at most one row of it."""
        node, table = self.analysis.named[-1] if self.analysis.named else (None, None)
        if node is not join.this or table is None or table.is_file or not all(comparable(c.sql_type) for c in item.columns):
            return []
        # a key is unique in bytes, so only equality of bytes fixes it
        fixed = {column.ref for column in self._fixed(item, conditions, both) if exact(column.sql_type)}
        keys = [*self.analysis.catalog.keys(table), *self.analysis.public_keys(table)]
        return next(([c.name for c in item.columns if c.ref in key] for key in keys if key and set(key) <= fixed), [])

    def _first_of(self, item: Item, key: Sequence[str]) -> Item:
        """Return one row of a public table for each value of a key, whatever was believed about it."""
        below = self.analysis.over(item)
        columns: list[exp.Expression] = [exp.column(c.name, quoted=True) for c in item.columns]
        window = exp.Window(this=call("row_number"), partition_by=[exp.column(k, quoted=True) for k in key], over="OVER")
        first = exp.EQ(this=window, expression=exp.Literal.number(1))
        rows, trees = windowed(below, [*columns, first], {}, self.view.where)
        rows.restrict(Rewriter(rows.scope)(trees.pop()))
        entries = list(zip([c.name for c in item.columns], trees, strict=True))
        relation = self.analysis._columns(exp.Select(), rows, entries, self.view.where)
        nested = self.analysis._nested(relation, exp.Table(), item.name, self.view)
        return replace(nested, path=item.path, one=True)

    def _most(
        self, rows: Rows, item: Item, side: str, conditions: Sequence[exp.Expression], both: Scope, *, key: bool
    ) -> int:
        """Return how many rows a join makes of a unit, at most: of public tables their rows say it.

        Where a row looks a period or range up (`_between`), or meets more than `MOST_BY_ORDER` public rows by order, it is reckoned
        to meet one: the bound would be far too wide, and rows that are more are bounded as any.
        """
        if rows.unit is not None and item.protected:
            along = [self._along(*pair, rows, item) for c in conditions if (pair := self._linked(c, item, both)) is not None]
            most = max(rows.most * item.most, rows.most + item.most if side == "FULL" else 0)
            # along a link each row meets its own alone, so the product is far too many
            if along:
                most = max(min(along), rows.most if side in ("LEFT", "FULL") else 1, item.most if side in ("RIGHT", "FULL") else 1)
        elif rows.unit is None and not item.protected:
            most = 1
        elif item.protected:
            most = item.most * (self._met(rows.scope.items[0], conditions, both) if len(rows.scope.items) == 1 else 1)
        else:
            most = rows.most * (1 if key else self._met(item, conditions, both))
        return min(most, MOST_COUNTED)

    def _repeat(
        self, rows: Rows, item: Item, conditions: Sequence[exp.Expression], both: Scope, join: exp.Join, *, key: bool
    ) -> None:
        """Refuse public relations of which too many combinations would stand beside one row of people.

        Of each the rows count that equal values let through, of the whole source together.
        """
        met = [] if key else [self._met(item, conditions, both, all_rows=True)]
        if rows.unit is None and len(rows.scope.items) == 1:  # the first relation is public, too
            met.append(self._met(rows.scope.items[0], [], rows.scope))
        self.analysis.met += [number for number in met if number > 1]
        if len(self.analysis.met) > 1 and math.prod(self.analysis.met) > MOST_MET:
            numbers = " x ".join(f"{number:,}" for number in self.analysis.met)
            advice = "join them by equal values, with people's rows first, or make one table of what is needed"
            reason = f"its public relations have {numbers} combinations for a row, more than {MOST_MET:,}; {advice}"
            refuse("JOIN", reason, join, self.view.where)

    @staticmethod
    def _fixed(item: Item, conditions: Sequence[exp.Expression], both: Scope) -> list[Column]:
        """Return the columns of a relation that must equal a value of the others, or a constant."""
        fixed = []
        for condition in conditions:
            sides = (condition.this, condition.expression) if isinstance(condition, exp.EQ) else ()
            for side, opposite in (sides, sides[::-1]) if sides else ():
                resolved = plain(side, both) if isinstance(side, exp.Column) else None
                outside = all(both.resolve(c)[0] is not item for c in opposite.find_all(exp.Column))
                if resolved is not None and resolved[0] is item and outside:
                    fixed.append(resolved[1])
        return fixed

    def _met(self, public: Item, conditions: Sequence[exp.Expression], both: Scope, *, all_rows: bool = False) -> int:
        """Return how many rows of a public relation a row of the others meets, at most: all of them where there is no condition.

        ``all_rows``: also where it may be reckoned to meet one (`_most`).
        """
        refs = dict.fromkeys(column.ref for column in self._fixed(public, conditions, both))
        related = any(len({both.resolve(c)[0] is public for c in one.find_all(exp.Column)}) > 1 for one in conditions)
        by_order = related and not refs and not all_rows
        if by_order and _between(public, conditions, both):
            return 1
        fixed = [exp.Column(this=identifier(ref), table=identifier(public.alias)) for ref in refs]
        count = exp.Select(expressions=[exp.alias_(exp.Count(this=exp.Star()), "n", quoted=True)]).from_(public.node.copy())
        # a NULL is equal to nothing, so it meets nobody
        met = [column.copy().is_(exp.null()).not_() for column in fixed]
        text = render(count.where(*met).group_by(*fixed) if fixed else count)
        if text not in self.analysis.counted:  # one join asks for the work, and for the rows of a unit
            try:
                row = self.analysis.catalog.cursor.execute(f"SELECT max(n) FROM ({text})").fetchone()  # noqa: S608 -- generated
            except duckdb.Error:  # what is wrong with it is said where it is checked
                row = None
            self.analysis.counted[text] = max(1, int((row and row[0]) or 1))
        most = self.analysis.counted[text]
        return 1 if by_order and most > MOST_BY_ORDER else most

    def _bounded(self, rows: Rows, item: Item, *, key: bool) -> Item:
        """Give values that a join repeats for many rows a bound: those of the one row of a unit, and of rows that meet public ones.

        ``key``: whether a row meets at most one row of a public table, by a declared key.
        """
        change = cut if self.analysis.lineages else shorten
        if rows.unit is not None and not item.one and not key and (rows.one or not item.protected):
            change(rows)
        if item.protected and not rows.one and (item.one or rows.unit is None):
            return self._changed(item, change)
        return item

    def _changed(self, item: Item, change: Callable[[Rows], object]) -> Item:
        """Return a relation with its rows changed, as an item of FROM."""
        rows = self.analysis.over(item)
        change(rows)
        return rows.scope.items[0]

    def _allowed(self, rows: Rows, item: Item, side: str, kind: str, name: str, join: exp.Join) -> None:
        """Refuse joins that leave rows without a person, or that choose public rows by people's."""
        where = self.view.where
        left = rows.unit is not None
        if left and not item.protected and side in ("RIGHT", "FULL"):
            refuse(name, _NO_UNIT, join, where)
        if not left and item.protected and (side in ("LEFT", "FULL") or kind in ("SEMI", "ANTI")):
            refuse(name, _NO_UNIT, join, where)

    def _using(self, scope: Scope, item: Item, names: Sequence[str]) -> list[exp.Expression]:
        """Return USING as equalities."""
        equalities: list[exp.Expression] = []
        for name in names:
            column = item.column(name)
            if column is None:
                raise ArgumentError("source", name, f"{item.name} has no such column{self.view.where}")
            owner, left, _ = scope.resolve(exp.column(name, quoted=True))
            equalities.append(
                exp.EQ(
                    this=exp.column(left.name, table=owner.name, quoted=True),
                    expression=exp.column(column.name, table=item.name, quoted=True),
                )
            )
        return equalities

    @staticmethod
    def _known(node: exp.Expression, scope: Scope) -> bool:
        """Whether every column of a condition is one of these relations'; those of a subquery are its own."""
        if node.find(exp.Select):
            return False
        try:
            for column in node.find_all(exp.Column):
                scope.resolve(column)
        except ArgumentError:
            return False
        return True

    @staticmethod
    def _same_unit(node: exp.Expression, left: Scope, item: Item, both: Scope) -> bool:
        """Whether a condition says that the units of both sides are equal."""
        pair = compared(node, both, exp.EQ, exp.NullSafeEQ)
        return pair is not None and all(column.unit for _, column in pair) and sum(one is item for one, _ in pair) == 1

    def _held(self, node: exp.Expression, rows: Rows, item: Item, both: Scope) -> exp.Expression | None:
        """Return the join of a linked table to the row of its parent on the left, where a condition is the link itself."""
        pair = compared(node, both, exp.EQ)
        for first, second in () if pair is None else (pair, pair[::-1]):
            if first[0] is item or second[0] is not item:
                continue
            (owner, key), (_, column) = first, second
            lineage = self.analysis.lineages.get(column.home) if column.home is not None else None
            leaves = is_leaf(item.node) and is_leaf(owner.node)
            if lineage is None or not leaves or owner.outer or not one_equality(key.sql_type):
                continue
            hop, home = lineage.hops[0], key.home or self.analysis.table
            ends = [(column.origin, hop.column), (key.origin, hop.parent_column)]
            if home == hop.parent and all(fold(a or "") == fold(b) for a, b in ends):
                sides = [exp.Column(this=identifier(c.ref), table=identifier(i.alias)) for i, c in (first, second)]
                return exp.EQ(this=sides[1], expression=sides[0])
        return None

    def _along(self, left: Column, right: Column, rows: Rows, item: Item) -> int:
        """Return the rows of a unit after a join on a key, by the rows of the table whose key it is: each meets its own alone."""
        keys = [self.analysis.most_of(table) for table, _ in left.keys & right.keys]
        return max(1, rows.most * item.most // max(keys, default=1))

    @staticmethod
    def _linked(node: exp.Expression, item: Item, both: Scope) -> tuple[Column, Column] | None:
        """Return the columns on the left and of ``item`` that a condition says to hold one key: then their rows are one unit's."""
        pair = compared(node, both, exp.EQ)
        if pair is None or (pair[0][0] is item) == (pair[1][0] is item):
            return None
        (first, left), (_, right) = pair
        if not same_key(left, right):
            return None
        return (right, left) if first is item else (left, right)

    @staticmethod
    def _condition(node: exp.Expression, rewrite: Rewriter) -> exp.Expression:
        """Return a condition; the two sides of a comparison are expressions of their own."""
        while isinstance(node, exp.Paren):
            node = node.this
        if type(node) in COMPARISONS:
            left, right = rewrite.alike(node, [rewrite(node.this), rewrite(node.expression)])
            return type(node)(this=paren(left), expression=paren(right))
        return paren(rewrite(node))

    def _wrapped(self, rows: Rows, item: Item, side: str, using: Sequence[str], written: list[exp.Expression]) -> Rows:
        """Return a RIGHT or FULL join as a layer: its unit is that of the side that is there."""
        left_unit, right_unit = rows.unit, unit_column(item.alias) if item.protected else None
        # a column of USING is that of the side that is there, so both are merged into one
        merged: list[tuple[str, Column, Item, Column]] = []
        for name in using:
            owner, column, _ = rows.scope.resolve(exp.column(name, quoted=True))
            right = item.column(name)
            if right is not None:
                merged.append((name, column, owner, right))
        one = rows.one and item.one and side == "RIGHT"
        items = [replace(i, columns=_perhaps(i.columns)) for i in rows.scope.items]
        last = replace(item, columns=_perhaps(item.columns, kept=side == "RIGHT"))
        rows.scope.items[:] = items
        rows.joined(last, joined(item, None, side, written))
        rows.unit = right_unit
        # a row without a partner on the right is of the unit on the left
        if side == "FULL" and left_unit is not None and right_unit is not None:
            rows.unit = exp.Coalesce(this=left_unit.copy(), expressions=[right_unit.copy()])
        layer = Layer(rows)
        for name, column, owner, right in merged:
            sides = [
                exp.Column(this=identifier(c.ref), table=identifier(a)) for c, a in ((column, owner.alias), (right, item.alias))
            ]
            value: exp.Expression = sides[1] if side == "RIGHT" else exp.Coalesce(this=sides[0], expressions=[sides[1]])
            unit = right.unit and (side == "RIGHT" or column.unit)
            added = layer.add(value, _merged(column, right, side, unit))
            layer.listed[-1] = (replace(added, name=name), value, None)
        layer.keep_all()
        out = layer.close(one=one)
        for name in using:
            for old in out.scope.items[:-1] if merged else out.scope.items:
                old.hidden.add(fold(name))
        if merged:  # the merged columns come first in *
            out.scope.items.insert(0, out.scope.items.pop())
        return out


def _perhaps(columns: Sequence[Column], *, kept: bool = False) -> list[Column]:
    """Return the columns of a side that may be missing: NULL says nothing there; ``kept``: but the rows have its unit."""
    return [replace(c, nullable=True, present=False, unit=c.unit and kept, told=c.told and kept) for c in columns]


def _merged(column: Column, right: Column, side: str, unit: bool) -> Column:
    """Return the one column that two after USING become in a RIGHT or FULL join."""
    if side == "RIGHT":
        return replace(right, unit=unit, nullable=True, present=False)
    same = (column.origin, column.home) == (right.origin, right.home)
    origin, home = (right.origin, right.home) if same else (None, None)
    keys, orphans, told = column.keys & right.keys, column.orphans or right.orphans, column.told and right.told
    merged = replace(right, origin=origin, home=home, keys=keys, told=told, orphans=orphans, unit=unit)
    return replace(merged, nullable=True, present=False)


def unit_column(alias: str) -> exp.Column:
    """Return the privacy unit that a relation carries."""
    return exp.Column(this=identifier(UNIT), table=identifier(alias))


def joined(item: Item, kind: str | None, side: str | None, conditions: Sequence[exp.Expression]) -> exp.Join:
    """Return a relation as a join; without conditions every row meets every row."""
    on = {"on": exp.and_(*conditions, copy=False)} if conditions else {}
    return exp.Join(this=item.node, kind=kind, side=side, **on)


def _between(public: Item, conditions: Sequence[exp.Expression], both: Scope) -> bool:
    """Return whether a value of the other rows lies between two public ones: ``x >= p.low AND x < p.high``."""

    def is_public(node: exp.Expression) -> bool:
        return any(both.resolve(column)[0] is public for column in node.find_all(exp.Column))

    above: set[str] = set()
    below: set[str] = set()
    for condition in conditions:
        if isinstance(condition, exp.Between):
            pairs = [(condition.this, condition.args["low"], above), (condition.this, condition.args["high"], below)]
        elif isinstance(condition, exp.GT | exp.GTE | exp.LT | exp.LTE):
            sides = (above, below) if isinstance(condition, exp.GT | exp.GTE) else (below, above)
            left, right = condition.this, condition.expression
            pairs = [(left, right, sides[0]), (right, left, sides[1])]
        else:
            continue
        for value, bound, ends in pairs:
            if is_public(bound) and not is_public(value):
                ends.add(render(value))
    return not above.isdisjoint(below)
