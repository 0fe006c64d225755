"""Rules that share columns, and how rows that break them are repaired: inside their bins, by exchange, from other rows.

Privacy: post-processing of synthetic rows by public rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import duckdb
import numpy as np
import numpy.typing as npt

from dpsql.domains.attributes import Domain
from dpsql.domains.decoder import Columns, Decoder
from dpsql.rows.block import Block, Codes, Places, agreement, neighbours
from dpsql.rows.decoding import Histograms
from dpsql.rows.possible_codes import PossibleCodes
from dpsql.rules.effects import places
from dpsql.rules.evaluating import FALSE, Evaluator, evaluator
from dpsql.rules.grammar import Rule
from dpsql.rules.possible import Choices, possible
from dpsql.rules.reasoning import single_valued

Mask = npt.NDArray[np.bool_]
ROUNDS, _CANDIDATES = 6, 24
_EXCHANGES, _IDLE = 64, 10
"""Rounds of exchanges, where possible codes are known; after how many without one they are given up."""
_REDRAWS, _FEWEST_REDRAWS, _LEAST_SHARE = 24, 4, 0.02
"""Tries inside bins; after how many, and below which share that worked, they are given up."""
_REARRANGED = 40
_LEAST_REARRANGED = 0.005
"""Tries to exchange values of each column with rows of the same code; below which share that worked they are given up."""
_KEYS, _COMPARED = 5, 12
"""Columns that candidates are sorted by, and that alike rows agree on."""
_MOST_DONORS, _FEWEST_DONORS = 40_000, 4_000
AT_ONCE = 1 << 18
"""Rows that are evaluated together."""
_MOST_FITTED = 1 << 12


class Group:
    """Rules that share columns, and the attributes that they look at."""

    def __init__(
        self, cursor: duckdb.DuckDBPyConnection, domain: Domain, rules: Sequence[Rule], histograms: Histograms, free: int
    ) -> None:
        self.rules = rules
        self.positions = sorted({position for rule in rules for position in places(rule, domain)})
        self.free = [position for position in self.positions if position < free]
        self.fixed = [position for position in self.positions if position >= free]
        self._of_rule = [list(places(rule, domain)) for rule in rules]
        self._cursor, self._attributes = cursor, [domain.attributes[position] for position in self.positions]
        attributes = self._attributes
        names = [f"v{position}" for position in self.positions]
        self._evaluator: Evaluator = evaluator(cursor, attributes, rules, names)
        decoders = [Decoder(a, name, histograms.get(a.name)) for a, name in zip(attributes, names, strict=True)]
        self._inside = [
            (position, decoder)
            for position, decoder in zip(self.positions, decoders, strict=True)
            if position < free and not single_valued(decoder.attribute)
        ]

    @cached_property
    def codes(self) -> PossibleCodes | None:
        """In which combinations of codes a row may obey; None where that is not known."""
        cells = possible(self._cursor, self.rules, self._attributes)
        return None if cells is None else PossibleCodes(cells, self.positions, len(self.free))

    @cached_property
    def choices(self) -> Choices | None:
        """Codes of what may change, beside those of what may not; None where they are too many to look at."""
        return None if self.codes is None else Choices(self.codes.cells, range(len(self.free)))

    def hopeless(self, block: Block, rows: Places) -> Mask:
        """Return which rows no codes can repair, for what must stay as it is."""
        if not self.free:
            return np.ones(len(rows), bool)
        if self.choices is None:
            return np.zeros(len(rows), bool)
        return self.choices.none(self.beside(block, rows))

    def beside(self, block: Block, rows: Places) -> Places:
        """Return which combination of what must stay as it is rows have, by its number among those of `choices`."""
        assert self.choices is not None  # noqa: S101 -- for the type checker
        return self.choices.place([block.codes(position)[rows].astype(np.int64) for position in self.fixed], len(rows))

    def drawn(self, places: Places, rng: np.random.Generator) -> Codes:
        """Return codes, of all attributes up to the group's last, that may obey beside such combinations; each has some."""
        assert self.choices is not None  # noqa: S101 -- for the type checker
        codes = np.zeros((len(places), self.positions[-1] + 1), np.int32)
        for position, chosen in zip(self.free, self.choices.draw(places, rng), strict=True):
            codes[:, position] = chosen
        return codes

    def obey(self, block: Block) -> Mask:
        """Return which rows of a block obey."""
        return self._obey(self._values(block, slice(None)), len(block))

    def partly_broken(self, block: Block, single: Mask) -> Mask:
        """Return which rows without one value of every column break a rule all of whose columns have one."""
        broken = np.zeros(len(block), bool)
        verdicts = self._evaluator.verdicts(self._values(block, slice(None)), len(block))
        for positions, verdict in zip(self._of_rule, verdicts, strict=True):
            broken |= (verdict == FALSE) & single[:, positions].all(axis=1)
        return broken & ~single[:, self.positions].all(axis=1)

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
            # Hardly any hit: more redraws would not bring many.
            if turn + 1 >= _FEWEST_REDRAWS and good.mean() < _LEAST_SHARE:
                break
        return broken

    def rearrange(self, block: Block, broken: Places, donors: Places, rng: np.random.Generator) -> Places:
        """Exchange values with rows that have the same code, such that both obey; return the rows that are still broken.

        Which values a column has does not change at all, in any bin: what rows inside their bins are, and their means, stay. Values
        that are drawn again until a rule holds do not: of two columns in one bin the smaller one would get smaller.
        """
        columns = [position for position, _ in self._inside] if len(self.positions) > 1 else []
        for turn in range(_REARRANGED * len(columns)):
            if not broken.size or not donors.size:
                break
            position = columns[turn % len(columns)]
            codes = block.codes(position)
            partners = _same_code(codes, codes[broken], donors, rng)
            tried = np.flatnonzero(partners >= 0)
            tried = tried[np.unique(partners[tried], return_index=True)[1]]  # a row is exchanged with one row at a time
            mine, theirs = broken[tried], partners[tried]
            # A row that still breaks the rule gets another value if the other row obeys with its own: perhaps one easier to place.
            may = self._obey({**self._values(block, theirs), **block.take(position, mine)}, len(mine))
            good = self._obey({**self._values(block, mine), **block.take(position, theirs)}, len(mine)) & may
            _swap(block, position, mine[may], theirs[may])
            donors = np.concatenate([donors, mine[good]])
            share, broken = float(good.sum()) / len(broken), np.delete(broken, tried[good])
            if turn + 1 >= _FEWEST_REDRAWS * len(columns) and share < _LEAST_REARRANGED:
                break
        return broken

    def exchange(
        self, block: Block, broken: Places, donors: Places, compared: Sequence[int], rng: np.random.Generator
    ) -> Places:
        """Exchange the values of one column with rows that obey; return the rows that are still broken."""
        idle, codes = 0, self.codes
        for turn in range(_EXCHANGES if donors.size and len(self.positions) > 1 else 0):
            if not broken.size or idle == _IDLE or (turn >= ROUNDS and codes is None):
                break
            chosen = _some(donors, len(broken), rng)
            keys, others = self._chosen(compared, rng)
            partners, columns = np.full(len(broken), -1), np.zeros(len(broken), np.int64)
            candidates = neighbours(block, broken, block, chosen, keys, _CANDIDATES, rng)
            if codes is not None:  # behind the alike ones, and instead of them once these have been looked at
                first = _CANDIDATES // 2 if turn < ROUNDS else 0
                candidates[:, first:] = codes.fitting(block, broken, donors, rng, _CANDIDATES - first)
            step = max(1, AT_ONCE // (_CANDIDATES * len(self.positions)))
            for start in range(0, len(broken), step):
                part = slice(start, start + step)
                partners[part], columns[part] = self._best(block, broken[part], candidates[part], others)
            once = np.zeros(len(broken), bool)  # a row is exchanged with one row at a time
            matched = np.flatnonzero(partners >= 0)
            once[matched[np.unique(partners[matched], return_index=True)[1]]] = True
            for number, position in enumerate(self.free):
                here = once & (columns == number)
                _swap(block, position, broken[here], partners[here])
            if not once.any() and codes is None:
                break
            idle = 0 if once.any() else idle + 1
            donors, broken = np.concatenate([donors, broken[once]]), broken[~once]
            if turn >= ROUNDS and broken.size and codes is not None:
                self._move(codes, block, broken, donors, rng)
        return broken

    def _move(
        self, codes: PossibleCodes, block: Block, broken: Places, donors: Places, rng: np.random.Generator
    ) -> None:
        """Exchange a column of rows for which no exchange was found, such that the other row obeys still.

        So they may have a value with which an exchange is found the next time: of two columns of which one is the larger one, a row
        with too large a value gets one that another row could have beside a value larger still.
        """
        candidates = codes.fitting(block, broken, donors, rng, _CANDIDATES, both=False)
        mine = [block.codes(position)[broken][:, None].astype(np.int64) for position in self.positions]
        theirs = [block.codes(position)[candidates].astype(np.int64) for position in self.positions]
        near, best = codes.near(block), np.zeros(candidates.shape)
        column = np.zeros(candidates.shape, np.int64)
        # The row gets a code with which an exchange may be found; what it leaves must suit the other one.
        for axis in range(len(self.free)):
            after = tuple(there if a == axis else here for a, (here, there) in enumerate(zip(mine, theirs, strict=True)))
            behind = tuple(here if a == axis else there for a, (here, there) in enumerate(zip(mine, theirs, strict=True)))
            score = np.where(codes.cells[behind], near[after] + 1e-9, 0.0) * rng.uniform(0.5, 1.0, candidates.shape)
            column[score > best] = axis
            best = np.maximum(best, score)
        chosen = np.arange(len(broken)), best.argmax(axis=1)
        partners, columns = candidates[chosen], column[chosen]
        once = np.unique(partners, return_index=True)[1]
        once = once[best[chosen][once] > 0.0]
        for number, position in enumerate(self.free):
            here = once[columns[once] == number]
            good = here[self._obey({**self._values(block, partners[here]), **block.take(position, broken[here])}, len(here))]
            _swap(block, position, broken[good], partners[good])

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
        for number, position in enumerate(self.free):
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
            highest = scores[np.arange(len(broken)), place]
            better = highest > score
            best[better] = candidates[np.arange(len(broken)), place][better]
            column[better], score[better] = number, highest[better]
        return best, column

    def replace(
        self, block: Block, broken: Places, pool: Block, donors: Places, compared: Sequence[int], rng: np.random.Generator
    ) -> None:
        """Take the columns of the rules from rows that obey, of which one of these columns is alike already, if there are any.

        Which of them is left to chance, for otherwise one column would be pulled down, or the other up.
        """
        chosen = _some(donors, len(broken), rng)
        keys, others = self._chosen(compared, rng)
        candidates = neighbours(block, broken, pool, chosen, keys, _CANDIDATES, rng)
        for k in range(_CANDIDATES // 2):
            position = self.free[k % len(self.free)]
            alike = _same_code(pool.codes(position), block.codes(position)[broken], donors, rng)
            candidates[:, k] = np.where(alike >= 0, alike, candidates[:, k])
        # Agreement on the rules' own columns decides, that on the others breaks ties.
        own = agreement(block, broken, pool, candidates, self.free).astype(np.int64)
        others = [position for position in others if position not in set(self.free)]
        scores = own * (len(others) + 1) + agreement(block, broken, pool, candidates, others)
        place = (scores + rng.random(scores.shape)).argmax(axis=1)
        partners = candidates[np.arange(len(broken)), place]
        self._take(block, broken, pool, partners)

    def _take(self, block: Block, rows: Places, pool: Block, partners: Places) -> None:
        for position in self.free:
            block.put(position, rows, pool.codes(position)[partners], pool.take(position, partners))

    def fit(
        self, block: Block, broken: Places, pool: Block, compared: Sequence[int], rng: np.random.Generator
    ) -> Places:
        """Take what may change from the most alike of some rows with which rows obey; return the rows that are still broken."""
        chosen = _some(np.arange(len(pool)), len(broken), rng)
        keys, others = self._chosen(compared, rng)
        alike = [position for position in others if position in set(compared)]
        candidates = neighbours(block, broken, pool, chosen, keys, fitted(len(broken)), rng)
        step = max(1, AT_ONCE // (candidates.shape[1] * len(self.positions)))
        parts = (slice(start, start + step) for start in range(0, len(broken), step))
        return np.concatenate([self.fit_any(block, broken[part], pool, candidates[part], alike) for part in parts])

    def fit_any(self, block: Block, rows: Places, pool: Block, candidates: Places, alike: Sequence[int]) -> Places:
        """Take what may change from that candidate of each row with which it obeys and is most alike; return those without one."""
        theirs = candidates.ravel()
        values = {name: array for position in self.free for name, array in pool.take(position, theirs).items()}
        mine = np.repeat(rows, candidates.shape[1])
        values |= {name: array for position in self.fixed for name, array in block.take(position, mine).items()}
        feasible = self._obey(values, len(mine)).reshape(candidates.shape)
        place = np.where(feasible, agreement(block, rows, pool, candidates, alike), -1).argmax(axis=1)
        repaired = feasible[np.arange(len(rows)), place]
        self._take(block, rows[repaired], pool, candidates[np.arange(len(rows)), place][repaired])
        left: Places = rows[~repaired]
        return left


def fitted(broken: int) -> int:
    """Return how many candidates are looked at for each of so many rows."""
    return min(max(AT_ONCE // broken, _CANDIDATES), _MOST_FITTED)


def _same_code(codes: Codes, targets: Codes, donors: Places, rng: np.random.Generator) -> Places:
    """Return for each wanted code one of the donors that have it, at random; -1 where none has. ``codes``: of the donors' block."""
    shuffled = rng.permutation(donors)
    shuffled = shuffled[np.argsort(codes[shuffled], kind="stable")]
    sorted_codes = codes[shuffled]
    first, behind = np.searchsorted(sorted_codes, targets), np.searchsorted(sorted_codes, targets, side="right")
    place = first + (rng.random(len(targets)) * (behind - first)).astype(np.intp)
    return np.where(behind > first, shuffled[np.minimum(place, len(shuffled) - 1)], -1)


def _some(donors: Places, broken: int, rng: np.random.Generator) -> Places:
    """Return at most so many donors as are worth sorting for so many rows."""
    most = min(_MOST_DONORS, max(_FEWEST_DONORS, _CANDIDATES * broken))
    return donors if len(donors) <= most else rng.choice(donors, most, replace=False)


def _swap(block: Block, position: int, first: Places, second: Places) -> None:
    codes = block.codes(position)
    mine, theirs = (codes[first], block.take(position, first)), (codes[second], block.take(position, second))
    block.put(position, first, *theirs)
    block.put(position, second, *mine)
