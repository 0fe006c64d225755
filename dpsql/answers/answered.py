"""The answer of a query as a relation: released numbers under the outer statement. Post-processing."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import duckdb
import numpy as np
from sqlglot import exp

from dpsql.algebra.aggregates import DISTINCT, WINDOWS
from dpsql.answers import cells, intervals
from dpsql.answers.cells import cell_texts, list_texts
from dpsql.answers.finishing import columns_of, finish
from dpsql.answers.held import Part
from dpsql.answers.quotients import DENOMINATOR, joint
from dpsql.errors import ArgumentError, UnsupportedQuery, first_line
from dpsql.estimates import listed
from dpsql.protected.home import catalog_of
from dpsql.protected.source import ProtectedSource
from dpsql.queries import stored
from dpsql.queries.asked import Asked, Wanted
from dpsql.queries.choosing import LISTED
from dpsql.queries.estimating import Estimates
from dpsql.queries.leaves import Facts
from dpsql.queries.reading import Read
from dpsql.queries.taken import Core
from dpsql.queries.typing import types_of
from dpsql.session.instance import Context
from dpsql.source.joins import conjuncts
from dpsql.source.model import fold
from dpsql.source.parse import nodes, render, serialized
from dpsql.text.relation import identifier, literal

_FORBIDDEN = frozenset({"getenv", "current_setting", "getvariable", "nextval", "currval", "current_query", "txid_current", "query",
                        "query_table", "current_database", "current_schema", "current_schemas", "current_user",
                        "user"})


@dataclass(frozen=True)
class Column:
    """A column of the relation that stands for a core: its type, and the texts of its values, None for NULL."""

    sql_type: str
    texts: list[str | None]
    expression: str = "CAST({} AS {})"

    @property
    def sql(self) -> str:
        """The column as SQL, made of texts."""
        texts = json.dumps(self.texts, ensure_ascii=False)
        values = f"unnest(system.main.from_json({literal(texts)}, '[\"VARCHAR\"]'))"
        return self.expression.format(values, self.sql_type)


def check(context: Context, read: Read, sources: Sequence[Sequence[ProtectedSource]]) -> None:
    """Bind the outer statement over empty answers, so that what is wrong with it is found before anything is charged.

    Raises
    ------
    ArgumentError, UnsupportedQuery
        DuckDB does not accept it, or it calls what is not a function of numbers that were released.
    """
    parsed = cache(partial(serialized, context.cursor))  # most outer statements are the same with quotients and without
    _check_functions(context, _joint(read)[0], parsed)
    _check_tables(context, read, parsed)
    try:
        columns_of(context, *_made(*_over_nothing(context, read, sources)))
    except duckdb.InterruptException:
        raise
    except duckdb.Error as error:
        advice = f"DuckDB does not accept it ({first_line(error)}). Nothing was charged"
        raise ArgumentError("sql", read.call.sql[:80], advice) from None


def without_rows(context: Context, read: Read, sources: Sequence[Sequence[ProtectedSource]]) -> str | None:
    """Return the answer of a query that wants names and types alone (LIMIT 0, WHERE 1 = 0), which costs nothing; None for others.

    Privacy: free; it has no row whatever the rows are.
    """
    if read.call.confidence is not None or not _wants_no_row(read):
        return None
    return nothing(context, read, sources)


def nothing(context: Context, read: Read, sources: Sequence[Sequence[ProtectedSource]]) -> str:
    """Return the columns of the answer of a query that was checked, as a relation without rows. Free; no row is read."""
    text, _ = _made(*_over_nothing(context, read, sources, ends=read.call.confidence is not None))
    return finish(context, f"SELECT * FROM ({text}) LIMIT 0", read.call.sql)  # noqa: S608 -- rendered trees


def _over_nothing(
    context: Context, read: Read, sources: Sequence[Sequence[ProtectedSource]], *, ends: bool = False
) -> tuple[dict[str, dict[str, Column]], exp.Expression]:
    """Return cores without rows, and the outer statement over them; ``ends``: with the intervals that are asked for."""
    outer, denominators = _joint(read)
    derived = intervals.add(outer, read) if ends else {}
    empty = {}
    # every column that the outer statement may name, of the types that it will have
    for (core, sets), protected in zip(read.asked, sources, strict=True):
        types = _types(context, core, sets, protected)
        names = [*(_ends(core) if ends else ()), *derived, *(f"{DENOMINATOR}{i}" for i in denominators[core.name])]
        empty[core.name] = {name: Column(kind, []) for name, kind in types.items()}
        empty[core.name] |= {name: Column(intervals.type_of(name, types), []) for name in names}
    return empty, outer


def _ends(core: Core) -> list[str]:
    return [f"a{i}_{end}" for i in range(len(core.aggregates)) for end in ("low", "high")]


def _wants_no_row(read: Read) -> bool:
    outer = read.query.outer
    limit = outer.args.get("limit")
    if limit is not None and isinstance(limit.expression, exp.Literal) and limit.expression.name == "0":
        return True
    if _is_never(outer.args.get("where")):
        return True
    # without keys an aggregate has a row even of nothing
    return all(core.keys and _is_never(core.rows.args.get("where")) for core, _ in read.asked) and not outer.find(exp.SetOperation)


def _is_never(where: exp.Expression | None) -> bool:
    """Whether a condition is false by itself: ``false``, ``1 = 0``."""
    for part in conjuncts(where.this) if where is not None else []:
        plain = part.unnest()
        if isinstance(plain, exp.Boolean) and not plain.this:
            return True
        sides = (plain.this, plain.expression) if isinstance(plain, exp.EQ) else ()
        if sides and all(isinstance(side, exp.Literal) and not side.is_string for side in sides) and sides[0].name != sides[1].name:
            return True
    return False


def relation(context: Context, read: Read, parts: Sequence[Sequence[Part]]) -> str:
    """Return the answer as the text of a relation."""
    outer, denominators = _joint(read)
    derived = intervals.add(outer, read) if read.call.confidence is not None else {}
    cores = {
        core.name: _columns(context, core, of_core, read, derived, denominators[core.name])
        for (core, _), of_core in zip(read.asked, parts, strict=True)
    }
    text, shape = _made(cores, outer)
    return finish(context, text, read.call.sql, shape)


def rehearse(context: Context, read: Read, parts: Sequence[Sequence[Part]]) -> None:
    """Give the values of every core back, without what stands around them. The errors are those of DuckDB and of the estimates."""
    outer, denominators = _joint(read)
    derived = intervals.add(outer, read) if read.call.confidence is not None else {}
    for (core, _), of_core in zip(read.asked, parts, strict=True):
        cores = {core.name: _columns(context, core, of_core, read, derived, denominators[core.name])}
        text, shape = _made(cores, exp.select("*").from_(exp.to_identifier(core.name, quoted=True)))
        finish(context, text, read.call.sql, shape)


def _joint(read: Read) -> tuple[exp.Expression, dict[str, list[int]]]:
    return joint(read.query.outer, [core for core, _ in read.asked])


def _made(cores: Mapping[str, Mapping[str, Column]], outer: exp.Expression) -> tuple[str, object]:
    """Return the statement over cores, and its shape: all but the values."""
    ctes, after = [], render(outer)
    for name, columns in cores.items():
        shown = ", ".join(f"{column.sql} AS {identifier(key)}" for key, column in columns.items())
        ctes.append(f"{identifier(name)} AS (SELECT {shown})")
    text = f"WITH {', '.join(ctes)} SELECT * FROM ({after})"  # noqa: S608 -- rendered trees
    # within a call the statement is described once for each shape
    kinds = (
        (name, *((key, column.sql_type, column.expression) for key, column in columns.items())) for name, columns in cores.items()
    )
    return text, (after, *kinds)


def _types(context: Context, core: Core, sets: Sequence[Asked], protected: Sequence[ProtectedSource]) -> dict[str, str]:
    """Return the columns of a core's relation: keys, whether each is left out, aggregates."""
    key_types: dict[str, str] = {}
    for question, source in zip(sets, protected, strict=True):
        types = {column.name: column.sql_type for column in source.source.columns}
        key_types.update({f"k{place}": types[f"k{i}"] for i, place in enumerate(question.places)})
    columns = tuple((column.name, column.sql_type) for column in protected[0].source.columns)
    # DuckDB is asked once for the types of the same aggregates over the same columns
    place = ("types", tuple(map(repr, sets[0].wanted)), columns)
    if place not in context.known:
        context.known[place] = types_of(context.cursor, sets[0].wanted, dict(columns))
    kinds: list[str] = context.known[place]
    out = {f"k{i}": key_types.get(f"k{i}", "VARCHAR") for i in range(len(core.keys))}
    out |= {f"g{i}": "BIGINT" for i in range(len(core.keys))}
    return out | {f"a{i}": kind for i, kind in enumerate(kinds)} or {"one": "INTEGER"}


