"""What is looked up of each purchase of a query before it is bought: once, and anew after something was bought. Post-processing."""

from __future__ import annotations

from dpsql.answers import auto, held
from dpsql.answers.held import Held
from dpsql.protected.source import ProtectedSource
from dpsql.queries.asked import Asked
from dpsql.queries.purchase import QueryPurchase
from dpsql.session.instance import Context


class Looking:
    """What stored releases say of the purchases of one query.

    The rehearsal asks, and the purchase after it. What was bought between two purchases may answer the second one, or have learned
    bounds of it, so `bought` forgets. The purchases are to live as long as this does.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._there: dict[int, tuple[Held, Asked] | None] = {}
        self._completed: dict[int, QueryPurchase] = {}

    def there(self, source: ProtectedSource, call: QueryPurchase) -> tuple[Held, Asked] | None:
        """Return released numbers that answer a purchase, and as what (`held.known`); None for one that was given a name."""
        if call.call.release is not None:
            return None
        if id(call) not in self._there:
            self._there[id(call)] = held.known(self._context, source, call)
        return self._there[id(call)]

    def completed(self, source: ProtectedSource, call: QueryPurchase) -> QueryPurchase:
        """Return a purchase with the bounds that stored releases have learned (`auto.reused`)."""
        if id(call) not in self._completed:
            self._completed[id(call)] = auto.reused(self._context, source, call)
        return self._completed[id(call)]

    def bought(self) -> None:
        """Forget: a release more is stored."""
        self._there.clear()
        self._completed.clear()
