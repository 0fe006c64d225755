"""The table of functions: all that is known of each function that a source may compute. A function: here, and nowhere else.

What a text may call, which types make it total, bounds of its values, when it is NULL, how long its texts are, how finely it looks
at a moment, and what it is written out as: every set of names elsewhere is made of this table (`tests/unit/test_algebra.py`). A
line is enough for a new one; `tests/privacy/test_kernel_generator.py` tries it on extreme values under every setting.

Privacy: none; nothing in here has seen data. A function is listed only if it is a value of its arguments alone, for which no value
of the listed types makes it fail once the arguments are guarded as their kind says (`dpsql.source.kernel`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from sqlglot import exp

from dpsql.algebra import function_rules as rules
from dpsql.algebra import moments
from dpsql.algebra.function_rules import Extent, Length, Rule, Syntax, on_first
from dpsql.algebra.parts import PARTS, UNITS
from dpsql.algebra.pieces import call
from dpsql.algebra.ranges import INF, Range, absolute


@dataclass(frozen=True)
class Function:
    """What is known of a function.

    Parameters
    ----------
    name : str
        The one of its spellings by which it is known here.
    kinds, least, many
        A letter of `dpsql.source.kernel.KINDS` for each argument: those from ``least`` on may be left out, the last repeated if
        ``many``.
    text : bool
        Whether it gives a new text, whose length counts; ``length``: how many characters that has, where less than any text may.
    range : callable, optional
        Range of its values from those of its arguments; without it nothing is known.
    null : {'', 'first', 'all'}
        Where it is NULL: where its first argument is, where all are, or ('') not known.
    grain : {'', 'day', 'hour', 'minute', 'second'}
        The unit whose beginnings stand for all moments that it is called with.
    grid : bool
        Whether its values are multiples of a power of ten, which the second argument says.
    unit : {'', 'part', 'unit'}
        What the first argument names: a part of a moment, or a unit to which moments may be truncated.
    syntax : callable, optional
        What a call is written out as, where some version of DuckDB has a macro of that name, or it is total only in another form.
    by : {'text', 'plan', 'unit', 'frame'}
        Who may call it: a text; only DuckDB's binder; layers that combine the rows of a unit; what any source may stand in.
    total : tuple of str
        Types of a guarded moment of which it has a value, or NULL, whatever the row: of these it stands without a ``TRY``
        (`dpsql.source.total`; `tests/privacy/test_total.py` tries each).
    always : bool
        Whether syntax calls it without naming it: never to be overloaded or shadowed by a user's, named or not.
    parts : bool
        Whether it makes a list of all parts of a text on its way.
    """

    name: str
    kinds: str
    least: int
    many: bool = False
    text: bool = False
    range: Rule | None = None
    null: Literal["", "first", "all"] = ""
    grain: str = ""
    length: Length | None = None
    grid: bool = False
    unit: Literal["", "part", "unit"] = ""
    syntax: Syntax | None = None
    by: Literal["text", "plan", "unit", "frame"] = "text"
    total: tuple[str, ...] = ()
    always: bool = False
    parts: bool = False

    def takes(self, number: int) -> bool:
        """Return whether it may have so many arguments."""
        return self.least <= number and (self.many or number <= len(self.kinds))

    def kinds_of(self, number: int) -> str:
        """Return the kinds of so many arguments, or of all that it may have."""
        return self.kinds + self.kinds[-1:] * (number - len(self.kinds) if self.many else 0)


def _of(kinds: str, names: str, least: int | None = None, **known: object) -> dict[str, Function]:
    """Return functions that are alike: names of different ones with blanks between them, spellings of one with =."""
    out = {}
    for spellings in names.split():
        first, *others = spellings.split("=")
        function = Function(first, kinds, len(kinds) if least is None else least, **known)  # type: ignore[arg-type]
        out.update(dict.fromkeys((first, *others), function))
    return out


_CALENDAR = ("DATE", "TIMESTAMP")
"""Moments that need no time zone."""


def _fields(kinds: str, names: str) -> dict[str, Function]:
    """Return the functions that are called as parts of a moment are."""
    of = {name: on_first(functools.partial(moments.field, name)) for name in names.split()}
    return {
        name: Function(PARTS[name].name, kinds, 1, range=rule, grain=PARTS[name].grain, total=_CALENDAR)
        for name, rule in of.items()
    }


def _named(arguments: Sequence[exp.Expression]) -> str:
    """Return the part or unit that the first argument names."""
    return arguments[0].name.lower() if isinstance(arguments[0], exp.Literal) else ""


def _written(most: rules.Most, arguments: Sequence[exp.Expression]) -> float:
    """Return how long a moment's text is: two letters of a format become up to 26 (%c)."""
    return 13 * most(arguments[1])


def _largest(most: rules.Most, arguments: Sequence[exp.Expression]) -> float:
    return max(map(most, arguments))


def _separated(most: rules.Most, arguments: Sequence[exp.Expression]) -> float:
    return most(arguments[0]) * len(arguments) + sum(map(most, arguments[1:]))


