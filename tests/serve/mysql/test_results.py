"""Values of every type of DuckDB as MySQL's protocol has them: as text, and in binary."""

import datetime
import struct

import pytest

from dpsql.serve.mysql.results import definition, rows
from dpsql.serve.mysql.types import of_duckdb
from dpsql.serve.passed import Column

# An expression, its type of the catalogue, its code, its text, its bytes in a binary row (None: as the text, after its length).
CASES = {
    "true": ("tinyint(1)", 1, "1", b"\1"),
    "(-5)::TINYINT": ("tinyint", 1, "-5", b"\xfb"),
    "200::UTINYINT": ("tinyint unsigned", 1, "200", b"\xc8"),
    "(-300)::SMALLINT": ("smallint", 2, "-300", struct.pack("<h", -300)),
    "60000::USMALLINT": ("smallint unsigned", 2, "60000", struct.pack("<H", 60000)),
    "7": ("int", 3, "7", struct.pack("<i", 7)),
    "4000000000::UINTEGER": ("int unsigned", 3, "4000000000", struct.pack("<I", 4000000000)),
    "(-9000000000)::BIGINT": ("bigint", 8, "-9000000000", struct.pack("<q", -9000000000)),
    "18446744073709551615::UBIGINT": ("bigint unsigned", 8, "18446744073709551615", b"\xff" * 8),
    "170141183460469231731687303715884105727::HUGEINT": ("decimal(38,0)", 246, "170141183460469231731687303715884105727", None),
    "(-1.50)::DECIMAL(10, 2)": ("decimal(10,2)", 246, "-1.50", None),
    "0.000000000001::DECIMAL(18, 12)": ("decimal(18,12)", 246, "0.000000000001", None),
    "0.1::FLOAT": ("float", 4, "0.1", struct.pack("<f", 0.1)),
    "16777217.0::FLOAT": ("float", 4, "16777216", struct.pack("<f", 16777216.0)),
    "1e300::DOUBLE": ("double", 5, "1e+300", struct.pack("<d", 1e300)),
    "(1.0/3.0)::DOUBLE": ("double", 5, "0.3333333333333333", struct.pack("<d", 1 / 3)),
    "'NaN'::DOUBLE": ("double", 5, None, b""),
    "'-inf'::DOUBLE": ("double", 5, None, b""),
    "'inf'::FLOAT": ("float", 4, None, b""),
    "DATE '2024-02-29'": ("date", 10, "2024-02-29", b"\x04" + struct.pack("<HBB", 2024, 2, 29)),
    "DATE '0044-03-15'": ("date", 10, "0044-03-15", b"\x04" + struct.pack("<HBB", 44, 3, 15)),
    "TIMESTAMP '2024-02-29'": ("datetime(6)", 12, "2024-02-29 00:00:00", b"\x04" + struct.pack("<HBB", 2024, 2, 29)),
    "TIMESTAMP '2024-02-29 01:02:03'": ("datetime(6)", 12, "2024-02-29 01:02:03", b"\x07" + struct.pack("<HBBBBB", 2024, 2, 29, 1, 2, 3)),
    "TIMESTAMP '2024-02-29 00:00:00.000004'": ("datetime(6)", 12, "2024-02-29 00:00:00.000004", b"\x0b" + struct.pack("<HBBBBBI", 2024, 2, 29, 0, 0, 0, 4)),
    "TIMESTAMPTZ '2024-02-29 01:00:00+02'": ("datetime(6)", 12, "2024-02-28 23:00:00", b"\x07" + struct.pack("<HBBBBB", 2024, 2, 28, 23, 0, 0)),
    "TIME '00:00:00'": ("time(6)", 11, "00:00:00", b"\0"),
    "TIME '01:02:03'": ("time(6)", 11, "01:02:03", b"\x08" + struct.pack("<BIBBB", 0, 0, 1, 2, 3)),
    "TIME '01:02:03.5'": ("time(6)", 11, "01:02:03.500000", b"\x0c" + struct.pack("<BIBBBI", 0, 0, 1, 2, 3, 500000)),
    "'é'": ("varchar(16383)", 253, "é", None),
    "''": ("varchar(16383)", 253, "", None),
    "'x'::ENUM('x')": ("varchar(16383)", 253, "x", None),
    "'ab'::BLOB": ("blob", 252, "ab", None),
    "INTERVAL 1 DAY": ("varchar(16383)", 253, "1 day, 0:00:00", None),
    "'00000000-0000-0000-0000-000000000001'::UUID": ("varchar(16383)", 253, "00000000-0000-0000-0000-000000000001", None),
    "[1, NULL, 3]": ("varchar(16383)", 253, "[1, null, 3]", None),
    "{'a': 'é', 'b': [DATE '2024-01-01']}": ("varchar(16383)", 253, '{"a": "é", "b": ["2024-01-01"]}', None),
    "MAP {1: 'NaN'::DOUBLE}": ("varchar(16383)", 253, '{"1": null}', None),
    "NULL::BIGINT": ("bigint", 8, None, b""),
    "NULL": (None, None, None, b""),
    "repeat('x', 70000)": ("varchar(16383)", 253, "x" * 70000, None),
}


@pytest.mark.parametrize("expression", CASES)
def test_a_value_of_a_type(plain, expression):
    full, code, text, binary = CASES[expression]
    cursor = plain.execute(f"SELECT {expression} AS v")
    column, values = Column("v", str(cursor.description[0][1])), cursor.fetchall()
    kind = of_duckdb(column.type)
    if full is not None:
        assert (kind.full, kind.code) == (full, code)
    said = definition(column)
    assert said[:16] == b"\x03def\0\0\0\x01v\x01v\x0c" + struct.pack("<H", kind.charset) + struct.pack("<I", kind.length)[:2]
    (shown,) = rows([column], values, binary=False)
    (packed,) = rows([column], values, binary=True)
    if text is None:
        assert shown == b"\xfb"
        assert packed == b"\0\x04"
        return
    encoded = text.encode()
    size = bytes([len(encoded)]) if len(encoded) < 251 else b"\xfd" + len(encoded).to_bytes(3, "little")
    assert shown == size + encoded
    assert packed == b"\0\0" + (size + encoded if binary is None else binary)


def test_nulls_of_many_columns():
    columns = [Column(f"c{place}", "TINYINT") for place in range(10)]
    (packed,) = rows(columns, [tuple(None if place in (0, 5, 6, 9) else place for place in range(10))], binary=True)
    assert packed == b"\0" + bytes([0b10000100, 0b00001001]) + bytes([1, 2, 3, 4, 7, 8])


def test_numbers_are_binary_and_texts_are_utf8():
    for name in ("BIGINT", "DOUBLE", "DECIMAL(4,1)", "DATE", "TIMESTAMP", "BLOB", "BOOLEAN"):
        assert of_duckdb(name).charset == 63
    assert of_duckdb("VARCHAR").charset == of_duckdb("INTEGER[]").charset == 45
    assert of_duckdb("DOUBLE").decimals == of_duckdb("FLOAT").decimals == 31
    assert of_duckdb("DECIMAL(10,2)").decimals == 2


def test_a_date_that_python_has_no_value_for_is_null():
    assert list(rows([Column("d", "DATE")], [("5874897-12-31 (BC)",)], binary=False)) == [b"\xfb"]
    assert list(rows([Column("d", "DATE")], [("5874897-12-31 (BC)",)], binary=True)) == [b"\0\x04"]
    assert list(rows([Column("d", "TIMESTAMP")], [(datetime.date(2024, 1, 1),)], binary=False)) == [b"\x132024-01-01 00:00:00"]
