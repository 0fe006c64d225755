"""What a query buys: a release for each grouping set of each of its cores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from dpsql.calls import arguments
from dpsql.calls.buying import BuyingCall
from dpsql.calls.declaration import CHARGED
from dpsql.calls.query import QueryCall
from dpsql.queries.asked import Asked


@dataclass(frozen=True)
class QueryPurchase(BuyingCall):
    """What a query buys: one grouping set of one of its cores.

    Parameters
    ----------
    asked : Asked
        Keys, aggregates and the row source.
    call : QueryCall
        The arguments of the query.
    learned : mapping
        Text of an argument -> bounds that an earlier release has learned, where they are to be 'auto'.
    """

    operation: ClassVar[str] = "query"
    name: ClassVar[str] = "query"
    function: ClassVar[str] = "query"
    privacy: ClassVar[str] = CHARGED
    gives: ClassVar[str] = ""
    local: ClassVar[bool] = True
    unsaid: ClassVar[tuple[str, ...]] = ("max_rows",)

    asked: Asked
    call: QueryCall
    epsilon: float | None = None
    learned: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check nothing: the arguments were checked as those of the query."""

    @property
    def source(self) -> str:
        """The row source."""
        return self.asked.sql

    @property
    def columns(self) -> None:
        """None: its columns are named by the query."""
        return

    @property
    def delta(self) -> float | None:
        """The delta of the query."""
        return self.call.delta

    @property
    def release(self) -> str | None:
        """The name that the query gave."""
        return self.call.release

    @property
    def release_name(self) -> str:
        """The query's name, else one that its parameters make: the same question for the same price is the same release."""
        if self.call.release is not None:
            return self.call.release
        return self.digest

    def canonical(self) -> dict[str, Any]:
        """Return the question, how rows are bounded, and cost."""
        call = self.call
        return {
            "epsilon": arguments.epsilon({"epsilon": self.epsilon}),
            "delta": call.delta,
            "mechanism": call.mechanism,
            "query": self.asked.canonical(),
            "groups": call.groups,
            "max_groups": call.max_groups,
            "max_rows_per_group": call.max_rows_per_group,
            "min_units": call.min_units,
            **({} if call.max_rows is None else {"max_rows": call.max_rows}),
            "bounds": {text: pair if isinstance(pair, str) else list(pair) for text, pair in sorted(call.bounds.items())},
            "weights": dict(sorted(call.weights.items())),
            **({"bounds_share": call.bounds_share} if call.auto else {}),
            **({"learned": {text: list(pair) for text, pair in sorted(self.learned.items())}} if self.learned else {}),
        }

    def filled(self, bought: Mapping[str, Any]) -> Self:
        """Return the purchase with epsilon as it was bought where it is left out, and the learned bounds it was bought with."""
        filled = self
        if self.epsilon is None and "epsilon" in bought:
            filled = filled.changed(epsilon=bought["epsilon"])
        if self.call.auto:
            learned = bought.get("learned") or {}
            filled = filled.changed(learned={text: (float(pair[0]), float(pair[1])) for text, pair in learned.items()})
        return filled
