"""Arguments, shapes, grids and integer ranges of the samplers."""

import math
import os
import subprocess
import sys
import threading
from fractions import Fraction
from inspect import signature

import numpy as np
import pytest

from dpsql.errors import ArgumentError
from dpsql.noise import discrete

SAMPLERS = [discrete.discrete_laplace, discrete.discrete_gaussian]


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("scale", [math.nan, math.inf, -math.inf, 0, 0.0, -1, True, "1", None, Fraction(-1, 2), 1e300])
def test_bad_scales_are_refused(sampler, scale) -> None:
    with pytest.raises(ArgumentError, match="must be a positive finite number"):
        sampler(scale, 3)


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("size", [-1, 1.5, "3", None, True, (2, -1), (2, 1.0)])
def test_bad_sizes_are_refused(sampler, size) -> None:
    with pytest.raises(ArgumentError, match="size"):
        sampler(1, size)


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("size", [0, 1, 7, (), (0, 3), (2, 3), (4, 1, 5), np.int64(3), 200_001])
def test_shapes(sampler, size) -> None:
    drawn = sampler(Fraction(5, 2), size)
    assert drawn.shape == np.empty(size).shape
    assert drawn.dtype == np.int64
    assert drawn.flags.c_contiguous and drawn.flags.writeable


@pytest.mark.parametrize("sampler", [*SAMPLERS, discrete.add_noise])
def test_no_seed_anywhere(sampler) -> None:
    assert not {"seed", "rng", "random_state", "generator"} & set(signature(sampler).parameters)


def test_tiny_scales_draw_zeros_and_huge_ones_do_not_overflow() -> None:
    assert not discrete.discrete_laplace(Fraction(1, 100), 10_000).any()
    assert not discrete.discrete_gaussian(Fraction(1, 10_000), 10_000).any()
    assert not discrete.discrete_laplace(5e-324, 10).any()
    for scale in (2**30, discrete.MAXIMUM_LAPLACE_SCALE):
        drawn = discrete.discrete_laplace(scale, 20_000)
        assert np.abs(drawn).mean() == pytest.approx(float(scale), rel=0.05)
    drawn = discrete.discrete_gaussian(discrete.MAXIMUM_SIGMA**2, 20_000)
    assert drawn.std() == pytest.approx(2.0**25, rel=0.05)


def test_integer_products_have_room() -> None:
    """The bounds that the head of ``dpsql.noise.discrete`` claims, for the largest arguments that are admitted."""
    for sigma in (512.001, 513, 1000, 1023.99, 1024, 7788.2, 2.0**20, 2.0**24 + 1, 2.0**25):
        exact = discrete.scale_grid(sigma)
        variance = exact**2
        assert variance.numerator < 2**51
        shift = math.isqrt(math.floor(variance)).bit_length() - 1 - 7
        assert 128 * 2**shift <= exact < 256 * 2**shift
        largest = discrete._gaussian_table(Fraction(4**shift) / (2 * variance)).thresholds.size - 1
        assert largest * 2**shift < 9.5 * exact
        r = 2**shift - 1
        numerator = (largest * 2 ** (shift + 1) + r) * r * variance.denominator
        assert numerator <= 0.15 * variance.numerator  # so gamma < 1
        assert numerator < 2**63
    with pytest.raises(ArgumentError, match="scale_grid"):
        discrete.discrete_gaussian(Fraction(10**40 + 1, 10**30), 1)
    discrete.discrete_gaussian(Fraction(10**33 + 1, 10**30), 1)  # small sigma: any fraction


@pytest.mark.parametrize("value", [1e-300, 0.01, 0.1, 1, 1.5, 56.43, 1023.9999999, 1024, 1e6 + 0.1, 2.0**25, Fraction(1, 3)])
def test_scale_grid_rounds_up_a_little(value) -> None:
    found = discrete.scale_grid(value)
    exact = Fraction(value)
    assert exact <= found <= exact * (1 + Fraction(1, 2**19))
    assert discrete.scale_grid(found) == found
    assert found.denominator & (found.denominator - 1) == 0  # dyadic
    significant = found.numerator // (found.numerator & -found.numerator)
    assert significant.bit_length() <= 20
    for bad in (0, -1, math.nan, math.inf):
        with pytest.raises(ArgumentError, match="scale"):
            discrete.scale_grid(bad)


@pytest.mark.parametrize("mechanism", discrete.MECHANISMS)
def test_add_noise_leaves_the_counts_alone(mechanism: str) -> None:
    counts = np.arange(-12, 12, dtype=np.int64).reshape(2, 3, 4)
    kept = counts.copy()
    noisy = discrete.add_noise(counts, mechanism, Fraction(50))
    assert noisy.shape == counts.shape and noisy.dtype == np.int64
    assert (counts == kept).all() and (noisy != counts).any()
    assert discrete.add_noise(counts[:0], mechanism, 1).shape == (0, 3, 4)
    assert (discrete.add_noise(counts[:, ::2], mechanism, 0.01) == counts[:, ::2]).all()


def test_add_noise_refuses() -> None:
    with pytest.raises(ArgumentError, match="counts = 'float64': must be a numpy array of int64"):
        discrete.add_noise(np.zeros(3), "laplace", 1)
    with pytest.raises(ArgumentError, match="counts = 'list'"):
        discrete.add_noise([1, 2], "laplace", 1)
    with pytest.raises(ArgumentError, match="mechanism = 'uniform'"):
        discrete.add_noise(np.zeros(3, dtype=np.int64), "uniform", 1)
    with pytest.raises(ArgumentError, match="scale"):
        discrete.add_noise(np.zeros(3, dtype=np.int64), "gaussian", 2.0**26)


@pytest.mark.parametrize("scale", [3, 56, 5000])
@pytest.mark.parametrize("mechanism", discrete.MECHANISMS)
def test_calls_never_repeat(mechanism: str, scale: int) -> None:
    zeros = np.zeros(1000, dtype=np.int64)
    drawn = [discrete.add_noise(zeros, mechanism, scale).tobytes() for _ in range(50)]
    assert len(set(drawn)) == 50


def test_threads_draw_different_noise() -> None:
    found: list[bytes] = []
    threads = [threading.Thread(target=lambda: found.append(discrete.discrete_gaussian(3000, 500).tobytes())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 8


@pytest.mark.fresh_noise  # 40 draws of a scale of 10 repeat by chance with a probability below 1e-40
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_does_not_repeat_the_parent() -> None:
    program = (
        "import os, sys, warnings; warnings.simplefilter('ignore')\n"
        "from dpsql.noise.discrete import discrete_gaussian as draw\n"
        "draw(3000, 10)\n"
        "child = os.fork()\n"
        "sys.stdout.write(draw(3000, 40).tobytes().hex() + '\\n'); sys.stdout.flush()\n"
        "os._exit(0) if child == 0 else os.waitpid(child, 0)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True, env=environment)
    lines = done.stdout.split()
    assert len(lines) == 2 and lines[0] != lines[1]
