"""dp_evaluate(..., report := 'values') as a user asks for it: it sees inside bins, and no table is too odd for it."""

from __future__ import annotations

import datetime as dt

import duckdb
import pytest

import dpsql

pytestmark = pytest.mark.any_duckdb

ODD_NAMES = ["select", "a b", 'q"x', "it's", "ünï 💥", "v0", "s", "g1", "values", "rowid", "c0", "dp_source", "x", "%s", "{y}", "--z", "group"]
MEASURES = {"ks", "wasserstein", "mean", "quartile_25", "median", "quartile_75", "null_share", "auc", "duplicates", "duplicate_share"}


@pytest.fixture
def empty():
    connection = duckdb.connect()
    dpsql.load(connection)
    yield connection
    connection.close()


def protect(con, table: str, **domains: str) -> None:
    con.execute(f"CALL dp_protect('{table}', epsilon := 100, delta := 1e-9)")
    for column, domain in domains.items():
        con.execute(f"CALL dp_declare('{table}', '{column}', {domain})")


@pytest.fixture
def two_groups(empty):
    """Everybody of one group has 5, everybody of the other 900; one bin holds both."""
    empty.execute("CREATE TABLE t AS SELECT CASE WHEN i % 2 = 0 THEN 'low' ELSE 'high' END AS g, CASE WHEN i % 2 = 0 THEN 5 ELSE 900 END AS x FROM range(2000) t(i)")
    protect(empty, "t", g="categories := ['low', 'high'], nullable := false", x="lower := 0, upper := 1000, bins := 1, nullable := false")
    return empty


def test_an_error_inside_a_bin_is_seen(two_groups):
    con = two_groups
    # Values spread evenly over the bin, whatever the group: what is known of x is its only bin.
    con.execute("CREATE TABLE blind AS SELECT g, (row_number() OVER ()) * 7919 % 1001 AS x FROM t")
    assert con.execute("SELECT max(tvd), max(maximum_100) FROM dp_evaluate('t', 'blind')").fetchone() == (0.0, 0.0)
    # So says each row of the other reports, and of this one.
    assert con.execute("SELECT bool_and(contains(note, 'inside a bin')) FROM dp_evaluate('t', 'blind')").fetchone() == (True,)
    assert con.execute("SELECT bool_and(contains(note, 'inside a bin')) FROM dp_evaluate('t', 'blind', report := 'tuples')").fetchone() == (True,)
    con.execute("CREATE TABLE v AS FROM dp_evaluate('t', 'blind', report := 'values')")
    assert con.execute("SELECT raw, round(synthetic / 500, 1), error > 390 FROM v WHERE measure = 'mean' AND group_value IS NOT NULL ORDER BY raw").fetchall() == [(5.0, 1.0, True), (900.0, 1.0, True)]
    assert con.execute("SELECT error > 0.4 FROM v WHERE measure = 'ks'").fetchone() == (True,)
    assert con.execute("SELECT relative > 0.2 FROM v WHERE measure = 'wasserstein'").fetchone() == (True,)  # of 895
    areas = con.execute("SELECT raw, synthetic BETWEEN 0 AND 1, note FROM v WHERE measure = 'auc'").fetchone()
    assert areas[:2] == (1.0, True)
    assert con.execute("SELECT count(*), bool_or(private), bool_and(starts_with(note, 'not private')) FROM v").fetchone() == (19, False, True)


def test_no_error_where_there_is_none(two_groups):
    con = two_groups
    con.execute("CREATE TABLE same AS FROM t")
    con.execute("CREATE TABLE v AS FROM dp_evaluate('t', 'same', report := 'values')")
    assert con.execute("SELECT max(error), count(error) FROM v WHERE measure <> 'auc'").fetchone() == (0.0, 16)
    assert con.execute("SELECT raw, synthetic FROM v WHERE measure = 'auc'").fetchone() == (1.0, 1.0)
    # What is known of real rows only says something beside how many of them are alike.
    assert con.execute("SELECT raw, synthetic FROM v WHERE measure = 'duplicate_share'").fetchone() == (1.0, 1.0)


