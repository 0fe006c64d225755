"""A function registered in Python under the name of one of DuckDB's: nothing is sold while dpsql's own statements could call it."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.errors import UnsupportedQuery
from dpsql.measure import temporary
from dpsql.measure.temporary import temporary_table
from dpsql.source import listed
from dpsql.source.catalog import Catalog
from dpsql.source.listed import Functions

CALLS = (
    "dp_plan('visits', epsilon := 1)",
    "dp_plan('visits', method := 'latent_class', epsilon := 1)",
    "dp_query('SELECT sum(cost) FROM visits', epsilon := 1, bounds := {'cost': [0, 100]})",
    "dp_query('SELECT ward, count(*), median(cost) FROM visits GROUP BY ward', epsilon := 1, groups := 'private')",
    "dp_query('SELECT avg(n) FROM (SELECT patient, sum(cost) AS n FROM visits GROUP BY patient)', epsilon := 1, bounds := 'auto')",
    "dp_query('SELECT count(*) FROM visits WHERE cost > 3', epsilon := 1)",
    "dp_query_exact('SELECT sum(cost) FROM visits', bounds := {'cost': [0, 100]})",
    "dp_summarize('visits', epsilon := 1)",
    "dp_marginals('visits', k := 2, epsilon := 1)",
    "dp_aggregates('visits', reporting_length := 2, epsilon := 1)",
    "dp_histogram('visits', 'ward', epsilon := 1, delta := 1e-6)",
    "dp_contributions('visits', epsilon := 1)",
    "dp_synthesize('visits', epsilon := 1)",
    "dp_synthesize('visits', method := 'aggregate_seeded', epsilon := 1)",
    "dp_synthesize('visits', method := 'gaussian_copula', epsilon := 1)",
    "dp_declare('visits', 'ward', discover := true, epsilon := 1)",
    "dp_evaluate('visits', 'synthetic')",
)


@pytest.fixture
def visits() -> Iterator[duckdb.DuckDBPyConnection]:
    """400 visits of 200 patients; nothing is charged."""
    con = duckdb.connect()
    dpsql.load(con, user="tester")
    con.execute("CREATE TABLE visits AS SELECT i % 200 AS patient, i % 100 AS cost, 'w' || i % 3 AS ward FROM range(400) AS numbers(i)")
    con.execute("CREATE TABLE synthetic AS SELECT cost, ward FROM visits LIMIT 50")
    dpsql.protect(con, "visits", epsilon=100, delta=1e-6, privacy_unit="patient", max_contributions=2)
    con.execute("CALL dp_declare('visits', 'cost', lower := 0, upper := 99)")
    con.execute("CALL dp_declare('visits', 'ward', categories := ['w0', 'w1', 'w2'])")
    yield con
    con.close()


@pytest.mark.parametrize("name", ["least", "hash", "+"])
def test_every_kind_of_call_is_refused_uncharged(visits: duckdb.DuckDBPyConnection, name: str) -> None:
    seen: list[Any] = []

    def spy(one: Any, other: Any) -> Any:
        seen.append((one, other))
        return one

    visits.create_function(name, spy, ["DOUBLE", "SMALLINT"], "DOUBLE")
    for call in CALLS:
        with pytest.raises(duckdb.Error, match=r"(?s)another meaning.*open the database anew"):
            visits.execute(f"FROM {call}").fetchall()
    assert not seen
    assert visits.cursor().execute("SELECT count(*) FROM dpsql.ledger WHERE action = 'charge'").fetchone() == (0,)


def overloaded(functions: Functions, cursor: duckdb.DuckDBPyConnection) -> str | None:
    return min(functions.listed(cursor)[1], default=None)


def test_every_function_that_can_be_overloaded_is_noticed() -> None:
    """No list: whatever DuckDB has under a name."""
    con = duckdb.connect()
    names = [row[0] for row in con.execute("SELECT DISTINCT function_name FROM duckdb_functions() WHERE function_type = 'scalar'").fetchall()]
    cursor, taken = con.cursor(), []
    own = set(names)
    for name in names:
        try:
            con.create_function(name, lambda a, b: a, ["DOUBLE", "UUID"], "DOUBLE")
        except duckdb.Error:
            continue
        taken.append(name.lower())
    assert len(taken) > 400 and {"least", "+", "coalesce", "list_value"} & own <= set(taken)
    functions = Functions()
    assert overloaded(functions, cursor) is not None
    assert functions._overloaded == set(taken)
    with pytest.raises(UnsupportedQuery, match="another meaning"):
        Catalog(cursor, functions).check_functions()
    con.close()


def test_macros_and_functions_of_new_names_are_no_matter() -> None:
    """dpsql's cursors look names up in DuckDB's own catalog."""
    con = duckdb.connect()
    con.execute("CREATE MACRO least(a, b) AS 7; CREATE TEMP MACRO greatest(a, b) AS 7")
    con.create_function("mine", lambda a: a, ["DOUBLE"], "DOUBLE")
    assert overloaded(Functions(), con.cursor()) is None
    con.close()


def register(con: duckdb.DuckDBPyConnection) -> None:
    con.create_function("least", lambda a, b: a, ["DOUBLE", "INTEGER"], "DOUBLE")


@pytest.mark.parametrize("looked", [False, True], ids=["", "another thread lists them meanwhile"])
@pytest.mark.parametrize("when", ["never", "before", "while it is made", "while it is there", "after"])
def test_tables_of_our_own_hide_nobody_elses_function(when: str, looked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A temporary table takes numbers of the counter that tells whether functions are to be listed anew: as many as are allowed for."""
    con, functions, times = duckdb.connect(), Functions(), []
    cursor, other = con.cursor(), con.cursor()
    made, guarded = listed._listing, temporary.guarded
    for _ in range(2):  # what DuckDB makes by itself when a session begins
        assert overloaded(functions, cursor) is None

    def reading(*given: Any) -> Any:
        if when == "while it is made":
            register(other)
        made = guarded(*given).fetchall()
        if looked:
            overloaded(functions, cursor)
        return SimpleNamespace(fetchall=lambda: made)

    monkeypatch.setattr(listed, "_listing", lambda one: times.append(one) or made(one))
    monkeypatch.setattr(temporary, "guarded", reading)
    if when == "before":
        register(other)
    with temporary_table(cursor, "rows", "SELECT 1 AS x, 'a' AS y, [1.5] AS z"):
        if when == "while it is there":
            register(other)
    if when == "after":
        register(other)
    assert overloaded(functions, cursor) == (None if when == "never" else "least")
    assert bool(times) == (when != "never" or looked)
    con.close()


