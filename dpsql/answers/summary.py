"""dp_summarize: every declared column in one release."""

from __future__ import annotations

from dpsql.answers import query
from dpsql.calls.query import QueryCall, SummarizeCall
from dpsql.domains import sqltypes
from dpsql.domains.attributes import OTHER_LABEL, Attribute
from dpsql.protected.columns import chosen, spelled
from dpsql.protected.source import resolve
from dpsql.session.instance import Context
from dpsql.text.relation import identifier, literal

COLUMNS = {
    "column_name": "VARCHAR", "column_type": "VARCHAR", "min": "VARCHAR", "max": "VARCHAR", "approx_unique": "BIGINT",
    "avg": "DOUBLE", "std": "DOUBLE", "q25": "VARCHAR", "q50": "VARCHAR", "q75": "VARCHAR", "count": "BIGINT",
    "null_percentage": "DECIMAL(9,2)",
}
_NUMBERS = ("integer", "decimal", "float")


def summarize(context: Context, call: SummarizeCall) -> str:
    """Return a row for each declared column, buying all statistics in one release at the first call."""
    protected = resolve(context, call.source)
    names = None if call.columns is None else list(spelled(protected, call.columns))
    domain, _ = chosen(protected, call.source, names)
    source = _relation(call.source)
    listed = [item for place, attribute in enumerate(domain.attributes) for item in _items(place, attribute)]
    text = f"SELECT count(*) AS n, {', '.join(listed)} FROM {source}"  # noqa: S608 -- names are quoted
    answer = query.query(context, QueryCall(sql=text, epsilon=call.epsilon, delta=call.delta, release=call.release))
    rows = [_row(place, attribute) for place, attribute in enumerate(domain.attributes)]
    united = " UNION ALL ".join(f"(SELECT {row} FROM answer)" for row in rows)  # noqa: S608 -- literals and numbered names
    return f"(WITH answer AS MATERIALIZED (SELECT * FROM {answer}) SELECT * FROM ({united}))"  # noqa: S608


def _relation(source: str) -> str:
    """Return the source as it stands after FROM: a name, or a SELECT in brackets."""
    first = source.lstrip("( \n\t").split(None, 1)[0].lower() if source.strip() else ""
    return f"({source.rstrip().rstrip(';')})" if first in ("select", "with", "from") else source


def _items(place: int, attribute: Attribute) -> list[str]:
    """Return what is asked of a column."""
    name, family = identifier(attribute.name), sqltypes.parse(attribute.sql_type).family
    if attribute.kind == "categorical":
        asked = [f"histogram({name}) AS h{place}"]
        if _open(attribute):
            asked.append(f"count(DISTINCT {name}) AS d{place}")
            asked += [] if _has_other(attribute) else [f"count({name}) AS c{place}"]
        return asked
    quantiles = "quantile_cont" if family in ("decimal", "float") else "quantile_disc"
    asked = [f"min({name}) AS low{place}", f"max({name}) AS high{place}", f"{quantiles}({name}, [0.25, 0.5, 0.75]) AS q{place}"]
    asked.append(f"count({name}) AS c{place}")
    if family in _NUMBERS:
        asked += [f"avg({name}) AS avg{place}", f"stddev_samp({name}) AS std{place}"]
    return asked


def _open(attribute: Attribute) -> bool:
    """Whether a listed column has other values too."""
    return attribute.kind == "categorical" and attribute.outside == "other"


def _has_other(attribute: Attribute) -> bool:
    """Whether other values stand in a histogram: of texts, as `OTHER_LABEL`."""
    return sqltypes.parse(attribute.sql_type).family == "text"


def _row(place: int, attribute: Attribute) -> str:
    """Return the items of a column's row."""
    family = sqltypes.parse(attribute.sql_type).family
    values = dict.fromkeys(COLUMNS, "NULL")
    values["column_name"], values["column_type"] = literal(attribute.name), literal(attribute.sql_type)
    if attribute.kind == "categorical":
        apart = _open(attribute) and not _has_other(attribute)
        counted = f"c{place}" if apart else f"system.main.list_sum(system.main.map_values(h{place}))"
        listed = f"system.main.map_keys(h{place})"
        values["approx_unique"] = f"d{place}" if _open(attribute) else f"system.main.len({listed})"
        if _open(attribute):
            listed = f"system.main.list_filter({listed}, lambda x: CAST(x AS VARCHAR) <> {literal(OTHER_LABEL)})"
        values["min"], values["max"] = f"system.main.list_min({listed})", f"system.main.list_max({listed})"
    else:
        counted = f"c{place}"
        values["min"], values["max"] = f"low{place}", f"high{place}"
        for i, name in enumerate(("q25", "q50", "q75")):
            values[name] = f"q{place}[{i + 1}]"
    if family in _NUMBERS and attribute.kind != "categorical":
        values["avg"], values["std"] = f"avg{place}", f"std{place}"
    values["count"] = "greatest(n, 0)"
    if attribute.nullable:
        values["null_percentage"] = f"CASE WHEN n > 0 THEN greatest(0, least(100, 100 * (n - {counted}) / n)) END"
    else:
        values["null_percentage"] = "0"
    return ", ".join(f"CAST({value} AS {COLUMNS[name]}) AS {identifier(name)}" for name, value in values.items())