def _columns(
    context: Context, core: Core, parts: Sequence[Part], read: Read, derived: Mapping[str, exp.Expression],
    denominators: Sequence[int],
) -> dict[str, Column]:
    """Return the relation of a core, its grouping sets one after the other."""
    sets, protected = [part.asked for part in parts], [part.protected for part in parts]
    types = _types(context, core, sets, protected)
    texts: dict[str, list[str | None]] = {name: [] for name in types}
    ends = _ends(core) if read.call.confidence else []
    for name in [*ends, *derived, *(f"{DENOMINATOR}{i}" for i in denominators)]:
        texts[name] = []
    for part in parts:
        numbers = part.held.numbers
        aggregates = translated(part.asked, part.held.question)
        factors = [cells.factor(aggregate, part.protected, types[f"a{i}"]) for i, aggregate in enumerate(part.asked.wanted)]
        estimates = part.held.estimates
        count = len(numbers.groups)
        # k: the key, g: whether the grouping set leaves it out, as GROUPING() says
        for i in range(len(core.keys)):
            inside = part.asked.places.index(i) if i in part.asked.places else None
            texts[f"k{i}"] += [None if inside is None else keys[inside] for keys in numbers.groups]
            texts[f"g{i}"] += ["0" if inside is not None else "1"] * count
        for i, aggregate in enumerate(aggregates):
            texts[f"a{i}"] += value_texts(estimates, aggregate, types[f"a{i}"], factors[i], cut=read.call.cut)
        # a denominator is made of the number that is shown, so that a quotient agrees with what stands beside it
        for i in denominators:
            as_shown = [math.nan if text is None else float(text) for text in texts[f"a{i}"][-count:]] if count else []
            divisor = estimates.denominator(aggregates[i], np.asarray(as_shown))
            texts[f"{DENOMINATOR}{i}"] += cell_texts(divisor, "DOUBLE")
        # a relation has to have a column
        if not core.aggregates and not core.keys:
            texts["one"] += ["1"] * count
        if read.call.confidence is not None:
            shown = intervals.Shown(part.held, estimates, aggregates, types, factors, read.call.confidence)
            sides = intervals.ends(context, part, shown, derived)
            for name, values in sides.items():
                texts[name] += values
    # ends of intervals and denominators have types that follow from those of the aggregates
    kinds = {**types, **{name: intervals.type_of(name, types) for name in texts if name not in types}}
    return {name: _column(kinds[name], values) for name, values in texts.items()}


