"""Quantiles that are drawn by rank, exactly: every value that can come, of every neighbouring pair of tiny tables, against the charge.

First the mathematics, over all small tables; then the product's way: text, plan, SQL over a table, the ledger's event. A scale that
forgets how many rows a unit has must be caught, and so must a law that is not the one that is drawn.
"""

from __future__ import annotations

import itertools
import json
import math
import os
from fractions import Fraction
from typing import Any

import duckdb
import numpy as np
import pytest
from query_ranks import apart, claimed, logs, steps
from query_readings import Readings, ask, replayed
from scipy.stats import chisquare

import dpsql
from dpsql import accounting as acc
from dpsql.accounting.blocks import Ranked, calibrate_blocks
from dpsql.accounting.gaussian import gdp_of_pure
from dpsql.estimates.measures import Measure, Variable
from dpsql.estimates.ranks import ranked
from dpsql.measure.ranked import Cells, cells_of
from dpsql.mechanisms import ranked as mechanism
from dpsql.mechanisms.ranked import inverted, private_quantile, stretches

SHARES = ("1/2", "1/10", "19/20", "1/3")
BOUND = 3
SCALE = Fraction(3, 2)


def measure(share: str, levels: int = BOUND + 1) -> Measure:
    return Measure("quantile", (Variable(0, 0, BOUND, whole=True),), levels=(levels,), share=share)


def cells(rows: tuple[tuple[int, int], ...]) -> Cells:
    """Rows as (group, value)."""
    counts = {pair: rows.count(pair) for pair in rows}
    columns = np.array([(*pair, n) for pair, n in counts.items()], dtype=np.int64).reshape(-1, 3)
    return cells_of(columns[:, 0], columns[:, 1], columns[:, 2])


def test_the_penalty_is_the_distance_of_the_rank() -> None:
    for rows in itertools.product(range(BOUND + 1), repeat=4):
        for share in map(Fraction, SHARES):
            counts = np.bincount(rows, minlength=BOUND + 3)
            there = np.flatnonzero(counts)
            penalties, starts, sizes = stretches(there, counts[there], share, BOUND + 3)
            assert sizes.sum() == BOUND + 3
            found = np.repeat(penalties, sizes)
            assert (starts == np.cumsum(sizes) - sizes).all()
            for t in range(BOUND + 3):
                below, upto = sum(s < t for s in rows), sum(s <= t for s in rows)
                assert Fraction(int(found[t]), share.denominator) == max(share * 4 - upto, below - share * 4, 0)


