"""The size of a statement as DuckDB writes it out: what doubles with a line is found in the text."""

from __future__ import annotations

import json

import duckdb
import pytest
from served_room import Served

from dpsql.serve.gate.expansion import MOST_NODES, MOST_RELATIONS, Size, size_of


def size(text: str) -> Size:
    with duckdb.connect() as con:
        tree = json.loads(con.execute("SELECT json_serialize_sql(?)", [text]).fetchall()[0][0])
    return size_of(tree["statements"][0]["node"])


def doubled(rounds: int, first: str, again: str, last: str) -> str:
    parts = [first, *(again.format(i=i, j=i + 1) for i in range(rounds))]
    return "WITH " + ", ".join(parts) + last.format(i=rounds)


BOMBS = {
    "with": doubled(25, "c0 AS (FROM wards)", "c{j} AS (SELECT a.ward FROM c{i} a, c{i} b)", " SELECT count(*) FROM c{i}"),
    "with in subqueries": doubled(25, "c0 AS (FROM wards)", "c{j} AS (SELECT ward FROM c{i} WHERE ward IN (SELECT ward FROM c{i}))", " FROM c{i}"),
    "aliases": "SELECT beds AS a0, " + ", ".join(f"a{i} + a{i} AS a{i + 1}" for i in range(25)) + " FROM wards",
    "aliases in a condition": "SELECT beds AS a0, " + ", ".join(f"a{i} * a{i} AS a{i + 1}" for i in range(16)) + " FROM wards WHERE a16 > a16",
    "stars": "SELECT *, * FROM (" * 25 + "FROM wards" + ")" * 25,
    "columns": "SELECT COLUMNS(*), COLUMNS(*) FROM (" * 12 + "FROM wards" + ")" * 12,
    "cube": "SELECT count(*) FROM wards GROUP BY CUBE(" + ", ".join(f"beds + {i}" for i in range(12)) + ")",
    "unions": doubled(12, "c0 AS (FROM wards)", "c{j} AS (FROM c{i} UNION ALL FROM c{i})", " FROM c{i}"),
    "in a call": "FROM dp_query('" + doubled(25, "c0 AS (FROM wards)", "c{j} AS (SELECT a.ward FROM c{i} a, c{i} b)", " SELECT count(*) FROM visits, c{i}") + "')",
    "protected": doubled(25, "c0 AS (FROM visits)", "c{j} AS (SELECT a.* FROM c{i} a JOIN c{i} b USING (patient))", " SELECT count(*) FROM c{i}"),
}
PLAIN = (
    "WITH a AS (SELECT ward FROM wards), b AS (SELECT ward FROM a) SELECT b.ward, count(*) FROM a JOIN b USING (ward) GROUP BY ALL",
    "SELECT *, beds + 1 AS more, more + 1 AS most FROM (SELECT *, beds AS again FROM wards)",
    "SELECT ward, beds, count(*) FROM wards GROUP BY CUBE(ward, beds)",
    "SELECT " + ", ".join(f"sum(beds) FILTER (WHERE beds > {i}) AS s{i}" for i in range(200)) + " FROM wards",
    " UNION ALL ".join(f"SELECT {i} AS n, ward FROM wards" for i in range(60)),
)


@pytest.mark.parametrize("text", BOMBS.values(), ids=BOMBS)
def test_what_doubles_is_refused(hospital: Served, text: str) -> None:
    found = hospital.refused(text)
    assert "written out, the statement is too large" in found.text and found.kind == "refused"


@pytest.mark.parametrize("text", PLAIN)
def test_what_people_write_fits(hospital: Served, text: str) -> None:
    assert size(text).fits()
    assert hospital.ask(text)


def test_it_is_what_duckdb_makes() -> None:
    """Relations are those that DuckDB scans, where it writes every name out."""
    with duckdb.connect() as con:
        con.execute("CREATE TABLE wards AS SELECT range AS ward FROM range(2)")
        for rounds in (1, 3, 5):
            text = doubled(rounds, "c0 AS NOT MATERIALIZED (FROM wards)", "c{j} AS NOT MATERIALIZED (SELECT a.ward FROM c{i} a, c{i} b)", " SELECT count(*) FROM c{i}")
            plan = con.execute(f"EXPLAIN (FORMAT json) {text}").fetchall()[0][1].upper().replace(" ", "_")
            assert plan.count("SEQ_SCAN") == 2**rounds
            assert size(text).relations == 2**rounds + sum(2**i for i in range(rounds + 1))  # each definition is bound once, too
    assert Size(MOST_NODES, MOST_RELATIONS).fits() and not Size(MOST_NODES + 1).fits() and not Size(1, MOST_RELATIONS + 1).fits()