def _column(sql_type: str, values: list[str | None]) -> Column:
    if sql_type.startswith("MAP("):
        keys, _, counts = sql_type[4:-1].rpartition(", ")
        entries = f"STRUCT(k {keys}, v {counts})[]"
        expression = "(CASE WHEN {0} IS NOT NULL THEN system.main.map_from_entries(CAST({0} AS " + entries + ")) END)"
        return Column(sql_type, values, expression)
    return Column(sql_type, values)


def translated(asked: Asked, stored_question: Mapping[str, Any]) -> list[Wanted]:
    """Return the aggregates with the positions that their arguments and conditions have in a release.

    An argument that is only counted has a position there if something else was asked of it: its number may be among what that gave.
    """
    arguments, conditions = list(stored_question["arguments"]), list(stored_question["conditions"])
    # which argument a stored count is of is in its text alone
    known = stored.wanted(stored_question) if "aggregates" in stored_question else []
    counted = {bought.text: bought.arguments for bought in known if bought.function == "count"}

    def condition(place: int | None) -> int | None:
        return None if place is None else conditions.index(asked.condition_texts[place])

    return [
        replace(
            aggregate,
            arguments=counted[aggregate.text] if aggregate.text in counted else tuple(
                arguments.index(asked.argument_texts[place]) for place in aggregate.arguments
            ),
            condition=condition(aggregate.condition),
            there=condition(aggregate.there),
        )
        for aggregate in asked.wanted
    ]


def value_texts(estimates: Estimates, aggregate: Wanted, sql_type: str, factor: float, *, cut: bool = False) -> list[str | None]:
    """Return an aggregate as the texts of values of its type, one for each group; None for NULL.

    ``cut``: whether counts, and sums of numbers of one sign, are cut at 0.
    """
    value = estimates.value(aggregate)
    if aggregate.function in LISTED:
        return listed_texts(estimates, aggregate, value, sql_type)
    # `cut` is for single numbers: cut ones no longer add up
    value = (np.clip(value, *_possible(estimates, aggregate)) if cut else value) * factor
    if aggregate.listed:
        return list_texts(value, sql_type.removesuffix("[]"))
    flat = value[:, 0] if value.ndim == 2 else value
    return cell_texts(flat, sql_type)


