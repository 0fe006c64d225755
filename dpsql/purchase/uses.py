"""What an analyst of a served database buys: which release it is, whether her grant allows it, what it costs her.

**Which release.** The releases of an analyst with a grant have identifiers that depend on nothing but what she asks for: the
question, its parameters, the plan and the links of today, and the statement that reads rows. Two of them who ask the same share the
release; the table is charged once, and each pays her grant the same, whoever was first. A name that she gives is hers alone. So
neither a price, a name nor a refusal tells what others have bought. What the custodian has bought goes by other identifiers, and is
not shared, nor is what analysts without a grant buy: they see the table's budget, whose charges would tell them.

**What is hers.** A release that she has a use of is found again by its question, whatever was declared since, and is free.

Privacy: None: the books and plans are looked at, no row.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from dpsql.accounting import Budget, Charge, fits
from dpsql.books.entries import canonical_json
from dpsql.books.granted import now
from dpsql.calls.buying import BuyingCall
from dpsql.errors import ArgumentError, DpsqlError, GrantExceeded
from dpsql.kinds.plans import Request, request
from dpsql.protected.source import ProtectedSource
from dpsql.release import identity
from dpsql.session.instance import Context

SHARED = "analysts"
"""Whose the releases are that analysts with grants share: no analyst and no user is called so in the books' identifiers."""
PAID = "paid"
"""Where a call's context has what it has paid for."""
ADVICE = "Ask for a smaller epsilon (FROM dp_budget() shows what is left), or reread what was bought (FROM dp_releases())."
"""What helps where the budget does not cover a call."""
_WHOLE = "epsilon of the whole call"


@dataclass(frozen=True)
class Paid:
    """What a call has paid for: a release, its epsilon, and whether it was there already (an analyst's grant alone has paid)."""

    release: str
    epsilon: float
    shared: bool


@dataclass(frozen=True)
class Asked:
    """A call as whoever asks means it.

    Parameters
    ----------
    release : str
        The identifier of the release.
    hers : bool
        Whether it is free where it is there: an analyst has a use of it, or whoever asks has no grant.
    wanted : Request, optional
        What would be bought, where it had to be planned to know.
    """

    release: str
    hers: bool
    wanted: Request | None = None


def asked(context: Context, protected: ProtectedSource, call: BuyingCall) -> Asked:
    """Return which release a call is about.

    Raises
    ------
    NotGranted
        An analyst's grant of the table was taken back.
    """
    ledger = protected.ledger
    if ledger.limit() is None:
        return Asked(_identifier(protected, call, call.release_name, ledger.owner), hers=True)
    if call.release is not None:
        name = _identifier(protected, call, call.release_name, ledger.owner)
        return Asked(name, name in (ledger.used() or ()))
    held = hers(protected, call)
    if held is not None:
        return Asked(held, hers=True)
    wanted = request(context, protected, call)
    links = [link.to_json() for link in protected.reads.links]
    # What a text means depends on the columns of her grant (a star, names by places): the statement that reads has them all.
    read = [] if protected.source.bare else [protected.source.sql]
    text = canonical_json([wanted.parameters, wanted.plan.to_json(), *([links] if links else []), *read])
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    first = "" if call.operation == "query" else f"{call.release_name[:20]} "
    name = _identifier(protected, call, f"{first}{digest}", SHARED)
    return Asked(name, name in (ledger.used() or ()), wanted)


def hers(protected: ProtectedSource, call: BuyingCall) -> str | None:
    """Return the release that an analyst has a use of and that a call without a name asks for again; None where there is none."""
    for name, bought in protected.ledger.bought_as(call.operation, protected.query):
        try:
            same = not call.differing(bought)
        except DpsqlError:  # said in full where it is bought
            return None
        if same:
            return name
    return None


def whole(context: Context, epsilon: float | None) -> None:
    """Note what a call may cost that is bought in parts: the limit of one call is one of the whole."""
    if epsilon is not None:
        context.known.setdefault(_WHOLE, epsilon)


def check(context: Context, protected: ProtectedSource, call: BuyingCall) -> None:
    """Refuse what a grant does not allow of any one call: its epsilon, its method. What is spent does not matter here.

    Raises
    ------
    NotGranted, GrantExceeded, ArgumentError
    """
    grant = protected.ledger.limit()
    if grant is None:
        return
    method = call.release_method
    name = str(context.known.get("call", call.name))  # as it was called: dp_summarize asks a query
    name = call.operation if name == "plan" else name
    if not grant.allows([name, None if method is None else method.name]):
        listed = ", ".join(grant.methods or ())
        raise ArgumentError("call", f"dp_{name}", f"your grant on {grant.source} is for {listed}")
    epsilon = max(call.epsilon or 0.0, context.known.get(_WHOLE, 0.0))
    if grant.per_query is not None and epsilon > grant.per_query:
        raise GrantExceeded(grant.source, epsilon, grant.per_query, None, "is the most of one call")
    # A whole is charged in parts, each of which is checked alone.
    table = float(protected.protection.budget.delta)
    if grant.per_query is not None and _WHOLE in context.known and call.delta is not None and call.delta > table:
        told = f"is the most of one call, at the table's delta = {table:.3g}; the call's delta = {call.delta:.3g} is above that"
        raise GrantExceeded(grant.source, epsilon, grant.per_query, None, told)


def check_together(context: Context, wanted: Sequence[tuple[ProtectedSource, BuyingCall]]) -> None:
    """Refuse purchases of one call that are more, together, than is left; what is there already is free.

    Each is checked again where it is charged. One of them alone is not looked at: its charge says all there is to say.

    Raises
    ------
    BudgetExceeded, BudgetExhausted, NotGranted, GrantExceeded
        Nothing was charged.
    """
    tables: dict[tuple[str, str], tuple[ProtectedSource, dict[str, Charge]]] = {}
    for protected, call in wanted if len(wanted) > 1 else ():
        use = asked(context, protected, call)
        if use.hers and protected.ledger.purchase(use.release) is not None:
            continue
        if not use.hers:
            check(context, protected, call)
        plan = use.wanted or request(context, protected, call)
        charges = tables.setdefault((protected.books.database, protected.key), (protected, {}))[1]
        charges[use.release] = plan.calibration.charge
    for protected, charges in tables.values():
        if len(charges) > 1:
            protected.ledger.check_together([*charges.values()], ADVICE)


def limit(protected: ProtectedSource) -> tuple[Budget, Sequence[Charge]]:
    """Return the limit that whoever asks has, and what counts against it: the table's, or the analyst's grant in this window."""
    grant = protected.ledger.limit()
    if grant is None:
        return protected.protection.budget, protected.ledger.charges()
    return grant.budget(protected.protection), protected.ledger.window(grant, now())


def affordable(protected: ProtectedSource, charge: Charge) -> bool:
    """Return whether whoever asks can buy something now: the budget covers it, and an analyst's grant does too."""
    try:
        protected.ledger.check_grant(protected.protection, [charge], now())
    except GrantExceeded:
        return False
    return fits(protected.protection.budget, protected.ledger.charges(), charge)


def note(context: Context, release: str, charge: Charge, *, shared: bool = False) -> None:
    """Note that the call has paid for a release."""
    context.known.setdefault(PAID, []).append(Paid(release, float(charge.epsilon), shared))


def _identifier(protected: ProtectedSource, call: BuyingCall, name: str, owner: str) -> str:
    return identity.release_id(protected.key, call.operation, protected.query, name, owner)
