import numpy as np
from case_counts import cases
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsql.tables.consistency import consistent_tables, simplex_projection
from dpsql.tables.statistics import Statistics


@settings(derandomize=True, deadline=None, max_examples=cases(60))
@given(st.lists(st.integers(1, 7), min_size=1, max_size=4), st.integers(0, 10**6), st.sampled_from([0.0, 3.0, 1e4]))
def test_shares_whatever_the_tables(sizes: list[int], seed: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    m = len(sizes)
    cliques = [(i,) for i in range(m)] + [(i, j) for i in range(m) for j in range(i + 1, m)]
    tables = {c: rng.integers(-50, 200, [sizes[i] for i in c]) for c in cliques}
    found = consistent_tables(Statistics(tuple(sizes), tables, dict.fromkeys(cliques, scale)))
    assert found.total >= 0.0
    for shares in found.one_way:
        assert shares.min() >= 0.0
        assert abs(shares.sum() - 1.0) < 1e-9
    for pair, table in found.two_way.items():
        assert table.min() >= 0.0
        assert np.abs(table.sum(1) - found.one_way[pair[0]]).max() < 1e-6
        assert np.abs(table.sum(0) - found.one_way[pair[1]]).max() < 1e-9


@settings(derandomize=True, deadline=None, max_examples=cases(200))
@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20), st.floats(1e-3, 1e6))
def test_simplex_projection_lies_on_the_simplex_and_keeps_the_order(values: list[float], total: float) -> None:
    found = simplex_projection(values, total)
    assert found.min() >= 0.0
    assert abs(found.sum() - total) <= 1e-9 * total
    order = np.argsort(values)
    assert (np.diff(found[order]) >= -1e-6 * total).all()
