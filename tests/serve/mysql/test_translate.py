"""MySQL's texts in DuckDB's words: what a text means is what MySQL would mean by it, or it is refused."""

import datetime
from decimal import Decimal

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsql.serve.mysql.lexing import read
from dpsql.serve.mysql.translate import to_duckdb
from dpsql.serve.passed import Refused

VALUES = {
    # spelling
    "SELECT 'it''s', \"it's\", 'it\\'s', \"a\"\"b\"": ("it's", "it's", "it's", 'a"b'),
    "SELECT 'a\\nb\\t\\\\', '\\%', '\\q', 'a' 'b'": ("a\nb\t\\", "\\%", "q", "ab"),
    "SELECT 5--3, 5 -- 3\n, 1 # x\n + 1, 2 /* x */ + 1, 1/**/+1": (8, 5, 2, 3, 2),
    "SELECT `a``b` FROM (SELECT 1 AS `a``b`) AS t": (1,),
    "SELECT _utf8mb4'x', N'x', 0x41 = 'A', .5, 1e3": ("x", "x", True, Decimal("0.5"), 1000.0),
    "SELECT 1 FROM DUAL WHERE 1 = 1": (1,),
    "SELECT SQL_NO_CACHE 1": (1,),
    # operators
    "SELECT 7 DIV 2, -7 DIV 2, 7 MOD 2, 7 / 2, NULL <=> NULL, 1 <=> NULL": (3, -3, 1, 3.5, True, False),
    "SELECT TRUE || FALSE, TRUE && FALSE, !TRUE, TRUE XOR TRUE, 5 ^ 1, 6 & 3": (True, False, False, False, 4, 2),
    "SELECT 'a%b' LIKE 'a\\%b', 'axb' LIKE 'a\\%b', 'a_b' LIKE 'a\\_b', 'a!b' LIKE 'a!!b' ESCAPE '!'": (True, False, True, True),
    "SELECT 'a\\\\b' LIKE 'a\\\\\\\\b', 'abc' REGEXP 'b', 'abc' RLIKE '^b'": (True, True, False),
    "SELECT 'x' = BINARY 'x', CAST('12' AS SIGNED), CAST('12' AS UNSIGNED), CONVERT('5', SIGNED)": (True, 12, 12, 5),
    "SELECT CAST(12 AS CHAR), CAST('abc' AS CHAR(2)), CONVERT('x' USING utf8mb4), CAST('1.5' AS DECIMAL(4,2))": ("12", "ab", "x", Decimal("1.50")),
    # functions of a name that both have
    "SELECT LENGTH('é'), CHAR_LENGTH('é'), IFNULL(NULL, 1), IF(1 > 2, 'a', 'b'), ISNULL(NULL)": (2, 1, 1, "b", True),
    "SELECT CONCAT('a', NULL), CONCAT('a', 1), CONCAT_WS('-', 'a', NULL, 'b'), GREATEST(1, NULL), LEAST(2, 1)": (None, "a1", "a-b", None, 1),
    "SELECT LOG(EXP(1)), LOG10(100), LOG(2, 8), TRUNCATE(1.29, 1), MID('abc', 2, 1), LOCATE('b', 'abc')": (1.0, 2.0, 3.0, Decimal("1.2"), "b", 2),
    # days: a Sunday, a Monday
    "SELECT DAYOFWEEK('2024-03-03'), WEEKDAY('2024-03-03'), WEEK('2024-03-03'), WEEKOFYEAR('2024-03-03')": (1, 6, 9, 9),
    "SELECT DAYOFWEEK('2024-03-04'), WEEKDAY('2024-03-04'), WEEK('2024-01-06'), MONTH('2024-03-04')": (2, 0, 0, 3),
    "SELECT DATE_FORMAT('2024-03-04 05:06:07', '%Y-%m-%d %H:%i:%s'), DATEDIFF('2024-03-04', '2024-03-01'), YEAR('2024-03-04')": ("2024-03-04 05:06:07", 3, 2024),
    "SELECT DATE('2024-03-04 05:06:07'), DATE_ADD(DATE '2024-01-31', INTERVAL 1 MONTH)": (datetime.date(2024, 3, 4), datetime.datetime(2024, 2, 29)),
    "SELECT ADDDATE('2024-01-31', 1), ADDDATE('2024-01-31', INTERVAL 1 MONTH), SUBDATE('2024-01-31', 31)": (
        datetime.datetime(2024, 2, 1), datetime.datetime(2024, 2, 29), datetime.datetime(2023, 12, 31),
    ),
    "SELECT DATE_ADD('2024-01-31', INTERVAL -1 DAY), '2024-01-31' + INTERVAL 1 DAY, TIMESTAMPADD(HOUR, -3, '2024-01-31')": (
        datetime.datetime(2024, 1, 30), datetime.datetime(2024, 2, 1), datetime.datetime(2024, 1, 30, 21),
    ),
    "SELECT ADDDATE(DATE_FORMAT('2024-03-04 05:06:07', '%Y-%m-01 00:00:00'), INTERVAL 0 SECOND), DATE(DATE_FORMAT('2024-03-04', '%Y-01-01'))": (
        datetime.datetime(2024, 3, 1), datetime.date(2024, 1, 1),
    ),
    "SELECT UNIX_TIMESTAMP('2024-03-01'), FROM_UNIXTIME(1709251200), FROM_UNIXTIME(1709251200 + 1), FROM_UNIXTIME(0, '%Y'), FROM_DAYS(TO_DAYS('2024-03-04')), TO_DAYS('2007-10-07')": (
        1709251200, datetime.datetime(2024, 3, 1), datetime.datetime(2024, 3, 1, 0, 0, 1), "1970", datetime.date(2024, 3, 4), 733321,
    ),
    "SELECT DATE_FORMAT('2024-12-30', '%x-%v'), EXTRACT(YEAR_MONTH FROM DATE '2024-03-04'), TIMESTAMP '2024-03-04 05:06:07'": (
        "2025-01", 202403, datetime.datetime(2024, 3, 4, 5, 6, 7),
    ),
    "SELECT {d '2024-03-04'}, {ts '2024-03-04 05:06:07'}, {t '05:06:07'}, {fn ABS(-1)}, { D '2024-03-04' }": (
        datetime.date(2024, 3, 4), datetime.datetime(2024, 3, 4, 5, 6, 7), datetime.time(5, 6, 7), 1, datetime.date(2024, 3, 4),
    ),
    "SELECT TIMEDIFF('2024-03-04 05:00:00', '2024-03-04 03:30:00')": (datetime.timedelta(hours=1, minutes=30),),
    # texts and numbers that DuckDB has no words for
    "SELECT LPAD('ab', 4, '0'), LPAD('abcdef', 3, '0'), RPAD('ab', 3, '*'), LPAD(7, 2, '0'), LPAD(NULL, 2, '0')": ("00ab", "abc", "ab*", "07", None),
    "SELECT ELT(2, 'a', 'b'), ELT(3, 'a', 'b'), FIELD('b', 'a', 'b'), FIELD('x', 'a'), FIELD(NULL, 'a')": ("b", None, 2, 0, 0),
    "SELECT ROUND(1250, -2), TRUNCATE(1299, -2), AVG(x = 1), AVG(x > 0 AND x < 5) FROM (SELECT 1 AS x UNION ALL SELECT 9) AS t": (1300.0, 1200.0, 0.5, 0.5),
    # statistics
    "SELECT STDDEV(x), STD(x), VARIANCE(x), VAR_SAMP(x), COUNT(DISTINCT x, x) FROM (SELECT 1 AS x UNION ALL SELECT 3) AS t": (1.0, 1.0, 1.0, 2.0, 2),
    "SELECT x FROM (SELECT 3 AS x UNION ALL SELECT NULL UNION ALL SELECT 1) AS t ORDER BY x LIMIT 1, 1": (1,),
    "SELECT x FROM (SELECT 3 AS x UNION ALL SELECT NULL UNION ALL SELECT 1) AS t ORDER BY x DESC LIMIT 1 OFFSET 2": (None,),
}


