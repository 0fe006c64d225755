"""One privacy unit moves exact statistics by no more than the noise covers: random schemas, joins, units and neighbours.

DPSQL_SENSITIVITY_SCHEMAS sets how many schemas are tried, DPSQL_SENSITIVITY_SEED where they begin.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest
from pairwise import WHOLE
from sensitivity_counts import Tried, try_schema
from sqlglot import exp

from dpsql.measure import reading
from dpsql.source import joins, relations
from dpsql.source.catalog import Catalog
from dpsql.source.model import identifier
from dpsql.source.scope import Item

SCHEMAS = int(os.environ.get("DPSQL_SENSITIVITY_SCHEMAS", "10" if WHOLE else "6"))
FIRST = int(os.environ.get("DPSQL_SENSITIVITY_SEED", "1"))
FEW = max(4, SCHEMAS // 2)


def run(
    folder: Path, capsys: pytest.CaptureFixture[str], schemas: int, *, unique: bool = True, enough: float = math.inf
) -> tuple[Tried, list[str]]:
    """Try so many schemas, or until ``enough`` comparisons have failed."""
    tried, failed = Tried(), list[str]()
    for seed in range(FIRST, FIRST + schemas):
        failed += try_schema(seed, folder, tried, unique=unique, worlds=5 if WHOLE else 3)
        if len(failed) >= enough:
            break
    with capsys.disabled():
        print(f"\nsensitivity, seeds {FIRST} to {seed}: {dict(sorted(tried.items()))}")
    return tried, failed


def take_down_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first wall: keys are believed that are none, compared under whatever collation, and repeat rows."""
    believed = {"pub1": [["k1"]], "pub2": [["k2"]], "pub12": [["k1", "k2"]]}
    whole = joins.one_row_a_key
    monkeypatch.setattr(Catalog, "keys", lambda self, table: believed.get(table.name, []))
    for module in (joins, relations):
        monkeypatch.setattr(module, "in_bytes", lambda value, sql_type: value)
    monkeypatch.setattr(Catalog, "collated", lambda self, table: set())

    def repeating(item: Item, key: list[str]) -> exp.Subquery:
        found = whole(item, key)
        distinct = [exp.Column(this=identifier(c.ref), table=identifier(item.alias)) for c in item.columns]
        found.this.set("distinct", exp.Distinct(on=exp.Tuple(expressions=distinct)))
        return found

    monkeypatch.setattr(relations, "one_row_a_key", repeating)


def take_down_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second wall: rows are not counted by their number."""
    bounding = reading.bounding
    monkeypatch.setattr(reading, "bounding", lambda protected: {**bounding(protected), "numbered": False})


def test_no_neighbour_moves_more_than_is_claimed(tmp_path, capsys):
    tried, failed = run(tmp_path, capsys, SCHEMAS)
    assert not failed, failed[:5]
    assert tried["repeated rows"] == 0
    # it did try something: most sources are accepted, joins are among them, and neighbours differ in what is counted
    assert tried["sources"] >= 2 * SCHEMAS
    assert tried["joins"] >= 4 * SCHEMAS
    assert tried["moved"] >= tried["comparisons"] // 5


def test_rows_that_a_join_repeats_count_once(tmp_path, capsys, monkeypatch):
    take_down_keys(monkeypatch)
    tried, failed = run(tmp_path, capsys, FEW, unique=False)
    assert not failed, failed[:5]
    assert tried["repeated rows"] >= FEW


def test_the_key_alone_keeps_rows_from_being_repeated(tmp_path, capsys, monkeypatch):
    take_down_numbers(monkeypatch)
    tried, failed = run(tmp_path, capsys, FEW)
    assert not failed, failed[:5]
    assert tried["joins"] >= 4 * FEW


@pytest.mark.any_duckdb
def test_the_generator_notices_when_neither_holds(tmp_path, capsys, monkeypatch):
    take_down_keys(monkeypatch)
    take_down_numbers(monkeypatch)
    _, failed = run(tmp_path, capsys, 3 * FEW, unique=False, enough=3)  # the bound on a unit's rows hides most of what is repeated
    assert len(failed) >= 3
