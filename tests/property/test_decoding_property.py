"""Encoding what was decoded gives the same codes back: every type, awkward domains, every policy."""

import math
from fractions import Fraction

import duckdb
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dpsql.domains import sqltypes
from dpsql.domains.attributes import Attribute, Domain
from dpsql.domains.declare import declare
from dpsql.domains.edges import empty_bin
from dpsql.domains.encoding import canonical_categories, encode
from dpsql.errors import DpsqlError
from dpsql.rows.decoding import rows_sql, write_rows

CONNECTION = duckdb.connect()
TYPES = [*sqltypes._INTEGERS, "DECIMAL(4,1)", "DECIMAL(9,0)", "DECIMAL(18,18)", "DECIMAL(38,0)", "DECIMAL(38,20)", "DECIMAL(38,38)"]
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
CENTRAL = st.floats(-1000, 1000) | st.integers(-300, 300).map(float)


def round_trip(attribute, folder, copies=7):
    """Decode every code several times, check the types and encode again."""
    codes = np.repeat(np.arange(attribute.size, dtype=np.int32), copies)[:, None]
    domain, path = Domain((attribute,)), folder / "rows.parquet"
    write_rows(CONNECTION, [codes], domain, np.random.default_rng(5), path)
    source = rows_sql(domain, path)
    assert CONNECTION.execute(f"DESCRIBE {source}").fetchall()[0][:2] == (attribute.name, attribute.sql_type)
    name = encode(CONNECTION, source, domain)
    found = CONNECTION.execute(f'FROM "{name}"').fetchnumpy()["c0"]
    CONNECTION.execute(f'DROP TABLE "{name}"')
    expected = codes[:, 0]
    if attribute.outside == "other" and attribute.sql_type != "VARCHAR" and attribute.nullable:
        expected = np.where(expected == attribute.other_code, attribute.null_code, expected)  # both are written as NULL
    assert found.tolist() == expected.tolist()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("rows")


@given(
    sql_type=st.sampled_from([*TYPES, "FLOAT", "DOUBLE"]),
    edges=st.lists(CENTRAL | FLOATS, min_size=2, max_size=6, unique=True).map(sorted),
    nullable=st.booleans(),
    outside=st.sampled_from(["clamp", "other", "drop"]),
)
def test_numbers(folder, sql_type, edges, nullable, outside):
    edges = tuple(edge + 0.0 for edge in edges)
    assume(empty_bin(sqltypes.parse(sql_type), edges) is None)
    round_trip(Attribute("x", sql_type, "numeric", edges=edges, nullable=nullable, outside=outside), folder)


@pytest.mark.parametrize("sql_type", TYPES)
@pytest.mark.parametrize("bins", [1, 3])
def test_the_whole_range_of_a_type(folder, sql_type, bins):
    parsed = sqltypes.parse(sql_type)
    bounds = {"lower": parsed.low / 10**parsed.scale, "upper": parsed.high / 10**parsed.scale}
    round_trip(declare("x", sql_type, nullable=True, bins=bins, **bounds), folder, copies=200)


@given(
    sql_type=st.sampled_from(sorted(sqltypes.MICROSECONDS)),
    moments=st.lists(st.datetimes(), min_size=2, max_size=6, unique=True).map(sorted),
    nullable=st.booleans(),
)
def test_dates_and_times(folder, sql_type, moments, nullable):
    if sql_type in ("DATE", "TIMESTAMP_S", "TIMESTAMP_MS"):
        moments = [m.replace(microsecond=0) for m in moments]
    if sql_type == "DATE":
        moments = [m.date() for m in moments]
    if sql_type == "TIME":
        moments = sorted(m.time() for m in moments)
    try:
        attribute = declare("when", sql_type, nullable=nullable, edges=moments)
    except DpsqlError:
        assume(False)
    round_trip(attribute, folder)


@pytest.mark.parametrize("bins", [1, 2, 5])
def test_the_whole_range_of_nanoseconds(folder, bins):
    round_trip(declare("x", "TIMESTAMP_NS", nullable=True, lower="1677-09-22", upper="2262-04-11", bins=bins), folder, copies=200)


@given(
    categories=st.lists(
        st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0")), min_size=1, max_size=8, unique=True
    ),
    name=st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), min_size=1, max_size=20),
    nullable=st.booleans(),
    outside=st.sampled_from(["clamp", "other", "drop"]),
)
def test_any_text_and_any_column_name(folder, categories, name, nullable, outside):
    assume("(other)" not in categories)
    round_trip(declare(name, "VARCHAR", nullable=nullable, categories=categories, outside=outside), folder, copies=2)


@pytest.mark.parametrize(
    ("sql_type", "values"),
    [
        ("INTEGER", [3, -1]), ("HUGEINT", [-(2**127), 2**127 - 1]), ("UHUGEINT", [2**128 - 1, 0]),
        ("DECIMAL(38,10)", ["0.1", "1e27"]),
        ("FLOAT", [0.1, -0.0, 3.4e38]), ("DOUBLE", [0.1, 5e-324, 1e300]), ("BOOLEAN", [True, False]),
        ("DATE", ["0001-01-01", "9999-12-31"]),
        ("TIME", ["00:00:00", "23:59:59.999999"]), ("TIMESTAMP", ["2020-01-01 01:02:03.000004"]),
        ("TIMESTAMP_S", ["2020-01-01 01:02:03"]),
        ("TIMESTAMP_MS", ["2020-01-01 01:02:03.004"]), ("TIMESTAMP_NS", ["2020-01-01 01:02:03.000000004"]),
        ("UUID", ["00000000-0000-0000-0000-00000000000a"]), ("ENUM('b', 'it''s', '')", ["it's", ""]),
    ],
)
@pytest.mark.parametrize("outside", ["clamp", "other"])
@pytest.mark.parametrize("nullable", [True, False])
def test_categories_of_every_type(folder, sql_type, values, outside, nullable):
    listed = canonical_categories(CONNECTION, sql_type, values)
    round_trip(declare("x", sql_type, nullable=nullable, categories=listed, outside=outside), folder)


@pytest.mark.parametrize(("sql_type", "step"), [("DOUBLE", 2.0**-52), ("FLOAT", 2.0**-23)])
def test_bins_of_one_or_two_floats(folder, sql_type, step):
    """Where rounding would often reach the right edge, which belongs to the next bin."""
    edges = tuple(1 + step * i for i in (0, 1, 2, 4, 5, 7))
    round_trip(Attribute("x", sql_type, "numeric", edges=edges, nullable=False), folder, copies=100)


@given(edge=FLOATS, scale=st.integers(0, 38))
def test_the_first_value_at_or_above_an_edge_is_exact(edge, scale):
    assume(abs(edge) < 1e300)
    found = sqltypes.first_at_or_above(edge, scale)
    assert float(Fraction(found, 10**scale)) >= edge > float(Fraction(found - 1, 10**scale))


@given(edges=st.lists(st.floats(-(2.0**126), 2.0**126), min_size=2, max_size=5, unique=True).map(sorted))
def test_float32_bounds_are_the_outermost_floats_of_a_bin(edges):
    first, last = sqltypes.float32_bounds(edges)
    for i, (a, b) in enumerate(zip(edges[:-1], edges[1:], strict=True)):
        lowest, highest = float(first[i]), float(last[i])
        assert lowest >= a > float(np.nextafter(first[i], np.float32(-math.inf)))
        assert highest <= b if i == len(edges) - 2 else highest < b
        above = float(np.nextafter(last[i], np.float32(math.inf)))
        assert above > b if i == len(edges) - 2 else above >= b
