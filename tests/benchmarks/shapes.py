"""Tables of the sizes in [Asghar 2019], made by a seeded generator: columns depend on each other through a few latent factors."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import duckdb
import numpy as np
import pandas as pd

ROWS = 5_240_260
_BLOCK = 122_880
_FACTORS = 6
# 27 attributes with 674 values together, as many as the paper's largest table with a survey's mixture of small and large lists.
SURVEY = (2, 2, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 8, 9, 10, 12, 15, 18, 20, 24, 30, 52, 60, 75, 90, 200)


@dataclass(frozen=True)
class Shape:
    """Rows and number of values of every column; columns of two values are BOOLEAN NOT NULL where ``boolean``, all others UTINYINT codes."""

    rows: int
    sizes: tuple[int, ...]
    boolean: bool = False

    @property
    def one_hot(self) -> int:
        return sum(self.sizes) if not self.boolean else len(self.sizes)

    @property
    def names(self) -> list[str]:
        return [f"a{i:04d}" for i in range(len(self.sizes))]


def survey(rows: int = ROWS) -> Shape:
    return Shape(rows, SURVEY)


def binary(columns: int, rows: int = ROWS) -> Shape:
    return Shape(rows, (2,) * columns, boolean=True)


def even(columns: int, rows: int, values: int = 8) -> Shape:
    return Shape(rows, (values,) * columns)


def make(con: duckdb.DuckDBPyConnection, table: str, shape: Shape, seed: int = 1) -> None:
    """Create a table; the same shape and seed give the same rows."""
    rng = np.random.default_rng(seed)
    m = len(shape.sizes)
    loadings = rng.normal(size=(_FACTORS, m)).astype(np.float32) * rng.choice([0.15, 0.5, 1.0], size=m).astype(np.float32)
    spread = np.sqrt(1.0 + (loadings**2).sum(0))
    # Zipf-like shares; a column's value is the place of its latent number among the quantiles.
    cuts = []
    for size, scale in zip(shape.sizes, spread, strict=True):
        shares = 1.0 / np.arange(1, size + 1) ** rng.uniform(0.3, 1.5)
        if size == 2:
            shares = np.array([1.0, rng.uniform(0.05, 0.95)])
        level = np.cumsum(shares / shares.sum())[:-1]
        sample = np.sort(rng.standard_normal(200_000)) * scale
        cuts.append(np.quantile(sample, level).astype(np.float32))
    kind = "BOOLEAN NOT NULL" if shape.boolean else "UTINYINT"
    columns = ", ".join(f"{name} {kind}" for name in shape.names)
    con.execute(f"CREATE OR REPLACE TABLE {table} ({columns})")
    starts = range(0, shape.rows, _BLOCK)
    seeds = np.random.SeedSequence(seed).spawn(len(starts))

    def frame(place: int) -> pd.DataFrame:
        own = np.random.default_rng(seeds[place])
        count = min(_BLOCK, shape.rows - starts[place])
        factors = own.standard_normal((count, _FACTORS), dtype=np.float32)
        columns = {}
        for i, name in enumerate(shape.names):
            latent = factors @ loadings[:, i]
            latent += own.standard_normal(count, dtype=np.float32)
            columns[name] = latent > cuts[i][0] if shape.boolean else np.searchsorted(cuts[i], latent).astype(np.uint8)
        return pd.DataFrame(columns, copy=False)

    # Two frames of one row group each a statement: DuckDB stores them side by side.
    with ThreadPoolExecutor(2) as pool:
        for first in range(0, len(starts), 2):
            frames = list(pool.map(frame, range(first, min(first + 2, len(starts)))))
            for i, block in enumerate(frames):
                con.register(f"__block{i}", block)
            con.execute(f"INSERT INTO {table} " + " UNION ALL ".join(f"(FROM __block{i})" for i in range(len(frames))))
            for i in range(len(frames)):
                con.unregister(f"__block{i}")
