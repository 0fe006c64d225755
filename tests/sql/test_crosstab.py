"""dp_marginals as people ask it: the named columns are the table, in the order asked, in their own types."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import duckdb
import pytest
from noisy import near_plan
from prepared import copied

import dpsql

pytestmark = pytest.mark.any_duckdb

ASKED = "FROM dp_marginals('visits', columns := ['month', 'ward'], epsilon := 1)"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("made") / "visits_there.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            """
            CREATE TABLE visits AS
            SELECT (CASE WHEN i % 7 > 0 THEN ['A', 'B', 'C'][1 + i % 3] END)::VARCHAR AS ward, i % 3 = 0 AS urgent,
                (1 + i % 12)::TINYINT AS month, DATE '2024-01-01' + (i % 300)::INTEGER AS day, (i % 50 * 2.5)::DECIMAL(8, 2) AS price,
                (i % 90)::SMALLINT AS age, i % 4 AS n
            FROM range(6000) t(i)
            """
        )
        dpsql.load(connection)
        connection.execute("CALL dp_protect('visits', epsilon := 900, delta := 1e-9)")
        for declared in (
            "'ward', categories := ['A', 'B', 'C']", "'month', categories := range(1, 13), nullable := false",
            "'day', lower := '2024-01-01', upper := '2024-12-31', bins := 3, nullable := false",
            "'price', edges := [0, 10, 100], outside := 'other'", "'age', edges := [0, 17.5, 64.5, 120], nullable := false",
            "'n', categories := [0, 1, 2, 3], nullable := false",
        ):
            connection.execute(f"CALL dp_declare('visits', {declared})")
    return path


@pytest.fixture
def visits(made: Path, tmp_path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    with copied(made, tmp_path) as connection:
        yield connection


def charges(con: duckdb.DuckDBPyConnection) -> int:
    return con.execute("SELECT count(*) FROM dpsql.ledger WHERE action = 'charge'").fetchone()[0]


def test_named_columns_are_one_table_in_the_order_asked(visits):
    found = visits.execute(ASKED)
    assert [(c[0], str(c[1])) for c in found.description] == [
        ("month", "TINYINT"), ("ward", "VARCHAR"), ("n", "BIGINT"), ("n_low", "BIGINT"), ("n_high", "BIGINT"),
    ]
    rows = found.fetchall()
    assert [row[:2] for row in rows] == [(m, w) for m in range(1, 13) for w in ("A", "B", "C", None)]
    exact = dict(
        ((m, w), n) for m, w, n in visits.execute("SELECT month, ward, count(*) FROM visits GROUP BY ALL").fetchall()
    )
    planned = "'visits', columns := ['month', 'ward'], epsilon := 1, k := 2"
    assert near_plan(visits, planned, [n for _, _, n, _, _ in rows], [exact.get((m, w), 0) for m, w, *_ in rows])
    (bands,) = {(n - low, high - n) for _, _, n, low, high in rows}
    assert bands[0] == bands[1] > 0
    assert visits.execute("SELECT parameters ->> 'k', parameters ->> 'mechanism' FROM dp_releases()").fetchall() == [("2", "gaussian")]


def test_order_shape_and_spelling_buy_nothing_more(visits):
    wide = {(m, w): n for m, w, n, _, _ in visits.execute(ASKED).fetchall()}
    other = visits.execute("FROM dp_marginals('visits', columns := ['WARD', 'Month'], epsilon := 1, k := 2)").fetchall()
    assert {(m, w): n for w, m, n, _, _ in other} == wide
    assert [row[0] for row in other[:13]] == ["A"] * 12 + ["B"]
    for columns in (["month", "ward"], ["ward", "month"]):
        long = visits.execute(f"FROM dp_marginals('visits', columns := {columns}, shape := 'long')").fetchall()
        assert {tuple(c) for c, _, _ in long} == {tuple(columns)}
        labels = [dict(zip(c, v, strict=True)) for c, v, _ in long]
        assert {(int(v["month"]), v["ward"]): n for v, (_, _, n) in zip(labels, long, strict=True)} == wide
    assert charges(visits) == 1


def test_bins_and_other_codes_have_columns_of_their_own(visits):
    found = visits.execute("FROM dp_marginals('visits', columns := ['price', 'age'], epsilon := 1)")
    assert [c[0] for c in found.description][:5] == ["price_lower", "price_upper", "price_other", "age_lower", "age_upper"]
    rows = found.fetchall()
    ages = [(0, 18), (18, 65), (65, 120)]
    prices = [(Decimal(0), Decimal(10), False), (Decimal(10), Decimal(100), False), (None, None, True), (None, None, False)]
    assert [row[:5] for row in rows] == [(*p, *a) for p in prices for a in ages]
    price = "CASE WHEN price < 10 THEN 0 WHEN price <= 100 THEN 1 ELSE 2 END"
    exact = dict(visits.execute(f"SELECT ({price}, (age >= 18)::INT + (age >= 65)::INT), count(*) FROM visits GROUP BY 1").fetchall())
    planned = "'visits', columns := ['price', 'age'], epsilon := 1, k := 2"
    assert near_plan(visits, planned, [row[5] for row in rows], [exact.get((p, a), 0) for p in range(4) for a in range(3)])
    days = visits.execute("SELECT day_lower, day_upper FROM dp_marginals('visits', columns := ['day'], epsilon := 1)").fetchall()
    assert days[0][0] == dt.date(2024, 1, 1) and days[-1][1] == dt.date(2024, 12, 31)
    assert all(a[1] == b[0] for a, b in zip(days, days[1:], strict=False))


def test_several_tables_are_long_and_in_the_order_asked(visits):
    rows = visits.execute("FROM dp_marginals('visits', columns := ['urgent', 'ward', 'month'], k := 2, epsilon := 1)").fetchall()
    assert list(dict.fromkeys(tuple(c) for c, _, _ in rows)) == [("urgent", "ward"), ("urgent", "month"), ("ward", "month")]
    assert all(len(v) == 2 for _, v, _ in rows) and len(rows) == 3 * 4 + 3 * 12 + 4 * 12
    one_way = visits.execute("FROM dp_marginals('visits', epsilon := 1)").fetchall()
    assert {len(c) for c, _, _ in one_way} == {1}


@pytest.mark.parametrize(("given", "text"), [
    ("columns := ['wrd', 'month']", "no such column; did you mean 'ward'"),
    ("columns := ['ward', 'zzzzz']", "no such column; The source has"),
    ("columns := ['ward', 'n']", "'n' would stand twice.*shape := 'long'"),
    ("shape := 'wide'", "needs one table"),
    ("columns := ['ward', 'month'], k := 1, shape := 'wide'", "needs one table"),
    ("columns := ['ward'], shape := 'broad'", "must be one of 'wide', 'long'"),
])
def test_what_cannot_be_answered_is_refused_before_it_is_charged(visits, given, text):
    with pytest.raises(duckdb.Error, match=text):
        visits.execute(f"FROM dp_marginals('visits', {given}, epsilon := 1)")
    assert charges(visits) == 0
    visits.execute("FROM dp_marginals('visits', columns := ['ward', 'n'], shape := 'long', epsilon := 1)")


def test_a_release_bought_when_k_was_one_is_given_back_by_the_same_call(visits):
    """Books of earlier versions: a call without k bought one-way tables."""
    old = visits.execute("FROM dp_marginals('visits', columns := ['month', 'ward'], k := 1, epsilon := 1)").fetchall()
    again = visits.execute(ASKED).fetchall()
    assert sorted(map(repr, again)) == sorted(map(repr, old)) and charges(visits) == 1
    with pytest.raises(duckdb.Error, match=r"bought with k = 1, the call says k = 2.*another name"):
        visits.execute("FROM dp_marginals('visits', columns := ['month', 'ward'], k := 2, epsilon := 1)")
    with pytest.raises(duckdb.Error, match="the release has 2 tables: say shape := 'long'"):
        visits.execute("FROM dp_marginals('visits', columns := ['month', 'ward'], epsilon := 1, shape := 'wide')")
    plan = "SELECT bought, measures FROM dp_plan('visits', operation := 'marginals', columns := ['month', 'ward'], epsilon := 1)"
    assert visits.execute(plan).fetchone() == (True, "2 one-way tables of month, ward")


def test_the_plan_says_first_which_tables(visits):
    def first(call: str) -> str:
        found = visits.execute(f"FROM dp_plan('visits', epsilon := 1, {call})")
        assert found.description[0][0] == "measures"
        return found.fetchone()[0]

    assert first("operation := 'marginals', columns := ['month', 'ward']") == "month × ward (48 cells)"
    assert first("k := 1") == "7 one-way tables of 7 columns"
    assert first("k := 2, columns := ['ward', 'age', 'month']") == "3 two-way tables of ward, age, month"
    assert first("rows := 10").startswith("7 one-way tables, 21 two-way tables")
    assert first("method := 'aggregate_seeded'") == "combinations of up to 3 values of 7 columns"
    with pytest.raises(duckdb.Error, match="operation = 'marginal'"):
        first("operation := 'marginal'")


def test_a_computed_column_without_a_domain_is_named_with_the_call_that_declares_it(visits):
    source = "SELECT ward, day >= DATE ''2024-06-01'' AS late, age // 10 AS decade FROM visits"
    for call in ("k := 3", "columns := ['ward', 'decade']"):
        with pytest.raises(duckdb.Error, match="'decade' has no declared domain") as caught:
            visits.execute(f"FROM dp_marginals('{source}', {call}, epsilon := 1)")
        declare = str(caught.value)[str(caught.value).index("CALL dp_declare(") :].split(" (it is computed")[0]
    visits.execute(declare.replace("lower := ..., upper := ..., bins := ...", "lower := 0, upper := 10, bins := 10"))
    assert len(visits.execute(f"FROM dp_marginals('{source}', columns := ['ward', 'decade'], epsilon := 1)").fetchall()) == 4 * 11
