"""Grains as charting tools write them: they are what DuckDB makes of them, and have the groups of the truncations that they are."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest
import sqlglot

import dpsql
from dpsql.queries.tool_grains import FORMS


def over(form: str, name: str) -> str:
    tree = sqlglot.parse_one(form, dialect="duckdb")
    return tree.transform(lambda node: sqlglot.exp.column(name, quoted=True) if isinstance(node, sqlglot.exp.Column) else node).sql("duckdb")


@pytest.fixture(scope="module")
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as con:
        dpsql.load(con)
        con.execute("""
        CREATE TABLE visits AS SELECT i AS id, (TIMESTAMP '2023-12-28 22:00:00.5' + INTERVAL (i * 67) MINUTE)::TIMESTAMP AS "seen at",
            (DATE '2023-12-28' + (i % 90)::INTEGER)::DATE AS day FROM range(1500) AS numbers(i)
        """)
        con.execute("CALL dp_protect('visits', epsilon := 1000, delta := 1e-6, privacy_unit := 'id', max_contributions := 1)")
        con.execute("CALL dp_declare('visits', 'seen at', lower := TIMESTAMP '2023-12-28', upper := TIMESTAMP '2024-03-10', nullable := false)")
        con.execute("CALL dp_declare('visits', 'day', lower := DATE '2023-12-28', upper := DATE '2024-03-30', nullable := false)")
        yield con


EDGES = """
SELECT t AS "seen at", CAST(t AS DATE) AS day FROM (
    SELECT unnest([TIMESTAMP '1969-12-31 23:59:59.999999', TIMESTAMP '2024-02-29 00:00:00', TIMESTAMP '2023-12-31 23:00:00', NULL,
        TIMESTAMP '2100-01-01 00:00:00', TIMESTAMP '1000-01-01 12:30:59', TIMESTAMP '9999-12-31 23:59:59']) AS t
    UNION ALL SELECT TIMESTAMP '2019-12-25 07:00:00' + INTERVAL (i * 601) MINUTE FROM range(4000) AS numbers(i))
"""


@pytest.mark.parametrize("form", FORMS)
def test_a_form_is_what_it_is_read_as(con: duckdb.DuckDBPyConnection, form: str) -> None:
    for name in ("seen at", "day"):
        written, meant = over(form, name), over(FORMS[form], name)
        sql = f"SELECT count(*) FILTER (({written}) IS DISTINCT FROM ({meant})), count(*), any_value(typeof({written}) = typeof({meant})) FROM ({EDGES})"
        assert con.execute(sql).fetchone() == (0, 4007, True)


CHARTS = [form for form, meant in FORMS.items() if "minute" not in meant and "second" not in meant]  # those have too many groups


@pytest.mark.parametrize("form", CHARTS)
def test_a_chart_has_the_groups_of_the_calendar(con: duckdb.DuckDBPyConnection, form: str) -> None:
    """It has the groups and the type of its truncation, and is one question with it: bought once."""
    found = []
    for text in (over(form, "seen at"), over(FORMS[form], "seen at")):
        sql = f'SELECT {text} AS "from", count(*) AS n FROM visits WHERE "seen at" < TIMESTAMP \'2024-01-05\' GROUP BY 1 ORDER BY 1 ASC'
        answer = con.execute("FROM dp_query(?, epsilon := 1)", [sql])
        found.append(([column[1] for column in answer.description], answer.fetchall()))
    assert found[0] == found[1]
    assert len({row[0] for row in found[0][1]}) == len(found[0][1]) > 1


def test_what_mysql_clients_write_is_a_grain_too(con: duckdb.DuckDBPyConnection) -> None:
    """Their texts come with casts in between, which change no day."""
    for written, meant in (
        ('CAST("seen at" - INTERVAL (DAYOFMONTH(CAST("seen at" AS DATE)) - 1) DAY AS DATE)', "CAST(date_trunc('month', \"seen at\") AS DATE)"),
        ('strptime(strftime(CAST("seen at" AS TIMESTAMP), \'%Y-%m\') || \'-01\', \'%Y-%m-%d\')', "CAST(date_trunc('month', \"seen at\") AS TIMESTAMP)"),
        ('CAST("seen at" - to_days(CAST(isodow("seen at") - 1 AS INTEGER)) AS DATE)', "CAST(date_trunc('week', \"seen at\") AS DATE)"),
    ):
        asked = (f"SELECT {text} AS m, count(*) AS n FROM visits GROUP BY 1" for text in (written, meant))
        one, other = (con.execute("FROM dp_query(?, epsilon := 1)", [sql]).fetchall() for sql in asked)
        assert one == other and len(one) > 1


def test_what_is_no_grain_is_refused_as_before(con: duckdb.DuckDBPyConnection) -> None:
    for text in (
        "CAST(day - INTERVAL (dayofmonth(day) - 2) DAY AS DATE)", "CAST(day - INTERVAL (dayofmonth(\"seen at\") - 1) DAY AS DATE)",
        "CAST(day - INTERVAL (id) DAY AS DATE)", "make_date(year(day), id, 1)", "make_date(year(\"seen at\"), month(day), 1)", "CAST(current_date - INTERVAL (dayofmonth(day) - 1) DAY AS DATE)",
    ):  # fmt: skip
        before = con.execute("SELECT count(*) FROM dp_ledger('visits')").fetchone()
        with pytest.raises(duckdb.Error, match="sql refused at|dp_declare|sql = "):
            con.execute("FROM dp_query(?, epsilon := 1)", [f"SELECT {text} AS m, count(*) AS n FROM visits GROUP BY 1"])
        assert con.execute("SELECT count(*) FROM dp_ledger('visits')").fetchone() == before
