"""Rows that break a rule are repaired by exchanges: what values a column has, and so its mean, stays as it was drawn."""

from __future__ import annotations

import duckdb
import numpy as np
import pytest

from dpsql.domains.attributes import Attribute, Domain
from dpsql.domains.decoder import Decoder
from dpsql.rows.block import Block
from dpsql.rows.obeying import mender_of
from dpsql.rules.grammar import stored

EDGES = (0.0, 10.0, 30.0, 100.0, 300.0, 1000.0)


def mended(codes: np.ndarray, names: tuple[str, str], rule: str, fixed: int, seed: int) -> tuple[dict[str, np.ndarray], Block]:
    """Return values of two columns as they were drawn, and the block whose rows obey."""
    rng = np.random.default_rng(seed)
    domain = Domain(tuple(Attribute(name, "INTEGER", "numeric", edges=EDGES, nullable=False) for name in names))
    arrays: dict[str, np.ndarray] = {}
    for i, attribute in enumerate(domain.attributes):
        arrays.update(Decoder(attribute, f"v{i}").arrays(codes[:, i], rng))  # type: ignore[arg-type]
    with duckdb.connect() as con:
        found = mender_of(con, domain, [stored(rule)], lambda: codes[:100, : 2 - fixed], "r", fixed=fixed)
        assert found is not None
        block, kept = found.mended_kept(codes, arrays, rng)
    assert kept.all()
    return arrays, block


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_values_of_two_columns_in_the_same_bins_stay(seed: int) -> None:
    """Half of all rows have both columns in one bin: values drawn again there would move both means by a sixth of a bin."""
    rng = np.random.default_rng(seed)
    cost = rng.integers(0, 5, 8000)
    codes = np.column_stack([np.where(rng.random(8000) < 0.5, cost, rng.integers(0, cost + 1)), cost]).astype(np.int32)
    arrays, block = mended(codes, ("paid", "cost"), "paid <= cost", 0, seed)
    paid, cost = (np.asarray(block.take(i, slice(None))[f"v{i}"], float) for i in range(2))
    assert (paid <= cost).all()
    assert all((after != codes[:, i]).sum() <= 8 for i, after in block.changed().items())  # hardly any table changes
    for values, name in ((paid, "v0"), (cost, "v1")):
        assert abs(values.mean() / np.asarray(arrays[name], float).mean() - 1.0) < 0.05


@pytest.mark.parametrize("fixed", [0, 1])
def test_values_stay_where_an_exchange_needs_several_steps(fixed: int) -> None:
    """Independent columns, of which the smaller one is just smaller: few rows can take the largest values."""
    rng = np.random.default_rng(5)
    cost, paid = (rng.choice(5, 8000, p=p) for p in ([0.1, 0.25, 0.3, 0.25, 0.1], [0.2, 0.3, 0.3, 0.15, 0.05]))
    codes = np.column_stack([paid, cost]).astype(np.int32)
    arrays, block = mended(codes, ("paid", "cost"), "paid <= cost", fixed, 4)
    after = [np.asarray(block.take(i, slice(None))[f"v{i}"], float) for i in range(2)]
    assert (after[0] <= after[1]).all()
    if fixed:
        assert (after[1] == arrays["v1"]).all()
    for i in range(2):
        assert abs(after[i].mean() / np.asarray(arrays[f"v{i}"], float).mean() - 1.0) < 0.08
        assert np.abs(np.bincount(block.codes(i), minlength=5) - np.bincount(codes[:, i], minlength=5)).max() <= 40


def test_a_rule_over_one_column_leaves_nothing_to_exchange() -> None:
    codes = np.random.default_rng(2).integers(0, 5, (2000, 2)).astype(np.int32)
    _, block = mended(codes, ("paid", "cost"), "paid <= 650", 0, 1)
    assert (np.asarray(block.take(0, slice(None))["v0"]) <= 650).all() and not (block.codes(0) != codes[:, 0]).any()
