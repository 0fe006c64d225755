"""One-hot rows that obey rules: read as codes, repaired as decoded rows are, written back.

A one-hot row of `gaussian_copula` may hold no value of an attribute, or several, as published. Rules say nothing of such a row;
a row that holds one value of each column of a rule obeys it: the code stands for some value with which it does.

Privacy: post-processing.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from dpsql.domains.attributes import Domain
from dpsql.domains.decoder import Columns, Decoder
from dpsql.rows.block import Block, Codes
from dpsql.rows.obeying import Mender

_COMPARED = 12


def codes_of(block: npt.NDArray[np.integer], domain: Domain, positions: list[int]) -> tuple[Codes, npt.NDArray[np.bool_]]:
    """Return the codes of some attributes, and which rows hold exactly one value of each, both of shape (rows, m)."""
    ends = np.cumsum((0, *domain.sizes))
    codes = np.zeros((len(block), len(domain.sizes)), np.int32, order="F")
    single = np.zeros(codes.shape, bool)
    for position in positions:
        part = block[:, ends[position] : ends[position + 1]]
        codes[:, position] = part.argmax(axis=1)
        single[:, position] = part.sum(axis=1, dtype=np.int64) == 1
    return codes, single


def mended(
    blocks: Iterator[npt.NDArray[np.integer]], domain: Domain, mender: Mender, rng: np.random.Generator
) -> Iterator[npt.NDArray[np.integer]]:
    """Yield blocks of one-hot rows, repaired."""
    ends = np.cumsum((0, *domain.sizes))
    others = [position for position in range(len(domain.sizes)) if position not in mender.positions][:_COMPARED]
    for block in blocks:
        codes, single = codes_of(block, domain, mender.positions)
        # The other attributes are only compared, so that a repair takes from rows that are alike.
        codes[:, others] = codes_of(block, domain, others)[0][:, others]
        arrays: Columns = {}
        for position in mender.positions:
            arrays.update(Decoder(domain.attributes[position], f"v{position}").arrays(codes[:, position], rng))
        rows = Block(codes, arrays)
        mender.mend(rows, rng, [*mender.positions, *others], single)
        yield _written(block, codes, rows, ends)


def _written(
    block: npt.NDArray[np.integer], codes: Codes, rows: Block, ends: npt.NDArray[np.int_]
) -> npt.NDArray[np.integer]:
    changed = rows.changed()
    if not changed:
        return block
    written = np.array(block)
    for position, now in changed.items():
        moved = np.flatnonzero(now != codes[:, position])
        written[moved[:, None], np.arange(ends[position], ends[position + 1])] = 0
        written[moved, ends[position] + now[moved]] = 1
    return written
