"""Released numbers that answer a query: those of its own release, or of another one that holds them. Post-processing."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpsql.errors import ReleaseError
from dpsql.numerics.arrays import FloatArray, IntArray
from dpsql.protected.source import ProtectedSource
from dpsql.queries.asked import Asked, Wanted
from dpsql.queries.containing import translated
from dpsql.queries.estimating import Blocks, Estimates
from dpsql.release.plan import Plan
from dpsql.release.queried import Numbers, numbers
from dpsql.release.store import Release
from dpsql.session.instance import Context
from dpsql.text.bounded_json import load


@dataclass(frozen=True)
class Held:
    """Numbers that answer a question.

    Parameters
    ----------
    release : str
        Identifier of the release that they are from.
    seed : str
        What the draws of intervals are seeded with: the release's hash.
    plan : Plan
        Whose ``query`` says what was measured.
    numbers : Numbers
    question : mapping
        ``arguments`` and ``conditions``: texts, in the order of the positions in the plan.
    wanted : tuple of Wanted, optional
        The aggregates of the question with these positions, where another question bought the release.
    added : int array of shape (groups,), optional
        How many released counters each counter of a group is the sum of; None: each is one.
    said : tuple of str
        What to know of an answer that another question, or a table, bought.
    """

    release: str
    seed: str
    plan: Plan
    numbers: Numbers
    question: Mapping[str, Any]
    wanted: tuple[Wanted, ...] = ()
    added: IntArray | None = None
    said: tuple[str, ...] = ()

    @property
    def most_added(self) -> int:
        """The largest number of released counters in a sum."""
        return 1 if self.added is None or not self.added.size else int(self.added.max())

    def estimates(self, blocks: Blocks | None = None) -> Estimates:
        """Return the aggregates; ``blocks``: the counters as they may have been without noise, in place of the released ones."""
        if blocks is None:
            blocks = [np.asarray(block, dtype=np.float64) for block in self.numbers.blocks]
        return Estimates(self.plan, blocks, self.most_added)

    def noise(self, rng: np.random.Generator, count: int) -> list[FloatArray]:
        """Return draws of the noise on each block: shape (count, groups, counters). Of what was drawn by rank none is known: 0."""
        found = []
        added = None if self.added is None else self.added[:, None]
        query = self.plan.query
        by_rank = set() if query is None else {
            query.blocks_of(place).start for place, one in enumerate(query.measures) if one.kind == "quantile"
        }
        for place, (block, scale) in enumerate(zip(self.numbers.blocks, self.plan.scales, strict=True)):
            shape, size = (count, *block.shape), float(scale)
            if place in by_rank:
                found.append(np.broadcast_to(np.float64(0), shape))
                continue
            if self.plan.mechanism == "gaussian":
                drawn = rng.normal(0.0, size, shape) * (1.0 if added is None else np.sqrt(added))
            elif added is None:
                drawn = rng.laplace(0.0, size, shape)
            else:  # a sum of k Laplace variables is the difference of two gamma variables of shape k
                drawn = rng.gamma(added, size, shape) - rng.gamma(added, size, shape)
            found.append(np.rint(drawn))
        return found


@dataclass(frozen=True)
class Part:
    """Released numbers that answer one grouping set of a core."""

    asked: Asked
    held: Held
    protected: ProtectedSource

    @property
    def wanted(self) -> list[Wanted]:
        """The aggregates with the positions that their arguments and conditions have in the release."""
        found = list(self.held.wanted) or translated(self.asked, self.held.question)
        if found is None:
            raise ReleaseError(f"release {self.held.release!r} does not hold what is asked")
        return found


def of_release(context: Context, release: Release) -> Held:
    """Return what a release of a query holds.

    Raises
    ------
    ReleaseError
        It is not one, or its file was edited.
    """
    plan = release.plan
    if plan.query is None:
        raise ReleaseError(f"release {release.identifier!r} is not the answer of a query")
    statistics = release.statistics(context.cursor)
    found = numbers(plan.query, np.asarray(statistics.blocks[0]), statistics.values)
    manifest = release.manifest
    return Held(release.identifier, str(manifest["sha256"]), plan, found, manifest["parameters"]["query"])


def summed(held: Held, groups: list[tuple[str | None, ...]], places: IntArray) -> Held | None:
    """Return the sums of counters by coarser groups; None where they are beyond 64 bits.

    Parameters
    ----------
    groups : list of tuples
        The coarser groups, as texts.
    places : int array
        For each group that is held, which of these it is part of.
    """
    blocks = []
    for block in held.numbers.blocks:
        if np.abs(block.astype(np.float64)).sum(axis=0).max(initial=0.0) > 2.0**62:
            return None
        made = np.zeros((len(groups), block.shape[1]), np.int64)
        np.add.at(made, places, block)
        blocks.append(made)
    added = np.bincount(places, minlength=len(groups)).astype(np.int64)
    alone = bool(np.all(added == 1))
    return replace(held, numbers=Numbers(groups, blocks), added=None if alone else added)


def stored(source: ProtectedSource, rows: str) -> list[tuple[str, str, str, dict[str, Any]]]:
    """Return name, operation, source and parameters of the stored answers over these rows, and of the tables, of a table."""
    found = []
    for name, operation, query, text in source.ledger.stored(rows):
        with suppress(ValueError):
            parameters = load(text)
            if isinstance(parameters, dict):
                found.append((name, operation, query, parameters))
    return sorted(found, key=lambda one: -_epsilon(one[3]))  # the most accurate first


def _epsilon(parameters: Mapping[str, Any]) -> float:
    value = parameters.get("epsilon")
    return float(value) if isinstance(value, int | float) else 0.0
