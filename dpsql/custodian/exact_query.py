"""dp_query_exact: a query's answer without noise, over the rows and values that dp_query counts. NOT PRIVATE."""

from __future__ import annotations

import json
from collections.abc import Sequence
from fractions import Fraction

import duckdb

from dpsql.algebra.aggregates import DISTINCT
from dpsql.calls.query import QueryExactCall
from dpsql.domains import sqltypes
from dpsql.domains.attributes import OTHER_LABEL
from dpsql.domains.encoding import SOURCE_NAME, guarded
from dpsql.engines.duckdb.reader import DuckReader
from dpsql.errors import ArgumentError, first_line
from dpsql.kinds.query.plan import Planning
from dpsql.measure.groups import public_groups
from dpsql.measure.statement import Statement, units_sql
from dpsql.noise.entropy import fresh_salt
from dpsql.protected.source import ProtectedSource, resolve
from dpsql.queries.asked import Asked, Wanted
from dpsql.queries.choosing import LISTED, Argument
from dpsql.queries.purchase import QueryPurchase
from dpsql.queries.reading import Read, about_the_query, read
from dpsql.release.queried import QueryPlan
from dpsql.session.instance import Context
from dpsql.source.parse import render
from dpsql.text.relation import identifier, literal


def query_exact(context: Context, call: QueryExactCall) -> str:
    """Return the answer of a query without noise, as the text of a relation.

    Privacy
    -------
    NOT PRIVATE: exact aggregates of protected rows. For the custodian; nothing is charged and nothing is stored.
    """
    with about_the_query():
        query = read(context, call.as_query())
    ctes = []
    for core, sets in query.asked:
        with about_the_query(text=False):
            sources = [resolve(context, question.sql, local=True) for question in sets]
        for source in sources:
            source.check_rows_here("dp_query_exact")
        answers = [_Answer(context, query, question, source) for question, source in zip(sets, sources, strict=True)]
        ctes.append(f"{identifier(core.name)} AS ({_together(len(core.keys), answers)})")
    text = f"(WITH {', '.join(ctes)} SELECT * FROM ({render(query.query.outer)}))"  # noqa: S608 -- checked
    try:
        context.cursor.execute(f"DESCRIBE FROM {text}").fetchall()
    except duckdb.InterruptException:
        raise
    except duckdb.Error as error:
        raise ArgumentError("sql", call.sql[:80], f"DuckDB does not accept it ({first_line(error)})") from None
    return text


def _together(keys: int, answers: Sequence[_Answer]) -> str:
    """Return the grouping sets of a core as one relation: keys, whether each is left out, aggregates."""
    types = {name: kind for answer in answers for name, kind in answer.types.items()}
    parts = []
    for answer in answers:
        places = {place: f"k{i}" for i, place in enumerate(answer.question.places)}
        names = {f"k{i}": places.get(i) for i in range(keys)}
        listed = [
            f"{'NULL' if name is None else identifier(name)}::{_type_of_key(i, answers)} AS {identifier(f'k{i}')}"
            for i, name in enumerate(names.values())
        ]
        listed += [f"{0 if i in places else 1}::BIGINT AS {identifier(f'g{i}')}" for i in range(keys)]
        listed += [f"{identifier(name)}::{types[name]} AS {identifier(name)}" for name in answer.types if name[0] == "a"]
        parts.append(f"SELECT {', '.join(listed) or '1 AS one'} FROM {answer.relation()}")  # noqa: S608 -- quoted
    return " UNION ALL ".join(parts)


def _type_of_key(place: int, answers: Sequence[_Answer]) -> str:
    """Return the type of a key of the core, from a grouping set that has it."""
    for answer in answers:
        if place in answer.question.places:
            return answer.types[f"k{answer.question.places.index(place)}"]
    return "VARCHAR"


class _Rows(Statement):
    """The rows that are counted, with their arguments as they are."""

    @property
    def after(self) -> bool:
        """False: exact aggregates are of rows with the places of their groups."""
        return False

    def _columns(self) -> dict[str, str]:
        return {name: identifier(SOURCE_NAME, name) for name in self.types if name[:1] in ("a", "f") and name[1:].isdigit()}


