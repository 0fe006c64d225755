"""Rows that obey every rule: those that break one are repaired, so that the tables of all rows stay as close as they were.

Rules that share columns are kept together. A row that breaks one of them is repaired in the first of these ways that works:

1. Its values are drawn again inside their bins: no table changes.
2. It exchanges the values of one column with another row, such that both obey: no one-way table changes. Of some candidates the row
   is taken that agrees with it on most of the other columns, so that few other tables change, by little.
3. It takes the columns of the rules from a row that obeys, again the most alike of some; where the block has none, from other rows
   of the model, and at last from rows that are made up of the domain's codes at random.

The number of tries is bounded, everything follows from the seed, and no row that breaks a rule is ever written.

Privacy: post-processing of synthetic rows by public rules.

References
----------
Exchanges between rows keep the one-way tables as in Dalenius and Reiss (1982), *Data-swapping: A technique for disclosure control*,
Journal of Statistical Planning and Inference 6.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import duckdb
import numpy as np
import numpy.typing as npt

from dpsql.domains.attributes import Domain
from dpsql.domains.decoder import Columns, Decoder
from dpsql.errors import ReleaseError
from dpsql.rows.block import Block, Codes, Places, agreement, neighbours
from dpsql.rows.decoding import Histograms
from dpsql.rules.effects import ALWAYS, concerning, effect, places, together
from dpsql.rules.evaluating import FALSE, Evaluator, evaluator
from dpsql.rules.grammar import Rule, stored
from dpsql.rules.reasoning import single_valued

Mask = npt.NDArray[np.bool_]
_NONE: Histograms = {}
_REDRAWS, _FEWEST_REDRAWS, _LEAST_SHARE = 24, 4, 0.02
"""Tries inside bins; after how many, and below which share that worked, they are given up."""
_ROUNDS, _CANDIDATES = 6, 24
_KEYS, _COMPARED = 5, 12
"""Columns that candidates are sorted by, and that alike rows agree on."""
_MOST_DONORS, _FEWEST_DONORS = 40_000, 4_000
_AT_ONCE = 1 << 18
"""Rows that are evaluated together."""
_MADE_UP, _MADE_UP_TIMES = 1 << 14, 16


def mender(
    cursor: duckdb.DuckDBPyConnection,
    domain: Domain,
    rules: Sequence[str],
    spare: Callable[[], Codes],
    release: str,
    histograms: Histograms = _NONE,
) -> Mender | None:
    """Return what repairs the rows of a release; None where no rule can be broken.

    Parameters
    ----------
    cursor : DuckDB cursor
        No table is read on it.
    domain : Domain
        Of the rows.
    rules : sequence of str
        `dpsql.release.plan.Plan.rules`.
    spare : function
        Returns codes of some other rows of the model, shape (rows, m); called at most once, where a block has no row that obeys.
    release : str
        For messages.
    histograms : mapping of column name to Histogram
        Where in their bins values lie, also those that are drawn again.
    """
    found = concerning([stored(text) for text in rules], domain)
    kept = [rule for rule in found if effect(cursor, rule, domain).kind != ALWAYS]
    return Mender(cursor, domain, kept, spare, release, histograms) if kept else None


def check(cursor: duckdb.DuckDBPyConnection, domain: Domain, rules: Sequence[str]) -> None:
    """Refuse rules that came from elsewhere and are not boolean over the types of a domain.

    Raises
    ------
    duckdb.Error, ValueError
    """
    for rule in [stored(text) for text in rules]:
        evaluator(cursor, domain.select(rule.columns).attributes, [rule]).check()


class Mender:
    """Repairs blocks of rows; see `mender`."""

    def __init__(
        self,
        cursor: duckdb.DuckDBPyConnection,
        domain: Domain,
        rules: Sequence[Rule],
        spare: Callable[[], Codes],
        release: str,
        histograms: Histograms,
    ) -> None:
        self._domain, self._spare_codes, self._release, self._histograms = domain, spare, release, histograms
        self._spare: Block | None = None
        self._groups = [_Group(cursor, domain, some, histograms) for some in together(rules)]
        self.positions = sorted({position for group in self._groups for position in group.positions})

    def mended(self, codes: Codes, arrays: Columns, rng: np.random.Generator) -> Columns:
        """Return the arrays of a block of decoded rows, repaired."""
        block = Block(codes, arrays)
        self.mend(block, rng, range(len(self._domain.attributes)))
        return block.arrays()

    def mend(self, block: Block, rng: np.random.Generator, compared: Sequence[int], single: Mask | None = None) -> None:
        """Repair a block in place.

        Parameters
        ----------
        compared : sequence of int
            Attributes on which alike rows may agree.
        single : bool array, shape (rows, m), optional
            Which rows have one value of each attribute; all of them if left out. Of others a rule says nothing.
        """
        for group in self._groups:
            obeys, beside = group.obey(block), np.zeros(0, np.intp)
            if single is not None:
                beside = np.flatnonzero(group.partly_broken(block, single))
                obeys |= ~single[:, group.positions].all(axis=1)
            broken = np.flatnonzero(~obeys)
            if not broken.size and not beside.size:
                continue
            donors = np.flatnonzero(obeys if single is None else obeys & single[:, group.positions].all(axis=1))
            broken = group.redraw(block, broken, rng)
            broken = np.concatenate([group.exchange(block, broken, donors, compared, rng), beside])
            if broken.size:
                pool, donors = (block, donors) if donors.size else self._pool(group, rng)
                group.replace(block, broken, pool, donors, compared, rng)

    def _pool(self, group: _Group, rng: np.random.Generator) -> tuple[Block, Places]:
        """Return rows that obey the rules of a group: of the model, or else made up."""
        if self._spare is None:
            every = range(len(self._domain.attributes))
            self._spare = _decoded(self._spare_codes(), self._domain, every, rng, self._histograms)
        good = np.flatnonzero(group.obey(self._spare)) if len(self._spare) else np.zeros(0, np.intp)
        if good.size:
            return self._spare, good
        sizes = self._domain.sizes
        for _ in range(_MADE_UP_TIMES):
            codes = np.zeros((_MADE_UP, len(sizes)), np.int32)
            for position in group.positions:
                codes[:, position] = rng.integers(0, sizes[position], _MADE_UP)
            pool = _decoded(codes, self._domain, group.positions, rng, self._histograms)
            good = np.flatnonzero(group.obey(pool))
            if good.size:
                return pool, good
        listed = " and ".join(rule.text for rule in group.rules)
        raise ReleaseError(
            f"release {self._release!r}: no row was found that obeys the rules {listed[:400]}. The release stays as it is; take a "
            "rule back (dp_rule with remove := true), or declare wider domains, and buy one under another name"
        )


def _decoded(
    codes: Codes, domain: Domain, positions: Sequence[int], rng: np.random.Generator, histograms: Histograms
) -> Block:
    arrays: Columns = {}
    for position in positions:
        attribute = domain.attributes[position]
        arrays.update(Decoder(attribute, f"v{position}", histograms.get(attribute.name)).arrays(codes[:, position], rng))
    return Block(codes, arrays)


class _Group:
    """Rules that share columns, and the attributes that they look at."""

    def __init__(
        self, cursor: duckdb.DuckDBPyConnection, domain: Domain, rules: Sequence[Rule], histograms: Histograms
    ) -> None:
        self.rules = rules
        self.positions = sorted({position for rule in rules for position in places(rule, domain)})
        self._of_rule = [list(places(rule, domain)) for rule in rules]
        attributes = [domain.attributes[position] for position in self.positions]
        names = [f"v{position}" for position in self.positions]
        self._evaluator: Evaluator = evaluator(cursor, attributes, rules, names)
        decoders = [Decoder(a, name, histograms.get(a.name)) for a, name in zip(attributes, names, strict=True)]
        redrawn = zip(self.positions, decoders, strict=True)
        self._inside = [(position, decoder) for position, decoder in redrawn if not single_valued(decoder.attribute)]

    def obey(self, block: Block) -> Mask:
        """Return which rows of a block obey."""
        return self._obey(self._values(block, slice(None)), len(block))

    def partly_broken(self, block: Block, single: Mask) -> Mask:
        """Return which rows without one value of every column break a rule all of whose columns have one."""
        found = np.zeros(len(block), bool)
        verdicts = self._evaluator.verdicts(self._values(block, slice(None)), len(block))
        for positions, verdict in zip(self._of_rule, verdicts, strict=True):
            found |= (verdict == FALSE) & single[:, positions].all(axis=1)
        return found & ~single[:, self.positions].all(axis=1)

    def _obey(self, values: Columns, rows: int) -> Mask:
        return self._evaluator.obey(values, rows)

    def _values(self, block: Block, rows: Places | slice) -> Columns:
        return {name: array for position in self.positions for name, array in block.take(position, rows).items()}

    def redraw(self, block: Block, broken: Places, rng: np.random.Generator) -> Places:
        """Draw values inside their bins again where rows are broken; return those that still are."""
        for turn in range(_REDRAWS if self._inside else 0):
            if not broken.size:
                break
            fresh = {position: decoder.arrays(block.codes(position)[broken], rng) for position, decoder in self._inside}
            values = self._values(block, broken)
            for arrays in fresh.values():
                values.update(arrays)
            good = self._obey(values, len(broken))
            rows = broken[good]
            for position, arrays in fresh.items():
                block.put(position, rows, block.codes(position)[rows], {name: array[good] for name, array in arrays.items()})
            broken = broken[~good]
            if turn + 1 >= _FEWEST_REDRAWS and good.mean() < _LEAST_SHARE:
                break
        return broken

    def exchange(
        self, block: Block, broken: Places, donors: Places, compared: Sequence[int], rng: np.random.Generator
    ) -> Places:
        """Exchange the values of one column with rows that obey; return the rows that are still broken."""
        for _ in range(_ROUNDS if donors.size else 0):
            if not broken.size:
                break
            chosen = _some(donors, len(broken), rng)
            keys, others = self._chosen(compared, rng)
            partners, columns = np.full(len(broken), -1), np.zeros(len(broken), np.int64)
            candidates = neighbours(block, broken, block, chosen, keys, _CANDIDATES, rng)
            step = max(1, _AT_ONCE // (_CANDIDATES * len(self.positions)))
            for start in range(0, len(broken), step):
                part = slice(start, start + step)
                partners[part], columns[part] = self._best(block, broken[part], candidates[part], others)
            once = np.zeros(len(broken), bool)  # a row is exchanged with one row at a time
            found = np.flatnonzero(partners >= 0)
            once[found[np.unique(partners[found], return_index=True)[1]]] = True
            for number, position in enumerate(self.positions):
                here = once & (columns == number)
                _swap(block, position, broken[here], partners[here])
            if not once.any():
                break
            broken = broken[~once]
        return broken

    def _chosen(self, compared: Sequence[int], rng: np.random.Generator) -> tuple[list[int], list[int]]:
        """Return columns to sort candidates by, and those to compare: of the rules, and some of all others."""
        own = set(self.positions)
        others = [position for position in compared if position not in own]
        some = [others[place] for place in rng.permutation(len(others))[:_COMPARED].tolist()]
        return some[:_KEYS], [*self.positions, *some]

    def _best(self, block: Block, broken: Places, candidates: Places, compared: Sequence[int]) -> tuple[Places, Places]:
        """Return for each row the candidate, and the column, whose exchange repairs it and changes least; -1 where none does."""
        shape = candidates.shape
        mine, theirs = np.repeat(broken, shape[1]), candidates.ravel()
        whole = agreement(block, broken, block, candidates, compared)
        best = np.full(len(broken), -1)
        column, score = np.zeros(len(broken), np.int64), np.full(len(broken), -1)
        for number, position in enumerate(self.positions):
            feasible = self._obey({**self._values(block, mine), **block.take(position, theirs)}, len(mine))
            rest = np.flatnonzero(feasible)
            if not rest.size:
                continue
            back = {**self._values(block, theirs[rest]), **block.take(position, mine[rest])}
            feasible[rest] = self._obey(back, len(rest))
            same = block.codes(position)[broken][:, None] == block.codes(position)[candidates]
            # In one bin nothing but values moves: no table changes at all.
            scores = np.where(same, len(compared), whole - same)
            scores = np.where(feasible.reshape(shape), scores, -1)
            place = scores.argmax(axis=1)
            found = scores[np.arange(len(broken)), place]
            better = found > score
            best[better] = candidates[np.arange(len(broken)), place][better]
            column[better], score[better] = number, found[better]
        return best, column

    def replace(
        self, block: Block, broken: Places, pool: Block, donors: Places, compared: Sequence[int], rng: np.random.Generator
    ) -> None:
        """Take the columns of the rules from rows that obey."""
        chosen = _some(donors, len(broken), rng)
        keys, others = self._chosen(compared, rng)
        candidates = neighbours(block, broken, pool, chosen, keys, _CANDIDATES, rng)
        place = agreement(block, broken, pool, candidates, others).argmax(axis=1)
        taken = candidates[np.arange(len(broken)), place]
        for position in self.positions:
            block.put(position, broken, pool.codes(position)[taken], pool.take(position, taken))


def _some(donors: Places, broken: int, rng: np.random.Generator) -> Places:
    """Return at most so many donors as are worth sorting for so many rows."""
    most = min(_MOST_DONORS, max(_FEWEST_DONORS, _CANDIDATES * broken))
    return donors if len(donors) <= most else rng.choice(donors, most, replace=False)


def _swap(block: Block, position: int, first: Places, second: Places) -> None:
    codes = block.codes(position)
    mine, theirs = (codes[first], block.take(position, first)), (codes[second], block.take(position, second))
    block.put(position, first, *theirs)
    block.put(position, second, *mine)