def _difference(*, complete: bool) -> Rule:
    return lambda of, arguments: moments.difference(_named(arguments), of(arguments[1]), of(arguments[2]), complete=complete)


def _letters(factor: float) -> Rule:
    """Return the rule of a number that grows by so much with each letter of a text."""
    return lambda extent, arguments: Range(0.0, factor * longest(arguments[0]), True, "integer")


TRUTH = rules.fixed(0.0, 1.0, whole=True)
_LETTER = rules.fixed(-1.0, 1_114_111.0, whole=True, sort="integer")
_MOMENT = rules.fixed(-INF, INF, sort="timestamp")

LISTED: dict[str, Function] = {
    # texts
    **_of("x", "lower=lcase upper=ucase strip_accents nfc_normalize", text=True),
    **_of("x", "reverse", text=True, length=lambda most, arguments: most(arguments[0])),
    **_of("w", "sha1", length=lambda most, arguments: 40),
    **_of("w", "md5", length=lambda most, arguments: 32),
    **_of("w", "sha256", length=lambda most, arguments: 64),
    **_of("w", "length=len", range=_letters(1.0), null="first"),
    **_of("w", "char_length=character_length", range=_letters(1.0)),
    **_of("w", "strlen", range=_letters(4.0), null="first"),  # bytes of UTF-8
    **_of("w", "bit_length", range=_letters(32.0)),
    **_of("w", "ascii ord=unicode", range=_LETTER),
    **_of("ww", "contains starts_with=prefix ends_with=suffix", range=TRUTH),
    **_of("ww", "strpos=instr", range=_letters(1.0)),
    **_of("xs", "trim ltrim rtrim", 1, text=True, length=lambda most, arguments: most(arguments[0])),
    **_of("xss", "replace translate", text=True),
    **_of("x", "concat", many=True, text=True, length=lambda most, arguments: sum(map(most, arguments))),
    **_of("sx", "concat_ws", 2, many=True, text=True, length=_separated),
    **_of("wnn", "substring=substr", 2, text=True, length=rules.piece(2)),
    **_of("wi", "left", text=True, length=rules.piece(1), always=True),
    **_of("wi", "right", text=True, length=rules.piece(1)),
    **_of("wss", "regexp_matches regexp_full_match", 2, range=TRUTH),
    **_of("xsss", "regexp_replace", 3, text=True),  # the replacement without a backslash
    **_of("xsn", "regexp_extract", 2, text=True, length=lambda most, arguments: most(arguments[0])),
    **_of("xsn", "split_part", text=True, parts=True, length=lambda most, arguments: most(arguments[0]), syntax=rules.split),
    # numbers
    **_of("h", "abs", range=on_first(absolute)),
    **_of("a", "sign", range=on_first(rules.sign), null="first"),
    **_of("m", "floor", range=rules.rounding(down=True, up=False), null="first", grid=True),
    **_of("m", "ceil=ceiling", range=rules.rounding(down=False, up=True), null="first", grid=True),
    **_of("mi", "round", 1, range=rules.rounding(down=True, up=True), null="first", grid=True),
    **_of("mi", "trunc", 1, range=rules.rounding(down=True, up=True, cut=True), null="first", grid=True),
    **_of("d", "exp", range=rules.increasing(math.exp, limits=(0.0, INF))),
    **_of("d", "cbrt", range=rules.increasing(rules.cube_root)),
    **_of("d", "atan", range=rules.increasing(math.atan, limits=(-math.pi / 2, math.pi / 2))),
    **_of("d", "sinh", range=rules.increasing(math.sinh)),
    **_of("d", "cosh", range=rules.fixed(1.0, INF)),
    **_of("d", "tanh", range=rules.fixed(-1.0, 1.0)),
    **_of("d", "asinh", range=rules.increasing(math.asinh)),
    **_of("d", "signbit", range=TRUTH),
    **_of("d", "degrees", range=rules.increasing(lambda x: x * (180 / math.pi))),
    **_of("d", "radians", range=rules.increasing(lambda x: x * (math.pi / 180))),
    **_of("d", "isnan", range=TRUTH, null="first"),
    **_of("b", "isinf isfinite", range=TRUTH, null="first"),
    **_of("q", "sqrt", range=rules.increasing(math.sqrt, 0.0)),
    **_of("p", "ln", range=rules.increasing(math.log, 0.0)),
    **_of("p", "log=log10", range=rules.increasing(math.log10, 0.0)),
    **_of("p", "log2", range=rules.increasing(math.log2, 0.0)),
    **_of("f", "sin cos", range=rules.fixed(-1.0, 1.0)),
    **_of("f", "tan"),
    **_of("u", "asin", range=rules.fixed(-math.pi / 2, math.pi / 2)),
    **_of("u", "atanh", range=rules.increasing(math.atanh, -1.0)),
    **_of("u", "acos", range=rules.fixed(0.0, math.pi)),
    **_of("dd", "atan2", range=rules.fixed(-math.pi, math.pi)),
    **_of("dd", "power=pow", range=lambda of, arguments: of(exp.Pow(this=arguments[0].copy(), expression=arguments[1].copy()))),
    **_of("aa", "mod", range=lambda of, arguments: of(rules.modulo(arguments)), syntax=rules.modulo),
    **_of("", "pi", range=rules.fixed(math.pi, math.pi)),
    # any comparable value
    **_of("c", "greatest", many=True, range=rules.extreme(most=True), null="all"),
    **_of("c", "least", many=True, range=rules.extreme(most=False), null="all"),
    **_of("c", "coalesce", many=True, range=rules.hulled, null="all", length=_largest, syntax=rules.coalesce),
    **_of("cc", "ifnull", range=rules.hulled, null="all", length=_largest, syntax=rules.coalesce),
    **_of("cc", "nullif", range=on_first(lambda value: value), syntax=rules.nothing_if),
    **_of("ccc", "if", range=lambda of, arguments: of(rules.choice([node.copy() for node in arguments])), syntax=rules.choice),
    # dates and times
    **_fields("v", "hour minute second millisecond microsecond"),
    **_fields("t", "year month day quarter week weekofyear weekday dayofweek isodow dayofmonth dayofyear isoyear yearweek decade"),
    **_fields("t", "century millennium epoch era"),
    **_of("t", "dayname monthname", grain="day", length=lambda most, arguments: 9, total=_CALENDAR),
    **_of("t", "last_day", grain="day", range=on_first(moments.last_day), total=_CALENDAR),
    **_of(
        "sv", "date_part=datepart", range=lambda of, arguments: moments.field(_named(arguments), of(arguments[1])), unit="part",
        total=_CALENDAR,
    ),
    **_of(
        "st", "date_trunc=datetrunc", range=lambda of, arguments: moments.truncated(_named(arguments), of(arguments[1])),
        unit="unit", total=_CALENDAR,
    ),
    **_of("stt", "date_diff=datediff", range=_difference(complete=False), unit="unit"),
    **_of("stt", "date_sub=datesub", range=_difference(complete=True), unit="unit"),
    **_of("ts", "strftime", text=True, length=_written),
    # AT TIME ZONE; the calendar of a session, by which it reckons, is pinned
    **_of("sz", "timezone", range=lambda of, arguments: moments.in_zone(arguments[0].name, of(arguments[1]))),
    **_of("ws", "strptime", range=_MOMENT, syntax=lambda arguments: call("try_strptime", *arguments)),
    **_of("ws", "try_strptime", range=_MOMENT),
    # nested values
    **_of("lk", "list_contains", range=TRUTH),
    **_of("yn", "list_extract"),
    **_of("y", "array_length", range=rules.fixed(0.0, INF, sort="integer"), null="first"),
    **_of("rs", "struct_extract", always=True),
    # what DuckDB's binder makes of operators and of other functions; of texts in `encode` the column may have a collation
    **_of("yn", "array_extract", by="plan", always=True),
    **_of("xs", "string_split", text=True, by="plan", always=True),
    **_of("t", "doy", by="plan"),
    **_of("ww", "~~ !~~ ~~* !~~*", by="plan"),
    **_of("xx", "||", text=True, length=lambda most, arguments: sum(map(most, arguments)), by="plan"),
    **_of("w", "encode", by="plan", always=True),
    # where rows of a privacy unit are combined
    **_of("ys", "list_aggregate", by="unit"),
    **_of("y", "list_sort octet_length", by="unit"),
    **_of("c", "struct_pack hash", many=True, by="unit"),
    # around every source; `decode` is there for a text that was just encoded
    **_of("", "read_parquet list_value list_transform decode", by="frame", always=True),
}
"""Name -> what is known of it, of every function that a source may call or be made of."""

