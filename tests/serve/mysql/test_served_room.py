"""The door before the room that serves a database: what one analyst gets through it, and what nobody does."""

import re

import pytest
from mysql_raw import FLAGS, Raw, texts
from mysql_room import TOKENS, FakeKeys

from dpsql.serve.mysql.door import MysqlDoor

served_room = pytest.importorskip("served_room", reason="the room that serves a database is not here")
hostile_statements = pytest.importorskip("hostile_statements", reason="its hostile statements are not here")

SENTINEL = str(served_room.SENTINEL)
MACHINE = re.compile(r"Traceback|\.py\b|site-packages|line \d+, in |File \"|/tmp|/home|pytest")


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    with served_room.served(tmp_path_factory.mktemp("served")) as served:
        door = MysqlDoor(served.room, FakeKeys(), "127.0.0.1", 0)
        door.start()
        served.port = door.port
        yield served
        door.stop()


@pytest.fixture(scope="module")
def raw(house):
    with Raw(house.port) as made:
        assert made.login("alice", token=TOKENS["alice"], flags=FLAGS, database="census")[0] == 0
        yield made


def test_an_answer_is_the_rooms(house, raw):
    text = "SELECT ward, COUNT(*) AS n, AVG(cost) AS mean FROM visits GROUP BY ward ORDER BY ward"
    answered = [texts(row) for row in raw.query(text)]
    assert answered == [[str(value) for value in row] for row in house.room.ask("alice", text, "mysql").rows]
    charged = house.charges()
    spelt = "SELECT `ward`, COUNT(*) AS `_agg_0`, AVG(`cost`) AS `_agg_1` FROM `census`.`visits` GROUP BY `ward` ORDER BY `ward`"
    assert [texts(row) for row in raw.query(spelt)] == answered
    number, columns, _ = raw.prepare("select ward, count(1) n, avg(cost) mean from visits group by ward order by ward /* again */")
    assert columns == 3
    assert len(raw.execute(number)) == 3
    assert house.charges() == charged


def test_notes_are_warnings(house, raw):
    """What the custodian's shell says beside an answer is her own connection's list of warnings."""
    text = "SELECT CAST(file AS CHAR) AS f, COUNT(*) AS n FROM visits GROUP BY CAST(file AS CHAR)"
    assert raw.query(text) == [] and raw.warnings > 0
    notes = [texts(row) for row in raw.query("SHOW WARNINGS")]
    assert len(notes) == house.room.ask("alice", text, "mysql").notes.__len__() and all(note[:2] == ["Note", "1105"] for note in notes)
    [private] = [note[2] for note in notes if "groups are private" in note[2]]
    assert re.search(r"fewer than about \d+ units \(patient\) is missing", private)
    assert [texts(row) for row in raw.query("SHOW COUNT(*) WARNINGS")] == [texts(row) for row in raw.query("SELECT @@warning_count")] == [[str(len(notes))]]
    assert [texts(row) for row in raw.query("SHOW WARNINGS LIMIT 1, 5")] == notes[1:] and [texts(row) for row in raw.query("show warnings limit 1")] == notes[:1]
    # again from what is bought, by a prepared statement, and no more than that to anybody else
    number, *_ = raw.prepare(text)
    assert raw.execute(number) == [] and [texts(row) for row in raw.query("SHOW WARNINGS")] == notes
    with Raw(house.port) as other:
        assert other.login("bob", token=TOKENS["bob"], flags=FLAGS, database="census")[0] == 0
        assert other.query("SHOW WARNINGS") == []
    # the next question has its own, also where it is refused
    assert raw.query("SELECT COUNT(*) FROM nothing")[0] != 0 and raw.query("SHOW WARNINGS") == []
    assert len(raw.query("SELECT beds FROM wards")) == 3 and raw.warnings == 0 and raw.query("SHOW WARNINGS") == []


def test_notes_say_nothing_of_other_peoples_questions(house, raw):
    """How many rows are kept is known once somebody has bought it; and a published view shows nothing of what it is made of."""
    raw.query("SELECT COUNT(*) AS n, SUM(cost) AS total FROM visits WHERE ward = 'B'")
    before = [texts(row)[2] for row in raw.query("SHOW WARNINGS")]
    house.con.execute("CALL dp_contributions('visits', epsilon := 5)")
    assert house.con.execute("SELECT count(*) FROM dp_releases() WHERE operation = 'contributions'").fetchall() == [(1,)]
    raw.query("SELECT COUNT(*) AS n, SUM(cost) AS total FROM visits WHERE ward = 'A'")
    assert before == [texts(row)[2] for row in raw.query("SHOW WARNINGS")] and "rows of each patient are kept" in before[0]
    assert raw.query("SELECT ward, COUNT(*) AS n FROM over_visits GROUP BY ward") and raw.warnings == 0 and raw.query("SHOW WARNINGS") == []


