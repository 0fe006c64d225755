"""Codes computed in SQL against a plain Python reading of the domain's definition."""

import datetime as dt
import itertools
import math
from decimal import Decimal

import duckdb
import numpy as np
import pytest

from dpsql.domains.attributes import Domain
from dpsql.domains.declare import declare
from dpsql.domains.encoding import canonical_categories, encode

INFINITY = float("inf")


def reference(attribute, value):
    """Code of one value, None where the row is dropped."""
    outside = {"clamp": attribute.null_code if attribute.nullable else 0, "other": attribute.other_code, "drop": None}[
        attribute.outside
    ]
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return attribute.null_code if attribute.nullable else outside
    if attribute.kind == "categorical":
        return attribute.categories.index(value) if value in attribute.categories else outside
    if attribute.kind == "numeric":
        edges, value = list(attribute.edges), float(value)
    else:
        edges = [dt.datetime.fromisoformat(edge) for edge in attribute.edges]
    if attribute.outside != "clamp" and not edges[0] <= value <= edges[-1]:
        return outside
    found = np.searchsorted(np.asarray(edges), np.asarray(value), side="right") - 1
    return int(np.clip(found, 0, len(edges) - 2))


def codes(connection, attribute, texts):
    """Codes of texts cast to the attribute's type, by position; a dropped row has none."""
    connection.execute(
        "CREATE OR REPLACE TEMP TABLE given AS SELECT unnest(range(len($1)))::INTEGER AS position, unnest($1::VARCHAR[]) AS value",
        [texts],
    )
    position = declare("position", "INTEGER", nullable=False, lower=0, upper=len(texts), bins=len(texts))
    source = f'SELECT position, value::{attribute.sql_type} AS "{attribute.name}" FROM given'
    name = encode(connection, source, Domain((position, attribute)))
    rows = dict(connection.execute(f'SELECT c0, c1 FROM "{name}"').fetchall())
    connection.execute(f'DROP TABLE "{name}"')
    return [rows.get(i) for i in range(len(texts))]


NUMBERS = {
    "TINYINT": ("-128", "-1", "0", "1", "5", "127"),
    "UTINYINT": ("0", "1", "5", "255"),
    "INTEGER": ("-2147483648", "-1", "0", "1", "4", "5", "6", "100", "2147483647"),
    "BIGINT": ("-9223372036854775808", "0", "3", "9007199254740993", "9223372036854775807"),
    "UBIGINT": ("0", "9007199254740993", "18446744073709551615"),
    "HUGEINT": ("-170141183460469231731687303715884105728", "0", "9007199254740993", "170141183460469231731687303715884105727"),
    "UHUGEINT": ("0", "9007199254740993", "340282366920938463463374607431768211455"),
    "DECIMAL(4,1)": ("-999.9", "0.0", "0.1", "0.3", "0.7", "1.0", "999.9"),
    "DECIMAL(18,3)": ("0.3", "0.299", "0.301", "123456789012345.678"),
    "DECIMAL(38,20)": ("0.1", "0.3", "0.30000000000000004", "0.29999999999999998", "123456789012345678.9"),
    "FLOAT": ("nan", "-inf", "inf", "-0.0", "0.1", "0.3", "0.7", "1", "3.4e38", "1e-45"),
    "DOUBLE": ("nan", "-inf", "inf", "-0.0", "0.1", "0.3", "0.30000000000000004", "0.7", "1", "1.7e308", "5e-324"),
}
EDGES = ((0.0, 1.0, 2.0, 5.0), (0.0, 64.0, 127.0), (0.0, 9007199254740992.0, 9007199254740994.0, 2.0**63), (-5.0, 0.0, 5.0))
FRACTIONS = (tuple(np.linspace(0, 1, 11).tolist()), (0.1, 0.3, 0.7), (-1.5, 0.30000000000000004, 2.5))
CHOICES = list(itertools.product(("clamp", "other", "drop"), (False, True)))


@pytest.mark.parametrize("sql_type", NUMBERS)
def test_numbers_fall_into_the_bins_of_searchsorted(plain, sql_type):
    texts = [*NUMBERS[sql_type], None]
    cast = {"D": Decimal, "F": lambda v: float(np.float32(v))}.get(sql_type[0], int)
    cast = float if sql_type == "DOUBLE" else cast
    checked = 0
    for edges in (*EDGES, *FRACTIONS):
        for outside, nullable in CHOICES:
            try:
                attribute = declare("x", sql_type, nullable=nullable, edges=edges, outside=outside)
            except ValueError:
                continue
            except Exception as error:
                assert "lies in bin" in str(error)  # the type cannot fill a bin
                continue
            wanted = [reference(attribute, None if t is None else cast(t)) for t in texts]
            assert codes(plain, attribute, texts) == wanted, (edges, outside, nullable)
            checked += 1
    assert checked >= 6


MOMENTS = (
    "0001-01-01",
    "2019-12-31",
    "2020-01-01",
    "2020-01-02",
    "2020-06-15",
    "2020-12-31",
    "2021-01-01",
    "2021-01-02",
    "9999-12-31",
)
CLOCKS = ("2020-01-01 00:00:00.000001", "2020-07-01 23:59:59.999999", "2021-01-01 00:00:00.000001")


