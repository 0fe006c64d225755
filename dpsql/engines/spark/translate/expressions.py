"""Expressions over the columns of one SELECT, in Spark's SQL.

Every kind of node has its handler, and every function its rule; what has none is refused. An expression never raises: what
DuckDB's TRY makes NULL is NULL by ``try_`` functions, so a TRY is left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from sqlglot import exp

from dpsql.engines.spark.translate.aggregates import AGGREGATES, WINDOWS, aggregate, window
from dpsql.engines.spark.translate.binding import Binder
from dpsql.engines.spark.translate.casts import converted
from dpsql.engines.spark.translate.matching import PATTERNS
from dpsql.engines.spark.translate.moments import MOMENTS, moved, part
from dpsql.engines.spark.translate.numbers import NUMBERS
from dpsql.engines.spark.translate.operators import arithmetic, compared, implicit, negative, shifted, unified
from dpsql.engines.spark.translate.texts import TEXTS, like
from dpsql.engines.spark.translate.types import FLOATS, NULL, TEMPORAL, TEXT, Typed, canonical, is_exact, of_type, refuse
from dpsql.source.functions import CAUGHT
from dpsql.source.parse import render, used

Resolve = Callable[[exp.Column], Typed]
_COMPARISONS = {exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=", exp.NullSafeEQ: "<=>"}
_ARITHMETIC = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.IntDiv: "//", exp.Mod: "%"}
_BITWISE = {exp.BitwiseAnd: "&", exp.BitwiseOr: "|", exp.BitwiseRightShift: ">>"}
_CONNECTIVES = {exp.And: "AND", exp.Or: "OR"}
_PUBLIC = re.compile(r"dpsql_groups_[0-9a-f]{16}")
"""What relations of public groups are called: no name of a source stands without its database and schema."""
_FIRST_YEAR, _LAST_YEAR = "100000-01-01 (BC)", "99999-12-31"
_FEW = 6
"""Values of a list that are compared one after the other, at most: more are halved."""
_FUNCTIONS = {**TEXTS, **PATTERNS, **NUMBERS, **MOMENTS}


class Scalar:
    """Translates the expressions of one SELECT.

    Parameters
    ----------
    resolve : callable
        Gives a column of the SELECT's relations.
    binder : Binder
    """

    def __init__(self, resolve: Resolve, binder: Binder) -> None:
        self._resolve, self._binder = resolve, binder

    def __call__(self, node: exp.Expression) -> Typed:
        """Return the expression in Spark's SQL.

        Raises
        ------
        UnsupportedQuery
        """
        value = self._written(node)
        return value if type(node) in _CANONICAL else canonical(value)

    def _written(self, node: exp.Expression) -> Typed:
        """Return the expression, a floating-point number with any bits of its value."""
        kind = type(node)
        if kind in _COMPARISONS or kind is exp.NullSafeNEQ:
            return self._comparison(node)
        if kind in _ARITHMETIC:
            return self._arithmetic(node)
        if kind in _CONNECTIVES:
            return self._connected(node)
        if kind in _BITWISE:
            self._only(node, "this", "expression")
            return shifted(_BITWISE[kind], self(node.this), self(node.expression))
        handler = _HANDLERS.get(kind)
        return handler(self, node) if handler else refuse(_shown(node))

    def condition(self, node: exp.Expression) -> str:
        """Return a condition; a number is true unless it is zero."""
        return converted(self(node), "BOOLEAN", checked=False).sql

    @staticmethod
    def _only(node: exp.Expression, *allowed: str) -> None:
        """Refuse a node with any argument beyond those that its handler looks at."""
        for key in used(node):
            if key not in allowed:
                refuse(f"{node.key.upper()} with {key.upper()}")

    def _comparison(self, node: exp.Expression) -> Typed:
        self._only(node, "this", "expression")
        value = self(node.this)
        if type(node) is exp.EQ and value.type in TEMPORAL and _is_infinity(node.expression):  # Spark has no infinite dates
            return of_type(f"({value.sql} <> {value.sql})", "BOOLEAN")
        left, right = compared(value, self(node.expression), self._binder)
        if type(node) is exp.NullSafeNEQ:
            return of_type(f"(NOT ({left} <=> {right}))", "BOOLEAN")
        return of_type(f"({left} {_COMPARISONS[type(node)]} {right})", "BOOLEAN")

    def _arithmetic(self, node: exp.Expression) -> Typed:
        self._only(node, "this", "expression", "typed", "safe")
        symbol, step = _ARITHMETIC[type(node)], node.expression
        left = self._written(node.this)
        if type(step) is exp.Cast and step.args["to"].this == exp.DataType.Type.INTERVAL and isinstance(step.this, exp.Literal):
            return moved(symbol, left, step.this.name, self._binder) if symbol in "+-" else refuse(_shown(node))
        return arithmetic(symbol, left, self._written(step), self._binder)

    def _connected(self, node: exp.Expression) -> Typed:
        """Return AND or OR of many conditions, without a level of nesting for each."""
        parts, kind = [], type(node)
        while type(node) is kind:
            self._only(node, "this", "expression")
            parts.append(node.expression)
            node = node.this
        conditions = [self.condition(each) for each in [node, *reversed(parts)]]
        return of_type(f"({f' {_CONNECTIVES[kind]} '.join(conditions)})", "BOOLEAN")

    def _constant(self, node: exp.Expression) -> Typed:
        return self._binder.constant(node)

    def _column(self, node: exp.Column) -> Typed:
        self._only(node, "this", "table")
        return self._resolve(node)

    def _paren(self, node: exp.Paren) -> Typed:
        self._only(node, "this")
        return self._written(node.this)

    def _not(self, node: exp.Not) -> Typed:
        self._only(node, "this")
        return of_type(f"(NOT {self.condition(node.this)})", "BOOLEAN")

    def _negative(self, node: exp.Neg) -> Typed:
        self._only(node, "this")
        if isinstance(node.this, exp.Literal):
            return replace(self._binder.constant(node), probe=render(node))
        return negative(self(node.this), self._binder)

    def _is(self, node: exp.Is) -> Typed:
        self._only(node, "this", "expression")
        value = self(node.this).sql
        if isinstance(node.expression, exp.Null):
            return of_type(f"({value} IS NULL)", "BOOLEAN")
        if isinstance(node.expression, exp.Boolean):
            return of_type(f"({self.condition(node.this)} IS {str(node.expression.this).upper()})", "BOOLEAN")
        return refuse("IS")

    def _between(self, node: exp.Between) -> Typed:
        self._only(node, "this", "low", "high")
        value = self(node.this)
        ends = [self(end) for end in _within_calendar(node.args["low"], node.args["high"])]
        low, high = (compared(value, end, self._binder) for end in ends)
        return of_type(f"({low[0]} >= {low[1]} AND {high[0]} <= {high[1]})", "BOOLEAN")

    def _in(self, node: exp.In) -> Typed:
        self._only(node, "this", "expressions", "query")
        query = node.args.get("query")
        value, listed = self(node.this), [self(each) for each in node.expressions] if query is None else self._public_list(query)
        if not listed:
            return self._binder.constant(exp.false())
        typed = unified([value, *listed], self._binder)
        return of_type(f"({typed[0].sql} IN ({', '.join(each.sql for each in typed[1:])}))", "BOOLEAN")

    def _public_list(self, query: exp.Expression) -> list[Typed]:
        """Return the constants that a query of dpsql's own gives, over public groups alone: DuckDB has them, too."""
        read = list(query.find_all(exp.Table))
        if not read or any(table.db or not _PUBLIC.fullmatch(table.name) for table in read):
            refuse("IN with a query")
        select = query.this if isinstance(query, exp.Subquery) else query
        return [value for (value,) in self._binder.rows(render(select))[1]]

    def _case(self, node: exp.Case) -> Typed:
        self._only(node, "this", "ifs", "default")
        branches, default = node.args["ifs"], node.args.get("default")
        values = [self(branch.args["true"]) for branch in branches] + [self(default) if default is not None else _NULL]
        kind = self._binder.common(values) if any(v.type != NULL for v in values) else NULL
        results = [implicit(value, kind, self._binder).sql for value in values]
        subject = self(node.this) if node.this is not None else None
        parts = []
        for branch, result in zip(branches, results[:-1], strict=True):
            if subject is None:
                test = self.condition(branch.this)
            else:
                test = " = ".join(compared(subject, self(branch.this), self._binder))
            parts.append(f"WHEN {test} THEN {result}")
        otherwise = f" ELSE {results[-1]}" if default is not None else ""
        return of_type(f"CASE {' '.join(parts)}{otherwise} END", kind)

    def _cast(self, node: exp.Cast) -> Typed:
        self._only(node, "this", "to", "safe", "requires_string")
        inner = node.this
        while isinstance(inner, exp.Paren):
            inner = inner.this
        if isinstance(inner, exp.Literal | exp.Null | exp.Boolean) or (
            isinstance(inner, exp.Neg) and isinstance(inner.this, exp.Literal)
        ):
            return self._binder.constant(node)
        value = self(inner)
        target = self._binder.type_of(f"CAST(NULL AS {render(node.args['to'])})")
        if value.type == "VARCHAR[]" == target:
            return value
        return converted(value, target, checked=type(node) is exp.TryCast)

    def _extract(self, node: exp.Extract) -> Typed:
        self._only(node, "this", "expression")
        return part("extract", node.this.name.lower(), self(node.expression), self._binder)

    def _like(self, node: exp.Like) -> Typed:
        self._only(node, "this", "expression", "negate")
        condition = like(self(node.this), self(node.expression))
        return of_type(f"(NOT {condition.sql})", "BOOLEAN") if node.args.get("negate") else condition

    def _joined(self, node: exp.DPipe) -> Typed:
        self._only(node, "this", "expression", "safe")
        values = [self(node.this), self(node.expression)]
        if any(value.type not in ("VARCHAR", NULL) for value in values):
            refuse("|| of other values than texts")
        return of_type(f"concat({values[0].sql}, {values[1].sql})", "VARCHAR")

    def _bracket(self, node: exp.Bracket) -> Typed:
        """Return what stands in a TRY, in the one form that `dpsql.source.functions.caught` writes it."""
        self._only(node, "this", "expressions", "offset")
        call = _qualified(node.this)
        if type(call) is exp.Anonymous and call.name.lower() == "list_transform" and len(call.expressions) == 2:
            inner = call.expressions[1]
            if type(inner) is exp.Lambda and [e.name for e in inner.expressions] == [CAUGHT]:
                tried = inner.this
                if type(tried) is exp.Anonymous and tried.name.upper() == "TRY" and len(tried.expressions) == 1:
                    return self(tried.expressions[0])
        return refuse("[ ]")

    def _dot(self, node: exp.Dot) -> Typed:
        call = _qualified(node)
        return self._call(call) if type(call) is exp.Anonymous else refuse(_shown(node))

    def _call(self, node: exp.Anonymous) -> Typed:
        self._only(node, "this", "expressions")
        name = str(node.this).lower() if isinstance(node.this, str) else node.this.name.lower()
        if name in AGGREGATES:
            return aggregate(name, node, None, self, self._binder)
        if name == "try" and len(node.expressions) == 1:
            return self(node.expressions[0])
        if name == "grouping" and len(node.expressions) == 1:
            return of_type(f"CAST(grouping({self(node.expressions[0]).sql}) AS BIGINT)", "BIGINT")
        if name == "enum_code" and len(node.expressions) == 1:
            return place_in_list(node.expressions[0], self._binder, self)
        if name == "chr" and len(node.expressions) == 1 and isinstance(node.expressions[0], exp.Literal):
            return self._binder.constant(node)
        rule = _FUNCTIONS.get(name)
        if rule is None:
            refuse(f"{name}()")
        try:
            return rule(name, [self(each) for each in node.expressions], self._binder)
        except (IndexError, ValueError):  # a rule takes its arguments apart
            return refuse(f"{name}() of {len(node.expressions)} arguments")

    def _filter(self, node: exp.Filter) -> Typed:
        self._only(node, "this", "expression")
        call = _qualified(node.this)
        if type(call) is not exp.Anonymous or type(node.expression) is not exp.Where or call.name.lower() not in AGGREGATES:
            refuse("FILTER")
        return aggregate(call.name.lower(), call, self.condition(node.expression.this), self, self._binder)

    def _window(self, node: exp.Window) -> Typed:
        self._only(node, "this", "partition_by", "order", "over")
        call = _qualified(node.this)
        if type(call) is not exp.Anonymous or call.name.lower() not in WINDOWS:
            refuse("a window function")
        return window(node, call, self)