def test_the_relation_is_as_documented(con):
    con.execute("CREATE TABLE people_synth AS FROM dp_synthesize('people', epsilon := 1)")
    before = con.execute("SELECT count(*) FROM dpsql.ledger").fetchone()
    found = con.execute("FROM dp_evaluate('people', 'people_synth', report := 'values')")
    assert [d[0] for d in found.description] == [
        "measure", "column_name", "group_column", "group_value", "share", "raw", "synthetic", "error", "relative", "rows",
        "synthetic_rows", "private", "note",
    ]
    rows = found.fetchall()
    assert {row[0] for row in rows} == MEASURES
    assert con.execute("SELECT count(*) FROM dpsql.ledger").fetchone() == before
    assert dpsql.evaluate(con, "people", "people_synth", report="values").fetchall() == rows
    alone = con.execute("SELECT DISTINCT measure FROM dp_evaluate('people', 'people_synth', report := 'values', max_k := 1)").fetchall()
    assert {row[0] for row in alone} == MEASURES - {"auc"}
    assert con.execute("SELECT count(*) FROM dp_evaluate('people', 'people_synth', report := 'values', max_k := 1) WHERE group_column IS NOT NULL").fetchone() == (0,)
    # A raw group of less than 1 % can be left out by its share.
    assert con.execute("SELECT bool_and(share BETWEEN 0 AND 1) FROM dp_evaluate('people', 'people_synth', report := 'values') WHERE group_column IS NOT NULL").fetchone() == (True,)
    for seed in (7, 8):
        assert con.execute("SELECT count(*) FROM dp_evaluate('people', 'people_synth', report := 'values', seed := ?, queries := 1)", [seed]).fetchone()[0] > 10


def test_odd_names_and_any_order_of_columns(empty):
    con = empty
    quoted = ['"' + name.replace('"', '""') + '"' for name in ODD_NAMES]
    numeric = quoted[::2]
    con.execute(f"CREATE TABLE odd AS SELECT {', '.join(f'i * {k + 3} % 50 AS {q}' if q in numeric else f'(i + {k}) % 3 = 0 AS {q}' for k, q in enumerate(quoted))} FROM range(120) t(i)")
    protect(con, "odd")
    for name in ODD_NAMES[::2]:
        con.execute("CALL dp_declare('odd', ?, lower := 0, upper := 50, bins := 5)", [name])
    con.execute(f"CREATE TABLE mirrored AS SELECT {', '.join(reversed(quoted))}, 1 AS \"another one\" FROM odd")
    con.execute("CREATE VIEW seen AS FROM mirrored")
    con.execute("CREATE TABLE v AS FROM dp_evaluate('odd', 'seen', report := 'values')")
    assert con.execute("SELECT max(error) FROM v WHERE measure <> 'auc'").fetchone() == (0.0,)
    assert [row[0] for row in con.execute("SELECT column_name FROM v WHERE measure = 'null_share'").fetchall()] == ODD_NAMES
    assert con.execute("SELECT count(DISTINCT (column_name, group_column)) FROM v WHERE group_column IS NOT NULL").fetchone() == (9 * 8,)
    assert con.execute("SELECT count(*) FROM duckdb_tables() WHERE starts_with(table_name, '__dp')").fetchone() == (0,)


