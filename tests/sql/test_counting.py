"""Contingency tables counted on DuckDB against numpy."""

import itertools
import math

import duckdb
import numpy as np
import pytest
from sqlglot import exp

from dpsql.engines.duckdb.counting import cell_index, count_tables
from dpsql.errors import ArgumentError, DomainError, DpsqlError
from dpsql.tables.counting.roads import MAX_CELLS, check_cliques


def table_of_codes(connection, codes, name="codes"):
    connection.register("given", {f"c{i}": np.ascontiguousarray(column) for i, column in enumerate(codes.T)})
    connection.execute(f'CREATE OR REPLACE TEMP TABLE "{name}" AS FROM given')
    connection.unregister("given")


def counted(codes, sizes, clique):
    found = np.zeros([sizes[i] for i in clique], dtype=np.int64)
    np.add.at(found, tuple(codes[:, i] for i in clique), 1)
    return found


@pytest.mark.parametrize("rows", [0, 1, 5000])
@pytest.mark.parametrize("sizes", [(2, 3, 4), (1, 1, 5), (300, 2, 1), (7, 70000, 3)])
def test_tables_are_those_of_numpy(rows, sizes):
    rng = np.random.default_rng(rows)
    codes = np.stack([rng.integers(0, size, rows) for size in sizes], 1).astype(np.uint32)
    cliques = [c for k in range(4) for c in itertools.combinations(range(3), k)] + [(2, 0)]
    with duckdb.connect() as connection:
        table_of_codes(connection, codes, 'odd "name'.replace('"', ""))
        found = count_tables(connection, "odd name", sizes, cliques)
    assert list(found) == cliques
    for clique in cliques:
        assert found[clique].dtype == np.int64
        assert found[clique].shape == tuple(sizes[i] for i in clique)
        assert found[clique].sum() == rows
        if clique:
            assert (found[clique] == counted(codes, sizes, clique)).all()


def test_more_tables_than_one_statement_holds():
    rng = np.random.default_rng(3)
    sizes = tuple(int(s) for s in rng.integers(1, 6, 15))
    codes = np.stack([rng.integers(0, size, 2000) for size in sizes], 1).astype(np.uint8)
    cliques = list(itertools.combinations(range(15), 2)) * 2
    with duckdb.connect() as connection:
        table_of_codes(connection, codes)
        found = count_tables(connection, "codes", sizes, cliques)
    assert len(found) == 105
    assert all((found[clique] == counted(codes, sizes, clique)).all() for clique in cliques)


def test_the_index_cannot_overflow():
    """The last cell of the largest table that is allowed, from the smallest type of a code."""
    sizes = [256] * 3 + [16]
    assert math.prod(sizes) == MAX_CELLS
    index = cell_index([exp.column(f"c{i}") for i in range(4)], sizes).sql(dialect="duckdb")
    text = "SELECT " + ", ".join(f"{size - 1}::UTINYINT AS c{i}" for i, size in enumerate(sizes))
    with duckdb.connect() as connection:
        assert connection.execute(f"SELECT {index} FROM ({text})").fetchall() == [(MAX_CELLS - 1,)]


def test_impossible_cliques_are_refused():
    with pytest.raises(ArgumentError, match=r"cliques = \[0, 0\]: distinct positions from 0 to 1"):
        check_cliques((2, 2), [(0, 0)])
    with pytest.raises(ArgumentError, match=r"cliques = \[0, 2\]"):
        check_cliques((2, 2), [(0, 2)])
    with pytest.raises(ArgumentError):
        check_cliques((2, 2), [(-1,)])
    with pytest.raises(DomainError, match=f"has {10**15} cells, at most {MAX_CELLS}"):
        check_cliques((10**5, 10**5, 10**5), [(0, 1, 2)])


def test_an_error_shows_no_text_of_duckdb():
    with duckdb.connect() as connection, pytest.raises(DpsqlError, match="withheld") as error:
        count_tables(connection, "no such table", (2,), [(0,)])
    assert "no such table" not in str(error.value)
