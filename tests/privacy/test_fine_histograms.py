"""The round before the tables: what a row changes in it, what chooses its cells and bins, what it costs; and audits that find faults.

**The audit by replay.** A release is drawn for a table, and every noisy integer written down together with the exact count and the
scale that it was drawn with. Then the same code runs on a neighbouring table, while the drawing is replaced by those integers. If
all that is released is a function of released integers, the second run asks for as many of them and releases the same bytes; the
logarithm of the ratio of the two probabilities of this release is then exactly sum (|r - x'| - |r - x|) / b, over all integers, and must
not pass epsilon. A release that the neighbour could not have given has an infinite ratio. The statement holds for every release, so
there are no false alarms.
"""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import hypothesis.strategies as st
import numpy as np
import pytest
from dpsql.udfs import instance_of
from hypothesis import given, settings
from scipy.stats import beta

import dpsql
from dpsql.accounting import sensitivities
from dpsql.accounting.gaussian import effective_variance
from dpsql.calls.rows import SynthesizeCall
from dpsql.calls.tables import AggregatesCall, MarginalsCall
from dpsql.domains.declare import declare
from dpsql.domains.grid import grid_of
from dpsql.kinds import measures
from dpsql.kinds.plans import Request, request
from dpsql.measure import fine as measuring
from dpsql.measure import noising
from dpsql.measure.reading import Measured
from dpsql.noise import discrete
from dpsql.protected.source import resolve
from dpsql.release import refined, store
from dpsql.release.plan import Plan
from dpsql.running.progress import Progress
from dpsql.session.instance import open_context
from dpsql.tables import fine

VALUES = "(1.0), (3.5), (70), (800), (800), (800), (NULL), ('nan'), ('inf'), (-5), (1e6), (0), ('-0.0')"
EXTRA = ["800", "3.5", "NULL", "'nan'", "'-inf'", "'inf'", "1e7", "0", "999.99"]
OUTSIDE = [(outside, nullable) for outside in ("clamp", "other", "drop") for nullable in (True, False)]


def database(values: str, outside: str = "clamp", nullable: bool = True, **contract: Any) -> duckdb.DuckDBPyConnection:
    con = duckdb.connect()
    con.execute("CREATE TABLE t(x DOUBLE, unit INTEGER)")
    if values:
        con.execute(f"INSERT INTO t SELECT v::DOUBLE, 1 FROM (VALUES {values}) AS _(v)")
    dpsql.load(con, progress=False)
    given_ = "".join(f", {name} := {value!r}" for name, value in contract.items())
    con.execute(f"CALL dp_protect('t', epsilon := 1000, delta := 1e-6{given_})")
    con.execute(f"CALL dp_declare('t', 'x', lower := 0, upper := 1000, outside := '{outside}', nullable := {str(nullable).lower()})")
    return con


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


@pytest.mark.parametrize(("outside", "nullable"), OUTSIDE)
def test_a_row_more_changes_one_cell_of_each_level_by_one(monkeypatch, outside, nullable):
    l1, l2 = sensitivities("add_remove")
    with database(VALUES, outside, nullable) as con:
        before, first, _ = counted(monkeypatch, con, gaussian())
        levels = len(grid_of(declare("x", "DOUBLE", nullable=True, lower=0, upper=1000)).levels)
        assert len(before) > levels
        changed = 0
        for value in EXTRA:
            con.execute(f"INSERT INTO t VALUES ({value}::DOUBLE, 1)")
            after, second, _ = counted(monkeypatch, con, gaussian())
            con.execute("DELETE FROM t")
            con.execute(f"INSERT INTO t SELECT v::DOUBLE, 1 FROM (VALUES {VALUES}) AS _(v)")
            assert same(first, second)  # nothing that is released depends on the row
            for one, other in zip(before, after, strict=True):
                change = (other - one).astype(object)
                assert sum(abs(change)) <= l1
                assert sum(change**2) <= l2**2
                assert min(change, default=0) >= 0
            changed += any((a != b).any() for a, b in zip(before[:levels], after[:levels], strict=True))
    # Values that do not count ('drop', 'other', and NULL where it has a code) change nothing; all others do.
    assert changed == {"clamp": 7 if nullable else 9, "other": 4, "drop": 4}[outside]