@pytest.mark.parametrize("rows", ["WHERE false", "LIMIT 1", ""], ids=["empty", "one row", "some"])
@pytest.mark.parametrize("made", ["WHERE false", "LIMIT 1", ""], ids=["empty", "one row", "some"])
def test_tables_of_few_rows(empty, rows, made):
    con = empty
    everything = "SELECT i::DOUBLE AS x, NULL::INTEGER AS nothing, i % 2 = 0 AS b, NULL::VARCHAR AS word, DATE '2020-01-01' + i::INTEGER AS d FROM range(30) t(i)"
    con.execute(f"CREATE TABLE few AS FROM ({everything}) {rows}")
    con.execute(f"CREATE TABLE made AS FROM ({everything}) {made}")
    protect(con, "few", x="lower := 0, upper := 50, bins := 5", nothing="lower := 0, upper := 5, bins := 5", word="categories := ['a', 'b']", d="lower := '2020-01-01', upper := '2020-12-31', bins := 4")
    con.execute("CREATE TABLE v AS FROM dp_evaluate('few', 'made', report := 'values')")
    n, m = (con.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in ("few", "made"))
    assert con.execute("SELECT raw, synthetic FROM v WHERE measure = 'null_share' AND column_name = 'nothing'").fetchone() == (1.0 if n else None, 1.0 if m else None)
    assert con.execute("SELECT raw, synthetic, error, rows, synthetic_rows FROM v WHERE measure = 'median' AND column_name = 'nothing' AND group_column IS NULL").fetchone() == (None, None, None, 0, 0)
    ks, rows_, synthetic_rows = con.execute("SELECT error, rows, synthetic_rows FROM v WHERE measure = 'ks' AND column_name = 'x'").fetchone()
    assert (rows_, synthetic_rows) == (n, m) and (ks is None) == (not n or not m)
    assert con.execute("SELECT raw, synthetic FROM v WHERE measure = 'duplicates'").fetchone() == (0.0, float(min(n, m)))
    means = dict(con.execute("SELECT coalesce(group_value, 'all'), (raw, synthetic) FROM v WHERE measure = 'mean' AND column_name = 'd' AND (group_column IS NULL OR group_column = 'b')").fetchall())
    first = (dt.date(2020, 1, 1) - dt.date(1970, 1, 1)).days
    assert list(means["all"].values() if isinstance(means["all"], dict) else means["all"]) == [None if not k else first + (k - 1) / 2 for k in (n, m)]
    areas = con.execute("SELECT raw FROM v WHERE measure = 'auc' AND column_name = 'b'").fetchone()
    assert areas == (None,)  # fewer than ten rows of each value


def test_a_group_that_one_table_lacks(two_groups):
    con = two_groups
    con.execute("CREATE TABLE half AS FROM t WHERE g = 'low'")
    con.execute("CREATE TABLE v AS FROM dp_evaluate('t', 'half', report := 'values')")
    raw, synthetic, error, rows, share, note = con.execute("SELECT raw, synthetic, error, synthetic_rows, share, note FROM v WHERE measure = 'mean' AND group_value = 'high'").fetchone()
    assert (raw, synthetic, error, rows, share) == (900.0, None, None, 0, 0.5) and "the synthetic table has no such rows" in note
    con.execute("CREATE TABLE new_one AS SELECT 'other' AS g, 3 AS x")
    found = con.execute("SELECT group_value, raw, synthetic, share, note FROM dp_evaluate('t', 'new_one', report := 'values') WHERE measure = 'mean' AND group_value = '(other)'").fetchone()
    assert found[:4] == ("(other)", None, 3.0, 0.0) and "the raw table has no such rows" in found[4]


