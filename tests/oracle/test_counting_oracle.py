"""Every road counts the same whole numbers as plain numpy, on awkward shapes."""

import itertools
from contextlib import contextmanager

import duckdb
import numpy as np
import pytest
from case_counts import cases
from hypothesis import given, settings
from hypothesis import strategies as st
from pairwise import in_turn

from dpsql.engines.duckdb import counting
from dpsql.engines.duckdb.counting import count_select, count_tables
from dpsql.tables.counting import gram, roads
from dpsql.tables.counting.roads import Cliques, choose

ROADS = ("sql", "fold", "gram")
SHAPES = [
    (1,),
    (2,),
    (1, 1, 1),
    (5, 1, 2),
    (2, 2, 2, 2, 2),
    (3, 2, 1, 7, 2, 64, 65),
    (300, 2, 10_000, 3, 2),
    (2, 70_000, 5),
]
ROWS = [0, 1, 2, 4094, 4095, 4096, 4097, 2**16 - 1, 2**16, 2**16 + 1]


@contextmanager
def forced(road):
    """Take this road whatever it costs, with one-hot columns for all attributes that can have them; None: the one that is chosen."""

    def choose_it(sizes, asked):
        cliques = Cliques.of(asked)
        if road == "sql":
            return roads._sql(sizes, cliques)
        hot = () if road == "fold" else tuple(i for i, size in enumerate(sizes) if size <= roads._THRESHOLDS[-1])
        return min(roads._streams(sizes, cliques, hot), key=lambda work: work.seconds(roads.NOMINAL_ROWS))

    with pytest.MonkeyPatch.context() as patch:
        if road is not None:
            patch.setattr(counting, "choose", choose_it)
        yield


def table(connection, codes, sizes):
    columns = ", ".join(f"CAST(x{i} AS {counting.code_type(size)}) AS c{i}" for i, size in enumerate(sizes))
    connection.register("given", {f"x{i}": np.ascontiguousarray(column) for i, column in enumerate(codes.T)})
    connection.execute(f"CREATE OR REPLACE TEMP TABLE codes AS SELECT {columns} FROM given")
    connection.unregister("given")


def counted(codes, sizes, clique):
    shape = [sizes[i] for i in clique]
    cells = np.ravel_multi_index([codes[:, i] for i in clique], shape) if clique else np.zeros(len(codes), dtype=np.int64)
    return np.bincount(cells, minlength=int(np.prod(shape))).reshape(shape)


def random_codes(rows, sizes, seed=0):
    rng = np.random.default_rng(seed)
    return np.stack([np.minimum((rng.random(rows) ** 2 * size).astype(np.int64), size - 1) for size in sizes], axis=1)


def every_road_agrees(codes, sizes, cliques, roads=ROADS):
    with duckdb.connect() as connection:
        table(connection, codes, sizes)
        for road in (None, *roads):
            with forced(road):
                found = count_tables(connection, "codes", sizes, cliques)
            assert list(found) == list(dict.fromkeys(cliques)), road
            for clique in cliques:
                assert found[clique].dtype == np.int64
                assert (found[clique] == counted(codes, sizes, clique)).all(), (road, clique)
        assert connection.execute("SELECT count(*) FROM duckdb_tables() WHERE temporary").fetchall() == [(1,)]


@pytest.mark.parametrize(("sizes", "rows"), in_turn(SHAPES, [0, 1, 4097], 2), ids=str)
def test_awkward_sizes_of_every_order(sizes, rows):
    positions = range(len(sizes))
    cliques = [c for k in range(min(len(sizes), 3) + 1) for c in itertools.combinations(positions, k)]
    cliques += [c[::-1] for c in cliques if len(c) > 1] + cliques[:2]
    cliques = [c for c in cliques if np.prod([sizes[i] for i in c], dtype=float) <= 2**22]
    every_road_agrees(random_codes(rows, sizes), sizes, cliques)


@pytest.mark.parametrize("rows", ROWS)
def test_awkward_numbers_of_rows(rows):
    sizes = (2, 3, 2, 2, 1, 9, 300)
    cliques = [(), (3,), (6, 5), *itertools.combinations(range(6), 2), (0, 1, 2), (5, 1, 0, 3)]
    every_road_agrees(random_codes(rows, sizes, rows), sizes, cliques)


