"""A draw in parts, which workers of another engine make side by side. Everything here is post-processing.

A part is a function of the release, the seed and its number alone: it is the same on any worker, also where it is made a second
time. How many parts there are follows from the number of rows, and not from the cluster. A worker needs dpsql and what it needs:
values are decoded, and rules kept, as for a table in DuckDB, by a DuckDB of the worker's own that reads nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd

from dpsql.domains import multi_value
from dpsql.release.store import Release
from dpsql.rows import decoding
from dpsql.rows.models import Fitted
from dpsql.rows.sampled import blocks_of, one_hot
from dpsql.rows.writing import Frames, seen, together, visible
from dpsql.session.settings import pin
from dpsql.text.relation import identifier

PART_ROWS = 1 << 19
MOST_PARTS = 10_000
_BATCH_ROWS = 1 << 14  # rows that a worker hands over at a time


@dataclass(frozen=True)
class Parts:
    """The parts of a draw, by number; goes to the workers.

    Parameters
    ----------
    bought : Release
        Its file is not needed.
    found : Fitted
        The model.
    rows : int
        Of all parts together.
    seed : int or None
        As in `dpsql.rows.drawing.rows`.
    count : int
        How many parts there are, at least one.
    types : tuple of str
        DuckDB types that the columns are handed over in; empty: those that they have.
    """

    bought: Release
    found: Fitted
    rows: int
    seed: int | None
    count: int
    types: tuple[str, ...] = field(default=())

    @classmethod
    def of(cls, bought: Release, found: Fitted, rows: int, seed: int | None) -> Parts:
        """Return the parts of a draw, without what only this process needs."""
        count = max(1, min(-(-rows // PART_ROWS), MOST_PARTS))
        return cls(replace(bought, path=Path(bought.path.name), written=None), found, rows, seed, count)

    def rows_of(self, number: int) -> int:
        """Return the number of rows of a part."""
        return self.rows * (number + 1) // self.count - self.rows * number // self.count

    def columns(self) -> list[tuple[str, str]]:
        """Return names and DuckDB types of the columns."""
        with _own_duckdb() as cursor:
            frames, select = self._frames(cursor, 0, 0)
            for some in frames:
                with visible(cursor, some):
                    return _described(cursor, together(select, some), some)
        raise ValueError("a draw without columns")

    def __call__(self, number: int) -> Iterator[Any]:
        """Yield the rows of a part as pyarrow record batches."""
        with _own_duckdb() as cursor:
            frames, select = self._frames(cursor, number, self.rows_of(number))
            for some in frames:
                with visible(cursor, some):
                    table = seen(cursor.sql, self._handed(cursor, together(select, some), some), *some).to_arrow_table()
                yield from table.to_batches(max_chunksize=_BATCH_ROWS)

    def _handed(self, cursor: duckdb.DuckDBPyConnection, query: str, some: Frames) -> str:
        if not self.types:
            return query
        named = [name for name, _ in _described(cursor, query, some)]
        cast = [f"CAST({identifier(n)} AS {t}) AS {identifier(n)}" for n, t in zip(named, self.types, strict=True)]
        return f"SELECT {', '.join(cast)} FROM ({query})"  # noqa: S608 -- quoted

    def _frames(
        self, cursor: duckdb.DuckDBPyConnection, number: int, rows: int
    ) -> tuple[Iterator[Sequence[pd.DataFrame]], Callable[[str], str]]:
        domain, options = self.found.domain, self.bought.plan.options
        rng, blocks, mend = blocks_of(cursor, self.bought, self.found, rows, self.seed, number)
        if one_hot(self.bought):
            return decoding.one_hot_frames(blocks, domain)
        return decoding.row_frames(
            blocks, domain, rng, lambda query: multi_value.joined_sql(query, domain, options), mend, self.found.histograms
        )


def _own_duckdb() -> duckdb.DuckDBPyConnection:
    """Return a database in memory: of this task alone, which has one core."""
    con = duckdb.connect(config={"threads": 1, "autoinstall_known_extensions": False})
    pin(con)
    return con


def _described(cursor: duckdb.DuckDBPyConnection, query: str, some: Frames) -> list[tuple[str, str]]:
    seen(cursor.execute, f"DESCRIBE {query}", *some)
    return [(str(row[0]), str(row[1])) for row in cursor.fetchall()]
