"""Fitted models of releases, the last ones kept: fitting takes longer than drawing."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import duckdb

from dpsql import methods
from dpsql.books.entries import canonical_json
from dpsql.domains.attributes import Domain
from dpsql.domains.grid import Histogram
from dpsql.release.plan import Plan
from dpsql.release.store import Release
from dpsql.rules.effects import shaped
from dpsql.rules.grammar import stored
from dpsql.tables.tails import placed, trimmed

_FITTED_MODELS = 4  # models kept in memory, so that drawing again does not fit again

_models: OrderedDict[str, Fitted] = OrderedDict()

_guard = threading.Lock()


class Fitted(NamedTuple):
    """A fitted model, the domain of the rows that it gives, and where in their bins the values of a column lie."""

    model: Any
    domain: Domain
    histograms: Mapping[str, Histogram]


def output_domain(plan: Plan, values: tuple[str, ...] = ()) -> Domain:
    """Return the domain of the rows that a release gives; ``values`` are those of an open domain."""
    if plan.open:
        return Domain((replace(plan.domain.attributes[0], categories=values),))
    return methods.get(plan.method or "").output_domain(plan.domain, plan.options)


def mark(bought: Release) -> str:
    """Return what tells this release from any other of its name: what was charged, what was measured, and what was drawn."""
    plan = canonical_json(bought.manifest["plan"])
    text = f"{bought.manifest['charge']['hash']} {bought.manifest['sha256']} {plan}"
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def fitted(cursor: duckdb.DuckDBPyConnection, bought: Release) -> Fitted:
    """Return the model of a release, fitting it if this process has not done so lately."""
    key = f"{bought.path} {mark(bought)}"
    with _guard:
        if key in _models:
            _models.move_to_end(key)
            return _models[key]
    plan = bought.plan
    statistics = trimmed(bought.statistics(cursor))
    if plan.rules:
        statistics = shaped(cursor, statistics, plan.domain, [stored(text) for text in plan.rules])
    inside = {plan.domain.names[position]: histogram for position, histogram in placed(statistics).items()}
    found = methods.get(plan.method or "").fit(statistics, plan.options)
    model = Fitted(found, output_domain(plan, statistics.values), inside)
    with _guard:
        _models[key] = model
        while len(_models) > _FITTED_MODELS:
            _models.popitem(last=False)
    return model
