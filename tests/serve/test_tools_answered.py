"""What charting tools send is answered: near what DuckDB says of the rows, and asked again within the hour it is free."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import duckdb
import pytest
from pairwise import WHOLE
from prepared import beside
from tool_statements import DUCKDB, MYSQL, Said

import dpsql
from dpsql import udfs
from dpsql.serve.ask import Ask
from dpsql.serve.gate import clock
from dpsql.serve.mysql.translate import to_duckdb

EPSILON = 8.0
ROWS = """
CREATE TABLE orders AS SELECT i AS order_id, i // 2 AS customer, ['east', 'north', 'south', 'west'][1 + i % 4] AS region,
    ['chairs', 'desks', 'lamps'][1 + (i // 4) % 3] AS category, ['a', 'b', 'b', 'c', 'c', 'c', 'c'][1 + (i // 12) % 7] AS product,
    DATE '2024-01-01' + (i * 37 % 731)::INTEGER AS order_date, TIMESTAMP '2024-01-01' + to_minutes((i * 7919) % 1052640) AS created_at,
    ((i * 7907) % 1000)::DOUBLE AS amount, 1 + (i * 31) % 10 AS quantity, i % 5 = 0 AS returned
FROM range(24000) t(i);
ALTER TABLE orders DROP order_id;
CREATE TABLE regions(region VARCHAR, manager VARCHAR, target INTEGER);
INSERT INTO regions VALUES ('east', 'Ann', 10), ('north', 'Bo', 20), ('south', 'Ann', 30), ('west', 'Cy', 40);
"""
DECLARED = """
CALL dp_protect('orders', epsilon := 1000, delta := 1e-9, privacy_unit := 'customer', max_contributions := 2);
CALL dp_declare('orders', 'region', categories := ['east', 'north', 'south', 'west'], nullable := false);
CALL dp_declare('orders', 'category', categories := ['chairs', 'desks', 'lamps'], nullable := false);
CALL dp_declare('orders', 'product', categories := ['a', 'b', 'c'], nullable := false);
CALL dp_declare('orders', 'amount', lower := 0, upper := 1000, nullable := false);
CALL dp_declare('orders', 'quantity', lower := 1, upper := 10, nullable := false);
CALL dp_declare('orders', 'order_date', lower := '2024-01-01', upper := '2025-12-31', nullable := false);
CALL dp_declare('orders', 'created_at', lower := '2024-01-01', upper := '2025-12-31 23:59:59', nullable := false);
CALL dp_declare('orders', 'returned', nullable := false);
"""
NOW = dt.datetime(2025, 3, 20, 10, 42, 7, tzinfo=dt.UTC)


class Everybody:
    def granted(self, _: str) -> Mapping[str, float]:
        return {"main.orders": EPSILON}

    def public(self) -> Collection[str]:
        return ("main.regions",)


class Shop:
    """The room, and the same rows in a database without it."""

    def __init__(self, folder: Path) -> None:
        self.con = duckdb.connect(str(folder / "served.duckdb"))
        dpsql.load(self.con)
        self.con.execute(ROWS)
        self.con.execute(DECLARED)
        instance = udfs.instance_of(self.con)
        assert instance is not None
        self.room = Ask(instance, "served", Everybody(), database="shop")
        self.rows = duckdb.connect(str(folder / "shop.duckdb"))
        self.rows.execute(ROWS)

    def charges(self) -> int:
        return int(beside(self.con).execute("SELECT count(*) FROM dpsql.ledger WHERE action = 'charge'").fetchall()[0][0])

    def truth(self, said: Said, dialect: Literal["duckdb", "mysql"]) -> list[tuple[Any, ...]]:
        """Return what DuckDB answers over the rows, at the time as it is in these tests."""
        text, parameters = (to_duckdb(said.text, said.parameters), ()) if dialect == "mysql" else (said.text, said.parameters)
        day, hour = "DATE '2025-03-20'", "TIMESTAMP '2025-03-20 10:00:00'"
        clocks = {"current_localtimestamp()": hour, "current_timestamp": hour, "now()": hour, "today()": day, "current_date": day}
        for called, meant in clocks.items():
            text = text.replace(called, meant).replace(called.upper(), meant)
        return self.rows.execute(text, list(parameters)).fetchall()


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    found = Shop(tmp_path_factory.mktemp("tools_answered"))
    yield found
    found.rows.close()
    found.con.close()


def off(value: Any, true: Any) -> bool:
    """Whether a number is further from the truth than any noise at this epsilon puts it."""
    if value is None or true is None:
        return value is not true and true is not None
    return bool(abs(float(value) - float(true)) > 30 + 0.06 * abs(float(true)))


def check(shop: Shop, place: int, said: Said, dialect: Literal["duckdb", "mysql"]) -> None:
    """Ask, and ask again or describe in turn; every other statement is described alone, which reads and rewrites it. All when thorough."""
    if not WHOLE and place % 2:
        before = shop.charges()
        assert len(shop.room.describe("alice", said.text, dialect, said.parameters)) >= max(said.groups, 1) and shop.charges() == before
        return
    before = shop.charges()
    answer = shop.room.ask("alice", said.text, dialect, said.parameters)
    assert shop.charges() <= before + 3  # one for each release of it: a ROLLUP of two columns has three
    if WHOLE or place % 4 == 0:
        bought = shop.charges()
        assert shop.room.ask("alice", said.text, dialect, said.parameters) == answer and shop.charges() == bought
    if WHOLE or place % 4 == 2:
        described = shop.room.describe("alice", said.text, dialect, said.parameters)
        assert [(c.name, c.type) for c in described] == [(c.name, c.type) for c in answer.columns]
    found = {row[: said.groups]: row[said.groups :] for row in answer.rows}
    assert len(found) == len(answer.rows)
    for row in shop.truth(said, dialect):
        given = found.pop(row[: said.groups])
        assert not any(off(value, true) for value, true in zip(given, row[said.groups :], strict=True)), (row, given)
    for given in found.values():  # public groups without a row
        assert not any(off(value, 0) for value in given)


@pytest.fixture(autouse=True)
def ten_o_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "moment", lambda: NOW)


def test_there_are_enough() -> None:
    """Beside those of `test_innocent`."""
    assert len({said.text for said in MYSQL + DUCKDB}) >= 110


@pytest.mark.parametrize(("place", "said"), [*enumerate(MYSQL)], ids=[said.text[:90] for said in MYSQL])
def test_tools_of_mysql(shop: Shop, place: int, said: Said) -> None:
    check(shop, place, said, "mysql")


@pytest.mark.parametrize(("place", "said"), [*enumerate(DUCKDB)], ids=[said.text[:90] for said in DUCKDB])
def test_tools_of_duckdb(shop: Shop, place: int, said: Said) -> None:
    check(shop, place, said, "duckdb")


def test_a_relative_range_is_one_question_within_the_hour(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hour is in the text that is charged: the next one is another question."""
    text = "SELECT COUNT(*) FROM orders WHERE created_at > NOW() - INTERVAL 9 DAY"
    first = shop.room.ask("alice", text, "mysql").rows
    bought = shop.charges()
    for minute in (0, 59):
        monkeypatch.setattr(clock, "moment", lambda minute=minute: NOW.replace(minute=minute))
        assert shop.room.ask("alice", text, "mysql").rows == first and shop.charges() == bought
    direct = "FROM dp_query('SELECT count(*) AS \"COUNT(*)\" FROM orders WHERE created_at > now() - INTERVAL 9 DAY', epsilon := 8)"
    assert shop.room.ask("alice", direct).rows == first and shop.charges() == bought
    monkeypatch.setattr(clock, "moment", lambda: NOW.replace(hour=11))
    shop.room.ask("alice", text, "mysql")
    assert shop.charges() == bought + 1


def test_the_list_of_the_largest_is_a_release_beside_that_of_the_chart(shop: Shop) -> None:
    """Neither is got without being paid for, together they cost a question."""
    before = shop.charges()
    text = "SELECT product, quantity, count(*) FROM orders JOIN (SELECT product AS p, sum(quantity) AS s FROM orders GROUP BY 1 ORDER BY s DESC LIMIT 2) t ON product = p GROUP BY product, quantity"
    assert {row[0] for row in shop.room.ask("alice", text).rows} == {"b", "c"}
    assert shop.charges() == before + 2
    paid = "SELECT epsilon FROM dpsql.ledger WHERE action = 'charge' ORDER BY entry DESC LIMIT 2"
    assert all(0 < float(epsilon) < EPSILON for (epsilon,) in beside(shop.con).execute(paid).fetchall())


def test_public_tables_are_read_with_the_clock_as_it_is(shop: Shop) -> None:
    (row,) = shop.room.ask("alice", "SELECT NOW() > '2025-03-21', CURDATE() > '2025-03-21' FROM regions LIMIT 1", "mysql").rows
    assert row == (True, True)