@pytest.mark.parametrize(("outside", "nullable"), OUTSIDE[::2])
def test_a_replaced_row_changes_two_cells_at_most(monkeypatch, outside, nullable):
    l1, l2 = sensitivities("replace_one")
    with database(VALUES, outside, nullable, neighbors="replace_one") as con:
        before, _, _ = counted(monkeypatch, con, gaussian())
        reached = 0
        for value in EXTRA:
            con.execute(f"UPDATE t SET x = {value}::DOUBLE WHERE x = 70")
            after, _, _ = counted(monkeypatch, con, gaussian())
            con.execute("DELETE FROM t")
            con.execute(f"INSERT INTO t SELECT v::DOUBLE, 1 FROM (VALUES {VALUES}) AS _(v)")
            for one, other in zip(before, after, strict=True):
                change = (other - one).astype(object)
                assert sum(abs(change)) <= l1
                assert sum(change**2) <= l2**2 + 1e-9
                reached = max(reached, sum(abs(change)))
    assert reached == l1


@pytest.mark.parametrize("neighbors", ["add_remove", "replace_one"])
def test_a_unit_with_many_rows_changes_no_more_than_it_may_contribute(monkeypatch, neighbors):
    rows = "(1.0, 1), (800, 1), (20, 2), (800, 2), (800, 2), (NULL, 3), (5, 3)"
    more = ", ".join(f"({value}, 4)" for value in (800, 800, 800, 800, 1, 2, 20, 500))
    others = ", ".join(f"({value}, 4)" for value in (300, 300, 300, 300, 300, 301, 302))
    with database("", privacy_unit="unit", max_contributions=3, neighbors=neighbors) as con:
        con.execute("DELETE FROM t")
        con.execute(f"INSERT INTO t VALUES {rows}" + (f", {others}" if neighbors == "replace_one" else ""))
        l1, l2 = sensitivities(neighbors, 3)
        # Which rows of a unit are kept is drawn anew at each reading: the others keep all of theirs, so only unit 4 differs.
        before, first, plan = counted(monkeypatch, con, gaussian())
        con.execute("DELETE FROM t WHERE unit = 4")
        con.execute(f"INSERT INTO t VALUES {more}")
        after, second, _ = counted(monkeypatch, con, gaussian())
        assert same(first, second)
        reached = 0
        for one, other in zip(before, after, strict=True):
            change = (other - one).astype(object)
            assert sum(abs(change)) <= l1
            assert sum(change**2) <= l2**2 + 1e-9
            reached = max(reached, sum(abs(change)))
        assert reached == l1
        assert plan.fine


COST = declare("x", "DOUBLE", nullable=True, lower=0, upper=100_000)
AGE = declare("x", "INTEGER", nullable=True, lower=0, upper=2000)


@given(data=st.data(), seed=st.integers(0, 2**32), attribute=st.sampled_from([COST, AGE]), high=st.sampled_from([1, 10, 100, 10_000]))
@settings(max_examples=40)
def test_cells_and_edges_follow_from_released_counts_alone(data, seed, attribute, high):
    levels = len(grid_of(attribute).levels)
    size = grid_of(attribute).edges.size - 1
    column = refined.FineColumn(0, (Fraction(2),) * levels, "gaussian")
    plan = Plan(refined.Domain((attribute,)), ((0,),), (Fraction(2),), "gaussian", False, None, {}, fine=(column,))
    kept = discrete.add_noise
    found = []
    for _ in range(2):
        cells = data.draw(st.lists(st.tuples(st.integers(0, size - 1), st.integers(0, 10**6)), max_size=12))
        exact = np.zeros(size, np.int64)
        for cell, n in cells:
            exact[cell] += n
        discrete.add_noise = Blind(seed, high)
        try:
            counts = measuring._released(plan, column, exact)
        finally:
            discrete.add_noise = kept
        edges = {is_exact: refined.cut_edges(plan, [counts], 2.0, exact=is_exact) for is_exact in (False, True)}
        found.append((counts.tolist(), edges))
    assert found[0] == found[1]


def total_rho(plan: Plan, l2: float, fine_only: bool = False) -> float:
    scales = [scale for column in plan.fine for scale in column.scales] + ([] if fine_only else list(plan.scales))
    return float(sum(Fraction(l2) ** 2 / (2 * effective_variance(scale**2)) for scale in scales))


MANY = """CREATE TABLE t AS SELECT (i * 37 % 1000)::DOUBLE AS x, (i * 13 % 90)::INTEGER AS age, i % 3 = 0 AS c, (i % 7)::DECIMAL(9, 2) AS d,
    DATE '2000-01-01' + (i * 11 % 5000)::INTEGER AS day, i % 50 AS unit FROM range(400) r(i)"""


