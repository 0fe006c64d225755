"""The round before the tables: audits of its releases, which find faults.

**The audit by replay.** A release is drawn for a table, and every noisy integer written down together with the exact count and the
scale that it was drawn with. Then the same code runs on a neighbouring table, while the drawing is replaced by those integers. If
all that is released is a function of released integers, the second run asks for as many of them and releases the same bytes; the
logarithm of the ratio of the two probabilities of this release is then exactly sum (|r - x'| - |r - x|) / b, over all integers, and must
not pass epsilon. A release that the neighbour could not have given has an infinite ratio. The statement holds for every release, so
there are no false alarms.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import duckdb
import numpy as np
import pytest
from fine_drawings import asked, database, laplace, same
from scipy.stats import beta

from dpsql.domains.grid import grid_of
from dpsql.measure import fine as measuring
from dpsql.measure import noising
from dpsql.noise import discrete
from dpsql.release import refined
from dpsql.release.plan import Plan
from dpsql.tables import fine


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


def audited(monkeypatch: pytest.MonkeyPatch, runs: int, enough: float = math.inf) -> float:
    """The largest loss over runs of a table whose cells are just about parted, both ways; or the first that is ``enough``."""
    worst, more = 0.0, f"{DENSE}, (800)"
    for start in range(0, runs, 15):
        for pair in ((DENSE, more), (more, DENSE)):
            worst = max(worst, *map(abs, losses(monkeypatch, *pair, min(15, runs - start))))
        if worst >= enough:
            break
    return worst


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
    assert audited(monkeypatch, 60, 1.1) > 1.0 + 1e-9


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
