"""Numbers of distinct values that are read off a counter for each of them: a unit counts once for a value, however many rows it has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from query_readings import NEIGHBOURS, Readings, check_moves, moved, priced, read_questions

from dpsql.estimates.measures import Measure
from dpsql.measure import statement
from dpsql.measure.statement import Statement

QUESTIONS: list[tuple[str, str]] = [
    ("SELECT count(DISTINCT region) FROM sales", ""),
    ("SELECT count(DISTINCT region), bool_or(gift), count(DISTINCT gift) FILTER (WHERE amount > 20) FROM sales", "max_rows := 3"),
    ("SELECT count(DISTINCT region), count(DISTINCT customer), count(*) FROM sales", ""),
    ('SELECT gift, count(DISTINCT region), sum(DISTINCT "order") FROM sales GROUP BY gift', ""),
    ('SELECT gift, count(DISTINCT "order") FROM sales GROUP BY gift', "max_groups := 2, max_rows_per_group := 2"),
    ("SELECT note, count(DISTINCT region) FROM sales GROUP BY note", ""),
    ("SELECT climate, bool_and(gift), count(DISTINCT region) FROM sales JOIN regions ON region = name GROUP BY climate", ""),
    ("SELECT histogram(region), count(DISTINCT region) FROM sales", ""),
    ("SELECT count(DISTINCT region) FROM (SELECT region, customer, count(*) AS n FROM sales GROUP BY ALL) WHERE n > 1", ""),
]


def read(patch: pytest.MonkeyPatch, left_out: str | None, earlier: Readings | None = None) -> Readings:
    return read_questions(patch, left_out, priced(QUESTIONS), earlier)


@pytest.fixture(scope="module")
def of_all() -> Readings:
    with pytest.MonkeyPatch.context() as patch:
        return read(patch, None)


@pytest.mark.parametrize("left_out", NEIGHBOURS)
@pytest.mark.usefixtures("unrehearsed")
def test_a_unit_moves_a_value_by_one(monkeypatch: pytest.MonkeyPatch, of_all: Readings, left_out: str) -> None:
    other = read(monkeypatch, left_out, of_all)
    check_moves(of_all, other, len(QUESTIONS))
    once = 0
    for (plan, exact), (_, other_exact) in zip(of_all.found, other.found, strict=True):
        blocks = [measure for measure in plan.measures for _ in measure.lengths]
        if not plan.public:
            continue
        for measure, one, two in zip(blocks, exact.blocks, other_exact.blocks, strict=True):
            if measure.once:
                once += 1
                assert np.abs(one - two).max() <= 1, plan.asked
    assert once >= 10, "few values are counted so"


def counting_rows(made: Any) -> Any:
    """A statement that forgets that a unit counts once for a value."""

    def cells(self: Statement, measure: Measure) -> str:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(statement, "units_sql", lambda plan, nulls: "count(*)")
            return str(made(self, measure))

    return cells


@pytest.mark.usefixtures("unrehearsed")
def test_counting_rows_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    text, largest = "SELECT count(DISTINCT region), count(*) FROM sales WHERE amount = 100", {}
    for broken in (False, True):
        faults = {"cells": counting_rows(Statement.cells)} if broken else {}
        plan, largest[broken] = moved(monkeypatch, faults, text, "epsilon := 0.3, max_rows := 3")
        assert [m.once for m in plan.measures] == [True, False]
    assert largest[False] == 1.0 and largest[True] > 1.5
