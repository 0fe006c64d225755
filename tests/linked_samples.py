"""Linked tables with known classes, and the measured blocks of rows, counted in the plainest way."""

from __future__ import annotations

import numpy as np

from dpsql.methods.nested_classes import Block, Drawn, NestedClasses, Shape, TableShape, folded
from dpsql.methods.nested_classes.model import slices

HOMES = Shape((TableShape("homes", None, (4, 3)), TableShape("persons", 0, (3, 5, 2), most=5, groups=(1, 2, 4))))
BELOW = Shape(
    (
        TableShape("a", None, (3, 2)),
        TableShape("b", 0, (4,), most=4, groups=(1, 3)),
        TableShape("c", 1, (2, 3), most=3, groups=()),
        TableShape("d", 2, (3,), most=2, groups=()),
    )
)
MANY = Shape((TableShape("homes", None, (2,)), TableShape("persons", 0, (3, 2), most=9, groups=(1, 4))))
DEEP = Shape(
    (
        TableShape("a", None, (3, 2)),
        TableShape("b", 0, (4,), most=3, groups=(1, 2)),
        TableShape("c", 1, (2, 3), most=2, groups=(1, 2)),
        TableShape("d", 0, (3,), most=1),
        TableShape("e", 2, (2,), most=2, groups=()),
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
    given = [np.zeros((classes, 0, 0))] + [
        np.stack([shares(classes, classes) for _ in range(table.slots)], axis=1) for table in shape.tables[1:]
    ]
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
            first = np.concatenate([[True], parent[1:] != parent[:-1]])[: parent.size]
            number = np.arange(parent.size) - np.maximum.accumulate(np.where(first, np.arange(parent.size), 0))
            slot = np.minimum(number, table.slots - 1)
            known.append(_choices(model.given[t][:, slot, known[table.parent][parent]], rng))
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


def _groups(shape: Shape, rows: list[Drawn], t: int) -> np.ndarray:
    """Return the group of the rows of each parent row."""
    above = shape.parent(t)
    if shape.tables[t].groups:
        return shape.tables[t].group_of(np.bincount(rows[t].parent, minlength=len(rows[above].codes)))
    return _groups(shape, rows, above)[rows[above].parent]


def counted(shape: Shape, rows: list[Drawn], block: Block) -> np.ndarray:
    """Return a block's exact shares of units."""
    weights, split = row_weights(shape, rows), block.split(shape)
    (t, i), (u, j) = block.left, block.right or block.left
    sizes = (shape.extended(t)[i], *(() if block.right is None else (shape.extended(u)[j],)))
    table = np.zeros((shape.group_count(u) if split else 1, *sizes))
    fan_out = np.bincount(rows[u].parent, minlength=len(rows[shape.parent(u)].codes)) if u else np.ones(0, int)
    group = _groups(shape, rows, u) if split else np.zeros_like(fan_out)
    whose = group[rows[u].parent] if u else np.zeros(len(rows[0].codes), int)
    if block.kind == "one":
        np.add.at(table, (0, rows[t].codes[:, i]), weights[t])
    elif block.kind == "pair":
        np.add.at(table, (whose, rows[t].codes[:, i], rows[t].codes[:, j]), weights[t])
    elif block.kind == "across":
        at = np.arange(len(rows[u].codes))
        for step in reversed(shape.path(u)[shape.path(u).index(t) + 1 :]):
            at = rows[step].parent[at]
        np.add.at(table, (whose, rows[t].codes[at, i], rows[u].codes[:, j]), weights[u])
    else:
        weight = weights[shape.parent(t)] / np.maximum(fan_out * (fan_out - 1.0), 1.0)
        starts = np.cumsum(fan_out) - fan_out
        for a in range(shape.tables[t].most):
            for b in range(shape.tables[t].most):
                if a != b:
                    p = np.flatnonzero(fan_out > max(a, b))
                    np.add.at(table, (group[p], rows[t].codes[starts[p] + a, i], rows[t].codes[starts[p] + b, j]), weight[p])
    table = folded(table) if block.folded else table
    return (table if split else table[0]) / max(len(rows[0].codes), 1)
