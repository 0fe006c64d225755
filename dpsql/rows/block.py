"""A block of decoded rows that can be changed: codes, and the arrays that their values are read from.

Privacy: post-processing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dpsql.domains.decoder import Columns

Codes = npt.NDArray[np.integer]
Places = npt.NDArray[np.intp]


class Block:
    """Rows as codes, shape (rows, m), and as decoded arrays, called ``v<position>`` and ``v<position>_...``.

    What is given is not changed: a column is copied before anything is put into it.
    """

    def __init__(self, codes: Codes, arrays: Columns) -> None:
        import pandas as pd  # loaded when needed: pandas takes .3 s

        self._codes = codes
        self._changed: dict[int, Codes] = {}
        self._kinds: dict[str, Any] = {name: array.dtype for name, array in arrays.items() if isinstance(array, pd.Categorical)}
        self._raw: dict[str, npt.NDArray[np.generic]] = {
            name: np.asarray(array.codes) if isinstance(array, pd.Categorical) else array for name, array in arrays.items()
        }
        self._names: dict[int, list[str]] = {}
        for name in arrays:
            self._names.setdefault(int(name[1:].partition("_")[0]), []).append(name)
        self._owned: set[str] = set()

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._codes)

    def codes(self, position: int) -> Codes:
        """Return the codes of an attribute."""
        changed = self._changed.get(position)
        return self._codes[:, position] if changed is None else changed

    def changed(self) -> dict[int, Codes]:
        """Return the codes of the attributes that anything was put into."""
        return dict(self._changed)

    def take(self, position: int, rows: Places | slice) -> Columns:
        """Return the arrays of an attribute in some rows."""
        return {name: self._typed(name, self._raw[name][rows]) for name in self._names[position]}

    def put(self, position: int, rows: Places, codes: Codes, arrays: Columns) -> None:
        """Set codes and values of an attribute in some rows."""
        import pandas as pd

        if position not in self._changed:
            self._changed[position] = np.array(self._codes[:, position])
        self._changed[position][rows] = codes
        for name, array in arrays.items():
            if name not in self._owned:
                self._owned.add(name)
                self._raw[name] = np.array(self._raw[name])
            self._raw[name][rows] = array.codes if isinstance(array, pd.Categorical) else array

    def some(self, rows: Places) -> Block:
        """Return a block of some of the rows, as they are."""
        block = Block(self._codes[rows], {name: self._typed(name, raw[rows]) for name, raw in self._raw.items()})
        block._changed = {position: codes[rows] for position, codes in self._changed.items()}
        return block

    def arrays(self) -> Columns:
        """Return the arrays of all attributes."""
        return {name: self._typed(name, raw) for name, raw in self._raw.items()}

    def _typed(self, name: str, raw: Any) -> Any:
        import pandas as pd

        kind = self._kinds.get(name)
        return raw if kind is None else pd.Categorical.from_codes(raw, dtype=kind)


def agreement(mine: Block, rows: Places, others: Block, candidates: Places, positions: Sequence[int]) -> npt.NDArray[np.int16]:
    """Return on how many attributes rows agree with each of their candidates.

    Parameters
    ----------
    rows : array, shape (b,)
        Of the first block.
    candidates : array, shape (b, K)
        Of the second block.
    """
    agreeing = np.zeros(candidates.shape, np.int16)
    for position in positions:
        agreeing += mine.codes(position)[rows][:, None] == others.codes(position)[candidates]
    return agreeing


def neighbours(
    mine: Block, rows: Places, others: Block, donors: Places, keys: Sequence[int], count: int, rng: np.random.Generator
) -> Places:
    """Return candidates for each row among the donors of a block: half of them alike in the keys, the others at random.

    Rows and donors are sorted by the keys together; alike are those that stand next to each other.

    Returns
    -------
    array of intp, shape (b, count)
    """
    random = donors[rng.integers(0, len(donors), (len(rows), count))]
    if not keys:
        return random
    half = count // 2
    columns = [np.concatenate([mine.codes(key)[rows].astype(np.int64), others.codes(key)[donors].astype(np.int64)]) for key in keys]
    tie = rng.random(len(rows) + len(donors))
    order = np.lexsort([tie, *columns[::-1]])
    is_donor = order >= len(rows)
    before = np.cumsum(is_donor)  # donors up to each place
    place = np.empty(len(order), np.int64)
    place[order] = before
    sorted_donors = donors[order[is_donor] - len(rows)]
    start = place[: len(rows)] - half // 2
    near = np.clip(start[:, None] + np.arange(half), 0, len(sorted_donors) - 1)
    random[:, :half] = sorted_donors[near]
    return random
