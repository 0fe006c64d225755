"""Codes that nobody has, in released tables: which they are, and that no row has them."""

import numpy as np

from dpsql.methods.nested_classes import Block, Shape, TableShape, absent, barred, blocks, draw, fit, folded, unfolded, without

SHAPE = Shape((TableShape("homes", None, (3, 4)), TableShape("persons", 0, (3,), 4)))
UNDECLARED = {(0, 0): np.array([False, False, True]), (1, 0): np.array([False, False, True])}


def noisy(missing: float, sigma: float, seed: int) -> tuple[list[Block], list[np.ndarray], list[float]]:
    """Return tables of independent columns; this share of units and of their persons has the last code of the first column."""
    rng, shares = np.random.default_rng(seed), {}
    for t, sizes in enumerate((SHAPE.extended(0), SHAPE.extended(1))):
        for i, size in enumerate(sizes):
            shares[t, i] = np.full(size, 1.0 / size)
        shares[t, 0] = np.array([(1 - missing) / 2, (1 - missing) / 2, missing])
    shares[0, 2] = np.array([0.0, 0.25, 0.25, 0.25, 0.25])
    found = []
    measured = list(blocks(SHAPE))
    for block in measured:
        table = shares[block.left] if block.right is None else np.outer(shares[block.left], shares[block.right])
        table = folded(table * 0.75) if block.folded else table
        found.append(table * 10_000.0 + rng.normal(0.0, sigma, table.shape))
    return measured, found, [sigma] * len(measured)


def test_noise_is_no_null_and_nulls_that_are_there_stay() -> None:
    false, lost = 0, 0
    for seed in range(200):
        false += len(UNDECLARED) - len(absent(*noisy(0.0, 50.0, seed), UNDECLARED))
        lost += len(absent(*noisy(0.05, 50.0, seed), UNDECLARED))
    assert false <= 4 and lost == 0  # of 400 each; 0.5 are expected


def test_declared_codes_are_never_taken() -> None:
    nothing = {column: np.zeros_like(some) for column, some in UNDECLARED.items()}
    assert not absent(*noisy(0.0, 50.0, 1), nothing) and not absent(*noisy(0.0, 50.0, 1), {})


def test_all_codes_of_a_column_are_not_taken() -> None:
    assert not absent([Block("one", (0, 0))], [np.array([-1.0, -2.0, 0.5])], [1.0], {(0, 0): np.ones(3, bool)})


def test_cells_of_a_code_are_emptied_in_every_kind_of_block() -> None:
    none = {(0, 0): np.array([False, False, True]), (1, 0): np.array([True, False, False])}
    ordered = [Block("first", (1, 0)), Block("next", (1, 0), (1, 0)), Block("gap", (1, 0))]
    for block in [*blocks(SHAPE), *ordered]:
        given = np.ones(block.shape(SHAPE))
        found = without(block, given, none)
        assert found.shape == given.shape and given.all()
        table = unfolded(found) if block.folded else found
        sides = [block.left, *([] if block.right is None else [block.right])]
        kept = np.ones(table.shape, bool)
        for axis, side in enumerate(sides):
            if side in none and block.kind != "gap":
                np.moveaxis(kept, axis, 0)[none[side]] = False
        assert ((table > 0.0) == kept).all(), block


def test_no_row_has_a_code_that_nobody_has() -> None:
    measured, values, deviations = noisy(0.0, 50.0, 3)
    none = absent(measured, values, deviations, UNDECLARED)
    values = [without(block, value, none) for block, value in zip(measured, values, strict=True)]
    shares = [value / 10_000.0 for value in values]
    model = barred(fit(SHAPE, measured, shares, [d / 10_000.0 for d in deviations], 10_000.0, "fast"), none)
    assert all(np.allclose(part.sum(axis=0), 1.0) for part in (model.values[0][:3], model.values[0][3:7], model.values[1][:3]))
    rows = draw(model, 5000, np.random.default_rng(1))
    assert set(none) == set(UNDECLARED)
    assert rows[0].codes[:, 0].max() == 1 and rows[1].codes[:, 0].max() == 1
