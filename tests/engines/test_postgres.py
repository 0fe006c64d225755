"""Tables of an attached Postgres under a name here. They need DuckDB's extension (`attached_places`) and a server.

The server is that of ``DPSQL_POSTGRES`` ('host=... dbname=...'; a schema of its own is made there and dropped), or one that is
started here, by ``initdb`` and ``pg_ctl`` on the path or where Debian has them, on a socket in a temporary folder.
"""

from __future__ import annotations

import getpass
import os
import pwd
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from attached_places import EPSILON, ROWS, charges, check_answers, counts, load, opened, protect, raw, reader_of

import dpsql
from dpsql.errors import ArgumentError, DpsqlError

SCHEMA = "dpsql_test"


def binary(name):
    found = shutil.which(name) or max(map(str, Path("/usr/lib/postgresql").glob(f"*/bin/{name}")), default=None)
    if found is None:
        pytest.skip(f"there is no {name}, and DPSQL_POSTGRES names no server")
    return found


@pytest.fixture(scope="module")
def instance() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as con:
        load(con, "postgres_scanner")
        yield con


@pytest.fixture(scope="module")
def server(instance) -> Iterator[str]:
    if "DPSQL_POSTGRES" in os.environ:
        yield os.environ["DPSQL_POSTGRES"]
        return
    initdb, pg_ctl = binary("initdb"), binary("pg_ctl")
    user = getpass.getuser()
    if os.getuid() == 0:  # a server does not run as root
        user = next((name for name in ("postgres", "nobody") if name in {entry.pw_name for entry in pwd.getpwall()}), "")
    with tempfile.TemporaryDirectory(prefix="pg", dir="/tmp") as folder:
        Path(folder).chmod(0o777)
        run = lambda *words: subprocess.run(words, check=True, capture_output=True, user=user, cwd=folder, timeout=120)  # noqa: E731
        run(initdb, "-D", f"{folder}/data", "-A", "trust", "-U", "tester", "-E", "UTF8", "--no-sync")
        options = f"-c listen_addresses= -c unix_socket_directories={folder} -c fsync=off"
        # its standard streams are kept by the server: a pipe would never end
        subprocess.run(
            [pg_ctl, "-D", f"{folder}/data", "-o", options, "-l", f"{folder}/log", "-w", "start"],
            check=True, user=user, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=120,
        )  # fmt: skip
        try:
            yield f"host={folder} user=tester dbname=postgres"
        finally:
            run(pg_ctl, "-D", f"{folder}/data", "-m", "immediate", "stop")


class Postgres:
    """The server, as its owner uses it: statements run over DuckDB's extension, on a connection of their own."""

    def __init__(self, instance: duckdb.DuckDBPyConnection, dsn: str, name: str) -> None:
        self.dsn, self.name, self.con = dsn, name, instance.cursor()
        self.con.execute(f"ATTACH '{dsn}' AS {name} (TYPE postgres)")

    def run(self, *statements: str) -> None:
        for statement in statements:
            self.con.execute(f"CALL postgres_execute('{self.name}', ?)", [statement])

    def close(self) -> None:
        self.con.execute(f"DETACH {self.name}")
        self.con.close()


