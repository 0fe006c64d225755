"""Families of synthetic rows of which exactly one, or at most one, fulfils a condition (`dpsql.rules.counted`), as codes.

Before rows have values, rule after rule, in each part of the units:

1. *Exchange.* A row too many of one parent is exchanged, with all that is below it, with a row of a parent that has no counted one:
   which ones agree best in their columns and in those of their parents is an assignment problem, first among parents with as many
   rows, then among all. No table of columns of one row, or of a row and rows below it, changes, and no number of rows does; parent
   and child, and siblings, change as little as the assignment can.
2. *Copies.* Where too many or too few rows are counted in all, rows take the columns of a row that is as is needed: the most alike
   of some in their other columns, their number of brothers and sisters and their parents' columns; of the part, else of other rows
   of the model; at last the condition's columns alone from codes that fulfil it, or do not, at random.
3. What no row was found for is given up: a row too many alone, a parent's rows all together where none of them can be counted. That
   happens only where other rules of this kind contradict it for families of such a size.

A later rule moves no row, and copies none, in a way that changes what an earlier one counts. The repair of other rules
(`dpsql.rows.obeying`) sees one more attribute for each rule, which it may not change, and a rule that it says whether the condition
holds. Where it gives a counted row up, its family goes too (`whole`).

Everything follows from the seed. Memory is that of a part: `dpsql.methods.nested_classes.draw_parts` bounds it.

Privacy: post-processing of synthetic rows by public rules.

References
----------
Kuhn (1955), *The Hungarian method for the assignment problem*, Naval Research Logistics Quarterly 2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import duckdb
import numpy as np
import numpy.typing as npt

from dpsql.domains.attributes import Domain
from dpsql.errors import ReleaseError
from dpsql.methods.nested_classes import Drawn
from dpsql.numerics.arrays import IntArray
from dpsql.release.linked import LinkedPlan
from dpsql.rows.block import Block, Codes, Places, agreement, neighbours
from dpsql.rules.counted import Counted, Decided, decided, marked
from dpsql.rules.effects import together
from dpsql.rules.grammar import Rule

Mask = npt.NDArray[np.bool_]
_AT_ONCE = 256
"""Rows, and parents, between which an assignment is looked for."""
_LOOKED_AT = 8
"""Rows of one parent, of which one is exchanged or changed."""
_ROUNDS, _CANDIDATES, _MOST_DONORS, _KEYS = 4, 24, 40_000, 4
_TRIES = 64
_NEVER = -(1 << 14)


def keep(linked: LinkedPlan, drawn: list[Drawn], place: int, kept: Mask) -> None:
    """Take rows out of a part, and with them those below; numbers of rows in the codes of those above stay as they were."""
    left = {place: kept}
    for table in [place, *linked.below(place)]:
        rows = drawn[table]
        whose = rows.parent
        if table != place:
            above = left[linked.shape.parent(table)]
            left[table] = above[whose]
            whose = (np.cumsum(above) - 1)[whose]
        mine = left[table]
        drawn[table] = Drawn(rows.codes[mine], whose[mine], None if rows.order is None else rows.order[mine])


def move(linked: LinkedPlan, drawn: list[Drawn], place: int, order: Places) -> None:
    """Put rows of a part into another order, each with those below; the parents of places stay as they are."""
    rows = drawn[place]
    drawn[place] = Drawn(rows.codes[order], rows.parent, None if rows.order is None else rows.order[order])
    orders = {place: order}
    for table in linked.below(place):
        above = orders[linked.shape.parent(table)]
        # Where each row of the table above stands now.
        now = np.empty(len(above), np.int64)
        now[above] = np.arange(len(above))
        parents = now[drawn[table].parent]
        orders[table] = np.argsort(parents, kind="stable")
        rows = drawn[table]
        mine = orders[table]
        drawn[table] = Drawn(rows.codes[mine], parents[mine], None if rows.order is None else rows.order[mine])


class Counting:
    """The rules of one table that count rows.

    Parameters
    ----------
    cursor : DuckDB cursor
        No table is read on it.
    linked : LinkedPlan
        With its bins.
    place : int
        Of the table.
    spare : function
        Returns other units of the model; called at most once, where a part has no row that is needed.
    release : str
        For messages.

    Raises
    ------
    ReleaseError
        A condition is not decided by the codes of the release: it was edited.
    """

    def __init__(
        self, cursor: duckdb.DuckDBPyConnection, linked: LinkedPlan, place: int, spare: Callable[[], list[Drawn]], release: str
    ) -> None:
        self._linked, self._place, self._draw_spare = linked, place, spare
        self._rules = linked.counted(place)
        self._domain = linked.tables[place].domain
        self._decided = [_sure(decided(cursor, rule, self._domain), rule, release) for rule in self._rules]
        self._spare: _Family | None = None
        self.marks: Sequence[Counted] = ()
        """Rules of which the repair of other rules has to know."""

    def marked(self, domain: Domain, rules: Sequence[Rule]) -> tuple[Domain, list[Rule]]:
        """Return a domain of rows, and rules that they obey, with marks that keep counts where those rules could change them."""
        self.marks = self._touched(domain, rules)
        wider, added = marked(self.marks, domain)
        return wider, [*rules, *added]

    def _touched(self, domain: Domain, rules: Sequence[Rule]) -> list[Counted]:
        """Return the rules over whose columns, directly or not, there are other rules."""
        _, added = marked(self._rules, domain)
        places = {id(rule): number for number, rule in enumerate(added)}
        groups = [[places.get(id(rule)) for rule in some] for some in together([*rules, *added])]
        numbers = sorted({number for some in groups if None in some for number in some if number is not None})
        return [self._rules[number] for number in numbers]

    def mark_codes(self, codes: Codes) -> Codes:
        """Return the codes of the marks of rows, an attribute for each of `marks`."""
        known = [self._decided[self._rules.index(rule)].of(codes) for rule in self.marks]
        return np.stack(known, axis=1).astype(codes.dtype) if known else np.zeros((len(codes), 0), codes.dtype)

    def whole(self, codes: Codes, parent: IntArray, kept: Mask) -> Mask:
        """Return which rows are left where those that are not kept are taken out: without its counted row, no family is."""
        for rule, cells in zip(self._rules, self._decided, strict=True):
            if rule.exactly:
                kept = kept & ~np.isin(parent, parent[~kept & cells.of(codes)])
        return kept

    def settle(self, drawn: list[Drawn], rng: np.random.Generator) -> None:
        """Let the rows of a part obey, in place."""
        family = _Family(self._linked, self._place, drawn)
        if not len(family):
            return
        for number, rule in enumerate(self._rules):
            _Settling(self, family, number, rule.exactly, rng).run()
        # Families have taken their rows in any order: rows of one parent stand together again.
        order, kept = family.order()
        rows = drawn[self._place]
        codes = rows.codes.copy()
        codes[:, : family.codes.shape[1]] = family.codes
        drawn[self._place] = Drawn(codes, rows.parent, family.values)
        if not np.array_equal(order, np.arange(len(order))):
            move(self._linked, drawn, self._place, order)
        if not kept.all():
            keep(self._linked, drawn, self._place, kept[order])

    def flags(self, codes: Codes, number: int) -> Mask:
        """Return which rows a rule counts."""
        return self._decided[number].of(codes)

    def cells(self, number: int) -> Decided:
        """Return which codes a rule counts."""
        return self._decided[number]

    def keys(self, codes: Codes, number: int) -> IntArray:
        """Return what the rules before one count, a number for each set of them."""
        keys = np.zeros(len(codes), np.int64)
        for earlier in range(number):
            keys = 2 * keys + self.flags(codes, earlier)
        return keys

    def spare(self) -> _Family:
        """Return other rows of the model."""
        if self._spare is None:
            self._spare = _Family(self._linked, self._place, self._draw_spare())
        return self._spare


def _sure(decision: Decided | None, rule: Counted, release: str) -> Decided:
    if decision is None:
        raise ReleaseError(f"release {release!r}: its codes do not decide the rule {rule.text[:400]}; restore it from a backup")
    return decision


class _Family:
    """Rows of a table of a part, each with its parent: their codes change, and rows exchange their places.

    Attributes
    ----------
    codes : ndarray, shape (rows, declared columns)
    values : ndarray or None
        Of the column that rows are ordered by.
    spot : ndarray, shape (rows,)
        In the place of which row each one stands.
    kept : bool array, shape (rows,)
    """

    def __init__(self, linked: LinkedPlan, place: int, drawn: Sequence[Drawn]) -> None:
        rows, parent = drawn[place], linked.shape.parent(place)
        self.codes = np.array(rows.codes[:, : len(linked.tables[place].domain.attributes)])
        self.values = None if rows.order is None else rows.order.copy()
        self.ordered = linked.tables[place].order_place
        self.spot = np.arange(len(rows.codes))
        self.kept = np.ones(len(rows.codes), np.bool_)
        self._parent = rows.parent
        self._above = drawn[parent].codes[:, : len(linked.tables[parent].domain.attributes)]
        self.sizes = np.bincount(rows.parent, minlength=len(self._above))

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.codes)

    @property
    def owner(self) -> IntArray:
        """The position of each row's parent."""
        owner: IntArray = self._parent[self.spot]
        return owner

    def exchange(self, mine: Places, theirs: Places) -> None:
        """Let rows, each of them once, change places."""
        self.spot[mine], self.spot[theirs] = self.spot[theirs], self.spot[mine]

    def order(self) -> tuple[Places, Mask]:
        """Return which row stands in each place, and which rows are kept."""
        if self.values is None:
            return np.argsort(self.spot), self.kept
        return np.lexsort((self.spot, self.values, self.owner)), self.kept

    def features(self, without: Sequence[int]) -> Block:
        """Return what alike rows agree on: the number of rows of the parent, its columns, the own columns but some."""
        owner = self.owner
        own = [column for column in range(self.codes.shape[1]) if column not in set(without)]
        return Block(np.column_stack([self.sizes[owner], self._above[owner], self.codes[:, own]]).astype(np.int32), {})

    def above(self, parents: Places) -> Codes:
        """Return the codes of parents."""
        return self._above[parents]