@pytest.mark.parametrize("code", [0, 1])
def test_packed_sums_are_exact_when_every_row_has_every_one(code, monkeypatch):
    """The largest sums that two counts in one float32 can have: blocks of 4,095 rows, all of them ones."""
    seen = []
    original = gram.GramCounter._multiply

    def spy(self, codes, start, stop):
        seen.append(stop - start)
        original(self, codes, start, stop)

    monkeypatch.setattr(gram.GramCounter, "_multiply", spy)
    every_road_agrees(np.full((3 * 4095, 7), code), (2,) * 7, list(itertools.combinations(range(7), 2)))
    assert seen == [4095] * 3
    assert 4095 + 4096 * 4095 < 2**24 <= 4096 + 4096 * 4096


def test_more_one_hot_columns_than_a_tile_holds():
    sizes = tuple(2 + i % 4 for i in range(201))
    codes = random_codes(5000, sizes)
    cliques = [(i,) for i in range(201)] + list(itertools.combinations(range(201), 2))[::7] + [(200, 0)]
    every_road_agrees(codes, sizes, cliques, ("fold", "gram"))  # SQL would take a minute


@settings(max_examples=cases(25), deadline=None)
@given(st.data())
def test_any_mixture(data):
    sizes = tuple(data.draw(st.lists(st.sampled_from([1, 2, 2, 2, 3, 5, 40, 300]), min_size=1, max_size=9)))
    clique = st.lists(st.integers(0, len(sizes) - 1), unique=True, max_size=3).map(tuple)
    cliques = data.draw(st.lists(clique, max_size=30))
    rows = data.draw(st.sampled_from([0, 1, 7, 2500]))
    every_road_agrees(random_codes(rows, sizes, 1), sizes, cliques)


def test_a_select_is_counted_with_its_number_of_rows():
    select = "SELECT CAST(i % 2 AS UTINYINT) AS c0, CAST(i % 3 AS UTINYINT) AS c1 FROM range(10000) t(i) WHERE i % 5 > 0"
    with duckdb.connect() as connection:
        for road in (None, *ROADS):
            for cliques in ([(0, 1)], [(0,), (1,), (1, 0)], [()], []):
                with forced(road):
                    tables, total = count_select(connection, select, (2, 3), cliques)
                assert total == 8000
                assert list(tables) == cliques


def test_the_road_depends_on_the_domain_and_is_cheap_to_find():
    binary = list(itertools.combinations(range(400), 2))
    assert len(choose((2,) * 400, binary).gram) == 400
    assert choose((10,) * 8, list(itertools.combinations(range(8), 2))).road == "stream"
    assert choose((10, 10, 10), [(0, 1)]).road == "sql"
    mixed = (2,) * 300 + (200,) * 5
    work = choose(mixed, list(itertools.combinations(range(305), 2)))
    assert work.gram == tuple(range(300))


def test_a_missing_code_is_not_counted_as_another(monkeypatch):
    select = "SELECT CAST(nullif(i % 3, 2) AS UTINYINT) AS c0, CAST(i % 2 AS UTINYINT) AS c1 FROM range(100) t(i)"
    with duckdb.connect() as connection:
        for road in ("fold", "gram"):
            with forced(road), pytest.raises(counting.DpsqlError, match="a code is missing"):
                count_select(connection, select, (2, 2), [(0, 1)])


def test_an_error_within_the_rows_is_withheld():
    select = "SELECT CAST(CASE WHEN i = 90000 THEN error('north') ELSE '1' END AS UTINYINT) AS c0 FROM range(100000) t(i)"
    with duckdb.connect() as connection:
        for road in ROADS:
            with forced(road), pytest.raises(counting.DpsqlError, match="withheld") as caught:
                count_select(connection, select, (2,), [(0,)])
            assert "north" not in str(caught.value)
        assert connection.execute("SELECT count(*) FROM duckdb_tables() WHERE temporary").fetchall() == [(0,)]


def test_groups_respect_their_budget():
    for budget in (1, 16, 256):
        number, parts = roads.groups([2, 300, 4, 3, 3, 1], budget)
        assert sorted(itertools.chain.from_iterable(parts)) == list(range(6))
        assert all(number[position] == group for group, part in enumerate(parts) for position in part)
        assert all(len(part) == 1 or np.prod([(2, 300, 4, 3, 3, 1)[i] for i in part]) <= budget for part in parts)
