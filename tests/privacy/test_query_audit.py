"""An audit of dp_query that planted faults must fail: exact counters of neighbours against what is charged, and of one table in any order."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import duckdb
import pytest
from pairwise import in_turn
from query_readings import Readings, ask, database, excess, price, replayed

from dpsql.measure import query as reading
from dpsql.measure import rows, statement

pytestmark = pytest.mark.usefixtures("functions_as_shipped", "unrehearsed")

SUMS = "SELECT region, count(*), sum(amount), avg(quantity), count(DISTINCT note) FROM sales GROUP BY region"
PRIVATE = "SELECT note, sum(amount), count(DISTINCT customer), median(quantity) FROM sales GROUP BY note"
ROWS_PRIVATE = "SELECT note, sum(amount) FROM sales GROUP BY note"
Prepared = Callable[..., duckdb.DuckDBPyConnection]
ROW: dict[str, Any] = {"privacy_unit": None, "max_contributions": None}
QUERIES = [
    ("SELECT count(*), sum(amount), avg(price), var_pop(\"select\"), corr(amount, quantity) FROM sales", ""),
    (SUMS, ""),
    (SUMS, "max_groups := 2, max_rows_per_group := 1"),
    (PRIVATE, "max_groups := 2, max_rows_per_group := 2"),
    ("SELECT note, mode(region), sum(\"select\") FROM sales GROUP BY note", "min_units := 2"),
    ("WITH t AS (SELECT customer, region, sum(amount) AS total FROM sales GROUP BY customer, region) SELECT region, count(*), avg(total) FROM t GROUP BY region",
     "bounds := {'total': [0, 250]}"),
]


NUMBERS = itertools.count()
"""Of releases, each of which is bought."""


@pytest.fixture(scope="module")
def prepared() -> Iterator[Prepared]:
    """Give a database with the table, changed in some way, without a unit: made once."""
    made: dict[tuple[str | None, str], duckdb.DuckDBPyConnection] = {}

    def give(left_out: str | None, change: str = "") -> duckdb.DuckDBPyConnection:
        if (left_out, change) not in made:
            made[left_out, change] = database(left_out, max_contributions=3)
            made[left_out, change].execute(change or "SELECT 1")
        return made[left_out, change]

    yield give
    for con in made.values():
        con.close()


def worst(patch: pytest.MonkeyPatch, queries: list[tuple[str, str]], first: duckdb.DuckDBPyConnection, second: duckdb.DuckDBPyConnection,
          neighbors: str = "add_remove") -> float:
    """Return the largest distance between the counters of two tables, where 1 is what the plan claims."""
    found = []
    for sql, more in queries:
        reads = []
        for con in (first, second):
            with replayed(patch) as read:
                ask(con, sql, ", ".join(filter(None, [more, f"release := 'audit {next(NUMBERS)}'"])), 3.0)
            reads.append(read)
        for (plan, one), (_, other) in zip(reads[0].found, reads[1].found, strict=True):
            found += [max(pair) for pair in excess(plan, one, other, neighbors)]
        if neighbors == "add_remove":
            for spent, allowed in price(reads[0], reads[1], first):
                assert spent <= allowed * (1 + 1e-9) or max(found) > 1
    return max(found)


@pytest.mark.parametrize(("left_out", "mechanism"), in_turn(["extreme", "nobody"], ["laplace", "gaussian"]))
def test_the_audit_passes(monkeypatch: pytest.MonkeyPatch, prepared: Prepared, left_out: str, mechanism: str) -> None:
    """No counter differs by more than claimed, and the loss of the exact difference is at most what the books charged."""
    queries = [(sql, ", ".join(filter(None, [more, f"mechanism := '{mechanism}'"]))) for sql, more in QUERIES]
    assert 0.9 < worst(monkeypatch, queries, prepared(None), prepared(left_out)) <= 1


def test_the_audit_passes_where_one_unit_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = (database("extreme", neighbors="replace_one") for _ in "ab")
    one.execute("INSERT INTO sales SELECT 50, 100, 8, 'north', 'note 0', day, moment, true, 4, 2, 9, 1 FROM sales LIMIT 6")
    other.execute("INSERT INTO sales SELECT 50, 0, 0, 'south', 'note 1', day, moment, false, 0, 0, 0, -1 FROM sales LIMIT 6")
    assert 0.7 < worst(monkeypatch, QUERIES[:4], one, other, "replace_one") <= 1


def test_the_audit_passes_where_rows_are_units(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = (database(**ROW) for _ in "ab")
    other.execute("DELETE FROM sales WHERE note = 'only here'")
    assert worst(monkeypatch, [(SUMS, ""), ("SELECT note, sum(amount), count(*) FROM sales GROUP BY note", "")], one, other) == 1


# -- planted faults -------------------------------------------------------------------------------------------------------


def _changed(patch: pytest.MonkeyPatch, **change: Any) -> None:
    """Bound rows of units as ``change`` says instead of the plan."""
    for name in ("light_first_sql", "bounded_sql"):
        bounded = getattr(statement, name)

        def fault(source: str, units: Any, names: Any, rows: Any, salt: str, *, bounded: Any = bounded, **more: Any) -> str:
            rows = change.get("max_rows", rows)
            if "max_groups" in more:
                more["max_groups"] = change.get("max_groups", more["max_groups"])
            return str(bounded(source, units, names, rows, salt, **more))

        patch.setattr(statement, name, fault)


def _seem_light(patch: pytest.MonkeyPatch, **change: int) -> None:
    """Ask for units above a bound that is not the plan's."""
    asked = rows.above_bounds
    patch.setattr(rows, "above_bounds", lambda protected, plan: asked(protected, dataclasses.replace(plan, **change)))