class _Answer:
    """The exact aggregates of one grouping set."""

    def __init__(self, context: Context, query: Read, question: Asked, source: ProtectedSource) -> None:
        self.question = question
        self.sources = {column.name: column.sql_type for column in source.source.columns}
        planning = Planning(context, source, QueryPurchase(question, query.call, 1.0), {"epsilon": 1.0})
        groups = planning.groups()
        bounding = planning.bounding(selecting=groups is None)
        self.arguments = planning.arguments()
        plan = QueryPlan(
            keys=tuple(self.sources[f"k{i}"] for i in range(len(question.keys))), measures=(), public=groups is not None,
            groups=None if groups is None else groups.count, groups_sql="" if groups is None else groups.sql,
            other=() if groups is None else groups.other,
            unit=source.protection.privacy_unit is not None, max_rows=bounding.max_rows, max_groups=bounding.max_groups,
            max_rows_per_group=bounding.max_rows_per_group, different=bounding.different, counting=bounding.counting,
        )
        with public_groups(DuckReader(context.cursor), plan) as table:
            sql = self._sql(_Rows(source, plan, table, fresh_salt()), plan, table, query.call.min_units or 1)
            described = context.cursor.execute(f"DESCRIBE {sql}").fetchall()
            self.types = {str(row[0]): str(row[1]) for row in described}
            shown = ", ".join(f"CAST({identifier(name)} AS VARCHAR)" for name in self.types)
            self.rows = guarded(context.cursor, f"SELECT {shown} FROM ({sql})").fetchall()  # noqa: S608 -- quoted

    def relation(self) -> str:
        """Return the answer as a relation of literals."""
        listed = []
        for place, (name, kind) in enumerate(self.types.items()):
            texts = json.dumps([row[place] for row in self.rows], ensure_ascii=False)
            values = f"unnest(system.main.from_json({literal(texts)}, '[\"VARCHAR\"]'))"
            listed.append(f"CAST({values} AS {kind}) AS {identifier(name)}")
        return f"(SELECT {', '.join(listed)})"

    def _sql(self, rows: _Rows, plan: QueryPlan, table: str | None, min_units: int) -> str:
        """Return the statement of all groups and aggregates."""
        keys = [f"k{i}" for i in range(len(plan.keys))]
        aggregates = {f"a{i}": self._aggregate(aggregate, plan) for i, aggregate in enumerate(self.question.wanted)}
        by = [identifier(key) for key in rows.keys]
        listed = ", ".join([*by, *(f"{sql} AS {identifier(name)}" for name, sql in aggregates.items())]) or "1 AS one"
        grouped = f" GROUP BY {', '.join(by)}" if by else ""
        if table is None:
            units = units_sql(plan, nulls=True)
            grouped += f" HAVING {units} >= {min_units}" if plan.keys else ""
            return f"{rows.reading()} SELECT {listed} FROM __dp_rows{grouped}"  # noqa: S608 -- quoted
        shown = [f"groups.{key}" for key in keys]
        counts = ("count", "count_units", "count_distinct")
        shown += [
            f"coalesce({name}, 0) AS {name}" if aggregate.function in counts else name
            for name, aggregate in zip(aggregates, self.question.wanted, strict=True)
        ]
        return (
            f"{rows.reading()}, answers AS (SELECT {listed} FROM __dp_rows{grouped}) "  # noqa: S608 -- quoted
            f"SELECT {', '.join(shown) or '1 AS one'} FROM {table} AS groups LEFT JOIN answers USING (ord)"
        )

    def _aggregate(self, aggregate: Wanted, plan: QueryPlan) -> str:
        condition = aggregate.there if aggregate.function == "count" and aggregate.there is not None else aggregate.condition
        only = "" if condition is None else f" FILTER (WHERE {identifier(f'f{condition}')})"
        if aggregate.function == "count":
            return f"count(*){only}"
        if aggregate.function == "count_units":
            return f"{units_sql(plan, nulls=False)}{only}"
        arguments = [self._clipped(place, aggregate) for place in aggregate.arguments]
        if aggregate.function == "count_distinct":
            return f"count(DISTINCT {arguments[0]}){only}"
        if aggregate.function in DISTINCT:
            return f"{DISTINCT[aggregate.function]}(DISTINCT {arguments[0]}){only}"
        if aggregate.quantiles:
            arguments.append(literal(list(aggregate.quantiles)) if aggregate.listed else literal(aggregate.quantiles[0]))
        return f"{aggregate.function}({', '.join(arguments)}){only}"

    def _clipped(self, place: int, aggregate: Wanted) -> str:
        """Return an argument with its values moved to the nearer bound; those that are not listed left out."""
        known: Argument = self.arguments[place]
        name, kind = identifier(f"a{place}"), self.sources[f"a{place}"]
        if aggregate.function in LISTED:
            texts = ", ".join(literal(text) for text in known.values or ())
            if known.open and kind == "VARCHAR" and aggregate.function == "histogram":
                return f"(CASE WHEN {name} IS NULL OR {name} IN ({texts}) THEN {name} ELSE {literal(OTHER_LABEL)} END)"
            return f"(CASE WHEN CAST({name} AS VARCHAR) IN ({texts}) THEN {name} END)"
        family = sqltypes.parse(kind).family
        if known.lower is None or known.upper is None or family == "boolean" or aggregate.function == "count_distinct":
            return name
        ends = [_bound(end, kind) for end in (known.lower, known.upper)]
        if family == "float":
            name = f"(CASE WHEN NOT system.main.isnan({name}) THEN {name} END)"
        return f"(CASE WHEN {name} IS NOT NULL THEN greatest(least({name}, {ends[1]}), {ends[0]}) END)"


def _bound(value: float, sql_type: str) -> str:
    """Return a bound as a value of a type; of whole numbers and decimals as DOUBLE where it is none."""
    family = sqltypes.parse(sql_type).family
    if sql_type == "TIME":
        return f"CAST(system.main.make_timestamp({round(min(value * 1_000_000, 86_399_999_999))}::BIGINT) AS TIME)"
    if family == "temporal":
        moment = f"system.main.make_timestamp({round(value * (86_400 if sql_type == 'DATE' else 1) * 1_000_000)}::BIGINT)"
        return f"CAST({moment} AS {sql_type})"
    if family in ("integer", "decimal"):
        parsed = sqltypes.parse(sql_type)
        steps = Fraction(repr(value)) * 10**parsed.scale
        if steps.denominator == 1:  # a bound beyond the type's end is no bound
            return f"CAST('{sqltypes.unit_text(parsed, min(max(int(steps), parsed.low), parsed.high))}' AS {sql_type})"
    return f"CAST('{value!r}' AS DOUBLE)"

