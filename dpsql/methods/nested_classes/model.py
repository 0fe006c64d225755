r"""Nested latent classes of linked tables, and the tables of shares that follow from them.

A unit has a class z with probability pi_z. Given the class of its row, a row's extended columns (the number of its child rows
among them) are independent. The k child rows of a row are in *slots*: the first ones have a slot each, all later ones share the
last (`TableShape.slots`). A child row in slot s draws a class y ~ rho_s(y | class of its parent's row), independently of its
siblings. Slots are no order of rows: every table is of all of them, and which row is in which slot is not known, and not asked.
They are what lets siblings be each other's opposite: where each row is drawn from the same shares, siblings' tables are mixtures of
c c^T, of which none has c_head > 0 and a table without two heads; with slots the first row is the head, and the others are none.

With N_ks how many of k rows are in slot s, F_z(k) the shares of the number of rows, W_t the weights of the classes of table t, and
theta_t the shares of codes by class, of the parent rows with k in a group g

    h_gs(z) = sum_(k in g) F_z(k) N_ks / k,   W_tg = sum_s rho_s (W_p h_gs),   c_s = theta_t rho_s,
    q_gst(z) = sum_(k in g) F_z(k) (N_ks N_kt - [s = t] N_ks) / (k (k - 1)),

and every block is a product: pairs theta_t W_tg theta_t^T, siblings sum_st c_s (W_p q_gst) c_t^T, a parent's row and its
children theta_p W_p (sum_s h_gs c_s)^T, where of the parent's own number of rows k it is F(k) W_p (sum_s N_ks / k c_s)^T.

Privacy: post-processing of released statistics.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dpsql.methods.nested_classes.lines import Ordering
from dpsql.methods.nested_classes.shapes import Block, Shape, TableShape, folded
from dpsql.numerics.arrays import FloatArray, IntArray
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
    given : tuple of ndarray, shape (K_t, S_t, K_p)
        rho of each table: shares of its rows' classes by their slot and their parent's class, sum 1 over the first axis;
        (K_0, 0, 0) for the root. Of an average only those beside parents' classes of the same model: (K_t, S_t, K_p / parts).
    orders : tuple of Ordering
        Of the tables whose rows stand in an order.
    parts : int
        Models that it is the average of, whose classes stand one after the other in every table, as many of each.
    """

    shape: Shape
    shares: FloatArray
    values: tuple[FloatArray, ...]
    given: tuple[FloatArray, ...]
    orders: tuple[Ordering, ...] = ()
    parts: int = 1


def uniform(shape: Shape) -> NestedClasses:
    """Return the model of one class in which every code of a column is as frequent as any other: made-up rows.

    Examples
    --------
    >>> uniform(Shape((TableShape("homes", None, (4,)),))).values[0].ravel().tolist()
    [0.25, 0.25, 0.25, 0.25]
    """
    values = [
        np.concatenate([np.zeros(0), *(np.full(size, 1.0 / size) for size in shape.extended(t))])[:, None]
        for t in range(len(shape.tables))
    ]
    given = [np.zeros((1, 0, 0)), *(np.ones((1, table.slots, 1)) for table in shape.tables[1:])]
    return NestedClasses(shape, np.ones(1), tuple(values), tuple(given))


