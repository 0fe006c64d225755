"""Counters of measures without noise, made from rows in numpy: what the SQL of a private query counts."""

import itertools
import math

import numpy as np

from dpsql.estimates.measures import Measure, Variable


def leaf_of(measure: Measure, x: np.ndarray) -> np.ndarray:
    variable = measure.variables[0]
    held = np.clip(x, variable.lower, variable.upper)
    return np.minimum(np.floor((held - variable.lower) / measure.width), measure.lengths[-1] - 1).astype(np.int64)


def bernstein(variables: tuple[Variable, ...], degree: int, rows: np.ndarray, grid: int) -> np.ndarray:
    """Return the counters of each row, shape (n, (degree + 1)^v): whole numbers that add up to the grid."""
    parts = []
    for variable, x in zip(variables, rows.T, strict=True):
        y = (np.clip(x, variable.lower, variable.upper) - variable.lower) / variable.span
        parts.append(np.stack([math.comb(degree, i) * y**i * (1 - y) ** (degree - i) for i in range(degree + 1)], axis=1))
    products = [np.prod([part[:, i] for part, i in zip(parts, place, strict=True)], axis=0)
                for place in itertools.product(range(degree + 1), repeat=len(variables))]
    upto = np.rint(np.cumsum(np.stack(products, axis=1), axis=1) * grid).astype(np.int64)
    upto[:, -1] = grid
    return np.diff(upto, axis=1, prepend=0)


def counters(measure: Measure, rows: np.ndarray) -> np.ndarray:
    """Return the counters of one group, shape (counters,); rows of shape (n, variables), NaN is NULL (or NaN, in a measure that counts it)."""
    missing = np.isnan(rows).any(axis=1)
    held = rows[~missing]
    if measure.kind == "moments":
        found = bernstein(measure.variables, measure.degree, held, measure.grid).sum(axis=0)
        more = [measure.grid * missing.sum()] * measure.nans + [0 if measure.nans else measure.grid * missing.sum()] * measure.nulls
        return np.append(found, np.asarray(more, np.int64))
    if measure.kind == "tree":
        leaf = leaf_of(measure, held[:, 0])
        leaves = measure.lengths[-1]
        return np.concatenate([np.bincount(leaf // (leaves // size), minlength=size) for size in measure.lengths])
    raise AssertionError(measure.kind)
