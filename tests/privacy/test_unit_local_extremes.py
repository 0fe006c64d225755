"""Aggregates and windows of the kernel fail for no value, under no setting, on this version of DuckDB; and not for what is around them.

Every aggregate and window function that a source may call, over every type of column that it takes, on a table of extreme values: the
rehearsal and the net of TRY are taken down, so that what is tried is the kernel alone.
"""

from __future__ import annotations

import random
from collections import Counter

import duckdb
import pytest
from case_counts import cases
from kernel_expressions import SETTINGS, TYPES, make_table

from dpsql.algebra.aggregates import AGGREGATES, INSIDE, WINDOWS
from dpsql.errors import ArgumentError, UnsupportedQuery
from dpsql.session.settings import pin
from dpsql.source import leaves
from dpsql.source.binder import check_local
from dpsql.source.catalog import Catalog
from dpsql.source.leaves import View
from dpsql.source.local import LocalAnalysis
from dpsql.source.model import TableId
from dpsql.source.parse import parse_query, render
from dpsql.source.unit_local import UnitLocal

TABLE = TableId("memory", "main", "p")
HOME = ("memory", "main")
COMPOSED = {name: name for name, one in AGGREGATES.items() if one.composed}
FRAMES = ("", " ORDER BY {0}", " ORDER BY {0} DESC ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING", " ORDER BY {0} NULLS FIRST")


def calls(columns: dict[str, str], rng: random.Random) -> list[str]:
    """Return every aggregate over a column of every type, some with DISTINCT or FILTER, and over random expressions."""
    found = []
    for column in columns:
        if column.endswith("2"):
            continue
        for name, kind in {**INSIDE, **COMPOSED}.items():
            more = ", 0.5" if kind.startswith("quantile") else f", {rng.choice(list(columns))}" if kind.startswith("arg_") else ""
            distinct = "DISTINCT " if rng.random() < 0.2 and not kind.startswith(("arg_", "quantile")) else ""
            condition = " FILTER (WHERE bo)" if rng.random() < 0.2 else ""
            found.append(f"{name}({distinct}{column}{more}){condition}")
    return found


def windows(columns: dict[str, str], rng: random.Random) -> list[str]:
    found = []
    for column in columns:
        for name in rng.sample([*WINDOWS], 3) + rng.sample([*INSIDE], 3):
            kind = INSIDE.get(name, name)
            other = rng.choice(list(columns))
            given = {"row_number": "", "rank": "", "dense_rank": "", "rank_dense": "", "percent_rank": "", "cume_dist": "", "ntile": "3", "nth_value": f"{column}, 2"}
            more = ", 0.25" if kind.startswith("quantile") else f", {other}" if kind.startswith("arg_") else ""
            frame = FRAMES[3] if name in WINDOWS and name not in ("first_value", "last_value", "nth_value") else rng.choice(FRAMES)
            found.append(f"{name}({given.get(name, column + more)}) OVER (PARTITION BY g{frame.format(other)})")
    return found


@pytest.fixture(scope="module")
def gate():
    con = duckdb.connect(":memory:")
    columns = make_table(con, rows=60)
    catalog = Catalog(con.cursor())
    pin(catalog.cursor)
    return con, columns, catalog


def accepted(catalog: Catalog, text: str, counts: Counter) -> str | None:
    """Return the generated SQL of a text, as the kernel accepts it, without TRY; None if it is refused."""
    analysis = LocalAnalysis(catalog, lambda t: True, lambda t: (), lambda t: "g", HOME)
    try:
        relation = analysis.query(parse_query(text), View((HOME,)))
        check_local(catalog, render(relation.select), analysis.probe(relation.select), [TABLE], UnitLocal(TABLE, "g"))
    except (UnsupportedQuery, ArgumentError):
        counts["refused"] += 1
        return None
    counts["accepted"] += 1
    return render(relation.select)


@pytest.mark.parametrize("what", ["aggregates", "windows"])
def test_what_the_kernel_combines_never_fails(gate, what, monkeypatch, record_property):
    con, columns, catalog = gate
    monkeypatch.setattr(catalog, "changed_function", lambda names: None)
    known: dict[str, set[str]] = {}
    monkeypatch.setattr(leaves, "generated_columns", lambda sql: known.setdefault(sql, set()))
    rng = random.Random(11)
    counts: Counter = Counter()
    made = calls(columns, rng) if what == "aggregates" else windows(columns, rng)
    rng.shuffle(made)
    texts = [f"SELECT g, {c} AS x FROM p GROUP BY g" if what == "aggregates" else f"SELECT g, {c} AS x FROM p" for c in made[: cases(100)]]
    generated = [(text, sql) for text in texts if (sql := accepted(catalog, text, counts)) is not None]
    for setting in ("threads = 2", *SETTINGS):
        name = setting.split(" = ")[0]
        con.execute(f"SET GLOBAL {setting}")
        try:
            cursor = con.cursor()
            pin(cursor)
            for text, sql in generated if setting == "threads = 2" else rng.sample(generated, min(12, len(generated))):
                try:
                    cursor.execute(f"SELECT count(x) FROM ({sql})").fetchall()
                except duckdb.Error as error:
                    pytest.fail(f"{text} under {setting}: {str(error)[:200]}")
        finally:
            con.execute(f"RESET GLOBAL {name}")
    record_property("counts", dict(counts))
    assert counts["accepted"] > 30 and counts["refused"] > 10, counts
    assert len(TYPES) > 30


@pytest.mark.fact("1.4.5", "1.5.6")
def test_a_variance_that_is_not_kept_in_range_fails_without_its_guard():
    with duckdb.connect(":memory:") as con:
        con.execute("CREATE TABLE v AS SELECT unnest([1e308, -1e308, 1e300]) AS x")
        with pytest.raises(duckdb.OutOfRangeException):
            con.execute("SELECT var_samp(x) FROM v").fetchall()


@pytest.mark.fact
def test_a_sum_that_is_not_kept_in_range_fails_without_its_guard():
    with duckdb.connect(":memory:") as con, pytest.raises(duckdb.OutOfRangeException):
        con.execute(f"SELECT sum(x) FROM (SELECT unnest([{2**127 - 1}::HUGEINT, {2**127 - 1}::HUGEINT]) AS x)").fetchall()
