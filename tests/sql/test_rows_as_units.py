"""Tables without a privacy unit, where a row is a person, beside public rows: by IN, EXISTS, subqueries and joins of any kind."""

from __future__ import annotations

import duckdb
import pytest

import dpsql

pytestmark = pytest.mark.any_duckdb
PROTECT = "CALL dp_protect(?, epsilon := 1000, delta := 1e-9)"


@pytest.fixture(scope="module")
def con():
    with duckdb.connect() as connection:
        connection.execute("""
            CREATE TABLE r AS SELECT i AS p, (i % 50)::INTEGER AS age, ['a', 'b', 'c', NULL][1 + i % 4] AS home FROM range(6000) x(i);
            CREATE TABLE homes AS SELECT * FROM (VALUES ('a', 'north', 1), ('b', 'south', 2), ('b', 'north', 3)) v(home, side, rank);
        """)
        dpsql.load(connection, progress=True)
        connection.execute(PROTECT, ["r"])
        connection.execute("CALL dp_declare('r', 'age', lower := 0, upper := 49, nullable := false)")
        yield connection


def asked(con, text, options=""):
    return con.execute(f"FROM dp_query(?, epsilon := 5{options})", [text]).fetchall()


ANSWERED = [
    "SELECT count(*) FROM r WHERE home IN (SELECT home FROM homes WHERE side = 'north')",
    "SELECT count(*), sum(age) FROM r WHERE home NOT IN (SELECT home FROM homes WHERE rank < 2)",
    "SELECT age // 10, count(*) FROM r WHERE EXISTS (SELECT 1 FROM homes h WHERE h.home = r.home AND h.rank > 1) GROUP BY 1",
    "SELECT count(*) FROM r SEMI JOIN homes USING (home)",
    "SELECT count(*) FROM r ANTI JOIN homes ON r.home = homes.home",
    "WITH s AS (SELECT home, side FROM homes WHERE rank < 3) SELECT side, count(*) FROM r JOIN s USING (home) GROUP BY side",
    "SELECT side, count(*) FROM r JOIN homes USING (home) GROUP BY side",
    "SELECT side, count(*) FROM r LEFT JOIN (SELECT DISTINCT home, side FROM homes) s USING (home) GROUP BY side",
    "SELECT count(*) FROM (SELECT * FROM r WHERE age > 20) q WHERE home IN (SELECT home FROM homes)",
    "SELECT rank, count(*) FROM r JOIN homes ON age // 10 < rank GROUP BY rank",
    "SELECT count(*) FROM (SELECT home FROM r UNION ALL SELECT home FROM r WHERE age < 10) WHERE home IN (SELECT home FROM homes)",
]


@pytest.mark.parametrize("text", ANSWERED)
def test_public_rows_stand_beside_them(con, text):
    answer = {row[:-1]: row[-1] for row in asked(con, text)} if "GROUP" in text else {(): asked(con, text)[0][0]}
    true = {row[:-1]: row[-1] for row in con.execute(text).fetchall()} if "GROUP" in text else {(): con.execute(text).fetchone()[0]}
    assert answer.keys() == true.keys()
    assert all(abs(answer[key] - true[key]) < 60 for key in true)


def test_a_row_that_becomes_several_counts_so_often_and_it_is_said(con, capfd):
    [(often,)] = asked(con, "SELECT count(*) FROM r, range(4)")
    assert abs(often - 24000) < 90
    assert "a row that becomes several in this FROM counts as at most 4 rows, at random" in capfd.readouterr().err
    text = "SELECT count(*) FROM r, (SELECT * FROM homes WHERE rank < 9) h WHERE h.home = r.home"
    [(both,)] = asked(con, text)
    [(one,)] = asked(con, text, ", max_rows := 1, release := 'one of two'")
    assert abs(both - 4500) < 40 and abs(one - 3000) < 40
    explained = con.execute("SELECT explanation FROM dp_explain('one of two')").fetchall()
    assert ("a row that becomes several in this FROM counts as at most 1 row, at random",) in explained


REFUSED = [
    "SELECT count(*) FROM r a JOIN r b USING (home)",
    "SELECT count(*) FROM r WHERE p IN (SELECT p FROM r WHERE age > 3)",
    "SELECT count(*) FROM r a WHERE EXISTS (SELECT 1 FROM r b WHERE b.p = a.p)",
    "SELECT avg(n) FROM (SELECT age, count(*) OVER () AS n FROM r)",
    "SELECT count(*) FROM (SELECT p, row_number() OVER (PARTITION BY p ORDER BY age) AS n FROM r)",
]


@pytest.mark.parametrize("text", REFUSED)
def test_rows_of_people_do_not_meet(con, text):
    with pytest.raises(duckdb.Error, match="it has no privacy unit, so a row is a person, and rows can't be combined"):
        asked(con, text)


NOT_FOR_A_UNIT = {
    "SELECT count(*) FROM r WHERE (home, p) IN (SELECT home, rank FROM homes)": r"write EXISTS \(SELECT",
    "SELECT count(*) FROM r FULL JOIN homes USING (home)": "write protected LEFT JOIN public",
    "SELECT count(*) FROM r ASOF JOIN homes ON age >= rank": "only JOIN, LEFT, RIGHT",
    "SELECT count(*) FROM r WHERE age > ALL (SELECT rank FROM homes)": "as a condition of WHERE on its own",
}


@pytest.mark.parametrize("text", NOT_FOR_A_UNIT)
def test_what_no_unit_would_help_says_what_does(con, text):
    with pytest.raises(duckdb.Error, match=NOT_FOR_A_UNIT[text]):
        asked(con, text)


def test_a_column_that_hides_the_number_of_a_row(con):
    con.execute("CREATE TABLE hidden AS SELECT i // 10 AS ROWID, ['a', 'b'][1 + i % 2] AS home, i // 10 AS person FROM range(1000) x(i)")
    con.execute(PROTECT, ["hidden"])
    text = "SELECT count(*) FROM hidden WHERE home IN (SELECT home FROM homes WHERE rank = 1)"
    with pytest.raises(duckdb.Error, match="it has no privacy unit"):
        asked(con, text)


def test_a_unit_that_is_gone_is_not_the_row(con):
    con.execute("CREATE TABLE renamed AS SELECT i // 10 AS rowid, ['a', 'b'][1 + i % 2] AS home FROM range(1000) x(i)")
    con.execute("CALL dp_protect('renamed', epsilon := 1000, delta := 1e-9, privacy_unit := 'rowid', max_contributions := 1)")
    con.execute("ALTER TABLE renamed RENAME rowid TO person")
    with pytest.raises(duckdb.Error, match="has no stored column of that name any more"):
        asked(con, "SELECT count(*) FROM renamed WHERE home IN (SELECT home FROM homes)")


def test_rows_of_a_file(con, tmp_path):
    path = tmp_path / "rows.parquet"
    con.execute(f"COPY r TO '{path}'")
    con.execute(PROTECT, [str(path)])
    [(answer,)] = asked(con, f"SELECT count(*) FROM '{path}' WHERE home IN (SELECT home FROM homes)")
    assert abs(answer - 3000) < 40
