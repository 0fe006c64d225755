"""What analysts of a served database may spend of one table, and what they have: entries of its ledger, and the limits they set.

A grant is an entry 'grant' of the table's ledger, taken back by an entry 'revoke'. What an analyst spends are *uses*: a 'charge'
whose ``who`` is 'analyst <name>', and, where the release was there already, an entry 'use' with the same loss. So everything is in
the one chain of hashes, and a limit is checked in the transaction that writes the entry: nobody passes it by asking twice at once.

The price of a release does not depend on who else has bought it: she pays her grant the same, and the table is charged once. A
release that she has a use of is free for her for ever. Uses of refunded releases do not count, as nothing was read for them.

An analyst of whom the book says nothing has no limit of her own; once it has said something of her, no grant means no purchase.

Privacy: the guarantee is the table's own budget, since analysts may tell one another. Grants only divide it.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from dpsql.accounting import Budget, Charge, Remaining, fits, remaining, total_guarantee
from dpsql.books.chain import Chain
from dpsql.books.entries import READS, Protection, canonical_json, charge_from_row, reading
from dpsql.calls.granting import RENEWALS
from dpsql.errors import ArgumentError, BudgetExhausted, GrantExceeded, NotGranted
from dpsql.session.instance import ANALYST
from dpsql.text.bounded_json import load
from dpsql.text.names import fold

USE = "use"
ABOUT_GRANTS = ("grant", "revoke", "linked")
"""Actions that decide who has grants: a table that is linked to another one has none of its own any more."""
_PART = 10
"""A question costs a tenth of the grant where neither it nor the grant says what it may cost."""


@dataclass(frozen=True)
class Grant:
    """What an analyst may spend of a protected table.

    Parameters
    ----------
    analyst : str
    source : str
        The protected table, as the books call it: 'main.adult'.
    epsilon : float
        Limit of all that she uses within a window; composed by the table's own accountant at the table's delta.
    per_query : float, optional
        Limit of one call.
    renew : {'month', 'week'}, optional
        The window: a calendar month or ISO week, in UTC. None: for ever.
    methods : tuple of str, optional
        Calls ('query') and synthesizers ('latent_class') that she may buy with; None: all.
    columns : tuple of str, optional
        Columns that she may read; None: all.

    Raises
    ------
    ArgumentError
        A value is out of range.
    """

    analyst: str
    source: str
    epsilon: float
    per_query: float | None = None
    renew: str | None = None
    methods: tuple[str, ...] | None = None
    columns: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        for name in ("epsilon", "per_query"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int | float) and math.isfinite(value) and 0 < value <= 1000):
                raise ArgumentError(name, value, "a number above 0 (and at most 1000) is required")
        if self.per_query is not None and self.per_query > self.epsilon:
            raise ArgumentError("per_query", self.per_query, f"is above the whole grant, epsilon = {self.epsilon:g}")
        if self.renew is not None and self.renew not in RENEWALS:
            raise ArgumentError("renew", self.renew, "must be 'month' or 'week', or left out: then the grant does not renew")

    @property
    def default_epsilon(self) -> float:
        """What a question costs that does not say: the limit of one call, else a tenth of the grant."""
        return self.epsilon / _PART if self.per_query is None else self.per_query

    def begin(self, now: dt.datetime) -> dt.datetime | None:
        """Return when the window of a moment began (UTC, without zone); None where the grant does not renew.

        Examples
        --------
        >>> weekly = Grant("alice", "main.t", 1.0, renew="week")
        >>> weekly.begin(dt.datetime(2026, 11, 25, 13)), weekly.end(dt.datetime(2026, 11, 25, 13))
        (datetime.datetime(2026, 11, 23, 0, 0), datetime.datetime(2026, 11, 30, 0, 0))
        """
        day = now.replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
        if self.renew == "month":
            return day.replace(day=1)
        return day - dt.timedelta(days=day.weekday()) if self.renew == "week" else None

    def end(self, now: dt.datetime) -> dt.datetime | None:
        """Return when the window of a moment ends and the next one begins; None where the grant does not renew."""
        first = self.begin(now)
        if first is None:
            return None
        return first + dt.timedelta(days=7) if self.renew == "week" else (first + dt.timedelta(days=32)).replace(day=1)

    def allows(self, names: Sequence[str | None]) -> bool:
        """Return whether a call may be bought with, by the names that it goes by: its own, or its synthesizer's."""
        return self.methods is None or bool({fold(name) for name in names if name} & {fold(name) for name in self.methods})

    def reads(self, column: str) -> bool:
        """Return whether a column of the table may be read."""
        return self.columns is None or fold(column) in {fold(name) for name in self.columns}

    def budget(self, protection: Protection) -> Budget:
        """Return the grant as a budget of the table's own kind."""
        return Budget(self.epsilon, protection.budget.delta, protection.budget.accountant)  # type: ignore[arg-type]

    def check_one(self, protection: Protection, charge: Charge) -> None:
        """Refuse a loss that is above the limit of one call, at the table's delta and by its accountant.

        Raises
        ------
        GrantExceeded
        """
        if self.per_query is None:
            return
        delta = protection.budget.delta
        budget = Budget(self.per_query, delta, protection.budget.accountant)  # type: ignore[arg-type]
        if not fits(budget, [], charge):
            limit = "is the most of one call"
            if charge.delta > delta:
                limit += f", at the table's delta = {float(delta):.3g}; the call's delta = {float(charge.delta):.3g} is above that"
            raise GrantExceeded(self.source, float(charge.epsilon), self.per_query, None, limit)

    def to_json(self) -> dict[str, Any]:
        """Return what an entry says of the grant."""
        return {
            "analyst": self.analyst, "epsilon": self.epsilon, "per_query": self.per_query, "renew": self.renew,
            "methods": None if self.methods is None else list(self.methods),
            "columns": None if self.columns is None else list(self.columns),
        }

    @classmethod
    def from_json(cls, source: str, said: Mapping[str, Any]) -> Grant:
        """Return the grant that an entry says; the errors are those of an edited book."""
        lists = {name: None if said[name] is None else tuple(str(item) for item in said[name]) for name in ("methods", "columns")}
        first = (str(said["analyst"]), source, said["epsilon"], said["per_query"], said["renew"])
        return cls(*first, lists["methods"], lists["columns"])