def test_names_that_are_hidden_are_as_names_that_are_not_there(raw):
    said = {raw.query(f"SELECT COUNT(*) FROM {name}")[1].replace(name, "it") for name in ("payroll", "raw_notes", "nothing")}
    assert len(said) == 1
    for text in ("DESCRIBE {}", "SHOW CREATE TABLE {}", "SHOW COLUMNS FROM {}", "SELECT * FROM information_schema.columns WHERE table_name = '{}'"):
        assert str(raw.query(text.format("payroll"))).replace("payroll", "it") == str(raw.query(text.format("nothing"))).replace("nothing", "it")


MYSQL = [
    "SELECT * FROM visits", "SELECT * FROM `visits`", "SELECT ALL * FROM visits", "SELECT DISTINCT file FROM visits", "TABLE visits", "TABLE payroll",
    "SELECT `file` FROM census.visits", "SELECT visits.* FROM visits", "SELECT MAX(x) FROM payroll", "SELECT * FROM `payroll`", "SELECT * FROM census.payroll",
    "SELECT * FROM `hospital`.`main`.`payroll`", "SELECT (SELECT MAX(x) FROM payroll)", "SELECT 1 WHERE EXISTS (SELECT 1 FROM payroll)",
    "SELECT * FROM wards UNION SELECT x, who, who FROM payroll", "SELECT * FROM wards JOIN payroll ON 1 = 1", "SELECT * FROM wards, payroll",
    "SELECT * FROM wards STRAIGHT_JOIN payroll", "SELECT * FROM wards NATURAL JOIN payroll", "WITH a AS (SELECT * FROM payroll) SELECT * FROM a",
    "WITH payroll AS (SELECT 1 AS x) SELECT x FROM hospital.payroll", "SELECT /*!50000 x FROM payroll */", "/*!SELECT*/ * FROM payroll", "SELECT 1 /*!UNION SELECT x FROM payroll*/",
    "SELECT /*+ SET_VAR(sql_mode='') */ * FROM payroll", "SELECT '\\' FROM wards -- ' , x FROM payroll", "SELECT \"\\\" FROM wards -- \" , x FROM payroll",
    "SELECT 'a''' 'b' FROM payroll", "SELECT _binary'x' FROM payroll", "SELECT 5--(SELECT MAX(x) FROM payroll)", "SELECT 5 --\nFROM payroll", "SELECT 1 # \n FROM payroll",
    "SELECT * FROM payroll PROCEDURE ANALYSE()", "SELECT * FROM payroll INTO OUTFILE '/tmp/x'", "SELECT x INTO @a FROM payroll", "SELECT @a := MAX(x) FROM payroll",
    "SELECT LOAD_FILE('/etc/passwd')", "LOAD DATA INFILE '/etc/passwd' INTO TABLE wards", "LOAD DATA LOCAL INFILE '/etc/passwd' INTO TABLE wards",
    "SELECT SLEEP(100)", "SELECT BENCHMARK(1000000000, MD5('a'))", "SELECT REPEAT('x', 1000000000)", "SELECT POW(9, POW(9, 9))", "SELECT GET_LOCK('a', 100)", "DO SLEEP(100)",
    "EXPLAIN SELECT COUNT(*) FROM visits", "DESCRIBE SELECT COUNT(*) FROM visits", "EXPLAIN ANALYZE SELECT COUNT(*) FROM visits", "EXPLAIN FORMAT=JSON SELECT COUNT(*) FROM visits",
    "SHOW INDEX FROM visits", "SHOW TABLE STATUS", "ANALYZE TABLE visits", "CHECK TABLE visits", "CHECKSUM TABLE visits", "SHOW PROFILES", "SHOW ENGINE INNODB STATUS",
    "SELECT table_rows, data_length FROM information_schema.tables", "SELECT * FROM information_schema.statistics", "SELECT * FROM information_schema.processlist",
    "SELECT * FROM mysql.user", "SELECT * FROM performance_schema.events_statements_history", "SELECT * FROM sys.processlist", "SHOW FULL PROCESSLIST", "SHOW BINARY LOGS",
    "SELECT * FROM information_schema.tables t JOIN payroll ON 1 = 1", "SELECT * FROM information_schema.tables WHERE table_name IN (SELECT who FROM payroll)",
    "SHOW TABLES WHERE (SELECT MAX(x) FROM payroll) > 0", "SHOW VARIABLES WHERE Value = (SELECT MAX(x) FROM payroll)", "SHOW COLUMNS FROM wards WHERE Field IN (SELECT who FROM payroll)",
    "SET autocommit = (SELECT MAX(x) FROM payroll)", "SET @a = (SELECT MAX(x) FROM payroll)", "SET GLOBAL max_connections = 1", "SET PERSIST max_connections = 1",
    "SET sql_mode = 'ANSI_QUOTES'", "USE hospital", "USE dpsql", "USE `main`", "KILL 1", "KILL QUERY 1", "SHUTDOWN", "RESTART", "FLUSH TABLES", "RESET MASTER", "PURGE BINARY LOGS TO 'x'",
    "CREATE TABLE x(a int)", "CREATE TABLE x AS SELECT * FROM visits", "CREATE TEMPORARY TABLE x(a int)", "CREATE VIEW x AS SELECT * FROM visits", "DROP TABLE wards", "ALTER TABLE wards ADD a int",
    "TRUNCATE TABLE wards", "RENAME TABLE wards TO w", "INSERT INTO wards VALUES ('D', 1, 'x')", "REPLACE INTO wards VALUES ('D', 1, 'x')", "UPDATE wards SET beds = 9", "DELETE FROM wards",
    "INSERT INTO wards SELECT x, x, who FROM payroll", "CALL dp_protect('wards')", "CALL x()", "PREPARE s FROM 'SELECT * FROM payroll'", "EXECUTE s", "HANDLER visits OPEN", "XA START 'x'",
    "LOCK TABLES wards WRITE", "GRANT ALL ON *.* TO alice", "CREATE USER x", "SELECT 1; SELECT * FROM payroll", "SELECT 1;; DROP TABLE wards", "BEGIN; DROP TABLE wards; COMMIT",
    "SET autocommit = 1; DROP TABLE wards", "SELECT __dp_call('a', 'b')", "SELECT __dp_instance()", "SELECT leak()", "SELECT * FROM leaks()", "SELECT TRIM(1)", "SELECT stats(x) FROM payroll",
    "SELECT * FROM query('FROM payroll')", "SELECT * FROM query_table('payroll')", "SELECT * FROM read_text('/etc/passwd')", "SELECT * FROM '/etc/passwd'", "SELECT * FROM `/etc/passwd`",
    "SELECT * FROM duckdb_settings()", "SELECT * FROM pragma_storage_info('visits')", "SELECT * FROM duckdb_tables()", "SELECT * FROM sqlite_master", "SELECT * FROM pg_catalog.pg_class",
    "SELECT * FROM dpsql.ledger", "SELECT current_setting('threads')", "SELECT getenv('HOME')", "SELECT nextval('numbers')", "SELECT * FROM dp_ledger()",
    "SELECT MIN(file) FROM visits", "SELECT GROUP_CONCAT(file) FROM visits", "SELECT ANY_VALUE(file) FROM visits", "SELECT COUNT(*) FROM visits FOR UPDATE", "SELECT COUNT(*) FROM visits LOCK IN SHARE MODE",
    "SELECT SQL_CALC_FOUND_ROWS COUNT(*) FROM visits", "SELECT FOUND_ROWS()", "SELECT ROW_COUNT()", "SELECT JSON_ARRAYAGG(file) FROM visits", "SELECT file FROM visits GROUP BY file WITH ROLLUP",
    "SELECT * FROM visits AS OF TIMESTAMP '2024-01-01'", "SELECT * FROM visits PARTITION (p0)", "SELECT * FROM visits USE INDEX (i)", "SELECT * FROM visits TABLESAMPLE BERNOULLI (10)",
    "SELECT\u00a0*\u00a0FROM\u00a0payroll", "SELECT * FROM p\u0430yroll", "SELECT * FROM PAYROLL", "SELECT * FROM `PayRoll`", "SELECT * FROM \ufeffpayroll", "\ufeffSELECT * FROM payroll",
]  # fmt: skip


def listed():
    for texts_of_a_reason in hostile_statements.HOSTILE.values():
        for text in texts_of_a_reason:
            yield text
            if text.startswith("FROM "):
                yield f"SELECT * {text}"


@pytest.mark.slow
def test_no_text_in_either_tongue_gets_anything(house, raw):
    """The figures of what is hidden never come, and nothing changes; of those that the room's own tests try, every eighth."""
    before = house.state()[:-1]
    for text, ways in [*((text, (raw.query, raw.prepare)) for text in MYSQL), *((text, (raw.query,)) for text in list(listed())[::8])]:
        for asked in ways:
            answer = asked(text)
            said = str(answer)
            if isinstance(answer, tuple) and len(answer) == 2:
                assert "\n" not in answer[1]
            assert SENTINEL not in said.replace(text, ""), text
            assert not MACHINE.search(said.replace(repr(text)[1:-1], "").replace(text, "")), (text, said)
    assert len(raw.query("SELECT 1")) == 1
    after = house.state()[:-1]
    assert [left for left, right in zip(before, after, strict=True) if left != right] in ([], [before[10]])  # the books alone, by questions that are answered
