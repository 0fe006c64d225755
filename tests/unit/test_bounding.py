"""Which rows of a unit are kept: the bound with certainty, whatever the rows; the others as they are; each row by chance."""

from __future__ import annotations

import math
import secrets
from collections import Counter

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import stats

from dpsql.domains import bounding
from dpsql.domains.bounding import Packed, bounded_codes_sql, bounded_sql, light_first_sql
from dpsql.errors import ArgumentError

ROADS = pytest.mark.parametrize("road", [bounded_sql, light_first_sql])
SALT = "0123456789abcdef" * 2
KINDS = {
    "BIGINT": st.integers(-2, 2),
    "DOUBLE": st.sampled_from([0.0, -0.0, math.nan, math.inf, 1.5]),
    "VARCHAR": st.sampled_from(["", "a", "A", "é", "a\0"]),
    "DATE": st.sampled_from(["2020-01-01", "1900-02-28"]),
    "BOOLEAN": st.booleans(),
}


@pytest.fixture(scope="module")
def con():
    with duckdb.connect() as connection:
        connection.execute("SET threads = 2")
        yield connection


@st.composite
def tables(draw):
    """Column types and rows: two columns of a unit, one of a group, one beside them; few values, so that many rows are equal."""
    kinds = [draw(st.sampled_from(list(KINDS))) for _ in range(4)]
    row = st.tuples(*(st.none() | KINDS[kind] for kind in kinds))
    return kinds, draw(st.lists(row, max_size=40)), draw(st.integers(1, 3))


def fill(con, kinds, rows):
    con.execute("CREATE OR REPLACE TABLE t (" + ", ".join(f"{name} {kind}" for name, kind in zip("uvgx", kinds, strict=True)) + ")")
    if rows:
        con.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", rows)


def fetched(con, text):
    """Rows as a multiset, equal where DuckDB says so: NaN to itself, 0.0 to -0.0, so that either may stand for both."""
    return Counter(repr(row).replace("-0.0", "0.0") for row in con.execute(text).fetchall())


EXAMPLES = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@ROADS
@EXAMPLES
@given(table=tables(), most=st.integers(1, 7), composite=st.booleans())
def test_exactly_the_bound_is_kept_of_every_unit_that_has_more(con, table, most, composite, road):
    kinds, rows, times = table
    fill(con, kinds, rows * times)
    units = ["u", "v"] if composite else ["u"]
    listed = ", ".join(units)
    text = road('"t"', units, list("uvgx"), most, secrets.token_hex(16))
    found = fetched(con, f"SELECT {listed}, count(*) FROM ({text}) GROUP BY {listed}")
    assert found == fetched(con, f"SELECT {listed}, least(count(*), {most}) FROM t GROUP BY {listed}")
    assert fetched(con, text) <= fetched(con, "FROM t")


@ROADS
@EXAMPLES
@given(table=tables(), rows_kept=st.integers(1, 3), groups_kept=st.integers(1, 3))
def test_groups_of_a_unit_are_bounded_and_then_their_rows(con, table, rows_kept, groups_kept, road):
    kinds, rows, times = table
    fill(con, kinds, rows * times)
    text = road('"t"', ["u"], list("uvgx"), rows_kept, secrets.token_hex(16), groups=["g"], max_groups=groups_kept)
    kept = f"SELECT u, g, count(*) AS n FROM ({text}) GROUP BY u, g"
    own = "SELECT u, g, count(*) AS n FROM t GROUP BY u, g"
    assert fetched(con, f"SELECT u, count(*) FROM ({kept}) GROUP BY u") == fetched(
        con, f"SELECT u, least(count(*), {groups_kept}) FROM ({own}) GROUP BY u"
    )
    assert fetched(con, kept) <= fetched(con, f"SELECT u, g, least(n, {rows_kept}) FROM ({own})")


@ROADS
@EXAMPLES
@given(table=tables(), most=st.integers(1, 4), unit=st.integers(0, 39), grouped=st.booleans())
def test_one_unit_fewer_leaves_the_others_as_they_are(con, table, most, unit, grouped, road):
    kinds, rows, times = table
    if not rows:
        return
    kinds = ["BIGINT", *kinds[1:]]
    rows = [(None if i % 7 == 6 else i % 5, *row[1:]) for i, row in enumerate(rows * times)]
    more = {"groups": ["g"], "max_groups": 2} if grouped else {}
    text = road('"t"', ["u"], list("uvgx"), most, SALT, **more)
    gone = rows[unit % len(rows)][0]
    fill(con, kinds, rows)
    before = fetched(con, f"FROM ({text}) WHERE u IS DISTINCT FROM {'NULL' if gone is None else gone}")
    fill(con, kinds, [row for row in reversed(rows) if row[0] != gone])  # in another order, too
    assert fetched(con, text) == before


