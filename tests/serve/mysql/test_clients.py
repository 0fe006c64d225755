"""Stock clients at the door: each is skipped, with the reason, where it is not installed."""

import datetime
import decimal
import importlib
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from mysql_room import DATABASE, TOKENS

TOKEN = TOKENS["alice"]
GROUPS = "SELECT ward, COUNT(*) AS n, AVG(cost) AS mean FROM visits GROUP BY ward ORDER BY ward"
MEANS = [("children", 100, 188.125), ("medicine", 100, 185.625), ("surgery", 100, 186.875)]
QUOTED = 'O\'Brien ? "x" \\'
LONG = 120


def module(name):
    try:
        return importlib.import_module(name)
    except ImportError:
        pytest.skip(f"{name} is not installed")


def at(house, **more):
    return {"host": "127.0.0.1", "port": house.port, "user": "alice", "password": TOKEN, "database": DATABASE, **more}


def pymysql_of(house, **more):
    return module("pymysql").connect(**at(house, **more))


def connector_of(house, **more):
    return module("mysql.connector").connect(**at(house, use_pure=True, **({"ssl_disabled": True} | more)))


CLIENTS = {"pymysql": (pymysql_of, False), "mysql-connector": (connector_of, False), "mysql-connector, prepared": (connector_of, True)}


@pytest.fixture(params=CLIENTS)
def cursor(house, request):
    connect, prepared = CLIENTS[request.param]
    connection = connect(house)
    yield connection.cursor(prepared=True) if prepared else connection.cursor()
    connection.close()


def asked(cursor, text, values=()):
    cursor.execute(text, values)
    return [column[0] for column in cursor.description], list(cursor.fetchall())


def test_a_question_about_a_protected_table(cursor):
    assert asked(cursor, GROUPS) == (["ward", "n", "mean"], MEANS)
    assert asked(cursor, GROUPS) == (["ward", "n", "mean"], MEANS)


def test_parameters(cursor):
    for _ in range(2):
        assert asked(cursor, "SELECT COUNT(*) AS n FROM visits WHERE age > %s AND sex = %s", (30, "F")) == (["n"], [(87,)])
    assert asked(cursor, "SELECT COUNT(*) FROM wards WHERE building = %s", (QUOTED,)) == (["COUNT(*)"], [(1,)])
    values = (datetime.datetime(2024, 1, 2, 3, 4, 5), decimal.Decimal("1.50"), None)
    assert asked(cursor, "SELECT COUNT(*) AS n FROM visits_synth WHERE visit_at > %s AND cost > %s AND sex <> COALESCE(%s, ward)", values) == (["n"], [(16,)])


def test_rows_of_public_and_synthetic_tables(cursor):
    assert asked(cursor, "SELECT * FROM wards ORDER BY ward")[1] == [("children", QUOTED), ("medicine", "A"), ("surgery", "B")]
    first = (0, "medicine", decimal.Decimal("0.00"), datetime.datetime(2024, 1, 1), "F", 0)
    assert asked(cursor, "SELECT * FROM visits_synth ORDER BY patient_id LIMIT 1") == (["patient_id", "ward", "cost", "visit_at", "sex", "age"], [first])
    assert asked(cursor, "SELECT * FROM visits LIMIT 0")[1] == []


def test_values_and_the_session(cursor):
    text = "SELECT CAST(visit_at AS DATE) AS d, CAST(1.5 AS DECIMAL(10,2)) AS x, TRUE AS t, NULL AS z FROM visits_synth LIMIT 1"
    assert asked(cursor, text)[1] == [(datetime.date(2024, 1, 1), decimal.Decimal("1.50"), 1, None)]
    assert asked(cursor, "SELECT DATABASE(), USER(), VERSION()")[1] == [(DATABASE, "alice@%", "8.0.36-dpsql")]


def test_rows_of_a_protected_table_are_refused(cursor):
    for text, number in (("SELECT * FROM visits", 1142), ("DELETE FROM wards", 1235), ("SELECT * FROM nothing", 1146), ("SELECT", 1064)):
        with pytest.raises(Exception, match=r"1142|1235|1146|1064") as raised:
            asked(cursor, text)
        assert number in (raised.value.args[0], getattr(raised.value, "errno", None))
    assert asked(cursor, "SELECT 1")[1] == [(1,)]


def test_transactions_pings_and_resets(house):
    connection = pymysql_of(house)
    connection.begin()
    connection.commit()
    connection.rollback()
    connection.autocommit(True)
    connection.ping()
    connection.select_db(DATABASE)
    connection.close()
    connection = connector_of(house)
    connection.start_transaction()
    connection.rollback()
    connection.ping()
    connection.reset_session()
    assert connection.is_connected()
    connection.close()


@pytest.mark.parametrize("connect", [pymysql_of, connector_of])
@pytest.mark.parametrize(("user", "password"), [("alice", "x"), ("alice", ""), ("nobody", "x"), ("nobody", ""), ("", "")])
def test_nobody_comes_in_without_a_token(house, connect, user, password):
    with pytest.raises(Exception, match="1045"):
        connect(house, user=user, password=password)