@pytest.mark.parametrize(("most_rows", "most_groups", "each"), [(1, None, None), (2, None, None), (None, 2, 1), (None, 1, 2), (None, 2, 2)])
@pytest.mark.parametrize("neighbors", acc.NEIGHBORS)
def test_all_neighbours_of_all_small_tables_are_within_the_claim(neighbors: str, most_rows: int | None, most_groups: int | None, each: int | None) -> None:
    """Two groups, all ways in which a unit can have rows in them: ranges per group, and the sum of what an accountant adds for each."""
    pairs = list(itertools.product(range(2), range(BOUND + 1)))
    most = most_rows or (most_groups or 1) * (each or 1)
    units = [
        unit
        for n in range(most + 1)
        for unit in itertools.combinations_with_replacement(pairs, n)
        if most_groups is None or (len({g for g, _ in unit}) <= most_groups and all(sum(g == h for h, _ in unit) <= (each or 1) for g in range(2)))
    ]
    units = units[:: max(1, len(units) // 20)]
    bases: list[tuple[tuple[int, int], ...]] = [(), ((0, 1),), ((0, 0), (0, 2), (1, 3)), ((0, 1), (0, 1), (0, 3), (1, 0))]
    for share in SHARES:
        asked = measure(share)
        claim = ranked(asked, most_rows, most_groups, each, neighbors)
        limit = claim.event(SCALE)
        reached = Fraction(0)
        for base in bases:
            laws = {unit: [steps(cells((*base, *unit)), asked, group) for group in range(2)] for unit in units}
            for one in units:
                for two in [()] if neighbors == "add_remove" else units:
                    moves = [apart(a, b, asked) for a, b in zip(laws[one], laws[two], strict=True)]
                    reached = max(reached, *moves)
                    assert max(moves) <= claim.sensitivity
                    events = [acc.RangeEvent(2 * move / SCALE) for move in moves if move]
                    assert sum(event.epsilon for event in events) <= limit.epsilon * limit.count
                    assert sum(event.rho for event in events) <= limit.rho
                    assert sum(gdp_of_pure(event.epsilon / 2) for event in events) <= limit.count * gdp_of_pure(limit.epsilon / 2) * (1 + Fraction(1, 10**9))
                    for a, b, move in zip(laws[one], laws[two], moves, strict=True):
                        ratios = logs(a, b, asked, SCALE)
                        assert ratios.max() - ratios.min() <= 2 * float(move / SCALE) + 1e-12  # the range of the event
                        assert np.abs(ratios).max() <= 2 * float(move / SCALE) + 1e-12
        assert reached >= claim.sensitivity / 2


def test_what_an_accountant_adds_for_a_range_is_superadditive() -> None:
    """The lemma of `dpsql.estimates.ranks`, on a grid: rows in several groups cost no more than in one."""
    points = [Fraction(i, 8) for i in range(1, 200)]
    for kind in (lambda e: gdp_of_pure(e / 2), lambda e: acc.RangeEvent(e).rho):
        found = {e: float(kind(e)) for e in [*points, *(2 * e for e in points)]}
        for one, two in itertools.product(points[::7], repeat=2):
            assert found[one] + found[two] <= float(kind(one + two)) * (1 + 1e-9)
        quotients = [found[e] / float(e) for e in points]
        assert all(a <= b * (1 + 1e-9) for a, b in itertools.pairwise(quotients))


def test_the_draws_have_the_law(rows: tuple[int, ...] = (2, 2, 2, 5, 9, 9)) -> None:
    """By chi-square with false alarms of 1e-9; with twice the scale it is rejected."""
    share, values = Fraction(1, 3), 12
    counts = np.bincount(rows)
    there = np.flatnonzero(counts)
    draws = np.bincount([private_quantile(there, counts[there], share, SCALE, values) for _ in range(8_000)], minlength=values)
    penalties, _, sizes = stretches(there, counts[there], share, values)
    for scale, right in ((float(SCALE), True), (2 * float(SCALE), False)):
        weights = np.repeat(np.exp(-penalties / 3 / scale), sizes)
        pvalue = chisquare(draws, 8_000 * weights / weights.sum()).pvalue
        assert (pvalue > 1e-9) == right


def test_cells_of_several_values_and_a_cut_last_cell_have_the_law() -> None:
    """Ten values in cells of four: the last cell has two."""
    there, counts = np.array([0, 2]), np.array([3, 3])
    draws = np.bincount([private_quantile(there, counts, Fraction(1, 2), Fraction(2), 10, 4) for _ in range(8_000)], minlength=10)
    weights = np.exp(-np.array([0] * 4 + [0] * 4 + [0] * 2) / 2.0)
    assert chisquare(draws, 8_000 * weights / weights.sum()).pvalue > 1e-9
    shown = np.bincount([private_quantile(np.array([2]), np.array([8]), Fraction(1, 2), Fraction(2), 10, 4) for _ in range(8_000)], minlength=10)
    weights = np.exp(-np.array([4] * 8 + [0] * 2) / 2.0)
    assert chisquare(shown, 8_000 * weights / weights.sum()).pvalue > 1e-9


def test_inversion_is_exact_digit_by_digit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all two bytes that a uniform number can begin with: those that decide for i make up at most p_i, and at least p_i less the rest."""
    levels, weights, exponent = [0, 1, 2, 7, 400], [3, 1, 5, 1000, 10**15], Fraction(2, 3)
    exact = [w * math.exp(-float(exponent) * u) for w, u in zip(weights, levels, strict=True)]
    decided, rest = [0.0] * len(levels), 0.0

    class Undecided(Exception):
        pass

    def bytes_of(number: int, length: int) -> Any:
        given = iter(number.to_bytes(length))

        def urandom(count: int) -> bytes:
            try:
                return bytes(next(given) for _ in range(count))
            except RuntimeError:
                raise Undecided from None

        return urandom

    for first in range(256):
        for more in [None] if _decides(monkeypatch, bytes_of(first, 1), levels, weights, exponent, Undecided) is not None else range(256):
            number, length = (first, 1) if more is None else (first * 256 + more, 2)
            found = _decides(monkeypatch, bytes_of(number, length), levels, weights, exponent, Undecided)
            if found is None:
                rest += 256.0**-length
            else:
                decided[found] += 256.0**-length
    for share, p in zip(decided, exact, strict=True):
        assert share <= p / sum(exact) + 1e-15
        assert p / sum(exact) <= share + rest + 1e-15
    assert rest < 1e-3


def _decides(patch: pytest.MonkeyPatch, urandom: Any, levels: list[int], weights: list[int], exponent: Fraction, stop: type[Exception]) -> int | None:
    with patch.context() as inside:
        inside.setattr(mechanism.os, "urandom", urandom)
        try:
            return inverted(levels, weights, exponent, bits=8)
        except stop:
            return None


# -- the product's way ----------------------------------------------------------------------------------------------------


def read(patch: pytest.MonkeyPatch, rows: str, sql: str, more: str, epsilon: float, **contract: Any) -> tuple[Readings, list[Any]]:
    """Ask a query of a table of rows (unit, group, value); return what was read, and the events that were charged."""
    con = duckdb.connect()
    con.execute("CREATE TABLE t(u INTEGER, g VARCHAR, x INTEGER)")
    con.execute(f"INSERT INTO t VALUES {rows}")
    dpsql.load(con, progress=False)
    terms = {"epsilon": 100, "delta": 0.5, "privacy_unit": "u", "max_contributions": 2} | contract
    con.execute(f"CALL dp_protect('t', {', '.join(f'{name} := {value!r}' for name, value in terms.items())})")
    con.execute(f"CALL dp_declare('t', 'x', lower := 0, upper := {BOUND})")
    con.execute("CALL dp_declare('t', 'g', categories := ['a', 'b'], nullable := false)")
    with replayed(patch) as found:
        ask(con, sql, more, epsilon)
    (events,) = con.execute("SELECT events FROM dpsql.ledger WHERE action = 'charge'").fetchone() or ("[]",)
    con.close()
    return found, [acc.event_from_json(event) for event in json.loads(events)]


BASE = "(1, 'b', 1), (2, 'a', 2), " + ", ".join(f"({10 + i}, 'a', 1)" for i in range(20))
UNITS = ["(9, 'a', 0)", "(9, 'a', 3), (9, 'b', 2)", "(9, NULL, NULL), (9, 'a', 3)", "(9, 'a', 7), (9, 'a', -5), (9, 'a', 3)", "(9, 'a', 3), (9, 'a', 3)",
         "(9, 'a', 0), (9, 'a', 0), (9, 'b', 0), (9, 'b', 0)"]  # fmt: skip
QUERIES = ["SELECT median(x) FROM t", "SELECT quantile_disc(x, 0.9) FROM t", "SELECT g, median(x) FROM t GROUP BY g"]
MORE = ["mechanism := 'gaussian'", "mechanism := 'laplace'"]


@pytest.mark.parametrize("more", MORE)
@pytest.mark.parametrize("sql", QUERIES)
@pytest.mark.parametrize("neighbors", acc.NEIGHBORS)
def test_every_value_costs_what_is_charged(monkeypatch: pytest.MonkeyPatch, sql: str, more: str, neighbors: str) -> None:
    """Of each pair of tables: ratios of the probabilities of all values of all groups together within the event; not so where a unit's
    second row was forgotten."""
    replace = neighbors == "replace_one"
    other = f"{BASE}, (9, 'a', 0), (9, 'a', 0)" if replace else BASE
    fault = 3 if replace and "GROUP BY" in sql else 2  # of groups the larger of two is charged twice
    base, _ = read(monkeypatch, other, sql, more, 1.0, neighbors=neighbors)
    caught = False
    for rows in UNITS:
        here, [event] = read(monkeypatch, f"{BASE}, {rows}", sql, more, 1.0, neighbors=neighbors)
        plan = here.plans[0]
        assert plan.query is not None
        assert plan == base.plans[0]
        [asked] = plan.query.measures
        assert asked.kind == "quantile"
        claim = claimed(plan.query, asked, neighbors)
        assert isinstance(event, acc.RangeEvent)
        assert event == claim.event(plan.scales[0])
        if "laplace" in more:
            assert event.epsilon * event.count <= 1
        for scale, right in ((plan.scales[0], True), (plan.scales[0] / fault, False)):  # as if a unit had one row
            low = high = 0.0
            for group in range(len(here.found[0][1].groups)):
                first, second = (steps(found.found[0][1].ranked[0], asked, group) for found in (here, base))
                ratios = logs(first, second, asked, scale)
                low, high = low + ratios.min(), high + ratios.max()
            limit = float(event.epsilon) * event.count
            if right:
                assert max(high, -low) <= limit + 1e-12
                assert high - low <= limit + 1e-12
            else:
                caught |= high - low > limit + 1e-9
    assert caught


def test_ranks_beside_gaussian_noise_have_their_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """One epsilon for a count and a median: what rule G adds for both is at most its limit, and nearly all of it."""
    _, events = read(monkeypatch, BASE, "SELECT count(*), median(x) FROM t", "", 1.0, delta=1e-6)
    kinds = sorted(event.kind for event in events)
    assert kinds == ["gaussian", "range"]
    spent = sum(event.count * gdp_of_pure(event.epsilon / 2) if isinstance(event, acc.RangeEvent) else event.rho for event in events)
    limit = acc.rho_limit(1.0, 1e-6, gaussian=True)
    assert float(limit) * 0.999 < float(spent) <= float(limit)


@pytest.mark.parametrize("accountant", ["zcdp", "basic"])
def test_a_rank_alone_is_within_what_was_asked(accountant: str) -> None:
    for name in ("gaussian", "laplace"):
        found = calibrate_blocks(mechanism=name, sensitivities=[Ranked(Fraction(1, 2), 3)], weights=[1], epsilon=0.5, delta=1e-9, accountant=accountant)
        assert found.charge.epsilon <= 0.5
        event = found.charge.events[0]
        pure = event.epsilon * event.count
        assert pure <= Fraction(1, 2)
        if accountant == "basic" or name == "laplace":
            assert pure > Fraction(499, 1000)
            assert found.charge.delta == 0
        else:
            assert gdp_of_pure(event.epsilon / 2) * 3 <= acc.rho_limit(0.5, 1e-9, gaussian=True)


def test_urandom_is_the_source() -> None:
    assert mechanism.os.urandom is os.urandom
