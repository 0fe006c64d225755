"""Random statements over links, on databases with and without all rows of one unit: counters move by what is charged, the rest is equal.

Joins along links, of siblings, on the unit and with public tables, EXISTS and IN, groups by keys, windows, set operations, over a chain
of four tables with two more children, odd names, keys that are NULL, orphans. What is said of both databases is equal: refusals, names
and types of columns, plans. A visit that moves to another patient changes two units: two are taken out and two put in.

DPSQL_LINKED_STATEMENTS sets how many statements are tried for each shape, DPSQL_LINKED_SEED where they begin.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path

import duckdb
import numpy as np
import pytest
from linked_statements import Statement, Statements
from linked_worlds import SHAPES, Shape, world
from query_readings import Readings, excess, excess_before, excess_picks, replayed

from dpsql.measure import query as reading
from dpsql.noise import discrete

STATEMENTS = int(os.environ.get("DPSQL_LINKED_STATEMENTS", "4"))
FIRST = int(os.environ.get("DPSQL_LINKED_SEED", "1"))
FEW = STATEMENTS < 10
MOVED = 4.0
"""Steps of one unit more or fewer from a database to one in which a row is another patient's."""


@dataclass
class Asked:
    """What a statement says of a database: names and types of columns, or the refusal; and what was read for it."""

    said: object
    readings: Readings


@dataclass
class Tried:
    """What was tried, and what failed."""

    counts: Counter[str] = field(default_factory=Counter)
    failed: list[tuple[object, ...]] = field(default_factory=list)
    largest: float = 0.0

    def compare(self, statement: Statement, one: Asked, other: Asked, steps: float) -> None:
        """Compare what was said and read of two databases that so many steps lie between."""
        if one.said != other.said or len(one.readings.found) != len(other.readings.found):
            self.failed.append(("said", statement, one.said, other.said))
            return
        distances = []
        for (plan, first), (other_plan, second) in zip(one.readings.found, other.readings.found, strict=True):
            if plan != other_plan:
                self.failed.append(("planned", statement))
                return
            distances.append(max(max(pair) for pair in excess(plan, first, second)))
        for (plan, first), (_, second) in zip(one.readings.before, other.readings.before, strict=True):
            distances.append(max(excess_before(plan, first, second), default=0.0))
        for (plan, _), first, second in zip(one.readings.before, one.readings.ranks, other.readings.ranks, strict=True):
            distances.append(max(excess_picks(plan, first, second), default=0.0))
        most = max(distances, default=0.0)
        self.largest = max(self.largest, most / steps)
        self.counts["moved"] += most > 0
        if most > steps + 1e-9:
            self.failed.append((most, statement))


def ask(con: duckdb.DuckDBPyConnection, statement: Statement, name: str, patch: pytest.MonkeyPatch, earlier: Readings | None = None) -> Asked:
    """Ask a statement without noise; ``earlier``: whose histograms take the place of those before the counters."""
    quoted = statement.sql.replace("'", "''")
    more = f", {statement.more}" if statement.more else ""
    with replayed(patch, None, earlier) as readings:
        try:
            con.execute(f"FROM dp_query('{quoted}', epsilon := 1, delta := 1e-12, release := '{name}'{more})")
            said: object = [tuple(map(str, column[:2])) for column in con.description or []]
            con.fetchall()
        except duckdb.Error as error:
            said = str(error)
    return Asked(said, readings)