@pytest.mark.parametrize("text", VALUES)
def test_a_text_means_what_it_means_in_mysql(plain, text):
    (row,) = plain.execute(to_duckdb(text)).fetchall()
    assert row == VALUES[text]


def test_groups_with_rollup():
    text = "SELECT a, b, COUNT(*) FROM (SELECT 1 AS a, 2 AS b) AS t GROUP BY a, b WITH ROLLUP"
    assert sorted(duckdb.connect().execute(to_duckdb(text)).fetchall(), key=str) == [(1, 2, 1), (1, None, 1), (None, None, 1)]


def _week(day: datetime.date, mode: int, *, of_year: bool) -> tuple[int, int]:
    """Return year and number of a week as MySQL's own code reckons them: from the weekday of the first of January."""
    monday, from_one, whole = bool(mode & 1), of_year or bool(mode & 2), bool(mode & 4) == bool(mode & 1)
    year, ordinal = day.year, day.toordinal()

    def first(of: int) -> int:
        """The first day of week 1: of a week that is whole in the year, or has four days of it."""
        january = datetime.date(of, 1, 1)
        since = (january.weekday() + (not monday)) % 7
        return january.toordinal() - since + (7 if (since > 0 if whole else since > 3) else 0)

    if from_one and ordinal < first(year):
        year -= 1
    elif from_one and not whole and ordinal >= first(year + 1):
        year += 1
    return year, (ordinal - first(year)) // 7 + 1


