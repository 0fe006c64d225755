"""Other clients: data frames in and out, ibis and SQLAlchemy connections."""

from __future__ import annotations

import threading
import warnings

import duckdb
import pytest
from noisy import near_plan

import dpsql
from dpsql.errors import ArgumentError

PROTECT = "CALL dp_protect('t', epsilon := 5, delta := 1e-9)"
DECLARE = "CALL dp_declare('t', 'a', lower := 0, upper := 10, bins := 5, nullable := false)"
BUY = "FROM dp_marginals('t', k := 1, epsilon := 1)"


def frame(kind: str):
    module = pytest.importorskip("pyarrow" if kind == "arrow" else kind)
    values = {"a": list(range(10)) * 20}
    return {"pandas": lambda: module.DataFrame(values), "polars": lambda: module.DataFrame(values), "arrow": lambda: module.table(values)}[kind]()


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow"])
def test_a_frame_is_refused_as_a_source_and_goes_in_as_a_table(kind):
    df = frame(kind)
    with duckdb.connect() as con:
        dpsql.load(con)
        con.register("registered", df)
        for name in ("df", "registered"):
            with pytest.raises(ArgumentError, match="CREATE TABLE t AS FROM df"):
                dpsql.protect(con, name, epsilon=1, delta=1e-9)
        assert dpsql.budget(con).fetchall() == []
        con.execute("CREATE TABLE t AS FROM df")
        for statement in (PROTECT, DECLARE):
            con.execute(statement)
        with pytest.raises(duckdb.Error, match="no such table"):  # nor is a frame a public table to join with
            con.execute("FROM dp_marginals('SELECT t.a FROM t JOIN df USING (a)', epsilon := 1)")
        assert con.execute("SELECT count(*) FROM dpsql.ledger WHERE action = 'charge'").fetchone() == (0,)


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow"])
def test_answers_go_out_as_frames(kind):
    df = frame(kind)
    with duckdb.connect() as con:
        con.register("df", df)
        con.execute("CREATE TABLE t AS FROM df")
        dpsql.load(con)
        for statement in (PROTECT, DECLARE):
            con.execute(statement)
        answer = dpsql.marginals(con, "t", epsilon=1)
        out = {"pandas": lambda: answer.df()["n"].tolist(), "polars": lambda: answer.pl()["n"].to_list(),
               "arrow": lambda: answer.to_arrow_table()["n"].to_pylist()}[kind]()
        assert out == [n for _, _, n in con.execute(BUY).fetchall()]
        assert near_plan(con, "'t', epsilon := 1, k := 1", out, [40] * len(out))
        assert con.execute("SELECT releases FROM dp_budget('t')").fetchone() == (1,)


@pytest.mark.any_duckdb  # with older ones it takes roads of DuckDB and pandas that warn
def test_ibis():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ibis = pytest.importorskip("ibis")
        backend = ibis.duckdb.connect()
    dpsql.load(backend)
    backend.raw_sql("CREATE TABLE t AS SELECT i % 10 AS a FROM range(200) x(i)")
    for statement in (PROTECT, DECLARE):
        backend.raw_sql(statement)
    assert dpsql.budget(backend, "t").df()["releases"][0] == 0
    if not hasattr(backend.con, "fetch_arrow_table"):
        pytest.skip("this ibis does not run expressions on this DuckDB")
    table = backend.sql(f"SELECT n {BUY}")
    found = table.n.sum().execute()
    assert found == table.n.execute().sum() and 0 < found < 500
    assert dpsql.budget(backend, "t").df()["releases"][0] == 1
    backend.disconnect()


@pytest.fixture
def sqlalchemy():
    pytest.importorskip("duckdb_engine")
    pytest.importorskip("sqlalchemy.orm")
    return pytest.importorskip("sqlalchemy")


def filled(sqlalchemy, engine) -> None:
    with engine.begin() as con:
        con.execute(sqlalchemy.text("CREATE TABLE t AS SELECT i % 10 AS a FROM range(200) x(i)"))
    with engine.begin() as con:
        for statement in (PROTECT, DECLARE):
            con.execute(sqlalchemy.text(statement))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("pool", ["QueuePool", "NullPool", "StaticPool"])
def test_an_engine_loads_every_connection_that_it_opens(sqlalchemy, tmp_path, pool):
    engine = sqlalchemy.create_engine(f"duckdb:///{tmp_path / 'x.duckdb'}", poolclass=getattr(sqlalchemy.pool, pool))
    dpsql.load(engine, user="analyst")
    dpsql.load(engine)
    filled(sqlalchemy, engine)
    found = []

    def read():
        with engine.connect() as con:
            found.append(con.execute(sqlalchemy.text(f"SELECT list(n) {BUY}")).scalar())

    threads = [threading.Thread(target=read) for _ in range(3 if pool == "QueuePool" else 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    read()
    assert len({tuple(row) for row in found}) == 1 and len(found) == len(threads) + 1
    with engine.connect() as con:
        books = con.execute(sqlalchemy.text("SELECT count(*), any_value(who) FROM dpsql.ledger WHERE action = 'charge'")).one()
    assert tuple(books) == (1, "analyst")
    with engine.connect() as con:
        assert dpsql.budget(con, "t").df()["releases"][0] == 1
    with pytest.raises(ArgumentError, match="take one"):
        dpsql.budget(engine)
    engine.dispose()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_connection_and_a_session_can_be_loaded_and_a_rollback_keeps_the_charge(sqlalchemy):
    engine = sqlalchemy.create_engine("duckdb:///:memory:", poolclass=sqlalchemy.pool.StaticPool)
    with engine.connect() as con:
        dpsql.load(con)
    filled(sqlalchemy, engine)
    with sqlalchemy.orm.Session(engine) as session:
        dpsql.load(session)
        assert dpsql.budget(session).fetchall()[0][0] == "main.t"
        first = session.execute(sqlalchemy.text(BUY)).all()
        session.rollback()
    with engine.connect() as con:
        assert con.execute(sqlalchemy.text(BUY)).all() == first
        assert dpsql.ledger(con).df()["action"].tolist()[-2] == "charge"
    engine.dispose()


@pytest.mark.parametrize("other", [None, "census.duckdb", object(), type("Backend", (), {"con": "sqlite"})()])
def test_what_holds_no_duckdb_connection_is_refused(other):
    with pytest.raises(ArgumentError, match="a connection is required: duckdb.connect"):
        dpsql.load(other)


def test_an_engine_of_another_database_is_refused(sqlalchemy):
    engine = sqlalchemy.create_engine("sqlite://")
    for _ in range(2):
        with pytest.raises(ArgumentError, match="duckdb-engine"):
            dpsql.load(engine)
    engine.dispose()