@pytest.mark.parametrize("plugin", [None, "mysql_clear_password", "caching_sha2_password"])
def test_over_tls(opening, tls, certificate, plugin):
    with opening(tls=tls(required=True)) as house:
        for _ in range(3):
            chosen = {"auth_plugin": plugin} if plugin else {}
            connection = connector_of(house, ssl_ca=str(certificate[0]), ssl_disabled=False, ssl_verify_cert=True, **chosen)
            assert asked(connection.cursor(), GROUPS)[1] == MEANS
            connection.close()
            connection = pymysql_of(house, ssl={"ca": str(certificate[0])})
            assert asked(connection.cursor(), GROUPS)[1] == MEANS
            connection.close()
        with pytest.raises(Exception, match="3159"):
            pymysql_of(house, ssl_disabled=True)


@pytest.mark.parametrize("driver", ["mysql+pymysql", "mysql+mysqlconnector"])
def test_sqlalchemy(house, driver):
    sqlalchemy = module("sqlalchemy")
    module({"mysql+pymysql": "pymysql", "mysql+mysqlconnector": "mysql.connector"}[driver])
    engine = sqlalchemy.create_engine(f"{driver}://alice:{TOKEN}@127.0.0.1:{house.port}/{DATABASE}")
    inspector = sqlalchemy.inspect(engine)
    assert inspector.get_schema_names() == [DATABASE, "information_schema"]
    assert (inspector.get_table_names(), inspector.get_view_names()) == (["visits", "wards"], ["visits_synth"])
    assert [column["name"] for column in inspector.get_columns("visits")] == ["patient_id", "ward", "cost", "visit_at", "sex", "age"]
    for what in ("get_foreign_keys", "get_indexes", "get_unique_constraints", "get_check_constraints"):
        assert getattr(inspector, what)("visits") == []
    assert inspector.get_pk_constraint("visits")["constrained_columns"] == []
    assert inspector.get_table_comment("visits") == {"text": "protected: aggregates alone"}
    assert inspector.has_table("visits")
    assert not inspector.has_table("nothing")
    tables = sqlalchemy.MetaData()
    tables.reflect(engine, views=True)
    visits = tables.tables["visits"]
    counted = sqlalchemy.select(visits.c.ward, sqlalchemy.func.count().label("n")).where(visits.c.age > 30).group_by(visits.c.ward)
    with engine.connect() as connection:
        assert sorted(tuple(row) for row in connection.execute(counted.limit(10))) == [("children", 60), ("medicine", 57), ("surgery", 60)]
        frame = module("pandas").read_sql(sqlalchemy.text(GROUPS), connection)
        assert list(frame["n"]) == [100, 100, 100]
    engine.dispose()


# mariadb's shell


@pytest.fixture
def shell(house):
    if shutil.which("mariadb") is None:
        pytest.skip("the mariadb client is not installed")
    return ["mariadb", "--no-defaults", "--skip-ssl", "-h127.0.0.1", f"-P{house.port}", "-ualice", f"-p{TOKEN}", DATABASE]


def said(command, **more):
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONG, check=False, **more)
    return done.stdout + done.stderr


def test_mariadb(shell):
    assert said([*shell, "-N", "-e", GROUPS]) == "children\t100\t188.125\nmedicine\t100\t185.625\nsurgery\t100\t186.875\n"
    assert said([*shell, "-N", "-e", "SHOW TABLES"]) == "visits\nvisits_synth\nwards\n"
    assert "`cost` double DEFAULT NULL" in said([*shell, "-e", "SHOW CREATE TABLE visits\\G"])
    assert "Server version:\t\t8.0.36-dpsql" in said([*shell, "-e", "status"])
    assert "ERROR 1142 (42000) at line 1: rows of visits are not shown" in said([*shell, "-e", "SELECT * FROM visits"])
    assert "ERROR 1045 (28000)" in said([*shell[:-2], "-px", DATABASE, "-e", "SELECT 1"])
    for text in ("DESCRIBE visits", "SHOW FULL COLUMNS FROM visits", "SHOW INDEX FROM visits", "SHOW TABLE STATUS", "SHOW GRANTS", "SHOW VARIABLES"):
        assert "ERROR " not in said([*shell, "-e", text])


def test_mariadb_interactive(shell):
    """It completes names of columns, which it asks for one table after the other."""
    terminal, end_of_shell = os.openpty()
    process = subprocess.Popen(shell, stdin=end_of_shell, stdout=end_of_shell, stderr=end_of_shell, start_new_session=True)
    os.close(end_of_shell)
    text = b""

    def until(expected):
        nonlocal text
        text, end = b"", time.monotonic() + LONG
        while expected not in text and time.monotonic() < end:
            if select.select([terminal], [], [], 1)[0]:
                text += os.read(terminal, 1 << 16)
        assert expected in text, text

    until(b"]> ")
    for line, expected in ((b"select count(*) from visits;\n", b"1 row in set"), (b"use hospital;\n", b"Database changed"), (b"\\s\n", b"TCP port"), (b"select buil\t from wards limit 1;\n", b"building")):
        os.write(terminal, line)
        until(expected)
    os.write(terminal, b"exit\n")
    assert process.wait(LONG) == 0
    os.close(terminal)


