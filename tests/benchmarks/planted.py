"""Synthetic databases with planted dependence: distances by row, conjunctive counts, effects kept.

python tests/benchmarks/planted.py [households | orders] [--units N] [--epsilon 1] [--seeds 1] [--effort balanced] [--rules] [--seeded]

households: 100,000 households and 252,000 persons; orders: 150,000 customers, 811,000 orders, 2,959,000 lines (`planted_data.py`).
delta = 1e-9. Every joined row counts 1, as SQL gives it. Counts: 150 random conjunctions for each class of hops (0: one table; 1: a row and
its parent; 2: three levels; siblings: two rows of one parent), those whose answer is 50 or more, median relative error. --rules: of the persons of a household exactly one is its head, and at most one
the spouse, by ``dp_rule``. --seeded: the noise too is of the seed, so that two runs differ in nothing else.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import planted_data
from planted_data import Database

import dpsql
from dpsql.noise import entropy

sys.path.append(str(Path(__file__).parents[1]))
from seeded_entropy import Streams

Predicates = list[tuple[int, int, int, int]]


def synthesized(db: Database, epsilon: float, seed: int, effort: str, rules: Sequence[str] = ()) -> tuple[Database, float]:
    """Return a synthetic copy made by dpsql, and the seconds that it took."""
    con, tables = duckdb.connect(), [f"t{d}" for d in range(len(db.tables))]
    for d, codes in enumerate(db.tables):
        own = codes[:, :-1] if d + 1 < len(tables) else codes
        frame = pd.DataFrame({"id": np.arange(len(own)), **({} if d == 0 else {"up": db.parent[d]})})
        frame = frame.assign(**{name: own[:, i] for i, name in enumerate(db.names[d][: own.shape[1]])})
        con.execute(f"CREATE TABLE {tables[d]} AS FROM frame; ALTER TABLE {tables[d]} ALTER id SET NOT NULL")
        con.execute(f"CREATE UNIQUE INDEX key{d} ON {tables[d]} (id)")
    dpsql.load(con, progress=False)
    con.execute("CALL dp_protect('t0', epsilon := 10, delta := 1e-9, privacy_unit := 'id', max_contributions := 1)")
    for d in range(1, len(tables)):
        con.execute(f"CALL dp_link('t{d}', 'up', parent := 't{d - 1}', parent_column := 'id', max_rows := {db.most[d - 1]})")
    for d in range(len(tables)):
        for name, size in zip(db.names[d], db.sizes[d], strict=True):
            if d + 1 == len(tables) or name != db.names[d][-1]:
                con.execute(f"CALL dp_declare('t{d}', '{name}', categories := {list(range(size))}, nullable := false)")
    for rule in rules:
        con.execute("FROM dp_rule('t1', ?)", [rule])
    start = time.perf_counter()
    con.execute(
        f"FROM dp_synthesize_tables('t0', epsilon := {epsilon}, delta := 1e-9, into_schema := 's', release := 'seed {seed}', seed := {seed}, "
        f"options := {{effort: '{effort}'}})"
    ).fetchall()
    seconds = time.perf_counter() - start
    found, parents = [], []
    for d in range(len(tables)):
        names = [name for name in db.names[d] if d + 1 == len(tables) or name != db.names[d][-1]]
        up = "" if d == 0 else "up - 1 AS up, "
        frame = con.execute(f"SELECT {up}{', '.join(names)} FROM s.t{d} ORDER BY {'id' if d + 1 < len(tables) else 'up'} ASC").fetchnumpy()
        found.append(np.stack([np.asarray(frame[name], np.int64) for name in names], 1))
        parents.append(None if d == 0 else np.asarray(frame["up"], np.int64))
    for d in range(len(tables) - 1):
        count = np.bincount(parents[d + 1], minlength=len(found[d]))
        found[d] = np.column_stack([found[d], count])
    con.close()
    return Database(found, parents, db.sizes, db.names, db.most), seconds


def pairs(left: np.ndarray, right: np.ndarray, sizes: tuple[Sequence[int], Sequence[int]]) -> dict[tuple[int, int], np.ndarray]:
    return {
        (i, j): np.bincount(left[:, i] * b + right[:, j], minlength=a * b) for i, a in enumerate(sizes[0]) for j, b in enumerate(sizes[1])
    }


def siblings(db: Database, d: int) -> dict[tuple[int, int], np.ndarray]:
    codes, parent, sizes = db.tables[d], db.parent[d], db.sizes[d]
    starts = np.cumsum([0, *sizes])
    hot = np.zeros((len(db.tables[d - 1]), starts[-1]), np.float32)
    for i in range(len(sizes)):
        np.add.at(hot, (parent, codes[:, i] + starts[i]), 1.0)
    every, own = hot.T.astype(float) @ hot, pairs(codes, codes, (sizes, sizes))
    return {
        (i, j): every[starts[i] : starts[i + 1], starts[j] : starts[j + 1]].ravel() - own[i, j]
        for i in range(len(sizes)) for j in range(i, len(sizes))
    }  # fmt: skip


def tables_of(db: Database) -> dict[str, dict[tuple[int, int], np.ndarray]]:
    found = {}
    for d in range(len(db.tables)):
        own = pairs(db.tables[d], db.tables[d], (db.sizes[d], db.sizes[d]))
        found[f"pairs {d}"] = {key: table for key, table in own.items() if key[0] < key[1]}
        if d:
            found[f"siblings {d}"] = siblings(db, d)
            found[f"fan-out {d}"] = {(0, 0): np.bincount(db.tables[d - 1][:, -1], minlength=40)}
        for above in range(d):
            at = db.parent[d] if above == d - 1 else db.root_of(d)
            found[f"{above} x {d}"] = pairs(db.tables[above][at], db.tables[d], (db.sizes[above], db.sizes[d]))
    return found


def distances(raw: Database, synthetic: Database) -> dict[str, float]:
    first, second = tables_of(raw), tables_of(synthetic)
    return {
        kind: float(np.mean([0.5 * np.abs(t / t.sum() - second[kind][key] / second[kind][key].sum()).sum() for key, t in listed.items()]))
        for kind, listed in first.items()
    }


def workload(db: Database, count: int = 150) -> dict[str, list[list[Predicates]]]:
    """Return conjunctions: (table, column, from, width), of cyclic ranges of at most half a column's values."""
    rng, deep = np.random.default_rng(123), len(db.tables) > 2

    def some(d: int, low: int, high: int) -> Predicates:
        chosen = rng.permutation(len(db.sizes[d]))[: rng.integers(low, high + 1)]
        return [(d, int(c), int(rng.integers(0, db.sizes[d][c])), int(rng.integers(1, max(db.sizes[d][c] // 2, 1) + 1))) for c in chosen]

    found: dict[str, list[list[Predicates]]] = {"0 hops": [], "1 hop": [], "siblings": []} | ({"2 hops": []} if deep else {})
    for i in range(count):
        d = 1 + i % 2 if deep else 1
        found["0 hops"].append([some(i % len(db.tables), 2, 3)])
        found["1 hop"].append([some(d - 1, 1, 2) + some(d, 1, 2)])
        if deep:
            found["2 hops"].append([some(0, 1, 1) + some(1, 1, 1) + some(2, 1, 1)])
        found["siblings"].append([some(0, 0, 1), some(1, 1, 2), some(1, 1, 2)])
    return found


def answer(db: Database, asked: list[Predicates]) -> float:
    def holds(predicates: Predicates, d: int) -> np.ndarray:
        kept = np.ones(len(db.tables[d]), bool)
        for table, c, low, width in predicates:
            if table == d:
                kept &= (db.tables[d][:, c] - low) % db.sizes[d][c] < width
        return kept

    if len(asked) == 1:
        levels = sorted({predicate[0] for predicate in asked[0]})
        kept, at = holds(asked[0], levels[-1]), None
        for d in range(levels[-1], levels[0], -1):
            at = db.parent[d] if at is None else db.parent[d][at]
            kept = kept & holds(asked[0], d - 1)[at]
        return float(kept.sum())
    parent, units = db.parent[1], len(db.tables[0])
    one, other = holds(asked[1], 1), holds(asked[2], 1)
    counts = [np.bincount(parent[rows], minlength=units) for rows in (one, other, one & other)]
    return float(((counts[0] * counts[1] - counts[2]) * holds(asked[0], 0)).sum())


def relative_errors(raw: Database, synthetic: Database) -> dict[str, float]:
    found = {}
    for kind, listed in workload(raw).items():
        exact = np.array([answer(raw, asked) for asked in listed])
        got = np.array([answer(synthetic, asked) for asked in listed])
        large = exact >= 50
        found[kind] = float(np.median(np.abs(got - exact)[large] / exact[large]))
    return found


def effects(db: Database) -> dict[str, float]:
    """Return what is planted, as differences of shares; shares of households with one head and with two spouses."""
    parent, children, units = db.parent[1], db.tables[1], len(db.tables[0])

    def apart(share: np.ndarray, by: np.ndarray) -> float:
        return float(share[by].mean() - share[~by].mean())

    if len(db.tables) > 2:
        first, urgent, back = db.tables[0][:, 0] == 0, children[:, 0] == 0, db.tables[2][:, 0] == 0
        u, s = urgent[db.parent[2]], first[db.root_of(2)]
        return {
            "urgent by segment": apart(urgent, first[parent]), "returned by urgent": apart(back, u), "returned by segment": apart(back, s),
            "returned by segment, urgent only": apart(back[u], s[u]),
        }  # fmt: skip
    head, spouse, high, old = children[:, 2] == 0, children[:, 2] == 1, children[:, 3] >= 4, children[:, 0] >= 8
    adult, rich = children[:, 0] > 2, (db.tables[0][:, 3] >= 6)[parent]
    with_high, with_old = (np.bincount(parent[head & column], minlength=units) > 0 for column in (high, old))
    return {
        "full time by income": apart((children[:, 4] == 2)[adult], rich[adult]),
        "spouse's education by head's": apart(high[spouse], with_high[parent[spouse]]),
        "spouse's age by head's": apart(old[spouse], with_old[parent[spouse]]),
        "one head": float((np.bincount(parent[head], minlength=units) == 1).mean()),
        "one spouse at most": float((np.bincount(parent[spouse], minlength=units) <= 1).mean()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", choices=("households", "orders"), default="households")
    parser.add_argument("--units", type=int)
    parser.add_argument("--epsilon", type=float, default=1)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--effort", default="balanced")
    parser.add_argument("--rules", action="store_true")
    parser.add_argument("--seeded", action="store_true")
    given = parser.parse_args()
    raw = getattr(planted_data, given.data)(*([] if given.units is None else [given.units]))
    print(given.data, [len(table) for table in raw.tables], f"epsilon {given.epsilon:g}")
    planted = effects(raw)
    relation = raw.names[1][2]
    rules = [f"count(*) FILTER (WHERE {relation} = {code}) {sign} 1" for code, sign in ((0, "="), (1, "<="))] if given.rules else []
    for seed in range(1, given.seeds + 1):
        cpu = time.process_time()
        if given.seeded:
            entropy._source = Streams(f"k{seed}")
        synthetic, seconds = synthesized(raw, given.epsilon, seed, given.effort, rules)
        print(f"seed {seed}: {seconds:.1f} s, {time.process_time() - cpu:.1f} s of CPU with loading and reading")
        print("  distances:", ", ".join(f"{kind} {value:.4f}" for kind, value in distances(raw, synthetic).items()))
        print("  relative errors:", ", ".join(f"{kind} {value:.3f}" for kind, value in relative_errors(raw, synthetic).items()))
        print("  effects kept:", ", ".join(f"{name} {value / planted[name]:.0%}" for name, value in effects(synthetic).items()))


if __name__ == "__main__":
    main()