@ROADS
@pytest.mark.parametrize("most", [1, 2, 3])
def test_every_set_of_rows_is_kept_equally_often(con, most, road):
    """Chi-square at 1e-8 over 1,500 salts, for one unit: simple random sampling of rows that differ."""
    con.execute("CREATE OR REPLACE TABLE t AS SELECT 7 AS u, i AS x FROM range(4) r(i)")
    texts = [road('"t"', ["u"], ["x"], most, secrets.token_hex(16)) for _ in range(1500)]
    seen = Counter(tuple(sorted(x for (x,) in con.execute(text).fetchall())) for text in texts)
    assert stats.chisquare([*seen.values(), *[0] * (math.comb(4, most) - len(seen))]).pvalue > 1e-8


def test_the_hash_is_taken_twice_for_a_reason(con):
    """DuckDB's hash ends with XOR of the last argument: alone it orders the rows of a unit unevenly, and chi-square sees it."""
    con.execute("CREATE OR REPLACE TABLE t AS SELECT u, x FROM range(6000) a(u), range(4) b(x)")
    text = bounded_sql('"t"', ["u"], ["u", "x"], 2, SALT)

    def pvalue(statement):
        pairs = con.execute(f"SELECT min(x), max(x) FROM ({statement}) GROUP BY u").fetchall()
        seen = Counter(pairs)
        return stats.chisquare([*seen.values(), *[0] * (6 - len(seen))]).pvalue

    assert pvalue(text) > 1e-8
    assert pvalue(text.replace("hash(hash(", "(hash(")) < 1e-8


def test_every_group_is_kept_equally_often(con):
    """Chi-square at 1e-8 over 6,000 units: pairs of five groups, however many rows they have."""
    con.execute("CREATE OR REPLACE TABLE t AS SELECT u, g FROM range(6000) a(u), range(5) b(g), range(1 + g * g)")
    text = bounded_sql('"t"', ["u"], ["u", "g"], None, SALT, groups=["g"], max_groups=2)
    pairs = con.execute(f"SELECT min(g), max(g), count(*) FROM (SELECT u, min(g) AS g, count(*) FROM ({text}) GROUP BY u, g) GROUP BY u").fetchall()
    assert {n for _, _, n in pairs} == {2}
    seen = Counter((low, high) for low, high, _ in pairs)
    assert len(seen) == 10
    assert stats.chisquare(list(seen.values())).pvalue > 1e-8


@pytest.mark.parametrize("sizes", [[2, 3], [2] * 33, [200, 70_000, 5_000_000, 256, 65_536], [1, 1], [4_294_967_296]])
def test_packed_codes_come_back(con, sizes):
    """Few bits and many, one integer and several: what is kept is rows of the table, each with its unit's bound."""
    types = ["UTINYINT" if s <= 256 else "USMALLINT" if s <= 65_536 else "UINTEGER" for s in sizes]
    names = [f"c{i}" for i in range(len(sizes))]
    codes = ", ".join(
        f"(CASE i % 3 WHEN 0 THEN 0 WHEN 1 THEN {s - 1} ELSE hash(i, {i}) % {s} END)::{t} AS c{i}"
        for i, (s, t) in enumerate(zip(sizes, types, strict=True))
    )
    con.execute(f"CREATE OR REPLACE TABLE t AS SELECT i // 7 AS u, {codes} FROM range(700) r(i)")
    text = bounded_codes_sql('"t"', ["u"], names, sizes, types, [], 4, SALT)
    assert [row[1] for row in con.execute(f"DESCRIBE {text}").fetchall()] == types
    found = fetched(con, text)
    assert found.total() == 400
    assert found <= fetched(con, "SELECT * EXCLUDE (u) FROM t")
    everything = bounded_codes_sql('"t"', ["u"], names, sizes, types, [], 7, SALT)
    assert fetched(con, everything) == fetched(con, "SELECT * EXCLUDE (u) FROM t")
    assert Packed(names, sizes, types).few == (sum(max(s - 1, 1).bit_length() for s in sizes) <= 32)


