"""Made-up rows to practise on: inside the declared domains, in the source's names and types, out of no row."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal

import duckdb
import pytest

import dpsql
from dpsql.books.ledger import Ledger
from dpsql.measure import query as reading
from dpsql.rows import dummy

TABLE = """
    CREATE TABLE visits (patient BIGINT NOT NULL, age SMALLINT, sex ENUM('f', 'm') NOT NULL, member BOOLEAN, ward VARCHAR, kind INTEGER,
        cost DECIMAL(10, 2), started TIMESTAMP, ended TIMESTAMP, day DATE, clock TIME, seconds DOUBLE, share FLOAT, big HUGEINT,
        level INTEGER NOT NULL CHECK (level BETWEEN 3 AND 5), code VARCHAR, note VARCHAR, parts STRUCT(a INTEGER, "b c" VARCHAR[]))
"""
ROWS = """
    INSERT INTO visits SELECT i // 3, 300 + i % 7, 'f', true, 'secret ward', 77, 99999.99, TIMESTAMP '2199-01-01', TIMESTAMP '2198-01-01',
        DATE '2199-01-01', TIME '23:59:59', 1e9, 77, 2::HUGEINT ** 90, 5, 'secret code', 'secret note', {a: 1, 'b c': ['secret']}
    FROM range(500) t(i)
