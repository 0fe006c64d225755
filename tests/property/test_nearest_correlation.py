import numpy as np
from case_counts import cases
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsql.numerics.nearest_correlation import lift_spectrum, nearest_correlation


@settings(derandomize=True, deadline=None, max_examples=cases(60))
@given(st.integers(1, 25), st.integers(0, 10**6), st.sampled_from([0.1, 1.0, 30.0]))
def test_correlation_matrix_that_no_other_beats(d: int, seed: int, size: float) -> None:
    rng = np.random.default_rng(seed)
    upper = np.triu(rng.normal(0, size, (d, d)), 1)
    given_matrix = upper + upper.T + np.eye(d)
    found = nearest_correlation(given_matrix)
    assert np.array_equal(found, found.T)
    assert np.array_equal(np.diag(found), np.ones(d))
    assert np.linalg.eigvalsh(found)[0] > -1e-9
    # Projection on a convex set: the angle to every other member is obtuse.
    factor = rng.normal(size=(d, 3))
    other = factor @ factor.T
    scale = np.sqrt(np.diag(other))
    other /= np.outer(scale, scale)
    assert np.sum((given_matrix - found) * (other - found)) <= 1e-6 * (1 + np.linalg.norm(given_matrix))
    np.linalg.cholesky(lift_spectrum(found, floor=1e-6))