def parted(model: NestedClasses) -> list[NestedClasses]:
    """Return the models that a model is the average of: families are of the classes of one of them."""
    if model.parts == 1:
        return [model]
    sizes = [values.shape[1] // model.parts for values in model.values]
    models = []
    for part in range(model.parts):
        own = [slice(part * size, (part + 1) * size) for size in sizes]
        values = tuple(values[:, kept] for values, kept in zip(model.values, own, strict=True))
        given = tuple(given[kept] for given, kept in zip(model.given, own, strict=True))
        models.append(replace(model, shares=model.shares[own[0]] * model.parts, values=values, given=given, parts=1))
    return models


def slices(shape: Shape, table: int) -> list[slice]:
    """Return where each extended column's codes stand among all codes of a table."""
    ends = np.cumsum((0, *shape.extended(table)))
    return [slice(int(start), int(end)) for start, end in zip(ends[:-1], ends[1:], strict=True)]


def slots_of(table: TableShape, rows: IntArray) -> IntArray:
    """Return the slot of the row of each number, from 0 on, among those of its parent's row."""
    return np.minimum(rows, table.slots - 1)


def slot_shares(table: TableShape) -> tuple[FloatArray, FloatArray]:
    """Return N_ks / k and (N_ks N_kt - [s = t] N_ks) / (k (k - 1)), with zeros where k is in another group.

    Returns
    -------
    ndarray, shape (groups, most + 1, slots); ndarray, shape (groups, most + 1, slots, slots)
    """
    numbers = np.arange(table.most + 1)
    count = np.clip(numbers[:, None] - np.arange(table.slots), 0, 1)
    count[:, -1] = np.maximum(numbers - (table.slots - 1), 0)
    two = count[:, :, None] * count[:, None, :] - count[:, :, None] * np.eye(table.slots, dtype=np.int64)
    one = count / np.maximum(numbers, 1)[:, None]
    pairs = two / np.maximum(numbers * (numbers - 1), 1)[:, None, None]
    member = table.group_of(numbers) == np.arange(max(len(table.groups), 1))[:, None]
    return member[:, :, None] * one, member[:, :, None, None] * pairs


@dataclass(frozen=True)
class _Below:
    """Of a child table, by group: shares of parent rows in each slot h (G, S, K_p), of pairs q (G, S, S, K_p), weights (G, K_t)."""

    h: FloatArray
    q: FloatArray
    weights: FloatArray


@multiplies
def _below(model: NestedClasses) -> dict[int, _Below]:
    below: dict[int, _Below] = {}
    for t, table in enumerate(model.shape.tables[1:], 1):
        parent = model.shape.parent(t)
        fan_out = model.values[parent][slices(model.shape, parent)[model.shape.fan_out(t)]]
        one, two = slot_shares(table)
        h, q = (np.tensordot(shares, fan_out, (1, 0)) for shares in (one, two))
        above = model.shares[None] if parent == 0 else below[parent].weights
        above = above.sum(axis=0, keepdims=True) if table.groups else above
        below[t] = _Below(h, q, np.einsum("ysk,gsk->gy", model.given[t], h * above[:, None], optimize=True))
    return below


@multiplies
def expected(model: NestedClasses, block: Block) -> FloatArray:
    """Return the model's table of shares of units for a block, of the block's shape.

    Notes
    -----
    Privacy: post-processing.
    """
    if model.parts > 1:
        return np.asarray(np.mean([expected(part, block) for part in parted(model)], axis=0))
    shape, below = model.shape, _below(model)
    weights = [model.shares, *(below[t].weights.sum(axis=0) for t in range(1, len(shape.tables)))]
    (t, i), (u, j) = block.left, block.right or block.left
    left, right = model.values[t][slices(shape, t)[i]], model.values[u][slices(shape, u)[j]]
    if block.kind == "one":
        return np.asarray(left @ weights[t])
    if block.kind == "pair":
        own = below[t].weights if t else model.shares[None]
        return _by_group(shape, block, [(left * weight) @ right.T for weight in own])
    if block.kind == "sibling":
        above = weights[shape.parent(t)][None] if shape.tables[t].groups else below[shape.parent(t)].weights
        paired = below[t].q * above[:, None, None]
        first, second = (_seen(side, model.given[t]) for side in (left, right))
        tables = [np.einsum("csk,stk,dtk->cd", first, both, second, optimize=True) for both in paired]
        return _by_group(shape, block, [folded(table) for table in tables] if block.folded else tables)
    tables, home, count = [], shape.home(u), shape.group_count(u)
    decided = len(shape.path(t)) >= len(shape.path(home))  # the row above is in a group itself
    for g in range(count):
        at, seen, some = u, _seen(right, model.given[u]), below[u].h[g if u == home else 0]
        while shape.parent(at) != t:
            at = shape.parent(at)
            seen = _seen(np.einsum("csk,sk->ck", seen, some), model.given[at])
            some = below[at].h[g] if at == home else below[at].h.sum(axis=0)
        above = below[t].weights[g] if decided else weights[t]
        # Who has k rows below is counted k times.
        if i == shape.fan_out(at):
            counts = slot_shares(shape.tables[at])[0][slice(g, g + 1) if at == home else slice(None)].sum(axis=0)
            tables.append(np.einsum("nk,ns,csk->nc", left * above, counts, seen, optimize=True))
        else:
            tables.append((left * above) @ np.einsum("csk,sk->ck", seen, some).T)
    return _by_group(shape, block, tables)


@multiplies
def _seen(values: FloatArray, given: FloatArray) -> FloatArray:
    """Return shares of codes by slot and the parent's class, shape (c, S, K_p), from those by a row's class."""
    return np.asarray(np.einsum("cy,ysk->csk", values, given, optimize=True))


def _by_group(shape: Shape, block: Block, tables: Sequence[FloatArray]) -> FloatArray:
    """Return tables of groups as a block has them."""
    return np.stack(tables) if block.split(shape) else np.sum(tables, axis=0)
