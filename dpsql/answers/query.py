"""dp_query: an aggregate query answered from what is bought, or buying it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction

from dpsql.accounting.rules import rho_limit
from dpsql.answers import answered
from dpsql.calls.query import QueryCall
from dpsql.errors import DpsqlError, LedgerError, ReleaseError
from dpsql.protected.source import ProtectedSource, resolve
from dpsql.purchase import buying
from dpsql.queries.asked import Asked
from dpsql.queries.purchase import QueryPurchase
from dpsql.queries.reading import Read, read
from dpsql.release.store import Release
from dpsql.rows import drawing
from dpsql.running.progress import Progress
from dpsql.session.instance import Context
from dpsql.text.bounded_json import load


@dataclass(frozen=True)
class Part:
    """A release that answers one grouping set of a core, and whether it was there before."""

    asked: Asked
    release: Release
    protected: ProtectedSource


def query(context: Context, call: QueryCall) -> str:
    """Return the answer of a query, buying what was not bought before.

    Privacy
    -------
    Each core of the query is a release of its own, charged before a row is read. Everything else is post-processing.
    """
    with Progress("dp_query", show=context.progress) as progress:
        found = read(context, call)
        sources = [[resolve(context, one.sql, local=True) for one in sets] for _, sets in found.asked]
        answered.check(context, found, sources)
        parts = _bought(context, found, sources, progress)
        return answered.relation(context, found, parts)


def queries(context: Context, call: QueryCall) -> list[tuple[ProtectedSource, QueryPurchase]]:
    """Return what a query would buy, with the source of each release. No row is read."""
    found = read(context, call)
    sources = [[resolve(context, one.sql, local=True) for one in sets] for _, sets in found.asked]
    answered.check(context, found, sources)
    return [
        (source, purchase)
        for bought, held in zip(purchases(found, sources), sources, strict=True)
        for purchase, source in zip(bought, held, strict=True)
    ]


def purchases(read: Read, sources: list[list[ProtectedSource]]) -> list[list[QueryPurchase]]:
    """Return what a query buys, the loss of each table divided among its cores and grouping sets."""
    keys = [source.key for sets in sources for source in sets]
    out = []
    for (_, sets), found in zip(read.asked, sources, strict=True):
        each = []
        for one, source in zip(sets, found, strict=True):
            epsilon = read.call.epsilon
            if epsilon is not None:
                epsilon = share_of(epsilon, keys.count(source.key), source, read.call.mechanism)
            several = len(keys) > 1 and read.call.release is not None
            name = f"{read.call.release} {len(out)}-{len(each)}" if several else read.call.release
            each.append(QueryPurchase(one, read.call.changed(release=name), epsilon))
        out.append(each)
    return out


def share_of(epsilon: float, count: int, source: ProtectedSource, mechanism: str) -> float:
    """Return the epsilon of each of ``count`` releases that together cost at most one of this epsilon.

    Notes
    -----
    Under 'zcdp' losses of Gaussian noise add up in rho: count times the rho of the result is at most the rho of epsilon. Else
    epsilons add up.
    """
    budget = source.protection.budget
    if count == 1:
        return epsilon
    if mechanism != "gaussian" or budget.accountant != "zcdp":
        return epsilon / count
    delta, low, high = float(budget.delta), epsilon / count, epsilon
    limit = Fraction(rho_limit(epsilon, delta, gaussian=True))
    for _ in range(40):
        middle = (low + high) / 2
        if Fraction(rho_limit(middle, delta, gaussian=True)) * count <= limit:
            low = middle
        else:
            high = middle
    return float(f"{low * (1 - 1e-9):.9g}") * (1 - 1e-8)


def _bought(context: Context, found: Read, sources: list[list[ProtectedSource]], progress: Progress) -> list[list[Part]]:
    out = []
    for calls, protected in zip(purchases(found, sources), sources, strict=True):
        parts = []
        for call, source in zip(calls, protected, strict=True):
            release = None if call.call.release is not None else known(context, source, call)
            parts.append(Part(call.asked, release or buying.buy(context, call, progress), source))
        out.append(parts)
    return out


def known(context: Context, source: ProtectedSource, call: QueryPurchase) -> Release | None:
    """Return a stored release that already holds what is asked, at no less accuracy; None where there is none."""
    wanted = call.asked.canonical()
    for name, parameters in _stored(source):
        held = parameters.get("query")
        if not isinstance(held, dict) or any(held.get(key) != wanted[key] for key in ("rows", "keys")):
            continue
        if not _contains(held, wanted, call, parameters):
            continue
        with suppress(ReleaseError, LedgerError):
            found = drawing.bought(context, source.books, name)
            if found is not None:
                return found
    return None


def _contains(held: dict[str, list[str]], wanted: dict[str, object], call: QueryPurchase, parameters: dict[str, object]) -> bool:
    """Return whether a bought question contains another one, bounded as it is, at no smaller epsilon."""
    if not set(wanted["aggregates"]) <= set(held["aggregates"]):  # type: ignore[call-overload]
        return False
    asked = call.filled(parameters).canonical()
    free = ("epsilon", "query", "weights", "bounds_share")
    if any(asked[name] != parameters.get(name) for name in asked if name not in free):
        return False
    return call.epsilon is None or float(str(parameters["epsilon"])) >= call.epsilon


def _stored(source: ProtectedSource) -> list[tuple[str, dict[str, object]]]:
    """Return the names and parameters of the stored answers of a table."""
    books = source.books
    rows = books.cursor.execute(
        f"SELECT release, parameters FROM ({books.releases()}) WHERE source = ? AND operation = 'query' AND status = 'stored'",  # noqa: S608
        [source.key],
    ).fetchall()
    found = []
    for name, text in rows:
        with suppress(ValueError, DpsqlError):
            parameters = load(str(text))
            if isinstance(parameters, dict):
                found.append((str(name), parameters))
    return found
