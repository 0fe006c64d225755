"""Scalar expressions of a source: each one checked against a list of what is allowed, resolved, and made total."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlglot import exp

from dpsql.algebra.parts import INTERVALS, SPANS
from dpsql.algebra.pieces import call, paren, try_cast
from dpsql.source.calls import Calls
from dpsql.source.functions import guard_temporal, not_zero
from dpsql.source.intervals import interval_of, whole_of
from dpsql.source.kernel import (
    DECIMAL_ARITHMETIC,
    FLOATS,
    INTEGERS,
    TEMPORAL,
    TEXT,
    decimal_result,
    decimal_width,
    digits,
    family,
    is_number,
    try_cast_is_listed,
)
from dpsql.source.model import identifier, refuse
from dpsql.source.parse import render, used
from dpsql.source.patterns import check_pattern
from dpsql.source.scope import Scope
from dpsql.source.total import declare, is_total, literal_digits, mark, sooner

REASONS: dict[type[exp.Expression], tuple[str, str]] = {
    exp.Window: ("a window function", "its value depends on other rows"),
    exp.Subquery: ("a scalar subquery", "its value depends on other rows; join a public table on its key instead"),
    exp.Select: ("a subquery", "its value depends on other rows; join a public table on its key instead"),
    exp.Exists: ("EXISTS", "its value depends on other rows; join a public table on its key instead"),
    exp.Any: ("ANY", "its value depends on other rows; list the values: IN (...)"),
    exp.All: ("ALL", "its value depends on other rows"),
    exp.Lambda: ("a lambda", "not on the list of what a source may compute"),
    exp.Comprehension: ("a list comprehension", "not on the list of what a source may compute"),
    exp.Placeholder: ("a parameter", "write the value into the text"),
    exp.Parameter: ("a parameter", "write the value into the text"),
    exp.Star: ("*", "it stands for columns only in the list after SELECT, on its own"),
    exp.Filter: ("FILTER", "an aggregate mixes rows"),
    exp.Collate: ("COLLATE", "compare lower(...) instead"),
    exp.Interval: ("INTERVAL", "it may only be added to or subtracted from a date or timestamp, as in d + INTERVAL 1 DAY"),
}
_NOT_LISTED = "not on the list of what a source may compute; prepare the column in the table itself"
_CONNECTIVES = (exp.And, exp.Or, exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ, exp.DPipe)
_COMPARED = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Between)
_MATCHING = (exp.Like, exp.ILike)
_ARITHMETIC = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod)
_ROOM = 3_660_000  # days that may be added to a date within the guarded years: far inside the range of TIMESTAMP


class Rewriter:
    """Turns the expressions of one SELECT into total expressions over the generated names."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self._call = Calls(scope, self, self._arithmetic)
        # the first that fits; a node of no listed class is refused
        self._handlers: list[tuple[type[exp.Expression] | tuple[type[exp.Expression], ...], Callable[..., exp.Expression]]] = [
            (exp.Column, self._column),
            (exp.Literal, lambda node: node.copy()),
            (exp.RawString, lambda node: exp.Literal.string(node.name)),
            ((exp.Null, exp.Boolean), lambda node: node.copy()),
            (exp.Paren, self._paren),
            (exp.Not, lambda node: exp.Not(this=paren(self(node.this)))),
            (exp.Neg, self._negative),
            (_CONNECTIVES, self._binary),
            (_MATCHING, self._matching),
            (_ARITHMETIC, self._arithmetic),
            (exp.Is, self._is),
            (exp.Between, self._between),
            (exp.In, self._in),
            (exp.Case, self._case),
            ((exp.Cast, exp.TryCast), self._cast),
            (exp.Extract, self._extract),
            (exp.AtTimeZone, lambda node: self._call(call("timezone", node.args["zone"].copy(), node.this.copy()), at=node)),
            (exp.Bracket, self._bracket),
            (exp.Anonymous, self._call),
            (exp.ArrayOverlaps, lambda node: self._call(call("list_has_any", node.this, node.expression), at=node)),
            (exp.ArrayContainsAll, lambda node: self._call(call("list_has_all", node.this, node.expression), at=node)),
            (exp.Pow, lambda node: self._call(exp.Anonymous(this="power", expressions=[node.this, node.expression]))),
            (exp.Dot, self._qualified),
        ]

    def __call__(self, node: exp.Expression) -> exp.Expression:
        """Return the rewritten expression.

        Raises
        ------
        UnsupportedQuery, ArgumentError
        """
        for kind, handler in self._handlers:
            # exact classes: a subclass may mean something else (TRY_CAST is a subclass of CAST and listed)
            if type(node) in (kind if isinstance(kind, tuple) else (kind,)):
                out = handler(node)
                mark(out, self.scope.column_type)
                return out
        return self._refuse(node)

    def _refuse(self, node: exp.Expression) -> exp.Expression:
        construct, reason = REASONS.get(type(node), (node.key.upper().replace("_", " "), _NOT_LISTED))
        if node.key.startswith(("current", "local", "session")):
            construct, reason = render(node), "it changes from call to call; write the value into the text"
        refuse(construct, reason, node, self.scope.where)

    def _keys(self, node: exp.Expression, *allowed: str) -> None:
        """Refuse a node with any argument beyond those that its handler looks at."""
        for key in used(node):
            if key not in allowed:
                refuse(f"{node.key.upper()} with {key.upper().replace('_', ' ')}", _NOT_LISTED, node, self.scope.where)

    def _column(self, node: exp.Column) -> exp.Expression:
        if isinstance(node.this, exp.Star):
            return self._refuse(node.this)
        item, column, fields = self.scope.resolve(node)
        out: exp.Expression = exp.Column(this=identifier(column.ref), table=identifier(item.alias))
        if column.collated:  # bytes are compared, whatever a collation calls equal
            out = call("decode", call("encode", out))
        for name in fields:
            out = call("struct_extract", out, exp.Literal.string(name))
        return out

    def _paren(self, node: exp.Paren) -> exp.Expression:
        self._keys(node, "this")
        return paren(self(node.this))

    def _binary(self, node: exp.Binary) -> exp.Expression:
        self._keys(node, "this", "expression", "safe")
        for side in (node.this, node.expression):
            if isinstance(side, exp.Any | exp.All):
                self._refuse(side)
        if isinstance(node, exp.DPipe):
            return self._call.joined("||", [self(node.this), self(node.expression)], node)
        span = self._span(node)
        if span is not None:
            return self(span)
        left, right = self.alike(node, [self(node.this), self(node.expression)])
        return type(node)(this=paren(left), expression=paren(right))

    def _span(self, node: exp.Binary) -> exp.Expression | None:
        """Return ``a - b > INTERVAL 1 DAY`` as a number of microseconds, as DuckDB compares them: a month has 30 days there."""
        for moments, other in (("this", "expression"), ("expression", "this")):
            less, interval = node.args[moments].unnest(), interval_of(node.args[other])
            unit = interval.args.get("unit") if interval is not None else None
            size = SPANS.get(unit.name.lower().removesuffix("s")) if isinstance(unit, exp.Var) else None
            if interval is None or size is None or not isinstance(less, exp.Sub) or (amount := whole_of(interval)) is None:
                continue
            if {self.scope.type_of(self(side)) for side in (less.this, less.expression)} - {"DATE"} != {"TIMESTAMP"}:
                continue
            asked = {moments: call("date_diff", exp.Literal.string("microsecond"), less.expression.copy(), less.this.copy())}
            asked[other] = exp.Literal.number(abs(amount) * size)
            if amount < 0:
                asked[other] = exp.Neg(this=asked[other])
            return type(node)(**asked)
        return None

    def alike(self, node: exp.Expression, sides: list[exp.Expression]) -> list[exp.Expression]:
        """Return what is compared, dates as timestamps where one of them is one: as DuckDB does, which fails out of range."""
        computed = any(True for _ in node.find_all(exp.Interval, exp.Cast, exp.Anonymous))
        if not isinstance(node, _COMPARED) or not (computed or all(isinstance(side, exp.Column) for side in sides)):
            return sides
        types = [self.scope.type_of(side) for side in sides]
        if set(types) != {"DATE", "TIMESTAMP"}:
            return sides
        return [try_cast(side, "TIMESTAMP") if kind == "DATE" else side for side, kind in zip(sides, types, strict=True)]

    def _matching(self, node: exp.Binary) -> exp.Expression:
        self._keys(node, "this", "expression", "negate")
        if isinstance(node.expression, exp.Any | exp.All):
            self._refuse(node.expression)
        if not isinstance(node.expression, exp.Null):
            check_pattern(node, self.scope.where)
        out = type(node)(this=paren(self(node.this)), expression=paren(self(node.expression)))
        return exp.Not(this=exp.Paren(this=out)) if node.args.get("negate") else out

    def _is(self, node: exp.Is) -> exp.Expression:
        self._keys(node, "this", "expression")
        if not isinstance(node.expression, exp.Null | exp.Boolean):
            return self._refuse(node)
        return exp.Is(this=paren(self(node.this)), expression=node.expression.copy())

    def _between(self, node: exp.Between) -> exp.Expression:
        self._keys(node, "this", "low", "high")
        names = ("this", "low", "high")
        sides = self.alike(node, [self(node.args[name]) for name in names])
        return exp.Between(**{name: paren(side) for name, side in zip(names, sides, strict=True)})

    def _in(self, node: exp.In) -> exp.Expression:
        if isinstance(node.args.get("field"), exp.Column):  # x IN l, of a column of lists
            return self._call(call("list_contains", node.args["field"].copy(), node.this.copy()), at=node)
        if node.args.get("query") or node.args.get("unnest") or node.args.get("field"):
            refuse("IN (subquery)", "its value depends on other rows; list the values: IN (...)", node, self.scope.where)
        self._keys(node, "this", "expressions")
        return exp.In(this=paren(self(node.this)), expressions=[self(e) for e in node.expressions])

    def _case(self, node: exp.Case) -> exp.Expression:
        self._keys(node, "this", "ifs", "default")
        parts = {k: self(node.args[k]) for k in ("this", "default") if node.args.get(k) is not None}
        ifs = [exp.If(this=self(branch.this), true=self(branch.args["true"])) for branch in node.args["ifs"]]
        return exp.Case(ifs=ifs, **parts)

    def _negative(self, node: exp.Neg) -> exp.Expression:
        # a number with its sign is a constant
        if isinstance(node.this, exp.Literal):
            return node.copy()
        value = self(node.this)
        kind = self.scope.type_of(value)
        if kind in INTEGERS:
            return try_cast(exp.Neg(this=try_cast(value, "HUGEINT")), self.scope.type_of(exp.Neg(this=paren(value.copy()))))
        if kind in FLOATS or decimal_width(kind):
            return exp.Neg(this=paren(value))
        return refuse("-", f"not defined here for {kind}; CAST it to BIGINT or DOUBLE", node, self.scope.where)

    def _arithmetic(self, node: exp.Binary) -> exp.Expression:
        self._keys(node, "this", "expression", "typed", "safe")
        symbol = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.IntDiv: "//", exp.Mod: "%"}[type(node)]
        left = self(node.this)
        left_type = self.scope.type_of(left)
        interval = interval_of(node.expression)
        if interval is not None:
            return self._shift(node, left, left_type, interval)
        right = self(node.expression)
        right_type = self.scope.type_of(right)
        if left_type in TEMPORAL or right_type in TEMPORAL:
            return self._dates(node, (left, right), (left_type, right_type))
        if not (is_number(left_type) and is_number(right_type)):
            refuse(symbol, f"not defined here for {left_type} and {right_type}; CAST both to numbers", node, self.scope.where)
        # the type that DuckDB gives it as it stands decides how it could fail
        kind = self.scope.type_of(type(node)(this=paren(left.copy()), expression=paren(right.copy())))
        if symbol in ("/", "//", "%"):
            right = not_zero(right)
        out = type(node)(this=paren(left), expression=paren(right))
        # 64 bits overflow, 128 do not: calculated there, and NULL where the result does not fit its type
        if left_type in INTEGERS and right_type in INTEGERS and symbol != "/":
            wide = type(node)(this=try_cast(left, "HUGEINT"), expression=try_cast(right, "HUGEINT"))
            return try_cast(wide, kind)
        if kind in FLOATS:
            return out
        # DuckDB raises beyond 18 digits where both sides fit into 64 bits: a wider side prevents it
        if symbol in DECIMAL_ARITHMETIC and decimal_width(kind):
            sizes = self._digits(left), self._digits(right)
            wider = _widened(symbol, (left, right), (left_type, right_type), sizes, kind)
            if wider is not None:
                out = type(node)(this=paren(wider[0]), expression=paren(wider[1]))
                declare(out, self.scope.column_type, self.scope.type_of)
                short = _short((left, right), sizes) if symbol == "*" and wider[0] is not left and is_total(out) else None
                if short is None:
                    return out
                wide = self.scope.type_of(out)
                return sooner(try_cast(short, wide), out, wide)
        decimals = decimal_width(left_type) or decimal_width(right_type)
        if symbol in DECIMAL_ARITHMETIC and decimals:  # no DECIMAL holds every result: a number of 53 bits does
            return type(node)(this=paren(try_cast(left, "DOUBLE")), expression=paren(try_cast(right, "DOUBLE")))
        return refuse(symbol, f"it may overflow for {left_type} and {right_type}; CAST both to DOUBLE", node, self.scope.where)

    def _digits(self, node: exp.Expression) -> tuple[int, int] | None:
        """Return how many digits before and after the point a rewritten number has at most: a product those of its factors."""
        if isinstance(node, exp.Paren):
            return self._digits(node.this)
        if isinstance(node, exp.Coalesce) and is_total(node):  # a product, made in fewer digits where these are enough
            return self._digits(node.expressions[0])
        typed = literal_digits(node) or digits(self.scope.type_of(node))
        if typed is None:
            return None
        known: tuple[int, int] | None = None
        if isinstance(node, exp.TryCast) and decimal_width(self.scope.type_of(node)):
            known = self._digits(node.this)
            if known is not None and known[1] > typed[1]:  # the cast rounds, up to one more digit before the point
                known = known[0] + 1, typed[1]
        elif isinstance(node, exp.Mul):
            sides = self._digits(node.this), self._digits(node.expression)
            known = None if sides[0] is None or sides[1] is None else decimal_result("*", sides[0], sides[1])
        return typed if known is None else (min(known[0], typed[0]), min(known[1], typed[1]))

    def _shift(self, node: exp.Binary, value: exp.Expression, kind: str, interval: exp.Interval) -> exp.Expression:
        """Date or timestamp plus or minus a constant interval."""
        amount, unit = whole_of(interval), interval.args.get("unit")
        name = unit.name.lower().removesuffix("s") if isinstance(unit, exp.Var) else ""
        size = None if amount is None else abs(amount)
        if size is None or name not in INTERVALS or size * INTERVALS[name] > _ROOM or type(node) not in (exp.Add, exp.Sub):
            advice = f"write d + INTERVAL n UNIT with a whole number n and one of {sorted(INTERVALS)!r}"
            refuse("INTERVAL", advice, node, self.scope.where)
        if kind not in TEMPORAL:
            refuse("INTERVAL", f"it can't be added to {kind}; CAST it to TIMESTAMP", node, self.scope.where)
        step = exp.Literal.string(f"{amount} {name}")
        interval_type = exp.DataType.build("INTERVAL", dialect="duckdb")
        return type(node)(this=paren(guard_temporal(value, kind)), expression=exp.Cast(this=step, to=interval_type))

    def _dates(self, node: exp.Binary, sides: tuple[exp.Expression, exp.Expression], types: tuple[str, str]) -> exp.Expression:
        """DATE + days, DATE - days, DATE - DATE."""
        (left, right), (left_type, right_type) = sides, types
        if type(node) is exp.Sub and left_type == right_type == "DATE":
            left, right = (guard_temporal(side, "DATE", finite=True) for side in (left, right))  # of infinities it is made up
            return exp.Sub(this=paren(left), expression=paren(right))
        days = right.name if isinstance(right, exp.Literal) and not right.is_string else ""
        if type(node) in (exp.Add, exp.Sub) and left_type == "DATE" and days.isdigit() and int(days) <= _ROOM:
            return type(node)(this=paren(guard_temporal(left, "DATE")), expression=right)
        return refuse(
            node.key.upper(),
            f"not defined here for {left_type} and {right_type}; write date_diff('day', a, b), d + INTERVAL 1 DAY or DATE - DATE",
            node,
            self.scope.where,
        )

    def _cast(self, node: exp.Cast) -> exp.Expression:
        self._keys(node, "this", "to", "safe", "requires_string")
        target = self._type(node.args["to"])
        if isinstance(node.this, exp.Literal | exp.Null):
            return type(node)(this=node.this.copy(), to=target)
        value = self(node.this)
        kind = self.scope.type_of(value)
        to = self.scope.type_of(exp.Cast(this=exp.Null(), to=target.copy()))
        if kind in TEMPORAL:
            if not try_cast_is_listed(kind, to):
                refuse("CAST", f"{kind} to {to} is not on the list; date_part or date_diff gives a number", node, self.scope.where)
            return try_cast(guard_temporal(value, kind), target)
        if family(kind) == "ENUM" and to != TEXT:
            kind, value = TEXT, try_cast(value, TEXT)
        if try_cast_is_listed(kind, to):
            return try_cast(value, target)
        return refuse("CAST", f"{kind} to {to} is not on the list", node, self.scope.where)

    def _type(self, node: exp.DataType) -> exp.DataType:
        """Return the type of a CAST: a plain scalar one, or the labels of an ENUM written out."""
        plain = {
            "BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "UTINYINT", "USMALLINT", "UINT", "UBIGINT", "INT128", "FLOAT",
            "DOUBLE", "DECIMAL", "VARCHAR", "TEXT", "DATE", "TIME", "TIMESTAMP", "TIMESTAMPNTZ", "UUID", "ENUM", "TIMESTAMPTZ",
        }
        if isinstance(node, exp.DataType) and node.this.value in plain:
            return node.copy()
        # labels are written out: the type may be changed before the text runs
        if isinstance(node, exp.DataType) and node.this == exp.DataType.Type.USERDEFINED:
            kind = node.args.get("kind")
            parts = [p.name for p in exp.to_table(kind, dialect="duckdb").parts] if isinstance(kind, str) else [kind.name]
            labels = self.scope.catalog.enum_labels(parts, self.scope.homes)
            if labels is not None:
                return exp.DataType(this=exp.DataType.Type.ENUM, expressions=[exp.Literal.string(label) for label in labels])
        return refuse(f"CAST to {render(node)}", "use a plain type or an ENUM", node, self.scope.where)

    def _extract(self, node: exp.Extract) -> exp.Expression:
        self._keys(node, "this", "expression")
        part = exp.Literal.string(node.this.name.lower())
        return self._call(call("date_part", part, node.expression.copy()), at=node)

    def _bracket(self, node: exp.Bracket) -> exp.Expression:
        self._keys(node, "this", "expressions", "offset")
        index = node.expressions[0] if len(node.expressions) == 1 else None
        value = self(node.this)
        kind = self.scope.type_of(value)
        if isinstance(index, exp.Literal) and index.is_string and kind.startswith("STRUCT("):
            return call("struct_extract", value, index.copy())
        if isinstance(index, exp.Literal) and not index.is_string and kind.endswith("[]") and index.name.isdigit():
            # sqlglot counts from 0
            return call("list_extract", value, exp.Literal.number(int(index.name) + 1))
        return refuse("[ ]", "only list[1] with a whole number and struct['field'] are on the list", node, self.scope.where)

    def _qualified(self, node: exp.Dot) -> exp.Expression:
        """``main.trim(x)``, as DuckDB 1 stores calls in views; whether trim is DuckDB's own is checked for every call."""
        owner = node.this.sql(dialect="duckdb").replace('"', "").lower()
        if isinstance(node.expression, exp.Anonymous) and owner in ("main", "system.main"):
            return self._call(node.expression)
        return self._refuse(node)


