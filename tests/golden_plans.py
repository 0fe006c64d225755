"""What dp_query makes of some 300 statements, in words and SQL: the text of ``tests/golden/*.txt``, which a test compares.

    python tests/golden_plans.py

writes the files anew. A change of the code that changes one of them is looked at, line by line.
"""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import duckdb
from dpsql.udfs import instance_of
from query_readings import SALT, make_sales, protect_sales

from dpsql.answers.query import checked, purchases
from dpsql.calls.query import QueryCall
from dpsql.errors import DpsqlError
from dpsql.kinds.plans import request
from dpsql.measure.statement import Statement
from dpsql.release.queried import QueryPlan
from dpsql.session.instance import Context, open_context
from dpsql.source.parse import render

FOLDER = Path(__file__).parent / "golden"


def _module(path: Path) -> ModuleType:
    """Return a module that is not on the path of the tests."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def statements() -> dict[str, list[tuple[str, str]]]:
    """Return the statements by file: each with further arguments of its call."""
    daily = _module(Path(__file__).parent / "benchmarks" / "daily_statements.py")
    neighbours = _module(Path(__file__).parent / "privacy" / "test_query_neighbours.py")
    found: dict[str, list[tuple[str, str]]] = {name: [] for name in daily.UNITS}
    for sql in daily.STATEMENTS:
        name = next((name for name in found if re.search(rf"\b{name}\b", sql)), "visits")
        found[name].append((sql, ""))
    found["sales"] = [*neighbours.QUERIES, *neighbours.REFUSED]
    return found


@contextmanager
def opened() -> Iterator[tuple[duckdb.DuckDBPyConnection, Context]]:
    """Give a database with all tables, and the context of a call."""
    con = duckdb.connect()
    _module(Path(__file__).parent / "benchmarks" / "daily_statements.py").make(con)
    make_sales(con)
    protect_sales(con)
    instance = instance_of(con)
    assert instance is not None
    with open_context(instance, "memory", "main") as context:
        yield con, context
    con.close()


def call_of(con: duckdb.DuckDBPyConnection, sql: str, more: str) -> QueryCall:
    """Return a call as the macro would give it."""
    given = json.loads(con.execute(f"SELECT to_json(struct_pack({more}))").fetchall()[0][0]) if more else {}
    return QueryCall.parse({"sql": sql, "epsilon": 15.0, **given})


def rendered(con: duckdb.DuckDBPyConnection, context: Context, sql: str, more: str) -> str:
    """Return what a query is taken apart into: its rows, groups, measures, statements and the outer statement; or why it is refused."""
    try:
        call = call_of(con, sql, more)
        found, sources = checked(context, call)
        lines = [f"answer: {render(found.query.outer)}"]
        for bought, held in zip(purchases(found, sources), sources, strict=True):
            for purchase, source in zip(bought, held, strict=True):
                plan = request(context, source, purchase).plan.query
                assert plan is not None
                lines += ["", f"-- {purchase.asked.canonical()['aggregates']} by {list(purchase.asked.key_texts)} of {purchase.asked.rows}"]
                lines += described(plan)
                made = Statement(source, plan, None if not plan.public else "(groups)", SALT)
                lines += [f"rows: {source.source.sql}", f"sums: {made.sums()[0].removeprefix(made.reading()).strip()}"]
    except DpsqlError as error:
        return f"refused: {error}"
    return "\n".join(lines)


def described(plan: QueryPlan) -> list[str]:
    """Return a plan in lines, without noise."""
    bounded = {name: getattr(plan, name) for name in ("max_rows", "max_groups", "max_rows_per_group", "different", "min_units")}
    lines = [f"keys: {', '.join(plan.keys) or 'none'}", f"groups: {plan.groups_sql or 'private'} ({plan.groups})"]
    lines.append("bounded: " + ", ".join(f"{name}={value}" for name, value in bounded.items() if value))
    for measure in plan.measures:
        item = measure.to_json()
        bounds = [f"a{v.position} [{v.lower:g}, {v.upper:g}]{' whole' if v.whole else ''}{' learned' if v.learned is not None else ''}" for v in measure.variables]
        rest = {name: item[name] for name in ("degree", "filter", "nulls", "levels", "nans", "other") if item.get(name)}
        values = f" {len(measure.values)} values" if measure.values else ""
        lines.append(f"measure: {measure.kind} {', '.join(bounds)} {rest}{values}{' cut' if measure.units is not None else ''}")
    lines += [f"pick: {one.share} beside {one.place}" for one in plan.picking]
    return lines


def texts() -> Iterator[tuple[str, str]]:
    """Give the name and the text of each file."""
    with opened() as (con, context):
        for name, asked in statements().items():
            parts = []
            for sql, more in asked:
                parts.append(f"{'=' * 20} {sql}{f'  ({more})' if more else ''}\n{rendered(con, context, sql, more)}\n")
            yield name, "\n".join(parts)


def main() -> None:
    """Write the files."""
    FOLDER.mkdir(exist_ok=True)
    for name, text in texts():
        (FOLDER / f"{name}.txt").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
