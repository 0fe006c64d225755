"""Declarations: which domain they give, and what each wrong one is told."""

import datetime as dt
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from dpsql.domains import sqltypes
from dpsql.domains.declare import declare, self_declared
from dpsql.domains.edges import MAX_BINS, empty_bin
from dpsql.errors import ArgumentError, DomainError

DAY = "2020-01-01"


def given(sql_type, **arguments):
    return declare("x", sql_type, **{"nullable": False, **arguments})


@pytest.mark.parametrize(("lower", "upper", "bins"), [(0, 120, 24), (0, 100000, 16), (-1, 1, 3), (0.1, 0.7, 7), (0, 5000, 14)])
def test_numeric_edges_are_those_of_linspace(lower, upper, bins):
    assert given("DOUBLE", lower=lower, upper=upper, bins=bins).edges == tuple(np.linspace(lower, upper, bins + 1).tolist())


@pytest.mark.parametrize(
    ("sql_type", "lower", "upper", "bins"),
    [
        ("INTEGER", 1, 5, 5), ("INTEGER", 0, 100, 24), ("BOOLEAN", None, None, None),
        ("DOUBLE", 0, 1, 24), ("DOUBLE", 0, 5e-324, 1),
        ("DATE", "2020-01-01", "2020-01-05", 4), ("DATE", "2000-01-01", "2020-01-01", 24),
        ("DECIMAL(4,1)", 0, 1, 11), ("UTINYINT", 250, 300, 1),
    ],
)
def test_default_bins(sql_type, lower, upper, bins):
    if bins is None:
        assert given(sql_type).categories == ("false", "true")
    else:
        assert given(sql_type, lower=lower, upper=upper).values == bins


@pytest.mark.parametrize(
    ("sql_type", "more", "automatic"),
    [
        ("DOUBLE", {"lower": 0, "upper": 1}, True), ("INTEGER", {"lower": 0, "upper": 120}, True), ("DATE", {"lower": "2000-01-01", "upper": "2020-01-01"}, True),
        ("INTEGER", {"lower": 1, "upper": 5}, False),  # a bin for each value: nothing to cut
        ("DOUBLE", {"lower": 0, "upper": 1, "bins": 24}, False), ("DOUBLE", {"edges": [0, 1, 2]}, False), ("BOOLEAN", {}, False),
        ("VARCHAR", {"categories": ["a"]}, False),
    ],
)
def test_bins_are_automatic_where_nothing_is_said_of_them(sql_type, more, automatic):
    found = given(sql_type, **more)
    assert found.automatic == automatic
    assert ("automatic" in found.to_json()) == automatic  # what an older dpsql wrote reads the same
    if found.kind != "categorical":
        assert found.bounded.values == 1
        assert (found.bounded.edges[0], found.bounded.edges[-1], found.bounded.automatic) == (found.edges[0], found.edges[-1], False)


def test_date_bins_are_whole_days_of_nearly_equal_width():
    edges = given("DATE", lower="2020-01-01", upper="2021-01-01", bins=12).edges
    widths = {(dt.date.fromisoformat(b) - dt.date.fromisoformat(a)).days for a, b in pairwise(edges)}
    assert edges[0] == "2020-01-01"
    assert edges[-1] == "2021-01-01"
    assert widths == {30, 31}


@pytest.mark.parametrize(
    ("sql_type", "lower", "upper", "bins", "edges"),
    [
        ("TIMESTAMP", "2020-01-01", "2020-01-02", 2, ("2020-01-01 00:00:00", "2020-01-01 12:00:00", "2020-01-02 00:00:00")),
        ("TIMESTAMP_S", "2020-01-01", "2020-01-01T00:00:03", 2, (f"{DAY} 00:00:00", f"{DAY} 00:00:01", f"{DAY} 00:00:03")),
        ("TIMESTAMP WITH TIME ZONE", "2020-01-01 02:00+02:00", "2020-01-02", 1, (f"{DAY} 00:00:00+00", "2020-01-02 00:00:00+00")),
        ("TIME", "08:00", "09:00:00.5", 1, ("08:00:00", "09:00:00.500000")),
        ("DATE", dt.date(2020, 1, 1), dt.datetime(2020, 1, 3), 2, ("2020-01-01", "2020-01-02", "2020-01-03")),
    ],
)
def test_temporal_edges(sql_type, lower, upper, bins, edges):
    assert given(sql_type, lower=lower, upper=upper, bins=bins).edges == edges


def test_categories_keep_their_order():
    assert given("VARCHAR", categories=["b", "a", "", "c'd", "é"]).categories == ("b", "a", "", "c'd", "é")


