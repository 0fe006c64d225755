"""Rows with empty cells: tuples without NULL, a private percentile that bounds them, rows drawn at random within it."""

from __future__ import annotations

import itertools
import json
from collections import Counter

import duckdb
import numpy as np
import pytest
from prepared import copied
from scipy.stats import chisquare

import dpsql
from dpsql.kinds.tuples import measure as measuring
from dpsql.measure import tuples
from dpsql.noise import discrete
from dpsql.tables.tuple_index import TupleIndex

pytestmark = pytest.mark.any_duckdb

COLUMNS = 5
OPTIONS = "'empty': true, 'thresholds': [0, 0]"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    path = tmp_path_factory.mktemp("made") / "numbers.duckdb"
    with duckdb.connect(str(path)) as connection:
        dpsql.load(connection)
        rng = np.random.default_rng(3)
        filled = rng.random((600, COLUMNS)) < np.linspace(0.9, 0.2, COLUMNS)
        values = rng.integers(0, 3, (600, COLUMNS)) % rng.integers(1, 4, (600, 1))
        connection.execute("CREATE TABLE t (" + ", ".join(f"c{i} INTEGER" for i in range(COLUMNS)) + ")")
        rows = [[int(v) if f else None for v, f in zip(*pair, strict=True)] for pair in zip(values, filled, strict=True)]
        connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?)", rows)
        connection.execute("CALL dp_protect('t', epsilon := 200, delta := 1e-6)")
        for i in range(COLUMNS):
            connection.execute(f"CALL dp_declare('t', 'c{i}', categories := [0, 1, 2])")
    return path


@pytest.fixture
def con(made, tmp_path):
    with copied(made, tmp_path) as connection:
        yield connection


def expected(con: duckdb.DuckDBPyConnection) -> dict:
    found: Counter = Counter()
    for row in con.execute("FROM t").fetchall():
        for k in (1, 2, 3):
            for columns in itertools.combinations(range(COLUMNS), k):
                if all(row[i] is not None for i in columns):
                    found[tuple(f"c{i}" for i in columns), tuple(str(row[i]) for i in columns)] += 1
    return dict(found)


def got(con: duckdb.DuckDBPyConnection, options: str) -> dict:
    rows = con.execute(f"FROM dp_aggregates('t', reporting_length := 3, epsilon := 1, options := {{{options}}})").fetchall()
    return {(tuple(c), tuple(v)): n for c, v, n in rows}


@pytest.mark.parametrize("bounded", [False, True])
def test_without_noise_and_with_bounds_that_nobody_reaches_it_is_the_count(con, monkeypatch, bounded):
    monkeypatch.setattr(discrete, "add_noise", lambda flat, mechanism, scale: flat.copy())
    monkeypatch.setattr(measuring, "private_percentile", lambda histogram, *rest: histogram.size - 1)
    percentage = 99 if bounded else 100
    assert got(con, f"{OPTIONS}, 'percentile_percentage': {percentage}") == expected(con)


def test_the_percentile_sees_the_number_of_tuples_of_every_row(con, monkeypatch):
    seen = []

    def spy(histogram, share, epsilon, sensitivity):
        seen.append((histogram.copy(), share, epsilon, sensitivity))
        return histogram.size - 1

    monkeypatch.setattr(discrete, "add_noise", lambda flat, mechanism, scale: flat.copy())
    monkeypatch.setattr(measuring, "private_percentile", spy)
    got(con, OPTIONS)
    width = np.asarray([sum(v is not None for v in row) for row in con.execute("FROM t").fetchall()])
    for k, (histogram, share, _, sensitivity) in enumerate(seen, 1):
        each = np.asarray([len(list(itertools.combinations(range(w), k))) for w in width])
        assert (histogram == np.bincount(each, minlength=histogram.size)).all()
        assert float(share) == 0.99
        assert float(sensitivity) == 0.99
    events = json.loads(con.execute("SELECT events FROM dpsql.ledger WHERE action = 'charge'").fetchone()[0])
    (pure,) = [e for e in events if e["event"] == "pure"]
    assert (pure["epsilon"], pure["count"]) == (str(seen[0][2]), 3)
    # three levels and the number of rows
    assert sum(e["count"] for e in events if e["event"] == "gaussian") == 4


