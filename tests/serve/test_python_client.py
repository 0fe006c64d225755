"""``dpsql.connect``: the package's own functions over a served database, by each protocol."""

from __future__ import annotations

import datetime as dt
import importlib
import socket
import ssl
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pytest
from mysql_room import TOKENS, FakeKeys
from served_room import served

import dpsql
from dpsql.client import calls
from dpsql.client.place import Place
from dpsql.client.roads import of_field
from dpsql.errors import ArgumentError, DpsqlError
from dpsql.serve.mysql.door import MysqlDoor
from dpsql.serve.mysql.login import Tls

pytest.importorskip("pymysql")
AGGREGATE = "SELECT ward, count(*) AS n, avg(cost) AS mean FROM visits GROUP BY ward ORDER BY ward"
TYPES = {
    "1::TINYINT": "TINYINT", "-1::SMALLINT": "SMALLINT", "1::INTEGER": "INTEGER", "1::BIGINT": "BIGINT", "255::UTINYINT": "UTINYINT",
    "1::UINTEGER": "UINTEGER", "18446744073709551615::UBIGINT": "UBIGINT", f"{2**126}::HUGEINT": "HUGEINT", "1.25::DECIMAL(9,2)": "DECIMAL(9,2)",
    "-12345678901234567890.5::DECIMAL(38,1)": "DECIMAL(38,1)", "true": "BOOLEAN", "0.1::DOUBLE": "DOUBLE", "0.5::FLOAT": "FLOAT",
    "'größe 😀 \\'": "VARCHAR", "''": "VARCHAR", "'\\xAA\\x00'::BLOB": "BLOB", "DATE '2020-02-29'": "DATE",
    "TIMESTAMP '2020-01-02 03:04:05.678901'": "TIMESTAMP", "TIME '03:04:05'": "TIME",
}  # fmt: skip


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimpleNamespace]:
    """A served database behind the doors that there are."""
    with served(tmp_path_factory.mktemp("served")) as found:
        keys = FakeKeys()
        doors: dict[str, Any] = {"mysql": MysqlDoor(found.room, keys, "127.0.0.1", 0)}
        try:
            importlib.import_module("adbc_driver_flightsql.dbapi")
            doors["grpc"] = importlib.import_module("dpsql.serve.flight.door").FlightDoor(found.room, keys, "127.0.0.1", 0)
        except ImportError:
            pass
        for door in doors.values():
            door.start()
        yield SimpleNamespace(served=found, doors=doors)
        for door in doors.values():
            door.stop()


@pytest.fixture(scope="module", params=["mysql", "grpc"])
def con(request: pytest.FixtureRequest, house: SimpleNamespace) -> Iterator[dpsql.Served]:
    if request.param not in house.doors:
        pytest.skip("pyarrow or its driver is not here")
    with dpsql.connect(address(request.param, house.doors[request.param].port), TOKENS["alice"]) as made:
        yield made


def address(scheme: str, port: int) -> str:
    return f"{scheme}://alice@127.0.0.1:{port}{'/census' if scheme == 'mysql' else ''}"


