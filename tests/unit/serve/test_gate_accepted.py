# ruff: noqa: E501 -- statements, one after the other
"""What the gate accepts, run on a real database: the rewritten SQL gives what the statement means."""

from __future__ import annotations

import functools

import pytest
from gate_places import Place

from dpsql.serve.answering import takes
from dpsql.serve.gate import Accepted, Refused, decide, view_of

PUBLIC = {
    "FROM pub ORDER BY a": [(1, "one"), (2, "two")],
    "SELECT max(a) FROM main.pub": [(2,)],
    'SELECT a FROM memory."MAIN".PUB WHERE b LIKE \'t%\'': [(2,)],
    "FROM over_pub ORDER BY ALL": [(2,), (3,)],
    "WITH adult AS (FROM pub) SELECT count(*) FROM adult": [(2,)],
    "WITH c AS (FROM pub), d AS (SELECT a FROM c) SELECT sum(d.a), (SELECT min(a) FROM c) FROM d": [(3, 1)],
    "WITH RECURSIVE c AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM c WHERE i < 3) SELECT sum(i) FROM c": [(6,)],
    "SELECT p.a, x FROM pub p, LATERAL (SELECT p.a + 1 AS x) ORDER BY 1": [(1, 2), (2, 3)],
    "SELECT a, row_number() OVER (ORDER BY b DESC) FROM pub ORDER BY a": [(1, 2), (2, 1)],
    "SELECT [x + 1 FOR x IN [1, 2]], list_transform([1], lambda x: x * 2)": [([2, 3], [2])],
    "SELECT sum(i) FROM range(4) t(i)": [(6,)],
    "VALUES (1, 'x')": [(1, "x")],
    "SELECT #1 FROM pub ORDER BY 1": [(1,), (2,)],
    "SHOW TABLES": [("adult",), ("over_adult",), ("over_pub",), ("pub",)],
    "SELECT schema_name, sql, 'table' FROM duckdb_tables() UNION ALL SELECT schema_name, view_name, 'view' FROM duckdb_views()": [
        ("main", 'CREATE TABLE "main"."pub"("a" INTEGER, "b" VARCHAR);', "table"), ("main", "over_pub", "view"),
    ],
    "SELECT catalog_name, schema_name FROM information_schema.schemata WHERE catalog_name NOT IN ('system') ORDER BY ALL": [
        ("memory", "main"),
    ],
    "SELECT column_name FROM (DESCRIBE adult)": [("age",), ("sex",), ("income",)],
    "SELECT DISTINCT table_name FROM information_schema.columns ORDER BY 1": [("adult",), ("over_adult",), ("over_pub",), ("pub",)],
    "SELECT count(estimated_size) FROM duckdb_tables()": [(0,)],
    "SELECT column_name, max FROM (SUMMARIZE pub)": [("a", "2"), ("b", "two")],
    "SELECT 1; -- one": [(1,)],
}  # fmt: skip


@functools.cache
def place() -> Place:
    """Return the database; nothing of these tests changes it."""
    return Place()


@pytest.mark.parametrize("text", PUBLIC)
def test_public(text: str) -> None:
    """Ordinary SQL over public tables."""
    found = place().decide(text)
    assert isinstance(found, Accepted) and not found.calls, found
    rows = place().con.cursor().execute(f"CREATE OR REPLACE TEMP TABLE kept AS {found.sql}").execute("FROM kept").fetchall()
    assert rows == PUBLIC[text]


