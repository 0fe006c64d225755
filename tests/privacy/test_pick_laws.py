"""Picked quantiles seen from outside: the law of what is drawn, found by asking the draw, for all neighbours of small tables.

What is charged is read in the books, what is drawn from in a query's own reading; what a privacy unit may do to a table is written
down here once more. Each group of one table in SQL is a small table of its own: all of them are read by one query.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import duckdb
import numpy as np
import pytest

import dpsql
from dpsql.estimates.picks import Picking
from dpsql.measure import query as reading
from dpsql.mechanisms import ranked
from dpsql.mechanisms.ranked import Ranked, Uniform, picked

pytestmark = pytest.mark.usefixtures("functions_as_shipped", "unrehearsed")

VALUES, MOST = 3, 4
TABLES = [rows for rows in itertools.product(range(MOST + 1), repeat=VALUES) if sum(rows) <= MOST]
"""Of one group: how many rows have each value."""
BITS = 36
CONTRACTS = [
    ("laplace", "add_remove", "basic", "max_groups := 1, max_rows_per_group := 2"),
    ("laplace", "replace_one", "zcdp", ""),
    ("gaussian", "add_remove", "zcdp", ""),
    ("gaussian", "replace_one", "zcdp", "max_groups := 2, max_rows_per_group := 1"),
    ("gaussian", "add_remove", "basic", "max_groups := 2, max_rows_per_group := 1"),
]
Law = list[float]


class Number(Uniform):
    """A real number in the middle of those with some first digits."""

    def __init__(self, digits: int) -> None:
        self.step, self.bits, self.digits = BITS, BITS + 1, 2 * digits + 1

    def more(self) -> None:
        self.digits, self.bits = 2 * self.digits, self.bits + 1


def law(held: Ranked, one: Picking, edges: Sequence[int], patch: pytest.MonkeyPatch) -> Law:
    """Return the probability of each value: where, as the number grows, the draw turns to another."""
    sizes: list[int] = []
    patch.setattr(ranked, "integer_below", lambda bound: sizes.append(bound) or 0)

    def drawn(digits: int) -> tuple[int, int]:
        unit = picked(held, one.share, edges, one.gamma, Number(digits))
        assert unit is not None
        return unit, sizes[-1]

    found, start, behind = [0.0] * VALUES, 0, 1 << BITS
    while start < behind:
        unit, size = drawn(start)
        low, high = start, behind
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if drawn(middle)[0] == unit else (low, middle)
        for each in range(unit, unit + size):
            found[each] += (high - start) / size / 2**BITS
        start = high
    assert math.isclose(sum(found), 1.0)
    return found


@dataclass
class Bought:
    """What a query drew from, by the small table, and what it paid: a mechanism of bounded range epsilon, so many times."""

    one: Picking
    edges: Sequence[int]
    held: list[Ranked]
    epsilon: Fraction
    count: int
    rho: Fraction


def bought(mechanism: str, neighbors: str, accountant: str, more: str, patch: pytest.MonkeyPatch) -> list[Bought]:
    con = duckdb.connect()
    rows = [(100 * g + i, g, x) for g, table in enumerate(TABLES) for i, x in enumerate(x for x in range(VALUES) for _ in range(table[x]))]
    con.execute("CREATE TABLE t (u INTEGER, g INTEGER, x INTEGER)")
    con.execute(f"INSERT INTO t VALUES {', '.join(map(str, rows))}")
    dpsql.load(con, progress=False)
    con.execute(
        f"CALL dp_protect('t', epsilon := 1000, delta := 1e-6, privacy_unit := 'u', max_contributions := 2, neighbors := '{neighbors}', "
        f"accountant := '{accountant}')"
    )
    con.execute(f"CALL dp_declare('t', 'g', lower := 0, upper := {len(TABLES) - 1}, nullable := false)")
    con.execute(f"CALL dp_declare('t', 'x', lower := 0, upper := {VALUES - 1}, nullable := false)")
    taken: list[tuple[Any, ...]] = []
    draw = reading.draw

    def spy(picking: Any, edges: Any, ranks: Any, groups: int, listed: Any) -> Any:
        taken.append((picking, edges, ranks(picking, True, listed)))
        return draw(picking, edges, ranks, groups, listed)

    with patch.context() as inside:
        inside.setattr(reading, "draw", spy)
        sql = "SELECT g, quantile_cont(x, [0.1, 0.5]) FROM t GROUP BY g"
        given = ", ".join([f"mechanism := '{mechanism}'", *([more] if more else []), *(["delta := 1e-9"] if accountant == "basic" else [])])
        con.execute(f"FROM dp_query('{sql}', epsilon := 3, {given})").fetchall()
    [(text, epsilon)] = con.execute("SELECT events::VARCHAR, epsilon FROM dpsql.ledger WHERE action = 'charge'").fetchall()
    con.close()
    charged = [event for event in json.loads(text) if event["event"] == "range"]
    paid = [(Fraction(event["epsilon"]), event.get("count", 1)) for event in charged]
    if mechanism == "laplace":
        assert sum(each * count for each, count in paid) < Fraction(epsilon)
    [(picking, edges, held)] = taken
    empty = Ranked(*(np.zeros(0, np.int64),) * 3, 0, None)
    return [
        Bought(one, cut, [rows.get(g, empty) for g in range(len(TABLES))], each, count, count * each**2 / 8)
        for one, cut, rows, (each, count) in zip(picking, edges, held, paid, strict=True)
    ]


def units(neighbors: str, more: str) -> Iterator[tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]]:
    """Give what two neighbours have that the other has not: rows by value in a first and a second group, of one unit each."""
    few = [rows for rows in itertools.product(range(3), repeat=VALUES) if sum(rows) <= 2]
    if "max_groups" not in more:
        own = [(a, b) for a in few for b in few if sum(a) + sum(b) <= 2]
    elif "max_groups := 2" in more:
        own = [(a, b) for a in few for b in few if max(sum(a), sum(b)) <= 1]
    else:
        own = [(a, b) for a in few for b in few if 0 in (sum(a), sum(b))]
    nothing = ((0,) * VALUES, (0,) * VALUES)
    yield from itertools.product(own, own if neighbors == "replace_one" else [nothing])


def pairs(one: tuple[int, ...], other: tuple[int, ...], laws: dict[tuple[int, ...], Law]) -> list[tuple[Law, Law]]:
    """Return the laws of a group in all tables and in their neighbours, which have some rows instead of others."""
    found = []
    for rest in TABLES:
        first, second = (tuple(map(sum, zip(rest, rows, strict=True))) for rows in (one, other))
        if first in laws and second in laws:
            found.append((laws[first], laws[second]))
    return found


def renyi(first: Law, second: Law, order: float) -> float:
    return math.log(sum(p**order * q ** (1 - order) for p, q in zip(first, second, strict=True))) / (order - 1)


def worst(bought: Bought, neighbors: str, more: str, patch: pytest.MonkeyPatch) -> tuple[float, float, float]:
    """Return the longest interval of log ratios, the largest one, and the largest Renyi divergence over its order.

    Two groups are drawn independently: what one output of both tells is the sum of what each tells.
    """
    laws = {table: law(held, bought.one, bought.edges, patch) for table, held in zip(TABLES, bought.held, strict=True)}
    known: dict[tuple[tuple[int, ...], tuple[int, ...]], np.ndarray] = {}

    def largest(one: tuple[int, ...], other: tuple[int, ...]) -> np.ndarray:
        if (one, other) not in known:
            found = []
            for p, q in pairs(one, other, laws):
                ratios = [math.log(a / b) for a, b in zip(p, q, strict=True)]
                found.append([max(ratios) - min(ratios), max(ratios), *(renyi(p, q, order) / order for order in (1.5, 4.0, 32.0))])
            known[one, other] = np.max(found, axis=0)
        return known[one, other]

    sums = [largest(a, c) + largest(b, d) for (a, b), (c, d) in units(neighbors, more)]
    sums += [largest(c, a) + largest(d, b) for (a, b), (c, d) in units(neighbors, more)]
    found = np.max(sums, axis=0)
    return float(found[0]), float(found[1]), float(found[2:].max())


@pytest.mark.parametrize("contract", CONTRACTS, ids=lambda contract: "-".join(contract))
def test_no_output_tells_more_than_is_charged(contract: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    mechanism, neighbors, accountant, more = contract
    for paid in bought(*contract, patch=monkeypatch):
        charged = float(paid.epsilon * paid.count)
        length, most, divergence = worst(paid, neighbors, more, monkeypatch)
        assert max(length, most) <= charged * (1 + 1e-6)
        assert divergence <= float(paid.rho) * (1 + 1e-6)
        assert length >= 0.35 * charged, "the charge is not far too large either"
    sharper = replace(paid, one=replace(paid.one, gamma=paid.one.gamma * Fraction(length and 1.3 * charged / length)))
    assert worst(sharper, neighbors, more, monkeypatch)[0] > charged, "a draw that is too sharp is seen"