def test_numbers_that_are_none_and_numbers_that_are_too_large(empty):
    con = empty
    con.execute("CREATE TABLE t (x DOUBLE, h HUGEINT, ts TIMESTAMP, b BOOLEAN)")
    con.execute("INSERT INTO t VALUES (1, 1, '2020-01-01', true), ('nan', NULL, 'infinity', true), ('inf', 2, '2020-01-02', false), (NULL, 170141183460469231731687303715884105727, NULL, false), (1e308, 3, '2020-01-03', true), (-1e308, 4, '2020-01-03', true)")
    protect(con, "t", x="lower := 0, upper := 10, bins := 2", h="lower := 0, upper := 10, bins := 2", ts="lower := '2020-01-01', upper := '2021-01-01', bins := 2")
    con.execute("CREATE TABLE s AS FROM t WHERE b")
    con.execute("CREATE TABLE v AS FROM dp_evaluate('t', 's', report := 'values')")
    shares = dict(con.execute("SELECT column_name, raw FROM v WHERE measure = 'null_share'").fetchall())
    assert {name: round(6 * share) for name, share in shares.items()} == {"x": 2, "h": 1, "ts": 1, "b": 0}
    # an infinity is the nearer bound, as in a release: 'inf' is 10
    assert con.execute("SELECT raw FROM v WHERE measure = 'median' AND column_name = 'x' AND group_column IS NULL").fetchone() == (5.5,)
    assert con.execute("SELECT raw FROM v WHERE measure = 'quartile_75' AND column_name = 'x' AND group_column IS NULL").fetchone()[0] > 1e306
    assert con.execute("SELECT error FROM v WHERE measure = 'ks' AND column_name = 'h'").fetchone()[0] == pytest.approx(0.2)
    day = con.execute("SELECT raw FROM v WHERE measure = 'quartile_75' AND column_name = 'ts' AND group_column IS NULL").fetchone()[0]
    assert con.execute("SELECT make_timestamp((? * 1000000)::BIGINT)", [day]).fetchone() == (dt.datetime(2020, 1, 3),)
    mean = con.execute("SELECT raw FROM v WHERE measure = 'mean' AND column_name = 'ts' AND group_column IS NULL").fetchone()[0]
    days = [dt.date(2020, 1, 1), dt.date(2021, 1, 1), dt.date(2020, 1, 2), dt.date(2020, 1, 3), dt.date(2020, 1, 3)]
    assert mean == pytest.approx(86400 * sum((day - dt.date(1970, 1, 1)).days for day in days) / 5)


def test_a_spread_of_nothing_says_so(empty):
    con = empty
    con.execute("CREATE TABLE t AS SELECT (i = 7)::INTEGER * 100 AS x FROM range(40) t(i)")
    con.execute("CREATE TABLE s AS SELECT (i % 4 = 0)::INTEGER AS x FROM range(40) t(i)")
    protect(con, "t", x="lower := 0, upper := 100, bins := 4")
    found = con.execute("SELECT error, relative, note FROM dp_evaluate('t', 's', report := 'values') WHERE measure = 'wasserstein'").fetchone()
    assert found[0] == pytest.approx(2.7) and found[1] is None and "interquartile range of the raw column is 0" in found[2]


def test_columns_that_are_missing_and_types_that_differ(two_groups):
    con = two_groups
    con.execute("CREATE TABLE part AS SELECT x::DOUBLE + 0.0 AS X FROM t")
    rows = con.execute("SELECT DISTINCT column_name, note FROM dp_evaluate('t', 'part', report := 'values') WHERE column_name IS NOT NULL").fetchall()
    assert rows == [("x", "not private: computed from raw rows, for the custodian only; the synthetic table lacks 'g'")]
    assert con.execute("SELECT synthetic FROM dp_evaluate('t', 'part', report := 'values') WHERE measure = 'duplicates'").fetchone() == (2000.0,)  # 5 = 5.0
    con.execute("CREATE TABLE none_of_them AS SELECT 1 AS y")
    with pytest.raises(duckdb.Error, match="none of the declared columns"):
        con.execute("FROM dp_evaluate('t', 'none_of_them', report := 'values')")
    con.execute("CREATE TABLE texts AS SELECT g, x::VARCHAR AS x FROM t")
    with pytest.raises(duckdb.Error, match="CAST it in a view"):
        con.execute("FROM dp_evaluate('t', 'texts', report := 'values')")
    with pytest.raises(duckdb.Error, match="report"):
        con.execute("FROM dp_evaluate('t', 'part', report := 'value')")