@pytest.mark.parametrize("ends", ["", " AS t", ' AS "my t"', " LIMIT 3", " WHERE n > 1", " ORDER BY n", ", pub", " AS t JOIN pub ON t.n = a"])
def test_what_only_takes_an_answer_is_known(ends: str) -> None:
    """What gives way last where memory is short."""
    for text in ("FROM dp_query('SELECT count(*) AS n FROM adult', epsilon := 0.1)", "FROM dp_budget()"):
        for start in ("", "SELECT * "):
            found = place().decide(f"{start}{text}{ends}")
            assert isinstance(found, Accepted) and takes(found.sql) == (ends in ("", " AS t", ' AS "my t"', " LIMIT 3")), found
    clause = place().decide("SELECT count(*) AS n FROM adult")
    assert isinstance(clause, Accepted) and takes(clause.sql)
    assert not any(takes(str(getattr(place().decide(text), "sql", ""))) for text in PUBLIC)


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        ("", {}),
        ("OPTIONS (epsilon = .25, delta = 1e-7)", {"epsilon": 0.25, "delta": 1e-7}),
        ("OPTIONS (max_groups_contributed = 2, min_privacy_units_per_group = 50)", {"max_groups": 2, "min_units": 50}),
        ("OPTIONS (max_rows_contributed = 3)", {"max_groups": 1, "max_rows_per_group": 3}),
    ],
)
def test_the_clause_of_googlesql_becomes_arguments(said: str, wanted: dict[str, object]) -> None:
    """What is left of the text is checked as any other: the clause hides nothing."""
    found = place().decide(f"SELECT WITH DIFFERENTIAL_PRIVACY {said} sex, count(*) AS n FROM adult GROUP BY sex")
    assert isinstance(found, Accepted), found
    plain = place().decide("SELECT sex, count(*) AS n FROM adult GROUP BY sex")
    (call,), (other,) = found.calls, plain.calls
    assert call.arguments == other.arguments | wanted
    hidden = place().decide(f"SELECT WITH DIFFERENTIAL_PRIVACY {said} count(*) FROM secret")
    assert isinstance(hidden, Refused) and hidden.kind == "table"


def test_answers_are_pivoted() -> None:
    """PIVOT and UNPIVOT with their columns written are ordinary SQL over answers and public tables."""
    found = place().decide(
        "PIVOT (FROM dp_query('SELECT sex, count(*) AS n FROM adult GROUP BY sex', epsilon := 0.1)) ON sex IN ('f', 'm') USING sum(n)"
    )
    assert isinstance(found, Accepted) and len(found.calls) == 1 and "PIVOT" in found.sql.upper()
    rows = place().decide("PIVOT pub ON b IN ('one', 'two') USING sum(a)")
    assert isinstance(rows, Accepted), rows
    assert place().con.cursor().execute(rows.sql).fetchall() == [(1, 2)]


def test_plain_sql_becomes_a_query() -> None:
    """A statement over a granted table is as a whole the call dp_query, at the grant's epsilon."""
    found = place().decide("SELECT sex, count(*) AS n FROM adult GROUP BY sex ORDER BY ALL")
    assert isinstance(found, Accepted) and len(found.calls) == 1
    assert found.calls[0].name == "query" and found.calls[0].arguments["epsilon"] == 0.5
    assert "memory.main.adult" in str(found.calls[0].arguments["sql"]) and "#1, #2" in str(found.calls[0].arguments["sql"])


def test_calls() -> None:
    """Calls become names of their answers; a repeated one is one."""
    found = place().decide("FROM dp_domain('adult') d JOIN dp_domain(source := 'ADULT') e USING (column_name), pub, dp_budget()")
    assert isinstance(found, Accepted)
    assert [(c.name, c.arguments) for c in found.calls] == [("domain", {"source": '"main"."adult"'}), ("budget", {})]
    assert "__dpsql_answer_0" in found.sql and "__dpsql_answer_1" in found.sql


def test_arguments() -> None:
    """Constant arguments are evaluated as SQL sends them."""
    found = place().decide("FROM dp_query('SELECT avg(income) FROM adult', epsilon := -1.5, bounds := {'income': [0, 9]}, adaptive := true)")
    assert isinstance(found, Accepted)
    given = dict(found.calls[0].arguments)
    assert given.pop("sql") == "SELECT avg(income) FROM memory.main.adult"
    assert given == {"epsilon": -1.5, "bounds": {"income": [0, 9]}, "adaptive": True}


def test_columns_of_a_grant() -> None:
    """The catalogue shows the columns of the grant alone."""
    found = place().decide("SELECT column_name FROM (DESCRIBE adult)", columns=("Sex",))
    assert isinstance(found, Accepted)
    assert place().con.cursor().execute(found.sql).fetchall() == [("sex",)]


def test_what_becomes_protected() -> None:
    """A published table that gets a budget is not public any more."""
    own = Place()
    own.con.execute("FROM dp_protect('pub', epsilon := 1, delta := 1e-9)")
    assert isinstance(own.decide("FROM pub"), Refused) and isinstance(own.decide("FROM over_pub"), Refused)


def test_published_view() -> None:
    """A view that is published itself may read a table that is not; never a protected one."""
    own = place()
    view = view_of(own.cursor, "memory", "main", "bob", {}, ["main.over_raw", "main.over_secret"])
    assert isinstance(decide("FROM over_raw", view), Accepted)
    assert isinstance(decide("FROM over_secret", view), Refused)
    assert isinstance(decide("FROM raw", view), Refused)
