"""Databases of linked tables with planted dependence, as codes: households and their persons; customers, orders and their lines.

No order of children is meant; the number of a row's children is the last column of its table. Other numbers than those of `linked_data.py`
are asked of them: what is planted is known (`planted.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Database:
    """Codes of each table (rows, columns), the row of the table above, the numbers of codes, names, most children."""

    tables: list[np.ndarray]
    parent: list[np.ndarray | None]
    sizes: list[list[int]]
    names: list[list[str]]
    most: list[int]

    def root_of(self, table: int) -> np.ndarray:
        at = self.parent[table]
        for above in range(table - 1, 0, -1):
            at = self.parent[above][at]
        return at


def pick(p: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """One draw per row of p (n, c)."""
    return np.minimum((p.cumsum(1) / p.sum(1, keepdims=True) < rng.random(len(p))[:, None]).sum(1), p.shape[1] - 1)


def households(n: int = 100_000, seed: int = 1) -> Database:
    """Households of eight types, and their persons: one head, at most one spouse, who is alike in age and education."""
    rng = np.random.default_rng(seed)
    # types: 0 young single, 1 old single, 2 young couple, 3 old couple, 4 family, 5 single parent, 6 shared flat, 7 three generations
    region = rng.choice(8, n, p=[.22, .17, .14, .13, .11, .1, .08, .05])
    tp = np.array([.13, .12, .11, .14, .31, .08, .06, .05])
    tilt = np.ones((8, 8))
    tilt[:2, [0, 6]] *= 2.2
    tilt[:2, [4, 7]] *= .7
    tilt[5:, [3, 7]] *= 1.8
    tilt[5:, 6] *= .3
    typ = pick(tp * tilt[region], rng)
    k = np.ones(n, int)
    k[(typ == 2) | (typ == 3)] = 2
    fam = typ == 4
    k[fam] = 3 + np.minimum(rng.poisson(1.2, fam.sum()), 5)
    sp = typ == 5
    k[sp] = 2 + np.minimum(rng.poisson(.6, sp.sum()), 4)
    sh = typ == 6
    k[sh] = 2 + np.minimum(rng.poisson(.7, sh.sum()), 4)
    tg = typ == 7
    k[tg] = 4 + np.minimum(rng.poisson(1., tg.sum()), 4)
    head = np.select([typ == 0, typ == 1, typ == 2, typ == 3, typ == 4, typ == 5, typ == 6],
                     [rng.integers(2, 6, n), rng.integers(8, 12, n), rng.integers(3, 6, n), rng.integers(7, 12, n), rng.integers(4, 8, n),
                      rng.integers(3, 8, n), rng.integers(2, 5, n)], rng.integers(5, 9, n))
    # education of the head: 0 none yet, 1 primary .. 5 doctorate
    base = np.array([[0, 10, 22, 34, 26, 8], [0, 22, 33, 27, 14, 4.]])
    tilt = np.array([1.6, 1.4, 1.1, 1, .9, .8, .7, .6])
    pe = base[(head > 7).astype(int)] * np.stack([np.ones(n), 1 / tilt[region], 1 / tilt[region], np.ones(n), tilt[region], tilt[region] ** 2], 1)
    edu = pick(pe, rng)
    sex = (rng.random(n) < np.select([typ == 5, typ == 1], [.82, .68], .45)).astype(int)

    def work(age, ed, sx, m):
        """0 none, 1 part, 2 full, 3 retired or in school"""
        full = np.where(age < 2, .02, np.where(age < 9, .5 + .06 * ed - .13 * sx, .06))
        part = np.where(age < 2, .08, np.where(age < 9, .12 + .16 * sx, .06))
        inact = np.where(age < 2, .85, np.where(age < 9, .03, .85))
        none = np.maximum(1 - full - part - inact, .03)
        return pick(np.stack([none, part, full, inact], 1), rng)

    hid = np.repeat(np.arange(n), k)
    first = np.cumsum(k) - k
    pos = np.arange(hid.size) - first[hid]
    m = hid.size
    t, ha, he, hs = typ[hid], head[hid], edu[hid], sex[hid]
    couple = np.isin(t, [2, 3, 4, 7])
    age = np.zeros(m, int)
    rel = np.zeros(m, int)
    ed = np.zeros(m, int)
    sx = rng.integers(0, 2, m)
    H = pos == 0
    age[H], ed[H], sx[H] = ha[H], he[H], hs[H]
    S = (pos == 1) & couple
    rel[S] = 1
    age[S] = np.clip(ha[S] + rng.choice([-1, 0, 1], S.sum(), p=[.22, .6, .18]), 2, 11)
    sx[S] = np.where(rng.random(S.sum()) < .95, 1 - hs[S], hs[S])
    ed[S] = np.where(rng.random(S.sum()) < .6, he[S], pick(pe[hid[S]], rng))
    G = (t == 7) & (pos == 2)
    rel[G] = 3
    age[G] = np.clip(ha[G] + 4, 0, 11)
    ed[G] = np.maximum(he[G] - rng.integers(0, 3, G.sum()), 1)
    other = (t == 6) & (pos > 0)
    rel[other] = 4
    age[other] = np.clip(ha[other] + rng.choice([-1, 0, 1], other.sum(), p=[.2, .6, .2]), 2, 11)
    ed[other] = np.where(rng.random(other.sum()) < .55, he[other], pick(pe[hid[other]], rng))
    C = (pos > 0) & ~S & ~G & ~other
    rel[C] = 2
    base_age = np.clip(head - 4 + rng.choice([-1, 0, 1], n, p=[.3, .5, .2]), 0, 6)
    age[C] = np.clip(base_age[hid[C]] - (rng.random(C.sum()) < .45), 0, 6)
    ed[C] = np.where(age[C] < 2, 0, np.where(age[C] < 3, np.minimum(he[C], 2), np.where(rng.random(C.sum()) < .5, he[C], rng.integers(1, 5, C.sum()))))
    wk = work(age, ed, sx, m)
    earn = np.zeros(n)
    np.add.at(earn, hid, np.array([.1, .6, 1.4, .5])[wk] * (1 + .35 * ed) * (age > 2))
    earn = earn * np.exp(.35 * rng.standard_normal(n)) * (1 + .06 * (3 - region))
    income = np.searchsorted(np.quantile(earn, np.linspace(.125, .875, 7)), earn)
    pt = np.stack([.2 + .12 * income * (head > 4), .5 - .03 * income, .35 * (head > 7) + .1 + .3 * (income < 2)], 1)
    tenure = pick(np.maximum(pt, .03), rng)
    size = np.digitize(k, [2, 3, 5])   # 1, 2, 3-4, 5+
    R = np.stack([region, tenure, size, income, k], 1)
    P = np.stack([age, sx, rel, ed, wk], 1)
    perm = rng.random(m).argsort()
    perm = perm[np.argsort(hid[perm], kind="stable")]
    return Database([R, P[perm]], [None, hid[perm]], [[8, 3, 4, 8, 9], [12, 2, 5, 6, 4]],
              [["region", "tenure", "size", "income", "persons"], ["age", "sex", "relation", "education", "work"]], [8])


def orders(n: int = 150_000, seed: int = 2) -> Database:
    """customers <- orders <- lineitems; segment 0 orders urgent goods more often, whose items come back more often."""
    rng = np.random.default_rng(seed)
    seg = rng.choice(5, n, p=[.2, .2, .2, .2, .2])
    reg = rng.choice(5, n, p=[.3, .25, .2, .15, .1])
    loyal = pick(np.array([[.3, .5, .2], [.45, .4, .15], [.2, .5, .3], [.33, .33, .34], [.5, .3, .2]])[seg], rng)   # hidden: rare, usual, heavy
    bal = np.clip((rng.normal(3.5 + 1.1 * (loyal - 1) + .5 * (reg == 0), 1.6, n)).astype(int), 0, 7)
    k = np.minimum(rng.poisson(np.array([.9, 5., 12.])[loyal] * np.where(seg == 0, 1.2, 1)), 20)
    taste = rng.choice(4, n, p=[.4, .3, .2, .1])    # hidden: what a customer's orders share
    hid = np.repeat(np.arange(n), k)
    m = hid.size
    s = seg[hid]
    urgent = np.where(s == 0, .45, .15)
    pp = np.stack([urgent, *[(1 - urgent) * q for q in (.4, .3, .2, .1)]], 1)
    tilt = np.ones((4, 5))
    tilt[1, 1] = 4
    tilt[2, 2] = 4
    tilt[3, 4] = 8
    prio = pick(pp * tilt[taste[hid]], rng)
    start = rng.integers(0, 7, n)
    year = np.clip(start[hid] + rng.choice([0, 0, 1, 1, 2], m), 0, 6)
    status = pick(np.stack([np.where(year > 4, .7, .05), np.where(year > 4, .1, .8), np.full(m, .1)], 1), rng)
    chan = pick(np.array([[.6, .3, .1], [.2, .7, .1], [.25, .25, .5], [.1, .1, .8]])[taste[hid]], rng)
    lines = 1 + np.minimum(rng.poisson(np.where(prio == 0, 1.2, 2.6) * np.array([.6, 1, 1.3])[loyal[hid]]), 6)
    T = [np.stack([seg, reg, bal, k], 1)]
    placed = np.stack([prio, year, status, chan, lines], 1)
    sizes = [[5, 5, 8, 21], [5, 7, 3, 3, 8]]
    names = [["segment", "region", "balance", "orders"], ["priority", "year", "status", "channel", "lines"]]
    oid = np.repeat(np.arange(m), lines)
    q = oid.size
    so, po, yo = s[oid], prio[oid], year[oid]
    back = np.where(po == 0, np.where(so == 0, .6, .25), .12)
    ret = pick(np.stack([back, (1 - back) * np.where(yo > 4, .2, .8), (1 - back) * np.where(yo > 4, .8, .2)], 1), rng)
    omode = rng.integers(0, 7, m)
    mode = np.where(rng.random(q) < .6, omode[oid], rng.integers(0, 7, q))
    mode = np.where((po == 0) & (rng.random(q) < .5), 0, mode)
    disc = np.clip(rng.normal(2 + 1.3 * loyal[hid[oid]], 1.6, q).astype(int), 0, 7)
    qty = np.clip(rng.normal(3 + .8 * (so == 2) + .6 * (disc > 4), 1.7, q).astype(int), 0, 7)
    Lt = np.stack([ret, mode, disc, qty], 1)
    return Database([T[0], placed, Lt], [None, hid, oid], sizes + [[3, 7, 8, 8]], names + [["returned", "mode", "discount", "quantity"]], [20, 7])