def test_numbers_are_allowed_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Functions that are listed while a table is made have been seen with it: as many numbers of somebody else's are not free."""
    con, functions, guarded = duckdb.connect(), Functions(), temporary.guarded
    cursor, times, made = con.cursor(), [], listed._listing
    for _ in range(2):
        overloaded(functions, cursor)
    seen = SimpleNamespace(fetchall=lambda: [(1,)])
    monkeypatch.setattr(temporary, "guarded", lambda *given: (guarded(*given), overloaded(functions, cursor), seen)[-1])
    with temporary_table(cursor, "rows", "SELECT 1 AS x"):
        monkeypatch.setattr(listed, "_listing", lambda one: times.append(one) or made(one))
        con.execute("CREATE TEMP TABLE takes_as_many AS SELECT 1 AS x")
        overloaded(functions, cursor)
        assert times
    con.close()


def test_a_table_that_could_not_be_made_is_not_allowed_for() -> None:
    con, functions = duckdb.connect(), Functions()
    cursor = con.cursor()
    assert overloaded(functions, cursor) is None
    number = functions._newest
    with pytest.raises(dpsql.DpsqlError), temporary_table(cursor, "rows", "SELECT error('no')"):
        pass
    assert functions._newest == number
    con.close()


def test_one_that_is_registered_between_the_charge_and_the_reading(visits: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch) -> None:
    """The release stays charged, and the same call finishes it where the function is not."""
    from dpsql.purchase import buying

    prepared = buying._prepare

    def registering(*given: Any) -> Any:
        visits.cursor().create_function("least", lambda a, b: a, ["DOUBLE", "INTEGER"], "DOUBLE")
        return prepared(*given)

    call = "FROM dp_query('SELECT count(*) FROM visits', epsilon := 1)"
    with monkeypatch.context() as patch:
        patch.setattr(buying, "_prepare", registering)
        with pytest.raises(duckdb.Error, match=r"(?s)charged, nothing was read yet.*another meaning"):
            visits.execute(call)
    assert visits.cursor().execute("SELECT action FROM dpsql.ledger WHERE entry > 1").fetchall() == [("charge",)]