def test_enum_and_boolean_declare_themselves():
    assert self_declared("x", "ENUM('a, b', 'it''s', ')', '')", True).categories == ("a, b", "it's", ")", "")
    assert self_declared("x", "BOOLEAN", False).size == 2
    assert self_declared("x", "VARCHAR", False) is None
    assert given("ENUM('a', 'b')", outside="drop").outside == "drop"


WRONG = [
    ("VARCHAR", {}, ArgumentError, r"categories is not given: column 'x' is VARCHAR: declare categories"),
    ("INTEGER[]", {"categories": ["a"]}, DomainError, r"INTEGER\[\], which cannot have a domain; .* cast it"),
    ("STRUCT(a INTEGER)", {"lower": 0, "upper": 1}, DomainError, "cannot have a domain"),
    ("VARCHAR", {"lower": 0, "upper": 1}, DomainError, "VARCHAR, which has no bins: declare categories"),
    ("BOOLEAN", {"edges": [0, 1]}, DomainError, "BOOLEAN, which has no bins"),
    ("INTEGER", {"lower": 0}, ArgumentError, "upper is not given: both bounds are needed"),
    ("INTEGER", {"upper": 0}, ArgumentError, "lower is not given: both bounds are needed"),
    ("INTEGER", {"bins": 3}, ArgumentError, "lower is not given: both bounds are needed"),
    ("INTEGER", {"lower": 0, "upper": 9, "edges": [0, 9]}, ArgumentError, "edges = .*contradicts lower"),
    ("INTEGER", {"bins": 3, "categories": ["1"]}, ArgumentError, "categories = .*contradicts bins"),
    ("INTEGER", {"lower": 9, "upper": 9}, ArgumentError, "lower = 9: must be below upper = 9"),
    ("INTEGER", {"lower": "0", "upper": 9}, ArgumentError, "lower = '0': a number is required"),
    ("INTEGER", {"lower": True, "upper": 9}, ArgumentError, "lower = True: a number is required"),
    ("DOUBLE", {"lower": float("nan"), "upper": 9}, ArgumentError, "lower = nan: a finite number"),
    ("DOUBLE", {"lower": 0, "upper": float("inf")}, ArgumentError, "upper = inf: a finite number"),
    ("DOUBLE", {"lower": 0, "upper": 10**400}, ArgumentError, "a finite number"),
    ("DOUBLE", {"lower": 0, "upper": 9, "bins": 0}, ArgumentError, "bins = 0: a whole number from 1"),
    ("DOUBLE", {"lower": 0, "upper": 9, "bins": -1}, ArgumentError, "bins = -1"),
    ("DOUBLE", {"lower": 0, "upper": 9, "bins": 2.5}, ArgumentError, "bins = 2.5"),
    ("DOUBLE", {"lower": 0, "upper": 9, "bins": True}, ArgumentError, "bins = True"),
    ("DOUBLE", {"lower": 0, "upper": 9, "bins": float("nan")}, ArgumentError, "bins = nan"),
    ("DOUBLE", {"lower": 0, "upper": 9, "bins": MAX_BINS + 1}, ArgumentError, f"from 1 to {MAX_BINS}"),
    ("DOUBLE", {"lower": 1, "upper": 1 + 2**-52, "bins": 2}, ArgumentError, "double precision has no 2 different bins"),
    ("DOUBLE", {"lower": -1.7e308, "upper": 1.7e308, "bins": 2}, ArgumentError, "double precision has no 2"),
    ("INTEGER", {"lower": 0, "upper": 4, "bins": 6}, ArgumentError, "no INTEGER lies in bin 3 of 6.*bins := 5 fits"),
    ("UTINYINT", {"lower": 0, "upper": 1000, "bins": 10}, ArgumentError, "no UTINYINT lies in bin 4 of 10.*bins := 1 fits"),
    ("TINYINT", {"lower": 200, "upper": 300, "bins": 2}, DomainError, "no TINYINT lies in bin 1"),
    ("INTEGER", {"edges": [0, 0.25, 0.5]}, DomainError, "no INTEGER lies in bin 2 of 2"),
    ("DECIMAL(4,1)", {"edges": [0, 0.25, 0.28]}, DomainError, r"no DECIMAL\(4,1\) lies in bin 2"),
    ("FLOAT", {"edges": [1, 1 + 1e-9, 1 + 2e-9]}, DomainError, "no FLOAT lies in bin 2"),
    ("FLOAT", {"edges": [1e300, 1e301]}, DomainError, "no FLOAT lies in bin 1"),
    ("DOUBLE", {"edges": [1]}, ArgumentError, "two or more strictly increasing"),
    ("DOUBLE", {"edges": "12"}, ArgumentError, "edges = '12'"),
    ("DOUBLE", {"edges": [0, 2, 1]}, ArgumentError, r"edges = \[2, 1\]: edges must increase strictly"),
    ("DOUBLE", {"edges": [0, 1, 1]}, ArgumentError, r"edges = \[1, 1\]"),
    ("BIGINT", {"lower": 2**53 + 1, "upper": 2**53}, ArgumentError, "lower = 9007199254740993: must be below upper = 9007199254740992"),
    ("BIGINT", {"lower": 2**53, "upper": 2**53 + 1}, ArgumentError, "upper = 9007199254740993: is 9007199254740992 in double precision, as lower"),
    ("BIGINT", {"edges": [2**53 + 1, 2**53]}, ArgumentError, r"edges = \[9007199254740993, 9007199254740992\]: edges must increase"),
    ("BIGINT", {"edges": [0, 2**53, 2**53 + 1]}, ArgumentError, r"\[9007199254740992, 9007199254740993\]: are both 9007199254740992 in double"),
    ("BIGINT", {"lower": 0, "upper": 2**53 + 1}, ArgumentError, "upper = 9007199254740993: is no number of double precision.*take 9007199254740992 or 9007199254740994$"),
    ("HUGEINT", {"lower": -(2**60) - 1, "upper": 0}, ArgumentError, "lower = -1152921504606846977: is no number .*take -1152921504606847232 or -1152921504606846976$"),
    ("BIGINT", {"edges": [0, 2**53 + 3, 2**60]}, ArgumentError, "edges = 9007199254740995: is no number of double precision"),
    ("DECIMAL(20,0)", {"lower": 0, "upper": 2**53 + 1}, ArgumentError, "upper = 9007199254740993: is no number of double precision"),
    ("DOUBLE", {"lower": 0, "upper": 2**53 + 1}, ArgumentError, "upper = 9007199254740993: is no number of double precision"),
    ("UBIGINT", {"lower": 0, "upper": 2**63 - 1}, ArgumentError, "upper = 9223372036854775807: is no number of double precision"),
    ("DOUBLE", {"edges": [0.5, 0.5]}, ArgumentError, r"edges = \[0.5, 0.5\]: edges must increase strictly"),
    ("BIGINT", {"lower": 2**63, "upper": 2**64, "bins": 2}, ArgumentError, "bin 2 of 2, from 13835058055282163712 to 18446744073709551616;"),
    ("DOUBLE", {"edges": [0, None]}, ArgumentError, "an edge is NULL"),
    ("DATE", {"lower": "2020-13-01", "upper": "2021-01-01"}, ArgumentError, "lower = '2020-13-01': not a DATE"),
    ("DATE", {"lower": 5, "upper": "2021-01-01"}, ArgumentError, "lower = 5: not a DATE"),
    ("DATE", {"lower": "infinity", "upper": "2021-01-01"}, ArgumentError, "not a DATE in the years 1 to 9999"),
    ("DATE", {"lower": "2020-01-01 12:00", "upper": "2021-01-01"}, ArgumentError, "cannot hold it exactly"),
    ("DATE", {"lower": "2021-01-01", "upper": "2020-01-01"}, ArgumentError, "must be before upper"),
    ("DATE", {"lower": "2020-01-01", "upper": "2020-01-03", "bins": 3}, ArgumentError, "at most 2 for a DATE"),
    ("TIMESTAMP", {"lower": "2020-01-01+01", "upper": "2021-01-01"}, ArgumentError, "not a TIMESTAMP"),
    ("TIMESTAMP", {"lower": "2020-01-01 00:00+01", "upper": "2021-01-01"}, ArgumentError, "has no time zone"),
    ("TIMESTAMP_NS", {"lower": "1000-01-01", "upper": "2021-01-01"}, ArgumentError, "1677-09-22 to 2262-04-11"),
    ("VARCHAR", {"categories": []}, DomainError, "needs at least one category"),
    ("VARCHAR", {"categories": "ab"}, ArgumentError, "categories = 'ab': a list is required"),
    ("VARCHAR", {"categories": ["a", None]}, ArgumentError, "NULL cannot be listed; nullable := true"),
    ("VARCHAR", {"categories": ["a", "b", "a"]}, ArgumentError, "list every category once"),
    ("VARCHAR", {"categories": ["1", 1]}, ArgumentError, r"categories = \['1', 1\]: both are '1'"),
    ("VARCHAR", {"categories": [["a"]]}, ArgumentError, "texts, numbers, booleans and dates"),
    ("VARCHAR", {"categories": ["a\0b"]}, ArgumentError, "without NUL characters"),
    ("VARCHAR", {"categories": ["\ud800"]}, ArgumentError, "valid Unicode"),
    ("VARCHAR", {"categories": [float("nan")]}, ArgumentError, "NaN counts as NULL"),
    ("VARCHAR", {"categories": ["(other)"], "outside": "other"}, ArgumentError, "is what outside := 'other' writes"),
    ("VARCHAR", {"categories": ["a"], "outside": "error"}, ArgumentError, "outside = 'error': must be one of 'clamp'"),
    ("VARCHAR", {"categories": ["a"], "nullable": None}, ArgumentError, "nullable is not given: must be true or false"),
]