_NULL = of_type("NULL", NULL)
_CANONICAL = (exp.Column, exp.Literal, exp.Case)
"""What gives one of its parts, which are canonical, or a constant."""


def _qualified(node: exp.Expression) -> exp.Expression:
    """Return the call in ``system.main.call(...)``."""
    if type(node) is exp.Dot and node.this.sql(dialect="duckdb").replace('"', "").lower() in ("system.main", "main"):
        inner: exp.Expression = node.expression
        return inner
    return node


def _within_calendar(low: exp.Expression, high: exp.Expression) -> tuple[exp.Expression, exp.Expression]:
    """Return the ends of `dpsql.source.functions.guard_temporal` within the years 1 to 9999, which alone are dates on Spark."""
    ends = [end.this.name if isinstance(end, exp.Cast) and isinstance(end.this, exp.Literal) else "" for end in (low, high)]
    if not (ends[0].startswith(_FIRST_YEAR) and ends[1].startswith(_LAST_YEAR)):
        return low, high
    first, last = low.copy(), high.copy()
    first.set("this", exp.Literal.string("0001-01-01" + ends[0].removeprefix(_FIRST_YEAR)))
    last.set("this", exp.Literal.string("9999-12-31" + ends[1].removeprefix(_LAST_YEAR)))
    return first, last


