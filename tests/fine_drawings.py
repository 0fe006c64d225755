"""Drawings of the round before the tables, over a table ``t`` with an automatic column ``x`` from 0 to 1000."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from typing import Any

import duckdb
import numpy as np
import pytest
from dpsql.udfs import instance_of
from made_once import in_memory

import dpsql
from dpsql.calls.rows import SynthesizeCall
from dpsql.calls.tables import MarginalsCall
from dpsql.kinds import measures
from dpsql.kinds.plans import Request, request
from dpsql.measure.reading import Measured
from dpsql.noise import discrete
from dpsql.protected.source import resolve
from dpsql.release.plan import Plan
from dpsql.running.progress import Progress
from dpsql.session.instance import open_context

VALUES = "(1.0), (3.5), (70), (800), (800), (800), (NULL), ('nan'), ('inf'), (-5), (1e6), (0), ('-0.0')"


def database(values: str, outside: str = "clamp", nullable: bool = True, **contract: Any) -> duckdb.DuckDBPyConnection:
    """Return a database with a protected table of these values."""
    con = in_memory(protected, outside, nullable, **contract)
    if values:
        con.execute(f"INSERT INTO t SELECT v::DOUBLE, 1 FROM (VALUES {values}) AS _(v)")
    dpsql.load(con, progress=False)
    return con


def protected(con: duckdb.DuckDBPyConnection, outside: str, nullable: bool, **contract: Any) -> None:
    con.execute("CREATE TABLE t(x DOUBLE, unit INTEGER)")
    dpsql.load(con, progress=False)
    given_ = "".join(f", {name} := {value!r}" for name, value in contract.items())
    con.execute(f"CALL dp_protect('t', epsilon := 1000, delta := 1e-6{given_})")
    con.execute(f"CALL dp_declare('t', 'x', lower := 0, upper := 1000, outside := '{outside}', nullable := {str(nullable).lower()})")


@contextmanager
def asked(con: duckdb.DuckDBPyConnection, call: Any) -> Iterator[tuple[Request, Callable[[], Measured]]]:
    """Give what a call would buy, and a function that reads and draws it, without a charge."""
    with open_context(instance_of(con), con.execute("SELECT current_database()").fetchone()[0], "main") as context:
        protected = resolve(context, call.source)
        wanted = request(context, protected, call)
        yield wanted, lambda: measures.measure(context, protected, wanted.plan, Progress("test", show=False))


def laplace(epsilon: float = 1.0) -> MarginalsCall:
    return MarginalsCall(source="t", columns=("x",), epsilon=epsilon, mechanism="laplace")


def gaussian(epsilon: float = 1.0, **more: Any) -> SynthesizeCall:
    return SynthesizeCall(source="t", columns=("x",), epsilon=epsilon, **more)


class Blind:
    """Noise that ignores the counts and writes them down: so all cells are fixed, and exact counts can be compared."""

    def __init__(self, seed: int = 0, high: int = 4000) -> None:
        self.rng, self.high = np.random.default_rng(seed), high
        self.exact: list[np.ndarray] = []

    def __call__(self, counts: np.ndarray, mechanism: str, scale: Fraction) -> np.ndarray:
        self.exact.append(counts.copy())
        return self.rng.integers(-50, self.high, counts.size).astype(np.int64)


def counted(monkeypatch: pytest.MonkeyPatch, con: duckdb.DuckDBPyConnection, call: Any, blind: Blind | None = None) -> tuple[list[np.ndarray], Measured, Plan]:
    """Return the exact counts of every drawing: each level of the fine histogram, then the tables; what came out; the plan."""
    noise = blind or Blind()
    monkeypatch.setattr(discrete, "add_noise", noise)
    with asked(con, call) as (wanted, measure):
        found = measure()
    monkeypatch.undo()
    return noise.exact, found, wanted.plan


def same(one: Measured, other: Measured) -> bool:
    return (
        one.flat.tolist() == other.flat.tolist()
        and one.total == other.total
        and one.refinement is not None
        and other.refinement is not None
        and one.refinement.to_json() == other.refinement.to_json()
    )
