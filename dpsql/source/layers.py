"""Layers of generated SQL in which the rows of one privacy unit are combined: GROUP BY and windows over columns alone.

A layer is a SELECT over the one below it. What a user computes (arguments, keys, orders) is computed in a layer of its own, where
each expression stands in a TRY; the layer above has only columns, aggregates of columns and windows over columns, always with
``__dp_unit`` among the keys or partitions. So nothing that could raise stands next to an aggregate, which no TRY can hold.

A combining layer must be a function of the *set* of its rows, not of the order in which a thread finds them: the order of one
unit's rows may change when another unit's rows come or go. So values that are equal are the same (`canonical`), rows that tie are
ordered by all columns that the layer has, and sums of floating-point numbers run over sorted lists.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from dpsql.source.expressions import Rewriter
from dpsql.source.kernel import FLOATS
from dpsql.source.keys import exact
from dpsql.source.model import RESERVED, UNIT, Column, identifier, refuse
from dpsql.source.parse import render
from dpsql.source.scope import Item, Scope

GATHERED = "dpsql_gathered"
"""Mark on a generated SELECT with GROUP BY: how many rows of a unit it reads, at most."""
COMBINING = "dpsql_combining"
"""Mark on a generated SELECT that holds aggregates or windows of columns and nothing else."""


@dataclass
class Rows:
    """A generated FROM with its WHERE, before its list is known.

    ``unit`` is the privacy unit of a row, in its one form; None for public rows. ``one``: no unit has more than one row;
    ``few``: no unit has more than :mod:`dpsql.source.limits` lets; ``most``: rows that a unit has at most, if it has as many in the
    protected table as are counted.
    """

    scope: Scope
    tree: exp.Select
    unit: exp.Expression | None
    fresh: Callable[[str], str]
    one: bool = False
    few: bool = False
    most: int = 1

    def restrict(self, condition: exp.Expression) -> None:
        """Keep the rows for which a generated condition holds."""
        old = self.tree.args.get("where")
        both = exp.and_(old.this, condition, copy=False) if old is not None else condition
        self.tree.set("where", exp.Where(this=both))

    def joined(self, item: Item, join: exp.Join) -> None:
        """Add a relation: a row of each unit may become several."""
        self.few = self.few and item.one
        self.tree.append("joins", join)
        self.scope.items.append(item)


@dataclass
class Layer:
    """The list of a SELECT over some rows, while it grows."""

    rows: Rows
    listed: list[tuple[Column, exp.Expression, Item | None]] = field(default_factory=list)
    seen: dict[tuple[str, str], Column] = field(default_factory=dict)

    def add(self, value: exp.Expression, like: Column | None = None) -> Column:
        """Add a generated expression under a new name; ``like`` is the column that it copies."""
        ref = self.rows.fresh("c")
        column = replace(like, name=ref, ref=ref) if like else Column(ref, ref, self.rows.scope.type_of(value), None)
        self.listed.append((column, value, None))
        return column

    def compute(self, node: exp.Expression) -> Column:
        """Add what a user's expression gives, or a column that it is."""
        resolved = plain(node, self.rows.scope)
        value = Rewriter(self.rows.scope)(node)
        kind = resolved[1].sql_type if resolved else self.rows.scope.type_of(value)
        return self.add(canonical(value, kind), resolved[1] if resolved else None)

    def key(self, node: exp.Expression, construct: str) -> Column:
        """Add what a user's expression gives; it has to be of a type whose equal values are the same."""
        column = self.compute(node)
        if not comparable(column.sql_type):
            advice = f"values of {column.sql_type} may be equal without being the same; CAST the key, or leave it out"
            refuse(construct, advice, node, self.rows.scope.where)
        return column

    def keep(self, item: Item, column: Column) -> Column:
        """Add a column of a relation below under its own name."""
        known = self.seen.get((item.alias, column.ref))
        if known is not None:
            return known
        value = exp.Column(this=identifier(column.ref), table=identifier(item.alias))
        kept = replace(column, ref=self.rows.fresh("p"))
        self.listed.append((kept, canonical(value, column.sql_type), item))
        self.seen[(item.alias, column.ref)] = kept
        return kept

    def keep_all(self) -> None:
        """Add every column below."""
        for item in self.rows.scope.items:
            for column in item.columns:
                self.keep(item, column)

    def select(self) -> exp.Select:
        """Return the SELECT, which carries the unit."""
        return finish(self.rows, [(column, value) for column, value, _ in self.listed])

    def close(self, select: exp.Select | None = None, *, one: bool | None = None) -> Rows:
        """Return the rows of the SELECT. Columns that were kept are found under the names that they had."""
        below, alias = self.rows, self.rows.fresh("s")
        node = exp.Subquery(this=select or self.select(), alias=exp.TableAlias(this=identifier(alias)))
        items: list[Item] = []
        # kept columns stay with the relation that they are of, whose name the text may use; what is computed belongs to none
        for old in [*below.scope.items, None]:
            columns = [column for column, _, owner in self.listed if owner is old]
            if old is not None:
                items.append(replace(old, alias=alias, node=node, columns=columns))
            elif columns:
                items.append(Item("", alias, node, columns))
        unit = exp.Column(this=identifier(UNIT), table=identifier(alias)) if below.unit is not None else None
        scope = replace(below.scope, items=items)
        alone = below.one if one is None else one
        return Rows(scope, exp.Select().from_(node), unit, below.fresh, alone, below.few, 1 if alone else below.most)

    def reference(self, column: Column, rows: Rows) -> exp.Column:
        """Return a column of this layer as the layer above names it."""
        return exp.Column(this=identifier(column.ref), table=identifier(rows.scope.items[0].alias))


