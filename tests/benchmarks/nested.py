"""How near nested classes come to linked tables, and what they cost: the made-up census of `households.py`.

python tests/benchmarks/nested.py [--households 100000] [--epsilon 1] [--effort balanced] [--seed 1]

Prints mean distances (half the sum of absolute differences over the sum) by kind of block: of independent tables with exact one-way tables, the
noisy tables, the fitted model, rows drawn from it; and of a flat `latent_class` fit of the joined table (a person with its household,
weight 1 / persons of the household) to tables with the same noise.
"""

from __future__ import annotations

import argparse
import sys
import time
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd

sys.path[:0] = [str(path) for path in (Path(__file__).parents[2], Path(__file__).parents[1], Path(__file__).parent)]

from households import MOST, census  # noqa: E402
from linked_samples import counted  # noqa: E402

from dpsql.methods.mixture.efforts import schedule  # noqa: E402
from dpsql.methods.mixture.fit import pair_matrix  # noqa: E402
from dpsql.methods.mixture.starts import fit_from_starts  # noqa: E402
from dpsql.methods.mixture.targets import Targets  # noqa: E402
from dpsql.methods.nested_classes import Block, Drawn, Shape, TableShape, blocks, draw, expected, fit, shares  # noqa: E402

RHO_AT_EPSILON_1 = 0.0109
"""Of Gaussian noise at epsilon 1 and delta 1e-9 for sensitivity 1: sigma = 6.77."""

CUTS = {"rooms": range(2, 9), "cars": range(1, 5), "income": 20, "age": range(5, 100, 5), "wage": 12}


def coded(frame: pd.DataFrame, skip: int) -> tuple[np.ndarray, tuple[int, ...]]:
    columns = []
    for name in frame.columns[skip:]:
        values, cuts = frame[name], CUTS.get(name)
        if cuts is None:
            columns.append(values.astype("category").cat.codes.to_numpy())
        elif isinstance(cuts, int):
            positive = values[values > 0]
            columns.append(np.digitize(values, np.unique(positive.quantile(np.arange(cuts - 1) / (cuts - 1)))))
        else:
            columns.append(np.digitize(values, list(cuts)))
    return np.array(columns, np.int32).T, tuple(int(c.max()) + 1 for c in columns)


def loaded(households: int, seed: int) -> tuple[Shape, list[Drawn]]:
    homes, persons = census(households, seed)
    (a, a_sizes), (b, b_sizes) = coded(homes, 1), coded(persons, 2)
    parent = persons["household_id"].to_numpy(np.int64) - 1
    a = np.column_stack([a, np.bincount(parent, minlength=households)]).astype(np.int32)
    shape = Shape((TableShape("households", None, a_sizes), TableShape("persons", 0, b_sizes, most=MOST)))
    return shape, [Drawn(a, np.zeros(0, np.int64)), Drawn(b, parent)]


def distances(measured: list[Block], truth: list[np.ndarray], found: list[np.ndarray], shape: Shape) -> dict[str, float]:
    kinds: dict[str, list[float]] = {}
    for block, wanted, table in zip(measured, truth, found, strict=True):
        distance = 0.5 * float(np.abs(wanted - table).sum() / wanted.sum())
        kinds.setdefault(block.kind, []).append(distance)
        if block.kind == "one" and block.left[1] >= len(shape.tables[block.left[0]].sizes):
            kinds.setdefault("fan-out", []).append(distance)
    return {kind: round(float(np.mean(values)), 4) for kind, values in kinds.items()}


def independent(measured: list[Block], truth: list[np.ndarray]) -> list[np.ndarray]:
    one = {block.left: table for block, table in zip(measured, truth, strict=True) if block.kind == "one"}
    return [
        table if block.right is None
        else np.outer(one[block.left] / one[block.left].sum(), one[block.right] / one[block.right].sum()) * table.sum()
        for block, table in zip(measured, truth, strict=True)
    ]  # fmt: skip


