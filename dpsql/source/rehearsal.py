"""A rehearsal of a source on made-up rows, and the net below it: what nobody thought of fails here, or becomes NULL.

Before a source is accepted its SQL runs once over rows that belong to nobody: the extreme values of every type, and the constants
that the source itself names, so that its conditions are met. What raises there, raises for everybody and before anything is
charged. Then every computed expression is put into a ``TRY`` (:func:`dpsql.source.functions.caught`), for what the rehearsal
missed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import duckdb
from sqlglot import exp

from dpsql.errors import UnsupportedQuery, first_line
from dpsql.source.catalog import Catalog
from dpsql.source.functions import caught
from dpsql.source.kernel import family
from dpsql.source.layers import COMBINING
from dpsql.source.model import literal, quoted
from dpsql.source.parse import render
from dpsql.source.scope import with_relations
from dpsql.source.total import is_total

_COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ)
MOST_LITERALS = 40
"""Constants of a source that its rehearsal tries as values, at most."""
MOST_ROWS = 250_000
"""Rows that a rehearsal of several joined tables makes, at most."""

_WHOLE = {"TINYINT": 8, "SMALLINT": 16, "INTEGER": 32, "BIGINT": 64, "HUGEINT": 128}
_UNSIGNED = {"UTINYINT": 8, "USMALLINT": 16, "UINTEGER": 32, "UBIGINT": 64, "UHUGEINT": 128}
EXTREMES: dict[str, tuple[str, ...]] = {
    "BOOLEAN": ("true", "false"),
    **{name: (str(-(2 ** (bits - 1))), str(2 ** (bits - 1) - 1), "-1", "0", "1") for name, bits in _WHOLE.items()},
    **{name: (str(2**bits - 1), "0", "1") for name, bits in _UNSIGNED.items()},
    "FLOAT": ("nan", "inf", "-inf", "3.4e38", "-3.4e38", "1e-45", "-0.0", "0", "1"),
    "DOUBLE": (
        "nan", "inf", "-inf", "1.7976931348623157e308", "-1.7976931348623157e308", "5e-324", "-0.0", "0", "-1", "1e19",
        "9.3e18", "2147483648.5",
    ),
    "VARCHAR": (
        "", "a", "%", "\\", "[a", "_", "\x01\x7f", "é\u0301", "\U0010ffff", "\uffff\u0301", "İıßſK", "2020-01-01",
        "294247-01-10 04:00:54.775807",
        "1e400", "nan", "9223372036854775808", "0x7f", " 1 ", "-", "1_000", "infinity", "true", "24:00:00", "{", "\\x",
        "12:00:00+99", "x" * 300,
    ),
    "DATE": (
        "infinity", "-infinity", "0001-01-01", "9999-12-31", "290000-01-01", "5877642-06-25 (BC)", "5881580-07-10", "2020-02-29",
        "100000-01-01 (BC)", "99999-12-31",
    ),
    "TIMESTAMP": (
        "infinity", "-infinity", "290309-12-22 (BC) 00:00:00", "294247-01-10 04:00:54.775806", "2020-02-29 23:59:59.999999",
        "1970-01-01", "100000-01-01 (BC) 00:00:00", "99999-12-31 23:59:59.999999",
    ),
    "TIMESTAMP WITH TIME ZONE": (
        "infinity", "-infinity", "290309-12-22 (BC) 00:00:00+00", "294247-01-10 04:00:54.775806+00", "2020-02-29 12:00:00+00",
        "100000-01-01 (BC) 00:00:00+00", "99999-12-31 23:59:59.999999+00",
    ),
    "TIMESTAMP_S": ("infinity", "-infinity", "290000-01-01", "2020-02-29 12:00:00"),
    "TIMESTAMP_MS": ("infinity", "-infinity", "290000-01-01", "2020-02-29 12:00:00"),
    "TIMESTAMP_NS": ("infinity", "-infinity", "2262-04-11 23:47:16.854775", "1677-09-22"),
    "TIME": ("00:00:00", "23:59:59.999999", "24:00:00"),
    "UUID": ("00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"),
    "BLOB": ("", "\\xFF\\x00", "abc"),
    "JSON": ("{}", "null", "1", '{"a":[1]}'),
}
"""Type -> texts of values that a function may stumble over; NULL is always tried."""


def values_of(sql_type: str, constants: Sequence[str] = ()) -> list[str]:
    """Return SQL of the values of a type that a rehearsal tries.

    Parameters
    ----------
    constants : sequence of str
        Texts that are tried as values of the type too.

    Examples
    --------
    >>> values_of("BOOLEAN", ["7"])
    ['NULL', "TRY_CAST('true' AS BOOLEAN)", "TRY_CAST('false' AS BOOLEAN)", "TRY_CAST('7' AS BOOLEAN)"]
    >>> values_of("INTEGER[]")[2:4]
    ['[NULL::INTEGER]', "[TRY_CAST('-2147483648' AS INTEGER)]"]
    """
    if family(sql_type) == "LIST":
        inner = sql_type.removesuffix("[]")
        return ["NULL", "[]", f"[NULL::{inner}]", *(f"[{value}]" for value in values_of(inner, constants)[1:])]
    return ["NULL", *(f"TRY_CAST({literal(text)} AS {sql_type})" for text in _texts_of(sql_type, constants))]


def _texts_of(sql_type: str, constants: Sequence[str]) -> list[str]:
    """Return the texts of the values of a type, no list, that a rehearsal tries beside NULL."""
    texts = list(EXTREMES.get(sql_type, ()))
    if family(sql_type) == "DECIMAL":
        width, scale = (int(part) for part in sql_type.removeprefix("DECIMAL(").removesuffix(")").split(","))
        largest = "9" * (width - scale) + ("." + "9" * scale if scale else "")
        texts = [largest, f"-{largest}", "0"]
    if not texts and not sql_type.startswith("ENUM("):
        return []
    return list(dict.fromkeys((*texts, *constants)))


def made_up(columns: Sequence[tuple[str, str]], alias: str, constants: Sequence[str], most: int = 10**9) -> str:
    """Return a relation with columns of these names and types whose rows belong to nobody.

    Every column holds all of its values, each in its own order, so that they meet in many ways; there are at most ``most`` rows.
    Texts are cast once a column: a cast of its own for each would take DuckDB as long as running the rest.
    """
    lists, casts = [], []
    for _, sql_type in columns:
        texts = family(sql_type) != "LIST"
        values = _texts_of(sql_type, constants) if texts else values_of(sql_type, constants)
        lists.append(["NULL", *map(literal, values)] if texts else values)
        casts.append(f"TRY_CAST({{}} AS {sql_type})" if texts else "{}")
    # twice the longest list: every value of a column then meets several of each other column
    rows = min(2 * max((len(values) for values in lists), default=1), most)
    shown = []
    for place, ((name, sql_type), column_values, cast) in enumerate(zip(columns, lists, casts, strict=True)):
        if column_values == ["NULL"]:  # of which DuckDB 1.4 makes an INTEGER
            column_values, cast = [f"CAST(NULL AS {sql_type})"], "{}"
        count, step = len(column_values), 1 + place % 3
        turned = [column_values[(row * step + place) % count] for row in range(rows)] if count > 1 else column_values * rows
        # where the step shares a divisor with the number of values, some are never met by turning
        missing = [value for value in column_values if value not in turned]
        all_rows = f"system.main.unnest([{', '.join([*missing, *turned][:rows])}])"
        shown.append(f"{cast.format(all_rows)} AS {quoted(name)}")
    return f"(SELECT {', '.join(shown)}) AS {quoted(alias)}"


def constants_of(select: exp.Select) -> list[str]:
    """Return the constants that a source names, as texts, with the whole numbers beside them."""
    texts: dict[str, None] = {}
    for node in select.find_all(exp.Literal):
        texts[node.name] = None
        if not node.is_string and node.name.isdigit():
            texts[str(int(node.name) + 1)] = None
        if len(texts) >= MOST_LITERALS:
            break
    return list(texts)


def rehearse(catalog: Catalog, select: exp.Select, leaves: Mapping[str, Sequence[tuple[str, str]]]) -> None:
    """Run a generated source over made-up rows.

    Parameters
    ----------
    select : sqlglot expression
        As the kernel has accepted it, without the net of `guarded`.
    leaves : mapping
        Alias -> names and types of the columns of each table.

    Raises
    ------
    UnsupportedQuery
        An expression fails on some value.

    Notes
    -----
    Privacy: no row of a table is read.
    """
    if not computes(select) and not any(part.meta.get(COMBINING) for part in select.find_all(exp.Select)):
        return
    constants = constants_of(select)
    reads = len(list(select.find_all(exp.Table)))
    most = max(4, int(MOST_ROWS ** (1 / max(reads, 1))))  # every row may meet every row
    tree = with_relations(select, leaves, lambda columns, alias: made_up(columns, alias, constants, most))
    try:
        catalog.run(render(tree, own=True))
    except duckdb.InterruptException:
        raise
    except duckdb.Error as error:
        reason = f"it fails on some values, as a rehearsal with made-up rows shows ({first_line(error)[:200]}); write it otherwise"
        raise UnsupportedQuery("an expression", reason) from None


def computes(select: exp.Select) -> bool:
    """Return whether a generated source computes or compares anything, beyond copying columns."""
    return any(_computed(node) for node in _expressions(select))


def guarded(select: exp.Select) -> exp.Select:
    """Return a generated source in which every computed expression is NULL where it would raise; total ones stay as they are."""
    out = select.copy()
    for node in _expressions(out):
        if _computed(node) and not is_total(node):
            node.replace(exp.Var(this=caught(render(node))))
    return out


def _expressions(select: exp.Select) -> list[exp.Expression]:
    """Return the outermost expressions of a SELECT and of those in its FROM: listed, after WHERE, on both sides of ON."""
    expressions: list[exp.Expression] = []
    for part in list(select.find_all(exp.Select)):
        if part.meta.get(COMBINING):  # columns, aggregates and windows of columns: what is computed stands below and above
            continue
        expressions += [listed.this if isinstance(listed, exp.Alias) else listed for listed in part.expressions]
        if part.args.get("where") is not None:
            expressions += _conjuncts(part.args["where"].this)
    for join in list(select.find_all(exp.Join)):
        on = join.args.get("on")
        for bare in [] if on is None else _conjuncts(on):
            expressions += [bare.this, bare.expression] if isinstance(bare, _COMPARISONS) else [bare]
    return expressions


def _conjuncts(condition: exp.Expression) -> list[exp.Expression]:
    """Return what a condition connects by AND: a row is kept where each is true, so that each can have a guard of its own."""
    bare = condition.unnest()
    return [part for side in (bare.this, bare.expression) for part in _conjuncts(side)] if isinstance(bare, exp.And) else [bare]


def _computed(node: exp.Expression) -> bool:
    """Return whether an expression could fail: anything but a column, a constant and a column's bytes."""
    if isinstance(node, exp.Anonymous) and str(node.this).rsplit(".", 1)[-1] in ("encode", "decode") and len(node.expressions) == 1:
        return _computed(node.expressions[0])
    return not isinstance(node, exp.Column | exp.Literal | exp.Null | exp.Boolean)
