"""What a synthetic database charges and what it gives out, end to end: exact numbers of databases with and without all rows of a unit.

Rows are chosen with the same salts. What was released of the first database is released of the second one as well, so that fine
histograms look at the same cells: the loss of an adaptive composition is that of its rounds, each given what came before.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import duckdb
import numpy as np
import pytest
from case_counts import cases
from dpsql.udfs import instance_of

import dpsql
from dpsql.calls.schemas import SynthesizeTablesCall
from dpsql.kinds.linked import measure as blocks
from dpsql.measure import families, fine, linked
from dpsql.purchase import buying
from dpsql.running.progress import Progress
from dpsql.session.instance import open_context

Rows = dict[str, list[tuple[Any, ...]]]
TABLES = """
CREATE TABLE patients (ssn INTEGER UNIQUE, id INTEGER {key}, sex VARCHAR, age INTEGER);
CREATE TABLE visits (visit VARCHAR UNIQUE, id INTEGER, cost DOUBLE);
CREATE TABLE procedures (visit VARCHAR, code VARCHAR, price DECIMAL(9,2));
CREATE TABLE notes (id INTEGER, kind INTEGER);
"""


@dataclass
class Reading:
    """What was counted, round by round: exact numbers, lengths, scales, mechanism."""

    rounds: list[tuple[np.ndarray, list[int], list[Fraction], str]] = field(default_factory=list)


def random_rows(seed: int, *, nullable: bool) -> Rows:
    """Return small random tables: NULL keys, orphans, families beyond max_rows, values beyond their bounds."""
    rng = np.random.default_rng(seed)
    pick = lambda *given: given[int(rng.integers(len(given)))]  # noqa: E731
    patients = [(pick(None, i), pick(None, i) if nullable else i, pick("f", "m", None), int(rng.integers(-5, 120))) for i in range(6)]
    patients += [(10 + i, 10 + i, "f", 50) for i in range(2)]
    visits = []
    for i in [*range(12), None, 99]:
        for _ in range(int(rng.integers(0, 5))):
            visits.append((pick(None, f"v{len(visits)}", f"v{len(visits)}"), i, pick(None, float("nan"), -0.0, 0.0, 5.5, 99.0, 1e300)))
    visits += [(f"w{i}", 10, 7.0) for i in range(5)]
    known = [visit for visit, _, _ in visits] + ["lost", None]
    procedures = [(pick(*known), pick("a", "b", "c", None), pick(None, "0.10", "50.00", "900.00")) for _ in range(40)]
    notes = [(pick(*range(12), None, 99), pick(0, 1, 2, None)) for _ in range(20)]
    return {"patients": patients, "visits": visits, "procedures": procedures, "notes": notes}


def without(rows: Rows, unit: object, column: str | None, orphans: str) -> Rows:
    """Return the rows of all others, by the definition of whose they are."""
    at = 0 if column == "ssn" else 1
    lost: object = None if orphans == "unit" else "nobody"
    of_patient = {row[1]: row[at] for row in rows["patients"] if row[1] is not None}
    of_visit = {row[0]: of_patient.get(row[1], lost) for row in rows["visits"] if row[0] is not None}
    return {
        "patients": [row for row in rows["patients"] if row[at] != unit],
        "visits": [row for row in rows["visits"] if of_patient.get(row[1], lost) != unit],
        "procedures": [row for row in rows["procedures"] if of_visit.get(row[0], lost) != unit],
        "notes": [row for row in rows["notes"] if of_patient.get(row[0], lost) != unit],
    }


@contextmanager
def watched(patch: pytest.MonkeyPatch, before: Reading | None = None) -> Iterator[Reading]:
    """Note exact numbers and give them out as they are, or what was given out ``before``; rows are chosen with known salts."""
    found, salts = Reading(), iter(range(1000))

    def noise(flat: np.ndarray, lengths: Sequence[int], scales: Sequence[Fraction], mechanism: str) -> np.ndarray:
        shown = flat if before is None else before.rounds[len(found.rounds)][0]
        found.rounds.append((flat.copy(), [int(n) for n in lengths], list(scales), mechanism))
        return shown.copy()

    with patch.context() as inside:
        inside.setattr(blocks, "add_noise", noise)
        inside.setattr(fine, "add_noise", noise)
        inside.setattr(linked, "fresh_salt", lambda: f"{next(salts):032x}")
        yield found


@functools.cache
def database(unit: str | None, orphans: str, neighbors: str, mechanism: str) -> duckdb.DuckDBPyConnection:
    """A database of all tests of a contract: declaring one takes longer than what is measured."""
    con = duckdb.connect(config={"threads": 1})
    con.execute(TABLES.format(key="PRIMARY KEY" if unit is None else "UNIQUE"))
    dpsql.load(con, progress=False)
    contract = f", privacy_unit := '{unit}', max_contributions := 1" if unit else ""
    accountant = ", accountant := 'basic'" if mechanism == "laplace" else ""
    con.execute(f"CALL dp_protect('patients', epsilon := 1000, delta := 1e-6, neighbors := '{neighbors}'{contract}{accountant})")
    for name, column, parent, key, most in (("visits", "id", "patients", "id", 3), ("procedures", "visit", "visits", "visit", 2), ("notes", "id", "patients", "id", 2)):
        con.execute(f"CALL dp_link('{name}', '{column}', parent := '{parent}', parent_column := '{key}', max_rows := {most}, orphans := '{orphans}')")
    con.execute("CALL dp_declare('patients', 'sex', categories := ['f', 'm'])")
    con.execute("CALL dp_declare('patients', 'age', lower := 0, upper := 100)")
    con.execute("CALL dp_declare('visits', 'cost', lower := 0, upper := 100)")
    con.execute("CALL dp_declare('procedures', 'code', categories := ['a', 'b'], outside := 'drop')")
    con.execute("CALL dp_declare('procedures', 'price', lower := 0, upper := 100)")
    con.execute("CALL dp_declare('notes', 'kind', categories := [0, 1])")
    return con


def bought(rows: Rows, unit: str | None, orphans: str, neighbors: str, mechanism: str, patch: Any, before: Reading | None = None, *, independent: bool = False) -> Any:
    """Return what was counted for a release of a database of these rows, its charge (rho, epsilon) and its public total."""
    con = database(unit, orphans, neighbors, mechanism)
    for name, listed in rows.items():
        con.execute(f"TRUNCATE {name}")
        if listed:
            marks = ", ".join([f"({', '.join('?' * len(listed[0]))})"] * len(listed))
            con.execute(f"INSERT INTO {name} VALUES {marks}", [value for row in listed for value in row])
    charges = "FROM dpsql.ledger WHERE action = 'charge'"
    name = f"r{con.execute(f'SELECT count(*) {charges}').fetchall()[0][0]}"
    options = {"effort": "fast", "mechanism": mechanism}
    call = SynthesizeTablesCall(source="patients", epsilon=20.0, into_schema="s", options=options, release=name, independent=independent)
    with watched(patch, before) as found, open_context(instance_of(con), "memory", "main") as context, Progress("test", show=False) as progress:
        release = buying.buy(context, call, progress)
    rho, epsilon = con.execute(f"SELECT rho, epsilon {charges} ORDER BY entry DESC LIMIT 1").fetchall()[0]
    return found, float(rho if mechanism == "gaussian" else epsilon), release.manifest["total"]


def loss(one: Reading, other: Reading) -> float:
    """Return rho of Gaussian noise, the sum of squared differences over 2 sigma^2, or epsilon of Laplace noise."""
    found = 0.0
    assert [round_[1:] for round_ in one.rounds] == [round_[1:] for round_ in other.rounds], "what is given out has another shape"
    for (first, lengths, scales, mechanism), (second, *_) in zip(one.rounds, other.rounds, strict=True):
        ends = np.cumsum([0, *lengths])
        for start, end, scale in zip(ends[:-1], ends[1:], scales, strict=True):
            difference = np.abs(first[start:end] - second[start:end]).astype(float)
            found += float((difference**2).sum() / (2 * scale**2) if mechanism == "gaussian" else difference.sum() / float(scale))
    return found


SHAPES = [("id", "drop", "gaussian"), ("ssn", "unit", "gaussian"), ("ssn", "drop", "laplace"), (None, "drop", "gaussian"), (None, "unit", "laplace")]
"""The privacy unit (None: a row is a person), what becomes of rows without a parent, the noise."""


@pytest.mark.parametrize("seed", range(cases(1)))
@pytest.mark.parametrize(("unit", "orphans", "mechanism"), SHAPES)
def test_a_unit_more_or_fewer_loses_at_most_what_was_charged(unit, orphans, mechanism, seed, monkeypatch):
    rows = random_rows(seed, nullable=unit is not None)
    whole, charged, total = bought(rows, unit, orphans, "add_remove", mechanism, monkeypatch)
    assert total is None
    there, reached = sorted({row[0 if unit == "ssn" else 1] for row in rows["patients"]} - {None}), 0.0
    for one in {10, there[seed % len(there)], *([None] if orphans == "unit" else [])}:
        rest, price, _ = bought(without(rows, one, unit, orphans), unit, orphans, "add_remove", mechanism, monkeypatch, whole)
        assert price == charged and loss(whole, rest) <= charged * (1 + 1e-9), one
        reached = max(reached, loss(whole, rest) / charged)
    assert reached > 0.2  # who has many rows that are alike loses most of it


@pytest.mark.parametrize(("unit", "mechanism"), [("id", "gaussian"), (None, "laplace")])
def test_a_unit_in_the_place_of_another_loses_at_most_what_was_charged(unit, mechanism, monkeypatch):
    rows = random_rows(5, nullable=unit is not None)
    one, charged, total = bought(without(rows, 11, unit, "drop"), unit, "drop", "replace_one", mechanism, monkeypatch)
    other, price, again = bought(without(rows, 10, unit, "drop"), unit, "drop", "replace_one", mechanism, monkeypatch, one)
    assert price == charged and 0 < loss(one, other) <= charged * (1 + 1e-9)
    assert total == again and (total is not None) == (unit is None), "a key that may be NULL leaves the number of units private"


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_independent_tables_lose_at_most_what_was_charged(mechanism, monkeypatch):
    rows = random_rows(1, nullable=True)
    whole, charged, _ = bought(rows, "id", "drop", "add_remove", mechanism, monkeypatch, independent=True)
    for one in (10, 11):
        rest, price, _ = bought(without(rows, one, "id", "drop"), "id", "drop", "add_remove", mechanism, monkeypatch, whole, independent=True)
        assert price == charged and 0 < loss(whole, rest) <= charged * (1 + 1e-9), one


@pytest.mark.parametrize("independent", [False, True])
def test_a_forgotten_weight_costs_more_than_was_charged(monkeypatch, independent):
    monkeypatch.setattr(families, "shared", lambda weights, among: weights)
    rows = random_rows(0, nullable=True)
    whole, charged, _ = bought(rows, "id", "drop", "add_remove", "gaussian", monkeypatch, independent=independent)
    rest, _, _ = bought(without(rows, 10, "id", "drop"), "id", "drop", "add_remove", "gaussian", monkeypatch, whole, independent=independent)
    assert loss(whole, rest) > charged
