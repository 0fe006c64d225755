"""Calls of functions in a source: arguments brought into the types of the kernel, constants tried, texts kept short."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import duckdb
from sqlglot import exp

from dpsql.algebra.function_rules import MOST_TENS
from dpsql.algebra.functions import FUNCTIONS, LISTED, NAMED_FIRST
from dpsql.algebra.parts import CLOCK
from dpsql.algebra.pieces import call, paren, try_cast
from dpsql.errors import first_line
from dpsql.source.catalog import shipped_kinds
from dpsql.source.functions import cut, guard_number, guard_temporal
from dpsql.source.kernel import (
    CONSTANTS,
    FLOATS,
    INTEGERS,
    KINDS,
    LARGEST_LITERAL,
    LIST_OF_PARTS,
    MOST_GROWTH,
    TEMPORAL,
    TEXT,
    TO_TEXT,
    decimal_size,
    decimal_width,
    family,
    is_number,
)
from dpsql.source.model import refuse
from dpsql.source.parse import JSON_WAY, LIST_WAY, render, used
from dpsql.source.scope import Scope
from dpsql.source.total import declare_call, declare_guarded
from dpsql.source.tuples import TOGETHER, together

_NOT_LISTED = "not on the list of what a source may compute; prepare the column in the table itself"
_INSTEAD = {
    "age": "write date_sub('year', b, a), which counts the complete years from b to a, or date_diff, which counts their beginnings",
    "json_extract": JSON_WAY,
    "time_bucket": "answered of one day, week, month, quarter or year, and of seconds, minutes, hours or months that divide a "
    "minute, an hour, a day or a year; others are numbered by date_diff('day', DATE '2000-01-03', d) // 14",
    "unnest": f"it makes several rows of one: {LIST_WAY}; or name them "
    "(list_contains(l, 'a'), l[1]), or make a linked table of them",
}
_INSTEAD |= dict.fromkeys(("json_extract_string", "json_extract_path", "json_extract_path_text", "json_value"), JSON_WAY)
_OF_SEVERAL = dict.fromkeys(("list_has_any", "array_has_any"), exp.or_)
_OF_SEVERAL |= dict.fromkeys(("list_has_all", "array_has_all"), exp.and_)
_LENGTHS = frozenset({"len", "length"})
_SAMPLES = {
    TEXT: ("'a'", "''", "'é1'", "'2020-01-01'"),
    "DATE": ("DATE '2020-02-29'",),
    "TIMESTAMP": ("TIMESTAMP '2020-02-29 12:34:56.789'",),
    "TIMESTAMP WITH TIME ZONE": ("TIMESTAMPTZ '2020-02-29 12:34:56+00'",),
}
"""Values on which a call's constants (pattern, format, ...) are tried before anything is charged."""


def _elements(node: exp.Expression) -> list[exp.Expression] | None:
    """Return the elements of a list, as users write it, or as DuckDB writes it into a view; None of anything else."""
    made = node.expression if isinstance(node, exp.Dot) and node.this.name.lower() in ("main", "system") else node
    is_made = isinstance(made, exp.Anonymous) and str(made.this).lower() == "list_value"
    return list(made.expressions) if is_made or isinstance(node, exp.Array) else None