def run(shape: Shape, seed: int, statements: int, folder: Path, patch: pytest.MonkeyPatch, *, enough: int = 10**6) -> Tried:
    """Try so many statements, or until some have failed."""
    tried = Tried()
    patch.setattr(discrete, "add_noise", lambda counts, mechanism, scale: np.asarray(counts, dtype=np.int64))
    generator = Statements(seed)
    units = shape.units[:1] if FEW else shape.units
    for start in range(0, statements, 60):  # a database whose books are long is slow
        paths = (folder / f"{start}-{place}.duckdb" for place in range(9))
        whole = world(shape, next(paths))
        others = [(1.0, world(shape, next(paths), left_out=unit)) for unit in units]
        if not FEW:
            others.append((MOVED, world(shape, next(paths), moved=True)))
        for number in range(start, min(start + 60, statements)):
            statement = generator.statement()
            one = ask(whole, statement, f"q{number}", patch)
            refused = isinstance(one.said, str)
            tried.counts["refused" if refused else "answered"] += 1
            if refused and "final result" in str(one.said):
                tried.failed.append(("a row made it fail", statement, one.said))
            for steps, con in others:
                tried.compare(statement, one, ask(con, statement, f"q{number}", patch, one.readings if one.readings.before else None), steps)
            if len(tried.failed) >= enough:
                break
        for con in (whole, *(con for _, con in others)):
            con.close()
        if len(tried.failed) >= enough:
            break
    return tried


@pytest.mark.parametrize("shape", list(SHAPES)[1:3] if FEW else SHAPES)
@pytest.mark.usefixtures("unrehearsed")
def test_no_statement_over_links_moves_by_more_than_is_claimed(shape, tmp_path, monkeypatch, capsys):
    tried = run(SHAPES[shape], FIRST + list(SHAPES).index(shape), STATEMENTS, tmp_path, monkeypatch)
    with capsys.disabled():
        print(f"\nstatements over links, {shape}: {dict(sorted(tried.counts.items()))}, largest {tried.largest:.3f}")
    assert not tried.failed, tried.failed[:5]
    assert tried.counts["answered"] >= STATEMENTS // 2
    assert tried.counts["moved"] >= STATEMENTS // 4 and tried.largest > 0.5


@pytest.mark.usefixtures("unrehearsed")
def test_the_generator_notices_a_bound_that_is_forgotten(tmp_path, monkeypatch):
    counted = reading.counted
    monkeypatch.setattr(
        reading, "counted",
        lambda cursor, protected, plan, *early: counted(cursor, protected, replace(plan, max_rows=10**6, max_rows_per_group=10**6), *early),
    )  # fmt: skip
    assert run(SHAPES["families"], 7, 30, tmp_path, monkeypatch, enough=1).failed


@pytest.mark.usefixtures("unrehearsed")
def test_answers_are_those_of_duckdb_where_no_bound_binds(tmp_path, monkeypatch):
    """Counts and sums, without noise, of rows that are no orphans and that links leave as they are."""
    monkeypatch.setattr(discrete, "add_noise", lambda counts, mechanism, scale: np.asarray(counts, dtype=np.int64))
    con = world(SHAPES["numbers"], tmp_path / "tame.duckdb", tame=True)
    plain, generator, answered, asked = con.cursor(), Statements(FIRST, wrong=0.0), 0, 0
    while answered < max(5, STATEMENTS):
        statement = generator.statement()
        outer, _, inner = statement.sql.partition(" FROM ")
        if any(word in outer for word in ("avg", "median", "max(", "stddev", "DISTINCT", ".n)", "(n)")) or "bounds" in statement.more or outer.startswith("SELECT n,"):
            continue
        if "CROSS JOIN" in inner and " OR " in inner:  # a condition on both sides: one public row is reckoned with, and more are bounded
            continue
        keys = statement.keys
        quoted, asked = statement.sql.replace("'", "''"), asked + 1
        try:
            rows = con.execute(f"FROM dp_query('{quoted}', epsilon := 1, delta := 1e-12, release := 'q{asked}')").fetchall()
        except duckdb.Error:
            continue
        found = {tuple(map(str, row[:keys])): row[keys:] for row in rows}
        for row in plain.execute(statement.sql).fetchall():
            known = found.get(tuple(map(str, row[:keys])))
            assert known is None or [float(x or 0) for x in known] == pytest.approx([float(x or 0) for x in row[keys:]], rel=2e-3, abs=0.01), statement
            answered += known is not None and any(row[keys:])
    con.close()
