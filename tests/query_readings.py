"""Exact counters of private queries on made-up tables, read with the same choice of rows each time."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction

import duckdb
import numpy as np
import pytest
from made_once import in_memory

import dpsql
from dpsql.estimates.leaves import Units
from dpsql.estimates.measures import sensitivity
from dpsql.estimates.picks import Picking
from dpsql.measure import picking
from dpsql.measure import query as reading
from dpsql.measure.leaves import UnitRows
from dpsql.measure.picking import Held
from dpsql.measure.query import Before, Counted
from dpsql.measure.statement import Statement
from dpsql.mechanisms.ranked import NO_ROWS, Ranked
from dpsql.mechanisms.ranked import sensitivity as penalty_sensitivity
from dpsql.noise import discrete
from dpsql.release.plan import Plan
from dpsql.release.queried import QueryPlan

SALT = "0123456789abcdef" * 2
ROWS = 90
NEIGHBOURS = {
    "extreme": 7, "odd": 9, "nobody": None,
}
"""Units by what is odd about their rows; None: rows without a unit, which are one unit together."""


def make_sales(con: duckdb.DuckDBPyConnection) -> None:
    """Make the table ``sales`` of a dozen customers with several rows each, some of them odd, and the public table ``regions``."""
    con.execute(
        f"""
        CREATE OR REPLACE TABLE sales AS
        SELECT (i % 7)::INTEGER AS customer, (i * 37 % 101)::DOUBLE AS amount, (i % 9)::INTEGER AS quantity,
            ['north', 'south', 'east'][1 + i % 3] AS region, 'note ' || (i % 4) AS note, DATE '2020-01-01' + (i * 11 % 700)::INTEGER AS day,
            TIMESTAMP '2020-01-01 12:00:00' + to_hours((i * 31)::INTEGER) AS moment, i % 5 = 0 AS gift, ((i % 13)::DOUBLE / 4)::DECIMAL(10, 2) AS price,
            (i % 3)::TINYINT AS "order", (i % 10)::INTEGER AS "größe 😀", (i % 4)::DOUBLE / 2 AS "select"
        FROM range({ROWS}) t(i)
        """
    )
    con.execute(
        """
        INSERT INTO sales VALUES
            (7, 'nan', 2147483647, 'north', 'note 0', '2020-02-02', '2020-02-02', true, 99999999.99, 0, 2147483647, 'nan'),
            (7, 'inf', -2147483648, 'south', 'note 1', 'infinity', 'infinity', false, -99999999.99, 127, -2147483648, 'inf'),
            (7, '-inf', 0, 'the moon', repeat('long 😀', 5000), '-infinity', '-infinity', NULL, 0, -128, 0, '-inf'),
            (7, 1e308, 4, 'east', '', '9999-12-31', '9999-12-31', true, 0.01, 1, 3, -0.0),
            (7, -1e308, 4, NULL, NULL, '0001-01-01', '0001-01-01', true, 0.01, 2, 3, 1e-320),
            (7, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
            (7, 100, 8, 'north', 'note 2', '2020-03-03', '2020-03-03', true, 3, 0, 9, 1),
            (7, 100, 8, 'north', 'note 2', '2020-03-03', '2020-03-03', true, 3, 0, 9, 1),
            (7, 100, 8, 'north', 'note 2', '2020-03-03', '2020-03-03', true, 3, 0, 9, 1),
            (8, 50.5, 3, 'north', 'only here', '2020-05-05', '2020-05-05', true, 1.25, 0, 5, 0.0),
            (9, -0.0, 0, 'north', 'note'';--', '1582-10-10', '1582-10-10', true, 0, 0, 0, -0.0),
            (9, 0.0, 0, 'NORTH', 'a"b', '2020-01-01', '2020-01-01', false, 0, 0, 0, 0.0),
            (9, 1e-320, 0, ' north', chr(1) || chr(10), '2021-12-31', '2021-12-31', false, 3.25, 2, 9, -0.0),
            (NULL, 1, 1, 'north', 'note 0', '2020-01-01', '2020-01-01', true, 1, 0, 1, 0.5),
            (NULL, 2, 1, 'south', 'note 1', '2020-01-01', '2020-01-01', true, 1, 1, 1, 0.5),
            (NULL, 3, 1, 'east', 'note 2', '2020-01-01', '2020-01-01', true, 1, 2, 1, 0.5),
            (NULL, 4, 1, 'north', 'note 3', '2020-01-01', '2020-01-01', true, 1, 0, 1, 0.5),
            (NULL, 5, 1, 'north', 'note 3', '2020-01-01', '2020-01-01', true, 1, 0, 1, 0.5),
            (NULL, 6, 1, 'north', 'note 3', '2020-01-01', '2020-01-01', true, 1, 0, 1, 0.5)
        """
    )
    con.execute(
        "CREATE OR REPLACE TABLE regions AS SELECT * FROM (VALUES ('north', 'cold', 1), ('south', 'warm', 2), ('east', 'warm', 3), ('east', 'cold', 4)) t(name, climate, place)"
    )


def protect_sales(con: duckdb.DuckDBPyConnection, **contract: object) -> None:
    """Protect and declare it; ``contract`` changes how."""
    terms = {"epsilon": 1000, "delta": 1e-6, "privacy_unit": "customer", "max_contributions": 3} | contract
    con.execute(f"CALL dp_protect('sales', {', '.join(f'{name} := {value!r}' for name, value in terms.items() if value is not None)})")
    for column, lower, upper in [("amount", 0, 100), ("quantity", 0, 8), ("price", 0, 4), ("größe 😀", 0, 9), ("order", 0, 2), ("select", -1, 1)]:
        con.execute(f"CALL dp_declare('sales', '{column}', lower := {lower}, upper := {upper})")
    con.execute("CALL dp_declare('sales', 'day', lower := '2020-01-01', upper := '2021-12-31')")
    con.execute("CALL dp_declare('sales', 'moment', lower := '2020-01-01', upper := '2020-12-31')")
    con.execute("CALL dp_declare('sales', 'region', categories := ['north', 'south', 'east'])")


def database(left_out: str | None = None, path: str = ":memory:", **contract: object) -> duckdb.DuckDBPyConnection:
    """Return a database with the table, without the rows of one unit of ``NEIGHBOURS``."""
    con = in_memory(_sales, **contract) if path == ":memory:" else duckdb.connect(path)
    if path != ":memory:":
        _sales(con, **contract)
    if left_out is not None:
        remove(con, left_out)
    dpsql.load(con, progress=False)
    return con


def _sales(con: duckdb.DuckDBPyConnection, **contract: object) -> None:
    make_sales(con)
    dpsql.load(con, progress=False)
    protect_sales(con, **contract)


def remove(con: duckdb.DuckDBPyConnection, left_out: str) -> None:
    """Remove the rows of a unit of ``NEIGHBOURS``."""
    con.execute("DELETE FROM sales WHERE customer IS NOT DISTINCT FROM ?", [NEIGHBOURS[left_out]])


@dataclass
class Readings:
    """What was read for each release: its plan and its exact counters, in order; and the histograms before them, of those that have any."""

    found: list[tuple[QueryPlan, Counted]]
    plans: list[Plan] = field(default_factory=list)
    before: list[tuple[QueryPlan, Before]] = field(default_factory=list)
    ranks: list[Kept] = field(default_factory=list)

    def last(self) -> tuple[QueryPlan, Counted]:
        return self.found[-1]


class Whole(UnitRows):
    """Rows by unit, read as finely as they can be, at once."""

    def __init__(self, units: Units, mechanism: str, rows: UnitRows) -> None:
        super().__init__(units, mechanism, rows._read)
        super()._add(0, [])
        self._read = None  # type: ignore[assignment]

    def _add(self, shift: int, regions: object) -> None:
        """Nothing is finer."""

    def by_unit(self, units: np.ndarray) -> np.ndarray:
        """Return the number of rows in each of some units."""
        return self.inside(1, (units, units + 1))


class Replayed:
    """Rows of one table, between leaves that are cut where another one's are."""

    def __init__(self, own: UnitRows, other: UnitRows) -> None:
        self.leaves, self.inside = own.leaves, other.inside


Kept = dict[tuple[int, Fraction], tuple[Picking, Held]]
"""All rows by the place and the share of a quantile, with the quantile, whose units are known then."""


def keep_ranks(found: Before, other: Kept | None = None) -> Kept:
    """Keep all rows by rank when quantiles are drawn: the database is closed when they are compared. ``other``: what is drawn from."""
    kept: Kept = {}
    ranks = found.ranks

    def spy(ones: Sequence[Picking], every: bool, listed: str | None) -> list[Held]:
        held = ranks(ones, True, listed)
        kept.update({(one.place, one.share): (one, rows) for one, rows in zip(ones, held, strict=True)})
        return held if other is None else [other[one.place, one.share][1] for one in ones]

    found.ranks = spy
    return kept


@contextmanager
def replayed(
    patch: pytest.MonkeyPatch, change: Callable[[int, Counted], Counted] | None = None, earlier: Readings | None = None
) -> Iterator[Readings]:
    """Read with one salt; write down all exact counters, and pass on what ``change`` makes of the n-th.

    ``earlier``: whose histograms take the place of those that come before the counters.
    """
    seen = Readings([])
    counted, released, before = reading.counted, reading.released, reading.before

    @contextmanager
    def spy_before(cursor: duckdb.DuckDBPyConnection, protected: object, plan: QueryPlan) -> Iterator[Before]:
        with before(cursor, protected, plan) as found:  # type: ignore[arg-type]
            found.units = {place: Whole(*plan.cells(one), found.units[place]) for one in plan.cutting for place in [one.place]}
            seen.ranks.append(keep_ranks(found, None if earlier is None else earlier.ranks[len(seen.before)]))
            seen.before.append((plan, found))
            if earlier is None:
                yield found
                return
            other = earlier.before[len(seen.before) - 1][1]
            units = {place: Replayed(rows, other.units[place]) for place, rows in found.units.items()}
            yield Before(found.made, other.magnitudes, units, found.ranks)  # type: ignore[arg-type]

    def watch(plan: Plan, found: Counted) -> Counted:
        seen.plans.append(plan)
        return released(plan, found)

    def spy(cursor: duckdb.DuckDBPyConnection, protected: object, plan: QueryPlan, early: Before | None = None) -> Counted:
        found = counted(cursor, protected, plan, early)  # type: ignore[arg-type]
        seen.found.append((plan, found))
        return found if change is None else change(len(seen.found) - 1, found)

    def middle(held: Ranked, share: Fraction, edges: Sequence[int], *_: object) -> int:
        """Pick the quantile itself."""
        return int(held.cells[np.searchsorted(held.upto, share * held.total)]) if held.total else edges[-1] // 2

    with patch.context() as inside:
        inside.setattr(reading, "fresh_salt", lambda: SALT)
        inside.setattr(picking, "picked", middle)
        inside.setattr(reading, "counted", spy)
        inside.setattr(reading, "released", watch)
        inside.setattr(reading, "before", spy_before)
        yield seen


def ask(con: duckdb.DuckDBPyConnection, sql: str, more: str = "", epsilon: float = 1.0) -> list[tuple[object, ...]]:
    """Return the answer of a query."""
    quoted = sql.replace("'", "''")
    given = more if "epsilon" in more else f"epsilon := {epsilon}{', ' if more else ''}{more}"
    return con.execute(f"FROM dp_query('{quoted}', {given})").fetchall()


def fixed(counts: np.ndarray, mechanism: str, scale: object) -> np.ndarray:
    """Noise that is the same each time."""
    del mechanism, scale
    return np.asarray(counts + np.arange(counts.size, dtype=np.int64).reshape(counts.shape) % 5)


def priced(questions: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return questions, each with its other options, as `read_questions` asks them."""
    return [(sql, f"epsilon := 0.3{', ' if more else ''}{more}") for sql, more in questions]


def read_questions(
    patch: pytest.MonkeyPatch, left_out: str | None, questions: Sequence[tuple[str, str]], earlier: Readings | None = None,
    declaring: str | None = None,
) -> Readings:
    """Return what is read for questions, each with its options, of the table without a unit; ``declaring``: a statement before them."""
    con = database(left_out)
    if declaring is not None:
        con.execute(declaring)
    with replayed(patch, earlier=earlier) as seen:
        patch.setattr(discrete, "add_noise", fixed)
        for sql, more in questions:
            ask(con, sql, more)
    con.close()
    return seen


def moved(patch: pytest.MonkeyPatch, faults: Mapping[str, Callable[..., object]], sql: str, more: str) -> tuple[QueryPlan, float]:
    """Return the most that the extreme unit moves a counter, as a share of what is claimed, where methods of `Statement` are others."""
    readings = []
    for left_out in (None, "extreme"):
        con = database(left_out)
        with patch.context() as inside, replayed(inside) as seen:
            for name, fault in faults.items():
                inside.setattr(Statement, name, fault)
            ask(con, sql, more)
        con.close()
        readings.append(seen.last())
    (plan, one), (_, other) = readings
    return plan, max(max(pair) for pair in excess(plan, one, other))


def excess(plan: QueryPlan, one: Counted, other: Counted, neighbors: str = "add_remove") -> list[tuple[float, float]]:
    """Return, for each block, how the L1 and L2 distance of two readings compare to what the plan claims: at most 1 is right."""
    groups = sorted({*one.groups, *other.groups}, key=repr)
    assert len(set(one.groups)) == len(one.groups), "a group is there twice"
    found = []
    claims = [
        sensitivity(m, plan.max_rows, plan.max_groups, plan.max_rows_per_group, neighbors, grouped=bool(plan.keys))
        for m in plan.measures for _ in m.lengths
    ]
    for block, (first, second) in enumerate(zip(one.blocks, other.blocks, strict=True)):
        a, b = (_placed(groups, counted.groups, values) for counted, values in ((one, first), (other, second)))
        difference = [int(x) - int(y) for x, y in zip(a.ravel(), b.ravel(), strict=True)]  # exact: no float, no overflow
        l1, l2 = claims[block]
        found.append((sum(map(abs, difference)) / l1, (sum(d * d for d in difference) ** 0.5) / l2))
    return found


def moves(one: Readings, other: Readings) -> list[float]:
    """Return, for each release, how far the counters of two readings of one plan are apart, compared to what it claims."""
    pairs = zip(one.found, other.found, strict=True)
    assert [plan for plan, _ in one.found] == [plan for plan, _ in other.found]
    return [max(max(pair) for pair in excess(plan, first, second)) for (plan, first), (_, second) in pairs]


def check_moves(one: Readings, other: Readings, questions: int) -> list[float]:
    """Check that so many questions were read twice and that no counter moved by more than is claimed; return how far each did."""
    found = moves(one, other)
    assert len(found) == questions
    for (plan, _), moved_by in zip(one.found, found, strict=True):
        assert moved_by <= 1, plan.asked
    return found


def excess_before(plan: QueryPlan, one: Before, other: Before) -> list[float]:
    """Return, for each histogram before the counters, how the L1 distance of two readings compares to the rows that count of a unit.

    That is also a bound on the L2 distance. Units are the finest cells: in coarser ones the distance is no larger.
    """
    most = plan.max_rows if plan.max_rows is not None else (plan.max_groups or 1) * (plan.max_rows_per_group or 1)
    found = [float(np.abs(a - b).sum()) for a, b in zip(one.magnitudes, other.magnitudes, strict=True)]
    for place in one.units:
        first, second = one.units[place], other.units[place]
        units = np.unique(np.concatenate([frame.cells for each in (first, second) for frame in each._frames]))
        a, b = (each.by_unit(units) for each in (first, second))  # type: ignore[attr-defined]
        found.append(float(np.abs(a - b).sum()))
    return [distance / most for distance in found]


def excess_picks(plan: QueryPlan, one: Kept, other: Kept, neighbors: str = "add_remove") -> list[float]:
    """Return, for each picked quantile, how the penalties of two readings differ, compared to what the plan claims.

    Of a group the largest difference at any unit; of all groups together, their sum.
    """
    found = []
    assert one.keys() == other.keys()
    for pick in plan.picking if one else ():
        moved = sum(_moved(pick, one, other))
        claimed, count = penalty_sensitivity(
            pick.share, neighbors, plan.max_rows, plan.max_groups, plan.max_rows_per_group, grouped=bool(plan.keys)
        )
        found.append(float(moved / (claimed * count)))
    return found


def _moved(pick: Picking, one: Kept, other: Kept) -> list[Fraction]:
    """Return how far the penalties of each group differ, at most."""
    (pick, first), (same, second) = one[pick.place, pick.share], other[pick.place, pick.share]
    assert pick == same and pick.units is not None
    found = []
    for group in {*first, *second}:
        sides = [first.get(group, NO_ROWS), second.get(group, NO_ROWS)]
        cells = np.unique(np.concatenate([[0, pick.units.count - 1], *(side.cells + step for side in sides for step in (-1, 0, 1))]))
        cells = cells[(cells >= 0) & (cells < pick.units.count)].astype(np.int64)
        a, b = (_penalties(side, cells, pick.share) for side in sides)
        found.append(max(abs(x - y) for x, y in zip(a, b, strict=True)))
    return found


def _penalties(held: Ranked, cells: np.ndarray, share: Fraction) -> list[Fraction]:
    """Return the penalty of each of some units."""
    upto = np.concatenate([[0], held.upto])
    below = upto[np.searchsorted(held.cells, cells, side="left")].tolist()
    there = upto[np.searchsorted(held.cells, cells, side="right")].tolist()
    return [max(share * held.total - a, b - share * held.total, Fraction(0)) for a, b in zip(there, below, strict=True)]


def price(one: Readings, other: Readings, con: duckdb.DuckDBPyConnection) -> list[tuple[float, float]]:
    """Return, for each release, the privacy loss between the exact counters of two tables, and what the books of ``con`` charged for it.

    rho of Gaussian noise, the sum of the squares of the differences over 2 sigma^2; epsilon of Laplace noise.
    """
    rows = con.execute("SELECT rho, epsilon FROM dpsql.ledger WHERE action = 'charge' ORDER BY entry").fetchall()[-len(one.plans) :]
    found = []
    early = [iter(readings.ranks) for readings in (one, other)]
    for plan, (_, first), (_, second), (rho, epsilon) in zip(one.plans, one.found, other.found, rows, strict=True):
        groups = sorted({*first.groups, *second.groups}, key=repr)
        loss = 0.0
        for a, b, scale in zip(first.blocks, second.blocks, plan.scales, strict=True):
            difference = np.abs(_placed(groups, first.groups, a) - _placed(groups, second.groups, b)).astype(float)
            gaussian = plan.mechanism == "gaussian"
            loss += float((difference**2).sum() / (2 * scale**2) if gaussian else difference.sum() / float(scale))
        if plan.query is not None and plan.query.early:
            loss += _loss_of_picks(plan, *(next(each) for each in early))
        found.append((loss, float(rho if plan.mechanism == "gaussian" else epsilon)))
    return found


def _loss_of_picks(plan: Plan, one: Kept, other: Kept) -> float:
    """Return what the draws of quantiles add to the privacy loss: by the length of the interval that it lies in."""
    assert plan.query is not None
    loss = 0.0
    for pick in plan.query.picking if one else ():
        ranges = [float(2 * pick.gamma * moved) for moved in _moved(pick, one, other)]
        loss += sum(each**2 / 8 if plan.mechanism == "gaussian" else each for each in ranges)
    return loss


def _placed(groups: Sequence[tuple[str | None, ...]], there: Sequence[tuple[str | None, ...]], values: np.ndarray) -> np.ndarray:
    found = np.zeros((len(groups), values.shape[1]), np.int64)
    for keys, row in zip(there, values, strict=True):
        found[groups.index(keys)] = row
    return found


def noise_law(plan: Plan, block: int) -> dict[int, float]:
    """Return the law of the noise of a block, but for 1e-14 of it."""
    scale = float(plan.scales[block])
    gaussian = plan.mechanism == "gaussian"
    reach = math.ceil((8 if gaussian else 33) * scale)
    weights = {x: math.exp(-x * x / (2 * scale**2) if gaussian else -abs(x) / scale) for x in range(-reach, reach + 1)}
    mass = sum(weights.values())
    return {x: weight / mass for x, weight in weights.items()}


def release_law(plan: Plan, counted: Counted, patch: pytest.MonkeyPatch) -> dict[str, float]:
    """Return the law of what `dpsql.measure.query.released` returns, by listing every outcome of the noise that it draws."""
    drawn: list[tuple[int, Fraction]] = []

    def record(counts: np.ndarray, mechanism: str, scale: Fraction) -> np.ndarray:
        drawn.append((counts.size, scale))
        return np.asarray(counts + 10**9)  # all groups pass

    with patch.context() as inside:
        inside.setattr(discrete, "add_noise", record)
        reading.released(plan, counted)
    laws = [noise_law(plan, list(plan.scales).index(scale)) for size, scale in drawn for _ in range(size)]
    assert math.prod(map(len, laws)) <= 200_000, "too many outcomes to list"
    found: dict[str, float] = {}
    with patch.context() as inside:
        queue: list[int] = []
        inside.setattr(discrete, "add_noise", lambda counts, mechanism, scale: np.asarray(counts + [queue.pop(0) for _ in range(counts.size)]))
        for outcome in itertools.product(*(law.items() for law in laws)):
            queue[:] = [x for x, _ in outcome]
            shown = reading.released(plan, counted)
            text = repr((shown.groups, [block.tolist() for block in shown.blocks]))
            found[text] = found.get(text, 0.0) + math.prod(p for _, p in outcome)
    return found


def divergence(first: dict[str, float], second: dict[str, float], epsilon: float) -> float:
    """Return the largest P(A) - e^epsilon Q(A) over all events."""
    return math.fsum(max(0.0, p - math.exp(epsilon) * second.get(key, 0.0)) for key, p in first.items())