@pytest.mark.parametrize("mode", range(8))
def test_weeks_of_all_modes(mode):
    con = duckdb.connect()
    con.execute("CREATE TABLE t AS SELECT CAST(unnest(generate_series(DATE '1999-12-20', DATE '2028-01-10', INTERVAL 1 DAY)) AS DATE) AS d")
    for day, week, year_week in con.execute(to_duckdb(f"SELECT d, WEEK(d, {mode}), YEARWEEK(d, {mode}) FROM t")).fetchall():
        year, number = _week(day, mode, of_year=True)
        assert (week, year_week) == (_week(day, mode, of_year=False)[1], year * 100 + number), day
    for first, last, called in ((0, 2, "Sunday"), (1, 3, "Monday")):
        if mode in (first, last):
            letters = "%X%V" if called == "Sunday" else "%x%v"
            rows = con.execute(to_duckdb(f"SELECT d, STR_TO_DATE(CONCAT(YEARWEEK(d, {mode}), ' {called}'), '{letters} %W') FROM t")).fetchall()
            assert {begin.strftime("%A") for _, begin in rows} == {called} and {(day - begin).days for day, begin in rows} == set(range(7))


def test_columns_are_called_as_they_were_typed():
    text = "SELECT COUNT(*), month( d ) , `d`, t.d, 1+1 AS two, 'x' FROM (SELECT DATE '2024-01-01' AS d) AS t GROUP BY d"
    cursor = duckdb.connect().execute(to_duckdb(text))
    assert [column[0] for column in cursor.description] == ["COUNT(*)", "month( d )", "d", "d", "two", "'x'"]


def test_calls_of_dpsql_go_through():
    assert to_duckdb("SELECT * FROM dp_query('SELECT 1', epsilon := 0.2, columns := ['a'])") == "SELECT * FROM DP_QUERY('SELECT 1', epsilon := 0.2, \"columns\" := ['a'])"


