"""What clients ask of the catalogue is answered from names and types; nothing of it hurts, and nothing else is in it."""

import json
from pathlib import Path

import duckdb
import pytest
from mysql_raw import Raw
from mysql_room import TOKENS, FakeRoom

from dpsql.serve.mysql import listed
from dpsql.serve.mysql.catalogue import MOST_ROWS, Catalogue, Session
from dpsql.serve.mysql.codes import Fault
from dpsql.serve.passed import Column, Refused, Table

ASKED = json.loads((Path(__file__).parents[2] / "data" / "asked_of_mysql.json").read_text())
"""By client: what it asked, and the names of the columns and the number of rows that it gets ('done': none; 'room': not of the
catalogue; a number: refused). Written down from stock clients; the texts are theirs."""


@pytest.fixture(scope="module")
def catalogue():
    return Catalogue("hospital", FakeRoom().schema("alice"), seconds=3600)  # on a busy machine, too


@pytest.fixture
def session():
    return Session("alice", 7, "hospital", "hospital")


def refusal(catalogue, session, text):
    with pytest.raises((Refused, Fault)) as raised:
        catalogue.answer(session, text)
    return getattr(raised.value, "code", None) or raised.value.kind


def rows(catalogue, session, text):
    return list(catalogue.answer(session, text).rows)


@pytest.mark.parametrize("client", ASKED)
def test_what_a_client_asks_is_answered(catalogue, session, client):
    for text, expected in ASKED[client]:
        if isinstance(expected, int):
            assert refusal(catalogue, session, text) in (expected, "unsupported"), text
            continue
        answer = catalogue.answer(session, text, [None] * (text.count("?") if expected == "room" else 0))
        if expected == "room":
            assert answer is None, text
        elif expected == "done":
            assert answer.columns == (), text
        else:
            assert [*(column.name for column in answer.columns), len(answer.rows)] == expected, text
            assert all(column.type for column in answer.columns)


def test_variables_and_tables_are_as_many_as_were_listed():
    from dpsql.serve.mysql.variables import Variables

    assert len(Variables().listed()) >= 53
    assert len(listed.COLUMNS) >= 27


def test_names_and_types_and_no_more(catalogue, session):
    assert rows(catalogue, session, "SELECT table_name, table_type, table_rows, data_length, table_comment FROM information_schema.tables ORDER BY 1") == [
        ("visits", "BASE TABLE", None, None, "protected: aggregates alone"),
        ("visits_synth", "VIEW", None, None, ""),
        ("wards", "BASE TABLE", None, None, ""),
    ]
    assert ("age", "int", "YES", "", None, "") in rows(catalogue, session, "DESCRIBE visits")
    status = rows(catalogue, session, "SHOW TABLE STATUS LIKE 'visits'")
    assert status[0][4:10] == (None,) * 6
    assert rows(catalogue, session, "SELECT COUNT(*) FROM information_schema.statistics") == [(0,)]


def test_a_protected_decimal_is_listed_as_double_so_that_sums_of_it_are_handed_over(catalogue, session):
    question = "SELECT data_type FROM information_schema.columns WHERE column_name = 'cost' AND table_name = '{}'"
    assert rows(catalogue, session, question.format("visits")) == [("double",)]
    assert rows(catalogue, session, question.format("visits_synth")) == [("decimal",)]


def test_case_does_not_matter_in_the_catalogue(catalogue, session):
    assert rows(catalogue, session, "select TABLE_NAME from INFORMATION_SCHEMA.tables where Table_Schema = 'HOSPITAL' and table_type LIKE 'view'") == [("visits_synth",)]


def test_names_of_other_schemas_and_of_strange_letters(session):
    names = "a`b'c\"d\\e é", "select", "x y"
    tables = [Table("main", names[0], tuple(Column(name, "INTEGER") for name in names), False, False), Table("extra", "t", (Column("a", "VARCHAR[]"),), False, False)]
    catalogue = Catalogue("o'brien`s", tables, seconds=3600)
    session.database = session.current = "o'brien`s"
    assert rows(catalogue, session, "SHOW TABLES") == [(names[0],)]
    assert [row[0] for row in rows(catalogue, session, "DESCRIBE `a``b'c\"d\\e é`")] == list(names)
    assert "`a``b'c\"d\\e é` int DEFAULT NULL" in rows(catalogue, session, "SHOW CREATE TABLE `a``b'c\"d\\e é`")[0][1]
    assert rows(catalogue, session, "SHOW TABLES FROM extra") == [("t",)]
    assert rows(catalogue, session, "SHOW TABLES LIKE '%\\\\\\\\e%'") == [(names[0],)]
    assert rows(catalogue, session, "SHOW DATABASES LIKE 'ex%'") == [("extra",)]


