"""Rows that obey every rule: those that break one are repaired, so that the tables of all rows stay as close as they were.

Rules that share columns are kept together. A row that breaks one of them is repaired in the first of these ways that works:

1. It exchanges the value of one column with another row that has one of the same bin, such that both obey: no table changes, and
   no bin's values.
2. Its values are drawn again inside their bins: no table changes.
3. It exchanges the values of one column with another row, such that both obey: no one-way table changes. Of some candidates the row
   is taken that agrees with it on most of the other columns, so that few other tables change, by little.
4. It takes the columns of the rules from a row that obeys, again the most alike of some; where the block has none, from other rows
   of the model, and at last from rows that are made up of codes with which a row may obey, at random.

The number of tries is bounded, everything follows from the seed, and no row that breaks a rule is ever written. Beside rows above
whose values leave no possible row there is none: such rows are given up, and only they (or where no try finds one). Rules that
hardly any row obeys are refused before anything is bought (`check_found`).

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

from dpsql.domains.attributes import Domain
from dpsql.domains.decoder import Columns, Decoder
from dpsql.errors import DomainError, ReleaseError
from dpsql.rows.block import Block, Codes, Places
from dpsql.rows.decoding import Histograms
from dpsql.rows.repairs import AT_ONCE, ROUNDS, Group, Mask, fitted
from dpsql.rules.effects import ALWAYS, concerning, effect, together
from dpsql.rules.evaluating import evaluator
from dpsql.rules.grammar import Rule, stored

_NONE: Histograms = {}
_MADE_UP, _MADE_UP_TIMES = 1 << 14, 256
_FOUND_TIMES, _FOUND_LEAST = 16, 4
"""Times that rows are made up before rules are bought, and how many of all of them have to obey: that later 16 times as many tries
find none happens to a few in a million, whatever the share that obeys."""
_FITTING_TIMES, _MOST_TRIED = 48, 1 << 21
"""Times that rows are made up for those beside which few values fit, and tries of which none fits, at most."""


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
    return mender_of(cursor, domain, concerning([stored(text) for text in rules], domain), spare, release, histograms)


def mender_of(
    cursor: duckdb.DuckDBPyConnection,
    domain: Domain,
    rules: Sequence[Rule],
    spare: Callable[[], Codes],
    release: str,
    histograms: Histograms = _NONE,
    fixed: int = 0,
) -> Mender | None:
    """Return what repairs rows by rules that were read, see `mender`.

    Parameters
    ----------
    rules : sequence of Rule
        Over columns of the domain.
    fixed : int
        How many of the domain's last attributes stay as they are: those of rows above. ``spare`` has none of them.
    """
    kept = [rule for rule in rules if effect(cursor, rule, domain).kind != ALWAYS]
    return Mender(cursor, domain, kept, spare, release, histograms, fixed) if kept else None


def check(cursor: duckdb.DuckDBPyConnection, domain: Domain, rules: Sequence[str]) -> None:
    """Refuse rules that came from elsewhere and are not boolean over the types of a domain.

    Raises
    ------
    duckdb.Error, ValueError
    """
    check_rules(cursor, domain, [stored(text) for text in rules])


def check_rules(cursor: duckdb.DuckDBPyConnection, domain: Domain, rules: Sequence[Rule]) -> None:
    """Refuse rules that are not boolean over the types of a domain, as `check` does."""
    for rule in rules:
        evaluator(cursor, domain.select(rule.columns).attributes, [rule]).check()


def check_found(cursor: duckdb.DuckDBPyConnection, domain: Domain, rules: Sequence[Rule], source: str) -> None:
    """Refuse rules that hardly any made-up row of a domain obeys: what is bought could not be written.

    Raises
    ------
    DomainError
    """
    kept = [rule for rule in rules if effect(cursor, rule, domain).kind != ALWAYS]
    mending = Mender(cursor, domain, kept, lambda: np.zeros((0, len(domain.attributes)), np.int32), source, _NONE)
    mending.check_found()


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
        fixed: int = 0,
    ) -> None:
        self._domain, self._spare_codes, self._release, self._histograms = domain, spare, release, histograms
        self._spare: Block | None = None
        self._free = len(domain.attributes) - fixed
        self._groups = [Group(cursor, domain, some, histograms, self._free) for some in together(rules)]
        self.positions = sorted({position for group in self._groups for position in group.positions})

    def mended(self, codes: Codes, arrays: Columns, rng: np.random.Generator) -> Columns:
        """Return the arrays of a block of decoded rows, repaired."""
        return self.mended_block(codes, arrays, rng).arrays()

    def mended_block(self, codes: Codes, arrays: Columns, rng: np.random.Generator) -> Block:
        """Return a block of decoded rows, repaired."""
        return self.mended_kept(codes, arrays, rng)[0]

    def mended_kept(self, codes: Codes, arrays: Columns, rng: np.random.Generator) -> tuple[Block, Mask]:
        """Return a block of decoded rows, repaired, and which rows there can be beside those above them."""
        block, kept = Block(codes, arrays), np.ones(len(codes), bool)
        kept[self.mend(block, rng, range(len(self._domain.attributes)))] = False
        return block, kept

    def mend(self, block: Block, rng: np.random.Generator, compared: Sequence[int], single: Mask | None = None) -> Places:
        """Repair a block in place; return the rows that break a rule still: those above them leave no possible row.

        Parameters
        ----------
        compared : sequence of int
            Attributes on which alike rows may agree.
        single : bool array, shape (rows, m), optional
            Which rows have one value of each attribute; all of them if left out. Of others a rule says nothing.
        """
        lost = np.zeros(0, np.intp)
        for group in self._groups:
            obeys, beside = group.obey(block), np.zeros(0, np.intp)
            # One-hot rows may hold no value or several of a column: rules speak of those with one value of each.
            if single is not None:
                beside = np.flatnonzero(group.partly_broken(block, single))
                obeys |= ~single[:, group.positions].all(axis=1)
            broken = np.flatnonzero(~obeys)
            if not broken.size and not beside.size:
                continue
            donors = np.flatnonzero(obeys if single is None else obeys & single[:, group.positions].all(axis=1))
            # Where what stays as it is leaves no possible row, nothing can be repaired.
            if group.fixed:
                hopeless = group.hopeless(block, broken)
                lost, broken = np.concatenate([lost, broken[hopeless]]), broken[~hopeless]
            # From the mildest change of rows to the strongest.
            broken = group.redraw(block, group.rearrange(block, broken, donors, rng), rng)
            broken = np.concatenate([group.exchange(block, broken, donors, compared, rng), beside])
            if broken.size and group.fixed:
                lost = np.concatenate([lost, self._fitting(group, block, broken, compared, rng)])
            elif broken.size:
                pool, donors = (block, donors) if donors.size else self._pool(group, rng)
                group.replace(block, broken, pool, donors, compared, rng)
        return np.unique(lost)

    def check_found(self) -> None:
        """Refuse rules that hardly any made-up row obeys; nothing is fixed."""
        for group in self._groups:
            rng, obeying = np.random.default_rng(0), 0
            for _ in range(_FOUND_TIMES):
                pool = self._made_up(group, rng)
                obeying += int(group.obey(pool).sum()) if len(pool) else 0
                if obeying >= _FOUND_LEAST:
                    break
            else:
                raise DomainError(
                    f"{self._release}: of {_FOUND_TIMES * _MADE_UP:,} made-up rows hardly any obeys {_listed(group)}, so synthetic "
                    "rows could not be written. Take a rule back (dp_rule with remove := true), or declare narrower bounds or "
                    "categories, so that more rows obey. Nothing was charged"
                )

    def _pool(self, group: Group, rng: np.random.Generator) -> tuple[Block, Places]:
        """Return rows that obey the rules of a group: of the model, or else made up."""
        spare = self._spare_rows(rng)
        good = np.flatnonzero(group.obey(spare)) if len(spare) else np.zeros(0, np.intp)
        if good.size:
            return spare, good
        # Codes alone show that no row can obey.
        never = group.choices is not None and group.choices.barren.all()
        for _ in range(0 if never else _MADE_UP_TIMES):
            pool = self._made_up(group, rng)
            good = np.flatnonzero(group.obey(pool))
            if good.size:
                return pool, good
        raise self._none(group)

    def _spare_rows(self, rng: np.random.Generator) -> Block:
        """Return other rows of the model."""
        if self._spare is None:
            self._spare = _decoded(self._spare_codes(), self._domain, range(self._free), rng, self._histograms)
        return self._spare

    def _made_up(self, group: Group, rng: np.random.Generator) -> Block:
        """Return rows of the attributes of a group that may change, whose codes are drawn at random: of those that may obey."""
        sizes = self._domain.sizes
        codes = np.zeros((_MADE_UP, len(sizes)), np.int32)
        anywhere = np.zeros(_MADE_UP, np.intp)  # beside nothing that stays as it is
        if not group.fixed and group.choices is not None and not group.choices.none(anywhere[:1]).any():
            drawn = group.drawn(anywhere, rng)
            codes[:, : drawn.shape[1]] = drawn
        else:
            for position in group.free:
                codes[:, position] = rng.integers(0, sizes[position], _MADE_UP)
        return _decoded(codes, self._domain, group.free, rng, self._histograms)

    def _fitting(
        self, group: Group, block: Block, broken: Places, compared: Sequence[int], rng: np.random.Generator
    ) -> Places:
        """Take columns from rows with which rows obey beside what stays as it is: of the block, of the model, made up.

        Returns the rows for which none was found.
        """
        spare = self._spare_rows(rng)
        alike = [position for position in compared if position < self._free]
        for pool in [*[block] * ROUNDS, *[spare] * (ROUNDS if len(spare) else 0)]:
            broken = group.fit(block, broken, pool, alike, rng) if broken.size else broken
        tried = 0
        for _ in range(_FITTING_TIMES):
            if not broken.size or tried > _MOST_TRIED:
                break
            if group.choices is None:
                left = group.fit(block, broken, self._made_up(group, rng), group.free, rng)
            else:
                left = self._chosen(group, block, broken, rng)
            # Only draws that mend nothing count: a single row that fits is reason to go on.
            tried = tried + len(broken) * fitted(len(broken)) if len(left) == len(broken) else 0
            broken = left
        return broken

    def _chosen(self, group: Group, block: Block, broken: Places, rng: np.random.Generator) -> Places:
        """Take codes that may obey beside what stays as it is, at random; return the rows that are still broken."""
        count, left = fitted(len(broken)), []
        step = max(1, AT_ONCE // count)
        for start in range(0, len(broken), step):
            rows = broken[start : start + step]
            drawn = group.drawn(np.repeat(group.beside(block, rows), count), rng)
            codes = np.zeros((len(drawn), len(self._domain.sizes)), np.int32)
            codes[:, : drawn.shape[1]] = drawn
            pool = _decoded(codes, self._domain, group.free, rng, self._histograms)
            left.append(group.fit_any(block, rows, pool, np.arange(len(codes)).reshape(len(rows), count), ()))
        return np.concatenate(left)

    def _none(self, group: Group) -> ReleaseError:
        return ReleaseError(
            f"release {self._release!r}: no row was found that obeys {_listed(group)}. The release stays as it is; take a rule "
            "back (dp_rule with remove := true), or declare wider domains, and buy one under another name"
        )


def _listed(group: Group) -> str:
    listed = " and ".join(rule.text for rule in group.rules)
    return f"the rules {listed[:400]}"


def _decoded(
    codes: Codes, domain: Domain, positions: Sequence[int], rng: np.random.Generator, histograms: Histograms
) -> Block:
    arrays: Columns = {}
    for position in positions:
        attribute = domain.attributes[position]
        arrays.update(Decoder(attribute, f"v{position}", histograms.get(attribute.name)).arrays(codes[:, position], rng))
    return Block(codes, arrays)