def _no_clamp(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(statement, "scaled", lambda m: f"CAST(round(greatest(least(x{m.variables[0].position}, 1e6), -1e6) / {m.variables[0].magnitude!r} * {m.grid}) AS BIGINT)")


def _no_clamp_of_steps(patch: pytest.MonkeyPatch) -> None:
    def total(self: statement.Steps, value: str, condition: str | None) -> str:
        rows = "" if condition is None else f" FILTER (WHERE {condition})"
        return f"coalesce(CAST(sum({value}){rows} AS VARCHAR), '0')"

    patch.setattr(statement.Steps, "total", total)


def _null_counts(patch: pytest.MonkeyPatch) -> None:
    """As it once was: least() and greatest() of DuckDB leave NULL out."""
    plain = statement._sum
    patch.setattr(statement, "_sum", lambda a, c: plain(a, None if a.startswith("sum(") and c and "NOT NULL" in c else c))


def _one_row_of_five(patch: pytest.MonkeyPatch) -> None:
    """Five rows of a unit are counted where the plan reckons with three."""
    _changed(patch, max_rows=5)


FAULTS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], str, str]] = {
    "a forgotten group bound": (lambda patch: _changed(patch, max_groups=10**6), "SELECT note, count(*) FROM sales GROUP BY note", "max_groups := 1, max_rows_per_group := 1"),
    "a forgotten row bound": (_one_row_of_five, "SELECT count(*) FROM sales", ""),
    "a forgotten row bound in groups": (lambda patch: _changed(patch, max_rows=5), SUMS, "max_groups := 3, max_rows_per_group := 1"),
    "a heavy unit that seems light": (lambda patch: _seem_light(patch, max_rows=10**6), "SELECT count(*) FROM sales", ""),
    "a unit of many groups that seems light": (
        lambda patch: _seem_light(patch, max_groups=10**6, max_rows_per_group=10**6), "SELECT region, count(*) FROM sales GROUP BY region", "max_groups := 1, max_rows_per_group := 1",
    ),
    "a forgotten clamp": (_no_clamp, "SELECT sum(CAST(quantity AS DOUBLE)) FROM sales", ""),
    "a forgotten clamp of exact sums": (_no_clamp_of_steps, "SELECT sum(quantity) FROM sales", ""),
    "NULL as a number": (_null_counts, "SELECT count(*), var_pop(amount) FROM sales", ""),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_fails_the_audit(monkeypatch: pytest.MonkeyPatch, prepared: Prepared, fault: str) -> None:
    plant, sql, more = FAULTS[fault]
    changed = "amount = NULL" if "NULL" in fault else "quantity = 2147483647" if "clamp" in fault else ""

    def audit(patch: pytest.MonkeyPatch) -> float:
        change = changed and f"UPDATE sales SET {changed} WHERE customer = 7"
        return worst(patch, [(sql, more)], prepared(None, change), prepared("extreme", change))

    assert audit(monkeypatch) <= 1
    with monkeypatch.context() as patch:
        plant(patch)
        assert audit(patch) > 1


def test_a_row_in_two_public_groups_fails_the_audit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where every row is a unit nothing bounds the groups that a row is joined to, so they have to be distinct."""
    one, other = (database(**ROW) for _ in "ab")
    other.execute("DELETE FROM sales WHERE note = 'only here'")
    plain = reading.public_groups

    def twice(cursor: Any, plan: Any, **more: Any) -> Any:
        return plain(cursor, dataclasses.replace(plan, groups_sql=f"{plan.groups_sql} UNION ALL {plan.groups_sql}"), **more)

    monkeypatch.setattr(reading, "public_groups", twice)
    monkeypatch.setattr(reading, "_listed", lambda cursor, plan, table: [(str(i),) for i in range(2 * (plan.groups or 0))])
    found: list[Readings] = []
    for con in (one, other):
        with replayed(monkeypatch) as read, pytest.raises(duckdb.Error):
            ask(con, "SELECT region, count(*) FROM sales GROUP BY region", "", 3.0)
        found.append(read)
    (plan, first), (_, second) = found[0].last(), found[1].last()
    assert max(max(pair) for pair in excess(plan, first, second)) > 1


# -- order and sums -------------------------------------------------------------------------------------------------------


def _both_orders(patch: pytest.MonkeyPatch, sql: str, more: str = "", **contract: Any) -> tuple[Any, Any]:
    found = []
    con = database(**contract)
    for order in ("ASC", "DESC"):
        con.execute(f"CREATE OR REPLACE TABLE other AS SELECT * FROM sales ORDER BY hash(rowid) {order}")
        con.execute("DELETE FROM sales")
        con.execute("INSERT INTO sales SELECT * FROM other")
        with replayed(patch) as read:
            ask(con, sql, ", ".join(filter(None, [more, f"release := '{order}'"])), 3.0)
        found.append(read.last()[1])
    con.close()
    return found[0], found[1]


@pytest.mark.parametrize(
    ("sql", "more"),
    [(PRIVATE, ""), (SUMS, ""), ("SELECT \"select\", count(*) FROM sales GROUP BY \"select\"", "groups := 'private'")],
)
@pytest.mark.parametrize("contract", [{}, ROW])
def test_the_order_of_rows_does_not_show(monkeypatch: pytest.MonkeyPatch, sql: str, more: str, contract: dict[str, Any]) -> None:
    if contract and "customer" in sql:
        sql = ROWS_PRIVATE
    one, other = _both_orders(monkeypatch, sql, more, **contract)
    assert one.groups == other.groups
    assert [block.tolist() for block in one.blocks] == [block.tolist() for block in other.blocks]


def test_groups_in_the_order_of_rows_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "sorted", lambda found, key=None: list(found), raising=False)
    one, other = _both_orders(monkeypatch, ROWS_PRIVATE, **ROW)
    assert one.groups != other.groups and sorted(map(repr, one.groups)) == sorted(map(repr, other.groups))


def test_zero_has_one_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is not brought into one form, the group is called as some row is: 0.0 or -0.0."""
    query = ("SELECT \"select\", count(*) FROM sales GROUP BY \"select\"", "groups := 'private'")
    con = database(**ROW)
    con.execute("DELETE FROM sales WHERE \"select\" = 0")
    con.execute("INSERT INTO sales SELECT * REPLACE ('-0.0'::DOUBLE AS \"select\") FROM sales")
    with replayed(monkeypatch) as read:
        ask(con, *query, 3.0)
    assert ("-0.0",) not in read.last()[1].groups and ("0.0",) in read.last()[1].groups
    monkeypatch.setattr(statement, "one_form", lambda value, sql_type: value)
    con = database(**ROW)
    con.execute("DELETE FROM sales WHERE \"select\" = 0")
    con.execute("INSERT INTO sales SELECT * REPLACE ('-0.0'::DOUBLE AS \"select\") FROM sales")
    with replayed(monkeypatch) as read:
        ask(con, *query, 3.0)
    assert ("-0.0",) in read.last()[1].groups


def _thirds(patch: pytest.MonkeyPatch) -> tuple[int, int]:
    """Return the counter of a sum of six rows of less than half a part of the grid, and the sum of the rows' integers."""
    con = database()
    with replayed(patch) as read:
        ask(con, "SELECT sum(quantity) FROM sales", "", 3.0)
    grid = read.last()[0].measures[0].grid
    con = database(max_contributions=6)
    con.execute("DELETE FROM sales WHERE customer IS NOT NULL")
    con.execute(f"UPDATE sales SET amount = {100 * 0.4 / 2**20!r}")
    with replayed(patch) as read:
        ask(con, "SELECT sum(amount) FROM sales", "", 3.0)
    assert grid >= 1
    return int(read.last()[1].blocks[0][0, 0]), 0


def test_sums_are_of_integers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row of .4 of a part is 0, so six of them are 0; a sum in floating point is 2, and would depend on the order."""
    found, exact = _thirds(monkeypatch)
    assert found == exact
    plain = statement.scaled
    monkeypatch.setattr(statement, "scaled", lambda m: plain(m).replace("CAST(", "", 1).replace("round(", "(").removesuffix(" AS BIGINT)"))
    found, exact = _thirds(monkeypatch)
    assert found != exact