def many(neighbors: str = "add_remove", unit: bool = False) -> duckdb.DuckDBPyConnection:
    con = duckdb.connect()
    con.execute(MANY)
    dpsql.load(con, progress=False)
    more = ", privacy_unit := 'unit', max_contributions := 2" if unit else ""
    con.execute(f"CALL dp_protect('t', epsilon := 100, delta := 1e-6, neighbors := '{neighbors}'{more})")
    con.execute("CALL dp_declare('t', 'x', lower := 0, upper := 1000)")
    con.execute("CALL dp_declare('t', 'age', lower := 0, upper := 99, bins := 10)")
    con.execute("CALL dp_declare('t', 'day', lower := '2000-01-01', upper := '2020-01-01', outside := 'drop')")
    return con


def expected_levels(plan: Plan) -> list[int]:
    return [len(grid_of(plan.domain.attributes[column.position]).levels) for column in plan.fine]


@pytest.mark.parametrize(("neighbors", "unit"), [("add_remove", False), ("replace_one", False), ("add_remove", True)])
@pytest.mark.parametrize("call", [SynthesizeCall(source="t", epsilon=1.0), MarginalsCall(source="t", k=2, epsilon=1.0)], ids=["rows", "tables"])
def test_under_gaussian_noise_tables_coarse_tables_and_levels_are_what_is_charged(neighbors, unit, call):
    with many(neighbors, unit) as con, asked(con, call) as (wanted, _):
        plan, charge = wanted.plan, wanted.calibration.charge
    _, l2 = sensitivities(neighbors, 2 if unit else 1)
    rows = isinstance(call, SynthesizeCall)
    names = [plan.domain.names[column.position] for column in plan.fine]
    assert names == (["x", "age", "day"] if rows else ["x", "day"])
    assert [len(column.scales) for column in plan.fine] == expected_levels(plan)
    assert len(plan.scales) == len(plan.cliques) + len(plan.coarse)
    assert bool(plan.coarse) == rows
    rho = total_rho(plan, l2)
    assert rho <= float(charge.rho) <= rho * 1.001
    counted_events = sum(event.count for event in charge.events)
    assert counted_events == len(plan.scales) + sum(map(len, (column.scales for column in plan.fine)))
    assert sum(float(event.rho) for event in charge.events) == pytest.approx(rho, rel=1e-12)
    assert all(event.l2_sensitivity == l2 for event in charge.events)
    share = total_rho(plan, l2, fine_only=True) / rho
    assert 0.01 < share < 0.21


@pytest.mark.parametrize("neighbors", ["add_remove", "replace_one"])
def test_under_laplace_noise_levels_are_tables_among_others(neighbors):
    with many(neighbors) as con, asked(con, MarginalsCall(source="t", k=2, epsilon=2.0, mechanism="laplace")) as (wanted, _):
        plan, charge = wanted.plan, wanted.calibration.charge
    l1, _ = sensitivities(neighbors)
    scales = [scale for column in plan.fine for scale in column.scales]
    assert scales
    assert {column.mechanism for column in plan.fine} == {"laplace"}
    epsilon = sum(Fraction(l1) / scale for scale in (*scales, *plan.scales))
    assert 1.99 < float(epsilon) <= 2.0
    assert sum(event.count * event.l1_sensitivity / float(event.scale) for event in charge.events) == pytest.approx(float(epsilon))


def test_methods_that_draw_pay_for_levels_from_their_pure_epsilon():
    for method in ("laplace_sanitizer", "perturbed_histogram"):
        with many() as con, asked(con, SynthesizeCall(source="t", columns=("x", "c"), method=method, epsilon=2.0)) as (wanted, _):
            plan, charge = wanted.plan, wanted.calibration.charge
        levels = [scale for column in plan.fine for scale in column.scales]
        assert levels
        pure = sum(Fraction(1) / scale for scale in levels)
        assert float(pure) <= 0.2
        assert float(pure) == pytest.approx(0.2, rel=0.01)
        told = [event for event in charge.events if event.to_json()["event"] == "laplace" and event.count == len(levels) and event.scale == levels[0]]
        assert len(told) == 1
        rest = [event for event in charge.events if event is not told[0]]
        assert rest
        assert float(charge.epsilon) <= 2.0 * (1 + 1e-9)