@pytest.mark.parametrize(("sql_type", "arguments", "error", "message"), WRONG)
def test_wrong_declarations_say_what_is_allowed(sql_type, arguments, error, message):
    with pytest.raises(error, match=message):
        given(sql_type, **arguments)


def test_the_number_of_bins_that_an_error_advises_works():
    for sql_type, lower, upper in [("INTEGER", 0, 4), ("UTINYINT", 0, 1000), ("INTEGER", 0.5, 7.5), ("TINYINT", -500, 500)]:
        with pytest.raises(ArgumentError, match="bins := ") as error:
            given(sql_type, lower=lower, upper=upper, bins=500)
        advised = int(str(error.value).split("bins := ")[1].split()[0])
        assert given(sql_type, lower=lower, upper=upper, bins=advised).values == advised


@pytest.mark.parametrize("name", sorted(sqltypes._INTEGERS))
def test_full_ranges_of_integers_can_be_declared(name):
    parsed = sqltypes.parse(name)
    attribute = given(name, lower=parsed.low, upper=parsed.high, bins=16)
    bounds = sqltypes.grid(parsed, attribute.edges)
    assert bounds[0] == parsed.low
    assert bounds[-1] == parsed.high + 1
    assert empty_bin(parsed, attribute.edges) is None


@pytest.mark.parametrize("edge", [0.1, 0.3, 0.30000000000000004, -0.1, 1.005, 2.675, 1e-5, 123456.7, 9.999999999999999e22, -1e22])
@pytest.mark.parametrize("scale", [0, 1, 2, 5, 20])
def test_the_first_value_of_a_bin_is_exact(edge, scale):
    found = sqltypes.first_at_or_above(edge, scale)
    assert float(Fraction(found, 10**scale)) >= edge
    assert float(Fraction(found - 1, 10**scale)) < edge


