"""Files written from codes and tables, read back on DuckDB."""

import datetime as dt
import itertools

import duckdb
import numpy as np
import pytest
from scipy import stats

from dpsql.domains.attributes import Attribute, Domain
from dpsql.domains.declare import declare
from dpsql.rows import decoding, listing
from dpsql.rows.decoding import one_hot_names, rows_sql, write_one_hot, write_rows
from dpsql.rows.listing import write_cells
from dpsql.rows.writing import parquet_files

pytestmark = pytest.mark.any_duckdb

DOMAIN = Domain(
    (
        declare("age", "UTINYINT", nullable=False, lower=0, upper=120, bins=6),
        declare('odd "name"; é', "VARCHAR", nullable=True, categories=["it's", "", "a,b"], outside="other"),
        declare("paid", "DECIMAL(9,2)", nullable=True, lower=0, upper=1, bins=4),
        declare("born", "DATE", nullable=False, lower="1900-01-01", upper="2000-01-01", bins=10),
        declare("select", "ENUM('x', 'y')", nullable=True),
        declare("big", "HUGEINT", nullable=True, lower=-(10.0**30), upper=10.0**30, bins=3),
        declare("at", "TIMESTAMP WITH TIME ZONE", nullable=True, lower="2020-01-01", upper="2021-01-01", bins=12),
        declare("share", "FLOAT", nullable=True, lower=0, upper=1, bins=7),
    )
)


@pytest.fixture
def connection():
    with duckdb.connect() as found:
        yield found


def some_codes(rows, seed=0):
    rng = np.random.default_rng(seed)
    return np.stack([rng.integers(0, size, rows) for size in DOMAIN.sizes], 1).astype(np.int32)


def read(connection, path):
    rows = connection.execute(f"SELECT COLUMNS(*)::VARCHAR FROM ({rows_sql(DOMAIN, path)})").fetchall()
    described = connection.execute(f"DESCRIBE {rows_sql(DOMAIN, path)}").fetchall()
    return rows, [tuple(column[:2]) for column in described]


def test_names_types_and_order_are_the_source_s(connection, tmp_path):
    path = tmp_path / "it's a file.parquet"
    write_rows(connection, [some_codes(100)], DOMAIN, np.random.default_rng(0), path)
    rows, described = read(connection, path)
    assert len(rows) == 100
    assert described == [(a.name, a.sql_type) for a in DOMAIN.attributes]
    assert [p.name for p in tmp_path.iterdir()] == ["it's a file.parquet"]


def test_null_and_other(connection, tmp_path):
    codes = np.zeros((2, len(DOMAIN.attributes)), dtype=np.int32)
    codes[0] = [a.null_code if a.nullable else 0 for a in DOMAIN.attributes]
    codes[1, 1] = DOMAIN.attributes[1].other_code
    write_rows(connection, [codes], DOMAIN, np.random.default_rng(0), tmp_path / "x")
    (first, second), _ = read(connection, tmp_path / "x")
    assert [value is None for value in first] == [a.nullable for a in DOMAIN.attributes]
    assert second[1] == "(other)"


def test_the_same_generator_state_gives_the_same_rows_however_they_are_blocked(connection, tmp_path, monkeypatch):
    codes = some_codes(1000)
    write_rows(connection, [codes], DOMAIN, np.random.default_rng(3), tmp_path / "one")
    write_rows(connection, np.array_split(codes, 13), DOMAIN, np.random.default_rng(3), tmp_path / "many")
    write_rows(connection, [codes], DOMAIN, np.random.default_rng(4), tmp_path / "other")
    assert read(connection, tmp_path / "one") == read(connection, tmp_path / "many")
    assert read(connection, tmp_path / "one") != read(connection, tmp_path / "other")


def test_many_parts_become_one_file_in_order(connection, tmp_path, monkeypatch):
    codes = some_codes(1000)
    monkeypatch.setattr(decoding, "_ROW_GROUP", 50)
    write_rows(connection, [codes[:10], codes[10:700], codes[700:]], DOMAIN, np.random.default_rng(3), tmp_path / "x")
    rows, _ = read(connection, tmp_path / "x")
    labels = {"x": 0, "y": 1, None: 2}
    assert [labels[row[4]] for row in rows] == codes[:, 4].tolist()
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


@pytest.mark.parametrize("blocks", [[], [np.empty((0, 8), np.int32)]])
def test_no_rows_still_have_columns(connection, tmp_path, blocks):
    write_rows(connection, blocks, DOMAIN, np.random.default_rng(0), tmp_path / "x")
    rows, described = read(connection, tmp_path / "x")
    assert rows == []
    assert [name for name, _ in described] == list(DOMAIN.names)


def test_a_failure_leaves_nothing_behind(connection, tmp_path):
    def blocks():
        yield some_codes(10)
        raise RuntimeError("stopped")

    with pytest.raises(RuntimeError, match="stopped"):
        write_rows(connection, blocks(), DOMAIN, np.random.default_rng(0), tmp_path / "x")
    with pytest.raises(ValueError, match=r"\(rows, 8\) is required"):
        write_rows(connection, [np.zeros((3, 2), np.int32)], DOMAIN, np.random.default_rng(0), tmp_path / "x")
    assert list(tmp_path.iterdir()) == []
    assert connection.execute("SELECT count(*) FROM duckdb_views() WHERE view_name LIKE '__dp%'").fetchall() == [(0,)]


