"""What a penalised fit of nested classes misses for certain is given back, and noise is not."""

from __future__ import annotations

import numpy as np
import pytest

from dpsql.methods.nested_classes import Block, NestedClasses, Shape, TableShape, blocks, descent, expected, fit
from dpsql.methods.nested_classes.restored import certain

HOMES = Shape((TableShape("homes", None, (5, 3)), TableShape("persons", 0, (4, 3), most=8, groups=(1, 2, 3, 5))))
URGENT = Block("across", (0, 0), (1, 0))


@pytest.mark.parametrize(("a", "b"), [(2, 3), (5, 5), (21, 8)])
def test_noise_alone_gives_hardly_anything_back(a: int, b: int) -> None:
    rng, found, noise = np.random.default_rng(1), 0.0, 0.0
    for _ in range(200):
        missed = rng.standard_normal((4, a, b))
        found, noise = found + float((certain(missed, 1.0) ** 2).sum()), noise + float((missed**2).sum())
    assert found < 0.08 * noise


def test_a_pattern_within_the_noise_of_each_cell_is_found_in_all_groups_together() -> None:
    rng, pattern = np.random.default_rng(1), np.outer([2.0, -0.5, -0.5, -0.5, -0.5], [1.2, -0.4, -0.4, -0.4])
    sizes = np.array([0.5, 1.0, 1.0, 0.7])[:, None, None]
    kept = []
    for _ in range(50):
        found = certain(pattern * sizes + 0.8 * rng.standard_normal((4, 5, 4)), 0.8)
        kept.append([(group * pattern).sum() / (pattern**2).sum() for group in found])
    assert np.mean(kept, axis=0) == pytest.approx(sizes.ravel(), abs=0.12)


def test_what_is_not_finite_gives_nothing_back() -> None:
    assert not certain(np.full((2, 2, 2), np.nan), 1.0).any()
    assert not certain(np.full((2, 2, 2), np.inf), 1.0).any()


def _model() -> NestedClasses:
    """Homes of the first kind have more persons of the first kind, whatever their number is."""
    kinds, rng = 5, np.random.default_rng(2)
    number = np.array([0, 0.3, 0.2, 0.15, 0.1, 0.1, 0.08, 0.05, 0.02])
    homes = np.concatenate([np.eye(kinds), rng.dirichlet(np.ones(3), kinds).T, np.repeat(number[:, None], kinds, axis=1)])
    first = np.where(np.arange(kinds) == 0, 0.36, 0.11)
    persons = np.concatenate([[first], np.outer([0.5, 0.3, 0.2], 1 - first), np.full((3, kinds), 1 / 3)])
    given = np.broadcast_to(np.eye(kinds)[:, None, :], (kinds, 3, kinds)).copy()
    return NestedClasses(HOMES, np.full(kinds, 0.2), (homes, persons), (np.zeros((kinds, 0, 0)), given))


def _effect(model: NestedClasses) -> float:
    """Return how many more of the persons of homes of the first kind are of the first kind."""
    table = expected(model, URGENT).sum(axis=0)
    rest = table[1:].sum(axis=0)
    return float(table[0, 0] / table[0].sum() - rest[0] / rest.sum())


def test_an_effect_is_kept_that_the_penalty_alone_would_shrink(monkeypatch: pytest.MonkeyPatch) -> None:
    model, measured, deviation = _model(), blocks(HOMES), 0.0008
    kept, shrunk = [], []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        noisy = [expected(model, block) for block in measured]
        noisy = [table + deviation * rng.standard_normal(table.shape) for table in noisy]
        for restores, found in ((True, kept), (False, shrunk)):
            with monkeypatch.context() as patched:
                if not restores:
                    patched.setattr(descent, "certain", lambda missed, deviation: np.zeros_like(missed))
                fitted = fit(HOMES, measured, noisy, [deviation] * len(measured), 1e5, "fast")
            found.append(_effect(fitted) / _effect(model))
    assert np.mean(shrunk) < 0.9 < 0.94 < np.mean(kept) < 1.04