def _widened(
    symbol: str, sides: tuple[exp.Expression, exp.Expression], types: tuple[str, str], sizes: tuple[_Digits, _Digits], kind: str
) -> Sequence[exp.Expression] | None:
    """Return the sides of DECIMAL arithmetic such that DuckDB keeps every digit of the result; None if 38 digits are too few.

    They stay as they are where ``kind``, the type that DuckDB gives the result, holds what their types hold. ``sizes``: the digits
    that each side has at most, which may be fewer than those of its type.
    """
    room = digits(kind)
    typed = [literal_digits(side) or digits(sql_type) for side, sql_type in zip(sides, types, strict=True)]
    if sizes[0] is None or sizes[1] is None or typed[0] is None or typed[1] is None or room is None:
        return None
    before, after = decimal_result(symbol, typed[0], typed[1])
    if before <= room[0] and after <= room[1]:
        return sides
    before, after = decimal_result(symbol, sizes[0], sizes[1])
    if before + after > 38:
        return None
    if symbol == "*":  # the widths are added, but to 18 where both fit into 64 bits: one of them must not
        second = max(sum(sizes[1]), 1)
        widths, scales = [max(sum(sizes[0]), 38 - second), second], [sizes[0][1], sizes[1][1]]
    else:
        widths, scales = [before + after] * 2, [after] * 2
    return [try_cast(side, f"DECIMAL({w}, {s})") for side, w, s in zip(sides, widths, scales, strict=True)]


def _short(sides: tuple[exp.Expression, exp.Expression], sizes: tuple[_Digits, _Digits]) -> exp.Expression | None:
    """Return a product of 64 bits: NULL where a side has more digits before the point than half of what is left for them."""
    if sizes[0] is None or sizes[1] is None or sum(len(list(side.find_all(exp.Coalesce))) for side in sides) > 1:
        return None
    # what is left of 18 digits before the points is shared between the two
    left = _SHORT - sizes[0][1] - sizes[1][1]
    if left < 4:
        return None
    second = min(sizes[1][0], left // 2)
    before = (min(sizes[0][0], left - second), second)
    typed = [f"DECIMAL({max(b + f[1], 1)}, {f[1]})" for b, f in zip(before, (sizes[0], sizes[1]), strict=True)]
    return exp.Mul(this=try_cast(sides[0].copy(), typed[0]), expression=try_cast(sides[1].copy(), typed[1]))


_SHORT = 18
"""Digits of a DECIMAL that DuckDB computes with in 64 bits."""
_Digits = tuple[int, int] | None
"""Digits before and after the point."""
