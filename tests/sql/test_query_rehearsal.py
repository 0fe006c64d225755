"""Whatever can be asked is refused before it is charged, or answered after: every aggregate with every type, in every form."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import duckdb
import pytest
from pairwise import WHOLE
from prepared import beside

import dpsql
from dpsql.answers import auto, held, rehearsing
from dpsql.kinds import plans
from dpsql.session.instance import Instance

TYPES = (
    "BOOLEAN", "TINYINT", "INTEGER", "BIGINT", "HUGEINT", "UBIGINT", "FLOAT", "DOUBLE", "DECIMAL(9, 2)", "DECIMAL(38, 10)", "DATE", "TIME",
    "TIMESTAMP", "TIMESTAMP WITH TIME ZONE", "TIMESTAMP_S", "TIMESTAMP_NS", "VARCHAR", "UUID", "BLOB", "INTERVAL", "JSON", "INTEGER[]",
    "STRUCT(a INTEGER)", "ENUM('x', 'y')",
)
AGGREGATES = (
    "count({x})", "count(DISTINCT {x})", "sum({x})", "sum(DISTINCT {x})", "avg({x})", "avg(DISTINCT {x})", "min({x})", "max({x})", "median({x})",
    "quantile_cont({x}, [0.1, 0.9])", "quantile_disc({x}, 0.5)", "stddev({x})", "stddev(DISTINCT {x})", "var_pop({x})", "mode({x})",
    "histogram({x})", "bool_and({x})", "bool_or({x})", "count_if({x})", "corr({x}, n)", "sum(DISTINCT {x}) + count(*)", "count(*)",
)
FORMS = (
    ("", ""), ("FILTER (WHERE n > 2)", ""), ("", "groups := 'private'"), ("FILTER (WHERE n > 2)", "groups := 'private', min_units := 2"),
    ("", "confidence := 0.95"), ("FILTER (WHERE n > 2)", "bounds := 'auto'"), ("", "bounds := 'auto', groups := 'private', confidence := 0.9"),
    ("", "mechanism := 'laplace', {bounds}"), ("FILTER (WHERE n > 2)", "{bounds}"), ("", "{bounds}, groups := 'private', confidence := 0.9"),
)
GROUPS = ("", "GROUP BY s", "GROUP BY {x}", "GROUP BY ROLLUP (s)")
BOUNDS = {kind: ("0", "100") for kind in TYPES if "INT" in kind or "DECIMAL" in kind} | {
    "FLOAT": ("-1.5", "1e6"), "DOUBLE": ("-1.5", "1e6"), "DATE": ("DATE '2020-01-01'", "DATE '2020-12-31'"),
    **{kind: (f"CAST('2020-01-01' AS {kind})", f"CAST('2021-01-01' AS {kind})") for kind in TYPES if kind.startswith("TIMESTAMP")},
}


pytestmark = pytest.mark.any_duckdb


@pytest.fixture(scope="module")
def every() -> Iterator[duckdb.DuckDBPyConnection]:
    """A table with a column of every type, no row of which has anything but NULL and zeros."""
    con = duckdb.connect()
    dpsql.load(con, user="tester")
    con.execute("CREATE TABLE every (uid INTEGER, n INTEGER, s VARCHAR, " + ", ".join(f"x{i} {kind}" for i, kind in enumerate(TYPES)) + ")")
    con.execute("INSERT INTO every (uid, n, s) SELECT i // 2, i % 9, 'abc'[1 + i % 3] FROM range(60) AS numbers(i)")
    dpsql.protect(con, "every", epsilon=1000, delta=1e-6, privacy_unit="uid", max_contributions=2)
    con.execute("CALL dp_declare('every', 's', categories := ['a', 'b', 'c'])")
    con.execute("CALL dp_declare('every', 'n', lower := 0, upper := 9)")
    yield con
    con.close()


def charged(con: duckdb.DuckDBPyConnection) -> int:
    return int(beside(con).execute("SELECT count(*) FROM dpsql.ledger WHERE action = 'charge'").fetchall()[0][0])


FEWER = ("BOOLEAN", "TINYINT", "HUGEINT", "FLOAT", "DECIMAL(38, 10)", "DATE", "TIME", "TIMESTAMP WITH TIME ZONE", "VARCHAR", "UUID", "INTEGER[]")
"""A type of each family: what is tried on every change."""


@pytest.mark.parametrize("kind", [i for i, name in enumerate(TYPES) if WHOLE or name in FEWER], ids=lambda i: TYPES[i])
def test_refused_before_or_answered_after(every: duckdb.DuckDBPyConnection, kind: int) -> None:
    """Every aggregate with every other type; forms and groups in turn. All of them with every type (DPSQL_HYPOTHESIS=thorough)."""
    low, high = BOUNDS.get(TYPES[kind], ("0", "1"))
    every_one = list(itertools.product(FORMS, GROUPS))
    answered = refused = 0
    turn = 0 if WHOLE else FEWER.index(TYPES[kind]) % 2
    for place, aggregate in [*enumerate(AGGREGATES)][turn :: 1 if WHOLE else 2]:
        for (after, options), group in every_one if WHOLE else [every_one[(7 * kind + 5 * place) % len(every_one)]]:
            x = f"x{kind}"
            sql = f"SELECT {aggregate.format(x=x)} {after} FROM every {group.format(x=x)}"
            said = options.format(bounds=f"bounds := {{'{x}': [{low}, {high}]}}")
            before = charged(every)
            try:
                every.execute(f"FROM dp_query($${sql}$$, epsilon := 0.001{', ' * bool(said)}{said})").fetchall()
                answered += 1
            except duckdb.Error as error:
                refused += 1
                assert charged(every) == before, (sql, said, str(error)[:300])
                assert "rehearsal" not in str(error), (sql, said, str(error)[:300])
    assert refused and answered


@pytest.mark.parametrize("kind", ["DECIMAL(38, 38)", "DECIMAL(38, 37)", "DECIMAL(4, 4)", "TINYINT"])
def test_noise_beyond_the_type_of_an_answer(every: duckdb.DuckDBPyConnection, kind: str) -> None:
    """A sum of DECIMAL(38, 38) has no digit before the point: what is beyond its range is its nearest end."""
    every.execute(f"CREATE OR REPLACE TABLE narrow AS SELECT i AS uid, CAST(0 AS {kind}) AS x FROM range(30) AS numbers(i)")
    every.execute("CALL dp_protect('narrow', epsilon := 1000, delta := 1e-6, privacy_unit := 'uid', max_contributions := 1)")
    every.execute("CALL dp_declare('narrow', 'x', lower := 0, upper := 0.5)" if kind != "TINYINT" else "CALL dp_declare('narrow', 'x', lower := 0, upper := 100)")
    asked = "FROM dp_query('SELECT sum(x) AS s, max(x) AS m FROM narrow', epsilon := 0.01, release := 'n{}')"
    found = [every.execute(asked.format(i)).fetchall()[0] for i in range(6)]
    wanted = every.execute("SELECT typeof(sum(x)), typeof(max(x)) FROM narrow").fetchall()[0]
    assert every.execute(f"SELECT typeof(s), typeof(m) FROM ({asked.format(0)})").fetchall()[0] == wanted
    width, scale = map(int, wanted[0].removeprefix("DECIMAL(").rstrip(")").split(",")) if "(" in wanted[0] else (38, 0)
    end = (Decimal(10) ** width - 1) / Decimal(10) ** scale
    assert all(abs(Decimal(total)) <= end for total, _ in found)
    if width == scale:  # the noise is some 100 wide, so each of six draws lies below 1 with a chance of less than 0.01
        assert any(abs(total) == end for total, _ in found), found


def test_what_is_rehearsed_is_planned_and_looked_up_once(every: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch) -> None:
    """The purchase takes the plan of its rehearsal; stored releases are asked again once something was bought."""
    done: list[str] = []

    def counted(where: Any, name: str, said: str) -> None:
        plain = where[name] if isinstance(where, dict) else getattr(where, name)

        def spy(*given: Any, **named: Any) -> Any:
            done.append(said)
            return plain(*given, **named)

        (monkeypatch.setitem if isinstance(where, dict) else monkeypatch.setattr)(where, name, spy)

    counted(plans._PLANNERS, "query", "planned")
    counted(held, "known", "looked up")
    counted(auto, "reused", "completed")
    every.execute("FROM dp_query('SELECT sum(x2) FROM every', epsilon := 0.01, bounds := 'auto')").fetchall()
    assert sorted(done) == ["completed", "looked up", "planned"]
    done.clear()
    both = "SELECT sum(n) FROM every WHERE n > 6 UNION ALL SELECT count(*) FROM every WHERE n > 7"
    every.execute(f"FROM dp_query('{both}', epsilon := 0.01)").fetchall()
    assert done.count("planned") == 2 and done.count("looked up") == 3, done  # the second one again, after the first


def test_what_the_first_part_buys_answers_the_second(every: duckdb.DuckDBPyConnection) -> None:
    """Stored releases that were looked up before the purchase are not all: the second part is free once the first one is bought."""
    twice = "SELECT sum(n), count(*) FROM every WHERE n < 8 UNION ALL SELECT count(*), 0 FROM every WHERE n < 8"
    before = charged(every)
    first, second = every.execute(f"FROM dp_query('{twice}', epsilon := 0.01)").fetchall()
    assert charged(every) == before + 1 and {int(first[1])} & {int(x) for x in second}


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT s, count(*) FROM every WHERE n % 7 <> {} GROUP BY s",
        "SELECT sum(n) FROM every WHERE n % 7 <> {}",
        "SELECT avg(m) FROM (SELECT uid, max(n) AS m FROM every WHERE n % 7 <> {} GROUP BY uid)",
        "SELECT s, sum(many.n) FROM every JOIN many USING (uid) WHERE many.n % 7 <> {} GROUP BY s",
    ],
)
def test_no_protected_row_is_read(sql: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even of units that made-up rows have as well, as NULL or 0: of these there are more rows than a unit may have."""
    con = duckdb.connect()
    dpsql.load(con, user="tester")
    con.execute("CREATE TABLE every (uid BIGINT PRIMARY KEY, n BIGINT, s VARCHAR)")
    con.execute("CREATE TABLE many AS SELECT CASE WHEN i % 5 > 0 THEN i % 5 - 1 END AS uid, i % 9 AS n FROM range(90) AS numbers(i)")
    con.execute("INSERT INTO every SELECT i, i % 9, 'abc'[1 + i % 3] FROM range(60) AS numbers(i)")
    dpsql.protect(con, "every", epsilon=1000, delta=1e-6, privacy_unit="uid", max_contributions=1)
    con.execute("CALL dp_link('many', 'uid', parent := 'every', max_rows := 3, orphans := 'unit')")
    con.execute("CALL dp_declare('every', 's', categories := ['a', 'b', 'c'])")
    con.execute("CALL dp_declare('every', 'n', lower := 0, upper := 9); CALL dp_declare('many', 'n', lower := 0, upper := 9)")
    con.execute("FROM dp_query('SELECT count(*) FROM every', epsilon := 0.01)").fetchall()  # from now on plans are sound
    executed: list[str] = []
    rehearsed: list[str] = []

    class Noting:
        def __init__(self, cursor: duckdb.DuckDBPyConnection) -> None:
            self.cursor = cursor

        def __getattr__(self, name: str) -> Any:
            if name == "execute":
                return lambda text, *values: (executed.append(text.strip()), self.cursor.execute(text, *values))[1]
            return getattr(self.cursor, name)

    def noted(*given: Any) -> Any:
        start = len(executed)
        made = part(*given)
        rehearsed.extend(executed[start:])
        return made

    part, take = rehearsing._part, Instance.take
    monkeypatch.setattr(rehearsing, "_part", noted)
    monkeypatch.setattr(Instance, "take", lambda self: Noting(take(self)))
    monkeypatch.setattr(Instance, "give", lambda self, cursor: cursor.cursor.close())
    con.execute(f"FROM dp_query('{sql.format(1)}', epsilon := 0.01)").fetchall()
    charge = next(i for i, text in enumerate(executed) if text.startswith("INSERT INTO") and "ledger" in text)
    assert any("__dp_unit" in text for text in rehearsed)
    named = [text for text in executed[:charge] if '"every"' in text or '"many"' in text]
    assert named and not [text for text in named if not text.startswith("DESCRIBE ")]
    done = len(rehearsed)
    con.execute(f"FROM dp_query('{sql.format(2)}', epsilon := 0.01)").fetchall()
    assert len(rehearsed) == done, "other rows are not another rehearsal"