def _is_infinity(node: exp.Expression) -> bool:
    return isinstance(node, exp.Cast) and isinstance(node.this, exp.Literal) and node.this.name in ("infinity", "-infinity")


def _shown(node: exp.Expression) -> str:
    return str(node.key).upper().replace("_", " ")


_HANDLERS: dict[type[exp.Expression], Callable[..., Typed]] = {
    exp.Literal: Scalar._constant,
    exp.Null: lambda scalar, node: _NULL,
    exp.Boolean: Scalar._constant,
    exp.Column: Scalar._column,
    exp.Paren: Scalar._paren,
    exp.Not: Scalar._not,
    exp.Neg: Scalar._negative,
    exp.Is: Scalar._is,
    exp.Between: Scalar._between,
    exp.In: Scalar._in,
    exp.Case: Scalar._case,
    exp.Cast: Scalar._cast,
    exp.TryCast: Scalar._cast,
    exp.Extract: Scalar._extract,
    exp.Like: Scalar._like,
    exp.DPipe: Scalar._joined,
    exp.Bracket: Scalar._bracket,
    exp.Dot: Scalar._dot,
    exp.Anonymous: Scalar._call,
    exp.Filter: Scalar._filter,
    exp.Window: Scalar._window,
}
"""Exact classes: a subclass may mean something else."""