"""
DECLARE = (
    "CALL dp_protect('visits', epsilon := 1, delta := 1e-9, privacy_unit := 'patient', max_contributions := 3)",
    "CALL dp_declare('visits', 'age', lower := 0, upper := 110, bins := 11, nullable := false)",
    "CALL dp_declare('visits', 'ward', categories := ['a', 'it''s \"b\"', 'ç\\n'], outside := 'other')",
    "CALL dp_declare('visits', 'kind', categories := [30, -10, 2000000000], nullable := false)",
    "CALL dp_declare('visits', 'cost', lower := -5, upper := 5.25)",
    "CALL dp_declare('visits', 'started', lower := '2020-01-01', upper := '2021-01-01', nullable := false, outside := 'drop')",
    "CALL dp_declare('visits', 'ended', lower := '2020-01-01', upper := '2021-01-01', nullable := false)",
    "CALL dp_declare('visits', 'day', lower := '2020-01-01', upper := '2020-12-31', calendar := 'month', nullable := false)",
    "CALL dp_declare('visits', 'clock', lower := '08:00:00', upper := '09:00:00', bins := 4, nullable := false)",
    "CALL dp_declare('visits', 'seconds', edges := [0.5, 0.6, 2.5])",
    "CALL dp_declare('visits', 'share', lower := 0, upper := 0.1)",
    "CALL dp_declare('visits', 'big', lower := -1e30, upper := 1e30, bins := 2)",
    "CALL dp_rule('visits', 'started <= ended')",
)


def made(*, rows: bool) -> duckdb.DuckDBPyConnection:
    con = duckdb.connect()
    dpsql.load(con, user="tester", progress=False)
    con.execute(TABLE)
    if rows:
        con.execute(ROWS)
    for text in DECLARE:
        con.execute(text)
    return con


@pytest.fixture(scope="module")
def visits() -> Iterator[duckdb.DuckDBPyConnection]:
    con = made(rows=True)
    yield con
    con.close()


def described(con: duckdb.DuckDBPyConnection, relation: str) -> list[tuple[str, str]]:
    return con.execute(f"SELECT column_name, column_type FROM (DESCRIBE {relation})").fetchall()


def test_names_order_and_types_are_those_of_the_source(visits):
    assert described(visits, "FROM dp_dummy('visits')") == described(visits, "visits")
    assert described(visits, "FROM dp_dummy('visits', rows := 0)") == described(visits, "visits")


def test_values_are_of_the_domain(visits):
    """A thousandth of a range is missed at an end by 3,000 draws once in twenty: a tenth never is."""
    visits.execute("CREATE OR REPLACE TABLE d AS FROM dp_dummy('visits', rows := 3000, seed := 4)")
    ranges = {
        "age": (0, 110), "cost": (Decimal("-5"), Decimal("5.25")), "seconds": (0.5, 2.5), "share": (0, 0.1), "big": (-1e30, 1e30), "level": (3, 5),
        "started": (dt.datetime(2020, 1, 1), dt.datetime(2021, 1, 1)), "ended": (dt.datetime(2020, 1, 1), dt.datetime(2021, 1, 1)),
        "day": (dt.date(2020, 1, 1), dt.date(2020, 12, 31)),
    }
    for name, (low, high) in ranges.items():
        least, most = visits.execute(f"SELECT min({name}), max({name}) FROM d").fetchone()
        assert low <= least <= most <= high or (name == "share" and most <= 0.1000001), name
        assert (most - least) / (high - low) > 0.9, name
    assert visits.execute("SELECT min(clock) >= TIME '08:00:00', max(clock) BETWEEN TIME '08:50:00' AND TIME '09:00:00' FROM d").fetchone() == (True, True)
    for name, values in {
        "sex": ["f", "m"], "member": [False, True], "ward": ["a", 'it\'s "b"', "ç\\n"], "kind": [-10, 30, 2_000_000_000], "level": [3, 4, 5],
        "month(day)": [*range(1, 13)], "code": [], "note": [], "parts": [],
    }.items():
        assert visits.execute(f"SELECT coalesce(list_sort(list(DISTINCT {name})), []) FROM d WHERE {name} IS NOT NULL").fetchone()[0] == values, name


def test_null_is_where_it_may_be(visits):
    shares = dict(visits.execute("""
        UNPIVOT (SELECT avg((COLUMNS(* EXCLUDE parts) IS NULL)::INTEGER) FROM dp_dummy('visits', rows := 3000)) ON * INTO NAME n VALUE share""").fetchall())
    for name in ("patient", "age", "sex", "kind", "started", "ended", "day", "clock", "level"):
        assert shares.pop(name) == 0, name
    assert [shares.pop(name) for name in ("code", "note")] == [1, 1]
    assert len(shares) == 6 and all(0.02 < share < 0.09 for share in shares.values())  # 5 % of 3,000: seven deviations and more


def test_rows_of_a_unit(visits):
    units = visits.execute("SELECT count(*) AS n FROM dp_dummy('visits', rows := 600) GROUP BY patient").fetchall()
    assert {n for (n,) in units} == {1, 2, 3}
    assert max(dummy.units(1000, 1, 0)) == 1000
    assert max(dummy.units(1000, 10**6, 0).count(unit) for unit in range(1, 50)) == 10
    assert dummy.units(0, 5, 0) == []


@pytest.mark.parametrize(
    ("place", "kind"),
    [*enumerate((
        "UTINYINT", "INTEGER", "HUGEINT", "UHUGEINT", "VARCHAR", "UUID", "DATE", "TIME", "TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS",
        "TIMESTAMP WITH TIME ZONE", "DECIMAL(9,2)", "DECIMAL(4,4)", "FLOAT", "DOUBLE", "BLOB", "BOOLEAN", "ENUM('x', 'y''s', 'z')",
    ))],
)  # fmt: skip
def test_units_of_every_type(visits, place, kind):
    visits.execute(f"CREATE TABLE t{place} (b BOOLEAN, who {kind})")
    visits.execute(f"CALL dp_protect('t{place}', epsilon := 1, delta := 1e-9, privacy_unit := 'who', max_contributions := 2)")
    found, most, units = visits.execute(
        f"SELECT typeof(any_value(who)), max(n), count(who) FROM (SELECT who, count(*) AS n FROM dp_dummy('t{place}', rows := 150) GROUP BY ALL)"
    ).fetchone()
    assert found == kind
    distinct = {"BOOLEAN": 2, "ENUM('x', 'y''s', 'z')": 3}.get(kind)
    assert units == distinct or (most == 2 and 75 <= units <= 150)


@pytest.mark.parametrize("number", [1, 2, 127, 128, 255, 10_000, 100_000])
@pytest.mark.parametrize("kind", ["TINYINT", "USMALLINT", "DECIMAL(1,1)", "TIME", "TIMESTAMP_S", "ENUM('x', 'y')"])
def test_any_number_is_a_unit_of_a_narrow_type(plain, kind, number):
    assert plain.execute(f"SELECT TRY_CAST(? AS {kind}) IS NOT NULL", [dummy.identity(kind, number)]).fetchone() == (True,)


def test_the_seed_decides(visits):
    def rows(more: str) -> list[tuple]:
        return visits.execute(f"FROM dp_dummy('visits'{more})").fetchall()

    assert rows(", rows := NULL, seed := NULL") == rows(", rows := 1000, seed := 0") == dpsql.dummy(visits, "visits").fetchall()
    assert rows(", rows := 50") == rows(", rows := 50, seed := 0") != rows(", rows := 50, seed := 1")
    assert rows(f", rows := 1, seed := {2**63 - 1}") == rows(f", rows := 1, seed := {2**63 - 1}")
    assert [len(rows(f", rows := {count}")) for count in (0, 1, 7)] == [0, 1, 7]
    assert dpsql.dummy(visits, "visits", rows=3, seed=2).fetchall() == rows(", rows := 3, seed := 2")


CALLS = (
    "FROM dp_dummy('visits', rows := 500, seed := 9)",
    "FROM dp_dummy('SELECT ward, cost, age + 1 AS older, patient FROM visits WHERE age > 50')",
    "FROM dp_dummy('visits', rows := 0)",
    "FROM dp_dummy('SELECT note FROM visits')",
)


def told(con: duckdb.DuckDBPyConnection, call: str) -> object:
    try:
        return con.execute(call).fetchall()
    except duckdb.Error as error:
        return str(error).split("\n")[0]  # DuckDB 1 adds the places of the trace


def test_no_row_is_read_and_nothing_is_charged(visits, monkeypatch):
    """Neighbours as far apart as can be, an empty table and a full one, give the same rows and errors; the books stay as they are."""
    empty = made(rows=False)

    def refused(*_: object) -> None:
        raise AssertionError("a row was read or charged")

    before = visits.execute("FROM dp_ledger()").fetchall()
    monkeypatch.setattr(Ledger, "charge", refused)
    monkeypatch.setattr(reading, "counted", refused)
    seen = [told(visits, call) for call in CALLS]
    assert seen == [told(empty, call) for call in CALLS]
    assert "secret" not in str(seen) and "has a declared domain" in str(seen[3]) and len(seen[0]) == 500
    assert visits.execute("FROM dp_ledger()").fetchall() == before
    assert visits.execute("FROM dp_releases()").fetchall() == []
    empty.close()


def test_a_file_whose_rows_cannot_be_read(tmp_path):
    """Of a Parquet file nothing but its last bytes is there, which say columns and types: whoever reads a row of it fails."""
    con = duckdb.connect()
    dpsql.load(con, progress=False)
    path = tmp_path / "visits.parquet"
    con.execute(f"COPY (SELECT (i * 7919 % 1000)::INTEGER AS x, i % 2 = 0 AS y FROM range(5000) t(i)) TO '{path}' (FORMAT parquet, COMPRESSION zstd)")
    content = path.read_bytes()
    foot = int.from_bytes(content[-8:-4], "little") + 8
    path.write_bytes(content[:4] + b"\xa5" * (len(content) - foot - 4) + content[-foot:])
    con.execute(f"CALL dp_protect('{path}', epsilon := 1, delta := 1e-9)")
    con.execute(f"CALL dp_declare('{path}', 'x', lower := 0, upper := 10)")
    assert con.execute(f"SELECT count(*), max(x) FROM dp_dummy('{path}')").fetchone() == (1000, 10)
    with pytest.raises(duckdb.Error):
        con.execute(f"SELECT sum(x) FROM '{path}'").fetchall()
    con.close()


def test_nothing_is_written(tmp_path):
    """Also where nothing can be: the database is opened for reading, and may touch no file."""
    path = tmp_path / "visits.duckdb"
    con = duckdb.connect(str(path))
    dpsql.load(con, progress=False)
    con.execute(TABLE)
    for text in DECLARE:
        con.execute(text)
    rows = con.execute("FROM dp_dummy('visits')").fetchall()
    con.close()
    before = path.read_bytes()
    con = duckdb.connect(str(path), read_only=True)
    dpsql.load(con, progress=False)
    for setting in ("python_enable_replacements = false", "enable_external_access = false", "lock_configuration = true"):
        con.execute(f"SET GLOBAL {setting}")
    assert con.execute("FROM dp_dummy('visits')").fetchall() == rows
    con.close()
    assert path.read_bytes() == before and [file.name for file in tmp_path.iterdir()] == [path.name]


def test_macros_and_settings_of_the_session_change_nothing(visits):
    rows = visits.execute("FROM dp_dummy('visits', rows := 50)").fetchall()
    macros = ("from_json", "unnest", "concat", "make_timestamp", "chr")
    settings = {"TimeZone": "Asia/Tokyo", "default_order": "DESC", "default_collation": "NOCASE", "integer_division": "true"}
    for name in macros:
        visits.execute(f"CREATE MACRO {name}(a) AS 7, (a, b) AS 7, (a, b, c) AS 7")
    for name, value in settings.items():
        visits.execute(f"SET {name} = '{value}'")
    try:
        assert visits.execute("FROM dp_dummy('visits', rows := 50)").fetchall() == rows
    finally:
        for name in macros:
            visits.execute(f"DROP MACRO {name}")
        for name in settings:
            visits.execute(f"RESET {name}")


def test_views_and_queries(visits):
    visits.execute("CREATE OR REPLACE VIEW young AS SELECT patient AS who, age AS years, upper(ward) AS ward, cost FROM visits WHERE age < 20")
    visits.execute("CALL dp_declare('young', 'cost', lower := 100, upper := 200)")
    found = visits.execute("""
        SELECT count(DISTINCT who) > 400, max(years) > 100, count(ward), min(cost) BETWEEN 100 AND 110, max(cost) BETWEEN 190 AND 200
        FROM dp_dummy('young')""").fetchone()
    assert found == (True, True, 0, True, True), "the unit, a copied domain, a computed column, a domain of the view"
    assert visits.execute("SELECT max(cost) < 6 FROM dp_dummy('SELECT cost FROM visits')").fetchone() == (True,)


def test_odd_names(visits):
    visits.execute("""CREATE TABLE "Odd ""t" ("a b" BOOLEAN, "sel""ect" ENUM('x'), "ä" VARCHAR, "c0" INTEGER, "order" INTEGER, u0 UUID)""")
    name = "\"Odd \"\"t\""
    visits.execute("CALL dp_protect(?, epsilon := 1, delta := 1e-9, privacy_unit := 'order', max_contributions := 1)", [name])
    visits.execute("CALL dp_declare(?, 'C0', categories := [5], nullable := false)", [name])
    visits.execute("CREATE TABLE odd AS FROM dp_dummy(?, rows := 40)", [name])
    assert described(visits, "odd") == described(visits, name)
    assert visits.execute('SELECT count(DISTINCT "order"), count(DISTINCT "a b"), count(DISTINCT "sel""ect"), count("ä"), max("c0"), count(u0) FROM odd').fetchone() == (
        40, 2, 1, 0, 5, 0,
    )


def test_a_private_query_is_tried_on_a_dummy(visits):
    visits.execute("CREATE OR REPLACE TABLE visits_dummy AS FROM dp_dummy('visits')")
    query = "SELECT member, count(*) AS n, avg(age) AS mean FROM {} WHERE cost > 0 GROUP BY member ORDER BY member"
    visits.execute("CALL dp_protect('visits_dummy', epsilon := 100, delta := 1e-9, privacy_unit := 'patient', max_contributions := 3)")
    visits.execute("CALL dp_declare('visits_dummy', 'age', lower := 0, upper := 110)")
    spent = "SELECT epsilon_spent FROM dp_budget('visits')"
    before = visits.execute(spent).fetchall()
    exact = visits.execute(query.format("visits_dummy")).fetchall()
    tried = visits.execute("FROM dp_query(?, epsilon := 50)", [query.format("visits_dummy")])
    shape = [column[:2] for column in tried.description]
    rows = tried.fetchall()
    assert [row[0] for row in rows] == [row[0] for row in exact] == [False, True, None]
    for (_, n, mean), (_, right, right_mean) in zip(rows, exact, strict=True):
        assert abs(n - right) <= 10 and abs(mean - right_mean) < 20
    assert visits.execute(spent).fetchall() == before
    assert [column[:2] for column in visits.execute("FROM dp_query(?, epsilon := 0.1)", [query.format("visits")]).description] == shape


def test_rules_hold_where_rows_are_found_that_obey(visits):
    broken = "SELECT count(*) FILTER (started > ended), count(*) FILTER (age <> 7 * level) FROM dp_dummy('visits', rows := 2000)"
    apart, unequal = visits.execute(broken).fetchone()
    assert apart == 0 and unequal > 1900
    visits.execute("CALL dp_rule('visits', 'age = 7 * level')")
    assert visits.execute(broken).fetchone() == (0, 0)
    visits.execute("CALL dp_rule('visits', 'age = 7 * level', remove := true)")


def test_rules_that_no_row_is_found_for_are_left_out():
    con = made(rows=False)
    con.execute("CALL dp_rule('visits', 'started = ended')")
    con.execute("CALL dp_rule('visits', 'age >= level')")
    found = con.execute("SELECT count(*), count(*) FILTER (started = ended), count(*) FILTER (age < level) FROM dp_dummy('visits')").fetchone()
    con.close()
    assert found == (1000, 0, 0)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("'visits', rows := 100001", "rows = 100001"),
        ("'visits', rows := -1", "rows = -1"),
        ("'visits', rows := 2.5", "rows = 2.5"),
        ("'visits', seed := -1", "seed = -1"),
        ("'visits', seed := 1.5", "seed = 1.5"),
        ("'plain'", "dp_protect"),
        ("'SELECT note FROM visits'", r"no column of the source has a declared domain: CALL dp_declare\('SELECT note FROM visits', 'note'"),
        ("'SELECT count(*) FROM visits'", "count"),
        ("'nothing'", "nothing"),
        ("NULL", "source"),
    ],
)
def test_refusals(visits, call, said):
    visits.execute("CREATE TABLE IF NOT EXISTS plain (a BOOLEAN)")
    with pytest.raises(duckdb.Error, match=said) as refused:
        visits.execute(f"FROM dp_dummy({call})")
    assert "secret" not in str(refused.value)


def test_what_does_not_fit_into_an_answer_is_refused(visits):
    visits.execute("CREATE OR REPLACE TABLE long (v VARCHAR, b BOOLEAN)")
    visits.execute("CALL dp_protect('long', epsilon := 1, delta := 1e-9)")
    visits.execute("CALL dp_declare('long', 'v', categories := [repeat('x', 100000), 'y'])")
    assert visits.execute("SELECT max(length(v)) FROM dp_dummy('long', rows := 300)").fetchone() == (100_000,)
    with pytest.raises(duckdb.Error, match="rows = 1000: at most 335 rows"):
        visits.execute("FROM dp_dummy('long')")


def test_a_changed_column_is_said_to_be_declared_again():
    con = made(rows=False)
    con.execute("ALTER TABLE visits ALTER age TYPE DATE USING NULL")
    with pytest.raises(duckdb.Error, match="'age' was declared as SMALLINT and is DATE now"):
        con.execute("FROM dp_dummy('visits')")
    con.close()