def test_counts_of_combinations_pay_for_levels_too():
    with many() as con, asked(con, AggregatesCall(source="t", reporting_length=2, epsilon=1.0)) as (wanted, _):
        plan, charge = wanted.plan, wanted.calibration.charge
    rho = total_rho(plan, 1.0)
    assert [plan.domain.names[column.position] for column in plan.fine] == ["x", "day"]
    assert [len(column.scales) for column in plan.fine] == expected_levels(plan)
    assert rho <= float(charge.rho) <= rho * 1.001
    assert total_rho(plan, 1.0, fine_only=True) / rho == pytest.approx(0.04, rel=0.02)


@pytest.mark.parametrize("option", [0.01, 0.2, 0.5])
def test_the_option_is_the_part_of_the_loss(option):
    with many() as con, asked(con, SynthesizeCall(source="t", epsilon=1.0, options={"fine": option})) as (wanted, _):
        plan = wanted.plan
    assert total_rho(plan, 1.0, fine_only=True) / total_rho(plan, 1.0) == pytest.approx(option, rel=0.01)


def test_noise_has_the_scales_of_the_plan(monkeypatch):
    """What is drawn is what is charged: every drawing of a release, and its scale."""
    drawn: list[tuple[int, Fraction, str]] = []
    real = discrete.add_noise
    monkeypatch.setattr(discrete, "add_noise", lambda c, mechanism, scale: drawn.append((c.size, scale, mechanism)) or real(c, mechanism, scale))
    with many() as con, asked(con, SynthesizeCall(source="t", epsilon=1.0)) as (wanted, measure):
        found, plan = measure(), wanted.plan
    levels = [scale for column in plan.fine for scale in column.scales]
    assert [scale for _, scale, _ in drawn[: len(levels)]] == levels
    cells = sum(size for size, _, _ in drawn[: len(levels)])
    assert cells == sum(counts.size for counts in found.refinement.counts)
    now = refined.resolved(plan, found.refinement)
    assert sum(size for size, _, _ in drawn[len(levels) :]) == found.flat.size == now.cells
    assert {scale for _, scale, _ in drawn[len(levels) :]} == set(plan.scales)
    assert {name for _, _, name in drawn} == {"gaussian"}


class Drawn:
    """The real noise, written down."""

    def __init__(self) -> None:
        self.calls: list[tuple[np.ndarray, np.ndarray, Fraction]] = []
        self.real = discrete.add_noise

    def __call__(self, counts: np.ndarray, mechanism: str, scale: Fraction) -> np.ndarray:
        assert mechanism == "laplace"
        noisy = self.real(counts, mechanism, scale)
        self.calls.append((counts.copy(), noisy, scale))
        return noisy


class Impossible(Exception):
    """The neighbour cannot give this release."""


class Replayed:
    """The integers of another run, and by how much more or less likely they were there."""

    def __init__(self, drawn: Drawn) -> None:
        self.left, self.loss = list(drawn.calls), Fraction(0)

    def __call__(self, counts: np.ndarray, mechanism: str, scale: Fraction) -> np.ndarray:
        if not self.left:
            raise Impossible
        exact, noisy, used = self.left.pop(0)
        if exact.shape != counts.shape or used != scale:
            raise Impossible
        self.loss += Fraction(int((np.abs(noisy - counts) - np.abs(noisy - exact)).sum())) / scale
        return noisy


def losses(monkeypatch: pytest.MonkeyPatch, one: str, other: str, runs: int) -> list[float]:
    """Return log(P(release | one) / P(release | other)) of releases of one table; infinite where the other cannot give it."""
    found = []
    with database(one) as con, database(other) as neighbour, asked(con, laplace()) as (_, measure), asked(neighbour, laplace()) as (_, again):
        for _ in range(runs):
            drawn = Drawn()
            monkeypatch.setattr(discrete, "add_noise", drawn)
            first = measure()
            replayed = Replayed(drawn)
            monkeypatch.setattr(discrete, "add_noise", replayed)
            try:
                second = again()
                found.append(float(replayed.loss) if not replayed.left and same(first, second) else math.inf)
            except Impossible:
                found.append(math.inf)
            finally:
                monkeypatch.setattr(discrete, "add_noise", drawn.real)
    return found


