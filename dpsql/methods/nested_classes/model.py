r"""Nested latent classes of linked tables, and the tables of shares that follow from them.

A unit has a class z with probability pi_z. Given the class of its row, a row's extended columns (the number of its child rows
among them) are independent. Every child row draws a class y ~ rho(y | class of its parent's row), independently of its
siblings; so siblings depend on each other by the class of their parent alone.

With W_t the weights of the classes of table t, q_t the probability that a parent row of a class has one child row or more,
and theta_t the shares of codes by class,

    W_t = rho_t (W_p q_t),   psi_t = theta_t rho_t,

and every block is a product: pairs theta_t W_t theta_t^T, siblings psi_t (W_p P(k >= 2)) psi_t^T, a parent's row and its
children theta_p (W_p q_t) psi_t^T, where of the parent's own fan-out theta is left as it is but for k = 0.

Privacy: post-processing of released statistics.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dpsql.methods.nested_classes.lines import Ordering
from dpsql.methods.nested_classes.shapes import Block, Shape
from dpsql.numerics.arrays import FloatArray
from dpsql.numerics.products import multiplies


@dataclass(frozen=True)
class NestedClasses:
    """A model of linked tables.

    Parameters
    ----------
    shape : Shape
    shares : ndarray, shape (K_0,)
        pi: shares of the classes of units, sum 1.
    values : tuple of ndarray, shape (D_t, K_t)
        theta of each table: shares of the codes of all extended columns, one after the other; each column's sum 1 in a class.
    given : tuple of ndarray, shape (K_t, K_p)
        rho of each table: shares of its rows' classes by their parent's class, sum 1 over the first axis; (K_0, 0) for the root.
    orders : tuple of Ordering
        Of the tables whose rows stand in an order.
    """

    shape: Shape
    shares: FloatArray
    values: tuple[FloatArray, ...]
    given: tuple[FloatArray, ...]
    orders: tuple[Ordering, ...] = ()


def slices(shape: Shape, table: int) -> list[slice]:
    """Return where each extended column's codes stand among all codes of a table."""
    ends = np.cumsum((0, *shape.extended(table)))
    return [slice(int(start), int(end)) for start, end in zip(ends[:-1], ends[1:], strict=True)]


def at_least(shape: Shape, values: npt.NDArray[Any], table: int, rows: int) -> npt.NDArray[Any]:
    """Return the probability, by the class of the parent's row, of `rows` rows of a child table or more; shape (K_p,)."""
    fan_out = values[slices(shape, shape.parent(table))[shape.fan_out(table)]]
    found: npt.NDArray[Any] = fan_out[rows:].sum(0)
    return found


@multiplies
def class_weights(model: NestedClasses) -> list[FloatArray]:
    """Return W_t, the expected weight of the rows of each class of every table."""
    found = [model.shares]
    for t in range(1, len(model.shape.tables)):
        parent = model.shape.parent(t)
        found.append(model.given[t] @ (found[parent] * at_least(model.shape, model.values[parent], t, 1)))
    return found


@multiplies
def expected(model: NestedClasses, block: Block) -> FloatArray:
    """Return the model's table of shares of units for a block, of the block's shape.

    Notes
    -----
    Privacy: post-processing.
    """
    shape, weights = model.shape, class_weights(model)
    (t, i), (u, j) = block.left, block.right or block.left
    left, right = model.values[t][slices(shape, t)[i]], model.values[u][slices(shape, u)[j]]
    if block.kind == "one":
        return np.asarray(left @ weights[t])
    if block.kind == "pair":
        return np.asarray((left * weights[t]) @ right.T)
    if block.kind == "sibling":
        parent = shape.parent(t)
        given = model.given[t]
        paired = weights[parent] * at_least(shape, model.values[parent], t, 2)
        return np.asarray((left @ given * paired) @ (right @ given).T)
    path = shape.path(u)[shape.path(u).index(t) + 1 :]
    for step, table in reversed(list(enumerate(path))):
        right = right @ model.given[table]
        if step:
            right = right * at_least(shape, model.values[path[step - 1]], table, 1)
    if i == shape.fan_out(path[0]):
        left = left.copy()
        left[0] = 0.0
    else:
        left = left * at_least(shape, model.values[t], path[0], 1)
    return np.asarray((left * weights[t]) @ right.T)