REFUSED = {
    "syntax": ["", ";", "-- nothing", "SELECT", "SELECT FROM", "SELECT 'a", 'SELECT "a', "SELECT `a", "SELECT 1 /* a", "SELECT :a", "SELECT 'a\\", "SELECT a::int", "SELECT \0", "SELECT 1 INTO OUTFILE 'x'", "SELECT (1", "SELECT 1)"],
    "unsupported": [
        "SELECT 1; SELECT 2", "SELECT 1;; DROP TABLE t", "DELETE FROM t", "INSERT INTO t VALUES (1)", "UPDATE t SET a = 1", "REPLACE INTO t VALUES (1)",
        "CREATE TABLE t(a int)", "DROP TABLE t", "ALTER TABLE t ADD b int", "TRUNCATE t", "CALL p()", "DO 1", "LOAD DATA INFILE 'x' INTO TABLE t",
        "HANDLER t OPEN", "LOCK TABLES t READ", "GRANT ALL ON t TO x", "PREPARE s FROM 'SELECT 1'", "EXECUTE s", "XA START 'x'", "FLUSH TABLES",
        "COPY t TO 'x'", "ATTACH 'x'", "PRAGMA version", "INSTALL httpfs", "FROM t", "EXPLAIN SELECT 1", "KILL 1", "SET autocommit = 1",
        "/*!50000 SELECT */ 1", "SELECT /*!50000 1, */ 2", "SELECT /*M!100000 1, */ 2", "SELECT 1 /*! UNION SELECT 2 */",
        "SELECT @a", "SELECT @@version, a FROM t", "SELECT @a := 1", "SELECT a FROM t FOR UPDATE", "SELECT a FROM t LOCK IN SHARE MODE",
        "SELECT SQL_CALC_FOUND_ROWS a FROM t", "SELECT WEEK(d, 8) FROM t", "SELECT YEARWEEK(d, m) FROM t", "SELECT TIMESTAMP(d, t) FROM t",
        "SELECT DATE_FORMAT(d, '%X-%V') FROM t", "SELECT DATE_FORMAT(d, '%u') FROM t", "SELECT STR_TO_DATE(CONCAT(YEARWEEK(d, 3), ' Monday'), '%X%V %W') FROM t",
        "SELECT LPAD(a, b, '0') FROM t", "SELECT ROUND(a, -b) FROM t", "SELECT MAKEDATE(y, 32) FROM t",
    ],
}  # fmt: skip


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in REFUSED.items() for text in texts])
def test_what_is_no_question_is_refused(kind, text):
    with pytest.raises(Refused) as raised:
        to_duckdb(text)
    assert raised.value.kind == kind
    assert "\n" not in raised.value.text


@pytest.mark.parametrize("outer", ["LPAD({}, 9, '0')", "FIELD({}, 1, 2)"])
def test_meanings_that_hold_an_argument_twice_do_not_grow_without_end(outer):
    text = "a"
    for _ in range(17):
        text = outer.format(text)
    with pytest.raises(Refused, match="too long"):
        to_duckdb(f"SELECT {text} FROM t")


@pytest.mark.parametrize("text", ["SELECT ?", "SELECT 1"])
def test_as_many_parameters_as_places(text):
    with pytest.raises(Refused, match="parameters"):
        to_duckdb(text, [1, 2])


def test_question_marks_in_strings_and_comments_are_no_places():
    assert to_duckdb("SELECT '?', \"?\", `?`, ? /* ? */ FROM t -- ?", [7]) == "SELECT '?' AS \"'?'\", '?' AS \"'?'\", \"?\", 7 FROM t"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), b"\xff", object(), [1]])
def test_values_that_are_no_literals(value):
    with pytest.raises(Refused):
        to_duckdb("SELECT ?", [value])


TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)


@given(st.lists(TEXT | st.integers(-(2**62), 2**62) | st.none() | st.booleans() | st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**9), max_value=10**9, places=4), min_size=1, max_size=4))
def test_a_parameter_comes_back_as_it_was(plain_database, values):
    text = to_duckdb("SELECT " + ", ".join("?" for _ in values), values)
    assert plain_database.execute(text).fetchall() == [tuple(values)]


@given(TEXT)
def test_a_string_written_by_mysqls_rules_comes_back_as_it_was(plain_database, value):
    for quote in "'\"":
        escaped = value.replace("\\", "\\\\").replace(quote, quote * 2)
        slashed = value.replace("\\", "\\\\").replace("'", "\\'").replace('"', '\\"').replace("\n", "\\n")
        for inner in (escaped, slashed):
            assert plain_database.execute(to_duckdb(f"SELECT {quote}{inner}{quote} AS s")).fetchall() == [(value,)]


@given(st.text(st.sampled_from("'\"`\\/*-#;? a1!\n(),@:="), max_size=30))
def test_a_text_that_was_written_again_reads_the_same(text):
    """What is read once more is taken for the same statements, and holds no comment."""
    try:
        once = read("SELECT 1 " + text)
    except Refused:
        return
    for statement in once.statements:
        if "dpsql_parameter" in statement:
            continue
        again = read(statement)
        assert again.statements == (statement,)
