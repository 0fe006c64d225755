import itertools

import numpy as np
from case_counts import cases
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsql.methods.latent_class import LatentClass
from dpsql.tables.statistics import Statistics

METHOD = LatentClass()


@settings(derandomize=True, deadline=None, max_examples=cases(40))
@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=5),
    st.integers(0, 10**6),
    st.sampled_from([0.0, 3.0, 1e5]),
    st.sampled_from([-1000, 0, 1, 200]),
    st.sampled_from([(1, 2), (2,), (1,), (3,), ()]),
    st.sampled_from(["gaussian", "laplace"]),
)
def test_any_statistics_give_rows_of_the_domain(
    sizes: list[int], seed: int, scale: float, middle: int, orders: tuple[int, ...], mechanism: str
) -> None:
    rng = np.random.default_rng(seed)
    cliques = [c for k in orders for c in itertools.combinations(range(len(sizes)), k)]
    tables = {c: middle + rng.integers(-50, 50, [sizes[i] for i in c]) for c in cliques}
    statistics = Statistics(tuple(sizes), tables, dict.fromkeys(cliques, scale), mechanism)
    model = METHOD.fit(statistics, {"classes": 5, "steps": 20})
    assert METHOD.total(model) >= 0
    mixture = model.mixture
    assert np.isfinite(mixture.values).all()
    assert abs(mixture.shares.sum() - 1.0) < 1e-6
    start = 0
    for size in sizes:
        assert np.abs(mixture.values[start : start + size].sum(0) - 1.0).max() < 1e-9
        start += size
    for rows in (0, 1, 33):
        blocks = [np.zeros((0, len(sizes)), np.int32), *METHOD.sample(model, rows, np.random.default_rng(seed))]
        codes = np.concatenate(blocks)
        assert codes.shape == (rows, len(sizes))
        assert (codes >= 0).all()
        assert (codes < np.asarray(sizes)).all()
