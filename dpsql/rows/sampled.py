"""The blocks of a draw: sampled from a release's model, and what makes them obey its rules. Post-processing: free, seedable."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import partial
from typing import cast

import duckdb
import numpy as np
import numpy.typing as npt

from dpsql import methods
from dpsql.methods.base import OneHotMethod
from dpsql.release.store import Release
from dpsql.rows import hot
from dpsql.rows.decoding import Mend
from dpsql.rows.models import Fitted
from dpsql.rows.obeying import mender

_SPARE_ROWS = 4096
Blocks = Iterator[npt.NDArray[np.integer]]


def one_hot(bought: Release) -> bool:
    """Return whether the rows of a release are 0/1 columns, one per code."""
    return bought.plan.options.get("output") == "one_hot"


def blocks_of(
    cursor: duckdb.DuckDBPyConnection, bought: Release, model: Fitted, size: int, seed: int | None
) -> tuple[np.random.Generator, Blocks, Mend | None]:
    """Return the generator of a draw, its blocks of codes or of one-hot rows, and what makes decoded rows obey the rules.

    Parameters
    ----------
    cursor : DuckDB cursor
        Evaluates rules on synthetic rows; no table is read.
    size : int
        Number of rows.
    seed : int or None
        The same seed gives the same rows; None is a fixed seed of the release.
    """
    # The same release, seed and number of rows give the same rows, whatever was drawn before.
    own = [seed or 0, int(hashlib.sha256(bought.identifier.encode()).hexdigest()[:16], 16)]
    rng = np.random.default_rng(own)
    blocks = _sampled(bought, model, size, rng)
    rules = bought.plan.rules
    spare = partial(_spare, bought, model, [*own, 1])
    mending = mender(cursor, model.domain, rules, spare, bought.identifier, model.histograms) if rules else None
    if mending is None:
        return rng, blocks, None
    if one_hot(bought):
        return rng, hot.mended(blocks, model.domain, mending, np.random.default_rng([*own, 2])), None
    return rng, blocks, mending.mended


def _sampled(bought: Release, model: Fitted, size: int, rng: np.random.Generator) -> Blocks:
    method = methods.get(bought.plan.method or "")
    if one_hot(bought):
        return cast("OneHotMethod", method).sample_one_hot(model.model, size, rng)
    return method.sample(model.model, size, rng)


def _spare(bought: Release, model: Fitted, seeds: list[int]) -> npt.NDArray[np.integer]:
    """Return codes of some other rows of the model."""
    domain = model.domain
    blocks = list(_sampled(bought, model, _SPARE_ROWS, np.random.default_rng(seeds)))
    if one_hot(bought):
        read = [hot.codes_of(block, domain, list(range(len(domain.sizes)))) for block in blocks]
        blocks = [codes[single.all(axis=1)] for codes, single in read]
    return np.concatenate([np.zeros((0, len(domain.sizes)), np.uint8), *blocks])