def flat(shape: Shape, rows: list[Drawn], measured: list[Block], deviation: float, effort: str, seed: int) -> tuple[float, float]:
    """Return the mean distance of household x person tables of a flat fit to the joined table, and its CPU seconds."""
    codes = np.column_stack([rows[0].codes[rows[1].parent], rows[1].codes])
    sizes = (*shape.extended(0), *shape.extended(1))
    weights = 1.0 / rows[0].codes[rows[1].parent, shape.fan_out(1)] / len(rows[0].codes)
    ends, rng = np.cumsum((0, *sizes)), np.random.default_rng(seed)
    pairs, mask, one = np.zeros((ends[-1], ends[-1])), np.zeros((ends[-1], ends[-1])), np.zeros(ends[-1])
    exact = {}
    for i, j in combinations(range(len(sizes)), 2):
        exact[i, j] = table = np.zeros((sizes[i], sizes[j]))
        np.add.at(table, (codes[:, i], codes[:, j]), weights)
        at = slice(ends[i], ends[i + 1]), slice(ends[j], ends[j + 1])
        pairs[at], mask[at] = table + deviation * rng.standard_normal(table.shape), 1.0
    for i in range(len(sizes)):
        one[ends[i] : ends[i + 1]] = np.bincount(codes[:, i], weights, sizes[i])
    zero = np.zeros((0, 0), np.float32)
    strength = min(1.0 / deviation, 1e4)
    given = Targets(
        sizes, float(len(rows[0].codes)), strength, one / np.repeat([one[s:e].sum() for s, e in zip(ends, ends[1:], strict=False)], sizes),
        (pairs + pairs.T).astype(np.float32), (mask + mask.T).astype(np.float32),
        (one + deviation * rng.standard_normal(one.size)).astype(np.float32), np.ones(one.size, np.float32),
        np.zeros((0, one.size), np.float32), zero, zero,
    )  # fmt: skip
    wanted = schedule(sizes, strength, {"effort": effort, "classes": "auto", "steps": "auto"})
    start = time.process_time()
    model = fit_from_starts(given, classes=wanted.classes, steps=wanted.steps, starts=wanted.starts)
    seconds = time.process_time() - start
    matrix, found = pair_matrix(model, sizes), []
    first = len(shape.extended(0))
    for block in measured:
        if block.kind == "across" and block.right is not None:
            i, j = block.left[1], first + block.right[1]
            found.append(0.5 * np.abs(matrix[ends[i] : ends[i + 1], ends[j] : ends[j + 1]] - exact[i, j]).sum() / exact[i, j].sum())
    return float(np.mean(found)), seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--households", type=int, default=100_000)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--effort", default="balanced")
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    shape, rows = loaded(chosen.households, chosen.seed)
    measured = list(blocks(shape))
    truth = [counted(shape, rows, block) for block in measured]
    deviations = np.sqrt(1.0 / (2.0 * RHO_AT_EPSILON_1 * chosen.epsilon**2 * shares(shape, measured))) / chosen.households
    rng = np.random.default_rng(chosen.seed)
    noisy = [table + d * rng.standard_normal(table.shape) for table, d in zip(truth, deviations, strict=True)]
    print([len(table.codes) for table in rows], len(measured), "blocks, 1 / deviation", round(1.0 / deviations.max(), 1))
    print("independent", distances(measured, truth, independent(measured, truth), shape))
    print("noisy      ", distances(measured, truth, noisy, shape))
    start = time.process_time()
    model = fit(shape, measured, noisy, deviations.tolist(), chosen.households, chosen.effort)
    seconds = time.process_time() - start
    print("model      ", distances(measured, truth, [expected(model, block) for block in measured], shape), f"{seconds:.1f} s CPU")
    start = time.process_time()
    made = draw(model, chosen.households, np.random.default_rng(chosen.seed))
    seconds = time.process_time() - start
    print("rows       ", distances(measured, truth, [counted(shape, made, b) for b in measured], shape), f"{seconds:.1f} s CPU")
    for effort in ("balanced",):
        distance, seconds = flat(shape, rows, measured, float(deviations.max()), effort, chosen.seed)
        print("flat       ", {"across": round(distance, 4)}, f"{seconds:.1f} s CPU")


if __name__ == "__main__":
    main()