@pytest.fixture(scope="module")
def postgres(instance, server) -> Iterator[Postgres]:
    owner = Postgres(instance, server, "owner")
    owner.run(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE", f"CREATE SCHEMA {SCHEMA}")
    yield owner
    owner.run(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")
    owner.close()


@pytest.fixture
def people(postgres):
    postgres.run(
        f"DROP TABLE IF EXISTS {SCHEMA}.people CASCADE",
        f"CREATE TABLE {SCHEMA}.people AS SELECT i AS id, CASE WHEN i % 2 = 0 THEN 'f' ELSE 'm' END AS sex, i % 100 AS age, "
        f"(i * 1.5)::numeric(12,2) AS income, 'k' || i % 3 AS k FROM generate_series(1, {ROWS}) t(i)",
    )
    return f"pg.{SCHEMA}.people"


@pytest.fixture
def con(instance, postgres):
    """A database of its own, in the instance that has loaded the extension."""
    with opened(instance) as con:
        con.execute(f"ATTACH '{postgres.dsn}' AS pg (TYPE postgres, READ_ONLY)")
        yield con


def test_postgres_is_counted(con, people):
    protect(con, people)
    check_answers(con)
    assert con.execute("SELECT count(*) FROM duckdb_tables() WHERE database_name = 'pg' AND schema_name = 'dpsql'").fetchone() == (0,)


def test_a_partitioned_table_and_letters(con, people, postgres):
    postgres.run(
        f'DROP TABLE IF EXISTS {SCHEMA}."Odd ""one"',
        f'CREATE TABLE {SCHEMA}."Odd ""one" (LIKE {people.removeprefix("pg.")}) PARTITION BY LIST (sex)',
        f"CREATE TABLE {SCHEMA}.women PARTITION OF {SCHEMA}.\"Odd \"\"one\" FOR VALUES IN ('f')",
        f"CREATE TABLE {SCHEMA}.men PARTITION OF {SCHEMA}.\"Odd \"\"one\" FOR VALUES IN ('m')",
        f'INSERT INTO {SCHEMA}."Odd ""one" SELECT * FROM {SCHEMA}.people',
    )
    protect(con, f'pg.{SCHEMA}."Odd ""one"')
    found = counts(con)
    assert abs(found["f"] - ROWS / 2) < 5
    assert abs(found["m"] - ROWS / 2) < 5
    assert con.execute("SELECT count(*) FROM (FROM dp_budget())").fetchone() == (1,)


def test_rows_that_come_between_plan_and_count(con, people, postgres):
    protect(con, people)
    con.execute("FROM dp_plan('people', columns := ['sex'], epsilon := 1)").fetchall()
    postgres.run(f"INSERT INTO {SCHEMA}.people SELECT id + {ROWS}, 'f', age, income, k FROM {SCHEMA}.people")
    assert abs(counts(con)["f"] - 1.5 * ROWS) < 5
    postgres.run(f"DELETE FROM {SCHEMA}.people")
    assert abs(counts(con)["f"] - 1.5 * ROWS) < 5
    assert abs(counts(con, release="second")["f"]) < 5


def test_values_that_duckdb_does_not_have_are_null(con, postgres):
    postgres.run(
        f"DROP TABLE IF EXISTS {SCHEMA}.odd",
        f"CREATE TABLE {SCHEMA}.odd (at timestamp, tz timestamptz(3), n numeric(12,2), big numeric, wide numeric(50,3), neg numeric(3,-2), "
        "d date, c char(4), j jsonb, f float8)",
        f"INSERT INTO {SCHEMA}.odd VALUES ('294260-01-01', '294260-01-01', 'NaN', ('1' || repeat('0', 400))::numeric, 1.5, 1200, "
        "'infinity', 'ab', '{}', 'NaN')",
        f"INSERT INTO {SCHEMA}.odd VALUES ('infinity', '-infinity', 1.25, 'NaN', 1e40, null, '5874897-01-01', 'a', '[1]', '-inf')",
        f"INSERT INTO {SCHEMA}.odd(big) VALUES ('-Infinity'), (('0.' || repeat('0', 400) || '1')::numeric), (-2.5)",
    )
    described = con.execute(f"CALL dp_remote('odd', engine := 'duckdb', relation := 'pg.{SCHEMA}.odd')").fetchall()
    types = {row[0]: row[1] for row in described}
    assert types == {
        "at": "TIMESTAMP", "tz": "TIMESTAMP WITH TIME ZONE", "n": "DECIMAL(12,2)", "big": "DOUBLE", "wide": "DOUBLE", "neg": "DOUBLE",
        "d": "DATE", "c": "VARCHAR", "j": "VARCHAR", "f": "DOUBLE",
    }  # fmt: skip
    shown = {name: kind for name, kind in types.items() if name not in ("d", "f")}
    rows = [tuple(None if v is None else str(v) for v in row) for row in raw(con, f"pg.{SCHEMA}.odd", shown)]
    assert rows[0] == (None, None, None, None, "1.5", "1200.0", "ab", "{}")
    assert rows[1][2:6] == ("1.25", None, "1e+40", None)
    assert [row[3] for row in rows[2:]] == [None, "0.0", "-2.5"]
    assert raw(con, f"pg.{SCHEMA}.odd", {"at": "TIMESTAMP"})[1][0] is not None  # infinity is DuckDB's, too


def test_types_that_are_not_listed_are_no_columns(con, postgres):
    postgres.run(
        f"DROP TABLE IF EXISTS {SCHEMA}.types CASCADE",
        f"DROP TYPE IF EXISTS {SCHEMA}.mood",
        f"CREATE TYPE {SCHEMA}.mood AS ENUM ('sad', 'it''s')",
        f"DROP DOMAIN IF EXISTS {SCHEMA}.short",
        f"CREATE DOMAIN {SCHEMA}.short AS varchar(5)",
        f'CREATE TABLE {SCHEMA}.types (id int, a int[], b bytea, iv interval, ip inet, m {SCHEMA}.mood, s {SCHEMA}.short, "Id" int, "q""t" text, '
        "u uuid, gone int)",
        f"ALTER TABLE {SCHEMA}.types DROP COLUMN gone",
        f"INSERT INTO {SCHEMA}.types (id, m, \"q\"\"t\") VALUES (1, 'it''s', 'x'), (2, NULL, 'y')",
    )
    rows = con.execute(f"CALL dp_remote('types', engine := 'duckdb', relation := 'pg.{SCHEMA}.types')").fetchall()
    found = {row[0]: row[1] for row in rows}
    assert {name for name, kind in found.items() if kind is None} == {"a", "b", "iv", "ip", "Id"}
    assert found["m"] == "ENUM('sad', 'it''s')"
    assert (found["s"], found['q"t'], found["u"]) == ("VARCHAR", "VARCHAR", "UUID")
    con.execute("CALL dp_protect('types', epsilon := 200, delta := 1e-9, privacy_unit := 'id', max_contributions := 1)")
    postgres.run(f"ALTER TYPE {SCHEMA}.mood ADD VALUE 'new'")
    postgres.run(f"UPDATE {SCHEMA}.types SET m = 'new' WHERE id = 2")
    rows = con.execute(f"FROM dp_marginals('types', columns := ['m'], epsilon := {EPSILON})").fetchall()
    assert [row[0] for row in rows] == ["sad", "it's", None]
    assert abs(rows[2][1] - 1) < 5


def test_what_is_no_table_is_refused(con, people, postgres):
    postgres.run(f"CREATE VIEW {SCHEMA}.some AS SELECT * FROM {SCHEMA}.people LIMIT 10")
    call = f"CALL dp_remote('x', engine := 'duckdb', relation := 'pg.{SCHEMA}.some')"
    with pytest.raises(duckdb.Error, match="no table of Postgres but a view"):
        con.execute(call)
    with pytest.raises(duckdb.Error, match="letters count"):
        con.execute(call.replace("some", "People"))
    with pytest.raises(duckdb.Error, match="no database is attached"):
        con.execute(call.replace("pg.", "nowhere."))
    with pytest.raises(duckdb.Error, match="name a table of an attached database"):
        con.execute(call.replace(".some", ".people LIMIT 3"))


def test_partitions_that_are_no_tables_are_refused_also_when_they_come_later(con, people, postgres):
    try:
        postgres.run("CREATE EXTENSION IF NOT EXISTS file_fdw", "CREATE SERVER dpsql_files FOREIGN DATA WRAPPER file_fdw")
    except duckdb.Error:
        pytest.skip("the server has no file_fdw")
    foreign = f"FOREIGN TABLE {SCHEMA}.far PARTITION OF {SCHEMA}.low FOR VALUES FROM (100) TO (200) SERVER dpsql_files"
    try:
        postgres.run(
            f"CREATE TABLE {SCHEMA}.parted (id int, sex text, age int) PARTITION BY RANGE (id)",
            f"CREATE TABLE {SCHEMA}.low PARTITION OF {SCHEMA}.parted FOR VALUES FROM (0) TO (1000) PARTITION BY RANGE (id)",
            f"CREATE TABLE {SCHEMA}.lowest PARTITION OF {SCHEMA}.low FOR VALUES FROM (0) TO (100)",
            f"INSERT INTO {SCHEMA}.parted SELECT i, 'f', i FROM generate_series(0, 99) i",
        )
        protect(con, f"pg.{SCHEMA}.parted", "parted")
        assert abs(counts(con, "parted", "before")["f"] - 100) < 5
        postgres.run(f"CREATE {foreign} OPTIONS (filename '/dev/null', format 'csv')")
        with pytest.raises(duckdb.Error, match="a partition that is no table"):
            counts(con, "parted", "after")
        with pytest.raises(duckdb.Error, match="a partition that is no table"):
            con.execute(f"CALL dp_remote('again', engine := 'duckdb', relation := 'pg.{SCHEMA}.parted')")
        assert charges(con) == 1
    finally:
        postgres.run("DROP SERVER dpsql_files CASCADE")


def test_tables_that_others_inherit_from_are_refused(con, people, postgres):
    protect(con, people)
    postgres.run(f"CREATE TABLE {SCHEMA}.more () INHERITS ({SCHEMA}.people)")
    with pytest.raises(duckdb.Error, match="others inherit from"):
        counts(con)
    assert charges(con) == 0


def test_row_security_is_refused_and_columns_without_a_right_are_none(con, people, postgres):
    postgres.run(
        "DROP ROLE IF EXISTS dpsql_reader", "CREATE ROLE dpsql_reader LOGIN", f"GRANT USAGE ON SCHEMA {SCHEMA} TO dpsql_reader",
        f"GRANT SELECT (id, sex) ON {SCHEMA}.people TO dpsql_reader",
    )  # fmt: skip
    try:
        con.execute(f"ATTACH '{postgres.dsn} options=''-crole=dpsql_reader''' AS reader (TYPE postgres)")
        call = f"CALL dp_remote('r', engine := 'duckdb', relation := 'reader.{SCHEMA}.people')"
        assert [row[0] for row in con.execute(call).fetchall() if row[1] is not None] == ["id", "sex"]
        postgres.run(f"ALTER TABLE {SCHEMA}.people ENABLE ROW LEVEL SECURITY")
        with pytest.raises(duckdb.Error, match="row security"):
            con.execute(call)
        postgres.run(
            f"ALTER TABLE {SCHEMA}.people DISABLE ROW LEVEL SECURITY", f"REVOKE SELECT (id, sex) ON {SCHEMA}.people FROM dpsql_reader"
        )
        with pytest.raises(duckdb.Error, match=r"ArgumentError: relation = .* no column of it can be used: .*GRANT SELECT.*integer"):
            con.execute(call.replace("'r'", "'none'"))
        con.execute("DETACH reader")
    finally:
        postgres.run("DROP OWNED BY dpsql_reader", "DROP ROLE dpsql_reader")


@pytest.mark.parametrize("relation", ["pg_catalog.pg_class", "pg_catalog.pg_statistic", "information_schema.sql_features"])
def test_tables_of_the_server_itself_are_refused(con, relation):
    """Statistics hold values of other tables: whose rows they are is not said."""
    with pytest.raises(duckdb.Error, match="is a table of Postgres' own, whose rows follow from those of others"):
        con.execute(f"CALL dp_remote('r', engine := 'duckdb', relation := 'pg.{relation}')")
    assert con.execute("SELECT count(*) FROM duckdb_tables() WHERE table_name = 'r'").fetchone() == (0,)


def test_a_table_without_files_does_not_ask_for_those_of_others(con, people):
    """A lake that is not attached stops files, and nothing else."""
    protect(con, people)
    con.execute("CREATE TABLE gone (id BIGINT)")
    con.execute("CALL dp_protect('gone', epsilon := 1, delta := 1e-9, privacy_unit := 'id', max_contributions := 1)")
    con.execute(
        "INSERT INTO dpsql.remotes SELECT 'main.gone', engine, 'ducklake', 'lake.main.gone', * EXCLUDE (source, engine, url, relation) "
        "FROM dpsql.remotes LIMIT 1"
    )
    assert abs(sum(counts(con).values()) - ROWS) < 10


def test_attached_tables_are_neither_protected_nor_public_themselves(con, people):
    protect(con, people)
    for call in (
        f"CALL dp_protect('{people}', epsilon := 1, delta := 1e-9)",
        f"FROM dp_query('SELECT count(*) FROM people JOIN {people} AS p USING (id)', epsilon := 1)",
        "FROM dp_query('SELECT count(*) FROM a_view', epsilon := 1)",
    ):
        con.execute(f"CREATE OR REPLACE VIEW a_view AS SELECT * FROM {people}")
        with pytest.raises(duckdb.Error, match="in a database of type 'postgres'"):
            con.execute(call)
    con.execute(f"CREATE MACRO a_macro() AS TABLE SELECT * FROM {people}")
    for function in ("a_macro()", "postgres_query(''pg'', ''SELECT 1 AS id'')", "postgres_scan(''host=h'', ''public'', ''people'')"):
        with pytest.raises(duckdb.Error, match="table functions and macros are not looked into"):
            con.execute(f"FROM dp_query('SELECT count(*) FROM {function}', epsilon := 1)")
    con.execute("USE pg")
    with pytest.raises(duckdb.Error, match="a name cannot be made in 'pg'"):
        con.execute(f"CALL memory.dp_remote('x', engine := 'duckdb', relation := '{people}')")


def test_what_changed_charges_nothing(con, people, postgres):
    protect(con, people)
    postgres.run(f"ALTER TABLE {SCHEMA}.people ALTER COLUMN income TYPE text")
    with pytest.raises(duckdb.Error, match=r"columns \['income'\] have other types now"):
        counts(con)
    con.execute("DETACH pg")
    with pytest.raises(duckdb.Error, match="no database is attached as 'pg'"):
        counts(con)
    assert charges(con) == 0


def test_nothing_is_filtered_or_compared_in_postgres(con, people, postgres):
    """One COPY of plain columns for each reading of the table; what is asked for stays in DuckDB."""
    reader = reader_of(con, people, {"sex": "VARCHAR", "age": "INTEGER"})
    cursor = reader.cursor
    text = reader.placed('SELECT count(*) AS n FROM "m"."s"."t" AS p WHERE p."sex" < \'n\' AND p."age" > 50')
    plan = cursor.execute(f"EXPLAIN {text}").fetchall()[0][1]
    assert "FILTER" in plan
    assert "Filters:" not in plan
    assert con.execute("SELECT current_setting('pg_experimental_filter_pushdown')").fetchone() == (True,)  # the caller's own


def test_a_join_with_itself_sees_one_moment(con, people, postgres, instance):
    """While another session moves rows about, each statement sees a table in which every person is there once."""
    stop = threading.Event()
    owner = Postgres(instance, postgres.dsn, "mover")

    def move() -> None:
        while not stop.is_set():
            owner.run(f"UPDATE {SCHEMA}.people SET age = 99 - age")

    mover = threading.Thread(target=move)
    mover.start()
    try:
        reader = reader_of(con, people, {"id": "INTEGER", "age": "INTEGER"})
        text = 'SELECT count(*) AS n, count(DISTINCT a.id) AS d, sum((a.age = b.age)::INT) AS s FROM "m"."s"."t" a JOIN "m"."s"."t" b USING (id)'
        found = {tuple(reader.cursor.execute(reader.placed(text)).fetchone()) for _ in range(8)}
    finally:
        stop.set()
        mover.join()
        owner.close()
    assert found == {(ROWS, ROWS, ROWS)}


def test_a_server_that_is_lost_shows_no_credentials(con, postgres, people):
    con.execute("DETACH pg")
    postgres.run("DROP ROLE IF EXISTS dpsql_gone", "CREATE ROLE dpsql_gone LOGIN PASSWORD 'hush'", f"GRANT USAGE ON SCHEMA {SCHEMA} TO dpsql_gone",
                 f"GRANT SELECT ON {SCHEMA}.people TO dpsql_gone")  # fmt: skip
    other = " ".join(word for word in postgres.dsn.split() if not word.startswith("user="))
    con.execute(f"ATTACH '{other} user=dpsql_gone password=hush' AS pg (TYPE postgres, READ_ONLY)")
    con.execute("CREATE TABLE near AS SELECT i AS id FROM range(9) t(i)")
    protect(con, people)
    con.execute("CALL dp_protect('near', epsilon := 1, delta := 1e-9)")
    postgres.run("ALTER ROLE dpsql_gone NOLOGIN", "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'dpsql_gone'")
    try:
        for call in (
            "FROM dp_query('SELECT count(*) FROM people', epsilon := 1)",
            "FROM dp_query('SELECT count(*) FROM near', epsilon := 1)",
            "FROM dp_plan('near', epsilon := 1)",
            "FROM dp_budget()",
            "FROM dp_releases()",
            "FROM dp_ledger()",
            f"CALL dp_remote('again', engine := 'duckdb', relation := '{people}')",
        ):
            with pytest.raises(duckdb.Error, match="DETACH it|is the server there") as error:
                con.execute(call).fetchall()
            assert "hush" not in str(error.value)
            assert "dpsql_gone" not in str(error.value)
        with pytest.raises(DpsqlError, match="DETACH it") as raised:
            dpsql.budget(con)
        assert "hush" not in str(raised.value)
        con.execute("DETACH pg")
        assert con.execute("SELECT count(*) FROM dp_budget()").fetchone() == (2,)
    finally:
        postgres.run(f"REVOKE ALL ON {SCHEMA}.people FROM dpsql_gone", f"REVOKE ALL ON SCHEMA {SCHEMA} FROM dpsql_gone", "DROP ROLE dpsql_gone")




def test_one_there_is_one_here(con, postgres):
    """No unit that Postgres tells apart otherwise than DuckDB: two who became one would replace each other's rows."""
    postgres.run(
        f"DROP TABLE IF EXISTS {SCHEMA}.units",
        f"CREATE COLLATION IF NOT EXISTS {SCHEMA}.loose (provider = icu, locale = 'und-u-ks-level2', deterministic = false)",
        f"CREATE TABLE {SCHEMA}.units (n numeric, j jsonb, p numeric(20,0), x text COLLATE {SCHEMA}.loose, c char(5), s text)",
        f"INSERT INTO {SCHEMA}.units VALUES (1, '1.0', 1, 'a', 'a', 'a'), (1.00000000000000000001, '1.00', 'NaN', 'A', 'a  ', 'a ')",
    )
    relation = f"pg.{SCHEMA}.units"
    described = con.execute(f"CALL dp_remote('units', engine := 'duckdb', relation := '{relation}')").fetchall()
    types = {row[0]: row[1] for row in described}
    assert types["x"] is None
    columns = {name: kind for name, kind in types.items() if kind is not None}
    for unit, told in (("N", "numeric"), ("j", "jsonb")):
        with pytest.raises(DpsqlError, match=f"of type {told}, whose values are not told apart"):
            _ = reader_of(con, relation, columns, unit).rows
    assert reader_of(con, relation, columns, "p").rows
    assert raw(con, relation, {"c": "VARCHAR", "s": "VARCHAR"}) == [("a", "a"), ("a", "a ")]
    con.execute("CALL dp_protect('units', epsilon := 9, delta := 1e-9, privacy_unit := 'n', max_contributions := 1)")
    with pytest.raises(duckdb.Error, match="not told apart"):
        con.execute("FROM dp_query('SELECT count(*) FROM units', epsilon := 1)")
    assert charges(con) == 0


def test_sessions_that_would_read_otherwise_are_refused(con, people, postgres):
    con.execute(f"ATTACH '{postgres.dsn}' AS loose (TYPE postgres, READ_ONLY, ISOLATION_LEVEL 'READ COMMITTED')")
    con.execute(f"ATTACH '{postgres.dsn} client_encoding=LATIN1' AS latin (TYPE postgres, READ_ONLY)")
    for name, told in (("loose", "two states"), ("latin", "client_encoding")):
        with pytest.raises(duckdb.Error, match=told):
            con.execute(f"CALL dp_remote('x', engine := 'duckdb', relation := '{people.replace('pg.', name + '.')}')")
    con.execute("DETACH loose; DETACH latin")


def test_no_connection_string_is_kept_or_shown(con):
    for given in ({"relation": "host=h password=hush"}, {"relation": "pg.a.b", "url": "host=h password=hush"}):
        with pytest.raises(ArgumentError) as error:
            dpsql.remote(con, "x", engine="duckdb", **given)
        assert "hush" not in str(error.value)
