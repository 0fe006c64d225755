"""Linked tables with known classes, and the measured blocks of rows, counted in the plainest way."""

from __future__ import annotations

import numpy as np

from dpsql.methods.nested_classes import Block, Drawn, NestedClasses, Shape, TableShape
from dpsql.methods.nested_classes.model import slices

HOMES = Shape((TableShape("homes", None, (4, 3)), TableShape("persons", 0, (3, 5, 2), most=5)))
DEEP = Shape(
    (
        TableShape("a", None, (3, 2)),
        TableShape("b", 0, (4,), most=3),
        TableShape("c", 1, (2, 3), most=2),
        TableShape("d", 0, (3,), most=1),
        TableShape("e", 2, (2,), most=2),
    )
)


def made_up(shape: Shape, classes: int, seed: int, contrast: float = 2.0) -> NestedClasses:
    """Return a model with strong dependence."""
    rng = np.random.default_rng(seed)

    def shares(size: int, count: int) -> np.ndarray:
        raised = np.exp(contrast * rng.standard_normal((size, count)))
        return raised / raised.sum(0)

    values = []
    for t in range(len(shape.tables)):
        values.append(np.concatenate([shares(size, classes) for size in shape.extended(t)]) if shape.extended(t)
                      else np.zeros((0, classes)))  # fmt: skip
    given = [np.zeros((classes, 0))] + [shares(classes, classes) for _ in shape.tables[1:]]
    return NestedClasses(shape, shares(classes, 1)[:, 0], tuple(values), tuple(given))


def independent_rows(model: NestedClasses, units: int, seed: int) -> list[Drawn]:
    """Return rows drawn one by one from the definition of the model."""
    rng, shape = np.random.default_rng(seed), model.shape
    classes = rng.choice(model.shares.size, units, p=model.shares)
    found, known = [], [classes]
    for t, table in enumerate(shape.tables):
        parent = np.zeros(0, np.int64)
        if table.parent is not None:
            parent = np.repeat(np.arange(len(known[table.parent])), found[table.parent].codes[:, shape.fan_out(t)])
            known.append(_choices(model.given[t][:, known[table.parent][parent]], rng))
        columns = [_choices(model.values[t][place][:, known[t]], rng) for place in slices(shape, t)]
        found.append(Drawn(np.array(columns, np.int32).reshape(len(columns), known[t].size).T, parent))
    return found


def _choices(shares: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return np.minimum((rng.random(shares.shape[1]) > np.cumsum(shares, 0)).sum(0), max(len(shares) - 1, 0))


def row_weights(shape: Shape, rows: list[Drawn]) -> list[np.ndarray]:
    """Return each row's weight: its parent's, divided by the number of the parent's rows."""
    found = [np.ones(len(rows[0].codes))]
    for t, table in enumerate(shape.tables[1:], 1):
        fan_out = np.bincount(rows[t].parent, minlength=len(rows[table.parent].codes))
        found.append(found[table.parent][rows[t].parent] / fan_out[rows[t].parent])
    return found


def counted(shape: Shape, rows: list[Drawn], block: Block) -> np.ndarray:
    """Return a block's exact shares of units."""
    weights, table = row_weights(shape, rows), np.zeros(block.shape(shape))
    (t, i), (u, j) = block.left, block.right or block.left
    if block.kind == "one":
        np.add.at(table, rows[t].codes[:, i], weights[t])
    elif block.kind == "pair":
        np.add.at(table, (rows[t].codes[:, i], rows[t].codes[:, j]), weights[t])
    elif block.kind == "across":
        at = np.arange(len(rows[u].codes))
        for step in reversed(shape.path(u)[shape.path(u).index(t) + 1 :]):
            at = rows[step].parent[at]
        np.add.at(table, (rows[t].codes[at, i], rows[u].codes[:, j]), weights[u])
    else:
        parents = shape.parent(t)
        fan_out = np.bincount(rows[t].parent, minlength=len(rows[parents].codes))
        weight = weights[parents] / np.maximum(fan_out * (fan_out - 1.0), 1.0)
        starts = np.cumsum(fan_out) - fan_out
        for a in range(shape.tables[t].most):
            for b in range(shape.tables[t].most):
                if a != b:
                    p = np.flatnonzero(fan_out > max(a, b))
                    np.add.at(table, (rows[t].codes[starts[p] + a, i], rows[t].codes[starts[p] + b, j]), weight[p])
    return table / max(len(rows[0].codes), 1)
