"""Another question's release that gives what is asked: other aggregates of the same measures, coarser groups. Post-processing.

The statistic has to be the one that the question would buy today: of the same rows, with rows of a unit bounded in the same way,
the same bounds of arguments, the same groups. So today's plan is made, as far as it is public, and compared with that of the
release.

*Coarser groups* are sums of those of the release where these are public and hold every row, and rows of a unit are bounded in all,
not by groups: at most so many rows of each unit are kept whatever the groups are. ``max_groups`` keeps other rows for other groups.
Private groups are no parts of anything: those that are missing are not empty. Keys that are left out have to be of listed values
that are all that a row can have, by its type or a CHECK: rows with others are in no group, and would be missing in the sums.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from sqlglot import exp

from dpsql.answers.held import Held, of_release, summed
from dpsql.errors import DpsqlError
from dpsql.kinds.query.question import Bounding, Question
from dpsql.protected.source import ProtectedSource
from dpsql.queries.asked import Wanted
from dpsql.queries.choosing import Argument
from dpsql.queries.containing import contained, spread, translated
from dpsql.queries.groups import Groups
from dpsql.queries.lineage import Leaf
from dpsql.queries.naming import read_expression
from dpsql.queries.purchase import QueryPurchase
from dpsql.release.queried import QueryPlan
from dpsql.release.store import Release
from dpsql.session.instance import Context
from dpsql.text import readable

Group = tuple[str | None, ...]
_ALIKE = ("delta", "mechanism")
_ALIKE_OF_PRIVATE = ("groups", "min_units")


class Today:
    """What a question would buy today, as far as it is public; made when it is needed."""

    def __init__(self, context: Context, source: ProtectedSource, call: QueryPurchase) -> None:
        self.context, self.source, self.call = context, source, call

    @cached_property
    def planning(self) -> Question:
        """What is known of the question."""
        return Question(self.context, self.source, self.call, {})

    @cached_property
    def bounding(self) -> Bounding:
        """How rows of a unit are bounded."""
        return self.planning.bounding(None if self.groups is None else self.groups.count)

    @cached_property
    def groups(self) -> Groups | None:
        """The public groups; None where they are private."""
        return self.planning.groups()

    @cached_property
    def listed(self) -> list[Group]:
        """The texts of the public groups, in order."""
        return self.texts(self.groups, len(self.call.asked.keys))

    @cached_property
    def _arguments(self) -> dict[int, Argument]:
        return self.planning.arguments()

    def arguments(self, parameters: Mapping[str, Any]) -> dict[int, Argument]:
        """Return what is known of the arguments; bounds that are learned are those with which a release was bought."""
        if not self.call.call.auto:
            return self._arguments
        return Question(self.context, self.source, self.call.filled(parameters), {}).arguments()

    def has_value(self, text: str) -> bool:
        """Return whether an argument is never NULL."""
        return self.planning.has_value(read_expression(text, "sql"))

    def texts(self, groups: Groups | None, keys: int) -> list[Group]:
        """Return public groups as texts, in the order of an answer."""
        if groups is None or not keys:
            return [()]
        shown = ", ".join(f"CAST(k{i} AS VARCHAR)" for i in range(keys))
        order = ", ".join(f"k{i} ASC NULLS LAST" for i in range(keys))
        rows = self.context.cursor.execute(f"SELECT {shown} FROM ({groups.sql}) ORDER BY {order}").fetchall()  # noqa: S608 -- own
        return [tuple(row) for row in rows]

    def holds_every_row(self, key: str) -> bool:
        """Return whether the listed values of a key are all that a row can have."""
        for column in read_expression(key, "sql").find_all(exp.Column):
            origin = self.planning.lineage.origin(column)
            if not origin or len(origin) != 1 or not isinstance(origin[0], Leaf):
                return False
            if not self.planning.facts.complete(origin[0].table, origin[0].name):
                return False
        return True


@dataclass(frozen=True)
class Found:
    """A release that gives what is asked.

    Parameters
    ----------
    wanted : tuple of Wanted
        The aggregates with the positions of the release.
    spread : float
        How noisy they are, see `dpsql.queries.containing.spread`.
    keys : tuple of int
        Which of the release's keys are those of the question.
    groups : list of tuples or None
        The groups of the question, to which those of the release are added up; None where they are the same.
    types : tuple of str
        Of the keys of the question.
    said : tuple of str
    """

    wanted: tuple[Wanted, ...]
    spread: float
    keys: tuple[int, ...] = ()
    groups: list[Group] | None = None
    types: tuple[str, ...] = ()
    said: tuple[str, ...] = ()

    def held(self, context: Context, release: Release) -> Held | None:
        """Return the numbers; None where the groups of the release are not parts of those of the question."""
        whole = replace(of_release(context, release), wanted=self.wanted, said=self.said)
        if self.groups is None or whole.plan.query is None:
            return whole
        index = {group: place for place, group in enumerate(self.groups)}
        places = [index.get(tuple(group[key] for key in self.keys)) for group in whole.numbers.groups]
        if None in places or len(set(places)) < len(self.groups):
            return None
        query = replace(whole.plan.query, keys=self.types, groups=len(self.groups), groups_sql="")
        found = replace(whole, plan=replace(whole.plan, query=query))
        return summed(found, self.groups, np.array(places, dtype=np.int64))


def may_be(call: QueryPurchase, question: Mapping[str, Any], parameters: Mapping[str, Any]) -> bool:
    """Return whether a bought question may contain another one, by what its texts say."""
    asked = call.asked
    if not asked.wanted or not set(asked.key_texts) <= set(question.get("keys", ())):
        return False
    canonical = call.filled(parameters).canonical()
    if any(canonical[name] != parameters.get(name) for name in _ALIKE):
        return False
    if call.call.auto and canonical["bounds"] != parameters.get("bounds"):
        return False
    return translated(asked, question) is not None


def in_release(today: Today, release: Release, question: Mapping[str, Any], parameters: Mapping[str, Any]) -> Found | None:
    """Return how a release gives what is asked today; None if it does not, or if that cannot be asked at all."""
    query, asked = release.plan.query, today.call.asked
    if query is None or not _bounded_alike(today, release, query):
        return None
    keys = tuple(list(question["keys"]).index(text) for text in asked.key_texts)
    left_out = [text for place, text in enumerate(question["keys"]) if place not in keys]
    try:
        known = today.arguments(parameters)
        wanted = contained(
            asked, question, release.plan, known, today.has_value, bought=release.planned, coarser=bool(left_out)
        )
        if wanted is None or not _grouped_alike(today, query, question, parameters, left_out):
            return None
        groups, types = _groups(today, query, keys)
    except DpsqlError:  # it is said in full where it is bought
        return None
    added = 1 if groups is None else max(1, -(-(query.groups or 1) // len(groups)))
    said = [f"by its measures: it was bought for {_shown(release)}"]
    if left_out:
        by = ", ".join(readable.expression(text) for text in question["keys"])
        said.append(f"each number is a sum of those of its groups by {by}, about {added:,} of them, with the noise of each")
    return Found(tuple(wanted), spread(release.plan, wanted, added), keys, groups, types, tuple(said))


def _shown(release: Release) -> str:
    unit = release.manifest.get("privacy_unit")
    texts = release.manifest["parameters"]["query"]["aggregates"]
    return ", ".join(readable.aggregate(str(text), unit) for text in texts) or "its groups"


def _bounded_alike(today: Today, release: Release, query: QueryPlan) -> bool:
    """Return whether rows of a unit are bounded as they would be today, and units are what they were."""
    bounding, unit = today.bounding, today.source.protection.privacy_unit
    held = (query.max_rows, query.max_groups, query.max_rows_per_group)
    if (query.unit, release.manifest.get("privacy_unit")) != (unit is not None, unit):
        return False
    return held == (bounding.max_rows, bounding.max_groups, bounding.max_rows_per_group)


def _grouped_alike(
    today: Today, query: QueryPlan, question: Mapping[str, Any], parameters: Mapping[str, Any], left_out: list[str]
) -> bool:
    """Return whether the groups of a release are those of the question, or parts of them that hold every row."""
    asked = today.call.asked
    if today.groups is None or not query.public:
        canonical = today.call.filled(parameters).canonical()
        same = all(canonical[name] == parameters.get(name) for name in _ALIKE_OF_PRIVATE)
        return today.groups is None and not query.public and list(asked.key_texts) == list(question["keys"]) and same
    if not left_out:
        return True  # the groups themselves are compared
    if query.max_groups is not None or query.max_rows_per_group is not None or not all(map(today.holds_every_row, left_out)):
        return False
    parts = today.planning.listed([read_expression(text, "sql") for text in question["keys"]])
    return bool(parts) and parts.sql == query.groups_sql and parts.types == query.keys


def _groups(today: Today, query: QueryPlan, keys: tuple[int, ...]) -> tuple[list[Group] | None, tuple[str, ...]]:
    """Return the groups of the question and the types of its keys; no groups where the release has the same."""
    types = tuple(query.keys[key] for key in keys)
    if today.groups is None or (keys == tuple(range(len(query.keys))) and today.groups.sql == query.groups_sql):
        return None, types
    return today.listed, types