def _possible(estimates: Estimates, aggregate: Wanted) -> tuple[float, float]:
    """Return between which numbers a count or a sum lies for certain."""
    if aggregate.function == "sum":
        bounds = estimates.query.measures[estimates.find(aggregate)[0]].variables[0]
        return (0.0 if bounds.lower >= 0 else -math.inf), (0.0 if bounds.upper <= 0 else math.inf)
    return (0.0 if aggregate.function.startswith("count") or aggregate.function == "regr_count" else -math.inf), math.inf


def listed_texts(estimates: Estimates, aggregate: Wanted, counters: np.ndarray, sql_type: str) -> list[str | None]:
    """Return what counters of listed values say: the most frequent one, all of them, or whether there is any."""
    place = estimates.find(aggregate)[0]
    measure = estimates.query.measures[place]
    if aggregate.function == "mode":
        return [None if i < 0 else measure.values[i] for i in listed.mode(measure, counters)]
    numbers = listed.histogram(measure, counters)
    deviation = estimates.deviation_of(place)
    if aggregate.function in DISTINCT:
        of_values = listed.of_present(DISTINCT[aggregate.function], measure, counters, deviation, estimates.mechanism)
        return cell_texts(of_values, sql_type)
    # a value that no row is left of is not in a histogram
    if aggregate.function == "histogram":
        return [
            "[" + ", ".join(_pair(v, n) for v, n in zip(measure.values, row, strict=True) if n > 0) + "]" for row in numbers
        ]
    # bool_or is true where 'true' occurs, bool_and where 'false' does not
    shown = listed.occurs(measure, counters, deviation)
    place_of_label = measure.values.index("true" if aggregate.function == "bool_or" else "false")
    answer = shown[:, place_of_label] if aggregate.function == "bool_or" else ~shown[:, place_of_label]
    return [None if rows <= 0 else "true" if true else "false" for true, rows in zip(answer, numbers.sum(axis=-1), strict=True)]


def _pair(value: str, count: float) -> str:
    return f"{{'k': {_quoted(value)}, 'v': {int(count)}}}"


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _check_tables(context: Context, read: Read, parsed: Callable[[str], dict[str, Any]]) -> None:
    """Ask DuckDB's parser for the tables of the outer statement, as a second opinion: none of them may be protected."""
    facts, cores = Facts(context), {core.name for core, _ in read.asked}
    ctes = {fold(cte.alias) for cte in read.query.outer.find_all(exp.CTE)}
    for node in nodes(parsed(render(read.query.outer))):
        if node.get("type") != "BASE_TABLE":
            continue
        parts = [str(node[part]) for part in ("catalog_name", "schema_name", "table_name") if node.get(part)]
        if len(parts) == 1 and (parts[0] in cores or fold(parts[0]) in ctes):
            continue
        if facts(exp.to_table(identifier(*parts), dialect="duckdb")).protected:
            raise UnsupportedQuery(".".join(parts), "rows of a protected table are read outside of an aggregate")


def _check_functions(context: Context, outer: exp.Expression, parsed: Callable[[str], dict[str, Any]]) -> None:
    """Refuse functions in the outer statement that are not DuckDB's own, or not as it ships them, or that do more than compute."""
    allowed = _own()
    for node in outer.find_all(exp.Anonymous):
        name = fold(str(node.this)) if isinstance(node.this, str) else ""
        if name in _FORBIDDEN or name not in allowed:
            advice = "only DuckDB's own functions of the answer's numbers may be used here, none that reads anything"
            raise UnsupportedQuery(f"{name}()", advice)

    # DuckDB's own parser says which functions it would call: operators and casts are functions too
    names = {str(node["function_name"]) for node in nodes(parsed(render(outer))) if node.get("function_name")}
    changed = catalog_of(context).changed_function(names | _OF_ANSWERS)
    if changed is not None:
        raise UnsupportedQuery(f"function {changed!r}", "a macro or a function of this database gives it another meaning; DROP it")


_OF_ANSWERS = frozenset({"from_json", "to_json", "unnest", "map_from_entries"})
"""Functions that answers are written with."""


@cache
def _own() -> frozenset[str]:
    """Return the functions of a database that nobody has touched."""
    with duckdb.connect(":memory:") as fresh:
        rows = fresh.execute(
            "SELECT DISTINCT function_name FROM system.main.duckdb_functions() WHERE database_name = 'system' "
            "AND function_type IN ('scalar', 'aggregate', 'macro', 'window_aggregate') "
            "AND coalesce(stability, 'CONSISTENT') = 'CONSISTENT'"
        ).fetchall()
        others = {"fill", "columns", "unnest", "range", "generate_series", "coalesce", "grouping", "array", "random", "now",
                  "today", "current_date", "get_current_timestamp", "get_current_time", "transaction_timestamp"}
    return frozenset(fold(str(name)) for (name,) in rows) | WINDOWS.keys() | others