def place_in_list(node: exp.Expression, binder: Binder, scalar: Callable[[exp.Expression], Typed]) -> Typed:
    """Return ``ENUM_CODE(TRY_CAST(CAST(value AS VARCHAR) AS ENUM(...)))``: the place of a value's text in a list, or NULL.

    Spark never writes the text: the list is brought into the type of the value. DuckDB's texts are one to one with the values
    of these types, once minus zero is zero; NaN and infinities are in no list.
    """
    if type(node) is not exp.TryCast or node.args["to"].this != exp.DataType.Type.ENUM:
        refuse("enum_code()", "only of TRY_CAST(... AS ENUM(...))")
    labels = [label.name for label in node.args["to"].expressions]
    inner = node.this
    if type(inner) is exp.Cast and inner.args["to"].this in (exp.DataType.Type.TEXT, exp.DataType.Type.VARCHAR):
        inner = inner.this
    value = scalar(inner)
    return of_type(_searched(value, _in_order(labels, value, binder)), "UINTEGER")


def _in_order(labels: list[str], value: Typed, binder: Binder) -> list[tuple[object, str, int]]:
    """Return values of a list, in order: what they are ordered by, as a constant of Spark, and their place in the list."""
    kind = value.type
    if kind == TEXT:
        return sorted((label.encode(), binder.text(label).sql, place) for place, label in enumerate(labels))
    if kind == "BOOLEAN":
        return [(label == "true", label, place) for place, label in enumerate(labels) if label in ("true", "false")]
    if kind not in (*FLOATS, "DATE", "TIMESTAMP") and not is_exact(kind):
        refuse(f"a list of {kind}")
    constants = [binder.cast_text(label, kind) for label in labels]
    return sorted(((c.value, c.sql, place) for place, c in enumerate(constants)), key=lambda entry: entry[0])  # type: ignore[arg-type, return-value]


def _searched(value: Typed, entries: list[tuple[object, str, int]]) -> str:
    # halved down to a few: a CASE of thousands of branches would be tried one after the other for each row
    if len(entries) <= _FEW:
        cases = " ".join(f"WHEN {value.sql} = {text} THEN {place}L" for _, text, place in entries)
        return f"CASE {cases} END" if cases else "CAST(NULL AS BIGINT)"
    middle = len(entries) // 2
    below, above = _searched(value, entries[:middle]), _searched(value, entries[middle:])
    return f"CASE WHEN {value.sql} < {entries[middle][1]} THEN {below} ELSE {above} END"