def test_what_is_said_beside_an_answer(house: SimpleNamespace, capfd: pytest.CaptureFixture[str]) -> None:
    """Each line once, on standard error; and nothing where the environment says so."""
    text = "FROM dp_query('SELECT file::VARCHAR AS f, count(*) AS n FROM visits GROUP BY f', epsilon := 0.2)"
    for switched, lines in (("on", 1), ("off", 0)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("DPSQL_PROGRESS", switched)
            with dpsql.connect(f"mysql://alice@127.0.0.1:{house.doors['mysql'].port}/census", TOKENS["alice"]) as con:
                assert con.sql(text).fetchall() == con.sql(text).fetchall() == []
        assert capfd.readouterr().err.count("groups are private") == lines


def test_the_functions_are_those_of_a_database_here(house: SimpleNamespace, con: dpsql.Served) -> None:
    answered = dpsql.query(con, AGGREGATE, epsilon=0.25)
    assert isinstance(answered, duckdb.DuckDBPyRelation) and answered.columns == ["ward", "n", "mean"]
    bought = house.served.charges()
    direct = house.served.ask(f"FROM dp_query('{AGGREGATE}', epsilon := 0.25) ORDER BY ward")
    assert answered.order("ward").fetchall() == direct and house.served.charges() == bought
    assert dpsql.query(con, "SELECT sum(cost) AS s FROM visits WHERE ward = ? AND cost < $2".replace("$2", "?"), params=["A", 500], epsilon=1, bounds={"cost": [0, 500]}).columns == ["s"]
    assert dpsql.marginals(con, "visits", columns=["ward"], epsilon=0.5).count("*").fetchall() == [(3,)]
    assert dpsql.plan(con, AGGREGATE, epsilon=0.25).fetchall() and dpsql.dummy(con, "visits").columns[1:3] == ["ward", "day"]
    assert dpsql.budget(con).columns == dpsql.budget(house.served.con).columns
    assert answered.filter("ward = 'A'").join(con.sql("FROM wards").filter("beds < 9"), "ward").count("*").fetchall() == [(1,)]


def test_values(con: dpsql.Served) -> None:
    texts = list(TYPES)
    asked = f"FROM (SELECT {', '.join(f'{text} AS c{i}' for i, text in enumerate(texts))})"
    with duckdb.connect() as here:
        known = here.sql(asked)
        found = con.sql(asked)
        assert found.fetchall() == known.fetchall()
        flight = {"HUGEINT": "DECIMAL(38,0)"} if "grpc" in repr(con) else {}
        assert [str(kind) for kind in found.types] == [flight.get(TYPES[text], TYPES[text]) for text in texts]
    assert con.sql("FROM (SELECT ward, beds FROM wards WHERE beds > 99)").fetchall() == []
    nulls = con.sql("FROM (SELECT NULL::INTEGER AS i, NULL::VARCHAR AS t, NULL::DATE AS d)")
    assert nulls.fetchall() == [(None, None, None)] and [str(kind) for kind in nulls.types] == ["INTEGER", "VARCHAR", "DATE"]
    odd = con.sql('FROM (SELECT 1 AS "größe ""😀""", 2 AS "select", 3 AS a, 4 AS a)')
    assert odd.columns == ['größe "😀"', "select", "a", "a_1"] and odd.fetchall() == [(1, 2, 3, 4)]


def test_parameters_are_literals(con: dpsql.Served) -> None:
    text = "FROM (SELECT building FROM wards WHERE building = ?)"
    assert con.sql(text, ["one"]).fetchall() == [("one",)] and con.sql(text, ["one' OR '1' = '1"]).fetchall() == []


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda con: dpsql.protect(con, "visits", epsilon=5), r"^dp_protect is for the custodian alone"),
        (lambda con: con.sql("SELECT cost FROM visits"), r"^rows of visits are never shown"),
        (lambda con: dpsql.query(con, "SELECT count(*) FROM visits", epsilon=900), r"^epsilon of dp_query is at most 5 here"),
        (lambda con: con.sql("SELECT * FROM payroll"), r"payroll"),
        (lambda con: con.sql("SELECT 1; SELECT 2"), "."),
    ],
)
def test_refusals_are_the_servers(con: dpsql.Served, ask: Any, said: str) -> None:
    with pytest.raises(DpsqlError, match=said) as refused:
        ask(con)
    assert "FlightSQL" not in str(refused.value) and con.sql("FROM (SELECT 1)").fetchall() == [(1,)]


def test_what_is_of_this_process_alone_is_refused(con: dpsql.Served) -> None:
    with pytest.raises(ArgumentError, match="a database of this process is needed here"):
        dpsql.load(con)  # type: ignore[arg-type]


def test_a_closed_one_says_so(house: SimpleNamespace) -> None:
    con = dpsql.connect(address("mysql", house.doors["mysql"].port), TOKENS["alice"])
    con.close()
    con.close()
    with pytest.raises(DpsqlError, match="is closed: dpsql.connect"):
        con.sql("FROM wards")


def test_a_lost_line_says_so(house: SimpleNamespace) -> None:
    door = MysqlDoor(house.served.room, FakeKeys(), "127.0.0.1", 0)
    door.start()
    with dpsql.connect(address("mysql", door.port), TOKENS["alice"]) as con:
        kept = con.sql("FROM wards")
        door.stop()
        for _ in range(2):
            with pytest.raises(DpsqlError, match=r"(?i)lost|shut|stop"):
                con.sql("FROM wards")
        assert kept.count("*").fetchall() == [(3,)]