@pytest.mark.parametrize("most", [0, 1, 4])
def test_a_row_is_in_at_most_so_many_counts_once_in_each(con, most):
    """One row at a time, as one row more of any table: what it adds."""
    index = TupleIndex((3,) * COLUMNS, 2)
    keys = np.arange(*index.level_keys(2))
    empty = tuple(range(COLUMNS))
    for row in ((0, 1, 2, 0, 1), (0, 3, 3, 2, 3), (3, 3, 3, 3, 3), (2, 2, 3, 3, 3)):
        con.execute("CREATE OR REPLACE TEMP TABLE codes (" + ", ".join(f"c{i} UTINYINT" for i in range(COLUMNS)) + ")")
        con.execute("INSERT INTO codes VALUES (?, ?, ?, ?, ?)", list(row))
        name, histogram = tuples.widths(con, "codes", index, 2, keys, empty)
        filled = sum(v < 3 for v in row)
        assert histogram[filled * (filled - 1) // 2] == histogram.sum() == 1
        counts = tuples.count_bounded(con, "codes", index, keys, empty, row_widths=name, most=most, salt="a" * 32)
        con.execute(f"DROP TABLE {name}")
        assert counts.max() <= 1
        assert counts.sum() == min(filled * (filled - 1) // 2, most)
        # only tuples that the row has
        own = {(i, j) for i, j in itertools.combinations(range(COLUMNS), 2) if row[i] < 3 and row[j] < 3}
        shown = index.attributes(keys[counts > 0], 2)
        assert {tuple((attribute // 3).tolist()) for attribute in shown} <= own


def test_tuples_are_kept_uniformly_and_one_row_does_not_change_another(con):
    index = TupleIndex((2,) * 4, 2)
    keys = np.arange(*index.level_keys(2))
    con.execute("CREATE OR REPLACE TEMP TABLE codes AS SELECT 0::UTINYINT AS c0, 1::UTINYINT AS c1, 0::UTINYINT AS c2, 1::UTINYINT AS c3 FROM range(3000)")
    name, _ = tuples.widths(con, "codes", index, 2, keys, ())
    counts = tuples.count_bounded(con, "codes", index, keys, (), row_widths=name, most=2, salt="0123456789abcdef" * 2)
    assert counts.sum() == 6000
    assert chisquare(counts[counts > 0]).pvalue > 1e-6
    assert (counts > 0).sum() == 6
    con.execute("INSERT INTO codes VALUES (1, 1, 1, 1)")
    more, _ = tuples.widths(con, "codes", index, 2, keys, ())
    after = tuples.count_bounded(con, "codes", index, keys, (), row_widths=more, most=2, salt="0123456789abcdef" * 2)
    assert np.abs(after - counts).sum() == 2
    assert np.linalg.norm(after - counts) <= 2**0.5 + 1e-12
    con.execute(f"DROP TABLE {name}")
    con.execute(f"DROP TABLE {more}")


def test_rows_have_empty_cells_as_often_as_the_table(con, monkeypatch):
    """But for the drawing of rows, whose deviation is less than 2; noise is off."""
    monkeypatch.setattr(discrete, "add_noise", lambda flat, mechanism, scale: flat.copy())
    call = "dp_synthesize('t', method := 'aggregate_seeded', epsilon := 60, options := {'reporting_length': 2, 'empty': true})"
    notes, epsilon = con.execute(
        "SELECT notes, epsilon FROM dp_plan('t', method := 'aggregate_seeded', epsilon := 60, options := {'reporting_length': 2, 'empty': true})"
    ).fetchone()
    assert "private percentile (99)" in notes[-1]
    assert epsilon <= 60
    con.execute(f"CREATE TABLE s AS FROM {call}")
    listed = ", ".join(f"count(c{i})" for i in range(COLUMNS))
    one, two = (np.asarray(con.execute(f"SELECT count(*), {listed} FROM {table}").fetchone()) for table in ("t", "s"))
    assert np.abs(one - two).max() <= 12
    both = [
        np.asarray(con.execute(f"SELECT count(*) FILTER (c0 IS NULL AND c1 IS NULL), count(*) FILTER (c3 = 1 AND c4 IS NULL) FROM {x}").fetchone())
        for x in ("t", "s")
    ]
    assert np.abs(both[0] - both[1]).max() <= 20
    assert con.execute("SELECT notes[3] FROM dp_releases()").fetchone()[0].startswith("a row was counted in at most")


@pytest.mark.parametrize("neighbors", ["add_remove", "replace_one"])
@pytest.mark.parametrize("accountant", ["zcdp", "basic"])
def test_the_charge_is_what_was_asked_for(neighbors, accountant):
    con = duckdb.connect()
    dpsql.load(con)
    con.execute("CREATE TABLE t AS SELECT CASE WHEN i % 3 > 0 THEN i % 2 END AS a, CASE WHEN i % 2 > 0 THEN i % 3 END AS b FROM range(90) r(i)")
    con.execute(f"CALL dp_protect('t', epsilon := 1, delta := 1e-6, neighbors := '{neighbors}', accountant := '{accountant}')")
    con.execute("CALL dp_declare('t', 'a', categories := [0, 1])")
    con.execute("CALL dp_declare('t', 'b', categories := [0, 1, 2])")
    con.execute("CREATE TABLE x AS FROM dp_aggregates('t', reporting_length := 2, epsilon := 1, delta := 1e-6, options := {'empty': ['a', 'B']})")
    spent, left = con.execute("SELECT epsilon_spent, epsilon_left FROM dp_budget('t')").fetchone()
    assert 0.99 < spent <= 1.0
    assert left < 0.1
    con.close()


def test_what_is_refused(con):
    for options, match in (
        ("'empty': ['c9']", "nullable"),
        ("'empty': 1", "empty"),
        ("'empty': true, 'percentile_percentage': 101", "percentile_percentage"),
    ):
        with pytest.raises(duckdb.Error, match=match):
            con.execute(f"FROM dp_aggregates('t', reporting_length := 2, epsilon := 1, options := {{{options}}})")


@pytest.fixture(scope="module")
def made_offences(tmp_path_factory):
    """Rows with none, one or several values in a text, some not declared; 'fraud' never comes with 'arson'."""
    path = tmp_path_factory.mktemp("made") / "crimes.duckdb"
    with duckdb.connect(str(path)) as connection:
        dpsql.load(connection)
        connection.execute(
            """CREATE TABLE offences AS SELECT ['x', 'y'][1 + i % 2] AS region, CASE WHEN i % 7 > 0 THEN concat_ws(';', CASE WHEN i % 3 = 0 THEN 'theft' END,
            CASE WHEN i % 4 = 0 THEN 'fraud' END, CASE WHEN i % 4 = 1 THEN 'arson' END, CASE WHEN i = 9 THEN 'Zaphod 77' END) END AS kinds FROM range(4000) t(i)"""
        )
        connection.execute("CALL dp_protect('offences', epsilon := 100, delta := 1e-6)")
        connection.execute("CALL dp_declare('offences', 'region', categories := ['x', 'y'], nullable := false)")
        connection.execute("CALL dp_declare('offences', 'kinds', categories := ['theft', 'fraud', 'arson', 'none yet'])")
    return path


@pytest.fixture
def offences(made_offences, tmp_path):
    with copied(made_offences, tmp_path) as connection:
        yield connection


def test_values_of_a_text_are_attributes_of_their_own(offences, monkeypatch):
    monkeypatch.setattr(discrete, "add_noise", lambda flat, mechanism, scale: flat.copy())
    options = "{'multi_value_columns': {'Kinds': ';'}, 'thresholds': [0], 'percentile_percentage': 100}"
    got = offences.execute(f"FROM dp_aggregates('offences', reporting_length := 2, epsilon := 1, options := {options})").fetchall()
    wanted: Counter = Counter()
    for region, kinds in offences.execute("FROM offences").fetchall():
        held = [k for k in ("theft", "fraud", "arson") if k in (kinds or "").split(";")]
        wanted[("region",), (region,)] += 1
        for kind in held:
            wanted[("kinds",), (kind,)] += 1
            wanted[("region", "kinds"), (region, kind)] += 1
        for pair in itertools.combinations(held, 2):
            wanted[("kinds", "kinds"), pair] += 1
    assert {(tuple(c), tuple(v)): n for c, v, n in got} == dict(wanted)


def test_rows_hold_several_values_in_a_text_again(offences, monkeypatch):
    """But for the drawing of rows, whose deviation is less than 6; noise is off."""
    monkeypatch.setattr(discrete, "add_noise", lambda flat, mechanism, scale: flat.copy())
    call = "dp_synthesize('offences', method := 'aggregate_seeded', epsilon := 30, options := {'reporting_length': 2, 'multi_value_columns': {'kinds': ';'}})"
    offences.execute(f"CREATE TABLE s AS FROM {call}")
    shown = offences.execute("SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = 's' ORDER BY column_index").fetchall()
    assert shown == [("region", "VARCHAR"), ("kinds", "VARCHAR")]
    counts = [dict(offences.execute(f"SELECT coalesce(kinds, ''), count(*) FROM {table} GROUP BY 1").fetchall()) for table in ("offences", "s")]
    assert sum(n for kinds, n in counts[1].items() if kinds not in counts[0]) <= 20  # in 24 runs at most 1
    assert {kind for kinds in counts[1] for kind in kinds.split(";")} <= {"", "theft", "fraud", "arson", "none yet"}
    for kinds in ("", "theft", "fraud", "theft;arson", "theft;fraud"):
        assert abs(counts[0].get(kinds, 0) - counts[1].get(kinds, 0)) < 60, kinds
    assert "Zaphod 77" not in str(counts[1])


def test_what_is_refused_of_several_values(offences):
    for options, match in (
        ("{'multi_value_columns': {'kind': ';'}}", "not a column"),
        ("{'multi_value_columns': {'kinds': ''}}", "delimiter"),
        ("{'multi_value_columns': 'kinds'}", "delimiter"),
        ("{'multi_value_columns': {'kinds': ' '}}", "holds the delimiter"),
    ):
        with pytest.raises(duckdb.Error, match=match):
            offences.execute(f"FROM dp_aggregates('offences', reporting_length := 2, epsilon := 1, options := {options})")
    assert offences.execute("SELECT count(*) FROM dp_ledger() WHERE action = 'charge'").fetchone() == (0,)
