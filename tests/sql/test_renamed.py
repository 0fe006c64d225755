"""A protected table under another name is not public beside other people's rows."""

from __future__ import annotations

import duckdb
import pytest

import dpsql

pytestmark = pytest.mark.any_duckdb


@pytest.fixture
def con():
    with duckdb.connect() as connection:
        connection.execute("""
            CREATE TABLE people (id INTEGER PRIMARY KEY, sex VARCHAR NOT NULL); INSERT INTO people SELECT i, 'f' FROM range(300) r(i);
            CREATE TABLE visits (id INTEGER, ward VARCHAR); INSERT INTO visits SELECT i % 300, 'a' FROM range(600) r(i);
            CREATE TABLE staff AS SELECT i::INTEGER AS id, 'x' AS role FROM range(300) r(i);
            CREATE TABLE wards AS SELECT 'a' AS ward, 3 AS beds;
        """)
        dpsql.load(connection, progress=False)
        connection.execute("CALL dp_protect('people', epsilon := 10, delta := 1e-9, privacy_unit := 'id', max_contributions := 1)")
        connection.execute("CALL dp_declare('people', 'sex', categories := ['f', 'm'])")
        connection.execute("CALL dp_link('visits', 'id', parent := 'people', max_rows := 5)")
        connection.execute("CALL dp_protect('staff', epsilon := 10, delta := 1e-9, privacy_unit := 'id', max_contributions := 1)")
        yield connection


STAFF = "FROM dp_query('SELECT count(*) AS n FROM staff JOIN {} AS other USING (id)', epsilon := 0.1)"


@pytest.mark.parametrize("table", ["people", "visits"])
def test_a_renamed_table_is_refused_until_it_has_its_name_or_that_is_another_tables(con, table):
    if table == "people":
        con.execute("CREATE TABLE aside AS FROM visits; DROP TABLE visits")
        con.execute("CREATE TABLE visits AS FROM aside; DROP TABLE aside")
    con.execute(f"ALTER TABLE {table} RENAME TO other_name")
    with pytest.raises(duckdb.Error, match=f"may be main.{table} under another name.*rename it back"):
        con.execute(STAFF.format("other_name")).fetchall()
    if table == "people":  # it has a key: other calls join it too
        with pytest.raises(duckdb.Error, match="under another name"):
            con.execute("FROM dp_marginals('SELECT s.role, o.sex FROM staff s JOIN other_name o ON s.id = o.id', epsilon := 0.1)")
    assert con.execute("SELECT releases FROM dp_budget('staff')").fetchall() == [(0,)]
    con.execute(f"CREATE TABLE {table} (id INTEGER PRIMARY KEY)" if table == "people" else f"CREATE TABLE {table} (id INTEGER)")
    assert len(con.execute(STAFF.format("other_name")).fetchall()) == 1


@pytest.mark.parametrize(
    "statement",
    [
        "FROM dp_query('SELECT count(*) AS n, (SELECT max(id) FROM persons) AS top FROM staff', epsilon := 0.1)",
        "FROM dp_query('SELECT count(*) AS n FROM staff WHERE id > (SELECT max(id) FROM persons)', epsilon := 0.1)",
        "FROM dp_query('WITH a AS (SELECT role, count(*) AS n FROM staff GROUP BY role) SELECT * FROM a, persons', epsilon := 0.1)",
        "FROM dp_query('SELECT count(*) AS n FROM staff UNION ALL SELECT id FROM persons', epsilon := 0.1)",
        "FROM dp_query('SELECT count(*) AS n FROM persons', epsilon := 0.1)",
        "CALL dp_declare('staff', 'role', categories_from := 'persons.sex')",
    ],
)
def test_no_call_reads_it_as_public(con, statement):
    con.execute("CREATE TABLE aside AS FROM visits; DROP TABLE visits; CREATE TABLE visits AS FROM aside; DROP TABLE aside")
    con.execute("ALTER TABLE people RENAME TO persons")
    with pytest.raises(duckdb.Error, match="may be main.people under another name"):
        con.execute(statement).fetchall()


def test_other_public_tables_are_as_they_were(con):
    con.execute("ALTER TABLE visits RENAME TO visits_2024")
    con.execute("CREATE TABLE roles AS SELECT 'x' AS role, 1 AS pay")
    text = "FROM dp_query('SELECT count(*) AS n FROM staff JOIN roles USING (role)', epsilon := 0.1)"
    assert len(con.execute(text).fetchall()) == 1


def test_a_renamed_table_that_is_protected_is_protected_twice(con):
    con.execute("DROP TABLE visits; ALTER TABLE people RENAME TO persons")
    con.execute("CALL dp_protect('persons', epsilon := 1, delta := 1e-9, privacy_unit := 'id', max_contributions := 1)")
    with pytest.raises(duckdb.Error, match="protected"):
        con.execute(STAFF.format("persons")).fetchall()
