import numpy as np
from case_counts import cases
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

from dpsql.numerics.bivariate_normal import latent_correlation, normal_cdf2

limits = st.floats(-7, 7)
correlations = st.floats(-1, 1)


@settings(derandomize=True, deadline=None, max_examples=cases(200))
@given(limits, limits, correlations)
def test_symmetric_and_complementary(h: float, k: float, r: float) -> None:
    value = float(normal_cdf2(h, k, r))
    assert abs(value - float(normal_cdf2(k, h, r))) < 1e-14
    assert abs(value + float(normal_cdf2(h, -k, -r)) - float(special.ndtr(h))) < 1e-13


@settings(derandomize=True, deadline=None, max_examples=cases(200))
@given(limits, limits, correlations, correlations)
def test_rises_with_the_correlation(h: float, k: float, r: float, s: float) -> None:
    low, high = normal_cdf2(h, k, np.array([min(r, s), max(r, s)]))
    assert low <= high + 1e-15


@settings(derandomize=True, deadline=None, max_examples=cases(200))
@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_the_inverse_reproduces_any_attainable_share(a: float, b: float, where: float) -> None:
    lowest, highest = max(0.0, a + b - 1.0), min(a, b)
    both = lowest + where * (highest - lowest)
    s = float(latent_correlation(a, b, both))
    assert -1.0 <= s <= 1.0
    assert abs(float(normal_cdf2(special.ndtri(a), special.ndtri(b), s)) - both) < 1e-12
