"""Fine histograms of linked tables: weighted as blocks are, and codes of values that agree with those of SQL."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from case_counts import cases
from linked_families import WEIGHT, Row, database, fill, planned, table

from dpsql.domains.attributes import Attribute, Domain
from dpsql.domains.declare import declare
from dpsql.domains.encoding import encode_sql
from dpsql.domains.grid import grid_of
from dpsql.measure.linked import LinkedReading, Statements, _codes
from dpsql.measure.reading import snapshot
from dpsql.release.linked import LinkedColumn, LinkedPlan, LinkedTable
from dpsql.source.model import TableId


def with_numbers(found: LinkedTable, **more: Any) -> LinkedTable:
    """Return a table with a number between 0 and 1000 beside its columns."""
    attribute = declare("x", "INTEGER", lower=0, upper=1000, nullable=True, **more)
    assert attribute.automatic
    columns = (*found.columns, LinkedColumn("x", "INTEGER", required=False))
    return replace(found, columns=columns, domain=Domain((*found.domain.attributes, attribute)))


PLAN: LinkedPlan = planned([table("a", None, 1, (2,)), with_numbers(table("b", 0, 3, (2,))), with_numbers(table("c", 1, 2, ()))])
PLACES = (2, 3)


def filled(seed: int) -> list[list[Row]]:
    """Return rows of three tables; families may be larger than a release counts."""
    rng = np.random.default_rng(seed)
    rows: list[list[Row]] = [[{"id": i + 1, "a0": int(rng.integers(0, 2))} for i in range(6)], [], []]
    for place, most in ((1, 7), (2, 5)):
        for above in list(rows[place - 1]):
            for _ in range(int(rng.integers(0, most))):
                value = int(rng.integers(-100, 1200)) if rng.random() < 0.9 else None
                row: Row = {"id": len(rows[place]) + 1, "up": above["id"], **({"b0": 1} if place == 1 else {}), "x": value}
                rows[place].append(row)
    return rows


def counted(rows: list[list[Row]]) -> dict[int, np.ndarray[Any, Any]]:
    """Return the weights in the finest cells of both columns."""
    con = database()
    for found, listed in zip(PLAN.tables, rows, strict=True):
        fill(con, found, listed)
    grids = {place: grid_of(PLAN.domain.attributes[place], 2) for place in PLACES}
    with snapshot(con):
        tables = tuple(TableId("memory", "main", found.name) for found in PLAN.tables)
        return LinkedReading(con, Statements(PLAN, tables, None), ["a" * 32] * 3).fine(grids)


@pytest.mark.parametrize("seed", range(cases(3)))
def test_a_unit_changes_each_histogram_by_at_most_its_weight(seed: int) -> None:
    rows = filled(seed)
    whole, changes = counted(rows), []
    for unit in [row["id"] for row in rows[0]]:
        gone = {row["id"] for row in rows[1] if row["up"] == unit}
        rest = [
            [row for row in rows[0] if row["id"] != unit], [row for row in rows[1] if row["up"] != unit],
            [row for row in rows[2] if row["up"] not in gone],
        ]  # fmt: skip
        without = counted(rest)
        changes += [int(np.abs(whole[place] - without[place]).sum()) for place in PLACES]
    assert 0 < max(changes) <= WEIGHT


@pytest.mark.parametrize("outside", ["clamp", "other", "drop"])
@pytest.mark.parametrize("nullable", [True, False])
@pytest.mark.parametrize(
    ("kind", "bounds", "edges", "values"),
    [
        ("INTEGER", (0, 1000), (0.0, 3.0, 500.0, 1000.0), "(0), (2), (3), (499), (500), (999), (1000), (1001), (-1), (NULL)"),
        ("DOUBLE", (0, 10), (0.0, 2.5, 9.0, 10.0), "('0'), ('2.4999'), ('2.5'), ('9'), ('10'), ('10.1'), ('-3'), ('nan'), ('inf'), (NULL)"),
        ("DECIMAL(6,2)", (0, 100), (0.0, 0.5, 50.0, 100.0), "(0), (.49), (.5), (50), (100), (100.01), (-1), (NULL)"),
        (
            "DATE", ("2020-01-01", "2021-01-01"), ("2020-01-01", "2020-01-05", "2021-01-01"),
            "('2020-01-01'), ('2020-01-04'), ('2020-01-05'), ('2021-01-01'), ('2022-01-01'), ('2019-01-01'), (NULL)",
        ),
    ],
)  # fmt: skip
def test_codes_of_values_are_those_of_sql(
    kind: str, bounds: tuple[Any, Any], edges: tuple[Any, ...], values: str, nullable: bool, outside: str
) -> None:
    automatic = declare("x", kind, lower=bounds[0], upper=bounds[1], nullable=nullable, outside=outside)
    assert automatic.automatic
    cut: Attribute = replace(automatic, edges=edges, automatic=False)
    con = database()
    con.execute(f"CREATE OR REPLACE TABLE t AS SELECT row_number() OVER () AS id, col0::{kind} AS x FROM (VALUES {values})")
    columns = (LinkedColumn("id", "BIGINT", required=True), LinkedColumn("x", kind, required=False))
    root = LinkedTable("main.t", "t", None, 1, "drop", None, None, ("id",), "id", False, columns, Domain((automatic,)))
    plan = LinkedPlan((root,), (), 1)
    frame = con.execute(Statements(plan, (TableId("memory", "main", "t"),), "id").units() + " ORDER BY k0").fetchnumpy()
    found = _codes(replace(root, domain=Domain((cut,))), frame)[0]
    wanted = con.execute(encode_sql("SELECT * FROM t ORDER BY id", Domain((cut,)), False, 1, "0" * 32)).fetchnumpy()["c0"]
    assert sorted(found.tolist()) == sorted(int(code) for code in wanted)
    assert found.max() < cut.size