@pytest.mark.parametrize(
    ("attribute", "low", "high"),
    [
        (declare("x", "INTEGER", nullable=False, edges=[0, 10]), 0, 10),
        (declare("x", "DOUBLE", nullable=False, edges=[-1, 3]), -1, 3),
        (declare("x", "DECIMAL(5,2)", nullable=False, edges=[0, 2]), 0, 2),
        (declare("x", "HUGEINT", nullable=False, edges=[0, 1e30]), 0, 1e30),
        (declare("x", "BIGINT", nullable=False, edges=[-(2.0**63), 2.0**63]), -(2.0**63), 2.0**63),
    ],
)
def test_values_are_uniform_in_the_bin(connection, tmp_path, attribute, low, high):
    domain = Domain((attribute,))
    write_rows(connection, [np.zeros((20000, 1), np.int32)], domain, np.random.default_rng(1), tmp_path / "x")
    values = np.array([float(row[0]) for row in connection.execute(rows_sql(domain, tmp_path / "x")).fetchall()])
    if attribute.sql_type == "INTEGER":
        assert stats.chisquare(np.bincount(values.astype(int), minlength=11)).pvalue > 1e-6
    else:
        assert stats.kstest((values - low) / (high - low), "uniform").pvalue > (
            1e-6 if "DECIMAL" not in attribute.sql_type else 1e-12
        )
    assert values.min() >= low
    assert values.max() <= high


def test_dates_are_whole_days_of_the_bin(connection, tmp_path):
    domain = Domain((declare("d", "DATE", nullable=False, lower="2020-01-01", upper="2020-01-05", bins=2),))
    write_rows(connection, [np.repeat([[0], [1]], 500, axis=0).astype(np.int32)], domain, np.random.default_rng(1), tmp_path / "x")
    days = [row[0] for row in connection.execute(rows_sql(domain, tmp_path / "x")).fetchall()]
    assert set(days[:500]) == {dt.date(2020, 1, 1), dt.date(2020, 1, 2)}
    assert set(days[500:]) == {dt.date(2020, 1, 3), dt.date(2020, 1, 4), dt.date(2020, 1, 5)}


def test_one_hot_columns_are_distinct_for_duckdb(connection, tmp_path):
    domain = Domain(
        (
            Attribute("a", "VARCHAR", "categorical", categories=("x", "X", "NULL", "it's"), outside="other"),
            Attribute("A", "INTEGER", "numeric", edges=(0.0, 1.0, 2.0), nullable=False),
        )
    )
    names = one_hot_names(domain)
    assert names == ["a=x", "a=X (2)", "a=NULL", "a=it's", "a=(other)", "a=NULL (2)", "A=[0, 1)", "A=[1, 2]"]
    block = np.random.default_rng(0).integers(0, 2, (50, 8)).astype(np.uint8)
    write_one_hot(connection, [block[:20], block[20:]], domain, tmp_path / "x")
    result = connection.execute(f"FROM read_parquet('{tmp_path / 'x'}')")
    assert [column[0] for column in result.description] == names
    assert np.array_equal(np.array(result.fetchall()), block)
    types = connection.execute(f"DESCRIBE FROM read_parquet('{tmp_path / 'x'}')").fetchall()
    assert {row[1] for row in types} == {"UTINYINT"}


@pytest.mark.parametrize("part", [7, 1_000_000])
def test_every_cell_is_written(connection, tmp_path, monkeypatch, part):
    monkeypatch.setattr(listing, "_PART_ROWS", part)
    rng = np.random.default_rng(0)
    cliques = [(0,), (0, 1), (1, 4), (0, 1, 4), (5,), ()]
    tables = {c: rng.integers(-(2**40), 2**40, [DOMAIN.sizes[i] for i in c]) for c in cliques}
    write_cells(connection, tables, DOMAIN, tmp_path / "x")
    expected = []
    for clique in cliques:
        labels = [DOMAIN.attributes[i].labels() for i in clique]
        for index in itertools.product(*(range(len(some)) for some in labels)):
            values = [some[i] for some, i in zip(labels, index, strict=True)]
            expected.append(([DOMAIN.names[i] for i in clique], values, int(tables[clique][index])))
    assert connection.execute(f"FROM {parquet_files(tmp_path / 'x')}").fetchall() == expected
    described = connection.execute(f"DESCRIBE FROM {parquet_files(tmp_path / 'x')}").fetchall()
    assert [row[:2] for row in described] == [("columns", "VARCHAR[]"), ("values", "VARCHAR[]"), ("n", "BIGINT")]


def test_no_cells(connection, tmp_path):
    write_cells(connection, {}, DOMAIN, tmp_path / "x")
    assert connection.execute(f"FROM read_parquet('{tmp_path / 'x'}')").fetchall() == []