FUNCTIONS = {name: one for name, one in LISTED.items() if one.by == "text"}
"""Those that a text may call."""
NAMED_FIRST = {"part": frozenset(PARTS), "unit": UNITS}
"""What a first argument of that name may be."""


def called(node: exp.Expression) -> Function | None:
    """Return what is known of the function that a node calls; None if it calls none that a text may."""
    return FUNCTIONS.get(str(node.this).lower()) if isinstance(node, exp.Anonymous) else None


def range_of(name: str, extent: Extent, arguments: Sequence[exp.Expression]) -> Range | None:
    """Return the range of a call; None where nothing is known of the function, or it takes other arguments."""
    function = FUNCTIONS.get(name)
    if function is None or function.range is None or not function.takes(len(arguments)):
        return None
    return function.range(extent, arguments)


def longest(node: exp.Expression) -> float:
    """Return how many characters a text has at most, as far as its expression tells."""
    while isinstance(node, exp.Paren):
        node = node.this
    if isinstance(node, exp.Null):
        return 0.0
    if isinstance(node, exp.Literal):
        return float(len(node.name))
    if isinstance(node, exp.DPipe):
        return longest(node.this) + longest(node.expression)
    if isinstance(node, exp.Case):
        branches = [b.args["true"] for b in node.args["ifs"]] + [d for d in [node.args.get("default")] if d is not None]
        return max(longest(b) for b in branches)
    function = called(node)
    known = function is not None and function.length is not None and function.takes(len(node.expressions))
    return function.length(longest, node.expressions) if known and function is not None and function.length is not None else INF