def test_a_row_that_a_join_repeats_is_one(con):
    con.execute("CREATE OR REPLACE TABLE t AS SELECT i // 4 AS u, i AS n, i % 2 AS x FROM range(40) r(i), range(1 + i % 3)")
    text = bounded_sql('"t"', ["u"], ["u", "n", "x"], 3, SALT, row="n")
    assert con.execute(f"SELECT count(*), count(DISTINCT n) FROM ({text})").fetchone() == (30, 30)


@pytest.mark.parametrize("most", [5, 2**20 + 1, 2**31 - 1])
def test_large_bounds_do_not_overflow(con, most):
    con.execute("CREATE OR REPLACE TABLE t AS SELECT 1 AS u, i AS x FROM range(200_000) r(i)")
    text = bounded_sql('"t"', ["u"], ["x"], most, SALT)
    assert con.execute(f"SELECT count(*) FROM ({text})").fetchone() == (min(most, 200_000),)


def test_a_huge_unit_needs_little_memory(tmp_path):
    """A million and a half rows of one unit, of a hundred bytes each, with 100 MB of memory."""
    with duckdb.connect(str(tmp_path / "t.duckdb"), config={"memory_limit": "100MB", "threads": 2, "temp_directory": str(tmp_path)}) as con:
        con.execute("CREATE TABLE t AS SELECT 1 AS u, i AS a, repeat('x', 80) || i AS b FROM range(1_500_000) r(i)")
        text = bounded_sql('"t"', ["u"], ["a", "b"], 10, SALT)
        assert con.execute(f"SELECT count(*), count(DISTINCT a) FROM ({text})").fetchone() == (10, 10)


def faults():
    """Ways to get it wrong: what replaces what in the text."""
    return {
        "ties stay": ("row_number() OVER", "rank() OVER"),
        "units by their hash": ('PARTITION BY "u"', "PARTITION BY hash(u) % 3"),
        "one row too many": ("< 2", "<= 2"),
        "no choice": ("hash(hash(", "least(0, hash("),
        "units by number": ('FROM "t"', "FROM (SELECT rowid // 3 AS u, x FROM t)"),
    }


@pytest.mark.parametrize("fault", faults())
def test_planted_faults_are_found(con, fault):
    """What the tests above look at tells each broken text from the right one."""
    con.execute("CREATE OR REPLACE TABLE t AS SELECT i % 8 AS u, 0 AS x FROM range(240) r(i)")
    con.execute("INSERT INTO t SELECT 9, unnest([1, 2, 2, 2, 2])")
    text = bounded_sql('"t"', ["u"], ["u", "x"], 2, SALT)
    old, new = faults()[fault]
    broken = text.replace(old, new)
    assert broken != text

    def seen(statement):
        most = con.execute(f"SELECT max(n), min(n) FROM (SELECT count(*) AS n FROM ({statement}) GROUP BY u)").fetchone()
        salts = [secrets.token_hex(16) for _ in range(200)]
        ones = sum((9, 1) in con.execute(statement.replace(SALT, salt)).fetchall() for salt in salts)
        return most == (2, 2) and abs(ones - 80) < 4.9 * math.sqrt(200 * 0.4 * 0.6)

    assert seen(text)
    assert not seen(broken)


def test_bad_arguments_name_the_way_out():
    for most in (0, -1, 1.5, True):
        with pytest.raises(ArgumentError, match="max_rows = .*a whole number from 1"):
            bounded_sql('"t"', ["u"], ["x"], most, SALT)
    with pytest.raises(ArgumentError, match=r"salt = '.withheld.'.*32 hexadecimal"):
        bounded_sql('"t"', ["u"], ["x"], 1, "' OR true --" * 5)
    with pytest.raises(ArgumentError, match="max_groups.*needs the columns of a group"):
        bounded_sql('"t"', ["u"], ["x"], 1, SALT, max_groups=2)
    with pytest.raises(ArgumentError, match="units"):
        bounded_sql('"t"', [], ["x"], 1, SALT)


def test_names_are_quoted(con):
    con.execute('CREATE OR REPLACE TABLE t ("a ""b" INTEGER, "select" INTEGER); INSERT INTO t VALUES (1, 1), (1, 2), (2, 3)')
    text = bounded_sql('"t"', ['a "b'], ["select"], 1, SALT)
    assert con.execute(f"SELECT count(*) FROM ({text})").fetchone() == (2,)
    assert bounding.bounded_sql('"t"', ['a "b'], ["select"], 1, SALT) == text
