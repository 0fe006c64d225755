"""Types and values of every kind, by DuckDB's own way to Arrow where it is the same."""

import datetime as dt
from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest

from dpsql.serve.flight.types import batches_of, type_of
from dpsql.serve.passed import Answer, Column, Refused

SAME = (
    "true", "1::TINYINT", "1::SMALLINT", "1", "1::BIGINT", "1::UTINYINT", "1::USMALLINT", "1::UINTEGER", "18446744073709551615::UBIGINT", "1.5::FLOAT", "1.5::DOUBLE",
    "'nan'::DOUBLE", "'-inf'::FLOAT", "1.50::DECIMAL(9,2)", "-12345678901234567890.123456::DECIMAL(38,6)", "12345678901234567890::HUGEINT", "DATE '2024-02-29'", "DATE '0001-01-01'", "DATE '9999-12-31'",
    "TIME '23:59:59.123456'", "TIMESTAMP '2024-02-29 12:30:05.000250'", "TIMESTAMP_S '2024-02-29 12:30:05'", "TIMESTAMP_MS '2024-02-29 12:30:05.25'", "TIMESTAMP_NS '2024-02-29 12:30:05.25'",
    "'x'::BLOB", "'ä € 𝄞'", "''", "'a\tb'", "[1, NULL, 3]", "[['a'], [], NULL]", "[1.5::DECIMAL(4,2)]", "{'a': 1, 'b c': ['x'], 'DATE': DATE '2024-01-01'}", "MAP {'a': 1, 'b': NULL}", "[{'a': [1]}]::STRUCT(a INTEGER[])[]",
    "array_value(1, 2, 3)", "MAP {1: [DATE '2024-01-01']}", "[]::INTEGER[]", "{'a \" ,b': {'(c]': [1::HUGEINT]}}",
)  # fmt: skip
TEXTS = {
    "'a'::ENUM('a', 'b,''c]')": "a", "uuid '00000000-0000-0000-0000-000000000007'": "00000000-0000-0000-0000-000000000007", "'0101'::BIT": "0101", "'{\"a\": 1}'::JSON": '{"a": 1}',
    "union_value(num := 2)": "2", "['a'::ENUM('a', 'b')]": ["a"],
}  # fmt: skip


def answered(con, *values):
    sql = "FROM (VALUES " + ", ".join(f"({value})" for value in values) + ") t(v)"
    columns, rows = con.execute(f"DESCRIBE {sql}").fetchall(), con.execute(sql).fetchall()
    return table(Answer((Column("v", columns[0][1]),), rows))


def table(answer):
    schema, batches = batches_of(answer)
    return pa.Table.from_batches(batches, schema)


@pytest.fixture(scope="module")
def con():
    with duckdb.connect() as made:
        made.execute("SET TimeZone = 'UTC'")
        yield made


@pytest.mark.parametrize("value", SAME)
def test_as_duckdb_does_it(con, value):
    found = answered(con, value, "NULL")
    own = con.sql(f"FROM (VALUES ({value}), (NULL)) t(v)").to_arrow_table()
    assert found.schema.field("v").type == own.schema.field("v").type
    assert repr(found["v"].to_pylist()) == repr(own["v"].to_pylist())


@pytest.mark.parametrize("value", TEXTS)
def test_what_is_text(con, value):
    assert answered(con, value, "NULL")["v"].to_pylist() == [TEXTS[value], None]


def test_instants_are_in_utc(con):
    found = answered(con, "TIMESTAMPTZ '2024-07-01 12:00:00+02:00'", "NULL")
    assert found["v"].type == pa.timestamp("us", "UTC") and found["v"].to_pylist() == [dt.datetime(2024, 7, 1, 10, tzinfo=dt.UTC), None]
    zone = dt.timezone(dt.timedelta(hours=5))
    found = table(Answer((Column("v", "TIMESTAMP WITH TIME ZONE"),), [(dt.datetime(2024, 7, 1, 12, tzinfo=zone),), (dt.datetime(2024, 7, 1),)]))
    assert found["v"].to_pylist() == [dt.datetime(2024, 7, 1, 7, tzinfo=dt.UTC), dt.datetime(2024, 7, 1, tzinfo=dt.UTC)]


def test_other_values(con):
    assert answered(con, "INTERVAL '1 month 2 days 3 seconds'")["v"].to_pylist() == [dt.timedelta(days=32, seconds=3)]
    assert answered(con, "340282366920938463463374607431768211455::UHUGEINT")["v"].to_pylist() == [Decimal(2**128 - 1)]
    assert answered(con, "NULL")["v"].null_count == 1
    for kind in ("DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE", "TIME"):  # what Python does not have comes as a text, or not at all
        assert table(Answer((Column("v", kind),), [("0044-03-15 (BC)",), (None,)]))["v"].null_count == 2
    assert type_of("SOMETHING NEW(1)") == pa.string()


def test_what_does_not_fit_is_refused(con):
    """The line names the column; no value is in it."""
    with pytest.raises(Refused) as refused:
        answered(con, "170141183460469231731687303715884105727::HUGEINT")
    assert refused.value.kind == "failed" and refused.value.text == "a value of the column 'v' does not fit Arrow's decimal128(38, 0): CAST it to DOUBLE or VARCHAR"


def test_names_and_pieces():
    columns = tuple(Column(name, "VARCHAR") for name in ("ward", "ward", "", "ü \" ; x", "π" * 300))
    rows = [("x" * 1000,) * 5] * 1000
    schema, batches = batches_of(Answer(columns, rows))
    pieces = list(batches)
    assert schema.names == [column.name for column in columns] and sum(piece.num_rows for piece in pieces) == 1000
    assert len(pieces) > 3 and max(piece.nbytes for piece in pieces) < 2 << 20
    assert table(Answer(columns, [])).num_rows == 0