def test_edges_of_the_largest_numbers():
    top = float(np.finfo(float).max)
    attribute = given("DOUBLE", edges=[-top, 0, top])
    assert attribute.values == 2
    assert given("HUGEINT", edges=[-top, 0, top]).values == 2


def test_whole_numbers_beyond_double_precision_are_written_with_all_digits():
    found = declare("n", "BIGINT", nullable=False, lower=2**60, upper=2**60 + 1024, bins=2)
    assert found.labels() == ("[1152921504606846976, 1152921504606847488)", "[1152921504606847488, 1152921504606848000]")
    ends = declare("n", "BIGINT", nullable=False, lower=-(2**63), upper=2**63 - 1, bins=1)
    assert ends.labels() == ("[-9223372036854775808, 9223372036854775807]",)
    assert declare("n", "INTEGER", nullable=False, lower=0, upper=5, bins=2).labels() == ("[0, 2.5)", "[2.5, 5]")


def test_bounds_that_double_precision_holds_are_taken_and_rounded_ones_only_where_said():
    assert declare("n", "BIGINT", nullable=False, lower=2**53 + 2, upper=2**63 - 1, bins=1).edges == (2.0**53 + 2, 2.0**63)
    assert declare("n", "DECIMAL(20,2)", nullable=False, lower=0, upper=90071992547411, bins=1).edges == (0.0, 90071992547411.0)
    assert declare("n", "DECIMAL(38,38)", nullable=False, lower=0, upper=0.1, bins=1).edges == (0.0, 0.1)
    assert declare("n", "DECIMAL(38,0)", nullable=False, lower=0, upper=10**38 - 1, bins=1).edges == (0.0, 1e38)
    assert declare("n", "BIGINT", nullable=False, lower=2**53 + 1, upper=2**60, bins=1, rounded=True).edges == (2.0**53, 2.0**60)
