"""Commands over raw sockets: what is answered, what is refused, and that an answer belongs to its question."""

import datetime
import struct
import threading
from decimal import Decimal

import pytest
from mysql_raw import Closed, Raw, error, texts
from mysql_room import TOKENS

TOKEN = TOKENS["alice"]


@pytest.fixture
def raw(house):
    with Raw(house.port) as made:
        assert made.login("alice", token=TOKEN)[0] == 0
        yield made


def counted(value):
    return bytes([len(value)]) + value


def typed(*kinds_and_values, types=True):
    """Return the rest of an execution: no nulls, types if they are sent, values."""
    nulls = bytes((len(kinds_and_values) + 7) // 8)
    kinds = b"".join(struct.pack("<H", kind) for kind, _ in kinds_and_values)
    return nulls + (b"\1" + kinds if types else b"\0") + b"".join(value for _, value in kinds_and_values)


def test_pings_databases_and_options(raw):
    for code, payload, first in ((14, b"", 0), (2, b"hospital", 0), (2, b"information_schema", 0), (0x1B, b"\1\0", 0xFE), (0x1F, b"", 0)):
        raw.command(code, payload)
        assert raw.read()[0] == first
    for code, payload, number in ((2, b"nope", 1049), (2, b"main", 1049), (0x1B, b"\0\0", 1235)):
        raw.command(code, payload)
        assert error(raw.read())[0] == number
    raw.command(1)
    with pytest.raises(Closed):
        raw.read()


@pytest.mark.parametrize("code", [*(set(range(0x22)) - {1, 2, 3, 4, 0x0E, 0x11, 0x16, 0x17, 0x18, 0x19, 0x1A, 0x1B, 0x1F}), 0xFA, 0xFF])
def test_every_other_command_is_refused(raw, code):
    raw.command(code, b"\1\0\0\0\0\0\0\0\0\0")
    assert error(raw.read())[0] == 1047
    assert raw.query("SELECT 1") != []


@pytest.mark.parametrize("payload", [b"", b"\x17", b"\x17\1\0", b"\x18\1", b"\x19", b"\x1a\1", b"\x1b"])
def test_commands_that_are_cut_off(house, payload):
    with Raw(house.port) as raw:
        raw.login("alice", token=TOKEN)
        raw.sequence = 0
        raw.send(payload)
        raw.sequence = 0
        raw.send(b"\x01")
        said = b""
        try:
            said = raw.read()
        except Closed:
            return
        assert error(said)[0] in (1835, 1243)


def test_a_packet_out_of_order_ends_the_connection(raw):
    raw.send(b"\x0e", sequence=5)
    assert error(raw.read())[0] == 1835
    with pytest.raises(Closed):
        raw.read()


def test_fields_of_a_table(raw):
    raw.command(4, b"wards\0%")
    first = raw.read()
    assert b"\x04ward" in first
    assert first.endswith(b"\xfb")
    assert b"building" in raw.read()
    assert raw.read()[0] == 0xFE
    raw.command(4, b"nothing\0")
    assert error(raw.read()) == (1146, "Table 'hospital.nothing' doesn't exist")


def test_errors_have_their_numbers_and_one_line(house, raw):
    for text, number in {
        "SELECT COUNT(*), 'busy' FROM visits": 1041,
        "SELECT COUNT(*), 'stopped' FROM visits": 3024,
        "SELECT COUNT(*), 'failed' FROM visits": 1105,
        "SELECT * FROM visits": 1142,
        "SELECT * FROM nothing": 1146,
        "SELECT nothing FROM wards": 1054,
        "SELECT FROM WHERE": 1064,
        "": 1064,
        "DELETE FROM wards": 1235,
        "SELECT @@nothing": 1193,
        "SELECT 1; SELECT 2": 1235,
        "SELECT 'abc": 1064,
    }.items():
        code, said = raw.query(text)
        assert code == number, text
        assert "\n" not in said
    assert house.room.asked[-1][0] == "alice"


def test_what_goes_wrong_inside_is_not_told(raw):
    assert raw.query("SELECT COUNT(*), 'trace' FROM visits") == (1105, "the server could not answer this")
    assert raw.query("SELECT 1 AS a")[0] == b"\x011"


def test_text_that_is_not_utf8(raw):
    raw.command(3, b"SELECT '\xff'")
    assert error(raw.read())[0] == 1300


def test_killing_is_for_ones_own_connection(house, raw):
    own = int(texts(raw.query("SELECT CONNECTION_ID()")[0])[0])
    with Raw(house.port) as other:
        other.login("alice", token=TOKEN)
        theirs = int(texts(other.query("SELECT CONNECTION_ID()")[0])[0])
        assert theirs != own
        said = {raw.query(f"KILL {what}{theirs}") for what in ("", "QUERY ", "CONNECTION ")} | {raw.query("KILL 4711")}
        assert said == {(1095, "You are not owner of this thread: a connection ends itself alone")}
        assert len(other.query("SELECT 1")) == 1
    raw.command(0x0C, struct.pack("<I", own))
    assert error(raw.read())[0] == 1047
    assert raw.query(f"KILL {own}") == []
    with pytest.raises(Closed):
        raw.query("SELECT 1")


def test_numbers_of_connections_do_not_count_them(house):
    numbers = []
    for _ in range(4):
        with Raw(house.port) as raw:
            at = raw.greeting.index(b"\0") + 1
            numbers.append(int.from_bytes(raw.greeting[at : at + 4], "little"))
    assert len({later - former for former, later in zip(numbers, numbers[1:], strict=False)}) == 3
    assert max(numbers) > 1 << 16


# prepared statements


def test_an_answer_is_of_its_own_question(raw):
    number, columns, parameters = raw.prepare("SELECT COUNT(*) AS n FROM visits WHERE age > ? AND sex = ?")
    assert (columns, parameters) == (1, 2)
    first = raw.execute(number, typed((8, struct.pack("<q", 30)), (253, counted(b"F"))))
    assert raw.query("SELECT 'next'") == [b"\x04next"]
    assert raw.execute(number, typed((8, struct.pack("<q", 200)), (253, counted(b"F")))) == [bytes(2) + bytes(8)]
    assert first != [bytes(10)]
    assert raw.query("SELECT 'last'") == [b"\x04last"]


def test_a_second_execution_without_types(raw):
    number, _, _ = raw.prepare("SELECT ? AS a, ? AS b")
    assert raw.execute(number, typed((8, struct.pack("<q", 30)), (253, counted(b"F")), types=False))[0] == 1210
    values = (8, struct.pack("<q", 30)), (253, counted(b"F"))
    first = raw.execute(number, typed(*values))
    assert raw.execute(number, typed(*values, types=False)) == first
    assert first[0].endswith(b"\x01F")


HOSTILE = ["O'Brien", "' OR 1=1 -- ", "\\' OR 1=1 -- ", '"', "`", "\\", "\\\\'", "a\nb", "/*! 1 */", "?", ":dpsql_parameter_0", "%_\\%", "é\u2028", "; SELECT 1"]


@pytest.mark.parametrize("value", HOSTILE)
def test_a_value_is_a_value(raw, value):
    number, _, _ = raw.prepare("SELECT ? AS given")
    rows = raw.execute(number, typed((253, counted(value.encode()))))
    assert rows == [bytes(2) + counted(value.encode())]
    count, _, _ = raw.prepare("SELECT COUNT(*) AS n FROM wards WHERE building = ?")
    assert raw.execute(count, typed((253, counted(value.encode())))) == [bytes(2) + bytes(8)]


VALUES = {
    "TINY": (1, b"\xff", "-1"),
    "TINY without a sign": (0x8001, b"\xff", "255"),
    "SHORT": (2, b"\1\1", "257"),
    "LONG": (3, b"\xfe\xff\xff\xff", "-2"),
    "LONGLONG": (8, struct.pack("<q", -(1 << 62)), str(-(1 << 62))),
    "FLOAT": (4, struct.pack("<f", 0.1), "0.1"),
    "DOUBLE": (5, struct.pack("<d", -2.5), "-2.5"),
    "DECIMAL": (246, counted(b"-12.50"), "-12.50"),
    "DATE": (10, b"\x04" + struct.pack("<HBB", 2024, 2, 29), "'2024-02-29'"),
    "DATETIME": (12, b"\x07" + struct.pack("<HBBBBB", 2024, 2, 29, 1, 2, 3), "'2024-02-29 01:02:03'"),
    "TIMESTAMP": (7, b"\x0b" + struct.pack("<HBBBBBI", 2024, 2, 29, 1, 2, 3, 4), "'2024-02-29 01:02:03.000004'"),
    "DATETIME of a day": (12, b"\x04" + struct.pack("<HBB", 2024, 2, 29), "'2024-02-29 00:00:00'"),
    "TIME": (11, b"\x08" + struct.pack("<BIBBB", 0, 0, 1, 2, 3), "'01:02:03'"),
    "BLOB": (252, counted(b"abc"), "'abc'"),
    "NULL": (6, b"", "NULL"),
}


@pytest.mark.parametrize("kind", VALUES)
def test_a_parameter_is_a_literal_of_the_statement(house, raw, kind):
    code, value, literal = VALUES[kind]
    number, _, _ = raw.prepare("SELECT COUNT(*) AS n, ? AS given FROM wards")
    assert len(raw.execute(number, typed((code, value)))) == 1
    assert house.room.asked[-1] == ("alice", f"SELECT COUNT(*) AS n, {literal} AS given FROM wards")


BAD = {
    "a day of no month": (10, b"\x04" + struct.pack("<HBB", 2024, 13, 1), 1292),
    "a zero date": (12, b"\x00", 1292),
    "a negative time": (11, b"\x08" + struct.pack("<BIBBB", 1, 0, 1, 2, 3), 1292),
    "a length of a date that there is not": (10, b"\x05abcde", 1835),
    "no number": (246, counted(b"1); DROP"), 1835),
    "not finite": (5, struct.pack("<d", float("nan")), 1064),
    "an exponent": (246, counted(b"1E+999999999"), 1835),
    "not UTF-8": (253, counted(b"\xff"), 1366),
    "no type": (77, b"", 1835),
    "cut off": (253, b"\x09abc", 1835),
    "longer than the packet": (253, b"\xfe" + b"\xff" * 8, 1835),
}


@pytest.mark.parametrize("case", BAD)
def test_parameters_that_are_none(raw, case):
    code, value, number = BAD[case]
    statement, _, _ = raw.prepare("SELECT ? AS given FROM wards")
    assert raw.execute(statement, typed((code, value)))[0] == number
    assert len(raw.query("SELECT 1")) == 1


def test_values_in_pieces(house, raw):
    number, _, _ = raw.prepare("SELECT ? AS given, COUNT(*) AS n FROM wards")
    for piece in (b"O'Br", b"ien"):
        raw.command(0x18, struct.pack("<IH", number, 0) + piece)
    raw.execute(number, b"\0\1" + struct.pack("<H", 252))
    assert house.room.asked[-1][1] == "SELECT 'O''Brien' AS given, COUNT(*) AS n FROM wards"
    raw.command(0x18, struct.pack("<IH", number, 7) + b"x")
    assert raw.execute(number, typed((253, counted(b"a"))))[0] == 1210
    raw.command(0x18, struct.pack("<IH", number, 0) + b"x")
    raw.command(0x1A, struct.pack("<I", number))
    assert raw.read()[0] == 0
    raw.execute(number, typed((253, counted(b"kept"))))
    assert "'kept'" in house.room.asked[-1][1]


def test_statements_are_dropped_and_have_an_end(raw, monkeypatch):
    monkeypatch.setattr("dpsql.serve.mysql.prepared.MOST", 8)
    number, _, _ = raw.prepare("SELECT 1")
    raw.command(0x19, struct.pack("<I", number))
    assert raw.execute(number)[0] == 1243
    raw.command(0x1A, struct.pack("<I", 99))
    assert error(raw.read())[0] == 1243
    kept = [raw.prepare("SELECT 1") for _ in range(9)]
    assert all(len(one) == 3 for one in kept[:8])
    assert kept[-1] == (1461, "Can't create more than 8 prepared statements on a connection")
    raw.command(0x1F)
    assert raw.read()[0] == 0
    assert raw.execute(kept[0][0])[0] == 1243


def test_preparing_asks_nothing_and_does_nothing(house, raw):
    asked = len(house.room.asked)
    assert raw.prepare("SELECT ward, COUNT(*) FROM visits GROUP BY ward")[1:] == (2, 0)
    assert raw.prepare("SELECT COUNT(*) FROM visits WHERE age > ?")[1:] == (1, 1)
    for text in ("SET autocommit = 0", "USE information_schema", "START TRANSACTION", "KILL 1", "COMMIT"):
        assert raw.prepare(text)[1:] == (0, 0)
    assert texts(raw.query("SELECT @@autocommit, DATABASE()")[0]) == ["1", "hospital"]
    assert len(house.room.asked) == asked
    assert raw.prepare("SELECT * FROM visits")[0] == 1142  # what has no parameter is refused at once
    assert raw.prepare("SELECT * FROM visits WHERE age > ?")[1:] == (0, 1)  # what has one when it is executed
    for text, number in {"SELECT * FROM nothing WHERE a = ?": 1146, "SELECT nothing FROM wards WHERE ward = ?": 1054, "SELECT ?; SELECT 1": 1235}.items():
        assert raw.prepare(text)[0] == number
    number, _, _ = raw.prepare("SET autocommit = 0")
    assert raw.execute(number) == []
    assert texts(raw.query("SELECT @@autocommit")[0]) == ["0"]


def test_a_limit_of_rows_is_applied_to_the_answer(house, raw):
    raw.query("SET @@SQL_SELECT_LIMIT=2")
    assert len(raw.query("SELECT * FROM visits_synth")) == 2
    assert house.room.asked[-1][1] == "SELECT * FROM visits_synth"
    raw.query("SET @@SQL_SELECT_LIMIT=DEFAULT")
    assert len(raw.query("SELECT * FROM visits_synth")) == 20


def test_binary_rows(raw):
    number, columns, _ = raw.prepare("SELECT * FROM visits_synth WHERE patient_id = 1")
    assert columns == 6
    (row,) = raw.execute(number)
    day = datetime.datetime(2024, 1, 1, 7)
    moment = b"\x07" + struct.pack("<HBBBBB", day.year, day.month, day.day, day.hour, 0, 0)
    cost = counted(str(Decimal("1.25")).encode())
    assert row == b"\0\0" + struct.pack("<q", 1) + counted(b"surgery") + cost + moment + counted(b"M") + struct.pack("<i", 1)


def test_one_connection_does_not_wait_for_another(house, raw):
    house.room.hold.clear()
    with Raw(house.port) as waiting:
        waiting.login("bob", token=TOKENS["bob"])
        waiting.command(3, "SELECT COUNT(*), 'wait' FROM visits")
        assert house.room.waiting.wait(60)
        assert len(raw.query("SELECT ward, COUNT(*) FROM visits GROUP BY ward")) == 3
        house.room.hold.set()
        assert len(waiting.rows()) == 1


def test_an_answer_leaves_at_a_multiple_of_a_time(opening, monkeypatch):
    slept = []
    monkeypatch.setattr("dpsql.serve.mysql.talking.time.sleep", slept.append)
    with opening(every=8.0) as house, Raw(house.port) as raw:
        raw.login("alice", token=TOKEN)
        assert len(raw.query("SELECT COUNT(*) FROM visits")) == 1
        assert raw.query("SELECT * FROM visits")[0] == 1142
        raw.command(14)
        assert raw.read()[0] == 0
    assert len(slept) == 2  # of a refusal, too
    assert all(0 < seconds < 8 for seconds in slept)


def test_stopping_finishes_what_runs(opening):
    with opening() as house, Raw(house.port) as idle, Raw(house.port) as busy, Raw(house.port):
        idle.login("alice", token=TOKEN)
        busy.login("alice", token=TOKEN)
        house.room.hold.clear()
        busy.command(3, "SELECT COUNT(*), 'wait' FROM visits")
        assert house.room.waiting.wait(60)
        stopping = threading.Thread(target=house.door.stop)
        stopping.start()
        with pytest.raises(Closed):
            idle.read()
        house.room.hold.set()
        assert len(busy.rows()) == 1
        with pytest.raises(Closed):
            busy.read()
        stopping.join(60)
        assert not stopping.is_alive()
        with pytest.raises(OSError, match="refused"):
            Raw(house.port)
