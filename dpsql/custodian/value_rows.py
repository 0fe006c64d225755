"""Whole rows of a synthetic table: which rules they break, and which are rows of the raw table. NOT PRIVATE."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import sqlglot
from sqlglot import exp

from dpsql.custodian.value_table import RAW, SYNTHETIC, Figure, ValueTable, both
from dpsql.domains.encoding import SOURCE_NAME
from dpsql.errors import ArgumentError, DpsqlError, first_line
from dpsql.text.relation import identifier


def duplicates(table: ValueTable) -> list[Figure]:
    """Return how many synthetic rows equal a raw row in every compared column, and how many raw rows equal another raw row.

    NULL equals NULL, and numbers of different types are equal where their values are.
    """
    names = [f"c{i}" for i in range(len(table.domain.attributes))]
    columns = [
        [f"{identifier(SOURCE_NAME, a.name)} AS {name}" for a, name in zip(domain.attributes, names, strict=True)]
        for domain in table.domains
    ]
    counts = f"count(*) FILTER (s = {RAW}) AS a, count(*) FILTER (s = {SYNTHETIC}) AS b"
    rows = both(columns[0], columns[1], table.sources, table.domains)
    query = (
        "SELECT coalesce(sum(a) FILTER (a > 1), 0)::BIGINT, coalesce(sum(b) FILTER (a > 0), 0)::BIGINT "  # noqa: S608 -- quoted
        f"FROM (SELECT {counts} FROM ({rows}) GROUP BY {', '.join(names)})"
    )
    ((raw, synthetic),) = table.fetch(query)
    shares = [count / n if n else None for count, n in zip((raw, synthetic), table.rows, strict=True)]
    return [
        Figure("duplicates", table.rows, raw, synthetic, alike=False),
        Figure("duplicate_share", table.rows, shares[0], shares[1], alike=False),
    ]


def rules_broken(table: ValueTable, rules: Sequence[str]) -> list[Figure]:
    """Return for each rule how many rows break it.

    Parameters
    ----------
    rules : sequence of str
        Boolean SQL expressions over the columns of a row. NULL counts as kept.

    Raises
    ------
    ArgumentError
        A rule is no such expression, or does not fit the raw table. One that does not fit the synthetic table, which may lack
        columns, has no synthetic figure.
    """
    found = []
    for rule in rules:
        checked(rule)
        counts: list[tuple[int, int] | None] = []
        for source, which in zip(table.sources, (RAW, SYNTHETIC), strict=True):
            test = f"SELECT ({rule}\n) AS kept FROM (\n{source}\n) AS {SOURCE_NAME}"  # noqa: S608 -- one expression
            try:
                kind = table.cursor.execute(f"DESCRIBE {test}").fetchall()[0][1]
            except duckdb.Error as error:
                if which == RAW:
                    raise ArgumentError("rules", rule, f"does not fit the table: {first_line(error)}") from None
                counts.append(None)
                continue
            if kind not in ("BOOLEAN", '"NULL"'):
                raise ArgumentError("rules", rule, f"a boolean expression is required; this one is {kind}")
            counts.append(_broken(table, rule, test))
        found.append(_figure(table, rule, counts))
    return found


def _broken(table: ValueTable, rule: str, test: str) -> tuple[int, int]:
    """Return how many rows break a rule, and how many there are."""
    try:
        ((broken, rows),) = table.fetch(f"SELECT count(*) FILTER (NOT kept), count(*) FROM ({test})")  # noqa: S608
    except DpsqlError:
        text = "fails on some row, and the text is withheld because it could show a value; a CAST? Use TRY_CAST"
        raise ArgumentError("rules", rule, text) from None
    return broken, rows


def _figure(table: ValueTable, rule: str, counts: Sequence[tuple[int, int] | None]) -> Figure:
    raw, rows = counts[0] or (0, 0)
    if counts[1] is None:
        note = "it does not fit the synthetic table, which may lack columns of it"
        return Figure("rules_broken", (rows, table.rows[SYNTHETIC]), raw, rule=rule, notes=(note,))
    synthetic, synthetic_rows = counts[1]
    apart = abs(raw - synthetic * rows / synthetic_rows) if synthetic_rows else None
    return Figure("rules_broken", (rows, synthetic_rows), raw, synthetic, error=apart, unit=rows, rule=rule)


def checked(rule: object) -> None:
    """Refuse what is not one expression over the values of a row.

    Raises
    ------
    ArgumentError
        Says what it is instead.
    """
    wanted = "a boolean SQL expression over the columns of a row is required, e.g. 'age >= 18 OR NOT married'"
    if not isinstance(rule, str) or not rule.strip():
        raise ArgumentError("rules", rule, wanted)
    try:
        statements = sqlglot.parse(f"SELECT ({rule}\n)", read="duckdb")
    except sqlglot.errors.SqlglotError:
        raise ArgumentError("rules", rule, wanted) from None
    parsed = statements[0] if len(statements) == 1 else None
    if parsed is None:
        raise ArgumentError("rules", rule, wanted)
    alone = isinstance(parsed, exp.Select) and len(parsed.expressions) == 1 and isinstance(parsed.expressions[0], exp.Paren)
    if not alone or any(parsed.args.get(key) for key in ("from", "from_", "joins", "where")):
        raise ArgumentError("rules", rule, wanted)
    if any(parsed.find(kind) for kind in (exp.AggFunc, exp.Window)) or len(list(parsed.find_all(exp.Select))) > 1:
        raise ArgumentError("rules", rule, wanted)