class _Settling:
    """One rule and the rows of one part."""

    def __init__(self, counting: Counting, family: _Family, number: int, exactly: bool, rng: np.random.Generator) -> None:
        self._counting, self._family, self._number, self._exactly, self._rng = counting, family, number, exactly, rng
        self._positions = counting.cells(number).positions
        self._others = [i for i in range(family.codes.shape[1]) if i not in set(self._positions)]
        self._flags = counting.flags(family.codes, number)
        self._keys = counting.keys(family.codes, number)

    def run(self) -> None:
        """Let every family obey, or give rows up."""
        for alike in (True, False):
            self._exchange(alike)
        surplus = self._surplus()
        left = self._copied(surplus, np.arange(len(surplus)), counted=False)
        self._family.kept[surplus[left]] = False
        # At most one: what is surplus has been mended or given up, and nothing can be lacking.
        if not self._exactly:
            return
        lacking = self._lacking()
        which, rows = self._candidates(lacking)
        left = self._copied(rows, which, counted=True)
        self._family.kept[np.isin(self._family.owner, lacking[left])] = False

    def _counts(self) -> IntArray:
        counted = self._flags & self._family.kept
        return np.bincount(self._family.owner[counted], minlength=len(self._family.sizes))

    def _surplus(self) -> Places:
        """Return rows too many: of the counted ones of a parent all but one, at random."""
        counted = np.flatnonzero(self._flags & self._family.kept)
        owner = self._family.owner[counted]
        order = np.lexsort((self._rng.random(len(counted)), owner))
        surplus = counted[order][1:][owner[order][1:] == owner[order][:-1]]
        return np.sort(surplus)

    def _lacking(self) -> Places:
        """Return the parents whose rows none is counted of."""
        rows = np.bincount(self._family.owner[self._family.kept], minlength=len(self._family.sizes))
        return np.flatnonzero((rows > 0) & (self._counts() == 0))

    def _candidates(self, parents: Places) -> tuple[Places, Places]:
        """Return rows of some parents, a few of each at random, sorted by them: which of the parents it is, and the row."""
        family = self._family
        place = np.full(len(family.sizes), -1)
        place[parents] = np.arange(len(parents))
        rows = np.flatnonzero(family.kept & (place[family.owner] >= 0))
        whose = place[family.owner[rows]]
        order = np.lexsort((self._rng.random(len(rows)), whose))
        rows, whose = rows[order], whose[order]
        first = np.searchsorted(whose, whose)
        few = np.arange(len(rows)) - first < _LOOKED_AT
        return whose[few], rows[few]

    # -- exchange

    def _exchange(self, alike: bool) -> None:
        """Exchange rows too many with rows of parents without a counted one: with as many rows each, or any."""
        for _ in range(_ROUNDS):
            surplus, parents = self._surplus(), self._lacking()
            if not surplus.size or not parents.size:
                return
            owner = self._family.owner[surplus]
            whose, rows = self._candidates(parents)
            ends = np.searchsorted(whose, np.arange(len(parents)), side="right")
            sizes = [self._family.sizes[owner], self._family.sizes[parents]]
            done = False
            for size in np.intersect1d(sizes[0], sizes[1]).tolist() if alike else [None]:
                mine, theirs = (np.flatnonzero(families == size) if size else np.arange(len(families)) for families in sizes)
                for some, takers in self._chunks(owner, parents, mine, theirs):
                    lists = [rows[0 if taker == 0 else ends[taker - 1] : ends[taker]] for taker in takers.tolist()]
                    chosen, partners = self._assigned(surplus[some], owner[some], parents[takers], lists)
                    self._family.exchange(chosen, partners)
                    done |= chosen.size > 0
            # Nothing was exchanged, so another round would exchange nothing either.
            if not done:
                return

    def _chunks(self, owner: Places, parents: Places, mine: Places, theirs: Places) -> Iterator[tuple[Places, Places]]:
        """Yield some of rows too many, and of parents, a few at a time, such that those that are alike come together."""
        count = -(-max(len(mine), len(theirs)) // _AT_ONCE)
        columns = self._rng.permutation(self._family.above(parents[:1]).shape[1])
        mine, theirs = mine[self._sorted(owner[mine], columns)], theirs[self._sorted(parents[theirs], columns)]
        for some, takers in zip(np.array_split(mine, count), np.array_split(theirs, count), strict=True):
            if some.size and takers.size:
                yield some, takers

    def _sorted(self, parents: Places, columns: IntArray) -> Places:
        codes = self._family.above(parents)
        return np.lexsort((self._rng.random(len(parents)), *codes[:, columns].T, self._family.sizes[parents]))

    def _assigned(self, surplus: Places, owner: Places, parents: Places, lists: Sequence[Places]) -> tuple[Places, Places]:
        """Return rows too many, and those that they are best exchanged with, of the rows of each parent one at most."""
        from scipy.optimize import linear_sum_assignment  # loaded when needed

        family, rows = self._family, np.concatenate(lists)
        scores = np.zeros((len(surplus), len(rows)), np.int32)
        for column in self._others:
            scores += family.codes[surplus, column][:, None] == family.codes[rows, column]
        scores[self._keys[surplus][:, None] != self._keys[rows]] = _NEVER
        ends = np.cumsum([len(some) for some in lists])
        # The most alike row of each parent stands for it; what is above both counts as well.
        best = np.maximum.reduceat(scores, ends - [len(some) for some in lists], axis=1)
        mine, theirs = family.above(owner), family.above(parents)
        for column in range(mine.shape[1]):
            best += mine[:, column][:, None] == theirs[:, column]
        best += family.sizes[owner][:, None] == family.sizes[parents]
        giving, taking = linear_sum_assignment(best, maximize=True)
        good = best[giving, taking] >= 0
        giving, taking = giving[good], taking[good]
        partners = [
            lists[taker][scores[row, ends[taker] - len(lists[taker]) : ends[taker]].argmax()]
            for row, taker in zip(giving.tolist(), taking.tolist(), strict=True)
        ]
        return surplus[giving], np.asarray(partners, np.intp)

    # -- copies

    def _copied(self, rows: Places, which: Places, counted: bool) -> Places:
        """Let one row of each number of ``which``, sorted, become counted, or not; return the numbers for which there is no way."""
        # From rows of these families first; other rows of the model are for what is left.
        for own in (True, False):
            if not rows.size:
                break
            pool = self._family if own else self._counting.spare()
            flags = self._flags if own else self._counting.flags(pool.codes, self._number)
            keys = self._keys if own else self._counting.keys(pool.codes, self._number)
            donors, score = self._alike(rows, pool, np.flatnonzero((flags == counted) & pool.kept), keys)
            chosen = _best(which, score)
            self._take(rows[chosen], pool, donors[chosen], counted)
            rest = ~np.isin(which, which[chosen])
            rows, which = rows[rest], which[rest]
        return self._made_up(rows, which, counted)

    def _alike(self, rows: Places, pool: _Family, donors: Places, keys: IntArray) -> tuple[Places, IntArray]:
        """Return for each row the most alike of some donors that earlier rules count as it, and how alike; -1 for none."""
        chosen, score = np.full(len(rows), -1), np.full(len(rows), -1)
        mine = self._family.features(self._positions)
        theirs = mine if pool is self._family else pool.features(self._positions)
        width = 1 + self._family.above(np.zeros(0, np.intp)).shape[1] + len(self._others)
        for key in np.unique(self._keys[rows]).tolist():
            some, known = np.flatnonzero(self._keys[rows] == key), donors[keys[donors] == key]
            if not known.size:
                continue
            # Enough to find an alike one; all of them would take long.
            if len(known) > _MOST_DONORS:
                known = self._rng.choice(known, _MOST_DONORS, replace=False)
            columns = [0, *(1 + self._rng.permutation(width - 1)[:_KEYS])]
            candidates = neighbours(mine, rows[some], theirs, known, columns, _CANDIDATES, self._rng)
            scores = agreement(mine, rows[some], theirs, candidates, range(width))
            best = scores.argmax(axis=1)
            at = np.arange(len(some))
            chosen[some], score[some] = candidates[at, best], scores[at, best]
        return chosen, score

    def _take(self, rows: Places, pool: _Family, donors: Places, counted: bool) -> None:
        self._family.codes[rows] = pool.codes[donors]
        if self._family.values is not None and pool.values is not None:
            self._family.values[rows] = pool.values[donors]
        self._flags[rows] = counted

    def _made_up(self, rows: Places, which: Places, counted: bool) -> Places:
        """Let rows take codes of the condition's columns at random; see `_copied`."""
        family, cells = self._family, self._counting.cells(self._number).cells
        ways = np.stack(np.nonzero(cells == counted), axis=1)
        if not len(ways) or family.ordered in self._positions:  # a place in the order is more than a code
            return np.unique(which)
        for _ in range(_TRIES):
            if not rows.size:
                break
            codes = family.codes[rows]
            codes[:, list(self._positions)] = ways[self._rng.integers(0, len(ways), len(rows))]
            good = self._counting.keys(codes, self._number) == self._keys[rows]
            chosen = _best(which, np.where(good, 0, -1))
            family.codes[rows[chosen]] = codes[chosen]
            self._flags[rows[chosen]] = counted
            rest = ~np.isin(which, which[chosen])
            rows, which = rows[rest], which[rest]
        return np.unique(which)


def _best(which: Places, score: IntArray) -> Places:
    """Return the place of the best score of each number of a sorted list, where it is not negative.

    Examples
    --------
    >>> _best(np.array([0, 0, 1, 2]), np.array([3, 5, -1, 0])).tolist()
    [1, 3]
    """
    order = np.lexsort((-score, which))
    first = np.ones(len(which), bool)
    first[1:] = which[order][1:] != which[order][:-1]
    best = order[first]
    return best[score[best] >= 0]