def finish(rows: Rows, listed: Sequence[tuple[Column, exp.Expression]]) -> exp.Select:
    """Return the SELECT of some rows with this list, which carries the unit."""
    shown = [exp.Alias(this=value, alias=identifier(column.ref)) for column, value in listed]
    if rows.unit is not None:
        shown.append(exp.Alias(this=rows.unit.copy(), alias=identifier(UNIT)))
    if not shown:  # SELECT 1 FROM ..., of which nobody reads a column
        shown.append(exp.Alias(this=exp.true(), alias=identifier(rows.fresh("c"))))
    rows.tree.set("expressions", shown)
    return rows.tree


def comparable(sql_type: str) -> bool:
    """Return whether equal values of a type are the same, once they are `canonical`."""
    return exact(sql_type) or sql_type in FLOATS


def canonical(value: exp.Expression, sql_type: str) -> exp.Expression:
    """Return a value such that equal ones are the same: of floating-point numbers there is one NaN and one zero."""
    if sql_type not in FLOATS or isinstance(value, exp.Literal):
        return value
    kind = exp.DataType.build(sql_type, dialect="duckdb")
    nan, zero = (exp.Cast(this=exp.Literal.string(text), to=kind.copy()) for text in ("nan", "0"))
    double = exp.Cast(this=value.copy(), to=exp.DataType.build("DOUBLE"))
    test = exp.Anonymous(this="isnan", expressions=[double])
    added = exp.Add(this=exp.Paren(this=value), expression=zero)
    return exp.Case(ifs=[exp.If(this=test, true=nan)], default=added)


def plain(node: exp.Expression, scope: Scope) -> tuple[Item, Column] | None:
    """Return the column that an expression is, None for anything else."""
    while isinstance(node, exp.Paren):
        node = node.this
    if not isinstance(node, exp.Column) or isinstance(node.this, exp.Star):
        return None
    item, column, fields = scope.resolve(node)
    return None if fields else (item, column)


def compared(
    node: exp.Expression, scope: Scope, *kinds: type[exp.Expression]
) -> tuple[tuple[Item, Column], tuple[Item, Column]] | None:
    """Return the two columns that a comparison of one of these kinds is of, with their relations; None for anything else."""
    node = node.unnest()
    if type(node) not in kinds:
        return None
    left, right = plain(node.this, scope), plain(node.expression, scope)
    return None if left is None or right is None else (left, right)


def signature(node: exp.Expression, scope: Scope) -> str:
    """Return a text that two expressions share if and only if they mean the same columns in the same expression."""
    copied = node.copy()
    for column in list(copied.find_all(exp.Column)):
        if not isinstance(column.this, exp.Star):
            item, meant, fields = scope.resolve(column)
            new = exp.Column(this=identifier("\x1f".join([meant.ref, *fields])), table=identifier(item.alias))
            if column is copied:
                copied = new
            else:
                column.replace(new)
    # brackets mean nothing: (a) and a are one key
    while isinstance(copied, exp.Paren):
        copied = copied.this
    return render(copied)


def substituted(node: exp.Expression, find: Callable[[exp.Expression], exp.Expression | None]) -> exp.Expression:
    """Return a copy of an expression in which the outermost parts that ``find`` knows are replaced by what it gives."""
    known = find(node)
    if known is not None:
        return known.copy()
    out = node.copy()
    for key, value in node.args.items():
        if isinstance(value, exp.Expression):
            out.set(key, substituted(value, find))
        elif isinstance(value, list):
            out.set(key, [substituted(v, find) if isinstance(v, exp.Expression) else v for v in value])
    return out


def outermost(node: exp.Expression, kind: Callable[[exp.Expression], bool]) -> list[exp.Expression]:
    """Return the outermost parts of an expression for which ``kind`` holds."""
    if kind(node):
        return [node]
    if isinstance(node, exp.Query):  # a subquery is not part of the SELECT that it stands in
        return []
    return [part for child in node.iter_expressions() for part in outermost(child, kind)]


def combine_inside(scope: Scope, how: str) -> str:
    """Return why rows of several people are not combined, and the way out; ``how`` has {} for the privacy unit column."""
    name = next((c.name for item in scope.items for c in item.columns if c.unit), "the privacy unit column")
    return f"it combines rows of several people; combine them in the outermost SELECT, or inside of one person: {how.format(name)}"


def own(node: exp.Column) -> bool:
    """Whether a column is one that the rewriting has made."""
    return str(node.name).startswith(RESERVED)