class Calls:
    """Rewrites the function calls of one SELECT.

    Parameters
    ----------
    scope : Scope
    rewrite : callable
        Rewrites an argument.
    arithmetic : callable
        Rewrites a binary operator.
    """

    def __init__(
        self, scope: Scope, rewrite: Callable[[exp.Expression], exp.Expression], arithmetic: Callable[[exp.Binary], exp.Expression]
    ) -> None:
        self.scope, self.rewrite, self.arithmetic = scope, rewrite, arithmetic

    def __call__(self, node: exp.Anonymous, at: exp.Expression | None = None) -> exp.Expression:
        """Return the rewritten call; ``at`` is what messages point to.

        Raises
        ------
        UnsupportedQuery
        """
        at = at or node
        name = (node.this if isinstance(node.this, str) else node.this.name).lower()
        if name == "try" and len(node.expressions) == 1:
            return self.rewrite(node.expressions[0])  # every expression of a source stands in a TRY already
        if name == TOGETHER:
            return together([self.rewrite(argument) for argument in node.expressions], self.scope, at)
        # the lists decide: what is not on them is refused, whatever it does
        spec = FUNCTIONS.get(name)
        if name in _LENGTHS and len(node.expressions) == 1 and self._is_list(node.expressions[0]):
            name, spec = "array_length", FUNCTIONS["array_length"]
        if name == "contains" and len(node.expressions) == 2 and self._is_list(node.expressions[0]):
            name, spec = "list_contains", FUNCTIONS["list_contains"]
        if name in _OF_SEVERAL and len(node.expressions) == 2 and (elements := _elements(node.expressions[1])) is not None:
            return self._several(name, node.expressions[0], elements, at)
        if spec is None:
            kind = shipped_kinds().get(name, "unknown")
            reason = {
                "aggregate": "an aggregate mixes rows",
                "window": "a window function: its value depends on other rows",
                "unknown": "not a function of DuckDB: macros and functions of users are not looked into; write the expression out",
            }.get(kind, _INSTEAD.get(name, _NOT_LISTED))
            refuse(f"{name or render(node)}()", reason, at, self.scope.where)
        for key in used(node):
            if key not in ("this", "expressions"):
                refuse(f"{name}() with {key.upper().replace('_', ' ')}", _NOT_LISTED, node, self.scope.where)
        arguments = node.expressions
        kinds = spec.kinds_of(len(arguments))
        if not spec.takes(len(arguments)):
            refuse(f"{name}()", f"takes {spec.least} to {len(spec.kinds)} arguments here", at, self.scope.where)
        if spec.unit and arguments[0].is_string and arguments[0].name.lower() not in NAMED_FIRST[spec.unit]:
            refuse(f"{name}('{arguments[0].name}')", f"the parts are {sorted(NAMED_FIRST[spec.unit])!r}", at, self.scope.where)
        if name == "mod":
            return self.arithmetic(exp.Mod(this=arguments[0].copy(), expression=arguments[1].copy()))
        # parts of a date need a date, parts of a clock take a time of day too
        part = arguments[0].name.lower() if spec.unit == "part" else ""
        values = [self._argument(name, k, a, part) for k, a in zip(kinds, arguments, strict=False)]
        if spec.kinds == "stt":  # a date next to a timestamp: within the guarded years the conversion can't fail
            types = [self.scope.type_of(v) for v in values[1:]]
            if sorted(types) == ["DATE", "TIMESTAMP"]:
                values[1:] = [try_cast(v, "TIMESTAMP") if t == "DATE" else v for v, t in zip(values[1:], types, strict=True)]
        # all arguments are guarded from here on
        out = self._written(name, values, at)
        if spec.total:
            declare_call(out, values[-1], spec.total, self.scope.type_of)
        # a bad pattern or format fails while it is prepared, where no TRY catches it
        if "s" in spec.kinds and "r" not in spec.kinds and not spec.unit:
            self._try_constants(name, values, kinds, at)
        return self._kept_short(name, out, values, at) if spec.text else out

    def _several(self, name: str, values: exp.Expression, asked: Sequence[exp.Expression], at: exp.Expression) -> exp.Expression:
        """Return whether a list has any or all of some constants, asked for one by one."""
        if not asked or not all(isinstance(one, exp.Literal) for one in asked):
            refuse(f"{name}()", "its second list must be of constants, written out", at, self.scope.where)
        each = [call("list_contains", values.copy(), one.copy()) for one in asked]
        return self.rewrite(exp.Paren(this=_OF_SEVERAL[name](*each, copy=False)))

    def _is_list(self, node: exp.Expression) -> bool:
        return isinstance(node, exp.Column) and family(self.scope.type_of(self.rewrite(node))) == "LIST"

    # -- arguments --------------------------------------------------------------------------------------------------------

    def _argument(self, name: str, kind: str, node: exp.Expression, part: str) -> exp.Expression:
        """Return an argument in a type that the kernel lists for its kind, guarded where the kind says so."""
        if kind in CONSTANTS:
            return self._constant(name, kind, node)
        value = self.rewrite(node)
        sql_type = self.scope.type_of(value)
        if kind == "z" and sql_type == "DATE":  # midnight, on every version
            value, sql_type = try_cast(guard_temporal(value, sql_type), "TIMESTAMP"), "TIMESTAMP"
        if kind in "tvz" or (kind == "b" and sql_type in TEMPORAL):
            return self._moment(name, kind, value, sql_type, part, node)
        if kind in "xw":
            if sql_type != TEXT and not isinstance(value, exp.Null):
                if family(sql_type) not in TO_TEXT:
                    refuse(f"{name}()", f"needs a text, not {sql_type}; CAST it", node, self.scope.where)
                value = try_cast(guard_temporal(value, sql_type) if sql_type in TEMPORAL else value, TEXT)
            return self._short(value) if kind == "x" else value
        if kind in "ckylr":
            return value  # one type for all of them: the check of the plan sees it
        if not is_number(sql_type) and not isinstance(value, exp.Null):
            refuse(f"{name}()", f"needs a number, not {sql_type}; CAST it", node, self.scope.where)
        if family(sql_type) not in KINDS[kind] and kind != "h":
            value = try_cast(value, "DOUBLE")
        return guard_number(value, kind)

    def _moment(
        self, name: str, kind: str, value: exp.Expression, sql_type: str, part: str, node: exp.Expression
    ) -> exp.Expression:
        """Return a date, timestamp or time of day, NULL where functions of it may overflow."""
        if sql_type in TEMPORAL:
            if kind == "b":
                return value
            guarded = guard_temporal(value, sql_type)
            declare_guarded(guarded, value, sql_type, self.scope.column_type)
            return guarded
        if sql_type == "TIME" and kind == "v" and (not part or part in CLOCK):
            return value
        return refuse(f"{name}()", f"needs a DATE or TIMESTAMP, not {sql_type}; CAST it", node, self.scope.where)

    def _constant(self, name: str, kind: str, node: exp.Expression) -> exp.Expression:
        inner = node.this if kind == "i" and isinstance(node, exp.Neg) else node
        right_kind = isinstance(inner, exp.Literal) and inner.is_string == (kind == "s")
        if right_kind and (kind == "s" or (inner.name.isdigit() and int(inner.name) <= LARGEST_LITERAL)):
            return node.copy()
        needed = "a string" if kind == "s" else f"a whole number up to {LARGEST_LITERAL}"
        return refuse(f"{name}()", f"this argument must be {needed}, written out", node, self.scope.where)

    def _try_constants(self, name: str, values: Sequence[exp.Expression], kinds: str, at: exp.Expression) -> None:
        """Run a call with its constants once, on values that are nobody's: a bad pattern or format fails here, for everybody."""
        place = next((i for i, k in enumerate(kinds) if k not in CONSTANTS), None)
        if place is None:
            return
        sql_type = self.scope.type_of(values[place])
        samples = _SAMPLES.get(sql_type, _SAMPLES[TEXT])
        column = exp.Column(this=exp.to_identifier("v"))
        inputs = [v if k in CONSTANTS else column.copy() for k, v in zip(kinds, values, strict=False)]
        listed = ", ".join(("NULL", *samples))
        try:
            tried = render(self._written(name, inputs, at))
            query = f"SELECT {tried} FROM (SELECT system.main.unnest([{listed}]) AS v)"  # noqa: S608 -- rendered tree
            self.scope.catalog.run(query)
        except duckdb.Error as error:
            refuse(f"{name}()", f"DuckDB does not accept its constants: {first_line(error)}", at, self.scope.where)

    # -- texts ------------------------------------------------------------------------------------------------------------

    def joined(self, name: str, values: list[exp.Expression], at: exp.Expression) -> exp.Expression:
        """Return ``a || b``, of texts."""
        for i, value in enumerate(values):
            sql_type = self.scope.type_of(value)
            if sql_type != TEXT and not isinstance(value, exp.Null):
                if family(sql_type) not in TO_TEXT:
                    refuse(name, f"joins texts, not {sql_type}; CAST it", at, self.scope.where)
                value = try_cast(guard_temporal(value, sql_type) if sql_type in TEMPORAL else value, TEXT)
            values[i] = self._short(value)
        out = exp.DPipe(this=paren(values[0]), expression=paren(values[1]))
        return self._kept_short(name, out, values, at)

    @property
    def _longest(self) -> int:
        return self.scope.texts.longest

    def _short(self, value: exp.Expression) -> exp.Expression:
        """Return a text cut to the longest that a source computes with, unless it is that short by what it is."""
        return value if _is_made(value) or isinstance(value, exp.Null) else cut(value, self._longest)

    def _kept_short(self, name: str, out: exp.Expression, values: Sequence[exp.Expression], at: exp.Expression) -> exp.Expression:
        """Count the text that a call makes, and cut it where it may be longer than others."""
        most = self._result(name, values, at)
        parts = LIST_OF_PARTS * self._longest if LISTED[name].parts else 0
        self.scope.texts.take(most + parts, f"{name}()", at, self.scope.where)
        return out if most <= self._longest else cut(out if isinstance(out, exp.Anonymous) else paren(out), self._longest)

    def _result(self, name: str, values: Sequence[exp.Expression], at: exp.Expression) -> int:
        """Return how many characters a call's result can have."""
        if name == "replace":
            return self._longest * self._growth(name, len(values[1].name), len(values[2].name), at)
        if name == "regexp_replace":
            return (self._longest + 1) * (1 + self._growth(name, 1, len(values[2].name), at))
        rule = LISTED[name].length
        return self._longest if rule is None else int(rule(self._most, values))

    def _most(self, value: exp.Expression) -> float:
        """Return how many characters a rewritten text has at most; one that is only looked at may have more than are copied."""
        if isinstance(value, exp.Literal):
            return len(value.name)
        return self._longest if _is_made(value) or isinstance(value, exp.Null) else self._longest + 1

    def _growth(self, name: str, old: int, new: int, at: exp.Expression) -> int:
        """Return how many times longer a text becomes at most; refuse what makes long texts of short ones."""
        if new > MOST_GROWTH * max(old, 1):
            refuse(f"{name}()", f"a replacement may have {MOST_GROWTH} characters for each that it replaces", at, self.scope.where)
        return max(1, -(-new // max(old, 1)))

    # -- calls that are written otherwise ---------------------------------------------------------------------------------

    def _written(self, name: str, arguments: list[exp.Expression], at: exp.Expression) -> exp.Expression:
        """Return the call; functions that are macros in some version, or total only in another form, are written out."""
        if name == "abs" and (kind := self.scope.type_of(arguments[0])) not in FLOATS and not decimal_width(kind):
            if kind not in INTEGERS:
                refuse("abs()", f"not defined here for {kind}; CAST it to BIGINT or DOUBLE", at, self.scope.where)
            return try_cast(call("abs", try_cast(arguments[0], "HUGEINT")), kind)
        if name in ("round", "trunc") and len(arguments) > 1 and isinstance(arguments[1], exp.Neg):
            return self._tens(name, arguments[0], arguments[1], at)
        if name.startswith("regexp_") and "\\C" in arguments[1].name:
            refuse(f"{name}()", "no \\C in a pattern: it cuts letters into bytes, which are no text any more", at, self.scope.where)
        if name == "regexp_replace" and "\\" in arguments[2].name:
            refuse("regexp_replace()", "no backslash in the replacement: it may raise at a match", at, self.scope.where)
        syntax = FUNCTIONS[name].syntax
        return call(name, *arguments) if syntax is None else syntax(arguments)

    def _tens(self, name: str, value: exp.Expression, digits: exp.Expression, at: exp.Expression) -> exp.Expression:
        """Return a number rounded to tens, hundreds, ...: NULL where that leaves the type, which wraps around in DuckDB 1."""
        kind = self.scope.type_of(value)
        if int(digits.this.name) > MOST_TENS:
            refuse(f"{name}()", f"at most {MOST_TENS} digits before the point", at, self.scope.where)
        if name == "trunc" or kind in FLOATS:
            return call(name, value, digits)
        width, scale = decimal_size(kind)
        if (kind not in INTEGERS and width is None) or width == 38:
            refuse("round()", f"of {kind} to tens: CAST it to BIGINT or DOUBLE", at, self.scope.where)
        # types of whole numbers are DuckDB's own
        target = f"DECIMAL({width - scale + 1},0)" if width else "BIGINT" if kind.startswith("U") else kind
        return try_cast(call("round", try_cast(value, f"DECIMAL(38,{scale})"), digits), target)


def _is_made(value: exp.Expression) -> bool:
    """Whether a value is a text that a function made, and so short."""
    function = FUNCTIONS.get(value.this) if isinstance(value, exp.Anonymous) else None
    return function is not None and function.text