def test_mariadb_dump(shell):
    if shutil.which("mariadb-dump") is None:
        pytest.skip("mariadb-dump is not installed")
    dumped = said(["mariadb-dump", *shell[1:-1], "--no-data", "--skip-lock-tables", DATABASE])
    assert "CREATE TABLE `visits`" in dumped
    assert "INSERT" not in said(["mariadb-dump", *shell[1:-1], "--skip-lock-tables", DATABASE, "visits"])


# DuckDB's own shell, by its extension


@pytest.fixture
def duckdb_shell(house):
    """The command that asks by DuckDB's extension: DPSQL_DUCKDB_MYSQL names a Python that has duckdb and the extension's wheel."""
    python = os.environ.get("DPSQL_DUCKDB_MYSQL", sys.executable)
    found = "import duckdb, duckdb_extension_mysql_scanner as e; print(duckdb.__version__, list(e.__path__)[0])"
    looked = subprocess.run([python, "-c", found], capture_output=True, text=True, timeout=LONG, check=False)
    if looked.returncode != 0:
        pytest.skip("duckdb-extension-mysql-scanner is not installed in this environment, nor in that of DPSQL_DUCKDB_MYSQL")
    version, folder = looked.stdout.split()
    files = list(Path(folder).glob(f"extensions/v{version}/mysql_scanner.duckdb_extension"))
    if not files:
        pytest.skip(f"duckdb-extension-mysql-scanner has no extension for DuckDB {version}")
    program = f"""
import duckdb, sys
connection = duckdb.connect(config={{'allow_unsigned_extensions': 'true'}})
connection.execute("LOAD '{files[0]}'")
connection.execute("ATTACH 'host=127.0.0.1 port={house.port} user=alice password={TOKEN} database={DATABASE} ssl_mode=disabled' AS census (TYPE mysql)")
connection.execute("USE census")
for statement in sys.stdin.read().split('\\n'):
    try:
        print(connection.execute(statement).fetchall())
    except Exception as error:
        print(type(error).__name__, str(error).split('\\n')[0])
"""

    def ask(*statements):
        done = subprocess.run([python, "-c", program], input="\n".join(statements), capture_output=True, text=True, timeout=LONG, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip().split("\n")

    return ask


def test_duckdb_attaches(house, duckdb_shell):
    before = len(house.room.asked)
    answers = duckdb_shell(
        "SELECT name FROM (SHOW ALL TABLES) ORDER BY name",
        "SELECT ward, count(*) AS n, avg(cost) AS mean FROM visits GROUP BY ward ORDER BY ward",
        "SELECT ward, sum(cost) FROM visits WHERE age > 30 AND sex = 'F' GROUP BY ward ORDER BY ward",
        "SELECT building, sum(n) FROM wards JOIN (SELECT ward, count(*) AS n FROM visits GROUP BY ward) USING (ward) GROUP BY building ORDER BY ALL",
        "FROM mysql_query('census', 'SELECT MONTH(visit_at) AS m, COUNT(*) AS n FROM visits GROUP BY m ORDER BY m')",
        "FROM visits_synth ORDER BY patient_id LIMIT 1",
        "FROM visits LIMIT 0",
        "SELECT typeof(ward), typeof(n), typeof(mean) FROM mysql_query('census', 'SELECT ward, COUNT(*) AS n, AVG(cost) AS mean FROM visits GROUP BY ward') LIMIT 1",
    )
    assert answers[:5] == [
        "[('visits',), ('visits_synth',), ('wards',)]",
        str(MEANS),
        "[('children', 5587.5), ('medicine', 5062.5), ('surgery', 5662.5)]",
        "[('A', 100), ('B', 100), ('O\\'Brien ? \"x\" \\\\', 100)]",
        "[(1, 107), (2, 99), (3, 94)]",
    ]
    assert answers[5].startswith("[(0, 'medicine', Decimal('0.00'), datetime.datetime(2024, 1, 1, 0, 0), 'F', 0)]")
    assert answers[6:] == ["[]", "[('VARCHAR', 'BIGINT', 'DOUBLE')]"]
    asked_of_the_room = [text for _, text in house.room.asked[before:]]
    assert sum("AVG" in text for text in asked_of_the_room) == 2  # each question about visits was asked once, as an aggregate


def test_duckdb_is_refused(duckdb_shell):
    answers = duckdb_shell("FROM visits", "SELECT count(DISTINCT patient_id) FROM visits", "CREATE TABLE x(a int)", "INSERT INTO wards VALUES ('a', 'b')", "CALL mysql_execute('census', 'DELETE FROM wards')", "SELECT count(*) FROM wards")
    assert all("rows of visits are not shown" in answer for answer in answers[:2]), answers
    assert all("only questions are answered" in answer for answer in answers[2:5]), answers
    assert answers[5] == "[(3,)]"