def test_the_token_is_nowhere(house: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    where = address("mysql", house.doors["mysql"].port)
    monkeypatch.setenv("DPSQL_TOKEN", TOKENS["alice"])
    with dpsql.connect(where) as con:
        assert TOKENS["alice"] not in f"{con!r} {con} {con.here.sql('SELECT * FROM duckdb_settings()').fetchall()}"
    for token in ("wrong-token", TOKENS["bob"]):
        with pytest.raises(DpsqlError, match=r"no connection: Access denied") as refused:
            dpsql.connect(where, token)
        assert token not in str(refused.value)
    monkeypatch.delenv("DPSQL_TOKEN")
    with pytest.raises(ArgumentError, match=r"token is not given"):
        dpsql.connect(where)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgres://alice@host/census", "an address: 'mysql://"), ("mysql://localhost/census", "whose token"), ("mysql://alice@localhost", "name of the database"),
        ("mysql://alice:s3cret@localhost/census", "logs keep addresses"), ("mysql://alice:s3cret@localhost:99999/census", "an address"), (7, "an address"),
        ("alice:s3cret@host", "an address"), ("mysql://alice@[::1/census", "an address"), ("grpc://alice@host?x=1", "an address"),
    ],
)  # fmt: skip
def test_addresses_that_are_none(url: Any, said: str) -> None:
    with pytest.raises(ArgumentError, match=said) as refused:
        dpsql.connect(url, "x")
    assert "s3cret" not in str(refused.value)


def test_nobody_listens_there() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for scheme in ("mysql", "grpc"):
        with pytest.raises(DpsqlError, match=r"no connection|not installed"):
            dpsql.connect(address(scheme, port), "x")


def test_a_missing_package_is_named(house: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    for scheme, module, install in (("mysql", "pymysql", r"'dpsql\[client\]'"), ("grpc", "adbc_driver_manager", "adbc-driver-flightsql pyarrow")):
        monkeypatch.setitem(__import__("sys").modules, module, None)
        with pytest.raises(DpsqlError, match=f"pip install {install}"):
            dpsql.connect(address(scheme, 1), "x")


def test_places() -> None:
    for url, local in (("mysql://a@localhost/c", True), ("grpc://a@[::1]:7", True), ("quack://127.0.0.1", True), ("mysql://a@10.0.0.7/c", False), ("grpc://a@census.example", False)):
        assert Place.of(url).local is local
    assert str(Place.of("grpc://%C3%A4@[::1]:7")) == "grpc://ä@[::1]:7" and Place.of("quack://host").port == 9494


def test_tls(house: SimpleNamespace, certificate: tuple[Path, Path], tmp_path: Path) -> None:
    """The certificate is checked, and nothing is sent where it is not trusted."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    door = MysqlDoor(house.served.room, FakeKeys(), "127.0.0.1", 0, tls=Tls(context, required=True))
    door.start()
    try:
        with dpsql.connect(address("mysql", door.port), TOKENS["alice"], ca=certificate[0]) as con:
            assert con.sql("FROM (SELECT 1)").fetchall() == [(1,)]
        with pytest.raises(DpsqlError, match=r"certificate verify failed"):
            dpsql.connect(address("mysql", door.port), TOKENS["alice"], tls=True)
        with pytest.raises(DpsqlError, match=r"no connection"):
            dpsql.connect(address("mysql", door.port), TOKENS["alice"])
        with pytest.raises(ArgumentError, match=r"ca = .*a file of certificates"):
            dpsql.connect(address("mysql", door.port), TOKENS["alice"], ca=tmp_path / "none.pem")
    finally:
        door.stop()


def test_arguments_as_sql() -> None:
    given = {"sql": "SELECT 'x'", "epsilon": 1, "bounds": {"größe 'x'": [0, 2.5], "d": [dt.date(2020, 1, 1), None]}, "options": {"cut": True}, "confidence": None, "groups": "private"}
    assert calls.call("query", given) == (
        "FROM dp_query('SELECT ''x''', epsilon := 1, groups := 'private', bounds := {'größe ''x''': [0, 2.5], 'd': ['2020-01-01', NULL]}, options := {'cut': true})"
    )
    assert calls.call("budget", {"source": None}) == "FROM dp_budget()"
    assert calls.written("x", Decimal("1.50")) == "1.50" and calls.written("x", float("inf")) == "'inf'::DOUBLE"
    with pytest.raises(ArgumentError, match="a value of type object"):
        calls.written("x", object())


def test_types_that_mysql_has_no_word_for() -> None:
    wide = SimpleNamespace(type_code=246, name="u", length=40, scale=0, flags=0, charsetnr=63)
    assert of_field(wide).type == "UHUGEINT"
    assert of_field(SimpleNamespace(type_code=245, name="j", length=9, scale=0, flags=0, charsetnr=45)).type == "VARCHAR"


