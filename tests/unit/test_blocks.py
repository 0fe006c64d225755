"""Blocks drawn by threads: always the same, in order, and stopped when nobody waits."""

import threading
import time

import numpy as np
import pytest
from struck import LONG

from dpsql.methods.gaussian_copula.fit import block_starts, choice_probabilities
from dpsql.methods.gaussian_copula.sampling import sample_codes, sample_thresholded
from dpsql.methods.mixture.fit import Mixture
from dpsql.methods.mixture.rows import mixture_rows
from dpsql.running import blocks
from dpsql.running.blocks import Stopped, drawn, generators


@pytest.mark.parametrize("width", [1, 2, 3, 50])
def test_results_come_in_order_whatever_finishes_first(width):
    """Of those begun together, each waits until the one after it has finished: they finish backwards."""
    finished = [threading.Event() for _ in range(20)]

    def task(i):
        def wait(stop):
            if i % width < width - 1 and i < 19:
                assert finished[i + 1].wait(LONG)
            finished[i].set()
            return i

        return wait

    assert list(drawn([task(i) for i in range(20)], width)) == list(range(20))
    assert list(drawn([], width)) == []


def test_no_more_run_than_were_asked_for():
    running, most, guard, together = 0, 0, threading.Lock(), threading.Barrier(3)

    def task(stop):
        nonlocal running, most
        with guard:
            running += 1
            most = max(most, running)
        together.wait(LONG)  # no fewer either: each waits for two others
        with guard:
            running -= 1

    assert len(list(drawn([task] * 9, 3))) == 9
    assert most == 3


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_workers_stop_when_the_caller_does(error):
    stopped, begun = [], threading.Semaphore(0)

    def endless(stop):
        begun.release()
        try:
            while True:
                time.sleep(0.01)
                stop.check()
        except Stopped:
            stopped.append(1)
            raise

    def quick(stop):
        return 1

    results = drawn([quick, endless, endless], 3)
    with pytest.raises(error):
        assert next(results) == 1
        assert all(begun.acquire(timeout=LONG) for _ in range(2))
        results.throw(error)
    assert len(stopped) == 2  # or the line above had waited for ever


def test_an_error_of_a_worker_is_the_caller_s():
    def broken(stop):
        raise TimeoutError("of its own")

    with pytest.raises(TimeoutError, match="of its own"):
        list(drawn([broken, broken], 2))


def test_generators_depend_on_the_state_alone():
    first, again, other = ([g.random() for g in generators(np.random.default_rng(s), 4)] for s in (1, 1, 2))
    assert first == again
    assert not set(first) & set(other)
    assert len(set(first)) == 4


SIZES = [2, 7, 1, 300, 2, 2]
MIXTURE = Mixture(np.array([0.4, 0.6]), np.concatenate([np.full((s, 2), 1.0 / s) for s in SIZES]))


def latent(rng):
    columns = sum(SIZES)
    own = np.random.default_rng(0)
    shares = np.concatenate([np.full(s, 1.0 / s) for s in SIZES])
    loadings, offsets = own.normal(size=(columns, 5)).astype(np.float32), np.zeros(columns, np.float32)
    return sample_codes(loadings, offsets, SIZES, shares, 150_000, rng)


def hot(rng):
    return sample_thresholded(np.eye(9, dtype=np.float32), np.linspace(-2, 2, 9), 300_000, rng)


def mixed(rng):
    return mixture_rows(MIXTURE, SIZES, 300_000, rng)


@pytest.mark.parametrize("draw", [latent, hot, mixed])
def test_rows_do_not_depend_on_the_number_of_threads(draw, monkeypatch):
    one, two, three = [], [], []
    for width, found in ((1, one), (2, two), (3, three)):
        monkeypatch.setattr(blocks, "threads", lambda width=width: width)
        found.extend(draw(np.random.default_rng(7)))
    assert len(one) == len(two) == len(three) > 1
    for a, b, c in zip(one, two, three, strict=True):
        assert np.array_equal(a, b)
        assert np.array_equal(a, c)
        assert a.flags.f_contiguous or a.base.flags.c_contiguous


def test_blocks_have_the_shares_of_the_model():
    """Each block has the model's one-way tables up to few rows; independent rows would miss by hundreds."""
    own, starts = np.random.default_rng(0), block_starts(SIZES)
    loadings, offsets = (0.5 * own.normal(size=shape).astype(np.float32) for shape in ((sum(SIZES), 5), sum(SIZES)))
    utilities = loadings @ own.standard_normal((5, 200_000), dtype=np.float32) + offsets[:, None]
    shares = choice_probabilities(utilities, starts, np.asarray(SIZES)).mean(1, dtype=float)
    for block in sample_codes(loadings, offsets, SIZES, shares, 122_880, np.random.default_rng(3)):
        counts = [np.bincount(block[:, i], minlength=s) for i, s in enumerate(SIZES)]
        miss = [np.abs(c - len(block) * shares[s : s + len(c)]).max() for c, s in zip(counts, starts, strict=True)]
        assert max(miss[i] for i in (0, 4, 5)) < 5
        assert max(miss) < 25


def test_probabilities_are_logistic_at_both_ends():
    """One attribute of two codes without latent factors: rare values come as often as they should."""
    for share in (1e-4, 0.3, 1 - 1e-4):
        offsets = np.array([0.0, np.log(share / (1 - share))], np.float32)
        wanted, none = np.array([1 - share, share]), np.zeros((2, 0), np.float32)
        found = np.concatenate(list(sample_codes(none, offsets, [2], wanted, 500_000, np.random.default_rng(2))))
        assert found.mean() == pytest.approx(share, abs=5e-5)