TINY = "(800), (800), (800), (800), (5)"
NEIGHBOURS = [(f"{TINY}, (800)", TINY), (TINY, f"{TINY}, (800)"), (TINY, f"{TINY}, (0)"), (TINY, "(800), (800), (800), (800)"), ("(3)", ""), ("", "(999)")]


@pytest.mark.parametrize(("one", "other"), NEIGHBOURS)
def test_no_release_is_more_likely_than_epsilon_allows(monkeypatch, one, other):
    found = losses(monkeypatch, one, other, 25)
    assert max(map(abs, found)) <= 1.0 + 1e-9
    assert max(map(abs, found)) > 0.4  # and the noise is not so large that nothing could be seen


DENSE = ", ".join(["(800)"] * 40 + ["(805)"] * 12 + ["(2)"] * 12)


def audited(monkeypatch: pytest.MonkeyPatch, runs: int = 60) -> float:
    """The largest loss over runs of a table whose cells are just about parted, both ways."""
    return max(map(abs, losses(monkeypatch, DENSE, f"{DENSE}, (800)", runs) + losses(monkeypatch, f"{DENSE}, (800)", DENSE, runs)))


@pytest.fixture
def two_levels(monkeypatch):
    """Levels of a lone column under Laplace noise: two, so that the second one's cells are chosen by the first one's counts."""
    from dpsql.kinds import fine as kinds

    monkeypatch.setattr(kinds, "shallow", lambda wanted, tables: kinds.FineWanted(wanted.positions, tuple(min(levels, 2) for levels in wanted.levels)))


def test_two_levels_stay_within_epsilon(monkeypatch, two_levels):
    assert 0.4 < audited(monkeypatch, 15) <= 1.0 + 1e-9


def test_the_audit_finds_a_level_with_half_the_noise(monkeypatch, two_levels):
    """A run shows it with probability 1/8 at least (three drawings on one side): 120 runs miss it with (7/8)^120 = 1e-7."""
    real = noising.add_noise
    monkeypatch.setattr(measuring, "add_noise", lambda flat, lengths, scales, mechanism: real(flat, lengths, [scales[0] / 2], mechanism))
    assert audited(monkeypatch) > 1.0 + 1e-9


def test_the_audit_finds_cells_that_were_chosen_by_exact_counts(monkeypatch, two_levels):
    def faulty(plan: Plan, column: Any, exact: np.ndarray) -> np.ndarray:
        cells = grid_of(plan.domain.attributes[column.position], len(column.scales))
        top = fine.top_cells(cells)
        sums = fine.counted(top, exact)
        below = fine.next_cells(cells, 1, top, np.where(sums > 52, 10**6, 0), column.scales[0], column.mechanism)  # 52 or 53 rows
        drawn = [noising.add_noise(fine.counted(c, exact), [c.first.size], [s], column.mechanism) for c, s in zip((top, below), column.scales, strict=True) if c.first.size]
        return np.concatenate(drawn)

    monkeypatch.setattr(measuring, "_released", faulty)
    monkeypatch.setattr(refined, "cut_edges", lambda plan, counts, noise, *, exact: (plan.domain.attributes[0].edges,))
    assert audited(monkeypatch, 3) == math.inf


def test_the_audit_finds_edges_that_were_cut_from_exact_counts(monkeypatch, two_levels):
    seen: list[np.ndarray] = []
    real_count, real_cut = measuring.count_fine, refined.cut_edges

    def count(*given_: Any) -> Any:
        found = real_count(*given_)
        seen.append(found[0])
        return found

    def cut(plan: Plan, counts: Any, noise: float, *, exact: bool) -> Any:
        edge = float(seen[-1].sum())  # the number of rows, as an edge
        return ((0.0, edge, 1000.0),)

    monkeypatch.setattr(measuring, "count_fine", count)
    monkeypatch.setattr(refined, "cut_edges", cut)
    assert audited(monkeypatch, 2) == math.inf
    monkeypatch.setattr(refined, "cut_edges", real_cut)
    assert audited(monkeypatch, 2) <= 1.0 + 1e-9