@dataclass(frozen=True)
class Use:
    """A release that an analyst has paid her grant for."""

    analyst: str
    source: str
    release: str
    charge: Charge
    at: dt.datetime


def now() -> dt.datetime:
    """Return the time that decides which window it is: UTC, without zone."""
    return dt.datetime.now(dt.UTC).replace(tzinfo=None)


class Granted(Chain):
    """Grants and uses of one source, in the books of one database."""

    @property
    def analyst(self) -> str | None:
        """Name of the analyst who asks; None: the custodian, whatever that user is called."""
        return self.owner.removeprefix(ANALYST) if self.owner else None

    def grants(self) -> dict[str, Grant]:
        """Return the grants in force, by analyst.

        Raises
        ------
        LedgerError
            An entry holds what dpsql never wrote.
        """
        return {analyst: grant for analyst, grant in self._granted().items() if grant is not None}

    def limit(self) -> Grant | None:
        """Return the grant of whoever asks; None: she has no limit but the table's, as the custodian has.

        Raises
        ------
        NotGranted
            Her grant was taken back.
        """
        said = {} if self.analyst is None else self._granted()
        if self.analyst in said and said[self.analyst] is None:
            raise NotGranted(self.source)
        return said.get(str(self.analyst))

    def _granted(self) -> dict[str, Grant | None]:
        if not self.books.exist():
            return {}
        rows = self._rows(["action", "parameters"], actions=ABOUT_GRANTS)
        return {analyst: grant for (_, analyst), grant in granted((self.source, *row) for row in rows).items()}

    def grant(self, grant: Grant | None, analyst: str) -> Grant | None:
        """Set, change or take back (None) an analyst's grant; return the one that was in force. Repeating it writes nothing."""
        before: list[Grant | None] = []

        def decide() -> dict[str, Any] | None:
            self.check_intact()
            before[:] = [self.grants().get(analyst)]
            if before[0] == grant:
                return None
            if grant is None:
                return {"action": "revoke", "parameters": canonical_json({"analyst": analyst})}
            return {"action": "grant", "parameters": canonical_json(grant.to_json())}

        self._append(decide)
        return before[0]

    def uses(self, analyst: str) -> list[Use]:
        """Return what an analyst has paid her grant for, in order; a release once, at her first use of it."""
        first_uses = self._used(analyst, ["written_at", "rho", "epsilon", "delta", "events"])
        with reading(self.source):
            return [Use(analyst, self.source, name, charge_from_row(*cost), at) for name, (at, *cost) in first_uses.items()]

    def used(self) -> set[str] | None:
        """Return the releases that whoever asks may see: an analyst those that she has uses of; None: all, to the custodian."""
        return None if self.analyst is None else set(self._used(self.analyst))

    def _used(self, analyst: str, columns: Sequence[str] = ()) -> dict[str, Sequence[Any]]:
        """Return the releases that an analyst has a use of, in order, and columns of the entry that is her first use of it."""
        first_uses: dict[str, Sequence[Any]] = {}
        if not self.books.exist():
            return first_uses
        for action, release, who, *rest in self._rows(["action", "release", "who", *columns], actions=("charge", USE, "refund")):
            if action == "refund":
                first_uses.pop(release, None)
            elif who == f"{ANALYST}{analyst}":
                first_uses.setdefault(release, rest)
        return first_uses

    def bought_as(self, operation: str, query: str) -> list[tuple[str, dict[str, Any]]]:
        """Return release and parameters of what the analyst who asks has uses of, bought by one kind of call of one relation."""
        used = self.used() or set()
        rows = self._rows(["release", "operation", "query", "parameters"], actions=("charge",)) if used else []
        with reading(self.source):
            kept = {name: load(said) for name, made, of, said in rows if name in used and (made, of) == (operation, query)}
            bought = [(name, said) for name, said in kept.items() if isinstance(said, dict)]
            return [(name, {key: value for key, value in said.items() if key != READS}) for name, said in bought]

    def about(self, analyst: str) -> list[dict[str, Any]]:
        """Return the entries that an analyst may see, in order: her grants, and each of her uses as an entry 'use'."""
        entries: list[tuple[dt.datetime, dict[str, Any]]] = []
        rows = self._rows(["action", "parameters", "written_at"], actions=("grant", "revoke"))
        with reading(self.source):
            for action, parameters, at in rows:
                if load(parameters)["analyst"] == analyst:
                    entries.append((at, {"action": action, "parameters": parameters, "written_at": at}))
        for use in self.uses(analyst):
            cost = {"epsilon": float(use.charge.epsilon), "delta": float(use.charge.delta), "rho": float(use.charge.rho)}
            said = {"action": USE, "release": use.release, "who": f"{ANALYST}{analyst}", "written_at": use.at, **cost}
            entries.append((use.at, said))
        return [said for _, said in sorted(entries, key=itemgetter(0))]

    def window(self, grant: Grant, moment: dt.datetime) -> list[Charge]:
        """Return the losses that count against a grant in the window of a moment."""
        first = grant.begin(moment)  # a clock that is set back gives nothing: later uses count, too
        return [use.charge for use in self.uses(grant.analyst) if first is None or use.at >= first]

    def left(self, grant: Grant, protection: Protection, moment: dt.datetime) -> tuple[Remaining, list[Charge]]:
        """Return what is spent and left of a grant in the window of a moment, and what counts against it."""
        spent = self.window(grant, moment)
        return remaining(grant.budget(protection), spent), spent

    def check_grant(self, protection: Protection, charges: Sequence[Charge], moment: dt.datetime) -> None:
        """Refuse losses that the grant of the analyst who asks does not cover, together; a custodian needs none.

        Raises
        ------
        NotGranted
            Her grant was taken back.
        GrantExceeded
            What is left in this window does not cover it.
        """
        grant = self.limit()
        if grant is None:
            return
        for one in charges:
            grant.check_one(protection, one)
        spent, budget = self.window(grant, moment), grant.budget(protection)
        if not fits(budget, spent, *charges):
            charge = charges[-1]
            left, until = remaining(budget, spent), grant.end(moment)
            gaussian = not charge.events or charge.gaussian
            most = left.epsilon_left if gaussian else left.pure_epsilon_left
            limit = "is left"
            if charge.delta > budget.delta:
                limit += f" at the grant's delta = {float(budget.delta):.3g}; the call's delta = {float(charge.delta):.3g} is above"
            epsilon = total_guarantee(budget, charges).epsilon if len(charges) > 1 else charge.epsilon
            raise GrantExceeded(self.source, float(epsilon), most, None if until is None else f"{until:%Y-%m-%d}", limit)

    def use(self, release: str, charge: Charge, protection: Protection, affordable: Callable[[Charge], bool]) -> bool:
        """Note that the analyst who asks uses a release that was bought already, and return True; free where she has a use of it.

        Parameters
        ----------
        affordable : callable
            Whether the table could buy this now. Where it could not she is refused as if nobody had bought it: an answer would tell
            that somebody has.

        Raises
        ------
        NotGranted, GrantExceeded
            Her grant does not cover it; nothing is written.
        BudgetExhausted
            The table's budget would not.
        LedgerError
            The book was edited.
        """

        def decide() -> dict[str, Any] | None:
            if release in (self.used() or ()):
                return None
            self.check_intact()
            moment = now()
            self.check_grant(protection, [charge], moment)
            if not affordable(charge):
                raise BudgetExhausted(self.source)
            return {"action": USE, "release": release, "written_at": moment, **losses(charge)}

        return self.analyst is not None and self._append(decide) is not None


def granted(rows: Iterable[tuple[str, str, str]]) -> dict[tuple[str, str], Grant | None]:
    """Return the grants by source and analyst, of the entries about grants in order: source, action, parameters.

    None: it was taken back.

    Raises
    ------
    LedgerError
        An entry holds what dpsql never wrote.
    """
    grants: dict[tuple[str, str], Grant | None] = {}
    for source, action, parameters in rows:
        with reading(source):
            if action == "linked":
                grants = {place: grant for place, grant in grants.items() if place[0] != source}
                continue
            said = load(parameters)
            analyst = str(said["analyst"])
            grants[source, analyst] = Grant.from_json(source, said) if action == "grant" else None
    return grants


def losses(charge: Charge) -> dict[str, Any]:
    """Return what a charge costs, as columns of an entry."""
    return {
        "events": canonical_json([event.to_json() for event in charge.events]),
        "rho": charge.rho,
        "epsilon": charge.epsilon,
        "delta": charge.delta,
    }