def test_rows_that_drop_leaves_out_are_left_out(empty):
    con = empty
    con.execute("CREATE TABLE t AS SELECT i AS x, i % 2 = 0 AS b FROM range(100) t(i)")
    protect(con, "t", x="lower := 0, upper := 49, bins := 5, outside := 'drop', nullable := false")
    con.execute("CREATE TABLE s AS FROM t")
    rows, synthetic_rows, raw = con.execute("SELECT rows, synthetic_rows, raw FROM dp_evaluate('t', 's', report := 'values') WHERE measure = 'mean' AND group_column IS NULL").fetchone()
    assert (rows, synthetic_rows, raw) == (50, 50, 24.5)
    assert con.execute("SELECT rows FROM dp_evaluate('t', 's', report := 'values') WHERE measure = 'duplicates'").fetchone() == (50,)


def test_columns_of_several_values_and_rows_of_one_person(empty):
    con = empty
    con.execute("CREATE TABLE visits AS SELECT i // 3 AS patient, CASE i % 3 WHEN 0 THEN 'a;b' WHEN 1 THEN 'b' END AS tags, i AS cost FROM range(300) t(i)")
    con.execute("CALL dp_protect('visits', epsilon := 100, delta := 1e-9, privacy_unit := 'patient', max_contributions := 2)")
    con.execute("CALL dp_declare('visits', 'tags', categories := ['a', 'b'])")
    con.execute("CALL dp_declare('visits', 'cost', lower := 0, upper := 300, bins := 6)")
    con.execute("CREATE TABLE made AS FROM dp_synthesize('visits', epsilon := 50, method := 'aggregate_seeded', options := {'multi_value_columns': {'tags': ';'}})")
    con.execute("CREATE TABLE v AS FROM dp_evaluate('visits', 'made', report := 'values')")
    assert con.execute("SELECT count(*) FROM v WHERE column_name = 'patient'").fetchone() == (0,)
    groups = dict(con.execute("SELECT coalesce(group_value, 'NULL'), share FROM v WHERE measure = 'mean' AND group_column = 'tags'").fetchall())
    assert groups["(other)"] == pytest.approx(1 / 3) and groups["NULL"] == pytest.approx(1 / 3) and groups["b"] == pytest.approx(1 / 3)  # texts as they are


def test_nothing_of_a_failure_is_shown(empty):
    con = empty
    con.execute("CREATE TABLE t AS SELECT 5 AS x")
    protect(con, "t", x="lower := 0, upper := 10, bins := 2")
    con.execute("CREATE VIEW broken AS SELECT CAST('secret ' || x AS INTEGER) AS x FROM t")
    with pytest.raises(duckdb.Error) as caught:
        con.execute("FROM dp_evaluate('t', 'broken', report := 'values')")
    assert "secret" not in str(caught.value)
    assert con.execute("SELECT count(*) FROM duckdb_tables() WHERE starts_with(table_name, '__dp')").fetchone() == (0,)


def test_many_columns_are_sampled_and_bounded(empty):
    con = empty
    con.execute("CREATE TABLE wide AS SELECT " + ", ".join([f"(i * {k} + {k}) % 7 = 0 AS b{k}" for k in range(120)] + [f"i * {k + 1} % 90 AS n{k}" for k in range(24)]) + " FROM range(60) t(i)")
    protect(con, "wide")
    for k in range(24):
        con.execute(f"CALL dp_declare('wide', 'n{k}', lower := 0, upper := 90, bins := 3)")
    con.execute("CREATE TABLE s AS FROM wide")
    con.execute("CREATE TABLE v AS FROM dp_evaluate('wide', 's', report := 'values')")
    assert con.execute("SELECT count(*) FROM v WHERE measure = 'auc'").fetchone() == (20,)
    note, total = con.execute("SELECT any_value(note), count(*) FROM v").fetchone()
    assert "20 of 120 columns are predicted from 100 of 144 columns" in note and "of 2,880 pairs of columns, a sample" in note
    assert total < 45_000