@pytest.mark.parametrize("sql_type", ["DATE", "TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP WITH TIME ZONE"])
@pytest.mark.parametrize(("outside", "nullable"), CHOICES)
def test_dates_and_times(plain, sql_type, outside, nullable):
    plain.execute("SET TimeZone = 'Asia/Kolkata'")
    attribute = declare("x", sql_type, nullable=nullable, lower="2020-01-01", upper="2021-01-01", bins=7, outside=outside)
    naive = declare("x", sql_type.split(" ")[0], nullable=nullable, lower="2020-01-01", upper="2021-01-01", bins=7, outside=outside)
    moments = MOMENTS if sql_type in ("DATE", "TIMESTAMP_S", "TIMESTAMP_MS") else MOMENTS + CLOCKS
    zone = "+00" if "ZONE" in sql_type else ""
    texts = [*(f"{m if ' ' in m or sql_type == 'DATE' else m + ' 00:00:00'}{zone}" for m in moments), None, "infinity", "-infinity"]
    wanted = [reference(naive, dt.datetime.fromisoformat(m)) for m in moments] + [reference(naive, None)]
    ends = [naive.values - 1, 0] if outside == "clamp" else [reference(naive, dt.datetime.max), reference(naive, dt.datetime.min)]
    assert codes(plain, attribute, texts) == wanted + ends


def test_nanoseconds_and_times_of_day():
    connection = duckdb.connect()
    nano = declare("x", "TIMESTAMP_NS", nullable=False, edges=["2020-01-01", "2020-01-02", "2020-01-03"], outside="other")
    texts = ["2020-01-01 23:59:59.999999999", "2020-01-02 00:00:00", "2020-01-03 00:00:00", "2020-01-03 00:00:00.000000001"]
    assert codes(connection, nano, texts) == [0, 1, 1, 2]
    time = declare("x", "TIME", nullable=False, edges=["08:00", "12:00", "18:00"])
    assert codes(connection, time, ["00:00:00", "11:59:59.999999", "12:00:00", "23:59:59"]) == [0, 0, 1, 1]


AWKWARD = (
    "",
    " ",
    "a",
    "A",
    "é",
    "e\u0301",
    "it's",
    '"',
    "\\",
    "a\nb",
    "%s",
    "NULL",
    "{}",
    "'); DROP TABLE given; --",
    "🦆",
    "x" * 5000,
)


@pytest.mark.parametrize(("outside", "nullable"), CHOICES)
def test_texts_are_compared_byte_by_byte(plain, outside, nullable):
    attribute = declare('odd "name"; --'.replace('"', ""), "VARCHAR", nullable=nullable, categories=AWKWARD, outside=outside)
    texts = [*AWKWARD, None, "b", "a ", "null", "E", "\0", "a\0"]
    assert codes(plain, attribute, texts) == [reference(attribute, text) for text in texts]


@pytest.mark.parametrize(
    ("sql_type", "categories", "texts", "wanted"),
    [
        ("INTEGER", [3, "1", 2.0], ["1", "2", "3", "4"], [1, 2, 0, 3]),
        ("DOUBLE", [1, 0.5, -0.0], ["1", "0.5", "0", "-0.0", "nan", "2"], [0, 1, 2, 2, 4, 3]),
        ("FLOAT", [0.1, 1e20], ["0.1", "1e20", "inf"], [0, 1, 2]),
        ("DECIMAL(5,2)", [1, "2.5"], ["1", "2.50", "3"], [0, 1, 2]),
        ("BOOLEAN", [True], ["true", "false"], [0, 1]),
        ("DATE", ["2020-01-01", dt.date(2020, 1, 2)], ["2020-01-01", "2020-01-02", "infinity"], [0, 1, 2]),
        ("TIMESTAMP", ["2020-01-01"], ["2020-01-01 00:00:00", "2020-01-01 00:00:01"], [0, 1]),
        ("UUID", ["00000000-0000-0000-0000-00000000000A"], ["00000000-0000-0000-0000-00000000000a", None], [0, 2]),
        ("ENUM('b', 'a')", ["a"], ["a", "b"], [0, 1]),
    ],
)
def test_categories_of_other_types(plain, sql_type, categories, texts, wanted):
    listed = canonical_categories(plain, sql_type, categories)
    attribute = declare("x", sql_type, nullable=True, categories=listed, outside="other")
    assert codes(plain, attribute, texts) == wanted


def test_thousands_of_categories_and_bins():
    connection = duckdb.connect()
    texts = [f"value {i}" for i in range(5000)]
    attribute = declare("x", "VARCHAR", nullable=False, categories=texts)
    fine = declare("y", "DOUBLE", nullable=False, lower=0, upper=1, bins=3000)
    connection.execute("CREATE TABLE wide AS SELECT 'value ' || i AS x, i / 5000 AS y FROM range(5000) t(i)")
    name = encode(connection, "SELECT * FROM wide ORDER BY y", Domain((attribute, fine)))
    found = connection.execute(f'FROM "{name}"').fetchnumpy()
    assert found["c0"].tolist() == list(range(5000))
    assert found["c0"].dtype == np.uint16
    values = np.arange(5000) / 5000
    assert (found["c1"] == np.searchsorted(np.asarray(fine.edges), values, side="right") - 1).all()