def test_an_attacker_who_counts_cannot_tell_neighbours_apart(monkeypatch):
    """Statistically, by outcomes alone: the event that best separates them, chosen on one half of the runs, bounded on the other.

    Clopper and Pearson at 1e-6 for both probabilities together; the pure epsilon is 2, and without any noise on a level the bound would
    be far above (the last line).
    """
    with database(TINY) as con, database(f"{TINY}, (800)") as neighbour:
        call = laplace(2.0)

        def outcomes(connection: duckdb.DuckDBPyConnection, runs: int) -> np.ndarray:
            with asked(connection, call) as (wanted, measure):
                first = measure()
                column = wanted.plan.fine[0]
                cell = int(grid_of(wanted.plan.domain.attributes[0], len(column.scales)).place(np.asarray([800.0]))[0])
                assert first.refinement is not None
                cells = fine.top_cells(grid_of(wanted.plan.domain.attributes[0], len(column.scales)))
                where = int(np.searchsorted(cells.first, cell, side="right")) - 1
                secret: dict[int, np.ndarray] = {}
                real = measuring.count_fine

                def once(*given_: Any) -> dict[int, np.ndarray]:
                    return secret or secret.update(real(*given_)) or secret

                monkeypatch.setattr(measuring, "count_fine", once)
                found = [m.refinement.counts[0][where] + int(m.flat.sum()) for m in (measure() for _ in range(runs))]
                monkeypatch.undo()
                return np.asarray(found)

        one, other = outcomes(con, 300), outcomes(neighbour, 300)
    half = 150
    cuts = np.arange(-30, 60)
    ratio = [(np.mean(other[:half] >= c) + 0.01) / (np.mean(one[:half] >= c) + 0.01) for c in cuts]
    best = int(cuts[int(np.argmax(ratio))])
    yes, no = int((other[half:] >= best).sum()), int((one[half:] >= best).sum())
    low = beta.ppf(5e-7, yes, half - yes + 1) if yes else 0.0
    high = beta.ppf(1 - 5e-7, no + 1, half - no) if no < half else 1.0
    assert low <= math.exp(2.0) * high
    assert beta.ppf(5e-7, half, 1) > math.exp(2.0) * beta.ppf(1 - 5e-7, 1, half)  # what no noise at all would show


def modules() -> Iterator[tuple[str, Path]]:
    """Yield every module of the package with its path inside it."""
    for folder in map(Path, dpsql.__path__):  # in a checkout udfs/ and sql/ stand beside dpsql/
        rooms = [folder] if (folder / "errors.py").is_file() else [folder / "udfs", folder / "sql"]
        yield from ((path.relative_to(folder).as_posix(), path) for room in rooms for path in room.rglob("*.py"))


def names_of(tree: ast.AST) -> set[str]:
    return {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)} | {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def test_exact_counts_of_levels_are_named_where_protected_rows_are_read_and_nowhere_else():
    found = {}
    for name, path in modules():
        text = path.read_text(encoding="utf-8")
        if not any(word in text for word in ("counted", "count_fine", "fine_statement", "number_expression")):
            continue
        tree = ast.parse(text)
        origins = ("dpsql.tables", "dpsql.tables.fine")
        nodes = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module in origins]
        imports = {alias.name for node in nodes for alias in node.names}
        named = {"counted", "count_fine", "fine_statement", "number_expression"} & names_of(tree)
        if named - {"counted"} or (named and imports & {"fine", "counted"}):
            found[name] = named
    assert found.pop("measure/fine.py") == {"counted", "count_fine", "fine_statement", "number_expression"}
    assert set(found) <= {"kinds/measured.py"}  # binds the statement, without running it
    assert all(named == {"fine_statement"} for named in found.values())


def test_what_cuts_bins_imports_nothing_that_reads():
    known = dict(modules())
    for name in ("tables/fine.py", "tables/cutting.py", "tables/tails.py", "release/refined.py", "domains/grid.py", "domains/within.py"):
        path = known[name]
        tree = ast.parse(path.read_text(encoding="utf-8"))
        named = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)} | {a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names}
        assert not [m for m in named if m.startswith(("duckdb", "dpsql.measure", "dpsql.kinds", "dpsql.session", "dpsql.protected"))], name


def test_a_release_says_nothing_of_exact_counts(monkeypatch):
    """Blind noise: the manifest of two very different tables is the same but for times and hashes."""
    texts = []
    for values in (VALUES, "(500), (501), (502)"):
        with database(values) as con:
            monkeypatch.setattr(discrete, "add_noise", Blind(3))
            with asked(con, gaussian()) as (wanted, measure):
                found = measure()
            monkeypatch.undo()
            assert found.refinement is not None
            texts.append(json.dumps([wanted.plan.to_json(), found.refinement.to_json(), list(found.notes), store.fingerprint(found.flat, (), None, found.refinement)]))
    assert texts[0] == texts[1]