def test_session_values(catalogue, session):
    assert rows(catalogue, session, "SELECT DATABASE(), SCHEMA(), USER(), CURRENT_USER(), CURRENT_USER, CONNECTION_ID(), @@sql_mode LIKE '%ANSI_QUOTES%'") == [
        ("hospital", "hospital", "alice@%", "alice@%", "alice@%", 7, False)
    ]
    catalogue.answer(session, "SET SESSION sql_mode = concat(@@sql_mode, ',STRICT_ALL_TABLES'), autocommit = OFF; SET NAMES utf8mb4;")
    assert rows(catalogue, session, "SELECT @@autocommit")[0] == (0,)
    assert rows(catalogue, session, "SELECT @@session.sql_mode")[0][0].endswith(",STRICT_ALL_TABLES")
    assert rows(catalogue, session, "SHOW VARIABLES WHERE Variable_name = 'autocommit' OR Variable_name LIKE 'lower%names'") == [("autocommit", "OFF"), ("lower_case_table_names", "2")]
    assert not session.transaction
    catalogue.answer(session, "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
    assert session.transaction
    catalogue.answer(session, "ROLLBACK")
    assert not session.transaction


REFUSALS = {
    "SET GLOBAL autocommit = 1": 1227, "SET @@GLOBAL.autocommit = 1": 1227, "SET PERSIST autocommit = 1": 1227,
    "SET nothing = 1": 1193, "SELECT @@nothing": 1193, "SET version = '5'": 1238, "SET NAMES latin1": 1115,
    "SET sql_mode = 'ANSI_QUOTES'": 1231, "SET sql_mode = concat('ANSI', '_QUOTES')": 1231, "SET sql_mode = 'NO_BACKSLASH_ESCAPES'": 1231,
    "SET @a = 1": "unsupported", "SET autocommit = (SELECT ward FROM wards)": "unsupported",
    "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; SELECT 1": "unsupported", "USE nothing": 1049, "SHOW TABLES FROM nothing": 1049,
    "DESCRIBE nothing": 1146, "SHOW CREATE TABLE nothing": 1146, "SELECT * FROM mysql.user": 1142,
    "SELECT * FROM performance_schema.threads": 1142, "SELECT * FROM information_schema.nothing": 1109,
    "SELECT nothing FROM information_schema.tables": 1054, "EXPLAIN SELECT COUNT(*) FROM visits": "unsupported",
    "DESCRIBE SELECT 1": "unsupported", "EXPLAIN ANALYZE SELECT 1": "unsupported", "EXPLAIN FORMAT=JSON SELECT 1": "unsupported",
    "EXPLAIN (SELECT 1)": "unsupported", "ANALYZE TABLE visits": "unsupported", "EXPLAIN TABLE visits": "unsupported",
    "SHOW BINARY LOGS": "unsupported", "SHOW ENGINE INNODB STATUS": "unsupported", "SHOW PROFILES": "unsupported",
    "SHOW TABLES WHERE (SELECT COUNT(*) FROM wards) > 0": "unsupported", "DELETE FROM information_schema.tables": "unsupported",
    "SELECT * FROM information_schema.tables, duckdb_settings()": "unsupported",
    "SELECT * FROM information_schema.tables, visits": "unsupported",
    "SELECT * FROM information_schema.tables WHERE (SELECT COUNT(*) FROM duckdb_tables) > 0": "unsupported",
    "SELECT * FROM information_schema.tables WHERE table_name = getenv('HOME')": "unsupported",
    "SELECT *, repeat(table_name, 1000000000) FROM information_schema.tables": "unsupported",
    "WITH RECURSIVE a AS (SELECT 1 x UNION ALL SELECT x + 1 FROM a) SELECT * FROM a, information_schema.tables": "unsupported",
    "SELECT REPEAT('x', 1000000000)": "refused", "SELECT REPEAT('x', 65537)": "refused",
}  # fmt: skip


@pytest.mark.parametrize("text", REFUSALS)
def test_what_is_refused(catalogue, session, text):
    assert refusal(catalogue, session, text) == REFUSALS[text]


@pytest.mark.parametrize("text", ["SELECT SLEEP(9)", "SELECT getenv('HOME')", "SELECT current_setting('memory_limit')", "SELECT REPEAT(REPEAT('x', 9), 9)", "SELECT * FROM visits", "SELECT dp_budget()", "SELECT * FROM duckdb_settings()", "SELECT * FROM hospital.wards", "SELECT * FROM (SELECT 1) AS a, wards", "SELECT random()", "SELECT uuid()"])
def test_what_is_not_the_catalogues_goes_to_the_room(catalogue, session, text):
    assert catalogue.answer(session, text) is None


def test_in_information_schema_its_tables_need_no_other_name(catalogue, session):
    catalogue.answer(session, "USE information_schema")
    assert rows(catalogue, session, "SELECT DATABASE(), COUNT(*) FROM schemata")[0] == ("information_schema", 2)
    assert refusal(catalogue, session, "SELECT * FROM visits") == 1109
    assert catalogue.answer(session, "SELECT * FROM hospital.wards") is None


def test_a_question_that_takes_long_is_stopped(session):
    catalogue = Catalogue("hospital", FakeRoom().schema("alice"), seconds=0.2)
    crossed = ", ".join(f"information_schema.columns AS c{place}" for place in range(12))
    summed = " + ".join(f"c{place}.ordinal_position" for place in range(12))
    assert refusal(catalogue, session, f"SELECT COUNT(*) FROM {crossed} WHERE ({summed}) % 7 = 6") == 3024
    assert rows(catalogue, session, "SELECT 1") == [(1,)]


def test_an_answer_has_an_end(catalogue, session):
    crossed = ", ".join(f"information_schema.columns AS c{place}" for place in range(5))
    assert MOST_ROWS < 14**5
    assert refusal(catalogue, session, f"SELECT 1 FROM {crossed}") == "refused"
    text = "x" * 500
    assert refusal(catalogue, session, f"SELECT '{text}' AS a, '{text}' AS b FROM {crossed}") == "refused"
    assert refusal(catalogue, session, f"SELECT '{text}{text}' AS a FROM information_schema.columns") == "refused"
    assert refusal(catalogue, session, "SELECT REPEAT('x', 600) AS a FROM information_schema.columns") == "refused"
    assert refusal(catalogue, session, "SELECT " + ", ".join(["REPEAT('x', 60)"] * 5)) == "refused"
    many = ", ".join(f"upper(table_name) AS a{place}" for place in range(201))
    assert refusal(catalogue, session, f"SELECT {many} FROM information_schema.tables") == "unsupported"


def test_texts_that_double_have_an_end(catalogue, session):
    """Each step puts the one before beside itself; nine of them reach the end of a text."""
    steps = ["a0 AS (SELECT 'x' AS x)", *(f"a{step} AS (SELECT concat(x, x) AS x FROM a{step - 1})" for step in range(1, 41))]
    (length,) = rows(catalogue, session, f"WITH {', '.join(steps)} SELECT CHAR_LENGTH(x) FROM a40")
    assert length == (512,)
    steps = ["a0 AS (SELECT 'x' AS x)", *(f"a{step} AS (SELECT concat_ws(x, x, x) AS x FROM a{step - 1})" for step in range(1, 41))]
    assert rows(catalogue, session, f"WITH {', '.join(steps)} SELECT CHAR_LENGTH(x) FROM a40") == [(512,)]


def test_the_database_behind_it_reads_nothing_of_the_machine(catalogue):
    for text in ("SELECT * FROM read_text('/etc/hostname')", "ATTACH 'x.duckdb'", "SET memory_limit = '9GB'", "COPY (SELECT 1) TO 'x.csv'"):
        with pytest.raises(duckdb.Error):
            catalogue._connection.execute(text)


def test_while_the_room_is_busy_the_catalogue_is_as_it_was(opening, monkeypatch):
    monkeypatch.setattr("dpsql.serve.mysql.door._FRESH", 0.0)
    with opening() as house, Raw(house.port) as raw:
        raw.login("alice", token=TOKENS["alice"])
        assert len(raw.query("SHOW TABLES")) == 3
        tables = house.room.schema("alice")
        house.room.schema = lambda analyst: tables[:1]
        assert len(raw.query("SHOW TABLES")) == 1

        def busy(analyst):
            raise Refused("busy", "ask again in a moment")

        house.room.schema = busy
        assert len(raw.query("SHOW TABLES")) == 1
        with Raw(house.port) as other:
            other.login("bob", token=TOKENS["bob"])
            assert other.query("SHOW TABLES") == (1041, "ask again in a moment")
