"""What the schema of a protected table says about its columns: CHECK constraints, and where foreign keys point.

Privacy
-------
Schema is public: the catalog is read, never a row of any table. What the table behind a foreign key holds is no schema: it may list
people, and that it has no budget does not make it public. So a foreign key is no domain by itself; `dp_domain` says the declaration
(``categories_from``) by which the custodian makes it one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import duckdb
from sqlglot import exp

from dpsql.domains import encoding, sqltypes
from dpsql.domains.attributes import Attribute
from dpsql.domains.declare import declare
from dpsql.errors import ArgumentError, DpsqlError
from dpsql.rules.grammar import Rule, stored
from dpsql.rules.terms import exact
from dpsql.source.catalog import Catalog
from dpsql.source.model import OutputColumn, TableId
from dpsql.text.names import fold


class Constraints:
    """The constraints of one table; read when they are asked for.

    Parameters
    ----------
    cursor : DuckDB cursor
    table : TableId
    catalog : Catalog, optional
        What a call has looked up.
    """

    def __init__(self, cursor: duckdb.DuckDBPyConnection, table: TableId, catalog: Catalog | None = None) -> None:
        self._cursor, self._table = cursor, table
        self.rules: list[Rule] = []
        """CHECK constraints that are rules, with names of columns as they are written there."""
        self.others: list[str] = []
        """CHECK constraints that say what no rule may say."""
        self.widened: set[str] = set()
        """Columns whose bounds are no doubles, and so the next ones that are, outside of them."""
        catalog = catalog or Catalog(cursor, foreign={})
        for text in catalog.checks(table):
            try:
                self.rules.append(stored(text))
            except ArgumentError:
                self.others.append(text)
        self._known: dict[OutputColumn, Attribute | None] = {}
        self._references = {fold(name): reference for name, reference in catalog.references(table).items()}

    def attribute(self, column: OutputColumn) -> Attribute | None:
        """Return the domain that the CHECK constraints give a plain copy of a column of the table; None where they give none."""
        if column not in self._known:
            origin = fold(column.origin or "")
            own = [rule for rule in self.rules if {fold(name) for name in rule.columns} == {origin}]
            parts = [part for rule in own for part in _conjuncts(rule.tree)]
            self._known[column], widened = _attribute(self._cursor, column, parts)
            self.widened |= {column.name} if widened else set()
        return self._known[column]

    def reference(self, column: OutputColumn) -> tuple[TableId, str] | None:
        """Return the table and column that a column refers to."""
        return self._references.get(fold(column.origin or ""))


def _conjuncts(tree: exp.Expression) -> Iterable[exp.Expression]:
    """Yield what holds together in a CHECK."""
    while type(tree) is exp.Paren:
        tree = tree.this
    if type(tree) is exp.Or:  # "x IS NULL OR ..." says of values what ... says
        sides = [side for side in (tree.this, tree.expression) if not _is_null(side)]
        if len(sides) == 1:
            yield from _conjuncts(sides[0])
    elif type(tree) is exp.And:
        yield from _conjuncts(tree.this)
        yield from _conjuncts(tree.expression)
    elif type(tree) is exp.Between:
        yield exp.GTE(this=tree.this, expression=tree.args["low"])
        yield exp.LTE(this=tree.this, expression=tree.args["high"])
    else:
        yield tree


def _is_null(node: exp.Expression) -> bool:
    node = node.unnest()
    return type(node) is exp.Is and type(node.expression) is exp.Null


def _attribute(
    cursor: duckdb.DuckDBPyConnection, column: OutputColumn, parts: Sequence[exp.Expression]
) -> tuple[Attribute | None, bool]:
    """Return the domain of a column whose values are listed, or lie between two bounds; whether these had to be widened."""
    lists: list[list[str]] = []
    lower: list[object] = []
    upper: list[object] = []
    for part in parts:
        if type(part) is exp.In and type(part.this) is exp.Column:
            values = [_value(node, column.sql_type) for node in part.expressions]
            if all(value is not None for value in values):
                lists.append([str(value) for value in values])
        bound = _bound(part, column.sql_type)
        if bound is not None:
            (lower if bound[0] == ">" else upper).append(bound[1])
    if lists:
        kept = [value for value in dict.fromkeys(lists[0]) if all(value in other for other in lists[1:])]
        return _declared(cursor, column, categories=kept), False
    if lower and upper:
        ends = [max(lower), min(upper)]  # type: ignore[type-var]
        held = [_held(column.sql_type, end, side) for end, side in zip(ends, (-math.inf, math.inf), strict=True)]
        return _declared(cursor, column, lower=held[0], upper=held[1]), held != ends
    return None, False


def _held(sql_type: str, end: object, side: float) -> object:
    """Return a whole number that double precision holds, the next on one side, if this one is none and no end of the type."""
    parsed = sqltypes.parse(sql_type)
    if type(end) is not int or parsed.family != "integer" or end in (parsed.low, parsed.high) or abs(end) >= 1 << 64:
        return end
    near = float(end)
    if (int(near) > end) if side < 0 else (int(near) < end):
        near = math.nextafter(near, side)
    return min(max(int(near), parsed.low), parsed.high)


def _declared(
    cursor: duckdb.DuckDBPyConnection,
    column: OutputColumn,
    *,
    categories: Sequence[str] | None = None,
    lower: object = None,
    upper: object = None,
) -> Attribute | None:
    """Return a domain that fits the type of the column, else None: then the column is declared by hand, or left out."""
    try:
        canonical = None if categories is None else encoding.canonical_categories(cursor, column.sql_type, list(categories))
        return declare(
            column.name, column.sql_type, nullable=column.nullable, lower=lower, upper=upper, categories=canonical,
            rounded=True,
        )
    except DpsqlError:
        return None


def _bound(part: exp.Expression, sql_type: str) -> tuple[str, object] | None:
    """Return '>' or '<' and the bound of a comparison of a column with a constant, the bound itself included."""
    signs = {exp.GTE: (">", False), exp.GT: (">", True), exp.LTE: ("<", False), exp.LT: ("<", True)}
    if type(part) not in signs:
        return None
    (way, strict), left, right = signs[type(part)], part.this, part.expression
    if type(right) is exp.Column:
        left, right, way = right, left, "<" if way == ">" else ">"
    value = _value(right, sql_type) if type(left) is exp.Column else None
    if value is None:
        return None
    parsed = sqltypes.parse(sql_type)
    if parsed.family == "temporal":
        try:
            return way, sqltypes.step_text(parsed, sqltypes.steps_of(parsed, value))
        except (ValueError, OverflowError):
            return None
    if parsed.family not in ("integer", "decimal", "float"):
        return None
    try:
        number = exact(value)
    except ValueError:
        return None
    if parsed.family == "integer":
        whole = math.ceil(number) if way == ">" else math.floor(number)
        if strict and whole == number:
            whole += 1 if way == ">" else -1
        return way, whole  # as it is: doubles beyond 2^53 would take neighbours for one number
    try:
        return way, float(number)
    except OverflowError:
        return None


def _value(node: exp.Expression, sql_type: str) -> str | None:
    """Return the text of a constant; None for anything else."""
    if type(node) in (exp.Cast, exp.TryCast):
        same = sqltypes.parse(sql_type).family == "temporal" and type(node.this) is exp.Literal and node.this.is_string
        plain = sqltypes.parse(sql_type).family != "temporal"
        return _value(node.this, sql_type) if same or plain else None
    if type(node) is exp.Neg and type(node.this) is exp.Literal and not node.this.is_string:
        return f"-{node.this.name}"
    return str(node.name) if type(node) is exp.Literal else None
