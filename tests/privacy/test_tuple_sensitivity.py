"""The sensitivity of counted tuples, by enumeration of neighbours: whatever was kept before, the noise of a level covers one unit."""

from __future__ import annotations

import itertools
import math

import duckdb
import numpy as np
import pytest

from dpsql.accounting import sensitivities
from dpsql.engines.duckdb import tuples
from dpsql.measure import candidates as chosen
from dpsql.tables.tuple_index import TupleIndex

SIZES = (2, 3, 2, 2)
INDEX = TupleIndex(SIZES, 3)
ROWS = list(itertools.product(*map(range, SIZES)))


@pytest.fixture(scope="module")
def cursor():
    con = duckdb.connect()
    yield con
    con.close()


def counts(cursor: duckdb.DuckDBPyConnection, rows: list[tuple[int, ...]], keys: np.ndarray) -> np.ndarray:
    columns = ", ".join(f"c{i} UTINYINT" for i in range(len(SIZES)))
    cursor.execute(f"CREATE OR REPLACE TEMP TABLE codes ({columns})")
    if rows:
        cursor.executemany("INSERT INTO codes VALUES (?, ?, ?, ?)", [list(row) for row in rows])
    return tuples.count_tuples(cursor, "codes", INDEX, keys)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_one_row_moves_a_level_by_at_most_the_root_of_the_number_of_tables(cursor, k):
    """add_remove: the difference is the count of the row itself, since counts add; and it is reached."""
    keys = np.arange(*INDEX.level_keys(k))
    alone = {row: counts(cursor, [row], keys) for row in ROWS}
    base = [ROWS[3], ROWS[3], ROWS[17]]
    together = counts(cursor, base, keys)
    assert (together == sum(alone[row] for row in base)).all()  # counts add, so neighbours differ by the row's own counts
    tables = math.comb(len(SIZES), k)
    assert {float(np.linalg.norm(n)) for n in alone.values()} == {math.sqrt(tables)}
    assert sensitivities("add_remove")[1] == 1.0
    worst = max(np.linalg.norm(alone[a] - alone[b]) for a in ROWS for b in ROWS)
    assert worst <= math.sqrt(tables) * sensitivities("replace_one")[1]
    assert worst == pytest.approx(math.sqrt(2 * tables))


@pytest.mark.parametrize("rows_each", [1, 3])
def test_whatever_was_kept_a_level_is_covered(cursor, rows_each):
    """Random sets of kept tuples: counts over fewer tuples differ by no more."""
    rng = np.random.default_rng(8)
    for k in (2, 3):
        lower = np.arange(*INDEX.level_keys(k - 1))
        tables = math.comb(len(SIZES), k)
        for _ in range(6):
            kept = lower[rng.random(lower.size) < 0.7]
            keys = chosen.candidates(cursor, INDEX, k, kept, np.ones_like(kept)).keys
            unit = [ROWS[i] for i in rng.integers(0, len(ROWS), rows_each)]
            other = [ROWS[i] for i in rng.integers(0, len(ROWS), rows_each)]
            one, two = counts(cursor, unit, keys), counts(cursor, other, keys)
            same = counts(cursor, [unit[0]] * rows_each, keys)
            assert np.linalg.norm(one) <= math.sqrt(tables) * sensitivities("add_remove", rows_each)[1] + 1e-12
            assert np.linalg.norm(same) <= math.sqrt(tables) * sensitivities("add_remove", rows_each)[1] + 1e-12
            assert np.linalg.norm(one - two) <= math.sqrt(tables) * sensitivities("replace_one", rows_each)[1] + 1e-12


def test_candidates_are_a_function_of_what_was_kept(cursor):
    """Brute force: a tuple is a candidate if and only if all its parts were kept; rows are not looked at."""
    rng = np.random.default_rng(4)
    for k in (2, 3):
        lower = np.arange(*INDEX.level_keys(k - 1))
        every = np.arange(*INDEX.level_keys(k))
        attributes = INDEX.attributes(every, k)
        for share in (0.0, 0.3, 0.8, 1.0):
            kept = lower[rng.random(lower.size) < share]
            known = {tuple(t) for t in INDEX.attributes(kept, k - 1).tolist()} if kept.size else set()
            wanted = [key for key, t in zip(every, attributes.tolist(), strict=True) if set(itertools.combinations(t, k - 1)) <= known]
            found = chosen.candidates(cursor, INDEX, k, kept, np.ones_like(kept))
            assert found.keys.tolist() == wanted and found.extended == kept.size


@pytest.mark.parametrize("which", ["limit", "joined"])
def test_too_many_candidates_are_cut_by_released_counts_alone(cursor, monkeypatch, which):
    """Brute force: the longest beginning of the list of kept tuples, by count and then by key, that is within the limit."""
    rng = np.random.default_rng(6)
    cut = 0
    for k in (2, 3):
        lower = np.arange(*INDEX.level_keys(k - 1))
        every = INDEX.attributes(np.arange(*INDEX.level_keys(k)), k).tolist()
        for most in (0, 1, 2, 5, 17, 40, 10**6):
            if which == "limit":
                monkeypatch.setattr(chosen, "most_candidates", lambda k, most=most: most)
            else:
                monkeypatch.setattr(chosen, "MAX_JOINED", most)
            kept = lower[rng.random(lower.size) < 0.8]
            noisy = rng.integers(-3, 4, kept.size) * 2**60
            ranked = [tuple(t) for t in INDEX.attributes(kept[np.lexsort((kept, -noisy))], k - 1).tolist()]
            found = chosen.candidates(cursor, INDEX, k, kept, noisy)
            of = [[t for t in every if set(itertools.combinations(t, k - 1)) <= set(ranked[:m])] for m in range(kept.size + 1)]
            assert INDEX.attributes(found.keys, k).tolist() == of[found.extended]
            if which == "limit":
                assert len(of[found.extended]) <= most
                assert found.extended == kept.size or len(of[found.extended + 1]) > most
            elif k == 3:
                assert len(of[found.extended]) <= most  # what is joined is at least what remains of it
            cut += found.extended < kept.size
    assert cut >= 4


def test_how_many_are_counted_depends_on_the_machine_alone(monkeypatch):
    monkeypatch.setenv("DPSQL_MEMORY_MB", "1000000")
    assert chosen.most_candidates(3) == chosen.MAX_CANDIDATES
    monkeypatch.setenv("DPSQL_MEMORY_MB", "4000")
    assert 5_000_000 < chosen.most_candidates(3) < chosen.most_candidates(2) < chosen.MAX_CANDIDATES
    monkeypatch.setenv("DPSQL_MEMORY_MB", "1")
    assert chosen.most_candidates(2) == 100_000


def test_a_broken_bound_is_seen(cursor):
    """Three rows of a unit charged as one: the enumeration above would say so."""
    keys = np.arange(*INDEX.level_keys(2))
    same = counts(cursor, [ROWS[0]] * 3, keys)
    assert np.linalg.norm(same) > math.sqrt(6) * sensitivities("add_remove", 1)[1]
